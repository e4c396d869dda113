//! How nodes are divided, joined and evened out.
//!
//! The rules stand in the head of `ordered_index.rs`. All nodes that an insert may take are reserved before it comes
//! here.

use super::cut::KeySource;
use super::entry::{Entry, PART_BYTES};
use super::node::Level;
use super::{Change, LEVELS_MAX, Path, Step, Tree};
use vinga_base::RowId;
use vinga_base::page_pool::PagePool;

impl<const N: usize> Tree<N> {
    /// More entries than this a node has, unless it is at the right edge.
    pub(super) const fn len_min(level: Level) -> usize {
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
    pub(super) fn nodes_for_insert(&self, pool: &PagePool, path: &Path) -> u32 {
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
    pub(super) fn insert_at<S: KeySource>(
        &mut self,
        change: &mut Change<'_, S>,
        path: &Path,
        key: &[u8],
        entry: Entry,
    ) {
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
    pub(super) fn add_root(&mut self, pool: &mut PagePool) -> u32 {
        assert!(self.height < LEVELS_MAX, "a tree of that height would have more entries than there are");
        let below = self.root;
        self.height += 1;
        self.root = self.take_node(pool, 0);
        let nothing = Entry::new(&[], RowId(0));
        self.nodes.node_mut(pool, self.root, Level::Inner).insert(0, nothing, below);
        self.root
    }

    /// Takes out the entry in front of the place to which a path leads.
    pub(super) fn remove_before<S: KeySource>(&mut self, change: &mut Change<'_, S>, path: &Path) {
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
