//! A table that is copied: the copy gets the rows behind a write fence, and then takes the table's place.

use crate::shape::Value;
use crate::step::{
    Answer, BatchAnswer, Body, End, Fate, Operation, OperationBatch, Scan, Step, TableChange, TableRef,
};
use alloc::vec::Vec;
use fastrand::Rng;
use vinga_wire::operation::{LockWait, OperationKind};

/// Rows of a transaction that fills the copy, at most.
const ROWS_AT_ONCE: usize = 4;

/// How often something is tried again. (Who has lost its connection has lost the write fence, and does not notice.)
const FAILURES_MAX: u32 = 4;

/// What was asked for last.
#[derive(Clone, Copy)]
enum Stage {
    Begin,
    Dropping,
    Creating,
    Describing,
    Fencing,
    Scanning,
    /// The session pauses, or a part of the rows is being written.
    Filling,
    /// It gives up the write fence too early.
    Losing,
    /// It pauses in front of the last change.
    Pausing,
    Replacing,
    Lifting,
}

/// Copies a table once. What fails ends it; the write fence is lifted then.
pub struct Copier {
    table: TableRef,
    copy: TableRef,
    /// How long it pauses, at most, in microseconds.
    pause: u64,
    /// Whether the table is fenced before the copy is created: then the fence may end long before the rows are read.
    fences_first: bool,
    /// Whether it gives up the write fence before the copy takes the table's place, which must be refused then. (Those
    /// that lose it with their connection are few.)
    loses_fence: bool,
    stage: Stage,
    /// Rows that are still to be written.
    rows: Vec<(u64, Value)>,
    /// Those of them that are being written: again, if that fails.
    under_way: Vec<(u64, Value)>,
    failures_left: u32,
}

impl Copier {
    /// The copy gets another name until it is complete, which no other session uses.
    pub fn new(table: TableRef, copy: TableRef, pause: u64, random: &mut Rng) -> Self {
        Copier {
            table,
            copy,
            pause,
            fences_first: random.bool(),
            loses_fence: random.u8(..4) == 0,
            stage: Stage::Begin,
            rows: Vec::new(),
            under_way: Vec::new(),
            failures_left: FAILURES_MAX,
        }
    }

    /// The next step, given the answer to the last one; `None` when it has come to its end.
    pub fn next(&mut self, random: &mut Rng, last: &Answer) -> Option<Step> {
        let is_done = !matches!(last, Answer::Failed(_));
        match (self.stage, last) {
            (Stage::Begin, _) if self.fences_first => self.describe(),
            (Stage::Begin, _) => self.drop_older(),
            (Stage::Dropping, _) => self.enter(Stage::Creating, Step::Create(self.copy)),
            (Stage::Creating, _) if is_done && !self.fences_first => self.describe(),
            (Stage::Describing, _) if is_done => {
                self.enter(Stage::Fencing, Step::Change(self.table, TableChange::FenceToCopy))
            }
            (Stage::Describing | Stage::Lifting, _) => None,
            (Stage::Fencing, _) if is_done && self.fences_first => self.drop_older(),
            (Stage::Fencing | Stage::Creating, _) if is_done => {
                let batch_rows = random.u16(1..20);
                self.enter(Stage::Scanning, Step::ScanOpen(scan(self.table, batch_rows)))
            }
            (Stage::Scanning, Answer::Batch(batch)) => {
                self.rows.extend(&batch.rows);
                if !batch.is_last {
                    return Some(Step::ScanNext);
                }
                self.enter(Stage::Filling, Step::Wait(self.pause(random)))
            }
            (Stage::Filling, Answer::Done) => self.fill(random),
            (Stage::Filling, Answer::Executed(BatchAnswer { fate: Fate::Committed(_), .. })) => {
                self.under_way.clear();
                self.fill(random)
            }
            (Stage::Losing, _) => self.enter(Stage::Pausing, Step::Wait(self.pause)),
            (Stage::Pausing, _) => {
                self.enter(Stage::Replacing, Step::Change(self.copy, TableChange::TakePlace))
            }
            (Stage::Filling, _) if self.tries_again() => Some(Step::Wait(random.u64(..=self.pause))),
            (Stage::Replacing, Answer::Failed(_)) if self.tries_again() => {
                self.enter(Stage::Pausing, Step::Wait(random.u64(..=self.pause)))
            }
            (Stage::Creating | Stage::Fencing | Stage::Scanning | Stage::Filling | Stage::Replacing, _) => {
                self.enter(Stage::Lifting, Step::Change(self.table, TableChange::LiftFence))
            }
        }
    }

    fn tries_again(&mut self) -> bool {
        let tries = self.failures_left > 0;
        self.failures_left = self.failures_left.saturating_sub(1);
        tries
    }

    fn describe(&mut self) -> Option<Step> {
        self.enter(Stage::Describing, Step::Describe(self.table))
    }

    /// An earlier attempt may have left a copy.
    fn drop_older(&mut self) -> Option<Step> {
        self.enter(Stage::Dropping, Step::Drop(self.copy))
    }

    fn enter(&mut self, stage: Stage, step: Step) -> Option<Step> {
        self.stage = stage;
        Some(step)
    }

    /// Often none: then nothing else happens in between.
    fn pause(&self, random: &mut Rng) -> u64 {
        if random.bool() { random.u64(..=self.pause) } else { 0 }
    }

    /// A transaction that writes some more rows, if there are any.
    fn fill(&mut self, random: &mut Rng) -> Option<Step> {
        self.rows.append(&mut self.under_way);
        if self.rows.is_empty() && self.loses_fence {
            return self.enter(Stage::Losing, Step::Change(self.table, TableChange::LoseFence));
        }
        if self.rows.is_empty() {
            return self.enter(Stage::Pausing, Step::Wait(self.pause(random)));
        }
        self.under_way = self.rows.split_off(self.rows.len().saturating_sub(ROWS_AT_ONCE));
        let write = |(number, (key, value))| Operation {
            number,
            kind: OperationKind::Write,
            table: self.copy,
            key,
            body: Body::Row(value),
            condition: None,
            error_is_local: false,
            wait: LockWait::Default,
            selects: false,
        };
        let operations = (1..).zip(self.under_way.iter().copied()).map(write).collect();
        Some(Step::Execute(OperationBatch { begin: true, rollback_to: None, operations, end: End::Commit }))
    }
}

/// All rows, as they are committed.
fn scan(table: TableRef, batch_rows: u16) -> Scan {
    Scan { table, range: None, condition: None, batch_rows, own_before: None, selects: false, counts: false }
}
