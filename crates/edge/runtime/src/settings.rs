//! What a node is told when it starts.

use std::net::SocketAddr;
use std::time::Duration;
use vinga_base::{Incarnation, NodeId};
use vinga_wire::BlockNumber;
use vinga_wire::handshake::CONNECTIONS_MAX;

/// Everything that a node process needs to know before its first thread starts.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// This data node's id.
    pub node: NodeId,
    /// Which start of the node this is.
    pub incarnation: Incarnation,
    /// The number of the cluster's incarnation, for greetings.
    pub cluster_incarnation: u64,
    /// The cluster's name: a client that names another one is refused.
    pub cluster: String,
    /// Where to listen for API nodes; port 0 for any free one.
    pub listen: SocketAddr,
    /// The threads that run turns. The first [`CONNECTIONS_MAX`] that own sockets serve connections of API nodes.
    pub threads: Vec<ThreadPlan>,
    /// How the threads run that do not: the one that accepts connections and the watchdog. Only CPUs, priority and
    /// real-time priority matter to them.
    pub helpers: ThreadPlan,
    /// For each block instance of the node the index of its thread, instances of one block in the order of their
    /// numbers. `Membership` must be among them.
    pub instances: Vec<(BlockNumber, u16)>,
    /// Seeds the generators of the threads.
    pub seed: u64,
    /// Bounds.
    pub limits: Limits,
}

/// How one thread runs.
#[derive(Clone, Debug, Default)]
pub struct ThreadPlan {
    /// Its name, as the log and the operating system show it (which shows 15 bytes).
    pub name: String,
    /// The CPUs that it may run on; empty for all that the process may use.
    pub cpus: Vec<u16>,
    /// Whether it runs at real-time priority.
    pub realtime: bool,
    /// A priority from 0 to 10, or that of an ordinary thread.
    pub priority: Option<u8>,
    /// Microseconds for which it polls before it sleeps, while that pays.
    pub spin_micros: u32,
    /// Whether it may serve connections.
    pub owns_sockets: bool,
}

/// Bounds on what a node takes from strangers, and how long it waits for them.
#[derive(Clone, Debug)]
pub struct Limits {
    /// A connection's requests are not read while more than these bytes of answers wait for it, or while more than
    /// these wait on the way to another thread of the node.
    pub pause_bytes: usize,
    /// Blocks refuse new work for whom more than these bytes wait.
    pub congestion_bytes: usize,
    /// A connection for which more than these bytes wait for longer than a second or two is closed, and at once if it
    /// is four times as much (`SendBufferMemory`).
    pub send_buffer_bytes: usize,
    /// A connection that takes none of what waits for it for so long is closed.
    pub slow_reader: Duration,
    /// Connections that have not been admitted yet, at most.
    pub greetings_max: usize,
    /// How long a connection may take for its greeting.
    pub greeting: Duration,
    /// A thread without progress for so long is reported, after three times as long the node stops
    /// (`TimeBetweenWatchDogCheck`).
    pub watchdog: Duration,
    /// How long a stopping node goes on sending what waits.
    pub farewell: Duration,
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
            farewell: Duration::from_secs(1),
        }
    }
}

impl NodeSettings {
    /// The threads that serve connections: connection i of an API node belongs to the i-th of them.
    pub fn socket_threads(&self) -> Vec<u16> {
        let owners = (0u16..).zip(&self.threads).filter(|(_, plan)| plan.owns_sockets);
        owners.map(|(index, _)| index).take(usize::from(CONNECTIONS_MAX)).collect()
    }
}
