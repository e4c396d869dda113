//! The key of a cluster: who is admitted with it, and without it.

use crate::support::Node;
use crate::support::folder::{Folder, SMALL, said, vinga};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use tempfile::TempDir;
use vinga::ErrorCode;
use vinga::blocking::Cluster;
use vinga_rig::raw::{greeting, hello, read_to_close};
use vinga_wire::SignalNumber;

/// A folder with keys.
struct Keys(TempDir);

impl Keys {
    fn new() -> Self {
        Keys(tempfile::tempdir().expect("a folder can be made"))
    }

    /// The file of a key with this name, made by the command.
    fn make(&self, name: &str) -> PathBuf {
        let path = self.0.path().join(name);
        let (ok, text) = said(vinga().arg("key").arg(&path).output());
        assert!(ok && text.contains("holds a new cluster key"), "{text}");
        path
    }
}

fn node_with(key: &Path) -> Node {
    Node::start(&[&format!("ClusterKeyFile={}", key.display())])
}

#[test]
fn a_folder_that_addresses_can_not_name_is_refused() {
    let place = tempfile::tempdir().expect("a folder can be made");
    for name in ["a,b", "c #d"] {
        for size in ["1", "2"] {
            let mut up = vinga();
            let folder = place.path().join(format!("{name} {size}"));
            up.arg("up").arg("--folder").arg(folder).args(["--data-nodes", size, "--port", "0"]);
            let (ok, text) = said(up.output());
            assert!(!ok && text.contains("may not have") && text.contains(name), "{text}");
        }
    }
}

#[test]
fn clients_prove_the_key_by_tcp() {
    let keys = Keys::new();
    let (key, other) = (keys.make("cluster.key"), keys.make("other.key"));
    let node = node_with(&key);
    let with = |file: &PathBuf| Cluster::connect(&format!("key={},{}", file.display(), node.address));
    let cluster = with(&key).expect("it has the key");
    assert!(cluster.tables().expect("it is admitted").is_empty());
    let refused = Cluster::connect(&node.address).err().expect("it has no key");
    assert_eq!(refused.code(), ErrorCode::KeyRequired, "{refused}");
    let refused = with(&other).err().expect("it has another key");
    assert_eq!(refused.code(), ErrorCode::WrongKey, "{refused}");
    assert!(refused.to_string().contains(&node.address), "{refused}");
    let refused = with(&keys.0.path().join("none")).err().expect("there is no such file");
    assert!(refused.to_string().contains("none, can't be read"), "{refused}");
    // The system knows who connects by the local socket.
    let local = Cluster::connect(&node.local_address()).expect("its user needs no key");
    assert!(local.tables().expect("it is admitted").is_empty());
    let log = node.log();
    assert!(!log.contains(fs::read_to_string(&key).expect("it is there").trim()), "a key is never logged");
}

/// Nothing but the refusal comes, whatever is sent first.
#[test]
fn nothing_is_answered_without_the_key() {
    let keys = Keys::new();
    let node = node_with(&keys.make("cluster.key"));
    for first in [greeting(&hello()), b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0; 64], vec![0xff; 64]] {
        let mut stream = node.connect();
        stream.write_all(&first).expect("the node reads it");
        let code = read_to_close(&mut stream);
        assert_eq!(code, Some(ErrorCode::KeyRequired), "{first:?}");
    }
    // Random bytes behind a good beginning do not get further, either.
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..200 {
        let mut frame: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(76).collect();
        frame[..4].copy_from_slice(&76u32.to_le_bytes());
        let number = if random.bool() { 270u16 } else { 273 };
        frame[4..6].copy_from_slice(&number.to_le_bytes());
        let mut stream = node.connect();
        stream.write_all(&frame).expect("the node reads it");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the node closes it");
        assert!(answer.len() > 6 && answer.len() < 200, "{answer:?}");
    }
    assert!(node.crash_report().is_empty());
}

#[test]
fn a_client_with_a_key_does_not_take_a_node_without_one() {
    let keys = Keys::new();
    let node = Node::start(&[]);
    let key = keys.make("cluster.key");
    let refused = Cluster::connect(&format!("key={},{}", key.display(), node.address)).err();
    let refused = refused.expect("the node can't prove a key").to_string();
    assert!(refused.contains("error 20033") && refused.contains("no cluster key at this node"), "{refused}");
    assert!(node.log().contains("every process of this machine is admitted"), "{}", node.log());
}

