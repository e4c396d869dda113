//! The ordered index of one fragment: rows in the order of some of their columns.
//!
//! ## What is in it
//! An *entry* says that a row has, in one of its versions, a certain key (`vinga_base::order_key` says how keys are
//! made; here they are just bytes). A row that is being changed has an entry for each key that one of its versions has.
//! Entries are counted: who enters the same key of the same row three times has to remove it three times. They are
//! ordered by key, then by row id.
//!
//! ## Format
//! A B+-tree of nodes of 512 bytes (`ordered_index/node.rs`), which are carved from pages (`node_store.rs`). A leaf has
//! up to 31 entries of 16 bytes (`entry.rs`): the first 8 bytes of the key, the row id, and a word that tells keys with
//! equal beginnings apart. An inner node has up to 25 children; in front of each child but the first stands a copy of
//! the first entry below it, its *separator*. So every comparison is one with an entry that exists, and keys longer
//! than 8 bytes can stay in the rows.
//!
//! ```text
//!                 [ · | g | p ]                 separators: g and p are the first entries below
//!                 /    |     \
//!       [a c d f]  [g h k]  [p q t x]           all leaves have the same depth
//! ```
//!
//! ## Ties
//! Entries with equal first 8 bytes are compared through the row (`cut.rs`): a [`KeySource`] names the keys of all its
//! versions, and the entry's 24 bits of hash choose one of them. Whoever enters a key that could be taken for another
//! one of the same row has it written down (`listed_keys.rs`), so the choice is always unique.
//!
//! ## Growing and shrinking
//! A full node is divided in two halves; only at the right edge of the tree, when the new entry is the last of all,
//! the node stays full and the new one begins with that entry, so that ascending keys fill the nodes. A removal that
//! leaves less than a third in a node joins it with a neighbour if both fill at most three quarters, else divides
//! their entries evenly. So all nodes but those at the right edge are a third full at least.
//!
//! ## Running out of memory
//! An insert takes the page that it may need before it changes anything. A removal takes none and always succeeds.
//! Pages without nodes go back to the pool at once.

mod bulk;
mod check;
mod cursor;
mod cut;
mod entry;
mod listed_keys;
mod node;
mod node_store;
mod statistics;
#[cfg(test)]
mod tests;

pub use bulk::sort_entries;
pub use cursor::{Cursor, Range};
pub use cut::{Cut, KeySource};
pub use entry::Entry;
pub use statistics::{DistinctSample, IndexUsage};

use cut::Resolver;
use entry::{COUNT_MAX, LISTED_MAX};
use listed_keys::ListedKeys;
use node::Level;
use node_store::NodeStore;
use vinga_base::RowId;
use vinga_base::page_pool::{OutOfPages, PagePool, Purpose};

/// Bytes of a node outside of tests: eight cache lines, of which a search reads some three.
const NODE_BYTES: usize = 512;

/// Levels of a tree, at most. Nodes have two entries at least, those at the right edge excepted, and there are fewer
/// than 2^32 nodes.
const LEVELS_MAX: usize = 32;

/// An ordered index with nodes of the usual size.
pub type OrderedIndex = Tree<NODE_BYTES>;

/// See the head of this file. `N` is the size of a node in bytes.
pub struct Tree<const N: usize> {
    nodes: NodeStore<N>,
    /// Of no meaning while there are no levels.
    root: u32,
    /// Levels, leaves included; 0 if there are no entries.
    height: usize,
    /// Entries in leaves.
    entries: u64,
    /// Nodes of each level, leaves first.
    nodes_of_level: [u32; LEVELS_MAX],
    listed: ListedKeys,
}

/// The way from the root to a place in a leaf.
struct Path {
    steps: [Step; LEVELS_MAX],
}

#[derive(Clone, Copy, Default)]
struct Step {
    node: u32,
    /// The child that the way takes; in a leaf the number of entries before the place.
    at: u16,
    /// Whether the node is the last of its level.
    is_last: bool,
}

impl Path {
    fn new() -> Self {
        Path { steps: [Step::default(); LEVELS_MAX] }
    }
}

