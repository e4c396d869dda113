//! Rows with open operations: their state records, the versions of a row, and what a transaction sees of it.

use crate::operation::{Change, OperationRecord, State};
use crate::tables::Table;
use crate::{DataManager, Store};
use alloc::vec::Vec;
use vinga_base::pool::{Handle, Pool};
use vinga_base::row_layout::RowLayout;
use vinga_base::{ColumnId, PartitionId, RowId, TransactionId};
use vinga_fragment::lock_table::LockRef;
use vinga_fragment::row::{OperationRef, RowFlags};
use vinga_fragment::row_version::RowVersion;
use vinga_kernel::{Context, InjectedBug};

/// The state of a row that operations name. Its pool index stands in the row's header.
pub struct RowState {
    pub table: u32,
    pub partition: PartitionId,
    pub row: RowId,
    /// Operations that name it, waiters included.
    pub operations: u32,
    /// The newest change; older ones follow by `older_change`. At a backup, changes of one transaction at a time, too:
    /// those of earlier ones were resolved before.
    pub newest_change: Option<Handle>,
    /// The row's lock; none at a backup, or when only waiters of an earlier row in this slot are left.
    pub lock: LockRef,
}

/// A row as somebody sees it: fixed and variable part.
#[derive(Clone, Copy)]
pub struct Version<'a> {
    pub fixed: &'a [u8],
    pub variable: &'a [u8],
}

impl<'a> Version<'a> {
    /// The parts of a checked image.
    #[inline]
    pub fn of(layout: &RowLayout, image: &'a [u8]) -> Self {
        let (fixed, variable) = layout.split(image);
        Version { fixed, variable }
    }

    /// Appends all of it, or the selected columns.
    #[inline]
    pub fn write(&self, layout: &RowLayout, selection: Option<&[ColumnId]>, out: &mut Vec<u8>) {
        match selection {
            None => {
                out.extend_from_slice(self.fixed);
                out.extend_from_slice(self.variable);
            }
            Some(columns) => layout.write_selection(columns, self.fixed, self.variable, out),
        }
    }

    /// The same behind its length (u16), which is returned.
    #[inline]
    pub fn write_with_length(
        &self,
        layout: &RowLayout,
        selection: Option<&[ColumnId]>,
        out: &mut Vec<u8>,
    ) -> usize {
        if selection.is_none() {
            let length = self.fixed.len() + self.variable.len();
            out.extend_from_slice(&(length as u16).to_le_bytes());
            self.write(layout, None, out);
            return length;
        }
        let at = out.len();
        out.extend_from_slice(&[0; 2]);
        self.write(layout, selection, out);
        let length = out.len() - at - 2;
        out[at..at + 2].copy_from_slice(&(length as u16).to_le_bytes());
        length
    }
}

/// Whose own changes count, and which of them: those with lower numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Viewer {
    pub transaction: TransactionId,
    pub before: u32,
}

impl Store {
    /// The version in a row's slot, whoever may see it.
    #[inline]
    pub fn slot<'a>(&'a self, table: &'a Table, partition: PartitionId, row: RowId) -> Version<'a> {
        let (fixed, variable) = table.fragment(partition).parts(&self.pages, &self.chunks, row);
        Version { fixed, variable }
    }

    /// The only version of a row that no operation names; `None` if one does.
    #[inline]
    pub fn idle<'a>(&'a self, table: &'a Table, partition: PartitionId, row: RowId) -> Option<Version<'a>> {
        let row = table.fragment(partition).rows().row(&self.pages, row);
        (row.operation() == OperationRef::NONE).then(|| {
            let variable = row.variable().map_or(&[][..], |chunk| self.chunks.bytes(&self.pages, chunk));
            Version { fixed: row.fixed(), variable }
        })
    }

    /// The bytes of an after-image.
    pub fn image(&self, image: &RowVersion) -> Version<'_> {
        let (fixed, variable) = image.parts(&self.pages, &self.chunks);
        Version { fixed, variable }
    }

    /// The state record that a row's header names; 0 if no operation names the row.
    #[inline]
    pub fn reference(&self, table: &Table, partition: PartitionId, row: RowId) -> u32 {
        table.fragment(partition).rows().row(&self.pages, row).operation().0
    }

    /// Names a state record in a row's header.
    pub fn set_reference(&mut self, table: u32, partition: PartitionId, row: RowId, reference: u32) {
        let rows = self.tables.current(table).fragment(partition).rows();
        rows.row_mut(&mut self.pages, row).set_operation(OperationRef(reference));
    }
}

