//! The first frames of a connection: identification, protocol version, the view of the cluster.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `HelloRequest` | API node | data node's driver | greeting; must be the first frame, within the time limit |
//! | `HelloConfirm` | driver | API node | admitted: the API node's id and the view of the cluster |
//! | `HelloRefuse` | driver | API node | not admitted, with an error; the connection is closed after it |
//! | `HelloRefuse` | driver | API node | the last signal on a connection that was admitted: why it is closed; [`ALL_SENT`] if nothing is lost with it |
//!
//! An API node opens its first connection with ticket 0. The confirm states how many connections the node wants from it
//! (one for each thread that reads sockets, at most eight); each further greeting names its index and the ticket of the
//! first. A connection with index i is served by the i-th such thread, so that a frame sent to the owner of a row needs
//! no hop. If any connection of an API node breaks, all are closed. A greeting for an index that is still open means
//! that the API node has given that connection up, perhaps before the data node could see it break: the old connections
//! are all closed, and the greeting is refused with `ConnectionLost` and may be repeated.

use crate::protocol::Protocol;
use crate::view::ClusterView;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Begins every greeting, so that a stray client of another protocol is recognised.
pub const MAGIC: u64 = u64::from_le_bytes(*b"VINGA\r\n\0");

/// Connections between an API node and a data node, at most.
pub const CONNECTIONS_MAX: u16 = 8;

/// Body of `HelloRequest` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HelloRequest {
    /// [`MAGIC`].
    pub magic: u64,
    /// What the client speaks.
    pub protocol: Protocol,
    /// The cluster's name, empty for any.
    pub cluster: String,
    /// The node id that the client wants, 0 for any free one.
    pub node: u8,
    /// Incarnation of the API node. With ticket 0 a number by which the cluster knows which of two sessions with one
    /// node id is the newer: greater than any that it has asked for before, in this run (also if no answer came) or in
    /// an earlier one; taken from its clock. Else the one that it was admitted with.
    pub incarnation: u32,
    /// The index of this connection among those of the API node, from 0.
    pub connection: u16,
    /// 0 for a new session; otherwise the ticket of the session's first connection: adds a connection, or resumes the
    /// session after all its connections broke.
    pub ticket: u64,
    /// The data nodes to which the client is connected by other addresses: one of these refuses with `SameDataNode`,
    /// and its id in place of the request.
    pub connected: Vec<u8>,
    /// The newest admission of the session that the client has learned of; 0 for none.
    pub admission: u32,
    /// The data nodes to which it has lost its connections since then. They may not know that yet; the session is
    /// admitted by another node only when they have finished what it had begun there. What a later start of one of them
    /// has is not meant: it may be greeted, and admit the session, at the same time as this one.
    pub lost: Vec<DataNodeStart>,
}

/// One start of a data node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct DataNodeStart {
    /// Its id.
    pub node: u8,
    /// Its incarnation.
    pub incarnation: u32,
}

/// Body of `HelloConfirm` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HelloConfirm {
    /// What the data node speaks.
    pub protocol: Protocol,
    /// The data node's id.
    pub node: u8,
    /// The data node's incarnation.
    pub incarnation: u32,
    /// Random number of the cluster's incarnation: if it changes, nothing known of the cluster is valid any more.
    pub cluster_incarnation: u64,
    /// Random number of the database: data nodes that keep it on disk have the same one over restarts, others another
    /// one at each start. If it changes, tables, databases and rows are other ones.
    pub database: u64,
    /// The API node's id.
    pub api: u8,
    /// Must be sent with further connections of this API node.
    pub ticket: u64,
    /// The cluster as it is.
    pub view: ClusterView,
    /// The API node's incarnation: that after the one of the earlier session with this node id, if there was one;
    /// perhaps less than what it asked for. The ids of its transactions carry its low 16 bits.
    pub api_incarnation: u32,
    /// How often the session was admitted: first, and each time that it came back.
    pub admission: u32,
}

/// [`Refusal::request`] of the last signal on a connection whose data node has left the cluster in order and stops:
/// everything that it had to send to this client was sent, by this connection or others that end so, too.
pub const ALL_SENT: u32 = 1;

/// Body of `HelloRefuse` and of every other cold refusal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// The client's tag of the refused request, 0 if it had none.
    pub request: u32,
    /// [`crate::ErrorCode`].
    pub code: u16,
    /// The error in detail and what is allowed; may be empty.
    pub detail: String,
}
