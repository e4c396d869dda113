//! Lookups on a real node: system calls are made for batches, not for each of them.

use crate::support::Node;
use vinga::blocking::Cluster;
use vinga::{ColumnType, InfoTable, InfoValue, NewTable, Record, Value};

const ROWS: u64 = 10_000;
const BATCH: u64 = 128;
const BATCHES: u64 = 1_000;

/// System calls of all threads of the node so far, according to its own counters.
fn system_calls(cluster: &Cluster) -> u64 {
    let threads = cluster.info(InfoTable::Threads).expect("the node answers");
    let column =
        threads.columns.iter().position(|name| name == "system_calls").expect("a column of this name");
    let calls = threads.rows.iter().map(|row| match row[column] {
        InfoValue::Number(calls) => calls,
        _ => panic!("a number of calls"),
    });
    calls.sum()
}

#[test]
fn lookups_of_a_batch_share_their_system_calls() {
    let node = Node::start(&[]);
    let cluster = Cluster::connect(&node.address).expect("the node admits us");
    let table = cluster
        .create_table(
            NewTable::new("test.t")
                .column("id", ColumnType::Integer { bytes: 8, signed: false })
                .column("v", ColumnType::Binary { bytes: 100 })
                .primary_key(&["id"]),
        )
        .expect("a table can be created");
    for first in (0..ROWS).step_by(500) {
        let mut transaction = cluster.begin().expect("connected");
        for id in first..first + 500 {
            let row = Record::new([("id", Value::from(id)), ("v", Value::from(vec![7u8; 100]))]);
            transaction.insert(&table, &row).expect("a good row");
        }
        transaction.commit().expect("there is no conflict");
    }
    let before = system_calls(&cluster);
    for batch in 0..BATCHES {
        let keys = (0..BATCH).map(|at| (batch * BATCH + at) * 7919 % ROWS);
        let rows = cluster.get_many(&table, keys).expect("a read succeeds");
        assert!(rows.iter().all(Option::is_some));
    }
    let calls = system_calls(&cluster) - before;
    println!("{} lookups in {BATCHES} batches: {calls} system calls of the node", BATCHES * BATCH);
    // Waiting, reading and writing, for each batch and possibly for each of its pieces; and some for timers meanwhile.
    assert!(calls < BATCHES * 16, "{calls} system calls for {BATCHES} batches");
}
