//! The ordered index of one fragment: rows in the order of some of their columns.
//!
//! ## What is in it
//! An *entry* states that a row has, in one of its versions, a certain key (`vinga_base::order_key` documents how keys
//! are made; here they are just bytes). A row that is being changed has an entry for each key that one of its versions
//! has. Entries are counted: a key that was inserted three times for the same row must be removed three times. They are
//! ordered by key, then by row id.
//!
//! ## Format
//! A B+-tree of nodes of 512 bytes (`ordered_index/node.rs`), which are allocated in pages (`node_store.rs`). A leaf
//! has up to 31 entries of 16 bytes (`entry.rs`): 8 bytes of the key, the row id, and a word that distinguishes keys
//! with equal 8 bytes. An inner node has up to 25 children; in front of each child but the first is a copy of the first
//! entry below it, its *separator*. So every comparison is one with an entry that exists, and keys longer than 8 bytes
//! can stay in the rows.
//!
//! ```text
//!                 [ · | g | p ]                 separators: g and p are the first entries below
//!                 /    |     \
//!       [a c d f]  [g h k]  [p q t x]           all leaves have the same depth
//! ```
//!
//! ## Ties
//! If 8 bytes do not decide, keys are compared in the rows (`cut.rs`): a [`KeySource`] returns the keys of all versions
//! of a row, and the entry's 24 bits of hash choose one of them. When a key is inserted that could be mistaken for
//! another one of the same row, it is stored in a list (`listed_keys.rs`), so the choice is always unique.
//!
//! Keys that begin with the same bytes would be ties in all comparisons. Therefore a node can *skip* bytes that all its
//! keys have in common: then its entries hold the 8 bytes after those. Each node has its own number of skipped bytes; a
//! search checks whether the key that it looks for begins with them. A node skips more when it is split and rows show
//! that 4 of its 8 bytes are the same everywhere, always 2 bytes less than it could; and less when a key is inserted
//! that does not begin with the skipped bytes. Then the parts of all its entries are read from the rows again. A
//! complete key, of at most 8 bytes, never needs its row, and its node skips nothing.
//!
//! ## Growing and shrinking
//! A full node is split in two halves; only at the right edge of the tree, when the new entry is the last of all, the
//! node stays full and the new one begins with that entry, so that ascending keys fill the nodes. A removal that leaves
//! a node less than a third full merges it with a neighbour if both together fill at most three quarters of a node,
//! otherwise distributes their entries evenly. So all nodes but those at the right edge are at least a third full.
//!
//! ## Running out of memory
//! An insert takes the page that it may need before it changes entries. A removal takes none and always succeeds. Pages
//! without nodes are returned to the pool at once.

mod bulk;
mod check;
mod cursor;
mod cut;
mod entry;
mod entry_sorter;
mod growth;
mod listed_keys;
mod node;
mod node_store;
mod skipping;
mod statistics;
#[cfg(test)]
mod tests;

pub use bulk::{TreeBuilder, sort_entries};
pub use cursor::{Cursor, Direction, Range};
pub use cut::{Cut, KeySource};
pub use entry::Entry;
pub use entry_sorter::EntrySorter;
pub use statistics::{DistinctSample, IndexUsage};

use alloc::vec::Vec;
use cut::{Resolver, Shared};
use entry::{COUNT_MAX, LISTED_MAX, part_of};
use listed_keys::ListedKeys;
use node::Level;
use node_store::NodeStore;
use vinga_base::RowId;
use vinga_base::page_pool::{OutOfPages, PagePool, Purpose};

/// Bytes of a node outside of tests: eight cache lines, of which a search reads about three.
const NODE_BYTES: usize = 512;

/// Levels of a tree, at most. Nodes have two entries at least, those at the right edge excepted, and there are fewer
/// than 2^32 nodes.
const LEVELS_MAX: usize = 32;

/// An ordered index with nodes of the usual size.
pub type OrderedIndex = Tree<NODE_BYTES>;

/// An ordered index. `N` is the size of a node in bytes. The format is documented at the beginning of this module.
pub struct Tree<const N: usize> {
    nodes: NodeStore<N>,
    /// Undefined while there are no levels.
    root: u32,
    /// Levels, leaves included; 0 if there are no entries.
    height: usize,
    /// Entries in leaves.
    entries: u64,
    /// Nodes of each level, leaves first.
    nodes_of_level: [u32; LEVELS_MAX],
    listed: ListedKeys,
    /// Buffer for a key while nodes are changed.
    key: Vec<u8>,
}

