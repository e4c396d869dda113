//! Whoever connects: it proves the key, and has the other side prove it. Waits for the answer.

use crate::file::ClusterKey;
use crate::proof::{self, Side, Subject};
use std::fmt;
use std::io::{self, Read, Write};
use vinga_wire::handshake::Refusal;
use vinga_wire::key::{ConnectionTerms, KeyChallengeConfirm, KeyChallengeRequest, KeyProofOrder};
use vinga_wire::{Address, ErrorCode, Frame, FrameWriter, SignalNumber, cold};

/// Bytes of an answer, at most.
const ANSWER_BYTES_MAX: usize = 4096;

/// Why a key was not proven.
#[derive(Debug)]
pub enum NotAccepted {
    /// The connection has failed, or no answer has come in time.
    Failed(io::Error),
    /// The other side refuses, or has another key; with details.
    Refused(ErrorCode, String),
}

impl fmt::Display for NotAccepted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAccepted::Failed(why) => write!(out, "{why}"),
            NotAccepted::Refused(code, detail) => write!(out, "{code} {detail}"),
        }
    }
}

impl From<io::Error> for NotAccepted {
    fn from(why: io::Error) -> Self {
        NotAccepted::Failed(why)
    }
}

/// Proves the key at the beginning of a connection, on which nothing was sent yet, and checks that the other side has
/// it. The proof itself is sent, and not answered: the greeting of `terms` may follow at once. Nothing is read behind
/// the answer.
///
/// How long it may take is the stream's time-out.
///
/// # Errors
/// The connection fails; the other side has no key, or another one, or is not the one that `terms` name.
pub fn prove(
    stream: &mut (impl Read + Write),
    key: &ClusterKey,
    sender: Address,
    terms: ConnectionTerms,
) -> Result<(), NotAccepted> {
    let connecting = proof::random()?;
    let request = frame(SignalNumber::KeyChallengeRequest, sender, |writer| {
        cold::write(writer, &KeyChallengeRequest::new(connecting, terms.clone()));
    });
    stream.write_all(&request)?;
    let answer = read_answer(stream)?;
    let KeyChallengeConfirm { nonce, proof } = read_confirm(&answer)?;
    let subject = Subject { terms, connecting, listening: nonce };
    if !proof::is_proof(&key.0, Side::Listening, &subject, &proof) {
        let detail =
            "what the other side has proven is not the key that was given here, or not for this connection";
        return Err(NotAccepted::Refused(ErrorCode::WrongKey, detail.to_string()));
    }
    let proof = proof::prove(&key.0, Side::Connecting, &subject);
    let order = frame(SignalNumber::KeyProofOrder, sender, |writer| {
        cold::write(writer, &KeyProofOrder { proof });
    });
    stream.write_all(&order)?;
    Ok(())
}

/// A frame between drivers, without a receiver: it is not known yet.
pub(crate) fn frame(
    number: SignalNumber,
    sender: Address,
    write: impl FnOnce(&mut FrameWriter<'_>),
) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut FrameWriter::begin(&mut bytes, number, 0, Address::NONE, sender, 0));
    bytes
}

fn unreadable() -> NotAccepted {
    NotAccepted::Refused(ErrorCode::BadHandshake, "what came is no answer to a challenge".to_string())
}

/// Reads one frame, and nothing behind it.
fn read_answer(stream: &mut impl Read) -> Result<Vec<u8>, NotAccepted> {
    let mut bytes = vec![0; 4];
    stream.read_exact(&mut bytes).map_err(closed)?;
    let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    if !(bytes.len()..=ANSWER_BYTES_MAX).contains(&length) {
        return Err(unreadable());
    }
    bytes.resize(length, 0);
    stream.read_exact(&mut bytes[4..]).map_err(closed)?;
    Ok(bytes)
}

fn closed(why: io::Error) -> io::Error {
    match why.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::other("it has closed the connection"),
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "no answer has come in time"),
        _ => why,
    }
}

fn read_confirm(answer: &[u8]) -> Result<KeyChallengeConfirm, NotAccepted> {
    let frame = Frame::first(answer).ok().flatten().ok_or_else(unreadable)?;
    match frame.signal() {
        Some(SignalNumber::KeyChallengeConfirm) => cold::read(&frame).ok_or_else(unreadable),
        // One that gives no challenge may refuse what it takes for another greeting.
        Some(
            SignalNumber::KeyChallengeRefuse
            | SignalNumber::HelloRefuse
            | SignalNumber::NodeHelloRefuse
            | SignalNumber::ArbitratorHelloRefuse,
        ) => {
            let refusal: Refusal = cold::read(&frame).ok_or_else(unreadable)?;
            let code = ErrorCode::from_number(refusal.code).unwrap_or(ErrorCode::BadHandshake);
            Err(NotAccepted::Refused(code, refusal.detail))
        }
        _ => Err(unreadable()),
    }
}
