//! Where a column's bytes are in a row, and how rows, keys and selections are encoded in messages.
//!
//! A *row image* is a whole row without its header, the same bytes in a message, in an operation record and in the
//! row store:
//!
//! ```text
//!   fixed part:     key columns of fixed size, in key order
//!                   null bits, one for each nullable column in declaration order, padded to bytes with zeros
//!                   all other columns of fixed size, in declaration order (a NULL one is all zeros)
//!   variable part:  only if the table has columns of variable size, in declaration order:
//!                   for each the end of its bytes, u16 little-endian, counted from the end of this list of ends;
//!                   then the bytes (a NULL one has none)
//! ```
//!
//! A *key* is its columns in key order: one of fixed size as it is, one of variable size as u16 length and bytes. When
//! all key columns are of fixed size, which is the common case, the key is identical to the beginning of the image.
//!
//! A *selection* holds some columns in the order that the reader chose: null bits (one per selected column, whether
//! nullable or not), then each column that is not NULL, encoded as in a key.
//!
//! A floating-point number in a row is never a negative zero, because keys are hashed and compared by their bytes. Code
//! that builds images, keys or changes of rows replaces it by the positive zero ([`one_zero`]).
//!
//! Nothing is aligned: readers use unaligned loads.

use crate::ids::ColumnId;
use crate::schema::{Kind, ROW_BYTES_MAX, TableDefinition};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::ops::Range;

/// Where one column is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the fixed part.
    Fixed {
        /// First byte.
        offset: u16,
        /// Number of bytes.
        bytes: u16,
    },
    /// In the variable part.
    Variable {
        /// Its index among the variable columns.
        index: u16,
    },
}

/// One column of a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColumnLayout {
    /// How its bytes are compared.
    pub kind: Kind,
    /// Where its bytes are.
    pub place: Place,
    /// Its bit among the null bits; `None` if it can't be NULL.
    pub null_bit: Option<u16>,
}

/// What is wrong with a row image, key or selection that was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowError {
    /// Fewer or more bytes than the layout or their own lengths require.
    WrongLength,
    /// A value longer than its column allows.
    TooLong(ColumnId),
    /// A row longer than [`ROW_BYTES_MAX`].
    RowTooLong,
    /// The ends in the variable part are not ascending.
    EndsNotAscending(ColumnId),
    /// A column that is marked NULL has bytes that are not zero.
    NullNotEmpty(ColumnId),
    /// Null bits beyond the last nullable column are set.
    PaddingSet,
}

/// Replaces a negative zero at this place by the positive zero.
fn put_one_zero(bytes: &mut Cow<'_, [u8]>, place: Range<usize>) {
    let mut number = [0; 8];
    let number = &mut number[..place.len()];
    number.copy_from_slice(&bytes[place.clone()]);
    if one_zero(number) {
        bytes.to_mut()[place].fill(0);
    }
}

/// The layout of a table's rows. A pure function of a checked definition, so client and node agree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowLayout {
    columns: Vec<ColumnLayout>,
    key: Vec<ColumnId>,
    key_bytes: Option<u16>,
    fixed_bytes: u16,
    null_offset: u16,
    null_count: u16,
    variable: Vec<ColumnId>,
    /// The columns that hold floating-point numbers.
    floats: Vec<ColumnId>,
}

