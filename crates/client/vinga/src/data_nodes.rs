//! The data nodes of a cluster, as they have agreed on them.

use std::collections::BTreeMap;
use vinga_base::{Incarnation, NodeId};
use vinga_wire::view::ClusterView;

/// A data node that has all rows of its node group, or is about to leave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataNode {
    /// Its id.
    pub node: NodeId,
    /// Which start of it: another one has another.
    pub incarnation: Incarnation,
    /// Its node group.
    pub group: u16,
    /// Whether it leads the cluster.
    pub leads: bool,
    /// Partitions of which it has all rows.
    pub partitions: usize,
    /// Partitions of these that it is the primary of.
    pub primaries: usize,
}

impl DataNode {
    /// The order in which all of them are restarted: by their ids, but for the one that leads. It is the last, so that
    /// the lead moves once.
    pub fn in_rolling_order(nodes: &[DataNode]) -> Vec<NodeId> {
        let mut order: Vec<&DataNode> = nodes.iter().collect();
        order.sort_unstable_by_key(|one| (one.leads, one.node));
        order.into_iter().map(|one| one.node).collect()
    }

    /// Whether those of each node group have numbers of primaries that differ by one at most: then none moves.
    pub fn are_balanced(nodes: &[DataNode]) -> bool {
        let mut groups: BTreeMap<u16, (usize, usize)> = BTreeMap::new();
        for one in nodes {
            let (least, most) = groups.entry(one.group).or_insert((one.primaries, one.primaries));
            (*least, *most) = ((*least).min(one.primaries), (*most).max(one.primaries));
        }
        groups.values().all(|(least, most)| most - least <= 1)
    }
}

/// Those of a view, by their ids.
pub(crate) fn of(view: &ClusterView) -> Vec<DataNode> {
    let president = view.president();
    let started = view.started().map(|member| DataNode {
        node: member.node,
        incarnation: member.incarnation,
        group: member.group,
        leads: president == Some(member.node),
        partitions: view.held_by(member.node).count(),
        primaries: view.partitions().iter().filter(|one| one.chain.primary() == member.node).count(),
    });
    let mut nodes: Vec<DataNode> = started.collect();
    nodes.sort_unstable_by_key(|one| one.node);
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_base::PartitionId;
    use vinga_wire::view::Member;

    fn data_node(node: u8, group: u16, leads: bool, primaries: usize) -> DataNode {
        let incarnation = Incarnation(1);
        DataNode { node: NodeId(node), incarnation, group, leads, partitions: 4, primaries }
    }

    #[test]
    fn the_one_that_leads_is_restarted_last() {
        let nodes = [data_node(1, 0, true, 2), data_node(2, 0, false, 2), data_node(3, 1, false, 2)];
        assert_eq!(DataNode::in_rolling_order(&nodes), [2, 3, 1].map(NodeId));
    }

    #[test]
    fn primaries_are_balanced_in_each_node_group() {
        let first = data_node(1, 0, true, 2);
        assert!(DataNode::are_balanced(&[first, data_node(2, 0, false, 1), data_node(3, 1, false, 9)]));
        assert!(!DataNode::are_balanced(&[first, data_node(2, 0, false, 0)]));
    }

    #[test]
    fn they_are_listed_by_their_ids_with_what_they_have() {
        let member = |id: u8| Member::started(NodeId(id), Incarnation(u32::from(id) + 6), 0, 2, 1);
        let view = ClusterView::first([3, 1].map(member).into());
        let known = |view: &ClusterView| -> Vec<_> {
            of(view).iter().map(|one| (one.node.0, one.leads, one.partitions, one.primaries)).collect()
        };
        let (first, count) = (known(&view), view.partitions().len());
        assert_eq!(
            first.iter().map(|one| (one.0, one.1, one.2)).collect::<Vec<_>>(),
            [(1, false, count), (3, true, count)]
        );
        assert_eq!(first.iter().map(|one| one.3).sum::<usize>(), count);
        assert_eq!((of(&view)[1].incarnation, of(&view)[1].group), (Incarnation(9), 0));
        // One that leaves is among them, with what it has still.
        let of_1 = (0..).map(PartitionId).zip(view.partitions());
        let (number, _) =
            of_1.into_iter().find(|(_, one)| one.chain.primary() == NodeId(1)).expect("it has some");
        let leaving = view.with_leaving(NodeId(3)).with_left_out(number);
        assert_eq!(known(&leaving)[1], (3, true, count - 1, first[1].3));
    }
}
