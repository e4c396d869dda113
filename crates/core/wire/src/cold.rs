//! Bodies of cold signals: structs in `postcard`'s compact form, preceded by a four-byte length (frames are padded).
//!
//! Such a struct is only ever extended by appending fields, and the protocol version is raised with it.

use crate::frame::{Frame, FrameWriter};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Appends a cold body to a frame.
pub fn write<T: Serialize>(writer: &mut FrameWriter<'_>, body: &T) {
    let bytes = postcard::to_allocvec(body).expect("the wire structs can be serialised");
    writer.bytes(&(bytes.len() as u32).to_le_bytes()).bytes(&bytes);
}

/// The bytes of a cold body without a frame, for what is kept on disk.
pub fn to_bytes<T: Serialize>(body: &T) -> Vec<u8> {
    postcard::to_allocvec(body).expect("the wire structs can be serialised")
}

/// The inverse of [`to_bytes`]; `None` if the bytes are not a valid body, or more than that.
pub fn from_bytes<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((body, [])) => Some(body),
        Ok(_) | Err(_) => None,
    }
}

/// Number of bytes that a cold body takes in a frame.
pub fn length<T: Serialize>(body: &T) -> usize {
    4 + postcard::experimental::serialized_size(body).expect("the wire structs can be serialised")
}

/// Reads a cold body; `None` if the bytes are not a valid one.
pub fn read<'a, T: Deserialize<'a>>(frame: &Frame<'a>) -> Option<T> {
    let (length, rest) = frame.body.split_first_chunk::<4>()?;
    let bytes = rest.get(..u32::from_le_bytes(*length) as usize)?;
    postcard::from_bytes(bytes).ok()
}
