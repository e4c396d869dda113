//! A table as a client knows it, and rows of it in bytes.

use crate::error::{Error, Result};
use crate::sql_table::{ColumnChange, SqlTable};
use crate::value::{LoadValue, Misfit, StoreValue, Stored, Value};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use vinga_base::hash::KeyHash;
use vinga_base::order_key::OrderKey;
use vinga_base::row_layout::{Place, RowError, RowLayout};
use vinga_base::schema::{IndexDefinition, IndexKind, Kind, TableDefinition};
use vinga_base::{ColumnId, PartitionId, TableId, TablePartitions, TableVersion};
use vinga_wire::ErrorCode;
use vinga_wire::dictionary::TableRecord;

/// A definition, with what follows from it.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    record: TableRecord,
    layout: RowLayout,
    /// What changes have to keep to if it was made by SQL.
    sql: Option<Box<SqlTable>>,
}

impl Table {
    /// Takes a definition over from the dictionary.
    ///
    /// # Errors
    /// `BadTableDefinition` if it breaks a limit, which no data node sends.
    pub fn new(record: TableRecord) -> Result<Self> {
        let check = record.definition.check();
        check.map_err(|error| Error::with_detail(ErrorCode::BadTableDefinition, error.text))?;
        if !record.partitions.is_sound() {
            return Err(Error::with_detail(ErrorCode::BadTableDefinition, "no partitions, or one twice"));
        }
        let layout = RowLayout::new(&record.definition);
        let sql = SqlTable::of(&record.definition).map(Box::new);
        Ok(Table { record, layout, sql })
    }

    /// Its place in the dictionary.
    pub fn id(&self) -> TableId {
        TableId(self.record.table)
    }

    /// Which definition it is.
    pub fn version(&self) -> TableVersion {
        TableVersion(self.record.version)
    }

    /// The version with which its rows began: it stays when the definition or the name changes, a truncate gives
    /// another.
    pub fn birth(&self) -> TableVersion {
        TableVersion(self.record.birth)
    }

    /// The partitions of the cluster in which its rows are.
    #[inline]
    pub fn partitions(&self) -> &TablePartitions {
        &self.record.partitions
    }

    /// The partition of the row whose primary key has this hash.
    #[inline]
    pub(crate) fn partition_of(&self, hash: KeyHash) -> PartitionId {
        self.record.partitions.of(hash)
    }

    /// All that the dictionary has of it.
    pub fn record(&self) -> &TableRecord {
        &self.record
    }

    /// The hidden table of a unique index, by the index's id.
    pub fn unique_table(&self, index: u16) -> Option<Table> {
        let unique = self.record.unique_tables.iter().find(|unique| unique.index == index)?;
        let record = self.record.hidden().find(|hidden| hidden.table == unique.table)?;
        let columns: Vec<ColumnId> = self.record.definition.index(index)?.column_ids().collect();
        let sql = self.sql.as_ref().map(|sql| Box::new(sql.of_unique_table(&columns)));
        Some(Table { layout: RowLayout::new(&record.definition), record, sql })
    }

    /// `database.table`.
    pub fn name(&self) -> &str {
        &self.record.definition.name
    }

    /// What it was created as.
    pub fn definition(&self) -> &TableDefinition {
        &self.record.definition
    }

    /// Where the columns lie in a row.
    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// The column of that name, without regard to case; not one that is hidden.
    ///
    /// # Errors
    /// `BadRow` with the names that there are.
    pub fn column(&self, name: &str) -> Result<ColumnId> {
        let definition = &self.record.definition;
        let found = definition.column(name).filter(|id| !definition.columns[usize::from(id.0)].is_hidden());
        found.ok_or_else(|| {
            let names: Vec<&str> = definition.visible_columns().iter().map(|c| c.name.as_str()).collect();
            let name: String = name.chars().take(64).collect();
            Error::with_detail(
                ErrorCode::BadRow,
                format!("table {} has no column '{name}'; it has {}", self.name(), names.join(", ")),
            )
        })
    }

    /// The columns of these names.
    ///
    /// # Errors
    /// As [`Table::column`].
    pub fn columns(&self, names: &[&str]) -> Result<Vec<ColumnId>> {
        names.iter().map(|name| self.column(name)).collect()
    }

