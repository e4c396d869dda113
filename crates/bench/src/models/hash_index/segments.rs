//! Many small tables: segments behind an extendible directory, each of which splits by itself.
//!
//! A segment is 64 lines of 12 entries (4 KiB), or 16. An entry is in its home line, or in the first line after it
//! (cyclically) that has room; each line that was passed over counts it in its link, so a search continues only while
//! the count is not zero.
//!
//! Segments that all hold the same share of the hashes would all split at the same number of rows. So the
//! hash prefix, seen as u in [0, 1), is mapped to v = 2^u − 1 (spiral storage) before the directory looks at
//! it: shares then differ by up to two, evenly on a logarithmic scale, and at any number of rows the
//! segments' loads are spread over the whole range between half full and full. 2^u is a table of 64 straight
//! pieces, rising strictly.

use super::Scheme;
use super::lines::{ENTRIES, Line, LineArray, Pages, tag_of};
use crate::models::machine::prefetch;
use crate::models::rows::{Fragment, RowId};

const PIECE_BITS: u32 = 6;

/// The piecewise-linear map: start and slope of each piece.
struct Spiral([(u32, u32); 1 << PIECE_BITS]);

impl Spiral {
    fn new() -> Self {
        let pieces = f64::from(1 << PIECE_BITS);
        let at = |i: usize| ((i as f64 / pieces).exp2() - 1.0) * f64::from(u32::MAX);
        Self(std::array::from_fn(|i| (at(i) as u32, (at(i + 1) as u32) - (at(i) as u32))))
    }

    #[inline(always)]
    fn map(&self, u: u32) -> u32 {
        let (start, rise) = self.0[(u >> (32 - PIECE_BITS)) as usize];
        let along = u64::from(u << PIECE_BITS >> PIECE_BITS);
        start + ((along * u64::from(rise)) >> (32 - PIECE_BITS)) as u32
    }
}

/// A segmented hash table over one fragment's rows.
pub(super) struct Segments<const LINES: u32> {
    spiral: Spiral,
    /// The segment of each prefix of `depth` bits.
    directory: Vec<u32>,
    depth: u32,
    lines: LineArray,
    state: Vec<Segment>,
    moving: Vec<(u8, RowId)>,
    hashes: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Segment {
    entries: u16,
    depth: u8,
}

impl<const LINES: u32> Segments<LINES> {
    /// A segment splits above nine tenths of its places.
    const ENTRIES_MAX: u16 = (LINES as usize * ENTRIES * 9 / 10) as u16;

    /// One empty segment.
    pub(super) fn new(pages: &mut Pages) -> Self {
        let mut table = Self {
            spiral: Spiral::new(),
            directory: vec![0],
            depth: 0,
            lines: LineArray::default(),
            state: Vec::new(),
            moving: Vec::new(),
            hashes: Vec::new(),
        };
        table.add_segment(pages, 0);
        table
    }

    fn add_segment(&mut self, pages: &mut Pages, depth: u8) {
        for _ in 0..LINES {
            self.lines.push(pages);
        }
        self.state.push(Segment { entries: 0, depth });
    }

    #[inline(always)]
    fn prefix_of(&self, hash: u64) -> u32 {
        self.spiral.map((hash >> 16) as u32)
    }

    #[inline(always)]
    fn segment_of(&self, hash: u64) -> u32 {
        self.directory[(u64::from(self.prefix_of(hash)) >> (32 - self.depth)) as usize]
    }

    #[inline(always)]
    fn home_of(hash: u64) -> u32 {
        hash as u32 % LINES
    }

