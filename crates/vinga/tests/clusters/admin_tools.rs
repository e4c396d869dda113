//! The tools of an administrator, at clusters of real processes: states of nodes, reports, the log of the cluster.

use crate::support::HANG_GUARD;
use crate::support::folder::{Folder, said, vinga};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;
use vinga_rig::process::NodeProcess;
use vinga_runtime::node_folder::NodeFolder;

const SMALL: [&str; 6] = [
    "--set",
    "DataMemory=64M",
    "--set",
    "HeartbeatIntervalDbDb=60000",
    "--set",
    "HeartbeatIntervalDbApi=1000000",
];

const PAIR: [&str; 6] = ["--port", "0", "--data-nodes", "2", "--replicas", "2"];

fn start(size: &[&str]) -> Folder {
    let folder = Folder::new();
    let (ok, text) = said(folder.command("up").args(SMALL).args(size).output());
    assert!(ok, "{text}");
    folder
}

/// What a command about the cluster that is named so prints as JSON.
fn json(cluster: &[&str], what: &[&str]) -> Value {
    let output = vinga().arg("admin").args(cluster).args(what).arg("--json").output().expect("it runs");
    assert!(output.status.success(), "{what:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

/// The address of the management node of a pair, as clients of it write it.
fn management(folder: &Folder) -> String {
    let address = NodeFolder::at(folder.0.join("mgm-3")).address().expect("it is ready");
    format!("key={},{address}", folder.0.join("cluster.key").display())
}

fn path(folder: &Path) -> &str {
    folder.to_str().expect("it is text")
}

/// The values of a field of all rows.
fn all<'a>(rows: &'a Value, field: &str) -> Vec<&'a Value> {
    rows.as_array().expect("rows").iter().map(|row| &row[field]).collect()
}

/// Whatever is known of a cluster, its members are shown; those who know its configuration show the others, too.
#[test]
fn each_node_has_its_state() {
    let folder = start(&PAIR);
    let (address, mgm) = (folder.addresses([1, 2]), management(&folder));
    let by_folder = ["--folder", path(&folder.0)];
    let ways: [&[&str]; 2] = [&by_folder, &["--mgm", &mgm]];
    for way in ways {
        let shown = json(way, &["status"]);
        assert_eq!(all(&shown, "node"), [1, 2, 3], "{shown}");
        assert_eq!(all(&shown, "kind"), ["data", "data", "management"], "{shown}");
        assert_eq!(all(&shown, "state"), ["started"; 3], "{shown}");
        assert_eq!((&shown[0]["node_group"], &shown[1]["node_group"]), (&0.into(), &0.into()), "{shown}");
        assert_eq!(all(&shown, "leads").iter().filter(|leads| ***leads == Value::Bool(true)).count(), 1);
        assert_eq!(shown[0]["version"], env!("CARGO_PKG_VERSION"));
        assert!(shown[1]["since"].as_u64().is_some_and(|since| since > 1_700_000_000), "{shown}");
    }
    let shown = json(&["--connect", &address], &["status"]);
    assert_eq!(all(&shown, "node"), [1, 2], "data nodes know of each other: {shown}");
    let shown = json(&by_folder, &["status", "2"]);
    assert_eq!((all(&shown, "node"), all(&shown, "state")), (vec![&2.into()], vec![&"started".into()]));
    let (ok, text) = folder.run("admin", &["status", "9"]);
    assert!(!ok && text.contains("no node 9") && text.contains("1, 2, 3"), "{text}");
    let (ok, text) = folder.run("admin", &["status"]);
    assert!(ok && text.starts_with("node  kind        state    since"), "{text}");
    // The other commands find the cluster by its management node, too.
    assert_eq!(all(&json(&["--mgm", &mgm], &["show"])["management_nodes"], "answers"), [true]);

    // One that has gone is not connected, and so is, in the end, the whole cluster. Connections end before the process.
    let (ok, text) = said(vinga().args(["admin", "--mgm", &mgm, "stop", "2"]).output());
    assert!(ok, "{text}");
    for way in ways {
        let shown = loop {
            let shown = json(way, &["status"]);
            if all(&shown, "state")[1] != "stopping" {
                break shown;
            }
        };
        assert_eq!(all(&shown, "state"), ["started", "not connected", "started"], "{shown}");
        assert!(shown[1]["why"].is_string() && shown[0]["why"].is_null(), "{shown}");
        assert_eq!((&shown[1]["node_group"], &shown[1]["leads"]), (&0.into(), &false.into()), "{shown}");
    }
    let (ok, text) = said(vinga().args(["admin", "--mgm", &mgm, "stop", "1", "--force"]).output());
    assert!(ok, "{text}");
    for way in ways {
        let shown = loop {
            let shown = json(way, &["status"]);
            if all(&shown, "state")[0] != "stopping" {
                break shown;
            }
        };
        assert_eq!(all(&shown, "state"), ["not connected", "not connected", "started"], "{shown}");
    }
    let (ok, text) = said(vinga().args(["admin", "--connect", &address, "status"]).output());
    assert!(!ok && !text.is_empty(), "nothing is known of it: {text}");
}

