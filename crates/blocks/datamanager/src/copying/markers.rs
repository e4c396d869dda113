//! The target of a copy: markers.
//!
//! The order to drop a marker that the source had when it sent it may have come here before. And the source need not
//! have it yet, and may never get it. So the coordinators are asked which of the markers that copies have brought are
//! to go, when one is at its end; they have those dropped of which they know nothing any more (`copied_markers.rs`).
//! They are in this view by then, or a later one: what they drop from then on, they drop here, too.
//!
//! The copy is not complete before all have answered. A successor that gathers what there is of a coordinator may have
//! this data manager's report from before the markers came, so that it knows of them by the source's alone; it answers
//! when it has that. If the source is lost before, the copy begins anew, and nobody counts on this data manager.

use super::Asked;
use crate::DataManager;
use crate::markers::Marker;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;
use vinga_base::{Epoch, TransactionId, ViewNumber};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::copying::{
    COPIED_MARKERS_MAX, COPY_IS_COMPLETE, CopiedMarker, CopyMarkersHead, MarkersCopiedHead,
};
use vinga_wire::take_over::CoordinatorName;
use vinga_wire::{Frame, SignalNumber, U32, U64};

impl DataManager {
    pub(crate) fn on_copy_markers_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (head, mut rest) = frame.head::<CopyMarkersHead>()?;
        if !self.is_for_this_copy(cx, frame) {
            return Some(());
        }
        self.epoch = self.epoch.max(Epoch(head.epoch.get()));
        let begun_in = ViewNumber(head.batch.copy.get());
        for _ in 0..head.count.get() {
            let marker = CopiedMarker::take(&mut rest)?;
            let coordinator = marker.coordinator.name();
            if cx.view().acts_for(coordinator).is_none() {
                continue;
            }
            let id = TransactionId(marker.transaction.get());
            let (epoch, number) = (Epoch(marker.epoch.get()), marker.number.get());
            self.markers.insert(id, Marker { epoch, number, coordinator });
            self.copying.brought.insert(id);
        }
        if head.flags.get() & COPY_IS_COMPLETE != 0 && begun_in >= self.copying.replicas.1 {
            cx.mark("copy of a partition is complete");
            self.ask_about_markers(cx);
            self.copying.complete = Some(begun_in);
            self.received_of(head.batch);
            self.note_complete(cx);
        }
        self.confirm_copied(cx, head.batch);
        Some(())
    }

    /// Asks about the markers that this copy, and earlier ones that did not come to their end, have brought.
    fn ask_about_markers(&mut self, cx: &mut Context<'_>) {
        let mut lists: BTreeMap<CoordinatorName, Vec<TransactionId>> = BTreeMap::new();
        for id in mem::take(&mut self.copying.brought) {
            if let Some(marker) = self.markers.get(id) {
                lists.entry(marker.coordinator).or_default().push(id);
            }
        }
        if cx.has_bug(InjectedBug::CopiedMarkersStay) {
            return;
        }
        for (coordinator, ids) in lists {
            for ids in ids.chunks(COPIED_MARKERS_MAX) {
                let copying = &mut self.copying;
                copying.request += 1;
                copying.asked.insert(copying.request, Asked { coordinator, acting: None, ids: ids.to_vec() });
            }
        }
        self.ask_in_this_view(cx);
        if cx.has_bug(InjectedBug::CopiedMarkersNotAwaited) {
            self.copying.asked.clear();
        }
    }

    /// Asks those who act for the coordinators in this view, and were not asked before.
    pub(super) fn ask_in_this_view(&mut self, cx: &mut Context<'_>) {
        self.copying.asked.retain(|&request, asked| {
            let acting = cx.view().acts_for(asked.coordinator);
            // Without anybody who acts for it, nothing of it is kept: the view has seen to that.
            let Some(receiver) = acting else { return false };
            if asked.acting != acting {
                asked.acting = acting;
                let head = MarkersCopiedHead {
                    coordinator: asked.coordinator.into(),
                    request: U32::new(request),
                    count: U32::new(asked.ids.len() as u32),
                };
                let mut writer = cx.frame(SignalNumber::MarkersCopiedRequest, receiver);
                writer.put(&head);
                for id in &asked.ids {
                    writer.put(&U64::new(id.0));
                }
            }
            true
        });
    }

    pub(crate) fn on_markers_copied_confirm(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (request, _) = frame.head::<U32>()?;
        let request = request.get();
        let Some(asked) = self.copying.asked.get(&request) else { return Some(()) };
        // One that acted for the coordinator before does not count: its successor has not confirmed.
        if asked.acting == Some(frame.sender()) {
            self.copying.asked.remove(&request);
            self.note_complete(cx);
        }
        Some(())
    }
}
