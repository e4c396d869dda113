//! Clusters of several data nodes, each a process, as `vinga up` starts them.

use crate::support::HANG_GUARD;
use crate::support::folder::{BEATING, Folder, Suspended, said, vinga};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;
use vinga::blocking::Cluster;
use vinga::{ColumnType, NewTable, Record, Table, Value};
use vinga_base::hash::KeyHash;
use vinga_rig::process::NodeProcess;
use vinga_rig::raw::{RawClient, hello};
use vinga_runtime::node_folder::NodeFolder;
use vinga_wire::key_read::KeyReadHead;
use vinga_wire::operation::ALL_COLUMNS;
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber, U16, U32, U64};

/// Parameters of small data nodes, which have no time limit that a busy machine breaks.
const SMALL: [&str; 4] = ["--set", "DataMemory=64M", "--set", "HeartbeatIntervalDbDb=5000"];

const ROWS: u64 = 2_000;

fn up(folder: &Folder, more: &[&str]) -> (bool, String) {
    said(folder.command("up").args(SMALL).args(more).output())
}

/// State of each node, as `vinga status` says it, and its exit code.
fn status(folder: &Folder) -> (Option<i32>, Vec<String>) {
    let output = folder.command("status").arg("--json").output().expect("the binary runs");
    let nodes: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it says JSON");
    let nodes = nodes.as_array().expect("rows").iter();
    let state = |node: &serde_json::Value| {
        format!("{}: {}", node["node"].as_str().expect("a text"), node["state"].as_str().expect("a text"))
    };
    (output.status.code(), nodes.map(state).collect())
}

fn pid(folder: &Folder, node: u8) -> Pid {
    let pid = NodeFolder::new(&folder.0, node).running().expect("the folder is there").expect("it runs");
    Pid::from_raw(pid).expect("a process")
}

fn address(folder: &Folder, node: u8) -> String {
    NodeFolder::new(&folder.0, node).address().expect("it is ready")
}

fn create(cluster: &Cluster) -> Table {
    let table = NewTable::new("test.t")
        .column("id", ColumnType::Integer { bytes: 8, signed: false })
        .column("v", ColumnType::Integer { bytes: 8, signed: false })
        .primary_key(&["id"]);
    cluster.create_table(table).expect("a table can be created")
}

fn row(id: u64, v: u64) -> Record {
    Record::new([("id", Value::from(id)), ("v", Value::from(v))])
}

fn fill(cluster: &Cluster, table: &Table) {
    for first in (0..ROWS).step_by(100) {
        let mut transaction = cluster.begin().expect("connected");
        for id in first..first + 100 {
            transaction.insert(table, &row(id, id)).expect("a good row");
        }
        transaction.commit().expect("there is no conflict");
    }
}

fn read_all(cluster: &Cluster, table: &Table) {
    let rows = cluster.get_many(table, 0..ROWS).expect("a read succeeds");
    assert!((0..).zip(&rows).all(|(id, found)| found.as_ref() == Some(&row(id, id))));
}

