//! How much each data manager of the stream may log: see `vinga_datamanager`'s part of the log.
//!
//! What is given out altogether never exceeds the room that the log has, less a margin for what belongs to nobody:
//! heads of blocks and segments, end records, and the rests of sectors behind them.
//!
//! Each global checkpoint takes a sector of the margin, and a commit that waits for the disk brings one about, however
//! few bytes it has logged. So credit that was given out may cost the log many times as much. When half of the margin
//! is used up (`is_nearly_full`), data managers have to give back what they have not reserved
//! (`RedoCreditReturnRequest`). What is left then is the room of changes that are prepared, and each of them ends once.
//!
//! Who gets less than the usual amount need not ask again: it gets the rest as soon as there is room (`give_rest`).

use alloc::vec;
use alloc::vec::Vec;
use vinga_wire::ErrorCode;

/// What data managers were given and have not used.
pub struct Credits {
    /// By data manager of the stream.
    given: Vec<u64>,
    /// By data manager: what of it is not reserved, as far as is known. Transactions may reserve as much as the log has
    /// room for; this is never more than the usual amount.
    free: Vec<u64>,
    /// By data manager: it has been given something since it was asked to give back what it has.
    may_return: Vec<bool>,
    /// By data manager: why it got less than it wanted when it was last given something; `None` if it did not.
    shortages: Vec<Option<ErrorCode>>,
}

/// How full the log is.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Bytes that it can hold.
    pub capacity: u64,
    /// Bytes that are in use.
    pub used: u64,
    /// Bytes that wait to be written.
    pub backlog: u64,
    /// Bytes that may wait to be written (`RedoBuffer`).
    pub backlog_max: u64,
}

/// The margin of the smallest log: a segment may end with an empty place for a batch.
const MARGIN_MIN: u64 = 256 << 10;

/// Bytes that a data manager is given at most.
const USUAL_MAX: u64 = 4 << 20;

impl Room {
    /// Bytes that could be given out, if so many were given out and are not used.
    pub fn left(&self, outstanding: u64) -> u64 {
        self.capacity.saturating_sub(self.used + outstanding + self.margin())
    }

    /// Whether half of the margin is used up, if so many bytes were given out and are not used.
    pub fn is_nearly_full(&self, outstanding: u64) -> bool {
        self.used + outstanding + self.margin() / 2 > self.capacity
    }

    /// Bytes that are never given out.
    pub fn margin(&self) -> u64 {
        (self.capacity / 8).clamp(MARGIN_MIN, 16 << 20)
    }
}

impl Credits {
    /// Nobody has any.
    pub fn new(participants: usize) -> Self {
        Credits {
            given: vec![0; participants],
            free: vec![0; participants],
            may_return: vec![false; participants],
            shortages: vec![None; participants],
        }
    }

    /// What a data manager has been given and has not used, all together.
    pub fn outstanding(&self) -> u64 {
        self.given.iter().sum()
    }

    /// A data manager asks for more before the log is open: it gets it then.
    pub fn put_off(&mut self, participant: usize) -> (u64, Option<ErrorCode>) {
        self.shortages[participant] = Some(ErrorCode::RedoLogFull);
        (0, Some(ErrorCode::RedoLogFull))
    }

    /// A data manager asks for more, or is given the rest: how many bytes it is given, and why they are no more.
    pub fn give(&mut self, participant: usize, room: Room) -> (u64, Option<ErrorCode>) {
        let (given, shortage) = self.amount(participant, room);
        self.given[participant] += given;
        self.free[participant] += given;
        self.may_return[participant] |= given > 0;
        self.shortages[participant] = shortage;
        (given, shortage)
    }

    /// A data manager asks for more: so much it has not reserved.
    pub fn note_free(&mut self, participant: usize, bytes: u64) {
        self.free[participant] = bytes;
    }

    /// The data managers that are to give back what they have not reserved.
    pub fn take_back(&mut self) -> Vec<usize> {
        let asked: Vec<usize> = (0..self.given.len()).filter(|&at| self.may_return[at]).collect();
        self.may_return.fill(false);
        asked
    }

    /// A data manager gives back so many bytes; it gets more when there is room.
    pub fn note_returned(&mut self, participant: usize, bytes: u64) {
        self.use_up(participant, bytes);
        self.free[participant] = 0;
        self.shortages[participant] = Some(ErrorCode::RedoLogFull);
    }

    fn amount(&self, participant: usize, room: Room) -> (u64, Option<ErrorCode>) {
        if room.backlog > room.backlog_max {
            return (0, Some(ErrorCode::RedoBufferFull));
        }
        let participants = self.given.len() as u64;
        let usual = (room.capacity / 4 / participants).min(USUAL_MAX);
        let wanted = usual.saturating_sub(self.free[participant]);
        let given = wanted.min(room.left(self.outstanding()));
        (given, (given < wanted).then_some(ErrorCode::RedoLogFull))
    }

    /// Data managers that got less than they wanted for this reason.
    pub fn short_for(&self, reason: ErrorCode) -> impl Iterator<Item = usize> {
        self.shortages.iter().enumerate().filter(move |(_, one)| **one == Some(reason)).map(|(at, _)| at)
    }

    /// A data manager has logged so many bytes.
    pub fn use_up(&mut self, participant: usize, bytes: u64) {
        let given = &mut self.given[participant];
        *given = given.checked_sub(bytes).expect("a data manager logs what it has credit for");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { capacity: 64 << 20, used: 0, backlog: 0, backlog_max: 32 << 20 };

    #[test]
    fn each_gets_the_usual_amount_until_the_log_is_full() {
        let mut credits = Credits::new(2);
        assert_eq!(credits.give(0, ROOM), (4 << 20, None));
        assert_eq!(credits.give(0, ROOM), (0, None), "it has all that anybody gets");
        credits.use_up(0, 1 << 20);
        credits.note_free(0, 3 << 20);
        assert_eq!(credits.give(0, Room { used: 1 << 20, ..ROOM }), (1 << 20, None));
        let full = Room { used: (64 << 20) - (8 << 20) - (5 << 20), ..ROOM };
        assert_eq!(credits.give(1, full), (1 << 20, Some(ErrorCode::RedoLogFull)), "8 MiB are the margin");
        assert_eq!(credits.give(1, full), (0, Some(ErrorCode::RedoLogFull)));
        assert_eq!(credits.outstanding(), 5 << 20);
        assert_eq!(credits.short_for(ErrorCode::RedoLogFull).collect::<Vec<_>>(), [1]);
        assert_eq!(credits.give(1, ROOM), (3 << 20, None), "the rest");
        assert_eq!(credits.short_for(ErrorCode::RedoLogFull).count(), 0);
    }

    #[test]
    fn a_transaction_may_reserve_what_the_log_has_room_for() {
        let mut credits = Credits::new(1);
        for _ in 0..10 {
            assert_eq!(credits.give(0, ROOM), (4 << 20, None));
            credits.note_free(0, 0);
        }
        assert_eq!(credits.outstanding(), 40 << 20);
    }

    #[test]
    fn a_slow_disk_is_another_reason() {
        let mut credits = Credits::new(1);
        let slow = Room { backlog: (32 << 20) + 1, ..ROOM };
        assert_eq!(credits.give(0, slow), (0, Some(ErrorCode::RedoBufferFull)));
    }

    #[test]
    #[should_panic = "credit"]
    fn more_than_was_given_is_an_error() {
        let mut credits = Credits::new(1);
        credits.give(0, ROOM);
        credits.use_up(0, (4 << 20) + 1);
    }
}
