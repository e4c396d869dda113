//! The index against a model, and tests of its edge cases.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::vec::Vec;

/// The distribution of the rows' hashes.
#[derive(Clone, Copy, Debug)]
enum Hashing {
    /// Like the hashes of keys.
    Good,
    /// Seven different values: chains of many lines.
    Few,
    /// One value.
    Same,
    /// The lowest bits are those of row 0, so that groups split with all entries on one side.
    Lopsided,
}

impl Hashing {
    fn hash(self, row: RowId) -> KeyHash {
        let good = KeyHash::of(&row.0.to_le_bytes()).0;
        KeyHash(match self {
            Hashing::Good => good,
            Hashing::Few => KeyHash::of(&(row.0 % 7).to_le_bytes()).0,
            Hashing::Same => 0x0123_4567_89ab_cdef,
            Hashing::Lopsided => good << 9,
        })
    }
}

/// An index beside the set of rows that must be in it.
struct Pair {
    pool: PagePool,
    index: HashIndex,
    model: BTreeSet<u32>,
    hashing: Hashing,
}

impl Pair {
    fn new(hashing: Hashing, pages: u32) -> Self {
        let pool = PagePool::standalone(pages);
        Pair { pool, index: HashIndex::new(), model: BTreeSet::new(), hashing }
    }

    /// Adds a row that is not in the index; returns whether there was memory.
    fn insert(&mut self, row: u32) -> bool {
        let Pair { pool, index, model, hashing } = self;
        let (row, pages) = (RowId(row), index.pages());
        assert!(model.insert(row.0));
        // A row that is to be inserted is readable, as in a fragment.
        let rehash = |_: &PagePool, row: RowId| {
            assert!(model.contains(&row.0), "only rows that exist are read");
            hashing.hash(row)
        };
        let result = index.insert(pool, Purpose::Ordinary, hashing.hash(row), row, rehash);
        if result.is_err() {
            assert!(index.pages() <= pages);
            model.remove(&row.0);
        }
        result.is_ok()
    }

    /// Removes a row that is there.
    fn remove(&mut self, row: u32) {
        let Pair { pool, index, model, hashing } = self;
        assert!(model.remove(&row));
        let rehash = |_: &PagePool, row: RowId| {
            assert!(model.contains(&row.0), "only rows that exist are read");
            hashing.hash(row)
        };
        index.remove(pool, hashing.hash(RowId(row)), RowId(row), rehash);
    }

    /// Rows of the candidates for a row's hash, sorted.
    fn candidates(&self, row: u32) -> Vec<u32> {
        let mut rows: Vec<u32> =
            self.index.candidates(&self.pool, self.hashing.hash(RowId(row))).map(|row| row.0).collect();
        rows.sort_unstable();
        rows
    }

    fn check(&self) {
        self.index.check(&self.pool, |_, row| self.hashing.hash(row));
        assert_eq!(self.index.len(), self.model.len() as u64);
        assert_eq!(self.index.is_empty(), self.model.is_empty());
        assert_eq!(self.pool.owned(), self.index.pages());
        assert!(self.index.memory_bytes() >= self.index.pages() as usize * PAGE_BYTES);
    }