#[test]
fn two_data_nodes_serve_clients_and_one_goes_on_without_the_other() {
    let folder = Folder::new();
    let alone = ["--data-nodes", "2", "--replicas", "2", "--management-nodes", "0", "--port", "0"];
    let (ok, text) = up(&folder, &alone);
    assert!(ok, "{text}");
    for node in [1, 2] {
        let ready = format!("data node {node} is ready on {}", address(&folder, node));
        assert!(text.contains(&ready), "{text}");
    }
    assert!(text.contains("2 data nodes, 1 node group, NoOfReplicas=2"), "{text}");
    let both = format!("clients connect to {}", folder.addresses([1, 2]));
    assert!(
        text.contains(&both) && text.contains("in memory only") && text.contains("no arbitrator"),
        "{text}"
    );
    assert!(!text.contains("warning"), "{text}");
    assert_eq!(
        status(&folder),
        (Some(0), ["data node 1: running", "data node 2: running"].map(String::from).into())
    );

    let cluster = Cluster::connect(&folder.addresses([1, 2]));
    let cluster = cluster.expect("they admit us");
    let table = create(&cluster);
    fill(&cluster, &table);
    read_all(&cluster, &table);
    // By their sockets, as commands find them.
    let (ok, text) = folder.run("admin", &["tables"]);
    assert!(ok && text.contains("test.t"), "{text}");

    // They are found running.
    let (ok, text) = up(&folder, &["--data-nodes", "2"]);
    assert!(ok && text.contains("data node 1 is running already, on"), "{text}");
    assert!(
        text.contains("data node 2 is running already, on") && text.contains("keep the settings"),
        "{text}"
    );

    // One dies: its node group has another one.
    kill_process(pid(&folder, 2), Signal::KILL).expect("it runs");
    let begun = Instant::now();
    while status(&folder).1 != ["data node 1: running", "data node 2: killed or crashed"] {
        assert!(begun.elapsed() < HANG_GUARD, "{:?}", status(&folder));
    }
    assert_eq!(status(&folder).0, Some(3));
    read_all(&cluster, &table);
    cluster.write(&table, &row(ROWS, 1)).expect("a write succeeds");
    // It comes back.
    let (ok, text) = up(&folder, &[]);
    assert!(ok && text.contains("data node 1 is running already, on"), "{text}");
    assert!(text.contains("data node 2 is ready on") && !text.contains("are gone"), "{text}");
    assert!(text.contains(&format!("{both}\n")), "{text}");
    read_all(&cluster, &table);
    // And the other one need not.
    kill_process(pid(&folder, 1), Signal::KILL).expect("it runs");
    read_all(&cluster, &table);
    cluster.write(&table, &row(ROWS, 2)).expect("a write succeeds");
    drop(cluster);

    let (ok, text) = folder.run("down", &[]);
    assert!(ok && text.contains("data node 2 has stopped") && text.contains("are gone"), "{text}");
    let (code, _) = status(&folder);
    assert_eq!(code, Some(3));

    // The next one is empty, on the same ports.
    let (ok, text) = up(&folder, &[]);
    assert!(ok && text.contains("its tables and rows are gone"), "{text}");
    let (ok, text) = folder.run("admin", &["tables"]);
    assert!(ok && !text.contains("test.t"), "{text}");
    let (ok, text) = folder.run("down", &[]);
    assert!(
        ok && text.contains("data node 1 has stopped") && text.contains("data node 2 has stopped"),
        "{text}"
    );
    assert_eq!(status(&folder).1, ["data node 1: stopped", "data node 2: stopped"]);
}

/// The last one of each node group ends by itself when others have ended: no end of a stop is taken for a crash.
#[test]
fn all_node_groups_are_stopped_in_order() {
    let folder = Folder::new();
    let (ok, text) = up(&folder, &["--data-nodes", "4", "--port", "0"]);
    assert!(ok, "{text}");
    let (ok, text) = folder.run("down", &[]);
    assert!(ok, "{text}");
    for node in 1..=4 {
        assert!(text.contains(&format!("data node {node} has stopped")), "{text}");
    }
    assert_eq!(status(&folder).1, [1, 2, 3, 4].map(|node| format!("data node {node}: stopped")));
}

/// A client that only a data node knows, and that asks it for rows that it leads.
struct Asking {
    raw: RawClient<UnixStream>,
    table: Table,
    ids: Vec<u64>,
}

impl Asking {
    fn new(folder: &Folder, node: u8, table: &Table) -> Self {
        let socket = NodeFolder::new(&folder.0, node).socket();
        let stream = UnixStream::connect(socket).expect("it listens");
        stream.set_read_timeout(Some(HANG_GUARD)).expect("that is possible");
        let raw = RawClient::greet(stream, &hello()).expect("it admits us");
        let mut asking = Asking { raw, table: table.clone(), ids: Vec::new() };
        asking.ids = (0..100).filter(|&id| asking.owner(id).node().0 == node).collect();
        asking
    }

    fn owner(&self, id: u64) -> Address {
        let partition = self.table.core().partitions().of(KeyHash::of(&id.to_le_bytes()));
        self.raw.view.partition(partition).primary()
    }

