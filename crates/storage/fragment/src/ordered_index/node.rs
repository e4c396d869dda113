//! One node: some entries in their order and, in an inner node, the child that begins with each.
//!
//! ```text
//!   byte 0          u16  number of entries
//!   byte 2          u16  how many bytes the node skips: all its keys begin with the same so many ones
//!   byte 8          parts of keys, u64 each     (C places, C = (size − 8) / 16 in a leaf, (size − 8) / 20 in an inner node)
//!   byte 8 + 8 C    row ids, u32 each
//!   byte 8 + 12 C   words, u32 each
//!   byte 8 + 16 C   children, u32 each; only in an inner node
//! ```
//! All numbers are little-endian. A node that skips bytes has no complete keys. Parts stand beside each other because a
//! search reads hardly anything else.

use super::entry::Entry;
use core::borrow::{Borrow, BorrowMut};
use core::ops::Range;
use vinga_base::RowId;

const HEADER_BYTES: usize = 8;

/// Which kind of node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Level {
    Leaf,
    Inner,
}

impl Level {
    /// The first place whose entry means something.
    #[inline]
    pub(super) fn first(self) -> usize {
        match self {
            Level::Leaf => 0,
            Level::Inner => 1,
        }
    }

    /// Entries that a node of so many bytes has place for.
    #[inline]
    pub(super) const fn capacity(self, node_bytes: usize) -> usize {
        match self {
            Level::Leaf => (node_bytes - HEADER_BYTES) / 16,
            Level::Inner => (node_bytes - HEADER_BYTES) / 20,
        }
    }
}

/// A node's bytes: borrowed to be read or changed, or a copy.
pub(super) struct Node<B, const N: usize> {
    bytes: B,
    level: Level,
}

impl<B: Borrow<[u8; N]>, const N: usize> Node<B, N> {
    #[inline]
    pub(super) fn new(bytes: B, level: Level) -> Self {
        Node { bytes, level }
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8; N] {
        self.bytes.borrow()
    }

    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.level.capacity(N)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        let bytes = self.bytes.borrow();
        usize::from(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len() == self.capacity()
    }

    /// How many bytes the node skips.
    #[inline]
    pub(super) fn skip(&self) -> usize {
        let bytes = self.bytes.borrow();
        usize::from(u16::from_le_bytes([bytes[2], bytes[3]]))
    }

    /// The parts of all entries, little-endian.
    #[inline]
    pub(super) fn parts(&self) -> &[[u8; 8]] {
        let places = &self.bytes.borrow()[HEADER_BYTES..HEADER_BYTES + 8 * self.capacity()];
        &places.as_chunks().0[..self.len()]
    }

    /// The entry in a place. In an inner node the one in place 0 means nothing.
    #[inline]
    pub(super) fn entry(&self, place: usize) -> Entry {
        Entry {
            part: u64::from_le_bytes(self.parts()[place]),
            row: RowId(self.number(self.rows_at(), place)),
            word: self.number(self.words_at(), place),
        }
    }

    #[inline]
    pub(super) fn row(&self, place: usize) -> RowId {
        RowId(self.number(self.rows_at(), place))
    }

    /// The child in a place of an inner node.
    #[inline]
    pub(super) fn child(&self, place: usize) -> u32 {
        debug_assert!(self.level == Level::Inner && place < self.len());
        self.number(self.children_at(), place)
    }

    #[inline]
    fn rows_at(&self) -> usize {
        HEADER_BYTES + 8 * self.capacity()
    }

    #[inline]
    fn words_at(&self) -> usize {
        HEADER_BYTES + 12 * self.capacity()
    }

    #[inline]
    fn children_at(&self) -> usize {
        HEADER_BYTES + 16 * self.capacity()
    }

    #[inline]
    fn number(&self, array: usize, place: usize) -> u32 {
        let bytes = &self.bytes.borrow()[array + 4 * place..];
        u32::from_le_bytes(*bytes.first_chunk().expect("a place lies in the node"))
    }

    /// Where each array begins and how many bytes a place takes in it.
    #[inline]
    fn arrays(&self) -> impl Iterator<Item = (usize, usize)> + use<B, N> {
        let arrays = [(HEADER_BYTES, 8), (self.rows_at(), 4), (self.words_at(), 4), (self.children_at(), 4)];
        let count = match self.level {
            Level::Leaf => 3,
            Level::Inner => 4,
        };
        arrays.into_iter().take(count)
    }
}

