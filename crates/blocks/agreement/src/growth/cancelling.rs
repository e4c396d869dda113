//! A change of the view is given up.
//!
//! The president alone could have installed the next view, so nobody has it. But a member that has agreed to it does
//! not know that before the order to forget it comes, and the president may fail before: then those that are left go on
//! from a view that leaves somebody out of a partition, as it may have been installed. For that its primary has come to
//! rest. So the primary stays at rest until no member has agreed to that view any more, or the view has changed: else
//! it could have sent something to a replica that is none then, and that passes it on behind what the coordinator does
//! about it in the next view. Whoever has asked for the change is refused only then.

use crate::Agreement;
use crate::growth::{Agreed, Change};
use alloc::collections::BTreeSet;
use vinga_base::NodeId;
use vinga_kernel::{Context, InjectedBug, LogLevel};
use vinga_wire::agreement::{ViewAttempt, ViewChangeRefusal, ViewChangeRefuse};
use vinga_wire::view::ClusterView;
use vinga_wire::{Address, Frame, SignalNumber, cold};

/// A change that was given up, which would have left somebody out of a partition.
pub(crate) struct Cancelled {
    requester: Address,
    refuse: ViewChangeRefuse,
    attempt: ViewAttempt,
    /// Members that may agree to it still.
    awaited: BTreeSet<NodeId>,
}

impl Cancelled {
    pub(crate) fn check_invariants(&self, view: &ClusterView) {
        assert_eq!(self.attempt.view.0, view.number().0 + 1, "it would have been the next view");
        assert!(!self.awaited.is_empty(), "when all have forgotten it, so has the president");
    }
}

fn cancel(cx: &mut Context<'_>, attempt: ViewAttempt, nodes: impl Iterator<Item = NodeId>) {
    for node in nodes {
        cold::write(&mut cx.frame(SignalNumber::ViewCancelOrder, Agreement::address_of(node)), &attempt);
    }
}

impl Agreement {
    /// The president does not change the view after all.
    pub(crate) fn give_up_growth(&mut self, cx: &mut Context<'_>, reason: ViewChangeRefusal) {
        let Some(change) = self.growth.change.take() else { return };
        let Change { requester, request, attempt, view, newcomer, .. } = change;
        cx.mark("change of the view was given up");
        cx.log(LogLevel::Warning, format_args!("the view is not changed: {reason}"));
        cancel(cx, attempt, self.peers.served().chain(newcomer));
        let own = self.settings.node;
        let others = self.view.members().iter().map(|member| member.node).filter(|&node| node != own);
        let leaves_out = self.view.leaves_out_in(&view) && !cx.has_bug(InjectedBug::CancelledIsNotAwaited);
        let awaited: BTreeSet<NodeId> = others.filter(|_| leaves_out).collect();
        let refuse = ViewChangeRefuse { request, reason };
        self.growth.cancelled = Some(Cancelled { requester, refuse, attempt, awaited });
        self.refuse_if_forgotten(cx);
    }

    /// Once in an interval: what was sent may be lost.
    pub(crate) fn cancel_again(&mut self, cx: &mut Context<'_>) {
        if let Some(Cancelled { attempt, awaited, .. }) = &self.growth.cancelled {
            cancel(cx, *attempt, awaited.iter().copied());
        }
    }

    /// Whoever has asked for a change that was given up is refused, if no member agrees to it any more.
    fn refuse_if_forgotten(&mut self, cx: &mut Context<'_>) {
        if self.growth.cancelled.as_ref().is_some_and(|cancelled| cancelled.awaited.is_empty()) {
            self.refuse_cancelled(cx);
        }
    }

    /// The same in any case, as the view changes.
    pub(crate) fn refuse_cancelled(&mut self, cx: &mut Context<'_>) {
        if let Some(Cancelled { requester, refuse, .. }) = self.growth.cancelled.take() {
            cold::write(&mut cx.frame(SignalNumber::ViewChangeRefuse, requester), &refuse);
        }
    }

    /// The president has given up a change.
    pub(crate) fn on_view_cancel_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let attempt: ViewAttempt = cold::read(frame)?;
        let is_meant =
            |agreed: &mut Agreed| (agreed.president, agreed.attempt) == (frame.sender().node(), attempt);
        if self.growth.agreed.take_if(is_meant).is_some() {
            self.renew_lease(cx);
        }
        if self.is_member() {
            cold::write(&mut cx.frame(SignalNumber::ViewCancelConfirm, frame.sender()), &attempt);
        }
        Some(())
    }

    /// A member agrees no more to a change that was given up.
    pub(crate) fn on_view_cancel_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let attempt: ViewAttempt = cold::read(frame)?;
        if let Some(cancelled) = self.growth.cancelled.as_mut().filter(|one| one.attempt == attempt) {
            cancelled.awaited.remove(&frame.sender().node());
            self.refuse_if_forgotten(cx);
        }
        Some(())
    }
}
