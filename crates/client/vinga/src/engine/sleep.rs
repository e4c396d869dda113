//! A future that ends when so much time has passed.

use super::Engine;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use vinga_client_core::Tick;

/// See [`Engine::sleep_until`].
pub(crate) struct Sleep {
    engine: Arc<Engine>,
    until: Tick,
    /// Which of the timers is its own, once it has waited.
    number: Option<u64>,
}

impl Sleep {
    pub fn new(engine: &Arc<Engine>, until: Tick) -> Self {
        Sleep { engine: Arc::clone(engine), until, number: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.engine.now() >= self.until {
            return Poll::Ready(());
        }
        let mut state = self.engine.lock();
        let number = self.number.unwrap_or_else(|| {
            state.timers_begun += 1;
            state.timers_begun
        });
        let before = state.timers.insert((self.until, number), context.waker().clone());
        drop(state);
        self.engine.wake_io_thread();
        drop(before);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let waker = self.engine.lock().timers.remove(&(self.until, number));
        // Not under the lock: a whole task may go with it.
        drop(waker);
    }
}
