//! Hash index schemes at several table sizes: bytes a row, speed, pauses, cache lines a lookup touches.
//!
//! All schemes index the same rows, eight fragments as in a node, from row ids to keys in the rows, so a split has to
//! read rows again. Each scheme grows through all sizes; at each size inserts and lookups are timed in batches of 64
//! with prefetch passes. Pauses are measured on one fragment, every insert timed alone: the same sequence is repeated,
//! and an insert counts with the median (and least) of its repetitions, because disturbances by the machine do not hit
//! the same insert each time.

use std::hint::black_box;
use std::time::Instant;

use crate::figure::Figure;
use crate::models::measuring::{Scale, figure, measure};
use crate::models::rows::{FRAGMENTS, Fragment, RowId, Rows, fragment_of, hash};

mod linear;
mod lines;
mod reference;
mod segments;

use linear::Classic;
pub(crate) use linear::{Linear, Partial};
pub(crate) use lines::Pages;
use reference::Reference;
use segments::Segments;

const REPETITIONS: u32 = 5;
const PAUSE_REPETITIONS: u32 = 7;
const BATCH: usize = 64;

/// A hash index over the rows of one fragment.
pub(crate) trait Scheme {
    /// Whether `find` counts the lines that it looks at.
    const COUNTS_LINES: bool = true;
    /// Adds an entry; the caller knows that it is new.
    fn insert(&mut self, pages: &mut Pages, hash: u64, row: RowId, rows: Fragment<'_>);
    /// First pass of a batch: prefetches the line of a hash.
    fn prefetch(&self, pages: &Pages, hash: u64);
    /// Second pass: the row that the line most likely means, to be prefetched.
    fn peek(&self, pages: &Pages, hash: u64) -> Option<RowId>;
    /// The entry for which `is_it` returns true, and the number of lines that were examined.
    fn find(&self, pages: &Pages, hash: u64, is_it: impl FnMut(RowId) -> bool) -> (Option<RowId>, u32);
    /// Memory in use.
    fn bytes(&self) -> usize;
}

/// Runs the measurements.
pub fn run(scale: Scale) -> Vec<Figure> {
    let sizes: &[(u64, &str)] = scale.pick(
        &[(300_000, "300k"), (400_000, "400k"), (500_000, "500k"), (600_000, "600k")],
        &[(6_000_000, "6M"), (8_000_000, "8M"), (10_000_000, "10M"), (12_000_000, "12M")],
    );
    let rows_max = sizes[sizes.len() - 1].0;
    let world = World {
        sizes,
        rows: Rows::with_keys(rows_max, fragment_of),
        one_fragment: Rows::with_keys(rows_max / FRAGMENTS as u64, |_| 0),
    };
    let mut figures = Vec::new();
    for (label, load_tenths) in [("classic_6", 60), ("classic_8", 80)] {
        figures.extend(world.ask(label, |pages| Linear::<Classic>::new(pages, load_tenths, true)));
    }
    for (label, load_tenths) in [("partial_8", 80), ("partial_8.5", 85), ("partial_9", 90)] {
        figures.extend(world.ask(label, |pages| Linear::<Partial>::new(pages, load_tenths, true)));
    }
    figures.extend(world.ask("partial_8_unprefetched", |pages| Linear::<Partial>::new(pages, 80, false)));
    figures.extend(world.ask("segments_64", Segments::<64>::new));
    figures.extend(world.ask("segments_16", Segments::<16>::new));
    figures.extend(world.ask("hashbrown", |_| Reference::default()));
    figures
}

/// The data for all schemes.
struct World {
    /// Numbers of rows with their names in figures, ascending.
    sizes: &'static [(u64, &'static str)],
    /// Rows spread over eight fragments.
    rows: Rows,
    /// An eighth of them, all in fragment 0.
    one_fragment: Rows,
}

impl World {
    fn rows_max(&self) -> u64 {
        self.sizes[self.sizes.len() - 1].0
    }

