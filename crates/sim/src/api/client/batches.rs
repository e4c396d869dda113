//! Transactions.

use super::connecting::Phase;
use super::{Call, Client, Surroundings};
use std::collections::BTreeMap;
use vinga_base::{Epoch, TransactionId};
use vinga_wire::key_read::NO_ROW;
use vinga_wire::operation::{ALL_COLUMNS, FLAG_ERROR_IS_LOCAL, LockWait, OperationHead, OperationKind};
use vinga_wire::transaction::{
    FLAG_COMMIT, FLAG_ROLLBACK, FLAG_ROLLBACK_TO, FLAG_START, OperationError, Outcome, TransactionAnswer,
    TransactionHead, TransactionRow,
};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U16, U32, U64};
use vinga_workloads::history::{Event, OperationRecord, OperationResult, Transaction};
use vinga_workloads::shape::Value;
use vinga_workloads::step::{Answer, BatchAnswer, Body, End, Fate, Operation, OperationBatch};
use zerocopy::{FromBytes, IntoBytes};

/// A transaction that has begun.
pub struct OpenTransaction {
    pub id: TransactionId,
    /// Its place in the history.
    pub index: usize,
    pub coordinator: Address,
    /// The batch under way.
    batch: Option<UnderWay>,
    /// Its commit was asked for and the connection broke.
    pub is_in_doubt: bool,
}

/// Operations that failed alone: number, why, and the unique index that is concerned (0 for none).
type LoneErrors = Vec<(u32, ErrorCode, u16)>;

struct UnderWay {
    tag: u32,
    end: End,
    /// Places of its operations in the events of the transaction, by number.
    operations: BTreeMap<u32, usize>,
    /// Which data node was to send the row of each read, as the client knew.
    owners: BTreeMap<u32, u8>,
    /// The version of the table that each named.
    versions: BTreeMap<u32, u64>,
    rows: BTreeMap<u32, Option<Value>>,
    answer: Option<(TransactionAnswer, LoneErrors)>,
    /// It was given up: the transaction is to be rolled back, if it is not too late.
    is_given_up: bool,
}

impl UnderWay {
    fn is_committed(&self) -> bool {
        self.answer.as_ref().is_some_and(|(answer, _)| answer.outcome == Outcome::Committed as u8)
    }
}

impl Client {
    pub(super) fn send_batch(&mut self, cx: &mut Surroundings<'_>, session: usize, batch: OperationBatch) {
        if batch.begin {
            let Some(coordinator) = self.choose_coordinator(cx, &batch) else {
                self.answers.push_back((session, rolled_back(ErrorCode::ClusterFailure)));
                return;
            };
            self.begin_transaction(cx, session, coordinator);
        }
        let Some(transaction) = &self.sessions[session].transaction else {
            // The connection broke since the last batch.
            self.answers.push_back((session, rolled_back(ErrorCode::ConnectionLost)));
            return;
        };
        let (id, index, coordinator) = (transaction.id, transaction.index, transaction.coordinator);
        let mut bytes = Vec::new();
        for operation in &batch.operations {
            self.write_operation(cx, operation, &mut bytes);
        }
        let tag = self.next_tag();
        let mut flags = match batch.end {
            End::Stay => 0,
            End::Commit => FLAG_COMMIT,
            End::Rollback => FLAG_ROLLBACK,
        };
        flags |= if batch.begin { FLAG_START } else { 0 };
        flags |= if batch.rollback_to.is_some() { FLAG_ROLLBACK_TO } else { 0 };
        let head = TransactionHead {
            transaction: U64::new(id.0),
            epoch_seen: U64::new(self.epoch_seen),
            request: U32::new(tag),
            outcomes_seen: U32::new(self.seen_for_batch(coordinator)),
            rollback_from: U32::new(batch.rollback_to.unwrap_or(0)),
            flags: U16::new(flags),
            count: U16::new(batch.operations.len() as u16),
        };
        self.put_batch(coordinator, &head, &bytes);
        let operations = self.record_batch(cx, index, &batch);
        self.calls.insert(tag, Call::Execute);
        let reads = batch.operations.iter().filter(|operation| operation.kind.is_read());
        let owners = reads
            .map(|operation| {
                let hash = cx.shapes[usize::from(operation.table.0)].key_hash(operation.key);
                (operation.number, self.owner(operation.table, hash).node().0)
            })
            .collect();
        let (end, rows) = (batch.end, BTreeMap::new());
        let versions = batch.operations.iter().map(|o| (o.number, self.table(o.table).1)).collect();
        let under_way =
            UnderWay { tag, end, operations, owners, versions, rows, answer: None, is_given_up: false };
        self.sessions[session].transaction.as_mut().expect("it is open").batch = Some(under_way);
    }

