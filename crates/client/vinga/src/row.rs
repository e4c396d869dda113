//! Rows as a program has them: records with values by name, or structs of its own.

use crate::table::check_columns;
use std::fmt;
use std::sync::Arc;
use vinga_base::ColumnId;
use vinga_client_core::value::{LoadValue, StoreValue};
use vinga_client_core::{Error, Result, RowBuilder, RowRef, Table, Value};
use vinga_wire::ErrorCode;

/// What a row can be written from.
pub trait WriteRow {
    /// Sets the columns of a row that has just been begun.
    ///
    /// # Errors
    /// `BadRow` with the column's name and what is wrong.
    fn write(&self, writer: &mut RowWriter<'_>) -> Result<()>;
}

/// What a row can be read into.
pub trait ReadRow: Sized {
    /// The columns that it reads, by name; `None` for whatever was selected.
    const COLUMNS: Option<&'static [&'static str]>;

    /// Reads it.
    ///
    /// # Errors
    /// `BadRow` with the column's name and what is wrong.
    fn read(row: &RowReader<'_>) -> Result<Self>;
}

/// Sets the columns of one row.
pub struct RowWriter<'a> {
    table: &'a Table,
    builder: &'a mut RowBuilder,
    next: u16,
}

impl<'a> RowWriter<'a> {
    pub(crate) fn new(table: &'a Table, builder: &'a mut RowBuilder) -> Self {
        builder.begin(table);
        RowWriter { table, builder, next: 0 }
    }

    /// Sets a column. Columns that are set in the order of the table are found at once.
    ///
    /// # Errors
    /// `BadRow` if there is no such column, or the value does not fit.
    #[inline]
    pub fn set<V: StoreValue + ?Sized>(&mut self, column: &str, value: &V) -> Result<()> {
        let id = find(self.table, column, ColumnId(self.next))?;
        self.next = id.0 + 1;
        self.builder.set(self.table, id, value)
    }
}

/// Takes the columns of one row.
pub struct RowReader<'a> {
    row: RowRef<'a>,
}

impl<'a> RowReader<'a> {
    pub(crate) fn new(row: RowRef<'a>) -> Self {
        RowReader { row }
    }

    /// A column's value. `hint` is where the column stands in the table if that is as the program knows it.
    ///
    /// # Errors
    /// `BadRow` if there is no such column, it was not selected, or its value is of another type.
    #[inline]
    pub fn get<T: LoadValue>(&self, column: &str, hint: u16) -> Result<T> {
        self.row.get(find(self.row.table(), column, ColumnId(hint))?)
    }

    /// The row's bytes, column by column.
    pub fn row(&self) -> &RowRef<'a> {
        &self.row
    }
}

#[inline]
fn find(table: &Table, name: &str, hint: ColumnId) -> Result<ColumnId> {
    match table.definition().columns.get(usize::from(hint.0)) {
        Some(column) if column.name == name && !column.is_hidden() => Ok(hint),
        _ => table.column(name),
    }
}

/// A row of any table: values by name.
#[derive(Clone, PartialEq)]
pub struct Record {
    names: Arc<[String]>,
    values: Vec<Value>,
}

impl Record {
    /// A row from names and values.
    pub fn new<N: Into<String>, V: Into<Value>>(columns: impl IntoIterator<Item = (N, V)>) -> Self {
        let (names, values): (Vec<String>, Vec<Value>) =
            columns.into_iter().map(|(name, value)| (name.into(), value.into())).unzip();
        Record { names: names.into(), values }
    }

    pub(crate) fn from_parts(names: Arc<[String]>, values: Vec<Value>) -> Self {
        Record { names, values }
    }

    /// The value of a column; `None` if the row has no such column.
    pub fn get(&self, column: &str) -> Option<&Value> {
        let at = self.names.iter().position(|name| name.eq_ignore_ascii_case(column))?;
        Some(&self.values[at])
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.names.iter().map(String::as_str).zip(&self.values)
    }

    /// The values in order.
    pub fn values(&self) -> &[Value] {
        &self.values
    }
}

impl std::ops::Index<&str> for Record {
    type Output = Value;

    /// The value of a column that the row has.
    ///
    /// # Panics
    /// If it has no such column.
    fn index(&self, column: &str) -> &Value {
        self.get(column).unwrap_or_else(|| panic!("the row has no column '{column}'"))
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl fmt::Display for Record {
    /// `name=value` for each column.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{name}={value}")?;
        }
        Ok(())
    }
}

