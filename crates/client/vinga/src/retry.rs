//! Pauses between attempts.

use crate::engine::Engine;
use std::sync::Arc;
use vinga_client_core::{Error, Micros, Result};

/// Attempts, at most.
const ATTEMPTS_MAX: u32 = 24;
/// The first pause, and the longest; it doubles from one to the other.
const PAUSES: (Micros, Micros) = (Micros(500), Micros::from_millis(250));

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
    pub async fn pause(&mut self, error: Error) -> Result<()> {
        self.attempts += 1;
        if self.attempts == ATTEMPTS_MAX {
            return Err(error);
        }
        let longest = Micros(PAUSES.0.0 << self.attempts.min(16)).min(PAUSES.1);
        let now = self.engine.now();
        // Between a half and the whole of it, so that those that collided do not meet again; the time is random enough.
        let until = now + Micros(longest.0 / 2 + now.0 % (longest.0 / 2));
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
