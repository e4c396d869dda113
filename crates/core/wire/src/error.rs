//! Errors that a user can see: each has a number, a class and a sentence with advice.
//!
//! Numbers are NDB's where the meaning is the same, so that users' knowledge of them still applies; ours begin at
//! 20000. The list is append-only: a number never changes its meaning.

use core::fmt;

/// What a caller may do after an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorClass {
    /// The same request may succeed a little later; nothing was changed.
    Temporary,
    /// The request can't be carried out with this data or state; the application decides.
    Application,
    /// Names a table, column or version that does not exist, or no longer exists.
    Schema,
    /// A configured limit is reached; the sentence names the parameter.
    Resources,
    /// The request itself is malformed or not allowed.
    Usage,
    /// It is unknown whether the transaction was committed, or whether it is on disk as was asked for.
    Unknown,
    /// A bug in Vinga.
    Internal,
}

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $class:ident, $text:literal;)*) => {
        /// The number of an error.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum ErrorCode {
            $($(#[$doc])* #[doc = $text] $name = $number,)*
        }

        impl ErrorCode {
            /// All errors, in the order of the list.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name,)*];

            /// The error with a number; `None` if there is none.
            pub fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(ErrorCode::$name),)*
                    _ => None,
                }
            }

            /// What a caller may do after it.
            pub fn class(self) -> ErrorClass {
                match self {
                    $(ErrorCode::$name => ErrorClass::$class,)*
                }
            }

            /// What it means and what to do.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(ErrorCode::$name => $text,)*
                }
            }
        }
    };
}

