//! Update programs: the changes that an update makes to a row.
//!
//! A program is a list of instructions, all about the row as it was before: first any number of *checks*, then
//! *changes*, at most one per column. If a check fails, or a sum does not fit its column, nothing is changed. So the
//! order of the instructions never affects the result, and compare-and-set is a check together with a change.
//!
//! ```text
//!   program:      instructions up to its end; at most INSTRUCTIONS_MAX; may be empty
//!   instruction:  u8 operation, u16 little-endian column id, operand
//!   operand:      a value of the column, encoded as in a key: its bytes, or u16 length and bytes if it is variable
//!
//!   checks, in any order, on any column:
//!     0x01 … 0x06  =  <>  <  <=  >  >=     operand; a NULL column fails
//!     0x07  <=>                            operand; a NULL column fails
//!     0x08  IS NULL    0x09  IS NOT NULL   no operand
//!   changes, in strictly ascending order of column, not on the primary key:
//!     0x20  set                            operand
//!     0x21  set NULL                       no operand; only where the column may be NULL
//!     0x22  add        0x23  subtract      operand; integer, float and double columns; NULL stays NULL
//!     0x24  and        0x25  or   0x26 xor operand; integer columns; NULL stays NULL
//! ```
//!
//! Integers compare by value, floats by IEEE 754, bytes by `memcmp` and length. A sum must lie in the column's range;
//! one of floats must be finite. Operation numbers are only ever added.
//!
//! Only the primary evaluates a program; it forwards the new image. As every update needs this, a program is read in
//! place in the message: [`UpdateProgram::check`] checks it once, after that reading it can't fail.

mod error;
#[cfg(test)]
mod tests;

pub use error::{UpdateError, UpdateErrorKind};

use crate::comparison::Comparison;
use crate::stored_value;
use alloc::vec::Vec;
use vinga_base::ColumnId;
use vinga_base::row_layout::{ColumnLayout, Place, RowError, RowLayout, one_zero};
use vinga_base::schema::{Kind, ROW_BYTES_MAX};

/// Instructions of a program, at most: a change for each column and as many checks.
pub const INSTRUCTIONS_MAX: usize = 1024;
/// Bytes of a program, at most: messages give its length in 16 bits.
pub const UPDATE_BYTES_MAX: usize = u16::MAX as usize;

const CHECK: u8 = 0x01;
const CHECK_LAST: u8 = 0x07;
const IS_NULL: u8 = 0x08;
const IS_NOT_NULL: u8 = 0x09;
const SET: u8 = 0x20;
const SET_NULL: u8 = 0x21;
const ADD: u8 = 0x22;
const SUBTRACT: u8 = 0x23;
const BIT_AND: u8 = 0x24;
const BIT_OR: u8 = 0x25;
const BIT_XOR: u8 = 0x26;

/// One instruction. Operands are in the column's stored form, without the length of a variable one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction<'a> {
    /// The column that it applies to.
    pub column: ColumnId,
    /// What it does with the column.
    pub action: Action<'a>,
}

