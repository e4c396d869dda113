//! Random well-typed conditions on the columns of a table.

use crate::comparison::Comparison;
use crate::filter::tree::{Arithmetic, Constant, Expression, column, null};
use crate::test_rows::{Choices, DOUBLES, Table, integer_near_a_border, is_integer, some_bytes};
use alloc::boxed::Box;
use alloc::vec::Vec;
use vinga_base::ColumnId;
use vinga_base::schema::Kind;

impl Table {
    /// A condition with at most `depth` levels of AND, OR and NOT.
    pub fn condition(&self, choices: &mut Choices, depth: usize) -> Expression {
        let children = |choices: &mut Choices| {
            let count = choices.below(4);
            (0..count).map(|_| self.condition(choices, depth - 1)).collect()
        };
        match choices.below(if depth == 0 { 5 } else { 11 }) {
            0 | 1 => self.comparison(choices),
            2 => {
                let value = self.value(choices);
                if choices.below(2) == 0 { value.is_null() } else { value.is_not_null() }
            }
            3 => self.membership(choices),
            4 => self.prefix(choices),
            5 | 6 => Expression::And(children(choices)),
            7 | 8 => Expression::Or(children(choices)),
            _ => Expression::Not(Box::new(self.condition(choices, depth - 1))),
        }
    }

    fn comparison(&self, choices: &mut Choices) -> Expression {
        let [value, low, high] = if choices.below(3) == 0 {
            self.comparable_bytes(choices)
        } else {
            [(); 3].map(|()| self.number(choices, 3))
        };
        if choices.below(4) == 0 {
            return value.between(low, high);
        }
        Expression::Compare(choices.pick(&Comparison::ALL), Box::new(value), Box::new(low))
    }

    fn membership(&self, choices: &mut Choices) -> Expression {
        let count = choices.below(6);
        if choices.below(3) == 0 {
            let (value, width) = self.bytes(choices);
            let members: Vec<Expression> = (0..count).map(|_| bytes_constant(width, choices)).collect();
            return value.is_in(members);
        }
        let value = self.number(choices, 2);
        let members: Vec<Expression> = (0..count).map(|_| number_constant(true, choices)).collect();
        value.is_in(members)
    }

    fn prefix(&self, choices: &mut Choices) -> Expression {
        let (value, _) = self.bytes(choices);
        let size = choices.below(5) as u16;
        value.starts_with(bytes_constant(Some(size), choices))
    }

    fn value(&self, choices: &mut Choices) -> Expression {
        if choices.below(3) == 0 { self.bytes(choices).0 } else { self.number(choices, 3) }
    }

    fn number(&self, choices: &mut Choices, depth: usize) -> Expression {
        match choices.below(if depth == 0 { 5 } else { 9 }) {
            0..=2 => self.column_of(choices, |kind| !matches!(kind, Kind::Bytes(_) | Kind::VarBytes(_))),
            3 | 4 => number_constant(true, choices),
            5 => -self.number(choices, depth - 1),
            6 => self.integer(choices, depth - 1),
            _ => {
                let operation = choices.pick(&Arithmetic::ALL[..5]);
                let left = self.number(choices, depth - 1);
                let right = self.number(choices, depth - 1);
                Expression::Arithmetic(operation, Box::new(left), Box::new(right))
            }
        }
    }

    fn integer(&self, choices: &mut Choices, depth: usize) -> Expression {
        match choices.below(if depth == 0 { 3 } else { 5 }) {
            0 | 1 => self.column_of(choices, is_integer),
            2 => number_constant(false, choices),
            3 => self.integer(choices, depth - 1).complement(),
            _ => {
                let operation = choices.pick(&Arithmetic::ALL);
                let left = self.integer(choices, depth - 1);
                let right = self.integer(choices, depth - 1);
                Expression::Arithmetic(operation, Box::new(left), Box::new(right))
            }
        }
    }

