//! Messages of `vinga up`, `down` and `admin` in unexpected situations.

use crate::support::Node;
use crate::support::folder::{Folder, said, vinga};
use std::io::Write;
use std::net::TcpListener;

fn admin(address: &str, arguments: &[&str]) -> (bool, String) {
    said(vinga().args(["admin", "--connect", address]).args(arguments).output())
}

#[test]
fn what_runs_already_keeps_its_settings_and_its_port() {
    let folder = Folder::new();
    let (ok, text) = folder.up(&["--port", "0"]);
    assert!(ok && !text.contains("keeps"), "{text}");
    let (ok, text) = folder.up(&["--set", "MaxNoOfTables=99"]);
    assert!(ok && text.contains("keeps the settings") && text.contains("--set MaxNoOfTables=99"), "{text}");
    let (ok, text) = folder.up(&["--port", &folder.port()]);
    assert!(ok, "{text}");
    let (ok, text) = folder.up(&["--port", "1"]);
    assert!(!ok && text.contains("runs already") && text.contains("keeps its port"), "{text}");
    let (ok, text) = folder.up(&["--sql-port", "1"]);
    assert!(!ok && text.contains("--sql-port 1") && text.contains("--sql-nodes"), "{text}");
    let (ok, text) = folder.up(&["--sql-set", "max_connections=5"]);
    assert!(!ok && text.contains("--sql-set max_connections=5") && text.contains("--sql-nodes"), "{text}");
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    let (ok, text) = Folder::new().up(&["--port", &port]);
    assert!(!ok && text.contains(&format!("port {port} is in use")) && text.contains("--port"), "{text}");
}

#[test]
fn two_at_once_find_one_data_node() {
    for _ in 0..5 {
        let folder = Folder::new();
        let ends = std::thread::scope(|threads| {
            let ups = [(); 3].map(|()| threads.spawn(|| folder.up(&["--port", "0"])));
            ups.map(|up| up.join().expect("no panic"))
        });
        assert!(ends.iter().all(|(ok, _)| *ok), "{ends:?}");
        assert_eq!(ends.iter().filter(|(_, text)| text.contains("is ready on")).count(), 1, "{ends:?}");
    }
}

#[test]
fn what_is_no_data_node_is_told_so() {
    let sql = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = sql.local_addr().expect("it is bound").to_string();
    // A greeting as of MariaDB: a packet's length and number, protocol 10, the version.
    let greets = std::thread::spawn(move || {
        let (mut stream, _) = sql.accept().expect("a client connects");
        let greeting = [&[93, 0, 0, 0, 10][..], b"5.5.5-10.11.18-MariaDB\0", &[7; 80]].concat();
        stream.write_all(&greeting[..97]).expect("it reads");
        stream
    });
    let (ok, text) = admin(&address, &["nodes"]);
    assert!(!ok && text.contains("no data node") && !text.contains("20008"), "{text}");
    drop(greets.join().expect("a client connected"));
}

#[test]
fn own_tables_are_dropped_by_force_only() {
    let node = Node::start(&[]);
    let columns = "id int, primary key(id)";
    for table in ["vinga.auto_increment", "test.t"] {
        let (ok, text) = admin(&node.address, &["create", table, columns]);
        assert!(ok, "{text}");
    }
    let (ok, text) = admin(&node.address, &["drop", "vinga.auto_increment"]);
    assert!(!ok && text.contains("--force"), "{text}");
    let (ok, text) = admin(&node.address, &["drop", "test.t"]);
    assert!(ok, "{text}");
    let (ok, text) = admin(&node.address, &["drop", "--force", "vinga.auto_increment"]);
    assert!(ok, "{text}");
    let (_, nodes) = admin(&node.address, &["nodes"]);
    assert!(nodes.contains(" since ") && nodes.contains("T") && nodes.contains("Z "), "{nodes}");
}

#[test]
fn clients_that_leave_leave_no_warning() {
    // Two threads own connections: one of them receives the disconnect notice first, the other closes when notified.
    let node = Node::start(&["ThreadConfig=ldm={count=2},tc,recv={count=2},send,main"]);
    for _ in 0..10 {
        let (ok, text) = admin(&node.address, &["nodes"]);
        assert!(ok, "{text}");
        let (ok, text) = admin(&node.local_address(), &["nodes"]);
        assert!(ok, "{text}");
    }
    let log = node.log();
    assert!(log.contains("API node"), "{log}");
    assert!(
        !log.lines().any(|line| line.contains(" warning sockets") || line.contains(" warning listener")),
        "{log}"
    );
}

