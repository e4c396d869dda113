//! Errors about one row that say which row: table and key.

use crate::row::WriteRow;
use crate::table::Table;
use std::fmt::Write;
use vinga_base::schema::{IndexKind, Kind};
use vinga_client_core::value::{Key, LoadValue};
use vinga_client_core::{Error, RowBuilder, RowRef, Value};
use vinga_wire::ErrorCode;

/// The error, with the row that has this key.
#[cold]
pub(crate) fn by_key<R>(table: &Table<R>, key: &(impl Key + ?Sized), error: Error) -> Error {
    let mut bytes = Vec::new();
    if !is_about_a_row(&error) || table.write_key(key, &mut bytes).is_err() {
        return error;
    }
    name(table.core(), &bytes, error)
}

/// The error, with the key of this row.
#[cold]
pub(crate) fn by_row<R>(table: &Table<R>, row: &(impl WriteRow + ?Sized), error: Error) -> Error {
    let (mut image, mut key) = (Vec::new(), Vec::new());
    if !is_about_a_row(&error) || table.write_image(row, &mut RowBuilder::default(), &mut image).is_err() {
        return error;
    }
    let written = RowRef::new(table.core(), None, &image)
        .and_then(|row| table.core().write_key_of(|column| row.bytes(column), &mut key));
    match written {
        Ok(()) => name(table.core(), &key, error),
        Err(_) => error,
    }
}

fn is_about_a_row(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::NoSuchRow | ErrorCode::DuplicateKey)
}

fn name(table: &vinga_client_core::Table, key: &[u8], error: Error) -> Error {
    let definition = table.definition();
    let mut text = format!("table {}", definition.name);
    let mut rest = key;
    for &id in table.layout().key() {
        let column = &definition.columns[usize::from(id.0)];
        let bytes = match column.column_type.kind() {
            Kind::VarBytes(_) => {
                let Some((length, behind)) = rest.split_first_chunk() else { return error };
                rest = behind;
                usize::from(u16::from_le_bytes(*length))
            }
            fixed => usize::from(fixed.fixed_bytes().expect("only VarBytes is variable")),
        };
        let Some((value, behind)) = rest.split_at_checked(bytes) else { return error };
        rest = behind;
        let shown =
            Value::load(column.column_type, Some(value)).map_or_else(|_| "?".to_owned(), |v| v.to_string());
        // A long key is to be found, not to be read.
        let shortened: String = shown.chars().take(VALUE_CHARACTERS_MAX).collect();
        let more = if shortened.len() < shown.len() { "…" } else { "" };
        match table.key_column_name(id) {
            Some(column) => _ = write!(text, ", {column} {shortened}{more}"),
            None => text.push_str(", a row without a primary key"),
        }
    }
    let has_unique = definition.indexes.iter().any(|index| index.kind == IndexKind::Unique);
    if error.code() == ErrorCode::DuplicateKey && has_unique {
        text.push_str("; it may be the key of a unique index");
    }
    Error::with_detail(error.code(), text)
}

/// Characters of a value that are shown.
const VALUE_CHARACTERS_MAX: usize = 60;
