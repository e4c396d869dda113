//! Transactions.

use crate::api::caller::{Caller, Surroundings};
use vinga_base::OperationNumber;
use vinga_client_core::{BatchEnd, Error, OperationBatch as ClientBatch, OperationSpec, Standing, Token};
use vinga_wire::ErrorCode;
use vinga_wire::operation::{LockWait, OperationKind};
use vinga_workloads::history::{Event, OperationRecord, OperationResult, Transaction};
use vinga_workloads::shape::{Shape, Value};
use vinga_workloads::step::{Answer, BatchAnswer, Body, End, Fate, Operation, OperationBatch};

/// A transaction that has begun.
pub struct OpenTransaction {
    token: Token,
    /// Its place in the history.
    index: usize,
    /// The client numbers operations itself: the session's numbers and the client's, ascending.
    numbers: Vec<(u32, OperationNumber)>,
    /// The client's next number.
    next: OperationNumber,
    /// The client's batch, while none is under way.
    batch: Option<ClientBatch>,
    under_way: Option<UnderWay>,
    /// Its commit waits for the disk.
    is_durable: bool,
}

/// A batch under way.
struct UnderWay {
    end: End,
    sent: Vec<Sent>,
    /// Operations that the client has refused, and why.
    refused: Vec<(u32, ErrorCode)>,
    /// It was given up: the transaction is to be rolled back, if it is not too late.
    is_given_up: bool,
}

/// An operation of it.
struct Sent {
    number: u32,
    /// The client's number.
    own: OperationNumber,
    /// Its place in the events of the transaction.
    place: usize,
    /// The version of the table that it names.
    version: u64,
}

impl OpenTransaction {
    pub fn token(&self) -> Token {
        self.token
    }

    pub fn index(&self) -> usize {
        self.index
    }

    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// The client's number of the first operation whose session's number is not below this one.
    pub fn number_from(&self, number: u32) -> OperationNumber {
        let at = self.numbers.partition_point(|&(of, _)| of < number);
        self.numbers.get(at).map_or(self.next, |&(_, own)| own)
    }

    fn own(&self, number: u32) -> Option<OperationNumber> {
        let at = self.numbers.binary_search_by_key(&number, |&(of, _)| of).ok()?;
        Some(self.numbers[at].1)
    }

    /// The session's number of an operation.
    fn number_of(&self, own: OperationNumber) -> u32 {
        self.numbers.iter().find(|&&(_, of)| of == own).map_or(0, |&(number, _)| number)
    }
}

impl Caller {
    pub(super) fn send_batch(&mut self, cx: &mut Surroundings<'_>, session: usize, batch: &OperationBatch) {
        if batch.begin {
            // A session may have left another one open.
            self.abandon_transaction(cx, session);
            if let Err(error) = self.begin_transaction(cx, session) {
                self.answers.push_back((session, rolled_back(Some(error.code()), 0)));
                return;
            }
        }
        let Some(transaction) = &mut self.sessions[session].transaction else {
            // It has ended since the last batch.
            self.answers.push_back((session, rolled_back(Some(ErrorCode::ConnectionLost), 0)));
            return;
        };
        let mut client_batch = transaction.batch.take().expect("one batch is under way at a time");
        client_batch.clear();
        let unknown = batch.operations.iter().find(|operation| !self.tables.contains_key(&operation.table));
        if let Some(operation) = unknown {
            let number = operation.number;
            self.client.cancel(transaction.token);
            let fate = Fate::RolledBack { error: Some(ErrorCode::NoSuchTable), operation: number };
            self.end_transaction(cx, session, fate);
            self.answers.push_back((session, rolled_back(Some(ErrorCode::NoSuchTable), number)));
            return;
        }
        let record = &mut cx.history.transactions[transaction.index];
        if batch.end == End::Commit {
            record.commit_sent = Some(cx.now);
        }
        if let Some(from) = batch.rollback_to {
            record.events.push(Event::RollbackTo(from));
            client_batch.roll_back_to(transaction.number_from(from));
        }
        self.push_operations(cx, session, batch, client_batch);
    }

