//! The wire form of a filter: its parameters, then its program.
//!
//! ```text
//!   filter:      u8 version (1), number of parameters, each parameter as a constant node (0x02 … 0x06), one node
//!   node:        u8 kind, what the kind says, then its children, each a node
//!     0x01  column               u16 little-endian column id
//!     0x02  constant NULL
//!     0x03  constant signed      number (zigzag: 0, −1, 1, −2, … are 0, 1, 2, 3, …)
//!     0x04  constant unsigned    number
//!     0x05  constant double      8 bytes, little-endian
//!     0x06  constant bytes       number of bytes, the bytes
//!     0x07  parameter            number, which must fit 16 bits
//!     0x10 … 0x16  =  <>  <  <=  >  >=  <=>        2 children
//!     0x20  IS NULL     0x21  IS NOT NULL          1 child
//!     0x22  AND         0x23  OR                   number of children, children
//!     0x24  NOT                                    1 child
//!     0x25  BETWEEN                                3 children: value, low, high
//!     0x26  IN                                     number of members; 1 + members children: value, members
//!     0x27  starts with                            2 children: value, prefix
//!     0x30 … 0x39  +  -  *  /  %  &  |  ^  <<  >>  2 children
//!     0x40  unary minus  0x41  bits inverted       1 child
//!   number:      unsigned LEB128: 7 bits a byte, low ones first, the top bit says that more follow; fits 64 bits
//! ```
//!
//! Parameters are encoded apart from the program so that a client can encode a statement's program once and put other
//! parameters in front of it for each call. The decoder replaces parameters by their values: its result contains none.
//!
//! Kinds are only ever added. Limits: those of [`super`]. A node's children are counted against the limits as soon as
//! their number is read, so that a wrong number cannot reserve memory; depth is counted, so that no input can exhaust
//! the stack.

use super::error::{Position, ProgramError, ProgramErrorKind};
use super::tree::{Arithmetic, Constant, Expression};
use super::{CONSTANT_BYTES_MAX, DEPTH_MAX, NODES_MAX, PROGRAM_BYTES_MAX, VERSION};
use crate::comparison::Comparison;
use alloc::boxed::Box;
use alloc::vec::Vec;
use vinga_base::ColumnId;

pub(super) const COLUMN: u8 = 0x01;
const NULL: u8 = 0x02;
pub(super) const SIGNED: u8 = 0x03;
pub(super) const UNSIGNED: u8 = 0x04;
const DOUBLE: u8 = 0x05;
const BYTES: u8 = 0x06;
const PARAMETER: u8 = 0x07;
pub(super) const COMPARE: u8 = 0x10;
pub(super) const COMPARE_LAST: u8 = 0x16;
pub(super) const NULL_SAFE_EQUAL: u8 = COMPARE_LAST;
const IS_NULL: u8 = 0x20;
const IS_NOT_NULL: u8 = 0x21;
pub(super) const AND: u8 = 0x22;
const OR: u8 = 0x23;
const NOT: u8 = 0x24;
pub(super) const BETWEEN: u8 = 0x25;
const IN: u8 = 0x26;
const STARTS_WITH: u8 = 0x27;
const ARITHMETIC: u8 = 0x30;
const ARITHMETIC_LAST: u8 = 0x39;
const NEGATE: u8 = 0x40;
const COMPLEMENT: u8 = 0x41;

