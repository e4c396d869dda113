//! One schema change inside the cluster, round after round. All bodies are cold.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `SchemaRoundRequest` | dictionary | coordinators or data managers | do your part of this round |
//! | `SchemaRoundConfirm` | they | dictionary | done |
//! | `SchemaRoundRefuse` | data manager | dictionary | it can't be done; nothing of this round is kept |
//!
//! Answers carry the number of the change and the step, so that none is taken for another's. What the rounds do, and in
//! which order they come, is told in `docs/protocols/schema.md`.

use crate::dictionary::{TableRecord, VersionedTable};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use vinga_base::schema::IndexDefinition;

/// What a block does in a round.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RoundTask {
    /// Data managers: make storage for the tables with these ids (`record` itself, or hidden tables of it). If the
    /// table itself is not among them it is there already, and is accepted in both versions from now on.
    Prepare {
        /// The table as it is going to be.
        record: TableRecord,
        /// What has to be made.
        made: Vec<u32>,
    },
    /// Coordinators: begin nothing more on these tables; confirm when all that was begun has ended.
    Switch {
        /// The tables.
        tables: Vec<VersionedTable>,
    },
    /// Data managers: fill the new indexes. Nobody writes.
    Build {
        /// The table.
        table: u32,
        /// Ordered indexes to be built.
        ordered: Vec<IndexDefinition>,
        /// Refuse with `NotSupportedYet` if there are rows: a unique index is new.
        must_be_empty: bool,
    },
    /// Coordinators: the table and its hidden tables are these from now on, and may be used; those that are gone are
    /// not known any more.
    Publish {
        /// The table.
        record: Option<TableRecord>,
        /// What is gone.
        gone: Vec<VersionedTable>,
    },
    /// Data managers: only this version of the table is accepted from now on, and nothing of those that are gone.
    Complete {
        /// The table.
        record: Option<TableRecord>,
        /// What is gone.
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
        /// Who may; 0: everybody.
        api: u8,
    },
}

/// `SchemaRoundRequest`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaRoundRequest {
    /// Which change it belongs to, and which of its rounds it is.
    pub round: RoundName,
    /// What to do.
    pub task: RoundTask,
}

/// Names a round of a change; body of `SchemaRoundConfirm`.
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
    /// What is refused.
    pub round: RoundName,
    /// Why: [`crate::ErrorCode`].
    pub code: u16,
}
