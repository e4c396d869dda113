//! Between values and the bytes of a column.
//!
//! What fits without loss is taken: an integer into any integer column that can hold it, into a decimal, a
//! floating-point number or a bit field; text into a byte column and bytes into a text column. What does not fit is
//! refused with half a sentence that says why; nothing is rounded or cut.

use super::{Date, DateTime, Decimal, Time, Timestamp, Value};
use crate::error::Error;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use vinga_base::schema::{ColumnType, ROW_BYTES_MAX};
use vinga_wire::ErrorCode;

/// Why a value does not fit, as half a sentence.
#[derive(Clone, PartialEq, Eq)]
pub struct Misfit {
    reason: Box<str>,
}

impl Misfit {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Misfit { reason: reason.into().into_boxed_str() }
    }

    /// The error of a value that does not fit this column.
    #[cold]
    pub(crate) fn at(self, code: ErrorCode, table: &str, column: &str) -> Error {
        Error::with_detail(code, format!("column '{column}' of {table}: {self}"))
    }

    #[cold]
    fn wrong_type(given: &str, column: ColumnType) -> Self {
        Misfit::new(format!("{given} does not fit the type {column}"))
    }

    #[cold]
    fn out_of_range(value: impl fmt::Display, column: ColumnType) -> Self {
        Misfit::new(format!("{value} is out of the range of {column}"))
    }

    #[cold]
    fn too_long(bytes: usize, column: ColumnType) -> Self {
        Misfit::new(format!("{bytes} bytes are too long for {column}"))
    }

    #[cold]
    fn wanted(wanted: &str, column: ColumnType) -> Self {
        Misfit::new(format!("a {column} can't be read as {wanted}"))
    }

    #[cold]
    fn damaged(column: ColumnType) -> Self {
        Misfit::new(format!("the stored bytes are no {column}"))
    }

    #[cold]
    fn null(wanted: &str) -> Self {
        Misfit::new(format!("it is NULL, which is not {wanted}; read an Option"))
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl fmt::Debug for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl core::error::Error for Misfit {}

/// What [`StoreValue::store`] has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// The bytes have been appended.
    Bytes,
    /// The value is NULL, nothing was appended.
    Null,
}

/// What can be written into a column.
pub trait StoreValue {
    /// Appends the bytes of the value as a column of this type stores them.
    ///
    /// # Errors
    /// If the value does not fit; what was appended then must be taken back.
    fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit>;
}

/// What can be read from a column.
pub trait LoadValue: Sized {
    /// Reads the bytes of a column of this type; `None` is NULL.
    ///
    /// # Errors
    /// If the value does not fit, or the bytes are not of that type.
    fn load(column: ColumnType, bytes: Option<&[u8]>) -> Result<Self, Misfit>;
}

