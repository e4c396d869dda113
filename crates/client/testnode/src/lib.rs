//! A data node for the tests of clients: it speaks the whole protocol of an API node and stores rows in a map.
//!
//! [`ScriptedNode`] is the node without the world: a test decides when which of its answers arrive, and when it breaks.
//! [`start`] puts one behind a port of this machine.
//!
//! It knows no locks and no time-outs.

mod scripted_node;
mod server;
mod store;

pub use scripted_node::{Layout, ScriptedNode};
pub use server::{TestNode, start, start_with};