/// What the first pass over a batch has found out about a key: see [`Tree::approach`].
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
        }
    }

    /// Enters a key of a row.
    ///
    /// # Errors
    /// [`OutOfPages`], and the index is as it was.
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
        if self.height > 0 {
            let mut resolver = self.resolver(pool, source, None);
            self.descend(&mut resolver, &Cut::after(key, row), &mut path);
            let found = self.find_before(&mut resolver, &path, key, row);
            if let Some(found) = found
                && found.count() < COUNT_MAX
            {
                self.set_before(pool, &path, found.with_count(found.count() + 1));
                return Ok(());
            }
            if let Some(found) = found {
                entry = found.with_count(1);
                entry.listed().inspect(|&number| self.listed.retain(row, number));
            } else if entry.complete_bytes().is_none() && resolver.is_ambiguous(&entry, key) {
                entry = entry.with_listed(self.listed.add(row, key, LISTED_MAX)?);
            }
        }
        let reserved = self.nodes.reserve(pool, purpose, self.nodes_for_insert(pool, &path));
        if let Err(OutOfPages) = reserved {
            entry.listed().inspect(|&number| self.listed.release(row, number));
            return reserved;
        }
        self.insert_at(pool, &path, entry);
        self.entries += 1;
        Ok(())
    }

    /// Removes a key of a row that was entered; the version that had it may be gone from the row already, all others
    /// with entries must be there.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn remove<S: KeySource>(&mut self, pool: &mut PagePool, source: &mut S, key: &[u8], row: RowId) {
        assert!(self.height > 0, "only an entry that is in the index can be removed");
        let mut path = Path::new();
        let mut resolver = self.resolver(pool, source, Some(row));
        self.descend(&mut resolver, &Cut::after(key, row), &mut path);
        let found = self
            .find_before(&mut resolver, &path, key, row)
            .expect("only an entry that is in the index can be removed");
        if found.count() > 1 {
            self.set_before(pool, &path, found.with_count(found.count() - 1));
            return;
        }
        found.listed().inspect(|&number| self.listed.release(row, number));
        self.entries -= 1;
        self.remove_before(pool, &path);
    }

    /// First pass over a batch of keys: goes down to the last inner level and starts to load the node there.
    #[inline]
    pub fn approach(&self, pool: &PagePool, key: &[u8]) -> Approach {
        let prefix = Cut::before_key(key).prefix();
        let mut node = self.root;
        for _ in 2..self.height {
            node = self.likely_child(pool, node, prefix);
        }
        self.nodes.prefetch(pool, node);
        Approach { node }
    }

    /// Second pass: starts to load the leaf. The index must not have been changed since the first pass over the key.
    #[inline]
    pub fn prefetch_leaf(&self, pool: &PagePool, key: &[u8], approach: Approach) {
        if self.height > 1 {
            let leaf = self.likely_child(pool, approach.node, Cut::before_key(key).prefix());
            self.nodes.prefetch(pool, leaf);
        }
    }

    /// Forgets all entries and gives all pages back.
    pub fn clear(&mut self, pool: &mut PagePool) {
        self.nodes.clear(pool);
        *self = Self::new();
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
    fn resolver<'a, S>(
        &'a self,
        pool: &'a PagePool,
        source: &'a mut S,
        removed: Option<RowId>,
    ) -> Resolver<'a, S> {
        Resolver { pool, source, listed: &self.listed, removed }
    }

    /// The kind of the nodes in a step of a path.
    #[inline]
    fn level(&self, step: usize) -> Level {
        if step + 1 == self.height { Level::Leaf } else { Level::Inner }
    }

    /// Goes down to a cut. There must be a root.
    #[inline]
    fn descend<S: KeySource>(&self, resolver: &mut Resolver<'_, S>, cut: &Cut<'_>, path: &mut Path) {
        let mut step = Step { node: self.root, at: 0, is_last: true };
        for depth in 0..self.height - 1 {
            let node = self.nodes.node(resolver.pool, step.node, Level::Inner);
            // Separators begin at place 1, and the child in front of the first one that is not before the cut is it.
            let at = resolver.search(&node, 1, cut) - 1;
            step.at = at as u16;
            path.steps[depth] = step;
            let child = node.child(at);
            self.nodes.prefetch_prefixes(resolver.pool, child);
            step = Step { node: child, at: 0, is_last: step.is_last && at + 1 == node.len() };
        }
        let leaf = self.nodes.node(resolver.pool, step.node, Level::Leaf);
        step.at = resolver.search(&leaf, 0, cut) as u16;
        path.steps[self.height - 1] = step;
    }

    /// The child in which a key with these first 8 bytes would be if no other key had them.
    #[inline]
    fn likely_child(&self, pool: &PagePool, number: u32, prefix: u64) -> u32 {
        let node = self.nodes.node(pool, number, Level::Inner);
        node.child(node.prefixes()[1..].partition_point(|other| u64::from_le_bytes(*other) < prefix))
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
        let prefix = Cut::before_key(key).prefix();
        (entry.row == row && entry.prefix == prefix && resolver.compare(&entry, key).is_eq()).then_some(entry)
    }

    /// Overwrites the entry in front of the place to which a path leads.
    fn set_before(&mut self, pool: &mut PagePool, path: &Path, entry: Entry) {
        let step = path.steps[self.height - 1];
        self.nodes.node_mut(pool, step.node, Level::Leaf).set_entry(usize::from(step.at) - 1, entry);
    }
}