impl<B: BorrowMut<[u8; N]>, const N: usize> Node<B, N> {
    /// Keeps the first entries only, or prepares places to be set.
    #[inline]
    pub(super) fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.capacity());
        self.bytes.borrow_mut()[..2].copy_from_slice(&(len as u16).to_le_bytes());
    }

    /// Sets how many bytes the node skips; the entries are the caller's business.
    #[inline]
    pub(super) fn set_skip(&mut self, skip: usize) {
        debug_assert!(skip <= super::skipping::SKIP_MAX);
        self.bytes.borrow_mut()[2..4].copy_from_slice(&(skip as u16).to_le_bytes());
    }

    /// Overwrites the entry in a place; the child stays.
    #[inline]
    pub(super) fn set_entry(&mut self, place: usize, entry: Entry) {
        debug_assert!(place < self.len());
        self.put(HEADER_BYTES + 8 * place, &entry.part.to_le_bytes());
        self.put(self.rows_at() + 4 * place, &entry.row.0.to_le_bytes());
        self.put(self.words_at() + 4 * place, &entry.word.to_le_bytes());
    }

    /// Puts an entry in front of the one in a place, or at the end; there is room. `child` is for inner nodes.
    #[inline]
    pub(super) fn insert(&mut self, place: usize, entry: Entry, child: u32) {
        let len = self.len();
        debug_assert!(place <= len && len < self.capacity());
        for (array, width) in self.arrays() {
            let from = array + place * width;
            self.bytes.borrow_mut().copy_within(from..array + len * width, from + width);
        }
        self.set_len(len + 1);
        self.set_entry(place, entry);
        if self.level == Level::Inner {
            self.put(self.children_at() + 4 * place, &child.to_le_bytes());
        }
    }

    /// Takes out the entry in a place, and its child.
    #[inline]
    pub(super) fn remove(&mut self, place: usize) {
        let len = self.len();
        debug_assert!(place < len);
        for (array, width) in self.arrays() {
            let from = array + place * width;
            self.bytes.borrow_mut().copy_within(from + width..array + len * width, from);
        }
        self.set_len(len - 1);
    }

    /// Appends entries of a node of the same kind that skips as many bytes, with their children.
    pub(super) fn append<C: Borrow<[u8; N]>>(&mut self, other: &Node<C, N>, places: Range<usize>) {
        debug_assert!(self.skip() == other.skip());
        debug_assert!(self.level == other.level && places.end <= other.len());
        let len = self.len();
        for (array, width) in self.arrays() {
            let source = array + places.start * width..array + places.end * width;
            self.put(array + len * width, &other.bytes.borrow()[source]);
        }
        self.set_len(len + places.len());
    }

    #[inline]
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const BYTES: usize = 128;

    fn contents<B: Borrow<[u8; BYTES]>>(node: &Node<B, BYTES>) -> Vec<(u64, u32, u32)> {
        (0..node.len())
            .map(|place| {
                let Entry { part, row, .. } = node.entry(place);
                assert_eq!(row, node.row(place));
                let child = if node.level == Level::Inner { node.child(place) } else { 0 };
                (part, row.0, child)
            })
            .collect()
    }

    #[test]
    fn entries_stay_together_with_their_children() {
        for level in [Level::Leaf, Level::Inner] {
            let entry = |number: u32| Entry::new(&u64::from(number).to_be_bytes(), RowId(number + 1));
            let expected = |number: u32| {
                (u64::from(number), number + 1, if level == Level::Inner { number + 2 } else { 0 })
            };
            let mut node = Node::<_, BYTES>::new([0; BYTES], level);
            assert_eq!(node.capacity(), if level == Level::Leaf { 7 } else { 6 });
            for (number, place) in [(5, 0), (1, 0), (3, 1), (9, 3), (7, 3), (0, 0)] {
                node.insert(place, entry(number), number + 2);
            }
            assert_eq!(contents(&node), [0, 1, 3, 5, 7, 9].map(expected));
            assert_eq!(node.is_full(), level == Level::Inner);
            node.remove(0);
            node.remove(4);
            assert_eq!(contents(&node), [1, 3, 5, 7].map(expected));
            let mut other = Node::<_, BYTES>::new([0; BYTES], level);
            other.append(&node, 1..3);
            other.append(&node, 0..1);
            assert_eq!(contents(&other), [3, 5, 1].map(expected));
            other.set_entry(1, entry(100));
            assert_eq!(other.entry(1), entry(100));
        }
    }
}
