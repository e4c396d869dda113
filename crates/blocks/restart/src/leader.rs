//! The president has data nodes leave that are to stop (`leaving`), then one newcomer after the other become a member,
//! and then primaries handed over (`hand_over`), and partitions moved to other node groups (`placement`).

use crate::hand_over::{HandOvers, NextRest};
use crate::leaving::Leavers;
use crate::newcomer::waiting;
use crate::placement::Places;
use crate::{CANDIDATE_TIMER, KnownStart, Restart};
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

/// A data node that is connected, and no member.
struct Candidate {
    /// As it has greeted.
    member: Member,
    /// Since when.
    since: Tick,
    /// Attempts that have failed since then, or since the members have changed.
    refusals: u32,
    /// When it may be tried next.
    next: Tick,
    /// Whether it may be one of the members, as far as is known.
    fits: bool,
}

/// What the president waits for.
#[derive(Default)]
pub(crate) struct Leader {
    candidates: BTreeMap<NodeId, Candidate>,
    /// The one that was to join last. The one behind it is the next.
    tried: Option<NodeId>,
    /// Whether the dictionary holds schema changes, or is asked to: under which number, and whether it has confirmed.
    hold: Option<(u32, bool)>,
    holds: u32,
    /// A primary that is being handed over.
    pub(crate) hand_overs: HandOvers,
    /// Data nodes that are to stop.
    pub(crate) leavers: Leavers,
    /// Partitions that move to other node groups.
    pub(crate) places: Places,
    /// The change of the view that agreement was asked for, and who joins with it.
    request: Option<(u32, Option<NodeId>)>,
    requests: u32,
    /// A view that is installed, and that this thread is about to adopt.
    installed: ViewNumber,
    /// What each member has reported last that is being sent rows, or the tables.
    reports: BTreeMap<NodeId, NewcomerReport>,
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
    fn next_candidate(&self, view: &ClusterView, now: Tick) -> Option<Member> {
        let may_be_tried = |candidate: &&Candidate| candidate.fits && candidate.next <= now;
        let candidates = self.candidates.values().filter(may_be_tried);
        let candidates = candidates.map(|candidate| &candidate.member);
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
        let candidates = self.candidates.values().filter(|candidate| self.leads && candidate.fits);
        let waiting = candidates.map(move |candidate| KnownStart {
            node: candidate.member.node,
            incarnation: candidate.member.incarnation,
            begun: candidate.since,
            progress: waiting(now.since(candidate.since)),
        });
        self.progress.iter().cloned().chain(waiting)
    }
}

