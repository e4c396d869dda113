//! Building an ordered index that a table gets while it has rows, and dropping one that it loses, both in slices.
//!
//! A build goes through the rows of all fragments that this data manager has of the table, primaries and backups alike,
//! and enters their keys in a tree beside each fragment; a finished tree joins its fragment. Rows are entered in the
//! order in which they lie, some at a time, so that what they miss in the caches overlaps. (Sorting all of them first
//! and filling nodes to the brim is faster and makes a smaller tree, but takes memory for all entries twice, and can't
//! be done a little at a time. The tree ends as one that has grown with its rows.)
//!
//! Nobody changes the table meanwhile: coordinators have let go of it. The build begins when the last transaction is
//! complete here, so each row has one version.
//!
//! When memory is refused, all that was built of the index is dropped, and the build is [refused](BuiltIndex).

use crate::DataManager;
use crate::index_keys::{KeyList, Places, RowKeys};
use crate::store::Store;
use crate::versions::Versions;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use vinga_base::order_key::OrderKey;
use vinga_base::page_pool::{PagePool, Purpose};
use vinga_base::schema::IndexDefinition;
use vinga_base::{PartitionId, RowId};
use vinga_fragment::fragment_index::FragmentIndex;
use vinga_fragment::ordered_index::IndexUsage;
use vinga_kernel::Context;
use vinga_wire::ErrorCode;

/// Rows that are entered together.
const BATCH: usize = 16;
/// What a row costs of a slice's units, of which a row of a full scan costs one.
const ROW_UNITS: u32 = 12;
/// Pages of dropped indexes that a slice frees.
const DROP_PAGES: u32 = 256;

/// How a build ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BuiltIndex {
    /// The table.
    pub table: u32,
    /// The index's id.
    pub index: u16,
    /// [`ErrorCode::DataMemoryFull`]: nothing is left of the index.
    pub result: Result<(), ErrorCode>,
}

/// Builds and drops under way.
#[derive(Default)]
pub struct IndexWork {
    builds: VecDeque<Build>,
    built: VecDeque<BuiltIndex>,
    dropped: Vec<FragmentIndex>,
    batch: Batch,
}

struct Build {
    table: u32,
    order: OrderKey,
    /// What its memory is for: the reserved part is for restarts.
    purpose: Purpose,
    /// Whether the last transaction on the table is complete here.
    has_begun: bool,
    /// The fragment that is gone through.
    partition: PartitionId,
    /// Its tree.
    index: FragmentIndex,
    /// The first row that was not looked at.
    position: RowId,
}

#[derive(Default)]
struct Batch {
    keys: KeyList,
    rows: Vec<RowId>,
    /// Where the index's source makes keys.
    key: Vec<u8>,
}

impl IndexWork {
    /// Whether nothing is left to do or to report.
    pub(crate) fn is_empty(&self) -> bool {
        self.builds.is_empty() && self.built.is_empty() && self.dropped.is_empty()
    }

    /// The table is going away: builds of it end, and nobody is notified.
    pub(crate) fn forget_table(&mut self, table: u32) {
        self.built.retain(|built| built.table != table);
        while let Some(at) = self.builds.iter().position(|build| build.table == table) {
            let build = self.builds.remove(at).expect("it was found");
            self.dropped.push(build.index);
        }
    }

    /// The usage of trees that belong to no fragment: they are being built or dropped.
    fn usages(&self) -> impl Iterator<Item = IndexUsage> {
        let building = self.builds.iter().map(|build| &build.index);
        building.chain(&self.dropped).map(|index| index.tree.usage())
    }

    /// Bytes of these trees.
    pub(crate) fn bytes(&self) -> u64 {
        self.usages().map(|tree| tree.bytes + tree.heap_bytes).sum()
    }

    /// Pages of these trees.
    pub(crate) fn pages(&self) -> u32 {
        self.usages().map(|tree| tree.pages).sum()
    }
}

impl DataManager {
    /// Begins to build an index that a table has not had. [`DataManager::take_built_index`] says when it is done.
    ///
    /// # Panics
    /// If there is no such table, the definition does not fit it, or it has an index with this id.
    pub fn begin_index_build(&mut self, table: u32, index: &IndexDefinition) {
        self.begin_build(table, index, Purpose::Ordinary);
    }

    pub(crate) fn begin_build(&mut self, table: u32, index: &IndexDefinition, purpose: Purpose) {
        let found = self.store.tables.current(table);
        let order =
            OrderKey::new(&found.layout, &index.columns).expect("a checked index has columns of its table");
        self.schema.index_work.builds.push_back(Build {
            table,
            index: FragmentIndex::new(index.id, order.clone()),
            order,
            purpose,
            has_begun: false,
            partition: PartitionId(0),
            position: RowId(0),
        });
    }

    /// A build that has ended since the last call; then operations of the table find the index, or nothing is left of
    /// it.
    pub fn take_built_index(&mut self) -> Option<BuiltIndex> {
        self.schema.index_work.built.pop_front()
    }

