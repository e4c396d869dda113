//! Orders to the other dictionaries of which their requesters are answered: that a write fence stands or has ended, and
//! which claim has the schema lock.
//!
//! Whoever has asked is answered when all dictionaries have confirmed the order, so that the next president knows what
//! the requester knows. If this node fails before the answer the client asks the next president ([lost data
//! nodes](../../../docs/protocols/lost-data-nodes.md)).

use crate::{Dictionary, Requester};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use vinga_base::NodeId;
use vinga_kernel::Context;
use vinga_wire::Address;
use vinga_wire::dictionary::TableRecord;
use vinga_wire::schema_round::{RoundName, RoundTask};

/// Whoever is answered when an order is confirmed, and the table that it is answered.
pub(crate) type Answered = (Requester, Option<TableRecord>);

/// An order that the other dictionaries have not confirmed.
#[derive(Debug)]
struct Unconfirmed {
    round: RoundName,
    /// `None` also if it has gone.
    answered: Option<Answered>,
    awaited: BTreeSet<Address>,
}

/// Orders that are not confirmed, oldest first. Each dictionary confirms those with the same name in this order.
#[derive(Debug, Default)]
pub struct Orders(VecDeque<Unconfirmed>);

impl Orders {
    /// A dictionary has confirmed the oldest of this name that it had not.
    fn note(&mut self, dictionary: Address, round: RoundName) {
        let mut named = self.0.iter_mut().filter(|order| order.round == round);
        let _ = named.find_map(|order| order.awaited.remove(&dictionary).then_some(()));
    }

    /// An API node's connections are closed: its id may soon be somebody else's.
    pub fn forget_requester(&mut self, api: NodeId) {
        for order in &mut self.0 {
            order.answered.take_if(|(requester, _)| requester.address.node() == api);
        }
    }

    /// A data node has failed.
    pub fn forget_node(&mut self, node: NodeId) {
        for order in &mut self.0 {
            order.awaited.retain(|dictionary| dictionary.node() != node);
        }
    }

    /// Those to be answered as all dictionaries have confirmed their orders, in order.
    fn take_confirmed(&mut self) -> Vec<Answered> {
        let mut answered = Vec::new();
        while self.0.front().is_some_and(|order| order.awaited.is_empty()) {
            answered.extend(self.0.pop_front().and_then(|order| order.answered));
        }
        answered
    }

    pub fn check_invariants(&self) {
        assert!(
            self.0.front().is_none_or(|order| !order.awaited.is_empty()),
            "what all have confirmed is over"
        );
    }
}

impl Dictionary {
    /// Has all other dictionaries do something; whoever is `answered` is when they have.
    pub(crate) fn order_others(
        &mut self,
        cx: &mut Context<'_>,
        round: RoundName,
        task: RoundTask,
        answered: Option<Answered>,
    ) {
        self.send_others(cx, round, task);
        let awaited = Self::others(cx).into_iter().collect();
        self.orders.0.push_back(Unconfirmed { round, answered, awaited });
        self.answer_ordered(cx);
    }

    /// Another dictionary has done what was ordered.
    pub(crate) fn on_order_done(&mut self, cx: &mut Context<'_>, dictionary: Address, round: RoundName) {
        self.orders.note(dictionary, round);
        self.answer_ordered(cx);
    }

    /// Answers those whose orders all dictionaries have confirmed.
    pub(crate) fn answer_ordered(&mut self, cx: &mut Context<'_>) {
        for (requester, table) in self.orders.take_confirmed() {
            self.confirm(cx, requester, table);
        }
    }
}
