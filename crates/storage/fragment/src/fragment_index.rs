//! One ordered index of one fragment: its id in the table's definition, how its keys are made, and its tree.
//!
//! The fragment keeps it beside its rows and frees it with them. Who enters and removes keys is whoever knows the
//! versions of rows: the fragment knows only those in the slots.

use crate::ordered_index::OrderedIndex;
use vinga_base::order_key::OrderKey;

/// See the head of this file.
pub struct FragmentIndex {
    id: u16,
    order: OrderKey,
    /// The entries.
    pub tree: OrderedIndex,
}

impl FragmentIndex {
    /// An index without entries.
    pub fn new(id: u16, order: OrderKey) -> Self {
        FragmentIndex { id, order, tree: OrderedIndex::new() }
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
