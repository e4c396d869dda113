//! `CommitRequest`, `CompleteOrder`, `MarkersDropOrder`: making final.

use crate::DataManager;
use crate::operation::{Change, State};
use alloc::vec::Vec;
use vinga_base::pool::Handle;
use vinga_base::{Epoch, TransactionId};
use vinga_fragment::row::RowFlags;
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::commit::{CommitBody, TransactionList};
use vinga_wire::{Address, Frame, SignalNumber, U64};

impl DataManager {
    pub(crate) fn on_commit_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<CommitBody>()?;
        let own = self.settings.node;
        let epoch = Epoch(body.epoch.get());
        let before = body.replicas.previous(own);
        if let Some(transaction) = self.find_transaction(TransactionId(body.transaction.get())) {
            if body.marker.get() != 0 {
                self.transactions[transaction].marker = body.marker.get();
            }
            if before.is_none() {
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
        self.run_ready(cx);
        Some(())
    }

    /// The operations of a transaction, newest first.
    pub(crate) fn operations_of(&self, transaction: Handle) -> Vec<Handle> {
        let mut found = Vec::new();
        let mut next = self.transactions[transaction].operations;
        while let Some(at) = next {
            found.push(at);
            next = self.operations[at].next;
        }
        found
    }

    /// Shows the new versions and lets the locks go. What a successor may need to know stays until the transaction is
    /// complete; nothing stays if the successor would have died with us.
    pub(crate) fn commit_as_primary(&mut self, cx: &mut Context<'_>, transaction: Handle, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
        let own = self.settings.node;
        let coordinator = Address(self.transactions[transaction].actor.coordinator.get()).node();
        let operations = self.operations_of(transaction);
        for &handle in &operations {
            if let Some(state) = self.operations[handle].row_state
                && self.operations[handle].change != Change::None
            {
                self.install(cx, state, epoch);
            }
        }
        for handle in operations {
            let record = &self.operations[handle];
            let dies_with_coordinator = record.chain.is_only(own) && coordinator == own;
            if record.kind.is_change() && !dies_with_coordinator {
                self.unlock(handle);
                self.detach(handle);
                self.operations[handle].state = State::Committed { epoch, shown: true };
            } else {
                self.drop_operation(handle);
            }
        }
    }

    /// Notes the epoch; the new versions stay hidden until all have committed.
    fn commit_as_backup(&mut self, cx: &mut Context<'_>, transaction: Handle, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
        let operations = self.operations_of(transaction);
        for &handle in &operations {
            let record = &self.operations[handle];
            let (is_prepared, state) = (record.state == State::Prepared, record.row_state);
            if let Some(state) = state.filter(|_| is_prepared && cx.has_bug(InjectedBug::EntriesGoAtCommit))
                && self.rows[state].newest_change == Some(handle)
            {
                let row = &self.rows[state];
                self.leave_replaced_entries(cx, row.table, row.partition, row.row, handle);
            }
            let record = &mut self.operations[handle];
            if record.state == State::Prepared {
                record.state = State::Committed { epoch, shown: false };
            }
        }
        if cx.has_bug(InjectedBug::BackupShowsAtCommit) {
            for handle in operations {
                if let State::Committed { shown: false, .. } = self.operations[handle].state
                    && let Some(state) = self.operations[handle].row_state
                {
                    self.install(cx, state, epoch);
                }
            }
        }
    }

    /// Puts the newest version of a row into its slot. All changes of the row belong to one transaction, which is
    /// committed; they let go of the row. Their records stay.
    pub(crate) fn install(&mut self, cx: &mut Context<'_>, state: Handle, epoch: Epoch) {
        let row = &mut self.rows[state];
        let (table, partition, id) = (row.table, row.partition, row.row);
        let newest = row.newest_change.take().expect("there is something to install");
        self.leave_replaced_entries(cx, table, partition, id, newest);
        let store = &mut self.store;
        let fragment = store.tables.current_mut(table).fragment_mut(partition);
        let vanishes = match &mut self.operations[newest].change {
            Change::Insert => false,
            Change::Replace(image) => {
                image.exchange(&mut store.pages, &store.chunks, fragment.rows(), id);
                false
            }
            Change::Delete => {
                let hash = fragment.key_hash(&store.pages, &store.chunks, id);
                fragment.remove_row(&mut store.pages, &mut store.chunks, hash, id);
                true
            }
            Change::None => unreachable!("only changes are linked"),
        };
        if !vanishes {
            let mut slot = fragment.rows().row_mut(&mut store.pages, id);
            slot.set_epoch(epoch);
            slot.set_flags(RowFlags::NONE);
        }
        // What the newest image has been exchanged for, and the images of older changes, are of no use any more.
        let mut next = Some(newest);
        while let Some(at) = next {
            let record = &mut self.operations[at];
            next = record.older_change;
            let change = core::mem::replace(&mut record.change, Change::None);
            if let State::Committed { shown, .. } = &mut record.state {
                *shown = true;
            }
            if let Change::Replace(image) = change {
                self.free_image(image);
            }
        }
        if vanishes {
            self.rerun_waiters(cx, state);
        }
        let mut next = Some(newest);
        while let Some(at) = next {
            next = self.operations[at].older_change.take();
            if self.operations[at].lock.is_none() {
                self.detach(at);
            }
        }
    }

    /// These transactions are committed on all replicas: show what is hidden, drop the records, leave the markers.
    pub(crate) fn on_complete_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        for id in transactions_of(frame)? {
            let Some(transaction) = self.find_transaction(id) else { continue };
            let marker = self.transactions[transaction].marker;
            let mut next = self.transactions[transaction].operations;
            while let Some(handle) = next {
                next = self.operations[handle].next;
                let State::Committed { epoch, shown } = self.operations[handle].state else { continue };
                if !shown && let Some(state) = self.operations[handle].row_state {
                    self.install(cx, state, epoch);
                }
                if self.operations[handle].number == marker {
                    self.markers.insert(id, epoch);
                }
                self.drop_operation(handle);
            }
        }
        Some(())
    }

    pub(crate) fn on_markers_drop_order(&mut self, frame: &Frame<'_>) -> Option<()> {
        for id in transactions_of(frame)? {
            self.markers.remove(&id);
        }
        Some(())
    }
}

/// The transaction ids of a list signal.
fn transactions_of<'a>(frame: &Frame<'a>) -> Option<impl Iterator<Item = TransactionId> + use<'a>> {
    let (list, rest) = frame.head::<TransactionList>()?;
    let ids = rest.get(..list.count.get() as usize * 8)?;
    Some(
        ids.chunks_exact(8)
            .map(|id| TransactionId(U64::from_bytes(id.try_into().expect("chunks of eight")).get())),
    )
}
