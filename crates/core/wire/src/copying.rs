//! Rows that are copied to a data node that comes back: between the primary of a partition and the data manager there.
//! The protocol is described in `docs/protocols/node-restart.md`.
//!
//! Requests go along the chain, whose last replica is the one that is copied to; confirms go straight back.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `CopyRowsRequest` | primary | the target of a copy | the committed rows of a range of row ids |
//! | `CopyMarkersRequest` | primary | the same | committed transactions whose API nodes may not know it |
//! | `CopyConfirm` | the target | primary | I have taken over this batch |
//! | `MarkersCopiedRequest` | the target | coordinator | the copy has brought me these markers of yours: which are to go? |
//! | `MarkersCopiedConfirm` | coordinator | the target | I know of all that are left |
//!
//! ```text
//!   CopyRowsRequest:     CopyRowsHead, count × (CopiedRow, image)
//!   CopyMarkersRequest:  CopyMarkersHead, count × CopiedMarker
//!   MarkersCopiedRequest: MarkersCopiedHead, count × transaction id (8 bytes)
//!   MarkersCopiedConfirm: its number (4 bytes)
//! ```

use crate::take_over::CoordinatorBody;
use alloc::vec::Vec;
use vinga_base::{Epoch, RowId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Which batch of which copy: in requests, and in their confirms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CopyBatch {
    /// The view in which the copy began: a primary begins one copy in a view.
    pub copy: U32,
    /// Counted from 1 in each copy.
    pub batch: U32,
}

/// Beginning of `CopyRowsRequest`. Rows of the range that are not listed do not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CopyRowsHead {
    /// Which batch it is.
    pub batch: CopyBatch,
    /// With which version the table's rows began.
    pub birth: U64,
    /// Rows that are still to come behind this batch, and bytes of their images, about.
    pub rows_left: U64,
    /// See `rows_left`.
    pub bytes_left: U64,
    /// The table's id.
    pub table: U32,
    /// The range begins with this row id.
    pub first: U32,
    /// The range ends before this row id; [`TO_THE_END`]: behind the last one that there may be.
    pub end: U32,
    /// Rows in this batch, in ascending order of their ids.
    pub count: U16,
    /// Zero.
    pub unused: U16,
}

/// The end of a range that has no end ([`CopyRowsHead::end`]).
pub const TO_THE_END: u32 = u32::MAX;

/// A row in `CopyRowsRequest`; its image follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CopiedRow {
    /// The epoch of its last change.
    pub epoch: U64,
    /// Its id.
    pub row: U32,
    /// Bytes of its image.
    pub bytes: U16,
    /// Zero.
    pub unused: U16,
}

impl CopiedRow {
    /// Appends a row of these parts.
    pub fn append(row: RowId, epoch: Epoch, fixed: &[u8], variable: &[u8], out: &mut Vec<u8>) {
        let head = CopiedRow {
            epoch: U64::new(epoch.0),
            row: U32::new(row.0),
            bytes: U16::new((fixed.len() + variable.len()) as u16),
            unused: U16::ZERO,
        };
        for part in [head.as_bytes(), fixed, variable] {
            out.extend_from_slice(part);
        }
    }

    /// Takes the next row off, with its image; `None` if there is no whole one.
    pub fn take<'a>(bytes: &mut &'a [u8]) -> Option<(&'a Self, &'a [u8])> {
        let (head, rest) = CopiedRow::ref_from_prefix(bytes).ok()?;
        let (image, rest) = rest.split_at_checked(usize::from(head.bytes.get()))?;
        *bytes = rest;
        Some((head, image))
    }
}

/// All markers were sent: with this batch the copy is complete.
pub const COPY_IS_COMPLETE: u16 = 1;

/// Beginning of `CopyMarkersRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CopyMarkersHead {
    /// Which batch it is.
    pub batch: CopyBatch,
    /// The newest epoch of any commit at the primary: of a row that was deleted nothing else is copied.
    pub epoch: U64,
    /// Markers in this batch.
    pub count: U16,
    /// [`COPY_IS_COMPLETE`], or 0.
    pub flags: U16,
}

/// Markers in a batch, at most.
pub const COPIED_MARKERS_MAX: usize = 512;

/// A marker in `CopyMarkersRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CopiedMarker {
    /// The transaction.
    pub transaction: U64,
    /// The epoch in which it is committed.
    pub epoch: U64,
    /// Whose transaction it is.
    pub coordinator: CoordinatorBody,
    /// The operation that leaves the marker.
    pub number: U32,
}

/// Beginning of `MarkersCopiedRequest`. Whoever acts for the coordinator sends a `MarkersDropOrder` for those that it
/// knows nothing of any more, if there are any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct MarkersCopiedHead {
    /// Whose transactions these are.
    pub coordinator: CoordinatorBody,
    /// The data manager's number of it, for the confirm.
    pub request: U32,
    /// Transactions in this signal, [`COPIED_MARKERS_MAX`] at most.
    pub count: U32,
}

impl CopiedMarker {
    /// Takes the next marker off; `None` if there is no whole one.
    pub fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a Self> {
        let (marker, rest) = CopiedMarker::ref_from_prefix(bytes).ok()?;
        *bytes = rest;
        Some(marker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_as_they_were_appended() {
        let mut bytes = Vec::new();
        CopiedRow::append(RowId(7), Epoch(70), &[1, 2], &[3], &mut bytes);
        CopiedRow::append(RowId(9), Epoch(90), &[4], &[], &mut bytes);
        let mut rest = bytes.as_slice();
        let (row, image) = CopiedRow::take(&mut rest).expect("the first one");
        assert_eq!((row.row.get(), row.epoch.get(), image), (7, 70, &[1, 2, 3][..]));
        assert!(CopiedRow::take(&mut &rest[..rest.len() - 1]).is_none(), "it is cut off");
        let (row, image) = CopiedRow::take(&mut rest).expect("the second one");
        assert_eq!((row.row.get(), row.epoch.get(), image, rest), (9, 90, &[4][..], &[][..]));
    }
}
