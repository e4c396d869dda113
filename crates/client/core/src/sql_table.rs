//! Native changes of tables that were made by SQL: what would leave a row as SQL would never have made it is refused,
//! or made right on the way.
//!
//! Columns whose names begin with `$` are hidden: they stand behind all others and belong to the SQL nodes. `$s<n>` is
//! the sort key of column `n`, `$key` the primary key of a table that has none. A new row gets its sort keys here if
//! they can be made ([`SortKeys`]); where the value is NULL, so is the sort key.

use crate::error::{Error, Result};
use crate::sql_rules::{ColumnRules, SortKeys, SqlRules, Unreadable, Values};
use crate::value::{Misfit, StoreValue, Stored, load_bytes};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::ColumnId;
use vinga_base::schema::{ColumnType, HIDDEN_KEY, Kind, TableDefinition};
use vinga_wire::ErrorCode;

/// A column with the sort key of another.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SortColumn {
    /// Itself.
    pub id: ColumnId,
    /// The table that users know, which may not be the one that it is in.
    pub table: String,
    /// The other, in that table.
    pub of: ColumnId,
    pub of_name: String,
    pub of_type: ColumnType,
    pub how: SortKeys,
    /// Bytes, at most.
    pub bytes_max: usize,
}

/// What native changes of one table have to keep to.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct SqlTable {
    rules: SqlRules,
    /// The rules can't be read.
    is_foreign: bool,
    hidden_key: Option<ColumnId>,
    sort_columns: Vec<SortColumn>,
}

/// What is done to a column.
#[derive(Clone, Copy, Debug)]
pub enum ColumnChange<'a> {
    /// It gets the value with these bytes; `None` for NULL.
    Set(Option<&'a [u8]>),
    /// Its new value follows from the old one.
    Compute,
}

fn needs_sql(name: &str, why: &str) -> Error {
    Error::with_detail(ErrorCode::NeedsSql, format!("table {name}: {why}"))
}

impl SqlTable {
    /// What holds for a table; `None` for one that was not made by SQL.
    pub fn of(definition: &TableDefinition) -> Option<Self> {
        let (rules, is_foreign) = match SqlRules::read(&definition.attachment) {
            Ok(Some(rules)) => (rules, false),
            Ok(None) if definition.visible_columns().len() == definition.columns.len() => return None,
            Ok(None) => (SqlRules::default(), false),
            Err(Unreadable) => (SqlRules::default(), true),
        };
        let mut table = SqlTable { rules, is_foreign, hidden_key: None, sort_columns: Vec::new() };
        for (id, column) in (0..).map(ColumnId).zip(&definition.columns) {
            if column.name == HIDDEN_KEY {
                table.hidden_key = Some(id);
            }
            let of = definition.visible_column(id).filter(|_| column.is_hidden());
            let (Some(of), Kind::VarBytes(bytes_max)) = (of, column.column_type.kind()) else { continue };
            let base = &definition.columns[usize::from(of.0)];
            let how = table.column_rules(of).map_or(SortKeys::OfSqlOnly, |rules| rules.sort_keys);
            table.sort_columns.push(SortColumn {
                id,
                table: definition.name.clone(),
                of,
                of_name: base.name.clone(),
                of_type: base.column_type,
                how,
                bytes_max: usize::from(bytes_max),
            });
        }
        Some(table)
    }

    /// The same for the hidden table of a unique index, whose columns are these of the table.
    pub fn of_unique_table(&self, columns: &[ColumnId]) -> Self {
        let place = |id: ColumnId| columns.iter().position(|&column| column == id);
        let moved = |column: &SortColumn| {
            Some(SortColumn { id: ColumnId(place(column.id)? as u16), ..column.clone() })
        };
        SqlTable {
            rules: SqlRules::default(),
            is_foreign: self.is_foreign,
            hidden_key: None,
            sort_columns: self.sort_columns.iter().filter_map(moved).collect(),
        }
    }

    fn column_rules(&self, column: ColumnId) -> Option<&ColumnRules> {
        self.rules.columns.get(usize::from(column.0))
    }

    /// The sort key of a column, if it has one.
    fn sort_column_of(&self, column: ColumnId) -> Option<&SortColumn> {
        self.sort_columns.iter().find(|sort| sort.of == column)
    }

    /// Whether rows may be changed at all.
    pub fn check_change(&self, name: &str) -> Result<()> {
        if self.is_foreign {
            return Err(needs_sql(name, "a SQL node of another version has made it"));
        }
        if self.rules.keeps_history {
            return Err(needs_sql(name, "it keeps the history of its rows (WITH SYSTEM VERSIONING)"));
        }
        Ok(())
    }

