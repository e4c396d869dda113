//! Rows that sessions lock without waiting, or not for long: the load of a queue whose rows are picked by many.
//!
//! Few rows and many sessions. A session reads rows under locks, changes some of them, lets go of others, pauses with
//! locks held. Each operation says how long it waits: as usual, not at all, so many milliseconds; or it skips rows that
//! others have locked, perhaps looking at their committed versions, and locks some of these later. One of the two
//! tables has unique indexes, so that locks in these are met as well. What must hold of all that is in
//! [`crate::check::waits`].

use crate::history::History;
use crate::shape::{KeyForm, Shape, Value};
use crate::step::{
    Answer, BatchAnswer, Body, Change, Condition, End, Fate, Operation, OperationBatch, Step, TableRef,
};
use crate::workload::{Contents, Ids, Session, Workload};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fastrand::Rng;
use vinga_wire::ErrorCode;
use vinga_wire::operation::{LockWait, OperationKind};

/// How large it is.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Keys of each table.
    pub keys: u64,
    /// Transactions of each session.
    pub transactions: u32,
    /// A session waits this long between steps, in microseconds, at most.
    pub pause: u64,
    /// The longest wait of an operation that says how long it waits, in milliseconds.
    pub wait_max: u32,
}

/// The workload of rows that are picked under locks.
pub struct Picking {
    settings: Settings,
}

impl Picking {
    /// The workload of these settings.
    pub fn new(settings: Settings) -> Self {
        Picking { settings }
    }
}

/// Tables, of which the second has unique indexes.
const TABLES: u16 = 2;

impl Workload for Picking {
    fn tables(&self) -> Vec<Shape> {
        vec![
            Shape::new("picking.plain", KeyForm::Text, true).read_backup(),
            Shape::new("picking.unique", KeyForm::Number, false).unique(),
        ]
    }

    fn loader(&self, ids: Ids) -> Box<dyn Session> {
        Box::new(Loader { ids, left: self.settings.keys })
    }

    fn session(&mut self, ids: Ids) -> Box<dyn Session + Send> {
        Box::new(Picker {
            settings: self.settings,
            ids,
            transactions: self.settings.transactions,
            number: 0,
            batches: 0,
            sent: Vec::new(),
            locked: Vec::new(),
            wanted: Vec::new(),
            state: State::Pausing,
        })
    }

    fn check(&self, _: &Contents, _: &History) -> Result<(), String> {
        Ok(())
    }
}

/// Writes a row under each key.
struct Loader {
    ids: Ids,
    left: u64,
}

impl Session for Loader {
    fn next(&mut self, _: &mut Rng, _: &Answer) -> Step {
        let Some(key) = self.left.checked_sub(1) else { return Step::End };
        self.left = key;
        let operations = (0..TABLES)
            .map(|table| Operation {
                number: u32::from(table) + 1,
                kind: OperationKind::Write,
                table: self.ids.table(table),
                key,
                body: Body::Row(Value { value: self.ids.value(), count: key }),
                condition: None,
                error_is_local: false,
                wait: LockWait::Default,
                selects: false,
            })
            .collect();
        Step::Execute(OperationBatch { begin: true, rollback_to: None, operations, end: End::Commit })
    }
}

#[derive(Clone, Copy)]
enum State {
    Open,
    Pausing,
}

/// A row of one of the tables.
type Row = (TableRef, u64);

struct Picker {
    settings: Settings,
    ids: Ids,
    transactions: u32,
    /// The newest operation number of the transaction.
    number: u32,
    /// Batches that the transaction still has.
    batches: u32,
    /// Locking reads of the batch under way, by number.
    sent: Vec<(u32, Row)>,
    /// Rows that are locked, with the reads that did it.
    locked: Vec<(u32, Row)>,
    /// Rows that others had locked.
    wanted: Vec<Row>,
    state: State,
}

impl Session for Picker {
    fn next(&mut self, random: &mut Rng, last: &Answer) -> Step {
        match (self.state, last) {
            (State::Pausing, _) => self.begin(random),
            (State::Open, Answer::Executed(answer @ BatchAnswer { fate: Fate::Open, .. })) => {
                self.take(answer);
                self.go_on(random)
            }
            (State::Open, Answer::Done) => self.go_on(random),
            (State::Open, _) => {
                self.state = State::Pausing;
                Step::Wait(random.u64(..=self.settings.pause))
            }
        }
    }
}

impl Picker {
    fn begin(&mut self, random: &mut Rng) -> Step {
        if self.transactions == 0 {
            return Step::End;
        }
        self.transactions -= 1;
        self.number = 0;
        self.locked.clear();
        self.wanted.clear();
        self.state = State::Open;
        self.batches = random.u32(..4);
        self.batch(random, true)
    }

