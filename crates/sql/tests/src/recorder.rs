//! What SQL clients ask and are answered, written down as the checks of `vinga_workloads` read it: statements by rows,
//! and transactions, each with the times of question and answer by one clock.
//!
//! A [`RecordedSession`] runs the statements. Its caller says what each of them does to which rows, and reads the rows
//! of the answer; what errors say about the fate of a transaction is read here, as `docs/sql.md` has it. In the end
//! [`Recording::check`] decides whether any cluster that keeps its promises could have answered so.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;
use vinga::ErrorCode;
use vinga_base::Epoch;
use vinga_sqlnode::{Answer, SqlError};
use vinga_workloads::check::{self, Summary};
use vinga_workloads::history::{Event, History, KeyRead, OperationResult, RowName, Time, Transaction};
use vinga_workloads::step::{Fate, Operation, TableRef};
use vinga_workloads::workload::{Contents, Ids, Workload};

/// The version of each table: none is changed.
pub const VERSION: u64 = 1;
/// SQL clients do not get to know the epochs of their transactions.
const EPOCH: Epoch = Epoch(0);
/// How long an operation that was refused by a lock time-out must have found its row held, in microseconds: at all.
const LOCK_TIMEOUT: Time = 1;

const NO_PANIC: &str = "nothing panics while it holds the record";

/// A list as somebody has seen it, without what its own transaction has appended.
#[derive(Clone, Debug)]
pub struct SeenList {
    /// The row.
    pub list: u64,
    /// The elements, from the first one on.
    pub elements: Vec<u64>,
    /// When the answer came.
    pub at: Time,
}

/// A statement outside of transactions that has failed.
#[derive(Clone, Debug)]
pub struct FailedAlone {
    /// The session.
    pub session: u32,
    /// Whether it was to change something.
    pub changes: bool,
    /// When it was sent.
    pub sent: Time,
    /// When its error came.
    pub answered: Time,
    /// The statement and its error.
    pub what: String,
}

/// All that was written down.
#[derive(Clone, Default)]
pub struct Record {
    /// What the checks of the simulator read.
    pub history: History,
    /// What was seen of lists.
    pub lists: Vec<SeenList>,
    /// Statements with autocommit that have failed, but for duplicate keys.
    pub failures: Vec<FailedAlone>,
    /// What no answer may be, whatever happens to data nodes.
    pub violations: Vec<String>,
}

/// See the head of this file.
pub struct Recorder {
    begun: Instant,
    record: Mutex<Record>,
}

impl Recorder {
    /// Nothing is written down yet. The rows of these tables are lists.
    pub fn new(lists: impl IntoIterator<Item = TableRef>) -> Self {
        let history = History { lists: lists.into_iter().collect(), ..History::default() };
        let record = Record { history, ..Record::default() };
        Recorder { begun: Instant::now(), record: Mutex::new(record) }
    }

    /// Microseconds since the beginning. One clock for all: what ended before something else began has the smaller
    /// number, or the same.
    pub fn now(&self) -> Time {
        self.begun.elapsed().as_micros() as Time
    }

    /// What was written down so far.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().expect(NO_PANIC)
    }

    /// The end: these rows are left, and lists with these elements. `end` is when all sessions had ended, and what they
    /// had left in doubt was decided.
    pub fn finish(self, end: Time, contents: Contents, lists: BTreeMap<u64, Vec<u64>>) -> Recording {
        Recording { record: self.record.into_inner().expect(NO_PANIC), contents, lists, end }
    }
}

/// A run that is over.
#[derive(Clone)]
pub struct Recording {
    /// What was written down.
    pub record: Record,
    /// The rows that are left.
    pub contents: Contents,
    /// The elements of the lists that are left.
    pub lists: BTreeMap<u64, Vec<u64>>,
    /// When what had been in doubt was decided.
    pub end: Time,
}

