//! Values as C programs give and get them.

use crate::border::Bytes;
use crate::failure::{Failure, Misuse, Outcome};
use std::ffi::c_int;
use vinga::value::load_bytes;
use vinga::value::{Date, DateTime, Decimal, Key, LoadValue, Misfit, StoreValue, Stored, Time, Timestamp};
use vinga::{ColumnType, KeyWriter, Value};

/// `vinga_date_time`: a day, a time, both, or a point in time; only the fields that belong to its type count.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CDateTime {
    /// 0–9999.
    pub year: u16,
    /// 0–12.
    pub month: u8,
    /// 0–31.
    pub day: u8,
    /// 0–23, of a time 0–838.
    pub hours: u16,
    /// 0–59.
    pub minutes: u8,
    /// 0–59.
    pub seconds: u8,
    /// 0–999,999.
    pub microseconds: u32,
    /// A time below zero: 1.
    pub negative: u32,
}

/// `vinga_value`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CValue {
    /// `VINGA_NULL` …
    pub kind: c_int,
    /// What belongs to the kind.
    pub payload: Payload,
}

/// What a value holds, by its kind.
#[derive(Clone, Copy)]
#[repr(C)]
#[expect(missing_docs, reason = "the kinds say it")]
pub union Payload {
    pub i64: i64,
    pub u64: u64,
    pub f64: f64,
    pub bytes: Bytes,
    pub date_time: CDateTime,
}

/// Kinds of values.
#[expect(missing_docs, reason = "vinga.h says it")]
pub mod kind {
    use std::ffi::c_int;

    pub const NULL: c_int = 0;
    pub const I64: c_int = 1;
    pub const U64: c_int = 2;
    pub const F64: c_int = 3;
    pub const TEXT: c_int = 4;
    pub const BYTES: c_int = 5;
    pub const DECIMAL: c_int = 6;
    pub const DATE: c_int = 7;
    pub const TIME: c_int = 8;
    pub const DATETIME: c_int = 9;
    pub const TIMESTAMP: c_int = 10;
    pub const BIT: c_int = 11;
}

/// A value that was given, checked.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Given<'a> {
    /// NULL.
    Null,
    /// An integer.
    Int(i64),
    /// An integer.
    UInt(u64),
    /// A number.
    Double(f64),
    /// Text: what it means depends on the column.
    Text(&'a [u8]),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A day.
    Date(Date),
    /// A time.
    Time(Time),
    /// Both.
    DateTime(DateTime),
    /// A point in time.
    Timestamp(Timestamp),
}

impl CValue {
    /// A value for C.
    pub fn new(kind: c_int, payload: Payload) -> Self {
        CValue { kind, payload }
    }

    /// What it is.
    ///
    /// # Errors
    /// `BadArgument` if it is nothing known.
    pub fn get(&self) -> Outcome<Given<'_>> {
        let payload = &self.payload;
        // SAFETY: every bit pattern is a value of each member; the pointers' promise is that of `Bytes`.
        unsafe {
            Ok(match self.kind {
                kind::NULL => Given::Null,
                kind::I64 => Given::Int(payload.i64),
                kind::U64 | kind::BIT => Given::UInt(payload.u64),
                kind::F64 => Given::Double(payload.f64),
                kind::TEXT | kind::DECIMAL => Given::Text(payload.bytes.get()?),
                kind::BYTES => Given::Bytes(payload.bytes.get()?),
                kind::DATE => Given::Date(payload.date_time.date()),
                kind::TIME => Given::Time(payload.date_time.time()?),
                kind::DATETIME => Given::DateTime(payload.date_time.date_time()?),
                kind::TIMESTAMP => Given::Timestamp(payload.date_time.timestamp()?),
                other => {
                    let detail = format!("there is no kind {other} of values");
                    return Err(Failure::misuse(Misuse::BadArgument, &detail));
                }
            })
        }
    }
}

impl CDateTime {
    fn date(&self) -> Date {
        Date::new(self.year, self.month, self.day)
    }

    fn time(&self) -> Outcome<Time> {
        let CDateTime { hours, minutes, seconds, microseconds, negative, .. } = *self;
        Ok(Time { negative: negative != 0, hours, minutes, seconds, microseconds })
    }

    fn date_time(&self) -> Outcome<DateTime> {
        let hour = u8::try_from(self.hours)
            .map_err(|_| Failure::misuse(Misuse::BadArgument, "a time of day has hours up to 23"))?;
        let CDateTime { minutes, seconds, microseconds, .. } = *self;
        Ok(DateTime { microsecond: microseconds, ..DateTime::new(self.date(), hour, minutes, seconds) })
    }

    fn timestamp(&self) -> Outcome<Timestamp> {
        Timestamp::try_from(self.date_time()?)
            .map_err(|misfit| Failure::misuse(Misuse::BadArgument, &misfit.to_string()))
    }
}

impl From<DateTime> for CDateTime {
    fn from(value: DateTime) -> Self {
        CDateTime {
            hours: value.hour.into(),
            minutes: value.minute,
            seconds: value.second,
            microseconds: value.microsecond,
            ..CDateTime::from(value.date)
        }
    }
}

impl From<Date> for CDateTime {
    fn from(Date { year, month, day }: Date) -> Self {
        CDateTime { year, month, day, ..CDateTime::default() }
    }
}

impl From<Time> for CDateTime {
    fn from(Time { negative, hours, minutes, seconds, microseconds }: Time) -> Self {
        CDateTime { hours, minutes, seconds, microseconds, negative: negative.into(), ..CDateTime::default() }
    }
}

