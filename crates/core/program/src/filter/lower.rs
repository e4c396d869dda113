//! Lowering: from a checked condition to the flat form that is evaluated.
//!
//! Only "true" selects a row, and unknown is never true, so two values are enough once NOT is only at the leaves:
//! 1. NOT is pushed down by De Morgan's laws, which hold in three-valued logic. A leaf absorbs it by accepting the
//!    other outcomes; a NULL operand still makes it fail. A condition that is unknown for every row becomes "never".
//! 2. Tests of constants are decided; AND and OR that this decides, or that have one child left, disappear.
//! 3. A comparison of a column with a constant becomes a *range*, `low <= column <= high`, or the rows outside it. An
//!    integer range costs one subtraction and one comparison, whatever the operator, the width and the sign. Bytes of
//!    fixed size up to eight (dates, times, decimals, short text) are ranges of big-endian integers. Ranges of one
//!    column under one AND are intersected.
//! 4. The children of AND and OR are ordered by cost, cheap ones first, equal ones in the client's order. No order
//!    changes a result: leaves have no side effects and no errors.
//!
//! The flat form is a list of nodes, each parent before its children; a parent holds the position where its children
//! end.

use super::bytes_test::BytesTest;
use super::check::{Bytes, Condition, Test, Value};
use super::kernels::{DoubleRange, IntegerSet, Leaf, NullTest, Range, RawColumn};
use super::number_test::NumberTest;
use super::numbers::{Double, Integer};
use crate::comparison::Outcomes;
use crate::stored_value::integer_range;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;
use vinga_base::row_layout::{ColumnLayout, Place, RowLayout};
use vinga_base::schema::Kind;

/// A node of the flat form.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// True if all children are: the nodes from here to `end`. Without children: always.
    All {
        end: usize,
    },
    /// True if one child is. Without children: never.
    Any {
        end: usize,
    },
    Leaf(Leaf),
}

/// Lowers a condition on rows of this layout.
pub(super) fn lower(condition: Condition, layout: &RowLayout) -> Vec<Node> {
    let mut nodes = Vec::new();
    flatten(Lowering { layout }.condition(condition, false), &mut nodes);
    nodes
}

/// The form between the typed tree and the flat form: no NOT, no unknown.
pub(super) enum Tree {
    All(Vec<Tree>),
    Any(Vec<Tree>),
    Leaf(Leaf),
}

const ALWAYS: Tree = Tree::All(Vec::new());
const NEVER: Tree = Tree::Any(Vec::new());

impl Tree {
    fn is_always(&self) -> bool {
        matches!(self, Tree::All(children) if children.is_empty())
    }

    fn is_never(&self) -> bool {
        matches!(self, Tree::Any(children) if children.is_empty())
    }

    fn cost(&self) -> u64 {
        match self {
            Tree::All(children) | Tree::Any(children) => children.iter().map(Tree::cost).sum(),
            Tree::Leaf(leaf) => leaf.cost(),
        }
    }
}

fn flatten(tree: Tree, nodes: &mut Vec<Node>) {
    let at = nodes.len();
    match tree {
        Tree::Leaf(leaf) => nodes.push(Node::Leaf(leaf)),
        Tree::All(children) => {
            nodes.push(Node::All { end: 0 });
            children.into_iter().for_each(|child| flatten(child, nodes));
            nodes[at] = Node::All { end: nodes.len() };
        }
        Tree::Any(children) => {
            nodes.push(Node::Any { end: 0 });
            children.into_iter().for_each(|child| flatten(child, nodes));
            nodes[at] = Node::Any { end: nodes.len() };
        }
    }
}

pub(super) struct Lowering<'a> {
    pub(super) layout: &'a RowLayout,
}

