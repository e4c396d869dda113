//! A row's slot: header and fixed part.
//!
//! ```text
//!   byte 0   u64  bits 15..0 flags, bits 63..16 epoch of the last change
//!   byte 8   u32  operation reference: the operation that has locked or changes the row; 0 = none
//!   byte 12  u32  ChunkRef of the variable part, 0 = none; only in tables with columns of variable size
//!   byte 12 or 16 the fixed part of the row image, then padding up to a multiple of 4
//! ```
//! All numbers are little-endian. Slot `s` of a page begins at byte `s * stride`; there is no page header, so a page
//! holds `32768 / stride` slots: 273 rows of 108 bytes.

use crate::chunk_store::ChunkRef;
use vinga_base::page_pool::PAGE_BYTES;
use vinga_base::{Epoch, RowId};

/// Slots of a page, at most.
pub const SLOTS_MAX: usize = 1 << RowId::SLOT_BITS;

/// The smallest stride, so that a page has no more slots than a row id can name.
const STRIDE_MIN: usize = PAGE_BYTES / SLOTS_MAX;
const OPERATION_AT: usize = 8;
const VARIABLE_AT: usize = 12;

/// The flags of a row.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RowFlags(pub u16);

impl RowFlags {
    /// No flag.
    pub const NONE: RowFlags = RowFlags(0);
    /// The row holds an insert that is not committed: there is no committed version. Such a row has an operation
    /// reference. Bits 1 to 15 belong to the data manager; the store only keeps them.
    pub const PENDING_INSERT: RowFlags = RowFlags(1);

    /// Whether all flags of `other` are set.
    #[inline]
    pub fn contains(self, other: RowFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The operation that has locked a row or changes it: a number that the data manager assigns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct OperationRef(pub u32);

impl OperationRef {
    /// No operation.
    pub const NONE: OperationRef = OperationRef(0);
}

/// The part of a row's header that the data manager sets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RowHeader {
    /// Epoch of the last committed change; 0 while there is none.
    pub epoch: Epoch,
    /// See [`RowFlags`].
    pub flags: RowFlags,
    /// The operation that has locked or changes the row.
    pub operation: OperationRef,
}

/// A row in its slot.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    slot: &'a [u8],
    fixed_at: usize,
}

impl<'a> Row<'a> {
    /// Epoch, flags and operation reference together.
    #[inline]
    pub fn header(&self) -> RowHeader {
        RowHeader { epoch: self.epoch(), flags: self.flags(), operation: self.operation() }
    }

    /// Epoch of the last change.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        Epoch(load_u64(self.slot) >> 16)
    }

    /// Flags.
    #[inline]
    pub fn flags(&self) -> RowFlags {
        RowFlags(load_u64(self.slot) as u16)
    }

    /// The operation that has locked or changes the row.
    #[inline]
    pub fn operation(&self) -> OperationRef {
        OperationRef(load_u32(&self.slot[OPERATION_AT..]))
    }

    /// The variable part; `None` if it has not been set, or the table has no columns of variable size.
    #[inline]
    pub fn variable(&self) -> Option<ChunkRef> {
        if self.fixed_at == VARIABLE_AT {
            None
        } else {
            ChunkRef::from_bits(load_u32(&self.slot[VARIABLE_AT..]))
        }
    }

    /// The fixed part.
    #[inline]
    pub fn fixed(&self) -> &'a [u8] {
        &self.slot[self.fixed_at..]
    }
}

/// A row in its slot, to change it.
pub struct RowMut<'a> {
    slot: &'a mut [u8],
    fixed_at: usize,
}

