//! Sorting the entries of all rows of a fragment, some at a time and in place.
//!
//! It is a quicksort whose steps can be interrupted. The entries are a sequence of *ranges*, of which the first is
//! worked on. A range is divided by a key that was picked from it: what is less comes first. One of a few hundred
//! entries is sorted at once; then its entries can be [taken](EntrySorter::take), and are never looked at again.
//!
//! Entries are compared by 8 bytes of their keys, how much there is of these, and their row ids. If all keys of a range
//! agree in the 8 bytes and go on behind them, it is found out how many bytes they have in common, and each entry gets
//! the 8 bytes behind these in place of its first ones: so rows are read twice for all bytes that a range has in
//! common, however long they are, in the order in which the entries lie there.
//!
//! While they are sorted, the count of an entry (`entry.rs`) says how much of its key there is: 0 to 8 bytes from where
//! its 8 bytes begin, or 9 if it is more.

use super::bulk::{ROWS_AHEAD, Rest, shared_from, sort_run};
use super::cut::KeySource;
use super::entry::{Entry, PART_BYTES, part_of};
use alloc::vec::Vec;
use vinga_base::RowId;
use vinga_base::page_pool::{OutOfPages, PagePool};

/// Entries that are sorted at once.
const SMALL: usize = 256;
/// Entries that are freed at once: 512 KiB.
const FREED: usize = 1 << 15;
/// What a key has more than 8 bytes of.
const LONG: u32 = PART_BYTES as u32 + 1;

/// Entries that are divided for a unit of work, which is about the time in which a full scan reads a row.
const DIVIDED: u32 = 12;
/// Units for reading the key of a row, and for sorting an entry.
const READ_UNITS: u32 = 2;

/// Neighbours that come before what follows.
#[derive(Clone, Copy)]
struct Part {
    from: usize,
    to: usize,
    /// The bytes that all keys have in common; an entry has the 8 bytes behind them.
    skip: usize,
    /// The first 8 bytes of all keys, if these are skipped.
    first: u64,
    /// The 8 bytes, and how much there is of them, are not less and not more than these.
    bounds: [(u64, u32); 2],
}

impl Part {
    fn len(&self) -> usize {
        self.to - self.from
    }
}

/// What is being done with the first range.
enum Step {
    /// Nothing yet.
    New,
    /// Entries up to `next` are divided; those before `middle` are less than the pivot.
    Divide { pivot: u128, middle: usize, next: usize },
    /// Keys up to `next` have so many bytes in common, with the first one.
    Measure { next: usize, shared: usize },
    /// Entries up to `next` have their 8 bytes behind these.
    Move { next: usize, shared: usize, bounds: [(u64, u32); 2] },
}

/// Sorts the entries of rows that have one version each.
pub struct EntrySorter {
    entries: Vec<Entry>,
    /// Ranges of which the last is the first to come.
    ranges: Vec<Part>,
    step: Step,
    /// The range that is sorted, and of which entries are taken.
    sorted: Option<Part>,
    bounds: [(u64, u32); 2],
    /// Entries that were added behind a greater one.
    descents: usize,
    /// The key that was added last, or the one with which others are compared.
    key: Vec<u8>,
    scratch: Vec<Rest>,
}

impl EntrySorter {
    /// A sorter for at most so many entries.
    ///
    /// # Errors
    /// [`OutOfPages`] when there is no heap memory for them.
    pub fn new(entries_max: usize) -> Result<Self, OutOfPages> {
        let (mut entries, mut scratch) = (Vec::new(), Vec::new());
        entries.try_reserve_exact(entries_max).map_err(|_| OutOfPages)?;
        scratch.try_reserve_exact(SMALL.min(entries_max)).map_err(|_| OutOfPages)?;
        Ok(EntrySorter {
            entries,
            ranges: Vec::new(),
            step: Step::New,
            sorted: None,
            bounds: NO_BOUNDS,
            descents: 0,
            key: Vec::new(),
            scratch,
        })
    }

