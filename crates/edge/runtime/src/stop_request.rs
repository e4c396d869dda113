//! How a node is asked to stop: by a signal of the operating system, by the program that it runs in, or by one of its own
//! blocks.

use std::sync::{Condvar, Mutex, PoisonError};

/// Why a node stops.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StopCause {
    /// It was asked to, by this.
    Asked(&'static str),
    /// A block has said that the node can't go on, for this reason (`StopNodeOrder`).
    CannotGoOn(String),
}

/// Where a node is asked to stop. Whoever runs the node waits here, and then stops it.
#[derive(Default, Debug)]
pub struct StopRequest {
    cause: Mutex<Option<StopCause>>,
    is_made: Condvar,
}

impl StopRequest {
    /// Asks the node to stop. If it was asked before, the first cause counts.
    pub fn make(&self, cause: StopCause) {
        self.cause.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(cause);
        self.is_made.notify_all();
    }

    /// Waits until the node is asked to stop; returns why.
    pub fn wait(&self) -> StopCause {
        let cause = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
        let made = self.is_made.wait_while(cause, |cause| cause.is_none());
        made.unwrap_or_else(PoisonError::into_inner).clone().expect("it was waited for")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_first_cause_counts() {
        let request = Arc::new(StopRequest::default());
        let waiter = std::thread::spawn({
            let request = request.clone();
            move || request.wait()
        });
        request.make(StopCause::CannotGoOn("no disk".to_string()));
        request.make(StopCause::Asked("SIGTERM"));
        assert_eq!(waiter.join().unwrap(), StopCause::CannotGoOn("no disk".to_string()));
        assert_eq!(request.wait(), StopCause::CannotGoOn("no disk".to_string()));
    }
}
