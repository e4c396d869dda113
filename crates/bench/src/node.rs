//! The data node that is measured: one that runs already, or one that is started for the purpose.
//!
//! A node that is started here has its own folder, a port that the system chooses, and limits ([`crate::process`]).
//! When it is ready it writes its address into the file `vinga.address` of its folder.

use crate::failure::{Context, Failure, Result};
use crate::process::{Output, Process, Program};
use rustix::process::Signal;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long a node may take to become ready.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// Time between checks whether it is ready.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);
/// Address space besides `DataMemory`: pools, buffers, stacks, the program.
const OTHER_MEMORY_BYTES: u64 = 4 << 30;
/// How long a node that stops in order may take to bring everything to disk.
const STOP_PATIENCE: Duration = Duration::from_secs(60);
/// How long a measured node may run.
const RUN_MAX: Duration = Duration::from_secs(1800);

/// How to start a node.
#[derive(Clone, Debug)]
pub struct NodeProgram {
    /// The binary `vinga`.
    pub program: PathBuf,
    /// Its folder, whose contents are removed by [`NodeProgram::start`].
    pub folder: PathBuf,
    /// Bytes of `DataMemory`; `None` for the node's default.
    pub data_memory: Option<u64>,
    /// More parameters, each as `NAME=VALUE`.
    pub parameters: Vec<String>,
    /// What it is in a cluster; `None` if it is the only node.
    pub member: Option<Member>,
}

/// A node of a cluster.
#[derive(Clone, Debug)]
pub struct Member {
    /// The file that describes the cluster.
    pub file: PathBuf,
    /// Its node id there.
    pub id: u8,
    /// Whether it is a data node or a management node.
    pub kind: MemberKind,
}

/// The kinds of nodes of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberKind {
    /// It has rows. The parameters of [`NodeProgram`] are its.
    Data,
    /// It arbitrates between data nodes. It has no parameters but those of the file.
    Management,
}

/// A node that is not ready yet. It ends when this is dropped.
#[derive(Debug)]
pub struct StartingNode {
    process: Process,
    folder: PathBuf,
    begun: Instant,
}

/// A node that was started. It ends when this is dropped.
#[derive(Debug)]
pub struct Node {
    process: Process,
    folder: PathBuf,
    address: String,
    ready_after: Duration,
}

impl NodeProgram {
    /// The same node in a folder of its own, beside that of this one.
    #[must_use]
    pub fn beside(&self, name: &str) -> Self {
        let own = self.folder.file_name().unwrap_or_default().to_string_lossy();
        NodeProgram { folder: self.folder.with_file_name(format!("{own}-{name}")), ..self.clone() }
    }

    /// Starts a node in an empty folder and waits until it is ready.
    ///
    /// # Errors
    /// It can't be started, or ends, with the end of its log.
    pub fn start(&self) -> Result<Node> {
        self.begin()?.wait()
    }

    /// Begins to start a node in an empty folder. The thread that does must not end before the node: that ends with it.
    ///
    /// # Errors
    /// It can't be started.
    pub fn begin(&self) -> Result<StartingNode> {
        let folder = &self.folder;
        if folder.exists() {
            fs::remove_dir_all(folder).context(|| format!("cannot empty {}", folder.display()))?;
        }
        self.begin_again()
    }

    /// Starts a node in its folder as it is, with what an earlier one has left on disk, and waits until it is ready.
    ///
    /// # Errors
    /// As for [`NodeProgram::start`].
    pub fn start_again(&self) -> Result<Node> {
        self.begin_again()?.wait()
    }

    fn begin_again(&self) -> Result<StartingNode> {
        let folder = &self.folder;
        fs::create_dir_all(folder).context(|| format!("cannot make {}", folder.display()))?;
        let address = folder.join("vinga.address");
        // One that was killed has left it there.
        if address.exists() {
            fs::remove_file(&address).context(|| format!("cannot remove {}", address.display()))?;
        }
        let log = folder.join("vinga.log");
        let output = OpenOptions::new().create(true).append(true).open(&log);
        let output = output.context(|| format!("cannot write {}", log.display()))?;
        let begun = Instant::now();
        let process = self.program().start(Output::File(output))?;
        Ok(StartingNode { process, folder: folder.clone(), begun })
    }

