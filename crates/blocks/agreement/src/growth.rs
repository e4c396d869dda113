//! Changes of the view without a failure: a data node joins, is copied to, has started; another replica becomes
//! primary; a data node is to stop, and is left out of one partition after the other.
//!
//! The president makes the next view. All members agree to it before it installs and sends it, and so does the one that
//! joins:
//!
//! ```text
//!   a block asks      ViewPrepareRequest to all      all have agreed
//!  ────────────▶ Change ────────────────────▶ awaited ─────────────▶ the next view
//!                                                │ one refuses, is lost, or does not answer in time
//!                                                ▼
//!                                      ViewCancelOrder: nobody has that view, nor ever will (`cancelling`)
//! ```
//! Failures have priority. A member that has given up another one agrees to no change any more in its view, and a
//! president that gives somebody up gives up the change. So those that are left after a failure find out together
//! whether the next view can be installed somewhere ([`Agreed`]): it can be if all of them have agreed to it. Then they
//! judge by both views who else may go on. If that view leaves somebody out of a partition they go on from it, as those
//! that were given up may have changed rows without that one, and if they lack one of its partitions they stop.
//!
//! The protocol is described in `docs/protocols/agreement.md`.

mod cancelling;
mod stopping;

use crate::{Agreement, SILENT_INTERVALS, Timer};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cancelling::Cancelled;
use vinga_base::{Incarnation, NodeId, ViewNumber};
use vinga_kernel::{Context, InjectedBug, LogLevel, Span, Tick};
use vinga_wire::agreement::{
    LinkBody, ViewAttempt, ViewChangeConfirm, ViewChangeRefusal, ViewChangeRefuse, ViewChangeRequest,
    ViewPrepareRequest, WantedChange,
};
use vinga_wire::commit::{CHAIN_MAX, Chain};
use vinga_wire::view::{ClusterView, Member, MemberState};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, cold};

/// What this node knows of changes without a failure.
#[derive(Default)]
pub(crate) struct Growth {
    /// Data nodes to which all links are open, and that are no members: as long as this node has no view, all that are
    /// connected.
    candidates: BTreeMap<NodeId, Candidate>,
    /// The later view to which this node has agreed.
    agreed: Option<Agreed>,
    /// At the president: the change that is under way.
    change: Option<Change>,
    /// At the president: a change that was given up, and that others may not have forgotten.
    cancelled: Option<Cancelled>,
    /// This data node is about to stop: it agrees to no view that leaves somebody out of a partition.
    leaves_nobody_out: bool,
    /// Attempts that this node has made as president.
    attempts: u32,
}

/// A data node that is connected, and no member.
struct Candidate {
    incarnation: Incarnation,
    /// When something last came from it, or its links were opened.
    received: Tick,
    /// Whether something has come from it: its blocks run when it has connected to all others.
    runs: bool,
}

/// Heartbeat intervals that a data node has from the opening of its links until it sends something.
const STARTING_INTERVALS: u64 = 40;

/// How long a primary may move, or somebody may be left out, at most: operations wait for that, however long intervals
/// are.
const MOVE_MAX: Span = Span::from_millis(500);

/// A later view to which a node has agreed: whether the president has installed it is not known.
#[derive(Clone)]
pub(crate) struct Agreed {
    president: NodeId,
    attempt: ViewAttempt,
    pub(crate) view: ClusterView,
}

/// A change that is under way.
struct Change {
    requester: Address,
    request: u32,
    attempt: ViewAttempt,
    view: ClusterView,
    /// The one that joins.
    newcomer: Option<NodeId>,
    /// Those that have not agreed yet.
    awaited: BTreeSet<NodeId>,
    begun: Tick,
}

impl Agreed {
    /// The president's number of the attempt.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt.attempt
    }
}

impl Growth {
    /// The later view to which this node has agreed.
    pub(crate) fn agreed(&self) -> Option<&Agreed> {
        self.agreed.as_ref()
    }

