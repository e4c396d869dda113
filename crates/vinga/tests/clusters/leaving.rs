//! Data nodes that leave before they stop, and are restarted, one or all of them: clients, which never try again,
//! notice nothing of it.

use crate::bank::Bank;
use crate::restarts::{PAIR, SETTINGS, up, up_with};
use crate::returning::Rows;
use crate::support::folder::{Folder, said};
use serde_json::Value as Json;
use vinga::blocking::Cluster;
use vinga::{ColumnType, Lock, NewTable, NodeId, Record, Value};
use vinga_runtime::node_folder::NodeFolder;

pub fn connect(folder: &Folder, nodes: &[u8]) -> Cluster {
    Cluster::connect(&folder.addresses(nodes.iter().copied())).expect("they admit us")
}

/// What a command prints as JSON.
#[track_caller]
pub fn json(folder: &Folder, what: &[&str]) -> Json {
    let output = folder.command("admin").args(what).arg("--json").output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

#[track_caller]
pub fn refused(folder: &Folder, what: &[&str]) -> String {
    let (ok, text) = folder.run("admin", what);
    assert!(!ok, "{what:?}: {text}");
    text
}

/// Starts those that do not run.
#[track_caller]
fn start_again(folder: &Folder) {
    let (ok, text) = said(folder.plain_command("up").args(SETTINGS).output());
    assert!(ok && text.contains(": it has joined the others"), "{text}");
}

/// The one that leads the cluster.
fn president(cluster: &Cluster) -> NodeId {
    cluster.data_node_states().into_iter().find(|one| one.leads).expect("one leads").node
}

/// Each of the two in turn, so that the one that leads is among them.
#[test]
fn nobody_notices_one_that_leaves_before_it_stops() {
    let folder = up(&PAIR);
    let cluster = connect(&folder, &[1, 2]);
    let bank = Bank::new(&cluster, "leaves before it stops");
    bank.run(|| {
        let mut led = 0;
        for node in [2u8, 1, 2] {
            bank.wait_for(50);
            led += u32::from(president(&cluster) == NodeId(node));
            let (ok, text) = folder.run("admin", &["stop", &node.to_string(), "--wait"]);
            assert!(ok && text.contains(&format!("data node {node} has left and has stopped")), "{text}");
            let stopped = NodeFolder::new(&folder.0, node);
            assert_eq!(stopped.running().expect("the folder is there"), None);
            assert_eq!(stopped.parent().expect("the folder is there"), None, "nobody starts it again");
            bank.wait_for(50);
            start_again(&folder);
        }
        assert!(led > 0, "one of them has led");
        bank.wait_for(50);
    });
    bank.check_that_none_has_failed();
    bank.check();
}

#[test]
fn nobody_notices_one_that_is_restarted() {
    let folder = up(&PAIR);
    let cluster = connect(&folder, &[1, 2]);
    let rows = Rows::new(&cluster, 3_000);
    let bank = Bank::new(&cluster, "is restarted");
    let starts = || -> Vec<_> { cluster.data_node_states().iter().map(|one| one.incarnation).collect() };
    bank.run(|| {
        bank.wait_for(50);
        let before = starts();
        let (ok, text) = folder.run("admin", &["restart", "2"]);
        assert!(ok && text.contains("data node 2 is started again: it has left after "), "{text}");
        bank.wait_until(|| starts().len() == 2);
        let between = starts();
        assert!(before[0] == between[0] && before[1] != between[1], "{before:?} {between:?}");
        bank.wait_for(50);
        let said = json(&folder, &["restart", "1", "--wait", "600"]);
        assert_eq!((&said["node"], &said["has_left"]), (&1.into(), &true.into()), "{said}");
        bank.wait_for(50);
    });
    bank.check_that_none_has_failed();
    bank.check();
    rows.check(&cluster);
    // It was neither killed nor could it not go on: its parent says what it was.
    for node in [1, 2] {
        let log = std::fs::read_to_string(NodeFolder::new(&folder.0, node).log()).expect("it has a log");
        assert!(log.contains(&format!("data node {node} has stopped to be started again")), "{log}");
        assert!(!log.contains("it is started again in"), "{log}");
    }
    let (ok, text) = folder.run("status", &[]);
    assert!(ok && text.matches("running").count() == 3, "the management node, too: {text}");
}

#[test]
fn nobody_notices_that_all_are_restarted() {
    let folder = up(&PAIR);
    let cluster = connect(&folder, &[1, 2]);
    let rows = Rows::new(&cluster, 3_000);
    let bank = Bank::new(&cluster, "all are restarted");
    bank.run(|| {
        bank.wait_for(50);
        let (leads, before) = (president(&cluster), cluster.data_node_states());
        let (ok, text) = folder.run("admin", &["rolling-restart"]);
        assert!(ok && text.contains("all 2 data nodes are restarted, in "), "{text}");
        let at = |node: u8| text.find(&format!("data node {node} is started again")).expect("it has a line");
        assert!(at(leads.0) > at(3 - leads.0), "the one that leads is the last: {text}");
        bank.wait_until(|| cluster.data_node_states().len() == 2);
        let now = cluster.data_node_states();
        assert!(before.iter().zip(&now).all(|(before, now)| before.incarnation != now.incarnation));
        bank.wait_for(50);
        let said = json(&folder, &["rolling-restart", "--wait", "600"]);
        let all = said["restarted"].as_array().expect("a list");
        assert!(all.len() == 2 && all.iter().all(|one| one["has_left"] == true), "{said}");
        bank.wait_for(50);
    });
    bank.check_that_none_has_failed();
    bank.check();
    rows.check(&cluster);
}

/// A transaction that is open all the time holds rows of all partitions.
#[test]
fn one_that_can_not_leave_in_time_stops_and_says_so() {
    let folder = up(&PAIR);
    let cluster = connect(&folder, &[1, 2]);
    let table = NewTable::new("test.t")
        .column("id", ColumnType::Integer { bytes: 8, signed: false })
        .primary_key(&["id"]);
    let table = cluster.create_table(table).expect("a table can be created");
    for id in 0..100u64 {
        cluster.insert(&table, &Record::new([("id", Value::from(id))])).expect("a good row");
    }
    let lock_all = || {
        let mut transaction = cluster.begin().expect("connected");
        for id in 0..100u64 {
            let found: Option<Record> =
                transaction.read_locked(&table, id, Lock::Exclusive).expect("nobody else has it");
            assert!(found.is_some());
        }
        transaction
    };
    let mut open = lock_all();
    let (ok, text) = folder.run("admin", &["stop", "2", "--wait", "1"]);
    assert!(ok && text.contains("data node 2 has stopped: it had not left after 1 s"), "{text}");
    assert!(text.contains("transactions that were open there were rolled back"), "{text}");
    assert!(open.read_locked::<Record>(&table, 0u64, Lock::Exclusive).is_err() || open.commit().is_err());

    start_again(&folder);
    let cluster = connect(&folder, &[1, 2]);
    let mut open = cluster.begin().expect("connected");
    for id in 0..100u64 {
        let found: Option<Record> =
            open.read_locked(&table, id, Lock::Exclusive).expect("nobody else has it");
        assert!(found.is_some());
    }
    let said = json(&folder, &["stop", "2", "--wait", "1"]);
    assert_eq!(said, serde_json::json!({ "stopped": 2, "has_left": false }));
}

#[test]
fn those_that_are_needed_are_not_stopped() {
    let folder = up(&["--data-nodes", "2", "--replicas", "1"]);
    let (ok, text) = folder.run("admin", &["stop", "2", "--wait"]);
    assert!(!ok && text.contains("20076"), "{text}");
    let text = refused(&folder, &["restart", "2"]);
    assert!(text.contains("20076") && text.contains("when another one with the same rows"), "{text}");
    let text = refused(&folder, &["rolling-restart"]);
    assert!(text.contains("is the only one of node group") && text.contains("Nothing was stopped"), "{text}");
    let text = refused(&folder, &["restart", "9"]);
    assert!(text.contains("there is no data node 9"), "{text}");
    let text = refused(&folder, &["stop", "2", "--wait", "--force"]);
    assert!(text.contains("cannot be used with"), "{text}");
    for wrong in ["0", "3601"] {
        let text = refused(&folder, &["restart", "2", "--wait", wrong]);
        assert!(text.contains("from 1 to 3600"), "{text}");
    }
    let (ok, text) = folder.run("status", &[]);
    assert!(ok, "{text}");

    let folder = up(&PAIR);
    let said = json(&folder, &["stop", "2", "--wait"]);
    assert_eq!(said, serde_json::json!({ "stopped": 2, "has_left": true }));
    let text = refused(&folder, &["stop", "1", "--wait"]);
    assert!(text.contains("20076") && text.contains("data node 1 is the last one of node group 0"), "{text}");
    assert!(refused(&folder, &["rolling-restart"]).contains("data node 1 is the only one"));
    let text = refused(&folder, &["restart", "2"]);
    assert!(text.contains("data node 2 is not in the cluster any more"), "{text}");
}

/// `StopOnError`: they have no parents.
#[test]
fn one_that_nobody_starts_again_is_named() {
    let settings = [&SETTINGS[..], &["--set", "StopOnError=yes"]].concat();
    let folder = up_with(&settings, &["--data-nodes", "3", "--replicas", "3"]);
    let text = refused(&folder, &["restart", "3"]);
    assert!(text.contains("data node 3 has stopped, and nobody has started it again"), "{text}");
    let cluster = connect(&folder, &[1, 2]);
    let (last, first) = (president(&cluster), NodeId(3 - president(&cluster).0));
    let text = refused(&folder, &["rolling-restart"]);
    assert!(text.contains(&format!("data node {first} has stopped, and nobody has started it")), "{text}");
    assert!(text.contains(&format!("restarted: none; not restarted: {first}, {last}")), "{text}");
}
