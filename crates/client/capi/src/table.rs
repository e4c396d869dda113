//! Tables: looked up, described, created.

use crate::border::{Items, Out, Text};
use crate::call::calls;
use crate::cluster::Cluster;
use crate::connection::Waiting;
use crate::failure::{Failure, Misuse, Outcome, c_text, number};
use crate::handle::{Handle, Kind};
use crate::result_set::ResultSet;
use crate::row::{Cells, no_column};
use std::ffi::{CString, c_char, c_int, c_uint};
use std::ptr;
use std::sync::Arc;
use vinga::{ColumnId, ColumnType, NewTable};

/// A table handle's object. It never changes, so threads share it.
pub struct Table {
    inner: vinga::Table<Cells>,
    connection: Arc<crate::connection::Connection>,
    name: CString,
    columns: Vec<CString>,
}

impl Kind for Table {
    const NUMBER: u8 = 2;
}

impl Table {
    fn create(connection: Arc<crate::connection::Connection>, inner: vinga::Table<Cells>) -> Handle<Table> {
        let name = c_text(inner.name());
        let columns = inner.definition().columns.iter().map(|column| c_text(&column.name)).collect();
        Handle::create(Some(Arc::clone(&connection)), Table { inner, connection, name, columns })
    }

    /// The table of the Rust client.
    pub fn inner(&self) -> &vinga::Table<Cells> {
        &self.inner
    }

    /// Where it was looked up.
    pub fn connection(&self) -> &Arc<crate::connection::Connection> {
        &self.connection
    }

    /// The name of a column.
    ///
    /// # Errors
    /// `BadIndex`.
    pub fn column_name(&self, column: c_uint) -> Outcome<&str> {
        match self.inner.definition().columns.get(column as usize) {
            Some(column) => Ok(&column.name),
            None => Err(no_column(&self.inner, column)),
        }
    }

    /// The same table, of whose rows only these columns are read.
    ///
    /// # Errors
    /// `BadIndex`; `BadProgram` if one is named twice.
    pub fn select(&self, columns: &[c_uint]) -> Outcome<vinga::Table<Cells>> {
        let names: Vec<&str> =
            columns.iter().map(|&column| self.column_name(column)).collect::<Outcome<_>>()?;
        Ok(self.inner.select(&names)?)
    }
}

fn open(waiting: &Waiting<'_>, _: &mut Cluster, name: Text, table: Out<Handle<Table>>) -> Outcome {
    let table = table.required()?;
    let connection = waiting.connection()?;
    let name = name.get()?.to_owned();
    let inner = waiting.wait_for(&connection, connection.cluster.table_of::<Cells>(&name))?;
    table.put(Table::create(connection, inner));
    Ok(())
}

fn create(
    waiting: &Waiting<'_>,
    _: &mut Cluster,
    definition: Handle<Definition>,
    table: Out<Handle<Table>>,
) -> Outcome {
    let connection = waiting.connection()?;
    let definition = definition.look()?.table.clone();
    let made = waiting.wait_for(&connection, connection.cluster.create_table(definition))?;
    if table.is_wanted() {
        table.put(Table::create(Arc::clone(&connection), made.rows::<Cells>()?));
    }
    Ok(())
}

fn drop_table(waiting: &Waiting<'_>, _: &mut Cluster, name: Text) -> Outcome {
    let connection = waiting.connection()?;
    let name = name.get()?.to_owned();
    waiting.wait_for(&connection, connection.cluster.drop_table(&name))
}

fn list(waiting: &Waiting<'_>, _: &mut Cluster, result: Out<Handle<ResultSet>>) -> Outcome {
    let result = result.required()?;
    let connection = waiting.connection()?;
    let names = waiting.wait_for(&connection, connection.cluster.tables())?;
    result.put(Handle::create(None, ResultSet::names("table", names)));
    Ok(())
}

calls! {
    fn vinga_table_open, vinga_table_open_start, vinga_table_open_cont
        (cluster: Cluster, name: Text, table: Out<Handle<Table>>) = open;
    fn vinga_table_create, vinga_table_create_start, vinga_table_create_cont
        (cluster: Cluster, definition: Handle<Definition>, table: Out<Handle<Table>>) = create;
    fn vinga_table_drop, vinga_table_drop_start, vinga_table_drop_cont
        (cluster: Cluster, name: Text) = drop_table;
    fn vinga_table_list, vinga_table_list_start, vinga_table_list_cont
        (cluster: Cluster, result: Out<Handle<ResultSet>>) = list;
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_table_close(table: Handle<Table>) -> c_int {
    table.close()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_table_select(
    table: Handle<Table>,
    columns: Items<c_uint>,
    count: usize,
    selected: Out<Handle<Table>>,
) -> c_int {
    number(|| {
        let selected = selected.required()?;
        let table = table.look()?;
        selected.put(Table::create(Arc::clone(&table.connection), table.select(columns.get(count)?)?));
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_table_name(table: Handle<Table>) -> *const c_char {
    table.look().map_or(ptr::null(), |table| table.name.as_ptr())
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_table_column_count(table: Handle<Table>) -> c_uint {
    table.look().map_or(0, |table| table.columns.len() as c_uint)
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_table_column_name(table: Handle<Table>, column: c_uint) -> *const c_char {
    let name = |table: &Table| Some(table.columns.get(column as usize)?.as_ptr());
    table.look().ok().and_then(name).unwrap_or(ptr::null())
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_table_column_find(table: Handle<Table>, name: Text) -> c_int {
    let found = || Some(table.look().ok()?.inner.definition().column(name.get().ok()?)?.0);
    found().map_or(-1, c_int::from)
}

/// `vinga_column`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CColumn {
    /// `VINGA_TYPE_*`.
    pub kind: c_int,
    /// Digits, bits or bytes.
    pub size: c_uint,
    /// Digits behind the point.
    pub scale: c_uint,
    /// Whether it may be NULL.
    pub is_nullable: c_int,
    /// Place in the primary key from 0, −1 if it is not in it.
    pub key_place: c_int,
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_table_column(table: Handle<Table>, column: c_uint, out: Out<CColumn>) -> c_int {
    number(|| {
        let table = table.look()?;
        table.column_name(column)?;
        let definition = table.inner.definition();
        let described = &definition.columns[column as usize];
        let (kind, size, scale) = type_parts(described.column_type);
        let id = ColumnId(column as u16);
        let key_place = definition.primary_key.iter().position(|&key| key == id);
        out.required()?.put(CColumn {
            kind,
            size,
            scale,
            is_nullable: described.nullable.into(),
            key_place: key_place.map_or(-1, |place| place as c_int),
        });
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_table_key_count(table: Handle<Table>) -> c_uint {
    table.look().map_or(0, |table| table.inner.definition().primary_key.len() as c_uint)
}

/// A definition handle's object.
pub struct Definition {
    table: NewTable,
}

impl Kind for Definition {
    const NUMBER: u8 = 4;
}

impl Definition {
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
        let names: Vec<&str> = columns.get(count)?.iter().map(Text::get).collect::<Outcome<_>>()?;
        definition.change(|table| table.primary_key(&names));
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
pub extern "C" fn vinga_definition_read_backup(definition: Handle<Definition>) -> c_int {
    definition.with(|definition, _| {
        definition.change(NewTable::read_backup);
        Ok(())
    })
}

/// Number (`VINGA_TYPE_*`), size and scale of a type.
fn type_parts(column: ColumnType) -> (c_int, c_uint, c_uint) {
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
