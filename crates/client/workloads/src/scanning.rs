//! Scans of a table whose rows come, change and go meanwhile.
//!
//! Some rows are never removed: each scan that comes to its end must meet them ([`crate::check::scans`]).

use crate::history::History;
use crate::shape::{KeyForm, Shape, Value};
use crate::step::{Answer, Body, Change, Condition, End, Operation, OperationBatch, Scan, Step};
use crate::workload::{Contents, Ids, Session, Workload};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
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
}

/// The workload of scans over rows that come and go.
pub struct Scanning {
    settings: Settings,
}

impl Scanning {
    /// The workload of these settings.
    pub fn new(settings: Settings) -> Self {
        Scanning { settings }
    }
}

impl Workload for Scanning {
    fn tables(&self) -> Vec<Shape> {
        vec![Shape::new("scanning.rows", KeyForm::Number, true).read_backup()]
    }

    fn loader(&self, ids: Ids) -> Box<dyn Session> {
        Box::new(Loader { ids, next: 0, keys: self.settings.keys })
    }

    fn session(&mut self, ids: Ids) -> Box<dyn Session + Send> {
        let (settings, steps) = (self.settings, self.settings.steps);
        Box::new(ScanningSession { settings, ids, steps, is_scanning: false, is_paused: true })
    }

    fn check(&self, _: &Contents, _: &History) -> Result<(), String> {
        Ok(())
    }
}

/// Rows of one batch of the loader.
const LOADED_AT_ONCE: u64 = 16;

struct Loader {
    ids: Ids,
    next: u64,
    keys: u64,
}

impl Session for Loader {
    fn next(&mut self, _: &mut Rng, _: &Answer) -> Step {
        let keys: Vec<u64> = (self.next..self.keys).take(LOADED_AT_ONCE as usize).collect();
        self.next += LOADED_AT_ONCE;
        if keys.is_empty() {
            return Step::End;
        }
        let operations = (1..)
            .zip(keys)
            .map(|(number, key)| {
                let row = Body::Row(Value { value: self.ids.value(), count: key % 10 });
                operation(self.ids, number, OperationKind::Write, key, row)
            })
            .collect();
        Step::Execute(OperationBatch { begin: true, rollback_to: None, operations, end: End::Commit })
    }
}

struct ScanningSession {
    settings: Settings,
    ids: Ids,
    steps: u32,
    is_scanning: bool,
    is_paused: bool,
}

impl Session for ScanningSession {
    fn next(&mut self, random: &mut Rng, last: &Answer) -> Step {
        if self.is_scanning {
            return match last {
                Answer::Batch(batch) if !batch.is_last => self.go_on(random),
                // A wait in between.
                Answer::Done => Step::ScanNext,
                _ => {
                    self.is_scanning = false;
                    self.pause(random)
                }
            };
        }
        if !core::mem::replace(&mut self.is_paused, false) {
            return self.pause(random);
        }
        if self.steps == 0 {
            return Step::End;
        }
        self.steps -= 1;
        if random.u8(..3) == 0 {
            self.is_scanning = true;
            return Step::ScanOpen(Scan {
                table: self.ids.table(0),
                range: None,
                condition: (random.u8(..3) == 0).then(|| Condition::CountAtLeast(random.u64(..10))),
                batch_rows: if random.bool() { random.u16(1..8) } else { random.u16(8..300) },
                own_before: None,
                selects: random.bool(),
                counts: random.u8(..3) == 0,
            });
        }
        self.change(random)
    }
}

impl ScanningSession {
    fn pause(&mut self, random: &mut Rng) -> Step {
        self.is_paused = true;
        Step::Wait(random.u64(..=self.settings.pause))
    }

    fn go_on(&mut self, random: &mut Rng) -> Step {
        match random.u8(..60) {
            0 => {
                self.is_scanning = false;
                Step::ScanClose
            }
            1 => Step::Wait(self.settings.left_for),
            2..6 => Step::Wait(random.u64(..=self.settings.pause)),
            _ => Step::ScanNext,
        }
    }

    fn change(&mut self, random: &mut Rng) -> Step {
        let mut number = 0;
        let operations = (0..random.usize(1..5))
            .map(|_| {
                number += 1;
                let key = random.u64(..self.settings.keys);
                // Every other row stays.
                let kind = match random.u8(..4) {
                    0 if key % 2 == 1 => OperationKind::Delete,
                    1 => OperationKind::Update,
                    _ => OperationKind::Write,
                };
                let value = self.ids.value();
                let body = match kind {
                    OperationKind::Delete => Body::None,
                    OperationKind::Update => {
                        Body::Change(Change { set: Some(value), add: 1, ..Change::default() })
                    }
                    _ => Body::Row(Value { value, count: random.u64(..20) }),
                };
                operation(self.ids, number, kind, key, body)
            })
            .collect();
        Step::Execute(OperationBatch { begin: true, rollback_to: None, operations, end: End::Commit })
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
