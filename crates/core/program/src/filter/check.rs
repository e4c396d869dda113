//! The type check: from the tree that a client sent to a tree in which every operand has a type that fits.
//!
//! Rules, beside those of [`super::tree`]:
//! - A filter, and each child of AND, OR and NOT, is a condition; everything else takes values.
//! - Integers compare with integers by value, also signed with unsigned; numbers with numbers; bytes with bytes.
//! - A constant that is compared with a column of fixed size must have that size; two such columns must be of equal
//!   size. Prefixes may have any length.
//! - NULL is compatible with every type.
//!
//! The shorthands are replaced here by their meaning in three-valued logic, so that lowering handles few cases:
//!
//! ```text
//!   x BETWEEN a AND b   x >= a AND x <= b
//!   x IN (a, NULL, b)   x IN (a, b) OR unknown
//!   x <=> y             (x IS NOT NULL AND y IS NOT NULL AND x = y) OR (x IS NULL AND y IS NULL)
//!   −x, ~x              0 − x (−0.0 − x for doubles), x ^ (2^64 − 1)
//! ```

use super::error::{Position, ProgramError, ProgramErrorKind, ValueType};
use super::numbers::{Double, Integer};
use super::tree::{Arithmetic, Constant, Expression};
use super::{DEPTH_MAX, NODES_MAX};
use crate::comparison::{Comparison, Outcomes};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use vinga_base::ColumnId;
use vinga_base::row_layout::{ColumnLayout, RowLayout};
use vinga_base::schema::Kind;

/// A condition whose operands fit.
#[derive(Clone, Debug)]
pub(super) enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    /// Neither true nor false.
    Unknown,
    Test(Test),
}

/// A condition about values. Unknown if a value is NULL, except for `IsNull`.
#[derive(Clone, Debug)]
pub(super) enum Test {
    Integers(Integer, Integer, Outcomes),
    Doubles(Double, Double, Outcomes),
    Bytes(Bytes, Bytes, Outcomes),
    IntegerIn(Integer, Vec<i128>),
    DoubleIn(Double, Vec<f64>),
    BytesIn(Bytes, Vec<Vec<u8>>),
    StartsWith(Bytes, Vec<u8>),
    IsNull(Value),
}

/// A value that compares by `memcmp`.
#[derive(Clone, Debug)]
pub(super) enum Bytes {
    Constant(Vec<u8>),
    Column(ColumnLayout),
}

/// A value with its type.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Integer(Integer),
    Double(Double),
    Bytes(Bytes),
}

impl Value {
    fn value_type(&self) -> ValueType {
        match self {
            Value::Null => ValueType::Null,
            Value::Integer(_) => ValueType::Integer,
            Value::Double(_) => ValueType::Double,
            Value::Bytes(_) => ValueType::Bytes,
        }
    }
}

/// Checks a filter for rows of this layout.
pub(super) fn check(filter: &Expression, layout: &RowLayout) -> Result<Condition, ProgramError> {
    Checker { layout, nodes: 0 }.condition(filter, 1)
}

struct Checker<'a> {
    layout: &'a RowLayout,
    nodes: usize,
}

fn error<T>(at: Position, kind: ProgramErrorKind) -> Result<T, ProgramError> {
    Err(ProgramError { at, kind })
}

