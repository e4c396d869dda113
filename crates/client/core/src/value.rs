//! Values: what a person calls a number, a text, a day, and how each stands in a row.
//!
//! [`Value`] holds any of them; a program that knows its types uses them directly ([`StoreValue`], [`LoadValue`]).

mod column;
mod convert;
mod decimal;
mod duration;
mod key;
#[cfg(feature = "std")]
mod system_time;
mod temporal;

pub use column::{ColumnValue, Nullable};
pub use convert::{LoadValue, Misfit, StoreValue, Stored, load_bytes};
pub use decimal::Decimal;
pub use key::Key;
pub use temporal::{Date, DateTime, Time, Timestamp};

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A value of any type.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// A signed integer.
    Int(i64),
    /// An unsigned integer; a year, too.
    UInt(u64),
    /// A floating-point number of either size.
    Double(f64),
    /// A fixed-point number.
    Decimal(Decimal),
    /// A bit field.
    Bit(u64),
    /// Text.
    Text(String),
    /// Bytes that are no text, or not meant as one.
    Bytes(Vec<u8>),
    /// A day.
    Date(Date),
    /// A span of time, or a time of day.
    Time(Time),
    /// A day and a time of day.
    DateTime(DateTime),
    /// A point in time.
    Timestamp(Timestamp),
}

impl Value {
    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// What kind of value it is, for messages.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self {
            Value::Null => "NULL",
            Value::Int(_) | Value::UInt(_) => "an integer",
            Value::Double(_) => "a floating-point number",
            Value::Decimal(_) => "a decimal",
            Value::Bit(_) => "a bit field",
            Value::Text(_) => "a text",
            Value::Bytes(_) => "bytes",
            Value::Date(_) => "a date",
            Value::Time(_) => "a time",
            Value::DateTime(_) => "a date with time",
            Value::Timestamp(_) => "a timestamp",
        }
    }
}

macro_rules! from {
    ($($from:ty => $variant:ident $(as $wide:ty)?;)*) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Value::$variant($(<$wide>::from)?(value))
            }
        }
    )*};
}

from! {
    i8 => Int as i64;
    i16 => Int as i64;
    i32 => Int as i64;
    i64 => Int as i64;
    u8 => UInt as u64;
    u16 => UInt as u64;
    u32 => UInt as u64;
    u64 => UInt as u64;
    bool => UInt as u64;
    f32 => Double as f64;
    f64 => Double as f64;
    Decimal => Decimal as Decimal;
    String => Text as String;
    &str => Text as String;
    Vec<u8> => Bytes as Vec<u8>;
    &[u8] => Bytes as Vec<u8>;
    Date => Date as Date;
    Time => Time as Time;
    DateTime => DateTime as DateTime;
    Timestamp => Timestamp as Timestamp;
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

impl fmt::Display for Value {
    /// As a person reads it: text without quotes, bytes as hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("NULL"),
            Value::Int(v) => write!(f, "{v}"),
            Value::UInt(v) | Value::Bit(v) => write!(f, "{v}"),
            Value::Double(v) => write!(f, "{v}"),
            Value::Decimal(v) => write!(f, "{v}"),
            Value::Text(v) => f.write_str(v),
            Value::Bytes(v) => {
                f.write_str("0x")?;
                v.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Value::Date(v) => write!(f, "{v}"),
            Value::Time(v) => write!(f, "{v}"),
            Value::DateTime(v) => write!(f, "{v}"),
            Value::Timestamp(v) => write!(f, "{v}"),
        }
    }
}