    /// Checks that every row is found exactly once; all other candidates are rows of the index, too.
    fn check_candidates(&self, rows: impl Iterator<Item = u32>) {
        for row in rows {
            let found = self.candidates(row);
            assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "no row is a candidate twice");
            assert_eq!(found.binary_search(&row).is_ok(), self.model.contains(&row));
            assert!(found.iter().all(|row| self.model.contains(row)));
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Adds this many of the smallest rows that are not in the index.
    Grow(u32),
    /// Removes this many rows, those with the given stride first.
    Shrink(u32, u32),
    Clear,
}

fn phases() -> impl Strategy<Value = Vec<Phase>> {
    let phase = prop_oneof![
        6 => (1u32..12_000).prop_map(Phase::Grow),
        5 => (1u32..12_000, 1u32..100).prop_map(|(count, stride)| Phase::Shrink(count, stride)),
        1 => Just(Phase::Clear),
    ];
    prop::collection::vec(phase, 1..8)
}

fn run(pair: &mut Pair, phases: &[Phase], checked_every: u32) {
    let mut steps = 0u32;
    let mut step = |pair: &Pair| {
        steps += 1;
        if steps.is_multiple_of(checked_every) {
            pair.check();
        }
    };
    for &phase in phases {
        match phase {
            Phase::Grow(count) => {
                let absent = (0..).filter(|row| !pair.model.contains(row)).take(count as usize);
                for row in absent.collect::<Vec<u32>>() {
                    if !pair.insert(row) {
                        break;
                    }
                    step(pair);
                }
            }
            Phase::Shrink(count, stride) => {
                let present: Vec<u32> = pair.model.iter().copied().collect();
                let order = (0..stride as usize)
                    .flat_map(|first| present.iter().skip(first).step_by(stride as usize));
                for &row in order.take(count as usize) {
                    pair.remove(row);
                    step(pair);
                }
            }
            Phase::Clear => {
                pair.index.clear(&mut pair.pool);
                pair.model.clear();
            }
        }
        pair.check();
        pair.check_candidates((0..14_000).step_by(97));
    }
    let present: Vec<u32> = pair.model.iter().copied().collect();
    pair.check_candidates(present.iter().copied().step_by(5));
    for row in present {
        pair.remove(row);
    }
    pair.check();
    assert_eq!(pair.pool.owned(), 0, "an empty index has no pages");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn it_holds_what_the_model_holds(phases in phases()) {
        run(&mut Pair::new(Hashing::Good, 200), &phases, 997);
    }

    #[test]
    fn it_holds_what_the_model_holds_with_unlucky_hashes(phases in phases()) {
        run(&mut Pair::new(Hashing::Lopsided, 200), &phases, 1_999);
    }

    #[test]
    fn running_out_of_pages_changes_nothing(phases in phases(), pages in 0u32..7, lopsided: bool) {
        let hashing = if lopsided { Hashing::Lopsided } else { Hashing::Good };
        run(&mut Pair::new(hashing, pages), &phases, 997);
    }

    #[test]
    fn single_operations_in_any_order(operations in prop::collection::vec(0u32..60, 1..600), few: bool) {
        let mut pair = Pair::new(if few { Hashing::Few } else { Hashing::Same }, 20);
        for row in operations {
            if pair.model.contains(&row) {
                pair.remove(row);
            } else {
                assert!(pair.insert(row));
            }
            pair.check();
            pair.check_candidates(0..60);
        }
    }
}

#[test]
fn equal_hashes_grow_and_shrink() {
    for hashing in [Hashing::Same, Hashing::Few] {
        let mut pair = Pair::new(hashing, 200);
        for row in 0..10_000 {
            assert!(pair.insert(row));
        }
        pair.check();
        if matches!(hashing, Hashing::Same) {
            assert_eq!(pair.candidates(5), (0..10_000).collect::<Vec<u32>>());
        }
        for row in (0..10_000).rev().step_by(2).chain((0..10_000).step_by(2)) {
            pair.remove(row);
            if row % 499 == 0 {
                pair.check();
            }
        }
        pair.check();
        assert_eq!(pair.pool.owned(), 0);
    }
}

#[test]
fn every_single_step_of_two_doublings_keeps_the_invariants() {
    let mut pair = Pair::new(Hashing::Good, 20);
    let rows = 9_000;
    for row in 0..rows {
        assert!(pair.insert(row));
        if row % 8 == 0 && row > 4_000 {
            pair.check();
        }
    }
    let lines = pair.index.lines.len();
    assert!(lines > 2 * LINES_PER_PAGE);
    for row in 0..rows - 1 {
        pair.remove(row);
        if row % 7 == 0 {
            pair.check();
        }
    }
    assert_eq!(pair.index.lines.len(), LINES_PER_PAGE, "it has shrunk to the smallest");
}

#[test]
fn a_small_index_takes_one_page() {
    let mut pair = Pair::new(Hashing::Good, 3);
    for row in 0..2_000 {
        assert!(pair.insert(row));
    }
    for row in 0..1_999 {
        assert_eq!(pair.pool.owned(), 1);
        pair.remove(row);
    }
    assert_eq!(pair.pool.owned(), 1);
    pair.check();
}

#[test]
fn memory_and_overflow_are_as_calculated_at_all_sizes() {
    let mut pair = Pair::new(Hashing::Good, 200);
    for row in 0..400_000 {
        assert!(pair.insert(row));
        if row > 100_000 && row % 10_000 == 0 {
            let bytes = pair.index.memory_bytes() as f64 / f64::from(row);
            assert!((8.0..9.3).contains(&bytes), "{bytes} bytes a row at {row}");
            let overflow = f64::from(pair.index.overflow.len()) / f64::from(pair.index.lines.len());
            assert!((0.04..0.13).contains(&overflow), "{overflow} overflow lines a line at {row}");
        }
    }
    pair.check();
}

#[test]
fn a_refused_insert_can_be_repeated_when_there_is_memory() {
    let mut pair = Pair::new(Hashing::Good, 6);
    let mut other = Vec::new();
    let mut row = 0;
    while pair.insert(row) {
        row += 1;
    }
    assert!(row > 10_000, "five pages of lines and one of overflow lines: {row}");
    assert!(!pair.insert(row), "and again");
    pair.check();
    let before = pair.candidates(row);
    assert!(!before.contains(&row));
    pair.remove(0);
    while let Ok(page) = pair.pool.allocate(Purpose::Ordinary) {
        other.push(page);
    }
    assert!(pair.insert(0), "the place of a removed entry can be taken again");
    for row in 0..row {
        pair.remove(row);
        if row % 100 == 0 {
            pair.index.check(&pair.pool, |_, row| pair.hashing.hash(row));
        }
    }
    assert_eq!(pair.pool.owned() as usize, other.len());
}

#[test]
fn the_rows_of_a_step_are_named_before_it() {
    let mut pair = Pair::new(Hashing::Good, 50);
    let mut named = BTreeSet::new();
    let (mut read, mut missed) = (0, 0);
    for row in 0..20_000u32 {
        let Pair { pool, index, model, hashing } = &mut pair;
        model.insert(row);
        let rehash = |_: &PagePool, row: RowId| {
            read += 1;
            missed += u32::from(!named.contains(&row.0));
            hashing.hash(row)
        };
        let hash = hashing.hash(RowId(row));
        index.insert(pool, Purpose::Ordinary, hash, RowId(row), rehash).unwrap();
        index.prefetch(pool, hash);
        if index.inserts_until_step() == ENTRIES_PER_LINE_MAX - 1 {
            named.clear();
        }
        named.extend(index.rows_of_next_step(pool).map(|row| row.0));
    }
    assert!(read > 20_000, "{read}");
    // The missed rows were in overflow lines or were added after their line was named.
    assert!(missed * 10 < read, "{missed} of {read}");
}

#[test]
#[should_panic(expected = "in the index")]
fn removing_what_is_not_there_is_a_broken_invariant() {
    let mut pair = Pair::new(Hashing::Good, 5);
    pair.insert(1);
    pair.insert(2);
    pair.model.insert(3);
    pair.remove(3);
}