/// The one data node of a folder without a configuration file.
#[test]
fn a_database_of_one_data_node_has_its_state_and_reports() {
    let folder = Folder::new();
    let (ok, text) = folder.up(&["--port", "0"]);
    assert!(ok, "{text}");
    let by_folder = ["--folder", path(&folder.0)];
    let shown = json(&by_folder, &["status"]);
    assert_eq!(all(&shown, "state"), ["started"], "{shown}");
    assert_eq!((&shown[0]["node"], &shown[0]["leads"]), (&1.into(), &true.into()), "{shown}");
    let memory = json(&by_folder, &["report", "memory"]);
    let data = &memory[0];
    assert_eq!((&data["node_id"], &data["memory"]), (&1.into(), &"DataMemory".into()), "{memory}");
    let [used, total] = ["used_bytes", "total_bytes"].map(|field| data[field].as_u64().expect("a number"));
    assert!(total >= 64 << 20 && used <= total, "{memory}");
    let percent = data["used_percent"].as_f64().expect("a share");
    assert!((percent - used as f64 * 100.0 / total as f64).abs() < 0.001, "{memory}");
    let kinds = all(&memory, "memory");
    for kind in
        ["data managers: rows", "data managers: hash indexes", "data managers: pools", "coordinators: pools"]
    {
        assert_eq!(kinds.iter().filter(|one| ***one == kind).count(), 1, "{kind}: {memory}");
    }
    let (ok, text) = folder.run("admin", &["clusterlog"]);
    assert!(!ok && text.contains("no management node"), "{text}");
    let (ok, text) = folder.run("admin", &["stop", "1"]);
    assert!(!ok && text.contains("20076"), "{text}");
    let (ok, text) = folder.run("down", &[]);
    assert!(ok, "{text}");
    let shown = json(&by_folder, &["status"]);
    assert_eq!(all(&shown, "state"), ["not connected"], "{shown}");
}

/// A data node that waits for another one says so, also to those who know its address only from a management node.
#[test]
fn a_data_node_that_starts_is_starting() {
    let folder = start(&PAIR);
    let (ok, text) = folder.run("down", &[]);
    assert!(ok, "{text}");
    let config = folder.0.join("config.ini");
    let start = |more: &[&str], own: &str| {
        let mut command = vinga();
        command.args(more).arg("--config").arg(&config).arg("--folder").arg(folder.0.join(own));
        let log =
            std::fs::File::options().append(true).create(true).open(folder.0.join(own).join("vinga.log"));
        command.stdout(Stdio::null()).stderr(log.expect("the folder is there"));
        NodeProcess::start(&mut command, None)
    };
    let _management = start(&["mgm"], "mgm-3");
    let _one = start(&["data", "--node", "1", "--set", "DataMemory=64M"], "node-1");
    let by_folder = ["--folder", path(&folder.0)];
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < HANG_GUARD, "{}", json(&by_folder, &["status"]));
        let shown = json(&by_folder, &["status"]);
        let is_starting = shown[0]["state"] == "starting"
            && shown[0]["phase"].as_str().is_some_and(|phase| phase.contains("waiting for data node 2"));
        if is_starting && shown[1]["state"] == "not connected" && shown[2]["state"] == "started" {
            break;
        }
    }
    let shown = json(&["--mgm", &management(&folder)], &["status"]);
    assert_eq!(all(&shown, "state"), ["starting", "not connected", "started"], "{shown}");
    let (ok, text) = folder.run("admin", &["status"]);
    assert!(ok && text.contains("data node 1 is starting: waiting for data node 2"), "{text}");
    // It has not come into the cluster: it is stopped by its process.
    let (ok, text) = folder.run("admin", &["stop", "1"]);
    assert!(ok && text.contains("data node 1 has stopped"), "{text}");
}

