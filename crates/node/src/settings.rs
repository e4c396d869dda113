//! What a data node is: its place in the cluster, its threads, its limits.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;
use vinga_base::{Epoch, Incarnation, NodeId};
use vinga_dictionary::Partitioning;
use vinga_distribution::NodePlace;
use vinga_kernel::{Routes, Span};
use vinga_wire::handshake::Topology;
use vinga_wire::{Address, BlockNumber};

/// Which block instances a thread hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadHosting {
    /// Data manager instances.
    pub data_managers: Range<u16>,
    /// Coordinator instances.
    pub coordinators: Range<u16>,
    /// Membership, distribution, dictionary: exactly one thread of a node.
    pub main: bool,
    /// Whether the thread's driver reads sockets.
    pub owns_sockets: bool,
}

/// See the head of this file. The same on all threads of a node.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// This node.
    pub node: NodeId,
    /// Which start of it this is.
    pub incarnation: Incarnation,
    /// All data nodes, in the order in which they joined, with their node groups.
    pub nodes: Vec<NodePlace>,
    /// The first epoch: above every epoch of earlier incarnations.
    pub epoch: Epoch,
    /// The first table version: above every version of earlier incarnations.
    pub table_version: u64,
    /// In order of thread index; data manager and coordinator instances ascend over the threads.
    pub threads: Vec<ThreadHosting>,
    /// `MaxNoOfConcurrentTransactions` of each coordinator.
    pub transactions_max: u32,
    /// `MaxNoOfConcurrentOperations` of each data manager.
    pub operations_max: u32,
    /// `MaxNoOfConcurrentScans` of each data manager.
    pub scans_max: u32,
    /// `MaxNoOfTables`.
    pub tables_max: u32,
    /// Partitions of a table that does not say how many it wants, on each node (`PartitionsPerNode`).
    pub partitions_per_node: u16,
    /// The lowest node id that an API node may have.
    pub api_first: NodeId,
    /// `MaxNoOfApiConnections`.
    pub api_nodes_max: u8,
    /// `TransactionDeadlockDetectionTimeout`.
    pub lock_timeout: Span,
    /// `TransactionInactiveTimeout`; `None` for never.
    pub inactive_timeout: Option<Span>,
    /// Operations that a coordinator sends a data manager as one signal, at most.
    pub operations_together: u16,
    /// `HeartbeatIntervalDbApi`.
    pub heartbeat_interval: Span,
    /// How long an API node may take to reconnect before it is declared failed.
    pub reconnect_grace: Span,
    /// `TimeBetweenEpochs`.
    pub epoch_interval: Span,
}

impl NodeSettings {
    /// Instances of a block on this node.
    fn instances(&self, block: BlockNumber) -> u16 {
        let sum = |of: fn(&ThreadHosting) -> usize| self.threads.iter().map(of).sum::<usize>() as u16;
        match block {
            BlockNumber::DataManager => sum(|t| t.data_managers.len()),
            BlockNumber::Coordinator => sum(|t| t.coordinators.len()),
            BlockNumber::Info => self.threads.len() as u16,
            BlockNumber::Membership | BlockNumber::Distribution | BlockNumber::Dictionary => 1,
            BlockNumber::Api | BlockNumber::Driver => 0,
        }
    }

    /// All data nodes and who owns which partition, as everybody sees it at the start.
    pub fn topology(&self) -> Topology {
        vinga_distribution::layout(&self.nodes)
    }

    /// Where rows of new tables are put: the usual table has so many partitions that each node has its share.
    pub fn partitioning(&self) -> Partitioning {
        let groups: BTreeSet<u16> = self.nodes.iter().map(|node| node.group).collect();
        Partitioning {
            groups: groups.len() as u16,
            instances: self.instances(BlockNumber::DataManager),
            usual: self.partitions_per_node.saturating_mul(self.nodes.len() as u16),
        }
    }

    /// All instances of a block, on all data nodes.
    pub fn all_of(&self, block: BlockNumber) -> Vec<Address> {
        self.nodes
            .iter()
            .flat_map(|node| {
                let node = &node.topology;
                let instances = match block {
                    BlockNumber::DataManager => node.data_managers,
                    BlockNumber::Coordinator => node.coordinators,
                    _ => 1,
                };
                (0..instances).map(move |i| Address::new(NodeId(node.node), block, i))
            })
            .collect()
    }
}

/// The routes of a thread: where each block instance of the node is.
pub fn routes(settings: &NodeSettings, thread: u16) -> Routes {
    let mut routes = Routes::new(settings.node, thread);
    for (index, hosting) in settings.threads.iter().enumerate() {
        let index = index as u16;
        for _ in hosting.data_managers.clone() {
            routes.add_instance(BlockNumber::DataManager, index);
        }
        for _ in hosting.coordinators.clone() {
            routes.add_instance(BlockNumber::Coordinator, index);
        }
        if hosting.main {
            for block in [BlockNumber::Membership, BlockNumber::Distribution, BlockNumber::Dictionary] {
                routes.add_instance(block, index);
            }
        }
        routes.add_instance(BlockNumber::Info, index);
    }
    for block in [BlockNumber::DataManager, BlockNumber::Coordinator, BlockNumber::Membership] {
        assert_eq!(routes.instances(block), settings.instances(block), "every instance has its thread");
    }
    routes
}
