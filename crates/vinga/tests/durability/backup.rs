//! Backups of running data nodes, restored into others of another shape; bad input and failures in the middle.

use crate::support::folder::{said, vinga};
use crate::support::{Node, greet};
use crate::tools::backups::{Load, Tables, back_up, inspect, restore, restore_with};
use crate::tools::durable::{self, DurableNode};
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::task::{Context, Waker};
use tempfile::TempDir;
use vinga::blocking::Cluster;
use vinga::{ColumnType, Durability, Epoch, ErrorCode, InfoTable, NewTable};
use vinga_format::backup::BackupManifest;
use vinga_format::{Checksum, Format};
use vinga_wire::backup::{BackupNextBody, BackupOpenRequest};
use vinga_wire::{BlockNumber, SignalNumber, U32, U64, cold};

const SMALL: &str = "DataMemory=128M";

fn connect(node: &Node) -> Cluster {
    Cluster::connect(&node.address).expect("it runs")
}

#[test]
fn a_backup_under_load_is_the_state_of_one_moment() {
    let source = Node::start(&[SMALL, "NoOfFragmentLogParts=8", "PartitionsPerNode=6"]);
    let cluster = connect(&source);
    let tables = Tables::create(&cluster);
    let place = TempDir::new().expect("a folder can be made");
    let mut bounds = Vec::new();
    Load::run(&cluster, &tables, |load| {
        for number in 0..3 {
            let before = load.committed();
            let (is_well, text) = back_up(&source, &place.path().join(number.to_string()));
            assert!(is_well && text.contains("backup of epoch"), "{text}");
            assert!(!text.contains("rows and 0 changes"), "there is load: {text}");
            bounds.push((before, load.committed()));
        }
    });
    drop(source);
    for (number, (before, after)) in bounds.iter().enumerate() {
        let folder = place.path().join(number.to_string());
        let (is_well, text) = inspect(&folder);
        assert!(is_well && text.contains("table bank.logged: 4 columns, 2 indexes"), "{text}");
        let target = Node::start(&[SMALL, "NoOfFragmentLogParts=4", "MaxNoOfExecutionThreads=2"]);
        let (is_well, text) = restore(&folder, &target);
        assert!(is_well && text.contains("5 tables"), "{text}");
        let cluster = connect(&target);
        let done = Tables::of(&cluster).check(&cluster);
        for ((done, before), after) in done.iter().zip(before).zip(after) {
            // A worker may have one commit more than it knows of.
            assert!((*before..=after + 1).contains(done), "{before} were committed before, {done} are there");
        }
        // The unlogged table is one still, and the cluster can be used.
        assert_eq!(Tables::of(&cluster).unlogged.definition().durability, Durability::NotLogged);
        Load::run(&cluster, &Tables::of(&cluster), |_| {});
    }
}

/// A backup of a table with some rows, and the node that it is of.
fn small_backup() -> (Node, TempDir, PathBuf) {
    let node = Node::start(&[SMALL, "NoOfFragmentLogParts=4"]);
    let cluster = connect(&node);
    let table = durable::make_table(&cluster);
    (0..100).for_each(|id| cluster.insert(&table, &durable::row(id, id)).expect("it is new"));
    let place = TempDir::new().expect("a folder can be made");
    let folder = place.path().join("backup");
    let (is_well, text) = back_up(&node, &folder);
    assert!(is_well, "{text}");
    (node, place, folder)
}

#[test]
fn what_is_restored_is_on_disk() {
    let (_node, _place, folder) = small_backup();
    // What does not wait for the disk is not there.
    let mut target = DurableNode::new(&["TimeBetweenGlobalCheckpoints=32000"]);
    target.start();
    let command = vinga().arg("restore").arg(&folder).args(["--connect", &target.address()]).output();
    let (is_well, text) = said(command);
    assert!(is_well && text.contains("100 rows"), "{text}");
    target.kill();
    let cluster = target.start();
    let table = durable::table_of(&cluster);
    assert_eq!(cluster.count(&table, |scan| scan).expect("it can be counted"), 100);
}

