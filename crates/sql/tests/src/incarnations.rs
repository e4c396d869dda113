//! The current incarnation of the data node, as all clients know it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Twice the number of the current incarnation; one more while the data node is down.
#[derive(Clone, Default)]
pub struct Incarnations(Arc<AtomicU64>);

/// A moment in an incarnation, or between two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(u64);

impl Incarnations {
    /// The current moment; the first incarnation is 1.
    pub fn now(&self) -> Moment {
        Moment(self.0.load(Ordering::SeqCst))
    }

    /// Begins an incarnation; returns its number.
    pub fn begin(&self) -> u64 {
        let before = self.0.load(Ordering::SeqCst);
        let incarnation = before / 2 + 1;
        self.0.store(incarnation * 2, Ordering::SeqCst);
        incarnation
    }

    /// Ends the incarnation.
    pub fn end(&self) {
        self.0.fetch_or(1, Ordering::SeqCst);
    }
}

impl Moment {
    /// The incarnation at this moment, or the last one before it.
    pub fn incarnation(self) -> u64 {
        self.0 / 2
    }

    /// Whether this incarnation had ended at this moment.
    pub fn is_after(self, incarnation: u64) -> bool {
        self.0 > incarnation * 2
    }

    /// Whether the data node was running.
    pub fn is_alive(self) -> bool {
        self.0.is_multiple_of(2)
    }
}
