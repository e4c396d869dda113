//! Transactions, by the API that users have.

use crate::session::Worker;
use vinga::{Error, ErrorCode, OperationKind, OperationNumber, Transaction};
use vinga_workloads::history::{self, Event};
use vinga_workloads::recording::{BatchOutcome, Numbers, Outcome, look_at_row, rolled_back};
use vinga_workloads::step::{Answer, Body, End, Fate, Operation, OperationBatch};

/// A transaction that has begun.
pub(crate) struct OpenTransaction {
    pub transaction: Transaction,
    /// Its place in the history.
    pub index: usize,
    pub numbers: Numbers,
    /// Its first batch is over.
    is_begun: bool,
}

/// The operations of a batch, before they are sent.
#[derive(Default)]
struct Defined<'b> {
    /// With the client's numbers; the end of a lock has none.
    operations: Vec<(&'b Operation, Option<OperationNumber>)>,
    /// Those that the client has refused, and why.
    refused: Vec<(u32, ErrorCode)>,
}

impl Worker<'_> {
    pub(crate) fn execute(&mut self, batch: &OperationBatch) -> Answer {
        if batch.begin {
            // The session may have left another one open.
            self.abandon();
            if let Err(error) = self.begin() {
                return rolled_back(Some(error.code()), 0);
            }
        }
        let Some(mut open) = self.open.take() else {
            // It has ended since the last batch.
            return rolled_back(Some(ErrorCode::ConnectionLost), 0);
        };
        let defined = self.define(&mut open, batch);
        let places = self.write_down(&open, batch, &defined);
        let ended = self.send(&mut open.transaction, batch.end);
        let now = self.shared.now();
        let (fate, failed_in_index) = fate_of(&open, ended);
        let known = places.iter().filter_map(|&(place, own)| Some((place, own?)));
        let outcomes = known.map(|(place, own)| (place, self.outcome(&open, place, own))).collect();
        let mut history = self.shared.history();
        self.note_id(&mut history.transactions, &open);
        let record = &mut history.transactions[open.index];
        self.shared.violate(fate.check(record.id, batch.end, false).err());
        let outcome = BatchOutcome { fate, failed_in_index, refused: defined.refused, outcomes };
        let answer = record.record(outcome, now);
        if fate == Fate::Open {
            open.is_begun = true;
            self.open = Some(open);
        } else {
            record.end(fate, now);
        }
        self.shared.count(fate);
        Answer::Executed(answer)
    }

    fn begin(&mut self) -> Result<(), Error> {
        let transaction = self.client.cluster.as_async().begin()?;
        let mut history = self.shared.history();
        let index = history.transactions.len();
        history.transactions.push(history::Transaction::begin(self.session));
        self.open =
            Some(OpenTransaction { transaction, index, numbers: Numbers::default(), is_begun: false });
        Ok(())
    }

    /// The session wants nothing more of its transaction, if it has one. What was not to be committed is rolled back.
    pub(crate) fn abandon(&mut self) {
        let Some(open) = self.open.take() else { return };
        drop(open.transaction);
        let mut history = self.shared.history();
        let record = &mut history.transactions[open.index];
        record.end(record.fate_if_abandoned(), self.shared.now());
    }

    /// Defines operations; nothing is sent.
    fn define<'b>(&self, open: &mut OpenTransaction, batch: &'b OperationBatch) -> Defined<'b> {
        if let Some(from) = batch.rollback_to {
            let next = open.transaction.next_number();
            let undone = open.transaction.undo_to(open.numbers.from(from, next));
            self.shared.violate(undone.err().map(|error| format!("a rollback to {from}: {error}")));
        }
        let mut defined = Defined::default();
        for operation in &batch.operations {
            let own = match operation.body {
                Body::Unlock(read) => {
                    let read = open.numbers.own(read).ok_or_else(|| Error::new(ErrorCode::BadProgram));
                    read.and_then(|read| open.transaction.unlock(read)).map(|()| None)
                }
                Body::None | Body::Row(_) | Body::Change(_) => {
                    self.define_one(&mut open.transaction, operation).map(Some)
                }
            };
            match own {
                Ok(own) => {
                    own.into_iter().for_each(|own| open.numbers.push(operation.number, own));
                    defined.operations.push((operation, own));
                }
                Err(error) => {
                    let is_unlock = operation.kind == OperationKind::Unlock;
                    let what = || format!("the client refuses {operation:?}: {error}");
                    self.shared.violate((!is_unlock).then(what));
                    defined.refused.push((operation.number, error.code()));
                }
            }
        }
        defined
    }

    fn define_one(
        &self,
        transaction: &mut Transaction,
        operation: &Operation,
    ) -> Result<OperationNumber, Error> {
        let table = self.client.table(operation.table);
        let shape = &table.shape;
        let is_row = matches!(operation.body, Body::Row(_));
        let key = if is_row { Vec::new() } else { shape.key(operation.key) };
        transaction.set_lenient(operation.error_is_local);
        transaction.define_encoded_if(
            table.reading(operation.selects),
            operation.kind,
            &key,
            &shape.body(operation.key, &operation.body),
            &shape.filter(operation.condition.as_ref()),
            operation.wait,
        )
    }

    /// Writes down what is about to be sent; returns where each operation stands, and its number at the client.
    fn write_down(
        &self,
        open: &OpenTransaction,
        batch: &OperationBatch,
        defined: &Defined<'_>,
    ) -> Vec<(usize, Option<OperationNumber>)> {
        let mut history = self.shared.history();
        let now = self.shared.now();
        let record = &mut history.transactions[open.index];
        if batch.end == End::Commit {
            record.commit_sent = Some(now);
        }
        record.events.extend(batch.rollback_to.map(Event::RollbackTo));
        let send = |&(operation, own): &(&Operation, _)| {
            (record.send(operation, self.client.table(operation.table).birth(), now), own)
        };
        defined.operations.iter().map(send).collect()
    }

    fn send(&self, transaction: &mut Transaction, end: End) -> Result<Fate, Error> {
        self.client.cluster.block_on(async {
            match end {
                End::Stay => transaction.execute().await.map(|()| Fate::Open),
                End::Commit => transaction.commit_in_place().await.map(Fate::Committed),
                End::Rollback => {
                    transaction.roll_back_in_place().await?;
                    // It may have been rolled back before that was asked for.
                    Ok(Fate::RolledBack { error: transaction.rollback_cause(), operation: 0 })
                }
            }
        })
    }

    /// What has become of an operation.
    fn outcome(&self, open: &OpenTransaction, place: usize, own: OperationNumber) -> Outcome {
        let operation = self.shared.history().transactions[open.index].operation(place).operation.clone();
        let look = |row| {
            let shape = &self.client.table(operation.table).shape;
            look_at_row(shape, operation.selects, operation.key, row).unwrap_or_else(|what| {
                self.shared.violate([what]);
                None
            })
        };
        let transaction = &open.transaction;
        match transaction.result(own) {
            Ok(()) if operation.kind.is_read() => {
                Outcome::Row(look(transaction.row_bytes(own).expect("it has a result")))
            }
            Ok(()) => Outcome::Done,
            Err(error) if error.code() == ErrorCode::RowLocked && operation.gives_committed() => {
                match transaction.committed_bytes(own) {
                    Ok(row) => Outcome::NotLocked(look(row)),
                    Err(_) => Outcome::Failed(ErrorCode::ConnectionLost, false),
                }
            }
            Err(error) => Outcome::Failed(error.code(), error.index().is_some()),
        }
    }

    /// By which id data nodes know the transaction. The client may have begun it again while its first batch was under
    /// way, when nobody knows.
    fn note_id(&self, transactions: &mut Vec<history::Transaction>, open: &OpenTransaction) {
        let id = open.transaction.id().map_or(0, |id| id.0);
        let record = &mut transactions[open.index];
        if !open.is_begun && open.transaction.times_begun_again() > 0 {
            let before = record.begin_again(id, None);
            transactions.push(before);
        } else {
            record.id = id;
        }
    }
}

/// How the transaction stands, and whether a unique index is to blame if it was rolled back because of one.
fn fate_of(open: &OpenTransaction, ended: Result<Fate, Error>) -> (Fate, bool) {
    match ended {
        Ok(fate) => (fate, false),
        Err(error) => {
            let operation = error.operation().map_or(0, |own| open.numbers.of(own));
            (Fate::failed(error.code(), operation), error.index().is_some())
        }
    }
}