impl Checker<'_> {
    /// Counts a node. The limits are checked here, too, because a tree need not come from the decoder.
    fn enter(&mut self, depth: usize) -> Result<Position, ProgramError> {
        let at = Position::Node(self.nodes);
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return error(at, ProgramErrorKind::TooManyNodes);
        }
        if depth > DEPTH_MAX {
            return error(at, ProgramErrorKind::TooDeep);
        }
        Ok(at)
    }

    fn condition(&mut self, node: &Expression, depth: usize) -> Result<Condition, ProgramError> {
        let at = self.enter(depth)?;
        match node {
            Expression::And(children) => Ok(Condition::All(self.conditions(children, depth)?)),
            Expression::Or(children) => Ok(Condition::Any(self.conditions(children, depth)?)),
            Expression::Not(child) => Ok(negated(self.condition(child, depth + 1)?)),
            Expression::Compare(comparison, left, right) => {
                let left = self.value(left, depth + 1)?;
                let right = self.value(right, depth + 1)?;
                compare(at, *comparison, left, right)
            }
            Expression::Between(children) => {
                let [value, low, high] = &**children;
                let value = self.value(value, depth + 1)?;
                let low = self.value(low, depth + 1)?;
                let high = self.value(high, depth + 1)?;
                Ok(Condition::All(vec![
                    compare(at, Comparison::GreaterOrEqual, value.clone(), low)?,
                    compare(at, Comparison::LessOrEqual, value, high)?,
                ]))
            }
            Expression::In(value, members) => self.is_in(value, members, depth),
            Expression::StartsWith(value, prefix) => self.starts_with(at, value, prefix, depth),
            Expression::IsNull(child) => Ok(is_null(self.value(child, depth + 1)?)),
            Expression::IsNotNull(child) => Ok(negated(is_null(self.value(child, depth + 1)?))),
            Expression::Column(_)
            | Expression::Constant(_)
            | Expression::Parameter(_)
            | Expression::Arithmetic(..)
            | Expression::Negate(_)
            | Expression::Complement(_) => error(at, ProgramErrorKind::ConditionExpected),
        }
    }

    fn conditions(&mut self, nodes: &[Expression], depth: usize) -> Result<Vec<Condition>, ProgramError> {
        nodes.iter().map(|node| self.condition(node, depth + 1)).collect()
    }

    fn value(&mut self, node: &Expression, depth: usize) -> Result<Value, ProgramError> {
        let at = self.enter(depth)?;
        match node {
            Expression::Column(id) => self.column(at, *id),
            Expression::Constant(constant) => Ok(value_of(constant)),
            Expression::Parameter(parameter) => {
                error(at, ProgramErrorKind::NoSuchParameter { parameter: *parameter, given: 0 })
            }
            Expression::Arithmetic(operation, left, right) => {
                let left = self.value(left, depth + 1)?;
                let right = self.value(right, depth + 1)?;
                arithmetic(at, *operation, left, right)
            }
            Expression::Negate(child) => {
                let value = self.value(child, depth + 1)?;
                let zero = match value {
                    Value::Double(_) => Value::Double(Double::Constant(-0.0)),
                    _ => Value::Integer(Integer::Constant(0)),
                };
                arithmetic(at, Arithmetic::Subtract, zero, value)
            }
            Expression::Complement(child) => {
                let value = self.value(child, depth + 1)?;
                let ones = Value::Integer(Integer::Constant(i128::from(u64::MAX)));
                arithmetic(at, Arithmetic::BitXor, value, ones)
            }
            Expression::Compare(..)
            | Expression::IsNull(_)
            | Expression::IsNotNull(_)
            | Expression::Between(_)
            | Expression::In(..)
            | Expression::StartsWith(..)
            | Expression::And(_)
            | Expression::Or(_)
            | Expression::Not(_) => error(at, ProgramErrorKind::ValueExpected),
        }
    }

    fn column(&self, at: Position, id: ColumnId) -> Result<Value, ProgramError> {
        let Some(&column) = self.layout.column(id) else {
            return error(
                at,
                ProgramErrorKind::NoSuchColumn { column: id, columns: self.layout.columns().len() },
            );
        };
        Ok(match column.kind {
            Kind::Signed(_) | Kind::Unsigned(_) => Value::Integer(Integer::Column(column)),
            Kind::Float | Kind::Double => Value::Double(Double::Column(column)),
            Kind::Bytes(_) | Kind::VarBytes(_) => Value::Bytes(Bytes::Column(column)),
        })
    }

    fn constant(&mut self, node: &Expression, depth: usize) -> Result<(Position, Value), ProgramError> {
        match node {
            Expression::Constant(constant) => Ok((self.enter(depth)?, value_of(constant))),
            Expression::Parameter(_) => {
                let at = Position::Node(self.nodes);
                self.value(node, depth).map(|value| (at, value))
            }
            _ => error(Position::Node(self.nodes), ProgramErrorKind::ConstantExpected),
        }
    }

    fn is_in(
        &mut self,
        value: &Expression,
        members: &[Expression],
        depth: usize,
    ) -> Result<Condition, ProgramError> {
        let value = self.value(value, depth + 1)?;
        let (mut integers, mut doubles, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        let mut unknown = false;
        for node in members {
            let (at, member) = self.constant(node, depth + 1)?;
            match (&value, member) {
                (Value::Null, _) | (_, Value::Null) => unknown = true,
                (Value::Integer(_), Value::Integer(Integer::Constant(member))) => integers.push(member),
                (Value::Integer(_) | Value::Double(_), Value::Double(Double::Constant(member))) => {
                    doubles.push(member);
                }
                (Value::Double(_), Value::Integer(Integer::Constant(member))) => doubles.push(member as f64),
                (Value::Bytes(value), Value::Bytes(member)) => {
                    check_lengths(at, value, &member)?;
                    if let Bytes::Constant(member) = member {
                        bytes.push(member);
                    }
                }
                (value, member) => {
                    return error(at, ProgramErrorKind::TypesDiffer(value.value_type(), member.value_type()));
                }
            }
        }
        let mut any = Vec::new();
        if !integers.is_empty()
            && let Value::Integer(value) = &value
        {
            any.push(Test::IntegerIn(value.clone(), integers));
        }
        match value {
            Value::Integer(value) if !doubles.is_empty() => {
                any.push(Test::DoubleIn(Double::from_integer(value), doubles));
            }
            Value::Double(value) if !doubles.is_empty() => any.push(Test::DoubleIn(value, doubles)),
            Value::Bytes(value) if !bytes.is_empty() => any.push(Test::BytesIn(value, bytes)),
            Value::Integer(_) | Value::Double(_) | Value::Bytes(_) | Value::Null => {}
        }
        let unknown = unknown.then_some(Condition::Unknown);
        Ok(Condition::Any(any.into_iter().map(Condition::Test).chain(unknown).collect()))
    }

    fn starts_with(
        &mut self,
        at: Position,
        value: &Expression,
        prefix: &Expression,
        depth: usize,
    ) -> Result<Condition, ProgramError> {
        let value = self.value(value, depth + 1)?;
        let (prefix_at, prefix) = self.constant(prefix, depth + 1)?;
        match (value, prefix) {
            (Value::Bytes(value), Value::Bytes(Bytes::Constant(prefix))) => {
                Ok(Condition::Test(Test::StartsWith(value, prefix)))
            }
            (Value::Null, Value::Null | Value::Bytes(_)) | (Value::Bytes(_), Value::Null) => {
                Ok(Condition::Unknown)
            }
            (Value::Null | Value::Bytes(_), prefix) => {
                error(prefix_at, ProgramErrorKind::BytesExpected(prefix.value_type()))
            }
            (value, _) => error(at, ProgramErrorKind::BytesExpected(value.value_type())),
        }
    }
}

