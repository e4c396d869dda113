//! Which columns a program's types are kept in, unless it says otherwise: for tables that are made from structs.

use super::{Date, DateTime, Time, Timestamp};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use vinga_base::schema::ColumnType;

/// Bytes of a text, or of a list of bytes, at most, in a column that is made for it.
const BYTES_MAX: u16 = 255;

/// A type with a usual type of column.
///
/// | type | column |
/// |---|---|
/// | `i8` to `i64`, `u8` to `u64` | integer of the same size |
/// | `bool` | `tinyint unsigned` |
/// | `f32`, `f64` | `float`, `double` |
/// | `String`, `&str` | `varchar(255)`, in bytes |
/// | `Vec<u8>`, `&[u8]` | `varbinary(255)` |
/// | `[u8; N]` | `binary(N)`; N is at most 1020 |
/// | `Date`, `Time`, `DateTime`, `Timestamp` | the same, with microseconds |
/// | `Duration`, `SystemTime` | `time(6)`, `timestamp(6)` |
/// | `Option` | the same, and may be NULL |
pub trait ColumnValue {
    /// The type of its columns.
    const COLUMN_TYPE: ColumnType;
}

/// Whether a type has a value for NULL: for columns whose type is given.
pub trait Nullable {
    /// True for an `Option`.
    const IS_NULLABLE: bool = false;
}

macro_rules! columns {
    ($($type:ty => $column:expr;)*) => {$(
        impl ColumnValue for $type {
            const COLUMN_TYPE: ColumnType = $column;
        }
        impl Nullable for $type {}
    )*};
}

columns! {
    i8 => ColumnType::I8;
    i16 => ColumnType::I16;
    i32 => ColumnType::I32;
    i64 => ColumnType::I64;
    u8 => ColumnType::U8;
    u16 => ColumnType::U16;
    u32 => ColumnType::U32;
    u64 => ColumnType::U64;
    bool => ColumnType::U8;
    f32 => ColumnType::Float;
    f64 => ColumnType::Double;
    str => ColumnType::VarChar { bytes_max: BYTES_MAX };
    String => ColumnType::VarChar { bytes_max: BYTES_MAX };
    [u8] => ColumnType::VarBinary { bytes_max: BYTES_MAX };
    Vec<u8> => ColumnType::VarBinary { bytes_max: BYTES_MAX };
    Date => ColumnType::Date;
    Time => ColumnType::Time { fraction: 6 };
    Duration => ColumnType::Time { fraction: 6 };
    DateTime => ColumnType::DateTime { fraction: 6 };
    Timestamp => ColumnType::Timestamp { fraction: 6 };
}

impl Nullable for super::Decimal {}
impl Nullable for super::Value {
    const IS_NULLABLE: bool = true;
}

impl<const N: usize> ColumnValue for [u8; N] {
    const COLUMN_TYPE: ColumnType =
        ColumnType::Binary { bytes: if N > 1020 { panic!("more than 1020 bytes") } else { N as u16 } };
}
impl<const N: usize> Nullable for [u8; N] {}

impl<T: ColumnValue> ColumnValue for Option<T> {
    const COLUMN_TYPE: ColumnType = T::COLUMN_TYPE;
}
impl<T> Nullable for Option<T> {
    const IS_NULLABLE: bool = true;
}

impl<T: ColumnValue + ?Sized> ColumnValue for &T {
    const COLUMN_TYPE: ColumnType = T::COLUMN_TYPE;
}
impl<T: Nullable + ?Sized> Nullable for &T {
    const IS_NULLABLE: bool = T::IS_NULLABLE;
}
