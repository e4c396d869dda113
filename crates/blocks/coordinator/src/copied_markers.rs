//! A copy has brought a data manager markers of this coordinator's transactions, or of one that it acts for.
//!
//! A marker stays until this coordinator has it dropped: at the replicas of its view, when the API node knows the
//! outcome, or has failed. A copy may bring one behind that order. So the data manager asks about what it was brought,
//! and the markers are dropped there of which nothing is known here any more. This coordinator's view is not older than
//! that of the data manager when it reads the request: the order to drop any other one goes there, too, in its time.

use crate::Coordinator;
use alloc::collections::BTreeSet;
use vinga_base::TransactionId;
use vinga_kernel::Context;
use vinga_wire::commit::transaction_ids;
use vinga_wire::copying::MarkersCopiedHead;
use vinga_wire::{Address, Frame, SignalNumber, U32};

/// What a data manager asks about.
pub(crate) struct CopiedMarkers {
    pub data_manager: Address,
    /// Its number of the request.
    request: U32,
    pub ids: BTreeSet<TransactionId>,
}

impl Coordinator {
    pub(crate) fn on_markers_copied_request(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (head, rest) = frame.head::<MarkersCopiedHead>()?;
        let ids = transaction_ids(rest, head.count.get())?.collect();
        let mut copied = CopiedMarkers { data_manager: frame.sender(), request: head.request, ids };
        let name = head.coordinator.name();
        if !cx.view().has_coordinator(name) {
            self.answer_about_inherited(cx, name, copied);
            return Some(());
        }
        copied.ids.retain(|&id| self.transactions.find(id).is_none());
        for ended in self.clients.outcomes() {
            copied.ids.remove(&ended.id);
        }
        self.drop_copied(cx, copied);
        Some(())
    }

    /// Drops these markers, of which nothing is known; that is the answer about all.
    pub(crate) fn drop_copied(&mut self, cx: &mut Context<'_>, unknown: CopiedMarkers) {
        let CopiedMarkers { data_manager, request, ids } = unknown;
        for id in ids {
            cx.mark("copied marker is dropped that its coordinator knows nothing of");
            self.lazy_orders.drop_marker_at(data_manager, id);
        }
        cx.frame(SignalNumber::MarkersCopiedConfirm, data_manager).put(&request);
    }
}
