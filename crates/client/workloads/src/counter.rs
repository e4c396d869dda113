//! Counters: each increment that is confirmed counts once.
//!
//! Increments are update programs, alone or several in a transaction; or compare-and-set of a row that was read before.

use crate::history::{Event, History, OperationResult};
use crate::shape::{KeyForm, Shape, Value};
use crate::step::{Answer, Body, Change, End, Fate, Operation, OperationBatch, Read, Step, TableRef};
use crate::workload::{Contents, Ids, Session, Workload};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fastrand::Rng;
use vinga_wire::operation::{LockWait, OperationKind};

/// How large it is.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Counters.
    pub counters: u64,
    /// Transactions of each session.
    pub transactions: u32,
    /// A session waits this long between transactions, in microseconds, at most.
    pub pause: u64,
}

/// The workload of increments.
pub struct Counter {
    settings: Settings,
    table: Option<TableRef>,
}

impl Counter {
    /// The workload of these settings.
    pub fn new(settings: Settings) -> Self {
        Counter { settings, table: None }
    }
}

impl Workload for Counter {
    fn tables(&self) -> Vec<Shape> {
        vec![Shape::new("counter.counters", KeyForm::Number, false)]
    }

    fn loader(&self, ids: Ids) -> Box<dyn Session> {
        Box::new(Loader { ids, left: self.settings.counters })
    }

    fn session(&mut self, ids: Ids) -> Box<dyn Session + Send> {
        self.table = Some(ids.table(0));
        let (settings, transactions) = (self.settings, self.settings.transactions);
        Box::new(CounterSession { settings, ids, transactions, state: State::Idle })
    }

    fn check(&self, contents: &Contents, history: &History) -> Result<(), String> {
        let Some(table) = self.table else { return Ok(()) };
        // Confirmed increments, and those that may have happened besides.
        let mut counts: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for transaction in &history.transactions {
            let is_certain = match transaction.fate {
                Fate::Committed(_) => true,
                Fate::Open | Fate::Unknown => false,
                Fate::RolledBack { .. } => continue,
            };
            for event in &transaction.events {
                let Event::Operation(record) = event else { continue };
                let (Body::Change(change), true) = (record.operation.body, record.operation.table == table)
                else {
                    continue;
                };
                if matches!(record.result, OperationResult::Failed(_) | OperationResult::FailedInIndex(_)) {
                    continue;
                }
                let count = counts.entry(record.operation.key).or_default();
                if is_certain { count.0 += change.add } else { count.1 += change.add }
            }
        }
        for (key, row) in contents.of(table) {
            let (certain, possible) = counts.get(&key).copied().unwrap_or_default();
            if !(certain..=certain + possible).contains(&row.count) {
                return Err(format!(
                    "counter {key} is {}; {certain} were confirmed, {possible} more may have been",
                    row.count
                ));
            }
        }
        Ok(())
    }
}

/// Makes the counters.
struct Loader {
    ids: Ids,
    left: u64,
}

impl Session for Loader {
    fn next(&mut self, _: &mut Rng, _: &Answer) -> Step {
        if self.left == 0 {
            return Step::End;
        }
        self.left -= 1;
        let row = Body::Row(Value { value: self.ids.value(), count: 0 });
        let insert = operation(1, OperationKind::Insert, self.ids.table(0), self.left, row);
        Step::Execute(OperationBatch {
            begin: true,
            rollback_to: None,
            operations: vec![insert],
            end: End::Commit,
        })
    }
}

enum State {
    Idle,
    /// A counter was read, to be set only if nobody else has meanwhile.
    Comparing {
        key: u64,
    },
    /// The last batch of a transaction is under way.
    Ending,
    Pausing,
}

struct CounterSession {
    settings: Settings,
    ids: Ids,
    transactions: u32,
    state: State,
}

impl Session for CounterSession {
    fn next(&mut self, random: &mut Rng, last: &Answer) -> Step {
        match (&self.state, last) {
            (State::Idle | State::Pausing, _) => self.begin(random),
            (&State::Comparing { key }, Answer::Read(rows)) => match rows[..] {
                [Some(row)] => self.compare_and_set(key, row),
                _ => self.pause(random),
            },
            (State::Comparing { .. } | State::Ending, _) => self.pause(random),
        }
    }
}

impl CounterSession {
    fn pause(&mut self, random: &mut Rng) -> Step {
        self.state = State::Pausing;
        Step::Wait(random.u64(..=self.settings.pause))
    }

    fn begin(&mut self, random: &mut Rng) -> Step {
        if self.transactions == 0 {
            return Step::End;
        }
        self.transactions -= 1;
        let key = random.u64(..self.settings.counters);
        if random.u8(..4) == 0 {
            self.state = State::Comparing { key };
            let (table, selects) = (self.ids.table(0), random.bool());
            return Step::Read(Read { table, keys: vec![key], condition: None, own_before: None, selects });
        }
        self.state = State::Ending;
        let several = if random.bool() { 1 } else { random.u32(1..=self.settings.counters.min(6) as u32) };
        let operations = (1..=several)
            .map(|number| {
                // Ascending keys, so that sessions don't wait for each other in a cycle.
                let key = if several == 1 { key } else { u64::from(number) - 1 };
                let add = random.u64(1..10);
                let set = random.bool().then(|| self.ids.value());
                let change = Body::Change(Change { set, add, ..Change::default() });
                operation(number, OperationKind::Update, self.ids.table(0), key, change)
            })
            .collect();
        Step::Execute(OperationBatch { begin: true, rollback_to: None, operations, end: End::Commit })
    }

    fn compare_and_set(&mut self, key: u64, row: Value) -> Step {
        self.state = State::Ending;
        let change =
            Change { expect: Some(row.value), set: Some(self.ids.value()), add: 1, ..Change::default() };
        let update = operation(1, OperationKind::Update, self.ids.table(0), key, Body::Change(change));
        Step::Execute(OperationBatch {
            begin: true,
            rollback_to: None,
            operations: vec![update],
            end: End::Commit,
        })
    }
}

fn operation(number: u32, kind: OperationKind, table: TableRef, key: u64, body: Body) -> Operation {
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
