//! Column lists as a person writes them: `id bigint unsigned, name varchar(40) null, primary key (id), index by_name
//! (name)`.
//!
//! Columns are NOT NULL unless they say `null`. Types are SQL's, sizes in bytes. Indexes are `index NAME (a, b desc)`
//! and `unique index NAME (a, b)`.

use vinga::{ColumnId, ColumnType, Direction, IndexDefinition, IndexKind, NewTable, TableDefinition};

/// Reads a column list.
///
/// # Errors
/// A text that quotes the piece and says what is allowed.
pub fn parse(table: &str, columns: &str) -> Result<TableDefinition, String> {
    let mut new = NewTable::new(table);
    let mut has_key = false;
    for piece in split(columns) {
        let words: Vec<&str> = piece.split_whitespace().collect();
        if is_primary_key(piece) {
            let (_, list) =
                piece.split_once('(').ok_or_else(|| format!("'{piece}': expected primary key (a, b)"))?;
            let names: Vec<&str> = list.trim_end_matches([')', ' ']).split(',').map(str::trim).collect();
            new = new.primary_key(&names);
            has_key = true;
            continue;
        }
        if let Some(index) = index_in(piece)? {
            new = index.add_to(new);
            continue;
        }
        let [name, type_words @ ..] = words.as_slice() else {
            return Err("an empty column; expected: name type [null]".to_owned());
        };
        let mut type_words = lower(type_words);
        let nullable = type_words.last().is_some_and(|w| w == "null") && !type_words.ends_with(&not_null());
        if nullable {
            type_words.pop();
        } else if type_words.ends_with(&not_null()) {
            type_words.truncate(type_words.len() - 2);
        }
        let column_type = column_type(&type_words.join(" "))
            .ok_or_else(|| format!("'{piece}': '{}' is no type; allowed: {TYPES}", type_words.join(" ")))?;
        new = if nullable { new.nullable_column(name, column_type) } else { new.column(name, column_type) };
    }
    if !has_key {
        return Err("no primary key; add: primary key (column, …)".to_owned());
    }
    new.finish().map_err(|error| error.to_string())
}

const TYPES: &str = "tinyint, smallint, mediumint, int, bigint (each also unsigned), float, double, decimal(p,s), \
                     bit(n), date, time(f), datetime(f), timestamp(f), year, char(n), binary(n), varchar(n), \
                     varbinary(n), text, blob";

/// Whether the words before the parenthesis are `primary key`.
fn is_primary_key(piece: &str) -> bool {
    let head = piece.split('(').next().unwrap_or_default();
    matches!(&lower(&head.split_whitespace().collect::<Vec<_>>())[..], [a, b, ..] if a == "primary" && b == "key")
}

/// An index as it was written.
struct WrittenIndex<'a> {
    kind: IndexKind,
    name: &'a str,
    columns: Vec<(&'a str, Direction)>,
}

impl WrittenIndex<'_> {
    fn add_to(&self, table: NewTable) -> NewTable {
        match self.kind {
            IndexKind::Ordered => table.ordered_index_by(self.name, &self.columns),
            IndexKind::Unique => {
                let columns: Vec<&str> = self.columns.iter().map(|(column, _)| *column).collect();
                table.unique_index(self.name, &columns)
            }
        }
    }
}

/// The index that a piece describes, or `None` if it is something else: columns may be called index or unique.
fn index_in(piece: &str) -> Result<Option<WrittenIndex<'_>>, String> {
    let Some((head, list)) = piece.split_once('(') else { return Ok(None) };
    let words: Vec<&str> = head.split_whitespace().collect();
    let (kind, name) = match (&lower(&words)[..], &words[..]) {
        ([unique, index, _], [_, _, name]) if unique == "unique" && index == "index" => {
            (IndexKind::Unique, *name)
        }
        ([index, _], [_, name]) if index == "index" => (IndexKind::Ordered, *name),
        _ => return Ok(None),
    };
    let list = list.trim();
    // A column of such a type has a number there: `index varchar(20)`.
    if list.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(None);
    }
    let expected = || format!("'{piece}': expected [unique] index NAME (column [desc], …)");
    let list = list.strip_suffix(')').ok_or_else(expected)?;
    let column = |column: &'_ str| {
        let words: Vec<&str> = column.split_whitespace().collect();
        Some(match words[..] {
            [_] => Direction::Ascending,
            [_, direction] if direction.eq_ignore_ascii_case("asc") => Direction::Ascending,
            [_, direction] if direction.eq_ignore_ascii_case("desc") && kind == IndexKind::Ordered => {
                Direction::Descending
            }
            _ => return None,
        })
    };
    let columns: Option<Vec<(&str, Direction)>> =
        list.split(',').map(|written| Some((written.split_whitespace().next()?, column(written)?))).collect();
    Ok(Some(WrittenIndex { kind, name, columns: columns.ok_or_else(expected)? }))
}

