//! One operation of a transaction, as it is encoded in a batch from the API node and in `PrepareRequest`.
//!
//! ```text
//!   OperationHead, then its sections without gaps:
//!     key        key_bytes       (none for an insert or write: their image holds it)
//!     body       body_bytes      insert, write: row image; update: update program; forwarded: after-image
//!     selection  columns * u16   reads: which columns, in which order; ALL_COLUMNS: the whole image, no list
//!     filter     filter_bytes    condition on the row; an operation whose row fails it is refused
//! ```

use alloc::vec::Vec;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What an operation does. The values are those on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum OperationKind {
    /// Reads the committed row, or the transaction's own version of it; no lock.
    ReadCommitted = 0,
    /// Reads under a shared lock that is held to the end of the transaction. If there is no row, nothing is locked: the
    /// answer says that there is none, which is no error, and another transaction may add the row at any time.
    ReadShared = 1,
    /// Reads under an exclusive lock that is held to the end of the transaction; without a row as [`Self::ReadShared`].
    ReadExclusive = 2,
    /// Adds a row; a row with its key must not exist.
    Insert = 3,
    /// Runs an update program on a row that must exist.
    Update = 4,
    /// Adds a row or replaces it.
    Write = 5,
    /// Removes a row that must exist.
    Delete = 6,
    /// Releases the lock that a read has taken; the body is the number of that read (u32). Locks that other operations
    /// of the transaction hold on the row stay: it remains locked as long, and as strongly, as one of them needs. No
    /// key is needed; without one, the head has the hash of the row's key.
    Unlock = 7,
}

impl OperationKind {
    /// The kind with a number; `None` if there is none.
    #[inline]
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => OperationKind::ReadCommitted,
            1 => OperationKind::ReadShared,
            2 => OperationKind::ReadExclusive,
            3 => OperationKind::Insert,
            4 => OperationKind::Update,
            5 => OperationKind::Write,
            6 => OperationKind::Delete,
            7 => OperationKind::Unlock,
            _ => return None,
        })
    }

    /// Whether it changes the row.
    #[inline]
    pub fn is_change(self) -> bool {
        match self {
            OperationKind::Insert | OperationKind::Update | OperationKind::Write | OperationKind::Delete => {
                true
            }
            OperationKind::ReadCommitted
            | OperationKind::ReadShared
            | OperationKind::ReadExclusive
            | OperationKind::Unlock => false,
        }
    }

    /// Whether it answers with a row.
    #[inline]
    pub fn is_read(self) -> bool {
        matches!(
            self,
            OperationKind::ReadCommitted | OperationKind::ReadShared | OperationKind::ReadExclusive
        )
    }
}

/// How long an operation waits for the lock of its row if others have locked it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LockWait {
    /// Until `TransactionDeadlockDetectionTimeout` expires; then it fails with `LockTimeout`.
    #[default]
    Default,
    /// Not at all: it fails with `RowLocked`.
    NoWait,
    /// Not at all: only this operation fails, with `RowLocked`, whatever [`FLAG_ERROR_IS_LOCAL`] says.
    SkipLocked,
    /// As [`LockWait::SkipLocked`]; in addition a read returns the committed version of the row, as a read without a
    /// lock would.
    ElseCommitted,
    /// This many milliseconds, whatever the parameter says; then it fails with `LockTimeout`. 0 is the same as
    /// [`LockWait::NoWait`]. All values from [`LockWait::MILLIS_MAX`] on, 49 days, are the same.
    Millis(u32),
}

impl LockWait {
    /// The longest wait that can be requested, in milliseconds.
    pub const MILLIS_MAX: u32 = u32::MAX - 0x100;

    const NO_WAIT: u32 = u32::MAX;
    const SKIP_LOCKED: u32 = u32::MAX - 1;
    const ELSE_COMMITTED: u32 = u32::MAX - 2;

    /// Its number on the wire.
    pub fn number(self) -> u32 {
        match self {
            LockWait::Default => 0,
            LockWait::NoWait | LockWait::Millis(0) => Self::NO_WAIT,
            LockWait::SkipLocked => Self::SKIP_LOCKED,
            LockWait::ElseCommitted => Self::ELSE_COMMITTED,
            LockWait::Millis(millis) => millis.min(Self::MILLIS_MAX),
        }
    }

    /// The wait with a number.
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => LockWait::Default,
            Self::NO_WAIT => LockWait::NoWait,
            Self::SKIP_LOCKED => LockWait::SkipLocked,
            Self::ELSE_COMMITTED => LockWait::ElseCommitted,
            millis => LockWait::Millis(millis.min(Self::MILLIS_MAX)),
        }
    }

    /// Whether a row that others have locked is a normal answer, not an error of the transaction.
    pub fn skips(self) -> bool {
        matches!(self, LockWait::SkipLocked | LockWait::ElseCommitted)
    }
}