    /// Whether this start of a node is connected, and no member.
    pub(crate) fn is_candidate(&self, (node, incarnation): (NodeId, Incarnation)) -> bool {
        self.candidates.get(&node).is_some_and(|candidate| candidate.incarnation == incarnation)
    }

    /// Those that are connected, and no members.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = NodeId> {
        self.candidates.keys().copied()
    }

    /// Something has come from a node, which may be a candidate.
    pub(crate) fn note_received(&mut self, node: NodeId, now: Tick) {
        self.candidates.entry(node).and_modify(|candidate| {
            candidate.received = now;
            candidate.runs = true;
        });
    }

    /// This node has not run for a while: that nothing came meanwhile means nothing.
    pub(crate) fn forgive(&mut self, now: Tick, span: Span) {
        for candidate in self.candidates.values_mut() {
            candidate.received = now.min(candidate.received + span);
        }
    }

    /// A view begins. Returns those of its members that were candidates: their links are open.
    pub(crate) fn begin_view(&mut self, view: &ClusterView) -> BTreeSet<NodeId> {
        self.agreed = None;
        let identities = view.members().iter().map(Member::identity);
        let joined: BTreeSet<NodeId> =
            identities.filter(|&identity| self.is_candidate(identity)).map(|(node, _)| node).collect();
        self.candidates.retain(|node, _| !joined.contains(node));
        joined
    }
}

/// The members of a view that are no members of the one before.
fn newcomers<'a>(before: &'a ClusterView, view: &'a ClusterView) -> impl Iterator<Item = &'a Member> {
    let is_known =
        |member: &Member| before.members().iter().any(|other| other.identity() == member.identity());
    view.members().iter().filter(move |member| !is_known(member))
}

/// The view with a change; `None` if this does not fit.
fn next_view(view: &ClusterView, change: &WantedChange) -> Option<ClusterView> {
    let is_at = |node: NodeId, incarnation: Incarnation, state: MemberState| {
        let is_meant = |member: &Member| member.incarnation == incarnation && member.state == state;
        view.member(node).is_some_and(is_meant)
    };
    match *change {
        WantedChange::Join(ref member) => {
            let group = view.members().iter().filter(|other| other.group == member.group).count();
            let data_managers = view.members().first()?.data_managers;
            let fits = !view.has(member.node)
                && member.group <= view.groups()
                && group < CHAIN_MAX
                && member.data_managers == data_managers;
            fits.then(|| view.with_joined(member.clone()))
        }
        WantedChange::Copy(node, incarnation) => {
            is_at(node, incarnation, MemberState::Starting).then(|| view.with_copying(node))
        }
        WantedChange::Start(node, incarnation) => {
            is_at(node, incarnation, MemberState::Copying).then(|| view.with_started(node))
        }
        WantedChange::MovePrimary(partition, node) => {
            let chain = view.partitions().get(usize::from(partition.0))?.chain;
            (chain.contains(node) && chain.primary() != node).then(|| view.with_primary(partition, node))
        }
        WantedChange::Leave(node, incarnation) => {
            let fits = is_at(node, incarnation, MemberState::Started) && view.may_leave(node);
            fits.then(|| view.with_leaving(node))
        }
        WantedChange::LeaveOut(partition) => {
            view.leave_outs().contains(&partition).then(|| view.with_left_out(partition))
        }
        WantedChange::Stay(node, incarnation) => {
            let is_whole = is_at(node, incarnation, MemberState::Leaving);
            let is_needed = is_at(node, incarnation, MemberState::LeftOut) && view.is_needed(node);
            (is_whole || is_needed).then(|| view.with_staying(node))
        }
        WantedChange::Reorganize(reorganizes) => {
            (reorganizes != view.reorganizes()).then(|| view.with_reorganizing(reorganizes))
        }
        WantedChange::Place(placement) => view.may_place(placement).then(|| view.with_placement(placement)),
        WantedChange::Copied(partition, node, incarnation) => {
            let is_placed = view.placing().is_some_and(|(placing, member)| {
                (placing, member.identity()) == (partition, (node, incarnation))
            });
            is_placed.then(|| view.with_copied(partition, node))
        }
    }
}

