//! What was asked and answered, and when. The runner writes it, the checks read it.

use crate::shape::Value;
use crate::step::{Body, Condition, Fate, Operation, Scan, TableRef};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use vinga_base::{Epoch, NodeId};
use vinga_wire::ErrorCode;

/// Microseconds of the runner's clock.
pub type Time = u64;

/// A key of one birth of a table: a table that is truncated, or dropped and created again, has other rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowName {
    /// The table.
    pub table: TableRef,
    /// The version with which its rows began.
    pub version: u64,
    /// The key.
    pub key: u64,
}

/// All that sessions have asked and been answered, with times.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// All transactions, in the order in which they were begun.
    pub transactions: Vec<Transaction>,
    /// Committed reads outside of transactions, one entry a key.
    pub reads: Vec<KeyRead>,
    /// Scans outside and inside of transactions.
    pub scans: Vec<ScanRecord>,
    /// Searches by unique index that came to their end.
    pub finds: Vec<Find>,
    /// Numbers that ascend in the order in which transactions were decided, by [`Transaction::id`], as far as the
    /// runner could look inside. They shorten searches; nothing is proven by them.
    pub decided: BTreeMap<u64, u64>,
    /// In which epoch each transaction was decided, by [`Transaction::id`], as far as the runner could look inside:
    /// says what became of those that were in doubt when the cluster died.
    pub epochs: BTreeMap<u64, Decided>,
    /// Tables whose rows are lists that only grow ([`crate::list_append`]).
    pub lists: BTreeSet<TableRef>,
    /// When the cluster died the last time: of what was under way then only the commits may have happened, and nothing
    /// of it is in anybody's way any more.
    pub died_at: Time,
}

/// What was seen of a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decided {
    /// It is committed, in this epoch.
    Commit(Epoch),
    /// If it was committed at once, with its last operations, it was in this epoch, or a later one if the last replica
    /// has committed it and nothing that says so has arrived.
    Perhaps(Epoch),
}

/// The whole cluster has died, and has gone back to what was on its disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The restore point: everything up to this epoch is there.
    pub after: Epoch,
    /// The first epoch of the next incarnation: nothing between the two is there.
    pub before: Epoch,
    /// When the cluster died.
    pub at: Time,
}

impl Loss {
    /// As if everything behind the end of an epoch were lost: what is left is what a backup of that epoch has.
    pub fn behind(epoch: Epoch, at: Time) -> Self {
        Loss { after: epoch, before: Epoch(u64::MAX), at }
    }
}

impl History {
    /// What is left of it after the cluster has gone back some times: transactions that were restored, those that may
    /// have been, and what was done since. What others saw, and what lost transactions did, is as if it had never been.
    ///
    /// An epoch that was restored was closed before: its coordinators knew all its commits. So [`History::epochs`] says
    /// whether a transaction was restored whose outcome the death of the cluster has left in doubt. The exception is a
    /// transaction that was to commit together with its last operations, or at the last replica
    /// ([`Decided::Perhaps`]): it may not have been committed at all.
    pub fn surviving(&self, losses: &[Loss]) -> History {
        let died_at = losses.last().map_or(0, |loss| loss.at);
        let mut history = History { died_at, ..self.clone() };
        history.reads.retain(|read| read.sent >= died_at);
        history.scans.retain(|scan| scan.opened >= died_at);
        history.finds.retain(|find| find.begun >= died_at);
        for transaction in &mut history.transactions {
            let is_old = transaction.begun().is_none_or(|begun| begun < died_at);
            let is_restored =
                |epoch: Epoch| !losses.iter().any(|loss| loss.after < epoch && epoch < loss.before);
            let is_left = match transaction.fate {
                Fate::Committed(epoch) => is_restored(epoch),
                Fate::Open | Fate::Unknown if is_old => match self.epochs.get(&transaction.id) {
                    Some(&Decided::Commit(epoch)) => {
                        (transaction.fate, transaction.ended) = (Fate::Committed(epoch), Some(died_at));
                        is_restored(epoch)
                    }
                    Some(&Decided::Perhaps(epoch)) => is_restored(epoch) && transaction.commit_sent.is_some(),
                    None => false,
                },
                Fate::Open | Fate::Unknown => true,
                Fate::RolledBack { .. } => !is_old,
            };
            if !is_left {
                transaction.events.clear();
                transaction.fate = Fate::RolledBack { error: None, operation: 0 };
            }
        }
        history
    }

    /// Forgets what was done with some tables before the cluster died the last time: their rows are gone, whatever was
    /// restored. What transactions did in other tables stays.
    pub fn empty(&mut self, is_emptied: impl Fn(TableRef) -> bool) {
        let died_at = self.died_at;
        for transaction in &mut self.transactions {
            transaction.events.retain(|event| match event {
                Event::Operation(record) => {
                    record.sent >= died_at || !record.is_about_row() || !is_emptied(record.operation.table)
                }
                Event::OwnRead(read, _) => read.sent >= died_at || !is_emptied(read.row.table),
                Event::RollbackTo(_) => true,
            });
        }
    }

    /// Whether what a transaction saw counts: one that is in doubt since the cluster has died may have seen what was
    /// lost then.
    pub fn trusts(&self, transaction: &Transaction) -> bool {
        let is_in_doubt = matches!(transaction.fate, Fate::Open | Fate::Unknown);
        !is_in_doubt || transaction.begun().is_none_or(|begun| begun >= self.died_at)
    }

