//! Changes of the schema that API nodes ask for, databases, the schema lock and schema events. All bodies are cold.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `SchemaChangeRequest` | API node | dictionary | carry this change out |
//! | `SchemaChangeConfirm`, `SchemaChangeRefuse` | dictionary | API node | done / not, and nothing has changed |
//! | `DescribeDatabaseRequest`, `ListDatabasesRequest` | API node | dictionary | |
//! | their `…Confirm`, `…Refuse` | dictionary | API node | |
//! | `SchemaLockRequest` | API node | dictionary | let me have the schema lock |
//! | `SchemaLockConfirm`, `SchemaLockRefuse` | dictionary | API node | you have it / not in time |
//! | `SchemaUnlockOrder` | API node | dictionary | I no longer want it |
//! | `SchemaEventsRequest` | API node | dictionary | tell me of schema changes from now on |
//! | `SchemaEventsConfirm`, `SchemaEventsRefuse` | dictionary | API node | you will be told / not now |
//! | `SchemaEventReport` | dictionary | API node | this has changed |
//! | `SchemaEventsSeenOrder` | API node | dictionary | I have acted on all events up to this one |
//! | `SchemaEventsStopOrder` | API node | dictionary | tell me no more |

use crate::dictionary::{TableRecord, VersionedTable};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use vinga_base::schema::TableDefinition;

/// What an API node wants changed. A table is named, and may be pinned to the version that the API node knows: if it
/// has another one by then, the change is refused with `StaleTable`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SchemaChange {
    /// The table gets another name, perhaps in another database. Its rows stay.
    RenameTable {
        /// `database.table`.
        name: String,
        /// The same.
        new_name: String,
        /// What the API node knows.
        pinned: Option<VersionedTable>,
    },
    /// The table loses all rows: it gets another id, version and birth.
    TruncateTable {
        /// `database.table`.
        name: String,
        /// What the API node knows.
        pinned: Option<VersionedTable>,
    },
    /// The table gets another definition with the same columns (their names may change), primary key and options:
    /// indexes are added and dropped, the attachment and the name are replaced.
    AlterTable {
        /// `database.table`, the present name.
        name: String,
        /// All of the new definition.
        definition: TableDefinition,
        /// What the API node knows.
        pinned: Option<VersionedTable>,
    },
    /// Only this API node may change rows of the table, until it lifts the write fence or is gone.
    FenceTable {
        /// `database.table`.
        name: String,
        /// What the API node knows.
        pinned: Option<VersionedTable>,
    },
    /// Everybody may change rows again. Confirmed at once, also if there is no write fence of this API node.
    LiftFence {
        /// The table's id, which stays through renames.
        table: u32,
    },
    /// A new database.
    CreateDatabase(Database),
    /// The attachment is replaced.
    AlterDatabase(Database),
    /// The database goes; there must be no table in it.
    DropDatabase {
        /// Its name.
        name: String,
    },
}

/// A database.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Database {
    /// Its name; letter case counts.
    pub name: String,
    /// What a SQL node keeps beside it; no data node looks at it.
    pub attachment: Vec<u8>,
}

/// `SchemaChangeRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaChangeRequest {
    /// The API node's tag.
    pub request: u32,
    /// What is wanted.
    pub change: SchemaChange,
}

/// `SchemaChangeConfirm`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaChangeConfirm {
    /// The API node's tag.
    pub request: u32,
    /// The table as it is now; `None` after changes of databases and lifted write fences.
    pub table: Option<TableRecord>,
}

/// `DescribeDatabaseRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DescribeDatabaseRequest {
    /// The API node's tag.
    pub request: u32,
    /// Its name.
    pub name: String,
}

/// `DescribeDatabaseConfirm`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DescribeDatabaseConfirm {
    /// The API node's tag.
    pub request: u32,
    /// The database.
    pub database: Database,
}

/// `ListDatabasesRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListDatabasesRequest {
    /// The API node's tag.
    pub request: u32,
    /// Only databases whose names come behind this one: a long list comes in pieces.
    pub after: String,
}

/// `ListDatabasesConfirm`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListDatabasesConfirm {
    /// The API node's tag.
    pub request: u32,
    /// Names, in order.
    pub names: Vec<String>,
    /// Whether there are more.
    pub more: bool,
}

/// `SchemaLockRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaLockRequest {
    /// The API node's tag. It names the lock, and the wish for it, until `SchemaUnlockOrder`.
    pub request: u32,
    /// What for, for people.
    pub purpose: String,
    /// How long to wait at most, in milliseconds.
    pub wait_millis: u32,
}

/// `SchemaLockConfirm`, `SchemaUnlockOrder`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaLockBody {
    /// The tag of the `SchemaLockRequest`.
    pub request: u32,
}

/// `SchemaEventsRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaEventsRequest {
    /// The API node's tag.
    pub request: u32,
}

/// `SchemaEventsConfirm`: from now on every event comes. What was before it may have changed in any way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaEventsConfirm {
    /// The API node's tag.
    pub request: u32,
    /// The number of the newest event before.
    pub sequence: u64,
}

/// What has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SchemaEventKind {
    /// A table was created.
    CreateTable,
    /// A table is gone.
    DropTable,
    /// A table has another name, and perhaps another definition.
    RenameTable,
    /// A table has lost all rows; it has another id.
    TruncateTable,
    /// A table has another definition.
    AlterTable,
    /// A database was created.
    CreateDatabase,
    /// A database has another attachment.
    AlterDatabase,
    /// A database is gone.
    DropDatabase,
}

/// `SchemaEventReport`: a change that is carried out, and whose requester waits until all have seen it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaEvent {
    /// Grows by one with each event, from 1 in each incarnation of the cluster.
    pub sequence: u64,
    /// What has changed.
    pub kind: SchemaEventKind,
    /// `database.table` or `database`, before the change.
    pub name: String,
    /// The name after a rename, else empty.
    pub new_name: String,
    /// The table after the change (before it if it was dropped); 0 for databases.
    pub table: u32,
    /// Its version; 0 for databases.
    pub version: u64,
    /// The API node that asked for the change.
    pub by: u8,
}

/// `SchemaEventsSeenOrder`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaEventsSeenOrder {
    /// All events up to this one have been acted on.
    pub sequence: u64,
}
