//! How far a node has come: whether it is started, and whether it is to stop. It is asked to stop by a signal of the
//! operating system, by the program that it runs in, or by one of its own blocks.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vinga_wire::start::{NodeStartedOrder, StartProgressReport};
use vinga_wire::{ErrorClass, ErrorCode};

/// Why a node stops.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StopCause {
    /// It was asked to, by this.
    Asked(&'static str),
    /// It was asked to, by this, and is to be started again by whoever keeps it running.
    AskedToStartAgain(&'static str),
    /// A block has said that the node can't go on, for this reason (`StopNodeOrder`).
    CannotGoOn(String),
}

impl StopCause {
    /// Of several causes the one that weighs most counts.
    fn weight(&self) -> u8 {
        match self {
            StopCause::AskedToStartAgain(_) => 0,
            StopCause::Asked(_) => 1,
            StopCause::CannotGoOn(_) => 2,
        }
    }
}

/// Where a node is asked to stop, and where its blocks report that it is started. Whoever runs the node waits here, and
/// then lets clients in, or stops it.
#[derive(Default, Debug)]
pub struct StopRequest {
    state: Mutex<State>,
    has_changed: Condvar,
}

#[derive(Default, Debug)]
struct State {
    cause: Option<StopCause>,
    /// The cause is a matter of this moment.
    is_temporary: bool,
    /// How far the start is, if nobody has looked yet.
    progress: Option<StartProgressReport>,
    /// The node is started, and what it has restored.
    started: Option<NodeStartedOrder>,
    /// It is to stop, and everything is on disk.
    is_on_disk: bool,
}

impl StopRequest {
    /// Asks the node to stop. If it was asked before, the first cause counts; but that it is to stop for good counts
    /// before that it is to be started again, and that it can't go on before both.
    pub fn make(&self, cause: StopCause) {
        self.note(cause, false);
    }

    /// The node can't go on, because of this error, if it is one that has a number.
    pub fn fail(&self, why: String, error: Option<ErrorCode>) {
        let is_temporary = error.is_some_and(|error| error.class() == ErrorClass::Temporary);
        self.note(StopCause::CannotGoOn(why), is_temporary);
    }

    fn note(&self, cause: StopCause, is_temporary: bool) {
        let mut state = self.lock();
        if state.cause.as_ref().is_none_or(|before| before.weight() < cause.weight()) {
            (state.cause, state.is_temporary) = (Some(cause), is_temporary);
        }
        self.has_changed.notify_all();
    }

    /// Whether the node can't go on for a reason that need not hold at its next start: others were lost, for example.
    pub fn is_temporary(&self) -> bool {
        self.lock().is_temporary
    }

    /// The node is started: what it has restored from its disk, if it has one and has not started for the first time.
    pub fn note_started(&self, started: NodeStartedOrder) {
        self.lock().started = Some(started);
        self.has_changed.notify_all();
    }

    /// The start has come so far.
    pub fn note_progress(&self, progress: StartProgressReport) {
        self.lock().progress = Some(progress);
        self.has_changed.notify_all();
    }

    /// Everything that was committed is on disk.
    pub fn note_on_disk(&self) {
        self.lock().is_on_disk = true;
        self.has_changed.notify_all();
    }

    /// Why the node is to stop, if it is.
    pub fn cause(&self) -> Option<StopCause> {
        self.lock().cause.clone()
    }

    /// Waits until the node is asked to stop; returns why.
    pub fn wait(&self) -> StopCause {
        let state = self.wait_while(|state| state.cause.is_none());
        state.cause.clone().expect("it was waited for")
    }

    /// Waits until the node is started; returns what it has restored. `show` is called whenever the start has come
    /// further, with the newest report if there were several.
    ///
    /// # Errors
    /// It is to stop before.
    pub fn wait_for_start(
        &self,
        mut show: impl FnMut(StartProgressReport),
    ) -> Result<NodeStartedOrder, StopCause> {
        loop {
            let is_quiet =
                |state: &State| state.cause.is_none() && state.started.is_none() && state.progress.is_none();
            let mut state = self.wait_while(is_quiet);
            if let Some(progress) = state.progress.take() {
                drop(state);
                show(progress);
                continue;
            }
            return match &state.cause {
                Some(cause) => Err(cause.clone()),
                None => Ok(state.started.clone().expect("it was waited for")),
            };
        }
    }

    /// Waits until everything is on disk, at most this long.
    ///
    /// # Errors
    /// Why it is not.
    pub fn wait_for_disk(&self, longest: Duration) -> Result<(), String> {
        let goes_on =
            |state: &mut State| !state.is_on_disk && !matches!(state.cause, Some(StopCause::CannotGoOn(_)));
        let waited = self.has_changed.wait_timeout_while(self.lock(), longest, goes_on);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match &state.cause {
            _ if state.is_on_disk => Ok(()),
            Some(StopCause::CannotGoOn(why)) => Err(why.clone()),
            _ => Err(format!("the disk has not answered for {} s", longest.as_secs_f32())),
        }
    }

    fn wait_while(&self, goes_on: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.has_changed.wait_while(self.lock(), |state| goes_on(state));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use vinga_base::Epoch;
    use vinga_wire::start::Restored;

    fn cannot_go_on() -> StopCause {
        StopCause::CannotGoOn("no disk".to_string())
    }

    #[test]
    fn the_first_cause_counts() {
        let request = Arc::new(StopRequest::default());
        let waiter = std::thread::spawn({
            let request = request.clone();
            move || request.wait()
        });
        request.make(cannot_go_on());
        request.make(StopCause::Asked("SIGTERM"));
        assert_eq!(waiter.join().unwrap(), cannot_go_on());
        assert_eq!(request.wait(), cannot_go_on());
    }

    #[test]
    fn one_that_is_to_stop_for_good_is_not_started_again() {
        let (again, for_good) = (StopCause::AskedToStartAgain("a client"), StopCause::Asked("SIGTERM"));
        let after = |causes: [&StopCause; 2]| {
            let request = StopRequest::default();
            causes.into_iter().for_each(|cause| request.make(cause.clone()));
            request.wait()
        };
        assert_eq!(after([&again, &for_good]), for_good);
        assert_eq!(after([&for_good, &again]), for_good);
        assert_eq!(after([&again, &StopCause::AskedToStartAgain("another one")]), again);
        assert_eq!(after([&again, &cannot_go_on()]), cannot_go_on());
    }

    #[test]
    fn what_others_are_lost_for_says_nothing_of_the_next_start() {
        let after = |errors: &[Option<ErrorCode>]| {
            let request = StopRequest::default();
            request.make(StopCause::Asked("SIGTERM"));
            errors.iter().for_each(|&error| request.fail("why".to_string(), error));
            request.is_temporary()
        };
        assert!(!after(&[]) && !after(&[None]) && !after(&[Some(ErrorCode::DataMemoryFull)]));
        assert!(after(&[Some(ErrorCode::NotInTheView)]) && after(&[Some(ErrorCode::Partitioned), None]));
    }

    #[test]
    fn a_node_that_can_not_go_on_while_it_stops_has_failed() {
        let request = StopRequest::default();
        request.make(StopCause::Asked("SIGTERM"));
        assert_eq!(request.wait(), StopCause::Asked("SIGTERM"));
        request.make(cannot_go_on());
        assert_eq!(request.wait_for_disk(Duration::from_secs(1000)), Err("no disk".to_string()));
        assert_eq!(request.wait(), cannot_go_on());
    }

    #[test]
    fn a_node_is_started_unless_it_is_to_stop_before() {
        let request = Arc::new(StopRequest::default());
        let waiter = std::thread::spawn({
            let request = request.clone();
            move || request.wait_for_start(|_| {})
        });
        let restored = Restored { epoch: Epoch(5), rows: 6, batches: 7, durable_at: 9, millis: 8 };
        let started = NodeStartedOrder { restored: Some(restored), from: Vec::new() };
        request.note_started(started.clone());
        assert_eq!(waiter.join().unwrap(), Ok(started));
        let request = StopRequest::default();
        request.make(cannot_go_on());
        assert_eq!(request.wait_for_start(|_| {}), Err(cannot_go_on()));
    }

    #[test]
    fn the_disk_is_waited_for() {
        let request = StopRequest::default();
        let why = request.wait_for_disk(Duration::from_millis(1)).unwrap_err();
        assert!(why.contains("has not answered"), "{why}");
        request.note_on_disk();
        assert_eq!(request.wait_for_disk(Duration::ZERO), Ok(()));
    }
}
