//! Scans, partition after partition.

use super::{Client, LinkKey, Surroundings};
use crate::agenda::Time;
use vinga_base::{PartitionId, TablePartitions};
use vinga_client_core::{Merge, ScanRows};
use vinga_kernel::InjectedBug;
use vinga_kernel::injected_bug::is_on;
use vinga_wire::operation::ALL_COLUMNS;
use vinga_wire::range_scan::{RANGE_DESCENDING, RANGE_KEYS, RangeHead, RangeScanOpenHead};
use vinga_wire::scan::{
    COUNT_ROWS, SCAN_BATCH_END, SCAN_END, ScanAnswer, ScanBody, ScanOpenHead, ScanRefusal,
};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, U16, U32, U64};
use vinga_workloads::history::ScanRecord;
use vinga_workloads::shape::{Shape, Value};
use vinga_workloads::step::{Answer, Batch, Scan};

/// A scan that a session has open.
pub struct OpenScan {
    scan: Scan,
    /// Its place in the history.
    index: usize,
    /// The id and version of the table that it names.
    table: (u32, u64),
    /// The table's partitions, and which of them is the present one.
    partitions: TablePartitions,
    part: usize,
    /// The data manager of the present partition, and the scan's name there; `None` between partitions.
    at: Option<(Address, u32)>,
    /// Since when the present batch is awaited.
    awaited: Option<Time>,
    rows: Vec<(u64, Value)>,
    /// Puts rows of all partitions in one order; `None` if they are given as they come.
    merge: Option<Merge>,
}

/// Bytes of a batch.
const BATCH_BYTES: u32 = 16 * 1024;

impl OpenScan {
    /// The present partition.
    fn partition(&self) -> PartitionId {
        self.partitions.iter().nth(self.part).expect("a scan ends with its last partition")
    }

    /// Writes down rows and keeps them for the session.
    fn take_rows(&mut self, cx: &mut Surroundings<'_>, rows: &ScanRows, awaited: Time) {
        if let Some(range) = self.scan.range.filter(|_| self.scan.counts_itself()) {
            let shape = &cx.shapes[usize::from(self.scan.table.0)];
            let record = &mut cx.history.scans[self.index];
            for bytes in rows.iter() {
                record.counted += 1;
                let count = shape.read_count_alone(bytes);
                if !count.as_ref().is_ok_and(|&count| range.holds(Value { value: 0, count })) {
                    cx.violations.push(format!("the scan of {range:?} that counts met count {count:?}"));
                }
            }
            return;
        }
        if self.scan.counts {
            for figure in rows.iter() {
                match figure.try_into() {
                    Ok(figure) => cx.history.scans[self.index].counted += u64::from_le_bytes(figure),
                    Err(_) => cx.violations.push(format!("a figure of {} bytes", figure.len())),
                }
            }
            return;
        }
        let shape = &cx.shapes[usize::from(self.scan.table.0)];
        for bytes in rows.iter() {
            match shape.read(self.scan.selects, bytes) {
                Ok((key, value)) => {
                    self.rows.push((key, value));
                    cx.history.scans[self.index].rows.push((awaited, cx.now, key, value));
                }
                Err(what) => cx.violations.push(what),
            }
        }
    }
}

impl Client {
    pub(super) fn open_scan(&mut self, cx: &mut Surroundings<'_>, session: usize, scan: Scan) {
        let transaction = match (scan.own_before, &self.sessions[session].transaction) {
            (None, _) => None,
            (Some(_), Some(transaction)) => Some(transaction.index),
            (Some(_), None) => {
                self.fail(session, ErrorCode::ConnectionLost);
                return;
            }
        };
        let index = cx.history.scans.len();
        cx.history.scans.push(ScanRecord {
            scan: scan.clone(),
            version: self.birth(scan.table),
            transaction,
            opened: cx.now,
            ended: None,
            parts: Vec::new(),
            rows: Vec::new(),
            counted: 0,
        });
        let partitions = self.partitions(scan.table);
        let merged = scan.range.filter(|range| range.is_merged && !scan.counts);
        let merge = merged.map(|range| Merge::new(partitions.len(), range.is_descending));
        let table = self.table(scan.table);
        let open = OpenScan {
            scan,
            index,
            table,
            partitions,
            part: 0,
            at: None,
            awaited: None,
            rows: Vec::new(),
            merge,
        };
        self.sessions[session].scan = Some(open);
        self.next_batch(cx, session);
    }

