//! How many bytes nodes skip.
//!
//! All keys of a node begin with the bytes that it skips; the number implies nothing else. So an entry that is moved
//! from one node to another gets a new part, and a node that receives an entry may have to skip less first. For both
//! the rows are read. Indexes whose keys are all complete, or differ early, never need this.

use super::cut::{KeySource, shared_bytes};
use super::entry::{Entry, PART_BYTES};
use super::node::Level;
use super::{Change, Tree};
use alloc::vec::Vec;
use vinga_base::page_pool::PagePool;

/// A node that is split begins to skip bytes if this many of the 8 are the same in all its entries.
const ALIKE_MIN: usize = 4;
/// This many bytes that all keys of a node share are not skipped, because the next key may differ in them.
const NOT_SKIPPED: usize = 2;
/// Bytes that a node can skip.
pub(super) const SKIP_MAX: usize = u16::MAX as usize;

impl<const N: usize> Tree<N> {
    /// An entry of a node that skips `skip` bytes in the form for an inner node, which may have to skip less.
    pub(super) fn moved<S: KeySource>(
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

    /// The key of an entry, in the buffer that the caller returns afterwards.
    fn read_key<S: KeySource>(&mut self, change: &mut Change<'_, S>, entry: &Entry) -> Vec<u8> {
        let mut buffer = core::mem::take(&mut self.key);
        buffer.clear();
        self.resolver(change).with_key(entry, |key| buffer.extend_from_slice(key));
        buffer
    }

    /// Prepares a node for a key: complete keys need a node that skips nothing, others one whose keys begin as they do.
    pub(super) fn skip_less<S: KeySource>(
        &mut self,
        change: &mut Change<'_, S>,
        number: u32,
        level: Level,
        key: &[u8],
    ) {
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

    /// Makes a node skip more if its entries have too many bytes in common.
    pub(super) fn skip_more<S: KeySource>(&mut self, change: &mut Change<'_, S>, number: u32, level: Level) {
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

    /// Makes two neighbours skip the same, so that entries can be moved from one to the other. In an inner node the
    /// first entry of the right one becomes valid: it is the separator, which comes from a node that skips `skip`
    /// bytes.
    pub(super) fn align<S: KeySource>(
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
        // Each shares with this key as many bytes as it skips, so they share them with each other.
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

    /// Makes a node skip this many bytes, which all its keys share: reads the parts of its entries from the rows.
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
