//! Rows as far as they fit a frame, and notes about what is missing.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use vinga_wire::info::InfoValue;

/// Bytes of rows in an answer, at most: with column names and notes they fit a frame. (Notes are one or two short
/// sentences.)
pub const ROWS_BYTES_MAX: usize = 96 * 1024;

/// Rows of an answer, up to the size of a frame.
#[derive(Default)]
pub struct Rows {
    rows: Vec<Vec<InfoValue>>,
    bytes: usize,
    /// Rows that did not fit.
    left_out: usize,
    notes: Vec<String>,
}

impl Rows {
    /// Adds rows; those that don't fit are counted. A short row after a long one that didn't fit is left out as well,
    /// so that what is missing is the end.
    pub fn append(&mut self, rows: Vec<Vec<InfoValue>>) {
        for row in rows {
            self.bytes += bytes_of(&row);
            if self.bytes <= ROWS_BYTES_MAX {
                self.rows.push(row);
            } else {
                self.left_out += 1;
            }
        }
    }

    /// Counts rows that are not here.
    pub fn leave_out(&mut self, rows: usize) {
        self.left_out += rows;
    }

    /// Adds a sentence about what is missing.
    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// The rows as this thread answers them, notes last, each as long as there are columns.
    pub fn into_rows(mut self, thread: u16, columns: usize) -> Vec<Vec<InfoValue>> {
        if self.left_out > 0 {
            self.note(match thread {
                0 => format!("{} more rows do not fit the answer", self.left_out),
                _ => format!("{} more rows of thread {thread} do not fit the answer", self.left_out),
            });
        }
        let mut rows = self.rows;
        rows.extend(self.notes.into_iter().map(|note| {
            let mut row = vec![InfoValue::Text(note)];
            row.resize(columns.max(1), InfoValue::Text(String::new()));
            row
        }));
        rows
    }
}

/// Bytes that a row takes in an answer, at most.
fn bytes_of(row: &[InfoValue]) -> usize {
    /// The number of values or of a text's bytes, and the kind of a value.
    const LENGTH: usize = 5;
    const KIND: usize = 1;
    let bytes = |value: &InfoValue| match value {
        InfoValue::Text(text) => LENGTH + text.len(),
        InfoValue::Number(_) => 10,
        InfoValue::Real(_) => 8,
    };
    LENGTH + row.iter().map(|value| KIND + bytes(value)).sum::<usize>()
}
