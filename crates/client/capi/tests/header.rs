//! The numbers in `vinga.h` are those of the library.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use vinga::{ErrorCode, IndexKind};
use vinga_capi::call::{WAIT_EXCEPT, WAIT_READ, WAIT_TIMEOUT, WAIT_WRITE};
use vinga_capi::definition::index_kind_number;
use vinga_capi::failure::Misuse;
use vinga_capi::range::{CBound, CRange};
use vinga_capi::schema_events::{CSchemaEvent, news};
use vinga_capi::table::{CColumn, CDescription, CIndex};
use vinga_capi::transaction::lock_wait;
use vinga_capi::value::{CDateTime, CValue, kind};

fn definitions() -> BTreeMap<String, i64> {
    let header = include_str!("../include/vinga.h");
    let definition = |line: &str| {
        let (name, value) = line.strip_prefix("#define ")?.split_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    header.lines().filter_map(definition).collect()
}

/// `OutOfTables` as `OUT_OF_TABLES`.
fn shouted(name: &str) -> String {
    let mut shouted = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            shouted.push('_');
        }
        shouted.extend(letter.to_uppercase());
    }
    shouted
}

#[test]
fn errors() {
    let codes = ErrorCode::ALL.iter().map(|&code| (format!("{code:?}"), code as i64, code.sentence()));
    let misuses =
        Misuse::ALL.iter().map(|(misuse, name)| ((*name).to_owned(), *misuse as i64, misuse.sentence()));
    let wanted: BTreeMap<String, (i64, &str)> = codes
        .chain(misuses)
        .map(|(name, number, sentence)| (format!("VINGA_ERROR_{}", shouted(&name)), (number, sentence)))
        .collect();
    let declared: BTreeMap<String, i64> =
        definitions().into_iter().filter(|(name, _)| name.starts_with("VINGA_ERROR_")).collect();
    let numbers: BTreeMap<String, i64> =
        wanted.iter().map(|(name, (number, _))| (name.clone(), *number)).collect();
    assert_eq!(declared, numbers);
    for (name, (number, sentence)) in wanted {
        let lines = format!("/** {sentence} */\n#define {name} {number}\n");
        assert!(include_str!("../include/vinga.h").contains(&lines), "{lines}");
    }
}

#[test]
fn kinds_and_waits() {
    let declared = definitions();
    for (name, number) in [
        ("NULL", kind::NULL),
        ("I64", kind::I64),
        ("U64", kind::U64),
        ("F64", kind::F64),
        ("TEXT", kind::TEXT),
        ("BYTES", kind::BYTES),
        ("DECIMAL", kind::DECIMAL),
        ("DATE", kind::DATE),
        ("TIME", kind::TIME),
        ("DATETIME", kind::DATETIME),
        ("TIMESTAMP", kind::TIMESTAMP),
        ("BIT", kind::BIT),
        ("LOCK_NO_WAIT", lock_wait::NO_WAIT),
        ("LOCK_SKIP_LOCKED", lock_wait::SKIP_LOCKED),
        ("LOCK_ELSE_COMMITTED", lock_wait::ELSE_COMMITTED),
        ("LOCK_WAIT_DEFAULT", lock_wait::DEFAULT as i32),
        ("LOCK_WAIT_SKIP", lock_wait::SKIP as i32),
        ("WAIT_READ", WAIT_READ),
        ("WAIT_WRITE", WAIT_WRITE),
        ("WAIT_EXCEPT", WAIT_EXCEPT),
        ("WAIT_TIMEOUT", WAIT_TIMEOUT),
        ("SCHEMA_NOTHING", news::NOTHING),
        ("SCHEMA_EVERYTHING", news::EVERYTHING),
        ("SCHEMA_CREATE_TABLE", news::CREATE_TABLE),
        ("SCHEMA_DROP_TABLE", news::DROP_TABLE),
        ("SCHEMA_RENAME_TABLE", news::RENAME_TABLE),
        ("SCHEMA_TRUNCATE_TABLE", news::TRUNCATE_TABLE),
        ("SCHEMA_ALTER_TABLE", news::ALTER_TABLE),
        ("SCHEMA_CREATE_DATABASE", news::CREATE_DATABASE),
        ("SCHEMA_ALTER_DATABASE", news::ALTER_DATABASE),
        ("SCHEMA_DROP_DATABASE", news::DROP_DATABASE),
        ("INDEX_ORDERED", index_kind_number(IndexKind::Ordered)),
        ("INDEX_UNIQUE", index_kind_number(IndexKind::Unique)),
    ] {
        assert_eq!(declared.get(&format!("VINGA_{name}")), Some(&i64::from(number)), "{name}");
    }
}

/// The C side says the same of its structures where they are used (`tests/c/misuse.c` of `libvinga`).
#[test]
fn layouts() {
    assert_eq!((size_of::<CValue>(), offset_of!(CValue, payload)), (24, 8));
    assert_eq!((size_of::<CDateTime>(), offset_of!(CDateTime, microseconds)), (16, 8));
    assert_eq!((size_of::<CColumn>(), offset_of!(CColumn, key_place)), (20, 16));
    assert_eq!((size_of::<CBound>(), size_of::<CRange>()), (24, 48));
    assert_eq!((size_of::<CDescription>(), offset_of!(CDescription, partitions)), (40, 36));
    assert_eq!((size_of::<CIndex>(), offset_of!(CIndex, columns)), (12, 8));
    assert_eq!((size_of::<CSchemaEvent>(), offset_of!(CSchemaEvent, name)), (56, 40));
}

/// The names of functions in a text.
fn functions(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("vinga_")).collect()
}

/// `docs/clients.md` names every call, and those that may wait where they belong.
#[test]
fn the_table_of_all_calls_is_complete() {
    let document = include_str!("../../../../docs/clients.md");
    let (_, table) = document.split_once("### All calls\n").expect("it has the table");
    let column = |at: usize| -> BTreeSet<&str> {
        let rows = table.lines().filter(|line| line.starts_with('|'));
        rows.flat_map(|row| functions(row.split('|').nth(at).expect("it has three columns"))).collect()
    };
    let declared: BTreeSet<&str> = include_str!("../include/vinga.h")
        .split("VINGA_API ")
        .skip(1)
        .filter_map(|text| text.split('(').next()?.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("vinga_"))
        .collect();
    let form = |name: &str, form: &str| declared.contains(format!("{name}_{form}").as_str());
    let waiting: BTreeSet<&str> = declared.iter().copied().filter(|name| form(name, "start")).collect();
    let others: BTreeSet<&str> = declared
        .iter()
        .copied()
        .filter(|name| !waiting.contains(name))
        .filter(|name| {
            let base = name.strip_suffix("_start").or_else(|| name.strip_suffix("_cont"));
            !base.is_some_and(|base| waiting.contains(base))
        })
        .collect();
    assert!(waiting.iter().all(|name| form(name, "cont")));
    assert_eq!(column(3), waiting);
    assert_eq!(column(2), others);
}
