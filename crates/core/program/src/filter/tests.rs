//! Filters against a reference: random conditions on random rows of random layouts, evaluated by blocks, row by row,
//! and by an interpreter that only implements three-valued logic.

mod codec;
mod generator;
mod messages;
mod reference;

use super::*;
use crate::comparison::Comparison;
use crate::stored_value::integer_range;
use crate::test_rows::{Choices, DOUBLES, Table};
use alloc::vec::Vec;
use proptest::prelude::*;
use tree::{Expression, column, not};
use vinga_base::schema::ColumnType;

struct Variables(Vec<Vec<u8>>);

impl VariableSource for Variables {
    fn variable(&self, slot: usize) -> &[u8] {
        &self.0[slot]
    }
}

/// Some of the table's rows, spread over the slots of a page, with garbage between them.
struct Block {
    page: Vec<u8>,
    first: usize,
    stride: usize,
    /// The row in each slot.
    rows: Vec<Option<usize>>,
    variables: Variables,
}

impl Block {
    fn new(table: &Table, choices: &mut Choices) -> Self {
        let fixed_bytes = table.layout.fixed_bytes();
        let first = choices.below(40);
        let stride = fixed_bytes + choices.below(24);
        let count = [choices.below(8), choices.below(300), 64, 128][choices.below(4)];
        let mut page = Vec::new();
        let last_slot_ends = first + count * stride + fixed_bytes;
        page.resize_with(last_slot_ends, || choices.below(256) as u8);
        let mut variables = Variables(Vec::new());
        let rows = (0..count)
            .map(|slot| {
                variables.0.push(Vec::new());
                let row = choices.below(table.rows.len() + 1);
                let image = table.images.get(row)?;
                let (fixed, variable) = table.layout.split(image);
                let at = first + slot * stride;
                page[at..at + fixed_bytes].copy_from_slice(fixed);
                variables.0[slot] = variable.to_vec();
                Some(row)
            })
            .collect();
        Block { page, first, stride, rows, variables }
    }

