//! Makes blocks in place, in the memory that is then written to the file.

use crate::block::{BLOCK_BYTES_MAX, CHECKED_FROM, HEAD_BYTES, Head};
use crate::checksum::Checksum;
use crate::format::BlockKind;
use core::mem::{offset_of, take};
use vinga_base::aligned::{AlignedBuffer, SECTOR_BYTES};
use zerocopy::IntoBytes;

/// One block after the other: [`BlockWriter::begin`], [`BlockWriter::put`] as long as there is
/// [room](BlockWriter::room), [`BlockWriter::seal`], [`BlockWriter::take`].
#[derive(Default)]
pub struct BlockWriter {
    buffer: AlignedBuffer,
    head: Option<Head>,
    /// Bytes of the block so far, with its head.
    length: usize,
    bytes_max: usize,
    /// Bytes of the last block that was taken: the next one begins with as much memory. A log that is flushed often has
    /// blocks of a few sectors, and to take memory for the longest one each time would cost more than the block.
    usual: usize,
}

impl BlockWriter {
    /// A writer without a buffer: the first block takes one.
    pub fn new() -> Self {
        BlockWriter::default()
    }

    /// Begins a block of at most `bytes_max` bytes, which are whole sectors. What the buffer held is lost.
    pub fn begin(&mut self, head: Head, bytes_max: usize) {
        assert!((SECTOR_BYTES..=BLOCK_BYTES_MAX).contains(&bytes_max), "{bytes_max} bytes are no block");
        assert!(bytes_max.is_multiple_of(SECTOR_BYTES), "blocks are whole sectors");
        let usual = self.usual.clamp(SECTOR_BYTES, bytes_max);
        if self.buffer.len() < usual {
            self.buffer.resize(usual);
        }
        self.head = Some(head);
        self.length = HEAD_BYTES;
        self.bytes_max = bytes_max;
    }

    /// Whether a block was begun and not sealed yet.
    pub fn is_open(&self) -> bool {
        self.head.is_some()
    }

    /// The head of the open block, to change it.
    pub fn head_mut(&mut self) -> &mut Head {
        self.head.as_mut().expect("a block was begun")
    }

    /// How many bytes the open block can still take.
    #[inline]
    pub fn room(&self) -> usize {
        self.bytes_max - self.length
    }

    /// Bytes of the payload so far.
    #[inline]
    pub fn payload_bytes(&self) -> usize {
        self.length - HEAD_BYTES
    }

    /// Appends bytes for which there is room.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.space(bytes.len()).copy_from_slice(bytes);
    }

    /// Appends so many bytes, for which there is room, and returns them to be filled; their content is arbitrary.
    #[inline]
    pub fn space(&mut self, bytes: usize) -> &mut [u8] {
        assert!(bytes <= self.room(), "the block has room for what is put into it");
        let at = self.length;
        self.length += bytes;
        if self.length > self.buffer.len() {
            self.grow();
        }
        &mut self.buffer[at..at + bytes]
    }

    /// Takes more memory: for what was put in, and at least twice as much as before.
    #[cold]
    fn grow(&mut self) {
        let bytes = self.length.max(2 * self.buffer.len()).min(self.bytes_max);
        self.buffer.resize(bytes);
    }

    /// The payload so far.
    #[inline]
    pub(crate) fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[HEAD_BYTES..self.length]
    }

    /// Takes the end of the payload back.
    pub(crate) fn truncate(&mut self, payload_bytes: usize) {
        assert!(payload_bytes <= self.payload_bytes(), "only what was put in can be taken back");
        self.length = HEAD_BYTES + payload_bytes;
    }

    /// Ends the open block and returns how many bytes of the file it takes.
    pub fn seal(&mut self, checksum: Checksum) -> usize {
        let head = self.head.take().expect("a block was begun");
        let length = self.length;
        let padded = length.next_multiple_of(SECTOR_BYTES);
        self.buffer[length..padded].fill(0);
        self.buffer[..HEAD_BYTES].copy_from_slice(head.to_bytes(length).as_bytes());
        let sum = checksum.of(&self.buffer[CHECKED_FROM..length]);
        let sum_at = offset_of!(crate::block::BlockHead, checksum);
        self.buffer[sum_at..sum_at + size_of::<u32>()].copy_from_slice(&sum.to_le_bytes());
        padded
    }

    /// The block that was sealed.
    pub fn sealed(&self) -> &[u8] {
        assert!(!self.is_open(), "the block was sealed");
        &self.buffer[..self.length.next_multiple_of(SECTOR_BYTES)]
    }

    /// The block that was sealed, in its buffer, which is as long as the block. The next block takes new memory unless
    /// some is [given](BlockWriter::give).
    pub fn take(&mut self) -> AlignedBuffer {
        let bytes = self.sealed().len();
        self.length = 0;
        self.usual = bytes;
        let mut buffer = take(&mut self.buffer);
        buffer.resize(bytes);
        buffer
    }

    /// Hands over memory for the next block, if the writer has none.
    pub fn give(&mut self, buffer: AlignedBuffer) {
        if self.buffer.is_empty() {
            self.buffer = buffer;
        }
    }
}

/// A block with this payload, which may be longer than a usual block.
pub(crate) fn block_of(head: Head, payload: &[u8], checksum: Checksum) -> AlignedBuffer {
    let mut writer = BlockWriter::new();
    writer.begin(head, (HEAD_BYTES + payload.len()).next_multiple_of(SECTOR_BYTES));
    writer.put(payload);
    writer.seal(checksum);
    writer.take()
}

impl core::fmt::Debug for BlockWriter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let kind: Option<BlockKind> = self.head.map(|head| head.kind);
        f.debug_struct("BlockWriter")
            .field("kind", &kind)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Origin, read_block};
    use alloc::vec::Vec;

    #[test]
    fn memory_grows_with_the_block_and_stays_usual() {
        let mut writer = BlockWriter::new();
        let mut first_memory = Vec::new();
        for (number, bytes) in [(0, 100), (1, 100_000), (2, 100_000), (3, 5000), (4, 10)] {
            let payload: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            writer.begin(Head::new(BlockKind::ImagePages, number, Origin::default()), 256 << 10);
            first_memory.push(writer.buffer.len());
            payload.chunks(99).for_each(|piece| writer.put(piece));
            assert_eq!(writer.room(), (256 << 10) - HEAD_BYTES - bytes);
            let sealed = writer.seal(Checksum::SOFTWARE);
            let block = writer.take();
            assert_eq!(block.len(), sealed);
            let read = read_block(&block, Checksum::SOFTWARE).expect("it is whole");
            assert_eq!(read.payload, payload);
        }
        assert_eq!(first_memory, [4096, 4096, 102_400, 102_400, 8192]);
    }

    #[test]
    fn a_block_takes_no_more_than_it_may() {
        let mut writer = BlockWriter::new();
        writer.begin(Head::new(BlockKind::ImagePages, 0, Origin::default()), 3 * SECTOR_BYTES);
        writer.put(&[1; SECTOR_BYTES]);
        writer.put(&[1; SECTOR_BYTES]);
        let room = writer.room();
        writer.space(room).fill(2);
        assert_eq!((writer.room(), writer.buffer.len()), (0, 3 * SECTOR_BYTES));
        assert_eq!(writer.seal(Checksum::SOFTWARE), 3 * SECTOR_BYTES);
    }
}
