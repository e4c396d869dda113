//! A real data node process for tests, and a client that can send arbitrary bytes.

pub mod backups;
pub mod bank;
pub mod durable;
pub mod folder;
pub mod image;
pub mod loads;
pub mod power;

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use vinga_rig::process::NodeProcess;
use vinga_rig::raw::{RawClient, hello};

/// How long a test waits for an expected event: no machine is so busy that it takes longer.
pub const HANG_GUARD: Duration = Duration::from_secs(180);

/// A number from the environment, for random tests.
///
/// # Panics
/// It is no number.
pub fn number(name: &str, default: u64) -> u64 {
    let number = |text: String| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}"));
    std::env::var(name).map_or(default, number)
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A running data node with its own folder; both are removed when this is dropped.
pub struct Node {
    pub process: NodeProcess,
    folder: PathBuf,
    pub address: String,
}

impl Node {
    /// Starts a node on a free port that keeps nothing on disk, with parameters as `NAME=VALUE`.
    pub fn start(parameters: &[&str]) -> Self {
        Self::start_by(&[], parameters)
    }

    /// Like [`Node::start`], by a program and its arguments that are put before the node's command line.
    pub fn start_by(before: &[&str], parameters: &[&str]) -> Self {
        let unique = format!("vinga-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(unique);
        fs::create_dir_all(&folder).expect("a folder can be made");
        let log = fs::File::create(folder.join("vinga.log")).expect("a file can be made");
        let line = [before, &[env!("CARGO_BIN_EXE_vinga")]].concat();
        let mut command = Command::new(line[0]);
        command
            .args(&line[1..])
            .args(["data", "--port", "0", "--set", "Diskless=yes", "--folder"])
            .arg(&folder);
        for parameter in parameters {
            command.args(["--set", parameter]);
        }
        let mut process = NodeProcess::start(command.stdout(Stdio::null()).stderr(log), None);
        let address = process.wait_for(|| fs::read_to_string(folder.join("vinga.address")).ok());
        let mut node = Node { process, folder, address: String::new() };
        node.address =
            address.unwrap_or_else(|| panic!("the node has stopped: {}", node.log())).trim().to_owned();
        node
    }

    /// The address for clients on this machine, if it has one.
    pub fn local_address(&self) -> String {
        format!("unix:{}", self.folder.join("vinga.sock").display())
    }

    /// Its crash reports.
    pub fn crash_report(&self) -> String {
        fs::read_to_string(self.folder.join("crash.txt")).unwrap_or_default()
    }

    /// The output of `vinga admin` about it, in JSON.
    pub fn admin(&self, what: &str) -> serde_json::Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vinga"));
        let output = command.args(["admin", "--connect", &self.address, "--json", what]).output();
        let output = output.expect("the binary is there");
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("it says JSON")
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("vinga.log")).unwrap_or_default()
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("the node listens");
        stream.set_read_timeout(Some(HANG_GUARD)).expect("a time-out can be set");
        stream
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the node's log:\n{}\nits crash reports:\n{}", self.log(), self.crash_report());
        }
        self.process.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A client over TCP.
pub type Raw = RawClient<TcpStream>;

/// An admitted connection that can send arbitrary bytes.
pub fn greet(node: &Node) -> Raw {
    Raw::greet(node.connect(), &hello()).expect("a good greeting is confirmed")
}
