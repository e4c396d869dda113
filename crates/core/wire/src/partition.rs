//! Which data managers own a partition: each has a chain of replicas. Which partitions a table lies in, and which of
//! them a key belongs to, its record says (`vinga_base::table_partitions`).
//!
//! A client, a coordinator and a data manager each hold a copy of the map and compare its version.

use crate::address::{Address, BlockNumber};
use crate::commit::Chain;
use crate::handshake::{PartitionPlace, Topology};
use alloc::vec::Vec;
use vinga_base::{NodeId, PartitionId, View};

/// Who owns a partition: a chain of nodes, and the data manager's instance on each of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The data manager's instance, on every node of the chain.
    pub instance: u16,
    /// The nodes, primary first.
    pub chain: Chain,
}

impl Place {
    /// The data manager on one of the nodes.
    #[inline]
    pub fn at(&self, node: NodeId) -> Address {
        Address::new(node, BlockNumber::DataManager, self.instance)
    }

    /// The data manager that answers for the partition.
    #[inline]
    pub fn primary(&self) -> Address {
        self.at(self.chain.primary())
    }
}

/// See the head of this file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionMap {
    version: u32,
    places: Vec<Place>,
}

impl PartitionMap {
    /// The map of a topology. The topology comes from a data node and is well-formed; nodes that no partition names
    /// do not matter.
    pub fn new(topology: &Topology) -> Self {
        let places: Vec<Place> = topology.partitions.iter().map(place).collect();
        assert!(!places.is_empty(), "a cluster has at least one partition");
        PartitionMap { version: topology.version, places }
    }

    /// The version of the map.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Who owns a partition.
    #[inline]
    pub fn place(&self, partition: PartitionId) -> &Place {
        &self.places[usize::from(partition.0)]
    }

    /// All partitions in order.
    pub fn places(&self) -> impl ExactSizeIterator<Item = (PartitionId, &Place)> {
        self.places.iter().enumerate().map(|(i, place)| (PartitionId(i as u16), place))
    }

    /// Takes a failed node out of every chain: the next replica becomes primary.
    pub fn remove_node(&mut self, node: NodeId) {
        self.version += 1;
        for place in &mut self.places {
            place.chain = place.chain.without(node);
        }
    }
}

impl Topology {
    /// Takes a failed node out of the layout; the version then is that of a [`PartitionMap`] that did the same. A node
    /// that is not in it changes nothing.
    pub fn remove_node(&mut self, node: NodeId, view: View) {
        let before = self.nodes.len();
        self.nodes.retain(|n| n.node != node.0);
        if self.nodes.len() == before {
            return;
        }
        self.version += 1;
        self.view = view.0;
        for place in &mut self.partitions {
            place.chain.retain(|&n| n != node.0);
        }
    }
}

fn place(place: &PartitionPlace) -> Place {
    let nodes: Vec<NodeId> = place.chain.iter().map(|&n| NodeId(n)).collect();
    Place { instance: place.instance, chain: Chain::new(&nodes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::NodeTopology;
    use alloc::vec;

    #[test]
    fn the_next_replica_becomes_primary() {
        let topology = Topology {
            version: 4,
            partitions: (0..8).map(|instance| PartitionPlace { instance, chain: vec![1, 2] }).collect(),
            ..Topology::default()
        };
        let mut map = PartitionMap::new(&topology);
        map.remove_node(NodeId(1));
        assert_eq!(map.place(PartitionId(3)).primary(), Address::new(NodeId(2), BlockNumber::DataManager, 3));
        assert_eq!(map.version(), 5);
    }
    #[test]
    fn layout_and_map_lose_a_node_alike() {
        let node = |node| NodeTopology { node, connections: vec![], data_managers: 2, coordinators: 1 };
        let place = |instance, chain: &[u8]| PartitionPlace { instance, chain: chain.to_vec() };
        let mut topology = Topology {
            version: 4,
            view: 1,
            nodes: vec![node(1), node(2)],
            partitions: vec![place(0, &[1, 2]), place(1, &[2, 1])],
        };
        let mut map = PartitionMap::new(&topology);
        map.remove_node(NodeId(1));
        topology.remove_node(NodeId(1), View(2));
        assert_eq!(PartitionMap::new(&topology), map);
        assert_eq!((topology.view, topology.nodes.len()), (2, 1));
        topology.remove_node(NodeId(1), View(3));
        assert_eq!((topology.version, topology.view), (5, 2));
    }
}
