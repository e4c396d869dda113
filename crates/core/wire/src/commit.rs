//! The commit protocol: between a coordinator and data managers, and along chains of them.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `PrepareRequest` | coordinator; each replica to the next | data manager | begin these operations, forward them |
//! | `PrepareConfirm` | last replica of the chain | coordinator | these operations are prepared on the whole chain |
//! | `PrepareRefuse` | the replica that refuses | coordinator | these operations failed and left nothing there |
//! | `PrepareMovedReport` | a replica that is not the primary any more | coordinator | your `PrepareRequest`, as it was: send it to the primary |
//! | `CommitRequest` | coordinator to last replica; each to the one before | data manager | commit, with this epoch |
//! | `CommitConfirm` | primary | coordinator | committed on the whole chain |
//! | `AbortRequest` | coordinator to the primary; each replica to the next | data manager | undo from this number on |
//! | `AbortConfirm` | last replica | coordinator | undone on the whole chain |
//! | `CompleteOrder` | coordinator | every replica | these transactions are committed everywhere: drop their records |
//! | `CompleteRequest` | coordinator | every replica | the same of one transaction, where backups answer reads |
//! | `CompleteConfirm` | that replica | coordinator | it shows the transaction's changes |
//! | `MarkersDropOrder` | coordinator | data managers with markers | the API node knows these transactions' outcomes |
//! | `InDoubtRequest` | coordinator | every replica that is left | has it committed what it may have committed by itself? |
//! | `InDoubtConfirm` | that replica | coordinator | whether, and in which epoch |
//!
//! Prepares and aborts travel a chain forwards, commits travel it backwards; all are idempotent and matched by
//! (transaction id, operation number, sub-operation). Each names the coordinator that the transaction belongs to
//! (address and incarnation) and the one that acts for it (the same, or its successor).

use crate::address::Address;
use crate::take_over::CoordinatorName;
use crate::view::ReplicaGroup;
use serde::{Deserialize, Serialize};
use vinga_base::{Incarnation, NodeId, TransactionId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Replicas of a row, at most.
pub const CHAIN_MAX: usize = 4;

/// Data nodes of a node group in an order: those that have a row, primary first; unused places are 0. The data
/// manager's instance number is the same on all of them.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Serialize,
    Deserialize,
)]
#[repr(C)]
pub struct Chain {
    nodes: [u8; CHAIN_MAX],
}

impl Chain {
    /// A chain of these nodes, 1 to [`CHAIN_MAX`], without duplicates.
    pub fn new(nodes: &[NodeId]) -> Self {
        assert!((1..=CHAIN_MAX).contains(&nodes.len()), "a chain has 1 to {CHAIN_MAX} replicas");
        let mut chain = Chain::default();
        for (place, node) in chain.nodes.iter_mut().zip(nodes) {
            *place = node.0;
        }
        chain
    }

    /// Whether it has no replica.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.nodes[0] == 0
    }

    /// Number of replicas.
    #[inline]
    pub fn length(&self) -> usize {
        self.nodes.iter().take_while(|&&n| n != 0).count()
    }

    /// The replicas, primary first.
    #[inline]
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        let length = self.length();
        let nodes = self.nodes;
        (0..length).map(move |i| NodeId(nodes[i]))
    }

    /// The first replica.
    #[inline]
    pub fn primary(&self) -> NodeId {
        NodeId(self.nodes[0])
    }

    /// The last replica.
    #[inline]
    pub fn last(&self) -> NodeId {
        NodeId(self.nodes[self.length().saturating_sub(1)])
    }

    /// Whether `node` is the only replica.
    #[inline]
    pub fn is_only(&self, node: NodeId) -> bool {
        self.nodes == [node.0, 0, 0, 0]
    }

    /// Whether `node` is one of the replicas.
    #[inline]
    pub fn contains(&self, node: NodeId) -> bool {
        node.0 != 0 && self.nodes.contains(&node.0)
    }

    /// The replica behind `node`.
    #[inline]
    pub fn next(&self, node: NodeId) -> Option<NodeId> {
        let at = self.nodes.iter().position(|&n| n == node.0)?;
        self.nodes.get(at + 1).filter(|&&n| n != 0).map(|&n| NodeId(n))
    }

    /// The replica before `node`.
    #[inline]
    pub fn previous(&self, node: NodeId) -> Option<NodeId> {
        let at = self.nodes.iter().position(|&n| n == node.0)?;
        Some(NodeId(self.nodes[at.checked_sub(1)?]))
    }

    /// The chain with one more replica behind the last.
    #[must_use]
    pub fn with(&self, node: NodeId) -> Self {
        let mut longer = *self;
        longer.nodes[self.length()] = node.0;
        longer
    }

    /// The chain without a failed node; the order is kept.
    #[must_use]
    pub fn without(&self, node: NodeId) -> Self {
        let mut rest = Chain::default();
        for (place, survivor) in rest.nodes.iter_mut().zip(self.nodes().filter(|&n| n != node)) {
            *place = survivor.0;
        }
        rest
    }
}