    fn select(&self, table: &Table, program: &Program) -> Vec<bool> {
        let block = RowBlock::new(
            &table.layout,
            &self.page,
            self.first,
            self.stride,
            self.rows.len(),
            &self.variables,
        );
        let mut selected = alloc::vec![0u64; self.rows.len() / 64 + 2];
        for (slot, row) in self.rows.iter().enumerate() {
            selected[slot / 64] |= u64::from(row.is_some()) << (slot % 64);
        }
        // Bits after the last slot must be ignored.
        let behind = self.rows.len();
        selected[behind / 64] |= u64::MAX << (behind % 64);
        program.select(&block, &mut selected);
        let bit = |slot: usize| selected[slot / 64] >> (slot % 64) & 1 != 0;
        assert!((self.rows.len()..64 * selected.len()).all(|slot| !bit(slot)));
        (0..self.rows.len()).map(bit).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn block_row_and_reference_agree(bytes in proptest::collection::vec(any::<u8>(), 0..4000)) {
        let mut choices = Choices::new(bytes);
        let table = Table::new(&mut choices);
        for _ in 0..4 {
            let depth = choices.below(5);
            let filter = table.condition(&mut choices, depth);
            let program = Program::new(&filter, &table.layout).unwrap();
            let read = read(&filter, &table);
            let passes = |row| reference::condition(&filter, &reference::row(&table.layout, row)) == Some(true);
            let expected: Vec<bool> = table.rows.iter().map(passes).collect();
            for (image, &expected) in table.images.iter().zip(&expected) {
                let (fixed, variable) = table.layout.split(image);
                prop_assert_eq!(program.matches(&table.layout, fixed, variable), expected, "{:?}", filter);
                prop_assert_eq!(read.matches(&table.layout, fixed, variable), expected, "{:?}", filter);
            }
            let block = Block::new(&table, &mut choices);
            for program in [&program, &read] {
                for (row, found) in block.rows.iter().zip(block.select(&table, program)) {
                    prop_assert_eq!(row.is_some_and(|row| expected[row]), found, "{:?}", filter);
                }
            }
        }
    }
}

/// The program that a data node makes from the encoded filter.
fn read(filter: &Expression, table: &Table) -> Program {
    let mut bytes = Vec::new();
    super::codec::encode(filter, &[], &mut bytes).unwrap();
    Program::read(&bytes, &table.layout).unwrap()
}

/// Compares all rows of a table with the reference.
fn assert_agreement(table: &Table, filter: &Expression) {
    let program = Program::new(filter, &table.layout).unwrap();
    let read = read(filter, table);
    for (row, image) in table.rows.iter().zip(&table.images) {
        let (fixed, variable) = table.layout.split(image);
        let expected = reference::condition(filter, &reference::row(&table.layout, row)) == Some(true);
        assert_eq!(program.matches(&table.layout, fixed, variable), expected, "{filter:?} on {row:?}");
        assert_eq!(read.matches(&table.layout, fixed, variable), expected, "{filter:?} read, on {row:?}");
    }
}

#[test]
fn every_operator_at_every_border() {
    let assert_all = |table: &Table, constants: &[Expression]| {
        for low in constants {
            for comparison in Comparison::ALL {
                let sides = [column(1), low.clone()].map(alloc::boxed::Box::new);
                let [left, right] = sides.clone();
                let filter = Expression::Compare(comparison, left, right);
                assert_agreement(table, &filter);
                assert_agreement(table, &not(filter));
                let [right, left] = sides;
                assert_agreement(table, &Expression::Compare(comparison, left, right));
            }
            for high in constants {
                assert_agreement(table, &column(1).between(low.clone(), high.clone()));
                assert_agreement(table, &not(column(1).between(low.clone(), high.clone())));
                assert_agreement(table, &not(column(1).is_in([low.clone(), high.clone()])));
                let outside = column(1).not_equal(low.clone()).and(column(1).at_most(high.clone()));
                assert_agreement(table, &outside);
            }
        }
    };
    let doubles = DOUBLES.map(Expression::from);
    let double_bytes = DOUBLES.iter().map(|value| value.to_le_bytes().to_vec());
    assert_all(&Table::of_one_column(ColumnType::Double, double_bytes), &doubles);
    let float_bytes = DOUBLES.iter().map(|value| (*value as f32).to_le_bytes().to_vec());
    assert_all(&Table::of_one_column(ColumnType::Float, float_bytes), &doubles);

    for bytes in [1u8, 2, 3, 4, 8] {
        for signed in [false, true] {
            let kind = ColumnType::Integer { bytes, signed };
            let (least, greatest) = integer_range(kind.kind()).unwrap();
            let borders = [least, least + 1, -1, 0, 1, greatest - 1, greatest];
            let stored = borders.iter().map(|value| value.to_le_bytes()[..usize::from(bytes)].to_vec());
            let table = Table::of_one_column(kind, stored);
            let beyond = [least - 1, greatest + 1];
            let constants: Vec<Expression> = borders
                .iter()
                .chain(&beyond)
                .filter_map(|&value| {
                    let signed = i64::try_from(value).map(Expression::from);
                    signed.or(u64::try_from(value).map(Expression::from)).ok()
                })
                .collect();
            assert_all(&table, &constants);
        }
    }
}

#[test]
fn plain_filters_are_read_the_short_way() {
    let table = Table::of_one_column(ColumnType::Integer { bytes: 4, signed: true }, []);
    let is_plain = |filter: Expression| {
        let mut bytes = Vec::new();
        super::codec::encode(&filter, &[], &mut bytes).unwrap();
        plain::read(&bytes, &table.layout).is_some()
    };
    assert!(is_plain(column(1).equal(5)));
    assert!(is_plain(column(1).between(5, 90).and(column(0).at_least(3)).and(column(1).not_equal(7))));
    for other in [
        column(1).equal(5).or(column(1).equal(6)),
        not(column(1).equal(5)),
        column(1).null_safe_equal(5),
        column(1).equal(5.0),
        column(1).equal(column(0)),
        column(1).equal(5).and(column(1).equal(6)),
        column(1).at_most(u64::MAX),
    ] {
        assert!(!is_plain(other.clone()), "{other:?}");
    }
    // The test that lets fewer rows pass comes first; a filter that is followed by more bytes is invalid.
    let wide_first = column(0).between(1, 1000).and(column(1).equal(5));
    assert!(std::format!("{:?}", read(&wide_first, &table)).find("low: 5").unwrap() < 150);
    let mut bytes = Vec::new();
    super::codec::encode(&wide_first, &[], &mut bytes).unwrap();
    bytes.push(0);
    assert!(plain::read(&bytes, &table.layout).is_none());
    for cut in 0..bytes.len() - 1 {
        assert!(plain::read(&bytes[..cut], &table.layout).is_none());
    }
}

#[test]
fn cost_grows_with_work() {
    let table = Table::of_one_column(ColumnType::VarChar { bytes_max: 9 }, []);
    let cost = |filter: Expression| Program::new(&filter, &table.layout).unwrap().cost();
    let key = cost(column(0).equal(1));
    assert!(key < cost((column(0) + 1).equal(1)));
    assert!(key < cost(column(1).equal("x")));
    assert!(cost(column(1).equal("x")) < cost(column(1).equal("x").or(column(0).equal(1))));
}

#[test]
fn ranges_of_one_column_become_one() {
    let table = Table::of_one_column(ColumnType::Integer { bytes: 4, signed: true }, []);
    let leaves = |filter: Expression| {
        let program = Program::new(&filter, &table.layout).unwrap();
        std::format!("{program:?}").matches("Leaf(").count()
    };
    assert_eq!(leaves(column(1).greater_than(5).and(column(1).at_most(9)).and(column(1).not_equal(7))), 2);
    assert_eq!(leaves(column(1).between(5, 9)), 1);
    assert_eq!(leaves(column(1).is_in([5, 6, 8, 7])), 1);
    assert_eq!(leaves(column(1).equal(5).and(column(1).equal(6))), 0);
    assert_eq!(leaves(column(0).less_than(-1)), 0);
    assert_eq!(leaves(not(not(column(1).equal(tree::null())))), 0);
    assert_eq!(leaves((-Expression::from(3) * 4).equal(-12)), 0);
}