#[test]
fn a_restore_is_no_success_if_the_data_nodes_are_killed_meanwhile() {
    const ROWS: u64 = 150_000;
    let node = Node::start(&[SMALL, "NoOfFragmentLogParts=4"]);
    let cluster = connect(&node);
    let table = durable::make_table(&cluster);
    for first in (0..ROWS).step_by(5000) {
        let mut batch = vinga::WriteBatch::new();
        (first..first + 5000).for_each(|id| batch.insert(&table, &durable::row(id, id)).expect("a row"));
        let batch = cluster.start_writes(batch).expect("it is sent").wait();
        assert!(batch.endings().all(|ending| ending.is_ok()));
    }
    let place = TempDir::new().expect("a folder can be made");
    let folder = place.path().join("backup");
    let (is_well, text) = back_up(&node, &folder);
    assert!(is_well, "{text}");
    // Nothing of what is loaded is on disk by itself; the socket has the same name when the node is started again.
    let mut target = DurableNode::new(&["TimeBetweenGlobalCheckpoints=32000", "FragmentLogFileSize=32M"]);
    let cluster = target.start();
    let socket = format!("unix:{}", target.file("vinga.sock").display());
    let mut command = vinga();
    command.arg("restore").arg(&folder).args(["--threads", "1", "--connect", &socket]);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let has_begun = || {
        let found = cluster.table_of("test.t");
        found.is_ok_and(|table: vinga::Table<durable::Row>| {
            cluster.count(&table, |scan| scan).is_ok_and(|rows| rows > 1000)
        })
    };
    while !has_begun() {}
    target.kill();
    let cluster = target.start();
    let (is_well, text) = said(running.wait_with_output());
    let table = durable::table_of(&cluster);
    let rows = cluster.count(&table, |scan| scan).expect("it can be counted");
    assert!(!is_well || rows == ROWS, "{rows} of {ROWS} rows are there: {text}");
}

/// Restores what must be refused into an empty cluster, and inspects it; both say this.
fn is_refused(folder: &Path, says: &[&str]) {
    let empty = Node::start(&[SMALL]);
    for (is_well, text) in [restore(folder, &empty), inspect(folder)] {
        assert!(!is_well, "{text}");
        for part in says {
            assert!(text.contains(part), "'{part}' is missing in: {text}");
        }
    }
    assert!(connect(&empty).tables().expect("it answers").is_empty(), "nothing was changed");
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it is read").path()).collect();
    files.sort();
    files
}

#[test]
fn a_backup_that_is_not_whole_is_refused() {
    let (_node, _place, folder) = small_backup();
    let files = files_of(&folder);
    assert_eq!(files.len(), 11, "manifest, definitions, statements, rows and changes of four partitions");
    for file in &files {
        let whole = fs::read(file).expect("it is read");
        let name = file.file_name().expect("it has one").to_str().expect("letters");
        for length in [0, 100, whole.len() / 2, whole.len() - 1] {
            fs::write(file, &whole[..length]).expect("it is written");
            is_refused(&folder, &[name]);
        }
        fs::remove_file(file).expect("it is there");
        let why = if name == "manifest.backup" { "cut off before it was complete" } else { "missing" };
        is_refused(&folder, &[name, why]);
        fs::write(file, [&whole[..], &[0; 4096]].concat()).expect("it is written");
        is_refused(&folder, &[name, "behind"]);
        fs::write(file, &whole).expect("it is written");
    }
    let other = small_backup();
    fs::copy(other.2.join("rows-0.backup"), folder.join("rows-0.backup")).expect("it is copied");
    is_refused(&folder, &["rows-0.backup", "another backup"]);
    is_refused(&folder.join("nowhere"), &["no such folder"]);
}

#[test]
fn damage_is_named_with_file_and_offset() {
    let (_node, _place, folder) = small_backup();
    for file in files_of(&folder) {
        let whole = fs::read(&file).expect("it is read");
        let name = file.file_name().expect("it has one").to_str().expect("letters").to_owned();
        let last = whole.len() - 4096;
        let mut damaged = whole.clone();
        damaged[last + 20] ^= 4;
        fs::write(&file, &damaged).expect("it is written");
        is_refused(&folder, &[&name, &format!("offset {last}"), "checksum"]);
        fs::write(&file, &whole).expect("it is written");
    }
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let (_node, _place, folder) = small_backup();
    let manifest = folder.join("manifest.backup");
    let mut bytes = fs::read(&manifest).expect("it is read");
    BackupManifest::decode(&bytes, Checksum::SOFTWARE).expect("it is whole");
    bytes[12] += 1;
    let length = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes")) as usize;
    let sum = Checksum::SOFTWARE.of(&bytes[8..length]);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    fs::write(&manifest, &bytes).expect("it is written");
    let known = Format::Backup.version();
    let versions = format!("format version {}, this program knows up to {known}", known + 1);
    is_refused(&folder, &[&versions, "use the program that has written it, or a newer one"]);
}

#[test]
fn a_file_of_a_backup_is_found_by_its_mere_name() {
    let (_node, _place, folder) = small_backup();
    let file = files_of(&folder).pop().expect("it has files");
    let name = file.file_name().expect("it has one");
    let (is_well, text) = said(vinga().current_dir(&folder).args(["inspect", "backup"]).arg(name).output());
    assert!(is_well && text.contains("complete"), "{text}");
}

