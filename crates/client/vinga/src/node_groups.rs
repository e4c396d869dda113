//! The node groups of a cluster, and the partitions that they have.

use vinga_base::NodeId;
use vinga_wire::view::ClusterView;
pub use vinga_wire::view::NoRoom;

/// Data nodes that hold the same partitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeGroup {
    /// Its number, from 0.
    pub group: u16,
    /// Its data nodes that have started, ascending.
    pub data_nodes: Vec<NodeId>,
    /// Partitions that it has, or that are moving to it.
    pub partitions: usize,
    /// How many of these have not all their replicas here yet.
    pub coming: usize,
}

impl NodeGroup {
    /// Whether no two of these differ by more than one partition: each has its share.
    pub fn have_their_shares(all: &[NodeGroup]) -> bool {
        let partitions = || all.iter().map(|group| group.partitions);
        partitions().max().unwrap_or(0) <= partitions().min().unwrap_or(0) + 1
    }
}

/// How far a cluster is with moving partitions to other node groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reorganization {
    /// The cluster's incarnation: if it is another one than before, all data nodes of that one have ended meanwhile.
    pub cluster: u64,
    /// Whether partitions move, or are about to.
    pub is_under_way: bool,
    /// The data node that had no room for a partition, if it has ended before each node group had its share for that.
    pub no_room: Option<NoRoom>,
}

impl Reorganization {
    pub(crate) fn of(cluster: u64, view: &ClusterView) -> Self {
        let is_under_way = view.reorganizes() || view.moving().is_some();
        Reorganization { cluster, is_under_way, no_room: view.no_room() }
    }
}

/// Those of a view.
pub(crate) fn of(view: &ClusterView) -> Vec<NodeGroup> {
    let group = |group: u16| {
        let mut data_nodes: Vec<NodeId> =
            view.started().filter(|member| member.group == group).map(|member| member.node).collect();
        data_nodes.sort_unstable();
        let own = || view.partitions().iter().filter(|partition| partition.group == group);
        let is_coming =
            |one: &&vinga_wire::view::Partition| one.chain.nodes().any(|node| view.is_displaced(one, node));
        NodeGroup { group, data_nodes, partitions: own().count(), coming: own().filter(is_coming).count() }
    };
    (0..view.groups()).map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_base::{Incarnation, PartitionId};
    use vinga_wire::view::{Member, Placement};

    #[test]
    fn a_partition_comes_until_its_replicas_are_all_there() {
        let member = |node, group| Member::started(NodeId(node), Incarnation(1), group, 4, 1);
        let view = ClusterView::first(vec![member(1, 0), member(2, 0), member(3, 1), member(4, 1)]);
        let group = |group, nodes: [u8; 2], partitions, coming| NodeGroup {
            group,
            data_nodes: nodes.map(NodeId).to_vec(),
            partitions,
            coming,
        };
        assert_eq!(of(&view), [group(0, [1, 2], 4, 0), group(1, [3, 4], 4, 0)]);
        let moving = view.with_placement(Placement::Assign(PartitionId(0), 1));
        assert_eq!(of(&moving), [group(0, [1, 2], 3, 0), group(1, [3, 4], 5, 1)]);
    }
}
