//! The memory that holds the rows: one mapping for `DataMemory`, and which of its pages are free.
//!
//! The mapping is reserved at the start and its pages are touched when they are used, or shortly before (`ahead`): a
//! node with much memory starts as fast as one with little. It asks for huge pages of 2 MiB (a lookup in 4 KiB pages
//! costs a page walk for each cache miss), and can be touched and locked at the start if the configuration says so
//! (`LockPagesInMemory`). The pages beyond `DataMemory`, which only a restart uses, are neither touched nor locked.

mod ahead;

use ahead::Ahead;
use rustix::mm::{
    Advice, MapFlags, MlockAllFlags, ProtFlags, madvise, mlock, mlockall, mmap_anonymous, munmap,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::c_void;
use std::io;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use vinga_base::page_pool::{FreePages, PAGE_BYTES, PageNumber, PageRegion, PageSupply, Purpose};

/// Bytes of a huge page, to which the mapping is aligned.
const HUGE_PAGE_BYTES: usize = 2 * 1024 * 1024;

/// Whether memory is kept from being swapped out: `LockPagesInMemory`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LockPages {
    /// It may be swapped out.
    #[default]
    Never,
    /// Locked when all memory has been taken.
    AfterAllocation,
    /// Locked from the beginning, before memory is taken.
    BeforeAllocation,
}

/// A mapping of pages, aligned to huge pages.
pub struct MappedRegion {
    /// What was mapped, of which the region is the aligned part.
    mapping: *mut c_void,
    mapping_bytes: usize,
    base: *mut u8,
    pages: u32,
}

impl MappedRegion {
    /// Maps `pages` pages, all zero.
    ///
    /// # Errors
    /// The system has no such address range left.
    pub fn new(pages: u32) -> io::Result<Self> {
        let bytes = pages as usize * PAGE_BYTES;
        let mapping_bytes = (bytes + HUGE_PAGE_BYTES).next_multiple_of(HUGE_PAGE_BYTES);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address that the system chooses touches no memory that exists.
        let mapping = unsafe {
            mmap_anonymous(ptr::null_mut(), mapping_bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
        }?;
        let offset = mapping.align_offset(HUGE_PAGE_BYTES);
        let region =
            MappedRegion { mapping, mapping_bytes, base: mapping.cast::<u8>().wrapping_add(offset), pages };
        // If the kernel has no huge pages, small ones are used.
        let _ = region.advise(0, pages, Advice::LinuxHugepage);
        Ok(region)
    }

    /// Has the system back the first `pages` pages by memory.
    ///
    /// # Errors
    /// There is not so much memory.
    pub fn touch(&self, pages: u32) -> io::Result<()> {
        self.touch_range(0, pages)
    }

    /// The same for the pages from `first` on and before `end`.
    fn touch_range(&self, first: u32, end: u32) -> io::Result<()> {
        Ok(self.advise(first, end, Advice::LinuxPopulateWrite)?)
    }

    /// Keeps the first `pages` pages in memory from now on, which also touches them.
    ///
    /// # Errors
    /// What was refused and what would help.
    pub fn lock(&self, pages: u32) -> Result<(), String> {
        raise_to_hard_limit(Resource::Memlock);
        let bytes = self.bytes_of(pages);
        // SAFETY: locking changes neither content nor validity of the mapping.
        unsafe { mlock(self.base.cast(), bytes) }.map_err(|why| lock_refused(why, bytes))
    }

    fn bytes_of(&self, pages: u32) -> usize {
        assert!(pages <= self.pages, "the region has these pages");
        pages as usize * PAGE_BYTES
    }

    fn advise(&self, first: u32, end: u32, advice: Advice) -> rustix::io::Result<()> {
        let (from, to) = (self.bytes_of(first), self.bytes_of(end));
        // SAFETY: both kinds of advice that are given here leave content and validity of the mapping as they are, and
        // the range is within it.
        unsafe { madvise(self.base.add(from).cast(), to - from, advice) }
    }
}

impl Drop for MappedRegion {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and all users of its pages keep the region alive. It can only fail for invalid
        // addresses.
        let _ = unsafe { munmap(self.mapping, self.mapping_bytes) };
    }
}

// SAFETY: the memory is plain bytes; the contract of the pools says who may touch which page.
unsafe impl Send for MappedRegion {}
// SAFETY: as above; the object itself is never changed after `new`.
unsafe impl Sync for MappedRegion {}

// SAFETY: the mapping is zeroed by the system, readable and writable, aligned to 2 MiB, holds `pages` pages behind
// `base` and stays until `drop`.
unsafe impl PageRegion for MappedRegion {
    fn base(&self) -> *mut u8 {
        self.base
    }

    fn pages(&self) -> u32 {
        self.pages
    }
}

/// Keeps all memory of the process, present and future, from being swapped out.
///
/// # Errors
/// What was refused and what would help.
pub fn lock_all() -> Result<(), String> {
    raise_to_hard_limit(Resource::Memlock);
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
        .map_err(|why| lock_refused(why, 0))
}