    fn put_batch(&mut self, coordinator: Address, head: &TransactionHead, operations: &[u8]) {
        let link = self.link_to(coordinator).expect("while the client is up it reaches all coordinators");
        self.frame(link, SignalNumber::TransactionRequest, coordinator, head.request.get())
            .expect("the link is open")
            .put(head)
            .bytes(operations);
    }

    /// Asks that all transactions with a batch under way be rolled back at once.
    pub fn give_up_batches(&mut self) {
        if !matches!(self.phase, Phase::Up) {
            return;
        }
        for session in 0..self.sessions.len() {
            let Some(transaction) = &mut self.sessions[session].transaction else { continue };
            let (id, coordinator) = (transaction.id, transaction.coordinator);
            let Some(under_way) = transaction.batch.as_mut().filter(|_| !transaction.is_in_doubt) else {
                continue;
            };
            // A batch that is committed only lacks its rows.
            if under_way.end == End::Rollback || under_way.is_given_up || under_way.is_committed() {
                continue;
            }
            under_way.is_given_up = true;
            under_way.answer = None;
            let tag = under_way.tag;
            let head = TransactionHead {
                transaction: U64::new(id.0),
                epoch_seen: U64::new(self.epoch_seen),
                request: U32::new(tag),
                outcomes_seen: U32::new(self.seen_for_batch(coordinator)),
                rollback_from: U32::ZERO,
                flags: U16::new(FLAG_ROLLBACK),
                count: U16::ZERO,
            };
            self.put_batch(coordinator, &head, &[]);
        }
    }

    /// Mostly one beside the owner of the first row, sometimes any other.
    fn choose_coordinator(&mut self, cx: &Surroundings<'_>, batch: &OperationBatch) -> Option<Address> {
        self.transactions += 1;
        let all: Vec<Address> = self
            .view_known
            .addresses(BlockNumber::Coordinator)
            .filter(|&coordinator| self.link_to(coordinator).is_some())
            .collect();
        let beside = batch.operations.first().and_then(|first| {
            let owner = self.owner(first.table, cx.shapes[usize::from(first.table.0)].key_hash(first.key));
            let link = self.link_to(owner)?;
            all.iter().copied().find(|&coordinator| self.link_to(coordinator) == Some(link))
        });
        let any = || all.get(self.transactions as usize % all.len().max(1)).copied();
        beside.filter(|_| !self.transactions.is_multiple_of(4)).or_else(any)
    }

    /// A transaction that the session has left open goes by a time-out.
    fn begin_transaction(&mut self, cx: &mut Surroundings<'_>, session: usize, coordinator: Address) {
        let id = TransactionId::new(self.node, self.incarnation, self.transactions);
        let index = cx.history.transactions.len();
        cx.history.transactions.push(Transaction {
            id: id.0,
            session: u32::from(self.node.0) << 16 | session as u32,
            events: Vec::new(),
            commit_sent: None,
            ended: None,
            fate: Fate::Open,
        });
        self.sessions[session].transaction =
            Some(OpenTransaction { id, index, coordinator, batch: None, is_in_doubt: false });
    }

    fn write_operation(&self, cx: &Surroundings<'_>, operation: &Operation, out: &mut Vec<u8>) {
        let shape = &cx.shapes[usize::from(operation.table.0)];
        let (table, version) = self.table(operation.table);
        let holds_key = matches!(operation.body, Body::Row(_));
        // Every other unlock names its row by the hash of the key.
        let by_hash = operation.kind == OperationKind::Unlock && operation.number.is_multiple_of(2);
        let hash = if by_hash { shape.key_hash(operation.key).0 } else { 0 };
        let key = if holds_key || by_hash { Vec::new() } else { shape.key(operation.key) };
        let body = shape.body(operation.key, &operation.body);
        let filter = shape.filter(operation.condition.as_ref());
        let is_read = operation.kind.is_read();
        let selection = if operation.selects && is_read { shape.selection() } else { &[] };
        let columns = match (is_read, operation.selects) {
            (false, _) => 0,
            (true, false) => ALL_COLUMNS,
            (true, true) => selection.len() as u16,
        };
        let head = OperationHead {
            version: U64::new(version),
            hash: U64::new(hash),
            table: U32::new(table),
            number: U32::new(operation.number),
            row_or_wait: U32::new(operation.wait.number()),
            kind: operation.kind as u8,
            flags: if operation.error_is_local { FLAG_ERROR_IS_LOCAL } else { 0 },
            key_bytes: U16::new(key.len() as u16),
            body_bytes: U16::new(body.len() as u16),
            columns: U16::new(columns),
            filter_bytes: U16::new(filter.len() as u16),
            sub: 0,
            unused: 0,
        };
        out.extend_from_slice(head.as_bytes());
        out.extend(key);
        out.extend(body);
        out.extend(selection.iter().flat_map(|column| column.0.to_le_bytes()));
        out.extend(filter);
    }

