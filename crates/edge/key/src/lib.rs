//! The key of a cluster: whoever connects by TCP proves that it knows it, and so does whoever listens, before anything
//! else is said.
//!
//! Each side sends the other one a number that nobody can foretell, and gets the HMAC of both numbers back, and of what
//! the connection is for: its purpose, the nodes at its ends, and the address that it was opened to. So a process
//! without the key can't have it proven to itself for another connection. Whoever listens proves first: so a client
//! with another key, or at another cluster's address, learns that. What is said afterwards is not protected: whoever
//! can change packets on their way can take a connection over. That needs TLS, for which the greeting leaves room.
//!
//! The protocol is described in `docs/protocols/cluster-key.md`, its frames in [`vinga_wire::key`].

mod file;
mod gate;
mod open_port;
mod proof;
mod prove;

pub use file::{BadKeyFile, ClusterKey, make_secret};
pub use gate::{Gate, Listening, NotProven, Step};
pub use open_port::key_of_node;
pub use prove::{NotAccepted, prove};
