//! The hash index of one fragment: from the hash of a key to the rows that may have it.
//!
//! ## Format
//! The index is an array of *lines*: 64 bytes, 12 entries of an 8-bit tag and a 32-bit row id, and a link (see
//! `hash_index/line.rs`). Lines lie in pages of the pool: line n is line n % 512 of the array's page n / 512. Of a
//! hash, bits 40–47 are the tag (0 is written as 1, because 0 marks a free place) and bits 0–39 choose the line;
//! neither the hash nor the key is stored, so whoever searches compares keys in the rows.
//!
//! Which line a hash belongs to, its *home*, is decided by linear hashing with partial expansions
//! (`hash_index/addressing.rs`). The array grows by one line when there are more than 8 entries a line, and shrinks by
//! one when there are fewer than 7. Either is one *step*, which places the entries of one group of at most four lines
//! and their overflow lines anew; no insert and no removal does more than one. The smallest array that has entries is
//! one page; without entries there is no page.
//!
//! Entries that find no place in their home go to *overflow lines*, in an array of their own, numbered in it from 0:
//!
//! ```text
//!   home ──link──► newest overflow line ──link──► older ──link──► oldest
//!   full           1 to 12 entries                full            full
//! ```
//!
//! A home with a link is full, and only the newest overflow line may have free places. So inserting looks at two lines
//! and the place of a removed entry is filled from the newest overflow line, however long the chain is: rows with equal
//! hashes make it long and nothing can make it shorter. The overflow array has no gaps: the line that leaves is
//! replaced by the last one, whose chain is found through the hash of one of its rows.
//!
//! ## Rows are read again
//! A step may need hashes, which only the rows still know: `rehash` gives them. All rows in the index must be readable
//! whenever the index is changed. The rows that the next growing step will ask for are known before it:
//! [`HashIndex::rows_of_next_step`] names a few of them after each insert, so that they can be loaded meanwhile.
//!
//! ## Running out of memory
//! An insert takes the pages that it and its step may need before it changes anything. A removal always succeeds: a
//! shrinking step that can get no page for overflow lines is left for the next removal.

mod addressing;
mod line;
mod line_array;
#[cfg(test)]
mod tests;

use addressing::{Addressing, Step};
use line::{ENTRIES, Entry, LINE_BYTES, Line, tag_of};
use line_array::{LINES_PER_PAGE, LineArray};
use vinga_base::RowId;
use vinga_base::hash::KeyHash;
use vinga_base::page_pool::{OutOfPages, PAGE_BYTES, PagePool, Purpose};

/// More entries a line than this on average make the array grow.
const ENTRIES_PER_LINE_MAX: u64 = 8;
/// Fewer entries a line than this on average make the array shrink. The distance to the maximum keeps inserts and
/// removals that take turns from moving the same entries to and fro.
const ENTRIES_PER_LINE_MIN: u64 = 7;
/// Overflow lines that a step may take beyond those that it has freed before. It empties one line after the other;
/// what came out of s homes and f overflow lines fills fewer than s + f overflow lines, wherever it goes, and s is at
/// most four.
const STEP_OVERFLOW_LINES: u32 = 3;
/// Overflow lines for which room is kept when pages go back, so that a page does not come and go with one line.
const SPARE_OVERFLOW_LINES: u32 = LINES_PER_PAGE / 8;
/// Lines of the largest group.
const LINES_OF_GROUP_MAX: usize = 4;
/// How many inserts before a growing step the lines of its group are loaded.
const PREFETCH_LINES_AT: u64 = 6;
/// From how many inserts before it on the rows in those lines are named, one line's rows an insert.
const PREFETCH_ROWS_FROM: u64 = 4;

/// See the head of this file.
pub struct HashIndex {
    addressing: Addressing,
    /// Invariant: as many lines as `addressing` says, or none when there are no entries.
    lines: LineArray,
    overflow: LineArray,
    entries: u64,
}

impl HashIndex {
    /// An index without entries and pages.
    pub fn new() -> Self {
        HashIndex {
            addressing: Addressing::SMALLEST,
            lines: LineArray::default(),
            overflow: LineArray::default(),
            entries: 0,
        }
    }

