//! Transactions that a replica may have committed by itself, when a replica has failed.
//!
//! A transaction's last change may go along its chain with the permission to commit (`PREPARE_LAST`): the last replica
//! then commits and sends the commit back along the chain, without asking the coordinator. If one of the replicas fails
//! before the primary has confirmed, the coordinator does not know whether that has happened: the failed one may have
//! been the last one, or one between it and the primary. So it asks all that are left.
//!
//! - If one of them has committed, the transaction is committed: the coordinator has the commit go along what is left
//!   of the chain, from the last replica on, as after a decision of its own.
//! - If none has, it is rolled back. None can commit afterwards: replicas answer in the coordinator's view or a later
//!   one; from a signal of an earlier view nobody draws the permission to commit; and a commit that is on its way
//!   between two replicas comes from one that has committed, which says so if it lives.
//! - If it dies before it has said so, what it has sent is handled before its failure is, and may commit the
//!   transaction at a replica that has answered already. So a further failure in the replica group begins the question
//!   anew: answers carry the view of the question.
//!
//! A confirmation of the primary ends the doubt at any time: what reached the primary has passed all replicas.

use crate::Coordinator;
use crate::ending::Cause;
use crate::transaction::State;
use vinga_base::pool::Handle;
use vinga_base::{Epoch, TransactionId};
use vinga_kernel::Context;
use vinga_wire::commit::InDoubtBody;
use vinga_wire::view::ViewChange;
use vinga_wire::{ErrorCode, Frame, SignalNumber, U32, U64};

impl Coordinator {
    /// A replica of the only group that takes part has failed: asks those that are left whether they have committed.
    pub(crate) fn ask_replicas(&mut self, cx: &mut Context<'_>, handle: Handle) {
        cx.mark("replicas are asked about a transaction in doubt");
        let orders = self.orders(cx, handle);
        let transaction = &mut self.transactions[handle];
        let participant =
            self.participants.of(transaction.participants).next().expect("one replica group takes part");
        let (owner, replicas) = (participant.owner, participant.replicas(cx.view()));
        let view = cx.view().number();
        transaction.state = State::InDoubt { awaited: replicas, view };
        for node in replicas.nodes() {
            cx.frame(SignalNumber::InDoubtRequest, owner.at(node)).put(&InDoubtBody {
                transaction: U64::new(orders.transaction.0),
                epoch: U64::ZERO,
                actor: orders.actor,
                owner,
                view: U32::new(view.0),
                marker: U32::ZERO,
            });
        }
    }

    pub(crate) fn on_in_doubt_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<InDoubtBody>()?;
        let id = TransactionId(body.transaction.get());
        let Some(handle) = self.transactions.find_record(body.actor.record.get(), id) else {
            return Some(());
        };
        let State::InDoubt { awaited, view } = self.transactions[handle].state else { return Some(()) };
        if view.0 != body.view.get() {
            cx.mark("answer about a transaction in doubt is of an earlier view");
            return Some(());
        }
        if body.epoch.get() != 0 {
            self.commit_in_doubt(cx, handle, body);
            return Some(());
        }
        let awaited = awaited.without(frame.sender().node());
        self.transactions[handle].state = State::InDoubt { awaited, view };
        if awaited.is_empty() {
            cx.mark("no replica has committed a transaction in doubt");
            self.roll_back(cx, handle, Cause::error(ErrorCode::NodeFailure));
        }
        Some(())
    }

    /// A replica has committed a transaction that was in doubt: the others follow.
    fn commit_in_doubt(&mut self, cx: &mut Context<'_>, handle: Handle, body: &InDoubtBody) {
        cx.mark("a replica has committed a transaction in doubt");
        self.committed_by_replicas(handle, Epoch(body.epoch.get()), body.marker.get());
        let orders = self.orders(cx, handle);
        let transaction = &mut self.transactions[handle];
        transaction.state = State::Committing { outstanding: 1 };
        let participant =
            self.participants.of(transaction.participants).next().expect("one replica group takes part");
        orders.commit(cx, participant, transaction.epoch, transaction.marker_at(cx.view(), participant));
    }

    /// Notes what replicas have decided that were allowed to: the epoch, and the operation that leaves the marker.
    pub(crate) fn committed_by_replicas(&mut self, handle: Handle, epoch: Epoch, marker: u32) {
        let transaction = &mut self.transactions[handle];
        transaction.epoch = epoch;
        let list = transaction.participants;
        let owner = self.participants.of(list).next().expect("one replica group takes part").owner;
        transaction.note_change(marker, owner);
        self.participants.find_mut(list, owner).expect("it takes part").holds = true;
    }

    /// Nobody waits for the answers of failed replicas: a deliberate bug, as the others have to be asked again.
    pub(crate) fn forget_lost_replicas(&mut self, cx: &mut Context<'_>, handle: Handle, change: &ViewChange) {
        let State::InDoubt { awaited, view } = self.transactions[handle].state else { return };
        let lost = awaited.nodes().filter(|&node| change.has_lost(node));
        let awaited = lost.fold(awaited, |rest, node| rest.without(node));
        self.transactions[handle].state = State::InDoubt { awaited, view };
        if awaited.is_empty() {
            self.roll_back(cx, handle, Cause::error(ErrorCode::NodeFailure));
        }
    }
}
