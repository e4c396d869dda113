//! One entry: a row and a key that it has in one of its versions.
//!
//! ```text
//!   part    u64  8 bytes of the key as a big-endian number, padded with zeros: the first ones after those
//!                that its node skips
//!   row     u32  row id
//!   word    u32  bit 31      the key is complete: it has at most 8 bytes, and its node skips none
//!                bit 30      the key is listed (see `listed_keys.rs`)
//!                bits 29..24 how many times the key was inserted for this row, 1–63
//!                bits 23..0  of a complete key its length, of a listed key its number in the list,
//!                            of others the highest 24 bits of the key's hash
//! ```
//!
//! Row, word without the count and, of a complete key, part are the *identity*: two entries with the same identity have
//! the same key.

use vinga_base::RowId;
use vinga_base::hash::KeyHash;

const COMPLETE: u32 = 1 << 31;
const LISTED: u32 = 1 << 30;
const COUNT_SHIFT: u32 = 24;
const COUNT: u32 = 0x3f << COUNT_SHIFT;
const LOW: u32 = (1 << COUNT_SHIFT) - 1;
/// Bytes of a key that are stored in an entry.
pub(super) const PART_BYTES: usize = 8;

/// How often one entry can count the same key of the same row; more need another entry.
pub(super) const COUNT_MAX: u32 = COUNT >> COUNT_SHIFT;
/// Keys of one row that can be listed.
pub(super) const LISTED_MAX: u32 = LOW;

/// An entry of a node; the layout is documented at the beginning of this module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub(super) part: u64,
    pub(super) row: RowId,
    pub(super) word: u32,
}

/// The 8 bytes of a key after the first `skip` ones as a number.
#[inline]
pub(super) fn part_of(key: &[u8], skip: usize) -> u64 {
    let key = key.get(skip..).unwrap_or_default();
    match key.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut bytes = [0; PART_BYTES];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

impl Entry {
    /// The entry of a row with this key, inserted once, not listed, in a node that skips nothing.
    #[inline]
    pub fn new(key: &[u8], row: RowId) -> Self {
        let word = if key.len() <= PART_BYTES {
            COMPLETE | key.len() as u32
        } else {
            (KeyHash::of(key).0 >> (64 - COUNT_SHIFT)) as u32
        };
        Entry { part: part_of(key, 0), row, word: word | 1 << COUNT_SHIFT }
    }

    /// The row.
    #[inline]
    pub fn row(&self) -> RowId {
        self.row
    }

    /// The key if it is complete: 8 bytes, and how many of them belong to it.
    #[inline]
    pub fn complete_key(&self) -> Option<([u8; PART_BYTES], usize)> {
        self.complete_bytes().map(|bytes| (self.part.to_be_bytes(), bytes))
    }

    /// The length of the key in bytes if it is complete.
    #[inline]
    pub(super) fn complete_bytes(&self) -> Option<usize> {
        (self.word & COMPLETE != 0).then_some((self.word & LOW) as usize)
    }

    /// Whether a key may be that of this entry, which is neither complete nor listed: it is, if no other key of the row
    /// also satisfies this.
    #[inline]
    pub(super) fn may_have(&self, key: &[u8]) -> bool {
        Entry::new(key, self.row).identity_word() == self.identity_word()
    }

    /// The same entry in a node that skips this many bytes.
    #[inline]
    pub(super) fn in_node(self, key: &[u8], skip: usize) -> Self {
        debug_assert!(skip == 0 || self.complete_bytes().is_none());
        Entry { part: part_of(key, skip), ..self }
    }

    /// The number of a listed key.
    #[inline]
    pub(super) fn listed(&self) -> Option<u32> {
        (self.word & LISTED != 0).then_some(self.word & LOW)
    }

    /// The entry of the same row with a key that is listed under this number.
    pub(super) fn with_listed(self, number: u32) -> Self {
        debug_assert!(self.word & COMPLETE == 0 && number <= LOW);
        Entry { word: self.word & COUNT | LISTED | number, ..self }
    }

    /// How many times its key was inserted for its row; more than 63 need an entry of their own.
    #[inline]
    pub fn count(&self) -> u32 {
        (self.word & COUNT) >> COUNT_SHIFT
    }

    #[inline]
    pub(super) fn with_count(self, count: u32) -> Self {
        debug_assert!((1..=COUNT_MAX).contains(&count));
        self.with_count_bits(count)
    }

    /// The entry with another number in place of its count.
    #[inline]
    pub(super) fn with_count_bits(self, number: u32) -> Self {
        debug_assert!(number <= COUNT_MAX);
        Entry { word: self.identity_word() | number << COUNT_SHIFT, ..self }
    }

    #[inline]
    fn identity_word(&self) -> u32 {
        self.word & !COUNT
    }

    /// Whether both have the same identity.
    #[inline]
    pub(super) fn is_same(&self, other: &Entry) -> bool {
        (self.row, self.identity_word()) == (other.row, other.identity_word())
            && (self.part == other.part || self.complete_bytes().is_none())
    }

    /// A number with the order of entries that can be compared without their rows. Incomplete keys with equal parts are
    /// behind the complete ones, in the order of their rows.
    #[inline]
    pub(super) fn rank(&self) -> u128 {
        let length = self.complete_bytes().unwrap_or(PART_BYTES + 1);
        u128::from(self.part) << 64 | (length as u128) << 32 | u128::from(self.row.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_comes_out() {
        let short = Entry::new(b"abc", RowId(7));
        assert_eq!((short.complete_key(), short.row()), (Some((*b"abc\0\0\0\0\0", 3)), RowId(7)));
        assert_eq!((short.complete_bytes(), short.count(), short.listed()), (Some(3), 1, None));
        assert_eq!(Entry::new(&[1; 8], RowId(7)).complete_bytes(), Some(8));
        let long = Entry::new(b"abcdefghi", RowId(7));
        assert_eq!((long.complete_bytes(), long.count(), long.listed()), (None, 1, None));
        assert!(long.may_have(b"abcdefghi") && !long.may_have(b"abcdefghj") && !long.may_have(b"abcdefgh"));
        let counted = long.with_count(COUNT_MAX);
        assert!(counted.is_same(&long) && counted != long);
        let listed = counted.with_listed(3);
        assert_eq!((listed.listed(), listed.count(), listed.complete_bytes()), (Some(3), COUNT_MAX, None));
        assert!(!listed.is_same(&long));
        let elsewhere = long.in_node(b"abcdefghi", 4);
        assert_eq!(elsewhere.part.to_be_bytes(), *b"efghi\0\0\0");
        assert!(elsewhere.is_same(&long));
        assert!(!Entry::new(b"a", RowId(7)).is_same(&Entry::new(b"b", RowId(7))));
    }
}
