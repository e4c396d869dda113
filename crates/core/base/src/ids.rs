//! Identifiers. Each has a type of its own, so that a table's number can never be used in place of a node's.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id! {
    /// A node of the cluster, 1–255; data nodes have 1–144. 0 means "no node".
    NodeId(u8)
}
id! {
    /// One run of a node. No two of a node have the same number, and those of a client or of a node with a disk grow
    /// with every start; signals and connections of an earlier incarnation are refused.
    Incarnation(u32)
}
id! {
    /// The number of an agreed view of the cluster, from 1. Frames between data nodes carry its low byte.
    ViewNumber(u32)
}
id! {
    /// A table's number: its place in the dictionary. It is reused after a drop, so it is only valid together with the
    /// version.
    TableId(u32)
}
id! {
    /// The version of a table's definition: unique over drops, creates and restarts of the cluster.
    TableVersion(u64)
}
id! {
    /// A column's place in its table's definition, from 0.
    ColumnId(u16)
}
id! {
    /// A hash partition of a table, from 0.
    PartitionId(u16)
}
id! {
    /// A row's place inside a fragment: page index in the high 21 bits, slot in the low 11. The same on all replicas.
    RowId(u32)
}
id! {
    /// The number of an operation inside its transaction, from 1, in the order in which the API node defined them.
    OperationNumber(u32)
}
id! {
    /// A numbered group of transactions that become durable together. 48 bits are used; 0 means "none".
    Epoch(u64)
}

impl Epoch {
    /// The greatest epoch that fits a row header.
    pub const MAX: Epoch = Epoch((1 << 48) - 1);
}

impl RowId {
    /// Bits of a row id that number the slot inside a page.
    pub const SLOT_BITS: u32 = 11;

    /// Builds a row id. Both parts must be in range; the row store guarantees that.
    #[inline]
    pub fn new(page: u32, slot: u32) -> Self {
        debug_assert!(slot < 1 << Self::SLOT_BITS && page < 1 << (32 - Self::SLOT_BITS));
        RowId(page << Self::SLOT_BITS | slot)
    }

    /// Index of the page inside the fragment.
    #[inline]
    pub fn page(self) -> u32 {
        self.0 >> Self::SLOT_BITS
    }

    /// Index of the slot inside the page.
    #[inline]
    pub fn slot(self) -> u32 {
        self.0 & ((1 << Self::SLOT_BITS) - 1)
    }
}

/// A transaction: the API node that runs it, the low 16 bits of that node's incarnation and a sequence number.
///
/// ```text
///   bits 63..56 API node   bits 55..40 incarnation, low 16 bits   bits 39..0 sequence number, from 1
/// ```
/// The cluster gives the sessions of a node id consecutive incarnations, so that two which differ in the higher bits
/// only are 65,536 sessions apart. The API node makes the id, the coordinator checks that it belongs to the connection.
/// 40 bits last for twelve days at a million transactions a second and may then wrap: the transactions that used the
/// old numbers ended long ago.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[repr(transparent)]
pub struct TransactionId(pub u64);

impl TransactionId {
    /// No transaction.
    pub const NONE: TransactionId = TransactionId(0);
    /// Bits of the sequence number.
    pub const NUMBER_BITS: u32 = 40;

    /// Builds an id; `number` is cut to its 40 bits.
    pub fn new(api: NodeId, incarnation: Incarnation, number: u64) -> Self {
        TransactionId(
            u64::from(api.0) << 56
                | u64::from(incarnation.0 as u16) << Self::NUMBER_BITS
                | number & ((1 << Self::NUMBER_BITS) - 1),
        )
    }

    /// The API node that owns the transaction.
    #[inline]
    pub fn api(self) -> NodeId {
        NodeId((self.0 >> 56) as u8)
    }

    /// Node and incarnation together: they must match those of the connection that uses the transaction.
    #[inline]
    pub fn owner(self) -> u32 {
        (self.0 >> Self::NUMBER_BITS) as u32
    }

    /// The sequence number.
    #[inline]
    pub fn number(self) -> u64 {
        self.0 & ((1 << Self::NUMBER_BITS) - 1)
    }
}

impl fmt::Debug for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}.{}.{}", self.api(), (self.0 >> Self::NUMBER_BITS) as u16, self.number())
    }
}
