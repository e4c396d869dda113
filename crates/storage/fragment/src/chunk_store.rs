//! Pieces of memory of any size up to a page: the variable parts of rows and the after-images of open operations.
//!
//! A data manager has one chunk store. Its pages are divided into equal slots; all slots of a page are of one *class*.
//! A chunk takes a slot of the smallest class that holds it and two bytes more: the slot begins with the chunk's
//! length, so that reading the length costs no memory access in addition to that of the chunk itself.
//!
//! ```text
//!   slot in use:   byte 0  u16, little-endian: length of the chunk      byte 2  the chunk
//!   free slot:     byte 0  u16, little-endian: 0x8000 | next free slot of this page (0 = none)
//!   never used:    anything; the page's state holds the first such slot
//! ```
//!
//! Classes: slots of 8, 12, … 32 bytes, then eight sizes for each doubling, each widened to the largest multiple of 4
//! of which the same number fits a page. Up to 4 KiB a slot wastes at most a sixth; above that, where a page holds only
//! a few, up to a third, and up to a half above 16 KiB.
//!
//! A chunk is named by a [`ChunkRef`]: 20 bits page index in the store (32 GiB), 12 bits slot, counted from 1 so that 0
//! can mean "none" in a row header. Free slots of a page are linked through the slots, pages of a class that have a
//! free slot are linked with each other, and a page without chunks is returned to the pool at once: allocating and
//! freeing take constant time.

use crate::page_table::{PageList, PageTable};
use core::num::NonZeroU32;
use vinga_base::page_pool::{OutOfPages, PAGE_BYTES, PagePool, Purpose};
use vinga_base::prefetch::prefetch;

/// Bytes of a chunk, at most: more than the largest row.
pub const CHUNK_BYTES_MAX: usize = PAGE_BYTES - LENGTH_BYTES;

/// Bytes of the length in front of each chunk.
const LENGTH_BYTES: usize = 2;
/// Marks a free slot in the place of the length, which is always smaller.
const FREE: u16 = 0x8000;

/// Names a chunk. `Option<ChunkRef>` also takes 4 bytes; as a number `None` is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChunkRef(NonZeroU32);

impl ChunkRef {
    const SLOT_BITS: u32 = 12;
    const PAGES_MAX: u32 = 1 << (32 - Self::SLOT_BITS);

    fn new(page: u32, slot: u16) -> Self {
        let bits = page << Self::SLOT_BITS | u32::from(slot);
        ChunkRef(NonZeroU32::new(bits).expect("slots are counted from 1"))
    }

    #[inline]
    fn page(self) -> u32 {
        self.0.get() >> Self::SLOT_BITS
    }

    #[inline]
    fn slot(self) -> u16 {
        (self.0.get() & ((1 << Self::SLOT_BITS) - 1)) as u16
    }

    /// The number that is stored in a row header; 0 for `None`.
    #[inline]
    pub fn to_bits(chunk: Option<ChunkRef>) -> u32 {
        chunk.map_or(0, |chunk| chunk.0.get())
    }

    /// The inverse of [`ChunkRef::to_bits`].
    #[inline]
    pub fn from_bits(bits: u32) -> Option<ChunkRef> {
        NonZeroU32::new(bits).map(ChunkRef)
    }
}

/// What the memory of a chunk store is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChunkUsage {
    /// Pages of the pool.
    pub pages: u32,
    /// Chunks.
    pub chunks: u64,
    /// Bytes of the slots that they take.
    pub bytes_used: u64,
    /// Bytes that were requested.
    pub bytes_asked: u64,
    /// Bytes of bookkeeping outside the pool.
    pub heap_bytes: u64,
}

#[derive(Clone, Copy, Default)]
struct PageState {
    class: u8,
    /// Bytes of a slot.
    slot_bytes: u16,
    used: u16,
    /// The free slot to be used next, 0 for none.
    free: u16,
    /// Slots from here on have never been used.
    fresh: u16,
}

impl PageState {
    fn slots(&self) -> u16 {
        slots_of(self.slot_bytes)
    }

