//! The fixed parts of one fragment's rows, in pages of equal slots.
//!
//! ## Row ids
//! A [`RowId`] is the index of the page in the fragment (21 bits) and the slot (11 bits). The same row has the same id
//! on all replicas: one chooses a slot ([`RowStore::allocate`]), the others follow ([`RowStore::allocate_at`]). The
//! lowest free slot of some page with room is chosen, in constant time. A page without rows is returned to the pool at
//! once; its index is used again for another page before new ones are used.
//!
//! ## Live slots
//! A bitmap of each page, which is stored with the page's number outside the page (one bit per slot), holds which slots
//! contain a row: a scan gets the bitmap for free, choosing a slot accesses no row, and a new page need not be
//! initialised. There is no live bit in the row header, so the two can't disagree. The bytes of a free slot are
//! arbitrary.
//!
//! Access to a row that does not exist is a broken invariant. It is detected by an assertion where that is cheap (a
//! page that is absent; in checked builds, a slot that is free), and never reaches another table's memory. For row ids
//! that were received there are [`RowStore::get`] and the errors of [`RowStore::allocate_at`].

use crate::page_table::{PageList, PageTable};
use crate::page_view::PageView;
use crate::row::{Row, RowHeader, RowMut, Shape};
use alloc::vec::Vec;
use vinga_base::RowId;
use vinga_base::page_pool::{OutOfPages, PagePool, Purpose};
use vinga_base::prefetch::prefetch;

/// Pages of a fragment, at most.
const PAGES_MAX: u32 = 1 << (32 - RowId::SLOT_BITS);

/// The place of a page's bit.
#[inline]
fn page_bit(page: u32) -> (usize, u64) {
    (page as usize / 64, 1 << (page % 64))
}

/// Why a certain slot can't be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlaceError {
    /// It needs a page and none is free.
    OutOfPages,
    /// It already holds a row.
    Taken,
    /// No page of this fragment has such a slot.
    NoSuchSlot,
}

impl From<OutOfPages> for PlaceError {
    fn from(_: OutOfPages) -> Self {
        PlaceError::OutOfPages
    }
}

/// What the memory of a row store is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RowUsage {
    /// Pages of the pool.
    pub pages: u32,
    /// Rows.
    pub rows: u64,
    /// Bytes of the slots that they take.
    pub bytes_used: u64,
    /// Bytes of bookkeeping outside the pool.
    pub heap_bytes: u64,
}

#[derive(Clone, Copy, Default)]
struct PageState {
    used: u16,
    /// Words of the bitmap before this one have no free slot.
    full_words: u16,
}

/// The slots of one fragment's rows, in pages of the pool.
pub struct RowStore {
    pages: PageTable<PageState>,
    shape: Shape,
    /// The bitmaps of live slots, page by page; those of vacant pages are zeros.
    live: Vec<u64>,
    /// Pages that have a free slot.
    with_room: PageList,
    rows: u64,
    /// By page: how many of its rows are named ([`RowStore::note_named`]).
    named: Vec<u16>,
    /// One bit for each page: whether a committed row of it has changed ([`RowStore::note_changed`]).
    changed: Vec<u64>,
}

