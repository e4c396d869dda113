//! What open transactions have at this data manager: their operations, and the states of the rows that these name.
//!
//! The records refer to each other by handle. A transaction lists its operations; an operation that has found its row
//! names the row's state; the state heads the list of the changes that were made of the row, newest first. The versions
//! of a row that readers are not shown are in the records of these changes.

use crate::operation::{Change, FirstChange, OperationRecord, State, TransactionRecord};
use alloc::vec::Vec;
use vinga_base::id_map::IdMap;
use vinga_base::pool::{Handle, Pool};
use vinga_base::{PartitionId, RowId, TransactionId};
use vinga_fragment::lock_table::LockRef;
use vinga_wire::operation::OperationKind;

/// Which row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RowPlace {
    /// The table's id.
    pub table: u32,
    /// The partition of the cluster.
    pub partition: PartitionId,
    /// Its place in the fragment, the same on all replicas.
    pub row: RowId,
}

/// The state of a row that operations name. Its pool index stands in the row's header.
pub struct RowState {
    pub place: RowPlace,
    /// Operations that name it, waiters included.
    pub operations: u32,
    /// The newest change; older ones follow by `older_change`. At a backup, changes of one transaction at a time, too:
    /// those of earlier ones were resolved before.
    pub newest_change: Option<Handle>,
    /// The row's lock; none at a backup, or when only waiters of an earlier row in this slot are left.
    pub lock: LockRef,
}

/// Whose own changes count, and which of them: those with lower numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Viewer {
    pub transaction: TransactionId,
    pub before: u32,
}

/// Records of transactions, of operations, and of the rows that these name.
pub struct Versions {
    pub operations: Pool<OperationRecord>,
    pub transactions: Pool<TransactionRecord>,
    by_id: IdMap,
    /// States of rows with operations: each operation names one row at most.
    pub rows: Pool<RowState>,
}

impl Versions {
    /// Room for so many operations, of so many transactions.
    pub fn new(operations_max: u32, transactions_max: u32) -> Self {
        Versions {
            operations: Pool::new(operations_max),
            transactions: Pool::new(transactions_max),
            by_id: IdMap::new(transactions_max),
            rows: Pool::new(operations_max),
        }
    }

    /// Whether nothing of any transaction is left.
    pub fn is_empty(&self) -> bool {
        self.operations.used() == 0 && self.transactions.used() == 0 && self.rows.used() == 0
    }

    /// Number of transactions that are found by their ids.
    pub fn known(&self) -> usize {
        self.by_id.len()
    }

    /// The record of a transaction here.
    #[inline]
    pub fn find_transaction(&self, id: TransactionId) -> Option<Handle> {
        self.transactions.handle_at(self.by_id.get(id.0)?)
    }

    /// Starts to load the place of a transaction's id into the caches.
    #[inline]
    pub fn prefetch_id(&self, id: TransactionId) {
        self.by_id.prefetch(id.0);
    }

    /// Starts to load a transaction's record into the caches.
    #[inline]
    pub fn prefetch_record(&self, id: TransactionId) {
        if let Some(index) = self.by_id.get(id.0) {
            self.transactions.prefetch(index);
        }
    }

    /// The operation of a transaction that came last.
    #[inline]
    pub fn last_operation(&self, id: TransactionId) -> Option<Handle> {
        self.find_transaction(id).and_then(|transaction| self.transactions[transaction].operations)
    }

    /// Adds the record of a transaction that has none. `None` if the pool is empty.
    pub fn add_transaction(&mut self, record: TransactionRecord) -> Option<Handle> {
        let id = record.id;
        let made = self.transactions.insert(record).ok()?;
        self.by_id.insert(id.0, made.index());
        Some(made)
    }

    /// Removes the record of a transaction that has no operation here any more.
    fn forget_if_empty(&mut self, transaction: Handle) {
        let record = &self.transactions[transaction];
        if record.operations.is_none() {
            assert!(record.waiting == 0, "only operations wait");
            self.by_id.remove(record.id.0);
            self.transactions.remove(transaction);
        }
    }

    /// Adds an operation to a transaction. `None` if the pool is empty; then a transaction that has no operation is
    /// gone, too.
    #[inline]
    pub fn add_operation(&mut self, transaction: Handle, mut record: OperationRecord) -> Option<Handle> {
        record.next = self.transactions[transaction].operations;
        let (number, is_change) = (record.number, record.kind.is_change());
        match self.operations.insert(record) {
            Ok(made) => {
                let transaction = &mut self.transactions[transaction];
                transaction.operations = Some(made);
                transaction.count += 1;
                if is_change {
                    transaction.first_change = transaction.first_change.with(number);
                }
                Some(made)
            }
            Err(_) => {
                self.forget_if_empty(transaction);
                None
            }
        }
    }

