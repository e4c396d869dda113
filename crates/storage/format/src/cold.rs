//! Payloads that are read once and are no part of a hot path: structs in `postcard`'s compact form, of which a format's
//! version says which fields they have.

use crate::malformed::Malformed;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The bytes of a payload.
pub(crate) fn encode<T: Serialize>(payload: &T) -> Vec<u8> {
    postcard::to_allocvec(payload).expect("the structs of the formats can be serialised")
}

/// Reads a payload, which must be all of the bytes.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Malformed> {
    match postcard::take_from_bytes(bytes) {
        Ok((payload, [])) => Ok(payload),
        Ok((_, rest)) => Err(Malformed::new(bytes.len() - rest.len(), "more bytes than fields")),
        Err(_) => Err(Malformed::new(0, "the fields can't be read")),
    }
}
