//! Time as blocks see it, and the signals that they send to themselves later.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;
use vinga_base::time::Tick;
use vinga_wire::Address;

/// A timer that is due: `TimerReport` with this token goes to this block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Timer {
    /// Who asked.
    pub owner: Address,
    /// What for, in the owner's own terms.
    pub token: u64,
}

/// The timers of one thread, by time and then in the order in which they were set.
#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Tick, u64, Timer)>>,
    sequence: u64,
}

impl Timers {
    /// Sets a timer. There is no way to unset one: its owner ignores a token that it no longer waits for.
    pub fn set(&mut self, due: Tick, timer: Timer) {
        self.sequence += 1;
        self.heap.push(Reverse((due, self.sequence, timer)));
    }

    /// Takes the first timer that is due.
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