    /// Starts to load the line that a search for this hash reads first.
    #[inline]
    pub fn prefetch(&self, pool: &PagePool, hash: KeyHash) {
        if self.entries > 0 {
            self.lines.prefetch(pool, self.addressing.line_of(hash));
        }
    }

    /// The rows whose hash has the same home and the same tag: all that have this hash, and a few others.
    #[inline]
    pub fn candidates<'a>(&'a self, pool: &'a PagePool, hash: KeyHash) -> Candidates<'a> {
        let line = match self.entries {
            0 => Line(&[0; LINE_BYTES]),
            _ => self.lines.line(pool, self.addressing.line_of(hash)),
        };
        let tag = tag_of(hash);
        Candidates { overflow: &self.overflow, pool, line, tag, matches: line.matches(tag) }
    }

    /// Adds a row. Rows with equal hashes are different entries; the same row is not added twice.
    ///
    /// # Errors
    /// [`OutOfPages`], and the index is as it was.
    pub fn insert(
        &mut self,
        pool: &mut PagePool,
        purpose: Purpose,
        hash: KeyHash,
        row: RowId,
        rehash: impl FnMut(&PagePool, RowId) -> KeyHash,
    ) -> Result<(), OutOfPages> {
        let grows = self.entries + 1 > u64::from(self.addressing.lines()) * ENTRIES_PER_LINE_MAX;
        let entry = Entry { tag: tag_of(hash), row };
        let home = self.addressing.line_of(hash);
        // The common case first: there is room, and nothing else to do.
        if grows || self.entries == 0 || !self.lines.line_mut(pool, home).push(entry) {
            self.reserve(pool, purpose, home, grows)?;
            self.push(pool, home, entry, &mut None);
        }
        self.entries += 1;
        if grows {
            self.lines.push(pool);
            let step = self.addressing.grow();
            self.rearrange(pool, step, rehash);
        } else if self.inserts_until_step() == PREFETCH_LINES_AT {
            let step = self.addressing.next_step();
            (0..step.from).for_each(|position| self.lines.prefetch(pool, step.line(position)));
        }
        Ok(())
    }

    /// Removes a row that was added with this hash; it may be gone from the rows already, all others must be there.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn remove(
        &mut self,
        pool: &mut PagePool,
        hash: KeyHash,
        row: RowId,
        mut rehash: impl FnMut(&PagePool, RowId) -> KeyHash,
    ) {
        assert!(self.entries > 0, "only a row that is in the index can be removed");
        if self.entries == 1 {
            assert!(
                self.candidates(pool, hash).any(|candidate| candidate == row),
                "the last entry is this one"
            );
            self.clear(pool);
            return;
        }
        self.take_out(pool, hash, row, &mut rehash);
        self.entries -= 1;
        if self.entries < u64::from(self.addressing.lines()) * ENTRIES_PER_LINE_MIN {
            self.shrink(pool, rehash);
        }
        self.overflow.trim(pool, if self.overflow.len() == 0 { 0 } else { SPARE_OVERFLOW_LINES });
    }

    /// Number of entries.
    #[inline]
    pub fn len(&self) -> u64 {
        self.entries
    }

    /// Whether there are no entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Pages of the pool that the index holds.
    pub fn pages(&self) -> u32 {
        self.lines.pages() + self.overflow.pages()
    }

    /// Bytes of memory: whole pages, and the lists of them on the heap.
    pub fn memory_bytes(&self) -> usize {
        self.pages() as usize * PAGE_BYTES + self.lines.heap_bytes() + self.overflow.heap_bytes()
    }

    /// Forgets all entries and gives all pages back.
    pub fn clear(&mut self, pool: &mut PagePool) {
        self.lines.clear(pool);
        self.overflow.clear(pool);
        self.addressing = Addressing::SMALLEST;
        self.entries = 0;
    }

    /// Some of the rows that the next growing step will read; mostly none. Who loads them after each insert finds all
    /// but a few in the caches when the step comes.
    #[inline]
    pub fn rows_of_next_step<'a>(&self, pool: &'a PagePool) -> impl Iterator<Item = RowId> + use<'a> {
        let step = self.addressing.next_step();
        let position = PREFETCH_ROWS_FROM.wrapping_sub(self.inserts_until_step());
        let line =
            (position < u64::from(step.from) && step.needs_hashes(position as u32) && self.entries > 0)
                .then(|| self.lines.line(pool, step.line(position as u32)));
        line.into_iter().flat_map(|line| (0..line.len()).map(move |place| line.row(place)))
    }
}

