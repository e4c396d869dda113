//! One cache line of a hash index.
//!
//! ```text
//!   byte 0   12 tags, u8 each; 0 = this place and all after it are free
//!   byte 12  u32, little-endian: number of the next overflow line plus one; 0 = none
//!   byte 16  12 row ids, u32 little-endian each, in the order of the tags
//! ```

use core::borrow::{Borrow, BorrowMut};
use vinga_base::RowId;
use vinga_base::hash::KeyHash;

/// Bytes of a line.
pub(super) const LINE_BYTES: usize = 64;
/// Entries of a line, at most.
pub(super) const ENTRIES: usize = 12;

const LINK_OFFSET: usize = ENTRIES;
const ROWS_OFFSET: usize = LINK_OFFSET + 4;

/// The tag of a hash: the hash's own, but never 0.
#[inline]
pub(super) fn tag_of(hash: KeyHash) -> u8 {
    hash.tag().max(1)
}

/// A row id and the tag of its hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) tag: u8,
    pub(super) row: RowId,
}

/// A line's bytes: borrowed to be read or changed, or a copy.
#[derive(Clone, Copy)]
pub(super) struct Line<B>(pub(super) B);

impl Line<[u8; LINE_BYTES]> {
    /// A line without entries and link.
    pub(super) const EMPTY: Self = Line([0; LINE_BYTES]);
}

impl<B: Borrow<[u8; LINE_BYTES]>> Line<B> {
    /// The places whose tag is `tag`, as a bit set.
    #[inline]
    pub(super) fn matches(&self, tag: u8) -> u32 {
        // All bytes of a word are compared at once: the top bit of a byte of `differs` is clear exactly where that byte
        // of `x` is zero. The multiplication gathers the eight top bits in the highest byte.
        let equal = |word: u64| {
            const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
            let x = word ^ (u64::from(tag) * 0x0101_0101_0101_0101);
            let differs = ((x & LOW) + LOW) | x | LOW;
            ((!differs >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
        };
        let bytes = self.0.borrow();
        let low = u64::from_le_bytes(*bytes.first_chunk().expect("a line has 64 bytes"));
        equal(low) | ((equal(u64::from(self.u32_at(8))) & 0xf) << 8)
    }

    /// Number of entries.
    #[inline]
    pub(super) fn len(&self) -> usize {
        ENTRIES - self.matches(0).count_ones() as usize
    }

    /// Whether there is no free place.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.0.borrow()[ENTRIES - 1] != 0
    }

    /// Whether all places are free.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow()[0] == 0
    }

    /// The entry in a place.
    #[inline]
    pub(super) fn entry(&self, place: usize) -> Entry {
        Entry { tag: self.0.borrow()[..ENTRIES][place], row: self.row(place) }
    }

    /// The row id in a place.
    #[inline]
    pub(super) fn row(&self, place: usize) -> RowId {
        assert!(place < ENTRIES);
        RowId(self.u32_at(ROWS_OFFSET + 4 * place))
    }

    /// All entries.
    #[inline]
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..self.len()).map(|place| self.entry(place))
    }

    /// The place of an entry.
    pub(super) fn find(&self, entry: Entry) -> Option<usize> {
        let matches = self.matches(entry.tag);
        (0..ENTRIES).find(|&place| matches & (1 << place) != 0 && self.row(place) == entry.row)
    }

    /// The number of the overflow line that follows.
    #[inline]
    pub(super) fn link(&self) -> Option<u32> {
        self.u32_at(LINK_OFFSET).checked_sub(1)
    }

    #[inline]
    fn u32_at(&self, offset: usize) -> u32 {
        u32::from_le_bytes(*self.0.borrow()[offset..].first_chunk().expect("the number lies within the line"))
    }
}

impl<B: BorrowMut<[u8; LINE_BYTES]>> Line<B> {
    /// Sets the overflow line that follows.
    #[inline]
    pub(super) fn set_link(&mut self, link: Option<u32>) {
        self.put(LINK_OFFSET, link.map_or(0, |number| number + 1));
    }

    /// Adds an entry; false if the line is full.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry) -> bool {
        let place = self.len();
        if place == ENTRIES {
            return false;
        }
        self.set(place, entry);
        true
    }

    /// Removes the last entry of a line that has one.
    #[inline]
    pub(super) fn pop(&mut self) -> Entry {
        let place = self.len().checked_sub(1).expect("only lines with entries are popped");
        let entry = self.entry(place);
        self.0.borrow_mut()[place] = 0;
        entry
    }

    /// Overwrites the place of an entry.
    #[inline]
    pub(super) fn set(&mut self, place: usize, entry: Entry) {
        self.0.borrow_mut()[..ENTRIES][place] = entry.tag;
        self.put(ROWS_OFFSET + 4 * place, entry.row.0);
    }

    #[inline]
    fn put(&mut self, offset: usize, number: u32) {
        self.0.borrow_mut()[offset..offset + 4].copy_from_slice(&number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: u8, row: u32) -> Entry {
        Entry { tag, row: RowId(row) }
    }

    #[test]
    fn matches_are_exact() {
        let mut line = Line::EMPTY;
        assert!(line.is_empty());
        let tags = [5, 4, 5, 6, 0x85, 5, 1, 0xff, 0x80, 5, 4];
        for (row, tag) in tags.into_iter().enumerate() {
            assert!(line.push(entry(tag, row as u32)));
        }
        for tag in 1..=255 {
            let expected = (0..tags.len()).filter(|&i| tags[i] == tag).map(|i| 1 << i).sum::<u32>();
            assert_eq!(line.matches(tag), expected);
        }
        assert_eq!((line.len(), line.is_full(), line.is_empty()), (11, false, false));
    }

    #[test]
    fn a_line_is_a_stack_with_a_link() {
        let mut line = Line::EMPTY;
        for row in 0..ENTRIES as u32 {
            assert!(line.push(entry(7, row * 0x0101_0101)));
        }
        assert!(line.is_full() && !line.push(entry(7, 99)));
        assert_eq!(line.link(), None);
        line.set_link(Some(0));
        assert_eq!(line.link(), Some(0));
        assert_eq!(line.find(entry(7, 3 * 0x0101_0101)), Some(3));
        assert_eq!(line.find(entry(8, 3 * 0x0101_0101)), None);
        line.set(3, entry(9, 1));
        assert_eq!(line.find(entry(9, 1)), Some(3));
        assert_eq!(line.pop(), entry(7, 11 * 0x0101_0101));
        assert_eq!(line.entries().count(), 11);
        line.set_link(None);
        assert_eq!((line.link(), line.entry(0)), (None, entry(7, 0)));
    }
}
