//! The real-time scheduler, and the guard that keeps a real-time thread from starving the machine.
//!
//! A thread at real-time priority is never preempted by an ordinary one. So one that has run for [`RUN_NANOS_MAX`]
//! without sleeping goes down to normal priority for [`REST_NANOS`], and if it is still busy then, it goes up again: no
//! other thread waits for longer than that, and it keeps at least half of the CPU at real-time priority.

use std::io;

/// Nanoseconds that a thread may run at real-time priority without sleeping.
const RUN_NANOS_MAX: u64 = 50_000_000;

/// Nanoseconds that it then stays at normal priority.
const REST_NANOS: u64 = 50_000_000;

/// The lowest real-time priority: above every ordinary thread, below all threads that others made real-time on purpose.
const PRIORITY: i32 = 1;

/// Switches the calling thread between the schedulers as its plan and the guard demand.
pub(crate) struct Realtime {
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not configured, or refused.
    Never,
    /// Real-time priority; awake since then.
    High { awake_since: u64 },
    /// Normal priority, since then.
    Low { since: u64 },
}

impl Realtime {
    /// For a thread that never runs at real-time priority.
    pub fn never() -> Self {
        Realtime { state: State::Never }
    }

    /// Makes the calling thread real-time. If the system refuses, it stays an ordinary thread and the text says what
    /// would help.
    pub fn begin(now: u64) -> (Self, Option<String>) {
        match set_scheduler(libc::SCHED_RR, PRIORITY) {
            Ok(()) => (Realtime { state: State::High { awake_since: now } }, None),
            Err(why) => (
                Self::never(),
                Some(format!(
                    "real-time scheduling was refused ({why}): the thread runs at normal priority. It needs the \
                     capability CAP_SYS_NICE, or a limit RLIMIT_RTPRIO (ulimit -r) of at least {PRIORITY}"
                )),
            ),
        }
    }

    /// To be called when the thread has slept.
    #[inline]
    pub fn slept(&mut self, now: u64) {
        match self.state {
            State::Never => {}
            State::High { .. } => self.state = State::High { awake_since: now },
            State::Low { .. } => self.rise(now),
        }
    }

    /// To be called in each turn.
    #[inline]
    pub fn turn(&mut self, now: u64) {
        match self.state {
            State::Never => {}
            State::High { awake_since } if now.saturating_sub(awake_since) > RUN_NANOS_MAX => self.fall(now),
            State::Low { since } if now.saturating_sub(since) > REST_NANOS => self.rise(now),
            State::High { .. } | State::Low { .. } => {}
        }
    }

    fn rise(&mut self, now: u64) {
        if set_scheduler(libc::SCHED_RR, PRIORITY).is_ok() {
            self.state = State::High { awake_since: now };
        }
    }

    fn fall(&mut self, now: u64) {
        if set_scheduler(libc::SCHED_OTHER, 0).is_ok() {
            self.state = State::Low { since: now };
        }
    }
}

/// From now on the calling thread runs only when no other thread wants its CPU.
///
/// # Errors
/// The system refuses it.
pub(crate) fn become_idle() -> io::Result<()> {
    set_scheduler(libc::SCHED_IDLE, 0)
}

fn set_scheduler(policy: i32, priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the call only reads the parameters; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduler() -> i32 {
        // SAFETY: the call has no memory effects; 0 is the calling thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn a_busy_thread_goes_down_and_up_again() {
        std::thread::spawn(|| {
            let (mut realtime, refusal) = Realtime::begin(0);
            if let Some(refusal) = refusal {
                assert!(refusal.contains("CAP_SYS_NICE"));
                assert_eq!(scheduler(), libc::SCHED_OTHER);
                return;
            }
            assert_eq!(scheduler(), libc::SCHED_RR);
            realtime.slept(100);
            realtime.turn(100 + RUN_NANOS_MAX);
            assert_eq!(scheduler(), libc::SCHED_RR);
            realtime.turn(101 + RUN_NANOS_MAX);
            assert_eq!(scheduler(), libc::SCHED_OTHER);
            realtime.turn(102 + RUN_NANOS_MAX);
            assert_eq!(scheduler(), libc::SCHED_OTHER);
            realtime.slept(103 + RUN_NANOS_MAX);
            assert_eq!(scheduler(), libc::SCHED_RR);
            realtime.turn(200 + 2 * RUN_NANOS_MAX);
            assert_eq!(scheduler(), libc::SCHED_OTHER);
            realtime.turn(300 + 2 * RUN_NANOS_MAX + REST_NANOS);
            assert_eq!(scheduler(), libc::SCHED_RR);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn without_the_privilege_there_is_a_warning() {
        std::thread::spawn(|| {
            // Root keeps the capability: remove the thread's own, as for an ordinary user.
            use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
            let Ok(mut sets) = capabilities(None) else { return };
            sets.effective.remove(CapabilitySet::SYS_NICE);
            set_capabilities(None, sets).unwrap();
            let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
            let _ = rustix::process::setrlimit(rustix::process::Resource::Rtprio, none);
            let (_, refusal) = Realtime::begin(0);
            assert!(refusal.unwrap().contains("RLIMIT_RTPRIO"));
        })
        .join()
        .unwrap();
    }
}
