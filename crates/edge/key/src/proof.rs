//! What proves a key.

use hmac::{Hmac, KeyInit, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;
use std::io;
use vinga_wire::cold;
use vinga_wire::key::{ConnectionTerms, Nonce, Proof};

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// Who proves. The two proofs of a connection differ in that, so that nobody can send one back that it has received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Whoever has connected.
    Connecting,
    /// Whoever listens.
    Listening,
}

/// What a connection is proven by: its numbers, and what it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subject {
    /// What both ends have agreed upon.
    pub terms: ConnectionTerms,
    /// That of whoever has connected.
    pub connecting: Nonce,
    /// That of whoever listens.
    pub listening: Nonce,
}

/// 32 bytes that nobody can foretell.
///
/// # Errors
/// The system's, which has none.
pub fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Ok(bytes)
}

fn mac(key: &[u8; KEY_BYTES], side: Side, subject: &Subject) -> Hmac<Sha256> {
    let label: &[u8] = match side {
        Side::Connecting => b"vinga cluster key, connecting",
        Side::Listening => b"vinga cluster key, listening",
    };
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    // The numbers have a fixed length, and neither label is the beginning of the other one: so no two inputs are the
    // same bytes.
    mac.update(&subject.connecting);
    mac.update(&subject.listening);
    mac.update(label);
    mac.update(&cold::to_bytes(&subject.terms));
    mac
}

/// The proof of a side.
pub fn prove(key: &[u8; KEY_BYTES], side: Side, subject: &Subject) -> Proof {
    mac(key, side, subject).finalize().into_bytes().into()
}

/// Whether that is the proof of a side. Takes as long for a wrong one as for the right one.
pub fn is_proof(key: &[u8; KEY_BYTES], side: Side, subject: &Subject, proof: &Proof) -> bool {
    mac(key, side, subject).verify_slice(proof).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_base::NodeId;
    use vinga_wire::key::ConnectionPurpose;

    fn subject() -> Subject {
        let terms = ConnectionTerms::new(ConnectionPurpose::Link, NodeId(2), NodeId(1), "north");
        let terms = terms.to("10.0.0.1:2202".parse().unwrap());
        Subject { terms, connecting: [1; 32], listening: [2; 32] }
    }

    /// The value that another implementation gives: `hmac.new(bytes([7] * 32), …, 'sha256')` of Python.
    #[test]
    fn the_proof_is_hmac_sha_256() {
        let proof = prove(&[7; 32], Side::Connecting, &subject());
        let text: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, "9de49ebd1cf8189a0c5e2b7a062f491f36f883ed29986e326bb7f4f5d0ebcd22");
    }

    #[test]
    fn another_key_side_or_number_is_another_proof() {
        let proof = prove(&[7; 32], Side::Connecting, &subject());
        assert!(is_proof(&[7; 32], Side::Connecting, &subject(), &proof));
        assert!(!is_proof(&[8; 32], Side::Connecting, &subject(), &proof));
        assert!(!is_proof(&[7; 32], Side::Listening, &subject(), &proof));
        let Subject { connecting, listening, .. } = subject();
        let swapped = Subject { connecting: listening, listening: connecting, ..subject() };
        assert!(!is_proof(&[7; 32], Side::Connecting, &swapped, &proof));
    }

    #[test]
    fn a_proof_is_for_one_purpose_and_for_two_ends() {
        let others: [fn(&mut ConnectionTerms); 7] = [
            |terms| terms.purpose = ConnectionPurpose::Client,
            |terms| terms.sender = NodeId(3),
            |terms| terms.receiver = NodeId(3),
            |terms| terms.cluster.push('s'),
            |terms| terms.address = None,
            |terms| *terms = terms.clone().to("10.0.0.1:2203".parse().unwrap()),
            |terms| *terms = terms.clone().to("10.0.0.2:2202".parse().unwrap()),
        ];
        for side in [Side::Connecting, Side::Listening] {
            let proof = prove(&[7; 32], side, &subject());
            for change in others {
                let mut other = subject();
                change(&mut other.terms);
                assert!(!is_proof(&[7; 32], side, &other, &proof), "{other:?}");
            }
        }
    }

    #[test]
    fn numbers_are_not_used_twice() {
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
