//! Committed reads by primary key: sent directly from the API node to the owner of the rows.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `KeyReadRequest` | API node | data manager | reads one or more rows of one table |
//! | `KeyReadConfirm` | data manager | API node | the rows, in the order of the keys; several frames if they are long |
//! | `KeyReadRefuse` | data manager | API node | none of the (remaining) keys was read |
//!
//! Keys of one request are numbered from its `request` tag; each answer states which ones it covers. A request with a
//! transaction's id sees that transaction's own changes with lower operation numbers; an API node sends it only when
//! all its writes have been answered, otherwise the read is sent through the coordinator in the same batch.
//!
//! ```text
//!   KeyReadRequest:  KeyReadHead, columns * u16, filter, then the keys: as they are if all keys of the table have one
//!                    size, else each behind a u16 length
//!   KeyReadConfirm:  KeyReadAnswer, then for each key u16 length and the row (image or selection); NO_ROW if there is
//!                    no such row or the filter rejects it
//!   KeyReadRefuse:   KeyReadRefusal
//! ```

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Keys of one request, at most.
pub const KEYS_MAX: usize = 256;

/// Bytes after which an answer is continued in another frame.
pub const ANSWER_BYTES_SOFT: usize = 32 * 1024;

/// In `flags` of a request: it is meant for a backup, of a table whose backups answer reads. Without it only the
/// primary answers.
pub const READ_AT_BACKUP: u16 = 1;

/// In place of a row's length: there is no row.
pub const NO_ROW: u16 = u16::MAX;

/// Beginning of `KeyReadRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct KeyReadHead {
    /// Version of the table's definition that the API node knows.
    pub version: U64,
    /// Transaction whose own changes are visible; 0 for none.
    pub transaction: U64,
    /// The API node's tag of the first key.
    pub request: U32,
    /// The table.
    pub table: U32,
    /// Own changes from this operation number on are not visible.
    pub operation: U32,
    /// Number of keys, 1 to [`KEYS_MAX`].
    pub count: U16,
    /// Number of selected columns, or [`crate::operation::ALL_COLUMNS`].
    pub columns: U16,
    /// Bytes of the filter program.
    pub filter_bytes: U16,
    /// Flags defined in this file.
    pub flags: U16,
}

/// Beginning of `KeyReadConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct KeyReadAnswer {
    /// Newest epoch of any commit at this data manager.
    pub epoch: U64,
    /// Tag of the first key that is answered here.
    pub request: U32,
    /// Number of keys answered here.
    pub count: U16,
    /// Zero.
    pub unused: U16,
}

/// `KeyReadRefuse`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct KeyReadRefusal {
    /// Tag of the first key that is refused.
    pub request: U32,
    /// Number of keys refused.
    pub count: U16,
    /// [`crate::ErrorCode`].
    pub code: U16,
    /// Number of the data manager's view, for [`crate::ErrorCode::Moved`].
    pub view: U32,
}

/// The rows of a `KeyReadConfirm`, in order; stops early if the frame is not well-formed.
pub struct Rows<'a> {
    rest: &'a [u8],
    left: u16,
}

impl<'a> Rows<'a> {
    /// The rows after a [`KeyReadAnswer`].
    pub fn new(answer: &KeyReadAnswer, rest: &'a [u8]) -> Self {
        Rows { rest, left: answer.count.get() }
    }
}

impl<'a> Iterator for Rows<'a> {
    type Item = Option<&'a [u8]>;

    #[inline]
    fn next(&mut self) -> Option<Option<&'a [u8]>> {
        self.left = self.left.checked_sub(1)?;
        let (length, rest) = self.rest.split_first_chunk::<2>()?;
        let length = u16::from_le_bytes(*length);
        if length == NO_ROW {
            self.rest = rest;
            return Some(None);
        }
        let (row, rest) = rest.split_at_checked(usize::from(length))?;
        self.rest = rest;
        Some(Some(row))
    }
}
