//! Bodies of cold signals: structs in `postcard`'s compact form, behind a four-byte length (frames are padded).
//!
//! Fields are only ever appended to such a struct, together with a raise of the protocol version.

use crate::frame::{Frame, FrameWriter};
use serde::{Deserialize, Serialize};

/// Appends a cold body to a frame.
pub fn write<T: Serialize>(writer: &mut FrameWriter<'_>, body: &T) {
    let bytes = postcard::to_allocvec(body).expect("our own structs can be serialised");
    writer.bytes(&(bytes.len() as u32).to_le_bytes()).bytes(&bytes);
}

/// Bytes that a cold body takes in a frame.
pub fn length<T: Serialize>(body: &T) -> usize {
    4 + postcard::experimental::serialized_size(body).expect("our own structs can be serialised")
}

/// Reads a cold body; `None` if the bytes are none.
pub fn read<'a, T: Deserialize<'a>>(frame: &Frame<'a>) -> Option<T> {
    let (length, rest) = frame.body.split_first_chunk::<4>()?;
    let bytes = rest.get(..u32::from_le_bytes(*length) as usize)?;
    postcard::from_bytes(bytes).ok()
}
