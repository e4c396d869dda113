//! Errors in a filter program, as sentences that name the position and what is allowed.

use super::{CONSTANT_BYTES_MAX, DEPTH_MAX, NODES_MAX, PROGRAM_BYTES_MAX, VERSION};
use core::fmt;
use vinga_base::ColumnId;

/// The position of an error in a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// Byte of the encoded form, from 0.
    Byte(usize),
    /// Node of the tree, from 0, each parent before its children, which follow from left to right.
    Node(usize),
}

/// Why a filter program was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProgramError {
    /// The position.
    pub at: Position,
    /// The error.
    pub kind: ProgramErrorKind,
}

/// The type of a value, as far as filters distinguish types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueType {
    /// The constant NULL, which is compatible with every type.
    Null,
    /// Any integer.
    Integer,
    /// Float or double.
    Double,
    /// Everything that compares by `memcmp`.
    Bytes,
}

/// The kinds of errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramErrorKind {
    /// More than [`PROGRAM_BYTES_MAX`] bytes in encoded form.
    TooLong,
    /// More than [`NODES_MAX`] nodes.
    TooManyNodes,
    /// More than [`DEPTH_MAX`] levels.
    TooDeep,
    /// More than [`CONSTANT_BYTES_MAX`] bytes in constants after parameters were replaced by their values.
    ConstantsTooLong,
    /// A version that this release does not know.
    UnknownVersion(u8),
    /// A node that this release does not know.
    UnknownNode(u8),
    /// The program ends in the middle.
    Truncated,
    /// A number that does not fit.
    NumberTooLarge,
    /// Bytes follow after the program.
    BytesLeft,
    /// A parameter that is not a constant.
    NotConstant,
    /// No such parameter was given.
    NoSuchParameter {
        /// The parameter that the program uses.
        parameter: u16,
        /// How many were given.
        given: usize,
    },
    /// The table has no such column.
    NoSuchColumn {
        /// The column that the program uses.
        column: ColumnId,
        /// The number of the table's columns.
        columns: usize,
    },
    /// A value is used where a condition is needed.
    ConditionExpected,
    /// A condition is used where a value is needed.
    ValueExpected,
    /// Two types that do not compare.
    TypesDiffer(ValueType, ValueType),
    /// A value that is not a number is used in arithmetic.
    NumberExpected(ValueType),
    /// A value that is not an integer is used in a bit operation.
    IntegerExpected(ValueType),
    /// A value that has no prefix.
    BytesExpected(ValueType),
    /// An IN list or a prefix that is not a constant.
    ConstantExpected,
    /// A constant of another length than the column of fixed size that it is compared with.
    WrongLength {
        /// Bytes of the column.
        column_bytes: u16,
        /// Bytes of the constant.
        constant_bytes: usize,
    },
    /// Two columns of different fixed sizes.
    WidthsDiffer(u16, u16),
}

impl core::error::Error for ProgramError {}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProgramError { at, kind } = self;
        write!(f, "filter program, {at}: {kind}")
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Byte(byte) => write!(f, "byte {byte}"),
            Position::Node(node) => write!(f, "node {node}"),
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueType::Null => "NULL",
            ValueType::Integer => "an integer",
            ValueType::Double => "a double",
            ValueType::Bytes => "bytes",
        })
    }
}

impl fmt::Display for ProgramErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ProgramErrorKind::TooLong => write!(f, "it is longer than the {PROGRAM_BYTES_MAX} bytes allowed"),
            ProgramErrorKind::TooManyNodes => write!(f, "it has more than the {NODES_MAX} nodes allowed"),
            ProgramErrorKind::TooDeep => write!(f, "it is nested deeper than the {DEPTH_MAX} levels allowed"),
            ProgramErrorKind::ConstantsTooLong => write!(
                f,
                "its constants, parameters included, are longer than the {CONSTANT_BYTES_MAX} bytes allowed"
            ),
            ProgramErrorKind::UnknownVersion(found) => {
                write!(f, "it is of version {found}; this release knows version {VERSION}")
            }
            ProgramErrorKind::UnknownNode(found) => {
                write!(f, "there is no node of kind {found:#04x}; a newer client may have sent it")
            }
            ProgramErrorKind::Truncated => f.write_str("it ends too early"),
            ProgramErrorKind::NumberTooLarge => f.write_str("a number is too large for its place"),
            ProgramErrorKind::BytesLeft => f.write_str("it ends here, but more bytes follow"),
            ProgramErrorKind::NotConstant => f.write_str("a parameter must be a constant"),
            ProgramErrorKind::NoSuchParameter { parameter, given } => {
                write!(f, "it needs parameter {parameter} (counted from 0), but {given} are given")
            }
            ProgramErrorKind::NoSuchColumn { column, columns } => {
                write!(f, "it reads column {column} (counted from 0), but the table has {columns}")
            }
            ProgramErrorKind::ConditionExpected => f.write_str("a value stands where a condition is needed"),
            ProgramErrorKind::ValueExpected => f.write_str("a condition stands where a value is needed"),
            ProgramErrorKind::TypesDiffer(left, right) => write!(f, "{left} can't be compared with {right}"),
            ProgramErrorKind::NumberExpected(found) => write!(f, "arithmetic needs numbers, this is {found}"),
            ProgramErrorKind::IntegerExpected(found) => {
                write!(f, "bit operations need integers, this is {found}")
            }
            ProgramErrorKind::BytesExpected(found) => write!(f, "only bytes have a prefix, this is {found}"),
            ProgramErrorKind::ConstantExpected => {
                f.write_str("IN lists and prefixes hold constants and parameters only")
            }
            ProgramErrorKind::WrongLength { column_bytes, constant_bytes } => write!(
                f,
                "a column of {column_bytes} bytes is compared with a constant of {constant_bytes}; \
                 it must have the column's length, padded as the column is"
            ),
            ProgramErrorKind::WidthsDiffer(left, right) => write!(
                f,
                "a column of {left} bytes is compared with one of {right}; columns of fixed size must be \
                 of equal size"
            ),
        }
    }
}
