//! Gates are asked by whoever has the key, by those that have not, and by those in between.

use super::*;
use crate::prove::{NotAccepted, prove};
use proptest::prelude::*;
use std::io::{self, Read, Write};
use vinga_wire::BlockNumber;
use vinga_wire::key::ConnectionPurpose;
use vinga_wire::protocol::PROTOCOL_VERSION;

const KEY: ClusterKey = ClusterKey([7; 32]);
const OTHER: ClusterKey = ClusterKey([8; 32]);

fn driver(node: u8) -> Address {
    Address::new(NodeId(node), BlockNumber::Driver, 0)
}

/// Data node 1 of the cluster "north".
fn listening(key: Option<&ClusterKey>) -> Listening<'_> {
    Listening { key, kind: NodeKind::Data, driver: driver(1), cluster: "north" }
}

fn reached() -> SocketAddr {
    "10.0.0.1:2202".parse().unwrap()
}

/// What data node 2 wants of data node 1.
fn link() -> ConnectionTerms {
    ConnectionTerms::new(ConnectionPurpose::Link, NodeId(2), NodeId(1), "north").to(reached())
}

fn client() -> ConnectionTerms {
    ConnectionTerms::new(ConnectionPurpose::Client, NodeId(0), NodeId(0), "").to(reached())
}

/// A connection to a gate; what comes back is read in pieces.
struct Connection<'a> {
    gate: Gate,
    own: Listening<'a>,
    sent: Vec<u8>,
    answers: Vec<u8>,
    result: Option<Result<Step, NotProven>>,
    /// What somebody in between makes of the terms.
    altered: Option<ConnectionTerms>,
}

impl<'a> Connection<'a> {
    fn to(own: Listening<'a>) -> Self {
        let gate = Gate::closed(Some(reached()));
        Connection { gate, own, sent: Vec::new(), answers: Vec::new(), result: None, altered: None }
    }

