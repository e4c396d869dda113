//! Why a measurement could not be made, as a sentence for the person who asked for it.

use std::fmt;

/// A sentence. There is nothing to decide by it: a measurement that failed is reported and ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure(String);

/// What measurements return.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with this sentence.
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

/// Says what was being done when something went wrong.
pub trait Context<T> {
    /// Turns an error into a sentence: what was tried, then the error.
    ///
    /// # Errors
    /// The sentence.
    fn context(self, tried: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, tried: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Failure(format!("{}: {error}", tried())))
    }
}
