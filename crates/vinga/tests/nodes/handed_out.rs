//! Data nodes that get their configuration from management nodes.

use crate::support;
use crate::support::folder::{said, vinga};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;
use vinga::blocking::Cluster;
use vinga_rig::process::NodeProcess;
use vinga_runtime::node_folder::NodeFolder;

/// A place with a configuration file of two data nodes and a management node.
struct Place {
    folder: TempDir,
    management_port: u16,
    data_ports: [u16; 2],
}

impl Place {
    fn new() -> Self {
        let free = || TcpListener::bind("127.0.0.1:0").expect("there are free ports");
        let held = [free(), free(), free()];
        let [management_port, one, two] =
            held.each_ref().map(|socket| socket.local_addr().expect("it is bound").port());
        let folder = tempfile::tempdir().expect("a folder can be made");
        let place = Place { folder, management_port, data_ports: [one, two] };
        place.configure("");
        place
    }

    /// Writes the file, with this line for all data nodes.
    fn configure(&self, line: &str) {
        let Place { management_port, data_ports: [one, two], .. } = self;
        let text = format!(
            "[ndbd default]\nNoOfReplicas=2\nHostName=127.0.0.1\nDiskless=yes\nDataMemory=64M\n{line}\n\
             [ndbd]\nNodeId=1\nServerPort={one}\n[ndbd]\nNodeId=2\nServerPort={two}\n\
             [ndb_mgmd]\nNodeId=3\nHostName=127.0.0.1\nPortNumber={management_port}\n"
        );
        fs::write(self.file("config.ini"), text).expect("it is ours");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn management(&self) -> NodeProcess {
        let folder = self.file("mgm");
        let config = self.file("config.ini");
        let more = ["mgm", "--config", config.to_str().expect("it is text")];
        let mut process = start(&more, &folder);
        let ready = process.wait_for(|| fs::read_to_string(folder.join("vinga.address")).ok());
        assert!(ready.is_some(), "{}", log(&folder));
        process
    }

    /// The data node that has this folder.
    fn data(&self, name: &str, more: &[&str]) -> NodeProcess {
        let mgm = format!("127.0.0.1:{}", self.management_port);
        start(&[&["data", "--mgm", &mgm][..], more].concat(), &self.file(name))
    }

    /// Waits until the data node in this folder is ready.
    fn wait(&self, process: &mut NodeProcess, name: &str) {
        let folder = self.file(name);
        let ready = process.wait_for(|| fs::read_to_string(folder.join("vinga.address")).ok());
        assert!(ready.is_some(), "{}", log(&folder));
    }

    /// Waits until the log in this folder has this text.
    fn wait_for_log(&self, process: &mut NodeProcess, name: &str, text: &str) {
        let folder = self.file(name);
        let seen = process.wait_for(|| log(&folder).contains(text).then_some(()));
        assert!(seen.is_some() || log(&folder).contains(text), "{text}: {}", log(&folder));
    }
}

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

fn start(arguments: &[&str], folder: &Path) -> NodeProcess {
    fs::create_dir_all(folder).expect("it can be made");
    let output = fs::File::options().create(true).append(true).open(folder.join("log")).expect("it is ours");
    let mut command = vinga();
    command.args(arguments).arg("--folder").arg(folder);
    NodeProcess::start(command.stdout(Stdio::null()).stderr(output), None)
}

#[test]
fn a_pair_is_configured_by_its_management_node_and_starts_without_it() {
    let place = Place::new();
    let management = place.management();
    // One says who it is, the other one is given what is left.
    let mut two = place.data("b", &["--node", "2"]);
    place.wait_for_log(&mut two, "b", "data node 2: generation 1 of the configuration");
    let mut one = place.data("a", &[]);
    place.wait(&mut one, "a");
    place.wait(&mut two, "b");
    assert!(log(&place.file("a")).contains("data node 1: generation 1"), "{}", log(&place.file("a")));
    Cluster::connect(&format!("127.0.0.1:{}", place.data_ports[0])).expect("it is ready");
    // The log of the cluster has what both have logged, in one file.
    let cluster_log = || fs::read_to_string(place.file("mgm/cluster.log")).unwrap_or_default();
    let lines =
        [" info node 1, node: data node 1 is ready on ", " info node 2, node: data node 2 is ready on "];
    while !lines.iter().all(|line| cluster_log().contains(line)) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // A third one finds no id.
    let mgm = format!("127.0.0.1:{}", place.management_port);
    let (ok, text) = said(vinga().args(["data", "--mgm", &mgm]).output());
    assert!(!ok && text.contains("20031") && text.contains("no data node that is free"), "{text}");
    let (ok, text) = said(vinga().args(["data", "--mgm", &mgm, "--node", "7"]).output());
    assert!(!ok && text.contains("data node 7 is not configured"), "{text}");
    drop((one, two, management));
    for name in ["a", "b"] {
        fs::remove_file(place.file(name).join("vinga.address")).expect("it was killed");
    }
    // Nobody answers: each knows from its folder who it is.
    let (mut one, mut two) = (place.data("a", &[]), place.data("b", &[]));
    place.wait(&mut one, "a");
    place.wait(&mut two, "b");
    let text = log(&place.file("b"));
    assert!(text.contains("that is the copy of an earlier start, as no management node answers"), "{text}");
    let copy = fs::read_to_string(place.file("b").join("configuration.cached")).expect("it was written");
    assert!(copy.starts_with("# generation=1 digest=") && copy.contains("\n[ndbd default]\n"), "{copy}");
}

#[test]
fn data_nodes_with_different_generations_do_not_begin_together() {
    let place = Place::new();
    let management = place.management();
    let mut one = place.data("a", &[]);
    place.wait_for_log(&mut one, "a", "data node 1: generation 1 of the configuration");
    drop(management);
    fs::remove_file(place.file("mgm/vinga.address")).expect("it was killed");
    place.configure("MaxNoOfTables=100");
    let _management = place.management();
    let mut two = place.data("b", &["--node", "2"]);
    place.wait_for_log(&mut two, "b", "start data node 1 again while a management node runs");
    drop(one);
    let mut one = place.data("a", &[]);
    place.wait_for_log(&mut one, "a", "data node 1: generation 2 of the configuration");
    // The other one has ended, if it was the one that was refused.
    drop(two);
    let mut two = place.data("b", &["--node", "2"]);
    place.wait(&mut one, "a");
    place.wait(&mut two, "b");
}

/// A data node that has read a file of its own reports, too, and notices that a management node starts again.
#[test]
fn the_log_of_the_cluster_goes_on_when_its_management_node_starts_again() {
    let place = Place::new();
    let config = place.file("config.ini");
    let more = ["data", "--config", config.to_str().expect("it is text"), "--node", "1"];
    let _one = start(&more, &place.file("a"));
    let cluster_log = || fs::read_to_string(place.file("mgm/cluster.log")).unwrap_or_default();
    let waits = "info node 1, formation: waiting for data node 2";
    let management = place.management();
    while !cluster_log().contains(waits) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(management);
    fs::remove_file(place.file("mgm/vinga.address")).expect("it was killed");
    fs::remove_file(place.file("mgm/cluster.log")).expect("it was written");
    let _management = place.management();
    let _two = start(&[&more[..4], &["2"]].concat(), &place.file("b"));
    while !cluster_log().contains("info node 1, node: data node 1 is ready on ") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Nobody is a data node that only shows its configuration, or can't listen.
#[test]
fn a_data_node_that_does_not_run_has_no_id_and_keeps_no_copy() {
    let place = Place::new();
    let _management = place.management();
    let mgm = format!("127.0.0.1:{}", place.management_port);
    let (ok, text) = said(vinga().args(["data", "--mgm", &mgm, "--node", "1", "--show"]).output());
    assert!(ok && text.contains("DataMemory"), "{text}");
    let management_log = log(&place.file("mgm"));
    assert!(!management_log.contains("has got generation"), "{management_log}");
    let copy = |name: &str| place.file(name).join("configuration.cached");
    let held = TcpListener::bind(("127.0.0.1", place.data_ports[0])).expect("it is free");
    let folder = place.file("a");
    let (ok, text) = said(vinga().args(["data", "--mgm", &mgm, "--folder"]).arg(&folder).output());
    assert!(!ok && text.contains("in use"), "{text}");
    assert!(!copy("a").exists());
    drop(held);
    let (mut one, mut two) = (place.data("a", &["--node", "1"]), place.data("b", &["--node", "2"]));
    place.wait(&mut one, "a");
    place.wait(&mut two, "b");
    assert!(copy("a").exists() && copy("b").exists());
}

/// The parent does not keep the id that it was given to itself.
#[test]
fn a_data_node_that_is_started_again_gets_its_id_by_itself() {
    let place = Place::new();
    let file = fs::read_to_string(place.file("config.ini")).expect("it was written");
    let other = format!("[ndbd]\nNodeId=2\nServerPort={}\n", place.data_ports[1]);
    let file = file.replace(&other, "").replace("NoOfReplicas=2", "NoOfReplicas=1");
    fs::write(place.file("config.ini"), file).expect("it is ours");
    let _management = place.management();
    let mut parent = place.data("one", &["--restarts"]);
    place.wait(&mut parent, "one");
    let folder = NodeFolder::at(place.file("one"));
    let pid = folder.running().expect("the folder is there").expect("it runs");
    kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("it runs");
    let again = parent.wait_for(|| (log(folder.path()).matches(" is ready on ").count() == 2).then_some(()));
    assert!(again.is_some(), "{}", log(folder.path()));
    // It asks its node to stop, and waits for it.
    parent.signal(Signal::TERM);
    parent.wait_for(|| None::<()>);
    assert_eq!(folder.running().expect("the folder is there"), None);
}

/// The copy is cut off, as by a full disk: the node would begin with the rest of it.
#[test]
fn a_damaged_copy_is_refused_and_replaced() {
    let place = Place::new();
    let management = place.management();
    let start = || {
        let (mut one, mut two) = (place.data("a", &["--node", "1"]), place.data("b", &["--node", "2"]));
        place.wait(&mut one, "a");
        place.wait(&mut two, "b");
        drop((one, two));
        for name in ["a", "b"] {
            fs::remove_file(place.file(name).join("vinga.address")).expect("it was killed");
        }
    };
    start();
    let copy = place.file("a").join("configuration.cached");
    let good = fs::read_to_string(&copy).expect("it was written");
    let rest = good.rfind("[ndb_mgmd]").expect("the file has that section");
    fs::write(&copy, &good[..rest]).expect("it is ours");
    drop(management);
    fs::remove_file(place.file("mgm/vinga.address")).expect("it was killed");
    let mgm = format!("127.0.0.1:{}", place.management_port);
    let (ok, text) = said(vinga().args(["data", "--mgm", &mgm, "--folder"]).arg(place.file("a")).output());
    assert!(!ok && text.contains("error 20055") && text.contains("another digest"), "{text}");
    let _management = place.management();
    start();
    assert_eq!(fs::read_to_string(&copy).expect("it was written"), good);
}

#[test]
fn what_is_no_management_node_is_named() {
    let place = Place::new();
    let free = format!("127.0.0.1:{}", place.management_port);
    let asked = |arguments: &[&str]| said(vinga().arg("data").args(arguments).output());
    let (ok, text) = asked(&["--mgm", &free]);
    assert!(
        !ok && text.contains("no management node answers") && text.contains("Connection refused"),
        "{text}"
    );
    let empty = place.file("empty");
    let (ok, text) = asked(&["--mgm", &free, "--folder", empty.to_str().expect("it is text")]);
    assert!(!ok && text.contains("there is no copy of an earlier configuration"), "{text}");
    let node = support::Node::start(&[]);
    let (ok, text) = asked(&["--mgm", &node.address]);
    assert!(!ok && text.contains("no configuration: 127.0.0.1:"), "{text}");
    let (ok, text) = asked(&["--mgm", "db1:x"]);
    assert!(!ok && text.contains("'db1:x': a port is a number"), "{text}");
    let (ok, text) = asked(&["--mgm", &free, "--config", "x"]);
    assert!(!ok && text.contains("--config"), "{text}");
}
