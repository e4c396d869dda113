//! Connections between a data node and clients on the same machine: shared memory instead of the network.
//!
//! The data node listens on a Unix socket in its folder. A connection carries exactly the stream of frames that a TCP
//! connection carries; only the transport of the bytes differs:
//!
//! ```text
//!   client                                                          data node
//!   connects, sends OFFER (8 bytes), then its greeting  --socket-->  admits it, makes the memory
//!                 takes the memory over  <--socket--  MEMORY (8 bytes) with two descriptors (SCM_RIGHTS)
//!   writes ==================== ring in the memory ===============>  reads
//!   reads  <=================== ring in the memory ================  writes, from HelloConfirm on
//!   wakes the node: adds to its eventfd --------------------------->  sleeps in epoll
//!   sleeps in poll  <------------------------------- wakes the client: one byte on the socket
//! ```
//! *Fallback.* A client has an ordinary stream of frames on the Unix socket if it does not send the offer, or if it
//! gets a frame in place of [`MEMORY`] (the node could not make memory, or it refuses the client). A client that sends
//! the offer sends nothing between its greeting and the answer to it.
//!
//! *The memory* ([`area`]) is a memfd that the node has made and sealed against every change of its size, so that no
//! client can make the node touch pages that do not exist. It holds two rings of bytes ([`pipe`]), one for each
//! direction, and for each side a word that says whether it sleeps. Its pages are allocated when they are first
//! written.
//!
//! *Trust.* Both sides ask the system whose process the other one is ([`credentials`]): the node admits those of its
//! own user, of root, and of a group that its configuration names; the client takes a node of its own user, of root, or
//! of the owner of the folder that the socket is in. From then on the client trusts the node. The node trusts nothing
//! that the client can write: it reads each index once, checks it against the capacity, and copies bytes out before it
//! examines them. A client that scribbles gets garbage into its own stream, or is disconnected.
//!
//! *Wake-ups.* A side that has moved bytes makes a system call only if the other side has declared that it sleeps. To
//! wake the node there is an eventfd, made by the node and given to the client; the node only ever polls it. The client
//! is woken by a byte on the socket, sent without ever waiting: an eventfd that a client holds, too, could be made to
//! block every writer, by filling its counter and taking `O_NONBLOCK` from it.
//!
//! *The end.* The socket stays open and carries nothing else. When it ends, as it does when the other process is
//! killed, a side reads what is left in its ring, and the connection is broken.
//!
//! # Testing
//! The model of rings and sleep checks every interleaving within a bound on preemptions:
//! `RUSTFLAGS="--cfg loom" cargo test -p vinga-local --release --test loom`.

pub mod area;
#[cfg(not(loom))]
pub mod credentials;
#[cfg(not(loom))]
pub mod link;
pub mod pipe;
#[cfg(not(loom))]
pub mod socket;
mod sync;
pub mod time_slices;

#[cfg(not(loom))]
pub use credentials::Credentials;
#[cfg(not(loom))]
pub use link::{ClientLink, First, MEMORY, NodeLink, OFFER, receive_first};
#[cfg(not(loom))]
pub use socket::Socket;
