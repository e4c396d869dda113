//! The thread that does what nobody waits for.

use super::reader::Waiter;
use super::{Engine, LONGEST_SLEEP, let_go};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use vinga_client_core::Span;

/// Starts it; it ends when the engine is closed.
pub fn start(engine: &Arc<Engine>) -> io::Result<()> {
    let own = Arc::clone(engine);
    let thread = thread::Builder::new().name("vinga-io".into()).spawn(move || own.run_io_thread())?;
    engine.io_thread.set(thread.thread().clone()).expect("it is started once");
    Ok(())
}

impl Engine {
    fn run_io_thread(self: Arc<Self>) {
        let mut wakers = Vec::new();
        loop {
            let mut state = self.lock();
            state.client.on_time(self.now());
            state = self.write_out(state);
            state.end_if_left(self.now());
            if state.is_closed {
                return let_go(state);
            }
            state.take_wakers(&self, &mut wakers);
            state.io_attends = state.needs_io_thread();
            let (attends, sleep) = (state.io_attends, state.sleep(self.now()));
            let_go(state);
            wakers.drain(..).for_each(std::task::Waker::wake);
            // If another thread reads already it serves everybody, and hands over to us when it leaves.
            if let Some(mut reader) = self.try_read() {
                let mut longest = if attends { LONGEST_SLEEP } else { Span(0) };
                loop {
                    self.read_turn(&mut reader, Waiter::NOBODY, longest);
                    let mut state = self.lock();
                    state.io_attends = state.needs_io_thread();
                    if !state.io_attends || state.leaves_until.is_some() {
                        break;
                    }
                    longest = LONGEST_SLEEP;
                }
                drop(reader);
                self.hand_over_to_parked();
                if attends {
                    continue;
                }
            }
            thread::park_timeout(Duration::from_micros(sleep.min(LONGEST_SLEEP).0));
        }
    }

    /// As [`Engine::hand_over`], by the thread that is the last resort itself.
    fn hand_over_to_parked(&self) {
        let parked = self.lock().parking.any();
        if let Some(thread) = parked {
            thread.unpark();
        }
    }
}
