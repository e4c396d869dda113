//! Memory that is written to files, and read from them, without passing through the system's cache.
//!
//! The system accepts such a transfer only if the buffer's address and length, and the place in the file, are multiples
//! of the disk's block size. [`SECTOR_BYTES`] is one of every disk that is in use.

use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// What file offsets and lengths are multiples of.
pub const SECTOR_BYTES: usize = 4096;

/// One sector, at an address that is a multiple of its size.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Sector([u8; SECTOR_BYTES]);

/// Whole sectors of memory.
#[derive(Clone, Default)]
pub struct AlignedBuffer(Vec<Sector>);

impl AlignedBuffer {
    /// At least `bytes` bytes of zeros, rounded up to whole sectors.
    pub fn zeroed(bytes: usize) -> Self {
        let mut buffer = AlignedBuffer::default();
        buffer.resize(bytes);
        buffer
    }

    /// A copy of `bytes`, filled up with zeros to whole sectors.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = AlignedBuffer::zeroed(bytes.len());
        buffer[..bytes.len()].copy_from_slice(bytes);
        buffer
    }

    /// Changes the length to at least `bytes` bytes, rounded up to whole sectors. Added bytes are zeros.
    pub fn resize(&mut self, bytes: usize) {
        let sectors = bytes.div_ceil(SECTOR_BYTES);
        if sectors <= self.0.len() {
            self.0.truncate(sectors);
        } else {
            let more = sectors - self.0.len();
            Sector::extend_vec_zeroed(&mut self.0, more).expect("memory of this size can be had");
        }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl DerefMut for AlignedBuffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_whole_sectors_at_aligned_addresses() {
        let mut buffer = AlignedBuffer::copy_of(&[7; 5000]);
        assert_eq!((buffer.len(), buffer.as_ptr().addr() % SECTOR_BYTES), (2 * SECTOR_BYTES, 0));
        assert!(buffer[..5000].iter().all(|&byte| byte == 7) && buffer[5000..].iter().all(|&byte| byte == 0));
        buffer.resize(1);
        assert_eq!(buffer.len(), SECTOR_BYTES);
        buffer.resize(3 * SECTOR_BYTES);
        assert_eq!((buffer.len(), buffer[SECTOR_BYTES - 1], buffer[SECTOR_BYTES]), (3 * SECTOR_BYTES, 7, 0));
        assert!(AlignedBuffer::zeroed(0).is_empty());
    }
}
