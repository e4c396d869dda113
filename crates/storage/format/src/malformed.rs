//! Payloads that are not what their format says.

use core::fmt;

/// Why the payload of a block, whose checksum is right, can't be read: the program that has written it was wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// Where, from the beginning of the payload.
    pub at: usize,
    /// What is the matter.
    pub reason: &'static str,
}

impl Malformed {
    pub(crate) const fn new(at: usize, reason: &'static str) -> Self {
        Malformed { at, reason }
    }

    /// The same, as part of a payload that begins so many bytes before.
    pub(crate) const fn behind(self, bytes: usize) -> Self {
        Malformed { at: self.at + bytes, ..self }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the block's content is malformed at byte {}: {}", self.at, self.reason)
    }
}

impl core::error::Error for Malformed {}
