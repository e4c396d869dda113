//! Conditions as the C++ side passes them: in postfix form, so that it only has to walk the server's tree.
//!
//! A condition stands for the set of rows for which the server's own condition is true. The data nodes may let more
//! rows pass, as the server checks them again, but never fewer; so a part that can't be expressed is *anything*, all
//! rows. There is no NOT: the C++ side writes the rows for which a part is false as another condition, by three-valued
//! logic.
//!
//! ```text
//!   c  u16 column             value: a column, by its place among the server's stored columns
//!   s  u16 column             value: its sort key, if the data nodes have it; else it is not known
//!   i  i64                    value: a signed integer
//!   u  u64                    value: an unsigned integer
//!   d  f64                    value: a double
//!   v  u16 column, u32 length, bytes   value: one of this column in the record's form
//!   r  u32 length, bytes      value: bytes as rows have them
//!   k  u16 column, u32 length, bytes   value: the sort key of this text
//!   0                         value: NULL
//!   ^  _                      the constant before it is a little more, or less, than this: no value of the column is
//!                             between
//!   =  #  <  [  >  ]  ~  x    condition: equal, not equal, less, at most, greater, at least, null-safe equal, not
//!                             null-safe equal; two values, of which the first is a column
//!   n  N                      condition: is NULL, is not NULL; one value
//!   b  B                      condition: between, not between; value, low, high
//!   I  J  u32 count           condition: in, not in; a value and `count` constants
//!   p  P                      condition: begins with, does not begin with; value and prefix
//!   ?                         condition: anything
//!   t  f                      condition: true for all rows, for none
//!   %                         the condition before it lets more rows pass than the server's own
//!   &  |  u32 count           condition: and, or of `count` conditions
//! ```
//! Numbers are little-endian.

mod bounds;
mod limits;
#[cfg(test)]
mod tests;
mod tree;

use crate::plan::Plan;
use crate::server::Server;
use limits::{Room, Shrinker};
use tree::{Operand, Side, Tree};
use vinga::filter::{Constant, Expression};
use vinga_program::comparison::Comparison;

/// Maximum number of levels of a condition, as it is processed recursively. The C++ side stops earlier.
const LEVELS_MAX: usize = 256;

/// Maximum size of a filter in bytes: a request has room for it beside ranges.
const FILTER_BYTES_MAX: usize = 16 * 1024;

/// The condition that the data nodes check.
#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    /// True for the rows that pass.
    pub filter: Expression,
    /// The filter passes exactly those rows for which the server's condition is true.
    pub is_whole: bool,
}

/// The condition of a program; `None` if all rows would pass, or if the program is not valid.
pub fn decode(program: &[u8], plan: &Plan, server: &Server) -> Option<Condition> {
    let room = Room::of_filter(FILTER_BYTES_MAX);
    decode_within(program, &PlanColumns { plan, server }, room)
}

/// The properties of the table that a program refers to.
trait Columns {
    fn column(&self, place: usize) -> Option<vinga::ColumnId>;
    fn sort_column(&self, place: usize) -> Option<vinga::ColumnId>;
    fn stored_value(&self, place: usize, value: &[u8]) -> Option<Vec<u8>>;
    /// The sort key of a text, truncated where no row could have more; whether it is complete.
    fn sort_key(&self, place: usize, text: &[u8]) -> Option<(Vec<u8>, bool)>;
}

struct PlanColumns<'a> {
    plan: &'a Plan,
    server: &'a Server,
}

impl Columns for PlanColumns<'_> {
    fn column(&self, place: usize) -> Option<vinga::ColumnId> {
        self.plan.column(place)
    }

    fn sort_column(&self, place: usize) -> Option<vinga::ColumnId> {
        self.plan.sort_column(place)
    }

    fn stored_value(&self, place: usize, value: &[u8]) -> Option<Vec<u8>> {
        self.plan.stored_value(place, value)
    }

    fn sort_key(&self, place: usize, text: &[u8]) -> Option<(Vec<u8>, bool)> {
        self.plan.sort_key_of(place, text, self.server)
    }
}

fn decode_within(program: &[u8], columns: &impl Columns, room: Room) -> Option<Condition> {
    let mut decoder = Decoder { bytes: program, columns, stack: Vec::new(), is_whole: true };
    let tree = decoder.tree()?;
    let mut shrinker = Shrinker { is_whole: decoder.is_whole };
    let filter = shrinker.fit(tree, room)?;
    Some(Condition { filter, is_whole: shrinker.is_whole })
}

enum Entry {
    Operand(Operand),
    Condition { tree: Tree, levels: usize },
}

struct Decoder<'a, C> {
    bytes: &'a [u8],
    columns: &'a C,
    stack: Vec<Entry>,
    is_whole: bool,
}

impl<'a, C: Columns> Decoder<'a, C> {
    fn tree(&mut self) -> Option<Tree> {
        while let Some([code]) = self.take::<1>() {
            let entry = self.entry(code)?;
            self.stack.push(entry);
        }
        let Some(Entry::Condition { tree, .. }) = self.stack.pop() else { return None };
        self.stack.is_empty().then_some(tree)
    }

