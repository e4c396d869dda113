//! Commit by the last replica of a chain: a transaction's last change comes with the permission (`PREPARE_LAST`).
//!
//! When the change is here it is prepared at all replicas, and so is everything before it: nothing can prevent the
//! commit any more, and the coordinator need not be asked. This replica commits, and sends the `CommitRequest` to the
//! one before it, as if it had come from the coordinator (`docs/protocols/commit.md`).
//!
//! Of what is committed so nothing is hidden, and no record stays: each replica leaves the marker at once, from which a
//! successor learns what a record would have said, and nobody orders it to complete the transaction
//! ([`COMMIT_IS_COMPLETE`]). Where readers ask backups (`READ_BACKUP`) that would not do: they would see what a double
//! failure can undo. There the changes stay hidden until the coordinator orders so.
//!
//! A change that is the only one of its transaction here is not even prepared: between the check and the change nothing
//! else runs, as in `one_phase`.

use crate::DataManager;
use crate::apply::Insert;
use crate::chain::ForwardedTarget;
use crate::markers::Marker;
use crate::store::Version;
use crate::versions::RowPlace;
use vinga_base::{Epoch, TransactionId, ViewNumber};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::commit::{COMMIT_IS_COMPLETE, Chain, CommitBody, InDoubtBody, PrepareHead};
use vinga_wire::operation::{Operation, OperationKind};
use vinga_wire::{Address, Frame, SignalNumber, U32, U64};

impl DataManager {
    /// Whether a signal was sent in this thread's view. Only then may the last replica commit by itself what comes with
    /// the permission: a coordinator that has adopted a later view counts on it (`InDoubtRequest`).
    pub(crate) fn is_of_this_view(cx: &mut Context<'_>, sent_in: ViewNumber) -> bool {
        let is_this = sent_in == cx.view().number() || cx.has_bug(InjectedBug::LastOfOlderViewCommits);
        if !is_this {
            cx.mark("permission to commit is of an earlier view");
        }
        is_this
    }

    /// This is the last replica, and all of the transaction that is not committed is prepared here: commits it.
    pub(crate) fn commit_as_last(&mut self, cx: &mut Context<'_>, head: &PrepareHead, replicas: Chain) {
        cx.mark("last replica commits what it has prepared");
        self.statistics.one_phase_commits += 1;
        let id = TransactionId(head.transaction.get());
        let transaction =
            self.versions.find_transaction(id).expect("its last operation was prepared just now");
        let marker = if cx.has_bug(InjectedBug::LastLeavesNoMarker) {
            0
        } else {
            self.versions.first_change(transaction)
        };
        let is_complete = !self.versions.transactions[transaction].is_read_at_backups;
        let body = CommitBody {
            transaction: head.transaction,
            epoch: U64::new(self.epoch.0.max(head.epoch.get())),
            actor: head.actor,
            owner: self.owner,
            replicas,
            marker: U32::new(marker),
            flags: U32::new(if is_complete { COMMIT_IS_COMPLETE } else { 0 }),
        };
        self.commit(cx, &body);
    }

    /// Tries to make the change of a forwarded operation as it will stay; false if it must be prepared.
    pub(crate) fn commit_directly(
        &mut self,
        cx: &mut Context<'_>,
        head: &PrepareHead,
        operation: &Operation<'_>,
    ) -> bool {
        let Ok(target) = self.forwarded_target(head, operation) else { return false };
        let is_hidden = self.store.tables.current(target.place.table).read_backup;
        if is_hidden || head.count.get() != 1 || self.versions.find_transaction(target.id).is_some() {
            return false;
        }
        let epoch = self.epoch.max(Epoch(head.epoch.get()));
        let number = operation.head.number.get();
        let coordinator = head.actor.coordinator_name();
        let marker = match self.markers.get(target.id) {
            // The API node has used the id at another coordinator before: it is another transaction.
            Some(known) if known.coordinator != coordinator => return false,
            Some(known) => {
                cx.mark("last change came twice");
                known
            }
            None => {
                self.resolve_before(cx, &target, operation);
                if !self.change_directly(&target, operation, epoch) {
                    return false;
                }
                let marker = Marker { epoch, number, coordinator };
                if !cx.has_bug(InjectedBug::LastLeavesNoMarker) {
                    self.markers.insert(target.id, marker);
                }
                self.epoch = epoch;
                self.statistics.one_phase_commits += 1;
                marker
            }
        };
        let before = head.chain.previous(self.settings.node).expect("the primary is another one");
        let is_bug = cx.has_bug(InjectedBug::LastLeavesNoMarker);
        cx.frame(SignalNumber::CommitRequest, self.owner.at(before)).put(&CommitBody {
            transaction: head.transaction,
            epoch: U64::new(marker.epoch.0),
            actor: head.actor,
            owner: self.owner,
            replicas: head.chain,
            marker: U32::new(if is_bug { 0 } else { marker.number }),
            flags: U32::new(COMMIT_IS_COMPLETE),
        });
        true
    }

    /// Changes a row in place, or adds or removes it; false, and nothing is changed, if something stands in the way.
    fn change_directly(&mut self, target: &ForwardedTarget, operation: &Operation<'_>, epoch: Epoch) -> bool {
        let ForwardedTarget { kind, place, hash, .. } = *target;
        let RowPlace { table: table_id, partition, row } = place;
        let table = self.store.tables.current(table_id);
        let is_there = table.fragment(partition).rows().is_live(row);
        if is_there == (kind == OperationKind::Insert)
            || is_there && self.store.reference(table, partition, row) != 0
        {
            return false;
        }
        if !table.unique.is_empty() {
            let old = is_there.then(|| self.store.slot(table, partition, row));
            let new = (kind != OperationKind::Delete).then(|| Version::of(&table.layout, operation.body));
            if table.unique.follows(&table.layout, old, new) {
                return false;
            }
        }
        if self.store.listener.check_room(table.is_logged, operation.body.len()).is_err() {
            return false;
        }
        match kind {
            OperationKind::Insert => {
                let image = operation.body;
                let new =
                    Insert { table: table_id, partition, row: Some(row), hash, image, epoch: Some(epoch) };
                self.store.insert(&self.versions, new).is_ok()
            }
            OperationKind::Delete => {
                self.store.remove(&self.versions, place, hash, Some(epoch));
                true
            }
            _ => self.store.overwrite(&self.versions, place, operation.body, epoch).is_ok(),
        }
    }

    /// Says whether a transaction is committed here, and in which epoch.
    pub(crate) fn on_in_doubt_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<InDoubtBody>()?;
        if !Self::is_acting(cx, &body.actor) {
            return Some(());
        }
        let id = TransactionId(body.transaction.get());
        let name = body.actor.coordinator_name();
        let marker = self.markers.get(id).filter(|marker| marker.coordinator == name);
        let (epoch, marker) = match (self.find_of(id, &body.actor), marker) {
            (_, Some(marker)) => (marker.epoch, marker.number),
            (Some(known), None) => {
                let known = &self.versions.transactions[known];
                (known.committed, known.marker)
            }
            (None, None) => (Epoch(0), 0),
        };
        cx.frame(SignalNumber::InDoubtConfirm, Address(body.actor.acting.get())).put(&InDoubtBody {
            epoch: U64::new(epoch.0),
            marker: U32::new(marker),
            ..*body
        });
        Some(())
    }
}
