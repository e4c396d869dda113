//! What was done to each row and seen of it, each with the span of time in which it must have happened.
//!
//! A *sight* is what one read saw, or what an error says of a row; it happened between question and answer. A *change*
//! is all that a committed transaction did to a row; it happened between the request to commit and the answer to that,
//! all at once, and what the transaction saw of the row under its lock, or of its own changes, must fit the version
//! that the change began from.

use crate::check::atomic::Writers;
use crate::history::{Event, History, KeyRead, OperationRecord, OperationResult, RowName, Time, Transaction};
use crate::shape::Value;
use crate::step::{Body, Condition, Fate};
use crate::workload::Contents;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use vinga_base::NodeId;
use vinga_wire::ErrorCode;
use vinga_wire::operation::OperationKind;

/// Something done or seen.
#[derive(Clone, Debug)]
pub struct Action<'a> {
    /// Not before.
    pub start: Time,
    /// Not after.
    pub end: Time,
    /// Whether it has happened for certain.
    pub is_certain: bool,
    /// What.
    pub what: What<'a>,
    /// The transaction, by its place in the history, if it is one's.
    pub transaction: Option<usize>,
    /// [`History::decided`] of a change, if that is known.
    pub decided: Option<u64>,
    /// The backup where it was seen, if it was one.
    pub backup: Option<NodeId>,
}

/// What was done or seen.
#[derive(Clone, Debug)]
pub enum What<'a> {
    /// The row was this, if the condition let it be seen.
    Saw(Option<Value>, Option<Condition>),
    /// There was a row.
    Exists,
    /// There was a row that an operation's conditions did not fit.
    Rejected(&'a OperationRecord),
    /// These happened in one transaction.
    Changed(Vec<Piece<'a>>),
}

/// A part of a change.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// An operation on the row.
    Operation(&'a OperationRecord),
    /// A read of own changes below a number.
    OwnRead(&'a KeyRead, u32),
    /// A partial rollback.
    RollbackTo(u32),
}

impl Action<'_> {
    /// The row after it, if it can happen to a row in this state.
    pub fn apply(&self, state: Option<Value>) -> Option<Option<Value>> {
        let fits = match &self.what {
            What::Saw(seen, condition) => {
                state.filter(|row| condition.is_none_or(|condition| condition.holds(*row))) == *seen
            }
            What::Exists => state.is_some(),
            What::Rejected(operation) => state.is_some_and(|row| !fulfils(operation, row)),
            What::Changed(pieces) => return change(pieces, state),
        };
        fits.then_some(state)
    }

    /// Whether it leaves the row as it is.
    pub fn is_sight(&self) -> bool {
        !matches!(self.what, What::Changed(_))
    }

    /// Whether it makes the row exist (`Some(true)`), vanish (`Some(false)`), or neither.
    pub fn presence(&self) -> Option<bool> {
        let What::Changed(pieces) = &self.what else { return None };
        let mut versions: Vec<(u32, Option<bool>)> = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Operation(operation) if is_effective(operation) => {
                    let presence = match operation.operation.kind {
                        OperationKind::Insert | OperationKind::Write => Some(true),
                        OperationKind::Delete => Some(false),
                        _ => versions.last().and_then(|(_, presence)| *presence),
                    };
                    versions.push((operation.operation.number, presence));
                }
                Piece::RollbackTo(from) => versions.retain(|(number, _)| number < from),
                Piece::Operation(_) | Piece::OwnRead(..) => {}
            }
        }
        versions.last().and_then(|(_, presence)| *presence)
    }
}

/// Whether an operation changes its row if its transaction commits, as far as is known.
fn is_effective(operation: &OperationRecord) -> bool {
    operation.operation.kind.is_change()
        && !matches!(operation.result, OperationResult::Failed(_) | OperationResult::FailedInIndex(_))
}

/// Whether a row fulfils the conditions of an operation.
fn fulfils(operation: &OperationRecord, row: Value) -> bool {
    let expected = match operation.operation.body {
        Body::Change(change) => change.expect.is_none_or(|expect| expect == row.value),
        Body::None | Body::Row(_) | Body::Unlock(_) => true,
    };
    expected && operation.operation.condition.is_none_or(|condition| condition.holds(row))
}

