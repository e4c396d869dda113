//! Scans: one on the wire for each partition, several at a time, batches handed over as they come.
//!
//! A partition's next batch is asked for when the one before has arrived and not more than one batch of it waits to be
//! taken, so a consumer that is slower than the data nodes holds at most about two batches of each open partition in
//! memory, and none that keeps up ever waits for a round trip.
//!
//! A scan that a data manager closed because its consumer was idle too long is opened again where it came to, unless it
//! belongs to a transaction.

use crate::error::{Error, Result};
use crate::net::{Net, TokenKind};
use crate::settings::SCANS_MAX;
use crate::table::Table;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use vinga_base::pool::{Handle, Pool};
use vinga_base::{ColumnId, OperationNumber, TransactionId};
use vinga_wire::operation::ALL_COLUMNS;
use vinga_wire::scan::{SCAN_BATCH_END, SCAN_END, ScanAnswer, ScanBody, ScanOpenHead, ScanRefusal};
use vinga_wire::{ErrorCode, Frame, SignalNumber, U16, U32, U64};

/// What is scanned, and in which portions.
#[derive(Clone, Debug)]
pub struct ScanSpec {
    /// Which columns, in this order; `None` for whole images.
    pub columns: Option<Vec<ColumnId>>,
    /// Condition on the rows, as a filter program; empty for none.
    pub filter: Vec<u8>,
    /// Rows after which the scan ends; 0 for no limit.
    pub limit: u32,
    /// Rows of one batch, at least 1.
    pub batch_rows: u16,
    /// Bytes of rows of one batch.
    pub batch_bytes: u32,
    /// Partitions that are scanned at the same time, at least 1.
    pub parallel: u16,
}

impl Default for ScanSpec {
    fn default() -> Self {
        ScanSpec {
            columns: None,
            filter: Vec::new(),
            limit: 0,
            batch_rows: 1024,
            batch_bytes: 64 * 1024,
            parallel: 16,
        }
    }
}

/// Rows of one partition, in a frame's form: each behind its length.
#[derive(Default, Debug)]
pub struct ScanRows {
    bytes: Vec<u8>,
    count: u32,
}

impl ScanRows {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The rows, each an image or a selection as was asked for.
    pub fn iter(&self) -> ScanRowsIter<'_> {
        ScanRowsIter { rest: &self.bytes, left: self.count }
    }

    /// The row at this byte offset, from 0, and the offset of the row behind it; `None` at the end.
    pub fn row_at(&self, offset: usize) -> Option<(&[u8], usize)> {
        let length = self.bytes.get(offset..offset + 2)?;
        let end = offset + 2 + usize::from(u16::from_le_bytes([length[0], length[1]]));
        Some((self.bytes.get(offset + 2..end)?, end))
    }

    /// Whether the rows are all there; cuts what pads the frame.
    fn check(&mut self) -> Option<()> {
        let mut end = 0;
        for _ in 0..self.count {
            (_, end) = self.row_at(end)?;
        }
        self.bytes.truncate(end);
        Some(())
    }

    /// Keeps only the first rows.
    fn truncate(&mut self, count: u32) {
        self.count = self.count.min(count);
        self.check().expect("checked when it came");
    }
}

/// See [`ScanRows::iter`].
pub struct ScanRowsIter<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Iterator for ScanRowsIter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (length, rest) = self.rest.split_first_chunk::<2>().expect("checked when it came");
        let (row, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)));
        self.rest = rest;
        Some(row)
    }
}

/// What a scan has for its consumer.
#[derive(Debug)]
pub enum ScanProgress {
    /// Rows.
    Rows(ScanRows),
    /// Nothing yet; there will be news.
    Waiting,
    /// It is over: all rows have been taken, or an error ended it.
    Ended(Result<()>),
}

enum PartState {
    Waiting,
    /// A batch is on its way.
    Fetching,
    /// A batch has arrived; the next has not been asked for.
    Paused,
    Done,
}

struct Part {
    state: PartState,
    /// Its name on the wire, while it is open.
    wire: u32,
    next_row: u32,
    /// Bytes that have arrived and were not taken.
    held_bytes: usize,
}

struct Scan {
    spec: ScanSpec,
    table: u32,
    version: u64,
    transaction: TransactionId,
    operation: OperationNumber,
    parts: Vec<Part>,
    open: u16,
    ready: VecDeque<(usize, ScanRows)>,
    rows_left: u32,
    ended: Option<Result<()>>,
}

/// See the head of this file.
pub(crate) struct Scans {
    pool: Pool<Scan>,
    /// Scan and partition by name on the wire.
    by_wire: BTreeMap<u32, (Handle, usize)>,
    next_wire: u32,
    spare: Vec<ScanRows>,
}

/// Buffers that are kept for later batches, at most.
const SPARE_MAX: usize = 64;

impl Scans {
    pub fn new() -> Self {
        Scans { pool: Pool::new(SCANS_MAX), by_wire: BTreeMap::new(), next_wire: 0, spare: Vec::new() }
    }

