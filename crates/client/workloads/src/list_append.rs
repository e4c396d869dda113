//! Lists to which transactions append what may depend on other lists, so that their order shows.
//!
//! A row stands for a list that only grows. It holds the last element, which is the row's value, and the element's
//! *position*, which is the row's count: the loader gives each list an element at position 0, each append adds one. So
//! whoever sees a row knows who wrote the element at that position, and the appends of a list have an order that
//! follows from what was written and seen, without anybody's clock.
//!
//! A transaction reads some lists under shared or exclusive locks and appends to the same or others, in one batch or in
//! several; some only read. An append is an update program, or a row for a list that has been read. Now and then
//! appends are undone, whose locks stay, and lists are read without locks.
//!
//! [`crate::check::lists`] says what must hold of all that.

use crate::history::History;
use crate::shape::{KeyForm, Shape, Value};
use crate::step::{Answer, BatchAnswer, Body, Change, End, Fate, Operation, OperationBatch, Read, Step};
use crate::workload::{Contents, Ids, Session, Workload};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fastrand::Rng;
use vinga_wire::operation::{LockWait, OperationKind};

/// How large it is.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Lists.
    pub lists: u64,
    /// Transactions of each session.
    pub transactions: u32,
    /// A session waits this long between steps, in microseconds, at most.
    pub pause: u64,
}

/// The workload of lists.
pub struct ListAppend {
    settings: Settings,
}

impl ListAppend {
    /// The workload of these settings.
    pub fn new(settings: Settings) -> Self {
        ListAppend { settings }
    }
}

impl Workload for ListAppend {
    fn tables(&self) -> Vec<Shape> {
        vec![Shape::new("lists.rows", KeyForm::Number, false).list()]
    }

    fn loader(&self, ids: Ids) -> Box<dyn Session> {
        Box::new(Loader { ids, left: self.settings.lists, attempts: ATTEMPTS_MAX })
    }

    fn session(&mut self, ids: Ids) -> Box<dyn Session + Send> {
        Box::new(Appender {
            settings: self.settings,
            ids,
            transactions: self.settings.transactions,
            number: 0,
            batches: 0,
            appends: false,
            reads: Vec::new(),
            known: BTreeMap::new(),
            state: State::Pausing,
        })
    }

    fn check(&self, _: &Contents, _: &History) -> Result<(), String> {
        Ok(())
    }
}

/// Begins the lists, one after the other.
struct Loader {
    ids: Ids,
    /// Lists that do not exist.
    left: u64,
    /// Attempts that it may make.
    attempts: u32,
}

/// Attempts of the loader, at most: there may be no room for the lists.
const ATTEMPTS_MAX: u32 = 200;

impl Session for Loader {
    fn next(&mut self, _: &mut Rng, last: &Answer) -> Step {
        if matches!(last, Answer::Executed(BatchAnswer { fate: Fate::Committed(_), .. })) {
            self.left -= 1;
        }
        if self.left == 0 || self.attempts == 0 {
            return Step::End;
        }
        self.attempts -= 1;
        let body = Body::Row(Value { value: self.ids.value(), count: 0 });
        let insert = make(&self.ids, 1, OperationKind::Insert, self.left - 1, body);
        Step::Execute(OperationBatch {
            begin: true,
            rollback_to: None,
            operations: vec![insert],
            end: End::Commit,
        })
    }
}

#[derive(Clone, Copy)]
enum State {
    Open,
    Pausing,
}

struct Appender {
    settings: Settings,
    ids: Ids,
    transactions: u32,
    /// The newest operation number of the transaction.
    number: u32,
    /// Batches that the transaction still has.
    batches: u32,
    /// Whether the transaction appends anything.
    appends: bool,
    /// Locking reads of the batch under way, with their lists.
    reads: Vec<(u32, u64)>,
    /// What the transaction knows of lists that it has locked.
    known: BTreeMap<u64, Value>,
    state: State,
}

