//! A client that can send arbitrary bytes.

use crate::failure::{Context, Failure, Result};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use vinga::Table;
use vinga_base::NodeId;
use vinga_base::hash::KeyHash;
use vinga_wire::frame::Frame;
use vinga_wire::handshake::{HelloConfirm, HelloRequest, MAGIC, PROTOCOL_VERSION};
use vinga_wire::view::ClusterView;
use vinga_wire::{Address, BlockNumber, FrameWriter, SignalNumber, cold};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection without a greeting.
///
/// # Errors
/// The system's.
pub fn connect(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(PATIENCE)).context(|| "cannot set a time-out".into())?;
    stream.set_write_timeout(Some(PATIENCE)).context(|| "cannot set a time-out".into())?;
    Ok(stream)
}

/// A greeting, modified by `change`.
pub fn greeting(change: impl FnOnce(&mut HelloRequest)) -> Vec<u8> {
    let mut hello = HelloRequest {
        magic: MAGIC,
        version: PROTOCOL_VERSION,
        cluster: String::new(),
        node: 0,
        incarnation: 7,
        connection: 0,
        ticket: 0,
    };
    change(&mut hello);
    let mut bytes = vec![];
    let nobody = Address::new(NodeId(0), BlockNumber::Api, 0);
    cold::write(
        &mut FrameWriter::begin(&mut bytes, SignalNumber::HelloRequest, 0, nobody, nobody, 0),
        &hello,
    );
    bytes
}

/// Reads until the node closes the connection, or for a while. A reset counts as a close.
pub fn read_to_close(stream: &mut TcpStream) {
    let mut piece = [0; 4096];
    while matches!(stream.read(&mut piece), Ok(n) if n > 0) {}
}

/// A connection that has been admitted.
pub struct Raw {
    /// The socket.
    pub stream: TcpStream,
    /// The address that the node gave.
    pub own: Address,
    /// The data node.
    pub node: NodeId,
    /// Who owns which partition.
    view: ClusterView,
    /// Received bytes that were not handled yet.
    received: Vec<u8>,
}

impl Raw {
    /// Connects and is admitted.
    ///
    /// # Errors
    /// It is refused, as happens when all node ids are taken.
    pub fn greet(address: &str) -> Result<Self> {
        let nobody = Address::new(NodeId(0), BlockNumber::Api, 0);
        let stream = connect(address)?;
        let (view, received) = (ClusterView::default(), Vec::new());
        let mut raw = Raw { stream, own: nobody, node: NodeId(0), view, received };
        raw.say(&greeting(|_| ()))?;
        raw.receive(|frame| {
            let confirm: HelloConfirm = cold::read(frame).ok_or_else(|| Failure::new("not admitted"))?;
            Ok(confirm)
        })
        .map(|confirm| Raw {
            own: Address::new(NodeId(confirm.api), BlockNumber::Api, 0),
            node: NodeId(confirm.node),
            view: confirm.view,
            ..raw
        })
    }

    /// The partition of a key of a table, and the data manager that owns it.
    pub fn place_of(&self, table: &Table, key: &[u8]) -> (u16, u16) {
        let partition = table.core().partitions().of(KeyHash::of(key));
        (partition.0, self.view.partition(partition).owner.instance())
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The connection is closed, or the node does not read.
    pub fn say(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context(|| "the node does not read".into())
    }

    /// Appends a frame to a block's instance.
    pub fn frame(
        &self,
        out: &mut Vec<u8>,
        signal: SignalNumber,
        (block, instance): (BlockNumber, u16),
        body: impl FnOnce(&mut FrameWriter<'_>),
    ) {
        let to = Address::new(self.node, block, instance);
        body(&mut FrameWriter::begin(out, signal, 1, to, self.own, 0));
    }

    /// Waits for a frame.
    ///
    /// # Errors
    /// The connection is closed, or nothing arrives.
    pub fn receive<T>(&mut self, read: impl FnOnce(&Frame<'_>) -> Result<T>) -> Result<T> {
        let mut piece = [0; 16 << 10];
        loop {
            match Frame::first(&self.received) {
                Ok(Some(frame)) => {
                    let (length, result) = (frame.length(), read(&frame));
                    self.received.drain(..length);
                    return result;
                }
                Ok(None) => {}
                Err(_) => return Err(Failure::new("the node does not send frames")),
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(Failure::new("the node has closed the connection")),
                Ok(n) => self.received.extend_from_slice(&piece[..n]),
                Err(error) => return Err(Failure::new(format!("no answer: {error}"))),
            }
        }
    }
}
