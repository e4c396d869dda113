//! How large a stream's log is, what is in use of it, and how large it should be.
//!
//! A log has room enough if it takes up what is logged while two checkpoints are made, twice: what came before a
//! checkpoint is needed until it is usable, and the next one may begin right then. So the log should have bytes logged
//! a second × seconds of a checkpoint × 4. A checkpoint takes as long as the data takes at its speed, and at least as
//! long as the last one did, the wait for its global checkpoint included.
//!
//! If changes were refused because it was full, it was too small, whatever that rule says: for as long as it was full
//! it should have taken up what is logged in that time.

use crate::Redo;
use crate::credit::Room;
use vinga_kernel::{Span, Tick};

/// Two checkpoints, and a margin of 100 %.
const CHECKPOINTS: u128 = 4;
/// The speed of a round that wrote for a shorter time says nothing: quotas of a tenth of a second are its grain.
const MEASURED_MIN: Span = Span::from_millis(1000);

/// A place in the log, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The number of the segment.
    pub segment: u64,
    /// The file that it is in.
    pub file: u32,
    /// The offset in the file.
    pub offset: u64,
}

/// For how long a log was full.
#[derive(Default)]
pub struct Fullness {
    /// Since when it is.
    since: Option<Tick>,
    /// The longest time that it was, of those that are over.
    longest: Span,
}

impl Fullness {
    /// It is full now, or it is not.
    pub fn note(&mut self, now: Tick, is_full: bool) {
        match (self.since, is_full) {
            (None, true) => self.since = Some(now),
            (Some(since), false) => {
                self.longest = self.longest.max(now.since(since));
                self.since = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    /// The longest time that it was, up to now.
    fn longest(&self, now: Tick) -> Span {
        self.longest.max(self.since.map_or(Span(0), |since| now.since(since)))
    }
}

/// The last round of checkpoints that all became usable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastRound {
    /// When it ended.
    pub ended: Tick,
    /// Bytes that were written.
    pub bytes: u64,
    /// How long that took.
    pub writing: Span,
    /// How long it took until all were usable.
    pub whole: Span,
}

/// A stream's log, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Log {
    /// Files that there are.
    pub files: u64,
    /// `FragmentLogFileSize`: bytes of each file that is made.
    pub file_bytes: u64,
    /// Bytes that it can hold.
    pub capacity: u64,
    /// Bytes in use.
    pub used: u64,
    /// Bytes that changes don't get: room for the ends of epochs, so that checkpoints can become usable.
    pub reserved: u64,
    /// The longest time that it was full.
    pub full: Span,
    /// The oldest place that is needed; `None` if nothing was ever logged.
    pub tail: Option<Place>,
    /// Where it goes on.
    pub head: Option<Place>,
    /// Bytes logged a second, on the average of the last minute.
    pub speed: u64,
    /// The same in the ten seconds since the start in which it was greatest.
    pub speed_max: u64,
    /// Bytes a second that the stream's checkpoints are written with: as measured in the last round, if that took long
    /// enough to be a measure; else as they are to be written.
    pub checkpoint_speed: u64,
    /// `None`: there was none since the start.
    pub last_round: Option<LastRound>,
}

impl Log {
    /// Bytes that it should be able to hold at least, if so many bytes of rows are in its checkpoints, and so many
    /// changes were refused because it was full; 0 if nothing was logged.
    pub fn needed(&self, data: u64, refusals: u64) -> u64 {
        let needed = self.needed_for_checkpoints(data);
        if refusals == 0 {
            return needed;
        }
        let missed = u128::from(self.speed_max) * u128::from(self.full.0) / 1_000_000;
        let missed = u64::try_from(missed).unwrap_or(u64::MAX).max(self.reserved);
        needed.max(self.capacity.saturating_add(missed))
    }

