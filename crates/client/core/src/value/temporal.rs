//! Days and times and their binary forms (MySQL's `DATE`, `TIME2`, `DATETIME2`, `TIMESTAMP2`), which `memcmp` sorts.
//!
//! ```text
//!   date       3 bytes   year << 9 | month << 5 | day
//!   time       3 bytes   0x800000 + (hours << 12 | minutes << 6 | seconds), then the fraction
//!   date-time  5 bytes   0x8000000000 + ((year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second),
//!                        then the fraction
//!   timestamp  4 bytes   seconds since 1970, then the fraction
//!   fraction             0, 1, 2 or 3 bytes for 0, 1–2, 3–4, 5–6 digits: microseconds / 10000, / 100 or / 1
//! ```
//! All are big-endian. A negative time is the negated number of its whole and fraction part taken together.

use super::convert::Misfit;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// A day of the Gregorian calendar; month and day may be 0 as in MySQL ("unknown").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Date {
    /// 0–9999.
    pub year: u16,
    /// 0–12.
    pub month: u8,
    /// 0–31.
    pub day: u8,
}

/// A span of time from −838:59:59 to 838:59:59, or a time of day.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Time {
    /// Whether it is below zero.
    pub negative: bool,
    /// 0–838.
    pub hours: u16,
    /// 0–59.
    pub minutes: u8,
    /// 0–59.
    pub seconds: u8,
    /// 0–999,999.
    pub microseconds: u32,
}

/// A day and a time of day, in no time zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DateTime {
    /// The day.
    pub date: Date,
    /// 0–23.
    pub hour: u8,
    /// 0–59.
    pub minute: u8,
    /// 0–59.
    pub second: u8,
    /// 0–999,999.
    pub microsecond: u32,
}

/// A point in time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timestamp {
    /// Since 1970-01-01 00:00:00 UTC.
    pub seconds: u32,
    /// 0–999,999.
    pub microseconds: u32,
}

const TIME_OFFSET: i64 = 0x80_0000;
const DATE_TIME_OFFSET: u64 = 0x80_0000_0000;

/// The microseconds that one unit of a stored fraction stands for.
fn fraction_unit(digits: u8) -> u32 {
    match digits {
        0 => 1_000_000,
        1 | 2 => 10_000,
        3 | 4 => 100,
        _ => 1,
    }
}

fn fraction_bytes(digits: u8) -> usize {
    usize::from(digits.div_ceil(2))
}

fn check_fraction(shown: &dyn fmt::Display, microseconds: u32, digits: u8) -> Result<(), Misfit> {
    if microseconds >= 1_000_000 {
        return Err(Misfit::new(format!("{microseconds} microseconds; 0 to 999999 are allowed")));
    }
    if !microseconds.is_multiple_of(10u32.pow(6 - u32::from(digits))) {
        return Err(Misfit::new(format!("{shown} has more than {digits} digits behind the second")));
    }
    Ok(())
}

fn store_fraction(microseconds: u32, digits: u8, out: &mut Vec<u8>) {
    let bytes = fraction_bytes(digits);
    out.extend_from_slice(&(microseconds / fraction_unit(digits)).to_be_bytes()[4 - bytes..]);
}

/// A big-endian number of at most eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Splits stored bytes into the whole part and the microseconds.
fn split(bytes: &[u8], whole_bytes: usize, digits: u8) -> Option<(u64, u32)> {
    if bytes.len() != whole_bytes + fraction_bytes(digits) {
        return None;
    }
    let (whole, fraction) = bytes.split_at(whole_bytes);
    let microseconds = number(fraction) as u32 * fraction_unit(digits);
    (microseconds < 1_000_000).then(|| (number(whole), microseconds))
}

fn write_fraction(f: &mut fmt::Formatter<'_>, microseconds: u32) -> fmt::Result {
    if microseconds == 0 {
        return Ok(());
    }
    let digits = format!("{microseconds:06}");
    write!(f, ".{}", digits.trim_end_matches('0'))
}

impl Date {
    /// A day, without a look at the calendar beyond the greatest month and day.
    pub fn new(year: u16, month: u8, day: u8) -> Self {
        Date { year, month, day }
    }

    fn check(self) -> Result<(), Misfit> {
        if self.year > 9999 || self.month > 12 || self.day > 31 {
            return Err(Misfit::new(format!("{self} is no day")));
        }
        Ok(())
    }

