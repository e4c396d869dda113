//! A lowered filter and how it is evaluated.
//!
//! A block is evaluated 64 rows, one word of its bitmap, at a time, with the whole filter before the next 64: their few
//! kilobytes stay in the first-level cache, and no bitmap is needed other than the caller's. Within a word evaluation
//! goes column by column: AND hands each leaf the rows that all earlier ones have passed, OR those that none has passed
//! yet, and both stop when no rows are left; a word without rows costs one test.

use super::error::ProgramError;
use super::kernels::Leaf;
use super::lower::{Node, lower};
use super::row_block::{RowBlock, VariableSource};
use super::tree::Expression;
use super::{check, codec, plain, row_block};
use alloc::vec::Vec;
use vinga_base::row_layout::RowLayout;

/// A filter, ready to be evaluated on rows of the layout that it was made for.
#[derive(Clone, Debug)]
pub struct Program {
    /// The root is the first node.
    nodes: Vec<Node>,
    /// All nodes are ranges under an AND.
    has_ranges_only: bool,
}

impl Program {
    /// Checks a filter against a table's layout and lowers it.
    ///
    /// # Errors
    /// What does not fit, and where; the rules are those of [`super::tree`] and the type check.
    pub fn new(filter: &Expression, layout: &RowLayout) -> Result<Self, ProgramError> {
        let condition = check::check(filter, layout)?;
        Ok(Program::of(lower(condition, layout)))
    }

    /// The same, from the encoded filter.
    ///
    /// # Errors
    /// Those of [`super::codec::decode`] and [`Program::new`].
    pub fn read(filter: &[u8], layout: &RowLayout) -> Result<Self, ProgramError> {
        match plain::read(filter, layout) {
            Some(nodes) => Ok(Program::of(nodes)),
            None => Program::new(&codec::decode(filter)?, layout),
        }
    }

    fn of(nodes: Vec<Node>) -> Self {
        let has_ranges_only = matches!(&nodes[0], Node::All { .. })
            && nodes[1..].iter().all(|node| matches!(node, Node::Leaf(Leaf::Range(_))));
        Program { nodes, has_ranges_only }
    }

    /// Where in the fixed part the first test of a row reads, if all tests are of columns there: for callers that
    /// prefetch rows.
    pub fn first_byte(&self) -> Option<usize> {
        match self.nodes.get(1) {
            Some(Node::Leaf(Leaf::Range(range))) if self.has_ranges_only => Some(range.offset()),
            _ => None,
        }
    }

    /// Clears the bits of rows that do not pass. Bit `i % 64` of word `i / 64` is that of slot `i`; bits behind the
    /// block's last slot are cleared.
    pub fn select(&self, block: &RowBlock<'_>, selected: &mut [u64]) {
        let mut first = 0;
        for word in selected {
            let slots = block.count().saturating_sub(first);
            if slots < 64 {
                *word &= (1 << slots) - 1;
            }
            if *word != 0 {
                *word = self.passing(0, block, first, *word);
            }
            first += 64;
        }
    }

    /// Whether one row passes.
    pub fn matches(&self, layout: &RowLayout, fixed: &[u8], variable: &[u8]) -> bool {
        self.matches_source(layout, fixed, &OneRow(variable))
    }

    /// The same for a row whose variable part is only looked up if it is needed: the row is slot 0 of the source.
    #[inline]
    pub fn matches_source(&self, layout: &RowLayout, fixed: &[u8], variable: &dyn VariableSource) -> bool {
        let passes = |node: &Node| matches!(node, Node::Leaf(Leaf::Range(range)) if range.passes(fixed));
        if self.has_ranges_only {
            self.nodes[1..].iter().all(passes)
        } else {
            self.matches_at(0, layout, fixed, variable)
        }
    }

    /// Whether a node is true for one row. Recursion as in [`Program::passing`].
    fn matches_at(&self, at: usize, layout: &RowLayout, fixed: &[u8], variable: &dyn VariableSource) -> bool {
        let (end, decides) = match &self.nodes[at] {
            Node::Leaf(leaf) => return leaf.matches(layout, fixed, variable),
            Node::All { end } => (*end, false),
            Node::Any { end } => (*end, true),
        };
        let mut child = at + 1;
        while child < end {
            let matches = match &self.nodes[child] {
                Node::Leaf(leaf) => leaf.matches(layout, fixed, variable),
                Node::All { .. } | Node::Any { .. } => self.matches_at(child, layout, fixed, variable),
            };
            if matches == decides {
                return decides;
            }
            child = self.behind(child);
        }
        !decides
    }

    /// Roughly the nanoseconds that 16 rows take if no leaf can be skipped. Callers that evaluate in slices derive from
    /// it how many rows make a slice, because a client can send a program that takes microseconds per row.
    pub fn cost(&self) -> u64 {
        let leaf_cost = |node: &Node| match node {
            Node::Leaf(leaf) => leaf.cost(),
            Node::All { .. } | Node::Any { .. } => 1,
        };
        self.nodes.iter().map(leaf_cost).sum()
    }

    /// The rows of `selected` for which a node is true. Recursion is limited by the depth of the client's tree.
    fn passing(&self, at: usize, block: &RowBlock<'_>, first: usize, selected: u64) -> u64 {
        match &self.nodes[at] {
            Node::Leaf(leaf) => leaf.select(block, first, selected),
            Node::All { end } => {
                let mut left = selected;
                let mut child = at + 1;
                while child < *end && left != 0 {
                    left = self.passing(child, block, first, left);
                    child = self.behind(child);
                }
                left
            }
            Node::Any { end } => {
                let mut left = selected;
                let mut child = at + 1;
                while child < *end && left != 0 {
                    left &= !self.passing(child, block, first, left);
                    child = self.behind(child);
                }
                selected & !left
            }
        }
    }

    /// The node after a node and its children.
    #[inline]
    fn behind(&self, at: usize) -> usize {
        match self.nodes[at] {
            Node::Leaf(_) => at + 1,
            Node::All { end } | Node::Any { end } => end,
        }
    }
}

struct OneRow<'a>(&'a [u8]);

impl VariableSource for OneRow<'_> {
    fn variable(&self, _: usize) -> &[u8] {
        self.0
    }
}

// A slot number fits into the 16 bits of a lane.
const _: () = assert!(row_block::ROWS_MAX <= u16::MAX as usize);
