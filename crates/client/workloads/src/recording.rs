//! How a runner writes down what becomes of transactions, the same in a simulated cluster and in a real one.

use crate::history::{Event, OperationRecord, OperationResult, Time, Transaction};
use crate::shape::{Shape, Value};
use crate::step::{Answer, BatchAnswer, End, Fate, Operation};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::OperationNumber;
use vinga_wire::ErrorCode;

/// What has become of an operation, as the client says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A change that is done.
    Done,
    /// A read that gave this.
    Row(Option<Value>),
    /// Others have the row locked; it was read as it is committed.
    NotLocked(Option<Value>),
    /// It failed; and whether a unique index is to blame.
    Failed(ErrorCode, bool),
}

/// What has become of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BatchOutcome {
    /// How the transaction stands.
    pub fate: Fate,
    /// If it was rolled back because of an operation: whether a unique index is to blame.
    pub failed_in_index: bool,
    /// Operations that the client has refused, and why.
    pub refused: Vec<(u32, ErrorCode)>,
    /// The places of the operations among the events of the transaction, and what has become of each.
    pub outcomes: Vec<(usize, Outcome)>,
}

/// The numbers of a transaction's operations: clients number them by themselves.
#[derive(Clone, Default, Debug)]
pub struct Numbers {
    /// The session's numbers and the client's, ascending.
    list: Vec<(u32, OperationNumber)>,
}

impl Numbers {
    /// An operation that was defined.
    pub fn push(&mut self, number: u32, own: OperationNumber) {
        self.list.push((number, own));
    }

    /// The client's number of the first operation whose session's number is not below this one; `next`, the client's
    /// next number, if there is none.
    pub fn from(&self, number: u32, next: OperationNumber) -> OperationNumber {
        let at = self.list.partition_point(|&(of, _)| of < number);
        self.list.get(at).map_or(next, |&(_, own)| own)
    }

    /// The client's number of an operation.
    pub fn own(&self, number: u32) -> Option<OperationNumber> {
        let at = self.list.binary_search_by_key(&number, |&(of, _)| of).ok()?;
        Some(self.list[at].1)
    }

    /// The session's number of an operation; 0 if it is none of them.
    pub fn of(&self, own: OperationNumber) -> u32 {
        self.list.iter().find(|&&(_, of)| of == own).map_or(0, |&(number, _)| number)
    }

    /// The greatest of the session's numbers so far.
    pub fn newest(&self) -> u32 {
        self.list.last().map_or(0, |&(number, _)| number)
    }
}

impl Fate {
    /// A transaction whose batch has met this error, of which an operation may be to blame; 0 for none.
    pub fn failed(error: ErrorCode, operation: u32) -> Self {
        match error {
            ErrorCode::UnknownOutcome | ErrorCode::NotOnDisk => Fate::Unknown,
            error => Fate::RolledBack { error: Some(error), operation },
        }
    }

    /// Whether a batch may end like that. `is_given_up`: its commit was asked to be given up.
    ///
    /// # Errors
    /// It may not.
    pub fn check(self, id: u64, end: End, is_given_up: bool) -> Result<(), String> {
        let is_expected = match self {
            Fate::Open => end == End::Stay,
            Fate::Committed(_) | Fate::Unknown => end == End::Commit,
            Fate::RolledBack { error: None, .. } => end == End::Rollback || is_given_up,
            Fate::RolledBack { error: Some(_), .. } => true,
        };
        if !is_expected {
            return Err(format!("batch of {id:#x} that was to {end:?} ended {self:?}"));
        }
        match self {
            Fate::RolledBack { error: Some(ErrorCode::InternalError), .. } => {
                Err(format!("transaction {id:#x} met an internal error"))
            }
            _ => Ok(()),
        }
    }
}

impl Transaction {
    /// One that begins, of which nothing was sent yet.
    pub fn begin(session: u32) -> Self {
        Transaction { id: 0, session, events: Vec::new(), commit_sent: None, ended: None, fate: Fate::Open }
    }

    /// An operation is sent; returns its place among the events. `version` is the birth of its table.
    pub fn send(&mut self, operation: &Operation, version: u64, now: Time) -> usize {
        self.events.push(Event::Operation(OperationRecord {
            operation: operation.clone(),
            version,
            sent: now,
            answered: None,
            result: OperationResult::Unknown,
        }));
        self.events.len() - 1
    }

    /// The operation at this place among the events.
    ///
    /// # Panics
    /// Something else is there.
    pub fn operation(&self, place: usize) -> &OperationRecord {
        let Event::Operation(record) = &self.events[place] else { panic!("it was written there") };
        record
    }

