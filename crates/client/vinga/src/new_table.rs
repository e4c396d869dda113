//! Definitions of tables: put together for a new table, or made from those of a table that is to be changed.

use vinga_base::order_key::{Direction, OrderColumn};
use vinga_base::schema::{
    ColumnDefinition, ColumnType, Durability, IndexDefinition, IndexKind, TableDefinition,
};
use vinga_client_core::{Error, Result};
use vinga_wire::ErrorCode;

/// Builds a [`TableDefinition`].
///
/// ```
/// use vinga::{ColumnType, NewTable};
///
/// let definition = NewTable::new("test.person")
///     .column("id", ColumnType::U64)
///     .column("name", ColumnType::varchar(100))
///     .nullable_column("born", ColumnType::Date)
///     .primary_key(&["id"]);
/// ```
///
/// A table that there is gets another definition from its own:
///
/// ```
/// # use vinga::{ColumnType, IndexKind, NewTable};
/// # let node = vinga_datanode::LocalNode::start()?;
/// # let cluster = vinga::blocking::Cluster::connect(node.address())?;
/// # cluster.create_table(NewTable::new("test.person")
/// #     .column("id", ColumnType::U64)
/// #     .nullable_column("born", ColumnType::Date)
/// #     .primary_key(&["id"])
/// #     .ordered_index("by_age", &["born"]))?;
/// let people = cluster.table("test.person")?;
/// let mut definition = NewTable::from(people.definition().clone()).ordered_index("by_birthday", &["born"]);
/// definition.drop_index(IndexKind::Ordered, "by_age")?;
/// let people = cluster.alter_table(&people, definition)?;
/// assert_eq!(people.definition().indexes[0].name, "by_birthday");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct NewTable {
    definition: TableDefinition,
    /// By name; empty if that of the definition holds.
    primary_key: Vec<String>,
    /// Those that have no ids yet.
    indexes: Vec<NewIndex>,
    /// The id of the first of them: above all that the table had when this was begun.
    first_id: u32,
    /// A name that was given to a column and is not for users.
    reserved: Option<String>,
    /// It was made both durable and one that is not logged.
    contradicts: bool,
}

#[derive(Clone, Debug)]
struct NewIndex {
    name: String,
    columns: Vec<(String, Direction)>,
    kind: IndexKind,
}

impl NewTable {
    /// A table of this name, `database.table`, without columns.
    pub fn new(name: impl Into<String>) -> Self {
        NewTable {
            definition: TableDefinition {
                name: name.into(),
                columns: Vec::new(),
                primary_key: Vec::new(),
                ..TableDefinition::default()
            },
            primary_key: Vec::new(),
            indexes: Vec::new(),
            first_id: 1,
            reserved: None,
            contradicts: false,
        }
    }

