//! A data node joins: its membership is sent all sessions.
//!
//! The registrar sends them when it has adopted a view with the one that has joined. From then on that one is a host
//! like the others, and is asked for each later stage of a session on the same way. A session that is being forgotten
//! is not sent: the newcomer has nothing of it.

use crate::Membership;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::Context;
use vinga_wire::membership::SessionStage;
use vinga_wire::restart::{NewcomerStep, SessionsOrder, StepDoneReport};
use vinga_wire::view::{MemberState, ViewChange};
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber, cold};

impl Membership {
    /// The registrar sends those that have joined all sessions.
    pub(crate) fn inform_joined(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        if change.new.president() != Some(cx.own().node()) {
            return;
        }
        for member in change.joined().filter(|member| member.state == MemberState::Starting) {
            let described = self.sessions.described().map(|(described, _)| described);
            let sessions = described.filter(|described| described.stage != SessionStage::Failed).collect();
            let order = SessionsOrder { sessions, newest: self.sessions.newest() };
            let newcomer = Address::new(member.node, BlockNumber::Membership, 0);
            cold::write(&mut cx.frame(SignalNumber::SessionsOrder, newcomer), &order);
        }
    }

    /// This node has joined: its blocks are notified of all sessions.
    pub(crate) fn on_sessions_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let SessionsOrder { sessions, newest } = cold::read(frame)?;
        if cx.view().president() != Some(frame.sender().node()) {
            return None;
        }
        for (api, incarnation) in newest {
            self.sessions.note_incarnation(NodeId(api), Incarnation(incarnation));
        }
        self.is_joining = true;
        for described in sessions {
            self.begin_stage(cx, described, Address::NONE);
        }
        self.note_informed(cx);
        Some(())
    }

    /// Reports when all blocks know all sessions that this node was sent.
    pub(crate) fn note_informed(&mut self, cx: &mut Context<'_>) {
        if self.is_joining && self.sessions.are_known() {
            self.is_joining = false;
            let report = StepDoneReport { step: NewcomerStep::Informed, view: cx.view().number() };
            let restart = Address::new(cx.own().node(), BlockNumber::Restart, 0);
            cold::write(&mut cx.frame(SignalNumber::StepDoneReport, restart), &report);
        }
    }
}
