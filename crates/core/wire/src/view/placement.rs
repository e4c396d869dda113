//! Partitions move to node groups that were added (`docs/protocols/reorganize.md`).
//!
//! A node group exists when its first data node has joined. It has no partition then: so nobody misses it if it fails.
//! When the cluster *reorganizes*, one partition after the other is *assigned* to another node group, until the numbers
//! of partitions that they have differ by one at most. The replicas that it has are *displaced* then, and replaced one
//! by one, in views that each follow from the one before alone:
//!
//! ```text
//!   [1 2]      ─▶ [1 2] + 3  ─▶ [1 2 3] ─▶ [1 3] ─▶ [3 1] ─▶ [3 1] + 4 ─▶ [3 1 4] ─▶ [3 4]
//!   assigned      copied to 3                 2 is     3 is      copied to 4              1 is
//!                                             left out primary                            left out
//! ```
//! It keeps as many replicas as it has, and has one more while one is replaced; where a chain can't be longer it has
//! one less instead. The plan is in the view, so the next president goes on with it. If all data nodes of the node
//! group that a partition moves to are lost, or one of them has no room for it, it is assigned back.
//!
//! A data manager holds one partition at most, of its own instance number. So a node group gets none of an instance
//! number of which it has one.

use super::{ClusterView, Member, MemberState, Partition};
use crate::commit::{CHAIN_MAX, Chain};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use vinga_base::{NodeId, PartitionId};

/// What is to be done next so that partitions are where they are to be, besides primaries that move and members that
/// are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Placement {
    /// The partition is to be held by this node group.
    Assign(PartitionId, u16),
    /// A member is to be sent the rows of a partition.
    Copy(PartitionId, NodeId),
    /// All have their shares: the cluster reorganizes no more.
    Reorganized,
    /// The member that was to be sent the rows of a partition has no room for them. The partition goes back, if it was
    /// moving, and the cluster reorganizes no more.
    NoRoom(PartitionId, NoRoom),
}

/// A data node has no room for a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NoRoom {
    /// The data node.
    pub node: NodeId,
    /// Bytes of `DataMemory` that the partition takes where it is, and what is kept free beside it.
    pub needed: u64,
    /// Bytes of `DataMemory` that are free there.
    pub free: u64,
}

impl Partition {
    /// A node that was sent its rows has all of them: it is the last replica, where it stands already.
    pub(super) fn have_copied(&mut self, node: NodeId) {
        self.chain = self.chain.with(node);
        self.copying = self.copying.without(node);
    }
}

impl ClusterView {
    /// Whether partitions are to move until each node group has its share.
    pub fn reorganizes(&self) -> bool {
        self.reorganizes
    }

    /// The next view, in which partitions are to move until each node group has its share; or no further one is.
    #[must_use]
    pub fn with_reorganizing(&self, reorganizes: bool) -> Self {
        let no_room = self.no_room.filter(|_| !reorganizes);
        ClusterView { reorganizes, no_room, ..self.next() }
    }

    /// The data node that had no room for a partition, if the cluster has ended to reorganize for that.
    pub fn no_room(&self) -> Option<NoRoom> {
        self.no_room
    }

    /// Whether a replica of a partition is on a data node of another node group than that which is to have it.
    pub fn is_displaced(&self, partition: &Partition, node: NodeId) -> bool {
        self.member(node).is_some_and(|member| member.group != partition.group)
    }

    /// The partition that is moving to another node group, if there is one.
    pub fn moving(&self) -> Option<(PartitionId, &Partition)> {
        self.numbered().find(|(_, partition)| self.moves(partition))
    }

    /// Whether a partition has replicas that are displaced.
    pub(super) fn moves(&self, partition: &Partition) -> bool {
        partition.chain.nodes().any(|node| self.is_displaced(partition, node))
    }

    /// Whether a node answers reads of committed rows of a partition, for those who ask a backup, too. One that is to
    /// stop does not, nor one that is displaced: it may be left out in the next view, and what others commit then it
    /// does not learn of.
    pub fn may_answer(&self, partition: &Partition, node: NodeId) -> bool {
        let is_backup = partition.chain.contains(node);
        partition.chain.primary() == node
            || is_backup && !self.is_leaving(node) && !self.is_displaced(partition, node)
    }

