//! What a session asks for and what it is answered.

use crate::shape::Value;
use alloc::vec::Vec;
use vinga_base::Epoch;
use vinga_wire::ErrorCode;
use vinga_wire::operation::{LockWait, OperationKind};

/// One of the tables of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TableRef(pub u16);

/// What a session does next.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Operations of its transaction. Answered by [`Answer::Executed`].
    Execute(OperationBatch),
    /// Committed reads by key. Answered by [`Answer::Read`].
    Read(Read),
    /// Opens a scan, the session's only one, and asks for its first batch. Answered by [`Answer::Batch`].
    ScanOpen(Scan),
    /// Asks for the next batch. Answered by [`Answer::Batch`].
    ScanNext,
    /// Closes the scan. Answered by [`Answer::Done`].
    ScanClose,
    /// A search by the unique index on the count begins. Answered by [`Answer::Done`].
    Seek {
        /// The table.
        table: TableRef,
        /// What is looked for.
        count: u64,
    },
    /// The search has found this row, with its key, or nothing. Answered by [`Answer::Done`].
    Sought(Option<(u64, Value)>),
    /// Creates the table. Answered by [`Answer::Done`] or [`Answer::Failed`].
    Create(TableRef),
    /// Drops the table. Answered by [`Answer::Done`] or [`Answer::Failed`].
    Drop(TableRef),
    /// Changes the table otherwise. Answered by [`Answer::Done`] or [`Answer::Failed`].
    Change(TableRef, TableChange),
    /// Waits for the schema lock, the session's only one. Answered by [`Answer::Done`] or [`Answer::Failed`].
    Lock,
    /// Lets it go, if it has it. Answered by [`Answer::Done`].
    Unlock,
    /// Makes a backup of all tables. Answered by [`Answer::Done`] or [`Answer::Failed`].
    Backup,
    /// Learns which version of the table there is. Answered by [`Answer::Done`] or [`Answer::Failed`].
    Describe(TableRef),
    /// Does nothing for so many microseconds. Answered by [`Answer::Done`].
    Wait(u64),
    /// The session has come to its end.
    End,
}

impl Step {
    /// Whether it begins something, so that a session may as well end before it.
    pub fn begins_something(&self) -> bool {
        match self {
            Step::Execute(batch) => batch.begin,
            Step::Read(read) => read.own_before.is_none(),
            Step::ScanOpen(scan) => scan.own_before.is_none(),
            Step::Change(_, change) => *change != TableChange::LiftFence,
            Step::Create(_) | Step::Drop(_) | Step::Describe(_) | Step::Lock | Step::Backup => true,
            Step::Seek { .. } => true,
            Step::Sought(_) | Step::Unlock | Step::ScanNext | Step::ScanClose | Step::Wait(_) | Step::End => {
                false
            }
        }
    }
}

/// What becomes of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableChange {
    /// It gets the name that it has: nothing changes but its version.
    Rename,
    /// It loses all rows.
    Truncate,
    /// It gets one more ordered index, or loses all if it has some already.
    Index,
    /// It gets another attachment.
    Attachment,
    /// Only this client may change its rows.
    Fence,
    /// The same, so that this session copies it: no other session of this client changes it or its rows, until this one
    /// lifts the fence. Fails if any of them may have changed rows and has not ended.
    FenceToCopy,
    /// Everybody may again.
    LiftFence,
    /// The same, but the session goes on copying the table: its copy may lack changes from now on, and is not to take
    /// the table's place.
    LoseFence,
    /// It is the complete copy of the table that this session has fenced to copy it, and takes its place.
    TakePlace,
}

/// Operations that travel together.
#[derive(Clone, PartialEq, Debug)]
pub struct OperationBatch {
    /// The transaction begins.
    pub begin: bool,
    /// Before the operations of this batch, those from this number on are undone.
    pub rollback_to: Option<u32>,
    /// The operations, numbers ascending.
    pub operations: Vec<Operation>,
    /// What happens behind them.
    pub end: End,
}

/// What happens behind the operations of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The transaction stays open.
    Stay,
    /// It is committed.
    Commit,
    /// It is rolled back; such a batch has no operations.
    Rollback,
}

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Its number in the transaction, from 1.
    pub number: u32,
    /// What it does.
    pub kind: OperationKind,
    /// The table.
    pub table: TableRef,
    /// The key of its row.
    pub key: u64,
    /// What it carries.
    pub body: Body,
    /// Condition on the row.
    pub condition: Option<Condition>,
    /// Its error leaves the transaction open.
    pub error_is_local: bool,
    /// How long it waits for the lock of its row.
    pub wait: LockWait,
    /// Reads: only some columns are asked for.
    pub selects: bool,
}

