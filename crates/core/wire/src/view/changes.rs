//! How one view follows from another.
//!
//! A data node that fails is left out, with all that it owned. One that comes back, or comes for the first time, goes
//! through three views: it *joins* and owns nothing; it is *copied to* and takes part in changes of its partitions, but
//! answers nobody; it has *started*. Then primaries are handed over to it, a view each time.
//!
//! One that is to stop *leaves*: it is left out of one partition after the other, a view each time, until nobody misses
//! it. How partitions move to other node groups: `placement`.

use super::{ClusterView, Member, MemberState, Succession};
use crate::commit::Chain;
use vinga_base::{NodeId, PartitionId};

impl ClusterView {
    /// The next view, without members that have failed: the next replica of each of their partitions becomes primary,
    /// and the next member in the order of ids acts for their coordinators, and for those they acted for.
    ///
    /// Each member that may lead gives the next view a number of its own: one more for each that joined before it. So
    /// two of them, the second of which did not know what the first had agreed, never make different views of one
    /// number.
    ///
    /// The caller has made sure that those that are left lack nothing ([`lack_of`](Self::lack_of)): each partition
    /// keeps a replica with all its rows.
    #[must_use]
    pub fn without(&self, failed: &[NodeId]) -> Self {
        self.without_after(failed, self)
    }

    /// The same if those that have failed may have had a later view than this one.
    ///
    /// Nobody acts for one that had not started in it: that has let no API node in, so its coordinators have begun
    /// nothing, and nobody asks for their outcomes. Else a node that fails in each of its starts would make the view
    /// longer each time.
    #[must_use]
    pub fn without_after(&self, failed: &[NodeId], latest: &Self) -> Self {
        let lost = |node: NodeId| failed.contains(&node);
        let mut next = self.clone();
        next.members.retain(|member| !lost(member.node));
        let leads = next.president().expect("a started member is left");
        let before = self.members.iter().take_while(|member| member.node != leads).count();
        next.number.0 += 1 + before as u32;
        for partition in &mut next.partitions {
            partition.chain = failed.iter().fold(partition.chain, |chain, &node| chain.without(node));
            partition.copying = failed.iter().fold(partition.copying, |chain, &node| chain.without(node));
            assert!(!partition.chain.is_empty(), "the cluster stops before a partition has no replica");
        }
        let dead = self.members.iter().filter(|member| lost(member.node));
        let acted = |member: &&Member| {
            let is_it = |m: &Member| m.identity() == member.identity();
            member.coordinators > 0 && latest.started().any(is_it)
        };
        next.successions.extend(dead.filter(acted).map(|member| Succession {
            failed: member.node,
            incarnation: member.incarnation,
            coordinators: member.coordinators,
            successor: member.node,
            successors: 0,
        }));
        for at in 0..next.successions.len() {
            if lost(next.successions[at].successor) {
                let (successor, successors) = next.follower(next.successions[at].successor);
                next.successions[at] = Succession { successor, successors, ..next.successions[at] };
            }
        }
        next
    }

    /// The started member with coordinators that has the next higher id, or the lowest if there is none, and how many
    /// coordinators it has. One that is to stop follows only if there is no other.
    fn follower(&self, node: NodeId) -> (NodeId, u16) {
        let started = |leaves: bool| {
            let may_follow = move |m: &&Member| m.coordinators > 0 && m.is_to_stop() == leaves;
            self.started().filter(may_follow).map(|m| (m.node, m.coordinators))
        };
        let next = |leaves: bool| started(leaves).filter(|&(other, _)| other > node).min();
        let of = |leaves: bool| next(leaves).or_else(|| started(leaves).min());
        of(false).or_else(|| of(true)).expect("a view has a started member with coordinators")
    }

    /// The next view, with a member that has just joined: it owns nothing, and acts for nobody. There is no member with
    /// its id. Its node group is one of the view's, or the next one: then there is one more from now on, which no
    /// partition is assigned to.
    #[must_use]
    pub fn with_joined(&self, member: Member) -> Self {
        assert!(!self.has(member.node), "a member that is there does not join");
        assert!(member.group <= self.groups, "node groups are numbered from 0");
        let mut next = self.next();
        next.groups = next.groups.max(member.group + 1);
        next.members.push(Member { state: MemberState::Starting, since: next.number, ..member });
        next
    }

