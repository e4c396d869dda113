//! Row locks: holders and waiters of each row, the order of waiting, and cycles of waiting transactions.
//!
//! A row that is locked has a *row lock*; its number is stored in the row's header as long as any operation holds the
//! row or waits for it. Each such operation has an *entry* in the row lock. A row lock without entries does not exist:
//! a row that is not locked costs nothing.
//!
//! Rules:
//! 1. Modes are shared and exclusive. Shared is compatible with shared; exclusive is not compatible with any lock of
//!    another transaction. Locks of one transaction never conflict with each other.
//! 2. First come, first served: a request is granted at once if no request waits and all holders of other transactions
//!    are compatible with it, otherwise it waits at the end of the queue. When an entry is released, the waiters are
//!    granted from the head of the queue until the first that can't be granted.
//! 3. A request of a transaction that already holds the row strongly enough is granted at once, whoever waits.
//! 4. Upgrade: a transaction that holds a shared lock and requests an exclusive one is granted it at once if it is the
//!    only holder; otherwise it waits before all others. Two upgrades of one row are a deadlock.
//! 5. A request of a transaction that already waits for the row, and does not hold it, waits directly behind its
//!    earlier one: otherwise it could wait for a transaction that waits for it.
//! 6. Every operation has an entry of its own. Releasing one leaves the others of its transaction; the transaction's
//!    lock is the strongest of them.
//!
//! A transaction waits for those that hold the row in a mode that conflicts with its request, and for those that wait
//! ahead of it for such a mode. After each request that has to wait, [`LockTable::find_deadlock`] looks for a cycle
//! through it: [`Deadlock`] names the transaction to abort. For cycles through other lock tables the caller can query
//! who blocks whom ([`LockTable::for_each_blocker`], [`LockTable::waits_of`]). An operation that stops waiting must
//! release its waiting entry.
//!
//! All memory is that of pools, lists are linked through the entries, and a request is refused if a pool is exhausted.

mod deadlock;
#[cfg(test)]
mod tests;

pub use deadlock::Deadlock;

use vinga_base::TransactionId;
use vinga_base::id_map::IdMap;
use vinga_base::pool::{Handle, Pool};

/// The number of a row's lock, or 0; stored in the row's header.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LockRef(pub u32);

impl LockRef {
    /// The row is not locked.
    pub const NONE: LockRef = LockRef(0);
}

/// The mode of a row lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockMode {
    /// Others may share it.
    Shared,
    /// No other transaction may lock it.
    Exclusive,
}

impl LockMode {
    /// Whether two transactions can't hold these modes together.
    fn excludes(self, other: LockMode) -> bool {
        self == LockMode::Exclusive || other == LockMode::Exclusive
    }
}

/// An operation that requests a row lock, waits for it or holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Locker {
    /// The caller's own handle of the operation.
    pub operation: Handle,
    /// Its transaction.
    pub transaction: TransactionId,
    /// The mode that it requests or holds.
    pub mode: LockMode,
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lock {
    /// The lock number that the row's header has to hold from now on.
    pub row: LockRef,
    /// The operation's entry, to release it by.
    pub entry: Handle,
    /// Whether it holds the row now; otherwise it waits.
    pub granted: bool,
}

/// A pool is exhausted: a temporary error. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocksExhausted {
    /// Too many rows are locked.
    RowLocks,
    /// Too many operations hold rows or wait for them.
    Entries,
}

/// Row locks of one data manager. `R` is how the caller identifies a row.
pub struct LockTable<R> {
    rows: Pool<RowLock<R>>,
    entries: Pool<Entry>,
    /// For each transaction that waits, one of its waiting entries; the others are linked to it.
    waiting: IdMap,
    searches: u32,
}

struct RowLock<R> {
    row: R,
    holders: List,
    /// Number of exclusive holders. If there are any, all holders are of one transaction.
    exclusive_holders: u32,
    waiters: List,
}

/// Entries of one row, linked by their indexes; 0 is none.
#[derive(Clone, Copy, Default)]
struct List {
    first: u32,
    last: u32,
}

struct Entry {
    locker: Locker,
    row: Handle,
    granted: bool,
    /// In the row's list of holders or of waiters.
    previous: u32,
    next: u32,
    /// While it waits: the other waiting entries of the transaction.
    sibling_before: u32,
    sibling_behind: u32,
    search: deadlock::Mark,
}