errors! {
    OutOfTransactions = 233, Resources,
        "All transaction records are in use: end some transactions, or raise MaxNoOfConcurrentTransactions.";
    OutOfOperations = 234, Resources,
        "All operation records are in use: use smaller transactions, or raise MaxNoOfConcurrentOperations.";
    StaleTable = 241, Schema,
        "The table has another version now: read its definition again.";
    LockTimeout = 266, Temporary,
        "A row lock was not granted within TransactionDeadlockDetectionTimeout, or the time that was asked for: retry the transaction.";
    Deadlock = 274, Temporary,
        "The transaction was chosen to end a deadlock: retry it.";
    InactiveTimeout = 277, Temporary,
        "The transaction was idle longer than TransactionInactiveTimeout and was rolled back: retry it.";
    NodeFailure = 286, Temporary,
        "A data node failed during the transaction, which was rolled back: retry it.";
    RedoLogFull = 410, Temporary,
        "The redo log is full: try again. If that lasts, see in 'vinga admin redo' whether checkpoints fail because the disk is \
         full; else raise NoOfFragmentLogFiles.";
    OutOfScans = 489, Resources,
        "All scan records are in use: close some scans, or raise MaxNoOfConcurrentScans.";
    NoSuchRow = 626, Application,
        "There is no row with this key.";
    DuplicateKey = 630, Application,
        "There is a row with this key already.";
    OutOfTables = 707, Resources,
        "All table records are in use: drop some tables, or raise MaxNoOfTables.";
    NoSuchTable = 723, Schema,
        "There is no such table.";
    TableExists = 721, Schema,
        "There is a table of this name already.";
    BadTableDefinition = 738, Usage,
        "The table definition is not allowed.";
    DataMemoryFull = 827, Resources,
        "The data memory is full: delete rows, or raise DataMemory.";
    ConditionFailed = 899, Application,
        "The row does not fulfil the condition of the operation.";
    SchemaBusy = 701, Temporary,
        "A schema change is under way: retry a little later.";
    Overloaded = 1218, Temporary,
        "The data node has more work than it can queue: retry a little later.";
    RedoBufferFull = 1221, Temporary,
        "The disk is too slow for the redo log: too much waits to be written; try again.";
    Partitioned = 2305, Temporary,
        "The data node stops because others may go on without it, or it can't go on without those that have failed.";
    DeclaredFailed = 2315, Temporary,
        "The data node stops because the others have gone on without it.";
    ClusterFailure = 4009, Temporary,
        "No data node is connected: retry when the cluster is reachable again.";
    UnknownOutcome = 4012, Unknown,
        "The connection was lost while the transaction was being committed: whether it, or this operation of it, was done is not known.";
    RowLost = 4013, Application,
        "The transaction is committed, but a row that it has read was lost with a connection: read it again, and change nothing again.";
    ConnectionLost = 4002, Temporary,
        "The connection to the data node was lost and the transaction was rolled back: retry it.";
    TransactionAborted = 4350, Temporary,
        "The transaction was rolled back before: begin a new one.";
    WrongProtocol = 20001, Usage,
        "The peer speaks another protocol version.";
    WrongCluster = 20002, Usage,
        "The peer belongs to another cluster.";
    NoFreeNodeId = 20003, Resources,
        "No node id is free for another client: close some, or raise MaxNoOfApiConnections.";
    BadHandshake = 20004, Usage,
        "The connection did not begin with Vinga's greeting.";
    HandshakeTimeout = 20005, Usage,
        "The connection sent no complete greeting in time.";
    MalformedFrame = 20006, Usage,
        "The bytes received are no frame: the connection is closed.";
    UnexpectedSignal = 20007, Usage,
        "A client may not send this signal.";
    MalformedSignal = 20008, Usage,
        "The signal's body is not what its number says.";
    NotYourTransaction = 20009, Usage,
        "The transaction belongs to another client.";
    NoSuchTransaction = 20010, Usage,
        "There is no such open transaction.";
    AbsurdEpoch = 20011, Usage,
        "The epoch that the client claims to have seen lies far in the future: the connection is closed.";
    RowTooLong = 739, Application,
        "The row is longer than 30000 bytes: shorten its long values.";
    BadRow = 20012, Usage,
        "The row does not fit the table's columns.";
    BadKey = 20013, Usage,
        "The key does not fit the table's primary key.";
    BadProgram = 20014, Usage,
        "The filter or update program is not allowed.";
    NumericOverflow = 20015, Application,
        "The result of the arithmetic does not fit the column.";
    Moved = 20016, Temporary,
        "The row is served by another data node now: read the partition map again.";
    NoSuchScan = 20017, Usage,
        "There is no such open scan.";
    ScanTimeout = 20018, Temporary,
        "The scan was idle longer than TransactionInactiveTimeout and was closed: begin it again.";
    SlowReader = 20019, Usage,
        "The client does not read its answers: the connection is closed.";
    ClientSilent = 20020, Usage,
        "Nothing came from the client for four heartbeats: the connection is closed.";
    TooManyOperations = 20021, Usage,
        "The request holds more operations than one signal may.";
    NotSupportedYet = 20022, Usage,
        "This is not supported yet.";
    NodeStopping = 20023, Temporary,
        "The data node is stopping.";
    ClusterRestarted = 20024, Unknown,
        "The cluster was restarted: what was under way is committed or rolled back, which is not known.";
    NodeIdInUse = 20025, Usage,
        "Another client with this node id is connected.";
    TooManyColumns = 20026, Usage,
        "More columns were selected than the table has.";
    NoSuchIndex = 20027, Schema,
        "There is no such ordered index: read the table's definition again.";
    BadAddress = 20028, Usage,
        "That is no address of data nodes: write host:port (several with commas between) or unix:/path/vinga.sock.";
    NodeStarting = 20029, Temporary,
        "The data node is starting, and waits for the other ones: retry a little later.";
    NotInTheView = 20030, Temporary,
        "The data node has lost a member of the cluster that it was to join, before it was one itself: start it again.";
    OtherConfiguration = 20031, Usage,
        "A node does not fit the configuration of another one; all nodes of a cluster start with the same configuration.";
    KeyRequired = 20032, Usage,
        "The cluster has a key, which must be proven: name its file (key=FILE before the addresses, or ClusterKeyFile).";
    WrongKey = 20033, Usage,
        "The two ends of the connection do not have the same cluster key: give both the same file.";
    NotPermitted = 20034, Usage,
        "Only the data node's user, root and users of the group LocalConnectionsGroup may connect by its Unix socket.";
    NoDisk = 20048, Usage,
        "The cluster keeps nothing on disk (Diskless), so a commit can't wait until it is there.";
    EpochNotKnown = 20049, Temporary,
        "The client has seen an epoch that this data node has not received yet.";
    DiskFull = 20050, Resources,
        "A data node has no room for the change on its disk, or the system lets no file be so long: make room, or raise the limit.";
    FileNotPermitted = 20052, Usage,
        "The data node may not use one of its files: give its user permission to read and write it.";
    NewerFiles = 20053, Usage,
        "A file was written by a newer program: use that one, or a newer one.";
    NoDatabase = 20054, Usage,
        "The data node's folder has no database, though it should: mount its disk, bring back its files, or begin anew with --initial.";
    DamagedConfiguration = 20055, Usage,
        "The data node's copy of its configuration is damaged: start a management node that hands it out, or remove the copy.";
    FileFailed = 20056, Resources,
        "The system can't read or write a file of a data node: look at the disk; the node's log has the file and the reason.";
    BadParameter = 20051, Usage,
        "The parameter can't have this value, or can't change while data nodes run.";
    HiddenTable = 20060, Usage,
        "The rows of a unique index change with those of its table: change these.";
    BackupRunning = 20073, Application,
        "A backup is being made by another client already: wait until it has ended.";
    NoSuchBackup = 20074, Usage,
        "The client makes no backup here: it has ended, or was never begun.";
    BackupBufferFull = 20075, Resources,
        "The changes that were made while the backup ran did not fit BackupLogBufferSize, so it was given up: raise that, or make it when less is changed.";
    NodeIsNeeded = 20076, Application,
        "The cluster can't go on without this data node: stop the whole cluster, or have this one stop in any case.";
    NoClusterLog = 20077, Usage,
        "The management node has no log of the cluster: start it with a folder (--folder or DataDir) that it may use.";
    KeyForAnother = 20078, Usage,
        "The connection was opened for another node, address or use than it has come to: check the address that was given. \
         If something relays it on purpose (address translation, forwarded ports), clients write relayed-key=FILE in place of \
         key=FILE.";
    BadKeyFile = 20079, Usage,
        "The file of the cluster key can't be used: it has to be a file that only the user of the program may read (mode 0600).";
    NotOnDisk = 20080, Unknown,
        "The change is committed, but perhaps not on disk, as the redo log is full: a crash may undo it. See 'vinga admin redo': \
         make room on the disk, or raise NoOfFragmentLogFiles.";
    DatabaseExists = 20040, Schema,
        "There is a database of this name already.";
    NoSuchDatabase = 20041, Schema,
        "There is no such database.";
    DatabaseNotEmpty = 20042, Application,
        "There are tables in the database: drop them first.";
    OutOfDatabases = 20043, Resources,
        "There are as many databases as there may be: drop some.";
    SchemaLockTimeout = 20044, Temporary,
        "Another client holds the schema lock: retry when it is done.";
    RowLocked = 20045, Application,
        "Others have locked the row, and the operation was not to wait for it.";
    NeedsSql = 20046, Usage,
        "Only SQL can do this to a table that was made by SQL: use a SQL node.";
    SameDataNode = 20047, Usage,
        "Two of the given addresses lead to the same data node: one of them is used.";
    LedByAnother = 20061, Temporary,
        "Another data node leads the cluster and changes the schema: the request goes to that one.";
    InternalError = 20099, Internal,
        "Something that must not happen has happened: please report it with the node's log.";
}

impl ErrorCode {
    /// Whether the whole transaction may simply be retried: also when a pool of records is full, because other
    /// transactions free records as they end.
    pub fn is_retryable(self) -> bool {
        let may_be_free_soon =
            matches!(self, ErrorCode::OutOfTransactions | ErrorCode::OutOfOperations | ErrorCode::OutOfScans);
        self.class() == ErrorClass::Temporary || may_be_free_soon
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?}): {}", *self as u16, self.class(), self.sentence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_found() {
        for &code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_number(code as u16), Some(code));
            assert!(code.sentence().ends_with('.'));
        }
        assert_eq!(ErrorCode::from_number(0), None);
    }
}
