//! `vinga admin` at several data nodes: what it shows is of all of them, and says which has not answered.

use crate::support::folder::{Folder, Suspended, said};
use crate::support::{self, HANG_GUARD};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vinga::blocking::Cluster;
use vinga::{
    ColumnType, ErrorCode, InfoRows, InfoTable, NewTable, NodeId, Record, ShutdownTerms, Value as Cell,
};
use vinga_runtime::node_folder::NodeFolder;

/// Parameters of small data nodes that leave nobody out who stands still: whether it answers is what is tested.
const PATIENT: [&str; 6] = [
    "--set",
    "DataMemory=64M",
    "--set",
    "HeartbeatIntervalDbDb=60000",
    "--set",
    "HeartbeatIntervalDbApi=1000000",
];

/// Parameters of small data nodes that look for their arbitrator every few seconds, as they do in each heartbeat
/// interval.
const SMALL: [&str; 4] = ["--set", "DataMemory=64M", "--set", "HeartbeatIntervalDbDb=5000"];

fn start(size: &[&str]) -> Folder {
    start_with(&PATIENT, size)
}

fn start_with(parameters: &[&str], size: &[&str]) -> Folder {
    let folder = Folder::new();
    let (ok, text) = said(folder.command("up").args(parameters).args(["--port", "0"]).args(size).output());
    assert!(ok, "{text}");
    folder
}

const PAIR: [&str; 4] = ["--data-nodes", "2", "--replicas", "2"];

fn pid(folder: &Folder, node: u8) -> Pid {
    let pid = NodeFolder::new(&folder.0, node).running().expect("the folder is there").expect("it runs");
    Pid::from_raw(pid).expect("a process")
}

fn admin(folder: &Folder, what: &[&str]) -> Output {
    folder.command("admin").args(what).output().expect("the binary runs")
}

/// What a command prints as JSON, and what it says on standard error.
fn json(folder: &Folder, what: &[&str]) -> (Value, String) {
    let output = admin(folder, &[what, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{what:?}: {said}");
    (serde_json::from_slice(&output.stdout).expect("it prints JSON"), said)
}

/// The data nodes of which a table has rows.
fn nodes_of(rows: &Value) -> BTreeSet<u64> {
    let rows = rows.as_array().expect("rows").iter();
    rows.map(|row| row["node_id"].as_u64().expect("each has its data node")).collect()
}

/// The rows of data nodes, and of clients.
fn of_kind<'a>(nodes: &'a Value, kind: &str) -> Vec<&'a Value> {
    nodes.as_array().expect("rows").iter().filter(|row| row["kind"] == kind).collect()
}

