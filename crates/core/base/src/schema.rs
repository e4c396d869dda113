//! Table definitions: columns, types, primary key, options, and the limits of each.
//!
//! A definition is checked once, where it is received ([`TableDefinition::check`]); code that holds a checked one may
//! rely on every limit below. The data node handles only bytes, numbers and order by `memcmp`, no collation and no
//! calendar: for it each type is one of the few physical kinds of [`Kind`].

use crate::definition_error::{DefinitionError, Limit};
use crate::ids::ColumnId;
use crate::order_key::{Direction, OrderColumn};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Characters of a table's, column's or database's name, at most (MySQL's limit).
pub const NAME_CHARS_MAX: usize = 64;
/// Columns of a table, at most.
pub const COLUMNS_MAX: usize = 512;
/// Columns of a primary key, at most.
pub const KEY_COLUMNS_MAX: usize = 32;
/// Bytes of an encoded primary key, at most.
pub const KEY_BYTES_MAX: usize = 3072;
/// Bytes of a row without its header, at most.
pub const ROW_BYTES_MAX: usize = 30_000;
/// Indexes of a table, at most: two for each of MySQL's 64 keys, because a unique key has a unique and an ordered
/// index.
pub const INDEXES_MAX: usize = 128;
/// Unique indexes among them, at most: the changes of hidden tables that follow from one row's change are counted in a
/// byte.
pub const UNIQUE_INDEXES_MAX: usize = 64;
/// Digits of a decimal after the point, at most (MariaDB's limit; MySQL's is 30).
pub const DECIMAL_SCALE_MAX: u8 = 38;
/// Bytes of [`TableDefinition::attachment`], at most.
pub const ATTACHMENT_BYTES_MAX: usize = 60_000;

/// The name of the hidden primary key of a SQL table that was declared without one.
pub const HIDDEN_KEY: &str = "$key";
/// Prefix of the name of a hidden column that holds another column's sort key; that column's number follows.
pub const SORT_KEY_PREFIX: &str = "$s";

/// A column's type as the user declared it.
///
/// In a row, integers, `Bit` and `Year` are little-endian numbers; all other fixed types are bytes whose `memcmp` order
/// is the order of their values; the client encodes and decodes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ColumnType {
    /// Integer of 1, 2, 3, 4 or 8 bytes.
    Integer {
        /// 1, 2, 3, 4 or 8.
        bytes: u8,
        /// Two's complement if true.
        signed: bool,
    },
    /// IEEE 754 single.
    Float,
    /// IEEE 754 double.
    Double,
    /// Fixed-point number, in MySQL's sortable binary form (9 decimal digits in 4 bytes, sign bit inverted).
    Decimal {
        /// Total number of digits, 1–65.
        precision: u8,
        /// Digits after the point, 0 to [`DECIMAL_SCALE_MAX`], at most `precision`.
        scale: u8,
    },
    /// Bit field, stored as an unsigned number.
    Bit {
        /// 1–64.
        bits: u8,
    },
    /// Day: 3 bytes, big-endian, `year << 9 | month << 5 | day`.
    Date,
    /// Time span from −838:59:59 to 838:59:59; MySQL's `TIME2` form.
    Time {
        /// Digits of a second's fraction, 0–6.
        fraction: u8,
    },
    /// Day and time; MySQL's `DATETIME2` form.
    DateTime {
        /// Digits of a second's fraction, 0–6.
        fraction: u8,
    },
    /// Seconds since 1970 in UTC, big-endian, and a fraction; MySQL's `TIMESTAMP2` form.
    Timestamp {
        /// Digits of a second's fraction, 0–6.
        fraction: u8,
    },
    /// Year, one byte: 0 or year − 1900.
    Year,
    /// Text of fixed size, padded with spaces.
    Char {
        /// Bytes, 0–1020.
        bytes: u16,
    },
    /// Bytes of fixed size, padded with zeros.
    Binary {
        /// Bytes, 0–1020.
        bytes: u16,
    },
    /// Text of variable size.
    VarChar {
        /// Greatest length in bytes.
        bytes_max: u16,
    },
    /// Bytes of variable size.
    VarBinary {
        /// Greatest length in bytes.
        bytes_max: u16,
    },
    /// Text limited only by the room in its row. Never in a key; values that don't fit are refused one by one.
    Text,
    /// Bytes limited only by the room in their row. Never in a key; values that don't fit are refused one by one.
    Blob,
}

