//! The proof that both ends of a connection know the key of the cluster, before anything else is said.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `KeyChallengeRequest` | whoever connects | whoever listens | the first frame of a connection by TCP: what it is for, and a number to prove the key with |
//! | `KeyChallengeConfirm` | whoever listens | whoever connects | the proof with that number, and a number of its own |
//! | `KeyChallengeRefuse` | whoever listens | whoever connects | not with me, with an error; the connection is closed after it |
//! | `KeyProofOrder` | whoever connects | whoever listens | the proof with both numbers; the greeting follows at once |
//!
//! A proof that is wrong is refused as the greeting behind it would be. The protocol is described in
//! `docs/protocols/cluster-key.md`.

use crate::SignalNumber;
use crate::handshake::MAGIC;
use crate::protocol::Protocol;
use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use serde::{Deserialize, Serialize};
use vinga_base::NodeId;

/// A random number that is used once.
pub type Nonce = [u8; 32];

/// HMAC-SHA-256 with the key of the cluster.
pub type Proof = [u8; 32];

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ConnectionPurpose {
    /// A client at a data node.
    Client,
    /// A link between data nodes.
    Link,
    /// A data node asks a management node to arbitrate.
    Arbitration,
    /// A management node hands out the configuration, and takes the log of a data node.
    Configuration,
    /// A management node shows the log of the cluster.
    ClusterLog,
}

impl ConnectionPurpose {
    /// All of them.
    pub const ALL: [ConnectionPurpose; 5] = [
        ConnectionPurpose::Client,
        ConnectionPurpose::Link,
        ConnectionPurpose::Arbitration,
        ConnectionPurpose::Configuration,
        ConnectionPurpose::ClusterLog,
    ];

    /// The kind of node that listens there.
    pub fn listener(self) -> NodeKind {
        match self {
            ConnectionPurpose::Client | ConnectionPurpose::Link => NodeKind::Data,
            ConnectionPurpose::Arbitration
            | ConnectionPurpose::Configuration
            | ConnectionPurpose::ClusterLog => NodeKind::Management,
        }
    }

    /// The greeting that follows the proof.
    pub fn greeting(self) -> SignalNumber {
        match self {
            ConnectionPurpose::Client => SignalNumber::HelloRequest,
            ConnectionPurpose::Link => SignalNumber::NodeHelloRequest,
            ConnectionPurpose::Arbitration => SignalNumber::ArbitratorHelloRequest,
            ConnectionPurpose::Configuration => SignalNumber::ConfigurationRequest,
            ConnectionPurpose::ClusterLog => SignalNumber::ClusterLogRequest,
        }
    }
}

impl fmt::Display for ConnectionPurpose {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ConnectionPurpose::Client => "a client",
            ConnectionPurpose::Link => "a link between data nodes",
            ConnectionPurpose::Arbitration => "arbitration",
            ConnectionPurpose::Configuration => "the configuration",
            ConnectionPurpose::ClusterLog => "the log of the cluster",
        })
    }
}

/// The kinds of nodes that listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeKind {
    /// A data node.
    Data,
    /// A management node.
    Management,
}

impl fmt::Display for NodeKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            NodeKind::Data => "data node",
            NodeKind::Management => "management node",
        })
    }
}

/// What whoever connects says about the connection. Both proofs cover it, so that a proof is good for nothing else.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConnectionTerms {
    /// What the connection is for.
    pub purpose: ConnectionPurpose,
    /// The node that connects; 0 for clients, and for data nodes that do not know their id yet.
    pub sender: NodeId,
    /// The node that has to listen there; 0 if its id is not known.
    pub receiver: NodeId,
    /// The cluster's name, empty if it is not known.
    pub cluster: String,
    /// The address to which the connection was opened, as IPv6 has it; nothing if that of the listener may be another
    /// one, as addresses are translated on the way.
    pub address: Option<([u8; 16], u16)>,
}

/// An address as IPv6 has it, and the port.
fn plain(address: SocketAddr) -> ([u8; 16], u16) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    (ip.octets(), address.port())
}

impl ConnectionTerms {
    /// Those of a connection of `sender` to `receiver`, whatever its address is.
    pub fn new(purpose: ConnectionPurpose, sender: NodeId, receiver: NodeId, cluster: &str) -> Self {
        ConnectionTerms { purpose, sender, receiver, cluster: cluster.to_owned(), address: None }
    }

    /// Those of a connection that was opened to this address.
    #[must_use]
    pub fn to(self, address: SocketAddr) -> Self {
        ConnectionTerms { address: Some(plain(address)), ..self }
    }

    /// Whether a connection may be accepted at this address; `None` if that is not known.
    pub fn lead_to(&self, address: Option<SocketAddr>) -> bool {
        self.address.is_none_or(|meant| address.map(plain) == Some(meant))
    }
}

/// Body of `KeyChallengeRequest` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyChallengeRequest {
    /// [`MAGIC`].
    pub magic: u64,
    /// What the sender speaks.
    pub protocol: Protocol,
    /// The number of whoever connects.
    pub nonce: Nonce,
    /// What the proofs are for.
    pub terms: ConnectionTerms,
}

impl KeyChallengeRequest {
    /// One with this number, of this version.
    pub fn new(nonce: Nonce, terms: ConnectionTerms) -> Self {
        KeyChallengeRequest { magic: MAGIC, protocol: Protocol::own(), nonce, terms }
    }
}

/// Body of `KeyChallengeConfirm` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyChallengeConfirm {
    /// The number of whoever listens.
    pub nonce: Nonce,
    /// Its proof.
    pub proof: Proof,
}

/// Body of `KeyProofOrder` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyProofOrder {
    /// The proof of whoever connects.
    pub proof: Proof,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_same_in_both_notations() {
        let terms = ConnectionTerms::new(ConnectionPurpose::Client, NodeId(0), NodeId(0), "");
        let at = |address: &str| Some(address.parse::<SocketAddr>().expect("an address"));
        assert!(terms.lead_to(at("10.0.0.1:2202")) && terms.lead_to(None));
        let terms = terms.to("10.0.0.1:2202".parse().expect("an address"));
        assert!(terms.lead_to(at("10.0.0.1:2202")) && terms.lead_to(at("[::ffff:10.0.0.1]:2202")));
        for other in [at("10.0.0.1:2203"), at("10.0.0.2:2202"), at("[::1]:2202"), None] {
            assert!(!terms.lead_to(other), "{other:?}");
        }
    }

    #[test]
    fn each_purpose_has_a_greeting_of_its_own() {
        for one in ConnectionPurpose::ALL {
            let same = ConnectionPurpose::ALL.iter().filter(|other| other.greeting() == one.greeting());
            assert_eq!(same.count(), 1, "{one}");
        }
    }
}
