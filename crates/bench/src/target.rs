//! The interface of a database for the benchmarks. There is one real implementation, [`crate::vinga_target`], and one
//! for tests.
//!
//! Operations are sent in batches. A definer thread has a [`Lane`] of its own; a lane has *slots*, each with a batch
//! whose memory is reused:
//!
//! ```text
//!   begin(slot) ── push, push, … ── start(slot) ── wait() returns the slot ── outcome(slot, 0), (slot, 1), …
//! ```
//! Several slots of a lane are under way at the same time; they end in any order.

use crate::failure::Result;

/// An operation by primary key, committed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A new row; fails if there is one.
    Insert,
    /// Another value for a row; fails if there is none.
    Update,
    /// A row, new or not.
    Write,
    /// A committed read of the whole row.
    Read,
    /// Removes a row; fails if there is none.
    Delete,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// A change was committed.
    Done,
    /// A read has found this value.
    Row(&'a [u8]),
    /// A read has found no row.
    NoRow,
    /// It was not done.
    Failed(String),
}

/// A table of the benchmarks. Each has a primary key `id` (8 bytes, unsigned).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableShape {
    /// One more column, `value`, of this many bytes.
    Value {
        /// Size of the value.
        bytes: u16,
    },
    /// Rows of 108 bytes with integers to compare; see [`crate::scan`].
    Scan,
}

/// A filter that rejects all rows, or no filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanKind {
    /// One comparison of an integer.
    OneComparison,
    /// An and/or tree of five comparisons of integers.
    FiveComparisons,
    /// No filter: all rows with all columns are returned.
    Everything,
}

/// A row of the information table on memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// The block that uses the memory.
    pub block: String,
    /// What it is used for.
    pub purpose: String,
    /// Bytes in use.
    pub used_bytes: u64,
}

/// A database.
pub trait Target: Sync {
    /// A table that has been made.
    type Table: Sync;
    /// A definer thread's lane.
    type Lane: Lane;

    /// Makes a table; an existing one of this name is replaced.
    ///
    /// # Errors
    /// The database's.
    fn create_table(&self, name: &str, shape: &TableShape) -> Result<Self::Table>;

    /// Removes a table and all its rows.
    ///
    /// # Errors
    /// The database's.
    fn drop_table(&self, table: Self::Table) -> Result<()>;

    /// A lane for one thread's operations on a table, over the connection of this number, with `slots` slots for
    /// batches of `batch` operations.
    ///
    /// # Errors
    /// The database's.
    fn lane(&self, table: &Self::Table, connection: usize, slots: usize, batch: usize) -> Result<Self::Lane>;

    /// Reads one row and waits for it; appends its value. Returns whether the row exists.
    ///
    /// # Errors
    /// The database's.
    fn get(&self, table: &Self::Table, id: u64, value: &mut Vec<u8>) -> Result<bool>;

    /// Scans a table; returns the number of rows.
    ///
    /// # Errors
    /// The database's.
    fn scan(&self, table: &Self::Table, kind: ScanKind) -> Result<u64>;

    /// The node's use of memory.
    ///
    /// # Errors
    /// The database's.
    fn memory(&self) -> Result<Vec<MemoryUse>>;
}

/// One thread's batches of operations on a table; the order of calls is in the head of this file.
pub trait Lane: Send {
    /// Empties a slot for operations of this kind.
    fn begin(&mut self, slot: usize, kind: Kind);

    /// Adds an operation. `value` is the data to write: the columns behind the key; empty for reads and deletes.
    ///
    /// # Errors
    /// The operation is invalid.
    fn push(&mut self, slot: usize, id: u64, value: &[u8]) -> Result<()>;

    /// Sends the batch of a slot.
    ///
    /// # Errors
    /// It can't be sent.
    fn start(&mut self, slot: usize) -> Result<()>;

    /// Waits until one of the batches under way is complete and returns its slot.
    ///
    /// # Errors
    /// None is under way, or the connection is lost.
    fn wait(&mut self) -> Result<usize>;

    /// The result of an operation, by the order in which they were added. Valid until the slot is begun again.
    fn outcome(&self, slot: usize, index: usize) -> Outcome<'_>;
}