    fn push_operations(
        &mut self,
        cx: &mut Surroundings<'_>,
        session: usize,
        batch: &OperationBatch,
        mut client_batch: ClientBatch,
    ) {
        let transaction = self.sessions[session].transaction.as_mut().expect("the caller has it");
        let (mut sent, mut refused) = (Vec::new(), Vec::new());
        for operation in &batch.operations {
            let table = &self.tables[&operation.table];
            let shape = cx.shape(operation.table);
            let pushed = match operation.body {
                Body::Unlock(read) => push_unlock(&mut client_batch, transaction.own(read)),
                Body::None | Body::Row(_) | Body::Change(_) => {
                    let is_row = matches!(operation.body, Body::Row(_));
                    let key = if is_row { Vec::new() } else { shape.key(operation.key) };
                    client_batch.push(&OperationSpec {
                        table,
                        kind: operation.kind,
                        key: &key,
                        body: &shape.body(operation.key, &operation.body),
                        columns: operation.selects.then(|| shape.selection()),
                        filter: &shape.filter(operation.condition.as_ref()),
                        error_is_local: operation.error_is_local,
                        wait: operation.wait,
                    })
                }
            };
            let own = match pushed {
                Ok(own) => own,
                Err(error) => {
                    if operation.kind != OperationKind::Unlock {
                        cx.violations.push(format!("the client refuses {operation:?}: {error}"));
                    }
                    refused.push((operation.number, error.code()));
                    continue;
                }
            };
            transaction.numbers.push((operation.number, own));
            let record = &mut cx.history.transactions[transaction.index];
            let (place, version) = (record.events.len(), table.version().0);
            sent.push(Sent { number: operation.number, own, place, version });
            record.events.push(Event::Operation(OperationRecord {
                operation: operation.clone(),
                version: cx.changes.rows_of(table.birth().0),
                sent: cx.now,
                answered: None,
                result: OperationResult::Unknown,
            }));
        }
        transaction.next = client_batch.next_number();
        let end = match batch.end {
            End::Stay => BatchEnd::Open,
            End::Commit => BatchEnd::Commit,
            End::Rollback => BatchEnd::RollBack,
        };
        transaction.under_way = Some(UnderWay { end: batch.end, sent, refused, is_given_up: false });
        self.client.send(transaction.token, client_batch, end);
        if let Some(id) = self.client.transaction_id(transaction.token) {
            cx.history.transactions[transaction.index].id = id.0;
        }
    }

    fn begin_transaction(&mut self, cx: &mut Surroundings<'_>, session: usize) -> Result<(), Error> {
        let token = self.client.begin()?;
        let index = cx.history.transactions.len();
        cx.history.transactions.push(Transaction {
            id: 0,
            session: u32::from(self.node.0) << 16 | session as u32,
            events: Vec::new(),
            commit_sent: None,
            ended: None,
            fate: Fate::Open,
        });
        let is_durable = cx.acknowledged.is_some() && self.random.u8(..4) == 0;
        if is_durable {
            self.client.set_durable(token, true);
        }
        let batch = ClientBatch::default();
        self.sessions[session].transaction = Some(OpenTransaction {
            token,
            index,
            numbers: Vec::new(),
            next: batch.next_number(),
            batch: Some(batch),
            under_way: None,
            is_durable,
        });
        Ok(())
    }