impl core::fmt::Debug for Chain {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.nodes().map(|n| n.0)).finish()
    }
}

/// The coordinator for which a chain signal is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Actor {
    /// The coordinator that the transaction belongs to.
    pub coordinator: U32,
    /// The incarnation of that coordinator's node.
    pub incarnation: U32,
    /// The coordinator that acts for it: itself, or its successor.
    pub acting: U32,
    /// The acting coordinator's identifier of the transaction, returned in every answer.
    pub record: U32,
}

impl Actor {
    /// The coordinator that the transaction belongs to.
    #[inline]
    pub fn coordinator_name(&self) -> CoordinatorName {
        CoordinatorName {
            address: Address(self.coordinator.get()),
            incarnation: Incarnation(self.incarnation.get()),
        }
    }

    /// Whether both act for the same coordinator's transactions, itself or a successor.
    pub fn has_same_coordinator(&self, other: &Actor) -> bool {
        self.coordinator == other.coordinator && self.incarnation == other.incarnation
    }
}

/// With [`PrepareHead::flags`]: all other operations of the transaction are prepared and a commit was requested. If the
/// receiver can commit in one phase, it does so at once, in the later of `epoch` and its own newest epoch. With several
/// replicas the last one of the chain commits, and sends the `CommitRequest` to the one before it.
pub const PREPARE_LAST: u16 = 1;

/// Beginning of `PrepareRequest`; operations follow (operation.rs).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PrepareHead {
    /// The transaction.
    pub transaction: U64,
    /// With [`PREPARE_LAST`]: the epoch to commit in. On a forwarded prepare: the newest epoch of any commit at the
    /// replicas before this one.
    pub epoch: U64,
    /// The coordinator for which it is sent.
    pub actor: Actor,
    /// The API node's client, to which the rows that are read are sent.
    pub api: U32,
    /// Its incarnation.
    pub api_incarnation: U32,
    /// The replicas of all these operations. Empty in a coordinator's request: the primary decides, by its view.
    pub chain: Chain,
    /// The data managers of the partition of all these operations.
    pub owner: ReplicaGroup,
    /// Flags defined in this file.
    pub flags: U16,
    /// Number of operations.
    pub count: U16,
}

/// With [`PreparedHead::flags`]: the operations are committed already, in `epoch`.
pub const PREPARED_COMMITTED: u16 = 1;

/// Beginning of `PrepareConfirm` and `PrepareRefuse`; [`PreparedOperation`]s follow. In a confirm, the changes of
/// unique indexes that follow from the operations come after them ([`crate::unique::IndexChange`]). If these are too
/// many for one signal, further ones are sent in confirms without operations, before the confirm that names their
/// operations. A confirm without operations and changes is the answer to [`PREPARE_LAST`] if all operations wait:
/// nothing is committed at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PreparedHead {
    /// The transaction.
    pub transaction: U64,
    /// The newest epoch of any commit at the chain's data managers once the locks were held; with
    /// [`PREPARED_COMMITTED`] the commit epoch.
    pub epoch: U64,
    /// The acting coordinator's identifier of the transaction.
    pub record: U32,
    /// The data managers that hold the operations.
    pub owner: ReplicaGroup,
    /// Flags defined in this file.
    pub flags: U16,
    /// Number of operations.
    pub count: U16,
    /// Number of changes of unique indexes after them.
    pub changes: U16,
    /// Zero.
    pub unused: U16,
}

/// One operation of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PreparedOperation {
    /// Its number.
    pub operation: U32,
    /// Why it failed ([`crate::ErrorCode`]); 0 in a confirm.
    pub code: U16,
    /// Flags defined in this file.
    pub flags: u8,
    /// The number of the sub-operation; 0 for the operation itself.
    pub sub: u8,
}

impl PreparedOperation {
    /// The `count` operations after a [`PreparedHead`], and the bytes after them; `None` if they are not complete.
    #[inline]
    pub fn list(bytes: &[u8], count: u16) -> Option<(&[Self], &[u8])> {
        <[Self]>::ref_from_prefix_with_elems(bytes, usize::from(count)).ok()
    }
}

