//! Transfers between accounts: whoever reads all of them under shared locks finds the same sum.
//!
//! The balance of an account is the count of its row. A transfer reads two accounts under exclusive locks and writes
//! both, or updates them by programs; an audit reads all accounts under shared locks, in one batch or in several.

use crate::history::{Event, History, OperationResult};
use crate::shape::{KeyForm, Shape, Value};
use crate::step::{
    Answer, BatchAnswer, Body, Change, Condition, End, Fate, Operation, OperationBatch, Step, TableRef,
};
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
    /// Accounts.
    pub accounts: u64,
    /// Transactions of each session.
    pub transactions: u32,
    /// A session waits this long between transactions, in microseconds, at most.
    pub pause: u64,
}

/// What is in each account at the beginning.
pub const BALANCE: u64 = 1000;

/// The workload of transfers.
pub struct Bank {
    settings: Settings,
    table: Option<TableRef>,
}

impl Bank {
    /// The workload of these settings.
    pub fn new(settings: Settings) -> Self {
        Bank { settings, table: None }
    }

    /// The check alone, of so many accounts in this table: others transfer, and have begun with [`BALANCE`] in each.
    pub fn to_check(accounts: u64, table: TableRef) -> Self {
        Bank { settings: Settings { accounts, transactions: 0, pause: 0 }, table: Some(table) }
    }
}

impl Workload for Bank {
    fn tables(&self) -> Vec<Shape> {
        vec![Shape::new("bank.accounts", KeyForm::Number, true).read_backup()]
    }

    fn loader(&self, ids: Ids) -> Box<dyn Session> {
        Box::new(Loader { ids, left: self.settings.accounts, attempts: ATTEMPTS_MAX })
    }

    fn session(&mut self, ids: Ids) -> Box<dyn Session + Send> {
        self.table = Some(ids.table(0));
        let (settings, transactions) = (self.settings, self.settings.transactions);
        Box::new(BankSession { settings, ids, transactions, state: State::Idle })
    }

    fn check(&self, contents: &Contents, history: &History) -> Result<(), String> {
        let Some(table) = self.table else { return Ok(()) };
        // There may have been no room for all of them.
        let expected = contents.of(table).count() as u64 * BALANCE;
        let sum: u64 = contents.of(table).map(|(_, row)| row.count).sum();
        if contents.versions.contains_key(&table) && sum != expected {
            return Err(format!("the accounts hold {sum}, not {expected}"));
        }
        for transaction in &history.transactions {
            if !matches!(transaction.fate, Fate::Committed(_)) {
                continue;
            }
            let seen: BTreeMap<u64, u64> = transaction.events.iter().filter_map(audited(table)).collect();
            let sum: u64 = seen.values().sum();
            if seen.len() as u64 == self.settings.accounts && sum != expected {
                return Err(format!("audit {:#x} found {sum}, not {expected}", transaction.id));
            }
        }
        Ok(())
    }
}

