//! Tests of numbers that have to be calculated or that compare two columns.

use super::numbers::{Double, Integer, LANES, Lanes};
use super::row_block::RowBlock;
use crate::comparison::Outcomes;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// A test of calculated numbers. NULL passes none but the last two.
#[derive(Clone, Debug)]
pub(super) enum NumberTest {
    Integers {
        left: Integer,
        right: Integer,
        accepted: Outcomes,
    },
    /// Members are sorted.
    IntegerIn {
        value: Integer,
        members: Vec<i128>,
        negated: bool,
    },
    Doubles {
        left: Double,
        right: Double,
        accepted: Outcomes,
    },
    /// Members are sorted and hold no NaN.
    DoubleIn {
        value: Double,
        members: Vec<f64>,
        negated: bool,
    },
    IntegerNull {
        value: Integer,
        negated: bool,
    },
    DoubleNull {
        value: Double,
        negated: bool,
    },
}

impl NumberTest {
    /// The selected rows that pass. Bit `i` is that of slot `first + i`.
    pub(super) fn select(&self, block: &RowBlock<'_>, first: usize, selected: u64) -> u64 {
        let lanes = Lanes::new(block, first, selected);
        let passing = match self {
            NumberTest::Integers { left, right, accepted } => {
                let (mut l, mut r) = ([0; LANES], [0; LANES]);
                let known = left.evaluate(&lanes, &mut l) & right.evaluate(&lanes, &mut r);
                known & lanes.bits(|lane| accepted.accept(Some(l[lane].cmp(&r[lane]))))
            }
            NumberTest::IntegerIn { value, members, negated } => {
                let mut values = [0; LANES];
                let known = value.evaluate(&lanes, &mut values);
                known & lanes.bits(|lane| members.binary_search(&values[lane]).is_ok() != *negated)
            }
            NumberTest::Doubles { left, right, accepted } => {
                let (mut l, mut r) = ([0.0; LANES], [0.0; LANES]);
                let known = left.evaluate(&lanes, &mut l) & right.evaluate(&lanes, &mut r);
                known & lanes.bits(|lane| accepted.accept(l[lane].partial_cmp(&r[lane])))
            }
            NumberTest::DoubleIn { value, members, negated } => {
                let mut values = [0.0; LANES];
                let known = value.evaluate(&lanes, &mut values);
                known & lanes.bits(|lane| is_member(values[lane], members) != *negated)
            }
            NumberTest::IntegerNull { value, negated } => {
                let known = value.evaluate(&lanes, &mut [0; LANES]);
                lanes.bits(|lane| (known >> lane & 1 == 0) != *negated)
            }
            NumberTest::DoubleNull { value, negated } => {
                let known = value.evaluate(&lanes, &mut [0.0; LANES]);
                lanes.bits(|lane| (known >> lane & 1 == 0) != *negated)
            }
        };
        lanes.scatter(passing, first)
    }

    /// Roughly the nanoseconds that 16 rows take.
    pub(super) fn cost(&self) -> u64 {
        let nodes = match self {
            NumberTest::Integers { left, right, .. } => left.nodes() + right.nodes(),
            NumberTest::IntegerIn { value, .. } => value.nodes() + 2,
            NumberTest::Doubles { left, right, .. } => left.nodes() + right.nodes(),
            NumberTest::DoubleIn { value, .. } => value.nodes() + 2,
            NumberTest::IntegerNull { value, .. } => value.nodes(),
            NumberTest::DoubleNull { value, .. } => value.nodes(),
        };
        60 * nodes as u64
    }
}

fn is_member(value: f64, members: &[f64]) -> bool {
    // A NaN is equal to no member, so the direction in which it is searched does not matter.
    members.binary_search_by(|member| member.partial_cmp(&value).unwrap_or(Ordering::Greater)).is_ok()
}
