//! Addresses of block instances: node, block, instance.

use core::fmt;
use vinga_base::NodeId;

/// The kinds of blocks, by their number in addresses. Append-only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum BlockNumber {
    /// The client library in an API node.
    Api = 1,
    /// Admission and failure of API nodes.
    Membership = 2,
    /// Epochs and the partition map.
    Distribution = 3,
    /// Table definitions and schema transactions.
    Dictionary = 4,
    /// Runs transactions.
    Coordinator = 5,
    /// Owns fragments.
    DataManager = 6,
    /// Statistics; one instance a thread.
    Info = 7,
    /// The redo log of a thread's data managers.
    Redo = 9,
    /// Start and stop of a node, phase by phase.
    Lifecycle = 10,
    /// Which data nodes are members: watches the others, and agrees with them on failures.
    Agreement = 11,
    /// Has data nodes join the cluster that come back, or come for the first time.
    Restart = 12,
    /// Not a block but a thread's driver (the edge or the simulator): sockets, files, threads.
    Driver = 8,
}

impl BlockNumber {
    /// The block with a number; `None` if there is none.
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => BlockNumber::Api,
            2 => BlockNumber::Membership,
            3 => BlockNumber::Distribution,
            4 => BlockNumber::Dictionary,
            5 => BlockNumber::Coordinator,
            6 => BlockNumber::DataManager,
            7 => BlockNumber::Info,
            8 => BlockNumber::Driver,
            9 => BlockNumber::Redo,
            10 => BlockNumber::Lifecycle,
            11 => BlockNumber::Agreement,
            12 => BlockNumber::Restart,
            _ => return None,
        })
    }
}

/// A block instance somewhere in the cluster: node in bits 31–24, block in 23–16, instance in 15–0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Address(pub u32);

impl Address {
    /// No address.
    pub const NONE: Address = Address(0);

    /// Builds an address.
    #[inline]
    pub const fn new(node: NodeId, block: BlockNumber, instance: u16) -> Self {
        Address((node.0 as u32) << 24 | (block as u32) << 16 | instance as u32)
    }

    /// The node.
    #[inline]
    pub const fn node(self) -> NodeId {
        NodeId((self.0 >> 24) as u8)
    }

    /// The block's number, which may be unknown in a frame that was received.
    #[inline]
    pub const fn block_number(self) -> u8 {
        (self.0 >> 16) as u8
    }

    /// The block, if the number is known.
    #[inline]
    pub fn block(self) -> Option<BlockNumber> {
        BlockNumber::from_number(self.block_number())
    }

    /// The number of the instance among the node's instances of that block.
    #[inline]
    pub const fn instance(self) -> u16 {
        self.0 as u16
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.block() {
            Some(block) => write!(f, "{}/{block:?}/{}", self.node(), self.instance()),
            None => write!(f, "{}/{}/{}", self.node(), self.block_number(), self.instance()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
