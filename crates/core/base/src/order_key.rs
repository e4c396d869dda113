//! Keys of ordered indexes: bytes whose `memcmp` order is the order of the values of some columns.
//!
//! The key of a row in an index is one piece for each column of the index, in the order of the index:
//!
//! ```text
//!   nullable column:   byte 0 for NULL, and nothing more; byte 1 for a value, then the value
//!   other column:      the value
//!
//!   signed integer     big-endian, highest bit inverted
//!   unsigned integer   big-endian
//!   float, double      IEEE 754 bits, big-endian: of a number below 0 all bits are inverted, of others the highest;
//!                      -0 is written as 0, and every NaN as the positive quiet one, so that all NaNs are equal and
//!                      greater than infinity
//!   fixed bytes        as they are: decimal, date and time are stored in a form that sorts
//!   variable bytes     each byte 0 as 1 1, each byte 1 as 1 2, all others as they are; then a byte 0
//!
//!   descending column: all bytes of the piece inverted
//! ```
//!
//! NULL sorts before all values in ascending and after them in descending order, as in MySQL. No piece is a prefix of
//! another piece of the same column. Hence
//! - two keys compare as the first columns in which they differ, and no key is a prefix of another;
//! - the keys that have given values in their first columns are exactly those that begin with these pieces.
//!
//! The second property makes every range of keys a half-open range of bytes, see [`KeyRange`]. A client that has values
//! and no row builds the same bytes with [`OrderKey::write_values`].

use crate::ids::ColumnId;
use crate::row_layout::{ColumnLayout, Place, RowError, RowLayout};
use crate::schema::Kind;
use alloc::vec::Vec;
use core::ops::Bound;
use serde::{Deserialize, Serialize};

/// Which way a column of an index is sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Direction {
    /// From NULL and the least value upwards.
    Ascending,
    /// From the greatest value downwards to NULL.
    Descending,
}

/// A column of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OrderColumn {
    /// Which column of the table.
    pub column: ColumnId,
    /// How it is sorted.
    pub direction: Direction,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    id: ColumnId,
    layout: ColumnLayout,
    direction: Direction,
}

const NULL: u8 = 0;
const VALUE: u8 = 1;
const END: u8 = 0;
const ESCAPE: u8 = 1;

/// How the keys of one index are made. The format is documented at the beginning of this module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderKey {
    parts: Vec<Part>,
}

impl OrderKey {
    /// The keys of an index over these columns; `None` if the table lacks one of them.
    pub fn new(layout: &RowLayout, columns: &[OrderColumn]) -> Option<Self> {
        let part = |&OrderColumn { column, direction }: &OrderColumn| {
            Some(Part { id: column, layout: *layout.column(column)?, direction })
        };
        Some(OrderKey { parts: columns.iter().map(part).collect::<Option<_>>()? })
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.parts.len()
    }

    /// Bytes of a key, at most.
    pub fn bytes_max(&self) -> usize {
        let bytes = |part: &Part| {
            let value = match part.layout.kind {
                Kind::VarBytes(max) => 2 * usize::from(max) + 1,
                fixed => usize::from(fixed.fixed_bytes().expect("only VarBytes is variable")),
            };
            usize::from(part.layout.null_bit.is_some()) + value
        };
        self.parts.iter().map(bytes).sum()
    }

    /// Appends the key of a row, which must have the layout that this was made for.
    #[inline]
    pub fn write_row(&self, layout: &RowLayout, fixed: &[u8], variable: &[u8], out: &mut Vec<u8>) {
        for part in &self.parts {
            let null = layout.is_null(fixed, &part.layout);
            let value = (!null).then(|| layout.bytes(fixed, variable, &part.layout));
            part.write(value, out);
        }
    }

