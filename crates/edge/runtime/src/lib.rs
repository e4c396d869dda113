//! w
#[cfg(not(loom))]
pub mod affinity;
#[cfg(not(loom))]
mod api_nodes;
#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
mod connection;
#[cfg(not(loom))]
pub mod crash;
#[cfg(not(loom))]
mod greeting;
#[cfg(not(loom))]
mod input;
#[cfg(not(loom))]
mod lane_progress;
#[cfg(not(loom))]
mod last_signals;
#[cfg(not(loom))]
mod listener;
#[cfg(not(loom))]
pub mod log;
#[cfg(not(loom))]
pub mod memory;
#[cfg(not(loom))]
pub mod node_process;
pub mod parker;
#[cfg(not(loom))]
mod poller;
#[cfg(not(loom))]
pub mod realtime;
pub mod ring;
#[cfg(not(loom))]
mod rings;
#[cfg(not(loom))]
pub mod settings;
#[cfg(not(loom))]
mod slice_pacer;
#[cfg(not(loom))]
mod sockets;
#[cfg(not(loom))]
mod spinning;
#[cfg(not(loom))]
pub mod statistics;
#[cfg(not(loom))]
mod switchboard;
mod sync;
#[cfg(not(loom))]
pub mod termination;
#[cfg(not(loom))]
mod watchdog;
#[cfg(not(loom))]
mod worker;
