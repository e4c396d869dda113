//! Transactions: between an API node and the coordinator that it picked.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `TransactionRequest` | API node | coordinator | operations, and whether to commit or roll back after them |
//! | `TransactionRowReport` | data manager | API node | the row that an operation of a batch read, see below |
//! | `TransactionConfirm` | coordinator | API node | the batch is done; open, committed or rolled back as requested |
//! | `TransactionRefuse` | coordinator | API node | rolled back because of the first error; or unknown transaction |
//! | `OutcomeRequest` / `OutcomeConfirm` | API node / coordinator | | was it committed? (after a lost connection) |
//! | `OutcomesSeenOrder` | API node | coordinator | outcomes up to a number are known, forget them |
//!
//! A `TransactionRowReport` may also report that there is no row. If the read was refused because others have locked
//! the row, it carries the committed version, if that was requested ([`crate::operation::LockWait::ElseCommitted`]).
//!
//! A transaction begins with a batch that has [`FLAG_START`] and ends with [`FLAG_COMMIT`] or [`FLAG_ROLLBACK`]; one
//! batch may be the whole transaction. Only one batch of a transaction is in progress at a time, except that one with
//! [`FLAG_ROLLBACK`] may follow it: if nothing is decided yet, the batch in progress is given up, including its waits
//! for locks, and the transaction is rolled back. The second batch then has the tag of the first, and one answer is
//! that to both. If the first batch was answered just before, or has failed, the second is answered, too. Every commit
//! is numbered per API node and coordinator; the API node reports with each later batch, or when idle with
//! `OutcomesSeenOrder`, up to which number it has seen them all. It can request every outcome that it has not
//! confirmed; if none is found, the transaction was rolled back.
//!
//! ```text
//!   TransactionRequest:    TransactionHead, then `count` operations (operation.rs)
//!   TransactionConfirm:    TransactionAnswer, then `errors` times OperationError: operations that failed alone
//!   TransactionRefuse:     TransactionAnswer with `error` set
//!   TransactionRowReport:  TransactionRow, then the row
//! ```

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Operations of one batch, at most.
pub const OPERATIONS_MAX: usize = 1024;

/// The transaction begins with this batch.
pub const FLAG_START: u16 = 1;
/// Commit when all operations of the batch have succeeded.
pub const FLAG_COMMIT: u16 = 2;
/// Roll back (the batch has no operations).
pub const FLAG_ROLLBACK: u16 = 4;
/// Roll back only the operations from number `rollback_from` on, before the operations of this batch; locks stay.
pub const FLAG_ROLLBACK_TO: u16 = 8;

/// With [`FLAG_COMMIT`]: the commit is answered when the transaction is on disk. With any batch: the transaction is
/// rolled back with `NoDisk` if there is no disk, so an API node that commits elsewhere, too, knows that before.
pub const FLAG_DURABLE: u16 = 16;

/// Beginning of `TransactionRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TransactionHead {
    /// [`vinga_base::TransactionId`].
    pub transaction: U64,
    /// Newest epoch that the API node has seen in this incarnation of the cluster.
    pub epoch_seen: U64,
    /// The API node's tag for the answer.
    pub request: U32,
    /// All outcomes of this coordinator up to this number are known to the API node.
    pub outcomes_seen: U32,
    /// First operation number that [`FLAG_ROLLBACK_TO`] undoes.
    pub rollback_from: U32,
    /// Flags defined in this file.
    pub flags: U16,
    /// Number of operations.
    pub count: U16,
}

/// The state of a transaction. The values are those on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Outcome {
    /// It is open.
    Open = 0,
    /// It is committed.
    Committed = 1,
    /// It is rolled back.
    RolledBack = 2,
    /// Only in `OutcomeConfirm`: this coordinator has no record of it, so it was never committed, or the API node has
    /// confirmed its outcome.
    NotFound = 3,
    /// It is committed, and was to be on disk before it is answered. That can't be said, and can't be waited for.
    NotOnDisk = 4,
}

impl Outcome {
    /// The outcome with a number; `None` if there is none.
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Outcome::Open,
            1 => Outcome::Committed,
            2 => Outcome::RolledBack,
            3 => Outcome::NotFound,
            4 => Outcome::NotOnDisk,
            _ => return None,
        })
    }
}

/// `TransactionConfirm` and `TransactionRefuse`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TransactionAnswer {
    /// The transaction.
    pub transaction: U64,
    /// Its commit epoch if committed, else the newest epoch seen by its operations.
    pub epoch: U64,
    /// The API node's tag of the batch.
    pub request: U32,
    /// Number of this commit; 0 if the transaction is not committed.
    pub outcome_number: U32,
    /// Operation that caused the rollback; 0 if none did.
    pub failed_operation: U32,
    /// Why it was rolled back: [`crate::ErrorCode`], 0 if nothing failed.
    pub error: U16,
    /// Number of [`OperationError`]s that follow.
    pub errors: U16,
    /// Number of rows that data managers have sent for this batch.
    pub rows: U16,
    /// [`Outcome`].
    pub outcome: u8,
    /// Low byte of the view.
    pub view: u8,
    /// The unique index of the failed operation's table that caused `error`; 0 if the row itself did.
    pub failed_index: U16,
}

/// An operation that failed without rolling the transaction back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OperationError {
    /// Its number.
    pub operation: U32,
    /// Why: [`crate::ErrorCode`].
    pub code: U16,
    /// The unique index of its table that caused the error; 0 if the row itself did.
    pub index: U16,
}

/// Beginning of `TransactionRowReport`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TransactionRow {
    /// The transaction.
    pub transaction: U64,
    /// Newest epoch of any commit at the data manager.
    pub epoch: U64,
    /// The operation that read the row.
    pub operation: U32,
    /// Bytes of the row; [`crate::key_read::NO_ROW`] if there is none.
    pub row_bytes: U16,
    /// Zero.
    pub unused: U16,
}

/// `OutcomeRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OutcomeRequest {
    /// The transaction whose outcome is requested.
    pub transaction: U64,
    /// The API node's tag for the answer.
    pub request: U32,
}

/// `OutcomeConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OutcomeConfirm {
    /// The transaction.
    pub transaction: U64,
    /// Its commit epoch, 0 if it is not committed.
    pub epoch: U64,
    /// The API node's tag.
    pub request: U32,
    /// Number of the outcome, 0 if not found.
    pub outcome_number: U32,
    /// [`Outcome`].
    pub outcome: u8,
    /// Zero.
    pub unused: [u8; 3],
}

/// `OutcomesSeenOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OutcomesSeenOrder {
    /// Any transaction id of the API node's incarnation; only its owner part is used.
    pub owner: U64,
    /// All outcomes up to this number are known.
    pub outcomes_seen: U32,
}
