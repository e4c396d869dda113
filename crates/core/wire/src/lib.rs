//! Every signal of Vinga: numbers, layouts, error codes. One module per protocol.
//!
//! A signal is a frame of bytes, the same in a thread's own queue, in the ring to another thread, on the wire and in a
//! trace. Bodies of hot signals are fixed layouts that are read in place, followed by sections of row data; bodies of
//! cold signals are serialised structs ([`cold`]). Numbers and layouts are append-only; a change of them raises
//! [`protocol::PROTOCOL_VERSION`].
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod agreement;
pub mod arbitration;
pub mod backup;
pub mod checkpoint;
pub mod cold;
pub mod commit;
pub mod configuration;
pub mod copying;
pub mod deadlock;
pub mod dictionary;
pub mod epoch;
pub mod error;
pub mod file;
pub mod formation;
pub mod frame;
pub mod handshake;
pub mod info;
pub mod key;
pub mod key_read;
pub mod membership;
pub mod operation;
pub mod parameter;
pub mod protocol;
pub mod range_scan;
pub mod redo;
pub mod restart;
pub mod scan;
pub mod schema;
pub mod schema_round;
pub mod shutdown;
pub mod signal;
pub mod start;
pub mod take_over;
pub mod transaction;
pub mod unique;
pub mod view;

pub use address::{Address, BlockNumber};
pub use error::{ErrorClass, ErrorCode};
pub use frame::{Frame, FrameWriter, Header};
pub use signal::SignalNumber;
pub use zerocopy::little_endian::{U16, U32, U64};
