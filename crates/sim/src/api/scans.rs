//! Scans of tables and of ranges.

use crate::agenda::Time;
use crate::api::caller::{Caller, Surroundings};
use vinga_base::TablePartitions;
use vinga_client_core::{RangeSpec, ScanProgress, ScanRows, ScanSpec, Token};
use vinga_kernel::InjectedBug;
use vinga_kernel::injected_bug::is_on;
use vinga_wire::ErrorCode;
use vinga_workloads::history::ScanRecord;
use vinga_workloads::shape::{Shape, Value};
use vinga_workloads::step::{Answer, Batch, Scan};

/// A scan that a session has open.
pub struct OpenScan {
    token: Token,
    scan: Scan,
    /// Its place in the history.
    index: usize,
    /// The version of the table that it names.
    version: u64,
    partitions: TablePartitions,
    opened: Time,
    /// Whether the session waits for rows.
    is_awaited: bool,
}

impl OpenScan {
    pub fn token(&self) -> Token {
        self.token
    }

    pub fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Writes down rows; returns those that the session gets.
    fn look_at(&self, cx: &mut Surroundings<'_>, rows: &ScanRows) -> Vec<(u64, Value)> {
        cx.violations.extend(cx.changes.check(self.scan.table, self.version, self.opened).err());
        let shape = cx.shape(self.scan.table);
        let record = &mut cx.history.scans[self.index];
        if let Some(range) = self.scan.range.filter(|_| self.scan.counts_itself()) {
            for bytes in rows.iter() {
                record.counted += 1;
                let count = shape.read_count_alone(bytes);
                if !count.as_ref().is_ok_and(|&count| range.holds(Value { value: 0, count })) {
                    cx.violations.push(format!("the scan of {range:?} that counts met count {count:?}"));
                }
            }
            return Vec::new();
        }
        if self.scan.counts {
            for figure in rows.iter() {
                match figure.try_into() {
                    Ok(figure) => record.counted += u64::from_le_bytes(figure),
                    Err(_) => cx.violations.push(format!("a figure of {} bytes", figure.len())),
                }
            }
            return Vec::new();
        }
        let is_merged = self.scan.range.is_some_and(|range| range.is_merged);
        let mut taken = Vec::new();
        for bytes in rows.iter() {
            match shape.read(self.scan.selects, bytes) {
                Ok((key, value)) => {
                    taken.push((key, value));
                    // The client may have asked for it long before the session did.
                    record.rows.push((self.opened, cx.now, key, value));
                    if !is_merged {
                        record.parts.push(self.partitions.of(shape.key_hash(key)).0);
                    }
                }
                Err(what) => cx.violations.push(what),
            }
        }
        taken
    }
}

impl Caller {
    pub(super) fn open_scan(&mut self, cx: &mut Surroundings<'_>, session: usize, scan: Scan) {
        match self.try_scan(cx, session, scan) {
            Ok(open) => {
                if let Some(older) = self.sessions[session].scan.replace(open) {
                    self.client.cancel(older.token);
                }
                self.next_batch(cx, session);
            }
            Err(code) => self.fail(session, code),
        }
    }

    fn try_scan(
        &mut self,
        cx: &mut Surroundings<'_>,
        session: usize,
        scan: Scan,
    ) -> Result<OpenScan, ErrorCode> {
        let table = self.tables.get(&scan.table).ok_or(ErrorCode::NoSuchTable)?;
        let transaction = match (scan.own_before, &self.sessions[session].transaction) {
            (None, _) => None,
            (Some(before), Some(transaction)) => Some((transaction, transaction.number_from(before))),
            (Some(_), None) => return Err(ErrorCode::ConnectionLost),
        };
        let within = transaction.map(|(transaction, before)| (transaction.token(), before));
        let parallel = [1, 2, 16][self.random.usize(..3)];
        let spec = spec(cx, &scan, parallel);
        let token = self.client.scan(table, spec, within).map_err(|error| error.code())?;
        let index = cx.history.scans.len();
        cx.history.scans.push(ScanRecord {
            scan: scan.clone(),
            version: cx.changes.rows_of(table.birth().0),
            transaction: transaction.map(|(transaction, _)| transaction.index()),
            opened: cx.now,
            ended: None,
            parts: Vec::new(),
            rows: Vec::new(),
            counted: 0,
        });
        let (version, partitions) = (table.version().0, table.partitions().clone());
        Ok(OpenScan { token, scan, index, version, partitions, opened: cx.now, is_awaited: false })
    }

    /// The session waits for rows.
    pub(super) fn next_batch(&mut self, cx: &mut Surroundings<'_>, session: usize) {
        match &mut self.sessions[session].scan {
            Some(scan) => {
                scan.is_awaited = true;
                self.take_rows(cx, session);
            }
            None => self.fail(session, ErrorCode::NoSuchScan),
        }
    }

    pub(super) fn on_scan_news(&mut self, cx: &mut Surroundings<'_>, token: Token) {
        let is_it = |scan: &OpenScan| scan.token == token && scan.is_awaited;
        if let Some(session) = self.sessions.iter().position(|s| s.scan.as_ref().is_some_and(is_it)) {
            self.take_rows(cx, session);
        }
    }

    /// Gives a session that waits what its scan has.
    fn take_rows(&mut self, cx: &mut Surroundings<'_>, session: usize) {
        let open = self.sessions[session].scan.as_mut().expect("the session waits for it");
        let (rows, is_last) = match self.client.next_rows(open.token) {
            ScanProgress::Waiting => return,
            ScanProgress::Rows(rows) => (rows, false),
            ScanProgress::Last(rows) => (rows, true),
            ScanProgress::Ended(Ok(())) => (ScanRows::default(), true),
            ScanProgress::Ended(Err(error)) => {
                self.sessions[session].scan = None;
                return self.fail(session, error.code());
            }
        };
        open.is_awaited = false;
        let taken = open.look_at(cx, &rows);
        if is_last {
            cx.history.scans[open.index].ended = Some(cx.now);
            self.sessions[session].scan = None;
        }
        self.client.recycle(rows);
        self.answers.push_back((session, Answer::Batch(Batch { rows: taken, is_last })));
    }

    pub(super) fn close_scan(&mut self, session: usize) {
        if let Some(open) = self.sessions[session].scan.take() {
            self.client.cancel(open.token);
        }
        self.answers.push_back((session, Answer::Done));
    }
}

/// Bytes of a batch.
const BATCH_BYTES: u32 = 16 * 1024;

fn spec(cx: &Surroundings<'_>, scan: &Scan, parallel: u16) -> ScanSpec {
    let shape = cx.shape(scan.table);
    let counts = scan.counts && !scan.counts_itself();
    let columns = if scan.counts_itself() {
        Some(shape.count_alone())
    } else {
        (scan.selects && !counts).then(|| shape.selection())
    };
    let ranges = scan.range.map(|range| {
        let mut ranges = RangeSpec::new(shape.count_index().expect("ranges are of tables with this index"));
        ranges.push_bounds(&Shape::count_key(range.low), &Shape::count_key(range.high));
        ranges.is_descending = range.is_descending;
        ranges.in_order = range.is_merged && !is_on(cx.bug, InjectedBug::MergeIgnoresOrder);
        ranges
    });
    ScanSpec {
        columns: columns.map(<[_]>::to_vec),
        counts,
        filter: shape.filter(scan.condition.as_ref()),
        batch_rows: scan.batch_rows,
        // Several figures of a partition.
        batch_bytes: if counts { scan.batch_rows.into() } else { BATCH_BYTES },
        parallel,
        ranges,
        ..ScanSpec::default()
    }
}
