//! The target of a copy: takes over what the primary sends.
//!
//! What arrives of a row is what is committed of it at the primary at that moment, and nothing of it is open there, or
//! it is left out and comes later. So whatever stands here beside the slot has ended: what is committed here is shown,
//! what is prepared here is dropped. (Either may be left of an earlier primary, and the order that ends it may still
//! be on its way; it finds nothing then, and is passed on.)

use super::{Copying, Received, WaitingBatch};
use crate::DataManager;
use crate::apply::Insert;
use crate::index_keys::Places;
use crate::operation::State;
use crate::versions::RowPlace;
use alloc::vec::Vec;
use vinga_base::hash::KeyHash;
use vinga_base::page_pool::PAGE_BYTES;
use vinga_base::{Epoch, RowId, ViewNumber};
use vinga_kernel::{Context, InjectedBug, Span};
use vinga_wire::copying::{CopiedRow, CopyBatch, CopyRowsHead, TO_THE_END};
use vinga_wire::restart::{CopyingReport, NewcomerStep, StepDoneReport};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

/// How often it is reported how much was copied, if batches come.
const REPORT_AGAIN: Span = Span::from_millis(500);

/// A row as the source has sent it.
struct Sent<'a> {
    row: RowId,
    epoch: Epoch,
    /// The hash of its key.
    hash: KeyHash,
    /// Its checked image.
    image: &'a [u8],
}

impl DataManager {
    /// Whether this data manager is being sent the rows of its partition.
    #[inline]
    pub(crate) fn is_copied_to(&self, cx: &Context<'_>) -> bool {
        cx.view().owned_by(self.owner).copying.contains(self.settings.node)
    }

    /// The view in which the copy to this node began that is complete; `None` while one is under way.
    pub fn copy_complete(&self) -> Option<ViewNumber> {
        let Copying { complete, waiting, asked, has_failed, .. } = &self.copying;
        complete.filter(|_| waiting.is_empty() && asked.is_empty() && !has_failed)
    }

    /// The view has changed: with other replicas the copy to this node begins anew.
    pub(crate) fn note_replicas(&mut self, cx: &mut Context<'_>) {
        let partition = cx.view().owned_by(self.owner);
        let (replicas, is_copied) = (partition.replicas(), !partition.copying.is_empty());
        if replicas != self.copying.replicas.0 {
            self.copying.replicas = (replicas, cx.view().number());
            self.copying.complete = None;
            if self.is_copied_to(cx) {
                // Changes of these rows may be on their way.
                self.take_over_waiting(cx);
            }
            self.copying.waiting.clear();
        }
        if !is_copied {
            self.copying.complete = None;
            self.copying.brought.clear();
            self.copying.asked.clear();
        }
        self.ask_in_this_view(cx);
    }

    /// Reports that the copy to this node is complete, in this view.
    pub(crate) fn report_copied(&self, cx: &mut Context<'_>) {
        if self.copy_complete().is_some() && self.is_copied_to(cx) {
            let report = StepDoneReport { step: NewcomerStep::Copied, view: cx.view().number() };
            let restart = Address::new(self.settings.node, BlockNumber::Restart, 0);
            cold::write(&mut cx.frame(SignalNumber::StepDoneReport, restart), &report);
        }
    }

    /// Whether what the source of a copy has sent comes from the replica before this one, as it should; if this is not
    /// the one that is copied to, it goes on to the next.
    pub(super) fn is_for_this_copy(&self, cx: &mut Context<'_>, frame: &Frame<'_>) -> bool {
        let owner = self.owner;
        let partition = cx.view().owned_by(owner);
        let (replicas, is_copied_to) = (partition.replicas(), partition.copying.contains(self.settings.node));
        let previous = replicas.previous(self.settings.node).map(|node| owner.at(node));
        if previous != Some(frame.sender()) {
            cx.mark("copied rows of an earlier view");
            return false;
        }
        if is_copied_to {
            return true;
        }
        if let Some(next) = replicas.next(self.settings.node).filter(|_| !partition.copying.is_empty())
            && let Some(signal) = frame.signal()
        {
            cx.frame(signal, owner.at(next)).bytes(frame.body);
        }
        false
    }

