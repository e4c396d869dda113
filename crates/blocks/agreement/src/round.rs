//! A round: the member that leads has all that are left give up the same set, makes sure that nobody goes on without
//! them, and makes the next view.

use crate::choice::list;
use crate::growth::Agreed;
use crate::peers::Peers;
use crate::tickets::resolve;
use crate::{Agreement, SILENT_INTERVALS, Timer};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use vinga_base::NodeId;
use vinga_kernel::{Context, InjectedBug, LogLevel, Span, Tick};
use vinga_wire::agreement::{
    ArbitrationConfirm, ArbitrationRefuse, ArbitrationRequest, FailPrepareConfirm, FailPrepareRefuse,
    FailPrepareRequest, LostMember, TicketState,
};
use vinga_wire::view::{ClusterView, NO_TICKET};
use vinga_wire::{ErrorCode, Frame, SignalNumber, cold};

/// Heartbeat intervals that few members wait before they ask the arbitrator: as long as others may take.
const DEFER_INTERVALS: u64 = 2;

/// How far a round has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Members confirm that they have given up the set.
    Preparing,
    /// The members that are left are few: the others may ask the arbitrator before them.
    Deferring,
    /// The arbitrator is asked.
    Arbitrating,
    /// The leases of the set have not ended yet.
    Waiting,
}

/// What is known of a member that is given up.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    /// When somebody may have answered its heartbeats last, by this node's clock.
    answered: Tick,
    is_gone: bool,
}

/// A round that this node leads.
pub(crate) struct Round {
    number: u32,
    /// Those that are given up.
    failed: BTreeSet<NodeId>,
    /// Those that have not confirmed yet.
    awaited: BTreeSet<NodeId>,
    losses: BTreeMap<NodeId, Loss>,
    /// What was learned in this turn: who was last answered how long ago. When that was by this node's clock is not
    /// known before the next turn, as the thread may have stood still since this one began.
    learned: Vec<(NodeId, Span)>,
    begun: Tick,
    stage: Stage,
    /// What those that have confirmed know of the ticket, and this node.
    tickets: Vec<TicketState>,
    /// The ticket of the next view, when all have confirmed.
    ticket: u64,
    /// The later view to which all that have confirmed have agreed, and this node: those that are given up may have it.
    /// If one of them has not agreed, nobody has it, nor ever will: that one has given up others, and agrees no more.
    later: Option<Agreed>,
    /// The view that the next one is made of, if it is not the present one.
    base: Option<ClusterView>,
}

impl Round {
    /// This node has not run for a while, in which it could not receive confirms.
    pub(crate) fn forgive(&mut self, now: Tick, span: Span) {
        self.begun = now.min(self.begun + span);
    }

    fn note_losses(&mut self, failed: &[NodeId], known: &[LostMember]) {
        for (&node, known) in failed.iter().zip(known) {
            self.learned.push((node, Span(known.unanswered)));
            self.losses.entry(node).or_default().is_gone |= known.is_gone;
        }
    }

    /// A later turn has begun.
    pub(crate) fn begin_turn(&mut self, now: Tick) {
        for (node, unanswered) in self.learned.drain(..) {
            let loss = self.losses.entry(node).or_default();
            loss.answered = loss.answered.max(now - unanswered);
        }
    }

    /// Whether all have given up the same set, and what follows is not decided yet.
    fn is_confirmed(&self) -> bool {
        self.awaited.is_empty() && self.stage == Stage::Preparing
    }

    /// Whether the process of a member that is given up may still run.
    fn may_run(&self, node: NodeId) -> bool {
        self.failed.contains(&node) && !self.losses.get(&node).is_some_and(|loss| loss.is_gone)
    }

    pub(crate) fn check_invariants(&self, peers: &Peers) {
        let given_up: BTreeSet<NodeId> = peers.given_up().collect();
        assert!(self.failed.is_subset(&given_up), "whoever leads has given up the set, too");
        assert!(self.awaited.is_disjoint(&self.failed), "nobody confirms its own failure");
        assert!(self.stage == Stage::Preparing || self.awaited.is_empty(), "all confirm before it goes on");
    }
}