/// Changing nodes.
impl<const N: usize> Tree<N> {
    /// More entries than this a node has, unless it is at the right edge.
    const fn len_min(level: Level) -> usize {
        let third = level.capacity(N) / 3;
        match level {
            Level::Inner if third < 2 => 2,
            Level::Inner | Level::Leaf => third,
        }
    }

    /// Two nodes with at most so many entries are joined.
    const fn joined_max(level: Level) -> usize {
        level.capacity(N) * 3 / 4
    }

    /// Nodes that an insert at the end of a path takes.
    fn nodes_for_insert(&self, pool: &PagePool, path: &Path) -> u32 {
        let full = (0..self.height)
            .rev()
            .take_while(|&step| self.nodes.node(pool, path.steps[step].node, self.level(step)).is_full())
            .count();
        (full + usize::from(full == self.height)) as u32
    }

    fn take_node(&mut self, pool: &mut PagePool, step: usize) -> u32 {
        let level = self.level(step);
        self.nodes_of_level[self.height - 1 - step] += 1;
        self.nodes.take(pool, level)
    }

    fn free_node(&mut self, pool: &mut PagePool, step: usize, number: u32) {
        self.nodes_of_level[self.height - 1 - step] -= 1;
        self.nodes.free(pool, number);
    }

    /// Puts an entry in the place to which a path leads, with all nodes that this takes.
    fn insert_at(&mut self, pool: &mut PagePool, path: &Path, entry: Entry) {
        if self.height == 0 {
            self.height = 1;
            self.root = self.take_node(pool, 0);
            self.nodes.node_mut(pool, self.root, Level::Leaf).insert(0, entry, 0);
            return;
        }
        let (mut entry, mut child) = (entry, 0);
        for depth in (0..self.height).rev() {
            let level = self.level(depth);
            let step = path.steps[depth];
            // Above a leaf the new child stands behind the one that the path takes.
            let place = usize::from(step.at) + usize::from(level == Level::Inner);
            let mut node = self.nodes.node_mut(pool, step.node, level);
            if !node.is_full() {
                node.insert(place, entry, child);
                return;
            }
            (entry, child) = self.split(pool, depth, step, place, entry, child);
        }
        self.add_root(pool, entry, child);
    }

    /// Adds an entry to a full node by dividing it. Returns separator and number of the new node behind it.
    fn split(
        &mut self,
        pool: &mut PagePool,
        depth: usize,
        step: Step,
        place: usize,
        entry: Entry,
        child: u32,
    ) -> (Entry, u32) {
        let level = self.level(depth);
        let whole = self.nodes.copy(pool, step.node, level);
        let appends = step.is_last && place == whole.len();
        let kept = if appends { whole.len() } else { whole.len().div_ceil(2) };
        let goes_left = place < kept;
        // The new entry counts among those that are kept.
        let kept_old = kept - usize::from(goes_left);
        let mut left = self.nodes.node_mut(pool, step.node, level);
        left.set_len(kept_old);
        if goes_left {
            left.insert(place, entry, child);
        }
        let number = self.take_node(pool, depth);
        let mut right = self.nodes.node_mut(pool, number, level);
        right.append(&whole, kept_old..whole.len());
        if !goes_left {
            right.insert(place - kept, entry, child);
        }
        (right.entry(0), number)
    }