impl<'a> RowMut<'a> {
    /// The row, to read it.
    #[inline]
    pub fn read(&self) -> Row<'_> {
        Row { slot: self.slot, fixed_at: self.fixed_at }
    }

    /// Sets epoch, flags and operation reference.
    #[inline]
    pub fn set_header(&mut self, header: RowHeader) {
        assert!(header.epoch <= Epoch::MAX, "an epoch has 48 bits");
        let word = header.epoch.0 << 16 | u64::from(header.flags.0);
        self.slot[..OPERATION_AT].copy_from_slice(&word.to_le_bytes());
        self.set_operation(header.operation);
    }

    /// Sets the epoch of the last change.
    #[inline]
    pub fn set_epoch(&mut self, epoch: Epoch) {
        self.set_header(RowHeader { epoch, ..self.read().header() });
    }

    /// Sets all flags.
    #[inline]
    pub fn set_flags(&mut self, flags: RowFlags) {
        self.slot[..2].copy_from_slice(&flags.0.to_le_bytes());
    }

    /// Sets the operation that has locked or changes the row.
    #[inline]
    pub fn set_operation(&mut self, operation: OperationRef) {
        self.slot[OPERATION_AT..OPERATION_AT + 4].copy_from_slice(&operation.0.to_le_bytes());
    }

    /// Sets the variable part; only `None` in a table without columns of variable size.
    #[inline]
    pub fn set_variable(&mut self, variable: Option<ChunkRef>) {
        if self.fixed_at == VARIABLE_AT {
            assert!(variable.is_none(), "the table has no columns of variable size");
        } else {
            let bits = ChunkRef::to_bits(variable);
            self.slot[VARIABLE_AT..VARIABLE_AT + 4].copy_from_slice(&bits.to_le_bytes());
        }
    }

    /// Sets the variable part and returns the previous one.
    #[inline]
    pub fn replace_variable(&mut self, variable: Option<ChunkRef>) -> Option<ChunkRef> {
        let before = self.read().variable();
        self.set_variable(variable);
        before
    }

    /// The fixed part.
    #[inline]
    pub fn fixed_mut(&mut self) -> &mut [u8] {
        &mut self.slot[self.fixed_at..]
    }

    /// The fixed part, for as long as the row was borrowed.
    #[inline]
    pub fn into_fixed(self) -> &'a mut [u8] {
        &mut self.slot[self.fixed_at..]
    }
}

/// The layout of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// Bytes from slot to slot.
    pub(crate) stride: usize,
    /// Bytes of a slot without padding.
    pub(crate) row_bytes: usize,
    /// Where the fixed part begins.
    pub(crate) fixed_at: usize,
    /// Slots of a page.
    pub(crate) slots: usize,
}

impl Shape {
    /// The layout for rows with a fixed part of `fixed_bytes` bytes.
    pub(crate) fn new(fixed_bytes: usize, has_variable: bool) -> Self {
        let fixed_at = if has_variable { VARIABLE_AT + 4 } else { VARIABLE_AT };
        let row_bytes = fixed_at + fixed_bytes;
        let stride = row_bytes.next_multiple_of(4).max(STRIDE_MIN);
        assert!(stride <= PAGE_BYTES, "a row of {fixed_bytes} bytes does not fit a page");
        Shape { stride, row_bytes, fixed_at, slots: PAGE_BYTES / stride }
    }

    /// Words of a bitmap over the slots.
    #[inline]
    pub(crate) fn words(&self) -> usize {
        self.slots.div_ceil(64)
    }

    /// A slot of a page.
    #[inline]
    pub(crate) fn row<'a>(&self, page: &'a [u8; PAGE_BYTES], slot: usize) -> Row<'a> {
        // This also checks that the slot exists: the rest of the page after the last slot is shorter than a row.
        self.row_in(&page[slot * self.stride..])
    }

    /// The slot with which these bytes begin.
    #[inline]
    pub(crate) fn row_in<'a>(&self, bytes: &'a [u8]) -> Row<'a> {
        Row { slot: &bytes[..self.row_bytes], fixed_at: self.fixed_at }
    }

    /// A slot of a page, to change it.
    #[inline]
    pub(crate) fn row_mut<'a>(&self, page: &'a mut [u8; PAGE_BYTES], slot: usize) -> RowMut<'a> {
        let at = slot * self.stride;
        RowMut { slot: &mut page[at..at + self.row_bytes], fixed_at: self.fixed_at }
    }
}

#[inline]
fn load_u64(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("a header has as many bytes"))
}

#[inline]
fn load_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(*bytes.first_chunk().expect("a header has as many bytes"))
}
