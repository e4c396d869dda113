//! Orders that nobody waits for: they are gathered and sent once a turn, in lists.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use vinga_base::TransactionId;
use vinga_kernel::Context;
use vinga_wire::commit::{Chain, TransactionList};
use vinga_wire::view::{ReplicaGroup, ViewChange};
use vinga_wire::{Address, SignalNumber, U32, U64};

/// Transaction ids in one signal, at most.
const LIST_MAX: usize = 512;

/// Transaction ids, by the data manager that they are for. A data manager's list stays when it is empty: there are few
/// data managers, and each gets orders again and again.
type Lists = BTreeMap<Address, Vec<TransactionId>>;

/// Gathered orders of a coordinator.
#[derive(Default)]
pub struct LazyOrders {
    /// Transactions that are committed on all replicas of a replica group, so that their records there can be dropped.
    completes: Lists,
    /// Transactions whose outcome is confirmed and whose marker can be dropped.
    marker_drops: Lists,
}

impl LazyOrders {
    /// All replicas have committed a transaction: they may drop their records of it.
    pub fn complete(&mut self, owner: ReplicaGroup, replicas: Chain, id: TransactionId) {
        add(&mut self.completes, owner, replicas, id);
    }

    /// Nobody will ask for the outcome of a transaction any more: its marker may be dropped.
    pub fn drop_marker(&mut self, owner: ReplicaGroup, replicas: Chain, id: TransactionId) {
        add(&mut self.marker_drops, owner, replicas, id);
    }

    /// The same at one data manager.
    pub fn drop_marker_at(&mut self, data_manager: Address, id: TransactionId) {
        self.marker_drops.entry(data_manager).or_default().push(id);
    }

    /// Lost members get nothing.
    pub fn forget_lost(&mut self, change: &ViewChange) {
        for lists in [&mut self.completes, &mut self.marker_drops] {
            lists.retain(|data_manager, _| !change.has_lost(data_manager.node()));
        }
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.completes.values().chain(self.marker_drops.values()).all(Vec::is_empty)
    }

    /// Sends everything, one signal for each data manager unless they are too many.
    pub fn send(&mut self, cx: &mut Context<'_>) {
        send_lists(cx, SignalNumber::CompleteOrder, &mut self.completes);
        send_lists(cx, SignalNumber::MarkersDropOrder, &mut self.marker_drops);
    }
}

fn add(lists: &mut Lists, owner: ReplicaGroup, replicas: Chain, id: TransactionId) {
    for node in replicas.nodes() {
        lists.entry(owner.at(node)).or_default().push(id);
    }
}

fn send_lists(cx: &mut Context<'_>, signal: SignalNumber, lists: &mut Lists) {
    for (&data_manager, list) in lists {
        for ids in list.chunks(LIST_MAX) {
            let mut writer = cx.frame(signal, data_manager);
            writer.put(&TransactionList { count: U32::new(ids.len() as u32) });
            for id in ids {
                writer.put(&U64::new(id.0));
            }
        }
        list.clear();
    }
}
