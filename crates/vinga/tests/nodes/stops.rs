//! Data nodes that know a management node stop in order: they have a thread more than others, which must not have the
//! signal end the process.

use crate::support::folder::{Folder, said, vinga};
use rustix::process::Signal;
use std::fs::{self, File};
use std::net::TcpListener;
use std::process::Stdio;
use vinga_rig::process::NodeProcess;
use vinga_runtime::node_folder::NodeFolder;

#[test]
fn the_only_data_node_stops_in_order() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let place = tempfile::tempdir().expect("a folder can be made");
        let held = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("there is a free port"));
        let [own, management] = held.map(|one| one.local_addr().expect("it is bound").port());
        let text = format!(
            "[ndbd default]\nHostName=127.0.0.1\nDataMemory=64M\nNoOfFragmentLogFiles=3\nFragmentLogFileSize=4M\n\
             [ndbd]\nNodeId=1\nServerPort={own}\n[ndb_mgmd]\nNodeId=2\nHostName=127.0.0.1\nPortNumber={management}\n"
        );
        let file = |name: &str| place.path().join(name);
        fs::write(file("config.ini"), text).expect("it is ours");
        let log = File::create(file("log")).expect("it is ours");
        let mut command = vinga();
        command.arg("data").arg("--config").arg(file("config.ini")).arg("--folder").arg(file("node"));
        let mut process = NodeProcess::start(command.stdout(Stdio::null()).stderr(log), None);
        let log = || fs::read_to_string(file("log")).unwrap_or_default();
        let ready = process.wait_for(|| fs::read_to_string(file("node/vinga.address")).ok());
        assert!(ready.is_some(), "{}", log());
        process.signal(signal);
        assert_eq!(process.end(), Some(0), "{signal:?}: {}", log());
        assert!(log().contains("the node has stopped"), "{signal:?}: {}", log());
    }
}

#[test]
fn replicas_stop_in_order() {
    let folder = Folder::new();
    let mut up = folder.command("up");
    up.args(["--data-nodes", "2", "--replicas", "2", "--management-nodes", "1"]);
    let (ok, text) = said(up.args(["--set", "DataMemory=64M", "--port", "0"]).output());
    assert!(ok, "{text}");
    let log = |node| fs::read_to_string(NodeFolder::new(&folder.0, node).log()).expect("it has one");
    let (ok, text) = folder.run("admin", &["stop", "2"]);
    assert!(ok, "{text}");
    assert!(log(2).contains("the node has stopped"), "{}", log(2));
    let (ok, text) = folder.run("down", &[]);
    assert!(ok, "{text}");
    assert!(log(1).contains("the node is asked to stop by SIGTERM"), "{}", log(1));
}