/// The physical form of a type, which is all that a data node knows of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Two's complement, little-endian, of 1, 2, 3, 4 or 8 bytes.
    Signed(u8),
    /// Little-endian, of 1–8 bytes.
    Unsigned(u8),
    /// IEEE 754 single.
    Float,
    /// IEEE 754 double.
    Double,
    /// This many bytes, ordered by `memcmp`.
    Bytes(u16),
    /// At most this many bytes, ordered by `memcmp`, then by length.
    VarBytes(u16),
}

impl Kind {
    /// Bytes in the fixed part of a row; `None` for a variable one.
    pub fn fixed_bytes(self) -> Option<u16> {
        match self {
            Kind::Signed(n) | Kind::Unsigned(n) => Some(u16::from(n)),
            Kind::Float => Some(4),
            Kind::Double => Some(8),
            Kind::Bytes(n) => Some(n),
            Kind::VarBytes(_) => None,
        }
    }
}

/// Bytes that `digits` decimal digits take in MySQL's binary form.
fn decimal_bytes(digits: u8) -> u16 {
    const REST: [u16; 9] = [0, 1, 1, 2, 2, 3, 3, 4, 4];
    u16::from(digits / 9) * 4 + REST[usize::from(digits % 9)]
}

/// Shorthands.
impl ColumnType {
    /// Signed integer of 1 byte.
    pub const I8: ColumnType = ColumnType::Integer { bytes: 1, signed: true };
    /// Signed integer of 2 bytes.
    pub const I16: ColumnType = ColumnType::Integer { bytes: 2, signed: true };
    /// Signed integer of 4 bytes.
    pub const I32: ColumnType = ColumnType::Integer { bytes: 4, signed: true };
    /// Signed integer of 8 bytes.
    pub const I64: ColumnType = ColumnType::Integer { bytes: 8, signed: true };
    /// Unsigned integer of 1 byte.
    pub const U8: ColumnType = ColumnType::Integer { bytes: 1, signed: false };
    /// Unsigned integer of 2 bytes.
    pub const U16: ColumnType = ColumnType::Integer { bytes: 2, signed: false };
    /// Unsigned integer of 4 bytes.
    pub const U32: ColumnType = ColumnType::Integer { bytes: 4, signed: false };
    /// Unsigned integer of 8 bytes.
    pub const U64: ColumnType = ColumnType::Integer { bytes: 8, signed: false };

    /// Text of at most this many bytes.
    pub const fn varchar(bytes_max: u16) -> Self {
        ColumnType::VarChar { bytes_max }
    }

    /// At most this many bytes.
    pub const fn varbinary(bytes_max: u16) -> Self {
        ColumnType::VarBinary { bytes_max }
    }

    /// Fixed-point number with this precision (total digits) and scale (digits after the point).
    pub const fn decimal(precision: u8, scale: u8) -> Self {
        ColumnType::Decimal { precision, scale }
    }
}

