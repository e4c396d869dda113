//! The tables that a data manager knows, each with its fragments of them.

use crate::unique::UniqueIndexes;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::order_key::OrderKey;
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::{Durability, IndexDefinition, IndexKind};
use vinga_base::{PartitionId, TablePartitions, TableVersion};
use vinga_fragment::fragment::Fragment;
use vinga_fragment::fragment_index::FragmentIndex;
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::dictionary::{TableRecord, VersionedTable};
use vinga_wire::{Address, ErrorCode};

use vinga_wire::schema_round::RoundName;

/// A table at a data manager.
pub struct Table {
    /// Its name, for people.
    pub name: String,
    pub version: TableVersion,
    /// The version that it will have: accepted beside the present one while the table is changed. `TableVersion(0)`,
    /// which no table has, if there is none.
    next: TableVersion,
    /// The version that it had before, accepted only where a rule is broken on purpose.
    before: TableVersion,
    /// The version with which its rows began. Replicas name a table to each other by this: whoever sends a prepare on
    /// along the chain has checked the version.
    pub birth: TableVersion,
    pub layout: RowLayout,
    /// Where its rows are.
    pub partitions: TablePartitions,
    /// Its unique indexes.
    pub unique: UniqueIndexes,
    /// Whether its rows are to survive a restart of the cluster.
    pub is_logged: bool,
    /// Whether it is the hidden table of a unique index.
    pub is_hidden: bool,
    /// Whether backups answer committed reads.
    pub read_backup: bool,
    /// By partition of the cluster; `None` for partitions of others and those in which the table does not lie.
    fragments: Vec<Option<Fragment>>,
    /// The ordered indexes of this version.
    ordered: Vec<IndexDefinition>,
    /// Nobody may use it any more: it is dropped.
    pub is_gone: bool,
    /// Ordered indexes that its fragments get when the start is over.
    pub unbuilt: Vec<IndexDefinition>,
}

impl Table {
    /// A table without rows; `is_here` says for each of the cluster's partitions whether replicas of it are here. If
    /// its rows are still to come, its ordered indexes are built behind them.
    pub fn new(record: &TableRecord, is_here: impl Iterator<Item = bool>, rows: RowsOfTable) -> Self {
        let layout = RowLayout::new(&record.definition);
        let ordered = || ordered_indexes(record);
        let (indexes, unbuilt): (Vec<_>, Vec<_>) = match rows {
            RowsOfTable::None => (ordered().collect(), Vec::new()),
            RowsOfTable::ToBeRestored => (Vec::new(), ordered().cloned().collect()),
        };
        let fragments = (0..).map(PartitionId).zip(is_here).map(|(partition, is_here)| {
            let is_ours = is_here && record.partitions.contains(partition);
            is_ours.then(|| empty_fragment(&indexes, &layout))
        });
        let fragments = fragments.collect();
        Table {
            name: record.definition.name.clone(),
            version: TableVersion(record.version),
            next: TableVersion(0),
            before: TableVersion(0),
            birth: TableVersion(record.birth),
            layout,
            partitions: record.partitions.clone(),
            unique: UniqueIndexes::of(record),
            is_logged: record.definition.durability != Durability::NotLogged,
            is_hidden: record.definition.is_hidden(),
            read_backup: record.definition.read_backup,
            fragments,
            ordered: ordered().cloned().collect(),
            is_gone: false,
            unbuilt,
        }
    }

    /// Has an empty fragment of a partition, if the table lies in that, and no other ones; returns those that it had.
    /// It has the indexes that these had: a change that adds or drops one may be under way.
    pub fn renew_fragments(&mut self, partition: PartitionId) -> impl Iterator<Item = Fragment> + use<> {
        let before = core::mem::take(&mut self.fragments);
        self.fragments.resize_with(before.len(), || None);
        if self.partitions.contains(partition) {
            let fragment = match before.iter().flatten().next() {
                Some(present) => {
                    let mut fragment = empty_fragment(&[], &self.layout);
                    for index in present.indexes() {
                        fragment.add_index(FragmentIndex::new(index.id(), index.order().clone()));
                    }
                    fragment
                }
                None => empty_fragment(&self.ordered.iter().collect::<Vec<_>>(), &self.layout),
            };
            self.fragments[usize::from(partition.0)] = Some(fragment);
        }
        before.into_iter().flatten()
    }

    /// Accepts another version beside the present one. The unique indexes of both count: coordinators know which of
    /// them are to be followed.
    pub fn prepare(&mut self, next: &TableRecord) {
        self.next = TableVersion(next.version);
        self.unique.add(UniqueIndexes::of(next));
    }

    /// Accepts only this version from now on: the new one, or after an undone change the old one.
    pub fn complete(&mut self, record: &TableRecord) {
        let version = TableVersion(record.version);
        self.unique = UniqueIndexes::of(record);
        self.ordered = ordered_indexes(record).cloned().collect();
        self.name.clone_from(&record.definition.name);
        if version != self.version {
            self.before = self.version;
        }
        self.version = version;
        self.next = TableVersion(0);
    }

    #[inline]
    fn has_version(&self, version: u64) -> bool {
        self.version.0 == version || (self.next.0 == version && version != 0)
    }

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

    /// Whether a row of it is named by operations.
    pub fn has_named_rows(&self) -> bool {
        self.fragments().any(|(_, fragment)| fragment.rows().has_named())
    }

    /// Partitions of the cluster: numbers of its fragments are lower.
    pub fn partitions_end(&self) -> usize {
        self.fragments.len()
    }

