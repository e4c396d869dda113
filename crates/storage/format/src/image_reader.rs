//! Reads a checkpoint: blocks in, pieces with their rows out.

use crate::block::{Block, BlockError, Origin, read_block};
use crate::checksum::Checksum;
use crate::cold;
use crate::format::{BlockKind, Format};
use crate::image::{
    EPOCH_BYTES, ImageEnd, ImageFragment, ImageHead, PAGES_MAX, PieceHead, SLOTS_MAX, Totals,
    VARIABLE_LENGTH_BYTES, bitmap_bytes,
};
use crate::malformed::Malformed;
use alloc::vec::Vec;
use core::fmt;
use vinga_base::{Epoch, PartitionId, TableId, TableVersion};
use zerocopy::FromBytes;

/// The reader of one file.
pub struct ImageReader {
    checksum: Checksum,
    head: ImageHead,
    origin: Option<Origin>,
    /// The head's fragments with their places in it, ascending.
    fragments: Vec<(FragmentKey, usize)>,
    totals: Totals,
    /// The newest epoch of any row.
    newest: Epoch,
    is_complete: bool,
}

type FragmentKey = (TableId, TableVersion, PartitionId);

/// A block of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageBlock<'a> {
    /// How many bytes of the file it takes: the next one begins behind them.
    pub bytes: usize,
    /// What it contains.
    pub content: ImageContent<'a>,
}

/// What a block of a checkpoint contains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ImageContent<'a> {
    /// The first block: see [`ImageReader::head`].
    Head,
    /// Pieces of pages.
    Pages(Vec<Piece<'a>>),
    /// The last block: the file is complete, and all of it was as it was written.
    End(ImageEnd),
}

/// A range of slots of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece<'a> {
    /// The place of the fragment in the head's list.
    pub fragment: usize,
    /// The page.
    pub page: u32,
    /// The first slot of the range.
    pub first_slot: u16,
    /// How many slots the range has.
    pub slots: u16,
    /// How many rows it has.
    pub rows: u16,
    bitmap: &'a [u8],
    data: &'a [u8],
    fixed_bytes: usize,
    has_variable: bool,
}

/// A row of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImageRow<'a> {
    /// Its slot.
    pub slot: u16,
    /// The epoch of its last change.
    pub epoch: Epoch,
    /// The fixed part.
    pub fixed: &'a [u8],
    /// The variable part; nothing in tables without columns of variable size.
    pub variable: &'a [u8],
}

/// Why a file is no checkpoint, or not this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageError {
    /// The bytes are no block, or not all of it.
    Block(BlockError),
    /// The file is of another format.
    OtherFormat(Format),
    /// A block of this kind can't be here.
    WrongKind(BlockKind),
    /// A block that others than the writer of the first block have written.
    Foreign(Origin),
    /// A block with another number than the one that is due.
    WrongNumber {
        /// The number that is due.
        due: u64,
        /// The block's number.
        found: u64,
    },
    /// The content of a block.
    Malformed(Malformed),
    /// The last block counts other blocks, pieces, rows or bytes than were read.
    OtherTotals {
        /// What was read.
        read: Totals,
        /// What the last block says.
        said: Totals,
    },
    /// A row was changed in a later epoch than the last block says.
    NewerRow(Epoch),
    /// Nothing follows the last block.
    IsComplete,
}

impl ImageReader {
    /// Begins to read a file.
    pub fn new(checksum: Checksum) -> Self {
        ImageReader {
            checksum,
            head: ImageHead::default(),
            origin: None,
            fragments: Vec::new(),
            totals: Totals::default(),
            newest: Epoch(0),
            is_complete: false,
        }
    }

    /// What the first block says; all fields are 0 until it was read.
    pub fn head(&self) -> &ImageHead {
        &self.head
    }

