//! Reads a stream from its files, block by block, across segments.
//!
//! The reader keeps some reads under way and judges what has arrived. It ends where the stream ends, and stops where
//! its user has enough for the moment.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use vinga_base::Epoch;
use vinga_base::aligned::AlignedBuffer;
use vinga_format::block::{Block, BlockSearch, Head, read_block};
use vinga_format::checksum::Checksum;
use vinga_format::log_cursor::{LogCursor, LogDamage, LogEnd, NotEntered, Verdict};
use vinga_format::redo::SEGMENT_HEAD_BYTES;
use vinga_kernel::Context;
use vinga_kernel::file_stream::FileStream;
use vinga_kernel::files::{FileKind, FileName};
use vinga_wire::start::LogIncarnation;

use crate::task::Task;

/// A segment as it was found in a file.
#[derive(Clone, Debug)]
pub struct FoundSegment {
    /// Its number.
    pub number: u64,
    /// The file.
    pub file: u32,
    /// The size of the file.
    pub file_bytes: u64,
    /// Its first block, as it stands in the file.
    pub head: AlignedBuffer,
}

/// A place in the stream, behind a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The segment's number.
    pub segment: u64,
    /// Where the block ends in the segment's file.
    pub offset: u64,
    /// The block's number.
    pub block: u64,
}

/// The incarnations in the log, with the last valid epoch of each.
#[derive(Clone, Debug)]
pub struct Incarnations(pub Vec<LogIncarnation>);

impl Incarnations {
    /// The last epoch that is valid in an incarnation.
    pub fn last_valid(&self, incarnation: u32) -> Epoch {
        let known = self.0.iter().find(|one| one.number == incarnation);
        known.map_or(Epoch(0), |one| one.last_valid.unwrap_or(Epoch::MAX))
    }

    /// The lowest incarnation that a block can have behind the end record of an epoch that an incarnation has written:
    /// a later one, if that was the last valid epoch.
    fn behind(&self, incarnation: u32, ended: Epoch) -> Option<u32> {
        let later = self.0.iter().filter(|one| one.number >= incarnation);
        later.filter(|one| one.last_valid.is_none_or(|last| last > ended)).map(|one| one.number).min()
    }
}

/// How far the reader has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// More of the files has to arrive.
    Reading,
    /// The user has enough for the moment.
    Paused,
    /// The user wants no more.
    Stopped,
    /// The stream has ended behind this place.
    Ended(Place),
    /// The files can't be what was written.
    Damaged(String),
    /// A newer program has written a block: what this one does not understand, and where.
    NotUnderstood(String),
}

/// What the user of a reader says to a block.
pub type Answer = ControlFlow<Stop>;

/// Why a user does not want the next block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It has enough for the moment; this block is shown again.
    Pause,
    /// It wants no more.
    End,
}

/// Reads a stream.
pub struct LogReader {
    stream: u16,
    checksum: Checksum,
    incarnations: Incarnations,
    /// The segments that are left, the one that is read first.
    segments: VecDeque<FoundSegment>,
    cursor: LogCursor,
    /// The file of the first segment.
    file: FileStream,
    /// Reads of segments that were left, which are still to be answered.
    abandoned: u32,
    /// The stream has ended; the rest of the segment is searched for blocks that prove that it should not have.
    end: Option<Place>,
    /// Heads of blocks behind the end.
    later: Vec<Head>,
}

impl LogReader {
    /// Begins with the first of these segments, which are consecutive.
    ///
    /// # Errors
    /// The first segment does not begin as a segment does.
    pub fn new(
        stream: u16,
        checksum: Checksum,
        incarnations: Vec<LogIncarnation>,
        segments: Vec<FoundSegment>,
    ) -> Result<Self, String> {
        let first = segments.first().expect("there is a segment to begin with");
        let name = FileName::new(FileKind::Redo, stream.into(), first.file.into()).path();
        let block = read_block(&first.head, checksum).map_err(|why| format!("{name}, offset 0: {why}"))?;
        let (mut cursor, _) = LogCursor::begin(&block).map_err(|why| format!("{name}, offset 0: {why}"))?;
        let file = stream_of(stream, first, 0);
        let incarnations = Incarnations(incarnations);
        // Of an incarnation of which nothing was restored all blocks are dead: there is no end record in front of them.
        if let Some(number) = incarnations.behind(block.head.origin.incarnation, Epoch(0)) {
            cursor.require_incarnation(number);
        }
        Ok(LogReader {
            stream,
            checksum,
            incarnations,
            segments: segments.into(),
            cursor,
            file,
            abandoned: 0,
            end: None,
            later: Vec::new(),
        })
    }

    /// The incarnations in the log.
    pub fn incarnations(&self) -> Incarnations {
        self.incarnations.clone()
    }

    /// Bytes between what is read next and a place.
    pub fn bytes_to(&self, end: Place) -> u64 {
        let ahead = self.segments.iter().filter(|found| found.number <= end.segment);
        let ends = ahead.map(|found| if found.number == end.segment { end.offset } else { found.file_bytes });
        ends.sum::<u64>().saturating_sub(self.file.offset())
    }

    /// A read has been answered.
    ///
    /// # Errors
    /// The file is shorter than it was.
    pub fn on_read(&mut self, number: u32, data: AlignedBuffer, bytes: usize) -> Result<(), String> {
        if !self.file.on_read(number, data, bytes)? {
            self.abandoned -= 1;
        }
        Ok(())
    }

