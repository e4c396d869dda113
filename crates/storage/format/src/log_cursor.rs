//! Where a stream of the redo log goes on, and where it ends.
//!
//! Files of the log are used again and again, so behind the newest block there are blocks of an earlier use, zeros, or
//! the remains of a write that was torn. A block is the next one of the stream if it has the number that is due and an
//! incarnation that is not lower than that of the block before.
//!
//! The log may end in a torn write: what was never flushed was never promised. It must not end anywhere else. Each
//! block says up to which number all blocks were on the disk when it was made, so a later block proves that the missing
//! one was there once ([`LogCursor::judge_end`]). What no later block proves, the end record of the epoch that is
//! restored does: the log must contain it.
//!
//! ## Dead blocks
//! A node that starts again from its own files goes on behind the end record of the epoch that it has restored; what
//! stands there is dead, but looks like a continuation, and its later blocks would prove that a torn block of the new
//! incarnation is missing. So the reader calls [`LogCursor::require_incarnation`] when it has met the end record of the
//! last valid epoch of an incarnation, which the system file lists.

use crate::block::{Block, BlockError, Head, Origin, is_blank, read_block};
use crate::checksum::Checksum;
use crate::format::BlockKind;
use crate::malformed::Malformed;
use crate::redo::Segment;
use core::fmt;
use vinga_base::aligned::SECTOR_BYTES;

/// A place between two blocks of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogCursor {
    /// Who has written the newest block; later ones may have a higher incarnation.
    origin: Origin,
    segment: u64,
    next: u64,
}

/// What bytes behind a block of the stream are.
#[derive(Clone, Copy, Debug)]
pub enum Verdict<'a> {
    /// The next block of the stream; the cursor is behind it now.
    Next(Block<'a>),
    /// So many bytes of the file are needed to tell.
    NeedsMore(usize),
    /// No continuation: the segment or the log ends here.
    End(LogStop),
    /// What can't be there.
    Damaged(LogDamage),
}

/// Why bytes are no continuation of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogStop {
    /// The file ends.
    FileEnds,
    /// Nothing was ever written here.
    Blank,
    /// No whole block: a torn write, or the middle of an older block.
    NoBlock(BlockError),
    /// A block of another cluster, node or stream.
    Foreign(Origin),
    /// A block from an earlier use of the file, or of an incarnation that has ended.
    Older {
        /// Its number.
        number: u64,
        /// Its incarnation.
        incarnation: u32,
    },
    /// A segment that begins behind the block that is due.
    Gap {
        /// The number of the segment.
        segment: u64,
        /// The number of its first block.
        first_block: u64,
    },
}

/// What can't be in a file of the redo log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogDamage {
    /// A block that its writer has made so, and that this program does not understand.
    Block(BlockError),
    /// A block that is further on than the one that is due, in the place of this one.
    Skipped {
        /// The number that is due.
        due: u64,
        /// The number of the block.
        found: u64,
    },
    /// A block that says of itself that it was on the disk when it was made.
    FlushedItself {
        /// The number of the block.
        number: u64,
        /// The number up to which blocks were on the disk.
        flushed: u64,
    },
    /// A head of a segment in the middle of one, or a block of another format.
    WrongKind(BlockKind),
    /// The head of a segment contradicts itself.
    Malformed(Malformed),
}

/// Why a segment was not entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotEntered {
    /// It is no continuation: the log ends before it.
    End(LogStop),
    /// It can't be what its block says.
    Damaged(LogDamage),
}

/// How a log ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogEnd {
    /// Nothing proves that there was more.
    Clean,
    /// The block that is due was on the disk once: a later one says so.
    Missing {
        /// The number that is due.
        due: u64,
        /// The number of the later block.
        later: u64,
        /// Up to which number blocks were on the disk when it was made.
        flushed: u64,
    },
}

impl LogCursor {
    /// Begins at the first block of a segment, behind which the cursor then is.
    ///
    /// # Errors
    /// If it is no such block.
    pub fn begin(block: &Block<'_>) -> Result<(LogCursor, Segment), LogDamage> {
        let segment = read_segment(block)?;
        let cursor =
            LogCursor { origin: block.head.origin, segment: segment.number, next: segment.first_block };
        Ok((cursor, segment))
    }

    /// The number of the block that is due.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// The segment that the cursor is in.
    pub fn segment(&self) -> u64 {
        self.segment
    }

    /// The lowest incarnation that the next block can have.
    pub fn incarnation(&self) -> u32 {
        self.origin.incarnation
    }

    /// From here on only blocks of this incarnation or a higher one belong to the stream.
    pub fn require_incarnation(&mut self, incarnation: u32) {
        self.origin.incarnation = self.origin.incarnation.max(incarnation);
    }