impl Lowering<'_> {
    fn condition(&self, condition: Condition, negated: bool) -> Tree {
        match condition {
            Condition::Unknown => NEVER,
            Condition::Not(child) => self.condition(*child, !negated),
            Condition::All(children) if negated => self.any(children, negated),
            Condition::Any(children) if negated => self.all(children, negated),
            Condition::All(children) => self.all(children, negated),
            Condition::Any(children) => self.any(children, negated),
            Condition::Test(test) => self.test(test, negated),
        }
    }

    fn any(&self, children: Vec<Condition>, negated: bool) -> Tree {
        let mut lowered = Vec::with_capacity(children.len());
        for child in children {
            match self.condition(child, negated) {
                always if always.is_always() => return ALWAYS,
                Tree::Any(grandchildren) => lowered.extend(grandchildren),
                other => lowered.push(other),
            }
        }
        by_cost(lowered, Tree::Any)
    }

    fn all(&self, children: Vec<Condition>, negated: bool) -> Tree {
        let mut lowered = Vec::with_capacity(children.len());
        for child in children {
            match self.condition(child, negated) {
                never if never.is_never() => return NEVER,
                Tree::All(grandchildren) => lowered.extend(grandchildren),
                other => lowered.push(other),
            }
        }
        match self.intersect_ranges(lowered) {
            Some(lowered) => by_cost(lowered, Tree::All),
            None => NEVER,
        }
    }

    /// `None` if two ranges have nothing in common.
    fn intersect_ranges(&self, children: Vec<Tree>) -> Option<Vec<Tree>> {
        let mut kept: Vec<Tree> = Vec::with_capacity(children.len());
        let mut range_of: BTreeMap<u16, usize> = BTreeMap::new();
        for child in children {
            if let Tree::Leaf(Leaf::Range(new)) = &child
                && !new.negated
            {
                if let Some(&at) = range_of.get(&new.raw.offset) {
                    let Tree::Leaf(Leaf::Range(old)) = &mut kept[at] else {
                        unreachable!("only ranges are noted")
                    };
                    *old = old.intersection(new)?;
                    continue;
                }
                range_of.insert(new.raw.offset, kept.len());
            }
            kept.push(child);
        }
        Some(kept)
    }

    fn test(&self, test: Test, negated: bool) -> Tree {
        let outcomes = |accepted: Outcomes| if negated { accepted.complement() } else { accepted };
        match test {
            Test::Integers(left, right, accepted) => self.integers(left, right, outcomes(accepted)),
            Test::Doubles(left, right, accepted) => self.doubles(left, right, outcomes(accepted)),
            Test::Bytes(left, right, accepted) => self.bytes(left, right, outcomes(accepted)),
            Test::IntegerIn(value, members) => self.integer_in(value, members, negated),
            Test::DoubleIn(value, members) => double_in(value, members, negated),
            Test::BytesIn(value, members) => self.bytes_in(value, members, negated),
            Test::StartsWith(value, prefix) => self.starts_with(value, prefix, negated),
            Test::IsNull(value) => self.is_null(value, negated),
        }
    }

    pub(super) fn integers(&self, left: Integer, right: Integer, accepted: Outcomes) -> Tree {
        match (left, right) {
            (Integer::Constant(left), Integer::Constant(right)) => {
                decided(accepted.accept(Some(left.cmp(&right))))
            }
            (Integer::Column(column), Integer::Constant(constant)) => {
                self.range_to_constant(&column, RawColumn::integer(&column), constant, accepted)
            }
            (Integer::Constant(constant), Integer::Column(column)) => {
                self.range_to_constant(&column, RawColumn::integer(&column), constant, accepted.mirrored())
            }
            (left, right) => Tree::Leaf(Leaf::Numbers(NumberTest::Integers { left, right, accepted })),
        }
    }

    fn doubles(&self, left: Double, right: Double, accepted: Outcomes) -> Tree {
        match (left, right) {
            (Double::Constant(left), Double::Constant(right)) => {
                decided(accepted.accept(left.partial_cmp(&right)))
            }
            (Double::Column(column), Double::Constant(constant)) => {
                self.double_range(&column, constant, accepted)
            }
            (Double::Constant(constant), Double::Column(column)) => {
                self.double_range(&column, constant, accepted.mirrored())
            }
            (left, right) => Tree::Leaf(Leaf::Numbers(NumberTest::Doubles { left, right, accepted })),
        }
    }

    fn bytes(&self, left: Bytes, right: Bytes, accepted: Outcomes) -> Tree {
        match (left, right) {
            (Bytes::Constant(left), Bytes::Constant(right)) => {
                decided(accepted.accept(Some(left.cmp(&right))))
            }
            (Bytes::Column(column), Bytes::Constant(constant)) => {
                self.bytes_to_constant(column, constant, accepted)
            }
            (Bytes::Constant(constant), Bytes::Column(column)) => {
                self.bytes_to_constant(column, constant, accepted.mirrored())
            }
            (Bytes::Column(left), Bytes::Column(right)) => {
                Tree::Leaf(Leaf::Bytes(BytesTest::Column { left, right, accepted }))
            }
        }
    }

    fn bytes_to_constant(&self, column: ColumnLayout, constant: Vec<u8>, accepted: Outcomes) -> Tree {
        match RawColumn::short_bytes(&column) {
            Some(raw) => self.range_to_constant(&column, raw, big_endian(&constant), accepted),
            None => Tree::Leaf(Leaf::Bytes(BytesTest::Constant { column, constant, accepted })),
        }
    }

    /// A test of a column whose raw form is an integer against a constant that may lie outside the column's range.
    fn range_to_constant(
        &self,
        column: &ColumnLayout,
        raw: RawColumn,
        constant: i128,
        accepted: Outcomes,
    ) -> Tree {
        let [less, equal, greater] =
            [Ordering::Less, Ordering::Equal, Ordering::Greater].map(|o| accepted.accept(Some(o)));
        if less && greater && !equal {
            return self.range(column, raw, constant, constant, true);
        }
        let low = if less { i128::MIN } else { constant + i128::from(!equal) };
        let high = if greater { i128::MAX } else { constant - i128::from(!equal) };
        self.range(column, raw, low, high, false)
    }

    /// The rows whose value lies between `low` and `high`, or the others; NULL is in neither.
    fn range(&self, column: &ColumnLayout, raw: RawColumn, low: i128, high: i128, negated: bool) -> Tree {
        let (least, greatest) = raw.range(column.kind);
        if low > greatest || high < least || low > high {
            return if negated { self.is_known(column) } else { NEVER };
        }
        if low <= least && high >= greatest {
            return if negated { NEVER } else { self.is_known(column) };
        }
        let (low, high) = (low.max(least), high.min(greatest));
        Tree::Leaf(Leaf::Range(Range::new(raw, low, high, negated, self.null_test(column))))
    }

    /// A double or float column compared with a constant. As ranges are closed, `< c` ends at the greatest double below
    /// c.
    fn double_range(&self, column: &ColumnLayout, constant: f64, accepted: Outcomes) -> Tree {
        // A range holds no NaN. If NaN is accepted, the range holds the rows that are not, and is negated.
        let negated = accepted.accept_unordered();
        let accepted = if negated { accepted.complement() } else { accepted };
        let [less, equal, greater] =
            [Ordering::Less, Ordering::Equal, Ordering::Greater].map(|o| accepted.accept(Some(o)));
        let nothing = constant.is_nan()
            || !(less || equal || greater)
            || (!equal && !greater && constant == f64::NEG_INFINITY)
            || (!equal && !less && constant == f64::INFINITY);
        if nothing {
            return if negated { self.is_known(column) } else { NEVER };
        }
        let low = match (less, equal) {
            (true, _) => f64::NEG_INFINITY,
            (false, true) => constant,
            (false, false) => constant.next_up(),
        };
        let high = match (greater, equal) {
            (true, _) => f64::INFINITY,
            (false, true) => constant,
            (false, false) => constant.next_down(),
        };
        let offset = fixed_offset(column);
        let null = self.null_test(column);
        Tree::Leaf(Leaf::DoubleRange(DoubleRange { offset, kind: column.kind, low, high, negated, null }))
    }

    fn integer_in(&self, value: Integer, mut members: Vec<i128>, negated: bool) -> Tree {
        members.sort_unstable();
        members.dedup();
        match value {
            Integer::Constant(constant) => decided(members.binary_search(&constant).is_ok() != negated),
            Integer::Column(column) => self.raw_in(&column, RawColumn::integer(&column), members, negated),
            Integer::Binary(..) => {
                Tree::Leaf(Leaf::Numbers(NumberTest::IntegerIn { value, members, negated }))
            }
        }
    }

    fn bytes_in(&self, value: Bytes, mut members: Vec<Vec<u8>>, negated: bool) -> Tree {
        members.sort_unstable();
        members.dedup();
        match value {
            Bytes::Constant(constant) => decided(members.binary_search(&constant).is_ok() != negated),
            Bytes::Column(column) => match RawColumn::short_bytes(&column) {
                Some(raw) => {
                    let members = members.iter().map(|member| big_endian(member)).collect();
                    self.raw_in(&column, raw, members, negated)
                }
                None => Tree::Leaf(Leaf::Bytes(BytesTest::In { column, members, negated })),
            },
        }
    }

    fn raw_in(&self, column: &ColumnLayout, raw: RawColumn, mut members: Vec<i128>, negated: bool) -> Tree {
        let (least, greatest) = raw.range(column.kind);
        members.retain(|&member| (least..=greatest).contains(&member));
        match (members.first(), members.last()) {
            (Some(&first), Some(&last)) if last - first == members.len() as i128 - 1 => {
                self.range(column, raw, first, last, negated)
            }
            (Some(_), Some(_)) => {
                let null = self.null_test(column);
                Tree::Leaf(Leaf::IntegerSet(IntegerSet::new(raw, &members, negated, null)))
            }
            (None, _) | (_, None) => {
                if negated {
                    self.is_known(column)
                } else {
                    NEVER
                }
            }
        }
    }

    fn starts_with(&self, value: Bytes, prefix: Vec<u8>, negated: bool) -> Tree {
        let column = match value {
            Bytes::Constant(constant) => return decided(constant.starts_with(&prefix) != negated),
            Bytes::Column(column) => column,
        };
        let fits = match column.kind {
            Kind::Bytes(width) | Kind::VarBytes(width) => prefix.len() <= usize::from(width),
            Kind::Signed(_) | Kind::Unsigned(_) | Kind::Float | Kind::Double => {
                unreachable!("the check admits bytes only")
            }
        };
        match RawColumn::short_bytes(&column) {
            _ if !fits && negated => self.is_known(&column),
            _ if !fits => NEVER,
            Some(raw) => {
                let open_bits = 8 * (usize::from(raw.bytes) - prefix.len());
                let low = big_endian(&prefix) << open_bits;
                self.range(&column, raw, low, low + (1 << open_bits) - 1, negated)
            }
            None => Tree::Leaf(Leaf::Bytes(BytesTest::Prefix { column, prefix, negated })),
        }
    }

    fn is_null(&self, value: Value, negated: bool) -> Tree {
        match value {
            Value::Null => decided(!negated),
            Value::Integer(Integer::Constant(_))
            | Value::Double(Double::Constant(_))
            | Value::Bytes(Bytes::Constant(_)) => decided(negated),
            Value::Integer(Integer::Column(column))
            | Value::Double(Double::Column(column))
            | Value::Bytes(Bytes::Column(column)) => match self.null_test(&column) {
                Some(test) => Tree::Leaf(Leaf::Null { test, negated }),
                None => decided(negated),
            },
            Value::Integer(value) => Tree::Leaf(Leaf::Numbers(NumberTest::IntegerNull { value, negated })),
            Value::Double(value) => Tree::Leaf(Leaf::Numbers(NumberTest::DoubleNull { value, negated })),
        }
    }

    fn is_known(&self, column: &ColumnLayout) -> Tree {
        match self.null_test(column) {
            Some(test) => Tree::Leaf(Leaf::Null { test, negated: true }),
            None => ALWAYS,
        }
    }

    fn null_test(&self, column: &ColumnLayout) -> Option<NullTest> {
        column
            .null_bit
            .map(|bit| NullTest { offset: self.layout.null_offset() as u16 + bit / 8, mask: 1 << (bit % 8) })
    }
}