#[test]
fn reports_are_of_all_data_nodes_or_of_one() {
    let folder = start(&PAIR);
    let by_folder = ["--folder", path(&folder.0)];
    let ids = |rows: &Value| -> Vec<u64> {
        let mut ids: Vec<u64> = all(rows, "node_id").iter().filter_map(|id| id.as_u64()).collect();
        ids.dedup();
        ids
    };
    assert_eq!(ids(&json(&by_folder, &["report", "memory"])), [1, 2]);
    assert_eq!(ids(&json(&by_folder, &["report", "memory", "2"])), [2]);
    let threads = json(&by_folder, &["report", "threads"]);
    assert_eq!(ids(&threads), [1, 2]);
    for row in threads.as_array().expect("rows") {
        let share = |field: &str| row[field].as_f64().expect("a share");
        let sum = share("busy_percent") + share("spin_percent") + share("idle_percent");
        assert!((99.0..=101.0).contains(&sum) && row["turns"].is_u64(), "{row}");
    }
    // Whatever runs: the main thread turns when it is asked.
    assert!(all(&threads, "turns").iter().any(|turns| turns.as_u64() > Some(0)), "{threads}");
    assert_eq!(ids(&json(&by_folder, &["report", "threads", "1", "--seconds", "2"])), [1]);
    for what in ["memory", "threads"] {
        let (ok, text) = folder.run("admin", &["report", what, "9"]);
        assert!(!ok && text.contains("there is no data node 9: the configuration has 1, 2"), "{text}");
    }
    // A command that reaches the second one, by TCP, only with the key that it has not.
    let socket = NodeFolder::new(&folder.0, 1).local_address().expect("it has one");
    let by_socket = ["--connect", &socket];
    let (ok, text) = said(vinga().arg("admin").args(by_socket).args(["report", "memory", "2"]).output());
    assert!(!ok && text.contains("data node 2") && text.contains("did not answer"), "{text}");
    let shown = json(&by_socket, &["status"]);
    // The first one knows its state.
    assert_eq!(all(&shown, "state"), ["started", "started"], "{shown}");
    assert!(shown[1]["why"].as_str().is_some_and(|why| why.contains("key")), "{shown}");
    let (ok, text) = said(vinga().arg("admin").args(by_socket).args(["stop", "2"]).output());
    assert!(!ok && text.contains("data node 2 can't be asked"), "{text}");
}

