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
        if let Some(transaction) = self.find_transaction(TransactionId(body.transaction.get())) {
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
        for handle in self.operations_of(transaction) {
            let number = self.operations[handle].number;
            let is_spared = if only_one { number != from } else { number < from };
            if is_spared {
                continue;
            }
            if from != WHOLE_TRANSACTION
                && self.operations[handle].sub != 0
                && cx.has_bug(InjectedBug::PartialRollbackForgetsSubs)
            {
                continue;
            }
            match self.operations[handle].state {
                State::Committed { .. } => {
                    unreachable!("a coordinator does not undo what it has decided to commit")
                }
                State::Waiting { .. } => self.drop_operation(handle),
                State::Prepared => {
                    if self.operations[handle].change != Change::None {
                        self.undo_change(cx, handle);
                    }
                    let keeps_lock = from != WHOLE_TRANSACTION && self.operations[handle].lock.is_some();
                    if keeps_lock {
                        cx.mark("partial rollback keeps the lock");
                        self.operations[handle].kind = OperationKind::ReadExclusive;
                    } else {
                        self.drop_operation(handle);
                    }
                }
            }
        }
    }

    /// Takes back the newest change of a row. An inserted row vanishes, and its waiters run again.
    pub(crate) fn undo_change(&mut self, cx: &mut Context<'_>, handle: Handle) {
        let state = self.operations[handle].row_state.expect("a change names a row");
        let older = self.operations[handle].older_change.take();
        let newest = core::mem::replace(&mut self.rows[state].newest_change, older);
        assert!(newest == Some(handle), "changes are undone newest first");
        match core::mem::replace(&mut self.operations[handle].change, Change::None) {
            Change::Insert => {
                let row = &self.rows[state];
                let (table, partition, id) = (row.table, row.partition, row.row);
                self.leave_row(table, partition, id);
                let store = &mut self.store;
                let fragment = store.tables.current_mut(table).fragment_mut(partition);
                let hash = fragment.key_hash(&store.pages, &store.chunks, id);
                fragment.remove_row(&mut store.pages, &mut store.chunks, hash, id);
                self.rerun_waiters(cx, state);
                // There is no row left to be locked.
                self.unlock(handle);
                self.detach(handle);
            }
            Change::Replace(image) => {
                let row = &self.rows[state];
                self.leave_version(row.table, row.partition, row.row, &image);
                self.free_image(image);
            }
            Change::Delete => {}
            Change::None => unreachable!("the caller has checked"),
        }
    }
}