#[test]
fn tables_are_of_all_data_nodes() {
    let folder = start(&PAIR);
    let cluster = Cluster::connect(&folder.addresses([1, 2])).expect("they admit us");
    let table = NewTable::new("test.t")
        .column("id", ColumnType::Integer { bytes: 8, signed: false })
        .primary_key(&["id"]);
    let table = cluster.create_table(table).expect("a table can be created");
    for id in 0..100u64 {
        cluster.insert(&table, &Record::new([("id", Cell::from(id))])).expect("a good row");
    }
    for what in ["threads", "memory", "pools", "blocks"] {
        let (rows, said) = json(&folder, &[what]);
        assert_eq!(nodes_of(&rows), BTreeSet::from([1, 2]), "{what}");
        assert_eq!(said, "", "{what}");
        // One data node after the other.
        let ids: Vec<u64> =
            rows.as_array().expect("rows").iter().filter_map(|row| row["node_id"].as_u64()).collect();
        assert!(ids.is_sorted(), "{what}: {ids:?}");
        let (ok, text) = folder.run("admin", &[what]);
        assert!(ok && text.starts_with("node_id"), "{text}");
    }
    // Both replicas have all rows, which are not counted twice.
    let (tables, _) = json(&folder, &["tables"]);
    let of_t =
        tables.as_array().expect("rows").iter().find(|row| row["table"] == "test.t").expect("it is there");
    assert_eq!(of_t["rows"], 100);
    let (parameters, _) = json(&folder, &["parameters"]);
    assert!(
        [1, 2].iter().all(|id| parameters.as_array().expect("rows").iter().any(|row| row["node"] == *id))
    );

    // A transaction is where its coordinator is, its locks where the rows are.
    let mut transaction = cluster.begin().expect("connected");
    for id in 1_000..1_050u64 {
        transaction.insert(&table, &Record::new([("id", Cell::from(id))])).expect("a good row");
    }
    transaction.execute().expect("there is no conflict");
    let (transactions, _) = json(&folder, &["transactions"]);
    assert_eq!((transactions.as_array().expect("rows").len(), nodes_of(&transactions).len()), (1, 1));
    let (locks, _) = json(&folder, &["locks"]);
    assert_eq!(nodes_of(&locks), BTreeSet::from([1, 2]), "{locks}");
    transaction.roll_back().expect("it is open");

    let (nodes, _) = json(&folder, &["nodes"]);
    let data = of_kind(&nodes, "data");
    let fact = |column: &str| data.iter().map(|row| row[column].clone()).collect::<Vec<_>>();
    assert_eq!(fact("node"), [1, 2]);
    assert_eq!(fact("state"), ["started", "started"]);
    assert_eq!(fact("node_group"), [0, 0]);
    assert_eq!(fact("version"), [env!("CARGO_PKG_VERSION"); 2]);
    let addresses = [1, 2].map(|node| NodeFolder::new(&folder.0, node).address().expect("it is ready"));
    assert_eq!(fact("address"), addresses);
    assert!(fact("since").iter().all(|since| since.as_u64().is_some_and(|since| since > 1_700_000_000)));
    assert_eq!(fact("leads").iter().filter(|leads| *leads == "yes").count(), 1, "{nodes}");
    let own: Vec<&Value> =
        of_kind(&nodes, "API").into_iter().filter(|row| row["node"] == cluster.node().0).collect();
    assert_eq!(own.len(), 1, "{nodes}");
    assert_eq!((&own[0]["state"], &own[0]["data_nodes"]), (&"connected".into(), &"1, 2".into()), "{nodes}");
    // The command itself has come and is connected with both, and each client has one row.
    let ids: Vec<u64> = of_kind(&nodes, "API").iter().filter_map(|row| row["node"].as_u64()).collect();
    assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "{nodes}");
}

/// The sessions of an id are numbered from the clock of its first client on: that is no time of a later one.
#[test]
fn a_client_is_shown_with_the_time_since_when_it_is_there() {
    let folder = start(&PAIR);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs();
    let connect = || Cluster::connect(&folder.addresses([1, 2])).expect("they admit us");
    let first = connect();
    let id = first.node();
    drop(first);
    let own = |nodes: &Value| {
        of_kind(nodes, "API").into_iter().find(|row| row["node"] == id.0 && row["data_nodes"] != "").cloned()
    };
    std::thread::sleep(Duration::from_secs(4));
    let before = now();
    let begun = Instant::now();
    let second = loop {
        let second = connect();
        if second.node() == id {
            break second;
        }
        assert!(begun.elapsed() < HANG_GUARD, "the id stays in use");
    };
    let (nodes, _) = json(&folder, &["nodes"]);
    let row = own(&nodes).expect("it is connected");
    let since = row["since"].as_u64().expect("it is known");
    // Times are in whole seconds.
    assert!((before - 1..=now() + 1).contains(&since), "{before}: {row}");
    assert_eq!(row["data_nodes"], "1, 2", "{row}");
    let (shown, _) = json(&folder, &["show"]);
    let shown = shown["api_nodes"].as_array().expect("rows").iter().find(|row| row["node"] == id.0);
    assert_eq!(shown.expect("it is connected")["since"], since);
    drop(second);
}

