//! What each thread does, in figures that any thread may read while it runs.
//!
//! Each counter has one writer, its thread, which adds by a plain load and store: that costs what an ordinary counter
//! costs. Readers see values that are a turn old at most.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Where a thread is in its turn, for the watchdog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// Has not begun its first turn, or has ended.
    Absent,
    /// Waits for something to do.
    Sleeping,
    /// Polls for something to do.
    Spinning,
    /// Handles input from sockets.
    Sockets,
    /// Handles frames from other threads.
    Rings,
    /// Handles timers and long work.
    Timers,
    /// Sends.
    Sending,
}

impl Phase {
    const ALL: [Phase; 7] = [
        Phase::Absent,
        Phase::Sleeping,
        Phase::Spinning,
        Phase::Sockets,
        Phase::Rings,
        Phase::Timers,
        Phase::Sending,
    ];

    /// In words.
    pub const fn describe(self) -> &'static str {
        match self {
            Phase::Absent => "not running",
            Phase::Sleeping => "sleeping",
            Phase::Spinning => "spinning",
            Phase::Sockets => "handling what came from sockets",
            Phase::Rings => "handling what came from other threads",
            Phase::Timers => "handling timers and long work",
            Phase::Sending => "sending",
        }
    }
}

/// A counter with one writer.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// For the writer: adds.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.get().wrapping_add(count), Ordering::Relaxed);
    }

    /// For the writer: sets.
    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// The figures of one thread. Written by that thread alone; readers see values that are a turn old at most.
#[derive(Default, Debug)]
#[repr(align(128))]
pub struct ThreadStatistics {
    /// The thread's name.
    pub name: String,
    /// The thread's id in the operating system; 0 before it runs.
    pub thread_id: Counter,
    /// Turns begun.
    pub turns: Counter,
    /// Signals handled by blocks of the thread.
    pub signals: Counter,
    /// Nanoseconds in turns.
    pub busy_nanos: Counter,
    /// Nanoseconds spent polling for something to do.
    pub spin_nanos: Counter,
    /// Nanoseconds asleep.
    pub sleep_nanos: Counter,
    /// How often it went to sleep.
    pub sleeps: Counter,
    /// Turns that began because it had slept for the maximum time, and that nevertheless found something to move: the
    /// thread that had left it there should have woken this one.
    pub missed_wakeups: Counter,
    /// Calls of `epoll_wait` and `sched_yield`.
    pub waits: Counter,
    /// Reads from sockets.
    pub reads: Counter,
    /// Writes to sockets.
    pub writes: Counter,
    /// Other threads, and clients on this machine, that it had to wake.
    pub wakes: Counter,
    /// Bytes read from sockets.
    pub bytes_read: Counter,
    /// Bytes written to sockets.
    pub bytes_written: Counter,
    /// Bytes sent to other threads.
    pub bytes_to_threads: Counter,
    /// Bytes that wait to be sent, to sockets and to threads, as of the last turn.
    pub bytes_waiting: Counter,
    /// Open connections.
    pub connections: Counter,
    /// Connections that were closed, by either side.
    pub connections_closed: Counter,
    /// CPU time in user mode, as the system counts it; sampled once a second.
    pub cpu_user_micros: Counter,
    /// CPU time in the kernel, likewise.
    pub cpu_system_micros: Counter,
    /// How often the thread was preempted, likewise.
    pub preemptions: Counter,
    phase: AtomicU8,
}

impl ThreadStatistics {
    /// Zeros, for a thread of this name.
    pub fn new(name: &str) -> Arc<Self> {
        Arc::new(ThreadStatistics { name: name.to_string(), ..ThreadStatistics::default() })
    }

    /// Where the thread is in its turn.
    pub fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Ordering::Relaxed))]
    }

    #[inline]
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// For the thread itself: samples the system's figures about it.
    pub(crate) fn sample_cpu(&self) {
        let usage = thread_usage();
        let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        self.cpu_user_micros.set(micros(usage.ru_utime));
        self.cpu_system_micros.set(micros(usage.ru_stime));
        self.preemptions.set(usage.ru_nivcsw as u64);
    }

    /// System calls of turns, all kinds together.
    pub fn system_calls(&self) -> u64 {
        self.waits.get() + self.reads.get() + self.writes.get() + self.wakes.get()
    }

    /// Grows with everything that a turn takes or sends.
    pub(crate) fn moved(&self) -> u64 {
        self.signals.get() + self.bytes_read.get() + self.bytes_written.get() + self.bytes_to_threads.get()
    }

    /// CPU time as of the last sample, in nanoseconds.
    pub fn cpu_nanos(&self) -> u64 {
        (self.cpu_user_micros.get() + self.cpu_system_micros.get()) * 1000
    }
}

fn thread_usage() -> libc::rusage {
    // SAFETY: an all-zero `rusage` is valid, and `getrusage` writes only into it.
    unsafe {
        let mut usage = std::mem::zeroed();
        let result = libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        assert!(result == 0, "a thread may ask for its own usage");
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_knows_what_it_used() {
        let statistics = ThreadStatistics::new("t");
        let begin = std::time::Instant::now();
        while statistics.cpu_nanos() <= 5_000_000 {
            assert!(begin.elapsed().as_secs() < 20, "time is counted");
            statistics.sample_cpu();
        }
        assert_eq!(statistics.phase(), Phase::Absent);
        for phase in Phase::ALL {
            statistics.enter(phase);
            assert_eq!(statistics.phase(), phase);
        }
    }
}
