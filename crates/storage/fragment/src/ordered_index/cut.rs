//! Positions between entries, and how they compare with entries: the only comparison in the index.
//!
//! Entries are ordered by key, compared as bytes, then by row id. A [`Cut`] lies between two of them: it has a key of
//! its own, which need not be in the index, and a border among the rows that have exactly this key. A range is the
//! entries between two cuts.
//!
//! In a node all keys begin with the same bytes, which the node skips. While a search descends, it keeps track of how
//! many bytes the key of the cut has in common with all entries that can still be found ([`Shared`]): with the two
//! separators between which the path leads, and so with all entries between them. If a node skips more, the row of one
//! entry is read to determine whether the cut is before, behind or among its entries. Then most comparisons are decided
//! by the 8 bytes that are stored in the entry. If those are equal, a complete key is compared by its length (of two
//! keys that agree in all bytes of the shorter one, the shorter one is less); a listed one is in the list; for all
//! others the [`KeySource`] reads the row.

use super::entry::{Entry, PART_BYTES, part_of};
use super::listed_keys::ListedKeys;
use super::node::Node;
use core::borrow::Borrow;
use core::cmp::Ordering;
use vinga_base::RowId;
use vinga_base::page_pool::PagePool;

/// Reads the keys of rows.
pub trait KeySource {
    /// Calls `each` with the key of every version of a row that has an entry in the index: the committed one, the
    /// after-images of open operations, a replaced one that is still visible. Order and repetition do not matter.
    ///
    /// The set must be exact: a key without an entry must not be among them, because it could be mistaken for one that
    /// has the same hash. Only a key that is being inserted or removed may be present or not.
    fn keys(&mut self, pool: &PagePool, row: RowId, each: impl FnMut(&[u8]));

    /// Starts to load the memory of a row that [`KeySource::keys`], or the user of a cursor, will read.
    #[inline]
    fn prefetch(&self, _pool: &PagePool, _row: RowId) {}

    /// The same for the memory that the row refers to, some time after the row itself was prefetched.
    #[inline]
    fn prefetch_rest(&self, _pool: &PagePool, _row: RowId) {}
}

/// A position between two entries: a key and a border among the rows that have this key.
#[derive(Clone, Copy, Debug)]
pub struct Cut<'a> {
    key: &'a [u8],
    /// Its first 8 bytes.
    part: u64,
    /// Entries with this key are before the cut if their row id is less.
    row: u64,
}

impl<'a> Cut<'a> {
    /// Before all entries.
    pub const START: Cut<'static> = Cut { key: &[], part: 0, row: 0 };

    /// Before all entries with this key.
    #[inline]
    pub fn before_key(key: &'a [u8]) -> Self {
        Cut { key, part: part_of(key, 0), row: 0 }
    }

    /// Behind all entries with this key (but not those of which it is a prefix).
    #[inline]
    pub fn after_key(key: &'a [u8]) -> Self {
        Cut { row: u64::MAX, ..Self::before_key(key) }
    }

    /// Before the entry of this row with this key.
    #[inline]
    pub fn before(key: &'a [u8], row: RowId) -> Self {
        Cut { row: row.0.into(), ..Self::before_key(key) }
    }

    /// Behind the entry of this row with this key.
    #[inline]
    pub fn after(key: &'a [u8], row: RowId) -> Self {
        Cut { row: u64::from(row.0) + 1, ..Self::before_key(key) }
    }

    /// Whether no entry can be before the cut.
    #[inline]
    pub(super) fn is_start(&self) -> bool {
        self.key.is_empty() && self.row == 0
    }

    /// The part of the key in a node that skips this many bytes.
    #[inline]
    fn part(&self, skip: usize) -> u64 {
        if skip == 0 { self.part } else { part_of(self.key, skip) }
    }
}

/// What a search has learned on its way down about shared bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shared {
    /// Bytes that the key of the cut shares with the separator before it and with the one behind it, at least.
    low: usize,
    high: usize,
    /// Bytes that it shares with all entries of the node that was searched last, if the node skips more than that.
    outside: Option<usize>,
}

impl Shared {
    /// Whether the key of the cut begins with the bytes that the node searched last skips.
    #[inline]
    pub(super) fn is_within(&self) -> bool {
        self.outside.is_none()
    }

    /// Notes that in an inner node the path leads between the separators at `place` and before it.
    #[inline]
    pub(super) fn narrow<B: Borrow<[u8; N]>, const N: usize>(
        &mut self,
        node: &Node<B, N>,
        place: usize,
        cut: &Cut<'_>,
    ) {
        let (skip, part, outside) = (node.skip(), cut.part(node.skip()), self.outside);
        let shared_with = |place: usize| {
            let other = u64::from_le_bytes(node.parts()[place]);
            // The end of a key may be padded with zeros.
            let bits = (part ^ other).leading_zeros().min(64 - other.trailing_zeros().min(64));
            outside.unwrap_or(skip + bits as usize / 8).min(cut.key.len())
        };
        if place > 1 {
            self.low = self.low.max(shared_with(place - 1));
        }
        if place < node.len() {
            self.high = self.high.max(shared_with(place));
        }
    }
}

