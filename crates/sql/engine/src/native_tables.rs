//! Tables that native clients have created: their SQL definition, derived from their columns and keys.
//!
//! The attachment of a table of a SQL node contains the server's image of its definition. For any other table SQL gets
//! the statement that would create such a table, and a version, the hash of the statement: a change of the table that
//! is visible in SQL results in another version.
//!
//! | at the data nodes | in SQL |
//! |---|---|
//! | numbers, dates and times, `Binary`, `VarBinary`, `Blob` | the type of the same name |
//! | `VarChar` of n bytes | `VARCHAR(n)` of `utf8mb4_nopad_bin`, which compares as bytes; each has up to n *bytes* |
//! | … if a row or a key has no room for n characters of four bytes | `TEXT`; `VARBINARY(n)` in a key |
//! | `Text` | `TEXT` of `utf8mb4_nopad_bin` |
//! | `Char` of n bytes | `CHAR(n)` of `latin1_bin`: the only type with n bytes, padded with spaces |
//! | primary key, unique index | the key; `USING HASH` unless an ordered index has its name (`PRIMARY`) and columns |
//! | ordered index | key |

use crate::definition::split_own_part;
use std::borrow::Cow;
use std::fmt::Write;
use vinga::sql_rules::SqlRules;
use vinga::{ColumnId, ColumnType, Direction, Durability, IndexKind, OrderColumn, TableDefinition};
use vinga_base::hash::KeyHash;
use vinga_base::schema::{KEY_BYTES_MAX, Kind, NAME_CHARS_MAX, ROW_BYTES_MAX};

/// The first bytes of the server's image of a definition.
const IMAGE_BEGIN: [u8; 2] = [0xfe, 0x01];
/// The name of a primary key, and of the ordered index over it.
const PRIMARY: &str = "PRIMARY";
/// Maximum number of keys of a table in SQL.
const KEYS_MAX: usize = 64;
/// Maximum size of a `CHAR` or `BINARY` of SQL.
const FIXED_BYTES_MAX: u16 = 255;
/// Maximum size of a character of `utf8mb4` in bytes.
const CHARACTER_BYTES: usize = 4;
/// Bytes that an empty long value takes of a row.
const LENGTH_BYTES: usize = 2;

/// Whether a table was not made by a SQL node.
pub fn is_native(definition: &TableDefinition) -> bool {
    stored_part(definition).is_none()
}

/// The part of a table's attachment that a SQL node has stored.
fn stored_part(definition: &TableDefinition) -> Option<&[u8]> {
    let own = SqlRules::own_part(&definition.attachment)?;
    split_own_part(own).is_some_and(|(_, image)| image.starts_with(&IMAGE_BEGIN)).then_some(own)
}

/// The SQL definition of a table, in the form of the engine's own part of an attachment: the part that a SQL node has
/// stored, or a version and the statement that creates such a table.
///
/// # Errors
/// A sentence that states which property of the table SQL can't represent.
pub fn own_part(definition: &TableDefinition) -> Result<Cow<'_, [u8]>, String> {
    if let Some(own) = stored_part(definition) {
        return Ok(Cow::Borrowed(own));
    }
    let table = Sayable::of(definition).map_err(|why| {
        format!("table {} was made by a native client, and not for SQL: {why}", definition.name)
    })?;
    let body = table.body();
    // The same number of bytes as in the server's own versions.
    let (one, other) = (KeyHash::of(body.as_bytes()).0, KeyHash::of(format!("{body};").as_bytes()).0);
    let version = [one.to_le_bytes(), other.to_le_bytes()].concat();
    let statement = format!("CREATE TABLE {} {body}", quoted(table.name));
    Ok(Cow::Owned([&[version.len() as u8], version.as_slice(), statement.as_bytes()].concat()))
}

/// The SQL type of a text of variable size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TextForm {
    Characters,
    /// `TEXT`: the row has no room for this many characters.
    Long,
    /// `VARBINARY`: a key has no room for this many characters.
    Bytes,
}

/// A key in SQL.
struct Key<'a> {
    name: &'a str,
    columns: Cow<'a, [OrderColumn]>,
    is_unique: bool,
    is_hash: bool,
}

/// A table that SQL can represent.
struct Sayable<'a> {
    definition: &'a TableDefinition,
    /// The name without the database.
    name: &'a str,
    keys: Vec<Key<'a>>,
    /// The form of each text, by the column.
    texts: Vec<TextForm>,
}

impl<'a> Sayable<'a> {
    fn of(definition: &'a TableDefinition) -> Result<Self, String> {
        let name = definition.name.split_once('.').map_or(definition.name.as_str(), |(_, table)| table);
        check_name("table", name)?;
        for column in &definition.columns {
            check_column(&column.name, column.column_type)?;
        }
        check_distinct("column", definition.columns.iter().map(|column| column.name.as_str()))?;
        let keys = keys_of(definition)?;
        check_distinct("key", keys.iter().map(|key| key.name))?;
        if keys.len() > KEYS_MAX {
            return Err(format!("it has {} keys; {KEYS_MAX} are allowed", keys.len()));
        }
        for key in &keys {
            for part in key.columns.iter() {
                let column = &definition.columns[usize::from(part.column.0)];
                if matches!(column.column_type.kind(), Kind::Bytes(0) | Kind::VarBytes(0)) {
                    return Err(format!("column '{}' has no bytes and is in a key", column.name));
                }
            }
        }
        let texts = texts_of(definition, &keys)?;
        Ok(Sayable { definition, name, keys, texts })
    }

