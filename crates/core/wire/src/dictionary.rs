//! Tables: create, drop, describe, list. All bodies are cold.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `CreateTableRequest`, `DropTableRequest`, `DescribeTableRequest`, `ListTablesRequest` | API node | dictionary | |
//! | their `…Confirm`, `…Refuse` | dictionary | API node | |
//! | `TableAddRequest` / `…Confirm` / `…Refuse` | dictionary / blocks | coordinators, data managers / dictionary | use this table from now on |
//! | `TableStopRequest` / `…Confirm` | dictionary / coordinators | | begin nothing more on it; all that was begun has ended |
//! | `TableRemoveRequest` / `…Confirm` | dictionary / data managers | | free its rows |
//!
//! Every request may be refused, by `Overloaded` if too much waits for the API node already: an answer is much longer than
//! its request.
//!
//! Create: data managers make their fragments first, then coordinators learn the table, then the API node is told. If
//! anybody refuses (who refuses keeps nothing of it), those that have it are told to stop and remove it again. Drop: coordinators stop first (transactions that hold the table are
//! rolled back after a while), then data managers refuse it and free its memory in slices, then the API node is told.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use vinga_base::schema::TableDefinition;

/// A table as it stands in the dictionary.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableRecord {
    /// Its place in the dictionary.
    pub table: u32,
    /// Its version.
    pub version: u64,
    /// The version with which its rows began: that of its create or last truncate. Changes of the definition leave it.
    pub birth: u64,
    /// The hidden tables of its unique indexes.
    pub unique_tables: Vec<UniqueTable>,
    /// What it is.
    pub definition: TableDefinition,
}

/// The hidden table of a unique index: see [`TableDefinition::unique_table`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UniqueTable {
    /// The index's id.
    pub index: u16,
    /// The hidden table's place in the dictionary.
    pub table: u32,
    /// Its version.
    pub version: u64,
}

impl TableRecord {
    /// A table without rows and unique indexes.
    pub fn new(table: u32, version: u64, definition: TableDefinition) -> Self {
        TableRecord { table, version, birth: version, unique_tables: Vec::new(), definition }
    }
}

/// `CreateTableRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CreateTableRequest {
    /// The API node's tag.
    pub request: u32,
    /// What is wanted.
    pub definition: TableDefinition,
}

/// `DropTableRequest` and `DescribeTableRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NamedTableRequest {
    /// The API node's tag.
    pub request: u32,
    /// `database.table`.
    pub name: String,
}

/// `CreateTableConfirm` and `DescribeTableConfirm`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableConfirm {
    /// The API node's tag.
    pub request: u32,
    /// The table.
    pub table: TableRecord,
}

/// `DropTableConfirm`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DropTableConfirm {
    /// The API node's tag.
    pub request: u32,
}

/// `ListTablesRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListTablesRequest {
    /// The API node's tag.
    pub request: u32,
    /// Only tables with greater ids: a long list comes in pieces.
    pub after: u32,
}

/// `ListTablesConfirm`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListTablesConfirm {
    /// The API node's tag.
    pub request: u32,
    /// Ids, versions and names, by ascending id.
    pub tables: Vec<(u32, u64, String)>,
    /// Whether there are more.
    pub more: bool,
}

/// `TableAddRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableAddRequest {
    /// The table.
    pub table: TableRecord,
}

/// `TableAddConfirm`, `TableStopRequest`, `TableStopConfirm`, `TableRemoveRequest`, `TableRemoveConfirm`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableBody {
    /// The table.
    pub table: u32,
    /// Its version.
    pub version: u64,
}

/// `TableAddRefuse`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableAddRefuse {
    /// The table.
    pub table: u32,
    /// Its version.
    pub version: u64,
    /// Why: [`crate::ErrorCode`].
    pub code: u16,
}
