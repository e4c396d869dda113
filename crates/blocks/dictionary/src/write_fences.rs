//! Write fences end.
//!
//! The president's dictionary orders all coordinators to let everybody change rows of the table again, and the other
//! dictionaries to forget the fence. Coordinators receive that before anything else that it sends from now on, so they
//! are not awaited. The dictionaries are, before whoever has lifted the fence is answered: the next president would
//! keep a fence that it still knows, and as long as its owner is connected nobody else would lift it. If this node
//! fails before the answer the client asks the next president ([lost data
//! nodes](../../../docs/protocols/lost-data-nodes.md)).

use crate::{Dictionary, Requester};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use vinga_base::{Epoch, NodeId};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::schema_round::{RoundName, RoundTask, SchemaRoundRequest};
use vinga_wire::{Address, BlockNumber, SignalNumber, cold};

/// An order about write fences that the other dictionaries have not confirmed.
#[derive(Debug)]
struct Unconfirmed {
    /// Whoever is answered then, if it is still there.
    requester: Option<Requester>,
    awaited: BTreeSet<Address>,
}

/// Orders about write fences, oldest first. Each dictionary confirms them in this order.
#[derive(Debug, Default)]
pub struct FenceOrders(VecDeque<Unconfirmed>);

impl FenceOrders {
    /// A dictionary has confirmed the oldest that it had not.
    fn note(&mut self, dictionary: Address) {
        let _ = self.0.iter_mut().find_map(|order| order.awaited.remove(&dictionary).then_some(()));
    }

    /// An API node's connections are closed: its id may soon be somebody else's.
    pub fn forget_requester(&mut self, api: NodeId) {
        for order in &mut self.0 {
            order.requester.take_if(|requester| requester.address.node() == api);
        }
    }

    /// A data node has failed.
    pub fn forget_node(&mut self, node: NodeId) {
        for order in &mut self.0 {
            order.awaited.retain(|dictionary| dictionary.node() != node);
        }
    }

    /// The requesters of those that all dictionaries have confirmed.
    fn take_confirmed(&mut self) -> Vec<Requester> {
        let mut answered = Vec::new();
        while self.0.front().is_some_and(|order| order.awaited.is_empty()) {
            answered.extend(self.0.pop_front().and_then(|order| order.requester));
        }
        answered
    }

    pub fn check_invariants(&self) {
        assert!(self.0.iter().all(|order| !order.awaited.is_empty()), "what all have confirmed is over");
    }
}

impl Dictionary {
    /// Everybody may change rows of a table again; `requester` is answered when all dictionaries know that.
    pub(crate) fn lift_fence(&mut self, cx: &mut Context<'_>, table: u32, requester: Option<Requester>) {
        self.fences.remove(&table);
        self.order_fences(cx, RoundTask::Fence { table, api: 0 }, requester);
    }

    /// Has all coordinators and other dictionaries do something about write fences.
    fn order_fences(&mut self, cx: &mut Context<'_>, task: RoundTask, requester: Option<Requester>) {
        let body = SchemaRoundRequest { round: RoundName::NO_CHANGE, epoch: Epoch(0), task };
        let coordinators: Vec<Address> = cx.view().addresses(BlockNumber::Coordinator).collect();
        for coordinator in coordinators {
            cold::write(&mut cx.frame(SignalNumber::SchemaRoundRequest, coordinator), &body);
        }
        self.send_others(cx, body.round, body.task);
        let awaited = Self::others(cx).into_iter().collect();
        self.fence_orders.0.push_back(Unconfirmed { requester, awaited });
        self.answer_lifted(cx);
    }

    /// Another dictionary has done what was ordered about write fences.
    pub(crate) fn on_fences_noted(&mut self, cx: &mut Context<'_>, dictionary: Address) {
        self.fence_orders.note(dictionary);
        self.answer_lifted(cx);
    }

    /// Answers those whose fences are lifted, and known to be by all dictionaries.
    pub(crate) fn answer_lifted(&mut self, cx: &mut Context<'_>) {
        for requester in self.fence_orders.take_confirmed() {
            self.confirm(cx, requester, None);
        }
    }

    /// The write fences of an API node that has gone.
    pub(crate) fn lift_fences_of(&mut self, cx: &mut Context<'_>, api: NodeId) {
        let own: Vec<u32> =
            self.fences.iter().filter(|(_, owner)| **owner == api).map(|(table, _)| *table).collect();
        if own.is_empty() || cx.has_bug(InjectedBug::FenceOutlivesOwner) {
            return;
        }
        cx.mark("fences of an API node are lifted because it has gone");
        for table in own {
            self.lift_fence(cx, table, None);
        }
    }

    /// An API node's connections are closed: its write fences end, whoever lifts them.
    pub(crate) fn note_ending_fences(&mut self, api: NodeId) {
        let own = self.fences.iter().filter(|(_, owner)| **owner == api).map(|(table, _)| *table);
        self.ending_fences.extend(own);
    }

    /// A new president makes sure that all coordinators have the same write fences, those of API nodes that are there.
    pub(crate) fn restate_fences(&mut self, cx: &mut Context<'_>) {
        for table in core::mem::take(&mut self.ending_fences) {
            cx.mark("a new president lifts a write fence whose owner has gone");
            self.fences.remove(&table);
        }
        let owners = self.fences.iter().map(|(&table, &api)| (table, api.0)).collect();
        self.order_fences(cx, RoundTask::Fences { owners }, None);
    }
}
