//! Time as a driver gives it to blocks and clients: instants and spans are different types.

use core::ops::{Add, Sub};

/// An instant: microseconds since the driver started. It stands still within a turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tick(pub u64);

/// A span of time in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span(pub u64);

impl Tick {
    /// The time that has passed since `earlier`; none if that lies ahead.
    #[inline]
    pub const fn since(self, earlier: Tick) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// A span of this many milliseconds.
    #[inline]
    pub const fn from_millis(millis: u64) -> Self {
        Span(millis * 1000)
    }

    /// Whole milliseconds.
    #[inline]
    pub const fn millis(self) -> u64 {
        self.0 / 1000
    }
}

impl Add<Span> for Tick {
    type Output = Tick;

    /// Saturates at the greatest tick.
    #[inline]
    fn add(self, span: Span) -> Tick {
        Tick(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Tick {
    type Output = Tick;

    /// Saturates at 0, the driver's start.
    #[inline]
    fn sub(self, span: Span) -> Tick {
        Tick(self.0.saturating_sub(span.0))
    }
}

impl Sub<Tick> for Tick {
    type Output = Span;

    /// As [`Tick::since`].
    #[inline]
    fn sub(self, earlier: Tick) -> Span {
        self.since(earlier)
    }
}

impl Add for Span {
    type Output = Span;

    #[inline]
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Span;

    /// Saturates at 0 if the other span is longer.
    #[inline]
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_wrap() {
        let (early, late) = (Tick(5), Tick(9));
        assert_eq!((late - early, early - late, early.since(late)), (Span(4), Span(0), Span(0)));
        assert_eq!((early - Span(7), late + Span(u64::MAX)), (Tick(0), Tick(u64::MAX)));
        assert_eq!((Span::from_millis(3) + Span(500)).millis(), 3);
    }
}
