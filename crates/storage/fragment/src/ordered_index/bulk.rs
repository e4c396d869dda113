//! Building an index in bulk, from the entries of all rows.
//!
//! The caller makes an [`Entry`] of each row's key, sorts the entries (all at once: [`sort_entries`], or some at a
//! time: [`super::EntrySorter`]) and builds a tree from them ([`TreeBuilder`]). Rows have one version each meanwhile.
//! Later entries are inserted.

use super::cut::{KeySource, shared_bytes};
use super::entry::{COUNT_MAX, Entry, part_of};
use super::node::Level;
use super::{Change, LEVELS_MAX, Tree};
use alloc::vec::Vec;
use vinga_base::page_pool::{OutOfPages, PagePool, Purpose};

/// A row is prefetched this many entries before it is read.
pub(super) const ROWS_AHEAD: usize = 16;

/// Fills an empty index from sorted entries, some at a time. Between two of them the index is a valid one that has the
/// entries so far, but nothing else may change it.
pub struct TreeBuilder {
    /// Entries that a leaf and an inner node get.
    fill_leaf: usize,
    fill_inner: usize,
    /// The last node of each level, leaves first.
    edge: [u32; LEVELS_MAX],
    /// The last entry.
    last: Option<Entry>,
}

impl TreeBuilder {
    /// A builder that fills nodes to `percent` of their size (1–100): full ones take the least memory, but are split
    /// by the next insert.
    ///
    /// # Panics
    /// If the index has entries.
    pub fn new<const N: usize>(tree: &Tree<N>, percent: usize) -> Self {
        assert!(tree.height == 0, "only an index without entries can be built");
        let fill = |level: Level| (level.capacity(N) * percent / 100).max(Tree::<N>::len_min(level));
        TreeBuilder {
            fill_leaf: fill(Level::Leaf),
            fill_inner: fill(Level::Inner),
            edge: [0; LEVELS_MAX],
            last: None,
        }
    }

    /// Adds an entry that is not before the last one; if it is the same, it is counted. Rows are read if their keys
    /// begin with the same bytes.
    ///
    /// # Errors
    /// [`OutOfPages`]; then the index has the entries before it.
    #[inline]
    pub fn add<S: KeySource, const N: usize>(
        &mut self,
        tree: &mut Tree<N>,
        pool: &mut PagePool,
        purpose: Purpose,
        source: &mut S,
        entry: Entry,
    ) -> Result<(), OutOfPages> {
        if let Some(known) = self.last
            && known.is_same(&entry)
            && known.count() < COUNT_MAX
        {
            let counted = known.with_count(known.count() + 1);
            let mut leaf = tree.nodes.node_mut(pool, self.edge[0], Level::Leaf);
            leaf.set_entry(leaf.len() - 1, counted);
            self.last = Some(counted);
            return Ok(());
        }
        let is_first = self.last.is_none();
        if !is_first {
            let mut leaf = tree.nodes.node_mut(pool, self.edge[0], Level::Leaf);
            if leaf.len() < self.fill_leaf {
                leaf.insert(leaf.len(), entry, 0);
                (tree.entries, self.last) = (tree.entries + 1, Some(entry));
                return Ok(());
            }
        }
        tree.nodes.reserve(pool, purpose, tree.height as u32 + 1)?;
        let mut change = Change { pool, source, moving: None };
        tree.append_leaf(&mut change, &mut self.edge, self.fill_inner, entry);
        (tree.entries, self.last) = (tree.entries + 1, Some(entry));
        Ok(())
    }

    /// No more entries come.
    pub fn finish<S: KeySource, const N: usize>(
        self,
        tree: &mut Tree<N>,
        pool: &mut PagePool,
        source: &mut S,
    ) {
        let mut change = Change { pool, source, moving: None };
        for (level, &number) in self.edge[..tree.height].iter().enumerate() {
            tree.skip_more(&mut change, number, kind(level));
        }
    }
}

