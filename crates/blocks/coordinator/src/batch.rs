//! A batch arrives: it is checked, the owners of its rows are found, and each owner gets its operations.
//!
//! A batch that is wrong in itself is refused before any part of it is sent (`stages`).

use crate::clients::Standing;
use crate::ending::Cause;
use crate::participants::Undo;
use crate::stages::Routed;
use crate::transaction::{State, Transaction};
use crate::{Coordinator, OUTCOMES_MAX};
use alloc::vec::Vec;
use vinga_base::hash::KeyHash;
use vinga_base::pool::Handle;
use vinga_base::row_layout::RowError;
use vinga_base::{Epoch, TransactionId};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::epoch::EPOCH_LEAP_ABSURD;
use vinga_wire::frame::FRAME_BYTES_MAX;
use vinga_wire::operation::{FLAG_FORWARDED, Operation, OperationKind};
use vinga_wire::transaction::{
    FLAG_COMMIT, FLAG_DURABLE, FLAG_ROLLBACK, FLAG_ROLLBACK_TO, FLAG_START, OPERATIONS_MAX, Outcome,
    TransactionAnswer, TransactionHead,
};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U16, U32, U64};

/// Bytes of a batch, at most: its operations fit one `PrepareRequest`.
const BATCH_BYTES_MAX: usize = FRAME_BYTES_MAX - 256;

