//! Take-over: between the successor of a coordinator that has failed and the data managers, which know what it was
//! doing. `docs/protocols/take-over.md` describes the protocol.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `TakeOverOrder` | successor | every data manager | report what you have of this coordinator's transactions |
//! | `TakeOverReport` | data manager | successor | this; several of them, the last says that it is |
//! | `TakeOverDoneReport` | successor | president's distribution and dictionary | all its transactions have ended |
//! | `InheritedOutcomeRequest` | API node | successor | was this transaction of it committed? |
//! | `OutcomeConfirm` | successor | API node | the answer, when it has ended (transaction.rs) |
//! | `OutcomesReleasedOrder` | API node | successor | nothing will be asked of this coordinator any more |
//!
//! A coordinator is named by its address and the incarnation of its node ([`CoordinatorName`]). It is acted for by its
//! successor in the view ([`crate::view::ClusterView::acts_for`]), by nobody else.

use crate::address::Address;
use crate::view::ReplicaGroup;
use vinga_base::Incarnation;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A coordinator in one start of its node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CoordinatorName {
    /// Where it is, or was.
    pub address: Address,
    /// The incarnation of its node.
    pub incarnation: Incarnation,
}

/// The same in a signal: the body of `TakeOverOrder`, and the beginning of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CoordinatorBody {
    /// Its address.
    pub coordinator: U32,
    /// The incarnation of its node.
    pub incarnation: U32,
}

impl CoordinatorBody {
    /// Which coordinator it names.
    pub fn name(&self) -> CoordinatorName {
        CoordinatorName {
            address: Address(self.coordinator.get()),
            incarnation: Incarnation(self.incarnation.get()),
        }
    }
}

impl From<CoordinatorName> for CoordinatorBody {
    fn from(name: CoordinatorName) -> Self {
        CoordinatorBody { coordinator: U32::new(name.address.0), incarnation: U32::new(name.incarnation.0) }
    }
}

/// Transactions in one `TakeOverReport`, at most.
pub const TRANSACTIONS_MAX: usize = 16;

/// Beginning of `TakeOverReport`; [`TransactionTrace`]s follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TakeOverReport {
    /// The coordinator that has failed.
    pub coordinator: CoordinatorBody,
    /// The replica group of the data manager.
    pub owner: ReplicaGroup,
    /// Number of transactions that follow.
    pub count: U16,
    /// 1: that was all.
    pub is_last: U16,
}

/// What a data manager has of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TransactionTrace {
    /// The transaction.
    pub transaction: U64,
    /// The epoch that it is committed in; 0 if it is not committed here.
    pub epoch: U64,
    /// The operation that leaves the marker, as far as is known here; 0 if that is not known, or is one elsewhere.
    pub marker: U32,
    /// The lowest number of an operation that changes something here; 0 if none does.
    pub first_change: U32,
    /// Flags defined in this file.
    pub flags: U32,
}

impl TransactionTrace {
    /// The `count` traces behind the beginning of a signal; `None` if they are not complete.
    pub fn list(bytes: &[u8], count: u16) -> Option<&[Self]> {
        let (list, _) = <[Self]>::ref_from_prefix_with_elems(bytes, usize::from(count)).ok()?;
        Some(list)
    }
}

/// With [`TransactionTrace::flags`]: it has operations here. Else only its marker is left.
pub const TRACE_HOLDS: u32 = 1;

/// With [`TransactionTrace::flags`]: it changes a table whose backups answer reads (`READ_BACKUP`). If it is committed,
/// all replicas show its changes before anybody is informed of that.
pub const TRACE_READ_AT_BACKUPS: u32 = 2;

/// `TakeOverDoneReport`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TakeOverDoneReport {
    /// The coordinator that has failed.
    pub coordinator: CoordinatorBody,
    /// The newest epoch in which one of its transactions was found committed; 0 if none was.
    pub epoch: U64,
}

/// `InheritedOutcomeRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct InheritedOutcomeRequest {
    /// The transaction whose outcome is requested.
    pub transaction: U64,
    /// The API node's tag for the answer.
    pub request: U32,
    /// The coordinator of the transaction, which has failed.
    pub coordinator: CoordinatorBody,
}

/// `OutcomesReleasedOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OutcomesReleasedOrder {
    /// Any transaction id of the API node's incarnation; only its owner part is used.
    pub owner: U64,
    /// The coordinator that has failed.
    pub coordinator: CoordinatorBody,
}
