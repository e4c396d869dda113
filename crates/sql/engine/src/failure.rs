//! Failures of calls, as they are reported to the SQL server: with one of its own error numbers if it has one that
//! applications know, otherwise with Vinga's number and message.

use vinga::{Error, ErrorClass, ErrorCode};
use vinga_base::{DefinitionError, Limit};

/// The server's error numbers (`my_base.h`); they are part of its interface to engines.
pub mod ha {
    /// There is no row with this key.
    pub const KEY_NOT_FOUND: i32 = 120;
    /// The key exists already.
    pub const FOUND_DUPLICATE: i32 = 121;
    /// An internal error.
    pub const INTERNAL_ERROR: i32 = 122;
    /// Out of memory.
    pub const OUT_OF_MEMORY: i32 = 128;
    /// The engine does not support this call.
    pub const WRONG_COMMAND: i32 = 131;
    /// The row was deleted.
    pub const RECORD_DELETED: i32 = 134;
    /// There is no room for more rows.
    pub const FULL: i32 = 135;
    /// No more rows.
    pub const END_OF_FILE: i32 = 137;
    /// The row is too long.
    pub const ROW_TOO_BIG: i32 = 139;
    /// A lock was not granted in time.
    pub const LOCK_WAIT_TIMEOUT: i32 = 146;
    /// The transaction was rolled back because of a deadlock.
    pub const LOCK_DEADLOCK: i32 = 149;
    /// No such table.
    pub const NO_SUCH_TABLE: i32 = 155;
    /// The table exists already.
    pub const TABLE_EXISTS: i32 = 156;
    /// The data nodes can't be reached.
    pub const NO_CONNECTION: i32 = 157;
    /// The definition of the table has changed.
    pub const TABLE_DEF_CHANGED: i32 = 159;
    /// There is no value for an auto-increment column.
    pub const AUTO_INCREMENT_READ_FAILED: i32 = 166;
    /// An update that changes nothing.
    pub const RECORD_IS_THE_SAME: i32 = 169;
    /// A value of an index column is too long.
    pub const INDEX_COLUMN_TOO_LONG: i32 = 179;
    /// A table would have too many columns.
    pub const TOO_MANY_FIELDS: i32 = 185;
    /// The statement or connection was killed.
    pub const ABORTED_BY_USER: i32 = 188;
}

/// A temporary file of the SQL node could not be written or read. One of Vinga's own numbers, but never sent to other
/// nodes.
pub const TEMPORARY_FILE_FAILED: i32 = 20070;

/// The values of a column of a new table would be too long; `VINGA_ERROR_VALUE_TOO_LONG`. Never sent to other nodes.
pub const VALUE_TOO_LONG: i32 = 20071;

/// The server's definition of a new table, including comments, is too long; `VINGA_ERROR_DEFINITION_TOO_LONG`. Never
/// sent to other nodes.
pub const DEFINITION_TOO_LONG: i32 = 20072;

/// Maximum number of characters of the server's error messages for failures of an engine: it cuts off the rest.
const MESSAGE_MAX: usize = 200;

/// What stands before the reason why the outcome of a commit is not known.
const UNKNOWN: &str = "committed or not, that is not known: ";

/// The failure of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The result code of the call.
    pub number: i32,
    /// The message: what it means and what to do.
    pub text: String,
    /// Whether another attempt may succeed.
    pub is_temporary: bool,
    /// Whether the whole transaction was rolled back.
    pub is_doomed: bool,
    /// The table that it concerns, without its database; empty if that is not known.
    pub table: String,
}

