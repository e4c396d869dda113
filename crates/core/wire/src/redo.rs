//! The redo log: between the data managers of a thread and the log stream that they share.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `RedoAppendOrder` | data manager | redo | append these records to the log |
//! | `RedoCreditRequest` / `…Confirm` | data manager / redo | | may I log more? / so many bytes more |
//! | `RedoCreditReturnRequest` / `…Confirm` | redo / data manager | | give back what is not reserved / so many bytes; more come without a request |
//! | `RedoDrainRequest` / `…Confirm` | redo / data manager | | send what you have / everything committed so far was sent |
//! | `RedoTrimOrder` | data manager | redo | earlier batches than this one are in a checkpoint: forget them |
//! | `RedoReplayRequest` / `…Confirm` | redo / data manager | | apply these records of the log / done |
//!
//! A data manager gathers the records of a turn and sends them as one *batch*, with a number that grows by one over all
//! restarts. It never logs more than it was given credit for, so that the log has room for everything that was
//! prepared: it reserves the room of a change when it prepares it, and refuses the change if there is none. The answer
//! to a request for credit comes at once, with what there is; if that is less than anybody gets, further
//! `RedoCreditConfirm`s follow without a request when there is room.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of records in one signal, at most.
pub const BATCH_BYTES_MAX: usize = 64 * 1024;

/// Beginning of `RedoAppendOrder` and `RedoReplayRequest`; the records follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BatchHead {
    /// Its number.
    pub batch: U64,
    /// In a replay: the last epoch that counts; records of later ones are dead. Else 0.
    pub epoch_max: U64,
    /// Bytes of records.
    pub bytes: U32,
    /// Zero.
    pub unused: U32,
}

/// `RedoCreditRequest`, `RedoCreditConfirm`, `RedoCreditReturnConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CreditBody {
    /// How many bytes more may be logged, or fewer. In a request: how many are left that nothing is reserved of.
    pub bytes: U64,
    /// Why they are no more ([`crate::ErrorCode`]); 0 if they are as many as anybody gets.
    pub shortage: U16,
    /// Zero.
    pub unused: [U16; 3],
}

/// `RedoTrimOrder`, `RedoReplayConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BatchBody {
    /// The batch that it is about.
    pub batch: U64,
}
