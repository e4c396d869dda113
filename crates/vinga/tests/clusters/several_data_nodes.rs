//! Several data nodes in the configuration and in `vinga up`: what is refused, before or while they start.

use crate::support::HANG_GUARD;
use crate::support::folder::{Folder, Suspended, said, vinga};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;
use vinga_rig::process::NodeProcess;
use vinga_runtime::node_folder::NodeFolder;

/// A configuration file of two data nodes in a folder.
fn two_nodes(folder: &Folder, ports: [u16; 2], more: &str) -> PathBuf {
    let text = format!(
        "[ndbd default]\nHostName=127.0.0.1\nNoOfReplicas=2\nDataMemory=64M\n{more}\n[ndbd]\nNodeId=1\nServerPort={}\n\
         [ndbd]\nNodeId=2\nServerPort={}\n",
        ports[0], ports[1]
    );
    fs::create_dir_all(&folder.0).expect("a folder can be made");
    let file = folder.0.join("config.ini");
    fs::write(&file, text).expect("a file can be written");
    file
}

/// Ports on which nobody listens now, and listeners that keep them.
fn ports() -> ([u16; 2], [TcpListener; 2]) {
    let held = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("there is a free port"));
    let ports = [&held[0], &held[1]].map(|one| one.local_addr().expect("it is bound").port());
    (ports, held)
}

