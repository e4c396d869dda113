//! Everything that can be done with rows, at random, by sessions that compete for few keys.
//!
//! Nothing is expected of the answers here: whether they can be true is for [`crate::check`] to say. Sessions make
//! transactions of one or several batches, of one or many operations of all kinds, on two tables; undo parts of them;
//! leave them, to be rolled back by a time-out; read committed rows beside them, and their own changes. With unique
//! indexes they also compete for values of columns.

use crate::history::History;
use crate::shape::{KeyForm, Shape, Value};
use crate::step::{
    Answer, BatchAnswer, Body, Change, Condition, End, Fate, Operation, OperationBatch, Read, Step, TableRef,
};
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
    /// Whether the tables have unique indexes, whose keys the sessions compete for, too.
    pub unique: bool,
    /// Whether changes of the first table wait for the disk.
    pub durable: bool,
    /// Whether the second table is neither logged nor checkpointed.
    pub unlogged: bool,
    /// Keys of each table.
    pub keys: u64,
    /// Transactions of each session.
    pub transactions: u32,
    /// Operations of a batch, at most.
    pub operations_max: usize,
    /// A session waits this long between transactions, in microseconds, at most.
    pub pause: u64,
    /// Of a hundred transactions, so many are left open for a time-out.
    pub left_open: u32,
    /// How long such a session waits, in microseconds.
    pub left_for: u64,
}

/// The workload of random operations on few keys.
pub struct KeyValue {
    settings: Settings,
}

/// Tables of the workload.
const TABLES: u16 = 2;

impl KeyValue {
    /// The workload of these settings.
    pub fn new(settings: Settings) -> Self {
        KeyValue { settings }
    }
}

impl Workload for KeyValue {
    fn tables(&self) -> Vec<Shape> {
        let (plain, noted) = if self.settings.unique {
            (
                Shape::new("unique.plain", KeyForm::Number, false).unique(),
                Shape::new("unique.noted", KeyForm::Text, true).unique().read_backup(),
            )
        } else {
            (
                Shape::new("key_value.plain", KeyForm::Number, false).read_backup(),
                Shape::new("key_value.noted", KeyForm::Text, true),
            )
        };
        let plain = if self.settings.durable { plain.durable() } else { plain };
        vec![plain, if self.settings.unlogged { noted.unlogged() } else { noted }]
    }

    fn loader(&self, ids: Ids) -> Box<dyn Session> {
        Box::new(Loader { ids, unique: self.settings.unique, left: (0..self.settings.keys / 2).collect() })
    }

    fn session(&mut self, ids: Ids) -> Box<dyn Session + Send> {
        let state = State::Idle;
        Box::new(KeyValueSession {
            settings: self.settings,
            ids,
            transactions: self.settings.transactions,
            number: 0,
            state,
        })
    }

    fn check(&self, _: &Contents, _: &History) -> Result<(), String> {
        Ok(())
    }
}

/// Inserts a row under half of the keys.
struct Loader {
    ids: Ids,
    unique: bool,
    left: Vec<u64>,
}

impl Session for Loader {
    fn next(&mut self, _: &mut Rng, _: &Answer) -> Step {
        let Some(key) = self.left.pop() else { return Step::End };
        let operations = (0..TABLES)
            .map(|table| Operation {
                number: u32::from(table) + 1,
                kind: OperationKind::Write,
                table: self.ids.table(table),
                key,
                body: Body::Row(Value { value: self.ids.value(), count: if self.unique { key } else { 0 } }),
                condition: None,
                error_is_local: false,
                wait: LockWait::Default,
                selects: false,
            })
            .collect();
        Step::Execute(OperationBatch { begin: true, rollback_to: None, operations, end: End::Commit })
    }
}

enum State {
    /// No transaction is open.
    Idle,
    /// The transaction goes on for so many batches.
    Open { batches: u32 },
    /// A pause before the next transaction.
    Pausing,
}

struct KeyValueSession {
    settings: Settings,
    ids: Ids,
    transactions: u32,
    /// The newest operation number of the transaction.
    number: u32,
    state: State,
}

impl Session for KeyValueSession {
    fn next(&mut self, random: &mut Rng, last: &Answer) -> Step {
        match (&self.state, last) {
            (State::Idle | State::Pausing, _) => self.begin(random),
            (State::Open { .. }, Answer::Executed(BatchAnswer { fate: Fate::Open, .. })) => {
                self.go_on(random)
            }
            // Reads of own changes leave the transaction as it is, also if they fail.
            (State::Open { .. }, Answer::Read(_) | Answer::Failed(_) | Answer::Done) => self.go_on(random),
            (State::Open { .. }, Answer::Executed(_) | Answer::Begin | Answer::Batch(_)) => {
                self.state = State::Pausing;
                Step::Wait(random.u64(..=self.settings.pause))
            }
        }
    }
}

