//! Rows that the data nodes count are as many as those that a scan brings.

use crate::support::{assert_nothing_left, run, start_node};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use vinga::blocking::Cluster;
use vinga::filter::column;
use vinga::{ColumnType, ErrorCode, NewTable, Record, ScanRequest, Table};

const U64: ColumnType = ColumnType::Integer { bytes: 8, signed: false };

fn table(cluster: &Cluster, rows: u64) -> Table<Record> {
    let table = cluster
        .create_table(
            NewTable::new("test.counted")
                .column("id", U64)
                .column("size", U64)
                .column("text", ColumnType::VarChar { bytes_max: 20 })
                .primary_key(&["id"])
                .ordered_index("by_size", &["size"]),
        )
        .expect("it is a good table");
    for first in (0..rows).step_by(10_000) {
        let mut tx = cluster.begin().expect("one is free");
        for id in first..rows.min(first + 10_000) {
            let row = [("id", id.into()), ("size", (id % 100).into()), ("text", vinga::Value::from("x"))];
            tx.insert(&table, &row).expect("it fits");
            if id % 500 == 499 {
                tx.execute().expect("they are new");
            }
        }
        tx.commit().expect("they are new");
    }
    table
}

type Request = fn(ScanRequest<Record>) -> ScanRequest<Record>;

/// Requests, and how many of each hundred rows they are about.
const REQUESTS: [(Request, u64); 7] = [
    (|scan| scan, 100),
    (|scan| scan.filter(column(1).less_than(30)), 30),
    (|scan| scan.filter(column(2).equal("y")), 0),
    (|scan| scan.index("by_size"), 100),
    (|scan| scan.index("by_size").from(10).before(20).in_order().descending(), 10),
    (|scan| scan.index("by_size").prefix(7).filter(column(2).equal("x")), 1),
    (|scan| scan.index("by_size").after(89).batch_rows(3), 10),
];

#[test]
fn counts_are_those_of_scans() {
    let node = start_node();
    let cluster = Cluster::connect(node.address()).expect("it answers");
    let table = table(&cluster, 5_000);
    for (at, (request, share)) in REQUESTS.into_iter().enumerate() {
        assert_eq!(cluster.count(&table, request).expect("it goes well"), share * 50, "request {at}");
        assert_eq!(cluster.scan(&table, request).expect("it goes well").count() as u64, share * 50);
    }
    let limited = cluster.count(&table, |scan| scan.limit(5)).expect_err("it would be another number");
    assert_eq!(limited.code(), ErrorCode::BadProgram);
    // With own changes, which nobody else counts.
    let mut tx = cluster.begin().expect("one is free");
    for id in 0..100u64 {
        tx.delete(&table, id).expect("it fits");
        tx.insert(
            &table,
            &[("id", (id + 10_000).into()), ("size", 5u64.into()), ("text", vinga::Value::from("y"))],
        )
        .expect("it fits");
    }
    for (at, (request, share)) in REQUESTS.into_iter().enumerate() {
        let found = tx.scan(&table, request).expect("it goes well").count() as u64;
        assert_eq!(tx.count(&table, request).expect("it goes well"), found, "request {at}");
        assert_eq!(cluster.count(&table, request).expect("it goes well"), share * 50, "request {at}");
    }
    tx.roll_back().expect("it is open");
    let counting = cluster.as_async().scan(&table).count().expect("it begins");
    drop(counting);
    assert_nothing_left(&cluster);
}

/// Figures come before the end, and add up.
#[test]
fn long_counts_tell_how_far_they_are() {
    const ROWS: u64 = 300_000;
    let node = start_node();
    let cluster = Cluster::connect(node.address()).expect("it answers");
    let table = table(&cluster, ROWS);
    for request in [|scan| scan, |scan: ScanRequest<Record>| scan.index("by_size")] as [Request; 2] {
        // Figures that have come while nobody looked are given as one, so a busy machine may need several attempts.
        let was_reported = (0..20).any(|_| {
            let (figures, total) = run(async {
                let mut counting =
                    request(cluster.as_async().scan(&table)).parallel(1).count().expect("it begins");
                let (mut figures, mut total) = (0, 0);
                while let Some(more) = counting.next().await.expect("it goes on") {
                    (figures, total) = (figures + 1, total + more);
                }
                (figures, total)
            });
            assert_eq!(total, ROWS);
            figures > 1
        });
        assert!(was_reported, "a figure comes before the end");
    }
}

/// What others change, and undo, makes no difference to the number.
#[test]
fn counts_are_right_while_others_write() {
    const ROWS: u64 = 2_000;
    let node = start_node();
    let cluster = Cluster::connect(node.address()).expect("it answers");
    let table = table(&cluster, ROWS);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let mut tx = cluster.begin().expect("one is free");
                let id = number * 7919 % ROWS;
                let update =
                    [("id", id.into()), ("size", (number % 97).into()), ("text", vinga::Value::from("z"))];
                tx.write(&table, &update).expect("it fits");
                if number % 3 == 0 {
                    tx.insert(
                        &table,
                        &[
                            ("id", (id + ROWS).into()),
                            ("size", 1u64.into()),
                            ("text", vinga::Value::from("")),
                        ],
                    )
                    .expect("it fits");
                    tx.execute().expect("it is new");
                    tx.roll_back().expect("it is open");
                } else {
                    tx.commit().expect("nobody else writes");
                }
            }
        });
        for _ in 0..2_000 {
            let counted = cluster.count(&table, |scan| scan);
            if !matches!(counted, Ok(ROWS)) {
                is_over.store(true, Ordering::Relaxed);
                panic!("counted {counted:?}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
