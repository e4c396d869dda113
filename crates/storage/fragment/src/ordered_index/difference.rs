//! Where two entries differ: how entries of sorted runs are compared without reading their rows again and again.
//!
//! Of an entry it is kept where it first differs from another one that is not behind it, its *base*, and what it has
//! there. Of two entries with the same base, the one that agrees with it further is less; if both leave it at the same
//! place, the one that has less there is. Only if they have the same there as well, they are compared, from the next
//! place on. The place at which the greater one differs from the lesser one is known afterwards in any case, and is
//! the same as before unless the two had to be compared: so the lesser one can be the greater one's new base.
//!
//! Places of an entry, in this order: the first 8 bytes of its key; the length of a complete key, or 9 (a complete key
//! is less than an incomplete one with the same 8 bytes); each further 8 bytes, padded with zeros; the length of the
//! whole key (of two keys that are the same when padded, the shorter one is less); the row id. Only the bytes behind the
//! first 8 are read from rows.
//!
//! (The method is known as offset-value coding. Each place of a key is compared about once in a whole sort, however long
//! the bytes are that keys have in common.)

use super::cut::KeySource;
use super::entry::{Entry, PART_BYTES, part_of};
use alloc::vec::Vec;
use core::cmp::Ordering;
use vinga_base::page_pool::PagePool;

/// The place of the first 8 bytes.
const PART: u32 = 0;
/// The place of a complete key's length.
const COMPLETE_LENGTH: u32 = 1;
/// The place of the second 8 bytes.
const SECOND_PART: u32 = 2;
/// Behind all bytes of the longest key.
const LENGTH: u32 = 1 << 30;
const ROW: u32 = LENGTH + 1;
/// Entries that do not differ.
const NOWHERE: u32 = LENGTH + 2;

/// Where an entry differs from its base, and what it has there. Of two with the same base, the lesser entry has the lesser
/// difference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Difference {
    /// Places from where they differ to the end.
    places_left: u32,
    value: u64,
}

impl Difference {
    /// Of what is behind all entries.
    pub(super) const END: Difference = Difference { places_left: u32::MAX, value: 0 };

    const NONE: Difference = Difference { places_left: 0, value: 0 };

    fn at(place: u32, value: u64) -> Self {
        Difference { places_left: NOWHERE - place, value }
    }

    /// From a base that is before all entries.
    pub(super) fn from_nothing(entry: &Entry) -> Self {
        Self::at(PART, entry.part)
    }
}

/// Compares entries of rows that have one version each.
#[derive(Default)]
pub(super) struct Comparer {
    left: Vec<u8>,
    right: Vec<u8>,
}

impl Comparer {
    /// How two entries compare, and the difference of the greater one from the other.
    pub(super) fn compare<S: KeySource>(
        &mut self,
        pool: &PagePool,
        source: &mut S,
        left: &Entry,
        right: &Entry,
    ) -> (Ordering, Difference) {
        self.compare_from(pool, source, left, right, PART)
    }

    /// The same for two entries with the same base and the same difference from it.
    pub(super) fn compare_further<S: KeySource>(
        &mut self,
        pool: &PagePool,
        source: &mut S,
        left: &Entry,
        right: &Entry,
        same: Difference,
    ) -> (Ordering, Difference) {
        self.compare_from(pool, source, left, right, NOWHERE - same.places_left + 1)
    }

    fn compare_from<S: KeySource>(
        &mut self,
        pool: &PagePool,
        source: &mut S,
        left: &Entry,
        right: &Entry,
        from: u32,
    ) -> (Ordering, Difference) {
        let differ = |place: u32, left: u64, right: u64| {
            (left != right).then(|| (left.cmp(&right), Difference::at(place, left.max(right))))
        };
        let complete_length = |entry: &Entry| entry.complete_bytes().unwrap_or(PART_BYTES + 1) as u64;
        let mut found = None;
        if from <= PART {
            found = differ(PART, left.part, right.part);
        }
        if from <= COMPLETE_LENGTH {
            found = found.or_else(|| differ(COMPLETE_LENGTH, complete_length(left), complete_length(right)));
        }
        if found.is_none() && from <= LENGTH && left.complete_bytes().is_none() {
            read_key(pool, source, left, &mut self.left);
            read_key(pool, source, right, &mut self.right);
            let (left, right) = (&self.left[..], &self.right[..]);
            let longest = left.len().max(right.len()) as u32;
            // The place behind the last bytes.
            let end = SECOND_PART + (longest - 1) / PART_BYTES as u32;
            found = (from.max(SECOND_PART)..end)
                .find_map(|place| {
                    let at = (place - SECOND_PART + 1) as usize * PART_BYTES;
                    differ(place, part_of(left, at), part_of(right, at))
                })
                .or_else(|| differ(LENGTH, left.len() as u64, right.len() as u64));
        }
        if from <= ROW {
            found = found.or_else(|| differ(ROW, left.row.0.into(), right.row.0.into()));
        }
        found.unwrap_or((Ordering::Equal, Difference::NONE))
    }
}

/// The key of an entry's row, which has one version.
fn read_key<S: KeySource>(pool: &PagePool, source: &mut S, entry: &Entry, key: &mut Vec<u8>) {
    key.clear();
    source.keys(pool, entry.row, |found| {
        debug_assert!(entry.may_have(found), "each row has one key");
        if key.is_empty() {
            key.extend_from_slice(found);
        }
    });
    assert!(key.len() > PART_BYTES, "a row keeps its key");
}