impl Coordinator {
    pub(crate) fn on_transaction_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (head, operations) = frame.head::<TransactionHead>()?;
        let api = frame.sender();
        let id = TransactionId(head.transaction.get());
        match self.clients.standing(api.node(), id) {
            Standing::Owner if id.number() != 0 => {}
            Standing::Owner | Standing::OtherIncarnation => {
                cx.reject(frame, ErrorCode::NotYourTransaction);
                return Some(());
            }
            Standing::Closed => {
                cx.mark("batch of a closed API node refused");
                refuse(cx, api, head, ErrorCode::ConnectionLost);
                return Some(());
            }
        }
        let epoch_seen = head.epoch_seen.get();
        let current = self.epochs.current().0;
        let mut is_epoch_known = true;
        if epoch_seen > current {
            if epoch_seen > current + EPOCH_LEAP_ABSURD {
                cx.reject(frame, ErrorCode::AbsurdEpoch);
                return Some(());
            }
            is_epoch_known = self.epochs.allows(cx.now(), Epoch(epoch_seen));
            if is_epoch_known {
                self.adopt_epoch(cx, Epoch(epoch_seen));
            }
        }
        self.statistics.batches += 1;
        self.statistics.operations += u64::from(head.count.get());
        self.confirm_outcomes(cx, id.owner(), head.outcomes_seen.get());
        let flags = head.flags.get();
        if flags & FLAG_ROLLBACK != 0 && self.give_up_batch(cx, id) {
            return Some(());
        }
        let handle = match self.open(cx, id, api, head) {
            Ok(handle) => handle,
            Err(code) => {
                refuse(cx, api, head, code);
                return Some(());
            }
        };
        let transaction = &mut self.transactions[handle];
        transaction.request = head.request.get();
        if matches!(transaction.state, State::RollingBack { .. }) {
            // Perhaps it waits for the view without a data node. At its end it answers this request, with its cause: an
            // answer now would be too early, as the rows are locked until then.
            cx.mark("request is answered by the rollback that it meets");
            return Some(());
        }
        if !is_epoch_known {
            cx.mark("batch refused because its API node has seen an epoch that is not known here");
            self.roll_back(cx, handle, Cause::error(ErrorCode::EpochNotKnown));
            return Some(());
        }
        transaction.epoch = transaction.epoch.max(Epoch(epoch_seen));
        transaction.rows = 0;
        transaction.clear_errors();
        if flags & FLAG_DURABLE != 0 {
            transaction.is_durable |= flags & FLAG_COMMIT != 0;
            if cx.view().addresses(BlockNumber::Redo).next().is_none() {
                self.roll_back(cx, handle, Cause::error(ErrorCode::NoDisk));
                return Some(());
            }
            if self.transactions[handle].has_changes && self.disk_waits.lacks_room() {
                cx.mark("transaction that is to wait for the disk is refused because the log is full");
                self.roll_back(cx, handle, Cause::error(ErrorCode::RedoLogFull));
                return Some(());
            }
        }
        if flags & FLAG_ROLLBACK != 0 {
            self.roll_back(cx, handle, Cause::asked());
            return Some(());
        }
        if frame.length() > BATCH_BYTES_MAX || usize::from(head.count.get()) > OPERATIONS_MAX {
            self.roll_back(cx, handle, Cause::error(ErrorCode::TooManyOperations));
            return Some(());
        }
        // A malformed body makes the caller close the connection, which rolls the transaction back.
        match head.count.get() {
            1 => {
                let mut rest = operations;
                let operation = Operation::take(&mut rest)?;
                match self.route(cx, handle, operation) {
                    Ok(routed) => self.send_batch(cx, handle, head, &[routed]),
                    Err(code) => {
                        self.roll_back(cx, handle, Cause::operation(code, operation.head.number.get()));
                    }
                }
            }
            count => {
                let mut routed = Vec::with_capacity(usize::from(count));
                let mut rest = operations;
                for _ in 0..count {
                    let operation = Operation::take(&mut rest)?;
                    match self.route(cx, handle, operation) {
                        Ok(one) => routed.push(one),
                        Err(code) => {
                            self.roll_back(cx, handle, Cause::operation(code, operation.head.number.get()));
                            return Some(());
                        }
                    }
                }
                self.send_batch(cx, handle, head, &routed);
            }
        }
        Some(())
    }

    /// Handles a request to roll back while a batch of the transaction is under way: the batch is given up. The API
    /// node learns the outcome from the answer to that batch. If the commit is decided, it is too late. If a data
    /// manager may have decided it, its answer says so; it is sent immediately, even if operations wait for locks.
    /// Returns false if no batch is under way.
    fn give_up_batch(&mut self, cx: &mut Context<'_>, id: TransactionId) -> bool {
        let Some(handle) = self.transactions.find(id) else { return false };
        match self.transactions[handle].state {
            State::Open { .. } | State::RollingBack { .. } => false,
            State::Preparing { last: false, .. } => {
                cx.mark("batch given up by its API node");
                self.roll_back(cx, handle, Cause::asked());
                true
            }
            State::Preparing { last: true, .. } | State::InDoubt { .. } => {
                self.transactions[handle].special_mut().is_given_up = true;
                true
            }
            State::Committing { .. } | State::Completing { .. } | State::AwaitingDisk => {
                cx.mark("batch given up too late");
                true
            }
        }
    }

    /// The record of the batch's transaction: a new one, or the one that is open or being rolled back.
    fn open(
        &mut self,
        cx: &mut Context<'_>,
        id: TransactionId,
        api: Address,
        head: &TransactionHead,
    ) -> Result<Handle, ErrorCode> {
        let known = self.transactions.find(id);
        if head.flags.get() & FLAG_START == 0 {
            let handle = known.ok_or(ErrorCode::TransactionAborted)?;
            return match self.transactions[handle].state {
                State::Open { .. } | State::RollingBack { .. } => Ok(handle),
                State::Preparing { .. }
                | State::InDoubt { .. }
                | State::Committing { .. }
                | State::Completing { .. }
                | State::AwaitingDisk => Err(ErrorCode::MalformedSignal),
            };
        }
        if known.is_some() {
            return Err(ErrorCode::MalformedSignal);
        }
        if self.draining.is_closed() {
            cx.mark("transaction is refused as its coordinator's data node leaves");
            return Err(ErrorCode::NodeFailure);
        }
        let client = self.clients.of(id);
        if client.outcomes.len() >= OUTCOMES_MAX {
            cx.mark("too many unconfirmed outcomes");
            return Err(ErrorCode::Overloaded);
        }
        if !client.begin(id) {
            cx.mark("number of a transaction was used before");
            return Err(ErrorCode::MalformedSignal);
        }
        let transaction = Transaction::new(id, api, cx.now());
        let handle = self.transactions.insert(transaction).ok_or(ErrorCode::OutOfTransactions)?;
        client.open += 1;
        Ok(handle)
    }

    /// Checks one operation, as far as a coordinator can, and finds the owner of its row.
    ///
    /// Inlined, so that what is found of the operation stays in registers until it is where it is needed: passed on in
    /// memory, it is read back by wider loads than the stores were, which wait until these are done.
    #[inline(always)]
    fn route<'a>(
        &mut self,
        cx: &Context<'_>,
        handle: Handle,
        operation: Operation<'a>,
    ) -> Result<Routed<'a>, ErrorCode> {
        let head = operation.head;
        let table_id = head.table.get();
        let table = self.tables.get(cx, table_id, head.version.get())?;
        let kind = operation.kind().ok_or(ErrorCode::MalformedSignal)?;
        let transaction = &mut self.transactions[handle];
        table.admits(table_id, kind, transaction)?;
        if head.number.get() <= transaction.operation || head.flags & FLAG_FORWARDED != 0 || head.sub != 0 {
            return Err(ErrorCode::MalformedSignal);
        }
        transaction.operation = head.number.get();
        transaction.use_table(table_id);
        if kind.is_change() {
            if table.hidden {
                return Err(ErrorCode::HiddenTable);
            }
            for &hidden in &table.unique_tables {
                transaction.use_table(hidden);
            }
            // Also if the change is undone later, or fails alone: then it waits for what it has changed elsewhere.
            transaction.is_durable |= table.is_durable;
            if transaction.is_durable && self.disk_waits.lacks_room() {
                return Err(ErrorCode::RedoLogFull);
            }
            transaction.is_read_at_backups |= table.read_backup;
        }
        let hash = match kind {
            OperationKind::Insert | OperationKind::Write => {
                if !operation.key.is_empty() {
                    return Err(ErrorCode::MalformedSignal);
                }
                match table.layout.key_bytes() {
                    Some(bytes) => {
                        KeyHash::of(operation.body.get(..usize::from(bytes)).ok_or(ErrorCode::BadRow)?)
                    }
                    None => {
                        table.layout.check_image(operation.body).map_err(|error| match error {
                            RowError::RowTooLong => ErrorCode::RowTooLong,
                            _ => ErrorCode::BadRow,
                        })?;
                        let (fixed, variable) = table.layout.split(operation.body);
                        let mut key = Vec::new();
                        table.layout.write_key(fixed, variable, &mut key);
                        KeyHash::of(&key)
                    }
                }
            }
            // It releases a lock that the transaction has already; the hash leads to its owner.
            OperationKind::Unlock if operation.key.is_empty() => KeyHash(head.hash.get()),
            OperationKind::ReadCommitted
            | OperationKind::ReadShared
            | OperationKind::ReadExclusive
            | OperationKind::Update
            | OperationKind::Delete
            | OperationKind::Unlock => {
                table.layout.check_key(operation.key).map_err(|_| ErrorCode::BadKey)?;
                KeyHash::of(operation.key)
            }
        };
        let partition = cx.view().partition(table.partitions.of(hash));
        Ok(Routed::new(operation, kind, hash, *partition, table))
    }

    /// Sends a checked batch to the owners of its rows. If it has no operation, continues with its end.
    fn send_batch(
        &mut self,
        cx: &mut Context<'_>,
        handle: Handle,
        head: &TransactionHead,
        routed: &[Routed<'_>],
    ) {
        let flags = head.flags.get();
        let commit = flags & FLAG_COMMIT != 0;
        let is_overloaded = routed.iter().any(|one| cx.is_congested(one.partition.primary()));
        if is_overloaded {
            cx.mark("batch refused because a data manager is congested");
            self.roll_back(cx, handle, Cause::error(ErrorCode::Overloaded));
            return;
        }
        let mut outstanding = 0;
        if flags & FLAG_ROLLBACK_TO != 0 {
            outstanding += self.send_partial_rollback(cx, handle, head.rollback_from.get());
        }
        self.transactions[handle].state = State::Preparing { outstanding, commit, last: false };
        self.send_stages(cx, handle, routed);
    }

    /// Orders every chain with changes to undo the operations from a number on, sub-operations included. Returns how
    /// many chains will answer.
    fn send_partial_rollback(&mut self, cx: &mut Context<'_>, handle: Handle, from: u32) -> u32 {
        let from = if cx.has_bug(InjectedBug::PartialRollbackKeepsLast) { from + 1 } else { from.max(1) };
        let orders = self.orders(cx, handle);
        let mut asked = 0;
        for participant in self.participants.of(self.transactions[handle].participants) {
            if participant.changes {
                asked += 1;
                orders.undo(cx, participant, Undo::From(from));
            }
        }
        let transaction = &mut self.transactions[handle];
        if transaction.first_change.is_some_and(|(number, _)| number >= from) {
            transaction.first_change = None;
        }
        asked
    }
}

/// Refuses a batch of which no part was executed.
fn refuse(cx: &mut Context<'_>, api: Address, head: &TransactionHead, code: ErrorCode) {
    let view = cx.view().number().0 as u8;
    cx.frame(SignalNumber::TransactionRefuse, api).put(&TransactionAnswer {
        transaction: head.transaction,
        epoch: U64::ZERO,
        request: head.request,
        outcome_number: U32::ZERO,
        failed_operation: U32::ZERO,
        error: U16::new(code as u16),
        errors: U16::ZERO,
        rows: U16::ZERO,
        outcome: Outcome::RolledBack as u8,
        view,
        failed_index: U16::ZERO,
    });
}