impl<R: Copy> LockTable<R> {
    /// A table for at most this many locked rows and operations that hold rows or wait for them.
    pub fn new(rows_max: u32, entries_max: u32) -> Self {
        LockTable {
            rows: Pool::new(rows_max),
            entries: Pool::new(entries_max),
            waiting: IdMap::new(entries_max),
            searches: 0,
        }
    }

    /// Starts to load an operation's entry into the caches.
    #[inline]
    pub fn prefetch(&self, entry: Handle) {
        self.entries.prefetch(entry.index());
    }

    /// Requests a row whose header holds `at`; `row` is kept if this is its first lock.
    ///
    /// If the request has to wait, [`Self::find_deadlock`] should be called.
    ///
    /// # Errors
    /// If a pool is exhausted.
    #[inline]
    pub fn lock(&mut self, at: LockRef, row: R, locker: Locker) -> Result<Lock, LocksExhausted> {
        if at == LockRef::NONE {
            return self.lock_free_row(row, locker);
        }
        let row = self.row_handle(at);
        let entry = self.add_entry(row, locker)?;
        let granted = match self.place_of(row, locker) {
            Place::Holders => {
                self.add_holder(row, entry);
                true
            }
            Place::Waiters { behind } => {
                self.add_waiter(row, entry, behind);
                false
            }
        };
        Ok(Lock { row: at, entry, granted })
    }

    /// As [`Self::lock`], but a request that would have to wait is not made: returns `None`, and nothing has changed.
    ///
    /// # Errors
    /// If a pool is exhausted.
    pub fn try_lock(&mut self, at: LockRef, row: R, locker: Locker) -> Result<Option<Lock>, LocksExhausted> {
        if at != LockRef::NONE
            && let Place::Waiters { .. } = self.place_of(self.row_handle(at), locker)
        {
            return Ok(None);
        }
        self.lock(at, row, locker).map(Some)
    }

    #[inline]
    fn lock_free_row(&mut self, row: R, locker: Locker) -> Result<Lock, LocksExhausted> {
        let lock = RowLock { row, holders: List::default(), exclusive_holders: 0, waiters: List::default() };
        let row = self.rows.insert(lock).map_err(|_| LocksExhausted::RowLocks)?;
        match self.add_entry(row, locker) {
            Ok(entry) => {
                self.add_holder(row, entry);
                Ok(Lock { row: LockRef(row.index()), entry, granted: true })
            }
            Err(exhausted) => {
                self.rows.remove(row);
                Err(exhausted)
            }
        }
    }

    /// Removes an entry, whether it holds the row or waits for it. Calls `granted` for each waiter that now holds the
    /// row, in their order. Returns whether the row's lock was removed: its header must hold [`LockRef::NONE`] then.
    #[inline]
    #[must_use]
    pub fn release(&mut self, entry: Handle, granted: impl FnMut(Handle, Locker)) -> bool {
        let row = self.entries[entry].row;
        if self.entries[entry].granted {
            self.remove_holder(row, entry);
        } else {
            self.remove_waiter(row, entry);
        }
        self.entries.remove(entry);
        self.serve(row, granted);
        let gone = self.rows[row].holders.first == 0;
        if gone {
            assert_eq!(self.rows[row].waiters.first, 0, "a row without holders is granted to its waiters");
            self.rows.remove(row);
        }
        gone
    }

    /// Turns an exclusive holder into a shared one. Calls `granted` as [`Self::release`] does.
    pub fn downgrade(&mut self, entry: Handle, granted: impl FnMut(Handle, Locker)) {
        let held = &mut self.entries[entry];
        assert!(
            held.granted && held.locker.mode == LockMode::Exclusive,
            "only an exclusive lock can be downgraded"
        );
        held.locker.mode = LockMode::Shared;
        let row = held.row;
        self.rows[row].exclusive_holders -= 1;
        self.serve(row, granted);
    }

    /// Removes the first waiter without granting the row to others: for a row that ceases to exist, whose waiters have
    /// to look up their key again, in this order. The caller releases the holders after removing all waiters.
    pub fn take_waiter(&mut self, at: LockRef) -> Option<Locker> {
        let row = self.row_handle(at);
        let first = self.rows[row].waiters.first;
        if first == 0 {
            return None;
        }
        let entry = self.entry_handle(first);
        self.remove_waiter(row, entry);
        self.entries.remove(entry).map(|entry| entry.locker)
    }

