//! Sorting the entries of all rows of a fragment, some at a time.
//!
//! 1. Entries are [added](EntrySorter::add) in any order. Those that were added since the last time are
//!    [sorted](EntrySorter::sort_added) and become a *run*, or go on with the last run if they are behind it.
//! 2. The runs [enter](EntrySorter::enter_run) a tournament, one after the other.
//! 3. Entries are [taken](EntrySorter::take) in their order: always the first of all runs. The rest of its run is
//!    compared with the runs to which that one was compared before, one of each pair of runs, of two pairs, of four:
//!    the logarithm of the number of runs.
//!
//! Runs are compared by where their entries differ from the one that was taken last (`difference.rs`), which is known
//! without reading rows unless keys share their first 8 bytes, and hardly ever takes more than the rows of the run that
//! goes on.
//!
//! Memory comes from the heap: 16 bytes an entry, in chunks so that it can be freed some at a time, and 24 a run.

use super::bulk::sort_entries;
use super::cut::KeySource;
use super::difference::{Comparer, Difference};
use super::entry::Entry;
use alloc::vec::Vec;
use core::cmp::Ordering;
use vinga_base::page_pool::{OutOfPages, PagePool};

/// Entries of a chunk, the last one excepted: 512 KiB.
const CHUNK: usize = 1 << 15;

/// Some entries, in memory of their own.
pub type EntryChunk = Vec<Entry>;

/// Entries that are sorted: where they begin and end.
#[derive(Clone, Copy)]
struct Run {
    next: u32,
    end: u32,
}

/// A run in the tournament.
#[derive(Clone, Copy)]
struct Player {
    /// How the run's next entry differs from that of the run that has won against it last.
    difference: Difference,
    run: u32,
}

impl Player {
    const NOBODY: Player = Player { difference: Difference::END, run: u32::MAX };
}

/// Sorts entries of rows that have one version each.
pub struct EntrySorter {
    chunks: Vec<EntryChunk>,
    /// Entries that will be there at most.
    entries_max: usize,
    /// Entries in runs; those behind them are not sorted.
    sorted: usize,
    runs: Vec<Run>,
    /// Entries in runs whose row is before that of the entry before them.
    descents: usize,
    /// The first is the winner of all; `at` is where the winner of places `2 * at` and `2 * at + 1` has met the one that
    /// has lost to it. Runs are at the places behind the last. Empty before the tournament.
    players: Vec<Player>,
    /// Runs that have entered the tournament.
    entered: usize,
    comparer: Comparer,
}

impl EntrySorter {
    /// A sorter for at most so many entries.
    pub fn new(entries_max: usize) -> Self {
        EntrySorter {
            chunks: Vec::new(),
            entries_max,
            sorted: 0,
            runs: Vec::new(),
            descents: 0,
            players: Vec::new(),
            entered: 0,
            comparer: Comparer::default(),
        }
    }

    /// The heap memory that it needs at most for so many entries in runs of so many, apart from the buffers of keys.
    pub const fn bytes_max(entries: u64, in_run: u64) -> u64 {
        let runs = entries / in_run + 1;
        entries * size_of::<Entry>() as u64 + runs * (size_of::<Run>() + size_of::<Player>()) as u64
    }

