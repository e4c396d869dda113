//! Reads a file from some place to its end, with some reads under way at a time.

use crate::context::Context;
use crate::files::{FileName, FileTask};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::aligned::{AlignedBuffer, SECTOR_BYTES};

/// Bytes of a read.
const READ_BYTES: u64 = 1 << 20;
/// Reads that are under way at a time.
const READS_MAX: usize = 4;

/// A file that is being read.
pub struct FileStream {
    file: FileName,
    size: u64,
    /// What has arrived and was not consumed, from `at` on.
    bytes: Vec<u8>,
    at: usize,
    /// Where `bytes[at]` stands in the file.
    offset: u64,
    /// Up to where the file has arrived, and up to where reads were begun.
    arrived: u64,
    begun: u64,
    /// Reads under way, in their order, and those of them that have been answered out of order.
    reads: VecDeque<(u32, Option<AlignedBuffer>)>,
    /// The number of the next read.
    next_read: u32,
}

impl FileStream {
    /// A file of this size, from an offset on. Reads are numbered from `first_read` on. A sector that is cut off at the
    /// end is not read: whatever was written ends with a whole one.
    pub fn new(file: FileName, offset: u64, size: u64, first_read: u32) -> Self {
        let size = size - size % SECTOR_BYTES as u64;
        FileStream {
            file,
            size,
            bytes: Vec::new(),
            at: 0,
            offset,
            arrived: offset,
            begun: offset,
            reads: VecDeque::new(),
            next_read: first_read,
        }
    }

    /// The file.
    pub fn file(&self) -> FileName {
        self.file
    }

    /// What has arrived and was not consumed.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Where that begins in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the file ends behind what has arrived.
    pub fn has_arrived(&self) -> bool {
        self.arrived == self.size
    }

    /// So many bytes are not needed any more.
    #[inline]
    pub fn consume(&mut self, bytes: usize) {
        self.at += bytes;
        self.offset += bytes as u64;
        debug_assert!(self.at <= self.bytes.len(), "only what has arrived is consumed");
    }

    /// The number of the next read: a stream that follows this one begins there.
    pub fn next_read(&self) -> u32 {
        self.next_read
    }

    /// Whether this read is under way.
    pub fn awaits(&self, number: u32) -> bool {
        self.reads.iter().any(|(read, data)| *read == number && data.is_none())
    }

    /// Number of reads that are not answered.
    pub fn reads(&self) -> u32 {
        self.reads.iter().filter(|(_, data)| data.is_none()).count() as u32
    }

    /// Whether reads are under way.
    pub fn has_reads(&self) -> bool {
        self.reads() > 0
    }

    /// Begins as many reads as may be under way; `token` makes the token of the task from the number of the read.
    pub fn read_on(&mut self, cx: &mut Context<'_>, token: impl Fn(u32) -> u64) {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        while self.reads.len() < READS_MAX && self.begun < self.size {
            let bytes = READ_BYTES.min(self.size - self.begun);
            let read = FileTask::Read { offset: self.begun, bytes: bytes as u32 };
            cx.file(self.file, token(self.next_read), read);
            self.reads.push_back((self.next_read, None));
            self.next_read += 1;
            self.begun += bytes;
        }
    }

    /// A read has been answered. Returns false if it is none of this stream.
    ///
    /// # Errors
    /// The file is shorter than it was said to be.
    pub fn on_read(&mut self, number: u32, data: AlignedBuffer, bytes: usize) -> Result<bool, String> {
        let Some((_, place)) = self.reads.iter_mut().find(|(read, _)| *read == number) else {
            return Ok(false);
        };
        let is_whole = bytes == data.len();
        *place = Some(data);
        if !is_whole {
            return Err(format!("{} is shorter than its size says", self.file.path()));
        }
        while let Some((_, Some(data))) = self.reads.front() {
            self.bytes.extend_from_slice(data);
            self.arrived += data.len() as u64;
            self.reads.pop_front();
        }
        Ok(true)
    }
}