    /// Writes a batch into the history; says where its operations stand there.
    fn record_batch(
        &self,
        cx: &mut Surroundings<'_>,
        index: usize,
        batch: &OperationBatch,
    ) -> BTreeMap<u32, usize> {
        let record = &mut cx.history.transactions[index];
        if batch.end == End::Commit {
            record.commit_sent = Some(cx.now);
        }
        if let Some(from) = batch.rollback_to {
            record.events.push(Event::RollbackTo(from));
        }
        let mut places = BTreeMap::new();
        for operation in &batch.operations {
            places.insert(operation.number, record.events.len());
            record.events.push(Event::Operation(OperationRecord {
                operation: operation.clone(),
                version: self.birth(operation.table),
                sent: cx.now,
                answered: None,
                result: OperationResult::Unknown,
            }));
        }
        places
    }

    /// The session whose transaction this is.
    fn find(&self, id: TransactionId) -> Option<usize> {
        self.sessions.iter().position(|s| s.transaction.as_ref().is_some_and(|t| t.id == id))
    }

    pub(super) fn on_row(&mut self, cx: &mut Surroundings<'_>, frame: &Frame<'_>) -> Option<()> {
        let (head, rest) = frame.head::<TransactionRow>()?;
        self.note_epoch(head.epoch.get());
        let number = head.operation.get();
        let Some(session) = self.find(TransactionId(head.transaction.get())) else { return Some(()) };
        let transaction = self.sessions[session].transaction.as_mut().expect("found just now");
        let index = transaction.index;
        let Some(under_way) = &mut transaction.batch else { return Some(()) };
        let Some(&place) = under_way.operations.get(&number) else { return Some(()) };
        let Event::Operation(record) = &mut cx.history.transactions[index].events[place] else { return None };
        let shape = &cx.shapes[usize::from(record.operation.table.0)];
        let row = match head.row_bytes.get() {
            NO_ROW => None,
            bytes => {
                let bytes = rest.get(..usize::from(bytes))?;
                match shape.read(record.operation.selects, bytes) {
                    Ok((key, value)) if key == record.operation.key => Some(value),
                    Ok((key, _)) => {
                        cx.violations.push(format!("a read of row {} gave row {key}", record.operation.key));
                        return Some(());
                    }
                    Err(what) => {
                        cx.violations.push(what);
                        return Some(());
                    }
                }
            }
        };
        // Whether others have it locked is told with the batch.
        if record.operation.wait != LockWait::ElseCommitted {
            record.result = OperationResult::Row(row);
            record.answered = Some(cx.now);
        }
        under_way.rows.insert(number, row);
        self.finish_batch(cx, session);
        Some(())
    }

    pub(super) fn on_batch_answer(&mut self, cx: &mut Surroundings<'_>, frame: &Frame<'_>) -> Option<()> {
        let (answer, rest) = frame.head::<TransactionAnswer>()?;
        let id = TransactionId(answer.transaction.get());
        self.note_epoch(answer.epoch.get());
        self.note_outcome(frame.sender(), answer.outcome_number.get());
        let count = usize::from(answer.errors.get());
        let (errors, _) = <[OperationError]>::ref_from_prefix_with_elems(rest, count).ok()?;
        let errors = errors
            .iter()
            .map(|error| {
                let code = ErrorCode::from_number(error.code.get())?;
                Some((error.operation.get(), code, error.index.get()))
            })
            .collect::<Option<Vec<_>>>()?;
        let Some(session) = self.find(id) else { return Some(()) };
        let transaction = self.sessions[session].transaction.as_mut().expect("found just now");
        match &mut transaction.batch {
            // The answer to the question is on its way as well.
            Some(_) if transaction.is_in_doubt => {}
            // The answer to a batch that was given up, just too late.
            Some(under_way) if under_way.is_given_up && answer.outcome == Outcome::Open as u8 => {}
            // The answer to giving it up, just too late; it still lacks rows.
            Some(under_way) if under_way.is_committed() => {}
            Some(under_way) if under_way.tag == answer.request.get() => {
                under_way.answer = Some((*answer, errors));
                self.finish_batch(cx, session);
            }
            // Rolled back by a time-out or a failure while no batch was under way: the next batch will tell.
            Some(_) | None => {}
        }
        Some(())
    }