#[test]
fn a_client_that_outlives_its_data_node_is_no_alarm_to_the_next() {
    let folder = Folder::new();
    let (ok, text) = folder.up(&["--port", "0"]);
    assert!(ok, "{text}");
    let port = folder.port();
    let cluster = vinga::blocking::Cluster::connect(&folder.addresses([1])).expect("it answers");
    assert!(said(folder.command("down").output()).0);
    let (ok, text) = folder.up(&["--port", &port]);
    assert!(ok, "{text}");
    // It reconnects under its old name.
    while cluster.tables().is_err() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let log = std::fs::read_to_string(folder.0.join("node-1/vinga.log")).expect("it is there");
    assert!(log.contains("is asked to begin anew"), "{log}");
    assert!(!log.lines().any(|line| line.contains(" warning listener")), "{log}");
}

/// The exit code of a command and its standard error.
fn refusal(arguments: &[&str]) -> (Option<i32>, String) {
    let output = vinga().args(arguments).output().expect("the binary runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_folder_is_shown_as_it_would_hold() {
    let shown = |more: &[&str]| {
        let output = vinga().args(["data", "--show", "--json", "--folder", "/a/folder"]).args(more).output();
        let output = output.expect("the binary runs");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")["parameters"]["DataDir"]
            .clone()
    };
    for more in [&[][..], &["--set", "data-dir=/another"]] {
        assert_eq!(shown(more)["value"], "/a/folder");
    }
}

#[test]
fn lines_that_make_no_sense_are_refused_at_once() {
    for (line, reported) in [
        (&["sim"][..], "--seeds <A..B>"),
        (&["statsu"], "'status'"),
        (&["up", "--sql-node", "1"], "'--sql-nodes'"),
        (&["up", "--sql-nodes", "1", "--sql-set", "pid_file=x"], "Vinga sets pid_file itself"),
        (&["bench", "flexasynch", "--rows", "0"], "--rows"),
        (&["bench", "memory", "--sizes", "0"], "--sizes"),
        (
            &["restore", "b", "--threads", "x"],
            "'x' for '--threads <NUMBER>': expected a whole number from 1 to 64",
        ),
        (
            &["restore", "b", "--threads", "65"],
            "'65' for '--threads <NUMBER>': expected a whole number from 1 to 64",
        ),
        (
            &["admin", "backup", "--wait", "5s"],
            "'5s' for '--wait <SECONDS>': expected a whole number from 0 to 31536000",
        ),
        (&["up", "--port", "65536"], "'65536' for '--port <PORT>': expected a whole number from 0 to 65535"),
        (
            &["admin", "clusterlog", "--node", "1,x"],
            "'x' for '--node <ID>': expected a whole number from 1 to 255",
        ),
        (&["sim", "--seeds", "1..x"], "'x' is no whole number: expected A..B"),
    ] {
        let (code, text) = refusal(line);
        assert!(code == Some(2) && text.contains(reported), "{line:?}: {text}");
    }
}

#[test]
fn what_is_no_cluster_cannot_be_stopped() {
    let folder = Folder::new();
    let (ok, text) = said(folder.command("down").output());
    assert!(!ok && text.contains("there is no cluster in") && text.contains("--folder"), "{text}");
}

#[test]
fn limits_of_columns_and_paths_are_told_in_sentences() {
    let node = Node::start(&[]);
    let (ok, text) = admin(&node.address, &["create", "a.t", "id int, v varchar(40000), primary key (id)"]);
    assert!(
        !ok && text.contains("column 'v': values of up to 40000 bytes; 0 to 30000 are allowed"),
        "{text}"
    );
    let (ok, text) = admin(&node.address, &["create", "a.t", "id int, v long, primary key (id)"]);
    assert!(!ok && text.contains("text, blob"), "{text}");
    let long = std::env::temp_dir().join("long".repeat(30)).join(std::process::id().to_string());
    let folder = Folder(long.clone());
    let (ok, text) = folder.up(&["--port", "0"]);
    assert!(ok && text.contains("up to 107") && text.contains("--folder"), "{text}");
    drop(folder);
    let _ = std::fs::remove_dir(long.parent().expect("it has one"));
}
