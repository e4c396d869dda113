//! Errors in an update program, or when it is applied to a row.

use super::{INSTRUCTIONS_MAX, UPDATE_BYTES_MAX};
use core::fmt;
use vinga_base::ColumnId;
use vinga_base::schema::ROW_BYTES_MAX;

/// Why a program was refused, or failed on a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpdateError {
    /// The number of the instruction, from 0.
    pub instruction: usize,
    /// The error.
    pub kind: UpdateErrorKind,
}

/// The kinds of errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpdateErrorKind {
    /// A check failed. Only this error, `Overflow` and `RowTooLong` depend on the row.
    ConditionFailed(ColumnId),
    /// A sum does not fit the column.
    Overflow(ColumnId),
    /// The changed row has more than [`ROW_BYTES_MAX`] bytes.
    RowTooLong,
    /// More than [`UPDATE_BYTES_MAX`] bytes.
    TooLong,
    /// More than [`INSTRUCTIONS_MAX`] instructions.
    TooManyInstructions,
    /// The program ends in the middle of an instruction.
    Truncated,
    /// An operation that this release does not know.
    UnknownOperation(u8),
    /// The table has no such column.
    NoSuchColumn(ColumnId),
    /// The operand is longer than the column allows.
    OperandTooLong(ColumnId),
    /// The operand is not as long as the column (found when a program is written).
    OperandLength(ColumnId),
    /// The operation needs a number.
    NotNumber(ColumnId),
    /// The operation needs an integer.
    NotInteger(ColumnId),
    /// The column can't be NULL.
    NotNullable(ColumnId),
    /// The column belongs to the primary key.
    KeyColumn(ColumnId),
    /// A check follows a change.
    CheckBehindChange,
    /// Changes are not in ascending order of their columns, or change one twice.
    NotAscending(ColumnId),
}

impl core::error::Error for UpdateError {}

impl fmt::Display for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "update, instruction {}: ", self.instruction)?;
        match self.kind {
            UpdateErrorKind::ConditionFailed(id) => write!(f, "column {id} is not as the check wants it"),
            UpdateErrorKind::Overflow(id) => write!(f, "the result does not fit column {id}"),
            UpdateErrorKind::RowTooLong => {
                write!(f, "the changed row would be longer than the {ROW_BYTES_MAX} bytes allowed")
            }
            UpdateErrorKind::TooLong => {
                write!(f, "the program is longer than the {UPDATE_BYTES_MAX} bytes allowed")
            }
            UpdateErrorKind::TooManyInstructions => {
                write!(f, "the program has more than the {INSTRUCTIONS_MAX} instructions allowed")
            }
            UpdateErrorKind::Truncated => f.write_str("the program ends too early"),
            UpdateErrorKind::UnknownOperation(found) => {
                write!(f, "there is no operation {found:#04x}; a newer client may have sent it")
            }
            UpdateErrorKind::NoSuchColumn(id) => write!(f, "the table has no column {id} (counted from 0)"),
            UpdateErrorKind::OperandTooLong(id) => write!(f, "the value is longer than column {id} allows"),
            UpdateErrorKind::OperandLength(id) => write!(f, "the value is not as long as column {id}"),
            UpdateErrorKind::NotNumber(id) => {
                write!(f, "column {id} is no number; only numbers can be added")
            }
            UpdateErrorKind::NotInteger(id) => {
                write!(f, "column {id} is no integer; only integers have bits")
            }
            UpdateErrorKind::NotNullable(id) => write!(f, "column {id} can't be NULL"),
            UpdateErrorKind::KeyColumn(id) => {
                write!(f, "column {id} belongs to the primary key; delete the row and insert it anew")
            }
            UpdateErrorKind::CheckBehindChange => f.write_str("checks must stand before all changes"),
            UpdateErrorKind::NotAscending(id) => {
                write!(f, "column {id} stands twice or too late; changes must ascend by column")
            }
        }
    }
}
