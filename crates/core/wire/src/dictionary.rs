//! Tables: create, drop, describe, list. All bodies are cold. [`crate::schema_round`] documents how schema changes are
//! carried out; [`crate::schema`] has other changes, databases, the schema lock and events.
//!
//! | signal | from | to |
//! |---|---|---|
//! | `CreateTableRequest`, `DropTableRequest`, `DescribeTableRequest`, `ListTablesRequest` | API node | dictionary |
//! | their `…Confirm`, `…Refuse` | dictionary | API node |
//!
//! Every request may be refused; with `Overloaded` if too many bytes already wait for the API node, because an answer
//! is much longer than its request.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use vinga_base::TablePartitions;
use vinga_base::schema::{IndexKind, TableDefinition};

/// A table as the dictionary stores it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableRecord {
    /// Its place in the dictionary.
    pub table: u32,
    /// Its version.
    pub version: u64,
    /// The version in which its rows began: that of its create or last truncate. Changes of the definition keep it.
    pub birth: u64,
    /// The hidden tables of its unique indexes.
    pub unique_tables: Vec<UniqueTable>,
    /// Where its rows are, and those of the hidden tables.
    pub partitions: TablePartitions,
    /// Its definition.
    pub definition: TableDefinition,
}

/// The hidden table of a unique index, see [`TableDefinition::unique_table`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UniqueTable {
    /// The index's id.
    pub index: u16,
    /// The hidden table's place in the dictionary.
    pub table: u32,
    /// Its version.
    pub version: u64,
}

/// A table in a certain version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct VersionedTable {
    /// Its place in the dictionary.
    pub table: u32,
    /// Its version.
    pub version: u64,
}

impl TableRecord {
    /// The table itself.
    pub fn own(&self) -> VersionedTable {
        VersionedTable { table: self.table, version: self.version }
    }

    /// Itself and the hidden tables of its unique indexes.
    pub fn all(&self) -> impl Iterator<Item = VersionedTable> {
        let hidden = self.unique_tables.iter().map(|u| VersionedTable { table: u.table, version: u.version });
        core::iter::once(self.own()).chain(hidden)
    }

    /// The records of the hidden tables of its unique indexes. (They are not sent, because they follow from this
    /// record.)
    pub fn hidden(&self) -> impl Iterator<Item = TableRecord> {
        self.unique_tables.iter().filter_map(|unique| {
            let index = self.definition.index(unique.index).filter(|i| i.kind == IndexKind::Unique)?;
            let definition = self.definition.unique_table(self.table, index);
            Some(TableRecord::new(unique.table, unique.version, self.partitions.clone(), definition))
        })
    }

    /// A table without rows and unique indexes.
    pub fn new(table: u32, version: u64, partitions: TablePartitions, definition: TableDefinition) -> Self {
        TableRecord { table, version, birth: version, unique_tables: Vec::new(), partitions, definition }
    }
}

/// `CreateTableRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CreateTableRequest {
    /// The API node's tag for the request.
    pub request: u32,
    /// The definition of the new table.
    pub definition: TableDefinition,
}

/// `DropTableRequest` and `DescribeTableRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NamedTableRequest {
    /// The API node's tag for the request.
    pub request: u32,
    /// `database.table`.
    pub name: String,
}

/// `CreateTableConfirm` and `DescribeTableConfirm`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableConfirm {
    /// The API node's tag for the request.
    pub request: u32,
    /// The table.
    pub table: TableRecord,
}

/// `DropTableConfirm`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DropTableConfirm {
    /// The API node's tag for the request.
    pub request: u32,
}

/// `ListTablesRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListTablesRequest {
    /// The API node's tag for the request.
    pub request: u32,
    /// Only tables with greater ids are listed: a long list is sent in pieces.
    pub after: u32,
}

/// `ListTablesConfirm`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListTablesConfirm {
    /// The API node's tag for the request.
    pub request: u32,
    /// Ids, versions and names, by ascending id.
    pub tables: Vec<(u32, u64, String)>,
    /// Whether there are more.
    pub more: bool,
}