    /// The client has begun it again, as another transaction with this id: what was before is a transaction that was
    /// rolled back, whose locks data nodes may hold for a while. It is returned. `at` is when that was, if it is known.
    pub fn begin_again(&mut self, id: u64, at: Option<Time>) -> Transaction {
        let fate = Fate::RolledBack { error: Some(ErrorCode::ConnectionLost), operation: 0 };
        let mut before = Transaction { ended: at, fate, ..self.clone() };
        self.id = id;
        for event in &mut before.events {
            // Nobody writes a value twice; what is left of a change is its lock.
            if let Event::Operation(before) = event
                && before.operation.kind.is_change()
            {
                before.operation.become_lock();
            }
        }
        let Some(at) = at else { return before };
        for event in &mut self.events {
            if let Event::Operation(record) = event {
                record.sent = at;
            }
        }
        if let Some(sent) = &mut self.commit_sent {
            *sent = at;
        }
        before
    }

    /// What is known of it if nobody waits for it any more.
    pub fn fate_if_abandoned(&self) -> Fate {
        match self.commit_sent {
            Some(_) => Fate::Unknown,
            None => Fate::RolledBack { error: Some(ErrorCode::TransactionAborted), operation: 0 },
        }
    }

    /// It has ended.
    pub fn end(&mut self, fate: Fate, now: Time) {
        (self.fate, self.ended) = (fate, Some(now));
    }

    /// A batch is over: writes down what is known of its operations, and gives what its session is answered.
    pub fn record(&mut self, batch: BatchOutcome, now: Time) -> BatchAnswer {
        let BatchOutcome { fate, failed_in_index, refused, outcomes } = batch;
        let mut answer = BatchAnswer { fate, rows: Vec::new(), errors: refused };
        for (place, outcome) in outcomes {
            let Event::Operation(record) = &mut self.events[place] else { panic!("it was written there") };
            if let Some(result) = result_of(&record.operation, fate, failed_in_index, outcome, &mut answer) {
                (record.result, record.answered) = (result, Some(now));
            }
        }
        answer
    }
}

/// What is known of an operation of a batch that is over; `None` if nothing is.
fn result_of(
    operation: &Operation,
    fate: Fate,
    failed_in_index: bool,
    outcome: Outcome,
    answer: &mut BatchAnswer,
) -> Option<OperationResult> {
    let number = operation.number;
    let is_blamed = matches!(fate, Fate::RolledBack { operation, .. } if operation == number);
    let outcome = match (fate, outcome) {
        (Fate::RolledBack { error: Some(code), .. }, _) if is_blamed => {
            Outcome::Failed(code, failed_in_index)
        }
        // It says why the transaction was rolled back, not what has become of this operation; and whether others had
        // the row locked comes with the answer to the whole batch.
        (Fate::RolledBack { .. } | Fate::Unknown, Outcome::Done | Outcome::Failed(..)) => return None,
        (Fate::RolledBack { .. } | Fate::Unknown, _) if operation.gives_committed() => return None,
        (_, outcome) => outcome,
    };
    match outcome {
        Outcome::Done => Some(OperationResult::Done),
        Outcome::Row(row) => {
            answer.rows.push((number, row));
            Some(OperationResult::Row(row))
        }
        Outcome::NotLocked(row) => {
            answer.rows.push((number, row));
            answer.errors.push((number, ErrorCode::RowLocked));
            Some(OperationResult::NotLocked(row))
        }
        Outcome::Failed(code, is_in_index) => {
            answer.errors.push((number, code));
            match code {
                // Its row was lost on the way, or the answer to the whole batch: what it has done is not known.
                ErrorCode::ConnectionLost | ErrorCode::UnknownOutcome | ErrorCode::NotOnDisk
                    if !is_blamed =>
                {
                    None
                }
                code if is_in_index => Some(OperationResult::FailedInIndex(code)),
                code => Some(OperationResult::Failed(code)),
            }
        }
    }
}

/// What the session is answered whose transaction is over.
pub fn rolled_back(error: Option<ErrorCode>, operation: u32) -> Answer {
    let fate = Fate::RolledBack { error, operation };
    Answer::Executed(BatchAnswer { fate, rows: Vec::new(), errors: Vec::new() })
}

/// The row that a read by key gave.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn look_at_row(
    shape: &Shape,
    selects: bool,
    key: u64,
    row: Option<&[u8]>,
) -> Result<Option<Value>, String> {
    let Some(bytes) = row else { return Ok(None) };
    match shape.read(selects, bytes)? {
        (of, value) if of == key => Ok(Some(value)),
        (of, _) => Err(format!("a read of row {key} gave row {of}")),
    }
}
