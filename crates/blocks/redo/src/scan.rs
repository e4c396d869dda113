//! What is in the stream's files: the first steps of a start.
//!
//! 1. The files are listed, and the head of the segment in each is read.
//! 2. The needed segments are found: the newest segment says which was the oldest needed one when it was begun. All
//!    from that one on must be there.
//! 3. They are read to the end of the stream. What is found is the end records, and which batches are in which segment.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};
use vinga_base::Epoch;
use vinga_base::aligned::AlignedBuffer;
use vinga_format::block::{Block, BlockError, Origin, read_block};
use vinga_format::checksum::Checksum;
use vinga_format::redo::{Segment, entries, needed_from, records};
use vinga_kernel::Context;
use vinga_kernel::files::{FileKind, FileName};
use vinga_wire::start::LogIncarnation;

use crate::reader::{FoundSegment, LogReader, Place, Progress};

/// What was found in a stream.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The segments that are needed, and perhaps dead ones behind them; oldest first.
    pub segments: Vec<FoundSegment>,
    /// By segment number: the greatest batch of each data manager of the stream, up to each end record: see
    /// [`EndMark::batches`].
    pub ends: Vec<EndMark>,
    /// The greatest epoch in any record or end record.
    pub greatest: Epoch,
    /// The log incarnations that have written the blocks.
    pub incarnations: BTreeSet<u32>,
    /// By data manager of the stream: the first batch that was still needed when the newest segment was begun. Earlier
    /// ones are perhaps not there any more. Empty if an older program has written the segment.
    pub needed_from: Vec<u64>,
}

/// An end record.
#[derive(Clone, Debug)]
pub struct EndMark {
    /// The epoch that ends.
    pub epoch: Epoch,
    /// Where the block with the record ends.
    pub place: Place,
    /// By segment, the greatest batch of each data manager of the stream that stands before this mark.
    pub batches: Vec<(u64, Vec<u64>)>,
}

/// A scan that is under way.
pub struct Scan {
    origin: Origin,
    checksum: Checksum,
    incarnations: Vec<LogIncarnation>,
    durable: Epoch,
    participants: Range<u16>,
    /// Heads that are not read.
    heads_left: usize,
    /// Files that hold no segment, and have less room than they should: to be named if a segment is missed.
    unfinished: Vec<String>,
    /// A segment of the present incarnation that is in no file, though a later one is.
    missing: Option<u64>,
    found: Found,
    /// Segments with the batches that were met so far.
    batches: Vec<(u64, Vec<u64>)>,
    reader: Option<LogReader>,
}

impl Scan {
    /// Of a stream. `origin` says whose it must be; its incarnation does not count.
    pub fn new(
        origin: Origin,
        checksum: Checksum,
        participants: Range<u16>,
        incarnations: Vec<LogIncarnation>,
        durable: Epoch,
    ) -> Self {
        Scan {
            origin,
            checksum,
            incarnations,
            durable,
            participants,
            heads_left: 0,
            unfinished: Vec::new(),
            missing: None,
            found: Found::default(),
            batches: Vec::new(),
            reader: None,
        }
    }

    /// There are so many files.
    pub fn expect_heads(&mut self, files: usize) {
        self.heads_left = files;
    }

    /// A file that holds no segment has less room than it should.
    pub fn note_unfinished(&mut self, name: &FileName, bytes: u64) {
        self.unfinished.push(format!("{} has only {bytes} bytes", name.path()));
    }

    /// The segment of this stream that begins with this sector. A file that holds none was not used yet, or is damaged:
    /// then its segment will be missed.
    pub fn segment_in(&self, head: &[u8]) -> Option<Segment> {
        let block = read_block(head, self.checksum).ok()?;
        Segment::read(&block).ok().filter(|_| self.is_of_stream(block.head.origin))
    }

    /// Why this program can't tell what is in a file that begins with this sector, though it is what somebody has
    /// written. The log must not seem to end before it.
    pub fn not_understood(&self, head: &[u8]) -> Option<BlockError> {
        read_block(head, self.checksum).err().filter(BlockError::is_of_writer)
    }