    /// Asks for all its rows.
    fn ask(&mut self) {
        for (request, &id) in (0..).zip(&self.ids.clone()) {
            let head = KeyReadHead {
                version: U64::new(self.table.core().version().0),
                transaction: U64::ZERO,
                request: U32::new(request),
                table: U32::new(self.table.core().id().0),
                operation: U32::ZERO,
                count: U16::new(1),
                columns: U16::new(ALL_COLUMNS),
                filter_bytes: U16::ZERO,
                flags: U16::ZERO,
            };
            let to = (BlockNumber::DataManager, self.owner(id).instance());
            let sent = self.raw.send(SignalNumber::KeyReadRequest, to, |writer| {
                writer.put(&head).bytes(&id.to_le_bytes());
            });
            sent.expect("the system takes it");
        }
    }

    /// How many of its rows the node sends, at most this number, until it closes the connection.
    fn answers(&mut self, most: usize) -> usize {
        let mut answers = 0;
        let is_row = |frame: &Frame<'_>| frame.signal() == Some(SignalNumber::KeyReadConfirm);
        while answers < most
            && let Ok(Some(is_row)) = self.raw.receive(is_row)
        {
            answers += usize::from(is_row);
        }
        answers
    }
}

/// Does something until it succeeds.
fn insist<T>(what: &str, mut attempt: impl FnMut() -> Result<T, vinga::Error>) -> T {
    let begun = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(why) => assert!(begun.elapsed() < HANG_GUARD, "{what}: {why}"),
        }
    }
}

#[test]
fn one_goes_on_while_the_other_stands_still() {
    goes_on_without(2);
}

#[test]
fn one_goes_on_while_the_first_one_stands_still() {
    goes_on_without(1);
}

/// The management node lets the other one go on, under a client's work; the one that stood still stops by itself.
fn goes_on_without(still: u8) {
    let other = 3 - still;
    let folder = Folder::new();
    let size = ["--data-nodes", "2", "--replicas", "2", "--port", "0"];
    let (ok, text) = said(folder.command("up").args(BEATING).args(size).output());
    assert!(ok && text.contains("management node 3 is ready on"), "{text}");
    assert!(text.contains("the management node decides") && !text.contains("warning"), "{text}");
    let running = ["management node 3: running", "data node 1: running", "data node 2: running"];
    assert_eq!(status(&folder), (Some(0), running.map(String::from).into()));
    let cluster = Cluster::connect(&folder.addresses([1, 2]));
    let cluster = cluster.expect("they admit us");
    let table = create(&cluster);
    fill(&cluster, &table);

    let mut asking = Asking::new(&folder, still, &table);
    let led = asking.ids.len();
    assert!(led > 0, "it leads some of the rows");
    asking.ask();
    assert_eq!(asking.answers(led), led);

    let suspended = Suspended::new(&folder.0, still);
    // All partitions: some are led by the node that stands still.
    for id in 0..100 {
        insist("a row is written", || cluster.write(&table, &row(id, id + 1)));
    }
    let found = insist("rows are read", || cluster.get_many(&table, 0..100));
    assert!((0..).zip(&found).all(|(id, found)| found.as_ref() == Some(&row(id, id + 1))), "{found:?}");
    let log = NodeFolder::new(&folder.0, other).log_tail(0, 1000);
    assert!(log.contains("management node 3: go on"), "{log}");
    let arbitrator = NodeFolder::at(folder.0.join("mgm-3"));
    let decided = arbitrator.log_tail(0, 1000);
    assert!(
        decided.contains(&format!("data nodes {other} go on, for which data node {other} has asked")),
        "{decided}"
    );

    // It reads that before it knows what has happened.
    asking.ask();
    drop(suspended);
    assert_eq!(asking.answers(led), 0, "what it has is old");
    let stopped = NodeFolder::new(&folder.0, still);
    let begun = Instant::now();
    while stopped.running().expect("the folder is there").is_some() {
        assert!(begun.elapsed() < HANG_GUARD, "{}", stopped.log_tail(0, 100));
    }
    let log = stopped.log_tail(0, 1000);
    let is_expected = |line: &str| line.contains("the node can't go on: ");
    let why = log.lines().find(|line| is_expected(line)).unwrap_or_else(|| panic!("{log}"));
    let decided = format!("the arbitrator decides: data nodes {other} have gone on");
    assert!(why.contains("have gone on without this one") || why.contains(&decided), "{why}");
    let found = cluster.get_many(&table, 0..ROWS).expect("a read succeeds");
    let expected = |id| row(id, if id < 100 { id + 1 } else { id });
    assert!((0..).zip(&found).all(|(id, found)| found.as_ref() == Some(&expected(id))));
    drop(cluster);
    let (ok, text) = folder.run("down", &[]);
    let last = format!("data node {other} has stopped");
    assert!(ok && text.contains(&last), "{text}");
    assert!(text.find(&last) < text.find("management node 3 has stopped"), "{text}");
    assert_eq!(status(&folder).1[0], "management node 3: stopped");
}