    fn has_room(&self) -> bool {
        self.used < self.slots()
    }
}

/// The chunks of one data manager.
pub struct ChunkStore {
    pages: PageTable<PageState>,
    /// For each class the pages that have room.
    with_room: [PageList; CLASSES.count],
    usage: ChunkUsage,
}

impl Default for ChunkStore {
    fn default() -> Self {
        Self::new()
    }
}

impl ChunkStore {
    /// A store without pages.
    pub fn new() -> Self {
        ChunkStore {
            pages: PageTable::new(ChunkRef::PAGES_MAX),
            with_room: [PageList::EMPTY; CLASSES.count],
            usage: ChunkUsage::default(),
        }
    }

    /// Allocates a chunk of exactly `length` bytes, up to [`CHUNK_BYTES_MAX`]. Its content is arbitrary.
    ///
    /// # Errors
    /// [`OutOfPages`] when a page is needed and there is none.
    #[inline]
    pub fn allocate(
        &mut self,
        pool: &mut PagePool,
        purpose: Purpose,
        length: usize,
    ) -> Result<ChunkRef, OutOfPages> {
        assert!(length <= CHUNK_BYTES_MAX, "a chunk of {length} bytes does not fit a page");
        let class = class_of(length);
        let page = match self.with_room[class].first() {
            Some(page) => page,
            None => self.add_page(pool, purpose, class)?,
        };
        let bytes = self.pages.bytes_mut(pool, page);
        let state = self.pages.state_mut(page);
        let slot = if state.free == 0 {
            state.fresh += 1;
            state.fresh - 1
        } else {
            let slot = state.free;
            let (length, _) = split_slot(bytes, state.slot_bytes, slot);
            let next = u16::from_le_bytes(*length);
            assert!(next >= FREE, "only free slots are linked");
            state.free = next - FREE;
            slot
        };
        state.used += 1;
        *split_slot(bytes, state.slot_bytes, slot).0 = (length as u16).to_le_bytes();
        self.usage.bytes_used += u64::from(state.slot_bytes);
        if !state.has_room() {
            self.pages.unlink(&mut self.with_room[class], page);
        }
        self.usage.chunks += 1;
        self.usage.bytes_asked += length as u64;
        Ok(ChunkRef::new(page, slot))
    }

    /// Makes a chunk with this content.
    ///
    /// # Errors
    /// [`OutOfPages`] when a page is needed and there is none.
    #[inline]
    pub fn store(
        &mut self,
        pool: &mut PagePool,
        purpose: Purpose,
        content: &[u8],
    ) -> Result<ChunkRef, OutOfPages> {
        let chunk = self.allocate(pool, purpose, content.len())?;
        self.bytes_mut(pool, chunk).copy_from_slice(content);
        Ok(chunk)
    }

