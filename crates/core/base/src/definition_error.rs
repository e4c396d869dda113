//! Why the definition of a table is not allowed.

use alloc::format;
use alloc::string::String;
use core::fmt;

/// A limit that a definition is over, for who has an error number of its own for that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Columns of a table: none, or too many.
    Columns,
    /// Bytes of the primary key or an index.
    KeyBytes,
    /// Bytes of a row.
    RowBytes,
    /// Bytes of the values of a column.
    ValueBytes,
    /// Bytes of what the client has attached.
    AttachmentBytes,
}

/// What is wrong with a definition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DefinitionError {
    /// A sentence that names what is wrong and what is allowed.
    pub text: String,
    /// The limit, if it is one of those.
    pub limit: Option<Limit>,
}

impl DefinitionError {
    /// Over a limit.
    pub fn of(limit: Limit, text: String) -> Self {
        DefinitionError { text, limit: Some(limit) }
    }

    /// The same, with words before its sentence.
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