fn double_in(value: Double, mut members: Vec<f64>, negated: bool) -> Tree {
    // NaN equals nothing; without it the order is total.
    members.retain(|member| !member.is_nan());
    members.sort_unstable_by(f64::total_cmp);
    match value {
        Double::Constant(constant) => decided(members.contains(&constant) != negated),
        value => Tree::Leaf(Leaf::Numbers(NumberTest::DoubleIn { value, members, negated })),
    }
}

fn decided(always: bool) -> Tree {
    if always { ALWAYS } else { NEVER }
}

fn by_cost(mut children: Vec<Tree>, parent: fn(Vec<Tree>) -> Tree) -> Tree {
    if children.len() == 1 {
        return children.pop().expect("one child");
    }
    children.sort_by_cached_key(Tree::cost);
    parent(children)
}

/// At most eight bytes as an unsigned number with the same order.
fn big_endian(bytes: &[u8]) -> i128 {
    bytes.iter().fold(0, |number, &byte| number << 8 | i128::from(byte))
}

fn fixed_offset(column: &ColumnLayout) -> u16 {
    match column.place {
        Place::Fixed { offset, .. } => offset,
        Place::Variable { .. } => unreachable!("numbers and short bytes lie in the fixed part"),
    }
}

impl RawColumn {
    fn integer(column: &ColumnLayout) -> Self {
        let bytes = column.kind.fixed_bytes().expect("integers are of fixed size") as u8;
        RawColumn { offset: fixed_offset(column), bytes, big_endian: false }
    }

    /// Bytes of fixed size that fit into an integer.
    fn short_bytes(column: &ColumnLayout) -> Option<Self> {
        match column.kind {
            Kind::Bytes(bytes @ 1..=8) => {
                Some(RawColumn { offset: fixed_offset(column), bytes: bytes as u8, big_endian: true })
            }
            Kind::Bytes(_)
            | Kind::VarBytes(_)
            | Kind::Signed(_)
            | Kind::Unsigned(_)
            | Kind::Float
            | Kind::Double => None,
        }
    }

    /// The least and greatest value.
    fn range(self, kind: Kind) -> (i128, i128) {
        integer_range(kind).unwrap_or((0, (1 << (8 * u32::from(self.bytes))) - 1))
    }
}
