//! The end of the log: the block that is being filled, what is on its way to the disk, and what has arrived there.
//!
//! Blocks are written in order, each once. A block is written when it is full, or when an epoch ends: then the files
//! that were written to since the last flush are flushed, and the epoch is on disk when all of them have confirmed.

use alloc::collections::{BTreeSet, VecDeque};
use vinga_base::Epoch;
use vinga_base::aligned::SECTOR_BYTES;
use vinga_format::block::{BLOCK_BYTES, HEAD_BYTES, Origin};
use vinga_format::block_writer::BlockWriter;
use vinga_format::checksum::Checksum;
use vinga_format::redo::{ENTRY_HEAD_BYTES, Entry, SEGMENT_HEAD_BYTES, Segment, begin_entries, put_entry};
use vinga_kernel::files::{Data, FileKind, FileName, FileTask};
use vinga_kernel::{Context, Tick};

use crate::segments::Segments;
use crate::task::Task;

/// Where the log goes on.
pub struct Writer {
    origin: Origin,
    checksum: Checksum,
    block: BlockWriter,
    /// The number of the block that is open, or of the next one.
    number: u64,
    /// Where that block begins in the file of the newest segment.
    offset: u64,
    /// All blocks up to this number are on disk.
    flushed: u64,
    /// Bytes that were handed over and not confirmed.
    on_the_way: u64,
    /// When the writes that were not confirmed were handed over, oldest first.
    handed_over: VecDeque<Tick>,
    /// Bytes that the log has taken up, since it began to be counted.
    position: u64,
    /// Files that were written to since they were last flushed.
    unflushed: BTreeSet<u32>,
}

impl Writer {
    /// Goes on behind a block at this place of the newest segment, which is on disk.
    pub fn new(origin: Origin, checksum: Checksum, last_block: u64, offset: u64) -> Self {
        assert!(offset.is_multiple_of(SECTOR_BYTES as u64), "blocks are whole sectors");
        Writer {
            origin,
            checksum,
            block: BlockWriter::new(),
            number: last_block + 1,
            offset,
            flushed: last_block,
            on_the_way: 0,
            handed_over: VecDeque::new(),
            position: 0,
            unflushed: BTreeSet::new(),
        }
    }

    /// Bytes of the newest segment that are in use, the open block included.
    pub fn used_of_segment(&self) -> u64 {
        let open = if self.block.is_open() { HEAD_BYTES + self.block.payload_bytes() } else { 0 };
        self.offset + open.next_multiple_of(SECTOR_BYTES) as u64 - SEGMENT_HEAD_BYTES as u64
    }

    /// Where the next block begins in the file of the newest segment.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// So many bytes of the log are in use already.
    pub fn note_used(&mut self, bytes: u64) {
        self.position = bytes;
    }

    /// A number that grows with the bytes that the log takes up, those of the open block included.
    pub fn position(&self) -> u64 {
        let open = if self.block.is_open() { self.block.payload_bytes() as u64 } else { 0 };
        self.position + open
    }

    /// When the oldest bytes were handed over of those that are not known to be written.
    pub fn oldest_unwritten(&self) -> Option<Tick> {
        self.handed_over.front().copied()
    }

    /// Bytes that wait to be written.
    pub fn backlog(&self) -> u64 {
        let open = if self.block.is_open() { self.block.payload_bytes() as u64 } else { 0 };
        self.on_the_way + open
    }

    /// Appends what a data manager has logged.
    pub fn append(&mut self, cx: &mut Context<'_>, segments: &mut Segments, at: usize, entry: &Entry<'_>) {
        let needed = HEAD_BYTES + ENTRY_HEAD_BYTES + entry.records.len();
        if !self.block.is_open() {
            self.begin_block(cx, segments, needed);
        }
        if !put_entry(&mut self.block, entry) {
            self.write_block(cx, segments);
            self.begin_block(cx, segments, needed);
            let has_room = put_entry(&mut self.block, entry);
            assert!(has_room, "a batch is shorter than a block");
        }
        let newest = segments.newest_mut().expect("a block was begun in it");
        newest.batches[at] = entry.batch;
    }

