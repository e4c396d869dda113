//! Ranges of ordered indexes. There is no index: the rows of a scan are sorted when it is opened, and stay as they are
//! then.

use super::{ScriptedNode, take_columns};
use crate::store::{Changes, Table, filter, partition, passes, row, select};
use vinga_base::hash::KeyHash;
use vinga_base::order_key::OrderKey;
use vinga_wire::range_scan::{
    IndexStatisticsAnswer, IndexStatisticsHead, RANGE_DESCENDING, RANGE_FROM_POSITION, RANGE_KEYS,
    RangeBounds, RangeRow, RangeScanOpenHead,
};
use vinga_wire::scan::{SCAN_BATCH_END, SCAN_END, ScanAnswer, ScanNextBody, ScanRefusal};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, U16, U32, U64};

/// One row of a scan.
struct Found {
    range: u16,
    key: Vec<u8>,
    row: u32,
    bytes: Vec<u8>,
}

/// A scan of ranges.
pub struct RangeScan {
    at: Address,
    rows: Vec<Found>,
    next: usize,
    batch_rows: usize,
    batch_bytes: usize,
    wants_keys: bool,
}

/// The keys of an index, each with the primary key of its row.
fn keys_of(
    table: &Table,
    key: &OrderKey,
    changes: &Changes,
    below: u32,
    is_here: impl Fn(&[u8]) -> bool,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let own = changes.iter().map(|(_, _, key, _)| key);
    let mut primary: Vec<&Vec<u8>> = table.rows.keys().chain(own).filter(|key| is_here(key)).collect();
    primary.sort();
    primary.dedup();
    let mut keys = Vec::new();
    for primary in primary {
        let Some(image) = row(table, changes, below, primary) else { continue };
        let (fixed, variable) = table.layout.split(image);
        let mut bytes = Vec::new();
        key.write_row(&table.layout, fixed, variable, &mut bytes);
        keys.push((bytes, primary.clone()));
    }
    keys.sort();
    keys
}

fn is_in(key: &[u8], bounds: &RangeBounds<'_>) -> bool {
    bounds.low <= key && (bounds.high.is_empty() || key < bounds.high)
}

impl ScriptedNode {
    fn index_key(table: &Table, index: u16) -> Result<OrderKey, ErrorCode> {
        let index = table.record.definition.index(index).ok_or(ErrorCode::NoSuchIndex)?;
        OrderKey::new(&table.layout, &index.columns).ok_or(ErrorCode::NoSuchIndex)
    }

    pub(super) fn on_range_scan_open(&mut self, api: u8, at: Address, frame: &Frame<'_>) -> Option<()> {
        let (head, mut rest) = frame.head::<RangeScanOpenHead>()?;
        let columns = take_columns(head.columns.get(), &mut rest)?;
        let (program, rest) = rest.split_at_checked(usize::from(head.filter_bytes.get()))?;
        let (from_key, mut rest) = rest.split_at_checked(usize::from(head.key_bytes.get()))?;
        assert_eq!(head.partition.get(), at.instance(), "each data manager has one partition");
        if self.refuses_scans > 0 {
            self.refuses_scans -= 1;
            return self.refuse_scan(api, at, head.scan.get(), ErrorCode::Overloaded);
        }
        let flags = head.flags.get();
        let is_descending = flags & RANGE_DESCENDING != 0;
        let none = Changes::new();
        let session = self.sessions.get(&api)?;
        let changes = session.open.get(&head.transaction.get()).map_or(&none, |open| &open.changes);
        let table = self.store.table(head.table.get(), head.version.get());
        let found = table.and_then(|table| {
            Ok((table, Self::index_key(table, head.index.get())?, filter(table, program)?))
        });
        let (table, key, filter) = match found {
            Ok(found) => found,
            Err(code) => return self.refuse_scan(api, at, head.scan.get(), code),
        };
        let below = head.operation.get();
        let data_managers = self.layout.data_managers;
        let mut keys =
            keys_of(table, &key, changes, below, |key| partition(key, data_managers) == at.instance());
        if is_descending {
            keys.reverse();
        }
        let mut rows = Vec::new();
        for range in 0..head.ranges.get() {
            let bounds = RangeBounds::take(&mut rest)?;
            for (key, primary) in keys.iter().filter(|(key, _)| is_in(key, &bounds)) {
                let image = row(table, changes, below, primary).expect("seen just now");
                if filter.as_ref().is_none_or(|filter| passes(table, filter, image)) {
                    let bytes = select(table, image, columns.as_ref());
                    rows.push(Found { range, key: key.clone(), row: KeyHash::of(primary).0 as u32, bytes });
                }
            }
        }
        if flags & RANGE_FROM_POSITION != 0 {
            let position = |found: &Found| {
                found.range == head.from_range.get()
                    && found.row == head.from_row.get()
                    && found.key == from_key
            };
            let behind = rows.iter().position(position).expect("nothing was removed") + 1;
            rows.drain(..behind);
        }
        if head.limit.get() > 0 {
            rows.truncate(head.limit.get() as usize);
        }
        let scan = RangeScan {
            at,
            rows,
            next: 0,
            batch_rows: head.batch_rows.get().into(),
            batch_bytes: head.batch_bytes.get() as usize,
            wants_keys: flags & RANGE_KEYS != 0,
        };
        self.sessions.get_mut(&api)?.ranges.insert(head.scan.get(), scan);
        self.range_batch(api, head.scan.get());
        Some(())
    }

