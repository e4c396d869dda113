//! No transaction has an older epoch than one that it follows.
//!
//! A transaction follows another if it began to work on a row after the other's commit of that row was known, or if it
//! saw a value that the other wrote. It also follows what its client knows to be committed, on whatever rows, since
//! clients name the newest epoch that they have seen. The header of a row holds the epoch of the last transaction that
//! changed it.

use crate::check::atomic::Writers;
use crate::check::describe;
use crate::history::{Event, History, OperationResult, RowName, Time};
use crate::step::Fate;
use crate::workload::Contents;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::TransactionId;
use vinga_wire::operation::OperationKind;

/// What a committed transaction had to do with a row.
#[derive(Clone, Copy, Debug)]
struct Touch {
    /// When it first asked for the row.
    sent: Time,
    /// When its commit was known.
    ended: Time,
    epoch: u64,
    changes: bool,
    transaction: usize,
}

/// Checks the epochs of all committed transactions.
///
/// # Errors
/// Two transactions in the wrong order.
pub fn check(history: &History, writers: &Writers) -> Result<(), String> {
    check_seen(history, writers)?;
    check_clients(history)?;
    for (row, touches) in touches(history) {
        check_order(history, &describe(row), touches)?;
    }
    Ok(())
}

/// Checks the epochs in the headers of rows.
///
/// # Errors
/// A row with another epoch than that of the transaction that wrote it.
pub fn check_contents(
    history: &History,
    contents: &Contents,
    writers: &Writers,
    proven: &BTreeSet<usize>,
) -> Result<(), String> {
    for (&(table, key), &(value, epoch)) in &contents.rows {
        let Some(writer) = writers.of(value) else { continue };
        let known = epoch_of(history, writer.transaction);
        let is_alone = proven.contains(&writer.transaction) || known.is_some_and(|known| epoch >= known);
        if !is_alone {
            return Err(format!(
                "row {key} of table {} has epoch {epoch}, its writer {:#x} {known:?}",
                table.0, history.transactions[writer.transaction].id
            ));
        }
    }
    Ok(())
}

fn epoch_of(history: &History, transaction: usize) -> Option<u64> {
    match history.transactions[transaction].fate {
        Fate::Committed(epoch) => Some(epoch.0),
        Fate::Open | Fate::RolledBack { .. } | Fate::Unknown => None,
    }
}

/// Who saw a value has at least the epoch of its writer.
fn check_seen(history: &History, writers: &Writers) -> Result<(), String> {
    for (index, transaction) in history.transactions.iter().enumerate() {
        let Some(epoch) = epoch_of(history, index) else { continue };
        for event in &transaction.events {
            let Event::Operation(operation) = event else { continue };
            let (OperationResult::Row(Some(value)) | OperationResult::NotLocked(Some(value))) =
                operation.result
            else {
                continue;
            };
            let writer = writers.of(value).and_then(|w| Some((w, epoch_of(history, w.transaction)?)));
            if let Some((writer, older)) = writer
                && older > epoch
            {
                return Err(format!(
                    "transaction {:#x} in epoch {epoch} saw value {:#x} that {:#x} wrote in epoch {older}",
                    transaction.id, value.value, history.transactions[writer.transaction].id
                ));
            }
        }
    }
    Ok(())
}

/// A change that a client asks to commit after it was answered about another commit has at least that one's epoch.
fn check_clients(history: &History) -> Result<(), String> {
    let mut by_client: BTreeMap<u32, Vec<Touch>> = BTreeMap::new();
    for (index, transaction) in history.transactions.iter().enumerate() {
        let (Some(epoch), Some(ended)) = (epoch_of(history, index), transaction.ended) else { continue };
        let is_change = |event: &Event| match event {
            Event::Operation(record) => {
                record.operation.kind.is_change() && record.result == OperationResult::Done
            }
            Event::OwnRead(..) | Event::RollbackTo(_) => false,
        };
        let changes = transaction.events.iter().any(is_change);
        if let Some(sent) = transaction.commit_sent.filter(|_| changes) {
            let touch = Touch { sent, ended, epoch, changes, transaction: index };
            by_client.entry(TransactionId(transaction.id).owner()).or_default().push(touch);
        }
    }
    by_client.into_values().try_for_each(|touches| check_order(history, "one client", touches))
}

fn touches(history: &History) -> BTreeMap<RowName, Vec<Touch>> {
    let mut by_row: BTreeMap<RowName, Vec<Touch>> = BTreeMap::new();
    for (index, transaction) in history.transactions.iter().enumerate() {
        let (Some(epoch), Some(ended)) = (epoch_of(history, index), transaction.ended) else { continue };
        for (at, event) in transaction.events.iter().enumerate() {
            let Event::Operation(operation) = event else { continue };
            // It says which lock of its own transaction ends, and gets to know nothing of any row.
            if operation.operation.kind == OperationKind::Unlock {
                continue;
            }
            let list = by_row.entry(operation.row()).or_default();
            let changes = operation.operation.kind.is_change()
                && operation.result == OperationResult::Done
                && !transaction.undoes_later(at, operation.operation.number);
            match list.last_mut().filter(|touch| touch.transaction == index) {
                Some(touch) => touch.changes |= changes,
                None => list.push(Touch { sent: operation.sent, ended, epoch, changes, transaction: index }),
            }
        }
    }
    by_row
}

/// Who asked for something after a change was known has at least the epoch of that change.
fn check_order(history: &History, of: &str, touches: Vec<Touch>) -> Result<(), String> {
    let mut changes: Vec<Touch> = touches.iter().copied().filter(|touch| touch.changes).collect();
    changes.sort_by_key(|touch| touch.ended);
    let mut followers = touches;
    followers.sort_by_key(|touch| touch.sent);
    let mut newest: Option<Touch> = None;
    let mut changes = changes.into_iter().peekable();
    for follower in followers {
        while let Some(change) = changes.next_if(|change| change.ended < follower.sent) {
            if newest.is_none_or(|newest| change.epoch > newest.epoch) {
                newest = Some(change);
            }
        }
        if let Some(newest) = newest
            && newest.epoch > follower.epoch
        {
            return Err(format!(
                "{of}: transaction {:#x} in epoch {} follows {:#x} in epoch {}",
                history.transactions[follower.transaction].id,
                follower.epoch,
                history.transactions[newest.transaction].id,
                newest.epoch
            ));
        }
    }
    Ok(())
}
