//! Memory for measurements: a pool on huge pages that have been touched before.

use std::sync::Arc;
use vinga_base::page_pool::{FreePages, PAGE_BYTES, PageNumber, PagePool, PageRegion, PageSupply, Purpose};

/// A pool of `pages` pages.
pub fn pool(pages: u32) -> PagePool {
    PagePool::new(Arc::new(HugeRegion::new(pages)), Box::new(Supply::new(pages)))
}

/// Zeroed memory on huge pages, touched before it is measured.
struct HugeRegion {
    base: *mut u8,
    pages: u32,
}

impl HugeRegion {
    const ALIGNMENT: usize = 2 << 20;

    fn new(pages: u32) -> Self {
        let layout = Self::layout(pages);
        // SAFETY: the layout is not empty.
        let base = unsafe { std::alloc::alloc(layout) };
        assert!(!base.is_null(), "memory for {pages} pages");
        #[cfg(target_os = "linux")]
        {
            const MADV_HUGEPAGE: i32 = 14;
            unsafe extern "C" {
                fn madvise(address: *mut core::ffi::c_void, length: usize, advice: i32) -> i32;
            }
            // SAFETY: the range was just allocated; the advice changes no content.
            unsafe { madvise(base.cast(), layout.size(), MADV_HUGEPAGE) };
        }
        // SAFETY: the length is that of the allocation.
        unsafe { base.write_bytes(1, layout.size()) };
        HugeRegion { base, pages }
    }

    fn layout(pages: u32) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(pages as usize * PAGE_BYTES, Self::ALIGNMENT)
            .expect("a size in range")
    }
}

impl Drop for HugeRegion {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with the same layout.
        unsafe { std::alloc::dealloc(self.base, Self::layout(self.pages)) };
    }
}

// SAFETY: plain memory; the contract of the pools decides which thread may access which page.
unsafe impl Send for HugeRegion {}
// SAFETY: as above.
unsafe impl Sync for HugeRegion {}

// SAFETY: `new` made this many pages of initialised memory that live until `drop`.
unsafe impl PageRegion for HugeRegion {
    fn base(&self) -> *mut u8 {
        self.base
    }

    fn pages(&self) -> u32 {
        self.pages
    }
}

/// All pages for one pool.
struct Supply(std::cell::RefCell<FreePages>);

impl Supply {
    fn new(pages: u32) -> Self {
        Supply(std::cell::RefCell::new(FreePages::new(pages)))
    }
}

impl PageSupply for Supply {
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
