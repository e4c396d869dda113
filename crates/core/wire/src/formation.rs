//! Data nodes that start find each other, and begin together with the first view.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `NodeHelloRequest` | data node | data node | the first frame of a link: who I am, and which of our links this is |
//! | `NodeHelloConfirm` | data node | data node | and this is who I am |
//! | `NodeHelloRefuse` | data node | data node | not with me, with an error; the connection is closed after it |
//! | `NodesConnectedReport` | data node | the one with the lowest id | all links between me and these are open, no others |
//! | `FirstViewOrder` | the one with the lowest id | each other one | begin with this view |
//!
//! The protocol is described in `docs/protocols/formation.md`.

use crate::configuration::ConfigurationStamp;
use crate::frame::Frame;
use crate::handshake::MAGIC;
use crate::protocol::Protocol;
use crate::view::{ClusterView, Member};
use crate::{ErrorCode, cold};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use serde::{Deserialize, Serialize};
use vinga_base::{Incarnation, NodeId};

/// Checks that a greeting between nodes has this version of the protocol. Of one with another version only its
/// beginning can be relied on.
///
/// # Errors
/// The error to refuse it with, and details.
pub fn check_protocol(greeting: &Frame<'_>) -> Result<(), (ErrorCode, String)> {
    let bad = |detail: &str| (ErrorCode::BadHandshake, detail.to_string());
    let (magic, protocol) =
        cold::read::<(u64, Protocol)>(greeting).ok_or_else(|| bad("the greeting can't be read"))?;
    if magic != MAGIC {
        return Err(bad("the greeting is not Vinga's"));
    }
    Protocol::own().common(protocol).map(drop).map_err(|detail| (ErrorCode::WrongProtocol, detail))
}

/// Checks that two nodes are configured for the same cluster: by its name, and its data nodes with their node groups.
///
/// # Errors
/// The error to refuse the other one with, and details.
pub fn check_cluster(
    own: (&str, &[(NodeId, u16)]),
    other: (&str, &[(NodeId, u16)]),
) -> Result<(), (ErrorCode, String)> {
    if own.0 != other.0 {
        let detail = format!("this is cluster {:?}, the other node's is {:?}", own.0, other.0);
        return Err((ErrorCode::WrongCluster, detail));
    }
    if own.1 != other.1 {
        let (here, there) = (list(own.1), list(other.1));
        let detail = format!("data nodes (node groups) here: {here}, at the other node: {there}");
        return Err((ErrorCode::OtherConfiguration, detail));
    }
    Ok(())
}

/// Whether one of two lists of data nodes, with their node groups, is the other one and more: data nodes were added to
/// a configuration, and one of two nodes was not started since.
pub fn extends(one: &[(NodeId, u16)], other: &[(NodeId, u16)]) -> bool {
    let (few, many) = if one.len() < other.len() { (one, other) } else { (other, one) };
    few.len() < many.len() && few.iter().all(|node| many.contains(node))
}

/// Where a data node listens, as a configuration has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConfiguredPlace {
    /// The data node.
    pub node: NodeId,
    /// `HostName`.
    pub host: String,
    /// `ServerPort`.
    pub port: u16,
}

impl ConfiguredPlace {
    /// Whether both are one place. Names are compared as they are written: machines may resolve them differently.
    fn is_that_of(&self, other: &Self) -> bool {
        let address = |host: &str| host.parse::<IpAddr>().map(|address| address.to_canonical());
        let is_one_host = match (address(&self.host), address(&other.host)) {
            (Ok(one), Ok(other)) => one == other,
            _ => self.host.eq_ignore_ascii_case(&other.host),
        };
        is_one_host && (self.node, self.port) == (other.node, other.port)
    }
}

