//! What a workload and its sessions are.

use crate::history::History;
use crate::shape::{Shape, Value};
use crate::step::{Answer, Step, TableRef};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// A kind of load on a cluster.
pub trait Workload {
    /// The tables that it needs; the runner creates them before the first session begins, and calls the first of them
    /// `first` from then on, the others by the numbers that follow.
    fn tables(&self) -> Vec<Shape>;

    /// Makes the session that fills the tables; all other sessions begin when it has ended.
    fn loader(&self, ids: Ids) -> Box<dyn Session>;

    /// Makes one more session, which may run on a thread of its own.
    fn session(&mut self, ids: Ids) -> Box<dyn Session + Send>;

    /// Checks the rows that are left in its tables, and what the history says of them.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self, contents: &Contents, history: &History) -> Result<(), String>;
}

/// One thread of control: it has at most one transaction and one scan open, and waits for each answer.
pub trait Session {
    /// The next step, given the answer to the last one.
    fn next(&mut self, random: &mut fastrand::Rng, last: &Answer) -> Step;
}

/// What a session is given: its number, which tables are its workload's, and numbers for the rows that it writes.
#[derive(Clone, Copy, Debug)]
pub struct Ids {
    /// The session's number, unique in a run.
    pub session: u32,
    /// The first of the workload's tables.
    pub first: TableRef,
    written: u32,
}

impl Ids {
    /// For a new session.
    pub fn new(session: u32, first: TableRef) -> Self {
        Ids { session, first, written: 0 }
    }

    /// One of the workload's tables.
    pub fn table(&self, index: u16) -> TableRef {
        TableRef(self.first.0 + index)
    }

    /// A value that no other write of the run has.
    pub fn value(&mut self) -> u64 {
        self.written += 1;
        u64::from(self.session) << 32 | u64::from(self.written)
    }
}

/// The rows of the tables of a run, by table and key: of tables that exist.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// Which version each table has.
    pub versions: BTreeMap<TableRef, u64>,
    /// The rows with the epochs in their headers, or [`Contents::UNKNOWN_EPOCH`].
    pub rows: BTreeMap<(TableRef, u64), (Value, u64)>,
}

impl Contents {
    /// For rows whose epochs the runner does not know: it is not older than any.
    pub const UNKNOWN_EPOCH: u64 = u64::MAX;

    /// The rows of one table.
    pub fn of(&self, table: TableRef) -> impl Iterator<Item = (u64, Value)> {
        self.rows.range((table, 0)..=(table, u64::MAX)).map(|(&(_, key), &(value, _))| (key, value))
    }
}
