//! The end of transactions whose changes are read at backups (`READ_BACKUP`).
//!
//! A backup hides what it has committed until it knows that all replicas have. Of most tables nobody asks it, so it may
//! learn that lazily, and the API node is answered at once. Where backups answer reads, an API node that was answered
//! could miss its own change there. So the replicas are asked to complete the transaction, and it is answered when all
//! have confirmed that they show its changes.
//!
//! The transaction is committed whatever happens meanwhile, and its epoch may close. A replica that fails is awaited no
//! more: nobody reads there in a view without it. If the coordinator fails, its successor does the same for what the
//! data managers report (`take_over`).

use crate::Coordinator;
use crate::transaction::State;
use vinga_base::TransactionId;
use vinga_base::pool::Handle;
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::Frame;
use vinga_wire::commit::CompleteBody;
use vinga_wire::view::ViewChange;

impl Coordinator {
    /// The transaction is committed on all replicas, which keep records of it. It is answered now and these go lazily;
    /// or they go first.
    pub(crate) fn complete(&mut self, cx: &mut Context<'_>, handle: Handle) {
        let is_awaited = self.transactions[handle].is_read_at_backups && cx.view().is_replicated();
        if !is_awaited || cx.has_bug(InjectedBug::AnswerBeforeComplete) {
            self.complete_lazily(cx.view(), handle);
            return self.finish_committed(cx, handle);
        }
        self.end_in_epoch(cx, handle);
        let orders = self.orders(cx, handle);
        let list = self.transactions[handle].participants;
        let mut outstanding = 0;
        self.participants.for_each(list, |participant| {
            if !participant.holds || !participant.changes {
                return;
            }
            participant.completing = participant.replicas(cx.view());
            for node in participant.completing.nodes() {
                outstanding += 1;
                orders.complete_at(cx, participant.owner, node);
            }
        });
        self.await_completion(cx, handle, outstanding);
    }

    /// So many replicas have not confirmed that they show a transaction's changes.
    fn await_completion(&mut self, cx: &mut Context<'_>, handle: Handle, outstanding: u32) {
        self.transactions[handle].state = State::Completing { outstanding };
        if outstanding == 0 {
            self.finish_shown(cx, handle);
        }
    }

    pub(crate) fn on_complete_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<CompleteBody>()?;
        let id = TransactionId(body.transaction.get());
        let Some(handle) = self.transactions.find_record(body.actor.record.get(), id) else {
            self.inherited_completed(cx, body.actor.coordinator_name(), id, frame.sender());
            return Some(());
        };
        let State::Completing { outstanding } = self.transactions[handle].state else { return Some(()) };
        let list = self.transactions[handle].participants;
        let node = frame.sender().node();
        if let Some(participant) = self.participants.find_mut(list, body.owner)
            && participant.completing.contains(node)
        {
            participant.completing = participant.completing.without(node);
            self.await_completion(cx, handle, outstanding - 1);
        }
        Some(())
    }

    /// Nobody waits for the confirmations of replicas that are lost.
    pub(crate) fn complete_without(&mut self, cx: &mut Context<'_>, handle: Handle, change: &ViewChange) {
        let list = self.transactions[handle].participants;
        let mut outstanding = 0;
        self.participants.for_each(list, |participant| {
            let owner = participant.owner;
            let lost = participant.completing.nodes().filter(|&node| change.has_left(owner, node));
            participant.completing = lost.fold(participant.completing, |rest, node| rest.without(node));
            outstanding += participant.completing.length() as u32;
        });
        cx.mark("replica that was to complete a transaction has failed");
        self.await_completion(cx, handle, outstanding);
    }
}