    pub(crate) fn on_copy_rows_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (head, rest) = frame.head::<CopyRowsHead>()?;
        if !self.is_for_this_copy(cx, frame) {
            return Some(());
        }
        self.take_later(cx, WaitingBatch::new(head, rest));
        Some(())
    }

    /// Takes over the next rows of a batch, as many as the units are enough for; says whether these were the last.
    pub(super) fn take_over_rows(
        &mut self,
        cx: &mut Context<'_>,
        batch: &mut WaitingBatch,
        units: &mut u32,
    ) -> Option<bool> {
        let head = batch.head;
        let id = head.table.get();
        let Ok(table) = self.store.tables.get_forwarded(id, head.birth.get()) else {
            // It goes here, or is not there yet: then it has no rows.
            cx.mark("copied rows of a table that is not there");
            self.confirm_copied(cx, head.batch);
            return Some(true);
        };
        let (partition, fragment) = table.fragments().next()?;
        let place = |row| RowPlace { table: id, partition, row };
        let count = u32::from(batch.left).min(*units);
        let mut rest = &batch.rows[batch.offset..];
        let mut rows = Vec::with_capacity(count as usize);
        let (mut next, mut bytes) = (batch.next, 0);
        for _ in 0..count {
            let (item, image) = CopiedRow::take(&mut rest)?;
            let row = item.row.get();
            if row < next || row >= head.end.get() {
                return None;
            }
            table.layout.check_image(image).ok()?;
            let hash = KeyHash::of(&table.layout.key_of(image));
            // What all of them miss in the caches overlaps.
            fragment.prefetch_index(&self.store.pages, hash);
            rows.push(Sent { row: RowId(row), epoch: Epoch(item.epoch.get()), hash, image });
            next = row + 1;
            bytes += image.len() as u64;
        }
        let offset = batch.rows.len() - rest.len();
        next = batch.next;
        for row in &rows {
            self.free_rows(cx, place(RowId(next)), row.row.0);
            if let Err(code) = self.take_over_row(cx, place(row.row), row) {
                let (_, capacity) = self.pages();
                let all = u64::from(capacity) * PAGE_BYTES as u64;
                let left = head.bytes_left.get();
                let why = format_args!(
                    "the rows of the other data nodes do not fit here: all {all} bytes of DataMemory are used, and about \
                     {left} bytes of this partition's rows are still to come"
                );
                cx.stop_node_for(code as u16, why);
                self.copying.has_failed = true;
                return Some(true);
            }
            next = row.row.0 + 1;
        }
        drop(rows);
        *units -= count;
        batch.took(count, bytes, offset, next);
        if batch.left > 0 {
            return Some(false);
        }
        self.free_rows(cx, place(RowId(next)), head.end.get());
        self.note_received(cx, &head, batch.bytes);
        self.confirm_copied(cx, head.batch);
        Some(true)
    }

    /// A batch has been taken over: counts it, and reports that now and then.
    fn note_received(&mut self, cx: &mut Context<'_>, head: &CopyRowsHead, bytes: u64) {
        let received = self.received_of(head.batch);
        let amount = &mut received.amount;
        amount.rows += u64::from(head.count.get());
        amount.bytes += bytes;
        amount.rows_all = amount.rows.saturating_add(head.rows_left.get());
        amount.bytes_all = amount.bytes.saturating_add(head.bytes_left.get());
        // Behind the last rows of a table nothing may come for long, while open transactions hold up the rest.
        let is_due = received.reported.is_none_or(|reported| cx.now().since(reported) >= REPORT_AGAIN);
        if is_due || head.end.get() == TO_THE_END {
            self.report_received(cx);
        }
    }

    /// What has come of the copy that a batch belongs to.
    pub(super) fn received_of(&mut self, batch: CopyBatch) -> &mut Received {
        let copy = ViewNumber(batch.copy.get());
        if self.copying.received.copy != copy {
            self.copying.received = Received { copy, ..Received::default() };
        }
        &mut self.copying.received
    }

    /// Reports it if all that the source has sent was taken over, and how much that was.
    pub(super) fn note_complete(&mut self, cx: &mut Context<'_>) {
        if self.copy_complete().is_some() {
            let amount = &mut self.copying.received.amount;
            (amount.rows_all, amount.bytes_all) = (amount.rows, amount.bytes);
            self.report_received(cx);
            self.report_copied(cx);
        }
    }

    fn report_received(&mut self, cx: &mut Context<'_>) {
        self.copying.received.reported = Some(cx.now());
        let report = CopyingReport { amount: self.copying.received.amount };
        let restart = Address::new(self.settings.node, BlockNumber::Restart, 0);
        cold::write(&mut cx.frame(SignalNumber::CopyingReport, restart), &report);
    }

    pub(super) fn confirm_copied(&self, cx: &mut Context<'_>, batch: CopyBatch) {
        let source = cx.view().owned_by(self.owner).primary();
        cx.frame(SignalNumber::CopyConfirm, source).put(&batch);
    }

    /// Removes all rows from a place on and before the row id `end`.
    fn free_rows(&mut self, cx: &mut Context<'_>, from: RowPlace, end: u32) {
        if cx.has_bug(InjectedBug::CopyKeepsOldRows) {
            return;
        }
        let mut next = from.row;
        while next.0 < end
            && let Some(row) = self.next_row(RowPlace { row: next, ..from }).filter(|row| row.0 < end)
        {
            self.remove_stale(cx, RowPlace { row, ..from });
            next = RowId(row.0 + 1);
        }
    }

    /// The first row from a place on.
    fn next_row(&self, from: RowPlace) -> Option<RowId> {
        let fragment = self.store.tables.current(from.table).fragment(from.partition);
        Places::of(self, fragment).next_row(&self.store.pages, from.row)
    }

    /// Removes a row that the primary has not, if there is one in that place.
    pub(crate) fn remove_stale(&mut self, cx: &mut Context<'_>, place: RowPlace) {
        self.end_changes(cx, place);
        if self.is_live(place) {
            cx.mark("copy removes a row that the primary has not");
            let hash = self.store.key_hash(place);
            self.store.remove(&self.versions, place, hash, Some(self.epoch));
        }
    }

    fn is_live(&self, place: RowPlace) -> bool {
        self.store.tables.current(place.table).fragment(place.partition).rows().is_live(place.row)
    }

    /// Ends what open operations have made of a row: see the head of this file.
    pub(crate) fn end_changes(&mut self, cx: &mut Context<'_>, place: RowPlace) {
        while let Some(state) = self.store.state_of(&self.versions, place)
            && let Some(newest) = self.versions.rows[state].newest_change
        {
            if let State::Committed { epoch, .. } = self.versions.operations[newest].state {
                cx.mark("copied row shows an earlier commit");
                self.install(cx, state, epoch);
            } else {
                cx.mark("copied row drops an earlier prepare");
                self.undo_change(cx, newest);
                self.drop_operation(newest);
            }
        }
    }

    /// Makes a row what it is at the primary.
    fn take_over_row(
        &mut self,
        cx: &mut Context<'_>,
        place: RowPlace,
        sent: &Sent<'_>,
    ) -> Result<(), ErrorCode> {
        self.end_changes(cx, place);
        let Sent { epoch, hash, image, .. } = *sent;
        let RowPlace { table: id, partition, row } = place;
        let table = self.store.tables.current(id);
        let key = table.layout.key_of(image);
        let same_key = table.fragment(partition).find(&self.store.pages, &self.store.chunks, hash, &key);
        if same_key == Some(row) {
            return self.store.overwrite(&self.versions, place, image, epoch);
        }
        if let Some(other) = same_key {
            self.remove_stale(cx, RowPlace { row: other, ..place });
        }
        self.remove_stale(cx, place);
        let new = Insert { table: id, partition, row: Some(row), hash, image, epoch: Some(epoch) };
        self.store.insert(&self.versions, new)?;
        self.epoch = self.epoch.max(epoch);
        Ok(())
    }
}
