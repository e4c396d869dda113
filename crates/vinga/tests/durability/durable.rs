//! What was committed is there again when the node has been killed, or stopped, and started again.
//!
//! `VINGA_SEED` is where the random numbers begin, `VINGA_ROUNDS` the number of kills of the longest test (10).

use crate::support::folder::{Folder, said, vinga};
use crate::support::number;
use crate::tools::durable::{DurableNode, Row, make_table, row, table_of, value};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use vinga::blocking::Cluster;
use vinga::{ColumnType, ErrorClass, NewTable, Record, Table, Value};

/// Rows of a client.
const ROWS: u64 = 20;
/// Transactions of a client between two kills, at most: the log has no checkpoints that would make room.
const TRANSACTIONS_MAX: u64 = 120;

/// What one client has done. Its transactions were committed one after the other, so what is there after a restart is
/// the state after so many of them.
#[derive(Clone, Default)]
struct Client {
    first: u64,
    /// The rows after all transactions that are known to count.
    rows: BTreeMap<u64, u64>,
    /// What each transaction since then has changed (`None`: deleted); the last one may have been cut off.
    transactions: Vec<Vec<(u64, Option<u64>)>>,
    /// So many of them were acknowledged, and as being on disk.
    acknowledged: usize,
    durable: usize,
    /// The node has ended: what is done now does not count.
    is_over: bool,
}

