//! What the tests of this folder share: tables, a pool that refuses at will, a plain index.

#![allow(dead_code, reason = "each test uses a part")]

use std::sync::{Arc, Mutex};
use vinga_base::hash::KeyHash;
use vinga_base::page_pool::{
    FreePages, HeapRegion, OutOfPages, PAGE_BYTES, PageNumber, PagePool, PageSupply, Purpose,
};
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::{ColumnDefinition, ColumnType, TableDefinition};
use vinga_base::{ColumnId, RowId};
use vinga_fragment::row_index::RowIndex;

/// A checked layout with these columns (type, nullable) and this key.
pub fn layout(columns: &[(ColumnType, bool)], key: &[u16]) -> RowLayout {
    let definition = TableDefinition {
        name: "d.t".into(),
        columns: columns
            .iter()
            .enumerate()
            .map(|(i, &(column_type, nullable))| ColumnDefinition {
                name: format!("c{i}"),
                column_type,
                nullable,
            })
            .collect(),
        primary_key: key.iter().map(|&k| ColumnId(k)).collect(),
        no_logging: false,
        read_backup: false,
    };
    definition.check().unwrap();
    RowLayout::new(&definition)
}

/// How many more pages a pool may have.
#[derive(Clone)]
pub struct Fuse(Arc<Mutex<(FreePages, u32)>>);

impl Fuse {
    /// A pool of `pages` pages with its fuse.
    pub fn pool(pages: u32) -> (PagePool, Fuse) {
        let fuse = Fuse(Arc::new(Mutex::new((FreePages::new(pages), u32::MAX))));
        (PagePool::new(Arc::new(HeapRegion::new(pages)), Box::new(fuse.clone())), fuse)
    }

    /// Refuses after so many pages.
    pub fn set(&self, pages: u32) {
        self.0.lock().unwrap().1 = pages;
    }
}

impl PageSupply for Fuse {
    fn take(&self, purpose: Purpose) -> Option<PageNumber> {
        let (pages, left) = &mut *self.0.lock().unwrap();
        *left = left.checked_sub(1)?;
        pages.take(purpose)
    }

    fn give_back(&self, page: PageNumber) {
        self.0.lock().unwrap().0.give_back(page);
    }

    fn usage(&self) -> (u32, u32) {
        let pages = &self.0.lock().unwrap().0;
        (pages.used(), pages.all())
    }
}

/// An index by linear probing that keeps half of the hash beside the row id. It lies on the heap, but takes a page for
/// a certain number of entries, so that inserting can fail here too.
pub struct PlainIndex {
    /// `hash >> 32 << 32 | row`, or `FREE`.
    places: Vec<u64>,
    entries: usize,
    entries_per_page: usize,
    pages: Vec<PageNumber>,
}

const FREE: u64 = u64::MAX;

impl PlainIndex {
    /// An empty index.
    pub fn new(entries_per_page: usize) -> Self {
        PlainIndex { places: vec![FREE; 16], entries: 0, entries_per_page, pages: Vec::new() }
    }

    /// With as many entries a page as honest lines of 12 would have.
    pub fn with_full_pages() -> Self {
        Self::new(PAGE_BYTES / 64 * 8)
    }

    fn home(&self, entry: u64) -> usize {
        (entry >> 32) as usize & (self.places.len() - 1)
    }

    fn next(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }

    fn add(&mut self, entry: u64) {
        let mut place = self.home(entry);
        while self.places[place] != FREE {
            place = self.next(place);
        }
        self.places[place] = entry;
    }
}

impl RowIndex for PlainIndex {
    fn prefetch(&self, _pool: &PagePool, hash: KeyHash) {
        let address = &raw const self.places[self.home(hash.0)];
        #[cfg(target_arch = "x86_64")]
        // SAFETY: prefetching does not fault.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }

    fn candidates<'a>(&'a self, _pool: &'a PagePool, hash: KeyHash) -> impl Iterator<Item = RowId> + 'a {
        let mut place = self.home(hash.0);
        core::iter::from_fn(move || {
            loop {
                let entry = self.places[place];
                if entry == FREE {
                    return None;
                }
                place = self.next(place);
                if entry >> 32 == hash.0 >> 32 {
                    return Some(RowId(entry as u32));
                }
            }
        })
    }

    fn insert(
        &mut self,
        pool: &mut PagePool,
        purpose: Purpose,
        hash: KeyHash,
        row: RowId,
        mut rehash: impl FnMut(&PagePool, RowId) -> KeyHash,
    ) -> Result<(), OutOfPages> {
        if self.entries == self.pages.len() * self.entries_per_page {
            self.pages.push(pool.allocate(purpose)?);
        }
        debug_assert_eq!(rehash(pool, row), hash);
        if (self.entries + 1) * 2 > self.places.len() {
            let places = vec![FREE; self.places.len() * 2];
            let old = std::mem::replace(&mut self.places, places);
            old.into_iter().filter(|&entry| entry != FREE).for_each(|entry| self.add(entry));
        }
        self.add(hash.0 >> 32 << 32 | u64::from(row.0));
        self.entries += 1;
        Ok(())
    }

    fn remove(
        &mut self,
        pool: &mut PagePool,
        hash: KeyHash,
        row: RowId,
        mut rehash: impl FnMut(&PagePool, RowId) -> KeyHash,
    ) {
        debug_assert_eq!(rehash(pool, row), hash);
        let entry = hash.0 >> 32 << 32 | u64::from(row.0);
        let mut hole = self.home(entry);
        while self.places[hole] != entry {
            assert!(self.places[hole] != FREE, "the entry exists");
            hole = self.next(hole);
        }
        // Entries behind the hole move up if they may stand there.
        let mask = self.places.len() - 1;
        let mut place = self.next(hole);
        while self.places[place] != FREE {
            let home = self.home(self.places[place]);
            if place.wrapping_sub(home) & mask >= place.wrapping_sub(hole) & mask {
                self.places[hole] = self.places[place];
                hole = place;
            }
            place = self.next(place);
        }
        self.places[hole] = FREE;
        self.entries -= 1;
        while self.pages.len() > self.entries.div_ceil(self.entries_per_page) {
            pool.free(self.pages.pop().expect("the loop's condition"));
        }
    }

    fn len(&self) -> u64 {
        self.entries as u64
    }

    fn clear(&mut self, pool: &mut PagePool) {
        self.places = vec![FREE; 16];
        self.entries = 0;
        self.pages.drain(..).for_each(|page| pool.free(page));
    }
}
