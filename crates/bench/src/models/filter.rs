//! Filter evaluation over pages of rows: column by column against one loop over rows.
//!
//! A million rows in pages, in row order; the filters reject all rows, so that only their evaluation is measured. One
//! filter is a comparison of an integer column with a constant; the other is `(a >= … AND b < …) OR (c = … AND (d <> …
//! OR e >= …))` over columns of three widths, with comparisons that are true for half or an eighth of the rows, which
//! no branch predictor can learn. Filters are in negation normal form (no NOT above a comparison), so that only "true"
//! has to be tracked: a comparison with NULL is simply not true. A row that is not in use is skipped first.
//! NULL is simply not true. A row that is not in use is passed over first.

use std::hint::black_box;
use std::time::Instant;

use crate::figure::Figure;
use crate::models::measuring::{Scale, measure};
use crate::models::rows::Page;

mod by_column;
mod by_row;
mod expression;

use by_column::ColumnProgram;
use by_row::{ByteCode, closure_of};
use expression::{Comparison, Expression, rows_in};

const REPETITIONS: u32 = 9;

/// Runs the measurement.
pub fn run(scale: Scale) -> Vec<Figure> {
    let pages = expression::table(scale.pick(100_000, 1_000_000));
    let mut figures = Vec::new();
    for (expression, names) in [
        (one_comparison(), ["spike.filter1.columns", "spike.filter1.closures", "spike.filter1.byte_code"]),
        (five_comparisons(), ["spike.filter5.columns", "spike.filter5.closures", "spike.filter5.byte_code"]),
    ] {
        let columns = ColumnProgram::lower(&expression);
        let mut scratch = columns.scratch();
        figures.push(scan(names[0], &pages, |page| columns.count(page, &mut scratch)));
        let closure = closure_of(&expression);
        figures.push(scan(names[1], &pages, |page| rows_in(page).filter(|row| closure(row)).count()));
        let byte_code = ByteCode::lower(&expression);
        figures
            .push(scan(names[2], &pages, |page| rows_in(page).filter(|row| byte_code.is_true(row)).count()));
    }
    figures
}

/// Nanoseconds a row.
fn scan(name: &str, pages: &[Page], mut count: impl FnMut(&Page) -> usize) -> Figure {
    let rows: usize = pages.iter().map(|page| rows_in(page).count()).sum();
    measure(name, "ns", REPETITIONS, || {
        let start = Instant::now();
        let found: usize = pages.iter().map(|page| count(black_box(page))).sum();
        assert_eq!(found, 0, "the filters reject all rows");
        start.elapsed().as_nanos() as f64 / rows as f64
    })
}

/// `b < 0`: never true.
fn one_comparison() -> Expression {
    Expression::Compare(expression::B, Comparison::Less, 0)
}

/// Never true, but its parts are: see [`expression::table`].
fn five_comparisons() -> Expression {
    use Comparison::{Equal, GreaterOrEqual, Less, NotEqual};
    let compare = |column, comparison, constant| Box::new(Expression::Compare(column, comparison, constant));
    let left =
        Expression::And(compare(expression::A, GreaterOrEqual, 500), compare(expression::B, Less, 500));
    let inner =
        Expression::Or(compare(expression::D, NotEqual, 7), compare(expression::E, GreaterOrEqual, 9));
    let right = Expression::And(compare(expression::C, Equal, 3), Box::new(inner));
    Expression::Or(Box::new(left), Box::new(right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expression::Width;

    /// Compares all three ways with plain recursion.
    fn agree(expression: &Expression, pages: &[Page]) -> usize {
        let columns = ColumnProgram::lower(expression);
        let mut scratch = columns.scratch();
        let closure = closure_of(expression);
        let byte_code = ByteCode::lower(expression);
        let mut found = 0;
        for page in pages {
            let expected = rows_in(page).filter(|row| expression.is_true(row)).count();
            assert_eq!(columns.count(page, &mut scratch), expected, "{expression:?}");
            assert_eq!(rows_in(page).filter(|row| closure(row)).count(), expected, "{expression:?}");
            assert_eq!(
                rows_in(page).filter(|row| byte_code.is_true(row)).count(),
                expected,
                "{expression:?}"
            );
            found += expected;
        }
        found
    }

    #[test]
    fn the_measured_filters_let_nothing_through() {
        let pages = expression::table(10_000);
        assert_eq!(agree(&one_comparison(), &pages), 0);
        assert_eq!(agree(&five_comparisons(), &pages), 0);
    }

    #[test]
    fn all_ways_agree_on_random_filters() {
        let pages = expression::table(2_000);
        let mut seed = 1;
        let mut random = move |below: u64| {
            seed = crate::models::rows::hash(seed);
            seed % below
        };
        let mut found = 0;
        for _ in 0..300 {
            found += agree(&random_expression(&mut random, 4), &pages);
        }
        assert!(found > 10_000, "random filters accept some rows: {found}");
    }

    fn random_expression(random: &mut impl FnMut(u64) -> u64, depth: u32) -> Expression {
        if depth == 0 || random(4) == 0 {
            let columns = [expression::A, expression::B, expression::C, expression::D, expression::E];
            let comparisons = Comparison::ALL;
            let column = columns[random(5) as usize];
            let constant = random(if matches!(column.width, Width::I16) { 10 } else { 1000 }) as i64;
            return Expression::Compare(
                column,
                comparisons[random(comparisons.len() as u64) as usize],
                constant,
            );
        }
        let (left, right) = (random_expression(random, depth - 1), random_expression(random, depth - 1));
        let (left, right) = (Box::new(left), Box::new(right));
        if random(2) == 0 { Expression::And(left, right) } else { Expression::Or(left, right) }
    }
}
