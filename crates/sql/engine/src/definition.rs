//! The server's description of a table, and the definition that the data nodes get from it.
//!
//! ```text
//!   columns:   those of the server that are stored, in its order, under their names
//!              $s<n>  VarBinary: the sort key of the server's column n, if that is in a key and its bytes do not compare
//!                     as its values do; keys name it instead of the column
//!              $key   bigint unsigned: the primary key of a table that has none
//!   indexes:   for each key that is not USING HASH an ordered index of its name, PRIMARY for the primary key, and for
//!              each unique key a unique index of its name
//!   attachment: the rules for native clients (`vinga::sql_rules`), and behind them our own part: u8 length and bytes of the
//!               server's version of the definition, then the frm image; tables of native clients have none
//!               ([`crate::native_tables`])
//! ```

use crate::failure::{Failure, Result};
use crate::server::Collation;
use vinga::sql_rules::{ColumnRules, SqlRules};
use vinga::{
    ColumnDefinition, ColumnId, ColumnType, Direction, ErrorCode, IndexDefinition, IndexKind, OrderColumn,
    TableDefinition,
};
use vinga_base::schema::{COLUMNS_MAX, HIDDEN_KEY, KEY_BYTES_MAX, Kind, SORT_KEY_PREFIX};
use vinga_base::{DefinitionError, Limit};

/// How a column lies in the server's record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The same bytes in record and row.
    Same,
    /// The same bytes, of a floating-point number: but there is one zero in rows, the positive one.
    Float,
    /// In the record in reverse order.
    Reversed,
    /// Behind so many bytes of length.
    Varying(u8),
    /// A length of so many bytes and a pointer.
    Long(u8),
    /// With spaces behind it, which rows do not have.
    Padded,
}

/// A column as the server describes it.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What it is in the data node.
    pub column_type: ColumnType,
    /// How it lies in the record.
    pub form: Form,
    /// Where it begins in the record, with its length.
    pub offset: usize,
    /// Bytes of its value, at most.
    pub bytes: usize,
    /// Where in the record its null bit is: byte and mask; the mask is 0 if it can't be NULL.
    pub null: (usize, u8),
    /// How its values compare.
    pub collation: Collation,
    /// Bytes of a sort key, at most; 0 if its bytes compare as its values do.
    pub sort_bytes: usize,
    /// What clients have to keep to that change rows without SQL.
    pub rules: ColumnRules,
}

/// A column of a key as the server describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyPart {
    /// Its place among the columns.
    pub column: usize,
    /// Bytes of its value in the server's keys.
    pub bytes: usize,
    /// Two bytes of length stand before it there.
    pub has_length: bool,
    /// A byte that says whether it is NULL stands before that.
    pub is_nullable: bool,
    /// Sorted downwards.
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
    /// Whether it is found by value only.
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
    /// Bytes of a record.
    pub record_bytes: usize,
    /// A record with the default of each column.
    pub default_record: Vec<u8>,
    /// The version of the definition, and when the table is made the frm image behind it.
    pub attachment: Vec<u8>,
    /// When the table is made: the options of its database.
    pub database_options: Vec<u8>,
    /// The first value of the auto-increment column; 0 for the usual one.
    pub auto_increment: u64,
    /// Which of the columns that is.
    pub auto_increment_column: Option<usize>,
    /// What its rows were is kept in rows of it.
    pub keeps_history: bool,
    /// Neither logged nor checkpointed.
    pub no_logging: bool,
    /// Backups answer, too.
    pub read_backup: bool,
    /// Number of partitions; 0 for the usual one.
    pub partitions: u32,
}

/// The database of the engine's own tables, which SQL does not see.
pub const OWN_DATABASE: &str = "vinga";

/// The name of the hidden sort key of a column.
pub fn sort_column_name(column: usize) -> String {
    format!("{SORT_KEY_PREFIX}{column}")
}

/// The version part of a table's attachment, and the frm image.
pub fn split_attachment(attachment: &[u8]) -> Option<(&[u8], &[u8])> {
    split_own_part(SqlRules::own_part(attachment)?)
}

/// The version part of what the server adds to an attachment, and the frm image.
pub fn split_own_part(own_part: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = own_part.split_first()?;
    rest.split_at_checked(usize::from(length))
}

impl Description {
    /// The primary key, if it has one.
    pub fn primary_key(&self) -> Option<&Key> {
        self.keys.iter().find(|key| key.is_primary)
    }

    /// Whether a column's sort key is stored.
    pub fn has_sort_column(&self, column: usize) -> bool {
        self.columns[column].sort_bytes > 0
            && self.keys.iter().flat_map(|key| &key.parts).any(|part| part.column == column)
    }

    /// Bytes of the sort column of each column, at most: less than a collation could need if the key would become too
    /// long; values whose sort key is longer are refused one by one.
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

    /// What native clients have to keep to.
    fn rules(&self) -> SqlRules {
        let columns = self.columns.iter().map(|column| column.rules.clone()).collect();
        SqlRules { columns, keeps_history: self.keeps_history }
    }

    /// The indexes for the keys, each with an id of its own.
    fn indexes(&self, columns: &[ColumnDefinition]) -> Vec<IndexDefinition> {
        let mut indexes = Vec::new();
        for key in &self.keys {
            let parts = |ascending_only: bool| {
                key.parts
                    .iter()
                    .map(|part| OrderColumn {
                        column: if self.has_sort_column(part.column) {
                            id_of(&sort_column_name(part.column), columns)
                        } else {
                            ColumnId(part.column as u16)
                        },
                        direction: if part.is_descending && !ascending_only {
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
                add(IndexKind::Ordered, parts(false));
            }
            if key.is_unique && !key.is_primary {
                add(IndexKind::Unique, parts(true));
            }
        }
        indexes
    }

    /// The definition for the data nodes.
    ///
    /// # Errors
    /// What is not supported, or not allowed.
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
            no_logging: self.no_logging,
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

/// Whether a type's values in a key have a length before them.
pub fn is_variable(column_type: ColumnType) -> bool {
    matches!(column_type.kind(), Kind::VarBytes(_))
}
