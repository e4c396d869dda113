//! What recorded sessions do: transfers between accounts, appends to lists, reads and writes of registers.
//!
//! Accounts and registers have a column that says who wrote the row, with a number of its own for each write. A list is
//! a text of such numbers, to which transactions append by `CONCAT`; whoever reads it knows all that were appended
//! before, and in which order.

use crate::recorder::{RecordedSession, Results};
use std::collections::BTreeMap;
use vinga::{ErrorCode, OperationKind};
use vinga_sqlnode::Answer;
use vinga_wire::operation::LockWait;
use vinga_workloads::bank::BALANCE;
use vinga_workloads::history::OperationResult;
use vinga_workloads::shape::Value;
use vinga_workloads::step::{Body, Change, Condition, Operation, TableRef};

/// The table of accounts.
pub const ACCOUNTS: TableRef = TableRef(0);
/// The table of lists.
pub const LISTS: TableRef = TableRef(1);
/// The table of registers.
pub const REGISTERS: TableRef = TableRef(2);
/// How many accounts there are.
pub const ACCOUNT_COUNT: u64 = 6;
/// Rows of registers, of which some do not exist at a time.
pub const REGISTER_COUNT: u64 = 8;
/// Lists to which anybody appends at a time; then others take their place, so that none becomes long.
const LISTS_AT_A_TIME: u64 = 4;
/// Appends of a session until its lists are others.
const APPENDS_EACH: u64 = 60;
/// How many lists there are; when all have had their turn, sessions go on with the first ones.
pub const LIST_COUNT: u64 = 100 * LISTS_AT_A_TIME;
/// Bytes of a list: as many as a row may have.
const LIST_BYTES_MAX: u64 = 12_000;

/// Statements that create the tables.
pub fn tables() -> Vec<String> {
    vec![
        "CREATE TABLE accounts (id BIGINT UNSIGNED PRIMARY KEY, writer BIGINT UNSIGNED NOT NULL, \
         balance BIGINT UNSIGNED NOT NULL) ENGINE=VINGA"
            .into(),
        format!(
            "CREATE TABLE lists (id BIGINT UNSIGNED PRIMARY KEY, elements VARCHAR({LIST_BYTES_MAX}) \
             CHARACTER SET latin1 NOT NULL) ENGINE=VINGA"
        ),
        "CREATE TABLE registers (id BIGINT UNSIGNED PRIMARY KEY, writer BIGINT UNSIGNED NOT NULL, \
         n BIGINT UNSIGNED NOT NULL) ENGINE=VINGA"
            .into(),
    ]
}

/// Fills the tables of accounts and lists; registers are not there at first.
///
/// # Panics
/// A statement fails.
pub fn fill(session: &mut RecordedSession<'_>) {
    let rows = |session: &mut RecordedSession<'_>, count: u64, balance: u64| -> Vec<(u64, Value)> {
        (0..count).map(|key| (key, Value { value: session.ids.value(), count: balance })).collect()
    };
    let accounts = rows(session, ACCOUNT_COUNT, BALANCE);
    let lists = rows(session, LIST_COUNT, 0);
    let texts = [
        accounts
            .iter()
            .map(|(key, row)| format!("({key}, {}, {})", row.value, row.count))
            .collect::<Vec<_>>(),
        lists.iter().map(|(key, row)| format!("({key}, '{:x}')", row.value)).collect(),
    ];
    for ((table, name), (rows, texts)) in
        [(ACCOUNTS, "accounts"), (LISTS, "lists")].into_iter().zip([accounts, lists].into_iter().zip(texts))
    {
        let insert =
            |&(key, row): &(u64, Value)| operation(table, OperationKind::Insert, key, Body::Row(row));
        let operations: Vec<Operation> = rows.iter().map(insert).collect();
        let done = vec![OperationResult::Done; operations.len()];
        let statement = format!("INSERT INTO {name} VALUES {}", texts.join(", "));
        session.run_alone(&statement, operations, |_| Ok(done)).expect("the tables are new");
    }
}

