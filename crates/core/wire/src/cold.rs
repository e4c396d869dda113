//! Bodies of cold signals: structs in `postcard`'s compact form, preceded by a four-byte length (frames are padded).
//!
//! Such a struct is only ever extended by appending fields, and the protocol version is raised with it.

use crate::frame::{Frame, FrameWriter};
use serde::{Deserialize, Serialize};

/// Appends a cold body to a frame.
pub fn write<T: Serialize>(writer: &mut FrameWriter<'_>, body: &T) {
    let bytes = postcard::to_allocvec(body).expect("the wire structs can be serialised");
    writer.bytes(&(bytes.len() as u32).to_le_bytes()).bytes(&bytes);
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
