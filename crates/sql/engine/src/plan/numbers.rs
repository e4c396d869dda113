//! The auto-increment column of a row.

use super::{Plan, Step};
use vinga::ColumnType;
use vinga_base::row_layout::{ColumnLayout, Place};

/// The position and the form of the column in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    /// Its place among the server's columns.
    column: usize,
    layout: ColumnLayout,
    offset: usize,
    form: Form,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    /// Little-endian, of this many bytes.
    Integer(usize),
    Float,
    Double,
}

impl Number {
    pub(super) fn new(column: usize, step: &Step, column_type: ColumnType) -> Option<Self> {
        let Place::Fixed { offset, .. } = step.layout.place else { return None };
        let form = match column_type {
            ColumnType::Integer { bytes, .. } => Form::Integer(usize::from(bytes)),
            ColumnType::Float => Form::Float,
            ColumnType::Double => Form::Double,
            _ => return None,
        };
        Some(Number { column, layout: step.layout, offset: usize::from(offset), form })
    }
}

impl Plan {
    /// The value of the auto-increment column of a row, if it is greater than zero.
    pub fn number_of(&self, image: &[u8]) -> Option<u64> {
        let number = self.number.as_ref()?;
        let (fixed, _) = self.layout.split(image);
        if self.layout.is_null(fixed, &number.layout) {
            return None;
        }
        let bytes = &image[number.offset..];
        Some(match number.form {
            Form::Integer(count) => {
                let mut wide = [0; 8];
                wide[..count].copy_from_slice(&bytes[..count]);
                u64::from_le_bytes(wide)
            }
            Form::Float => f32::from_le_bytes(bytes[..4].try_into().expect("four bytes")) as u64,
            Form::Double => f64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as u64,
        })
    }

    /// Sets the auto-increment column of a row to a value that the column can have.
    pub fn set_number(&self, image: &mut [u8], value: u64) {
        let Some(number) = &self.number else { return };
        let bytes = &mut image[number.offset..];
        match number.form {
            Form::Integer(count) => bytes[..count].copy_from_slice(&value.to_le_bytes()[..count]),
            Form::Float => bytes[..4].copy_from_slice(&(value as f32).to_le_bytes()),
            Form::Double => bytes[..8].copy_from_slice(&(value as f64).to_le_bytes()),
        }
    }

    /// Whether the auto-increment column belongs to a key of the server.
    pub fn is_number_in(&self, key: usize) -> bool {
        let steps = self.keys.get(key).map(|key| key.steps.as_slice());
        self.number.is_some_and(|number| {
            steps.is_some_and(|steps| steps.iter().any(|step| step.column == number.column))
        })
    }
}