impl Recording {
    /// Whether a cluster that keeps its promises could have answered so, and have left these rows.
    ///
    /// # Errors
    /// The first thing that can't be true.
    pub fn check(&self, workloads: &[&dyn Workload]) -> Result<Summary, String> {
        if let Some(what) = self.record.violations.first() {
            return Err(what.clone());
        }
        let summary = check::check(&self.record.history, &self.contents, self.end, LOCK_TIMEOUT)?;
        self.check_lists()?;
        for workload in workloads {
            workload.check(&self.contents, &self.record.history)?;
        }
        Ok(summary)
    }

    /// Lists only grow: what anybody has seen of one is its beginning at the end.
    fn check_lists(&self) -> Result<(), String> {
        let none = Vec::new();
        for SeenList { list, elements, at } in &self.record.lists {
            let left = self.lists.get(list).unwrap_or(&none);
            if !left.starts_with(elements) {
                return Err(format!("list {list} at {at} was {elements:x?}, and in the end it is {left:x?}"));
            }
        }
        Ok(())
    }

    /// Whether statements with autocommit have failed only as far as they may when a data node is lost: those that
    /// change something and were under way when their SQL node noticed that. A session has one of these at a time, and
    /// knows nothing of any loss before `struck`.
    ///
    /// # Errors
    /// A statement that was not to fail.
    pub fn check_failures(&self, struck: Time) -> Result<(), String> {
        let mut failed: BTreeMap<u32, &FailedAlone> = BTreeMap::new();
        for failure in &self.record.failures {
            let FailedAlone { session, changes, sent, answered, what } = failure;
            let when = format!("session {session}, from {sent} to {answered}: {what}");
            if !changes {
                return Err(format!("a read has failed: {when}"));
            }
            if *answered < struck {
                return Err(format!("nothing was lost yet at {struck}: {when}"));
            }
            if let Some(first) = failed.insert(*session, failure) {
                return Err(format!("not the first one since {}: {when}", first.what));
            }
        }
        Ok(())
    }
}

/// What runs the statements of a session.
pub type Ask<'a> = Box<dyn FnMut(&str) -> Result<Answer, SqlError> + Send + 'a>;

/// A session at a SQL node all of whose statements are written down.
pub struct RecordedSession<'a> {
    recorder: &'a Recorder,
    /// Its number, and numbers for the rows that it writes.
    pub ids: Ids,
    ask: Ask<'a>,
    /// The place of its open transaction in the history.
    open: Option<usize>,
    /// The newest operation of the transaction.
    number: u32,
}

/// The results of the operations of a statement.
pub type Results = Result<Vec<OperationResult>, String>;

impl<'a> RecordedSession<'a> {
    /// A session with this number, unique in a run.
    pub fn new(recorder: &'a Recorder, number: u32, ask: Ask<'a>) -> Self {
        RecordedSession { recorder, ids: Ids::new(number, TableRef(0)), ask, open: None, number: 0 }
    }

