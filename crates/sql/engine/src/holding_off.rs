//! Statements that meet a change of a table's definition are told so after a pause.
//!
//! Whoever writes to a table that another SQL node copies ends with a temporary error at once, and most applications
//! try again at once. So that they, the SQL node and the data nodes do not keep each other busy until the copy is done,
//! the error comes after a pause, which grows as long as a session meets nothing else. By then the data nodes have
//! rolled the transaction back: nobody waits for its locks meanwhile.
//!
//! Whoever moves a counter of auto-increment values that others move, too, pauses in the same way before the next
//! attempt.

use std::time::Duration;

/// The first pause, and the longest; it doubles from one to the other.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// The pauses of a session, or of attempts at the same thing.
#[derive(Default)]
pub struct HoldingOff {
    last: Option<Duration>,
}

impl HoldingOff {
    /// How long to pause, once more.
    pub fn once_more(&mut self) -> Duration {
        let pause = self.last.map_or(PAUSES.0, |last| (last * 2).min(PAUSES.1));
        self.last = Some(pause);
        pause
    }

    /// The session goes on.
    pub fn end(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_the_session_goes_on() {
        let mut holding_off = HoldingOff::default();
        let mut pauses = |count| (0..count).map(|_| holding_off.once_more().as_millis()).collect::<Vec<_>>();
        assert_eq!(pauses(7), [1, 2, 4, 8, 16, 20, 20]);
        holding_off.end();
        assert_eq!(holding_off.once_more().as_millis(), 1);
    }
}
