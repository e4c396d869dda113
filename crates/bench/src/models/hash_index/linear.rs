//! Linear hashing over lines: classic, and with partial expansions.
//!
//! Both keep `rows / lines` at a chosen mean load by adding one line at a time and rearranging the few lines whose
//! entries the new one takes over. They differ in which lines those are, which is all that [`Addressing`] defines. A
//! full line links to overflow lines, which are in a separate array.
//!
//! The rows of the next group are read again at its split, because the hash is not stored. So between two splits the
//! inserts prefetch: first the lines of the next group, then the rows that they refer to, one line's rows an insert.

use super::Scheme;
use super::lines::{Line, LineArray, Pages, tag_of};
use crate::models::machine::prefetch;
use crate::models::rows::{Fragment, RowId};

/// Which line a hash belongs to, and how the lines grow.
pub(crate) trait Addressing: Default {
    /// Number of lines.
    fn lines(&self) -> u32;
    /// The line of a hash, below `lines`.
    fn line_of(&self, hash: u64) -> u32;
    /// The lines from which the next added line will take entries.
    fn next_group(&self) -> ([u32; 3], usize);
    /// Entries with this tag or a greater one go to the next added line while the others stay; `None` when the hashes
    /// decide.
    fn next_by_tag(&self) -> Option<u8> {
        None
    }
    /// Adds a line.
    fn advance(&mut self);
}

/// Lines before the first growth: one page.
const LINES_AT_FIRST: u32 = 512;

/// Litwin's linear hashing: of `base` lines those before `next` are split in two.
pub(super) struct Classic {
    base: u32,
    next: u32,
}

impl Default for Classic {
    fn default() -> Self {
        Self { base: LINES_AT_FIRST, next: 0 }
    }
}

impl Addressing for Classic {
    fn lines(&self) -> u32 {
        self.base + self.next
    }

    #[inline(always)]
    fn line_of(&self, hash: u64) -> u32 {
        let line = hash as u32 & (self.base - 1);
        if line < self.next { hash as u32 & (2 * self.base - 1) } else { line }
    }

    fn next_group(&self) -> ([u32; 3], usize) {
        ([self.next, 0, 0], 1)
    }

    fn advance(&mut self) {
        self.next += 1;
        if self.next == self.base {
            *self = Self { base: 2 * self.base, next: 0 };
        }
    }
}

/// Larson's partial expansions: `groups` groups of lines g, g + groups, … grow one after the other from
/// two lines to three, then one after the other to four; then each is two groups of two.
///
/// A group of two or four chooses its line by the one or two bits of the hash above the group's number. A group of
/// three is a group of two whose entries with a high tag, a third of all, were moved to the third line: so the first of
/// the two steps needs no hash and reads no rows.
pub(crate) struct Partial {
    groups: u32,
    /// Lines of a group that this round has not grown yet: 2 or 3.
    size: u32,
    next: u32,
}

/// Tags from here on, 85 of 256, belong in the third line of a group of three.
const THIRD_LINE_TAGS: u8 = 171;

impl Default for Partial {
    fn default() -> Self {
        Self { groups: LINES_AT_FIRST / 2, size: 2, next: 0 }
    }
}

impl Addressing for Partial {
    fn lines(&self) -> u32 {
        self.size * self.groups + self.next
    }

    #[inline(always)]
    fn line_of(&self, hash: u64) -> u32 {
        let low = hash as u32;
        let group = low & (self.groups - 1);
        let of_two = low & (2 * self.groups - 1);
        let of_four = low & (4 * self.groups - 1);
        let size = self.size + u32::from(group < self.next);
        // Bits of a hash can't be guessed by a branch predictor; selections cost less.
        let of_three = if tag_of(hash) >= THIRD_LINE_TAGS { group + 2 * self.groups } else { of_two };
        let of_two_or_three = if size == 2 { of_two } else { of_three };
        if size == 4 { of_four } else { of_two_or_three }
    }

    fn next_group(&self) -> ([u32; 3], usize) {
        ([self.next, self.next + self.groups, self.next + 2 * self.groups], self.size as usize)
    }

    fn next_by_tag(&self) -> Option<u8> {
        (self.size == 2).then_some(THIRD_LINE_TAGS)
    }