/// Replaces a negative zero by the positive one; returns whether it was negative.
pub fn one_zero(number: &mut [u8]) -> bool {
    let is_negative_zero = number.split_last().is_some_and(|(last, rest)| *last == 0x80 && is_zero(rest));
    if is_negative_zero {
        number.fill(0);
    }
    is_negative_zero
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

impl RowLayout {
    /// The layout of a definition that has passed [`TableDefinition::check`].
    pub fn new(definition: &TableDefinition) -> Self {
        let kinds: Vec<Kind> = definition.columns.iter().map(|c| c.column_type.kind()).collect();
        let mut places: Vec<Option<Place>> = kinds.iter().map(|_| None).collect();
        let mut offset = 0u16;
        let mut place_fixed = |id: usize, offset: &mut u16| {
            if let (Some(bytes), None) = (kinds[id].fixed_bytes(), places[id]) {
                places[id] = Some(Place::Fixed { offset: *offset, bytes });
                *offset += bytes;
            }
        };
        for id in &definition.primary_key {
            place_fixed(usize::from(id.0), &mut offset);
        }
        let key_part = offset;
        let null_offset = offset;
        let null_count = definition.columns.iter().filter(|c| c.nullable).count() as u16;
        offset += null_count.div_ceil(8);
        for id in 0..kinds.len() {
            place_fixed(id, &mut offset);
        }
        let mut variable = Vec::new();
        let mut nulls = 0..null_count;
        let columns = definition
            .columns
            .iter()
            .enumerate()
            .map(|(id, column)| ColumnLayout {
                kind: kinds[id],
                place: places[id].unwrap_or_else(|| {
                    variable.push(ColumnId(id as u16));
                    Place::Variable { index: variable.len() as u16 - 1 }
                }),
                null_bit: if column.nullable { nulls.next() } else { None },
            })
            .collect();
        let key_is_fixed =
            definition.primary_key.iter().all(|id| kinds[usize::from(id.0)].fixed_bytes().is_some());
        RowLayout {
            columns,
            key: definition.primary_key.clone(),
            key_bytes: key_is_fixed.then_some(key_part),
            fixed_bytes: offset,
            null_offset,
            null_count,
            variable,
            floats: (0..)
                .zip(&kinds)
                .filter(|(_, kind)| matches!(kind, Kind::Float | Kind::Double))
                .map(|(id, _)| ColumnId(id))
                .collect(),
        }
    }

    /// A checked image in which negative zeros are replaced by positive ones.
    pub fn image_with_one_zero<'a>(&self, image: &'a [u8]) -> Cow<'a, [u8]> {
        let mut image = Cow::Borrowed(image);
        for id in &self.floats {
            let Place::Fixed { offset, bytes } = self.columns[usize::from(id.0)].place else { continue };
            put_one_zero(&mut image, usize::from(offset)..usize::from(offset + bytes));
        }
        image
    }

    /// A checked key in which negative zeros are replaced by positive ones.
    pub fn key_with_one_zero<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        let mut result = Cow::Borrowed(key);
        if self.floats.is_empty() {
            return result;
        }
        let mut rest = key;
        for &id in &self.key {
            let Ok(value) = self.take(id, &mut rest) else { break };
            let end = key.len() - rest.len();
            if self.floats.contains(&id) {
                put_one_zero(&mut result, end - value.len()..end);
            }
        }
        result
    }

    /// All columns, by [`ColumnId`].
    pub fn columns(&self) -> &[ColumnLayout] {
        &self.columns
    }

    /// One column; `None` if there is no such column.
    #[inline]
    pub fn column(&self, id: ColumnId) -> Option<&ColumnLayout> {
        self.columns.get(usize::from(id.0))
    }

    /// The primary key's columns in key order.
    pub fn key(&self) -> &[ColumnId] {
        &self.key
    }

    /// Bytes of every key if all key columns are of fixed size.
    #[inline]
    pub fn key_bytes(&self) -> Option<u16> {
        self.key_bytes
    }

    /// Bytes of the fixed part.
    #[inline]
    pub fn fixed_bytes(&self) -> usize {
        usize::from(self.fixed_bytes)
    }

    /// The columns of variable size, in declaration order.
    #[inline]
    pub fn variable(&self) -> &[ColumnId] {
        &self.variable
    }

    /// Whether rows have a variable part.
    #[inline]
    pub fn has_variable(&self) -> bool {
        !self.variable.is_empty()
    }

    /// Bytes that the null bits take.
    pub fn null_bytes(&self) -> usize {
        usize::from(self.null_count.div_ceil(8))
    }

    /// Where the null bits begin in the fixed part.
    pub fn null_offset(&self) -> usize {
        usize::from(self.null_offset)
    }

    /// Splits an image into its fixed and its variable part.
    #[inline]
    pub fn split<'a>(&self, image: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        image.split_at(self.fixed_bytes())
    }

    /// Whether a column of a row is NULL.
    #[inline]
    pub fn is_null(&self, fixed: &[u8], column: &ColumnLayout) -> bool {
        match column.null_bit {
            Some(bit) => fixed[self.null_offset() + usize::from(bit / 8)] & 1 << (bit % 8) != 0,
            None => false,
        }
    }

    /// Marks a column of a row as NULL or not. The caller sets its bytes.
    pub fn set_null(&self, fixed: &mut [u8], column: &ColumnLayout, null: bool) {
        if let Some(bit) = column.null_bit {
            let byte = &mut fixed[self.null_offset() + usize::from(bit / 8)];
            let mask = 1 << (bit % 8);
            *byte = if null { *byte | mask } else { *byte & !mask };
        }
    }

    /// The bytes of a column (empty or zeros if it is NULL).
    #[inline]
    pub fn bytes<'a>(&self, fixed: &'a [u8], variable: &'a [u8], column: &ColumnLayout) -> &'a [u8] {
        match column.place {
            Place::Fixed { offset, bytes } => {
                &fixed[usize::from(offset)..usize::from(offset) + usize::from(bytes)]
            }
            Place::Variable { index } => {
                let ends = self.variable.len() * 2;
                let end = |i: usize| usize::from(u16::from_le_bytes([variable[2 * i], variable[2 * i + 1]]));
                let index = usize::from(index);
                let begin = if index == 0 { 0 } else { end(index - 1) };
                &variable[ends + begin..ends + end(index)]
            }
        }
    }

    /// Checks an image that was received: lengths, ends, null bits. All values of fixed columns are allowed.
    ///
    /// # Errors
    /// The first problem found.
    pub fn check_image(&self, image: &[u8]) -> Result<(), RowError> {
        if image.len() < self.fixed_bytes() {
            return Err(RowError::WrongLength);
        }
        if image.len() > ROW_BYTES_MAX {
            return Err(RowError::RowTooLong);
        }
        let (fixed, variable) = self.split(image);
        if !self.null_count.is_multiple_of(8) {
            let last = fixed[self.null_offset() + self.null_bytes() - 1];
            if last >> (self.null_count % 8) != 0 {
                return Err(RowError::PaddingSet);
            }
        }
        self.check_variable(fixed, variable)?;
        if self.null_count > 0 {
            for (id, column) in self.columns.iter().enumerate() {
                if self.is_null(fixed, column) && self.bytes(fixed, variable, column).iter().any(|&b| b != 0)
                {
                    return Err(RowError::NullNotEmpty(ColumnId(id as u16)));
                }
            }
        }
        Ok(())
    }

    fn check_variable(&self, fixed: &[u8], variable: &[u8]) -> Result<(), RowError> {
        let ends = self.variable.len() * 2;
        if variable.len() < ends {
            return Err(RowError::WrongLength);
        }
        let mut begin = 0;
        for (index, &id) in self.variable.iter().enumerate() {
            let end = u16::from_le_bytes([variable[2 * index], variable[2 * index + 1]]);
            let column = &self.columns[usize::from(id.0)];
            let Kind::VarBytes(max) = column.kind else {
                unreachable!("only VarBytes lies in the variable part")
            };
            if end < begin {
                return Err(RowError::EndsNotAscending(id));
            }
            if end - begin > max {
                return Err(RowError::TooLong(id));
            }
            if end > begin && self.is_null(fixed, column) {
                return Err(RowError::NullNotEmpty(id));
            }
            begin = end;
        }
        if variable.len() == ends + usize::from(begin) { Ok(()) } else { Err(RowError::WrongLength) }
    }

    /// Checks a key that was received.
    ///
    /// # Errors
    /// The first problem found.
    #[inline]
    pub fn check_key(&self, key: &[u8]) -> Result<(), RowError> {
        match self.key_bytes {
            Some(bytes) if usize::from(bytes) == key.len() => Ok(()),
            Some(_) => Err(RowError::WrongLength),
            None => {
                let mut rest = key;
                for &id in &self.key {
                    self.take(id, &mut rest)?;
                }
                if rest.is_empty() { Ok(()) } else { Err(RowError::WrongLength) }
            }
        }
    }

    /// Takes one column's bytes off the front of a key or selection.
    ///
    /// # Errors
    /// If there are too few bytes, or the value is too long for the column.
    pub fn take<'a>(&self, id: ColumnId, rest: &mut &'a [u8]) -> Result<&'a [u8], RowError> {
        let column = &self.columns[usize::from(id.0)];
        let (bytes, after) = match column.kind {
            Kind::VarBytes(max) => {
                let (length, after) = rest.split_first_chunk::<2>().ok_or(RowError::WrongLength)?;
                let length = u16::from_le_bytes(*length);
                if length > max {
                    return Err(RowError::TooLong(id));
                }
                after.split_at_checked(usize::from(length)).ok_or(RowError::WrongLength)?
            }
            fixed => {
                let bytes = fixed.fixed_bytes().expect("only VarBytes is variable");
                rest.split_at_checked(usize::from(bytes)).ok_or(RowError::WrongLength)?
            }
        };
        *rest = after;
        Ok(bytes)
    }

    /// Appends a row's key.
    pub fn write_key(&self, fixed: &[u8], variable: &[u8], out: &mut Vec<u8>) {
        match self.key_bytes {
            Some(bytes) => out.extend_from_slice(&fixed[..usize::from(bytes)]),
            None => {
                for &id in &self.key {
                    self.write_column(id, fixed, variable, out);
                }
            }
        }
    }

    /// The key of a checked row image.
    pub fn key_of<'a>(&self, image: &'a [u8]) -> Cow<'a, [u8]> {
        if let Some(bytes) = self.key_bytes {
            return Cow::Borrowed(&image[..usize::from(bytes)]);
        }
        let (fixed, variable) = self.split(image);
        let mut key = Vec::new();
        self.write_key(fixed, variable, &mut key);
        Cow::Owned(key)
    }

    /// Whether a row has this key, which must have been checked.
    #[inline]
    pub fn key_equals(&self, key: &[u8], fixed: &[u8], variable: &[u8]) -> bool {
        match self.key_bytes {
            Some(8) => fixed[..8] == key[..8],
            Some(bytes) => fixed[..usize::from(bytes)] == *key,
            None => {
                let mut rest = key;
                self.key.iter().all(|&id| {
                    let column = &self.columns[usize::from(id.0)];
                    self.take(id, &mut rest) == Ok(self.bytes(fixed, variable, column))
                })
            }
        }
    }

    /// Appends a selection of columns. All ids must exist.
    pub fn write_selection(&self, selected: &[ColumnId], fixed: &[u8], variable: &[u8], out: &mut Vec<u8>) {
        let nulls_at = out.len();
        out.resize(nulls_at + selected.len().div_ceil(8), 0);
        for (i, &id) in selected.iter().enumerate() {
            if self.is_null(fixed, &self.columns[usize::from(id.0)]) {
                out[nulls_at + i / 8] |= 1 << (i % 8);
            } else {
                self.write_column(id, fixed, variable, out);
            }
        }
    }

    fn write_column(&self, id: ColumnId, fixed: &[u8], variable: &[u8], out: &mut Vec<u8>) {
        let column = &self.columns[usize::from(id.0)];
        let bytes = self.bytes(fixed, variable, column);
        if let Place::Variable { .. } = column.place {
            out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        }
        out.extend_from_slice(bytes);
    }

    /// Reads a selection: for each selected column its bytes, or `None` for NULL.
    ///
    /// # Errors
    /// If the bytes are not a selection of these columns.
    pub fn read_selection<'a>(
        &self,
        selected: &[ColumnId],
        bytes: &'a [u8],
    ) -> Result<Vec<Option<&'a [u8]>>, RowError> {
        let (nulls, mut rest) =
            bytes.split_at_checked(selected.len().div_ceil(8)).ok_or(RowError::WrongLength)?;
        let values =
            selected
                .iter()
                .enumerate()
                .map(|(i, &id)| {
                    if nulls[i / 8] & 1 << (i % 8) != 0 {
                        Ok(None)
                    } else {
                        self.take(id, &mut rest).map(Some)
                    }
                })
                .collect::<Result<_, _>>()?;
        if rest.is_empty() { Ok(values) } else { Err(RowError::WrongLength) }
    }

    /// Builds an image from one value per column (`None` is NULL), in declaration order.
    ///
    /// # Errors
    /// If a value does not fit its column. NULL in a column that can't be NULL is [`RowError::NullNotEmpty`].
    pub fn build_image(&self, values: &[Option<&[u8]>], out: &mut Vec<u8>) -> Result<(), RowError> {
        assert_eq!(values.len(), self.columns.len(), "one value per column");
        let fixed_at = out.len();
        out.resize(fixed_at + self.fixed_bytes(), 0);
        for (id, (column, value)) in self.columns.iter().zip(values).enumerate() {
            let id = ColumnId(id as u16);
            match (value, column.place) {
                (None, _) if column.null_bit.is_none() => return Err(RowError::NullNotEmpty(id)),
                (None, _) => self.set_null(&mut out[fixed_at..], column, true),
                (Some(value), Place::Fixed { offset, bytes }) => {
                    if value.len() != usize::from(bytes) {
                        return Err(RowError::TooLong(id));
                    }
                    let at = fixed_at + usize::from(offset);
                    out[at..at + value.len()].copy_from_slice(value);
                }
                (Some(_), Place::Variable { .. }) => {}
            }
        }
        let mut end = 0usize;
        for &id in &self.variable {
            end += values[usize::from(id.0)].map_or(0, <[u8]>::len);
            let end = u16::try_from(end).map_err(|_| RowError::RowTooLong)?;
            out.extend_from_slice(&end.to_le_bytes());
        }
        for &id in &self.variable {
            let value = values[usize::from(id.0)].unwrap_or_default();
            if let Kind::VarBytes(max) = self.columns[usize::from(id.0)].kind
                && value.len() > usize::from(max)
            {
                return Err(RowError::TooLong(id));
            }
            out.extend_from_slice(value);
        }
        if out.len() - fixed_at > ROW_BYTES_MAX { Err(RowError::RowTooLong) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{ColumnDefinition, ColumnType};
    use alloc::vec;

    fn layout(columns: &[(ColumnType, bool)], key: &[u16]) -> RowLayout {
        let definition = TableDefinition {
            name: "d.t".into(),
            columns: columns
                .iter()
                .enumerate()
                .map(|(i, &(column_type, nullable))| ColumnDefinition {
                    name: std::format!("c{i}"),
                    column_type,
                    nullable,
                })
                .collect(),
            primary_key: key.iter().map(|&k| ColumnId(k)).collect(),
            ..TableDefinition::default()
        };
        definition.check().unwrap();
        RowLayout::new(&definition)
    }

    const INT: ColumnType = ColumnType::Integer { bytes: 4, signed: true };
    const TEXT: ColumnType = ColumnType::VarChar { bytes_max: 10 };

    #[test]
    fn the_key_stands_first() {
        let l = layout(&[(INT, true), (ColumnType::Char { bytes: 3 }, false), (INT, false)], &[2, 1]);
        assert_eq!(l.key_bytes(), Some(7));
        assert_eq!(l.columns()[2].place, Place::Fixed { offset: 0, bytes: 4 });
        assert_eq!(l.columns()[1].place, Place::Fixed { offset: 4, bytes: 3 });
        assert_eq!(l.null_offset(), 7);
        assert_eq!(l.columns()[0].place, Place::Fixed { offset: 8, bytes: 4 });
        assert_eq!(l.fixed_bytes(), 12);
    }

    #[test]
    fn images_and_keys_have_one_zero() {
        let columns = [
            (TEXT, false),
            (ColumnType::Double, false),
            (ColumnType::Float, true),
            (ColumnType::Integer { bytes: 8, signed: true }, false),
        ];
        let l = layout(&columns, &[0, 1]);
        let row = |double: f64, float: f32| {
            let (mut image, mut key) = (vec![], vec![]);
            let (double, float) = (double.to_le_bytes(), float.to_le_bytes());
            let integer = (-0.0_f64).to_le_bytes();
            // The integer has no sign for its zero.
            let values = [&b"t"[..], &double, &float, &integer].map(Some);
            l.build_image(&values, &mut image).unwrap();
            key.extend_from_slice(&l.key_of(&image));
            (image, key)
        };
        for (double, float) in [(-0.0, -0.0), (-0.0, 1.0), (-1.0, -0.0), (-f64::MIN_POSITIVE, -1.0)] {
            let (image, key) = row(double, float);
            let (wanted, wanted_key) = row(double + 0.0, float + 0.0);
            assert_eq!(l.image_with_one_zero(&image), wanted);
            assert_eq!(l.key_with_one_zero(&key), wanted_key);
        }
        let (image, key) = row(0.0, 0.0);
        assert!(matches!(l.image_with_one_zero(&image), Cow::Borrowed(_)));
        assert!(matches!(l.key_with_one_zero(&key), Cow::Borrowed(_)));
    }

    #[test]
    fn bad_images_are_named() {
        let l = layout(&[(INT, false), (TEXT, true), (TEXT, false)], &[0]);
        let mut good = vec![];
        l.build_image(&[Some(&[1, 0, 0, 0]), Some(b"ab"), Some(b"")], &mut good).unwrap();
        assert_eq!(good, [1, 0, 0, 0, 0, 2, 0, 2, 0, b'a', b'b']);
        assert_eq!(l.check_image(&good), Ok(()));
        let bad = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut image = good.clone();
            change(&mut image);
            l.check_image(&image)
        };
        assert_eq!(bad(&|i| i.truncate(3)), Err(RowError::WrongLength));
        assert_eq!(bad(&|i| i.truncate(8)), Err(RowError::WrongLength));
        assert_eq!(bad(&|i| i.push(0)), Err(RowError::WrongLength));
        assert_eq!(bad(&|i| i[4] = 2), Err(RowError::PaddingSet));
        assert_eq!(bad(&|i| i[4] = 1), Err(RowError::NullNotEmpty(ColumnId(1))));
        assert_eq!(bad(&|i| i[5] = 11), Err(RowError::TooLong(ColumnId(1))));
        assert_eq!(bad(&|i| i[7] = 1), Err(RowError::EndsNotAscending(ColumnId(2))));
    }

    proptest::proptest! {
        #[test]
        fn what_is_built_is_read_back(
            columns in proptest::collection::vec((0u8..4, proptest::bool::ANY), 1..20),
            seed in proptest::collection::vec((0u8..12, proptest::bool::ANY), 20),
        ) {
            let types: Vec<(ColumnType, bool)> = columns.iter().enumerate().map(|(i, &(t, nullable))| {
                let column_type = match t {
                    0 => INT,
                    1 => ColumnType::Char { bytes: 5 },
                    2 => ColumnType::Double,
                    _ => TEXT,
                };
                (column_type, nullable && i != 0)
            }).collect();
            let l = layout(&types, &[0]);
            let values: Vec<Option<Vec<u8>>> = types.iter().zip(&seed).map(|(&(t, nullable), &(n, null))| {
                let length = t.kind().fixed_bytes().map_or(usize::from(n % 11), usize::from);
                (!(nullable && null)).then(|| vec![n + 1; length])
            }).collect();
            let borrowed: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
            let mut image = vec![];
            l.build_image(&borrowed, &mut image).unwrap();
            assert_eq!(l.check_image(&image), Ok(()));
            let (fixed, variable) = l.split(&image);
            let all: Vec<ColumnId> = (0..types.len() as u16).map(ColumnId).collect();
            let mut selection = vec![];
            l.write_selection(&all, fixed, variable, &mut selection);
            assert_eq!(l.read_selection(&all, &selection).unwrap(), borrowed);
            let mut key = vec![];
            l.write_key(fixed, variable, &mut key);
            assert_eq!(l.check_key(&key), Ok(()));
            assert!(l.key_equals(&key, fixed, variable));
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
            let l = layout(&[(TEXT, false), (INT, true), (TEXT, true)], &[0]);
            if l.check_image(&bytes).is_ok() {
                let (fixed, variable) = l.split(&bytes);
                for column in l.columns() {
                    l.bytes(fixed, variable, column);
                }
            }
            let _ = l.check_key(&bytes);
            let _ = l.read_selection(&[ColumnId(2), ColumnId(0)], &bytes);
        }
    }
}
