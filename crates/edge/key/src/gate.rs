//! Whoever listens: what was read of a connection goes through its gate first.

use crate::file::ClusterKey;
use crate::proof::{self, Side, Subject};
use crate::prove::frame;
use std::net::SocketAddr;
use vinga_base::NodeId;
use vinga_wire::handshake::{MAGIC, Refusal};
use vinga_wire::key::{ConnectionTerms, KeyChallengeConfirm, KeyChallengeRequest, KeyProofOrder, NodeKind};
use vinga_wire::protocol::Protocol;
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, cold};

/// Bytes of a frame of this protocol, at most: a name of 255 bytes fits.
const FRAME_BYTES_MAX: usize = 512;

/// The node that listens.
#[derive(Clone, Copy, Debug)]
pub struct Listening<'a> {
    /// The cluster's key; without one every greeting passes.
    pub key: Option<&'a ClusterKey>,
    /// What the node is.
    pub kind: NodeKind,
    /// Its driver's address, with its id.
    pub driver: Address,
    /// The cluster's name.
    pub cluster: &'a str,
}

/// How far a connection has come.
#[derive(Debug)]
pub struct Gate {
    stage: Stage,
    /// The address of this side.
    reached: Option<SocketAddr>,
}

#[derive(Debug)]
enum Stage {
    /// Nothing was read.
    Closed,
    /// A challenge was answered.
    Challenged(Subject),
    /// The key is proven; the greeting that belongs to it has to follow.
    Proven(ConnectionTerms),
    /// What comes now is for others. With what was proven, if that was necessary.
    Open(Option<ConnectionTerms>),
}

/// What follows from what was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// More has to be read.
    More,
    /// That has to be sent; then go on.
    Answer(Vec<u8>),
    /// The key is proven, or there is none: what is left is for others. If it is proven, the beginning of the greeting
    /// that belongs to it is there.
    Passed,
}

/// Why a connection does not pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotProven {
    /// The error to refuse it with.
    pub code: ErrorCode,
    /// Details.
    pub detail: String,
    /// The frame that refuses a challenge; `None` where a greeting has to be refused.
    pub refusal: Option<Vec<u8>>,
}

impl Gate {
    /// That of a connection by TCP, which has reached this address of the machine; `None` if the system does not say
    /// which, as the connection has failed meanwhile.
    pub fn closed(reached: Option<SocketAddr>) -> Self {
        Gate { stage: Stage::Closed, reached }
    }

    /// That of a connection whose other end the system knows: it needs no key.
    pub fn open() -> Self {
        Gate { stage: Stage::Open(None), reached: None }
    }

    /// Looks at what was read, and removes what it was about.
    ///
    /// # Errors
    /// The key is not proven, or for another node, address or purpose; or there is none here, and the other side wants
    /// a proof.
    pub fn advance(&mut self, own: &Listening<'_>, bytes: &mut Vec<u8>) -> Result<Step, NotProven> {
        let expected = match &self.stage {
            Stage::Open(_) => return Ok(Step::Passed),
            Stage::Closed => SignalNumber::KeyChallengeRequest,
            Stage::Challenged(_) => SignalNumber::KeyProofOrder,
            Stage::Proven(terms) => terms.purpose.greeting(),
        };
        let Some(number) = bytes.get(4..6) else { return Ok(Step::More) };
        let is_expected = number == (expected as u16).to_le_bytes();
        if let Stage::Proven(terms) = &self.stage {
            if !is_expected {
                let number = u16::from_le_bytes([number[0], number[1]]);
                let detail = format!("it is proven for {}, and signal {number} came", terms.purpose);
                return Err(NotProven { code: ErrorCode::KeyForAnother, detail, refusal: None });
            }
            self.stage = Stage::Open(Some(terms.clone()));
            return Ok(Step::Passed);
        }
        if !is_expected {
            return self.without_challenge(own.key);
        }
        let frame = match first_frame(bytes) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(Step::More),
            Err(()) => return Err(refused(own, ErrorCode::BadHandshake, "what came can't be read")),
        };
        let length = frame.length();
        let (stage, step) = match &self.stage {
            Stage::Challenged(subject) => {
                let key = own.key.expect("only a node with a key answers a challenge");
                check_proof(key, subject, &frame)?;
                (Stage::Proven(subject.terms.clone()), None)
            }
            Stage::Closed | Stage::Proven(_) | Stage::Open(_) => {
                let (subject, answer) = answer_challenge(own, self.reached, &frame)?;
                (Stage::Challenged(subject), Some(Step::Answer(answer)))
            }
        };
        self.stage = stage;
        bytes.drain(..length);
        match step {
            Some(step) => Ok(step),
            // The greeting may have come with the proof.
            None => self.advance(own, bytes),
        }
    }

    /// Checks that the sender of a greeting which has passed is the node that has proven the key; 0 for one that has no
    /// id. Without a key it may be any.
    ///
    /// # Errors
    /// It is another one.
    pub fn check_sender(&self, sender: NodeId) -> Result<(), NotProven> {
        match &self.stage {
            Stage::Open(Some(terms)) if terms.sender != sender => {
                let detail = format!("data node {} has proven it, and node {sender} greets", terms.sender);
                Err(NotProven { code: ErrorCode::KeyForAnother, detail, refusal: None })
            }
            Stage::Closed | Stage::Challenged(_) | Stage::Proven(_) | Stage::Open(_) => Ok(()),
        }
    }

    /// Something else came first: what that is others find out, if there is no key.
    fn without_challenge(&mut self, key: Option<&ClusterKey>) -> Result<Step, NotProven> {
        if key.is_none() {
            self.stage = Stage::Open(None);
            return Ok(Step::Passed);
        }
        Err(NotProven { code: ErrorCode::KeyRequired, detail: String::new(), refusal: None })
    }
}