    /// Judges the bytes behind the block before. `ends_file` says that the file ends behind them.
    pub fn judge<'a>(&mut self, bytes: &'a [u8], ends_file: bool, checksum: Checksum) -> Verdict<'a> {
        let block = match read_block(bytes, checksum) {
            Ok(block) => block,
            Err(BlockError::NeedsMore(needed)) if !ends_file => return Verdict::NeedsMore(needed),
            Err(error) if error.is_of_writer() => return Verdict::Damaged(LogDamage::Block(error)),
            Err(_) if bytes.is_empty() => return Verdict::End(LogStop::FileEnds),
            Err(BlockError::NotABlock) if is_blank(&bytes[..bytes.len().min(SECTOR_BYTES)]) => {
                return Verdict::End(LogStop::Blank);
            }
            Err(error) => return Verdict::End(LogStop::NoBlock(error)),
        };
        match self.judge_block(&block) {
            Ok(None) => {
                self.next += 1;
                self.origin.incarnation = block.head.origin.incarnation;
                Verdict::Next(block)
            }
            Ok(Some(stop)) => Verdict::End(stop),
            Err(damage) => Verdict::Damaged(damage),
        }
    }

    /// Why a block is not the next one of the segment; `None` if it is.
    fn judge_block(&self, block: &Block<'_>) -> Result<Option<LogStop>, LogDamage> {
        let Head { kind, number, origin, flushed, .. } = block.head;
        if !self.is_of_stream(origin) {
            return Ok(Some(LogStop::Foreign(origin)));
        }
        if number < self.next || origin.incarnation < self.origin.incarnation {
            return Ok(Some(LogStop::Older { number, incarnation: origin.incarnation }));
        }
        if kind != BlockKind::RedoEntries {
            return Err(LogDamage::WrongKind(kind));
        }
        if number > self.next {
            return Err(LogDamage::Skipped { due: self.next, found: number });
        }
        if flushed >= number {
            return Err(LogDamage::FlushedItself { number, flushed });
        }
        Ok(None)
    }

    /// Goes on in the file with the next segment, whose first block this is. A segment of a higher incarnation may
    /// begin before the block that is due: the node has started again, and what was read behind that number is dead.
    ///
    /// # Errors
    /// If it is no continuation, or no first block of a segment at all.
    pub fn enter(&mut self, block: &Block<'_>) -> Result<Segment, NotEntered> {
        let origin = block.head.origin;
        if !self.is_of_stream(origin) {
            return Err(NotEntered::End(LogStop::Foreign(origin)));
        }
        let segment = read_segment(block).map_err(NotEntered::Damaged)?;
        let incarnation = origin.incarnation;
        let begins_anew = incarnation > self.origin.incarnation && segment.first_block <= self.next;
        if segment.number != self.segment + 1
            || incarnation < self.origin.incarnation
            || segment.first_block < self.next && !begins_anew
        {
            return Err(NotEntered::End(LogStop::Older { number: segment.first_block, incarnation }));
        }
        if segment.first_block > self.next {
            let gap = LogStop::Gap { segment: segment.number, first_block: segment.first_block };
            return Err(NotEntered::End(gap));
        }
        *self = LogCursor { origin, segment: segment.number, next: segment.first_block };
        Ok(segment)
    }

    /// Judges the end of the log at the cursor, by the blocks that are found behind it: in the rest of its file, and in
    /// files with later segments.
    pub fn judge_end<'a>(&self, later: impl IntoIterator<Item = &'a Head>) -> LogEnd {
        let proof = later.into_iter().find(|head| {
            self.is_of_stream(head.origin)
                && head.origin.incarnation >= self.origin.incarnation
                && head.number > self.next
                && head.flushed >= self.next
        });
        proof.map_or(LogEnd::Clean, |head| LogEnd::Missing {
            due: self.next,
            later: head.number,
            flushed: head.flushed,
        })
    }

    fn is_of_stream(&self, origin: Origin) -> bool {
        origin == Origin { incarnation: origin.incarnation, ..self.origin }
    }
}

fn read_segment(block: &Block<'_>) -> Result<Segment, LogDamage> {
    let Head { kind, number, flushed, .. } = block.head;
    if kind != BlockKind::SegmentHead {
        return Err(LogDamage::WrongKind(kind));
    }
    if flushed > 0 && flushed >= number {
        return Err(LogDamage::FlushedItself { number, flushed });
    }
    Segment::read(block).map_err(LogDamage::Malformed)
}

impl fmt::Display for LogStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogStop::FileEnds => f.write_str("the file ends"),
            LogStop::Blank => f.write_str("nothing was written behind it yet"),
            LogStop::NoBlock(error) => write!(f, "no whole block follows: {error}"),
            LogStop::Foreign(origin) => write!(
                f,
                "a block of cluster {:016x}, node {}, stream {} follows",
                origin.cluster, origin.node, origin.owner
            ),
            LogStop::Older { number, incarnation } => {
                write!(
                    f,
                    "block {number} of incarnation {incarnation} follows, from an earlier use of the file"
                )
            }
            LogStop::Gap { segment, first_block } => {
                write!(f, "segment {segment} begins with block {first_block}, behind the one that is due")
            }
        }
    }
}

impl fmt::Display for LogDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogDamage::Block(error) => error.fmt(f),
            LogDamage::Skipped { due, found } => {
                write!(f, "block {found} is in the place of block {due}")
            }
            LogDamage::FlushedItself { number, flushed } => {
                write!(f, "block {number} says that blocks up to {flushed} were on the disk before it")
            }
            LogDamage::WrongKind(kind) => write!(f, "a block of the kind {kind:?} can't be here"),
            LogDamage::Malformed(malformed) => malformed.fmt(f),
        }
    }
}

impl core::error::Error for LogDamage {}