#[test]
fn only_an_empty_cluster_is_restored_into() {
    let (node, _place, folder) = small_backup();
    let (is_well, text) = restore(&folder, &node);
    assert!(!is_well && text.contains("not empty") && text.contains("test.t"), "{text}");
    let empty = Node::start(&[SMALL]);
    assert!(restore(&folder, &empty).0);
    let (is_well, text) = restore(&folder, &empty);
    assert!(!is_well && text.contains("restored before"), "{text}");
    let cluster = connect(&empty);
    assert_eq!(durable::value(&cluster, &durable::table_of(&cluster), 42), Some(42));
}

#[test]
fn a_table_that_waits_for_the_disk_needs_a_cluster_with_one() {
    let mut node = DurableNode::new(&[]);
    let cluster = node.start();
    let u64 = ColumnType::Integer { bytes: 8, signed: false };
    let usual = NewTable::new("test.a").column("id", u64).primary_key(&["id"]);
    let durable = NewTable::new("test.t").column("id", u64).primary_key(&["id"]).durable();
    for table in [usual, durable] {
        let table = cluster.create_table(table).expect("it is new");
        cluster.insert(&table, &[("id", 1_u64)]).expect("it is new");
    }
    let place = TempDir::new().expect("a folder can be made");
    let folder = place.path().join("backup");
    let mut command = vinga();
    command.args(["admin", "--connect", &node.address(), "backup", "--to"]).arg(&folder);
    assert!(said(command.output()).0);
    let diskless = Node::start(&[SMALL]);
    let (is_well, text) = restore(&folder, &diskless);
    assert!(!is_well && text.contains("test.t") && text.contains("Nothing was changed"), "{text}");
    assert!(text.contains("--memory-only"), "it says what to do: {text}");
    assert!(connect(&diskless).tables().expect("it answers").is_empty(), "nothing was changed");
    // Or one is content with what such a cluster can do.
    let (is_well, text) = restore_with(&folder, &diskless, &["--memory-only"]);
    assert!(is_well && text.contains("1 table with DURABILITY=disk") && text.contains("test.t"), "{text}");
    let there = connect(&diskless);
    for name in ["test.a", "test.t"] {
        let table = there.table(name).expect("it was restored");
        assert_eq!(table.definition().durability, Durability::Memory, "{name}");
        there.insert(&table, &[("id", 2_u64)]).expect("it is new");
    }
    let rows = there.table("test.t").expect("it is there");
    assert_eq!(there.count(&rows, |scan| scan).expect("it can be counted"), 2, "the old and the new row");
    // Where there is a disk the tables stay what they are.
    let mut kept = DurableNode::new(&[]);
    let there = kept.start();
    let mut command = vinga();
    command.arg("restore").arg(&folder).args(["--memory-only", "--json", "--connect", &kept.address()]);
    let (is_well, text) = said(command.output());
    assert!(is_well && text.contains("\"memory_only\":[]"), "{text}");
    let table = there.table("test.t").expect("it was restored");
    assert_eq!(table.definition().durability, Durability::Disk);
}

#[test]
fn a_folder_that_can_not_be_written_is_named() {
    let (node, place, folder) = small_backup();
    let (is_well, text) = back_up(&node, &folder);
    assert!(!is_well && text.contains("not empty"), "{text}");
    assert!(inspect(&folder).0, "what was there is untouched");
    let file = place.path().join("file");
    fs::write(&file, "").expect("it is written");
    let (is_well, text) = back_up(&node, &file);
    assert!(!is_well && text.contains("no folder that can be used"), "{text}");
    let (is_well, text) = back_up(&node, &file.join("below"));
    assert!(!is_well && text.contains("cannot make the folder"), "{text}");
    // A limit of the size of files is to the program what a full disk is: a write that fails.
    let target = place.path().join("limited");
    let line = format!(
        "trap '' XFSZ; ulimit -f 2; exec {} admin --connect {} backup --to {}",
        env!("CARGO_BIN_EXE_vinga"),
        node.address,
        target.display()
    );
    let (is_well, text) = said(Command::new("bash").args(["-c", &line]).output());
    assert!(!is_well && text.contains("cannot write") && text.contains("limited"), "{text}");
    assert!(!target.exists(), "what was written is removed");
    assert!(back_up(&node, &target).0, "and the data managers are free for the next one");
}

