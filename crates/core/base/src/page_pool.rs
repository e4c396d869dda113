//! Pages of `DataMemory`: 32 KiB each, from one contiguous region per node.
//!
//! Rows, index lines and after-images are stored in pages. A page is named by its number in the region ([`PageNumber`],
//! 32 bits), so that structures inside pages stay small. A [`PageSupply`], which the driver provides, keeps track of
//! the free pages (one supply for all data managers of a node, behind a lock: a page is taken once in some hundred
//! inserts); each data manager holds a [`PagePool`], its own handle to that supply.
//!
//! A page belongs to the pool that allocated it until it is freed, and two pools never hold the same page: so data
//! managers on different threads share the region without sharing any byte of it.
//!
//! The last hundredth of the supply is reserved: [`Purpose::Ordinary`] requests are refused before it is touched, so
//! that a full node can still delete rows, move them and finish work that has begun.
//!
//! **Restarts** may need more than the node needed before, at each step: a checkpoint has rows where they were when its
//! scan passed them, and others where they were later, in memory that the first had left; rows that were deleted since
//! are there until the log has been applied; variable parts and indexes are laid out in another order than the one in
//! which they grew. So a supply may have pages beyond `DataMemory` ([`restart_pages`]), for [`Purpose::Reserved`] only.
//! They cost address space until they are used.

use alloc::alloc::{alloc_zeroed, dealloc, handle_alloc_error};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::cell::RefCell;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 32 * 1024;

/// Memory of one page, aligned so that index lines are cache lines.
#[repr(C, align(4096))]
pub struct Page(pub [u8; PAGE_BYTES]);

/// A page's place in the region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageNumber(pub u32);

/// What a page is for: decides whether it may come from the reserved part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// New rows and all other growth.
    Ordinary,
    /// Work that must continue when memory is full: restarts.
    Reserved,
}

/// No page is free: `DataMemory` is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfPages;

/// Decides which pages of the region are free.
pub trait PageSupply: Send {
    /// Takes a free page; `None` if there is none for this purpose. Its content is arbitrary.
    fn take(&self, purpose: Purpose) -> Option<PageNumber>;
    /// Returns a page.
    fn give_back(&self, page: PageNumber);
    /// Pages in use and pages in total, without those beyond `DataMemory`: more may be in use after a restart.
    fn usage(&self) -> (u32, u32);
}

/// The memory that holds the pages: base address and number of pages. The owner keeps the mapping alive.
///
/// # Safety
/// The implementation promises that `base()` points to `pages() * PAGE_BYTES` bytes, aligned to 4096, that are mapped
/// readable and writable, initialised, at a fixed address, for the lifetime of the object, and that only the owners of
/// pages access them.
pub unsafe trait PageRegion: Send + Sync {
    /// First byte of page 0.
    fn base(&self) -> *mut u8;
    /// Number of pages.
    fn pages(&self) -> u32;
}

/// A region on the ordinary heap, for tests, the simulator and small pools.
pub struct HeapRegion {
    base: *mut Page,
    pages: u32,
    /// What the allocator gave: a page more than asked for, of which `base` is the first aligned one.
    allocation: (*mut u8, Layout),
}

impl HeapRegion {
    /// Allocates `pages` pages of zeroes.
    ///
    /// They are taken from the allocator with an ordinary alignment, and one more than needed: only so does it leave
    /// the zeroing to the operating system, which does it when a page is first used. A simulated cluster makes many
    /// nodes of which each uses few pages.
    pub fn new(pages: u32) -> Self {
        let layout = Layout::array::<Page>(pages as usize + 1).expect("fits into the address space");
        let layout =
            Layout::from_size_align(layout.size(), align_of::<u64>()).expect("as before, aligned to less");
        // SAFETY: the size is that of a page at least.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        let skipped = memory.align_offset(align_of::<Page>());
        assert!(skipped <= PAGE_BYTES, "a page more than needed was allocated");
        // SAFETY: `skipped` bytes and then `pages` pages lie in the allocation.
        let base = unsafe { memory.add(skipped) }.cast::<Page>();
        HeapRegion { base, pages, allocation: (memory, layout) }
    }
}

impl Drop for HeapRegion {
    fn drop(&mut self) {
        let (memory, layout) = self.allocation;
        // SAFETY: exactly these came from the allocator, in `new`.
        unsafe { dealloc(memory, layout) };
    }
}