    /// The row that has this lock.
    pub fn row(&self, at: LockRef) -> R {
        self.rows[self.row_handle(at)].row
    }

    /// The operation that has this entry and whether it holds the row; `None` if there is no such entry.
    pub fn entry(&self, entry: Handle) -> Option<(Locker, bool)> {
        self.entries.get(entry).map(|entry| (entry.locker, entry.granted))
    }

    /// The lock that an entry belongs to.
    pub fn row_of(&self, entry: Handle) -> LockRef {
        LockRef(self.entries[entry].row.index())
    }

    /// The holders of a row, in the order of granting.
    pub fn holders(&self, at: LockRef) -> impl Iterator<Item = Locker> {
        self.list(self.rows[self.row_handle(at)].holders)
    }

    /// The waiters for a row, in the order in which they will be granted it.
    pub fn waiters(&self, at: LockRef) -> impl Iterator<Item = Locker> {
        self.list(self.rows[self.row_handle(at)].waiters)
    }

    /// Number of locked rows, and of operations that hold rows or wait for them.
    pub fn used(&self) -> (u32, u32) {
        (self.rows.used(), self.entries.used())
    }

    /// Bytes reserved.
    pub fn memory_bytes(&self) -> usize {
        self.rows.memory_bytes() + self.entries.memory_bytes()
    }

    fn list(&self, list: List) -> impl Iterator<Item = Locker> {
        core::iter::successors(self.entries.handle_at(list.first), |&at| {
            self.entries.handle_at(self.entries[at].next)
        })
        .map(|at| self.entries[at].locker)
    }

    fn row_handle(&self, at: LockRef) -> Handle {
        self.rows.handle_at(at.0).expect("a row's header names a lock that exists")
    }

    fn entry_handle(&self, index: u32) -> Handle {
        self.entries.handle_at(index).expect("lists hold entries that exist")
    }

    fn at(&self, index: u32) -> &Entry {
        &self.entries[self.entry_handle(index)]
    }

    fn at_mut(&mut self, index: u32) -> &mut Entry {
        let handle = self.entry_handle(index);
        &mut self.entries[handle]
    }

    /// The list and position where a request belongs.
    fn place_of(&self, row: Handle, locker: Locker) -> Place {
        let lock = &self.rows[row];
        let all_shared = lock.exclusive_holders == 0;
        if all_shared && locker.mode == LockMode::Shared && lock.waiters.first == 0 {
            return Place::Holders;
        }
        let is_own = |holder: Locker| holder.transaction == locker.transaction;
        // If one holder is exclusive the others are of its transaction: there may be many, one for each operation.
        let asked = if all_shared { usize::MAX } else { 1 };
        let holds = self.list(lock.holders).take(asked).any(is_own);
        if holds && (locker.mode == LockMode::Shared || self.list(lock.holders).take(asked).all(is_own)) {
            return Place::Holders;
        }
        match self.last_waiting(row, locker.transaction) {
            Some(own) => Place::Waiters { behind: own },
            None if holds => Place::Waiters { behind: 0 },
            None => Place::Waiters { behind: lock.waiters.last },
        }
    }

    /// The last entry by which a transaction waits for a row. All of them are adjacent.
    fn last_waiting(&self, row: Handle, transaction: TransactionId) -> Option<u32> {
        let mut last = self.waiting_entries(transaction).find(|&entry| self.at(entry).row == row)?;
        loop {
            let next = self.at(last).next;
            if next == 0 || self.at(next).locker.transaction != transaction {
                return Some(last);
            }
            last = next;
        }
    }

    /// All entries by which a transaction waits.
    fn waiting_entries(&self, transaction: TransactionId) -> impl Iterator<Item = u32> {
        core::iter::successors(self.waiting.get(transaction.0), |&entry| {
            Some(self.at(entry).sibling_behind).filter(|&next| next != 0)
        })
    }

    /// Grants the row to waiters, from the head of the queue, until the first that has to continue to wait.
    #[inline]
    fn serve(&mut self, row: Handle, mut granted: impl FnMut(Handle, Locker)) {
        while self.rows[row].waiters.first != 0 {
            let entry = self.entry_handle(self.rows[row].waiters.first);
            let locker = self.entries[entry].locker;
            if !self.may_hold(row, locker) {
                return;
            }
            self.remove_waiter(row, entry);
            self.add_holder(row, entry);
            granted(entry, locker);
        }
    }

