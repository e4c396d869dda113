//! API nodes as a coordinator knows them, and the outcomes that they have not confirmed.
//!
//! A coordinator knows an API node from the order that it is admitted to the order to forget it. In between its
//! connections may be closed: then nothing that still comes from it is carried out, until it is admitted again.
//!
//! Each commit that is reported to an API node has a number. Its outcome is kept in a list until the API node confirms
//! that it has seen all outcomes up to some number. So an API node that has lost a connection can ask for an outcome,
//! and gets the right answer as long as this coordinator's node is alive. Nothing is kept of a transaction that was
//! rolled back: one that is neither in the list nor under way was not committed. (If the node fails too, its successor
//! answers from the markers at the data managers.)

use crate::Coordinator;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use vinga_base::{Epoch, NodeId, TransactionId};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::membership::ApiNodeBody;
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
    /// It was to be on disk before it was answered, and was answered before.
    pub needs_disk: bool,
}

/// One incarnation of an API node.
pub struct Client {
    /// What the ids of its transactions have in common.
    owner: u32,
    /// Whether what comes from it is carried out.
    is_admitted: bool,
    /// Number of the transaction that it began last here; `None` before the first.
    newest: Option<u64>,
    /// Open transactions.
    pub open: u32,
    /// Outcomes given so far: the number of the newest.
    pub outcome_number: u32,
    /// Outcomes that are not confirmed, oldest first; the last has `outcome_number`.
    pub outcomes: VecDeque<Ended>,
    /// Who gets a confirm when the last open transaction has ended.
    pub closing: Option<Closing>,
}

/// An order of membership that is confirmed when an API node has no open transaction any more.
#[derive(Clone, Copy, Debug)]
pub struct Closing {
    pub requester: Address,
    pub order: ApiNodeBody,
    /// Whether the API node is forgotten then; else it may come back.
    pub forgets: bool,
}

/// All API nodes, by node id: there is one incarnation of each at a time.
pub struct Clients(Vec<Option<Box<Client>>>);

impl Default for Clients {
    fn default() -> Self {
        Clients((0..=u8::MAX).map(|_| None).collect())
    }
}

/// Who an API node is that says to own a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The owner.
    Owner,
    /// The transaction is not one of the admitted incarnation.
    OtherIncarnation,
    /// No incarnation of it is admitted: what comes from it had been read before it was closed.
    Closed,
}

impl Clients {
    /// This incarnation is admitted, for the first time or again.
    fn admit(&mut self, order: &ApiNodeBody) {
        let place = &mut self.0[usize::from(order.api)];
        match place {
            Some(client) => {
                assert!(client.owner == order.owner(), "an earlier incarnation was forgotten before");
                client.is_admitted = true;
            }
            None => *place = Some(Box::new(Client::new(order.owner()))),
        }
    }

    /// An API node has a session, though it may send nothing here at the moment.
    pub fn know(&mut self, order: &ApiNodeBody) {
        self.0[usize::from(order.api)].get_or_insert_with(|| Box::new(Client::new(order.owner())));
    }

    /// What an API node may do with a transaction.
    #[inline]
    pub fn standing(&self, api: NodeId, id: TransactionId) -> Standing {
        match &self.0[usize::from(api.0)] {
            Some(client) if client.is_admitted => {
                if client.owner == id.owner() {
                    Standing::Owner
                } else {
                    Standing::OtherIncarnation
                }
            }
            Some(_) | None => Standing::Closed,
        }
    }

    /// The client of a transaction that is open here.
    #[inline]
    pub fn of(&mut self, id: TransactionId) -> &mut Client {
        self.get_mut(id.owner()).expect("an API node is known as long as it has open transactions")
    }

    #[inline]
    pub fn get_mut(&mut self, owner: u32) -> Option<&mut Client> {
        let client = self.0[(owner >> 16) as usize].as_deref_mut()?;
        (client.owner == owner).then_some(client)
    }

