//! Whether the log has room for the ends of epochs, and who learns of it.
//!
//! An end record takes a sector of the log for which nobody has credit (`credit`). When hardly any are left, because no
//! checkpoint could be made for long, the president learns of it, and has nobody begin to wait for the disk any more:
//! commits that would have to are refused, and so are definitions. What is left then is for those who wait already, for
//! a stop of the node in order, and for checkpoints that lack nothing but the end of their epoch. If even that is used
//! up, ends of epochs wait for room, and whoever waits for one is answered that it can't be said what is on disk.

use crate::Redo;
use crate::credit::Room;
use vinga_base::aligned::SECTOR_BYTES;
use vinga_kernel::{Context, LogLevel};
use vinga_wire::epoch::{LogRoom, LogRoomBody};
use vinga_wire::{Address, BlockNumber, SignalNumber};

/// Bytes of the log that are kept for the ends of epochs that make checkpoints usable: some two of them for each round.
pub const KEPT_FOR_CHECKPOINTS: u64 = 24 * SECTOR_BYTES as u64;

/// What is known of the room for ends, and what was said of it.
#[derive(Default)]
pub struct RoomForEnds {
    /// The end record of the epoch that is being ended waits for room in the log.
    pub is_end_held: bool,
    /// Records were logged since the last end record.
    pub has_records: bool,
    /// What was reported last.
    reported: LogRoom,
    /// It was reported that there are such records.
    are_records_reported: bool,
}

impl RoomForEnds {
    /// An end record is written.
    pub fn note_end(&mut self) {
        (self.is_end_held, self.has_records, self.are_records_reported) = (false, false, false);
    }
}

impl Redo {
    /// Whether hardly any room is left for end records, and none of them would help to make some.
    pub(crate) fn ends_lack_room(&self) -> bool {
        self.left_for_ends() < KEPT_FOR_CHECKPOINTS && !self.checkpoints.awaits_end()
    }

    /// Bytes of the log that are neither in use nor promised to anybody.
    fn left_for_ends(&self) -> u64 {
        let Room { capacity, used, .. } = self.room();
        capacity.saturating_sub(used + self.credits.outstanding())
    }

    /// Whether there is room for the ends of epochs. There is enough again when there is somewhat more than what made
    /// it short.
    pub(crate) fn room_for_ends(&self) -> LogRoom {
        let reserve = self.room().margin() / 8;
        let enough = KEPT_FOR_CHECKPOINTS
            + if self.room_for_ends.reported == LogRoom::Enough { reserve } else { 2 * reserve };
        if self.room_for_ends.is_end_held && !self.checkpoints.is_in_round() {
            LogRoom::None
        } else if self.room_for_ends.is_end_held || self.left_for_ends() < enough {
            LogRoom::Short
        } else {
            LogRoom::Enough
        }
    }

    /// Reports to the president whether there is room for the ends of epochs, if that has changed, and while there is
    /// hardly any, that something was logged which none of them covers.
    pub(crate) fn report_room(&mut self, cx: &mut Context<'_>) {
        if !self.checkpoints.is_started() {
            return;
        }
        let room = self.room_for_ends();
        let ends = &mut self.room_for_ends;
        let has_records = room != LogRoom::Enough && ends.has_records && !ends.are_records_reported;
        if room == ends.reported && !has_records {
            return;
        }
        let Some(president) = cx.view().president() else { return };
        let before = core::mem::replace(&mut ends.reported, room);
        ends.are_records_reported |= has_records;
        let receiver = Address::new(president, BlockNumber::Distribution, 0);
        cx.frame(SignalNumber::LogRoomReport, receiver).put(&LogRoomBody::new(room, has_records));
        let stream = self.settings.stream;
        match (before, room) {
            (LogRoom::Enough, LogRoom::Short | LogRoom::None) => cx.log(
                LogLevel::Warning,
                format_args!(
                    "stream {stream}: the log is full: commits that wait for the disk, and definitions, are refused \
                     with 410 until a checkpoint has made room"
                ),
            ),
            (LogRoom::Short | LogRoom::None, LogRoom::Enough) => cx.log(
                LogLevel::Info,
                format_args!("stream {stream}: the log has room again for commits that wait for the disk"),
            ),
            _ => {}
        }
    }

    /// There is another president, which knows nothing of this log.
    pub(crate) fn report_room_again(&mut self, cx: &mut Context<'_>) {
        self.room_for_ends.are_records_reported = false;
        if self.room_for_ends.reported != LogRoom::Enough {
            self.room_for_ends.reported = LogRoom::Enough;
            self.report_room(cx);
        }
    }
}
