//! Schema changes that API nodes request, databases, the schema lock and schema events. All bodies are cold.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `SchemaChangeRequest` | API node | dictionary | carry out this change |
//! | `SchemaChangeConfirm`, `SchemaChangeRefuse` | dictionary | API node | carried out / refused, and nothing changed |
//! | `DescribeDatabaseRequest`, `ListDatabasesRequest` | API node | dictionary | |
//! | their `…Confirm`, `…Refuse` | dictionary | API node | |
//! | `SchemaLockRequest` | API node | dictionary | request the schema lock |
//! | `SchemaLockConfirm`, `SchemaLockRefuse` | dictionary | API node | granted / not granted in time |
//! | `SchemaUnlockRequest` | API node | dictionary | release the lock, or withdraw the request |
//! | `SchemaUnlockConfirm`, `SchemaUnlockRefuse` | dictionary | API node | it has neither / I do not lead |
//! | `SchemaEventsRequest` | API node | dictionary | subscribe to schema changes from now on |
//! | `SchemaEventsConfirm`, `SchemaEventsRefuse` | dictionary | API node | subscribed / refused |
//! | `SchemaEventReport` | dictionary | API node | this has changed |
//! | `SchemaEventsSeenOrder` | API node | dictionary | all events up to this one have been processed |
//! | `SchemaEventsStopOrder` | API node | dictionary | unsubscribe |

use crate::dictionary::{TableRecord, VersionedTable};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use vinga_base::schema::TableDefinition;

/// A change that an API node requests. A table is named, and may be pinned to the version that the API node knows: if
/// its version differs, the change is refused with `StaleTable`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SchemaChange {
    /// The table gets another name, perhaps in another database. Its rows are kept.
    RenameTable {
        /// `database.table`.
        name: String,
        /// `database.table`.
        new_name: String,
        /// The version that the API node knows.
        pinned: Option<VersionedTable>,
    },
    /// The table loses all rows: it gets another id, version and birth.
    TruncateTable {
        /// `database.table`.
        name: String,
        /// The version that the API node knows.
        pinned: Option<VersionedTable>,
    },
    /// The table gets another definition with the same columns (their names may change), primary key and options:
    /// indexes are added and dropped, the attachment and the name are replaced.
    AlterTable {
        /// `database.table`, the present name.
        name: String,
        /// The complete new definition.
        definition: TableDefinition,
        /// The version that the API node knows.
        pinned: Option<VersionedTable>,
    },
    /// Only this API node may change rows of the table, until it lifts the write fence or its session ends.
    FenceTable {
        /// `database.table`.
        name: String,
        /// The version that the API node knows.
        pinned: Option<VersionedTable>,
    },
    /// Lifts the write fence: all API nodes may change rows again. Confirmed at once, also if this API node has no
    /// write fence.
    LiftFence {
        /// The table's id, which renames do not change.
        table: u32,
    },
    /// A new database.
    CreateDatabase(Database),
    /// The attachment is replaced.
    AlterDatabase(Database),
    /// The database is dropped; it must not contain tables.
    DropDatabase {
        /// Its name.
        name: String,
    },
    /// The copy of a table that this API node has fenced gets its final name. If that is the name of the fenced table,
    /// the copy takes its place: the fenced table is dropped in the same change. Refused with `StaleTable` if the fence
    /// has ended, as the rows of both may differ then.
    RenameCopy {
        /// `database.table`, the present name of the copy.
        name: String,
        /// `database.table`.
        new_name: String,
        /// The id of the fenced table.
        fenced: u32,
    },
}

/// A database.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Database {
    /// Its name; case-sensitive.
    pub name: String,
    /// Bytes that a SQL node keeps with the database; no data node looks at them.
    pub attachment: Vec<u8>,
}

/// `SchemaChangeRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaChangeRequest {
    /// The API node's tag for the request.
    pub request: u32,
    /// The requested change.
    pub change: SchemaChange,
}

/// `SchemaChangeConfirm`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaChangeConfirm {
    /// The API node's tag for the request.
    pub request: u32,
    /// The table as it is now; `None` after changes of databases and lifted write fences.
    pub table: Option<TableRecord>,
}

/// `DescribeDatabaseRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DescribeDatabaseRequest {
    /// The API node's tag for the request.
    pub request: u32,
    /// Its name.
    pub name: String,
}

/// `DescribeDatabaseConfirm`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DescribeDatabaseConfirm {
    /// The API node's tag for the request.
    pub request: u32,
    /// The database.
    pub database: Database,
}

/// `ListDatabasesRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListDatabasesRequest {
    /// The API node's tag for the request.
    pub request: u32,
    /// Only databases whose names come after this one are listed: a long list is sent in pieces.
    pub after: String,
}

/// `ListDatabasesConfirm`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListDatabasesConfirm {
    /// The API node's tag for the request.
    pub request: u32,
    /// Names, in order.
    pub names: Vec<String>,
    /// Whether there are more.
    pub more: bool,
}

/// `SchemaLockRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaLockRequest {
    /// The API node's tag for the request. It identifies the lock, or the waiting request, until `SchemaUnlockRequest`.
    pub request: u32,
    /// The purpose, for people to read.
    pub purpose: String,
    /// How long to wait at most, in milliseconds.
    pub wait_millis: u32,
    /// It had the lock of a president that has failed. If it has it no longer, it does not wait for it again.
    pub was_granted: bool,
}

/// `SchemaLockConfirm`, `SchemaUnlockRequest`, `SchemaUnlockConfirm`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaLockBody {
    /// The tag of the `SchemaLockRequest`.
    pub request: u32,
}

/// `SchemaEventsRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaEventsRequest {
    /// The API node's tag for the request.
    pub request: u32,
}

/// `SchemaEventsConfirm`: every event from now on is sent. Anything may have changed before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaEventsConfirm {
    /// The API node's tag for the request.
    pub request: u32,
    /// The number of the newest earlier event.
    pub sequence: u64,
}

/// The kind of a schema change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SchemaEventKind {
    /// A table was created.
    CreateTable,
    /// A table was dropped.
    DropTable,
    /// A table has another name, and perhaps another definition. If another table had that name, it was dropped.
    RenameTable,
    /// A table has lost all rows; it has another id.
    TruncateTable,
    /// A table has another definition.
    AlterTable,
    /// A database was created.
    CreateDatabase,
    /// A database has another attachment.
    AlterDatabase,
    /// A database was dropped.
    DropDatabase,
}

/// `SchemaEventReport`: a change that was carried out, and whose requester waits until all subscribers have confirmed
/// it.
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
    /// The table's id after the change (before it if it was dropped); 0 for databases.
    pub table: u32,
    /// Its version; 0 for databases.
    pub version: u64,
    /// The API node that requested the change.
    pub by: u8,
}

/// `SchemaEventsSeenOrder`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaEventsSeenOrder {
    /// All events up to this one have been processed.
    pub sequence: u64,
}
