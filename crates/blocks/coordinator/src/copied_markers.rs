//! A copy has brought a data manager markers of this coordinator's transactions, or of one that it acts for.
//!
//! A marker stays until this coordinator has it dropped: at the replicas of its view, when the API node knows the
//! outcome, or has failed. A copy may bring one behind that order. So the data manager reports what it was brought, and
//! the markers are dropped there of which nothing is known here any more. This coordinator's view is not older than that
//! of the data manager when it reads the report: the order to drop any other one goes there, too, when its time comes.

use crate::Coordinator;
use alloc::collections::BTreeSet;
use vinga_base::TransactionId;
use vinga_kernel::Context;
use vinga_wire::commit::transaction_ids;
use vinga_wire::copying::MarkersCopiedHead;
use vinga_wire::{Address, Frame};

impl Coordinator {
    pub(crate) fn on_markers_copied_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (head, rest) = frame.head::<MarkersCopiedHead>()?;
        let ids = transaction_ids(rest, head.count.get())?.collect();
        let (name, data_manager) = (head.coordinator.name(), frame.sender());
        if cx.view().has_coordinator(name) {
            self.drop_unknown_markers(cx, data_manager, ids);
        } else {
            self.drop_unknown_inherited_markers(cx, name, data_manager, ids);
        }
        Some(())
    }

    /// Drops those of which this coordinator has no record and no outcome.
    fn drop_unknown_markers(
        &mut self,
        cx: &mut Context<'_>,
        data_manager: Address,
        mut ids: BTreeSet<TransactionId>,
    ) {
        ids.retain(|&id| self.transactions.find(id).is_none());
        for ended in self.clients.outcomes() {
            ids.remove(&ended.id);
        }
        self.drop_copied_markers(cx, data_manager, ids);
    }

    pub(crate) fn drop_copied_markers(
        &mut self,
        cx: &mut Context<'_>,
        data_manager: Address,
        ids: BTreeSet<TransactionId>,
    ) {
        for id in ids {
            cx.mark("copied marker is dropped that its coordinator knows nothing of");
            self.lazy_orders.drop_marker_at(data_manager, id);
        }
    }
}