    /// The bytes of a chunk.
    #[inline]
    pub fn bytes<'a>(&self, pool: &'a PagePool, chunk: ChunkRef) -> &'a [u8] {
        let slot_bytes = self.pages.state(chunk.page()).slot_bytes;
        let at = offset_of(slot_bytes, chunk.slot());
        let slot = &self.pages.bytes(pool, chunk.page())[at..at + usize::from(slot_bytes)];
        let (length, rest) = slot.split_first_chunk().expect("a slot is longer than a length");
        // The mark of a free slot is larger than any slot, so using a freed chunk panics here.
        &rest[..usize::from(u16::from_le_bytes(*length))]
    }

    /// The bytes of a chunk, to change them.
    #[inline]
    pub fn bytes_mut<'a>(&self, pool: &'a mut PagePool, chunk: ChunkRef) -> &'a mut [u8] {
        let slot_bytes = self.pages.state(chunk.page()).slot_bytes;
        let (length, rest) = split_slot(self.pages.bytes_mut(pool, chunk.page()), slot_bytes, chunk.slot());
        &mut rest[..usize::from(u16::from_le_bytes(*length))]
    }

    /// Starts to load a chunk into the caches.
    #[inline]
    pub fn prefetch(&self, pool: &PagePool, chunk: ChunkRef) {
        if let Some(page) = self.pages.address(pool, chunk.page()) {
            let slot_bytes = self.pages.state(chunk.page()).slot_bytes;
            prefetch(page.wrapping_add(offset_of(slot_bytes, chunk.slot())), usize::from(slot_bytes));
        }
    }

    /// Whether the chunk's slot has room for `length` bytes.
    #[inline]
    pub fn can_hold(&self, chunk: ChunkRef, length: usize) -> bool {
        LENGTH_BYTES + length <= usize::from(self.pages.state(chunk.page()).slot_bytes)
    }

    /// Whether a new chunk of `length` bytes would get a slot of the same size.
    #[inline]
    pub fn fits_tightly(&self, chunk: ChunkRef, length: usize) -> bool {
        length <= CHUNK_BYTES_MAX && class_of(length) == usize::from(self.pages.state(chunk.page()).class)
    }

    /// Changes the length of a chunk to one that it [can hold](Self::can_hold). Bytes that remain are kept, added bytes
    /// are arbitrary.
    pub fn resize(&mut self, pool: &mut PagePool, chunk: ChunkRef, length: usize) {
        assert!(self.can_hold(chunk, length), "{length} bytes do not fit the chunk's slot");
        self.usage.bytes_asked -= self.bytes(pool, chunk).len() as u64;
        self.usage.bytes_asked += length as u64;
        let slot_bytes = self.pages.state(chunk.page()).slot_bytes;
        let page = self.pages.bytes_mut(pool, chunk.page());
        *split_slot(page, slot_bytes, chunk.slot()).0 = (length as u16).to_le_bytes();
    }

    /// Frees a chunk.
    #[inline]
    pub fn free(&mut self, pool: &mut PagePool, chunk: ChunkRef) {
        let page = chunk.page();
        let bytes = self.pages.bytes_mut(pool, page);
        let state = self.pages.state_mut(page);
        let (length, _) = split_slot(bytes, state.slot_bytes, chunk.slot());
        let old_length = u16::from_le_bytes(*length);
        assert!(old_length < FREE, "a chunk is freed once");
        *length = (FREE | state.free).to_le_bytes();
        let had_room = state.has_room();
        state.free = chunk.slot();
        state.used -= 1;
        self.usage.chunks -= 1;
        self.usage.bytes_used -= u64::from(state.slot_bytes);
        self.usage.bytes_asked -= u64::from(old_length);
        let (empty, class) = (state.used == 0, usize::from(state.class));
        match (had_room, empty) {
            (true, true) => self.pages.unlink(&mut self.with_room[class], page),
            (false, false) => self.pages.link(&mut self.with_room[class], page),
            (true, false) | (false, true) => {}
        }
        if empty {
            self.pages.remove(pool, page);
        }
    }

    /// What the memory is used for.
    pub fn usage(&self) -> ChunkUsage {
        ChunkUsage { pages: self.pages.used(), heap_bytes: self.pages.heap_bytes() as u64, ..self.usage }
    }

    #[cold]
    fn add_page(&mut self, pool: &mut PagePool, purpose: Purpose, class: usize) -> Result<u32, OutOfPages> {
        let slot_bytes = CLASSES.slot_bytes[class];
        let state = PageState { class: class as u8, slot_bytes, used: 0, free: 0, fresh: 1 };
        let page = self.pages.next_index();
        self.pages.add(pool, purpose, page, state)?;
        self.pages.link(&mut self.with_room[class], page);
        Ok(page)
    }
}

/// The first byte of a slot.
#[inline]
fn offset_of(slot_bytes: u16, slot: u16) -> usize {
    (usize::from(slot) - 1) * usize::from(slot_bytes)
}

/// Slots of a page, at most as many as a [`ChunkRef`] can name.
fn slots_of(slot_bytes: u16) -> u16 {
    ((PAGE_BYTES / usize::from(slot_bytes)) as u16).min((1 << ChunkRef::SLOT_BITS) - 1)
}