#[test]
fn bad_keys_are_refused_before_a_node_listens() {
    let keys = Keys::new();
    let key = keys.make("cluster.key");
    let (ok, text) = said(vinga().arg("key").arg(&key).output());
    assert!(!ok && text.contains("is there already: a key is never replaced"), "{text}");
    let data = |parameters: &[String]| {
        let mut command = vinga();
        command.args(["data", "--port", "0", "--set", "Diskless=yes"]);
        for parameter in parameters {
            command.args(["--set", parameter]);
        }
        said(command.output())
    };
    let file = |path: &PathBuf| format!("ClusterKeyFile={}", path.display());
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let (ok, text) = data(&[file(&key)]);
    assert!(!ok && text.contains("(mode 644): chmod 600"), "{text}");
    let (ok, text) = data(&[file(&keys.0.path().join("none"))]);
    assert!(!ok && text.contains("ClusterKeyFile") && text.contains("can't be read"), "{text}");
    let pipe = keys.0.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("it is new");
    let (ok, text) = data(&[file(&pipe)]);
    assert!(!ok && text.contains("20079") && text.contains("it is a named pipe"), "{text}");
    let address = format!("key={},127.0.0.1:1", pipe.display());
    let (ok, text) = admin_nodes(&address);
    assert!(!ok && text.contains("20079") && text.contains("it is a named pipe"), "{text}");
    let (ok, text) = data(&["HostName=0.0.0.0".to_string()]);
    assert!(
        !ok && text.contains("is reached by other machines") && text.contains("vinga key FILE"),
        "{text}"
    );
}

/// The addresses for clients that `vinga up` has printed.
fn printed_addresses(text: &str) -> &str {
    let line = text.lines().find_map(|line| line.strip_prefix("clients connect to "));
    line.unwrap_or_else(|| panic!("no addresses: {text}"))
}

#[test]
fn a_cluster_on_this_machine_has_a_key() {
    for size in [&[][..], &["--data-nodes", "2", "--replicas", "2"]] {
        let folder = Folder::new();
        let up = || said(folder.command("up").args(SMALL).args(["--port", "0"]).args(size).output());
        let (ok, text) = up();
        assert!(ok && !text.contains("no cluster key"), "{text}");
        let file = folder.0.join("cluster.key");
        let key = fs::read_to_string(&file).expect("it was made");
        assert_eq!(fs::metadata(&file).expect("it was made").permissions().mode() & 0o777, 0o600);
        let addresses = printed_addresses(&text);
        let cluster = Cluster::connect(addresses).expect("the printed addresses are enough");
        assert!(cluster.tables().expect("it is admitted").is_empty());
        let (named, bare) = addresses.split_once(',').expect("the key stands first");
        assert_eq!(named.strip_prefix("key=").map(Path::new), file.canonicalize().ok().as_deref());
        let refused = Cluster::connect(bare).err().expect("it has no key");
        assert_eq!(refused.code(), ErrorCode::KeyRequired, "{refused}");
        // Without the socket commands find it, too.
        for node in 1..=if size.is_empty() { 1 } else { 2 } {
            fs::remove_file(folder.0.join(format!("node-{node}/vinga.sock"))).expect("it is there");
        }
        let (ok, text) = folder.run("status", &[]);
        assert!(ok && text.contains("running"), "{text}");
        let (ok, text) = said(vinga().args(["admin", "nodes", "--folder"]).arg(&folder.0).output());
        assert!(ok && text.contains(bare.split(',').next().expect("there is one")), "{text}");
        assert!(folder.run("down", &[]).0);
        let (ok, text) = up();
        assert!(ok, "{text}");
        assert_eq!(fs::read_to_string(&file).expect("it stays"), key);
        Cluster::connect(printed_addresses(&text)).expect("it is the same key");
    }
}

/// `config.ini` names the key by an absolute path.
#[test]
fn a_folder_that_was_moved_names_the_key_that_is_meant() {
    let (folder, place) = (Folder::new(), tempfile::tempdir().expect("a folder can be made"));
    let up = |at: &Path| {
        let mut command = vinga();
        said(command.args(["up", "--folder"]).arg(at).args(["--set", "DataMemory=64M"]).output())
    };
    let size = ["--data-nodes", "2", "--replicas", "2"];
    let (ok, text) = said(folder.command("up").args(SMALL).args(["--port", "0"]).args(size).output());
    assert!(ok && folder.run("down", &[]).0, "{text}");
    let old = folder.0.canonicalize().expect("it is there").join("cluster.key");
    let moved = place.path().canonicalize().expect("it is there").join("moved");
    fs::rename(&folder.0, &moved).expect("it is ours");
    let (ok, text) = up(&moved);
    for part in [Path::new("20079"), &old, &moved.join("cluster.key"), &moved.join("config.ini")] {
        assert!(!ok && text.contains(&part.display().to_string()), "{part:?}: {text}");
    }
    // As the error says.
    let configuration = fs::read_to_string(moved.join("config.ini")).expect("it is there");
    let configuration =
        configuration.replace(&old.display().to_string(), &moved.join("cluster.key").display().to_string());
    fs::write(moved.join("config.ini"), configuration).expect("it is ours");
    let (ok, text) = up(&moved);
    assert!(ok, "{text}");
    let (ok, text) = said(vinga().args(["down", "--folder"]).arg(&moved).output());
    assert!(ok, "{text}");
}

