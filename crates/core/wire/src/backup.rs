//! On-line backups: between the API node that writes one and the data managers whose rows it writes. The protocol is
//! described in `docs/protocols/backup.md`.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `BackupOpenRequest` | API node | data manager | note all changes of your partition from now on, for me |
//! | `BackupOpenConfirm`, `BackupOpenRefuse` | data manager | API node | they are noted from now on / not |
//! | `BackupNextRequest` | API node | data manager | more of the rows and of the changes |
//! | `BackupNextConfirm` | data manager | API node | rows, changes, and how far it is |
//! | `BackupNextRefuse` | data manager | API node | there is no such backup (any more), and why |
//! | `BackupCloseOrder` | API node | data manager | nothing more is wanted |
//! | `EpochClosedRequest` | data manager | distribution of the president | confirm as soon as this epoch is closed |
//! | `EpochClosedConfirm` | distribution of the president | data manager | it is closed, and this is the current epoch |
//!
//! ```text
//!   BackupNextConfirm:  BackupBatchHead, records of rows, records of changes
//! ```
//! A record is one of the redo log (`docs/formats/redo.md`, `RecordHead`): a row as it was when the scan passed it,
//! with the epoch of its last change, or what a change has made of a row, with the epoch of that change.

use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Requests for more that a data manager keeps until it can answer them.
pub const NEXT_WAITING_MAX: usize = 8;

/// Body of `BackupOpenRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BackupOpenRequest {
    /// The API node's tag for the request.
    pub request: u32,
    /// The partition whose rows are wanted, all tables.
    pub partition: u16,
}

/// Body of `BackupOpenConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BackupOpenConfirm {
    /// The API node's tag for the request.
    pub request: u32,
    /// The newest epoch of any commit at the data manager.
    pub epoch: u64,
}

/// Body of `BackupNextRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BackupNextBody {
    /// The API node's tag for the request.
    pub request: U32,
    /// Zero.
    pub unused: U32,
    /// The epoch of which the API node wants to know when all its changes were sent; 0 while it wants to know of none.
    pub until: U64,
}

/// All rows were sent, in this batch or earlier ones.
pub const BACKUP_SCANNED: u32 = 1;
/// The epoch `until` is closed, and all changes up to it were sent, in this batch or earlier ones.
pub const BACKUP_CLOSED: u32 = 2;

/// Beginning of `BackupNextConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BackupBatchHead {
    /// The API node's tag for the request.
    pub request: U32,
    /// Flags defined in this file.
    pub flags: U32,
    /// The newest epoch that the data manager knows: of any commit here, and that of the president when it confirmed.
    pub epoch: U64,
    /// Bytes of the records of rows.
    pub row_bytes: U32,
    /// Bytes of the records of changes, which follow. Behind them a frame may be padded.
    pub change_bytes: U32,
}

/// Body of `EpochClosedConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EpochClosedConfirm {
    /// This epoch is closed at all coordinators.
    pub epoch: U64,
    /// The current epoch.
    pub current: U64,
}
