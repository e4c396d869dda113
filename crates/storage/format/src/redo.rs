//! The redo log of a stream: segments, the entries of their blocks, and the records of these.
//!
//! ```text
//!   segment   block SegmentHead (4096 bytes)   block RedoEntries   block RedoEntries   …
//!   block     entry   entry   …
//!   entry     participant, batch   record   record   …
//!   record    head (32 bytes)   image: fixed part, then variable part
//! ```
//! A segment is in one file; files are used again and again, so what stands behind the newest block of a segment is
//! left from earlier. [`crate::log_cursor`] tells where the log ends.

use crate::block::{Block, HEAD_BYTES, Head, Origin};
use crate::block_writer::BlockWriter;
use crate::checksum::Checksum;
use crate::format::BlockKind;
use crate::malformed::Malformed;
use alloc::vec::Vec;
use vinga_base::aligned::SECTOR_BYTES;
use vinga_base::{Epoch, PartitionId, RowId, TableId, TableVersion};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The payload of a segment's first block, as it is in the file.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "described at `Segment`")]
pub struct SegmentHead {
    pub segment: U64,
    pub first_block: U64,
    pub file_bytes: U64,
    pub tail: U64,
}

/// What the first block of a segment says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The segment's number in its stream.
    pub number: u64,
    /// The number of its first block of entries.
    pub first_block: u64,
    /// The size of its file.
    pub file_bytes: u64,
    /// The oldest segment that was needed when this one was begun.
    pub tail: u64,
}

/// Bytes of a segment's first block.
pub const SEGMENT_HEAD_BYTES: usize = SECTOR_BYTES;

/// What any disk writes as a whole, also when the power fails.
const ATOM_BYTES: usize = 512;

/// Data managers that may share a stream. The head of a segment is written over that of one which the newest head on
/// the disk may still name as needed, so it must not be torn: what it says has to fit into what a disk writes as a
/// whole.
pub const PARTICIPANTS_MAX: usize = (ATOM_BYTES - HEAD_BYTES - size_of::<SegmentHead>()) / size_of::<U64>();

impl Segment {
    /// Begins the first block of the segment; it has no room for anything else. Its number is that of the block of
    /// entries that follows. `needed_from` is by data manager of the stream the first batch that is needed: see
    /// [`needed_from`].
    pub fn begin(&self, writer: &mut BlockWriter, origin: Origin, flushed: u64, needed_from: &[u64]) {
        let head = Head { flushed, ..Head::new(BlockKind::SegmentHead, self.first_block, origin) };
        writer.begin(head, SEGMENT_HEAD_BYTES);
        let payload = SegmentHead {
            segment: self.number.into(),
            first_block: self.first_block.into(),
            file_bytes: self.file_bytes.into(),
            tail: self.tail.into(),
        };
        writer.put(payload.as_bytes());
        for &batch in needed_from {
            writer.put(U64::new(batch).as_bytes());
        }
    }

    /// Makes the first block of the segment.
    pub fn write(
        &self,
        writer: &mut BlockWriter,
        origin: Origin,
        flushed: u64,
        needed_from: &[u64],
        checksum: Checksum,
    ) -> usize {
        self.begin(writer, origin, flushed, needed_from);
        writer.seal(checksum)
    }

    /// Reads the first block of a segment.
    ///
    /// # Errors
    /// If it is another block, or contradicts itself.
    pub fn read(block: &Block<'_>) -> Result<Segment, Malformed> {
        if block.head.kind != BlockKind::SegmentHead {
            return Err(Malformed::new(0, "a segment begins with a block of another kind"));
        }
        let other_length = || Malformed::new(0, "the head of a segment has another length");
        let (head, batches) = SegmentHead::ref_from_prefix(block.payload).map_err(|_| other_length())?;
        if !batches.len().is_multiple_of(size_of::<U64>()) || block.version == 1 && !batches.is_empty() {
            return Err(other_length());
        }
        let segment = Segment {
            number: head.segment.get(),
            first_block: head.first_block.get(),
            file_bytes: head.file_bytes.get(),
            tail: head.tail.get(),
        };
        if segment.first_block != block.head.number {
            return Err(Malformed::new(8, "the head of a segment has the number of another block"));
        }
        if segment.tail > segment.number {
            return Err(Malformed::new(24, "the oldest segment needed is newer than this one"));
        }
        Ok(segment)
    }
}