/// Data nodes and management nodes of which some have the key refuse each other.
#[test]
fn a_key_of_some_nodes_is_refused_and_that_nobody_arbitrates_is_said() {
    let folder = Folder::new();
    let up = |more: &[&str]| folder.up(&[&["--data-nodes", "2", "--replicas", "2"], more].concat());
    let (ok, text) = up(&["--port", "0"]);
    assert!(ok && text.contains("the management node decides"), "{text}");
    assert!(folder.run("down", &[]).0);
    let file = folder.0.join("config.ini");
    let written = fs::read_to_string(&file).expect("it is there");
    let is_key = |line: &&str| line.starts_with("ClusterKeyFile=");
    let key = written.lines().find(is_key).expect("it has one");
    fs::write(&file, written.replacen(&format!("{key}\n"), "", 1)).expect("it is ours");
    let (ok, text) = up(&[]);
    assert!(
        !ok && text.contains("data node 1 has no ClusterKeyFile, and management node 3 has one"),
        "{text}"
    );
    // By the command line it is a key of data nodes only.
    fs::write(&file, written.replace(&format!("{key}\n"), "")).expect("it is ours");
    let (ok, text) = up(&["--set", key]);
    assert!(ok && text.contains("nobody decides which data nodes go on"), "{text}");
    assert!(!text.contains("the management node decides"), "{text}");
}

#[test]
fn a_key_that_the_configuration_names_is_taken() {
    let keys = Keys::new();
    let named = format!("ClusterKeyFile={}", keys.make("own.key").display());
    let folder = Folder::new();
    let (ok, text) = folder.up(&["--port", "0", "--set", &named]);
    assert!(ok && printed_addresses(&text).contains("/own.key,127.0.0.1:"), "{text}");
    assert!(!folder.0.join("cluster.key").exists());
    Cluster::connect(printed_addresses(&text)).expect("it is the key");
}

/// A process without the key, between two ends that have it: passes on whatever is said.
struct Relay {
    address: SocketAddr,
    /// The signal that each connection's listener has answered first, once it has said anything.
    answers: Arc<Mutex<Vec<u16>>>,
}

impl Relay {
    /// One that listens there, and connects to `to` for each connection.
    fn new(listen: &str, to: &str) -> Self {
        let listener = TcpListener::bind(listen).expect("nobody listens there");
        let address = listener.local_addr().expect("it is bound");
        let (answers, to) = (Arc::<Mutex<Vec<u16>>>::default(), to.to_owned());
        let noted = answers.clone();
        // It ends with the test's process.
        thread::spawn(move || {
            for connected in listener.incoming().flatten() {
                let Ok(listening) = TcpStream::connect(&to) else { continue };
                let copy = |stream: &TcpStream| stream.try_clone().expect("there are descriptors");
                let (from, into) = (copy(&connected), copy(&listening));
                thread::spawn(move || pass_on(from, into, |_| ()));
                let noted = noted.clone();
                thread::spawn(move || {
                    let note = |answer: &[u8]| {
                        let number = answer.get(4..6).expect("frames come whole");
                        noted.lock().expect("nobody panics").push(u16::from_le_bytes([number[0], number[1]]));
                    };
                    pass_on(listening, connected, note);
                });
            }
        });
        Relay { address, answers }
    }

    /// What was answered since the last call.
    fn answers(&self) -> Vec<u16> {
        std::mem::take(&mut self.answers.lock().expect("nobody panics"))
    }
}

/// Passes on what comes, until one end closes; `first` sees what comes first.
fn pass_on(mut from: TcpStream, mut into: TcpStream, first: impl FnOnce(&[u8])) {
    let mut buffer = [0; 4096];
    let mut first = Some(first);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if let Some(first) = first.take() {
            first(&buffer[..count]);
        }
        if into.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = into.shutdown(Shutdown::Write);
}

/// What an admin command says by these addresses.
fn admin_nodes(addresses: &str) -> (bool, String) {
    said(vinga().args(["admin", "--connect", addresses, "nodes"]).output())
}

const REFUSED: u16 = SignalNumber::KeyChallengeRefuse as u16;