/// What a change needs.
struct Change<'a, S> {
    pool: &'a mut PagePool,
    source: &'a mut S,
    /// The key that is being inserted or removed.
    moving: Option<(RowId, &'a [u8])>,
}

/// The path from the root to a place in a leaf.
struct Path {
    steps: [Step; LEVELS_MAX],
    /// Whether the key begins with the bytes that the leaf skips.
    is_within: bool,
}

#[derive(Clone, Copy, Default)]
struct Step {
    node: u32,
    /// The child that the path takes; in a leaf the number of entries before the place.
    at: u16,
    /// Whether the node is the last of its level.
    is_last: bool,
}

impl Path {
    fn new() -> Self {
        Path { steps: [Step::default(); LEVELS_MAX], is_within: true }
    }
}

/// The result of the first pass over a batch for one key: see [`Tree::approach`].
#[derive(Clone, Copy, Debug)]
pub struct Approach {
    node: u32,
}

impl<const N: usize> Tree<N> {
    /// An index without entries and pages.
    pub fn new() -> Self {
        Tree {
            nodes: NodeStore::new(),
            root: 0,
            height: 0,
            entries: 0,
            nodes_of_level: [0; LEVELS_MAX],
            listed: ListedKeys::default(),
            key: Vec::new(),
        }
    }

    /// Inserts a key of a row.
    ///
    /// # Errors
    /// [`OutOfPages`]; then the index is unchanged.
    pub fn insert<S: KeySource>(
        &mut self,
        pool: &mut PagePool,
        purpose: Purpose,
        source: &mut S,
        key: &[u8],
        row: RowId,
    ) -> Result<(), OutOfPages> {
        let mut entry = Entry::new(key, row);
        let mut path = Path::new();
        let mut change = Change { pool, source, moving: Some((row, key)) };
        if self.height > 0 {
            let mut resolver = self.resolver(&mut change);
            self.descend(&mut resolver, &Cut::after(key, row), &mut path);
            let found = self.find_before(&mut resolver, &path, key, row);
            if let Some(found) = found
                && found.count() < COUNT_MAX
            {
                self.set_before(change.pool, &path, found.with_count(found.count() + 1));
                return Ok(());
            }
            if let Some(found) = found {
                entry = found.with_count(1);
                entry.listed().inspect(|&number| self.listed.retain(row, number));
            } else if entry.complete_bytes().is_none() && resolver.is_ambiguous(&entry, key) {
                entry = entry.with_listed(self.listed.add(row, key, LISTED_MAX)?);
            }
        }
        let nodes = self.nodes_for_insert(change.pool, &path);
        let reserved = self.nodes.reserve(change.pool, purpose, nodes);
        if let Err(OutOfPages) = reserved {
            entry.listed().inspect(|&number| self.listed.release(row, number));
            return reserved;
        }
        self.insert_at(&mut change, &path, key, entry);
        self.entries += 1;
        Ok(())
    }

    /// Removes a key of a row that was inserted; the version that had it may have been removed from the row already,
    /// all others with entries must exist.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn remove<S: KeySource>(&mut self, pool: &mut PagePool, source: &mut S, key: &[u8], row: RowId) {
        assert!(self.height > 0, "only an entry that is in the index can be removed");
        let mut path = Path::new();
        let mut change = Change { pool, source, moving: Some((row, key)) };
        let mut resolver = self.resolver(&mut change);
        self.descend(&mut resolver, &Cut::after(key, row), &mut path);
        let found = self
            .find_before(&mut resolver, &path, key, row)
            .expect("only an entry that is in the index can be removed");
        if found.count() > 1 {
            self.set_before(change.pool, &path, found.with_count(found.count() - 1));
            return;
        }
        self.remove_before(&mut change, &path);
        found.listed().inspect(|&number| self.listed.release(row, number));
        self.entries -= 1;
    }

    /// First pass over a batch of keys: descends to the last inner level and starts to load the node there.
    #[inline]
    pub fn approach(&self, pool: &PagePool, key: &[u8]) -> Approach {
        let mut node = self.root;
        for _ in 2..self.height {
            node = self.likely_child(pool, node, key);
        }
        self.nodes.prefetch(pool, node);
        Approach { node }
    }

    /// Second pass: starts to load the leaf. The index must not have been changed since the first pass over the key.
    #[inline]
    pub fn prefetch_leaf(&self, pool: &PagePool, key: &[u8], approach: Approach) {
        if self.height > 1 {
            let leaf = self.likely_child(pool, approach.node, key);
            self.nodes.prefetch(pool, leaf);
        }
    }

    /// Returns at most this many pages to the pool; true when none is left and the index is empty again. Until then no
    /// other method may be called, because entries are missing.
    pub fn release_slice(&mut self, pool: &mut PagePool, pages: u32) -> bool {
        if !self.nodes.release_slice(pool, pages) {
            return false;
        }
        *self = Self::new();
        true
    }

    /// Removes all entries and returns all pages.
    pub fn clear(&mut self, pool: &mut PagePool) {
        self.release_slice(pool, u32::MAX);
    }
}