/// The pieces that matter to what a transaction made of a row. When a partial rollback has undone all of its changes so
/// far, what came before does not: an insert that is undone lets go of the row, which others may change then.
fn effective(pieces: Vec<Piece<'_>>) -> Vec<Piece<'_>> {
    let mut kept = Vec::new();
    let mut changes: Vec<u32> = Vec::new();
    for piece in pieces {
        kept.push(piece);
        match piece {
            Piece::Operation(operation) if is_effective(operation) => {
                changes.push(operation.operation.number);
            }
            Piece::RollbackTo(from) => {
                let had_some = !changes.is_empty();
                changes.retain(|number| *number < from);
                if had_some && changes.is_empty() {
                    kept.clear();
                }
            }
            Piece::Operation(_) | Piece::OwnRead(..) => {}
        }
    }
    if changes.is_empty() { Vec::new() } else { kept }
}

/// What an operation does to a version: its result and the version after it; or the error that it gives.
fn execute(operation: &OperationRecord, row: Option<Value>) -> Result<Option<Value>, ErrorCode> {
    let Some(row) = row else {
        return match operation.operation.body {
            Body::Row(value) => Ok(Some(value)),
            Body::None | Body::Change(_) | Body::Unlock(_) => Err(ErrorCode::NoSuchRow),
        };
    };
    if operation.operation.kind == OperationKind::Insert {
        return Err(ErrorCode::DuplicateKey);
    }
    if !fulfils(operation, row) {
        return Err(ErrorCode::ConditionFailed);
    }
    Ok(match (operation.operation.kind, operation.operation.body) {
        (OperationKind::Delete, _) => None,
        (_, Body::Row(value)) => Some(value),
        (_, Body::Change(change)) => {
            let count = (row.count + change.add).checked_sub(change.subtract);
            let count = count.ok_or(ErrorCode::NumericOverflow)?;
            Some(Value { value: change.set.unwrap_or(row.value), count })
        }
        (_, Body::None | Body::Unlock(_)) => Some(row),
    })
}

/// What a transaction's pieces make of a row; `None` if they can't have happened to it.
fn change(pieces: &[Piece<'_>], base: Option<Value>) -> Option<Option<Value>> {
    // Own versions with the numbers of their operations; locking reads have none.
    let mut versions: Vec<(u32, Option<Value>)> = Vec::new();
    let unlocked: BTreeSet<u32> = pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Operation(operation) => match operation.operation.body {
                Body::Unlock(number) => Some(number),
                Body::None | Body::Row(_) | Body::Change(_) => None,
            },
            Piece::OwnRead(..) | Piece::RollbackTo(_) => None,
        })
        .collect();
    for piece in pieces {
        let own = versions.last().copied();
        let current = own.map_or(base, |(_, version)| version);
        match piece {
            Piece::RollbackTo(from) => versions.retain(|(number, _)| number < from),
            Piece::OwnRead(read, before) => {
                let visible = versions.iter().rev().find(|(number, _)| number < before);
                let condition = read.condition;
                if let Some((_, version)) = visible
                    && version.filter(|row| condition.is_none_or(|condition| condition.holds(*row)))
                        != read.seen
                {
                    return None;
                }
            }
            Piece::Operation(operation) => {
                let number = operation.operation.number;
                match operation.operation.kind {
                    OperationKind::Unlock => {}
                    OperationKind::ReadCommitted => {
                        if let (Some((_, version)), OperationResult::Row(seen)) = (own, operation.result)
                            && version.filter(|row| fulfils(operation, *row)) != seen
                        {
                            return None;
                        }
                    }
                    OperationKind::ReadShared | OperationKind::ReadExclusive => {
                        // Where there was no row nothing was locked: that sight stands for itself.
                        if let OperationResult::Row(seen) = operation.result
                            && (own.is_some() || seen.is_some() && !unlocked.contains(&number))
                            && current != seen
                        {
                            return None;
                        }
                    }
                    OperationKind::Insert
                    | OperationKind::Update
                    | OperationKind::Write
                    | OperationKind::Delete => match (operation.result, execute(operation, current)) {
                        (OperationResult::Failed(code), executed) => {
                            // Without an own version the lock was let go: that sight stands for itself.
                            if own.is_some() && is_about_row(code) && executed != Err(code) {
                                return None;
                            }
                        }
                        (OperationResult::FailedInIndex(_), _) => {}
                        (_, Ok(version)) => versions.push((number, version)),
                        (OperationResult::Unknown, Err(_)) if operation.operation.error_is_local => {}
                        (_, Err(_)) => return None,
                    },
                }
            }
        }
    }
    Some(versions.last().map_or(base, |(_, version)| *version))
}

