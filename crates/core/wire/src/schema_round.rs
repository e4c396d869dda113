//! One schema change inside the cluster, in rounds. All bodies are cold.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `SchemaRoundRequest` | dictionary | coordinators or data managers | do your part of this round |
//! | `SchemaRoundConfirm` | the receivers | dictionary | done |
//! | `SchemaRoundRefuse` | data manager | dictionary | this round failed; nothing of it is kept |
//!
//! Answers carry the number of the change and the step, so that they can't be mistaken for those of another round.
//!
//! A change has an epoch, as transactions have: a restart brings it back if it restores that epoch. Confirmations carry
//! the newest epoch of their sender, so that the change's is not before any transaction that came before the change; the
//! rounds behind the decision carry the change's, so that no transaction on what it made commits before it.
//! `docs/protocols/schema.md` documents the rounds and their order.

use crate::dictionary::{TableRecord, VersionedTable};
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
}

/// `SchemaRoundRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaRoundRequest {
    /// The change and the round that it belongs to.
    pub round: RoundName,
    /// The epoch of the change; 0 as long as it is not decided. The receiver commits nothing in an earlier one any more.
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
    /// Number of the change, from 1 in each incarnation of the dictionary.
    pub change: u64,
    /// Number of the round, from 1 in each change.
    pub step: u32,
}

/// `SchemaRoundRefuse`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaRoundRefuse {
    /// The refused round.
    pub round: RoundName,
    /// [`crate::ErrorCode`].
    pub code: u16,
}