    /// All fragments here.
    pub fn fragments(&self) -> impl Iterator<Item = (PartitionId, &Fragment)> {
        self.fragments.iter().enumerate().filter_map(|(i, f)| Some((PartitionId(i as u16), f.as_ref()?)))
    }
}

fn ordered_indexes(record: &TableRecord) -> impl Iterator<Item = &IndexDefinition> {
    record.definition.indexes.iter().filter(|index| index.kind == IndexKind::Ordered)
}

/// What rows a new table has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowsOfTable {
    /// None.
    None,
    /// Those that are going to be restored from files.
    ToBeRestored,
}

/// A fragment without rows, with these ordered indexes.
fn empty_fragment(indexes: &[&IndexDefinition], layout: &RowLayout) -> Fragment {
    let mut fragment = Fragment::new(layout.clone());
    for index in indexes {
        let order = OrderKey::new(layout, &index.columns).expect("a checked index has columns of its table");
        fragment.add_index(FragmentIndex::new(index.id, order));
    }
    fragment
}

/// Tables whose memory is being freed, and who is answered when all of it is free.
pub struct Removal {
    pub requester: Address,
    pub round: RoundName,
    /// Ids of those that are left.
    pub tables: Vec<u32>,
}

/// All tables, by id.
pub struct Tables {
    tables: Vec<Option<Table>>,
    tables_max: u32,
    /// The first is worked on.
    pub removals: Vec<Removal>,
}

impl Tables {
    pub fn new(tables_max: u32) -> Self {
        Tables { tables: Vec::new(), tables_max, removals: Vec::new() }
    }

    /// The table, if it may be used in this version.
    #[inline]
    pub fn get(&self, cx: &Context<'_>, table: u32, version: u64) -> Result<&Table, ErrorCode> {
        match self.tables.get(table as usize) {
            Some(Some(found)) if found.has_version(version) && !found.is_gone => Ok(found),
            Some(Some(found)) if is_let_in_by_bug(cx, found, version) => Ok(found),
            _ => Err(ErrorCode::StaleTable),
        }
    }

    /// The table of these rows, for an operation whose version was checked by the primary.
    #[inline]
    pub fn get_forwarded(&self, table: u32, birth: u64) -> Result<&Table, ErrorCode> {
        match self.tables.get(table as usize) {
            Some(Some(found)) if found.birth.0 == birth && !found.is_gone => Ok(found),
            _ => Err(ErrorCode::StaleTable),
        }
    }

    /// The table of a version without a context, for prefetching.
    #[inline]
    pub fn peek(&self, table: u32, version: u64) -> Option<&Table> {
        self.tables.get(table as usize)?.as_ref().filter(|t| t.has_version(version))
    }

    /// A table that may have been removed meanwhile.
    pub fn present(&self, table: u32) -> Option<&Table> {
        self.tables.get(table as usize)?.as_ref().filter(|table| !table.is_gone)
    }

    /// A table that an operation names, so it is there.
    #[inline]
    pub fn current(&self, table: u32) -> &Table {
        self.tables[table as usize].as_ref().expect("an operation's table is there")
    }

    /// The name of a table, whichever version it has; `None` if there is none.
    pub fn name_of(&self, table: u32) -> Option<&str> {
        Some(&self.tables.get(table as usize)?.as_ref()?.name)
    }

    /// A table that an operation names, to change it.
    #[inline]
    pub fn current_mut(&mut self, table: u32) -> &mut Table {
        self.tables[table as usize].as_mut().expect("an operation's table is there")
    }

    /// All tables, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Table> {
        self.tables.iter_mut().flatten()
    }

    /// A table, whichever version it has.
    pub fn find(&self, table: u32) -> Option<&Table> {
        self.tables.get(table as usize)?.as_ref()
    }

    /// The same, to change it.
    pub fn find_mut(&mut self, table: u32) -> Option<&mut Table> {
        self.tables.get_mut(table as usize)?.as_mut()
    }

    /// Whether another table of this id can be held.
    pub fn has_room_for(&self, table: u32) -> bool {
        (1..=self.tables_max).contains(&table) && !matches!(self.tables.get(table as usize), Some(Some(_)))
    }

    /// Adds a table for which there is room.
    pub fn add(&mut self, id: u32, table: Table) {
        let at = id as usize;
        if self.tables.len() <= at {
            self.tables.resize_with(at + 1, || None);
        }
        assert!(self.tables[at].replace(table).is_none(), "an id has one table");
    }

    /// Takes a table out.
    pub fn remove(&mut self, table: u32) {
        self.tables[table as usize] = None;
    }

    /// All tables.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Table)> {
        self.tables.iter().enumerate().filter_map(|(i, t)| Some((i as u32, t.as_ref()?)))
    }

    /// All tables that may be used, and the version that they are going to have, if any.
    pub fn usable(&self) -> impl Iterator<Item = (VersionedTable, Option<TableVersion>)> {
        self.iter().filter(|(_, t)| !t.is_gone).map(|(id, t)| {
            let name = VersionedTable { table: id, version: t.version.0 };
            (name, Some(t.next).filter(|next| next.0 != 0))
        })
    }
}

/// Whether a rule that is broken on purpose lets a version in.
#[cold]
fn is_let_in_by_bug(cx: &Context<'_>, table: &Table, version: u64) -> bool {
    !table.is_gone && cx.has_bug(InjectedBug::StaleVersionAccepted)
        || (table.before.0 == version || table.is_gone && table.has_version(version))
            && cx.has_bug(InjectedBug::CompleteKeepsOldVersion)
}