    /// The next view, in which a member that has joined is being sent the rows of its partitions.
    #[must_use]
    pub fn with_copying(&self, node: NodeId) -> Self {
        let mut next = self.next();
        let group = next.come_to(node, MemberState::Starting, MemberState::Copying);
        for (partition, before) in next.partitions.iter_mut().zip(&self.partitions) {
            // One that moves here, and has not gone from where it was, it gets when it has started, and has room for it
            // (`placement`).
            if partition.group == group && !self.moves(before) {
                partition.copying = partition.copying.with(node);
            }
        }
        next
    }

    /// The next view, in which a member that has all rows of its partitions is a backup of them like any other.
    #[must_use]
    pub fn with_started(&self, node: NodeId) -> Self {
        let mut next = self.next();
        next.come_to(node, MemberState::Copying, MemberState::Started);
        for partition in next.partitions.iter_mut().filter(|partition| partition.copying.contains(node)) {
            partition.have_copied(node);
        }
        next
    }

    /// The next view, in which another replica is the primary of a partition; the others follow as they did.
    #[must_use]
    pub fn with_primary(&self, partition: PartitionId, node: NodeId) -> Self {
        let mut next = self.next();
        let partition = &mut next.partitions[usize::from(partition.0)];
        assert!(partition.chain.contains(node), "a primary has all rows");
        let others = partition.chain.nodes().filter(|&other| other != node);
        partition.chain = others.fold(Chain::new(&[node]), |chain, other| chain.with(other));
        next
    }

    /// The next view, in which those are no replicas of a partition any more that are to go: members that are to stop,
    /// or else the next one of a node group that the partition has moved away from ([`to_go`](Self::to_go)). Its
    /// primary, which is none of them, stays.
    #[must_use]
    pub fn with_left_out(&self, partition: PartitionId) -> Self {
        let mut next = self.next();
        let to_go = self.to_go(partition);
        for member in &mut next.members {
            if member.state == MemberState::Leaving && to_go.contains(member.node) {
                member.state = MemberState::LeftOut;
            }
        }
        let partition = &mut next.partitions[usize::from(partition.0)];
        partition.chain = to_go.nodes().fold(partition.chain, |chain, node| chain.without(node));
        let primary = self.owned_by(partition.owner).chain.primary();
        assert!(partition.chain.primary() == primary, "its primary does not leave");
        next
    }

    /// The next view, in which a member is to stop. It is in all partitions still that it was in, and gets no other
    /// ones.
    #[must_use]
    pub fn with_leaving(&self, node: NodeId) -> Self {
        let mut next = self.next();
        next.come_to(node, MemberState::Started, MemberState::Leaving);
        for partition in &mut next.partitions {
            partition.copying = partition.copying.without(node);
        }
        next
    }

    /// The next view, in which a member that is to stop does not after all. What it was left out of it is sent again as
    /// any replica that is missing ([`next_placement`](Self::next_placement)).
    #[must_use]
    pub fn with_staying(&self, node: NodeId) -> Self {
        let mut next = self.next();
        let state = self.member(node).map_or(MemberState::Leaving, |member| member.state);
        next.come_to(node, state, MemberState::Started);
        next
    }

    /// Whether the others can do without a member in the long run, so that it may leave: in each partition of its node
    /// group there is another one that does not leave, and somewhere a started one with coordinators.
    pub fn may_leave(&self, node: NodeId) -> bool {
        self.lack_of(|other| other != node && !self.is_leaving(other)).is_none()
    }

    /// What the president makes of this view: the number is the next one.
    pub(super) fn next(&self) -> Self {
        let mut next = self.clone();
        next.number.0 += 1;
        next
    }