impl KeyValueSession {
    fn begin(&mut self, random: &mut Rng) -> Step {
        if self.transactions == 0 {
            return Step::End;
        }
        self.transactions -= 1;
        self.number = 0;
        match random.u8(..10) {
            0..2 => self.read(random, None),
            2..5 => {
                // A transaction of one operation.
                let operations = vec![self.operation(random, false)];
                self.state = State::Open { batches: 0 };
                Step::Execute(OperationBatch { begin: true, rollback_to: None, operations, end: End::Commit })
            }
            _ => {
                self.state = State::Open { batches: random.u32(..4) };
                self.batch(random, true, None)
            }
        }
    }

    fn go_on(&mut self, random: &mut Rng) -> Step {
        let State::Open { batches } = &mut self.state else { unreachable!("it is open") };
        if *batches == 0 {
            if random.u32(..100) < self.settings.left_open {
                self.state = State::Pausing;
                return Step::Wait(self.settings.left_for);
            }
            let end = if random.u8(..8) == 0 { End::Rollback } else { End::Commit };
            let step = OperationBatch { begin: false, rollback_to: None, operations: Vec::new(), end };
            return Step::Execute(step);
        }
        *batches -= 1;
        match random.u8(..10) {
            0..2 => {
                let before = random_number(random, self.number) + 1;
                self.read(random, Some(before))
            }
            2..4 => {
                let from = random_number(random, self.number);
                self.batch(random, false, Some(from))
            }
            4 => Step::Wait(random.u64(..=self.settings.pause)),
            _ => self.batch(random, false, None),
        }
    }

    fn read(&mut self, random: &mut Rng, own_before: Option<u32>) -> Step {
        let keys = (0..random.usize(1..=4)).map(|_| self.key(random)).collect();
        Step::Read(Read {
            table: self.table(random),
            keys,
            condition: condition(random),
            own_before,
            selects: random.bool(),
        })
    }

    fn batch(&mut self, random: &mut Rng, begin: bool, rollback_to: Option<u32>) -> Step {
        let count = random.usize(1..=self.settings.operations_max);
        let State::Open { batches } = self.state else { unreachable!("it is open") };
        let end = if batches == 0 && random.bool() { End::Commit } else { End::Stay };
        let operations = (0..count).map(|_| self.operation(random, end == End::Stay)).collect();
        Step::Execute(OperationBatch { begin, rollback_to, operations, end })
    }

    fn table(&self, random: &mut Rng) -> TableRef {
        self.ids.table(random.u16(..TABLES))
    }

    /// A key; half of the time one of the few that all sessions want.
    fn key(&self, random: &mut Rng) -> u64 {
        let hot = (self.settings.keys / 8).max(2);
        if random.bool() { random.u64(..hot) } else { random.u64(..self.settings.keys) }
    }

    fn operation(&mut self, random: &mut Rng, may_fail_alone: bool) -> Operation {
        self.number += 1;
        let kind = match random.u8(..20) {
            0..2 => OperationKind::ReadCommitted,
            2..5 => OperationKind::ReadShared,
            5..7 => OperationKind::ReadExclusive,
            7..10 => OperationKind::Insert,
            10..14 => OperationKind::Update,
            14..17 => OperationKind::Write,
            17..19 => OperationKind::Delete,
            _ if self.number > 1 => OperationKind::Unlock,
            _ => OperationKind::ReadShared,
        };
        let body = match kind {
            OperationKind::Insert | OperationKind::Write => {
                let counts = if self.settings.unique { self.settings.keys * 2 } else { 10 };
                Body::Row(Value { value: self.ids.value(), count: random.u64(..counts) })
            }
            OperationKind::Update => {
                let set = (random.u8(..4) > 0).then(|| self.ids.value());
                Body::Change(Change { set, add: random.u64(..3), ..Change::default() })
            }
            OperationKind::Unlock => Body::Unlock(random_number(random, self.number - 1)),
            OperationKind::ReadCommitted
            | OperationKind::ReadShared
            | OperationKind::ReadExclusive
            | OperationKind::Delete => Body::None,
        };
        let may_have_condition =
            !matches!(kind, OperationKind::Insert | OperationKind::Write | OperationKind::Unlock);
        Operation {
            number: self.number,
            kind,
            table: self.table(random),
            key: self.key(random),
            body,
            condition: if may_have_condition { condition(random) } else { None },
            error_is_local: may_fail_alone && random.u8(..4) > 0,
            wait: LockWait::Default,
            selects: random.bool(),
        }
    }
}

/// The number of an operation of the transaction.
fn random_number(random: &mut Rng, newest: u32) -> u32 {
    random.u32(1..=newest.max(1))
}

fn condition(random: &mut Rng) -> Option<Condition> {
    match random.u8(..10) {
        0 => Some(Condition::CountBelow(random.u64(..12))),
        1 => Some(Condition::CountAtLeast(random.u64(..12))),
        _ => None,
    }
}
