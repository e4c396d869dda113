//! Checks that `vinga_engine.h` and the Rust side agree: each struct has the same fields in the same order and of the
//! same types; each entry has the same parameters and result; each named number has the same value. Both are parsed as
//! texts, so that nothing has to be generated or written a third time.

use super::super::{INTERFACE, NAMES};
use std::collections::BTreeMap;

const HEADER: &str = include_str!("../../../../plugin/vinga_engine.h");
/// The files of the Rust side that contain structs, entries and numbers.
const SOURCES: [&str; 10] = [
    include_str!("../mod.rs"),
    include_str!("../layout.rs"),
    include_str!("../sessions.rs"),
    include_str!("../definitions.rs"),
    include_str!("../tables.rs"),
    include_str!("../cursors.rs"),
    include_str!("../information.rs"),
    include_str!("../../server.rs"),
    include_str!("../../failure.rs"),
    include_str!("../../cursor/direct.rs"),
];

/// A function: the types of its parameters, and of its result.
type Signature = (Vec<String>, String);

/// A source text without comments; for Rust, also without attributes.
fn bare(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        out.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, behind)| behind);
    }
    out.push_str(rest);
    let lines = out.lines().map(|line| line.split("//").next().unwrap_or(""));
    lines.filter(|line| !line.trim_start().starts_with("#[")).collect::<Vec<_>>().join("\n")
}

/// `direct_change` as `DirectChange`.
fn camel(name: &str) -> String {
    let part = |part: &str| part[..1].to_uppercase() + &part[1..];
    name.split('_').map(part).collect()
}

/// A C type without `const`; pointers begin with a star.
fn c_type(text: &str) -> String {
    let stars = text.matches('*').count();
    let name = text.replace("const", "").replace('*', "");
    let plain = match name.trim() {
        "uint8_t" | "char" => "u8".to_owned(),
        "uint16_t" => "u16".to_owned(),
        "uint32_t" => "u32".to_owned(),
        "uint64_t" => "u64".to_owned(),
        "int" | "int32_t" => "i32".to_owned(),
        "size_t" => "usize".to_owned(),
        "void" => "void".to_owned(),
        "vinga_text" | "vinga_bytes" => "Slice".to_owned(),
        "vinga_table" => "OpenTable".to_owned(),
        other => camel(other.strip_prefix("vinga_").unwrap_or(other)),
    };
    "*".repeat(stars) + &plain
}

/// A Rust type in the form of [`c_type`]: references, boxes and nullable values are pointers.
fn rust_type(text: &str) -> String {
    let text = text.trim();
    for pointer in ["&mut ", "&", "*const ", "*mut ", "Box<", "NonNull<"] {
        if let Some(target) = text.strip_prefix(pointer) {
            return "*".to_owned() + &rust_type(target.trim_end_matches('>'));
        }
    }
    if let Some(inner) = text.strip_prefix("Option<") {
        return rust_type(inner.strip_suffix('>').unwrap_or(inner));
    }
    match text.rsplit("::").next().unwrap_or(text) {
        "RecordIn" | "RecordOut" => "*u8".to_owned(),
        "c_void" | "()" | "" => "void".to_owned(),
        "Collation" => "*void".to_owned(),
        name => name.to_owned(),
    }
}

/// Splits a text that begins with a bracket into the part within the brackets and the part behind them.
fn within(text: &str) -> (&str, &str) {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        depth += i32::from("({".contains(c)) - i32::from(")}".contains(c));
        if depth == 0 {
            return (&text[1..at], &text[at + 1..]);
        }
    }
    panic!("no end of {text}");
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty() && *part != "void")
}

/// A parameter or field in C: its type and its name.
fn c_declaration(text: &str) -> (String, String) {
    let at = text.rfind(|c: char| !c.is_alphanumeric() && c != '_').expect("a type before the name");
    (c_type(&text[..=at]), text[at + 1..].to_owned())
}

/// Parses `(*name)(parameters)` behind the type of a result.
fn c_pointer(text: &str) -> Option<(String, Signature)> {
    let (result, rest) = text.split_once("(*")?;
    let (name, rest) = rest.split_once(')')?;
    let parameters = list(within(rest).0).map(|parameter| c_declaration(parameter).0).collect();
    Some((name.to_owned(), (parameters, c_type(result))))
}

/// The fields of the header's structs by their Rust names; functions among them as `fn`.
fn c_structs() -> BTreeMap<String, Vec<(String, String)>> {
    let header = bare(HEADER);
    let structs = header.split("typedef struct ").skip(1).filter_map(|text| {
        let (name, rest) = text.split_once(' ').filter(|(_, rest)| rest.starts_with('{'))?;
        let mut fields = Vec::new();
        for field in within(rest).0.split(';').map(str::trim).filter(|field| !field.is_empty()) {
            if let Some((name, signature)) = c_pointer(field) {
                fields.push((name, format!("fn {signature:?}")));
                continue;
            }
            let mut names = field.split(',');
            let (of_all, first) = c_declaration(names.next()?.trim());
            fields.push((first, of_all.clone()));
            fields.extend(names.map(|name| (name.trim().to_owned(), of_all.clone())));
        }
        Some((c_type(name), fields))
    });
    structs.collect()
}

