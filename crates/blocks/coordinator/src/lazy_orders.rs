//! Orders that nobody waits for: they are gathered and sent once a turn, in lists.

use alloc::vec::Vec;
use vinga_base::TransactionId;
use vinga_kernel::Context;
use vinga_wire::commit::{Chain, TransactionList};
use vinga_wire::view::{ReplicaGroup, ViewChange};
use vinga_wire::{Address, SignalNumber, U32, U64};

/// Transaction ids in one signal, at most.
const LIST_MAX: usize = 512;

/// Gathered orders of a coordinator.
#[derive(Default)]
pub struct LazyOrders {
    /// Transactions that are committed on all replicas of a replica group, so that their records there can be dropped:
    /// (data manager, id).
    completes: Vec<(Address, TransactionId)>,
    /// Transactions whose outcome is confirmed and whose marker can be dropped: (data manager, id).
    marker_drops: Vec<(Address, TransactionId)>,
}

impl LazyOrders {
    /// All replicas have committed a transaction: they may drop their records of it.
    pub fn complete(&mut self, owner: ReplicaGroup, replicas: Chain, id: TransactionId) {
        self.completes.extend(replicas.nodes().map(|node| (owner.at(node), id)));
    }

    /// Nobody will ask for the outcome of a transaction any more: its marker may be dropped.
    pub fn drop_marker(&mut self, owner: ReplicaGroup, replicas: Chain, id: TransactionId) {
        self.marker_drops.extend(replicas.nodes().map(|node| (owner.at(node), id)));
    }

    /// Lost members get nothing.
    pub fn forget_lost(&mut self, change: &ViewChange) {
        for list in [&mut self.completes, &mut self.marker_drops] {
            list.retain(|(data_manager, _)| !change.has_lost(data_manager.node()));
        }
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.completes.is_empty() && self.marker_drops.is_empty()
    }

    /// Sends everything, one signal for each data manager unless they are too many.
    pub fn send(&mut self, cx: &mut Context<'_>) {
        send_list(cx, SignalNumber::CompleteOrder, &mut self.completes);
        send_list(cx, SignalNumber::MarkersDropOrder, &mut self.marker_drops);
    }
}

fn send_list(cx: &mut Context<'_>, signal: SignalNumber, list: &mut Vec<(Address, TransactionId)>) {
    if list.is_empty() {
        return;
    }
    list.sort_unstable();
    for run in list.chunk_by(|(a, _), (b, _)| a == b) {
        for ids in run.chunks(LIST_MAX) {
            let mut writer = cx.frame(signal, ids[0].0);
            writer.put(&TransactionList { count: U32::new(ids.len() as u32) });
            for (_, id) in ids {
                writer.put(&U64::new(id.0));
            }
        }
    }
    list.clear();
}