impl<const N: usize> Default for Tree<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// Finding places.
impl<const N: usize> Tree<N> {
    #[inline]
    fn resolver<'a, S>(&'a self, change: &'a mut Change<'_, S>) -> Resolver<'a, S> {
        let Change { pool, source, moving } = change;
        Resolver { pool, source, listed: &self.listed, moving: *moving }
    }

    /// For methods that change nothing.
    #[inline]
    fn reader<'a, S>(&'a self, pool: &'a PagePool, source: &'a mut S) -> Resolver<'a, S> {
        Resolver { pool, source, listed: &self.listed, moving: None }
    }

    /// The kind of the nodes at a depth of a path.
    #[inline]
    fn level(&self, step: usize) -> Level {
        if step + 1 == self.height { Level::Leaf } else { Level::Inner }
    }

    /// Descends to a cut. There must be a root.
    #[inline]
    fn descend<S: KeySource>(&self, resolver: &mut Resolver<'_, S>, cut: &Cut<'_>, path: &mut Path) {
        let mut step = Step { node: self.root, at: 0, is_last: true };
        let mut shared = Shared::default();
        for depth in 0..self.height - 1 {
            let node = self.nodes.node(resolver.pool, step.node, Level::Inner);
            // The child in front of the first separator that is not before the cut contains it.
            let place = resolver.search(&node, Level::Inner.first(), cut, &mut shared);
            let child = node.child(place - 1);
            self.nodes.prefetch_parts(resolver.pool, child);
            shared.narrow(&node, place, cut);
            step.at = place as u16 - 1;
            path.steps[depth] = step;
            step = Step { node: child, at: 0, is_last: step.is_last && place == node.len() };
        }
        let leaf = self.nodes.node(resolver.pool, step.node, Level::Leaf);
        step.at = resolver.search(&leaf, 0, cut, &mut shared) as u16;
        path.steps[self.height - 1] = step;
        path.is_within = shared.is_within();
    }

    /// The child that would contain a key if no other key had the same part.
    #[inline]
    fn likely_child(&self, pool: &PagePool, number: u32, key: &[u8]) -> u32 {
        let node = self.nodes.node(pool, number, Level::Inner);
        let part = part_of(key, node.skip());
        node.child(node.parts()[1..].partition_point(|other| u64::from_le_bytes(*other) < part))
    }

    /// The entry in front of the place to which a path leads, if it is that of this key and row.
    fn find_before<S: KeySource>(
        &self,
        resolver: &mut Resolver<'_, S>,
        path: &Path,
        key: &[u8],
        row: RowId,
    ) -> Option<Entry> {
        let step = path.steps[self.height - 1];
        let place = usize::from(step.at).checked_sub(1)?;
        let entry = self.nodes.node(resolver.pool, step.node, Level::Leaf).entry(place);
        (entry.row == row && resolver.has_key(&entry, key)).then_some(entry)
    }

    /// Overwrites the entry in front of the place to which a path leads.
    fn set_before(&mut self, pool: &mut PagePool, path: &Path, entry: Entry) {
        let step = path.steps[self.height - 1];
        self.nodes.node_mut(pool, step.node, Level::Leaf).set_entry(usize::from(step.at) - 1, entry);
    }
}