    /// Appends the key of a row with these values. If they are fewer than the columns, appends the prefix that all keys
    /// with these values in the first columns share. Values have the form that they have in a row; `None` is NULL.
    ///
    /// # Errors
    /// If there are too many values or one does not fit its column; what has been appended must then be discarded. NULL
    /// in a column that can't be NULL is [`RowError::NullNotEmpty`].
    pub fn write_values(&self, values: &[Option<&[u8]>], out: &mut Vec<u8>) -> Result<(), RowError> {
        if values.len() > self.parts.len() {
            return Err(RowError::WrongLength);
        }
        for (part, &value) in self.parts.iter().zip(values) {
            match value {
                None if part.layout.null_bit.is_none() => return Err(RowError::NullNotEmpty(part.id)),
                Some(value) if !fits(part.layout.kind, value) => return Err(RowError::TooLong(part.id)),
                _ => part.write(value, out),
            }
        }
        Ok(())
    }

    /// Whether the values of all its columns can be restored from a key: they have fixed places in a row, and their
    /// form there follows from the key's.
    pub fn is_restorable(&self) -> bool {
        let is_told = |kind| matches!(kind, Kind::Unsigned(_) | Kind::Signed(_) | Kind::Bytes(_));
        self.parts.iter().all(|part| is_told(part.layout.kind))
    }

    /// Whether the index has this column.
    pub fn has(&self, column: ColumnId) -> bool {
        self.parts.iter().any(|part| part.id == column)
    }

    /// Writes the values of a whole key into the fixed part of a row; other columns there are left unchanged. Only for
    /// keys that are [restorable](OrderKey::is_restorable).
    #[inline]
    pub fn restore_row(&self, layout: &RowLayout, mut key: &[u8], fixed: &mut [u8]) {
        for part in &self.parts {
            let (piece, rest) = key.split_at(part.piece_bytes(key).expect("it is a whole key"));
            key = rest;
            part.restore(layout, piece, fixed);
        }
    }

    /// Appends where the piece of each column ends in a key. If the bytes are not a key, fewer ends are appended.
    pub fn column_ends(&self, key: &[u8], ends: &mut Vec<usize>) {
        let mut at = 0;
        for part in &self.parts {
            match part.piece_bytes(&key[at..]) {
                Some(bytes) => at += bytes,
                None => return,
            }
            ends.push(at);
        }
    }
}

fn fits(kind: Kind, value: &[u8]) -> bool {
    match kind {
        Kind::VarBytes(max) => value.len() <= usize::from(max),
        fixed => fixed.fixed_bytes().is_some_and(|bytes| value.len() == usize::from(bytes)),
    }
}