    /// The client may have begun transactions again whose first batches are under way: they have other ids then. What
    /// was before is a transaction that was rolled back, whose locks data nodes may hold for a while.
    pub(super) fn note_ids(&self, cx: &mut Surroundings<'_>) {
        for transaction in self.sessions.iter().filter_map(|session| session.transaction.as_ref()) {
            let Some(id) = self.client.transaction_id(transaction.token) else { continue };
            let record = &mut cx.history.transactions[transaction.index];
            let before = std::mem::replace(&mut record.id, id.0);
            if before == 0 || before == id.0 {
                continue;
            }
            let fate = Fate::RolledBack { error: Some(ErrorCode::ConnectionLost), operation: 0 };
            let mut given_up = Transaction { id: before, ended: Some(cx.now), fate, ..record.clone() };
            for (event, before) in record.events.iter_mut().zip(&mut given_up.events) {
                if let (Event::Operation(record), Event::Operation(before)) = (event, before) {
                    record.sent = cx.now;
                    // Nobody writes a value twice; what is left of a change is its lock.
                    if before.operation.kind.is_change() {
                        before.operation.kind = OperationKind::ReadExclusive;
                        (before.operation.body, before.operation.condition) = (Body::None, None);
                    }
                }
            }
            if let Some(at) = &mut record.commit_sent {
                *at = cx.now;
            }
            cx.mark("client begins a transaction again");
            cx.history.transactions.push(given_up);
        }
    }

    /// The sessions give up what they have under way: a commit is stopped, what else waits is rolled back.
    pub fn give_up_batches(&mut self, cx: &mut Surroundings<'_>) {
        for session in 0..self.sessions.len() {
            let Some(transaction) = &mut self.sessions[session].transaction else { continue };
            let Some(under_way) = &mut transaction.under_way else { continue };
            match under_way.end {
                End::Commit => {
                    under_way.is_given_up = true;
                    self.client.stop_commit(transaction.token);
                }
                End::Stay => {
                    self.abandon_transaction(cx, session);
                    self.answers.push_back((session, rolled_back(None, 0)));
                }
                End::Rollback => {}
            }
        }
    }

    /// A session wants nothing more of its transaction, if it has one. What was not to be committed is rolled back.
    pub(super) fn abandon_transaction(&mut self, cx: &mut Surroundings<'_>, session: usize) {
        let Some(transaction) = &self.sessions[session].transaction else { return };
        self.client.cancel(transaction.token);
        let fate = match cx.history.transactions[transaction.index].commit_sent {
            Some(_) => Fate::Unknown,
            None => Fate::RolledBack { error: Some(ErrorCode::TransactionAborted), operation: 0 },
        };
        self.end_transaction(cx, session, fate);
    }

    pub(super) fn end_transaction(&mut self, cx: &mut Surroundings<'_>, session: usize, fate: Fate) {
        let transaction = self.sessions[session].transaction.take().expect("the caller has it");
        let record = &mut cx.history.transactions[transaction.index];
        (record.fate, record.ended) = (fate, Some(cx.now));
        if let (Fate::Committed(epoch), true, Some(acknowledged)) = (
            fate,
            transaction.is_durable && has_changed(record) || changes_durable_table(cx.shapes, record),
            &mut cx.acknowledged,
        ) {
            **acknowledged = epoch.max(**acknowledged);
        }
    }

