//! Scans: of all rows, of a range of an index, of many ranges.

use super::{
    Checked, Cursor, Extent, Hold, OpenScan, RangeOptions, ScanLock, Shown, Source, put_row, table_of,
};
use crate::condition;
use crate::failure::{Failure, Result, ha};
use crate::plan::{End, Projection};
use crate::session::Session;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vinga::{KeyRange, Lock, ScanRequest};

impl OpenScan {
    /// The bytes of a row that was shown.
    pub(super) fn row(&self, shown: &Shown) -> Option<&[u8]> {
        match (&self.source, shown) {
            (Source::Plain { rows, .. }, Shown::Scanned(offset)) => {
                rows.as_ref()?.ranged_at(*offset).map(|(row, _, _)| row)
            }
            (Source::Locked { rows, .. }, Shown::Locked(at)) => rows.as_ref()?.bytes(*at),
            _ => None,
        }
    }
}

impl Cursor {
    /// Sets the condition that the data nodes check in scans, or none if the program is empty; returns how much they
    /// check.
    pub fn set_condition(&mut self, program: &[u8]) -> Checked {
        let server = self.table.server();
        self.condition = match program {
            [] => None,
            program => condition::decode(program, &self.table.plan, server),
        };
        match &self.condition {
            None => Checked::None,
            Some(condition) if condition.is_whole => Checked::Whole,
            Some(_) => Checked::Part,
        }
    }

    /// Begins to read all rows.
    ///
    /// # Errors
    /// If the scan can't begin.
    pub fn begin_scan(&mut self, session: &mut Session, lock: ScanLock) -> Result<()> {
        let projection = Arc::clone(&self.projection);
        let request = self.request(session, &projection)?;
        let extent = if self.condition.is_none() { Extent::Whole } else { Extent::Part };
        self.begin(session, request, projection, lock, extent)
    }

    /// Begins to read a range of an ordered index.
    ///
    /// # Errors
    /// If the scan can't begin.
    pub fn begin_range(
        &mut self,
        session: &mut Session,
        key: usize,
        (low, high): (End<'_>, End<'_>),
        options: RangeOptions,
        lock: ScanLock,
    ) -> Result<()> {
        let range = self.table.plan.range(key, low, high, &session.node().server)?;
        self.begin_ranges(session, key, &[range], options, lock)
    }

    pub(super) fn begin_ranges(
        &mut self,
        session: &mut Session,
        key: usize,
        ranges: &[KeyRange],
        options: RangeOptions,
        lock: ScanLock,
    ) -> Result<()> {
        // A locking scan checks again, once a row is locked, whether the row lies in the range.
        let projection = match lock.lock {
            Lock::None => Arc::clone(&self.projection),
            Lock::Shared | Lock::Exclusive => self.projection_with_key(key),
        };
        let request = self.request_ranges(session, &projection, key, ranges, options)?;
        // A short scan continues if its first row was not enough.
        let enough = if lock.enough == 0 && options.is_short { 1 } else { lock.enough };
        self.begin(session, request, projection, ScanLock { enough, ..lock }, Extent::Part)
    }

    /// A scan of ranges of a key's ordered index.
    pub(super) fn request_ranges(
        &mut self,
        session: &mut Session,
        projection: &Projection,
        key: usize,
        ranges: &[KeyRange],
        options: RangeOptions,
    ) -> Result<ScanRequest> {
        let request = self.request(session, projection)?;
        let index = self.table.plan.ordered_index(key).unwrap_or_default();
        let mut request = ranges.iter().fold(request.index(index), ScanRequest::range);
        if options.is_descending {
            request = request.descending();
        }
        if options.in_order {
            request = request.in_order();
        }
        Ok(request)
    }

    /// A scan of all rows, under the condition that was set.
    pub(super) fn request(&mut self, session: &mut Session, projection: &Projection) -> Result<ScanRequest> {
        self.scan = None;
        let table = table_of(&self.table, projection, session)?;
        let mut request = session.cluster()?.as_async().scan(table);
        if let Some(condition) = &self.condition {
            let counters = &session.node().counters;
            counters.conditions.fetch_add(1, Ordering::Relaxed);
            counters.whole_conditions.fetch_add(condition.is_whole.into(), Ordering::Relaxed);
            request = request.filter(condition.filter.clone());
        }
        Ok(request)
    }

