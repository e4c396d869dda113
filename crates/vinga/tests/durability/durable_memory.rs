//! A node whose memory is full is killed, and starts again with the same settings.

use crate::support::HANG_GUARD;
use crate::tools::durable::{DurableNode, Row, make_table, row, table_of};
use std::time::Instant;
use vinga::blocking::Cluster;
use vinga::{ColumnType, ErrorCode, NewTable, Table};

/// Rows of a transaction.
const TOGETHER: u64 = 400;

/// Inserts rows from this number on until the memory is full; returns the number behind the last one. Where checkpoints
/// are slower than this it waits for them: the log is full until then.
fn fill(cluster: &Cluster, table: &Table<Row>, mut next: u64) -> u64 {
    let begun = Instant::now();
    loop {
        let mut transaction = cluster.begin().expect("it begins");
        let inserted = (next..next + TOGETHER)
            .try_for_each(|id| transaction.insert(table, &row(id, id)).map(|_| ()))
            .and_then(|()| transaction.commit());
        match inserted {
            Ok(_) => next += TOGETHER,
            Err(why) if why.code() == ErrorCode::DataMemoryFull => return next,
            Err(why) if why.code() == ErrorCode::RedoLogFull && begun.elapsed() < HANG_GUARD => {}
            Err(why) => panic!("{why}"),
        }
    }
}

fn remove(cluster: &Cluster, table: &Table<Row>, ids: impl Iterator<Item = u64>) {
    let ids: Vec<u64> = ids.collect();
    for ids in ids.chunks(TOGETHER as usize) {
        let mut transaction = cluster.begin().expect("it begins");
        for &id in ids {
            transaction.delete(table, id).expect("it is there");
        }
        transaction.commit().expect("a delete needs no memory");
    }
}

/// The rows arrive in the order of their indexes and are deleted in it, as in a queue: so the indexes are as dense as
/// can be, while rows lie where others were. They are built anew in the order in which rows lie.
#[test]
fn a_node_that_was_full_starts_again_with_the_same_settings() {
    let mut node = DurableNode::new(&["DataMemory=16M", "NoOfFragmentLogParts=4"]);
    let cluster = node.start();
    let bigint = ColumnType::Integer { bytes: 8, signed: false };
    let definition = NewTable::new("test.t").column("id", bigint).column("value", bigint);
    let definition = definition.primary_key(&["id"]).ordered_index("by id", &["id"]);
    let definition = definition.ordered_index("by value", &["value", "id"]);
    cluster.create_table(definition).expect("a table can be created");
    let table = table_of(&cluster);
    let (mut first, mut next) = (0, fill(&cluster, &table, 0));
    for _ in 0..3 {
        let middle = first + (next - first) / 2;
        remove(&cluster, &table, first..middle);
        first = middle;
        next = fill(&cluster, &table, next);
    }
    // Behind this everything is on the disk.
    let mut transaction = cluster.begin().expect("it begins");
    transaction.set_durable(true);
    transaction.delete(&table, first).expect("it is there");
    transaction.commit().expect("a delete needs no memory");
    first += 1;
    drop((table, cluster));
    node.kill();
    let cluster = node.start();
    let table = table_of(&cluster);
    let rows = cluster.count(&table, |request| request).expect("it can be read");
    assert_eq!(rows, next - first);
    for index in ["by id", "by value"] {
        let rows = cluster.count(&table, |request| request.index(index)).expect("it can be read");
        assert_eq!(rows, next - first, "{index}");
    }
    // It goes on: rows can be deleted, and when enough were, inserted.
    remove(&cluster, &table, first..first + (next - first) / 2);
    assert!(fill(&cluster, &table, next) > next, "there is room again");
}

#[test]
fn less_memory_is_warned_of_or_refused_with_numbers() {
    let mut node = DurableNode::new(&["DataMemory=48M", "NoOfFragmentLogParts=4", "NoOfFragmentLogFiles=16"]);
    let cluster = node.start();
    let table = make_table(&cluster);
    let rows = fill(&cluster, &table, 0);
    drop((table, cluster));
    node.stop();
    node.parameters[0] = "DataMemory=16M".into();
    let why = node.refusal();
    let parts = ["error 827", "DataMemory, which is 16777216 bytes", "33554432 bytes"];
    assert!(parts.iter().all(|part| why.contains(part)), "{why}");
    node.parameters[0] = "DataMemory=32M".into();
    let cluster = node.start();
    assert_eq!(cluster.count(&table_of(&cluster), |request| request).expect("it can be read"), rows);
    assert!(node.log().contains("which is more than DataMemory, 33554432 bytes"), "{}", node.log());
}