    /// Memory that is enough for every scheme: 16 bytes a row.
    fn pages(&self) -> Pages {
        Pages::new(self.rows_max() as usize * 16 / crate::models::rows::PAGE_BYTES + 16 * FRAGMENTS)
    }

    /// All figures of a scheme.
    fn ask<S: Scheme>(&self, label: &str, make: impl Fn(&mut Pages) -> S) -> Vec<Figure> {
        let figure = |metric: &str, size: &str, unit, samples: &[f64]| {
            figure(format!("spike.hash_index.{label}.{metric}.{size}"), unit, samples)
        };
        let mut index = Index::new(self.pages(), &make);
        let mut figures = Vec::new();
        for &(size, size_name) in self.sizes {
            let chunk = self.rows_max() / 120;
            index.grow_to(&self.rows, size - u64::from(REPETITIONS) * chunk);
            let (mut bytes, mut inserts) = (Vec::new(), Vec::new());
            for _ in 0..REPETITIONS {
                inserts.push(index.grow_to(&self.rows, index.rows + chunk));
                bytes.push(index.bytes() as f64 / index.rows as f64);
            }
            let (mut hits, mut misses) = (Vec::new(), Vec::new());
            for repetition in 0..u64::from(REPETITIONS) {
                let present = |i| hash(i ^ repetition << 32) % size;
                hits.push(index.beyond_first_line(&self.rows, (0..chunk).map(present)));
                misses.push(index.beyond_first_line(&self.rows, (0..chunk).map(|i| u64::MAX - present(i))));
            }
            let keys: Vec<u64> = (0..10 * chunk).map(|i| hash(i) % size).collect();
            let lookup = format!("spike.hash_index.{label}.lookup.{size_name}");
            figures.extend([
                figure("bytes_per_row", size_name, "B", &bytes),
                measure(lookup, "ns", REPETITIONS, || index.look_up(&self.rows, &keys)),
                figure("insert", size_name, "ns", &inserts),
            ]);
            if S::COUNTS_LINES {
                figures.push(figure("hits_beyond_first_line", size_name, "%", &hits));
                figures.push(figure("misses_beyond_first_line", size_name, "%", &misses));
            }
        }
        drop(index);
        figures.push(self.pause(label, make));
        figures
    }

    /// The longest insert into one fragment that grows from nothing. The figure's median is the longest of
    /// the inserts' medians, its minimum the longest of their minima, its maximum the longest ever seen.
    fn pause<S: Scheme>(&self, label: &str, make: impl Fn(&mut Pages) -> S) -> Figure {
        let count = self.rows_max() / FRAGMENTS as u64;
        let rows = self.one_fragment.fragment(0);
        let runs: Vec<Vec<u32>> = (0..PAUSE_REPETITIONS)
            .map(|_| {
                let mut pages = self.pages();
                let mut table = make(&mut pages);
                (0..count)
                    .map(|key| {
                        let start = Instant::now();
                        table.insert(&mut pages, hash(key), Rows::nth(key as u32), rows);
                        u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX)
                    })
                    .collect()
            })
            .collect();
        let mut longest = [0u32; 3];
        for insert in 0..count as usize {
            let mut times: Vec<u32> = runs.iter().map(|run| run[insert]).collect();
            times.sort_unstable();
            let summary = [times[0], times[times.len() / 2], times[times.len() - 1]];
            longest = std::array::from_fn(|i| longest[i].max(summary[i]));
        }
        let [min, median, max] = longest.map(|ns| f64::from(ns) / 1000.0);
        let name = format!("spike.hash_index.{label}.pause");
        Figure { min, median, max, repetitions: PAUSE_REPETITIONS, ..figure(name, "us", &[median]) }
    }
}

/// A scheme's tables for all fragments.
struct Index<S> {
    pages: Pages,
    tables: Vec<S>,
    rows_of: [u32; FRAGMENTS],
    rows: u64,
}

impl<S: Scheme> Index<S> {
    fn new(mut pages: Pages, make: impl Fn(&mut Pages) -> S) -> Self {
        let tables = (0..FRAGMENTS).map(|_| make(&mut pages)).collect();
        Self { pages, tables, rows_of: [0; FRAGMENTS], rows: 0 }
    }

