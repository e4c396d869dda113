//! Time as the driver tells it.

use core::ops::{Add, Sub};

/// Microseconds: since the driver started, or a span of time. The machine has no clock; its driver says what time it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// A span of so many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Micros(millis * 1000)
    }
}

impl Add for Micros {
    type Output = Micros;

    fn add(self, span: Micros) -> Micros {
        Micros(self.0.saturating_add(span.0))
    }
}

impl Sub for Micros {
    type Output = Micros;

    /// 0 if the other lies ahead.
    fn sub(self, earlier: Micros) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}