/// The result of most functions.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// One of the server's own errors.
    pub fn new(number: i32, text: impl Into<String>) -> Self {
        Failure { number, text: text.into(), is_temporary: false, is_doomed: false, table: String::new() }
    }

    /// The failure of a table definition that is not allowed. Vinga's own number is used for a limit that the server
    /// does not know, such as the size of a column's values.
    pub fn of_definition(error: DefinitionError) -> Self {
        let number = match error.limit {
            Some(Limit::Columns) => ha::TOO_MANY_FIELDS,
            Some(Limit::RowBytes) => ha::ROW_TOO_BIG,
            Some(Limit::KeyBytes) => ha::INDEX_COLUMN_TOO_LONG,
            Some(Limit::ValueBytes) => VALUE_TOO_LONG,
            Some(Limit::AttachmentBytes) => DEFINITION_TOO_LONG,
            None => ErrorCode::BadTableDefinition as i32,
        };
        Failure::new(number, error.text)
    }

    /// The failure of a feature that is not implemented yet.
    pub fn unsupported(text: impl Into<String>) -> Self {
        Failure::new(ErrorCode::NotSupportedYet as i32, text)
    }

    /// The same failure, with the transaction rolled back.
    #[must_use]
    pub fn doomed(mut self) -> Self {
        self.is_doomed = true;
        self
    }

    /// The same failure of something that was no part of the transaction, which goes on.
    #[must_use]
    pub fn aside(mut self) -> Self {
        self.is_doomed = false;
        self
    }

    /// The session was killed. Its transaction continues, unless the kill interrupted a request of the transaction.
    pub fn killed() -> Self {
        Failure::new(ha::ABORTED_BY_USER, "the statement was interrupted")
    }

    /// Whether it ends any transaction that has sent operations, as the nodes that held its state have failed.
    pub fn ends_transactions(&self) -> bool {
        [ErrorCode::ClusterFailure, ErrorCode::ConnectionLost, ErrorCode::TransactionAborted]
            .iter()
            .any(|code| self.number == *code as i32)
    }

    /// Whether it is the loss of a data node, which has rolled the transaction back.
    pub fn is_loss_of_a_node(&self) -> bool {
        [ErrorCode::NodeFailure, ErrorCode::ConnectionLost].iter().any(|code| self.number == *code as i32)
    }

    /// No data node can be reached. The cause comes first, as the server truncates long texts.
    pub fn outage(connectstring: &str, cause: &str) -> Self {
        let text = with_addresses(cause, connectstring);
        Failure { is_temporary: true, ..Failure::new(ErrorCode::ClusterFailure as i32, text) }
    }

    /// No data node could be reached so far, for this reason. A key that is refused keeps its number and is not
    /// temporary: trying again does not help before somebody has given this SQL node the right one.
    pub fn never_connected(connectstring: &str, why: &Error) -> Self {
        let needs_the_operator = matches!(
            why.code(),
            ErrorCode::KeyRequired
                | ErrorCode::WrongKey
                | ErrorCode::KeyForAnother
                | ErrorCode::BadKeyFile
                | ErrorCode::NotPermitted
        );
        if !needs_the_operator {
            return Failure::outage(connectstring, &why.message());
        }
        Failure::new(why.code() as i32, with_addresses(&why.message(), connectstring))
    }

    /// No answer came in time, either from data nodes that can't be reached, or from connected ones: then the request
    /// may be waiting for a lock; the data nodes end such waits by one of their own settings.
    pub fn timed_out(connectstring: &str, milliseconds: u64, is_connected: bool) -> Self {
        if !is_connected {
            return Failure::outage(
                connectstring,
                &format!("No data node answers within {milliseconds} ms."),
            )
            .doomed();
        }
        let text = format!(
            "no answer within {milliseconds} ms. If it waits for a lock: vinga_wait_max should be above \
             TransactionDeadlockDetectionTimeout."
        );
        let text = with_addresses(&text, connectstring);
        Failure { is_temporary: true, ..Failure::new(ErrorCode::LockTimeout as i32, text) }.doomed()
    }

    /// No answer came in time to a commit, or to a change of a definition, which is carried out when what it waits for
    /// is over.
    #[must_use]
    pub fn of_commit(self) -> Self {
        let text = format!("{UNKNOWN}{}", self.text);
        Failure { is_temporary: false, ..Failure::new(ErrorCode::UnknownOutcome as i32, text) }.doomed()
    }

    fn number_of(code: ErrorCode) -> i32 {
        match code {
            ErrorCode::NoSuchRow => ha::KEY_NOT_FOUND,
            ErrorCode::DuplicateKey => ha::FOUND_DUPLICATE,
            ErrorCode::DataMemoryFull => ha::FULL,
            ErrorCode::RowTooLong => ha::ROW_TOO_BIG,
            ErrorCode::LockTimeout | ErrorCode::RowLocked => ha::LOCK_WAIT_TIMEOUT,
            ErrorCode::Deadlock => ha::LOCK_DEADLOCK,
            ErrorCode::NoSuchTable | ErrorCode::StaleTable => ha::TABLE_DEF_CHANGED,
            ErrorCode::TableExists => ha::TABLE_EXISTS,
            other => other as i32,
        }
    }

    /// The failure for an error of the client.
    pub fn from_error(error: &Error, connectstring: &str) -> Self {
        let is_temporary = matches!(error.class(), ErrorClass::Temporary);
        let is_outage = matches!(error.code(), ErrorCode::ClusterFailure | ErrorCode::ConnectionLost);
        Failure {
            number: Failure::number_of(error.code()),
            text: if is_outage { with_addresses(&error.message(), connectstring) } else { error.message() },
            is_temporary,
            is_doomed: false,
            table: String::new(),
        }
    }
}