    fn advance(&mut self) {
        self.next += 1;
        if self.next == self.groups {
            *self = match self.size {
                2 => Self { groups: self.groups, size: 3, next: 0 },
                _ => Self { groups: 2 * self.groups, size: 2, next: 0 },
            };
        }
    }
}

/// A linear hash table over one fragment's rows.
pub(crate) struct Linear<A> {
    addressing: A,
    lines: LineArray,
    overflow: LineArray,
    overflow_free: Vec<u32>,
    rows: u64,
    /// Mean entries a line, times ten.
    load_tenths: u64,
    /// Whether inserts prefetch for the next split.
    ahead: bool,
    inserts_since_growth: usize,
    /// The entries that a split moves; kept for its memory.
    moving: Vec<(u8, RowId)>,
    hashes: Vec<u64>,
}

/// The overflow line that a line's link refers to: the link is its number plus one.
fn linked(line: &Line) -> Option<u32> {
    line.link.checked_sub(1)
}

impl<A: Addressing> Linear<A> {
    /// An empty table that grows when the mean load passes `load_tenths / 10` entries a line.
    pub(crate) fn new(pages: &mut Pages, load_tenths: u64, ahead: bool) -> Self {
        let addressing = A::default();
        let mut lines = LineArray::default();
        for _ in 0..addressing.lines() {
            lines.push(pages);
        }
        Self {
            addressing,
            lines,
            overflow: LineArray::default(),
            overflow_free: Vec::new(),
            rows: 0,
            load_tenths,
            ahead,
            inserts_since_growth: 0,
            moving: Vec::new(),
            hashes: Vec::new(),
        }
    }

    #[inline]
    fn push(&mut self, pages: &mut Pages, home: u32, tag: u8, row: RowId) {
        let line = self.lines.line_mut(pages, home);
        if line.push(tag, row) {
            return;
        }
        let link = linked(line);
        self.push_overflow(pages, home, link, tag, row);
    }

    #[cold]
    fn push_overflow(&mut self, pages: &mut Pages, home: u32, first: Option<u32>, tag: u8, row: RowId) {
        let (mut last, mut next) = (None, first);
        while let Some(number) = next {
            let line = self.overflow.line_mut(pages, number);
            if line.push(tag, row) {
                return;
            }
            (last, next) = (Some(number), linked(line));
        }
        let added = match self.overflow_free.pop() {
            Some(number) => number,
            None => self.overflow.push(pages),
        };
        let line = self.overflow.line_mut(pages, added);
        *line = Line::EMPTY;
        line.push(tag, row);
        let before = match last {
            Some(number) => self.overflow.line_mut(pages, number),
            None => self.lines.line_mut(pages, home),
        };
        before.link = added + 1;
    }

    /// Adds one line and rearranges the group that it belongs to.
    fn grow(&mut self, pages: &mut Pages, rows: Fragment<'_>) {
        let (group, size) = self.addressing.next_group();
        let by_tag = self.addressing.next_by_tag();
        let added = self.lines.push(pages);
        self.addressing.advance();
        let mut moving = std::mem::take(&mut self.moving);
        for &home in &group[..size] {
            self.take_out(pages, home, &mut moving);
            if let Some(first) = by_tag {
                for (tag, row) in moving.drain(..) {
                    self.push(pages, if tag >= first { added } else { home }, tag, row);
                }
            }
        }
        // All rows are prefetched before any entry is placed, so that their misses overlap.
        self.hashes.clear();
        self.hashes.extend(moving.iter().map(|&(_, row)| rows.rehash(row)));
        for (i, (tag, row)) in moving.drain(..).enumerate() {
            self.push(pages, self.addressing.line_of(self.hashes[i]), tag, row);
        }
        self.moving = moving;
    }

    /// Empties a line and its overflow lines into `moving`.
    fn take_out(&mut self, pages: &mut Pages, home: u32, moving: &mut Vec<(u8, RowId)>) {
        let line = self.lines.line_mut(pages, home);
        moving.extend(line.tags.into_iter().zip(line.entries()));
        let mut next = linked(line);
        *line = Line::EMPTY;
        while let Some(number) = next {
            let line = self.overflow.line(pages, number);
            moving.extend(line.tags.into_iter().zip(line.entries()));
            next = linked(line);
            self.overflow_free.push(number);
        }
    }

