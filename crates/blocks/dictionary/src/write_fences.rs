//! Write fences stand, and end.
//!
//! Whoever wants a fence is answered when all dictionaries know that the change which made it is over (`orders`). A new
//! president that still notes that change has not answered it, then: it lifts the fence ([`Dictionary`], `finish`), and
//! the owner asks for it once more.
//!
//! The president's dictionary orders all coordinators to let everybody change rows of the table again, and the other
//! dictionaries to forget the fence. Coordinators receive that before anything else that it sends from now on, so they
//! are not awaited. The dictionaries are, before whoever has lifted the fence is answered (`orders`): the next
//! president would keep a fence that it still knows, and as long as its owner is connected nobody else would lift it.
//!
//! While a copy takes the place of the fenced table the fence is not lifted (`SchemaBusy`): what others wrote to the
//! table then would be lost with it.

use crate::{Dictionary, Requester};
use alloc::vec::Vec;
use vinga_base::{Epoch, NodeId};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::schema_round::{RoundName, RoundTask, SchemaRoundRequest};
use vinga_wire::{Address, BlockNumber, SignalNumber, cold};

impl Dictionary {
    /// Everybody may change rows of a table again; `requester` is answered when all dictionaries know that.
    pub(crate) fn lift_fence(&mut self, cx: &mut Context<'_>, table: u32, requester: Option<Requester>) {
        self.fences.remove(&table);
        self.ending_fences.remove(&table);
        self.order_fences(cx, RoundTask::Fence { table, api: 0 }, requester);
    }

    /// A fence that is not known here may be known to other dictionaries: the predecessor's order to lift it may not
    /// have reached them. (Coordinators are not concerned: they have the fences of this president, and perhaps one that
    /// is being made.) But if they are learning now that one of this table is decided, that is the only one that they
    /// can know, and they have to keep it: it is the next one, which will stand here, too. An earlier one was forgotten
    /// by all before they noted this.
    pub(crate) fn lift_unknown_fence(&mut self, cx: &mut Context<'_>, table: u32, requester: Requester) {
        if self.change.as_ref().is_some_and(|change| change.is_deciding_fence_of(table)) {
            cx.mark("write fence is lifted as the next one of its table is decided");
            return self.confirm(cx, requester, None);
        }
        let task = RoundTask::Fence { table, api: 0 };
        self.order_others(cx, RoundName::NO_CHANGE, task, Some((requester, None)));
    }

    /// Has all coordinators and other dictionaries do something about write fences.
    fn order_fences(&mut self, cx: &mut Context<'_>, task: RoundTask, requester: Option<Requester>) {
        let body = SchemaRoundRequest { round: RoundName::NO_CHANGE, epoch: Epoch(0), task };
        let coordinators: Vec<Address> = cx.view().addresses(BlockNumber::Coordinator).collect();
        for coordinator in coordinators {
            cold::write(&mut cx.frame(SignalNumber::SchemaRoundRequest, coordinator), &body);
        }
        let answered = requester.map(|requester| (requester, None));
        self.order_others(cx, body.round, body.task, answered);
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
