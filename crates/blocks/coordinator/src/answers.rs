//! Answers of data managers: operations that are prepared or refused, commits and aborts that are confirmed.

use crate::Coordinator;
use crate::ending::Cause;
use crate::transaction::State;
use vinga_base::pool::Handle;
use vinga_base::{Epoch, TransactionId};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::Frame;
use vinga_wire::commit::{
    ABORT_ONE, AbortBody, COMMIT_IS_COMPLETE, CommitBody, OPERATION_ERROR_IS_LOCAL, OPERATION_HOLDS,
    OPERATION_SENT_ROW, PREPARED_COMMITTED, PreparedHead, PreparedOperation, WHOLE_TRANSACTION,
};
use vinga_wire::unique::IndexChange;
use vinga_wire::view::ReplicaGroup;

impl Coordinator {
    pub(crate) fn on_prepare_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (head, rest) = frame.head::<PreparedHead>()?;
        let (answers, mut rest) = PreparedOperation::list(rest, head.count.get())?;
        let Some(handle) = self.find_answered(head) else { return Some(()) };
        let transaction = &mut self.transactions[handle];
        if !cx.has_bug(InjectedBug::EpochIgnoresOperations) {
            transaction.epoch = transaction.epoch.max(Epoch(head.epoch.get()));
        }
        let mut holds = false;
        for answer in answers {
            transaction.rows += u16::from(answer.flags & OPERATION_SENT_ROW != 0);
            holds |= answer.flags & OPERATION_HOLDS != 0;
        }
        if head.flags.get() & PREPARED_COMMITTED != 0 {
            transaction.epoch = Epoch(head.epoch.get());
            self.finish_committed(cx, handle);
            return Some(());
        }
        if self.not_committed_at_once(cx, handle) {
            self.roll_back(cx, handle, Cause::asked());
            return Some(());
        }
        if holds {
            self.note_hold(handle, head);
        }
        for _ in 0..head.changes.get() {
            let (change, bytes) = IndexChange::take(&mut rest)?;
            self.note_index_change(handle, change, bytes);
        }
        for answer in answers {
            self.operation_confirmed(cx, handle, head.owner, answer);
        }
        self.operations_answered(cx, handle, answers.len() as u32);
        Some(())
    }

    pub(crate) fn on_prepare_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (head, rest) = frame.head::<PreparedHead>()?;
        let (answers, _) = PreparedOperation::list(rest, head.count.get())?;
        let Some(handle) = self.find_answered(head) else { return Some(()) };
        let transaction = &mut self.transactions[handle];
        transaction.epoch = transaction.epoch.max(Epoch(head.epoch.get()));
        let is_given_up = self.not_committed_at_once(cx, handle);
        let mut fatal = None;
        for answer in answers {
            self.transactions[handle].rows += u16::from(answer.flags & OPERATION_SENT_ROW != 0);
            let error_is_local = answer.flags & OPERATION_ERROR_IS_LOCAL != 0;
            let cause = self.operation_refused(cx, handle, answer, error_is_local);
            fatal = fatal.or(cause);
        }
        match fatal {
            // The data manager has said that it did not commit.
            Some(cause) => self.roll_back(cx, handle, cause),
            None if is_given_up => self.roll_back(cx, handle, Cause::asked()),
            None => self.operations_answered(cx, handle, answers.len() as u32),
        }
        Some(())
    }

    /// A data manager that was allowed to commit in one phase has not done so, and will not. Returns whether the API
    /// node gave up the batch in the meantime.
    #[inline]
    fn not_committed_at_once(&mut self, cx: &mut Context<'_>, handle: Handle) -> bool {
        let transaction = &mut self.transactions[handle];
        let State::Preparing { last, .. } = &mut transaction.state else { return false };
        let was_last = core::mem::take(last);
        if !was_last {
            return false;
        }
        let is_given_up = transaction.special().is_some_and(|special| special.is_given_up);
        let entered = core::mem::take(&mut transaction.entered);
        self.leave_epoch(cx, entered);
        if is_given_up {
            cx.mark("batch given up before its data manager has answered");
        }
        is_given_up
    }

    /// The transaction that waits for this answer; `None` if it does not wait any more.
    #[inline]
    fn find_answered(&self, head: &PreparedHead) -> Option<Handle> {
        let handle =
            self.transactions.find_record(head.record.get(), TransactionId(head.transaction.get()))?;
        matches!(self.transactions[handle].state, State::Preparing { .. }).then_some(handle)
    }

    fn note_hold(&mut self, handle: Handle, head: &PreparedHead) {
        let list = self.transactions[handle].participants;
        if let Some(participant) = self.participants.find_mut(list, head.owner) {
            participant.holds = true;
        }
    }

    /// This many operations or partial rollbacks have been answered. Sends what had to wait for them.
    pub(crate) fn operations_answered(&mut self, cx: &mut Context<'_>, handle: Handle, count: u32) {
        if !self.send_subs(cx, handle) {
            return;
        }
        let State::Preparing { outstanding, .. } = &mut self.transactions[handle].state else {
            unreachable!("only a preparing transaction waits for answers")
        };
        *outstanding = outstanding.checked_sub(count).expect("no operation is answered twice");
        if *outstanding == 0 {
            self.batch_is_done(cx, handle);
        }
    }

    pub(crate) fn on_commit_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<CommitBody>()?;
        let id = TransactionId(body.transaction.get());
        let Some(handle) = self.transactions.find_record(body.actor.record.get(), id) else {
            self.inherited_ended(cx, body.actor.coordinator_name(), id, body.owner);
            return Some(());
        };
        let state = self.transactions[handle].state;
        match state {
            State::Committing { outstanding } if self.participant_ended(handle, body.owner) => {
                self.transactions[handle].state = State::Committing { outstanding: outstanding - 1 };
                if outstanding == 1 {
                    self.complete(cx.view(), handle);
                    self.finish_committed(cx, handle);
                }
            }
            State::Preparing { last: true, .. } | State::InDoubt { .. } => {
                self.committed_by_replicas(handle, Epoch(body.epoch.get()), body.marker.get());
                if body.flags.get() & COMMIT_IS_COMPLETE == 0 {
                    self.complete(cx.view(), handle);
                }
                self.finish_committed(cx, handle);
            }
            State::Committing { .. }
            | State::Open { .. }
            | State::Preparing { .. }
            | State::AwaitingDisk
            | State::RollingBack { .. } => {}
        }
        Some(())
    }

    pub(crate) fn on_abort_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<AbortBody>()?;
        let id = TransactionId(body.transaction.get());
        let Some(handle) = self.transactions.find_record(body.actor.record.get(), id) else {
            self.inherited_ended(cx, body.actor.coordinator_name(), id, body.owner);
            return Some(());
        };
        match self.transactions[handle].state {
            State::Preparing { .. } if body.from.get() != WHOLE_TRANSACTION => {
                if body.flags.get() & ABORT_ONE != 0 {
                    self.one_undone(handle, body.from.get());
                }
                self.operations_answered(cx, handle, 1);
            }
            State::RollingBack { outstanding } if body.from.get() == WHOLE_TRANSACTION => {
                if self.participant_ended(handle, body.owner) {
                    self.transactions[handle].state = State::RollingBack { outstanding: outstanding - 1 };
                    if outstanding == 1 {
                        self.finish_rolled_back(cx, handle);
                    }
                }
            }
            // An answer to a partial rollback that was overtaken by the whole one.
            State::Open { .. }
            | State::Preparing { .. }
            | State::InDoubt { .. }
            | State::Committing { .. }
            | State::AwaitingDisk
            | State::RollingBack { .. } => {}
        }
        Some(())
    }

    /// Marks the participant as ended; false if it was already, or is none.
    fn participant_ended(&mut self, handle: Handle, owner: ReplicaGroup) -> bool {
        let list = self.transactions[handle].participants;
        let participant = self.participants.find_mut(list, owner);
        participant.is_some_and(|participant| !core::mem::replace(&mut participant.ended, true))
    }
}