    /// Who has written the file; `None` until its first block was read.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// What was read so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Reads the next block: the one with which these bytes of the file begin.
    ///
    /// # Errors
    /// See [`ImageError`]. After `ImageError::Block(BlockError::NeedsMore(_))` the same place can be tried again with
    /// more bytes; after others the reader has not changed, but there is no use in going on.
    pub fn read<'a>(&mut self, bytes: &'a [u8]) -> Result<ImageBlock<'a>, ImageError> {
        if self.is_complete {
            return Err(ImageError::IsComplete);
        }
        let block = read_block(bytes, self.checksum).map_err(ImageError::Block)?;
        let head = block.head;
        if head.kind.format() != Format::Checkpoint {
            return Err(ImageError::OtherFormat(head.kind.format()));
        }
        if self.origin.is_some_and(|origin| origin != head.origin) {
            return Err(ImageError::Foreign(head.origin));
        }
        let due = self.totals.blocks;
        if head.number != due {
            return Err(ImageError::WrongNumber { due, found: head.number });
        }
        let content = match (self.origin, head.kind) {
            (None, BlockKind::ImageHead) => {
                self.read_head(&block)?;
                ImageContent::Head
            }
            (Some(_), BlockKind::ImagePages) => {
                ImageContent::Pages(self.read_pieces(block.payload).map_err(ImageError::Malformed)?)
            }
            (Some(_), BlockKind::ImageEnd) => ImageContent::End(self.read_end(block.payload)?),
            (_, kind) => return Err(ImageError::WrongKind(kind)),
        };
        self.totals.blocks += 1;
        Ok(ImageBlock { bytes: block.bytes, content })
    }

    fn read_head(&mut self, block: &Block<'_>) -> Result<(), ImageError> {
        let malformed = |reason| Err(ImageError::Malformed(Malformed::new(0, reason)));
        let head: ImageHead = cold::decode(block.payload).map_err(ImageError::Malformed)?;
        if head.epoch > Epoch::MAX {
            return malformed("an epoch has more than 48 bits");
        }
        if (head.incarnation, head.instance) != (block.head.origin.incarnation, block.head.origin.owner) {
            return malformed("the data manager or the incarnation is not that of the block's head");
        }
        let key = |fragment: &ImageFragment| (fragment.table, fragment.birth, fragment.partition);
        let mut fragments: Vec<_> = head.fragments.iter().map(key).zip(0..).collect();
        fragments.sort_unstable();
        if fragments.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return malformed("a fragment is listed twice");
        }
        (self.head, self.origin, self.fragments) = (head, Some(block.head.origin), fragments);
        Ok(())
    }

    fn read_end(&mut self, payload: &[u8]) -> Result<ImageEnd, ImageError> {
        let end: ImageEnd = cold::decode(payload).map_err(ImageError::Malformed)?;
        let read = Totals { blocks: self.totals.blocks + 1, ..self.totals };
        if end.totals != read {
            return Err(ImageError::OtherTotals { read, said: end.totals });
        }
        if end.epoch > Epoch::MAX {
            return Err(ImageError::Malformed(Malformed::new(0, "an epoch has more than 48 bits")));
        }
        if self.newest > end.epoch {
            return Err(ImageError::NewerRow(self.newest));
        }
        self.is_complete = true;
        Ok(end)
    }

    fn read_pieces<'a>(&mut self, payload: &'a [u8]) -> Result<Vec<Piece<'a>>, Malformed> {
        let (mut pieces, mut totals, mut newest) = (Vec::new(), self.totals, self.newest);
        let mut rest = payload;
        while !rest.is_empty() {
            let at = payload.len() - rest.len();
            let (piece, behind, newest_of_piece) =
                self.read_piece(rest).map_err(|reason| Malformed::new(at, reason))?;
            totals.pieces += 1;
            totals.rows += u64::from(piece.rows);
            totals.bytes += piece.data.len() as u64;
            newest = newest.max(newest_of_piece);
            pieces.push(piece);
            rest = behind;
        }
        if pieces.is_empty() {
            return Err(Malformed::new(0, "a block without pieces"));
        }
        (self.totals, self.newest) = (totals, newest);
        Ok(pieces)
    }

    /// The piece with which these bytes begin, what is behind it, and the newest epoch of its rows.
    fn read_piece<'a>(&self, bytes: &'a [u8]) -> Result<(Piece<'a>, &'a [u8], Epoch), &'static str> {
        let (head, rest) = PieceHead::ref_from_prefix(bytes).map_err(|_| "a piece is cut off in its head")?;
        if head.reserved.get() != 0 || head.reserved_too.get() != 0 {
            return Err("a reserved field of a piece is not 0");
        }
        let key =
            (TableId(head.table.get()), TableVersion(head.birth.get()), PartitionId(head.partition.get()));
        let found = self.fragments.binary_search_by_key(&key, |(key, _)| *key);
        let fragment =
            self.fragments[found.map_err(|_| "a piece of a fragment that the first block does not list")?].1;
        let shape = self.head.fragments[fragment];
        let (first_slot, slots, rows) = (head.first_slot.get(), head.slots.get(), head.rows.get());
        if head.page.get() >= PAGES_MAX {
            return Err("a page that no fragment has");
        }
        if slots == 0 || first_slot >= SLOTS_MAX || slots > SLOTS_MAX - first_slot {
            return Err("slots that no page has");
        }
        let (bitmap, rest) =
            rest.split_at_checked(bitmap_bytes(slots)).ok_or("a piece is cut off in its bitmap")?;
        let (data, rest) =
            rest.split_at_checked(head.bytes.get() as usize).ok_or("the rows of a piece are cut off")?;
        let live: u32 = bitmap.iter().map(|byte| byte.count_ones()).sum();
        if live != u32::from(rows) {
            return Err("the bitmap of a piece has another number of rows than its head");
        }
        if slots_of(bitmap).last().is_some_and(|last| last >= slots) {
            return Err("the bitmap of a piece has rows behind its last slot");
        }
        let piece = Piece {
            fragment,
            page: head.page.get(),
            first_slot,
            slots,
            rows,
            bitmap,
            data,
            fixed_bytes: shape.fixed_bytes as usize,
            has_variable: shape.has_variable,
        };
        let newest = piece.check_rows(shape.row_bytes())?;
        Ok((piece, rest, newest))
    }
}

