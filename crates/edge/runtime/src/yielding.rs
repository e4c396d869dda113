//! Decides whether a thread whose clients are on this machine yields before it sleeps.
//!
//! When the CPUs are busy, the threads that run meanwhile are clients that are about to send something: after a yield
//! requests of several of them lie in shared memory, this thread did not have to be woken, and a turn handles all of
//! them. When only one client has anything to do, or the others are unrelated processes, a yield gives a time slice
//! away for nothing, whereas a thread that sleeps is woken at once. So the thread measures how much its turns after a
//! yield found, yields while that is at least [`WORTHWHILE`] on average, and otherwise tries once in [`TRIED_EVERY`]
//! times.

/// From this many signals in a turn after a yield on, yielding pays; in [`ONE`]s.
const WORTHWHILE: u64 = 3 * ONE / 2;
const ONE: u64 = 1 << 8;
/// No turn counts for more.
const SIGNALS_MAX: u64 = 16;
/// While it does not pay, it is tried once in this many times.
const TRIED_EVERY: u32 = 64;
/// Weight of the newest turn in the average: an eighth.
const WEIGHT_SHIFT: u32 = 3;

/// Decides for one thread.
#[derive(Default)]
pub(crate) struct Yielding {
    /// Signals in a turn after a yield, on average, in [`ONE`]s.
    found: u64,
    /// Rests without a yield since the last one with.
    skipped: u32,
    /// Signals that the thread had handled when it yielded last, if the turn after it is not over.
    handled_before: Option<u64>,
}

impl Yielding {
    /// To be called at each rest, with the number of signals that the thread has handled so far: whether to yield.
    pub fn pays(&mut self, handled: u64) -> bool {
        if let Some(before) = self.handled_before.take() {
            let found = (handled - before).min(SIGNALS_MAX) * ONE;
            self.found = self.found - (self.found >> WEIGHT_SHIFT) + (found >> WEIGHT_SHIFT);
        }
        self.skipped += 1;
        let pays = self.found >= WORTHWHILE || self.skipped >= TRIED_EVERY;
        if pays {
            self.skipped = 0;
            self.handled_before = Some(handled);
        }
        pays
    }

    /// Signals in a turn after a yield, on average: about as many other threads ran meanwhile.
    pub fn found(&self) -> u32 {
        (self.found / ONE) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yields_while_requests_gather_meanwhile() {
        let mut yielding = Yielding::default();
        let mut handled = 0;
        let mut rests = |signals: u64, count: u32| {
            (0..count)
                .filter(|_| {
                    let yields = yielding.pays(handled);
                    handled += signals;
                    yields
                })
                .count()
        };
        assert!(rests(1, 640) <= 10, "one request at a time");
        rests(12, 64 * 8);
        assert_eq!(rests(12, 100), 100, "many");
        rests(1, 60);
        assert!(rests(1, 640) <= 10, "one at a time again");
    }
}
