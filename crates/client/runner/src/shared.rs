//! What all sessions of a run share: its clock, what is written down, how far it is.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};
use vinga_workloads::history::{History, Time};
use vinga_workloads::step::{Fate, TableRef};

/// How often somebody who waits looks whether there is an end to it.
pub(crate) const LOOK: Duration = Duration::from_millis(1);
/// How long nothing is committed at most while somebody waits for that: no machine is so busy.
const HANG_GUARD: Duration = Duration::from_secs(180);

pub(crate) struct Shared {
    begun: Instant,
    history: Mutex<History>,
    /// What can't be true, whatever else was answered.
    violations: Mutex<Vec<String>>,
    committed: AtomicU64,
    /// Sessions that have not ended.
    running: AtomicU64,
    is_stopped: AtomicBool,
}

impl Shared {
    /// Of a run in which the rows of these tables are lists.
    pub fn new(lists: BTreeSet<TableRef>) -> Self {
        Shared {
            begun: Instant::now(),
            history: Mutex::new(History { lists, ..History::default() }),
            violations: Mutex::default(),
            committed: AtomicU64::new(0),
            running: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Microseconds since the beginning. One clock for all: what ended before something else began has the smaller
    /// number, or the same.
    pub fn now(&self) -> Time {
        self.begun.elapsed().as_micros() as Time
    }

    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("nobody panics with it")
    }

    pub fn violate(&self, what: impl IntoIterator<Item = String>) {
        self.violations.lock().expect("nobody panics with it").extend(what);
    }

    pub fn into_parts(self) -> (History, Vec<String>) {
        let no_panic = "nobody panics with it";
        (self.history.into_inner().expect(no_panic), self.violations.into_inner().expect(no_panic))
    }

    pub fn count(&self, fate: Fate) {
        if matches!(fate, Fate::Committed(_)) {
            self.committed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// So many sessions begin.
    pub fn begin(&self, sessions: usize) {
        self.running.store(sessions as u64, Ordering::Relaxed);
        self.is_stopped.store(false, Ordering::Relaxed);
    }

    /// Runs a session, whose end is counted however it comes.
    pub fn until_ended<R>(&self, session: impl FnOnce() -> R) -> R {
        struct Ending<'a>(&'a AtomicU64);
        impl Drop for Ending<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let _ending = Ending(&self.running);
        session()
    }

    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Does nothing for so long, or until sessions are stopped.
    pub fn pause(&self, micros: Time) {
        let until = Instant::now() + Duration::from_micros(micros);
        while !self.is_stopped()
            && let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            thread::sleep(left.min(LOOK));
        }
    }
}

/// How far the sessions of a run are.
pub struct Progress<'a> {
    shared: &'a Shared,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Self {
        Progress { shared }
    }

    /// Transactions that were committed, those that filled the tables among them.
    pub fn committed(&self) -> u64 {
        self.shared.committed.load(Ordering::Relaxed)
    }

    /// Whether all sessions have ended.
    pub fn is_over(&self) -> bool {
        self.shared.running.load(Ordering::Relaxed) == 0
    }

    /// Waits until so many more transactions were committed, or all sessions have ended.
    ///
    /// # Panics
    /// Nothing is committed any more, for minutes.
    pub fn wait_for(&self, more: u64) {
        let enough = self.committed() + more;
        let (mut newest, mut since) = (self.committed(), Instant::now());
        while newest < enough && !self.is_over() {
            thread::sleep(LOOK);
            if self.committed() > newest {
                (newest, since) = (self.committed(), Instant::now());
            }
            assert!(since.elapsed() < HANG_GUARD, "no transaction is committed any more");
        }
    }

    /// Waits until something is so, or all sessions have ended.
    ///
    /// # Panics
    /// It is not so for minutes.
    pub fn wait_until(&self, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() && !self.is_over() {
            thread::sleep(LOOK);
            assert!(begun.elapsed() < HANG_GUARD, "what is waited for does not happen");
        }
    }

    /// Sessions begin nothing new from now on.
    pub fn stop(&self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        // A test that has failed does not wait for sessions that would go on and on.
        if thread::panicking() {
            self.stop();
        }
    }
}
