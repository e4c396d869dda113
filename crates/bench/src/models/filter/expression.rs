//! The table that is filtered, and filters as trees.
//!
//! Columns of a row, after the key: 24 null bits (u32, bit = column number), 28 a (i64), 36 b (i32),
//! 40 c (i16), 42 d (i16), 44 e (i32).

use crate::models::machine::Region;
use crate::models::rows::{PAGE_BYTES, PAGE_HEADER_BYTES, Page, ROW_BYTES, ROWS_PER_PAGE, Row, hash};

const NULLS_OFFSET: usize = 24;

/// How an integer column is stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum Width {
    I16,
    I32,
    I64,
}

/// The position of a column in the row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) number: u32,
    pub(super) offset: usize,
    pub(super) width: Width,
}

pub(super) const A: Column = Column { number: 0, offset: 28, width: Width::I64 };
pub(super) const B: Column = Column { number: 1, offset: 36, width: Width::I32 };
pub(super) const C: Column = Column { number: 2, offset: 40, width: Width::I16 };
pub(super) const D: Column = Column { number: 3, offset: 42, width: Width::I16 };
pub(super) const E: Column = Column { number: 4, offset: 44, width: Width::I32 };

/// The comparison of a column.
#[derive(Clone, Copy, Debug)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    GreaterOrEqual,
}

impl Comparison {
    #[cfg(test)]
    pub(super) const ALL: [Self; 4] = [Self::Equal, Self::NotEqual, Self::Less, Self::GreaterOrEqual];
}

/// A filter in negation normal form. A constant fits the width of its column.
#[derive(Debug)]
pub(super) enum Expression {
    Compare(Column, Comparison, i64),
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
}

/// An integer as it is stored in rows.
pub(super) trait Stored: Copy + PartialOrd + Send + Sync + 'static {
    /// Reads the integer at an offset of a row.
    fn read(row: &Row, offset: usize) -> Self;
    /// The constant of a comparison; it fits.
    fn constant(value: i64) -> Self;
}

macro_rules! stored {
    ($($type:ty),*) => {$(
        impl Stored for $type {
            #[inline(always)]
            fn read(row: &Row, offset: usize) -> Self {
                Self::from_le_bytes(*row[offset..].first_chunk().expect("columns lie within the row"))
            }
            fn constant(value: i64) -> Self {
                value.try_into().expect("a checked filter's constants fit their columns")
            }
        }
    )*};
}
stored!(i16, i32, i64);

/// Whether a column of the row is NULL.
#[inline(always)]
pub(super) fn is_null(row: &Row, column: u32) -> bool {
    let nulls = u32::from_le_bytes(*row[NULLS_OFFSET..].first_chunk().expect("null bits lie within the row"));
    (nulls >> column) & 1 == 1
}

/// Whether the slot holds a row.
#[inline(always)]
pub(super) fn is_in_use(row: &Row) -> bool {
    row[0] & 1 == 1
}

/// All slots of a page.
#[inline(always)]
pub(super) fn slots(page: &Page) -> &[Row; ROWS_PER_PAGE] {
    let (slots, _) = page[PAGE_HEADER_BYTES..].as_chunks();
    slots.first_chunk().expect("a page has room for its rows")
}

/// The rows of a page.
#[inline(always)]
pub(super) fn rows_in(page: &Page) -> impl Iterator<Item = &Row> {
    slots(page).iter().filter(|row| is_in_use(row))
}

impl Expression {
    /// The meaning of a filter, by plain recursion: the reference for the other ways.
    #[cfg(test)]
    pub(super) fn is_true(&self, row: &Row) -> bool {
        match self {
            Self::And(left, right) => left.is_true(row) && right.is_true(row),
            Self::Or(left, right) => left.is_true(row) || right.is_true(row),
            &Self::Compare(column, comparison, constant) => {
                let value = match column.width {
                    Width::I16 => i64::from(i16::read(row, column.offset)),
                    Width::I32 => i64::from(i32::read(row, column.offset)),
                    Width::I64 => i64::read(row, column.offset),
                };
                !is_null(row, column.number)
                    && match comparison {
                        Comparison::Equal => value == constant,
                        Comparison::NotEqual => value != constant,
                        Comparison::Less => value < constant,
                        Comparison::GreaterOrEqual => value >= constant,
                    }
            }
        }
    }
}

/// Rows in pages: a is random below 1000 and b equals it, so `a >= 500 AND b < 500` has two true halves;
/// c is random below 8; d is 7 and e below 9 where c is 3. One row in 64 has a NULL, one slot in 50 is free.
pub(super) fn table(rows: usize) -> Region<Page> {
    let mut pages = Region::new(rows.div_ceil(ROWS_PER_PAGE));
    for i in 0..rows {
        let random = hash(i as u64);
        let start = PAGE_HEADER_BYTES + i % ROWS_PER_PAGE * ROW_BYTES;
        let page: &mut [u8; PAGE_BYTES] = &mut pages[i / ROWS_PER_PAGE];
        let mut put = |offset: usize, bytes: &[u8]| {
            page[start + offset..start + offset + bytes.len()].copy_from_slice(bytes);
        };
        let a = (random >> 8) % 1000;
        let c = (random >> 32) % 8;
        let (d, e) = if c == 3 { (7, a % 9) } else { ((random >> 40) % 10, a) };
        let nulls = if random >> 58 == 0 { 1u32 << ((random >> 50) % 5) } else { 0 };
        put(0, &u64::from(!random.is_multiple_of(50)).to_le_bytes());
        put(16, &(i as u64).to_le_bytes());
        put(NULLS_OFFSET, &nulls.to_le_bytes());
        put(A.offset, &a.to_le_bytes());
        put(B.offset, &(a as i32).to_le_bytes());
        put(C.offset, &(c as i16).to_le_bytes());
        put(D.offset, &(d as i16).to_le_bytes());
        put(E.offset, &(e as i32).to_le_bytes());
    }
    pages
}