/// What an instruction does with its column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action<'a> {
    /// Fails unless the comparison of the column with the operand is true.
    Check(Comparison, &'a [u8]),
    /// Fails unless the column is NULL.
    CheckNull,
    /// Fails if the column is NULL.
    CheckNotNull,
    /// Gives the column a value.
    Set(&'a [u8]),
    /// Makes the column NULL.
    SetNull,
    /// Adds to a number.
    Add(&'a [u8]),
    /// Subtracts from a number.
    Subtract(&'a [u8]),
    /// Keeps those bits of an integer.
    BitAnd(&'a [u8]),
    /// Sets those bits of an integer.
    BitOr(&'a [u8]),
    /// Inverts those bits of an integer.
    BitXor(&'a [u8]),
}

impl<'a> Action<'a> {
    fn is_check(self) -> bool {
        match self {
            Action::Check(..) | Action::CheckNull | Action::CheckNotNull => true,
            Action::Set(_)
            | Action::SetNull
            | Action::Add(_)
            | Action::Subtract(_)
            | Action::BitAnd(_)
            | Action::BitOr(_)
            | Action::BitXor(_) => false,
        }
    }

    /// Its number on the wire and its operand.
    fn code(self) -> (u8, Option<&'a [u8]>) {
        match self {
            Action::Check(comparison, operand) => (CHECK + comparison as u8, Some(operand)),
            Action::CheckNull => (IS_NULL, None),
            Action::CheckNotNull => (IS_NOT_NULL, None),
            Action::Set(operand) => (SET, Some(operand)),
            Action::SetNull => (SET_NULL, None),
            Action::Add(operand) => (ADD, Some(operand)),
            Action::Subtract(operand) => (SUBTRACT, Some(operand)),
            Action::BitAnd(operand) => (BIT_AND, Some(operand)),
            Action::BitOr(operand) => (BIT_OR, Some(operand)),
            Action::BitXor(operand) => (BIT_XOR, Some(operand)),
        }
    }
}

/// A program that was checked against a table's layout, still in the message.
#[derive(Clone, Copy, Debug)]
pub struct UpdateProgram<'a> {
    bytes: &'a [u8],
}

impl<'a> UpdateProgram<'a> {
    /// Checks a received program against a table's layout.
    ///
    /// # Errors
    /// The first problem found.
    #[inline]
    pub fn check(bytes: &'a [u8], layout: &RowLayout) -> Result<Self, UpdateError> {
        let fail = |instruction, kind| Err(UpdateError { instruction, kind });
        if bytes.len() > UPDATE_BYTES_MAX {
            return fail(0, UpdateErrorKind::TooLong);
        }
        let mut rest = bytes;
        let mut last_change = None;
        let mut count = 0;
        while !rest.is_empty() {
            let checked = take_instruction(&mut rest, layout)
                .and_then(|instruction| check_instruction(instruction, last_change, layout));
            match checked {
                Ok(change) => last_change = change,
                Err(kind) => return fail(count, kind),
            }
            count += 1;
            if count > INSTRUCTIONS_MAX {
                return fail(count - 1, UpdateErrorKind::TooManyInstructions);
            }
        }
        Ok(UpdateProgram { bytes })
    }

    /// The instructions in order, for the layout that the program was checked against.
    pub fn instructions(&self, layout: &RowLayout) -> impl Iterator<Item = Instruction<'a>> {
        instructions(self.bytes, layout)
    }

    /// Appends the image of the row after the program's changes. Allocates only if `image` is too small.
    ///
    /// # Errors
    /// A failed check, or a result that does not fit; nothing is appended then.
    #[inline]
    pub fn apply(
        &self,
        layout: &RowLayout,
        fixed: &[u8],
        variable: &[u8],
        image: &mut Vec<u8>,
    ) -> Result<(), UpdateError> {
        let start = image.len();
        image.extend_from_slice(fixed);
        let mut rest = self.bytes;
        let mut index = 0;
        let mut variable_changes: &[u8] = &[];
        while !rest.is_empty() {
            let from_here = rest;
            let instruction = take_checked(&mut rest, layout);
            let column = &layout.columns()[usize::from(instruction.column.0)];
            let result = if instruction.action.is_check() {
                holds(instruction.action, layout, fixed, variable, column)
                    .then_some(())
                    .ok_or(UpdateErrorKind::ConditionFailed(instruction.column))
            } else {
                if matches!(column.place, Place::Variable { .. }) && variable_changes.is_empty() {
                    variable_changes = from_here;
                }
                change(instruction, layout, &mut image[start..], column)
            };
            if let Err(kind) = result {
                image.truncate(start);
                return Err(UpdateError { instruction: index, kind });
            }
            index += 1;
        }
        if variable_changes.is_empty() {
            image.extend_from_slice(variable);
        } else {
            write_variable(variable_changes, layout, fixed, variable, image);
            if image.len() - start > ROW_BYTES_MAX {
                image.truncate(start);
                return Err(UpdateError { instruction: index, kind: UpdateErrorKind::RowTooLong });
            }
        }
        Ok(())
    }
}

fn instructions<'a>(program: &'a [u8], layout: &RowLayout) -> impl Iterator<Item = Instruction<'a>> {
    let mut rest = program;
    core::iter::from_fn(move || (!rest.is_empty()).then(|| take_checked(&mut rest, layout)))
}

/// Appends the new variable part. Both the columns of variable size and the changes are ascending, so one pass is
/// enough.
fn write_variable(changes: &[u8], layout: &RowLayout, fixed: &[u8], variable: &[u8], image: &mut Vec<u8>) {
    let mut changes = instructions(changes, layout).peekable();
    let mut end_at = image.len();
    let bytes_at = end_at + 2 * layout.variable().len();
    image.resize(bytes_at, 0);
    for &id in layout.variable() {
        while changes.next_if(|change| change.column < id).is_some() {}
        let value = match changes.next_if(|change| change.column == id).map(|change| change.action) {
            Some(Action::Set(value)) => value,
            Some(_) => &[],
            None => layout.bytes(fixed, variable, &layout.columns()[usize::from(id.0)]),
        };
        image.extend_from_slice(value);
        let end = (image.len() - bytes_at) as u16;
        image[end_at..end_at + 2].copy_from_slice(&end.to_le_bytes());
        end_at += 2;
    }
}

/// Reads the next instruction of a program that was checked.
#[inline]
fn take_checked<'a>(rest: &mut &'a [u8], layout: &RowLayout) -> Instruction<'a> {
    take_instruction(rest, layout).expect("the program was checked against this layout")
}