impl DataManager {
    /// What a viewer sees of a row; `None` if it sees no row there.
    #[inline]
    pub(crate) fn visible<'a>(
        &'a self,
        table: &'a Table,
        partition: PartitionId,
        row: RowId,
        viewer: Viewer,
    ) -> Option<Version<'a>> {
        match self.store.idle(table, partition, row) {
            None => self.visible_in_use(table, partition, row, viewer),
            version => version,
        }
    }

    /// The same for a row that operations name.
    pub(crate) fn visible_in_use<'a>(
        &'a self,
        table: &'a Table,
        partition: PartitionId,
        row: RowId,
        viewer: Viewer,
    ) -> Option<Version<'a>> {
        let state = self.row_state_at(self.store.reference(table, partition, row));
        let own = own_change(&self.operations, &self.rows[state], |operation| {
            self.transactions[operation.transaction].id == viewer.transaction
                && operation.number < viewer.before
        });
        match own {
            Some(Change::Insert) => Some(self.store.slot(table, partition, row)),
            Some(Change::Replace(image)) => Some(self.store.image(image)),
            Some(Change::Delete) => None,
            Some(Change::None) => unreachable!("only changes are linked"),
            None if is_pending(&self.store, table, partition, row) => None,
            None => Some(self.store.slot(table, partition, row)),
        }
    }

    /// The state record behind the reference in a row's header.
    #[inline]
    pub(crate) fn row_state_at(&self, reference: u32) -> Handle {
        self.rows.handle_at(reference).expect("a row's header names a live state record")
    }

    /// The state record of a row; made if it has none. `None` if the pool is empty.
    pub(crate) fn row_state(&mut self, table: u32, partition: PartitionId, row: RowId) -> Option<Handle> {
        match self.store.reference(self.store.tables.current(table), partition, row) {
            0 => {
                let state = RowState {
                    table,
                    partition,
                    row,
                    operations: 0,
                    newest_change: None,
                    lock: LockRef::NONE,
                };
                let made = self.rows.insert(state).ok()?;
                self.store.tables.current_mut(table).fragment_mut(partition).note_named(row, true);
                self.store.set_reference(table, partition, row, made.index());
                Some(made)
            }
            reference => Some(self.row_state_at(reference)),
        }
    }

    /// Links an operation to a row's state.
    pub(crate) fn attach(&mut self, operation: Handle, state: Handle) {
        let row = &mut self.rows[state];
        row.operations += 1;
        let operation = &mut self.operations[operation];
        assert!(operation.row_state.is_none(), "an operation names one row");
        operation.row_state = Some(state);
        operation.row = row.row;
    }

    /// Unlinks an operation from its row; the last one frees the state and clears the row's header.
    pub(crate) fn detach(&mut self, operation: Handle) {
        let Some(state) = self.operations[operation].row_state.take() else { return };
        let row = &mut self.rows[state];
        row.operations -= 1;
        if row.operations == 0 {
            assert!(row.newest_change.is_none(), "a change outlives no operation");
            self.free_row_state(state);
        }
    }

    /// Frees the state of a row that nobody names any more.
    fn free_row_state(&mut self, state: Handle) {
        let row = self.rows.remove(state).expect("the caller holds it");
        self.store.tables.current_mut(row.table).fragment_mut(row.partition).note_named(row.row, false);
        let table = self.store.tables.current(row.table);
        // The slot may be free already (a deleted row), and even be used again.
        if table.fragment(row.partition).rows().is_live(row.row)
            && self.store.reference(table, row.partition, row.row) == state.index()
        {
            self.store.set_reference(row.table, row.partition, row.row, 0);
        }
    }

    /// Makes a change the newest of its row.
    pub(crate) fn push_change(&mut self, operation: Handle, change: Change) {
        let state = self.operations[operation].row_state.expect("a change names a row");
        let row = &mut self.rows[state];
        let record = &mut self.operations[operation];
        record.change = change;
        record.older_change = row.newest_change.replace(operation);
    }

    /// Frees an after-image.
    pub(crate) fn free_image(&mut self, image: RowVersion) {
        image.free(&mut self.store.pages, &mut self.store.chunks);
    }
}

/// The newest change of a row that fulfils a condition.
fn own_change<'a>(
    operations: &'a Pool<OperationRecord>,
    row: &RowState,
    condition: impl Fn(&OperationRecord) -> bool,
) -> Option<&'a Change> {
    let mut next = row.newest_change;
    while let Some(at) = next {
        let operation = &operations[at];
        if condition(operation) {
            return Some(&operation.change);
        }
        next = operation.older_change;
    }
    None
}

/// Whether a scan's own later changes count as well: a deliberate bug.
pub fn scan_viewer(cx: &Context<'_>, viewer: Viewer) -> Viewer {
    if cx.has_bug(InjectedBug::ScanSeesLaterOwnChanges) {
        Viewer { before: u32::MAX, ..viewer }
    } else {
        viewer
    }
}

/// Whether a row holds an insert that is not committed.
fn is_pending(store: &Store, table: &Table, partition: PartitionId, row: RowId) -> bool {
    let row = table.fragment(partition).rows().row(&store.pages, row);
    row.flags().contains(RowFlags::PENDING_INSERT)
}

/// Whether an operation has been decided.
pub fn is_committed(operation: &OperationRecord) -> bool {
    matches!(operation.state, State::Committed { .. })
}
