//! A cluster's folder as `vinga up` makes it.

use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use vinga_runtime::node_folder::NodeFolder;

/// Heartbeats of a cluster in which a node that stands still is left out: short enough to wait for that. Clients that
/// send none are not disconnected.
pub const BEATING: [&str; 6] = [
    "--set",
    "DataMemory=64M",
    "--set",
    "HeartbeatIntervalDbDb=1000",
    "--set",
    "HeartbeatIntervalDbApi=1000000",
];

/// Parameters of a small data node with small files.
pub const SMALL: [&str; 6] =
    ["--set", "DataMemory=64M", "--set", "NoOfFragmentLogFiles=3", "--set", "FragmentLogFileSize=4M"];

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A cluster's folder; the cluster is stopped and the folder removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        let unique = format!("vinga-line-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Folder(std::env::temp_dir().join(unique))
    }

    /// `vinga up` with a small data node, which has small files.
    pub fn up(&self, more: &[&str]) -> (bool, String) {
        said(self.command("up").args(SMALL).args(more).output())
    }

    /// A command on this cluster; further arguments go behind the folder. Data nodes that it starts stay down when they
    /// have ended.
    pub fn command(&self, what: &str) -> Command {
        let mut command = self.plain_command(what);
        if what == "up" {
            command.args(["--set", "StopOnError=yes"]);
        }
        command
    }

    /// The same, without anything else.
    pub fn plain_command(&self, what: &str) -> Command {
        let mut command = vinga();
        command.arg(what).arg("--folder").arg(&self.0);
        command
    }

    /// Runs a command on this cluster.
    pub fn run(&self, what: &str, more: &[&str]) -> (bool, String) {
        said(self.command(what).args(more).output())
    }

    /// The process id of the data node.
    pub fn pid(&self) -> Pid {
        let text = std::fs::read_to_string(self.0.join("node-1/vinga.pid")).expect("it was started");
        let pid = text.lines().next().and_then(|line| line.parse().ok()).expect("a number");
        Pid::from_raw(pid).expect("a process")
    }

    /// The addresses of these data nodes by TCP, as clients give them: with the cluster's key.
    pub fn addresses(&self, nodes: impl IntoIterator<Item = u8>) -> String {
        let address = |node| NodeFolder::new(&self.0, node).address().expect("it is ready");
        let addresses: Vec<String> = nodes.into_iter().map(address).collect();
        format!("key={},{}", self.0.join("cluster.key").display(), addresses.join(","))
    }

    /// Ends the data node as a power failure would.
    pub fn kill(&self) {
        kill_process(self.pid(), Signal::KILL).expect("it runs");
    }

    /// The port that the data node has announced.
    pub fn port(&self) -> String {
        port_in(&self.0)
    }
}

/// Lines of each log that are printed when a test has failed.
const LOG_LINES: usize = 80;

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = self.command("down").output();
        if std::thread::panicking() {
            for entry in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
                let folder = NodeFolder::at(entry.path());
                let log = std::fs::read_to_string(folder.log()).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let last = lines.len().saturating_sub(LOG_LINES);
                println!("{}:\n{}", folder.log().display(), lines[last..].join("\n"));
            }
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A data node that stands still, until this is dropped.
pub struct Suspended(Pid);

impl Suspended {
    /// Suspends a data node of a cluster's folder; returns when all its threads have stopped, one after the other.
    pub fn new(cluster: &Path, node: u8) -> Self {
        let pid = NodeFolder::new(cluster, node).running().expect("the folder is there").expect("it runs");
        let suspended = Suspended(Pid::from_raw(pid).expect("a process"));
        kill_process(suspended.0, Signal::STOP).expect("it runs");
        let runs = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).expect("it has not ended");
            let (_, behind_name) = stat.rsplit_once(") ").expect("a name in parentheses");
            !behind_name.starts_with('T')
        };
        let tasks = || std::fs::read_dir(format!("/proc/{pid}/task")).expect("it has not ended").flatten();
        while tasks().any(runs) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        suspended
    }

    /// Ends it as a power failure would.
    pub fn kill(self) {
        kill_process(self.0, Signal::KILL).expect("it has not ended");
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// The binary, without variables of the environment.
pub fn vinga() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vinga"));
    command.env_remove("VINGA_CONNECT").env_remove("VINGA_FOLDER");
    command
}

/// Whether a command succeeded, and all its output.
pub fn said(output: std::io::Result<Output>) -> (bool, String) {
    let output = output.expect("the binary runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Runs a command whose standard output has no reader; returns its exit code and its standard error.
pub fn unread(command: &mut Command) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().expect("there are pipes");
    drop(reader);
    let output = command.stdout(writer).stderr(Stdio::piped()).output().expect("the binary runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The port that a data node has announced.
pub fn port_in(folder: &Path) -> String {
    let address = std::fs::read_to_string(folder.join("node-1/vinga.address")).expect("it runs");
    address.trim().rsplit_once(':').expect("host:port").1.to_owned()
}
