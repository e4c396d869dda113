//! Agreement: which data nodes are members of the cluster.
//!
//! Each data node sends heartbeats to all others. A member that does not reach another one, because its connections are
//! closed or nothing comes from it, reports that to all. So each has a picture of who reaches whom, and finds which
//! members are to go on: as many as possible that all reach each other. The oldest one of them *leads*. It runs a
//! round: every member that is left *gives up* the others, for good, and confirms which ones it has given up. When all
//! have given up the same set, and nobody else can go on without them (the check against a split), the next view is
//! made and sent to all; the driver has every thread adopt it.
//!
//! ```text
//!   suspicion        all have given up the same      the check is passed          leases are over
//!  ──────────▶ Preparing ─────────────────────▶ (Arbitrating) ─────────▶ Waiting ─────────────────▶ next view
//!                  ▲ │ somebody gives up more           │ refused
//!                  └─┘                                  ▼
//!                                                 this node stops
//! ```
//! The states are those of a round at the one that leads (`round`). What is known of each member, and until when this
//! node can be certain that no others have gone on without it (its *lease*), is in `peers`; who reaches whom in
//! `picture`, what follows from it in `choice`; the arbitrator's part in `arbitrator`, and how another one takes its
//! place in `tickets`; how the view changes without a failure in `growth`. The signals are described in
//! `vinga_wire::agreement`, the protocol in `docs/protocols/agreement.md`.
#![no_std]

extern crate alloc;

mod arbitrator;
mod choice;
mod growth;
mod peers;
mod picture;
mod round;
mod tickets;
mod views;

pub use arbitrator::{Arbitrator, Verdict};
pub use tickets::ArbitratorFound;

use alloc::sync::Arc;
use alloc::vec::Vec;
use growth::Growth;
use peers::Peers;
use picture::Reports;
use round::Round;
use tickets::Tickets;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::{Block, Context, InjectedBug, LogLevel, Scrutiny, Span, Tick};
use vinga_wire::agreement::{
    COUNTS_FOR_NO_LEASE, LeaseOrder, LinkBody, NodeHeartbeatBody, ViewChangeRefusal,
};
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U32, U64, cold};

/// Heartbeat intervals without anything from a member, after which it is suspected.
pub const SILENT_INTERVALS: u64 = 4;

/// Heartbeat intervals from the sending of a heartbeat, in which its answer counts for the lease. Less than
/// [`SILENT_INTERVALS`], so that leases have ended when others go on, though clocks may differ in speed.
pub const LEASE_INTERVALS: u64 = 3;

/// What agreement is configured with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This node.
    pub node: NodeId,
    /// Which start of it.
    pub incarnation: Incarnation,
    /// `HeartbeatIntervalDbDb`: how often each data node sends a heartbeat to each other one.
    pub heartbeat_interval: Span,
    /// `ArbitrationTimeout`: how long the arbitrator's answer is awaited. Whether there is an arbitrator is in the
    /// view: it has a ticket then.
    pub arbitration_timeout: Span,
    /// Whether there are management nodes that arbitrate: then the president sees to it that one of them does.
    pub has_arbitrators: bool,
    /// The drivers of this node's threads that serve API nodes: they are the ones that obey the lease.
    pub drivers: Vec<Address>,
}

/// The agreement block.
pub struct Agreement {
    settings: Settings,
    /// The newest view that is agreed. Threads adopt it when nothing of lost members can reach them any more. That of a
    /// node that is to join has no members before it has.
    view: Arc<ClusterView>,
    peers: Peers,
    /// Whom other members do not reach.
    reports: Reports,
    /// The ticket that counts, and the arbitrator.
    tickets: Tickets,
    /// Changes of the view without a failure.
    growth: Growth,
    /// Which members are to go on, and since when this node has found that, while somebody is suspected.
    choice: Option<(Tick, Vec<NodeId>)>,
    /// The round that this node leads.
    round: Option<Round>,
    /// Whose round this node has confirmed last, in this view.
    led_by: Option<NodeId>,
    /// Rounds begun, to tell their answers apart.
    rounds: u32,
    /// The tick of the turn in which something was last handled.
    turn: Tick,
    /// Whether heartbeats are sent: the first one with the first other member.
    is_beating: bool,
    /// When the next heartbeats are due.
    beat_due: Tick,
    /// The lease that the drivers have.
    lease: Tick,
    /// Members that this node has given up, the latest start of each.
    lost: Vec<LostNode>,
    /// This node is about to stop: it does nothing more.
    is_stopping: bool,
}

