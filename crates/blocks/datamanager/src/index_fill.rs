//! Filling the tree of one fragment's new ordered index from the rows, some at a time.
//!
//! Entries are gathered in the order in which rows lie, sorted, and put into nodes from the first to the last
//! (`vinga_fragment::ordered_index::EntrySorter` and `TreeBuilder`). Entering one row after the other would read a
//! leaf, and rows if keys begin with the same bytes, for each of them, wherever it lies in the tree.
//!
//! - All of it can be interrupted after each few hundred rows: so no slice takes longer than it should, however many
//!   rows there are.
//! - **Nodes are filled to nine tenths.** Full ones would all be split by the first keys that are inserted; a tree that
//!   has grown has nodes that are seven tenths full, or half full, depending on the order of the keys. Only if keys
//!   ascend with the rows, or most of them do, nodes are filled to the brim: inserts in that order do so, too, and
//!   those that follow will come behind them. So the tree takes no more pages than one in which rows are entered in
//!   their order.
//! - **Memory** for the entries comes from the heap, 16 bytes a row of one fragment: at most a quarter
//!   ([`PAGES_SHARE`]) of the pages that this data manager has in use. If a fragment needs more (its rows are tiny, and
//!   hardly anything else is here), or none is left, its rows are entered one after the other, a [batch](BATCH) at a
//!   time so that what they miss in the caches overlaps.

use crate::index_keys::{KeyList, Places, RowKeys};
use alloc::vec::Vec;
use vinga_base::RowId;
use vinga_base::order_key::OrderKey;
use vinga_base::page_pool::{OutOfPages, PAGE_BYTES, PagePool, Purpose};
use vinga_fragment::ordered_index::{EntrySorter, OrderedIndex, TreeBuilder};

/// How full nodes become, in percent.
const FILL: usize = 90;
/// Entries may take this part of the pages in use.
const PAGES_SHARE: u64 = 4;
/// Rows that are entered together.
const BATCH: usize = 16;

/// What steps cost of a slice's units, of which a row of a full scan costs one: gathering a row,
const GATHER_UNITS: u32 = 2;
/// adding an entry to the tree,
const ADD_UNITS: u32 = 2;
/// entering a row.
const ENTER_UNITS: u32 = 12;

/// Buffers, used again and again.
#[derive(Default)]
pub struct FillScratch {
    keys: KeyList,
    rows: Vec<RowId>,
    /// Where keys are made.
    key: Vec<u8>,
    /// Where the index's source makes keys.
    read: Vec<u8>,
}

/// How far a tree is.
pub struct Filling {
    /// The first row that was not looked at.
    position: RowId,
    stage: Stage,
}

enum Stage {
    /// Nothing was done.
    New,
    /// Entries are gathered.
    Gather(EntrySorter),
    /// Entries are sorted and put into nodes.
    Build(EntrySorter, TreeBuilder),
    /// Rows are entered one after the other.
    Enter,
}

/// What is filled, and from what.
pub struct Fill<'a> {
    /// The rows.
    pub places: Places<'a>,
    /// How keys are made.
    pub order: &'a OrderKey,
    /// The tree.
    pub tree: &'a mut OrderedIndex,
    /// What its memory is for.
    pub purpose: Purpose,
    /// Buffers.
    pub scratch: &'a mut FillScratch,
}

impl Default for Filling {
    fn default() -> Self {
        Filling { position: RowId(0), stage: Stage::New }
    }
}

impl Filling {
    /// Goes on for so many units; true when all rows have their entries.
    ///
    /// # Errors
    /// [`OutOfPages`] when the tree can't have what it needs; it may have some of the entries.
    pub fn go_on(
        &mut self,
        fill: &mut Fill<'_>,
        pool: &mut PagePool,
        freed: &mut Vec<EntrySorter>,
        units: &mut u32,
    ) -> Result<bool, OutOfPages> {
        while *units > 0 {
            self.stage = match core::mem::replace(&mut self.stage, Stage::Enter) {
                Stage::New => fill.choose(pool),
                Stage::Gather(mut sorter) => {
                    if self.gather(fill, pool, &mut sorter, units) {
                        sorter.begin();
                        let percent = if sorter.is_ascending() { 100 } else { FILL };
                        Stage::Build(sorter, TreeBuilder::new(fill.tree, percent))
                    } else {
                        Stage::Gather(sorter)
                    }
                }
                Stage::Build(mut sorter, mut builder) => {
                    let built = fill.build(pool, &mut sorter, &mut builder, units);
                    if built == Ok(false) {
                        Stage::Build(sorter, builder)
                    } else {
                        freed.push(sorter);
                        built?;
                        fill.finish(pool, builder);
                        return Ok(true);
                    }
                }
                Stage::Enter => {
                    let is_whole = self.enter(fill, pool, units)?;
                    if is_whole {
                        return Ok(true);
                    }
                    Stage::Enter
                }
            };
        }
        Ok(false)
    }