    fn bytes(&self) -> usize {
        self.tables.iter().map(S::bytes).sum()
    }

    /// Inserts keys up to `size`; nanoseconds an insert.
    fn grow_to(&mut self, rows: &Rows, size: u64) -> f64 {
        let (first, start) = (self.rows, Instant::now());
        let mut batch = Vec::with_capacity(BATCH);
        while self.rows < size {
            let end = size.min(self.rows + BATCH as u64);
            batch.clear();
            batch.extend((self.rows..end).map(hash));
            for &hash in &batch {
                self.tables[fragment_of(hash)].prefetch(&self.pages, hash);
            }
            for &hash in &batch {
                let fragment = fragment_of(hash);
                let row = Rows::nth(self.rows_of[fragment]);
                self.rows_of[fragment] += 1;
                self.tables[fragment].insert(&mut self.pages, hash, row, rows.fragment(fragment));
            }
            self.rows = end;
        }
        start.elapsed().as_nanos() as f64 / (size - first) as f64
    }

    /// Looks all keys up in batches of three passes; nanoseconds a lookup.
    fn look_up(&self, rows: &Rows, keys: &[u64]) -> f64 {
        let start = Instant::now();
        let mut found = 0u64;
        for batch in keys.chunks(BATCH) {
            for &key in batch {
                let hash = hash(key);
                self.tables[fragment_of(hash)].prefetch(&self.pages, hash);
            }
            for &key in batch {
                let hash = hash(key);
                let fragment = fragment_of(hash);
                if let Some(row) = self.tables[fragment].peek(&self.pages, hash) {
                    rows.fragment(fragment).prefetch_key(row);
                }
            }
            for &key in batch {
                let (row, _) = self.find(rows, key);
                found += u64::from(row.is_some());
            }
        }
        assert_eq!(black_box(found), keys.len() as u64, "all keys are present");
        start.elapsed().as_nanos() as f64 / keys.len() as f64
    }

    #[inline(always)]
    fn find(&self, rows: &Rows, key: u64) -> (Option<RowId>, u32) {
        let hash = hash(key);
        let fragment = fragment_of(hash);
        let fragment_rows = rows.fragment(fragment);
        self.tables[fragment].find(&self.pages, hash, |row| fragment_rows.key(row) == key)
    }

    /// The percentage of the keys whose search examines more than one line.
    fn beyond_first_line(&self, rows: &Rows, keys: impl Iterator<Item = u64>) -> f64 {
        let (mut all, mut beyond) = (0u64, 0u64);
        for key in keys {
            all += 1;
            beyond += u64::from(self.find(rows, key).1 > 1);
        }
        100.0 * beyond as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds_what_was_inserted<S: Scheme>(make: impl Fn(&mut Pages) -> S) {
        let count = 100_000;
        let rows = Rows::with_keys(count, fragment_of);
        let mut index = Index::new(Pages::new(200), make);
        for size in [1, 1_000, 30_000, count] {
            index.grow_to(&rows, size);
            for key in 0..count {
                assert_eq!(index.find(&rows, key).0.is_some(), key < size, "key {key} of {size}");
            }
        }
        assert!((5.0..16.0).contains(&(index.bytes() as f64 / count as f64)), "{}", index.bytes());
    }

    #[test]
    fn every_scheme_finds_what_was_inserted() {
        finds_what_was_inserted(|pages| Linear::<Classic>::new(pages, 60, true));
        finds_what_was_inserted(|pages| Linear::<Classic>::new(pages, 80, false));
        finds_what_was_inserted(|pages| Linear::<Partial>::new(pages, 80, true));
        finds_what_was_inserted(|pages| Linear::<Partial>::new(pages, 110, true));
        finds_what_was_inserted(Segments::<64>::new);
        finds_what_was_inserted(Segments::<16>::new);
        finds_what_was_inserted(|_| Reference::default());
    }
}
