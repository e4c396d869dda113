//! The atomics and shared cells of rings and wake-up events: the standard ones, or those of the model checker `loom` in
//! a build with `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use std::sync::Arc;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::Arc;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use std::cell::UnsafeCell;

/// A value on cache lines of its own. 128 bytes, because processors fetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct OwnLine<T>(pub T);

/// Bytes that two threads share and of which each part is touched by one of them at a time, as their protocol says.
pub(crate) struct SharedBytes {
    bytes: Box<[UnsafeCell<u8>]>,
    /// One for each four bytes: lets the model checker see the accesses and their order.
    #[cfg(loom)]
    guards: Box<[loom::cell::UnsafeCell<()>]>,
}

// SAFETY: the only ways to the bytes are `write` and `read`, whose callers promise that no two threads touch the same
// ones at a time.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// `length` zero bytes.
    pub fn new(length: usize) -> Self {
        SharedBytes {
            bytes: (0..length).map(|_| UnsafeCell::new(0)).collect(),
            #[cfg(loom)]
            guards: (0..length.div_ceil(4)).map(|_| loom::cell::UnsafeCell::new(())).collect(),
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Copies `from` to the place that begins at `at`.
    ///
    /// # Safety
    /// No other thread touches these bytes meanwhile, and every access before or after is ordered by an atomic.
    pub unsafe fn write(&self, at: usize, from: &[u8]) {
        let place = &self.bytes[at..at + from.len()];
        #[cfg(loom)]
        for guard in &self.guards[at / 4..(at + from.len()).div_ceil(4)] {
            guard.with_mut(|_| ());
        }
        // SAFETY: the place was bounds-checked, its cells may be written through a shared reference, and the caller
        // keeps others away.
        unsafe { UnsafeCell::raw_get(place.as_ptr()).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    }

    /// The bytes from `from` to `to`.
    ///
    /// # Safety
    /// No thread writes them while the slice lives, and every earlier write is ordered by an atomic.
    pub unsafe fn read(&self, from: usize, to: usize) -> &[u8] {
        let place = &self.bytes[from..to];
        #[cfg(loom)]
        for guard in &self.guards[from / 4..to.div_ceil(4)] {
            guard.with(|_| ());
        }
        // SAFETY: the place was bounds-checked and is initialised; the caller keeps writers away.
        unsafe { std::slice::from_raw_parts(UnsafeCell::raw_get(place.as_ptr()), place.len()) }
    }
}
