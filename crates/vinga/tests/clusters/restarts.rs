//! Data nodes that `vinga up` has started, and that end by themselves, are started again by their parents.

use crate::bank::Bank;
use crate::returning::Rows;
use crate::support::HANG_GUARD;
use crate::support::folder::{Folder, said};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga_runtime::node_folder::NodeFolder;

/// A cluster whose data nodes are started again.
pub fn up(more: &[&str]) -> Folder {
    up_with(&SETTINGS, more)
}

pub fn up_with(settings: &[&str], more: &[&str]) -> Folder {
    let folder = Folder::new();
    let mut up = folder.plain_command("up");
    up.args(settings).args(["--port", "0"]).args(more);
    let (ok, text) = said(up.output());
    assert!(ok, "{text}");
    folder
}

/// A data node, or a transaction that holds a lock, may stand still for seconds where others want the CPUs, too.
pub const SETTINGS: [&str; 6] = [
    "--set",
    "DataMemory=64M",
    "--set",
    "HeartbeatIntervalDbDb=5000",
    "--set",
    "TransactionDeadlockDetectionTimeout=20000",
];

pub const PAIR: [&str; 4] = ["--data-nodes", "2", "--replicas", "2"];

fn kill(node: &NodeFolder) {
    let pid = node.running().expect("the folder is there").expect("it runs");
    kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("it runs");
    await_that(node, || node.running().expect("the folder is there") != Some(pid));
}

