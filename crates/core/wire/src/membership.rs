//! API nodes connect, disconnect and fail.
//!
//! The *host* is the membership of the data node that serves a connection; the *registrar* is that of the president.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `ApiConnectRequest` | driver | host | a greeting has arrived: may this API node connect? |
//! | `ApiConnectConfirm` / `…Refuse` | host | driver | yes, with this node id / no, with an error |
//! | `ApiAdmissionRequest`, `…Confirm`, `…Refuse` | host, registrar | registrar, host | the same |
//! | `ApiSessionRequest` / `…Confirm` | registrar / host | host / registrar | notify your blocks of a session's stage / all have confirmed |
//! | `ApiConnectedOrder` | host | coordinators, data managers, dictionary, info | this incarnation of the API node is admitted, for the first time or again |
//! | `ApiConnectedConfirm` | the same | host | what comes from it will be accepted here |
//! | `ApiDisconnectedReport` | driver | host | a connection of the API node broke, all are closed now |
//! | `ApiConnectionsClosedReport` | host | registrar | all connections to this data node are closed |
//! | `ApiDisconnectOrder` | registrar | host | close all connections of this session |
//! | `ApiConnectionClosedOrder` | host | coordinators, data managers, dictionary, info | end what depends on it |
//! | `ApiConnectionClosedConfirm` | the same | host | everything received from it is finished |
//! | `ApiFailedOrder` | host | the same | this incarnation of the API node has ended and will not reconnect |
//! | `ApiFailedConfirm` | the same | host | nothing of it is left here |
//! | `HeartbeatRequest` / `…Confirm` | API node / host | | both are alive; carries epoch and view |
//! | `DisconnectOrder` | API node | host | disconnect notice: the session ends, nobody will ask for outcomes |
//! | `ApiLeavingReport` | host | registrar | the same |
//! | `CloseConnectionOrder` | any block | driver | this API node broke the rules: close it, log the reason |
//! | the same | driver | host | an order of a block for which this thread has no connection |
//! | `ApiUnwantedReport` | host | registrar | the same about this session, if the data node has none either |
//! | `ApiNodesRequest` / `…Confirm` | the next registrar / host | | what do you know of all sessions? |
//!
//! Blocks accept nothing of an API node before they are notified that it is admitted, nor of another incarnation than
//! the one that is. Its connections are confirmed when all of them are.
//!
//! When a connection breaks, all connections of that API node are closed, then every block is notified
//! (`ApiConnectionClosedOrder` travels behind the last frames that were read), and accepts nothing more until it is
//! admitted again. Coordinators roll back transactions
//! whose commit has not been requested and finish the rest; scans and reads are closed. When all have confirmed, the
//! same incarnation may connect again within the grace time and ask for the outcomes of its transactions: outcomes are
//! kept for this purpose. If it does not, the incarnation is declared failed and forgotten (`ApiFailedOrder`); only
//! when all have confirmed that may its node id be given to another API node.
//!
//! An API node that ends normally sends a disconnect notice before it closes its connections: `DisconnectOrder` is the
//! last frame on each of them. Then all are closed and the session is forgotten without a grace time, so that the node
//! id is free at once. Transactions whose commit it had requested are still decided, but it can no longer learn the
//! outcome.

use crate::handshake::DataNodeStart;
use crate::view::ClusterView;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Body of `ApiConnectRequest` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiConnectRequest {
    /// The sender's number of the pending connection.
    pub waiting: u64,
    /// See [`crate::handshake::HelloRequest::node`].
    pub node: u8,
    /// See [`crate::handshake::HelloRequest::incarnation`].
    pub incarnation: u32,
    /// See [`crate::handshake::HelloRequest::connection`].
    pub connection: u16,
    /// See [`crate::handshake::HelloRequest::ticket`].
    pub ticket: u64,
    /// See [`crate::handshake::HelloRequest::admission`].
    pub admission: u32,
    /// See [`crate::handshake::HelloRequest::lost`].
    pub lost: Vec<DataNodeStart>,
}

/// Body of `ApiAdmissionRequest` (cold): a greeting, as the registrar is asked about it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiAdmissionRequest {
    /// The host's number of the question.
    pub waiting: u64,
    /// See [`crate::handshake::HelloRequest::node`].
    pub node: u8,
    /// See [`crate::handshake::HelloRequest::incarnation`].
    pub incarnation: u32,
    /// See [`crate::handshake::HelloRequest::connection`].
    pub connection: u16,
    /// Whether it asks for a new session. If it is asked about once more, a registrar that has failed may have begun
    /// that session.
    pub is_new: bool,
    /// That of its session. The host has drawn it if the session is new.
    pub ticket: u64,
    /// See [`crate::handshake::HelloRequest::admission`].
    pub admission: u32,
    /// See [`crate::handshake::HelloRequest::lost`].
    pub lost: Vec<DataNodeStart>,
}

/// Body of `ApiConnectConfirm` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiConnectConfirm {
    /// The driver's identifier of the pending connection.
    pub waiting: u64,
    /// The API node's id.
    pub api: u8,
    /// See [`crate::handshake::HelloConfirm::api_incarnation`].
    pub incarnation: u32,
    /// See [`crate::handshake::HelloConfirm::ticket`].
    pub ticket: u64,
    /// See [`crate::handshake::HelloConfirm::admission`].
    pub admission: u32,
    /// The cluster as it is.
    pub view: ClusterView,
}

