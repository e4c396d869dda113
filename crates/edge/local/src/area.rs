//! The shared memory of a connection.
//!
//! ```text
//!      0   u32  the node's sleep word                       each of these in 128 bytes of its own
//!    128   u32  the client's sleep word
//!    256   u32  client to node: tail, bytes ever written, modulo 2^32; only the client writes it
//!    384   u32  client to node: head, bytes ever read; only the node writes it
//!    512   u32  node to client: tail, only the node writes it
//!    640   u32  node to client: head, only the client writes it
//!   4096        the ring from the client to the node
//!   4096 + n    the ring from the node to the client; n is a power of two, the same for both
//! ```
//! Numbers are in the machine's order. A ring's byte number i is at i modulo n. A new area is all zero.

use crate::pipe::Side;
use crate::sync::{AtomicU32, OwnLine};

/// Bytes of a ring, as the node makes them: enough for the frames of several turns.
pub const RING_BYTES: usize = 1 << 20;

/// The words at the beginning.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Control {
    /// Of the node, of the client.
    pub sleep: [OwnLine<AtomicU32>; 2],
    /// Of the ring whose bytes the client writes, of that whose bytes the node writes.
    pub rings: [RingControl; 2],
}

/// Where a ring begins and ends.
#[derive(Default)]
#[repr(C)]
pub(crate) struct RingControl {
    pub tail: OwnLine<AtomicU32>,
    pub head: OwnLine<AtomicU32>,
}

impl Control {
    /// Of the ring that this side writes.
    pub fn written_by(&self, side: Side) -> &RingControl {
        match side {
            Side::Client => &self.rings[0],
            Side::Node => &self.rings[1],
        }
    }

    /// The word of this side.
    pub fn sleep_of(&self, side: Side) -> &AtomicU32 {
        match side {
            Side::Node => &self.sleep[0].0,
            Side::Client => &self.sleep[1].0,
        }
    }
}

#[cfg(not(loom))]
pub use mapped::Area;
#[cfg(loom)]
pub use modelled::Area;

