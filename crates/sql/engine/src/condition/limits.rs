//! Makes a condition fit the limits of filters. A condition that does not fit is weakened, so that it lets more rows
//! pass:
//!
//! - of an AND, the parts that fit are kept, short ones first;
//! - an OR is kept if each of its parts fits, perhaps weakened;
//! - otherwise the least and the greatest value of each column in its rows are kept: so `IN` becomes `BETWEEN`;
//! - otherwise it is dropped.

use super::bounds::{bounds, within};
use super::tree::Tree;
use vinga::filter::{Constant, Expression};
use vinga_program::filter::{DEPTH_MAX, NODES_MAX};

/// The room for a filter, or its size: encoded bytes, nodes and levels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    bytes: usize,
    nodes: usize,
    levels: usize,
}

/// Bytes in front of the program: a version and the number of parameters.
const HEAD_BYTES: usize = 2;

impl Room {
    /// The room for a whole filter.
    pub(super) fn of_filter(bytes: usize) -> Self {
        Room { bytes: bytes.saturating_sub(HEAD_BYTES), nodes: NODES_MAX, levels: DEPTH_MAX }
    }

    #[cfg(test)]
    pub(super) fn new(bytes: usize, nodes: usize, levels: usize) -> Self {
        Room { bytes, nodes, levels }
    }

    fn holds(self, needed: Room) -> bool {
        needed.bytes <= self.bytes && needed.nodes <= self.nodes && needed.levels <= self.levels
    }

    /// The size with a parent node added.
    fn above(self) -> Room {
        let own = own_room();
        Room { bytes: self.bytes + own.bytes, nodes: self.nodes + own.nodes, levels: self.levels + 1 }
    }

    /// The room that is left for others beside it.
    fn without(self, used: Room) -> Room {
        Room {
            bytes: self.bytes.saturating_sub(used.bytes),
            nodes: self.nodes.saturating_sub(used.nodes),
            levels: self.levels,
        }
    }

    /// An equal share of the room for one of `of` parts.
    fn share(self, of: usize) -> Room {
        Room { bytes: self.bytes / of, nodes: self.nodes / of, levels: self.levels }
    }

    /// The room that is left beneath a node.
    fn beneath(self) -> Option<Room> {
        let own = own_room();
        Some(Room {
            bytes: self.bytes.checked_sub(own.bytes)?,
            nodes: self.nodes.checked_sub(own.nodes)?,
            levels: self.levels.checked_sub(1)?,
        })
    }

    fn and(self, other: Room) -> Room {
        Room {
            bytes: self.bytes + other.bytes,
            nodes: self.nodes + other.nodes,
            levels: self.levels.max(other.levels),
        }
    }
}

const NO_ROOM: Room = Room { bytes: 0, nodes: 0, levels: 0 };

/// Maximum size of a node without its children: its kind, and their number, of up to three bytes.
fn own_room() -> Room {
    Room { bytes: 4, nodes: 1, levels: 1 }
}

fn room_of(tree: &Tree) -> Room {
    match tree {
        Tree::All(children) | Tree::Any(children) => {
            children.iter().map(room_of).fold(NO_ROOM, Room::and).above()
        }
        Tree::Test(test) => room_of_expression(test),
    }
}

/// Maximum size of an expression.
fn room_of_expression(expression: &Expression) -> Room {
    let each = |parts: &[&Expression]| {
        parts.iter().map(|part| room_of_expression(part)).fold(NO_ROOM, Room::and).above()
    };
    let many = |parts: &[Expression]| parts.iter().map(room_of_expression).fold(NO_ROOM, Room::and);
    match expression {
        Expression::Column(_) | Expression::Parameter(_) => own_room(),
        Expression::Constant(constant) => {
            let bytes = match constant {
                Constant::Null => 1,
                Constant::Int(_) | Constant::Unsigned(_) => 11,
                Constant::Double(_) => 9,
                Constant::Bytes(bytes) => own_room().bytes + bytes.len(),
            };
            Room { bytes, ..own_room() }
        }
        Expression::Arithmetic(_, left, right)
        | Expression::Compare(_, left, right)
        | Expression::StartsWith(left, right) => each(&[left, right]),
        Expression::Negate(one)
        | Expression::Complement(one)
        | Expression::IsNull(one)
        | Expression::IsNotNull(one)
        | Expression::Not(one) => each(&[one]),
        Expression::Between(parts) => many(&parts[..]).above(),
        Expression::In(value, members) => room_of_expression(value).and(many(members)).above(),
        Expression::And(parts) | Expression::Or(parts) => many(parts).above(),
    }
}

/// Weakens conditions until they fit.
pub(super) struct Shrinker {
    /// Nothing was weakened or dropped so far.
    pub(super) is_whole: bool,
}

impl Shrinker {
    /// The filter of a condition; `None` if all rows would pass.
    pub(super) fn fit(&mut self, tree: Tree, room: Room) -> Option<Expression> {
        self.shrink(tree, room).map(Tree::into_expression)
    }

    fn shrink(&mut self, tree: Tree, room: Room) -> Option<Tree> {
        if tree.is_everything() {
            return None;
        }
        if room.holds(room_of(&tree)) {
            return Some(tree);
        }
        self.is_whole = false;
        match tree {
            Tree::All(children) => {
                let Some(room) = room.beneath() else { return self.hull(&Tree::All(children), room) };
                self.shrink_all(children, room)
            }
            Tree::Any(children) => {
                let beneath = room.beneath();
                let whole = Tree::Any(children);
                // The bounds are cheap to compute, and must be taken before the parts are consumed.
                let hull = self.hull(&whole, room);
                match (beneath, whole) {
                    (Some(beneath), Tree::Any(children)) => self.shrink_any(children, beneath).or(hull),
                    _ => hull,
                }
            }
            test @ Tree::Test(_) => self.hull(&test, room),
        }
    }

    fn hull(&mut self, tree: &Tree, room: Room) -> Option<Tree> {
        let hull = within(bounds(tree));
        if hull.is_everything() {
            return None;
        }
        if room.holds(room_of(&hull)) {
            return Some(hull);
        }
        match hull {
            Tree::All(children) => self.shrink_all(children, room.beneath()?),
            Tree::Any(_) | Tree::Test(_) => None,
        }
    }

    /// Shrinks parts that all have to hold, within room for all of them.
    fn shrink_all(&mut self, mut children: Vec<Tree>, room: Room) -> Option<Tree> {
        children.sort_by_cached_key(|child| room_of(child).bytes);
        let mut rest = room;
        let mut parts = Vec::new();
        for child in children {
            if let Some(part) = self.shrink(child, rest) {
                rest = rest.without(room_of(&part));
                parts.push(part);
            }
        }
        let all = Tree::all(parts);
        (!all.is_everything()).then_some(all)
    }

    /// Shrinks parts of which one has to hold: each gets an equal share of the room, and the room that shorter parts
    /// left.
    fn shrink_any(&mut self, mut children: Vec<Tree>, room: Room) -> Option<Tree> {
        children.sort_by_cached_key(|child| room_of(child).bytes);
        let mut rest = room;
        let mut left = children.len();
        let mut parts = Vec::with_capacity(left);
        for child in children {
            let part = self.shrink(child, rest.share(left))?;
            rest = rest.without(room_of(&part));
            left -= 1;
            parts.push(part);
        }
        Some(Tree::any(parts))
    }
}
