//! Checkpoints: the file of one round of a data manager, with all its fragments.
//!
//! ```text
//!   file    block ImageHead   block ImagePages   block ImagePages   …   block ImageEnd
//!   block   piece   piece   …
//!   piece   head (32 bytes)   bitmap of live slots   row   row   …
//!   row     u64 epoch   fixed part   in tables with a variable part: u16 length, variable part
//! ```
//! A piece is a range of slots of a page, as it was when the scan passed it. A page whose rows don't fit the rest of a
//! block is continued in a piece of the next one. A piece without rows says that these slots are free. A checkpoint
//! that builds on others holds only the pages that have changed since; a later piece of a page replaces earlier ones.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use vinga_base::{Epoch, PartitionId, RowId, TableId, TableVersion};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The payload of a checkpoint's first block.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct ImageHead {
    /// The data manager's instance.
    pub instance: u16,
    /// The number of the checkpoint.
    pub checkpoint: u64,
    /// The numbers of the earlier files that it builds on, oldest first; none if it is complete.
    pub base: Vec<u64>,
    /// The first batch of the data manager's redo log that has to be replayed behind it.
    pub batch: u64,
    /// The incarnation of the node's log.
    pub incarnation: u32,
    /// The newest epoch that a global checkpoint had made durable when the checkpoint began.
    pub epoch: Epoch,
    /// The fragments that were there when it began.
    pub fragments: Vec<ImageFragment>,
}

/// A fragment of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct ImageFragment {
    /// The table.
    pub table: TableId,
    /// The version of the table with which its rows began.
    pub birth: TableVersion,
    /// The partition.
    pub partition: PartitionId,
    /// Bytes of the fixed part of each row.
    pub fixed_bytes: u32,
    /// Whether the table has columns of variable size.
    pub has_variable: bool,
}

impl ImageFragment {
    /// Bytes of a row without its variable part.
    pub(crate) fn row_bytes(&self) -> usize {
        let length = if self.has_variable { VARIABLE_LENGTH_BYTES } else { 0 };
        EPOCH_BYTES + self.fixed_bytes as usize + length
    }
}

/// The payload of a checkpoint's last block.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct ImageEnd {
    /// The newest epoch of any change, deletes too, that was committed before the scan ended.
    pub epoch: Epoch,
    /// What the file contains.
    pub totals: Totals,
}

/// What a checkpoint contains.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub struct Totals {
    /// Blocks, the first and the last one, too.
    pub blocks: u64,
    /// Pieces of pages.
    pub pieces: u64,
    /// Rows.
    pub rows: u64,
    /// Bytes of these rows.
    pub bytes: u64,
}

/// The head of a piece, as it is in the file.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "described at `Piece`")]
pub struct PieceHead {
    pub table: U32,
    pub partition: U16,
    pub reserved: U16,
    pub birth: U64,
    pub page: U32,
    pub first_slot: U16,
    pub slots: U16,
    pub rows: U16,
    pub reserved_too: U16,
    pub bytes: U32,
}

/// Bytes that a piece takes beside its bitmap and its rows.
pub const PIECE_HEAD_BYTES: usize = size_of::<PieceHead>();

/// Slots of a page at most.
pub const SLOTS_MAX: u16 = 1 << RowId::SLOT_BITS;

/// Pages of a fragment at most.
pub const PAGES_MAX: u32 = 1 << (32 - RowId::SLOT_BITS);

pub(crate) const EPOCH_BYTES: usize = size_of::<u64>();
pub(crate) const VARIABLE_LENGTH_BYTES: usize = size_of::<u16>();

/// Bytes of the bitmap of a piece: whole words of 64 slots.
pub(crate) fn bitmap_bytes(slots: u16) -> usize {
    usize::from(slots).div_ceil(64) * size_of::<u64>()
}