    /// The heap memory for so many entries.
    pub const fn bytes_for(entries: u64) -> u64 {
        entries * size_of::<Entry>() as u64
    }

    /// The heap memory that it has.
    pub fn heap_bytes(&self) -> u64 {
        Self::bytes_for(self.entries.capacity() as u64)
    }

    /// Adds the key of a row. A row has one.
    ///
    /// # Panics
    /// If there are more than was said.
    #[inline]
    pub fn add(&mut self, key: &[u8], row: RowId) {
        assert!(self.entries.len() < self.entries.capacity(), "no more entries than were said");
        let entry = Entry::new(key, row);
        let length = entry.complete_bytes().map_or(LONG, |bytes| bytes as u32);
        include(&mut self.bounds, (entry.part, length));
        self.descents += usize::from(key < &self.key[..]);
        self.key.clear();
        self.key.extend_from_slice(key);
        self.entries.push(entry.with_count_bits(length));
    }

    /// Whether keys were added in ascending order, for the most part: at least three quarters of them behind one that
    /// is not greater. (If there was no order, it would be half of them.) Inserts in this order would fill most nodes
    /// to the brim.
    pub fn is_ascending(&self) -> bool {
        self.descents * 4 <= self.entries.len()
    }

    /// All entries are there.
    pub fn begin(&mut self) {
        let all = Part { from: 0, to: self.entries.len(), skip: 0, first: 0, bounds: self.bounds };
        self.ranges.extend((all.len() > 0).then_some(all));
    }

    /// Takes the next entry, if it is known.
    #[inline]
    pub fn take<S: KeySource>(&mut self, pool: &PagePool, source: &S) -> Option<Entry> {
        let sorted = self.sorted.as_mut()?;
        let entry = self.entries[sorted.from];
        sorted.from += 1;
        let (next, skip, first) = (sorted.from, sorted.skip, sorted.first);
        let is_empty = sorted.len() == 0;
        // A node of keys that begin with the same bytes reads them.
        if skip > 0 {
            let later = |ahead: usize| self.entries.get(next + ahead).map(Entry::row);
            later(2 * ROWS_AHEAD).into_iter().for_each(|row| source.prefetch(pool, row));
            later(ROWS_AHEAD).into_iter().for_each(|row| source.prefetch_rest(pool, row));
        }
        if is_empty {
            self.sorted = None;
        }
        let part = if skip == 0 { entry.part } else { first };
        Some(Entry { part, ..entry.with_count(1) })
    }

    /// Goes on sorting, for so many units at most, until entries can be taken. False if all were taken.
    pub fn sort_some<S: KeySource>(&mut self, pool: &PagePool, source: &mut S, units: &mut u32) -> bool {
        while self.sorted.is_none() && *units > 0 {
            let Some(range) = self.ranges.last().copied() else { return false };
            match self.step {
                Step::New if range.len() <= SMALL => {
                    *units = units.saturating_sub(self.sort_at_once(pool, source, &range));
                    self.ranges.pop();
                    self.sorted = Some(range);
                }
                Step::New => self.begin_step(&range),
                Step::Divide { pivot, middle, next } => self.divide(&range, pivot, middle, next, units),
                Step::Measure { next, shared } => self.measure(pool, source, &range, next, shared, units),
                Step::Move { next, shared, bounds } => {
                    self.move_parts(pool, source, &range, (next, shared, bounds), units);
                }
            }
        }
        true
    }

    fn begin_step(&mut self, range: &Part) {
        let [least, most] = range.bounds;
        self.step = if least == most && least.1 == LONG {
            Step::Measure { next: range.from, shared: usize::MAX }
        } else {
            Step::Divide { pivot: self.pick(range), middle: range.from, next: range.from }
        };
    }

