//! Whether a history can be true.
//!
//! - [`atomic`]: what is seen was written by a transaction that committed, or may have;
//! - [`linear`]: for each row there is an order of all that was done and seen which fits the answers and the times;
//! - [`scans`]: a scan meets what is there all the time exactly once, and of its own transaction what it may;
//! - [`finds`]: a search by unique index gives a row that had the value, and misses none that had it all the time;
//! - [`epochs`]: no transaction has an older epoch than one that it follows;
//! - [`waits`]: who waited for a lock until the time-out was in somebody's way;
//! - [`lists`]: transactions on lists have one order, over all rows.

pub mod actions;
pub mod atomic;
pub mod epochs;
pub mod finds;
pub mod linear;
pub mod lists;
pub mod scans;
pub mod waits;

pub use waits::LockWaits;

use crate::history::{History, RowName, Time};
use crate::workload::Contents;
use actions::Actions;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use linear::Verdict;

/// What was checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Rows of which anything was done or seen.
    pub rows: usize,
    /// Things done and seen.
    pub actions: usize,
    /// Transactions of which nobody knows whether they are committed.
    pub unknown: usize,
    /// Rows whose actions have so many orders that the search for one was given up.
    pub undecided: usize,
}

/// Checks a whole history against the rows that are left at its end. `lock_waits` may be the data
/// nodes' lock time-out alone, if one clock is used.
///
/// # Errors
/// The first thing that can't be true.
pub fn check(
    history: &History,
    contents: &Contents,
    end: Time,
    lock_waits: impl Into<LockWaits>,
) -> Result<Summary, String> {
    let writers = atomic::Writers::new(history)?;
    let proven = atomic::check(history, contents, &writers)?;
    let (actions, summary) = check_rows(history, contents, &writers, &proven, end)?;
    scans::check(history, &writers, &actions)?;
    finds::check(history, &actions)?;
    epochs::check(history, &writers)?;
    waits::check(history, end, lock_waits.into())?;
    lists::check(history, contents, &writers, &proven)?;
    Ok(summary)
}

/// Checks whether a history has left these rows, and nothing else of it.
///
/// # Errors
/// The first row that can't be true.
pub fn check_state(history: &History, contents: &Contents, end: Time) -> Result<(), String> {
    let writers = atomic::Writers::new(history)?;
    let proven = atomic::check(history, contents, &writers)?;
    check_rows(history, contents, &writers, &proven, end).map(drop)
}

/// Each row has an order of all that was done and seen, and the epoch of its last change.
fn check_rows<'a>(
    history: &'a History,
    contents: &Contents,
    writers: &atomic::Writers,
    proven: &BTreeSet<usize>,
    end: Time,
) -> Result<(Actions<'a>, Summary), String> {
    let mut actions = Actions::new(history, writers, proven, end);
    actions.add_contents(contents);
    let mut summary = Summary { unknown: writers.unknown(history), ..Summary::default() };
    for (row, list) in actions.rows() {
        let verdict = linear::check(list).map_err(|what| format!("{}: {what}", describe(*row)))?;
        summary.undecided += usize::from(verdict == Verdict::Undecided);
        summary.rows += 1;
        summary.actions += list.len();
    }
    epochs::check_contents(history, contents, writers, proven)?;
    Ok((actions, summary))
}

/// A row's name for people.
pub fn describe(row: RowName) -> String {
    format!("row {} of table {} (version {})", row.key, row.table.0, row.version)
}
