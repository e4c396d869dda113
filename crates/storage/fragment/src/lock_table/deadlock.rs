//! Finding transactions that wait for each other in a cycle.
//!
//! A new cycle can only arise when a request begins to wait, and then passes through its transaction: so the search
//! starts there, breadth first, along "waits for". The nodes of the search are waiting entries: an entry leads to the
//! transactions that it waits for, each of these to all its waiting entries. When the search returns to where it began,
//! the path is a cycle; the youngest transaction on it, the one with the largest [`TransactionId::number`] (of equal
//! ones the largest id), is the victim.
//!
//! A row with many waiters would be walked once for each of them. So an entry that has been passed on the way to the
//! head of its queue is marked: the entries ahead of it are known. A search then passes each entry at most three times,
//! once for each mode and once for its own beginning: it is linear in the number of entries that it reaches. (The
//! beginning itself leaves no marks, since it skips its own transaction's entries, which the others must not.)

use super::{Entry, LockMode, LockTable, Locker};
use vinga_base::TransactionId;
use vinga_base::pool::Handle;

/// A cycle of waiting transactions, and where to break it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadlock {
    /// The youngest transaction of the cycle. It should be rolled back.
    pub transaction: TransactionId,
    /// Its operation that waits in the cycle.
    pub operation: Handle,
    /// That operation's entry: releasing it breaks the cycle.
    pub entry: Handle,
}

/// What searches store in an entry. Values of a search other than the current one are ignored.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    /// The search that has reached the entry.
    reached: u32,
    /// The search that has visited all entries ahead of it.
    all_ahead: u32,
    /// The search that has visited all exclusive entries ahead of it.
    exclusive_ahead: u32,
    /// The entry from which it was reached, 0 for the first.
    from: u32,
    /// The next entry in the search's queue.
    queue: u32,
}

impl<R: Copy> LockTable<R> {
    /// Looks for a cycle through the transaction of an entry that waits. When the caller has released the entry of the
    /// victim it should call this again, unless that was this entry: there may be more cycles.
    pub fn find_deadlock(&mut self, entry: Handle) -> Option<Deadlock> {
        let Entry { locker, granted, .. } = self.entries[entry];
        if granted {
            return None;
        }
        // After 2^32 searches a number is used again; no request waits that long.
        self.searches = self.searches.wrapping_add(1).max(1);
        let mut search = Search { number: self.searches, start: locker.transaction, last: 0 };
        self.reach(&mut search, locker.transaction, 0);
        let mut at = self.waiting.get(locker.transaction.0).unwrap_or(0);
        while at != 0 {
            if self.expand(&mut search, at) {
                return Some(self.youngest(at));
            }
            at = self.at(at).search.queue;
        }
        None
    }

    /// The transactions that a waiting entry directly waits for: those that hold its row, and those ahead of it up to
    /// the first one that itself waits for all before it. That one leads to the rest.
    pub fn for_each_blocker(&self, entry: Handle, mut tell: impl FnMut(TransactionId)) {
        let Entry { locker, row, previous, granted, .. } = self.entries[entry];
        if granted {
            return;
        }
        let is_in_the_way =
            |other: Locker| other.transaction != locker.transaction && other.mode.excludes(locker.mode);
        let mut at = previous;
        while at != 0 {
            let ahead = self.at(at);
            if is_in_the_way(ahead.locker) {
                tell(ahead.locker.transaction);
                if ahead.locker.mode == LockMode::Exclusive {
                    break;
                }
            }
            at = ahead.previous;
        }
        let holders = self.list(self.rows[row].holders).filter(|&holder| is_in_the_way(holder));
        holders.for_each(|holder| tell(holder.transaction));
    }

    /// The entries with which a transaction waits.
    pub fn waits_of(&self, transaction: TransactionId) -> impl Iterator<Item = Handle> {
        self.waiting_entries(transaction).map(|entry| self.entry_handle(entry))
    }

    /// Reaches everything that a waiting entry waits for. True if the transaction where the search began is among it.
    fn expand(&mut self, search: &mut Search, entry: u32) -> bool {
        let Entry { locker, row, previous, search: mark, .. } = *self.at(entry);
        if mark.knows_ahead(search.number, locker.mode) {
            return false;
        }
        let leaves_marks = locker.transaction != search.start;
        let mut at = previous;
        while at != 0 {
            let ahead = self.at(at);
            let (other, next, mark) = (ahead.locker, ahead.previous, ahead.search);
            if other.transaction != locker.transaction
                && other.mode.excludes(locker.mode)
                && self.reach(search, other.transaction, entry)
            {
                return true;
            }
            if mark.knows_ahead(search.number, locker.mode) {
                return false;
            }
            if leaves_marks {
                let mark = &mut self.at_mut(at).search;
                match locker.mode {
                    LockMode::Exclusive => mark.all_ahead = search.number,
                    LockMode::Shared => mark.exclusive_ahead = search.number,
                }
            }
            at = next;
        }
        let mut at = self.rows[row].holders.first;
        while at != 0 {
            let holder = self.at(at);
            let (other, next) = (holder.locker, holder.next);
            if other.transaction != locker.transaction
                && other.mode.excludes(locker.mode)
                && self.reach(search, other.transaction, entry)
            {
                return true;
            }
            at = next;
        }
        false
    }

    /// Queues the waiting entries of a transaction that were not reached yet. True if the search began there.
    fn reach(&mut self, search: &mut Search, transaction: TransactionId, from: u32) -> bool {
        if transaction == search.start && from != 0 {
            return true;
        }
        let mut next = self.waiting.get(transaction.0).unwrap_or(0);
        while next != 0 {
            let at = next;
            let entry = self.at_mut(at);
            next = entry.sibling_behind;
            if entry.search.reached == search.number {
                // All siblings were reached together.
                break;
            }
            entry.search.reached = search.number;
            entry.search.from = from;
            entry.search.queue = 0;
            if search.last != 0 {
                self.at_mut(search.last).search.queue = at;
            }
            search.last = at;
        }
        false
    }

    /// The youngest transaction on the path by which an entry was reached, itself included.
    fn youngest(&self, last: u32) -> Deadlock {
        let age = |entry: u32| {
            let transaction = self.at(entry).locker.transaction;
            (transaction.number(), transaction)
        };
        let mut youngest = last;
        let mut at = last;
        while at != 0 {
            if age(at) > age(youngest) {
                youngest = at;
            }
            at = self.at(at).search.from;
        }
        let locker = self.at(youngest).locker;
        Deadlock {
            transaction: locker.transaction,
            operation: locker.operation,
            entry: self.entry_handle(youngest),
        }
    }
}

impl Mark {
    /// Whether a search has reached all entries ahead of this one that conflict with this mode.
    fn knows_ahead(self, search: u32, mode: LockMode) -> bool {
        self.all_ahead == search || mode == LockMode::Shared && self.exclusive_ahead == search
    }
}

struct Search {
    number: u32,
    /// Where it began.
    start: TransactionId,
    /// The end of the queue of entries to look at.
    last: u32,
}
