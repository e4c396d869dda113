//! The client's protocol as a machine: bytes and time go in, bytes and results come out.
//!
//! It has no clock, no socket and no thread: a *driver* (the crate `vinga`, or the simulator) opens the connections
//! that it asks for ([`Client::next_command`]), gives it what arrives ([`Client::on_bytes`]) and what time it is, and
//! sends what it wants sent ([`Client::next_output`]). The same calls in the same order give the same results, always.
//!
//! What a caller begins gets a [`Token`]: a batch of committed reads ([`ReadBatch`]), a batch of operations that commit
//! each by itself ([`WriteBatch`]), a transaction with its batches of operations ([`OperationBatch`]), a scan
//! ([`ScanSpec`]), or a request to the dictionary. Batches and batches are moved in and come back with the results, so
//! that nothing is allocated for an operation once they have grown. Every token ends exactly once, whatever becomes of
//! the connections; cancelling it leaves nothing behind, here or at the data nodes.
//!
//! | part | does |
//! |---|---|
//! | `sessions` | connects, greets, connects again |
//! | `routes` | finds the owner of a key |
//! | `link` | one connection's bytes, and when they go |
//! | `reads`, `read_batch` | committed reads |
//! | `writes`, `write_batch` | autocommitted operations |
//! | `transactions`, `batch`, `operation` | transactions |
//! | `outcomes` | which outcomes are known, so that coordinators can forget them |
//! | `schema_events` | who is notified of schema changes |
//! | `scans` | all rows, or ranges of an index |
//! | `statistics`, `requests` | the rest |
//! | `backup_steps` | the steps of an on-line backup, for whoever makes one with such requests |
//! | `table`, `value` | rows and values to bytes and back |
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod backup_steps;
mod client;
mod error;
mod link;
mod net;
mod operation;
mod operation_batch;
mod outcomes;
mod read_batch;
mod reads;
mod request;
mod requests;
mod routes;
mod scans;
mod schema_events;
mod sessions;
pub mod settings;
pub mod sql_rules;
mod sql_table;
mod statistics;
mod table;
mod transactions;
pub mod value;
mod write_batch;
mod writes;

pub use client::Client;
pub use error::{Error, Result};
pub use link::LinkId;
pub use net::{Command, Token, TokenKind};
pub use operation::OperationSpec;
pub use operation_batch::{OperationBatch, Standing};
pub use read_batch::{ReadBatch, ShapeId};
pub use reads::Urgency;
pub use requests::{Answer, BackupBatch, Request};
pub use scans::{Merge, RangeSpec, ScanProgress, ScanRow, ScanRows, ScanRowsIter, ScanSpec};
pub use schema_events::{NewsId, SchemaNews};
pub use sessions::{Admission, EndpointState, Readiness};
pub use settings::Settings;
pub use sql_table::ColumnChange;
pub use statistics::{Sample, SampledPartition};
pub use table::{KeyWriter, RowBuilder, RowRef, Table};
pub use transactions::BatchEnd;
pub use value::Value;
pub use vinga_base::time::{Span, Tick};
pub use write_batch::WriteBatch;
