//! Backoff: statements that conflict with a change of a table's definition get their error after a pause.
//!
//! A statement that writes to a table while another SQL node copies it fails at once with a temporary error, and most
//! applications retry at once. That would keep application, SQL node and data nodes busy until the copy is done. So the
//! error is returned after a pause, which grows as long as the session gets only such errors. The data nodes have
//! rolled the transaction back before the pause begins, so no one waits for its locks.
//!
//! An attempt to move an auto-increment counter that others move too pauses in the same way before the next attempt.

use std::time::Duration;

/// The first and the longest pause; it doubles from the one to the other.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// The pauses of a session, or of several attempts at one operation.
#[derive(Default)]
pub struct Backoff {
    last: Option<Duration>,
}

impl Backoff {
    /// The length of the next pause.
    pub fn once_more(&mut self) -> Duration {
        let pause = self.last.map_or(PAUSES.0, |last| (last * 2).min(PAUSES.1));
        self.last = Some(pause);
        pause
    }

    /// Notes a success: the next pause is the shortest again.
    pub fn end(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_the_session_goes_on() {
        let mut backoff = Backoff::default();
        let mut pauses = |count| (0..count).map(|_| backoff.once_more().as_millis()).collect::<Vec<_>>();
        assert_eq!(pauses(7), [1, 2, 4, 8, 16, 20, 20]);
        backoff.end();
        assert_eq!(backoff.once_more().as_millis(), 1);
    }
}
