//! Writes a checkpoint: rows in, sealed blocks out.

use crate::block::{BLOCK_BYTES, HEAD_BYTES, Head, Origin};
use crate::block_writer::{BlockWriter, block_of};
use crate::checksum::Checksum;
use crate::cold;
use crate::format::BlockKind;
use crate::image::{
    ImageEnd, ImageFragment, ImageHead, PAGES_MAX, PIECE_HEAD_BYTES, PieceHead, SLOTS_MAX, Totals,
    VARIABLE_LENGTH_BYTES, bitmap_bytes,
};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use vinga_base::Epoch;
use vinga_base::aligned::AlignedBuffer;
use zerocopy::IntoBytes;

/// A piece that is being written.
#[derive(Clone, Copy)]
struct Piece {
    fragment: usize,
    page: u32,
    first_slot: u16,
    slots: u16,
    rows: u16,
    /// The slot behind that of the newest row.
    next_slot: u16,
    /// Where the piece begins in the payload of the block.
    at: usize,
    row_bytes: usize,
    has_variable: bool,
}

/// The writer of one file. Blocks are [taken](ImageWriter::take_block) in the order of the file, whenever there are
/// some.
pub struct ImageWriter {
    writer: BlockWriter,
    origin: Origin,
    fragments: Vec<ImageFragment>,
    piece: Option<Piece>,
    totals: Totals,
    block_bytes: usize,
    checksum: Checksum,
    ready: VecDeque<AlignedBuffer>,
    spare: Vec<AlignedBuffer>,
}

impl ImageWriter {
    /// Begins a file in blocks of the usual size.
    pub fn new(cluster: u64, node: vinga_base::NodeId, head: &ImageHead, checksum: Checksum) -> Self {
        ImageWriter::with_block_bytes(cluster, node, head, checksum, BLOCK_BYTES)
    }

    /// Begins a file in blocks of at most so many bytes. Each row must fit one.
    pub fn with_block_bytes(
        cluster: u64,
        node: vinga_base::NodeId,
        head: &ImageHead,
        checksum: Checksum,
        block_bytes: usize,
    ) -> Self {
        let origin = Origin { cluster, node, incarnation: head.incarnation, owner: head.instance };
        let first = block_of(Head::new(BlockKind::ImageHead, 0, origin), &cold::encode(head), checksum);
        ImageWriter {
            writer: BlockWriter::new(),
            origin,
            fragments: head.fragments.clone(),
            piece: None,
            totals: Totals { blocks: 1, ..Totals::default() },
            block_bytes,
            checksum,
            ready: VecDeque::from([first]),
            spare: Vec::new(),
        }
    }

    /// From the next block on, blocks have at most so many bytes. Each row must fit one ([`row_bytes_max`]).
    pub fn set_block_bytes(&mut self, bytes: usize) {
        self.block_bytes = bytes;
    }

    /// Begins a piece: a range of slots of a page of one of the head's fragments. Rows follow, then its end.
    pub fn begin_piece(&mut self, fragment: usize, page: u32, first_slot: u16, slots: u16) {
        assert!(self.piece.is_none(), "the piece before has ended");
        assert!(page < PAGES_MAX, "no fragment has a page {page}");
        assert!(
            slots > 0 && first_slot < SLOTS_MAX && slots <= SLOTS_MAX - first_slot,
            "no page has {slots} slots from {first_slot}"
        );
        if self.writer.is_open() && self.writer.room() < PIECE_HEAD_BYTES + bitmap_bytes(slots) {
            self.end_block();
        }
        self.open_piece(fragment, page, first_slot, slots);
    }

    /// Appends a row to the piece; rows come in the order of their slots. `variable` is empty in tables without columns
    /// of variable size.
    #[inline]
    pub fn row(&mut self, slot: u16, epoch: Epoch, fixed: &[u8], variable: &[u8]) {
        let mut piece = self.piece.expect("a piece was begun");
        if self.writer.room() < piece.row_bytes + variable.len() {
            piece = self.split(piece, slot, piece.row_bytes + variable.len());
        }
        let place = slot.wrapping_sub(piece.first_slot);
        assert!(slot >= piece.next_slot && place < piece.slots, "rows are ascending, inside of the piece");
        debug_assert!(epoch <= Epoch::MAX, "an epoch has 48 bits");
        let row = self.writer.space(piece.row_bytes + variable.len());
        let (epoch_bytes, row) = row.split_first_chunk_mut().expect("a row begins with its epoch");
        *epoch_bytes = epoch.0.to_le_bytes();
        if piece.has_variable {
            let (fixed_bytes, row) = row.split_at_mut(fixed.len());
            fixed_bytes.copy_from_slice(fixed);
            let (length, variable_bytes) = row.split_first_chunk_mut().expect("there is room for the length");
            *length = u16::try_from(variable.len()).expect("a variable part is shorter").to_le_bytes();
            variable_bytes.copy_from_slice(variable);
        } else {
            row.copy_from_slice(fixed);
        }
        // Byte by byte the bitmap is the same as in words, as these are little-endian.
        let bits = piece.at + PIECE_HEAD_BYTES + usize::from(place / 8);
        self.writer.payload_mut()[bits] |= 1 << (place % 8);
        piece.rows += 1;
        piece.next_slot = slot + 1;
        self.piece = Some(piece);
    }

