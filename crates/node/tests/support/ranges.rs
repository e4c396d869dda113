//! Range scans over the test table's indexes, as an API node would do them.

use super::{BY_NUMBER, BY_TEXT, Cluster, Row, Setup, code, definition, dm};
use std::ops::Bound;
use vinga_base::hash::KeyHash;
use vinga_base::order_key::{KeyRange, OrderKey};
use vinga_base::{PartitionId, TransactionId};
use vinga_wire::operation::ALL_COLUMNS;
use vinga_wire::range_scan::{
    IndexStatisticsAnswer, IndexStatisticsHead, IndexStatisticsRefusal, RANGE_AT_BACKUP, RANGE_DESCENDING,
    RANGE_FROM_POSITION, RANGE_KEYS, RangeHead, RangeRow, RangeScanOpenHead,
};
use vinga_wire::scan::{SCAN_BATCH_END, SCAN_END, ScanAnswer, ScanBody, ScanRefusal};
use vinga_wire::{ErrorCode, Frame, FrameWriter, SignalNumber, U16, U32, U64};
use zerocopy::FromBytes;

/// The API node's name for range scans.
const NAME: u32 = 1000;

/// A row as a range scan found it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    pub row: Row,
    /// Its row id.
    pub id: u32,
    /// Which of the ranges.
    pub range: u16,
    /// Its key in the index.
    pub key: Vec<u8>,
}

/// A batch of a range scan and whether the scan ended with it, or why there is none.
pub type Answer = Result<(Vec<Found>, bool), ErrorCode>;

/// Entries of an index in a partition, different values of its first columns, rows in ranges.
pub type Statistics = (u64, Vec<u64>, Vec<u64>);

/// What is asked of a partition.
#[derive(Clone, Debug)]
pub struct Ask {
    pub index: u16,
    /// Low and high ends.
    pub ranges: Vec<(Vec<u8>, Vec<u8>)>,
    pub descending: bool,
    pub viewer: Option<(TransactionId, u32)>,
    pub batch: u16,
    pub limit: u32,
    /// Goes on behind this row.
    pub behind: Option<Found>,
    /// At this node, if backups answer reads.
    pub node: Option<u8>,
}

impl Ask {
    /// The whole index upwards.
    pub fn all(index: u16) -> Self {
        Ask {
            index,
            ranges: vec![(vec![], vec![])],
            descending: false,
            viewer: None,
            batch: 10,
            limit: 0,
            behind: None,
            node: None,
        }
    }

    /// Numbers from `low` to `high`.
    pub fn numbers(low: i64, high: i64) -> Self {
        let key = |n: i64| (n as u64 ^ 1 << 63).to_be_bytes().to_vec();
        let range = KeyRange::new(Bound::Included(&key(low)), Bound::Included(&key(high)));
        Ask { ranges: vec![(range.from, range.to.unwrap_or_default())], ..Ask::all(BY_NUMBER) }
    }
}

/// The key of a row in an index of the test table.
pub fn key_of(cluster: &Cluster, index: u16, row: &Row) -> Vec<u8> {
    let definition = definition(&Setup::default());
    let columns = &definition.index(index).expect("an index of the test table").columns;
    let order = OrderKey::new(&cluster.layout, columns).expect("columns of the test table");
    let number = row.1.to_le_bytes();
    let mut key = vec![];
    let values = match index {
        BY_NUMBER => vec![Some(&number[..])],
        BY_TEXT => vec![row.2.as_ref().map(String::as_bytes), Some(&number[..])],
        other => panic!("the test table has no index {other}"),
    };
    order.write_values(&values, &mut key).expect("the values fit");
    key
}

impl Cluster {
    /// Scans ranges in one partition, to the end.
    pub fn ranges_of(&mut self, partition: PartitionId, ask: &Ask) -> Result<Vec<Found>, ErrorCode> {
        self.ranges_with(partition, ask, |_, _| ())
    }

    /// The same in all partitions, one after the other.
    pub fn ranges(&mut self, ask: &Ask) -> Result<Vec<Row>, ErrorCode> {
        let mut rows = vec![];
        for partition in self.partitions() {
            rows.extend(self.ranges_of(partition, ask)?.into_iter().map(|found| found.row));
        }
        Ok(rows)
    }

    /// The partition of a key.
    pub fn partition_of(&self, key: u64) -> PartitionId {
        self.partitions.of(KeyHash::of(&key.to_le_bytes()))
    }

    /// All partitions of the table.
    pub fn partitions(&self) -> Vec<PartitionId> {
        self.partitions.iter().collect()
    }