    /// The part of the statement after the table's name.
    fn body(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        for (column, text) in self.definition.columns.iter().zip(&self.texts) {
            let sql_type = type_name(column.column_type, *text);
            let mut line = format!("{} {sql_type}", quoted(&column.name));
            line.push_str(if column.nullable { " NULL" } else { " NOT NULL" });
            if let (ColumnType::Timestamp { fraction }, false) = (column.column_type, column.nullable) {
                // Otherwise the server would add this to the first timestamp column, and an `ON UPDATE` clause.
                let _ = write!(line, " DEFAULT current_timestamp({fraction})");
            }
            lines.push(line);
        }
        for key in &self.keys {
            let parts = key.columns.iter().map(|part| {
                let descends = if part.direction == Direction::Descending { " DESC" } else { "" };
                quoted(&self.definition.columns[usize::from(part.column.0)].name) + descends
            });
            let what = match (key.name, key.is_unique) {
                (PRIMARY, _) => "PRIMARY KEY".to_owned(),
                (name, true) => format!("UNIQUE KEY {}", quoted(name)),
                (name, false) => format!("KEY {}", quoted(name)),
            };
            let hash = if key.is_hash { " USING HASH" } else { "" };
            lines.push(format!("{what} ({}){hash}", parts.collect::<Vec<_>>().join(",")));
        }
        let mut body =
            format!("({}) ENGINE=VINGA CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin", lines.join(","));
        match self.definition.durability {
            Durability::Memory => {}
            Durability::NotLogged => body.push_str(" NOLOGGING=1"),
            Durability::Disk => body.push_str(" DURABILITY=disk"),
        }
        if self.definition.read_backup {
            body.push_str(" READ_BACKUP=1");
        }
        if self.definition.partitions != 0 {
            let _ = write!(body, " PARTITION_COUNT={}", self.definition.partitions);
        }
        body
    }
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn type_name(column_type: ColumnType, text: TextForm) -> String {
    match (column_type, text) {
        (ColumnType::Char { bytes }, _) => format!("char({bytes}) CHARACTER SET latin1 COLLATE latin1_bin"),
        (ColumnType::VarChar { .. }, TextForm::Long) => "text".into(),
        (ColumnType::VarChar { bytes_max }, TextForm::Bytes) => format!("varbinary({bytes_max})"),
        (other, _) => other.to_string(),
    }
}

/// Checks that SQL allows this name.
fn check_name(what: &str, name: &str) -> Result<(), String> {
    if name.chars().count() > NAME_CHARS_MAX {
        return Err(format!("the {what} name '{name}' has more than {NAME_CHARS_MAX} characters"));
    }
    if name.ends_with(' ') {
        return Err(format!("the {what} name '{name}' ends with a space"));
    }
    if name.chars().any(|character| character as u32 > 0xffff) {
        return Err(format!("the {what} name '{name}' has a character beyond U+FFFF"));
    }
    if what == "table" && name.starts_with("#mysql50#") {
        return Err(format!("the {what} name '{name}' begins as the server's own names do"));
    }
    Ok(())
}

fn check_column(name: &str, column_type: ColumnType) -> Result<(), String> {
    check_name("column", name)?;
    if name.starts_with('$') {
        return Err(format!("column '{name}': names that begin with $ are reserved"));
    }
    match column_type {
        ColumnType::Char { bytes } | ColumnType::Binary { bytes } if bytes > FIXED_BYTES_MAX => {
            Err(format!("column '{name}' is {column_type}; {FIXED_BYTES_MAX} bytes are allowed"))
        }
        _ => Ok(()),
    }
}

/// The part of a name that is significant where the server compares names: neither case nor accents of Latin letters.
/// All accented letters are treated as equal here, which is stricter than the server.
fn folded(name: &str) -> String {
    const ANY_LATIN: char = '\u{c0}';
    name.chars()
        .flat_map(char::to_lowercase)
        .map(|letter| match letter {
            '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' => ANY_LATIN,
            other => other,
        })
        .collect()
}

/// Whether the server may treat two names as equal.
fn are_same(one: &str, other: &str) -> bool {
    let (one, other) = (folded(one), folded(other));
    let is_latin = |letter: char| letter == '\u{c0}' || letter.is_ascii_lowercase();
    let same = |(one, other): (char, char)| {
        one == other || ((one == '\u{c0}' || other == '\u{c0}') && is_latin(one) && is_latin(other))
    };
    one.chars().count() == other.chars().count() && one.chars().zip(other.chars()).all(same)
}

fn check_distinct<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let names: Vec<&str> = names.collect();
    // The data nodes distinguish names of ASCII letters in the same way as the server.
    let odd = names.iter().enumerate().filter(|(_, name)| !name.is_ascii());
    for (at, name) in odd {
        let others = names.iter().enumerate().filter(|(other, _)| *other != at);
        if let Some((_, other)) = others.into_iter().find(|(_, other)| are_same(name, other)) {
            return Err(format!("the {what} names '{name}' and '{other}' are the same to SQL"));
        }
    }
    Ok(())
}

