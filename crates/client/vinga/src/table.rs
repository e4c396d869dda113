//! A table as a program holds it: what its rows are read into and which of their columns are read.

use crate::engine::Handle;
use crate::pending::Pending;
use crate::range::Bounds;
use crate::row::{ReadRow, Record, RowReader, RowWriter, WriteRow, selection_for};
use crate::statistics::IndexStatistics;
use crate::unique::UniqueIndex;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use vinga_base::ColumnId;
use vinga_base::order_key::KeyRange;
use vinga_base::schema::{ColumnType, IndexKind, TableDefinition};
use vinga_client_core::value::{Key, StoreValue, Stored};
use vinga_client_core::{Client, Error, RangeSpec, Result, RowBuilder, RowRef, Sample, ShapeId, Token};
use vinga_program::filter::tree::{Constant, Expression};
use vinga_wire::ErrorCode;

/// A table. `R` is what its rows are read into: [`Record`]s, or structs declared with [`crate::row!`].
///
/// Cheap to clone. It stays bound to the definition that it was made from: when the table is dropped or changed,
/// operations fail with `StaleTable` or `NoSuchTable`, and it has to be looked up again.
pub struct Table<R = Record> {
    inner: Arc<Inner>,
    row: PhantomData<fn() -> R>,
}

struct Inner {
    handle: Arc<Handle>,
    table: Arc<vinga_client_core::Table>,
    columns: Option<Vec<ColumnId>>,
    shape: ShapeId,
    unique: Mutex<Vec<Arc<UniqueIndex>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.handle.engine.look(|client| client.release_shape(self.shape));
    }
}

impl<R> Clone for Table<R> {
    fn clone(&self) -> Self {
        Table { inner: Arc::clone(&self.inner), row: PhantomData }
    }
}

impl<R> fmt::Debug for Table<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {} (id {}, version {})", self.name(), self.core().id(), self.core().version())
    }
}

impl<R> Table<R> {
    pub(crate) fn new(
        handle: &Arc<Handle>,
        table: Arc<vinga_client_core::Table>,
        columns: Option<Vec<ColumnId>>,
    ) -> Result<Self> {
        let shape = handle.engine.look(|client| client.add_shape(&table, columns.as_deref(), &[]))?;
        let inner =
            Arc::new(Inner { handle: Arc::clone(handle), table, columns, shape, unique: Mutex::default() });
        Ok(Table { inner, row: PhantomData })
    }

    /// `database.table`.
    pub fn name(&self) -> &str {
        self.inner.table.name()
    }

    /// What it was created as.
    pub fn definition(&self) -> &TableDefinition {
        self.inner.table.definition()
    }

    /// Its layout: how rows and keys look in bytes.
    pub fn core(&self) -> &vinga_client_core::Table {
        &self.inner.table
    }

    pub(crate) fn shared_core(&self) -> &Arc<vinga_client_core::Table> {
        &self.inner.table
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.inner.handle
    }

    pub(crate) fn shape(&self) -> ShapeId {
        self.inner.shape
    }

    pub(crate) fn columns(&self) -> Option<&[ColumnId]> {
        self.inner.columns.as_deref()
    }

    /// The same table, of whose rows only these columns are read.
    ///
    /// # Errors
    /// `BadRow` if there is no such column, `BadProgram` if one is named twice.
    pub fn select(&self, columns: &[&str]) -> Result<Table<R>> {
        let columns = check_columns(self.core(), columns)?;
        Table::new(self.handle(), Arc::clone(&self.inner.table), Some(columns))
    }

    /// As [`Table::select`], with columns by their ids: for engines, which know the definition.
    ///
    /// # Errors
    /// `BadRow` if there is no such column, `BadProgram` if one is given twice.
    pub fn select_ids(&self, columns: &[ColumnId]) -> Result<Table<R>> {
        let definition = self.definition();
        for (at, column) in columns.iter().enumerate() {
            let named = definition.columns.get(usize::from(column.0)).ok_or_else(|| {
                Error::with_detail(ErrorCode::BadRow, format!("there is no column with id {}", column.0))
            })?;
            if columns[..at].contains(column) {
                let detail = format!("column '{}' is selected twice", named.name);
                return Err(Error::with_detail(ErrorCode::BadProgram, detail));
            }
        }
        Table::new(self.handle(), Arc::clone(&self.inner.table), Some(columns.to_vec()))
    }

    /// The same table with rows of another type; of its columns those that the type has are read.
    ///
    /// # Errors
    /// `BadRow` if the type has a field that the table does not have as a column.
    pub fn rows<S: ReadRow>(&self) -> Result<Table<S>> {
        let columns = selection_for::<S>(self.core())?;
        Table::new(self.handle(), Arc::clone(&self.inner.table), columns)
    }

    /// A condition on rows as the data nodes read it, for [`crate::Transaction::define_encoded_if`].
    ///
    /// # Errors
    /// `BadProgram` if it does not fit the table.
    pub fn encode_filter(&self, condition: &Expression) -> Result<Vec<u8>> {
        crate::program::encode_filter(self, condition)
    }