    pub(super) fn encode(self, out: &mut Vec<u8>) -> Result<(), Misfit> {
        self.check()?;
        let packed = u32::from(self.year) << 9 | u32::from(self.month) << 5 | u32::from(self.day);
        out.extend_from_slice(&packed.to_be_bytes()[1..]);
        Ok(())
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != 3 {
            return None;
        }
        let packed = number(bytes);
        let date =
            Date { year: (packed >> 9) as u16, month: (packed >> 5 & 15) as u8, day: (packed & 31) as u8 };
        date.check().ok().map(|()| date)
    }
}

impl Time {
    /// A time of day, or a span that is not negative.
    pub fn new(hours: u16, minutes: u8, seconds: u8) -> Self {
        Time { negative: false, hours, minutes, seconds, microseconds: 0 }
    }

    fn check(self) -> Result<(), Misfit> {
        let is_whole_max = (self.hours, self.minutes, self.seconds) == (838, 59, 59);
        if self.hours > 838 || self.minutes > 59 || self.seconds > 59 || is_whole_max && self.microseconds > 0
        {
            return Err(Misfit::new(format!("{self} lies outside -838:59:59 to 838:59:59")));
        }
        Ok(())
    }

    pub(super) fn encode(self, digits: u8, out: &mut Vec<u8>) -> Result<(), Misfit> {
        self.check()?;
        check_fraction(&self, self.microseconds, digits)?;
        let whole = i64::from(self.hours) << 12 | i64::from(self.minutes) << 6 | i64::from(self.seconds);
        let fraction_bits = 8 * fraction_bytes(digits);
        let packed = whole << fraction_bits | i64::from(self.microseconds / fraction_unit(digits));
        let signed = if self.negative { -packed } else { packed };
        let stored = signed + (TIME_OFFSET << fraction_bits);
        out.extend_from_slice(&stored.to_be_bytes()[8 - 3 - fraction_bytes(digits)..]);
        Ok(())
    }

    pub(super) fn decode(digits: u8, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != 3 + fraction_bytes(digits) {
            return None;
        }
        let fraction_bits = 8 * fraction_bytes(digits);
        let signed = number(bytes) as i64 - (TIME_OFFSET << fraction_bits);
        let packed = signed.unsigned_abs();
        let whole = packed >> fraction_bits;
        let time = Time {
            negative: signed < 0,
            hours: (whole >> 12) as u16,
            minutes: (whole >> 6 & 63) as u8,
            seconds: (whole & 63) as u8,
            microseconds: (packed & ((1 << fraction_bits) - 1)) as u32 * fraction_unit(digits),
        };
        (time.microseconds < 1_000_000 && time.check().is_ok()).then_some(time)
    }
}

impl DateTime {
    /// A day and a time of day.
    pub fn new(date: Date, hour: u8, minute: u8, second: u8) -> Self {
        DateTime { date, hour, minute, second, microsecond: 0 }
    }

    fn check(self) -> Result<(), Misfit> {
        self.date.check()?;
        if self.hour > 23 || self.minute > 59 || self.second > 59 {
            return Err(Misfit::new(format!("{self} is no time of day")));
        }
        Ok(())
    }

    pub(super) fn encode(self, digits: u8, out: &mut Vec<u8>) -> Result<(), Misfit> {
        self.check()?;
        check_fraction(&self, self.microsecond, digits)?;
        let month = u64::from(self.date.year) * 13 + u64::from(self.date.month);
        let packed = month << 22
            | u64::from(self.date.day) << 17
            | u64::from(self.hour) << 12
            | u64::from(self.minute) << 6
            | u64::from(self.second);
        out.extend_from_slice(&(packed + DATE_TIME_OFFSET).to_be_bytes()[3..]);
        store_fraction(self.microsecond, digits, out);
        Ok(())
    }

    pub(super) fn decode(digits: u8, bytes: &[u8]) -> Option<Self> {
        let (whole, microsecond) = split(bytes, 5, digits)?;
        let packed = whole.checked_sub(DATE_TIME_OFFSET)?;
        let month = packed >> 22;
        let date = Date {
            year: u16::try_from(month / 13).ok()?,
            month: (month % 13) as u8,
            day: (packed >> 17 & 31) as u8,
        };
        let value = DateTime {
            date,
            hour: (packed >> 12 & 31) as u8,
            minute: (packed >> 6 & 63) as u8,
            second: (packed & 63) as u8,
            microsecond,
        };
        value.check().ok().map(|()| value)
    }
}