fn negated(condition: Condition) -> Condition {
    Condition::Not(Box::new(condition))
}

fn is_null(value: Value) -> Condition {
    Condition::Test(Test::IsNull(value))
}

fn value_of(constant: &Constant) -> Value {
    match constant {
        Constant::Null => Value::Null,
        Constant::Int(value) => Value::Integer(Integer::Constant(i128::from(*value))),
        Constant::Unsigned(value) => Value::Integer(Integer::Constant(i128::from(*value))),
        Constant::Double(value) => Value::Double(Double::Constant(*value)),
        Constant::Bytes(bytes) => Value::Bytes(Bytes::Constant(bytes.clone())),
    }
}

fn compare(
    at: Position,
    comparison: Comparison,
    left: Value,
    right: Value,
) -> Result<Condition, ProgramError> {
    if comparison == Comparison::NullSafeEqual {
        let both = |condition: fn(Value) -> Condition| [condition(left.clone()), condition(right.clone())];
        let [left_known, right_known] = both(|value| negated(is_null(value)));
        let nulls = Condition::All(both(is_null).into());
        let equal = compare(at, Comparison::Equal, left, right)?;
        return Ok(Condition::Any(vec![Condition::All(vec![left_known, right_known, equal]), nulls]));
    }
    let accepted = comparison.accepted();
    let test = match (left, right) {
        (Value::Null, _) | (_, Value::Null) => return Ok(Condition::Unknown),
        (Value::Integer(left), Value::Integer(right)) => Test::Integers(left, right, accepted),
        (Value::Integer(left), Value::Double(right)) => {
            Test::Doubles(Double::from_integer(left), right, accepted)
        }
        (Value::Double(left), Value::Integer(right)) => {
            Test::Doubles(left, Double::from_integer(right), accepted)
        }
        (Value::Double(left), Value::Double(right)) => Test::Doubles(left, right, accepted),
        (Value::Bytes(left), Value::Bytes(right)) => {
            check_lengths(at, &left, &right)?;
            Test::Bytes(left, right, accepted)
        }
        (left, right) => {
            return error(at, ProgramErrorKind::TypesDiffer(left.value_type(), right.value_type()));
        }
    };
    Ok(Condition::Test(test))
}

