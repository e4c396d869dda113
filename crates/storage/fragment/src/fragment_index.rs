//! One ordered index of one fragment: its id in the table's definition, how its keys are made, and its tree.
//!
//! The fragment keeps it beside its rows and frees it with them. The caller that knows the versions of rows inserts and
//! removes keys: the fragment only knows the versions in the slots.

use crate::ordered_index::OrderedIndex;
use alloc::vec::Vec;
use vinga_base::order_key::OrderKey;

/// How many different values the first columns have: for one column, two columns and so on.
#[derive(Clone, Default, Debug)]
pub struct Distinct {
    /// Entries of the tree when this was estimated.
    pub entries: u64,
    /// Empty if it was never estimated.
    pub values: Vec<u64>,
}

impl Distinct {
    /// Whether the estimate is still good enough for a tree with this many entries: they are within a tenth of those at
    /// the time of the estimate.
    pub fn is_of(&self, entries: u64) -> bool {
        !self.values.is_empty() && self.entries.abs_diff(entries) <= self.entries / 10
    }
}

/// An ordered index of a fragment.
pub struct FragmentIndex {
    id: u16,
    order: OrderKey,
    /// The entries.
    pub tree: OrderedIndex,
    /// The last estimate.
    pub distinct: Distinct,
}

impl FragmentIndex {
    /// An index without entries.
    pub fn new(id: u16, order: OrderKey) -> Self {
        FragmentIndex { id, order, tree: OrderedIndex::new(), distinct: Distinct::default() }
    }

    /// Its id in the table's definition.
    #[inline]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// How keys are made.
    #[inline]
    pub fn order(&self) -> &OrderKey {
        &self.order
    }

    /// The tree, to change it, and how keys are made.
    #[inline]
    pub fn parts(&mut self) -> (&mut OrderedIndex, &OrderKey) {
        (&mut self.tree, &self.order)
    }
}
