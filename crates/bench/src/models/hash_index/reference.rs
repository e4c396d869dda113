//! The reference: a general-purpose hash table (`hashbrown`), which doubles all at once.

use hashbrown::HashTable;

use super::Scheme;
use super::lines::Pages;
use crate::models::rows::{Fragment, RowId};

/// Row ids in a `hashbrown` table; it too keeps a tag byte an entry and reads the rest from the row.
#[derive(Default)]
pub(super) struct Reference(HashTable<u32>);

/// The table takes tags from the top bits of a hash and places from the bottom ones; within a fragment the
/// top bits are all the same, so they are mixed once more.
#[inline(always)]
fn mixed(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Scheme for Reference {
    const COUNTS_LINES: bool = false;

    fn insert(&mut self, _: &mut Pages, hash: u64, row: RowId, rows: Fragment<'_>) {
        self.0.insert_unique(mixed(hash), row.0, |&row| mixed(rows.rehash(RowId(row))));
    }

    /// The table has no access to its groups, so nothing can be fetched ahead.
    fn prefetch(&self, _: &Pages, _: u64) {}

    fn peek(&self, _: &Pages, hash: u64) -> Option<RowId> {
        self.0.find(mixed(hash), |_| true).map(|&row| RowId(row))
    }

    fn find(&self, _: &Pages, hash: u64, mut is_it: impl FnMut(RowId) -> bool) -> (Option<RowId>, u32) {
        (self.0.find(mixed(hash), |&row| is_it(RowId(row))).map(|&row| RowId(row)), 1)
    }

    fn bytes(&self) -> usize {
        self.0.allocation_size()
    }
}
