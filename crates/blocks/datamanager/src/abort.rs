//! `AbortRequest`: undoing, from an operation number on or exactly one, forwards along the chain.

use crate::DataManager;
use crate::ending::Walk;
use crate::operation::{Change, State};
use vinga_base::TransactionId;
use vinga_base::pool::Handle;
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::commit::{ABORT_ONE, AbortBody, WHOLE_TRANSACTION};
use vinga_wire::{Address, Frame, SignalNumber};

impl DataManager {
    pub(crate) fn on_abort_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<AbortBody>()?;
        if !Self::is_acting(cx, &body.actor) {
            return Some(());
        }
        self.forget_put_off(body);
        let transaction = self.find_of(TransactionId(body.transaction.get()), &body.actor);
        let is_primary = body.replicas.previous(self.settings.node).is_none();
        if is_primary && transaction.is_none() && body.from.get() != WHOLE_TRANSACTION {
            // The replicas behind it have nothing of it either. If the primary moves, what follows would come to the
            // next one on another way than this order, which may be the slower one, and would be undone.
            cx.mark("partial rollback ends at a primary that holds nothing");
            cx.frame(SignalNumber::AbortConfirm, Address(body.actor.acting.get())).put(body);
            return Some(());
        }
        if let Some(transaction) = transaction {
            if body.from.get() == WHOLE_TRANSACTION && self.ends_in_slices(transaction) {
                self.abort_in_slices(transaction, body);
                return Some(());
            }
            let mut walk = self.walk(transaction);
            self.abort_some(cx, body, &mut walk, u32::MAX);
        }
        self.send_aborted(cx, body);
        self.run_ready(cx);
        Some(())
    }

    /// What was to be undone is undone here: has the next replica undo it, or answers.
    pub(crate) fn send_aborted(&mut self, cx: &mut Context<'_>, body: &AbortBody) {
        let body = &AbortBody { replicas: self.with_copy(cx, body.replicas), ..*body };
        match body.replicas.next(self.settings.node) {
            Some(node) => {
                cx.frame(SignalNumber::AbortRequest, self.owner.at(node)).put(body);
            }
            None => {
                cx.frame(SignalNumber::AbortConfirm, Address(body.actor.acting.get())).put(body);
            }
        }
    }

    /// Goes over so many of a transaction's operations, and undoes those that it is to; returns whether these were all.
    /// The transaction's record may be gone then.
    pub(crate) fn abort_some(
        &mut self,
        cx: &mut Context<'_>,
        body: &AbortBody,
        walk: &mut Walk,
        limit: u32,
    ) -> bool {
        for _ in 0..limit {
            let Some(handle) = self.step(walk) else { break };
            if !self.is_to_be_undone(cx, handle, body) || !self.undo(cx, handle, body, walk.newer) {
                walk.newer = Some(handle);
            }
        }
        walk.is_over()
    }

    fn is_to_be_undone(&self, cx: &Context<'_>, handle: Handle, body: &AbortBody) -> bool {
        let from = body.from.get();
        let record = &self.versions.operations[handle];
        let is_meant =
            if body.flags.get() & ABORT_ONE != 0 { record.number == from } else { record.number >= from };
        let is_forgotten = from != WHOLE_TRANSACTION
            && record.sub != 0
            && cx.has_bug(InjectedBug::PartialRollbackForgetsSubs);
        is_meant && !is_forgotten
    }

    /// Undoes an operation; returns whether it is gone. Its lock stays at a partial rollback.
    fn undo(
        &mut self,
        cx: &mut Context<'_>,
        handle: Handle,
        body: &AbortBody,
        newer: Option<Handle>,
    ) -> bool {
        match self.versions.operations[handle].state {
            State::Committed { .. } => {
                unreachable!("a coordinator does not undo what it has decided to commit")
            }
            State::Waiting { .. } => {}
            State::Prepared => {
                if self.versions.operations[handle].change != Change::None {
                    self.undo_change(cx, handle);
                }
                let keeps_lock = body.from.get() != WHOLE_TRANSACTION
                    && self.versions.operations[handle].lock.is_some()
                    && !cx.has_bug(InjectedBug::PartialRollbackLetsGo);
                if keeps_lock {
                    cx.mark("partial rollback keeps the lock");
                    self.versions.keep_lock_only(handle);
                    return false;
                }
            }
        }
        self.drop_operation_behind(newer, handle);
        true
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
        self.send_awaited(cx, place);
    }
}