/// Reads the next instruction: only its form is checked.
#[inline(always)]
fn take_instruction<'a>(rest: &mut &'a [u8], layout: &RowLayout) -> Result<Instruction<'a>, UpdateErrorKind> {
    let (head, after) = rest.split_first_chunk::<3>().ok_or(UpdateErrorKind::Truncated)?;
    *rest = after;
    let id = ColumnId(u16::from_le_bytes([head[1], head[2]]));
    if layout.column(id).is_none() {
        return Err(UpdateErrorKind::NoSuchColumn(id));
    }
    let mut operand = || match layout.take(id, rest) {
        Ok(operand) => Ok(operand),
        Err(RowError::TooLong(id)) => Err(UpdateErrorKind::OperandTooLong(id)),
        Err(
            RowError::WrongLength
            | RowError::EndsNotAscending(_)
            | RowError::NullNotEmpty(_)
            | RowError::PaddingSet
            | RowError::RowTooLong,
        ) => Err(UpdateErrorKind::Truncated),
    };
    let action = match head[0] {
        SET => Action::Set(operand()?),
        code @ CHECK..=CHECK_LAST => Action::Check(Comparison::ALL[usize::from(code - CHECK)], operand()?),
        IS_NULL => Action::CheckNull,
        IS_NOT_NULL => Action::CheckNotNull,
        SET_NULL => Action::SetNull,
        ADD => Action::Add(operand()?),
        SUBTRACT => Action::Subtract(operand()?),
        BIT_AND => Action::BitAnd(operand()?),
        BIT_OR => Action::BitOr(operand()?),
        BIT_XOR => Action::BitXor(operand()?),
        unknown => return Err(UpdateErrorKind::UnknownOperation(unknown)),
    };
    Ok(Instruction { column: id, action })
}

/// Checks an instruction against the layout and the column that was changed last; returns the new last column.
#[inline(always)]
fn check_instruction(
    instruction: Instruction<'_>,
    last_change: Option<ColumnId>,
    layout: &RowLayout,
) -> Result<Option<ColumnId>, UpdateErrorKind> {
    let Instruction { column: id, action } = instruction;
    let column = &layout.columns()[usize::from(id.0)];
    match action {
        Action::Check(..) | Action::CheckNull | Action::CheckNotNull => {
            return if last_change.is_none() { Ok(None) } else { Err(UpdateErrorKind::CheckBehindChange) };
        }
        Action::Set(_) => {}
        Action::SetNull => {
            if column.null_bit.is_none() {
                return Err(UpdateErrorKind::NotNullable(id));
            }
        }
        Action::Add(_) | Action::Subtract(_) => {
            if let Kind::Bytes(_) | Kind::VarBytes(_) = column.kind {
                return Err(UpdateErrorKind::NotNumber(id));
            }
        }
        Action::BitAnd(_) | Action::BitOr(_) | Action::BitXor(_) => {
            if !matches!(column.kind, Kind::Signed(_) | Kind::Unsigned(_)) {
                return Err(UpdateErrorKind::NotInteger(id));
            }
        }
    }
    if layout.key().contains(&id) {
        return Err(UpdateErrorKind::KeyColumn(id));
    }
    if last_change.is_some_and(|last| last >= id) {
        return Err(UpdateErrorKind::NotAscending(id));
    }
    Ok(Some(id))
}

/// Whether the old row satisfies a check.
fn holds(
    check: Action<'_>,
    layout: &RowLayout,
    fixed: &[u8],
    variable: &[u8],
    column: &ColumnLayout,
) -> bool {
    let null = layout.is_null(fixed, column);
    match check {
        Action::CheckNull => null,
        Action::CheckNotNull => !null,
        Action::Check(comparison, operand) => {
            let value = layout.bytes(fixed, variable, column);
            !null && comparison.accepted().accept(stored_value::compare(column.kind, value, operand))
        }
        Action::Set(_)
        | Action::SetNull
        | Action::Add(_)
        | Action::Subtract(_)
        | Action::BitAnd(_)
        | Action::BitOr(_)
        | Action::BitXor(_) => unreachable!("changes are not checks"),
    }
}