    #[inline(always)]
    fn home_line<'a>(&self, pages: &'a Pages, hash: u64) -> &'a Line {
        self.lines.line(pages, self.segment_of(hash) * LINES + Self::home_of(hash))
    }

    fn push(&mut self, pages: &mut Pages, segment: u32, hash: u64, tag: u8, row: RowId) {
        let mut place = Self::home_of(hash);
        loop {
            let line = self.lines.line_mut(pages, segment * LINES + place);
            if line.push(tag, row) {
                self.state[segment as usize].entries += 1;
                return;
            }
            line.link += 1;
            place = (place + 1) % LINES;
        }
    }

    /// Splits the segment of `hash` in two.
    fn split(&mut self, pages: &mut Pages, hash: u64, rows: Fragment<'_>) {
        let segment = self.segment_of(hash);
        let depth = u32::from(self.state[segment as usize].depth) + 1;
        if depth > self.depth {
            self.directory = self.directory.iter().flat_map(|&segment| [segment, segment]).collect();
            self.depth = depth;
        }
        self.moving.clear();
        for place in 0..LINES {
            let line = self.lines.line_mut(pages, segment * LINES + place);
            line.entries().for_each(|row| rows.prefetch_key(row));
            self.moving.extend(line.tags.into_iter().zip(line.entries()));
            *line = Line::EMPTY;
        }
        let upper = self.state.len() as u32;
        self.add_segment(pages, depth as u8);
        self.state[segment as usize] = Segment { entries: 0, depth: depth as u8 };
        // The segment's part of the directory is one run; its upper half now leads to the new one.
        let run = 1usize << (self.depth - depth + 1);
        let first = (u64::from(self.prefix_of(hash)) >> (32 - self.depth)) as usize & !(run - 1);
        self.directory[first + run / 2..first + run].fill(upper);
        self.hashes.clear();
        self.hashes.extend(self.moving.iter().map(|&(_, row)| rows.rehash(row)));
        for i in 0..self.moving.len() {
            let ((tag, row), hash) = (self.moving[i], self.hashes[i]);
            let segment = self.segment_of(hash);
            self.push(pages, segment, hash, tag, row);
        }
    }
}

impl<const LINES: u32> Scheme for Segments<LINES> {
    fn insert(&mut self, pages: &mut Pages, hash: u64, row: RowId, rows: Fragment<'_>) {
        let segment = self.segment_of(hash);
        self.push(pages, segment, hash, tag_of(hash), row);
        if self.state[segment as usize].entries > Self::ENTRIES_MAX {
            self.split(pages, hash, rows);
        }
    }

    #[inline(always)]
    fn prefetch(&self, pages: &Pages, hash: u64) {
        prefetch(self.home_line(pages, hash));
    }

    #[inline(always)]
    fn peek(&self, pages: &Pages, hash: u64) -> Option<RowId> {
        self.home_line(pages, hash).find(tag_of(hash), |_| true)
    }

    #[inline(always)]
    fn find(&self, pages: &Pages, hash: u64, mut is_it: impl FnMut(RowId) -> bool) -> (Option<RowId>, u32) {
        let tag = tag_of(hash);
        let segment = self.segment_of(hash) * LINES;
        let mut place = Self::home_of(hash);
        let mut touched = 1;
        loop {
            let line = self.lines.line(pages, segment + place);
            let found = line.find(tag, &mut is_it);
            if found.is_some() || line.link == 0 || touched == LINES {
                return (found, touched);
            }
            place = (place + 1) % LINES;
            touched += 1;
        }
    }

    fn bytes(&self) -> usize {
        self.lines.bytes() + self.directory.len() * 4 + self.state.len() * size_of::<Segment>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spiral_rises_and_is_twice_as_steep_at_its_end() {
        let spiral = Spiral::new();
        let step = 1 << 20;
        let values: Vec<u32> = (0..4096u32).map(|i| spiral.map(i * step)).collect();
        assert!(values.windows(2).all(|pair| pair[0] < pair[1]));
        let (first, last) = (f64::from(values[1] - values[0]), f64::from(values[4095] - values[4094]));
        assert!((1.9..2.1).contains(&(last / first)), "{}", last / first);
    }
}
