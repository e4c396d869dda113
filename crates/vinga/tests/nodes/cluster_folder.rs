//! A cluster in a folder: what commands find there, before and after its nodes have ended in any way.

use crate::support::folder::{Folder, SMALL, Suspended, said, unread, vinga};
use rustix::process::Signal;
use std::fs;
use std::process::Stdio;
use vinga_rig::process::NodeProcess;
use vinga_runtime::node_folder::NodeFolder;

/// The state of the data node according to `vinga status`, and the exit code.
fn status(folder: &Folder) -> (Option<i32>, serde_json::Value) {
    let output = folder.command("status").arg("--json").output().expect("the binary runs");
    let nodes = serde_json::from_slice(&output.stdout).expect("it says JSON");
    (output.status.code(), nodes)
}

const DISKLESS: [&str; 2] = ["--set", "Diskless=yes"];

#[test]
fn a_killed_node_without_a_disk_comes_back_on_its_port_and_says_that_its_data_is_gone() {
    let folder = Folder::new();
    let (ok, text) = folder.up(&[&["--port", "0"][..], &DISKLESS].concat());
    assert!(ok && text.contains("data is kept in memory only"), "{text}");
    let port = folder.port();
    for _ in 0..5 {
        let before = folder.pid();
        folder.kill();
        // At once: the process may still be ending, its address still exists.
        let (ok, text) = folder.up(&DISKLESS);
        assert!(ok && text.contains(&format!("is ready on 127.0.0.1:{port}")), "{text}");
        assert!(text.contains("kept its data in memory only"), "{text}");
        assert!(text.contains("killed or has crashed") && text.contains("are gone"), "{text}");
        assert_ne!(folder.pid(), before);
        let (ok, text) = folder.run("admin", &["tables"]);
        assert!(ok, "{text}");
    }
}

#[test]
fn a_stop_without_a_disk_says_that_data_is_gone_and_the_port_is_kept() {
    let folder = Folder::new();
    let (ok, text) = folder.up(&[&["--port", "0"][..], &DISKLESS].concat());
    assert!(ok, "{text}");
    let port = folder.port();
    let (ok, text) = folder.run("down", &[]);
    assert!(ok && text.contains("has stopped") && text.contains("in memory only"), "{text}");
    let (ok, text) = folder.run("down", &[]);
    assert!(ok && !text.contains("in memory only") && text.contains("no data node runs"), "{text}");
    // It gets a disk now: what was in memory before is gone all the same.
    let (ok, text) = folder.up(&[]);
    assert!(ok && text.contains(&format!("127.0.0.1:{port}")), "{text}");
    assert!(text.contains("kept its data in memory only") && !text.contains("killed"), "{text}");
    assert!(text.contains("data is kept on disk"), "{text}");
    assert!(folder.run("down", &[]).1.contains("its data is on disk"));
    let (ok, text) = folder.up(&DISKLESS);
    assert!(ok && text.contains("is left alone and not used (Diskless)"), "{text}");
}

#[test]
fn the_port_of_the_configuration_goes_before_that_of_the_last_start() {
    let folder = Folder::new();
    assert!(folder.up(&["--port", "0"]).0 && folder.run("down", &[]).0);
    let before = fs::read_to_string(folder.0.join("node-1/vinga.start")).expect("it was started");
    let (ok, text) = folder.up(&["--set", "ServerPort=0"]);
    assert!(ok && !before.contains(&format!("address=127.0.0.1:{}\n", folder.port())), "{text}\n{before}");
    let (ok, text) = folder.up(&["--port", "1", "--set", "ServerPort=2"]);
    assert!(!ok && text.contains("given twice"), "{text}");
}

