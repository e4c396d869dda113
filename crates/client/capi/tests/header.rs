//! The numbers in `vinga.h` are those of the library.

use std::collections::BTreeMap;
use std::mem::offset_of;
use vinga::ErrorCode;
use vinga_capi::call::{WAIT_EXCEPT, WAIT_READ, WAIT_TIMEOUT, WAIT_WRITE};
use vinga_capi::failure::Misuse;
use vinga_capi::table::CColumn;
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
        ("WAIT_READ", WAIT_READ),
        ("WAIT_WRITE", WAIT_WRITE),
        ("WAIT_EXCEPT", WAIT_EXCEPT),
        ("WAIT_TIMEOUT", WAIT_TIMEOUT),
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
}