impl<const N: usize> Tree<N> {
    /// Fills an empty index from sorted entries at once, as a [`TreeBuilder`] does.
    ///
    /// # Errors
    /// [`OutOfPages`]; then the index has no entries.
    pub fn build<S: KeySource>(
        &mut self,
        pool: &mut PagePool,
        purpose: Purpose,
        source: &mut S,
        percent: usize,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<(), OutOfPages> {
        let mut builder = TreeBuilder::new(self, percent);
        for entry in entries {
            if let Err(refused) = builder.add(self, pool, purpose, source, entry) {
                self.clear(pool);
                return Err(refused);
            }
        }
        builder.finish(self, pool, source);
        Ok(())
    }

    /// Adds a leaf behind the last one, with all nodes above it that this needs. As long as a node is the last of its
    /// level, it skips nothing.
    fn append_leaf<S: KeySource>(
        &mut self,
        change: &mut Change<'_, S>,
        edge: &mut [u32; LEVELS_MAX],
        fill: usize,
        entry: Entry,
    ) {
        let mut below = 0;
        for level in 0..self.height {
            let mut node = self.nodes.node_mut(change.pool, edge[level], kind(level));
            if level > 0 && node.len() < fill {
                node.insert(node.len(), entry, below);
                return;
            }
            self.skip_more(change, edge[level], kind(level));
            below = self.append_node(change.pool, edge, level, entry, below);
        }
        if self.height == 0 {
            self.height = 1;
            self.root = self.append_node(change.pool, edge, 0, entry, 0);
        } else {
            let root = self.add_root(change.pool);
            self.nodes.node_mut(change.pool, root, Level::Inner).insert(1, entry, below);
            edge[self.height - 1] = root;
        }
    }

    /// Makes a node with one entry the last of its level, counted from the leaves.
    fn append_node(
        &mut self,
        pool: &mut PagePool,
        edge: &mut [u32; LEVELS_MAX],
        level: usize,
        entry: Entry,
        child: u32,
    ) -> u32 {
        edge[level] = self.nodes.take(pool, kind(level));
        self.nodes_of_level[level] += 1;
        self.nodes.node_mut(pool, edge[level], kind(level)).insert(0, entry, child);
        edge[level]
    }
}

/// The kind of nodes in a level, counted from the leaves.
fn kind(level: usize) -> Level {
    if level == 0 { Level::Leaf } else { Level::Inner }
}

/// Sorts entries of rows that have one version each. Entries whose first 8 bytes are equal are compared by reading
/// their rows: once or twice for each 8 bytes in which keys differ, however many they have in common. It needs 32 bytes
/// of memory per entry of the largest group of incomplete entries that share their first 8 bytes.
///
/// # Errors
/// [`OutOfPages`] when there is no heap memory; the entries are then in any order.
pub fn sort_entries<S: KeySource>(
    pool: &PagePool,
    source: &mut S,
    entries: &mut [Entry],
) -> Result<(), OutOfPages> {
    entries.sort_unstable_by_key(Entry::rank);
    let mut scratch = Vec::new();
    let mut at = 0;
    while at < entries.len() {
        let part = entries[at].part;
        let length = entries[at..].iter().take_while(|entry| entry.part == part).count();
        let run = &mut entries[at..at + length];
        at += length;
        // Complete keys come before the others, and are sorted.
        let complete = run.iter().take_while(|entry| entry.complete_bytes().is_some()).count();
        if length - complete > 1 {
            sort_run(pool, source, &mut run[complete..], size_of::<u64>(), &mut scratch)?;
        }
    }
    Ok(())
}

/// The rest of a key after the bytes that it shares with the others of a run.
pub(super) struct Rest {
    /// The first 8 bytes of it, padded with zeros.
    part: u64,
    /// Its length, or 9 if it is longer than 8 bytes.
    length: usize,
    entry: Entry,
}

/// Sorts entries of keys that agree in so many bytes, of which none ends there, by reading their rows.
///
/// # Errors
/// [`OutOfPages`] if there is no heap memory for as many items in `scratch`.
pub(super) fn sort_run<S: KeySource>(
    pool: &PagePool,
    source: &mut S,
    run: &mut [Entry],
    known: usize,
    scratch: &mut Vec<Rest>,
) -> Result<(), OutOfPages> {
    let mut first = Vec::new();
    // Runs of entries that agree in their first bytes, and the number of these bytes.
    let mut work = Vec::from([(0, run.len(), known)]);
    while let Some((from, to, known)) = work.pop() {
        let run = &mut run[from..to];
        if run.len() < 2 {
            continue;
        }
        let mut shared = usize::MAX;
        shared_from(pool, source, run, run.len(), known, &mut first, &mut shared);
        scratch.clear();
        scratch.try_reserve(run.len()).map_err(|_| OutOfPages)?;
        for_each_key(pool, source, run, run.len(), |entry, key| {
            let rest = &key[shared..];
            let part = part_of(rest, 0);
            scratch.push(Rest { part, length: rest.len().min(size_of::<u64>() + 1), entry });
        });
        assert_eq!(scratch.len(), run.len(), "each row has one key");
        scratch.sort_unstable_by_key(|rest| (rest.part, rest.length, rest.entry.row));
        let mut begin = 0;
        for (place, rest) in scratch.iter().enumerate() {
            run[place] = rest.entry;
            let next = scratch.get(place + 1);
            if next.is_none_or(|next| (next.part, next.length) != (rest.part, rest.length)) {
                if rest.length > size_of::<u64>() {
                    work.push((from + begin, from + place + 1, shared + size_of::<u64>()));
                }
                begin = place + 1;
            }
        }
    }
    Ok(())
}

/// Finds out how many bytes the keys of the first `count` entries have in common with `first`, of which they are known
/// to have `known`. It is the key of the first entry if `shared` is `usize::MAX`.
pub(super) fn shared_from<S: KeySource>(
    pool: &PagePool,
    source: &mut S,
    entries: &[Entry],
    count: usize,
    known: usize,
    first: &mut Vec<u8>,
    shared: &mut usize,
) {
    for_each_key(pool, source, entries, count, |_, key| {
        if *shared == usize::MAX {
            first.clear();
            first.extend_from_slice(key);
            *shared = key.len();
        } else {
            *shared = known + shared_bytes(&first[known..*shared], &key[known..]);
        }
    });
}

/// Calls `each` with the keys of the first `count` entries.
fn for_each_key<S: KeySource>(
    pool: &PagePool,
    source: &mut S,
    entries: &[Entry],
    count: usize,
    mut each: impl FnMut(Entry, &[u8]),
) {
    for (at, &entry) in entries.iter().enumerate().take(count) {
        if let Some(later) = entries.get(at + ROWS_AHEAD) {
            source.prefetch(pool, later.row);
        }
        let mut found = false;
        source.keys(pool, entry.row, |key| {
            if !found && entry.may_have(key) {
                found = true;
                each(entry, key);
            }
        });
    }
}