/// A data node without which the cluster has gone on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostNode {
    /// What the view had of it.
    pub member: Member,
    /// When this node has given it up.
    pub given_up: Tick,
    /// Why, for people.
    pub why: &'static str,
}

/// What a timer of this block is for; its token has the kind in the low bits.
enum Timer {
    /// Heartbeats are due.
    Beat,
    /// It is a later turn than that in which processes were found to have ended.
    JudgeEnded,
    /// A choice of the members that are to go on may have stood for long enough.
    ChoiceStands,
    /// The wait of this round is over.
    RoundWait(u32),
    /// This attempt to change the view has lasted for as long as it may.
    Growth(u32),
}

impl Timer {
    fn token(self) -> u64 {
        match self {
            Timer::Beat => 0,
            Timer::JudgeEnded => 2,
            Timer::ChoiceStands => 3,
            Timer::RoundWait(round) => u64::from(round) << 8 | 1,
            Timer::Growth(attempt) => u64::from(attempt) << 8 | 4,
        }
    }

    fn from_token(token: u64) -> Self {
        match token & 0xff {
            0 => Timer::Beat,
            2 => Timer::JudgeEnded,
            3 => Timer::ChoiceStands,
            4 => Timer::Growth((token >> 8) as u32),
            _ => Timer::RoundWait((token >> 8) as u32),
        }
    }
}

impl Agreement {
    /// Agreement before its node has started.
    pub fn new(settings: Settings) -> Self {
        Agreement {
            settings,
            view: Arc::default(),
            peers: Peers::default(),
            reports: Reports::default(),
            tickets: Tickets::default(),
            growth: Growth::default(),
            choice: None,
            round: None,
            led_by: None,
            rounds: 0,
            turn: Tick(0),
            is_beating: false,
            beat_due: Tick(0),
            lease: Tick(0),
            lost: Vec::new(),
            is_stopping: false,
        }
    }

    /// Those without which the cluster has gone on, as far as this node was a member then.
    pub fn lost(&self) -> impl Iterator<Item = &LostNode> {
        self.lost.iter().filter(|lost| !self.view.has(lost.member.node))
    }

    /// So many heartbeat intervals.
    pub(crate) fn intervals(&self, count: u64) -> Span {
        Span(self.settings.heartbeat_interval.0 * count)
    }

    pub(crate) fn address_of(node: NodeId) -> Address {
        Address::new(node, BlockNumber::Agreement, 0)
    }

