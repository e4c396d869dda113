//! `CommitRequest`, `CompleteRequest`, `CompleteOrder`, `MarkersDropOrder`: making final.

use crate::DataManager;
use crate::ending::{CommitMode, Walk};
use crate::operation::{Change, State};
use crate::prefetching::TOGETHER;
use vinga_base::pool::Handle;
use vinga_base::{Epoch, TransactionId};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::commit::{COMMIT_IS_COMPLETE, CommitBody, CompleteBody, TransactionList, transaction_ids};
use vinga_wire::take_over::CoordinatorName;
use vinga_wire::{Address, Frame, SignalNumber};

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
        let epoch = Epoch(body.epoch.get());
        let Some(transaction) = self.find_of(TransactionId(body.transaction.get()), &body.actor) else {
            cx.mark("commit of a transaction that is not (any more) here");
            return self.send_committed(cx, body);
        };
        if body.marker.get() != 0 {
            self.versions.transactions[transaction].marker = body.marker.get();
        }
        let mode = if body.flags.get() & COMMIT_IS_COMPLETE != 0 {
            if body.marker.get() != 0 {
                self.leave_marker(transaction, epoch);
            }
            CommitMode::Shown { keeps_records: false }
        } else if body.replicas.previous(self.settings.node).is_none() {
            CommitMode::Shown { keeps_records: cx.view().is_replicated() }
        } else {
            CommitMode::Hidden
        };
        self.begin_commit(transaction, epoch);
        if self.ends_in_slices(transaction) {
            self.commit_in_slices(transaction, body, mode);
        } else {
            let mut walk = self.walk(transaction);
            self.commit_some(cx, transaction, epoch, mode, &mut walk, u32::MAX);
            self.send_committed(cx, body);
        }
    }

    /// A transaction is committed here: has the replica before this one commit, or answers.
    pub(crate) fn send_committed(&mut self, cx: &mut Context<'_>, body: &CommitBody) {
        match body.replicas.previous(self.settings.node) {
            Some(node) => {
                cx.frame(SignalNumber::CommitRequest, self.owner.at(node)).put(body);
            }
            None => {
                cx.frame(SignalNumber::CommitConfirm, Address(body.actor.acting.get())).put(body);
            }
        }
    }

    /// Shows the new versions and lets the locks go, of a transaction with few operations. What a successor of the
    /// coordinator may need to know stays until the transaction is complete; nothing stays where coordinators have no
    /// successors.
    pub(crate) fn commit_as_primary(&mut self, cx: &mut Context<'_>, transaction: Handle, epoch: Epoch) {
        let mode = CommitMode::Shown { keeps_records: cx.view().is_replicated() };
        self.begin_commit(transaction, epoch);
        let mut walk = self.walk(transaction);
        self.commit_some(cx, transaction, epoch, mode, &mut walk, u32::MAX);
    }

    /// From here on a transaction is committed, whatever is still to be done for that.
    fn begin_commit(&mut self, transaction: Handle, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
        self.versions.transactions[transaction].committed = epoch;
    }

    /// Commits so many of a transaction's operations; returns whether these were all. The transaction's record may be
    /// gone then.
    pub(crate) fn commit_some(
        &mut self,
        cx: &mut Context<'_>,
        transaction: Handle,
        epoch: Epoch,
        mode: CommitMode,
        walk: &mut Walk,
        limit: u32,
    ) -> bool {
        for _ in 0..limit {
            let Some(handle) = self.step(walk) else { break };
            match mode {
                CommitMode::Shown { keeps_records } => {
                    self.commit_and_show(cx, handle, epoch, keeps_records, walk);
                }
                CommitMode::Hidden => {
                    self.commit_hidden(cx, handle, epoch);
                    walk.newer = Some(handle);
                }
            }
        }
        let is_over = walk.is_over();
        if is_over && matches!(mode, CommitMode::Hidden) && cx.has_bug(InjectedBug::BackupShowsAtCommit) {
            self.show_at_commit(cx, transaction, epoch);
        }
        is_over
    }

    /// Shows an operation's change, if no newer one of its row has been shown already, and lets its lock go.
    fn commit_and_show(
        &mut self,
        cx: &mut Context<'_>,
        handle: Handle,
        epoch: Epoch,
        keeps_records: bool,
        walk: &mut Walk,
    ) {
        self.release_reserved(handle);
        if let Some(state) = self.versions.operations[handle].row_state
            && self.versions.operations[handle].change != Change::None
        {
            self.install(cx, state, epoch);
        }
        let record = &self.versions.operations[handle];
        let is_spared =
            record.chain.is_only(self.settings.node) && cx.has_bug(InjectedBug::RecordSparedOnShortChain);
        if record.kind.is_change() && keeps_records && !is_spared {
            self.locks.release(&mut self.versions, handle);
            self.store.detach(&mut self.versions, handle);
            self.versions.operations[handle].state = State::Committed { epoch, shown: true };
            walk.newer = Some(handle);
        } else {
            // Of a transaction with many operations reads may stand behind many changes, which stay.
            self.drop_operation_behind(walk.newer, handle);
        }
    }

    /// Notes the epoch; the new version stays hidden until all have committed.
    fn commit_hidden(&mut self, cx: &mut Context<'_>, handle: Handle, epoch: Epoch) {
        self.release_reserved(handle);
        let record = &self.versions.operations[handle];
        if record.state != State::Prepared {
            return;
        }
        // What a forwarded prepare, or this node's promotion, has shown between two slices is not hidden any more.
        let shown = record.change == Change::None;
        if let Some(state) = record.row_state
            && self.versions.rows[state].newest_change == Some(handle)
        {
            if cx.has_bug(InjectedBug::EntriesGoAtCommit) {
                let place = self.versions.rows[state].place;
                self.store.leave_replaced(&self.versions, place, handle, cx.bug());
            }
            self.store.note_committed(&self.versions, state, epoch);
        }
        self.versions.operations[handle].state = State::Committed { epoch, shown };
    }

    /// A backup shows what all replicas have not committed yet: a deliberate bug.
    #[cold]
    fn show_at_commit(&mut self, cx: &mut Context<'_>, transaction: Handle, epoch: Epoch) {
        for handle in self.versions.operations_of(transaction) {
            if let State::Committed { shown: false, .. } = self.versions.operations[handle].state
                && let Some(state) = self.versions.operations[handle].row_state
            {
                self.install(cx, state, epoch);
            }
        }
    }

    /// Puts the newest version of a row into its slot. All changes of the row belong to one transaction, which is
    /// committed; they let go of the row. Their records stay.
    pub(crate) fn install(&mut self, cx: &mut Context<'_>, state: Handle, epoch: Epoch) {
        let place = self.versions.rows[state].place;
        let (newest, vanishes) = self.store.install(&mut self.versions, state, epoch, cx.bug());
        self.send_awaited(cx, place);
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
            self.complete_listed(cx, id, frame.sender());
        }
        Some(())
    }

    /// A coordinator has named a transaction in a list of those that are complete.
    pub(crate) fn complete_listed(&mut self, cx: &mut Context<'_>, id: TransactionId, sender: Address) {
        if !self.endings.is_empty() && self.endings.park_complete(id, sender) {
            return;
        }
        if let Some(transaction) = self.versions.find_transaction(id)
            && acts_for(cx, sender, self.versions.transactions[transaction].actor.coordinator_name())
        {
            if self.ends_in_slices(transaction) {
                self.complete_in_slices(transaction, None);
            } else {
                self.complete(cx, transaction);
            }
        }
    }

    /// The same of one transaction, whose coordinator answers when all replicas have confirmed it.
    pub(crate) fn on_complete_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<CompleteBody>()?;
        if !Self::is_acting(cx, &body.actor) {
            return Some(());
        }
        if let Some(transaction) = self.find_of(TransactionId(body.transaction.get()), &body.actor) {
            if self.ends_in_slices(transaction) {
                self.complete_in_slices(transaction, Some(body));
                return Some(());
            }
            self.complete(cx, transaction);
        }
        Self::send_completed(cx, body);
        Some(())
    }

    /// Answers that a transaction is complete here.
    pub(crate) fn send_completed(cx: &mut Context<'_>, body: &CompleteBody) {
        cx.frame(SignalNumber::CompleteConfirm, Address(body.actor.acting.get())).put(body);
    }

    fn complete(&mut self, cx: &mut Context<'_>, transaction: Handle) {
        let mut walk = self.walk(transaction);
        self.complete_some(cx, transaction, &mut walk, u32::MAX);
    }

    /// Completes so many of a transaction's operations; returns whether these were all. The transaction's record may be
    /// gone then.
    pub(crate) fn complete_some(
        &mut self,
        cx: &mut Context<'_>,
        transaction: Handle,
        walk: &mut Walk,
        limit: u32,
    ) -> bool {
        let marker = self.versions.transactions[transaction].marker;
        for _ in 0..limit {
            let Some(handle) = self.step(walk) else { break };
            let State::Committed { epoch, shown } = self.versions.operations[handle].state else {
                walk.newer = Some(handle);
                continue;
            };
            if !shown && let Some(state) = self.versions.operations[handle].row_state {
                self.install(cx, state, epoch);
            }
            if self.versions.operations[handle].number == marker {
                self.leave_marker(transaction, epoch);
            }
            self.drop_operation_behind(walk.newer, handle);
        }
        walk.is_over()
    }

    pub(crate) fn on_markers_drop_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let mut ids = transactions_of(frame)?;
        for at in 0.. {
            if at % TOGETHER == 0 {
                ids.clone().take(TOGETHER).for_each(|id| self.markers.prefetch(id));
                ids.clone().take(TOGETHER).for_each(|id| self.markers.prefetch_marker(id));
            }
            let Some(id) = ids.next() else { break };
            self.drop_listed_marker(cx, id, frame.sender());
        }
        Some(())
    }

    /// A coordinator has named a transaction in a list of those whose markers go.
    pub(crate) fn drop_listed_marker(&mut self, cx: &mut Context<'_>, id: TransactionId, sender: Address) {
        let overtakes = cx.has_bug(InjectedBug::SlicedEndIsOvertaken);
        if !self.endings.is_empty() && !overtakes && self.endings.park_marker_drop(id, sender) {
            cx.mark("marker is to be dropped before it is left");
            return;
        }
        self.markers.remove_if(id, |marker| acts_for(cx, sender, marker.coordinator));
    }
}

/// Whether a list signal comes from the one who acts for a coordinator. Lists name transactions by their ids only, and
/// an API node may have used one at several coordinators.
fn acts_for(cx: &Context<'_>, sender: Address, coordinator: CoordinatorName) -> bool {
    cx.view().acts_for(coordinator) == Some(sender)
}

/// The transaction ids of a list signal.
fn transactions_of<'a>(frame: &Frame<'a>) -> Option<impl Iterator<Item = TransactionId> + Clone + use<'a>> {
    let (list, rest) = frame.head::<TransactionList>()?;
    transaction_ids(rest, list.count.get())
}
