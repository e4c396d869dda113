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
//! up to 31 entries of 16 bytes (`entry.rs`): 8 bytes of the key, the row id, and a word that tells keys with equal
//! 8 bytes apart. An inner node has up to 25 children; in front of each child but the first stands a copy of
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
//! Where 8 bytes do not decide, keys are compared in the rows (`cut.rs`): a [`KeySource`] names the keys of all versions
//! of a row, and the entry's 24 bits of hash choose one of them. Whoever enters a key that could be taken for another
//! one of the same row has it written down (`listed_keys.rs`), so the choice is always unique.
//!
//! Keys that begin with the same bytes would be ties in all comparisons. Therefore a node can *skip* bytes that all its
//! keys have in common: then its entries hold the 8 bytes behind those. How much a node skips is its own business, a
//! search checks whether it holds for the key in question. A node skips more when it is divided and rows show that 4 of
//! its 8 bytes are the same everywhere, always 2 bytes less than it could; and less when a key has to go in that does
//! not begin so. Then the parts of all its entries are taken from the rows anew. A complete key, of at most 8 bytes,
//! needs no row ever, and its node skips nothing.
//!
//! ## Growing and shrinking
//! A full node is divided in two halves; only at the right edge of the tree, when the new entry is the last of all,
//! the node stays full and the new one begins with that entry, so that ascending keys fill the nodes. A removal that
//! leaves less than a third in a node joins it with a neighbour if both fill at most three quarters, else divides
//! their entries evenly. So all nodes but those at the right edge are a third full at least.
//!
//! ## Running out of memory
//! An insert takes the page that it may need before it changes entries. A removal takes none and always succeeds.
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

use alloc::vec::Vec;
use cut::{Resolver, Shared, shared_bytes};
use entry::{COUNT_MAX, LISTED_MAX, PART_BYTES, part_of};
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

/// A node that is divided begins to skip bytes if so many of the 8 are the same in all its entries.
const ALIKE_MIN: usize = 4;
/// So many bytes that all keys of a node share are not skipped, because the next key may differ in them.
const NOT_SKIPPED: usize = 2;
/// Bytes that a node can skip.
const SKIP_MAX: usize = u16::MAX as usize;

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
    /// Where a key is put together while nodes are changed.
    key: Vec<u8>,
}

/// What a change works with.
struct Change<'a, S> {
    pool: &'a mut PagePool,
    source: &'a mut S,
    /// The key that is being inserted or removed.
    moving: Option<(RowId, &'a [u8])>,
}

/// The way from the root to a place in a leaf.
struct Path {
    steps: [Step; LEVELS_MAX],
    /// Whether the key begins with what the leaf skips.
    is_within: bool,
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
        Path { steps: [Step::default(); LEVELS_MAX], is_within: true }
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
            key: Vec::new(),
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

    /// Removes a key of a row that was entered; the version that had it may be gone from the row already, all others
    /// with entries must be there.
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

