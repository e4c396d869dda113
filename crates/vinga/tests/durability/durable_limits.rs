//! Durability of real nodes: what fills the log, what is noticed when it is missing.

use crate::tools::durable::{DurableNode, Row, commit_durably, row, table_of};
use std::fs;
use vinga::blocking::Cluster;
use vinga::{ColumnType, NewTable, Table};

/// Nothing is ever logged, but commits of a table that is not logged wait for the disk: each takes a sector of the log.
#[test]
fn durable_commits_of_a_table_that_is_not_logged_go_on_without_end() {
    let mut node = DurableNode::new(&[]);
    let cluster = node.start();
    let bigint = ColumnType::Integer { bytes: 8, signed: false };
    let definition = NewTable::new("test.t").column("id", bigint).column("value", bigint).no_logging();
    let table = cluster.create_table(definition.primary_key(&["id"])).expect("a table can be created");
    let table: Table<Row> = table.rows().expect("it has these columns");
    // The log has 4 files of 4 MiB: 4092 sectors.
    for count in 0..6000 {
        if let Err(why) = commit_durably(&cluster, &table, 1, count) {
            panic!("commit {count}: {why}\n{}", node.log());
        }
    }
}

/// The checkpoint of a data manager is lost that has nothing in the log any more.
#[test]
fn a_checkpoint_that_is_missing_is_noticed() {
    const ROWS: u64 = 400;
    let mut node = DurableNode::new(&["TimeBetweenLocalCheckpoints=6", "MinDiskWriteSpeed=100M"]);
    let cluster = node.start();
    let bigint = ColumnType::Integer { bytes: 8, signed: false };
    let definition = NewTable::new("test.t").column("id", bigint).column("value", bigint);
    cluster.create_table(definition.primary_key(&["id"])).expect("a table can be created");
    let table = table_of(&cluster);
    for id in 0..ROWS {
        cluster.insert(&table, &row(id, id)).expect("it can be written");
    }
    // One row is changed until nothing else is in the log: each commit takes a sector of 16 MiB.
    for count in 0..9000 {
        commit_durably(&cluster, &table, 0, count).expect("there is room, as checkpoints are made");
    }
    drop(table);
    node.stop();
    let mut removed = 0;
    for data_manager in 0..8 {
        let files: Vec<_> =
            fs::read_dir(node.file("checkpoint")).expect("there are checkpoints").flatten().collect();
        let prefix = format!("{data_manager:03}-");
        let own: Vec<_> =
            files.iter().filter(|file| file.file_name().to_string_lossy().starts_with(&prefix)).collect();
        // The hot row's data manager has made many.
        if own.len() == 1 && removed == 0 {
            fs::remove_file(own[0].path()).expect("it is there");
            removed += 1;
        }
    }
    assert_eq!(removed, 1);
    node.launch();
    let file = node.file("vinga.address");
    for _ in 0..1000 {
        if file.exists() || node.log().contains("can't start from its files") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    if node.log().contains("can't start from its files") {
        return;
    }
    let address = node.address();
    let cluster = Cluster::connect(&address).expect("clients are let in");
    let table = table_of(&cluster);
    let found = (0..ROWS).filter(|&id| cluster.get(&table, id).expect("it can be read").is_some()).count();
    assert_eq!(found as u64, ROWS, "the node has started, without a warning to anybody\n{}", node.log());
}

/// A node is started with more files of the log, and the machine stops when the first of them is made but has no room
/// yet, or a part of it.
#[test]
fn a_start_that_makes_more_files_may_be_cut_off() {
    let mut node = DurableNode::new(&[]);
    node.start();
    node.stop();
    for (file, bytes) in [(4, 0), (5, 100), (6, 8192)] {
        let path = node.file(&format!("redo/000-0000000{file}.redo"));
        fs::write(&path, vec![0; bytes]).expect("a file can be made");
        node.parameters = vec![format!("NoOfFragmentLogFiles={}", file + 1)];
        node.start();
        node.stop();
        assert_eq!(fs::metadata(&path).expect("it is there").len(), 4 << 20, "it had {bytes} bytes");
    }
}
