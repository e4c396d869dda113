//! What is scanned, and how that is asked for.

use crate::error::{Error, Result};
use crate::link::LinkId;
use crate::net::Net;
use alloc::vec::Vec;
use vinga_base::hash::KeyHash;
use vinga_base::order_key::KeyRange;
use vinga_base::{ColumnId, OperationNumber, PartitionId, TransactionId};
use vinga_wire::frame::FRAME_BYTES_MAX;
use vinga_wire::operation::ALL_COLUMNS;
use vinga_wire::range_scan::{
    RANGE_DESCENDING, RANGE_FROM_POSITION, RANGE_KEYS, RANGES_MAX, RangeBounds, RangeHead, RangeScanOpenHead,
};
use vinga_wire::scan::{COUNT_ROWS, ScanOpenHead};
use vinga_wire::{Address, ErrorCode, SignalNumber, U16, U32, U64};
use zerocopy::IntoBytes;

/// What is scanned, and in which portions.
#[derive(Clone, Debug)]
pub struct ScanSpec {
    /// Which columns, in this order; `None` for whole images.
    pub columns: Option<Vec<ColumnId>>,
    /// Rows are counted, not sent: what comes are figures, each a little-endian u64, whose sum it is.
    pub counts: bool,
    /// Condition on the rows, as a filter program; empty for none.
    pub filter: Vec<u8>,
    /// Rows after which the scan ends; 0 for no limit.
    pub limit: u32,
    /// As many rows may be enough, though there is no limit: the first batches are no longer, those behind them grow to
    /// `batch_rows`. 0 if that is not known.
    pub expected_rows: u32,
    /// Rows of one batch, at least 1.
    pub batch_rows: u16,
    /// Bytes of rows of one batch.
    pub batch_bytes: u32,
    /// Partitions that are scanned at the same time, at least 1. Rows that are to be merged need all of them.
    pub parallel: u16,
    /// Ranges of an index; `None` for all rows, by row id.
    pub ranges: Option<RangeSpec>,
}

impl Default for ScanSpec {
    fn default() -> Self {
        ScanSpec {
            columns: None,
            counts: false,
            filter: Vec::new(),
            limit: 0,
            expected_rows: 0,
            batch_rows: 1024,
            batch_bytes: 64 * 1024,
            parallel: 16,
            ranges: None,
        }
    }
}

/// Ranges of an ordered index.
#[derive(Clone, Default, Debug)]
pub struct RangeSpec {
    /// The index's id in the table's definition.
    pub index: u16,
    /// The ranges, as they travel.
    bytes: Vec<u8>,
    count: usize,
    /// From the end of the index to its beginning; the order of the ranges stays.
    pub is_descending: bool,
    /// Rows of all partitions are merged: they come by range and key. Else only those of each partition do.
    pub in_order: bool,
    /// All rows of the ranges have keys (of the table) with this hash, so that one partition has them all.
    pub hash: Option<KeyHash>,
}

impl RangeSpec {
    /// No ranges yet, of an index.
    pub fn new(index: u16) -> Self {
        RangeSpec { index, ..RangeSpec::default() }
    }

    /// Appends a range; it gets the next number.
    pub fn push(&mut self, range: &KeyRange) {
        self.push_bounds(&range.from, range.to.as_deref().unwrap_or_default());
    }

    /// Appends a range as it travels: keys from `low` on that are below `high`; an empty `high` for the end of the
    /// index.
    ///
    /// # Panics
    /// If a bound has more than 65535 bytes; no key has.
    pub fn push_bounds(&mut self, low: &[u8], high: &[u8]) {
        let length = |bound: &[u8]| U16::new(u16::try_from(bound.len()).expect("bounds are keys"));
        let head = RangeHead { low_bytes: length(low), high_bytes: length(high) };
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(low);
        self.bytes.extend_from_slice(high);
        self.count += 1;
    }