impl RowStore {
    /// A store without pages, for rows with a fixed part of `fixed_bytes` bytes.
    pub fn new(fixed_bytes: usize, has_variable: bool) -> Self {
        RowStore {
            pages: PageTable::new(PAGES_MAX),
            shape: Shape::new(fixed_bytes, has_variable),
            live: Vec::new(),
            with_room: PageList::EMPTY,
            rows: 0,
            named: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// Operations begin to name a row: from now on it may have more than one version, or none that is committed.
    #[inline]
    pub fn note_named(&mut self, row: RowId) {
        let page = row.page() as usize;
        if self.named.len() <= page {
            self.named.resize(page + 1, 0);
        }
        self.named[page] += 1;
    }

    /// No operation names the row any more, whether the row still exists or not.
    #[inline]
    pub fn note_unnamed(&mut self, row: RowId) {
        self.named[row.page() as usize] -= 1;
    }

    /// Whether any row is named.
    pub fn has_named(&self) -> bool {
        self.named.iter().any(|&count| count != 0)
    }

    /// Whether any row of the same page is named. If not, this row has one version, which is committed.
    #[inline]
    pub fn is_named_near(&self, row: RowId) -> bool {
        self.named.get(row.page() as usize).is_some_and(|&count| count != 0)
    }

    /// Notes that what is committed of a row has changed, so that the next checkpoint must contain its page.
    #[inline]
    pub fn note_changed(&mut self, row: RowId) {
        let (word, bit) = page_bit(row.page());
        if self.changed.len() <= word {
            self.changed.resize(word + 1, 0);
        }
        self.changed[word] |= bit;
    }

    /// Returns whether what is committed of a page's rows has changed since the last call for that page.
    pub fn take_changed(&mut self, page: u32) -> bool {
        let (word, bit) = page_bit(page);
        match self.changed.get_mut(word) {
            Some(bits) => core::mem::replace(bits, *bits & !bit) & bit != 0,
            None => false,
        }
    }

    /// Number of pages that have changed.
    pub fn changed_pages(&self) -> u64 {
        self.changed.iter().map(|bits| u64::from(bits.count_ones())).sum()
    }

    /// Upper bound of the indices of pages that exist or have changed; a page that has changed may be gone since.
    pub fn pages_end(&self) -> u32 {
        let last = self.changed.iter().rposition(|&bits| bits != 0);
        let changed = last.map_or(0, |word| (word as u32 + 1) * 64 - self.changed[word].leading_zeros());
        changed.max(self.page_count())
    }

    /// Takes a free slot for a new row. Its fixed part is arbitrary, it has no variable part.
    ///
    /// # Errors
    /// [`OutOfPages`] when a page is needed and there is none.
    #[inline]
    pub fn allocate(
        &mut self,
        pool: &mut PagePool,
        purpose: Purpose,
        header: RowHeader,
    ) -> Result<RowId, OutOfPages> {
        let page = match self.with_room.first() {
            Some(page) => page,
            None => self.add_page(pool, purpose, None)?,
        };
        let words = self.shape.words();
        let begin = page as usize * words;
        let full_words = usize::from(self.pages.state(page).full_words);
        let (word, bits) = self.live[begin..begin + words]
            .iter()
            .enumerate()
            .skip(full_words)
            .find(|&(_, &bits)| bits != u64::MAX)
            .expect("a page in the list has a free slot");
        let slot = word as u32 * 64 + bits.trailing_ones();
        self.pages.state_mut(page).full_words = word as u16;
        let row = RowId::new(page, slot);
        self.occupy(pool, row, header);
        Ok(row)
    }

    /// Takes a certain slot for a new row. Its fixed part is arbitrary, it has no variable part.
    ///
    /// # Errors
    /// If the slot is taken, does not exist, or needs a page and none is free.
    #[inline]
    pub fn allocate_at(
        &mut self,
        pool: &mut PagePool,
        purpose: Purpose,
        row: RowId,
        header: RowHeader,
    ) -> Result<(), PlaceError> {
        if row.slot() as usize >= self.shape.slots {
            return Err(PlaceError::NoSuchSlot);
        }
        if !self.pages.holds(row.page()) {
            self.add_page(pool, purpose, Some(row.page()))?;
        } else if self.is_live(row) {
            return Err(PlaceError::Taken);
        }
        self.occupy(pool, row, header);
        Ok(())
    }

    /// Frees a row's slot. A variable part must have been freed before, unless it is abandoned on purpose.
    #[inline]
    pub fn free(&mut self, pool: &mut PagePool, row: RowId) {
        let (word, bit) =
            self.live_bit(row).filter(|_| self.pages.holds(row.page())).expect("the row exists");
        assert!(self.live[word] & bit != 0, "a row is freed once");
        self.live[word] &= !bit;
        self.rows -= 1;
        let page = row.page();
        let slots = self.shape.slots;
        let state = self.pages.state_mut(page);
        let had_room = usize::from(state.used) < slots;
        state.used -= 1;
        state.full_words = state.full_words.min((row.slot() / 64) as u16);
        let empty = state.used == 0;
        match (had_room, empty) {
            (true, true) => self.pages.unlink(&mut self.with_room, page),
            (false, false) => self.pages.link(&mut self.with_room, page),
            (true, false) | (false, true) => {}
        }
        if empty {
            self.pages.remove(pool, page);
        }
    }

    /// Frees all rows of an existing page.
    pub fn free_page(&mut self, pool: &mut PagePool, page: u32) {
        let words = self.shape.words();
        let begin = page as usize * words;
        self.live[begin..begin + words].fill(0);
        let used = usize::from(self.pages.state(page).used);
        self.rows -= used as u64;
        if used < self.shape.slots {
            self.pages.unlink(&mut self.with_room, page);
        }
        self.pages.remove(pool, page);
    }

    /// Whether a slot holds a row; the row id may be anything.
    #[inline]
    pub fn is_live(&self, row: RowId) -> bool {
        self.live_bit(row)
            .and_then(|(word, bit)| self.live.get(word).map(|bits| bits & bit != 0))
            .unwrap_or(false)
    }

    /// A row, if the slot holds one; the row id may be anything.
    #[inline]
    pub fn get<'a>(&self, pool: &'a PagePool, row: RowId) -> Option<Row<'a>> {
        self.is_live(row).then(|| self.row(pool, row))
    }

