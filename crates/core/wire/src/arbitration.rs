//! Data nodes and the arbitrator, which a management node is.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `ArbitratorHelloRequest` | data node | arbitrator | the first frame of a connection: cluster, data nodes, who I am |
//! | `ArbitratorHelloConfirm` | arbitrator | data node | I arbitrate for that cluster |
//! | `ArbitratorHelloRefuse` | arbitrator | data node | I do not, with an error; the connection is closed after it |
//! | `ArbitrationBeginRequest` | the data node that makes the first view | arbitrator | hold this ticket, and no other |
//! | `ArbitrationBeginConfirm` / `…Refuse` | arbitrator | data node | I hold it / I do not, and why |
//!
//! `ArbitrationRequest` and its answers, the same that the block of the data node exchanges with its driver, are in
//! [`crate::agreement`]. The protocol is described in `docs/protocols/agreement.md`.

use crate::formation::{check_cluster, check_protocol};
use crate::frame::Frame;
use crate::{ErrorCode, cold};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use vinga_base::{Incarnation, NodeId};

/// Body of `ArbitratorHelloRequest` and of `ArbitratorHelloConfirm` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArbitratorHello {
    /// [`crate::handshake::MAGIC`].
    pub magic: u64,
    /// [`crate::handshake::PROTOCOL_VERSION`].
    pub version: u16,
    /// The cluster's name.
    pub cluster: String,
    /// The data nodes that the sender is configured with, in order of id, with their node groups. Both sides must know
    /// the same.
    pub data_nodes: Vec<(NodeId, u16)>,
    /// The sender.
    pub node: NodeId,
}

impl ArbitratorHello {
    /// Reads a greeting, and checks that it comes from a node of the same cluster.
    ///
    /// # Errors
    /// The error to refuse it with, and details.
    pub fn read(frame: &Frame<'_>, own: &Self) -> Result<Self, (ErrorCode, String)> {
        check_protocol(frame)?;
        let hello: Self = cold::read(frame)
            .ok_or_else(|| (ErrorCode::BadHandshake, "the greeting can't be read".to_string()))?;
        check_cluster((&own.cluster, &own.data_nodes), (&hello.cluster, &hello.data_nodes))?;
        Ok(hello)
    }
}

/// Body of `ArbitrationBeginRequest` (cold): a cluster begins. What the arbitrator held for an earlier one is
/// forgotten.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArbitrationBeginRequest {
    /// Random number of the cluster's incarnation.
    pub cluster_incarnation: u64,
    /// How often this incarnation has asked an arbitrator before: an earlier request counts no more when a later one
    /// has come.
    pub attempt: u32,
    /// The ticket of the first view: a random number, which no other arbitrator has got.
    pub ticket: u64,
    /// The members of the first view.
    pub members: Vec<(NodeId, Incarnation)>,
}

/// Body of `ArbitrationBeginConfirm` (cold).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArbitrationBeginConfirm {
    /// From the request.
    pub ticket: u64,
}

/// Body of `ArbitrationBeginRefuse` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArbitrationBeginRefuse {
    /// Why not, for people.
    pub reason: String,
}
