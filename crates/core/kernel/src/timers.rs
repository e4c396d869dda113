//! Timers: signals that blocks send to themselves later.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;
use vinga_base::time::Tick;
use vinga_wire::Address;

/// Microseconds since the driver started. Stands still within a turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tick(pub u64);

impl Tick {
    /// A span of so many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Tick(millis * 1000)
    }

    /// Time since `earlier`, 0 if that lies ahead.
    pub const fn since(self, earlier: Tick) -> Tick {
        Tick(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Tick {
    type Output = Tick;

    fn add(self, span: Tick) -> Tick {
        Tick(self.0.saturating_add(span.0))
    }
}

impl Sub for Tick {
    type Output = Tick;

    fn sub(self, span: Tick) -> Tick {
        self.since(span)
    }
}

/// A timer that is due: `TimerReport` with this token is sent to this block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Timer {
    /// The block that set it.
    pub owner: Address,
    /// Chosen by the owner to identify the timer.
    pub token: u64,
}

/// The timers of one thread, by time and then in the order in which they were set.
#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Tick, u64, Timer)>>,
    sequence: u64,
}

impl Timers {
    /// Sets a timer. It can't be cancelled: its owner ignores a token that it no longer waits for.
    pub fn set(&mut self, due: Tick, timer: Timer) {
        self.sequence += 1;
        self.heap.push(Reverse((due, self.sequence, timer)));
    }

    /// Removes and returns the first timer that is due.
    pub fn pop_due(&mut self, now: Tick) -> Option<Timer> {
        let Reverse((due, _, timer)) = self.heap.peek()?;
        let timer = *timer;
        if *due > now {
            return None;
        }
        self.heap.pop();
        Some(timer)
    }

    /// When the next timer is due.
    pub fn next_due(&self) -> Option<Tick> {
        self.heap.peek().map(|Reverse((due, _, _))| *due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_timers_come_in_order() {
        let mut timers = Timers::default();
        let timer = |token| Timer { owner: Address(7), token };
        timers.set(Tick(30), timer(3));
        timers.set(Tick(10), timer(1));
        timers.set(Tick(10), timer(2));
        assert_eq!(timers.next_due(), Some(Tick(10)));
        assert_eq!(timers.pop_due(Tick(9)), None);
        assert_eq!(timers.pop_due(Tick(20)), Some(timer(1)));
        assert_eq!(timers.pop_due(Tick(20)), Some(timer(2)));
        assert_eq!(timers.pop_due(Tick(20)), None);
        assert_eq!(timers.pop_due(Tick(30)), Some(timer(3)));
        assert_eq!(timers.next_due(), None);
    }
}