/// The text of an outage, with as many addresses of the data nodes as there is room for, unless it names them. The file
/// of the key is no address.
fn with_addresses(text: &str, connectstring: &str) -> String {
    let pieces = connectstring.split(',').map(str::trim);
    let addresses: Vec<&str> = pieces.filter(|piece| !piece.is_empty() && !piece.contains("key=")).collect();
    if addresses.iter().all(|address| text.contains(address)) {
        return text.to_owned();
    }
    let with_first = |shown: usize| {
        let list = addresses[..shown].join(", ");
        match addresses.len() - shown {
            0 => format!("{text} Data nodes: {list}."),
            more => format!("{text} Data nodes: {list} and {more} more."),
        }
    };
    let room = MESSAGE_MAX - UNKNOWN.len();
    let mut texts = (1..=addresses.len()).rev().map(with_first);
    texts.find(|text| text.chars().count() <= room).unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_sql_node_are_no_others() {
        for own in [TEMPORARY_FILE_FAILED, VALUE_TOO_LONG, DEFINITION_TOO_LONG] {
            let number = u16::try_from(own).expect("one of Vinga's numbers");
            assert_eq!(ErrorCode::from_number(number), None, "{own}");
        }
    }

    #[test]
    fn an_outage_is_reported_in_full_with_a_long_address() {
        let address = format!("unix:/{}", "x".repeat(70));
        let cause = format!("can't connect to {address}: Connection refused (os error 111)");
        let error = Error::with_detail(ErrorCode::ClusterFailure, cause);
        for failure in [Failure::from_error(&error, &address), Failure::outage(&address, &error.message())] {
            assert!(failure.text.starts_with("No data node is connected: "), "{}", failure.text);
            assert!(failure.text.ends_with("(os error 111)."), "{}", failure.text);
            assert!(failure.text.len() < MESSAGE_MAX - 20, "{}", failure.text);
        }
        assert!(Failure::outage(&address, "No data node answers.").text.contains(&address));
    }

    #[test]
    fn a_refused_key_is_no_outage() {
        let wrong = Failure::never_connected("a:1", &Error::new(ErrorCode::WrongKey));
        assert_eq!((wrong.number, wrong.is_temporary), (ErrorCode::WrongKey as i32, false));
        assert!(wrong.text.ends_with("Data nodes: a:1."), "{}", wrong.text);
        let lost = Failure::never_connected("a:1", &Error::new(ErrorCode::ConnectionLost));
        assert_eq!((lost.number, lost.is_temporary), (ErrorCode::ClusterFailure as i32, true));
    }

    #[test]
    fn as_many_addresses_are_named_as_there_is_room_for() {
        let addresses: Vec<String> =
            (1..=8).map(|node| format!("data-node-{node}.example.org:2202")).collect();
        let connectstring = format!("key=/etc/vinga/{}.key,{}", "x".repeat(70), addresses.join(","));
        for code in [ErrorCode::ConnectionLost, ErrorCode::ClusterFailure] {
            let error = Error::new(code);
            let failure = Failure::from_error(&error, &connectstring);
            assert!(failure.text.starts_with(&error.message()), "{}", failure.text);
            assert!(failure.text.contains(&addresses[0]), "{}", failure.text);
            assert!(failure.text.ends_with(" more."), "{}", failure.text);
            assert!(!failure.text.contains("key="), "{}", failure.text);
            let failure = failure.of_commit();
            assert!(failure.text.chars().count() <= MESSAGE_MAX, "{}", failure.text);
        }
        let few = Failure::outage("key=/x.key,a:1,b:2", "No data node answers.");
        assert_eq!(few.text, "No data node answers. Data nodes: a:1, b:2.");
        let late = Failure::timed_out(&connectstring, 3_600_000, true).of_commit();
        assert!(late.text.chars().count() <= MESSAGE_MAX, "{}", late.text);
    }
}