/// In `columns`: the whole row image is requested.
pub const ALL_COLUMNS: u16 = u16::MAX;

/// Flag: an error of this operation fails only the operation; without the flag it rolls the transaction back.
pub const FLAG_ERROR_IS_LOCAL: u8 = 1;
/// Flag: `body` is the after-image, `row` the row id (set when a replica forwards to the next one).
pub const FLAG_FORWARDED: u8 = 2;

/// The fixed part of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OperationHead {
    /// Version of the table's definition that the sender knows.
    pub version: U64,
    /// Hash of the key. 0 from an API node, except for an unlock without a key; the coordinator fills it in.
    pub hash: U64,
    /// The table.
    pub table: U32,
    /// The operation's number in its transaction, from 1, ascending.
    pub number: U32,
    /// With [`FLAG_FORWARDED`] the row id, otherwise the [`LockWait::number`] of how long it waits for its lock.
    pub row_or_wait: U32,
    /// [`OperationKind`].
    pub kind: u8,
    /// Flags defined in this file.
    pub flags: u8,
    /// Bytes of the key.
    pub key_bytes: U16,
    /// Bytes of the body.
    pub body_bytes: U16,
    /// Number of selected columns, or [`ALL_COLUMNS`].
    pub columns: U16,
    /// Bytes of the filter program.
    pub filter_bytes: U16,
    /// 0 for an operation that an API node has sent. The changes of hidden tables that follow from an operation have
    /// its number, and are counted here from 1 (unique.rs).
    pub sub: u8,
    /// Zero.
    pub unused: u8,
}

impl OperationHead {
    /// How long it waits for its lock; only for an operation that was not forwarded by a replica.
    pub fn wait(&self) -> LockWait {
        LockWait::from_number(self.row_or_wait.get())
    }
}

/// A list of `columns` column ids at the front of `bytes`, and the bytes after it; `None` if it is not complete.
#[inline]
pub fn selection_from(bytes: &[u8], columns: usize) -> Option<(&[U16], &[u8])> {
    <[U16]>::ref_from_prefix_with_elems(bytes, columns).ok()
}

/// An operation in place.
#[derive(Clone, Copy)]
pub struct Operation<'a> {
    /// The fixed part.
    pub head: &'a OperationHead,
    /// The key's bytes.
    pub key: &'a [u8],
    /// The body's bytes.
    pub body: &'a [u8],
    /// The selected columns, as little-endian u16s.
    pub selection: &'a [U16],
    /// The filter program.
    pub filter: &'a [u8],
}

impl<'a> Operation<'a> {
    /// Reads the operation at the front of `bytes` and moves `bytes` behind it; `None` if it is not complete.
    // Always inlined: its result is written to memory in other pieces than it is read from there, which stalls the
    // processor for longer than all of this takes. Measured: 6 to 8 % of what a write costs on its thread.
    #[inline(always)]
    pub fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let (head, rest) = OperationHead::ref_from_prefix(bytes).ok()?;
        let (key, rest) = rest.split_at_checked(usize::from(head.key_bytes.get()))?;
        let (body, rest) = rest.split_at_checked(usize::from(head.body_bytes.get()))?;
        let columns = match head.columns.get() {
            ALL_COLUMNS => 0,
            n => usize::from(n),
        };
        let (selection, rest) = selection_from(rest, columns)?;
        let (filter, rest) = rest.split_at_checked(usize::from(head.filter_bytes.get()))?;
        *bytes = rest;
        Some(Operation { head, key, body, selection, filter })
    }

    /// The same operation with another fixed part.
    pub fn with_head<'b>(&self, head: &'b OperationHead) -> Operation<'b>
    where
        'a: 'b,
    {
        Operation { head, ..*self }
    }

    /// Appends it in its form in a batch.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.head.as_bytes());
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.body);
        out.extend_from_slice(self.selection.as_bytes());
        out.extend_from_slice(self.filter);
    }

    /// What it does; `None` if the number is unknown.
    #[inline]
    pub fn kind(&self) -> Option<OperationKind> {
        OperationKind::from_number(self.head.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_read_back() {
        use LockWait::{Default, ElseCommitted, Millis, NoWait, SkipLocked};
        for wait in [Default, NoWait, SkipLocked, ElseCommitted, Millis(1), Millis(LockWait::MILLIS_MAX)] {
            assert_eq!(LockWait::from_number(wait.number()), wait);
        }
        assert_eq!(LockWait::from_number(Millis(0).number()), NoWait);
        assert_eq!(LockWait::from_number(Millis(u32::MAX).number()), Millis(LockWait::MILLIS_MAX));
        // A number without a meaning so far is a long wait, not another kind of wait.
        assert_eq!(LockWait::from_number(LockWait::ELSE_COMMITTED - 1), Millis(LockWait::MILLIS_MAX));
    }
}
