//! The greeting of a connection: what is accepted, and the frames of the answer.

use vinga_base::NodeId;
use vinga_wire::handshake::{HelloConfirm, HelloRequest, MAGIC, Refusal};
use vinga_wire::protocol::Protocol;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, FrameWriter, SignalNumber, cold};

/// Bytes of a greeting, at most: a name of 255 bytes fits several times.
pub(crate) const GREETING_BYTES_MAX: usize = 1024;

/// Why a connection is not admitted, and the detail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NotAdmitted {
    pub code: ErrorCode,
    pub detail: String,
    /// The frame that refuses it, if it has not greeted yet and expects another one than [`refuse_frame`] makes.
    pub refusal: Option<Vec<u8>>,
}

impl NotAdmitted {
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        NotAdmitted { code, detail: detail.into(), refusal: None }
    }
}

/// What a greeting is checked against.
pub(crate) struct Expected<'a> {
    /// The data node itself.
    pub node: NodeId,
    /// The cluster's name.
    pub cluster: &'a str,
    /// Connections that an API node may open.
    pub connections: u16,
}

/// A client's greeting at the beginning of `bytes` and how long it is; `None` if it is not all there yet.
pub(crate) fn read(
    bytes: &[u8],
    expected: &Expected<'_>,
) -> Result<Option<(HelloRequest, usize)>, NotAdmitted> {
    let bad = |detail: &str| NotAdmitted::new(ErrorCode::BadHandshake, detail);
    // A stray client's first bytes, read as a length, are far off: it gets the refusal before it waits for an answer.
    if let Some(length) = bytes.first_chunk::<4>() {
        let length = u32::from_le_bytes(*length);
        if length as usize > GREETING_BYTES_MAX {
            return Err(bad(&format!(
                "its first frame would have {length} bytes, a greeting has {GREETING_BYTES_MAX} at most"
            )));
        }
    }
    let Some(frame) = Frame::first(bytes).map_err(|_| bad("its first bytes are no frame"))? else {
        return Ok(None);
    };
    if frame.signal() != Some(SignalNumber::HelloRequest) {
        return Err(bad(&format!("its first frame is signal {}, no greeting", frame.header.number.get())));
    }
    // If the greeting has another version, only its beginning can be relied on.
    let (magic, protocol) =
        cold::read::<(u64, Protocol)>(&frame).ok_or_else(|| bad("the greeting can't be read"))?;
    if magic != MAGIC {
        return Err(bad("the greeting is not Vinga's"));
    }
    Protocol::own().common(protocol).map_err(|detail| NotAdmitted::new(ErrorCode::WrongProtocol, detail))?;
    let hello: HelloRequest = cold::read(&frame).ok_or_else(|| bad("the greeting can't be read"))?;
    if !hello.cluster.is_empty() && hello.cluster != expected.cluster {
        let detail = format!("this is cluster \"{}\"", expected.cluster);
        return Err(NotAdmitted::new(ErrorCode::WrongCluster, detail));
    }
    if hello.connected.contains(&expected.node.0) {
        let detail = format!("data node {}", expected.node);
        return Err(NotAdmitted::new(ErrorCode::SameDataNode, detail));
    }
    if hello.connection >= expected.connections {
        let (asked, allowed) = (hello.connection, expected.connections);
        return Err(bad(&format!("connection {asked} was asked for, there are {allowed}, from 0")));
    }
    Ok(Some((hello, frame.length())))
}

/// The frame that confirms a client's admission.
pub(crate) fn confirm_frame(driver: Address, confirm: &HelloConfirm) -> Vec<u8> {
    answer_frame(SignalNumber::HelloConfirm, driver, NodeId(confirm.api), |writer| {
        cold::write(writer, confirm);
    })
}

