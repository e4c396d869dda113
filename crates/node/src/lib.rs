//! A data node, assembled: which blocks share a thread, and who gets a signal.
//!
//! [`NodeSettings`] says what the node is; [`Blocks`] are the block instances of one of its threads, the `Host` of that
//! thread's executor. The edge runs one executor a thread; the simulator runs all of them in one. Whoever drives them
//! decides nothing that blocks could notice, except time and order.
#![no_std]

extern crate alloc;

mod blocks;
mod disk_writes;
mod information;
pub mod log_streams;
mod settings;

pub use blocks::Blocks;
pub use information::{DriverFacts, Facts, NoFacts, ThreadFacts};
pub use settings::{DiskSettings, NodeSettings, ThreadHosting};
pub use vinga_coordinator::OPERATIONS_TOGETHER;
pub use vinga_datamanager::{BACKUP_PIECE, COPY_PIECE, ENDING_SLICE};
pub use vinga_lifecycle::Disk as StartFrom;
pub use vinga_redo::{CheckpointSettings, SpeedLimits};
