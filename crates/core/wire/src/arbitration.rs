//! Data nodes and the arbitrator, which a management node is.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `ArbitratorHelloRequest` | data node | arbitrator | the first frame of a connection: cluster, data nodes, who I am |
//! | `ArbitratorHelloConfirm` | arbitrator | data node | I arbitrate for that cluster |
//! | `ArbitratorHelloRefuse` | arbitrator | data node | I do not, with an error; the connection is closed after it |
//! | `ArbitrationBeginRequest` | the data node that makes the first view | arbitrator | hold this ticket, and no other |
//! | `ArbitrationBeginConfirm` / `…Refuse` | arbitrator | data node | I hold it / I do not, and why |
//! | `ArbitratorCheckRequest` | agreement, by the driver | arbitrator | do you hold this ticket? |
//! | `ArbitratorCheckConfirm` / `…Refuse` | arbitrator, by the driver | agreement | I do / nobody who has answered does |
//! | `ArbitratorChooseRequest` | agreement | driver | have one of the arbitrators take another ticket |
//! | `ArbitratorChooseConfirm` / `…Refuse` | driver | agreement | this one has / none has, and why |
//! | `ArbitratorTakeRequest` | driver | arbitrator | hold this ticket of a cluster that runs, and no other |
//! | `ArbitratorTakeConfirm` / `…Refuse` | arbitrator | driver | I hold it / I do not, and why |
//!
//! `ArbitrationRequest` and its answers, the same that the block of the data node exchanges with its driver, are in
//! [`crate::agreement`]. The protocols are described in `docs/protocols/agreement.md` and `arbitrators.md` there.

use crate::formation::{check_cluster, check_protocol, extends};
use crate::frame::Frame;
use crate::protocol::Protocol;
use crate::{ErrorCode, cold};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use vinga_base::{Incarnation, NodeId, ViewNumber};

/// Body of `ArbitratorHelloRequest` and of `ArbitratorHelloConfirm` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArbitratorHello {
    /// [`crate::handshake::MAGIC`].
    pub magic: u64,
    /// What the sender speaks.
    pub protocol: Protocol,
    /// The cluster's name.
    pub cluster: String,
    /// The data nodes that the sender is configured with, in order of id, with their node groups. Both sides must know
    /// the same, but that one of them may know more: data nodes were added to its configuration.
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
        let is_extended = extends(&own.data_nodes, &hello.data_nodes);
        let theirs = if is_extended { &own.data_nodes } else { &hello.data_nodes };
        check_cluster((&own.cluster, &own.data_nodes), (&hello.cluster, theirs))?;
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

/// Body of `ArbitratorCheckRequest` (cold).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArbitratorCheckRequest {
    /// The requester's number.
    pub request: u32,
    /// The ticket that is looked for.
    pub ticket: u64,
}

/// Body of `ArbitratorCheckConfirm` (cold).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArbitratorCheckConfirm {
    /// From the request.
    pub request: u32,
    /// The one that holds the ticket.
    pub arbitrator: NodeId,
}

/// Body of `ArbitratorCheckRefuse` and of `ArbitratorChooseRefuse` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NoArbitrator {
    /// From the request.
    pub request: u32,
    /// Why there is none, for people.
    pub reason: String,
}

/// Body of `ArbitratorChooseRequest` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArbitratorChooseRequest {
    /// The requester's number.
    pub request: u32,
    /// The view that is to get another ticket.
    pub view: ViewNumber,
    /// The ticket that counts at present: whoever holds it need not take another one.
    pub before: u64,
    /// The members of the view.
    pub members: Vec<NodeId>,
}

/// Body of `ArbitratorChooseConfirm` (cold).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArbitratorChooseConfirm {
    /// From the request.
    pub request: u32,
    /// The one that holds the next ticket.
    pub arbitrator: NodeId,
    /// The next ticket: a random number, which nobody else has got.
    pub ticket: u64,
}

/// Body of `ArbitratorTakeRequest` (cold): a cluster that runs has chosen another arbitrator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArbitratorTakeRequest {
    /// Random number of the cluster's incarnation.
    pub cluster_incarnation: u64,
    /// The view that is to get another ticket.
    pub view: ViewNumber,
    /// The number of the request for which it is to be taken. An earlier view or request counts no more when a later
    /// one has come.
    pub request: u32,
    /// The ticket that counts at present: whoever holds it takes no other one.
    pub before: u64,
    /// The next ticket: a random number, which no other arbitrator has got.
    pub ticket: u64,
    /// The members of the view.
    pub members: Vec<NodeId>,
}

/// Body of `ArbitratorTakeConfirm` (cold).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArbitratorTakeConfirm {
    /// From the request.
    pub ticket: u64,
}

/// Body of `ArbitratorTakeRefuse` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArbitratorTakeRefuse {
    /// Why not, for people.
    pub reason: String,
}
