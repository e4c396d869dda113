//! Converts records and keys of the server to rows and keys of the data nodes, and back: prepared once for each open
//! table, so that the conversion is only copying.

mod keys;
mod numbers;
mod projection;
mod records;

pub use projection::{PrimaryKey, Projection};
pub use records::ChangedColumn;

use crate::definition::{Column, Description, Form, Key, KeyPart, is_variable, sort_column_name};
use crate::failure::{Failure, Result, ha};
use crate::native_tables;
use crate::server::Collation;
use std::ops::Bound;
use vinga::{ColumnId, ErrorCode, IndexKind, OrderKey, TableDefinition};
use vinga_base::row_layout::{ColumnLayout, Place, RowLayout};
use vinga_base::schema::HIDDEN_KEY;

/// One column.
#[derive(Clone, Debug)]
struct Step {
    name: String,
    id: ColumnId,
    layout: ColumnLayout,
    form: Form,
    offset: usize,
    bytes: usize,
    /// Maximum size of a value in rows, in bytes: a table that a native client has created may have less room than the
    /// server assumes.
    room: usize,
    null: (usize, u8),
}

impl Step {
    /// Checks that rows have room for a value.
    fn check(&self, value: &[u8]) -> Result<()> {
        if value.len() <= self.room {
            return Ok(());
        }
        Err(Failure::new(
            ErrorCode::BadRow as i32,
            format!(
                "a value of {} bytes for column '{}', which has up to {}",
                value.len(),
                self.name,
                self.room
            ),
        ))
    }
}

/// The source of a variable column's bytes.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// A column of the server, by its place.
    Column(usize),
    /// The sort key of a column.
    SortKey { column: usize, bytes: usize },
}

/// One column of a key.
#[derive(Clone, Copy, Debug)]
struct KeyStep {
    column: usize,
    /// Size in the server's keys, in bytes.
    bytes: usize,
    /// Maximum size in rows, in bytes.
    room: usize,
    has_length: bool,
    is_nullable: bool,
    /// Maximum size of the sort key that stands for it.
    sort_bytes: Option<usize>,
    form: Form,
    is_variable: bool,
    is_descending: bool,
}

/// One key of the server.
#[derive(Debug)]
struct KeyPlan {
    /// The name of the key and of its indexes.
    name: String,
    /// Its columns at the data nodes: sort keys for texts.
    columns: Vec<ColumnId>,
    steps: Vec<KeyStep>,
    /// How keys of the ordered index are encoded. `None` for `USING HASH`.
    ordered: Option<OrderKey>,
    /// The unique index of the key, if it is not the primary key.
    unique: Option<u16>,
    is_unique: bool,
}

/// An end of a range in the server's form: the bytes of a key or of its first columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End<'a> {
    /// No end.
    Open,
    /// Keys with this prefix belong to the range.
    Included(&'a [u8]),
    /// Keys with this prefix do not belong to the range.
    Excluded(&'a [u8]),
}

/// Whether the range contains the keys that begin with its end.
#[derive(Clone, Copy, Debug)]
enum Belongs {
    Included,
    Excluded,
    /// The range has no end here.
    Everything,
}

impl Belongs {
    fn bound(self, key: &[u8]) -> Bound<&[u8]> {
        match self {
            Belongs::Included => Bound::Included(key),
            Belongs::Excluded => Bound::Excluded(key),
            Belongs::Everything => Bound::Unbounded,
        }
    }
}

/// Result of taking a value off a key of the server.
enum Taken {
    Null,
    Whole,
    /// Only the beginning of the value: it is longer than any in the index.
    Cut,
}

/// For each column of the server: the column of its sort key, and the maximum size of that.
type SortKeys = Vec<Option<(ColumnId, usize)>>;

/// The plan of a table: how its records and keys are converted.
#[derive(Debug)]
pub struct Plan {
    layout: RowLayout,
    steps: Vec<Step>,
    /// The sources of the variable columns, in their order in a row.
    variable: Vec<Source>,
    /// For each column of the server: the column of its sort key, and the maximum size of that.
    sort_keys: SortKeys,
    key: Vec<KeyStep>,
    keys: Vec<KeyPlan>,
    primary: usize,
    collations: Vec<Collation>,
    hidden_key: Option<usize>,
    /// The auto-increment column.
    number: Option<numbers::Number>,
    record_bytes: usize,
    /// The bytes of NULL values: the server compares whole records.
    default_record: Vec<u8>,
    key_bytes_max: usize,
}

/// The server's and the data nodes' definition of a table, which are compared column by column.
#[derive(Clone, Copy)]
struct Shapes<'a> {
    description: &'a Description,
    definition: &'a TableDefinition,
    layout: &'a RowLayout,
}

