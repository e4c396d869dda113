//! The client of Vinga.
mod batch;
pub mod blocking;
mod cluster;
mod engine;
mod pending;
mod program;
mod retry;
mod row;
mod scan;
mod spare;
mod table;
mod transaction;

pub use batch::{ReadBatch, ReadTicket, WriteBatch, WriteTicket};
pub use cluster::{Cluster, ConnectOptions, InfoRows, PORT};
pub use program::Update;
pub use row::{ReadRow, Record, RowReader, RowWriter, WriteRow};
pub use scan::{RowBatch, Scan, ScanRequest};
pub use table::{IntoDefinition, NewTable, Table};
pub use transaction::{Committed, Lock, Reading, Savepoint, Transaction};
pub use vinga_base::schema::{ColumnDefinition, ColumnType, TableDefinition};
pub use vinga_base::{ColumnId, Epoch, NodeId, OperationNumber};
pub use vinga_client_core::{Error, Result, RowBuilder, RowRef, Value, value};
pub use vinga_fragment::filter::tree as filter;
pub use vinga_wire::info::{InfoTable, InfoValue};
pub use vinga_wire::operation::OperationKind;
pub use vinga_wire::{ErrorClass, ErrorCode};
