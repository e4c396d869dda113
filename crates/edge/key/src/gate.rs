//! Whoever listens: what was read of a connection goes through its gate first.

use crate::file::ClusterKey;
use crate::proof::{self, Nonces, Side};
use crate::prove::frame;
use vinga_wire::handshake::{MAGIC, PROTOCOL_VERSION, Refusal};
use vinga_wire::key::{KeyChallengeConfirm, KeyChallengeRequest, KeyProofOrder};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, cold};

/// Bytes of a frame of this protocol, at most.
const FRAME_BYTES_MAX: usize = 256;

/// How far a connection has come.
#[derive(Debug)]
pub struct Gate(Stage);

#[derive(Debug)]
enum Stage {
    /// Nothing was read.
    Closed,
    /// A challenge was answered.
    Challenged(Nonces),
    /// What comes now is for others.
    Open,
}

/// What follows from what was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// More has to be read.
    More,
    /// That has to be sent; then go on.
    Answer(Vec<u8>),
    /// The key is proven, or there is none: what is left is for others.
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
    /// That of a connection by TCP.
    pub fn closed() -> Self {
        Gate(Stage::Closed)
    }

    /// That of a connection whose other end the system knows: it needs no key.
    pub fn open() -> Self {
        Gate(Stage::Open)
    }

    /// Looks at what was read, and removes what it was about. `own` is the address of this node's driver; without a key
    /// every greeting passes.
    ///
    /// # Errors
    /// The key is not proven; or there is none here, and the other side wants a proof.
    pub fn advance(
        &mut self,
        key: Option<&ClusterKey>,
        own: Address,
        bytes: &mut Vec<u8>,
    ) -> Result<Step, NotProven> {
        let expected = match &self.0 {
            Stage::Open => return Ok(Step::Passed),
            Stage::Closed => SignalNumber::KeyChallengeRequest,
            Stage::Challenged(_) => SignalNumber::KeyProofOrder,
        };
        let Some(number) = bytes.get(4..6) else { return Ok(Step::More) };
        if number != (expected as u16).to_le_bytes() {
            return self.without_challenge(key);
        }
        let frame = match first_frame(bytes) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(Step::More),
            Err(()) => return Err(refused(own, ErrorCode::BadHandshake, "what came can't be read")),
        };
        let length = frame.length();
        let step = match &self.0 {
            Stage::Challenged(nonces) => {
                let key = key.expect("only a node with a key answers a challenge");
                check_proof(key, nonces, &frame)?;
                self.0 = Stage::Open;
                Step::Passed
            }
            Stage::Closed | Stage::Open => {
                let (nonces, answer) = answer_challenge(key, own, &frame)?;
                self.0 = Stage::Challenged(nonces);
                Step::Answer(answer)
            }
        };
        bytes.drain(..length);
        Ok(step)
    }

    /// Something else came first: what that is others find out, if there is no key.
    fn without_challenge(&mut self, key: Option<&ClusterKey>) -> Result<Step, NotProven> {
        if key.is_none() {
            self.0 = Stage::Open;
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

fn refused(own: Address, code: ErrorCode, detail: &str) -> NotProven {
    let body = Refusal { request: 0, code: code as u16, detail: detail.to_string() };
    let refusal = frame(SignalNumber::KeyChallengeRefuse, own, |writer| cold::write(writer, &body));
    NotProven { code, detail: detail.to_string(), refusal: Some(refusal) }
}

fn answer_challenge(
    key: Option<&ClusterKey>,
    own: Address,
    challenge: &Frame<'_>,
) -> Result<(Nonces, Vec<u8>), NotProven> {
    let bad = || refused(own, ErrorCode::BadHandshake, "the challenge can't be read");
    // If it has another version, only its beginning can be relied on.
    let (magic, version) = cold::read::<(u64, u16)>(challenge).ok_or_else(bad)?;
    if magic != MAGIC {
        return Err(bad());
    }
    if version != PROTOCOL_VERSION {
        let detail = format!("version {PROTOCOL_VERSION} here, {version} at the other side");
        return Err(refused(own, ErrorCode::WrongProtocol, &detail));
    }
    let KeyChallengeRequest { nonce: connecting, .. } = cold::read(challenge).ok_or_else(bad)?;
    let Some(key) = key else {
        return Err(refused(
            own,
            ErrorCode::WrongKey,
            "there is no cluster key at this node (ClusterKeyFile)",
        ));
    };
    let listening = match proof::random() {
        Ok(number) => number,
        Err(why) => return Err(refused(own, ErrorCode::InternalError, &format!("no random numbers: {why}"))),
    };
    let nonces = Nonces { connecting, listening };
    let confirm =
        KeyChallengeConfirm { nonce: listening, proof: proof::prove(&key.0, Side::Listening, &nonces) };
    let answer = frame(SignalNumber::KeyChallengeConfirm, own, |writer| cold::write(writer, &confirm));
    Ok((nonces, answer))
}

fn check_proof(key: &ClusterKey, nonces: &Nonces, order: &Frame<'_>) -> Result<(), NotProven> {
    let wrong = |code, detail: &str| NotProven { code, detail: detail.to_string(), refusal: None };
    let KeyProofOrder { proof } =
        cold::read(order).ok_or_else(|| wrong(ErrorCode::BadHandshake, "the proof can't be read"))?;
    if !proof::is_proof(&key.0, Side::Connecting, nonces, &proof) {
        return Err(wrong(ErrorCode::WrongKey, "its proof is wrong"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::{NotAccepted, prove};
    use proptest::prelude::*;
    use std::io::{self, Read, Write};

    const DRIVER: Address = Address::NONE;
    const KEY: ClusterKey = ClusterKey([7; 32]);
    const OTHER: ClusterKey = ClusterKey([8; 32]);

    /// A connection to a gate; what comes back is read in pieces.
    struct Connection<'a> {
        gate: Gate,
        key: Option<&'a ClusterKey>,
        sent: Vec<u8>,
        answers: Vec<u8>,
        result: Option<Result<Step, NotProven>>,
    }

    impl<'a> Connection<'a> {
        fn to(key: Option<&'a ClusterKey>) -> Self {
            Connection { gate: Gate::closed(), key, sent: Vec::new(), answers: Vec::new(), result: None }
        }

        fn step(&mut self) {
            loop {
                match self.gate.advance(self.key, DRIVER, &mut self.sent) {
                    Ok(Step::Answer(answer)) => self.answers.extend(answer),
                    Ok(Step::More) => return,
                    result => {
                        if let Err(NotProven { refusal: Some(refusal), .. }) = &result {
                            self.answers.extend(refusal);
                        }
                        self.result = Some(result);
                        return;
                    }
                }
            }
        }
    }

    impl Write for Connection<'_> {
        /// Byte by byte, so that the gate sees every piece of a frame.
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.sent.extend(&bytes[..1]);
            self.step();
            Ok(1)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Connection<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = into.len().min(self.answers.len()).min(7);
            into[..count].copy_from_slice(&self.answers[..count]);
            self.answers.drain(..count);
            Ok(count)
        }
    }

    fn code(result: Result<(), NotAccepted>) -> ErrorCode {
        match result {
            Err(NotAccepted::Refused(code, _)) => code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn whoever_has_the_key_passes() {
        let mut connection = Connection::to(Some(&KEY));
        prove(&mut connection, &KEY, DRIVER).unwrap();
        assert_eq!(connection.result, Some(Ok(Step::Passed)));
        // What follows is for others.
        connection.sent.extend([1, 2, 3]);
        assert_eq!(connection.gate.advance(Some(&KEY), DRIVER, &mut connection.sent), Ok(Step::Passed));
        assert_eq!(connection.sent, [1, 2, 3]);
        assert!(connection.answers.is_empty());
    }

    #[test]
    fn another_key_does_not_pass_and_both_sides_say_so() {
        assert_eq!(code(prove(&mut Connection::to(Some(&KEY)), &OTHER, DRIVER)), ErrorCode::WrongKey);
        assert_eq!(code(prove(&mut Connection::to(None), &KEY, DRIVER)), ErrorCode::WrongKey);
    }

    /// One that does not look at the answer sends a proof with another key.
    #[test]
    fn a_wrong_proof_does_not_pass() {
        let mut connection = Connection::to(Some(&KEY));
        let challenge = frame(SignalNumber::KeyChallengeRequest, DRIVER, |writer| {
            cold::write(writer, &KeyChallengeRequest::new([5; 32]));
        });
        connection.write_all(&challenge).unwrap();
        let answer = std::mem::take(&mut connection.answers);
        let confirm: KeyChallengeConfirm = cold::read(&Frame::first(&answer).unwrap().unwrap()).unwrap();
        let nonces = Nonces { connecting: [5; 32], listening: confirm.nonce };
        // Neither that of another key, nor that of the other side sent back.
        for proof in [proof::prove(&OTHER.0, Side::Connecting, &nonces), confirm.proof] {
            let order = frame(SignalNumber::KeyProofOrder, DRIVER, |writer| {
                cold::write(writer, &KeyProofOrder { proof });
            });
            let mut sent = order.clone();
            let mut gate = Gate(Stage::Challenged(nonces));
            let why = gate.advance(Some(&KEY), DRIVER, &mut sent).unwrap_err();
            assert_eq!((why.code, why.refusal), (ErrorCode::WrongKey, None));
        }
    }

    #[test]
    fn a_greeting_without_a_proof_passes_only_where_there_is_no_key() {
        let greeting = frame(SignalNumber::HelloRequest, DRIVER, |writer| cold::write(writer, &5u32));
        let mut bytes = greeting.clone();
        assert_eq!(Gate::closed().advance(None, DRIVER, &mut bytes), Ok(Step::Passed));
        assert_eq!(bytes, greeting);
        let why = Gate::closed().advance(Some(&KEY), DRIVER, &mut bytes).unwrap_err();
        assert_eq!((why.code, why.refusal), (ErrorCode::KeyRequired, None));
        // A proof without a challenge is nothing, and neither is a second challenge.
        let mut order = frame(SignalNumber::KeyProofOrder, DRIVER, |w| {
            cold::write(w, &KeyProofOrder { proof: [0; 32] });
        });
        let why = Gate::closed().advance(Some(&KEY), DRIVER, &mut order).unwrap_err();
        assert_eq!(why.code, ErrorCode::KeyRequired);
    }

    #[test]
    fn another_version_is_named() {
        let challenge =
            KeyChallengeRequest { version: PROTOCOL_VERSION + 1, ..KeyChallengeRequest::new([1; 32]) };
        let mut bytes =
            frame(SignalNumber::KeyChallengeRequest, DRIVER, |writer| cold::write(writer, &challenge));
        let why = Gate::closed().advance(Some(&KEY), DRIVER, &mut bytes).unwrap_err();
        assert_eq!(why.code, ErrorCode::WrongProtocol);
        assert!(why.refusal.is_some());
    }

    proptest! {
        #[test]
        fn garbage_never_passes(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            number in prop::sample::select(vec![0u16, 270, 273]),
            is_challenged in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if number != 0 && bytes.len() > 20 {
                bytes.truncate(bytes.len() / 4 * 4);
                let length = bytes.len() as u32;
                bytes[..4].copy_from_slice(&length.to_le_bytes());
                bytes[4..6].copy_from_slice(&number.to_le_bytes());
            }
            let nonces = Nonces { connecting: [1; 32], listening: [2; 32] };
            let mut gate = Gate(if is_challenged { Stage::Challenged(nonces) } else { Stage::Closed });
            prop_assert!(!matches!(gate.advance(Some(&KEY), DRIVER, &mut bytes), Ok(Step::Passed)));
        }
    }
}