/// An operation as a statement does it.
fn operation(table: TableRef, kind: OperationKind, key: u64, body: Body) -> Operation {
    Operation {
        number: 0,
        kind,
        table,
        key,
        body,
        condition: None,
        // A statement that has changed no row leaves its transaction open.
        error_is_local: true,
        wait: LockWait::Default,
        selects: false,
    }
}

/// The only row that a statement has changed, or what it means that there was none.
fn changed(otherwise: ErrorCode) -> impl Fn(&Answer) -> Results {
    move |answer| match answer.affected {
        0 => Ok(vec![OperationResult::Failed(otherwise)]),
        1 => Ok(vec![OperationResult::Done]),
        more => Err(format!("one key, and {more} rows were changed")),
    }
}

/// The numbers of a row.
fn numbers<const N: usize>(row: &[String]) -> Result<[u64; N], String> {
    let numbers: Option<Vec<u64>> = row.iter().map(|text| text.parse().ok()).collect();
    let numbers = numbers.and_then(|numbers| numbers.try_into().ok());
    numbers.ok_or_else(|| format!("{N} numbers are expected, not {row:?}"))
}

/// The writer and the number of one row, or that there is none.
///
/// # Errors
/// There are several rows, or other columns.
pub fn one_row(answer: &Answer) -> Results {
    match &answer.strings()[..] {
        [] => Ok(vec![OperationResult::Row(None)]),
        [row] => {
            let [value, count] = numbers(row)?;
            Ok(vec![OperationResult::Row(Some(Value { value, count }))])
        }
        rows => Err(format!("one key, and {} rows", rows.len())),
    }
}

/// The elements of a list.
///
/// # Errors
/// It is none.
pub fn elements(text: &str) -> Result<Vec<u64>, String> {
    let elements = text.split(',').map(|element| u64::from_str_radix(element, 16));
    elements.collect::<Result<_, _>>().map_err(|_| format!("this is no list: {text}"))
}

/// A list as a row of histories: the last element with its position.
pub fn row_of_list(elements: &[u64]) -> Option<Value> {
    elements.last().map(|&value| Value { value, count: elements.len() as u64 - 1 })
}

/// Something that one session does again and again.
pub trait Load: Send {
    /// Does it once. Returns whether it went well.
    fn work(&mut self) -> bool;
}

/// Transfers money, and reads all accounts.
pub struct Teller<'a> {
    session: RecordedSession<'a>,
    random: fastrand::Rng,
}

impl<'a> Teller<'a> {
    /// By this session.
    pub fn new(session: RecordedSession<'a>, random: fastrand::Rng) -> Self {
        Teller { session, random }
    }

    fn balance(&mut self, account: u64) -> Option<u64> {
        let statement = format!("SELECT writer, balance FROM accounts WHERE id = {account} FOR UPDATE");
        let read = operation(ACCOUNTS, OperationKind::ReadExclusive, account, Body::None);
        match self.session.run(&statement, vec![read], one_row)?[..] {
            [OperationResult::Row(Some(row))] => Some(row.count),
            _ => None,
        }
    }

    fn write(&mut self, account: u64, balance: u64) -> Option<()> {
        let value = self.session.ids.value();
        let statement =
            format!("UPDATE accounts SET writer = {value}, balance = {balance} WHERE id = {account}");
        let row = Body::Row(Value { value, count: balance });
        let write = operation(ACCOUNTS, OperationKind::Write, account, row);
        self.session.run(&statement, vec![write], changed(ErrorCode::NoSuchRow)).map(drop)
    }

    /// Reads both accounts, then writes both.
    fn transfer(&mut self, from: u64, to: u64, amount: u64) -> Option<()> {
        let (before_from, before_to) = (self.balance(from)?, self.balance(to)?);
        let amount = amount.min(before_from);
        self.write(from, before_from - amount)?;
        self.write(to, before_to + amount)
    }