impl Restart {
    /// A data node is connected that is no member.
    pub(crate) fn on_joining_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let JoiningReport { member } = cold::read(frame)?;
        let (since, next) = (cx.now(), cx.now());
        self.leader
            .candidates
            .insert(member.node, Candidate { member, since, refusals: 0, next, fits: true });
        self.go_on(cx);
        Some(())
    }

    /// This node has adopted a view.
    pub(crate) fn lead_in_view(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        let leader = &mut self.leader;
        let is_member =
            |member: &Member| change.new.members().iter().any(|m| m.identity() == member.identity());
        leader.candidates.retain(|_, candidate| !is_member(&candidate.member));
        if change.lost().chain(change.joined()).next().is_some() {
            // What was in their way may have gone: of a node group that was missing somebody may have come.
            let candidates = leader.candidates.values_mut();
            candidates.for_each(|one| (one.refusals, one.next, one.fits) = (0, cx.now(), true));
        }
        let is_on_its_way = |one: &KnownStart| {
            let mut newcomers = change.new.members().iter().filter(|m| !change.new.has_started(m.node));
            newcomers.any(|member| member.identity() == (one.node, one.incarnation))
        };
        leader.progress.take_if(|one| !is_on_its_way(one));
        leader.note_view(change.new.president() == Some(self.settings.node));
        for member in change.lost() {
            self.threads.forget(member.node);
        }
        leader.reports.retain(|node, report| {
            change.new.member(*node).is_some_and(|member| member.incarnation == report.incarnation)
        });
        leader.hand_overs.begin_view();
        leader.places.begin_view();
        self.forget_leavers(change);
        // Transactions of coordinators that have failed are to end before somebody joins who knows nothing of them.
        if change.lost().any(|member| member.coordinators > 0) && newcomer(cx).is_none() {
            if change.new.has_begun_to_leave() && self.leader.hold.is_some() {
                self.hold_schema(cx);
            } else {
                self.release_schema(cx);
            }
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
        if self.end_placing(cx) {
            return;
        }
        let Some(newcomer) = newcomer(cx) else { return self.begin_with_next(cx) };
        let (node, incarnation) = newcomer.identity();
        match newcomer.state {
            MemberState::Starting if self.has_done(&newcomer, NewcomerStep::Informed, None) => {
                self.ask_for(cx, WantedChange::Copy(node, incarnation));
            }
            MemberState::Copying => {
                // Its data managers have made the fragments, with the indexes that tables have by then.
                self.release_schema(cx);
                if self.is_copied(cx, &newcomer) {
                    self.ask_for(cx, WantedChange::Start(node, incarnation));
                }
            }
            MemberState::Starting | MemberState::Started | MemberState::Leaving | MemberState::LeftOut => {}
        }
    }

    /// Whether a member has reported that all its parts of a step are done; if that counts in one view only, in that.
    fn has_done(&self, member: &Member, step: NewcomerStep, view: Option<ViewNumber>) -> bool {
        self.leader.reports.get(&member.node).is_some_and(|report| {
            (report.incarnation, report.step) == (member.incarnation, step)
                && view.is_none_or(|view| report.view == view)
        })
    }

    /// Whether a member has all rows that it is being sent, and all threads know that it is a replica; asks them, if
    /// they were not asked.
    pub(crate) fn is_copied(&mut self, cx: &mut Context<'_>, member: &Member) -> bool {
        let view = cx.view().number();
        if !self.threads.have_been_asked(view) {
            self.ask_threads(cx);
            return false;
        }
        let is_known = self.threads.have_adopted(view) || cx.has_bug(InjectedBug::NewcomerStartsEarly);
        is_known && self.has_done(member, NewcomerStep::Copied, Some(view))
    }

    /// Nobody is on the way: who is to stop leaves, else the next candidate joins, or the next primary is handed over,
    /// or the next partition moves, when no schema change is under way.
    fn begin_with_next(&mut self, cx: &mut Context<'_>) {
        if self.lead_leaving(cx) || self.follow_request(cx) {
            return;
        }
        let view = cx.shared_view();
        let is_kept = view.has_begun_to_leave();
        if is_kept && self.leader.hold.is_some_and(|(_, is_confirmed)| is_confirmed) {
            self.drain(cx);
        }
        let next = self.next_rest(cx);
        // Who joins would be sent a partition that another member of its node group is being sent, too; and changes of
        // rows that one of them has are passed through the other.
        let waits = view.leaving().next().is_some() || view.placing().is_some();
        let candidate = self.leader.next_candidate(&view, cx.now()).filter(|_| !waits);
        let rest = match next {
            NextRest::Rest(rest) => Some(rest),
            NextRest::None => None,
            // Between two primaries no schema change begins, and no partition moves.
            NextRest::Awaited if candidate.is_none() => return,
            NextRest::Awaited => None,
        };
        let placement = if candidate.is_none() && rest.is_none() { self.next_placement(cx) } else { None };
        match (candidate, rest, placement, self.leader.hold) {
            (None, None, None, Some(_)) if is_kept => {}
            (None, None, None, None) if is_kept => self.hold_schema(cx),
            (None, None, None, _) => self.release_schema(cx),
            (Some(member), _, _, Some((_, true))) => self.ask_for(cx, WantedChange::Join(member)),
            (None, Some(rest), _, Some((_, true))) => self.hand_over(cx, rest),
            (None, None, Some(placement), Some((_, true))) => {
                self.ask_for(cx, WantedChange::Place(placement));
            }
            (_, _, _, Some((_, false))) => {}
            (_, _, _, None) => self.hold_schema(cx),
        }
    }

    fn hold_schema(&mut self, cx: &mut Context<'_>) {
        self.leader.holds += 1;
        self.leader.hold = Some((self.leader.holds, false));
        let body = SchemaHold { hold: self.leader.holds };
        cold::write(&mut cx.frame(SignalNumber::SchemaHoldRequest, self.dictionary()), &body);
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
            WantedChange::Copy(..)
            | WantedChange::Start(..)
            | WantedChange::MovePrimary(..)
            | WantedChange::Leave(..)
            | WantedChange::LeaveOut(..)
            | WantedChange::Stay(..)
            | WantedChange::Reorganize(..)
            | WantedChange::Place(..)
            | WantedChange::Copied(..) => None,
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
        let mut pause = self.settings.retry;
        match (joins, reason) {
            (Some(node), ViewChangeRefusal::NotConnected) => {
                cx.mark("newcomer has gone before it could join");
                self.leader.candidates.remove(&node);
            }
            // It would hold up schema changes, and others that wait, if it were tried before the members have changed.
            (Some(node), ViewChangeRefusal::DoesNotFit) => {
                cx.mark("newcomer does not fit the cluster");
                self.leader.candidates.entry(node).and_modify(|candidate| candidate.fits = false);
                cx.log(
                    LogLevel::Warning,
                    format_args!(
                        "data node {node} can't join: it has other partitions than the members, or no place in its node group"
                    ),
                );
            }
            (Some(node), _) => {
                cx.log(LogLevel::Info, format_args!("data node {node} can't join yet: {reason}"));
                if is_of_candidate(reason) {
                    pause = self.pause_candidate(cx, node).min(pause);
                }
            }
            (None, _) => {}
        }
        if joins.is_some() {
            self.leader.tried = joins;
            // Schema changes do not wait for somebody that may never be able to join.
            self.release_schema(cx);
        }
        self.give_up_hand_over(cx);
        // Nothing is asked for in the meantime.
        self.leader.retry = Some(self.begin_timer(cx, pause));
        Some(())
    }

    /// Begins a timer, whose number it returns.
    pub(crate) fn begin_timer(&mut self, cx: &mut Context<'_>, pause: Span) -> u64 {
        self.leader.timers += 1;
        cx.send_after(pause, self.leader.timers);
        self.leader.timers
    }

    /// A candidate was refused: it has the next attempt later and later, as each one holds schema changes. Returns how
    /// much later.
    fn pause_candidate(&mut self, cx: &mut Context<'_>, node: NodeId) -> Span {
        let Some(candidate) = self.leader.candidates.get_mut(&node) else { return self.settings.retry };
        let pause = self.settings.pause_of_candidate(candidate.refusals);
        candidate.refusals += 1;
        candidate.next = cx.now() + pause;
        cx.send_after(pause, CANDIDATE_TIMER);
        pause
    }

    /// What was refused is asked for again.
    pub(crate) fn on_timer(&mut self, cx: &mut Context<'_>, number: u64) {
        let is_retry = self.leader.retry.take_if(|retry| *retry == number).is_some();
        let is_pause = self.leader.places.end_pause(number);
        if self.leader.hand_overs.end_pause(number) || is_pause || is_retry {
            self.go_on(cx);
        }
    }

    /// A newcomer says how far its start is. What the way of this report has taken is nothing that matters to people.
    pub(crate) fn on_newcomer_progress(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let NewcomerProgress { incarnation, progress } = cold::read(frame)?;
        let node = frame.sender().node();
        let is_newcomer =
            |member: &Member| member.identity() == (node, incarnation) && !cx.view().has_started(node);
        if cx.view().members().iter().any(is_newcomer) {
            let begun = Tick(cx.now().0.saturating_sub(progress.elapsed));
            self.leader.progress = Some(KnownStart { node, incarnation, begun, progress });
        }
        Some(())
    }

    pub(crate) fn on_newcomer_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let report: NewcomerReport = cold::read(frame)?;
        self.leader.reports.insert(frame.sender().node(), report);
        self.go_on(cx);
        Some(())
    }
}