    /// A member goes on to another state; returns its node group.
    fn come_to(&mut self, node: NodeId, from: MemberState, to: MemberState) -> u16 {
        let member = self.members.iter_mut().find(|member| member.node == node).expect("it is a member");
        assert_eq!(member.state, from, "data node {node} goes through its states in order");
        member.state = to;
        member.group
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::ReplicaGroup;
    use alloc::vec;
    use alloc::vec::Vec;
    use vinga_base::{Incarnation, ViewNumber};

    fn member(node: u8, group: u16) -> Member {
        Member::started(NodeId(node), Incarnation(7), group, 2, 1)
    }

    fn chain(nodes: &[u8]) -> Chain {
        Chain::new(&nodes.iter().map(|&node| NodeId(node)).collect::<Vec<_>>())
    }

    #[test]
    fn a_node_comes_back_in_three_views() {
        let first = ClusterView::first(vec![member(1, 0), member(2, 0), member(3, 0), member(4, 1)]);
        let without = first.without(&[NodeId(2)]);
        let back = Member { incarnation: Incarnation(8), ..member(2, 0) };
        let joined = without.with_joined(back);
        let newest = joined.member(NodeId(2)).unwrap();
        assert_eq!((newest.state, newest.since), (MemberState::Starting, joined.number()));
        assert_eq!(joined.number(), ViewNumber(without.number().0 + 1));
        assert_eq!(joined.partitions(), without.partitions());
        assert!(!joined.for_api_nodes().has(NodeId(2)), "clients do not learn of it yet");
        // It counts for nothing yet.
        assert!(joined.lack_of(|node| node == NodeId(2) || node == NodeId(4)).is_some());

        let copying = joined.with_copying(NodeId(2));
        let owner = ReplicaGroup::new(0, 0);
        assert_eq!(
            (copying.owned_by(owner).chain, copying.owned_by(owner).copying),
            (chain(&[1, 3]), chain(&[2]))
        );
        assert_eq!(copying.owned_by(owner).replicas(), chain(&[1, 3, 2]));
        assert!(copying.owned_by(ReplicaGroup::new(1, 0)).copying.is_empty());
        // If the primary fails, a replica with all rows takes its place.
        assert_eq!(copying.without(&[NodeId(1)]).owned_by(owner).replicas(), chain(&[3, 2]));

        let started = copying.with_started(NodeId(2));
        assert_eq!(
            (started.owned_by(owner).chain, started.owned_by(owner).copying),
            (chain(&[1, 3, 2]), Chain::default())
        );
        assert_eq!(started.lack_of(|node| node == NodeId(2) || node == NodeId(4)), None);
        let handed_over = started.with_primary(PartitionId(0), NodeId(3));
        assert_eq!(handed_over.owned_by(owner).chain, chain(&[3, 1, 2]));
    }

    #[test]
    fn nobody_acts_for_a_node_that_had_not_started() {
        let first = ClusterView::first(vec![member(1, 0), member(2, 0), member(3, 0)]);
        let mut view = first.without(&[NodeId(2)]);
        assert_eq!(view.successions().len(), 1);
        for start in 8..11 {
            let joined = view.with_joined(Member { incarnation: Incarnation(start), ..member(2, 0) });
            view = joined.without(&[NodeId(2)]).with_joined(member(2, 0)).with_copying(NodeId(2));
            let started = view.with_started(NodeId(2));
            // The president and the node that came back had the view in which that has started, and nobody else.
            let lost = view.without_after(&[NodeId(1), NodeId(2)], &started);
            assert_eq!(lost.successions().len(), 3);
            view = view.without(&[NodeId(2)]);
            assert_eq!(view.successions().len(), 1, "of the first start");
        }
        let started = view.with_joined(member(2, 0)).with_copying(NodeId(2)).with_started(NodeId(2));
        assert_eq!(started.without(&[NodeId(2)]).successions().len(), 2);
    }

    #[test]
    fn one_of_two_that_are_copied_to_starts_before_the_other() {
        let first = ClusterView::first(vec![member(1, 0), member(2, 0), member(3, 0)]);
        let alone = first.without(&[NodeId(2), NodeId(3)]);
        let two = [2, 3]
            .into_iter()
            .fold(alone, |view, node| view.with_joined(member(node, 0)).with_copying(NodeId(node)));
        let owner = ReplicaGroup::new(0, 1);
        assert_eq!(two.owned_by(owner).replicas(), chain(&[1, 2, 3]));
        let started = two.with_started(NodeId(3));
        assert_eq!(
            (started.owned_by(owner).chain, started.owned_by(owner).copying),
            (chain(&[1, 3]), chain(&[2]))
        );
    }
}
