//! Why the definition of a table is not allowed.

use alloc::format;
use alloc::string::String;
use core::fmt;

/// A limit that a definition exceeds, for callers that have a separate error number for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The number of columns of a table: none, or too many.
    Columns,
    /// The size of the primary key or of an index, in bytes.
    KeyBytes,
    /// The size of a row, in bytes.
    RowBytes,
    /// The size of a column's values, in bytes.
    ValueBytes,
    /// The size of the client's attachment, in bytes.
    AttachmentBytes,
}

/// What is wrong with a definition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DefinitionError {
    /// A sentence that names what is wrong and what is allowed.
    pub text: String,
    /// The limit that is exceeded, if that is the error.
    pub limit: Option<Limit>,
}

impl DefinitionError {
    /// The error that a limit is exceeded.
    pub fn of(limit: Limit, text: String) -> Self {
        DefinitionError { text, limit: Some(limit) }
    }

    /// The same error, with `before` in front of its sentence.
    pub(crate) fn within(self, before: &str) -> Self {
        DefinitionError { text: format!("{before} {}", self.text), ..self }
    }
}

impl From<String> for DefinitionError {
    fn from(text: String) -> Self {
        DefinitionError { text, limit: None }
    }
}

impl From<DefinitionError> for String {
    fn from(error: DefinitionError) -> Self {
        error.text
    }
}

impl fmt::Display for DefinitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
