//! A data node comes back, or comes for the first time, to a cluster that runs. All bodies are cold.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `JoiningReport` | driver | restart | all links to this data node are open, which is no member and waits to become one |
//! | `SchemaHoldRequest` | restart of the president | dictionary of the same node | begin no schema change until I say so; confirm when none is under way |
//! | `SchemaHoldConfirm` | dictionary | restart | none is, and no transactions of failed coordinators are left |
//! | `SchemaReleaseOrder` | restart | dictionary | go on |
//! | `DefinitionsRequest` | dictionary of the newcomer | dictionary of the president | I know so much: what else is there? |
//! | `DefinitionsConfirm` | dictionary of the president | dictionary of the newcomer | a piece of it |
//! | `SessionsOrder` | membership of the president | membership of the newcomer | all API nodes that I know |
//! | `StepDoneReport` | dictionary, membership, a data manager of the newcomer | restart of the same node | my part of this step is done |
//! | `CopyingReport` | a data manager of the newcomer | restart of the same node | so much was copied to me |
//! | `NewcomerProgressReport` | restart of the newcomer | restart of the president | how far my start is, for people |
//! | `NewcomerReport` | restart of the newcomer | restart of the president | all parts of this step are done, in this view |
//! | `ThreadsRequest` | restart of the president | restart of each member | have all your threads adopted this view? |
//! | `ThreadsConfirm` | the receivers | restart of the president | they have |
//! | `TurnRequest` | restart | info block of each thread of the same node | answer in this view |
//! | `TurnConfirm` | info | restart | here |
//! | `ClientsRequest` | restart of the president | membership of the node that is to get primaries | are all API nodes connected to your node? |
//! | `ClientsConfirm` | that membership | restart of the president | they are, or have not come for long |
//! | `HandOverRequest` | restart of the president | a data manager that is a primary | come to rest, so that another replica can become primary |
//! | `HandOverConfirm` | that data manager | restart of the president | it is at rest, and stays so in this view |
//! | `HandOverRefuse` | that data manager | restart of the president | it goes on: it has not come to rest in time, or can't now |
//! | `HandOverReleaseOrder` | restart of the president | that data manager | go on: the view does not change |
//! | `HandOverFlushRequest` | that data manager; each replica to the next | data manager | all that I have sent along the chain has arrived |
//! | `HandOverFlushConfirm` | that of the last replica | the data manager that is handed over | it has arrived everywhere |
//! | `LeaveOrder` | info | restart of the same node | this data node is to stop: have it leave before |
//! | `LeaveRequest` | restart of the one that is to stop | restart of the president | have me leave, one partition after the other |
//! | `LeaveRefuse` | restart of the president | the requester | the others can't do without you |
//! | `DrainRequest` | restart of the president; a data manager that was left out | coordinators of all members | end what may need that one |
//! | `DrainConfirm` | the receivers | the sender | nothing of mine does any more |
//! | `LeaveConfirm` | restart of the president | restart of the one that leaves | nobody needs you any more |
//! | `LeaveReport` | restart of the one that leaves | info of the same node | nobody needs this data node any more, or the others can't do without it |
//! | `PartitionSizeRequest` | restart of the president | a data manager that is a primary | how much memory does your partition take? |
//! | `PartitionSizeConfirm` | that data manager | restart of the president | so much |
//! | `PlaceRequest` | restart of the president | data manager | you are to hold another partition: have you given up the one before, and room? |
//! | `PlaceConfirm` | that data manager | restart of the president | I have |
//! | `PlaceRefuse` | that data manager | restart of the president | I have no room for it |
//! | `ReorganizeRequest` | API node | restart of the president | have partitions move until each node group has its share; or stop that |
//! | `ReorganizeConfirm` | restart of the president | API node | the view says so |
//! | `ReorganizeRefuse` | restart | API node | why not ([`crate::handshake::Refusal`]) |
//!
//! A newcomer's first view is one in which it is a member. The protocol is described in
//! `docs/protocols/node-restart.md`.

use crate::dictionary::TableRecord;
use crate::membership::ApiSessionRequest;
use crate::schema::Database;
use crate::start::StartProgressReport;
use crate::view::{Member, NoRoom};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use vinga_base::{Amount, Epoch, Incarnation, NodeId, ViewNumber};

/// Body of `JoiningReport`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JoiningReport {
    /// The data node, as it has greeted. How far it has come, and since when it is a member, are not looked at.
    pub member: Member,
}

/// Body of `SchemaHoldRequest`, `SchemaHoldConfirm` and `SchemaReleaseOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaHold {
    /// The requester's number of the hold.
    pub hold: u32,
}

