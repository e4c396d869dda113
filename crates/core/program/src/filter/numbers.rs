//! Arithmetic of filters: typed trees of integers and doubles, evaluated for up to 64 rows at a time.
//!
//! Integers are kept in 128 bits, where no sum of two of them can overflow; [`Arithmetic::on_integers`] alone enforces
//! the range, for rows and for constants that are folded beforehand.

use super::row_block::RowBlock;
use super::tree::Arithmetic;
use crate::stored_value;
use alloc::boxed::Box;
use vinga_base::row_layout::ColumnLayout;

/// Rows that are evaluated together.
pub(super) const LANES: usize = 64;

/// An expression whose values are integers or NULL.
#[derive(Clone, Debug)]
pub(super) enum Integer {
    Constant(i128),
    Column(ColumnLayout),
    Binary(Arithmetic, Box<[Integer; 2]>),
}

/// An expression whose values are doubles or NULL.
#[derive(Clone, Debug)]
pub(super) enum Double {
    Constant(f64),
    Column(ColumnLayout),
    Integer(Integer),
    Binary(Arithmetic, Box<[Double; 2]>),
}

impl Arithmetic {
    /// The result, or `None` for NULL.
    #[inline]
    fn on_integers(self, left: i128, right: i128) -> Option<i128> {
        const RANGE: core::ops::RangeInclusive<i128> = i64::MIN as i128..=u64::MAX as i128;
        let (low_left, low_right) = (left as u64, right as u64);
        let shift = |shifted: fn(u64, u32) -> u64| {
            if low_right < 64 { shifted(low_left, low_right as u32) } else { 0 }
        };
        let result = match self {
            Arithmetic::Add => left + right,
            Arithmetic::Subtract => left - right,
            Arithmetic::Multiply => left.checked_mul(right)?,
            Arithmetic::Divide => left.checked_div(right)?,
            Arithmetic::Remainder => left.checked_rem(right)?,
            Arithmetic::BitAnd => i128::from(low_left & low_right),
            Arithmetic::BitOr => i128::from(low_left | low_right),
            Arithmetic::BitXor => i128::from(low_left ^ low_right),
            Arithmetic::ShiftLeft => i128::from(shift(|bits, by| bits << by)),
            Arithmetic::ShiftRight => i128::from(shift(|bits, by| bits >> by)),
        };
        RANGE.contains(&result).then_some(result)
    }

    #[inline]
    fn on_doubles(self, left: f64, right: f64) -> f64 {
        match self {
            Arithmetic::Add => left + right,
            Arithmetic::Subtract => left - right,
            Arithmetic::Multiply => left * right,
            Arithmetic::Divide => left / right,
            Arithmetic::Remainder => left % right,
            Arithmetic::BitAnd
            | Arithmetic::BitOr
            | Arithmetic::BitXor
            | Arithmetic::ShiftLeft
            | Arithmetic::ShiftRight => unreachable!("the check admits integers only"),
        }
    }
}

/// The rows of a block for which something is evaluated.
pub(super) struct Lanes<'a> {
    block: &'a RowBlock<'a>,
    slots: [u16; LANES],
    count: usize,
}

impl<'a> Lanes<'a> {
    /// Bit `i` of `selected` is that of slot `first + i`; at least one is set.
    pub(super) fn new(block: &'a RowBlock<'a>, first: usize, selected: u64) -> Self {
        let mut lanes = Lanes { block, slots: [0; LANES], count: 0 };
        let mut rest = selected;
        while rest != 0 {
            lanes.slots[lanes.count] = (first + rest.trailing_zeros() as usize) as u16;
            lanes.count += 1;
            rest &= rest - 1;
        }
        lanes
    }

    fn slots(&self) -> impl Iterator<Item = usize> {
        self.slots[..self.count].iter().map(|&slot| usize::from(slot))
    }

    /// One bit for each lane.
    fn all(&self) -> u64 {
        u64::MAX >> (LANES - self.count)
    }

    /// One bit for each lane that passes `test`.
    pub(super) fn bits(&self, test: impl Fn(usize) -> bool) -> u64 {
        (0..self.count).fold(0, |bits, lane| bits | u64::from(test(lane)) << lane)
    }

