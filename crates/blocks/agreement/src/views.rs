//! Views that are agreed.

use crate::Agreement;
use crate::tickets::Tickets;
use alloc::sync::Arc;
use alloc::vec::Vec;
use vinga_kernel::Context;
use vinga_wire::view::{ClusterView, Member, ViewChange};
use vinga_wire::{ErrorCode, Frame, SignalNumber, cold};

impl Agreement {
    pub(crate) fn on_view_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let view: ClusterView = cold::read(frame)?;
        self.install(cx, view);
        Some(())
    }

    /// Takes a view that is agreed, unless it is old, and has the threads adopt it.
    pub(crate) fn install(&mut self, cx: &mut Context<'_>, view: ClusterView) {
        if view.number() <= self.view.number() {
            return;
        }
        let own = self.view.member(self.settings.node).map(Member::identity);
        if !view.members().iter().any(|member| Some(member.identity()) == own) {
            let why =
                format_args!("the other data nodes have gone on without this one (view {})", view.number());
            return self.stop(cx, ErrorCode::DeclaredFailed, why);
        }
        let view = Arc::new(view);
        let old = core::mem::replace(&mut self.view, view.clone());
        let change = ViewChange { old, new: view };
        let given_up: Vec<_> = self.peers.given_up().collect();
        assert!(
            change.lost().all(|member| given_up.contains(&member.node)),
            "a member has given up everybody whom a view has lost: it has confirmed that"
        );
        self.peers.keep(&self.view);
        self.tickets = Tickets::of(&self.view, &self.tickets);
        self.reports.clear();
        self.choice = None;
        self.round = None;
        self.led_by = None;
        let driver = cx.driver();
        cold::write(&mut cx.frame(SignalNumber::ViewInstallOrder, driver), &*self.view);
        self.renew_lease(cx);
        // Others may have failed meanwhile.
        self.report(cx);
        self.act(cx);
    }
}
