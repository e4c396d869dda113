//! A faster way for plain filters: integer columns that are compared with constants, joined by AND.
//!
//! Most scans have such a filter, and a short range is scanned in less time than the general way takes: it makes two
//! trees of the bytes before the flat form. Here the flat form is made directly from the bytes, with a single
//! allocation. Filters that are not plain, or not well formed, are left to the general way, so errors are reported in
//! one place:
//!
//! ```text
//!   filter:      u8 version, 0 parameters, AND with 1 to 16 terms, or one term
//!   term:        = <> < <= > >= with a column and a constant, or a constant and a column
//!                BETWEEN with a column and two constants
//! ```
//! As in the general form, ranges of one column are intersected and cheap ones come first; among equally cheap ones
//! those that let fewer values pass come first.

use super::VERSION;
use super::codec::{
    AND, BETWEEN, COLUMN, COMPARE, COMPARE_LAST, Decoder, NULL_SAFE_EQUAL, SIGNED, UNSIGNED, signed,
};
use super::kernels::{Leaf, Range};
use super::lower::{Lowering, Node, Tree};
use super::numbers::Integer;
use crate::comparison::{Comparison, Outcomes};
use alloc::vec::Vec;
use vinga_base::ColumnId;
use vinga_base::row_layout::{ColumnLayout, RowLayout};
use vinga_base::schema::Kind;

/// Terms of a plain filter, at most.
const TERMS_MAX: usize = 16;

/// The flat form of a plain filter; `None` if it is not plain, or always or never true.
pub(super) fn read(bytes: &[u8], layout: &RowLayout) -> Option<Vec<Node>> {
    let mut decoder = Decoder::new(bytes);
    if decoder.byte().ok()? != VERSION || decoder.number().ok()? != 0 {
        return None;
    }
    let mut nodes = Vec::with_capacity(TERMS_MAX / 2);
    nodes.push(Node::All { end: 0 });
    let mut reader = Reader { decoder, lowering: Lowering { layout }, nodes };
    match reader.decoder.byte().ok()? {
        AND => {
            let terms = reader.decoder.number().ok()?;
            if !(1..=TERMS_MAX as u64).contains(&terms) {
                return None;
            }
            for _ in 0..terms {
                let kind = reader.decoder.byte().ok()?;
                reader.term(kind)?;
            }
        }
        kind => reader.term(kind)?,
    }
    reader.decoder.is_at_end().then(|| reader.finish())
}

struct Reader<'a> {
    decoder: Decoder<'a>,
    lowering: Lowering<'a>,
    /// The root, then ranges.
    nodes: Vec<Node>,
}

impl Reader<'_> {
    fn term(&mut self, kind: u8) -> Option<()> {
        match kind {
            NULL_SAFE_EQUAL => None,
            COMPARE..=COMPARE_LAST => {
                let accepted = Comparison::ALL[usize::from(kind - COMPARE)].accepted();
                match self.decoder.byte().ok()? {
                    COLUMN => {
                        let column = self.column()?;
                        let constant = self.constant()?;
                        self.range(column, constant, accepted)
                    }
                    kind => {
                        let constant = self.constant_of(kind)?;
                        if self.decoder.byte().ok()? != COLUMN {
                            return None;
                        }
                        let column = self.column()?;
                        self.range(column, constant, accepted.mirrored())
                    }
                }
            }
            BETWEEN => {
                if self.decoder.byte().ok()? != COLUMN {
                    return None;
                }
                let column = self.column()?;
                let (low, high) = (self.constant()?, self.constant()?);
                self.range(column, low, Comparison::GreaterOrEqual.accepted())?;
                self.range(column, high, Comparison::LessOrEqual.accepted())
            }
            _ => None,
        }
    }

    /// An integer column.
    fn column(&mut self) -> Option<ColumnLayout> {
        let id = self.decoder.take(2).ok()?;
        let column = *self.lowering.layout.column(ColumnId(u16::from_le_bytes([id[0], id[1]])))?;
        matches!(column.kind, Kind::Signed(_) | Kind::Unsigned(_)).then_some(column)
    }

    fn constant(&mut self) -> Option<i128> {
        let kind = self.decoder.byte().ok()?;
        self.constant_of(kind)
    }

    fn constant_of(&mut self, kind: u8) -> Option<i128> {
        let number = match kind {
            SIGNED | UNSIGNED => self.decoder.number().ok()?,
            _ => return None,
        };
        Some(if kind == SIGNED { i128::from(signed(number)) } else { i128::from(number) })
    }

    /// Adds a test, or narrows a range of the same column.
    fn range(&mut self, column: ColumnLayout, constant: i128, accepted: Outcomes) -> Option<()> {
        let tree = self.lowering.integers(Integer::Column(column), Integer::Constant(constant), accepted);
        let Tree::Leaf(Leaf::Range(new)) = tree else { return None };
        for node in &mut self.nodes[1..] {
            if let Node::Leaf(Leaf::Range(old)) = node
                && old.raw.offset == new.raw.offset
                && !old.negated
                && !new.negated
            {
                *old = old.intersection(&new)?;
                return Some(());
            }
        }
        self.nodes.push(Node::Leaf(Leaf::Range(new)));
        Some(())
    }

    fn finish(mut self) -> Vec<Node> {
        let order = |node: &Node| match node {
            Node::Leaf(Leaf::Range(range)) => (Leaf::Range(*range).cost(), passing(range)),
            _ => unreachable!("ranges follow the root"),
        };
        self.nodes[1..].sort_by_key(order);
        self.nodes[0] = Node::All { end: self.nodes.len() };
        self.nodes
    }
}

/// How many values pass, approximately.
fn passing(range: &Range) -> u64 {
    let inside = (range.high - range.low) as u64;
    if range.negated { u64::MAX - inside } else { inside }
}
