//! Keys that are stored as a whole because their entries do not distinguish them from another key of the same row.
//!
//! An entry identifies its key by the first 8 bytes and 24 bits of the hash; the rest is read from the row, which has
//! few versions. Two keys of one row may agree in both, once in 16 million updates that keep the first 8 bytes. The
//! second one to be inserted is then stored here as a whole, under a number that is unique within its row.
//!
//! The list is nearly always empty and has at most one key for each version of a row that is not committed, or is still
//! kept after it was replaced. It is sorted by row and number.

use alloc::vec::Vec;
use vinga_base::RowId;
use vinga_base::page_pool::OutOfPages;

struct Listed {
    row: RowId,
    number: u32,
    /// Entries with this number. Invariant: at least 1.
    entries: u32,
    key: Vec<u8>,
}

#[derive(Default)]
pub(super) struct ListedKeys(Vec<Listed>);

impl ListedKeys {
    /// Adds a key that one entry has, and returns its number.
    ///
    /// # Errors
    /// [`OutOfPages`] when there is no heap memory or the row has no number left.
    pub(super) fn add(&mut self, row: RowId, key: &[u8], numbers_max: u32) -> Result<u32, OutOfPages> {
        debug_assert!(!self.holds(row, key));
        let of_row = self.range(row);
        // The first gap in the numbers of the row, which are ascending.
        let first = of_row.start;
        let number =
            of_row.clone().find(|&at| self.0[at].number != (at - first) as u32).unwrap_or(of_row.end) - first;
        if number as u64 >= u64::from(numbers_max) {
            return Err(OutOfPages);
        }
        let mut copy = Vec::new();
        copy.try_reserve_exact(key.len()).map_err(|_| OutOfPages)?;
        copy.extend_from_slice(key);
        self.0.try_reserve(1).map_err(|_| OutOfPages)?;
        let listed = Listed { row, number: number as u32, entries: 1, key: copy };
        self.0.insert(first + number, listed);
        Ok(number as u32)
    }

    /// Counts one more entry with this key.
    pub(super) fn retain(&mut self, row: RowId, number: u32) {
        let at = self.find(row, number);
        self.0[at].entries += 1;
    }

    /// Counts one entry less with this key; it is removed with the last one.
    pub(super) fn release(&mut self, row: RowId, number: u32) {
        let at = self.find(row, number);
        self.0[at].entries -= 1;
        if self.0[at].entries == 0 {
            self.0.remove(at);
        }
    }

    /// A key that is in the list.
    pub(super) fn key(&self, row: RowId, number: u32) -> &[u8] {
        &self.0[self.find(row, number)].key
    }

    /// Whether this key of this row is in the list.
    #[inline]
    pub(super) fn holds(&self, row: RowId, key: &[u8]) -> bool {
        !self.0.is_empty() && self.0[self.range(row)].iter().any(|listed| listed.key == key)
    }

    /// Entries with keys in the list.
    pub(super) fn entries(&self) -> u64 {
        self.0.iter().map(|listed| u64::from(listed.entries)).sum()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let keys: usize = self.0.iter().map(|listed| listed.key.capacity()).sum();
        self.0.capacity() * size_of::<Listed>() + keys
    }

    fn range(&self, row: RowId) -> core::ops::Range<usize> {
        let from = self.0.partition_point(|listed| listed.row < row);
        let length = self.0[from..].partition_point(|listed| listed.row == row);
        from..from + length
    }

    fn find(&self, row: RowId, number: u32) -> usize {
        self.0
            .binary_search_by_key(&(row, number), |listed| (listed.row, listed.number))
            .expect("a listed key stays as long as it has entries")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_within_a_row_and_used_again() {
        let mut list = ListedKeys::default();
        for (row, key, number) in [(5, b"a", 0), (5, b"b", 1), (3, b"c", 0), (5, b"d", 2), (9, b"e", 0)] {
            assert_eq!(list.add(RowId(row), key, 3), Ok(number));
        }
        assert_eq!(list.add(RowId(5), b"f", 3), Err(OutOfPages));
        assert_eq!((list.key(RowId(5), 1), list.key(RowId(3), 0)), (&b"b"[..], &b"c"[..]));
        list.retain(RowId(5), 1);
        list.release(RowId(5), 1);
        assert!(list.holds(RowId(5), b"b") && !list.holds(RowId(3), b"b"));
        list.release(RowId(5), 1);
        assert!(!list.holds(RowId(5), b"b"));
        assert_eq!(list.add(RowId(5), b"g", 3), Ok(1));
        assert_eq!((list.key(RowId(5), 2), list.entries()), (&b"d"[..], 5));
    }
}
