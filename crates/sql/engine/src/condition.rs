//! Conditions as the C++ side hands them over: postfix, so that it only has to walk the server's tree.
//!
//! ```text
//!   c  u16 column             value: a column, by its place among the server's stored columns
//!   i  i64                    value: a signed integer
//!   u  u64                    value: an unsigned integer
//!   d  f64                    value: a double
//!   v  u16 column, u32 length, bytes   value: one of this column in the record's form
//!   0                         value: NULL
//!   =  #  <  [  >  ]  ~       condition: equal, not equal, less, at most, greater, at least, null-safe equal; two values
//!   n  N                      condition: is NULL, is not NULL; one value
//!   b                         condition: between; value, low, high
//!   I  u16 count              condition: in; value and so many constants
//!   p                         condition: begins with; value and prefix
//!   &  |  u16 count           condition: and, or of so many
//!   !                         condition: not
//! ```
//! Numbers are little-endian. What does not fit the table is not taken: the server checks it then.

use crate::plan::Plan;
use vinga::filter::{Constant, Expression, not};

/// Levels of a condition that are taken, at most.
const STACK_MAX: usize = 4096;

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }
}

/// The expression of a program; `None` if it can't be taken.
pub fn decode(program: &[u8], plan: &Plan) -> Option<Expression> {
    let mut bytes = Bytes(program);
    let mut stack: Vec<Expression> = Vec::new();
    while let Some([code]) = bytes.take::<1>() {
        let next = match code {
            b'c' => Expression::Column(plan.column(usize::from(bytes.u16()?))?),
            b'i' => Expression::Constant(Constant::Int(i64::from_le_bytes(bytes.take()?))),
            b'u' => Expression::Constant(Constant::Unsigned(u64::from_le_bytes(bytes.take()?))),
            b'd' => Expression::Constant(Constant::Double(f64::from_le_bytes(bytes.take()?))),
            b'v' => {
                let column = usize::from(bytes.u16()?);
                let length = u32::from_le_bytes(bytes.take()?) as usize;
                Expression::Constant(Constant::Bytes(plan.stored_value(column, bytes.slice(length)?)?))
            }
            b'0' => Expression::Constant(Constant::Null),
            b'=' | b'#' | b'<' | b'[' | b'>' | b']' | b'~' => {
                let right = stack.pop()?;
                let left = stack.pop()?;
                match code {
                    b'=' => left.equal(right),
                    b'#' => left.not_equal(right),
                    b'<' => left.less_than(right),
                    b'[' => left.at_most(right),
                    b'>' => left.greater_than(right),
                    b']' => left.at_least(right),
                    _ => left.null_safe_equal(right),
                }
            }
            b'n' => stack.pop()?.is_null(),
            b'N' => stack.pop()?.is_not_null(),
            b'b' => {
                let high = stack.pop()?;
                let low = stack.pop()?;
                stack.pop()?.between(low, high)
            }
            b'p' => {
                let prefix = stack.pop()?;
                stack.pop()?.starts_with(prefix)
            }
            b'I' => {
                let count = usize::from(bytes.u16()?);
                let members = stack.split_off(stack.len().checked_sub(count)?);
                stack.pop()?.is_in(members)
            }
            b'&' | b'|' => {
                let count = usize::from(bytes.u16()?);
                let parts = stack.split_off(stack.len().checked_sub(count)?);
                if code == b'&' { Expression::And(parts) } else { Expression::Or(parts) }
            }
            b'!' => not(stack.pop()?),
            _ => return None,
        };
        stack.push(next);
        if stack.len() > STACK_MAX {
            return None;
        }
    }
    let whole = stack.pop()?;
    stack.is_empty().then_some(whole)
}