#[test]
fn one_backup_is_made_at_a_time() {
    let node = Node::start(&[SMALL]);
    let cluster = connect(&node);
    let place = TempDir::new().expect("a folder can be made");
    let held = cluster.back_up_partition(1).expect("none is made");
    let (is_well, text) = back_up(&node, &place.path().join("second"));
    assert!(
        !is_well && text.contains("20073") && text.contains(&format!("client {}", cluster.node())),
        "{text}"
    );
    assert!(!place.path().join("second").exists());
    drop(held);
    let (is_well, text) = back_up(&node, &place.path().join("third"));
    assert!(is_well, "{text}");
}

#[test]
fn a_future_that_is_dropped_leaves_no_backup_behind() {
    let node = Node::start(&[SMALL, "PartitionsPerNode=1"]);
    let (cluster, other) = (connect(&node), connect(&node));
    // Dropped before the answer has come, and after.
    for waits_for_answer in [false, true] {
        let mut opening = Box::pin(cluster.as_async().back_up_partition(0));
        drop(opening.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        if waits_for_answer {
            cluster.info(InfoTable::Nodes).expect("it answers");
        }
        drop(opening);
        while other.back_up_partition(0).is_err() {
            std::thread::yield_now();
        }
    }
    // One that is refused ends nothing.
    let held = loop {
        // The end of the other client's last one comes by another connection.
        match cluster.back_up_partition(0) {
            Ok(held) => break held,
            Err(error) => assert_eq!(error.code(), ErrorCode::BackupRunning),
        }
    };
    let mut opening = Box::pin(cluster.as_async().back_up_partition(0));
    drop(opening.as_mut().poll(&mut Context::from_waker(Waker::noop())));
    drop(opening);
    cluster.info(InfoTable::Nodes).expect("it answers");
    let refused = other.back_up_partition(0).err().expect("the first one goes on");
    assert_eq!(refused.code(), ErrorCode::BackupRunning);
    assert!(held.request(Epoch(0)).expect("it is sent").wait().is_ok());
}

#[test]
fn a_client_that_vanishes_leaves_no_backup_behind() {
    let node = Node::start(&[SMALL, "PartitionsPerNode=1"]);
    let mut raw = greet(&node);
    let to = (BlockNumber::DataManager, 0);
    let open = BackupOpenRequest { request: 1, partition: 0 };
    raw.send(SignalNumber::BackupOpenRequest, to, |frame| cold::write(frame, &open)).expect("it is sent");
    let opened = raw.receive(|frame| frame.header.number.get()).expect("it is answered");
    assert_eq!(opened, Some(SignalNumber::BackupOpenConfirm as u16));
    let cluster = connect(&node);
    let refused = cluster.back_up_partition(0).err().expect("another client makes one");
    assert_eq!(refused.code(), ErrorCode::BackupRunning);
    let next = BackupNextBody { request: U32::new(2), unused: U32::ZERO, until: U64::ZERO };
    raw.send(SignalNumber::BackupNextRequest, to, |frame| {
        frame.put(&next);
    })
    .expect("it is sent");
    drop(raw);
    while cluster.back_up_partition(0).is_err() {
        std::thread::yield_now();
    }
}

#[test]
fn a_backup_that_can_not_keep_up_is_given_up_and_changes_go_on() {
    let node = Node::start(&[SMALL, "PartitionsPerNode=1", "BackupLogBufferSize=1M"]);
    let cluster = connect(&node);
    let table = durable::make_table(&cluster);
    let backup = cluster.back_up_partition(0).expect("none is made");
    for round in 0..3u64 {
        let mut batch = vinga::WriteBatch::new();
        (0..10_000).for_each(|id| batch.write(&table, &durable::row(id, round)).expect("a row"));
        let batch = cluster.start_writes(batch).expect("it is sent").wait();
        assert!(batch.endings().all(|ending| ending.is_ok()));
    }
    let failed = backup.request(Epoch(0)).expect("it is sent").wait().expect_err("too much was changed");
    assert_eq!(failed.code(), ErrorCode::BackupBufferFull);
    assert!(failed.to_string().contains("BackupLogBufferSize"), "{failed}");
    let next = backup.request(Epoch(0)).expect("it is sent").wait().expect_err("it is over");
    assert_eq!(next.code(), ErrorCode::NoSuchBackup);
}

#[test]
fn the_command_lines_are_checked() {
    for (line, says) in [
        (&["restore"][..], "<BACKUP>"),
        (&["restore", "b", "--threads", "0"], "from 1 to 64"),
        (&["inspect", "backup"], "<FOLDER>"),
        (&["admin", "backup", "--wait", "long"], "--wait"),
    ] {
        let output = vinga().args(line).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(says), "{text}");
    }
}
