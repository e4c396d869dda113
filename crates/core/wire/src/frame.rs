//! Frames: the header that every signal has, reading frames in place, writing them in place.
//!
//! ```text
//!   0   u32  length of the whole frame in bytes, header and padding included: a multiple of 4
//!   4   u16  signal number
//!   6   u8   flags: bit 0: the sender has no view yet, and the next byte says nothing; others are 0, and ignored
//!   7   u8   low byte of the sender's view (between data nodes), of the newest view seen (from an API node)
//!   8   u32  receiver
//!   12  u32  sender
//!   16  u32  trace id: signals that follow from a request carry its trace id; 0 if they follow from none
//!   20       body
//! ```
//! All numbers are little-endian. Nothing is aligned beyond 4 bytes.

use crate::address::Address;
use crate::signal::SignalNumber;
use alloc::vec::Vec;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the header.
pub const HEADER_BYTES: usize = size_of::<Header>();

/// In [`Header::flags`]: the sender is a data node that has no view yet. What it sends comes before any view, whatever
/// the number of the first one that it has part in.
pub const SENT_WITHOUT_VIEW: u8 = 1;

/// Bytes of a frame, at most. Two of the largest rows and a filter program fit.
pub const FRAME_BYTES_MAX: usize = 128 * 1024;

/// The header of every frame. The layout is documented at the beginning of this module.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// Bytes of the whole frame.
    pub length: U32,
    /// Which signal it is.
    pub number: U16,
    /// [`SENT_WITHOUT_VIEW`] or 0.
    pub flags: u8,
    /// Low byte of a view.
    pub view: u8,
    /// The address of the receiver.
    pub receiver: U32,
    /// The address of the sender.
    pub sender: U32,
    /// The trace id.
    pub trace: U32,
}

/// Why bytes are not a frame. The connection that they came from can't be used any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// The length is below the header's or above [`FRAME_BYTES_MAX`].
    Length(u32),
    /// The length is not a multiple of 4.
    Unaligned(u32),
}

/// A frame in place.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    /// The header.
    pub header: &'a Header,
    /// The bytes after the header, padding included.
    pub body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame at the beginning of `bytes`; `None` if it is not complete yet.
    ///
    /// # Errors
    /// If these bytes can never become a frame.
    #[inline]
    pub fn first(bytes: &'a [u8]) -> Result<Option<Self>, FrameError> {
        let Ok((header, _)) = Header::ref_from_prefix(bytes) else {
            return Ok(None);
        };
        let length = header.length.get();
        if (length as usize) < HEADER_BYTES || length as usize > FRAME_BYTES_MAX {
            return Err(FrameError::Length(length));
        }
        if !length.is_multiple_of(4) {
            return Err(FrameError::Unaligned(length));
        }
        match bytes.get(HEADER_BYTES..length as usize) {
            Some(body) => Ok(Some(Frame { header, body })),
            None => Ok(None),
        }
    }

    /// Appends the whole frame to a buffer.
    #[inline]
    pub fn append_to(&self, buffer: &mut Vec<u8>) {
        buffer.extend_from_slice(self.header.as_bytes());
        buffer.extend_from_slice(self.body);
    }

    /// Bytes of the whole frame.
    #[inline]
    pub fn length(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }

    /// The signal's number; `None` if this version does not know it.
    #[inline]
    pub fn signal(&self) -> Option<SignalNumber> {
        SignalNumber::from_number(self.header.number.get())
    }

    /// Whether its sender had no view when it was sent.
    #[inline]
    pub fn is_without_view(&self) -> bool {
        self.header.flags & SENT_WITHOUT_VIEW != 0
    }

    /// The address of the receiver.
    #[inline]
    pub fn receiver(&self) -> Address {
        Address(self.header.receiver.get())
    }

    /// The address of the sender.
    #[inline]
    pub fn sender(&self) -> Address {
        Address(self.header.sender.get())
    }

    /// The fixed beginning of the body and the bytes after it; `None` if the body is too short.
    #[inline]
    pub fn head<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> Option<(&'a T, &'a [u8])> {
        T::ref_from_prefix(self.body).ok()
    }
}

