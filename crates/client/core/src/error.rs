//! What a caller gets when something could not be done.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::fmt;
use vinga_base::OperationNumber;
use vinga_wire::{ErrorClass, ErrorCode};

/// A code with its class, what exactly was wrong if that is known, and the operation that caused it.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    code: ErrorCode,
    detail: Option<Box<str>>,
    operation: Option<OperationNumber>,
    index: u16,
}

impl Error {
    /// An error that its code describes sufficiently.
    pub fn new(code: ErrorCode) -> Self {
        Error { code, detail: None, operation: None, index: 0 }
    }

    /// An error with a sentence or half a sentence that says what exactly was wrong.
    pub fn with_detail(code: ErrorCode, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let detail = (!detail.is_empty()).then(|| detail.into_boxed_str());
        Error { code, detail, operation: None, index: 0 }
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
            (Some(cause), ErrorCode::ClusterFailure) => format!("No data node is connected: {cause}."),
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