/// What the first block of a segment says behind its head, since version 2: by data manager of the stream, in the order
/// of their instances, the first batch that was needed when the segment was begun. A checkpoint that does not contain
/// the batches before it is older than the log.
pub fn needed_from(block: &Block<'_>) -> impl Iterator<Item = u64> {
    let batches = block.payload.get(size_of::<SegmentHead>()..).unwrap_or_default();
    batches.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes))
}

/// The head of an entry, as it is in the file.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "described at `Entry`")]
pub struct EntryHead {
    pub participant: U16,
    pub reserved: U16,
    pub length: U32,
    pub batch: U64,
}

/// Bytes that an entry takes beside its records.
pub const ENTRY_HEAD_BYTES: usize = size_of::<EntryHead>();

/// What a data manager has logged at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The data manager's instance.
    pub participant: u16,
    /// Its running number of this batch.
    pub batch: u64,
    /// Its records, one behind the other: see [`records`].
    pub records: &'a [u8],
}

/// The most bytes of records that an entry of a block of `bytes_max` bytes can have.
pub const fn records_max(bytes_max: usize) -> usize {
    bytes_max - HEAD_BYTES - ENTRY_HEAD_BYTES
}

/// Begins a block of entries.
pub fn begin_entries(writer: &mut BlockWriter, number: u64, origin: Origin, bytes_max: usize) {
    writer.begin(Head::new(BlockKind::RedoEntries, number, origin), bytes_max);
}

/// Appends an entry to a block. Returns whether there was room; if not, the block is unchanged.
#[inline]
pub fn put_entry(writer: &mut BlockWriter, entry: &Entry<'_>) -> bool {
    let length = entry.records.len();
    if writer.room() < ENTRY_HEAD_BYTES + length {
        return false;
    }
    let head = EntryHead {
        participant: entry.participant.into(),
        reserved: 0.into(),
        length: (length as u32).into(),
        batch: entry.batch.into(),
    };
    writer.put(head.as_bytes());
    writer.put(entry.records);
    true
}

/// The entries of a block.
pub fn entries<'a>(block: &Block<'a>) -> Entries<'a> {
    let is_of_entries = block.head.kind == BlockKind::RedoEntries;
    Entries { rest: if is_of_entries { block.payload } else { &[] }, at: 0 }
}

/// Checks all entries of a block, with their records.
///
/// # Errors
/// If any of them is malformed.
pub fn check(block: &Block<'_>) -> Result<(), Malformed> {
    let mut entries = entries(block);
    loop {
        let at = entries.position() + ENTRY_HEAD_BYTES;
        let Some(entry) = entries.next().transpose()? else { return Ok(()) };
        for record in records(entry.records) {
            record.map_err(|malformed| malformed.behind(at))?;
        }
    }
}

/// The entries of a block, in the order in which they were put in. Ends behind the first that is malformed.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Entries<'a> {
    /// Where the next entry begins, from the beginning of the block's payload.
    pub fn position(&self) -> usize {
        self.at
    }

    fn step(&mut self) -> Result<Entry<'a>, Malformed> {
        let at = self.at;
        let malformed = |reason| Err(Malformed::new(at, reason));
        let rest = core::mem::take(&mut self.rest);
        let Ok((head, rest)) = EntryHead::ref_from_prefix(rest) else {
            return malformed("an entry is cut off in its head");
        };
        if head.reserved.get() != 0 {
            return malformed("a reserved field of an entry is not 0");
        }
        let Some((records, rest)) = rest.split_at_checked(head.length.get() as usize) else {
            return malformed("an entry is longer than its block");
        };
        self.rest = rest;
        self.at += ENTRY_HEAD_BYTES + records.len();
        Ok(Entry { participant: head.participant.get(), batch: head.batch.get(), records })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        (!self.rest.is_empty()).then(|| self.step())
    }
}

