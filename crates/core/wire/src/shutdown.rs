//! A client has one data node stop. All bodies are cold.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `ShutdownRequest` | API node | info of a main thread | stop your data node in order |
//! | `ShutdownConfirm` | info | API node | it stops, as soon as this is sent |
//! | `ShutdownRefuse` | info | API node | why not ([`crate::handshake::Refusal`]) |
//! | `ShutdownPermitRequest` | info | info of a main thread | can you all do without my data node? |
//! | `ShutdownPermitConfirm` | info | info | yes; from now on I count it as gone |
//! | `ShutdownPermitRefuse` | info | info | why not ([`crate::handshake::Refusal`]) |
//! | `ShutdownPermitReturnOrder` | info | info | my data node does not stop after all |
//! | `ShutdownCheckRequest` | info | agreement of its node | this data node is about to stop, and perhaps others |
//! | `ShutdownCheckConfirm` | agreement | info | then the others can go on: I agree to no view that leaves anybody out (no body) |
//! | `ShutdownCheckRefuse` | agreement | info | they can't, in this view or in one that may follow (no body) |
//! | `ShutdownOrder` | info | driver | stop the node, as if the process had been asked to by a signal of the system |
//!
//! The protocol is described in `docs/protocols/shutdown.md`.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use vinga_base::NodeId;

/// Whether a data node stops that the cluster can't do without.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ShutdownTerms {
    /// Only if the others can go on without it.
    IfDispensable,
    /// In any case: if the others can't go on, they stop, too.
    InAnyCase,
    /// Like the first one, but the data node *leaves* before, so that nobody's transaction is rolled back.
    Unnoticed {
        /// How long that may take (milliseconds). Behind that it stops all the same, and what is open is rolled back.
        wait: u32,
    },
}

/// `ShutdownRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShutdownRequest {
    /// The requester's tag.
    pub request: u32,
    /// On what terms.
    pub terms: ShutdownTerms,
    /// Whether it is to be started again by whoever keeps it running.
    pub starts_again: bool,
}

/// `ShutdownOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShutdownOrder {
    /// Whether it is to be started again by whoever keeps it running.
    pub starts_again: bool,
}

/// `ShutdownPermitRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShutdownPermitRequest {
    /// Which attempt of the sender to stop it is.
    pub request: u32,
    /// In any case: it stops without an answer.
    pub terms: ShutdownTerms,
}

/// `ShutdownPermitConfirm`, `ShutdownPermitReturnOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShutdownPermitBody {
    /// Which attempt to stop it is about.
    pub request: u32,
}

/// `ShutdownCheckRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShutdownCheck {
    /// The members that are about to stop, as far as this data node has permitted it: this one, and others.
    pub stopping: Vec<NodeId>,
    /// It stops in any case: nothing is answered.
    pub is_decided: bool,
}

/// `ShutdownConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShutdownConfirm {
    /// The requester's tag.
    pub request: u32,
    /// Whether the data node has left before: then its end rolls nothing back.
    pub has_left: bool,
}