    fn needed_for_checkpoints(&self, data: u64) -> u64 {
        let micros = u128::from(data) * 1_000_000 / u128::from(self.checkpoint_speed.max(1));
        let micros = micros.max(self.last_round.map_or(0, |last| u128::from(last.whole.0)));
        let bytes = u128::from(self.speed_max) * micros * CHECKPOINTS / 1_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl Redo {
    /// Its log, for people.
    pub fn log(&self, now: Tick) -> Log {
        let room @ Room { capacity, used, .. } = self.room();
        let place = |segment: &crate::segments::LiveSegment, offset| Place {
            segment: segment.number,
            file: segment.file,
            offset,
        };
        let head = self.writer.as_ref().map_or(0, crate::writer::Writer::offset);
        let last_round = self.last_round();
        let measured = last_round.filter(|last| last.writing >= MEASURED_MIN);
        Log {
            files: self.segments.files().count() as u64,
            file_bytes: self.settings.file_bytes,
            capacity,
            used,
            reserved: room.margin(),
            full: self.fullness.longest(now),
            tail: self.segments.live().next().map(|segment| place(segment, 0)),
            head: self.segments.newest().map(|segment| place(segment, head)),
            speed: self.average_written(now, 60).redo,
            speed_max: self.greatest_redo_speed(now),
            checkpoint_speed: measured.map_or_else(
                || self.usual_speed(),
                |last| (u128::from(last.bytes) * 1_000_000 / u128::from(last.writing.0)) as u64,
            ),
            last_round,
        }
    }

    /// Whether a data manager logs to it.
    pub fn has_participant(&self, instance: u16) -> bool {
        self.settings.participants.contains(&instance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: Log = Log {
        files: 16,
        file_bytes: 16 << 20,
        capacity: 16 << 24,
        used: 0,
        reserved: 16 << 20,
        full: Span(0),
        tail: None,
        head: None,
        speed: 0,
        speed_max: 35_000_000,
        checkpoint_speed: 100_000_000,
        last_round: None,
    };

    #[test]
    fn the_rule_is_what_two_checkpoints_need_twice() {
        // 100,000 updates a second of 350 bytes, 50 GB of rows at 100 MB/s: 500 seconds.
        assert_eq!(LOG.needed(50_000_000_000, 0), 70_000_000_000);
        assert_eq!(Log { speed_max: 0, ..LOG }.needed(50_000_000_000, 0), 0);
        assert_eq!(Log { checkpoint_speed: 0, ..LOG }.needed(u64::MAX, 0), u64::MAX);
    }

    #[test]
    fn a_checkpoint_takes_at_least_as_long_as_the_last_one() {
        let last = LastRound {
            ended: Tick(0),
            bytes: 1000,
            writing: Span::from_millis(1),
            whole: Span::from_millis(2000),
        };
        let log = Log { last_round: Some(last), ..LOG };
        assert_eq!(log.needed(1000, 0), 35_000_000 * 2 * 4);
        assert_eq!(log.needed(50_000_000_000, 0), 70_000_000_000);
    }

    #[test]
    fn a_log_that_was_full_was_too_small() {
        let full = Log { speed_max: 1_000_000, full: Span::from_millis(30_000), ..LOG };
        assert_eq!(full.needed(1000, 1), full.capacity + 30_000_000);
        assert!(full.needed(1000, 0) < full.capacity, "nobody was refused");
        let once = Log { full: Span(10), ..full };
        assert_eq!(once.needed(1000, 1), full.capacity + once.reserved, "at least somewhat more");
        assert_eq!(Log { speed_max: 35_000_000, ..full }.needed(50_000_000_000, 1), 70_000_000_000);
    }

    #[test]
    fn the_longest_time_counts() {
        let mut fullness = Fullness::default();
        let notes = [(10, true), (20, true), (30, false), (40, true), (45, false), (50, false), (60, true)];
        for (now, is_full) in notes {
            fullness.note(Tick(now), is_full);
        }
        assert_eq!(fullness.longest(Tick(70)), Span(20));
        assert_eq!(fullness.longest(Tick(100)), Span(40), "it still is");
    }
}
