//! Data nodes end, and come back while the others run: as full members, as often as that happens, and whoever ends
//! meanwhile. What can't be joined is refused with its reason.

use crate::bank::Bank;
use crate::support::HANG_GUARD;
use crate::support::folder::{BEATING, Folder, Suspended, said, vinga};
use rustix::process::{Pid, Signal, kill_process};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use vinga::blocking::Cluster;
use vinga::{ColumnType, NewTable, Record, Table, Value};
use vinga_rig::process::NodeProcess;
use vinga_runtime::node_folder::NodeFolder;

/// Parameters of data nodes that no busy machine lets each other down.
const PATIENT: [&str; 2] = ["--set", "HeartbeatIntervalDbDb=5000"];
/// Address space of a data node that is started again.
const ADDRESS_SPACE: u64 = 12_000_000_000;

/// A cluster's data nodes, each of which can be started again by the command that it was started with.
struct Cast {
    folder: Folder,
    commands: BTreeMap<u8, Vec<Vec<u8>>>,
    again: RefCell<BTreeMap<u8, NodeProcess>>,
}

impl Cast {
    /// Starts a cluster of some data nodes, with two replicas.
    fn up(data_nodes: u8, more: &[&str]) -> Self {
        let folder = Folder::new();
        let mut up = folder.command("up");
        up.args(["--data-nodes", &data_nodes.to_string(), "--replicas", "2", "--port", "0"]).args(more);
        let (ok, text) = said(up.output());
        assert!(ok, "{text}");
        let command = |node| {
            let pid = pid(&folder, node).as_raw_nonzero();
            let line = fs::read(format!("/proc/{pid}/cmdline")).expect("it runs");
            let words = line.split(|&byte| byte == 0).filter(|word| !word.is_empty());
            (node, words.map(<[u8]>::to_vec).collect())
        };
        let commands = (1..=data_nodes).map(command).collect();
        Cast { folder, commands, again: RefCell::default() }
    }

    fn connect(&self) -> Cluster {
        let addresses = self.folder.addresses(self.commands.keys().copied());
        Cluster::connect(&addresses).expect("they admit us")
    }

    fn node(&self, node: u8) -> NodeFolder {
        NodeFolder::new(&self.folder.0, node)
    }

    /// All that a data node has logged, in all its runs.
    fn log(&self, node: u8) -> String {
        fs::read_to_string(self.node(node).log()).expect("it has a log")
    }

    /// Ends a data node as a power failure would.
    fn kill(&self, node: u8) {
        kill_process(pid(&self.folder, node), Signal::KILL).expect("it runs");
        self.await_end(node);
    }

    /// Waits until a data node has ended.
    fn await_end(&self, node: u8) {
        let begun = Instant::now();
        while self.node(node).running().expect("the folder is there").is_some() {
            assert!(begun.elapsed() < HANG_GUARD, "data node {node} runs:\n{}", self.log(node));
            thread::sleep(Duration::from_millis(1));
        }
        // Ours are collected.
        self.again.borrow_mut().remove(&node);
    }

    /// The command that a data node was started with.
    fn command(&self, node: u8) -> Command {
        let words: Vec<&OsStr> = self.commands[&node].iter().map(|word| OsStr::from_bytes(word)).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command
    }

    /// Starts a data node again.
    fn start(&self, node: u8) {
        let log = File::options().append(true).open(self.node(node).log()).expect("it has a log");
        let mut command = self.command(node);
        let process = NodeProcess::start(command.stdout(Stdio::null()).stderr(log), Some(ADDRESS_SPACE));
        assert!(self.again.borrow_mut().insert(node, process).is_none(), "it has ended before");
    }