    /// Ends the piece.
    pub fn end_piece(&mut self) {
        let piece = self.piece.take().expect("a piece was begun");
        let fragment = self.fragments[piece.fragment];
        let bitmap = bitmap_bytes(piece.slots);
        let bytes = self.writer.payload_bytes() - piece.at - PIECE_HEAD_BYTES - bitmap;
        let head = PieceHead {
            table: fragment.table.0.into(),
            partition: fragment.partition.0.into(),
            reserved: 0.into(),
            birth: fragment.birth.0.into(),
            page: piece.page.into(),
            first_slot: piece.first_slot.into(),
            slots: piece.slots.into(),
            rows: piece.rows.into(),
            reserved_too: 0.into(),
            bytes: (bytes as u32).into(),
        };
        self.writer.payload_mut()[piece.at..piece.at + PIECE_HEAD_BYTES].copy_from_slice(head.as_bytes());
        self.totals.pieces += 1;
        self.totals.rows += u64::from(piece.rows);
        self.totals.bytes += bytes as u64;
    }

    /// Ends the file; `epoch` is the newest of any change that was committed before the scan ended. All blocks that are
    /// left are ready then. Returns what the file contains.
    pub fn finish(&mut self, epoch: Epoch) -> Totals {
        assert!(self.piece.is_none(), "the last piece has ended");
        if self.writer.is_open() {
            self.end_block();
        }
        let head = Head::new(BlockKind::ImageEnd, self.totals.blocks, self.origin);
        self.totals.blocks += 1;
        let end = cold::encode(&ImageEnd { epoch, totals: self.totals });
        self.ready.push_back(block_of(head, &end, self.checksum));
        self.totals
    }

    /// The next block of the file, if one is ready.
    pub fn take_block(&mut self) -> Option<AlignedBuffer> {
        self.ready.pop_front()
    }

    /// How many blocks are ready.
    pub fn blocks_ready(&self) -> usize {
        self.ready.len()
    }

    /// Hands over memory of a block that was written, for another one.
    pub fn give(&mut self, buffer: AlignedBuffer) {
        self.spare.push(buffer);
    }

    /// What was written so far; the open piece does not count.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    fn open_piece(&mut self, fragment: usize, page: u32, first_slot: u16, slots: u16) {
        if !self.writer.is_open() {
            self.writer.give(self.spare.pop().unwrap_or_default());
            let head = Head::new(BlockKind::ImagePages, self.totals.blocks, self.origin);
            self.writer.begin(head, self.block_bytes);
        }
        let at = self.writer.payload_bytes();
        self.writer.space(PIECE_HEAD_BYTES + bitmap_bytes(slots)).fill(0);
        let ImageFragment { has_variable, .. } = self.fragments[fragment];
        let row_bytes = self.fragments[fragment].row_bytes();
        let next_slot = first_slot;
        self.piece = Some(Piece {
            fragment,
            page,
            first_slot,
            slots,
            rows: 0,
            next_slot,
            at,
            row_bytes,
            has_variable,
        });
    }

    /// Continues the piece in the next block, from a slot on, because its row of so many bytes does not fit this block.
    #[cold]
    fn split(&mut self, piece: Piece, slot: u16, row_bytes: usize) -> Piece {
        let end = piece.first_slot + piece.slots;
        assert!((piece.next_slot..end).contains(&slot), "rows are ascending, inside of the piece");
        let most = self.block_bytes - HEAD_BYTES - PIECE_HEAD_BYTES - bitmap_bytes(SLOTS_MAX);
        assert!(row_bytes <= most, "a row of {row_bytes} bytes does not fit a block");
        if piece.rows == 0 {
            self.piece = None;
            self.writer.truncate(piece.at);
            self.end_block();
            self.open_piece(piece.fragment, piece.page, piece.first_slot, piece.slots);
        } else {
            // The bitmap was made for more slots: what is behind its end moves up.
            let slots = slot - piece.first_slot;
            let bitmap_at = piece.at + PIECE_HEAD_BYTES;
            let (long, short) = (bitmap_bytes(piece.slots), bitmap_bytes(slots));
            let payload_bytes = self.writer.payload_bytes();
            self.writer.payload_mut().copy_within(bitmap_at + long..payload_bytes, bitmap_at + short);
            self.writer.truncate(payload_bytes - (long - short));
            self.piece = Some(Piece { slots, ..piece });
            self.end_piece();
            self.end_block();
            self.open_piece(piece.fragment, piece.page, slot, end - slot);
        }
        self.piece.expect("it was opened just now")
    }

    fn end_block(&mut self) {
        self.writer.seal(self.checksum);
        self.ready.push_back(self.writer.take());
        self.totals.blocks += 1;
    }
}

/// Bytes of the longest row that fits a block of so many bytes in any piece.
pub const fn row_bytes_max(block_bytes: usize) -> usize {
    let bitmap = SLOTS_MAX as usize / 8;
    block_bytes - HEAD_BYTES - PIECE_HEAD_BYTES - bitmap - size_of::<u64>() - VARIABLE_LENGTH_BYTES
}