    fn entry(&mut self, code: u8) -> Option<Entry> {
        let constant = |constant| Some(Entry::Operand(Operand::Constant(constant, Side::At)));
        match code {
            b'c' => {
                let place = self.u16()?;
                Some(Entry::Operand(Operand::Column(self.columns.column(place)?)))
            }
            b's' => {
                let place = self.u16()?;
                let column = self.columns.sort_column(place);
                Some(Entry::Operand(column.map_or(Operand::Unknown, Operand::Column)))
            }
            b'i' => constant(Constant::Int(i64::from_le_bytes(self.take()?))),
            b'u' => constant(Constant::Unsigned(u64::from_le_bytes(self.take()?))),
            b'd' => {
                let double = f64::from_le_bytes(self.take()?);
                // The two zeros are equal, but their bytes differ.
                let double = if double == 0.0 { 0.0 } else { double };
                if double.is_finite() {
                    constant(Constant::Double(double))
                } else {
                    Some(Entry::Operand(Operand::Unknown))
                }
            }
            b'v' => {
                let place = self.u16()?;
                let value = self.slice()?;
                constant(Constant::Bytes(self.columns.stored_value(place, value)?))
            }
            b'r' => constant(Constant::Bytes(self.slice()?.to_vec())),
            b'k' => {
                let place = self.u16()?;
                let text = self.slice()?;
                let operand =
                    self.columns.sort_key(place, text).map_or(Operand::Unknown, |(key, is_whole)| {
                        Operand::Constant(Constant::Bytes(key), if is_whole { Side::At } else { Side::Above })
                    });
                Some(Entry::Operand(operand))
            }
            b'0' => constant(Constant::Null),
            b'^' | b'_' => {
                let side = if code == b'^' { Side::Above } else { Side::Below };
                match self.operand()? {
                    Operand::Constant(constant, _) => Some(Entry::Operand(Operand::Constant(constant, side))),
                    operand => Some(Entry::Operand(operand)),
                }
            }
            b'&' | b'|' => self.several(code == b'&'),
            b'%' => {
                self.is_whole = false;
                match self.stack.pop()? {
                    condition @ Entry::Condition { .. } => Some(condition),
                    Entry::Operand(_) => None,
                }
            }
            _ => {
                let tree = match self.leaf(code)? {
                    Some(tree) => tree,
                    None => {
                        self.is_whole = false;
                        Tree::everything()
                    }
                };
                Some(Entry::Condition { tree, levels: 1 })
            }
        }
    }

    /// A condition on values; `Some(None)` if they are not known. `None` if the program is not valid.
    fn leaf(&mut self, code: u8) -> Option<Option<Tree>> {
        Some(match code {
            b'?' => None,
            b't' => Some(Tree::everything()),
            b'f' => Some(Tree::nothing()),
            b'=' | b'#' | b'<' | b'[' | b'>' | b']' | b'~' | b'x' => {
                let right = self.operand()?;
                let left = self.operand()?;
                match code {
                    b'=' => tree::compare(Comparison::Equal, left, right),
                    b'#' => tree::compare(Comparison::NotEqual, left, right),
                    b'<' => tree::compare(Comparison::Less, left, right),
                    b'[' => tree::compare(Comparison::LessOrEqual, left, right),
                    b'>' => tree::compare(Comparison::Greater, left, right),
                    b']' => tree::compare(Comparison::GreaterOrEqual, left, right),
                    b'~' => tree::compare(Comparison::NullSafeEqual, left, right),
                    _ => tree::null_safe_different(left, right),
                }
            }
            b'n' => tree::is_null(self.operand()?, true),
            b'N' => tree::is_null(self.operand()?, false),
            b'b' | b'B' => {
                let high = self.operand()?;
                let low = self.operand()?;
                let value = self.operand()?;
                tree::between(value, low, high, code == b'b')
            }
            b'p' | b'P' => {
                let prefix = self.operand()?;
                let value = self.operand()?;
                tree::starts_with(value, prefix, code == b'p')
            }
            b'I' | b'J' => {
                let count = self.u32()?;
                let first = self.stack.len().checked_sub(count)?;
                let members: Option<Vec<Operand>> =
                    self.stack.split_off(first).into_iter().map(Entry::operand).collect();
                let value = self.operand()?;
                tree::is_in(value, members?, code == b'I')
            }
            _ => return None,
        })
    }

    fn several(&mut self, is_and: bool) -> Option<Entry> {
        let count = self.u32()?;
        let first = self.stack.len().checked_sub(count)?;
        let mut most = 0;
        let mut children = Vec::with_capacity(count);
        for entry in self.stack.split_off(first) {
            let Entry::Condition { tree, levels } = entry else { return None };
            most = most.max(levels);
            children.push(tree);
        }
        let levels = most + 1;
        if levels > LEVELS_MAX {
            return None;
        }
        let tree = if is_and { Tree::all(children) } else { Tree::any(children) };
        Some(Entry::Condition { tree, levels })
    }

    fn operand(&mut self) -> Option<Operand> {
        self.stack.pop()?.operand()
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*head)
    }

    fn u16(&mut self) -> Option<usize> {
        self.take().map(|bytes| usize::from(u16::from_le_bytes(bytes)))
    }

    fn u32(&mut self) -> Option<usize> {
        self.take().map(|bytes| u32::from_le_bytes(bytes) as usize)
    }

    /// A length, and that many bytes behind it.
    fn slice(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        let (head, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(head)
    }
}

impl Entry {
    fn operand(self) -> Option<Operand> {
        match self {
            Entry::Operand(operand) => Some(operand),
            Entry::Condition { .. } => None,
        }
    }
}
