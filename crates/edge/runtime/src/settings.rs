//! The settings that a node gets when it starts.

use crate::files::FileSettings;
use crate::peers::Peers;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::InjectedBug;
use vinga_key::ClusterKey;
use vinga_wire::BlockNumber;
use vinga_wire::configuration::ConfigurationStamp;
use vinga_wire::formation::ConfiguredPlace;
use vinga_wire::handshake::CONNECTIONS_MAX;
use vinga_wire::view::ClusterView;

/// Everything that a node process needs to know before its first thread starts.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// This data node's id.
    pub node: NodeId,
    /// The number of this start of the node.
    pub incarnation: Incarnation,
    /// The number of the cluster's incarnation, for greetings.
    pub cluster_incarnation: u64,
    /// The database's random number, for greetings.
    pub database: u64,
    /// The cluster's name: a client that names another one is refused.
    pub cluster: String,
    /// The cluster's key, which all that connect by TCP have to prove; without one everybody is admitted.
    pub key: Option<Arc<ClusterKey>>,
    /// Where to listen for API nodes; port 0 for any free one.
    pub listen: SocketAddr,
    /// Where to listen for clients on this machine: the path of a Unix socket, which replaces an existing one.
    pub listen_locally: Option<PathBuf>,
    /// The group whose users may connect there, beside the node's own user and root (`LocalConnectionsGroup`).
    pub local_group: Option<u32>,
    /// The threads that run turns. The first [`CONNECTIONS_MAX`] that own sockets serve connections of API nodes.
    pub threads: Vec<ThreadSettings>,
    /// The plan of the threads that run no turns: the one that accepts connections and the watchdog. Only CPUs,
    /// priority and real-time priority matter to them.
    pub helpers: ThreadSettings,
    /// Where the node's files are, and the plan of the threads that read and write them.
    pub files: FileSettings,
    /// For each block instance of the node the index of its thread, instances of one block in the order of their
    /// numbers. `Membership` must be among them.
    pub instances: Vec<(BlockNumber, u16)>,
    /// The view that the threads begin in. If there are other data nodes: what is known before all of them are
    /// connected, that is, this node.
    pub view: Arc<ClusterView>,
    /// The other data nodes of the cluster, as they are configured.
    pub others: Vec<OtherDataNode>,
    /// Where all data nodes are, this one among them, as they are configured, in order of id; the same for all.
    pub places: Vec<ConfiguredPlace>,
    /// The management nodes that arbitrate between data nodes, those first that are to be asked first.
    pub arbitrators: Vec<OtherManagementNode>,
    /// How long an arbitrator's answer is awaited (`ArbitrationTimeout`).
    pub arbitration_timeout: Duration,
    /// How often data nodes send each other heartbeats (`HeartbeatIntervalDbDb`); the same for all.
    pub heartbeat_interval: Duration,
    /// Which configuration a management node has handed out; the default if none has.
    pub configuration: ConfigurationStamp,
    /// Seeds the generators of the threads.
    pub seed: u64,
    /// Bounds.
    pub limits: Limits,
    /// Whether the blocks report when the node is started (`NodeStartedOrder`), because they restore what is on its
    /// disk first; clients are let in afterwards. And whether they are asked to bring everything to disk when the node
    /// stops.
    pub has_disk: bool,
    /// Set before the first thread starts: whether the node joins a cluster that runs. Then, too, the blocks report
    /// when it is started, and its first epoch is not its own: it learns the cluster's.
    pub joins: Arc<AtomicBool>,
    /// The mark of a first start: this file is removed, on the disk too, when the node is started.
    pub first_start: Option<PathBuf>,
    /// The file that says how far the start is (`start_progress`).
    pub start_progress: Option<PathBuf>,
    /// Where the addresses of the node and its clients are recorded, for queries.
    pub peers: Arc<Peers>,
    /// The rule that the node breaks on purpose, to show that a test notices; only in builds with injected bugs.
    pub bug: Option<InjectedBug>,
}

/// Another data node, as the configuration describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtherDataNode {
    /// Its id.
    pub node: NodeId,
    /// Its node group.
    pub group: u16,
    /// Where it listens, for API nodes and for data nodes.
    pub address: SocketAddr,
    /// The buffers of the links to it, at this end.
    pub buffers: LinkBuffers,
}

/// Sizes of the buffers that the system has for a link, in bytes; 0: the system chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkBuffers {
    /// For what is sent.
    pub send: u32,
    /// For what is received.
    pub receive: u32,
}

/// A management node, as the configuration describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtherManagementNode {
    /// Its id.
    pub node: NodeId,
    /// Where it listens.
    pub address: SocketAddr,
}

/// How one thread runs.
#[derive(Clone, Debug, Default)]
pub struct ThreadSettings {
    /// Its name, as the log and the operating system show it (which shows 15 bytes).
    pub name: String,
    /// The CPUs that it may run on; empty for all that the process may use.
    pub cpus: Vec<u16>,
    /// Whether it runs at real-time priority.
    pub realtime: bool,
    /// A priority from 0 to 10, or that of an ordinary thread.
    pub priority: Option<u8>,
    /// Microseconds for which it polls before it sleeps, as long as that pays.
    pub spin_micros: u32,
    /// Whether it owns connections, that is, reads them.
    pub owns_sockets: bool,
    /// Whether it writes to sockets. A thread that owns connections then writes them itself; one that owns none is a
    /// *send thread*, which writes the connections of owners that do not.
    pub sends: bool,
}