    /// The operation of the same transaction that came next after this one; `None` if it came last. All that came later
    /// are gone through.
    pub fn newer_than(&self, operation: Handle) -> Option<Handle> {
        let first = self.transactions[self.operations[operation].transaction].operations;
        if first == Some(operation) {
            return None;
        }
        let newer = core::iter::successors(first, |&at| self.operations[at].next)
            .find(|&at| self.operations[at].next == Some(operation));
        Some(newer.expect("an operation is in its transaction's list"))
    }

    /// Removes an operation that changes nothing, and its transaction if it was the last one. `newer` is what
    /// [`Versions::newer_than`] gives.
    pub fn remove_operation(&mut self, newer: Option<Handle>, operation: Handle) {
        let removed = self.operations.get(operation).expect("the caller holds it");
        assert!(removed.change == Change::None, "a change is undone or installed first");
        assert!(removed.row_state.is_none() && removed.lock.is_none(), "it has let go of its row");
        let (handle, number, older) = (removed.transaction, removed.number, removed.next);
        let transaction = &mut self.transactions[handle];
        transaction.count -= 1;
        transaction.first_change = transaction.first_change.without(number);
        let link = match newer {
            None => &mut transaction.operations,
            Some(newer) => &mut self.operations[newer].next,
        };
        assert!(*link == Some(operation), "it stands behind the one that came next");
        *link = older;
        self.operations.remove(operation);
        self.forget_if_empty(handle);
    }

    /// Undone as it is, an operation only holds its lock from now on.
    pub fn keep_lock_only(&mut self, operation: Handle) {
        let record = &mut self.operations[operation];
        record.kind = OperationKind::ReadExclusive;
        let (transaction, number) = (record.transaction, record.number);
        let transaction = &mut self.transactions[transaction];
        transaction.first_change = transaction.first_change.without(number);
    }

    /// The number of a transaction's first operation here that changes something; 0 if none does.
    pub fn first_change(&self, transaction: Handle) -> u32 {
        match self.transactions[transaction].first_change {
            FirstChange::None => 0,
            FirstChange::Is(number) => number,
            FirstChange::Unknown => {
                let changes = self.records_of(transaction).filter(|record| record.kind.is_change());
                changes.map(|record| record.number).min().unwrap_or(0)
            }
        }
    }

    /// The operations of a transaction; that which came last is first.
    pub fn operations_of(&self, transaction: Handle) -> Vec<Handle> {
        let first = self.transactions[transaction].operations;
        core::iter::successors(first, |&at| self.operations[at].next).collect()
    }

    /// Their records.
    pub fn records_of(&self, transaction: Handle) -> impl Iterator<Item = &OperationRecord> {
        let first = self.transactions[transaction].operations.map(|at| &self.operations[at]);
        core::iter::successors(first, |record| record.next.map(|at| &self.operations[at]))
    }

    /// The state record behind the reference in a row's header.
    #[inline]
    pub fn row_state_at(&self, reference: u32) -> Handle {
        self.rows.handle_at(reference).expect("a row's header names a live state record")
    }

    /// The changes of a row, newest first.
    pub fn changes(&self, newest: Option<Handle>) -> impl Iterator<Item = Handle> {
        core::iter::successors(newest, |&at| self.operations[at].older_change)
    }

    /// The newest change of a row that fulfils a condition.
    pub fn own_change(&self, state: Handle, condition: impl Fn(&OperationRecord) -> bool) -> Option<&Change> {
        self.changes(self.rows[state].newest_change)
            .map(|at| &self.operations[at])
            .find(|operation| condition(operation))
            .map(|operation| &operation.change)
    }

    /// Links an operation to a row's state.
    pub fn attach(&mut self, operation: Handle, state: Handle) {
        let row = &mut self.rows[state];
        row.operations += 1;
        let operation = &mut self.operations[operation];
        assert!(operation.row_state.is_none(), "an operation names one row");
        operation.row_state = Some(state);
        operation.row = row.place.row;
    }

    /// Makes a change the newest of its row.
    pub fn push_change(&mut self, operation: Handle, change: Change) {
        let state = self.operations[operation].row_state.expect("a change names a row");
        let row = &mut self.rows[state];
        let record = &mut self.operations[operation];
        assert!(record.change == Change::None, "an operation changes its row once");
        record.change = change;
        record.older_change = row.newest_change.replace(operation);
    }