    /// An existing row.
    #[inline]
    pub fn row<'a>(&self, pool: &'a PagePool, row: RowId) -> Row<'a> {
        debug_assert!(self.is_live(row), "{row} holds no row");
        self.shape.row(self.pages.bytes(pool, row.page()), row.slot() as usize)
    }

    /// An existing row, to change it.
    #[inline]
    pub fn row_mut<'a>(&self, pool: &'a mut PagePool, row: RowId) -> RowMut<'a> {
        debug_assert!(self.is_live(row), "{row} holds no row");
        self.shape.row_mut(self.pages.bytes_mut(pool, row.page()), row.slot() as usize)
    }

    /// The fixed part of an existing row.
    #[inline]
    pub fn fixed<'a>(&self, pool: &'a PagePool, row: RowId) -> &'a [u8] {
        self.row(pool, row).fixed()
    }

    /// The fixed part of an existing row, to change it.
    #[inline]
    pub fn fixed_mut<'a>(&self, pool: &'a mut PagePool, row: RowId) -> &'a mut [u8] {
        self.row_mut(pool, row).into_fixed()
    }

    /// Starts to load a row into the caches; the row id may be anything.
    #[inline]
    pub fn prefetch(&self, pool: &PagePool, row: RowId) {
        if let Some(page) = self.pages.address(pool, row.page()) {
            prefetch(page.wrapping_add(row.slot() as usize * self.shape.stride), self.shape.row_bytes);
        }
    }

    /// Starts to load a row's header and the cache line of a byte of its fixed part; the row id may be anything.
    #[inline]
    pub fn prefetch_byte(&self, pool: &PagePool, row: RowId, byte: usize) {
        if let Some(page) = self.pages.address(pool, row.page()) {
            let slot = page.wrapping_add(row.slot() as usize * self.shape.stride);
            prefetch(slot, 1);
            prefetch(slot.wrapping_add(self.shape.fixed_at + byte), 1);
        }
    }

    /// Upper bound of the fragment's page indices; some pages below it may be absent.
    #[inline]
    pub fn page_count(&self) -> u32 {
        self.pages.len()
    }

    /// A page, for code that reads all rows; `None` if the fragment has no such page now.
    #[inline]
    pub fn page<'a>(&'a self, pool: &'a PagePool, index: u32) -> Option<PageView<'a>> {
        self.pages.holds(index).then(|| {
            let begin = index as usize * self.shape.words();
            let live = &self.live[begin..begin + self.shape.words()];
            PageView::new(self.pages.bytes(pool, index), live, self.shape)
        })
    }

    /// Slots of a page.
    pub fn slots(&self) -> usize {
        self.shape.slots
    }

    /// What the memory is used for.
    pub fn usage(&self) -> RowUsage {
        RowUsage {
            pages: self.pages.used(),
            rows: self.rows,
            bytes_used: self.rows * self.shape.stride as u64,
            heap_bytes: (self.pages.heap_bytes() + self.live.capacity() * size_of::<u64>()) as u64,
        }
    }

    /// The place of a slot's live bit; `None` if pages have no such slot. The page may be absent.
    #[inline]
    fn live_bit(&self, row: RowId) -> Option<(usize, u64)> {
        let slot = row.slot() as usize;
        (slot < self.shape.slots)
            .then(|| (row.page() as usize * self.shape.words() + slot / 64, 1 << (slot % 64)))
    }

    /// Makes a free slot of an existing page a row.
    #[inline]
    fn occupy(&mut self, pool: &mut PagePool, row: RowId, header: RowHeader) {
        let (word, bit) = self.live_bit(row).expect("the slot exists");
        self.live[word] |= bit;
        self.rows += 1;
        let slots = self.shape.slots;
        let state = self.pages.state_mut(row.page());
        state.used += 1;
        if usize::from(state.used) == slots {
            self.pages.unlink(&mut self.with_room, row.page());
        }
        let mut slot = self.row_mut(pool, row);
        slot.set_header(header);
        slot.set_variable(None);
    }

    /// Adds a page with a certain index or any, and puts it in the list of those with room.
    #[cold]
    fn add_page(
        &mut self,
        pool: &mut PagePool,
        purpose: Purpose,
        index: Option<u32>,
    ) -> Result<u32, OutOfPages> {
        let index = index.unwrap_or_else(|| self.pages.next_index());
        // The bitmaps grow first: if a later step fails, this leaves only zeros.
        let words = (index as usize + 1) * self.shape.words();
        if words > self.live.len() && index < PAGES_MAX {
            self.live.try_reserve(words - self.live.len()).map_err(|_| OutOfPages)?;
            self.live.resize(words, 0);
        }
        self.pages.add(pool, purpose, index, PageState::default())?;
        self.pages.link(&mut self.with_room, index);
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{OperationRef, RowFlags, SLOTS_MAX};
    use std::collections::BTreeMap;
    use vinga_base::Epoch;
    use vinga_base::page_pool::PAGE_BYTES;

    #[test]
    fn changed_pages_are_known_until_they_are_taken() {
        let mut rows = RowStore::new(8, false);
        assert_eq!((rows.pages_end(), rows.take_changed(5)), (0, false));
        for page in [0, 63, 64, 200] {
            rows.note_changed(RowId::new(page, 3));
        }
        assert_eq!((rows.changed_pages(), rows.pages_end()), (4, 201));
        assert!(rows.take_changed(200) && !rows.take_changed(200) && !rows.take_changed(1));
        assert_eq!((rows.changed_pages(), rows.pages_end()), (3, 65));
        assert!(rows.take_changed(64) && rows.take_changed(63) && rows.take_changed(0));
        assert_eq!((rows.changed_pages(), rows.pages_end()), (0, 0));
    }

    #[test]
    fn a_page_holds_as_many_rows_as_fit() {
        let slots = |fixed_bytes, has_variable| RowStore::new(fixed_bytes, has_variable).slots();
        assert_eq!(slots(108, false), 273);
        assert_eq!(slots(108, true), 264);
        assert_eq!(slots(107, false), 273);
        assert_eq!(slots(0, true), SLOTS_MAX);
        assert_eq!(slots(1, false), SLOTS_MAX);
        assert_eq!(slots(30_000, true), 1);
    }

    #[test]
    fn row_ids_from_outside_are_safe() {
        let mut pool = PagePool::standalone(20);
        let mut store = RowStore::new(108, false);
        let header = RowHeader::default();
        let row = store.allocate(&mut pool, Purpose::Ordinary, header).unwrap();
        for odd in [RowId::new(0, 1), RowId::new(0, 273), RowId::new(1, 0), RowId(u32::MAX)] {
            assert!(!store.is_live(odd) && store.get(&pool, odd).is_none());
            store.prefetch(&pool, odd);
            store.prefetch_byte(&pool, odd, 107);
        }
        let mut at = |row| store.allocate_at(&mut pool, Purpose::Ordinary, row, header);
        assert_eq!(at(row), Err(PlaceError::Taken));
        assert_eq!(at(RowId::new(3, 273)), Err(PlaceError::NoSuchSlot));
        assert_eq!(at(RowId::new(3, 272)), Ok(()));
        assert_eq!(store.page_count(), 4);
        assert!(store.page(&pool, 2).is_none());
    }

    #[test]
    fn the_last_row_ends_inside_its_page() {
        for (fixed_bytes, has_variable) in [(1, false), (2, true), (108, false), (PAGE_BYTES - 16, true)] {
            let mut pool = PagePool::standalone(1);
            let mut store = RowStore::new(fixed_bytes, has_variable);
            let mut rows = Vec::new();
            while let Ok(row) = store.allocate(&mut pool, Purpose::Ordinary, RowHeader::default()) {
                store.fixed_mut(&mut pool, row).fill(rows.len() as u8);
                rows.push(row);
            }
            assert_eq!(rows.len(), store.slots());
            for (i, &row) in rows.iter().enumerate() {
                assert!(store.fixed(&pool, row).iter().all(|&byte| byte == i as u8));
                assert_eq!(store.row(&pool, row).header(), RowHeader::default());
            }
        }
    }

    #[test]
    fn every_freed_slot_is_found_again() {
        let mut pool = PagePool::standalone(1);
        let mut store = RowStore::new(4, false);
        let allocate = |store: &mut RowStore, pool: &mut PagePool| {
            store.allocate(pool, Purpose::Ordinary, RowHeader::default())
        };
        while allocate(&mut store, &mut pool).is_ok() {}
        assert_eq!(store.usage().rows as usize, SLOTS_MAX);
        for round in 1..20 {
            let freed: Vec<RowId> = (0..SLOTS_MAX as u32)
                .map(|i| RowId::new(0, i * 1237 % SLOTS_MAX as u32))
                .filter(|row| (row.slot() * round) % 61 < 2)
                .collect();
            freed.iter().for_each(|&row| store.free(&mut pool, row));
            let mut found: Vec<RowId> =
                (0..freed.len()).map(|_| allocate(&mut store, &mut pool).unwrap()).collect();
            found.sort_unstable();
            let mut expected = freed;
            expected.sort_unstable();
            assert_eq!(found, expected);
            assert_eq!(allocate(&mut store, &mut pool), Err(OutOfPages));
        }
    }

    #[test]
    #[should_panic]
    fn a_slot_behind_the_last_is_not_read() {
        let mut pool = PagePool::standalone(1);
        let mut store = RowStore::new(108, false);
        let row = store.allocate(&mut pool, Purpose::Ordinary, RowHeader::default()).unwrap();
        store.row(&pool, RowId::new(row.page(), 273));
    }

    #[test]
    #[should_panic(expected = "freed once")]
    fn a_row_is_freed_once() {
        let mut pool = PagePool::standalone(1);
        let mut store = RowStore::new(108, false);
        let rows =
            [0, 0].map(|_| store.allocate(&mut pool, Purpose::Ordinary, RowHeader::default()).unwrap());
        store.free(&mut pool, rows[0]);
        store.free(&mut pool, rows[0]);
    }

    proptest::proptest! {
        #[test]
        fn behaves_like_a_map(
            fixed_bytes in proptest::prop_oneof![1usize..40, 100usize..120, 1000usize..9000, 30_000usize..30_001],
            steps in proptest::collection::vec((0u8..8, 0u32..6, 0u32..2048, 0u64..1 << 48), 0..600),
        ) {
            let mut pool = PagePool::standalone(5);
            let mut store = RowStore::new(fixed_bytes, false);
            let mut model: BTreeMap<RowId, RowHeader> = BTreeMap::new();
            for (kind, page, slot, epoch) in steps {
                let flags = RowFlags(epoch as u16);
                let header = RowHeader { epoch: Epoch(epoch), flags, operation: OperationRef(slot % 2) };
                let slot = slot % store.slots() as u32;
                let picked = model.keys().nth(slot as usize % model.len().max(1)).copied();
                match (kind, picked) {
                    (0..3, _) => match store.allocate(&mut pool, Purpose::Ordinary, header) {
                        Ok(row) => assert!(model.insert(row, header).is_none()),
                        Err(OutOfPages) => assert_eq!(pool.owned(), 5),
                    },
                    (3..5, _) => {
                        let row = RowId::new(page, slot);
                        match store.allocate_at(&mut pool, Purpose::Ordinary, row, header) {
                            Ok(()) => assert!(model.insert(row, header).is_none()),
                            Err(PlaceError::Taken) => assert!(model.contains_key(&row)),
                            Err(other) => assert_eq!((other, pool.owned()), (PlaceError::OutOfPages, 5)),
                        }
                    }
                    (5, Some(row)) => {
                        store.free_page(&mut pool, row.page());
                        model.retain(|other, _| other.page() != row.page());
                    }
                    (_, Some(row)) => {
                        store.free(&mut pool, row);
                        model.remove(&row);
                    }
                    (_, None) => {}
                }
                for (&row, &header) in &model {
                    assert_eq!(store.get(&pool, row).map(|row| row.header()), Some(header));
                }
                let mut live = Vec::new();
                for index in 0..store.page_count() {
                    let Some(page) = store.page(&pool, index) else { continue };
                    live.extend(page.live_slots().map(|slot| RowId::new(index, slot as u32)));
                }
                assert!(live.iter().eq(model.keys()));
                assert_eq!(store.usage().rows as usize, model.len());
                assert_eq!(store.usage().pages, pool.owned());
            }
            for &row in model.keys() {
                store.free(&mut pool, row);
            }
            assert_eq!(pool.owned(), 0);
        }
    }
}