/// A slot's length field and the bytes behind it.
#[inline]
fn split_slot(
    page: &mut [u8; PAGE_BYTES],
    slot_bytes: u16,
    slot: u16,
) -> (&mut [u8; LENGTH_BYTES], &mut [u8]) {
    let at = offset_of(slot_bytes, slot);
    page[at..at + usize::from(slot_bytes)].split_first_chunk_mut().expect("a slot is longer than a length")
}

/// The class for chunks of `length` bytes.
#[inline]
fn class_of(length: usize) -> usize {
    let bytes = length + LENGTH_BYTES;
    let class = usize::from(CLASSES.of_step[step_of(bytes)]);
    // The class below may be just large enough, because it was widened.
    match class.checked_sub(1) {
        Some(below) if usize::from(CLASSES.slot_bytes[below]) >= bytes => below,
        _ => class,
    }
}

/// Number of steps: multiples of 4 from 8 to 32, then eight per doubling up to a page.
const STEPS: usize = 7 + 8 * 10;

/// The smallest step whose slots have `bytes` bytes.
const fn step_of(bytes: usize) -> usize {
    if bytes <= 8 {
        0
    } else if bytes <= 32 {
        bytes.div_ceil(4) - 2
    } else {
        let exponent = (bytes - 1).ilog2() as usize;
        7 + (exponent - 5) * 8 + ((bytes - 1) >> (exponent - 3)) - 8
    }
}

struct Classes {
    count: usize,
    slot_bytes: [u16; STEPS],
    of_step: [u8; STEPS],
}