/// Bounds on what a node takes from peers, and how long it waits for them.
#[derive(Clone, Debug)]
pub struct Limits {
    /// A connection's requests are not read while more than these bytes of answers wait for it, or while more than
    /// these wait on the way to another thread of the node.
    pub pause_bytes: usize,
    /// Blocks refuse new work of a client for which more than these bytes wait.
    pub congestion_bytes: usize,
    /// A connection for which more than these bytes wait for longer than a second or two is closed, and at once if it
    /// is four times as much (`SendBufferMemory`).
    pub send_buffer_bytes: usize,
    /// A connection that takes none of the waiting bytes for this long is closed.
    pub slow_reader: Duration,
    /// Connections that have not been admitted yet, at most.
    pub greetings_max: usize,
    /// How long a connection may take for its greeting.
    pub greeting: Duration,
    /// A thread without progress for this long is reported; after three times as long the node stops
    /// (`TimeBetweenWatchDogCheck`).
    pub watchdog: Duration,
    /// How long a stopping node continues to send what waits.
    pub last_sending: Duration,
    /// How long a stopping node waits until everything is on its disk. When that has gone by, it ends by force.
    pub disk_patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            pause_bytes: 256 * 1024,
            // The answers to one slice of requests, all for long rows, fit in between.
            congestion_bytes: 8 * 1024 * 1024,
            send_buffer_bytes: 32 * 1024 * 1024,
            slow_reader: Duration::from_secs(5),
            greetings_max: 512,
            greeting: Duration::from_secs(3),
            watchdog: Duration::from_secs(6),
            last_sending: Duration::from_secs(1),
            disk_patience: Duration::from_secs(20),
        }
    }
}

impl ProcessSettings {
    /// All data nodes with their node groups, in order of id.
    pub fn data_nodes(&self) -> Vec<(NodeId, u16)> {
        let own = self.view.member(self.node).expect("a node knows itself");
        let others = self.others.iter().map(|other| (other.node, other.group));
        let mut all: Vec<_> = others.chain([(own.node, own.group)]).collect();
        all.sort_unstable();
        all
    }

    /// The threads that serve connections: connection i of an API node belongs to the i-th of them.
    pub fn socket_threads(&self) -> Vec<u16> {
        let owners = (0u16..).zip(&self.threads).filter(|(_, plan)| plan.owns_sockets);
        owners.map(|(index, _)| index).take(usize::from(CONNECTIONS_MAX)).collect()
    }

    /// Whether this thread writes connections that others own.
    pub fn is_send_thread(&self, thread: u16) -> bool {
        let plan = &self.threads[usize::from(thread)];
        plan.sends && !plan.owns_sockets
    }

    /// The send threads that write the connections of `owner`; none if it writes them itself or owns none. They take
    /// turns by node id: the connection of API node n is written by the one at n modulo their number. Each owner begins
    /// with another one, so that the connections of one API node are spread, too.
    pub fn senders_for(&self, owner: u16) -> Vec<u16> {
        let plan = &self.threads[usize::from(owner)];
        if plan.sends || !plan.owns_sockets {
            return Vec::new();
        }
        let mut senders: Vec<u16> =
            (0..self.threads.len() as u16).filter(|&thread| self.is_send_thread(thread)).collect();
        let place = self.socket_threads().iter().position(|&thread| thread == owner).unwrap_or(0);
        let turn = place % senders.len().max(1);
        senders.rotate_left(turn);
        senders
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_wire::view::connection_of;

    #[test]
    fn send_threads_share_the_connections_of_those_who_do_not_write() {
        let plan = |owns_sockets, sends| ThreadSettings { owns_sockets, sends, ..ThreadSettings::default() };
        let settings = ProcessSettings {
            node: NodeId(1),
            incarnation: Incarnation(1),
            cluster_incarnation: 1,
            database: 1,
            cluster: String::new(),
            key: None,
            listen: "127.0.0.1:0".parse().unwrap(),
            listen_locally: None,
            local_group: None,
            threads: vec![
                plan(true, false),
                plan(true, true),
                plan(false, true),
                plan(true, false),
                plan(false, true),
                plan(false, false),
                plan(false, true),
            ],
            helpers: ThreadSettings::default(),
            files: FileSettings::default(),
            instances: Vec::new(),
            view: Arc::default(),
            seed: 1,
            limits: Limits::default(),
            has_disk: false,
            joins: Arc::default(),
            first_start: None,
            start_progress: None,
            others: Vec::new(),
            places: Vec::new(),
            arbitrators: Vec::new(),
            arbitration_timeout: Duration::ZERO,
            heartbeat_interval: Duration::ZERO,
            configuration: ConfigurationStamp::default(),
            peers: Arc::default(),
            bug: None,
        };
        assert_eq!(settings.socket_threads(), [0, 1, 3]);
        let connections: Vec<usize> = (0..7).map(|thread| connection_of(thread, &[0, 1, 3])).collect();
        assert_eq!(connections, [0, 1, 2, 2, 1, 2, 0]);
        assert_eq!(settings.senders_for(0), [2, 4, 6]);
        assert_eq!(settings.senders_for(1), []);
        assert_eq!(settings.senders_for(3), [6, 2, 4]);
        assert_eq!(settings.senders_for(5), []);
        assert!(settings.is_send_thread(4) && !settings.is_send_thread(5));
    }
}