    /// Checks what is done to a column. Returns the sort key that changes with it; its bytes are `None` for NULL.
    pub fn change(
        &self,
        definition: &TableDefinition,
        column: ColumnId,
        change: ColumnChange<'_>,
        misfit_code: ErrorCode,
    ) -> Result<Option<(ColumnId, Option<Vec<u8>>)>> {
        let described = &definition.columns[usize::from(column.0)];
        let refused =
            |why: String| needs_sql(&definition.name, &format!("column '{}': {why}", described.name));
        if described.is_hidden() {
            return Err(refused("it belongs to SQL".into()));
        }
        if let Some(rules) = self.column_rules(column) {
            match rules.values {
                Values::Generated => return Err(refused("SQL computes it from others".into())),
                Values::OfSqlOnly if !matches!(change, ColumnChange::Set(None)) => {
                    return Err(refused("its values have a form that only SQL makes".into()));
                }
                _ => {}
            }
            if !rules.read_by.is_empty() {
                return Err(refused(format!("only SQL keeps {}, which reads it", rules.read_by)));
            }
            let is_free = matches!(rules.values, Values::Any | Values::Finite);
            match change {
                ColumnChange::Set(Some(bytes)) => {
                    check_value(rules.values, described.column_type, bytes)
                        .map_err(|misfit| misfit.at(misfit_code, &definition.name, &described.name))?;
                }
                ColumnChange::Compute if !is_free => {
                    return Err(refused("whether SQL allows the value is known only when it is set".into()));
                }
                ColumnChange::Set(None) | ColumnChange::Compute => {}
            }
        }
        let Some(sort) = self.sort_column_of(column) else { return Ok(None) };
        match change {
            ColumnChange::Set(Some(bytes)) => {
                let key = sort.key_of(bytes, misfit_code)?;
                Ok(Some((sort.id, Some(key))))
            }
            ColumnChange::Set(None) => Ok(Some((sort.id, None))),
            ColumnChange::Compute => Err(sort.needs_sql()),
        }
    }

    /// Whether rows can be added at all.
    pub fn check_new_row(&self, definition: &TableDefinition) -> Result<()> {
        self.check_change(&definition.name)?;
        if self.hidden_key.is_some() {
            return Err(needs_sql(&definition.name, "it has no primary key, and SQL numbers its rows"));
        }
        Ok(())
    }

    /// Appends a value of a key's or index's column as it stands in a row: of a sort key, that of the value of its
    /// column.
    pub fn store_key_value<V: StoreValue + ?Sized>(
        &self,
        definition: &TableDefinition,
        column: ColumnId,
        value: &V,
        out: &mut Vec<u8>,
    ) -> Result<Stored> {
        let described = &definition.columns[usize::from(column.0)];
        if self.hidden_key == Some(column) {
            return Err(needs_sql(&definition.name, "it has no primary key; read it by an index or a scan"));
        }
        let Some(sort) = self.sort_columns.iter().find(|sort| sort.id == column) else {
            return value
                .store(described.column_type, out)
                .map_err(|misfit| misfit.at(ErrorCode::BadKey, &definition.name, &described.name));
        };
        let mut bytes = Vec::new();
        match value
            .store(sort.of_type, &mut bytes)
            .map_err(|misfit| misfit.at(ErrorCode::BadKey, &sort.table, &sort.of_name))?
        {
            Stored::Null => Ok(Stored::Null),
            Stored::Bytes => {
                out.extend_from_slice(&sort.key_of(&bytes, ErrorCode::BadKey)?);
                Ok(Stored::Bytes)
            }
        }
    }

    /// The name of a column for people: that of its column for a sort key, `None` for one that they don't know.
    pub fn name_of(&self, definition: &TableDefinition, column: ColumnId) -> Option<String> {
        let described = &definition.columns[usize::from(column.0)];
        match self.sort_columns.iter().find(|sort| sort.id == column) {
            Some(sort) => Some(sort.of_name.clone()),
            None => (!described.is_hidden()).then(|| described.name.clone()),
        }
    }
}

impl SortColumn {
    #[cold]
    fn needs_sql(&self) -> Error {
        let why = format!(
            "column '{}': it is in a key, and its collation, by which keys are found and compared, is known to SQL only",
            self.of_name
        );
        needs_sql(&self.table, &why)
    }

    fn key_of(&self, value: &[u8], misfit_code: ErrorCode) -> Result<Vec<u8>> {
        let mut key = Vec::new();
        if !self.how.write(value, &mut key) {
            return Err(self.needs_sql());
        }
        if key.len() > self.bytes_max {
            let misfit = Misfit::new(format!(
                "its sort key has {} bytes; the keys that it is in have room for {}",
                key.len(),
                self.bytes_max
            ));
            return Err(misfit.at(misfit_code, &self.table, &self.of_name));
        }
        Ok(key)
    }
}