    /// The index of that name and kind, without regard to case.
    ///
    /// # Errors
    /// `BadProgram` with the names that there are.
    pub fn index(&self, name: &str, kind: IndexKind) -> Result<&IndexDefinition> {
        let of_kind = || self.record.definition.indexes.iter().filter(|index| index.kind == kind);
        of_kind().find(|index| index.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
            let names: Vec<&str> = of_kind().map(|index| index.name.as_str()).collect();
            let what = match kind {
                IndexKind::Ordered => "ordered",
                IndexKind::Unique => "unique",
            };
            let name: String = name.chars().take(64).collect();
            let detail =
                format!("table {} has no {what} index '{name}'; it has {}", self.name(), names.join(", "));
            Error::with_detail(ErrorCode::BadProgram, detail)
        })
    }

    /// How the keys of one of its indexes are made.
    pub fn order_key(&self, index: &IndexDefinition) -> OrderKey {
        OrderKey::new(&self.layout, &index.columns).expect("the definition was checked")
    }

    /// The value of a column of an index as it stands in a row; `None` for NULL. Where the column has the sort key of a
    /// text, the value is that text.
    ///
    /// # Errors
    /// `BadKey` with the column and what is wrong with the value; `NeedsSql` if only SQL can make the sort key.
    pub fn index_value(&self, column: ColumnId, value: &dyn StoreValue) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        match self.store_key_value(column, value, &mut bytes)? {
            Stored::Bytes => Ok(Some(bytes)),
            Stored::Null => Ok(None),
        }
    }

    fn store_key_value<V: StoreValue + ?Sized>(
        &self,
        column: ColumnId,
        value: &V,
        out: &mut Vec<u8>,
    ) -> Result<Stored> {
        if let Some(sql) = &self.sql {
            return sql.store_key_value(&self.record.definition, column, value, out);
        }
        let column_type = self.record.definition.columns[usize::from(column.0)].column_type;
        value.store(column_type, out).map_err(|misfit| self.misfit(ErrorCode::BadKey, column, &misfit))
    }

    /// Whether rows may be removed.
    ///
    /// # Errors
    /// `NeedsSql` if it was made by SQL and keeps what its rows were.
    pub fn check_removal(&self) -> Result<()> {
        self.sql.as_ref().map_or(Ok(()), |sql| sql.check_change(self.name()))
    }

    /// Whether rows may be updated at all.
    ///
    /// # Errors
    /// As [`Table::check_removal`].
    pub fn check_update(&self) -> Result<()> {
        self.check_removal()
    }

    /// Checks what an update does to a column. Returns what changes with it: a hidden column and its bytes, `None` for
    /// NULL.
    ///
    /// # Errors
    /// `NeedsSql` if the table was made by SQL and only that knows what else would have to change, or whether the value
    /// is allowed; `BadProgram` if SQL would not allow the value.
    pub fn check_column_change(
        &self,
        column: ColumnId,
        change: ColumnChange<'_>,
    ) -> Result<Option<(ColumnId, Option<Vec<u8>>)>> {
        match &self.sql {
            None => Ok(None),
            Some(sql) => sql.change(&self.record.definition, column, change, ErrorCode::BadProgram),
        }
    }

    /// Checks the values of a row that is to be added, and makes its sort keys.
    fn sort_keys_of_new_row(&self, values: &[Option<&[u8]>]) -> Result<Vec<(ColumnId, Option<Vec<u8>>)>> {
        let Some(sql) = &self.sql else { return Ok(Vec::new()) };
        let definition = &self.record.definition;
        sql.check_new_row(definition)?;
        let mut keys = Vec::new();
        for (id, value) in (0..).zip(&values[..definition.visible_columns().len()]) {
            let change = ColumnChange::Set(*value);
            // What is NULL and must not be is reported with the others of this kind.
            keys.extend(sql.change(definition, ColumnId(id), change, ErrorCode::BadRow)?);
        }
        Ok(keys)
    }

    /// The name of a column of a key as users know it; `None` for one that they don't.
    pub fn key_column_name(&self, column: ColumnId) -> Option<String> {
        match &self.sql {
            Some(sql) => sql.name_of(&self.record.definition, column),
            None => Some(self.record.definition.columns[usize::from(column.0)].name.clone()),
        }
    }

    /// The key of the row whose primary key's columns have these values, which are as they stand in a row.
    ///
    /// # Errors
    /// The first of `value`.
    pub fn write_key_of<'a>(
        &self,
        mut value: impl FnMut(ColumnId) -> Result<Option<&'a [u8]>>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        for &id in self.layout.key() {
            let bytes = value(id)?
                .ok_or_else(|| self.misfit(ErrorCode::BadKey, id, &Misfit::new("NULL in a primary key")))?;
            if self.layout.column(id).is_some_and(|column| matches!(column.kind, Kind::VarBytes(_))) {
                out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
            }
            out.extend_from_slice(bytes);
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn misfit(&self, code: ErrorCode, column: ColumnId, misfit: &Misfit) -> Error {
        let name = self.key_column_name(column).unwrap_or_else(|| "(hidden)".into());
        misfit.clone().at(code, self.name(), &name)
    }

    /// Checks the bytes of a key.
    ///
    /// # Errors
    /// `BadKey`.
    pub fn check_key(&self, key: &[u8]) -> Result<()> {
        self.layout.check_key(key).map_err(|_| {
            Error::with_detail(
                ErrorCode::BadKey,
                format!("{} bytes are no key of {}", key.len(), self.name()),
            )
        })
    }
}

