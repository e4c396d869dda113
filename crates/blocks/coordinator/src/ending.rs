//! Commit and rollback, and the answer to the API node.

use crate::Coordinator;
use crate::clients::{Ended, send_outcome};
use crate::participants::Undo;
use crate::transaction::{Failure, State, Transaction};
use vinga_base::Epoch;
use vinga_base::pool::Handle;
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::transaction::{OperationError, Outcome, TransactionAnswer};
use vinga_wire::view::ClusterView;
use vinga_wire::{ErrorCode, SignalNumber, U16, U32, U64};

/// Why a transaction is rolled back.
#[derive(Clone, Copy, Debug)]
pub struct Cause(Option<Failure>);

impl Cause {
    /// The API node requested it.
    pub fn asked() -> Self {
        Cause(None)
    }

    /// An error that was not caused by a single operation.
    pub fn error(code: ErrorCode) -> Self {
        Cause::operation(code, 0)
    }

    /// An operation failed.
    pub fn operation(code: ErrorCode, operation: u32) -> Self {
        Cause(Some(Failure { operation, code, index: 0 }))
    }

    /// The same, perhaps because of a unique index.
    pub fn failure(failure: Failure) -> Self {
        Cause(Some(failure))
    }
}

impl Coordinator {
    /// All operations of a batch that were sent have been answered, and none has failed the transaction.
    pub(crate) fn batch_is_done(&mut self, cx: &mut Context<'_>, handle: Handle) {
        let State::Preparing { commit, .. } = self.transactions[handle].state else {
            unreachable!("a batch is done only while preparing")
        };
        if self.send_next_stage(cx, handle) {
            return;
        }
        if commit {
            if self.lacks_room(handle) {
                cx.mark("commit that would wait for the disk is refused because the log is full");
                self.roll_back(cx, handle, Cause::error(ErrorCode::RedoLogFull));
            } else {
                self.commit(cx, handle);
            }
            return;
        }
        let transaction = &mut self.transactions[handle];
        transaction.state = State::Open { since: cx.now() };
        answer(cx, transaction, Outcome::Open, 0);
    }

    /// Whether the commit of a transaction would have to wait for the disk, while nobody may begin to.
    pub(crate) fn lacks_room(&self, handle: Handle) -> bool {
        let transaction = &self.transactions[handle];
        transaction.is_durable && transaction.has_changes && self.disk_waits.lacks_room()
    }

    /// Decides to commit. The epoch is at least that of everything the transaction has read, replaced or followed.
    fn commit(&mut self, cx: &mut Context<'_>, handle: Handle) {
        let orders = self.orders(cx, handle);
        let current = self.epochs.current();
        let transaction = &mut self.transactions[handle];
        transaction.epoch = transaction.epoch.max(current);
        if cx.has_bug(InjectedBug::EpochIgnoresOperations) {
            transaction.epoch = current;
        }
        let epoch = transaction.epoch;
        transaction.entered = epoch;
        self.epochs.enter(epoch);
        self.use_epoch(cx, epoch);
        let transaction = &mut self.transactions[handle];
        let mut outstanding = 0;
        for participant in self.participants.of(transaction.participants).filter(|p| p.holds) {
            outstanding += 1;
            let marker = transaction.marker_at(cx.view(), participant);
            orders.commit(cx, participant, transaction.epoch, marker);
        }
        transaction.state = State::Committing { outstanding };
        if outstanding == 0 {
            self.finish_committed(cx, handle);
        } else if cx.has_bug(InjectedBug::AnswerBeforePrimary) {
            let transaction = &self.transactions[handle];
            answer(cx, transaction, Outcome::Committed, 0);
        }
    }

    /// Decides to roll back. Does nothing if the transaction is being rolled back already.
    pub(crate) fn roll_back(&mut self, cx: &mut Context<'_>, handle: Handle, cause: Cause) {
        let orders = self.orders(cx, handle);
        let transaction = &mut self.transactions[handle];
        match transaction.state {
            State::Open { .. } | State::Preparing { .. } | State::InDoubt { .. } => {}
            State::RollingBack { .. } => return,
            State::Committing { .. } | State::Completing { .. } | State::AwaitingDisk => {
                unreachable!("a transaction that is to be committed can't be rolled back")
            }
        }
        let entered = core::mem::take(&mut transaction.entered);
        if entered != Epoch(0) {
            self.leave_epoch(cx, entered);
        }
        let transaction = &mut self.transactions[handle];
        if cause.0.is_some() {
            transaction.special_mut().cause = cause.0;
        }
        transaction.unique = None;
        let mut outstanding = 0;
        for participant in self.participants.of(transaction.participants) {
            outstanding += 1;
            orders.undo(cx, participant, Undo::Everything);
        }
        transaction.state = State::RollingBack { outstanding };
        if outstanding == 0 {
            self.finish_rolled_back(cx, handle);
        }
    }