impl Part {
    #[inline]
    fn write(&self, value: Option<&[u8]>, out: &mut Vec<u8>) {
        let from = out.len();
        match value {
            None => out.push(NULL),
            Some(value) => {
                if self.layout.null_bit.is_some() {
                    out.push(VALUE);
                }
                write_value(self.layout.kind, value, out);
            }
        }
        if self.direction == Direction::Descending {
            out[from..].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }

    /// Writes the value of a piece into the fixed part of a row.
    #[inline]
    fn restore(&self, layout: &RowLayout, piece: &[u8], fixed: &mut [u8]) {
        let mask = match self.direction {
            Direction::Ascending => 0,
            Direction::Descending => 0xff,
        };
        let Place::Fixed { offset, bytes } = self.layout.place else {
            unreachable!("only fixed values are restored")
        };
        let place = usize::from(offset)..usize::from(offset) + usize::from(bytes);
        let mut value = piece;
        if self.layout.null_bit.is_some() {
            let is_null = piece[0] ^ mask == NULL;
            layout.set_null(fixed, &self.layout, is_null);
            if is_null {
                return fixed[place].fill(0);
            }
            value = &piece[1..];
        }
        let into = &mut fixed[place];
        into.copy_from_slice(value);
        into.iter_mut().for_each(|byte| *byte ^= mask);
        if matches!(self.layout.kind, Kind::Signed(_)) {
            into[0] ^= 0x80;
        }
        if !matches!(self.layout.kind, Kind::Bytes(_)) {
            into.reverse();
        }
    }

    /// The length of the first piece in these bytes; `None` if they do not begin with a whole one.
    fn piece_bytes(&self, key: &[u8]) -> Option<usize> {
        let mask = match self.direction {
            Direction::Ascending => 0,
            Direction::Descending => 0xff,
        };
        let mut at = 0;
        if self.layout.null_bit.is_some() {
            if key.first()? ^ mask == NULL {
                return Some(1);
            }
            at = 1;
        }
        match self.layout.kind.fixed_bytes() {
            Some(bytes) => at += usize::from(bytes),
            None => at += key[at..].iter().position(|byte| byte ^ mask == END)? + 1,
        }
        (at <= key.len()).then_some(at)
    }
}

#[inline]
fn write_value(kind: Kind, value: &[u8], out: &mut Vec<u8>) {
    match kind {
        Kind::Unsigned(_) => out.extend(value.iter().rev()),
        Kind::Signed(_) => {
            let from = out.len();
            out.extend(value.iter().rev());
            out[from] ^= 0x80;
        }
        Kind::Float => {
            let number = f32::from_le_bytes(*value.first_chunk().expect("a float has 4 bytes"));
            let bits = match number {
                number if number.is_nan() => f32::INFINITY.to_bits() | 1 << 22,
                // Both zeros are equal.
                0.0 => 0,
                number => number.to_bits(),
            };
            let negative = bits >> 31 == 1;
            out.extend((if negative { !bits } else { bits | 1 << 31 }).to_be_bytes());
        }
        Kind::Double => {
            let number = f64::from_le_bytes(*value.first_chunk().expect("a double has 8 bytes"));
            let bits = match number {
                number if number.is_nan() => f64::INFINITY.to_bits() | 1 << 51,
                0.0 => 0,
                number => number.to_bits(),
            };
            let negative = bits >> 63 == 1;
            out.extend((if negative { !bits } else { bits | 1 << 63 }).to_be_bytes());
        }
        Kind::Bytes(_) => out.extend_from_slice(value),
        Kind::VarBytes(_) => {
            for &byte in value {
                if byte <= ESCAPE {
                    out.push(ESCAPE);
                    out.push(byte + 1);
                } else {
                    out.push(byte);
                }
            }
            out.push(END);
        }
    }
}

/// All keys from `from` on and before `to`, both compared as bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// The first key is not before these bytes.
    pub from: Vec<u8>,
    /// All keys are before these bytes; `None` if the range goes to the end.
    pub to: Option<Vec<u8>>,
}

impl KeyRange {
    /// The range between two bounds. Each bound is a key or the beginning of one: whole pieces of the first columns. A
    /// bound stands for all keys that begin with it: excluding it excludes all of them, including it includes all of
    /// them.
    pub fn new(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Self {
        let to = match upper {
            Bound::Unbounded => None,
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Included(key) => successor(key),
        };
        match lower {
            Bound::Unbounded => KeyRange { from: Vec::new(), to },
            Bound::Included(key) => KeyRange { from: key.to_vec(), to },
            Bound::Excluded(key) => match successor(key) {
                Some(from) => KeyRange { from, to },
                // No key lies behind the keys that are excluded.
                None => KeyRange { from: key.to_vec(), to: Some(key.to_vec()) },
            },
        }
    }

    /// Whether a key lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.from <= *key && self.to.as_deref().is_none_or(|to| key < to)
    }
}

