//! What the measurements need of the machine: memory in large pages, prefetching, CPUs, CPU time.

use std::marker::PhantomData;
use std::mem::{MaybeUninit, size_of};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Types for which all-zero bytes are a valid value and which need no drop.
///
/// # Safety
/// Zero bytes must be a valid value of the type and its alignment must be at most that of a memory page.
pub(crate) unsafe trait Zeroable: Copy {}

// SAFETY: bytes have no invalid values.
unsafe impl<const N: usize> Zeroable for [u8; N] {}

/// A fixed array in its own anonymous memory, all zero at first, in transparent huge pages if the system grants them:
/// the data node asks for the same, because each 4 KiB page costs a page walk a miss.
pub(crate) struct Region<T: Zeroable> {
    start: NonNull<T>,
    length: usize,
    owns: PhantomData<T>,
}

impl<T: Zeroable> Region<T> {
    /// Reserves room for `length` values. Memory is taken from the system on first touch.
    ///
    /// # Panics
    /// When the system refuses the address space: there is nothing left to measure then.
    pub(crate) fn new(length: usize) -> Self {
        assert!(length > 0 && size_of::<T>() > 0, "a region holds something");
        let bytes = length * size_of::<T>();
        // SAFETY: a fresh private anonymous mapping aliases nothing; the result is checked below.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert!(start != libc::MAP_FAILED, "no address space for {bytes} bytes");
        // SAFETY: advice on the mapping just made; a refusal changes speed only.
        unsafe { libc::madvise(start, bytes, libc::MADV_HUGEPAGE) };
        let start = NonNull::new(start.cast()).expect("mmap does not map address zero");
        Self { start, length, owns: PhantomData }
    }

    /// Touches all memory, so that later measurements have no page faults.
    pub(crate) fn touch(&mut self) {
        // SAFETY: the range is the whole mapping, exclusively borrowed, and zero bytes are valid values.
        unsafe { self.start.as_ptr().write_bytes(0, self.length) };
    }
}

impl<T: Zeroable> Deref for Region<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping holds `length` values, zero at first and valid by the trait's contract.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T: Zeroable> DerefMut for Region<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`; the exclusive borrow of `self` covers the mapping.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl<T: Zeroable> Drop for Region<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length and no borrow outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length * size_of::<T>()) };
    }
}

/// Prefetches the cache line of `target`. Never faults; a hint only.
#[inline(always)]
pub(crate) fn prefetch<T: ?Sized>(target: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching has no effect on memory and no requirement on the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(target).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = target;
}

/// The CPUs on which this thread may run, ascending.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the kernel writes at most the given size into the set; zero is a valid set.
    let (result, set) = unsafe {
        let result = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr());
        (result, set.assume_init())
    };
    assert_eq!(result, 0, "a thread can always read its own affinity");
    let possible = 8 * size_of::<libc::cpu_set_t>();
    // SAFETY: `CPU_ISSET` reads one bit, and `cpu` is below the number of bits.
    (0..possible).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// Binds the calling thread to `cpus`. Failure is ignored: the figures then only spread more.
pub(crate) fn bind_to(cpus: &[usize]) {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the zeroed set is valid, each cpu comes from `allowed_cpus` and so lies within it.
    unsafe {
        for &cpu in cpus {
            libc::CPU_SET(cpu, set.assume_init_mut());
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set.as_ptr());
    }
}

/// Two CPUs for two threads that communicate: the first two allowed ones, or the same twice if there is only one.
pub(crate) fn two_cpus() -> (usize, usize) {
    let cpus = allowed_cpus();
    (cpus[0], *cpus.get(1).unwrap_or(&cpus[0]))
}

/// CPU time (user and system) that the calling thread has used so far, in nanoseconds: the sum that
/// `getrusage(RUSAGE_THREAD)` gives, in a finer unit.
pub(crate) fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure that is passed.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "every thread has a CPU clock");
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_zero_and_holds_what_is_written() {
        let mut region = Region::<[u8; 64]>::new(1000);
        assert!(region.iter().flatten().all(|&byte| byte == 0));
        region[999] = [7; 64];
        assert_eq!(region[999][63], 7);
        region.touch();
        assert_eq!(region[999][63], 0);
    }

    #[test]
    fn a_bound_thread_runs_where_it_was_bound() {
        std::thread::spawn(|| {
            let first = allowed_cpus()[0];
            bind_to(&[first]);
            assert_eq!(allowed_cpus(), [first]);
        })
        .join()
        .expect("the thread asserts only");
    }

    #[test]
    fn cpu_time_passes() {
        let before = thread_cpu_ns();
        let mut sum = 0u64;
        while thread_cpu_ns() == before {
            sum = std::hint::black_box(sum + 1);
        }
        prefetch(&sum);
    }
}
