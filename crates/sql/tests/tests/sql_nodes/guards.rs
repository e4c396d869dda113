//! No exception passes through the frames of the server: the macros of `guard.h` work, and all functions that the
//! server or the Rust side calls use them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use vinga_sql_tests::{run, source};

/// Functions of the plugin, other than the handler's, that the server calls by a pointer, or that the Rust side calls.
const CALLED: [&str; 25] = [
    "start",
    "show_status",
    "log_line",
    "take_status",
    "take_definition",
    "take_table_name",
    "take_row",
    "fill",
    "sort_key",
    "forget_table",
    "cached_tables",
    "forget_cached_table",
    "remove_definitions",
    "drop_triggers",
    "make_database",
    "remove_database",
    "new_databases",
    "drop_by_path",
    "discover_table",
    "discover_table_names",
    "discover_table_existence",
    "drop_database",
    "external_lock",
    "write_row",
    "open",
];

fn plugin() -> PathBuf {
    source("../plugin")
}

/// The sources of the plugin with this file name extension.
fn sources(ending: &str) -> Vec<(String, String)> {
    let files =
        fs::read_dir(plugin()).expect("the plugin's folder").map(|entry| entry.expect("a file").path());
    let mut sources: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == ending))
        .map(|path| (path.display().to_string(), fs::read_to_string(&path).expect("a text")))
        .collect();
    sources.sort();
    sources
}

/// Names of the handler's functions that the server calls and that are not defined within the class.
fn overrides() -> Vec<String> {
    let header = fs::read_to_string(plugin().join("ha_vinga.h")).expect("the class");
    let statements = header.split(';').filter(|statement| statement.trim_end().ends_with("override"));
    // After the last `}` of functions that precede it.
    let name = |statement: &str| {
        let (before, _) = statement.rsplit('}').next()?.split_once('(')?;
        Some(before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next()?.to_owned())
    };
    statements.filter_map(name).collect()
}

/// The heads of all functions with this name that are defined at the left margin: the text up to the opening brace, and
/// the text after the closing one.
fn definitions<'a>(text: &'a str, name: &str) -> Vec<(&'a str, &'a str)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(&format!("{name}(")) {
        let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = &text[start..at];
        let is_head =
            before.starts_with(|c: char| c.is_alphabetic()) && !before.contains(['=', '(', ';', '.']);
        let is_name = before.ends_with([' ', ':', '*']);
        let (Some(brace), semicolon) = (text[at..].find('{'), text[at..].find(';')) else { continue };
        if !is_head || !is_name || semicolon.is_some_and(|semicolon| semicolon < brace) {
            continue;
        }
        let body = &text[at + brace..];
        let line = body.split('\n').next().unwrap_or(body);
        let behind = match body.find("\n}") {
            Some(end) if line.matches('{').count() != line.matches('}').count() => {
                body[end + 2..].split('\n').next().unwrap_or("")
            }
            _ => line.rsplit('}').next().unwrap_or(""),
        };
        found.push((&text[start..at + brace], behind));
    }
    found
}

#[test]
fn all_functions_that_are_called_are_guarded() {
    // They only return numbers.
    let plain = ["table_flags", "index_flags"];
    let names = overrides();
    assert!(names.len() > 40, "{names:?}");
    let sources = sources("cc");
    let all = names.iter().map(String::as_str).chain(CALLED).filter(|name| !plain.contains(name));
    for name in all {
        let mut is_there = false;
        for (path, text) in &sources {
            for (head, behind) in definitions(text, name) {
                let is_guarded = head.trim_end().ends_with("try")
                    && ["OR_", "catch"].iter().any(|word| behind.trim_start().starts_with(word));
                assert!(
                    is_guarded,
                    "{path}: what {name} throws would go through the server's frames: {head}"
                );
                is_there = true;
            }
        }
        assert!(is_there, "{name} is defined nowhere");
    }
}

const PROGRAM: &str = r#"
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>
enum { HA_ERR_OUT_OF_MEM= 128, HA_ERR_INTERNAL_ERROR= 122 };
#include "guard.h"
static std::string reported;
void log_thrown(const char *what) noexcept { reported= what; }
static int memory() try { throw std::bad_alloc(); } OR_ERROR
static int length() try { std::string().reserve(std::string().max_size() + 1); return 0; } OR_ERROR
static int elements() try { std::vector<long>().at(3); return 0; } OR_ERROR
static int function() try { std::function<void()>()(); return 0; } OR_ERROR
static int number() try { throw 7; } OR_ERROR
static int good() try { return 5; } OR_ERROR
static bool other() try { throw std::bad_alloc(); } OR_RETURN(true)
static void nothing() try { throw std::bad_alloc(); } OR_NOTHING
int main() {
  int results[]= {memory(), length(), elements(), function(), number(), good(), other()};
  for (int result : results) printf("%d ", result);
  nothing();
  int inside= guarded([] { throw std::bad_alloc(); });
  printf("%d %d %s\n", inside, guarded([] {}), reported.c_str());
}
"#;

#[test]
fn what_is_thrown_becomes_a_number() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (code, program) = (folder.join("guards.cc"), folder.join("guards"));
    fs::write(&code, PROGRAM).expect("it is written");
    run(Command::new("g++")
        .args(["-std=c++17", "-Wall", "-Werror"])
        .arg("-I")
        .arg(plugin())
        .arg(&code)
        .arg("-o")
        .arg(&program));
    let said = run(&mut Command::new(&program));
    assert_eq!(said.trim_end(), "128 128 122 122 122 5 1 128 0 no exception of the library");
}