    pub(super) fn on_batch_over(&mut self, cx: &mut Surroundings<'_>, token: Token) {
        let is_it = |transaction: &OpenTransaction| transaction.token == token;
        let found = self.sessions.iter().position(|s| s.transaction.as_ref().is_some_and(is_it));
        let Some(session) = found else { return };
        let Some(batch) = self.client.take_operations(token) else { return };
        let transaction = self.sessions[session].transaction.as_mut().expect("found just now");
        let under_way = transaction.under_way.take().expect("a batch was sent");
        let (mut fate, failed_index) = fate_of(transaction, &batch);
        if let Fate::RolledBack { error: None, operation: 0 } = fate {
            // It may have been rolled back before that was asked for.
            fate = Fate::RolledBack { error: self.client.rollback_cause(token), operation: 0 };
        }
        check_fate(cx, transaction, &under_way, fate);
        let (mut rows, mut errors) = (Vec::new(), under_way.refused);
        for sent in &under_way.sent {
            let answer = answer_to(cx, transaction, sent, &batch);
            let record = &mut cx.history.transactions[transaction.index];
            let Event::Operation(record) = &mut record.events[sent.place] else {
                unreachable!("it was written there")
            };
            let is_blamed = matches!(fate, Fate::RolledBack { operation, .. } if operation == sent.number);
            let answer = match (fate, answer) {
                (Fate::RolledBack { error: Some(code), .. }, _) if is_blamed => {
                    OpAnswer::Failed(code, failed_index.is_some())
                }
                // It says why the transaction was rolled back, not what has become of this operation; and whether
                // others had the row locked comes with the answer to the whole batch.
                (Fate::RolledBack { .. } | Fate::Unknown, OpAnswer::Done | OpAnswer::Failed(..)) => continue,
                (Fate::RolledBack { .. } | Fate::Unknown, _) if gives_committed(&record.operation) => {
                    continue;
                }
                (_, answer) => answer,
            };
            let has_ended_well = !matches!(fate, Fate::RolledBack { .. } | Fate::Unknown);
            if has_ended_well && !matches!(answer, OpAnswer::Failed(..)) {
                let done = cx.changes.check(record.operation.table, sent.version, record.sent);
                cx.violations.extend(done.err());
            }
            match answer {
                OpAnswer::Done => record.result = OperationResult::Done,
                OpAnswer::Row(row) => {
                    record.result = OperationResult::Row(row);
                    rows.push((sent.number, row));
                }
                OpAnswer::NotLocked(row) => {
                    record.result = OperationResult::NotLocked(row);
                    rows.push((sent.number, row));
                    errors.push((sent.number, ErrorCode::RowLocked));
                }
                // Its row was lost on the way, or the answer to the whole batch: what it has done is not known.
                OpAnswer::Failed(code @ (ErrorCode::ConnectionLost | ErrorCode::UnknownOutcome), _)
                    if !is_blamed =>
                {
                    errors.push((sent.number, code));
                    continue;
                }
                OpAnswer::Failed(code, is_in_index) => {
                    record.result = match is_in_index {
                        true => OperationResult::FailedInIndex(code),
                        false => OperationResult::Failed(code),
                    };
                    errors.push((sent.number, code));
                }
            }
            record.answered = Some(cx.now);
        }
        transaction.batch = Some(batch);
        if fate != Fate::Open {
            self.client.cancel(token);
            self.end_transaction(cx, session, fate);
        }
        self.answers.push_back((session, Answer::Executed(BatchAnswer { fate, rows, errors })));
    }
}

/// Whether a transaction that was committed has changed anything for certain: without that it waits for no disk.
fn has_changed(record: &Transaction) -> bool {
    record.events.iter().enumerate().any(|(at, event)| match event {
        Event::Operation(operation) => {
            operation.operation.kind.is_change()
                && operation.result == OperationResult::Done
                && !record.undoes_later(at, operation.operation.number)
        }
        Event::OwnRead(..) | Event::RollbackTo(_) => false,
    })
}

/// Whether a transaction has changed something in a table whose changes wait for the disk.
fn changes_durable_table(shapes: &[Shape], record: &Transaction) -> bool {
    record.events.iter().enumerate().any(|(at, event)| match event {
        Event::Operation(operation) => {
            shapes[usize::from(operation.operation.table.0)].is_durable()
                && operation.operation.kind.is_change()
                && operation.result == OperationResult::Done
                && !record.undoes_later(at, operation.operation.number)
        }
        Event::OwnRead(..) | Event::RollbackTo(_) => false,
    })
}

/// What has become of an operation.
enum OpAnswer {
    /// A change that is done.
    Done,
    Row(Option<Value>),
    /// Others have the row locked; it was read as it is committed.
    NotLocked(Option<Value>),
    /// It failed; and whether a unique index is to blame.
    Failed(ErrorCode, bool),
}