    /// Another name, `database.table`.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.definition.name = name.into();
        self
    }

    fn add(mut self, name: &str, column_type: ColumnType, nullable: bool) -> Self {
        let column = ColumnDefinition { name: name.into(), column_type, nullable };
        self.note_name(&column);
        self.definition.columns.push(column);
        self
    }

    fn note_name(&mut self, column: &ColumnDefinition) {
        if column.is_hidden() {
            self.reserved.get_or_insert_with(|| column.name.clone());
        }
    }

    /// Adds a column that always has a value.
    #[must_use]
    pub fn column(self, name: &str, column_type: ColumnType) -> Self {
        self.add(name, column_type, false)
    }

    /// Adds a column that may be NULL.
    #[must_use]
    pub fn nullable_column(self, name: &str, column_type: ColumnType) -> Self {
        self.add(name, column_type, true)
    }

    /// Sets the primary key's columns, in the key's order.
    #[must_use]
    pub fn primary_key(mut self, columns: &[&str]) -> Self {
        self.primary_key = columns.iter().map(|&name| name.into()).collect();
        self
    }

    /// Adds an index by which rows are found in the order of these columns: for ranges ([`crate::ScanRequest::index`]).
    #[must_use]
    pub fn ordered_index(self, name: &str, columns: &[&str]) -> Self {
        let columns: Vec<_> = columns.iter().map(|&column| (column, Direction::Ascending)).collect();
        self.ordered_index_by(name, &columns)
    }

    /// As [`NewTable::ordered_index`], each column with its direction.
    #[must_use]
    pub fn ordered_index_by(mut self, name: &str, columns: &[(&str, Direction)]) -> Self {
        let columns = columns.iter().map(|&(column, direction)| (column.into(), direction)).collect();
        self.indexes.push(NewIndex { name: name.into(), columns, kind: IndexKind::Ordered });
        self
    }

    /// Adds an index that allows at most one row for each combination of values of these columns, and finds it by them
    /// ([`crate::Cluster::get_by`]). Rows with a NULL among them are not in it.
    #[must_use]
    pub fn unique_index(mut self, name: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&column| (column.into(), Direction::Ascending)).collect();
        self.indexes.push(NewIndex { name: name.into(), columns, kind: IndexKind::Unique });
        self
    }

    /// Its rows are neither logged nor checkpointed: after a restart of the cluster it is empty.
    ///
    /// A table can't be both this and [`NewTable::durable`].
    #[must_use]
    pub fn no_logging(self) -> Self {
        self.kept(Durability::NotLogged)
    }

    /// Whoever changes a row of it is answered when that is on disk, as if [`crate::Transaction::set_durable`] had been
    /// called.
    ///
    /// A table can't be both this and [`NewTable::no_logging`]; without a disk (`Diskless`) it is refused.
    #[must_use]
    pub fn durable(self) -> Self {
        self.kept(Durability::Disk)
    }

    fn kept(mut self, durability: Durability) -> Self {
        let before = std::mem::replace(&mut self.definition.durability, durability);
        self.contradicts |= before != Durability::Memory && before != durability;
        self
    }

    /// Backups answer committed reads by key, too: each client asks the nearest replica of a row, one that shares
    /// memory with it or else one by its node id. A commit that changes the table is answered when all replicas show
    /// it. Until then one of them may show it before another does. Scans, locking reads and the reads of transactions
    /// go to the primary.
    #[must_use]
    pub fn read_backup(mut self) -> Self {
        self.definition.read_backup = true;
        self
    }

    /// Its rows lie in so many of the cluster's partitions; 0 for the usual number (`PartitionsPerNode` for each data
    /// node). More let more threads work on it, fewer make scans of short ranges cheaper.
    #[must_use]
    pub fn partitions(mut self, count: u16) -> Self {
        self.definition.partitions = count;
        self
    }

    /// Bytes that are kept with the definition for whoever knows what they mean.
    #[must_use]
    pub fn attachment(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.definition.attachment = bytes.into();
        self
    }

    /// Takes an index out.
    ///
    /// # Errors
    /// `BadTableDefinition` if there is none of that kind and name.
    pub fn drop_index(&mut self, kind: IndexKind, name: &str) -> Result<()> {
        let is_it = |other: IndexKind, index: &str| other == kind && index.eq_ignore_ascii_case(name);
        let (known, new) = (&mut self.definition.indexes, &mut self.indexes);
        let before = known.len() + new.len();
        known.retain(|index| !is_it(index.kind, &index.name));
        new.retain(|index| !is_it(index.kind, &index.name));
        if known.len() + new.len() == before {
            return Err(bad(format!("there is no index '{name}' of this kind to be dropped")));
        }
        Ok(())
    }

    /// Gives a column another name, here and wherever it has been named.
    ///
    /// # Errors
    /// `BadTableDefinition` if there is no such column.
    pub fn rename_column(&mut self, name: &str, new_name: &str) -> Result<()> {
        let Some(id) = self.definition.column(name) else {
            return Err(bad(format!("there is no column '{name}' to be renamed")));
        };
        let mut column = self.definition.columns[usize::from(id.0)].clone();
        column.name = new_name.into();
        self.note_name(&column);
        self.definition.columns[usize::from(id.0)] = column;
        let of_indexes =
            self.indexes.iter_mut().flat_map(|index| &mut index.columns).map(|(column, _)| column);
        for named in self.primary_key.iter_mut().chain(of_indexes) {
            if named.eq_ignore_ascii_case(name) {
                *named = new_name.into();
            }
        }
        Ok(())
    }

    /// The definition, checked.
    ///
    /// # Errors
    /// `BadTableDefinition` with what is wrong.
    pub fn finish(self) -> Result<TableDefinition> {
        if let Some(name) = self.reserved {
            return Err(bad(format!("column '{name}': names that begin with $ are reserved")));
        }
        if self.contradicts {
            return Err(bad("a table that is not logged can't be durable: nothing of it is on disk".into()));
        }
        let mut definition = self.definition;
        if !self.primary_key.is_empty() {
            definition.primary_key.clear();
        }
        for name in &self.primary_key {
            let id = definition.column(name);
            definition
                .primary_key
                .push(id.ok_or_else(|| bad(format!("the primary key names '{name}', which is no column")))?);
        }
        for (id, index) in (self.first_id..).zip(self.indexes) {
            let column = |(column, direction): (String, Direction)| {
                let id = definition.column(&column);
                let id = id.ok_or_else(|| {
                    bad(format!("index '{}' names '{column}', which is no column", index.name))
                })?;
                Ok(OrderColumn { column: id, direction })
            };
            let columns = index.columns.into_iter().map(column).collect::<Result<_>>()?;
            let id = u16::try_from(id).map_err(|_| {
                bad(format!("no id is left for index '{}': the table had too many", index.name))
            })?;
            definition.indexes.push(IndexDefinition { id, name: index.name, columns, kind: index.kind });
        }
        definition.check().map_err(|error| bad(error.text))?;
        Ok(definition)
    }
}

impl From<TableDefinition> for NewTable {
    /// The definition of a table that is to be changed: what is not said again stays.
    fn from(definition: TableDefinition) -> Self {
        let first_id = definition.indexes.last().map_or(1, |index| u32::from(index.id) + 1);
        NewTable {
            definition,
            primary_key: Vec::new(),
            indexes: Vec::new(),
            first_id,
            reserved: None,
            contradicts: false,
        }
    }
}

#[cold]
fn bad(detail: String) -> Error {
    Error::with_detail(ErrorCode::BadTableDefinition, detail)
}

/// What a table can be created from.
pub trait IntoDefinition {
    /// The definition, checked.
    ///
    /// # Errors
    /// `BadTableDefinition` with what is wrong.
    fn into_definition(self) -> Result<TableDefinition>;
}

impl IntoDefinition for NewTable {
    fn into_definition(self) -> Result<TableDefinition> {
        self.finish()
    }
}

impl IntoDefinition for TableDefinition {
    fn into_definition(self) -> Result<TableDefinition> {
        self.check().map_err(|error| bad(error.text))?;
        Ok(self)
    }
}
