//! Checks all invariants: for tests, and when memory corruption is suspected.

use super::cut::{KeySource, shared_bytes};
use super::entry::Entry;
use super::node::Level;
use super::{Resolver, Tree};
use alloc::vec::Vec;
use vinga_base::page_pool::PagePool;

impl<const N: usize> Tree<N> {
    /// Checks that the whole index is as `ordered_index.rs` documents it. It reads every row.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check<S: KeySource>(&self, pool: &PagePool, source: &mut S) {
        let mut nodes_of_level = [0; super::LEVELS_MAX];
        let mut leaves = Vec::new();
        if self.height > 0 {
            let mut resolver = self.reader(pool, source);
            self.check_node(&mut resolver, 0, self.root, true, &mut nodes_of_level, &mut leaves);
        }
        assert_eq!(nodes_of_level, self.nodes_of_level, "nodes are counted");
        assert_eq!(nodes_of_level.iter().sum::<u32>(), self.nodes.used(), "no node is lost");
        assert!(self.nodes.pages() <= self.nodes.used(), "no page without nodes");
        assert_eq!(leaves.len() as u64, self.entries, "entries are counted");
        let listed = leaves.iter().filter(|entry| entry.listed().is_some()).count();
        assert_eq!(listed as u64, self.listed.entries(), "the list has a key for each listed entry");
        assert!(leaves.iter().all(|entry| entry.count() > 0), "entries are counted from one");
        let mut resolver = self.reader(pool, source);
        let keys: Vec<Vec<u8>> = leaves.iter().map(|entry| only_key(&mut resolver, entry)).collect();
        for (at, pair) in leaves.windows(2).enumerate() {
            let order = keys[at].cmp(&keys[at + 1]).then(pair[0].row.cmp(&pair[1].row));
            assert!(order.is_le(), "entries are ordered");
            assert_eq!(order.is_eq(), pair[0].is_same(&pair[1]), "keys and identities agree");
        }
    }

    /// Checks a node and all nodes below it, collects the entries, and returns the first one.
    fn check_node<S: KeySource>(
        &self,
        resolver: &mut Resolver<'_, S>,
        depth: usize,
        number: u32,
        is_last: bool,
        nodes_of_level: &mut [u32],
        leaves: &mut Vec<Entry>,
    ) -> Entry {
        let level = self.level(depth);
        nodes_of_level[self.height - 1 - depth] += 1;
        let node = self.nodes.node(resolver.pool, number, level);
        let least = match (depth, level) {
            (0, Level::Leaf) => 1,
            (0, Level::Inner) => 2,
            _ if is_last => 1,
            _ => Self::len_min(level),
        };
        assert!((least..=node.capacity()).contains(&node.len()), "{} entries at depth {depth}", node.len());
        let mut first_key = None;
        for place in level.first()..node.len() {
            let entry = node.entry(place);
            let key = only_key(resolver, &entry);
            assert_eq!(entry.in_node(&key, node.skip()), entry, "parts are those of the keys");
            assert!(node.skip() == 0 || entry.complete_bytes().is_none(), "complete keys are not skipped");
            let first_key = first_key.get_or_insert_with(|| key.clone());
            assert!(shared_bytes(first_key, &key) >= node.skip(), "skipped bytes are the same in all keys");
        }
        if level == Level::Leaf {
            leaves.extend((0..node.len()).map(|place| node.entry(place)));
            return node.entry(0);
        }
        let mut first_of_all = None;
        for place in 0..node.len() {
            let is_last = is_last && place + 1 == node.len();
            let first =
                self.check_node(resolver, depth + 1, node.child(place), is_last, nodes_of_level, leaves);
            assert!(place == 0 || node.entry(place).is_same(&first), "separators are first entries");
            first_of_all.get_or_insert(first);
        }
        first_of_all.expect("a node has children")
    }
}

/// The key of an entry; there must be exactly one.
fn only_key<S: KeySource>(resolver: &mut Resolver<'_, S>, entry: &Entry) -> Vec<u8> {
    let key = resolver.with_key(entry, <[u8]>::to_vec);
    if entry.complete_bytes().is_none() && entry.listed().is_none() {
        assert!(!resolver.is_ambiguous(entry, &key), "{entry:?} has one key");
    }
    key
}
