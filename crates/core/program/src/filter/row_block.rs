//! Rows at equal distances in one page, as filters read them.

use vinga_base::row_layout::{ColumnLayout, Place, RowLayout};

/// Rows of a block, at most: the slots of a page.
pub const ROWS_MAX: usize = 2048;

/// Finds the variable parts of a block's rows.
pub trait VariableSource {
    /// The variable part of the row in this slot of the block. Only called for rows that are selected.
    fn variable(&self, slot: usize) -> &[u8];
}

/// For tables without columns of variable size.
pub struct NoVariable;

impl VariableSource for NoVariable {
    fn variable(&self, slot: usize) -> &[u8] {
        unreachable!("slot {slot} is asked for its variable part, but the table has none")
    }
}

/// A block of rows. There may be slots without a row among them: they contain arbitrary bytes and are not selected.
#[derive(Clone, Copy)]
pub struct RowBlock<'a> {
    layout: &'a RowLayout,
    /// From the fixed part of slot 0 on.
    bytes: &'a [u8],
    stride: usize,
    count: usize,
    variable: &'a dyn VariableSource,
}

impl<'a> RowBlock<'a> {
    /// The rows of a page: the fixed part of slot `i` begins at byte `first + i * stride`.
    pub fn new(
        layout: &'a RowLayout,
        page: &'a [u8],
        first: usize,
        stride: usize,
        count: usize,
        variable: &'a dyn VariableSource,
    ) -> Self {
        assert!(count <= ROWS_MAX, "{count} rows in a block, {ROWS_MAX} are allowed");
        let bytes = &page[first..];
        assert!(
            count == 0 || (count - 1) * stride + layout.fixed_bytes() <= bytes.len(),
            "the last of {count} rows ends behind its page"
        );
        RowBlock { layout, bytes, stride, count, variable }
    }

    /// Number of slots.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The bytes from the fixed part of a slot on, to the end of the page, and the stride of the slots.
    #[inline]
    pub(super) fn fixed(&self, slot: usize) -> (&'a [u8], usize) {
        (&self.bytes[slot * self.stride..], self.stride)
    }

    #[inline]
    pub(super) fn is_null(&self, slot: usize, column: &ColumnLayout) -> bool {
        self.layout.is_null(self.fixed(slot).0, column)
    }

    /// The stored bytes of a column.
    #[inline]
    pub(super) fn column(&self, slot: usize, column: &ColumnLayout) -> &'a [u8] {
        let variable = match column.place {
            Place::Fixed { .. } => &[],
            Place::Variable { .. } => self.variable.variable(slot),
        };
        self.layout.bytes(self.fixed(slot).0, variable, column)
    }
}
