//! The proof that both ends of a connection know the key of the cluster, before anything else is said.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `KeyChallengeRequest` | whoever connects | whoever listens | the first frame of a connection by TCP: a number to prove the key with |
//! | `KeyChallengeConfirm` | whoever listens | whoever connects | the proof with that number, and a number of its own |
//! | `KeyChallengeRefuse` | whoever listens | whoever connects | not with me, with an error; the connection is closed after it |
//! | `KeyProofOrder` | whoever connects | whoever listens | the proof with both numbers; the greeting follows at once |
//!
//! A proof that is wrong is refused as the greeting behind it would be. The protocol is described in
//! `docs/protocols/cluster-key.md`.

use crate::handshake::{MAGIC, PROTOCOL_VERSION};
use serde::{Deserialize, Serialize};

/// A random number that is used once.
pub type Nonce = [u8; 32];

/// HMAC-SHA-256 with the key of the cluster.
pub type Proof = [u8; 32];

/// Body of `KeyChallengeRequest` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyChallengeRequest {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`PROTOCOL_VERSION`].
    pub version: u16,
    /// The number of whoever connects.
    pub nonce: Nonce,
}

impl KeyChallengeRequest {
    /// One with this number, of this version.
    pub fn new(nonce: Nonce) -> Self {
        KeyChallengeRequest { magic: MAGIC, version: PROTOCOL_VERSION, nonce }
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