    /// Changes both accounts without reading them. Returns whether there was enough in the first one.
    fn transfer_blindly(&mut self, from: u64, to: u64, amount: u64) -> Option<bool> {
        let value = self.session.ids.value();
        let take = format!(
            "UPDATE accounts SET writer = {value}, balance = balance - {amount} \
             WHERE id = {from} AND balance >= {amount}"
        );
        let change = Change { set: Some(value), subtract: amount, ..Change::default() };
        let mut taking = operation(ACCOUNTS, OperationKind::Update, from, Body::Change(change));
        taking.condition = Some(Condition::CountAtLeast(amount));
        let taken = self.session.run(&take, vec![taking], changed(ErrorCode::ConditionFailed))?;
        if taken != [OperationResult::Done] {
            return Some(false);
        }
        let value = self.session.ids.value();
        let give =
            format!("UPDATE accounts SET writer = {value}, balance = balance + {amount} WHERE id = {to}");
        let change = Change { set: Some(value), add: amount, ..Change::default() };
        let change = operation(ACCOUNTS, OperationKind::Update, to, Body::Change(change));
        self.session.run(&give, vec![change], changed(ErrorCode::NoSuchRow))?;
        Some(true)
    }

    /// Reads all accounts.
    fn audit(&mut self) -> Option<()> {
        let read = |key| operation(ACCOUNTS, OperationKind::ReadShared, key, Body::None);
        let all = |answer: &Answer| {
            let mut found = BTreeMap::new();
            for row in answer.strings() {
                let [id, value, count] = numbers(&row)?;
                found.insert(id, Value { value, count });
            }
            let result = |key| OperationResult::Row(found.get(&key).copied());
            Ok((0..ACCOUNT_COUNT).map(result).collect())
        };
        let statement = "SELECT id, writer, balance FROM accounts LOCK IN SHARE MODE";
        self.session.run(statement, (0..ACCOUNT_COUNT).map(read).collect(), all).map(drop)
    }
}

impl Load for Teller<'_> {
    fn work(&mut self) -> bool {
        let amount = self.random.u64(1..200);
        let mut accounts = [0; 2].map(|_| self.random.u64(..ACCOUNT_COUNT));
        if accounts[0] == accounts[1] {
            accounts[1] = (accounts[0] + 1) % ACCOUNT_COUNT;
        }
        // Mostly in one order, so that there are deadlocks, but not only deadlocks.
        if self.random.u8(..10) != 0 {
            accounts.sort_unstable();
        }
        let [from, to] = accounts;
        if !self.session.begin() {
            return false;
        }
        let goes_on = match self.random.u8(..6) {
            0 => self.audit().map(|()| true),
            1..3 => self.transfer_blindly(from, to, amount),
            _ => self.transfer(from, to, amount).map(|()| self.random.u8(..8) != 0),
        };
        match goes_on {
            Some(true) => self.session.commit(),
            Some(false) => {
                self.session.roll_back();
                true
            }
            None => false,
        }
    }
}

/// Appends to lists, and reads them.
pub struct Appender<'a> {
    session: RecordedSession<'a>,
    random: fastrand::Rng,
    /// Appends so far.
    appends: u64,
    /// What the open transaction has appended to each list.
    own: BTreeMap<u64, Vec<u64>>,
}

impl<'a> Appender<'a> {
    /// By this session.
    pub fn new(session: RecordedSession<'a>, random: fastrand::Rng) -> Self {
        Appender { session, random, appends: 0, own: BTreeMap::new() }
    }

    fn list(&mut self) -> u64 {
        let turn = self.appends / APPENDS_EACH * LISTS_AT_A_TIME % LIST_COUNT;
        turn + self.random.u64(..LISTS_AT_A_TIME)
    }

    fn append(&mut self, list: u64) -> Option<()> {
        self.appends += 1;
        let value = self.session.ids.value();
        let statement =
            format!("UPDATE lists SET elements = CONCAT(elements, ',{value:x}') WHERE id = {list}");
        let change = Change { set: Some(value), add: 1, ..Change::default() };
        let change = operation(LISTS, OperationKind::Update, list, Body::Change(change));
        self.session.run(&statement, vec![change], changed(ErrorCode::NoSuchRow))?;
        self.own.entry(list).or_default().push(value);
        Some(())
    }