    fn on_timer_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (token, _) = frame.head::<U64>()?;
        match Timer::from_token(token.get()) {
            Timer::Beat => self.on_beat(cx),
            Timer::JudgeEnded => self.on_judge_ended(cx),
            Timer::ChoiceStands => self.act(cx),
            Timer::RoundWait(round) => self.on_round_wait_over(cx, round),
            Timer::Growth(attempt) => self.on_growth_limit(cx, attempt),
        }
        Some(())
    }

    fn heartbeat(&self, sent: U64) -> NodeHeartbeatBody {
        let (view, change) = (U32::new(self.view.number().0), U32::new(self.tickets.change()));
        NodeHeartbeatBody { sent, view, change }
    }

    pub(crate) fn send_heartbeats(&self, cx: &mut Context<'_>, nodes: impl IntoIterator<Item = NodeId>) {
        let body = self.heartbeat(U64::new(cx.now().0));
        for node in nodes {
            cx.frame(SignalNumber::NodeHeartbeatRequest, Self::address_of(node)).put(&body);
        }
    }

    /// Sends heartbeats to all, and will do so again.
    fn beat(&mut self, cx: &mut Context<'_>) {
        self.send_heartbeats(cx, self.peers.served().chain(self.growth.candidates()));
        self.beat_due = cx.now() + self.settings.heartbeat_interval;
        cx.send_after(self.settings.heartbeat_interval, Timer::Beat.token());
    }

    /// Sends heartbeats from now on.
    pub(crate) fn begin_beats(&mut self, cx: &mut Context<'_>) {
        if !self.is_beating {
            self.is_beating = true;
            self.beat(cx);
        }
    }

    /// Once in an interval: heartbeats, and a look at the others.
    fn on_beat(&mut self, cx: &mut Context<'_>) {
        let late = cx.now().since(self.beat_due);
        if late > self.settings.heartbeat_interval {
            cx.mark("data node did not run for longer than a heartbeat interval");
            cx.log(LogLevel::Warning, format_args!("this node did not run for {} ms", late.millis()));
            // What the others have sent meanwhile has not been read yet.
            self.peers.forgive(cx.now(), late);
            self.growth.forgive(cx.now(), late);
            self.round.iter_mut().for_each(|round| round.forgive(cx.now(), late));
        }
        self.look_at_candidates(cx);
        self.beat(cx);
        self.renew_lease(cx);
        self.look_at_growth(cx);
        self.look_at_round(cx);
        self.report(cx);
        self.act(cx);
        self.look_for_arbitrator(cx);
    }

    fn on_node_heartbeat_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<NodeHeartbeatBody>()?;
        let node = frame.sender().node();
        self.peers.note_answered(node);
        // Nobody waits for the leases of one that is no member in this node's view: the answer counts for none.
        let sent = if self.peers.has(node) { body.sent } else { U64::new(COUNTS_FOR_NO_LEASE) };
        let confirm = self.heartbeat(sent);
        cx.frame(SignalNumber::NodeHeartbeatConfirm, frame.sender()).put(&confirm);
        // What it was sent when it joined came before the view, and its answer counted for nothing. It may start before
        // the next interval: without an answer that counts this node would have no lease then.
        if body.view.get() >= self.view.number().0 && self.peers.has_never_confirmed(node) {
            self.send_heartbeats(cx, [node]);
        }
        self.send_missed_view(cx, node, body.view.get());
        self.send_missed_ticket(cx, node, body.view.get(), body.change.get());
        Some(())
    }

    fn on_node_heartbeat_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<NodeHeartbeatBody>()?;
        let node = frame.sender().node();
        if body.sent.get() != COUNTS_FOR_NO_LEASE {
            // Nobody has answered what is not sent yet.
            self.peers.note_confirmed(node, Tick(body.sent.get()).min(cx.now()));
            self.renew_lease(cx);
        }
        self.send_missed_view(cx, node, body.view.get());
        self.send_missed_ticket(cx, node, body.view.get(), body.change.get());
        Some(())
    }

    /// Sends the newest view to a member that does not have it: whoever should have sent it has failed.
    fn send_missed_view(&self, cx: &mut Context<'_>, node: NodeId, has: u32) {
        if self.peers.has(node) && has < self.view.number().0 {
            cx.mark("member had missed a view");
            self.send_view(cx, node);
        }
    }

    fn send_view(&self, cx: &mut Context<'_>, node: NodeId) {
        cold::write(&mut cx.frame(SignalNumber::ViewOrder, Self::address_of(node)), &*self.view);
    }

    /// Until when nobody can have gone on without this node, neither in its view nor in a later one to which it has
    /// agreed. Before it is a member others may do so at any time.
    fn find_lease(&self, cx: &Context<'_>) -> Tick {
        if !self.is_member() {
            return Tick(0);
        }
        let later = self.growth.agreed().map(|agreed| &agreed.view);
        let later = later.filter(|_| !cx.has_bug(InjectedBug::GrowthForgottenInLease));
        let span = self.intervals(LEASE_INTERVALS);
        let lease = |view: &ClusterView| self.peers.lease(view, self.settings.node, cx.now(), span);
        later.map_or(Tick(u64::MAX), lease).min(lease(&self.view))
    }

    /// Tells the drivers until when answers may be sent, if that has changed.
    pub(crate) fn renew_lease(&mut self, cx: &mut Context<'_>) {
        let lease = self.find_lease(cx);
        if lease != self.lease {
            self.lease = lease;
            let order = LeaseOrder { until: U64::new(lease.0) };
            for &driver in &self.settings.drivers {
                cx.frame(SignalNumber::LeaseOrder, driver).put(&order);
            }
        }
    }

    fn on_link_closed_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let report: LinkBody = cold::read(frame)?;
        if self.has_identity((report.node, report.incarnation)) {
            if self.peers.note_closed(report.node, report.is_gone) {
                cx.send_after(Span(1), Timer::JudgeEnded.token());
            } else {
                self.report(cx);
                self.act(cx);
            }
        } else {
            self.on_candidate_closed(cx, report);
        }
        Some(())
    }

    /// Another data node has stopped in order. It says so by its links when nothing of it answers anybody any more:
    /// that is as good as what the system says of processes that have ended, on one machine only.
    fn on_node_ended_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        if self.peers.note_ended(frame.sender().node()) {
            cx.mark("data node said that it has ended");
            cx.send_after(Span(1), Timer::JudgeEnded.token());
        }
        Some(())
    }

    fn on_judge_ended(&mut self, cx: &mut Context<'_>) {
        self.peers.judge_ended(cx.now(), self.intervals(LEASE_INTERVALS));
        self.renew_lease(cx);
        self.report(cx);
        self.act(cx);
    }

    /// Gives up members for good: nothing is accepted from them any more.
    pub(crate) fn give_up(&mut self, cx: &mut Context<'_>, nodes: impl IntoIterator<Item = NodeId>) {
        self.give_up_change(cx, "data nodes have failed");
        self.give_up_growth(cx, ViewChangeRefusal::MemberLost);
        for node in nodes {
            let Some(member) = self.view.member(node).cloned() else { continue };
            if self.peers.give_up(node) {
                let (incarnation, why) = (member.incarnation, self.peers.why(node));
                cx.log(
                    LogLevel::Warning,
                    format_args!("data node {node} (incarnation {incarnation}) is given up: {why}"),
                );
                self.lost.retain(|lost| lost.member.node != node);
                self.lost.push(LostNode { member, given_up: cx.now(), why });
                self.close_link(cx, LinkBody { node, incarnation, is_gone: false });
            }
        }
    }

    pub(crate) fn close_link(&self, cx: &mut Context<'_>, link: LinkBody) {
        let driver = cx.driver();
        cold::write(&mut cx.frame(SignalNumber::LinkCloseOrder, driver), &link);
    }

    /// This node can't go on.
    pub(crate) fn stop(&mut self, cx: &mut Context<'_>, error: ErrorCode, why: core::fmt::Arguments<'_>) {
        self.is_stopping = true;
        self.round = None;
        cx.stop_node_for(error as u16, why);
    }

    fn handle_signal(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        let sender = frame.sender();
        let is_from_peer =
            sender.block() == Some(BlockNumber::Agreement) && sender.node() != self.settings.node;
        if is_from_peer && !self.peers.note_received(sender.node(), cx.now()) {
            if !self.is_for_candidates(frame) {
                cx.mark("signal of a data node that was given up");
                return;
            }
            self.growth.note_received(sender.node(), cx.now());
        }
        let handled = match frame.signal() {
            Some(SignalNumber::NodeHeartbeatRequest) => self.on_node_heartbeat_request(cx, frame),
            Some(SignalNumber::NodeHeartbeatConfirm) => self.on_node_heartbeat_confirm(cx, frame),
            Some(SignalNumber::NodeSuspectReport) => self.on_node_suspect_report(cx, frame),
            Some(SignalNumber::FailPrepareRequest) => self.on_fail_prepare_request(cx, frame),
            Some(SignalNumber::FailPrepareConfirm) => self.on_fail_prepare_confirm(cx, frame),
            Some(SignalNumber::FailPrepareRefuse) => self.on_fail_prepare_refuse(cx, frame),
            Some(SignalNumber::ViewOrder) => self.on_view_order(cx, frame),
            Some(SignalNumber::LinkClosedReport) => self.on_link_closed_report(cx, frame),
            Some(SignalNumber::LinkOpenedReport) => self.on_link_opened_report(cx, frame),
            Some(SignalNumber::ViewChangeRequest) => self.on_view_change_request(cx, frame),
            Some(SignalNumber::ViewPrepareRequest) => self.on_view_prepare_request(cx, frame),
            Some(SignalNumber::ViewPrepareConfirm) => self.on_view_prepare_confirm(cx, frame),
            Some(SignalNumber::ViewPrepareRefuse) => self.on_view_prepare_refuse(cx, frame),
            Some(SignalNumber::ViewCancelOrder) => self.on_view_cancel_order(cx, frame),
            Some(SignalNumber::ViewCancelConfirm) => self.on_view_cancel_confirm(cx, frame),
            Some(SignalNumber::ShutdownCheckRequest) => self.on_shutdown_check_request(cx, frame),
            Some(SignalNumber::NodeEndedReport) => self.on_node_ended_report(cx, frame),
            Some(SignalNumber::ArbitrationConfirm) => self.on_arbitration_confirm(cx, frame),
            Some(SignalNumber::ArbitrationRefuse) => self.on_arbitration_refuse(cx, frame),
            Some(SignalNumber::TicketPrepareRequest) => self.on_ticket_prepare_request(cx, frame),
            Some(SignalNumber::TicketPrepareConfirm) => self.on_ticket_prepare_confirm(cx, frame),
            Some(SignalNumber::TicketPrepareRefuse) => self.on_ticket_prepare_refuse(cx, frame),
            Some(SignalNumber::TicketOrder) => self.on_ticket_order(frame),
            Some(SignalNumber::ArbitratorCheckConfirm) => self.on_arbitrator_check_confirm(cx, frame),
            Some(SignalNumber::ArbitratorCheckRefuse) => self.on_arbitrator_check_refuse(cx, frame),
            Some(SignalNumber::ArbitratorChooseConfirm) => self.on_arbitrator_choose_confirm(cx, frame),
            Some(SignalNumber::ArbitratorChooseRefuse) => self.on_arbitrator_choose_refuse(cx, frame),
            Some(SignalNumber::TimerReport) => self.on_timer_report(cx, frame),
            _ => return cx.reject(frame, ErrorCode::UnexpectedSignal),
        };
        if handled.is_none() {
            cx.reject(frame, ErrorCode::MalformedSignal);
        }
    }
}