/// The definitions differ.
fn changed() -> Failure {
    Failure::new(ha::TABLE_DEF_CHANGED, "the table has another definition at the data nodes")
}

impl Shapes<'_> {
    /// The data nodes' column with a name.
    fn find(&self, name: &str) -> Result<ColumnId> {
        let at = self.definition.columns.iter().position(|column| column.name == name).ok_or_else(changed)?;
        Ok(ColumnId(at as u16))
    }

    /// The columns of the server.
    fn steps(&self) -> Result<Vec<Step>> {
        let is_native = native_tables::is_native(self.definition);
        let step = |column: &Column| {
            let id = self.find(&column.name)?;
            let found = &self.definition.columns[usize::from(id.0)];
            let is_same =
                found.column_type == column.column_type || (is_native && are_both_variable(found, column));
            if !is_same || found.nullable != (column.null.1 != 0) {
                return Err(changed());
            }
            // The size of a long value is limited by the row.
            let room = if found.column_type.is_long() { usize::MAX } else { room_of(self.definition, id) };
            let layout = *self.layout.column(id).ok_or_else(changed)?;
            let Column { form, offset, bytes, null, .. } = *column;
            Ok(Step { name: column.name.clone(), id, layout, form, offset, bytes, room, null })
        };
        self.description.columns.iter().map(step).collect()
    }

    /// The sources of the variable columns, and for each column of the server its sort key.
    fn variable(&self) -> Result<(Vec<Source>, SortKeys)> {
        let columns = &self.description.columns;
        let mut sort_keys = vec![None; columns.len()];
        let mut sources = Vec::new();
        for id in self.layout.variable() {
            let name = &self.definition.columns[usize::from(id.0)].name;
            let source = match columns.iter().position(|column| column.name == *name) {
                Some(column) => Source::Column(column),
                None => {
                    let is_its = |&column: &usize| sort_column_name(column) == *name;
                    let column = (0..columns.len()).find(is_its).ok_or_else(changed)?;
                    let bytes = room_of(self.definition, *id);
                    sort_keys[column] = Some((*id, bytes));
                    Source::SortKey { column, bytes }
                }
            };
            sources.push(source);
        }
        Ok((sources, sort_keys))
    }

    /// A key of the server.
    fn key(&self, server_key: &Key) -> Result<KeyPlan> {
        let find_index = |kind: IndexKind| {
            let indexes = &self.definition.indexes;
            indexes.iter().find(|index| index.kind == kind && index.name == server_key.name)
        };
        let ordered = find_index(IndexKind::Ordered);
        let unique = find_index(IndexKind::Unique);
        let ids: Vec<ColumnId> = match (server_key.is_primary, ordered.or(unique)) {
            (true, _) => self.definition.primary_key.clone(),
            (false, Some(index)) => index.column_ids().collect(),
            (false, None) => return Err(changed()),
        };
        if ids.len() != server_key.parts.len() {
            return Err(changed());
        }
        let ordered = match ordered {
            Some(index) => Some(OrderKey::new(self.layout, &index.columns).ok_or_else(changed)?),
            None => None,
        };
        Ok(KeyPlan {
            name: server_key.name.clone(),
            steps: server_key.parts.iter().zip(&ids).map(|(part, id)| self.key_step(part, *id)).collect(),
            columns: ids,
            ordered,
            unique: unique.map(|index| index.id),
            is_unique: server_key.is_unique,
        })
    }

    fn key_step(&self, part: &KeyPart, id: ColumnId) -> KeyStep {
        let column = &self.description.columns[part.column];
        let is_sorted = self.definition.columns[usize::from(id.0)].name != column.name;
        let room = room_of(self.definition, id);
        KeyStep {
            column: part.column,
            bytes: part.bytes,
            room,
            has_length: part.has_length,
            is_nullable: part.is_nullable,
            sort_bytes: is_sorted.then_some(room),
            form: column.form,
            is_variable: matches!(column.form, Form::Varying(_) | Form::Long(_) | Form::Padded),
            is_descending: part.is_descending,
        }
    }
}