fn not_null() -> [String; 2] {
    ["not".to_owned(), "null".to_owned()]
}

fn lower(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_lowercase()).collect()
}

/// Splits at commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut pieces, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                pieces.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(text[begin..].trim());
    pieces
}

fn column_type(text: &str) -> Option<ColumnType> {
    let (name, arguments) = match text.split_once('(') {
        Some((name, rest)) => (name.trim(), rest.strip_suffix(')')?),
        None => (text, ""),
    };
    let numbers: Vec<u16> = arguments
        .split(',')
        .filter(|a| !a.trim().is_empty())
        .map(|a| a.trim().parse().ok())
        .collect::<Option<_>>()?;
    let integer =
        |bytes| move |signed| Some(ColumnType::Integer { bytes, signed }).filter(|_| arguments.is_empty());
    let fraction = || match numbers[..] {
        [] => Some(0),
        [f] => u8::try_from(f).ok(),
        _ => None,
    };
    let (name, signed) = match name.strip_suffix(" unsigned") {
        Some(name) => (name, false),
        None => (name, true),
    };
    match (name, numbers.as_slice()) {
        ("tinyint", _) => integer(1)(signed),
        ("smallint", _) => integer(2)(signed),
        ("mediumint", _) => integer(3)(signed),
        ("int" | "integer", _) => integer(4)(signed),
        ("bigint", _) => integer(8)(signed),
        _ if !signed => None,
        ("float", []) => Some(ColumnType::Float),
        ("double", []) => Some(ColumnType::Double),
        ("decimal", &[precision, scale]) => {
            Some(ColumnType::Decimal { precision: precision.try_into().ok()?, scale: scale.try_into().ok()? })
        }
        ("bit", &[bits]) => Some(ColumnType::Bit { bits: bits.try_into().ok()? }),
        ("date", []) => Some(ColumnType::Date),
        ("time", _) => Some(ColumnType::Time { fraction: fraction()? }),
        ("datetime", _) => Some(ColumnType::DateTime { fraction: fraction()? }),
        ("timestamp", _) => Some(ColumnType::Timestamp { fraction: fraction()? }),
        ("year", []) => Some(ColumnType::Year),
        ("char", &[bytes]) => Some(ColumnType::Char { bytes }),
        ("binary", &[bytes]) => Some(ColumnType::Binary { bytes }),
        ("varchar", &[bytes_max]) => Some(ColumnType::VarChar { bytes_max }),
        ("varbinary", &[bytes_max]) => Some(ColumnType::VarBinary { bytes_max }),
        ("text", []) => Some(ColumnType::Text),
        ("blob", []) => Some(ColumnType::Blob),
        _ => None,
    }
}

/// A definition in the form that [`parse`] reads.
pub fn describe(definition: &TableDefinition) -> String {
    let mut lines: Vec<String> = definition
        .visible_columns()
        .iter()
        .map(|c| format!("  {} {}{}", c.name, c.column_type, if c.nullable { " null" } else { "" }))
        .collect();
    let key = key_of(definition);
    if !key.is_empty() {
        lines.push(format!("  primary key ({})", key.join(", ")));
    }
    for index in &definition.indexes {
        let kind = match index.kind {
            IndexKind::Ordered => "index",
            IndexKind::Unique => "unique index",
        };
        let columns: Vec<String> = columns_of(definition, index)
            .map(|(name, direction)| match direction {
                Direction::Ascending => name.to_owned(),
                Direction::Descending => format!("{name} desc"),
            })
            .collect();
        lines.push(format!("  {kind} {} ({})", index.name, columns.join(", ")));
    }
    lines.join(",\n")
}