    /// Asks for the next batch: of the partition that is open, or of the next one.
    pub(super) fn next_batch(&mut self, cx: &mut Surroundings<'_>, session: usize) {
        let Some(scan) = &mut self.sessions[session].scan else {
            self.fail(session, ErrorCode::NoSuchScan);
            return;
        };
        // A merged scan gives all its rows at once: they are awaited from the beginning on.
        if scan.merge.is_none() || scan.awaited.is_none() {
            scan.awaited = Some(cx.now);
        }
        if let Some((owner, name)) = scan.at {
            let sent = self.link_to(owner).and_then(|link| {
                let body = ScanBody { scan: U32::new(name) };
                self.frame(link, SignalNumber::ScanNextRequest, owner, name)?.put(&body);
                Some(())
            });
            if sent.is_none() {
                self.fail_scan(session, ErrorCode::NodeFailure);
            }
            return;
        }
        let name = self.next_tag();
        let scan = self.sessions[session].scan.as_mut().expect("it is open");
        let owner = self.view_known.partition(scan.partition()).primary();
        scan.at = Some((owner, name));
        let Some(link) = self.link_to(owner) else {
            self.learn_layout();
            self.fail_scan(session, ErrorCode::ClusterFailure);
            return;
        };
        self.send_open(cx, session, link, owner, name);
    }

    fn send_open(&mut self, cx: &Surroundings<'_>, session: usize, link: LinkKey, owner: Address, name: u32) {
        let state = &self.sessions[session];
        let open = state.scan.as_ref().expect("it is open");
        let (OpenScan { scan, table: (table, version), .. }, partition) = (open, open.partition());
        let shape = &cx.shapes[usize::from(scan.table.0)];
        let own = scan.own_before.and(state.transaction.as_ref()).map_or(0, |transaction| transaction.id.0);
        let selection = match scan {
            scan if scan.counts_itself() => shape.count_alone(),
            Scan { selects: true, counts: false, .. } => shape.selection(),
            Scan { .. } => &[],
        };
        let filter = shape.filter(scan.condition.as_ref());
        let version = U64::new(*version);
        let columns = U16::new(match scan {
            scan if scan.counts && !scan.counts_itself() => COUNT_ROWS,
            Scan { selects: true, .. } => selection.len() as u16,
            Scan { .. } => ALL_COLUMNS,
        });
        // Several figures of a partition.
        let batch_bytes =
            U32::new(if columns.get() == COUNT_ROWS { scan.batch_rows.into() } else { BATCH_BYTES });
        if let Some(range) = scan.range {
            let head = RangeScanOpenHead {
                version,
                transaction: U64::new(own),
                scan: U32::new(name),
                table: U32::new(*table),
                operation: U32::new(scan.own_before.unwrap_or(0)),
                batch_bytes,
                limit: U32::ZERO,
                from_row: U32::ZERO,
                from_range: U16::ZERO,
                key_bytes: U16::ZERO,
                index: U16::new(shape.count_index().expect("ranges are of tables with this index")),
                partition: U16::new(partition.0),
                batch_rows: U16::new(scan.batch_rows),
                columns,
                filter_bytes: U16::new(filter.len() as u16),
                ranges: U16::new(1),
                flags: U16::new(RANGE_KEYS | if range.is_descending { RANGE_DESCENDING } else { 0 }),
                unused: U16::ZERO,
            };
            let mut frame =
                self.frame(link, SignalNumber::RangeScanOpenRequest, owner, name).expect("the link is open");
            frame.put(&head);
            for column in selection {
                frame.bytes(&column.0.to_le_bytes());
            }
            let (low, high) = (Shape::count_key(range.low), Shape::count_key(range.high));
            frame.bytes(&filter).put(&RangeHead { low_bytes: U16::new(8), high_bytes: U16::new(8) });
            frame.bytes(&low).bytes(&high);
            return;
        }
        let head = ScanOpenHead {
            version,
            transaction: U64::new(own),
            scan: U32::new(name),
            table: U32::new(*table),
            operation: U32::new(scan.own_before.unwrap_or(0)),
            from_row: U32::ZERO,
            batch_bytes,
            limit: U32::ZERO,
            partition: U16::new(partition.0),
            batch_rows: U16::new(scan.batch_rows),
            columns,
            filter_bytes: U16::new(filter.len() as u16),
        };
        let mut frame =
            self.frame(link, SignalNumber::ScanOpenRequest, owner, name).expect("the link is open");
        frame.put(&head);
        for column in selection {
            frame.bytes(&column.0.to_le_bytes());
        }
        frame.bytes(&filter);
    }

