//! A data node leaves before it stops, so that nobody notices (`docs/protocols/node-restart.md`).
//!
//! ```text
//!   info: stop  ─▶ a view in  ─▶ its primaries ─▶ it is left out of ─▶ coordinators need ─▶ info: it
//!                  which it      move, a view     the partitions, a    it no more           may stop
//!                  leaves        each             view each
//! ```
//! Its own block asks the president's (`LeaveRequest`), in each view until it leaves or is refused. Where it stands is
//! in the view, so the next president goes on with it. It stays after all if the others can't do without it any more;
//! what it was left out of it is sent again then. Nobody joins meanwhile, and from the moment in which it is left out
//! of a partition until it has stopped no schema is changed: its rows are old then.

use crate::Restart;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::{Context, InjectedBug, LogLevel};
use vinga_wire::agreement::WantedChange;
use vinga_wire::restart::{DrainBody, LeaveBody, LeaveReport};
use vinga_wire::view::{Member, MemberState, ViewChange};
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber, cold};

/// What this data node knows of its own leaving.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Leaving {
    /// It is not to stop.
    #[default]
    Stays,
    /// The president is asked.
    Asks,
    /// The view says that it leaves.
    Leaves,
    /// Nobody needs it any more.
    Left,
}

/// What the president knows of others that leave.
#[derive(Default)]
pub(crate) struct Leavers {
    /// Those that want to, and do not yet.
    wanted: BTreeSet<(NodeId, Incarnation)>,
    /// One that is in no partition any more, and the blocks that may need it still, in the present view.
    draining: Option<(DrainBody, BTreeSet<Address>)>,
    /// Those that need not be asked about any more.
    drained: BTreeSet<(NodeId, Incarnation)>,
}

impl Restart {
    /// This data node is to stop.
    pub(crate) fn on_leave_order(&mut self, cx: &mut Context<'_>) -> Option<()> {
        if self.leaving == Leaving::Stays {
            self.leaving = Leaving::Asks;
        }
        self.follow_leaving(cx);
        Some(())
    }

    /// Asks the president to have this data node leave, or notes how far that has come.
    pub(crate) fn follow_leaving(&mut self, cx: &mut Context<'_>) {
        let node = self.settings.node;
        let leaves = cx.view().is_leaving(node);
        match self.leaving {
            Leaving::Asks | Leaving::Stays if leaves => self.leaving = Leaving::Leaves,
            Leaving::Asks => {
                let Some(president) = cx.view().president() else { return };
                let body = LeaveBody { incarnation: self.settings.incarnation };
                cold::write(&mut cx.frame(SignalNumber::LeaveRequest, Self::address_of(president)), &body);
            }
            Leaving::Leaves if !leaves => self.stay(cx),
            Leaving::Stays | Leaving::Leaves | Leaving::Left => {}
        }
    }

    fn stay(&mut self, cx: &mut Context<'_>) {
        self.leaving = Leaving::Stays;
        self.report_leaving(cx, false);
    }

    fn report_leaving(&self, cx: &mut Context<'_>, is_free: bool) {
        let info = Address::new(self.settings.node, BlockNumber::Info, 0);
        cold::write(&mut cx.frame(SignalNumber::LeaveReport, info), &LeaveReport { is_free });
    }