/// A row report was sent to the API node for this operation.
pub const OPERATION_SENT_ROW: u8 = 1;
/// A record of the operation stays at the data manager: it must be committed or aborted.
pub const OPERATION_HOLDS: u8 = 2;
/// The operation was marked [`crate::operation::FLAG_ERROR_IS_LOCAL`].
pub const OPERATION_ERROR_IS_LOCAL: u8 = 4;
/// The operation changes its row if it is committed.
pub const OPERATION_CHANGES: u8 = 8;

/// `CommitRequest`, `CommitConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommitBody {
    /// The transaction.
    pub transaction: U64,
    /// Its epoch.
    pub epoch: U64,
    /// The coordinator for which it is sent.
    pub actor: Actor,
    /// Applies to all operations of the transaction at these data managers.
    pub owner: ReplicaGroup,
    /// The replicas that may hold some of them, in the coordinator's view.
    pub replicas: Chain,
    /// The first write operation, whose record becomes the marker; 0 if others have it or none is needed.
    pub marker: U32,
    /// [`COMMIT_IS_COMPLETE`] or 0.
    pub flags: U32,
}

/// With [`CommitBody::flags`]: nobody orders the replicas to complete the transaction. Each shows its changes at once
/// and keeps nothing of it but the marker.
pub const COMMIT_IS_COMPLETE: u32 = 1;

/// `InDoubtRequest`, `InDoubtConfirm`: about a transaction that a replica may have committed by itself
/// ([`PREPARE_LAST`]), when another replica has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct InDoubtBody {
    /// The transaction.
    pub transaction: U64,
    /// The epoch in which it is committed at this replica; 0 if it is not, and in a request.
    pub epoch: U64,
    /// The coordinator for which it is sent.
    pub actor: Actor,
    /// The replica group.
    pub owner: ReplicaGroup,
    /// The coordinator's view: what is committed because of a later failure is found by a later question.
    pub view: U32,
    /// The operation that leaves the marker, if it is committed.
    pub marker: U32,
}

/// In [`AbortBody::from`]: end the transaction instead of undoing operations; a partial rollback may undo all of them,
/// too.
pub const WHOLE_TRANSACTION: u32 = 0;

/// With [`AbortBody::flags`]: only the operation with exactly the number `from`, and its sub-operations. Nothing of the
/// transaction may have been done later to the same rows.
pub const ABORT_ONE: u16 = 1;

/// `AbortRequest`, `AbortConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AbortBody {
    /// The transaction.
    pub transaction: U64,
    /// The coordinator for which it is sent.
    pub actor: Actor,
    /// Applies to the operations of the transaction at these data managers.
    pub owner: ReplicaGroup,
    /// The replicas that may hold some of them, in the coordinator's view.
    pub replicas: Chain,
    /// Operations from this number on are undone, and their locks kept; [`WHOLE_TRANSACTION`] ends the transaction.
    pub from: U32,
    /// [`ABORT_ONE`] or 0.
    pub flags: U16,
    /// Zero.
    pub unused: U16,
}

/// `CompleteRequest`, `CompleteConfirm`: a transaction is committed on all replicas, and one of them is to show its
/// changes and to drop its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CompleteBody {
    /// The transaction.
    pub transaction: U64,
    /// The coordinator for which it is sent.
    pub actor: Actor,
    /// The replica group.
    pub owner: ReplicaGroup,
}

/// The ids of so many transactions, of 8 bytes each, at the beginning of `bytes`; `None` if there are fewer.
pub fn transaction_ids(bytes: &[u8], count: u32) -> Option<impl Iterator<Item = TransactionId> + Clone> {
    let ids = <[U64]>::ref_from_bytes(bytes.get(..count as usize * 8)?).ok()?;
    Some(ids.iter().map(|id| TransactionId(id.get())))
}

/// Beginning of `CompleteOrder` and `MarkersDropOrder`; transaction ids (u64) follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TransactionList {
    /// Number of transaction ids.
    pub count: U32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_walked_both_ways() {
        let chain = Chain::new(&[NodeId(3), NodeId(1), NodeId(2)]);
        assert_eq!((chain.length(), chain.primary(), chain.last()), (3, NodeId(3), NodeId(2)));
        assert_eq!(chain.next(NodeId(3)), Some(NodeId(1)));
        assert_eq!(chain.next(NodeId(2)), None);
        assert_eq!(chain.previous(NodeId(2)), Some(NodeId(1)));
        assert_eq!(chain.previous(NodeId(3)), None);
        assert_eq!(chain.next(NodeId(9)), None);
        let rest = chain.without(NodeId(3));
        assert_eq!(rest, Chain::new(&[NodeId(1), NodeId(2)]));
        assert!(rest.without(NodeId(2)).is_only(NodeId(1)));
        assert_eq!(rest.without(NodeId(1)).without(NodeId(2)).length(), 0);
        assert!(!chain.contains(NodeId(0)));
    }
}