/// The keys: the primary one, unique ones, others, each group in the order of the definition.
fn keys_of(definition: &TableDefinition) -> Result<Vec<Key<'_>>, String> {
    let of_kind = |kind| definition.indexes.iter().filter(move |index| index.kind == kind);
    let find =
        |kind, name: &str| of_kind(kind).find(|index| index.name.to_lowercase() == name.to_lowercase());
    for index in &definition.indexes {
        check_name("index", &index.name)?;
    }
    let ascending = |&column: &ColumnId| OrderColumn { column, direction: Direction::Ascending };
    // The ordered index that belongs to a key of this name.
    let key = |name, columns: Vec<OrderColumn>| match find(IndexKind::Ordered, name) {
        None => Ok(Key { name, columns: Cow::Owned(columns), is_unique: true, is_hash: true }),
        Some(index) => {
            let is_same =
                index.name == *name && index.column_ids().eq(columns.iter().map(|part| part.column));
            let key = Key { name, columns: Cow::Borrowed(&index.columns), is_unique: true, is_hash: false };
            is_same.then_some(key).ok_or_else(|| {
                format!("the ordered index '{}' has the name of a key with other columns", index.name)
            })
        }
    };
    let mut keys = vec![key(PRIMARY, definition.primary_key.iter().map(ascending).collect())?];
    for index in of_kind(IndexKind::Unique) {
        if index.name.eq_ignore_ascii_case(PRIMARY) {
            return Err(format!("a unique index has the name '{}'", index.name));
        }
        keys.push(key(&index.name, index.columns.clone())?);
    }
    for index in of_kind(IndexKind::Ordered) {
        if keys.iter().all(|key| key.name != index.name) {
            let columns = Cow::Borrowed(index.columns.as_slice());
            keys.push(Key { name: &index.name, columns, is_unique: false, is_hash: false });
        }
    }
    Ok(keys)
}

/// The SQL types for texts of variable size: characters wherever rows and keys have room for them.
fn texts_of(definition: &TableDefinition, keys: &[Key<'_>]) -> Result<Vec<TextForm>, String> {
    let mut texts = vec![TextForm::Characters; definition.columns.len()];
    // The bytes of a column in its form, and below the widest text that could take fewer bytes.
    let bytes = |place: usize, texts: &[TextForm]| {
        let column_type = definition.columns[place].column_type;
        match (column_type, texts[place]) {
            (ColumnType::VarChar { .. }, TextForm::Long) => LENGTH_BYTES,
            (ColumnType::VarChar { bytes_max }, TextForm::Characters) => {
                LENGTH_BYTES + CHARACTER_BYTES * usize::from(bytes_max)
            }
            _ if column_type.is_long() => LENGTH_BYTES,
            _ => match column_type.kind() {
                Kind::VarBytes(max) => LENGTH_BYTES + usize::from(max),
                fixed => usize::from(fixed.fixed_bytes().unwrap_or(0)),
            },
        }
    };
    let widest = |places: &mut dyn Iterator<Item = usize>, texts: &[TextForm]| {
        let is_text = |place: &usize| {
            matches!(definition.columns[*place].column_type, ColumnType::VarChar { .. })
                && texts[*place] == TextForm::Characters
        };
        places.filter(is_text).max_by_key(|place| (bytes(*place, texts), usize::MAX - place))
    };
    let mut is_in_key = vec![false; definition.columns.len()];
    for key in keys {
        let places: Vec<usize> = key.columns.iter().map(|part| usize::from(part.column.0)).collect();
        places.iter().for_each(|place| is_in_key[*place] = true);
        while places.iter().map(|place| bytes(*place, &texts)).sum::<usize>() > KEY_BYTES_MAX {
            let place = widest(&mut places.iter().copied(), &texts)
                .ok_or_else(|| format!("key '{}' is too long", key.name))?;
            texts[place] = TextForm::Bytes;
        }
    }
    let null_bytes = definition.columns.iter().filter(|column| column.nullable).count().div_ceil(8);
    let all = 0..definition.columns.len();
    while null_bytes + all.clone().map(|place| bytes(place, &texts)).sum::<usize>() > ROW_BYTES_MAX {
        if let Some(place) = widest(&mut all.clone().filter(|place| !is_in_key[*place]), &texts) {
            texts[place] = TextForm::Long;
        } else if let Some(place) = widest(&mut all.clone(), &texts) {
            texts[place] = TextForm::Bytes;
        } else {
            return Err("its rows are too long".into());
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests;
