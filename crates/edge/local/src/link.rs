//! How the two sides of a local connection agree on shared memory, and each side's part of it.

use crate::area::Area;
use crate::pipe::{Moved, Receiver, Scribbled, Sender, Side, ends};
use crate::socket::Socket;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// What a client sends before its greeting if it can use shared memory. Read as the length of a frame it is too large,
/// so no client begins with these bytes by chance.
pub const OFFER: [u8; 8] = *b"VNG-OFFR";

/// The node's reply to such a client when it has admitted it, with the descriptors of the memory and of the eventfd
/// that wakes the node.
pub const MEMORY: [u8; 8] = *b"VNG-MEMY";

/// The node's part of a local connection.
pub struct NodeLink {
    /// Bytes to the client.
    pub sender: Sender,
    /// Bytes from the client.
    pub receiver: Receiver,
    /// Becomes readable when the client wakes the node. To be polled edge-triggered, and never to be read.
    pub wake_event: OwnedFd,
    /// Given to the client and then closed.
    memory: Option<OwnedFd>,
}

impl NodeLink {
    /// Makes new memory.
    ///
    /// # Errors
    /// The system has no memory or descriptor left.
    pub fn make() -> io::Result<Self> {
        let (area, memory) = Area::make()?;
        let wake_event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (sender, receiver) = ends(Arc::new(area), Side::Node);
        Ok(NodeLink { sender, receiver, wake_event, memory: Some(memory) })
    }

    /// Gives the memory to the client at the other end of this socket. To be called once.
    ///
    /// # Errors
    /// The socket does not take it.
    pub fn introduce(&mut self, socket: &Socket) -> io::Result<()> {
        let memory = self.memory.take().expect("the memory is handed over once");
        let descriptors = [memory.as_fd(), self.wake_event.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(
            control.push(SendAncillaryMessage::ScmRights(&descriptors)),
            "the space is for two descriptors"
        );
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(socket, &[IoSlice::new(&MEMORY)], &mut control, flags)? {
            count if count == MEMORY.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

/// The client's part of a local connection.
pub struct ClientLink {
    sender: Sender,
    receiver: Receiver,
    event: Arc<OwnedFd>,
}

/// The first input from the node.
pub enum First {
    /// Nothing yet.
    Nothing,
    /// This many bytes, which are the beginning of a frame: there is no shared memory.
    Bytes(usize),
    /// The shared memory, which carries all that follows.
    Memory(Box<ClientLink>),
    /// The node has closed the connection.
    Ended,
}

/// Reads the first input from the node to a client that has sent [`OFFER`]. `buffer` has room for [`MEMORY`].
///
/// # Errors
/// The system's, or the input is invalid.
pub fn receive_first(socket: &Socket, buffer: &mut [u8]) -> io::Result<First> {
    let buffer = &mut buffer[..MEMORY.len()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC);
    let received = match received {
        Ok(received) => received,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(First::Nothing),
        Err(why) => return Err(why.into()),
    };
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<OwnedFd> = descriptors.by_ref().flatten().collect();
    if received.bytes == 0 {
        return Ok(First::Ended);
    }
    if buffer[..received.bytes] != MEMORY {
        return Ok(First::Bytes(received.bytes));
    }
    let Ok([memory, event]) = <[OwnedFd; 2]>::try_from(descriptors) else {
        let why = match received.flags.contains(ReturnFlags::CTRUNC) {
            true => "the process has no descriptors left for the shared memory",
            false => "the shared memory has not come with the message that announces it",
        };
        return Err(io::Error::other(why));
    };
    let (sender, receiver) = ends(Arc::new(Area::map(&memory)?), Side::Client);
    Ok(First::Memory(Box::new(ClientLink { sender, receiver, event: Arc::new(event) })))
}

impl ClientLink {
    /// Writes as many of these bytes as there is room for. If the node sleeps, the caller must call [`ring`].
    ///
    /// # Errors
    /// The memory holds impossible positions: the connection is broken.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Result<Moved, Scribbled> {
        self.sender.write(bytes)
    }

    /// Reads the bytes that have arrived. If the node sleeps, the caller must call [`ring`].
    ///
    /// # Errors
    /// As for [`ClientLink::write`].
    #[inline]
    pub fn read(&mut self, into: &mut [u8]) -> Result<Moved, Scribbled> {
        self.receiver.read(into)
    }

    /// Whether bytes have arrived.
    #[inline]
    pub fn has_input(&self) -> bool {
        self.receiver.has_input()
    }

    /// See [`Receiver::begin_sleep`].
    pub fn begin_sleep(&self, wants: u32) -> bool {
        self.receiver.begin_sleep(&self.sender, wants)
    }

    /// See [`Receiver::end_sleep`].
    pub fn end_sleep(&self) {
        self.receiver.end_sleep();
    }

    /// The event by which [`ring`] wakes the node.
    pub fn event(&self) -> &Arc<OwnedFd> {
        &self.event
    }
}

/// Wakes the node.
pub fn signal(event: &OwnedFd) {
    // It can only fail if it was rung 2^64 - 2 times, and then the node is awake.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}
