//! A client that sends what it is asked to: whole frames, parts of frames, any bytes.
//!
//! It greets as an honest client does ([`RawClient::greet`]) and knows nothing of what its frames mean. Tests of data
//! nodes and the hostile load of `vinga bench` speak by it; programs use the crate `vinga`.

use std::fmt;
use std::io::{self, Read, Write};
use vinga_base::{Incarnation, NodeId};
use vinga_wire::frame::Frame;
use vinga_wire::handshake::{HelloConfirm, HelloRequest, MAGIC, Refusal};
use vinga_wire::protocol::Protocol;
use vinga_wire::view::ClusterView;
use vinga_wire::{Address, BlockNumber, ErrorCode, FrameWriter, SignalNumber, cold};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// The greeting of an honest client that wants any node id.
pub fn hello() -> HelloRequest {
    HelloRequest {
        magic: MAGIC,
        protocol: Protocol::own(),
        cluster: String::new(),
        node: 0,
        incarnation: 1,
        connection: 0,
        ticket: 0,
        connected: Vec::new(),
        admission: 0,
        lost: Vec::new(),
    }
}

/// The frame of a greeting.
pub fn greeting(hello: &HelloRequest) -> Vec<u8> {
    let mut bytes = Vec::new();
    let nobody = Address::NONE;
    cold::write(&mut FrameWriter::begin(&mut bytes, SignalNumber::HelloRequest, 0, nobody, nobody, 0), hello);
    bytes
}

/// Reads until the node closes the connection; returns why it says that it does. A reset counts as a close, and so does
/// a time-out of the stream.
pub fn read_to_close(stream: &mut impl Read) -> Option<ErrorCode> {
    let mut reader = FrameReader::default();
    let mut code = None;
    while let Ok(Some(reason)) = reader.next(stream, refusal) {
        code = reason.or(code);
    }
    code
}

/// Why a client was not admitted.
#[derive(Debug)]
pub enum NotAdmitted {
    /// The node says why.
    Refused(ErrorCode),
    /// It has closed the connection without a word, or what it sent is no answer.
    NoAnswer,
    /// The connection does not work.
    Io(io::Error),
}

impl NotAdmitted {
    /// What the node says.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            NotAdmitted::Refused(code) => Some(*code),
            NotAdmitted::NoAnswer | NotAdmitted::Io(_) => None,
        }
    }
}

impl fmt::Display for NotAdmitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAdmitted::Refused(code) => write!(f, "not admitted: {code}"),
            NotAdmitted::NoAnswer => f.write_str("the node does not answer the greeting"),
            NotAdmitted::Io(error) => write!(f, "no answer to the greeting: {error}"),
        }
    }
}

impl std::error::Error for NotAdmitted {}

/// Frames out of a stream of bytes.
#[derive(Default, Debug)]
struct FrameReader {
    received: Vec<u8>,
    /// Bytes at the front that have been handled.
    handled: usize,
}

impl FrameReader {
    /// Shows the next frame; `None` when the stream has ended.
    fn next<T>(
        &mut self,
        stream: &mut impl Read,
        look: impl FnOnce(&Frame<'_>) -> T,
    ) -> io::Result<Option<T>> {
        loop {
            match Frame::first(&self.received[self.handled..]) {
                Ok(Some(frame)) => {
                    let seen = look(&frame);
                    self.handled += frame.length();
                    return Ok(Some(seen));
                }
                Ok(None) => {}
                Err(_) => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the node does not send frames"));
                }
            }
            self.received.drain(..self.handled);
            self.handled = 0;
            let filled = self.received.len();
            self.received.resize(filled + PIECE_BYTES, 0);
            let read = stream.read(&mut self.received[filled..]);
            self.received.truncate(filled + *read.as_ref().unwrap_or(&0));
            if read? == 0 {
                return Ok(None);
            }
        }
    }
}

/// The reason that a refusal of a greeting, or a node's last frame, gives.
fn refusal(frame: &Frame<'_>) -> Option<ErrorCode> {
    if frame.signal() != Some(SignalNumber::HelloRefuse) {
        return None;
    }
    let refusal: Refusal = cold::read(frame)?;
    ErrorCode::from_number(refusal.code)
}

/// A connection that has been admitted.
#[derive(Debug)]
pub struct RawClient<S> {
    /// What carries the bytes.
    pub stream: S,
    /// The node id that the client was given.
    pub api: NodeId,
    /// The incarnation with which it has greeted.
    pub incarnation: Incarnation,
    /// The data node.
    pub node: NodeId,
    /// By which the data node knows the session.
    pub ticket: u64,
    /// The cluster as the data node sees it.
    pub view: ClusterView,
    reader: FrameReader,
}

impl<S: Read + Write> RawClient<S> {
    /// Greets on a new connection, and waits for the answer.
    ///
    /// # Errors
    /// The client is not admitted.
    pub fn greet(mut stream: S, hello: &HelloRequest) -> Result<Self, NotAdmitted> {
        stream.write_all(&greeting(hello)).map_err(NotAdmitted::Io)?;
        let mut reader = FrameReader::default();
        let look = |frame: &Frame<'_>| match frame.signal() {
            Some(SignalNumber::HelloConfirm) => cold::read(frame).ok_or(NotAdmitted::NoAnswer),
            _ => Err(refusal(frame).map_or(NotAdmitted::NoAnswer, NotAdmitted::Refused)),
        };
        let answer = reader.next(&mut stream, look).map_err(NotAdmitted::Io)?;
        let HelloConfirm { api, node, ticket, view, api_incarnation, .. } =
            answer.ok_or(NotAdmitted::NoAnswer)??;
        let (api, node, incarnation) = (NodeId(api), NodeId(node), Incarnation(api_incarnation));
        Ok(RawClient { stream, api, incarnation, node, ticket, view, reader })
    }

    /// The client's own address.
    pub fn own(&self) -> Address {
        Address::new(self.api, BlockNumber::Api, 0)
    }

    /// Appends a frame for an instance of a block of the data node.
    pub fn frame(
        &self,
        out: &mut Vec<u8>,
        signal: SignalNumber,
        to: (BlockNumber, u16),
        body: impl FnOnce(&mut FrameWriter<'_>),
    ) {
        self.traced_frame(out, signal, to, 0, body);
    }

    /// The same with a number that answers repeat.
    pub fn traced_frame(
        &self,
        out: &mut Vec<u8>,
        signal: SignalNumber,
        (block, instance): (BlockNumber, u16),
        trace: u32,
        body: impl FnOnce(&mut FrameWriter<'_>),
    ) {
        let to = Address::new(self.node, block, instance);
        body(&mut FrameWriter::begin(out, signal, 0, to, self.own(), trace));
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// The connection is closed, or the node does not read.
    pub fn send(
        &mut self,
        signal: SignalNumber,
        to: (BlockNumber, u16),
        body: impl FnOnce(&mut FrameWriter<'_>),
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.frame(&mut bytes, signal, to, body);
        self.stream.write_all(&bytes)
    }

    /// Waits for the next frame and shows it; `None` if the node has closed the connection.
    ///
    /// # Errors
    /// Those of the stream; `InvalidData` if the bytes are no frames.
    pub fn receive<T>(&mut self, look: impl FnOnce(&Frame<'_>) -> T) -> io::Result<Option<T>> {
        self.reader.next(&mut self.stream, look)
    }

    /// Reads on until the node closes the connection; returns why it says that it does.
    pub fn last_words(&mut self) -> Option<ErrorCode> {
        let mut code = None;
        while let Ok(Some(reason)) = self.receive(refusal) {
            code = reason.or(code);
        }
        code
    }
}