// SAFETY: the memory is plain bytes; the contract of the pools decides which thread may access which page.
unsafe impl Send for HeapRegion {}
// SAFETY: as above; the object itself is never changed after `new`.
unsafe impl Sync for HeapRegion {}

// SAFETY: `new` made `pages` initialised pages, aligned by their type, that live until `drop`.
unsafe impl PageRegion for HeapRegion {
    fn base(&self) -> *mut u8 {
        self.base.cast()
    }

    fn pages(&self) -> u32 {
        self.pages
    }
}

/// A data manager's handle on the node's pages.
pub struct PagePool {
    base: *mut u8,
    pages: u32,
    owned: u32,
    supply: Box<dyn PageSupply>,
    /// Keeps the memory mapped for as long as the pool lives.
    _region: Arc<dyn PageRegion>,
}

// SAFETY: a pool hands out only pages that its supply gave to it alone, so moving it to another thread moves the
// right to touch them with it.
unsafe impl Send for PagePool {}

impl PagePool {
    /// A pool over `region`, fed by `supply`, which must hand out each page number below `region.pages()` to one
    /// owner at a time.
    pub fn new(region: Arc<dyn PageRegion>, supply: Box<dyn PageSupply>) -> Self {
        PagePool { base: region.base(), pages: region.pages(), owned: 0, supply, _region: region }
    }

    /// A pool with `pages` pages of its own on the heap: for tests, the simulator and tools.
    pub fn standalone(pages: u32) -> Self {
        Self::standalone_beyond(pages, 0)
    }

    /// The same, with pages beyond these for restarts.
    pub fn standalone_beyond(pages: u32, beyond: u32) -> Self {
        let supply = LocalSupply(RefCell::new(FreePages::beyond(pages, beyond)));
        Self::new(Arc::new(HeapRegion::new(pages + beyond)), Box::new(supply))
    }

    /// Takes a page. It still contains the bytes that its last owner left.
    ///
    /// # Errors
    /// [`OutOfPages`] when the supply has none for this purpose.
    pub fn allocate(&mut self, purpose: Purpose) -> Result<PageNumber, OutOfPages> {
        let page = self.supply.take(purpose).ok_or(OutOfPages)?;
        assert!(page.0 < self.pages, "the supply gave a page outside the region");
        self.owned += 1;
        Ok(page)
    }

    /// Returns a page that this pool allocated and that nothing refers to any more.
    pub fn free(&mut self, page: PageNumber) {
        assert!(page.0 < self.pages && self.owned > 0, "only an allocated page can be freed");
        self.owned -= 1;
        self.supply.give_back(page);
    }

    /// First byte of a page. Reading or writing through it is for the page's owner, within [`PAGE_BYTES`].
    #[inline]
    pub fn address(&self, page: PageNumber) -> *mut u8 {
        debug_assert!(page.0 < self.pages);
        // SAFETY: page numbers come from `allocate`, which checked that they lie in the region.
        unsafe { self.base.add(page.0 as usize * PAGE_BYTES) }
    }

    /// A page's bytes. The caller owns the page; the borrow of the pool keeps two views from overlapping.
    #[inline]
    pub fn bytes(&self, page: PageNumber) -> &[u8; PAGE_BYTES] {
        assert!(page.0 < self.pages);
        // SAFETY: the page lies in the region, is initialised, and only its owner, which borrows the pool, accesses it.
        unsafe { &*self.address(page).cast() }
    }

    /// A page's bytes, to change them.
    #[inline]
    pub fn bytes_mut(&mut self, page: PageNumber) -> &mut [u8; PAGE_BYTES] {
        assert!(page.0 < self.pages);
        // SAFETY: as for `bytes`; the exclusive borrow of the pool excludes every other view.
        unsafe { &mut *self.address(page).cast() }
    }

    /// Pages that this pool has allocated and not freed.
    pub fn owned(&self) -> u32 {
        self.owned
    }

    /// Pages in use and pages in total, of the whole supply.
    pub fn usage(&self) -> (u32, u32) {
        self.supply.usage()
    }
}

/// How many pages of `all` are reserved for [`Purpose::Reserved`]: a hundredth, at least one (none if there are fewer
/// than ten pages).
pub fn reserved_pages(all: u32) -> u32 {
    if all < 10 { 0 } else { (all / 100).max(1) }
}