    /// Calls `meet` with each batch before the next one is asked for.
    pub fn ranges_with(
        &mut self,
        partition: PartitionId,
        ask: &Ask,
        mut meet: impl FnMut(&mut Self, &[Found]),
    ) -> Result<Vec<Found>, ErrorCode> {
        let primary = self.view.partition(partition).primary();
        let owner = ask.node.map_or(primary, |node| dm(node, primary.instance()));
        let (table, version) = self.table;
        let mut flags = RANGE_KEYS;
        if ask.descending {
            flags |= RANGE_DESCENDING;
        }
        if ask.behind.is_some() {
            flags |= RANGE_FROM_POSITION;
        }
        if ask.node.is_some() {
            flags |= RANGE_AT_BACKUP;
        }
        let behind = ask.behind.as_ref();
        let key = behind.map_or(&[][..], |found| &found.key);
        self.send(SignalNumber::RangeScanOpenRequest, owner, |w: &mut FrameWriter<'_>| {
            w.put(&RangeScanOpenHead {
                version: U64::new(version),
                transaction: U64::new(ask.viewer.map_or(0, |(id, _)| id.0)),
                scan: U32::new(NAME),
                table: U32::new(table),
                operation: U32::new(ask.viewer.map_or(0, |(_, operation)| operation)),
                batch_bytes: U32::new(1 << 16),
                limit: U32::new(ask.limit),
                from_row: U32::new(behind.map_or(0, |found| found.id)),
                from_range: U16::new(behind.map_or(0, |found| found.range)),
                key_bytes: U16::new(key.len() as u16),
                index: U16::new(ask.index),
                partition: U16::new(partition.0),
                batch_rows: U16::new(ask.batch),
                columns: U16::new(ALL_COLUMNS),
                filter_bytes: U16::ZERO,
                ranges: U16::new(ask.ranges.len() as u16),
                flags: U16::new(flags),
                unused: U16::ZERO,
            })
            .bytes(key);
            put_ranges(w, &ask.ranges);
        });
        let mut found = vec![];
        loop {
            let mut ends = false;
            for received in std::mem::take(&mut self.range_answers) {
                let batch = received?;
                meet(self, &batch.0);
                found.extend(batch.0);
                ends |= batch.1;
            }
            if ends {
                return Ok(found);
            }
            self.send(SignalNumber::ScanNextRequest, owner, |w| {
                w.put(&ScanBody { scan: U32::new(NAME) });
            });
            assert!(!self.range_answers.is_empty(), "a batch is answered");
        }
    }

    /// Asks for the statistics of an index in a partition.
    pub fn statistics(
        &mut self,
        partition: PartitionId,
        index: u16,
        ranges: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<Statistics, ErrorCode> {
        let place = self.view.partitions().get(usize::from(partition.0));
        let owner = place.map_or(dm(1, 0), vinga_wire::view::Partition::primary);
        let (table, version) = self.table;
        self.send(SignalNumber::IndexStatisticsRequest, owner, |w| {
            w.put(&IndexStatisticsHead {
                version: U64::new(version),
                request: U32::new(5),
                table: U32::new(table),
                index: U16::new(index),
                partition: U16::new(partition.0),
                ranges: U16::new(ranges.len() as u16),
                unused: U16::ZERO,
            });
            put_ranges(w, ranges);
        });
        self.statistics.pop().expect("every request is answered")
    }

    /// Takes an answer to a range scan; `None` if the frame is something else.
    pub(super) fn receive_range(&self, frame: &Frame<'_>) -> Option<Answer> {
        let answer = match frame.signal()? {
            SignalNumber::ScanConfirm => {
                let (answer, mut rest) = frame.head::<ScanAnswer>()?;
                if answer.scan.get() != NAME {
                    return None;
                }
                let mut batch = vec![];
                for _ in 0..answer.count.get() {
                    let (head, behind) = RangeRow::ref_from_prefix(rest).expect("whole rows");
                    let (key, behind) = behind.split_at(head.key_bytes.get().into());
                    let (image, behind) = behind.split_at(head.row_bytes.get().into());
                    let row = self.row(image);
                    batch.push(Found { row, id: head.row.get(), range: head.range.get(), key: key.to_vec() });
                    rest = behind;
                }
                let flags = answer.flags.get();
                assert!(flags & SCAN_END == 0 || flags & SCAN_BATCH_END != 0);
                Ok((batch, flags & SCAN_END != 0))
            }
            SignalNumber::ScanRefuse => {
                let (refusal, _) = frame.head::<ScanRefusal>()?;
                if refusal.scan.get() != NAME {
                    return None;
                }
                Err(code(refusal.code))
            }
            _ => return None,
        };
        Some(answer)
    }
}

fn put_ranges(w: &mut FrameWriter<'_>, ranges: &[(Vec<u8>, Vec<u8>)]) {
    for (low, high) in ranges {
        let (low_bytes, high_bytes) = (U16::new(low.len() as u16), U16::new(high.len() as u16));
        w.put(&RangeHead { low_bytes, high_bytes }).bytes(low).bytes(high);
    }
}

/// Takes an answer to a question for statistics; `None` if the frame is something else.
pub(super) fn receive_statistics(frame: &Frame<'_>) -> Option<Result<Statistics, ErrorCode>> {
    match frame.signal()? {
        SignalNumber::IndexStatisticsConfirm => {
            let (answer, rest) = frame.head::<IndexStatisticsAnswer>()?;
            let (columns, ranges) = (usize::from(answer.columns.get()), usize::from(answer.ranges.get()));
            let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            let numbers: Vec<u64> = rest.chunks_exact(8).take(columns + ranges).map(number).collect();
            assert_eq!((answer.request.get(), numbers.len()), (5, columns + ranges));
            Some(Ok((answer.entries.get(), numbers[..columns].to_vec(), numbers[columns..].to_vec())))
        }
        SignalNumber::IndexStatisticsRefuse => {
            Some(Err(code(frame.head::<IndexStatisticsRefusal>()?.0.code)))
        }
        _ => None,
    }
}