impl ColumnType {
    /// The physical kind.
    pub fn kind(self) -> Kind {
        let fraction_bytes = |fraction: u8| u16::from(fraction).div_ceil(2);
        match self {
            ColumnType::Integer { bytes, signed: true } => Kind::Signed(bytes),
            ColumnType::Integer { bytes, signed: false } => Kind::Unsigned(bytes),
            ColumnType::Float => Kind::Float,
            ColumnType::Double => Kind::Double,
            ColumnType::Decimal { precision, scale } => {
                Kind::Bytes(decimal_bytes(precision - scale) + decimal_bytes(scale))
            }
            ColumnType::Bit { bits } => Kind::Unsigned(bits.div_ceil(8)),
            ColumnType::Date => Kind::Bytes(3),
            ColumnType::Time { fraction } => Kind::Bytes(3 + fraction_bytes(fraction)),
            ColumnType::DateTime { fraction } => Kind::Bytes(5 + fraction_bytes(fraction)),
            ColumnType::Timestamp { fraction } => Kind::Bytes(4 + fraction_bytes(fraction)),
            ColumnType::Year => Kind::Unsigned(1),
            ColumnType::Char { bytes } | ColumnType::Binary { bytes } => Kind::Bytes(bytes),
            ColumnType::VarChar { bytes_max } | ColumnType::VarBinary { bytes_max } => {
                Kind::VarBytes(bytes_max)
            }
            ColumnType::Text | ColumnType::Blob => Kind::VarBytes(ROW_BYTES_MAX as u16),
        }
    }

    /// Whether only the row's own limit restricts the length of its values.
    pub fn is_long(self) -> bool {
        matches!(self, ColumnType::Text | ColumnType::Blob)
    }

    fn check(self) -> Result<(), DefinitionError> {
        let fraction = |f: u8| match f {
            0..=6 => Ok(()),
            _ => Err(format!("a fraction of {f} digits; 0 to 6 are allowed").into()),
        };
        match self {
            ColumnType::Integer { bytes: 1 | 2 | 3 | 4 | 8, .. } => Ok(()),
            ColumnType::Integer { bytes, .. } => {
                Err(format!("an integer of {bytes} bytes; 1, 2, 3, 4 and 8 are allowed").into())
            }
            ColumnType::Decimal { precision, scale } => {
                if !(1..=65).contains(&precision) {
                    Err(format!("a decimal of {precision} digits; 1 to 65 are allowed").into())
                } else if scale > DECIMAL_SCALE_MAX.min(precision) {
                    let most = DECIMAL_SCALE_MAX.min(precision);
                    Err(format!("{scale} digits behind the point; 0 to {most} are allowed").into())
                } else {
                    Ok(())
                }
            }
            ColumnType::Bit { bits: 1..=64 } => Ok(()),
            ColumnType::Bit { bits } => {
                Err(format!("a bit field of {bits} bits; 1 to 64 are allowed").into())
            }
            ColumnType::Time { fraction: f }
            | ColumnType::DateTime { fraction: f }
            | ColumnType::Timestamp { fraction: f } => fraction(f),
            ColumnType::Char { bytes } | ColumnType::Binary { bytes } if bytes > 1020 => {
                Err(format!("a fixed size of {bytes} bytes; 0 to 1020 are allowed").into())
            }
            ColumnType::VarChar { bytes_max } | ColumnType::VarBinary { bytes_max }
                if usize::from(bytes_max) > ROW_BYTES_MAX =>
            {
                let text = format!("values of up to {bytes_max} bytes; 0 to {ROW_BYTES_MAX} are allowed");
                Err(DefinitionError::of(Limit::ValueBytes, text))
            }
            ColumnType::Char { .. }
            | ColumnType::Binary { .. }
            | ColumnType::VarChar { .. }
            | ColumnType::VarBinary { .. }
            | ColumnType::Float
            | ColumnType::Double
            | ColumnType::Date
            | ColumnType::Year
            | ColumnType::Text
            | ColumnType::Blob => Ok(()),
        }
    }
}

