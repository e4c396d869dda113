//! Why a measurement could not be made, as a text for the user.

use std::fmt;

/// A text for the user. No code branches on it: a measurement that failed is reported and ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure(String);

/// What measurements return.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with this text.
    pub fn new(sentence: impl Into<String>) -> Self {
        Failure(sentence.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Adds to an error what was being done.
pub trait Context<T> {
    /// Turns an error into a text: what was tried, then the error.
    ///
    /// # Errors
    /// That text.
    fn context(self, tried: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, tried: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Failure(format!("{}: {error}", tried())))
    }
}
