//! The innermost layer: what every other crate of Vinga uses. It depends on none of them.
//!
//! Identifiers are newtypes, memory comes from pools that can refuse, a table's definition decides the byte layout of
//! its rows, and one hash function serves client and data node alike. Nothing here can access a clock, a thread, a file
//! or a socket: the crate is `no_std`.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod aligned;
pub mod amount;
pub mod definition_error;
pub mod hash;
pub mod host_port;
pub mod id_map;
pub mod ids;
pub mod live_parameter;
pub mod order_key;
pub mod page_pool;
pub mod pool;
pub mod prefetch;
pub mod row_layout;
pub mod schema;
pub mod table_partitions;
pub mod time;

pub use amount::{Amount, Grouped, Millis, Pace, Seconds};
pub use definition_error::{DefinitionError, Limit};
pub use ids::*;
pub use live_parameter::{LiveParameter, LiveUnit, LiveValues};
pub use table_partitions::TablePartitions;