fn check_lengths(at: Position, left: &Bytes, right: &Bytes) -> Result<(), ProgramError> {
    let width = |bytes: &Bytes| match bytes {
        Bytes::Column(ColumnLayout { kind: Kind::Bytes(width), .. }) => Some(*width),
        Bytes::Column(_) | Bytes::Constant(_) => None,
    };
    match (width(left), left, width(right), right) {
        (Some(left), _, Some(right), _) if left != right => {
            error(at, ProgramErrorKind::WidthsDiffer(left, right))
        }
        (Some(width), _, _, Bytes::Constant(constant)) | (_, Bytes::Constant(constant), Some(width), _)
            if usize::from(width) != constant.len() =>
        {
            let constant_bytes = constant.len();
            error(at, ProgramErrorKind::WrongLength { column_bytes: width, constant_bytes })
        }
        _ => Ok(()),
    }
}

fn arithmetic(at: Position, operation: Arithmetic, left: Value, right: Value) -> Result<Value, ProgramError> {
    for side in [&left, &right] {
        match side {
            Value::Null | Value::Integer(_) => {}
            Value::Double(_) if !operation.is_bitwise() => {}
            Value::Double(_) => return error(at, ProgramErrorKind::IntegerExpected(ValueType::Double)),
            Value::Bytes(_) if operation.is_bitwise() => {
                return error(at, ProgramErrorKind::IntegerExpected(ValueType::Bytes));
            }
            Value::Bytes(_) => return error(at, ProgramErrorKind::NumberExpected(ValueType::Bytes)),
        }
    }
    let doubles = |left, right| Value::Double(Double::binary(operation, left, right));
    Ok(match (left, right) {
        (Value::Integer(left), Value::Integer(right)) => {
            Integer::binary(operation, left, right).map_or(Value::Null, Value::Integer)
        }
        (Value::Integer(left), Value::Double(right)) => doubles(Double::from_integer(left), right),
        (Value::Double(left), Value::Integer(right)) => doubles(left, Double::from_integer(right)),
        (Value::Double(left), Value::Double(right)) => doubles(left, right),
        (Value::Null | Value::Bytes(_), _) | (_, Value::Null | Value::Bytes(_)) => Value::Null,
    })
}
