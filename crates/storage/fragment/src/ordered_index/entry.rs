//! One entry: which row has, in one of its versions, which key.
//!
//! ```text
//!   prefix  u64  first 8 bytes of the key as a big-endian number, zeros behind a shorter key
//!   row     u32  row id
//!   word    u32  bit 31      the key is complete: it has at most 8 bytes
//!                bit 30      the key is listed (see `listed_keys.rs`)
//!                bits 29..24 how many times the key was entered for this row, 1–63
//!                bits 23..0  of a complete key its length, of a listed key its number in the list,
//!                            of others the highest 24 bits of the key's hash
//! ```
//!
//! Prefix, row and word without the count are the *identity*: two entries with the same identity have the same key.

use vinga_base::RowId;
use vinga_base::hash::KeyHash;

const COMPLETE: u32 = 1 << 31;
const LISTED: u32 = 1 << 30;
const COUNT_SHIFT: u32 = 24;
const COUNT: u32 = 0x3f << COUNT_SHIFT;
const LOW: u32 = (1 << COUNT_SHIFT) - 1;
/// Bytes of a key that stand in the entry.
const PREFIX_BYTES: usize = 8;

/// How often one entry can count the same key of the same row; what is above takes another entry.
pub(super) const COUNT_MAX: u32 = COUNT >> COUNT_SHIFT;
/// Keys of one row that can be listed.
pub(super) const LISTED_MAX: u32 = LOW;

/// See the head of this file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub(super) prefix: u64,
    pub(super) row: RowId,
    pub(super) word: u32,
}

/// The first 8 bytes of a key as a number.
#[inline]
pub(super) fn prefix_of(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut bytes = [0; PREFIX_BYTES];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

impl Entry {
    /// The entry of a row that has this key, entered once and not listed.
    #[inline]
    pub fn new(key: &[u8], row: RowId) -> Self {
        let word = if key.len() <= PREFIX_BYTES {
            COMPLETE | key.len() as u32
        } else {
            (KeyHash::of(key).0 >> (64 - COUNT_SHIFT)) as u32
        };
        Entry { prefix: prefix_of(key), row, word: word | 1 << COUNT_SHIFT }
    }

    /// The row.
    #[inline]
    pub fn row(&self) -> RowId {
        self.row
    }

    /// The first 8 bytes of the key as a big-endian number, zeros behind a shorter key.
    #[inline]
    pub fn prefix(&self) -> u64 {
        self.prefix
    }

    /// Bytes of the key if it is complete: then they are the first of [`Entry::prefix`].
    #[inline]
    pub fn complete_bytes(&self) -> Option<usize> {
        (self.word & COMPLETE != 0).then_some((self.word & LOW) as usize)
    }

    /// Whether a key may be this entry's: it is, if the row has no two keys of which this is true.
    #[inline]
    pub(super) fn may_have(&self, key: &[u8]) -> bool {
        let other = Entry::new(key, self.row);
        (other.prefix, other.identity_word()) == (self.prefix, self.identity_word())
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

    #[inline]
    pub(super) fn count(&self) -> u32 {
        (self.word & COUNT) >> COUNT_SHIFT
    }

    #[inline]
    pub(super) fn with_count(self, count: u32) -> Self {
        debug_assert!((1..=COUNT_MAX).contains(&count));
        Entry { word: self.identity_word() | count << COUNT_SHIFT, ..self }
    }

    #[inline]
    fn identity_word(&self) -> u32 {
        self.word & !COUNT
    }

    /// Whether both have the same identity.
    #[inline]
    pub(super) fn is_same(&self, other: &Entry) -> bool {
        (self.prefix, self.row, self.identity_word()) == (other.prefix, other.row, other.identity_word())
    }

    /// A number in whose order entries stand that need no row to be compared. Incomplete keys with equal prefixes are
    /// behind the complete ones, in the order of their rows.
    #[inline]
    pub(super) fn rank(&self) -> u128 {
        let length = self.complete_bytes().unwrap_or(PREFIX_BYTES + 1);
        u128::from(self.prefix) << 64 | (length as u128) << 32 | u128::from(self.row.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_comes_out() {
        let short = Entry::new(b"abc", RowId(7));
        assert_eq!((short.prefix(), short.row()), (0x6162_6300_0000_0000, RowId(7)));
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
    }
}