impl StoreValue for Given<'_> {
    fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
        match self {
            Given::Null => Ok(Stored::Null),
            Given::Int(value) => value.store(column, out),
            Given::UInt(value) => value.store(column, out),
            Given::Double(value) => value.store(column, out),
            Given::Text(value) => store_text(value, column, out),
            Given::Bytes(value) => value.store(column, out),
            Given::Date(value) => value.store(column, out),
            Given::Time(value) => value.store(column, out),
            Given::DateTime(value) => value.store(column, out),
            Given::Timestamp(value) => value.store(column, out),
        }
    }
}

/// Text into a column: decimals, days and times are read from it.
fn store_text(text: &[u8], column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
    let Ok(readable) = std::str::from_utf8(text) else { return text.store(column, out) };
    match column {
        ColumnType::Decimal { .. } => readable.parse::<Decimal>()?.store(column, out),
        ColumnType::Date => readable.parse::<Date>()?.store(column, out),
        ColumnType::Time { .. } => readable.parse::<Time>()?.store(column, out),
        ColumnType::DateTime { .. } => readable.parse::<DateTime>()?.store(column, out),
        ColumnType::Timestamp { .. } => readable.parse::<Timestamp>()?.store(column, out),
        _ => readable.store(column, out),
    }
}

/// A given value that outlives the call.
pub enum Kept {
    /// Text.
    Text(Vec<u8>),
    /// Anything else.
    Other(Value),
}

impl From<Given<'_>> for Kept {
    fn from(given: Given<'_>) -> Self {
        Kept::Other(match given {
            Given::Text(text) => return Kept::Text(text.to_vec()),
            Given::Null => Value::Null,
            Given::Int(value) => Value::Int(value),
            Given::UInt(value) => Value::UInt(value),
            Given::Double(value) => Value::Double(value),
            Given::Bytes(value) => Value::Bytes(value.to_vec()),
            Given::Date(value) => Value::Date(value),
            Given::Time(value) => Value::Time(value),
            Given::DateTime(value) => Value::DateTime(value),
            Given::Timestamp(value) => Value::Timestamp(value),
        })
    }
}

impl StoreValue for Kept {
    fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
        match self {
            Kept::Text(text) => store_text(text, column, out),
            Kept::Other(value) => value.store(column, out),
        }
    }
}

/// Values that name a row or a place in an index, in the order of the key's columns.
pub struct KeyValues<V>(Vec<V>);

impl<'a> KeyValues<Given<'a>> {
    /// Checks the values.
    ///
    /// # Errors
    /// `BadArgument`.
    pub fn new(values: &'a [CValue]) -> Outcome<Self> {
        values.iter().map(CValue::get).collect::<Outcome<Vec<_>>>().map(KeyValues)
    }

    /// The same values, which outlive the call.
    pub fn keep(self) -> KeyValues<Kept> {
        KeyValues(self.0.into_iter().map(Kept::from).collect())
    }
}

impl<V> KeyValues<V> {
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<V: StoreValue> Key for KeyValues<V> {
    fn write(&self, table: &vinga::TableLayout, out: &mut Vec<u8>) -> vinga::Result<()> {
        let mut writer = KeyWriter::new(table, self.0.len(), out)?;
        self.0.iter().try_for_each(|value| writer.put(value))
    }

    fn each(&self, take: &mut dyn FnMut(&dyn StoreValue) -> vinga::Result<()>) -> vinga::Result<()> {
        self.0.iter().try_for_each(|value| take(value))
    }
}

/// A column's value for C; text and bytes stay where they are. What has no form of its own is written into `scratch`.
///
/// # Errors
/// The bytes are not of the column's type.
pub fn show<'a>(
    column: ColumnType,
    bytes: Option<&'a [u8]>,
    scratch: &'a mut String,
) -> Result<CValue, Misfit> {
    if bytes.is_none() {
        return Ok(CValue::new(kind::NULL, Payload { u64: 0 }));
    }
    let shown = |kind, bytes| CValue::new(kind, Payload { bytes: Bytes::of(bytes) });
    let at = |kind, date_time| CValue::new(kind, Payload { date_time });
    Ok(match column {
        ColumnType::Integer { signed: true, .. } => {
            CValue::new(kind::I64, Payload { i64: i64::load(column, bytes)? })
        }
        ColumnType::Integer { signed: false, .. } | ColumnType::Year => {
            CValue::new(kind::U64, Payload { u64: u64::load(column, bytes)? })
        }
        ColumnType::Bit { .. } => CValue::new(kind::BIT, Payload { u64: u64::load(column, bytes)? }),
        ColumnType::Float | ColumnType::Double => {
            CValue::new(kind::F64, Payload { f64: f64::load(column, bytes)? })
        }
        ColumnType::Decimal { .. } => {
            *scratch = Decimal::load(column, bytes)?.to_string();
            shown(kind::DECIMAL, scratch.as_bytes())
        }
        ColumnType::Date => at(kind::DATE, Date::load(column, bytes)?.into()),
        ColumnType::Time { .. } => at(kind::TIME, Time::load(column, bytes)?.into()),
        ColumnType::DateTime { .. } => at(kind::DATETIME, DateTime::load(column, bytes)?.into()),
        ColumnType::Timestamp { .. } => at(kind::TIMESTAMP, Timestamp::load(column, bytes)?.to_utc().into()),
        ColumnType::Char { .. } | ColumnType::VarChar { .. } | ColumnType::Text => {
            shown(kind::TEXT, load_bytes(column, bytes.unwrap_or_default())?)
        }
        ColumnType::Binary { .. } | ColumnType::VarBinary { .. } | ColumnType::Blob => {
            shown(kind::BYTES, load_bytes(column, bytes.unwrap_or_default())?)
        }
    })
}
