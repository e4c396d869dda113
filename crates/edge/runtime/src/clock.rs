//! The node's clock: all threads read the same one, so that ticks in their traces can be compared.

use std::time::Instant;
use vinga_kernel::Tick;

/// Measures time from the node's start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that begins now.
    #[allow(clippy::new_without_default, reason = "a clock that begins now is no default value")]
    pub fn new() -> Self {
        Clock { start: Instant::now() }
    }

    /// Nanoseconds since the start. Never goes back; costs no system call.
    #[inline]
    pub fn nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// The tick of a moment given by [`Clock::nanos`].
    #[inline]
    pub const fn tick(nanos: u64) -> Tick {
        Tick(nanos / 1000)
    }
}