    /// Ends the batch if all that belongs to it has come, or if what is missing can't come any more.
    pub(super) fn finish_batch(&mut self, cx: &mut Surroundings<'_>, session: usize) {
        let Some(transaction) = &mut self.sessions[session].transaction else { return };
        let Some(under_way) = &transaction.batch else { return };
        let Some((answer, _)) = &under_way.answer else { return };
        let outcome = Outcome::from_number(answer.outcome).expect("coordinators send outcomes");
        let is_lost =
            |(number, owner): &(&u32, &u8)| !under_way.rows.contains_key(number) && self.lost.contains(owner);
        let lost = under_way.owners.iter().filter(is_lost).count();
        let is_complete = under_way.rows.len() + lost >= usize::from(answer.rows.get());
        if outcome != Outcome::RolledBack && !is_complete {
            return;
        }
        let index = transaction.index;
        let under_way = transaction.batch.take().expect("seen above");
        let (answer, errors) = under_way.answer.expect("seen above");
        self.calls.remove(&under_way.tag);
        let operation = answer.failed_operation.get();
        let fate = match outcome {
            Outcome::Open => Fate::Open,
            Outcome::Committed => Fate::Committed(Epoch(answer.epoch.get())),
            Outcome::RolledBack | Outcome::NotFound => {
                Fate::RolledBack { error: ErrorCode::from_number(answer.error.get()), operation }
            }
        };
        let is_expected = match fate {
            Fate::Open => under_way.end == End::Stay,
            Fate::Committed(_) => under_way.end == End::Commit,
            Fate::RolledBack { error: None, .. } => under_way.end == End::Rollback || under_way.is_given_up,
            Fate::RolledBack { error: Some(_), .. } => true,
            Fate::Unknown => false,
        };
        let record = &mut cx.history.transactions[index];
        if !is_expected {
            let (id, end) = (record.id, under_way.end);
            cx.violations.push(format!("batch of {id:#x} that was to {end:?} ended {fate:?}"));
        }
        if matches!(fate, Fate::RolledBack { error: Some(ErrorCode::InternalError), .. }) {
            cx.violations.push(format!("transaction {:#x} met an internal error", record.id));
        }
        for (number, place) in &under_way.operations {
            let Event::Operation(record) = &mut record.events[*place] else { continue };
            let has_ended_well = !matches!(fate, Fate::RolledBack { .. });
            let failed = errors.iter().find(|(n, ..)| n == number).map(|&(_, code, index)| (code, index));
            let fatal = match fate {
                Fate::RolledBack { error, operation } if operation == *number => {
                    error.map(|code| (code, answer.failed_index.get()))
                }
                _ => None,
            };
            if let Some((code, index)) = failed.or(fatal) {
                record.result = match (index, code, under_way.rows.get(number)) {
                    (0, ErrorCode::RowLocked, Some(row)) => OperationResult::NotLocked(*row),
                    (0, ..) => OperationResult::Failed(code),
                    _ => OperationResult::FailedInIndex(code),
                };
                record.answered = Some(cx.now);
            } else if has_ended_well {
                let version = under_way.versions[number];
                let done = cx.changes.check(record.operation.table, version, record.sent);
                cx.violations.extend(done.err());
            }
            if failed.or(fatal).is_none() && has_ended_well && record.answered.is_none() {
                match (record.operation.kind.is_read(), under_way.rows.get(number)) {
                    (true, None) => continue,
                    (true, Some(row)) => record.result = OperationResult::Row(*row),
                    (false, _) => record.result = OperationResult::Done,
                }
                record.answered = Some(cx.now);
            }
        }
        if fate != Fate::Open {
            (record.fate, record.ended) = (fate, Some(cx.now));
            self.sessions[session].transaction = None;
        }
        let rows = under_way.rows.into_iter().collect();
        let errors = errors.into_iter().map(|(number, code, _)| (number, code)).collect();
        self.answers.push_back((session, Answer::Executed(BatchAnswer { fate, rows, errors })));
    }

    /// A transaction has ended otherwise than by the answer to a batch.
    pub(super) fn end_transaction(&mut self, cx: &mut Surroundings<'_>, session: usize, fate: Fate) {
        let transaction = self.sessions[session].transaction.take().expect("the caller has it");
        let record = &mut cx.history.transactions[transaction.index];
        (record.fate, record.ended) = (fate, Some(cx.now));
        if transaction.batch.is_some() {
            let answer = BatchAnswer { fate, rows: Vec::new(), errors: Vec::new() };
            self.answers.push_back((session, Answer::Executed(answer)));
        }
    }

    /// A data node is gone, and with it perhaps rows that it had sent.
    pub(super) fn answer_without_rows(&mut self, cx: &mut Surroundings<'_>) {
        for session in 0..self.sessions.len() {
            self.finish_batch(cx, session);
        }
    }
}

/// The answer to a batch that was not sent.
fn rolled_back(error: ErrorCode) -> Answer {
    let fate = Fate::RolledBack { error: Some(error), operation: 0 };
    Answer::Executed(BatchAnswer { fate, rows: Vec::new(), errors: Vec::new() })
}
