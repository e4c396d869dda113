//! Locks keep others waiting for as long as these want, and for nothing else.
//!
//! A transaction may hold a row from the moment that it first asked for it until its end is known. So
//! - an operation that was refused by a lock time-out must have found the row held without a gap for at least as long
//!   as it was to wait;
//! - one that was not to wait must not have been refused by a time-out or as the victim of a deadlock;
//! - one that found its row locked was not to wait, somebody else held the row at some moment meanwhile, and its own
//!   transaction did not hold it exclusively all the time;
//! - who skips locked rows loses no transaction by one.

use crate::check::describe;
use crate::history::{Event, History, OperationRecord, OperationResult, RowName, Time, Transaction};
use crate::step::{Body, Fate};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_wire::ErrorCode;
use vinga_wire::operation::{LockWait, OperationKind};

/// A transaction may hold a row for so long.
#[derive(Clone, Copy, Debug)]
struct Hold {
    transaction: usize,
    from: Time,
    to: Time,
}

/// How long operations wait for locks.
#[derive(Clone, Copy, Debug)]
pub struct LockWaits {
    /// `TransactionDeadlockDetectionTimeout` of the data nodes.
    pub lock_timeout: Time,
    /// By how much their clocks may run faster than that of the history, in millionths.
    pub clock_drift_max: u32,
}

impl LockWaits {
    /// How long somebody has waited at least, by the clock of the history, whose time to wait is over.
    fn least(&self, wait: Time) -> Time {
        wait * 1_000_000 / (1_000_000 + Time::from(self.clock_drift_max))
    }
}

impl From<Time> for LockWaits {
    /// There is one clock.
    fn from(lock_timeout: Time) -> Self {
        LockWaits { lock_timeout, clock_drift_max: 0 }
    }
}

/// Checks all operations that locks were in the way of.
///
/// # Errors
/// One that nobody kept waiting, or that waited though it was not to.
pub fn check(history: &History, end: Time, waits: LockWaits) -> Result<(), String> {
    let holds = holds(history, end);
    for (index, transaction) in history.transactions.iter().enumerate() {
        for (at, event) in transaction.events.iter().enumerate() {
            let Event::Operation(operation) = event else { continue };
            if operation.sent < history.died_at {
                continue;
            }
            let (row, answered) = (operation.row(), operation.answered.unwrap_or(end));
            let others = holds.get(&row).into_iter().flatten().filter(|hold| hold.transaction != index);
            check_operation(operation, answered, others, waits)
                .and_then(|()| check_own(transaction, at, operation))
                .map_err(|what| {
                    format!(
                        "operation {} of {:#x} on {}, from {} to {answered}, {what}",
                        operation.operation.number,
                        transaction.id,
                        describe(row),
                        operation.sent
                    )
                })?;
        }
    }
    Ok(())
}

fn check_operation<'a>(
    operation: &OperationRecord,
    answered: Time,
    mut others: impl Iterator<Item = &'a Hold>,
    waits: LockWaits,
) -> Result<(), String> {
    let (OperationResult::Failed(code) | OperationResult::FailedInIndex(code)) = operation.result else {
        return check_not_locked(operation, answered, others);
    };
    let wait = match operation.operation.wait {
        LockWait::Default => Some(waits.lock_timeout),
        LockWait::Millis(0) | LockWait::NoWait | LockWait::SkipLocked | LockWait::ElseCommitted => None,
        LockWait::Millis(millis) => Some(Time::from(millis) * 1000),
    };
    match (code, wait) {
        (ErrorCode::LockTimeout | ErrorCode::Deadlock, None) => {
            Err(format!("was not to wait, and failed with {code:?}"))
        }
        // What was in the way in an index is not known.
        _ if !matches!(operation.result, OperationResult::Failed(_)) => Ok(()),
        (ErrorCode::LockTimeout, Some(wait)) => {
            let held = longest(others, operation.sent, answered);
            if held >= waits.least(wait) {
                return Ok(());
            }
            Err(format!("waited until the time-out of {wait} µs, but nobody held it for more than {held} µs"))
        }
        (ErrorCode::RowLocked, Some(_)) => Err(String::from("was not waited for")),
        (ErrorCode::RowLocked, None) if !others.any(|hold| overlaps(hold, operation.sent, answered)) => {
            Err(String::from("found it locked, but nobody had it"))
        }
        _ => Ok(()),
    }
}

/// A committed version was read instead of a lock.
fn check_not_locked<'a>(
    operation: &OperationRecord,
    answered: Time,
    mut others: impl Iterator<Item = &'a Hold>,
) -> Result<(), String> {
    match (operation.result, operation.operation.wait) {
        (OperationResult::NotLocked(_), LockWait::ElseCommitted)
            if others.any(|hold| overlaps(hold, operation.sent, answered)) =>
        {
            Ok(())
        }
        (OperationResult::NotLocked(_), LockWait::ElseCommitted) => {
            Err(String::from("gave a committed version instead of a lock, but nobody had it"))
        }
        (OperationResult::NotLocked(_), wait) => Err(format!("gave a committed version with {wait:?}")),
        _ => Ok(()),
    }
}

fn overlaps(hold: &Hold, from: Time, to: Time) -> bool {
    hold.from <= to && hold.to >= from
}

