//! Definitions of tables that are to be created or altered.

use crate::border::{Items, Out, Text};
use crate::failure::{Failure, Misuse, Outcome, number};
use crate::handle::{Handle, Kind};
use crate::table::Table;
use std::ffi::{c_int, c_uint};
use vinga::{ColumnType, Direction, IndexKind, NewTable};

/// A definition handle's object.
pub struct Definition {
    table: NewTable,
}

impl Kind for Definition {
    const NUMBER: u8 = 4;
}

impl Definition {
    /// The definition of the Rust client.
    pub fn inner(&self) -> &NewTable {
        &self.table
    }

    fn change(&mut self, change: impl FnOnce(NewTable) -> NewTable) {
        let before = std::mem::replace(&mut self.table, NewTable::new(""));
        self.table = change(before);
    }
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_definition_new(name: Text, definition: Out<Handle<Definition>>) -> c_int {
    number(|| {
        let definition = definition.required()?;
        definition.put(Handle::create(None, Definition { table: NewTable::new(name.get()?) }));
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_definition_of(table: Handle<Table>, definition: Out<Handle<Definition>>) -> c_int {
    number(|| {
        let definition = definition.required()?;
        let known = table.look()?.inner().definition().clone();
        definition.put(Handle::create(None, Definition { table: NewTable::from(known) }));
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_definition_set_name(definition: Handle<Definition>, name: Text) -> c_int {
    definition.with(|definition, _| {
        let name = name.get()?;
        definition.change(|table| table.named(name));
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_definition_close(definition: Handle<Definition>) -> c_int {
    definition.close()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_definition_column(
    definition: Handle<Definition>,
    name: Text,
    kind: c_int,
    size: c_uint,
    scale: c_uint,
    is_nullable: c_int,
) -> c_int {
    definition.with(|definition, _| {
        let column_type = column_type(kind, size, scale)?;
        let name = name.get()?;
        definition.change(|table| match is_nullable {
            0 => table.column(name, column_type),
            _ => table.nullable_column(name, column_type),
        });
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_definition_primary_key(
    definition: Handle<Definition>,
    columns: Items<Text>,
    count: usize,
) -> c_int {
    definition.with(|definition, _| {
        let names = names(&columns, count)?;
        definition.change(|table| table.primary_key(&names));
        Ok(())
    })
}

fn names(columns: &Items<Text>, count: usize) -> Outcome<Vec<&str>> {
    columns.get(count)?.iter().map(Text::get).collect()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_definition_ordered_index(
    definition: Handle<Definition>,
    name: Text,
    columns: Items<Text>,
    is_descending: Items<c_int>,
    count: usize,
) -> c_int {
    definition.with(|definition, _| {
        let (name, columns) = (name.get()?, names(&columns, count)?);
        let directions = is_descending.get_given(count)?;
        let direction = |at: usize| match directions.map_or(0, |directions| directions[at]) {
            0 => Direction::Ascending,
            _ => Direction::Descending,
        };
        let columns: Vec<_> = columns.iter().zip(0..).map(|(&name, at)| (name, direction(at))).collect();
        definition.change(|table| table.ordered_index_by(name, &columns));
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_definition_unique_index(
    definition: Handle<Definition>,
    name: Text,
    columns: Items<Text>,
    count: usize,
) -> c_int {
    definition.with(|definition, _| {
        let (name, columns) = (name.get()?, names(&columns, count)?);
        definition.change(|table| table.unique_index(name, &columns));
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_definition_drop_index(
    definition: Handle<Definition>,
    kind: c_int,
    name: Text,
) -> c_int {
    definition.with(|definition, _| Ok(definition.table.drop_index(index_kind(kind)?, name.get()?)?))
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_definition_rename_column(
    definition: Handle<Definition>,
    name: Text,
    new_name: Text,
) -> c_int {
    definition.with(|definition, _| Ok(definition.table.rename_column(name.get()?, new_name.get()?)?))
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_definition_attachment(
    definition: Handle<Definition>,
    data: Items<u8>,
    length: usize,
) -> c_int {
    definition.with(|definition, _| {
        let attachment = data.get(length)?;
        definition.change(|table| table.attachment(attachment));
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_definition_no_logging(definition: Handle<Definition>) -> c_int {
    definition.with(|definition, _| {
        definition.change(NewTable::no_logging);
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_definition_durable(definition: Handle<Definition>) -> c_int {
    definition.with(|definition, _| {
        definition.change(NewTable::durable);
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_definition_read_backup(definition: Handle<Definition>) -> c_int {
    definition.with(|definition, _| {
        definition.change(NewTable::read_backup);
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_definition_partitions(definition: Handle<Definition>, count: c_uint) -> c_int {
    definition.with(|definition, _| {
        let count = u16::try_from(count)
            .map_err(|_| Failure::misuse(Misuse::BadArgument, "a table has at most 65535 partitions"))?;
        definition.change(|table| table.partitions(count));
        Ok(())
    })
}

/// The number of a kind of index (`VINGA_INDEX_*`).
pub fn index_kind_number(kind: IndexKind) -> c_int {
    match kind {
        IndexKind::Ordered => 1,
        IndexKind::Unique => 2,
    }
}

/// The kind of index of a number.
///
/// # Errors
/// `BadArgument`.
pub fn index_kind(number: c_int) -> Outcome<IndexKind> {
    match number {
        1 => Ok(IndexKind::Ordered),
        2 => Ok(IndexKind::Unique),
        _ => Err(Failure::misuse(Misuse::BadArgument, "there is no such kind of index")),
    }
}

/// Number (`VINGA_TYPE_*`), size and scale of a type.
pub fn type_parts(column: ColumnType) -> (c_int, c_uint, c_uint) {
    let size = |number, size: u16| (number, size.into(), 0);
    let fraction = |number, digits: u8| (number, 0, digits.into());
    match column {
        ColumnType::Integer { bytes, signed: true } => (1, bytes.into(), 0),
        ColumnType::Integer { bytes, signed: false } => (2, bytes.into(), 0),
        ColumnType::Float => (3, 0, 0),
        ColumnType::Double => (4, 0, 0),
        ColumnType::Decimal { precision, scale } => (5, precision.into(), scale.into()),
        ColumnType::Bit { bits } => (6, bits.into(), 0),
        ColumnType::Date => (7, 0, 0),
        ColumnType::Time { fraction: digits } => fraction(8, digits),
        ColumnType::DateTime { fraction: digits } => fraction(9, digits),
        ColumnType::Timestamp { fraction: digits } => fraction(10, digits),
        ColumnType::Year => (11, 0, 0),
        ColumnType::Char { bytes } => size(12, bytes),
        ColumnType::Binary { bytes } => size(13, bytes),
        ColumnType::VarChar { bytes_max } => size(14, bytes_max),
        ColumnType::VarBinary { bytes_max } => size(15, bytes_max),
        ColumnType::Text => (16, 0, 0),
        ColumnType::Blob => (17, 0, 0),
    }
}

/// The type of a number, size and scale; limits are checked with the definition.
fn column_type(kind: c_int, size: c_uint, scale: c_uint) -> Outcome<ColumnType> {
    let bad = |detail: &str| Failure::misuse(Misuse::BadArgument, detail);
    let small = |value: c_uint| u8::try_from(value).map_err(|_| bad("a size or scale is above 255"));
    let bytes = || u16::try_from(size).map_err(|_| bad("a size is above 65535"));
    Ok(match kind {
        1 => ColumnType::Integer { bytes: small(size)?, signed: true },
        2 => ColumnType::Integer { bytes: small(size)?, signed: false },
        3 => ColumnType::Float,
        4 => ColumnType::Double,
        5 => ColumnType::Decimal { precision: small(size)?, scale: small(scale)? },
        6 => ColumnType::Bit { bits: small(size)? },
        7 => ColumnType::Date,
        8 => ColumnType::Time { fraction: small(scale)? },
        9 => ColumnType::DateTime { fraction: small(scale)? },
        10 => ColumnType::Timestamp { fraction: small(scale)? },
        11 => ColumnType::Year,
        12 => ColumnType::Char { bytes: bytes()? },
        13 => ColumnType::Binary { bytes: bytes()? },
        14 => ColumnType::VarChar { bytes_max: bytes()? },
        15 => ColumnType::VarBinary { bytes_max: bytes()? },
        16 => ColumnType::Text,
        17 => ColumnType::Blob,
        other => return Err(bad(&format!("there is no column type {other}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_go_over_the_border_and_back() {
        for kind in 1..=17 {
            let made = column_type(kind, 4, 2).expect("it is one");
            let (back, size, scale) = type_parts(made);
            assert_eq!(back, kind);
            assert_eq!(column_type(back, size, scale).expect("it is one"), made);
        }
        for (kind, size, scale) in [(0, 1, 1), (18, 1, 1), (5, 256, 0), (8, 0, 300), (14, 65536, 0)] {
            assert_eq!(column_type(kind, size, scale).unwrap_err().number, Misuse::BadArgument as c_int);
        }
    }
}
