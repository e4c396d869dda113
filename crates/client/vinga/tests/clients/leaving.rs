//! Clients that come and go: a node id is free again as soon as its client has left.

use crate::support::{assert_nothing_left, poll_and_drop, run, start_node};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{ColumnType, ErrorCode, NewTable, Record, Value};

/// Node ids that clients may have.
const IDS: usize = 111;

fn row(id: u64) -> Record {
    Record::new([("id", Value::from(id))])
}

fn table() -> NewTable {
    NewTable::new("test.t").column("id", ColumnType::Integer { bytes: 8, signed: false }).primary_key(&["id"])
}

/// As many clients at the same time as there may be: no id is kept for anybody.
fn assert_all_ids_are_free(address: &str) {
    let begin = Instant::now();
    let mut clusters = Vec::new();
    while clusters.len() < IDS - 1 {
        match Cluster::connect(address) {
            Ok(cluster) => clusters.push(cluster),
            // Whoever has just gone may still be on the way out.
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::NoFreeNodeId, "{error}");
                assert!(begin.elapsed() < Duration::from_secs(180), "{} clients connect", clusters.len());
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

#[test]
fn one_after_the_other() {
    let node = start_node();
    let stays = Cluster::connect(node.address()).unwrap();
    stays.create_table(table()).unwrap();
    let begin = Instant::now();
    for id in 0..200 {
        let cluster = Cluster::connect(node.address()).unwrap();
        let behind = cluster.node().0 - stays.node().0;
        assert!(behind < 20, "client {id} has the node id {}", cluster.node());
        let table = cluster.table("test.t").unwrap();
        cluster.insert(&table, &row(id)).unwrap();
    }
    assert!(begin.elapsed() < Duration::from_secs(180), "it took {:?}", begin.elapsed());
    let table = stays.table("test.t").unwrap();
    assert_eq!(stays.scan(&table, |scan| scan).unwrap().count(), 200);
    assert_nothing_left(&stays);
}

#[test]
fn more_clients_than_there_are_ids() {
    let node = start_node();
    let stays = Cluster::connect(node.address()).unwrap();
    stays.create_table(table()).unwrap();
    let refused = AtomicU32::new(0);
    thread::scope(|scope| {
        for id in 0..300 {
            let (node, refused) = (&node, &refused);
            scope.spawn(move || {
                loop {
                    match Cluster::connect(node.address()) {
                        Ok(cluster) => {
                            let table = cluster.table("test.t").unwrap();
                            cluster.insert(&table, &row(id)).unwrap();
                            // Long enough that the others meet it.
                            thread::sleep(Duration::from_millis(100));
                            return;
                        }
                        Err(error) => {
                            assert_eq!(error.code(), ErrorCode::NoFreeNodeId, "{error}");
                            assert!(error.to_string().contains("111 clients are connected"), "{error}");
                            refused.fetch_add(1, Ordering::Relaxed);
                            thread::sleep(Duration::from_millis(20));
                        }
                    }
                }
            });
        }
    });
    assert!(refused.load(Ordering::Relaxed) > 0, "there are not enough ids for all of them");
    let table = stays.table("test.t").unwrap();
    assert_eq!(stays.scan(&table, |scan| scan).unwrap().count(), 300);
    assert_nothing_left(&stays);
}

#[test]
fn a_connect_may_be_dropped_at_any_moment() {
    let node = start_node();
    let stays = Cluster::connect(node.address()).unwrap();
    stays.create_table(table()).unwrap();
    for round in 0..300u64 {
        let polls = if round % 3 == 0 { 1 } else { 5 };
        let pause = Duration::from_micros(round * 7 % 400);
        drop(poll_and_drop(vinga::Cluster::connect(node.address()), polls, pause));
        // Others go on meanwhile.
        let table = stays.table("test.t").unwrap();
        stays.write(&table, &row(round)).unwrap();
    }
    assert_nothing_left(&stays);
    assert_all_ids_are_free(node.address());
}

#[test]
fn a_cluster_goes_with_the_last_that_uses_it() {
    let node = start_node();
    let stays = Cluster::connect(node.address()).unwrap();
    stays.create_table(table()).unwrap();
    for id in 0..200u64 {
        run(async {
            let cluster = vinga::Cluster::connect(node.address()).await.unwrap();
            let table = cluster.table("test.t").await.unwrap();
            let mut tx = cluster.begin().unwrap();
            drop(poll_and_drop(cluster.insert(&table, &row(id)), 1, Duration::ZERO));
            tx.insert(&table, &row(1000 + id)).unwrap();
            drop(cluster);
            drop(table);
            if id % 2 == 0 {
                tx.execute().await.unwrap();
            }
        });
    }
    let table = stays.table("test.t").unwrap();
    assert_nothing_left(&stays);
    assert!((0..200u64).all(|id| stays.get(&table, 1000 + id).unwrap().is_none()), "nothing was committed");
    drop((stays, table));
    assert_all_ids_are_free(node.address());
}