impl fmt::Display for ColumnType {
    /// The type as it is written in SQL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ColumnType::Integer { bytes, signed } => {
                let name = match bytes {
                    1 => "tinyint",
                    2 => "smallint",
                    3 => "mediumint",
                    4 => "int",
                    _ => "bigint",
                };
                f.write_str(name)?;
                if signed { Ok(()) } else { f.write_str(" unsigned") }
            }
            ColumnType::Float => f.write_str("float"),
            ColumnType::Double => f.write_str("double"),
            ColumnType::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            ColumnType::Bit { bits } => write!(f, "bit({bits})"),
            ColumnType::Date => f.write_str("date"),
            ColumnType::Time { fraction } => write!(f, "time({fraction})"),
            ColumnType::DateTime { fraction } => write!(f, "datetime({fraction})"),
            ColumnType::Timestamp { fraction } => write!(f, "timestamp({fraction})"),
            ColumnType::Year => f.write_str("year"),
            ColumnType::Char { bytes } => write!(f, "char({bytes})"),
            ColumnType::Binary { bytes } => write!(f, "binary({bytes})"),
            ColumnType::VarChar { bytes_max } => write!(f, "varchar({bytes_max})"),
            ColumnType::VarBinary { bytes_max } => write!(f, "varbinary({bytes_max})"),
            ColumnType::Text => f.write_str("text"),
            ColumnType::Blob => f.write_str("blob"),
        }
    }
}

/// One column.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ColumnDefinition {
    /// Unique in its table.
    pub name: String,
    /// Declared type.
    pub column_type: ColumnType,
    /// Whether it may be NULL; key columns may not.
    pub nullable: bool,
}

impl ColumnDefinition {
    /// Whether it is an internal column that users don't see: its name begins with `$`.
    pub fn is_hidden(&self) -> bool {
        self.name.starts_with('$')
    }
}

/// What an index is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum IndexKind {
    /// Rows in the order of the columns: a B+-tree beside each fragment.
    Ordered,
    /// At most one row for each combination of values, found through a hidden table. Rows with a NULL in one of the
    /// columns are not in it.
    Unique,
}

/// An index in addition to the primary key's hash index.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IndexDefinition {
    /// Identifies it permanently within its table; never 0, never given to another index later.
    pub id: u16,
    /// Unique among the indexes of its kind in its table, without regard to case.
    pub name: String,
    /// In the order of the index. A unique index has no direction: all its columns are ascending.
    pub columns: Vec<OrderColumn>,
    /// What it is for.
    pub kind: IndexKind,
}

impl IndexDefinition {
    /// Its columns, without their directions.
    pub fn column_ids(&self) -> impl Iterator<Item = ColumnId> + '_ {
        self.columns.iter().map(|column| column.column)
    }
}

/// What is kept of a table's rows on disk, and what a commit that changes them waits for.
///
/// Up to version 1 of the schema file's format there were the first two only, as a boolean value, which has the same
/// bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub enum Durability {
    /// They are logged and in checkpoints; a commit waits for the disk if its transaction has asked for that.
    #[default]
    Memory,
    /// Neither logged nor checkpointed: after a restart of the whole cluster the table exists and is empty.
    NotLogged,
    /// They are logged and in checkpoints; each commit that changes one is answered when it is on disk.
    Disk,
}

/// The definition of a table.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct TableDefinition {
    /// `database.table`, each part 1–64 characters.
    pub name: String,
    /// In the order of declaration; [`ColumnId`] counts them.
    pub columns: Vec<ColumnDefinition>,
    /// The primary key's columns, in key order.
    pub primary_key: Vec<ColumnId>,
    /// What is kept of its rows on disk.
    pub durability: Durability,
    /// Whether backup replicas may answer committed reads.
    pub read_backup: bool,
    /// The number of the cluster's partitions that hold its rows; 0 for the usual number. The hidden tables of its
    /// unique indexes use the same partitions.
    pub partitions: u16,
    /// Its indexes, in ascending order of their ids.
    pub indexes: Vec<IndexDefinition>,
    /// Bytes that a SQL node keeps with the definition; data nodes do not look at them.
    pub attachment: Vec<u8>,
}

