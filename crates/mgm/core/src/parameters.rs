//! The table of all parameters of a data node, and the values that one node has.
//!
//! [`TABLE`] is the one place where a parameter is defined: its name, where it may be written, its kind and limits, its
//! default, whether a running node takes a new value, and what it means. The parser, the errors, the reference page and
//! the current values all use it. Names are NDB's if NDB has the parameter; letter case, `-` and `_` do not count, so a
//! flag may be spelt `--data-memory`.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use crate::config_error::{Origin, ParameterError, suggestion};
use crate::cpus::Cpu;
use crate::machine::Machine;
use crate::ndb_parameters;
use crate::value::{Kind, Unit, Value};

/// Where in a file a parameter may be written. Flags may set every parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `[cluster]`: one value for the cluster.
    Cluster,
    /// `[data default]` only: all data nodes must agree on it.
    AllDataNodes,
    /// `[data default]` or `[data]`.
    DataNode,
    /// `[data]` only: each node has its own.
    OneDataNode,
}

/// The value that is used if none is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// A number.
    Integer(u64),
    /// Yes or no.
    Flag(bool),
    /// A text.
    Text(&'static str),
    /// A quarter of the memory of the machine, in whole mebibytes, within the limits of the parameter.
    QuarterOfMachine,
    /// One for this many bytes of the memory of the machine, but at least `least`, within the limits of the parameter.
    OnePerMemory {
        /// Bytes of memory for each.
        bytes: u64,
        /// Minimum, however little memory there is.
        least: u64,
    },
    /// No value: the phrase says what happens without one.
    Unset(&'static str),
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Which parameter the row describes.
    pub parameter: Parameter,
    /// The name as it is printed.
    pub name: &'static str,
    /// A second name, used in NDB's files.
    pub alias: Option<&'static str>,
    /// Where it may be written.
    pub place: Place,
    /// Kind and limits.
    pub kind: Kind,
    /// Value without an entry.
    pub default: Default,
    /// Whether the value may change while the node runs; otherwise the node must be restarted.
    pub live: bool,
    /// One sentence.
    pub meaning: &'static str,
}

/// The greatest number of coordinator, operation and scan records that one node can be configured for.
const RECORDS_MAX: u64 = 1 << 26;
/// The limits of the speed of local checkpoints, as in NDB.
const SPEED_MIN: u64 = 1 << 20;
const SPEED_MAX: u64 = 1 << 40;
/// A longer time (49 days) is a typing error; NDB has the same bound.
const MILLISECONDS_MAX: u64 = 4_294_967_039;

const fn count(min: u64, max: u64) -> Kind {
    Kind::Integer { unit: Unit::Count, min, max }
}

const fn bytes(min: u64, max: u64) -> Kind {
    Kind::Integer { unit: Unit::Bytes, min, max }
}

const fn milliseconds(min: u64, max: u64) -> Kind {
    Kind::Integer { unit: Unit::Milliseconds, min, max }
}

const fn microseconds(min: u64, max: u64) -> Kind {
    Kind::Integer { unit: Unit::Microseconds, min, max }
}

const fn text(bytes_max: usize) -> Kind {
    Kind::Text { bytes_max }
}

impl Description {
    const fn new(
        parameter: Parameter,
        name: &'static str,
        kind: Kind,
        default: Default,
        meaning: &'static str,
    ) -> Self {
        let place = Place::DataNode;
        Description {
            parameter,
            name,
            alias: None,
            place,
            kind,
            default,
            live: false,
            meaning: meaning.trim_ascii(),
        }
    }

    const fn placed(self, place: Place) -> Self {
        Description { place, ..self }
    }

    const fn live(self) -> Self {
        Description { live: true, ..self }
    }

    const fn also_named(self, alias: &'static str) -> Self {
        Description { alias: Some(alias), ..self }
    }
}

/// Makes the enum and the table from one list of `/// meaning`, `Name: kind, default, more…;`.
macro_rules! parameters {
    ($($(#[doc = $meaning:literal])+ $name:ident: $kind:expr, $default:expr $(, $more:ident($($argument:expr)?))*;)+) => {
        /// A parameter; its number is its place in [`TABLE`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Parameter {
            $($(#[doc = $meaning])+ $name,)+
        }

        /// All parameters, in the order of the reference page.
        pub const TABLE: &[Description] = &[
            $(Description::new(Parameter::$name, stringify!($name), $kind, $default, concat!($($meaning),+))
                $(.$more($($argument)?))*,)+
        ];
    };
}

parameters! {
    /// Name of the cluster; nodes and clients of a cluster with another name are turned away.
    Name: text(64), Default::Text("vinga"), placed(Place::Cluster);

    /// Number of this data node in the cluster.
    NodeId: count(1, 144),
        Default::Unset("numbered in the order of the file"), placed(Place::OneDataNode), also_named("Id");

    /// Name or address on which the node listens and under which others reach it.
    HostName: text(255), Default::Text("localhost");

    /// TCP port on which the node listens; 0 takes any free port, which the log then names. With several data nodes
    /// each needs one.
    ServerPort: count(0, 65_535), Default::Integer(2202);

    /// Node group of this data node: those of a group hold the same rows, and each group has NoOfReplicas nodes.
    NodeGroup: count(0, 143),
        Default::Unset("the first that has room, in the order of the numbers"), placed(Place::OneDataNode);

    /// Whether the node also listens for clients on its own machine, by the Unix socket vinga.sock in its folder.
    LocalConnections: Kind::Flag, Default::Flag(true);

    /// Group of users, by name or number, whose processes may connect by that Unix socket, beside those of the node's
    /// own user and root. The node's user must belong to it.
    LocalConnectionsGroup: text(255), Default::Unset("none: the node's user and root only");

    /// File of the cluster's key, which only its owner may read: 64 hexadecimal digits, the same for all nodes. Whoever
    /// connects by TCP has to prove the key: clients (key=FILE before the addresses), data nodes, and they to
    /// management nodes. 'vinga key FILE' makes one.
    ClusterKeyFile: text(4_096),
        Default::Unset("none: whoever reaches the port is admitted, so HostName must be an address of this machine alone");

    /// Folder of the node: process id, address, crash reports. The flag --folder overrides it; 'vinga up' always takes
    /// node-1, node-2 … in the cluster's folder.
    DataDir: text(4_096), Default::Unset("none: nothing is written, but crash reports into the current folder");

    /// The least serious lines that the node's log gets; debug has every connection of each client, too.
    LogLevel: Kind::Word(&["error", "warning", "info", "debug"]), Default::Text("info");

    /// Copies of the data that the cluster keeps, each on another data node; their number must be a multiple of it.
    NoOfReplicas: count(1, 4), Default::Integer(1), placed(Place::AllDataNodes);

    /// Whether a data node stays down that has ended by itself: because of an error, as it was killed, or as the others
    /// have gone on without it. Else its parent starts it again, after pauses that grow; 'vinga up' gives each data
    /// node one ('vinga data --restarts').
    StopOnError: Kind::Flag, Default::Flag(false);

    /// Memory for rows and indexes; when it is used up, inserts get a temporary error.
    DataMemory: bytes(16 << 20, 16 << 40), Default::QuarterOfMachine;

    /// Keeps the node's memory from being swapped out: 0 does not, 1 locks it once it is allocated, 2
    /// before.
    LockPagesInMemory: Kind::Choice(&[0, 1, 2]), Default::Integer(0), also_named("LockPagesInMainMemory");

    /// Tables that can exist at a time, the hidden ones of unique indexes counted. Memory is taken for tables that
    /// exist only, so a lower limit saves none.
    MaxNoOfTables: count(8, 20_320), Default::Integer(20_320);

    /// Accepted for the sake of old files, without effect: columns are not limited in all, only for each table.
    MaxNoOfAttributes: count(32, 4_294_967_039), Default::Unset("no limit");

    /// Accepted for the sake of old files, without effect: ordered indexes are not limited in all, only for each table.
    MaxNoOfOrderedIndexes: count(0, 4_294_967_039), Default::Unset("no limit");

    /// Accepted for the sake of old files, without effect: unique indexes are limited by MaxNoOfTables only.
    MaxNoOfUniqueHashIndexes: count(0, 4_294_967_039), Default::Unset("no limit");

    /// Accepted for the sake of old files, without effect: data nodes have no triggers of this kind.
    MaxNoOfTriggers: count(0, 4_294_967_039), Default::Unset("no limit");

    /// Transactions that the node's coordinators run at a time; a further one gets a temporary error.
    MaxNoOfConcurrentTransactions: count(32, RECORDS_MAX), Default::Integer(4_096);

    /// Row operations that open transactions hold at a time in a table of the usual number of partitions, those in
    /// unique indexes too; a further one gets a temporary error. Each takes about half a kilobyte from when it is first
    /// needed. A data manager has room for this number divided by PartitionsPerNode.
    MaxNoOfConcurrentOperations: count(32, RECORDS_MAX),
        Default::OnePerMemory { bytes: 24 << 10, least: 32_768 };

    /// Scans that are open at a time on tables of the usual number of partitions; a further one gets a temporary error.
    /// A data manager has room for this number divided by PartitionsPerNode.
    MaxNoOfConcurrentScans: count(2, RECORDS_MAX), Default::Integer(4_096);

    /// Clients (API nodes) that may be connected at a time; a further one is refused. Their ids are 145 to 255.
    MaxNoOfApiConnections: count(1, 111), Default::Integer(111);

    /// Memory for what waits to be sent on one client connection; a client that does not read is cut off
    /// when it is full.
    SendBufferMemory: bytes(1 << 20, 4 << 30), Default::Integer(32 << 20);

    /// How long an operation waits for a lock, unless its client says how long, or for a data manager before its
    /// transaction is aborted.
    TransactionDeadlockDetectionTimeout: milliseconds(50, MILLISECONDS_MAX), Default::Integer(1_200), live();

    /// How long a client may leave an open transaction alone before it is aborted; 0 is for ever.
    TransactionInactiveTimeout: milliseconds(0, MILLISECONDS_MAX), Default::Integer(0), live();

    /// Time between heartbeats with clients; after three in a row are missed the client counts as dead.
    HeartbeatIntervalDbApi: milliseconds(100, MILLISECONDS_MAX), Default::Integer(1_500);

    /// Time between heartbeats of data nodes; one of which nothing has come for four of these is suspected of having
    /// failed.
    HeartbeatIntervalDbDb: milliseconds(10, MILLISECONDS_MAX), Default::Integer(250), placed(Place::AllDataNodes);

    /// How long a data node waits for the answer of the arbitrator when data nodes have lost each other. If none comes,
    /// it stops. Arbitrators are the management nodes.
    ArbitrationTimeout: milliseconds(10, MILLISECONDS_MAX), Default::Integer(7_500), placed(Place::AllDataNodes);

    /// Length of an epoch, the group of transactions that become durable together. Only epochs that have ended are
    /// brought to the disk: a crash of the whole cluster can cost so much more than TimeBetweenGlobalCheckpoints. It
    /// may not be longer than that.
    TimeBetweenEpochs: milliseconds(1, 32_000), Default::Integer(100), placed(Place::AllDataNodes), live();

    /// Time between global checkpoints: how much of what was committed a crash of the whole cluster can cost, beside
    /// TimeBetweenEpochs, unless a commit waits for the disk.
    TimeBetweenGlobalCheckpoints: milliseconds(20, 32_000),
        Default::Integer(2_000), placed(Place::AllDataNodes), live();

    /// Keeps everything in memory only: nothing is written to disk, and tables and rows are gone when the node stops. A
    /// node without a folder (DataDir, --folder) does so in any case, and so do several data nodes in this version: of
    /// them false is refused.
    Diskless: Kind::Flag, Default::Flag(false), placed(Place::AllDataNodes);

    /// Files of each stream of the redo log; there is a stream for each thread that hosted data managers when the node
    /// was started for the first time (more if it hosted more than 52). All of them are made at the first start. When
    /// the log is full, changes get a temporary error until checkpoints have made room.
    NoOfFragmentLogFiles: count(3, 65_536), Default::Integer(16);

    /// Size of each file of the redo log; what is beyond a multiple of 4K is left out. Files that exist keep theirs.
    FragmentLogFileSize: bytes(4 << 20, 1 << 30), Default::Integer(16 << 20);

    /// Bytes of redo log of each stream that may wait to be written to disk; when the disk is too slow for that,
    /// changes get a temporary error.
    RedoBuffer: bytes(1 << 20, 4 << 30), Default::Integer(32 << 20);

    /// Bytes of changes of the node that an on-line backup (vinga admin backup) may be behind with. When more is
    /// changed than it can write, it is given up; changes never wait for it. Memory is taken as it is needed.
    BackupLogBufferSize: bytes(1 << 20, 16 << 30), Default::Integer(64 << 20);

    /// How much may be logged between two local checkpoints: a number of words of four bytes, as its logarithm to base
    /// 2 (20 is 4M). Of a small redo log at most a quarter is used between two.
    TimeBetweenLocalCheckpoints: count(0, 31), Default::Integer(20), live();

    /// Bytes a second that the node writes of local checkpoints at least, however busy its threads and its disk are. At
    /// the start it holds, with a warning, where a maximum is less; while the node runs such values are refused.
    MinDiskWriteSpeed: bytes(SPEED_MIN, SPEED_MAX), Default::Integer(10 << 20), live();

    /// Bytes a second that the node writes of local checkpoints at most. It writes more slowly while its threads or its
    /// disk have no time to spare, and as fast as it can when the redo log is nearly full.
    MaxDiskWriteSpeed: bytes(SPEED_MIN, SPEED_MAX), Default::Integer(200 << 20), live();

    /// The same while another data node is starting.
    MaxDiskWriteSpeedOtherNodeRestart: bytes(SPEED_MIN, SPEED_MAX), Default::Integer(200 << 20), live();

    /// The same from the start of the node until its first local checkpoint has been made.
    MaxDiskWriteSpeedOwnRestart: bytes(SPEED_MIN, SPEED_MAX), Default::Integer(400 << 20), live();

    /// How often the watchdog looks for progress; a thread without any is reported, the third time the node
    /// stops.
    TimeBetweenWatchDogCheck: milliseconds(70, MILLISECONDS_MAX), Default::Integer(6_000);

    /// Number of data managers, each with its own part of the data and of the redo log; fixed once the
    /// cluster has been started.
    NoOfFragmentLogParts: Kind::Choice(&[4, 6, 8, 12, 16, 24, 32]),
        Default::Unset("8, or the CPUs or hosting threads rounded up to a power of two if more");

    /// Partitions of a table on each data node, unless the table says how many it wants; at most the number of data
    /// managers. More let more threads work on one table, fewer make scans of short ranges cheaper.
    PartitionsPerNode: count(1, 128), Default::Unset("the threads that host data managers");

    /// Threads of the node, how many of each kind and on which CPUs; the reference page has the grammar.
    ThreadConfig: text(16_384), Default::Unset("threads from MaxNoOfExecutionThreads, else automatic");

    /// Chooses the numbers of threads from a table of NDB's; ThreadConfig overrides it.
    MaxNoOfExecutionThreads: count(2, 72), Default::Unset("automatic");

    /// CPUs for the threads that ThreadConfig does not bind, given out in the order written.
    LockExecuteThreadToCPU: Kind::Cpus, Default::Unset("not bound");

    /// CPUs for the io and wd threads where ThreadConfig does not bind them.
    LockMaintThreadsToCPU: Kind::Cpus, Default::Unset("not bound");

    /// Whether threads run under the real-time scheduler where ThreadConfig does not say it.
    RealtimeScheduler: Kind::Flag, Default::Flag(false);

    /// How long threads poll before they sleep where ThreadConfig does not say it.
    SchedulerSpinTimer: microseconds(0, 500), Default::Integer(0);

    /// Accepted for the sake of old files, without effect: a thread sends at the end of each turn.
    SchedulerExecutionTimer: microseconds(0, 11_000), Default::Integer(50);

    /// Accepted for the sake of old files, without effect: files are opened when they are first used.
    InitialNoOfOpenFiles: count(1, 10_000), Default::Integer(27);

    /// Files that stay open while nothing is done with them; also bounds the number of io threads.
    MaxNoOfOpenFiles: count(1, 10_000), Default::Integer(40);
}

/// Number of parameters.
pub const PARAMETERS: usize = TABLE.len();

impl Parameter {
    /// The row of the table.
    pub const fn description(self) -> &'static Description {
        &TABLE[self as usize]
    }

    /// The name as it is printed.
    pub const fn name(self) -> &'static str {
        self.description().name
    }

    /// The parameter with this name; letter case, `-` and `_` do not count.
    ///
    /// # Errors
    /// A text, with the name that was probably meant if one is near.
    pub fn named(name: &str) -> Result<Parameter, String> {
        let letters = |name: &str| -> Vec<u8> {
            name.bytes()
                .filter(|byte| !matches!(byte, b'-' | b'_'))
                .map(|byte| byte.to_ascii_lowercase())
                .collect()
        };
        let wanted = letters(name);
        let names =
            || TABLE.iter().flat_map(|row| [Some(row.name), row.alias].map(|name| (name, row.parameter)));
        let found = names().find(|(known, _)| known.is_some_and(|known| letters(known) == wanted));
        found.map(|(_, parameter)| parameter).ok_or_else(|| {
            let known = names().filter_map(|(known, _)| known);
            let meant = suggestion(name, known.chain(ndb_parameters::names()));
            alloc::format!("no parameter has this name{meant}")
        })
    }
}

/// The values of one node, each with its origin.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// In the order of the table.
    held: Vec<Held>,
}

/// One value of a node.
#[derive(Clone, Debug)]
struct Held {
    /// `None` for [`Default::Unset`].
    value: Option<Value>,
    /// The text that `value` was read from, for messages; without it the value is shown.
    written: Option<String>,
    origin: Origin,
}

impl Parameters {
    /// All defaults on this machine.
    pub fn defaults(machine: &Machine) -> Self {
        let value = |row: &Description| match row.default {
            Default::Integer(number) => Some(Value::Integer(number)),
            Default::Flag(flag) => Some(Value::Flag(flag)),
            Default::Text(text) => Some(Value::Text(text.to_owned())),
            Default::QuarterOfMachine => Some(Value::Integer(quarter(machine.memory_bytes, row.kind))),
            Default::OnePerMemory { bytes, least } => {
                Some(Value::Integer(one_per(machine.memory_bytes, bytes, least, row.kind)))
            }
            Default::Unset(_) => None,
        };
        let held = |row| Held { value: value(row), written: None, origin: Origin::Default };
        Parameters { held: TABLE.iter().map(held).collect() }
    }

    /// Sets a parameter to a value that was read from the text `written`.
    pub fn set(&mut self, parameter: Parameter, value: Value, written: &str, origin: Origin) {
        self.held[parameter as usize] =
            Held { value: Some(value), written: Some(written.to_owned()), origin };
    }

    /// The value, if there is one.
    pub fn get(&self, parameter: Parameter) -> Option<&Value> {
        self.held[parameter as usize].value.as_ref()
    }

    /// Where the value comes from.
    pub fn origin(&self, parameter: Parameter) -> &Origin {
        &self.held[parameter as usize].origin
    }

    /// The value of an integer or a choice, in its unit. Panics for a parameter of another kind or one that may be
    /// unset: for those there is [`Parameters::optional_integer`].
    pub fn integer(&self, parameter: Parameter) -> u64 {
        self.optional_integer(parameter).expect("only parameters with a default are read this way")
    }

    /// The value of an integer or a choice that has no default, if it was set.
    pub fn optional_integer(&self, parameter: Parameter) -> Option<u64> {
        match self.get(parameter)? {
            Value::Integer(number) => Some(*number),
            other => panic!("{} is {other:?}, no integer", parameter.name()),
        }
    }

    /// The value of a flag. Panics for a parameter of another kind.
    pub fn flag(&self, parameter: Parameter) -> bool {
        match self.get(parameter) {
            Some(Value::Flag(flag)) => *flag,
            other => panic!("{} is {other:?}, no flag", parameter.name()),
        }
    }

    /// The value of a text, if it has one. Panics for a parameter of another kind.
    pub fn text(&self, parameter: Parameter) -> Option<&str> {
        match self.get(parameter)? {
            Value::Text(text) => Some(text),
            other => panic!("{} is {other:?}, no text", parameter.name()),
        }
    }

    /// The CPUs of a list, if it was set. Panics for a parameter of another kind.
    pub fn cpus(&self, parameter: Parameter) -> Option<&[Cpu]> {
        match self.get(parameter)? {
            Value::Cpus(list) => Some(list),
            other => panic!("{} is {other:?}, no list of CPUs", parameter.name()),
        }
    }

    /// The entry as it was written, or as it could be written: `Name=value`.
    pub fn written(&self, parameter: Parameter) -> String {
        let held = &self.held[parameter as usize];
        let kind = parameter.description().kind;
        let shown = || held.value.as_ref().map_or_else(String::new, |value| kind.show(value));
        alloc::format!("{}={}", parameter.name(), held.written.clone().unwrap_or_else(shown))
    }

    /// An error about the whole value of `parameter`, for the reason `problem`.
    pub fn refuse(&self, parameter: Parameter, problem: impl Into<String>) -> ParameterError {
        ParameterError::new(parameter, &self.written(parameter), problem)
    }
}

fn quarter(memory_bytes: u64, kind: Kind) -> u64 {
    let Kind::Integer { min, max, .. } = kind else { panic!("a share of the memory is an integer") };
    let mebibytes = memory_bytes / 4 / (1 << 20);
    (mebibytes << 20).clamp(min, max)
}

fn one_per(memory_bytes: u64, bytes: u64, least: u64, kind: Kind) -> u64 {
    let Kind::Integer { min, max, .. } = kind else { panic!("a share of the memory is an integer") };
    (memory_bytes / bytes).max(least).clamp(min, max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::CpuSet;

    #[test]
    fn rows_stand_at_their_numbers_and_defaults_are_allowed() {
        for (place, row) in TABLE.iter().enumerate() {
            assert_eq!(row.parameter as usize, place, "{}", row.name);
            assert_eq!(Parameter::named(row.name), Ok(row.parameter));
            assert!(row.meaning.ends_with('.'), "{}", row.name);
            let default = match row.default {
                Default::Integer(number) => Value::Integer(number),
                Default::Flag(flag) => Value::Flag(flag),
                Default::Text(text) => Value::Text(text.into()),
                Default::QuarterOfMachine | Default::OnePerMemory { .. } | Default::Unset(_) => continue,
            };
            let written = match &default {
                Value::Integer(number) => alloc::format!("{number}"),
                other => row.kind.show(other),
            };
            assert_eq!(row.kind.parse(&written), Ok(default), "{}", row.name);
        }
    }

    #[test]
    fn names_ignore_case_and_dashes_and_have_aliases() {
        assert_eq!(Parameter::named("data-memory"), Ok(Parameter::DataMemory));
        assert_eq!(Parameter::named("LOCKPAGESINMAINMEMORY"), Ok(Parameter::LockPagesInMemory));
        assert_eq!(Parameter::named("id"), Ok(Parameter::NodeId));
        let nearest = Parameter::named("MaxNoOfConcurrentOps").expect_err("no such name");
        assert_eq!(nearest, "no parameter has this name; did you mean MaxNoOfConcurrentOperations?");
        assert_eq!(Parameter::named("foo"), Err("no parameter has this name".to_owned()));
    }

    #[test]
    fn operations_grow_with_the_machine() {
        let default = |memory_bytes| {
            let cpus: CpuSet = [Cpu(0)].into_iter().collect();
            Parameters::defaults(&Machine { memory_bytes, cpus, cpus_granted: None })
                .integer(Parameter::MaxNoOfConcurrentOperations)
        };
        assert_eq!(default(24 << 30), 1_048_576);
        assert_eq!(default(1 << 28), 32_768);
        assert_eq!(default(u64::MAX), RECORDS_MAX);
    }

    #[test]
    fn data_memory_is_a_quarter_of_the_machine_within_its_limits() {
        let default = |memory_bytes| {
            let cpus: CpuSet = [Cpu(0)].into_iter().collect();
            Parameters::defaults(&Machine { memory_bytes, cpus, cpus_granted: None })
                .integer(Parameter::DataMemory)
        };
        assert_eq!(default(16 << 30), 4 << 30);
        assert_eq!(default((16 << 30) + 5_000_000), (4 << 30) + (1 << 20));
        assert_eq!(default(0), 16 << 20);
        assert_eq!(default(u64::MAX), 16 << 40);
    }
}