    /// The first sector of a file was read. Returns whether all were.
    pub fn on_head(&mut self, file: u32, file_bytes: u64, head: AlignedBuffer) -> bool {
        if let Some(segment) = self.segment_in(&head) {
            self.found.segments.push(FoundSegment { number: segment.number, file, file_bytes, head });
        }
        self.heads_left -= 1;
        self.heads_left == 0
    }

    fn is_of_stream(&self, other: Origin) -> bool {
        Origin { incarnation: self.origin.incarnation, ..other } == self.origin
    }

    /// All heads are known: begins to read. False if no segment was ever begun.
    ///
    /// # Errors
    /// A needed segment is missing, or is there twice.
    pub fn begin_reading(&mut self) -> Result<bool, String> {
        let key = |found: &FoundSegment| {
            let block = read_block(&found.head, self.checksum).expect("it was read before");
            (found.number, block.head.origin.incarnation)
        };
        self.found.segments.sort_by_key(key);
        // Of two with the same number that of the later incarnation counts: the other one was dead when it was begun.
        let mut segments: Vec<FoundSegment> = Vec::new();
        let mut copies = Vec::new();
        for found in self.found.segments.drain(..) {
            if let Some(last) = segments.pop_if(|last| last.number == found.number)
                && key(&last) == key(&found)
            {
                copies.push((found.number, last.file, found.file));
            }
            segments.push(found);
        }
        let newest = segments.iter().max_by_key(|found| {
            let (number, incarnation) = key(found);
            (incarnation, number)
        });
        let Some(newest) = newest else {
            return if self.durable == Epoch(0) {
                Ok(false)
            } else {
                Err(format!(
                    "the redo log of stream {0} has no segment in its files redo/{0:03}-….redo, but epoch {1} was on \
                     disk{2}",
                    self.origin.owner,
                    self.durable,
                    self.describe_unfinished()
                ))
            };
        };
        let block = read_block(&newest.head, self.checksum).expect("it was read before");
        let incarnation = block.head.origin.incarnation;
        let tail = Segment::read(&block).expect("it was read before").tail;
        self.found.needed_from = needed_from(&block).collect();
        let (listed, participants) = (self.found.needed_from.len(), self.participants.len());
        if listed != 0 && listed != participants {
            return Err(format!(
                "the head of segment {} of stream {} lists {listed} data managers, but {participants} log to it",
                newest.number, self.origin.owner
            ));
        }
        let newest = newest.number;
        // A segment is begun once in an incarnation. Which of the two is the one that was written to can't be known;
        // and once that is, the other one would be taken for it at some later start.
        if let Some((number, one, other)) =
            copies.into_iter().find(|(number, ..)| (tail..=newest).contains(number))
        {
            let path =
                |file: u32| FileName::new(FileKind::Redo, self.origin.owner.into(), file.into()).path();
            return Err(format!(
                "{} and {} both hold segment {number} of the log: one of them is a copy, and does not belong there",
                path(one),
                path(other)
            ));
        }
        segments.retain(|found| found.number >= tail);
        let missing = (tail..=newest).find(|&number| segments.iter().all(|found| found.number != number));
        // Of an incarnation that has ended, segments behind the restore point are dead; their files may have been used
        // again, or removed, in any order. If one is missing that is not dead, the end record of the restore point is,
        // too.
        let has_ended = self.incarnations.iter().any(|one| one.number > incarnation);
        // Of the present one, the head of a segment may have come to the disk before that of the one before it: the log
        // ends in front of the gap, if what stands behind does not prove that there was more.
        match missing {
            Some(number) if number > tail && has_ended => segments.retain(|found| found.number < number),
            Some(number) if number > tail => self.missing = Some(number),
            Some(number) => return Err(self.describe_missing(number)),
            None => {}
        }
        self.found.segments.clone_from(&segments);
        let (stream, checksum) = (self.origin.owner, self.checksum);
        self.reader = Some(LogReader::new(stream, checksum, self.incarnations.clone(), segments)?);
        Ok(true)
    }

