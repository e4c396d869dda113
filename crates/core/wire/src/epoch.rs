//! Epochs: numbered groups of transactions that become durable together.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `EpochOrder` | distribution of the president | coordinators | assign no epoch below this one from now on |
//! | the same | | membership, dictionary, lifecycle, distribution of other nodes | this is the current epoch |
//! | `EpochClosedReport` | coordinator | distribution of the president | none of my transactions will commit in this epoch or an earlier one any more |
//! | `EpochClaimReport` | coordinator | distribution of the president | I use an epoch above those that you have announced to me |
//! | `DurabilityOrder` | coordinator, redo | distribution of the president | somebody waits until this epoch is on disk |
//! | `DurabilityRequest` | dictionary, lifecycle | distribution of the president | a schema change is in this epoch, or the node stops: bring it to disk, with an end record |
//! | `DurabilityConfirm` | distribution of the president | dictionary, lifecycle | a restart restores this epoch, or a later one |
//! | `EpochEndRequest` / `…Confirm` | distribution of the president / redo | | everything up to this epoch is to be on disk / is on disk |
//! | `DurableEpochOrder` | distribution of the president | coordinators, data managers, redo, dictionary, distribution of other nodes | everything up to this epoch is on the disks of the whole cluster |
//! | `LogRoomReport` | redo | distribution of the president | whether my log has room for the ends of epochs |
//! | `LogRoomOrder` | distribution of the president | coordinators, dictionaries, lifecycles | whether all logs have |
//!
//! Epochs are announced in one direction; nobody waits for an answer. `docs/protocols/durability.md` describes how they
//! close.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How far ahead of a coordinator's own epoch the epoch may be that an API node reports as seen. What it sends is
/// refused else, to be tried again: another coordinator may have believed it, and its word may be on the way. What was
/// believed counts against the next ones, until time has passed.
pub const EPOCH_LEAP_MAX: u64 = 1 << 20;

/// An API node that reports an epoch so far ahead as seen is disconnected: no cluster gets there in 3000 years.
pub const EPOCH_LEAP_ABSURD: u64 = 1 << 40;

/// Body of `EpochOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EpochOrder {
    /// The current epoch.
    pub epoch: U64,
}

/// Body of `EpochClosedReport`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EpochClosedReport {
    /// The newest epoch that is closed for the sender.
    pub epoch: U64,
    /// The newest epoch in which it has committed changes; it may be later.
    pub changed: U64,
}

/// Body of `EpochClaimReport`, `DurabilityOrder`, `DurabilityRequest`, `DurabilityConfirm`, `EpochEndRequest`,
/// `EpochEndConfirm`, `DurableEpochOrder` and `EpochLimitOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EpochBody {
    /// The epoch that it is about.
    pub epoch: U64,
}

impl EpochBody {
    /// The body for an epoch.
    pub fn new(epoch: vinga_base::Epoch) -> Self {
        EpochBody { epoch: U64::new(epoch.0) }
    }

    /// The epoch.
    pub fn epoch(&self) -> vinga_base::Epoch {
        vinga_base::Epoch(self.epoch.get())
    }
}

/// Whether the redo log has room for the ends of epochs: what waits for the disk needs them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u16)]
pub enum LogRoom {
    /// It has.
    #[default]
    Enough = 0,
    /// What is left is kept for those who wait already, and for a stop in order: nobody may begin to wait.
    Short = 1,
    /// An epoch can't be ended until there is room, and no checkpoint that would make some is being written.
    None = 2,
}

impl LogRoom {
    /// The one with a number; `None` if there is none.
    pub fn from_number(number: u16) -> Option<Self> {
        [LogRoom::Enough, LogRoom::Short, LogRoom::None].into_iter().find(|&room| room as u16 == number)
    }
}

/// Body of `LogRoomReport` and `LogRoomOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LogRoomBody {
    /// [`LogRoom`].
    pub room: U16,
    /// In a report: 1 if records have been logged that no end of an epoch covers, else 0. In an order: 0.
    pub has_records: U16,
    /// 0.
    pub unused: [U16; 2],
}

impl LogRoomBody {
    /// The body.
    pub fn new(room: LogRoom, has_records: bool) -> Self {
        LogRoomBody {
            room: U16::new(room as u16),
            has_records: U16::new(u16::from(has_records)),
            unused: [U16::ZERO; 2],
        }
    }

    /// What it says; `None` if that is no number of a [`LogRoom`].
    pub fn room(&self) -> Option<LogRoom> {
        LogRoom::from_number(self.room.get())
    }
}
