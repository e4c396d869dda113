//! Finding transactions that wait for each other in a cycle over several data managers. `docs/protocols/deadlocks.md`
//! documents the protocol.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `DeadlockProbeOrder` | data manager | coordinator of the `asked` transaction | what does it wait for? |
//! | `DeadlockProbeOrder` | coordinator | primaries of its participants | the same |
//! | `DeadlockOrder` | data manager | coordinator of the victim | it is in a cycle |
//! | `DeadlockOrder` | coordinator | primaries of its participants | refuse what waits there for a lock |
//!
//! Both may be lost: then the wait ends by its timeout.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `DeadlockProbeOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DeadlockProbe {
    /// The waiting transaction for which the probe was sent.
    pub initiator: U64,
    /// The transaction whose waits are looked up: the last of the path so far.
    pub asked: U64,
    /// The youngest transaction of the path.
    pub youngest: U64,
    /// The coordinator that acts for the youngest.
    pub coordinator: U32,
    /// Distinguishes this probe from others of the same initiator.
    pub number: U32,
    /// Over how many more transactions it may be forwarded.
    pub steps: U32,
}

/// `DeadlockOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DeadlockBody {
    /// The victim.
    pub transaction: U64,
}
