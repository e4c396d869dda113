//! API nodes come and go.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `ApiConnectRequest` | driver | membership | a greeting has arrived: may this API node connect? |
//! | `ApiConnectConfirm` / `…Refuse` | membership | driver | yes, as node n / no, because |
//! | `ApiDisconnectedReport` | driver | membership | a connection of the API node is gone, all are closed now |
//! | `ApiConnectionClosedOrder` | membership | all coordinators and data managers, dictionary, info | end what cannot go on without it |
//! | `ApiConnectionClosedConfirm` | they | membership | everything read from it is finished |
//! | `ApiFailedOrder` | membership | the same | this incarnation of the API node is gone for good |
//! | `ApiFailedConfirm` | they | membership | nothing of it is left here |
//! | `HeartbeatRequest` / `…Confirm` | API node / membership | | both are alive; carries epoch and view |
//! | `DisconnectOrder` | API node | membership | I leave for good: nobody will come back for outcomes |
//! | `CloseConnectionOrder` | any block | driver | this API node broke the rules: close it, log the reason |
//! | the same | driver | membership | an order of a block for which this thread has no connection |
//! | `NodeFailedOrder` | membership (simulator for now) | all blocks | a data node is out of the view |
//!
//! When a connection breaks, all connections of that API node are closed, then every block is told
//! (`ApiConnectionClosedOrder` travels behind the last frames that were read). Coordinators roll back what has not
//! been asked to commit and finish the rest; scans and reads are closed. When all have confirmed, the same incarnation
//! may connect again within the grace time and ask for the outcomes of its transactions: that is why outcomes are
//! kept. If it does not, the incarnation is declared failed and forgotten (`ApiFailedOrder`); only when all have
//! confirmed that may its node id be given to somebody else.
//!
//! An API node that ends in good order says so before it closes its connections: `DisconnectOrder` is the last frame on
//! each of them. Then all are closed and the session is forgotten without a grace time, so that the node id is free at
//! once. What it had asked to commit is decided all the same, it only can't learn how any more.

use crate::handshake::Topology;
use alloc::string::String;
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Body of `ApiConnectRequest` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiConnectRequest {
    /// The driver's name for the waiting connection.
    pub waiting: u64,
    /// See [`crate::handshake::HelloRequest::node`].
    pub node: u8,
    /// See [`crate::handshake::HelloRequest::incarnation`].
    pub incarnation: u32,
    /// See [`crate::handshake::HelloRequest::connection`].
    pub connection: u16,
    /// See [`crate::handshake::HelloRequest::ticket`].
    pub ticket: u64,
}

/// Body of `ApiConnectConfirm` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiConnectConfirm {
    /// The driver's name for the waiting connection.
    pub waiting: u64,
    /// The API node's id.
    pub api: u8,
    /// Which session of it.
    pub incarnation: u32,
    /// See [`crate::handshake::HelloConfirm::ticket`].
    pub ticket: u64,
    /// The cluster's layout.
    pub topology: Topology,
}

/// Body of `ApiConnectRefuse` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiConnectRefuse {
    /// The driver's name for the waiting connection.
    pub waiting: u64,
    /// [`crate::ErrorCode`].
    pub code: u16,
    /// What exactly was wrong.
    pub detail: String,
}

/// Body of `ApiDisconnectedReport`, `ApiConnectionClosedOrder`, `ApiFailedOrder` and their confirms, and of
/// `DisconnectOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ApiNodeBody {
    /// The API node.
    pub api: u8,
    /// Zero.
    pub unused: [u8; 3],
    /// Which session of it.
    pub incarnation: U32,
}

impl ApiNodeBody {
    /// Puts a body together.
    pub fn new(api: vinga_base::NodeId, incarnation: vinga_base::Incarnation) -> Self {
        ApiNodeBody { api: api.0, unused: [0; 3], incarnation: U32::new(incarnation.0) }
    }
}

/// Body of `HeartbeatRequest` and `HeartbeatConfirm`: the sender's newest epoch and its view.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct HeartbeatBody {
    /// The newest epoch that the sender knows.
    pub epoch: U64,
    /// The newest view that the sender knows.
    pub view: U32,
}

/// Body of `CloseConnectionOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CloseConnectionOrder {
    /// The API node to be closed.
    pub api: u8,
    /// Zero.
    pub unused: u8,
    /// Why: [`crate::ErrorCode`].
    pub reason: U16,
    /// Number of the signal that was wrong, 0 if none.
    pub signal: U16,
}

/// Body of `NodeFailedOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NodeFailedOrder {
    /// The data node that is gone.
    pub node: u8,
    /// Zero.
    pub unused: [u8; 3],
    /// Its incarnation.
    pub incarnation: U32,
    /// The view without it.
    pub view: U32,
}
