//! Small lists that the cluster answers with: names, rows of information tables.

use crate::border::{Bytes, Out};
use crate::failure::{Misuse, c_text, number};
use crate::handle::{Handle, Kind};
use crate::value::{CValue, Payload, kind};
use std::ffi::{CString, c_char, c_int, c_uint};
use std::ptr;
use vinga::{InfoRows, InfoValue};

/// A result handle's object.
pub struct ResultSet {
    columns: Vec<CString>,
    rows: Vec<Vec<Cell>>,
}

/// A value in a result.
pub enum Cell {
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A count.
    Number(u64),
    /// A fraction.
    Real(f64),
}

impl From<InfoValue> for Cell {
    fn from(value: InfoValue) -> Self {
        match value {
            InfoValue::Text(text) => Cell::Text(text),
            InfoValue::Number(number) => Cell::Number(number),
            InfoValue::Real(real) => Cell::Real(real),
        }
    }
}

impl Kind for ResultSet {
    const NUMBER: u8 = 5;
}

impl ResultSet {
    /// Rows of an information table; a note for each data node that has not answered.
    pub fn info(mut info: InfoRows) -> Self {
        for unanswered in std::mem::take(&mut info.unanswered) {
            info.add_note(unanswered.to_string());
        }
        let rows = info.rows.into_iter().map(|row| row.into_iter().map(Cell::from).collect());
        ResultSet { columns: info.columns.iter().map(|name| c_text(name)).collect(), rows: rows.collect() }
    }

    /// A list of names under one heading.
    pub fn names(heading: &str, names: Vec<String>) -> Self {
        let rows = names.into_iter().map(|name| vec![Cell::Text(name)]).collect();
        ResultSet { columns: vec![c_text(heading)], rows }
    }

    /// One row of values, each under its heading.
    pub fn one<const N: usize>(headings: [&str; N], cells: [Cell; N]) -> Self {
        ResultSet { columns: headings.map(c_text).into(), rows: vec![cells.into()] }
    }
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_result_close(result: Handle<ResultSet>) -> c_int {
    result.close()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_result_column_count(result: Handle<ResultSet>) -> c_uint {
    result.look().map_or(0, |result| result.columns.len() as c_uint)
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_result_column_name(result: Handle<ResultSet>, column: c_uint) -> *const c_char {
    let name = |result: &ResultSet| Some(result.columns.get(column as usize)?.as_ptr());
    result.look().ok().and_then(name).unwrap_or(ptr::null())
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_result_row_count(result: Handle<ResultSet>) -> usize {
    result.look().map_or(0, |result| result.rows.len())
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_result_get(
    result: Handle<ResultSet>,
    row: usize,
    column: c_uint,
    value: Out<CValue>,
) -> c_int {
    number(|| {
        let cell = result.look()?.rows.get(row).and_then(|row| row.get(column as usize));
        value.required()?.put(match cell {
            Some(Cell::Text(text)) => CValue::new(kind::TEXT, Payload { bytes: Bytes::of(text.as_bytes()) }),
            Some(Cell::Bytes(bytes)) => CValue::new(kind::BYTES, Payload { bytes: Bytes::of(bytes) }),
            Some(Cell::Number(number)) => CValue::new(kind::U64, Payload { u64: *number }),
            Some(Cell::Real(real)) => CValue::new(kind::F64, Payload { f64: *real }),
            None => return Err(Misuse::BadIndex.into()),
        });
        Ok(())
    })
}