/// Checks that two data nodes are configured with the same data nodes at the same places: else a process that one of
/// them does not know of would be admitted as a data node that it knows. Each is given by its id and what it knows.
///
/// # Errors
/// The error to refuse the other one with, and details.
pub fn check_places(
    own: (NodeId, &[ConfiguredPlace]),
    other: (NodeId, &[ConfiguredPlace]),
) -> Result<(), (ErrorCode, String)> {
    let list = |places: &[ConfiguredPlace]| {
        let places =
            places.iter().map(|place| format!("{} at {}, port {}", place.node, place.host, place.port));
        places.collect::<Vec<String>>().join("; ")
    };
    let is_one = |(one, other): (&ConfiguredPlace, &ConfiguredPlace)| one.is_that_of(other);
    if own.1.len() != other.1.len() {
        let detail = format!(
            "by the configuration of data node {} data nodes are {}, by that of data node {} they are {}",
            own.0,
            list(own.1),
            other.0,
            list(other.1)
        );
        return Err((ErrorCode::OtherConfiguration, detail));
    }
    match own.1.iter().zip(other.1).find(|pair| !is_one(*pair)) {
        None => Ok(()),
        Some((here, there)) => {
            let detail = format!(
                "data node {} is at {}, port {}, by the configuration of data node {}, and data node {} is at {}, port {}, by \
                 that of data node {}",
                here.node, here.host, here.port, own.0, there.node, there.host, there.port, other.0
            );
            Err((ErrorCode::OtherConfiguration, detail))
        }
    }
}

fn list(data_nodes: &[(NodeId, u16)]) -> String {
    let nodes: Vec<String> = data_nodes.iter().map(|(node, group)| format!("{node} ({group})")).collect();
    nodes.join(", ")
}

/// Body of `NodeHelloRequest` and of `NodeHelloConfirm` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeHello {
    /// [`crate::handshake::MAGIC`].
    pub magic: u64,
    /// What the sender speaks.
    pub protocol: Protocol,
    /// The cluster's name.
    pub cluster: String,
    /// The data nodes that the sender is configured with, itself among them, in order of id, with their node groups.
    /// Both sides must know the same; but if one of both runs, one of them may know more.
    pub data_nodes: Vec<(NodeId, u16)>,
    /// `HeartbeatIntervalDbDb` in microseconds. Both sides must have the same: how long one may answer without the
    /// other, and how long that one waits before it goes on alone, are counted in it.
    pub heartbeat_interval: u64,
    /// The configuration that it was handed out. Nodes that begin together must have the same, if they were handed one.
    pub configuration: ConfigurationStamp,
    /// The sender.
    pub member: Member,
    /// Its process.
    pub process: ProcessIdentity,
    /// Which of the links between the two nodes this is, from 0.
    pub link: u16,
    /// Where all data nodes are, as the sender is configured, in order of id. Both sides must have the same of those
    /// that both know.
    pub places: Vec<ConfiguredPlace>,
    /// If the sender's threads run: the cluster that the other one joins.
    pub begun: Option<BegunCluster>,
}

/// Data nodes with their node groups, and where they are.
pub type Known = (Vec<(NodeId, u16)>, Vec<ConfiguredPlace>);

impl NodeHello {
    /// What the sender is configured with.
    pub fn known(&self) -> Known {
        (self.data_nodes.clone(), self.places.clone())
    }
}

/// A cluster that runs, as one of its members greets a data node that is to join.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BegunCluster {
    /// Random number of the cluster's incarnation, for greetings of API nodes.
    pub cluster_incarnation: u64,
    /// Random number of the database.
    pub database: u64,
    /// The members of the sender's view: which start of which node. None if it waits for its first view itself.
    pub members: Vec<(NodeId, Incarnation)>,
}

/// Which process of which machine, so that another process can tell whether it sees the same processes, and whether
/// this one has ended.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Random number of the start of the machine's system; empty if it is not known.
    pub boot: String,
    /// The namespace in which the process's id counts.
    pub namespace: u64,
    /// Its id there.
    pub process: u32,
    /// When it has started, in the system's ticks: ids are used again.
    pub started: u64,
}

impl ProcessIdentity {
    /// Whether both are on one machine, and see each other's ids.
    pub fn is_beside(&self, other: &Self) -> bool {
        !self.boot.is_empty() && (&self.boot, self.namespace) == (&other.boot, other.namespace)
    }
}

/// Body of `NodesConnectedReport` (cold): the sender and all that it is connected to, in order of id.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodesConnectedReport {
    /// Which start of which node.
    pub nodes: Vec<(NodeId, Incarnation)>,
}

/// Body of `FirstViewOrder` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FirstViewOrder {
    /// The first view.
    pub view: ClusterView,
    /// Random number of the cluster's incarnation, for greetings of API nodes.
    pub cluster_incarnation: u64,
    /// Random number of the database.
    pub database: u64,
}