    /// The session whose scan has this name.
    fn find_scan(&self, owner: Address, name: u32) -> Option<usize> {
        let is_it = |scan: &OpenScan| scan.at == Some((owner, name));
        self.sessions.iter().position(|session| session.scan.as_ref().is_some_and(is_it))
    }

    pub(super) fn on_scan_confirm(&mut self, cx: &mut Surroundings<'_>, frame: &Frame<'_>) -> Option<()> {
        let (answer, rest) = frame.head::<ScanAnswer>()?;
        self.note_epoch(answer.epoch.get());
        let Some(session) = self.find_scan(frame.sender(), answer.scan.get()) else { return Some(()) };
        let open = self.sessions[session].scan.as_mut().expect("found just now");
        let Some(awaited) = open.awaited else {
            cx.violations.push("a scan sent rows that nobody asked for".to_string());
            return Some(());
        };
        cx.violations.extend(cx.changes.check(open.scan.table, open.table.1, awaited).err());
        let rows = match open.scan.range {
            Some(_) => ScanRows::of_ranges(answer.count.get(), rest)?,
            None => ScanRows::of_scan(answer.count.get(), rest)?,
        };
        let has_bug = is_on(cx.bug, InjectedBug::MergeIgnoresOrder);
        match &mut open.merge {
            Some(merge) if !has_bug => merge.push(open.part, rows),
            Some(_) | None => open.take_rows(cx, &rows, awaited),
        }
        let flags = answer.flags.get();
        if flags & SCAN_BATCH_END == 0 {
            return Some(());
        }
        let mut is_last = false;
        if flags & SCAN_END != 0 {
            if let Some(merge) = &mut open.merge {
                merge.end(open.part);
            }
            open.part += 1;
            open.at = None;
            is_last = open.part == open.partitions.len();
        }
        if open.merge.is_some() && !is_last {
            self.next_batch(cx, session);
            return Some(());
        }
        if let Some(mut merge) = open.merge.take().filter(|_| !has_bug) {
            let mut merged = ScanRows::default();
            merge.take(&mut merged, u32::MAX, usize::MAX, |_, _| {});
            open.take_rows(cx, &merged, awaited);
        } else if flags & SCAN_END != 0 && !open.scan.range.is_some_and(|range| range.is_merged) {
            let record = &mut cx.history.scans[open.index];
            record.parts.push(record.rows.len());
        }
        open.awaited = None;
        let rows = std::mem::take(&mut open.rows);
        if is_last {
            cx.history.scans[open.index].ended = Some(cx.now);
            self.sessions[session].scan = None;
        }
        self.answers.push_back((session, Answer::Batch(Batch { rows, is_last })));
        Some(())
    }

    pub(super) fn on_scan_refuse(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (refusal, _) = frame.head::<ScanRefusal>()?;
        let code = ErrorCode::from_number(refusal.code.get())?;
        if code == ErrorCode::Moved {
            self.learn_layout();
        }
        if let Some(session) = self.find_scan(frame.sender(), refusal.scan.get()) {
            self.fail_scan(session, code);
        }
        Some(())
    }

    pub(super) fn close_scan(&mut self, session: usize) {
        if let Some(OpenScan { at: Some((owner, name)), .. }) = self.sessions[session].scan.take()
            && let Some(link) = self.link_to(owner)
        {
            let body = ScanBody { scan: U32::new(name) };
            self.frame(link, SignalNumber::ScanCloseOrder, owner, name).expect("the link is open").put(&body);
        }
        self.answers.push_back((session, Answer::Done));
    }

    /// The scan is over; who waits for a batch is told.
    fn fail_scan(&mut self, session: usize, error: ErrorCode) {
        let scan = self.sessions[session].scan.take().expect("the caller has it");
        if scan.awaited.is_some() {
            self.fail(session, error);
        }
    }

    /// A data node is gone.
    pub(super) fn fail_scans_of(&mut self, node: u8) {
        for session in 0..self.sessions.len() {
            let at = self.sessions[session].scan.as_ref().and_then(|scan| scan.at);
            if at.is_some_and(|(owner, _)| owner.node().0 == node) {
                self.fail_scan(session, ErrorCode::NodeFailure);
            }
        }
    }

    /// All connections are gone.
    pub(super) fn lose_scans(&mut self) {
        for session in 0..self.sessions.len() {
            if self.sessions[session].scan.is_some() {
                self.fail_scan(session, ErrorCode::ConnectionLost);
            }
        }
    }
}