    /// Lanes in which the column is not NULL.
    fn known(&self, column: &ColumnLayout) -> u64 {
        if column.null_bit.is_none() {
            return self.all();
        }
        self.bits(|lane| !self.block.is_null(usize::from(self.slots[lane]), column))
    }

    /// Converts bits of lanes back to bits of slots, as they were passed in.
    pub(super) fn scatter(&self, lanes: u64, first: usize) -> u64 {
        self.slots().enumerate().fold(0, |word, (lane, slot)| word | (lanes >> lane & 1) << (slot - first))
    }
}

impl Integer {
    /// An operation, folded if both sides are constants; `None` if that gives NULL.
    pub(super) fn binary(operation: Arithmetic, left: Integer, right: Integer) -> Option<Integer> {
        if let (&Integer::Constant(left), &Integer::Constant(right)) = (&left, &right) {
            return operation.on_integers(left, right).map(Integer::Constant);
        }
        Some(Integer::Binary(operation, Box::new([left, right])))
    }

    /// Number of nodes, as a measure of cost.
    pub(super) fn nodes(&self) -> usize {
        match self {
            Integer::Constant(_) | Integer::Column(_) => 1,
            Integer::Binary(_, sides) => 1 + sides[0].nodes() + sides[1].nodes(),
        }
    }

    /// Writes the value of each lane; returns the lanes in which it is not NULL.
    pub(super) fn evaluate(&self, lanes: &Lanes<'_>, values: &mut [i128; LANES]) -> u64 {
        match self {
            Integer::Constant(constant) => {
                values[..lanes.count].fill(*constant);
                lanes.all()
            }
            Integer::Column(column) => {
                for (value, slot) in values.iter_mut().zip(lanes.slots()) {
                    *value = stored_value::integer(column.kind, lanes.block.column(slot, column));
                }
                lanes.known(column)
            }
            Integer::Binary(operation, sides) => {
                let mut right = [0; LANES];
                let known = sides[0].evaluate(lanes, values) & sides[1].evaluate(lanes, &mut right);
                let mut in_range = 0;
                for lane in 0..lanes.count {
                    if let Some(result) = operation.on_integers(values[lane], right[lane]) {
                        values[lane] = result;
                        in_range |= 1 << lane;
                    }
                }
                known & in_range
            }
        }
    }
}

impl Double {
    /// An integer, rounded to a double.
    pub(super) fn from_integer(integer: Integer) -> Double {
        match integer {
            Integer::Constant(constant) => Double::Constant(constant as f64),
            other => Double::Integer(other),
        }
    }

    /// An operation, folded if both sides are constants.
    pub(super) fn binary(operation: Arithmetic, left: Double, right: Double) -> Double {
        if let (&Double::Constant(left), &Double::Constant(right)) = (&left, &right) {
            return Double::Constant(operation.on_doubles(left, right));
        }
        Double::Binary(operation, Box::new([left, right]))
    }

    /// Number of nodes, as a measure of cost.
    pub(super) fn nodes(&self) -> usize {
        match self {
            Double::Constant(_) | Double::Column(_) => 1,
            Double::Integer(integer) => 1 + integer.nodes(),
            Double::Binary(_, sides) => 1 + sides[0].nodes() + sides[1].nodes(),
        }
    }

    /// Writes the value of each lane; returns the lanes in which it is not NULL.
    pub(super) fn evaluate(&self, lanes: &Lanes<'_>, values: &mut [f64; LANES]) -> u64 {
        match self {
            Double::Constant(constant) => {
                values[..lanes.count].fill(*constant);
                lanes.all()
            }
            Double::Column(column) => {
                for (value, slot) in values.iter_mut().zip(lanes.slots()) {
                    *value = stored_value::double(lanes.block.column(slot, column));
                }
                lanes.known(column)
            }
            Double::Integer(integer) => {
                let mut integers = [0; LANES];
                let known = integer.evaluate(lanes, &mut integers);
                for (value, integer) in values.iter_mut().zip(integers) {
                    *value = integer as f64;
                }
                known
            }
            Double::Binary(operation, sides) => {
                let mut right = [0.0; LANES];
                let known = sides[0].evaluate(lanes, values) & sides[1].evaluate(lanes, &mut right);
                for (value, right) in values.iter_mut().zip(right).take(lanes.count) {
                    *value = operation.on_doubles(*value, right);
                }
                known
            }
        }
    }
}
