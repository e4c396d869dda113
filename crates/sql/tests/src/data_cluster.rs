//! Two data nodes with two replicas as separate processes, of which one can be killed or stand still, and a management
//! node in this process that decides between them.

use crate::data_process::silence;
use crate::eventually;
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use vinga::blocking::Cluster;
use vinga::{DataNode, NodeId, ShutdownTerms};
use vinga_config::ManagementConfiguration;
use vinga_config::file::ConfigFile;
use vinga_datanode::this_machine;
use vinga_kernel::InjectedBug;
use vinga_mgm::{ManagementNode, ManagementSettings};
use vinga_rig::process::NodeProcess;

/// How many data nodes there are.
pub const DATA_NODES: usize = 2;
/// Their ports, and that of the management node.
const PORTS_EACH: u32 = 3;
/// The first port that is tried: below those of `data_process`.
const PORT_FIRST: u32 = 10_000;
const PORTS: u32 = 10_000 - PORTS_EACH;
const TRIES: u32 = 5;
/// How long a data node may take to leave: no machine is so busy.
const LEAVE_MAX_MS: u32 = 180_000;
/// Maximum address space of a data node in bytes: `DataMemory` is reserved completely.
const ADDRESS_SPACE: u64 = 3 << 30;

static STARTED: AtomicU32 = AtomicU32::new(0);

/// The cluster; its processes are killed when this is dropped.
pub struct DataCluster {
    program: String,
    bug: Option<InjectedBug>,
    nodes: Vec<NodeProcess>,
    sockets: Vec<PathBuf>,
    first_port: u32,
    config: PathBuf,
    management: Option<ManagementNode>,
}

impl DataCluster {
    /// Starts the nodes, given the path of `data_node_of_test`, and parameters of all data nodes. They break this rule
    /// on purpose, in builds with injected bugs.
    ///
    /// # Panics
    /// If they don't start, on some ports.
    pub fn start(program: &str, parameters: &[(&str, &str)], bug: Option<InjectedBug>) -> Self {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let path = |end: &str| {
            std::env::temp_dir().join(format!("vinga-cluster-{}-{number}{end}", std::process::id()))
        };
        let mut cluster = DataCluster {
            program: program.to_owned(),
            bug,
            nodes: Vec::new(),
            sockets: (1..=DATA_NODES).map(|node| path(&format!("-{node}.sock"))).collect(),
            first_port: 0,
            config: path(".ini"),
            management: None,
        };
        let begin = std::process::id().wrapping_mul(64).wrapping_add(number * 13);
        // Another process may take a free port first.
        let is_started = (0..TRIES).any(|at| {
            cluster.first_port = PORT_FIRST + begin.wrapping_add(at * PORTS_EACH) % PORTS;
            cluster.try_start(parameters)
        });
        assert!(is_started, "data nodes start");
        cluster
    }

    fn try_start(&mut self, parameters: &[(&str, &str)]) -> bool {
        let text = self.configuration(parameters);
        fs::write(&self.config, &text).expect("a file can be written");
        let file = ConfigFile::parse(&self.config.to_string_lossy(), &text);
        let configuration = ManagementConfiguration::new(&file, None, &this_machine());
        let configuration = configuration.unwrap_or_else(|errors| panic!("{errors}"));
        let settings = ManagementSettings::of(&configuration, text, None).expect("they are good");
        let Ok(management) = ManagementNode::start(settings) else { return false };
        self.management = Some(management);
        self.nodes = (1..=DATA_NODES).map(|node| self.start_node(node)).collect();
        // They wait for each other, and end if they can't have their ports.
        let is_started = self.nodes.iter_mut().all(|node| node.announcement("").is_some());
        if !is_started {
            self.stop();
        }
        is_started
    }

    fn start_node(&self, node: usize) -> NodeProcess {
        let mut command = Command::new(&self.program);
        command.arg(&self.sockets[node - 1]).arg(format!("ConfigFile={}", self.config.display()));
        command.args(self.bug.map(|bug| format!("InjectedBug={}", bug.name())));
        command.arg(format!("NodeId={node}")).stdout(Stdio::piped());
        NodeProcess::start(&mut command, Some(ADDRESS_SPACE))
    }

    fn configuration(&self, parameters: &[(&str, &str)]) -> String {
        let mut text = String::from(
            "[ndbd default]\nNoOfReplicas=2\nDiskless=yes\nDataMemory=64M\nSchedulerSpinTimer=0\n\
             HostName=127.0.0.1\n",
        );
        for (name, value) in parameters {
            text += &format!("{name}={value}\n");
        }
        for node in 1..=DATA_NODES {
            text += &format!("[ndbd]\nNodeId={node}\nServerPort={}\n", self.port(node));
        }
        text + &format!("[ndb_mgmd]\nHostName=127.0.0.1\nPortNumber={}\n", self.first_port)
    }

    fn port(&self, node: usize) -> u32 {
        self.first_port + node as u32
    }

    /// The addresses of all data nodes by TCP.
    pub fn addresses(&self) -> String {
        (1..=DATA_NODES).map(|node| format!("127.0.0.1:{}", self.port(node))).collect::<Vec<_>>().join(",")
    }

    /// The addresses at which clients on this machine reach them by shared memory.
    pub fn local_addresses(&self) -> String {
        let sockets = self.sockets.iter().map(|socket| format!("unix:{}", socket.display()));
        sockets.collect::<Vec<_>>().join(",")
    }

    /// Kills a data node, numbered from 1, like a power failure.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node - 1].kill();
    }

    /// Restarts a data node, numbered from 1, as `vinga admin restart` does: it leaves, stops, is started again, and is
    /// a full member when this returns, with its share of the primaries.
    ///
    /// # Panics
    /// It does not leave, or does not come back.
    pub fn restart(&mut self, node: usize) {
        let cluster = Cluster::connect(&self.addresses()).expect("they answer");
        let terms = ShutdownTerms::Unnoticed { wait: LEAVE_MAX_MS };
        let has_left = cluster.restart(NodeId(node as u8), terms).expect("the other one can go on");
        assert!(has_left, "nothing holds it up for long");
        self.nodes[node - 1].end();
        self.nodes[node - 1] = self.start_node(node);
        assert!(self.nodes[node - 1].announcement("").is_some(), "it joins the other one");
        eventually("it has its share of the primaries", || {
            let nodes = cluster.data_node_states();
            nodes.len() == DATA_NODES && DataNode::are_balanced(&nodes)
        });
    }

    /// Stops all threads of a data node, but its connections stay open.
    pub fn silence(&self, node: usize) {
        silence(&self.nodes[node - 1]);
    }

    /// Lets it continue.
    pub fn wake(&self, node: usize) {
        self.nodes[node - 1].signal(Signal::CONT);
    }

    /// Whether the process of a data node runs.
    pub fn is_alive(&mut self, node: usize) -> bool {
        self.nodes[node - 1].is_alive()
    }

    fn stop(&mut self) {
        self.nodes.clear();
        if let Some(management) = self.management.take() {
            management.stop();
        }
    }
}

impl Drop for DataCluster {
    fn drop(&mut self) {
        self.stop();
        // A killed process leaves its socket behind.
        for file in self.sockets.iter().chain([&self.config]) {
            let _ = fs::remove_file(file);
        }
    }
}