    /// Begins a block that has room for so many bytes at least, in another segment if need be.
    fn begin_block(&mut self, cx: &mut Context<'_>, segments: &mut Segments, needed: usize) {
        let room = |segments: &Segments, offset| {
            segments.newest().map_or(0, |newest| segments.file_bytes(newest.file).saturating_sub(offset))
        };
        if room(segments, self.offset) < needed.next_multiple_of(SECTOR_BYTES) as u64 {
            self.begin_segment(cx, segments);
        }
        let room = room(segments, self.offset).min(BLOCK_BYTES as u64) as usize;
        begin_entries(&mut self.block, self.number, self.origin, room - room % SECTOR_BYTES);
    }

    /// Begins the next segment in a file that is free. The head is forced to the disk before anything is written behind
    /// it: the newest head that is there may still say that the segment which was in this file is needed, so that has
    /// to be whole as long as its own head is.
    fn begin_segment(&mut self, cx: &mut Context<'_>, segments: &mut Segments) {
        let number = segments.newest().map_or(1, |newest| newest.number + 1);
        let file = segments.free_file().expect("credit was given only for what the log has room for");
        segments.push(number, file, self.number);
        let segment = Segment {
            number,
            first_block: self.number,
            file_bytes: segments.file_bytes(file),
            tail: segments.tail(),
        };
        segment.write(&mut self.block, self.origin, self.flushed, segments.needed_from(), self.checksum);
        self.offset = 0;
        self.write(cx, file, Task::SegmentHead);
        cx.file(self.name(file), Task::FlushHead(file).token(), FileTask::Flush);
    }

    /// Ends the open block and hands it over to be written.
    fn write_block(&mut self, cx: &mut Context<'_>, segments: &Segments) {
        self.block.head_mut().flushed = self.flushed;
        self.block.seal(self.checksum);
        let file = segments.newest().expect("the block was begun in it").file;
        self.write(cx, file, Task::Block);
        self.number += 1;
    }

    /// Hands the sealed block over to be written in its place.
    fn write(&mut self, cx: &mut Context<'_>, file: u32, task: fn(u32) -> Task) {
        let data = self.block.take();
        let (offset, bytes) = (self.offset, data.len() as u64);
        self.offset += bytes;
        self.on_the_way += bytes;
        self.position += bytes;
        self.handed_over.push_back(cx.now());
        self.unflushed.insert(file);
        let write = FileTask::Write { offset, data: Data(data) };
        cx.file(self.name(file), task(bytes as u32).token(), write);
    }

    /// So many bytes were written. Writes come to their end in about the order in which they were handed over.
    pub fn note_written(&mut self, bytes: u32) {
        self.on_the_way -= u64::from(bytes);
        self.handed_over.pop_front();
    }

    /// Ends an epoch: writes the open block, or an empty one, with the end record. Returns the number of the block.
    pub fn end_epoch(&mut self, cx: &mut Context<'_>, segments: &mut Segments, epoch: Epoch) -> u64 {
        if !self.block.is_open() {
            self.begin_block(cx, segments, HEAD_BYTES);
        }
        self.block.head_mut().ends_epoch = epoch;
        self.write_block(cx, segments);
        self.number - 1
    }

    /// Has all files flushed that were written to; returns which.
    pub fn flush(&mut self, cx: &mut Context<'_>) -> BTreeSet<u32> {
        let files = core::mem::take(&mut self.unflushed);
        for &file in &files {
            cx.file(self.name(file), Task::Flush(file).token(), FileTask::Flush);
        }
        files
    }

    /// All blocks up to this one are on disk.
    pub fn note_flushed(&mut self, number: u64) {
        assert!(number >= self.flushed && number < self.number, "blocks come to the disk in their order");
        self.flushed = number;
    }

    fn name(&self, file: u32) -> FileName {
        FileName::new(FileKind::Redo, self.origin.owner.into(), file.into())
    }
}
