//! What holds of a data manager between two signals.
//!
//! Records refer to each other: a transaction lists its operations, an operation names its row's state, the state heads
//! the list of the row's changes and has a reference in the row's header, a lock is held or awaited by operations. Each
//! of these references is checked from both sides.

use crate::DataManager;
use crate::operation::{Change, State};
use alloc::collections::BTreeMap;
use vinga_base::pool::Handle;
use vinga_fragment::fragment::Fragment;
use vinga_kernel::Scrutiny;

/// Fragments have their indexes compared with their rows if there are fewer rows than this: a check must end.
const ROWS_COMPARED_MAX: u64 = 500;

impl DataManager {
    /// See `vinga_kernel::Block::check_invariants`.
    pub(crate) fn check(&self, scrutiny: Scrutiny) {
        let (operations, transactions) = (self.versions.operations.used(), self.versions.transactions.used());
        assert_eq!(self.versions.known(), transactions as usize, "each transaction is found by its id");
        assert!(transactions <= operations, "no transaction is without an operation");
        assert!(self.versions.rows.used() <= operations, "no row state is without an operation");
        assert!(self.locks.ready.is_empty(), "what could run has run");
        if scrutiny == Scrutiny::Full {
            self.markers.check();
            self.check_copy();
            self.check_hand_over();
            self.check_placement();
            self.check_transactions();
            self.check_rows();
            self.check_locks();
            self.check_pages();
            if self.memory().rows < ROWS_COMPARED_MAX && self.schema.index_work.is_empty() {
                self.inspect_indexes().expect("indexes agree with rows");
            }
            if self.memory().rows < ROWS_COMPARED_MAX {
                self.check_chunks();
            }
        }
    }

    /// Those of all tables, and those of a partition that was given up whose memory is not free yet.
    fn all_fragments(&self) -> impl Iterator<Item = &Fragment> {
        let present = self.store.tables.iter().flat_map(|(_, table)| table.fragments());
        present.map(|(_, fragment)| fragment).chain(&self.placement.given_up)
    }

    /// Each page that was taken from the pool belongs to something.
    fn check_pages(&self) {
        let mut pages = self.store.chunks.usage().pages + self.schema.index_work.pages();
        for fragment in self.all_fragments() {
            pages += fragment.rows().usage().pages + fragment.index().pages();
            pages += fragment.indexes().iter().map(|index| index.tree.usage().pages).sum::<u32>();
        }
        assert_eq!(pages, self.store.pages.owned(), "pages of rows, indexes and chunks, and pages taken");
    }

    /// Each chunk belongs to a row, to a version of one, or to an operation that waits.
    fn check_chunks(&self) {
        let mut chunks = 0;
        for fragment in self.all_fragments() {
            for page in 0..fragment.rows().page_count() {
                let Some(view) = fragment.rows().page(&self.store.pages, page) else { continue };
                chunks +=
                    view.live_slots().filter(|&slot| view.row(slot).variable().is_some()).count() as u64;
            }
        }
        for (_, operation) in self.versions.operations.iter() {
            if let Change::Replace(image) = &operation.change {
                chunks += image.chunks();
            }
            chunks += u64::from(matches!(operation.state, State::Waiting { .. }));
        }
        assert_eq!(chunks, self.store.chunks.usage().chunks, "chunks that somebody has, and chunks in use");
    }

    fn check_transactions(&self) {
        let mut listed = 0;
        for (handle, transaction) in self.versions.transactions.iter() {
            let id = transaction.id;
            assert_eq!(self.versions.find_transaction(id), Some(handle), "{id:?} is found by its id");
            let (mut waiting, mut next) = (0, transaction.operations);
            assert!(next.is_some(), "{id:?} has an operation here");
            while let Some(at) = next {
                let operation = &self.versions.operations[at];
                assert_eq!(
                    operation.transaction, handle,
                    "{id:?}: operation {} is its own",
                    operation.number
                );
                assert!(
                    !operation.chain.is_empty() || operation.row_state.is_none(),
                    "{id:?}: operation {} has a row before its replicas are known",
                    operation.number
                );
                listed += 1;
                waiting += u32::from(matches!(operation.state, State::Waiting { .. }));
                next = operation.next;
            }
            assert_eq!(waiting, transaction.waiting, "{id:?}: operations that wait");
        }
        assert_eq!(listed, self.versions.operations.used(), "each operation is listed by its transaction");
    }

    fn check_rows(&self) {
        let mut named: BTreeMap<Handle, u32> = BTreeMap::new();
        for (_, operation) in self.versions.operations.iter() {
            match operation.row_state {
                Some(state) => *named.entry(state).or_default() += 1,
                None => assert!(operation.change == Change::None, "a change names its row"),
            }
            if matches!(operation.state, State::Waiting { .. }) {
                assert!(operation.change == Change::None, "nothing is changed before the lock is held");
            }
        }
        assert_eq!(
            named.len(),
            self.versions.rows.used() as usize,
            "each row state is named by an operation"
        );
        for (handle, row) in self.versions.rows.iter() {
            let what = row.place;
            assert_eq!(named.get(&handle), Some(&row.operations), "operations that name row {what:?}");
            let table = self.store.tables.current(what.table);
            // A lock may outlive its row until its transaction ends.
            if row.newest_change.is_some() {
                let is_live = table.fragment(what.partition).rows().is_live(what.row);
                assert!(is_live, "row {what:?} is changed and there");
                let reference = self.store.reference(table, what.partition, what.row);
                assert_eq!(reference, handle.index(), "the header of row {what:?} names its state");
            }
            self.check_changes(handle, row.newest_change);
        }
    }

    /// The changes of a row: newest first, all of one transaction, all prepared or all committed and not shown.
    fn check_changes(&self, state: Handle, newest: Option<Handle>) {
        let Some(newest) = newest else { return };
        let first = &self.versions.operations[newest];
        let mut next = Some(newest);
        let mut newer = None;
        while let Some(at) = next {
            let operation = &self.versions.operations[at];
            let name = operation.name();
            assert_eq!(operation.row_state, Some(state), "change {name:?} names its row");
            assert_eq!(operation.transaction, first.transaction, "one transaction at a time changes a row");
            assert!(operation.change != Change::None, "{name:?} is a change");
            assert!(newer.is_none_or(|newer| newer > name), "the newest change of a row is first");
            let is_hidden =
                matches!(operation.state, State::Prepared | State::Committed { shown: false, .. });
            assert!(is_hidden, "change {name:?} is shown and in the list of those that are not");
            (next, newer) = (operation.older_change, Some(name));
        }
    }

    fn check_locks(&self) {
        let mut entries = 0;
        for (handle, operation) in self.versions.operations.iter() {
            let Some(entry) = operation.lock else { continue };
            entries += 1;
            let (locker, is_granted) =
                self.locks.table.entry(entry).expect("an operation's lock is in the table");
            assert_eq!(locker.operation, handle, "a lock's entry names its operation");
            let transaction = &self.versions.transactions[operation.transaction];
            assert_eq!(locker.transaction, transaction.id, "a lock's entry names its transaction");
            assert!(
                is_granted || matches!(operation.state, State::Waiting { .. }),
                "operation {} of {:?} goes on without its lock",
                operation.number,
                transaction.id
            );
        }
        assert_eq!(
            self.locks.table.used().1,
            entries,
            "each entry of the lock table belongs to an operation"
        );
    }
}