    /// Where it is written down.
    pub fn recorder(&self) -> &'a Recorder {
        self.recorder
    }

    /// Begins a transaction. Returns whether it has.
    pub fn begin(&mut self) -> bool {
        if let Err(error) = (self.ask)("BEGIN") {
            self.note_error("BEGIN", &error);
            return false;
        }
        self.open = Some(self.add_transaction());
        true
    }

    fn add_transaction(&mut self) -> usize {
        self.number = 0;
        let mut record = self.recorder.record();
        let transactions = &mut record.history.transactions;
        let id = transactions.len() as u64 + 1;
        transactions.push(Transaction { id, ..Transaction::begin(self.ids.session) });
        transactions.len() - 1
    }

    /// Runs a statement of the open transaction, which does these operations; `results` reads what became of them from
    /// its answer. `None` if it has failed: the transaction is rolled back then.
    ///
    /// # Panics
    /// No transaction is open.
    pub fn run(
        &mut self,
        statement: &str,
        operations: Vec<Operation>,
        results: impl FnOnce(&Answer) -> Results,
    ) -> Option<Vec<OperationResult>> {
        let transaction = self.open.expect("it was begun");
        let places = self.send(transaction, operations, false);
        let answer = (self.ask)(statement);
        let now = self.recorder.now();
        match answer {
            Ok(answer) => Some(self.note_results(transaction, &places, now, statement, results(&answer))),
            Err(error) => {
                self.note_error(statement, &error);
                let code = match error.number() {
                    Some(1205) => Some(ErrorCode::LockTimeout),
                    Some(1213) => Some(ErrorCode::Deadlock),
                    _ => None,
                };
                if let (Some(code), [_]) = (code, &places[..]) {
                    self.note(transaction, &places, now, &[OperationResult::Failed(code)]);
                }
                self.give_up();
                None
            }
        }
    }

    /// Commits. Returns whether it is known to be committed.
    pub fn commit(&mut self) -> bool {
        let Some(transaction) = self.open.take() else { return false };
        self.recorder.record().history.transactions[transaction].commit_sent = Some(self.recorder.now());
        let answer = (self.ask)("COMMIT");
        if let Err(error) = &answer {
            self.note_error("COMMIT", error);
        }
        self.end(transaction, fate_of_commit(answer.as_ref().err()));
        answer.is_ok()
    }

    /// Rolls back: that is asked for.
    pub fn roll_back(&mut self) {
        let Some(transaction) = self.open.take() else { return };
        let answer = (self.ask)("ROLLBACK");
        let error = answer.err().map(|_| ErrorCode::TransactionAborted);
        self.end(transaction, Fate::RolledBack { error, operation: 0 });
    }

    /// The transaction has met an error. Data nodes may roll it back while the client is answered.
    fn give_up(&mut self) {
        let Some(transaction) = self.open.take() else { return };
        let _ = (self.ask)("ROLLBACK");
        self.end(transaction, rolled_back());
    }

    /// Runs a statement with autocommit that changes something: a transaction of its own. `None` if it has failed.
    pub fn run_alone(
        &mut self,
        statement: &str,
        operations: Vec<Operation>,
        results: impl FnOnce(&Answer) -> Results,
    ) -> Option<Vec<OperationResult>> {
        let transaction = self.add_transaction();
        let places = self.send(transaction, operations, true);
        let sent = self.recorder.now();
        let answer = (self.ask)(statement);
        let now = self.recorder.now();
        match answer {
            Ok(answer) => {
                let results = self.note_results(transaction, &places, now, statement, results(&answer));
                self.end(transaction, Fate::Committed(EPOCH));
                Some(results)
            }
            Err(error) if error.number() == Some(1062) => {
                let code = ErrorCode::DuplicateKey;
                self.note(transaction, &places, now, &[OperationResult::Failed(code)]);
                self.end(transaction, Fate::RolledBack { error: Some(code), operation: 1 });
                Some(vec![OperationResult::Failed(code)])
            }
            Err(error) => {
                self.note_error(statement, &error);
                self.end(transaction, fate_of_commit(Some(&error)));
                self.note_failure(statement, &error, true, sent);
                None
            }
        }
    }

    /// Reads a row with autocommit and without a lock; `row` reads it from the answer. `None` if that has failed.
    pub fn read(
        &mut self,
        statement: &str,
        table: TableRef,
        key: u64,
        row: impl FnOnce(&Answer) -> Results,
    ) -> Option<OperationResult> {
        let sent = self.recorder.now();
        let answer = (self.ask)(statement);
        let answered = self.recorder.now();
        match answer {
            Ok(answer) => match row(&answer).as_deref() {
                Ok(&[OperationResult::Row(seen)]) => {
                    let row = RowName { table, version: VERSION, key };
                    let read = KeyRead { row, sent, answered, condition: None, seen, backup: None };
                    self.recorder.record().history.reads.push(read);
                    Some(OperationResult::Row(seen))
                }
                other => {
                    self.violate(format!("{statement} was answered {other:?}"));
                    None
                }
            },
            Err(error) => {
                self.note_error(statement, &error);
                self.note_failure(statement, &error, false, sent);
                None
            }
        }
    }

    /// Notes which elements of a list were seen.
    pub fn note_list(&self, list: u64, elements: Vec<u64>) {
        let at = self.recorder.now();
        self.recorder.record().lists.push(SeenList { list, elements, at });
    }

    /// Numbers operations and writes down that they are sent; returns their places. `is_last`: the commit is sent with
    /// them.
    fn send(&mut self, transaction: usize, operations: Vec<Operation>, is_last: bool) -> Vec<usize> {
        let mut record = self.recorder.record();
        let now = self.recorder.now();
        let transaction = &mut record.history.transactions[transaction];
        if is_last {
            transaction.commit_sent = Some(now);
        }
        let mut places = Vec::new();
        for mut operation in operations {
            self.number += 1;
            operation.number = self.number;
            places.push(transaction.send(&operation, VERSION, now));
        }
        places
    }

    fn note(&self, transaction: usize, places: &[usize], now: Time, results: &[OperationResult]) {
        let mut record = self.recorder.record();
        let events = &mut record.history.transactions[transaction].events;
        for (&place, &result) in places.iter().zip(results) {
            if let Event::Operation(record) = &mut events[place] {
                (record.result, record.answered) = (result, Some(now));
            }
        }
    }

    /// Writes down what has become of the operations of a statement that was answered.
    fn note_results(
        &self,
        transaction: usize,
        places: &[usize],
        now: Time,
        statement: &str,
        results: Results,
    ) -> Vec<OperationResult> {
        let results = results.unwrap_or_else(|what| {
            self.violate(format!("{statement}: {what}"));
            Vec::new()
        });
        self.note(transaction, places, now, &results);
        results
    }

    fn end(&self, transaction: usize, fate: Fate) {
        let now = self.recorder.now();
        self.recorder.record().history.transactions[transaction].end(fate, now);
    }

    fn violate(&self, what: String) {
        self.recorder.record().violations.push(what);
    }

    /// Errors that the loss of a data node, or others at work, can't cause are never right.
    fn note_error(&self, statement: &str, error: &SqlError) {
        if !matches!(error.number(), Some(1205 | 1213 | 1296 | 1297)) {
            self.violate(format!("session {}: {statement}: {error}", self.ids.session));
        }
    }

    fn note_failure(&self, statement: &str, error: &SqlError, changes: bool, sent: Time) {
        let (session, answered) = (self.ids.session, self.recorder.now());
        let what = format!("{statement}: {error}");
        self.recorder.record().failures.push(FailedAlone { session, changes, sent, answered, what });
    }
}

/// A transaction that has met an error, or whose commit has.
fn rolled_back() -> Fate {
    Fate::RolledBack { error: Some(ErrorCode::TransactionAborted), operation: 0 }
}

/// What is known of a transaction whose commit was asked for, by the error of that.
fn fate_of_commit(error: Option<&SqlError>) -> Fate {
    match error {
        None => Fate::Committed(EPOCH),
        Some(SqlError::Lost(_)) => Fate::Unknown,
        Some(SqlError::Server { number: 1296, text, .. }) if says_unknown(text) => Fate::Unknown,
        Some(SqlError::Server { .. }) => rolled_back(),
    }
}

/// Whether the text of an error, `Got error 4012 '…' from VINGA`, has a number by which the outcome is not known.
fn says_unknown(text: &str) -> bool {
    let number = text.split(' ').find_map(|word| word.parse::<u16>().ok());
    [ErrorCode::UnknownOutcome, ErrorCode::ClusterRestarted, ErrorCode::NotOnDisk]
        .map(|code| Some(code as u16))
        .contains(&number)
}

#[cfg(test)]
mod tests;