/// Runs transactions until the node is gone, or enough is done. It may then wait for the node for a while longer, so
/// nobody waits for its end.
fn run_client(shared: &Mutex<Client>, address: &str, mut random: fastrand::Rng, durable_count: &AtomicU64) {
    let cluster = Cluster::connect(address).expect("clients are let in");
    let table = table_of(&cluster);
    let locked = || shared.lock().expect("no client panics");
    let mut present = locked().rows.clone();
    for count in 1..=TRANSACTIONS_MAX {
        let mut changes: BTreeMap<u64, Option<u64>> = BTreeMap::new();
        for _ in 0..random.u64(1..4) {
            let id = locked().first + random.u64(0..ROWS);
            let is_deleted = present.contains_key(&id) && random.u8(0..4) == 0;
            changes.insert(id, (!is_deleted).then_some(count << 32 | random.u64(..1 << 32)));
        }
        let (changes, is_durable): (Vec<_>, _) = (changes.into_iter().collect(), random.bool());
        if locked().is_over {
            return;
        }
        locked().transactions.push(changes.clone());
        if commit(&cluster, &table, &changes, is_durable).is_err() {
            // It may have been committed before.
            return;
        }
        apply(&changes, &mut present);
        let mut client = locked();
        client.acknowledged = client.transactions.len();
        if is_durable {
            client.durable = client.acknowledged;
            durable_count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Client {
    /// Compares what was restored with what was done. At least so many transactions must be there; from now on those
    /// that are there count.
    fn check(&mut self, cluster: &Cluster, table: &Table<Row>, least: usize) {
        let found: BTreeMap<u64, u64> =
            (self.first..self.first + ROWS).filter_map(|id| Some((id, value(cluster, table, id)?))).collect();
        let mut state = self.rows.clone();
        let mut fits = (least == 0 && state == found).then_some(0);
        for (at, changes) in (1..).zip(&self.transactions) {
            apply(changes, &mut state);
            if at >= least && state == found {
                fits = Some(at);
            }
        }
        let (all, durable) = (self.transactions.len(), self.durable);
        assert!(
            fits.is_some(),
            "of {all} transactions, {durable} acknowledged as durable, at least {least} must be there; found {found:?}, \
             all would be {state:?}, done {:?} upon {:?}",
            self.transactions,
            self.rows
        );
        self.rows = found;
        self.transactions.clear();
        (self.acknowledged, self.durable, self.is_over) = (0, 0, false);
    }
}

/// What rows are after a transaction.
fn apply(changes: &[(u64, Option<u64>)], rows: &mut BTreeMap<u64, u64>) {
    for &(id, value) in changes {
        match value {
            Some(value) => _ = rows.insert(id, value),
            None => _ = rows.remove(&id),
        }
    }
}

fn commit(
    cluster: &Cluster,
    table: &Table<Row>,
    changes: &[(u64, Option<u64>)],
    is_durable: bool,
) -> vinga::Result<()> {
    let mut transaction = cluster.begin()?;
    transaction.set_durable(is_durable);
    for &(id, value) in changes {
        match value {
            Some(value) => _ = transaction.write(table, &row(id, value))?,
            None => _ = transaction.delete(table, id)?,
        }
    }
    transaction.commit().map(|_| ())
}

/// The verdict of `vinga inspect` on the files of a node that does not run.
fn inspect(node: &DurableNode) {
    for what in ["redo", "system", "schema"] {
        let (ok, text) = said(vinga().args(["inspect", what]).arg(node.folder()).output());
        assert!(ok, "inspect {what}: {text}");
    }
}

/// Clients that change rows while the node is killed, or stopped, and started again.
fn rounds(node: &mut DurableNode, rounds: u32, mut end: impl FnMut(&mut DurableNode) -> Promise) {
    let mut random = fastrand::Rng::with_seed(number("VINGA_SEED", 7));
    let mut clients: Vec<Client> =
        (0..3).map(|client| Client { first: client * 1000, ..Client::default() }).collect();
    make_table(&node.start());
    for round in 0..rounds {
        let durable_count = Arc::new(AtomicU64::new(0));
        let shared: Vec<_> = clients.iter().map(|client| Arc::new(Mutex::new(client.clone()))).collect();
        for client in &shared {
            let (client, durable_count) = (client.clone(), durable_count.clone());
            let (address, random) = (node.address(), random.fork());
            thread::spawn(move || run_client(&client, &address, random, &durable_count));
        }
        while durable_count.load(Ordering::Relaxed) < 20 {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_micros(random.u64(0..20_000)));
        let promise = end(node);
        for (client, shared) in clients.iter_mut().zip(&shared) {
            let mut shared = shared.lock().expect("no client panics");
            shared.is_over = true;
            client.clone_from(&shared);
        }
        inspect(node);
        let cluster = node.start();
        let table = table_of(&cluster);
        for client in &mut clients {
            let least = match promise {
                Promise::WhatWasDurable => client.durable,
                Promise::WhatWasCommitted => client.acknowledged,
            };
            client.check(&cluster, &table, least);
        }
        let log = node.log();
        println!("round {round}: {}", log.lines().rev().find(|line| line.contains("restored")).unwrap_or(""));
    }
    // It goes on working.
    let cluster = Cluster::connect(&node.address()).expect("clients are let in");
    let table = table_of(&cluster);
    commit(&cluster, &table, &[(9999, Some(5))], true).expect("it can be written");
    assert_eq!(value(&cluster, &table, 9999), Some(5));
}

/// What must be there after an end.
#[derive(Clone, Copy)]
enum Promise {
    WhatWasDurable,
    WhatWasCommitted,
}

#[test]
fn what_was_acknowledged_as_durable_survives_kills() {
    rounds(&mut DurableNode::new(&[]), number("VINGA_ROUNDS", 10) as u32, |node| {
        node.kill();
        Promise::WhatWasDurable
    });
}

#[test]
fn it_does_with_several_threads_too() {
    let parameters = ["ThreadConfig=ldm={count=2},tc={count=2},recv,send,main", "TimeBetweenEpochs=5"];
    rounds(&mut DurableNode::new(&parameters), 4, |node| {
        node.kill();
        Promise::WhatWasDurable
    });
}

#[test]
fn a_stop_in_order_loses_nothing_that_was_committed() {
    // Nothing but the stop brings commits that wait for no disk there.
    let parameters =
        ["ThreadConfig=ldm={count=2},tc={count=2},recv,send,main", "TimeBetweenGlobalCheckpoints=32000"];
    let mut node = DurableNode::new(&parameters);
    let threads = ["worker", "ldm={count=4},tc,recv,send,main", "ldm={count=2},tc={count=2},recv,send,main"];
    let mut round = 0;
    rounds(&mut node, 4, |node| {
        node.stop();
        // The log keeps its streams, whichever threads there are.
        node.parameters[0] = format!("ThreadConfig={}", threads[round % threads.len()]);
        round += 1;
        Promise::WhatWasCommitted
    });
}

#[test]
fn what_waits_for_no_disk_is_there_soon_and_definitions_at_once() {
    let mut node = DurableNode::new(&["TimeBetweenGlobalCheckpoints=20", "TimeBetweenEpochs=20"]);
    let cluster = node.start();
    let table = make_table(&cluster);
    node.kill();
    let cluster = node.start();
    assert_eq!(cluster.tables().expect("it answers"), ["test.t"]);
    drop(table);
    let table = table_of(&cluster);
    cluster.insert(&table, &row(1, 5)).expect("it can be written");
    // However slow the disk is, once it is there.
    let mut seen = None;
    for pause in (1..).map(|tries| Duration::from_millis(100 * tries)) {
        thread::sleep(pause);
        node.kill();
        let cluster = node.start();
        let table = table_of(&cluster);
        seen = value(&cluster, &table, 1);
        if seen.is_some() {
            break;
        }
        cluster.write(&table, &row(1, 5)).expect("it can be written");
    }
    assert_eq!(seen, Some(5));
}

#[test]
fn without_a_disk_a_durable_commit_is_refused() {
    let mut node = DurableNode::new(&["Diskless=yes"]);
    let cluster = node.start();
    let table = make_table(&cluster);
    let error = commit(&cluster, &table, &[(1, Some(1))], true).expect_err("there is no disk");
    assert_eq!(error.code(), vinga::ErrorCode::NoDisk);
    assert_ne!(error.class(), ErrorClass::Temporary);
    // Who commits elsewhere, too, knows it before, even if everything has been sent already.
    for is_sent in [false, true] {
        let mut transaction = cluster.begin().expect("it runs");
        transaction.insert(&table, &row(1, 1)).expect("it is a row");
        if is_sent {
            transaction.execute().expect("it can be written");
        }
        transaction.set_durable(true);
        let error = transaction.execute().expect_err("there is no disk");
        assert_eq!(error.code(), vinga::ErrorCode::NoDisk);
    }
    commit(&cluster, &table, &[(1, Some(1))], false).expect("it can be written");
    assert!(!node.file("system").exists() && !node.file("redo").exists());
}

#[test]
fn a_first_start_that_is_cut_off_begins_again() {
    for delay in (0..200).step_by(10) {
        let mut node = DurableNode::new(&[]);
        node.launch();
        thread::sleep(Duration::from_millis(delay));
        node.kill();
        let cluster = node.start();
        make_table(&cluster);
        assert!(!node.file("vinga.initial").exists());
        node.kill();
        assert_eq!(node.start().tables().expect("it answers"), ["test.t"]);
    }
}

#[test]
fn a_start_that_is_cut_off_loses_nothing() {
    let mut node = DurableNode::new(&[]);
    let cluster = node.start();
    let table = make_table(&cluster);
    commit(&cluster, &table, &[(1, Some(1))], true).expect("it can be written");
    node.kill();
    for delay in (0..60).step_by(3) {
        for end in [DurableNode::kill, DurableNode::interrupt] {
            node.launch();
            thread::sleep(Duration::from_millis(delay));
            end(&mut node);
        }
    }
    let cluster = node.start();
    let table = table_of(&cluster);
    assert_eq!(value(&cluster, &table, 1), Some(1));
}

/// The records of committed changes that the node has logged since its start, in bytes.
fn logged(cluster: &Cluster) -> u64 {
    let info = cluster.info(vinga::InfoTable::Blocks).expect("it answers");
    let rows = info.rows.iter().filter_map(|row| match &row[..] {
        [_, _, vinga::InfoValue::Text(counter), vinga::InfoValue::Number(value)]
            if counter == "bytes of records" =>
        {
            Some(*value)
        }
        _ => None,
    });
    rows.sum()
}

#[test]
fn a_table_that_is_not_logged_is_there_and_empty() {
    let bigint = ColumnType::Integer { bytes: 8, signed: false };
    let definition = |name: &str| {
        let table = NewTable::new(name).column("id", bigint).column("value", bigint).primary_key(&["id"]);
        table.unique_index("by_value", &["value"]).ordered_index("ordered", &["value"])
    };
    let mut node = DurableNode::new(&[]);
    let cluster = node.start();
    let table = |cluster: &Cluster, name: &str| cluster.table_of::<Row>(name).expect("it is restored");
    cluster.create_table(definition("test.gone").no_logging()).expect("a table can be created");
    cluster.create_table(definition("test.kept")).expect("a table can be created");
    let before = logged(&cluster);
    for id in 0..100 {
        let gone = table(&cluster, "test.gone");
        commit(&cluster, &gone, &[(id, Some(id + 1000))], id % 10 == 0).expect("it can be written");
    }
    assert_eq!(logged(&cluster), before, "nothing of it is logged, in its unique index neither");
    for round in 1..4 {
        let cluster = if round == 1 { cluster.clone() } else { node.start() };
        let (gone, kept) = (table(&cluster, "test.gone"), table(&cluster, "test.kept"));
        if round > 1 {
            let rows = cluster.scan(&gone, |request| request).expect("it can be read");
            let rows: Vec<Row> = rows.collect::<Result<_, _>>().expect("it can be read");
            assert!(rows.is_empty(), "it is empty: {} rows", rows.len());
            let found = cluster.get_by(&gone, "by_value", 1001_u64).expect("it can be read");
            assert!(found.is_none(), "its unique index is empty, too");
            assert_eq!(value(&cluster, &kept, 1), Some(round - 1));
        }
        // Both kinds in a transaction: the logged part is whole. Values of the unique index are free again.
        let mut transaction = cluster.begin().expect("a transaction can begin");
        transaction.set_durable(true);
        for id in 0..100 {
            transaction.write(&gone, &row(id, id + 1000)).expect("it can be written");
        }
        transaction.write(&kept, &row(1, round)).expect("it can be written");
        transaction.write(&kept, &row(2, round + 10)).expect("it can be written");
        transaction.commit().expect("it is on disk");
        assert_eq!(value(&cluster, &kept, 2), Some(round + 10));
        if round == 2 { node.stop() } else { node.kill() }
    }
}

#[test]
fn changes_of_a_durable_table_are_on_disk_when_they_are_answered() {
    let bigint = ColumnType::Integer { bytes: 8, signed: false };
    let definition = |name: &str| {
        let table = NewTable::new(name).column("id", bigint).column("value", bigint).primary_key(&["id"]);
        table.unique_index("by_value", &["value"])
    };
    // What nothing waits for is not on disk when the node is killed.
    let mut node = DurableNode::new(&["TimeBetweenGlobalCheckpoints=32000"]);
    let cluster = node.start();
    let table = |cluster: &Cluster, name: &str| cluster.table_of::<Row>(name).expect("it is restored");
    cluster.create_table(definition("test.d").durable()).expect("a table can be created");
    cluster.create_table(definition("test.m")).expect("a table can be created");
    let error = cluster.create_table(definition("test.x").durable().no_logging()).expect_err("that can't be");
    assert!(error.to_string().contains("not logged can't be durable"), "{error}");
    let mut cluster = cluster;
    for round in 0..6 {
        let (durable, memory) = (table(&cluster, "test.d"), table(&cluster, "test.m"));
        let id = 100 * round;
        match round {
            0 => cluster.insert(&durable, &row(id, id)).map(|_| ()),
            // Many rows at once.
            1 => {
                commit(&cluster, &durable, &(id..id + 50).map(|id| (id, Some(id))).collect::<Vec<_>>(), false)
            }
            // Another table, before and behind.
            2 | 3 => {
                let mut transaction = cluster.begin().expect("a transaction can begin");
                let (first, second) = if round == 2 { (&memory, &durable) } else { (&durable, &memory) };
                transaction.write(first, &row(id, id)).expect("it can be written");
                transaction.write(second, &row(id, id)).expect("it can be written");
                transaction.commit().map(|_| ())
            }
            // A value of the unique index passes from one row to another.
            4 => commit(&cluster, &durable, &[(0, Some(7777)), (id, Some(0))], false),
            _ => commit(&cluster, &durable, &[(0, None)], false),
        }
        .expect("it is committed");
        node.kill();
        cluster = node.start();
        let durable = table(&cluster, "test.d");
        let by_value = |value: u64| cluster.get_by(&durable, "by_value", value).expect("it can be read");
        match round {
            1 => assert!((id..id + 50).all(|id| value(&cluster, &durable, id) == Some(id))),
            4 => {
                assert_eq!(value(&cluster, &durable, 0), Some(7777));
                assert!(by_value(0).is_some() && value(&cluster, &durable, id) == Some(0));
            }
            5 => assert!(value(&cluster, &durable, 0).is_none() && by_value(7777).is_none()),
            _ => assert_eq!(value(&cluster, &durable, id), Some(id), "round {round}"),
        }
        if let 2 | 3 = round {
            assert_eq!(value(&cluster, &table(&cluster, "test.m"), id), Some(id), "the transaction is whole");
        }
    }
    assert_eq!(table(&cluster, "test.d").definition().durability, vinga::Durability::Disk, "it is kept");
}

#[test]
fn without_a_disk_a_durable_table_is_refused() {
    let mut node = DurableNode::new(&["Diskless=yes"]);
    let cluster = node.start();
    let bigint = ColumnType::Integer { bytes: 8, signed: false };
    let definition = NewTable::new("test.d").column("id", bigint).primary_key(&["id"]).durable();
    let error = cluster.create_table(definition).expect_err("there is no disk");
    assert_eq!(error.code(), vinga::ErrorCode::NoDisk);
    assert!(error.to_string().contains("test.d"), "{error}");
}

#[test]
fn people_see_how_full_the_log_is() {
    let mut node = DurableNode::new(&[]);
    let cluster = node.start();
    let table = make_table(&cluster);
    commit(&cluster, &table, &[(1, Some(1))], true).expect("it can be written");
    let redo = |node: &DurableNode, more: &[&str]| {
        let (ok, text) =
            said(vinga().args(["admin", "--connect", &node.address(), "redo"]).args(more).output());
        assert!(ok, "{text}");
        text
    };
    let text = redo(&node, &[]);
    assert!(text.contains("log stream 0 of node 1") && text.contains("in 4 files"), "{text}");
    assert!(text.contains("tail        segment 1, in file 0"), "{text}");
    assert!(text.contains("head        segment 1, in file 0 at byte "), "{text}");
    let json: serde_json::Value = serde_json::from_str(&redo(&node, &["--json"])).expect("it is JSON");
    let stream = &json["streams"][0];
    let bytes = |name: &str| stream[name].as_u64().unwrap_or_else(|| panic!("no {name}: {json}"));
    assert_eq!(bytes("total_bytes"), 4 * ((4 << 20) - 4096));
    assert!(bytes("used_bytes") > 0 && bytes("used_bytes") + bytes("free_bytes") == bytes("total_bytes"));
    assert_eq!(json["advice"]["FragmentLogFileSize"], 4 << 20);

    let mut node = DurableNode::new(&["Diskless=yes"]);
    node.start();
    assert!(redo(&node, &[]).contains("Diskless=yes"));
}

/// A limit of the size of files is to the node what a full disk is: its log fits, a checkpoint of all rows does not.
/// The limit is no multiple of a sector, so the system refuses the rest of a write that it has cut off with EINVAL.
#[test]
fn people_see_that_checkpoints_fail() {
    let folder = Folder::new();
    let up = folder.command("up");
    let mut limited = Command::new("bash");
    limited.args(["-c", "ulimit -f 4101; exec \"$@\"", "bash"]).arg(up.get_program()).args(up.get_args());
    for parameter in [
        "DataMemory=64M",
        "NoOfFragmentLogFiles=8",
        "FragmentLogFileSize=4M",
        "PartitionsPerNode=1",
        "TimeBetweenLocalCheckpoints=14",
    ] {
        limited.args(["--set", parameter]);
    }
    let (ok, text) = said(limited.args(["--port", "0"]).output());
    assert!(ok, "{text}");
    let json = |what: &str, more: &[&str]| -> serde_json::Value {
        let (ok, text) = folder.run(what, &[more, &["--json"]].concat());
        assert!(ok, "{text}");
        serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"))
    };
    assert!(json("status", &[])[0]["failing"].is_null());
    let cluster = Cluster::connect(&folder.addresses([1])).expect("it runs");
    let bytes = ColumnType::VarBinary { bytes_max: 20_000 };
    let id = ColumnType::Integer { bytes: 8, signed: false };
    let definition = NewTable::new("test.t").column("id", id).column("v", bytes).primary_key(&["id"]);
    let table = cluster.create_table(definition).expect("a table can be created");
    for id in 0..400_u64 {
        let row = Record::new([("id", Value::from(id)), ("v", Value::from(vec![7_u8; 20_000]))]);
        cluster.write(&table, &row).expect("it can be written");
    }
    // Until a checkpoint has met the limit.
    while json("status", &[])[0]["failing"].is_null() {
        thread::sleep(Duration::from_millis(20));
    }
    let status = json("status", &[]);
    assert!(status[0]["failing"].as_str().expect("a text").contains("the disk is full"), "{status}");
    assert_eq!(status[0]["running"], true, "{status}");
    let (_, text) = folder.run("status", &[]);
    assert!(text.contains("data node 1 FAILING: checkpoints could not be written"), "{text}");
    assert!(text.contains("checkpoint/000-") && text.contains("os error 27"), "the file and why: {text}");
    for more in [&["disk-writes"][..], &["disk-writes", "--seconds"], &["redo"]] {
        let (ok, text) = folder.run("admin", more);
        assert!(ok && text.contains("FAILING") && text.contains("the disk is full"), "{text}");
    }
    let writes = json("admin", &["disk-writes"]);
    let text = writes.to_string();
    assert!(text.contains("FAILING: checkpoints could not be written"), "{text}");
}

#[test]
fn status_says_how_long_each_phase_of_the_start_took() {
    let folder = Folder::new();
    let status = || -> serde_json::Value {
        let (_, text) = folder.run("status", &["--json"]);
        serde_json::from_str(text.trim()).unwrap_or_else(|_| panic!("no JSON: {text}"))
    };
    assert!(folder.up(&["--port", "0"]).0);
    let phases = |nodes: &serde_json::Value| -> Vec<String> {
        let phases = nodes[0]["start"]["phases"].as_array().unwrap_or_else(|| panic!("{nodes}"));
        phases.iter().map(|phase| phase["phase"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let first = status();
    assert_eq!(phases(&first), ["files made", "system file written", "log opened", "first epoch begun"]);
    assert_eq!(first[0]["start"]["kind"], "first start");
    let create = ["create", "shop.orders", "id bigint unsigned, primary key (id)"];
    assert!(folder.run("admin", &create).0);
    let cluster = Cluster::connect(&folder.addresses([1])).expect("it runs");
    let table = cluster.table("shop.orders").expect("it was made");
    (0..50_u64).for_each(|id| cluster.insert(&table, &[("id", id)]).expect("it is new"));
    drop((table, cluster));
    assert!(folder.run("down", &[]).0 && folder.up(&["--port", "0"]).0);
    // The same in all places.
    for (what, arguments) in [("restarts", &["restarts"][..]), ("status", &["status"])] {
        let output = folder.command("admin").arg("--json").args(arguments).output().expect("the binary runs");
        let rows: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let row = if what == "status" { &rows[0]["start"] } else { &rows[0] };
        assert_eq!((&row["node_id"], &row["kind"]), (&1.into(), &"recovery".into()), "{rows}");
        assert_eq!((&row["phase"], &row["percent"]), (&"started".into(), &100.into()), "{rows}");
        assert_eq!((&row["rows_done"], &row["rows_all"]), (&50.into(), &50.into()), "{rows}");
        assert!(row["bytes_done"].as_u64() > Some(0) && row["bytes_done"] == row["bytes_all"], "{rows}");
        let (begun, ended) = (row["started_at"].as_u64(), row["finished_at"].as_u64());
        assert!(begun > Some(1_700_000_000) && ended >= begun, "{rows}");
        assert!(row["phase_times"].as_str().is_some_and(|times| times.contains("log applied: ")), "{rows}");
    }
    let log = fs::read_to_string(folder.0.join("node-1/vinga.log")).expect("it has one");
    assert!(log.contains("checkpoints loaded in ") && log.contains("indexes built in "), "{log}");
    let second = status();
    assert_eq!(second[0]["start"]["rows_done"], 50, "{second}");
    assert_eq!(second[0]["start"]["phase"], "started");
    assert!(second[0]["start"]["epoch"].as_u64() > Some(0), "{second}");
    assert_eq!(phases(&second)[..3], ["log scanned", "tables made", "checkpoints loaded"]);
    let (_, text) = folder.run("status", &[]);
    assert!(text.contains("data node 1 has started: log scanned in "), "{text}");
    assert!(text.contains("0 rows from checkpoints, ") && text.contains(" up to epoch "), "{text}");
    assert!(folder.run("down", &[]).0);
    assert!(status()[0]["start"].is_null());
}

#[test]
fn commits_without_changes_do_not_keep_a_checkpoint_from_counting() {
    let mut node = DurableNode::new(&[
        "NoOfFragmentLogParts=4",
        "NoOfFragmentLogFiles=8",
        "TimeBetweenGlobalCheckpoints=1000",
        "TimeBetweenEpochs=5",
        "MinDiskWriteSpeed=6M",
        "MaxDiskWriteSpeed=6M",
        "MaxDiskWriteSpeedOwnRestart=6M",
    ]);
    let cluster = node.start();
    let table = make_table(&cluster);
    let insert = |ids: std::ops::Range<u64>| {
        for first in ids.step_by(3000) {
            let mut batch = vinga::WriteBatch::new();
            (first..first + 3000).for_each(|id| batch.insert(&table, &row(id, id)).expect("it is a row"));
            let batch = cluster.start_writes(batch).expect("it is sent").wait();
            assert!(batch.endings().all(|ending| ending.is_ok()));
        }
    };
    insert(0..150_000);
    // Meanwhile a checkpoint is written, ends, and counts: no epoch of these commits gets an end record.
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        let locked = cluster.run(|tx| {
            (0..8u64).try_for_each(|id| tx.read_locked(&table, id, vinga::Lock::Exclusive).map(|_| ()))
        });
        locked.expect("they are there");
    }
    // A segment begins, which says that the log is needed from the checkpoint on.
    insert(150_000..225_000);
    node.kill();
    let cluster = node.start();
    assert!(cluster.count(&table_of(&cluster), |scan| scan).expect("it can be counted") >= 150_000);
}
