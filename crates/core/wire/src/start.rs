//! The start of a data node from its files, phase by phase, directed by its lifecycle block; and its stop in order.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `StartRequest` | lifecycle | redo, dictionary, data managers, distribution, coordinators | do your part of this phase |
//! | `StartPartReport` | redo, data managers | lifecycle | so much of my part is done |
//! | `StartConfirm` | the same | lifecycle | done |
//! | `StartRefuse` | the same | lifecycle | it can't be done with these files: the node stops |
//! | `StartProgressReport` | lifecycle, restart | driver | how far the start is |
//! | `NodeStartedOrder` | lifecycle | redo, driver | the node is started: order checkpoints; let clients in |
//! | `DefinitionsReport` | dictionary | lifecycle | definitions on the disk reach so far now |
//! | `EpochLimitOrder` | lifecycle | coordinators, distribution | epochs up to this one may be used: a restart begins above it |
//! | `NodeStopRequest` | driver | lifecycle | no client sends anything any more: bring everything to disk |
//! | `NodeStopConfirm` | lifecycle | driver | it is: the node can end |
//!
//! `docs/protocols/durability.md` has the phases. A node without a disk has only the last one.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use vinga_base::{Amount, Epoch};

/// A log incarnation that still has records in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogIncarnation {
    /// Its number.
    pub number: u32,
    /// The last epoch that is valid in it; `None` while it is the present one.
    pub last_valid: Option<Epoch>,
}

/// How far definitions on the disk reach. Body of `DefinitionsReport` (cold).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct DefinitionsExtent {
    /// The generation of the schema file; 0: there is none.
    pub generation: u64,
    /// How many blocks of it are on the disk.
    pub blocks: u64,
}

/// What a block is to do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StartTask {
    /// Redo, dictionary: make the files of the log and the first generation of the schema file.
    MakeFiles,
    /// Redo: find the newest epoch that is complete in the log.
    ScanLog {
        /// The incarnations in the log.
        incarnations: Vec<LogIncarnation>,
        /// This epoch was recorded as durable: a log that ends before is damaged.
        durable: Epoch,
    },
    /// Dictionary: restore the definitions up to this epoch, and make the tables. Nothing is written.
    RestoreDefinitions {
        /// The restore point.
        epoch: Epoch,
        /// So much was recorded as being on the disk: files that hold less are damaged.
        known: DefinitionsExtent,
    },
    /// Data manager: load the newest checkpoint that is usable.
    LoadCheckpoint {
        /// The restore point.
        epoch: Epoch,
        /// The incarnations of the log, with the last valid epoch of the last one.
        incarnations: Vec<LogIncarnation>,
    },
    /// Redo: have the data managers apply the log up to this epoch.
    ReplayLog {
        /// The restore point.
        epoch: Epoch,
        /// By data manager: the first batch that its checkpoint does not contain; 0 for one without a checkpoint, which
        /// needs everything that was ever logged.
        from: Vec<(u16, u64)>,
    },
    /// Data manager: no more records come; build the indexes.
    EndRestore,
    /// Redo, dictionary: begin to write. What was beyond the restore point is gone for good now.
    OpenLog {
        /// The new incarnation.
        incarnation: u32,
    },
    /// Distribution, dictionary, coordinators, data managers: begin in this epoch.
    Begin {
        /// The first epoch.
        epoch: Epoch,
        /// No epoch above this one may be used before an `EpochLimitOrder` allows it.
        limit: Epoch,
        /// The restore point.
        durable: Epoch,
        /// The incarnation of the log.
        incarnation: u32,
    },
}

/// Body of `StartRequest` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StartRequest {
    /// Ascending over the start; returned in the answer.
    pub step: u32,
    /// What is to be done.
    pub task: StartTask,
}

/// What a block has found or done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StartResult {
    /// It is done.
    Done,
    /// [`StartTask::ScanLog`].
    LogScanned {
        /// The newest epoch whose end record the log reaches.
        complete: Epoch,
        /// The greatest epoch in any record.
        greatest: Epoch,
        /// The log incarnations that have written blocks of it which may still be needed, ascending.
        incarnations: Vec<u32>,
    },
    /// The dictionary's answer to [`StartTask::MakeFiles`], [`StartTask::RestoreDefinitions`] and
    /// [`StartTask::OpenLog`].
    DefinitionsOnDisk {
        /// How far they reach now.
        extent: DefinitionsExtent,
        /// The greatest epoch of any change in the files, whether it counts or not.
        greatest: Epoch,
    },
    /// [`StartTask::LoadCheckpoint`].
    CheckpointLoaded {
        /// The numbers of its files, in the order in which they build on each other; none if no checkpoint counts.
        files: Vec<u64>,
        /// The first batch that it does not contain; 0 if there is no checkpoint that counts.
        batch: u64,
        /// Rows in it.
        rows: u64,
        /// The greatest epoch in any checkpoint.
        greatest: Epoch,
        /// Newer checkpoints that don't count, and why.
        rejected: Vec<String>,
        /// The same for those without an end: unless something has cut them off later, the node stopped while they were
        /// written, which is no damage.
        unfinished: Vec<String>,
        /// The log incarnations in which its files were written, ascending.
        incarnations: Vec<u32>,
    },
    /// [`StartTask::ReplayLog`].
    LogReplayed {
        /// Batches that were applied.
        batches: u64,
    },
    /// A data manager's answer to [`StartTask::EndRestore`].
    Restored {
        /// Rows that it has now; those of unique indexes are not counted.
        rows: u64,
    },
}