/// The frame that refuses a client.
pub(crate) fn refuse_frame(driver: Address, why: &NotAdmitted) -> Vec<u8> {
    if let Some(refusal) = &why.refusal {
        return refusal.clone();
    }
    let request = if why.code == ErrorCode::SameDataNode { u32::from(driver.node().0) } else { 0 };
    let refusal = Refusal { request, code: why.code as u16, detail: why.detail.clone() };
    answer_frame(SignalNumber::HelloRefuse, driver, NodeId(0), |writer| {
        cold::write(writer, &refusal);
    })
}

fn answer_frame(
    number: SignalNumber,
    driver: Address,
    api: NodeId,
    write: impl FnOnce(&mut FrameWriter<'_>),
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let receiver = Address::new(api, BlockNumber::Api, 0);
    write(&mut FrameWriter::begin(&mut bytes, number, 0, receiver, driver, 0));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vinga_wire::protocol::PROTOCOL_VERSION;

    const EXPECTED: Expected<'_> = Expected { node: NodeId(7), cluster: "north", connections: 2 };
    const NOBODY: Address = Address::NONE;

    fn hello() -> HelloRequest {
        HelloRequest {
            magic: MAGIC,
            protocol: Protocol::own(),
            cluster: "north".to_string(),
            node: 0,
            incarnation: 5,
            connection: 1,
            ticket: 0,
            connected: vec![6],
            admission: 0,
            lost: Vec::new(),
        }
    }

    fn greeting(hello: &HelloRequest) -> Vec<u8> {
        answer_frame(SignalNumber::HelloRequest, NOBODY, NodeId(0), |writer| cold::write(writer, hello))
    }

    fn refused(hello: &HelloRequest) -> ErrorCode {
        read(&greeting(hello), &EXPECTED).unwrap_err().code
    }

    #[test]
    fn a_greeting_is_read_when_it_is_whole() {
        let bytes = greeting(&hello());
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut], &EXPECTED), Ok(None));
        }
        assert_eq!(read(&bytes, &EXPECTED), Ok(Some((hello(), bytes.len()))));
        let anonymous = HelloRequest { cluster: String::new(), ..hello() };
        assert!(read(&greeting(&anonymous), &EXPECTED).unwrap().is_some());
    }

    #[test]
    fn what_is_no_greeting_is_refused() {
        assert_eq!(refused(&HelloRequest { magic: 1, ..hello() }), ErrorCode::BadHandshake);
        assert_eq!(
            refused(&HelloRequest {
                protocol: Protocol { version: PROTOCOL_VERSION + 1, oldest: PROTOCOL_VERSION + 1 },
                ..hello()
            }),
            ErrorCode::WrongProtocol
        );
        assert_eq!(refused(&HelloRequest { cluster: "south".into(), ..hello() }), ErrorCode::WrongCluster);
        assert_eq!(refused(&HelloRequest { connection: 2, ..hello() }), ErrorCode::BadHandshake);
        assert_eq!(refused(&HelloRequest { connected: vec![6, 7], ..hello() }), ErrorCode::SameDataNode);
        let other = answer_frame(SignalNumber::HeartbeatRequest, NOBODY, NodeId(0), |_| {});
        assert_eq!(read(&other, &EXPECTED).unwrap_err().code, ErrorCode::BadHandshake);
        assert_eq!(read(b"GET / HTTP/1.1\r\n", &EXPECTED).unwrap_err().code, ErrorCode::BadHandshake);
        assert!(
            read(&refuse_frame(NOBODY, &NotAdmitted::new(ErrorCode::Overloaded, "")), &EXPECTED).is_err()
        );
    }

    proptest! {
        #[test]
        fn garbage_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), whole in any::<bool>()) {
            if whole && bytes.len() > 20 {
                // Bytes that pass for a greeting's frame.
                bytes.truncate(bytes.len() / 4 * 4);
                let length = bytes.len() as u32;
                bytes[..4].copy_from_slice(&length.to_le_bytes());
                bytes[4..6].copy_from_slice(&(SignalNumber::HelloRequest as u16).to_le_bytes());
            }
            prop_assert!(!matches!(read(&bytes, &EXPECTED), Ok(Some(_))));
        }
    }
}
