//! What this node knows of each other member.

use alloc::collections::{BTreeMap, BTreeSet};
#[cfg(test)]
use alloc::vec;
use alloc::vec::Vec;
use vinga_base::NodeId;
use vinga_kernel::{Span, Tick};
use vinga_wire::agreement::LostMember;
use vinga_wire::view::{ClusterView, Member, Partition};

/// The connections to another member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    Open,
    /// The other one, or something between, has closed them.
    Closed,
    /// The other process has ended. What that proves is judged in a later turn, as this one may have begun long ago.
    Ended,
    /// The other process has ended, and has not gone on without this node before, beyond doubt.
    Gone,
}

/// Another member.
#[derive(Clone, Debug)]
struct Peer {
    link: Link,
    /// When something last came from it.
    received: Tick,
    /// When its heartbeat was last answered, or a later time: that of the turn after.
    answered: Tick,
    /// It is answered in this turn. How long that lasts is not known: the thread may stand still in it.
    is_being_answered: bool,
    /// When the newest of this node's heartbeats that it has answered was sent; `None` before it has answered one so
    /// that it counts for the lease.
    confirmed: Option<Tick>,
    /// It has not confirmed a round in time, though it may answer heartbeats.
    is_unresponsive: bool,
    /// Its connections are closed by this node, for good.
    is_given_up: bool,
}

impl Peer {
    fn new(link: Link, now: Tick) -> Self {
        Peer {
            link,
            received: now,
            answered: now,
            confirmed: None,
            is_unresponsive: false,
            is_given_up: false,
            is_being_answered: false,
        }
    }
}

fn others(view: &ClusterView, own: NodeId) -> impl Iterator<Item = NodeId> + Clone {
    view.members().iter().map(|member| member.node).filter(move |&node| node != own)
}

/// All other members of the newest view.
#[derive(Default)]
pub(crate) struct Peers(BTreeMap<NodeId, Peer>);

impl Peers {
    /// The others in a view that begins now, all of which are connected.
    pub(crate) fn of(view: &ClusterView, own: NodeId, now: Tick) -> Self {
        let others = others(view, own);
        Peers(others.map(|node| (node, Peer::new(Link::Open, now))).collect())
    }