    /// Begins a scan. With a transaction it sees its changes with lower operation numbers.
    pub fn open(
        &mut self,
        net: &mut Net,
        table: &Table,
        spec: ScanSpec,
        within: Option<(TransactionId, OperationNumber)>,
    ) -> Result<Handle> {
        if net.routes.partitions() == 0 {
            return Err(Error::new(ErrorCode::ClusterFailure));
        }
        if spec.batch_rows == 0 || spec.parallel == 0 || spec.filter.len() > usize::from(u16::MAX) {
            return Err(Error::with_detail(ErrorCode::BadProgram, "a scan without room for rows"));
        }
        let (transaction, operation) = within.unwrap_or((TransactionId::NONE, OperationNumber(0)));
        let part = || Part { state: PartState::Waiting, wire: 0, next_row: 0, held_bytes: 0 };
        let scan = Scan {
            table: table.id().0,
            version: table.version().0,
            transaction,
            operation,
            parts: (0..net.routes.partitions()).map(|_| part()).collect(),
            open: 0,
            ready: VecDeque::new(),
            rows_left: if spec.limit == 0 { u32::MAX } else { spec.limit },
            ended: None,
            spec,
        };
        let handle = self
            .pool
            .insert(scan)
            .map_err(|_| Error::with_detail(ErrorCode::OutOfScans, "this client has too many open scans"))?;
        self.open_parts(net, handle);
        Ok(handle)
    }

    /// Opens partitions that wait, as many as may be open.
    fn open_parts(&mut self, net: &mut Net, handle: Handle) {
        for at in 0..self.pool[handle].parts.len() {
            let scan = &self.pool[handle];
            if scan.ended.is_some() || scan.open >= scan.spec.parallel {
                return;
            }
            if matches!(scan.parts[at].state, PartState::Waiting) {
                self.open_part(net, handle, at);
            }
        }
    }

    fn open_part(&mut self, net: &mut Net, handle: Handle, at: usize) {
        self.next_wire = self.next_wire.wrapping_add(1);
        let wire = self.next_wire;
        let scan = &mut self.pool[handle];
        let way = net.routes.way(at);
        let Some((link, data_manager)) = way else {
            return self.end(net, handle, Err(Error::new(ErrorCode::ClusterFailure)));
        };
        let part = &mut scan.parts[at];
        (part.state, part.wire) = (PartState::Fetching, wire);
        scan.open += 1;
        let columns = scan.spec.columns.as_ref();
        let mut writer = net.frame(link, SignalNumber::ScanOpenRequest, data_manager);
        writer.put(&ScanOpenHead {
            version: U64::new(scan.version),
            transaction: U64::new(scan.transaction.0),
            scan: U32::new(wire),
            table: U32::new(scan.table),
            operation: U32::new(scan.operation.0),
            from_row: U32::new(part.next_row),
            batch_bytes: U32::new(scan.spec.batch_bytes),
            limit: U32::new(if scan.spec.limit == 0 { 0 } else { scan.rows_left }),
            partition: U16::new(at as u16),
            batch_rows: U16::new(scan.spec.batch_rows),
            columns: U16::new(columns.map_or(ALL_COLUMNS, |columns| columns.len() as u16)),
            filter_bytes: U16::new(scan.spec.filter.len() as u16),
        });
        for column in columns.into_iter().flatten() {
            writer.put(&U16::new(column.0));
        }
        writer.bytes(&scan.spec.filter);
        drop(writer);
        net.link(link).hurry();
        self.by_wire.insert(wire, (handle, at));
    }

    /// Says something about an open partition to its data manager.
    fn send_body(&mut self, net: &mut Net, signal: SignalNumber, at: usize, wire: u32) {
        let way = net.routes.way(at);
        // Without a way the connection is lost, and the scan with it.
        let Some((link, data_manager)) = way else { return };
        net.frame(link, signal, data_manager).put(&ScanBody { scan: U32::new(wire) });
        net.link(link).hurry();
    }

    pub fn on_confirm(&mut self, net: &mut Net, frame: &Frame<'_>) -> Option<()> {
        let (answer, rows) = frame.head::<ScanAnswer>()?;
        net.note_epoch(answer.epoch.get());
        let flags = answer.flags.get();
        // A scan that was closed meanwhile.
        let Some(&(handle, at)) = self.by_wire.get(&answer.scan.get()) else { return Some(()) };
        let mut batch = self.spare.pop().unwrap_or_default();
        batch.count = u32::from(answer.count.get());
        batch.bytes.clear();
        batch.bytes.extend_from_slice(rows);
        batch.check()?;
        let scan = &mut self.pool[handle];
        batch.truncate(scan.rows_left);
        scan.rows_left -= if scan.spec.limit == 0 { 0 } else { batch.count };
        let part = &mut scan.parts[at];
        part.next_row = answer.next_row.get();
        if !batch.is_empty() {
            part.held_bytes += batch.bytes.len();
            scan.ready.push_back((at, batch));
            net.tell(TokenKind::Scan, handle);
        }
        if flags & SCAN_END != 0 {
            self.part_ended(net, handle, at);
        } else if flags & SCAN_BATCH_END != 0 {
            part.state = PartState::Paused;
            self.fetch_if_room(net, handle, at);
        }
        if self.pool[handle].rows_left == 0 {
            self.end(net, handle, Ok(()));
        }
        Some(())
    }

