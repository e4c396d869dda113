//! The first view of a cluster: which nodes own which partitions.
//!
//! Partitions are numbered through the node groups: of g groups, partition p is in the (p mod g)-th and owned by the
//! data managers with the instance number p / g.
//!
//! The nodes of a chain are those of the group, rotated so that each is primary for its share. How far is the sum of
//! the instance's digits to the base of the group's size (the Thue–Morse sequence for two nodes): so the primaries of a
//! node are spread evenly both over threads that host every k-th instance and over those that host neighbouring ones.

use super::{ClusterView, ConnectionHosts, Member, MemberState, Partition, ReplicaGroup};
use crate::commit::{CHAIN_MAX, Chain};
use crate::protocol::Protocol;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::{Incarnation, NodeId, ViewNumber};

impl Member {
    /// A member of the first view, without address and without a list of what its connections reach.
    pub fn started(
        node: NodeId,
        incarnation: Incarnation,
        group: u16,
        data_managers: u16,
        coordinators: u16,
    ) -> Self {
        Member {
            node,
            incarnation,
            address: String::new(),
            group,
            state: MemberState::Started,
            since: ViewNumber(1),
            connections: Vec::new(),
            data_managers,
            coordinators,
            redo_streams: 0,
            protocol: Protocol::own().version,
        }
    }

    /// The same with what its connections reach.
    #[must_use]
    pub fn with_connections(self, connections: Vec<ConnectionHosts>) -> Self {
        Member { connections, ..self }
    }
}

impl ClusterView {
    /// View 1 of a cluster of these nodes, in the order in which they joined. The configuration was checked: no node is
    /// listed twice, all have the same number of data managers, one at least; node groups are numbered from 0, and each
    /// has 1 to [`CHAIN_MAX`] nodes.
    pub fn first(members: Vec<Member>) -> Self {
        let mut groups: BTreeMap<u16, Vec<NodeId>> = BTreeMap::new();
        for member in &members {
            groups.entry(member.group).or_default().push(member.node);
        }
        let ids: BTreeSet<NodeId> = members.iter().map(|member| member.node).collect();
        assert_eq!(ids.len(), members.len(), "each node is listed once");
        assert!(groups.keys().copied().eq(0..groups.len() as u16), "node groups are numbered from 0");
        assert!(
            groups.values().all(|nodes| nodes.len() <= CHAIN_MAX),
            "a group has at most {CHAIN_MAX} nodes"
        );
        let instances = members.first().expect("a cluster has a data node").data_managers;
        assert!(instances > 0, "a data node has a data manager");
        assert!(
            members.iter().all(|member| member.data_managers == instances),
            "all data nodes have the same number of data managers"
        );
        let replicas = groups.values().map(Vec::len).max().expect("a cluster has a node group") as u8;
        let partitions = (0..instances)
            .flat_map(|instance| {
                groups.iter().map(move |(&group, nodes)| first_owners(group, instance, nodes))
            })
            .collect();
        ClusterView {
            number: ViewNumber(1),
            members,
            partitions,
            groups: groups.len() as u16,
            homes: groups.len() as u16,
            reorganizes: false,
            no_room: None,
            replicas,
            successions: Vec::new(),
            ticket: 0,
            arbitrator: None,
        }
    }
}

impl ClusterView {
    /// What a data node knows before it is connected to the others of its cluster: itself. As far as it knows it owns
    /// everything, also the partitions of the node groups before its own. For the only data node of a cluster that is
    /// the first view.
    pub fn of_one(member: Member) -> Self {
        let groups = member.group + 1;
        let own = [member.node];
        let partitions = (0..member.data_managers)
            .flat_map(|instance| (0..groups).map(move |group| first_owners(group, instance, &own)))
            .collect();
        ClusterView {
            number: ViewNumber(1),
            members: Vec::from([member]),
            partitions,
            groups,
            homes: groups,
            reorganizes: false,
            no_room: None,
            replicas: 1,
            successions: Vec::new(),
            ticket: 0,
            arbitrator: None,
        }
    }
}