#[test]
fn the_log_of_the_cluster_is_read_over_the_network_and_from_its_folder() {
    let folder = start(&PAIR);
    let mgm = management(&folder);
    let by_mgm = ["--mgm", mgm.as_str()];
    let ready = |lines: &Value, node: u64| {
        let is_it = |line: &&Value| {
            line["node"] == node && line["text"].as_str().is_some_and(|text| text.contains("is ready on"))
        };
        lines.as_array().expect("lines").iter().filter(is_it).count()
    };
    // Lines come a moment after they were logged.
    let begun = Instant::now();
    let lines = loop {
        let lines = json(&by_mgm, &["clusterlog", "--lines", "10000"]);
        if ready(&lines, 1) + ready(&lines, 2) == 2 {
            break lines;
        }
        assert!(begun.elapsed() < HANG_GUARD, "{lines}");
    };
    let count = lines.as_array().expect("lines").len();
    let text = std::fs::read_to_string(folder.0.join("mgm-3/cluster.log")).expect("it is there");
    assert!(text.lines().count() >= count && count > 4, "{lines}");
    let last = json(&by_mgm, &["clusterlog", "--lines", "2", "--node", "2"]);
    assert_eq!(all(&last, "node"), [2, 2], "{last}");
    let other = ["admin", "--mgm", &mgm, "clusterlog", "--node", "2,9"];
    let (ok, text) = said(vinga().args(other).output());
    assert!(!ok && text.contains("there is no data node 9; the cluster's data nodes are: 1, 2"), "{text}");
    let formation = json(&by_mgm, &["clusterlog", "--category", "formation", "--lines", "10000"]);
    assert!(all(&formation, "source").iter().all(|source| **source == "formation"), "{formation}");
    assert!(!formation.as_array().expect("lines").is_empty());
    let serious = json(&by_mgm, &["clusterlog", "--severity", "warning", "--lines", "10000"]);
    let severities = all(&serious, "severity");
    assert!(severities.iter().all(|one| **one == "warning" || **one == "error"), "{serious}");
    let (ok, text) = said(vinga().args(["admin", "--mgm", &mgm, "clusterlog", "--lines", "1"]).output());
    assert!(ok && text.lines().count() == 1 && text.contains(" node "), "{text}");

    // Which severities are written.
    let shown = json(&by_mgm, &["clusterlog", "--info"]);
    assert_eq!(shown, serde_json::json!([{ "node": 3, "written": ["error", "warning", "info", "debug"] }]));
    let by_folder = ["--folder", path(&folder.0)];
    let shown = json(&by_folder, &["clusterlog", "--off", "debug,warning", "--on", "error"]);
    assert_eq!(shown[0]["written"], serde_json::json!(["error", "info"]));
    let (ok, text) = folder.run("admin", &["clusterlog", "--on", "warning"]);
    assert!(ok && text == "management node 3 writes error, warning, info\n", "{text}");
    let (ok, text) = folder.run("admin", &["clusterlog", "--on", "info", "--off", "info"]);
    assert!(!ok && text.contains("both on and off"), "{text}");

    // What comes later is shown when it comes.
    let mut follow = vinga();
    follow.args(["admin", "--mgm", &mgm, "clusterlog", "--follow", "--lines", "1", "--node", "1"]);
    let mut follow = follow.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut shown = BufReader::new(follow.stdout.take().expect("it has one")).lines();
    assert!(shown.next().is_some_and(|line| line.is_ok_and(|line| line.contains(" node 1, "))));
    let (ok, text) = folder.run("admin", &["stop", "2"]);
    assert!(ok, "{text}");
    let line = shown.find(|line| line.as_ref().is_ok_and(|line| line.contains("given up")));
    assert!(line.is_some_and(|line| line.is_ok_and(|line| line.contains(" node 1, "))));
    follow.kill().and_then(|()| follow.wait()).expect("it runs");

    // Data nodes do not know it.
    let by_address = ["--connect", &folder.addresses([1])];
    let (ok, text) = said(vinga().arg("admin").args(by_address).arg("clusterlog").output());
    assert!(!ok && text.contains("--mgm"), "{text}");
    let (ok, text) = said(vinga().args(["admin", "--mgm", &folder.addresses([1]), "clusterlog"]).output());
    assert!(!ok && text.contains("--mgm: no configuration is given: "), "{text}");
    assert!(text.contains("this is data node 1") && !text.contains("no management node answers"), "{text}");
    // When nothing runs any more the file is there.
    let (ok, text) = folder.run("down", &[]);
    assert!(ok, "{text}");
    let (ok, text) = folder.run("admin", &["clusterlog", "--on", "debug"]);
    assert!(!ok && text.contains("management node 3 does not answer"), "{text}");
    let (ok, text) = folder.run("admin", &["clusterlog", "--node", "1"]);
    assert!(
        ok && text.contains("the lines are from the folder of management node 3")
            && text.contains("node 1, "),
        "{text}"
    );
}

