//! Where a thread's outgoing signals wait: one *lane* for each destination.
//!
//! A signal is encoded once, at the end of its lane. Lane 0 leads back to this thread's own blocks (the executor
//! drains it), lane 1 to this thread's driver, then there is one for each thread of the node (the driver moves it into
//! the ring to that thread) and one for each connection to another node (the driver writes it to the socket).
//!
//! A lane has no capacity of its own: signals that do not fit a ring or a socket stay in it, so a signal that must be
//! sent can always be sent. It is bounded because signals that *start* work are refused while lanes are long
//! ([`Outbox::is_congested`]), and because the driver stops reading from an API node whose lane is long.

use alloc::vec;
use alloc::vec::Vec;
use vinga_base::NodeId;
use vinga_base::hash::KeyHash;
use vinga_wire::{Address, BlockNumber};

/// One of the lanes of an outbox.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LaneId(pub u16);

impl LaneId {
    /// To this thread's own blocks.
    pub const LOCAL: LaneId = LaneId(0);
    /// To this thread's driver.
    pub const DRIVER: LaneId = LaneId(1);
    /// Nowhere: signals to nodes that are not connected.
    const NOWHERE: LaneId = LaneId(u16::MAX);

    /// To the node's thread with this index.
    pub const fn thread(index: u16) -> Self {
        LaneId(2 + index)
    }
}

/// Which thread hosts which block instance. The same on all threads of a node.
#[derive(Clone, Debug)]
pub struct Routes {
    own_node: NodeId,
    own_thread: u16,
    /// `threads[block number][instance]`.
    threads: Vec<Vec<u16>>,
    /// By node id.
    nodes: Vec<LaneId>,
}

const BLOCK_NUMBERS: usize = 16;

impl Routes {
    /// A table in which no instance is known and no node is connected.
    pub fn new(own_node: NodeId, own_thread: u16) -> Self {
        Routes {
            own_node,
            own_thread,
            threads: vec![Vec::new(); BLOCK_NUMBERS],
            nodes: vec![LaneId::NOWHERE; 256],
        }
    }

    /// A table with these block instances and their threads, instances of one block in the order of their numbers.
    pub fn to(own_node: NodeId, own_thread: u16, instances: &[(BlockNumber, u16)]) -> Self {
        let mut routes = Routes::new(own_node, own_thread);
        for &(block, thread) in instances {
            routes.add_instance(block, thread);
        }
        routes
    }

    /// Sets which thread hosts the next instance of a block: instances are numbered in the order of these calls.
    pub fn add_instance(&mut self, block: BlockNumber, thread: u16) {
        self.threads[block as usize].push(thread);
    }

    /// Sets the lane that leads to another node, or `None` when it is no longer connected.
    pub fn set_node(&mut self, node: NodeId, lane: Option<LaneId>) {
        assert!(node != self.own_node, "a node has no lane to itself");
        self.nodes[usize::from(node.0)] = lane.unwrap_or(LaneId::NOWHERE);
    }

    /// The lane that leads to another node.
    pub fn node(&self, node: NodeId) -> Option<LaneId> {
        Some(self.nodes[usize::from(node.0)]).filter(|&lane| lane != LaneId::NOWHERE)
    }

    /// This node.
    pub fn own_node(&self) -> NodeId {
        self.own_node
    }

    /// This thread's index.
    pub fn own_thread(&self) -> u16 {
        self.own_thread
    }

    /// The thread that hosts a block instance of this node.
    #[inline]
    pub fn thread_of(&self, address: Address) -> Option<u16> {
        self.threads.get(usize::from(address.block_number()))?.get(usize::from(address.instance())).copied()
    }

    /// Number of instances of a block on this node.
    pub fn instances(&self, block: BlockNumber) -> u16 {
        self.threads[block as usize].len() as u16
    }

    #[inline]
    fn lane(&self, receiver: Address) -> LaneId {
        if receiver.node() != self.own_node {
            return self.nodes[usize::from(receiver.node().0)];
        }
        match self.thread_of(receiver) {
            Some(thread) if thread == self.own_thread => LaneId::LOCAL,
            Some(thread) => LaneId::thread(thread),
            None if receiver.block_number() == BlockNumber::Driver as u8 => {
                if receiver.instance() == self.own_thread {
                    LaneId::DRIVER
                } else {
                    LaneId::thread(receiver.instance())
                }
            }
            None => LaneId::NOWHERE,
        }
    }
}

