//! The row locks of a data manager, and who waits for them.

use crate::deadlock::Probes;
use crate::operation::{Patience, State};
use crate::versions::Versions;
use alloc::collections::{BTreeSet, VecDeque};
use core::mem;
use vinga_base::TransactionId;
use vinga_base::pool::Handle;
use vinga_fragment::chunk_store::ChunkRef;
use vinga_fragment::lock_table::{LockMode, LockRef, LockTable, Locker};
use vinga_kernel::Tick;
use vinga_wire::operation::OperationKind;

/// The lock table, the queues of time-outs, and who is ready to run.
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

    /// Takes a row's lock for an operation, or queues it: its entry, and whether it has the lock. There is always room:
    /// an entry belongs to an operation, a row's lock to its state record, and both pools are as large as the table's.
    pub fn take(
        &mut self,
        versions: &mut Versions,
        operation: Handle,
        state: Handle,
        mode: LockMode,
    ) -> (Handle, bool) {
        let locker = locker(versions, operation, mode);
        let at = versions.rows[state].lock;
        let taken = self.table.lock(at, state, locker).expect(IS_LARGE);
        versions.rows[state].lock = taken.row;
        versions.operations[operation].lock = Some(taken.entry);
        (taken.entry, taken.granted)
    }

    /// Takes a row's lock for an operation if it is free for it; returns whether it was.
    pub fn try_take(
        &mut self,
        versions: &mut Versions,
        operation: Handle,
        state: Handle,
        mode: LockMode,
    ) -> bool {
        let locker = locker(versions, operation, mode);
        let at = versions.rows[state].lock;
        let Some(taken) = self.table.try_lock(at, state, locker).expect(IS_LARGE) else { return false };
        versions.rows[state].lock = taken.row;
        versions.operations[operation].lock = Some(taken.entry);
        true
    }

    /// Leaves an entry in a row's queue that belongs to nobody: a deliberate bug.
    #[cold]
    pub fn queue_for_nobody(
        &mut self,
        versions: &Versions,
        operation: Handle,
        state: Handle,
        mode: LockMode,
    ) {
        let locker = locker(versions, operation, mode);
        self.table.lock(versions.rows[state].lock, state, locker).expect(IS_LARGE);
    }

    /// Releases an operation's lock, or gives up its place in the queue. Operations that get a lock by that are ready.
    pub fn release(&mut self, versions: &mut Versions, operation: Handle) {
        let Some(entry) = versions.operations[operation].lock.take() else { return };
        let ready = &mut self.ready;
        if self.table.release(entry, |_, granted| ready.push_back(granted.operation)) {
            let state = versions.operations[operation].row_state.expect("a lock belongs to a row");
            versions.rows[state].lock = LockRef::NONE;
        }
    }

    /// An operation begins to wait, or goes on waiting for a row that has gone and come back. `request` is what it came
    /// as.
    pub fn begin_wait(&mut self, versions: &mut Versions, handle: Handle, request: ChunkRef, now: Tick) {
        let record = &mut versions.operations[handle];
        // If its row has gone, and come back with somebody else's lock, it is the same wait that goes on, and its end
        // stands in the queue of time-outs. Were it entered again each time, the queue would grow as long as the wait
        // lasts.
        let goes_on = record.waits_since.is_some();
        let since = *record.waits_since.get_or_insert(now);
        record.state = State::Waiting { request, since };
        versions.transactions[record.transaction].waiting += 1;
        match (record.kind, record.patience) {
            // It waits for another one of its transaction, which some time-out ends.
            (OperationKind::ReadCommitted | OperationKind::Unlock, _) => {}
            (_, Patience::Usual) if goes_on => {}
            (_, Patience::Usual) => self.waiting.push_back((since, handle)),
            (_, Patience::Until(end)) => {
                self.bounded_waits.insert((end, handle));
            }
            (_, Patience::NoWait | Patience::SkipLocked | Patience::ElseCommitted) => {
                unreachable!("an operation that may not wait does not")
            }
        }
        // One that is noted already is asked about whatever it waits for when that is due.
        if !mem::replace(&mut record.is_noted, true) {
            self.probes.note(now, handle);
        }
    }

    /// An operation waits no longer. What it came as, if it has waited.
    pub fn stop_waiting(&mut self, versions: &mut Versions, handle: Handle) -> Option<ChunkRef> {
        let record = &mut versions.operations[handle];
        let State::Waiting { request, .. } = record.state else { return None };
        record.state = State::Prepared;
        if let Patience::Until(end) = record.patience {
            self.bounded_waits.remove(&(end, handle));
        }
        versions.transactions[record.transaction].waiting -= 1;
        Some(request)
    }

    /// An operation of a transaction need not wait any more: those that wait for it, and for no lock, are ready.
    pub fn run_followers(&mut self, versions: &Versions, id: TransactionId) {
        let Some(transaction) = versions.find_transaction(id) else { return };
        if versions.transactions[transaction].waiting == 0 {
            return;
        }
        let followers = versions.operations_of(transaction).into_iter().rev().filter(|&at| {
            let record = &versions.operations[at];
            record.lock.is_none() && matches!(record.state, State::Waiting { .. })
        });
        self.ready.extend(followers);
    }

    /// Operations that wait for a lock; some of them may have it since.
    pub fn waits(&self) -> usize {
        self.waiting.len() + self.bounded_waits.len()
    }
}

const IS_LARGE: &str = "the lock table is as large as the pools of operations and rows";

fn locker(versions: &Versions, operation: Handle, mode: LockMode) -> Locker {
    let transaction = versions.transactions[versions.operations[operation].transaction].id;
    Locker { operation, transaction, mode }
}