/// Nobody goes on without an answer.
#[test]
fn a_pair_without_its_management_node_stops_if_one_stands_still() {
    let folder = Folder::new();
    let size = ["--data-nodes", "2", "--replicas", "2", "--port", "0", "--set", "ArbitrationTimeout=1000"];
    let (ok, text) = said(folder.command("up").args(BEATING).args(size).output());
    assert!(ok, "{text}");
    let arbitrator = NodeFolder::at(folder.0.join("mgm-3"));
    let pid_of = |node: &NodeFolder| {
        let pid = node.running().expect("the folder is there").expect("it runs");
        Pid::from_raw(pid).expect("a process")
    };
    kill_process(pid_of(&arbitrator), Signal::KILL).expect("it runs");
    let still = pid(&folder, 2);
    kill_process(still, Signal::STOP).expect("it runs");
    let first = NodeFolder::new(&folder.0, 1);
    let begun = Instant::now();
    while first.running().expect("the folder is there").is_some() {
        assert!(begun.elapsed() < HANG_GUARD, "{}", first.log_tail(0, 100));
    }
    let log = first.log_tail(0, 1000);
    assert!(log.contains("management node 3 does not answer"), "{log}");
    assert!(log.contains("may have gone on: the arbitrator has not answered"), "{log}");
    kill_process(still, Signal::KILL).expect("it is there");
    let begun = Instant::now();
    // One of them has stopped by itself, and says why.
    let ends = [
        "management node 3: killed or crashed",
        "data node 1: could not go on",
        "data node 2: killed or crashed",
    ];
    while status(&folder).1 != ends {
        assert!(begun.elapsed() < HANG_GUARD, "{:?}", status(&folder));
    }
    let (_, text) = folder.run("status", &[]);
    assert!(text.contains("data node 1 could not go on: ") && text.contains("(error 2305)"), "{text}");
    let (ok, text) = folder.run("admin", &["status", "1"]);
    assert!(ok && text.contains("data node 1 is not connected: it could not go on: "), "{text}");
    // All are started again, the management node among them.
    let (ok, text) = said(folder.command("up").args(BEATING).output());
    assert!(ok && text.contains("management node 3 is ready on"), "{text}");
    let begun = arbitrator.log_tail(0, 1000);
    assert!(begun.contains("a cluster begins with data nodes 1, 2, says data node 1"), "{begun}");
    // One that is started again beside data nodes that run knows nothing of them.
    kill_process(pid_of(&arbitrator), Signal::KILL).expect("it runs");
    while arbitrator.running().expect("the folder is there").is_some() {}
    let (ok, text) = said(folder.command("up").args(BEATING).output());
    assert!(ok && text.contains("management node 3 is ready on"), "{text}");
    assert!(text.contains("it arbitrates when the data nodes that run have chosen it"), "{text}");
}

#[test]
fn node_groups_share_the_rows() {
    let folder = Folder::new();
    let (ok, text) = up(&folder, &["--data-nodes", "4", "--replicas", "2", "--port", "0"]);
    assert!(ok && text.contains("4 data nodes, 2 node groups, NoOfReplicas=2"), "{text}");
    let cluster = Cluster::connect(&folder.addresses(1..=4)).expect("they admit us");
    let table = create(&cluster);
    fill(&cluster, &table);
    // One of each group.
    for node in [2, 3] {
        kill_process(pid(&folder, node), Signal::KILL).expect("it runs");
    }
    read_all(&cluster, &table);
    drop(cluster);
    let (ok, text) = folder.run("down", &[]);
    assert!(ok, "{text}");
}

