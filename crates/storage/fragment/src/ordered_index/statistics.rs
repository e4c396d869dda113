//! What an optimizer wants to know: how many entries a range has, how many different values the first columns have.
//!
//! **Entries of a range** follow from the two ways down to its ends. Between them lie whole subtrees, of each of which
//! the root is looked at: it counts as many entries as it has children or, above the leaves' parents, as many times the
//! average of the subtrees at the level of its children. So the estimate is exact if at most one inner node lies above
//! the whole range or two beside each other do. Beyond that it errs as the nodes of the range differ from the average,
//! which they do by a third or so, and less the more there are. After inserts in random order an estimate is within
//! a sixth; where keys came in a pattern it may be a third off, and in an index of which one part was filled in another
//! way than the rest it may be more.
//!
//! **Different values.** Entries are sorted, so the first columns have one value more than there are pairs of
//! neighbours that differ in them. Among the separators of a level, as if it were the leaves of a smaller tree, the
//! same is true, and no level above the leaves has more values than the leaves. So ways down to leaves are taken,
//! spread evenly; pairs of neighbours are compared in all nodes on a way, and the greatest of the estimates of all
//! levels counts: high levels see few and frequent values, the leaves see rare ones. A level in which hardly any pair
//! was seen to differ is left out: if there are more values than the level above shows, more pairs differ.

use super::cut::KeySource;
use super::node::Level;
use super::{LEVELS_MAX, Path, Range, Tree};
use alloc::vec::Vec;
use core::ops::Range as Places;
use vinga_base::order_key::OrderKey;
use vinga_base::page_pool::{PAGE_BYTES, PagePool};

/// So many pairs must differ before a level counts that has not been seen as a whole.
const DIFFERING_MIN: u64 = 4;

/// What an index takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexUsage {
    /// Entries; what counts the same key of the same row is one.
    pub entries: u64,
    /// Levels, leaves included.
    pub height: u32,
    /// Nodes that are leaves.
    pub leaves: u32,
    /// Nodes above them.
    pub inner_nodes: u32,
    /// Pages of the pool.
    pub pages: u32,
    /// Bytes of these pages.
    pub bytes: u64,
    /// Bytes of bookkeeping outside of the pool.
    pub heap_bytes: u64,
}

/// Pairs of neighbours that were compared in one level.
#[derive(Clone, Default)]
struct LevelSample {
    pairs: u64,
    /// How many of them differ in the first columns, for one column, two columns and so on.
    differing: Vec<u64>,
}

/// A sample of the values of an index, that grows with each [`Tree::sample`].
#[derive(Clone)]
pub struct DistinctSample {
    levels: Vec<LevelSample>,
    ways: u64,
    key: Vec<u8>,
    before: Vec<u8>,
    ends: Vec<usize>,
}

impl DistinctSample {
    /// A sample of an index over so many columns.
    pub fn new(columns: usize) -> Self {
        let level = LevelSample { pairs: 0, differing: alloc::vec![0; columns] };
        DistinctSample {
            levels: alloc::vec![level; LEVELS_MAX],
            ways: 0,
            key: Vec::new(),
            before: Vec::new(),
            ends: Vec::new(),
        }
    }
}

impl<const N: usize> Tree<N> {
    /// What the index takes.
    pub fn usage(&self) -> IndexUsage {
        IndexUsage {
            entries: self.entries,
            height: self.height as u32,
            leaves: self.nodes_of_level[0],
            inner_nodes: self.nodes.used() - self.nodes_of_level[0],
            pages: self.nodes.pages(),
            bytes: u64::from(self.nodes.pages()) * PAGE_BYTES as u64,
            heap_bytes: (self.nodes.heap_bytes() + self.listed.heap_bytes()) as u64,
        }
    }

