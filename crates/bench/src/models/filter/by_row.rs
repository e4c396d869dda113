//! One loop over rows: a filter as a tree of closures, and as flat byte code with jumps.

use super::expression::{Column, Comparison, Expression, Stored, Width, is_null};
use crate::models::rows::Row;

/// A filter as a closure that calls closures.
pub(super) type Closure = Box<dyn Fn(&Row) -> bool + Send + Sync>;

/// Lowers a filter to closures, one a node, each typed when it is made.
pub(super) fn closure_of(expression: &Expression) -> Closure {
    match expression {
        Expression::And(left, right) => {
            let (left, right) = (closure_of(left), closure_of(right));
            Box::new(move |row| left(row) && right(row))
        }
        Expression::Or(left, right) => {
            let (left, right) = (closure_of(left), closure_of(right));
            Box::new(move |row| left(row) || right(row))
        }
        &Expression::Compare(column, comparison, constant) => match column.width {
            Width::I16 => leaf(column, comparison, i16::constant(constant)),
            Width::I32 => leaf(column, comparison, i32::constant(constant)),
            Width::I64 => leaf(column, comparison, i64::constant(constant)),
        },
    }
}

fn leaf<T: Stored>(Column { number, offset, .. }: Column, comparison: Comparison, constant: T) -> Closure {
    let not_null = move |row: &Row| !is_null(row, number);
    match comparison {
        Comparison::Equal => Box::new(move |row| T::read(row, offset) == constant && not_null(row)),
        Comparison::NotEqual => Box::new(move |row| T::read(row, offset) != constant && not_null(row)),
        Comparison::Less => Box::new(move |row| T::read(row, offset) < constant && not_null(row)),
        Comparison::GreaterOrEqual => Box::new(move |row| T::read(row, offset) >= constant && not_null(row)),
    }
}

/// A filter as comparisons in the order of evaluation, each with jump targets for true and for not true; AND and OR are
/// nothing but these jumps.
pub(super) struct ByteCode {
    steps: Vec<Step>,
}

struct Step {
    column: Column,
    comparison: Comparison,
    constant: i64,
    on_true: u16,
    on_false: u16,
}

/// Jump targets that end the evaluation.
const TRUE: u16 = u16::MAX;
const FALSE: u16 = u16::MAX - 1;

impl ByteCode {
    /// Lowers a filter.
    pub(super) fn lower(expression: &Expression) -> Self {
        let mut steps = Vec::new();
        Self::append(&mut steps, expression, TRUE, FALSE);
        Self { steps }
    }

    fn append(steps: &mut Vec<Step>, expression: &Expression, on_true: u16, on_false: u16) {
        match expression {
            &Expression::Compare(column, comparison, constant) => {
                steps.push(Step { column, comparison, constant, on_true, on_false });
            }
            Expression::And(left, right) => {
                let second = steps.len() + left.comparisons();
                Self::append(steps, left, u16::try_from(second).expect("filters are short"), on_false);
                Self::append(steps, right, on_true, on_false);
            }
            Expression::Or(left, right) => {
                let second = steps.len() + left.comparisons();
                Self::append(steps, left, on_true, u16::try_from(second).expect("filters are short"));
                Self::append(steps, right, on_true, on_false);
            }
        }
    }

    /// Whether the filter is true of a row.
    #[inline]
    pub(super) fn is_true(&self, row: &Row) -> bool {
        let mut at = 0;
        while let Some(step) = self.steps.get(usize::from(at)) {
            let offset = step.column.offset;
            let value = match step.column.width {
                Width::I16 => i64::from(i16::read(row, offset)),
                Width::I32 => i64::from(i32::read(row, offset)),
                Width::I64 => i64::read(row, offset),
            };
            let holds = match step.comparison {
                Comparison::Equal => value == step.constant,
                Comparison::NotEqual => value != step.constant,
                Comparison::Less => value < step.constant,
                Comparison::GreaterOrEqual => value >= step.constant,
            };
            at = if holds && !is_null(row, step.column.number) { step.on_true } else { step.on_false };
        }
        at == TRUE
    }
}

impl Expression {
    fn comparisons(&self) -> usize {
        match self {
            Self::Compare(..) => 1,
            Self::And(left, right) | Self::Or(left, right) => left.comparisons() + right.comparisons(),
        }
    }
}
