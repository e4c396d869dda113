//! The server's description of a table, and the definition that the data nodes get from it.
//!
//! ```text
//!   columns:   the server's stored columns, in its order, under their names
//!              $s<n>  VarBinary: the sort key of the server's column n, if that is in a key and its bytes do not
//!                     compare as its values do; keys name it instead of the column
//!              $key   bigint unsigned: the primary key of a table that has none
//!   indexes:   for each key that is not USING HASH an ordered index of its name, PRIMARY for the primary key, and for
//!              each unique key a unique index of its name
//!   attachment: the rules for native clients (`vinga::sql_rules`), and after them our own part: u8 length and bytes of
//!               the server's version of the definition, then the frm image; tables of native clients have none
//!               ([`crate::native_tables`])
//! ```

use crate::failure::{Failure, Result};
use crate::server::Collation;
use vinga::sql_rules::{ColumnRules, SqlRules};
use vinga::{
    ColumnDefinition, ColumnId, ColumnType, Direction, ErrorCode, IndexDefinition, IndexKind, OrderColumn,
    TableDefinition,
};
use vinga_base::schema::{COLUMNS_MAX, Durability, HIDDEN_KEY, KEY_BYTES_MAX, Kind, SORT_KEY_PREFIX};
use vinga_base::{DefinitionError, Limit};

/// How a column is stored in the server's record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The same bytes in record and row.
    Same,
    /// The same bytes, a floating-point number; but rows have only one zero, the positive one.
    Float,
    /// In reverse order in the record.
    Reversed,
    /// After a length of this many bytes.
    Varying(u8),
    /// A length of this many bytes and a pointer.
    Long(u8),
    /// Padded with spaces, which rows do not have.
    Padded,
}

/// A column as the server describes it.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type at the data nodes.
    pub column_type: ColumnType,
    /// How it is stored in the record.
    pub form: Form,
    /// The offset of its value in the record, or of the length in front of it.
    pub offset: usize,
    /// Maximum size of its value in bytes.
    pub bytes: usize,
    /// Position of its null bit in the record: byte and mask; the mask is 0 if it can't be NULL.
    pub null: (usize, u8),
    /// The collation by which its values compare.
    pub collation: Collation,
    /// Maximum size of its sort key in bytes; 0 if its bytes compare as its values do.
    pub sort_bytes: usize,
    /// The rules for clients that change rows without SQL.
    pub rules: ColumnRules,
}

/// A column of a key as the server describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyPart {
    /// Its place among the columns.
    pub column: usize,
    /// Size of its value in the server's keys, in bytes.
    pub bytes: usize,
    /// Two bytes of length stand in front of it there.
    pub has_length: bool,
    /// A byte that tells whether it is NULL stands in front of that.
    pub is_nullable: bool,
    /// Sorted in descending order.
    pub is_descending: bool,
}

/// A key as the server describes it.
#[derive(Clone, PartialEq, Debug)]
pub struct Key {
    /// Its name.
    pub name: String,
    /// Its columns.
    pub parts: Vec<KeyPart>,
    /// Whether it is the primary key.
    pub is_primary: bool,
    /// Whether it is unique.
    pub is_unique: bool,
    /// Whether it can only be searched by equality (`USING HASH`).
    pub is_hash: bool,
}

/// A table as the server describes it.
#[derive(Clone, PartialEq, Debug)]
pub struct Description {
    /// `database.table`.
    pub name: String,
    /// Its stored columns.
    pub columns: Vec<Column>,
    /// Its keys.
    pub keys: Vec<Key>,
    /// Size of a record in bytes.
    pub record_bytes: usize,
    /// A record with the default of each column.
    pub default_record: Vec<u8>,
    /// The version of the definition, followed by the frm image when the table is created.
    pub attachment: Vec<u8>,
    /// When the table is created: the options of its database.
    pub database_options: Vec<u8>,
    /// The first value of the auto-increment column; 0 for the default.
    pub auto_increment: u64,
    /// The place of the auto-increment column.
    pub auto_increment_column: Option<usize>,
    /// Whether earlier versions of its rows are kept as rows (system versioning).
    pub keeps_history: bool,
    /// Its rows are neither logged nor checkpointed.
    pub no_logging: bool,
    /// Commits that change its rows wait for the disk.
    pub is_durable: bool,
    /// Backup replicas answer reads too.
    pub read_backup: bool,
    /// Number of partitions; 0 for the default.
    pub partitions: u32,
}

/// The database of the engine's own tables, which SQL does not show.
pub const OWN_DATABASE: &str = "vinga";

/// The name of the hidden sort key of a column.
pub fn sort_column_name(column: usize) -> String {
    format!("{SORT_KEY_PREFIX}{column}")
}

/// Splits a table's attachment into the version and the frm image.
pub fn split_attachment(attachment: &[u8]) -> Option<(&[u8], &[u8])> {
    split_own_part(SqlRules::own_part(attachment)?)
}

/// Splits the server's own part of an attachment into the version and the frm image.
pub fn split_own_part(own_part: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = own_part.split_first()?;
    rest.split_at_checked(usize::from(length))
}

impl Description {
    /// The primary key, if it has one.
    pub fn primary_key(&self) -> Option<&Key> {
        self.keys.iter().find(|key| key.is_primary)
    }

    /// Whether the sort key of a column is stored.
    pub fn has_sort_column(&self, column: usize) -> bool {
        self.columns[column].sort_bytes > 0
            && self.keys.iter().flat_map(|key| &key.parts).any(|part| part.column == column)
    }