/// Iterates the frames of a buffer that holds whole frames only (written by [`FrameWriter`]).
pub struct Frames<'a>(pub &'a [u8]);

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'a>> {
        if self.0.is_empty() {
            return None;
        }
        let frame = Frame::first(self.0).ok().flatten().expect("a FrameWriter writes whole frames");
        self.0 = &self.0[frame.length()..];
        Some(frame)
    }
}

/// Writes one frame at the end of a buffer; the length is set when it is dropped.
pub struct FrameWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> FrameWriter<'a> {
    /// Begins a frame.
    #[inline]
    pub fn begin(
        out: &'a mut Vec<u8>,
        number: SignalNumber,
        view: u8,
        receiver: Address,
        sender: Address,
        trace: u32,
    ) -> Self {
        let start = out.len();
        let header = Header {
            length: U32::ZERO,
            number: U16::new(number as u16),
            flags: 0,
            view,
            receiver: U32::new(receiver.0),
            sender: U32::new(sender.0),
            trace: U32::new(trace),
        };
        out.extend_from_slice(header.as_bytes());
        FrameWriter { out, start }
    }

    /// Notes that the sender has no view yet.
    pub fn without_view(&mut self) {
        self.patch(core::mem::offset_of!(Header, flags), &SENT_WITHOUT_VIEW);
    }

    /// Appends a fixed layout.
    #[inline]
    pub fn put<T: IntoBytes + Immutable>(&mut self, value: &T) -> &mut Self {
        self.out.extend_from_slice(value.as_bytes());
        self
    }

    /// Appends bytes.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// The buffer, for code that appends to it directly. It must only be appended to.
    #[inline]
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Bytes written so far, header included.
    #[inline]
    pub fn length(&self) -> usize {
        self.out.len() - self.start
    }

    /// The position in the buffer of an offset from the frame's beginning, to patch a field that is only known later.
    #[inline]
    pub fn patch<T: IntoBytes + Immutable>(&mut self, offset: usize, value: &T) {
        let bytes = value.as_bytes();
        let at = self.start + offset;
        self.out[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Removes the frame from the buffer.
    pub fn cancel(self) {
        self.out.truncate(self.start);
        core::mem::forget(self);
    }
}

impl Drop for FrameWriter<'_> {
    #[inline]
    fn drop(&mut self) {
        let length = self.length().next_multiple_of(4);
        // Appending four bytes and cutting is a store; appending just what is missing would be a call.
        self.out.extend_from_slice(&[0; 4]);
        self.out.truncate(self.start + length);
        if length > FRAME_BYTES_MAX {
            too_long(length);
        }
        self.out[self.start..self.start + 4].copy_from_slice(&(length as u32).to_le_bytes());
    }
}

/// Out of line, so that the end of each frame is short enough to be inlined.
#[cold]
fn too_long(length: usize) -> ! {
    panic!("a frame of {length} bytes was written; {FRAME_BYTES_MAX} are allowed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::BlockNumber;
    use alloc::vec;
    use vinga_base::NodeId;

    #[test]
    fn frames_are_padded_and_found_again() {
        let mut out = vec![];
        let me = Address::new(NodeId(1), BlockNumber::Coordinator, 3);
        let you = Address::new(NodeId(2), BlockNumber::DataManager, 515);
        for n in 0..5u8 {
            let mut writer = FrameWriter::begin(&mut out, SignalNumber::PrepareRequest, 7, you, me, 99);
            writer.bytes(&vec![n; usize::from(n)]);
        }
        FrameWriter::begin(&mut out, SignalNumber::PrepareRequest, 7, you, me, 99).cancel();
        let frames: Vec<Frame<'_>> = Frames(&out).collect();
        assert_eq!(frames.len(), 5);
        for (n, frame) in frames.iter().enumerate() {
            assert_eq!(frame.body.len(), n.next_multiple_of(4));
            assert_eq!((frame.receiver(), frame.sender()), (you, me));
            assert_eq!(frame.signal(), Some(SignalNumber::PrepareRequest));
            assert_eq!((frame.header.view, frame.header.trace.get()), (7, 99));
        }
    }

    proptest::proptest! {
        #[test]
        fn garbage_is_refused_or_waited_for(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
            if let Ok(Some(frame)) = Frame::first(&bytes) {
                assert!(frame.length() <= bytes.len() && frame.length() % 4 == 0);
            }
        }
    }
}