impl Agreement {
    /// Whether a change without a failure is under way here.
    pub(crate) fn is_growing(&self) -> bool {
        self.growth.change.is_some() || self.growth.cancelled.is_some()
    }

    /// Whether a signal of a data node is accepted that is no member: from one that is to join, or before this node has
    /// a view.
    pub(crate) fn is_for_candidates(&self, frame: &Frame<'_>) -> bool {
        use SignalNumber as S;
        if !self.growth.candidates.contains_key(&frame.sender().node()) {
            return false;
        }
        match frame.signal() {
            Some(
                S::ViewPrepareConfirm
                | S::ViewPrepareRefuse
                | S::NodeHeartbeatRequest
                | S::NodeHeartbeatConfirm,
            ) => true,
            Some(S::ViewPrepareRequest | S::ViewCancelOrder | S::ViewOrder | S::FailPrepareRequest) => {
                !self.is_member()
            }
            _ => false,
        }
    }

    /// All links to a data node are open.
    pub(crate) fn on_link_opened_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let LinkBody { node, incarnation, .. } = cold::read(frame)?;
        if !self.has_identity((node, incarnation)) {
            self.growth.candidates.insert(node, Candidate { incarnation, received: cx.now(), runs: false });
            self.forget_view_of_others();
            // Its answer says that its blocks run.
            self.send_heartbeats(cx, [node]);
            self.begin_beats(cx);
        }
        Some(())
    }

    /// The links to a data node that is no member are closed.
    pub(crate) fn on_candidate_closed(&mut self, cx: &mut Context<'_>, link: LinkBody) {
        if self.growth.is_candidate((link.node, link.incarnation)) {
            self.lose_candidate(cx, link.node);
        }
    }

    fn lose_candidate(&mut self, cx: &mut Context<'_>, node: NodeId) {
        self.growth.candidates.remove(&node);
        self.forget_view_of_others();
        if self.growth.change.as_ref().is_some_and(|change| change.newcomer == Some(node)) {
            self.give_up_growth(cx, ViewChangeRefusal::MemberLost);
        }
    }

    /// This node, which is no member yet, has agreed to a view, and is not connected to anybody of it any more: nobody
    /// can send it. If the whole cluster has started again since, its views have smaller numbers, and this node
    /// joins it.
    fn forget_view_of_others(&mut self) {
        let is_connected = |member: &Member| self.growth.is_candidate(member.identity());
        let is_of_others = |agreed: &Agreed| !agreed.view.members().iter().any(is_connected);
        if !self.is_member() && self.growth.agreed().is_some_and(is_of_others) {
            self.growth.agreed = None;
        }
    }

    /// Once in an interval: closes the links to those that have not answered for so long, so that they, or another
    /// start of them, can connect anew.
    pub(crate) fn look_at_candidates(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        let limit = |candidate: &Candidate| {
            self.intervals(if candidate.runs { SILENT_INTERVALS } else { STARTING_INTERVALS })
        };
        let silent: Vec<(NodeId, Incarnation)> = self
            .growth
            .candidates
            .iter()
            .filter(|(_, candidate)| now.since(candidate.received) >= limit(candidate))
            .map(|(&node, candidate)| (node, candidate.incarnation))
            .collect();
        for (node, incarnation) in silent {
            cx.mark("data node that was no member was silent");
            let text = format_args!("data node {node} (incarnation {incarnation}) is silent, and no member");
            cx.log(LogLevel::Warning, text);
            self.lose_candidate(cx, node);
            self.close_link(cx, LinkBody { node, incarnation, is_gone: false });
        }
    }

    /// A block of this node wants a change.
    pub(crate) fn on_view_change_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let ViewChangeRequest { request, view, change } = cold::read(frame)?;
        if let Err(reason) = self.begin_change(cx, frame.sender(), (request, view), &change) {
            let refuse = ViewChangeRefuse { request, reason };
            cold::write(&mut cx.frame(SignalNumber::ViewChangeRefuse, frame.sender()), &refuse);
        }
        Some(())
    }

    fn begin_change(
        &mut self,
        cx: &mut Context<'_>,
        requester: Address,
        (request, from): (u32, ViewNumber),
        change: &WantedChange,
    ) -> Result<(), ViewChangeRefusal> {
        if self.view.president() != Some(self.settings.node) {
            return Err(ViewChangeRefusal::NotPresident);
        }
        if self.is_growing() || self.tickets.is_changing() {
            return Err(ViewChangeRefusal::OtherChange);
        }
        if !self.is_whole(cx) {
            return Err(ViewChangeRefusal::NotWhole);
        }
        if self.view.number() != from {
            return Err(ViewChangeRefusal::OtherView);
        }
        let view = next_view(&self.view, change).ok_or(ViewChangeRefusal::DoesNotFit)?;
        if self.is_kept_from(&view) {
            return Err(ViewChangeRefusal::NotAgreed);
        }
        let view = view.with_ticket(self.tickets.state().ticket);
        let newcomer = newcomers(&self.view, &view).next().map(Member::identity);
        if newcomer.is_some_and(|newcomer| !self.growth.is_candidate(newcomer)) {
            return Err(ViewChangeRefusal::NotConnected);
        }
        let newcomer = newcomer.map(|(node, _)| node);
        self.growth.attempts += 1;
        let attempt = ViewAttempt { view: view.number(), attempt: self.growth.attempts };
        let mut awaited: BTreeSet<NodeId> = self.peers.served().chain(newcomer).collect();
        let body = ViewPrepareRequest {
            attempt: attempt.attempt,
            change: self.tickets.change(),
            view: view.clone(),
        };
        for &node in &awaited {
            cold::write(&mut cx.frame(SignalNumber::ViewPrepareRequest, Self::address_of(node)), &body);
        }
        if cx.has_bug(InjectedBug::GrowthCountsEarly) {
            awaited.clear();
        }
        if let WantedChange::MovePrimary(..) | WantedChange::LeaveOut(..) = change {
            cx.send_after(MOVE_MAX, Timer::Growth(attempt.attempt).token());
        }
        let begun = cx.now();
        self.growth.change = Some(Change { requester, request, attempt, view, newcomer, awaited, begun });
        self.end_growth_if_agreed(cx);
        Ok(())
    }

    /// The president wants another view.
    pub(crate) fn on_view_prepare_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let ViewPrepareRequest { attempt, change, view } = cold::read(frame)?;
        let president = frame.sender().node();
        let attempt = ViewAttempt { view: view.number(), attempt };
        if self.is_to_join_again(&view) {
            // These would never be silent for long enough: the president asks again and again.
            cx.mark("data node that had joined in a view of its own stopped");
            let why =
                "the other data nodes do not know that this one has joined: they have gone on without it";
            self.stop(cx, ErrorCode::DeclaredFailed, format_args!("{why}"));
            return Some(());
        }
        let agrees = if self.is_member() {
            self.agrees_as_member(president, change, &view)
        } else {
            self.agrees_to_join(president, &view)
        };
        let signal = if agrees {
            // One that this node has agreed to before is given up: its president has begun another one.
            self.growth.agreed = Some(Agreed { president, attempt, view });
            self.renew_lease(cx);
            SignalNumber::ViewPrepareConfirm
        } else {
            cx.mark("data node did not agree to another view");
            SignalNumber::ViewPrepareRefuse
        };
        cold::write(&mut cx.frame(signal, frame.sender()), &attempt);
        Some(())
    }

    /// Whether this member agrees: it has the view before, has given up nobody in it, knows which ticket counts, is
    /// connected to the one that joins, and is not about to stop if the view leaves somebody out.
    fn agrees_as_member(&self, president: NodeId, change: u32, view: &ClusterView) -> bool {
        let tickets = self.tickets.state();
        self.view.president() == Some(president)
            && view.number() == ViewNumber(self.view.number().0 + 1)
            && self.peers.given_up().next().is_none()
            && (tickets.change, tickets.prepared) == (change, None)
            && !self.is_kept_from(view)
            && newcomers(&self.view, view).all(|member| self.growth.is_candidate(member.identity()))
    }

    /// Whether this node has joined in a view that those who have sent a later one have never had: they would have it
    /// join once more.
    fn is_to_join_again(&self, view: &ClusterView) -> bool {
        let since = |view: &ClusterView| view.member(self.settings.node).map(|member| member.since);
        let (own, theirs) = (since(&self.view), since(view));
        view.number() > self.view.number() && own.is_some() && theirs.is_some() && own != theirs
    }

    /// Whether this node, which is no member yet, agrees: it is one in that view, and is connected to all others. A
    /// view older than one that it has agreed to is of a president that the others have left.
    fn agrees_to_join(&self, president: NodeId, view: &ClusterView) -> bool {
        let own = self.own_identity();
        let mut others = view.members().iter().map(Member::identity).filter(|&member| member != own);
        view.members().iter().any(|member| member.identity() == own)
            && view.president() == Some(president)
            && self.growth.agreed.as_ref().is_none_or(|agreed| view.number() >= agreed.view.number())
            && others.all(|member| self.growth.is_candidate(member))
    }

    pub(crate) fn on_view_prepare_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let attempt: ViewAttempt = cold::read(frame)?;
        if let Some(change) = self.growth.change.as_mut().filter(|change| change.attempt == attempt) {
            change.awaited.remove(&frame.sender().node());
            self.end_growth_if_agreed(cx);
        }
        Some(())
    }

    pub(crate) fn on_view_prepare_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let attempt: ViewAttempt = cold::read(frame)?;
        if self.growth.change.as_ref().is_some_and(|change| change.attempt == attempt) {
            self.give_up_growth(cx, ViewChangeRefusal::NotAgreed);
        }
        Some(())
    }

    /// When all have agreed, the next view is installed. This node has given up nobody, or it would not wait any more.
    fn end_growth_if_agreed(&mut self, cx: &mut Context<'_>) {
        let Some(change) = self.growth.change.take_if(|change| change.awaited.is_empty()) else { return };
        let Change { requester, request, view, .. } = change;
        cx.mark("view was changed without a failure");
        let number = view.number();
        cx.log(LogLevel::Info, format_args!("view {number}: {}", describe(&self.view, &view)));
        self.install_for_all(cx, view);
        let confirm = ViewChangeConfirm { request, view: number };
        cold::write(&mut cx.frame(SignalNumber::ViewChangeConfirm, requester), &confirm);
    }

    /// Once in an interval: a change does not wait for answers for ever.
    pub(crate) fn look_at_growth(&mut self, cx: &mut Context<'_>) {
        let limit = self.intervals(SILENT_INTERVALS);
        if self.growth.change.as_ref().is_some_and(|change| cx.now().since(change.begun) >= limit) {
            self.give_up_growth(cx, ViewChangeRefusal::NotAnswered);
        }
        self.cancel_again(cx);
    }

    /// A change that others wait for has lasted for as long as it may.
    pub(crate) fn on_growth_limit(&mut self, cx: &mut Context<'_>, attempt: u32) {
        if self.growth.change.as_ref().is_some_and(|change| change.attempt.attempt == attempt) {
            cx.mark("move of a primary was given up, as members did not agree soon");
            self.give_up_growth(cx, ViewChangeRefusal::NotAnswered);
        }
    }

    pub(crate) fn check_growth(&self) {
        let Growth { candidates, agreed, change, cancelled, .. } = &self.growth;
        let mut candidates = candidates.iter().map(|(&node, candidate)| (node, candidate.incarnation));
        assert!(!candidates.any(|candidate| self.has_identity(candidate)), "no member is a candidate");
        if let Some(agreed) = agreed
            && self.is_member()
        {
            assert_eq!(agreed.view.number().0, self.view.number().0 + 1, "it is the next view");
            assert_eq!(self.view.president(), Some(agreed.president), "the president makes the next view");
        }
        if let Some(cancelled) = cancelled {
            assert!(change.is_none(), "one change is under way at a time");
            cancelled.check_invariants(&self.view);
        }
        let Some(change) = change else { return };
        assert_eq!(self.view.president(), Some(self.settings.node), "the president makes the next view");
        assert_eq!(change.view.number().0, self.view.number().0 + 1, "it is the next view");
        assert!(!change.awaited.is_empty(), "when all have agreed it is installed");
        assert!(self.round.is_none() && self.peers.given_up().next().is_none(), "failures have priority");
        assert!(!self.tickets.is_changing(), "one change is under way at a time");
    }
}

