//! `CommitRequest`, `CompleteOrder`, `MarkersDropOrder`: making final.

use crate::DataManager;
use crate::operation::{Change, State};
use crate::prefetching::TOGETHER;
use vinga_base::pool::Handle;
use vinga_base::{Epoch, TransactionId};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::commit::{COMMIT_IS_COMPLETE, CommitBody, TransactionList};
use vinga_wire::{Address, Frame, SignalNumber, U64};

impl DataManager {
    pub(crate) fn on_commit_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<CommitBody>()?;
        if !Self::is_acting(cx, &body.actor) {
            return Some(());
        }
        self.commit(cx, body);
        self.run_ready(cx);
        Some(())
    }

    /// Commits what a transaction has here, and passes that on to the replica before this one.
    pub(crate) fn commit(&mut self, cx: &mut Context<'_>, body: &CommitBody) {
        let own = self.settings.node;
        let epoch = Epoch(body.epoch.get());
        let before = body.replicas.previous(own);
        if let Some(transaction) = self.versions.find_transaction(TransactionId(body.transaction.get())) {
            if body.marker.get() != 0 {
                self.versions.transactions[transaction].marker = body.marker.get();
            }
            if body.flags.get() & COMMIT_IS_COMPLETE != 0 {
                if body.marker.get() != 0 {
                    self.leave_marker(transaction, epoch);
                }
                self.commit_and_show(cx, transaction, epoch, false);
            } else if before.is_none() {
                self.commit_as_primary(cx, transaction, epoch);
            } else {
                self.commit_as_backup(cx, transaction, epoch);
            }
        } else {
            cx.mark("commit of a transaction that is not (any more) here");
        }
        match before {
            Some(node) => {
                cx.frame(SignalNumber::CommitRequest, self.settings.owner.at(node)).put(body);
            }
            None => {
                cx.frame(SignalNumber::CommitConfirm, Address(body.actor.acting.get())).put(body);
            }
        }
    }

    /// Shows the new versions and lets the locks go. What a successor of the coordinator may need to know stays until
    /// the transaction is complete; nothing stays where coordinators have no successors.
    pub(crate) fn commit_as_primary(&mut self, cx: &mut Context<'_>, transaction: Handle, epoch: Epoch) {
        let has_successors = cx.view().is_replicated();
        self.commit_and_show(cx, transaction, epoch, has_successors);
    }

    /// The same; `keeps_records`: those of changes stay.
    fn commit_and_show(
        &mut self,
        cx: &mut Context<'_>,
        transaction: Handle,
        epoch: Epoch,
        keeps_records: bool,
    ) {
        self.epoch = self.epoch.max(epoch);
        let last = self.versions.transactions[transaction].operations;
        let mut next = last;
        while let Some(handle) = next {
            next = self.versions.operations[handle].next;
            self.release_reserved(handle);
        }
        next = last;
        while let Some(handle) = next {
            next = self.versions.operations[handle].next;
            if let Some(state) = self.versions.operations[handle].row_state
                && self.versions.operations[handle].change != Change::None
            {
                self.install(cx, state, epoch);
            }
        }
        next = last;
        // Of a transaction with many operations reads may stand behind many changes, which stay.
        let mut newer = None;
        while let Some(handle) = next {
            let record = &self.versions.operations[handle];
            next = record.next;
            let is_spared =
                record.chain.is_only(self.settings.node) && cx.has_bug(InjectedBug::RecordSparedOnShortChain);
            if record.kind.is_change() && keeps_records && !is_spared {
                self.locks.release(&mut self.versions, handle);
                self.store.detach(&mut self.versions, handle);
                self.versions.operations[handle].state = State::Committed { epoch, shown: true };
                newer = Some(handle);
            } else {
                self.drop_operation_behind(newer, handle);
            }
        }
    }

    /// Notes the epoch; the new versions stay hidden until all have committed.
    fn commit_as_backup(&mut self, cx: &mut Context<'_>, transaction: Handle, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
        let last = self.versions.transactions[transaction].operations;
        let mut next = last;
        while let Some(handle) = next {
            next = self.versions.operations[handle].next;
            self.release_reserved(handle);
            let record = &self.versions.operations[handle];
            let (is_prepared, state) = (record.state == State::Prepared, record.row_state);
            if let Some(state) = state.filter(|_| is_prepared && cx.has_bug(InjectedBug::EntriesGoAtCommit))
                && self.versions.rows[state].newest_change == Some(handle)
            {
                let place = self.versions.rows[state].place;
                self.store.leave_replaced(&self.versions, place, handle, cx.bug());
            }
            if is_prepared {
                if let Some(state) = state
                    && self.versions.rows[state].newest_change == Some(handle)
                {
                    self.store.note_committed(&self.versions, state, epoch);
                }
                self.versions.operations[handle].state = State::Committed { epoch, shown: false };
            }
        }
        if cx.has_bug(InjectedBug::BackupShowsAtCommit) {
            for handle in self.versions.operations_of(transaction) {
                if let State::Committed { shown: false, .. } = self.versions.operations[handle].state
                    && let Some(state) = self.versions.operations[handle].row_state
                {
                    self.install(cx, state, epoch);
                }
            }
        }
    }

    /// Puts the newest version of a row into its slot. All changes of the row belong to one transaction, which is
    /// committed; they let go of the row. Their records stay.
    pub(crate) fn install(&mut self, cx: &mut Context<'_>, state: Handle, epoch: Epoch) {
        let (newest, vanishes) = self.store.install(&mut self.versions, state, epoch, cx.bug());
        if vanishes {
            self.rerun_waiters(cx, state);
        }
        let mut next = Some(newest);
        while let Some(at) = next {
            next = self.versions.operations[at].older_change.take();
            if self.versions.operations[at].lock.is_none() {
                self.store.detach(&mut self.versions, at);
            }
        }
    }

    /// These transactions are committed on all replicas: show what is hidden, drop the records, leave the markers.
    pub(crate) fn on_complete_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let mut ids = transactions_of(frame)?;
        for at in 0.. {
            if at % TOGETHER == 0 {
                self.prefetch_listed(ids.clone());
            }
            let Some(id) = ids.next() else { break };
            let Some(transaction) = self.versions.find_transaction(id) else { continue };
            let marker = self.versions.transactions[transaction].marker;
            let mut next = self.versions.transactions[transaction].operations;
            while let Some(handle) = next {
                next = self.versions.operations[handle].next;
                let State::Committed { epoch, shown } = self.versions.operations[handle].state else {
                    continue;
                };
                if !shown && let Some(state) = self.versions.operations[handle].row_state {
                    self.install(cx, state, epoch);
                }
                if self.versions.operations[handle].number == marker {
                    self.leave_marker(transaction, epoch);
                }
                self.drop_operation(handle);
            }
        }
        Some(())
    }

    pub(crate) fn on_markers_drop_order(&mut self, frame: &Frame<'_>) -> Option<()> {
        let mut ids = transactions_of(frame)?;
        for at in 0.. {
            if at % TOGETHER == 0 {
                ids.clone().take(TOGETHER).for_each(|id| self.markers.prefetch(id));
                ids.clone().take(TOGETHER).for_each(|id| self.markers.prefetch_marker(id));
            }
            let Some(id) = ids.next() else { break };
            self.markers.remove(id);
        }
        Some(())
    }
}

/// The transaction ids of a list signal.
fn transactions_of<'a>(frame: &Frame<'a>) -> Option<impl Iterator<Item = TransactionId> + Clone + use<'a>> {
    let (list, rest) = frame.head::<TransactionList>()?;
    let ids = rest.get(..list.count.get() as usize * 8)?;
    Some(
        ids.chunks_exact(8)
            .map(|id| TransactionId(U64::from_bytes(id.try_into().expect("chunks of eight")).get())),
    )
}
