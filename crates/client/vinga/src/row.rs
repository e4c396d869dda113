//! Rows as a program has them: records with values by name, or structs of its own.

use crate::table::check_columns;
use std::fmt;
use std::sync::Arc;
use vinga_base::ColumnId;
use vinga_client_core::value::{LoadValue, StoreValue};
use vinga_client_core::{Error, Result, RowBuilder, RowRef, Table, Value};
use vinga_wire::ErrorCode;

/// What a row can be written from: records, lists of names with values, and structs that derive it.
///
/// ```
/// use vinga::WriteRow;
///
/// #[derive(WriteRow)]
/// struct Greeting<'a> {
///     id: u32,
///     text: &'a str,
/// }
///
/// # let node = vinga_datanode::LocalNode::start()?;
/// # let cluster = vinga::blocking::Cluster::connect(node.address())?;
/// # let table = cluster.create_table(vinga::NewTable::new("test.greeting")
/// #     .column("id", vinga::ColumnType::U32)
/// #     .column("text", vinga::ColumnType::varchar(100))
/// #     .primary_key(&["id"]))?;
/// cluster.insert(&table, &Greeting { id: 1, text: "good morning" })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The attributes are those of [`TableRow`].
pub trait WriteRow {
    /// Sets the columns of a row that has just been begun.
    ///
    /// # Errors
    /// `BadRow` with the column's name and what is wrong.
    fn write(&self, writer: &mut RowWriter<'_>) -> Result<()>;
}

/// What a row can be read into: records, and structs that derive it. The attributes are those of [`TableRow`].
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

/// A struct that says what its table is: derived, with [`WriteRow`] and [`ReadRow`] mostly.
///
/// ```
/// use std::time::SystemTime;
/// use vinga::{ColumnType, ReadRow, TableRow, WriteRow};
///
/// #[derive(Debug, PartialEq, WriteRow, ReadRow, TableRow)]
/// #[vinga(table = "shop.order", index(by_customer(customer, at)))]
/// struct Order {
///     #[vinga(key)]
///     id: u64,
///     customer: u32,
///     at: SystemTime,
///     #[vinga(unique, column_type = ColumnType::varchar(20))]
///     number: String,
///     #[vinga(name = "comment")]
///     remark: Option<String>,
///     #[vinga(skip)]
///     seen: bool,
/// }
///
/// # let node = vinga_datanode::LocalNode::start()?;
/// # let cluster = vinga::blocking::Cluster::connect(node.address())?;
/// // The table, which is created if it is not there.
/// let orders = cluster.open_table::<Order>()?;
/// let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000);
/// let order = Order { id: 1, customer: 7, at, number: "A1".into(), remark: None, seen: false };
/// cluster.insert(&orders, &order)?;
/// assert_eq!(cluster.get_by(&orders, "number", "A1")?, Some(order));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// On the struct there are
/// - `table = "database.table"`, which must be there;
/// - `index(name(field, …))`: an ordered index; `unique(name(field, …))`: a unique one;
/// - `crate = path`: where this crate is, if not under its own name.
///
/// On its fields
/// - `key`: a column of the primary key, in the order of the fields; one at least;
/// - `index`, `unique`: an index over this column alone, of the same name;
/// - `name = "column"`: the column's name, if it is another one than the field's;
/// - `column_type = …`: a [`ColumnType`](crate::ColumnType), if not the [usual one](crate::value::ColumnValue) for the
///   field's type;
/// - `skip`: no column; made by `Default` when a row is read.
pub trait TableRow {
    /// The table's name, `database.table`.
    const TABLE: &'static str;

    /// What the table is created as.
    fn new_table() -> crate::NewTable;
}

/// Declares a struct whose fields are columns of the same names, to be written and read as rows: `#[derive(WriteRow,
/// ReadRow)]` before a struct says the same.
///
/// A field is of a type that [fits](crate::value) its column, inside an `Option` if the column may be NULL. Columns of
/// the table that the struct lacks are not read, and are NULL in rows that it inserts.
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
///
/// Structs may have lifetimes and types as parameters. One that borrows can be written, and not be read:
///
/// ```
/// # let node = vinga_datanode::LocalNode::start()?;
/// # let cluster = vinga::blocking::Cluster::connect(node.address())?;
/// # let people = cluster.create_table(vinga::NewTable::new("test.person")
/// #     .column("id", vinga::ColumnType::U64)
/// #     .column("name", vinga::ColumnType::varchar(100))
/// #     .primary_key(&["id"]))?;
/// vinga::row! {
///     struct NewPerson<'a, I> {
///         id: I,
///         name: &'a str,
///     }
/// }
///
/// let line = String::from("7 Ada");
/// let (id, name) = line.split_once(' ').expect("it has a blank");
/// cluster.insert(&people, &NewPerson { id: id.parse::<u32>()?, name })?;
/// assert_eq!(cluster.get(&people, 7u8)?.expect("it was inserted")["name"], "Ada".into());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[macro_export]
macro_rules! row {
    ($($row:tt)*) => {
        #[derive($crate::WriteRow, $crate::ReadRow)]
        #[vinga(crate = $crate)]
        $($row)*
    };
}