/// Which of `links` connections between two data nodes a signal takes. All signals between the same two block instances
/// take the same one, so that they keep their order; signals of others are spread.
pub fn link_between(sender: Address, receiver: Address, links: u16) -> u16 {
    let pair = u64::from(sender.0) << 32 | u64::from(receiver.0);
    (KeyHash::of(&pair.to_le_bytes()).0 % u64::from(links)) as u16
}

/// The outgoing lanes of one thread.
pub struct Outbox {
    /// Which lane leads where. The driver keeps it up to date.
    pub routes: Routes,
    lanes: Vec<Vec<u8>>,
    nowhere: Vec<u8>,
    congestion_mark: usize,
}

impl Outbox {
    /// An outbox with a lane for each of `threads` threads; lanes to nodes are added with [`Outbox::open_lane`].
    /// A lane with more than `congestion_mark` bytes is congested.
    pub fn new(routes: Routes, threads: u16, congestion_mark: usize) -> Self {
        let lanes = (0..2 + threads).map(|_| Vec::new()).collect();
        Outbox { routes, lanes, nowhere: Vec::new(), congestion_mark }
    }

    /// Opens a lane, for example to a connection, and returns its id.
    pub fn open_lane(&mut self, capacity: usize) -> LaneId {
        self.lanes.push(Vec::with_capacity(capacity));
        LaneId(self.lanes.len() as u16 - 1)
    }

    /// The buffer in which to write a signal to `receiver`. Signals to unreachable receivers are written and discarded.
    #[inline]
    pub fn buffer_for(&mut self, receiver: Address) -> &mut Vec<u8> {
        let lane = self.routes.lane(receiver);
        match self.lanes.get_mut(usize::from(lane.0)) {
            Some(buffer) => buffer,
            None => {
                self.nowhere.clear();
                &mut self.nowhere
            }
        }
    }

    /// A lane's waiting frames.
    #[inline]
    pub fn lane(&self, lane: LaneId) -> &[u8] {
        &self.lanes[usize::from(lane.0)]
    }

    /// A lane's waiting frames, for the driver to take from the front.
    #[inline]
    pub fn lane_mut(&mut self, lane: LaneId) -> &mut Vec<u8> {
        &mut self.lanes[usize::from(lane.0)]
    }

    /// Whether so many bytes wait on the way to `receiver` that no new work should be begun for it.
    #[inline]
    pub fn is_congested(&self, receiver: Address) -> bool {
        let lane = self.routes.lane(receiver);
        lane != LaneId::LOCAL
            && self.lanes.get(usize::from(lane.0)).is_some_and(|buffer| buffer.len() > self.congestion_mark)
    }

    /// Whether there is a lane to `receiver`.
    pub fn is_reachable(&self, receiver: Address) -> bool {
        self.routes.lane(receiver) != LaneId::NOWHERE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_go_where_their_block_is() {
        let mut routes = Routes::new(NodeId(1), 0);
        routes.add_instance(BlockNumber::DataManager, 0);
        routes.add_instance(BlockNumber::DataManager, 1);
        let mut outbox = Outbox::new(routes, 2, 10);
        let connection = outbox.open_lane(0);
        outbox.routes.set_node(NodeId(9), Some(connection));
        let address = |node, block, instance| Address::new(NodeId(node), block, instance);
        outbox.buffer_for(address(1, BlockNumber::DataManager, 0)).push(1);
        outbox.buffer_for(address(1, BlockNumber::DataManager, 1)).push(2);
        outbox.buffer_for(address(1, BlockNumber::DataManager, 2)).push(3);
        outbox.buffer_for(address(9, BlockNumber::Api, 77)).extend([4; 11]);
        outbox.buffer_for(address(8, BlockNumber::Api, 0)).push(5);
        outbox.buffer_for(address(1, BlockNumber::Driver, 0)).push(6);
        assert_eq!(outbox.lane(LaneId::LOCAL), [1]);
        assert_eq!(outbox.lane(LaneId::thread(1)), [2]);
        assert_eq!(outbox.lane(LaneId::DRIVER), [6]);
        assert_eq!(outbox.lane(connection), [4; 11]);
        assert!(outbox.is_congested(address(9, BlockNumber::Api, 0)));
        assert!(!outbox.is_reachable(address(8, BlockNumber::Api, 0)));
    }
}
