//! Places between entries, and how an entry stands to one: the only comparison in the index.
//!
//! Entries are ordered by key, compared as bytes, then by row id. A [`Cut`] lies between two of them: it has a key of
//! its own, which need not be in the index, and a border among the rows that have this very key. A range is what lies
//! between two cuts.
//!
//! Most comparisons are decided by the first 8 bytes. If those are equal, a complete key is compared by its length
//! (of two keys that agree in all bytes of the shorter one, the shorter one is less); a listed one is in the list; for
//! all others the [`KeySource`] reads the row.

use super::entry::{Entry, prefix_of};
use super::listed_keys::ListedKeys;
use super::node::Node;
use core::borrow::Borrow;
use core::cmp::Ordering;
use vinga_base::RowId;
use vinga_base::page_pool::PagePool;

/// Whoever knows the keys of rows.
pub trait KeySource {
    /// Calls `each` with the key of every version of a row that has an entry in the index: the committed one, the
    /// after-images of open operations, a replaced one that is still shown. Order and repetition do not matter.
    ///
    /// The set must be exact: a key without an entry must not be among them, because it could be taken for one that
    /// has the same hash. Only while a key is inserted or removed it may be there or not.
    fn keys(&mut self, pool: &PagePool, row: RowId, each: impl FnMut(&[u8]));

    /// Starts to load what [`KeySource::keys`], or whoever follows a cursor, will read of a row.
    #[inline]
    fn prefetch(&self, _pool: &PagePool, _row: RowId) {}
}

/// A place between two entries. See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Cut<'a> {
    key: &'a [u8],
    prefix: u64,
    /// Entries with this key are before the cut if their row id is less.
    row: u64,
}

impl<'a> Cut<'a> {
    /// Before all entries.
    pub const START: Cut<'static> = Cut { key: &[], prefix: 0, row: 0 };

    /// Before all entries with this key.
    #[inline]
    pub fn before_key(key: &'a [u8]) -> Self {
        Cut { key, prefix: prefix_of(key), row: 0 }
    }

    /// Behind all entries with this key (not with those of which it is the beginning).
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

    #[inline]
    pub(super) fn prefix(&self) -> u64 {
        self.prefix
    }
}

/// Compares entries with keys.
pub(super) struct Resolver<'a, S> {
    pub(super) pool: &'a PagePool,
    pub(super) source: &'a mut S,
    pub(super) listed: &'a ListedKeys,
    /// The row from which a key is being removed: its version may be gone.
    pub(super) removed: Option<RowId>,
}

impl<S: KeySource> Resolver<'_, S> {
    /// How many entries of a node are before a cut; those in front of place `from` are known to be.
    #[inline]
    pub(super) fn search<B: Borrow<[u8; N]>, const N: usize>(
        &mut self,
        node: &Node<B, N>,
        from: usize,
        cut: &Cut<'_>,
    ) -> usize {
        let prefixes = &node.prefixes()[from..];
        let less = prefixes.partition_point(|prefix| u64::from_le_bytes(*prefix) < cut.prefix);
        let mut low = from + less;
        if prefixes.get(less).is_none_or(|prefix| u64::from_le_bytes(*prefix) != cut.prefix) {
            return low;
        }
        let equal = prefixes[less..].partition_point(|prefix| u64::from_le_bytes(*prefix) == cut.prefix);
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

    /// Whether an entry is before a cut that has the same prefix.
    fn is_before(&mut self, entry: &Entry, cut: &Cut<'_>) -> bool {
        match self.compare(entry, cut.key) {
            Ordering::Less => true,
            Ordering::Equal => u64::from(entry.row.0) < cut.row,
            Ordering::Greater => false,
        }
    }

    /// How the key of an entry compares with one that has the same prefix.
    pub(super) fn compare(&mut self, entry: &Entry, key: &[u8]) -> Ordering {
        if let Some(bytes) = entry.complete_bytes() {
            return bytes.cmp(&key.len());
        }
        if key.len() <= size_of::<u64>() {
            return Ordering::Greater;
        }
        let mut found = None;
        self.with_key(entry, |candidate| {
            // During an insert or a removal the key in question may be a second candidate: then the other one is meant.
            if found.is_none_or(Ordering::is_eq) {
                found = Some(candidate.cmp(key));
            }
        });
        found.unwrap_or_else(|| {
            assert!(self.removed == Some(entry.row) && entry.may_have(key), "{entry:?} has a key in its row");
            Ordering::Equal
        })
    }

    /// Calls `each` with the key of an entry that is not complete.
    pub(super) fn with_key(&mut self, entry: &Entry, mut each: impl FnMut(&[u8])) {
        let Resolver { pool, source, listed, .. } = self;
        match entry.listed() {
            Some(number) => each(listed.key(entry.row, number)),
            None => source.keys(pool, entry.row, |key| {
                if entry.may_have(key) && !listed.holds(entry.row, key) {
                    each(key);
                }
            }),
        }
    }

    /// Whether a row has another key that an entry for this key could be taken for.
    pub(super) fn is_ambiguous(&mut self, entry: &Entry, key: &[u8]) -> bool {
        let mut found = false;
        self.with_key(entry, |other| found |= other != key);
        found
    }
}