#[test]
fn a_data_node_is_one_of_its_file() {
    let folder = Folder::new();
    let file = two_nodes(&folder, [7001, 7002], "");
    let show = |more: &[&str]| {
        let mut command = vinga();
        command.arg("data").arg("--config").arg(&file).arg("--show").args(more);
        said(command.output())
    };
    let (ok, text) = show(&["--node", "2"]);
    assert!(ok && text.contains("data node 1: 127.0.0.1, port 7001, node group 0"), "{text}");
    assert!(text.contains("data node 2: 127.0.0.1, port 7002, node group 0"), "{text}");
    assert!(text.contains("warning: default: 'Diskless=true': a cluster of several data nodes"), "{text}");
    let (ok, text) = show(&["--node", "2", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(ok && shown["parameters"]["ServerPort"]["value"] == "7002", "{text}");
    assert_eq!(
        shown["data_nodes"][0],
        serde_json::json!({
            "node": 1, "host": "127.0.0.1", "port": 7001, "group": 0
        })
    );
    for (arguments, reason) in [
        (&[][..], "config.ini has the data nodes 1 and 2; say which one this is"),
        (&["--node", "3"], "has no such data node; it has 1 and 2"),
        (&["--node", "145"], "'NodeId=145': more than the maximum 144"),
        (&["--node", "1", "--set", "NodeId=2"], "given twice"),
        (&["--node", "1", "--port", "1"], "config.ini has another value for data node 1"),
        (&["--node", "1", "--set", "Diskless=no"], "command line: 'Diskless=no': the 2 data nodes"),
        (&["--node", "1", "--set", "NoOfReplicas=4"], "can't be divided into groups of 4"),
    ] {
        let (ok, text) = show(arguments);
        assert!(!ok && text.contains(reason), "{arguments:?}: {text}");
    }
    let (ok, text) = show(&["--node", "1", "--port", "7001"]);
    assert!(ok, "{text}");
}

#[test]
fn a_management_node_is_one_of_its_file() {
    let folder = Folder::new();
    let (taken, held) = ports();
    let run = |management: &str, more: &[&str]| {
        let file = two_nodes(&folder, [7001, 7002], "");
        let text = fs::read_to_string(&file).expect("it is there");
        fs::write(&file, format!("{text}{management}")).expect("it can be written");
        said(vinga().arg("mgm").arg("--config").arg(&file).args(more).output())
    };
    let two = "[mgm]\nHostName=127.0.0.1\n[ndb_mgmd]\nHostName=127.0.0.1\nPortNumber=7003\n";
    let at_taken = format!("[mgm]\nHostName=127.0.0.1\nPortNumber={}\n", taken[0]);
    for (management, more, reason) in [
        ("", &[][..], "config.ini has no management node: add a section [mgm]"),
        (two, &[], "config.ini has the management nodes 3 and 4; say which one this is"),
        (two, &["--node", "1"], "has no such management node; it has 3 and 4"),
        ("[mgm]\nPortNumber=0\n", &[], "line 13: 'PortNumber=0': less than the minimum 1"),
        ("[mgm]\n", &["--log-level", "chatty"], "chatty"),
        (&at_taken, &[], "is in use (PortNumber)"),
    ] {
        let (ok, text) = run(management, more);
        assert!(!ok && text.contains(reason), "{management} {more:?}: {text}");
    }
    drop(held);
    let file = folder.0.join("config.ini");
    let (ok, text) = said(vinga().args(["data", "--node", "1", "--show", "--config"]).arg(&file).output());
    assert!(
        ok && text.contains(&format!("management node 3: 127.0.0.1, port {}, ArbitrationRank 1", taken[0])),
        "{text}"
    );
}

/// As a service manager runs it.
#[test]
fn a_management_node_stops_in_order() {
    let folder = Folder::new();
    let ([port, _], held) = ports();
    let file = two_nodes(&folder, [7001, 7002], "");
    let text = fs::read_to_string(&file).expect("it is there");
    fs::write(&file, format!("{text}[mgm]\nNodeId=9\nHostName=127.0.0.1\nPortNumber={port}\n"))
        .expect("written");
    let node = NodeFolder::at(folder.0.join("mgm-9"));
    let start = || {
        let mut command = vinga();
        command.arg("mgm").arg("--config").arg(&file).arg("--folder").arg(node.path());
        command
    };
    drop(held);
    let mut running = start().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let begun = Instant::now();
    while node.address().is_none() {
        assert!(begun.elapsed() < HANG_GUARD, "{:?}", running.try_wait());
    }
    assert_eq!(node.address(), Some(format!("127.0.0.1:{port}")));
    let (ok, text) = said(start().output());
    assert!(!ok && text.contains("another node runs in"), "{text}");
    let pid = Pid::from_raw(running.id() as i32).expect("a process");
    kill_process(pid, Signal::TERM).expect("it runs");
    let output = running.wait_with_output().expect("it ends");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    assert!(log.contains(&format!("info node: management node 9 is ready on 127.0.0.1:{port}")), "{log}");
    assert!(log.contains("asked to stop by SIGTERM") && log.contains("the node has stopped"), "{log}");
    assert_eq!((node.address(), node.running().expect("the folder is there")), (None, None));
}

#[test]
fn a_node_starts_only_where_the_others_can_reach_it() {
    let folder = Folder::new();
    let file = two_nodes(&folder, [7001, 7002], "");
    let text = fs::read_to_string(&file).expect("it is there");
    fs::write(&file, text.replace("NodeId=2", "NodeId=2\nHostName=192.0.2.1")).expect("it can be written");
    let (ok, text) = said(vinga().args(["data", "--node", "1", "--config"]).arg(&file).output());
    assert!(!ok && text.contains("which only processes on its own machine reach"), "{text}");
    assert!(text.contains("data node 2 (HostName '192.0.2.1') is at 192.0.2.1:7002"), "{text}");
}

/// Each machine has a file of its own, and the two differ in where the second node is: it would be admitted as the one
/// that the first node is configured with, and nobody else would find it.
#[test]
fn nodes_whose_files_have_other_addresses_do_not_begin_together() {
    let folder = Folder::new();
    let ([first, second], held) = ports();
    let ([other, _], _more) = ports();
    let file = two_nodes(&folder, [first, second], "");
    let differing = folder.0.join("other.ini");
    let text = fs::read_to_string(&file).expect("it is there");
    let text = text.replace(&format!("ServerPort={second}"), &format!("ServerPort={other}"));
    fs::write(&differing, text).expect("a file can be written");
    drop((held, _more));
    let run = |node: &str, file: &PathBuf| {
        let mut command = vinga();
        command.args(["data", "--node", node, "--config"]).arg(file);
        command
    };
    let mut quiet = run("1", &file);
    let _first = NodeProcess::start(quiet.stdout(Stdio::null()).stderr(Stdio::null()), None);
    let (ok, text) = said(run("2", &differing).output());
    assert!(!ok && text.contains("20031"), "{text}");
    let (here, there) =
        (format!("port {second}, by the configuration of data node 1"), format!("port {other}, by that of"));
    assert!(text.contains(&here) && text.contains(&there), "{text}");
}

#[test]
fn up_says_what_can_not_be_asked_of_several_data_nodes() {
    let folder = Folder::new();
    for (arguments, reason) in [
        (&["--data-nodes", "3", "--replicas", "2"][..], "with --data-nodes 3 allowed: 1, 3"),
        (&["--replicas", "2"], "one data node can't be divided into groups of 2"),
        (&["--data-nodes", "2", "--initial"], "--initial removes a database from the disk"),
        (&["--data-nodes", "2", "--set", "NodeId=1"], "'vinga up' starts all of them"),
        (&["--data-nodes", "2", "--port", "65535"], "there are none behind 65535"),
        (
            &["--data-nodes", "2", "--replicas", "2", "--set", "NoOfReplicas=1"],
            "--replicas 2 and --set NoOfReplicas=1 contradict each other",
        ),
        (&["--data-nodes", "145"], "145"),
        (&["--data-nodes", "2", "--replicas", "5"], "5"),
        (&["--data-nodes", "2", "--management-nodes", "3"], "3"),
        (&["--management-nodes", "1"], "they decide between data nodes, and there is one data node"),
    ] {
        let (ok, text) = folder.up(arguments);
        assert!(!ok && text.contains(reason), "{arguments:?}: {text}");
        assert!(!folder.0.join("config.ini").exists(), "{arguments:?}");
    }
    let elsewhere = Folder::new();
    let config = two_nodes(&elsewhere, [7001, 7002], "");
    let (ok, text) = folder.up(&["--data-nodes", "2", "--config", config.to_str().expect("a plain path")]);
    assert!(!ok && text.contains("several data nodes have their configuration in"), "{text}");
    assert!(folder.run("status", &[]).1.contains("there is no cluster in"));
}

#[test]
fn a_port_in_use_is_named_before_anything_is_started() {
    let folder = Folder::new();
    let (ports, _held) = ports();
    let (ok, text) = folder.up(&["--data-nodes", "2", "--port", &ports[1].to_string()]);
    assert!(!ok && text.contains(&format!("port {} of 127.0.0.1 is in use", ports[1])), "{text}");
    assert!(!folder.0.join("node-1").exists(), "{text}");
}

/// Neither has its nodes yet when the other one looks for free ports.
#[test]
fn clusters_that_are_made_at_the_same_moment_have_ports_of_their_own() {
    let folders = [(); 3].map(|()| Folder::new());
    let start = |folder: &Folder| {
        let mut up = folder.command("up");
        up.args(["--data-nodes", "2", "--replicas", "2", "--set", "DataMemory=64M"]);
        up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let ups = folders.each_ref().map(start);
    for up in ups {
        let (ok, text) = said(up.wait_with_output());
        assert!(ok, "{text}");
    }
    let ports = |folder: &Folder| -> Vec<String> {
        let text = fs::read_to_string(folder.0.join("config.ini")).expect("it is there");
        let is_port = |line: &&str| line.starts_with("ServerPort=") || line.starts_with("PortNumber=");
        text.lines().filter(is_port).filter_map(|line| Some(line.split_once('=')?.1.to_owned())).collect()
    };
    let mut all: Vec<String> = folders.iter().flat_map(ports).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 9, "{all:?}");
}

#[test]
fn errors_of_all_data_nodes_are_reported_before_one_is_started() {
    let folder = Folder::new();
    two_nodes(&folder, [7001, 7001], "Diskless=no");
    let (ok, text) = said(folder.command("up").output());
    assert!(!ok && text.contains("2 errors in the configuration"), "{text}");
    assert!(
        text.contains("config.ini line 11: 'ServerPort=7001': data node 2 would be at 127.0.0.1"),
        "{text}"
    );
    assert!(text.contains("config.ini line 5: 'Diskless=no'"), "{text}");
    // What only one of them has.
    two_nodes(&folder, [7001, 7002], "");
    let file = folder.0.join("config.ini");
    let text = fs::read_to_string(&file).expect("it is there");
    fs::write(&file, text + "ThreadConfig=ldm={count=3}\n").expect("it can be written");
    let (ok, text) = said(folder.command("up").output());
    assert!(!ok && text.contains("'ldm={count=3}'") && !folder.0.join("node-1").exists(), "{text}");
}

#[test]
fn the_number_of_data_nodes_stays() {
    // One data node.
    let folder = Folder::new();
    assert!(folder.up(&["--port", "0", "--data-nodes", "1", "--replicas", "1"]).0);
    let (ok, text) = folder.up(&["--data-nodes", "2"]);
    assert!(!ok && text.contains("has 1 data node (") && text.contains("node-1"), "{text}");
    assert!(folder.run("down", &[]).0);
    let (ok, text) = folder.up(&["--data-nodes", "2"]);
    assert!(!ok && text.contains("one that began with one data node can't get more"), "{text}");
    // Two.
    let folder = Folder::new();
    let (ports, held) = ports();
    two_nodes(&folder, ports, "");
    drop(held);
    for (arguments, reason) in [
        (&["--data-nodes", "1"][..], "has 2 data nodes ("),
        (&["--data-nodes", "4"], "has 2 data nodes ("),
        (&["--replicas", "1"], "has NoOfReplicas=2 ("),
        (&["--management-nodes", "1"], "has 0 management nodes ("),
        (&["--port", "1"], "the first data node listens on port"),
    ] {
        let (ok, text) = folder.up(arguments);
        assert!(!ok && text.contains(reason) && text.contains("config.ini"), "{arguments:?}: {text}");
    }
    assert!(!folder.0.join("node-1").exists());
    // Their folders without their configuration.
    for node in ["node-1", "node-2"] {
        fs::create_dir_all(folder.0.join(node)).expect("a folder can be made");
    }
    fs::remove_file(folder.0.join("config.ini")).expect("it is there");
    let (ok, text) = folder.up(&[]);
    assert!(!ok && text.contains("folders of 2 data nodes") && text.contains("config.ini"), "{text}");
}

/// One data node takes its configuration from the folder, too.
#[test]
fn a_configuration_in_the_folder_is_used() {
    let folder = Folder::new();
    fs::create_dir_all(&folder.0).expect("a folder can be made");
    let file = folder.0.join("config.ini");
    fs::write(&file, "[data]\nTransactionDeadlockDetectionTimeout=777\nServerPort=0\n")
        .expect("it can be written");
    let (ok, text) = folder.up(&[]);
    assert!(ok && text.contains("data is kept on disk"), "{text}");
    let (ok, text) = folder.run("admin", &["parameters"]);
    assert!(ok && text.contains(" 777  ms"), "{text}");
    let other = folder.0.join("other.ini");
    fs::write(&other, "[data]\n").expect("it can be written");
    let (ok, text) = folder.up(&["--config", other.to_str().expect("a plain path")]);
    assert!(!ok && text.contains("has a configuration file"), "{text}");
    let (ok, text) = folder.up(&["--config", file.to_str().expect("a plain path")]);
    assert!(ok && text.contains("is running already"), "{text}");
}

/// A node that can't start is shown with its reason, and the others are stopped.
#[test]
fn all_of_them_start_or_none() {
    let folder = Folder::new();
    let (ports, [first, _second]) = ports();
    two_nodes(&folder, ports, "");
    drop(first);
    let (ok, text) = said(folder.command("up").output());
    assert!(!ok && text.contains("data node 2 has not started"), "{text}");
    assert!(text.contains(&format!("port {} is in use", ports[1])), "{text}");
    // It would be refused.
    assert!(text.contains("(ServerPort)") && !text.contains("--port"), "{text}");
    for node in [1, 2] {
        let folder = NodeFolder::new(&folder.0, node);
        assert_eq!(folder.running().expect("the folder is there"), None, "{text}");
    }
    let (_, text) = folder.run("status", &[]);
    assert!(text.contains("data node 1  stopped") && text.contains("data node 2  stopped"), "{text}");
    let (ok, text) = folder.run("down", &[]);
    assert!(ok && text.contains("no data node runs in"), "{text}");
}

/// The next start may ask for what it likes.
#[test]
fn nothing_counts_of_a_first_start_that_has_failed() {
    let folder = Folder::new();
    // An error in what was given, and a management node that has no place for its folder.
    fs::create_dir_all(&folder.0).expect("a folder can be made");
    fs::write(folder.0.join("mgm-3"), "").expect("a file can be written");
    for (arguments, reason) in [
        (&["--data-nodes", "2", "--port", "0", "--set", "ThreadConfig=ldm={count=3}"][..], "3 ldm threads"),
        (&["--data-nodes", "2", "--replicas", "2", "--port", "0"], "mgm-3"),
    ] {
        let (ok, text) = folder.up(arguments);
        assert!(!ok && text.contains(reason), "{arguments:?}: {text}");
        assert!(!folder.0.join("node-1").exists(), "{text}");
        assert!(!folder.0.join("config.ini").exists(), "{text}");
    }
    fs::remove_file(folder.0.join("mgm-3")).expect("it is there");
    // Data nodes that end while they start: their logs are kept.
    let mut limited = Command::new("sh");
    limited.args([
        "-c",
        "ulimit -v 4000000; exec \"$@\"",
        "sh",
        env!("CARGO_BIN_EXE_vinga"),
        "up",
        "--folder",
    ]);
    limited.arg(&folder.0).args(["--data-nodes", "2", "--port", "0", "--set", "DataMemory=6G"]);
    let (ok, text) = said(limited.output());
    assert!(!ok && text.contains("has not started"), "{text}");
    // Either may have ended first.
    let is_named = |log: PathBuf| log.exists() && text.contains(&log.display().to_string());
    assert!(["node-1.log", "node-2.log"].iter().any(|log| is_named(folder.0.join(log))), "{text}");
    assert!(!folder.0.join("node-1").exists(), "{text}");
    let (ok, text) = folder.up(&["--port", "0"]);
    assert!(ok && text.contains("data node 1 is ready"), "{text}");
}

/// People see what a command waits for.
#[test]
fn a_node_that_is_suspended_is_named() {
    let folder = Folder::new();
    assert!(folder.up(&["--port", "0"]).0);
    let pid = NodeFolder::new(&folder.0, 1).running().expect("the folder is there").expect("it runs");
    let suspended = Suspended::new(&folder.0, 1);
    let mut down = folder.command("down");
    let mut down = down.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(down.stdout.take().expect("a pipe")).lines();
    let line = BufReader::new(down.stderr.take().expect("a pipe"))
        .lines()
        .next()
        .expect("it says something")
        .expect("text");
    drop(suspended);
    assert!(line.contains("until data node 1 has stopped"), "{line}");
    assert!(line.contains(&format!("process {pid} is suspended, 'kill -CONT {pid}'")), "{line}");
    assert!(said.any(|line| line.is_ok_and(|line| line.contains("data node 1 has stopped"))));
    assert!(down.wait().expect("it ends").success());
}

/// Of several data nodes, one that has not said where it listens waits for the others.
#[test]
fn a_node_that_waits_for_others_is_starting() {
    let folder = Folder::new();
    let nodes = [1, 2].map(|node| NodeFolder::new(&folder.0, node));
    nodes.iter().for_each(|node| node.create().expect("a folder can be made"));
    let lock = nodes[1].occupy().expect("the file can be made").expect("nobody has it");
    let waits = "waiting for data node 1 (127.0.0.1:2202): it has not come yet";
    fs::write(nodes[1].log(), format!("2026-03-01T12:00:00.123Z info formation: {waits}\n"))
        .expect("written");
    let (_, text) = folder.run("status", &[]);
    assert!(text.contains("data node 1  stopped") && text.contains("data node 2  starting"), "{text}");
    assert!(text.contains(&format!("data node 2 is starting: {waits}")), "{text}");
    let (ok, text) = folder.run("admin", &["nodes"]);
    assert!(!ok && text.contains("is not ready yet"), "{text}");
    fs::write(nodes[1].log(), "2026-03-01T12:00:00.123Z info node: the node stops\n").expect("written");
    let (_, text) = folder.run("status", &[]);
    assert!(text.contains("data node 2  stopping"), "{text}");
    drop(lock);
    // One that is alone has nobody to wait for, and says no phase without a disk.
    let folder = Folder::new();
    let node = NodeFolder::new(&folder.0, 1);
    node.create().expect("a folder can be made");
    let lock = node.occupy().expect("the file can be made").expect("nobody has it");
    let (_, text) = folder.run("status", &[]);
    assert!(text.contains("data node 1  starting") && !text.contains("not answer"), "{text}");
    drop(lock);
}