/// Appends the wire form of a filter.
///
/// # Errors
/// If a limit is exceeded; nothing is appended then.
pub fn encode(program: &Expression, parameters: &[Constant], out: &mut Vec<u8>) -> Result<(), ProgramError> {
    let start = out.len();
    let mut encoder = Encoder { out, start, nodes: 0 };
    let result = encoder.filter(program, parameters);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Reads a filter and replaces its parameters by their values.
///
/// # Errors
/// If it is not well formed, exceeds a limit or needs a parameter that was not given.
pub fn decode(bytes: &[u8]) -> Result<Expression, ProgramError> {
    Decoder::new(bytes).filter()
}

/// Decodes the zigzag form of a signed number.
pub(super) fn signed(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    nodes: usize,
}

impl Encoder<'_> {
    fn error(&self, kind: ProgramErrorKind) -> ProgramError {
        ProgramError { at: Position::Byte(self.out.len() - self.start), kind }
    }

    fn enter(&mut self, depth: usize) -> Result<(), ProgramError> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(self.error(ProgramErrorKind::TooManyNodes));
        }
        if depth > DEPTH_MAX {
            return Err(self.error(ProgramErrorKind::TooDeep));
        }
        Ok(())
    }

    fn check_length(&self) -> Result<(), ProgramError> {
        if self.out.len() - self.start > PROGRAM_BYTES_MAX {
            return Err(self.error(ProgramErrorKind::TooLong));
        }
        Ok(())
    }

    fn filter(&mut self, program: &Expression, parameters: &[Constant]) -> Result<(), ProgramError> {
        self.out.push(VERSION);
        put_number(parameters.len() as u64, self.out);
        for parameter in parameters {
            self.enter(1)?;
            self.constant(parameter);
            self.check_length()?;
        }
        self.node(program, 1)
    }

    fn node(&mut self, node: &Expression, depth: usize) -> Result<(), ProgramError> {
        self.enter(depth)?;
        match node {
            Expression::Column(id) => {
                self.out.push(COLUMN);
                self.out.extend_from_slice(&id.0.to_le_bytes());
                Ok(())
            }
            Expression::Constant(constant) => {
                self.constant(constant);
                Ok(())
            }
            Expression::Parameter(number) => {
                self.out.push(PARAMETER);
                put_number(u64::from(*number), self.out);
                Ok(())
            }
            Expression::Arithmetic(operation, left, right) => {
                self.parent(ARITHMETIC + *operation as u8, [&**left, right], depth)
            }
            Expression::Negate(value) => self.parent(NEGATE, [&**value], depth),
            Expression::Complement(value) => self.parent(COMPLEMENT, [&**value], depth),
            Expression::Compare(comparison, left, right) => {
                self.parent(COMPARE + *comparison as u8, [&**left, right], depth)
            }
            Expression::IsNull(value) => self.parent(IS_NULL, [&**value], depth),
            Expression::IsNotNull(value) => self.parent(IS_NOT_NULL, [&**value], depth),
            Expression::Between(children) => self.parent(BETWEEN, children.iter(), depth),
            Expression::In(value, members) => {
                self.out.push(IN);
                put_number(members.len() as u64, self.out);
                self.children(core::iter::once(&**value).chain(members), depth)
            }
            Expression::StartsWith(value, prefix) => self.parent(STARTS_WITH, [&**value, prefix], depth),
            Expression::And(children) => self.many(AND, children, depth),
            Expression::Or(children) => self.many(OR, children, depth),
            Expression::Not(condition) => self.parent(NOT, [&**condition], depth),
        }?;
        self.check_length()
    }

    fn constant(&mut self, constant: &Constant) {
        match constant {
            Constant::Null => self.out.push(NULL),
            Constant::Int(value) => {
                self.out.push(SIGNED);
                put_number((value << 1 ^ value >> 63) as u64, self.out);
            }
            Constant::Unsigned(value) => {
                self.out.push(UNSIGNED);
                put_number(*value, self.out);
            }
            Constant::Double(value) => {
                self.out.push(DOUBLE);
                self.out.extend_from_slice(&value.to_le_bytes());
            }
            Constant::Bytes(bytes) => {
                self.out.push(BYTES);
                put_number(bytes.len() as u64, self.out);
                self.out.extend_from_slice(bytes);
            }
        }
    }

    fn many(&mut self, kind: u8, children: &[Expression], depth: usize) -> Result<(), ProgramError> {
        self.out.push(kind);
        put_number(children.len() as u64, self.out);
        self.children(children, depth)
    }

    fn parent<'e>(
        &mut self,
        kind: u8,
        children: impl IntoIterator<Item = &'e Expression>,
        depth: usize,
    ) -> Result<(), ProgramError> {
        self.out.push(kind);
        self.children(children, depth)
    }

    fn children<'e>(
        &mut self,
        children: impl IntoIterator<Item = &'e Expression>,
        depth: usize,
    ) -> Result<(), ProgramError> {
        children.into_iter().try_for_each(|child| self.node(child, depth + 1))
    }
}

fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(super) struct Decoder<'a> {
    bytes: &'a [u8],
    parameters: Vec<Constant>,
    at: usize,
    nodes_left: usize,
    constant_bytes_left: usize,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Decoder {
            bytes,
            parameters: Vec::new(),
            at: 0,
            nodes_left: NODES_MAX,
            constant_bytes_left: CONSTANT_BYTES_MAX,
        }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn error(&self, at: usize, kind: ProgramErrorKind) -> ProgramError {
        ProgramError { at: Position::Byte(at), kind }
    }

    fn filter(&mut self) -> Result<Expression, ProgramError> {
        if self.bytes.len() > PROGRAM_BYTES_MAX {
            return Err(self.error(PROGRAM_BYTES_MAX, ProgramErrorKind::TooLong));
        }
        match self.byte()? {
            VERSION => {}
            found => return Err(self.error(0, ProgramErrorKind::UnknownVersion(found))),
        }
        let parameters = self.children()?;
        self.parameters.reserve_exact(parameters);
        for _ in 0..parameters {
            let at = self.at;
            match self.node(1)? {
                Expression::Constant(constant) => self.parameters.push(constant),
                _ => return Err(self.error(at, ProgramErrorKind::NotConstant)),
            }
        }
        // Parameters count each time that they are used.
        self.constant_bytes_left = CONSTANT_BYTES_MAX;
        self.pay_for(1, self.at)?;
        let program = self.node(1)?;
        if self.at < self.bytes.len() {
            return Err(self.error(self.at, ProgramErrorKind::BytesLeft));
        }
        Ok(program)
    }

    #[inline]
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], ProgramError> {
        match self.bytes[self.at..].split_at_checked(count) {
            Some((taken, _)) => {
                self.at += count;
                Ok(taken)
            }
            None => Err(self.error(self.bytes.len(), ProgramErrorKind::Truncated)),
        }
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, ProgramError> {
        Ok(self.take(1)?[0])
    }

    #[inline]
    pub(super) fn number(&mut self) -> Result<u64, ProgramError> {
        let at = self.at;
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.error(at, ProgramErrorKind::NumberTooLarge))
    }

    /// The number of children of a node, counted against the limit.
    fn children(&mut self) -> Result<usize, ProgramError> {
        let at = self.at;
        let count = self.number()?;
        let count = usize::try_from(count).map_err(|_| self.error(at, ProgramErrorKind::TooManyNodes))?;
        self.pay_for(count, at)?;
        Ok(count)
    }

    fn pay_for(&mut self, nodes: usize, at: usize) -> Result<(), ProgramError> {
        self.nodes_left = self
            .nodes_left
            .checked_sub(nodes)
            .ok_or_else(|| self.error(at, ProgramErrorKind::TooManyNodes))?;
        Ok(())
    }

    fn node(&mut self, depth: usize) -> Result<Expression, ProgramError> {
        let at = self.at;
        if depth > DEPTH_MAX {
            return Err(self.error(at, ProgramErrorKind::TooDeep));
        }
        let kind = self.byte()?;
        Ok(match kind {
            COLUMN => {
                let id = self.take(2)?;
                Expression::Column(ColumnId(u16::from_le_bytes([id[0], id[1]])))
            }
            NULL => Expression::Constant(Constant::Null),
            SIGNED => Expression::Constant(Constant::Int(signed(self.number()?))),
            UNSIGNED => Expression::Constant(Constant::Unsigned(self.number()?)),
            DOUBLE => {
                let bytes = self.take(8)?.try_into().expect("eight bytes were taken");
                Expression::Constant(Constant::Double(f64::from_le_bytes(bytes)))
            }
            BYTES => {
                let length_at = self.at;
                let length = self.number()?;
                let length = usize::try_from(length)
                    .map_err(|_| self.error(length_at, ProgramErrorKind::NumberTooLarge))?;
                let bytes = self.take(length)?;
                self.pay_for_bytes(length, at)?;
                Expression::Constant(Constant::Bytes(bytes.to_vec()))
            }
            PARAMETER => self.parameter(at)?,
            COMPARE..=COMPARE_LAST => {
                let [left, right] = self.exactly(depth)?.map(Box::new);
                Expression::Compare(Comparison::ALL[usize::from(kind - COMPARE)], left, right)
            }
            IS_NULL => Expression::IsNull(self.one(depth)?),
            IS_NOT_NULL => Expression::IsNotNull(self.one(depth)?),
            AND => {
                let count = self.children()?;
                Expression::And(self.many(count, depth)?)
            }
            OR => {
                let count = self.children()?;
                Expression::Or(self.many(count, depth)?)
            }
            NOT => Expression::Not(self.one(depth)?),
            BETWEEN => Expression::Between(Box::new(self.exactly(depth)?)),
            IN => {
                let count = self.children()?;
                Expression::In(self.one(depth)?, self.many(count, depth)?)
            }
            STARTS_WITH => {
                let [value, prefix] = self.exactly(depth)?.map(Box::new);
                Expression::StartsWith(value, prefix)
            }
            ARITHMETIC..=ARITHMETIC_LAST => {
                let [left, right] = self.exactly(depth)?.map(Box::new);
                Expression::Arithmetic(Arithmetic::ALL[usize::from(kind - ARITHMETIC)], left, right)
            }
            NEGATE => Expression::Negate(self.one(depth)?),
            COMPLEMENT => Expression::Complement(self.one(depth)?),
            unknown => return Err(self.error(at, ProgramErrorKind::UnknownNode(unknown))),
        })
    }

    fn parameter(&mut self, at: usize) -> Result<Expression, ProgramError> {
        let number = self.number()?;
        let number = u16::try_from(number).map_err(|_| self.error(at, ProgramErrorKind::NumberTooLarge))?;
        let Some(constant) = self.parameters.get(usize::from(number)) else {
            let given = self.parameters.len();
            return Err(self.error(at, ProgramErrorKind::NoSuchParameter { parameter: number, given }));
        };
        let bytes = if let Constant::Bytes(bytes) = constant { bytes.len() } else { 0 };
        let constant = constant.clone();
        self.pay_for_bytes(bytes, at)?;
        Ok(Expression::Constant(constant))
    }

    fn pay_for_bytes(&mut self, bytes: usize, at: usize) -> Result<(), ProgramError> {
        self.constant_bytes_left = self
            .constant_bytes_left
            .checked_sub(bytes)
            .ok_or_else(|| self.error(at, ProgramErrorKind::ConstantsTooLong))?;
        Ok(())
    }

    fn one(&mut self, depth: usize) -> Result<Box<Expression>, ProgramError> {
        let [child] = self.exactly(depth)?;
        Ok(Box::new(child))
    }

    fn exactly<const N: usize>(&mut self, depth: usize) -> Result<[Expression; N], ProgramError> {
        self.pay_for(N, self.at)?;
        let children = self.many(N, depth)?;
        Ok(children.try_into().unwrap_or_else(|_| unreachable!("N children were read")))
    }

    /// Children that have been counted already.
    fn many(&mut self, count: usize, depth: usize) -> Result<Vec<Expression>, ProgramError> {
        let mut children = Vec::with_capacity(count);
        for _ in 0..count {
            children.push(self.node(depth + 1)?);
        }
        Ok(children)
    }
}
