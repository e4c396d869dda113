//! The other end of a connection, for the log.

use std::fmt;
use std::net::SocketAddr;

/// The other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    /// A peer in the network.
    Remote(SocketAddr),
    /// A process on this machine, by its id.
    Local(i32),
}

impl Peer {
    /// Whether it is on this machine and has connected by the local socket.
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