fn answer_to(
    cx: &mut Surroundings<'_>,
    transaction: &OpenTransaction,
    sent: &Sent,
    batch: &ClientBatch,
) -> OpAnswer {
    let record = &cx.history.transactions[transaction.index];
    let Event::Operation(record) = &record.events[sent.place] else { unreachable!("it was written there") };
    let operation = record.operation.clone();
    let is_read = operation.kind.is_read();
    match batch.result(sent.own) {
        Ok(row) if is_read => OpAnswer::Row(look_at_row(cx, &operation, row)),
        Ok(_) => OpAnswer::Done,
        Err(ErrorCode::RowLocked) if gives_committed(&operation) => match batch.committed(sent.own) {
            Ok(row) => OpAnswer::NotLocked(look_at_row(cx, &operation, row)),
            Err(_) => OpAnswer::Failed(ErrorCode::ConnectionLost, false),
        },
        Err(code) => OpAnswer::Failed(code, batch.failed_index(sent.own).is_some()),
    }
}

/// Whether it is a read that gives the committed version of a row that others have locked.
fn gives_committed(operation: &Operation) -> bool {
    operation.wait == LockWait::ElseCommitted && operation.kind.is_read()
}

fn look_at_row(cx: &mut Surroundings<'_>, operation: &Operation, row: Option<&[u8]>) -> Option<Value> {
    match cx.shape(operation.table).read(operation.selects, row?) {
        Ok((key, value)) if key == operation.key => Some(value),
        Ok((key, _)) => {
            cx.violations.push(format!("a read of row {} gave row {key}", operation.key));
            None
        }
        Err(what) => {
            cx.violations.push(what);
            None
        }
    }
}

/// How the transaction stands, and the unique index that is to blame if it was rolled back because of one.
fn fate_of(transaction: &OpenTransaction, batch: &ClientBatch) -> (Fate, Option<u16>) {
    match batch.standing() {
        Ok(Standing::Open) => (Fate::Open, None),
        Ok(Standing::Committed(epoch)) => (Fate::Committed(epoch), None),
        Ok(Standing::RolledBack) => (Fate::RolledBack { error: None, operation: 0 }, None),
        Err(error) if error.code() == ErrorCode::UnknownOutcome => (Fate::Unknown, None),
        Err(error) => {
            let operation = error.operation().map_or(0, |own| transaction.number_of(own));
            (Fate::RolledBack { error: Some(error.code()), operation }, error.index())
        }
    }
}

/// Whether a batch may end like that.
fn check_fate(cx: &mut Surroundings<'_>, transaction: &OpenTransaction, under_way: &UnderWay, fate: Fate) {
    let is_expected = match fate {
        Fate::Open => under_way.end == End::Stay,
        Fate::Committed(_) | Fate::Unknown => under_way.end == End::Commit,
        Fate::RolledBack { error: None, .. } => under_way.end == End::Rollback || under_way.is_given_up,
        Fate::RolledBack { error: Some(_), .. } => true,
    };
    let id = cx.history.transactions[transaction.index].id;
    if !is_expected {
        cx.violations.push(format!("batch of {id:#x} that was to {:?} ended {fate:?}", under_way.end));
    }
    if matches!(fate, Fate::RolledBack { error: Some(ErrorCode::InternalError), .. }) {
        cx.violations.push(format!("transaction {id:#x} met an internal error"));
    }
}

/// Lets go of the lock of a read, in front of the next operation.
fn push_unlock(
    batch: &mut ClientBatch,
    read: Option<OperationNumber>,
) -> vinga_client_core::Result<OperationNumber> {
    batch.unlock(read.ok_or(ErrorCode::BadProgram)?)?;
    let number = batch.next_number();
    batch.push_unlocks();
    Ok(number)
}

/// The answer to a batch of a transaction that is over.
pub(super) fn rolled_back(error: Option<ErrorCode>, operation: u32) -> Answer {
    let fate = Fate::RolledBack { error, operation };
    Answer::Executed(BatchAnswer { fate, rows: Vec::new(), errors: Vec::new() })
}
