//! Transactions.

use crate::api::caller::{Caller, Surroundings};
use vinga_base::OperationNumber;
use vinga_client_core::{BatchEnd, Error, OperationBatch as ClientBatch, OperationSpec, Standing, Token};
use vinga_wire::ErrorCode;
use vinga_wire::operation::OperationKind;
use vinga_workloads::history::{Event, OperationResult, Transaction};
pub(super) use vinga_workloads::recording::rolled_back;
use vinga_workloads::recording::{BatchOutcome, Numbers, Outcome, look_at_row};
use vinga_workloads::shape::Shape;
use vinga_workloads::step::{Answer, Body, End, Fate, OperationBatch};

/// A transaction that has begun.
pub struct OpenTransaction {
    token: Token,
    /// Its place in the history.
    index: usize,
    numbers: Numbers,
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
        self.numbers.from(number, self.next)
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
                Body::Unlock(read) => push_unlock(&mut client_batch, transaction.numbers.own(read)),
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
            transaction.numbers.push(operation.number, own);
            let record = &mut cx.history.transactions[transaction.index];
            let place = record.send(operation, cx.changes.rows_of(table.birth().0), cx.now);
            sent.push(Sent { own, place, version: table.version().0 });
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
        cx.history.transactions.push(Transaction::begin(u32::from(self.node.0) << 16 | session as u32));
        let is_durable = cx.acknowledged.is_some() && self.random.u8(..4) == 0;
        if is_durable {
            self.client.set_durable(token, true);
        }
        let batch = ClientBatch::default();
        self.sessions[session].transaction = Some(OpenTransaction {
            token,
            index,
            numbers: Numbers::default(),
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
            if record.id == 0 {
                record.id = id.0;
            }
            if record.id == id.0 {
                continue;
            }
            let given_up = record.begin_again(id.0, Some(cx.now));
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
        let fate = cx.history.transactions[transaction.index].fate_if_abandoned();
        self.end_transaction(cx, session, fate);
    }

    pub(super) fn end_transaction(&mut self, cx: &mut Surroundings<'_>, session: usize, fate: Fate) {
        let transaction = self.sessions[session].transaction.take().expect("the caller has it");
        let record = &mut cx.history.transactions[transaction.index];
        record.end(fate, cx.now);
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
        let id = cx.history.transactions[transaction.index].id;
        cx.violations.extend(fate.check(id, under_way.end, under_way.is_given_up).err());
        let mut outcomes = Vec::new();
        for sent in &under_way.sent {
            let outcome = outcome_of(cx, transaction, sent, &batch);
            let record = cx.history.transactions[transaction.index].operation(sent.place);
            let has_ended_well = !matches!(fate, Fate::RolledBack { .. } | Fate::Unknown);
            if has_ended_well && !matches!(outcome, Outcome::Failed(..)) {
                let done = cx.changes.check(record.operation.table, sent.version, record.sent);
                cx.violations.extend(done.err());
            }
            outcomes.push((sent.place, outcome));
        }
        let refused = under_way.refused;
        let outcome = BatchOutcome { fate, failed_in_index: failed_index.is_some(), refused, outcomes };
        let answer = cx.history.transactions[transaction.index].record(outcome, cx.now);
        transaction.batch = Some(batch);
        if fate != Fate::Open {
            self.client.cancel(token);
            self.end_transaction(cx, session, fate);
        }
        self.answers.push_back((session, Answer::Executed(answer)));
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
fn outcome_of(
    cx: &mut Surroundings<'_>,
    transaction: &OpenTransaction,
    sent: &Sent,
    batch: &ClientBatch,
) -> Outcome {
    let operation = &cx.history.transactions[transaction.index].operation(sent.place).operation;
    let shape = cx.shape(operation.table);
    let mut wrong = None;
    let mut look = |row| {
        let seen = look_at_row(shape, operation.selects, operation.key, row);
        seen.unwrap_or_else(|what| {
            wrong = Some(what);
            None
        })
    };
    let outcome = match batch.result(sent.own).map_err(|error| error.code()) {
        Ok(row) if operation.kind.is_read() => Outcome::Row(look(row)),
        Ok(_) => Outcome::Done,
        Err(ErrorCode::RowLocked) if operation.gives_committed() => match batch.committed(sent.own) {
            Ok(row) => Outcome::NotLocked(look(row)),
            Err(_) => Outcome::Failed(ErrorCode::ConnectionLost, false),
        },
        Err(code) => Outcome::Failed(code, batch.failed_index(sent.own).is_some()),
    };
    cx.violations.extend(wrong);
    outcome
}

/// How the transaction stands, and the unique index that is to blame if it was rolled back because of one.
fn fate_of(transaction: &OpenTransaction, batch: &ClientBatch) -> (Fate, Option<u16>) {
    match batch.standing() {
        Ok(Standing::Open) => (Fate::Open, None),
        Ok(Standing::Committed(epoch)) => (Fate::Committed(epoch), None),
        Ok(Standing::RolledBack) => (Fate::RolledBack { error: None, operation: 0 }, None),
        Err(error) => {
            let operation = error.operation().map_or(0, |own| transaction.numbers.of(own));
            (Fate::failed(error.code(), operation), error.index())
        }
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