    /// Waits until a data node has logged this, behind so many bytes of its log.
    fn await_line(&self, node: u8, behind: usize, line: &str) {
        let begun = Instant::now();
        while !self.log(node)[behind..].contains(line) {
            let ends = self.again.borrow_mut().get_mut(&node).is_some_and(|process| !process.is_alive());
            let log = self.log(node);
            assert!(!ends || log[behind..].contains(line), "data node {node} has ended:\n{log}");
            assert!(begun.elapsed() < HANG_GUARD, "data node {node} does not say '{line}':\n{log}");
        }
    }

    /// Starts data nodes again, and waits until they are full members.
    fn bring_back(&self, nodes: &[u8]) {
        let behind: Vec<usize> = nodes.iter().map(|&node| self.log(node).len()).collect();
        nodes.iter().for_each(|&node| self.start(node));
        for (&node, behind) in nodes.iter().zip(behind) {
            self.await_line(node, behind, &format!("data node {node} is ready on"));
        }
        self.await_states(|states| states.values().all(|state| state == "started"));
    }

    /// Waits until `vinga admin status` says this of all data nodes.
    fn await_states(&self, is_so: impl Fn(&BTreeMap<u64, String>) -> bool) {
        let begun = Instant::now();
        loop {
            let output = self.folder.command("admin").args(["--json", "status"]).output();
            let output = output.expect("the binary runs");
            let nodes = serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap_or_default();
            let of = |node: &serde_json::Value| {
                let is_data = node["kind"] == "data";
                is_data.then(|| Some((node["node"].as_u64()?, node["state"].as_str()?.to_owned())))?
            };
            let states = nodes.as_array().into_iter().flatten().filter_map(of).collect();
            if is_so(&states) {
                return;
            }
            assert!(begun.elapsed() < HANG_GUARD, "{states:?} {output:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// A data node has ended by itself; what it has said why, behind so many bytes of its log.
    fn why_ended(&self, node: u8, behind: usize) -> String {
        self.await_end(node);
        let log = self.log(node).split_off(behind);
        let why = log.lines().rfind(|line| line.contains("can't go on: ") || line.starts_with("vinga: "));
        why.unwrap_or_else(|| panic!("data node {node} says why it ends:\n{log}")).to_owned()
    }
}

fn pid(folder: &Folder, node: u8) -> Pid {
    let pid = NodeFolder::new(&folder.0, node).running().expect("the folder is there").expect("it runs");
    Pid::from_raw(pid).expect("a process")
}

/// Rows of one kilobyte each.
pub struct Rows {
    table: Table,
    count: u64,
}

impl Rows {
    pub fn new(cluster: &Cluster, count: u64) -> Self {
        let table = NewTable::new("test.rows")
            .column("id", ColumnType::Integer { bytes: 8, signed: false })
            .column("v", ColumnType::VarBinary { bytes_max: 2_000 })
            .primary_key(&["id"]);
        let table = cluster.create_table(table).expect("a table can be created");
        let mut random = fastrand::Rng::with_seed(count);
        let mut first = 0;
        while first < count {
            let end = count.min(first + 100);
            let mut transaction = cluster.begin().expect("connected");
            for id in first..end {
                transaction.insert(&table, &Self::row(id)).expect("a good row");
            }
            transaction.commit().expect("there is no conflict");
            first = end;
            // Not too regular.
            thread::sleep(Duration::from_micros(random.u64(..3)));
        }
        Rows { table, count }
    }

    fn row(id: u64) -> Record {
        Record::new([("id", Value::from(id)), ("v", Value::from(vec![id as u8; 1_000]))])
    }

    /// All are there.
    pub fn check(&self, cluster: &Cluster) {
        for first in (0..self.count).step_by(1_000) {
            let ids = first..self.count.min(first + 1_000);
            let begun = Instant::now();
            let rows = loop {
                match cluster.get_many(&self.table, ids.clone()) {
                    Ok(rows) => break rows,
                    // A data node has ended that was asked.
                    Err(why) if why.is_retryable() && begun.elapsed() < HANG_GUARD => {}
                    Err(why) => panic!("{why}"),
                }
            };
            assert!(ids.zip(&rows).all(|(id, found)| found.as_ref() == Some(&Self::row(id))));
        }
    }
}

/// Under load, three times: each time the other one is killed that has all rows.
#[test]
fn a_data_node_that_is_killed_comes_back_again_and_again() {
    let cast = Cast::up(2, &[&PATIENT[..], &["--set", "DataMemory=64M"]].concat());
    let cluster = cast.connect();
    let rows = Rows::new(&cluster, 3_000);
    let bank = Bank::new(&cluster, "they come back");
    bank.run(|| {
        for node in [2, 1, 2] {
            bank.wait_for(50);
            cast.kill(node);
            // At once, as whoever watches it would.
            cast.bring_back(&[node]);
            bank.wait_for(50);
        }
        rows.check(&cluster);
        cast.kill(1);
        bank.wait_for(100);
    });
    rows.check(&cluster);
    bank.check();
    cast.bring_back(&[1]);
    rows.check(&cluster);
}

#[test]
fn one_of_each_node_group_comes_back_at_once() {
    let cast = Cast::up(4, &[&PATIENT[..], &["--set", "DataMemory=64M"]].concat());
    let cluster = cast.connect();
    let rows = Rows::new(&cluster, 3_000);
    let bank = Bank::new(&cluster, "one of each group");
    bank.run(|| {
        for pair in [[2, 3], [1, 4]] {
            bank.wait_for(50);
            pair.iter().for_each(|&node| cast.kill(node));
            cast.bring_back(&pair);
            bank.wait_for(50);
        }
        for node in [2, 3] {
            cast.kill(node);
        }
        bank.wait_for(100);
    });
    rows.check(&cluster);
    bank.check();
}

/// A cluster with so many rows that copying them takes a while.
fn with_many_rows(data_nodes: u8) -> (Cast, Cluster, Rows) {
    // One that ends before it has answered a heartbeat is left out after some intervals.
    let parameters = ["--set", "HeartbeatIntervalDbDb=2000", "--set", "DataMemory=256M"];
    let cast = Cast::up(data_nodes, &parameters);
    let cluster = cast.connect();
    let rows = Rows::new(&cluster, 100_000);
    (cast, cluster, rows)
}

/// Starts a data node again; returns where its log begins when it is being sent its rows.
fn begin_copy(cast: &Cast, node: u8) -> usize {
    let behind = cast.log(node).len();
    cast.start(node);
    cast.await_line(node, behind, "tables and clients learned in");
    behind
}

#[test]
fn a_newcomer_that_is_killed_while_it_copies_comes_back() {
    let (cast, cluster, rows) = with_many_rows(2);
    cast.kill(2);
    for _ in 0..3 {
        let behind = begin_copy(&cast, 2);
        cast.kill(2);
        let log = cast.log(2).split_off(behind);
        assert!(!log.contains("rows copied in"), "it was killed before it had them all: {log}");
    }
    cast.bring_back(&[2]);
    cast.kill(1);
    rows.check(&cluster);
}

/// Nobody else has the rows of its node group.
#[test]
fn all_stop_when_the_last_replica_fails_while_a_newcomer_copies() {
    for data_nodes in [2, 4] {
        let (cast, cluster, _) = with_many_rows(data_nodes);
        cast.kill(2);
        let behind = begin_copy(&cast, 2);
        let rest: Vec<(u8, usize)> = (3..=data_nodes).map(|node| (node, cast.log(node).len())).collect();
        cast.kill(1);
        for (node, behind) in rest.into_iter().chain([(2, behind)]) {
            let why = cast.why_ended(node, behind);
            assert!(why.contains("no data node with all rows of node group 0 is left"), "{why}");
        }
        drop(cluster);
    }
}

#[test]
fn a_data_node_that_was_stopped_in_order_comes_back() {
    let cast = Cast::up(2, &[&PATIENT[..], &["--set", "DataMemory=64M"]].concat());
    let cluster = cast.connect();
    let rows = Rows::new(&cluster, 3_000);
    let bank = Bank::new(&cluster, "stopped in order");
    bank.run(|| {
        for node in [2, 1, 2, 1] {
            let (ok, text) = cast.folder.run("admin", &["stop", &node.to_string()]);
            assert!(ok, "{text}");
            cast.await_end(node);
            bank.wait_for(20);
            cast.bring_back(&[node]);
            bank.wait_for(20);
        }
    });
    rows.check(&cluster);
    bank.check();
}

#[test]
fn a_data_node_that_was_left_out_as_it_stood_still_comes_back() {
    let cast = Cast::up(2, &BEATING);
    let cluster = cast.connect();
    let rows = Rows::new(&cluster, 3_000);
    for node in [2, 1] {
        let other = 3 - node;
        let (behind, decided) = (cast.log(node).len(), cast.log(other).len());
        let suspended = Suspended::new(&cast.folder.0, node);
        cast.await_line(other, decided, &format!("without data nodes {node}"));
        drop(suspended);
        let why = cast.why_ended(node, behind);
        assert!(why.contains("have gone on"), "{why}");
        cast.bring_back(&[node]);
        rows.check(&cluster);
    }
}

/// What is wrong with a data node is said by itself; the cluster goes on, and takes the right one.
#[test]
fn one_that_does_not_fit_the_cluster_is_refused() {
    let cast = Cast::up(2, &[&PATIENT[..], &["--set", "DataMemory=64M"]].concat());
    let cluster = cast.connect();
    let rows = Rows::new(&cluster, 20_000);
    cast.kill(2);
    let config = fs::read_to_string(cast.folder.0.join("config.ini")).expect("it is there");
    let other_key = cast.folder.0.join("other.key");
    let (ok, text) = said(vinga().arg("key").arg(&other_key).output());
    assert!(ok, "{text}");
    let changed = |what: &str, to: &str| {
        assert!(config.contains(what), "{config}");
        config.replace(what, to)
    };
    let key_line = format!("ClusterKeyFile={}", cast.folder.0.join("cluster.key").display());
    let wrong = [
        (changed(&key_line, &format!("ClusterKeyFile={}", other_key.display())), &[][..], "20033"),
        (changed("[ndbd default]", "[cluster]\nName=other\n[ndbd default]"), &[], "20002"),
        (config.clone(), &["--set", "NoOfFragmentLogParts=4"], "20031"),
        (config.clone(), &["--set", "HeartbeatIntervalDbDb=4000"], "20031"),
        (config.clone(), &["--set", "DataMemory=16M"], "827"),
    ];
    for (text, more, number) in wrong {
        let file = cast.folder.0.join("wrong.ini");
        fs::write(&file, text).expect("a file can be written");
        let mut command = vinga();
        command.args(["data", "--node", "2", "--folder"]).arg(cast.node(2).path()).arg("--config").arg(&file);
        if !more.iter().any(|word| word.starts_with("HeartbeatInterval")) {
            command.args(PATIENT);
        }
        let (ok, text) = said(command.args(more).output());
        assert!(!ok && text.contains(number), "{more:?} {number}: {text}");
        // Its threads may log something behind that.
        let why = text.lines().rfind(|line| line.starts_with("vinga: ")).expect("it says why");
        assert!(why.len() > 40, "{why}");
        rows.check(&cluster);
    }
    // With the id of the one that runs.
    let mut command = vinga();
    command.args(["data", "--node", "1", "--folder"]).arg(cast.folder.0.join("other")).args(PATIENT);
    let (ok, text) = said(command.arg("--config").arg(cast.folder.0.join("config.ini")).output());
    assert!(!ok && text.contains("can't listen on") && text.contains("is in use"), "{text}");
    cast.bring_back(&[2]);
    cast.kill(1);
    rows.check(&cluster);
}