impl Block for Agreement {
    /// Begins to send heartbeats, if the cluster begins with this node.
    fn start(&mut self, cx: &mut Context<'_>) {
        self.view = cx.shared_view();
        self.peers = Peers::of(&self.view, self.settings.node, cx.now());
        self.tickets = Tickets::of(&self.view, &self.tickets);
        self.renew_lease(cx);
        if self.view.members().len() > 1 {
            self.begin_beats(cx);
        }
    }

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        if self.turn != cx.now() {
            self.turn = cx.now();
            self.peers.begin_turn(cx.now());
            self.round.iter_mut().for_each(|round| round.begin_turn(cx.now()));
        }
        if !self.is_stopping {
            self.handle_signal(cx, frame);
        }
    }

    fn check_invariants(&self, _: Scrutiny) {
        self.peers.check_invariants(&self.view, self.settings.node);
        self.tickets.check_invariants();
        self.check_growth();
        if let Some(round) = &self.round {
            round.check_invariants(&self.peers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_what_its_timer_is_for() {
        assert!(matches!(Timer::from_token(Timer::Beat.token()), Timer::Beat));
        assert!(matches!(Timer::from_token(Timer::JudgeEnded.token()), Timer::JudgeEnded));
        assert!(matches!(Timer::from_token(Timer::ChoiceStands.token()), Timer::ChoiceStands));
        let token = Timer::RoundWait(u32::MAX).token();
        assert!(matches!(Timer::from_token(token), Timer::RoundWait(u32::MAX)));
    }
}
