//! `AbortRequest`: undoing, from an operation number on or exactly one, forwards along the chain.

use crate::DataManager;
use crate::operation::{Change, State};
use vinga_base::TransactionId;
use vinga_base::pool::Handle;
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::commit::{ABORT_ONE, AbortBody, WHOLE_TRANSACTION};
use vinga_wire::operation::OperationKind;
use vinga_wire::{Address, Frame, SignalNumber};

impl DataManager {
    pub(crate) fn on_abort_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<AbortBody>()?;
        if !Self::is_acting(cx, &body.actor) {
            return Some(());
        }
        if let Some(transaction) = self.find_of(TransactionId(body.transaction.get()), &body.actor) {
            self.abort(cx, transaction, body);
        }
        match body.replicas.next(self.settings.node) {
            Some(node) => {
                cx.frame(SignalNumber::AbortRequest, self.settings.owner.at(node)).put(body);
            }
            None => {
                cx.frame(SignalNumber::AbortConfirm, Address(body.actor.acting.get())).put(body);
            }
        }
        self.run_ready(cx);
        Some(())
    }

    fn abort(&mut self, cx: &mut Context<'_>, transaction: Handle, body: &AbortBody) {
        let from = body.from.get();
        let only_one = body.flags.get() & ABORT_ONE != 0;
        for handle in self.versions.operations_of(transaction) {
            let number = self.versions.operations[handle].number;
            let is_spared = if only_one { number != from } else { number < from };
            if is_spared {
                continue;
            }
            if from != WHOLE_TRANSACTION
                && self.versions.operations[handle].sub != 0
                && cx.has_bug(InjectedBug::PartialRollbackForgetsSubs)
            {
                continue;
            }
            match self.versions.operations[handle].state {
                State::Committed { .. } => {
                    unreachable!("a coordinator does not undo what it has decided to commit")
                }
                State::Waiting { .. } => self.drop_operation(handle),
                State::Prepared => {
                    if self.versions.operations[handle].change != Change::None {
                        self.undo_change(cx, handle);
                    }
                    let keeps_lock = from != WHOLE_TRANSACTION
                        && self.versions.operations[handle].lock.is_some()
                        && !cx.has_bug(InjectedBug::PartialRollbackLetsGo);
                    if keeps_lock {
                        cx.mark("partial rollback keeps the lock");
                        self.versions.operations[handle].kind = OperationKind::ReadExclusive;
                    } else {
                        self.drop_operation(handle);
                    }
                }
            }
        }
    }

    /// Takes back the newest change of a row. An inserted row vanishes, and its waiters run again.
    pub(crate) fn undo_change(&mut self, cx: &mut Context<'_>, handle: Handle) {
        let state = self.versions.operations[handle].row_state.expect("a change names a row");
        let place = self.versions.rows[state].place;
        self.release_reserved(handle);
        match self.versions.pop_change(handle) {
            Change::Insert => {
                let hash = self.store.key_hash(place);
                self.store.remove(&self.versions, place, hash, None);
                self.rerun_waiters(cx, state);
                // There is no row left to be locked.
                self.locks.release(&mut self.versions, handle);
                self.store.detach(&mut self.versions, handle);
            }
            Change::Replace(image) => self.store.drop_version(&self.versions, place, image),
            Change::Delete => {}
            Change::None => unreachable!("the caller has checked"),
        }
    }
}
