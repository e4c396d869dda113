//! Who waited for a lock until the time-out was in somebody's way for so long.
//!
//! A transaction may hold a row from the moment that it first asked for it until its end is known. An operation that was
//! refused by the lock time-out must have found the row held without a gap for at least that time.

use crate::check::describe;
use crate::history::{Event, History, OperationResult, RowName, Time, Transaction};
use crate::step::Fate;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_wire::ErrorCode;

/// A transaction may hold a row for so long.
#[derive(Clone, Copy, Debug)]
struct Hold {
    transaction: usize,
    from: Time,
    to: Time,
}

/// Checks all operations that were refused by the lock time-out, which is `lock_timeout`.
///
/// # Errors
/// One that nobody kept waiting.
pub fn check(history: &History, end: Time, lock_timeout: Time) -> Result<(), String> {
    let holds = holds(history, end);
    for (index, transaction) in history.transactions.iter().enumerate() {
        for event in &transaction.events {
            let Event::Operation(operation) = event else { continue };
            if operation.result != OperationResult::Failed(ErrorCode::LockTimeout) {
                continue;
            }
            let (row, answered) = (operation.row(), operation.answered.unwrap_or(end));
            let others = holds.get(&row).into_iter().flatten().filter(|hold| hold.transaction != index);
            let held = longest(others, operation.sent, answered);
            if held < lock_timeout {
                return Err(format!(
                    "operation {} of {:#x} waited for {} until the time-out of {lock_timeout} µs, but nobody held it \
                     for more than {held} µs between {} and {answered}",
                    operation.operation.number,
                    transaction.id,
                    describe(row),
                    operation.sent,
                ));
            }
        }
    }
    Ok(())
}

fn holds(history: &History, end: Time) -> BTreeMap<RowName, Vec<Hold>> {
    let mut holds: BTreeMap<RowName, Vec<Hold>> = BTreeMap::new();
    for (index, transaction) in history.transactions.iter().enumerate() {
        let to = released(transaction).unwrap_or(end);
        for event in &transaction.events {
            let Event::Operation(operation) = event else { continue };
            let list = holds.entry(operation.row()).or_default();
            if list.last().is_none_or(|last| last.transaction != index) {
                list.push(Hold { transaction: index, from: operation.sent, to });
            }
        }
    }
    holds.values_mut().for_each(|list| list.sort_by_key(|hold| hold.from));
    holds
}

/// When a transaction held nothing any more; `None` if only the data nodes know.
fn released(transaction: &Transaction) -> Option<Time> {
    match transaction.fate {
        Fate::Committed(_) => transaction.ended,
        Fate::RolledBack { error: Some(ErrorCode::ConnectionLost), .. } | Fate::Open | Fate::Unknown => None,
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
