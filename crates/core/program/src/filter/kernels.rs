//! The leaves of a lowered filter: each tests up to 64 rows of a block at once.
//!
//! Rows are stored at a constant stride, so a test of a column of fixed size is a loop over loads at equal distances.
//! It is compiled for each width, with the operator already reduced to a range: one load, one subtraction, one
//! comparison and one bit per row, and no branch on data. If few rows are left, only those are loaded.

use super::bytes_test::BytesTest;
use super::number_test::NumberTest;
use super::row_block::{RowBlock, VariableSource};
use alloc::vec::Vec;
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::Kind;

/// Up to this many rows it is cheaper to visit each than to process all 64.
const SPARSE_ROWS_MAX: u32 = 8;

/// A test of rows. NULL passes only those that ask for it.
#[derive(Clone, Debug)]
pub(super) enum Leaf {
    Null { test: NullTest, negated: bool },
    Range(Range),
    IntegerSet(IntegerSet),
    DoubleRange(DoubleRange),
    Bytes(BytesTest),
    Numbers(NumberTest),
}

/// A null bit of the fixed part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NullTest {
    pub(super) offset: u16,
    pub(super) mask: u8,
}

/// A column whose bytes are read as an unsigned number: its *raw* value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RawColumn {
    pub(super) offset: u16,
    /// 1–8.
    pub(super) bytes: u8,
    pub(super) big_endian: bool,
}

impl RawColumn {
    #[inline]
    fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * u32::from(self.bytes))
    }

    /// The value with which these bytes begin.
    #[inline]
    fn read(self, bytes: &[u8]) -> u64 {
        match (self.bytes, self.big_endian) {
            (4, false) => u64::from(u32::from_le_bytes(*first(bytes))),
            (8, false) => u64::from_le_bytes(*first(bytes)),
            (count, big_endian) => {
                let bytes = &bytes[..usize::from(count)];
                let join = |number, &byte| number << 8 | u64::from(byte);
                if big_endian { bytes.iter().fold(0, join) } else { bytes.iter().rev().fold(0, join) }
            }
        }
    }
}

/// `low <= column <= high`, or the opposite. In arithmetic modulo the column's width that is
/// `raw - low <= high - low`, for signed and unsigned columns alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) raw: RawColumn,
    pub(super) low: i128,
    pub(super) high: i128,
    pub(super) negated: bool,
    /// Only set if NULL, which is stored as zeros, would pass.
    pub(super) null: Option<NullTest>,
}

impl Range {
    pub(super) fn new(raw: RawColumn, low: i128, high: i128, negated: bool, null: Option<NullTest>) -> Self {
        let zero_passes = (low..=high).contains(&0) != negated;
        Range { raw, low, high, negated, null: null.filter(|_| zero_passes) }
    }

    /// Its offset in the fixed part.
    pub(super) fn offset(&self) -> usize {
        usize::from(self.raw.offset)
    }

    /// The rows that pass this range and another one of the same column, neither of them negated; `None` if none can.
    pub(super) fn intersection(&self, other: &Range) -> Option<Range> {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        (low <= high).then(|| Range::new(self.raw, low, high, false, self.null))
    }

    /// Whether one row passes.
    #[inline]
    pub(super) fn passes(&self, fixed: &[u8]) -> bool {
        let is_null = |test: NullTest| fixed[usize::from(test.offset)] & test.mask != 0;
        let raw = self.raw.read(&fixed[usize::from(self.raw.offset)..]);
        let span = (self.high - self.low) as u64;
        let is_inside = raw.wrapping_sub(self.low as u64) & self.raw.mask() <= span;
        is_inside != self.negated && !self.null.is_some_and(is_null)
    }
}

/// The column's value is one of these, or none of them.
#[derive(Clone, Debug)]
pub(super) struct IntegerSet {
    raw: RawColumn,
    /// Raw values, sorted.
    members: Vec<u64>,
    negated: bool,
    null: Option<NullTest>,
}

impl IntegerSet {
    pub(super) fn new(raw: RawColumn, members: &[i128], negated: bool, null: Option<NullTest>) -> Self {
        let mut members: Vec<u64> = members.iter().map(|&member| member as u64 & raw.mask()).collect();
        members.sort_unstable();
        let zero_passes = members.contains(&0) != negated;
        IntegerSet { raw, members, negated, null: null.filter(|_| zero_passes) }
    }
}

/// `low <= column <= high`, or the opposite (which NaN passes).
#[derive(Clone, Copy, Debug)]
pub(super) struct DoubleRange {
    pub(super) offset: u16,
    pub(super) kind: Kind,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) negated: bool,
    pub(super) null: Option<NullTest>,
}

impl Leaf {
    /// Roughly the nanoseconds that 16 rows take.
    pub(super) fn cost(&self) -> u64 {
        let null = |null: Option<NullTest>| if null.is_some() { 10 } else { 0 };
        match self {
            Leaf::Null { .. } => 10,
            Leaf::Range(range) => 10 + null(range.null),
            Leaf::DoubleRange(range) => 11 + null(range.null),
            Leaf::IntegerSet(set) => 50 + null(set.null),
            Leaf::Bytes(test) => test.cost(),
            Leaf::Numbers(test) => test.cost(),
        }
    }