impl<'a> Piece<'a> {
    /// Its rows, ascending by slot.
    #[inline]
    pub fn rows(&self) -> impl Iterator<Item = ImageRow<'a>> + use<'a> {
        let Piece { first_slot, fixed_bytes, has_variable, mut data, .. } = *self;
        slots_of(self.bitmap).map(move |place| {
            let (epoch, rest) = data.split_first_chunk().expect("the rows were checked");
            let (fixed, rest) = rest.split_at(fixed_bytes);
            let (variable, rest) = if has_variable {
                let (length, rest) = rest.split_first_chunk().expect("the rows were checked");
                rest.split_at(usize::from(u16::from_le_bytes(*length)))
            } else {
                (&[][..], rest)
            };
            data = rest;
            ImageRow { slot: first_slot + place, epoch: Epoch(u64::from_le_bytes(*epoch)), fixed, variable }
        })
    }

    /// Bytes of its rows.
    pub fn bytes(&self) -> u64 {
        self.data.len() as u64
    }

    /// The bitmap of the slots that hold a row, in words: bit `i` of word `w` is slot `first_slot + 64 * w + i`.
    pub fn live(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.bitmap.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))
    }

    /// Whether the rows take exactly the piece's bytes; returns the newest epoch.
    fn check_rows(&self, row_bytes: usize) -> Result<Epoch, &'static str> {
        let mut data = self.data;
        let mut newest = 0;
        for _ in 0..self.rows {
            let Some((row, rest)) = data.split_at_checked(row_bytes) else {
                return Err("the last row of a piece is cut off");
            };
            let epoch = u64::from_le_bytes(*row.first_chunk::<EPOCH_BYTES>().expect("a row is longer"));
            newest = newest.max(epoch);
            let variable = if self.has_variable {
                let length = row.last_chunk::<VARIABLE_LENGTH_BYTES>().expect("a row is longer");
                usize::from(u16::from_le_bytes(*length))
            } else {
                0
            };
            data = rest.get(variable..).ok_or("the variable part of a row is cut off")?;
        }
        if !data.is_empty() {
            return Err("a piece has more bytes than its rows");
        }
        if newest > Epoch::MAX.0 {
            Err("the epoch of a row has more than 48 bits")
        } else {
            Ok(Epoch(newest))
        }
    }
}

/// The slots of a bitmap that are set, ascending, from 0.
#[inline]
fn slots_of(bitmap: &[u8]) -> impl Iterator<Item = u16> {
    let (words, _) = bitmap.as_chunks();
    words.iter().zip(0u16..).flat_map(|(word, number)| {
        let mut bits = u64::from_le_bytes(*word);
        core::iter::from_fn(move || {
            let bit = (bits != 0).then(|| bits.trailing_zeros() as u16)?;
            bits &= bits - 1;
            Some(number * 64 + bit)
        })
    })
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageError::Block(error) => error.fmt(f),
            ImageError::OtherFormat(format) => write!(f, "this is a {format}, not a {}", Format::Checkpoint),
            ImageError::WrongKind(kind) => write!(f, "a block of the kind {kind:?} can't be here"),
            ImageError::Foreign(origin) => write!(
                f,
                "the block is of cluster {:016x}, node {}, data manager {}, incarnation {}, as opposed to the first one",
                origin.cluster, origin.node, origin.owner, origin.incarnation
            ),
            ImageError::WrongNumber { due, found } => {
                write!(f, "the block has number {found} in place of {due}")
            }
            ImageError::Malformed(malformed) => malformed.fmt(f),
            ImageError::OtherTotals { read, said } => write!(
                f,
                "the last block counts {} blocks, {} pieces, {} rows, {} bytes; there are {}, {}, {}, {}",
                said.blocks,
                said.pieces,
                said.rows,
                said.bytes,
                read.blocks,
                read.pieces,
                read.rows,
                read.bytes
            ),
            ImageError::NewerRow(epoch) => {
                write!(f, "a row was changed in epoch {epoch}, which is newer than the last block says")
            }
            ImageError::IsComplete => f.write_str("nothing follows the last block"),
        }
    }
}

impl core::error::Error for ImageError {}