/// What a transaction that finds a row locked says of itself.
fn check_own(transaction: &Transaction, at: usize, operation: &OperationRecord) -> Result<(), String> {
    if !matches!(
        operation.result,
        OperationResult::NotLocked(_) | OperationResult::Failed(ErrorCode::RowLocked)
    ) {
        return Ok(());
    }
    if let Fate::RolledBack { error: Some(ErrorCode::RowLocked), operation: blamed } = transaction.fate
        && blamed == operation.operation.number
        && operation.operation.wait.skips()
    {
        return Err(String::from("was to skip what is locked, and cost its transaction"));
    }
    let earlier = transaction.events[..at].iter().filter_map(|event| match event {
        Event::Operation(earlier) => Some(earlier),
        Event::OwnRead(..) | Event::RollbackTo(_) => None,
    });
    let has_let_go = |number: u32| {
        transaction.events.iter().any(|event| match event {
            Event::Operation(other) => other.operation.body == Body::Unlock(number),
            Event::OwnRead(..) | Event::RollbackTo(_) => false,
        })
    };
    let holds = |earlier: &OperationRecord| {
        let number = earlier.operation.number;
        earlier.row() == operation.row()
            && earlier.answered.is_some_and(|answered| answered <= operation.sent)
            && match (earlier.operation.kind, earlier.result) {
                (OperationKind::ReadExclusive, OperationResult::Row(Some(_))) => !has_let_go(number),
                (OperationKind::Update, OperationResult::Done) => true,
                _ => false,
            }
    };
    // A row that the transaction had inserted is gone when that is undone, and everybody's locks with it. Whether a
    // write has inserted its row is not known here.
    let has_vanished = transaction.events[..at].iter().any(|event| match event {
        Event::RollbackTo(first) => transaction.events[..at].iter().any(|event| match event {
            Event::Operation(insert) => {
                insert.row() == operation.row()
                    && matches!(insert.operation.kind, OperationKind::Insert | OperationKind::Write)
                    && insert.operation.number >= *first
            }
            Event::OwnRead(..) | Event::RollbackTo(_) => false,
        }),
        Event::Operation(_) | Event::OwnRead(..) => false,
    });
    if has_vanished {
        return Ok(());
    }
    match earlier.into_iter().find(|earlier| holds(earlier)) {
        None => Ok(()),
        Some(earlier) => Err(format!(
            "found it locked by others, though its transaction had locked it by operation {}",
            earlier.operation.number
        )),
    }
}

fn holds(history: &History, end: Time) -> BTreeMap<RowName, Vec<Hold>> {
    let mut holds: BTreeMap<RowName, Vec<Hold>> = BTreeMap::new();
    for (index, transaction) in history.transactions.iter().enumerate() {
        let to = released(transaction).unwrap_or(end);
        for event in &transaction.events {
            let Event::Operation(operation) = event else { continue };
            if !may_lock(operation) {
                continue;
            }
            let list = holds.entry(operation.row()).or_default();
            if list.last().is_none_or(|last| last.transaction != index) {
                list.push(Hold { transaction: index, from: operation.sent, to });
            }
        }
    }
    holds.values_mut().for_each(|list| list.sort_by_key(|hold| hold.from));
    holds
}

/// Whether an operation may have got the lock of its row, or waited for it.
fn may_lock(operation: &OperationRecord) -> bool {
    let is_denied = matches!(
        operation.result,
        OperationResult::NotLocked(_) | OperationResult::Failed(ErrorCode::RowLocked)
    );
    let asks = !matches!(operation.operation.kind, OperationKind::ReadCommitted | OperationKind::Unlock);
    asks && !is_denied
}

/// When a transaction held nothing any more; `None` if only the data nodes know.
fn released(transaction: &Transaction) -> Option<Time> {
    match transaction.fate {
        Fate::Committed(_) => transaction.ended,
        // Whoever is answered that it was rolled back may be answered while that goes on.
        Fate::RolledBack {
            error: Some(ErrorCode::ConnectionLost | ErrorCode::TransactionAborted), ..
        }
        | Fate::Open
        | Fate::Unknown => None,
        Fate::RolledBack { .. } => transaction.ended,
    }
}

/// The longest time without a gap between `from` and `to` in which somebody held the row. Holds come by their begin.
fn longest<'a>(holds: impl Iterator<Item = &'a Hold>, from: Time, to: Time) -> Time {
    let mut longest = 0;
    let mut present: Option<(Time, Time)> = None;
    for hold in holds {
        let (begin, end) = (hold.from.max(from), hold.to.min(to));
        if begin >= end {
            continue;
        }
        let (since, until) = match present {
            Some((since, until)) if begin <= until => (since, until.max(end)),
            Some(_) | None => (begin, end),
        };
        present = Some((since, until));
        longest = longest.max(until - since);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data node whose clock is a tenth too fast gives a wait of 1,100 µs up after 1,000.
    #[test]
    fn a_fast_clock_ends_waits_sooner() {
        assert_eq!(LockWaits::from(1_100).least(1_100), 1_100);
        assert_eq!(LockWaits { lock_timeout: 1_100, clock_drift_max: 100_000 }.least(1_100), 1_000);
    }
}