    /// Takes an index away from a table, a half-built one too; its memory is freed in slices. If the table has no such
    /// index, nothing happens.
    pub fn drop_index(&mut self, table: u32, index: u16) {
        let work = &mut self.schema.index_work;
        if let Some(at) = work.builds.iter().position(|b| b.table == table && b.index.id() == index) {
            let build = work.builds.remove(at).expect("it was found");
            work.dropped.push(build.index);
        }
        for fragment in self.store.tables.current_mut(table).fragments_mut() {
            work.dropped.extend(fragment.take_index(index));
        }
    }

    /// Does some of the work; says whether there is more that could be done at once.
    #[inline(never)]
    pub(crate) fn index_work_slice(&mut self, cx: &mut Context<'_>) -> bool {
        self.drop_slice() | self.build_slice(cx)
    }

    fn drop_slice(&mut self) -> bool {
        let Some(last) = self.schema.index_work.dropped.last_mut() else { return false };
        if last.tree.release_slice(&mut self.store.pages, DROP_PAGES) {
            self.schema.index_work.dropped.pop();
        }
        !self.schema.index_work.dropped.is_empty()
    }

    fn build_slice(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(build) = self.schema.index_work.builds.front_mut() else { return false };
        let (table, index) = (build.table, build.index.id());
        if !build.has_begun {
            if self.versions.rows.iter().any(|(_, row)| row.place.table == table) {
                cx.mark("index build waits for completes");
                return false;
            }
            build.has_begun = true;
        }
        let result = match self.build_some(cx.slice_units()) {
            Ok(false) => return true,
            Ok(true) => {
                self.schema.index_work.builds.pop_front();
                Ok(())
            }
            Err(code) => {
                cx.mark("index build refused");
                self.drop_index(table, index);
                Err(code)
            }
        };
        self.schema.index_work.built.push_back(BuiltIndex { table, index, result });
        !self.schema.index_work.is_empty()
    }

    /// Goes on with the first build; true at its end.
    fn build_some(&mut self, mut units: u32) -> Result<bool, ErrorCode> {
        while units > 0 {
            let IndexWork { builds, batch, .. } = &mut self.schema.index_work;
            let build = builds.front_mut().expect("the caller has checked");
            let table = self.store.tables.current(build.table);
            if usize::from(build.partition.0) >= table.partitions_end() {
                return Ok(true);
            }
            let mut is_whole = true;
            if table.has_fragment(build.partition) {
                is_whole = self.store.build_entries(&self.versions, build, batch)?;
                units = units.saturating_sub(ROW_UNITS * batch.rows.len() as u32 + 1);
            }
            if is_whole {
                build.partition.0 += 1;
                build.position = RowId(0);
            }
        }
        Ok(false)
    }
}

impl<L> Store<L> {
    /// Enters the next rows of a fragment in the index that is built for it. True if they were the last; then the index
    /// belongs to the fragment.
    ///
    /// # Errors
    /// [`ErrorCode::DataMemoryFull`]; some of the rows may be entered.
    fn build_entries(
        &mut self,
        versions: &Versions,
        build: &mut Build,
        batch: &mut Batch,
    ) -> Result<bool, ErrorCode> {
        let Store { pages, chunks, tables, .. } = self;
        let fragment = tables.current_mut(build.table).fragment_mut(build.partition);
        let places = Places { chunks, layout: fragment.layout(), rows: fragment.rows(), versions };
        let is_whole = build.gather(&places, pages, batch);
        build.enter(&places, pages, batch)?;
        if is_whole {
            let empty = FragmentIndex::new(build.index.id(), build.order.clone());
            fragment.add_index(core::mem::replace(&mut build.index, empty));
        }
        Ok(is_whole)
    }
}

impl Build {
    /// Gathers the keys of the next rows; true if there are no more behind them.
    fn gather(&mut self, places: &Places<'_>, pool: &PagePool, batch: &mut Batch) -> bool {
        batch.keys.clear();
        batch.rows.clear();
        while let Some(row) = places.next_row(pool, self.position) {
            if batch.rows.len() == BATCH {
                self.position = row;
                return false;
            }
            batch.keys.push(|out| places.write_slot(pool, &self.order, row, out));
            batch.rows.push(row);
            self.position = RowId(row.0 + 1);
        }
        true
    }

    fn enter(
        &mut self,
        places: &Places<'_>,
        pool: &mut PagePool,
        batch: &mut Batch,
    ) -> Result<(), ErrorCode> {
        let tree = &mut self.index.tree;
        let Batch { keys, rows, key } = batch;
        let mut approaches = [None; BATCH];
        for (at, approach) in approaches.iter_mut().enumerate().take(rows.len()) {
            *approach = Some(tree.approach(pool, keys.key(at)));
        }
        for (at, approach) in approaches.into_iter().flatten().enumerate() {
            tree.prefetch_leaf(pool, keys.key(at), approach);
        }
        for (at, &row) in rows.iter().enumerate() {
            let mut source = RowKeys::new(*places, &self.order, key);
            tree.insert(pool, self.purpose, &mut source, keys.key(at), row)
                .map_err(|_| ErrorCode::DataMemoryFull)?;
        }
        Ok(())
    }
}
