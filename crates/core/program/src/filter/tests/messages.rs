//! Each error is described in a sentence with its position.

use crate::filter::codec::decode;
use crate::filter::tree::{Constant, Expression, column, not, null, parameter};
use crate::filter::{DEPTH_MAX, NODES_MAX, Program};
use crate::test_rows;
use alloc::string::ToString;
use alloc::vec;
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::ColumnType;

/// Columns: 0 bigint, 1 double, 2 char(3), 3 varchar(9), 4 char(5).
fn layout() -> RowLayout {
    let types = [
        ColumnType::Double,
        ColumnType::Char { bytes: 3 },
        ColumnType::VarChar { bytes_max: 9 },
        ColumnType::Char { bytes: 5 },
    ];
    test_rows::layout(&types.map(|column_type| (column_type, false)))
}

#[test]
fn errors_of_type() {
    let deep = (0..DEPTH_MAX).fold(Expression::Or(vec![]), |inner, _| not(inner));
    let many = Expression::Or(vec![Expression::And(vec![]); NODES_MAX]);
    let cases = [
        (column(9).equal(1), "node 1: it reads column 9 (counted from 0), but the table has 5"),
        (column(0), "node 0: a value stands where a condition is needed"),
        (column(0).equal(1).and(column(1)), "node 4: a value stands where a condition is needed"),
        (not(column(0)), "node 1: a value stands where a condition is needed"),
        (column(0).equal(column(1).is_null()), "node 2: a condition stands where a value is needed"),
        (column(0).equal("x"), "node 0: an integer can't be compared with bytes"),
        (column(1).less_than(column(3)), "node 0: a double can't be compared with bytes"),
        (column(0).between(1, "x"), "node 0: an integer can't be compared with bytes"),
        (
            column(0).is_in([Constant::Int(1), Constant::Bytes(vec![])]),
            "node 3: an integer can't be compared with bytes",
        ),
        ((column(2) + 1).is_null(), "node 1: arithmetic needs numbers, this is bytes"),
        ((column(1) & 1).is_null(), "node 1: bit operations need integers, this is a double"),
        ((column(2) | 1).is_null(), "node 1: bit operations need integers, this is bytes"),
        (column(0).starts_with("x"), "node 0: only bytes have a prefix, this is an integer"),
        (column(3).starts_with(1), "node 2: only bytes have a prefix, this is an integer"),
        (
            column(3).starts_with(column(2)),
            "node 2: IN lists and prefixes hold constants and parameters only",
        ),
        (column(0).is_in([column(0)]), "node 2: IN lists and prefixes hold constants and parameters only"),
        (column(0).equal(parameter(3)), "node 2: it needs parameter 3 (counted from 0), but 0 are given"),
        (
            column(2).equal("ab"),
            "node 0: a column of 3 bytes is compared with a constant of 2; \
             it must have the column's length, padded as the column is",
        ),
        (
            column(2).is_in(["abc", "abcd"]),
            "node 3: a column of 3 bytes is compared with a constant of 4; \
             it must have the column's length, padded as the column is",
        ),
        (
            column(4).equal(column(2)),
            "node 0: a column of 5 bytes is compared with one of 3; columns of fixed size must be of equal size",
        ),
        (deep, "node 64: it is nested deeper than the 64 levels allowed"),
        (many, "node 4096: it has more than the 4096 nodes allowed"),
    ];
    for (filter, message) in cases {
        let error = Program::new(&filter, &layout()).unwrap_err();
        assert_eq!(error.to_string(), std::format!("filter program, {message}"));
    }
}

#[test]
fn what_is_no_error() {
    let cases = [
        column(0).equal(null()),
        column(0).less_than(1.5).and(column(1).equal(u64::MAX)),
        column(2).starts_with("abcd").or(column(2).starts_with("")),
        column(3).equal(column(2)).and(column(3).equal("longer than the column")),
        null().equal("x").or(null().is_in([1])).or((null() + 1).is_null()),
        column(0).is_in([Constant::Null, Constant::Double(1.5), Constant::Int(2)]),
        Expression::And(vec![]),
    ];
    for filter in cases {
        assert!(Program::new(&filter, &layout()).is_ok(), "{filter:?}");
    }
}

#[test]
fn errors_of_form() {
    let cases: [(&[u8], &str); 11] = [
        (&[], "byte 0: it ends too early"),
        (&[9], "byte 0: it is of version 9; this release knows version 1"),
        (&[1, 0, 0x10, 0x02], "byte 4: it ends too early"),
        (&[1, 0, 0x99], "byte 2: there is no node of kind 0x99; a newer client may have sent it"),
        (&[1, 0, 0x02, 0x02], "byte 3: it ends here, but more bytes follow"),
        (&[1, 0, 0x06, 5, 1], "byte 5: it ends too early"),
        (&[1, 0, 0x07, 0x80, 0x80, 4], "byte 2: a number is too large for its place"),
        (&[1, 1, 0x02, 0x07, 2], "byte 3: it needs parameter 2 (counted from 0), but 1 are given"),
        (&[1, 1, 0x22, 0], "byte 2: a parameter must be a constant"),
        (&[1, 1, 0x07, 0, 0], "byte 2: it needs parameter 0 (counted from 0), but 0 are given"),
        (
            &[1, 0, 0x04, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2],
            "byte 3: a number is too large for its place",
        ),
    ];
    for (bytes, message) in cases {
        let error = decode(bytes).unwrap_err();
        assert_eq!(error.to_string(), std::format!("filter program, {message}"));
    }
}
