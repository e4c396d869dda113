//! Views that are agreed.

use crate::Agreement;
use crate::tickets::Tickets;
use alloc::sync::Arc;
use alloc::vec::Vec;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::Context;
use vinga_wire::agreement::ViewChangeRefusal;
use vinga_wire::view::{ClusterView, ViewChange};
use vinga_wire::{ErrorCode, Frame, SignalNumber, cold};

impl Agreement {
    /// Whether this node has a view, of which it is a member then.
    pub(crate) fn is_member(&self) -> bool {
        !self.view.members().is_empty()
    }

    /// Whether this start of a node is a member.
    pub(crate) fn has_identity(&self, identity: (NodeId, Incarnation)) -> bool {
        self.view.members().iter().any(|member| member.identity() == identity)
    }

    pub(crate) fn own_identity(&self) -> (NodeId, Incarnation) {
        (self.settings.node, self.settings.incarnation)
    }

    pub(crate) fn on_view_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let view: ClusterView = cold::read(frame)?;
        self.install(cx, view);
        Some(())
    }

    /// This node has made a view that is agreed.
    pub(crate) fn install_for_all(&mut self, cx: &mut Context<'_>, view: ClusterView) {
        self.install(cx, view);
        for node in self.peers.served() {
            self.send_view(cx, node);
        }
    }

    /// Takes a view that is agreed, unless it is old, and has the threads adopt it.
    pub(crate) fn install(&mut self, cx: &mut Context<'_>, view: ClusterView) {
        if view.number() <= self.view.number() || self.has_agreed_to_later(&view) {
            return;
        }
        let own = self.own_identity();
        if !view.members().iter().any(|member| member.identity() == own) {
            let why =
                format_args!("the other data nodes have gone on without this one (view {})", view.number());
            return self.stop(cx, ErrorCode::DeclaredFailed, why);
        }
        self.give_up_growth(cx, ViewChangeRefusal::MemberLost);
        self.refuse_cancelled(cx);
        let view = Arc::new(view);
        let old = core::mem::replace(&mut self.view, view.clone());
        let change = ViewChange { old, new: view };
        let given_up: Vec<_> = self.peers.given_up().collect();
        assert!(
            change.lost().all(|member| given_up.contains(&member.node)),
            "a member has given up everybody whom a view has lost: it has confirmed that"
        );
        let connected = self.growth.begin_view(&self.view);
        self.peers.adopt(&self.view, self.settings.node, &connected, cx.now());
        if change.lost().next().is_none() {
            self.peers.note_all_answered();
        }
        self.tickets = Tickets::of(&self.view, &self.tickets);
        self.reports.clear();
        self.choice = None;
        self.round = None;
        self.led_by = None;
        let driver = cx.driver();
        cold::write(&mut cx.frame(SignalNumber::ViewInstallOrder, driver), &*self.view);
        // Their answers count for the lease from now on.
        self.send_heartbeats(cx, connected);
        self.begin_beats(cx);
        self.renew_lease(cx);
        // Others may have failed meanwhile.
        self.report(cx);
        self.act(cx);
    }

    /// Whether this node, which is no member yet, has agreed to join with a later view: then this one is of a president
    /// that the others have left. It can't be a member of both.
    fn has_agreed_to_later(&self, view: &ClusterView) -> bool {
        !self.is_member() && self.growth.agreed().is_some_and(|agreed| view.number() < agreed.view.number())
    }
}