    /// Puts a root with two children above the one there is.
    fn add_root(&mut self, pool: &mut PagePool, separator: Entry, right: u32) {
        assert!(self.height < LEVELS_MAX, "a tree of that height would have more entries than there are");
        let left = self.root;
        self.height += 1;
        self.root = self.take_node(pool, 0);
        let mut root = self.nodes.node_mut(pool, self.root, Level::Inner);
        root.insert(0, separator, left);
        root.insert(1, separator, right);
    }

    /// Takes out the entry in front of the place to which a path leads.
    fn remove_before(&mut self, pool: &mut PagePool, path: &Path) {
        let leaf = path.steps[self.height - 1];
        let place = usize::from(leaf.at) - 1;
        let mut node = self.nodes.node_mut(pool, leaf.node, Level::Leaf);
        node.remove(place);
        if place == 0 && node.len() > 0 {
            let first = node.entry(0);
            self.replace_separator(pool, path, first);
        }
        for depth in (1..self.height).rev() {
            if !self.fill(pool, path, depth) {
                break;
            }
        }
        self.shrink_root(pool);
    }

    /// Overwrites the separator of the leaf to which a path leads; the first leaf has none.
    fn replace_separator(&mut self, pool: &mut PagePool, path: &Path, first: Entry) {
        if let Some(step) = path.steps[..self.height - 1].iter().rev().find(|step| step.at > 0) {
            self.nodes.node_mut(pool, step.node, Level::Inner).set_entry(usize::from(step.at), first);
        }
    }

    /// Makes sure that the node in a step of a path, which has lost an entry, has enough of them. Says whether its
    /// parent has lost one thereby.
    fn fill(&mut self, pool: &mut PagePool, path: &Path, depth: usize) -> bool {
        let level = self.level(depth);
        let len = self.nodes.node(pool, path.steps[depth].node, level).len();
        if len >= Self::len_min(level) {
            return false;
        }
        let parent_number = path.steps[depth - 1].node;
        let parent = self.nodes.node(pool, parent_number, Level::Inner);
        let at = usize::from(path.steps[depth - 1].at);
        if parent.len() == 1 {
            // An only child is at the right edge and may have few entries, but not none.
            if len > 0 {
                return false;
            }
            self.nodes.node_mut(pool, parent_number, Level::Inner).remove(0);
            self.free_node(pool, depth, path.steps[depth].node);
            return true;
        }
        let right_at = if at + 1 < parent.len() { at + 1 } else { at };
        let separator = parent.entry(right_at);
        let (left_number, right_number) = (parent.child(right_at - 1), parent.child(right_at));
        let left = self.nodes.copy(pool, left_number, level);
        let mut right = self.nodes.copy(pool, right_number, level);
        debug_assert!(left.len() > 0, "only nodes at the right edge run empty");
        if level == Level::Inner && right.len() > 0 {
            right.set_entry(0, separator);
        }
        let all = left.len() + right.len();
        if all <= Self::joined_max(level) {
            self.nodes.node_mut(pool, left_number, level).append(&right, 0..right.len());
            self.nodes.node_mut(pool, parent_number, Level::Inner).remove(right_at);
            self.free_node(pool, depth, right_number);
            return true;
        }
        let to_left = (all / 2).saturating_sub(left.len());
        let kept = left.len().min(all / 2);
        let mut node = self.nodes.node_mut(pool, left_number, level);
        node.set_len(kept);
        node.append(&right, 0..to_left);
        let mut node = self.nodes.node_mut(pool, right_number, level);
        node.set_len(0);
        node.append(&left, kept..left.len());
        node.append(&right, to_left..right.len());
        let first = node.entry(0);
        self.nodes.node_mut(pool, parent_number, Level::Inner).set_entry(right_at, first);
        false
    }

    /// Takes away a root that has no entries, or only one child.
    fn shrink_root(&mut self, pool: &mut PagePool) {
        loop {
            let level = self.level(0);
            let root = self.nodes.node(pool, self.root, level);
            let below = match (level, root.len()) {
                (Level::Leaf, 0) => 0,
                (Level::Inner, 1) => root.child(0),
                (Level::Leaf | Level::Inner, _) => return,
            };
            self.free_node(pool, 0, self.root);
            self.height -= 1;
            self.root = below;
            if self.height == 0 {
                return;
            }
        }
    }
}
