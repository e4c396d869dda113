//! Parameters that change while data nodes run. All bodies are cold.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `ParameterSetRequest` | API node | info of a main thread | give a parameter another value, on all data nodes |
//! | `ParameterSetConfirm` | info | API node | done; further threads and nodes follow at once |
//! | `ParameterSetRefuse` | info | API node | why not ([`crate::handshake::Refusal`]) |
//! | `ParameterOrder` | info of a main thread | info of other threads and nodes | this value holds from now on |

use serde::{Deserialize, Serialize};

/// `ParameterSetRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParameterSetRequest {
    /// The requester's tag.
    pub request: u32,
    /// Which parameter gets which value.
    pub change: ParameterChange,
}

/// `ParameterSetConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParameterSetConfirm {
    /// The requester's tag.
    pub request: u32,
}

/// `ParameterOrder`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParameterChange {
    /// The number of a [`vinga_base::LiveParameter`].
    pub parameter: u16,
    /// Its value, in its unit.
    pub value: u64,
}