#[cfg(not(loom))]
mod mapped {
    use super::{Control, RING_BYTES};
    use crate::pipe::Side;
    use rustix::fs::{
        MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
    };
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};
    use std::ptr::{NonNull, null_mut};

    /// Where the rings begin.
    const RINGS_AT: usize = 4096;
    const _: () = assert!(size_of::<Control>() <= RINGS_AT);

    /// Seals that keep the pages mapped: no process can change the size, nor remove the seals.
    const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

    /// The shared memory of a connection (layout: the head of this file). It stays mapped as long as this value lives.
    pub struct Area {
        base: NonNull<u8>,
        capacity: usize,
    }

    // SAFETY: another process may write the memory at any time, so threads of this one add nothing new: words are
    // atomics, and bytes are only copied, in and out, from and to where the caller says.
    unsafe impl Send for Area {}
    // SAFETY: as above.
    unsafe impl Sync for Area {}

    impl Area {
        /// A new area, and the descriptor by which another process maps it.
        ///
        /// # Errors
        /// The system has no memory or descriptor left, or no memfd.
        pub fn make() -> io::Result<(Self, OwnedFd)> {
            let memory = memfd_create("vinga", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&memory, (RINGS_AT + 2 * RING_BYTES) as u64)?;
            fcntl_add_seals(&memory, SEALS)?;
            Ok((Self::map_bytes(&memory, RING_BYTES)?, memory))
        }

        /// Maps an area that another process has made.
        ///
        /// # Errors
        /// The descriptor is not of an area, or the system has no address space left.
        pub fn map(memory: &OwnedFd) -> io::Result<Self> {
            let bad = || io::Error::new(io::ErrorKind::InvalidData, "the shared memory is none of Vinga's");
            let size = usize::try_from(fstat(memory)?.st_size).map_err(|_| bad())?;
            let capacity = size.checked_sub(RINGS_AT).ok_or_else(bad)? / 2;
            let is_sealed = fcntl_get_seals(memory).is_ok_and(|seals| seals.contains(SEALS));
            if !is_sealed
                || !capacity.is_power_of_two()
                || size != RINGS_AT + 2 * capacity
                || capacity > 1 << 30
            {
                return Err(bad());
            }
            Self::map_bytes(memory, capacity)
        }

        fn map_bytes(memory: &OwnedFd, capacity: usize) -> io::Result<Self> {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address of the system's choice; nothing else of this process is there.
            let base = unsafe {
                mmap(null_mut(), RINGS_AT + 2 * capacity, access, MapFlags::SHARED, memory.as_fd(), 0)?
            };
            let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
            Ok(Area { base, capacity })
        }

        /// Bytes of a ring.
        pub fn capacity(&self) -> usize {
            self.capacity
        }

        pub(crate) fn control(&self) -> &Control {
            // SAFETY: the mapping begins with a `Control`: it is aligned to pages, larger, lives as long as `self`, and
            // any bytes are atomics of 32 bits.
            unsafe { self.base.cast().as_ref() }
        }

        /// The place of a ring's byte; it and the `count` bytes from it on must lie in the ring.
        fn place(&self, writer: Side, at: usize, count: usize) -> *mut u8 {
            assert!(at <= self.capacity && count <= self.capacity - at, "a part of a ring lies in it");
            let ring = match writer {
                Side::Client => 0,
                Side::Node => self.capacity,
            };
            // SAFETY: as just asserted, it lies in the mapping.
            unsafe { self.base.as_ptr().add(RINGS_AT + ring + at) }
        }

        /// Copies bytes into the ring that this side writes.
        pub(crate) fn copy_in(&self, writer: Side, at: usize, from: &[u8]) {
            let place = self.place(writer, at, from.len());
            // SAFETY: the place is mapped and writable, and does not overlap with the memory of this process that
            // `from` is. The other process may read or write it meanwhile: then its own stream is garbage.
            unsafe { place.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        }

        /// Copies bytes out of the ring that this side writes.
        pub(crate) fn copy_out(&self, writer: Side, at: usize, into: &mut [u8]) {
            let place = self.place(writer, at, into.len());
            // SAFETY: as above. Bytes are copied, of which any are valid, and are examined only in the copy.
            unsafe { place.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        }
    }

    impl Drop for Area {
        fn drop(&mut self) {
            // SAFETY: it was mapped with this length, and no reference into it outlives `self`. It can only fail if the
            // system can't split a mapping, which this does not.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), RINGS_AT + 2 * self.capacity) };
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sync::Ordering;
        use std::os::fd::AsRawFd;

        #[test]
        fn both_mappings_are_the_same_memory_and_its_size_is_fixed() {
            let (area, memory) = Area::make().unwrap();
            let other = Area::map(&memory).unwrap();
            assert_eq!(other.capacity(), RING_BYTES);
            area.copy_in(Side::Client, RING_BYTES - 3, b"abc");
            area.copy_in(Side::Node, 0, b"def");
            let mut bytes = [0; 3];
            other.copy_out(Side::Client, RING_BYTES - 3, &mut bytes);
            assert_eq!(&bytes, b"abc");
            other.copy_out(Side::Node, 0, &mut bytes);
            assert_eq!(&bytes, b"def");
            area.control().sleep_of(Side::Client).store(7, Ordering::Relaxed);
            assert_eq!(other.control().sleep_of(Side::Client).load(Ordering::Relaxed), 7);
            assert!(ftruncate(&memory, 4096).is_err() && ftruncate(&memory, 1 << 30).is_err());
        }

        #[test]
        fn the_words_are_where_the_layout_says() {
            let (area, _memory) = Area::make().unwrap();
            let base = area.base.as_ptr() as usize;
            let control = area.control();
            let offset = |word: &crate::sync::AtomicU32| std::ptr::from_ref(word) as usize - base;
            assert_eq!(offset(control.sleep_of(Side::Node)), 0);
            assert_eq!(offset(control.sleep_of(Side::Client)), 128);
            assert_eq!(offset(&control.written_by(Side::Client).tail.0), 256);
            assert_eq!(offset(&control.written_by(Side::Client).head.0), 384);
            assert_eq!(offset(&control.written_by(Side::Node).tail.0), 512);
            assert_eq!(offset(&control.written_by(Side::Node).head.0), 640);
        }

        #[test]
        fn what_is_no_area_is_not_mapped() {
            let unsealed = memfd_create("other", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&unsealed, (RINGS_AT + 2 * RING_BYTES) as u64).unwrap();
            assert!(Area::map(&unsealed).is_err());
            let small = memfd_create("small", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            fcntl_add_seals(&small, SEALS).unwrap();
            assert!(Area::map(&small).is_err());
            let file: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
            assert!(Area::map(&file).is_err() && file.as_raw_fd() >= 0);
        }
    }
}

/// The area in the model: the same words as atomics of the model checker, and bytes whose accesses it tracks.
#[cfg(loom)]
mod modelled {
    use super::Control;
    use crate::pipe::Side;
    use loom::cell::UnsafeCell;

    /// The model's version of the area.
    pub struct Area {
        control: Control,
        rings: [Vec<UnsafeCell<u8>>; 2],
    }

    // SAFETY: the model checker reports bytes that two threads touch at a time.
    unsafe impl Sync for Area {}

    impl Area {
        /// An area with rings of `capacity` bytes, a power of two.
        pub fn with_capacity(capacity: usize) -> Self {
            let ring = || (0..capacity).map(|_| UnsafeCell::new(0)).collect();
            Area { control: Control::default(), rings: [ring(), ring()] }
        }

        /// Bytes of a ring.
        pub fn capacity(&self) -> usize {
            self.rings[0].len()
        }

        pub(crate) fn control(&self) -> &Control {
            &self.control
        }

        fn ring(&self, writer: Side) -> &[UnsafeCell<u8>] {
            &self.rings[usize::from(writer == Side::Node)]
        }

        pub(crate) fn copy_in(&self, writer: Side, at: usize, from: &[u8]) {
            for (place, byte) in self.ring(writer)[at..at + from.len()].iter().zip(from) {
                // SAFETY: the model checker has made sure that no other thread touches it.
                place.with_mut(|place| unsafe { *place = *byte });
            }
        }

        pub(crate) fn copy_out(&self, writer: Side, at: usize, into: &mut [u8]) {
            for (place, byte) in self.ring(writer)[at..at + into.len()].iter().zip(into) {
                // SAFETY: the model checker has made sure that no other thread writes it.
                place.with(|place| *byte = unsafe { *place });
            }
        }
    }
}
