//! How much of a lane was sent, for lanes that are sent in pieces.
//!
//! Sent bytes stay at the front of the lane until they are at least half of it: so each byte is moved at most once on
//! average, however slowly the other side takes them.

/// Capacity that a lane gets when it is first used: a turn's worth, so that it seldom has to grow.
pub(crate) const LANE_BYTES: usize = 64 * 1024;

/// Capacity that an empty lane keeps.
const KEPT_BYTES: usize = 1024 * 1024;

/// How much of a lane was sent.
#[derive(Default)]
pub(crate) struct LaneProgress {
    sent: usize,
}

impl LaneProgress {
    /// The bytes that still wait.
    #[inline]
    pub fn waiting<'l>(&self, lane: &'l [u8]) -> &'l [u8] {
        &lane[self.sent..]
    }

    /// Notes that this many bytes were sent.
    pub fn advance(&mut self, lane: &mut Vec<u8>, count: usize) {
        self.sent += count;
        if self.sent == lane.len() {
            self.forget(lane);
        } else if self.sent >= lane.len() / 2 {
            lane.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Drops all bytes that wait.
    pub fn forget(&mut self, lane: &mut Vec<u8>) {
        lane.clear();
        self.sent = 0;
        if lane.capacity() > KEPT_BYTES {
            lane.shrink_to(KEPT_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_in_pieces_leaves_whole() {
        let mut lane: Vec<u8> = (0..200).collect();
        let mut progress = LaneProgress::default();
        let mut left = Vec::new();
        for count in [10, 89, 1, 50, 40, 10] {
            left.extend_from_slice(&progress.waiting(&lane)[..count]);
            progress.advance(&mut lane, count);
            assert!(lane.len() <= 2 * progress.waiting(&lane).len() + 1);
        }
        assert_eq!(left, (0..200).collect::<Vec<u8>>());
        assert!(lane.is_empty());
    }
}
