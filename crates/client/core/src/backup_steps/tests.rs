//! The steps of a backup, with data managers that answer by hand.

use super::*;
use crate::requests::{Answer, Request};
use alloc::string::{String, ToString};
use vinga_base::TablePartitions;
use vinga_base::schema::TableDefinition;
use vinga_wire::dictionary::{ListTablesConfirm, TableRecord};
use vinga_wire::schema::{Database, ListDatabasesConfirm};

fn piece(epoch: u64, is_scanned: bool, is_closed: bool) -> BackupBatch {
    BackupBatch { is_scanned, is_closed, epoch: Epoch(epoch), rows: Vec::new(), changes: Vec::new() }
}

/// A backup of two partitions whose rows were read; the newest commits there are of epochs 20 and 30.
fn scanned() -> Backup {
    let mut backup = Backup::new(2);
    for partition in 0..2 {
        assert_eq!(backup.task(), Task::Open(PartitionId(partition)));
        assert_eq!(backup.next_piece(PartitionId(0)), None, "nothing is read before all changes are noted");
        backup.on_opened(Epoch(5));
    }
    assert_eq!(backup.task(), Task::Await);
    for (partition, epoch) in [(0, 20), (1, 30)] {
        assert_eq!(backup.next_piece(PartitionId(partition)), Some(Epoch(0)));
        backup.on_piece(PartitionId(partition), Epoch(0), &piece(epoch, true, false));
    }
    assert_eq!(backup.task(), Task::Lock);
    backup.on_locked();
    backup
}

fn table(table: u32, version: u64, birth: u64, name: &str) -> TableRecord {
    let definition = TableDefinition { name: name.to_string(), ..TableDefinition::default() };
    TableRecord { version, ..TableRecord::new(table, birth, TablePartitions::first(1), definition) }
}

fn definitions(tables: &[TableRecord]) -> Definitions {
    Definitions { databases: Vec::new(), tables: tables.to_vec() }
}

/// One piece of each partition, both with the same answer; returns the epoch that was asked for.
fn answer(backup: &mut Backup, epochs: [u64; 2], is_closed: bool) -> Epoch {
    let mut asked = Epoch(0);
    for (partition, epoch) in epochs.into_iter().enumerate() {
        let partition = PartitionId(partition as u16);
        asked = backup.next_piece(partition).expect("more is wanted");
        backup.on_piece(partition, asked, &piece(epoch, true, is_closed));
    }
    asked
}

#[test]
fn the_epoch_covers_all_that_was_read() {
    let mut backup = scanned();
    let all = definitions(&[table(1, 7, 3, "a.b")]);
    assert_eq!(backup.task(), Task::ReadDefinitions);
    backup.on_definitions(all.clone()).expect("it is the first time");
    // An epoch that is closed already: the president's current one comes with the answer.
    assert_eq!(answer(&mut backup, [25, 31], true), Epoch(1));
    assert_eq!(backup.task(), Task::Await);
    assert_eq!(answer(&mut backup, [33, 34], false), Epoch(31), "the newest that anybody knew");
    assert_eq!(backup.task(), Task::Await);
    // What was asked before says nothing about it, nor does one partition alone.
    let first = PartitionId(0);
    let until = backup.next_piece(first).expect("more is wanted");
    backup.on_piece(first, Epoch(1), &piece(34, true, true));
    assert_eq!((until, backup.task()), (Epoch(31), Task::Await));
    let until = backup.next_piece(first).expect("more is wanted");
    backup.on_piece(first, until, &piece(34, true, true));
    assert_eq!(backup.task(), Task::Await);
    assert_eq!(answer(&mut backup, [34, 35], true), Epoch(31));
    assert_eq!(backup.task(), Task::ReadDefinitions);
    backup.on_definitions(all.clone()).expect("they are the same");
    assert_eq!(backup.task(), Task::Finish(Epoch(31)));
    assert_eq!(backup.next_piece(first), None);
    assert_eq!(backup.into_definitions(), Some(all));
}

