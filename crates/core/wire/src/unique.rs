//! Changes in the hidden tables of unique indexes that follow from the change of a row.
//!
//! The last replica of a row's chain compares the row that the transaction saw before an operation with the row after
//! it, and appends the differences to its `PrepareConfirm`: for each unique index whose columns differ first the hidden
//! row to delete (if the old version was in the index: none of its columns NULL), then for each the hidden row to
//! insert (if the new version is in the index). The coordinator sends both to the owners of the hidden rows as
//! *sub-operations*: ordinary deletes and inserts of the same transaction with the same operation number, distinguished
//! by [`crate::operation::OperationHead::sub`].
//!
//! ```text
//!   PrepareConfirm:   PreparedHead, `count` PreparedOperations, then `changes` times
//!                     IndexChange and its bytes: of a delete the key, of an insert the image of the hidden row
//! ```

use crate::operation::OperationKind;
use alloc::vec::Vec;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One hidden row to delete or insert.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IndexChange {
    /// Version of the hidden table.
    pub version: U64,
    /// Hash of the hidden row's key.
    pub hash: U64,
    /// The hidden table.
    pub table: U32,
    /// The number of the operation that it follows from.
    pub operation: U32,
    /// The index's id.
    pub index: U16,
    /// Bytes that follow.
    pub bytes: U16,
    /// [`OperationKind::Delete`] or [`OperationKind::Insert`].
    pub kind: u8,
    /// Zero.
    pub unused: u8,
}

impl IndexChange {
    /// Appends it with its bytes.
    pub fn write(&self, bytes: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
        out.extend_from_slice(bytes);
    }

    /// Reads the change at the front of `bytes`, with its own bytes, and moves `bytes` behind it; `None` if it is not
    /// complete or neither delete nor insert.
    pub fn take<'a>(bytes: &mut &'a [u8]) -> Option<(&'a Self, &'a [u8])> {
        let (change, rest) = IndexChange::ref_from_prefix(bytes).ok()?;
        let (own, rest) = rest.split_at_checked(usize::from(change.bytes.get()))?;
        match OperationKind::from_number(change.kind)? {
            OperationKind::Insert | OperationKind::Delete => {}
            OperationKind::ReadCommitted
            | OperationKind::ReadShared
            | OperationKind::ReadExclusive
            | OperationKind::Update
            | OperationKind::Write
            | OperationKind::Unlock => return None,
        }
        *bytes = rest;
        Some((change, own))
    }
}
