//! Transactions that scan a table and insert into it while they scan: a scan that met what was inserted because of it
//! would never end.
//!
//! A session inserts some rows, opens a scan that sees its own changes so far, and inserts one more row for each row
//! that it meets, until the scan ends or far more rows were met than the table can have had; or the scan counts. Then
//! it commits, undoes what was inserted during the scan and commits, or rolls back.

use crate::history::History;
use crate::shape::{KeyForm, Shape, Value};
use crate::step::{Answer, BatchAnswer, Body, End, Fate, Operation, OperationBatch, Scan, Step};
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
    /// Transactions of each session.
    pub transactions: u32,
    /// Rows that a transaction inserts before it scans, at most.
    pub rows: u64,
    /// A session waits this long between transactions, in microseconds, at most.
    pub pause: u64,
}

/// The workload of scans that insert into what they scan.
pub struct ScanAhead {
    settings: Settings,
}

impl ScanAhead {
    /// The workload of these settings.
    pub fn new(settings: Settings) -> Self {
        ScanAhead { settings }
    }
}

impl Workload for ScanAhead {
    fn tables(&self) -> Vec<Shape> {
        vec![Shape::new("scan_ahead.rows", KeyForm::Number, false)]
    }

    fn loader(&self, _: Ids) -> Box<dyn Session> {
        Box::new(NoLoader)
    }

    fn session(&mut self, ids: Ids) -> Box<dyn Session + Send> {
        let (settings, transactions) = (self.settings, self.settings.transactions);
        Box::new(ScanAheadSession { settings, ids, transactions, keys: 0, number: 0, state: State::Idle })
    }

    fn check(&self, _: &Contents, _: &History) -> Result<(), String> {
        Ok(())
    }
}

struct NoLoader;

impl Session for NoLoader {
    fn next(&mut self, _: &mut Rng, _: &Answer) -> Step {
        Step::End
    }
}

/// Rows that are inserted during one scan, at most.
const INSERTED_MAX: u32 = 60;

#[derive(Clone, Copy)]
enum State {
    Idle,
    /// The rows to be scanned are being inserted.
    Inserting,
    /// The scan was opened before operation `from`.
    Scanning {
        from: u32,
    },
    /// Rows are being inserted for those met; the scan goes on, or is over.
    InsertingAhead {
        from: u32,
        is_last: bool,
    },
    /// The scan is closed because it goes on for too long.
    Closing {
        from: u32,
    },
    Ending,
    Pausing,
}

struct ScanAheadSession {
    settings: Settings,
    ids: Ids,
    transactions: u32,
    /// Keys used so far.
    keys: u64,
    number: u32,
    state: State,
}

impl Session for ScanAheadSession {
    fn next(&mut self, random: &mut Rng, last: &Answer) -> Step {
        let is_open = matches!(last, Answer::Executed(BatchAnswer { fate: Fate::Open, .. }));
        match (self.state, last) {
            (State::Idle | State::Pausing, _) => self.begin(random),
            (State::Inserting, _) if is_open => {
                let from = self.number + 1;
                self.state = State::Scanning { from };
                Step::ScanOpen(Scan {
                    table: self.ids.table(0),
                    range: None,
                    condition: None,
                    batch_rows: random.u16(1..6),
                    own_before: Some(from),
                    selects: random.bool(),
                    counts: random.u8(..4) == 0,
                })
            }
            (State::Scanning { from }, Answer::Batch(batch)) => {
                if batch.rows.is_empty() {
                    return if batch.is_last { self.end(random, from) } else { Step::ScanNext };
                }
                if self.number + 1 - from > INSERTED_MAX {
                    self.state = State::Closing { from };
                    return if batch.is_last { self.end(random, from) } else { Step::ScanClose };
                }
                self.state = State::InsertingAhead { from, is_last: batch.is_last };
                let inserts = (0..batch.rows.len()).map(|_| self.insert()).collect();
                self.batch(false, inserts, End::Stay)
            }
            (State::InsertingAhead { from, is_last: true }, _) if is_open => self.end(random, from),
            (State::InsertingAhead { from, is_last: false }, _) if is_open => {
                self.state = State::Scanning { from };
                Step::ScanNext
            }
            (State::Closing { from }, _) => self.end(random, from),
            (State::Scanning { .. }, _) => {
                // The scan was refused; the transaction is still open.
                self.state = State::Ending;
                self.batch(false, vec![], End::Rollback)
            }
            (State::Inserting | State::InsertingAhead { .. } | State::Ending, _) => {
                self.state = State::Pausing;
                Step::Wait(random.u64(..=self.settings.pause))
            }
        }
    }
}

impl ScanAheadSession {
    fn begin(&mut self, random: &mut Rng) -> Step {
        if self.transactions == 0 {
            return Step::End;
        }
        self.transactions -= 1;
        self.number = 0;
        self.state = State::Inserting;
        let inserts = (0..random.u64(1..=self.settings.rows)).map(|_| self.insert()).collect();
        self.batch(true, inserts, End::Stay)
    }

    fn end(&mut self, random: &mut Rng, from: u32) -> Step {
        self.state = State::Ending;
        match random.u8(..3) {
            0 => self.batch(false, vec![], End::Commit),
            1 => {
                let (operations, end) = (vec![], End::Commit);
                Step::Execute(OperationBatch { begin: false, rollback_to: Some(from), operations, end })
            }
            _ => self.batch(false, vec![], End::Rollback),
        }
    }

    fn batch(&mut self, begin: bool, operations: Vec<Operation>, end: End) -> Step {
        Step::Execute(OperationBatch { begin, rollback_to: None, operations, end })
    }

    fn insert(&mut self) -> Operation {
        self.number += 1;
        self.keys += 1;
        Operation {
            number: self.number,
            kind: OperationKind::Insert,
            table: self.ids.table(0),
            key: u64::from(self.ids.session) << 32 | self.keys,
            body: Body::Row(Value { value: self.ids.value(), count: 0 }),
            condition: None,
            error_is_local: false,
            wait: LockWait::Default,
            selects: false,
        }
    }
}
