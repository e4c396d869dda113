//! Column lists as a person writes them: `id bigint unsigned, name varchar(40) null, primary key (id)`.
//!
//! Columns are NOT NULL unless they say `null`. Types are SQL's, sizes in bytes.

use vinga::{ColumnType, NewTable, TableDefinition};

/// Reads a column list.
///
/// # Errors
/// A sentence that quotes the piece and says what is allowed.
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
                     varbinary(n)";

/// Whether the words before the parenthesis are `primary key`.
fn is_primary_key(piece: &str) -> bool {
    let head = piece.split('(').next().unwrap_or_default();
    matches!(&lower(&head.split_whitespace().collect::<Vec<_>>())[..], [a, b, ..] if a == "primary" && b == "key")
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
        .columns
        .iter()
        .map(|c| format!("  {} {}{}", c.name, c.column_type, if c.nullable { " null" } else { "" }))
        .collect();
    let key: Vec<&str> =
        definition.primary_key.iter().map(|id| definition.columns[usize::from(id.0)].name.as_str()).collect();
    lines.push(format!("  primary key ({})", key.join(", ")));
    lines.join(",\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_described_is_read_back() {
        let text = "id bigint unsigned, n int null, p decimal(18,4) not null, d datetime(3) null, b bit(5), \
                    c char(10), v varbinary(300) null, primary key (id, c)";
        let definition = parse("d.t", text).unwrap();
        assert_eq!(definition.columns.len(), 7);
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
    fn mistakes_are_named() {
        let error = |text: &str| parse("d.t", text).unwrap_err();
        assert_eq!(error("id bigint"), "no primary key; add: primary key (column, …)");
        assert!(
            error("id bigger, primary key (id)")
                .starts_with("'id bigger': 'bigger' is no type; allowed: tinyint")
        );
        assert!(error("id int(4), primary key (id)").contains("is no type"));
        assert!(error("id int null, primary key (id)").contains("a key is never NULL"));
        assert!(error("id int, primary key (x)").contains('x'));
    }
}
