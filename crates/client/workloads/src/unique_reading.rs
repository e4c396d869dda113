//! Reads by unique index while the values of the index change hands.
//!
//! Each row has a count, and a unique index leads from counts to keys. So many counts are *kept*: transactions exchange
//! them between rows or carry them to new ones, but each is somebody's at every moment. *Spare* counts come and go with
//! their rows. Sessions look for counts as a client does: they read the hidden row, then the base row on the condition
//! that it has the count. If it has not, it was changed between the two reads: they begin again, at last under a shared
//! lock on the hidden row. A search must never give a row that did not have its count, and must find what was there all
//! the time: a kept count always ([`crate::check::finds`] and the check here).

use crate::history::History;
use crate::shape::{KeyForm, Shape, Value};
use crate::step::{
    Answer, BatchAnswer, Body, Condition, End, Fate, Operation, OperationBatch, Read, Step, TableRef,
};
use crate::workload::{Contents, Ids, Session, Workload};
use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use fastrand::Rng;
use vinga_wire::operation::{LockWait, OperationKind};

/// How large it is.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Counts that are kept, at most 64.
    pub kept: u64,
    /// Searches and transactions of each session.
    pub steps: u32,
    /// A session waits this long between steps, in microseconds, at most.
    pub pause: u64,
    /// Whether base rows are read on the condition that they have the count; they must.
    pub rechecks: bool,
}

/// The workload of reads by unique index.
pub struct UniqueReading {
    settings: Settings,
    table: Cell<Option<TableRef>>,
    loaded: Loaded,
}

/// A bit for each kept count that some row was given: memory may not have been enough for all.
type Loaded = Rc<Cell<u64>>;

impl UniqueReading {
    /// The workload of these settings.
    pub fn new(settings: Settings) -> Self {
        UniqueReading { settings, table: Cell::new(None), loaded: Loaded::default() }
    }
}

/// Counts above the kept ones that come and go, and the rows that may have them.
const SPARE: u64 = 4;
/// Counts from here on are somebody's within a transaction only.
const BETWEEN: u64 = 1 << 32;
/// Searches without a lock.
const TRIES: u32 = 3;
/// Looks at the base row under the lock: who changed it last may not have shown it yet.
const LOCKED_TRIES: u32 = 10;

impl Workload for UniqueReading {
    fn tables(&self) -> Vec<Shape> {
        let rows = Shape::new("finding.rows", KeyForm::Number, false).unique();
        let places = rows.places();
        vec![rows, places]
    }

    fn loader(&self, ids: Ids) -> Box<dyn Session> {
        self.table.set(Some(ids.table(0)));
        Box::new(Loader { ids, left: self.settings.kept, loaded: Rc::clone(&self.loaded) })
    }

    fn session(&mut self, ids: Ids) -> Box<dyn Session + Send> {
        let settings = self.settings;
        Box::new(Finder { settings, ids, left: settings.steps, number: 0, state: State::Pausing })
    }

    fn check(&self, _: &Contents, history: &History) -> Result<(), String> {
        let own = history.finds.iter().filter(|find| Some(find.table) == self.table.get());
        for find in own {
            let is_kept = find.count < self.settings.kept && self.loaded.get() >> find.count & 1 == 1;
            if is_kept && find.found.is_none() {
                return Err(format!(
                    "the search from {} to {} did not find count {}, which some row has at every moment",
                    find.begun, find.ended, find.count
                ));
            }
        }
        Ok(())
    }
}

/// Gives each kept count to the row with that key.
struct Loader {
    ids: Ids,
    left: u64,
    loaded: Loaded,
}

impl Session for Loader {
    fn next(&mut self, _: &mut Rng, last: &Answer) -> Step {
        if let Answer::Executed(BatchAnswer { fate: Fate::Committed(_), .. }) = last {
            self.loaded.set(self.loaded.get() | 1 << self.left);
        }
        let Some(count) = self.left.checked_sub(1) else { return Step::End };
        self.left = count;
        let row = Body::Row(Value { value: self.ids.value(), count });
        let operations = vec![operation(self.ids.table(0), 1, OperationKind::Write, count, row)];
        Step::Execute(OperationBatch { begin: true, rollback_to: None, operations, end: End::Commit })
    }
}

