//! The president has one newcomer after the other become a member, and then primaries handed over (`hand_over`).

use crate::hand_over::HandOvers;
use crate::newcomer::waiting;
use crate::{KnownStart, Restart};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use vinga_base::{NodeId, ViewNumber};
use vinga_kernel::{Context, InjectedBug, LogLevel, Span, Tick};
use vinga_wire::agreement::{
    ViewChangeConfirm, ViewChangeRefusal, ViewChangeRefuse, ViewChangeRequest, WantedChange,
};
use vinga_wire::restart::{JoiningReport, NewcomerProgress, NewcomerReport, NewcomerStep, SchemaHold};
use vinga_wire::view::{ClusterView, Member, MemberState, ViewChange};
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber, cold};

/// What the president waits for.
#[derive(Default)]
pub(crate) struct Leader {
    /// Connected data nodes that are no members, as they have greeted, and since when.
    candidates: BTreeMap<NodeId, (Member, Tick)>,
    /// The one that was to join last. The one behind it is the next.
    tried: Option<NodeId>,
    /// Whether the dictionary holds schema changes, or is asked to: under which number, and whether it has confirmed.
    hold: Option<(u32, bool)>,
    holds: u32,
    /// A primary that is being handed over.
    pub(crate) hand_overs: HandOvers,
    /// The change of the view that agreement was asked for, and who joins with it.
    request: Option<(u32, Option<NodeId>)>,
    requests: u32,
    /// A view that is installed, and that this thread is about to adopt.
    installed: ViewNumber,
    /// What the newcomer has reported last, and its id.
    report: Option<(NodeId, NewcomerReport)>,
    /// Whether this node is the president.
    leads: bool,
    /// A start of a newcomer as it was reported last, which has begun at this moment of this node's clock.
    progress: Option<KnownStart>,
    /// The number of the timer until a change that was refused is asked for again: nothing is asked for while it runs.
    retry: Option<u64>,
    timers: u64,
}

impl Leader {
    /// Who joins next: each candidate has its turn, though another one may be refused again and again.
    fn next_candidate(&self, view: &ClusterView) -> Option<Member> {
        let candidates = self.candidates.values().map(|(candidate, _)| candidate);
        let (before, behind): (Vec<_>, Vec<_>) =
            candidates.partition(|candidate| Some(candidate.node) <= self.tried);
        // Another start of it is a member as long as the others have not given that up.
        behind.into_iter().chain(before).find(|candidate| !view.has(candidate.node)).cloned()
    }

    pub fn check_invariants(&self) {
        assert!(self.hold.is_none_or(|(number, _)| number == self.holds), "holds are numbered");
        assert!(self.request.is_none_or(|(number, _)| number == self.requests), "requests are numbered");
        let is_held = self.hold.is_some_and(|(_, is_confirmed)| is_confirmed);
        assert!(
            is_held || !self.hand_overs.are_under_way(),
            "no schema changes while a primary is handed over"
        );
    }

    /// Whether this node is the president of the present view.
    pub fn note_view(&mut self, leads: bool) {
        self.leads = leads;
    }

    /// The starts of nodes that join: one that is a member, and those that wait until they may become one. All members
    /// know of these; the president says it.
    pub fn known_starts(&self, now: Tick) -> impl Iterator<Item = KnownStart> {
        let waiting =
            self.candidates.values().filter(|_| self.leads).map(move |(candidate, since)| KnownStart {
                node: candidate.node,
                incarnation: candidate.incarnation,
                begun: *since,
                progress: waiting(now.since(*since)),
            });
        self.progress.iter().cloned().chain(waiting)
    }
}

