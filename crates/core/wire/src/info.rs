//! What a person wants to know about a running node: rows of information tables. All bodies are cold.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `InfoRequest` | API node, or the info block of the main thread | info | rows of one information table |
//! | `InfoConfirm` | info | who asked | the rows |
//! | `InfoRefuse` | info | API node | not now: too much waits for it already ([`crate::handshake::Refusal`]) |
//!
//! The info block of the main thread gathers the rows of all threads' info blocks and answers the API node.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Which information table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum InfoTable {
    /// What runs where, how busy it is.
    Threads,
    /// Where memory goes.
    Memory,
    /// Pools: how full they are.
    Pools,
    /// Signals handled by each block instance.
    Blocks,
    /// The nodes of the cluster, as the asked one sees them.
    Nodes,
    /// Open transactions.
    Transactions,
    /// Rows that are locked or waited for.
    Locks,
    /// What each table takes: rows and bytes.
    Tables,
}

/// `InfoRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InfoRequest {
    /// The requester's tag.
    pub request: u32,
    /// What is asked for.
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
