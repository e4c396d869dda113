//! A table that is changed in every way while others work on it, some of them with an old definition in mind.
//!
//! Sessions whose definition is refused as stale read it again sooner or later. The first two sessions churn,
//! without regard to each other, the others work. Rows of each birth of the table are rows of their own
//! ([`crate::history::RowName`]): they stay when it is renamed or altered, and are gone when it is truncated or
//! dropped. They stay, too, when a copy takes its place ([`copier`]): what was acknowledged before is in the copy.

mod copier;

use crate::history::History;
use crate::shape::{KeyForm, Shape, Value};
use crate::step::{
    Answer, BatchAnswer, Body, End, Fate, Operation, OperationBatch, Read, Scan, Step, TableChange, TableRef,
};
use crate::workload::{Contents, Ids, Session, Workload};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use copier::Copier;
use fastrand::Rng;
use vinga_wire::ErrorClass;
use vinga_wire::operation::{LockWait, OperationKind};

/// How large it is.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How often each session that churns drops the table and creates it again, or changes it otherwise thrice.
    pub rounds: u32,
    /// Transactions of each working session.
    pub transactions: u32,
    /// Keys.
    pub keys: u64,
    /// A session waits this long between steps, in microseconds, at most; the one that churns ten times as long.
    pub pause: u64,
}

/// The workload of a table whose definition changes.
pub struct SchemaChurn {
    settings: Settings,
    churners: u32,
}

/// Sessions that churn.
const CHURNERS: u32 = 2;

impl SchemaChurn {
    /// The workload of these settings.
    pub fn new(settings: Settings) -> Self {
        SchemaChurn { settings, churners: 0 }
    }
}

impl Workload for SchemaChurn {
    fn tables(&self) -> Vec<Shape> {
        let shape = |name| Shape::new(name, KeyForm::Number, true);
        vec![
            shape("schema_churn.table"),
            shape("schema_churn.copy_1").copy(),
            shape("schema_churn.copy_2").copy(),
        ]
    }

    fn loader(&self, _: Ids) -> Box<dyn Session> {
        Box::new(NoLoader)
    }