/// A section of the file about the link of two data nodes: both ends log what the system makes of it.
#[test]
fn links_have_the_buffers_that_are_configured() {
    let folder = start(&PAIR);
    let (ok, text) = folder.run("down", &[]);
    assert!(ok, "{text}");
    let config = folder.0.join("config.ini");
    let before = std::fs::read_to_string(&config).expect("it is there");
    let link = "\n[tcp]\nNodeId1=2\nNodeId2=1\nTCP_SND_BUF_SIZE=64K\nSendBufferMemory=4M\n";
    std::fs::write(&config, before.clone() + link).expect("it is ours");
    let (ok, text) = said(folder.command("up").args(SMALL).output());
    assert!(ok && text.contains("SendBufferMemory=4M") && text.contains("without effect"), "{text}");
    for (node, other) in [(1, 2), (2, 1)] {
        let log = NodeFolder::new(&folder.0, node).log_tail(0, 100);
        let line =
            log.lines().find(|line| line.contains(&format!("links to data node {other}: the system has ")));
        // Linux has twice as much, for what it keeps of each packet.
        assert!(line.is_some_and(|line| line.contains(" 131072 bytes to send ")), "{log}");
    }
    let (ok, text) = folder.run("down", &[]);
    assert!(ok, "{text}");
    for (section, why) in [
        ("NodeId1=2\n", "Write NodeId1 and NodeId2"),
        ("NodeId1=1\nNodeId2=2\nHostName1=127.0.0.1\n", "'HostName1': a network of its own for one link"),
    ] {
        std::fs::write(&config, format!("{before}\n[tcp]\n{section}")).expect("it is ours");
        let (ok, text) = said(folder.command("up").args(SMALL).output());
        assert!(!ok && text.contains(why), "{text}");
    }
}

/// One management node is killed, and the other one has the same log.
#[test]
fn the_log_is_followed_at_the_next_management_node() {
    let folder = start(&[&PAIR[..], &["--management-nodes", "2"]].concat());
    let mut follow = folder.command("admin");
    follow.args(["clusterlog", "--follow", "--lines", "1000"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut follow = follow.spawn().expect("it runs");
    let mut shown = BufReader::new(follow.stdout.take().expect("it has one")).lines().map_while(Result::ok);
    let mut said = BufReader::new(follow.stderr.take().expect("it has one")).lines().map_while(Result::ok);
    let is_ready = |line: &String| line.contains("data node 1 is ready on");
    let mut all: Vec<String> = Vec::new();
    all.extend(shown.by_ref().take_while(|line| !is_ready(line)));
    let first = NodeFolder::at(folder.0.join("mgm-3"));
    let pid = first.running().expect("the folder is there").and_then(Pid::from_raw).expect("it runs");
    kill_process(pid, Signal::KILL).expect("it runs");
    let line = said.next().expect("it goes on");
    assert!(line.contains("management node 3 does not answer: "), "{line}");
    assert!(line.ends_with("; it goes on with the log of management node 4"), "{line}");
    let (ok, text) = folder.run("admin", &["stop", "2"]);
    assert!(ok, "{text}");
    let line = shown.find(|line| {
        all.push(line.clone());
        line.contains(" node 1, ") && line.contains(": view ")
    });
    assert!(line.is_some(), "{all:?}");
    assert!(!all.iter().any(is_ready), "no line comes twice: {all:?}");
    follow.kill().and_then(|()| follow.wait()).expect("it runs");
}

/// Each of two management nodes has a log.
#[test]
fn the_log_of_the_named_management_node_is_shown() {
    let folder = start(&[&PAIR[..], &["--management-nodes", "2"]].concat());
    let second = NodeFolder::at(folder.0.join("mgm-4"));
    let log = std::fs::OpenOptions::new().append(true).open(second.path().join("cluster.log"));
    let line = "2026-03-01T12:00:00.000Z info node 1, test: this is the log of the second one";
    writeln!(log.expect("it is there"), "{line}").expect("it can be written");
    let address = second.address().expect("it runs");
    let by_mgm = format!("key={},{address}", folder.0.join("cluster.key").display());
    let shown = json(&["--mgm", &by_mgm], &["clusterlog", "--category", "test"]);
    assert_eq!(all(&shown, "source"), ["test"], "{shown}");
    let shown = json(&["--folder", path(&folder.0)], &["clusterlog", "--category", "test"]);
    assert_eq!(shown, serde_json::json!([]), "the first one answers");
}