/// The account and balance that an audit has read.
fn audited(table: TableRef) -> impl Fn(&Event) -> Option<(u64, u64)> {
    move |event| match event {
        Event::Operation(record)
            if record.operation.table == table && record.operation.kind == OperationKind::ReadShared =>
        {
            match record.result {
                OperationResult::Row(Some(row)) => Some((record.operation.key, row.count)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Opens the accounts, one after the other.
struct Loader {
    ids: Ids,
    /// Accounts that are not open.
    left: u64,
    /// Attempts that it may make.
    attempts: u32,
}

/// Attempts of the loader, at most: there may be no room for the accounts.
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
        let row = Body::Row(Value { value: self.ids.value(), count: BALANCE });
        let insert = operation(1, OperationKind::Insert, self.ids.table(0), self.left - 1, row);
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
    /// The accounts are read; then so much is moved.
    Reading {
        from: u64,
        to: u64,
        amount: u64,
    },
    /// The rest of an audit: the next account, the next operation number.
    Auditing {
        next: u64,
    },
    /// The last batch of a transaction is under way.
    Ending,
    Pausing,
}

struct BankSession {
    settings: Settings,
    ids: Ids,
    transactions: u32,
    state: State,
}

impl Session for BankSession {
    fn next(&mut self, random: &mut Rng, last: &Answer) -> Step {
        let open = match last {
            Answer::Executed(answer @ BatchAnswer { fate: Fate::Open, .. }) => Some(answer),
            _ => None,
        };
        match (&self.state, open) {
            (State::Idle | State::Pausing, _) => self.begin(random),
            (&State::Reading { from, to, amount }, Some(answer)) => self.move_money(from, to, amount, answer),
            (&State::Auditing { next }, Some(_)) => self.audit(random, next),
            (State::Reading { .. } | State::Auditing { .. } | State::Ending, _) => {
                self.state = State::Pausing;
                Step::Wait(random.u64(..=self.settings.pause))
            }
        }
    }
}

impl BankSession {
    fn begin(&mut self, random: &mut Rng) -> Step {
        if self.transactions == 0 {
            return Step::End;
        }
        self.transactions -= 1;
        if random.u8(..3) == 0 {
            return self.audit(random, 0);
        }
        let from = random.u64(..self.settings.accounts);
        let to = (from + random.u64(1..self.settings.accounts)) % self.settings.accounts;
        let amount = random.u64(1..50);
        if random.bool() {
            return self.transfer_by_program(from, to, amount);
        }
        self.state = State::Reading { from, to, amount };
        let read = |number, account| {
            operation(number, OperationKind::ReadExclusive, self.ids.table(0), account, Body::None)
        };
        let operations = vec![read(1, from.min(to)), read(2, from.max(to))];
        Step::Execute(OperationBatch { begin: true, rollback_to: None, operations, end: End::Stay })
    }

    /// Writes the new balances of two accounts that were read.
    fn move_money(&mut self, from: u64, to: u64, amount: u64, answer: &BatchAnswer) -> Step {
        self.state = State::Ending;
        let balance = |account: u64| {
            let number = if account == from.min(to) { 1 } else { 2 };
            answer.rows.iter().find(|(n, _)| *n == number).and_then(|(_, row)| *row).map(|row| row.count)
        };
        let (Some(before_from), Some(before_to)) = (balance(from), balance(to)) else {
            let end = End::Rollback;
            return Step::Execute(OperationBatch {
                begin: false,
                rollback_to: None,
                operations: vec![],
                end,
            });
        };
        let amount = amount.min(before_from);
        let mut write = |number, account, count| {
            let row = Value { value: self.ids.value(), count };
            operation(number, OperationKind::Write, self.ids.table(0), account, Body::Row(row))
        };
        let operations = vec![write(3, from, before_from - amount), write(4, to, before_to + amount)];
        Step::Execute(OperationBatch { begin: false, rollback_to: None, operations, end: End::Commit })
    }

    /// Moves money in one batch, without reading: only if there is enough.
    fn transfer_by_program(&mut self, from: u64, to: u64, amount: u64) -> Step {
        self.state = State::Ending;
        let table = self.ids.table(0);
        let take = Change { set: Some(self.ids.value()), subtract: amount, ..Change::default() };
        let give = Change { set: Some(self.ids.value()), add: amount, ..Change::default() };
        let mut first = operation(1, OperationKind::Update, table, from, Body::Change(take));
        first.condition = Some(Condition::CountAtLeast(amount));
        let second = operation(2, OperationKind::Update, table, to, Body::Change(give));
        let operations = vec![first, second];
        Step::Execute(OperationBatch { begin: true, rollback_to: None, operations, end: End::Commit })
    }

    /// Reads accounts from `next` on: all that are left, or some.
    fn audit(&mut self, random: &mut Rng, next: u64) -> Step {
        let left = self.settings.accounts - next;
        let count = if random.bool() { left } else { random.u64(1..=left) };
        let operations = (next..next + count)
            .map(|account| {
                let kind = OperationKind::ReadShared;
                operation(account as u32 + 1, kind, self.ids.table(0), account, Body::None)
            })
            .collect();
        let is_last = count == left;
        self.state = if is_last { State::Ending } else { State::Auditing { next: next + count } };
        let end = if is_last { End::Commit } else { End::Stay };
        Step::Execute(OperationBatch { begin: next == 0, rollback_to: None, operations, end })
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
