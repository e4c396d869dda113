//! The expression tree of a filter, as clients build it.
//!
//! ```
//! use vinga_program::filter::tree::{column, not, parameter};
//!
//! let cheap = column(2).less_than(500).and(column(3).is_not_null());
//! let even = (column(1) % 2).equal(0);
//! let filter = cheap.or(even).and(not(column(4).starts_with("lib"))).and(column(5).equal(parameter(0)));
//! # let _ = filter;
//! ```
//!
//! A node is either a *value* (column, constant, parameter, arithmetic) or a *condition* (everything else). A filter
//! is a condition; a row passes if it is true, not if it is false or unknown.
//!
//! Values:
//! - Integers are exact, from −2^63 to 2^64 − 1, whatever the width and sign of the column or constant they come from;
//!   a result outside that range is NULL. `/` rounds towards zero, `%` has the sign of its left side, both by zero are
//!   NULL. Bit operations take the low 64 bits of both sides (two's complement) and give an unsigned number; a shift by
//!   64 or more (or by a negative number) gives 0.
//! - Doubles follow IEEE 754; a float column is read as a double. Where an integer meets a double it is rounded to one.
//! - Bytes compare by `memcmp`, then by length. Constants for columns of fixed size must be padded as the column is.
//! - NULL in arithmetic gives NULL.
//!
//! Conditions have three values. A comparison with NULL is unknown, except `<=>` which is true for two NULLs and false
//! for one. AND, OR and NOT are Kleene's. `x BETWEEN a AND b` is `x >= a AND x <= b`. `x IN (…)` is an OR of `=`.

use crate::comparison::Comparison;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops;
use vinga_base::ColumnId;

/// A value that the client provides.
#[derive(Clone, PartialEq, Debug)]
pub enum Constant {
    /// SQL's NULL.
    Null,
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A double.
    Double(f64),
    /// Bytes as they are stored: text, binary, decimal, date and time.
    Bytes(Vec<u8>),
}

/// An operation on two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Remainder,
    /// `&`, integers only like all below.
    BitAnd,
    /// `|`
    BitOr,
    /// `^`
    BitXor,
    /// `<<`
    ShiftLeft,
    /// `>>`, filling with zeros.
    ShiftRight,
}

impl Arithmetic {
    /// All operations, in the order in which the wire form numbers them.
    pub(super) const ALL: [Arithmetic; 10] = [
        Arithmetic::Add,
        Arithmetic::Subtract,
        Arithmetic::Multiply,
        Arithmetic::Divide,
        Arithmetic::Remainder,
        Arithmetic::BitAnd,
        Arithmetic::BitOr,
        Arithmetic::BitXor,
        Arithmetic::ShiftLeft,
        Arithmetic::ShiftRight,
    ];

    /// Whether it takes integers only.
    pub(super) fn is_bitwise(self) -> bool {
        match self {
            Arithmetic::Add
            | Arithmetic::Subtract
            | Arithmetic::Multiply
            | Arithmetic::Divide
            | Arithmetic::Remainder => false,
            Arithmetic::BitAnd
            | Arithmetic::BitOr
            | Arithmetic::BitXor
            | Arithmetic::ShiftLeft
            | Arithmetic::ShiftRight => true,
        }
    }
}

/// A node of the tree. Build it with the functions below.
#[derive(Clone, PartialEq, Debug)]
pub enum Expression {
    /// Value: what the row holds in a column.
    Column(ColumnId),
    /// Value: a constant.
    Constant(Constant),
    /// Value: a constant that is passed beside the program.
    Parameter(u16),
    /// Value: an operation on two numbers.
    Arithmetic(Arithmetic, Box<Expression>, Box<Expression>),
    /// Value: unary minus.
    Negate(Box<Expression>),
    /// Value: all 64 bits of an integer inverted.
    Complement(Box<Expression>),
    /// Condition: the comparison of two values is true.
    Compare(Comparison, Box<Expression>, Box<Expression>),
    /// Condition: the value is NULL.
    IsNull(Box<Expression>),
    /// Condition: the value is not NULL.
    IsNotNull(Box<Expression>),
    /// Condition: the value lies between the two others, both included.
    Between(Box<[Expression; 3]>),
    /// Condition: the value is one of these constants (or parameters).
    In(Box<Expression>, Vec<Expression>),
    /// Condition: the bytes begin with this constant (or parameter).
    StartsWith(Box<Expression>, Box<Expression>),
    /// Condition: all are true. With none it is true.
    And(Vec<Expression>),
    /// Condition: one is true. With none it is false.
    Or(Vec<Expression>),
    /// Condition: the other is false.
    Not(Box<Expression>),
}

/// The value of a column.
pub fn column(id: u16) -> Expression {
    Expression::Column(ColumnId(id))
}

/// NULL.
pub fn null() -> Expression {
    Expression::Constant(Constant::Null)
}