impl TableDefinition {
    /// Checks all limits of this file.
    ///
    /// # Errors
    /// A sentence that names what is wrong and what is allowed.
    pub fn check(&self) -> Result<(), DefinitionError> {
        check_table_name(&self.name)?;
        if self.columns.is_empty() || self.columns.len() > COLUMNS_MAX {
            let text = format!("{} columns; a table has 1 to {COLUMNS_MAX}", self.columns.len());
            return Err(DefinitionError::of(Limit::Columns, text));
        }
        let mut names = BTreeSet::new();
        for column in &self.columns {
            check_name("column", &column.name)?;
            if !names.insert(column.name.to_lowercase()) {
                return Err(format!("column '{}' is declared twice", column.name).into());
            }
            column
                .column_type
                .check()
                .map_err(|error| error.within(&format!("column '{}':", column.name)))?;
        }
        self.check_key_columns("the primary key", &self.primary_key)?;
        if let Some(&id) = self.primary_key.iter().find(|id| self.columns[usize::from(id.0)].nullable) {
            return Err(format!(
                "column '{}' of the primary key is nullable; a key is never NULL",
                self.columns[usize::from(id.0)].name
            )
            .into());
        }
        self.check_indexes()?;
        if self.attachment.len() > ATTACHMENT_BYTES_MAX {
            let bytes = self.attachment.len();
            let text = format!("an attachment of {bytes} bytes; {ATTACHMENT_BYTES_MAX} are allowed");
            return Err(DefinitionError::of(Limit::AttachmentBytes, text));
        }
        let row_bytes = self.row_bytes_max();
        if row_bytes > ROW_BYTES_MAX {
            let text = format!("a row may need {row_bytes} bytes; {ROW_BYTES_MAX} are allowed");
            return Err(DefinitionError::of(Limit::RowBytes, text));
        }
        Ok(())
    }

    fn check_indexes(&self) -> Result<(), DefinitionError> {
        if self.indexes.len() > INDEXES_MAX {
            return Err(format!("{} indexes; {INDEXES_MAX} are allowed", self.indexes.len()).into());
        }
        let unique = self.indexes.iter().filter(|index| index.kind == IndexKind::Unique).count();
        if unique > UNIQUE_INDEXES_MAX {
            return Err(format!("{unique} unique indexes; {UNIQUE_INDEXES_MAX} are allowed").into());
        }
        let mut id_before = 0;
        let mut names = BTreeSet::new();
        for index in &self.indexes {
            check_name("index", &index.name)?;
            if index.id <= id_before {
                return Err(format!(
                    "index '{}' has id {} behind {id_before}; ids begin at 1 and ascend",
                    index.name, index.id
                )
                .into());
            }
            id_before = index.id;
            let is_unique = index.kind == IndexKind::Unique;
            if !names.insert((is_unique, index.name.to_lowercase())) {
                return Err(format!("index '{}' is declared twice", index.name).into());
            }
            if is_unique && index.columns.iter().any(|c| c.direction == Direction::Descending) {
                return Err(format!("unique index '{}' has a descending column", index.name).into());
            }
            let columns: Vec<ColumnId> = index.column_ids().collect();
            self.check_key_columns(&format!("index '{}'", index.name), &columns)?;
        }
        Ok(())
    }

    /// Checks the columns of a key: the primary key, or that of an index. `what` names it.
    fn check_key_columns(&self, what: &str, columns: &[ColumnId]) -> Result<(), DefinitionError> {
        if columns.is_empty() || columns.len() > KEY_COLUMNS_MAX {
            return Err(
                format!("{what} has {} columns; 1 to {KEY_COLUMNS_MAX} are allowed", columns.len()).into()
            );
        }
        let mut bytes = 0;
        let mut seen = BTreeSet::new();
        for &id in columns {
            let Some(column) = self.columns.get(usize::from(id.0)) else {
                return Err(format!("{what} names column {id}; the table has {}", self.columns.len()).into());
            };
            if !seen.insert(id) {
                return Err(format!("column '{}' stands in {what} twice", column.name).into());
            }
            if column.column_type.is_long() {
                return Err(format!(
                    "column '{}' of {what} is {}, which can't be in a key",
                    column.name, column.column_type
                )
                .into());
            }
            bytes += match column.column_type.kind() {
                Kind::VarBytes(max) => 2 + usize::from(max),
                fixed => usize::from(fixed.fixed_bytes().expect("only VarBytes is variable")),
            };
        }
        match bytes {
            0 => Err(format!("{what} has 0 bytes; it needs at least one").into()),
            1..=KEY_BYTES_MAX => Ok(()),
            _ => {
                let text = format!("{what} has up to {bytes} bytes; {KEY_BYTES_MAX} are allowed");
                Err(DefinitionError::of(Limit::KeyBytes, text))
            }
        }
    }

