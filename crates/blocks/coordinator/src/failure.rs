//! What happens to transactions when API nodes and data nodes fail, and when nobody continues them.

use crate::ending::Cause;
use crate::participants::Undo;
use crate::transaction::{State, Transaction};
use crate::{CHECK_INTERVAL, Coordinator};
use alloc::vec::Vec;
use vinga_base::pool::Handle;
use vinga_base::{Incarnation, NodeId, TransactionId};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::membership::ApiNodeBody;
use vinga_wire::{ErrorCode, Frame, SignalNumber};

impl Coordinator {
    /// The API node's connections are closed: rolls back the transactions whose commit was not requested, finishes the
    /// others, then confirms.
    pub(crate) fn on_api_connection_closed_order(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        let owner = owner_of(body);
        match self.clients.get_mut(owner) {
            Some(client) if client.open > 0 && !cx.has_bug(InjectedBug::ApiFailureKeepsLocks) => {
                client.closing = Some(frame.sender());
            }
            Some(_) | None => {
                cx.frame(SignalNumber::ApiConnectionClosedConfirm, frame.sender()).put(body);
                return Some(());
            }
        }
        cx.mark("connection of an API node with open transactions closed");
        self.roll_back_where(cx, Cause::error(ErrorCode::ConnectionLost), |t| t.id.owner() == owner);
        Some(())
    }

    /// This incarnation of the API node has failed and will not ask again: drops its outcomes.
    pub(crate) fn on_api_failed_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        let owner = owner_of(body);
        if let Some(client) = self.clients.remove(owner) {
            assert!(client.open == 0, "its connection was closed before");
            for ended in client.outcomes {
                if let Some(marker) = ended.marker {
                    let live = self.routing.alive(marker.chain);
                    self.marker_drops.extend(live.nodes().map(|node| (marker.at(node), ended.id)));
                }
            }
        }
        cx.frame(SignalNumber::ApiFailedConfirm, frame.sender()).put(body);
        Some(())
    }

    /// One of an API node's transactions has ended. Confirms the closing of its connections if this was the last one.
    pub(crate) fn client_transaction_ended(&mut self, cx: &mut Context<'_>, id: TransactionId) {
        let client = self.clients.of(id);
        client.open -= 1;
        if client.open == 0
            && let Some(requester) = client.closing.take()
        {
            let body = ApiNodeBody::new(id.api(), Incarnation(id.owner() & 0xffff));
            cx.frame(SignalNumber::ApiConnectionClosedConfirm, requester).put(&body);
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

    /// A data node has left the view: transactions that it took part in are rolled back if they are undecided, else
    /// they are ended without it.
    pub fn on_node_failed(&mut self, cx: &mut Context<'_>, node: NodeId) {
        self.routing.remove_node(node);
        self.completes.retain(|(data_manager, _)| data_manager.node() != node);
        self.marker_drops.retain(|(data_manager, _)| data_manager.node() != node);
        let touched: Vec<Handle> = self
            .transactions
            .iter()
            .filter(|(_, t)| self.takes_part(t, node))
            .map(|(handle, _)| handle)
            .collect();
        for handle in touched {
            self.go_on_without(cx, handle, node);
        }
    }

    fn takes_part(&self, transaction: &Transaction, node: NodeId) -> bool {
        self.participants.of(transaction.participants).any(|participant| participant.alive.contains(node))
    }

    fn go_on_without(&mut self, cx: &mut Context<'_>, handle: Handle, node: NodeId) {
        let orders = self.orders(cx, handle);
        let transaction = &self.transactions[handle];
        self.participants.each_mut(transaction.participants, |participant| {
            if !participant.alive.contains(node) {
                return;
            }
            participant.alive = participant.alive.without(node);
            assert!(participant.alive.length() > 0, "a node group without live nodes stops the cluster");
            if participant.ended {
                return;
            }
            match transaction.state {
                State::Committing { .. } if participant.holds => {
                    cx.mark("commit sent again without a failed replica");
                    let marker = transaction.marker_at(participant, self.settings.node);
                    orders.commit(cx, participant, transaction.epoch, marker);
                }
                State::RollingBack { .. } => {
                    cx.mark("abort sent again without a failed replica");
                    orders.undo(cx, participant, Undo::Everything);
                }
                State::Committing { .. } | State::Open { .. } | State::Preparing { .. } => {}
            }
        });
        match transaction.state {
            State::Open { .. } | State::Preparing { .. } => {
                self.roll_back(cx, handle, Cause::error(ErrorCode::NodeFailure));
            }
            State::Committing { .. } | State::RollingBack { .. } => {}
        }
    }

    /// Rolls back transactions that were inactive for too long, and looks after schema changes that wait.
    pub(crate) fn check_timeouts(&mut self, cx: &mut Context<'_>) {
        cx.send_after(CHECK_INTERVAL, 0);
        if let Some(timeout) = self.settings.inactive_timeout {
            let now = cx.now();
            self.roll_back_where(cx, Cause::error(ErrorCode::InactiveTimeout), |t| match t.state {
                State::Open { since } => now.since(since) >= timeout,
                State::Preparing { .. } | State::Committing { .. } | State::RollingBack { .. } => false,
            });
        }
        self.check_waits(cx);
    }
}

fn owner_of(body: &ApiNodeBody) -> u32 {
    TransactionId::new(NodeId(body.api), Incarnation(body.incarnation.get()), 1).owner()
}
