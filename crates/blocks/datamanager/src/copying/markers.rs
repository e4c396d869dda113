//! The target of a copy: markers.
//!
//! The order to drop a marker that the source had when it sent it may have come here before. And the source need not
//! have it yet, and may never get it. So what a copy has brought is reported to the coordinators when it is complete;
//! they have those dropped of which they know nothing any more (`copied_markers.rs` there). They are in this view by
//! then, or a later one: what they drop from then on, they drop here, too.

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
            self.report_brought_markers(cx);
            self.copying.complete = Some(begun_in);
            self.received_of(head.batch);
            self.note_complete(cx);
        }
        self.confirm_copied(cx, head.batch);
        Some(())
    }

    /// Reports the markers that this copy, and earlier ones that were not completed, have brought and that are left.
    fn report_brought_markers(&mut self, cx: &mut Context<'_>) {
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
            // Without anybody who acts for it, nothing of it is kept here: the view has seen to that.
            let Some(acting) = cx.view().acts_for(coordinator) else { continue };
            for ids in ids.chunks(COPIED_MARKERS_MAX) {
                let mut writer = cx.frame(SignalNumber::MarkersCopiedReport, acting);
                let count = U32::new(ids.len() as u32);
                writer.put(&MarkersCopiedHead { coordinator: coordinator.into(), count });
                for id in ids {
                    writer.put(&U64::new(id.0));
                }
            }
        }
    }
}