impl Agreement {
    /// Leads the round about these members, unless it is under way.
    pub(crate) fn lead(&mut self, cx: &mut Context<'_>, failed: BTreeSet<NodeId>) {
        if self.round.as_ref().is_some_and(|round| failed.is_subset(&round.failed)) {
            return;
        }
        if self.round.is_some() {
            cx.mark("round about failed data nodes began again");
        }
        self.give_up(cx, failed.iter().copied());
        self.rounds += 1;
        let awaited: BTreeSet<NodeId> = self.peers.served().collect();
        let request = FailPrepareRequest {
            round: self.rounds,
            view: (*self.view).clone(),
            failed: failed.iter().copied().collect(),
        };
        for &node in &awaited {
            cold::write(&mut cx.frame(SignalNumber::FailPrepareRequest, Self::address_of(node)), &request);
        }
        let mut round = Round {
            number: self.rounds,
            losses: BTreeMap::new(),
            learned: Vec::new(),
            begun: cx.now(),
            stage: Stage::Preparing,
            // It changes no more: this node has given up others.
            tickets: alloc::vec![self.tickets.state()],
            ticket: NO_TICKET,
            later: self.growth.agreed().cloned(),
            base: None,
            failed,
            awaited,
        };
        let known = self.known_of(cx.now(), &request.failed);
        round.note_losses(&request.failed, &known);
        self.round = Some(round);
        self.go_on_if_confirmed(cx);
    }

    fn known_of(&self, now: Tick, failed: &[NodeId]) -> Vec<LostMember> {
        failed.iter().map(|&node| self.peers.lost_member(node, now)).collect()
    }

    /// Members that have not confirmed for so long that others would suspect them are suspected.
    pub(crate) fn look_at_round(&mut self, cx: &mut Context<'_>) {
        let Some(round) = &self.round else { return };
        let span = cx.now().since(round.begun);
        match round.stage {
            Stage::Preparing if span >= self.intervals(SILENT_INTERVALS) => {
                cx.mark("data node did not confirm a round");
                self.peers.note_unresponsive(&round.awaited);
                self.act(cx);
            }
            Stage::Arbitrating if span >= self.settings.arbitration_timeout => {
                let failed = list(&round.failed);
                self.stop(
                    cx,
                    ErrorCode::Partitioned,
                    format_args!("data nodes {failed} may have gone on: the arbitrator has not answered"),
                );
            }
            Stage::Preparing | Stage::Deferring | Stage::Arbitrating | Stage::Waiting => {}
        }
    }