fn await_that(node: &NodeFolder, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        let log = std::fs::read_to_string(node.log());
        assert!(begun.elapsed() < HANG_GUARD, "{}:\n{}", node.path().display(), log.unwrap_or_default());
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until a process of the node has said that it is ready, `count` times in all.
fn await_ready(node: &NodeFolder, count: usize) {
    await_that(node, || {
        let log = std::fs::read_to_string(node.log()).expect("it has a log");
        log.matches(" is ready on ").count() == count
    });
}

#[test]
fn one_that_is_killed_comes_back_by_itself() {
    let folder = up(&PAIR);
    let nodes = [1, 2].map(|node| NodeFolder::new(&folder.0, node));
    let cluster = Cluster::connect(&folder.addresses([1, 2])).expect("they admit us");
    let bank = Bank::new(&cluster, "started again");
    bank.run(|| {
        for (at, count) in [(1, 2), (0, 2), (1, 3)] {
            bank.wait_for(50);
            kill(&nodes[at]);
            await_ready(&nodes[at], count);
        }
        bank.wait_for(50);
    });
    bank.check();
    drop(cluster);
    // It is found running: nothing is started.
    let (ok, text) = said(folder.plain_command("up").output());
    assert!(ok && text.contains("data node 2 is running already"), "{text}");
    let (ok, text) = folder.run("down", &[]);
    assert!(
        ok && text.contains("data node 1 has stopped") && text.contains("data node 2 has stopped"),
        "{text}"
    );
    for node in &nodes {
        assert_eq!((node.running().expect("it is there"), node.parent().expect("it is there")), (None, None));
    }
}

/// All that had the database are gone at once: who begins an empty one says so.
#[test]
fn those_that_are_all_killed_begin_an_empty_database() {
    let folder = up(&PAIR);
    let nodes = [1, 2].map(|node| NodeFolder::new(&folder.0, node));
    nodes.iter().for_each(kill);
    for node in &nodes {
        await_ready(node, 2);
        await_that(node, || {
            let log = std::fs::read_to_string(node.log()).expect("it has a log");
            log.contains("the database begins empty: that of the start at ")
        });
    }
}

/// One that is to stop is not started again, nor one that was to be started again when the cluster is stopped.
#[test]
fn one_that_is_stopped_stays_down() {
    let folder = up(&PAIR);
    let nodes = [1, 2].map(|node| NodeFolder::new(&folder.0, node));
    let (ok, text) = folder.run("admin", &["stop", "2"]);
    assert!(ok, "{text}");
    await_that(&nodes[1], || nodes[1].parent().expect("the folder is there").is_none());
    assert_eq!(nodes[1].running().expect("the folder is there"), None);

    let (ok, text) = said(folder.plain_command("up").args(SETTINGS).output());
    assert!(ok && text.contains(": it has joined the others"), "{text}");
    let is_between = || nodes[1].running().expect("the folder is there").is_none();
    // Each pause is longer than the one before.
    let kill_until_it_pauses = || {
        for _ in 0..4 {
            await_that(&nodes[1], || !is_between());
            kill(&nodes[1]);
        }
    };
    kill_until_it_pauses();
    let (ok, text) = folder.run("admin", &["stop", "2"]);
    assert!(ok && text.contains("data node 2 has stopped"), "{text}");
    assert_eq!((is_between(), nodes[1].parent().expect("the folder is there")), (true, None));

    let (ok, text) = said(folder.plain_command("up").args(SETTINGS).output());
    assert!(ok && text.contains(": it has joined the others"), "{text}");
    kill_until_it_pauses();
    let (_, text) = folder.run("status", &[]);
    assert!(text.contains("starts again") || !is_between(), "{text}");
    let (ok, text) = folder.run("down", &[]);
    assert!(ok, "{text}");
    for node in &nodes {
        assert_eq!((node.running().expect("it is there"), node.parent().expect("it is there")), (None, None));
    }
    let (_, text) = folder.run("status", &[]);
    assert!(!text.contains("starts again"), "{text}");
}

#[test]
fn the_only_one_comes_back_with_its_database() {
    let folder = up(&[]);
    let node = NodeFolder::new(&folder.0, 1);
    kill(&node);
    await_ready(&node, 2);
    let log = std::fs::read_to_string(node.log()).expect("it has a log");
    assert!(
        log.contains("restarts: data node 1 has ended by signal 9: it is started again in 0.5 s"),
        "{log}"
    );
    let (ok, text) = folder.run("down", &[]);
    assert!(ok && text.contains("data node 1 has stopped; its data is on disk"), "{text}");
    assert_eq!(node.parent().expect("the folder is there"), None);
}

/// The first start fails: whoever has asked for it gets the reason, and nothing is tried again.
#[test]
fn one_that_can_not_start_the_first_time_is_not_started_again() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    let folder = Folder::new();
    let (ok, text) =
        said(folder.plain_command("up").args(["--set", "DataMemory=64M", "--port", &port]).output());
    assert!(!ok && text.contains("is in use"), "{text}");
    let node = NodeFolder::new(&folder.0, 1);
    await_that(&node, || node.parent().expect("the folder is there").is_none());
}

/// The other one waits for it: that is the only one with which it can begin anew.
#[test]
fn one_that_loses_its_cluster_in_its_first_run_comes_back() {
    let settings = ["--set", "DataMemory=256M", "--set", "HeartbeatIntervalDbDb=5000"];
    let folder = up_with(&settings, &PAIR);
    let nodes = [1, 2].map(|node| NodeFolder::new(&folder.0, node));
    let cluster = Cluster::connect(&folder.addresses([1, 2])).expect("they admit us");
    let _rows = Rows::new(&cluster, 100_000);
    let (ok, text) = folder.run("admin", &["stop", "2"]);
    assert!(ok, "{text}");
    drop(cluster);
    let behind = nodes[1].log_bytes();
    let copies = || nodes[1].log_tail(behind, 1_000).contains("tables and clients learned in");
    let mut command = folder.plain_command("up");
    command.args(settings);
    let up = thread::spawn(move || said(command.output()));
    await_that(&nodes[1], copies);
    kill(&nodes[0]);
    let (ok, text) = up.join().expect("it does not panic");
    assert!(ok && text.contains("data node 2 is ready on"), "{text}");
    assert!(text.contains("warning of restarts: data node 2 has ended with exit code 71"), "{text}");
    let log = nodes[1].log_tail(behind, 1_000);
    assert!(log.contains("no data node with all rows of node group 0 is left"), "{log}");
}

