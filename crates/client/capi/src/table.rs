//! Tables: looked up, and what they are.

use crate::border::{Items, Out, Text};
use crate::call::calls;
use crate::cluster::Cluster;
use crate::connection::Waiting;
use crate::definition::{index_kind, index_kind_number, type_parts};
use crate::failure::{Failure, Misuse, Outcome, c_text, number};
use crate::handle::{Handle, Kind};
use crate::row::{Cells, no_column};
use std::ffi::{CString, c_char, c_int, c_uint};
use std::ptr;
use std::sync::Arc;
use vinga::{ColumnId, Direction, Durability, IndexDefinition};

/// A table handle's object. It never changes, so threads share it.
pub struct Table {
    inner: vinga::Table<Cells>,
    connection: Arc<crate::connection::Connection>,
    name: CString,
    columns: Vec<CString>,
    indexes: Vec<CString>,
}

impl Kind for Table {
    const NUMBER: u8 = 2;
}

impl Table {
    /// A handle for a table.
    pub fn create(
        connection: Arc<crate::connection::Connection>,
        inner: vinga::Table<Cells>,
    ) -> Handle<Table> {
        let name = c_text(inner.name());
        let columns =
            inner.definition().visible_columns().iter().map(|column| c_text(&column.name)).collect();
        let indexes = inner.definition().indexes.iter().map(|index| c_text(&index.name)).collect();
        Handle::create(Some(Arc::clone(&connection)), Table { inner, connection, name, columns, indexes })
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
        match self.inner.definition().visible_columns().get(column as usize) {
            Some(column) => Ok(&column.name),
            None => Err(no_column(&self.inner, column)),
        }
    }

    fn index(&self, index: c_uint) -> Outcome<&IndexDefinition> {
        let indexes = &self.inner.definition().indexes;
        indexes.get(index as usize).ok_or_else(|| {
            let (name, count) = (self.inner.name(), indexes.len());
            Failure::misuse(Misuse::BadIndex, &format!("index {index}; {name} has {count}, counted from 0"))
        })
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

calls! {
    fn vinga_table_open, vinga_table_open_start, vinga_table_open_cont
        (cluster: Cluster, name: Text, table: Out<Handle<Table>>) = open;
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
    let found = || Some(table.look().ok()?.inner.core().column(name.get().ok()?).ok()?.0);
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
        let mut key = definition.primary_key.iter();
        let key_place = key.position(|&key| definition.visible_column(key) == Some(id));
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
    table.look().map_or(0, |table| {
        let definition = table.inner.definition();
        let is_visible = |id: &&ColumnId| definition.visible_column(**id).is_some();
        definition.primary_key.iter().filter(is_visible).count() as c_uint
    })
}

/// `vinga_description`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CDescription {
    /// Which definition it is.
    pub version: u64,
    /// The version with which its rows began.
    pub birth: u64,
    /// Its place in the dictionary.
    pub id: u32,
    /// Whether its rows are neither logged nor checkpointed.
    pub no_logging: c_int,
    /// Whether commits that change its rows are answered when they are on disk.
    pub durable: c_int,
    /// Whether backups may answer committed reads.
    pub read_backup: c_int,
    /// Number of indexes beside the primary key.
    pub indexes: c_uint,
    /// Number of partitions in which its rows lie.
    pub partitions: c_uint,
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_table_describe(table: Handle<Table>, out: Out<CDescription>) -> c_int {
    number(|| {
        let table = table.look()?;
        let (core, definition) = (table.inner.core(), table.inner.definition());
        out.required()?.put(CDescription {
            version: core.version().0,
            birth: core.birth().0,
            id: core.id().0,
            no_logging: (definition.durability == Durability::NotLogged).into(),
            durable: (definition.durability == Durability::Disk).into(),
            read_backup: definition.read_backup.into(),
            indexes: definition.indexes.len() as c_uint,
            partitions: core.partitions().len() as c_uint,
        });
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_table_attachment(
    table: Handle<Table>,
    data: Out<*const u8>,
    length: Out<usize>,
) -> c_int {
    number(|| {
        let (data, length) = (data.required()?, length.required()?);
        let attachment = &table.look()?.inner.definition().attachment;
        data.put(attachment.as_ptr());
        length.put(attachment.len());
        Ok(())
    })
}

/// `vinga_index`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CIndex {
    /// `VINGA_INDEX_*`.
    pub kind: c_int,
    /// Names it for ever within its table.
    pub id: c_uint,
    /// Number of its columns.
    pub columns: c_uint,
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_table_index_name(table: Handle<Table>, index: c_uint) -> *const c_char {
    let name = |table: &Table| Some(table.indexes.get(index as usize)?.as_ptr());
    table.look().ok().and_then(name).unwrap_or(ptr::null())
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_table_index_find(table: Handle<Table>, kind: c_int, name: Text) -> c_int {
    let find = || {
        let (kind, name) = (index_kind(kind).ok()?, name.get().ok()?);
        let indexes = &table.look().ok()?.inner.definition().indexes;
        indexes.iter().position(|index| index.kind == kind && index.name.eq_ignore_ascii_case(name))
    };
    find().map_or(-1, |at| at as c_int)
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_table_index(table: Handle<Table>, index: c_uint, out: Out<CIndex>) -> c_int {
    number(|| {
        let index = table.look()?.index(index)?;
        out.required()?.put(CIndex {
            kind: index_kind_number(index.kind),
            id: index.id.into(),
            columns: index.columns.len() as c_uint,
        });
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_table_index_column(
    table: Handle<Table>,
    index: c_uint,
    place: c_uint,
    column: Out<c_uint>,
    is_descending: Out<c_int>,
) -> c_int {
    number(|| {
        let column = column.required()?;
        let table = table.look()?;
        let found = table.index(index)?.columns.get(place as usize).ok_or(Misuse::BadIndex)?;
        let shown = table.inner.definition().visible_column(found.column).ok_or(Misuse::BadIndex)?;
        column.put(shown.0.into());
        is_descending.put((found.direction == Direction::Descending).into());
        Ok(())
    })
}