    /// The median of some entries. Entries of keys that go on behind the same 8 bytes stay together: the border is in
    /// front of all of them or, if these are the least, behind.
    fn pick(&self, range: &Part) -> u128 {
        let mut picked = [0; 15];
        let stride = range.len() / picked.len();
        for (at, picked) in picked.iter_mut().enumerate() {
            // Not at even distances, as there may be a pattern.
            let place = at * stride + (range.from + at).wrapping_mul(0x9e37_79b9) % stride;
            *picked = order(&self.entries[range.from + place]);
        }
        picked.sort_unstable();
        let median = picked[picked.len() / 2];
        match bound_of(median) {
            least if least == range.bounds[0] && least.1 == LONG => border(least.0, LONG + 1),
            (part, LONG) => border(part, LONG),
            _ => median,
        }
    }

    fn divide(&mut self, range: &Part, pivot: u128, middle: usize, next: usize, units: &mut u32) {
        let count = (range.to - next).min(*units as usize * DIVIDED as usize);
        *units -= (count as u32).div_ceil(DIVIDED);
        let entries = &mut self.entries[range.from..next + count];
        let (mut less, next) = (middle - range.from, next - range.from);
        // No branch depends on how they compare.
        for at in next..entries.len() {
            entries.swap(at, less);
            less += usize::from(order(&entries[less]) < pivot);
        }
        let (middle, next) = (range.from + less, range.from + next + count);
        if next < range.to {
            self.step = Step::Divide { pivot, middle, next };
            return;
        }
        let [least, most] = range.bounds;
        let bound = bound_of(pivot);
        self.step = Step::New;
        if range.from == middle {
            debug_assert!(least < bound, "it takes one more division to find the least");
            self.ranges.last_mut().expect("it is this range").bounds[0] = bound;
            return;
        }
        self.ranges.pop();
        if middle < range.to {
            self.ranges.push(Part { from: middle, bounds: [bound, most], ..*range });
        }
        let most = if bound.1 > LONG { least } else { bound };
        self.ranges.push(Part { to: middle, bounds: [least, most], ..*range });
    }

    /// Finds out how many bytes all keys of a range have in common.
    fn measure<S: KeySource>(
        &mut self,
        pool: &PagePool,
        source: &mut S,
        range: &Part,
        next: usize,
        shared: usize,
        units: &mut u32,
    ) {
        let count = (range.to - next).min(*units as usize / READ_UNITS as usize + 1);
        *units = units.saturating_sub(count as u32 * READ_UNITS);
        let (key, mut shared) = (&mut self.key, shared);
        let entries = &self.entries[next..range.to];
        shared_from(pool, source, entries, count, range.skip + PART_BYTES, key, &mut shared);
        let next = next + count;
        self.step = if next < range.to {
            Step::Measure { next, shared }
        } else {
            Step::Move { next: range.from, shared, bounds: NO_BOUNDS }
        };
    }

    /// Gives the entries of a range the 8 bytes behind those that their keys have in common.
    fn move_parts<S: KeySource>(
        &mut self,
        pool: &PagePool,
        source: &mut S,
        range: &Part,
        (next, shared, mut bounds): (usize, usize, [(u64, u32); 2]),
        units: &mut u32,
    ) {
        let count = (range.to - next).min(*units as usize / READ_UNITS as usize + 1);
        *units = units.saturating_sub(count as u32 * READ_UNITS);
        let first = if range.skip == 0 { self.entries[range.to - 1].part } else { range.first };
        for at in next..next + count {
            if let Some(later) = self.entries.get(at + ROWS_AHEAD) {
                source.prefetch(pool, later.row);
            }
            let entry = self.entries[at];
            source.keys(pool, entry.row, |key| {
                let length = ((key.len() - shared) as u32).min(LONG);
                let part = part_of(key, shared);
                self.entries[at] = Entry { part, ..entry.with_count_bits(length) };
            });
            let moved = self.entries[at];
            include(&mut bounds, (moved.part, moved.count()));
        }
        let next = next + count;
        if next < range.to {
            self.step = Step::Move { next, shared, bounds };
            return;
        }
        *self.ranges.last_mut().expect("it is this range") = Part { skip: shared, first, bounds, ..*range };
        self.step = Step::New;
    }