#[derive(Clone, Copy)]
enum State {
    /// The next thing is begun.
    Idle,
    Pausing,
    /// A search begins.
    Seeking {
        count: u64,
    },
    /// It waits for the hidden row.
    AtPlace {
        count: u64,
        tries: u32,
    },
    /// It waits for the base row.
    AtRow {
        count: u64,
        tries: u32,
        key: u64,
    },
    /// The same under a lock on the hidden row.
    LockingPlace {
        count: u64,
    },
    AtRowLocked {
        tries: u32,
        key: u64,
        count: u64,
    },
    /// What was found has been reported; its transaction is to end.
    Letting,
    /// Two rows are being locked, whose counts are to change hands.
    Taking {
        keys: [u64; 2],
    },
}

struct Finder {
    settings: Settings,
    ids: Ids,
    left: u32,
    number: u32,
    state: State,
}

impl Session for Finder {
    fn next(&mut self, random: &mut Rng, last: &Answer) -> Step {
        match (core::mem::replace(&mut self.state, State::Idle), last) {
            (State::Pausing, _) => self.begin(random),
            (State::Seeking { count }, _) => self.read_place(count, 0),
            (State::AtPlace { count, tries }, Answer::Read(rows)) => match rows[0] {
                Some(place) => {
                    self.read_row(State::AtRow { count, tries, key: place.value }, count, place.value)
                }
                None => Step::Sought(None),
            },
            (State::AtRow { count, tries, key }, Answer::Read(rows)) => match rows[0] {
                Some(row) => Step::Sought(Some((key, row))),
                None if !self.settings.rechecks => Step::Sought(None),
                None if tries + 1 < TRIES => self.read_place(count, tries + 1),
                None => self.lock_place(count),
            },
            // What was read got lost with a connection: nothing is known.
            (State::LockingPlace { .. }, Answer::Executed(BatchAnswer { fate: Fate::Open, errors, .. }))
                if !errors.is_empty() =>
            {
                self.end(End::Rollback)
            }
            (State::LockingPlace { count }, Answer::Executed(BatchAnswer { fate: Fate::Open, rows, .. })) => {
                match rows.first().and_then(|(_, row)| *row) {
                    Some(place) => {
                        let state = State::AtRowLocked { count, tries: 0, key: place.value };
                        self.read_row(state, count, place.value)
                    }
                    None => {
                        self.state = State::Letting;
                        Step::Sought(None)
                    }
                }
            }
            (State::AtRowLocked { count, tries, key }, Answer::Read(rows)) => match rows[0] {
                Some(row) => {
                    self.state = State::Letting;
                    Step::Sought(Some((key, row)))
                }
                None if tries + 1 < LOCKED_TRIES => {
                    self.read_row(State::AtRowLocked { count, tries: tries + 1, key }, count, key)
                }
                None => self.end(End::Rollback),
            },
            // The read failed; the lock is still there.
            (State::AtRowLocked { .. } | State::Letting, _) => self.end(End::Rollback),
            (State::Taking { keys }, Answer::Executed(BatchAnswer { fate: Fate::Open, rows, .. })) => {
                self.exchange(keys, rows)
            }
            (
                State::Idle
                | State::AtPlace { .. }
                | State::AtRow { .. }
                | State::LockingPlace { .. }
                | State::Taking { .. },
                _,
            ) => {
                self.state = State::Pausing;
                Step::Wait(random.u64(..=self.settings.pause))
            }
        }
    }
}

