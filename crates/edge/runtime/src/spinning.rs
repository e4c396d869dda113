//! Decides whether an idle thread spins for a while or sleeps at once.
//!
//! Spinning saves the wake-up, for the thread and for the one that would have to wake it, if work arrives soon;
//! otherwise it wastes a CPU. So the thread measures, also while it does not spin, how many of its idle spans would
//! have ended within the configured time, and spins only while that is at least one in four. If other processes want
//! its CPU (it is preempted), it does not spin for a while.

/// Weight of the newest span in the average: a sixteenth.
const WEIGHT_SHIFT: u32 = 4;
const ALWAYS: u32 = 1 << 16;
const WORTHWHILE: u32 = ALWAYS / 4;

/// From this many preemptions a second on other processes are assumed to want the CPU.
const PREEMPTIONS_MAX: u64 = 50;

/// Decides for one thread.
pub(crate) struct Spinning {
    nanos_max: u64,
    /// Share of the idle spans that were short, of [`ALWAYS`].
    short: u32,
    is_wanted_by_others: bool,
    preemptions: u64,
}

impl Spinning {
    /// For a thread that may spin this long.
    pub fn new(micros_max: u32) -> Self {
        Spinning {
            nanos_max: u64::from(micros_max) * 1000,
            short: ALWAYS,
            is_wanted_by_others: false,
            preemptions: 0,
        }
    }

    /// How long to spin now.
    pub fn nanos(&self) -> u64 {
        if self.short >= WORTHWHILE && !self.is_wanted_by_others { self.nanos_max } else { 0 }
    }

    /// Notes how long the thread had nothing to do and looked for more.
    pub fn note_awake(&mut self, nanos: u64) {
        self.note_idle(nanos, self.nanos_max);
    }

    /// Notes how long the thread had nothing to do and slept.
    pub fn note_asleep(&mut self, nanos: u64) {
        // Such a span is longer by the wake-up: allow twice as much.
        self.note_idle(nanos, 2 * self.nanos_max);
    }

    fn note_idle(&mut self, nanos: u64, limit: u64) {
        let span = if nanos <= limit { ALWAYS } else { 0 };
        self.short = self.short - (self.short >> WEIGHT_SHIFT) + (span >> WEIGHT_SHIFT);
    }

    /// Notes how often the thread has been preempted since it began; to be called once a second.
    pub fn note_preemptions(&mut self, total: u64) {
        self.is_wanted_by_others = total - self.preemptions > PREEMPTIONS_MAX;
        self.preemptions = total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_only_while_it_pays() {
        let mut spinning = Spinning::new(50);
        assert_eq!(spinning.nanos(), 50_000);
        for _ in 0..100 {
            spinning.note_asleep(1_000_000);
        }
        assert_eq!(spinning.nanos(), 0);
        for _ in 0..20 {
            spinning.note_asleep(20_000);
        }
        assert_eq!(spinning.nanos(), 50_000);
        spinning.note_preemptions(1000);
        assert_eq!(spinning.nanos(), 0);
        spinning.note_preemptions(1001);
        assert_eq!(spinning.nanos(), 50_000);
        assert_eq!(Spinning::new(0).nanos(), 0);
    }
}