    /// Forgets what was done with some tables: hidden ones, whose rows are not written by anybody whom the history
    /// knows.
    pub fn leave_out(&mut self, is_meant: impl Fn(TableRef) -> bool) {
        self.reads.retain(|read| !is_meant(read.row.table));
        for transaction in &mut self.transactions {
            transaction.events.retain(|event| match event {
                Event::Operation(record) => !record.is_about_row() || !is_meant(record.operation.table),
                Event::OwnRead(read, _) => !is_meant(read.row.table),
                Event::RollbackTo(_) => true,
            });
        }
    }
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// As it travels in signals, for people who search in a trace.
    pub id: u64,
    /// Who ran it.
    pub session: u32,
    /// What happened in it, in order.
    pub events: Vec<Event>,
    /// When its commit was asked for.
    pub commit_sent: Option<Time>,
    /// When its end was known.
    pub ended: Option<Time>,
    /// What became of it.
    pub fate: Fate,
}

impl Transaction {
    /// When the first thing in it was asked for; `None` if nothing was.
    pub fn begun(&self) -> Option<Time> {
        let asked = self.events.iter().filter_map(|event| match event {
            Event::Operation(record) => Some(record.sent),
            Event::OwnRead(read, _) => Some(read.sent),
            Event::RollbackTo(_) => None,
        });
        asked.min()
    }

    /// Whether the operation with this number, which is the event at a place, is undone by a later partial rollback.
    pub fn undoes_later(&self, at: usize, number: u32) -> bool {
        self.events[at..].iter().any(|later| matches!(later, Event::RollbackTo(from) if *from <= number))
    }
}

/// Something in a transaction.
#[derive(Clone, Debug)]
pub enum Event {
    /// An operation.
    Operation(OperationRecord),
    /// A committed read by key that sees own changes with numbers below this one.
    OwnRead(KeyRead, u32),
    /// Operations from this number on are undone.
    RollbackTo(u32),
}

/// One operation and what became of it.
#[derive(Clone, Debug)]
pub struct OperationRecord {
    /// What was asked.
    pub operation: Operation,
    /// The birth of the table that it named.
    pub version: u64,
    /// When it was sent.
    pub sent: Time,
    /// When its result was known.
    pub answered: Option<Time>,
    /// The result.
    pub result: OperationResult,
}

impl OperationRecord {
    /// The row that it is about.
    pub fn row(&self) -> RowName {
        RowName { table: self.operation.table, version: self.version, key: self.operation.key }
    }

    /// Whether it says anything of the row that it names: the end of a lock is about the read that has taken it,
    /// whichever row it names.
    pub fn is_about_row(&self) -> bool {
        !matches!(self.operation.body, Body::Unlock(_))
    }

    /// The value that it gives its row, if it says so.
    pub fn written(&self) -> Option<u64> {
        match self.operation.body {
            Body::Row(value) => Some(value.value),
            Body::Change(change) => change.set,
            Body::None | Body::Unlock(_) => None,
        }
    }
}

/// What is known of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationResult {
    /// Nothing.
    Unknown,
    /// It is done.
    Done,
    /// It has read this.
    Row(Option<Value>),
    /// It failed.
    Failed(ErrorCode),
    /// Others had the row locked; it has read the committed version.
    NotLocked(Option<Value>),
    /// It failed because of a unique index, which says nothing of its row.
    FailedInIndex(ErrorCode),
}

/// One key of a committed read.
#[derive(Clone, Copy, Debug)]
pub struct KeyRead {
    /// The row.
    pub row: RowName,
    /// When it was asked for.
    pub sent: Time,
    /// When it was answered.
    pub answered: Time,
    /// Rows that don't fulfil it are not seen.
    pub condition: Option<Condition>,
    /// What was seen.
    pub seen: Option<Value>,
    /// The backup that has answered; `None` if it was the primary.
    pub backup: Option<NodeId>,
}

/// One search by the unique index on the count.
#[derive(Clone, Copy, Debug)]
pub struct Find {
    /// The table.
    pub table: TableRef,
    /// Its birth.
    pub version: u64,
    /// What was looked for.
    pub count: u64,
    /// When it began.
    pub begun: Time,
    /// When its result was there.
    pub ended: Time,
    /// The row that was found, with its key.
    pub found: Option<(u64, Value)>,
}

/// One scan.
#[derive(Clone, Debug)]
pub struct ScanRecord {
    /// What was asked.
    pub scan: Scan,
    /// The birth of the table that it named.
    pub version: u64,
    /// The place of its transaction in [`History::transactions`], if it sees own changes.
    pub transaction: Option<usize>,
    /// When it was opened.
    pub opened: Time,
    /// When its last batch came, if it came to its end.
    pub ended: Option<Time>,
    /// The partition of each of [`ScanRecord::rows`], in whose order they come; empty if all partitions are merged.
    pub parts: Vec<u16>,
    /// The rows: when the batch was asked for, when it came, key, row.
    pub rows: Vec<(Time, Time, u64, Value)>,
    /// How many rows it counted, if it did not give them.
    pub counted: u64,
}