    /// Notes that the replicas can drop their records.
    pub(crate) fn complete_lazily(&mut self, view: &ClusterView, handle: Handle) {
        // Data managers keep no records where coordinators have no successors.
        if !view.is_replicated() {
            return;
        }
        let transaction = &self.transactions[handle];
        for participant in self.participants.of(transaction.participants) {
            if participant.holds && participant.changes {
                let replicas = participant.replicas(view);
                self.lazy_orders.complete(participant.owner, replicas, transaction.id);
            }
        }
    }

    /// The transaction is committed on all replicas, and nothing of it is hidden at any of them.
    pub(crate) fn finish_committed(&mut self, cx: &mut Context<'_>, handle: Handle) {
        self.end_in_epoch(cx, handle);
        self.finish_shown(cx, handle);
    }

    /// The transaction is committed on all replicas: nothing changes any more in its epoch.
    pub(crate) fn end_in_epoch(&mut self, cx: &mut Context<'_>, handle: Handle) {
        let transaction = &mut self.transactions[handle];
        let (epoch, has_changes) = (transaction.epoch, transaction.has_changes);
        let entered = core::mem::take(&mut transaction.entered);
        if has_changes {
            self.epochs.note_changes(epoch);
        }
        self.use_epoch(cx, epoch);
        self.leave_epoch(cx, entered);
    }

    /// A committed transaction is answered now, or when it is on disk.
    pub(crate) fn finish_shown(&mut self, cx: &mut Context<'_>, handle: Handle) {
        let transaction = &self.transactions[handle];
        let (epoch, has_changes, is_durable) =
            (transaction.epoch, transaction.has_changes, transaction.is_durable);
        if is_durable && has_changes && self.wait_for_disk(cx, handle, epoch) {
            self.transactions[handle].state = State::AwaitingDisk;
            self.wait_no_longer(cx);
            return;
        }
        self.finish_on_disk(cx, handle);
    }

    /// Nothing has to be awaited any more for a transaction that is committed.
    pub(crate) fn finish_on_disk(&mut self, cx: &mut Context<'_>, handle: Handle) {
        self.finish_as(cx, handle, Outcome::Committed);
    }

    /// A transaction is committed, and waits for the disk in vain.
    pub(crate) fn finish_not_on_disk(&mut self, cx: &mut Context<'_>, handle: Handle) {
        let failure = Failure { operation: 0, code: ErrorCode::NotOnDisk, index: 0 };
        self.transactions[handle].special_mut().cause = Some(failure);
        self.finish_as(cx, handle, Outcome::NotOnDisk);
    }

    fn finish_as(&mut self, cx: &mut Context<'_>, handle: Handle, outcome: Outcome) {
        let transaction = &self.transactions[handle];
        let epoch = transaction.epoch;
        let marker = transaction.marker(cx.view()).map(|(_, owner)| owner);
        let needs_disk = outcome == Outcome::NotOnDisk;
        let number = self.keep_outcome(cx, Ended { id: transaction.id, epoch, marker, needs_disk });
        self.statistics.committed += 1;
        self.finish(cx, handle, outcome, number);
    }

    pub(crate) fn finish_rolled_back(&mut self, cx: &mut Context<'_>, handle: Handle) {
        self.statistics.rolled_back += 1;
        self.finish(cx, handle, Outcome::RolledBack, 0);
    }

    /// Answers the API node and removes the transaction's records.
    fn finish(&mut self, cx: &mut Context<'_>, handle: Handle, outcome: Outcome, number: u32) {
        let transaction = self.transactions.remove(handle);
        self.participants.remove(transaction.participants);
        answer(cx, &transaction, outcome, number);
        if let Some((requester, request)) = transaction.special().and_then(|special| special.asked) {
            let is_committed = matches!(outcome, Outcome::Committed | Outcome::NotOnDisk);
            let epoch = if is_committed { transaction.epoch } else { Epoch(0) };
            send_outcome(cx, requester, request, transaction.id, outcome, epoch, number);
        }
        self.client_transaction_ended(cx, transaction.id);
    }
}

/// The answer to the batch under way.
fn answer(cx: &mut Context<'_>, transaction: &Transaction, outcome: Outcome, number: u32) {
    let special = transaction.special();
    let errors = special.map_or(&[][..], |special| &special.errors);
    let (code, operation, index) = match special.and_then(|special| special.cause) {
        Some(Failure { operation, code, index }) => (code as u16, operation, index),
        None => (0, 0, 0),
    };
    let signal = if code == 0 { SignalNumber::TransactionConfirm } else { SignalNumber::TransactionRefuse };
    let view = cx.view().number().0 as u8;
    let mut writer = cx.frame(signal, transaction.api);
    writer.put(&TransactionAnswer {
        transaction: U64::new(transaction.id.0),
        epoch: U64::new(transaction.epoch.0),
        request: U32::new(transaction.request),
        outcome_number: U32::new(number),
        failed_operation: U32::new(operation),
        error: U16::new(code),
        errors: U16::new(errors.len() as u16),
        rows: U16::new(transaction.rows),
        outcome: outcome as u8,
        view,
        failed_index: U16::new(index),
    });
    for failure in errors {
        writer.put(&OperationError {
            operation: U32::new(failure.operation),
            code: U16::new(failure.code as u16),
            index: U16::new(failure.index),
        });
    }
}