impl Default for HashIndex {
    fn default() -> Self {
        Self::new()
    }
}

/// The rows that a search has to look at.
pub struct Candidates<'a> {
    overflow: &'a LineArray,
    pool: &'a PagePool,
    line: Line<&'a [u8; LINE_BYTES]>,
    tag: u8,
    /// Places of the line that are still to be returned.
    matches: u32,
}

impl Iterator for Candidates<'_> {
    type Item = RowId;

    #[inline]
    fn next(&mut self) -> Option<RowId> {
        while self.matches == 0 {
            self.line = self.overflow.line(self.pool, self.line.link()?);
            self.matches = self.line.matches(self.tag);
        }
        let place = self.matches.trailing_zeros() as usize;
        self.matches &= self.matches - 1;
        Some(self.line.row(place))
    }
}

/// Changing chains of lines.
impl HashIndex {
    /// Inserts that are possible before one makes the array grow.
    #[inline]
    fn inserts_until_step(&self) -> u64 {
        (u64::from(self.addressing.lines()) * ENTRIES_PER_LINE_MAX).saturating_sub(self.entries)
    }

    /// Takes the pages that an insert, and the step that it brings about, may need.
    fn reserve(
        &mut self,
        pool: &mut PagePool,
        purpose: Purpose,
        home: u32,
        grows: bool,
    ) -> Result<(), OutOfPages> {
        if self.entries == 0 {
            self.lines.reserve(pool, purpose, LINES_PER_PAGE)?;
            for _ in 0..self.addressing.lines() {
                self.lines.push(pool);
            }
        } else if grows {
            self.overflow.reserve(pool, purpose, 1 + STEP_OVERFLOW_LINES)?;
            self.lines.reserve(pool, purpose, 1).inspect_err(|_| self.overflow.trim(pool, 0))?;
        } else if self.is_chain_full(pool, home) {
            self.overflow.reserve(pool, purpose, 1)?;
        }
        Ok(())
    }

    /// Whether an entry more needs an overflow line more.
    #[inline]
    fn is_chain_full(&self, pool: &PagePool, home: u32) -> bool {
        let line = self.lines.line(pool, home);
        line.is_full() && line.link().is_none_or(|newest| self.overflow.line(pool, newest).is_full())
    }

    /// Adds an entry to the chain of a home. An overflow line comes from `spare` if that has one, else from the array,
    /// where there is a page for it.
    #[inline]
    fn push(&mut self, pool: &mut PagePool, home: u32, entry: Entry, spare: &mut Option<u32>) {
        let mut line = self.lines.line_mut(pool, home);
        if !line.push(entry) {
            let newest = line.link();
            self.push_overflow(pool, home, newest, entry, spare);
        }
    }

    fn push_overflow(
        &mut self,
        pool: &mut PagePool,
        home: u32,
        newest: Option<u32>,
        entry: Entry,
        spare: &mut Option<u32>,
    ) {
        if newest.is_some_and(|newest| self.overflow.line_mut(pool, newest).push(entry)) {
            return;
        }
        let added = match *spare {
            Some(number) => {
                *spare = self.overflow.line(pool, number).link();
                number
            }
            None => self.overflow.push(pool),
        };
        let mut line = self.overflow.line_mut(pool, added);
        line.set_link(newest);
        line.push(entry);
        self.lines.line_mut(pool, home).set_link(Some(added));
    }