impl Plan {
    /// The plan for a table.
    ///
    /// # Errors
    /// `TABLE_DEF_CHANGED` if the server's table and that of the data nodes differ.
    pub fn new(description: &Description, definition: &TableDefinition, layout: &RowLayout) -> Result<Self> {
        let shapes = Shapes { description, definition, layout };
        let steps = shapes.steps()?;
        let (variable, sort_keys) = shapes.variable()?;
        let keys: Vec<KeyPlan> = description.keys.iter().map(|key| shapes.key(key)).collect::<Result<_>>()?;
        let mut hidden_key = None;
        let primary = description.keys.iter().position(|key| key.is_primary);
        let key = match primary {
            Some(primary) => keys[primary].steps.clone(),
            None => {
                let Place::Fixed { offset, .. } =
                    layout.column(shapes.find(HIDDEN_KEY)?).ok_or_else(changed)?.place
                else {
                    return Err(changed());
                };
                hidden_key = Some(usize::from(offset));
                Vec::new()
            }
        };
        let number = description.auto_increment_column.and_then(|place| {
            let step: &Step = steps.get(place)?;
            numbers::Number::new(place, step, definition.columns[usize::from(step.id.0)].column_type)
        });
        let key_bytes_max = definition
            .primary_key
            .iter()
            .map(|id| {
                let kind = definition.columns[usize::from(id.0)].column_type.kind();
                kind.fixed_bytes().map_or_else(|| 2 + room_of(definition, *id), usize::from)
            })
            .sum();
        Ok(Plan {
            layout: layout.clone(),
            steps,
            variable,
            sort_keys,
            key,
            keys,
            primary: primary.unwrap_or(usize::MAX),
            collations: description.columns.iter().map(|column| column.collation).collect(),
            hidden_key,
            number,
            record_bytes: description.record_bytes,
            default_record: description.default_record.clone(),
            key_bytes_max,
        })
    }

    /// Size of a record in bytes.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Maximum size of an encoded primary key in bytes.
    pub fn key_bytes_max(&self) -> usize {
        self.key_bytes_max
    }

    /// The name of the unique index of a key; `None` for the primary key and for keys that are not unique.
    pub fn unique_index(&self, key: usize) -> Option<&str> {
        let key = self.keys.get(key)?;
        key.unique.map(|_| key.name.as_str())
    }

    /// Whether a change of a row can fail because of other rows, even if no one else can change that row.
    pub fn has_unique_index(&self) -> bool {
        self.keys.iter().any(|key| key.unique.is_some())
    }

    /// Whether all primary keys have the same length.
    pub fn has_fixed_key(&self) -> bool {
        self.layout.key_bytes().is_some()
    }

    /// Whether the table has only a hidden primary key.
    pub fn has_hidden_key(&self) -> bool {
        self.hidden_key.is_some()
    }

    /// The layout of rows.
    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// The places of all the server's columns.
    pub fn places(&self) -> Vec<u16> {
        (0..self.steps.len() as u16).collect()
    }

    /// The column of a row for the server's column at this place.
    pub fn column(&self, place: usize) -> Option<ColumnId> {
        self.steps.get(place).map(|step| step.id)
    }

    /// Whether a column of the server can be NULL.
    pub fn is_nullable(&self, place: u16) -> bool {
        self.steps[usize::from(place)].null.1 != 0
    }

    /// Whether a column is NULL in a record.
    pub fn is_null(&self, place: u16, record: &[u8]) -> bool {
        let (byte, mask) = self.steps[usize::from(place)].null;
        record[byte] & mask != 0
    }

    /// The column of a row with the sort key of the server's column; `None` if that is in no key, or if its bytes
    /// compare as its values do.
    pub fn sort_column(&self, place: usize) -> Option<ColumnId> {
        self.sort_source(place).map(|(id, _)| id)
    }

    /// The column with the sort key of the server's column, and the maximum size of a sort key in it.
    fn sort_source(&self, place: usize) -> Option<(ColumnId, usize)> {
        let columns = self.layout.variable().iter().zip(&self.variable);
        columns.into_iter().find_map(|(&id, source)| match *source {
            Source::SortKey { column, bytes } if column == place => Some((id, bytes)),
            Source::SortKey { .. } | Source::Column(_) => None,
        })
    }

    /// The number of the primary key among the server's keys.
    pub fn primary(&self) -> usize {
        self.primary
    }

    /// The server's key that belongs to a unique index of the data nodes.
    pub fn key_of_index(&self, index: u16) -> Option<usize> {
        self.keys.iter().position(|key| key.unique == Some(index))
    }

    /// Whether a column is in a unique index, so that changes of it may fail.
    pub fn is_unique_column(&self, id: ColumnId, definition: &TableDefinition) -> bool {
        let of_unique = |index: &&vinga::IndexDefinition| index.kind == IndexKind::Unique;
        definition.indexes.iter().filter(of_unique).any(|index| index.column_ids().any(|column| column == id))
    }