    fn column_of(&self, choices: &mut Choices, wanted: fn(Kind) -> bool) -> Expression {
        let of_kind: Vec<u16> = (0..self.layout.columns().len() as u16)
            .filter(|&id| wanted(self.layout.columns()[usize::from(id)].kind))
            .collect();
        column(choices.pick(&of_kind))
    }

    /// A value of bytes, and the length that a constant needs to be compared with it.
    fn bytes(&self, choices: &mut Choices) -> (Expression, Option<u16>) {
        let columns: Vec<(u16, Kind)> = self
            .layout
            .columns()
            .iter()
            .enumerate()
            .map(|(id, column)| (id as u16, column.kind))
            .filter(|(_, kind)| matches!(kind, Kind::Bytes(_) | Kind::VarBytes(_)))
            .collect();
        if columns.is_empty() || choices.below(6) == 0 {
            return (bytes_constant(None, choices), None);
        }
        let (id, kind) = choices.pick(&columns);
        (column(id), if let Kind::Bytes(width) = kind { Some(width) } else { None })
    }

    /// Three values of bytes of which the first may be compared with the others.
    fn comparable_bytes(&self, choices: &mut Choices) -> [Expression; 3] {
        let (value, width) = self.bytes(choices);
        let mut other = || {
            if choices.below(3) == 0 {
                let (other, other_width) = self.bytes(choices);
                let is_column = matches!(other, Expression::Column(_));
                if other_width == width || is_column && (other_width.is_none() || width.is_none()) {
                    return other;
                }
            }
            bytes_constant(width, choices)
        };
        let others = [other(), other()];
        let [low, high] = others;
        if matches!(value, Expression::Constant(_)) {
            // A constant of any length is only compatible with columns of variable size.
            let fits = |other: &Expression| match other {
                Expression::Column(ColumnId(id)) => {
                    matches!(self.layout.columns()[usize::from(*id)].kind, Kind::VarBytes(_))
                }
                _ => true,
            };
            let low = if fits(&low) { low } else { null() };
            let high = if fits(&high) { high } else { null() };
            return [value, low, high];
        }
        [value, low, high]
    }
}

fn number_constant(may_be_double: bool, choices: &mut Choices) -> Expression {
    match choices.below(if may_be_double { 9 } else { 7 }) {
        0 => null(),
        1..=4 => Expression::from(integer_near_a_border(choices) as i64),
        5 | 6 => Expression::from(integer_near_a_border(choices) as u64),
        _ => Expression::from(choices.pick(&DOUBLES)),
    }
}

fn bytes_constant(width: Option<u16>, choices: &mut Choices) -> Expression {
    if choices.below(8) == 0 {
        return null();
    }
    let length = width.map_or_else(|| choices.below(5), usize::from);
    Expression::from(some_bytes(length, choices))
}

/// Replaces some constants by parameters; returns their values.
pub fn take_parameters(node: &mut Expression, choices: &mut Choices) -> Vec<Constant> {
    let mut parameters = Vec::new();
    replace(node, choices, &mut parameters);
    parameters
}

fn replace(node: &mut Expression, choices: &mut Choices, parameters: &mut Vec<Constant>) {
    let mut each = |node: &mut Expression| replace(node, choices, parameters);
    match node {
        Expression::Constant(constant) => {
            if choices.below(2) == 0 {
                parameters.push(constant.clone());
                *node = Expression::Parameter(parameters.len() as u16 - 1);
            }
        }
        Expression::Column(_) | Expression::Parameter(_) => {}
        Expression::Arithmetic(_, left, right)
        | Expression::Compare(_, left, right)
        | Expression::StartsWith(left, right) => {
            each(left);
            each(right);
        }
        Expression::Negate(child)
        | Expression::Complement(child)
        | Expression::IsNull(child)
        | Expression::IsNotNull(child)
        | Expression::Not(child) => each(child),
        Expression::Between(children) => children.iter_mut().for_each(each),
        Expression::In(value, members) => {
            each(value);
            members.iter_mut().for_each(each);
        }
        Expression::And(children) | Expression::Or(children) => children.iter_mut().for_each(each),
    }
}