    pub(crate) fn on_leave_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let LeaveBody { incarnation } = cold::read(frame)?;
        if self.leaving == Leaving::Asks && incarnation == self.settings.incarnation {
            self.stay(cx);
        }
        Some(())
    }

    /// Nobody needs this data node any more.
    pub(crate) fn on_leave_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let LeaveBody { incarnation } = cold::read(frame)?;
        if self.leaving == Leaving::Leaves && incarnation == self.settings.incarnation {
            self.leaving = Leaving::Left;
            self.report_leaving(cx, true);
        }
        Some(())
    }

    /// A data node is to stop, and wants to leave before.
    pub(crate) fn on_leave_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let LeaveBody { incarnation } = cold::read(frame)?;
        self.leader.leavers.wanted.insert((frame.sender().node(), incarnation));
        self.go_on(cx);
        Some(())
    }

    /// A view has begun: what was asked about the one before is asked anew.
    pub(crate) fn forget_leavers(&mut self, change: &ViewChange) {
        let is_member = |one: &(NodeId, Incarnation)| {
            change.new.member(one.0).is_some_and(|member| member.identity() == *one)
        };
        let leavers = &mut self.leader.leavers;
        leavers.wanted.retain(|one| is_member(one) && !change.new.is_leaving(one.0));
        leavers.drained.retain(is_member);
        leavers.draining = None;
    }

    /// What is to be done at once about those that leave, or want to; returns whether agreement was asked for a change.
    pub(crate) fn lead_leaving(&mut self, cx: &mut Context<'_>) -> bool {
        let view = cx.shared_view();
        let needed = view.leaving().find(|member| view.is_needed(member.node));
        if let Some(member) = needed {
            cx.mark("data node that was to stop stays as the others need it");
            let (node, incarnation) = member.identity();
            self.ask_for(cx, WantedChange::Stay(node, incarnation));
            return true;
        }
        // Changes are on their way to who is sent a partition: it must take over the rows that were sent before them.
        let placed = view.placing().map(|(_, target)| target.node);
        let placed = placed.filter(|_| !cx.has_bug(InjectedBug::LeftWhilePlaced));
        let may_be_asked = |(node, _): &(NodeId, Incarnation)| Some(*node) != placed;
        let wanted = self.leader.leavers.wanted.iter();
        for (node, incarnation) in wanted.copied().filter(may_be_asked).collect::<Vec<_>>() {
            self.leader.leavers.wanted.remove(&(node, incarnation));
            let is_started = |state| state == MemberState::Started;
            if view.member(node).is_some_and(|one| one.incarnation == incarnation && is_started(one.state)) {
                if view.may_leave(node) {
                    // It is forgotten when the view has it; if that is refused the retry needs it.
                    self.leader.leavers.wanted.insert((node, incarnation));
                    self.ask_for(cx, WantedChange::Leave(node, incarnation));
                    return true;
                }
                cx.mark("data node that wanted to leave is needed");
                let body = LeaveBody { incarnation };
                cold::write(&mut cx.frame(SignalNumber::LeaveRefuse, Self::address_of(node)), &body);
            }
        }
        false
    }

    /// Asks all that may need a data node which is a replica of nothing any more. No schema change is under way that it
    /// leads, or takes part in.
    pub(crate) fn drain(&mut self, cx: &mut Context<'_>) {
        let view = cx.shared_view();
        let leavers = &mut self.leader.leavers;
        if leavers.draining.is_some() {
            return;
        }
        let left = |node: NodeId, drained: &BTreeSet<(NodeId, Incarnation)>| {
            view.has_given_up_all(node) && !drained.iter().any(|one| one.0 == node)
        };
        let Some(member) = view.leaving().find(|member| left(member.node, &leavers.drained)) else { return };
        let body = DrainBody { view: view.number(), node: member.node };
        let awaited: BTreeSet<Address> = view.addresses(BlockNumber::Coordinator).collect();
        for &address in &awaited {
            cold::write(&mut cx.frame(SignalNumber::DrainRequest, address), &body);
        }
        leavers.draining = Some((body, awaited));
    }

    pub(crate) fn on_drain_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let body: DrainBody = cold::read(frame)?;
        let Some((asked, awaited)) = &mut self.leader.leavers.draining else { return Some(()) };
        if *asked != body || !awaited.remove(&frame.sender()) || !awaited.is_empty() {
            return Some(());
        }
        self.leader.leavers.draining = None;
        if let Some((node, incarnation)) = cx.view().member(body.node).map(Member::identity) {
            cx.mark("data node has left");
            cx.log(LogLevel::Info, format_args!("nobody needs data node {node} any more: it may stop"));
            self.leader.leavers.drained.insert((node, incarnation));
            let body = LeaveBody { incarnation };
            cold::write(&mut cx.frame(SignalNumber::LeaveConfirm, Self::address_of(node)), &body);
        }
        self.go_on(cx);
        Some(())
    }
}