/// The head of a record, as it is in the file.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "described at `Change`")]
pub struct RecordHead {
    pub kind: u8,
    pub reserved: u8,
    pub partition: U16,
    pub table: U32,
    pub row: U32,
    pub image_bytes: U32,
    pub epoch: U64,
    pub birth: U64,
}

/// Bytes that a record takes beside its image.
pub const RECORD_HEAD_BYTES: usize = size_of::<RecordHead>();

/// What a record says of its row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RecordKind {
    /// The row is there, with this image: insert it, or overwrite what is in its place.
    Write = 1,
    /// There is no row in this place.
    Delete = 2,
}

/// What a record says beside the row's image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// What it says of the row.
    pub kind: RecordKind,
    /// The table.
    pub table: TableId,
    /// The version of the table with which its rows began: a table that was dropped and made again has another.
    pub birth: TableVersion,
    /// The partition.
    pub partition: PartitionId,
    /// The row's place.
    pub row: RowId,
    /// The epoch of the change.
    pub epoch: Epoch,
}

/// The state of a row after a change that was committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Which change.
    pub change: Change,
    /// The row: fixed part, then variable part. Nothing if there is no row.
    pub image: &'a [u8],
}

/// Appends the record of a change; the row now consists of these two parts, which are empty if there is no row.
#[inline]
pub fn append_record(out: &mut Vec<u8>, change: &Change, fixed: &[u8], variable: &[u8]) {
    let image_bytes = fixed.len() + variable.len();
    debug_assert!(
        change.kind == RecordKind::Write || image_bytes == 0,
        "a row that is not there has no image"
    );
    debug_assert!(change.epoch <= Epoch::MAX, "an epoch has 48 bits");
    let head = RecordHead {
        kind: change.kind as u8,
        reserved: 0,
        partition: change.partition.0.into(),
        table: change.table.0.into(),
        row: change.row.0.into(),
        image_bytes: (image_bytes as u32).into(),
        epoch: change.epoch.0.into(),
        birth: change.birth.0.into(),
    };
    out.reserve(RECORD_HEAD_BYTES + image_bytes);
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(fixed);
    out.extend_from_slice(variable);
}

/// The records of an entry.
pub fn records(bytes: &[u8]) -> Records<'_> {
    Records { rest: bytes, at: 0 }
}

/// The records of an entry, in the order of the changes. Ends behind the first that is malformed.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    #[inline]
    fn step(&mut self) -> Result<Record<'a>, Malformed> {
        let at = self.at;
        let malformed = |reason| Err(Malformed::new(at, reason));
        let rest = core::mem::take(&mut self.rest);
        let Ok((head, rest)) = RecordHead::ref_from_prefix(rest) else {
            return malformed("a record is cut off in its head");
        };
        let kind = match head.kind {
            1 => RecordKind::Write,
            2 => RecordKind::Delete,
            _ => return malformed("a record is of an unknown kind"),
        };
        let (image_bytes, epoch) = (head.image_bytes.get() as usize, Epoch(head.epoch.get()));
        if head.reserved != 0 {
            return malformed("a reserved field of a record is not 0");
        }
        if epoch > Epoch::MAX {
            return malformed("the epoch of a record has more than 48 bits");
        }
        if kind == RecordKind::Delete && image_bytes != 0 {
            return malformed("a record without a row has an image");
        }
        let Some((image, rest)) = rest.split_at_checked(image_bytes) else {
            return malformed("a record is longer than its entry");
        };
        self.rest = rest;
        self.at += RECORD_HEAD_BYTES + image_bytes;
        let change = Change {
            kind,
            table: TableId(head.table.get()),
            birth: TableVersion(head.birth.get()),
            partition: PartitionId(head.partition.get()),
            row: RowId(head.row.get()),
            epoch,
        };
        Ok(Record { change, image })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        (!self.rest.is_empty()).then(|| self.step())
    }
}
