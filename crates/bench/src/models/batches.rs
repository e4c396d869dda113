//! Key lookups in batches, with prefetch passes and without.
//!
//! One fragment of a million rows. With passes, a batch is processed three times: the first pass prefetches the index
//! lines, the second looks into them and prefetches the rows, the third is the ordinary lookup and copies the columns
//! out, as an answer to a client would. Without passes, only the third is done. A row of 124 bytes mostly lies on three
//! cache lines: passes that prefetch two of them and all are compared.

use std::hint::black_box;
use std::time::Instant;

use crate::figure::Figure;
use crate::models::hash_index::{Linear, Pages, Partial, Scheme};
use crate::models::measuring::{Scale, measure};
use crate::models::rows::{KEY_OFFSET, ROW_BYTES, Rows, hash};

const REPETITIONS: u32 = 7;
const ROWS: u64 = 1_000_000;
const COLUMNS_BYTES: usize = ROW_BYTES - KEY_OFFSET;

/// Runs the measurement.
pub fn run(scale: Scale) -> Vec<Figure> {
    let table = Table::new(scale.pick(ROWS / 10, ROWS));
    let keys: Vec<u64> = (0..scale.pick(100_000, 1_000_000)).map(|i| hash(i) % table.count).collect();
    let mut figures = Vec::new();
    for batch in [1, 4, 16, 32, 64, 128] {
        for (passes, suffix) in
            [(Passes::None, "plain"), (Passes::TwoLines, "two_lines"), (Passes::AllLines, "")]
        {
            let name = format!("spike.lookup.batch{batch}.{suffix}").trim_end_matches('.').to_owned();
            figures.push(measure(name, "ns", REPETITIONS, || table.look_up(&keys, batch, passes)));
        }
    }
    figures
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Passes {
    None,
    TwoLines,
    AllLines,
}

struct Table {
    count: u64,
    rows: Rows,
    pages: Pages,
    index: Linear<Partial>,
}

impl Table {
    fn new(count: u64) -> Self {
        let rows = Rows::with_keys(count, |_| 0);
        let mut pages = Pages::new(count as usize * 10 / crate::models::rows::PAGE_BYTES + 8);
        let mut index = Linear::new(&mut pages, 80, true);
        for key in 0..count {
            index.insert(&mut pages, hash(key), Rows::nth(key as u32), rows.fragment(0));
        }
        Self { count, rows, pages, index }
    }

    /// Nanoseconds a lookup.
    fn look_up(&self, keys: &[u64], batch: usize, passes: Passes) -> f64 {
        let mut answers = vec![[0; COLUMNS_BYTES]; batch];
        let start = Instant::now();
        for keys in keys.chunks(batch) {
            if passes != Passes::None {
                for &key in keys {
                    self.index.prefetch(&self.pages, hash(key));
                }
                for &key in keys {
                    if let Some(row) = self.index.peek(&self.pages, hash(key)) {
                        self.rows.fragment(0).prefetch_row(row, passes == Passes::AllLines);
                    }
                }
            }
            for (answer, &key) in answers.iter_mut().zip(keys) {
                self.read(key, answer);
            }
            black_box(&mut answers);
        }
        start.elapsed().as_nanos() as f64 / keys.len() as f64
    }

    /// Copies a row's columns, key first, into an answer.
    #[inline(always)]
    fn read(&self, key: u64, answer: &mut [u8; COLUMNS_BYTES]) {
        let rows = self.rows.fragment(0);
        let (row, _) = self.index.find(&self.pages, hash(key), |row| rows.key(row) == key);
        let row = row.expect("all keys are present");
        answer.copy_from_slice(&rows.row(row)[KEY_OFFSET..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_hold_the_rows() {
        let table = Table::new(10_000);
        let mut answer = [0; COLUMNS_BYTES];
        for key in 0..table.count {
            table.read(key, &mut answer);
            assert_eq!(answer[..8], key.to_le_bytes());
            assert!(answer[8..].iter().all(|&byte| byte == key as u8));
        }
    }

    #[test]
    fn all_ways_read_all_keys() {
        let table = Table::new(1_000);
        let keys: Vec<u64> = (0..1_000).collect();
        for passes in [Passes::None, Passes::TwoLines, Passes::AllLines] {
            assert!(table.look_up(&keys, 16, passes) > 0.0);
        }
    }
}