/// Range of an integer type.
fn integer_range(bytes: u8, signed: bool) -> (i128, i128) {
    let bits = u32::from(bytes) * 8;
    if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

#[inline]
fn store_integer(value: i128, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
    match column {
        ColumnType::Integer { bytes, signed } => {
            let (least, greatest) = integer_range(bytes, signed);
            if value < least || value > greatest {
                return Err(Misfit::out_of_range(value, column));
            }
            out.extend_from_slice(&value.to_le_bytes()[..usize::from(bytes)]);
        }
        ColumnType::Year => match value {
            0 => out.push(0),
            1901..=2155 => out.push((value - 1900) as u8),
            _ => return Err(Misfit::out_of_range(value, column)),
        },
        ColumnType::Bit { bits } => {
            if value < 0 || value >= 1 << bits {
                return Err(Misfit::out_of_range(value, column));
            }
            out.extend_from_slice(&value.to_le_bytes()[..usize::from(bits.div_ceil(8))]);
        }
        ColumnType::Float => out.extend_from_slice(&(value as f32).to_le_bytes()),
        ColumnType::Double => out.extend_from_slice(&(value as f64).to_le_bytes()),
        ColumnType::Decimal { precision, scale } => {
            let decimal = match i64::try_from(value) {
                Ok(value) => Decimal::from(value),
                Err(_) => Decimal::from(value as u64),
            };
            decimal.encode(precision, scale, out)?;
        }
        ColumnType::Date
        | ColumnType::Time { .. }
        | ColumnType::DateTime { .. }
        | ColumnType::Timestamp { .. }
        | ColumnType::Char { .. }
        | ColumnType::Binary { .. }
        | ColumnType::VarChar { .. }
        | ColumnType::VarBinary { .. }
        | ColumnType::Text
        | ColumnType::Blob => return Err(Misfit::wrong_type("an integer", column)),
    }
    Ok(Stored::Bytes)
}

fn store_double(value: f64, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
    // The two zeros are one number, and keys are compared by their bytes: the negative one is not stored, as in SQL.
    let value = value + 0.0;
    match column {
        ColumnType::Double => out.extend_from_slice(&value.to_le_bytes()),
        ColumnType::Float => {
            let single = value as f32 + 0.0;
            if single.is_infinite() && value.is_finite() {
                return Err(Misfit::out_of_range(value, column));
            }
            out.extend_from_slice(&single.to_le_bytes());
        }
        _ => return Err(Misfit::wrong_type("a floating-point number", column)),
    }
    Ok(Stored::Bytes)
}

#[inline]
fn store_bytes(value: &[u8], given: &str, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
    let (size, padding) = match column {
        ColumnType::Char { bytes } => (bytes, Some(b' ')),
        ColumnType::Binary { bytes } => (bytes, Some(0)),
        ColumnType::VarChar { bytes_max } | ColumnType::VarBinary { bytes_max } => (bytes_max, None),
        ColumnType::Text | ColumnType::Blob => (ROW_BYTES_MAX as u16, None),
        _ => return Err(Misfit::wrong_type(given, column)),
    };
    let size = usize::from(size);
    if value.len() > size {
        return Err(Misfit::too_long(value.len(), column));
    }
    out.extend_from_slice(value);
    if let Some(padding) = padding {
        out.resize(out.len() + size - value.len(), padding);
    }
    Ok(Stored::Bytes)
}

/// An integer, year or bit field as it is stored.
#[inline]
fn load_integer(column: ColumnType, bytes: &[u8]) -> Result<i128, Misfit> {
    let unsigned = |bytes: &[u8]| {
        let mut wide = [0; 8];
        wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(wide))
    };
    let number = unsigned(bytes).ok_or_else(|| Misfit::damaged(column))?;
    match column {
        ColumnType::Integer { signed: true, .. } => {
            let unused = 64 - 8 * bytes.len() as u32;
            Ok(i128::from((number as i64).checked_shl(unused).unwrap_or(0) >> unused.min(63)))
        }
        ColumnType::Integer { signed: false, .. } | ColumnType::Bit { .. } => Ok(i128::from(number)),
        ColumnType::Year if number == 0 => Ok(0),
        ColumnType::Year => Ok(i128::from(number) + 1900),
        _ => Err(Misfit::wanted("an integer", column)),
    }
}

fn load_double(column: ColumnType, bytes: &[u8]) -> Result<f64, Misfit> {
    match column {
        ColumnType::Float => bytes.try_into().map(|bytes| f64::from(f32::from_le_bytes(bytes))),
        ColumnType::Double => bytes.try_into().map(f64::from_le_bytes),
        _ => return Err(Misfit::wanted("a floating-point number", column)),
    }
    .map_err(|_| Misfit::damaged(column))
}

/// The bytes of a text or byte column in place, without the spaces that pad a text of fixed size.
///
/// # Errors
/// If the column is of another type.
pub fn load_bytes(column: ColumnType, bytes: &[u8]) -> Result<&[u8], Misfit> {
    match column {
        ColumnType::Char { .. } => {
            let length = bytes.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
            Ok(&bytes[..length])
        }
        ColumnType::VarChar { .. }
        | ColumnType::Binary { .. }
        | ColumnType::VarBinary { .. }
        | ColumnType::Text
        | ColumnType::Blob => Ok(bytes),
        _ => Err(Misfit::wanted("bytes", column)),
    }
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl StoreValue for $integer {
            #[inline]
            fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
                store_integer(i128::from(*self), column, out)
            }
        }

        impl LoadValue for $integer {
            #[inline]
            fn load(column: ColumnType, bytes: Option<&[u8]>) -> Result<Self, Misfit> {
                let bytes = bytes.ok_or_else(|| Misfit::null("an integer"))?;
                let value = load_integer(column, bytes)?;
                value.try_into().map_err(|_| {
                    Misfit::new(format!(concat!("{} does not fit a ", stringify!($integer)), value))
                })
            }
        }
    )*};
}

integers!(i8 i16 i32 i64 u8 u16 u32 u64);

impl StoreValue for bool {
    fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
        store_integer(i128::from(*self), column, out)
    }
}

impl LoadValue for bool {
    /// Every integer but 0 is true.
    fn load(column: ColumnType, bytes: Option<&[u8]>) -> Result<Self, Misfit> {
        let bytes = bytes.ok_or_else(|| Misfit::null("a truth value"))?;
        Ok(load_integer(column, bytes)? != 0)
    }
}

