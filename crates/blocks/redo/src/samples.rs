//! What was written in each of the last seconds.
//!
//! A sample is a second that begins with the first byte that is written, or where the sample before it ends. Nothing
//! has to happen when it ends: who writes or looks later finds it ended. Seconds in which nothing was written have no
//! sample, so an idle stream needs no timer.

use alloc::collections::VecDeque;
use vinga_kernel::{Span, Tick};

/// How long a sample is.
const SECOND: Span = Span::from_millis(1000);
/// Samples older than this are not shown.
const AGE_MAX: Span = Span::from_millis(60_000);
/// The greatest average is over so many seconds: a shorter burst says little about how large a log should be.
const GREATEST_SECONDS: u64 = 10;
/// Samples that are kept: as many as can be shown.
const SAMPLES_MAX: usize = 61;

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Written {
    /// Bytes of checkpoints.
    pub checkpoint: u64,
    /// Bytes of the redo log.
    pub redo: u64,
}

/// What was written in a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// How long ago it ended.
    pub age: Span,
    /// How long it is: a second, but for the one that is not over.
    pub length: Span,
    /// What was written.
    pub written: Written,
    /// Bytes a second of checkpoints that the stream's data managers were to write together; `None`: as fast as the
    /// disk allows.
    pub target: Option<u64>,
}

/// A sample that is kept.
#[derive(Clone, Copy)]
struct Kept {
    begun: Tick,
    written: Written,
    target: Option<u64>,
}

/// The last samples.
#[derive(Default)]
pub struct Samples {
    /// Oldest first.
    kept: VecDeque<Kept>,
    /// The greatest average of [`GREATEST_SECONDS`] of the redo log, of all that have ended.
    redo_max: u64,
}

impl Samples {
    /// Something was written.
    pub fn note(&mut self, now: Tick, written: Written, target: Option<u64>) {
        let end = self.kept.back().map(|last| last.begun + SECOND);
        let begin = match end {
            Some(end) if now < end => None,
            Some(end) if now < end + SECOND => Some(end),
            _ => Some(now),
        };
        if let Some(begun) = begin {
            self.redo_max = self.greatest_redo(now);
            if self.kept.len() == SAMPLES_MAX {
                self.kept.pop_front();
            }
            self.kept.push_back(Kept { begun, written: Written::default(), target });
        }
        let last = self.kept.back_mut().expect("it is there or was begun");
        last.written.checkpoint += written.checkpoint;
        last.written.redo += written.redo;
        last.target = target;
    }

    /// The samples of the last minute, newest first.
    pub fn last_minute(&self, now: Tick) -> impl Iterator<Item = Sample> {
        let shown = move |kept: &Kept| {
            let passed = now.since(kept.begun);
            let length = Span(passed.0.min(SECOND.0));
            let age = Span(passed.0 - length.0);
            (age < AGE_MAX).then_some(Sample { age, length, written: kept.written, target: kept.target })
        };
        self.kept.iter().rev().map_while(shown)
    }

    /// Bytes a second during the last seconds, on the average; the second that is not over is left out.
    pub fn average(&self, now: Tick, seconds: u64) -> Written {
        let span = Span(seconds * SECOND.0);
        let mut sum = Written::default();
        for sample in self.last_minute(now).filter(|one| one.length == SECOND && one.age < span) {
            sum.checkpoint += sample.written.checkpoint;
            sum.redo += sample.written.redo;
        }
        Written { checkpoint: sum.checkpoint / seconds, redo: sum.redo / seconds }
    }

    /// Bytes a second of the redo log in the ten seconds in which it was most.
    pub fn greatest_redo(&self, now: Tick) -> u64 {
        // The average is greatest when a sample has just ended.
        let ended = self.kept.iter().rev().map(|kept| kept.begun + SECOND).find(|end| *end <= now);
        ended.map_or(0, |end| self.average(end, GREATEST_SECONDS).redo).max(self.redo_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const fn at(millis: u64) -> Tick {
        Tick(millis * 1000)
    }

    fn redo(bytes: u64) -> Written {
        Written { redo: bytes, checkpoint: 10 * bytes }
    }

    #[test]
    fn writes_of_a_second_are_added_up() {
        let mut samples = Samples::default();
        assert_eq!(samples.last_minute(at(0)).count(), 0);
        for (millis, bytes) in [(500, 1), (900, 2), (1499, 4), (1500, 8), (2700, 16), (9000, 32)] {
            samples.note(at(millis), redo(bytes), Some(millis));
        }
        let seen = |now| {
            let all = samples.last_minute(now).map(|s| (s.age.millis(), s.length.millis(), s.written.redo));
            all.collect::<Vec<_>>()
        };
        let expected = [(0, 300, 32), (5800, 1000, 16), (6800, 1000, 8), (7800, 1000, 7)];
        assert_eq!(seen(at(9300)), expected, "one begins where the one before it ends, or later");
        assert_eq!(seen(at(62_000)), [(52_000, 1000, 32), (58_500, 1000, 16), (59_500, 1000, 8)]);
        assert_eq!(samples.last_minute(at(9300)).map(|s| s.target).last(), Some(Some(1499)));
        assert_eq!(seen(at(200_000)), []);
    }

    #[test]
    fn averages_are_over_whole_seconds() {
        let mut samples = Samples::default();
        for second in 0..100 {
            samples.note(at(second * 1000 + 400), redo(1000 + second), None);
        }
        let now = at(100_100);
        assert_eq!(samples.average(now, 1), redo(1098), "the last second is not over");
        assert_eq!(samples.average(now, 10).redo, (1089..1099).sum::<u64>() / 10);
        assert_eq!(samples.average(now, 60).redo, (1039..1099).sum::<u64>() / 60);
        let later = at(104_500);
        assert_eq!(samples.greatest_redo(later), (1090..1100).sum::<u64>() / 10, "those before the pause");
        samples.note(at(300_000), redo(1), None);
        assert_eq!(samples.greatest_redo(at(301_000)), (1090..1100).sum::<u64>() / 10);
        assert_eq!(samples.average(later, 1), Written::default());
        assert_eq!(samples.average(later, 10).redo, (1094..1100).sum::<u64>() / 10);
    }
}
