//! Makes the partition map.
//!
//! A *node group* is a set of data nodes that hold the same partitions; each data manager instance of a node group owns
//! one partition, on every node of the group. Partitions are numbered through the groups: of g groups, partition p is
//! in the (p mod g)-th and owned by instance p / g.
//!
//! The nodes of a chain are those of the group, rotated so that each is primary for its share. How far is the sum of
//! the instance's digits to the base of the group's size (the Thue–Morse sequence for two nodes): so the primaries of a
//! node are spread evenly both over threads that host every k-th instance and over those that host neighbouring ones.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use vinga_wire::commit::CHAIN_MAX;
use vinga_wire::handshake::{NodeTopology, PartitionPlace, Topology};

/// A data node and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodePlace {
    /// Its node group.
    pub group: u16,
    /// Its id and what it hosts.
    pub topology: NodeTopology,
}

/// The layout of these nodes, in view 1. The configuration was checked: no node stands twice, all have the same number
/// of data managers, one at least, and a group has 1 to [`CHAIN_MAX`] nodes.
pub fn layout(nodes: &[NodePlace]) -> Topology {
    let mut groups: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    for node in nodes {
        groups.entry(node.group).or_default().push(node.topology.node);
    }
    let ids: BTreeSet<u8> = nodes.iter().map(|node| node.topology.node).collect();
    assert_eq!(ids.len(), nodes.len(), "each node stands in the configuration once");
    assert!(groups.values().all(|group| group.len() <= CHAIN_MAX), "a group has at most {CHAIN_MAX} nodes");
    let instances = nodes.first().expect("a cluster has a data node").topology.data_managers;
    assert!(instances > 0, "a data node has a data manager");
    assert!(
        nodes.iter().all(|node| node.topology.data_managers == instances),
        "all data nodes have the same number of data managers"
    );
    let partitions = (0..instances)
        .flat_map(|instance| groups.values().map(move |group| place(instance, group)))
        .collect();
    Topology {
        version: 1,
        view: 1,
        nodes: nodes.iter().map(|node| node.topology.clone()).collect(),
        partitions,
    }
}

fn place(instance: u16, group: &[u8]) -> PartitionPlace {
    let mut chain = group.to_vec();
    chain.rotate_left(digit_sum(usize::from(instance), group.len()) % group.len());
    PartitionPlace { instance, chain }
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
    use vinga_wire::partition::PartitionMap;

    fn nodes(groups: &[u16], data_managers: u16) -> Vec<NodePlace> {
        (1..)
            .zip(groups)
            .map(|(node, &group)| NodePlace {
                group,
                topology: NodeTopology { node, connections: vec![], data_managers, coordinators: 1 },
            })
            .collect()
    }

    #[test]
    fn one_node_owns_everything() {
        let topology = layout(&nodes(&[0], 8));
        assert_eq!(topology.partitions.len(), 8);
        for (instance, partition) in (0..).zip(&topology.partitions) {
            assert_eq!(*partition, PartitionPlace { instance, chain: vec![1] });
        }
        assert_eq!(PartitionMap::new(&topology).place(PartitionId(5)).instance, 5);
    }

    #[test]
    fn groups_take_turns_and_nodes_share_the_primaries() {
        let topology = layout(&nodes(&[0, 0, 1, 1], 4));
        let chains: Vec<_> = topology.partitions.iter().map(|p| (p.instance, p.chain.clone())).collect();
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
        assert_eq!(chains, expected.map(|(instance, chain)| (instance, chain.to_vec())));
    }

    /// Each node is primary equally often, over all and on each thread, however instances are dealt to threads.
    #[test]
    fn primaries_are_spread_over_threads() {
        for (replicas, instances) in [(2, 8), (2, 64), (3, 27), (4, 16), (4, 64)] {
            let topology = layout(&nodes(&vec![0; replicas], instances));
            let primaries: Vec<u8> = topology.partitions.iter().map(|p| p.chain[0]).collect();
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