impl Finder {
    fn begin(&mut self, random: &mut Rng) -> Step {
        if self.left == 0 {
            return Step::End;
        }
        self.left -= 1;
        self.number = 0;
        match random.u8(..10) {
            0..5 => {
                let count = random.u64(..self.settings.kept + SPARE);
                self.state = State::Seeking { count };
                Step::Seek { table: self.ids.table(0), count }
            }
            5..8 => self.take(random),
            _ => {
                // A row that has a spare count, or none.
                let (kept, value) = (self.settings.kept, self.ids.value());
                let key = kept * 2 + random.u64(..SPARE);
                let row = Body::Row(Value { value, count: kept + random.u64(..SPARE) });
                let operation = match random.u8(..4) {
                    0 => self.operation(OperationKind::Delete, key, Body::None),
                    _ => self.operation(OperationKind::Write, key, row),
                };
                batch(true, vec![operation], End::Commit)
            }
        }
    }

    fn read_place(&mut self, count: u64, tries: u32) -> Step {
        self.state = State::AtPlace { count, tries };
        read(self.ids.table(1), count, None)
    }

    fn read_row(&mut self, state: State, count: u64, key: u64) -> Step {
        self.state = state;
        let condition = self.settings.rechecks.then_some(Condition::CountIs(count));
        read(self.ids.table(0), key, condition)
    }

    fn lock_place(&mut self, count: u64) -> Step {
        self.state = State::LockingPlace { count };
        let read = Operation {
            table: self.ids.table(1),
            ..self.operation(OperationKind::ReadShared, count, Body::None)
        };
        batch(true, vec![read], End::Stay)
    }

    /// Locks two rows of those that have kept counts, in the order of their keys.
    fn take(&mut self, random: &mut Rng) -> Step {
        let rows = self.settings.kept * 2;
        let one = random.u64(..rows);
        let other = (one + random.u64(1..rows)) % rows;
        let keys = [one.min(other), one.max(other)];
        self.state = State::Taking { keys };
        let reads = keys.map(|key| self.operation(OperationKind::ReadExclusive, key, Body::None));
        batch(true, reads.to_vec(), End::Stay)
    }

    /// The counts of two rows change hands; if only one of them is there, the other takes its place.
    fn exchange(&mut self, keys: [u64; 2], rows: &[(u32, Option<Value>)]) -> Step {
        let count_of = |at: usize| {
            let row = rows.iter().find(|(number, _)| *number == at as u32 + 1).and_then(|(_, row)| *row);
            row.map(|row| row.count)
        };
        let [first, second] = keys;
        let operations = match (count_of(0), count_of(1)) {
            (Some(of_first), Some(of_second)) => vec![
                self.give(first, BETWEEN + u64::from(self.ids.session)),
                self.give(second, of_first),
                self.give(first, of_second),
            ],
            (Some(count), None) => self.carry(first, second, count),
            (None, Some(count)) => self.carry(second, first, count),
            (None, None) => return self.end(End::Rollback),
        };
        batch(false, operations, End::Commit)
    }

    fn carry(&mut self, from: u64, to: u64, count: u64) -> Vec<Operation> {
        let row = Body::Row(Value { value: self.ids.value(), count });
        vec![
            self.operation(OperationKind::Delete, from, Body::None),
            self.operation(OperationKind::Insert, to, row),
        ]
    }

    fn give(&mut self, key: u64, count: u64) -> Operation {
        let row = Body::Row(Value { value: self.ids.value(), count });
        self.operation(OperationKind::Write, key, row)
    }

    fn end(&mut self, end: End) -> Step {
        batch(false, Vec::new(), end)
    }

    fn operation(&mut self, kind: OperationKind, key: u64, body: Body) -> Operation {
        self.number += 1;
        operation(self.ids.table(0), self.number, kind, key, body)
    }
}

fn read(table: TableRef, key: u64, condition: Option<Condition>) -> Step {
    Step::Read(Read { table, keys: vec![key], condition, own_before: None, selects: false })
}

fn batch(begin: bool, operations: Vec<Operation>, end: End) -> Step {
    Step::Execute(OperationBatch { begin, rollback_to: None, operations, end })
}

fn operation(table: TableRef, number: u32, kind: OperationKind, key: u64, body: Body) -> Operation {
    Operation {
        number,
        kind,
        table,
        key,
        body,
        condition: None,
        error_is_local: false,
        wait: LockWait::Default,
        selects: false,
    }
}