impl StoreValue for f64 {
    fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
        store_double(*self, column, out)
    }
}

impl LoadValue for f64 {
    fn load(column: ColumnType, bytes: Option<&[u8]>) -> Result<Self, Misfit> {
        load_double(column, bytes.ok_or_else(|| Misfit::null("a number"))?)
    }
}

impl StoreValue for f32 {
    fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
        store_double(f64::from(*self), column, out)
    }
}

impl LoadValue for f32 {
    /// Only from a `float`: a `double` may hold more.
    fn load(column: ColumnType, bytes: Option<&[u8]>) -> Result<Self, Misfit> {
        match column {
            ColumnType::Float => f64::load(column, bytes).map(|value| value as f32),
            _ => Err(Misfit::wanted("a single-precision number", column)),
        }
    }
}

impl StoreValue for str {
    #[inline]
    fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
        store_bytes(self.as_bytes(), "a text", column, out)
    }
}

impl StoreValue for String {
    #[inline]
    fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
        self.as_str().store(column, out)
    }
}

impl LoadValue for String {
    fn load(column: ColumnType, bytes: Option<&[u8]>) -> Result<Self, Misfit> {
        let bytes = load_bytes(column, bytes.ok_or_else(|| Misfit::null("a text"))?)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| Misfit::new("the bytes are no UTF-8; read Vec<u8>"))
    }
}

impl StoreValue for [u8] {
    #[inline]
    fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
        store_bytes(self, "a list of bytes", column, out)
    }
}

impl StoreValue for Vec<u8> {
    #[inline]
    fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
        self.as_slice().store(column, out)
    }
}

impl LoadValue for Vec<u8> {
    fn load(column: ColumnType, bytes: Option<&[u8]>) -> Result<Self, Misfit> {
        load_bytes(column, bytes.ok_or_else(|| Misfit::null("a list of bytes"))?).map(<[u8]>::to_vec)
    }
}

impl<const N: usize> StoreValue for [u8; N] {
    #[inline]
    fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
        self.as_slice().store(column, out)
    }
}

impl<const N: usize> LoadValue for [u8; N] {
    fn load(column: ColumnType, bytes: Option<&[u8]>) -> Result<Self, Misfit> {
        let bytes = load_bytes(column, bytes.ok_or_else(|| Misfit::null("a list of bytes"))?)?;
        bytes.try_into().map_err(|_| Misfit::new(format!("{} bytes instead of {N}", bytes.len())))
    }
}

macro_rules! own_types {
    ($($own:ty, $name:literal, $pattern:pat => |$value:ident, $out:ident| $store:expr, |$bytes:ident| $load:expr;)*) => {$(
        impl StoreValue for $own {
            fn store(&self, column: ColumnType, $out: &mut Vec<u8>) -> Result<Stored, Misfit> {
                let $value = self;
                match column {
                    $pattern => $store.map(|()| Stored::Bytes),
                    _ => Err(Misfit::wrong_type($name, column)),
                }
            }
        }

        impl LoadValue for $own {
            fn load(column: ColumnType, bytes: Option<&[u8]>) -> Result<Self, Misfit> {
                let $bytes = bytes.ok_or_else(|| Misfit::null($name))?;
                match column {
                    $pattern => $load.ok_or_else(|| Misfit::damaged(column)),
                    _ => Err(Misfit::wanted($name, column)),
                }
            }
        }
    )*};
}

own_types! {
    Decimal, "a decimal", ColumnType::Decimal { precision, scale } =>
        |value, out| value.encode(precision, scale, out), |bytes| Decimal::decode(precision, scale, bytes);
    Date, "a date", ColumnType::Date => |value, out| Date::encode(*value, out), |bytes| Date::decode(bytes);
    Time, "a time", ColumnType::Time { fraction } =>
        |value, out| Time::encode(*value, fraction, out), |bytes| Time::decode(fraction, bytes);
    DateTime, "a date with time", ColumnType::DateTime { fraction } =>
        |value, out| DateTime::encode(*value, fraction, out), |bytes| DateTime::decode(fraction, bytes);
    Timestamp, "a timestamp", ColumnType::Timestamp { fraction } =>
        |value, out| Timestamp::encode(*value, fraction, out), |bytes| Timestamp::decode(fraction, bytes);
}

impl<T: StoreValue> StoreValue for Option<T> {
    #[inline]
    fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
        match self {
            Some(value) => value.store(column, out),
            None => Ok(Stored::Null),
        }
    }
}