    /// Removes an entry and fills its place.
    fn take_out(
        &mut self,
        pool: &mut PagePool,
        hash: KeyHash,
        row: RowId,
        rehash: impl FnMut(&PagePool, RowId) -> KeyHash,
    ) {
        let home = self.addressing.line_of(hash);
        let entry = Entry { tag: tag_of(hash), row };
        let line = self.lines.line(pool, home);
        let newest = line.link();
        let (mut at, mut place, mut next) = (None, line.find(entry), newest);
        while place.is_none() {
            let number = next.expect("only a row that is in the index can be removed");
            let line = self.overflow.line(pool, number);
            (at, place, next) = (next, line.find(entry), line.link());
        }
        let place = place.expect("the search ends with a place");
        let last = match newest {
            Some(newest) => self.overflow.line_mut(pool, newest).pop(),
            None => self.lines.line_mut(pool, home).pop(),
        };
        // If the entry was itself the last of the line that was popped, it is gone.
        if last != entry {
            match at {
                Some(number) => self.overflow.line_mut(pool, number).set(place, last),
                None => self.lines.line_mut(pool, home).set(place, last),
            }
        }
        if let Some(newest) = newest
            && self.overflow.line(pool, newest).is_empty()
        {
            let mut line = self.overflow.line_mut(pool, newest);
            let older = line.link();
            line.set_link(None);
            self.lines.line_mut(pool, home).set_link(older);
            self.free_overflow(pool, Some(newest), rehash);
        }
    }

    /// Makes the array one line shorter, if memory allows it and it is not the smallest.
    fn shrink(&mut self, pool: &mut PagePool, rehash: impl FnMut(&PagePool, RowId) -> KeyHash) {
        let mut addressing = self.addressing;
        let Some(step) = addressing.shrink() else { return };
        // Removals go on when memory is full, so this may use what is kept back for them.
        if self.overflow.reserve(pool, Purpose::Reserved, STEP_OVERFLOW_LINES).is_err() {
            return;
        }
        self.addressing = addressing;
        self.rearrange(pool, step, rehash);
        self.lines.pop();
        self.lines.trim(pool, 0);
    }

    /// Places the entries of a group anew, as the addressing has it after the step.
    fn rearrange(
        &mut self,
        pool: &mut PagePool,
        step: Step,
        mut rehash: impl FnMut(&PagePool, RowId) -> KeyHash,
    ) {
        // All homes are emptied, and their rows read, before any entry is placed: so the misses overlap.
        let mut homes = [Line::EMPTY; LINES_OF_GROUP_MAX];
        let mut hashes = [[KeyHash(0); ENTRIES]; LINES_OF_GROUP_MAX];
        for position in 0..step.from {
            let (home, hashes) = (&mut homes[position as usize], &mut hashes[position as usize]);
            let line = self.lines.line_mut(pool, step.line(position));
            *home = Line(core::mem::replace(line.0, Line::EMPTY.0));
            if step.needs_hashes(position) {
                for (hash, entry) in hashes.iter_mut().zip(home.entries()) {
                    *hash = rehash(pool, entry.row);
                }
            }
        }
        let overflow_before = self.overflow.len();
        let mut spare = None;
        let mut lengths = [0; LINES_OF_GROUP_MAX];
        for position in 0..step.from {
            let (home, hashes) = (&homes[position as usize], &hashes[position as usize]);
            for (entry, &hash) in home.entries().zip(hashes) {
                let destination = step.destination(position, entry.tag, || hash);
                let (line, length) = (step.line(destination), &mut lengths[destination as usize]);
                if *length < ENTRIES {
                    self.lines.line_mut(pool, line).set(*length, entry);
                    *length += 1;
                } else {
                    self.push(pool, line, entry, &mut spare);
                }
            }
        }
        for position in 0..step.from {
            let mut next = homes[position as usize].link();
            while let Some(number) = next {
                let mut emptied = self.overflow.line_mut(pool, number);
                let line = Line(core::mem::replace(emptied.0, Line::EMPTY.0));
                emptied.set_link(spare);
                spare = Some(number);
                for entry in line.entries() {
                    let destination = step.destination(position, entry.tag, || rehash(pool, entry.row));
                    self.push(pool, step.line(destination), entry, &mut spare);
                }
                next = line.link();
            }
        }
        let taken = self.overflow.len() - overflow_before;
        assert!(taken <= STEP_OVERFLOW_LINES, "a step takes no more than was reserved for it, but {taken}");
        self.free_overflow(pool, spare, rehash);
    }

