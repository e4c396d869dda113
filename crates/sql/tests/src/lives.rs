//! Which life of the data node it is, as all clients know it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Twice the number of the present life; one more while the data node is away.
#[derive(Clone, Default)]
pub struct Lives(Arc<AtomicU64>);

/// A moment in a life, or between two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(u64);

impl Lives {
    /// The first life is 1.
    pub fn now(&self) -> Moment {
        Moment(self.0.load(Ordering::SeqCst))
    }

    /// A life begins; its number.
    pub fn begin(&self) -> u64 {
        let before = self.0.load(Ordering::SeqCst);
        let life = before / 2 + 1;
        self.0.store(life * 2, Ordering::SeqCst);
        life
    }

    /// The life ends.
    pub fn end(&self) {
        self.0.fetch_or(1, Ordering::SeqCst);
    }
}

impl Moment {
    /// The life that it is in, or that has ended before.
    pub fn life(self) -> u64 {
        self.0 / 2
    }

    /// Whether this life was over by then.
    pub fn is_after(self, life: u64) -> bool {
        self.0 > life * 2
    }

    /// Whether the data node was there.
    pub fn is_alive(self) -> bool {
        self.0.is_multiple_of(2)
    }
}
