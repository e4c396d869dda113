//! Prefetching memory before it is read.

/// Cache lines that are prefetched, at most: the hardware's own prefetchers follow a longer run.
const LINES_MAX: usize = 4;
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Starts to load the cache lines of `bytes` bytes from `address` on, the first few of them. It only affects the
/// caches, so any address is allowed.
#[inline]
pub fn prefetch(address: *const u8, bytes: usize) {
    let first = address.map_addr(|a| a & !(LINE_BYTES - 1));
    let lines = (address.addr() - first.addr() + bytes).div_ceil(LINE_BYTES).min(LINES_MAX);
    for line in 0..lines {
        prefetch_line(first.wrapping_add(line * LINE_BYTES));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch_line(address: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: every x86-64 processor has the instruction, and it does not fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn prefetch_line(_address: *const u8) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_will_do() {
        prefetch(core::ptr::null(), 1000);
        prefetch(core::ptr::without_provenance(usize::MAX - 200), 100);
        prefetch([0u8; 3].as_ptr(), 0);
    }
}