    #[inline]
    fn prefetch_for_growth(&self, pages: &Pages, rows: Fragment<'_>) {
        let (group, size) = self.addressing.next_group();
        match self.inserts_since_growth {
            1 => group[..size].iter().for_each(|&home| prefetch(self.lines.line(pages, home))),
            step @ 3..=5 if step - 3 < size && self.addressing.next_by_tag().is_none() => {
                self.lines.line(pages, group[step - 3]).entries().for_each(|row| rows.prefetch_key(row));
            }
            _ => {}
        }
    }
}

impl<A: Addressing> Scheme for Linear<A> {
    fn insert(&mut self, pages: &mut Pages, hash: u64, row: RowId, rows: Fragment<'_>) {
        self.push(pages, self.addressing.line_of(hash), tag_of(hash), row);
        self.rows += 1;
        self.inserts_since_growth += 1;
        if self.rows * 10 > u64::from(self.addressing.lines()) * self.load_tenths {
            self.inserts_since_growth = 0;
            self.grow(pages, rows);
        } else if self.ahead {
            self.prefetch_for_growth(pages, rows);
        }
    }

    #[inline(always)]
    fn prefetch(&self, pages: &Pages, hash: u64) {
        prefetch(self.lines.line(pages, self.addressing.line_of(hash)));
    }

    #[inline(always)]
    fn peek(&self, pages: &Pages, hash: u64) -> Option<RowId> {
        self.lines.line(pages, self.addressing.line_of(hash)).find(tag_of(hash), |_| true)
    }

    #[inline(always)]
    fn find(&self, pages: &Pages, hash: u64, mut is_it: impl FnMut(RowId) -> bool) -> (Option<RowId>, u32) {
        let tag = tag_of(hash);
        let mut line = self.lines.line(pages, self.addressing.line_of(hash));
        let mut touched = 1;
        loop {
            if let Some(row) = line.find(tag, &mut is_it) {
                return (Some(row), touched);
            }
            let Some(number) = linked(line) else { return (None, touched) };
            line = self.overflow.line(pages, number);
            touched += 1;
        }
    }

    fn bytes(&self) -> usize {
        self.lines.bytes() + self.overflow.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each step moves hashes only within the group and the added line, and by tag where it says so.
    fn grows_one_line_at_a_time<A: Addressing>() {
        let mut addressing = A::default();
        let hashes: Vec<u64> = (0..2_000).map(crate::models::rows::hash).collect();
        for _ in 0..6 * LINES_AT_FIRST {
            let (group, size) = addressing.next_group();
            let lines = addressing.lines();
            let before: Vec<u32> = hashes.iter().map(|&hash| addressing.line_of(hash)).collect();
            let by_tag = addressing.next_by_tag();
            addressing.advance();
            assert_eq!(addressing.lines(), lines + 1);
            for (&hash, &old) in hashes.iter().zip(&before) {
                let new = addressing.line_of(hash);
                assert!(old < lines);
                if group[..size].contains(&old) {
                    assert!(new == lines || group[..size].contains(&new));
                    assert!(
                        by_tag.is_none_or(|first| new == if tag_of(hash) >= first { lines } else { old })
                    );
                } else {
                    assert_eq!(new, old);
                }
            }
        }
    }

    #[test]
    fn classic_addresses() {
        grows_one_line_at_a_time::<Classic>();
    }

    #[test]
    fn partial_addresses() {
        grows_one_line_at_a_time::<Partial>();
    }

    #[test]
    fn lines_of_a_group_share_its_hashes_evenly() {
        let mut addressing = Partial::default();
        for _ in 0..LINES_AT_FIRST / 2 {
            addressing.advance();
        }
        let mut counts = vec![0u32; addressing.lines() as usize];
        for key in 0..768_000 {
            counts[addressing.line_of(crate::models::rows::hash(key)) as usize] += 1;
        }
        let third = LINES_AT_FIRST as usize / 2;
        for part in counts.chunks(third) {
            let mean = part.iter().sum::<u32>() / third as u32;
            assert!((980..1_020).contains(&mean), "{mean}");
        }
    }
}
