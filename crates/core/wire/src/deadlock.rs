//! Looking for transactions that wait for each other in a cycle over several data managers. The protocol is told in
//! `docs/protocols/deadlocks.md`.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `DeadlockProbeOrder` | data manager | coordinator of the transaction that is asked | somebody waits for this transaction: what does it wait for? |
//! | `DeadlockProbeOrder` | coordinator | primaries of its participants | the same |
//! | `DeadlockOrder` | data manager | coordinator of the victim | it is in a cycle |
//! | `DeadlockOrder` | coordinator | primaries of its participants | refuse what waits there for a lock |
//!
//! Both may get lost: then the wait ends by its time-out.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `DeadlockProbeOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DeadlockProbe {
    /// The waiting transaction that the probe was sent out for.
    pub initiator: U64,
    /// The transaction that is asked: the last of the way so far.
    pub asked: U64,
    /// The youngest transaction of the way.
    pub youngest: U64,
    /// The coordinator that acts for the youngest.
    pub coordinator: U32,
    /// Tells this probe from others of the same initiator.
    pub number: U32,
    /// From how many more transactions it may be passed on.
    pub steps: U32,
}

/// `DeadlockOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DeadlockBody {
    /// The victim.
    pub transaction: U64,
}