    /// Judges what has arrived, and shows `see` each block with the place behind it.
    pub fn advance(
        &mut self,
        cx: &mut Context<'_>,
        mut see: impl FnMut(&mut Context<'_>, &Block<'_>, Place) -> Answer,
    ) -> Progress {
        if self.end.is_some() {
            return self.search_rest(cx);
        }
        loop {
            let ends_file = self.file.has_arrived();
            let before = self.cursor;
            match self.cursor.judge(self.file.bytes(), ends_file, self.checksum) {
                Verdict::Next(block) => {
                    let offset = self.file.offset() + block.bytes as u64;
                    let place = Place { segment: before.segment(), offset, block: block.head.number };
                    match see(cx, &block, place) {
                        ControlFlow::Continue(()) => {}
                        ControlFlow::Break(Stop::Pause) => {
                            self.cursor = before;
                            return Progress::Paused;
                        }
                        ControlFlow::Break(Stop::End) => return Progress::Stopped,
                    }
                    let (head, bytes) = (block.head, block.bytes);
                    self.file.consume(bytes);
                    self.leave_dead_incarnations(&head);
                }
                Verdict::NeedsMore(_) => {
                    self.file.read_on(cx, token);
                    return Progress::Reading;
                }
                Verdict::End(_) => match self.enter_next_segment() {
                    Ok(true) => {}
                    Ok(false) => {
                        let place = Place {
                            segment: self.cursor.segment(),
                            offset: self.file.offset(),
                            block: self.cursor.next_number() - 1,
                        };
                        self.end = Some(place);
                        return self.search_rest(cx);
                    }
                    Err(reason) => return Progress::Damaged(reason),
                },
                Verdict::Damaged(why) => {
                    let reason = format!("{}, offset {}: {why}", self.path(), self.file.offset());
                    return match why {
                        LogDamage::Block(_) => Progress::NotUnderstood(reason),
                        _ => Progress::Damaged(reason),
                    };
                }
            }
        }
    }

    /// Behind the end record of the last valid epoch of an incarnation only blocks of a later one count.
    fn leave_dead_incarnations(&mut self, head: &Head) {
        if head.ends_epoch == Epoch(0) {
            return;
        }
        if let Some(number) = self.incarnations.behind(head.origin.incarnation, head.ends_epoch) {
            self.cursor.require_incarnation(number);
        }
    }

    /// Goes on in the next segment; false if the stream does not go on there.
    fn enter_next_segment(&mut self) -> Result<bool, String> {
        let Some(next) = self.segments.get(1) else { return Ok(false) };
        let path = FileName::new(FileKind::Redo, self.stream.into(), next.file.into()).path();
        let Ok(block) = read_block(&next.head, self.checksum) else { return Ok(false) };
        match self.cursor.enter(&block) {
            Ok(_) => {}
            Err(NotEntered::End(_)) => return Ok(false),
            Err(NotEntered::Damaged(why)) => return Err(format!("{path}, offset 0: {why}")),
        }
        self.segments.pop_front();
        self.abandoned += self.file.reads();
        self.file = stream_of(self.stream, &self.segments[0], self.file.next_read());
        Ok(true)
    }

    /// Looks behind the end of the stream for blocks that prove that it should not end there.
    fn search_rest(&mut self, cx: &mut Context<'_>) -> Progress {
        let place = self.end.expect("the stream has ended");
        let ends_file = self.file.has_arrived();
        let mut search = BlockSearch::new(self.file.bytes(), ends_file, self.checksum);
        self.later.extend((&mut search).map(|(_, block)| block.head));
        let searched = search.position();
        self.file.consume(searched);
        if !ends_file {
            self.file.read_on(cx, token);
            return Progress::Reading;
        }
        let heads = self.segments.iter().skip(1).filter_map(|one| read_block(&one.head, self.checksum).ok());
        self.later.extend(heads.map(|block| block.head));
        match self.cursor.judge_end(&self.later) {
            LogEnd::Clean => Progress::Ended(place),
            LogEnd::Missing { due, later, flushed } => Progress::Damaged(format!(
                "{}, offset {}: block {due} is damaged or missing; it was on the disk once, as block {later} says \
                 (up to {flushed})",
                self.path(),
                place.offset
            )),
        }
    }

    /// Whether reads are under way whose answers will come.
    pub fn has_reads(&self) -> bool {
        self.abandoned > 0 || self.file.has_reads()
    }

    /// Where the stream has ended, for people.
    pub fn end(&self) -> String {
        let offset = self.end.map_or(self.file.offset(), |place| place.offset);
        format!("{}, offset {offset}", self.path())
    }

    /// The path of the file that is read.
    pub fn path(&self) -> String {
        self.file.file().path()
    }
}

/// The blocks of a segment.
fn stream_of(stream: u16, segment: &FoundSegment, first_read: u32) -> FileStream {
    let name = FileName::new(FileKind::Redo, stream.into(), segment.file.into());
    FileStream::new(name, SEGMENT_HEAD_BYTES as u64, segment.file_bytes, first_read)
}

/// The token of a read.
fn token(number: u32) -> u64 {
    Task::Read(number).token()
}