    /// Forgets an API node and returns what was known of it.
    pub fn remove(&mut self, owner: u32) -> Option<Box<Client>> {
        self.0[(owner >> 16) as usize].take_if(|client| client.owner == owner)
    }

    /// The open transactions of each client.
    pub fn open(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0.iter().flatten().map(|client| (client.owner, client.open))
    }

    /// The outcomes that are kept of all clients.
    pub fn outcomes(&self) -> impl Iterator<Item = &Ended> {
        self.0.iter().flatten().flat_map(|client| &client.outcomes)
    }

    pub fn unconfirmed(&self) -> usize {
        self.0.iter().flatten().map(|c| c.outcomes.len()).sum()
    }
}

impl Client {
    fn new(owner: u32) -> Self {
        Client {
            owner,
            is_admitted: true,
            newest: None,
            open: 0,
            outcome_number: 0,
            outcomes: VecDeque::new(),
            closing: None,
        }
    }

    /// Its connections are closed.
    pub fn close(&mut self) {
        self.is_admitted = false;
    }

    /// Notes that a transaction with this number begins. False if its number does not lie ahead of that of the one that
    /// began before it: then it was used already. (An API node sends what it has for a coordinator on one connection,
    /// and numbers it in that order.) Numbers may wrap.
    #[inline]
    pub fn begin(&mut self, id: TransactionId) -> bool {
        const HALF: u64 = 1 << (TransactionId::NUMBER_BITS - 1);
        let number = id.number();
        if let Some(newest) = self.newest {
            let ahead = number.wrapping_sub(newest) % (2 * HALF);
            if ahead == 0 || ahead >= HALF {
                return false;
            }
        }
        self.newest = Some(number);
        true
    }

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
    pub(crate) fn on_api_connected_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<ApiNodeBody>()?;
        self.clients.admit(order);
        cx.frame(SignalNumber::ApiConnectedConfirm, frame.sender()).put(order);
        Some(())
    }

    /// Whether the sender of a signal about a transaction may send it. If not, it is closed, or is so already.
    pub(crate) fn is_owner(&self, cx: &mut Context<'_>, frame: &Frame<'_>, id: TransactionId) -> bool {
        match self.clients.standing(frame.sender().node(), id) {
            Standing::Owner => true,
            Standing::OtherIncarnation => {
                cx.reject(frame, ErrorCode::NotYourTransaction);
                false
            }
            Standing::Closed => {
                cx.mark("signal of a closed API node is not carried out");
                false
            }
        }
    }

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
        let any = TransactionId(order.owner.get());
        if self.is_owner(cx, frame, any) {
            self.confirm_outcomes(cx, any.owner(), order.outcomes_seen.get());
        }
        Some(())
    }

    /// Answers whether a transaction was committed. If it is still under way, the answer is sent when it ends.
    pub(crate) fn on_outcome_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (question, _) = frame.head::<OutcomeRequest>()?;
        let id = TransactionId(question.transaction.get());
        let requester = frame.sender();
        if !self.is_owner(cx, frame, id) {
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
            Some((Ended { epoch, needs_disk: true, .. }, number)) if epoch > self.disk_waits.durable() => {
                (Outcome::NotOnDisk, epoch, number)
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_base::Incarnation;

    #[test]
    fn transactions_begin_in_the_order_of_their_numbers() {
        let id = |number| TransactionId::new(NodeId(145), Incarnation(1), number);
        let mut client = Client::new(id(1).owner());
        let last = (1 << TransactionId::NUMBER_BITS) - 1;
        for (number, may_begin) in [(7, true), (7, false), (6, false), (9, true), (8, false), (1 << 39, true)]
        {
            assert_eq!(client.begin(id(number)), may_begin, "{number}");
        }
        assert!(client.begin(id(last)) && client.begin(id(2)), "numbers wrap");
        assert!(!client.begin(id(last)));
    }
}
