//! Which primary is to be handed over next, so that each data node of a node group has its share.
//!
//! A data node that comes back is a backup of everything ([`ClusterView::with_started`]), and primaries are handed over
//! to it one by one: from the node of its group that has most of them to the one that has fewest, as long as these
//! differ by more than one. Of those that may go it gets one which the first view would have given it, if there is one:
//! so they are spread over threads as they were. Where no node has come back nothing moves: after a failure primaries
//! are where they are needed at once, and the node that has failed may be back soon.
//!
//! Before all that, primaries move away from members that are to stop, each to the replica that has fewest; then those
//! of partitions that are moving to another node group, to a replica there (`placement`).

use super::layout::first_place;
use super::{ClusterView, Member, MemberState, Partition};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use vinga_base::{NodeId, PartitionId, ViewNumber};

impl ClusterView {
    /// The partitions that may get another primary next, and which one, the best choice first; none if all node groups
    /// are balanced, and no primary is to stop.
    pub fn hand_overs(&self) -> Vec<(PartitionId, NodeId)> {
        let leaving = self.moves_from(|one| self.is_leaving(one.chain.primary()), |_, _| true);
        if !leaving.is_empty() {
            return leaving;
        }
        let has_moved = |one: &Partition| self.is_displaced(one, one.chain.primary());
        let moving = self.moves_from(has_moved, |one, node| !self.is_displaced(one, node));
        if !moving.is_empty() {
            return moving;
        }
        (0..self.groups).flat_map(|group| self.hand_overs_in(group).unwrap_or_default()).collect()
    }

    /// The partitions of a node group.
    pub(super) fn partitions_of(&self, group: u16) -> impl Iterator<Item = (PartitionId, &Partition)> {
        self.numbered().filter(move |(_, partition)| partition.group == group)
    }

    /// All partitions with their numbers.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        (0..).map(PartitionId).zip(&self.partitions)
    }

    /// The partitions whose primaries go elsewhere, each with the replica that has fewest of those which may have it
    /// and are not to stop.
    fn moves_from(
        &self,
        goes: impl Fn(&Partition) -> bool,
        may_have: impl Fn(&Partition, NodeId) -> bool,
    ) -> Vec<(PartitionId, NodeId)> {
        let staying: Vec<&Member> = self.started().filter(|member| !member.is_to_stop()).collect();
        let primaries = primaries_of(&staying, self.numbered());
        let moves =
            self.numbered().filter(|(_, partition)| goes(partition)).filter_map(|(number, partition)| {
                let others = partition.chain.nodes().filter(|node| primaries.contains_key(node));
                let others = others.filter(|&node| may_have(partition, node));
                Some((number, others.min_by_key(|node| primaries[node])?))
            });
        moves.collect()
    }

    fn hand_overs_in(&self, group: u16) -> Option<Vec<(PartitionId, NodeId)>> {
        let stays = |member: &&Member| member.group == group && member.state == MemberState::Started;
        let mut members: Vec<&Member> = self.started().filter(stays).collect();
        members.sort_unstable_by_key(|member| member.node);
        if !members.iter().any(|member| member.since > FIRST) {
            return None;
        }
        let own = || self.partitions_of(group);
        let primaries = primaries_of(&members, own());
        let (&fewest, &least) = primaries.iter().min_by_key(|(_, count)| **count)?;
        let (&most, &greatest) = primaries.iter().max_by_key(|(_, count)| **count)?;
        if greatest - least <= 1 {
            return None;
        }
        let may_go = |one: &Partition| one.chain.primary() == most && one.chain.contains(fewest);
        let mut may_go: Vec<(PartitionId, &Partition)> = own().filter(|(_, one)| may_go(one)).collect();
        let had_before = |partition: &Partition| {
            members[first_place(partition.owner.instance(), members.len())].node == fewest
        };
        may_go.sort_by_key(|(_, partition)| !had_before(partition));
        Some(may_go.into_iter().map(|(number, _)| (number, fewest)).collect())
    }
}

/// Of how many of these partitions each of the members has the primary.
fn primaries_of<'a>(
    members: &[&Member],
    partitions: impl Iterator<Item = (PartitionId, &'a Partition)>,
) -> BTreeMap<NodeId, usize> {
    let mut primaries: BTreeMap<NodeId, usize> = members.iter().map(|member| (member.node, 0)).collect();
    for (_, partition) in partitions {
        primaries.entry(partition.chain.primary()).and_modify(|count| *count += 1);
    }
    primaries
}

/// The view whose members have been there from the beginning.
const FIRST: ViewNumber = ViewNumber(1);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use vinga_base::Incarnation;

    fn member(node: u8, group: u16) -> Member {
        Member::started(NodeId(node), Incarnation(7), group, 4, 1)
    }

    fn back(view: &ClusterView, node: u8, group: u16) -> ClusterView {
        let member = Member { incarnation: Incarnation(8), ..member(node, group) };
        view.with_joined(member).with_copying(NodeId(node)).with_started(NodeId(node))
    }

    /// Moves what is to move; returns how much that is.
    fn balance(view: &mut ClusterView) -> usize {
        let mut moves = 0;
        while let Some(&(partition, node)) = view.hand_overs().first() {
            *view = view.with_primary(partition, node);
            moves += 1;
        }
        moves
    }

    fn primaries(view: &ClusterView) -> Vec<NodeId> {
        view.partitions().iter().map(|partition| partition.chain.primary()).collect()
    }

    #[test]
    fn a_node_that_comes_back_gets_the_primaries_that_it_had() {
        for node in 1..=4 {
            let first = ClusterView::first(vec![member(1, 0), member(2, 0), member(3, 1), member(4, 1)]);
            let mut view = first.without(&[NodeId(node)]);
            assert_eq!(balance(&mut view), 0, "nobody has come back");
            view = back(&view, node, (u16::from(node) - 1) / 2);
            assert_eq!(balance(&mut view), 2);
            assert_eq!(primaries(&view), primaries(&first));
        }
    }

    #[test]
    fn nobody_gets_what_it_lacks_rows_of() {
        let first = ClusterView::first(vec![member(1, 0), member(2, 0)]).without(&[NodeId(2)]);
        let joined = first.with_joined(member(2, 0));
        assert_eq!(joined.hand_overs(), []);
        assert_eq!(joined.with_copying(NodeId(2)).hand_overs(), []);
    }

    #[test]
    fn of_three_that_come_back_in_any_order_each_has_its_share() {
        let mut view = ClusterView::first(vec![member(1, 0), member(2, 0), member(3, 0)]);
        for node in [3, 1, 2, 2, 3, 1] {
            view = back(&view.without(&[NodeId(node)]), node, 0);
            balance(&mut view);
            let of = |node: u8| primaries(&view).into_iter().filter(|&other| other == NodeId(node)).count();
            let mut shares: Vec<usize> = (1..=3).map(of).collect();
            shares.sort_unstable();
            assert_eq!(shares, [1, 1, 2]);
        }
    }
}