    /// The value of a column in a filter.
    ///
    /// # Errors
    /// `BadRow` if there is no such column.
    pub fn column(&self, name: &str) -> Result<Expression> {
        Ok(Expression::Column(self.core().column(name)?))
    }

    /// A constant to be compared with a column, as the column stores it: text is padded, a date packed.
    ///
    /// # Errors
    /// `BadProgram` if there is no such column or the value does not fit.
    pub fn constant<V: StoreValue + ?Sized>(&self, column: &str, value: &V) -> Result<Expression> {
        let id = self.core().column(column)?;
        let column_type = self.definition().columns[usize::from(id.0)].column_type;
        let mut bytes = Vec::new();
        let stored = value.store(column_type, &mut bytes).map_err(|misfit| {
            Error::with_detail(ErrorCode::BadProgram, format!("column '{column}': {misfit}"))
        })?;
        Ok(Expression::Constant(match stored {
            Stored::Null => Constant::Null,
            Stored::Bytes => constant(column_type, &bytes),
        }))
    }

    /// A range of an ordered index between two bounds, each values of its first columns; for
    /// [`crate::ScanRequest::range`] and [`Table::index_statistics`].
    ///
    /// # Errors
    /// `BadProgram` if there is no such index, `BadKey` if a value does not fit its column.
    pub fn index_range(
        &self,
        index: &str,
        lower: Bound<&dyn Key>,
        upper: Bound<&dyn Key>,
    ) -> Result<KeyRange> {
        Bounds::of(self.core(), index)?.range(self.core(), lower, upper)
    }

    /// What is known about an ordered index, and how many rows are in each of some ranges: estimates for whoever has to
    /// choose between ways to rows.
    ///
    /// # Errors
    /// `BadProgram` if there is no such index; if the cluster can't be asked.
    pub async fn index_statistics(&self, index: &str, ranges: &[KeyRange]) -> Result<IndexStatistics> {
        let mut request = RangeSpec::new(self.core().index(index, IndexKind::Ordered)?.id);
        ranges.iter().for_each(|range| request.push(range));
        let token = self.handle().engine.submit(|client| client.statistics(self.core(), &request))?;
        let sample = Pending::new(self.handle(), token, take_statistics).await?;
        Ok(IndexStatistics::new(&sample))
    }

    /// The parts of a unique index that reads by it need; made at the first of them.
    pub(crate) fn unique(&self, index: &str) -> Result<Arc<UniqueIndex>> {
        let index = self.core().index(index, IndexKind::Unique)?;
        let mut known = self.inner.unique.lock().expect("nobody panics with it");
        if let Some(found) = known.iter().find(|found| found.id() == index.id) {
            return Ok(Arc::clone(found));
        }
        let made = Arc::new(UniqueIndex::new(self.handle(), self.core(), self.columns(), index)?);
        known.push(Arc::clone(&made));
        Ok(made)
    }

    pub(crate) fn write_key<K: Key + ?Sized>(&self, key: &K, out: &mut Vec<u8>) -> Result<()> {
        key.write(self.core(), out)
    }

    /// Appends the image of a row.
    pub(crate) fn write_image<W: WriteRow + ?Sized>(
        &self,
        row: &W,
        builder: &mut RowBuilder,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        row.write(&mut RowWriter::new(self.core(), builder))?;
        builder.finish(self.core(), out)
    }
}

impl<R: ReadRow> Table<R> {
    /// Reads a row from the bytes that came for it.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<R> {
        self.read_row(RowRef::new(self.core(), self.columns(), bytes)?)
    }

    /// Reads a row of which at least the columns of this table's selection are there.
    pub(crate) fn read_row(&self, row: RowRef<'_>) -> Result<R> {
        R::read(&RowReader::new(row))
    }
}

fn take_statistics(client: &mut Client, token: Token) -> Option<Result<Sample>> {
    client.take_statistics(token)
}

/// The columns of these names, each once.
pub(crate) fn check_columns(table: &vinga_client_core::Table, names: &[&str]) -> Result<Vec<ColumnId>> {
    let columns = table.columns(names)?;
    for (at, column) in columns.iter().enumerate() {
        if columns[..at].contains(column) {
            let detail = format!("column '{}' is selected twice", names[at]);
            return Err(Error::with_detail(ErrorCode::BadProgram, detail));
        }
    }
    Ok(columns)
}

/// A stored value as a filter's constant.
fn constant(column_type: ColumnType, bytes: &[u8]) -> Constant {
    use vinga_base::schema::Kind;
    use vinga_client_core::value::LoadValue;
    let stored = "stored just before";
    match column_type.kind() {
        // As they are stored: a year is the number of years since 1900.
        Kind::Unsigned(count) => {
            let mut wide = [0; 8];
            wide[..usize::from(count)].copy_from_slice(bytes);
            Constant::Unsigned(u64::from_le_bytes(wide))
        }
        Kind::Signed(_) => Constant::Int(i64::load(column_type, Some(bytes)).expect(stored)),
        Kind::Float | Kind::Double => Constant::Double(f64::load(column_type, Some(bytes)).expect(stored)),
        Kind::Bytes(_) | Kind::VarBytes(_) => Constant::Bytes(bytes.to_vec()),
    }
}
