//! Detects whether a thread that waits by yielding loses time slices to unrelated processes.
//!
//! A yield gives the CPU to any thread that wants it. As long as those are sessions, clients and data nodes that wait
//! for each other, each keeps it for some microseconds, and a yield saves two wake-ups. An unrelated thread that
//! computes (a build, somebody else's server) keeps it for a whole time slice, some milliseconds, while a thread that
//! sleeps gets the CPU as soon as it is woken. One such yield costs as much as about sixty short ones have saved. So
//! accounts are kept: a short yield is a gain, a long one the loss of its time. After a loss that no gains cover,
//! yields are avoided for a while, which is longer each time that too few short ones follow it.

use core::time::Duration;

/// A yield may take this long whoever runs meanwhile: less than the shortest usual time slice.
const LONG: Duration = Duration::from_micros(300);

/// It may take this much longer for each thread that may have run meanwhile.
const LONG_EACH: Duration = Duration::from_micros(60);

/// Microseconds that a short yield saves: an estimate, of the order of the time to wake two threads.
const GAIN_MICROS: i64 = 50;

/// Upper bound of the kept gains, microseconds: enough for some time slices.
const GAINS_MAX: i64 = 10_000;

/// Waits without yields after the first loss; the maximum is below.
const PAUSE_MIN: u32 = 64;
const PAUSE_MAX: u32 = 4096;

/// The account of gains and losses of one thread's yields.
pub struct TimeSlices {
    /// In microseconds.
    gains: i64,
    /// Waits that must still pass without yields.
    left: u32,
    /// How many there were after the last loss; 0 if it is too long ago to count.
    pause: u32,
    /// Short yields since then.
    short: u32,
}

impl Default for TimeSlices {
    fn default() -> Self {
        TimeSlices { gains: GAINS_MAX, left: 0, pause: 0, short: 0 }
    }
}

impl TimeSlices {
    /// To be called at each wait that could use yields: whether it may.
    #[inline]
    pub fn may_yield(&mut self) -> bool {
        let may = self.left == 0;
        self.left = self.left.saturating_sub(1);
        may
    }

    /// A yield has taken this long, while `others` other threads that also wait by yielding may have run.
    #[inline]
    pub fn note(&mut self, took: Duration, others: u32) {
        if took <= LONG + LONG_EACH * others {
            self.gains = (self.gains + GAIN_MICROS).min(GAINS_MAX);
            self.short = self.short.saturating_add(1);
            if self.short >= self.pause {
                self.pause = 0;
            }
            return;
        }
        self.gains -= i64::try_from(took.as_micros()).unwrap_or(GAINS_MAX);
        if self.gains < 0 {
            self.gains = 0;
            if self.left == 0 {
                self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
                (self.left, self.short) = (self.pause, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(20);
    const SLICE: Duration = Duration::from_millis(3);

    /// Number of yields in `waits` waits, each of which takes as long as `took` says.
    fn yields(slices: &mut TimeSlices, waits: u32, took: impl Fn(u32) -> Duration) -> u32 {
        let mut yields = 0;
        for _ in 0..waits {
            if slices.may_yield() {
                slices.note(took(yields), 0);
                yields += 1;
            }
        }
        yields
    }

    #[test]
    fn others_get_few_time_slices() {
        let mut slices = TimeSlices::default();
        assert_eq!(yields(&mut slices, 1_000, |_| SHORT), 1_000);
        // Four: at once, then one after 64 waits, 128, 256 and so on up to 4096.
        let waits = 3 + 65 + 129 + 257 + 513 + 1_025 + 2_049 + 4_097 + 1;
        assert_eq!(yields(&mut slices, waits, |_| SLICE), 4 + 7);
        assert_eq!(yields(&mut slices, 3 * PAUSE_MAX, |_| SHORT), 3 * PAUSE_MAX - PAUSE_MAX);
        // By then the last loss is too long ago to count.
        assert_eq!(yields(&mut slices, 3 + 65, |_| SLICE), 4);
    }

    #[test]
    fn a_long_yield_now_and_then_is_made_up_for() {
        let mut slices = TimeSlices::default();
        let each = |every: u32| move |at: u32| if at.is_multiple_of(every) { SLICE } else { SHORT };
        assert_eq!(yields(&mut slices, 100_000, each(100)), 100_000);
        assert!(yields(&mut slices, 100_000, each(20)) < 10_000);
    }

    #[test]
    fn whoever_waits_in_the_same_way_may_have_its_turn() {
        let mut slices = TimeSlices { gains: 0, ..TimeSlices::default() };
        slices.note(Duration::from_millis(2), 40);
        assert!(slices.may_yield());
        slices.note(Duration::from_millis(2), 20);
        assert!(!slices.may_yield());
    }

    #[test]
    fn several_at_a_time_count_once() {
        let mut slices = TimeSlices::default();
        for _ in 0..20 {
            slices.note(SLICE, 0);
        }
        assert_eq!(yields(&mut slices, PAUSE_MIN, |_| SHORT), 0);
        assert_eq!(yields(&mut slices, 1, |_| SHORT), 1);
    }
}