/// A data node that stands still does not answer; the other one's rows come all the same.
#[test]
fn one_that_does_not_answer_is_named() {
    let folder = start(&PAIR);
    let cluster = Cluster::connect(&folder.addresses([1, 2])).expect("they admit us");
    let ask = || cluster.info(InfoTable::Pools).expect("one answers");
    assert!(ask().unanswered.is_empty());
    let suspended = Suspended::new(&folder.0, 2);
    let of = |rows: &InfoRows| {
        let unanswered: Vec<u8> = rows.unanswered.iter().map(|one| one.node.0).collect();
        let first = |row: &Vec<vinga::InfoValue>| row[0].clone();
        let nodes: Vec<_> = rows.rows.iter().map(first).collect();
        assert!(
            !nodes.is_empty() && nodes.iter().all(|node| *node == vinga::InfoValue::Number(1)),
            "{nodes:?}"
        );
        unanswered
    };
    // Its connections are open, until the client gives them up as silent.
    let rows = ask();
    assert_eq!(of(&rows), [2]);
    assert!(rows.unanswered[0].to_string().contains("data node 2 (127.0.0.1:"), "{:?}", rows.unanswered);
    drop(suspended);
}

/// A command that reaches the first data node by its socket, and the second one, by TCP, only with the key that it has
/// not.
#[test]
fn commands_name_on_standard_error_who_has_not_answered() {
    let folder = start(&PAIR);
    let socket = NodeFolder::new(&folder.0, 1).local_address().expect("it has one");
    let run = |what: &[&str]| {
        let mut command = support::folder::vinga();
        let output = command.args(["admin", "--connect", &socket]).args(what).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines.len() == 1 && lines[0].starts_with("vinga: data node 2 (127.0.0.1:"), "{said}");
        assert!(said.contains("did not answer") && said.contains("key"), "{said}");
        String::from_utf8(output.stdout).expect("text")
    };
    for what in ["pools", "threads", "memory", "blocks"] {
        let rows: Value = serde_json::from_str(&run(&[what, "--json"])).expect("only rows are printed there");
        assert_eq!(nodes_of(&rows), BTreeSet::from([1]));
    }
    for what in ["transactions", "locks", "redo", "disk-writes", "parameters"] {
        run(&[what]);
    }
    // What the view says of it is shown.
    let nodes: Value = serde_json::from_str(&run(&["nodes", "--json"])).expect("only rows are printed there");
    let data = of_kind(&nodes, "data");
    assert_eq!((&data[1]["node"], &data[1]["state"]), (&2.into(), &"started".into()));
    assert_eq!((&data[1]["version"], &data[1]["leads"]), (&"".into(), &"no".into()));
    let shown = run(&["show"]);
    assert!(shown.contains("2   started, ") && shown.contains(", can't be asked: "), "{shown}");
}