/// Body of `ApiAdmissionConfirm` (cold).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiAdmissionConfirm {
    /// The number of the greeting, from the request.
    pub waiting: u64,
    /// The API node's id.
    pub api: u8,
    /// See [`crate::handshake::HelloConfirm::api_incarnation`].
    pub incarnation: u32,
    /// See [`crate::handshake::HelloConfirm::ticket`].
    pub ticket: u64,
    /// See [`crate::handshake::HelloConfirm::admission`].
    pub admission: u32,
}

/// How far a session has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SessionStage {
    /// What comes from it is carried out.
    Admitted,
    /// All of its connections are closed: everything that was begun for it ends, and nothing more is carried out.
    Closed,
    /// It is over, and forgotten.
    Failed,
}

/// Body of `ApiSessionRequest` (cold): all blocks of a node are to be notified of a session's new stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiSessionRequest {
    /// The API node's id.
    pub api: u8,
    /// Its incarnation.
    pub incarnation: u32,
    /// The incarnation that its greeting asked for.
    pub requested: u32,
    /// What its further connections must know.
    pub ticket: u64,
    /// How often it was admitted.
    pub admission: u32,
    /// The stage.
    pub stage: SessionStage,
}

/// Body of `ApiSessionConfirm` (cold): all blocks of a node have confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiSessionConfirm {
    /// The API node's id.
    pub api: u8,
    /// Its incarnation.
    pub incarnation: u32,
    /// The stage.
    pub stage: SessionStage,
}

/// Body of `ApiNodesConfirm` (cold): what a host knows. (The request has no body.)
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiNodesConfirm {
    /// The sessions that the host knows.
    pub sessions: Vec<KnownSession>,
    /// Ids with the newest incarnation that the host has received of each.
    pub newest: Vec<(u8, u32)>,
}

/// A session that a host knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KnownSession {
    /// As it was last described to the host.
    pub described: ApiSessionRequest,
    /// Its connections to the host's data node.
    pub connections: KnownConnections,
}

/// The connections of a session to a data node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum KnownConnections {
    /// There were none since it was last admitted.
    None,
    /// There are some; `ApiConnectionsClosedReport` follows when they are closed.
    Some,
    /// There were some since it was last admitted, which are closed.
    Closed,
}

/// Body of `ApiConnectRefuse` and `ApiAdmissionRefuse` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiConnectRefuse {
    /// The driver's identifier of the pending connection.
    pub waiting: u64,
    /// [`crate::ErrorCode`].
    pub code: u16,
    /// The error in detail.
    pub detail: String,
}

/// Body of `ApiConnectedOrder`, `ApiConnectionClosedOrder`, `ApiFailedOrder` and their confirms, of
/// `ApiDisconnectedReport`, `DisconnectOrder`, `ApiConnectionsClosedReport` and `ApiLeavingReport`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ApiNodeBody {
    /// The API node.
    pub api: u8,
    /// Zero.
    pub unused: [u8; 3],
    /// Its incarnation.
    pub incarnation: U32,
}

impl ApiNodeBody {
    /// Builds a body.
    pub fn new(api: vinga_base::NodeId, incarnation: vinga_base::Incarnation) -> Self {
        ApiNodeBody { api: api.0, unused: [0; 3], incarnation: U32::new(incarnation.0) }
    }

    /// What the ids of its transactions have in common ([`vinga_base::TransactionId::owner`]).
    pub fn owner(&self) -> u32 {
        let incarnation = vinga_base::Incarnation(self.incarnation.get());
        vinga_base::TransactionId::new(vinga_base::NodeId(self.api), incarnation, 1).owner()
    }
}

/// Body of `HeartbeatRequest` and `HeartbeatConfirm`: the sender's newest epoch and its view.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct HeartbeatBody {
    /// The newest epoch that the sender knows.
    pub epoch: U64,
    /// The newest view that the sender has. A data node sends its own to an API node that has an older one.
    pub view: U32,
}

/// Body of `ApiDisconnectOrder` and `ApiUnwantedReport`: a session is to be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CloseSessionOrder {
    /// The API node whose connections are to be closed.
    pub order: CloseConnectionOrder,
    /// Zero.
    pub unused: [u8; 2],
    /// Its incarnation. Another one is not meant.
    pub incarnation: U32,
}

impl CloseSessionOrder {
    /// Builds a body.
    pub fn new(order: CloseConnectionOrder, incarnation: vinga_base::Incarnation) -> Self {
        CloseSessionOrder { order, unused: [0; 2], incarnation: U32::new(incarnation.0) }
    }
}

/// Body of `CloseConnectionOrder`. Blocks don't know incarnations; a driver carries the order out before anybody learns
/// that the block has confirmed a later stage of the session, so that it meets the one that is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CloseConnectionOrder {
    /// The API node whose connections are to be closed.
    pub api: u8,
    /// Zero.
    pub unused: u8,
    /// [`crate::ErrorCode`].
    pub reason: U16,
    /// Number of the offending signal, 0 if there is none.
    pub signal: U16,
}
