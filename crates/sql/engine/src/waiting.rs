//! Waits that end when the result is there, when the session is killed, or when they have taken too long.
//!
//! A future is run on the session's own thread, which does its own input and output meanwhile
//! ([`vinga::blocking::Cluster::block_on`]). A kill of the session wakes that thread; a wait that takes too long is
//! detected by the node's watchdog, which checks all sessions several times a second and wakes those that are overdue.
//! A future that is abandoned is dropped, which leaves no lock and no open scan behind.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;

/// Why a wait ended early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The session was killed.
    Killed,
    /// It took longer than allowed.
    TimedOut,
}

/// Result of a wait.
pub struct Ended<T> {
    /// The output of the future, or why the wait was ended.
    pub output: Result<T, Stop>,
    /// Whether it needed an answer of the data nodes. An answer may arrive while the future is polled for the first
    /// time, so that it never waits; that is a round trip all the same.
    pub is_round_trip: bool,
}

/// The waiting state of a session. Shared with those that may end the wait.
pub struct Waiter {
    began: Instant,
    is_killed: AtomicBool,
    /// When the current wait is overdue, in milliseconds since `began`; 0 if nothing is waited for.
    due_ms: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

const NO_PANIC: &str = "nothing panics while it holds a waker";

impl Default for Waiter {
    /// A waiter that waits for nothing.
    fn default() -> Self {
        Waiter {
            began: Instant::now(),
            is_killed: AtomicBool::new(false),
            due_ms: AtomicU64::new(0),
            waker: Mutex::new(None),
        }
    }
}

impl Waiter {
    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Ends the current wait and all later ones.
    pub fn kill(&self) {
        self.is_killed.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Allows waits again after a kill.
    pub fn revive(&self) {
        if self.is_killed.load(Ordering::Relaxed) {
            self.is_killed.store(false, Ordering::SeqCst);
        }
    }

    /// Whether it was killed.
    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Relaxed)
    }

    /// Ready once the session is killed. It must be polled within the future that is run, as only that is woken.
    pub fn killed(&self) -> impl Future<Output = ()> {
        poll_fn(|_| match self.is_killed.load(Ordering::SeqCst) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
    }

    fn wake(&self) {
        let waker = self.waker.lock().expect(NO_PANIC).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// How long it has waited, in ms, given the maximum duration of a wait in ms; `None` if it does not wait.
    pub fn waits_ms(&self, longest_ms: u64) -> Option<u64> {
        let due = self.due_ms.load(Ordering::Relaxed);
        (due != 0).then(|| (self.now_ms() + longest_ms + 1).saturating_sub(due))
    }

    /// Wakes it if it has waited too long.
    pub fn look(&self) {
        let due = self.due_ms.load(Ordering::Relaxed);
        if due != 0 && self.now_ms() > due {
            self.wake();
        }
    }

    /// Pauses, unless the session is killed.
    pub fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        *self.waker.lock().expect(NO_PANIC) = Some(Waker::from(Arc::new(Sleeper(thread::current()))));
        // A kill just before this may have found no waker.
        while !self.is_killed.load(Ordering::SeqCst) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::park_timeout(left);
        }
        *self.waker.lock().expect(NO_PANIC) = None;
    }

    /// Runs a future on this thread, at most for `longest_ms`.
    pub fn run<F: Future>(&self, cluster: &Cluster, longest_ms: u64, future: F) -> Ended<F::Output> {
        self.run_bounded(cluster, longest_ms, future, AtKill::End)
    }

    /// Like [`Waiter::run`], but a kill does not end the wait.
    pub fn run_to_the_end<F: Future>(
        &self,
        cluster: &Cluster,
        longest_ms: u64,
        future: F,
    ) -> Ended<F::Output> {
        self.run_bounded(cluster, longest_ms, future, AtKill::GoOn)
    }

    fn run_bounded<F: Future>(
        &self,
        cluster: &Cluster,
        longest_ms: u64,
        future: F,
        at_kill: AtKill,
    ) -> Ended<F::Output> {
        let future = pin!(future);
        let mut bounded = Bounded { future, waiter: self, longest_ms, at_kill, has_waited: false };
        let answers_before = Cluster::answers_on_this_thread();
        let output = cluster.block_on(&mut bounded);
        let has_answer = Cluster::answers_on_this_thread() != answers_before;
        Ended { output, is_round_trip: bounded.has_waited || has_answer }
    }
}

/// A thread that pauses.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What a kill of the session does to a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtKill {
    End,
    GoOn,
}

struct Bounded<'a, F: Future> {
    future: Pin<&'a mut F>,
    waiter: &'a Waiter,
    longest_ms: u64,
    at_kill: AtKill,
    has_waited: bool,
}

impl<F: Future> Bounded<'_, F> {
    fn is_killed(&self) -> bool {
        self.at_kill == AtKill::End && self.waiter.is_killed.load(Ordering::SeqCst)
    }
}

impl<F: Future> Future for Bounded<'_, F> {
    type Output = Result<F::Output, Stop>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waiter = self.waiter;
        if self.at_kill == AtKill::End && waiter.is_killed() {
            return Poll::Ready(Err(Stop::Killed));
        }
        if let Poll::Ready(output) = self.future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        if self.has_waited {
            if waiter.now_ms() > waiter.due_ms.load(Ordering::Relaxed) {
                return Poll::Ready(Err(Stop::TimedOut));
            }
            return Poll::Pending;
        }
        self.has_waited = true;
        waiter.due_ms.store(waiter.now_ms() + self.longest_ms + 1, Ordering::Relaxed);
        *waiter.waker.lock().expect(NO_PANIC) = Some(context.waker().clone());
        // A kill just before this may have found no waker.
        if self.is_killed() {
            return Poll::Ready(Err(Stop::Killed));
        }
        if waiter.is_killed() {
            return self.future.as_mut().poll(context).map(Ok);
        }
        Poll::Pending
    }
}

impl<F: Future> Drop for Bounded<'_, F> {
    fn drop(&mut self) {
        if self.has_waited {
            self.waiter.due_ms.store(0, Ordering::Relaxed);
            *self.waiter.waker.lock().expect(NO_PANIC) = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_lasts_until_its_time_or_a_kill() {
        let waiter = Waiter::default();
        let began = Instant::now();
        waiter.pause(Duration::from_millis(20));
        assert!(began.elapsed() >= Duration::from_millis(20));
        // These pauses would last for years.
        const YEARS: Duration = Duration::from_secs(1 << 28);
        thread::scope(|scope| {
            let pausing = scope.spawn(|| waiter.pause(YEARS));
            thread::sleep(Duration::from_millis(20));
            waiter.kill();
            pausing.join().expect("it ends");
        });
        waiter.pause(YEARS);
        waiter.revive();
        waiter.pause(Duration::from_millis(1));
    }
}
