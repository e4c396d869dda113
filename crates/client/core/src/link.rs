//! One connection to a data node: the bytes that wait to be sent, and when they go.
//!
//! Batching is adaptive: an operation that finds nothing under way goes at once; while others are under way, operations
//! gather until they are a quarter of those, or have waited for [`crate::settings::Settings::hold_max`]. So few callers
//! are never held up, and many callers fill large batches by themselves. What is urgent (a batch that its caller
//! filled, a batch of an open transaction, whatever holds locks) goes at once and takes along what has gathered. On an
//! eager connection, one by shared memory, nothing gathers: sending costs next to nothing there.

use alloc::vec::Vec;
use vinga_base::time::{Span, Tick};
use vinga_wire::handshake::CONNECTIONS_MAX;

/// A connection, numbered over all endpoints.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u16);

impl LinkId {
    /// The connection of that index, below [`CONNECTIONS_MAX`], to an endpoint.
    pub fn new(endpoint: u16, connection: u16) -> Self {
        debug_assert!(connection < CONNECTIONS_MAX);
        LinkId(endpoint * CONNECTIONS_MAX + connection)
    }

    /// Which of the addresses that the driver was given.
    pub fn endpoint(self) -> u16 {
        self.0 / CONNECTIONS_MAX
    }

    /// Which of the connections to it.
    pub fn connection(self) -> u16 {
        self.0 % CONNECTIONS_MAX
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Gathered operations go when they are this part of those under way.
const SHARE_OF_UNDER_WAY: u32 = 4;

/// One connection to a data node, with the bytes that wait to be sent.
#[derive(Default)]
pub struct Link {
    /// The driver has a connection for it.
    pub is_open: bool,
    /// Frames that wait to be sent.
    pub out: Vec<u8>,
    /// The driver can't take more at the moment.
    pub is_blocked: bool,
    /// Sending costs next to nothing: nothing gathers.
    pub is_eager: bool,
    pub last_received: Tick,
    is_urgent: bool,
    gathered: u32,
    gathered_since: Tick,
    under_way: u32,
}

impl Link {
    /// Notes that so many operations wait to be sent.
    #[inline]
    pub fn gather(&mut self, operations: u32, now: Tick) {
        if self.gathered == 0 {
            self.gathered_since = now;
        }
        self.gathered += operations;
    }

    /// Takes operations back that were gathered and will not be sent.
    pub fn ungather(&mut self, operations: u32) {
        // Those of a connection that was closed meanwhile are not counted any more.
        self.gathered = self.gathered.saturating_sub(operations);
    }

    /// What waits goes at once.
    #[inline]
    pub fn hurry(&mut self) {
        self.is_urgent = true;
    }

    /// So many operations have been answered.
    #[inline]
    pub fn answered(&mut self, operations: u32) {
        self.under_way = self.under_way.saturating_sub(operations);
    }

    /// Whether what waits is to be sent now.
    #[inline]
    pub fn is_due(&self, now: Tick, hold_max: Span) -> bool {
        self.is_open
            && !self.is_blocked
            && (self.is_urgent
                || self.gathered > 0
                    && (self.is_eager
                        || self.gathered * SHARE_OF_UNDER_WAY >= self.under_way
                        || now >= self.gathered_since + hold_max))
    }

    /// When what waits is due at the latest.
    pub fn due_at(&self, hold_max: Span) -> Option<Tick> {
        (self.is_open && !self.is_blocked && self.gathered > 0).then(|| self.gathered_since + hold_max)
    }

    /// Gives all that waits to the driver, whose empty buffer takes its place.
    pub fn take_output(&mut self, buffer: &mut Vec<u8>) {
        debug_assert!(buffer.is_empty());
        core::mem::swap(&mut self.out, buffer);
        self.under_way += core::mem::take(&mut self.gathered);
        self.is_urgent = false;
    }

    /// Whether operations are under way or wait.
    pub fn is_busy(&self) -> bool {
        self.under_way > 0 || self.gathered > 0
    }

    /// Forgets everything; the connection is gone.
    pub fn reset(&mut self) {
        *self = Link { out: core::mem::take(&mut self.out), ..Link::default() };
        self.out.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Span = Span(500);

    #[test]
    fn one_alone_goes_at_once_and_a_flood_goes_in_batches() {
        let mut link = Link { is_open: true, ..Link::default() };
        let mut buffer = Vec::new();
        let now = Tick(1000);
        let mut sent = Vec::new();
        for _ in 0..100 {
            link.gather(1, now);
            if link.is_due(now, HOLD) {
                sent.push(link.gathered);
                link.take_output(&mut buffer);
            }
        }
        assert_eq!(sent[..5], [1, 1, 1, 1, 1]);
        assert!(*sent.last().unwrap() > 10 && sent.len() < 25, "{sent:?}");
        assert!(!link.is_due(now, HOLD));
        assert!(link.is_due(now + HOLD, HOLD), "nobody waits longer than that");
        link.answered(link.under_way);
        assert!(link.is_due(now, HOLD), "nothing is under way any more");
    }

    #[test]
    fn nothing_gathers_where_sending_costs_nothing() {
        let mut link = Link { is_open: true, is_eager: true, ..Link::default() };
        link.gather(100, Tick(0));
        link.take_output(&mut Vec::new());
        link.gather(1, Tick(0));
        assert!(link.is_due(Tick(0), HOLD));
        link.reset();
        assert!(!link.is_eager, "the next connection may be another");
    }

    #[test]
    fn what_is_urgent_takes_along_what_waits() {
        let mut link = Link { is_open: true, ..Link::default() };
        let mut buffer = Vec::new();
        link.gather(100, Tick(0));
        link.take_output(&mut buffer);
        link.gather(1, Tick(0));
        assert!(!link.is_due(Tick(0), HOLD));
        link.hurry();
        assert!(link.is_due(Tick(0), HOLD));
        link.take_output(&mut buffer);
        assert_eq!((link.gathered, link.under_way), (0, 101));
        link.reset();
        assert!(!link.is_busy() && !link.is_open);
    }
}