/// A definition for programs.
pub fn as_json(definition: &TableDefinition) -> serde_json::Value {
    let column = |column: &vinga::ColumnDefinition| {
        serde_json::json!({
            "name": column.name, "type": column.column_type.to_string(), "nullable": column.nullable,
        })
    };
    let index = |index: &IndexDefinition| {
        let columns: Vec<serde_json::Value> = columns_of(definition, index)
            .map(|(name, direction)| {
                serde_json::json!({ "name": name, "descending": direction == Direction::Descending })
            })
            .collect();
        let unique = index.kind == IndexKind::Unique;
        serde_json::json!({ "name": index.name, "unique": unique, "columns": columns })
    };
    let key = key_of(definition);
    serde_json::json!({
        "table": definition.name,
        "columns": definition.visible_columns().iter().map(column).collect::<Vec<_>>(),
        "primary_key": key,
        "indexes": definition.indexes.iter().map(index).collect::<Vec<_>>(),
    })
}

/// The columns of the primary key; none if a SQL table has no primary key of its own.
fn key_of(definition: &TableDefinition) -> Vec<&str> {
    definition.primary_key.iter().filter_map(|&id| name_of(definition, id)).collect()
}

/// The name of a column of a key, as users know it.
fn name_of(definition: &TableDefinition, column: ColumnId) -> Option<&str> {
    let shown = definition.visible_column(column)?;
    Some(definition.columns[usize::from(shown.0)].name.as_str())
}

fn columns_of<'a>(
    definition: &'a TableDefinition,
    index: &'a IndexDefinition,
) -> impl Iterator<Item = (&'a str, Direction)> {
    index.columns.iter().filter_map(|part| Some((name_of(definition, part.column)?, part.direction)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_described_is_read_back() {
        let text = "id bigint unsigned, n int null, p decimal(18,4) not null, d datetime(3) null, b bit(5), \
                    c char(10), v varbinary(300) null, index varchar(10), primary key (id, c), index by_n (n, d desc), \
                    UNIQUE Index u (p)";
        let definition = parse("d.t", text).unwrap();
        assert_eq!((definition.columns.len(), definition.indexes.len()), (8, 2));
        let json = as_json(&definition);
        assert_eq!(json["indexes"][0]["columns"][1], serde_json::json!({ "name": "d", "descending": true }));
        assert_eq!((&json["indexes"][1]["unique"], &json["primary_key"][1]), (&true.into(), &"c".into()));
        assert_eq!(parse("d.t", &describe(&definition)), Ok(definition));
    }

    #[test]
    fn a_key_needs_no_blank_before_its_columns() {
        let with = |key: &str| parse("d.t", &format!("id int, n int, {key}"));
        let definition = with("primary key (id, n)").unwrap();
        for same in ["primary key(id,n)", "PRIMARY  Key( id , n )"] {
            assert_eq!(with(same).as_ref(), Ok(&definition), "{same}");
        }
    }

    #[test]
    fn errors_are_named() {
        let error = |text: &str| parse("d.t", text).unwrap_err();
        assert_eq!(error("id bigint"), "no primary key; add: primary key (column, …)");
        assert!(
            error("id bigger, primary key (id)")
                .starts_with("'id bigger': 'bigger' is no type; allowed: tinyint")
        );
        assert!(error("id int(4), primary key (id)").contains("is no type"));
        assert!(error("id int null, primary key (id)").contains("a key is never NULL"));
        assert!(error("id int, primary key (x)").contains('x'));
        assert!(error("id int, primary key (id), index i (x)").contains('x'));
        for wrong in
            ["index i (id", "index i ()", "index i (id, )", "index i (id up)", "unique index i (id desc)"]
        {
            let error = error(&format!("id int, primary key (id), {wrong}"));
            assert!(error.contains("expected [unique] index NAME"), "{wrong}: {error}");
        }
    }
}