    fn program(&self) -> Program {
        let kind = self.member.as_ref().map_or(MemberKind::Data, |member| member.kind);
        let (command, name) = match kind {
            MemberKind::Data => ("data", "the data node"),
            MemberKind::Management => ("mgm", "the management node"),
        };
        let mut arguments: Vec<OsString> = vec![command.into()];
        match &self.member {
            None => arguments.extend(["--port", "0"].map(OsString::from)),
            Some(Member { file, id, .. }) => {
                arguments.extend([
                    "--config".into(),
                    file.clone().into(),
                    "--node".into(),
                    id.to_string().into(),
                ]);
            }
        }
        arguments.extend(["--folder".into(), self.folder.clone().into()]);
        if kind == MemberKind::Data {
            self.add_parameters(&mut arguments);
        }
        // By default a node has a quarter of the machine's memory.
        let given = self.given("DataMemory").and_then(bytes);
        let data_memory =
            given.or(self.data_memory).unwrap_or_else(|| crate::machine::Machine::here().memory_bytes / 4);
        Program {
            name,
            path: self.program.clone(),
            arguments,
            memory_bytes_max: data_memory + OTHER_MEMORY_BYTES,
            run_max: RUN_MAX,
        }
    }

    /// The value that was given for this parameter, if one was; letter case, `-` and `_` do not count in its name.
    fn given(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find_map(|given| {
            let (given, value) = given.split_once('=')?;
            let letters: String = given.chars().filter(char::is_ascii_alphabetic).collect();
            letters.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    fn add_parameters(&self, arguments: &mut Vec<OsString>) {
        if let Some(bytes) = self.data_memory.filter(|_| self.given("DataMemory").is_none()) {
            arguments.extend(["--set".into(), format!("DataMemory={bytes}").into()]);
        }
        // Figures are compared with those of nodes that kept nothing on disk; who wants others says so.
        if self.given("Diskless").is_none() {
            arguments.extend(["--set".into(), "Diskless=yes".into()]);
        }
        for parameter in &self.parameters {
            arguments.extend(["--set".into(), parameter.into()]);
        }
    }
}

impl StartingNode {
    /// Waits until it is ready.
    ///
    /// # Errors
    /// It ends, with the end of its log.
    pub fn wait(self) -> Result<Node> {
        let StartingNode { mut process, folder, begun } = self;
        while begun.elapsed() < START_PATIENCE {
            // The node renames the file to this name when it is complete.
            if let Ok(text) = fs::read_to_string(folder.join("vinga.address")) {
                let (ready_after, address) = (begun.elapsed(), text.trim().to_owned());
                return Ok(Node { process, folder, address, ready_after });
            }
            if let Some(status) = process.ended()? {
                let tail = tail(&folder.join("vinga.log"), 20);
                return Err(Failure::new(format!("{} has stopped ({status}):\n{tail}", process.name())));
            }
            thread::sleep(LOOK_INTERVAL);
        }
        Err(Failure::new(format!("{} is not ready after {} s", process.name(), START_PATIENCE.as_secs())))
    }
}

/// Bytes as a configuration has them; `None` if this is no such number, which the node reports.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffixes = ["", "K", "M", "G", "T"];
    let power = suffixes.iter().position(|suffix| text[digits.len()..].eq_ignore_ascii_case(suffix))?;
    digits.parse::<u64>().ok()?.checked_mul(1 << (10 * power))
}

impl Node {
    /// `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The best address for clients on this machine: its local socket, if it has one.
    pub fn nearest_address(&self) -> String {
        match self.folder.join("vinga.sock").canonicalize() {
            Ok(socket) => format!("unix:{}", socket.display()),
            Err(_) => self.address.clone(),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The time from before the process was made until it was ready.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sends it a signal, and does not wait for the effect.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Waits until it has ended by itself, with this exit code. Its folder stays for [`NodeProgram::start_again`].
    ///
    /// # Errors
    /// It does not end, or with another code.
    pub fn await_end(self, code: u8) -> Result<()> {
        self.process.await_end(code, STOP_PATIENCE)
    }

    /// Kills it, as a crash would, also if it stands still. Its folder stays for [`NodeProgram::start_again`].
    ///
    /// # Errors
    /// It can't be killed.
    pub fn kill(self) -> Result<()> {
        self.process.kill()
    }

    /// Stops it, so that everything is on disk. Its folder stays for [`NodeProgram::start_again`].
    ///
    /// # Errors
    /// It does not stop, or says that it could not bring everything to disk.
    pub fn stop_in_order(self) -> Result<()> {
        self.process.end_in_order(STOP_PATIENCE)
    }

    /// Stops it and removes its folder. One that is only dropped leaves its folder: something went wrong, and the log
    /// is in it.
    ///
    /// # Errors
    /// It does not stop.
    pub fn stop(self) -> Result<()> {
        self.process.end()?;
        let folder = self.folder;
        fs::remove_dir_all(&folder).context(|| format!("cannot remove {}", folder.display()))
    }
}

/// The last lines of a file.
fn tail(path: &Path, lines: usize) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_node_has_no_disk_unless_that_is_asked_for() {
        let arguments = |parameters: &[&str]| {
            let parameters = parameters.iter().map(|&parameter| parameter.to_owned()).collect();
            let place = PathBuf::from("/nowhere");
            let node = NodeProgram {
                program: place.clone(),
                folder: place,
                data_memory: None,
                parameters,
                member: None,
            };
            let arguments = node.program().arguments;
            arguments.into_iter().map(|argument| argument.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert!(arguments(&["MaxNoOfTables=9"]).contains(&"Diskless=yes".to_owned()));
        for (given, expected) in [(&[][..], "DataMemory=7"), (&["data-memory=1G"], "data-memory=1G")] {
            let node = NodeProgram {
                program: "vinga".into(),
                folder: "folder".into(),
                data_memory: Some(7),
                parameters: given.iter().map(|&parameter| parameter.to_owned()).collect(),
                member: None,
            };
            let program = node.program();
            let sets =
                program.arguments.iter().filter(|argument| argument.to_string_lossy().contains("emory"));
            assert_eq!(sets.collect::<Vec<_>>(), [expected]);
            let bytes = if given.is_empty() { 7 } else { 1 << 30 };
            assert_eq!(program.memory_bytes_max, bytes + OTHER_MEMORY_BYTES);
        }
        let durable = arguments(&["disk-less=0"]);
        assert!(!durable.contains(&"Diskless=yes".to_owned()), "{durable:?}");
    }

    #[test]
    fn nodes_of_a_cluster_are_started_by_its_file() {
        let arguments = |kind| {
            let node = NodeProgram {
                program: "vinga".into(),
                folder: "folder".into(),
                data_memory: Some(7),
                parameters: vec!["MaxNoOfTables=9".into()],
                member: Some(Member { file: "config.ini".into(), id: 3, kind }),
            };
            let arguments = node.program().arguments;
            arguments.join(std::ffi::OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(
            arguments(MemberKind::Data),
            "data --config config.ini --node 3 --folder folder --set DataMemory=7 --set Diskless=yes \
             --set MaxNoOfTables=9"
        );
        assert_eq!(arguments(MemberKind::Management), "mgm --config config.ini --node 3 --folder folder");
    }

    /// A substitute for the binary: a shell script that does what a node does for a starter.
    fn stand_in(name: &str, script: &str) -> NodeProgram {
        use std::os::unix::fs::PermissionsExt;
        let place = std::env::temp_dir().join(format!("vinga-bench-{name}-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let program = place.join("vinga");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        NodeProgram {
            program,
            folder: place.join("node"),
            data_memory: Some(1 << 26),
            parameters: Vec::new(),
            member: None,
        }
    }

    #[test]
    fn a_node_is_ready_when_it_says_where_it_is() {
        let script = "test \"$1 $2 $3 $4\" = 'data --port 0 --folder' || exit 1\n\
                      test \"$6 $7\" = '--set DataMemory=67108864' || exit 2\n\
                      echo 127.0.0.1:4711 > \"$5/new\"; mv \"$5/new\" \"$5/vinga.address\"; sleep 20";
        let program = stand_in("ready", script);
        let node = program.start().unwrap();
        assert_eq!(node.address(), "127.0.0.1:4711");
        assert!(node.ready_after() < Duration::from_secs(10));
        node.stop().unwrap();
        assert!(!program.folder.exists());
        fs::remove_dir_all(program.program.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_node_is_killed_and_started_again_in_its_folder() {
        let script = "echo started >> \"$5/count\"; test -e \"$5/vinga.address\" && exit 3\n\
                      echo 127.0.0.1:1 > \"$5/new\"; mv \"$5/new\" \"$5/vinga.address\"; exec sleep 20";
        let program = stand_in("again", script);
        program.start().unwrap().kill().unwrap();
        let node = program.start_again().unwrap();
        let count = fs::read_to_string(node.folder().join("count")).unwrap();
        assert_eq!(count, "started\nstarted\n");
        assert!(node.stop_in_order().is_err(), "sleep does not end in order");
        program.start().unwrap().stop().unwrap();
        fs::remove_dir_all(program.program.parent().unwrap()).unwrap();
    }

    #[test]
    fn one_that_stops_says_why() {
        let program = stand_in("stops", "echo no memory; exit 7");
        let failure = program.start().unwrap_err().to_string();
        assert!(failure.contains("no memory") && failure.contains('7'), "{failure}");
        fs::remove_dir_all(program.program.parent().unwrap()).unwrap();
    }
}