    /// Closes the gaps that a list of overflow lines leaves. They are empty and linked with each other, and all other
    /// lines are where they belong.
    fn free_overflow(
        &mut self,
        pool: &mut PagePool,
        mut list: Option<u32>,
        mut rehash: impl FnMut(&PagePool, RowId) -> KeyHash,
    ) {
        while let Some(gap) = list {
            list = self.overflow.line(pool, gap).link();
            // Only lines of the list are empty, and they may be the last ones.
            while let Some(last) = self.overflow.len().checked_sub(1)
                && self.overflow.line(pool, last).is_empty()
            {
                self.overflow.pop();
            }
            if gap < self.overflow.len() {
                self.move_last_overflow(pool, gap, &mut rehash);
            }
        }
    }

    /// Moves the last overflow line, which has entries, to a gap before it.
    fn move_last_overflow(
        &mut self,
        pool: &mut PagePool,
        gap: u32,
        rehash: impl FnOnce(&PagePool, RowId) -> KeyHash,
    ) {
        let last = self.overflow.len() - 1;
        let line = Line(*self.overflow.line(pool, last).0);
        let home = self.addressing.line_of(rehash(pool, line.row(0)));
        let mut before = None;
        let mut next = self.lines.line(pool, home).link();
        while next != Some(last) {
            before = next;
            let number = next.expect("an overflow line hangs on the home of its entries");
            next = self.overflow.line(pool, number).link();
        }
        *self.overflow.line_mut(pool, gap).0 = line.0;
        match before {
            Some(number) => self.overflow.line_mut(pool, number).set_link(Some(gap)),
            None => self.lines.line_mut(pool, home).set_link(Some(gap)),
        }
        self.overflow.pop();
    }

    /// Stops on the first broken invariant: for tests, and for whoever suspects memory. It reads every row.
    ///
    /// # Panics
    /// When something is not as the head of this file says.
    pub fn check(&self, pool: &PagePool, mut rehash: impl FnMut(&PagePool, RowId) -> KeyHash) {
        let lines = if self.entries == 0 { 0 } else { self.addressing.lines() };
        assert_eq!(self.lines.len(), lines, "there are as many lines as the addressing says");
        assert_eq!(self.lines.pages(), lines.div_ceil(LINES_PER_PAGE), "no page without lines");
        let overflow_pages = self.overflow.len().div_ceil(LINES_PER_PAGE);
        assert!(
            (overflow_pages..=overflow_pages + 1).contains(&self.overflow.pages()),
            "one spare page at most"
        );
        assert!(self.entries <= u64::from(lines) * ENTRIES_PER_LINE_MAX, "growing keeps up with inserts");
        let (mut entries, mut overflow_lines) = (0, 0);
        for home in 0..lines {
            let mut line = self.lines.line(pool, home);
            let mut chained = 0u32;
            loop {
                let length = line.len();
                assert_eq!(line.matches(0), (0xfff << length) & 0xfff, "entries stand in front");
                for entry in line.entries() {
                    let hash = rehash(pool, entry.row);
                    assert_eq!((self.addressing.line_of(hash), tag_of(hash)), (home, entry.tag), "{entry:?}");
                }
                entries += length as u64;
                assert!(chained != 1 || length > 0, "the newest overflow line has entries");
                assert!(chained <= 1 || line.is_full(), "older overflow lines are full");
                let Some(number) = line.link() else { break };
                assert!(chained > 0 || line.is_full(), "a home with a link is full");
                assert!(number < self.overflow.len(), "links lead to overflow lines");
                chained += 1;
                assert!(chained <= self.overflow.len(), "chains end");
                line = self.overflow.line(pool, number);
            }
            overflow_lines += chained;
        }
        assert_eq!(entries, self.entries, "every entry is counted");
        // Chains do not meet, because their entries have different homes; so equal numbers mean no gaps.
        assert_eq!(overflow_lines, self.overflow.len(), "every overflow line is in a chain");
    }
}