    /// The heap memory in use.
    pub fn heap_bytes(&self) -> u64 {
        match &self.stage {
            Stage::Gather(sorter) | Stage::Build(sorter, _) => sorter.heap_bytes(),
            Stage::New | Stage::Enter => 0,
        }
    }

    /// What has memory that is to be freed when it is given up.
    pub fn into_sorter(self) -> Option<EntrySorter> {
        match self.stage {
            Stage::Gather(sorter) | Stage::Build(sorter, _) => Some(sorter),
            Stage::New | Stage::Enter => None,
        }
    }

    /// Gathers entries; true if those of the last rows are among them.
    fn gather(
        &mut self,
        fill: &mut Fill<'_>,
        pool: &PagePool,
        sorter: &mut EntrySorter,
        units: &mut u32,
    ) -> bool {
        while *units > 0 {
            let Some(row) = fill.places.next_row(pool, self.position) else { return true };
            let key = &mut fill.scratch.key;
            key.clear();
            fill.places.write_slot(pool, fill.order, row, key);
            sorter.add(key, row);
            self.position = RowId(row.0 + 1);
            spend(units, GATHER_UNITS);
        }
        false
    }

    /// Enters the next rows; true if they were the last.
    fn enter(
        &mut self,
        fill: &mut Fill<'_>,
        pool: &mut PagePool,
        units: &mut u32,
    ) -> Result<bool, OutOfPages> {
        let FillScratch { keys, rows, .. } = &mut *fill.scratch;
        keys.clear();
        rows.clear();
        let mut next = fill.places.next_row(pool, self.position);
        while let Some(row) = next
            && rows.len() < BATCH
        {
            keys.push(|out| fill.places.write_slot(pool, fill.order, row, out));
            rows.push(row);
            self.position = RowId(row.0 + 1);
            next = fill.places.next_row(pool, self.position);
        }
        spend(units, ENTER_UNITS * rows.len() as u32 + 1);
        fill.enter_batch(pool)?;
        Ok(next.is_none())
    }
}

impl Fill<'_> {
    fn choose(&self, pool: &PagePool) -> Stage {
        let rows = self.places.rows.usage().rows;
        let limit = u64::from(pool.owned()) * PAGE_BYTES as u64 / PAGES_SHARE;
        if EntrySorter::bytes_for(rows) > limit {
            return Stage::Enter;
        }
        EntrySorter::new(rows as usize).map_or(Stage::Enter, Stage::Gather)
    }

    /// Puts the next entries into nodes; true if they were the last.
    fn build(
        &mut self,
        pool: &mut PagePool,
        sorter: &mut EntrySorter,
        builder: &mut TreeBuilder,
        units: &mut u32,
    ) -> Result<bool, OutOfPages> {
        let mut source = RowKeys::new(self.places, self.order, &mut self.scratch.read);
        source.needs_variable = true;
        loop {
            while *units > 0
                && let Some(entry) = sorter.take(pool, &source)
            {
                builder.add(self.tree, pool, self.purpose, &mut source, entry)?;
                spend(units, ADD_UNITS);
            }
            if *units == 0 {
                return Ok(false);
            }
            if !sorter.sort_some(pool, &mut source, units) {
                return Ok(true);
            }
        }
    }

    fn finish(&mut self, pool: &mut PagePool, builder: TreeBuilder) {
        let mut source = RowKeys::new(self.places, self.order, &mut self.scratch.read);
        builder.finish(self.tree, pool, &mut source);
    }

    fn enter_batch(&mut self, pool: &mut PagePool) -> Result<(), OutOfPages> {
        let FillScratch { keys, rows, read, .. } = &mut *self.scratch;
        let mut approaches = [None; BATCH];
        for (at, approach) in approaches.iter_mut().enumerate().take(rows.len()) {
            *approach = Some(self.tree.approach(pool, keys.key(at)));
        }
        for (at, approach) in approaches.into_iter().flatten().enumerate() {
            self.tree.prefetch_leaf(pool, keys.key(at), approach);
        }
        let mut source = RowKeys::new(self.places, self.order, read);
        for (at, &row) in rows.iter().enumerate() {
            self.tree.insert(pool, self.purpose, &mut source, keys.key(at), row)?;
        }
        Ok(())
    }
}

fn spend(units: &mut u32, cost: u32) {
    *units = units.saturating_sub(cost);
}