    /// Sorts a small range; returns what it costs in units.
    fn sort_at_once<S: KeySource>(&mut self, pool: &PagePool, source: &mut S, range: &Part) -> u32 {
        let EntrySorter { entries, scratch, .. } = self;
        let mut rest = &mut entries[range.from..range.to];
        rest.sort_unstable_by_key(order);
        let mut units = rest.len() as u32 / 2 + 1;
        while let Some(first) = rest.first() {
            let alike = (first.part, first.count());
            let length = rest.iter().take_while(|entry| (entry.part, entry.count()) == alike).count();
            let (run, behind) = rest.split_at_mut(length);
            if alike.1 == LONG && length > 1 {
                let known = range.skip + PART_BYTES;
                sort_run(pool, source, run, known, scratch).expect("scratch memory for a small range");
                units += length as u32 * 3 * READ_UNITS;
            }
            rest = behind;
        }
        units
    }

    /// Frees some of its memory; true if nothing is left.
    pub fn release_slice(&mut self) -> bool {
        let left = self.entries.capacity().saturating_sub(FREED);
        self.entries.truncate(left);
        self.entries.shrink_to(left);
        if left == 0 {
            self.entries = Vec::new();
        }
        left == 0
    }
}

/// Bounds of nothing.
const NO_BOUNDS: [(u64, u32); 2] = [(u64::MAX, u32::MAX), (0, 0)];

fn include(bounds: &mut [(u64, u32); 2], one: (u64, u32)) {
    bounds[0] = bounds[0].min(one);
    bounds[1] = bounds[1].max(one);
}

/// The order of entries of a range, as far as their 8 bytes decide it.
#[inline]
fn order(entry: &Entry) -> u128 {
    u128::from(entry.part) << 64 | u128::from(entry.count()) << 32 | u128::from(entry.row.0)
}

/// What is not before entries with these 8 bytes and so much of their keys.
fn border(part: u64, length: u32) -> u128 {
    u128::from(part) << 64 | u128::from(length) << 32
}

fn bound_of(order: u128) -> (u64, u32) {
    ((order >> 64) as u64, (order >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Complete keys are compared without their rows.
    struct NoRows;

    impl KeySource for NoRows {
        fn keys(&mut self, _: &PagePool, _: RowId, _: impl FnMut(&[u8])) {
            unreachable!("no row is read");
        }
    }

    #[test]
    fn any_number_of_entries_is_sorted_with_any_units() {
        let pool = PagePool::standalone(1);
        for (rows, units) in [(0, 1), (1, 1), (SMALL, 3), (SMALL + 1, 1), (20_000, 1), (20_000, 100_000)] {
            for pattern in [1, 7_919, 19_999] {
                let mut sorter = EntrySorter::new(rows).unwrap();
                let number = |row: usize| (row * pattern % rows) as u32 / 3;
                for row in 0..rows {
                    sorter.add(&number(row).to_be_bytes(), RowId(row as u32));
                }
                assert!(rows < 20_000 || sorter.is_ascending() == (pattern == 1));
                sorter.begin();
                let mut taken = Vec::new();
                loop {
                    taken.extend(sorter.take(&pool, &NoRows));
                    if !sorter.sort_some(&pool, &mut NoRows, &mut { units }) {
                        break;
                    }
                }
                let mut expected: Vec<(u32, u32)> = (0..rows).map(|row| (number(row), row as u32)).collect();
                expected.sort_unstable();
                let taken: Vec<(u32, u32)> =
                    taken.iter().map(|entry: &Entry| ((entry.part >> 32) as u32, entry.row.0)).collect();
                assert_eq!(taken, expected);
                while !sorter.release_slice() {}
                assert_eq!(sorter.heap_bytes(), 0);
            }
        }
    }
}
