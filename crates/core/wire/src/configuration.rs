//! The configuration of a cluster, as a management node hands it out.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `ConfigurationRequest` | data node that starts, whoever looks whether it is alive | management node | the first frame of a connection: give me the configuration |
//! | `ConfigurationConfirm` | management node | whoever has asked | here it is, and that is who you are |
//! | `ConfigurationRefuse` | management node | whoever has asked | not for you, with an error; the connection is closed after it |
//! | `ClusterLogReport` | data node that has its configuration | management node | a line of my log |
//! | `ClusterLogTakenReport` | management node | data node | I have written so many lines of this connection |
//!
//! The protocol is described in `docs/protocols/configuration.md`.

use crate::handshake::{MAGIC, PROTOCOL_VERSION};
use alloc::string::String;
use serde::{Deserialize, Serialize};
use vinga_base::NodeId;

/// Bytes of a configuration that a management node hands out, at most: it is one frame.
pub const CONFIGURATION_BYTES_MAX: usize = 100_000;

/// Which configuration a node has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ConfigurationStamp {
    /// Its number at the management node that handed it out, which counts the changes of its file: from 1. 0: it was
    /// not handed out, the node has read a file of its own.
    pub generation: u64,
    /// A hash of its text. Management nodes count for themselves, so only this says whether two nodes have the same.
    pub digest: u64,
}

/// Who asks for the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ConfigurationReader {
    /// A data node with this id.
    DataNode(NodeId),
    /// A data node that is given an id by the address it comes from: one that is configured for that address, and that
    /// no open connection was given.
    AnyDataNode,
    /// Whoever looks whether the management node is alive: it is given no id.
    Onlooker,
}

impl ConfigurationReader {
    /// The id that it knows to have, or 0.
    pub fn node(self) -> NodeId {
        match self {
            ConfigurationReader::DataNode(node) => node,
            ConfigurationReader::AnyDataNode | ConfigurationReader::Onlooker => NodeId(0),
        }
    }
}

/// Body of `ConfigurationRequest` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConfigurationRequest {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`PROTOCOL_VERSION`].
    pub version: u16,
    /// Who asks.
    pub reader: ConfigurationReader,
    /// The name of its cluster, and the configuration with which it runs, if it has read one: a data node that reports.
    pub running: Option<RunningConfiguration>,
}

/// What a data node runs with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunningConfiguration {
    /// The cluster's name.
    pub cluster: String,
    /// Which configuration it was handed out.
    pub stamp: ConfigurationStamp,
}

impl ConfigurationRequest {
    /// One of this version, of whoever has no configuration yet.
    pub fn new(reader: ConfigurationReader) -> Self {
        ConfigurationRequest { magic: MAGIC, version: PROTOCOL_VERSION, reader, running: None }
    }
}

/// Body of `ConfigurationConfirm` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConfigurationConfirm {
    /// Which configuration it is.
    pub stamp: ConfigurationStamp,
    /// Who has asked: a data node's id; that of the management node itself for an onlooker.
    pub node: NodeId,
    /// The text of the configuration file.
    pub text: String,
}

/// Body of `ClusterLogReport` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterLogReport {
    /// The line, as the node's own log has it.
    pub line: String,
    /// How many lines before it are missing, as there were too many to wait.
    pub left_out: u64,
}

/// Body of `ClusterLogTakenReport` (cold).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterLogTakenReport {
    /// Lines that have come by this connection and were written, or given up because that failed: the data node needs
    /// not keep them.
    pub lines: u64,
}