/// Number of bytes that both have in common at the beginning.
#[inline]
pub(super) fn shared_bytes(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// Finds the keys of entries and compares them.
pub(super) struct Resolver<'a, S> {
    pub(super) pool: &'a PagePool,
    pub(super) source: &'a mut S,
    pub(super) listed: &'a ListedKeys,
    /// The key that is being inserted or removed: the row's version with it may not exist.
    pub(super) moving: Option<(RowId, &'a [u8])>,
}

impl<S: KeySource> Resolver<'_, S> {
    /// How many entries of a node are before a cut; those before place `from` are known to be.
    #[inline]
    pub(super) fn search<B: Borrow<[u8; N]>, const N: usize>(
        &mut self,
        node: &Node<B, N>,
        from: usize,
        cut: &Cut<'_>,
        shared: &mut Shared,
    ) -> usize {
        shared.outside = None;
        let skip = node.skip();
        if skip > shared.low.min(shared.high) && from < node.len() {
            let (bytes, order) =
                self.with_key(&node.entry(from), |key| (shared_bytes(key, cut.key), key.cmp(cut.key)));
            if bytes < skip {
                shared.outside = Some(bytes);
                return if order.is_lt() { node.len() } else { from };
            }
        }
        let part = cut.part(skip);
        let parts = &node.parts()[from.min(node.len())..];
        let less = parts.partition_point(|other| u64::from_le_bytes(*other) < part);
        let mut low = from + less;
        if parts.get(less).is_none_or(|other| u64::from_le_bytes(*other) != part) {
            return low;
        }
        let equal = parts[less..].partition_point(|other| u64::from_le_bytes(*other) == part);
        let mut high = low + equal;
        while low < high {
            let middle = low.midpoint(high);
            if self.is_before(&node.entry(middle), cut) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Whether an entry is before a cut that has the same part.
    fn is_before(&mut self, entry: &Entry, cut: &Cut<'_>) -> bool {
        match self.compare(entry, cut.key) {
            Ordering::Less => true,
            Ordering::Equal => u64::from(entry.row.0) < cut.row,
            Ordering::Greater => false,
        }
    }

    /// How the key of an entry compares with one that has the same part.
    fn compare(&mut self, entry: &Entry, key: &[u8]) -> Ordering {
        match entry.complete_bytes() {
            Some(bytes) => bytes.cmp(&key.len()),
            // An incomplete key is longer.
            None if key.len() <= PART_BYTES => Ordering::Greater,
            None => self.with_key(entry, |other| other.cmp(key)),
        }
    }

    /// Whether this is the key of an entry.
    pub(super) fn has_key(&mut self, entry: &Entry, key: &[u8]) -> bool {
        match entry.complete_bytes() {
            Some(bytes) => bytes == key.len() && entry.part == part_of(key, 0),
            None if entry.listed().is_none() && !entry.may_have(key) => false,
            None => self.with_key(entry, |other| other == key),
        }
    }

    /// Calls `each` with the key of an entry.
    #[inline]
    pub(super) fn with_key<R>(&mut self, entry: &Entry, mut each: impl FnMut(&[u8]) -> R) -> R {
        if let Some((key, bytes)) = entry.complete_key() {
            return each(&key[..bytes]);
        }
        if let Some(number) = entry.listed() {
            return each(self.listed.key(entry.row, number));
        }
        let Resolver { pool, source, listed, moving } = self;
        let moving = moving.filter(|moving| moving.0 == entry.row).map(|moving| moving.1);
        let mut found = None;
        source.keys(pool, entry.row, |key| {
            // If there is a key with this hash other than the one that is being inserted or removed, that is the
            // entry's key.
            let is_candidate = found.is_none() && entry.may_have(key) && moving != Some(key);
            if is_candidate && !listed.holds(entry.row, key) {
                found = Some(each(key));
            }
        });
        found.unwrap_or_else(|| {
            let key = moving.filter(|key| entry.may_have(key));
            each(key.unwrap_or_else(|| panic!("{entry:?} has no key in its row")))
        })
    }

    /// Whether a row has another key that an entry for this key could be mistaken for.
    pub(super) fn is_ambiguous(&mut self, entry: &Entry, key: &[u8]) -> bool {
        let Resolver { pool, source, listed, .. } = self;
        let mut found = false;
        source.keys(pool, entry.row, |other| {
            found |= entry.may_have(other) && other != key && !listed.holds(entry.row, other);
        });
        found
    }
}
