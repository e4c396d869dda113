//! Tables are created, filled, altered, emptied and dropped while a running data node is backed up: a backup has them
//! as they were at one moment, or fails and says why.

use crate::support::Node;
use crate::tools::backups::{Done, back_up, restore};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use vinga::blocking::Cluster;
use vinga::{ColumnType, Direction, IndexDefinition, IndexKind, NewTable, OrderColumn};

const U64: ColumnType = ColumnType::Integer { bytes: 8, signed: false };
/// Rows that each round puts into its table, in one transaction.
const ROWS: u64 = 50;
const SMALL: &str = "DataMemory=128M";
/// Epochs are short, so that many definitions change before a backup has had its.
const EPOCHS: &str = "TimeBetweenEpochs=20";

fn connect(node: &Node) -> Cluster {
    Cluster::connect(&node.address).expect("it runs")
}

/// A table comes, gets rows, an index, loses its rows, gets others, and goes; each step is one change.
fn round(cluster: &Cluster, name: &str, number: u64, pause: impl Fn()) {
    let definition = NewTable::new(name).column("id", U64).column("count", U64).primary_key(&["id"]);
    cluster.create_table(definition).expect("it is not there");
    pause();
    let fill = |count: u64| {
        let table = cluster.table_of::<Done>(name).expect("it is there");
        let filled = cluster.run(|tx| {
            (0..ROWS).try_for_each(|id| tx.insert(&table, &Done { id, count }).map(drop))?;
            Ok(())
        });
        filled.expect("it is empty");
    };
    fill(2 * number);
    pause();
    let table = cluster.table(name).expect("it is there");
    let mut definition = table.definition().clone();
    let column = definition.columns.iter().position(|column| column.name == "count").expect("it has it");
    let columns =
        vec![OrderColumn { column: vinga::ColumnId(column as u16), direction: Direction::Ascending }];
    definition.indexes.push(IndexDefinition {
        id: 9,
        name: "by count".into(),
        columns,
        kind: IndexKind::Ordered,
    });
    cluster.alter_table(&table, definition).expect("nobody else changes it");
    pause();
    cluster.truncate_table(name).expect("it is there");
    pause();
    fill(2 * number + 1);
    pause();
    cluster.drop_table(name).expect("it is there");
}

/// Runs rounds without end while `during` runs, with pauses between their steps of so many milliseconds.
fn with_rounds(cluster: &Cluster, pause_millis: u64, during: impl FnOnce(&AtomicU64)) {
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let number = rounds.load(Ordering::SeqCst);
                let pause = || thread::sleep(Duration::from_millis(pause_millis));
                round(cluster, &format!("round.t{}", number % 3), number, pause);
                rounds.store(number + 1, Ordering::SeqCst);
            }
        });
        let over = Over(&is_over);
        during(&rounds);
        drop(over);
    });
}

/// Ends the rounds, also when a check fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The restored tables are those of a moment of some round between two: none, or one with no rows or all of a step.
fn check(cluster: &Cluster, rounds: std::ops::RangeInclusive<u64>) {
    let tables = cluster.tables().expect("it answers");
    assert!(tables.len() <= 1, "one is there at a time: {tables:?}");
    for name in tables {
        let table = cluster.table_of::<Done>(&name).expect("it is there");
        let scan = cluster.scan(&table, |request| request).expect("it begins");
        let rows: Vec<Done> = scan.map(|row| row.expect("it is read")).collect();
        assert!(rows.is_empty() || rows.len() as u64 == ROWS, "{} rows in {name}", rows.len());
        let Some(first) = rows.first() else { continue };
        assert!(rows.iter().all(|row| row.count == first.count), "rows of different steps in {name}");
        let number = first.count / 2;
        assert!(rounds.contains(&number), "round {number} in {name}, not one of {rounds:?}");
        assert_eq!(name, format!("round.t{}", number % 3));
        if table.definition().indexes.iter().any(|index| index.name == "by count") {
            let found = cluster.count(&table, |request| request.index("by count")).expect("it ends");
            assert_eq!(found, ROWS);
        } else {
            assert_eq!(first.count % 2, 0, "the second rows of a table come after its index");
        }
    }
}

#[test]
fn definitions_that_change_meanwhile_are_those_of_one_moment() {
    let source = Node::start(&[SMALL, EPOCHS, "NoOfFragmentLogParts=4"]);
    let cluster = connect(&source);
    let place = TempDir::new().expect("a folder can be made");
    let mut bounds = Vec::new();
    with_rounds(&cluster, 150, |rounds| {
        for number in 0..6 {
            let before = rounds.load(Ordering::SeqCst);
            let (is_well, text) = back_up(&source, &place.path().join(number.to_string()));
            assert!(is_well, "{text}");
            bounds.push(before..=rounds.load(Ordering::SeqCst));
        }
    });
    for (number, rounds) in bounds.into_iter().enumerate() {
        let target = Node::start(&[SMALL]);
        let (is_well, text) = restore(&place.path().join(number.to_string()), &target);
        assert!(is_well, "{text}");
        check(&connect(&target), rounds);
    }
}

#[test]
fn definitions_that_never_rest_end_the_backup() {
    let source = Node::start(&[SMALL, EPOCHS, "NoOfFragmentLogParts=4"]);
    let cluster = connect(&source);
    let place = TempDir::new().expect("a folder can be made");
    let folder = place.path().join("backup");
    with_rounds(&cluster, 0, |rounds| {
        let before = rounds.load(Ordering::SeqCst);
        let (is_well, text) = back_up(&source, &folder);
        if is_well {
            // It has met a moment without tables twice.
            let target = Node::start(&[SMALL]);
            let (is_well, text) = restore(&folder, &target);
            assert!(is_well, "{text}");
            check(&connect(&target), before..=rounds.load(Ordering::SeqCst));
        } else {
            assert!(text.contains("change definitions again and again"), "{text}");
            assert!(!folder.exists(), "what was written is removed");
        }
    });
    let (is_well, text) = back_up(&source, &place.path().join("another"));
    assert!(is_well, "nothing is left of it: {text}");
}
