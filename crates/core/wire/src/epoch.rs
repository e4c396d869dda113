//! Epochs are announced one way, nobody is held back.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `EpochOrder` | distribution of the president | all coordinators | from now on give out no epoch below this one |
//! | the same | | membership, distribution of other nodes | this is the current epoch |

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How far beyond a coordinator's own epoch an API node may claim to have seen one.
pub const EPOCH_LEAP_MAX: u64 = 1 << 20;

/// Body of `EpochOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EpochOrder {
    /// The current epoch.
    pub epoch: U64,
}