    /// Entries in a range, roughly. It takes two searches and a look at the nodes beside the two ways.
    pub fn estimate<S: KeySource>(&self, pool: &PagePool, source: &mut S, range: &Range<'_>) -> u64 {
        if self.height == 0 {
            return 0;
        }
        let (mut lower, mut upper) = (Path::new(), Path::new());
        let mut resolver = self.reader(pool, source);
        self.descend(&mut resolver, &range.from, &mut lower);
        match &range.to {
            Some(to) => self.descend(&mut resolver, to, &mut upper),
            None => self.descend_to_end(pool, &mut upper),
        }
        // As long as the ways are one, what lies between them lies between two places of one node.
        let (mut entries, mut are_apart) = (0, false);
        for depth in 0..self.height {
            let (from, to) = (lower.steps[depth], upper.steps[depth]);
            let (from_at, to_at) = (usize::from(from.at), usize::from(to.at));
            // In an inner node the child on the way is counted further down.
            let behind = from_at + self.level(depth).first();
            if are_apart {
                let len = self.nodes.node(pool, from.node, self.level(depth)).len();
                entries += self.entries_below(pool, depth, from.node, behind..len);
                entries += self.entries_below(pool, depth, to.node, 0..to_at);
            } else if from_at < to_at {
                are_apart = true;
                entries += self.entries_below(pool, depth, from.node, behind..to_at);
            } else if from_at > to_at {
                return 0;
            }
        }
        entries.min(self.entries)
    }

    /// Entries below some places of a node, roughly.
    fn entries_below(&self, pool: &PagePool, depth: usize, number: u32, places: Places<usize>) -> u64 {
        if self.level(depth) == Level::Leaf {
            return places.len() as u64;
        }
        let node = self.nodes.node(pool, number, Level::Inner);
        let level_below = self.height - 2 - depth;
        let kind = self.level(depth + 1);
        let len: usize = places.map(|place| self.nodes.node(pool, node.child(place), kind).len()).sum();
        match level_below {
            0 => len as u64,
            _ => len as u64 * self.entries / u64::from(self.nodes_of_level[level_below - 1]),
        }
    }

    /// Adds one way down to a leaf to a sample: as many keys are read as the nodes on it have entries. Some thirty ways
    /// give a fair picture; they can be taken one at a time.
    pub fn sample<S: KeySource>(
        &self,
        pool: &PagePool,
        source: &mut S,
        order: &OrderKey,
        sample: &mut DistinctSample,
    ) {
        // How far through the index the way leads, as a fraction of 2^64. Multiples of the golden ratio lie evenly,
        // however many they are.
        sample.ways += 1;
        let mut fraction = sample.ways.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut number = self.root;
        for depth in 0..self.height {
            let level = self.level(depth);
            let node = self.nodes.node(pool, number, level);
            // The entry in place 0 of an inner node means nothing.
            let first = level.first();
            (first..node.len()).for_each(|place| source.prefetch(pool, node.row(place)));
            for place in first..node.len() {
                core::mem::swap(&mut sample.key, &mut sample.before);
                sample.key.clear();
                self.write_key(pool, source, &node.entry(place), &mut sample.key);
                if place > first {
                    sample.compare(self.height - 1 - depth, order);
                }
            }
            if level == Level::Inner {
                let at = u128::from(fraction) * node.len() as u128;
                number = node.child((at >> 64) as usize);
                fraction = at as u64;
            }
        }
    }

    /// How many different values the first columns have, for one column, two columns and so on, roughly.
    pub fn distinct(&self, sample: &DistinctSample) -> Vec<u64> {
        let columns = sample.levels[0].differing.len();
        let mut distinct = alloc::vec![u64::from(self.entries > 0); columns];
        for (level, of_level) in sample.levels.iter().enumerate().take(self.height) {
            if of_level.pairs == 0 {
                continue;
            }
            let entries = match level {
                0 => self.entries,
                _ => u64::from(self.nodes_of_level[level - 1]),
            };
            for (distinct, &differing) in distinct.iter_mut().zip(&of_level.differing) {
                if differing < DIFFERING_MIN && of_level.pairs < entries - 1 {
                    continue;
                }
                let pairs = u128::from(entries - 1) * u128::from(differing) / u128::from(of_level.pairs);
                *distinct = (*distinct).max(1 + pairs as u64);
            }
        }
        distinct
    }
}

impl DistinctSample {
    /// Compares the two keys that were read last.
    fn compare(&mut self, level: usize, order: &OrderKey) {
        let shared = self.before.iter().zip(&self.key).take_while(|(left, right)| left == right).count();
        self.ends.clear();
        order.column_ends(&self.before, &mut self.ends);
        let level = &mut self.levels[level];
        level.pairs += 1;
        for (differing, &end) in level.differing.iter_mut().zip(&self.ends) {
            *differing += u64::from(shared < end);
        }
    }
}
