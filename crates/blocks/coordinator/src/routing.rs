//! Which data managers an operation is for.

use alloc::vec::Vec;
use vinga_base::{NodeId, PartitionId};
use vinga_wire::commit::Chain;
use vinga_wire::partition::PartitionMap;

use vinga_wire::partition::Place;

/// The partition map and the nodes that have failed since.
pub struct Routing {
    map: PartitionMap,
    failed: Vec<NodeId>,
}

impl Routing {
    pub fn new(map: PartitionMap) -> Self {
        Routing { map, failed: Vec::new() }
    }

    /// Where a partition is.
    #[inline]
    pub fn place(&self, partition: PartitionId) -> Place {
        *self.map.place(partition)
    }

    /// What is left of a chain.
    pub fn alive(&self, chain: Chain) -> Chain {
        self.failed.iter().fold(chain, |chain, &node| chain.without(node))
    }

    pub fn remove_node(&mut self, node: NodeId) {
        self.map.remove_node(node);
        self.failed.push(node);
    }
}
