//! The edge of a data node: everything that uses the operating system. Threads, sockets, clock, memory, signals of the
//! operating system, the log.
//!
//! Inside the edge are blocks, which only handle signals, and the kernel's executor, which hands frames to them. This
//! crate drives executors, one for each thread that runs turns, whatever the blocks are. Start with [`node_process`],
//! then `worker` for the turn, `listener` for how a client is admitted, `api_nodes` for how it is disconnected.
//!
//! ```text
//!   listener --admitted sockets--> worker 0 <====rings====> worker 1 ...      watchdog: checks the turns of all
//!      ^                          |  executor (blocks)     |  executor
//!   new connections               |  sockets               |  sockets
//!                                 v                        v
//!                             epoll: API nodes          epoll: API nodes
//! ```
//! A send thread is a worker that owns no connection and writes those of others: see `relay`. Io threads read and write
//! files for the workers: see [`files`].
//!
//! In a steady state a worker allocates nothing and makes three system calls for each batch that it receives: it waits,
//! reads, writes. Workers share nothing but what stands in [`ring`], [`parker`] and `switchboard`.
//!
//! # Testing
//! Besides `cargo test`, with the paths from the root of the workspace:
//!
//! - the model of rings and sleep, every interleaving with up to three preemptions, in seconds (with four it takes
//!   minutes): `RUSTFLAGS="--cfg loom" cargo test -p vinga-runtime --release --test loom`;
//! - the address sanitizer: `RUSTFLAGS="-Zsanitizer=address" cargo +nightly test -p vinga-runtime --target
//!   x86_64-unknown-linux-gnu`;
//! - the thread sanitizer: `RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"
//!   TSAN_OPTIONS="suppressions=$PWD/crates/edge/runtime/tests/thread_sanitizer.suppressions" cargo +nightly test -p
//!   vinga-runtime --target x86_64-unknown-linux-gnu --lib --test ring`, and the same with `--test nodes end_to_end::`
//!   (the standard library is not instrumented without its source: hence the flag and the suppressions; `process` is
//!   left out because the sanitizer delays signals);
//! - the cost of the edge: `cargo run --release -p vinga-runtime --example echo_rate`.

#[cfg(not(loom))]
pub mod affinity;
#[cfg(not(loom))]
mod api_nodes;
#[cfg(not(loom))]
mod arbitration;
#[cfg(not(loom))]
mod block_summary;
#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
mod connection;
#[cfg(not(loom))]
pub mod console;
#[cfg(not(loom))]
pub mod crash;
#[cfg(not(loom))]
pub mod exchange;
#[cfg(not(loom))]
mod farewell;
#[cfg(not(loom))]
pub mod files;
#[cfg(not(loom))]
mod formation;
#[cfg(not(loom))]
mod greeting;
#[cfg(not(loom))]
mod handlers;
#[cfg(not(loom))]
pub mod heap;
#[cfg(not(loom))]
mod input;
#[cfg(not(loom))]
mod lane_progress;
#[cfg(not(loom))]
mod last_signals;
#[cfg(not(loom))]
mod late_node;
#[cfg(not(loom))]
mod listener;
#[cfg(not(loom))]
mod local_socket;
#[cfg(not(loom))]
pub mod log;
#[cfg(not(loom))]
pub mod memory;
#[cfg(not(loom))]
pub mod node_folder;
#[cfg(not(loom))]
pub mod node_process;
#[cfg(not(loom))]
mod outlets;
#[cfg(not(loom))]
mod output;
pub mod parker;
#[cfg(not(loom))]
mod peer;
#[cfg(not(loom))]
pub mod peers;
#[cfg(not(loom))]
mod poller;
#[cfg(not(loom))]
mod realtime;
#[cfg(not(loom))]
mod relay;
pub mod ring;
#[cfg(not(loom))]
mod rings;
#[cfg(not(loom))]
pub mod settings;
#[cfg(not(loom))]
mod shares;
#[cfg(not(loom))]
mod slice_pacer;
#[cfg(not(loom))]
mod sockets;
#[cfg(not(loom))]
mod spinning;
#[cfg(not(loom))]
pub mod start_progress;
#[cfg(not(loom))]
pub mod statistics;
pub mod stop_request;
#[cfg(not(loom))]
mod switchboard;
mod sync;
#[cfg(not(loom))]
pub mod termination;
#[cfg(not(loom))]
mod watchdog;
#[cfg(not(loom))]
mod worker;
#[cfg(not(loom))]
mod yielding;