    /// The ordered index of a key; `None` if there is none.
    pub fn ordered_index(&self, key: usize) -> Option<&str> {
        let key = self.keys.get(key)?;
        key.ordered.as_ref().map(|_| key.name.as_str())
    }

    /// The ordered indexes: the number of the server's key, and the index's name.
    pub fn ordered_indexes(&self) -> impl Iterator<Item = (usize, &str)> {
        let named = |(at, key): (usize, &'_ KeyPlan)| key.ordered.is_some().then_some(at);
        let places: Vec<usize> = self.keys.iter().enumerate().filter_map(named).collect();
        places.into_iter().filter_map(|at| Some((at, self.ordered_index(at)?)))
    }
}

/// Whether both are of variable size: a native client's text may have another type in SQL.
fn are_both_variable(found: &vinga::ColumnDefinition, column: &Column) -> bool {
    is_variable(found.column_type) && is_variable(column.column_type)
}

/// Maximum size of a value of a column in bytes.
fn room_of(definition: &TableDefinition, id: ColumnId) -> usize {
    match definition.columns[usize::from(id.0)].column_type.kind() {
        vinga_base::schema::Kind::VarBytes(max) => usize::from(max),
        fixed => usize::from(fixed.fixed_bytes().expect("only VarBytes is variable")),
    }
}

#[cfg(test)]
pub mod tests {
    //! Plans of small tables, for unit tests.

    use super::*;
    use crate::definition::{Description, Key, KeyPart};
    use vinga::ColumnType;

    /// `id INT PRIMARY KEY, v INT NULL`, after a byte of null bits in the record.
    pub fn two_columns() -> Plan {
        let column = |name: &str, offset, mask| Column {
            name: name.into(),
            column_type: ColumnType::Integer { bytes: 4, signed: true },
            form: Form::Same,
            offset,
            bytes: 4,
            null: (0, mask),
            collation: Collation(std::ptr::null()),
            sort_bytes: 0,
            rules: Default::default(),
        };
        let part =
            KeyPart { column: 0, bytes: 4, has_length: false, is_nullable: false, is_descending: false };
        let description = Description {
            name: "test.t".into(),
            columns: vec![column("id", 1, 0), column("v", 5, 1)],
            keys: vec![Key {
                name: "PRIMARY".into(),
                parts: vec![part],
                is_primary: true,
                is_unique: true,
                is_hash: false,
            }],
            record_bytes: 9,
            default_record: vec![0; 9],
            attachment: Vec::new(),
            database_options: Vec::new(),
            auto_increment: 0,
            auto_increment_column: None,
            keeps_history: false,
            no_logging: false,
            is_durable: false,
            read_backup: false,
            partitions: 0,
        };
        let definition = description.to_definition().expect("it is allowed");
        Plan::new(&description, &definition, &RowLayout::new(&definition)).expect("it fits the description")
    }

    #[test]
    fn a_projection_leaves_other_columns_as_they_are() {
        let plan = two_columns();
        let (id, v) = (7i32.to_le_bytes(), (-2i32).to_le_bytes());
        let mut image = Vec::new();
        plan.layout().build_image(&[Some(&id), Some(&v)], &mut image).expect("it fits");
        let whole = Projection::new(&plan, &[0, 1], None, PrimaryKey::Included, 1);
        let mut record = vec![0xff; 9];
        whole.read(&plan, &image, &mut record).expect("it is a row");
        assert_eq!(record, [&[0xfe][..], &id, &v].concat());
        assert_eq!(*whole.key_of(&plan, &image).expect("it has a key"), id);

        // The key comes first, and is always included.
        let key_only = Projection::new(&plan, &[], None, PrimaryKey::Included, 1);
        let row = [&[0][..], &id].concat();
        let mut record = vec![0xff; 9];
        key_only.read(&plan, &row, &mut record).expect("it is a row");
        assert_eq!(record, [&[0xff][..], &id, &[0xff; 4]].concat());
        assert_eq!(*key_only.key_of(&plan, &row).expect("it has a key"), id);
        assert!(key_only.covers(&[]) && !key_only.covers(&[1]));
        for bad in [&[][..], &[0, 1, 2], &[1, 7, 0, 0, 0], &[0, 7, 0, 0, 0, 0]] {
            assert!(key_only.read(&plan, bad, &mut record).is_err());
        }
    }
}