impl Timestamp {
    /// A point in time, in seconds since 1970-01-01 00:00:00 UTC.
    pub fn new(seconds: u32) -> Self {
        Timestamp { seconds, microseconds: 0 }
    }

    pub(super) fn encode(self, digits: u8, out: &mut Vec<u8>) -> Result<(), Misfit> {
        check_fraction(&self, self.microseconds, digits)?;
        out.extend_from_slice(&self.seconds.to_be_bytes());
        store_fraction(self.microseconds, digits, out);
        Ok(())
    }

    pub(super) fn decode(digits: u8, bytes: &[u8]) -> Option<Self> {
        let (seconds, microseconds) = split(bytes, 4, digits)?;
        Some(Timestamp { seconds: seconds as u32, microseconds })
    }

    /// The same point as day and time of day in UTC.
    pub fn to_utc(self) -> DateTime {
        let (days, second) = (self.seconds / 86_400, self.seconds % 86_400);
        // Days to a civil date, by eras of 400 years (Howard Hinnant, "chrono-compatible low-level date algorithms").
        let shifted = days + 719_468;
        let era = shifted / 146_097;
        let day_of_era = shifted % 146_097;
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = year_of_era + era * 400 + u32::from(month <= 2);
        DateTime {
            date: Date::new(year as u16, month as u8, day as u8),
            hour: (second / 3600) as u8,
            minute: (second / 60 % 60) as u8,
            second: (second % 60) as u8,
            microsecond: self.microseconds,
        }
    }
}

impl TryFrom<DateTime> for Timestamp {
    type Error = Misfit;

    /// The point in time that is called so in UTC.
    fn try_from(value: DateTime) -> Result<Self, Misfit> {
        let bad = || Misfit::new(format!("{value} is no point in time between 1970 and 2106"));
        let Date { year, month, day } = value.date;
        if value.check().is_err() || month == 0 || day == 0 {
            return Err(bad());
        }
        // The way of `to_utc`, back.
        let year = i64::from(year) - i64::from(month <= 2);
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let shifted_month = (i64::from(month) + 9) % 12;
        let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era * 146_097 + day_of_era - 719_468;
        let clock = i64::from(value.hour) * 3600 + i64::from(value.minute) * 60 + i64::from(value.second);
        let seconds = u32::try_from(days * 86_400 + clock).map_err(|_| bad())?;
        let point = Timestamp { seconds, microseconds: value.microsecond };
        // 31 April is none.
        if point.to_utc() == value { Ok(point) } else { Err(bad()) }
    }
}

impl FromStr for Timestamp {
    type Err = Misfit;

    /// Reads `2026-11-21 12:34:56.789 UTC`; `UTC` may be left out.
    fn from_str(text: &str) -> Result<Self, Misfit> {
        text.strip_suffix(" UTC").unwrap_or(text).parse::<DateTime>()?.try_into()
    }
}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        let signed = |time: &Time| {
            let seconds =
                i64::from(time.hours) * 3600 + i64::from(time.minutes) * 60 + i64::from(time.seconds);
            let microseconds = seconds * 1_000_000 + i64::from(time.microseconds);
            if time.negative { -microseconds } else { microseconds }
        };
        signed(self).cmp(&signed(other))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        write!(f, "{sign}{:02}:{:02}:{:02}", self.hours, self.minutes, self.seconds)?;
        write_fraction(f, self.microseconds)
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:02}:{:02}:{:02}", self.date, self.hour, self.minute, self.second)?;
        write_fraction(f, self.microsecond)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} UTC", self.to_utc())
    }
}

