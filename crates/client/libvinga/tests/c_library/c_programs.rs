//! C programs, compiled against the built library and run against a data node: the examples, all features, all errors;
//! and once more under valgrind where there is one.

use crate::support::{
    compile, declarations, has_valgrind, header, include, library, name_of, succeed, under_valgrind,
};
use std::process::Command;
use vinga::sql_rules::SqlRules;
use vinga::{
    ColumnDefinition, ColumnId, ColumnType, Direction, IndexDefinition, IndexKind, OrderColumn,
    TableDefinition,
};
use vinga_datanode::LocalNode;

fn run(name: &str) -> String {
    let program = compile(name, &[]);
    let node = LocalNode::start().expect("a small node can be started");
    let output = succeed(Command::new(program).arg(node.address()));
    String::from_utf8(output.stdout).expect("they print text")
}

#[test]
fn the_blocking_example() {
    let shown = run("bank");
    assert!(shown.contains("account 1 has only 30\n"), "{shown}");
    assert!(
        shown.contains("Bob has 170\nCleo has 100\n") || shown.contains("Cleo has 100\nBob has 170\n"),
        "{shown}"
    );
    assert!(shown.ends_with("account 1: 30\naccount 2: 170\naccount 3: 100\naccount 4: none\n"), "{shown}");
}

#[test]
fn the_event_loop_example() {
    let shown = run("event_loop");
    assert!(shown.starts_with("1000 transfers, ") && shown.ends_with("; 50000 in all accounts\n"), "{shown}");
}

#[test]
fn the_example_with_indexes() {
    let shown = run("orders");
    let lines: Vec<&str> = shown.lines().map(str::trim).collect();
    let newest = ["customer 3, day 696: A696", "customer 3, day 689: A689", "customer 3, day 682: A682"];
    assert_eq!(lines[1..4], newest, "{shown}");
    let of_range = |range| lines.iter().filter(|line| line.starts_with(&format!("range {range}:"))).count();
    assert_eq!((of_range(0), of_range(1)), (3, 2), "{shown}");
    assert!(lines.contains(&"there is no A7000") && lines.contains(&"100 orders sent"), "{shown}");
    let changes = lines.iter().skip_while(|line| **line != "changes:");
    let reported: Vec<&str> = changes.filter_map(|line| line.strip_prefix("reported: ")).collect();
    let expected = [
        "alter table shop.order",
        "rename table shop.order to shop.old_order",
        "truncate table shop.old_order",
        "drop table shop.old_order",
        "drop database shop",
    ];
    assert_eq!(reported, expected, "{shown}");
}

#[test]
fn the_example_with_indexes_in_an_event_loop() {
    let shown = run("orders_loop");
    assert!(shown.contains("customer 3: 100 orders upwards, 100 downwards\nA42 is order 42\n"), "{shown}");
    assert!(shown.ends_with("notified of 6 changes\n"), "{shown}");
}

#[test]
fn all_indexes() {
    assert_eq!(run("indexes"), "all indexes work\n");
}

#[test]
fn all_changes_of_the_schema() {
    assert_eq!(run("schema"), "all changes work\n");
}

#[test]
fn all_features() {
    assert_eq!(run("features"), "all features work\n");
}

#[test]
fn all_errors() {
    assert_eq!(run("misuse"), "all errors were reported\n");
}

/// A table as a SQL node defines it: `person(id INT PRIMARY KEY, name VARCHAR(20) UNIQUE, age INT)`.
fn node_with_sql_table() -> LocalNode {
    let column =
        |name: &str, column_type, nullable| ColumnDefinition { name: name.into(), column_type, nullable };
    let int = ColumnType::Integer { bytes: 4, signed: true };
    let definition = TableDefinition {
        name: "d.person".into(),
        columns: vec![
            column("id", int, false),
            column("name", ColumnType::VarChar { bytes_max: 80 }, true),
            column("age", int, true),
            column("$s1", ColumnType::VarBinary { bytes_max: 200 }, true),
        ],
        primary_key: vec![ColumnId(0)],
        indexes: vec![IndexDefinition {
            id: 1,
            name: "name".into(),
            columns: vec![OrderColumn { column: ColumnId(3), direction: Direction::Ascending }],
            kind: IndexKind::Unique,
        }],
        attachment: SqlRules::default().attachment(b"frm"),
        ..TableDefinition::default()
    };
    let node = LocalNode::start().expect("a small node can be started");
    let cluster = vinga::blocking::Cluster::connect(node.address()).expect("it answers");
    cluster.create_table(definition).expect("it is sound");
    node
}

#[test]
fn tables_of_sql() {
    let program = compile("sql_tables", &[]);
    let node = node_with_sql_table();
    let output = succeed(Command::new(&program).arg(node.address()));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "all changes that need SQL were refused\n");
    if has_valgrind() {
        let node = node_with_sql_table();
        succeed(under_valgrind(&program).arg(node.address()));
    }
}

/// Leaks and wrong accesses, on both sides of the border.
#[test]
fn nothing_is_leaked_or_touched_wrongly() {
    if !has_valgrind() {
        return;
    }
    for name in ["event_loop", "features", "misuse", "bank", "orders", "orders_loop", "indexes", "schema"] {
        let program = compile(name, &[]);
        let node = LocalNode::start().expect("a small node can be started");
        succeed(under_valgrind(&program).arg(node.address()));
    }
}

/// The header is good C++, too.
#[test]
fn the_header_is_clean() {
    for (compiler, language, standard) in
        [("cc", "c", "c99"), ("cc", "c", "c17"), ("c++", "c++", "c++11"), ("c++", "c++", "c++20")]
    {
        if Command::new(compiler).arg("--version").output().is_err() {
            eprintln!("there is no {compiler} here: not checked");
            continue;
        }
        let mut command = Command::new(compiler);
        command.args([
            "-x",
            language,
            &format!("-std={standard}"),
            "-Wall",
            "-Wextra",
            "-pedantic",
            "-Werror",
        ]);
        succeed(command.arg("-fsyntax-only").arg(include().join("vinga.h")));
    }
}

/// The library has exactly the functions that the header declares.
#[test]
fn the_library_is_what_the_header_says() {
    let declarations = declarations(&header());
    let mut declared: Vec<&str> = declarations.iter().map(|declaration| name_of(declaration)).collect();
    declared.sort_unstable();
    let symbols =
        succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(library().join("libvinga.so")));
    let symbols = String::from_utf8(symbols.stdout).expect("symbols are text");
    let mut defined: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .filter(|name| name.starts_with("vinga_"))
        .collect();
    defined.sort_unstable();
    assert_eq!(declared, defined);
}
