//! The state of a running node for people: rows of information tables. All bodies are cold.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `InfoRequest` | API node, or the info block of the main thread | info | rows of one information table |
//! | `InfoConfirm` | info | requester | the rows |
//! | `InfoRefuse` | info | API node | refused: too many bytes already wait for it ([`crate::handshake::Refusal`]) |
//!
//! The info block of the main thread collects the rows of all threads' info blocks and answers the API node.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The information tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum InfoTable {
    /// Threads, the blocks on them and how busy they are.
    Threads,
    /// Memory usage.
    Memory,
    /// Pools and how full they are.
    Pools,
    /// Counters of each block instance.
    Blocks,
    /// The requested node, and the API nodes that it knows.
    Nodes,
    /// Open transactions.
    Transactions,
    /// Rows that are locked or that transactions wait for.
    Locks,
    /// Rows and bytes of each table.
    Tables,
    /// What log streams and their data managers have written to the disk, by the second.
    DiskWriteSpeedBase,
    /// The same on the average, and how fast checkpoints are to be written.
    DiskWriteSpeedAggregate,
    /// Log streams: their size, what is in use, what is logged, and how large they should be.
    RedoLogs,
    /// Parameters that may change while the node runs, with their present values.
    Parameters,
    /// Data nodes without which the cluster has gone on, as the requested node knows it.
    LostNodes,
    /// What the data node that leads has found of the arbitrator; no row of any other one.
    Arbitration,
    /// The last start of the requested node; at the one that leads also of those that join.
    Restarts,
}

/// `InfoRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InfoRequest {
    /// The requester's tag.
    pub request: u32,
    /// The information table.
    pub table: InfoTable,
}

/// A value in an information table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum InfoValue {
    /// Text.
    Text(String),
    /// A count, bytes, microseconds, as the column says.
    Number(u64),
    /// A share or a rate.
    Real(f64),
}

/// `InfoConfirm`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct InfoConfirm {
    /// The requester's tag.
    pub request: u32,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<InfoValue>>,
}
