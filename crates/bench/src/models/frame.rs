//! A signal as a frame of bytes: a header of 20 bytes, a body of fixed layout, an optional payload.
//!
//! ```text
//! offset  0      4       6      7     8         12      16     20      60
//!         length number  flags  view  receiver  sender  trace  body    payload …
//!         u32    u16     u8     u8    u32       u32     u32    40 B    length - 60 bytes
//! ```
//! Numbers are little endian, `length` counts the whole frame, frames are multiples of four bytes.

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 20;
/// Bytes of a body.
pub(crate) const BODY_BYTES: usize = 40;

/// The fixed part in front of every signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) length: u32,
    pub(crate) number: u16,
    pub(crate) flags: u8,
    pub(crate) view: u8,
    pub(crate) receiver: u32,
    pub(crate) sender: u32,
    pub(crate) trace: u32,
}

impl Header {
    /// The header of a signal with `payload` bytes after its body.
    pub(crate) fn new(number: u16, receiver: u32, sender: u32, payload: usize) -> Self {
        let length = u32::try_from(HEADER_BYTES + BODY_BYTES + payload).expect("frames are short");
        Self { length, number, flags: 0, view: 1, receiver, sender, trace: 0 }
    }

    #[inline(always)]
    fn write(self, to: &mut [u8; HEADER_BYTES]) {
        to[0..4].copy_from_slice(&self.length.to_le_bytes());
        to[4..6].copy_from_slice(&self.number.to_le_bytes());
        to[6] = self.flags;
        to[7] = self.view;
        to[8..12].copy_from_slice(&self.receiver.to_le_bytes());
        to[12..16].copy_from_slice(&self.sender.to_le_bytes());
        to[16..20].copy_from_slice(&self.trace.to_le_bytes());
    }

    #[inline(always)]
    fn read(from: &[u8; HEADER_BYTES]) -> Self {
        Self {
            length: u32_at(from, 0),
            number: u16::from_le_bytes([from[4], from[5]]),
            flags: from[6],
            view: from[7],
            receiver: u32_at(from, 8),
            sender: u32_at(from, 12),
            trace: u32_at(from, 16),
        }
    }
}

/// The fixed layout of every measured signal: five numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Body(pub(crate) [u64; 5]);

impl Body {
    #[inline(always)]
    fn write(&self, to: &mut [u8; BODY_BYTES]) {
        for (place, number) in to.chunks_exact_mut(8).zip(self.0) {
            place.copy_from_slice(&number.to_le_bytes());
        }
    }

    #[inline(always)]
    fn read(from: &[u8; BODY_BYTES]) -> Self {
        Self(std::array::from_fn(|i| {
            u64::from_le_bytes(from[8 * i..8 * i + 8].try_into().expect("eight bytes"))
        }))
    }
}

#[inline(always)]
fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

/// Writes a frame to `place`, which has exactly the header's length.
#[inline(always)]
pub(crate) fn write(place: &mut [u8], header: Header, body: &Body, payload: &[u8]) {
    let (head, rest) = place.split_first_chunk_mut().expect("the place has the frame's length");
    let (fixed, section) = rest.split_first_chunk_mut().expect("the place has the frame's length");
    header.write(head);
    body.write(fixed);
    section.copy_from_slice(payload);
}

/// A frame in a buffer, its pieces read or borrowed in place.
pub(crate) struct Frame<'a> {
    pub(crate) header: Header,
    pub(crate) body: Body,
    pub(crate) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads the frame at the start of `bytes`.
    #[inline(always)]
    pub(crate) fn read(bytes: &'a [u8]) -> Self {
        let (head, rest) = bytes.split_first_chunk().expect("queues hold whole frames");
        let header = Header::read(head);
        let (fixed, rest) = rest.split_first_chunk().expect("queues hold whole frames");
        let payload = &rest[..header.length as usize - HEADER_BYTES - BODY_BYTES];
        Self { header, body: Body::read(fixed), payload }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reads_back() {
        let header = Header { trace: 9, flags: 3, ..Header::new(7, 0x0102_0304, 5, 100) };
        let body = Body([1, 2, 3, u64::MAX, 5]);
        let mut bytes = vec![0; header.length as usize];
        write(&mut bytes, header, &body, &[8; 100]);
        let frame = Frame::read(&bytes);
        assert_eq!((frame.header, frame.body, frame.payload), (header, body, &[8; 100][..]));
        assert_eq!((bytes.len(), bytes[4], bytes[8]), (160, 7, 4));
    }
}