/// What a start has restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Restored {
    /// The restore point.
    pub epoch: Epoch,
    /// Rows in all tables; those of unique indexes are not counted.
    pub rows: u64,
    /// Batches of the log that were applied.
    pub batches: u64,
    /// When the restore point was durable, by the node's clock, in milliseconds since 1970, as far as the system file
    /// says: some 50 ms before the node stopped. 0: not known.
    pub durable_at: u64,
    /// How long it took, in milliseconds.
    pub millis: u64,
}

/// From what a data manager has its rows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RestoredFrom {
    /// The data manager.
    pub data_manager: u16,
    /// The numbers of the files of its checkpoint, in the order in which they build on each other; none if no
    /// checkpoint counts.
    pub files: Vec<u64>,
    /// The rows that these files had.
    pub rows: u64,
    /// The first batch of the log that they do not contain; 0: all that was ever logged is needed.
    pub batch: u64,
}

/// Body of `NodeStartedOrder` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeStartedOrder {
    /// What was restored; `None` if there was nothing: an initial start, or a node without a disk.
    pub restored: Option<Restored>,
    /// From what, by data manager, ascending.
    pub from: Vec<RestoredFrom>,
}

/// Body of `StartConfirm` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StartConfirm {
    /// The step of the request.
    pub step: u32,
    /// What was found or done.
    pub result: StartResult,
}

/// Body of `StartPartReport` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StartPartReport {
    /// The step of the request.
    pub step: u32,
    /// What the block has brought to this node's memory, and what there is.
    pub amount: Amount,
}

/// Body of `StartRefuse` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StartRefuse {
    /// The step of the request.
    pub step: u32,
    /// For people: file, place, what is wrong with it, what to do.
    pub reason: String,
    /// The number of an error, if it is one that programs have to know; 0 if not. `DataMemoryFull`: the files are
    /// whole, but there is too little memory.
    pub error: u16,
}

/// A phase of a start that has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PhaseTime {
    /// What was done in it, for people.
    pub work: String,
    /// How long it took, in microseconds.
    pub micros: u64,
}

/// How a data node has come to its rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StartKind {
    /// There was nothing: the cluster began with it.
    First,
    /// From its own files.
    Recovery,
    /// From the other data nodes.
    NodeRestart,
}

impl StartKind {
    /// All of them.
    pub const ALL: [StartKind; 3] = [StartKind::First, StartKind::Recovery, StartKind::NodeRestart];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            StartKind::First => "first start",
            StartKind::Recovery => "recovery",
            StartKind::NodeRestart => "node restart",
        }
    }
}

/// The phase of a node that is started.
pub const STARTED: &str = "started";

/// How far the start of a data node is. Body of `StartProgressReport` (cold).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StartProgressReport {
    /// From where it gets its rows.
    pub kind: StartKind,
    /// What is being done, for people; [`STARTED`] at the end.
    pub phase: String,
    /// Blocks that take part in the phase.
    pub asked: u32,
    /// Those of them that have not done their part.
    pub awaited: u32,
    /// Rows that were loaded from checkpoints, as far as is known.
    pub rows: u64,
    /// Batches of the log that were applied, as far as is known.
    pub batches: u64,
    /// The restore point; 0 before it is known.
    pub epoch: u64,
    /// The phases that have ended, in their order.
    pub finished: Vec<PhaseTime>,
    /// What is brought here in this phase, or was in the last one that has brought something.
    pub amount: Amount,
    /// How long that will take from now on, in microseconds, as far as that can be estimated.
    pub left: Option<u64>,
    /// How long the start has taken so far, in microseconds.
    pub elapsed: u64,
}

impl StartProgressReport {
    /// A start in this phase, of which nothing else is to be said.
    pub fn new(kind: StartKind, phase: &str) -> Self {
        StartProgressReport {
            kind,
            phase: phase.into(),
            asked: 0,
            awaited: 0,
            rows: 0,
            batches: 0,
            epoch: 0,
            finished: Vec::new(),
            amount: Amount::default(),
            left: None,
            elapsed: 0,
        }
    }

    /// Whether the node is started.
    pub fn is_started(&self) -> bool {
        self.phase == STARTED
    }
}
