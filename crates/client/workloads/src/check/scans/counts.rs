//! Checks the result of a scan that counts.
//!
//! A row that was there during the whole scan counts once, a row that was not there at any moment does not count. A row
//! that was inserted or deleted during the scan may count not at all, or once, and once more for each change of it.

use super::{Presence, is_changed_by, presence, presence_where};
use crate::check::actions::{Action, Actions};
use crate::history::{
    Event, History, OperationRecord, OperationResult, RowName, ScanRecord, Time, Transaction,
};
use crate::shape::Value;
use crate::step::{Body, Fate};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use core::ops::RangeInclusive;
use vinga_wire::operation::OperationKind;

/// Checks one of them.
///
/// # Errors
/// What it could have counted at least and at most, if it has not.
pub(super) fn check(
    history: &History,
    actions: &Actions<'_>,
    scan: &ScanRecord,
    ended: Time,
) -> Result<(), String> {
    let (mut least, mut most) = (0, 0);
    // Of what was rolled back later only its transaction knows.
    let mut own = own_rows(history, scan);
    own.retain(|row| actions.rows().all(|(other, _)| other != row));
    let of_all = actions.rows().map(|(row, actions)| (*row, &actions[..]));
    for (row, actions) in of_all.chain(own.into_iter().map(|row| (row, &[][..]))) {
        if row.table == scan.scan.table && row.version == scan.version {
            let times = times_counted(history, scan, row, actions, ended);
            least += times.start();
            most += times.end();
        }
    }
    if (least..=most).contains(&scan.counted) {
        return Ok(());
    }
    let ScanRecord { scan, opened, counted, .. } = scan;
    Err(format!("the scan {scan:?} from {opened} to {ended} counted {counted} rows, not {least} to {most}"))
}

/// The rows that the scan's own transaction changes.
fn own_rows(history: &History, scan: &ScanRecord) -> BTreeSet<RowName> {
    let events = scan.transaction.map(|transaction| &history.transactions[transaction].events);
    let changed = |event: &Event| match event {
        Event::Operation(record) if record.operation.kind.is_change() => Some(record.row()),
        _ => None,
    };
    events.into_iter().flatten().filter_map(changed).collect()
}

/// How often the row may have been counted.
fn times_counted(
    history: &History,
    scan: &ScanRecord,
    row: RowName,
    actions: &[Action<'_>],
    ended: Time,
) -> RangeInclusive<u64> {
    let fulfils = |row: Value| {
        scan.scan.condition.is_none_or(|condition| condition.holds(row))
            && scan.scan.range.is_none_or(|range| range.holds(row))
    };
    let is_plain = scan.scan.condition.is_none() && scan.scan.range.is_none();
    let unsure = 0..=actions.len() as u64 + 1;
    if is_changed_by(history, scan, row) {
        return match made_by(history, scan, row) {
            Made::Row(row) if fulfils(row) => 1..=1,
            Made::Row(_) | Made::Nothing => 0..=0,
            Made::Unknown => unsure,
        };
    }
    let presence = if is_plain {
        presence(actions, scan, ended)
    } else {
        presence_where(actions, scan.opened, ended, fulfils)
    };
    match presence {
        Presence::Always => 1..=1,
        Presence::Never => 0..=0,
        Presence::Unsure => unsure,
    }
}

/// What a transaction has made of a row.
enum Made {
    Row(Value),
    Nothing,
    Unknown,
}

/// What the scan's own transaction has made of a row before the scan, which it has locked since. Where it did not end
/// as was asked nobody knows when data nodes undid what it had done.
fn made_by(history: &History, scan: &ScanRecord, row: RowName) -> Made {
    let (Some(transaction), Some(before)) = (scan.transaction, scan.scan.own_before) else {
        return Made::Unknown;
    };
    let Transaction { events, fate, .. } = &history.transactions[transaction];
    if !matches!(fate, Fate::Committed(_) | Fate::RolledBack { error: None, .. }) {
        return Made::Unknown;
    }
    let changes = events.iter().filter_map(|event| match event {
        Event::Operation(record) if record.row() == row && record.operation.kind.is_change() => Some(record),
        _ => None,
    });
    let is_certain = |record: &OperationRecord| {
        let number = record.operation.number;
        let is_undone =
            events.iter().any(|event| matches!(event, Event::RollbackTo(from) if *from <= number));
        matches!(record.result, OperationResult::Done) && number < before && !is_undone
    };
    if !changes.clone().all(is_certain) {
        return Made::Unknown;
    }
    let Some(last) = changes.max_by_key(|record| record.operation.number) else { return Made::Unknown };
    match (last.operation.kind, last.operation.body) {
        (OperationKind::Delete, _) => Made::Nothing,
        (OperationKind::Insert | OperationKind::Write, Body::Row(row)) => Made::Row(row),
        _ => Made::Unknown,
    }
}
