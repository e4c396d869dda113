//! Everything that holds rows, and how they are read. They are changed by `apply` alone.

use crate::index_keys::KeyScratch;
use crate::operation::Change;
use crate::redo::RedoLog;
use crate::tables::{Table, Tables};
use crate::versions::{RowPlace, RowState, Versions, Viewer};
use alloc::vec::Vec;
use vinga_base::page_pool::PagePool;
use vinga_base::pool::Handle;
use vinga_base::row_layout::RowLayout;
use vinga_base::{ColumnId, PartitionId, RowId};
use vinga_fragment::chunk_store::ChunkStore;
use vinga_fragment::lock_table::LockRef;
use vinga_fragment::row::{OperationRef, RowFlags};
use vinga_fragment::row_version::RowVersion;

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

/// The tables here with their rows, apart from the records of operations, so that both can be borrowed at once. `L`
/// follows the changes of rows.
pub struct Store<L = RedoLog> {
    pub pages: PagePool,
    pub chunks: ChunkStore,
    pub tables: Tables,
    /// Where keys of entries are made.
    pub keys: KeyScratch,
    pub listener: L,
}

impl<L> Store<L> {
    /// Without tables.
    pub fn new(pages: PagePool, tables_max: u32, listener: L) -> Self {
        Store {
            pages,
            chunks: ChunkStore::new(),
            tables: Tables::new(tables_max),
            keys: KeyScratch::default(),
            listener,
        }
    }

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

    /// What a viewer sees of a row; `None` if it sees no row there.
    #[inline]
    pub fn visible<'a>(
        &'a self,
        versions: &'a Versions,
        table: &'a Table,
        partition: PartitionId,
        row: RowId,
        viewer: Viewer,
    ) -> Option<Version<'a>> {
        match self.idle(table, partition, row) {
            None => self.visible_in_use(versions, table, partition, row, viewer),
            version => version,
        }
    }

    /// The same for a row that operations name.
    pub fn visible_in_use<'a>(
        &'a self,
        versions: &'a Versions,
        table: &'a Table,
        partition: PartitionId,
        row: RowId,
        viewer: Viewer,
    ) -> Option<Version<'a>> {
        let state = versions.row_state_at(self.reference(table, partition, row));
        let own = versions.own_change(state, |operation| {
            versions.transactions[operation.transaction].id == viewer.transaction
                && operation.number < viewer.before
        });
        match own {
            Some(Change::Insert) => Some(self.slot(table, partition, row)),
            Some(Change::Replace(image)) => Some(self.image(image)),
            Some(Change::Delete) => None,
            Some(Change::None) => unreachable!("only changes are linked"),
            None if self.is_pending(table, partition, row) => None,
            None => Some(self.slot(table, partition, row)),
        }
    }

    /// Whether a row holds an insert that is not committed.
    fn is_pending(&self, table: &Table, partition: PartitionId, row: RowId) -> bool {
        let row = table.fragment(partition).rows().row(&self.pages, row);
        row.flags().contains(RowFlags::PENDING_INSERT)
    }

    /// The state record of a row, which need not be there.
    pub fn state_of(&self, versions: &Versions, place: RowPlace) -> Option<Handle> {
        let table = self.tables.current(place.table);
        if !table.fragment(place.partition).rows().is_live(place.row) {
            return None;
        }
        match self.reference(table, place.partition, place.row) {
            0 => None,
            reference => Some(versions.row_state_at(reference)),
        }
    }

    /// The state record of a row that there is; made if it has none. `None` if the pool is empty.
    pub fn row_state(&mut self, versions: &mut Versions, place: RowPlace) -> Option<Handle> {
        match self.reference(self.tables.current(place.table), place.partition, place.row) {
            0 => {
                let state = RowState { place, operations: 0, newest_change: None, lock: LockRef::NONE };
                let made = versions.rows.insert(state).ok()?;
                self.tables.current_mut(place.table).fragment_mut(place.partition).note_named(place.row);
                self.set_reference(place.table, place.partition, place.row, made.index());
                Some(made)
            }
            reference => Some(versions.row_state_at(reference)),
        }
    }

    /// Unlinks an operation from its row; the last one frees the state and clears the row's header.
    pub fn detach(&mut self, versions: &mut Versions, operation: Handle) {
        let Some(state) = versions.operations[operation].row_state.take() else { return };
        let row = &mut versions.rows[state];
        row.operations -= 1;
        if row.operations == 0 {
            assert!(row.newest_change.is_none(), "a change outlives no operation");
            assert!(row.lock == LockRef::NONE, "a lock outlives no operation");
            self.free_row_state(versions, state);
        }
    }

    /// Frees the state of a row that no operation names any more.
    fn free_row_state(&mut self, versions: &mut Versions, state: Handle) {
        let RowState { place, .. } = versions.rows.remove(state).expect("the caller holds it");
        self.tables.current_mut(place.table).fragment_mut(place.partition).note_unnamed(place.row);
        let table = self.tables.current(place.table);
        // The slot may be free already (a deleted row), and even be used again.
        if table.fragment(place.partition).rows().is_live(place.row)
            && self.reference(table, place.partition, place.row) == state.index()
        {
            self.set_reference(place.table, place.partition, place.row, 0);
        }
    }
}