/// The least bytes that sort behind all bytes with this prefix; `None` if there are none.
fn successor(key: &[u8]) -> Option<Vec<u8>> {
    let last = key.iter().rposition(|&byte| byte != 0xff)?;
    let mut after = key[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{ColumnDefinition, ColumnType, TableDefinition};
    use core::cmp::Ordering;
    use proptest::prelude::*;
    use std::vec;

    /// Pseudo-random choices derived from a seed.
    struct Choices(u64);

    impl Choices {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut x = self.0;
            x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((x ^ x >> 31) % bound as u64) as usize
        }

        fn pick<T: Copy>(&mut self, from: &[T]) -> T {
            from[self.below(from.len())]
        }
    }

    fn column_type(choices: &mut Choices) -> ColumnType {
        let fraction = choices.below(7) as u8;
        let bytes = choices.below(5) as u16;
        match choices.below(14) {
            0 | 1 => ColumnType::Integer { bytes: choices.pick(&[1, 2, 3, 4, 8]), signed: true },
            2 => ColumnType::Integer { bytes: choices.pick(&[1, 2, 3, 4, 8]), signed: false },
            3 => ColumnType::Float,
            4 => ColumnType::Double,
            5 => ColumnType::Decimal { precision: 12, scale: fraction },
            6 => ColumnType::Bit { bits: 1 + choices.below(64) as u8 },
            7 => ColumnType::Date,
            8 => ColumnType::Time { fraction },
            9 => ColumnType::DateTime { fraction },
            10 => ColumnType::Timestamp { fraction },
            11 => ColumnType::Year,
            12 => ColumnType::Char { bytes },
            _ => ColumnType::VarChar { bytes_max: bytes },
        }
    }

    fn value(kind: Kind, choices: &mut Choices) -> Vec<u8> {
        let some_bytes = |length: usize, choices: &mut Choices| -> Vec<u8> {
            (0..length).map(|_| choices.pick(&[0, 0, 1, 1, 2, 127, 128, 254, 255])).collect()
        };
        const DOUBLES: [f64; 12] = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            1.5,
            f64::NAN,
            -f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MIN_POSITIVE,
            f64::MAX,
            -3e-30,
        ];
        match kind {
            Kind::Float => (choices.pick(&DOUBLES) as f32).to_le_bytes().to_vec(),
            Kind::Double => choices.pick(&DOUBLES).to_le_bytes().to_vec(),
            Kind::VarBytes(max) => {
                let length = choices.below(usize::from(max) + 1);
                some_bytes(length, choices)
            }
            fixed => some_bytes(fixed.fixed_bytes().unwrap().into(), choices),
        }
    }

    /// The order of two values, computed in another way than from the bytes.
    fn compare(kind: Kind, left: &Option<Vec<u8>>, right: &Option<Vec<u8>>) -> Ordering {
        let (Some(left), Some(right)) = (left, right) else { return left.is_some().cmp(&right.is_some()) };
        let unsigned = |bytes: &[u8]| bytes.iter().rev().fold(0i128, |n, &b| n << 8 | i128::from(b));
        let signed = |bytes: &[u8]| {
            let (n, bits) = (unsigned(bytes), 8 * bytes.len());
            if n >> (bits - 1) == 1 { n - (1 << bits) } else { n }
        };
        let double = |bytes: &[u8]| match *bytes {
            [a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])),
            _ => f64::from_le_bytes(bytes.try_into().unwrap()),
        };
        match kind {
            Kind::Unsigned(_) => unsigned(left).cmp(&unsigned(right)),
            Kind::Signed(_) => signed(left).cmp(&signed(right)),
            Kind::Float | Kind::Double => {
                let (left, right) = (double(left), double(right));
                left.partial_cmp(&right).unwrap_or(left.is_nan().cmp(&right.is_nan()))
            }
            Kind::Bytes(_) | Kind::VarBytes(_) => left.cmp(right),
        }
    }

    type Values = Vec<Option<Vec<u8>>>;

    /// A table of random columns, an index over some of them, and rows.
    struct Case {
        layout: RowLayout,
        order: OrderKey,
        columns: Vec<OrderColumn>,
        rows: Vec<Values>,
    }

    impl Case {
        fn new(choices: &mut Choices) -> Self {
            let count = 1 + choices.below(5);
            let mut definitions = vec![ColumnDefinition {
                name: "id".into(),
                column_type: ColumnType::Integer { bytes: 4, signed: false },
                nullable: false,
            }];
            for i in 0..count {
                definitions.push(ColumnDefinition {
                    name: std::format!("c{i}"),
                    column_type: column_type(choices),
                    nullable: choices.below(2) == 0,
                });
            }
            let definition = TableDefinition {
                name: "d.t".into(),
                columns: definitions,
                primary_key: vec![ColumnId(0)],
                ..TableDefinition::default()
            };
            definition.check().unwrap();
            let layout = RowLayout::new(&definition);
            let first = choices.below(count);
            let columns: Vec<OrderColumn> = (0..1 + choices.below(count))
                .map(|i| OrderColumn {
                    column: ColumnId(1 + ((first + i) % count) as u16),
                    direction: choices.pick(&[Direction::Ascending, Direction::Descending]),
                })
                .collect();
            let order = OrderKey::new(&layout, &columns).unwrap();
            let mut rows: Vec<Values> = Vec::new();
            for _ in 0..2 + choices.below(12) {
                let mut row: Values = layout
                    .columns()
                    .iter()
                    .map(|column| {
                        let null = column.null_bit.is_some() && choices.below(4) == 0;
                        (!null).then(|| value(column.kind, choices))
                    })
                    .collect();
                // Often the same as in another row, so that later columns decide.
                if !rows.is_empty() {
                    for at in 0..row.len() {
                        if choices.below(3) > 0 {
                            let other = choices.below(rows.len());
                            row[at] = rows[other][at].clone();
                        }
                    }
                }
                rows.push(row);
            }
            Case { layout, order, columns, rows }
        }

        fn key(&self, row: &Values) -> Vec<u8> {
            let borrowed: Vec<Option<&[u8]>> = row.iter().map(Option::as_deref).collect();
            let mut image = Vec::new();
            self.layout.build_image(&borrowed, &mut image).unwrap();
            let (fixed, variable) = self.layout.split(&image);
            let mut key = Vec::new();
            self.order.write_row(&self.layout, fixed, variable, &mut key);
            key
        }

        fn bound(&self, row: &Values, columns: usize) -> Vec<u8> {
            let values: Vec<Option<&[u8]>> =
                self.columns[..columns].iter().map(|c| row[usize::from(c.column.0)].as_deref()).collect();
            let mut key = Vec::new();
            self.order.write_values(&values, &mut key).unwrap();
            key
        }

        /// How two rows compare in the first columns of the index.
        fn compare(&self, left: &Values, right: &Values, columns: usize) -> Ordering {
            self.columns[..columns]
                .iter()
                .map(|&OrderColumn { column, direction }| {
                    let at = usize::from(column.0);
                    let order = compare(self.layout.column(column).unwrap().kind, &left[at], &right[at]);
                    match direction {
                        Direction::Ascending => order,
                        Direction::Descending => order.reverse(),
                    }
                })
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]

        #[test]
        fn bytes_compare_as_the_values_do(seed: u64) {
            let case = Case::new(&mut Choices(seed));
            for left in &case.rows {
                let key = case.key(left);
                prop_assert_eq!(&key, &case.bound(left, case.columns.len()));
                prop_assert!(key.len() <= case.order.bytes_max());
                for right in &case.rows {
                    let other = case.key(right);
                    prop_assert_eq!(key.cmp(&other), case.compare(left, right, case.columns.len()));
                    prop_assert!(key == other || !other.starts_with(&key), "no key begins another");
                }
            }
        }

        #[test]
        fn ranges_hold_the_rows_between_their_bounds(seed: u64) {
            let mut choices = Choices(seed);
            let case = Case::new(&mut choices);
            let mut bound = || {
                let row = case.rows[choices.below(case.rows.len())].clone();
                (row, choices.below(case.columns.len() + 1), choices.below(3))
            };
            let ((lower, lower_columns, lower_kind), (upper, upper_columns, upper_kind)) = (bound(), bound());
            let (lower_key, upper_key) = (case.bound(&lower, lower_columns), case.bound(&upper, upper_columns));
            let of_kind = |kind, key| match kind {
                0 => Bound::Included(key),
                1 => Bound::Excluded(key),
                _ => Bound::Unbounded,
            };
            let range = KeyRange::new(of_kind(lower_kind, &lower_key[..]), of_kind(upper_kind, &upper_key[..]));
            for row in &case.rows {
                let above = case.compare(row, &lower, lower_columns);
                let below = case.compare(row, &upper, upper_columns);
                let inside = match lower_kind {
                    0 => above.is_ge(),
                    1 => above.is_gt(),
                    _ => true,
                } && match upper_kind {
                    0 => below.is_le(),
                    1 => below.is_lt(),
                    _ => true,
                };
                prop_assert_eq!(range.contains(&case.key(row)), inside);
            }
        }

        #[test]
        fn keys_tell_the_values_that_they_were_made_of(seed: u64, before: u8) {
            let case = Case::new(&mut Choices(seed));
            prop_assume!(case.order.is_restorable());
            for row in &case.rows {
                let mut fixed = vec![before; case.layout.fixed_bytes()];
                case.order.restore_row(&case.layout, &case.key(row), &mut fixed);
                for OrderColumn { column, .. } in &case.columns {
                    let layout = case.layout.column(*column).unwrap();
                    let value = case.layout.bytes(&fixed, &[], layout).to_vec();
                    match &row[usize::from(column.0)] {
                        None => prop_assert!(case.layout.is_null(&fixed, layout) && value.iter().all(|&byte| byte == 0)),
                        Some(expected) => {
                            prop_assert!(!case.layout.is_null(&fixed, layout));
                            prop_assert_eq!(&value, expected);
                        }
                    }
                }
            }
        }

        #[test]
        fn pieces_end_where_the_next_column_begins(seed: u64, garbage: Vec<u8>) {
            let case = Case::new(&mut Choices(seed));
            for row in &case.rows {
                let mut ends = Vec::new();
                case.order.column_ends(&case.key(row), &mut ends);
                let expected: Vec<usize> =
                    (1..=case.columns.len()).map(|columns| case.bound(row, columns).len()).collect();
                prop_assert_eq!(ends, expected);
            }
            case.order.column_ends(&garbage, &mut Vec::new());
        }
    }

    #[test]
    fn the_format_is_frozen() {
        let definition = |column_type, nullable| ColumnDefinition {
            name: std::format!("{column_type} {nullable}"),
            column_type,
            nullable,
        };
        let layout = RowLayout::new(&TableDefinition {
            name: "d.t".into(),
            columns: vec![
                definition(ColumnType::Integer { bytes: 3, signed: true }, false),
                definition(ColumnType::VarChar { bytes_max: 4 }, true),
                definition(ColumnType::Float, false),
            ],
            primary_key: vec![ColumnId(0)],
            ..TableDefinition::default()
        });
        let key = |direction, values: &[Option<&[u8]>]| {
            let columns = [0, 1, 2].map(|id| OrderColumn { column: ColumnId(id), direction });
            let mut key = vec![];
            OrderKey::new(&layout, &columns).unwrap().write_values(values, &mut key).map(|()| key)
        };
        let up = Direction::Ascending;
        let minus_two = (-2.0f32).to_le_bytes();
        let all: [Option<&[u8]>; 3] = [Some(&[1, 2, 3]), Some(b"a\0\x01b"), Some(&minus_two)];
        let bytes = [0x83, 2, 1, 1, b'a', 1, 1, 1, 2, b'b', 0, 0x3f, 0xff, 0xff, 0xff];
        assert_eq!(key(up, &all).unwrap(), bytes);
        assert_eq!(key(Direction::Descending, &all).unwrap(), bytes.map(|byte| !byte));
        assert_eq!(key(up, &[Some(&[255, 255, 255]), None]).unwrap(), [0x7f, 255, 255, 0]);
        assert_eq!(key(up, &[None]), Err(RowError::NullNotEmpty(ColumnId(0))));
        assert_eq!(key(up, &[Some(&[1])]), Err(RowError::TooLong(ColumnId(0))));
        assert_eq!(key(up, &[Some(&[1, 2, 3]), Some(b"abcde")]), Err(RowError::TooLong(ColumnId(1))));
        assert_eq!(key(up, &[None; 4]), Err(RowError::WrongLength));
        let missing = OrderColumn { column: ColumnId(3), direction: up };
        assert_eq!(OrderKey::new(&layout, &[missing]), None);
    }
}
