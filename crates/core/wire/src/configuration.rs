//! The configuration of a cluster, as a management node hands it out.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `ConfigurationRequest` | data node that starts, whoever looks whether it is alive | management node | the first frame of a connection: give me the configuration |
//! | `ConfigurationConfirm` | management node | whoever has asked | here it is, and that is who you are |
//! | `ConfigurationRefuse` | management node | whoever has asked | not for you, with an error; the connection is closed after it |
//! | `ClusterLogReport` | data node that has its configuration | management node | a line of my log |
//! | `ClusterLogTakenReport` | management node | data node | I have written so many lines of this connection |
//! | `ClusterLogRequest` | whoever looks | management node | the first frame of a connection, or a later one: lines of the cluster's log |
//! | `ClusterLogConfirm` | management node | whoever looks | here they are |
//! | `ClusterLogRefuse` | management node | whoever looks | there are none, with an error; the connection is closed after it |
//!
//! The protocol is described in `docs/protocols/configuration.md`.

use crate::handshake::MAGIC;
use crate::protocol::Protocol;
use alloc::string::String;
use alloc::vec::Vec;
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
    /// What the sender speaks.
    pub protocol: Protocol,
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
        ConfigurationRequest { magic: MAGIC, protocol: Protocol::own(), reader, running: None }
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
    /// The incarnation of the cluster that the management node arbitrates for: it has taken the ticket of its first
    /// view since it was started. `None` if it arbitrates for none.
    pub arbitrates_for: Option<u64>,
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

/// How serious a line of a log is, the most serious first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum LogSeverity {
    /// A node can't do what it should.
    Error,
    /// Somebody should know.
    Warning,
    /// What happens.
    Info,
    /// What happens, in detail.
    Debug,
}

impl LogSeverity {
    /// All of them.
    pub const ALL: [LogSeverity; 4] =
        [LogSeverity::Error, LogSeverity::Warning, LogSeverity::Info, LogSeverity::Debug];

    /// The word in a log's lines.
    pub fn name(self) -> &'static str {
        match self {
            LogSeverity::Error => "error",
            LogSeverity::Warning => "warning",
            LogSeverity::Info => "info",
            LogSeverity::Debug => "debug",
        }
    }

    /// The one with this word.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.name() == name)
    }
}

/// Which lines of the cluster's log are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterLogFilter {
    /// At least as serious as this.
    pub severity: LogSeverity,
    /// Of these data nodes; empty: of all.
    pub nodes: Vec<NodeId>,
    /// Of this source, in any case of letters: `formation`, `sockets`; of a block by its name: `Membership`.
    pub category: Option<String>,
}

/// Has a management node write lines of some severities into the log of the cluster from now on, or not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterLogSwitch {
    /// Which severities.
    pub severities: Vec<LogSeverity>,
    /// Whether their lines are written.
    pub is_on: bool,
}

/// Body of `ClusterLogRequest` (cold). The log is a sequence of bytes that have positions as long as the management
/// node runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterLogRequest {
    /// [`MAGIC`].
    pub magic: u64,
    /// What the sender speaks.
    pub protocol: Protocol,
    /// No line that begins before this position.
    pub from: u64,
    /// Only lines that begin before this position; [`u64::MAX`] for the end.
    pub until: u64,
    /// The newest of them, so many at most.
    pub lines_max: u32,
    /// Which lines count.
    pub filter: ClusterLogFilter,
    /// What is to be changed before lines are read.
    pub switch: Option<ClusterLogSwitch>,
}

impl ClusterLogRequest {
    /// One of this version.
    pub fn new(from: u64, until: u64, lines_max: u32, filter: ClusterLogFilter) -> Self {
        ClusterLogRequest {
            magic: MAGIC,
            protocol: Protocol::own(),
            from,
            until,
            lines_max,
            filter,
            switch: None,
        }
    }

    /// One of this version, for no lines.
    pub fn of_severities(switch: Option<ClusterLogSwitch>) -> Self {
        let filter = ClusterLogFilter { severity: LogSeverity::Error, nodes: Vec::new(), category: None };
        ClusterLogRequest { switch, ..ClusterLogRequest::new(u64::MAX, u64::MAX, 0, filter) }
    }
}

/// Body of `ClusterLogConfirm` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClusterLogConfirm {
    /// The lines, the oldest first.
    pub lines: Vec<String>,
    /// Where the first of them begins: more may be before it. `None` if there are none that were asked for.
    pub more_until: Option<u64>,
    /// The position behind the last line of the log, or `until`.
    pub end: u64,
    /// The severities whose lines are written, as long as the management node runs.
    pub written: Vec<LogSeverity>,
}
