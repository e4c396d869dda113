//! Clients that work at the same time until they are stopped, and pause on request.

use crate::client::Seen;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

#[derive(Default)]
struct State {
    shall_pause: bool,
    shall_stop: bool,
    /// Number of clients that wait between two pieces of work.
    paused: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    on_change: Condvar,
}

const NO_PANIC: &str = "nothing panics while it holds this lock";

/// Maximum time for clients to pause.
const PAUSE_PATIENCE: Duration = crate::HANG_GUARD;

/// A client of a load, which does one piece of work after another.
pub trait Worker: Send + 'static {
    /// Does a piece of work.
    fn work(&mut self);

    /// The statistics of its clients so far.
    fn seen(&self) -> Seen;
}

/// A number of clients that run at the same time.
#[derive(Default)]
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Seen>>,
}

impl Load {
    /// Starts a client.
    pub fn add(&mut self, mut worker: impl Worker) {
        let shared = Arc::clone(&self.shared);
        self.threads.push(std::thread::spawn(move || {
            while shared.may_work() {
                worker.work();
            }
            worker.seen()
        }));
    }

    /// Waits until all clients pause. Panics if one has panicked, or does not pause for too long.
    pub fn pause(&self) {
        let mut state = self.shared.state.lock().expect(NO_PANIC);
        state.shall_pause = true;
        let mut waited = Duration::ZERO;
        while state.paused < self.threads.len() {
            let look = Duration::from_millis(100);
            state = self.shared.on_change.wait_timeout(state, look).expect(NO_PANIC).0;
            waited += look;
            assert!(!self.threads.iter().any(JoinHandle::is_finished), "a client has panicked");
            assert!(waited < PAUSE_PATIENCE, "a client does not pause");
        }
    }

    /// Lets all clients continue.
    pub fn go_on(&self) {
        self.shared.state.lock().expect(NO_PANIC).shall_pause = false;
        self.shared.on_change.notify_all();
    }

    /// Stops all clients; returns their statistics.
    pub fn stop(mut self) -> Seen {
        let mut seen = Seen::default();
        self.tell_to_stop();
        for thread in self.threads.drain(..) {
            seen.add(&thread.join().expect("a client has panicked"));
        }
        seen
    }

    fn tell_to_stop(&self) {
        self.shared.state.lock().expect(NO_PANIC).shall_stop = true;
        self.shared.on_change.notify_all();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.tell_to_stop();
    }
}

impl Shared {
    /// Waits while the clients have to pause; returns whether to continue.
    fn may_work(&self) -> bool {
        let mut state = self.state.lock().expect(NO_PANIC);
        if state.shall_pause {
            state.paused += 1;
            self.on_change.notify_all();
            while state.shall_pause && !state.shall_stop {
                state = self.on_change.wait(state).expect(NO_PANIC);
            }
            state.paused -= 1;
        }
        !state.shall_stop
    }
}