    /// Another member leads a round.
    pub(crate) fn on_fail_prepare_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let request: FailPrepareRequest = cold::read(frame)?;
        if request.failed.contains(&self.settings.node) {
            return None;
        }
        let round = request.round;
        if request.view.number() < self.view.number() {
            let refuse = FailPrepareRefuse { round, view: (*self.view).clone() };
            cold::write(&mut cx.frame(SignalNumber::FailPrepareRefuse, frame.sender()), &refuse);
            return Some(());
        }
        if request.view.number() > self.view.number() {
            self.install(cx, request.view);
            if self.is_stopping || !self.peers.has(frame.sender().node()) {
                return Some(());
            }
        }
        // Whoever leads is older than this node, or has given up all older ones: this node leads no more.
        self.round = None;
        self.led_by = Some(frame.sender().node());
        self.give_up(cx, request.failed.iter().copied());
        let failed: Vec<NodeId> = self.peers.given_up().collect();
        let known = self.known_of(cx.now(), &failed);
        let agreed = self.growth.agreed().map(Agreed::attempt);
        let confirm = FailPrepareConfirm { round, failed, known, ticket: self.tickets.state(), agreed };
        cold::write(&mut cx.frame(SignalNumber::FailPrepareConfirm, frame.sender()), &confirm);
        Some(())
    }

    pub(crate) fn on_fail_prepare_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let refuse: FailPrepareRefuse = cold::read(frame)?;
        self.install(cx, refuse.view);
        Some(())
    }

    pub(crate) fn on_fail_prepare_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let confirm: FailPrepareConfirm = cold::read(frame)?;
        let Some(round) = self.round.as_mut().filter(|round| round.number == confirm.round) else {
            return Some(());
        };
        round.note_losses(&confirm.failed, &confirm.known);
        let more: Vec<NodeId> =
            confirm.failed.iter().copied().filter(|node| !round.failed.contains(node)).collect();
        if more.is_empty() {
            round.awaited.remove(&frame.sender().node());
            round.tickets.push(confirm.ticket);
            round.later.take_if(|later| Some(later.attempt()) != confirm.agreed);
            if cx.has_bug(InjectedBug::RoundEndsEarly) {
                round.awaited.clear();
            }
            self.go_on_if_confirmed(cx);
        } else {
            // Either it has to go, or those that it has given up in another one's round, this node perhaps.
            self.reports.note_given_up(frame.sender().node(), cx.now(), &more);
            self.act(cx);
        }
        Some(())
    }

    /// Goes on in a later turn if all have given up the same set.
    fn go_on_if_confirmed(&self, cx: &mut Context<'_>) {
        if let Some(round) = self.round.as_ref().filter(|round| round.is_confirmed()) {
            cx.send_after(Span(1), Timer::RoundWait(round.number).token());
        }
    }

    /// All have given up the same set: whether the others may have gone on without these.
    fn check_split(&mut self, cx: &mut Context<'_>) {
        let Some(round) = &mut self.round else { return };
        let failed = list(&round.failed);
        let lacking = self.view.lack_of(|node| !round.failed.contains(&node));
        assert_eq!(lacking, None, "those that are to go on can be a cluster by themselves");
        // Those that were given up may have that view, and have changed rows without those that it leaves out. So
        // these are not replicas there any more, whether anybody else can go on or not: one that has ended may have
        // done so before. Whoever leads behind this node, with members of this set only, makes the next view of the
        // same one, as they all have agreed to it: so the numbers of these views differ, too.
        //
        // What lacks nothing in that view lacks nothing in the present one. So those that were given up are judged by
        // the present one: not all of them need have agreed.
        let later = round.later.as_ref().map(|later| &later.view);
        let later = later.filter(|later| self.view.leaves_out_in(later));
        let base = later.filter(|_| !cx.has_bug(InjectedBug::LeavingForgottenInSplit));
        if let Some(lack) = base.and_then(|base| base.lack_of(|node| !round.failed.contains(&node))) {
            cx.mark("data nodes stopped that others may have left out of a partition");
            let why = format_args!("data nodes {failed} may have gone on, and {lack} is left in their view");
            return self.stop(cx, ErrorCode::Partitioned, why);
        }
        round.base = base.cloned();
        if round.base.is_some() {
            cx.mark("data nodes went on from a view that leaves one out of a partition");
        }
        let can_go_on = |view: &ClusterView| view.lack_of(|node| round.may_run(node)).is_none();
        let mut can_others = can_go_on(&self.view);
        if let Some(later) = &round.later
            && !can_others
            && can_go_on(&later.view)
            && !cx.has_bug(InjectedBug::GrowthForgottenInSplit)
        {
            cx.mark("data nodes that were given up could go on in a later view");
            can_others = true;
        }
        let resolved = resolve(&round.tickets);
        round.ticket = resolved.kept;
        if !can_others || cx.has_bug(InjectedBug::ArbitratorNotAsked) {
            cx.mark("data nodes went on without arbitration");
            return self.wait_for_leases(cx);
        }
        if resolved.shown == NO_TICKET {
            let why = if resolved.kept == NO_TICKET {
                "there is no arbitrator"
            } else {
                cx.mark("data nodes stopped between two arbitrators");
                "it is not known here whether another arbitrator has taken the place of the one before"
            };
            let why = format_args!("data nodes {failed} may have gone on, and {why}");
            return self.stop(cx, ErrorCode::Partitioned, why);
        }
        round.ticket = resolved.shown;
        let left = self.view.started().filter(|member| !round.failed.contains(&member.node)).count();
        if left * 2 < self.view.started().count() {
            cx.mark("few data nodes let the others ask the arbitrator first");
            round.stage = Stage::Deferring;
            let token = Timer::RoundWait(round.number).token();
            cx.send_after(self.intervals(DEFER_INTERVALS), token);
            return;
        }
        self.ask_arbitrator(cx);
    }

    fn ask_arbitrator(&mut self, cx: &mut Context<'_>) {
        let Some(round) = &mut self.round else { return };
        round.stage = Stage::Arbitrating;
        round.begun = cx.now();
        let next = cx.random().u64(NO_TICKET + 1..);
        let members = self.view.started().map(|member| member.node);
        let members = members.filter(|node| !round.failed.contains(node)).collect();
        let (view, ticket) = (self.view.number(), round.ticket);
        let request = ArbitrationRequest { round: round.number, view, ticket, next, members };
        let driver = cx.driver();
        cold::write(&mut cx.frame(SignalNumber::ArbitrationRequest, driver), &request);
    }

    pub(crate) fn on_arbitration_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let confirm: ArbitrationConfirm = cold::read(frame)?;
        if let Some(round) = &mut self.round
            && round.number == confirm.round
            && round.stage == Stage::Arbitrating
        {
            cx.mark("arbitrator let data nodes go on");
            round.ticket = confirm.ticket;
            self.wait_for_leases(cx);
        }
        Some(())
    }

    pub(crate) fn on_arbitration_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let refuse: ArbitrationRefuse = cold::read(frame)?;
        if self.round.as_ref().is_some_and(|round| round.number == refuse.round) {
            cx.mark("arbitrator stopped data nodes");
            self.stop(cx, ErrorCode::Partitioned, format_args!("the arbitrator decides: {}", refuse.reason));
        }
        Some(())
    }

    /// The members that are given up may answer API nodes as long as they have a lease.
    fn wait_for_leases(&mut self, cx: &mut Context<'_>) {
        let lease = self.intervals(SILENT_INTERVALS);
        let Some(round) = &mut self.round else { return };
        let running = round.failed.iter().filter(|&&node| round.may_run(node));
        let mut over =
            running.map(|node| round.losses.get(node).map_or(cx.now(), |loss| loss.answered) + lease).max();
        if cx.has_bug(InjectedBug::ViewComesLate) {
            over = Some(cx.now() + Span(lease.0 * 10));
        }
        match over.filter(|&over| over > cx.now() && !cx.has_bug(InjectedBug::LeasesIgnored)) {
            Some(over) => {
                cx.mark("next view waited for leases");
                round.stage = Stage::Waiting;
                cx.send_after(over - cx.now(), Timer::RoundWait(round.number).token());
            }
            None => self.commit_round(cx),
        }
    }

    pub(crate) fn on_round_wait_over(&mut self, cx: &mut Context<'_>, number: u32) {
        let Some(round) = self.round.as_ref().filter(|round| round.number == number) else { return };
        match round.stage {
            Stage::Deferring => self.ask_arbitrator(cx),
            Stage::Waiting => self.commit_round(cx),
            Stage::Preparing if round.is_confirmed() => self.check_split(cx),
            Stage::Preparing | Stage::Arbitrating => {}
        }
    }

    /// The next view is agreed.
    fn commit_round(&mut self, cx: &mut Context<'_>) {
        let Some(round) = self.round.take() else { return };
        let failed: Vec<NodeId> = round.failed.iter().copied().collect();
        // Those that were given up may have let API nodes in by then.
        let latest = round.later.as_ref().map_or(&*self.view, |later| &later.view);
        let base = round.base.as_ref().unwrap_or(&self.view);
        let is_left = |node| !round.failed.contains(&node) && !self.peers.is_gone(node);
        if let Some(lack) = base.lack_of(is_left) {
            // One of those that are given up may know that, too, and that nobody goes on without it: it may answer.
            cx.mark("next view was not made as too many of its members have ended");
            let failed = list(&round.failed);
            let why = format_args!("{lack} is left (failed: {failed}; others have ended since)");
            return self.stop(cx, ErrorCode::Partitioned, why);
        }
        let view = base.without_after(&failed, latest).with_ticket(round.ticket);
        cx.log(
            LogLevel::Warning,
            format_args!("view {}: without data nodes {}", view.number(), list(&round.failed)),
        );
        self.install_for_all(cx, view);
    }
}
