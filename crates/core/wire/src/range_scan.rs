//! Scans in the order of an index, and statistics of an index: between an API node and a data manager.
//!
//! | signal | from | to | meaning |
//! |---|---|---|---|
//! | `RangeScanOpenRequest` | API node | data manager | scan ranges of an ordered index of one partition; first batch |
//! | `ScanNextRequest`, `ScanCloseOrder`, `ScanConfirm`, `ScanRefuse` | | | as for any scan (scan.rs) |
//! | `IndexStatisticsRequest` / `…Confirm` / `…Refuse` | API node / data manager | | number of rows in some ranges |
//!
//! The ranges are scanned in the order in which the request lists them, each upwards or, with [`RANGE_DESCENDING`],
//! downwards; within a range rows come in the order of the index's keys (`vinga_base::order_key`), rows with equal keys
//! in the order of their row ids. A row that is in several ranges is returned several times. A range is half open: keys
//! from `low` on that are below `high`; an empty `high` means the end of the index.
//!
//! A scan sees of each row the version that a read at that moment would see (see scan.rs for a transaction's own
//! changes), and finds it under the key of that version only. A row whose key changes during the scan may be returned
//! twice or not at all, as in any scan of committed rows. `next_row` of `ScanConfirm` is not used here: the last row is
//! the position of a scan, and a new scan continues behind it if it names its range, key and row id. In a scan that
//! counts, each figure follows a `RangeRow` whose row and range are not used; such a scan reports no position.
//!
//! ```text
//!   RangeScanOpenRequest:    RangeScanOpenHead, columns * u16, filter, key of the position (key_bytes), then `ranges`
//!                            times RangeHead, low, high
//!   ScanConfirm:             ScanAnswer, then `count` times RangeRow, key (only with RANGE_KEYS), row
//!   IndexStatisticsRequest:  IndexStatisticsHead, then `ranges` times RangeHead, low, high
//!   IndexStatisticsConfirm:  IndexStatisticsAnswer, `columns` times u64 (different values of the first 1, 2 … columns,
//!                            estimated), `ranges` times u64 (rows in the range, estimated)
//! ```

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Ranges of one request, at most.
pub const RANGES_MAX: usize = 1024;

/// The index is scanned from its end to its beginning; the order of the ranges is kept.
pub const RANGE_DESCENDING: u16 = 1;
/// Each row is sent with its key, so that rows of several partitions can be merged.
pub const RANGE_KEYS: u16 = 2;
/// The scan begins behind the position that the head contains.
pub const RANGE_FROM_POSITION: u16 = 4;
/// It is meant for a backup, as [`crate::scan::SCAN_AT_BACKUP`].
pub const RANGE_AT_BACKUP: u16 = 8;

/// Beginning of `RangeScanOpenRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RangeScanOpenHead {
    /// Version of the table's definition that the API node knows.
    pub version: U64,
    /// Transaction whose own changes are visible; 0 for none.
    pub transaction: U64,
    /// The API node's identifier of the scan, unique among all its scans.
    pub scan: U32,
    /// The table.
    pub table: U32,
    /// Own changes from this operation number on are not visible.
    pub operation: U32,
    /// Bytes of rows after which a batch ends.
    pub batch_bytes: U32,
    /// Rows after which the whole scan ends; 0 for no limit.
    pub limit: U32,
    /// With [`RANGE_FROM_POSITION`]: the row behind which it begins.
    pub from_row: U32,
    /// With [`RANGE_FROM_POSITION`]: the range in which that row was found.
    pub from_range: U16,
    /// With [`RANGE_FROM_POSITION`]: bytes of that row's key; else 0.
    pub key_bytes: U16,
    /// The index's id in the table's definition; of kind ordered.
    pub index: U16,
    /// The partition.
    pub partition: U16,
    /// Rows after which a batch ends, at least 1.
    pub batch_rows: U16,
    /// Number of selected columns, [`crate::operation::ALL_COLUMNS`], or [`crate::scan::COUNT_ROWS`].
    pub columns: U16,
    /// Bytes of the filter program.
    pub filter_bytes: U16,
    /// Number of ranges, 1 to [`RANGES_MAX`].
    pub ranges: U16,
    /// Flags defined in this file.
    pub flags: U16,
    /// Zero.
    pub unused: U16,
}

/// Beginning of one range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RangeHead {
    /// Bytes of the low end.
    pub low_bytes: U16,
    /// Bytes of the high end; 0 for the end of the index.
    pub high_bytes: U16,
}

/// One range, in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeBounds<'a> {
    /// Keys from here on.
    pub low: &'a [u8],
    /// Keys below this; empty for no bound.
    pub high: &'a [u8],
}

impl<'a> RangeBounds<'a> {
    /// Reads the range at the front of `bytes` and moves `bytes` behind it; `None` if it is not complete.
    #[inline]
    pub fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let (head, rest) = RangeHead::ref_from_prefix(bytes).ok()?;
        let (low, rest) = rest.split_at_checked(usize::from(head.low_bytes.get()))?;
        let (high, rest) = rest.split_at_checked(usize::from(head.high_bytes.get()))?;
        *bytes = rest;
        Some(RangeBounds { low, high })
    }
}

/// Precedes each row of a range scan's `ScanConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RangeRow {
    /// Its row id in this partition.
    pub row: U32,
    /// The number of the range, from 0.
    pub range: U16,
    /// Bytes of its key; 0 without [`RANGE_KEYS`].
    pub key_bytes: U16,
    /// Bytes of the row: an image or a selection.
    pub row_bytes: U16,
}

/// Beginning of `IndexStatisticsRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IndexStatisticsHead {
    /// Version of the table's definition that the API node knows.
    pub version: U64,
    /// The API node's tag for the answer.
    pub request: U32,
    /// The table.
    pub table: U32,
    /// The index's id in the table's definition; of kind ordered.
    pub index: U16,
    /// The partition.
    pub partition: U16,
    /// Number of ranges, 0 to [`RANGES_MAX`].
    pub ranges: U16,
    /// Zero.
    pub unused: U16,
}

/// Beginning of `IndexStatisticsConfirm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IndexStatisticsAnswer {
    /// Entries of the index in this partition.
    pub entries: U64,
    /// The API node's tag.
    pub request: U32,
    /// Number of the index's columns.
    pub columns: U16,
    /// Number of ranges.
    pub ranges: U16,
}

/// `IndexStatisticsRefuse`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IndexStatisticsRefusal {
    /// The API node's tag.
    pub request: U32,
    /// [`crate::ErrorCode`].
    pub code: U16,
    /// The partition that was asked for.
    pub partition: U16,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn ranges_are_taken_whole_or_not_at_all() {
        let mut bytes = Vec::new();
        for (low, high) in [(&b"a"[..], &b"bc"[..]), (b"", b"")] {
            let head =
                RangeHead { low_bytes: U16::new(low.len() as u16), high_bytes: U16::new(high.len() as u16) };
            bytes.extend_from_slice(head.as_bytes());
            bytes.extend_from_slice(low);
            bytes.extend_from_slice(high);
        }
        let mut rest = &bytes[..];
        assert_eq!(RangeBounds::take(&mut rest), Some(RangeBounds { low: b"a", high: b"bc" }));
        assert_eq!(RangeBounds::take(&mut rest), Some(RangeBounds { low: b"", high: b"" }));
        assert_eq!(RangeBounds::take(&mut rest), None);
        for cut in 1..7 {
            assert_eq!(RangeBounds::take(&mut &bytes[..cut]), None);
        }
    }
}
