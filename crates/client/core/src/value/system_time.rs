//! Points in time of the standard library in `timestamp` columns. Parts of a microsecond, which clocks give and no
//! column keeps, are cut off.

extern crate std;

use super::{ColumnValue, Key, LoadValue, Misfit, Nullable, StoreValue, Stored, Timestamp};
use crate::error::Error;
use crate::table::{KeyWriter, Table};
use alloc::vec::Vec;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vinga_base::schema::ColumnType;

impl TryFrom<SystemTime> for Timestamp {
    type Error = Misfit;

    fn try_from(point: SystemTime) -> Result<Self, Misfit> {
        let bad = || Misfit::new("it is no point in time between 1970 and 2106");
        let since = point.duration_since(UNIX_EPOCH).map_err(|_| bad())?;
        let seconds = u32::try_from(since.as_secs()).map_err(|_| bad())?;
        Ok(Timestamp { seconds, microseconds: since.subsec_micros() })
    }
}

impl From<Timestamp> for SystemTime {
    fn from(point: Timestamp) -> Self {
        UNIX_EPOCH + Duration::new(point.seconds.into(), point.microseconds * 1000)
    }
}

impl StoreValue for SystemTime {
    fn store(&self, column: ColumnType, out: &mut Vec<u8>) -> Result<Stored, Misfit> {
        Timestamp::try_from(*self)?.store(column, out)
    }
}

impl LoadValue for SystemTime {
    fn load(column: ColumnType, bytes: Option<&[u8]>) -> Result<Self, Misfit> {
        Ok(Timestamp::load(column, bytes)?.into())
    }
}

impl Key for SystemTime {
    fn write(&self, table: &Table, out: &mut Vec<u8>) -> Result<(), Error> {
        KeyWriter::new(table, 1, out)?.put(self)
    }

    fn each(&self, take: &mut dyn FnMut(&dyn StoreValue) -> Result<(), Error>) -> Result<(), Error> {
        take(self)
    }
}

impl ColumnValue for SystemTime {
    const COLUMN_TYPE: ColumnType = ColumnType::Timestamp { fraction: 6 };
}
impl Nullable for SystemTime {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_timestamps() {
        let column = ColumnType::Timestamp { fraction: 6 };
        let point = UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456);
        let mut bytes = Vec::new();
        point.store(column, &mut bytes).unwrap();
        assert_eq!(SystemTime::load(column, Some(&bytes)).unwrap(), point);
        for wrong in [UNIX_EPOCH - Duration::from_secs(1), UNIX_EPOCH + Duration::from_secs(1 << 33)] {
            assert!(wrong.store(column, &mut Vec::new()).is_err());
        }
    }
}
