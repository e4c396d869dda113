//! Epochs are announced in one direction; nobody waits for an answer.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `EpochOrder` | distribution of the president | all coordinators | assign no epoch below this one from now on |
//! | the same | | membership, distribution of other nodes | this is the current epoch |

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How far ahead of a coordinator's own epoch the epoch may be that an API node reports as seen.
pub const EPOCH_LEAP_MAX: u64 = 1 << 20;

/// Body of `EpochOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EpochOrder {
    /// The current epoch.
    pub epoch: U64,
}