/// Whether an error says something about the row.
fn is_about_row(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NoSuchRow | ErrorCode::DuplicateKey | ErrorCode::ConditionFailed)
}

/// What is known of a transaction besides its answers.
#[derive(Clone, Copy)]
struct Known {
    /// It is committed although nobody was answered.
    is_proven: bool,
    /// What it saw counts.
    sights_count: bool,
    /// [`History::decided`].
    decided: Option<u64>,
}

/// The actions of a history, by row.
pub struct Actions<'a> {
    by_row: BTreeMap<RowName, Vec<Action<'a>>>,
    /// When the history ends: what happened at all has happened by then.
    end: Time,
}

impl<'a> Actions<'a> {
    /// All that was done and seen until `end`. `proven` are transactions that are committed although nobody was
    /// answered.
    pub fn new(history: &'a History, writers: &Writers, proven: &BTreeSet<usize>, end: Time) -> Self {
        let mut actions = Actions { by_row: BTreeMap::new(), end };
        for (index, transaction) in history.transactions.iter().enumerate() {
            let decided = history.decided.get(&transaction.id).copied();
            let (is_proven, sights_count) = (proven.contains(&index), history.trusts(transaction));
            actions.add_transaction(index, transaction, Known { is_proven, sights_count, decided });
        }
        for read in &history.reads {
            let what = What::Saw(read.seen, read.condition);
            actions.add_sight_at(read.backup, None, read.row, (read.sent, read.answered), what);
        }
        for scan in &history.scans {
            for &(sent, answered, key, value) in &scan.rows {
                let own =
                    writers.of(value).is_some_and(|writer| Some(writer.transaction) == scan.transaction);
                if !own {
                    let row = RowName { table: scan.scan.table, version: scan.version, key };
                    actions.add_sight(scan.transaction, row, sent, answered, What::Saw(Some(value), None));
                }
            }
        }
        actions
    }

    /// The rows that are left at the end, and those that are not.
    pub fn add_contents(&mut self, contents: &Contents) {
        let (start, end) = (self.end + 1, Time::MAX);
        for (row, actions) in &mut self.by_row {
            if contents.versions.get(&row.table) == Some(&row.version) {
                let seen = contents.rows.get(&(row.table, row.key)).map(|&(value, _)| value);
                let what = What::Saw(seen, None);
                let (transaction, decided, backup) = (None, None, None);
                actions.push(Action { start, end, is_certain: true, what, transaction, decided, backup });
            }
        }
    }

    /// All rows with their actions.
    pub fn rows(&self) -> impl Iterator<Item = (&RowName, &Vec<Action<'a>>)> {
        self.by_row.iter()
    }

    fn add_sight(
        &mut self,
        transaction: Option<usize>,
        row: RowName,
        start: Time,
        end: Time,
        what: What<'a>,
    ) {
        self.add_sight_at(None, transaction, row, (start, end), what);
    }

    fn add_sight_at(
        &mut self,
        backup: Option<NodeId>,
        transaction: Option<usize>,
        row: RowName,
        (start, end): (Time, Time),
        what: What<'a>,
    ) {
        let action = Action { start, end, is_certain: true, what, transaction, decided: None, backup };
        self.by_row.entry(row).or_default().push(action);
    }