    fn refuse_scan(&mut self, api: u8, at: Address, scan: u32, code: ErrorCode) -> Option<()> {
        let body = ScanRefusal {
            scan: U32::new(scan),
            next_row: U32::ZERO,
            code: U16::new(code as u16),
            unused: U16::ZERO,
        };
        self.send(api, at, SignalNumber::ScanRefuse, |w| {
            w.put(&body);
        });
        Some(())
    }

    /// Closes all scans of ranges that wait for their consumers, as if these had been idle too long.
    pub fn time_out_scans(&mut self) {
        let apis: Vec<u8> = self.sessions.keys().copied().collect();
        for api in apis {
            let scans = std::mem::take(&mut self.sessions.get_mut(&api).expect("just listed").ranges);
            for (name, scan) in scans {
                self.refuse_scan(api, scan.at, name, ErrorCode::ScanTimeout);
            }
        }
    }

    /// The next batch of a scan of ranges; false if it is none.
    pub(super) fn range_next(&mut self, api: u8, frame: &Frame<'_>) -> Option<bool> {
        let (body, _) = frame.head::<ScanNextBody>()?;
        let name = body.scan.get();
        let Some(scan) = self.sessions.get_mut(&api)?.ranges.get_mut(&name) else { return Some(false) };
        if body.batch_rows.get() != 0 {
            scan.batch_rows = body.batch_rows.get().into();
            scan.batch_bytes = body.batch_bytes.get() as usize;
        }
        self.range_batch(api, name);
        Some(true)
    }

    fn range_batch(&mut self, api: u8, name: u32) {
        let session = self.sessions.get_mut(&api).expect("it has sent a frame");
        let scan = session.ranges.get_mut(&name).expect("the caller has it");
        let mut out = Vec::new();
        let mut count = 0;
        while let Some(found) = scan.rows.get(scan.next) {
            if count == scan.batch_rows || out.len() >= scan.batch_bytes {
                break;
            }
            let key = if scan.wants_keys { found.key.as_slice() } else { &[] };
            let head = RangeRow {
                row: found.row.into(),
                range: found.range.into(),
                key_bytes: (key.len() as u16).into(),
                row_bytes: (found.bytes.len() as u16).into(),
            };
            out.extend_from_slice(zerocopy::IntoBytes::as_bytes(&head));
            out.extend_from_slice(key);
            out.extend_from_slice(&found.bytes);
            (count, scan.next) = (count + 1, scan.next + 1);
        }
        let at = scan.at;
        let ends = scan.next == scan.rows.len();
        if ends {
            session.ranges.remove(&name);
        }
        let head = ScanAnswer {
            epoch: U64::new(self.epoch),
            scan: U32::new(name),
            next_row: U32::ZERO,
            count: U16::new(count as u16),
            flags: U16::new(SCAN_BATCH_END | if ends { SCAN_END } else { 0 }),
        };
        self.send(api, at, SignalNumber::ScanConfirm, |w| {
            w.put(&head).bytes(&out);
        });
    }

    pub(super) fn on_index_statistics(&mut self, api: u8, at: Address, frame: &Frame<'_>) -> Option<()> {
        let (head, mut rest) = frame.head::<IndexStatisticsHead>()?;
        let table = self.store.table(head.table.get(), head.version.get()).ok()?;
        let key = Self::index_key(table, head.index.get()).ok()?;
        let here = |key: &[u8]| partition(key, self.layout.data_managers) == at.instance();
        let keys = keys_of(table, &key, &Changes::new(), u32::MAX, here);
        let mut out = Vec::new();
        for column in 0..key.columns() {
            let beginning = |(bytes, _): &(Vec<u8>, Vec<u8>)| {
                let mut ends = Vec::new();
                key.column_ends(bytes, &mut ends);
                bytes[..ends[column]].to_vec()
            };
            let mut distinct: Vec<Vec<u8>> = keys.iter().map(beginning).collect();
            distinct.dedup();
            out.extend_from_slice(&(distinct.len() as u64).to_le_bytes());
        }
        for _ in 0..head.ranges.get() {
            let bounds = RangeBounds::take(&mut rest)?;
            let rows = keys.iter().filter(|(key, _)| is_in(key, &bounds)).count();
            out.extend_from_slice(&(rows as u64).to_le_bytes());
        }
        let body = IndexStatisticsAnswer {
            entries: U64::new(keys.len() as u64),
            request: head.request,
            columns: U16::new(key.columns() as u16),
            ranges: head.ranges,
        };
        self.send(api, at, SignalNumber::IndexStatisticsConfirm, |w| {
            w.put(&body).bytes(&out);
        });
        Some(())
    }
}
