//! A client that shares memory with a data node: threads that look, threads that sleep, futures on foreign executors
//! and tickets, all with one client, none of whom may wait for news that another one has found.

use crate::support::{assert_nothing_left, eventually, run, start_node};
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{ColumnType, NewTable, ReadBatch, Record, Table, Value};
use vinga_datanode::LocalNode;

const ROWS: u64 = 1_000;

fn row(id: u64) -> Record {
    Record::new([("id", Value::from(id)), ("v", vec![id as u8; (id % 100) as usize].into())])
}

fn start() -> (LocalNode, Cluster, Table) {
    let node = start_node();
    let cluster = Cluster::connect(node.local_address().expect("it has a socket")).unwrap();
    let definition = NewTable::new("test.t")
        .column("id", ColumnType::Integer { bytes: 8, signed: false })
        .column("v", ColumnType::VarBinary { bytes_max: 100 })
        .primary_key(&["id"]);
    let table = cluster.create_table(definition).unwrap();
    for id in 0..ROWS {
        cluster.insert(&table, &row(id)).unwrap();
    }
    (node, cluster, table)
}

#[test]
fn all_kinds_of_waiting_side_by_side() {
    let (node, cluster, table) = start();
    let read = |cluster: &Cluster, table: &Table, id: u64| {
        let found: Option<Record> = cluster.get(table, id).unwrap();
        assert_eq!(found, Some(row(id)));
    };
    let begun = Instant::now();
    thread::scope(|scope| {
        for seed in 0..4 {
            let (cluster, table) = (&cluster, &table);
            scope.spawn(move || {
                for at in 0..3_000 {
                    read(cluster, table, (at * 7 + seed) % ROWS);
                    // Long enough that the others sleep, or short enough that they look.
                    if at % 100 == seed {
                        thread::sleep(Duration::from_micros(at % 700));
                    }
                }
            });
        }
        // A future on an executor of its own: the library's thread reads for it.
        scope.spawn(|| {
            run(async {
                for at in 0..1_000 {
                    let found: Option<Record> = cluster.as_async().get(&table, at % ROWS).await.unwrap();
                    assert_eq!(found, Some(row(at % ROWS)));
                }
            });
        });
        // Tickets, asked again and again.
        scope.spawn(|| {
            for at in 0..300 {
                let mut batch = ReadBatch::new(&table);
                for id in 0..20 {
                    batch.push((at + id) % ROWS).unwrap();
                }
                let mut ticket = cluster.start_reads(batch).unwrap();
                let batch = loop {
                    match ticket.try_finish() {
                        Some(batch) => break batch,
                        None => cluster.drive(Duration::from_micros(200)),
                    }
                };
                assert!(
                    (0..20).all(|place| batch.row(place as usize).unwrap() == Some(row((at + place) % ROWS)))
                );
            }
        });
    });
    println!("{:?}", begun.elapsed());
    eventually("it is at rest", || cluster.is_at_rest());
    assert_nothing_left(&Cluster::connect(node.address()).unwrap());
}

#[test]
fn whoever_waits_long_is_woken_in_time() {
    let (_node, cluster, table) = start();
    for round in 0..20 {
        let mut holder = cluster.begin().unwrap();
        holder.delete(&table, round).unwrap();
        holder.execute().unwrap();
        thread::scope(|scope| {
            let waiting: Vec<_> =
                (0..3).map(|_| scope.spawn(|| cluster.write(&table, &row(round)))).collect();
            thread::sleep(Duration::from_millis(20));
            let begun = Instant::now();
            holder.commit().unwrap();
            waiting.into_iter().for_each(|one| one.join().unwrap().unwrap());
            // Who was not woken would have failed before, as its wait for the lock is over.
            assert!(begun.elapsed() < Duration::from_secs(180), "{:?}", begun.elapsed());
        });
    }
}