/// Writes a key, column by column.
pub struct KeyWriter<'a> {
    table: &'a Table,
    at: usize,
    out: &'a mut Vec<u8>,
}

impl<'a> KeyWriter<'a> {
    /// Begins a key of so many values.
    ///
    /// # Errors
    /// `BadKey` if the table's keys have not so many.
    pub fn new(table: &'a Table, values: usize, out: &'a mut Vec<u8>) -> Result<Self> {
        let wanted = table.layout.key().len();
        if values != wanted {
            return Err(Error::with_detail(
                ErrorCode::BadKey,
                format!("{values} values; the primary key of {} has {wanted} columns", table.name()),
            ));
        }
        Ok(KeyWriter { table, at: 0, out })
    }

    /// Appends the next column's value. There must be one: no more than were announced.
    ///
    /// # Errors
    /// `BadKey` with the column's name and what is wrong with the value.
    pub fn put<V: StoreValue + ?Sized>(&mut self, value: &V) -> Result<()> {
        let id = self.table.layout.key()[self.at];
        self.at += 1;
        let column = &self.table.record.definition.columns[usize::from(id.0)];
        let is_variable = matches!(column.column_type.kind(), Kind::VarBytes(_));
        let start = self.out.len();
        if is_variable {
            self.out.extend_from_slice(&[0, 0]);
        }
        match self.table.store_key_value(id, value, self.out)? {
            Stored::Bytes => {
                if is_variable {
                    let length = (self.out.len() - start - 2) as u16;
                    self.out[start..start + 2].copy_from_slice(&length.to_le_bytes());
                }
                Ok(())
            }
            Stored::Null => {
                Err(self.table.misfit(ErrorCode::BadKey, id, &Misfit::new("NULL in a primary key")))
            }
        }
    }
}

/// Builds row images, one after the other, in memory that it keeps.
#[derive(Default)]
pub struct RowBuilder {
    bytes: Vec<u8>,
    values: Vec<Option<Range<usize>>>,
}

impl RowBuilder {
    /// Begins a row of a table. All columns are NULL.
    pub fn begin(&mut self, table: &Table) {
        self.bytes.clear();
        self.values.clear();
        self.values.resize(table.record.definition.columns.len(), None);
    }

    /// Sets a column.
    ///
    /// # Errors
    /// `BadRow` with the column's name and what is wrong with the value.
    #[inline]
    pub fn set<V: StoreValue + ?Sized>(&mut self, table: &Table, column: ColumnId, value: &V) -> Result<()> {
        let start = self.bytes.len();
        let column_type = table.record.definition.columns[usize::from(column.0)].column_type;
        match value.store(column_type, &mut self.bytes) {
            Ok(Stored::Bytes) => {
                self.values[usize::from(column.0)] = Some(start..self.bytes.len());
                Ok(())
            }
            Ok(Stored::Null) => {
                self.values[usize::from(column.0)] = None;
                Ok(())
            }
            Err(misfit) => Err(table.misfit(ErrorCode::BadRow, column, &misfit)),
        }
    }

    /// Appends the row's image.
    ///
    /// # Errors
    /// `BadRow` if a column that can't be NULL was not set; `NeedsSql` if the table was made by SQL and only that knows
    /// what else the row has to have.
    pub fn finish(&self, table: &Table, out: &mut Vec<u8>) -> Result<()> {
        let mut values: Vec<Option<&[u8]>> =
            self.values.iter().map(|value| Some(&self.bytes[value.clone()?])).collect();
        let sort_keys = table.sort_keys_of_new_row(&values)?;
        for (column, key) in &sort_keys {
            values[usize::from(column.0)] = key.as_deref();
        }
        let start = out.len();
        table.layout.build_image(&values, out).map_err(|error| {
            out.truncate(start);
            let (column, misfit) = match error {
                RowError::RowTooLong => return Error::new(ErrorCode::RowTooLong),
                RowError::NullNotEmpty(column) => (column, Misfit::new("it has no value and can't be NULL")),
                RowError::TooLong(column) => (column, Misfit::new("the value is too long")),
                RowError::WrongLength | RowError::EndsNotAscending(_) | RowError::PaddingSet => {
                    unreachable!("these are errors of images that come from outside")
                }
            };
            table.misfit(ErrorCode::BadRow, column, &misfit)
        })
    }
}

