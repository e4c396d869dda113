//! The intermediate form of a condition, between the C++ side's program and the filter: AND, OR and tests of columns.

use std::collections::BTreeMap;
use vinga::ColumnId;
use vinga::filter::{Constant, Expression, not};
use vinga_program::comparison::Comparison;

/// A condition as a tree.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Tree {
    /// Rows that pass all of these; if there are none, all rows.
    All(Vec<Tree>),
    /// Rows that pass one of these; if there are none, no rows.
    Any(Vec<Tree>),
    /// A condition of the filter that is neither AND nor OR.
    Test(Expression),
}

/// The position of a constant among the values of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// It is a value of the column.
    At,
    /// It is greater than this value, and less than the next.
    Above,
    /// It is less than this value, and greater than the one before.
    Below,
}

/// An operand of a comparison.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Operand {
    Column(ColumnId),
    Constant(Constant, Side),
    /// The data nodes do not have this value.
    Unknown,
}

impl Tree {
    pub(super) fn everything() -> Self {
        Tree::All(Vec::new())
    }

    pub(super) fn nothing() -> Self {
        Tree::Any(Vec::new())
    }

    pub(super) fn is_everything(&self) -> bool {
        matches!(self, Tree::All(children) if children.is_empty())
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Tree::Any(children) if children.is_empty())
    }

    /// Rows that pass all of these.
    pub(super) fn all(children: Vec<Tree>) -> Self {
        let mut parts = Vec::with_capacity(children.len());
        for child in children {
            match child {
                Tree::All(inner) => parts.extend(inner),
                nothing if nothing.is_nothing() => return nothing,
                other => parts.push(other),
            }
        }
        one_of(parts).unwrap_or_else(Tree::All)
    }

    /// Rows that pass one of these.
    pub(super) fn any(children: Vec<Tree>) -> Self {
        let mut parts = Vec::with_capacity(children.len());
        for child in children {
            match child {
                Tree::Any(inner) => parts.extend(inner),
                everything if everything.is_everything() => return everything,
                other => parts.push(other),
            }
        }
        one_of(with_lists(parts)).unwrap_or_else(Tree::Any)
    }

    /// The tree as a filter.
    pub(super) fn into_expression(self) -> Expression {
        let each = |children: Vec<Tree>| children.into_iter().map(Tree::into_expression).collect();
        match self {
            Tree::All(children) => Expression::And(each(children)),
            Tree::Any(children) => Expression::Or(each(children)),
            Tree::Test(test) => test,
        }
    }
}

/// The tree if there is exactly one, otherwise all of them.
fn one_of(mut trees: Vec<Tree>) -> Result<Tree, Vec<Tree>> {
    if trees.len() == 1 { Ok(trees.remove(0)) } else { Err(trees) }
}

/// Merges all values that a column may be equal to into one list.
fn with_lists(parts: Vec<Tree>) -> Vec<Tree> {
    let mut lists: BTreeMap<ColumnId, Vec<Expression>> = BTreeMap::new();
    let mut others = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Tree::Test(Expression::Compare(Comparison::Equal, value, constant))
                if matches!((&*value, &*constant), (Expression::Column(_), Expression::Constant(_))) =>
            {
                if let Expression::Column(column) = *value {
                    lists.entry(column).or_default().push(*constant);
                }
            }
            Tree::Test(Expression::In(value, members)) => match *value {
                Expression::Column(column) => lists.entry(column).or_default().extend(members),
                value => others.push(Tree::Test(Expression::In(Box::new(value), members))),
            },
            other => others.push(other),
        }
    }
    let of_list = |(column, members)| Tree::Test(in_list(column, members));
    others.extend(lists.into_iter().map(of_list));
    others
}

fn in_list(column: ColumnId, mut members: Vec<Expression>) -> Expression {
    let value = Expression::Column(column);
    if members.len() == 1 { value.equal(members.remove(0)) } else { value.is_in(members) }
}