/// How many pages beyond `all` a restart may take: as many again. That is enough if all of the memory was used anew
/// once while a checkpoint was written.
pub fn restart_pages(all: u32) -> u32 {
    all.min(u32::MAX - all)
}

/// The free pages of one region: the logic that a driver's supply wraps in whatever lock it needs. The lowest free page
/// is not preferred; freed pages are used again first, while they are still in the caches.
pub struct FreePages {
    free: Vec<PageNumber>,
    /// Pages from here on have never been used.
    fresh: u32,
    all: u32,
    /// Pages beyond these, for [`Purpose::Reserved`].
    beyond: u32,
}

impl FreePages {
    /// A supply of `all` free pages.
    pub fn new(all: u32) -> Self {
        Self::beyond(all, 0)
    }

    /// The same, with pages beyond these for restarts.
    pub fn beyond(all: u32, beyond: u32) -> Self {
        FreePages { free: Vec::new(), fresh: 0, all, beyond }
    }

    /// See [`PageSupply::take`].
    pub fn take(&mut self, purpose: Purpose) -> Option<PageNumber> {
        let limit = match purpose {
            Purpose::Ordinary => self.all - reserved_pages(self.all),
            Purpose::Reserved => self.all + self.beyond,
        };
        if self.used() >= limit {
            return None;
        }
        self.free.pop().or_else(|| {
            self.fresh += 1;
            Some(PageNumber(self.fresh - 1))
        })
    }

    /// See [`PageSupply::give_back`].
    pub fn give_back(&mut self, page: PageNumber) {
        debug_assert!(page.0 < self.fresh && !self.free.contains(&page));
        self.free.push(page);
    }

    /// Number of pages in use.
    pub fn used(&self) -> u32 {
        self.fresh - self.free.len() as u32
    }

    /// Number of pages in total, without those beyond.
    pub fn all(&self) -> u32 {
        self.all
    }
}

/// A supply for one pool on one thread.
struct LocalSupply(RefCell<FreePages>);

impl PageSupply for LocalSupply {
    fn take(&self, purpose: Purpose) -> Option<PageNumber> {
        self.0.borrow_mut().take(purpose)
    }

    fn give_back(&self, page: PageNumber) {
        self.0.borrow_mut().give_back(page);
    }

    fn usage(&self) -> (u32, u32) {
        let pages = self.0.borrow();
        (pages.used(), pages.all())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hundredth_is_kept_back() {
        let mut pool = PagePool::standalone(200);
        let ordinary = core::iter::from_fn(|| pool.allocate(Purpose::Ordinary).ok()).count();
        assert_eq!(ordinary, 198);
        let one = pool.allocate(Purpose::Reserved).unwrap();
        let other = pool.allocate(Purpose::Reserved).unwrap();
        assert_eq!(pool.allocate(Purpose::Reserved), Err(OutOfPages));
        assert_eq!(pool.usage(), (200, 200));
        pool.bytes_mut(one)[PAGE_BYTES - 1] = 7;
        assert_eq!(pool.bytes(one)[PAGE_BYTES - 1], 7);
        pool.free(other);
        assert_eq!(pool.owned(), 199);
        assert_eq!(pool.allocate(Purpose::Ordinary), Err(OutOfPages));
        assert_eq!(pool.allocate(Purpose::Reserved), Ok(other));
    }

    #[test]
    fn a_restart_may_take_more_and_others_wait_until_it_is_given_back() {
        let mut pool = PagePool::standalone_beyond(20, restart_pages(20));
        let mut pages: Vec<PageNumber> =
            core::iter::from_fn(|| pool.allocate(Purpose::Reserved).ok()).collect();
        assert_eq!((pages.len(), pool.usage()), (40, (40, 20)));
        for page in pages.drain(..21) {
            assert_eq!(pool.allocate(Purpose::Ordinary), Err(OutOfPages));
            pool.free(page);
        }
        assert_eq!(pool.allocate(Purpose::Ordinary), Err(OutOfPages), "19 of 20 are in use");
        pool.free(pages[0]);
        assert!(pool.allocate(Purpose::Ordinary).is_ok());
        assert_eq!(restart_pages(u32::MAX - 5), 5, "pages have numbers of 32 bits");
    }
}