    /// The hidden table of one of its unique indexes: the index's columns are its primary key; after them come those
    /// columns of this table's primary key that are not among them. `table` is this table's place in the dictionary.
    pub fn unique_table(&self, table: u32, index: &IndexDefinition) -> TableDefinition {
        let database = self.name.split('.').next().unwrap_or_default();
        let rest = self.primary_key.iter().copied().filter(|id| index.column_ids().all(|other| other != *id));
        let columns = index.column_ids().chain(rest);
        let column =
            |id: ColumnId| ColumnDefinition { nullable: false, ..self.columns[usize::from(id.0)].clone() };
        TableDefinition {
            name: format!("{database}.$unique_{table}_{}", index.id),
            columns: columns.map(column).collect(),
            primary_key: (0..index.columns.len() as u16).map(ColumnId).collect(),
            durability: self.durability,
            read_backup: self.read_backup,
            ..TableDefinition::default()
        }
    }

    /// Whether this is the hidden table of a unique index: users can't change its rows.
    pub fn is_hidden(&self) -> bool {
        self.name.split_once('.').is_some_and(|(_, table)| table.starts_with("$unique_"))
    }

    /// The table's place in the dictionary and the index's id, from the name of a unique index's hidden table.
    pub fn index_of_hidden(name: &str) -> Option<(u32, u16)> {
        let (_, name) = name.split_once('.')?;
        let (table, index) = name.strip_prefix("$unique_")?.split_once('_')?;
        Some((table.parse().ok()?, index.parse().ok()?))
    }

    /// The index with an id.
    pub fn index(&self, id: u16) -> Option<&IndexDefinition> {
        self.indexes.iter().find(|index| index.id == id)
    }

    /// The greatest length of a row of this table in bytes, without its header and long values.
    pub fn row_bytes_max(&self) -> usize {
        let nulls = self.columns.iter().filter(|c| c.nullable).count().div_ceil(8);
        let columns: usize = self
            .columns
            .iter()
            .map(|c| match c.column_type.kind() {
                Kind::VarBytes(_) if c.column_type.is_long() => 2,
                Kind::VarBytes(max) => 2 + usize::from(max),
                fixed => usize::from(fixed.fixed_bytes().expect("only VarBytes is variable")),
            })
            .sum();
        nulls + columns
    }

    /// The columns that users see. Hidden ones come after them.
    pub fn visible_columns(&self) -> &[ColumnDefinition] {
        let end = self.columns.iter().position(ColumnDefinition::is_hidden).unwrap_or(self.columns.len());
        &self.columns[..end]
    }

    /// The column that users see in place of this key column: itself, or the one whose sort key it holds. `None` for
    /// the hidden primary key of a table that was declared without one.
    pub fn visible_column(&self, column: ColumnId) -> Option<ColumnId> {
        let described = self.columns.get(usize::from(column.0))?;
        if !described.is_hidden() {
            return Some(column);
        }
        let of: u16 = described.name.strip_prefix(SORT_KEY_PREFIX)?.parse().ok()?;
        (usize::from(of) < self.visible_columns().len()).then_some(ColumnId(of))
    }

    /// The column with this name, without regard to case.
    pub fn column(&self, name: &str) -> Option<ColumnId> {
        let at = self.columns.iter().position(|c| c.name.eq_ignore_ascii_case(name))?;
        Some(ColumnId(at as u16))
    }
}