fn first_owners(group: u16, instance: u16, nodes: &[NodeId]) -> Partition {
    let mut chain = nodes.to_vec();
    chain.rotate_left(first_place(instance, nodes.len()));
    Partition {
        owner: ReplicaGroup::new(group, instance),
        group,
        chain: Chain::new(&chain),
        copying: Chain::default(),
    }
}

/// Which of so many nodes of a group is the first of a chain.
pub(super) fn first_place(instance: u16, nodes: usize) -> usize {
    digit_sum(usize::from(instance), nodes) % nodes
}

/// The sum of a number's digits to a base; to base 1, which has no digits, 0.
fn digit_sum(mut number: usize, base: usize) -> usize {
    let mut sum = 0;
    while base > 1 && number > 0 {
        sum += number % base;
        number /= base;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use vinga_base::PartitionId;

    fn view(groups: &[u16], data_managers: u16) -> ClusterView {
        let member = |(node, &group)| Member::started(NodeId(node), Incarnation(1), group, data_managers, 1);
        ClusterView::first((1..).zip(groups).map(member).collect())
    }

    fn chain(nodes: &[u8]) -> Chain {
        Chain::new(&nodes.iter().map(|&node| NodeId(node)).collect::<Vec<_>>())
    }

    #[test]
    fn one_node_owns_everything() {
        let view = view(&[0], 8);
        assert_eq!(view.partitions().len(), 8);
        for (instance, partition) in (0..).zip(view.partitions()) {
            assert_eq!((partition.owner, partition.chain), (ReplicaGroup::new(0, instance), chain(&[1])));
        }
        assert_eq!(view.partition(PartitionId(5)).owner.instance(), 5);
    }

    #[test]
    fn a_node_that_knows_nobody_else_owns_all_that_it_knows() {
        let member = |group| Member::started(NodeId(7), Incarnation(1), group, 4, 1);
        assert_eq!(ClusterView::of_one(member(0)), ClusterView::first(vec![member(0)]));
        let view = ClusterView::of_one(member(2));
        assert_eq!((view.members(), view.groups(), view.partitions().len()), (&[member(2)][..], 3, 12));
        for partition in view.partitions() {
            assert_eq!((view.owned_by(partition.owner), partition.chain), (partition, chain(&[7])));
        }
    }

    #[test]
    fn groups_take_turns_and_nodes_share_the_primaries() {
        let view = view(&[0, 0, 1, 1], 4);
        let chains: Vec<_> = view.partitions().iter().map(|p| (p.owner.instance(), p.chain)).collect();
        let expected: [(u16, [u8; 2]); 8] = [
            (0, [1, 2]),
            (0, [3, 4]),
            (1, [2, 1]),
            (1, [4, 3]),
            (2, [2, 1]),
            (2, [4, 3]),
            (3, [1, 2]),
            (3, [3, 4]),
        ];
        assert_eq!(chains, expected.map(|(instance, nodes)| (instance, chain(&nodes))));
        for partition in view.partitions() {
            assert_eq!(view.owned_by(partition.owner), partition);
        }
    }

    /// Each node is primary equally often, over all and on each thread, however instances are dealt to threads.
    #[test]
    fn primaries_are_spread_over_threads() {
        for (replicas, instances) in [(2, 8), (2, 64), (3, 27), (4, 16), (4, 64)] {
            let view = view(&vec![0; replicas], instances);
            let primaries: Vec<u8> = view.partitions().iter().map(|p| p.chain.primary().0).collect();
            let threads = usize::from(instances) / replicas;
            for thread in 0..threads {
                let mut dealt: Vec<u8> = primaries.iter().skip(thread).step_by(threads).copied().collect();
                let mut neighbouring = primaries[thread * replicas..][..replicas].to_vec();
                dealt.sort_unstable();
                neighbouring.sort_unstable();
                let all: Vec<u8> = (1..=replicas as u8).collect();
                assert_eq!((&dealt, &neighbouring), (&all, &all), "{replicas} replicas, thread {thread}");
            }
        }
    }
}
