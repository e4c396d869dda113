//! The tables that a data manager knows, each with its fragments of them; adding and removing.
//!
//! Removing frees the memory of all fragments in slices, between other signals; the dictionary is told at the end. By
//! then coordinators have let go of the table, so no operation names it; scans of it are closed with an error.

use crate::DataManager;
use alloc::vec::Vec;
use vinga_base::order_key::OrderKey;
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::{IndexKind, TableDefinition};
use vinga_base::{PartitionId, TableVersion};
use vinga_fragment::fragment::Fragment;
use vinga_fragment::fragment_index::FragmentIndex;
use vinga_kernel::{Context, Mutation};
use vinga_wire::dictionary::{TableAddRefuse, TableAddRequest, TableBody};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, cold};

/// A table at a data manager.
pub struct Table {
    pub version: TableVersion,
    pub layout: RowLayout,
    /// Whether backups answer committed reads.
    pub read_backup: bool,
    /// By partition; `None` for partitions of others.
    fragments: Vec<Option<Fragment>>,
    /// Being removed: who is told at the end.
    pub removing: Option<Address>,
}

impl Table {
    /// The fragment of a partition that this data manager holds.
    #[inline]
    pub fn fragment(&self, partition: PartitionId) -> &Fragment {
        self.fragments[usize::from(partition.0)].as_ref().expect("the partition is ours")
    }

    /// The fragment of a partition that this data manager holds, to change it.
    #[inline]
    pub fn fragment_mut(&mut self, partition: PartitionId) -> &mut Fragment {
        self.fragments[usize::from(partition.0)].as_mut().expect("the partition is ours")
    }

    /// Whether a replica of the partition is here.
    #[inline]
    pub fn has_fragment(&self, partition: PartitionId) -> bool {
        matches!(self.fragments.get(usize::from(partition.0)), Some(Some(_)))
    }

    /// All fragments here, to change them.
    pub fn fragments_mut(&mut self) -> impl Iterator<Item = &mut Fragment> {
        self.fragments.iter_mut().flatten()
    }

    /// All fragments here.
    pub fn fragments(&self) -> impl Iterator<Item = (PartitionId, &Fragment)> {
        self.fragments.iter().enumerate().filter_map(|(i, f)| Some((PartitionId(i as u16), f.as_ref()?)))
    }
}

/// All tables, by id.
pub struct Tables {
    tables: Vec<Option<Table>>,
    tables_max: u32,
    /// Tables that are being removed.
    removing: Vec<u32>,
}

impl Tables {
    pub fn new(tables_max: u32) -> Self {
        Tables { tables: Vec::new(), tables_max, removing: Vec::new() }
    }

    /// The table, if the sender's version of it is the current one.
    #[inline]
    pub fn get(&self, cx: &Context<'_>, table: u32, version: u64) -> Result<&Table, ErrorCode> {
        match self.tables.get(table as usize) {
            Some(Some(found)) if found.version.0 == version && found.removing.is_none() => Ok(found),
            Some(Some(found))
                if cx.is_mutated(Mutation::StaleVersionAccepted) && found.removing.is_none() =>
            {
                Ok(found)
            }
            _ => Err(ErrorCode::StaleTable),
        }
    }

    /// The same without a context, for prefetching.
    #[inline]
    pub fn peek(&self, table: u32, version: u64) -> Option<&Table> {
        self.tables.get(table as usize)?.as_ref().filter(|t| t.version.0 == version)
    }

    /// A table that may have been removed meanwhile.
    pub fn present(&self, table: u32) -> Option<&Table> {
        self.tables.get(table as usize)?.as_ref().filter(|table| table.removing.is_none())
    }

    /// A table that an operation names, so it is there.
    #[inline]
    pub fn current(&self, table: u32) -> &Table {
        self.tables[table as usize].as_ref().expect("an operation's table is there")
    }