impl Session for Appender {
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

impl Appender {
    fn begin(&mut self, random: &mut Rng) -> Step {
        if self.transactions == 0 {
            return Step::End;
        }
        self.transactions -= 1;
        if random.u8(..20) == 0 {
            return self.look(random);
        }
        self.number = 0;
        self.reads.clear();
        self.known.clear();
        self.state = State::Open;
        self.appends = random.u8(..4) > 0;
        self.batches = random.u32(1..=3);
        self.batch(random, true)
    }

    /// Reads some lists without locks: what it sees says nothing of any order, but of positions.
    fn look(&mut self, random: &mut Rng) -> Step {
        let keys = (0..random.usize(1..=3)).map(|_| random.u64(..self.settings.lists)).collect();
        let (table, selects) = (self.ids.table(0), random.bool());
        Step::Read(Read { table, keys, condition: None, own_before: None, selects })
    }

    /// Learns what the reads of a batch have seen, unless the transaction has changed it since.
    fn take(&mut self, answer: &BatchAnswer) {
        for (number, list) in core::mem::take(&mut self.reads) {
            if let Some(&(_, Some(row))) = answer.rows.iter().find(|(of, _)| *of == number) {
                self.known.insert(list, row);
            }
        }
    }

    fn go_on(&mut self, random: &mut Rng) -> Step {
        if self.batches == 0 {
            let end = if random.u8(..12) == 0 { End::Rollback } else { End::Commit };
            return Step::Execute(OperationBatch {
                begin: false,
                rollback_to: None,
                operations: Vec::new(),
                end,
            });
        }
        if random.u8(..4) == 0 {
            return Step::Wait(random.u64(..=self.settings.pause));
        }
        self.batch(random, false)
    }

    fn batch(&mut self, random: &mut Rng, begin: bool) -> Step {
        self.batches -= 1;
        let end = if self.batches == 0 && random.u8(..4) > 0 { End::Commit } else { End::Stay };
        let rollback_to = (!begin && random.u8(..12) == 0).then(|| random.u32(1..=self.number.max(1)));
        if rollback_to.is_some() {
            // What it had read of its own appends is not there any more.
            self.known.clear();
        }
        let mut operations = Vec::new();
        for _ in 0..random.usize(1..=3) {
            self.add(random, &mut operations);
        }
        Step::Execute(OperationBatch { begin, rollback_to, operations, end })
    }

    /// Adds a read, or an append, perhaps with a read that says at which position it is.
    fn add(&mut self, random: &mut Rng, operations: &mut Vec<Operation>) {
        let list = random.u64(..self.settings.lists);
        if !self.appends || random.bool() {
            return self.read(random, operations, list);
        }
        let value = self.ids.value();
        self.reads.retain(|(_, read)| *read != list);
        let (kind, body) = match self.known.remove(&list).filter(|_| random.u8(..4) > 0) {
            Some(last) => {
                let row = Value { value, count: last.count + 1 };
                self.known.insert(list, row);
                (OperationKind::Write, Body::Row(row))
            }
            None => {
                let change = Change { set: Some(value), add: 1, ..Change::default() };
                (OperationKind::Update, Body::Change(change))
            }
        };
        self.number += 1;
        operations.push(make(&self.ids, self.number, kind, list, body));
        if random.u8(..3) == 0 {
            self.read(random, operations, list);
        }
    }

    fn read(&mut self, random: &mut Rng, operations: &mut Vec<Operation>, list: u64) {
        self.number += 1;
        let kind = match random.u8(..16) {
            0 => OperationKind::ReadCommitted,
            1..4 => OperationKind::ReadExclusive,
            _ => OperationKind::ReadShared,
        };
        if kind != OperationKind::ReadCommitted {
            self.reads.push((self.number, list));
        }
        let mut read = make(&self.ids, self.number, kind, list, Body::None);
        read.selects = random.bool();
        operations.push(read);
    }
}

fn make(ids: &Ids, number: u32, kind: OperationKind, key: u64, body: Body) -> Operation {
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
