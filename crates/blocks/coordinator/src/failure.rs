//! What happens to transactions when API nodes and data nodes fail, and when nobody continues them.

use crate::clients::Closing;
use crate::ending::Cause;
use crate::participants::{Participant, Undo};
use crate::transaction::{State, Transaction};
use crate::{CHECK_INTERVAL, CHECK_TIMER, Coordinator};
use alloc::vec::Vec;
use vinga_base::pool::Handle;
use vinga_base::{NodeId, TransactionId};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::membership::ApiNodeBody;
use vinga_wire::view::{Member, ViewChange};
use vinga_wire::{ErrorCode, Frame, SignalNumber};

impl Coordinator {
    /// The API node's connections are closed: from now on nothing that comes from it is carried out. Rolls back the
    /// transactions whose commit is not decided, finishes the others, then confirms. What a data manager may have
    /// committed is finished, or rolled back when it has said that it has not.
    pub(crate) fn on_api_connection_closed_order(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (order, _) = frame.head::<ApiNodeBody>()?;
        // Its data node may have joined while the API node was away, which may come back, and ask.
        self.clients.know(order);
        self.end_client(cx, Closing { requester: frame.sender(), order: *order, forgets: false });
        Some(())
    }

    /// This incarnation of the API node has failed and will not ask again: drops its outcomes.
    pub(crate) fn on_api_failed_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<ApiNodeBody>()?;
        self.end_client(cx, Closing { requester: frame.sender(), order: *order, forgets: true });
        Some(())
    }

    /// Ends what an API node has under way, and confirms an order when nothing is left.
    fn end_client(&mut self, cx: &mut Context<'_>, closing: Closing) {
        let owner = closing.order.owner();
        self.forget_questions(NodeId(closing.order.api));
        let Some(client) = self.clients.get_mut(owner) else { return self.confirm_closing(cx, closing) };
        client.close();
        if client.open == 0 || cx.has_bug(InjectedBug::ApiFailureKeepsLocks) {
            return self.confirm_closing(cx, closing);
        }
        client.closing = Some(closing);
        cx.mark("connection of an API node with open transactions closed");
        self.roll_back_where(cx, Cause::error(ErrorCode::ConnectionLost), |t| t.id.owner() == owner);
    }

    /// Nothing of an API node is under way any more.
    fn confirm_closing(&mut self, cx: &mut Context<'_>, closing: Closing) {
        let Closing { requester, order, forgets } = closing;
        if !forgets {
            cx.frame(SignalNumber::ApiConnectionClosedConfirm, requester).put(&order);
            return;
        }
        self.forget_inherited_of(cx, order.owner());
        if let Some(client) = self.clients.remove(order.owner()) {
            for ended in client.outcomes {
                if let Some(marker) = ended.marker {
                    let replicas = cx.view().owned_by(marker).replicas();
                    self.lazy_orders.drop_marker(marker, replicas, ended.id);
                }
            }
        }
        cx.frame(SignalNumber::ApiFailedConfirm, requester).put(&order);
    }

    /// One of an API node's transactions has ended. Confirms the closing of its connections if this was the last one.
    pub(crate) fn client_transaction_ended(&mut self, cx: &mut Context<'_>, id: TransactionId) {
        let client = self.clients.of(id);
        client.open -= 1;
        if client.open == 0
            && let Some(closing) = client.closing.take()
        {
            self.confirm_closing(cx, closing);
        }
    }

    /// Rolls back all transactions that fulfil a condition and may still be rolled back.
    pub(crate) fn roll_back_where(
        &mut self,
        cx: &mut Context<'_>,
        cause: Cause,
        condition: impl Fn(&Transaction) -> bool,
    ) {
        let chosen: Vec<Handle> = self
            .transactions
            .iter()
            .filter(|(_, t)| t.may_be_rolled_back() && condition(t))
            .map(|(handle, _)| handle)
            .collect();
        for handle in chosen {
            self.roll_back(cx, handle, cause);
        }
    }

    /// The view has changed: undecided transactions that a lost member may have taken part in are rolled back, decided
    /// ones are ended without it. One that was left out of a partition holds nothing there of undecided transactions;
    /// but it may have been sent what ends decided ones, and may stop before it has passed that on.
    pub(crate) fn go_on_in(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        self.lazy_orders.forget_lost(change);
        let touched: Vec<Handle> = self
            .transactions
            .iter()
            .filter(|(_, t)| {
                let mut all = self.participants.of(t.participants);
                all.any(|p| has_other_replicas(p, change) || self.has_lost_replica(p, change))
            })
            .map(|(handle, _)| handle)
            .collect();
        for handle in touched {
            self.go_on_without(cx, handle, change);
        }
    }

    fn go_on_without(&mut self, cx: &mut Context<'_>, handle: Handle, change: &ViewChange) {
        let orders = self.orders(cx, handle);
        let transaction = &self.transactions[handle];
        let participants = self.participants.of(transaction.participants);
        let has_lost = |p: &Participant| self.has_lost_replica(p, change);
        let has_lost_any = self.participants.of(transaction.participants).any(has_lost);
        let is_touched = |p: &&Participant| !p.ended && (has_other_replicas(p, change) || has_lost(p));
        for participant in participants.filter(is_touched) {
            match transaction.state {
                State::Committing { .. } if participant.holds => {
                    cx.mark("commit sent again without a failed replica");
                    let marker = transaction.marker_at(cx.view(), participant);
                    orders.commit(cx, participant, transaction.epoch, marker);
                }
                State::RollingBack { .. } => {
                    cx.mark("abort sent again without a failed replica");
                    orders.undo(cx, participant, Undo::Everything);
                }
                State::Committing { .. }
                | State::Completing { .. }
                | State::AwaitingDisk
                | State::Open { .. }
                | State::Preparing { .. }
                | State::InDoubt { .. } => {}
            }
        }
        let lost_nothing_but_reads = || {
            let mut lost = self.participants.of(transaction.participants).filter(|p| has_lost(p));
            lost.all(|participant| !participant.changes)
        };
        match transaction.state {
            State::Open { .. } | State::Preparing { .. } if !has_lost_any => {}
            State::Open { .. }
                if cx.has_bug(InjectedBug::LostReadLocksIgnored) && lost_nothing_but_reads() => {}
            State::Preparing { last: true, .. } if !cx.has_bug(InjectedBug::InDoubtIsRolledBack) => {
                self.ask_replicas(cx, handle);
            }
            State::InDoubt { .. } if !cx.has_bug(InjectedBug::InDoubtIsAskedOnce) => {
                cx.mark("transaction in doubt is asked about again");
                self.ask_replicas(cx, handle);
            }
            State::InDoubt { .. } => self.forget_lost_replicas(cx, handle, change),
            State::Open { .. } | State::Preparing { .. } => {
                self.roll_back(cx, handle, Cause::error(ErrorCode::NodeFailure));
            }
            State::Completing { .. } => self.complete_without(cx, handle, change),
            State::Committing { .. } | State::AwaitingDisk | State::RollingBack { .. } => {}
        }
    }

    /// Whether one of the replicas that a participant had is lost, or one that was left out of them and may have been
    /// sent something before.
    fn has_lost_replica(&self, participant: &Participant, change: &ViewChange) -> bool {
        let replicas = change.old.owned_by(participant.owner).replicas();
        let may_have_been = |lost: &Member| {
            replicas.contains(lost.node)
                || lost.group == change.old.owned_by(participant.owner).group && self.draining.is_missed(lost)
                || self.draining.is_missed_of(lost, participant.owner)
        };
        change.lost().any(may_have_been)
    }

    /// Rolls back transactions that were inactive for too long, and looks after schema changes that wait.
    pub(crate) fn check_timeouts(&mut self, cx: &mut Context<'_>) {
        cx.send_after(CHECK_INTERVAL, CHECK_TIMER);
        if let Some(timeout) = self.settings.inactive_timeout {
            let now = cx.now();
            self.roll_back_where(cx, Cause::error(ErrorCode::InactiveTimeout), |t| match t.state {
                State::Open { since } => now.since(since) >= timeout,
                State::Preparing { .. }
                | State::InDoubt { .. }
                | State::Committing { .. }
                | State::Completing { .. }
                | State::AwaitingDisk
                | State::RollingBack { .. } => false,
            });
        }
        self.check_waits(cx);
    }
}

/// Whether one of the replicas that a participant had is none any more.
fn has_other_replicas(participant: &Participant, change: &ViewChange) -> bool {
    let replicas = change.old.owned_by(participant.owner).replicas();
    replicas.nodes().any(|node| change.has_left(participant.owner, node))
}