#[test]
fn definitions_that_have_changed_move_the_epoch() {
    let mut backup = scanned();
    let (one, two) = (table(1, 7, 3, "a.b"), table(2, 8, 8, "a.c"));
    let mut now = definitions(&[one.clone(), two]);
    backup.on_definitions(now.clone()).expect("it is the first time");
    let changes = [
        // Dropped; emptied; made again; another definition of the same rows.
        definitions(&[one]),
        definitions(&[table(1, 9, 9, "a.b")]),
        definitions(&[table(3, 10, 10, "a.b")]),
        definitions(&[table(3, 11, 10, "a.d")]),
    ];
    let mut last = Epoch(0);
    for change in changes {
        answer(&mut backup, [40, 40], true);
        let chosen = answer(&mut backup, [40, 40], true);
        assert!(chosen > last && chosen >= Epoch(40), "{chosen} after {last}");
        last = chosen;
        assert_ne!(change, now);
        backup.on_definitions(change.clone()).expect("it may change for a while");
        assert_eq!(backup.task(), Task::Await, "another epoch is chosen");
        now = change;
    }
    answer(&mut backup, [40, 40], true);
    let chosen = answer(&mut backup, [40, 40], true);
    // A version in which nothing has changed makes no difference.
    backup.on_definitions(definitions(&[table(3, 12, 10, "a.d")])).expect("they are the same");
    assert_eq!(backup.task(), Task::Finish(chosen));
    assert_eq!(backup.attempts(), 4);
}

#[test]
fn definitions_that_never_rest_are_reported() {
    let mut backup = scanned();
    for version in 0.. {
        match backup.on_definitions(definitions(&[table(1, version, version, "a.b")])) {
            Ok(()) => assert!(version < u64::from(ATTEMPTS_MAX)),
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::SchemaBusy);
                assert!(error.to_string().contains("change definitions again and again"), "{error}");
                assert!(backup.into_definitions().is_none(), "it is not complete");
                return;
            }
        }
        answer(&mut backup, [40, 40], true);
        answer(&mut backup, [40, 40], true);
    }
}

#[test]
fn a_few_pieces_are_under_way() {
    let mut backup = scanned();
    let first = PartitionId(0);
    let requested = core::iter::from_fn(|| backup.next_piece(first)).count();
    assert_eq!(requested, WINDOW as usize);
    backup.on_piece(first, Epoch(0), &piece(40, true, false));
    assert!(backup.next_piece(first).is_some());
    assert_eq!(backup.next_piece(first), None);
    assert_eq!(backup.opened().count(), 2);
}

#[test]
fn definitions_are_read_in_pieces_without_what_is_dropped_meanwhile() {
    let mut reader = DefinitionsReader::default();
    let names = |names: &[&str], more| {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        Answer::Databases(ListDatabasesConfirm { request: 0, names, more })
    };
    let tables = |tables: &[(u32, &str)], more| {
        let tables = tables.iter().map(|&(id, name)| (id, 1, name.to_string())).collect();
        Answer::Tables(ListTablesConfirm { request: 0, tables, more })
    };
    let database = |name: &str| Database { name: name.to_string(), attachment: Vec::new() };
    let mut asked = Vec::new();
    while let Some(request) = reader.request() {
        let answer = match &request {
            Request::ListDatabases(after) if after.is_empty() => Ok(names(&["a", "b"], true)),
            Request::ListDatabases(_) => Ok(names(&["c"], false)),
            Request::DescribeDatabase(name) if name == "b" => Err(Error::new(ErrorCode::NoSuchDatabase)),
            Request::DescribeDatabase(name) => Ok(Answer::Database(database(name))),
            Request::ListTables(0) => Ok(tables(&[(1, "a.x"), (4, "a.y")], true)),
            Request::ListTables(_) => Ok(tables(&[(9, "c.z")], false)),
            Request::DescribeTable(name) if name == "a.y" => Err(Error::new(ErrorCode::NoSuchTable)),
            Request::DescribeTable(name) => Ok(Answer::Table(table(1, 1, 1, name))),
            other => panic!("{other:?} is not expected"),
        };
        asked.push(alloc::format!("{request:?}"));
        reader.on_answer(answer).expect("all answers are well");
    }
    let expected = [
        "ListDatabases(\"\")",
        "ListDatabases(\"b\")",
        "DescribeDatabase(\"a\")",
        "DescribeDatabase(\"b\")",
        "DescribeDatabase(\"c\")",
        "ListTables(0)",
        "ListTables(4)",
        "DescribeTable(\"a.x\")",
        "DescribeTable(\"a.y\")",
        "DescribeTable(\"c.z\")",
    ];
    assert_eq!(asked, expected);
    let found = reader.finish();
    assert_eq!(found.databases, [database("a"), database("c")]);
    assert!(found.tables.iter().map(|table| &table.definition.name).eq(["a.x", "c.z"]));
    let mut reader = DefinitionsReader::default();
    let lost = reader.on_answer(Err(Error::new(ErrorCode::ConnectionLost))).unwrap_err();
    assert_eq!(lost.code(), ErrorCode::ConnectionLost);
}