impl Operation {
    /// Whether it is a read that gives the committed version of a row that others have locked.
    pub fn gives_committed(&self) -> bool {
        self.wait == LockWait::ElseCommitted && self.kind.is_read()
    }

    /// What is left of it is the lock of its row.
    pub fn become_lock(&mut self) {
        self.kind = OperationKind::ReadExclusive;
        (self.body, self.condition) = (Body::None, None);
    }
}

/// What an operation carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// Nothing.
    None,
    /// Insert, write: the row.
    Row(Value),
    /// Update: what changes.
    Change(Change),
    /// Unlock: the number of the read that took the lock.
    Unlock(u32),
}

/// What an update does.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Change {
    /// Fails unless the value is this.
    pub expect: Option<u64>,
    /// Sets the value.
    pub set: Option<u64>,
    /// Added to the count.
    pub add: u64,
    /// Taken from the count; fails if there is less. Not together with `add`.
    pub subtract: u64,
}

/// A condition on a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// The value is this.
    ValueIs(u64),
    /// The count is below this.
    CountBelow(u64),
    /// The count is this.
    CountIs(u64),
    /// The count is this or more.
    CountAtLeast(u64),
}

impl Condition {
    /// Whether a row fulfils it.
    pub fn holds(&self, row: Value) -> bool {
        match *self {
            Condition::ValueIs(value) => row.value == value,
            Condition::CountBelow(count) => row.count < count,
            Condition::CountIs(count) => row.count == count,
            Condition::CountAtLeast(count) => row.count >= count,
        }
    }
}

/// Committed reads of one table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// The table.
    pub table: TableRef,
    /// The keys.
    pub keys: Vec<u64>,
    /// Condition on the rows: those that don't fulfil it are not returned.
    pub condition: Option<Condition>,
    /// The session's own changes with numbers below this one are seen; `None`: only what is committed. Not before all
    /// writes of the transaction have been answered.
    pub own_before: Option<u32>,
    /// Only some columns are asked for.
    pub selects: bool,
}

/// A scan of a whole table, or of a range of its index by count, partition after partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    /// The table.
    pub table: TableRef,
    /// The range; `None` for all rows, by row id.
    pub range: Option<Range>,
    /// Condition on the rows.
    pub condition: Option<Condition>,
    /// Rows of a batch.
    pub batch_rows: u16,
    /// As in [`Read::own_before`].
    pub own_before: Option<u32>,
    /// Only some columns are asked for.
    pub selects: bool,
    /// Rows are counted, not given: batches are empty. Those of a range are counted by data nodes, or, if only some
    /// columns are asked for, by who asks for the indexed one alone.
    pub counts: bool,
}

impl Scan {
    /// Rows are counted by who asks for the indexed column alone.
    pub fn counts_itself(&self) -> bool {
        self.counts && self.selects && self.range.is_some()
    }
}

/// A range of the index by count, which tables of the shape *noted* have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Counts from this on,
    pub low: u64,
    /// that are below this.
    pub high: u64,
    /// From the greatest count to the least.
    pub is_descending: bool,
    /// Rows of all partitions come in one order, all in one batch.
    pub is_merged: bool,
}

impl Range {
    /// Whether a row is in it.
    pub fn holds(&self, row: Value) -> bool {
        (self.low..self.high).contains(&row.count)
    }
}

/// The answer to a session's last step.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// There was none before.
    Begin,
    /// About a batch of operations.
    Executed(BatchAnswer),
    /// Rows in the order of the keys.
    Read(Vec<Option<Value>>),
    /// Rows with their keys.
    Batch(Batch),
    /// It is done.
    Done,
    /// It failed. Scans are closed by it.
    Failed(ErrorCode),
}

/// What has become of a batch.
#[derive(Clone, PartialEq, Debug)]
pub struct BatchAnswer {
    /// Where the transaction stands.
    pub fate: Fate,
    /// The rows of its reads, by operation number.
    pub rows: Vec<(u32, Option<Value>)>,
    /// Operations that failed alone.
    pub errors: Vec<(u32, ErrorCode)>,
}

/// What is known of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It goes on.
    Open,
    /// It is committed, in this epoch.
    Committed(Epoch),
    /// It is rolled back.
    RolledBack {
        /// Why; `None` if that was asked for.
        error: Option<ErrorCode>,
        /// The operation to blame, 0 for none.
        operation: u32,
    },
    /// Nobody can say any more.
    Unknown,
}

/// Some rows of a scan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Keys and rows.
    pub rows: Vec<(u64, Value)>,
    /// There are no more; the scan is closed.
    pub is_last: bool,
}
