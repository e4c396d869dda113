//! The least and the greatest value that each column can have in rows that pass: replaces a condition that is too long
//! or too deep.

use super::tree::Tree;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use vinga::ColumnId;
use vinga::filter::{Constant, Expression};
use vinga_program::comparison::Comparison;

/// The range of a column's values; `None` means that it has no end there.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Interval {
    low: Option<Constant>,
    high: Option<Constant>,
}

/// For some columns, the range of their values in rows that pass; none of them is NULL there.
pub(super) type Bounds = BTreeMap<ColumnId, Interval>;

/// The bounds of a condition.
pub(super) fn bounds(tree: &Tree) -> Bounds {
    match tree {
        Tree::All(children) => {
            let mut all = Bounds::new();
            for (column, interval) in children.iter().flat_map(bounds) {
                let entry = all.entry(column).or_default();
                entry.low = narrower(entry.low.take(), interval.low, Ordering::Greater);
                entry.high = narrower(entry.high.take(), interval.high, Ordering::Less);
            }
            all
        }
        Tree::Any(children) => {
            let mut rest = children.iter().map(bounds);
            let mut hull = rest.next().unwrap_or_default();
            for mut next in rest {
                hull.retain(|column, interval| {
                    let Some(other) = next.remove(column) else { return false };
                    interval.low = wider(interval.low.take(), other.low, Ordering::Less);
                    interval.high = wider(interval.high.take(), other.high, Ordering::Greater);
                    interval.low.is_some() || interval.high.is_some()
                });
            }
            hull
        }
        Tree::Test(test) => of_test(test).into_iter().collect(),
    }
}

/// A condition that means exactly these bounds.
pub(super) fn within(bounds: Bounds) -> Tree {
    let test = |(column, interval)| {
        let value = Expression::Column(column);
        match interval {
            Interval { low: Some(low), high: Some(high) } => Some(Tree::Test(value.between(low, high))),
            Interval { low: Some(low), high: None } => Some(Tree::Test(value.at_least(low))),
            Interval { low: None, high: Some(high) } => Some(Tree::Test(value.at_most(high))),
            Interval { low: None, high: None } => None,
        }
    };
    Tree::all(bounds.into_iter().filter_map(test).collect())
}

fn of_test(test: &Expression) -> Option<(ColumnId, Interval)> {
    let between =
        |low: &Constant, high: &Constant| Interval { low: Some(low.clone()), high: Some(high.clone()) };
    match test {
        Expression::Compare(comparison, value, constant) => {
            let (Expression::Column(column), Expression::Constant(constant)) = (&**value, &**constant) else {
                return None;
            };
            let interval = match comparison {
                Comparison::Equal => between(constant, constant),
                Comparison::Less | Comparison::LessOrEqual => {
                    Interval { low: None, high: Some(constant.clone()) }
                }
                Comparison::Greater | Comparison::GreaterOrEqual => {
                    Interval { low: Some(constant.clone()), high: None }
                }
                Comparison::NotEqual | Comparison::NullSafeEqual => return None,
            };
            Some((*column, interval))
        }
        Expression::Between(parts) => match &**parts {
            [Expression::Column(column), Expression::Constant(low), Expression::Constant(high)] => {
                Some((*column, between(low, high)))
            }
            _ => None,
        },
        Expression::In(value, members) => {
            let Expression::Column(column) = **value else { return None };
            let (mut low, mut high): (Option<&Constant>, Option<&Constant>) = (None, None);
            for member in members {
                let Expression::Constant(member) = member else { return None };
                if low.map_or(Some(Ordering::Less), |low| order(member, low))? == Ordering::Less {
                    low = Some(member);
                }
                if high.map_or(Some(Ordering::Greater), |high| order(member, high))? == Ordering::Greater {
                    high = Some(member);
                }
            }
            Some((column, between(low?, high?)))
        }
        Expression::StartsWith(value, prefix) => match (&**value, &**prefix) {
            (Expression::Column(column), Expression::Constant(prefix)) => {
                Some((*column, Interval { low: Some(prefix.clone()), high: None }))
            }
            _ => None,
        },
        _ => None,
    }
}

/// How two constants compare; `None` if they are of different kinds.
fn order(left: &Constant, right: &Constant) -> Option<Ordering> {
    let integer = |constant: &Constant| match *constant {
        Constant::Int(value) => Some(i128::from(value)),
        Constant::Unsigned(value) => Some(i128::from(value)),
        Constant::Null | Constant::Double(_) | Constant::Bytes(_) => None,
    };
    match (left, right) {
        (Constant::Bytes(left), Constant::Bytes(right)) => Some(left.cmp(right)),
        (Constant::Double(left), Constant::Double(right)) => left.partial_cmp(right),
        _ => Some(integer(left)?.cmp(&integer(right)?)),
    }
}

/// The stricter of two bounds that both hold; one of them if they can't be compared.
fn narrower(one: Option<Constant>, other: Option<Constant>, wanted: Ordering) -> Option<Constant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if order(&other, &one) == Some(wanted) { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// The weaker of two bounds of which one holds; none if they can't be compared.
fn wider(one: Option<Constant>, other: Option<Constant>, wanted: Ordering) -> Option<Constant> {
    let (one, other) = (one?, other?);
    let order = order(&other, &one)?;
    Some(if order == wanted { other } else { one })
}
