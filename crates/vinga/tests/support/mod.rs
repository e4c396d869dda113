//! A real data node process for tests, and a client that can send arbitrary bytes.

pub mod folder;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use vinga_base::NodeId;
pub use vinga_bench::hostile::raw::greeting;
use vinga_wire::frame::Frame;
use vinga_wire::handshake::{HelloConfirm, Refusal};
use vinga_wire::view::Member;
use vinga_wire::{Address, BlockNumber, ErrorCode, FrameWriter, SignalNumber, cold};

/// How long a test waits for an expected event: no machine is so busy that it takes longer.
pub const HANG_GUARD: Duration = Duration::from_secs(180);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A running data node with its own folder; both are removed when this is dropped.
pub struct Node {
    child: Child,
    folder: PathBuf,
    pub address: String,
}

impl Node {
    /// Starts a node on a free port, with parameters as `NAME=VALUE`.
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
        command.args(&line[1..]).args(["data", "--port", "0", "--folder"]).arg(&folder);
        for parameter in parameters {
            command.args(["--set", parameter]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut child = command.spawn().expect("the binary is there");
        let address = loop {
            if let Ok(address) = fs::read_to_string(folder.join("vinga.address")) {
                break address.trim().to_owned();
            }
            let ended = child.try_wait().expect("our child");
            assert!(
                ended.is_none(),
                "the node has stopped: {}",
                fs::read_to_string(folder.join("vinga.log")).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(2));
        };
        Node { child, folder, address }
    }

    /// The address for clients on this machine, if it has one.
    pub fn local_address(&self) -> String {
        format!("unix:{}", self.folder.join("vinga.sock").display())
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal of the operating system.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).expect("our child");
    }

    /// Waits until it has ended; returns its exit code.
    pub fn end(&mut self) -> Option<i32> {
        self.child.wait().expect("our child").code()
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

    /// Its threads according to the operating system: id, name, CPUs.
    pub fn threads(&self) -> Vec<(u32, String, String)> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.id())).expect("our child");
        let mut threads: Vec<_> = tasks
            .flatten()
            .filter_map(|task| {
                let name = fs::read_to_string(task.path().join("comm")).ok()?;
                let status = fs::read_to_string(task.path().join("status")).ok()?;
                let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
                let id = task.file_name().to_str()?.parse().ok()?;
                Some((id, name.trim().to_owned(), cpus.trim().to_owned()))
            })
            .collect();
        threads.sort();
        threads
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("vinga.log")).unwrap_or_default()
    }

    /// Whether the process runs.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("our child").is_none()
    }

    /// The most memory that it has had so far, in bytes.
    pub fn memory_max(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("our child");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it is reported");
        let kib = line.trim().split(' ').next().and_then(|number| number.parse::<u64>().ok());
        kib.expect("a number of KiB") * 1024
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
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The node's last frame before it closed the connection.
pub enum Last {
    Refused(ErrorCode),
    Nothing,
}

/// Reads until the node closes the connection.
pub fn read_to_close(stream: &mut TcpStream) -> Last {
    let mut bytes = vec![];
    // A reset is a close, too.
    let _ = stream.read_to_end(&mut bytes);
    let mut last = Last::Nothing;
    let mut rest = bytes.as_slice();
    while let Ok(Some(frame)) = Frame::first(rest) {
        if frame.signal() == Some(SignalNumber::HelloRefuse) {
            let refusal: Refusal = cold::read(&frame).expect("the node sends whole signals");
            last = Last::Refused(ErrorCode::from_number(refusal.code).expect("a known error"));
        }
        rest = &rest[frame.length()..];
    }
    last
}

/// An admitted connection that can send arbitrary bytes.
pub struct Raw {
    pub stream: TcpStream,
    pub own: Address,
    pub node: NodeId,
    /// The placement of the blocks on the node.
    pub member: Member,
}

impl Raw {
    pub fn greet(node: &Node) -> Self {
        let mut stream = node.connect();
        stream.write_all(&greeting(|_| ())).expect("the node reads");
        let mut bytes = vec![];
        let mut piece = [0; 4096];
        loop {
            let n = stream.read(&mut piece).expect("the node answers");
            assert!(n > 0, "the node answers a greeting");
            bytes.extend_from_slice(&piece[..n]);
            if let Some(frame) = Frame::first(&bytes).expect("the node sends frames") {
                let confirm: HelloConfirm = cold::read(&frame).expect("a good greeting is confirmed");
                let own = Address::new(NodeId(confirm.api), BlockNumber::Api, 0);
                let member = confirm.view.members()[0].clone();
                return Raw { stream, own, node: NodeId(confirm.node), member };
            }
        }
    }

    pub fn send(
        &mut self,
        signal: SignalNumber,
        block: BlockNumber,
        body: impl FnOnce(&mut FrameWriter<'_>),
    ) {
        let to = Address::new(self.node, block, 0);
        let mut bytes = vec![];
        body(&mut FrameWriter::begin(&mut bytes, signal, 1, to, self.own, 0));
        self.stream.write_all(&bytes).expect("the node reads");
    }
}
