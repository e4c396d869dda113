//! Building an ordered index that a table gets while it has rows, and dropping one that it loses, both in slices.
//!
//! A build goes through the rows of all fragments that this data manager has of the table, primaries and backups alike,
//! and fills a tree beside each fragment; a finished tree joins its fragment. Entries are sorted first, and nodes are
//! filled after (`index_fill.rs`). Indexes that a table gets while it is in use and those of a restart, of which
//! nothing is on disk, are built in the same way.
//!
//! Nobody changes the table meanwhile: coordinators have let go of it, and rows that are copied to this node wait
//! (`copying`). The build begins when the last transaction is complete here, so each row has one version, and stays
//! where it is.
//!
//! When memory is refused, all that was built of the index is dropped, and the build is [refused](BuiltIndex).

use crate::DataManager;
use crate::index_fill::{Fill, FillScratch, Filling};
use crate::index_keys::Places;
use crate::store::Store;
use crate::versions::Versions;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use vinga_base::PartitionId;
use vinga_base::order_key::OrderKey;
use vinga_base::page_pool::Purpose;
use vinga_base::schema::IndexDefinition;
use vinga_fragment::fragment_index::FragmentIndex;
use vinga_fragment::ordered_index::{EntrySorter, IndexUsage};
use vinga_kernel::Context;
use vinga_wire::ErrorCode;

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
    /// What has heap memory that is not needed any more: it is freed in slices, too.
    sorters: Vec<EntrySorter>,
    scratch: FillScratch,
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
    filling: Filling,
}

impl IndexWork {
    /// Whether nothing is left to do or to report.
    pub(crate) fn is_empty(&self) -> bool {
        self.builds.is_empty() && self.built.is_empty() && self.dropped.is_empty() && self.sorters.is_empty()
    }

    /// Whether rows of a table are gone through, or have been, for an index that its fragments do not have yet: none
    /// may come or go.
    pub(crate) fn is_building(&self, table: u32) -> bool {
        self.builds.iter().any(|build| build.table == table && build.has_begun)
    }

    /// Whether the same holds of any table.
    pub(crate) fn goes_through_rows(&self) -> bool {
        self.builds.iter().any(|build| build.has_begun)
    }

    /// The table is going away: builds of it end, and nobody is notified.
    pub(crate) fn forget_table(&mut self, table: u32) {
        self.built.retain(|built| built.table != table);
        while self.give_up(|build| build.table == table) {}
    }

    /// Ends a build, if there is such one, and drops what there is of it.
    fn give_up(&mut self, which: impl Fn(&Build) -> bool) -> bool {
        let Some(at) = self.builds.iter().position(which) else { return false };
        let build = self.builds.remove(at).expect("it was found");
        self.dropped.push(build.index);
        self.sorters.extend(build.filling.into_sorter());
        true
    }

    /// The usage of trees that belong to no fragment: they are being built or dropped.
    fn usages(&self) -> impl Iterator<Item = IndexUsage> {
        let building = self.builds.iter().map(|build| &build.index);
        building.chain(&self.dropped).map(|index| index.tree.usage())
    }

    /// Bytes of these trees, and of what is sorted for them.
    pub(crate) fn bytes(&self) -> u64 {
        let trees: u64 = self.usages().map(|tree| tree.bytes + tree.heap_bytes).sum();
        let sorted: u64 = self.builds.iter().map(|build| build.filling.heap_bytes()).sum();
        let freed: u64 = self.sorters.iter().map(EntrySorter::heap_bytes).sum();
        trees + sorted + freed
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
            filling: Filling::default(),
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
        work.give_up(|build| build.table == table && build.index.id() == index);
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
        let work = &mut self.schema.index_work;
        if let Some(last) = work.sorters.last_mut()
            && last.release_slice()
        {
            work.sorters.pop();
        }
        if let Some(last) = work.dropped.last_mut()
            && last.tree.release_slice(&mut self.store.pages, DROP_PAGES)
        {
            work.dropped.pop();
        }
        !work.dropped.is_empty() || !work.sorters.is_empty()
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
            let IndexWork { builds, scratch, sorters, .. } = &mut self.schema.index_work;
            let build = builds.front_mut().expect("the caller has checked");
            let table = self.store.tables.current(build.table);
            if usize::from(build.partition.0) >= table.partitions_end() {
                return Ok(true);
            }
            if !table.has_fragment(build.partition)
                || self.store.build_some(&self.versions, build, scratch, sorters, &mut units)?
            {
                build.partition.0 += 1;
            }
        }
        Ok(false)
    }
}

impl<L> Store<L> {
    /// Goes on with the index of a fragment. True at its end; then it belongs to the fragment.
    ///
    /// # Errors
    /// [`ErrorCode::DataMemoryFull`]; some of the rows may have entries.
    fn build_some(
        &mut self,
        versions: &Versions,
        build: &mut Build,
        scratch: &mut FillScratch,
        freed: &mut Vec<EntrySorter>,
        units: &mut u32,
    ) -> Result<bool, ErrorCode> {
        let Store { pages, chunks, tables, .. } = self;
        let fragment = tables.current_mut(build.table).fragment_mut(build.partition);
        let mut fill = Fill {
            places: Places { chunks, layout: fragment.layout(), rows: fragment.rows(), versions },
            order: &build.order,
            tree: &mut build.index.tree,
            purpose: build.purpose,
            scratch,
        };
        let is_whole =
            build.filling.go_on(&mut fill, pages, freed, units).map_err(|_| ErrorCode::DataMemoryFull)?;
        if is_whole {
            let empty = FragmentIndex::new(build.index.id(), build.order.clone());
            fragment.add_index(core::mem::replace(&mut build.index, empty));
            build.filling = Filling::default();
        }
        Ok(is_whole)
    }
}