    /// The number of rows that fulfil the condition that was set; the data nodes count them.
    ///
    /// # Errors
    /// If the rows could not be counted.
    pub fn count_rows(&mut self, session: &mut Session) -> Result<u64> {
        let projection = Arc::clone(&self.projection);
        let request = self.request(session, &projection)?;
        let rows = count(session, request)?;
        if self.condition.is_none() {
            self.table.set_rows(rows);
        }
        Ok(rows)
    }

    /// The number of rows in the ranges of a key's ordered index that were added to the batch, under that condition.
    ///
    /// # Errors
    /// If the rows could not be counted.
    pub fn count_ranges(&mut self, session: &mut Session, key: usize) -> Result<u64> {
        let projection = Arc::clone(&self.projection);
        let ranges = std::mem::take(&mut self.batch_ranges);
        let any_order = RangeOptions { is_descending: false, in_order: false, is_short: false };
        let request = self.request_ranges(session, &projection, key, &ranges, any_order);
        self.batch_ranges = ranges;
        count(session, request?)
    }

    fn begin(
        &mut self,
        session: &mut Session,
        mut request: ScanRequest,
        projection: Arc<Projection>,
        ScanLock { lock, enough }: ScanLock,
        extent: Extent,
    ) -> Result<()> {
        let source = if lock == Lock::None {
            if enough != 0 {
                request = request.expect_rows(enough);
            }
            Source::Plain { scan: session.scan(request)?, rows: None, offset: 0 }
        } else {
            let mut scan = Box::new(session.scan_locked(request, self.row_lock(lock))?);
            if enough != 0 {
                scan.expect_rows(enough);
            }
            Source::Locked { scan, rows: None, next: 0 }
        };
        self.scan = Some(OpenScan { source, projection, extent, seen: 0 });
        Ok(())
    }

    /// Reads the next row of a scan; false at the end.
    ///
    /// # Errors
    /// If it ended early.
    #[inline]
    pub fn next(&mut self, session: &mut Session, record: &mut [u8]) -> Result<bool> {
        self.shown = Shown::Nothing;
        self.hold = Hold::default();
        let Some(mut open) = self.scan.take() else {
            return Err(Failure::new(ha::INTERNAL_ERROR, "there is no open scan"));
        };
        let next = self.next_of(&mut open, session, record);
        self.scan = Some(open);
        next
    }

    fn next_of(&mut self, open: &mut OpenScan, session: &mut Session, record: &mut [u8]) -> Result<bool> {
        let seen = match &mut open.source {
            Source::Plain { scan, rows, offset } => loop {
                if let Some((row, range, next)) = rows.as_ref().and_then(|rows| rows.ranged_at(*offset)) {
                    self.range = range;
                    self.shown = Shown::Scanned(*offset);
                    *offset = next;
                    put_row(&self.table, &open.projection, &mut self.hidden_key, row, record)?;
                    return Ok(true);
                }
                match session.next_rows(scan)? {
                    Some(more) => {
                        open.seen += more.len() as u64;
                        session.node().counters.scanned_rows.fetch_add(more.len() as u64, Ordering::Relaxed);
                        *rows = Some(more);
                        *offset = 0;
                    }
                    None => break open.seen,
                }
            },
            Source::Locked { scan, rows, next } => loop {
                if let Some((range, row)) = rows.as_ref().and_then(|rows| rows.ranged_bytes(*next)) {
                    self.range = range;
                    self.shown = Shown::Locked(*next);
                    if let Some(rows) = rows.as_ref() {
                        let is_locked = rows.is_locked(*next);
                        let operation = rows.operation(*next).filter(|_| is_locked);
                        self.hold = Hold { operation, is_lacking: !is_locked };
                    }
                    *next += 1;
                    put_row(&self.table, &open.projection, &mut self.hidden_key, row, record)?;
                    return Ok(true);
                }
                match session.next_locked(scan)? {
                    Some(more) => {
                        open.seen += more.len() as u64;
                        *rows = Some(more);
                        *next = 0;
                    }
                    None => break open.seen,
                }
            },
        };
        if open.extent == Extent::Whole {
            self.table.set_rows(seen);
        }
        Ok(false)
    }

    /// In which of the ranges of [`Cursor::begin_batch_scan`] the row that was read last lies, from 0.
    pub fn range(&self) -> u16 {
        self.range
    }
}

fn count(session: &mut Session, request: ScanRequest) -> Result<u64> {
    session.node().counters.counts.fetch_add(1, Ordering::Relaxed);
    session.count(request)
}
