//! How much of a lane has left, for lanes that leave in pieces.
//!
//! What has left stays at the front of the lane until it is at least half of it: so each byte is moved at most once on
//! average, however slowly the other side takes them.

/// Capacity that a lane gets when it is first used: a turn's worth, so that it seldom has to grow.
pub(crate) const LANE_BYTES: usize = 64 * 1024;

/// Capacity that an empty lane keeps.
const KEPT_BYTES: usize = 1024 * 1024;

/// See the head of this file.
#[derive(Default)]
pub(crate) struct LaneProgress {
    sent: usize,
}

impl LaneProgress {
    /// What still waits.
    #[inline]
    pub fn waiting<'l>(&self, lane: &'l [u8]) -> &'l [u8] {
        &lane[self.sent..]
    }

    /// Notes that so many bytes have left.
    pub fn advance(&mut self, lane: &mut Vec<u8>, count: usize) {
        self.sent += count;
        if self.sent == lane.len() {
            self.forget(lane);
        } else if self.sent >= lane.len() / 2 {
            lane.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Drops all that waits.
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
