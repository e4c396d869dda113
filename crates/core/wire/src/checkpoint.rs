//! Local checkpoints: between a log stream, which decides when and how fast, its data managers, and the other streams
//! of the node, with which it shares the speed.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `CheckpointOrder` | redo | data manager | begin a checkpoint, unless one is under way |
//! | `CheckpointQuotaOrder` | redo | data manager | write so many bytes more, less what was written above the quota before |
//! | `CheckpointReport` | data manager | redo | how far it is |
//! | `CheckpointWritersReport` | redo | other redo of the node | checkpoints of so many data managers are being made |

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Body of `CheckpointQuotaOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct QuotaBody {
    /// Bytes. They replace what is left of the quota before.
    pub bytes: U64,
}

/// How far a checkpoint is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum CheckpointState {
    /// It is being written: it has used up its quota, or has got another one.
    Writing = 1,
    /// All is written and flushed.
    Written = 2,
    /// A global checkpoint covers it, or there was nothing to be written: what came before is not needed any more.
    Usable = 3,
    /// It was given up, because the disk is full: it will be tried again.
    GivenUp = 4,
}

impl CheckpointState {
    /// The state with this number.
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            1 => CheckpointState::Writing,
            2 => CheckpointState::Written,
            3 => CheckpointState::Usable,
            4 => CheckpointState::GivenUp,
            _ => return None,
        })
    }
}

/// Body of `CheckpointReport`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReportBody {
    /// [`CheckpointState`].
    pub state: U32,
    /// Zero.
    pub unused: U32,
    /// Bytes written since the last report.
    pub bytes: U64,
    /// Of one that is written: it is usable when everything up to this epoch is on disk. Else 0.
    pub epoch: U64,
}

/// Body of `CheckpointWritersReport`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct WritersBody {
    /// The data managers of the sender, if it writes checkpoints from now on; else 0.
    pub data_managers: U16,
}