/// One is killed while both are asked, again and again: each time all answers of the other one come, and in the end the
/// view has one data node.
#[test]
fn one_that_is_killed_while_it_is_asked_keeps_nothing_from_the_other() {
    let folder = start(&PAIR);
    let cluster = Cluster::connect(&folder.addresses([1, 2])).expect("they admit us");
    let whole = cluster.info(InfoTable::Blocks).expect("both answer");
    let victim = pid(&folder, 2);
    let (mut was_whole, begun) = (true, Instant::now());
    std::thread::scope(|threads| {
        let killing = threads.spawn(|| kill_process(victim, Signal::KILL).expect("it runs"));
        loop {
            assert!(begun.elapsed() < HANG_GUARD, "it stays in the view");
            let rows = cluster.info(InfoTable::Blocks).expect("the first one answers");
            let of_node = |id: u64| {
                rows.rows.iter().filter(|row| row[0] == vinga::InfoValue::Number(id)).count() * 2
                    == whole.rows.len()
            };
            assert!(of_node(1), "{rows:?}");
            match &rows.unanswered[..] {
                [] if of_node(2) => assert!(was_whole, "it does not come back"),
                // It has left the view.
                [] => break,
                [one] => {
                    assert_eq!(one.node.0, 2);
                    was_whole = false;
                }
                more => panic!("{more:?}"),
            }
        }
        killing.join().expect("it does not panic");
    });
    let (nodes, said) = json(&folder, &["nodes"]);
    assert_eq!((of_kind(&nodes, "data").len(), said.as_str()), (1, ""), "{nodes}");

    // When none answers the exit code says so.
    let address = folder.addresses([1]);
    kill_process(pid(&folder, 1), Signal::KILL).expect("it runs");
    let begun = Instant::now();
    while NodeFolder::new(&folder.0, 1).running().expect("the folder is there").is_some() {
        assert!(begun.elapsed() < HANG_GUARD);
    }
    let output =
        support::folder::vinga().args(["admin", "--connect", &address, "pools"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty() && !output.stderr.is_empty());
}

#[test]
fn the_cluster_is_shown_and_a_data_node_is_stopped() {
    let folder = start(&["--data-nodes", "4", "--replicas", "2"]);
    let (ok, text) = folder.run("admin", &["show"]);
    assert!(ok, "{text}");
    for part in [
        "data nodes of node group 0:",
        "data nodes of node group 1:",
        "leads",
        "management nodes:",
        ", answers",
        "API nodes:",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (shown, _) = json(&folder, &["show"]);
    let groups = |shown: &Value| -> Vec<(u64, u64)> {
        let of = |row: &Value| {
            (row["node_group"].as_u64().expect("a group"), row["node"].as_u64().expect("an id"))
        };
        let members = shown["data_nodes"].as_array().expect("rows").iter();
        members.filter(|row| row["state"] == "started").map(of).collect()
    };
    assert_eq!(groups(&shown), [(0, 1), (0, 2), (1, 3), (1, 4)]);
    assert_eq!(shown["management_nodes"][0]["answers"], true, "{shown}");
    let arbitration = &shown["arbitration"];
    assert_eq!((&arbitration["node"], &arbitration["state"]), (&5.into(), &"arbitrates".into()), "{shown}");
    assert_eq!(shown["api_nodes"].as_array().expect("rows").len(), 1, "this command: {shown}");

    // One of each group may go, and not the other.
    let (stopped, _) = json(&folder, &["stop", "3"]);
    assert_eq!(stopped, serde_json::json!({ "stopped": 3 }));
    let begun = Instant::now();
    while groups(&json(&folder, &["show"]).0) != [(0, 1), (0, 2), (1, 4)] {
        assert!(begun.elapsed() < HANG_GUARD, "it stays in the view");
    }
    // It is shown all the same, also by commands that know nothing but addresses.
    let address = folder.addresses([1]);
    let by_address = said(support::folder::vinga().args(["admin", "--connect", &address, "show"]).output());
    assert!(by_address.0 && by_address.1.contains("\n  3   not connected, "), "{}", by_address.1);
    // The data node that leads has not looked for the arbitrator yet: its heartbeat interval is a minute.
    assert!(by_address.1.contains("whether it still does is not known here"), "{}", by_address.1);
    assert!(by_address.1.contains("data node 1, which leads, has found: not asked yet"), "{}", by_address.1);
    let (shown, _) = json(&folder, &["show"]);
    let gone = &shown["data_nodes"][2];
    assert_eq!(
        (&gone["node"], &gone["state"], &gone["node_group"]),
        (&3.into(), &"not connected".into(), &1.into())
    );
    assert!(gone["since"].as_u64().is_some_and(|since| since > 1_700_000_000), "{shown}");
    assert_eq!(gone["why"], "a client has requested that it stops; it does not run", "{shown}");
    let (ok, text) = folder.run("admin", &["stop", "4"]);
    assert!(
        !ok && text.contains("data node 4 is the last one of node group 1") && text.contains("--force"),
        "{text}"
    );
    assert!(text.contains("20076"), "{text}");
    // All commands say the same of one that is not there.
    let by_address = ["--connect", &address];
    let ways: [(&[&str], [&str; 2]); 2] = [
        (
            &["--folder", folder.0.to_str().expect("a plain path")],
            [
                "there is no data node 9: the configuration has 1, 2, 3, 4",
                ": a client has requested that it stops; it does not run",
            ],
        ),
        (
            &by_address,
            [
                "there is no data node 9 in the cluster: it has, or had, 1, 2, 3, 4",
                ": a client has requested that it stops",
            ],
        ),
    ];
    for (way, [unknown, gone]) in ways {
        for what in [&["stop"][..], &["report", "memory"], &["report", "threads"]] {
            let ask = |node| {
                let mut command = support::folder::vinga();
                said(command.arg("admin").args(way).args(what).arg(node).output())
            };
            let (ok, text) = ask("9");
            assert!(!ok && text == format!("vinga: {unknown}\n"), "{what:?}: {text}");
            let (ok, text) = ask("3");
            assert!(!ok && text.ends_with(&format!("{gone}\n")), "{what:?}: {text}");
            assert!(text.starts_with("vinga: data node 3 is not in the cluster any more, since 2"), "{text}");
        }
        let mut command = support::folder::vinga();
        let (ok, text) = said(command.arg("admin").args(way).args(["status", "3"]).output());
        assert!(ok && text.ends_with(&format!("data node 3 is not connected{gone}\n")), "{text}");
    }
    let (ok, text) = folder.run("admin", &["report", "memory", "5"]);
    assert!(!ok && text.contains("node 5 is a management node"), "{text}");
    let (ok, text) = folder.run("admin", &["stop", "4", "--force"]);
    assert!(ok && text.contains("data node 4 has stopped"), "{text}");
    // The others can't go on without its group.
    let begun = Instant::now();
    while [1, 2].iter().any(|&node| NodeFolder::new(&folder.0, node).running().expect("a folder").is_some()) {
        assert!(begun.elapsed() < HANG_GUARD, "they go on");
    }
}

/// What of arbitration is left when the management node has gone, and when it has come again; and a data node that was
/// killed.
#[test]
fn what_arbitration_is_left_is_shown() {
    let folder = start_with(&SMALL, &PAIR);
    let shown = |state: &str, means: &str| {
        let (shown, _) = json(&folder, &["show"]);
        let arbitration = &shown["arbitration"];
        assert_eq!((&arbitration["node"], &arbitration["state"]), (&3.into(), &state.into()), "{shown}");
        assert!(arbitration["means"].as_str().is_some_and(|text| text.contains(means)), "{shown}");
        shown
    };
    shown("arbitrates", "decides which data nodes go on");
    let management = NodeFolder::at(folder.0.join("mgm-3"));
    let process =
        management.running().expect("the folder is there").and_then(Pid::from_raw).expect("it runs");
    kill_process(process, Signal::KILL).expect("it runs");
    let begun = Instant::now();
    while management.running().expect("the folder is there").is_some() {
        assert!(begun.elapsed() < HANG_GUARD, "it goes on");
    }
    shown("does not answer", "takes its place");
    let (ok, text) = said(folder.command("up").args(SMALL).output());
    assert!(ok, "{text}");
    // The data nodes have it take a new ticket.
    let begun = Instant::now();
    while json(&folder, &["show"]).0["arbitration"]["state"] != "arbitrates" {
        assert!(begun.elapsed() < HANG_GUARD, "nobody arbitrates");
    }
    kill_process(pid(&folder, 2), Signal::KILL).expect("it runs");
    let begun = Instant::now();
    let shown = loop {
        let (shown, _) = json(&folder, &["show"]);
        if shown["data_nodes"][1]["state"] == "not connected" {
            break shown;
        }
        assert!(begun.elapsed() < HANG_GUARD, "it stays in the view");
    };
    assert_eq!(shown["arbitration"]["state"], "not needed", "one data node is left: {shown}");
    assert!(shown["data_nodes"][1]["since"].is_u64(), "{shown}");
    let why = shown["data_nodes"][1]["why"].as_str().expect("it is known");
    assert!(why.ends_with("; it was killed, or has crashed"), "{why}");
}

#[test]
fn without_replicas_there_is_nothing_to_decide() {
    let folder = start(&["--data-nodes", "2"]);
    let (shown, _) = json(&folder, &["show"]);
    assert_eq!(shown["arbitration"]["state"], "not needed", "{shown}");
    let folder = start(&["--data-nodes", "2", "--replicas", "2", "--management-nodes", "0"]);
    let (ok, text) = folder.run("admin", &["show"]);
    assert!(
        ok && text.contains("arbitration: nobody decides") && text.contains("there is no management node"),
        "{text}"
    );
}

/// The two data nodes of each group are asked at the same moment: one of them stops, and the cluster goes on.
#[test]
fn of_two_that_are_stopped_at_once_one_is_refused() {
    let folder = start(&["--data-nodes", "4", "--replicas", "2"]);
    let stop = |node: &str| {
        let mut command = folder.command("admin");
        command.args(["stop", node]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the binary runs")
    };
    let ends = ["1", "2"].map(stop).map(|command| said(command.wait_with_output()));
    let refused: Vec<&String> = ends.iter().filter(|(ok, _)| !ok).map(|(_, text)| text).collect();
    assert_eq!(refused.len(), 1, "{ends:?}");
    assert!(refused[0].contains("20076") && refused[0].contains("node group 0"), "{ends:?}");

    // Both orders are there before either data node reads its own.
    let clients =
        [3, 4].map(|node| (node, Cluster::connect(&folder.addresses([3, 4])).expect("they admit us")));
    let suspended = [3, 4].map(|node| Suspended::new(&folder.0, node));
    let ends: Vec<(u8, Option<ErrorCode>)> = std::thread::scope(|threads| {
        let asks = |(node, client): &(u8, Cluster)| {
            let end = client.shut_down(NodeId(*node), ShutdownTerms::IfDispensable);
            (*node, end.err().map(|error| error.code()))
        };
        let asking = clients.each_ref().map(|one| threads.spawn(move || asks(one)));
        // Nothing shows when they have sent them; what comes of it is the same if they have not.
        std::thread::sleep(Duration::from_millis(200));
        drop(suspended);
        asking.map(|thread| thread.join().expect("it does not panic")).into()
    });
    let mut codes: Vec<Option<ErrorCode>> = ends.iter().map(|(_, code)| *code).collect();
    codes.sort_by_key(Option::is_some);
    assert_eq!(codes, [None, Some(ErrorCode::NodeIsNeeded)], "{ends:?}");
    // One of each group is left, and answers.
    let begun = Instant::now();
    while of_kind(&json(&folder, &["nodes"]).0, "data").len() != 2 {
        assert!(begun.elapsed() < HANG_GUARD, "they stay in the view");
    }
    let (ok, text) = folder.run("admin", &["tables"]);
    assert!(ok, "{text}");
}

/// Nothing but addresses: the order goes over the connection, and what comes of it is seen there.
#[test]
fn a_data_node_is_stopped_over_the_network() {
    let folder = start(&PAIR);
    let stop = |nodes: &[u8], what: &[&str]| {
        let address = folder.addresses(nodes.iter().copied());
        let mut command = support::folder::vinga();
        said(command.args(["admin", "--connect", &address, "stop"]).args(what).output())
    };
    let (ok, text) = stop(&[1], &["9"]);
    assert!(!ok && text.contains("there is no data node 9 in the cluster: it has, or had, 1, 2"), "{text}");
    let process = pid(&folder, 2);
    // The address of the other one is enough.
    let (ok, text) = stop(&[1], &["2", "--json"]);
    assert!(ok && text == "{\"stopped\":2}\n", "{text}");
    let begun = Instant::now();
    let second = NodeFolder::new(&folder.0, 2);
    while second.running().expect("the folder is there").is_some() {
        assert!(begun.elapsed() < HANG_GUARD, "{process:?} goes on");
    }
    assert_eq!(second.address(), None, "it has stopped in order");
    let log = second.log_tail(0, 50);
    assert!(log.contains("has requested that this data node stops"), "{log}");
    assert!(
        log.contains("the node is asked to stop by a client") && log.contains("the node has stopped"),
        "{log}"
    );
    // The other one goes on, and knows that it is alone.
    let (nodes, _) = json(&folder, &["nodes"]);
    assert_eq!(of_kind(&nodes, "data").len(), 1, "{nodes}");
    let (ok, text) = stop(&[1], &["2"]);
    assert!(!ok && text.contains("data node 2 is not in the cluster any more, since "), "{text}");
    let (ok, text) = stop(&[1], &["1"]);
    assert!(!ok && text.contains("20076") && text.contains("the last one of node group 0"), "{text}");
    assert!(NodeFolder::new(&folder.0, 1).running().expect("the folder is there").is_some());
    let address = folder.addresses([1]);
    let (ok, text) = stop(&[1], &["1", "--force"]);
    assert!(ok && text.contains("data node 1 has stopped"), "{text}");
    let (ok, _) = said(support::folder::vinga().args(["admin", "--connect", &address, "pools"]).output());
    assert!(!ok, "nobody is there");
}
