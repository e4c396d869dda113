//! The first frames of a connection: who are you, can we speak, where is what.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `HelloRequest` | API node | data node's driver | greeting; must be the first frame, within the time limit |
//! | `HelloConfirm` | driver | API node | admitted: your node id, and how the cluster is laid out |
//! | `HelloRefuse` | driver | API node | not admitted, with an error; the connection is closed behind it |
//!
//! An API node opens its first connection with ticket 0. The confirm tells how many connections the node would like
//! from it (one for each thread that reads sockets, at most eight); each further one names its index and the ticket
//! of the first. A connection to index i is served by the i-th such thread, so that a frame sent to the owner of a row
//! needs no hop. If any connection of an API node breaks, all are closed. A greeting for an index that is still open
//! says that the API node has given that connection up, perhaps before the data node could see it break: the old ones
//! are all closed, and the greeting is refused with `ConnectionLost` and may be repeated.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The version of the protocol that this build speaks. A node refuses a peer that speaks another.
pub const PROTOCOL_VERSION: u16 = 3;

/// Begins every greeting, so that a stray client of another protocol is recognised.
pub const MAGIC: u64 = u64::from_le_bytes(*b"VINGA\r\n\0");

/// Connections between an API node and a data node, at most.
pub const CONNECTIONS_MAX: u16 = 8;

/// Body of `HelloRequest` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HelloRequest {
    /// [`MAGIC`].
    pub magic: u64,
    /// The version that the client speaks.
    pub version: u16,
    /// The cluster's name, empty for any.
    pub cluster: String,
    /// The node id that the client wants, 0 for any free one.
    pub node: u8,
    /// Incarnation of the API node: greater than any before, from its clock.
    pub incarnation: u32,
    /// Which of the API node's connections this is, from 0.
    pub connection: u16,
    /// 0 for a new API node; else what the first connection was given: adds a connection, or comes back after all of
    /// them have broken.
    pub ticket: u64,
}

/// Body of `HelloConfirm` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HelloConfirm {
    /// The version that will be spoken.
    pub version: u16,
    /// The data node's id.
    pub node: u8,
    /// Which start of the data node this is.
    pub incarnation: u32,
    /// Random number of the cluster's incarnation: another one means that nothing known of the cluster holds.
    pub cluster_incarnation: u64,
    /// The API node's id.
    pub api: u8,
    /// To be named by further connections of this API node.
    pub ticket: u64,
    /// What runs where.
    pub topology: Topology,
}

/// Where block instances sit, and which data managers own which partitions.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Topology {
    /// Version of this map.
    pub version: u32,
    /// The agreed membership that it belongs to.
    pub view: u32,
    /// Data nodes that are alive.
    pub nodes: Vec<NodeTopology>,
    /// For each partition its chain: node ids, primary first. The data manager's instance is the same on all of them.
    pub partitions: Vec<PartitionPlace>,
}

/// One data node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeTopology {
    /// Its id.
    pub node: u8,
    /// For each of its connections, the instances that are reached by it.
    pub connections: Vec<ConnectionTopology>,
    /// Data manager instances on the node.
    pub data_managers: u16,
    /// Coordinator instances on the node.
    pub coordinators: u16,
}

/// What is reached by one connection: the instances on the thread that serves it, and a share of those on threads that
/// serve none. Each instance of a node stands with one connection.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ConnectionTopology {
    /// Data manager instances.
    pub data_managers: Vec<u16>,
    /// Coordinator instances.
    pub coordinators: Vec<u16>,
}

/// One partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartitionPlace {
    /// Which data manager instance owns it, on each node of the chain.
    pub instance: u16,
    /// Node ids, primary first.
    pub chain: Vec<u8>,
}

/// Body of `HelloRefuse` and of every other cold refusal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// The client's tag of the refused request, 0 if it had none.
    pub request: u32,
    /// [`crate::ErrorCode`].
    pub code: u16,
    /// What exactly was wrong and what is allowed; may be empty.
    pub detail: String,
}