/// Body of `DefinitionsRequest`: up to where the newcomer has the definitions.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DefinitionsRequest {
    /// It has the databases up to this name, in their order; empty: none.
    pub database: String,
    /// It has the tables up to this id; 0: none.
    pub table: u32,
}

/// Body of `DefinitionsConfirm`: what a dictionary has to know that takes part in later changes, and may lead them; one
/// piece. Write fences and the schema lock are stated anew when schema changes go on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DefinitionsConfirm {
    /// The next databases, in order of their names.
    pub databases: Vec<Database>,
    /// The next tables, by id; none before all databases were sent.
    pub tables: Vec<TableRecord>,
    /// Whether there are no more.
    pub is_last: bool,
    /// No table was given this version or a greater one so far.
    pub version_next: u64,
    /// The number of the newest schema change.
    pub changes: u64,
    /// The current epoch.
    pub epoch: Epoch,
}

/// Body of `SessionsOrder`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionsOrder {
    /// All sessions, as the registrar has last described them.
    pub sessions: Vec<ApiSessionRequest>,
    /// The newest incarnation of each id that there was.
    pub newest: Vec<(u8, u32)>,
}

/// A step of a newcomer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum NewcomerStep {
    /// It knows what the others know: tables and API nodes.
    Informed,
    /// It has all rows of its partitions.
    Copied,
}

/// Body of `StepDoneReport`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StepDoneReport {
    /// The step.
    pub step: NewcomerStep,
    /// The view in which it is done: a copy counts as long as the replicas stay the same.
    pub view: ViewNumber,
}

/// Body of `CopyingReport`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CopyingReport {
    /// What has come of the rows of the data manager's partition, and what there is as far as its primary says.
    pub amount: Amount,
}

/// Body of `NewcomerProgressReport`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewcomerProgress {
    /// Which start of the newcomer.
    pub incarnation: Incarnation,
    /// How far it is.
    pub progress: StartProgressReport,
}

/// Body of `NewcomerReport`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewcomerReport {
    /// Which start of the newcomer.
    pub incarnation: Incarnation,
    /// The step.
    pub step: NewcomerStep,
    /// The view in which all parts of it are done.
    pub view: ViewNumber,
}

/// Body of `ThreadsRequest`, `ThreadsConfirm`, `TurnRequest` and `TurnConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ThreadsBody {
    /// The view that threads have adopted.
    pub view: ViewNumber,
    /// The member that asks.
    pub requester: NodeId,
}

/// Body of `ClientsRequest` and `ClientsConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientsBody {
    /// Which start of the data node is asked.
    pub incarnation: Incarnation,
}

/// Body of `LeaveRequest`, `LeaveRefuse` and `LeaveConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaveBody {
    /// Which start of the data node leaves.
    pub incarnation: Incarnation,
}

/// Body of `LeaveReport`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaveReport {
    /// Whether the data node may stop, and nobody notices; else the others can't do without it.
    pub is_free: bool,
}

/// Body of `DrainRequest` and `DrainConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DrainBody {
    /// The view, in which the data node is a replica of nothing any more, or of one partition less.
    pub view: ViewNumber,
    /// The data node that leaves, or that the partition has moved away from.
    pub node: NodeId,
}

/// Body of `PartitionSizeRequest` and `PlaceConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlaceBody {
    /// The view in which it is asked. The next one may have a data manager be sent the rows of another partition: no
    /// later view is meant.
    pub view: ViewNumber,
}

/// Body of `PartitionSizeConfirm` and `PlaceRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartitionSize {
    /// As in [`PlaceBody`].
    pub view: ViewNumber,
    /// Bytes of `DataMemory` that the partition takes at its primary.
    pub bytes: u64,
}

/// Body of `PlaceRefuse`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlaceRefuse {
    /// As in [`PlaceBody`].
    pub view: ViewNumber,
    /// How much room there is not.
    pub no_room: NoRoom,
}

/// Body of `ReorganizeRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReorganizeRequest {
    /// The requester's tag.
    pub request: u32,
    /// Whether partitions are to move; if not, no further one is: what has begun to move comes to its end.
    pub begins: bool,
}

/// Body of `ReorganizeConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReorganizeConfirm {
    /// The requester's tag.
    pub request: u32,
    /// The view that says so.
    pub view: ViewNumber,
}

/// Body of `HandOverRequest`, `HandOverConfirm`, `HandOverRefuse`, `HandOverReleaseOrder`, `HandOverFlushRequest` and
/// `HandOverFlushConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandOverBody {
    /// The view in which the data manager is the primary. The next one may have another: no later view is meant.
    pub view: ViewNumber,
    /// The requester's number of the attempt.
    pub attempt: u32,
}