/// Whether the reason for which a data node could not join lies in what connects it and the members, which may stay as
/// it is. Others are over soon.
fn is_of_candidate(reason: ViewChangeRefusal) -> bool {
    use ViewChangeRefusal as R;
    matches!(reason, R::NotAgreed | R::NotAnswered | R::MemberLost)
}

/// The member that is not a full one yet.
fn newcomer(cx: &Context<'_>) -> Option<Member> {
    let is_coming = |member: &&Member| matches!(member.state, MemberState::Starting | MemberState::Copying);
    cx.view().members().iter().find(is_coming).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use alloc::vec;
    use vinga_base::{Incarnation, PartitionId};
    use vinga_kernel::testkit::{Harness, Sent};
    use vinga_wire::restart::ClientsBody;

    const RETRY: Span = Span::from_millis(3_000);

    fn address(block: BlockNumber) -> Address {
        Address::new(NodeId(1), block, 0)
    }

    fn member(node: u8, incarnation: u32) -> Member {
        Member::started(NodeId(node), Incarnation(incarnation), 0, 1, 1)
    }

    /// The restart block of the president of three, whose dictionary confirms, and whose agreement refuses everything.
    struct President(Harness<Restart>);

    impl President {
        fn new() -> Self {
            let (node, incarnation) = (NodeId(1), Incarnation(1));
            let block = Restart::new(Settings { node, incarnation, threads: 1, retry: RETRY });
            let view = ClusterView::first(vec![member(1, 1), member(2, 1), member(3, 1)]);
            President(Harness::new(address(BlockNumber::Restart), 1, view, block))
        }

        fn connect(&mut self, member: Member) {
            let driver = address(BlockNumber::Driver);
            self.0
                .send(driver, SignalNumber::JoiningReport, |w| cold::write(w, &JoiningReport { member }))
                .expect("the driver may");
        }

        /// Seconds in which it has asked for a data node to join.
        fn asks(&mut self, seconds: u64, reason: ViewChangeRefusal) -> Vec<(u64, u8)> {
            let mut asked = Vec::new();
            for second in 0..=seconds {
                let sent = |harness: &mut Harness<Restart>| -> Option<Sent> {
                    let of = |one: &Sent| {
                        [SignalNumber::SchemaHoldRequest, SignalNumber::ViewChangeRequest]
                            .contains(&one.signal())
                    };
                    harness.take_sent().into_iter().find(of)
                };
                while let Some(one) = sent(&mut self.0) {
                    if let Some(hold) = cold::read::<SchemaHold>(&one.frame())
                        && one.signal() == SignalNumber::SchemaHoldRequest
                    {
                        let dictionary = address(BlockNumber::Dictionary);
                        self.0
                            .send(dictionary, SignalNumber::SchemaHoldConfirm, |w| cold::write(w, &hold))
                            .expect("a dictionary may");
                        continue;
                    }
                    let ViewChangeRequest { request, change, .. } =
                        cold::read(&one.frame()).expect("it is whole");
                    let WantedChange::Join(member) = change else { panic!("nobody has joined") };
                    asked.push((second, member.node.0));
                    let refuse = ViewChangeRefuse { request, reason };
                    let agreement = address(BlockNumber::Agreement);
                    self.0
                        .send(agreement, SignalNumber::ViewChangeRefuse, |w| cold::write(w, &refuse))
                        .expect("agreement may");
                }
                self.0.advance(Span::from_millis(1_000));
            }
            asked
        }
    }

    #[test]
    fn one_that_is_refused_again_and_again_is_tried_later_and_later() {
        let mut president = President::new();
        president.connect(member(4, 1));
        let of_4 = |seconds: &[u64]| seconds.iter().map(|&second| (second, 4)).collect::<Vec<_>>();
        let asked = president.asks(100, ViewChangeRefusal::NotAgreed);
        assert_eq!(asked, of_4(&[0, 1, 2, 3, 4, 6, 9, 15, 27, 51, 81]));
        // Another one does not wait for it.
        president.connect(member(5, 1));
        let asked = president.asks(6, ViewChangeRefusal::NotAgreed);
        assert_eq!(asked, [0, 1, 2, 3, 4, 6].map(|second| (second, 5)));
        // It has new links: it waits for the end of the wait after the other's refusal.
        president.connect(member(4, 2));
        assert_eq!(president.asks(2, ViewChangeRefusal::NotAgreed), [(2, 4)]);
        // Until both wait for long.
        president.asks(18, ViewChangeRefusal::NotAgreed);
        // Somebody is a member no more.
        president.0.lose_node(NodeId(3));
        let asked = president.asks(5, ViewChangeRefusal::NotAgreed);
        let nodes: Vec<u8> = asked.into_iter().map(|(_, node)| node).take(2).collect();
        assert_eq!(nodes, [4, 5], "in turn");
    }

    /// An API node may have come in the meantime: so it is asked again in each view.
    #[test]
    fn primaries_move_to_whom_all_api_nodes_are_connected_in_this_view() {
        let of_three = |node| Member::started(NodeId(node), Incarnation(1), 0, 3, 1);
        let come = |view: ClusterView, node| {
            view.with_joined(of_three(node)).with_copying(NodeId(node)).with_started(NodeId(node))
        };
        let mut view = (2..=4).fold(ClusterView::first(vec![of_three(1)]), come);
        for partition in 0..3 {
            let partition = PartitionId(partition);
            if view.partition(partition).chain.primary() != NodeId(1) {
                view = view.with_primary(partition, NodeId(1));
            }
        }
        let (node, incarnation) = (NodeId(1), Incarnation(1));
        let block = Restart::new(Settings { node, incarnation, threads: 1, retry: RETRY });
        let mut president = Harness::new(address(BlockNumber::Restart), 1, view, block);
        let clients = |president: &mut Harness<Restart>| {
            let sent = president.take_sent();
            let asked = sent.iter().find(|one| one.signal() == SignalNumber::ClientsRequest);
            let asked = asked.expect("primaries are to move");
            let body: ClientsBody = cold::read(&asked.frame()).expect("it is whole");
            let membership = asked.receiver();
            president
                .send(membership, SignalNumber::ClientsConfirm, |w| cold::write(w, &body))
                .expect("membership may");
            membership.node()
        };
        president.lose_node(NodeId(4));
        let next = clients(&mut president);
        president.lose_node(NodeId(5 - next.0));
        assert_eq!(clients(&mut president), next, "it is asked again");
    }

    #[test]
    fn one_that_waits_for_something_else_is_tried_again_soon() {
        let mut president = President::new();
        president.connect(member(4, 1));
        let asked = president.asks(10, ViewChangeRefusal::NotWhole);
        assert_eq!(asked, [(0, 4), (3, 4), (6, 4), (9, 4)]);
    }
}