fn first_frame(bytes: &[u8]) -> Result<Option<Frame<'_>>, ()> {
    let length = bytes.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize);
    if length.is_some_and(|length| length > FRAME_BYTES_MAX) {
        return Err(());
    }
    Frame::first(bytes).map_err(|_| ())
}

fn refused(own: &Listening<'_>, code: ErrorCode, detail: &str) -> NotProven {
    let body = Refusal { request: 0, code: code as u16, detail: detail.to_string() };
    let refusal = frame(SignalNumber::KeyChallengeRefuse, own.driver, |writer| cold::write(writer, &body));
    NotProven { code, detail: detail.to_string(), refusal: Some(refusal) }
}

/// Whether a connection with these terms is for this node. Nothing is proven to one that is not: the proof would be
/// good for whoever has got the connection here.
fn check_terms(
    own: &Listening<'_>,
    reached: Option<SocketAddr>,
    terms: &ConnectionTerms,
) -> Result<(), (ErrorCode, String)> {
    let for_another = |detail| Err((ErrorCode::KeyForAnother, detail));
    let node = own.driver.node();
    if terms.purpose.listener() != own.kind {
        let (purpose, meant) = (terms.purpose, terms.purpose.listener());
        return for_another(format!("{purpose} wants a {meant}, and this is {} {node}", own.kind));
    }
    if terms.receiver != NodeId(0) && terms.receiver != node {
        let meant = terms.receiver;
        return for_another(format!("{} {meant} is wanted, and this is {node}", own.kind));
    }
    if !terms.lead_to(reached) {
        let reached = reached.map_or_else(|| "another one".to_owned(), |address| address.to_string());
        return for_another(format!(
            "the connection was opened to another address than {reached}, where it came"
        ));
    }
    if !terms.cluster.is_empty() && terms.cluster != own.cluster {
        return Err((ErrorCode::WrongCluster, format!("this is cluster \"{}\"", own.cluster)));
    }
    Ok(())
}

fn answer_challenge(
    own: &Listening<'_>,
    reached: Option<SocketAddr>,
    challenge: &Frame<'_>,
) -> Result<(Subject, Vec<u8>), NotProven> {
    let bad = || refused(own, ErrorCode::BadHandshake, "the challenge can't be read");
    // If it has another version, only its beginning can be relied on.
    let (magic, protocol) = cold::read::<(u64, Protocol)>(challenge).ok_or_else(bad)?;
    if magic != MAGIC {
        return Err(bad());
    }
    let spoken = Protocol::own().common(protocol);
    spoken.map_err(|detail| refused(own, ErrorCode::WrongProtocol, &detail))?;
    let KeyChallengeRequest { nonce: connecting, terms, .. } = cold::read(challenge).ok_or_else(bad)?;
    let Some(key) = own.key else {
        return Err(refused(
            own,
            ErrorCode::WrongKey,
            "there is no cluster key at this node (ClusterKeyFile)",
        ));
    };
    check_terms(own, reached, &terms).map_err(|(code, detail)| refused(own, code, &detail))?;
    let listening = match proof::random() {
        Ok(number) => number,
        Err(why) => return Err(refused(own, ErrorCode::InternalError, &format!("no random numbers: {why}"))),
    };
    let subject = Subject { terms, connecting, listening };
    let confirm =
        KeyChallengeConfirm { nonce: listening, proof: proof::prove(&key.0, Side::Listening, &subject) };
    let answer = frame(SignalNumber::KeyChallengeConfirm, own.driver, |writer| cold::write(writer, &confirm));
    Ok((subject, answer))
}

fn check_proof(key: &ClusterKey, subject: &Subject, order: &Frame<'_>) -> Result<(), NotProven> {
    let wrong = |code, detail: &str| NotProven { code, detail: detail.to_string(), refusal: None };
    let KeyProofOrder { proof } =
        cold::read(order).ok_or_else(|| wrong(ErrorCode::BadHandshake, "the proof can't be read"))?;
    if !proof::is_proof(&key.0, Side::Connecting, subject, &proof) {
        return Err(wrong(ErrorCode::WrongKey, "its proof is wrong"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