#[test]
fn status_tells_what_runs() {
    let folder = Folder::new();
    let (ok, text) = folder.run("status", &[]);
    assert!(!ok && text.contains("there is no cluster in") && text.contains("vinga up"), "{text}");
    assert!(folder.up(&["--port", "0"]).0);
    let (code, nodes) = status(&folder);
    assert_eq!((code, &nodes[0]["running"]), (Some(0), &true.into()));
    assert_eq!(nodes[0]["pid"], folder.pid().as_raw_nonzero().get());
    assert_eq!(nodes[0]["address"], format!("127.0.0.1:{}", folder.port()));
    assert!(
        nodes[0]["version"].as_str().is_some_and(|v| v.starts_with(env!("CARGO_PKG_VERSION"))),
        "{nodes}"
    );
    assert!(nodes[0]["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{nodes}");
    let (_, table) = folder.run("status", &[]);
    assert!(table.starts_with("node ") && table.contains("data node 1  running"), "{table}");

    // A node that hangs has a process, but does not answer.
    let suspended = Suspended::new(&folder.0, 1);
    let (code, nodes) = status(&folder);
    drop(suspended);
    assert_eq!((code, &nodes[0]["state"]), (Some(3), &"not answering".into()));

    let pid = folder.pid();
    folder.kill();
    while rustix::process::test_kill_process(pid).is_ok() && status(&folder).1[0]["pid"].is_i64() {}
    let (code, nodes) = status(&folder);
    assert_eq!((code, &nodes[0]["state"]), (Some(3), &"killed or crashed".into()));
    assert!(folder.up(&[]).0 && folder.run("down", &[]).0);
    let (code, nodes) = status(&folder);
    assert_eq!((code, &nodes[0]["state"]), (Some(3), &"stopped".into()));
    assert!(nodes[0]["pid"].is_null() && nodes[0]["address"].is_null(), "{nodes}");
}

/// A new cluster in it would be taken for the old one without its data.
#[test]
fn the_folder_of_a_node_is_no_cluster() {
    let folder = Folder::new();
    assert!(folder.up(&["--port", "0"]).0);
    let place = folder.0.join("node-1");
    let (ok, text) = said(vinga().args(["up", "--port", "0", "--folder"]).arg(&place).output());
    assert!(
        !ok && text.contains("node-1 is the folder of a single node: name the folder of its cluster"),
        "{text}"
    );
    assert!(text.contains(&format!("as --folder {}", folder.0.display())), "{text}");
    assert!(!place.join("node-1").exists());
}

/// Its folder has another number than it, by which commands would take it for the data node with that one.
#[test]
fn the_only_data_node_has_the_id_of_its_folder() {
    let folder = Folder::new();
    let file = folder.0.join("config.ini");
    let refused = |more: &[&str], origin: &str| {
        let (ok, text) = folder.up(&[&["--port", "0"], more].concat());
        let why = format!(
            "{origin}: 'NodeId=7': the only data node of a cluster that 'vinga up' makes has the id 1"
        );
        assert!(!ok && text.contains(&why) && text.contains("allowed: 1"), "{text}");
        assert!(!folder.0.join("node-1").exists());
    };
    refused(&["--set", "NodeId=7"], "command line");
    fs::create_dir_all(&folder.0).expect("it can be made");
    fs::write(&file, "[ndbd]\nNodeId=7\n").expect("it can be written");
    refused(&[], &format!("{} line 2", file.display()));
    // Somebody starts it in another way.
    let own = folder.0.join("node-1");
    let mut command = vinga();
    command.args(["data", "--port", "0", "--set", "NodeId=7"]).args(SMALL).arg("--folder").arg(&own);
    let mut process = NodeProcess::start(command.stdout(Stdio::null()).stderr(Stdio::null()), None);
    let node = NodeFolder::new(&folder.0, 1);
    process.wait_for(|| node.address()).expect("it starts");
    let not_stopped = |why: &str| {
        for force in [&[][..], &["--force"]] {
            let (ok, text) = folder.run("admin", &[&["stop", "1"], force].concat());
            assert!(!ok && text.contains("there is no data node 1") && text.contains(why), "{text}");
        }
    };
    not_stopped("the configuration has 7");
    fs::remove_file(&file).expect("it was written");
    not_stopped("data node 7 runs in");
    assert!(matches!(node.running(), Ok(Some(_))));
}

#[test]
fn parameters_change_while_the_node_runs() {
    let folder = Folder::new();
    assert!(folder.up(&["--port", "0", "--set", "TimeBetweenEpochs=200"]).0);
    let value = |parameter: &str| {
        let (ok, text) = folder.run("admin", &["parameters", "--json"]);
        assert!(ok, "{text}");
        let rows: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let row = rows.as_array().expect("rows").iter().find(|row| row["parameter"] == parameter);
        row.expect("it may change live")["value"].as_u64()
    };
    assert_eq!(value("TimeBetweenEpochs"), Some(200));
    let (ok, text) = folder.run("admin", &["set", "time-between-epochs=50"]);
    assert!(ok && text.contains("TimeBetweenEpochs is 50 ms from now on"), "{text}");
    assert!(folder.run("admin", &["set", "MaxDiskWriteSpeed=12M"]).0);
    assert_eq!((value("TimeBetweenEpochs"), value("MaxDiskWriteSpeed")), (Some(50), Some(12 << 20)));
    // What the present values do not allow, what no running node can change, what nobody knows.
    for (change, reason) in [
        ("MinDiskWriteSpeed=13M", "would be greater than MaxDiskWriteSpeed"),
        ("TimeBetweenEpochs=2001", "(2001 ms) would be greater than TimeBetweenGlobalCheckpoints (2000 ms)"),
        ("TimeBetweenGlobalCheckpoints=49", "TimeBetweenEpochs (50 ms) would be greater"),
        ("DataMemory=1G", "holds from the start of a node to its stop"),
        ("TimeBetweenEpoch=50", "did you mean TimeBetweenEpochs?"),
    ] {
        let (ok, text) = folder.run("admin", &["set", change]);
        assert!(!ok && text.contains(reason), "{text}");
    }
    // The configuration counts at the next start.
    assert!(folder.run("down", &[]).0 && folder.up(&[]).0);
    assert_eq!(value("MaxDiskWriteSpeed"), Some(200 << 20));
    assert!(folder.run("down", &[]).0);
}

#[test]
fn commands_find_the_cluster_by_its_folder() {
    let folder = Folder::new();
    assert!(folder.up(&["--port", "0"]).0);
    let create = ["create", "shop.orders", "id int, who varchar(9), primary key (id), index by_who (who)"];
    let (ok, text) = folder.run("admin", &create);
    assert!(ok, "{text}");
    // Before and behind the subcommand, by the environment, and as vinga-cluster in the current folder.
    let place = folder.0.to_str().expect("a plain path");
    let tables = |configure: &dyn Fn(&mut std::process::Command)| {
        let mut command = vinga();
        configure(&mut command);
        said(command.output())
    };
    let link = std::env::temp_dir().join(format!("vinga-here-{}", std::process::id()));
    fs::create_dir_all(&link).expect("a folder can be made");
    std::os::unix::fs::symlink(&folder.0, link.join("vinga-cluster")).expect("a link can be made");
    let found = [
        tables(&|command| _ = command.args(["admin", "--folder", place, "tables"])),
        tables(&|command| _ = command.args(["admin", "tables", "--folder", place])),
        tables(&|command| _ = command.args(["admin", "tables"]).env("VINGA_FOLDER", place)),
        tables(&|command| _ = command.args(["admin", "tables"]).current_dir(&link)),
        // The command line overrides the environment.
        tables(&|command| {
            command.args(["admin", "tables", "--folder", place]).env("VINGA_CONNECT", "127.0.0.1:1");
        }),
    ];
    fs::remove_dir_all(&link).expect("it is ours");
    assert!(found.iter().all(|(ok, text)| *ok && text.contains("shop.orders")), "{found:?}");
    let (ok, text) =
        tables(&|command| _ = command.args(["admin", "tables"]).env("VINGA_CONNECT", "127.0.0.1:1"));
    assert!(!ok && text.contains("127.0.0.1:1"), "{text}");
    let (ok, text) = tables(&|command| {
        command.args(["admin", "tables", "--folder", place, "--connect", "127.0.0.1:1"]);
    });
    assert!(!ok && text.contains("cannot be used with"), "{text}");
    let results = folder.0.join("results");
    let lookup = [
        "bench",
        "lookup",
        "--folder",
        place,
        "--rows=100",
        "--lookups=10",
        "--loops=1",
        "--quiet",
        "--json",
    ];
    let output = vinga().args(lookup).arg("--out").arg(&results).output().expect("the binary runs");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it says JSON");
    // The process of the node in the folder is known.
    assert!(report["repetitions"][0]["node_cpu"].is_object(), "{report}");

    assert!(folder.run("down", &[]).0);
    let (ok, text) = folder.run("admin", &["tables"]);
    assert!(!ok && text.contains("no data node runs in") && text.contains("vinga up"), "{text}");
    let (ok, text) = folder.run("demo", &[]);
    assert!(!ok && text.contains("no data node runs in"), "{text}");
}

#[test]
fn what_nobody_reads_is_no_accident() {
    let folder = Folder::new();
    let up = unread(folder.command("up").args(["--port", "0", "--set", "DataMemory=64M"]));
    assert_eq!(up, (Some(0), String::new()));
    assert_eq!(status(&folder).0, Some(0));
    for arguments in
        [&["blocks"][..], &["tables", "--json"], &["create", "test.t", "id int, primary key (id)"]]
    {
        assert_eq!(
            unread(folder.command("admin").args(arguments)),
            (Some(0), String::new()),
            "{arguments:?}"
        );
    }
    let (ok, text) = folder.run("admin", &["describe", "test.t"]);
    assert!(ok, "{text}");
    for arguments in
        [&["data", "--show"][..], &["sim", "--seed", "1", "--trace"], &["completions", "bash"], &["--help"]]
    {
        assert_eq!(unread(vinga().args(arguments)), (Some(0), String::new()), "{arguments:?}");
    }
    assert_eq!(unread(&mut folder.command("down")), (Some(0), String::new()));
    // A full disk is an error, however.
    let full = fs::File::options().write(true).open("/dev/full").expect("it is there");
    let output = vinga().args(["data", "--show"]).stdout(full).output().expect("the binary runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("cannot write to standard output"), "{error}");
}

/// What `vinga down` says when a data node stands still, and is killed as soon as it is asked to stop.
fn down_by_force(folder: &Folder, node: u8) -> (bool, String) {
    let pid = NodeFolder::new(&folder.0, node).running().expect("the folder is there").expect("it runs");
    // All its threads: one that has not stopped yet would take the request, and it would never be seen to be pending.
    let suspended = Suspended::new(&folder.0, node);
    let mut command = folder.command("down");
    let mut down = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    // It can't do anything about it.
    let is_asked = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).expect("it is listed");
        u64::from_str_radix(pending.trim(), 16).expect("a number") >> (Signal::TERM.as_raw() - 1) & 1 == 1
    };
    while !is_asked() {
        assert_eq!(down.try_wait().expect("it is ours"), None, "it asks before it ends");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    suspended.kill();
    said(down.wait_with_output())
}

/// A node that ends after it was asked to stop, but by force, has not stopped in order: nobody is to believe otherwise.
#[test]
fn down_says_when_a_node_has_not_stopped_in_order() {
    let folder = Folder::new();
    assert!(folder.up(&["--port", "0"]).0);
    let (ok, text) = down_by_force(&folder, 1);
    assert!(!ok && text.contains("not in order") && !text.contains("its data is on disk"), "{text}");
    assert_eq!(status(&folder).1[0]["state"], "killed or crashed");
}

/// The failure of one node keeps no other one running.
#[test]
fn down_stops_the_others_when_a_node_has_not_stopped_in_order() {
    let folder = Folder::new();
    let size = ["--data-nodes", "2", "--replicas", "2", "--management-nodes", "1", "--port", "0"];
    let (ok, text) = folder.up(&size);
    assert!(ok, "{text}");
    let (ok, text) = down_by_force(&folder, 2);
    assert!(!ok && text.contains("data node 2 has ended, but not in order"), "{text}");
    assert!(text.contains("management node 3 has stopped"), "{text}");
    for node in ["node-1", "node-2", "mgm-3"] {
        let running = NodeFolder::at(folder.0.join(node)).running().expect("the folder is there");
        assert_eq!(running, None, "{node}");
    }
}
