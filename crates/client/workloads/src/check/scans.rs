//! A scan that came to its end has met each row that was there all the time, once.
//!
//! A scan of a range has met each row whose count was in it all the time, once, none whose count was outside of it, and
//! rows in the order of their counts.
//!
//! Rows that came or went while the scan was open may be missed, or be met twice. Of the changes of its own transaction
//! a scan meets those with lower operation numbers than its own and no others.
//!
//! A scan that counts has counted as many as one that gives its rows could have met ([`counts`]).

mod counts;

use crate::check::actions::{Action, Actions};
use crate::check::atomic::Writers;
use crate::check::describe;
use crate::history::{Event, History, RowName, ScanRecord, Time};
use crate::shape::Value;
use crate::step::Range;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

/// Checks all scans.
///
/// # Errors
/// A row that is missing, met twice, or not to be seen.
pub fn check(history: &History, writers: &Writers, actions: &Actions<'_>) -> Result<(), String> {
    for scan in &history.scans {
        check_own(history, writers, scan)?;
        let Some(ended) = scan.ended else { continue };
        if scan.scan.counts {
            counts::check(history, actions, scan, ended)?;
            continue;
        }
        let mut met: BTreeMap<u64, u32> = BTreeMap::new();
        for &(_, _, key, value) in &scan.rows {
            *met.entry(key).or_default() += 1;
            if scan.scan.condition.is_some_and(|condition| !condition.holds(value)) {
                return Err(format!(
                    "the scan opened at {} met row {key}, which its filter rejects",
                    scan.opened
                ));
            }
        }
        if let Some(range) = &scan.scan.range {
            check_range(scan, range)?;
        }
        for (row, actions) in actions.rows() {
            if row.table != scan.scan.table || row.version != scan.version {
                continue;
            }
            let count = met.get(&row.key).copied().unwrap_or(0);
            let presence = match &scan.scan.range {
                Some(range) => presence_where(actions, scan.opened, ended, |row| range.holds(row)),
                None => presence(actions, scan, ended),
            };
            let is_wrong = match presence {
                Presence::Always => count > 1 || count == 0 && scan.scan.condition.is_none(),
                Presence::Never => count > 0,
                Presence::Unsure => false,
            };
            if is_wrong && !is_changed_by(history, scan, *row) {
                return Err(format!(
                    "the scan from {} to {ended} met {} {count} times, although it was {presence:?} there",
                    scan.opened,
                    describe(*row),
                ));
            }
        }
    }
    Ok(())
}

/// Rows are in the range and in order, whenever the scan ended.
fn check_range(scan: &ScanRecord, range: &Range) -> Result<(), String> {
    let of = |what: String| format!("the scan of {range:?} opened at {} {what}", scan.opened);
    if let Some((_, _, key, value)) = scan.rows.iter().find(|(.., value)| !range.holds(*value)) {
        return Err(of(format!("met row {key} with count {}", value.count)));
    }
    let mut newest: BTreeMap<u16, u64> = BTreeMap::new();
    for (at, &(.., row)) in scan.rows.iter().enumerate() {
        let part = scan.parts.get(at).copied().unwrap_or(0);
        let before = newest.insert(part, row.count).unwrap_or(row.count);
        let is_in_order = if range.is_descending { before >= row.count } else { before <= row.count };
        if !is_in_order {
            return Err(of(format!("met count {before} before {}", row.count)));
        }
    }
    Ok(())
}

/// Whether a row was there and fulfilled a condition, all the time from `begun` to `ended`.
pub fn presence_where(
    actions: &[Action<'_>],
    begun: Time,
    ended: Time,
    fulfils: impl Fn(Value) -> bool,
) -> Presence {
    let changes = || actions.iter().filter(|action| !action.is_sight());
    if changes().any(|action| action.end >= begun && action.start <= ended) {
        return Presence::Unsure;
    }
    let before = || changes().filter(|action| action.end < begun);
    let Some(decisive) = before().max_by_key(|action| action.end) else { return Presence::Never };
    if before().any(|action| !core::ptr::eq(action, decisive) && action.end >= decisive.start) {
        return Presence::Unsure;
    }
    match decisive.apply(None) {
        Some(Some(row)) if fulfils(row) => Presence::Always,
        Some(_) => Presence::Never,
        // What it made of the row depends on what there was.
        None if decisive.presence() == Some(false) => Presence::Never,
        None => Presence::Unsure,
    }
}

/// Whether a row was there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// All the time.
    Always,
    /// At no time.
    Never,
    /// It came or went meanwhile, or nobody knows.
    Unsure,
}

fn presence(actions: &[Action<'_>], scan: &ScanRecord, ended: Time) -> Presence {
    let changes = actions.iter().filter_map(|action| Some((action, action.presence()?)));
    // The change that decides is the last before the scan, if none other may come after it.
    let mut last: Option<(&Action<'_>, bool)> = None;
    for (action, presence) in changes.clone() {
        if action.end >= scan.opened && action.start <= ended {
            return Presence::Unsure;
        }
        if action.end < scan.opened && last.is_none_or(|(last, _)| action.end > last.end) {
            last = Some((action, presence));
        }
    }
    let Some((decisive, presence)) = last else { return Presence::Never };
    let is_disputed = changes
        .filter(|(action, _)| action.end < scan.opened && !core::ptr::eq(*action, decisive))
        .any(|(action, _)| action.end >= decisive.start);
    match presence {
        _ if is_disputed => Presence::Unsure,
        true => Presence::Always,
        false => Presence::Never,
    }
}

/// Whether a scan's own transaction changes a row.
fn is_changed_by(history: &History, scan: &ScanRecord, row: RowName) -> bool {
    let Some(transaction) = scan.transaction else { return false };
    history.transactions[transaction].events.iter().any(|event| match event {
        Event::Operation(operation) => operation.row() == row && operation.operation.kind.is_change(),
        Event::OwnRead(..) | Event::RollbackTo(_) => false,
    })
}

fn check_own(history: &History, writers: &Writers, scan: &ScanRecord) -> Result<(), String> {
    let (Some(transaction), Some(before)) = (scan.transaction, scan.scan.own_before) else { return Ok(()) };
    for &(_, at, key, value) in &scan.rows {
        if let Some(writer) = writers.of(value)
            && writer.transaction == transaction
            && (writer.operation >= before || writer.undone)
        {
            return Err(format!(
                "the scan of transaction {:#x}, opened before operation {before}, met at {at} row {key} as \
                 operation {} had made it{}",
                history.transactions[transaction].id,
                writer.operation,
                if writer.undone { ", which was undone" } else { "" },
            ));
        }
    }
    Ok(())
}