fn rust_signature(parameters: &str, behind: &str) -> Signature {
    let types = list(parameters).map(|one| rust_type(one.split_once(": ").map_or(one, |(_, of)| of)));
    let result = behind.trim_start().strip_prefix("->").and_then(|rest| rest.split(['{', ',', '\n']).next());
    (types.collect(), rust_type(result.unwrap_or("")))
}

fn rust_structs() -> BTreeMap<String, Vec<(String, String)>> {
    let mut structs = BTreeMap::new();
    for source in SOURCES.map(bare) {
        for text in source.split("pub struct ").skip(1) {
            let Some((name, rest)) = text.split_once(' ').filter(|(_, rest)| rest.starts_with('{')) else {
                continue;
            };
            let fields = within(rest).0.lines().map(|line| line.trim().trim_end_matches(','));
            let field = |line: &str| {
                let (name, of) = line.trim_start_matches("pub ").split_once(": ")?;
                let of = match of.split_once("fn") {
                    Some((_, rest)) => {
                        let (parameters, behind) = within(rest);
                        format!("fn {:?}", rust_signature(parameters, behind))
                    }
                    None => rust_type(of),
                };
                Some((name.to_owned(), of))
            };
            structs.insert(name.to_owned(), fields.filter_map(field).collect());
        }
    }
    structs
}

/// The entries' signatures by their names.
fn rust_entries() -> BTreeMap<String, Signature> {
    let mut entries = BTreeMap::new();
    for source in SOURCES.map(bare) {
        for text in source.split("unsafe extern \"C\" fn ").skip(1) {
            let Some((name, rest)) = text.find('(').map(|at| text.split_at(at)) else { continue };
            let (parameters, behind) = within(rest);
            entries.insert(name.to_owned(), rust_signature(parameters, behind));
        }
        for block in source.split("\nentries! ").skip(1) {
            for text in within(block).0.split("    fn ").skip(1) {
                let Some((name, rest)) = text.find('(').map(|at| text.split_at(at)) else { continue };
                let (before, after) = within(rest).0.split_once(';').expect("a session");
                let after = after.split_once(',').map_or("", |(_, after)| after);
                let parameters = format!("{before}, session: &mut Session, {after}");
                entries.insert(name.to_owned(), rust_signature(&parameters, "-> i32"));
            }
        }
    }
    entries
}

#[test]
fn structs_have_the_same_fields() {
    let (theirs, ours) = (c_structs(), rust_structs());
    let mut compared = 0;
    for (name, fields) in theirs.iter().filter(|(name, _)| *name != "Engine") {
        let here = if name == "Text" || name == "Bytes" { "Slice" } else { name };
        assert_eq!(ours.get(here), Some(fields), "struct {name}");
        compared += 1;
    }
    assert!(compared >= 10, "{compared} structs were found");
}

#[test]
fn entries_have_the_same_types_in_the_same_order() {
    let engine = &c_structs()["Engine"];
    let beginning: Vec<_> = engine[..2].iter().map(|(name, of)| (name.as_str(), of.as_str())).collect();
    assert_eq!(beginning, [("interface", "u32"), ("bytes", "u32")]);
    let names: Vec<&str> = engine[2..].iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, NAMES);
    let ours = rust_entries();
    for (name, theirs) in &engine[2..] {
        let ours = ours.get(name).unwrap_or_else(|| panic!("{name} is no entry"));
        assert_eq!(&format!("fn {ours:?}"), theirs, "{name}");
    }
}

/// Named numbers have equal values on both sides. The doc comment of a constant here begins with its name in the
/// header.
#[test]
fn numbers_are_the_same() {
    let header = bare(HEADER);
    let value_in_header = |name: &str| {
        let at = header.find(&format!("{name} ")).unwrap_or_else(|| panic!("{name} is not in the header"));
        let behind = header[at + name.len()..].trim_start_matches([' ', '=']);
        behind.split([',', ' ', '}', '\n']).next().expect("a value").to_owned()
    };
    assert_eq!(value_in_header("VINGA_INTERFACE"), INTERFACE.to_string());
    let mut compared = 0;
    for source in SOURCES {
        let mut lines = source.lines();
        while let Some(line) = lines.next() {
            let Some(name) = line.trim().strip_prefix("/// ").and_then(|doc| doc.split('`').nth(1)) else {
                continue;
            };
            let is_number = name.starts_with("VINGA_") && name.chars().all(|c| c.is_uppercase() || c == '_');
            let constant = lines.clone().next().filter(|line| is_number && line.contains("const "));
            let Some((_, value)) = constant.and_then(|constant| constant.split_once(" = ")) else { continue };
            let value = match value.trim_end_matches(';') {
                "u32::MAX" => "UINT32_MAX".to_owned(),
                "u64::MAX" => "UINT64_MAX".to_owned(),
                "usize::MAX - 1" => "(SIZE_MAX".to_owned(),
                number => number.replace('_', ""),
            };
            assert_eq!(value_in_header(name), value, "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 9, "{compared} numbers were found");
    let code = |code: vinga::ErrorCode| (code as i32).to_string();
    assert_eq!(value_in_header("VINGA_ERROR_OUT_OF_OPERATIONS"), code(vinga::ErrorCode::OutOfOperations));
    assert_eq!(value_in_header("VINGA_ERROR_NOT_SUPPORTED"), code(vinga::ErrorCode::NotSupportedYet));
}