    /// The replicas of a partition that are to be left out of it next, when its primary has come to rest: those that
    /// are to stop, in any partition, or else one that is displaced.
    pub fn to_go(&self, partition: PartitionId) -> Chain {
        let partition = self.partition(partition);
        let chain = partition.chain;
        if self.leaving().next().is_some() {
            return self.leaving().fold(Chain::default(), |all, one| match chain.contains(one.node) {
                true => all.with(one.node),
                false => all,
            });
        }
        let replicas = chain.length();
        let has_enough = replicas > usize::from(self.replicas)
            || replicas == CHAIN_MAX && self.places(partition).any(|node| !chain.contains(node));
        let displaced = chain.nodes().skip(1).filter(|&node| self.is_displaced(partition, node));
        match displaced.last().filter(|_| has_enough && partition.copying.is_empty()) {
            Some(node) => Chain::new(&[node]),
            None => Chain::default(),
        }
    }

    /// The partitions that somebody may be left out of: their primaries stay.
    pub fn leave_outs(&self) -> Vec<PartitionId> {
        let may_go = |(number, partition): &(PartitionId, &Partition)| {
            let to_go = self.to_go(*number);
            !to_go.is_empty() && !to_go.contains(partition.chain.primary())
        };
        self.numbered().filter(may_go).map(|(number, _)| number).collect()
    }

    /// The members that are to hold a partition.
    fn places(&self, partition: &Partition) -> impl Iterator<Item = NodeId> {
        let group = partition.group;
        let holds = move |member: &&Member| member.group == group && member.state == MemberState::Started;
        self.started().filter(holds).map(|member| member.node)
    }

    /// What is to be done next so that partitions are where they are to be. Nothing, while somebody is on the way to be
    /// a member or to stop, or rows are copied: that comes first.
    pub fn next_placement(&self) -> Option<Placement> {
        let is_at_rest = self.members.iter().all(|member| member.state == MemberState::Started)
            && self.partitions.iter().all(|partition| partition.copying.is_empty());
        if !is_at_rest {
            return None;
        }
        let goes_back = |one: &Partition| self.places(one).next().is_none();
        let back = |(number, one): (PartitionId, &Partition)| {
            let group = self.member(one.chain.primary()).expect("replicas are members").group;
            Placement::Assign(number, group)
        };
        let moving = self.moving();
        if let Some(back) = moving.filter(|(_, one)| goes_back(one)).map(back) {
            return Some(back);
        }
        let missing = |(number, one): (PartitionId, &Partition)| {
            let replicas = one.chain.length();
            let has_room = replicas < CHAIN_MAX && replicas <= usize::from(self.replicas);
            // Whoever is sent rows stops if more are written meanwhile than it has room for. Nothing is to be lost by
            // that for a partition that has its replicas and only moves.
            let has_all = replicas >= usize::from(self.replicas);
            let is_dispensable = |node: NodeId| self.lack_of(|other| other != node).is_none();
            let may_be_sent =
                |&node: &NodeId| !one.chain.contains(node) && (!has_all || is_dispensable(node));
            let node = self.places(one).find(may_be_sent).filter(|_| has_room)?;
            Some(Placement::Copy(number, node))
        };
        if let Some(copy) = self.numbered().find_map(missing) {
            return Some(copy);
        }
        if moving.is_some() || !self.reorganizes { None } else { self.next_assignment() }
    }

    /// The next partition that is assigned to another node group: one of that which has most, to that which has fewest
    /// and is whole. It is the last one that can go: a table of few partitions has neighbouring ones far from each
    /// other, so what goes are parts of many tables.
    fn next_assignment(&self) -> Option<Placement> {
        let has = |group: u16| self.partitions_of(group).count();
        let is_whole = |&group: &u16| {
            let own = self.started().filter(|member| member.group == group);
            own.count() >= usize::from(self.replicas)
        };
        let to = (0..self.groups).filter(is_whole).min_by_key(|&group| has(group))?;
        let from = (0..self.groups).rev().max_by_key(|&group| has(group))?;
        if has(from) <= has(to) + 1 {
            // One that is not whole may get a share when it is.
            let least = (0..self.groups).map(has).min()?;
            return (has(from) <= least + 1).then_some(Placement::Reorganized);
        }
        let is_free = |instance: u16| self.partitions_of(to).all(|(_, one)| one.owner.instance() != instance);
        let goes = self.partitions_of(from).filter(|(_, one)| is_free(one.owner.instance()));
        goes.last().map(|(number, _)| Placement::Assign(number, to))
    }

