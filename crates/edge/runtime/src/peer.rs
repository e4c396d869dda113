//! Who is at the other end of a connection, for the log.

use std::fmt;
use std::net::SocketAddr;

/// See the head of this file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    /// Somebody in the network.
    Remote(SocketAddr),
    /// A process on this machine, by its id.
    Local(i32),
}

impl Peer {
    /// Whether it is on this machine and has come by the local socket.
    pub fn is_local(self) -> bool {
        matches!(self, Peer::Local(_))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Remote(address) => write!(out, "{address}"),
            Peer::Local(process) => write!(out, "process {process} on this machine"),
        }
    }
}
