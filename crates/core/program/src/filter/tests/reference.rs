//! What a filter means, written as simply as possible: one row, one node at a time, three truth values.

use crate::comparison::Comparison;
use crate::filter::tree::{Arithmetic, Constant, Expression};
use crate::stored_value;
use crate::test_rows::Row;
use alloc::vec::Vec;
use core::cmp::Ordering;
use vinga_base::row_layout::{ColumnLayout, RowLayout};
use vinga_base::schema::Kind;

#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Integer(i128),
    Double(f64),
    Bytes(Vec<u8>),
}

/// The values of a row.
pub fn row(layout: &RowLayout, stored: &Row) -> Vec<Value> {
    let value = |(column, bytes): (&ColumnLayout, &Option<Vec<u8>>)| match (column.kind, bytes) {
        (_, None) => Value::Null,
        (Kind::Signed(_) | Kind::Unsigned(_), Some(bytes)) => {
            Value::Integer(stored_value::integer(column.kind, bytes))
        }
        (Kind::Float | Kind::Double, Some(bytes)) => Value::Double(stored_value::double(bytes)),
        (Kind::Bytes(_) | Kind::VarBytes(_), Some(bytes)) => Value::Bytes(bytes.clone()),
    };
    layout.columns().iter().zip(stored).map(value).collect()
}

/// `None` is unknown.
pub fn condition(node: &Expression, row: &[Value]) -> Option<bool> {
    match node {
        Expression::Compare(comparison, left, right) => {
            compare(*comparison, &value(left, row), &value(right, row))
        }
        Expression::IsNull(child) => Some(matches!(value(child, row), Value::Null)),
        Expression::IsNotNull(child) => Some(!matches!(value(child, row), Value::Null)),
        Expression::Between(children) => {
            let [child, low, high] = children.each_ref().map(|child| value(child, row));
            and([
                compare(Comparison::GreaterOrEqual, &child, &low),
                compare(Comparison::LessOrEqual, &child, &high),
            ])
        }
        Expression::In(child, members) => {
            let child = value(child, row);
            or(members.iter().map(|member| compare(Comparison::Equal, &child, &value(member, row))))
        }
        Expression::StartsWith(child, prefix) => match (value(child, row), value(prefix, row)) {
            (Value::Bytes(bytes), Value::Bytes(prefix)) => Some(bytes.starts_with(&prefix)),
            _ => None,
        },
        Expression::And(children) => and(children.iter().map(|child| condition(child, row))),
        Expression::Or(children) => or(children.iter().map(|child| condition(child, row))),
        Expression::Not(child) => condition(child, row).map(|truth| !truth),
        other => panic!("{other:?} is not a condition"),
    }
}

fn and(truths: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let mut result = Some(true);
    for truth in truths {
        match truth {
            Some(true) => {}
            Some(false) => return Some(false),
            None => result = None,
        }
    }
    result
}

fn or(truths: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    and(truths.into_iter().map(|truth| truth.map(|truth| !truth))).map(|truth| !truth)
}

fn compare(comparison: Comparison, left: &Value, right: &Value) -> Option<bool> {
    let ordering = match (left, right) {
        (Value::Null, Value::Null) if comparison == Comparison::NullSafeEqual => return Some(true),
        (Value::Null, _) | (_, Value::Null) => {
            return if comparison == Comparison::NullSafeEqual { Some(false) } else { None };
        }
        (Value::Integer(left), Value::Integer(right)) => Some(left.cmp(right)),
        (Value::Bytes(left), Value::Bytes(right)) => Some(left.cmp(right)),
        (left, right) => double(left).partial_cmp(&double(right)),
    };
    Some(match comparison {
        Comparison::Equal | Comparison::NullSafeEqual => ordering == Some(Ordering::Equal),
        Comparison::NotEqual => ordering != Some(Ordering::Equal),
        Comparison::Less => ordering == Some(Ordering::Less),
        Comparison::LessOrEqual => matches!(ordering, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => ordering == Some(Ordering::Greater),
        Comparison::GreaterOrEqual => matches!(ordering, Some(Ordering::Greater | Ordering::Equal)),
    })
}

fn double(value: &Value) -> f64 {
    match value {
        Value::Integer(value) => *value as f64,
        Value::Double(value) => *value,
        other => panic!("{other:?} is not a number"),
    }
}

fn value(node: &Expression, row: &[Value]) -> Value {
    match node {
        Expression::Column(id) => row[usize::from(id.0)].clone(),
        Expression::Constant(Constant::Null) => Value::Null,
        Expression::Constant(Constant::Int(value)) => Value::Integer((*value).into()),
        Expression::Constant(Constant::Unsigned(value)) => Value::Integer((*value).into()),
        Expression::Constant(Constant::Double(value)) => Value::Double(*value),
        Expression::Constant(Constant::Bytes(bytes)) => Value::Bytes(bytes.clone()),
        Expression::Arithmetic(operation, left, right) => match (value(left, row), value(right, row)) {
            (Value::Null, _) | (_, Value::Null) => Value::Null,
            (Value::Integer(left), Value::Integer(right)) => integers(*operation, left, right),
            (left, right) => doubles(*operation, double(&left), double(&right)),
        },
        Expression::Negate(child) => match value(child, row) {
            Value::Integer(value) => in_range(-value),
            Value::Double(value) => Value::Double(-value),
            _ => Value::Null,
        },
        Expression::Complement(child) => match value(child, row) {
            Value::Integer(value) => Value::Integer(i128::from(!(value as u64))),
            _ => Value::Null,
        },
        other => panic!("{other:?} is not a value"),
    }
}

fn in_range(value: i128) -> Value {
    if (-(1 << 63)..1 << 64).contains(&value) { Value::Integer(value) } else { Value::Null }
}

fn integers(operation: Arithmetic, left: i128, right: i128) -> Value {
    // Where 128 bits overflow, 64 bits do, too.
    match operation {
        Arithmetic::Add => in_range(left + right),
        Arithmetic::Subtract => in_range(left - right),
        Arithmetic::Multiply => left.checked_mul(right).map_or(Value::Null, in_range),
        Arithmetic::Divide | Arithmetic::Remainder if right == 0 => Value::Null,
        Arithmetic::Divide => in_range(left / right),
        Arithmetic::Remainder => in_range(left % right),
        Arithmetic::BitAnd => Value::Integer(i128::from(left as u64 & right as u64)),
        Arithmetic::BitOr => Value::Integer(i128::from(left as u64 | right as u64)),
        Arithmetic::BitXor => Value::Integer(i128::from(left as u64 ^ right as u64)),
        Arithmetic::ShiftLeft | Arithmetic::ShiftRight if right as u64 > 63 => Value::Integer(0),
        Arithmetic::ShiftLeft => Value::Integer(i128::from((left as u64) << right)),
        Arithmetic::ShiftRight => Value::Integer(i128::from((left as u64) >> right)),
    }
}

fn doubles(operation: Arithmetic, left: f64, right: f64) -> Value {
    Value::Double(match operation {
        Arithmetic::Add => left + right,
        Arithmetic::Subtract => left - right,
        Arithmetic::Multiply => left * right,
        Arithmetic::Divide => left / right,
        Arithmetic::Remainder => left % right,
        other => panic!("{other:?} on doubles"),
    })
}
