//! The virtual clock: what happens next, and when.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Microseconds since the world began.
pub type Time = u64;

/// Events by time, and at the same time in the order in which they were entered.
#[derive(Debug)]
pub struct Agenda<E> {
    now: Time,
    sequence: u64,
    entries: BinaryHeap<Entry<E>>,
}

#[derive(Debug)]
struct Entry<E> {
    at: Time,
    sequence: u64,
    event: E,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Agenda<E> {
    /// An empty agenda at time 0.
    pub fn new() -> Self {
        Agenda { now: 0, sequence: 0, entries: BinaryHeap::new() }
    }

    /// The time of the event that is happening.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Enters an event; never before now.
    pub fn enter(&mut self, at: Time, event: E) {
        self.sequence += 1;
        self.entries.push(Entry { at: at.max(self.now), sequence: self.sequence, event });
    }

    /// Takes the next event and moves the clock to its time.
    pub fn take_next(&mut self) -> Option<E> {
        let Entry { at, event, .. } = self.entries.pop()?;
        self.now = at;
        Some(event)
    }

    /// Events so far.
    pub fn entered(&self) -> u64 {
        self.sequence
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    /// The heap gives its greatest entry first: that is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_their_order() {
        let mut agenda = Agenda::new();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')] {
            agenda.enter(at, event);
        }
        let order: String = std::iter::from_fn(|| agenda.take_next()).collect();
        assert_eq!((order.as_str(), agenda.now()), ("abcd", 5));
        agenda.enter(1, 'e');
        assert_eq!((agenda.take_next(), agenda.now()), (Some('e'), 5));
    }
}