/// A data node that asks where a management node should be has nothing proven to it by another data node: otherwise
/// whoever relays that would have a connection to it.
#[test]
fn a_proof_for_a_management_node_opens_no_data_node() {
    let keys = Keys::new();
    let key = keys.make("cluster.key");
    let node = node_with(&key);
    let relay = Relay::new("127.0.0.1:0", &node.address);
    let addresses = format!("key={},{}", key.display(), relay.address);
    let folder = keys.0.path().join("asking");
    let (ok, text) = said(vinga().args(["data", "--mgm", &addresses, "--folder"]).arg(&folder).output());
    assert!(!ok && text.contains("20078") && text.contains("wants a management node"), "{text}");
    assert!(!text.contains("relays the connection"), "nobody knows whether somebody does: {text}");
    assert_eq!(relay.answers(), [REFUSED]);
    assert!(node.log().contains("20078"), "{}", node.log());
}

#[test]
fn a_proof_is_for_the_address_that_was_dialled() {
    let keys = Keys::new();
    let key = keys.make("cluster.key");
    let node = node_with(&key);
    let (_, port) = node.address.rsplit_once(':').expect("host:port");
    // Another port of the address, and the same port of another address.
    for listen in ["127.0.0.1:0".to_string(), format!("127.0.0.2:{port}")] {
        let relay = Relay::new(&listen, &node.address);
        let (ok, text) = admin_nodes(&format!("key={},{}", key.display(), relay.address));
        assert!(!ok && text.contains("20078") && text.contains("another address"), "{text}");
        let answers = relay.answers();
        assert!(!answers.is_empty() && answers.iter().all(|&answer| answer == REFUSED), "{answers:?}");
        // Whoever knows of the relay may take it.
        let (ok, text) = admin_nodes(&format!("relayed-key={},{}", key.display(), relay.address));
        assert!(ok, "{text}");
        assert!(relay.answers().contains(&(SignalNumber::KeyChallengeConfirm as u16)));
    }
    let (ok, text) = admin_nodes(&format!("key={},{}", key.display(), node.address));
    assert!(ok, "{text}");
}

/// A command that has another key than the cluster: nobody is said not to run, or to be no member.
#[test]
fn what_can_not_be_asked_is_said_to_be_so() {
    let (folder, keys) = (Folder::new(), Keys::new());
    let size = ["--data-nodes", "2", "--replicas", "2", "--port", "0"];
    let (ok, text) = folder.up(&size);
    assert!(ok, "{text}");
    fs::rename(keys.make("other.key"), folder.0.join("cluster.key")).expect("both are ours");
    let shown = |what: &str| -> serde_json::Value {
        let output = folder.command("admin").args([what, "--json"]).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("it says JSON")
    };
    // The data nodes are asked by their sockets, and say who arbitrates; the management node has none.
    let show = shown("show");
    assert!(show["management_nodes"][0]["answers"].is_null(), "{show}");
    assert!(show["management_nodes"][0]["why"].as_str().is_some_and(|why| why.contains("20033")), "{show}");
    let state = show["arbitration"]["state"].as_str().expect("a text");
    assert!(["arbitrates", "unknown"].contains(&state), "{show}");
    let (ok, text) = folder.run("admin", &["show"]);
    assert!(ok && text.contains(", can't be asked: ") && !text.contains("does not answer"), "{text}");
    let (ok, text) = folder.run("admin", &["clusterlog"]);
    assert!(ok && text.contains("management node 3 gives no answer: ") && text.contains("20033"), "{text}");
    assert!(text.contains("the lines are from the folder of management node 3"), "{text}");

    // Without the sockets nobody says who is a member.
    for node in ["node-1", "node-2"] {
        fs::remove_file(folder.0.join(node).join("vinga.sock")).expect("it is there");
    }
    let all = shown("status");
    for row in all.as_array().expect("rows") {
        assert_eq!(row["state"], "unknown", "{all}");
        assert!(row["why"].as_str().is_some_and(|why| why.contains("20033")), "{all}");
    }
    let (ok, text) = folder.run("admin", &["status"]);
    assert!(ok && text.contains("data node 1 can't be asked: ") && !text.contains("no member"), "{text}");
    let (ok, text) = folder.run("status", &[]);
    let lines = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    assert!(!ok && lines("  can't be asked  ") == 3 && !text.contains("not answer"), "{text}");
    assert_eq!(lines(" can't be asked: "), 3, "{text}");
    assert_eq!(
        lines("20033 (Usage): The two ends of the connection do not have the same cluster key"),
        3,
        "{text}"
    );
    let (ok, text) = folder.up(&size);
    assert!(!ok && text.contains("but can't be asked: ") && !text.contains("not answer"), "{text}");
}
