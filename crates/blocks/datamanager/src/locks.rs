//! The row locks of a data manager, and who waits for them.

use crate::deadlock::Probes;
use alloc::collections::{BTreeSet, VecDeque};
use vinga_base::pool::Handle;
use vinga_fragment::lock_table::LockTable;
use vinga_kernel::Tick;

/// See the head of this file.
pub struct Locks {
    /// By row state; entries belong to operations.
    pub table: LockTable<Handle>,
    /// Waiting operations in the order in which they began to wait, with the time: of those that wait as long as is
    /// usual.
    pub waiting: VecDeque<(Tick, Handle)>,
    /// Waiting operations that say themselves how long they may wait, by when that is over.
    pub bounded_waits: BTreeSet<(Tick, Handle)>,
    pub probes: Probes,
    /// Operations that got their lock, or lost their row, and run again before anything newer.
    pub ready: VecDeque<Handle>,
}

impl Locks {
    /// Room for the locks of so many operations, each on a row of its own at most.
    pub fn new(operations_max: u32) -> Self {
        Locks {
            table: LockTable::new(operations_max, operations_max),
            waiting: VecDeque::new(),
            bounded_waits: BTreeSet::new(),
            probes: Probes::default(),
            ready: VecDeque::new(),
        }
    }

    /// Whether nothing is locked and nobody is bound to wait.
    pub fn is_empty(&self) -> bool {
        self.table.used() == (0, 0) && self.bounded_waits.is_empty() && self.ready.is_empty()
    }

    /// Operations that wait for a lock; some of them may have it since.
    pub fn waits(&self) -> usize {
        self.waiting.len() + self.bounded_waits.len()
    }
}
