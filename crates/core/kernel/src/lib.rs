//! What a block is, and how a thread runs its blocks.
//!
//! A [`Block`] owns its state and changes it only by handling signals. Its only access to the outside is a [`Context`]:
//! the tick of this turn, a way to send, timers, a seeded generator, a log. An [`Executor`] hosts the blocks of one
//! thread (through [`Host`]) and is fed frames by a *driver*: the edge, with real sockets and a real clock, or the
//! simulator. Both run exactly the code of this crate.
#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "testkit"))]
extern crate std;

pub mod admitted;
pub mod asked_task;
pub mod block;
pub mod context;
pub mod executor;
pub mod failed_writes;
pub mod file_stream;
pub mod files;
pub mod injected_bug;
pub mod outbox;
pub mod pending_take_overs;
pub mod rejection;
#[cfg(feature = "testkit")]
pub mod testkit;
pub mod timers;
pub mod trace_ring;

pub use admitted::AdmittedNodes;
pub use asked_task::{AskedTask, USE_NEWER_PROGRAM};
pub use block::{Block, Scrutiny};
pub use context::{Context, LogEntry, LogLevel};
pub use executor::{Executor, Host, Origin, Prefetch, Rejected};
pub use failed_writes::FailedWrites;
pub use injected_bug::InjectedBug;
pub use outbox::{LaneId, Outbox, Routes, link_between};
pub use pending_take_overs::PendingTakeOvers;
pub use vinga_base::time::{Span, Tick};