    fn describe_missing(&self, segment: u64) -> String {
        format!(
            "segment {segment} of stream {0} of the redo log is missing, or its head is damaged: it is in no file \
             redo/{0:03}-….redo{1}",
            self.origin.owner,
            self.describe_unfinished()
        )
    }

    fn describe_unfinished(&self) -> String {
        if self.unfinished.is_empty() { String::new() } else { format!("; {}", self.unfinished.join("; ")) }
    }

    /// A piece of a file was read.
    ///
    /// # Errors
    /// The file is shorter than it was.
    pub fn on_read(&mut self, count: u32, data: AlignedBuffer, bytes: usize) -> Result<(), String> {
        self.reader.as_mut().expect("a reader has begun the read").on_read(count, data, bytes)
    }

    /// Goes on with what has arrived. Returns whether the stream has ended and no read is under way.
    ///
    /// # Errors
    /// The log is damaged.
    pub fn advance(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        let Scan { reader, found, batches, participants, incarnations, .. } = self;
        let reader = reader.as_mut().expect("the scan has begun to read");
        let mut malformed = None;
        let progress = reader.advance(cx, |_, block, place| {
            if let Err(why) = note_block(found, batches, participants, incarnations, block, place) {
                malformed = Some(format!("offset {}: {why}", place.offset));
                return ControlFlow::Break(crate::reader::Stop::End);
            }
            ControlFlow::Continue(())
        });
        match progress {
            Progress::Reading | Progress::Paused => Ok(false),
            Progress::Stopped => Err(format!("{}, {}", reader.path(), malformed.unwrap_or_default())),
            Progress::Ended(_) => Ok(!reader.has_reads()),
            Progress::Damaged(reason) => Err(match self.missing {
                Some(segment) => format!("{reason}; {}", self.describe_missing(segment)),
                None => reason,
            }),
        }
    }

    /// What was found; the newest end record must reach the epoch that was recorded as durable.
    ///
    /// # Errors
    /// The log ends before that.
    pub fn finish(self) -> Result<Found, String> {
        let complete = self.found.ends.last().map_or(Epoch(0), |end| end.epoch);
        if complete < self.durable {
            let place = self.reader.as_ref().map(|reader| format!(" ({})", reader.end())).unwrap_or_default();
            let missing = self.missing.map(|segment| format!("; {}", self.describe_missing(segment)));
            return Err(format!(
                "stream {} of the redo log ends with epoch {complete}{place}, but epoch {} was on disk: its end is \
                 damaged or missing{}",
                self.origin.owner,
                self.durable,
                missing.unwrap_or_default()
            ));
        }
        Ok(self.found)
    }
}

/// Notes what is in a block.
fn note_block(
    found: &mut Found,
    batches: &mut Vec<(u64, Vec<u64>)>,
    participants: &Range<u16>,
    incarnations: &[LogIncarnation],
    block: &Block<'_>,
    place: Place,
) -> Result<(), String> {
    if batches.last().is_none_or(|(segment, _)| *segment != place.segment) {
        batches.push((place.segment, vec![0; participants.len()]));
    }
    let (_, last) = batches.last_mut().expect("it was added");
    let incarnation = block.head.origin.incarnation;
    if incarnations.iter().all(|one| one.number != incarnation) {
        return Err(format!("the system file does not know log incarnation {incarnation}"));
    }
    found.incarnations.insert(incarnation);
    for entry in entries(block) {
        let entry = entry.map_err(|why| format!("{why}"))?;
        let at = usize::from(entry.participant.wrapping_sub(participants.start));
        let greatest = last.get_mut(at).ok_or_else(|| {
            format!("a batch of data manager {}, which does not log to this stream", entry.participant)
        })?;
        *greatest = entry.batch;
        for record in records(entry.records) {
            let record = record.map_err(|why| format!("{why}"))?;
            found.greatest = found.greatest.max(record.change.epoch);
        }
    }
    if block.head.ends_epoch != Epoch(0) {
        let epoch = block.head.ends_epoch;
        found.greatest = found.greatest.max(epoch);
        found.ends.push(EndMark { epoch, place, batches: batches.clone() });
    }
    Ok(())
}
