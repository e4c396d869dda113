//! What must hold of schema changes.
//!
//! When a client has been answered that a table has a new version, nobody gets anything done under an older one that is
//! asked for later: no write, no locking read, no committed read, no batch of a scan. And everybody who watches the
//! schema has confirmed the change by then.
//!
//! A copy that takes the place of a table has its rows. So the history goes on with them under the same names
//! ([`Changes::rows_of`]), and the checks of answers notice when one was changed that the copy has not.

use crate::agenda::Time;
use std::collections::BTreeMap;
use vinga_workloads::step::TableRef;

/// How long the dictionary waits for a subscriber.
pub const EVENT_WAIT: Time = vinga_dictionary::EVENT_WAIT_MAX.0;

/// By so much a wait may seem shorter: a thread's tick stands still while it is stalled.
pub const TICK_LAG_MAX: Time = 1_000_000;

/// What is known of schema changes.
#[derive(Default)]
pub struct Changes {
    /// Versions below these are void from these times on.
    voided: BTreeMap<TableRef, Vec<(Time, u64)>>,
    /// Versions whose requesters were answered: when they asked, and when they were answered.
    answered: BTreeMap<u64, (Time, Time)>,
    /// Of copies that were to take the place of a table: the birth whose rows are theirs.
    copied: BTreeMap<u64, u64>,
}

impl Changes {
    /// Whoever asked at a time for a change is answered now: the table has this version.
    pub fn note(&mut self, asked: Time, now: Time, table: TableRef, version: u64) {
        self.voided.entry(table).or_default().push((now, version));
        self.answered.insert(version, (asked, now));
    }

    /// A complete copy is going to take the place of a table, if that can be done: its rows are those of this birth,
    /// with all that was done with them.
    pub fn note_copy(&mut self, copy: u64, birth: u64) {
        self.copied.insert(copy, birth);
    }

    /// The birth that names the rows of a table with this one.
    pub fn rows_of(&self, birth: u64) -> u64 {
        self.copied.get(&birth).copied().unwrap_or(birth)
    }

    /// Something was done that was asked for at a time, under a version.
    ///
    /// # Errors
    /// It must not have been.
    pub fn check(&self, table: TableRef, version: u64, sent: Time) -> Result<(), String> {
        let voided = self.voided.get(&table).into_iter().flatten();
        match voided.into_iter().find(|&&(at, above)| at < sent && version < above) {
            None => Ok(()),
            Some((at, above)) => Err(format!(
                "something was done at {sent} µs under version {version}, after {above} was confirmed at {at} µs"
            )),
        }
    }

    /// When the requester of a change was answered, and how long it had waited.
    pub fn answered(&self, version: u64) -> Option<(Time, Time)> {
        self.answered.get(&version).map(|&(asked, answered)| (answered, answered - asked))
    }
}