/// One that is started alone waits for the other, and `vinga up` starts what is missing.
#[test]
fn a_node_waits_for_the_others() {
    let folder = Folder::new();
    let (ok, text) = up(&folder, &["--data-nodes", "2", "--port", "0"]);
    assert!(ok && text.contains("there is one copy of the data"), "{text}");
    let (ok, text) = folder.run("down", &[]);
    assert!(ok, "{text}");
    let node = NodeFolder::new(&folder.0, 1);
    let log = fs::File::options().append(true).open(node.log()).expect("it was started");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vinga"));
    command.args(["data", "--node", "1"]).args(SMALL);
    command.arg("--config").arg(folder.0.join("config.ini")).arg("--folder").arg(node.path());
    let mut first = NodeProcess::start(command.stdout(Stdio::null()).stderr(log), None);
    first.wait_for(|| node.running().ok().flatten()).expect("it runs");
    assert_eq!(status(&folder).1[0], "data node 1: starting");
    let (ok, text) = up(&folder, &[]);
    assert!(ok && text.contains("data node 1 is running already, on"), "{text}");
    assert!(text.contains("data node 2 is ready on"), "{text}");
    let (ok, text) = folder.run("down", &[]);
    assert!(ok && text.contains("data node 1 has stopped"), "{text}");
    drop(first);
}

/// Each node logs what is wrong with the file that all of them read.
#[test]
fn warnings_of_the_configuration_are_said_once() {
    let folder = Folder::new();
    let (ok, text) = up(&folder, &["--data-nodes", "2", "--replicas", "2", "--port", "0"]);
    assert!(ok && !text.contains("warning"), "{text}");
    let (ok, text) = folder.run("down", &[]);
    assert!(ok, "{text}");
    let config = folder.0.join("config.ini");
    let written = fs::read_to_string(&config).expect("it is there");
    let more = format!("{written}\n[ndbd default]\nStringMemory=25\nLateAlloc=1\n");
    fs::write(&config, more).expect("it is ours");
    let (ok, text) = up(&folder, &[]);
    assert!(ok, "{text}");
    for name in ["StringMemory", "LateAlloc"] {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(name)).collect();
        assert!(lines.len() == 1 && lines[0].starts_with("warning of "), "{text}");
    }
    // Nodes that run were started with it.
    let (ok, text) = up(&folder, &[]);
    assert!(ok && !text.contains("warning"), "{text}");
}

#[test]
fn the_demo_shows_a_session_on_several_data_nodes() {
    let folder = Folder::new();
    let (ok, text) = up(&folder, &["--data-nodes", "2", "--replicas", "2", "--port", "0"]);
    assert!(ok, "{text}");
    let (ok, text) = folder.run("demo", &[]);
    assert!(ok && text.contains("/node-1/vinga.sock,unix:"), "{text}");
    let addresses = folder.addresses([2, 1]);
    let (ok, text) = said(vinga().args(["admin", "tables", "--connect", &addresses]).output());
    assert!(ok && text.contains("demo.packages"), "{text}");
}

#[test]
fn sql_nodes_know_all_data_nodes() {
    let folder = Folder::new();
    let sql = ["--sql-nodes", "1", "--sql-port", "0"];
    let (ok, text) =
        up(&folder, &[&["--data-nodes", "2", "--replicas", "2", "--port", "0"][..], &sql].concat());
    assert!(ok && text.contains("SQL node 1 is ready on"), "{text}");
    let socket = folder.0.join("sql-1/sql.sock");
    let mut session = vinga_sqlnode::Connection::open_socket(&socket).expect("it answers");
    let reported = session.rows("SELECT @@vinga_connectstring").expect("there is a storage engine");
    let addresses: Vec<&str> = reported[0][0].split(',').collect();
    assert!(addresses.len() == 3 && addresses[0].starts_with("key="), "{reported:?}");
    assert!(addresses[1..].iter().all(|one| one.starts_with("unix:")), "{reported:?}");
    session.query("CREATE DATABASE shop").expect("it is new");
    session.query("CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)").expect("it is new");
    session.query("INSERT INTO shop.t VALUES (1, 10), (2, 20)").expect("they are new");
    assert_eq!(session.rows("SELECT SUM(v) FROM shop.t").expect("it is there")[0][0], "30");
    let (ok, text) = folder.run("down", &[]);
    assert!(
        ok && text.contains("SQL node 1 has stopped") && text.contains("data node 2 has stopped"),
        "{text}"
    );
}