    /// The ranges, as they travel.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The ranges in their order.
    pub fn bounds(&self) -> impl Iterator<Item = RangeBounds<'_>> {
        let mut rest = self.bytes.as_slice();
        core::iter::from_fn(move || RangeBounds::take(&mut rest))
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Bytes of ranges, filter and selection in one request, at most; a key of a position still fits behind them.
pub(crate) const REQUEST_BYTES_MAX: usize = FRAME_BYTES_MAX - 16 * 1024;

/// Rows of the first batches of ranges, of all partitions together: what a short range has comes with the first
/// answers, and not much is sent for nothing where few rows are taken of many.
const FIRST_ROWS: u16 = 256;
/// Of each partition at least so many.
const FIRST_ROWS_EACH: u16 = 64;
/// Each batch of ranges is so many times as long as the one before, up to what was asked for.
const GROWTH: u16 = 4;

impl ScanSpec {
    /// Whether it can be asked for at all.
    pub(super) fn check(&self) -> Result<()> {
        let bad = |what| Err(Error::with_detail(ErrorCode::BadProgram, what));
        if self.batch_rows == 0 || self.parallel == 0 || self.filter.len() > usize::from(u16::MAX) {
            return bad("a scan without room for rows");
        }
        if self.counts && self.limit != 0 {
            return bad("a scan that counts has no limit");
        }
        let selected = self.columns.as_ref().map_or(0, Vec::len);
        if selected > vinga_base::schema::COLUMNS_MAX {
            return Err(Error::new(ErrorCode::TooManyColumns));
        }
        let Some(ranges) = &self.ranges else { return Ok(()) };
        if !(1..=RANGES_MAX).contains(&ranges.count) {
            return bad("a scan of an index has 1 to 1024 ranges");
        }
        if ranges.bytes.len() + self.filter.len() + 2 * selected > REQUEST_BYTES_MAX {
            return bad("ranges and filter of a scan have more than 112 KiB");
        }
        Ok(())
    }

    /// Rows of the first batch from each of so many partitions.
    pub(super) fn first_rows(&self, partitions: usize) -> u16 {
        let partitions = partitions.max(1) as u32;
        let wanted = match (self.limit, self.expected_rows) {
            (0, expected) => expected,
            (limit, 0) => limit,
            (limit, expected) => limit.min(expected),
        };
        // Twice each partition's share: with that it is rarely one that has more of the first rows.
        let share = match wanted {
            0 => u32::MAX,
            wanted => wanted.min(wanted.div_ceil(partitions).saturating_mul(2).saturating_add(4)),
        };
        let share = u16::try_from(share).unwrap_or(u16::MAX).min(self.batch_rows);
        if self.ranges.is_none() {
            return share;
        }
        let first = (u32::from(FIRST_ROWS) / partitions) as u16;
        first.max(FIRST_ROWS_EACH).min(share)
    }

    /// Rows of the batch behind one of so many rows.
    pub(super) fn next_rows(&self, rows: u16) -> u16 {
        rows.saturating_mul(GROWTH).min(self.batch_rows)
    }

    /// Whether it counts entries of an index: what has been counted does not say where to go on.
    pub(super) fn counts_along_index(&self) -> bool {
        self.counts && self.ranges.is_some()
    }

    /// Whether rows of all partitions are merged.
    pub(super) fn is_merged(&self) -> bool {
        !self.counts && self.ranges.as_ref().is_some_and(|ranges| ranges.in_order && ranges.hash.is_none())
    }
}

/// Where a partition's scan came to.
#[derive(Clone, Default, Debug)]
pub(super) enum Position {
    /// Nothing has come.
    #[default]
    Start,
    /// Of a full scan: the row id with which it goes on.
    Row(u32),
    /// Of ranges: the last row.
    Behind { range: u16, row: u32, key: Vec<u8> },
    /// Nobody knows: rows have come without keys.
    Lost,
}

/// What is asked of one partition.
pub(super) struct Opening<'a> {
    pub spec: &'a ScanSpec,
    pub table: u32,
    pub version: u64,
    pub transaction: TransactionId,
    pub operation: OperationNumber,
    pub partition: PartitionId,
    /// The scan's name on the wire.
    pub wire: u32,
    pub batch_rows: u16,
    /// Rows after which this partition's scan ends; 0 for no limit.
    pub limit: u32,
    /// Whether rows of ranges come with their keys.
    pub wants_keys: bool,
    pub position: &'a Position,
}

