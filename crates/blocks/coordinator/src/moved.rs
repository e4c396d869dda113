//! Prepares that come back: another replica is the primary of their rows now (`docs/protocols/node-restart.md`).
//!
//! What comes back is sent to the primary of this thread's view; what the transaction is not waiting for any more is
//! dropped. Prepares of one batch for one owner go in one turn, and come back in their order. Only sub-operations in
//! unique indexes are sent later, and must not come before earlier ones that are on the way back: so, while a batch is
//! under way, they are sent where the earlier ones were sent, and come back behind them.

use crate::Coordinator;
use crate::transaction::State;
use alloc::vec::Vec;
use vinga_base::{NodeId, TransactionId};
use vinga_kernel::Context;
use vinga_wire::commit::PrepareHead;
use vinga_wire::view::{ReplicaGroup, ViewChange};
use vinga_wire::{Frame, SignalNumber};

/// Primaries that there were since a batch was begun, oldest first.
#[derive(Default)]
pub(crate) struct FormerPrimaries(Vec<(ReplicaGroup, NodeId)>);

impl FormerPrimaries {
    /// Where prepares are sent at first; `None` for the present primary.
    pub fn first(&self, owner: ReplicaGroup) -> Option<NodeId> {
        self.of(owner).next()
    }

    /// Where they are sent that come back from a node; `None` for the present primary.
    fn next(&self, owner: ReplicaGroup, node: NodeId) -> Option<NodeId> {
        self.of(owner).skip_while(|&former| former != node).nth(1)
    }

    fn of(&self, owner: ReplicaGroup) -> impl Iterator<Item = NodeId> {
        self.0.iter().filter(move |(of, _)| *of == owner).map(|&(_, node)| node)
    }
}

impl Coordinator {
    /// A data manager is no primary any more: sends a prepare to the one that is.
    pub(crate) fn on_prepare_moved_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (head, _) = frame.head::<PrepareHead>()?;
        let id = TransactionId(head.transaction.get());
        let Some(handle) = self.transactions.find_record(head.actor.record.get(), id) else {
            cx.mark("prepare comes back when its transaction is over");
            return Some(());
        };
        let transaction = &self.transactions[handle];
        if !matches!(transaction.state, State::Preparing { .. }) {
            cx.mark("prepare comes back when nobody waits for it");
            return Some(());
        }
        let (owner, from) = (head.owner, frame.sender().node());
        let work = transaction.unique.as_ref();
        let next = work.and_then(|work| work.former.next(owner, from));
        let receiver = next.map_or(cx.view().owned_by(owner).primary(), |node| owner.at(node));
        cx.mark("prepare is sent to the next primary");
        cx.frame(SignalNumber::PrepareRequest, receiver).bytes(frame.body);
        Some(())
    }

    /// The view has changed: what sub-operations have to follow may come back from primaries of the view before. From
    /// those that are lost nothing comes back: what was sent there is rolled back.
    pub(crate) fn note_moves(&mut self, change: &ViewChange) {
        let both = change.old.partitions().iter().zip(change.new.partitions());
        let moved = both.filter(|(old, new)| old.primary() != new.primary());
        let moved: Vec<_> = moved.map(|(old, _)| (old.owner, old.chain.primary())).collect();
        let handles = self.transactions.iter().filter(|(_, transaction)| transaction.unique.is_some());
        for handle in handles.map(|(handle, _)| handle).collect::<Vec<_>>() {
            if let Some(work) = &mut self.transactions[handle].unique {
                work.former.0.extend_from_slice(&moved);
                work.former.0.retain(|&(_, node)| !change.has_lost(node));
            }
        }
    }
}