/// Its file was changed, and its starts fail again and again. Whoever looks, or waits for it, gets the reason.
#[test]
fn why_one_does_not_come_back_is_said() {
    let folder = up(&PAIR);
    let node = NodeFolder::new(&folder.0, 2);
    let file = folder.0.join("config.ini");
    let good = std::fs::read_to_string(&file).expect("it is there");
    let wrong = good.replace("[ndbd default]", "[ndbd default]\nNoOfFragmentLogParts=6");
    assert_ne!(good, wrong);
    std::fs::write(&file, wrong).expect("it is ours");
    kill(&node);
    let why = "it has ended: data node 1 (";
    for command in [&["admin", "status"][..], &["status"]] {
        await_that(&node, || folder.run(command[0], &command[1..]).1.contains(why));
    }
    let (ok, text) = said(folder.plain_command("up").args(SETTINGS).output());
    assert!(!ok && text.contains("data node 2 does not come back: it has ended: "), "{text}");
    std::fs::write(&file, good).expect("it is ours");
    await_ready(&node, 2);
}

/// The other one is killed before one that is restarted is back: the cluster begins anew, without its rows, and that is
/// no success. It may be back before: then it goes on alone.
#[test]
fn a_restart_in_which_the_cluster_begins_anew_fails() {
    let folder = up(&PAIR);
    let nodes = [1, 2].map(|node| NodeFolder::new(&folder.0, node));
    let pid = |node: &NodeFolder| node.running().expect("the folder is there");
    for attempt in 1.. {
        let before = pid(&nodes[1]);
        let restart = folder
            .command("admin")
            .args(["restart", "2"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let restart = restart.expect("it can be run");
        await_that(&nodes[1], || pid(&nodes[1]) != before);
        kill(&nodes[0]);
        let (ok, text) = said(restart.wait_with_output());
        if !ok {
            assert!(text.contains("have ended, and it has begun anew"), "{text}");
            return;
        }
        assert!(attempt < 20, "{text}");
        await_ready(&nodes[0], attempt + 1);
    }
}

/// Both others have come back since it was stopped, and nobody has seen it leave.
#[test]
fn one_that_no_member_remembers_is_started() {
    let folder = up(&["--data-nodes", "3", "--replicas", "3"]);
    let nodes = [1, 2, 3].map(|node| NodeFolder::new(&folder.0, node));
    let (ok, text) = folder.run("admin", &["stop", "3"]);
    assert!(ok, "{text}");
    for node in &nodes[..2] {
        kill(node);
        await_ready(node, 2);
    }
    let (ok, text) = said(folder.plain_command("up").args(SETTINGS).output());
    assert!(ok && text.contains("data node 3 is ready on") && text.contains("\n3 data nodes, "), "{text}");
}

/// It copies its rows, and becomes the primary of its share, when all clients are connected to it.
#[test]
fn clients_do_not_notice_one_that_comes_back() {
    let folder = up(&PAIR);
    let (ok, text) = folder.run("admin", &["stop", "2"]);
    assert!(ok, "{text}");
    let cluster = Cluster::connect(&folder.addresses([1])).expect("it admits us");
    let bank = Bank::new(&cluster, "comes back");
    bank.run(|| {
        bank.wait_for(50);
        let (ok, text) = said(folder.plain_command("up").args(SETTINGS).output());
        assert!(ok && text.contains(": it has joined the others"), "{text}");
        let begun = Instant::now();
        let moved = |node: &str| {
            let log = std::fs::read_to_string(NodeFolder::new(&folder.0, 1).log()).expect("it has a log");
            log.matches(node).count() > 0
        };
        while !moved("is the primary of partition") {
            assert!(begun.elapsed() < HANG_GUARD, "nothing moves");
            thread::sleep(Duration::from_millis(1));
        }
        bank.wait_for(500);
    });
    bank.check_that_none_has_failed();
    bank.check();
}
