//! Pauses between attempts.

use crate::engine::Engine;
use std::any::Any;
use std::sync::Arc;
use vinga_client_core::{Error, Result, Span};

/// Attempts, at most.
const ATTEMPTS_MAX: u32 = 24;
/// The first pause, and the longest; it doubles from one to the other.
const PAUSES: (Span, Span) = (Span(500), Span::from_millis(250));

/// The pauses of one piece of work.
pub(crate) struct Pauses {
    engine: Arc<Engine>,
    attempts: u32,
}

impl Pauses {
    pub fn new(engine: &Arc<Engine>) -> Self {
        Pauses { engine: Arc::clone(engine), attempts: 0 }
    }

    /// Lets some time pass, or gives the error back if it was tried often enough.
    pub async fn pause<E>(&mut self, error: E) -> Result<(), E> {
        self.attempts += 1;
        if self.attempts == ATTEMPTS_MAX {
            return Err(error);
        }
        let longest = Span(PAUSES.0.0 << self.attempts.min(16)).min(PAUSES.1);
        let now = self.engine.now();
        // Between a half and the whole of it, so that those that collided do not meet again; the time is random enough.
        let until = now + Span(longest.0 / 2 + now.0 % (longest.0 / 2));
        self.engine.sleep_until(until).await;
        Ok(())
    }
}

/// A pause; the first of a piece of work makes its [`Pauses`].
pub(crate) async fn pause_once_more(
    pauses: &mut Option<Pauses>,
    engine: &Arc<Engine>,
    error: Error,
) -> Result<()> {
    pauses.get_or_insert_with(|| Pauses::new(engine)).pause(error).await
}

/// Whether an error of whatever type is a temporary one of ours, or holds one in a box.
pub(crate) fn is_temporary<E: 'static>(error: &E) -> bool {
    type Boxed = Box<dyn std::error::Error>;
    type BoxedForThreads = Box<dyn std::error::Error + Send + Sync>;
    let error: &dyn Any = error;
    let ours = error
        .downcast_ref::<Error>()
        .or_else(|| error.downcast_ref::<Boxed>()?.downcast_ref())
        .or_else(|| error.downcast_ref::<BoxedForThreads>()?.downcast_ref());
    ours.is_some_and(Error::is_retryable)
}

/// What follows from a commit: what the work has ended with, and whether that is temporary.
pub(crate) fn of_commit<T, C, E: From<Error>>(value: T, commit: Result<C>) -> (Result<T, E>, bool) {
    match commit {
        Ok(_) => (Ok(value), false),
        Err(error) => {
            let is_temporary = error.is_retryable();
            (Err(error.into()), is_temporary)
        }
    }
}

/// The same for work that has failed, when its transaction was rolled back.
pub(crate) fn of_failure<T, E: From<Error>>(
    error: E,
    is_temporary: bool,
    rolled_back: Result<()>,
) -> (Result<T, E>, bool) {
    match rolled_back {
        Ok(()) => (Err(error), is_temporary),
        Err(other) => {
            let is_temporary = other.is_retryable();
            (Err(other.into()), is_temporary)
        }
    }
}