    fn session(&mut self, ids: Ids) -> Box<dyn Session + Send> {
        let settings = self.settings;
        if self.churners == CHURNERS {
            return Box::new(Worker {
                settings,
                ids,
                left: settings.transactions,
                number: 0,
                state: State::Idle,
            });
        }
        self.churners += 1;
        let copy = ids.table(self.churners as u16);
        Box::new(Churner { settings, ids, copy, copier: None, left: settings.rounds * 3, next: Vec::new() })
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

/// Changes the table in one way after the other.
struct Churner {
    settings: Settings,
    ids: Ids,
    /// Its copies of the table, while they are made.
    copy: TableRef,
    copier: Option<Copier>,
    left: u32,
    /// What is to be done next, last first.
    next: Vec<Step>,
}

impl Session for Churner {
    fn next(&mut self, random: &mut Rng, last: &Answer) -> Step {
        if let Some(step) = self.copier.as_mut().and_then(|copier| copier.next(random, last)) {
            return step;
        }
        self.copier = None;
        if let Some(step) = self.next.pop() {
            return step;
        }
        let table = self.ids.table(0);
        let pause = random.u64(..=self.settings.pause * 10);
        if self.left == 0 {
            return Step::End;
        }
        self.left -= 1;
        let change = |what| vec![Step::Change(table, what)];
        self.next = match random.u8(..15) {
            0 | 1 => vec![Step::Create(table), Step::Wait(pause / 4), Step::Drop(table)],
            2 | 3 => change(TableChange::Rename),
            4 | 5 => change(TableChange::Truncate),
            6 | 7 => change(TableChange::Index),
            8 => change(TableChange::Attachment),
            9 => vec![
                Step::Change(table, TableChange::LiftFence),
                Step::Wait(pause),
                Step::Change(table, TableChange::Fence),
            ],
            10 => vec![Step::Unlock, Step::Wait(pause), Step::Lock],
            11..=13 => {
                self.copier = Some(Copier::new(table, self.copy, self.settings.pause * 20, random));
                Vec::new()
            }
            // Somebody else may have dropped it.
            _ => vec![Step::Create(table)],
        };
        Step::Wait(pause)
    }
}

#[derive(Clone, Copy)]
enum State {
    Idle,
    /// A transaction is open.
    Open,
    Scanning,
    Pausing,
}

struct Worker {
    settings: Settings,
    ids: Ids,
    left: u32,
    number: u32,
    state: State,
}

impl Session for Worker {
    fn next(&mut self, random: &mut Rng, last: &Answer) -> Step {
        match (self.state, last) {
            (State::Idle, _) => self.begin(random),
            (State::Open, Answer::Executed(BatchAnswer { fate: Fate::Open, .. })) => {
                let end = if random.bool() { End::Commit } else { End::Stay };
                self.batch(random, false, end)
            }
            (State::Scanning, Answer::Batch(batch)) if !batch.is_last => Step::ScanNext,
            (State::Pausing, _) => {
                self.state = State::Idle;
                Step::Wait(random.u64(..=self.settings.pause))
            }
            (State::Open | State::Scanning, _) => {
                self.state = State::Pausing;
                // Not always: a client may go on with what it knows.
                if is_stale(last) && random.u8(..3) > 0 {
                    return Step::Describe(self.ids.table(0));
                }
                Step::Wait(random.u64(..=self.settings.pause))
            }
        }
    }
}

fn is_stale(answer: &Answer) -> bool {
    let error = match answer {
        Answer::Failed(error) => Some(*error),
        Answer::Executed(BatchAnswer { fate: Fate::RolledBack { error, .. }, .. }) => *error,
        Answer::Executed(_) | Answer::Begin | Answer::Read(_) | Answer::Batch(_) | Answer::Done => None,
    };
    error.is_some_and(|error| error.class() == ErrorClass::Schema)
}

impl Worker {
    fn begin(&mut self, random: &mut Rng) -> Step {
        if self.left == 0 {
            return Step::End;
        }
        self.left -= 1;
        self.number = 0;
        let (table, selects) = (self.ids.table(0), random.bool());
        self.state = State::Scanning;
        match random.u8(..8) {
            0 => {
                let keys = vec![random.u64(..self.settings.keys)];
                Step::Read(Read { table, keys, condition: None, own_before: None, selects })
            }
            1 => {
                let batch_rows = random.u16(1..20);
                Step::ScanOpen(Scan {
                    table,
                    range: None,
                    condition: None,
                    batch_rows,
                    own_before: None,
                    selects,
                    counts: random.u8(..4) == 0,
                })
            }
            _ => {
                self.state = State::Open;
                let end = if random.bool() { End::Commit } else { End::Stay };
                self.batch(random, true, end)
            }
        }
    }

    fn batch(&mut self, random: &mut Rng, begin: bool, end: End) -> Step {
        let operations: Vec<Operation> = (0..random.usize(1..4))
            .map(|_| {
                self.number += 1;
                let kind = match random.u8(..4) {
                    0 => OperationKind::ReadShared,
                    1 => OperationKind::Delete,
                    _ => OperationKind::Write,
                };
                let body = match kind {
                    OperationKind::Write => Body::Row(Value { value: self.ids.value(), count: 1 }),
                    _ => Body::None,
                };
                Operation {
                    number: self.number,
                    kind,
                    table: self.ids.table(0),
                    key: random.u64(..self.settings.keys),
                    body,
                    condition: None,
                    error_is_local: end == End::Stay,
                    wait: LockWait::Default,
                    selects: false,
                }
            })
            .collect();
        Step::Execute(OperationBatch { begin, rollback_to: None, operations, end })
    }
}
