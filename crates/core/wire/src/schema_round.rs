//! One schema change inside the cluster, in rounds. All bodies are cold.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `SchemaRoundRequest` | dictionary of the president | coordinators, data managers or other dictionaries | do your part of this round |
//! | `SchemaRoundConfirm` | the receivers | dictionary | done |
//! | `SchemaRoundRefuse` | data manager | dictionary | this round failed; nothing of it is kept |
//! | `SchemaStateRequest` | dictionary of a new president | other dictionaries | what do you know of the change under way? |
//! | `SchemaStateConfirm` | the receivers | dictionary | this |
//!
//! Answers carry the number of the change and the step, so that they can't be mistaken for those of another round.
//!
//! A change has an epoch, as transactions have: a restart brings it back if it restores that epoch. Confirmations carry
//! the newest epoch of their sender, so that the change's is not before any transaction that came before the change;
//! the rounds behind the decision carry the change's, so that no transaction on what it made commits before it.
//! `docs/protocols/schema.md` documents the rounds and their order.

use crate::dictionary::{TableRecord, VersionedTable};
use crate::schema::Database;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use vinga_base::Epoch;
use vinga_base::schema::IndexDefinition;

/// What a block does in a round.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RoundTask {
    /// Data managers: create storage for the tables with these ids (`record` itself, or hidden tables of it). If the
    /// table itself is not among them it exists already, and is accepted in both versions from now on.
    Prepare {
        /// The table after the change.
        record: TableRecord,
        /// Ids of the tables to create.
        made: Vec<u32>,
    },
    /// Coordinators: begin nothing more on these tables; confirm when everything that was begun has ended.
    Switch {
        /// The tables.
        tables: Vec<VersionedTable>,
    },
    /// Data managers: fill the new indexes. No transaction changes the table meanwhile.
    Build {
        /// The table.
        table: u32,
        /// Ordered indexes to be built.
        ordered: Vec<IndexDefinition>,
        /// Refuse with `NotSupportedYet` if there are rows, because a unique index is new.
        must_be_empty: bool,
    },
    /// Coordinators: from now on these are the tables, with their hidden ones, and they may be used; dropped tables are
    /// unknown from now on.
    Publish {
        /// The tables.
        records: Vec<TableRecord>,
        /// The dropped tables.
        gone: Vec<VersionedTable>,
    },
    /// Data managers: from now on only this version of the table is accepted, and none of the dropped tables.
    Complete {
        /// The table.
        record: Option<TableRecord>,
        /// The dropped tables.
        gone: Vec<VersionedTable>,
    },
    /// Data managers: free the memory of these tables.
    Remove {
        /// The tables.
        tables: Vec<VersionedTable>,
    },
    /// Coordinators: only one API node may change rows of this table; confirm when the changes of all others have
    /// ended.
    Fence {
        /// The table's id.
        table: u32,
        /// The API node; 0: all of them.
        api: u8,
    },
    /// Coordinators, other dictionaries: these are all write fences that there are.
    Fences {
        /// Tables, and the API node that alone may change rows of each.
        owners: Vec<(u32, u8)>,
    },
    /// Other dictionaries: this claim has the schema lock, or none has it.
    SchemaLock {
        /// The claim.
        holder: Option<LockHolder>,
    },
    /// Other dictionaries: this change is about to be carried out. Whoever is president next undoes it, or goes on with
    /// it if anybody knows that it is decided.
    Note {
        /// The change.
        change: NotedChange,
    },
    /// Other dictionaries: the change that was noted is decided, and is what you list from now on.
    Decide,
    /// Other dictionaries: the change that was noted has come to its end, carried out or undone.
    End,
}

/// What becomes of a database in a change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DatabaseStep {
    /// It is made, or gets another attachment.
    Put(Database),
    /// It goes.
    Remove(String),
}

/// The claim that has the schema lock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockHolder {
    /// The API node.
    pub api: u8,
    /// Owner of the transactions of its incarnation.
    pub owner: u32,
    /// Its tag of the claim.
    pub request: u32,
    /// The purpose, for people to read.
    pub purpose: String,
}

/// A change, for dictionaries that have the same tables as the one that carries it out: what they have is only named.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NotedChange {
    /// The table that is changed.
    pub before: Option<u32>,
    /// The table as it is going to be.
    pub after: Option<TableRecord>,
    /// Another table, whose place it takes.
    pub replaced: Option<u32>,
    /// Storage that is made.
    pub made: Vec<VersionedTable>,
    /// Storage that is removed.
    pub gone: Vec<VersionedTable>,
    /// Whose write fence on the table it is; 0 if it is another change.
    pub fence: u8,
    /// What becomes of a database.
    pub database: Option<DatabaseStep>,
    /// No table was given this version or a greater one so far.
    pub version_next: u64,
}

/// `SchemaStateRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaStateRequest {
    /// The number of the view whose president asks.
    pub view: u32,
}

/// `SchemaStateConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaStateConfirm {
    /// The number of the view whose president has asked.
    pub view: u32,
    /// The newest change that was noted here, over or not; 0 if there was none.
    pub change: u64,
    /// Whether that is decided and not over.
    pub is_decided: bool,
    /// Its epoch if it is decided.
    pub epoch: Epoch,
    /// No table was given this version or a greater one, as far as is known here.
    pub version_next: u64,
}

/// `SchemaRoundRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaRoundRequest {
    /// The change and the round that it belongs to.
    pub round: RoundName,
    /// The epoch of the change; 0 as long as it is not decided. The receiver commits nothing in an earlier one any
    /// more.
    pub epoch: Epoch,
    /// The task.
    pub task: RoundTask,
}

/// `SchemaRoundConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaRoundConfirm {
    /// The round whose task is done.
    pub round: RoundName,
    /// The sender has committed nothing in a later epoch.
    pub epoch: Epoch,
}

/// Identifies a round of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RoundName {
    /// Number of the change, from 1 in each incarnation of the cluster; 0: it belongs to none. Tables that are made
    /// again at a start have their ids as steps then.
    pub change: u64,
    /// Number of the round, from 1 in each change.
    pub step: u32,
}

impl RoundName {
    /// Of a task that belongs to no change.
    pub const NO_CHANGE: RoundName = RoundName { change: 0, step: 0 };
}

/// `SchemaRoundRefuse`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaRoundRefuse {
    /// The refused round.
    pub round: RoundName,
    /// [`crate::ErrorCode`].
    pub code: u16,
}
