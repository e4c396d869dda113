//! Scans of ranges of an index while the indexed column changes.
//!
//! Rows have a count, by which an index orders them; each session writes rows, gives them other counts, scans ranges in
//! both directions, and *sweeps*: a transaction scans a range, locks each row that it meets, and adds to its count, so
//! that the row may fall into the part of the range that is still to come. It must not meet it again
//! ([`crate::check::scans`] knows whose changes a scan met).
//!
//! A sweep is a locking scan: rows are looked at again when they are locked, and those whose count is outside of the
//! range by then are left alone. So whatever a sweep changed was in its range when it was locked.

use crate::history::{Event, History, OperationResult, ScanRecord, Transaction};
use crate::shape::{KeyForm, Shape, Value};
use crate::step::{
    Answer, Batch, BatchAnswer, Body, Change, Condition, End, Fate, Operation, OperationBatch, Range, Scan,
    Step, TableRef,
};
use crate::workload::{Contents, Ids, Session, Workload};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use fastrand::Rng;
use vinga_wire::operation::{LockWait, OperationKind};

/// How large it is.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Keys of the table.
    pub keys: u64,
    /// Scans and transactions of each session.
    pub steps: u32,
    /// A session waits this long between steps, in microseconds, at most.
    pub pause: u64,
    /// How long a session that leaves its scan alone waits, in microseconds.
    pub left_for: u64,
    /// Whether sweeps look at rows again when they are locked; they must.
    pub rechecks: bool,
}

/// The workload of range scans over a column that changes.
pub struct RangeScanning {
    settings: Settings,
    table: Cell<Option<TableRef>>,
}

impl RangeScanning {
    /// The workload of these settings.
    pub fn new(settings: Settings) -> Self {
        RangeScanning { settings, table: Cell::new(None) }
    }
}

/// Counts of new rows are below this; few enough that many rows have the same.
const COUNTS: u64 = 40;
/// What a sweep adds to a count.
const STRIDE: u64 = 7;

impl Workload for RangeScanning {
    fn tables(&self) -> Vec<Shape> {
        vec![Shape::new("ranges.rows", KeyForm::Number, true)]
    }

    fn loader(&self, ids: Ids) -> Box<dyn Session> {
        self.table.set(Some(ids.table(0)));
        Box::new(Loader { ids, next: 0, keys: self.settings.keys })
    }

    fn session(&mut self, ids: Ids) -> Box<dyn Session + Send> {
        let (settings, steps) = (self.settings, self.settings.steps);
        Box::new(RangeSession { settings, ids, steps, number: 0, state: State::Idle, is_paused: true })
    }

    fn check(&self, _: &Contents, history: &History) -> Result<(), String> {
        let sweeps =
            history.scans.iter().filter_map(|scan| Some((scan, scan.scan.range?, scan.transaction?)));
        for (scan, range, transaction) in
            sweeps.filter(|(scan, ..)| Some(scan.scan.table) == self.table.get())
        {
            check_sweep(scan, &range, &history.transactions[transaction])?;
        }
        Ok(())
    }
}