    /// Goes on to a later view: forgets those that are not in it, and adds those that have joined, which are connected
    /// if they are listed.
    pub(crate) fn adopt(&mut self, view: &ClusterView, own: NodeId, connected: &BTreeSet<NodeId>, now: Tick) {
        self.0.retain(|&node, _| view.has(node));
        for node in others(view, own) {
            let link = if connected.contains(&node) { Link::Open } else { Link::Closed };
            self.0.entry(node).or_insert_with(|| Peer::new(link, now));
        }
    }

    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.0.contains_key(&node)
    }

    /// Those that were not given up.
    pub(crate) fn served(&self) -> impl Iterator<Item = NodeId> {
        self.0.iter().filter(|(_, peer)| !peer.is_given_up).map(|(&node, _)| node)
    }

    pub(crate) fn given_up(&self) -> impl Iterator<Item = NodeId> {
        self.0.iter().filter(|(_, peer)| peer.is_given_up).map(|(&node, _)| node)
    }

    /// Something has come from a node. False if nothing is accepted from it.
    pub(crate) fn note_received(&mut self, node: NodeId, now: Tick) -> bool {
        match self.0.get_mut(&node) {
            Some(peer) if !peer.is_given_up => {
                peer.received = now;
                true
            }
            Some(_) | None => false,
        }
    }

    pub(crate) fn note_answered(&mut self, node: NodeId) {
        self.0.entry(node).and_modify(|peer| peer.is_being_answered = true);
    }

    /// Until now all others may have had a lease that begins with this node's answers, as they judged by another view.
    pub(crate) fn note_all_answered(&mut self) {
        for peer in self.0.values_mut() {
            peer.is_being_answered = true;
        }
    }

    /// A later turn has begun: what was answered in the one before was answered by now.
    pub(crate) fn begin_turn(&mut self, now: Tick) {
        for peer in self.0.values_mut().filter(|peer| peer.is_being_answered) {
            peer.is_being_answered = false;
            peer.answered = now;
        }
    }

    /// Whether a member has answered nothing that counts for the lease since it has joined.
    pub(crate) fn has_never_confirmed(&self, node: NodeId) -> bool {
        self.0.get(&node).is_some_and(|peer| peer.confirmed.is_none())
    }

    /// It has answered a heartbeat that was sent at this time.
    pub(crate) fn note_confirmed(&mut self, node: NodeId, sent: Tick) {
        self.0.entry(node).and_modify(|peer| peer.confirmed = peer.confirmed.max(Some(sent)));
    }

    /// Its connections are closed; whether its process has ended. Says whether that is still to be judged.
    pub(crate) fn note_closed(&mut self, node: NodeId, has_ended: bool) -> bool {
        let Some(peer) = self.0.get_mut(&node).filter(|peer| peer.link == Link::Open) else { return false };
        peer.link = if has_ended { Link::Ended } else { Link::Closed };
        has_ended
    }

    /// It has said itself that it has ended. Says whether that is still to be judged.
    pub(crate) fn note_ended(&mut self, node: NodeId) -> bool {
        let Some(peer) = self.0.get_mut(&node).filter(|peer| matches!(peer.link, Link::Open | Link::Closed))
        else {
            return false;
        };
        peer.link = Link::Ended;
        true
    }

    /// In a later turn than that in which it was found that processes have ended. It proves something only if they have
    /// answered a heartbeat of the last `lease`: else they may have gone on without this node before they ended.
    pub(crate) fn judge_ended(&mut self, now: Tick, lease: Span) {
        for peer in self.0.values_mut().filter(|peer| peer.link == Link::Ended) {
            peer.link = if peer.confirmed.is_some_and(|sent| now <= sent + lease) {
                Link::Gone
            } else {
                Link::Closed
            };
        }
    }

    /// This node has not run for a while: that nothing came meanwhile means nothing.
    pub(crate) fn forgive(&mut self, now: Tick, span: Span) {
        for peer in self.0.values_mut() {
            peer.received = now.min(peer.received + span);
        }
    }

    /// These have not confirmed a round in time.
    pub(crate) fn note_unresponsive(&mut self, nodes: &BTreeSet<NodeId>) {
        for (_, peer) in self.0.iter_mut().filter(|(node, _)| nodes.contains(node)) {
            peer.is_unresponsive = true;
        }
    }

    /// Those that are given up, that are not connected, that have not confirmed a round, or of which nothing has come
    /// for so long.
    pub(crate) fn unreached(&self, now: Tick, silent: Span) -> BTreeSet<NodeId> {
        let is_unreached = |peer: &Peer| {
            peer.is_given_up
                || peer.is_unresponsive
                || matches!(peer.link, Link::Closed | Link::Gone)
                || now.since(peer.received) >= silent
        };
        self.0.iter().filter(|(_, peer)| is_unreached(peer)).map(|(&node, _)| node).collect()
    }

    /// Whether a process has ended, and has not gone on without this node before, beyond doubt.
    pub(crate) fn is_gone(&self, node: NodeId) -> bool {
        self.0.get(&node).is_some_and(|peer| peer.link == Link::Gone)
    }

    pub(crate) fn is_given_up(&self, node: NodeId) -> bool {
        self.0.get(&node).is_some_and(|peer| peer.is_given_up)
    }

    /// Gives a member up; false if it was given up before.
    pub(crate) fn give_up(&mut self, node: NodeId) -> bool {
        let peer = self.0.get_mut(&node).expect("it is a member of the newest view");
        !core::mem::replace(&mut peer.is_given_up, true)
    }

    /// Why a member is given up, for the log.
    pub(crate) fn why(&self, node: NodeId) -> &'static str {
        match self.0.get(&node).map(|peer| peer.link) {
            Some(Link::Gone) => "its process has ended",
            Some(Link::Closed) => "its connections were closed",
            Some(Link::Open | Link::Ended) | None => "it is silent, or not all others reach it",
        }
    }

    pub(crate) fn lost_member(&self, node: NodeId, now: Tick) -> LostMember {
        let peer = &self.0[&node];
        let unanswered = if peer.is_being_answered { Span(0) } else { now.since(peer.answered) };
        LostMember { unanswered: unanswered.0, is_gone: peer.link == Link::Gone }
    }

    /// Until when this node is certain that no others have gone on without it, if they judge by this view. They would
    /// have stopped to answer its heartbeats, and they would have to lack no partition; so the lease lasts so long from
    /// the latest heartbeat for which too few have stopped.
    ///
    /// Started members count for each partition that they have or are to have, by their node groups: for those, too,
    /// that they were left out of, and that they are being sent. So the lease is never too long; it may be shorter than
    /// it could be. And it is no longer in a view than in the next one, which somebody else may have already, when that
    /// one leaves somebody out or gives a partition a replica.
    ///
    /// It lasts for ever if all others together could not go on: but for members that have not started. When one of
    /// them does, others may go on without this node, while a thread of it does not know that yet; so it has no lease
    /// then that lasts longer than others would wait.
    pub(crate) fn lease(&self, view: &ClusterView, own: NodeId, now: Tick, span: Span) -> Tick {
        let mut missing: Vec<&Partition> = view.partitions().iter().collect();
        let mut others: Vec<(Option<Tick>, &Member)> = Vec::new();
        for member in view.started().filter(|member| member.node != own) {
            let peer = &self.0[&member.node];
            if peer.link != Link::Gone {
                others.push((peer.confirmed, member));
            }
        }
        others.sort_unstable_by_key(|&(confirmed, member)| (confirmed, member.node));
        for (confirmed, member) in others {
            missing.retain(|one| one.group != member.group && !one.chain.contains(member.node));
            if missing.is_empty() {
                return confirmed.map_or(Tick(0), |sent| sent + span);
            }
        }
        let have_all_started = view.started().count() == view.members().len();
        if have_all_started { Tick(u64::MAX) } else { now + span }
    }

    pub(crate) fn check_invariants(&self, view: &ClusterView, own: NodeId) {
        let mut others = others(view, own);
        assert!(
            others.clone().count() == self.0.len() && others.all(|node| self.has(node)),
            "something is known of each other member, and of nobody else"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_base::{Incarnation, PartitionId};
    use vinga_wire::view::Member;

    #[test]
    fn no_lease_lasts_for_ever_before_others_start_that_could_go_on() {
        let member = |node, group| Member::started(NodeId(node), Incarnation(1), group, 1, 1);
        let view = ClusterView::first(vec![member(1, 0), member(2, 1)]);
        let lease = |view: &ClusterView, now| {
            let peers = Peers::of(view, NodeId(1), Tick(0));
            peers.lease(view, NodeId(1), now, Span(60))
        };
        assert_eq!(lease(&view, Tick(100)), Tick(u64::MAX), "node group 0 is missing without it");
        let joined = view.with_joined(member(3, 0));
        assert_eq!(lease(&joined, Tick(100)), Tick(160));
        let copying = joined.with_copying(NodeId(3));
        assert_eq!(lease(&copying, Tick(100)), Tick(160));
        assert_eq!(lease(&copying.with_started(NodeId(3)), Tick(100)), Tick(0), "nobody has answered yet");
    }

    /// Whoever goes on from a view that leaves somebody out of partitions need not know who has agreed to it.
    #[test]
    fn a_lease_is_the_same_wherever_one_that_leaves_was_left_out() {
        let member = |node, group| Member::started(NodeId(node), Incarnation(1), group, 2, 1);
        let first = ClusterView::first(vec![member(1, 0), member(2, 0), member(3, 1)]);
        let leaving = first.with_leaving(NodeId(2)).with_primary(PartitionId(2), NodeId(1));
        let partly = leaving.with_left_out(PartitionId(0));
        let left = partly.with_left_out(PartitionId(2));
        for own in [1, 2, 3] {
            let mut peers = Peers::of(&first, NodeId(own), Tick(0));
            for (node, sent) in [(1, 40), (2, 50), (3, 60)] {
                peers.note_confirmed(NodeId(node), Tick(sent));
            }
            let lease = |view: &ClusterView| peers.lease(view, NodeId(own), Tick(70), Span(60));
            let expected = if own == 3 { Tick(u64::MAX) } else { lease(&first) };
            for view in [&first, &leaving, &partly, &left] {
                assert_eq!(lease(view), expected);
            }
        }
    }

    #[test]
    fn one_that_has_joined_is_reached_if_its_links_are_open() {
        let member = |node| Member::started(NodeId(node), Incarnation(1), 0, 1, 1);
        let view = ClusterView::first(vec![member(1), member(2)]);
        let mut peers = Peers::of(&view, NodeId(1), Tick(0));
        let joined = view.with_joined(member(3)).with_joined(member(4));
        peers.adopt(&joined, NodeId(1), &BTreeSet::from([NodeId(3)]), Tick(5));
        assert_eq!(peers.unreached(Tick(5), Span(10)), BTreeSet::from([NodeId(4)]));
        assert_eq!(peers.unreached(Tick(10), Span(10)), BTreeSet::from([NodeId(2), NodeId(4)]));
    }
}