    /// Notes which rows are locked now, and which others have.
    fn take(&mut self, answer: &BatchAnswer) {
        for (number, row) in core::mem::take(&mut self.sent) {
            let failed = answer.errors.iter().find(|(of, _)| *of == number).map(|(_, code)| *code);
            let is_there = answer.rows.iter().any(|(of, row)| *of == number && row.is_some());
            match failed {
                None if is_there => self.locked.push((number, row)),
                Some(ErrorCode::RowLocked) => self.wanted.push(row),
                None | Some(_) => {}
            }
        }
    }

    fn go_on(&mut self, random: &mut Rng) -> Step {
        if self.batches == 0 {
            let end = if random.u8(..6) == 0 { End::Rollback } else { End::Commit };
            return Step::Execute(OperationBatch {
                begin: false,
                rollback_to: None,
                operations: Vec::new(),
                end,
            });
        }
        if random.u8(..3) == 0 {
            return Step::Wait(random.u64(..=self.settings.pause));
        }
        self.batches -= 1;
        self.batch(random, false)
    }

    fn batch(&mut self, random: &mut Rng, begin: bool) -> Step {
        let end = if self.batches == 0 && random.bool() { End::Commit } else { End::Stay };
        let rollback_to = (!begin && random.u8(..12) == 0).then(|| random.u32(1..=self.number.max(1)));
        let count = random.usize(1..=4);
        let operations = (0..count).map(|_| self.operation(random, end == End::Stay)).collect();
        Step::Execute(OperationBatch { begin, rollback_to, operations, end })
    }

    fn operation(&mut self, random: &mut Rng, may_fail_alone: bool) -> Operation {
        self.number += 1;
        if !self.locked.is_empty() && random.u8(..4) == 0 {
            let (read, row) = self.locked.swap_remove(random.usize(..self.locked.len()));
            return self.make(OperationKind::Unlock, row, Body::Unlock(read), LockWait::Default, true);
        }
        let row = self.row(random);
        let kind = match random.u8(..20) {
            0 => OperationKind::ReadCommitted,
            1..5 => OperationKind::ReadShared,
            5..12 => OperationKind::ReadExclusive,
            12..16 => OperationKind::Update,
            16..18 => OperationKind::Write,
            18 => OperationKind::Insert,
            _ => OperationKind::Delete,
        };
        let body = match kind {
            OperationKind::Insert | OperationKind::Write => {
                Body::Row(Value { value: self.ids.value(), count: random.u64(..self.settings.keys * 2) })
            }
            OperationKind::Update => {
                let set = (random.u8(..4) > 0).then(|| self.ids.value());
                Body::Change(Change { set, add: random.u64(..3), ..Change::default() })
            }
            OperationKind::ReadCommitted
            | OperationKind::ReadShared
            | OperationKind::ReadExclusive
            | OperationKind::Delete
            | OperationKind::Unlock => Body::None,
        };
        if matches!(kind, OperationKind::ReadShared | OperationKind::ReadExclusive) {
            self.sent.push((self.number, row));
        }
        let wait = match random.u8(..10) {
            0..2 => LockWait::Default,
            2..5 => LockWait::NoWait,
            5..7 => LockWait::SkipLocked,
            7 => LockWait::ElseCommitted,
            _ => LockWait::Millis(random.u32(..=self.settings.wait_max)),
        };
        // A session that commits and does not get the answer has to know what was committed.
        let wait = if wait.skips() && kind.is_change() && !may_fail_alone { LockWait::NoWait } else { wait };
        let error_is_local = may_fail_alone && random.u8(..4) > 0;
        let mut operation = self.make(kind, row, body, wait, error_is_local);
        let may_have_condition = kind.is_read() || kind == OperationKind::Update;
        if may_have_condition && random.u8(..10) == 0 {
            operation.condition = Some(Condition::CountAtLeast(random.u64(..self.settings.keys)));
        }
        operation.selects = random.bool();
        operation
    }

    /// A row that is locked already, that others had locked, or any.
    fn row(&mut self, random: &mut Rng) -> Row {
        match random.u8(..6) {
            0 if !self.locked.is_empty() => self.locked[random.usize(..self.locked.len())].1,
            1 if !self.wanted.is_empty() => self.wanted.swap_remove(random.usize(..self.wanted.len())),
            _ => (self.ids.table(random.u16(..TABLES)), random.u64(..self.settings.keys)),
        }
    }

    fn make(
        &self,
        kind: OperationKind,
        (table, key): Row,
        body: Body,
        wait: LockWait,
        error_is_local: bool,
    ) -> Operation {
        Operation {
            number: self.number,
            kind,
            table,
            key,
            body,
            condition: None,
            error_is_local,
            wait,
            selects: false,
        }
    }
}