    /// First pass over a batch of keys: goes down to the last inner level and starts to load the node there.
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
    fn resolver<'a, S>(&'a self, change: &'a mut Change<'_, S>) -> Resolver<'a, S> {
        let Change { pool, source, moving } = change;
        Resolver { pool, source, listed: &self.listed, moving: *moving }
    }

    /// For those who change nothing.
    #[inline]
    fn reader<'a, S>(&'a self, pool: &'a PagePool, source: &'a mut S) -> Resolver<'a, S> {
        Resolver { pool, source, listed: &self.listed, moving: None }
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
        let mut shared = Shared::default();
        for depth in 0..self.height - 1 {
            let node = self.nodes.node(resolver.pool, step.node, Level::Inner);
            // The child in front of the first separator that is not before the cut is it.
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

    /// The child in which a key would be if no other key had the same part.
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
    fn insert_at<S: KeySource>(&mut self, change: &mut Change<'_, S>, path: &Path, key: &[u8], entry: Entry) {
        if self.height == 0 {
            self.height = 1;
            self.root = self.take_node(change.pool, 0);
            self.nodes.node_mut(change.pool, self.root, Level::Leaf).insert(0, entry, 0);
            return;
        }
        let leaf = path.steps[self.height - 1].node;
        if !path.is_within || key.len() <= PART_BYTES {
            self.skip_less(change, leaf, Level::Leaf, key);
        }
        let skip = self.nodes.node(change.pool, leaf, Level::Leaf).skip();
        let (mut entry, mut child) = (entry.in_node(key, skip), 0);
        for depth in (0..self.height).rev() {
            let level = self.level(depth);
            let step = path.steps[depth];
            // Above a leaf the new child stands behind the one that the path takes.
            let place = usize::from(step.at) + level.first();
            let mut node = self.nodes.node_mut(change.pool, step.node, level);
            if !node.is_full() {
                node.insert(place, entry, child);
                if level == Level::Inner {
                    self.skip_more(change, step.node, level);
                }
                return;
            }
            child = self.split(change, depth, step, place, entry, child);
            // The separator goes into the node above, which may skip less or more.
            let right = self.nodes.node(change.pool, child, level);
            let (separator, skip) = (right.entry(0), right.skip());
            let above = if depth > 0 { path.steps[depth - 1].node } else { self.add_root(change.pool) };
            entry = self.moved(change, separator, skip, above);
            self.skip_more(change, step.node, level);
            self.skip_more(change, child, level);
        }
        self.nodes.node_mut(change.pool, self.root, Level::Inner).insert(1, entry, child);
    }

    /// Adds an entry to a full node by dividing it. Returns the number of the new node behind it.
    fn split<S>(
        &mut self,
        change: &mut Change<'_, S>,
        depth: usize,
        step: Step,
        place: usize,
        entry: Entry,
        child: u32,
    ) -> u32 {
        let level = self.level(depth);
        let whole = self.nodes.copy(change.pool, step.node, level);
        let appends = step.is_last && place == whole.len();
        let kept = if appends { whole.len() } else { whole.len().div_ceil(2) };
        let goes_left = place < kept;
        // The new entry counts among those that are kept.
        let kept_old = kept - usize::from(goes_left);
        let mut left = self.nodes.node_mut(change.pool, step.node, level);
        left.set_len(kept_old);
        if goes_left {
            left.insert(place, entry, child);
        }
        let number = self.take_node(change.pool, depth);
        let mut right = self.nodes.node_mut(change.pool, number, level);
        right.set_skip(whole.skip());
        right.append(&whole, kept_old..whole.len());
        if !goes_left {
            right.insert(place - kept, entry, child);
        }
        number
    }

    /// Puts a root above the one there is, with that as its only child.
    fn add_root(&mut self, pool: &mut PagePool) -> u32 {
        assert!(self.height < LEVELS_MAX, "a tree of that height would have more entries than there are");
        let below = self.root;
        self.height += 1;
        self.root = self.take_node(pool, 0);
        let nothing = Entry::new(&[], RowId(0));
        self.nodes.node_mut(pool, self.root, Level::Inner).insert(0, nothing, below);
        self.root
    }

    /// Takes out the entry in front of the place to which a path leads.
    fn remove_before<S: KeySource>(&mut self, change: &mut Change<'_, S>, path: &Path) {
        let leaf = path.steps[self.height - 1];
        let place = usize::from(leaf.at) - 1;
        let mut node = self.nodes.node_mut(change.pool, leaf.node, Level::Leaf);
        node.remove(place);
        if place == 0 && node.len() > 0 {
            let (first, skip) = (node.entry(0), node.skip());
            self.replace_separator(change, path, first, skip);
        }
        for depth in (1..self.height).rev() {
            if !self.fill(change, path, depth) {
                break;
            }
        }
        self.shrink_root(change.pool);
    }

    /// Overwrites the separator of the leaf to which a path leads; the first leaf has none.
    fn replace_separator<S: KeySource>(
        &mut self,
        change: &mut Change<'_, S>,
        path: &Path,
        first: Entry,
        skip: usize,
    ) {
        let above = path.steps[..self.height - 1].iter().rev().find(|step| step.at > 0);
        if let Some(&Step { node, at, .. }) = above {
            let first = self.moved(change, first, skip, node);
            self.nodes.node_mut(change.pool, node, Level::Inner).set_entry(usize::from(at), first);
        }
    }

    /// Makes sure that the node in a step of a path, which has lost an entry, has enough of them. Says whether its
    /// parent has lost one thereby.
    fn fill<S: KeySource>(&mut self, change: &mut Change<'_, S>, path: &Path, depth: usize) -> bool {
        let level = self.level(depth);
        let len = self.nodes.node(change.pool, path.steps[depth].node, level).len();
        if len >= Self::len_min(level) {
            return false;
        }
        let parent_number = path.steps[depth - 1].node;
        let parent = self.nodes.node(change.pool, parent_number, Level::Inner);
        let at = usize::from(path.steps[depth - 1].at);
        if parent.len() == 1 {
            // An only child is at the right edge and may have few entries, but not none.
            if len > 0 {
                return false;
            }
            self.nodes.node_mut(change.pool, parent_number, Level::Inner).remove(0);
            self.free_node(change.pool, depth, path.steps[depth].node);
            return true;
        }
        let right_at = if at + 1 < parent.len() { at + 1 } else { at };
        let (left_number, right_number) = (parent.child(right_at - 1), parent.child(right_at));
        let (separator, skip) = (parent.entry(right_at), parent.skip());
        self.align(change, level, [left_number, right_number], separator, skip);
        let left = self.nodes.copy(change.pool, left_number, level);
        let right = self.nodes.copy(change.pool, right_number, level);
        debug_assert!(left.len() > 0, "only nodes at the right edge run empty");
        let all = left.len() + right.len();
        if all <= Self::joined_max(level) {
            self.nodes.node_mut(change.pool, left_number, level).append(&right, 0..right.len());
            self.nodes.node_mut(change.pool, parent_number, Level::Inner).remove(right_at);
            self.free_node(change.pool, depth, right_number);
            return true;
        }
        let to_left = (all / 2).saturating_sub(left.len());
        let kept = left.len().min(all / 2);
        let mut node = self.nodes.node_mut(change.pool, left_number, level);
        node.set_len(kept);
        node.append(&right, 0..to_left);
        let mut node = self.nodes.node_mut(change.pool, right_number, level);
        node.set_len(0);
        node.append(&left, kept..left.len());
        node.append(&right, to_left..right.len());
        let (first, skip) = (node.entry(0), node.skip());
        let first = self.moved(change, first, skip, parent_number);
        self.nodes.node_mut(change.pool, parent_number, Level::Inner).set_entry(right_at, first);
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

/// How many bytes nodes skip.
impl<const N: usize> Tree<N> {
    /// An entry from a node that skips `skip` bytes as it has to be in an inner node, which may have to skip less.
    fn moved<S: KeySource>(
        &mut self,
        change: &mut Change<'_, S>,
        entry: Entry,
        skip: usize,
        to: u32,
    ) -> Entry {
        if skip == 0 && self.nodes.node(change.pool, to, Level::Inner).skip() == 0 {
            return entry;
        }
        let key = self.read_key(change, &entry);
        self.skip_less(change, to, Level::Inner, &key);
        let moved = entry.in_node(&key, self.nodes.node(change.pool, to, Level::Inner).skip());
        self.key = key;
        moved
    }

    /// The key of an entry, in the buffer that the caller puts back.
    fn read_key<S: KeySource>(&mut self, change: &mut Change<'_, S>, entry: &Entry) -> Vec<u8> {
        let mut buffer = core::mem::take(&mut self.key);
        buffer.clear();
        self.resolver(change).with_key(entry, |key| buffer.extend_from_slice(key));
        buffer
    }

    /// Makes a node fit for a key: complete ones need one that skips nothing, others one whose keys begin as they do.
    fn skip_less<S: KeySource>(&mut self, change: &mut Change<'_, S>, number: u32, level: Level, key: &[u8]) {
        let node = self.nodes.node(change.pool, number, level);
        let (skip, len) = (node.skip(), node.len());
        if skip == 0 {
            return;
        }
        let shared = if key.len() <= PART_BYTES || len <= level.first() {
            0
        } else {
            let first = node.entry(level.first());
            self.resolver(change).with_key(&first, |other| shared_bytes(other, key))
        };
        if shared < skip {
            self.set_skip(change, number, level, shared.saturating_sub(NOT_SKIPPED));
        }
    }

    /// Lets a node skip more if its entries are too much alike.
    fn skip_more<S: KeySource>(&mut self, change: &mut Change<'_, S>, number: u32, level: Level) {
        let node = self.nodes.node(change.pool, number, level);
        let places = level.first()..node.len();
        if places.len() < 2 {
            return;
        }
        let (first, last) = (node.entry(places.start), node.entry(places.end - 1));
        let alike = (first.part ^ last.part).leading_zeros() as usize / 8;
        if alike < ALIKE_MIN || places.into_iter().any(|place| node.entry(place).complete_bytes().is_some()) {
            return;
        }
        let skip = node.skip();
        let key = self.read_key(change, &first);
        let shared = self.resolver(change).with_key(&last, |other| shared_bytes(other, &key));
        self.key = key;
        let better = shared.saturating_sub(NOT_SKIPPED).min(SKIP_MAX);
        if better >= skip + NOT_SKIPPED {
            self.set_skip(change, number, level, better);
        }
    }

    /// Makes two neighbours skip the same, so that entries can go from one to the other. In an inner node the first
    /// entry of the right one gets its meaning: it is the separator, which comes from a node that skips `skip` bytes.
    fn align<S: KeySource>(
        &mut self,
        change: &mut Change<'_, S>,
        level: Level,
        neighbours: [u32; 2],
        separator: Entry,
        skip: usize,
    ) {
        let [left, right] = neighbours;
        let skip_of = |tree: &Self, pool: &PagePool, number| tree.nodes.node(pool, number, level).skip();
        let skips = neighbours.map(|number| skip_of(self, change.pool, number));
        let mut node = self.nodes.node_mut(change.pool, right, level);
        if node.len() == 0 {
            node.set_skip(skips[0]);
            return;
        }
        if skips == [0, 0] && (level == Level::Leaf || skip == 0) {
            if level == Level::Inner {
                node.set_entry(0, separator);
            }
            return;
        }
        let between = if level == Level::Inner { separator } else { node.entry(0) };
        let key = self.read_key(change, &between);
        // Each shares with this key as many bytes as it skips, so both do with each other.
        neighbours.iter().for_each(|&number| self.skip_less(change, number, level, &key));
        let skips = neighbours.map(|number| skip_of(self, change.pool, number));
        let common = skips[0].min(skips[1]);
        for (number, skip) in neighbours.into_iter().zip(skips) {
            if skip > common {
                self.set_skip(change, number, level, common);
            }
        }
        if level == Level::Inner {
            let separator = separator.in_node(&key, common);
            self.nodes.node_mut(change.pool, right, level).set_entry(0, separator);
        }
        debug_assert_eq!(skip_of(self, change.pool, left), common);
        self.key = key;
    }

    /// Makes a node skip so many bytes, which all its keys share: takes the parts of its entries from the rows.
    fn set_skip<S: KeySource>(&mut self, change: &mut Change<'_, S>, number: u32, level: Level, skip: usize) {
        let mut node = self.nodes.copy(change.pool, number, level);
        let mut resolver = self.resolver(change);
        let places = level.first()..node.len();
        places.clone().for_each(|place| resolver.source.prefetch(resolver.pool, node.row(place)));
        for place in places {
            let entry = node.entry(place);
            node.set_entry(place, resolver.with_key(&entry, |key| entry.in_node(key, skip)));
        }
        node.set_skip(skip);
        self.nodes.write(change.pool, number, &node);
    }
}
