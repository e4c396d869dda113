//! What the C library does with memory that was freed.
//!
//! Blocks of the redo log and of checkpoints have 256 KiB each. By default glibc takes memory of that size from the
//! system and gives it back when it is freed, so each block costs 64 page faults and as many pages of zeros: together a
//! seventh of the CPU time of an insert on a node with a disk.

/// From so many bytes on memory is taken from the system directly: glibc's maximum.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: i32 = 32 << 20;
/// So much free memory may lie at the end of a heap before it is given back: more than `RedoBuffer` usually is.
#[cfg(target_env = "gnu")]
const FREE_BYTES_MAX: i32 = 128 << 20;

/// Has freed blocks of a log kept for the next ones, in the whole process. Without glibc nothing happens.
pub fn keep_freed_blocks() {
    #[cfg(target_env = "gnu")]
    for (what, bytes) in
        [(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN), (libc::M_TRIM_THRESHOLD, FREE_BYTES_MAX)]
    {
        // SAFETY: the call changes a setting of the allocator, under its own lock.
        let is_accepted = unsafe { libc::mallopt(what, bytes) } == 1;
        if !is_accepted {
            log::warn!(target: "memory", "the C library does not keep freed memory: blocks of the log cost more time");
        }
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    /// Page faults of this thread so far that needed no disk.
    fn page_faults() -> i64 {
        // SAFETY: an all-zero `rusage` is valid, and is filled in by the call.
        unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
            usage.ru_minflt
        }
    }

    #[test]
    fn blocks_are_kept() {
        keep_freed_blocks();
        // As many at a time as a checkpoint has on the way, and some of the log.
        let take_blocks = || {
            for _ in 0..10 {
                let blocks: Vec<_> = (1..=10_u8).map(|fill| vec![fill; 256 << 10]).collect();
                std::hint::black_box(blocks);
            }
        };
        // Then the heap is as large as it becomes.
        take_blocks();
        let before = page_faults();
        take_blocks();
        let faults = page_faults() - before;
        // By default: 64 for each block.
        assert!(faults < 640, "{faults} page faults for 100 blocks");
    }
}
