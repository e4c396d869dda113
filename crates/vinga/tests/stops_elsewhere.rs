//! Data nodes that don't see each other's processes, as on two machines: one that is stopped in order takes the other
//! one not with it, though nobody arbitrates.
//!
//! Only root can give a process a namespace of process ids; elsewhere nothing is shown.

#[allow(dead_code, reason = "each test uses its part of it")]
mod support;

use std::fs::{self, File};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use support::folder::{Folder, said, vinga};
use vinga::blocking::Cluster;
use vinga::{ColumnType, NewTable, Record, Value as Cell};
use vinga_rig::process::NodeProcess;
use vinga_runtime::node_folder::NodeFolder;

/// Whether this process may make namespaces of process ids.
fn may_part_processes() -> bool {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "true"]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Two data nodes, each with process ids of its own, and no management node.
fn start(folder: &Folder) -> [NodeProcess; 2] {
    let held = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("there is a free port"));
    let mut text =
        "[ndbd default]\nNoOfReplicas=2\nDiskless=yes\nDataMemory=64M\nHostName=127.0.0.1\n".to_owned();
    for (id, listener) in (1..).zip(&held) {
        let port = listener.local_addr().expect("it is bound").port();
        text += &format!("[ndbd]\nNodeId={id}\nServerPort={port}\n");
    }
    fs::create_dir_all(&folder.0).expect("a folder can be made");
    let file = folder.0.join("config.ini");
    fs::write(&file, text).expect("a file can be written");
    drop(held);
    let mut nodes = [1, 2].map(|id| {
        let own = NodeFolder::new(&folder.0, id);
        let log = File::create(folder.0.join(format!("{id}.log"))).expect("it is ours");
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]).arg(vinga().get_program());
        command.args(["data", "--node", &id.to_string(), "--config"]).arg(&file);
        command.arg("--folder").arg(own.path()).stdout(Stdio::null()).stderr(log);
        NodeProcess::start(&mut command, None)
    });
    for (id, node) in (1..).zip(&mut nodes) {
        let own = NodeFolder::new(&folder.0, id);
        assert!(node.wait_for(|| own.address()).is_some(), "{}", log(folder, id));
    }
    nodes
}

fn log(folder: &Folder, node: u8) -> String {
    fs::read_to_string(folder.0.join(format!("{node}.log"))).unwrap_or_default()
}

#[test]
fn one_that_is_stopped_in_order_takes_no_other_with_it() {
    if !may_part_processes() {
        return eprintln!("no namespaces of process ids can be made");
    }
    for stopped in [2u8, 1] {
        let folder = Folder::new();
        let mut nodes = start(&folder);
        let address = |node| NodeFolder::new(&folder.0, node).address().expect("it is ready");
        let left = 3 - stopped;
        let cluster = Cluster::connect(&format!("{},{}", address(left), address(stopped))).expect("admitted");
        let table = NewTable::new("test.t")
            .column("id", ColumnType::Integer { bytes: 8, signed: false })
            .primary_key(&["id"]);
        let table = cluster.create_table(table).expect("a table can be created");
        for id in 0..100u64 {
            cluster.insert(&table, &Record::new([("id", Cell::from(id))])).expect("a good row");
        }
        let mut command = vinga();
        command.args(["admin", "--connect", &address(left), "stop", &stopped.to_string()]);
        let (ok, text) = said(command.output());
        assert!(ok, "{text}");
        assert_eq!(nodes[usize::from(stopped) - 1].end(), Some(0), "{}", log(&folder, stopped));
        for id in 100..200u64 {
            let inserted = cluster.insert(&table, &Record::new([("id", Cell::from(id))]));
            inserted.unwrap_or_else(|error| panic!("{error}\n{}", log(&folder, left)));
        }
        let log = log(&folder, left);
        assert!(log.contains(&format!("data node {stopped} (incarnation")), "{log}");
        assert!(log.contains("is given up: its process has ended"), "{log}");
        nodes.iter_mut().for_each(NodeProcess::kill);
    }
}
