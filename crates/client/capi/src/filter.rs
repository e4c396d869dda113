//! Filters: expressions that the data nodes evaluate for each row.
//!
//! A function takes over the expressions that it is given, also when it fails. What fails gives an expression that
//! carries the error until it is used.

use crate::border::Items;
use crate::failure::{Failure, Misuse, Outcome, guarded};
use crate::handle::{Handle, Kind};
use crate::table::Table;
use crate::value::{CValue, Given, Kept};
use std::ffi::{c_int, c_uint};
use vinga::filter::{self, Arithmetic, Constant, Expression};

/// A filter handle's object.
pub struct Filter {
    expression: Outcome<Expression>,
}

impl Kind for Filter {
    const NUMBER: u8 = 7;
}

fn make(expression: impl FnOnce() -> Outcome<Expression>) -> Handle<Filter> {
    Handle::create(None, Filter { expression: guarded(expression) })
}

/// Takes an expression over; its handle is closed.
///
/// # Errors
/// `BadHandle`, and what went wrong when it was made.
pub fn take(filter: Handle<Filter>) -> Outcome<Expression> {
    let expression =
        filter.change(|filter| std::mem::replace(&mut filter.expression, Err(Misuse::BadHandle.into())));
    filter.close();
    expression
}

fn two(
    left: Handle<Filter>,
    right: Handle<Filter>,
    join: impl FnOnce(Expression, Expression) -> Outcome<Expression>,
) -> Handle<Filter> {
    // Both are taken over, whatever happens.
    let (left, right) = (take(left), take(right));
    make(|| join(left?, right?))
}

fn one(inner: Handle<Filter>, wrap: impl FnOnce(Expression) -> Expression) -> Handle<Filter> {
    let inner = take(inner);
    make(|| inner.map(wrap))
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_filter_close(filter: Handle<Filter>) -> c_int {
    filter.close()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_filter_column(table: Handle<Table>, column: c_uint) -> Handle<Filter> {
    make(|| {
        let table = table.look()?;
        Ok(table.inner().column(table.column_name(column)?)?)
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_filter_constant(
    table: Handle<Table>,
    column: c_uint,
    value: Items<CValue>,
) -> Handle<Filter> {
    make(|| {
        let table = table.look()?;
        constant(table, column, &value.get(1)?[0])
    })
}

fn constant(table: &Table, column: c_uint, value: &CValue) -> Outcome<Expression> {
    Ok(table.inner().constant(table.column_name(column)?, &Kept::from(value.get()?))?)
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_filter_value(value: Items<CValue>) -> Handle<Filter> {
    make(|| {
        let constant = match value.get(1)?[0].get()? {
            Given::Null => Constant::Null,
            Given::Int(value) => Constant::Int(value),
            Given::UInt(value) => Constant::Unsigned(value),
            Given::Double(value) => Constant::Double(value),
            Given::Text(bytes) | Given::Bytes(bytes) => Constant::Bytes(bytes.to_vec()),
            Given::Date(_) | Given::Time(_) | Given::DateTime(_) | Given::Timestamp(_) => {
                let detail = "days and times are compared as a column stores them: vinga_filter_constant";
                return Err(Failure::misuse(Misuse::BadArgument, detail));
            }
        };
        Ok(Expression::Constant(constant))
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_filter_compare(
    left: Handle<Filter>,
    comparison: c_int,
    right: Handle<Filter>,
) -> Handle<Filter> {
    two(left, right, |left, right| {
        Ok(match comparison {
            1 => left.equal(right),
            2 => left.not_equal(right),
            3 => left.less_than(right),
            4 => left.at_most(right),
            5 => left.greater_than(right),
            6 => left.at_least(right),
            7 => left.null_safe_equal(right),
            _ => return Err(Failure::misuse(Misuse::BadArgument, "there is no such comparison")),
        })
    })
}

/// The operations by their numbers (`VINGA_PLUS` …).
const ARITHMETIC: [Arithmetic; 10] = [
    Arithmetic::Add,
    Arithmetic::Subtract,
    Arithmetic::Multiply,
    Arithmetic::Divide,
    Arithmetic::Remainder,
    Arithmetic::BitAnd,
    Arithmetic::BitOr,
    Arithmetic::BitXor,
    Arithmetic::ShiftLeft,
    Arithmetic::ShiftRight,
];

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_filter_arithmetic(
    left: Handle<Filter>,
    operation: c_int,
    right: Handle<Filter>,
) -> Handle<Filter> {
    two(left, right, |left, right| {
        let known = usize::try_from(operation).ok().and_then(|number| ARITHMETIC.get(number.checked_sub(1)?));
        let Some(&operation) = known else {
            return Err(Failure::misuse(Misuse::BadArgument, "there is no such operation"));
        };
        Ok(Expression::Arithmetic(operation, Box::new(left), Box::new(right)))
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_filter_and(left: Handle<Filter>, right: Handle<Filter>) -> Handle<Filter> {
    two(left, right, |left, right| Ok(left.and(right)))
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_filter_or(left: Handle<Filter>, right: Handle<Filter>) -> Handle<Filter> {
    two(left, right, |left, right| Ok(left.or(right)))
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_filter_not(condition: Handle<Filter>) -> Handle<Filter> {
    one(condition, filter::not)
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_filter_is_null(value: Handle<Filter>) -> Handle<Filter> {
    one(value, Expression::is_null)
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_filter_is_not_null(value: Handle<Filter>) -> Handle<Filter> {
    one(value, Expression::is_not_null)
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_filter_in(
    table: Handle<Table>,
    column: c_uint,
    values: Items<CValue>,
    count: usize,
) -> Handle<Filter> {
    make(|| {
        let table = table.look()?;
        let members: Vec<Expression> =
            values.get(count)?.iter().map(|value| constant(table, column, value)).collect::<Outcome<_>>()?;
        Ok(table.inner().column(table.column_name(column)?)?.is_in(members))
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_filter_starts_with(
    value: Handle<Filter>,
    prefix: Items<u8>,
    length: usize,
) -> Handle<Filter> {
    let value = take(value);
    make(|| Ok(value?.starts_with(prefix.get(length)?)))
}