    /// Whether one row passes, which is slot 0 of the source of its variable part.
    #[inline]
    pub(super) fn matches(&self, layout: &RowLayout, fixed: &[u8], variable: &dyn VariableSource) -> bool {
        match self {
            Leaf::Range(range) => range.passes(fixed),
            Leaf::Null { .. }
            | Leaf::IntegerSet(_)
            | Leaf::DoubleRange(_)
            | Leaf::Bytes(_)
            | Leaf::Numbers(_) => self.matches_as_block(&RowBlock::new(layout, fixed, 0, 0, 1, variable)),
        }
    }

    #[inline(never)]
    fn matches_as_block(&self, row: &RowBlock<'_>) -> bool {
        self.select(row, 0, 1) != 0
    }

    /// The selected rows that pass. Bit `i` is that of slot `first + i`.
    #[inline]
    pub(super) fn select(&self, block: &RowBlock<'_>, first: usize, selected: u64) -> u64 {
        let rows = Rows { block, first, selected };
        match self {
            Leaf::Null { test, negated } => rows.passing(rows.null(*test), *negated, None),
            Leaf::Range(range) => {
                let low = range.low as u64;
                let span = (range.high - range.low) as u64;
                let mask = range.raw.mask();
                let inside = rows.raw(range.raw, |raw| raw.wrapping_sub(low) & mask <= span);
                rows.passing(inside, range.negated, range.null)
            }
            Leaf::IntegerSet(set) => {
                let inside = rows.raw(set.raw, |raw| set.members.binary_search(&raw).is_ok());
                rows.passing(inside, set.negated, set.null)
            }
            Leaf::DoubleRange(range) => {
                let DoubleRange { offset, kind, low, high, negated, null } = *range;
                let inside = |value: f64| (low <= value) & (value <= high);
                let inside = if kind == Kind::Float {
                    rows.each_at(offset, |bytes| inside(f64::from(f32::from_le_bytes(*bytes))))
                } else {
                    rows.each_at(offset, |bytes| inside(f64::from_le_bytes(*bytes)))
                };
                rows.passing(inside, negated, null)
            }
            Leaf::Bytes(test) => rows.each_slot(|slot| test.passes(block, slot)),
            Leaf::Numbers(test) => test.select(block, first, selected),
        }
    }
}

/// Some rows of a block: up to 64 slots from `first`.
struct Rows<'a> {
    block: &'a RowBlock<'a>,
    first: usize,
    selected: u64,
}

impl Rows<'_> {
    /// The selected rows that are in `inside`, or are not if negated, and pass the null test.
    #[inline]
    fn passing(&self, inside: u64, negated: bool, null: Option<NullTest>) -> u64 {
        let passing = if negated { self.selected & !inside } else { self.selected & inside };
        match null {
            Some(test) if passing != 0 => passing & !Rows { selected: passing, ..*self }.null(test),
            Some(_) | None => passing,
        }
    }

    fn null(&self, test: NullTest) -> u64 {
        self.each_at(test.offset, |&[byte]| byte & test.mask != 0)
    }

    /// The rows whose raw value passes; the result may contain rows that are not selected.
    #[inline]
    fn raw(&self, column: RawColumn, test: impl Fn(u64) -> bool) -> u64 {
        macro_rules! width {
            ($bytes:literal) => {
                if column.big_endian {
                    self.each_at::<$bytes>(column.offset, |bytes| test(big_endian(bytes)))
                } else {
                    self.each_at::<$bytes>(column.offset, |bytes| test(little_endian(bytes)))
                }
            };
        }
        match column.bytes {
            1 => width!(1),
            2 => width!(2),
            3 => width!(3),
            4 => width!(4),
            5 => width!(5),
            6 => width!(6),
            7 => width!(7),
            8 => width!(8),
            _ => unreachable!("raw values have 1 to 8 bytes"),
        }
    }

    /// The rows whose bytes at an offset pass; the result may contain rows that are not selected.
    #[inline]
    fn each_at<const N: usize>(&self, offset: u16, test: impl Fn(&[u8; N]) -> bool) -> u64 {
        let (rows, stride) = self.block.fixed(self.first);
        let bytes = &rows[usize::from(offset)..];
        let test_at = |row: usize| {
            let bytes = &bytes[row * stride..];
            u64::from(test(first(bytes))) << row
        };
        if self.selected.count_ones() <= SPARSE_ROWS_MAX {
            return self.each(test_at);
        }
        let count = 64 - self.selected.leading_zeros() as usize;
        (0..count).fold(0, |word, row| word | test_at(row))
    }

    /// The selected rows whose slots pass.
    fn each_slot(&self, test: impl Fn(usize) -> bool) -> u64 {
        self.each(|row| u64::from(test(self.first + row)) << row)
    }

    #[inline]
    fn each(&self, bit_of: impl Fn(usize) -> u64) -> u64 {
        let (mut word, mut rest) = (0, self.selected);
        while rest != 0 {
            word |= bit_of(rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
        word
    }
}

#[inline]
fn first<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    bytes.first_chunk().expect("the fixed part of a row is whole")
}

#[inline]
fn little_endian<const N: usize>(bytes: &[u8; N]) -> u64 {
    let mut number = [0; 8];
    number[..N].copy_from_slice(bytes);
    u64::from_le_bytes(number)
}

#[inline]
fn big_endian<const N: usize>(bytes: &[u8; N]) -> u64 {
    let mut number = [0; 8];
    number[8 - N..].copy_from_slice(bytes);
    u64::from_be_bytes(number)
}