/// Steps of which the same number fits a page share a class.
const CLASSES: Classes = {
    let mut classes = Classes { count: 0, slot_bytes: [0; STEPS], of_step: [0; STEPS] };
    let mut step = 0;
    while step < STEPS {
        let bytes = if step < 7 { (step + 2) * 4 } else { (9 + (step - 7) % 8) << (2 + (step - 7) / 8) };
        let widened = PAGE_BYTES / (PAGE_BYTES / bytes) / 4 * 4;
        if classes.count == 0 || classes.slot_bytes[classes.count - 1] as usize != widened {
            classes.slot_bytes[classes.count] = widened as u16;
            classes.count += 1;
        }
        classes.of_step[step] = (classes.count - 1) as u8;
        step += 1;
    }
    classes
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn every_length_gets_a_slot_that_is_not_much_larger() {
        assert!(CLASSES.slot_bytes[..CLASSES.count].is_sorted());
        assert_eq!(CLASSES.slot_bytes[CLASSES.count - 1] as usize, PAGE_BYTES);
        for length in 0..=CHUNK_BYTES_MAX {
            let class = class_of(length);
            let slot = usize::from(CLASSES.slot_bytes[class]);
            let needed = length + LENGTH_BYTES;
            assert!(slot >= needed && slot.is_multiple_of(4));
            assert!(class == 0 || usize::from(CLASSES.slot_bytes[class - 1]) < needed, "{length}");
            if (33..4000).contains(&needed) {
                assert!((slot - needed) * 6 <= slot, "{length} bytes take a slot of {slot}");
            }
        }
    }

    #[test]
    fn the_smallest_chunks_fill_a_page() {
        let mut pool = PagePool::standalone(2);
        let mut store = ChunkStore::new();
        let refs: Vec<ChunkRef> =
            (0..4095).map(|_| store.allocate(&mut pool, Purpose::Ordinary, 6).unwrap()).collect();
        assert_eq!(store.usage().pages, 1);
        for (i, &chunk) in refs.iter().enumerate() {
            store.bytes_mut(&mut pool, chunk)[..4].copy_from_slice(&(i as u32).to_le_bytes());
        }
        let next = store.allocate(&mut pool, Purpose::Ordinary, 0).unwrap();
        assert_eq!((store.usage().pages, store.bytes(&pool, next).len()), (2, 0));
        for (i, &chunk) in refs.iter().enumerate() {
            assert_eq!(store.bytes(&pool, chunk)[..4], (i as u32).to_le_bytes());
        }
        assert_eq!(store.allocate(&mut pool, Purpose::Ordinary, 7), Err(OutOfPages));
    }

    #[test]
    #[should_panic(expected = "freed once")]
    fn a_chunk_is_freed_once() {
        let mut pool = PagePool::standalone(1);
        let mut store = ChunkStore::new();
        let chunk = store.store(&mut pool, Purpose::Ordinary, b"one").unwrap();
        store.store(&mut pool, Purpose::Ordinary, b"two").unwrap();
        store.free(&mut pool, chunk);
        store.free(&mut pool, chunk);
    }

    #[test]
    #[should_panic]
    fn a_freed_chunk_is_not_read() {
        let mut pool = PagePool::standalone(1);
        let mut store = ChunkStore::new();
        let chunk = store.store(&mut pool, Purpose::Ordinary, b"one").unwrap();
        store.store(&mut pool, Purpose::Ordinary, b"two").unwrap();
        store.free(&mut pool, chunk);
        store.bytes(&pool, chunk);
    }

    /// Lengths of all sizes, small ones more often.
    fn length() -> impl proptest::strategy::Strategy<Value = usize> {
        proptest::prop_oneof![0usize..40, 0usize..400, 0usize..=CHUNK_BYTES_MAX]
    }

    proptest::proptest! {
        #[test]
        fn behaves_like_a_map(
            pages in 1u32..40,
            operations in proptest::collection::vec((0u8..5, length(), 0usize..1000), 0..600),
        ) {
            let mut pool = PagePool::standalone(pages);
            let mut store = ChunkStore::new();
            let mut model: BTreeMap<ChunkRef, Vec<u8>> = BTreeMap::new();
            for (step, (kind, length, pick)) in operations.into_iter().enumerate() {
                let chosen = model.keys().nth(pick % model.len().max(1)).copied();
                match (kind, chosen) {
                    (0, Some(chunk)) => {
                        store.free(&mut pool, chunk);
                        model.remove(&chunk);
                    }
                    (1, Some(chunk)) => {
                        let content = model.get_mut(&chunk).unwrap();
                        if store.can_hold(chunk, length) {
                            store.resize(&mut pool, chunk, length);
                            let kept = length.min(content.len());
                            let bytes = store.bytes_mut(&mut pool, chunk);
                            assert_eq!(bytes[..kept], content[..kept]);
                            bytes[kept..].fill(step as u8);
                            content.resize(length, step as u8);
                        } else {
                            assert!(!store.fits_tightly(chunk, length));
                        }
                        assert!(store.fits_tightly(chunk, content.len()) || store.can_hold(chunk, content.len()));
                    }
                    _ => {
                        let before = store.usage();
                        let content = vec![step as u8; length];
                        match store.store(&mut pool, Purpose::Ordinary, &content) {
                            Ok(chunk) => assert!(model.insert(chunk, content).is_none()),
                            Err(OutOfPages) => assert_eq!(store.usage().bytes_used, before.bytes_used),
                        }
                    }
                }
                for (&chunk, content) in &model {
                    assert_eq!(store.bytes(&pool, chunk), &content[..]);
                    assert_eq!(ChunkRef::from_bits(ChunkRef::to_bits(Some(chunk))), Some(chunk));
                }
                let usage = store.usage();
                assert_eq!(usage.chunks as usize, model.len());
                assert_eq!(usage.bytes_asked as usize, model.values().map(Vec::len).sum::<usize>());
                assert!(usage.bytes_used >= usage.bytes_asked + 2 * usage.chunks);
                assert!(usage.bytes_used <= u64::from(usage.pages) * PAGE_BYTES as u64);
                assert_eq!(usage.pages, pool.owned());
            }
            for &chunk in model.keys() {
                store.free(&mut pool, chunk);
            }
            assert_eq!(pool.owned(), 0);
            assert_eq!(ChunkUsage { heap_bytes: 0, ..store.usage() }, ChunkUsage::default());
        }
    }
}