/// A row that came from a data node, in place: a whole image, or a selection of columns.
pub struct RowRef<'a> {
    table: &'a Table,
    form: Form<'a>,
}

enum Form<'a> {
    Image(&'a [u8]),
    /// The columns and the bytes of each.
    Selection(&'a [ColumnId], Vec<Option<&'a [u8]>>),
}

impl<'a> RowRef<'a> {
    /// Checks the bytes once, so that columns can be taken from them. `selection` is what was read, `None` for the
    /// whole image.
    ///
    /// # Errors
    /// `InternalError`: a data node sent what is no row.
    pub fn new(table: &'a Table, selection: Option<&'a [ColumnId]>, bytes: &'a [u8]) -> Result<Self> {
        let form = match selection {
            None => table.layout.check_image(bytes).map(|()| Form::Image(bytes)),
            Some(selected) => {
                table.layout.read_selection(selected, bytes).map(|parts| Form::Selection(selected, parts))
            }
        };
        let form = form.map_err(|error| {
            Error::with_detail(
                ErrorCode::InternalError,
                format!("a data node sent what is no row of {}: {error:?}", table.name()),
            )
        })?;
        Ok(RowRef { table, form })
    }

    /// The same row with only the first columns of what was selected.
    #[must_use]
    pub fn first_columns(mut self, count: usize) -> Self {
        if let Form::Selection(selected, parts) = &mut self.form {
            *selected = &selected[..count];
            parts.truncate(count);
        }
        self
    }

    /// The row's table.
    pub fn table(&self) -> &'a Table {
        self.table
    }

    /// The bytes of a column, `None` if it is NULL.
    ///
    /// # Errors
    /// `BadRow` if it was not selected.
    pub fn bytes(&self, column: ColumnId) -> Result<Option<&'a [u8]>> {
        match &self.form {
            Form::Image(image) => Ok(image_column(&self.table.layout, image, column)),
            Form::Selection(selected, parts) => match selected.iter().position(|&id| id == column) {
                Some(at) => Ok(parts[at]),
                None => {
                    let misfit = Misfit::new("it was not selected");
                    Err(self.table.misfit(ErrorCode::BadRow, column, &misfit))
                }
            },
        }
    }

    /// The value of a column.
    ///
    /// # Errors
    /// `BadRow` if it is of another type, NULL where that is not asked for, or was not selected.
    #[inline]
    pub fn get<T: LoadValue>(&self, column: ColumnId) -> Result<T> {
        self.load(column, self.bytes(column)?)
    }

    fn load<T: LoadValue>(&self, column: ColumnId, bytes: Option<&[u8]>) -> Result<T> {
        let column_type = self.table.record.definition.columns[usize::from(column.0)].column_type;
        T::load(column_type, bytes).map_err(|misfit| self.table.misfit(ErrorCode::BadRow, column, &misfit))
    }

    /// The columns that were read, in their order.
    pub fn columns(&self) -> Vec<ColumnId> {
        match &self.form {
            Form::Image(_) => (0..self.table.record.definition.columns.len() as u16).map(ColumnId).collect(),
            Form::Selection(selected, _) => selected.to_vec(),
        }
    }

    /// The values of all columns that were read, in their order.
    ///
    /// # Errors
    /// `BadRow` if the stored bytes are not of their column's type.
    pub fn values(&self) -> Result<Vec<Value>> {
        match &self.form {
            Form::Image(_) => self.columns().into_iter().map(|column| self.get(column)).collect(),
            Form::Selection(selected, parts) => {
                selected.iter().zip(parts).map(|(&column, bytes)| self.load(column, *bytes)).collect()
            }
        }
    }
}

/// A column's bytes in an image that has been checked.
fn image_column<'a>(layout: &RowLayout, image: &'a [u8], column: ColumnId) -> Option<&'a [u8]> {
    let (fixed, variable) = layout.split(image);
    let column = &layout.columns()[usize::from(column.0)];
    debug_assert!(matches!(column.place, Place::Fixed { .. }) || layout.has_variable());
    (!layout.is_null(fixed, column)).then(|| layout.bytes(fixed, variable, column))
}