/// What is different in a later view, for the log.
fn describe(before: &ClusterView, view: &ClusterView) -> alloc::string::String {
    let changed = view.members().iter().find(|member| before.member(member.node) != Some(member));
    match changed.map(|member| (member.node, member.incarnation, member.state)) {
        Some((node, incarnation, MemberState::Starting)) => {
            alloc::format!("data node {node} (incarnation {incarnation}) has joined")
        }
        Some((node, incarnation, MemberState::Copying)) => {
            alloc::format!("data node {node} (incarnation {incarnation}) is being sent its rows")
        }
        Some((node, incarnation, MemberState::Started)) => {
            let has_come = before.member(node).is_some_and(|one| one.state == MemberState::Copying);
            let what = if has_come { "has started" } else { "does not stop after all" };
            alloc::format!("data node {node} (incarnation {incarnation}) {what}")
        }
        Some((node, incarnation, MemberState::Leaving)) => {
            alloc::format!("data node {node} (incarnation {incarnation}) is to stop")
        }
        Some((node, _, MemberState::LeftOut)) => {
            alloc::format!("data node {node}, which is to stop, has one partition less")
        }
        None => describe_placement(before, view),
    }
}

/// What is different between two views with the same members in the same states.
fn describe_placement(before: &ClusterView, view: &ClusterView) -> alloc::string::String {
    if before.reorganizes() != view.reorganizes() {
        return match view.reorganizes() {
            true => "the cluster reorganizes: partitions move until each node group has its share".into(),
            false => "the cluster does not reorganize any more".into(),
        };
    }
    let numbered = (0..).zip(before.partitions().iter().zip(view.partitions()));
    let changed = numbered.into_iter().find(|(_, (old, new))| old != new);
    let Some((number, (old, new))) = changed else { return "nothing is different".into() };
    let come = |old: Chain, new: Chain| new.nodes().find(|&node| !old.contains(node));
    if old.group != new.group {
        alloc::format!("partition {number} moves to node group {}", new.group)
    } else if let Some(node) = come(old.copying, new.copying) {
        alloc::format!("data node {node} is being sent the rows of partition {number}")
    } else if let Some(node) = come(old.chain, new.chain) {
        alloc::format!("data node {node} has all rows of partition {number}")
    } else if let Some(node) = come(new.chain, old.chain) {
        alloc::format!("data node {node} has partition {number} no more")
    } else {
        alloc::format!("data node {} is the primary of partition {number}", new.chain.primary())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use vinga_base::PartitionId;

    fn member(node: u8, group: u16) -> Member {
        Member::started(NodeId(node), Incarnation(7), group, 2, 1)
    }

    #[test]
    fn a_change_fits_a_view_or_is_not_made() {
        let view = ClusterView::first(vec![member(1, 0), member(2, 0), member(3, 1)]);
        let fits = |view: &ClusterView, change: WantedChange| next_view(view, &change).is_some();
        let join = WantedChange::Join;
        assert!(fits(&view, join(member(4, 1))));
        assert!(!fits(&view, join(member(3, 1))), "it is a member");
        assert!(fits(&view, join(member(4, 2))), "the first one of a new node group");
        assert!(!fits(&view, join(member(4, 3))), "node groups are numbered in turn");
        assert!(!fits(&view, join(Member { data_managers: 1, ..member(4, 1) })), "it has other partitions");
        let full = ClusterView::first((1..=4).map(|node| member(node, 0)).collect());
        assert!(!fits(&full, join(member(5, 0))), "no chain is longer");

        let (node, first, other) = (NodeId(4), Incarnation(7), Incarnation(8));
        let joined = view.with_joined(member(4, 1));
        assert!(fits(&joined, WantedChange::Copy(node, first)));
        assert!(!fits(&joined, WantedChange::Copy(node, other)), "another start of it");
        assert!(
            !fits(&joined, WantedChange::Start(node, first)) && !fits(&view, WantedChange::Copy(node, first))
        );
        let copying = joined.with_copying(node);
        assert!(fits(&copying, WantedChange::Start(node, first)));
        assert!(!fits(&copying, WantedChange::Start(node, other)));
        assert!(!fits(&copying, WantedChange::Copy(node, first)), "it is being copied to");

        // Partition 1 is the first one of node group 1.
        let to = |partition, node| WantedChange::MovePrimary(PartitionId(partition), NodeId(node));
        assert!(!fits(&copying, to(1, 4)), "it lacks rows");
        let started = copying.with_started(node);
        assert!(fits(&started, to(1, 4)));
        assert!(!fits(&started, to(1, 3)), "it is the primary");
        assert!(!fits(&started, to(1, 1)) && !fits(&started, to(9, 4)));
    }

    #[test]
    fn one_that_the_others_can_do_without_may_leave() {
        let view = ClusterView::first(vec![member(1, 0), member(2, 0), member(3, 1)]);
        let fits = |view: &ClusterView, change: WantedChange| next_view(view, &change).is_some();
        let start = Incarnation(7);
        assert!(!fits(&view, WantedChange::Leave(NodeId(3), start)), "it is the only one of its node group");
        assert!(!fits(&view, WantedChange::Leave(NodeId(2), Incarnation(8))), "another start of it");
        assert!(!fits(&view, WantedChange::LeaveOut(PartitionId(0))), "nobody leaves");
        let leaving = view.with_leaving(NodeId(2));
        assert!(!fits(&leaving, WantedChange::Leave(NodeId(2), start)), "it leaves already");
        assert!(!fits(&leaving, WantedChange::Leave(NodeId(1), start)), "the other one leaves");
        assert!(fits(&leaving, WantedChange::Stay(NodeId(2), start)));
        // Partitions 0 and 2 are those of node group 0; the second one has its primary on node 2.
        assert_eq!(leaving.hand_overs(), [(PartitionId(2), NodeId(1))]);
        assert!(!fits(&leaving, WantedChange::LeaveOut(PartitionId(2))), "it is the primary");
        let moved = leaving.with_primary(PartitionId(2), NodeId(1));
        assert_eq!((moved.hand_overs(), moved.leave_outs()), (vec![], vec![PartitionId(0), PartitionId(2)]));
        assert!(!moved.has_begun_to_leave() && !leaving.leaves_out_in(&moved));
        let partly = moved.with_left_out(PartitionId(0));
        assert!(partly.has_begun_to_leave() && moved.leaves_out_in(&partly));
        assert!(!fits(&partly, WantedChange::Stay(NodeId(2), start)), "nobody needs it");
        assert_eq!(partly.lack_of(|node| node != NodeId(1)), Some(vinga_wire::view::Lack::NodeGroup(0)));
        let left = partly.with_left_out(PartitionId(2));
        assert!(left.has_given_up_all(NodeId(2)) && !partly.has_given_up_all(NodeId(2)));
        assert_eq!(left.lack_of(|node| node != NodeId(2)), None);
    }
}
