//! Orders about API nodes on their way to the blocks of a node, through its membership.
//!
//! What an API node has sent to a block may pass from the thread that reads its connection to another one of the same
//! node. The order that nothing more comes must not overtake it. So a node's blocks get their orders from the
//! membership of their own node, on the same ways; the membership that has admitted the API node sends one order to each
//! other member, whose membership relays it and confirms when all of its blocks have.

use crate::Membership;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::Context;
use vinga_wire::membership::ApiNodeBody;
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber};

/// An order that another membership has sent and not all blocks of this node have confirmed.
struct Relay {
    requester: Address,
    confirm: SignalNumber,
    incarnation: Incarnation,
    /// Never empty.
    awaited: BTreeSet<Address>,
}

/// The orders that are being relayed: one at a time about each API node, as every order is confirmed before the next.
#[derive(Default)]
pub struct Relays(BTreeMap<NodeId, Relay>);

impl Relays {
    /// The member with this id is lost: nobody waits for the confirms any more.
    pub fn forget_requester(&mut self, node: NodeId) {
        self.0.retain(|_, relay| relay.requester.node() != node);
    }

    pub fn check_invariants(&self) {
        assert!(self.0.values().all(|relay| !relay.awaited.is_empty()), "a block has not confirmed");
    }
}

impl Membership {
    /// Sends a signal about an API node to all that may have something of it: the blocks of this node, and for those of
    /// the others their memberships; returns them, as each has to confirm.
    pub(crate) fn notify_all(
        &self,
        cx: &mut Context<'_>,
        signal: SignalNumber,
        api: NodeId,
        incarnation: Incarnation,
    ) -> BTreeSet<Address> {
        let own = cx.own().node();
        let others = cx.view().members().iter().map(|member| member.node).filter(|&node| node != own);
        let memberships: Vec<Address> =
            others.map(|node| Address::new(node, BlockNumber::Membership, 0)).collect();
        for &membership in &memberships {
            cx.frame(signal, membership).put(&ApiNodeBody::new(api, incarnation));
        }
        let mut notified = self.notify_own_blocks(cx, signal, api, incarnation);
        notified.extend(memberships);
        notified
    }

    fn notify_own_blocks(
        &self,
        cx: &mut Context<'_>,
        signal: SignalNumber,
        api: NodeId,
        incarnation: Incarnation,
    ) -> BTreeSet<Address> {
        let own = cx.own().node();
        let blocks = [BlockNumber::Coordinator, BlockNumber::DataManager].into_iter();
        let blocks = blocks.flat_map(|block| cx.view().addresses(block)).filter(|one| one.node() == own);
        let notified: BTreeSet<Address> = blocks.chain(self.settings.own_blocks.iter().copied()).collect();
        for &block in &notified {
            cx.frame(signal, block).put(&ApiNodeBody::new(api, incarnation));
        }
        notified
    }

    /// The membership that has admitted an API node has something to say about it to the blocks of this node.
    pub(crate) fn on_relayed_order(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
        signal: SignalNumber,
        confirm: SignalNumber,
    ) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        let (api, incarnation) = (NodeId(body.api), Incarnation(body.incarnation.get()));
        let awaited = self.notify_own_blocks(cx, signal, api, incarnation);
        assert!(!awaited.is_empty(), "every node has a block that is notified");
        let requester = frame.sender();
        self.relays.0.insert(api, Relay { requester, confirm, incarnation, awaited });
        Some(())
    }

    /// A block of this node has confirmed an order; false if none is relayed that this is about.
    pub(crate) fn relay_confirm(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
        confirm: SignalNumber,
    ) -> Option<bool> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        let api = NodeId(body.api);
        let Some(relay) = self.relays.0.get_mut(&api) else { return Some(false) };
        if relay.confirm != confirm || !crate::closing::is_meant(body, relay.incarnation) {
            return Some(false);
        }
        let was_awaited = relay.awaited.remove(&frame.sender());
        if relay.awaited.is_empty() {
            let body = ApiNodeBody::new(api, relay.incarnation);
            cx.frame(confirm, relay.requester).put(&body);
            self.relays.0.remove(&api);
        }
        Some(was_awaited)
    }
}