    fn add_transaction(&mut self, index: usize, transaction: &'a Transaction, known: Known) {
        let Known { is_proven, sights_count, decided } = known;
        let mut by_row: BTreeMap<RowName, Vec<Piece<'a>>> = BTreeMap::new();
        for event in &transaction.events {
            match event {
                // The number of the read counts, whichever row an unlock names.
                Event::Operation(operation) if operation.operation.kind == OperationKind::Unlock => {
                    by_row.values_mut().for_each(|pieces| pieces.push(Piece::Operation(operation)));
                }
                Event::Operation(operation) => {
                    by_row.entry(operation.row()).or_default().push(Piece::Operation(operation));
                }
                Event::OwnRead(read, before) => {
                    by_row.entry(read.row).or_default().push(Piece::OwnRead(read, *before));
                }
                Event::RollbackTo(from) => {
                    by_row.values_mut().for_each(|pieces| pieces.push(Piece::RollbackTo(*from)));
                }
            }
        }
        for (row, pieces) in by_row {
            if sights_count {
                self.add_sights(index, row, &pieces);
            }
            let is_committed = matches!(transaction.fate, Fate::Committed(_)) || is_proven;
            let may_be = matches!(transaction.fate, Fate::Open | Fate::Unknown);
            let Some(start) = transaction.commit_sent.filter(|_| is_committed || may_be) else { continue };
            let pieces = effective(pieces);
            if !pieces.is_empty() {
                let end = match transaction.fate {
                    Fate::Committed(_) => transaction.ended.expect("its end is known"),
                    Fate::Open | Fate::Unknown | Fate::RolledBack { .. } => self.end,
                };
                self.by_row.entry(row).or_default().push(Action {
                    start,
                    end,
                    is_certain: is_committed,
                    what: What::Changed(pieces),
                    transaction: Some(index),
                    decided,
                    backup: None,
                });
            }
        }
    }

    /// What a transaction saw of a row before it changed it itself.
    fn add_sights(&mut self, index: usize, row: RowName, pieces: &[Piece<'a>]) {
        let mut changed: Vec<u32> = Vec::new();
        for piece in pieces {
            match piece {
                Piece::RollbackTo(from) => changed.retain(|number| number < from),
                Piece::OwnRead(read, before) => {
                    if !changed.iter().any(|number| number < before) {
                        let what = What::Saw(read.seen, read.condition);
                        self.add_sight(Some(index), row, read.sent, read.answered, what);
                    }
                }
                Piece::Operation(operation) => {
                    if changed.is_empty()
                        && let (Some(what), Some(answered)) = (sight(operation), operation.answered)
                    {
                        self.add_sight(Some(index), row, operation.sent, answered, what);
                    }
                    if may_be_seen(operation) {
                        changed.push(operation.operation.number);
                    }
                }
            }
        }
    }
}

/// Whether later operations of its own transaction may have seen what an operation did: also if it failed afterwards,
/// at a backup.
fn may_be_seen(operation: &OperationRecord) -> bool {
    let is_refused_for_its_row = match operation.result {
        OperationResult::Failed(code) => is_about_row(code) || code == ErrorCode::RowLocked,
        OperationResult::NotLocked(_)
        | OperationResult::FailedInIndex(_)
        | OperationResult::Unknown
        | OperationResult::Done
        | OperationResult::Row(_) => false,
    };
    operation.operation.kind.is_change() && !is_refused_for_its_row
}

/// What the result of an operation says about its row as others know it.
fn sight<'a>(operation: &'a OperationRecord) -> Option<What<'a>> {
    match operation.result {
        OperationResult::Row(seen) => {
            let is_locking = operation.operation.kind != OperationKind::ReadCommitted;
            let condition = operation.operation.condition.filter(|_| !is_locking);
            Some(What::Saw(seen, condition))
        }
        OperationResult::NotLocked(seen) => Some(What::Saw(seen, operation.operation.condition)),
        OperationResult::Failed(ErrorCode::NoSuchRow) => Some(What::Saw(None, None)),
        OperationResult::Failed(ErrorCode::DuplicateKey) => Some(What::Exists),
        OperationResult::Failed(ErrorCode::ConditionFailed) => Some(What::Rejected(operation)),
        OperationResult::Failed(_)
        | OperationResult::FailedInIndex(_)
        | OperationResult::Done
        | OperationResult::Unknown => None,
    }
}