    fn step(&mut self) {
        loop {
            match self.gate.advance(&self.own, &mut self.sent) {
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
        if let Some(terms) = self.altered.take() {
            let frame = Frame::first(bytes).unwrap().unwrap();
            let challenge: KeyChallengeRequest = cold::read(&frame).unwrap();
            self.sent.extend(challenge_with(&KeyChallengeRequest { terms, ..challenge }));
            self.step();
            return Ok(bytes.len());
        }
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

fn challenge_with(challenge: &KeyChallengeRequest) -> Vec<u8> {
    frame(SignalNumber::KeyChallengeRequest, driver(2), |writer| cold::write(writer, challenge))
}

fn greeting(number: SignalNumber) -> Vec<u8> {
    frame(number, driver(2), |writer| cold::write(writer, &5u32))
}

#[test]
fn whoever_has_the_key_passes_and_greets() {
    let mut connection = Connection::to(listening(Some(&KEY)));
    prove(&mut connection, &KEY, driver(2), link()).unwrap();
    assert_eq!(connection.result, None, "the greeting is awaited");
    let greeting = greeting(SignalNumber::NodeHelloRequest);
    connection.sent.extend(&greeting);
    connection.step();
    assert_eq!(connection.result, Some(Ok(Step::Passed)));
    // That, and what follows, is for others.
    assert_eq!(connection.sent, greeting);
    connection.sent.extend([1, 2, 3]);
    assert_eq!(connection.gate.advance(&connection.own, &mut connection.sent), Ok(Step::Passed));
    assert_eq!(connection.sent.len(), greeting.len() + 3);
    assert!(connection.answers.is_empty());
    // Only the node that has proven it may greet.
    assert_eq!(connection.gate.check_sender(NodeId(2)), Ok(()));
    assert_eq!(connection.gate.check_sender(NodeId(3)).unwrap_err().code, ErrorCode::KeyForAnother);
}

#[test]
fn another_key_does_not_pass_and_both_sides_say_so() {
    let asked = |own, key| code(prove(&mut Connection::to(own), key, driver(2), link()));
    assert_eq!(asked(listening(Some(&KEY)), &OTHER), ErrorCode::WrongKey);
    assert_eq!(asked(listening(None), &KEY), ErrorCode::WrongKey);
}

/// Whatever another node, address, purpose or cluster is meant: the gate proves nothing.
#[test]
fn a_connection_that_is_for_another_node_is_refused() {
    let new = |purpose, receiver| ConnectionTerms::new(purpose, NodeId(2), NodeId(receiver), "north");
    let link = |receiver| new(ConnectionPurpose::Link, receiver);
    for (terms, expected) in [
        (link(2).to(reached()), ErrorCode::KeyForAnother),
        (link(1).to("10.0.0.1:2203".parse().unwrap()), ErrorCode::KeyForAnother),
        (link(1).to("10.0.0.2:2202".parse().unwrap()), ErrorCode::KeyForAnother),
        (client().to("127.0.0.1:2202".parse().unwrap()), ErrorCode::KeyForAnother),
        (new(ConnectionPurpose::Arbitration, 1).to(reached()), ErrorCode::KeyForAnother),
        (new(ConnectionPurpose::Configuration, 0).to(reached()), ErrorCode::KeyForAnother),
        (ConnectionTerms { cluster: "south".to_string(), ..client() }, ErrorCode::WrongCluster),
    ] {
        let mut connection = Connection::to(listening(Some(&KEY)));
        connection.write_all(&challenge_with(&KeyChallengeRequest::new([1; 32], terms.clone()))).unwrap();
        let Some(Err(why)) = &connection.result else { panic!("{terms:?}") };
        assert_eq!(why.code, expected, "{why:?}");
        assert_eq!(why.refusal.as_ref(), Some(&connection.answers), "nothing else is answered");
        assert_eq!(code(prove(&mut Connection::to(connection.own), &KEY, driver(2), terms)), expected);
    }
    // The same at a management node.
    let own = Listening { kind: NodeKind::Management, ..listening(Some(&KEY)) };
    for terms in [link(1), client()] {
        assert_eq!(code(prove(&mut Connection::to(own), &KEY, driver(2), terms)), ErrorCode::KeyForAnother);
    }
    // One that the system gives no address for is nobody's.
    let mut gate = Gate::closed(None);
    let mut bytes = challenge_with(&KeyChallengeRequest::new([1; 32], client()));
    assert_eq!(gate.advance(&own, &mut bytes).unwrap_err().code, ErrorCode::KeyForAnother);
}

/// Somebody in between tells the gate what it takes. Then the proofs do not fit: not the gate's for whoever connects...
#[test]
fn whoever_connects_takes_no_proof_for_other_terms() {
    for altered in [
        client(),
        ConnectionTerms { sender: NodeId(3), ..link() },
        ConnectionTerms { receiver: NodeId(0), ..link() },
        ConnectionTerms { address: None, ..link() },
        ConnectionTerms { cluster: String::new(), ..link() },
    ] {
        let mut connection = Connection::to(listening(Some(&KEY)));
        connection.altered = Some(altered);
        let meant = ConnectionTerms { receiver: NodeId(3), ..link() };
        assert_eq!(code(prove(&mut connection, &KEY, driver(2), meant)), ErrorCode::WrongKey);
        assert!(connection.result.is_none() && connection.sent.is_empty(), "it has proven nothing");
    }
}

/// ... and not those of whoever connects for the gate.
#[test]
fn a_gate_takes_no_proof_for_other_terms() {
    let own = listening(Some(&KEY));
    for meant in [
        client(),
        ConnectionTerms { sender: NodeId(3), ..link() },
        ConnectionTerms { receiver: NodeId(3), ..link() },
        link().to("10.0.0.1:2203".parse().unwrap()),
    ] {
        let subject = Subject { terms: link(), connecting: [1; 32], listening: [2; 32] };
        let other = Subject { terms: meant, ..subject.clone() };
        let proof = proof::prove(&KEY.0, Side::Connecting, &other);
        let mut sent =
            frame(SignalNumber::KeyProofOrder, driver(2), |w| cold::write(w, &KeyProofOrder { proof }));
        let mut gate = Gate { stage: Stage::Challenged(subject), reached: Some(reached()) };
        assert_eq!(gate.advance(&own, &mut sent).unwrap_err().code, ErrorCode::WrongKey);
    }
}

#[test]
fn a_connection_is_used_for_what_it_was_proven_for() {
    for (kind, terms) in [
        (NodeKind::Data, client()),
        (NodeKind::Data, link()),
        (NodeKind::Management, ConnectionTerms { purpose: ConnectionPurpose::Arbitration, ..link() }),
        (NodeKind::Management, ConnectionTerms { purpose: ConnectionPurpose::Configuration, ..link() }),
    ] {
        for greeted in ConnectionPurpose::ALL {
            let mut connection = Connection::to(Listening { kind, ..listening(Some(&KEY)) });
            prove(&mut connection, &KEY, driver(2), terms.clone()).unwrap();
            connection.sent.extend(greeting(greeted.greeting()));
            connection.step();
            if greeted == terms.purpose {
                assert_eq!(connection.result, Some(Ok(Step::Passed)));
                continue;
            }
            let Some(Err(why)) = connection.result else { panic!("{greeted}") };
            assert_eq!((why.code, why.refusal), (ErrorCode::KeyForAnother, None));
        }
    }
}

/// One that does not look at the answer sends a proof with another key.
#[test]
fn a_wrong_proof_does_not_pass() {
    let mut connection = Connection::to(listening(Some(&KEY)));
    connection.write_all(&challenge_with(&KeyChallengeRequest::new([5; 32], link()))).unwrap();
    let answer = std::mem::take(&mut connection.answers);
    let confirm: KeyChallengeConfirm = cold::read(&Frame::first(&answer).unwrap().unwrap()).unwrap();
    let subject = Subject { terms: link(), connecting: [5; 32], listening: confirm.nonce };
    // Neither that of another key, nor that of the other side sent back.
    for proof in [proof::prove(&OTHER.0, Side::Connecting, &subject), confirm.proof] {
        let mut sent = frame(SignalNumber::KeyProofOrder, driver(2), |writer| {
            cold::write(writer, &KeyProofOrder { proof });
        });
        let mut gate = Gate { stage: Stage::Challenged(subject.clone()), reached: None };
        let why = gate.advance(&connection.own, &mut sent).unwrap_err();
        assert_eq!((why.code, why.refusal), (ErrorCode::WrongKey, None));
    }
}

#[test]
fn a_greeting_without_a_proof_passes_only_where_there_is_no_key() {
    let greeting = greeting(SignalNumber::HelloRequest);
    let mut bytes = greeting.clone();
    let mut gate = Gate::closed(None);
    assert_eq!(gate.advance(&listening(None), &mut bytes), Ok(Step::Passed));
    assert_eq!((&bytes, gate.check_sender(NodeId(9))), (&greeting, Ok(())));
    let own = listening(Some(&KEY));
    let why = Gate::closed(None).advance(&own, &mut bytes).unwrap_err();
    assert_eq!((why.code, why.refusal), (ErrorCode::KeyRequired, None));
    // A proof without a challenge is nothing, and neither is a second challenge.
    let mut order = frame(SignalNumber::KeyProofOrder, driver(2), |w| {
        cold::write(w, &KeyProofOrder { proof: [0; 32] });
    });
    let why = Gate::closed(None).advance(&own, &mut order).unwrap_err();
    assert_eq!(why.code, ErrorCode::KeyRequired);
}

#[test]
fn another_version_is_named() {
    let challenge = KeyChallengeRequest {
        protocol: Protocol { version: PROTOCOL_VERSION + 1, oldest: PROTOCOL_VERSION + 1 },
        ..KeyChallengeRequest::new([1; 32], client())
    };
    let mut bytes = challenge_with(&challenge);
    let why = Gate::closed(Some(reached())).advance(&listening(Some(&KEY)), &mut bytes).unwrap_err();
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
        let subject = Subject { terms: client(), connecting: [1; 32], listening: [2; 32] };
        let stage = if is_challenged { Stage::Challenged(subject) } else { Stage::Closed };
        let mut gate = Gate { stage, reached: Some(reached()) };
        prop_assert!(!matches!(gate.advance(&listening(Some(&KEY)), &mut bytes), Ok(Step::Passed)));
    }
}
