//! Lines of a hash index and the pages that hold them.
//!
//! ```text
//! offset  0         12     16               64
//!         12 tags   link   12 row ids
//!         u8        u32    u32
//! ```
//! Entries are packed at the front of a line; tag 0 means that a place and all behind it are free. The link
//! is for the scheme's use: the number of an overflow line, or a count.

use crate::models::machine::{Region, Zeroable};
use crate::models::rows::{PAGE_BYTES, RowId};

/// Entries of a line.
pub(super) const ENTRIES: usize = 12;
/// Lines of a page.
pub(super) const LINES_PER_PAGE: u32 = (PAGE_BYTES / 64) as u32;

/// One cache line of an index.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line {
    pub(super) tags: [u8; ENTRIES],
    pub(super) link: u32,
    pub(super) rows: [u32; ENTRIES],
}

// SAFETY: three arrays of plain numbers without padding; a line's alignment is that of a cache line.
unsafe impl Zeroable for Line {}

/// The tag of a hash: eight bits that no scheme chooses lines with, never zero.
#[inline(always)]
pub(super) fn tag_of(hash: u64) -> u8 {
    ((hash >> 48) as u8).max(1)
}

impl Line {
    /// A line without entries.
    pub(super) const EMPTY: Self = Self { tags: [0; ENTRIES], link: 0, rows: [0; ENTRIES] };

    /// Bit i is set where tag i equals `tag`.
    #[inline(always)]
    pub(super) fn matches(&self, tag: u8) -> u32 {
        // All bytes of a word are compared at once: a byte of `t` has its top bit clear exactly where the
        // byte of `x` is zero. The multiplication gathers the eight top bits.
        let equal = |word: u64| {
            const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
            let x = word ^ (u64::from(tag) * 0x0101_0101_0101_0101);
            let t = ((x & LOW) + LOW) | x | LOW;
            ((!t >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
        };
        let low = u64::from_le_bytes(*self.tags.first_chunk().expect("twelve tags"));
        let high = u32::from_le_bytes(*self.tags[8..].first_chunk().expect("twelve tags"));
        equal(low) | (equal(u64::from(high)) & 0xf) << 8
    }

    /// How many entries the line has.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        ENTRIES - self.matches(0).count_ones() as usize
    }

    /// Appends an entry; false when the line is full.
    #[inline(always)]
    pub(super) fn push(&mut self, tag: u8, row: RowId) -> bool {
        let place = self.len();
        if place == ENTRIES {
            return false;
        }
        self.tags[place] = tag;
        self.rows[place] = row.0;
        true
    }

    /// The row ids of the entries.
    pub(super) fn entries(&self) -> impl Iterator<Item = RowId> + '_ {
        self.rows[..self.len()].iter().map(|&row| RowId(row))
    }

    /// The first entry with the tag for which `is_it` returns true.
    #[inline(always)]
    pub(super) fn find(&self, tag: u8, mut is_it: impl FnMut(RowId) -> bool) -> Option<RowId> {
        let mut matches = self.matches(tag);
        while matches != 0 {
            let row = RowId(self.rows[matches.trailing_zeros() as usize]);
            if is_it(row) {
                return Some(row);
            }
            matches &= matches - 1;
        }
        None
    }
}

/// The pages that all fragments' indexes share: touched before, so that growth pays no page fault.
pub(crate) struct Pages {
    lines: Region<Line>,
    pages_used: u32,
}

impl Pages {
    /// Room for `pages` pages.
    pub(crate) fn new(pages: usize) -> Self {
        let mut lines = Region::new(pages * LINES_PER_PAGE as usize);
        lines.touch();
        Self { lines, pages_used: 0 }
    }

    fn take(&mut self) -> u32 {
        assert!((self.pages_used + 1) * LINES_PER_PAGE <= self.lines.len() as u32, "sized for every scheme");
        self.pages_used += 1;
        self.pages_used - 1
    }
}

/// An array of lines that grows at its end, found through a directory of pages.
#[derive(Default)]
pub(super) struct LineArray {
    pages: Vec<u32>,
    lines: u32,
}

impl LineArray {
    /// Appends an empty line and returns its number.
    pub(super) fn push(&mut self, pages: &mut Pages) -> u32 {
        if self.lines.is_multiple_of(LINES_PER_PAGE) {
            self.pages.push(pages.take());
        }
        self.lines += 1;
        *self.line_mut(pages, self.lines - 1) = Line::EMPTY;
        self.lines - 1
    }

    #[inline(always)]
    fn place(&self, number: u32) -> usize {
        let page = self.pages[(number / LINES_PER_PAGE) as usize];
        (page * LINES_PER_PAGE + number % LINES_PER_PAGE) as usize
    }

    /// A line.
    #[inline(always)]
    pub(super) fn line<'a>(&self, pages: &'a Pages, number: u32) -> &'a Line {
        &pages.lines[self.place(number)]
    }

    /// A line, to change it.
    #[inline(always)]
    pub(super) fn line_mut<'a>(&self, pages: &'a mut Pages, number: u32) -> &'a mut Line {
        &mut pages.lines[self.place(number)]
    }

    /// Memory of the lines in whole pages, and of the directory.
    pub(super) fn bytes(&self) -> usize {
        self.pages.len() * PAGE_BYTES + self.pages.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_are_exact() {
        let mut line = Line::EMPTY;
        for (i, tag) in [5, 4, 5, 6, 0x85, 5, 1, 0xff, 0x80, 5, 4].into_iter().enumerate() {
            assert!(line.push(tag, RowId(i as u32)));
        }
        assert_eq!(line.matches(5), 0b10_0010_0101);
        assert_eq!(line.matches(0x80), 1 << 8);
        assert_eq!(line.matches(4), 0b100_0000_0010);
        assert_eq!(line.matches(7), 0);
        assert_eq!(line.len(), 11);
        assert!(line.push(9, RowId(11)) && !line.push(9, RowId(12)));
        assert_eq!(line.find(5, |row| row.0 > 2), Some(RowId(5)));
        assert_eq!(line.find(5, |_| false), None);
        assert_eq!(line.entries().count(), 12);
    }
}
