//! Rows in memory as in the data node: slots of 124 bytes in pages of 32 KiB.
//!
//! ```text
//! page:  64 bytes of header, then 263 rows          row id: page << 9 | slot, within a fragment
//! row:   0 epoch and flags   8 operation   12 variable part   16 key (u64)   24 columns …   124
//!        u64, bit 0 = in use u32           u32
//! ```
//! Numbers are little endian. Eight fragments share the pages of one region, as the fragments of a node
//! share its page pool, so neighbouring pages belong to different fragments.

use crate::models::machine::{Region, prefetch};

/// Bytes of a row's slot.
pub(crate) const ROW_BYTES: usize = 124;
/// Rows in a page.
pub(crate) const ROWS_PER_PAGE: usize = 263;
/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = 32 * 1024;
/// Where a row's column values begin: key first.
pub(crate) const KEY_OFFSET: usize = 16;
/// Fragments of a node: one for each data manager instance.
pub(crate) const FRAGMENTS: usize = 8;

/// Bytes in front of the first row of a page.
pub(crate) const PAGE_HEADER_BYTES: usize = 64;
const SLOT_BITS: u32 = 9;

/// A page of rows.
pub(crate) type Page = [u8; PAGE_BYTES];
/// A row's slot.
pub(crate) type Row = [u8; ROW_BYTES];

/// The position of a row in its fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowId(pub(crate) u32);

/// The 64-bit hash of a key (the finaliser of splitmix64). Its bits are divided: 61–63 choose the fragment, 48–55 make
/// the index's tag, 0–47 are for the index to choose its lines with.
#[inline(always)]
pub(crate) fn hash(key: u64) -> u64 {
    let mut x = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The fragment that owns a hash.
#[inline(always)]
pub(crate) fn fragment_of(hash: u64) -> usize {
    (hash >> 61) as usize
}

/// A fragment's rows.
#[derive(Clone, Copy)]
pub(crate) struct Fragment<'a> {
    pages: &'a [Page],
    directory: &'a [u32],
}

impl<'a> Fragment<'a> {
    /// A row.
    #[inline(always)]
    pub(crate) fn row(self, id: RowId) -> &'a Row {
        let page = &self.pages[self.directory[(id.0 >> SLOT_BITS) as usize] as usize];
        let offset = PAGE_HEADER_BYTES + (id.0 & ((1 << SLOT_BITS) - 1)) as usize * ROW_BYTES;
        page[offset..offset + ROW_BYTES].first_chunk().expect("a slot has the bytes of a row")
    }

    /// A row's key.
    #[inline(always)]
    pub(crate) fn key(self, id: RowId) -> u64 {
        u64::from_le_bytes(*self.row(id)[KEY_OFFSET..].first_chunk().expect("the key lies in the row"))
    }

    /// The hash of a row's key, read again from the row.
    #[inline(always)]
    pub(crate) fn rehash(self, id: RowId) -> u64 {
        hash(self.key(id))
    }

    /// Prefetches the line of the row that holds its key.
    #[inline(always)]
    pub(crate) fn prefetch_key(self, id: RowId) {
        prefetch(&self.row(id)[KEY_OFFSET]);
    }

    /// Prefetches the first two lines of the row, and its last byte when `three` is set: a slot of 124 bytes at an
    /// address that is a multiple of four touches three lines in 15 of 16 cases.
    #[inline(always)]
    pub(crate) fn prefetch_row(self, id: RowId, three: bool) {
        let row = self.row(id);
        prefetch(&row[0]);
        prefetch(&row[64]);
        if three {
            prefetch(&row[ROW_BYTES - 1]);
        }
    }
}

/// All rows of the node.
pub(crate) struct Rows {
    pages: Region<Page>,
    pages_used: u32,
    fragments: Vec<FragmentState>,
}

#[derive(Default)]
struct FragmentState {
    directory: Vec<u32>,
    rows: u32,
}

impl Rows {
    /// Rows of the keys 0, 1, 2, … up to `count`, each in the fragment that `place` names for its hash.
    pub(crate) fn with_keys(count: u64, place: impl Fn(u64) -> usize) -> Self {
        let pages = (count as usize).div_ceil(ROWS_PER_PAGE) + FRAGMENTS;
        let fragments = (0..FRAGMENTS).map(|_| FragmentState::default()).collect();
        let mut rows = Self { pages: Region::new(pages), pages_used: 0, fragments };
        for key in 0..count {
            rows.add(place(hash(key)), key);
        }
        rows
    }

    /// The rows of one fragment.
    #[inline(always)]
    pub(crate) fn fragment(&self, fragment: usize) -> Fragment<'_> {
        Fragment { pages: &self.pages, directory: &self.fragments[fragment].directory }
    }

    /// The id of the `n`-th row that was added to a fragment.
    #[inline(always)]
    pub(crate) fn nth(n: u32) -> RowId {
        RowId(((n / ROWS_PER_PAGE as u32) << SLOT_BITS) | (n % ROWS_PER_PAGE as u32))
    }

    fn add(&mut self, fragment: usize, key: u64) {
        let state = &mut self.fragments[fragment];
        let (page_index, slot) = (state.rows as usize / ROWS_PER_PAGE, state.rows as usize % ROWS_PER_PAGE);
        if page_index == state.directory.len() {
            state.directory.push(self.pages_used);
            self.pages_used += 1;
        }
        let page = &mut self.pages[state.directory[page_index] as usize];
        let start = PAGE_HEADER_BYTES + slot * ROW_BYTES;
        let row = &mut page[start..start + ROW_BYTES];
        row[0..8].copy_from_slice(&1u64.to_le_bytes());
        row[KEY_OFFSET..KEY_OFFSET + 8].copy_from_slice(&key.to_le_bytes());
        row[KEY_OFFSET + 8..].fill(key as u8);
        state.rows += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_where_their_ids_say() {
        let rows = Rows::with_keys(20_000, fragment_of);
        let mut counts = [0u32; FRAGMENTS];
        for key in 0..20_000 {
            let fragment = fragment_of(hash(key));
            let id = Rows::nth(counts[fragment]);
            counts[fragment] += 1;
            assert_eq!(rows.fragment(fragment).key(id), key);
            assert_eq!(rows.fragment(fragment).rehash(id), hash(key));
        }
        assert!(counts.iter().all(|&count| count > 2_000), "the hash spreads: {counts:?}");
    }
}