impl WriteRow for Record {
    fn write(&self, writer: &mut RowWriter<'_>) -> Result<()> {
        self.iter().try_for_each(|(name, value)| writer.set(name, value))
    }
}

impl ReadRow for Record {
    const COLUMNS: Option<&'static [&'static str]> = None;

    fn read(row: &RowReader<'_>) -> Result<Self> {
        let columns = &row.row.table().definition().columns;
        let mut values = row.row.values()?;
        let mut names = Vec::with_capacity(values.len());
        let is_visible = |id: &ColumnId| !columns[usize::from(id.0)].is_hidden();
        let ids = row.row.columns();
        let mut visible = ids.iter().map(is_visible);
        values.retain(|_| visible.next().unwrap_or(true));
        names
            .extend(ids.iter().filter(|id| is_visible(id)).map(|id| columns[usize::from(id.0)].name.clone()));
        Ok(Record::from_parts(names.into(), values))
    }
}

impl<V: StoreValue> WriteRow for [(&str, V)] {
    fn write(&self, writer: &mut RowWriter<'_>) -> Result<()> {
        self.iter().try_for_each(|(name, value)| writer.set(name, value))
    }
}

impl<V: StoreValue, const N: usize> WriteRow for [(&str, V); N] {
    fn write(&self, writer: &mut RowWriter<'_>) -> Result<()> {
        self.as_slice().write(writer)
    }
}

impl WriteRow for [Value] {
    /// All columns in the order of the table, without those that are hidden.
    fn write(&self, writer: &mut RowWriter<'_>) -> Result<()> {
        let columns = writer.table.definition().visible_columns().len();
        if self.len() != columns {
            let detail = format!("{} values; {} has {columns} columns", self.len(), writer.table.name());
            return Err(Error::with_detail(ErrorCode::BadRow, detail));
        }
        let set = |(id, value)| writer.builder.set(writer.table, ColumnId(id), value);
        (0..).zip(self).try_for_each(set)
    }
}

impl WriteRow for Vec<Value> {
    fn write(&self, writer: &mut RowWriter<'_>) -> Result<()> {
        self.as_slice().write(writer)
    }
}

impl<R: WriteRow + ?Sized> WriteRow for &R {
    fn write(&self, writer: &mut RowWriter<'_>) -> Result<()> {
        (**self).write(writer)
    }
}

/// Which columns have to be selected for a type of row; `None` if whole rows serve as well.
pub(crate) fn selection_for<R: ReadRow>(table: &Table) -> Result<Option<Vec<ColumnId>>> {
    let Some(names) = R::COLUMNS else { return Ok(None) };
    let columns = check_columns(table, names)?;
    Ok((columns.len() < table.definition().columns.len()).then_some(columns))
}

/// Declares a struct whose fields are columns of the same names, to be written and read as rows.
///
/// A field is of a type that [fits](crate::value) its column, inside an `Option` if the column may be NULL. Columns of the
/// table that the struct lacks are not read, and are NULL in rows that it inserts.
///
/// ```
/// vinga::row! {
///     /// A person.
///     #[derive(Debug, PartialEq)]
///     pub struct Person {
///         /// Unique.
///         pub id: u64,
///         pub name: String,
///         pub born: Option<vinga::value::Date>,
///     }
/// }
/// ```
#[macro_export]
macro_rules! row {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_visibility:vis $field:ident : $type:ty),* $(,)?
        }
    ) => {
        $(#[$meta])*
        $visibility struct $name {
            $($(#[$field_meta])* $field_visibility $field: $type,)*
        }

        impl $crate::WriteRow for $name {
            fn write(&self, writer: &mut $crate::RowWriter<'_>) -> $crate::Result<()> {
                $(writer.set(stringify!($field), &self.$field)?;)*
                Ok(())
            }
        }

        impl $crate::ReadRow for $name {
            const COLUMNS: Option<&'static [&'static str]> = Some(&[$(stringify!($field)),*]);

            fn read(row: &$crate::RowReader<'_>) -> $crate::Result<Self> {
                let mut place = 0..;
                Ok($name {
                    $($field: row.get(stringify!($field), place.next().unwrap_or(u16::MAX))?,)*
                })
            }
        }
    };
}