/// The parameter with this number, from 0, whose value is passed beside the program.
pub fn parameter(number: u16) -> Expression {
    Expression::Parameter(number)
}

/// The negation of a condition; unknown stays unknown.
pub fn not(condition: Expression) -> Expression {
    Expression::Not(Box::new(condition))
}

impl Expression {
    fn compare(self, comparison: Comparison, other: impl Into<Expression>) -> Self {
        Expression::Compare(comparison, Box::new(self), Box::new(other.into()))
    }

    /// `=`
    pub fn equal(self, other: impl Into<Expression>) -> Self {
        self.compare(Comparison::Equal, other)
    }

    /// `<>`
    pub fn not_equal(self, other: impl Into<Expression>) -> Self {
        self.compare(Comparison::NotEqual, other)
    }

    /// `<`
    pub fn less_than(self, other: impl Into<Expression>) -> Self {
        self.compare(Comparison::Less, other)
    }

    /// `<=`
    pub fn at_most(self, other: impl Into<Expression>) -> Self {
        self.compare(Comparison::LessOrEqual, other)
    }

    /// `>`
    pub fn greater_than(self, other: impl Into<Expression>) -> Self {
        self.compare(Comparison::Greater, other)
    }

    /// `>=`
    pub fn at_least(self, other: impl Into<Expression>) -> Self {
        self.compare(Comparison::GreaterOrEqual, other)
    }

    /// `<=>`
    pub fn null_safe_equal(self, other: impl Into<Expression>) -> Self {
        self.compare(Comparison::NullSafeEqual, other)
    }

    /// `IS NULL`
    pub fn is_null(self) -> Self {
        Expression::IsNull(Box::new(self))
    }

    /// `IS NOT NULL`
    pub fn is_not_null(self) -> Self {
        Expression::IsNotNull(Box::new(self))
    }

    /// `BETWEEN low AND high`
    pub fn between(self, low: impl Into<Expression>, high: impl Into<Expression>) -> Self {
        Expression::Between(Box::new([self, low.into(), high.into()]))
    }

    /// `IN (…)`, with constants and parameters.
    pub fn is_in<T: Into<Expression>>(self, members: impl IntoIterator<Item = T>) -> Self {
        Expression::In(Box::new(self), members.into_iter().map(Into::into).collect())
    }

    /// `LIKE 'prefix%'`, where the prefix is taken literally.
    pub fn starts_with(self, prefix: impl Into<Expression>) -> Self {
        Expression::StartsWith(Box::new(self), Box::new(prefix.into()))
    }

    /// `AND`. A chain of it makes one node with many children.
    pub fn and(self, other: Expression) -> Self {
        let mut children = match self {
            Expression::And(children) => children,
            one => Vec::from([one]),
        };
        children.push(other);
        Expression::And(children)
    }

    /// `OR`. A chain of it makes one node with many children.
    pub fn or(self, other: Expression) -> Self {
        let mut children = match self {
            Expression::Or(children) => children,
            one => Vec::from([one]),
        };
        children.push(other);
        Expression::Or(children)
    }

    /// `~`: all 64 bits inverted.
    pub fn complement(self) -> Self {
        Expression::Complement(Box::new(self))
    }
}

impl ops::Neg for Expression {
    type Output = Expression;

    fn neg(self) -> Expression {
        Expression::Negate(Box::new(self))
    }
}

macro_rules! operator {
    ($($trait:ident $function:ident $operation:ident)*) => {$(
        impl<T: Into<Expression>> ops::$trait<T> for Expression {
            type Output = Expression;

            fn $function(self, other: T) -> Expression {
                Expression::Arithmetic(Arithmetic::$operation, Box::new(self), Box::new(other.into()))
            }
        }
    )*};
}

operator! {
    Add add Add
    Sub sub Subtract
    Mul mul Multiply
    Div div Divide
    Rem rem Remainder
    BitAnd bitand BitAnd
    BitOr bitor BitOr
    BitXor bitxor BitXor
    Shl shl ShiftLeft
    Shr shr ShiftRight
}

macro_rules! constant {
    ($($from:ty => |$value:ident| $constant:expr;)*) => {$(
        impl From<$from> for Constant {
            fn from($value: $from) -> Constant {
                $constant
            }
        }

        impl From<$from> for Expression {
            fn from(value: $from) -> Expression {
                Expression::Constant(value.into())
            }
        }
    )*};
}

constant! {
    i32 => |value| Constant::Int(i64::from(value));
    i64 => |value| Constant::Int(value);
    u32 => |value| Constant::Unsigned(u64::from(value));
    u64 => |value| Constant::Unsigned(value);
    f64 => |value| Constant::Double(value);
    &str => |value| Constant::Bytes(value.as_bytes().to_vec());
    &[u8] => |value| Constant::Bytes(value.to_vec());
    Vec<u8> => |value| Constant::Bytes(value);
}

impl From<Constant> for Expression {
    fn from(constant: Constant) -> Expression {
        Expression::Constant(constant)
    }
}
