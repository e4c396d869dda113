//! Spans of the standard library in `time` columns, which hold up to 838:59:59. Parts of a microsecond, which clocks
//! give and no column keeps, are cut off.

use super::{LoadValue, Misfit, StoreValue, Stored, Time};
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;
use vinga_base::schema::ColumnType;

impl TryFrom<Duration> for Time {
    type Error = Misfit;

    fn try_from(span: Duration) -> Result<Self, Misfit> {
        let seconds = span.as_secs();
        let hours = seconds / 3600;
        if hours > 838 {
            return Err(Misfit::new(format!("{seconds} seconds; 838:59:59 is the longest time")));
        }
        Ok(Time {
            microseconds: span.subsec_micros(),
            ..Time::new(hours as u16, (seconds / 60 % 60) as u8, (seconds % 60) as u8)
        })
    }
}

impl TryFrom<Time> for Duration {
    type Error = Misfit;

    fn try_from(time: Time) -> Result<Self, Misfit> {
        let Time { negative, hours, minutes, seconds, microseconds } = time;
        let seconds = u64::from(hours) * 3600 + u64::from(minutes) * 60 + u64::from(seconds);
        let span = Duration::new(seconds, microseconds * 1000);
        match negative && !span.is_zero() {
            true => Err(Misfit::new(format!("{time} is less than nothing; read a Time"))),
            false => Ok(span),
        }
    }
}

impl StoreValue for Duration {
    fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
        Time::try_from(*self)?.store(column, out)
    }
}

impl LoadValue for Duration {
    fn load(column: ColumnType, bytes: Option<&[u8]>) -> Result<Self, Misfit> {
        Time::load(column, bytes)?.try_into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn spans_are_times() {
        let column = ColumnType::Time { fraction: 6 };
        for span in [Duration::ZERO, Duration::from_secs(3_020_399), Duration::from_millis(61_001)] {
            let mut bytes = Vec::new();
            span.store(column, &mut bytes).unwrap();
            assert_eq!(Duration::load(column, Some(&bytes)).unwrap(), span);
        }
        let refused = |span: Duration| span.store(column, &mut Vec::new()).unwrap_err().to_string();
        assert_eq!(
            refused(Duration::from_secs(839 * 3600)),
            "3020400 seconds; 838:59:59 is the longest time"
        );
        assert_eq!(
            Time::try_from(Duration::from_nanos(1999)),
            Ok(Time { microseconds: 1, ..Time::new(0, 0, 0) })
        );
        let negative = Time { negative: true, ..Time::new(0, 0, 1) };
        assert!(Duration::try_from(negative).unwrap_err().to_string().contains("less than nothing"));
    }
}
