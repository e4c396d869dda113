//! One page of rows for scans, checkpoints and copies.

use crate::row::{OperationRef, Row, SLOTS_MAX, Shape};
use vinga_base::Epoch;
use vinga_base::page_pool::PAGE_BYTES;

/// Words of a bitmap over the slots of a page, at most.
pub const SLOT_WORDS_MAX: usize = SLOTS_MAX / 64;

/// All slots of a page, for code that reads all rows: scans, checkpoints, copies.
#[derive(Clone, Copy)]
pub struct PageView<'a> {
    bytes: &'a [u8; PAGE_BYTES],
    live: &'a [u64],
    shape: Shape,
}

impl<'a> PageView<'a> {
    pub(crate) fn new(bytes: &'a [u8; PAGE_BYTES], live: &'a [u64], shape: Shape) -> Self {
        PageView { bytes, live, shape }
    }

    /// Number of slots.
    #[inline]
    pub fn slots(&self) -> usize {
        self.shape.slots
    }

    /// Bytes from slot to slot.
    #[inline]
    pub fn stride(&self) -> usize {
        self.shape.stride
    }

    /// The whole page. The fixed part of slot `s` begins at byte `fixed_at() + s * stride()`.
    #[inline]
    pub fn bytes(&self) -> &'a [u8; PAGE_BYTES] {
        self.bytes
    }

    /// Where the fixed part of slot 0 begins.
    #[inline]
    pub fn fixed_at(&self) -> usize {
        self.shape.fixed_at
    }

    /// Which slots hold a row: bit `s % 64` of word `s / 64`, at most [`SLOT_WORDS_MAX`] words.
    #[inline]
    pub fn live(&self) -> &'a [u64] {
        self.live
    }

    /// The slots that hold a row, ascending.
    #[inline]
    pub fn live_slots(&self) -> impl Iterator<Item = usize> + use<'a> {
        self.live.iter().enumerate().flat_map(|(word, &bits)| Ones(bits).map(move |bit| word * 64 + bit))
    }

    /// The first slot at or after `from` that holds a row.
    #[inline]
    pub fn next_live_slot(&self, from: u32) -> Option<u32> {
        let first = from / 64;
        let behind = self.live.iter().enumerate().skip(first as usize);
        behind
            .map(|(word, &bits)| {
                (word as u32, if word as u32 == first { bits & !0 << (from % 64) } else { bits })
            })
            .find(|&(_, bits)| bits != 0)
            .map(|(word, bits)| word * 64 + bits.trailing_zeros())
    }

    /// The row in a slot that holds one.
    #[inline]
    pub fn row(&self, slot: usize) -> Row<'a> {
        debug_assert!(self.live[slot / 64] & 1 << (slot % 64) != 0, "slot {slot} holds no row");
        self.shape.row(self.bytes, slot)
    }

    /// Which slots hold a row with an operation reference, in the form of [`live`](Self::live). Only as many words of
    /// `busy` are written as `live` has.
    #[inline]
    pub fn read_busy(&self, busy: &mut [u64; SLOT_WORDS_MAX]) {
        for ((group, busy), live) in self.slots_by_word().zip(busy).zip(self.live) {
            let mut bits = 0;
            for (i, slot) in group.enumerate() {
                bits |= u64::from(slot.operation() != OperationRef::NONE) << i;
            }
            *busy = bits & live;
        }
    }

    /// The latest epoch of any row, 0 if there is none.
    #[inline]
    pub fn newest_epoch(&self) -> Epoch {
        let mut newest = 0;
        for (group, live) in self.slots_by_word().zip(self.live) {
            for (i, slot) in group.enumerate() {
                // All ones for a live row, so that the bytes of a free slot count as 0.
                let mask = 0u64.wrapping_sub(live >> i & 1);
                newest = newest.max(slot.epoch().0 & mask);
            }
        }
        Epoch(newest)
    }

    /// All slots, live or not, in groups of the number of bits in a word of a bitmap.
    #[inline]
    fn slots_by_word(&self) -> impl Iterator<Item = impl Iterator<Item = Row<'a>> + use<'a>> + use<'a> {
        let shape = self.shape;
        self.bytes[..shape.slots * shape.stride]
            .chunks(64 * shape.stride)
            .map(move |group| group.chunks_exact(shape.stride).map(move |slot| shape.row_in(slot)))
    }
}

/// The positions of the ones in a word, ascending.
struct Ones(u64);

impl Iterator for Ones {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (bit < 64).then_some(bit)
    }
}