/// Changes a column in the new fixed part. For a column of variable size, changes only its null bit.
fn change(
    instruction: Instruction<'_>,
    layout: &RowLayout,
    fixed: &mut [u8],
    column: &ColumnLayout,
) -> Result<(), UpdateErrorKind> {
    let overflow = UpdateErrorKind::Overflow(instruction.column);
    let was_null = layout.is_null(fixed, column);
    let place = match column.place {
        Place::Fixed { offset, bytes } => usize::from(offset)..usize::from(offset) + usize::from(bytes),
        Place::Variable { .. } => 0..0,
    };
    match instruction.action {
        Action::Set(value) => {
            if !place.is_empty() {
                fixed[place.clone()].copy_from_slice(value);
            }
            layout.set_null(fixed, column, false);
        }
        Action::SetNull => {
            fixed[place.clone()].fill(0);
            layout.set_null(fixed, column, true);
        }
        Action::Add(_) | Action::Subtract(_) | Action::BitAnd(_) | Action::BitOr(_) | Action::BitXor(_)
            if was_null => {}
        Action::Add(operand) => {
            add(column.kind, &mut fixed[place.clone()], operand, 1).ok_or(overflow)?;
        }
        Action::Subtract(operand) => {
            add(column.kind, &mut fixed[place.clone()], operand, -1).ok_or(overflow)?;
        }
        Action::BitAnd(bits) => {
            fixed[place.clone()].iter_mut().zip(bits).for_each(|(byte, bits)| *byte &= bits);
        }
        Action::BitOr(bits) => {
            fixed[place.clone()].iter_mut().zip(bits).for_each(|(byte, bits)| *byte |= bits);
        }
        Action::BitXor(bits) => {
            fixed[place.clone()].iter_mut().zip(bits).for_each(|(byte, bits)| *byte ^= bits);
        }
        Action::Check(..) | Action::CheckNull | Action::CheckNotNull => {
            unreachable!("checks are not changes")
        }
    }
    if let Kind::Float | Kind::Double = column.kind {
        one_zero(&mut fixed[place]);
    }
    Ok(())
}

/// Adds `sign` times the operand to a stored number; `None` if the result does not fit.
fn add(kind: Kind, stored: &mut [u8], operand: &[u8], sign: i8) -> Option<()> {
    match kind {
        Kind::Signed(bytes) | Kind::Unsigned(bytes) => {
            let sum =
                stored_value::integer(kind, stored) + i128::from(sign) * stored_value::integer(kind, operand);
            let (least, greatest) = stored_value::integer_range(kind)?;
            if !(least..=greatest).contains(&sum) {
                return None;
            }
            stored.copy_from_slice(&sum.to_le_bytes()[..usize::from(bytes)]);
        }
        Kind::Float => {
            let [value, operand] =
                [&*stored, operand].map(|bytes| f32::from_le_bytes(bytes.try_into().expect("4 bytes")));
            let sum = value + f32::from(sign) * operand;
            stored.copy_from_slice(&sum.is_finite().then_some(sum)?.to_le_bytes());
        }
        Kind::Double => {
            let sum = stored_value::double(stored) + f64::from(sign) * stored_value::double(operand);
            stored.copy_from_slice(&sum.is_finite().then_some(sum)?.to_le_bytes());
        }
        Kind::Bytes(_) | Kind::VarBytes(_) => unreachable!("only numbers are added"),
    }
    Some(())
}

/// Appends a program, after sorting its instructions into the required order.
///
/// # Errors
/// Those of [`UpdateProgram::check`]; nothing is appended then. The instruction number in the error refers to the
/// sorted order, in which `instructions` is left.
pub fn write(
    instructions: &mut [Instruction<'_>],
    layout: &RowLayout,
    out: &mut Vec<u8>,
) -> Result<(), UpdateError> {
    instructions.sort_by_key(|instruction| (!instruction.action.is_check()).then_some(instruction.column));
    let start = out.len();
    let written = instructions
        .iter()
        .enumerate()
        .try_for_each(|(index, instruction)| {
            write_instruction(*instruction, layout, out)
                .map_err(|kind| UpdateError { instruction: index, kind })
        })
        .and_then(|()| UpdateProgram::check(&out[start..], layout).map(|_| ()));
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn write_instruction(
    instruction: Instruction<'_>,
    layout: &RowLayout,
    out: &mut Vec<u8>,
) -> Result<(), UpdateErrorKind> {
    let id = instruction.column;
    let column = layout.column(id).ok_or(UpdateErrorKind::NoSuchColumn(id))?;
    let (code, operand) = instruction.action.code();
    out.push(code);
    out.extend_from_slice(&id.0.to_le_bytes());
    let Some(operand) = operand else {
        return Ok(());
    };
    match column.place {
        Place::Fixed { bytes, .. } if usize::from(bytes) != operand.len() => {
            return Err(UpdateErrorKind::OperandLength(id));
        }
        Place::Fixed { .. } => {}
        Place::Variable { .. } => {
            let length = u16::try_from(operand.len()).map_err(|_| UpdateErrorKind::OperandTooLong(id))?;
            out.extend_from_slice(&length.to_le_bytes());
        }
    }
    out.extend_from_slice(operand);
    Ok(())
}