/// Checks a value that its type allows.
fn check_value(values: Values, column_type: ColumnType, bytes: &[u8]) -> Result<(), Misfit> {
    let number = || {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(wide)
    };
    // Spaces behind a text of fixed size are no part of it.
    let bytes =
        if matches!(column_type, ColumnType::Char { .. }) { load_bytes(column_type, bytes)? } else { bytes };
    match values {
        Values::Any | Values::OfSqlOnly | Values::Generated => Ok(()),
        Values::Enum { members } => match number() {
            number if (1..=u64::from(members)).contains(&number) => Ok(()),
            number => Err(Misfit::new(format!("{number} is no member of the ENUM, which has {members}"))),
        },
        Values::Set { members } => match number() & !members {
            0 => Ok(()),
            _ => Err(Misfit::new(format!("{} has members, or bits, that the column has not", number()))),
        },
        Values::Finite | Values::NotNegative => check_number(values, column_type, bytes),
        Values::Utf8 { char_bytes, chars_max, bytes_max } => {
            let text = core::str::from_utf8(bytes).map_err(|_| Misfit::new("the bytes are no UTF-8"))?;
            if char_bytes < 4 && text.chars().any(|c| c.len_utf8() > usize::from(char_bytes)) {
                return Err(Misfit::new("it has characters of four bytes, which utf8mb3 has not"));
            }
            check_length(text.chars().count(), chars_max, "characters")?;
            check_length(bytes.len(), bytes_max, "bytes")
        }
        Values::Ascii { chars_max } => {
            if !bytes.is_ascii() {
                return Err(Misfit::new("only ASCII is the same in its character set; use SQL for others"));
            }
            check_length(bytes.len(), chars_max, "characters")
        }
        Values::Bytes { bytes_max } => check_length(bytes.len(), bytes_max, "bytes"),
    }
}

fn check_length(length: usize, most: u32, what: &str) -> Result<(), Misfit> {
    match length > most as usize {
        true => Err(Misfit::new(format!("it has {length} {what}; {most} are allowed"))),
        false => Ok(()),
    }
}

fn check_number(values: Values, column_type: ColumnType, bytes: &[u8]) -> Result<(), Misfit> {
    let number = match column_type {
        ColumnType::Float => bytes.first_chunk().map_or(0.0, |bytes| f64::from(f32::from_le_bytes(*bytes))),
        ColumnType::Double => bytes.first_chunk().map_or(0.0, |bytes| f64::from_le_bytes(*bytes)),
        // The first bit of a decimal is set unless it is negative.
        _ if bytes.first().is_some_and(|first| first & 0x80 == 0) => -1.0,
        _ => 0.0,
    };
    if !number.is_finite() {
        return Err(Misfit::new("NaN and infinity are no numbers of SQL"));
    }
    match number < 0.0 && values == Values::NotNegative {
        true => Err(Misfit::new("it is negative, and the column is UNSIGNED")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn checked(values: Values, column_type: ColumnType, bytes: &[u8]) -> Result<(), String> {
        check_value(values, column_type, bytes).map_err(|misfit| misfit.to_string())
    }

    #[test]
    fn values_that_sql_would_not_have_made_are_named() {
        let tiny = ColumnType::Integer { bytes: 1, signed: false };
        let members = Values::Enum { members: 3 };
        assert_eq!(checked(members, tiny, &[3]), Ok(()));
        assert_eq!(checked(members, tiny, &[0]), Err("0 is no member of the ENUM, which has 3".into()));
        assert!(checked(members, tiny, &[4]).is_err());
        let set = Values::Set { members: 0b101 };
        assert!(checked(set, tiny, &[5]).is_ok() && checked(set, tiny, &[2]).is_err());
        let decimal = ColumnType::Decimal { precision: 4, scale: 0 };
        assert!(checked(Values::NotNegative, decimal, &[0x80, 5]).is_ok());
        assert!(checked(Values::NotNegative, decimal, &[0x7f, 0xfa]).is_err());
        let double = |value: f64| checked(Values::NotNegative, ColumnType::Double, &value.to_le_bytes());
        assert!(double(1.5).is_ok() && double(-1.5).is_err() && double(f64::NAN).is_err());
        let nan = checked(Values::Finite, ColumnType::Float, &f32::INFINITY.to_le_bytes());
        assert_eq!(nan, Err("NaN and infinity are no numbers of SQL".into()));
        let text = ColumnType::VarChar { bytes_max: 12 };
        let utf8 = |char_bytes| Values::Utf8 { char_bytes, chars_max: 3, bytes_max: 9 };
        assert_eq!(checked(utf8(4), text, "äöü".as_bytes()), Ok(()));
        assert_eq!(checked(utf8(4), text, b"abcd"), Err("it has 4 characters; 3 are allowed".into()));
        assert!(checked(utf8(4), text, b"\xff").is_err() && checked(utf8(3), text, "😀".as_bytes()).is_err());
        let ascii = Values::Ascii { chars_max: 3 };
        assert!(checked(ascii, text, b"abc").is_ok() && checked(ascii, text, "ä".as_bytes()).is_err());
        assert!(checked(Values::Bytes { bytes_max: 2 }, ColumnType::Blob, &[1, 2, 3]).is_err());
    }
}