/// Numbers between separators: `1-2-3` with `-` gives three.
fn parts<const N: usize>(text: &str, separator: char) -> Option<[u16; N]> {
    let mut numbers = [0; N];
    let mut parts = text.split(separator);
    for number in &mut numbers {
        let part = parts.next()?;
        if part.is_empty() || part.len() > 4 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// A time without sign: `hours:minutes:seconds[.fraction]`.
fn parse_clock(text: &str) -> Option<(u16, u8, u8, u32)> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if fraction.is_empty() || fraction.len() > 6 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let [hours, minutes, seconds] = parts::<3>(clock, ':')?;
    let microseconds = format!("{fraction:0<6}").parse().ok()?;
    Some((hours, u8::try_from(minutes).ok()?, u8::try_from(seconds).ok()?, microseconds))
}

fn unreadable(text: &str, what: &str, form: &str) -> Misfit {
    let shown: String = text.chars().take(40).collect();
    Misfit::new(format!("'{shown}' is no {what}; write it as {form}"))
}

impl FromStr for Date {
    type Err = Misfit;

    /// Reads `2026-11-21`.
    fn from_str(text: &str) -> Result<Self, Misfit> {
        let date = parts::<3>(text, '-')
            .and_then(|[year, month, day]| {
                Some(Date::new(year, u8::try_from(month).ok()?, u8::try_from(day).ok()?))
            })
            .ok_or_else(|| unreadable(text, "day", "2026-11-21"))?;
        date.check().map(|()| date)
    }
}

impl FromStr for Time {
    type Err = Misfit;

    /// Reads `-12:34:56.789`.
    fn from_str(text: &str) -> Result<Self, Misfit> {
        let (negative, clock) = match text.strip_prefix('-') {
            Some(clock) => (true, clock),
            None => (false, text),
        };
        let (hours, minutes, seconds, microseconds) =
            parse_clock(clock).ok_or_else(|| unreadable(text, "time", "-12:34:56.789"))?;
        let time = Time { negative, hours, minutes, seconds, microseconds };
        time.check().map(|()| time)
    }
}

impl FromStr for DateTime {
    type Err = Misfit;

    /// Reads `2026-11-21 12:34:56.789`, with a space or a `T` between.
    fn from_str(text: &str) -> Result<Self, Misfit> {
        let bad = || unreadable(text, "date with time", "2026-11-21 12:34:56.789");
        let (date, clock) = text.split_once([' ', 'T']).ok_or_else(bad)?;
        let (hour, minute, second, microsecond) = parse_clock(clock).ok_or_else(bad)?;
        let hour = u8::try_from(hour).map_err(|_| bad())?;
        let value = DateTime { date: date.parse()?, hour, minute, second, microsecond };
        value.check().map(|()| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use proptest::prelude::*;

    fn bytes(store: impl FnOnce(&mut Vec<u8>) -> Result<(), Misfit>) -> Vec<u8> {
        let mut out = vec![];
        store(&mut out).unwrap();
        out
    }

    #[test]
    fn negative_times_are_stored_as_mysql_does() {
        // The table in the comment of MySQL's my_time_packed_from_binary.
        let stored = |text: &str, digits| bytes(|out| text.parse::<Time>().unwrap().encode(digits, out));
        assert_eq!(stored("00:00:00.00", 2), [0x80, 0x00, 0x00, 0x00]);
        assert_eq!(stored("-00:00:00.01", 2), [0x7F, 0xFF, 0xFF, 0xFF]);
        assert_eq!(stored("-00:00:00.99", 2), [0x7F, 0xFF, 0xFF, 0x9D]);
        assert_eq!(stored("-00:00:01.00", 2), [0x7F, 0xFF, 0xFF, 0x00]);
        assert_eq!(stored("-00:00:01.01", 2), [0x7F, 0xFF, 0xFE, 0xFF]);
        assert_eq!(stored("-00:00:01.10", 2), [0x7F, 0xFF, 0xFE, 0xF6]);
        assert_eq!(stored("00:00:01", 0), [0x80, 0x00, 0x01]);
    }

    #[test]
    fn a_date_time_is_stored_as_mysql_does() {
        // ((2013 * 13 + 12) << 5 | 5) << 17 | 1 << 12 | 2 << 6 | 3, behind the offset 0x8000000000.
        let value: DateTime = "2013-12-05 01:02:03".parse().unwrap();
        assert_eq!(bytes(|out| value.encode(0, out)), [0x99, 0x91, 0x4A, 0x10, 0x83]);
    }

    #[test]
    fn text_is_read_and_written() {
        for text in ["2026-11-21 12:34:56.789", "0000-00-00 00:00:00"] {
            assert_eq!(text.parse::<DateTime>().unwrap().to_string(), text);
        }
        assert_eq!("-838:59:59".parse::<Time>().unwrap().to_string(), "-838:59:59");
        assert_eq!(Timestamp::new(951_827_696).to_string(), "2000-02-29 12:34:56 UTC");
        assert_eq!(Timestamp::new(0).to_string(), "1970-01-01 00:00:00 UTC");
        assert_eq!(Timestamp::new(u32::MAX).to_string(), "2106-02-07 06:28:15 UTC");
        assert_eq!("2026-13-01".parse::<Date>().unwrap_err().to_string(), "2026-13-01 is no day");
        assert_eq!(
            "noon".parse::<Time>().unwrap_err().to_string(),
            "'noon' is no time; write it as -12:34:56.789"
        );
        let fine: Time = "12:00:00.123".parse().unwrap();
        assert_eq!(
            fine.encode(2, &mut vec![]).unwrap_err().to_string(),
            "12:00:00.123 has more than 2 digits behind the second"
        );
    }

    fn fraction() -> impl Strategy<Value = (u8, u32)> {
        (0u8..=6, 0u32..1_000_000).prop_map(|(digits, microseconds)| {
            (digits, microseconds - microseconds % 10u32.pow(6 - u32::from(digits)))
        })
    }

    proptest! {
        #[test]
        fn times_keep_their_order(
            a in (any::<bool>(), 0u16..838, 0u8..60, 0u8..60), b in (any::<bool>(), 0u16..838, 0u8..60, 0u8..60),
            (digits, microseconds) in fraction(), other in 0u32..1_000_000,
        ) {
            let other = other - other % 10u32.pow(6 - u32::from(digits));
            let time = |(negative, hours, minutes, seconds): (bool, u16, u8, u8), microseconds| {
                let zero = hours == 0 && minutes == 0 && seconds == 0 && microseconds == 0;
                Time { negative: negative && !zero, hours, minutes, seconds, microseconds }
            };
            let (a, b) = (time(a, microseconds), time(b, other));
            let stored = |t: Time| bytes(|out| t.encode(digits, out));
            prop_assert_eq!(Time::decode(digits, &stored(a)), Some(a));
            prop_assert_eq!(stored(a).cmp(&stored(b)), a.cmp(&b));
            prop_assert_eq!(a.to_string().parse::<Time>().unwrap(), a);
        }

        #[test]
        fn date_times_keep_their_order(
            a in (0u16..10_000, 0u8..=12, 0u8..=31, 0u8..24, 0u8..60, 0u8..60),
            b in (0u16..10_000, 0u8..=12, 0u8..=31, 0u8..24, 0u8..60, 0u8..60),
            (digits, microsecond) in fraction(),
        ) {
            let value = |(y, mo, d, h, mi, s), microsecond| {
                DateTime { microsecond, ..DateTime::new(Date::new(y, mo, d), h, mi, s) }
            };
            let (a, b) = (value(a, microsecond), value(b, 0));
            let stored = |v: DateTime| bytes(|out| v.encode(digits, out));
            prop_assert_eq!(DateTime::decode(digits, &stored(a)), Some(a));
            prop_assert_eq!(stored(a).cmp(&stored(b)), a.cmp(&b));
            prop_assert_eq!(a.to_string().parse::<DateTime>().unwrap(), a);
            let days = |v: DateTime| bytes(|out| v.date.encode(out));
            prop_assert_eq!(Date::decode(&days(a)), Some(a.date));
            prop_assert_eq!(days(a).cmp(&days(b)), a.date.cmp(&b.date));
        }

        #[test]
        fn timestamps_keep_their_order(a in any::<u32>(), b in any::<u32>(), (digits, microseconds) in fraction()) {
            let (a, b) = (Timestamp { seconds: a, microseconds }, Timestamp::new(b));
            let stored = |t: Timestamp| bytes(|out| t.encode(digits, out));
            prop_assert_eq!(Timestamp::decode(digits, &stored(a)), Some(a));
            prop_assert_eq!(a.to_string().parse::<Timestamp>().unwrap(), a);
            prop_assert!(Timestamp::try_from(a.to_utc()).is_ok_and(|again| again == a));
            prop_assert_eq!(stored(a).cmp(&stored(b)), a.cmp(&b));
        }

        #[test]
        fn garbage_never_panics(digits in 0u8..=6, bytes in proptest::collection::vec(any::<u8>(), 0..10)) {
            let _ = (Date::decode(&bytes), Time::decode(digits, &bytes), DateTime::decode(digits, &bytes));
            let _ = Timestamp::decode(digits, &bytes);
        }
    }
}