/// A comparison of a column with a constant or another column; `None` if one of them is not known.
pub(super) fn compare(comparison: Comparison, left: Operand, right: Operand) -> Option<Tree> {
    let Operand::Column(column) = left else { return None };
    let column = Expression::Column(column);
    let (constant, side) = match right {
        Operand::Column(other) => return Some(test(comparison, column, Expression::Column(other))),
        Operand::Constant(Constant::Null, _) => {
            let is_null_safe = comparison == Comparison::NullSafeEqual;
            return Some(if is_null_safe { Tree::Test(column.is_null()) } else { Tree::nothing() });
        }
        Operand::Constant(constant, side) => (Expression::Constant(constant), side),
        Operand::Unknown => return None,
    };
    // The constant is not NULL, so it is equivalent and smaller.
    let comparison = if comparison == Comparison::NullSafeEqual { Comparison::Equal } else { comparison };
    let beside = match (side, comparison) {
        (Side::At, _) => comparison,
        (_, Comparison::Equal | Comparison::NullSafeEqual) => return Some(Tree::nothing()),
        (_, Comparison::NotEqual) => return Some(Tree::Test(column.is_not_null())),
        (Side::Above, Comparison::Less | Comparison::LessOrEqual) => Comparison::LessOrEqual,
        (Side::Above, Comparison::Greater | Comparison::GreaterOrEqual) => Comparison::Greater,
        (Side::Below, Comparison::Less | Comparison::LessOrEqual) => Comparison::Less,
        (Side::Below, Comparison::Greater | Comparison::GreaterOrEqual) => Comparison::GreaterOrEqual,
    };
    Some(test(beside, column, constant))
}

fn test(comparison: Comparison, left: Expression, right: Expression) -> Tree {
    Tree::Test(Expression::Compare(comparison, Box::new(left), Box::new(right)))
}

/// Rows for which `<=>` is false.
pub(super) fn null_safe_different(left: Operand, right: Operand) -> Option<Tree> {
    let Operand::Column(column) = left else { return None };
    match right {
        Operand::Constant(Constant::Null, _) => Some(Tree::Test(Expression::Column(column).is_not_null())),
        Operand::Constant(_, Side::Above | Side::Below) => Some(Tree::everything()),
        Operand::Constant(constant, Side::At) => {
            let value = Expression::Column(column);
            Some(Tree::any(vec![Tree::Test(value.clone().is_null()), Tree::Test(value.not_equal(constant))]))
        }
        Operand::Column(other) => {
            let equal = Expression::Column(column).null_safe_equal(Expression::Column(other));
            Some(Tree::Test(not(equal)))
        }
        Operand::Unknown => None,
    }
}

pub(super) fn is_null(value: Operand, wanted: bool) -> Option<Tree> {
    let Operand::Column(column) = value else { return None };
    let value = Expression::Column(column);
    Some(Tree::Test(if wanted { value.is_null() } else { value.is_not_null() }))
}

/// Rows for which BETWEEN is true, or false.
pub(super) fn between(value: Operand, low: Operand, high: Operand, wanted: bool) -> Option<Tree> {
    if !wanted {
        let below = compare(Comparison::Less, value.clone(), low)?;
        let above = compare(Comparison::Greater, value, high)?;
        return Some(Tree::any(vec![below, above]));
    }
    match (value, low, high) {
        (Operand::Column(column), Operand::Constant(low, Side::At), Operand::Constant(high, Side::At))
            if low != Constant::Null && high != Constant::Null =>
        {
            Some(Tree::Test(Expression::Column(column).between(low, high)))
        }
        (value, low, high) => {
            let above = compare(Comparison::GreaterOrEqual, value.clone(), low)?;
            let below = compare(Comparison::LessOrEqual, value, high)?;
            Some(Tree::all(vec![above, below]))
        }
    }
}

/// Rows for which IN is true, or false.
pub(super) fn is_in(value: Operand, members: Vec<Operand>, wanted: bool) -> Option<Tree> {
    let Operand::Column(column) = value else { return None };
    let mut constants = Vec::with_capacity(members.len());
    let mut has_null = false;
    for member in members {
        match member {
            Operand::Constant(Constant::Null, _) => has_null = true,
            Operand::Constant(constant, Side::At) => constants.push(Expression::Constant(constant)),
            // No value is equal to it.
            Operand::Constant(_, Side::Above | Side::Below) => {}
            Operand::Column(_) | Operand::Unknown => return None,
        }
    }
    Some(match (wanted, constants.is_empty()) {
        (true, true) => Tree::nothing(),
        (true, false) => Tree::Test(in_list(column, constants)),
        // It is false for no row, but unknown.
        (false, _) if has_null => Tree::nothing(),
        (false, true) => Tree::Test(Expression::Column(column).is_not_null()),
        (false, false) => Tree::Test(not(in_list(column, constants))),
    })
}

/// Rows whose bytes begin with the prefix, or do not.
pub(super) fn starts_with(value: Operand, prefix: Operand, wanted: bool) -> Option<Tree> {
    let (Operand::Column(column), Operand::Constant(prefix, Side::At)) = (value, prefix) else { return None };
    if prefix == Constant::Null {
        return Some(Tree::nothing());
    }
    let test = Expression::Column(column).starts_with(prefix);
    Some(Tree::Test(if wanted { test } else { not(test) }))
}