/// What a sweep changed was in its range when it was locked.
fn check_sweep(scan: &ScanRecord, range: &Range, transaction: &Transaction) -> Result<(), String> {
    let mut locked: BTreeMap<u64, Value> = BTreeMap::new();
    for event in &transaction.events {
        let Event::Operation(record) = event else { continue };
        let key = record.operation.key;
        match (record.operation.kind, record.result) {
            (OperationKind::ReadExclusive, OperationResult::Row(Some(row))) => {
                locked.insert(key, row);
            }
            (OperationKind::Update, _) => {
                let row = locked.get(&key);
                if let Some(row) = row.filter(|row| !range.holds(**row)) {
                    return Err(format!(
                        "the locking scan of {range:?} opened at {} took row {key}, which had count {} when \
                         it was locked",
                        scan.opened, row.count
                    ));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Rows of one batch of the loader.
const LOADED_AT_ONCE: u64 = 16;

struct Loader {
    ids: Ids,
    next: u64,
    keys: u64,
}

impl Session for Loader {
    fn next(&mut self, random: &mut Rng, _: &Answer) -> Step {
        let keys: Vec<u64> = (self.next..self.keys).take(LOADED_AT_ONCE as usize).collect();
        self.next += LOADED_AT_ONCE;
        if keys.is_empty() {
            return Step::End;
        }
        let operations = (1..)
            .zip(keys)
            .map(|(number, key)| {
                let row = Value { value: self.ids.value(), count: random.u64(..COUNTS) };
                operation(self.ids, number, OperationKind::Write, key, Body::Row(row))
            })
            .collect();
        Step::Execute(OperationBatch { begin: true, rollback_to: None, operations, end: End::Commit })
    }
}

enum State {
    Idle,
    /// A scan of committed rows.
    Scanning,
    /// A sweep's transaction has begun.
    Beginning,
    /// It waits for rows.
    Sweeping {
        range: Range,
    },
    /// It locks those that it has met.
    Locking {
        range: Range,
        operations: Vec<(u32, u64)>,
        is_last: bool,
    },
    /// It changes those that fit.
    Changing {
        range: Range,
        is_last: bool,
    },
    /// It closes its scan.
    Closing,
    /// It is over, whatever the answer is.
    Ending,
}

struct RangeSession {
    settings: Settings,
    ids: Ids,
    steps: u32,
    number: u32,
    state: State,
    is_paused: bool,
}

/// Operations of a sweep after which it closes its scan.
const SWEPT_MAX: u32 = 200;

impl Session for RangeSession {
    fn next(&mut self, random: &mut Rng, last: &Answer) -> Step {
        match (core::mem::replace(&mut self.state, State::Idle), last) {
            (State::Idle | State::Ending, _) => self.begin(random),
            (State::Scanning, Answer::Batch(Batch { is_last: false, .. })) => self.go_on(random),
            // A wait in between.
            (State::Scanning, Answer::Done) => {
                self.state = State::Scanning;
                Step::ScanNext
            }
            (State::Scanning, _) => self.pause(random),
            (State::Beginning, Answer::Executed(BatchAnswer { fate: Fate::Open, .. })) => {
                let range = range(random);
                self.state = State::Sweeping { range };
                Step::ScanOpen(Scan {
                    table: self.ids.table(0),
                    range: Some(range),
                    condition: None,
                    batch_rows: random.u16(1..20),
                    own_before: Some(self.number + 1),
                    selects: random.bool(),
                    // Then it meets nothing to be locked.
                    counts: random.u8(..4) == 0,
                })
            }
            (State::Sweeping { range }, Answer::Batch(batch)) => self.lock(random, range, batch),
            (
                State::Locking { range, operations, is_last },
                Answer::Executed(BatchAnswer { fate: Fate::Open, rows, .. }),
            ) => self.change_locked(random, range, &operations, rows, is_last),
            (State::Changing { range, is_last }, Answer::Executed(BatchAnswer { fate: Fate::Open, .. })) => {
                self.sweep_on(random, range, is_last)
            }
            (State::Closing, _) => self.end(random),
            (State::Sweeping { .. }, _) => {
                // The scan was refused; the transaction is still open.
                self.state = State::Ending;
                self.batch(false, vec![], End::Rollback)
            }
            (State::Beginning | State::Locking { .. } | State::Changing { .. }, _) => self.pause(random),
        }
    }
}

fn range(random: &mut Rng) -> Range {
    let low = random.u64(..COUNTS + 5);
    let high = low + if random.u8(..4) == 0 { 1 } else { random.u64(..COUNTS) };
    Range { low, high, is_descending: random.bool(), is_merged: random.bool() }
}

impl RangeSession {
    fn pause(&mut self, random: &mut Rng) -> Step {
        self.is_paused = true;
        Step::Wait(random.u64(..=self.settings.pause))
    }

    fn begin(&mut self, random: &mut Rng) -> Step {
        if !core::mem::replace(&mut self.is_paused, false) {
            return self.pause(random);
        }
        if self.steps == 0 {
            return Step::End;
        }
        self.steps -= 1;
        self.number = 0;
        match random.u8(..10) {
            0..4 => {
                self.state = State::Scanning;
                Step::ScanOpen(Scan {
                    table: self.ids.table(0),
                    range: Some(range(random)),
                    condition: (random.u8(..4) == 0).then(|| Condition::CountAtLeast(random.u64(..COUNTS))),
                    batch_rows: if random.bool() { random.u16(1..8) } else { random.u16(8..300) },
                    own_before: None,
                    selects: random.bool(),
                    counts: random.u8(..4) == 0,
                })
            }
            4..6 => {
                self.state = State::Beginning;
                let operations = (0..random.usize(1..4)).map(|_| self.write(random)).collect();
                self.batch(true, operations, End::Stay)
            }
            _ => {
                let operations = (0..random.usize(1..5)).map(|_| self.write(random)).collect();
                self.batch(true, operations, End::Commit)
            }
        }
    }

    fn go_on(&mut self, random: &mut Rng) -> Step {
        self.state = State::Scanning;
        match random.u8(..60) {
            0 => {
                self.state = State::Idle;
                Step::ScanClose
            }
            1 => Step::Wait(self.settings.left_for),
            2..6 => Step::Wait(random.u64(..=self.settings.pause)),
            _ => Step::ScanNext,
        }
    }

    /// The rows of a batch are read again under locks.
    fn lock(&mut self, random: &mut Rng, range: Range, batch: &Batch) -> Step {
        if batch.rows.is_empty() {
            return self.sweep_on(random, range, batch.is_last);
        }
        let mut keys: Vec<u64> = batch.rows.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut numbers = Vec::new();
        let mut operations = Vec::new();
        for key in keys {
            let mut read = self.operation(OperationKind::ReadExclusive, key, Body::None);
            // Half of the range is checked by the data node.
            read.condition = Some(Condition::CountAtLeast(range.low)).filter(|_| self.settings.rechecks);
            read.error_is_local = true;
            numbers.push((read.number, key));
            operations.push(read);
        }
        self.state = State::Locking { range, operations: numbers, is_last: batch.is_last };
        self.batch(false, operations, End::Stay)
    }

    fn change_locked(
        &mut self,
        random: &mut Rng,
        range: Range,
        locked: &[(u32, u64)],
        rows: &[(u32, Option<Value>)],
        is_last: bool,
    ) -> Step {
        let mut operations = Vec::new();
        for &(number, key) in locked {
            let row = rows.iter().find(|(of, _)| *of == number).and_then(|(_, row)| *row);
            if row.is_some_and(|row| range.holds(row) || !self.settings.rechecks) {
                let value = self.ids.value();
                let body = Body::Change(Change { set: Some(value), add: STRIDE, ..Change::default() });
                operations.push(self.operation(OperationKind::Update, key, body));
            }
        }
        if operations.is_empty() {
            return self.sweep_on(random, range, is_last);
        }
        self.state = State::Changing { range, is_last };
        self.batch(false, operations, End::Stay)
    }

    fn sweep_on(&mut self, random: &mut Rng, range: Range, is_last: bool) -> Step {
        if is_last {
            return self.end(random);
        }
        if self.number > SWEPT_MAX {
            self.state = State::Closing;
            return Step::ScanClose;
        }
        self.state = State::Sweeping { range };
        Step::ScanNext
    }

    fn end(&mut self, random: &mut Rng) -> Step {
        self.state = State::Ending;
        let end = if random.u8(..4) == 0 { End::Rollback } else { End::Commit };
        self.batch(false, vec![], end)
    }

    fn batch(&self, begin: bool, operations: Vec<Operation>, end: End) -> Step {
        Step::Execute(OperationBatch { begin, rollback_to: None, operations, end })
    }

    /// Some change of some row. Every fourth row is never touched.
    fn write(&mut self, random: &mut Rng) -> Operation {
        let key = random.u64(..self.settings.keys);
        let key = if key.is_multiple_of(4) { key + 1 } else { key };
        let value = self.ids.value();
        match random.u8(..6) {
            0 => self.operation(OperationKind::Delete, key, Body::None),
            1 | 2 => {
                let body =
                    Body::Change(Change { set: Some(value), add: random.u64(..9), ..Change::default() });
                self.operation(OperationKind::Update, key, body)
            }
            _ => {
                let row = Body::Row(Value { value, count: random.u64(..COUNTS) });
                self.operation(OperationKind::Write, key, row)
            }
        }
    }

    fn operation(&mut self, kind: OperationKind, key: u64, body: Body) -> Operation {
        self.number += 1;
        operation(self.ids, self.number, kind, key, body)
    }
}

fn operation(ids: Ids, number: u32, kind: OperationKind, key: u64, body: Body) -> Operation {
    Operation {
        number,
        kind,
        table: ids.table(0),
        key,
        body,
        condition: None,
        error_is_local: false,
        wait: LockWait::Default,
        selects: false,
    }
}