impl Opening<'_> {
    /// Writes the request.
    pub fn send(&self, net: &mut Net, (link, data_manager): (LinkId, Address)) {
        match &self.spec.ranges {
            None => self.send_full(net, link, data_manager),
            Some(ranges) => self.send_ranges(net, link, data_manager, ranges),
        }
        net.link(link).hurry();
    }

    /// The columns that are asked for one by one.
    fn selection(&self) -> &[ColumnId] {
        self.spec.columns.as_deref().filter(|_| !self.spec.counts).unwrap_or_default()
    }

    fn columns(&self) -> U16 {
        U16::new(match &self.spec.columns {
            _ if self.spec.counts => COUNT_ROWS,
            None => ALL_COLUMNS,
            Some(columns) => columns.len() as u16,
        })
    }

    fn send_full(&self, net: &mut Net, link: LinkId, data_manager: Address) {
        let mut writer = net.frame(link, SignalNumber::ScanOpenRequest, data_manager);
        writer.put(&ScanOpenHead {
            version: U64::new(self.version),
            transaction: U64::new(self.transaction.0),
            scan: U32::new(self.wire),
            table: U32::new(self.table),
            operation: U32::new(self.operation.0),
            from_row: U32::new(match self.position {
                Position::Row(row) => *row,
                Position::Start | Position::Behind { .. } | Position::Lost => 0,
            }),
            batch_bytes: U32::new(self.spec.batch_bytes),
            limit: U32::new(self.limit),
            partition: U16::new(self.partition.0),
            batch_rows: U16::new(self.batch_rows),
            columns: self.columns(),
            filter_bytes: U16::new(self.spec.filter.len() as u16),
            flags: U16::ZERO,
            unused: U16::ZERO,
        });
        for column in self.selection() {
            writer.put(&U16::new(column.0));
        }
        writer.bytes(&self.spec.filter);
    }

    fn send_ranges(&self, net: &mut Net, link: LinkId, data_manager: Address, ranges: &RangeSpec) {
        let (from_range, from_row, key, from) = match self.position {
            Position::Behind { range, row, key } => (*range, *row, key.as_slice(), RANGE_FROM_POSITION),
            Position::Start | Position::Row(_) | Position::Lost => (0, 0, &[][..], 0),
        };
        let keys = if self.wants_keys { RANGE_KEYS } else { 0 };
        let descending = if ranges.is_descending { RANGE_DESCENDING } else { 0 };
        let mut writer = net.frame(link, SignalNumber::RangeScanOpenRequest, data_manager);
        writer.put(&RangeScanOpenHead {
            version: U64::new(self.version),
            transaction: U64::new(self.transaction.0),
            scan: U32::new(self.wire),
            table: U32::new(self.table),
            operation: U32::new(self.operation.0),
            batch_bytes: U32::new(self.spec.batch_bytes),
            limit: U32::new(self.limit),
            from_row: U32::new(from_row),
            from_range: U16::new(from_range),
            key_bytes: U16::new(key.len() as u16),
            index: U16::new(ranges.index),
            partition: U16::new(self.partition.0),
            batch_rows: U16::new(self.batch_rows),
            columns: self.columns(),
            filter_bytes: U16::new(self.spec.filter.len() as u16),
            ranges: U16::new(ranges.count as u16),
            flags: U16::new(keys | descending | from),
            unused: U16::ZERO,
        });
        for column in self.selection() {
            writer.put(&U16::new(column.0));
        }
        writer.bytes(&self.spec.filter).bytes(key).bytes(&ranges.bytes);
    }
}