fn check_name(what: &str, name: &str) -> Result<(), String> {
    let chars = name.chars().count();
    if !(1..=NAME_CHARS_MAX).contains(&chars) {
        let shown: String = name.chars().take(20).collect();
        let dots = if chars > 20 { "…" } else { "" };
        return Err(format!(
            "the {what} name '{shown}{dots}' has {chars} characters; 1 to {NAME_CHARS_MAX} are allowed"
        ));
    }
    if name.chars().any(char::is_control) {
        return Err(format!("the {what} name {name:?} has control characters"));
    }
    Ok(())
}

/// Checks the name of a database, which has no dot.
///
/// # Errors
/// A sentence that names what is wrong and what is allowed.
pub fn check_database_name(name: &str) -> Result<(), String> {
    check_name("database", name)?;
    match name.contains('.') {
        true => Err(format!("the database name '{name}' has a dot")),
        false => Ok(()),
    }
}

/// Checks a full table name, `database.table`.
///
/// # Errors
/// A sentence that names what is wrong and what is allowed.
pub fn check_table_name(name: &str) -> Result<(), String> {
    match name.split_once('.') {
        Some((database, table)) => {
            check_name("database", database)?;
            check_name("table", table)
        }
        None => {
            check_name("table", name)?;
            Err(format!("the table name '{name}' has no database; write 'database.table'"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn table(columns: Vec<ColumnDefinition>, primary_key: Vec<u16>) -> TableDefinition {
        TableDefinition {
            name: "test.t".into(),
            columns,
            primary_key: primary_key.into_iter().map(ColumnId).collect(),
            ..TableDefinition::default()
        }
    }

    fn column(name: &str, column_type: ColumnType, nullable: bool) -> ColumnDefinition {
        ColumnDefinition { name: name.into(), column_type, nullable }
    }

    const BIGINT: ColumnType = ColumnType::Integer { bytes: 8, signed: true };

    #[test]
    fn a_good_table_passes() {
        let t = table(
            vec![
                column("id", BIGINT, false),
                column("price", ColumnType::Decimal { precision: 18, scale: 4 }, true),
                column("name", ColumnType::VarChar { bytes_max: 300 }, true),
            ],
            vec![0],
        );
        assert_eq!(t.check(), Ok(()));
        assert_eq!(t.column("NAME"), Some(ColumnId(2)));
        assert_eq!(t.columns[1].column_type.kind(), Kind::Bytes(7 + 2));
    }

    fn index(id: u16, name: &str, columns: &[u16], kind: IndexKind) -> IndexDefinition {
        let ascending = |&column| OrderColumn { column: ColumnId(column), direction: Direction::Ascending };
        IndexDefinition { id, name: name.into(), columns: columns.iter().map(ascending).collect(), kind }
    }

    #[test]
    fn indexes_are_checked() {
        let columns = || {
            vec![
                column("id", BIGINT, false),
                column("a", BIGINT, true),
                column("text", ColumnType::Text, true),
                column("wide", ColumnType::VarChar { bytes_max: 4000 }, true),
            ]
        };
        let with = |indexes| TableDefinition { indexes, ..table(columns(), vec![0]) }.check();
        use IndexKind::{Ordered, Unique};
        // Ordered and unique indexes with the same name are distinguished by kind; NULL is allowed; ids may have gaps.
        assert_eq!(with(vec![index(1, "k", &[1, 0], Ordered), index(7, "K", &[1], Unique)]), Ok(()));
        let mut descending = index(2, "k", &[1], Unique);
        descending.columns[0].direction = Direction::Descending;
        let cases = [
            (vec![index(0, "k", &[1], Ordered)], "index 'k' has id 0 behind 0; ids begin at 1 and ascend"),
            (vec![index(1, "k", &[1], Ordered), index(2, "K", &[0], Ordered)], "index 'K' is declared twice"),
            (vec![index(1, "k", &[], Ordered)], "index 'k' has 0 columns; 1 to 32 are allowed"),
            (vec![index(1, "k", &[4], Ordered)], "index 'k' names column 4; the table has 4"),
            (
                vec![index(1, "k", &[2], Ordered)],
                "column 'text' of index 'k' is text, which can't be in a key",
            ),
            (vec![index(1, "k", &[3], Unique)], "index 'k' has up to 4002 bytes; 3072 are allowed"),
            (vec![descending], "unique index 'k' has a descending column"),
        ];
        for (indexes, message) in cases {
            assert_eq!(with(indexes).map_err(|error| error.text), Err(message.into()));
        }
    }

    #[test]
    fn a_unique_index_leads_to_the_primary_key() {
        let columns = vec![
            column("a", BIGINT, false),
            column("b", ColumnType::VarChar { bytes_max: 9 }, true),
            column("c", BIGINT, false),
        ];
        let unique = index(3, "u", &[1, 2], IndexKind::Unique);
        let base = TableDefinition { indexes: vec![unique], ..table(columns, vec![2, 0]) };
        let hidden = base.unique_table(17, &base.indexes[0]);
        assert_eq!(hidden.check(), Ok(()));
        assert_eq!(hidden.name, "test.$unique_17_3");
        assert_eq!(TableDefinition::index_of_hidden(&hidden.name), Some((17, 3)));
        assert_eq!(TableDefinition::index_of_hidden("test.unique_17_3"), None);
        assert!(hidden.is_hidden() && !base.is_hidden());
        let names: Vec<&str> = hidden.columns.iter().map(|c| c.name.as_str()).collect();
        assert_eq!((names, hidden.primary_key), (vec!["b", "c", "a"], vec![ColumnId(0), ColumnId(1)]));
    }

    #[test]
    fn each_error_is_named() {
        let id = || column("id", BIGINT, false);
        let with_name = |name: &str| TableDefinition { name: name.into(), ..table(vec![id()], vec![0]) };
        let cases = [
            (with_name("t"), "the table name 't' has no database; write 'database.table'"),
            (with_name("d."), "the table name '' has 0 characters; 1 to 64 are allowed"),
            (
                with_name(&"x".repeat(10_000)),
                "the table name 'xxxxxxxxxxxxxxxxxxxx…' has 10000 characters; 1 to 64 are allowed",
            ),
            (table(vec![], vec![0]), "0 columns; a table has 1 to 512"),
            (table(vec![id(), id()], vec![0]), "column 'id' is declared twice"),
            (table(vec![id()], vec![]), "the primary key has 0 columns; 1 to 32 are allowed"),
            (table(vec![id()], vec![1]), "the primary key names column 1; the table has 1"),
            (table(vec![id()], vec![0, 0]), "column 'id' stands in the primary key twice"),
            (
                table(vec![column("id", BIGINT, true)], vec![0]),
                "column 'id' of the primary key is nullable; a key is never NULL",
            ),
            (
                table(vec![column("id", ColumnType::VarChar { bytes_max: 4000 }, false)], vec![0]),
                "the primary key has up to 4002 bytes; 3072 are allowed",
            ),
            (
                table(vec![column("id", ColumnType::Char { bytes: 0 }, false)], vec![0]),
                "the primary key has 0 bytes; it needs at least one",
            ),
            (
                table(vec![id(), column("v", ColumnType::VarChar { bytes_max: 30_000 }, false)], vec![0]),
                "a row may need 30010 bytes; 30000 are allowed",
            ),
            (
                table(
                    vec![id(), column("v", ColumnType::Integer { bytes: 5, signed: true }, false)],
                    vec![0],
                ),
                "column 'v': an integer of 5 bytes; 1, 2, 3, 4 and 8 are allowed",
            ),
            (
                table(
                    vec![id(), column("v", ColumnType::Decimal { precision: 9, scale: 10 }, false)],
                    vec![0],
                ),
                "column 'v': 10 digits behind the point; 0 to 9 are allowed",
            ),
        ];
        for (definition, message) in cases {
            assert_eq!(definition.check().map_err(|error| error.text), Err(message.into()));
        }
    }
}
