//! What a caller gets when something could not be done.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::fmt;
use vinga_base::{NodeId, OperationNumber};
use vinga_wire::{ErrorClass, ErrorCode};

/// A code with its class, what exactly was wrong if that is known, and the operation that caused it.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    code: ErrorCode,
    detail: Option<Box<str>>,
    operation: Option<OperationNumber>,
    index: u16,
    /// The data node that is not connected, if that is it.
    unconnected: Option<NodeId>,
}

impl Error {
    /// An error that its code describes sufficiently.
    pub fn new(code: ErrorCode) -> Self {
        Error { code, detail: None, operation: None, index: 0, unconnected: None }
    }

    /// An error with a sentence or half a sentence that says what exactly was wrong.
    pub fn with_detail(code: ErrorCode, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let detail = (!detail.is_empty()).then(|| detail.into_boxed_str());
        Error { code, detail, operation: None, index: 0, unconnected: None }
    }

    /// That a data node is not connected, while others may be: `cause` says where it is, and why it is not.
    pub(crate) fn not_connected(node: NodeId, cause: impl Into<String>) -> Self {
        Error { unconnected: Some(node), ..Error::with_detail(ErrorCode::ClusterFailure, cause) }
    }

    /// The same error, caused by this operation of a transaction.
    #[must_use]
    pub fn at_operation(mut self, operation: Option<OperationNumber>) -> Self {
        self.operation = operation;
        self
    }

    /// The same error, because of this unique index of the operation's table; 0 for the row itself.
    #[must_use]
    pub fn at_index(mut self, index: u16) -> Self {
        self.index = index;
        self
    }

    /// An error code as it came over the wire; a number that this version does not know is a bug on one of the sides.
    pub fn from_wire(number: u16) -> Self {
        match ErrorCode::from_number(number) {
            Some(code) => Error::new(code),
            None => Error::with_detail(ErrorCode::InternalError, format!("unknown error number {number}")),
        }
    }

    /// The number.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// What may be done about it.
    pub fn class(&self) -> ErrorClass {
        self.code.class()
    }

    /// What exactly was wrong, if that is known.
    pub(crate) fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// Whether a data node that has answered a client so will do so each time, until somebody has changed a setting or
    /// a file.
    pub(crate) fn is_refusal_for_good(&self) -> bool {
        matches!(
            self.code,
            ErrorCode::WrongCluster
                | ErrorCode::OtherConfiguration
                | ErrorCode::KeyRequired
                | ErrorCode::WrongKey
                | ErrorCode::KeyForAnother
                | ErrorCode::BadKeyFile
        )
    }

    /// Whether the whole transaction may simply be tried again: nothing was changed.
    pub fn is_retryable(&self) -> bool {
        self.code.is_retryable()
    }

    /// The operation of the transaction that caused it, if one did.
    pub fn operation(&self) -> Option<OperationNumber> {
        self.operation
    }

    /// The unique index of the operation's table that is to blame, if one is: its id in the table's definition.
    pub fn index(&self) -> Option<u16> {
        (self.index != 0).then_some(self.index)
    }

    /// What it means and what to do.
    pub fn message(&self) -> String {
        match (&self.detail, self.code) {
            (None, code) => String::from(code.sentence()),
            // The detail is a name.
            (Some(name), ErrorCode::NoSuchTable) => format!("There is no table {name}."),
            (Some(name), ErrorCode::NoSuchDatabase) => format!("There is no database {name}."),
            (Some(name), ErrorCode::DatabaseExists) => format!("There is a database {name} already."),
            // The detail is "task and file: the system's reason". The reason comes first, as SQL cuts long texts off.
            (Some(cause), ErrorCode::DiskFull) => {
                let fact = match cause.rsplit_once(": ") {
                    Some((what, why)) => format!("{why} ({what})"),
                    None => String::from(&**cause),
                };
                format!(
                    "A data node's disk has no room: {fact}. Make room, or raise the limit of file sizes."
                )
            }
            // The detail is the cause.
            (Some(cause), ErrorCode::ClusterFailure) => match self.unconnected {
                Some(node) => format!("Data node {node} is not connected: {cause}. Retry when it is."),
                None => format!("No data node is connected: {cause}."),
            },
            (Some(detail), code) => format!("{} ({detail})", code.sentence()),
        }
    }
}

impl From<ErrorCode> for Error {
    fn from(code: ErrorCode) -> Self {
        Error::new(code)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {} ({:?}): {}", self.code as u16, self.class(), self.message())?;
        if let Some(operation) = self.operation {
            write!(f, " [operation {operation}]")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Error {}

/// What a call returns.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The errors of parts of a batch that have a detail, by the index of the part: most have none, and take no room here.
#[derive(Default, Debug)]
pub(crate) struct Detailed(BTreeMap<u32, Error>);

impl Detailed {
    /// Keeps the error of a part if its code does not say all of it; returns the code.
    pub fn keep(&mut self, index: u32, error: &Error) -> ErrorCode {
        if error.detail.is_some() {
            self.0.insert(index, error.clone());
        }
        error.code
    }

    /// The error of a part that has failed with this code.
    pub fn error(&self, index: usize, code: ErrorCode) -> Error {
        let kept = u32::try_from(index).ok().and_then(|index| self.0.get(&index));
        kept.filter(|error| error.code == code).cloned().unwrap_or_else(|| Error::new(code))
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What SQL shows of a message, and what MySQL's protocol has room for.
    const SHOWN: usize = 200;
    const MESSAGE_MAX: usize = 512;

    #[test]
    fn a_full_disk_is_named_before_the_advice() {
        let file = format!("/{}/schema/000-00000000.schema", "x".repeat(250));
        let why = "No space left on device (os error 28)";
        let error = Error::with_detail(ErrorCode::DiskFull, format!("allocate {file}: {why}"));
        let message = error.message();
        assert!(message[..SHOWN].contains(why), "{message}");
        assert!(message.contains(&file) && message.ends_with("raise the limit of file sizes."), "{message}");
        assert!(message.len() < MESSAGE_MAX, "{message}");
        let other = Error::with_detail(ErrorCode::DiskFull, "no room").message();
        assert!(other.starts_with("A data node's disk has no room: no room. Make room"), "{other}");
        for code in [ErrorCode::DiskFull, ErrorCode::RedoLogFull, ErrorCode::NotOnDisk] {
            assert!(code.sentence().len() < SHOWN, "{code:?} is shown as a whole");
        }
    }
}
