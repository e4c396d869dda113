//! What proves a key.

use hmac::{Hmac, KeyInit, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;
use std::io;
use vinga_wire::key::{Nonce, Proof};

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

/// The numbers of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonces {
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

fn mac(key: &[u8; KEY_BYTES], side: Side, nonces: &Nonces) -> Hmac<Sha256> {
    let label: &[u8] = match side {
        Side::Connecting => b"vinga cluster key, connecting",
        Side::Listening => b"vinga cluster key, listening",
    };
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    // All parts but the label have a fixed length, so that no two inputs are the same bytes.
    mac.update(&nonces.connecting);
    mac.update(&nonces.listening);
    mac.update(label);
    mac
}

/// The proof of a side.
pub fn prove(key: &[u8; KEY_BYTES], side: Side, nonces: &Nonces) -> Proof {
    mac(key, side, nonces).finalize().into_bytes().into()
}

/// Whether that is the proof of a side. Takes as long for a wrong one as for the right one.
pub fn is_proof(key: &[u8; KEY_BYTES], side: Side, nonces: &Nonces, proof: &Proof) -> bool {
    mac(key, side, nonces).verify_slice(proof).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCES: Nonces = Nonces { connecting: [1; 32], listening: [2; 32] };

    /// The value that another implementation gives: `hmac.new(bytes([7] * 32), …, 'sha256')` of Python.
    #[test]
    fn the_proof_is_hmac_sha_256() {
        let proof = prove(&[7; 32], Side::Connecting, &NONCES);
        let text: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, "db0f61ca91543487fc3f138dbd1b165479eb75057e437a315de02a6210250757");
    }

    #[test]
    fn another_key_side_or_number_is_another_proof() {
        let proof = prove(&[7; 32], Side::Connecting, &NONCES);
        assert!(is_proof(&[7; 32], Side::Connecting, &NONCES, &proof));
        assert!(!is_proof(&[8; 32], Side::Connecting, &NONCES, &proof));
        assert!(!is_proof(&[7; 32], Side::Listening, &NONCES, &proof));
        let swapped = Nonces { connecting: NONCES.listening, listening: NONCES.connecting };
        assert!(!is_proof(&[7; 32], Side::Connecting, &swapped, &proof));
    }

    #[test]
    fn numbers_are_not_used_twice() {
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