    fn part_ended(&mut self, net: &mut Net, handle: Handle, at: usize) {
        let scan = &mut self.pool[handle];
        self.by_wire.remove(&scan.parts[at].wire);
        scan.parts[at].state = PartState::Done;
        scan.open -= 1;
        self.open_parts(net, handle);
        if self.pool[handle].open == 0 {
            self.end(net, handle, Ok(()));
        }
    }

    fn fetch_if_room(&mut self, net: &mut Net, handle: Handle, at: usize) {
        let scan = &mut self.pool[handle];
        let part = &mut scan.parts[at];
        if matches!(part.state, PartState::Paused)
            && part.held_bytes <= scan.spec.batch_bytes as usize
            && scan.rows_left > 0
        {
            part.state = PartState::Fetching;
            let wire = part.wire;
            self.send_body(net, SignalNumber::ScanNextRequest, at, wire);
        }
    }

    pub fn on_refuse(&mut self, net: &mut Net, frame: &Frame<'_>) -> Option<()> {
        let (refusal, _) = frame.head::<ScanRefusal>()?;
        let Some((handle, at)) = self.by_wire.remove(&refusal.scan.get()) else { return Some(()) };
        let scan = &mut self.pool[handle];
        let part = &mut scan.parts[at];
        part.next_row = refusal.next_row.get();
        scan.open -= 1;
        let error = Error::from_wire(refusal.code.get());
        if error.code() == ErrorCode::ScanTimeout && scan.transaction == TransactionId::NONE {
            // Only an idle consumer lets it come to that, so this does not go round by itself.
            part.state = PartState::Waiting;
            self.open_part(net, handle, at);
        } else {
            part.state = PartState::Done;
            self.end(net, handle, Err(error));
        }
        Some(())
    }

    /// The scan is over; what has arrived can still be taken if it ended well.
    fn end(&mut self, net: &mut Net, handle: Handle, result: Result<()>) {
        if self.pool[handle].ended.is_some() {
            return;
        }
        self.close_parts(net, handle);
        let scan = &mut self.pool[handle];
        if result.is_err() {
            scan.ready.clear();
        }
        scan.ended = Some(result);
        net.tell(TokenKind::Scan, handle);
    }

    fn close_parts(&mut self, net: &mut Net, handle: Handle) {
        for at in 0..self.pool[handle].parts.len() {
            let part = &mut self.pool[handle].parts[at];
            if matches!(part.state, PartState::Fetching | PartState::Paused) {
                part.state = PartState::Done;
                let wire = part.wire;
                self.by_wire.remove(&wire);
                self.send_body(net, SignalNumber::ScanCloseOrder, at, wire);
            }
        }
    }

    /// Takes what the scan has for its consumer. After it has ended it is gone.
    pub fn next(&mut self, net: &mut Net, handle: Handle) -> ScanProgress {
        let Some(scan) = self.pool.get_mut(handle) else {
            return ScanProgress::Ended(Err(Error::new(ErrorCode::NoSuchScan)));
        };
        if let Some((at, rows)) = scan.ready.pop_front() {
            scan.parts[at].held_bytes -= rows.bytes.len();
            if scan.ended.is_none() {
                self.fetch_if_room(net, handle, at);
            }
            return ScanProgress::Rows(rows);
        }
        match scan.ended.take() {
            Some(result) => {
                self.pool.remove(handle);
                ScanProgress::Ended(result)
            }
            None => ScanProgress::Waiting,
        }
    }

    /// Gives the memory of rows back that have been looked at.
    pub fn recycle(&mut self, rows: ScanRows) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(rows);
        }
    }

    /// Nobody wants its rows any more.
    pub fn cancel(&mut self, net: &mut Net, handle: Handle) {
        if self.pool.get(handle).is_some() {
            self.close_parts(net, handle);
            self.pool.remove(handle);
        }
    }

    /// All connections to an endpoint are gone.
    pub fn on_lost(&mut self, net: &mut Net, endpoint: u16) {
        let is_lost = |net: &Net, at: usize| {
            let link = net.routes.partition(at).and_then(|route| route.link);
            link.is_some_and(|link| link.endpoint() == endpoint)
        };
        let mut lost: Vec<Handle> =
            self.by_wire.values().filter(|(_, at)| is_lost(net, *at)).map(|(handle, _)| *handle).collect();
        lost.dedup();
        for handle in lost {
            self.end(net, handle, Err(Error::new(ErrorCode::ConnectionLost)));
        }
    }

    /// Whether there are none.
    pub fn is_at_rest(&self) -> bool {
        self.pool.used() == 0 && self.by_wire.is_empty()
    }
}