fn lock_refused(why: rustix::io::Errno, bytes: usize) -> String {
    let limit = match getrlimit(Resource::Memlock).maximum {
        Some(bytes) => format!("{} KiB", bytes / 1024),
        None => "unlimited".to_string(),
    };
    let wanted = match bytes {
        0 => "the memory of the process".to_string(),
        bytes => format!("{} KiB of DataMemory", bytes / 1024),
    };
    format!(
        "locking {wanted} was refused ({why}); the limit RLIMIT_MEMLOCK (ulimit -l) of this process \
         is {limit}. The memory is not locked and may be swapped out"
    )
}

/// Raises a limit of the process to the highest value that the process may set, and returns what it is now.
pub fn raise_to_hard_limit(resource: Resource) -> Option<u64> {
    let limit = getrlimit(resource);
    let _ = setrlimit(resource, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(resource).current
}

/// The free pages of a node, shared by its data managers behind a lock: a page is taken once in some hundred inserts.
#[derive(Clone)]
pub struct SharedPages(Arc<Mutex<Supply>>);

struct Supply {
    pages: FreePages,
    ahead: Option<Ahead>,
}

impl SharedPages {
    /// All `pages` pages are free, and so many beyond them, for restarts.
    pub fn new(pages: u32, beyond: u32) -> Self {
        let pages = FreePages::beyond(pages, beyond);
        SharedPages(Arc::new(Mutex::new(Supply { pages, ahead: None })))
    }

    /// Has a thread touch the pages of `DataMemory` in this region shortly before they are used. If the system has no
    /// thread left, whoever uses them does.
    pub fn touch_ahead(&self, region: &Arc<MappedRegion>) {
        self.with(|supply| match Ahead::start(region.clone(), supply.pages.all()) {
            Ok(ahead) => supply.ahead = Some(ahead),
            Err(why) => log::warn!(target: "memory", "memory is not touched before it is used: {why}"),
        });
    }

    fn with<R>(&self, act: impl FnOnce(&mut Supply) -> R) -> R {
        // A holder that panicked has stopped the node; its unfinished change does not matter to tests that continue.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PageSupply for SharedPages {
    fn take(&self, purpose: Purpose) -> Option<PageNumber> {
        self.with(|Supply { pages, ahead }| {
            let page = pages.take(purpose)?;
            if let Some(ahead) = ahead {
                ahead.note(page.0);
            }
            Some(page)
        })
    }

    fn give_back(&self, page: PageNumber) {
        self.with(|supply| supply.pages.give_back(page));
    }

    fn usage(&self) -> (u32, u32) {
        self.with(|supply| (supply.pages.used(), supply.pages.all()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_base::page_pool::PagePool;

    #[test]
    fn pools_of_two_threads_share_a_region() {
        let region = Arc::new(MappedRegion::new(100).unwrap());
        let supply = SharedPages::new(region.pages(), 0);
        let threads: Vec<_> = (0..2u8)
            .map(|mark| {
                let mut pool = PagePool::new(region.clone(), Box::new(supply.clone()));
                std::thread::spawn(move || {
                    let mut pages = Vec::new();
                    while let Ok(page) = pool.allocate(Purpose::Ordinary) {
                        assert!(pool.bytes(page).iter().all(|&byte| byte == 0), "nobody has had it");
                        pool.bytes_mut(page).fill(mark + 1);
                        pages.push(page);
                    }
                    assert!(pages.iter().all(|&page| pool.bytes(page).iter().all(|&byte| byte == mark + 1)));
                    pages.len()
                })
            })
            .collect();
        let taken: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(taken, 99);
        assert_eq!(supply.usage(), (99, 100));
        assert_eq!(region.base().align_offset(HUGE_PAGE_BYTES), 0);
    }

    /// How many of the region's 4 KiB pages are backed by memory.
    pub(super) fn present(region: &MappedRegion) -> usize {
        let mut present = vec![0u8; region.bytes_of(region.pages) / 4096];
        // SAFETY: the range is mapped, and the vector has a byte for each of its 4096 bytes.
        let result = unsafe {
            libc::mincore(region.base().cast(), region.bytes_of(region.pages), present.as_mut_ptr())
        };
        assert_eq!(result, 0);
        present.iter().filter(|&&page| page & 1 == 1).count()
    }

    #[test]
    fn memory_is_touched_on_demand_or_at_once() {
        let large = MappedRegion::new((2usize << 30).div_ceil(PAGE_BYTES) as u32).unwrap();
        assert_eq!(present(&large), 0);
        let touched = MappedRegion::new(128).unwrap();
        touched.touch(128).unwrap();
        assert_eq!(present(&touched), touched.bytes_of(128) / 4096);
    }

    #[test]
    fn a_refused_lock_says_what_would_help() {
        let text = lock_refused(rustix::io::Errno::NOMEM, 1 << 20);
        assert!(text.contains("1024 KiB of DataMemory") && text.contains("RLIMIT_MEMLOCK"), "{text}");
        assert!(MappedRegion::new(16).unwrap().lock(8).is_ok());
    }
}
