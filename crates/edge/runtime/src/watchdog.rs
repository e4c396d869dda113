//! The thread that watches the others: each of them counts its turns, and must make some.
//!
//! A thread that is neither asleep nor makes a turn for the set time is reported with its last signals; after three
//! times as long the node stops with a crash report: whatever blocks it would block the cluster.
//!
//! Time is counted in checks by this thread, not by a clock: when the whole process or machine stood still, this thread
//! did too, and no thread is to blame for that. The watchdog only logs it, because clients notice.

use crate::crash;
use crate::last_signals;
use crate::statistics::{Phase, ThreadStatistics};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Checks in the set time.
const LOOKS: u32 = 6;

/// Times the set time after which the node stops.
const STRIKES_MAX: u32 = 3;

struct Watched {
    statistics: Arc<ThreadStatistics>,
    turns: u64,
    /// Checks since it last made progress.
    looks: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Fine,
    Report,
    Stop,
}

impl Watched {
    fn look(&mut self) -> Verdict {
        let turns = self.statistics.turns.get();
        if turns != self.turns || matches!(self.statistics.phase(), Phase::Absent | Phase::Sleeping) {
            self.turns = turns;
            self.looks = 0;
            return Verdict::Fine;
        }
        self.looks += 1;
        match self.looks {
            looks if looks >= STRIKES_MAX * LOOKS => Verdict::Stop,
            looks if looks % LOOKS == 0 => Verdict::Report,
            _ => Verdict::Fine,
        }
    }
}

/// Watches until the other end of `stopped` is dropped.
pub(crate) fn run(threads: &[Arc<ThreadStatistics>], interval: Duration, stopped: &Receiver<()>) {
    let mut watched: Vec<Watched> = threads
        .iter()
        .map(|statistics| Watched { statistics: statistics.clone(), turns: 0, looks: 0 })
        .collect();
    let mut looked = Instant::now();
    while stopped.recv_timeout(interval / LOOKS) == Err(RecvTimeoutError::Timeout) {
        let late = looked.elapsed().saturating_sub(interval / LOOKS);
        looked = Instant::now();
        if late >= interval {
            log::warn!(
                target: "watchdog",
                "the watchdog itself was held up for {} ms: the process stood still, or the machine was overloaded",
                late.as_millis()
            );
        }
        for thread in &mut watched {
            let verdict = thread.look();
            let (name, millis) =
                (&thread.statistics.name, interval.as_millis() * u128::from(thread.looks / LOOKS));
            match verdict {
                Verdict::Fine => {}
                Verdict::Report => {
                    let mut text = String::new();
                    last_signals::write_thread(&thread.statistics, &mut text)
                        .expect("writing to a string succeeds");
                    log::error!(target: "watchdog", "thread {name} has made no progress for {millis} ms: {text}");
                }
                Verdict::Stop => {
                    crash::stop(format_args!(
                        "the watchdog stops the node: thread {name} is stuck for {millis} ms"
                    ));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_strikes_stop() {
        let statistics = ThreadStatistics::new("t");
        let mut watched = Watched { statistics: statistics.clone(), turns: 0, looks: 0 };
        statistics.enter(Phase::Sockets);
        let verdicts: Vec<Verdict> = (0..18).map(|_| watched.look()).collect();
        let reports: Vec<usize> = (0..18).filter(|&at| verdicts[at] == Verdict::Report).collect();
        assert_eq!(reports, [5, 11]);
        assert_eq!(verdicts[17], Verdict::Stop);
        statistics.turns.add(1);
        assert_eq!(watched.look(), Verdict::Fine);
        assert_eq!(watched.looks, 0);
        // It may be asleep for any time.
        statistics.enter(Phase::Sleeping);
        assert!((0..100).all(|_| watched.look() == Verdict::Fine));
    }
}