    /// Unlinks the newest change from its row; returns it.
    pub fn pop_change(&mut self, operation: Handle) -> Change {
        let state = self.operations[operation].row_state.expect("a change names a row");
        let older = self.operations[operation].older_change.take();
        let newest = core::mem::replace(&mut self.rows[state].newest_change, older);
        assert!(newest == Some(operation), "changes are undone newest first");
        core::mem::replace(&mut self.operations[operation].change, Change::None)
    }

    /// Changes that are committed and that readers are not shown.
    pub fn hidden(&self) -> usize {
        let is_committed = |at: Handle| matches!(self.operations[at].state, State::Committed { .. });
        self.rows.iter().filter(|(_, row)| row.newest_change.is_some_and(is_committed)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Patience;
    use alloc::vec;
    use vinga_wire::commit::{Actor, Chain};
    use vinga_wire::{Address, U32};

    fn read(transaction: Handle, number: u32) -> OperationRecord {
        OperationRecord {
            transaction,
            number,
            sub: 0,
            kind: OperationKind::ReadShared,
            error_is_local: false,
            patience: Patience::Usual,
            state: State::Prepared,
            change: Change::None,
            table: 1,
            partition: PartitionId(0),
            row: RowId(0),
            row_state: None,
            older_change: None,
            lock: None,
            waits_since: None,
            is_noted: false,
            reserved: 0,
            chain: Chain::default(),
            next: None,
        }
    }

    const ID: TransactionId = TransactionId(7);

    fn with_transaction() -> (Versions, Handle) {
        let mut versions = Versions::new(8, 8);
        let (zero, none) = (U32::ZERO, Address(0));
        let actor = Actor { coordinator: zero, incarnation: zero, acting: zero, record: zero };
        let transaction =
            versions.add_transaction(TransactionRecord::new(ID, actor, none)).expect("there is room");
        (versions, transaction)
    }

    #[test]
    fn an_operation_is_removed_behind_the_one_that_came_next() {
        let (mut versions, transaction) = with_transaction();
        let all: Vec<Handle> = (1..=5)
            .map(|number| versions.add_operation(transaction, read(transaction, number)).expect("room"))
            .collect();
        // Every other one goes, from the newest on, as reads between changes do.
        let mut newer = None;
        for (&operation, stays) in all.iter().rev().zip([true, false].into_iter().cycle()) {
            assert_eq!(versions.newer_than(operation), newer);
            if stays {
                newer = Some(operation);
            } else {
                versions.remove_operation(newer, operation);
            }
        }
        assert_eq!(versions.operations_of(transaction), vec![all[4], all[2], all[0]]);
        assert_eq!(versions.transactions[transaction].count, 3);
        for operation in [all[2], all[4], all[0]] {
            versions.remove_operation(versions.newer_than(operation), operation);
        }
        assert!(versions.is_empty() && versions.find_transaction(ID).is_none());
    }

    #[test]
    fn the_first_change_is_found_whatever_has_gone() {
        let (mut versions, transaction) = with_transaction();
        let change = |number| OperationRecord { kind: OperationKind::Delete, ..read(transaction, number) };
        let add = |versions: &mut Versions, record| {
            versions.add_operation(transaction, record).expect("there is room")
        };
        add(&mut versions, read(transaction, 1));
        assert_eq!(versions.first_change(transaction), 0);
        let [third, second, fourth] = [3, 2, 4].map(|number| add(&mut versions, change(number)));
        assert_eq!(versions.first_change(transaction), 2);
        versions.remove_operation(versions.newer_than(second), second);
        assert_eq!(versions.first_change(transaction), 3);
        versions.keep_lock_only(third);
        assert_eq!(versions.first_change(transaction), 4);
        versions.remove_operation(versions.newer_than(fourth), fourth);
        assert_eq!(versions.first_change(transaction), 0);
        add(&mut versions, change(5));
        assert_eq!(versions.first_change(transaction), 5);
    }

    #[test]
    #[should_panic(expected = "it stands behind the one that came next")]
    fn another_one_before_it_is_refused() {
        let (mut versions, transaction) = with_transaction();
        let [first, _, last] = [1, 2, 3].map(|number| {
            versions.add_operation(transaction, read(transaction, number)).expect("there is room")
        });
        versions.remove_operation(Some(last), first);
    }
}