impl Restart {
    /// A data node is connected that is no member.
    pub(crate) fn on_joining_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let JoiningReport { member } = cold::read(frame)?;
        self.leader.candidates.insert(member.node, (member, cx.now()));
        self.go_on(cx);
        Some(())
    }

    /// This node has adopted a view.
    pub(crate) fn lead_in_view(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        let leader = &mut self.leader;
        let is_member =
            |member: &Member| change.new.members().iter().any(|m| m.identity() == member.identity());
        leader.candidates.retain(|_, (candidate, _)| !is_member(candidate));
        let is_on_its_way = |one: &KnownStart| {
            let mut newcomers = change.new.members().iter().filter(|m| m.state != MemberState::Started);
            newcomers.any(|member| member.identity() == (one.node, one.incarnation))
        };
        leader.progress.take_if(|one| !is_on_its_way(one));
        leader.note_view(change.new.president() == Some(self.settings.node));
        for member in change.lost() {
            self.threads.forget(member.node);
        }
        leader.hand_overs.forget();
        // Transactions of coordinators that have failed are to end before somebody joins who knows nothing of them.
        if change.lost().any(|member| member.coordinators > 0) && newcomer(cx).is_none() {
            self.release_schema(cx);
        }
        self.go_on(cx);
    }

    /// Takes the next step, if there is nothing to wait for.
    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>) {
        let (own, view) = (self.settings.node, cx.shared_view());
        let leader = &self.leader;
        let waits = leader.request.is_some()
            || leader.retry.is_some()
            || leader.hand_overs.are_under_way()
            || view.number() < leader.installed;
        if view.president() != Some(own) || waits {
            return;
        }
        let Some(newcomer) = newcomer(cx) else { return self.begin_with_next(cx) };
        let (node, incarnation) = newcomer.identity();
        let is_done = |step, view_counts: bool| {
            leader.report.is_some_and(|(sender, report)| {
                (sender, report.incarnation, report.step) == (node, incarnation, step)
                    && (!view_counts || report.view == view.number())
            })
        };
        match newcomer.state {
            MemberState::Starting if is_done(NewcomerStep::Informed, false) => {
                self.release_schema(cx);
                self.ask_for(cx, WantedChange::Copy(node, incarnation));
            }
            MemberState::Copying => {
                let is_copied = is_done(NewcomerStep::Copied, true);
                if !self.threads.have_been_asked(view.number()) {
                    self.ask_threads(cx);
                } else if is_copied
                    && (self.threads.have_adopted(view.number())
                        || cx.has_bug(InjectedBug::NewcomerStartsEarly))
                {
                    self.ask_for(cx, WantedChange::Start(node, incarnation));
                }
            }
            MemberState::Starting | MemberState::Started => {}
        }
    }

    /// Nobody is on the way: the next candidate joins, or the next primary is handed over, when no schema change is
    /// under way.
    fn begin_with_next(&mut self, cx: &mut Context<'_>) {
        let view = cx.shared_view();
        let hand_over = self.leader.hand_overs.next(&view);
        match (self.leader.next_candidate(&view), hand_over, self.leader.hold) {
            (None, None, _) => self.release_schema(cx),
            (Some(member), _, Some((_, true))) => self.ask_for(cx, WantedChange::Join(member)),
            (None, Some((partition, node)), Some((_, true))) => self.hand_over(cx, partition, node),
            (_, _, Some((_, false))) => {}
            (_, _, None) => {
                self.leader.holds += 1;
                self.leader.hold = Some((self.leader.holds, false));
                let body = SchemaHold { hold: self.leader.holds };
                cold::write(&mut cx.frame(SignalNumber::SchemaHoldRequest, self.dictionary()), &body);
            }
        }
    }

    fn dictionary(&self) -> Address {
        Address::new(self.settings.node, BlockNumber::Dictionary, 0)
    }

    pub(crate) fn on_schema_hold_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let SchemaHold { hold } = cold::read(frame)?;
        if self.leader.hold == Some((hold, false)) {
            self.leader.hold = Some((hold, true));
            self.go_on(cx);
        }
        Some(())
    }

    pub(crate) fn release_schema(&mut self, cx: &mut Context<'_>) {
        if let Some((hold, _)) = self.leader.hold.take() {
            cold::write(
                &mut cx.frame(SignalNumber::SchemaReleaseOrder, self.dictionary()),
                &SchemaHold { hold },
            );
        }
    }

    pub(crate) fn ask_for(&mut self, cx: &mut Context<'_>, change: WantedChange) {
        self.leader.requests += 1;
        let request = self.leader.requests;
        let joins = match &change {
            WantedChange::Join(member) => Some(member.node),
            WantedChange::Copy(..) | WantedChange::Start(..) | WantedChange::MovePrimary(..) => None,
        };
        self.leader.request = Some((request, joins));
        let body = ViewChangeRequest { request, view: cx.view().number(), change };
        let agreement = Address::new(self.settings.node, BlockNumber::Agreement, 0);
        cold::write(&mut cx.frame(SignalNumber::ViewChangeRequest, agreement), &body);
    }

    pub(crate) fn on_view_change_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let ViewChangeConfirm { request, view } = cold::read(frame)?;
        if self.leader.request.take_if(|(asked, _)| *asked == request).is_some() {
            self.leader.installed = self.leader.installed.max(view);
            self.go_on(cx);
        }
        Some(())
    }

    pub(crate) fn on_view_change_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let ViewChangeRefuse { request, reason } = cold::read(frame)?;
        let Some((_, joins)) = self.leader.request.take_if(|(asked, _)| *asked == request) else {
            return Some(());
        };
        match (joins, reason) {
            (Some(node), ViewChangeRefusal::NotConnected) => {
                cx.mark("newcomer has gone before it could join");
                self.leader.candidates.remove(&node);
            }
            // It would hold up schema changes, and others that wait, as long as it is connected, and longer.
            (Some(node), ViewChangeRefusal::DoesNotFit) => {
                cx.mark("newcomer does not fit the cluster");
                self.leader.candidates.remove(&node);
                cx.log(
                    LogLevel::Warning,
                    format_args!(
                        "data node {node} can't join: it has other partitions than the members, or no place in its node group"
                    ),
                );
            }
            (Some(node), _) => {
                cx.log(LogLevel::Info, format_args!("data node {node} can't join yet: {reason}"));
            }
            (None, _) => {}
        }
        if joins.is_some() {
            self.leader.tried = joins;
            // Schema changes do not wait for somebody that may never be able to join.
            self.release_schema(cx);
        }
        self.give_up_hand_over(cx);
        self.begin_retry(cx);
        Some(())
    }

    /// Nothing is asked for in the meantime.
    fn begin_retry(&mut self, cx: &mut Context<'_>) {
        self.leader.retry = Some(self.begin_timer(cx, self.settings.retry));
    }

    /// Begins a timer, whose number it returns.
    pub(crate) fn begin_timer(&mut self, cx: &mut Context<'_>, pause: Span) -> u64 {
        self.leader.timers += 1;
        cx.send_after(pause, self.leader.timers);
        self.leader.timers
    }

    /// What was refused is asked for again.
    pub(crate) fn on_timer(&mut self, cx: &mut Context<'_>, number: u64) {
        let is_retry = self.leader.retry.take_if(|retry| *retry == number).is_some();
        if self.leader.hand_overs.end_pause(number) || is_retry {
            self.go_on(cx);
        }
    }

    /// A newcomer says how far its start is. What the way of this report has taken is nothing that matters to people.
    pub(crate) fn on_newcomer_progress(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let NewcomerProgress { incarnation, progress } = cold::read(frame)?;
        let node = frame.sender().node();
        let is_newcomer = |member: &Member| {
            member.identity() == (node, incarnation) && member.state != MemberState::Started
        };
        if cx.view().members().iter().any(is_newcomer) {
            let begun = Tick(cx.now().0.saturating_sub(progress.elapsed));
            self.leader.progress = Some(KnownStart { node, incarnation, begun, progress });
        }
        Some(())
    }

    pub(crate) fn on_newcomer_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let report: NewcomerReport = cold::read(frame)?;
        self.leader.report = Some((frame.sender().node(), report));
        self.go_on(cx);
        Some(())
    }
}

/// The member that is not a full one yet.
fn newcomer(cx: &Context<'_>) -> Option<Member> {
    cx.view().members().iter().find(|member| member.state != MemberState::Started).cloned()
}