    fn read(&mut self, list: u64) -> Option<()> {
        let (lock, kind) = match self.random.u8(..4) {
            0 => ("FOR UPDATE", OperationKind::ReadExclusive),
            _ => ("LOCK IN SHARE MODE", OperationKind::ReadShared),
        };
        let statement = format!("SELECT elements FROM lists WHERE id = {list} {lock}");
        let mut seen = Vec::new();
        let read = operation(LISTS, kind, list, Body::None);
        self.session.run(&statement, vec![read], |answer| see_list(answer, &mut seen))?;
        // What others may not see yet is no part of it.
        let own = self.own.get(&list).map_or(&[][..], Vec::as_slice);
        match seen.strip_suffix(own) {
            Some(others) => self.session.note_list(list, others.to_vec()),
            None => {
                let what =
                    format!("list {list} is {seen:x?} for a transaction that has appended {own:x?} to it");
                self.session.recorder().record().violations.push(what);
            }
        }
        Some(())
    }

    /// Reads a list without a lock.
    fn look(&mut self, list: u64) -> bool {
        let statement = format!("SELECT elements FROM lists WHERE id = {list}");
        let mut seen = Vec::new();
        let read = self.session.read(&statement, LISTS, list, |answer| see_list(answer, &mut seen));
        if read.is_some() {
            self.session.note_list(list, seen);
        }
        read.is_some()
    }

    fn transaction(&mut self) -> Option<()> {
        let appends = self.random.u8(..4) > 0;
        for _ in 0..self.random.usize(2..5) {
            let list = self.list();
            if !appends || self.random.bool() {
                self.read(list)?;
            } else {
                self.append(list)?;
                if self.random.u8(..3) == 0 {
                    self.read(list)?;
                }
            }
        }
        Some(())
    }
}

/// The row of a list, whose elements are `seen`.
fn see_list(answer: &Answer, seen: &mut Vec<u64>) -> Results {
    match &answer.strings()[..] {
        [row] => *seen = elements(&row[0])?,
        rows => return Err(format!("a list, and {} rows", rows.len())),
    }
    Ok(vec![OperationResult::Row(row_of_list(seen))])
}

impl Load for Appender<'_> {
    fn work(&mut self) -> bool {
        self.own.clear();
        if self.random.u8(..10) == 0 {
            let list = self.list();
            return self.look(list);
        }
        if !self.session.begin() || self.transaction().is_none() {
            return false;
        }
        if self.random.u8(..12) == 0 {
            self.session.roll_back();
            return true;
        }
        self.session.commit()
    }
}

/// Reads and writes registers, each by a statement with autocommit.
pub struct Registrar<'a> {
    session: RecordedSession<'a>,
    random: fastrand::Rng,
}

impl<'a> Registrar<'a> {
    /// By this session.
    pub fn new(session: RecordedSession<'a>, random: fastrand::Rng) -> Self {
        Registrar { session, random }
    }
}

impl Load for Registrar<'_> {
    fn work(&mut self) -> bool {
        let (key, n) = (self.random.u64(..REGISTER_COUNT), self.random.u64(..10));
        let kind = self.random.u8(..10);
        if kind < 4 {
            let statement = format!("SELECT writer, n FROM registers WHERE id = {key}");
            return self.session.read(&statement, REGISTERS, key, one_row).is_some();
        }
        let value = self.session.ids.value();
        let row = Body::Row(Value { value, count: n });
        let change = Body::Change(Change { set: Some(value), add: 1, ..Change::default() });
        let (statement, kind, body) = match kind {
            4..6 => (
                format!("UPDATE registers SET writer = {value}, n = n + 1 WHERE id = {key}"),
                OperationKind::Update,
                change,
            ),
            6..8 => {
                (format!("REPLACE INTO registers VALUES ({key}, {value}, {n})"), OperationKind::Write, row)
            }
            8 => (format!("INSERT INTO registers VALUES ({key}, {value}, {n})"), OperationKind::Insert, row),
            _ => (format!("DELETE FROM registers WHERE id = {key}"), OperationKind::Delete, Body::None),
        };
        let results = move |answer: &Answer| match kind {
            // The row before and the one after.
            OperationKind::Write if answer.affected == 2 => Ok(vec![OperationResult::Done]),
            _ => changed(ErrorCode::NoSuchRow)(answer),
        };
        let operation = operation(REGISTERS, kind, key, body);
        self.session.run_alone(&statement, vec![operation], results).is_some()
    }
}