impl<T: LoadValue> LoadValue for Option<T> {
    #[inline]
    fn load(column: ColumnType, bytes: Option<&[u8]>) -> Result<Self, Misfit> {
        match bytes {
            Some(_) => T::load(column, bytes).map(Some),
            None => Ok(None),
        }
    }
}

impl<T: StoreValue + ?Sized> StoreValue for &T {
    #[inline]
    fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
        (**self).store(column, out)
    }
}

impl StoreValue for Value {
    fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
        match self {
            Value::Null => Ok(Stored::Null),
            Value::Int(value) => value.store(column, out),
            Value::UInt(value) => value.store(column, out),
            Value::Double(value) => value.store(column, out),
            Value::Decimal(value) => value.store(column, out),
            Value::Bit(value) if matches!(column, ColumnType::Bit { .. }) => value.store(column, out),
            Value::Bit(_) => Err(Misfit::wrong_type(self.kind_name(), column)),
            Value::Text(value) => value.store(column, out),
            Value::Bytes(value) => value.store(column, out),
            Value::Date(value) => value.store(column, out),
            Value::Time(value) => value.store(column, out),
            Value::DateTime(value) => value.store(column, out),
            Value::Timestamp(value) => value.store(column, out),
        }
    }
}

impl LoadValue for Value {
    /// Text columns give [`Value::Bytes`] where they hold no UTF-8.
    fn load(column: ColumnType, bytes: Option<&[u8]>) -> Result<Self, Misfit> {
        if bytes.is_none() {
            return Ok(Value::Null);
        }
        Ok(match column {
            ColumnType::Integer { signed: true, .. } => Value::Int(i64::load(column, bytes)?),
            ColumnType::Integer { signed: false, .. } | ColumnType::Year => {
                Value::UInt(u64::load(column, bytes)?)
            }
            ColumnType::Bit { .. } => Value::Bit(u64::load(column, bytes)?),
            ColumnType::Float | ColumnType::Double => Value::Double(f64::load(column, bytes)?),
            ColumnType::Decimal { .. } => Value::Decimal(LoadValue::load(column, bytes)?),
            ColumnType::Date => Value::Date(LoadValue::load(column, bytes)?),
            ColumnType::Time { .. } => Value::Time(LoadValue::load(column, bytes)?),
            ColumnType::DateTime { .. } => Value::DateTime(LoadValue::load(column, bytes)?),
            ColumnType::Timestamp { .. } => Value::Timestamp(LoadValue::load(column, bytes)?),
            ColumnType::Char { .. } | ColumnType::VarChar { .. } | ColumnType::Text => {
                match String::from_utf8(Vec::load(column, bytes)?) {
                    Ok(text) => Value::Text(text),
                    Err(error) => Value::Bytes(error.into_bytes()),
                }
            }
            ColumnType::Binary { .. } | ColumnType::VarBinary { .. } | ColumnType::Blob => {
                Value::Bytes(Vec::load(column, bytes)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use proptest::prelude::*;

    const BIGINT: ColumnType = ColumnType::Integer { bytes: 8, signed: true };

    fn stored(value: impl StoreValue, column: ColumnType) -> Result<Vec<u8>, String> {
        let mut out = vec![];
        match value.store(column, &mut out) {
            Ok(Stored::Bytes) => Ok(out),
            Ok(Stored::Null) => Err("NULL".to_string()),
            Err(misfit) => Err(misfit.to_string()),
        }
    }

    #[test]
    fn the_two_zeros_are_one_key() {
        assert_eq!(stored(-0.0_f64, ColumnType::Double), stored(0.0_f64, ColumnType::Double));
        assert_eq!(stored(-0.0_f32, ColumnType::Float), stored(0, ColumnType::Float));
        // Too small for the column, so that it becomes a zero on the way.
        assert_eq!(stored(-1e-300_f64, ColumnType::Float), stored(0, ColumnType::Float));
    }

    #[test]
    fn misfits_are_sentences() {
        let tiny = ColumnType::Integer { bytes: 1, signed: false };
        assert_eq!(stored(256, tiny), Err("256 is out of the range of tinyint unsigned".into()));
        assert_eq!(stored(-1, tiny), Err("-1 is out of the range of tinyint unsigned".into()));
        assert_eq!(stored("x", BIGINT), Err("a text does not fit the type bigint".into()));
        assert_eq!(stored(1.5, BIGINT), Err("a floating-point number does not fit the type bigint".into()));
        assert_eq!(
            stored("too long", ColumnType::VarChar { bytes_max: 3 }),
            Err("8 bytes are too long for varchar(3)".into())
        );
        assert_eq!(stored(8, ColumnType::Bit { bits: 3 }), Err("8 is out of the range of bit(3)".into()));
        assert_eq!(stored(1900, ColumnType::Year), Err("1900 is out of the range of year".into()));
        assert_eq!(stored(None::<i32>, BIGINT), Err("NULL".into()));
        let load = i32::load(BIGINT, Some(&(1i64 << 40).to_le_bytes()));
        assert_eq!(load.unwrap_err().to_string(), "1099511627776 does not fit a i32");
        let null = u64::load(BIGINT, None).unwrap_err().to_string();
        assert_eq!(null, "it is NULL, which is not an integer; read an Option");
        assert_eq!(
            u64::load(ColumnType::Date, Some(&[0, 0, 0])).unwrap_err().to_string(),
            "a date can't be read as an integer"
        );
    }

    #[test]
    fn fixed_sizes_are_padded() {
        let text = ColumnType::Char { bytes: 5 };
        assert_eq!(stored("ab", text).unwrap(), b"ab   ");
        assert_eq!(Value::load(text, Some(b"ab   ")).unwrap(), Value::from("ab"));
        let binary = ColumnType::Binary { bytes: 3 };
        assert_eq!(stored(*b"ab", binary).unwrap(), b"ab\0");
        assert_eq!(<[u8; 3]>::load(binary, Some(b"ab\0")).unwrap(), *b"ab\0");
    }

    fn column_and_value() -> impl Strategy<Value = (ColumnType, Value)> {
        let integer = (prop::sample::select(vec![1u8, 2, 3, 4, 8]), any::<bool>(), any::<u64>()).prop_map(
            |(bytes, signed, bits)| {
                let column = ColumnType::Integer { bytes, signed };
                let shift = 64 - 8 * u32::from(bytes);
                let value =
                    if signed { Value::Int(bits as i64 >> shift) } else { Value::UInt(bits >> shift) };
                (column, value)
            },
        );
        let bit = (1u8..=64, any::<u64>())
            .prop_map(|(bits, v)| (ColumnType::Bit { bits }, Value::Bit(v >> (64 - bits))));
        let float = any::<f32>().prop_filter("NaN is not equal to itself", |v| !v.is_nan());
        let double = any::<f64>().prop_filter("NaN is not equal to itself", |v| !v.is_nan());
        let year = prop_oneof![Just(0u64), 1901u64..=2155];
        let bytes = prop::collection::vec(any::<u8>(), 0..20);
        prop_oneof![
            integer,
            bit,
            float.prop_map(|v| (ColumnType::Float, Value::Double(f64::from(v)))),
            double.prop_map(|v| (ColumnType::Double, Value::Double(v))),
            year.prop_map(|v| (ColumnType::Year, Value::UInt(v))),
            "[a-zäöü]{0,9}".prop_map(|v| (ColumnType::Char { bytes: 30 }, Value::Text(v))),
            ".{0,9}".prop_map(|v| (ColumnType::VarChar { bytes_max: 60 }, Value::Text(v))),
            bytes.prop_map(|v| (ColumnType::VarBinary { bytes_max: 20 }, Value::Bytes(v))),
            any::<u32>().prop_map(|v| {
                (ColumnType::Timestamp { fraction: 0 }, Value::Timestamp(Timestamp::new(v)))
            }),
            any::<i64>().prop_map(|v| {
                (ColumnType::Decimal { precision: 19, scale: 0 }, Value::Decimal(Decimal::from(v)))
            }),
            Just((ColumnType::Date, Value::Null)),
        ]
    }

    proptest! {
        #[test]
        fn what_is_stored_is_loaded((column, value) in column_and_value()) {
            let mut out = vec![];
            let bytes = match value.store(column, &mut out).unwrap() {
                Stored::Bytes => Some(out.as_slice()),
                Stored::Null => None,
            };
            if let (Some(bytes), Some(size)) = (bytes, column.kind().fixed_bytes()) {
                prop_assert_eq!(bytes.len(), usize::from(size));
            }
            prop_assert_eq!(Value::load(column, bytes).unwrap(), value);
        }

        #[test]
        fn garbage_never_panics(
            (column, _) in column_and_value(),
            bytes in prop::collection::vec(any::<u8>(), 0..24),
        ) {
            let _ = Value::load(column, Some(&bytes));
            let _ = (i8::load(column, Some(&bytes)), String::load(column, Some(&bytes)));
        }
    }
}