    /// Whether this may be done next: it is the next step, or the next step is impossible.
    pub fn may_place(&self, placement: Placement) -> bool {
        let next = match placement {
            Placement::NoRoom(partition, NoRoom { node, .. }) => Placement::Copy(partition, node),
            next => next,
        };
        self.next_placement() == Some(next)
    }

    /// The next view, with this done.
    #[must_use]
    pub fn with_placement(&self, placement: Placement) -> Self {
        let mut next = self.next();
        match placement {
            Placement::Assign(partition, group) => next.partition_mut(partition).group = group,
            Placement::Copy(partition, node) => {
                let partition = next.partition_mut(partition);
                partition.copying = partition.copying.with(node);
            }
            Placement::Reorganized => next.reorganizes = false,
            Placement::NoRoom(partition, no_room) => {
                let present = self.partition(partition);
                let other = present.chain.nodes().find(|&node| self.is_displaced(present, node));
                if let Some(other) = other.and_then(|node| self.member(node)) {
                    next.partition_mut(partition).group = other.group;
                }
                (next.reorganizes, next.no_room) = (false, Some(no_room));
            }
        }
        next
    }

    /// The next view, in which a member has all rows of a partition that it was sent.
    #[must_use]
    pub fn with_copied(&self, partition: PartitionId, node: NodeId) -> Self {
        let mut next = self.next();
        next.partition_mut(partition).have_copied(node);
        next
    }

    /// The partition whose rows a member is sent that has started: which, and who.
    pub fn placing(&self) -> Option<(PartitionId, &Member)> {
        self.numbered().find_map(|(number, partition)| {
            let target = partition.copying.nodes().find(|&node| self.has_started(node))?;
            Some((number, self.member(target)?))
        })
    }

