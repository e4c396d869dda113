//! API nodes as a coordinator knows them, and the outcomes that they have not confirmed.
//!
//! Each commit that is reported to an API node has a number. Its outcome is kept in a list until the API node confirms
//! that it has seen all outcomes up to some number. So an API node that has lost a connection can ask for an outcome,
//! and gets the right answer as long as this coordinator's node is alive. Nothing is kept of a transaction that was
//! rolled back: one that is neither in the list nor under way was not committed. (If the node fails too, its successor
//! answers from the markers at the data managers.)

use crate::Coordinator;
use alloc::collections::{BTreeMap, VecDeque};
use vinga_base::{Epoch, TransactionId};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::transaction::{Outcome, OutcomeConfirm, OutcomeRequest, OutcomesSeenOrder};
use vinga_wire::view::ReplicaGroup;
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, U32, U64};

/// A transaction that was committed.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub id: TransactionId,
    pub epoch: Epoch,
    /// Where a marker is left.
    pub marker: Option<ReplicaGroup>,
}

/// One incarnation of an API node.
#[derive(Default)]
pub struct Client {
    /// Open transactions.
    pub open: u32,
    /// Outcomes given so far: the number of the newest.
    pub outcome_number: u32,
    /// Outcomes that are not confirmed, oldest first; the last has `outcome_number`.
    pub outcomes: VecDeque<Ended>,
    /// Gets a confirm when the last open transaction has ended; set when the connection was closed.
    pub closing: Option<Address>,
}

/// All API nodes, by [`TransactionId::owner`] (node id and low bits of the incarnation).
#[derive(Default)]
pub struct Clients {
    by_owner: BTreeMap<u32, Client>,
}

impl Clients {
    /// The client of a transaction; made if it was not known.
    #[inline]
    pub fn of(&mut self, id: TransactionId) -> &mut Client {
        self.by_owner.entry(id.owner()).or_default()
    }

    pub fn get_mut(&mut self, owner: u32) -> Option<&mut Client> {
        self.by_owner.get_mut(&owner)
    }

    pub fn remove(&mut self, owner: u32) -> Option<Client> {
        self.by_owner.remove(&owner)
    }

    /// The open transactions of each client.
    pub fn open(&self) -> impl Iterator<Item = (u32, u32)> {
        self.by_owner.iter().map(|(&owner, client)| (owner, client.open))
    }

    pub fn unconfirmed(&self) -> usize {
        self.by_owner.values().map(|c| c.outcomes.len()).sum()
    }
}

impl Client {
    /// Numbers an outcome and keeps it.
    #[inline]
    pub fn push(&mut self, ended: Ended) -> u32 {
        self.outcome_number = self.outcome_number.wrapping_add(1);
        self.outcomes.push_back(ended);
        self.outcome_number
    }

    /// Takes the oldest outcome if its number is not above `seen`. Numbers may wrap; the list is far shorter than half
    /// their range, and a number that lies ahead confirms nothing.
    #[inline]
    fn pop_seen(&mut self, seen: u32) -> Option<Ended> {
        let unconfirmed = self.outcome_number.wrapping_sub(seen);
        if (unconfirmed as usize) < self.outcomes.len() { self.outcomes.pop_front() } else { None }
    }
}

impl Coordinator {
    /// Forgets outcomes that an API node has seen.
    #[inline]
    pub(crate) fn confirm_outcomes(&mut self, cx: &Context<'_>, owner: u32, seen: u32) {
        let Some(client) = self.clients.get_mut(owner) else { return };
        while let Some(ended) = client.pop_seen(seen) {
            if let Some(marker) = ended.marker
                && !cx.has_bug(InjectedBug::SeenOutcomesKeepMarkers)
            {
                let replicas = cx.view().owned_by(marker).replicas();
                self.lazy_orders.drop_marker(marker, replicas, ended.id);
            }
        }
    }

    pub(crate) fn on_outcomes_seen_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<OutcomesSeenOrder>()?;
        let owner = TransactionId(order.owner.get()).owner();
        if owner >> 16 != u32::from(frame.sender().node().0) {
            cx.reject(frame, ErrorCode::NotYourTransaction);
            return Some(());
        }
        self.confirm_outcomes(cx, owner, order.outcomes_seen.get());
        Some(())
    }

    /// Answers whether a transaction was committed. If it is still under way, the answer is sent when it ends.
    pub(crate) fn on_outcome_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (question, _) = frame.head::<OutcomeRequest>()?;
        let id = TransactionId(question.transaction.get());
        let requester = frame.sender();
        if id.api() != requester.node() {
            cx.reject(frame, ErrorCode::NotYourTransaction);
            return Some(());
        }
        let request = question.request.get();
        if let Some(handle) = self.transactions.find(id) {
            cx.mark("outcome asked while the transaction is under way");
            self.transactions[handle].special_mut().asked = Some((requester, request));
            return Some(());
        }
        let found = self.clients.get_mut(id.owner()).and_then(|client| {
            let newest_first = client.outcomes.iter().rev().position(|ended| ended.id == id)?;
            let ended = client.outcomes[client.outcomes.len() - 1 - newest_first];
            Some((ended, client.outcome_number.wrapping_sub(newest_first as u32)))
        });
        let (outcome, epoch, number) = match found {
            Some((Ended { epoch, .. }, number)) => (Outcome::Committed, epoch, number),
            None => (Outcome::NotFound, Epoch(0), 0),
        };
        send_outcome(cx, requester, request, id, outcome, epoch, number);
        Some(())
    }

    /// Keeps an outcome until it is confirmed and returns its number.
    pub(crate) fn keep_outcome(&mut self, cx: &Context<'_>, ended: Ended) -> u32 {
        let client = self.clients.of(ended.id);
        let number = client.push(ended);
        let is_closing = client.closing.is_some();
        if cx.has_bug(InjectedBug::OutcomeForgottenWhenSent)
            || is_closing && cx.has_bug(InjectedBug::ClosedConnectionForgetsOutcomes)
        {
            client.outcomes.clear();
        }
        number
    }
}

/// Answers a question about an outcome.
pub fn send_outcome(
    cx: &mut Context<'_>,
    requester: Address,
    request: u32,
    id: TransactionId,
    outcome: Outcome,
    epoch: Epoch,
    number: u32,
) {
    cx.frame(SignalNumber::OutcomeConfirm, requester).put(&OutcomeConfirm {
        transaction: U64::new(id.0),
        epoch: U64::new(epoch.0),
        request: U32::new(request),
        outcome_number: U32::new(number),
        outcome: outcome as u8,
        unused: [0; 3],
    });
}
