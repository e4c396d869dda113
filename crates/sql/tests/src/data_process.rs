//! A data node as a separate process: it can be killed, stopped temporarily, and restarted at the same address, without
//! data unless its parameters give it a folder (`DataDir`).

use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use vinga_rig::process::NodeProcess;

/// Maximum address space of the process in bytes: `DataMemory` is reserved completely.
const ADDRESS_SPACE: u64 = 3 << 30;

/// The first port that is tried: below the range from which the operating system takes client ports, so that no one
/// else takes the port while the node is down.
const PORT_FIRST: u16 = 20_000;
const PORTS: u32 = 10_000;
const PORT_TRIES: u32 = 5;

/// Parameters that make the node small.
const PARAMETERS: [(&str, &str); 3] =
    [("HostName", "127.0.0.1"), ("DataMemory", "64M"), ("SchedulerSpinTimer", "0")];

static STARTED: AtomicU32 = AtomicU32::new(0);

/// A data node process; it is killed when this is dropped.
pub struct DataProcess {
    program: PathBuf,
    parameters: Vec<String>,
    socket: PathBuf,
    port: u16,
    process: Option<NodeProcess>,
}

impl DataProcess {
    /// Starts a node, given the path of `data_node_of_test`, and parameters that override those that make it small.
    pub fn start(program: &str, parameters: &[(&str, &str)]) -> Self {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("vinga-process-{}-{number}.sock", std::process::id()));
        let is_given = |(name, _): &(&str, &str)| parameters.iter().any(|(given, _)| given == name);
        let all = PARAMETERS.iter().filter(|one| !is_given(one)).chain(parameters);
        let mut node = DataProcess {
            program: program.into(),
            parameters: all.map(|(name, value)| format!("{name}={value}")).collect(),
            socket,
            port: 0,
            process: None,
        };
        let begin = std::process::id().wrapping_mul(64).wrapping_add(number * 7);
        // Another process may take a free port first.
        let is_started = (0..PORT_TRIES).any(|at| {
            node.port = PORT_FIRST + (begin.wrapping_add(at) % PORTS) as u16;
            node.try_start()
        });
        assert!(is_started, "a data node starts");
        node
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The address at which clients on this machine reach it by shared memory.
    pub fn local_address(&self) -> String {
        format!("unix:{}", self.socket.display())
    }

    /// Whether the process runs.
    pub fn is_alive(&mut self) -> bool {
        self.process.as_mut().is_some_and(NodeProcess::is_alive)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.running().id()
    }

    fn running(&self) -> &NodeProcess {
        self.process.as_ref().expect("it runs")
    }

    /// Starts it at its address, with what is in its folder; kills a running process first.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.try_start(), "a data node starts again at {}", self.address());
    }

    fn try_start(&mut self) -> bool {
        let mut command = Command::new(&self.program);
        command.arg(&self.socket).args(&self.parameters).arg(format!("ServerPort={}", self.port));
        let mut process = NodeProcess::start(command.stdout(Stdio::piped()), Some(ADDRESS_SPACE));
        let is_started = process.announcement("") == Some(self.address());
        self.process = is_started.then_some(process);
        is_started
    }

    /// Kills it at once, like a power failure.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Requests it to stop, and waits until it has.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal(Signal::TERM);
            assert_eq!(process.end(), Some(0), "it stops without an error");
        }
    }

    /// Stops all its threads, but its connections stay open.
    pub fn silence(&self) {
        silence(self.running());
    }

    /// Lets it continue.
    pub fn wake(&self) {
        self.running().signal(Signal::CONT);
    }
}

/// Stops all threads of a process, but its connections stay open.
pub(crate) fn silence(process: &NodeProcess) {
    process.signal(Signal::STOP);
    // Its threads stop one after another.
    while process.threads().iter().any(|thread| thread.state != 'T') {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Drop for DataProcess {
    fn drop(&mut self) {
        self.kill();
        // A killed process leaves its socket behind.
        let _ = fs::remove_file(&self.socket);
    }
}