    /// Maximum size in bytes of a column's sort key: less than the collation could need if the key would become too
    /// long otherwise; values with a longer sort key are refused one by one.
    fn sort_bytes(&self, column: usize) -> usize {
        let mut bytes = self.columns[column].sort_bytes;
        for key in &self.keys {
            if !key.parts.iter().any(|part| part.column == column) {
                continue;
            }
            let mut sorted = 0;
            let mut others = 0;
            for part in &key.parts {
                let column = &self.columns[part.column];
                if column.sort_bytes > 0 {
                    sorted += column.sort_bytes;
                    others += 2;
                } else {
                    others += 2 + column.bytes;
                }
            }
            if sorted + others > KEY_BYTES_MAX {
                let room = KEY_BYTES_MAX.saturating_sub(others);
                bytes = bytes.min(self.columns[column].sort_bytes * room / sorted);
            }
        }
        bytes
    }

    /// The rules for native clients.
    fn rules(&self) -> SqlRules {
        let columns = self.columns.iter().map(|column| column.rules.clone()).collect();
        SqlRules { columns, keeps_history: self.keeps_history }
    }

    /// The indexes for the keys, each with its own id.
    fn indexes(&self, columns: &[ColumnDefinition]) -> Vec<IndexDefinition> {
        let mut indexes = Vec::new();
        for key in &self.keys {
            let parts = |kind| {
                key.parts
                    .iter()
                    .map(|part| OrderColumn {
                        column: if self.has_sort_column(part.column) {
                            id_of(&sort_column_name(part.column), columns)
                        } else {
                            ColumnId(part.column as u16)
                        },
                        direction: if part.is_descending && kind == IndexKind::Ordered {
                            Direction::Descending
                        } else {
                            Direction::Ascending
                        },
                    })
                    .collect()
            };
            let mut add = |kind, columns| {
                let id = indexes.len() as u16 + 1;
                indexes.push(IndexDefinition { id, name: key.name.clone(), columns, kind });
            };
            if !key.is_hash {
                add(IndexKind::Ordered, parts(IndexKind::Ordered));
            }
            if key.is_unique && !key.is_primary {
                add(IndexKind::Unique, parts(IndexKind::Unique));
            }
        }
        indexes
    }

    fn durability(&self) -> Result<Durability> {
        match (self.no_logging, self.is_durable) {
            (false, false) => Ok(Durability::Memory),
            (true, false) => Ok(Durability::NotLogged),
            (false, true) => Ok(Durability::Disk),
            (true, true) => Err(Failure::new(
                ErrorCode::BadTableDefinition as i32,
                "a table with NOLOGGING=1 can't have DURABILITY=disk: nothing of it is on disk".to_owned(),
            )),
        }
    }

    /// The definition for the data nodes.
    ///
    /// # Errors
    /// If something is not supported, or not allowed.
    pub fn to_definition(&self) -> Result<TableDefinition> {
        let bad = |text: String| Failure::new(ErrorCode::BadTableDefinition as i32, text);
        let mut columns = Vec::new();
        for column in &self.columns {
            columns.push(ColumnDefinition {
                name: column.name.clone(),
                column_type: column.column_type,
                nullable: column.null.1 != 0,
            });
        }
        for (place, column) in self.columns.iter().enumerate() {
            if self.has_sort_column(place) {
                columns.push(ColumnDefinition {
                    name: sort_column_name(place),
                    column_type: ColumnType::VarBinary { bytes_max: self.sort_bytes(place) as u16 },
                    nullable: column.null.1 != 0,
                });
            }
        }
        let primary_key = match self.primary_key() {
            Some(key) => key
                .parts
                .iter()
                .map(|part| {
                    if self.has_sort_column(part.column) {
                        id_of(&sort_column_name(part.column), &columns)
                    } else {
                        ColumnId(part.column as u16)
                    }
                })
                .collect(),
            None => {
                columns.push(ColumnDefinition {
                    name: HIDDEN_KEY.into(),
                    column_type: ColumnType::Integer { bytes: 8, signed: false },
                    nullable: false,
                });
                vec![id_of(HIDDEN_KEY, &columns)]
            }
        };
        let indexes = self.indexes(&columns);
        if columns.len() > COLUMNS_MAX {
            let text = format!("{} columns; {COLUMNS_MAX} are allowed", columns.len());
            return Err(Failure::of_definition(DefinitionError::of(Limit::Columns, text)));
        }
        let definition = TableDefinition {
            name: self.name.clone(),
            columns,
            primary_key,
            durability: self.durability()?,
            read_backup: self.read_backup,
            partitions: u16::try_from(self.partitions).map_err(|_| {
                bad(format!("{} partitions; a table has at most {}", self.partitions, u16::MAX))
            })?,
            indexes,
            attachment: self.rules().attachment(&self.attachment),
        };
        definition.check().map_err(Failure::of_definition)?;
        Ok(definition)
    }
}

fn id_of(name: &str, columns: &[ColumnDefinition]) -> ColumnId {
    let at = columns.iter().position(|column| column.name == name).expect("it was put there just before");
    ColumnId(at as u16)
}

/// Whether the values of a type have a length in front of them in a key.
pub fn is_variable(column_type: ColumnType) -> bool {
    matches!(column_type.kind(), Kind::VarBytes(_))
}