    /// The heap memory that it has.
    pub fn heap_bytes(&self) -> u64 {
        let chunks: usize = self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<Entry>()).sum();
        let runs = self.runs.capacity() * size_of::<Run>();
        (chunks + runs + self.players.capacity() * size_of::<Player>()) as u64
    }

    /// Entries.
    fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`OutOfPages`] when there is no heap memory.
    ///
    /// # Panics
    /// If there are more than was said, or the tournament has begun.
    #[inline]
    pub fn add(&mut self, entry: Entry) -> Result<(), OutOfPages> {
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < chunk.capacity().min(CHUNK) => chunk.push(entry),
            _ => self.add_chunk(entry)?,
        }
        Ok(())
    }

    fn add_chunk(&mut self, entry: Entry) -> Result<(), OutOfPages> {
        assert!(self.len() < self.entries_max, "no more entries than were said");
        assert!(self.players.is_empty(), "entries are complete before they are merged");
        let mut chunk = Vec::new();
        let length = CHUNK.min(self.entries_max - self.len());
        chunk.try_reserve_exact(length).map_err(|_| OutOfPages)?;
        self.chunks.try_reserve(1).map_err(|_| OutOfPages)?;
        chunk.push(entry);
        self.chunks.push(chunk);
        Ok(())
    }

    /// Entries that were added since they were sorted last.
    pub fn added(&self) -> usize {
        self.len() - self.sorted
    }

    /// Sorts what was added since the last time.
    ///
    /// # Errors
    /// [`OutOfPages`] when there is no heap memory; then nothing else can be done with it.
    pub fn sort_added<S: KeySource>(&mut self, pool: &PagePool, source: &mut S) -> Result<(), OutOfPages> {
        let len = self.len();
        while self.sorted < len {
            let chunk = self.sorted / CHUNK;
            let from = self.sorted % CHUNK;
            let added = &mut self.chunks[chunk][from..];
            let end = self.sorted + added.len();
            sort_entries(pool, source, added)?;
            self.descents += added.windows(2).filter(|pair| pair[1].row < pair[0].row).count();
            self.end_run(pool, source, end)?;
        }
        Ok(())
    }

    /// What is sorted up to `end` becomes a run.
    fn end_run<S: KeySource>(
        &mut self,
        pool: &PagePool,
        source: &mut S,
        end: usize,
    ) -> Result<(), OutOfPages> {
        let begin = self.sorted;
        self.sorted = end;
        if let Some(last) = self.runs.last_mut() {
            let entry = |at: usize| self.chunks[at / CHUNK][at % CHUNK];
            let (order, _) = self.comparer.compare(pool, source, &entry(begin - 1), &entry(begin));
            if order.is_le() {
                last.end = end as u32;
                return Ok(());
            }
            self.descents += 1;
        }
        self.runs.try_reserve(1).map_err(|_| OutOfPages)?;
        self.runs.push(Run { next: begin as u32, end: end as u32 });
        Ok(())
    }

    /// Whether keys ascend with the rows, in stretches at least: of entries that are neighbours, of those that were sorted
    /// at once, three in four are of rows in the same order. (If there was no order, it would be half of them.) Inserts
    /// in the order of the rows would fill most nodes to the brim then.
    pub fn ascends_with_rows(&self) -> bool {
        self.descents * 4 <= self.sorted
    }

    /// Begins the tournament when all entries are sorted.
    ///
    /// # Errors
    /// [`OutOfPages`] when there is no heap memory.
    pub fn begin_tournament(&mut self) -> Result<(), OutOfPages> {
        debug_assert_eq!(self.added(), 0);
        self.players.try_reserve_exact(self.runs.len()).map_err(|_| OutOfPages)?;
        self.players.resize(self.runs.len(), Player::NOBODY);
        Ok(())
    }

    /// The next run enters the tournament; false if all have.
    pub fn enter_run<S: KeySource>(&mut self, pool: &PagePool, source: &mut S) -> bool {
        let Some(run) = self.runs.get(self.entered) else { return false };
        let difference = Difference::from_nothing(&self.entry(run.next));
        let player = Player { difference, run: self.entered as u32 };
        self.entered += 1;
        self.play(pool, source, player);
        true
    }

    /// Takes the first entry of those that are left. All runs have entered the tournament.
    #[inline]
    pub fn take<S: KeySource>(&mut self, pool: &PagePool, source: &mut S) -> Option<Entry> {
        let &Player { difference, run } = self.players.first()?;
        if difference == Difference::END {
            return None;
        }
        let Run { next, end } = &mut self.runs[run as usize];
        let taken = *next;
        *next += 1;
        let is_last = *next == *end;
        let entry = self.entry(taken);
        let mut difference = Difference::END;
        if !is_last {
            let following = self.entry(taken + 1);
            difference = self.comparer.compare(pool, source, &entry, &following).1;
        }
        self.play(pool, source, Player { difference, run });
        Some(entry)
    }

    /// A run with a new entry meets all that were compared with the winner on its way.
    #[inline]
    fn play<S: KeySource>(&mut self, pool: &PagePool, source: &mut S, mut player: Player) {
        let mut at = (self.players.len() + player.run as usize) / 2;
        while at > 0 {
            let other = self.players[at];
            if other.run == u32::MAX {
                // The other half has not entered yet.
                self.players[at] = player;
                return;
            }
            let mut order = other.difference.cmp(&player.difference);
            let mut lost = if order.is_lt() { player } else { other };
            if order.is_eq() && player.difference != Difference::END {
                let (left, right) = (self.next_of(other), self.next_of(player));
                let same = player.difference;
                (order, lost.difference) = self.comparer.compare_further(pool, source, &left, &right, same);
                lost.run = if order == Ordering::Less { player.run } else { other.run };
            }
            if order.is_lt() {
                player = other;
            }
            self.players[at] = lost;
            at /= 2;
        }
        self.players[0] = player;
    }

    fn next_of(&self, player: Player) -> Entry {
        self.entry(self.runs[player.run as usize].next)
    }

    #[inline]
    fn entry(&self, at: u32) -> Entry {
        self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }

    /// Its memory, to be freed chunk by chunk.
    pub fn into_chunks(self) -> Vec<EntryChunk> {
        self.chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_base::RowId;

    /// Complete keys are compared without their rows.
    struct NoRows;

    impl KeySource for NoRows {
        fn keys(&mut self, _: &PagePool, _: RowId, _: impl FnMut(&[u8])) {
            unreachable!("no row is read");
        }
    }

    fn entry(number: u32, row: u32) -> Entry {
        Entry::new(&number.to_be_bytes(), RowId(row))
    }

    #[test]
    fn runs_that_follow_each_other_are_one() {
        let pool = PagePool::standalone(1);
        let mut sorter = EntrySorter::new(100_000);
        for row in 0..100_000u32 {
            sorter.add(entry(row - row % 7, row)).unwrap();
            if row % 300 == 0 {
                sorter.sort_added(&pool, &mut NoRows).unwrap();
            }
        }
        sorter.sort_added(&pool, &mut NoRows).unwrap();
        assert_eq!((sorter.runs.len(), sorter.chunks.len(), sorter.len()), (1, 4, 100_000));
        assert!(sorter.ascends_with_rows());
        sorter.begin_tournament().unwrap();
        while sorter.enter_run(&pool, &mut NoRows) {}
        for row in 0..100_000 {
            assert_eq!(sorter.take(&pool, &mut NoRows), Some(entry(row - row % 7, row)));
        }
        assert_eq!(sorter.take(&pool, &mut NoRows), None);
        assert!(sorter.heap_bytes() <= EntrySorter::bytes_max(100_000, 300));
    }

    #[test]
    fn any_number_of_runs_is_merged() {
        let pool = PagePool::standalone(1);
        for runs in [0, 1, 2, 3, 5, 8, 13, 100] {
            let mut sorter = EntrySorter::new(runs as usize * 4);
            for run in 0..runs {
                for row in [2, 0, 3, 1].map(|at| at * 100 + (runs - run)) {
                    sorter.add(entry(row / 3, row)).unwrap();
                }
                sorter.sort_added(&pool, &mut NoRows).unwrap();
            }
            assert_eq!(sorter.runs.len(), runs as usize);
            sorter.begin_tournament().unwrap();
            while sorter.enter_run(&pool, &mut NoRows) {}
            let taken: Vec<u32> =
                core::iter::from_fn(|| sorter.take(&pool, &mut NoRows)).map(|entry| entry.row.0).collect();
            assert_eq!(taken.len(), runs as usize * 4);
            assert!(taken.is_sorted(), "{taken:?}");
            let chunks = sorter.into_chunks();
            assert_eq!(chunks.len(), usize::from(runs > 0));
        }
    }
}
