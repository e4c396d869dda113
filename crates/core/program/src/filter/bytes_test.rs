//! Tests of bytes that are too long, or of too variable a length, to be treated as numbers.

use super::row_block::RowBlock;
use crate::comparison::Outcomes;
use alloc::vec::Vec;
use vinga_base::row_layout::{ColumnLayout, Place};

/// A test of one or two columns of bytes. NULL passes none.
#[derive(Clone, Debug)]
pub(super) enum BytesTest {
    /// Compares with a constant.
    Constant { column: ColumnLayout, constant: Vec<u8>, accepted: Outcomes },
    /// Compares with another column.
    Column { left: ColumnLayout, right: ColumnLayout, accepted: Outcomes },
    /// The value is one of these, which are sorted.
    In { column: ColumnLayout, members: Vec<Vec<u8>>, negated: bool },
    /// The value has this prefix.
    Prefix { column: ColumnLayout, prefix: Vec<u8>, negated: bool },
}

impl BytesTest {
    /// Whether a row passes.
    #[inline]
    pub(super) fn passes(&self, block: &RowBlock<'_>, slot: usize) -> bool {
        let value = |column| (!block.is_null(slot, column)).then(|| block.column(slot, column));
        match self {
            BytesTest::Constant { column, constant, accepted } => {
                value(column).is_some_and(|value| accepted.accept(Some(value.cmp(constant))))
            }
            BytesTest::Column { left, right, accepted } => match (value(left), value(right)) {
                (Some(left), Some(right)) => accepted.accept(Some(left.cmp(right))),
                (None, _) | (_, None) => false,
            },
            BytesTest::In { column, members, negated } => {
                let is_member = |value| members.binary_search_by(|member| member[..].cmp(value)).is_ok();
                value(column).is_some_and(|value| is_member(value) != *negated)
            }
            BytesTest::Prefix { column, prefix, negated } => {
                value(column).is_some_and(|value| value.starts_with(prefix) != *negated)
            }
        }
    }

    /// Roughly the nanoseconds that 16 rows take.
    pub(super) fn cost(&self) -> u64 {
        let access = |column: &ColumnLayout| match column.place {
            Place::Fixed { .. } => 60,
            // Most likely a cache miss.
            Place::Variable { .. } => 500,
        };
        match self {
            BytesTest::Constant { column, .. } | BytesTest::Prefix { column, .. } => access(column),
            BytesTest::In { column, .. } => 2 * access(column),
            BytesTest::Column { left, right, .. } => access(left) + access(right),
        }
    }
}
