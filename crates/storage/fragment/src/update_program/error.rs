//! What can be wrong with an update program, or fail when it meets a row.

use super::{INSTRUCTIONS_MAX, UPDATE_BYTES_MAX};
use core::fmt;
use vinga_base::ColumnId;
use vinga_base::schema::ROW_BYTES_MAX;

/// Why a program was refused, or failed on a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpdateError {
    /// Which instruction, from 0.
    pub instruction: usize,
    /// What is wrong with it.
    pub mistake: UpdateMistake,
}

/// What is wrong with an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpdateMistake {
    /// The row is not as a check wants it. Only this one, `Overflow` and `RowTooLong` depend on the row.
    ConditionFailed(ColumnId),
    /// A sum does not fit the column.
    Overflow(ColumnId),
    /// The changed row has more than [`ROW_BYTES_MAX`] bytes.
    RowTooLong,
    /// More than [`UPDATE_BYTES_MAX`] bytes.
    TooLong,
    /// More than [`INSTRUCTIONS_MAX`] instructions.
    TooManyInstructions,
    /// The program ends in the middle.
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
    /// A check stands behind a change.
    CheckBehindChange,
    /// Changes do not ascend by column, or change one twice.
    NotAscending(ColumnId),
}

impl core::error::Error for UpdateError {}

impl fmt::Display for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "update, instruction {}: ", self.instruction)?;
        match self.mistake {
            UpdateMistake::ConditionFailed(id) => write!(f, "column {id} is not as the check wants it"),
            UpdateMistake::Overflow(id) => write!(f, "the result does not fit column {id}"),
            UpdateMistake::RowTooLong => {
                write!(f, "the changed row would be longer than the {ROW_BYTES_MAX} bytes allowed")
            }
            UpdateMistake::TooLong => {
                write!(f, "the program is longer than the {UPDATE_BYTES_MAX} bytes allowed")
            }
            UpdateMistake::TooManyInstructions => {
                write!(f, "the program has more than the {INSTRUCTIONS_MAX} instructions allowed")
            }
            UpdateMistake::Truncated => f.write_str("the program ends too early"),
            UpdateMistake::UnknownOperation(found) => {
                write!(f, "there is no operation {found:#04x}; a newer client may have sent it")
            }
            UpdateMistake::NoSuchColumn(id) => write!(f, "the table has no column {id} (counted from 0)"),
            UpdateMistake::OperandTooLong(id) => write!(f, "the value is longer than column {id} allows"),
            UpdateMistake::OperandLength(id) => write!(f, "the value is not as long as column {id}"),
            UpdateMistake::NotNumber(id) => write!(f, "column {id} is no number; only numbers can be added"),
            UpdateMistake::NotInteger(id) => write!(f, "column {id} is no integer; only integers have bits"),
            UpdateMistake::NotNullable(id) => write!(f, "column {id} can't be NULL"),
            UpdateMistake::KeyColumn(id) => {
                write!(f, "column {id} belongs to the primary key; delete the row and insert it anew")
            }
            UpdateMistake::CheckBehindChange => f.write_str("checks must stand before all changes"),
            UpdateMistake::NotAscending(id) => {
                write!(f, "column {id} stands twice or too late; changes must ascend by column")
            }
        }
    }
}