    /// Whether a waiter is compatible with all holders.
    fn may_hold(&self, row: Handle, locker: Locker) -> bool {
        let lock = &self.rows[row];
        if locker.mode == LockMode::Shared && lock.exclusive_holders == 0 {
            return true;
        }
        self.list(lock.holders).all(|holder| holder.transaction == locker.transaction)
    }

    #[inline]
    fn add_entry(&mut self, row: Handle, locker: Locker) -> Result<Handle, LocksExhausted> {
        let entry = Entry {
            locker,
            row,
            granted: false,
            previous: 0,
            next: 0,
            sibling_before: 0,
            sibling_behind: 0,
            search: deadlock::Mark::default(),
        };
        self.entries.insert(entry).map_err(|_| LocksExhausted::Entries)
    }

    #[inline]
    fn add_holder(&mut self, row: Handle, entry: Handle) {
        self.entries[entry].granted = true;
        let exclusive = self.entries[entry].locker.mode == LockMode::Exclusive;
        self.rows[row].exclusive_holders += u32::from(exclusive);
        let list = self.rows[row].holders;
        self.rows[row].holders = self.link(list, entry, list.last);
    }

    #[inline]
    fn remove_holder(&mut self, row: Handle, entry: Handle) {
        let exclusive = self.entries[entry].locker.mode == LockMode::Exclusive;
        self.rows[row].exclusive_holders -= u32::from(exclusive);
        let list = self.rows[row].holders;
        self.rows[row].holders = self.unlink(list, entry);
    }

    fn add_waiter(&mut self, row: Handle, entry: Handle, behind: u32) {
        let list = self.rows[row].waiters;
        self.rows[row].waiters = self.link(list, entry, behind);
        let transaction = self.entries[entry].locker.transaction;
        match self.waiting.get(transaction.0) {
            None => self.waiting.insert(transaction.0, entry.index()),
            Some(first) => {
                let second = core::mem::replace(&mut self.at_mut(first).sibling_behind, entry.index());
                self.entries[entry].sibling_before = first;
                self.entries[entry].sibling_behind = second;
                if second != 0 {
                    self.at_mut(second).sibling_before = entry.index();
                }
            }
        }
    }

    fn remove_waiter(&mut self, row: Handle, entry: Handle) {
        let list = self.rows[row].waiters;
        self.rows[row].waiters = self.unlink(list, entry);
        let Entry { locker, sibling_before, sibling_behind, .. } = self.entries[entry];
        if sibling_behind != 0 {
            self.at_mut(sibling_behind).sibling_before = sibling_before;
        }
        if sibling_before != 0 {
            self.at_mut(sibling_before).sibling_behind = sibling_behind;
        } else {
            self.waiting.remove(locker.transaction.0);
            if sibling_behind != 0 {
                self.waiting.insert(locker.transaction.0, sibling_behind);
            }
        }
        let removed = &mut self.entries[entry];
        removed.sibling_before = 0;
        removed.sibling_behind = 0;
    }

    /// Inserts an entry behind another, or at the front if that is 0.
    #[inline]
    fn link(&mut self, list: List, entry: Handle, behind: u32) -> List {
        let index = entry.index();
        let next = if behind == 0 { list.first } else { self.at(behind).next };
        if behind != 0 {
            self.at_mut(behind).next = index;
        }
        if next != 0 {
            self.at_mut(next).previous = index;
        }
        let linked = &mut self.entries[entry];
        linked.previous = behind;
        linked.next = next;
        List {
            first: if behind == 0 { index } else { list.first },
            last: if next == 0 { index } else { list.last },
        }
    }

    #[inline]
    fn unlink(&mut self, list: List, entry: Handle) -> List {
        let Entry { previous, next, .. } = self.entries[entry];
        if previous != 0 {
            self.at_mut(previous).next = next;
        }
        if next != 0 {
            self.at_mut(next).previous = previous;
        }
        List {
            first: if previous == 0 { next } else { list.first },
            last: if next == 0 { previous } else { list.last },
        }
    }
}

/// Where a request belongs.
enum Place {
    /// It is granted.
    Holders,
    /// It waits behind this entry, or before all if that is 0.
    Waiters { behind: u32 },
}