    /// A table that an operation names, to change it.
    #[inline]
    pub fn current_mut(&mut self, table: u32) -> &mut Table {
        self.tables[table as usize].as_mut().expect("an operation's table is there")
    }

    /// All tables.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Table)> {
        self.tables.iter().enumerate().filter_map(|(i, t)| Some((i as u32, t.as_ref()?)))
    }
}

/// A fragment without rows, with the ordered indexes of its table.
fn empty_fragment(definition: &TableDefinition, layout: &RowLayout) -> Fragment {
    let mut fragment = Fragment::new(layout.clone());
    for index in definition.indexes.iter().filter(|index| index.kind == IndexKind::Ordered) {
        let order = OrderKey::new(layout, &index.columns).expect("a checked index has columns of its table");
        fragment.add_index(FragmentIndex::new(index.id, order));
    }
    fragment
}

/// Rows or pages that a slice of removal frees, at most.
const REMOVAL_UNITS: u32 = 256;

impl DataManager {
    pub(crate) fn on_table_add_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let TableAddRequest { table } = cold::read(frame)?;
        let TableBody { table: id, version } = TableBody { table: table.table, version: table.version };
        let at = id as usize;
        let tables = &mut self.store.tables;
        let is_taken = matches!(tables.tables.get(at), Some(Some(_)));
        if id >= tables.tables_max || is_taken {
            let code = ErrorCode::OutOfTables as u16;
            let refusal = TableAddRefuse { table: id, version, code };
            cold::write(&mut cx.frame(SignalNumber::TableAddRefuse, frame.sender()), &refusal);
            return Some(());
        }
        if tables.tables.len() <= at {
            tables.tables.resize_with(at + 1, || None);
        }
        let layout = RowLayout::new(&table.definition);
        let fragments = self
            .map
            .places()
            .map(|(_, place)| {
                let is_ours =
                    place.instance == self.settings.instance && place.chain.contains(self.settings.node);
                is_ours.then(|| empty_fragment(&table.definition, &layout))
            })
            .collect();
        tables.tables[at] = Some(Table {
            version: TableVersion(version),
            layout,
            read_backup: table.definition.read_backup,
            fragments,
            removing: None,
        });
        cold::write(
            &mut cx.frame(SignalNumber::TableAddConfirm, frame.sender()),
            &TableBody { table: id, version },
        );
        Some(())
    }

    pub(crate) fn on_table_remove_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let body @ TableBody { table, version } = cold::read(frame)?;
        match self.store.tables.tables.get_mut(table as usize) {
            Some(Some(found)) if found.version.0 == version => {
                if found.removing.replace(frame.sender()).is_none() {
                    self.store.tables.removing.push(table);
                }
                self.close_scans_of_table(cx, table);
                self.index_work.forget_table(table);
            }
            _ => cold::write(&mut cx.frame(SignalNumber::TableRemoveConfirm, frame.sender()), &body),
        }
        Some(())
    }

    /// Frees some of a removed table; says whether there is more to free.
    pub(crate) fn remove_table_slice(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(&id) = self.store.tables.removing.first() else { return false };
        if self.rows.iter().any(|(_, row)| row.table == id) {
            // Records of the last transactions wait for their completion.
            cx.probe("table removal waits for completes");
            return false;
        }
        let table = self.store.tables.tables[id as usize].as_mut().expect("it is being removed");
        for fragment in table.fragments.iter_mut().flatten() {
            if !fragment.release_slice(&mut self.store.pages, &mut self.store.chunks, REMOVAL_UNITS) {
                return true;
            }
        }
        let removed = self.store.tables.tables[id as usize].take().expect("it is being removed");
        self.store.tables.removing.remove(0);
        let body = TableBody { table: id, version: removed.version.0 };
        let asker = removed.removing.expect("somebody asked for it");
        cold::write(&mut cx.frame(SignalNumber::TableRemoveConfirm, asker), &body);
        !self.store.tables.removing.is_empty()
    }
}