    fn partition_mut(&mut self, partition: PartitionId) -> &mut Partition {
        &mut self.partitions[usize::from(partition.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use vinga_base::Incarnation;

    fn member(node: u8, group: u16) -> Member {
        Member::started(NodeId(node), Incarnation(7), group, 4, 1)
    }

    fn come(view: ClusterView, node: u8, group: u16) -> ClusterView {
        let own = NodeId(node);
        view.with_joined(member(node, group)).with_copying(own).with_started(own)
    }

    /// The next view on the way to where all partitions are to be; `None` when they are there.
    fn step(view: &ClusterView) -> Option<ClusterView> {
        if let Some((partition, member)) = view.placing() {
            return Some(view.with_copied(partition, member.node));
        }
        if let Some(&(partition, node)) = view.hand_overs().first() {
            return Some(view.with_primary(partition, node));
        }
        if let Some(&partition) = view.leave_outs().first() {
            return Some(view.with_left_out(partition));
        }
        view.next_placement().map(|placement| view.with_placement(placement))
    }

    /// Goes on until nothing is left to do, and checks what holds all the time.
    fn reorganize(mut view: ClusterView) -> (ClusterView, usize) {
        let mut steps = 0;
        while let Some(next) = step(&view) {
            for (before, after) in view.partitions().iter().zip(next.partitions()) {
                assert_eq!(before.owner, after.owner);
                let replicas = after.chain.nodes().count();
                let least = usize::from(view.replicas).min(CHAIN_MAX - 1);
                assert!(replicas >= least.min(before.chain.nodes().count()) && replicas <= CHAIN_MAX);
            }
            for member in next.members() {
                let mut held: Vec<u16> = next
                    .partitions()
                    .iter()
                    .filter(|one| one.replicas().contains(member.node))
                    .map(|one| one.owner.instance())
                    .collect();
                held.sort_unstable();
                let all = held.len();
                held.dedup();
                assert_eq!(held.len(), all, "a data manager holds one partition");
            }
            view = next;
            steps += 1;
            assert!(steps < 1000, "it comes to an end: {view:?}");
        }
        (view, steps)
    }

    fn shares(view: &ClusterView) -> Vec<usize> {
        (0..view.groups()).map(|group| view.partitions_of(group).count()).collect()
    }

    #[test]
    fn each_node_group_gets_its_share() {
        for replicas in 2..=CHAIN_MAX as u8 {
            let all = |group: u16| {
                let first = group as u8 * replicas;
                (first + 1..=first + replicas).map(move |node| (node, group))
            };
            let mut view = ClusterView::first(all(0).map(|(node, group)| member(node, group)).collect());
            for group in 1..4 {
                for (node, group) in all(group) {
                    assert_eq!(step(&view.with_reorganizing(false)), None, "nothing moves by itself");
                    view = come(view, node, group);
                }
                let (next, steps) = reorganize(view.with_reorganizing(true));
                assert!(steps > 1 && !next.reorganizes() && next.moving().is_none());
                let shares = shares(&next);
                assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1, "{shares:?}");
                for partition in next.partitions() {
                    assert_eq!(partition.chain.nodes().count(), usize::from(replicas));
                }
                view = next;
            }
        }
    }

    #[test]
    fn a_node_group_that_is_not_whole_gets_nothing() {
        let view = ClusterView::first(vec![member(1, 0), member(2, 0)]);
        let (view, steps) = reorganize(come(view, 3, 1).with_reorganizing(true));
        assert_eq!((steps, shares(&view), view.reorganizes()), (0, vec![4, 0], true));
        let (view, _) = reorganize(come(view, 4, 1));
        assert_eq!((shares(&view), view.reorganizes()), (vec![2, 2], false));
    }

    #[test]
    fn what_moves_to_data_nodes_that_are_lost_goes_back() {
        let first = ClusterView::first(vec![member(1, 0), member(2, 0)]);
        let mut view = come(come(first, 3, 1), 4, 1).with_reorganizing(true);
        for _ in 0..100 {
            let lost = [NodeId(3), NodeId(4)];
            let is_kept = view.lack_of(|node| !lost.contains(&node)).is_none();
            if is_kept {
                let (after, _) = reorganize(view.without(&lost).with_reorganizing(false));
                assert_eq!(shares(&after), [4, 0]);
                assert!(after.partitions().iter().all(|one| one.chain.nodes().count() == 2));
            }
            for one in [3, 4] {
                let (after, _) = reorganize(come(view.without(&[NodeId(one)]), one, 1));
                assert_eq!(shares(&after), [2, 2]);
                assert!(after.moving().is_none());
            }
            match step(&view) {
                Some(next) => view = next,
                None => break,
            }
        }
        assert_eq!(shares(&view), [2, 2]);
    }

    #[test]
    fn what_has_no_room_goes_back() {
        let first = ClusterView::first(vec![member(1, 0), member(2, 0)]);
        let mut view = come(come(first, 3, 1), 4, 1).with_reorganizing(true);
        let mut refused = 0;
        loop {
            if let Some(Placement::Copy(partition, node)) = view.next_placement() {
                let no_room = NoRoom { node, needed: 2, free: 1 };
                let refusal = Placement::NoRoom(partition, no_room);
                assert!(view.may_place(refusal));
                let goes_back = view.with_placement(refusal);
                assert!(!goes_back.reorganizes() && goes_back.no_room() == Some(no_room));
                assert!(!view.may_place(Placement::NoRoom(partition, NoRoom { node: NodeId(1), ..no_room })));
                // There is no room where it goes back to either: it is tried again where it was to go.
                if let Some(Placement::Copy(back, node)) = goes_back.next_placement() {
                    assert!(back == partition && node.0 <= 2);
                    let again = goes_back.with_placement(Placement::NoRoom(partition, no_room));
                    assert_eq!(again.next_placement(), view.next_placement());
                }
                let (after, _) = reorganize(goes_back);
                assert!(after.moving().is_none());
                assert!(after.partitions().iter().all(|one| one.chain.nodes().count() == 2));
                assert_eq!(after.with_reorganizing(true).no_room(), None);
                assert_eq!(shares(&reorganize(after.with_reorganizing(true)).0), [2, 2]);
                refused += 1;
            }
            match step(&view) {
                Some(next) => view = next,
                None => break,
            }
        }
        assert_eq!((refused, shares(&view)), (4, vec![2, 2]));
    }

    /// It is asked for room first, as any other that a partition moves to.
    #[test]
    fn who_comes_back_is_not_sent_what_moves() {
        let first = ClusterView::first(vec![member(1, 0), member(2, 0)]);
        let (view, _) = reorganize(come(come(first, 3, 1), 4, 1).with_reorganizing(true));
        let (mut view, own) = (come(come(view, 5, 2), 6, 2), [PartitionId(2), PartitionId(3)]);
        let moves = PartitionId(1);
        view = view.with_placement(Placement::Assign(moves, 1));
        assert_eq!(view.next_placement(), Some(Placement::Copy(moves, NodeId(3))));
        let returns = view.without(&[NodeId(3)]);
        assert_eq!(returns.next_placement(), None, "node 4 is the last of its node group");
        let returns = returns.with_joined(member(3, 1)).with_copying(NodeId(3));
        let sent = returns.numbered().filter(|(_, one)| one.copying.contains(NodeId(3)));
        assert_eq!(sent.map(|(number, _)| number).collect::<Vec<_>>(), own);
        let returns = returns.with_started(NodeId(3));
        assert_eq!(returns.next_placement(), Some(Placement::Copy(moves, NodeId(4))));
        let back = view.without(&[NodeId(1), NodeId(3)]);
        assert_eq!(back.next_placement(), Some(Placement::Copy(moves, NodeId(4))), "it lacks a replica");
    }

    /// It was left out of one partition, and has the last replica of another one.
    #[test]
    fn who_is_needed_does_not_stop_and_gets_back_what_it_was_left_out_of() {
        let first = ClusterView::first(vec![member(1, 0), member(2, 0)]);
        let view = come(come(first, 3, 1), 4, 1).with_placement(Placement::Assign(PartitionId(3), 1));
        let view = view.with_placement(Placement::Copy(PartitionId(3), NodeId(3)));
        let view = view.with_copied(PartitionId(3), NodeId(3));
        let view = view.with_left_out(PartitionId(3)).with_primary(PartitionId(3), NodeId(3));
        let left = view.partition(PartitionId(3)).chain.nodes().last().unwrap();
        let mut leaving = view.with_leaving(left);
        while let Some(&(partition, node)) = leaving.hand_overs().first() {
            leaving = leaving.with_primary(partition, node);
        }
        let partly = leaving.with_left_out(PartitionId(0));
        assert!(partly.was_left_out(left) && !partly.is_needed(left));
        let needed = partly.without(&[NodeId(3)]);
        assert!(needed.is_needed(left) && needed.next_placement().is_none());
        let stays = needed.with_staying(left);
        assert!(stays.leaving().next().is_none());
        let (after, _) = reorganize(come(stays, 3, 1));
        assert!(after.partitions().iter().all(|one| one.chain.length() == 2), "{after:?}");
    }

    #[test]
    fn nothing_is_waited_for_where_nothing_is_to_move() {
        let first = ClusterView::first(vec![member(1, 0), member(2, 0)]);
        let (view, _) = reorganize(come(come(first, 3, 1), 4, 1).with_reorganizing(true));
        let lacks = view.without(&[NodeId(4)]).with_reorganizing(true);
        assert_eq!(lacks.next_placement(), Some(Placement::Reorganized));
    }

    #[test]
    fn a_displaced_backup_answers_no_reads() {
        let first = ClusterView::first(vec![member(1, 0), member(2, 0)]);
        let view = come(come(first, 3, 1), 4, 1);
        let moved = view.with_placement(Placement::Assign(PartitionId(3), 1));
        let partition = moved.partition(PartitionId(3));
        let (primary, backup) = (partition.chain.primary(), partition.chain.nodes().last().unwrap());
        assert!(moved.may_answer(partition, primary) && !moved.may_answer(partition, backup));
        assert!(view.may_answer(view.partition(PartitionId(3)), backup));
    }
}
