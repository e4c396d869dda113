//! Scans: one on the wire for each partition, several at a time, rows handed over as they come, or merged.
//!
//! A partition's next batch is asked for when the one before has arrived, unless more than one batch waits to be taken.
//! So a consumer that is slower than the data nodes has about two batches of each open partition in memory, at most,
//! and one that keeps up never waits for a round trip. Ranges of an index are often short, and of long ones often few
//! rows are wanted. So their first batches are small, the second is asked for only when the first has been taken, and
//! batches grow from there ([`spec`]).
//!
//! A scan that a data manager closed because its consumer was idle too long is opened again where it came to, unless it
//! belongs to a transaction; what the transaction has changed meanwhile might come or not. The same goes for one that
//! was refused because too many answers waited, or because its partition is served by another data node now, after a
//! pause. To know where it came to, ranges come with their keys, unless one batch is sure to hold all of them. Scans
//! that count are one batch, whose figures say where to go on. Along an index they do not: there the figures of a part
//! are kept back until it has ended, and it begins anew.
//!
//! So does a part go on whose connection is lost, as soon as there is a way to its partition, if one may be hoped for:
//! rows have the same numbers at all replicas. They do not in another incarnation of the cluster, so scans end with it.
//!
//! Rows that a scan of a transaction gives are worth what the transaction is: one that data nodes have rolled back,
//! because it was idle for too long, say, has lost its changes, and word of that may come after the last rows. The end
//! of the transaction tells. Scans that are open when the word comes end with it.

mod merge;
mod rows;
pub(crate) mod spec;

pub use merge::Merge;
pub use rows::{ScanRow, ScanRows, ScanRowsIter};
pub use spec::{RangeSpec, ScanSpec};

use crate::error::{Error, Result};
use crate::link::LinkId;
use crate::net::{Net, TokenKind};
use crate::settings::{REFUSED_MAX, RESEND_PAUSE, SCANS_MAX};
use crate::table::Table;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use rows::Form;
use spec::{Opening, Position};
use vinga_base::pool::{Handle, Pool};
use vinga_base::time::Tick;
use vinga_base::{OperationNumber, PartitionId, TransactionId};
use vinga_wire::scan::{SCAN_BATCH_END, SCAN_END, ScanAnswer, ScanBody, ScanNextBody, ScanRefusal};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, U16, U32};

/// What a scan has for its consumer.
#[derive(Debug)]
pub enum ScanProgress {
    /// Rows.
    Rows(ScanRows),
    /// Its last rows: it has ended well.
    Last(ScanRows),
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
    /// It was refused for want of room and will be opened again.
    Refused,
    /// There is no way to the partition; it is opened, or opened again, when there is one. What it ends with if there
    /// is none.
    Lost(ErrorCode),
    Done,
}

struct Part {
    state: PartState,
    partition: PartitionId,
    /// Where it was opened last: by which connection, and at which data manager. It is there as long as the connection
    /// is, whoever owns the partition meanwhile.
    way: Option<(LinkId, Address)>,
    /// Its name on the wire, while it is open.
    wire: u32,
    position: Position,
    /// Rows of a batch as it was asked for last.
    batch_rows: u16,
    /// Bytes that have arrived and were not taken.
    held_bytes: usize,
    /// Since when it is refused again and again.
    refused_since: Option<Tick>,
    /// Since when it has brought nothing because connections were lost.
    lost_since: Option<Tick>,
    /// What was counted along an index, until the part has ended.
    counted: Vec<ScanRows>,
}

struct Scan {
    spec: ScanSpec,
    table: u32,
    version: u64,
    transaction: TransactionId,
    operation: OperationNumber,
    wants_keys: bool,
    parts: Vec<Part>,
    open: u16,
    /// Rows to be taken, in the order in which they came, if they are not merged.
    ready: VecDeque<(usize, ScanRows)>,
    merge: Option<Merge>,
    rows_left: u32,
    ended: Option<Result<()>>,
}

/// All scans that are under way.
pub(crate) struct Scans {
    pool: Pool<Scan>,
    /// Scan and part by name on the wire.
    by_wire: BTreeMap<u32, (Handle, usize)>,
    next_wire: u32,
    spare: Vec<ScanRows>,
    /// Parts that were refused, and when they are to be opened again.
    refused: Vec<(Handle, usize)>,
    resend_at: Tick,
    /// Parts for which there is no way.
    lost: Vec<(Handle, usize)>,
}

/// Buffers that are kept for later batches, at most.
const SPARE_MAX: usize = 64;

impl Scans {
    pub fn new() -> Self {
        Scans {
            pool: Pool::new(SCANS_MAX),
            by_wire: BTreeMap::new(),
            next_wire: 0,
            spare: Vec::new(),
            refused: Vec::new(),
            resend_at: Tick(0),
            lost: Vec::new(),
        }
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
        spec.check()?;
        let partitions: Vec<PartitionId> = match spec.ranges.as_ref().and_then(|ranges| ranges.hash) {
            Some(hash) => [table.partition_of(hash)].into(),
            None => table.partitions().iter().collect(),
        };
        let (transaction, operation) = within.unwrap_or((TransactionId::NONE, OperationNumber(0)));
        let batch_rows = spec.first_rows(partitions.len());
        let part = |partition| Part {
            state: PartState::Waiting,
            partition,
            way: None,
            wire: 0,
            position: Position::Start,
            batch_rows,
            held_bytes: 0,
            refused_since: None,
            lost_since: None,
            counted: Vec::new(),
        };
        let is_merged = spec.is_merged() && partitions.len() > 1;
        let is_one_batch = spec.limit != 0 && spec.limit <= u32::from(batch_rows);
        let may_be_resumed = transaction == TransactionId::NONE && !is_one_batch;
        let is_descending = spec.ranges.as_ref().is_some_and(|ranges| ranges.is_descending);
        let scan = Scan {
            table: table.id().0,
            version: table.version().0,
            transaction,
            operation,
            wants_keys: spec.ranges.is_some() && !spec.counts && (is_merged || may_be_resumed),
            merge: is_merged.then(|| Merge::new(partitions.len(), is_descending)),
            parts: partitions.into_iter().map(part).collect(),
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
            let is_enough = scan.open >= scan.spec.parallel && scan.merge.is_none();
            if scan.ended.is_some() || is_enough {
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
        let way = net.routes.way(scan.parts[at].partition);
        let Some(way) = way else { return self.await_way(net, handle, at, ErrorCode::ClusterFailure) };
        let part = &mut scan.parts[at];
        (part.state, part.wire, part.way) = (PartState::Fetching, wire, Some(way));
        scan.open += 1;
        let opening = Opening {
            spec: &scan.spec,
            table: scan.table,
            version: scan.version,
            transaction: scan.transaction,
            operation: scan.operation,
            partition: part.partition,
            wire,
            batch_rows: part.batch_rows,
            limit: if scan.spec.limit == 0 { 0 } else { scan.rows_left },
            wants_keys: scan.wants_keys,
            position: &part.position,
        };
        opening.send(net, way);
        self.by_wire.insert(wire, (handle, at));
    }

    pub fn on_confirm(&mut self, net: &mut Net, frame: &Frame<'_>) -> Option<()> {
        let (answer, rows) = frame.head::<ScanAnswer>()?;
        net.note_epoch(answer.epoch.get());
        let flags = answer.flags.get();
        // A scan that was closed meanwhile.
        let Some(&(handle, at)) = self.by_wire.get(&answer.scan.get()) else { return Some(()) };
        let scan = &mut self.pool[handle];
        let form = if scan.spec.ranges.is_some() { Form::Ranged } else { Form::Plain };
        let mut batch = self.spare.pop().unwrap_or_default();
        batch.fill(form, u32::from(answer.count.get()), rows);
        let last = batch.check()?;
        let part = &mut scan.parts[at];
        (part.refused_since, part.lost_since) = (None, None);
        let counts_along_index = scan.spec.counts_along_index();
        if flags & SCAN_END != 0 || counts_along_index {
            // Nothing will go on from here.
        } else if scan.spec.ranges.is_none() {
            part.position = Position::Row(answer.next_row.get());
        } else if let Some((last, _)) = last.and_then(|last| batch.row_at(last)) {
            part.position = match scan.wants_keys {
                true => Position::Behind { range: last.range, row: last.row, key: last.key.to_vec() },
                false => Position::Lost,
            };
        }
        if scan.merge.is_none() {
            batch.truncate(scan.rows_left);
            scan.rows_left -= if scan.spec.limit == 0 { 0 } else { batch.count };
        }
        if !batch.is_empty() {
            part.held_bytes += batch.bytes.len();
            match &mut scan.merge {
                Some(merge) => merge.push(at, batch),
                None if counts_along_index => part.counted.push(batch),
                None => scan.ready.push_back((at, batch)),
            }
            net.notify(TokenKind::Scan, handle);
        }
        if flags & SCAN_END != 0 {
            scan.ready.extend(part.counted.drain(..).map(|batch| (at, batch)));
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
        if let Some(merge) = &mut scan.merge {
            merge.end(at);
            net.notify(TokenKind::Scan, handle);
        }
        self.open_parts(net, handle);
        let parts = &self.pool[handle].parts;
        if parts.iter().all(|part| matches!(part.state, PartState::Done)) {
            self.end(net, handle, Ok(()));
        }
    }

    fn fetch_if_room(&mut self, net: &mut Net, handle: Handle, at: usize) {
        let scan = &mut self.pool[handle];
        let part = &mut scan.parts[at];
        let is_first = part.batch_rows < scan.spec.batch_rows;
        // While batches grow it is not known that more is wanted.
        let held_max = if is_first { 0 } else { scan.spec.batch_bytes as usize };
        if !matches!(part.state, PartState::Paused) || part.held_bytes > held_max || scan.rows_left == 0 {
            return;
        }
        part.state = PartState::Fetching;
        part.batch_rows = scan.spec.next_rows(part.batch_rows);
        let body = ScanNextBody {
            scan: U32::new(part.wire),
            batch_bytes: U32::new(scan.spec.batch_bytes),
            batch_rows: U16::new(part.batch_rows),
            unused: U16::ZERO,
        };
        let (link, data_manager) = part.way.expect("it is open");
        net.frame(link, SignalNumber::ScanNextRequest, data_manager).put(&body);
        net.link(link).hurry();
    }

    pub fn on_refuse(&mut self, net: &mut Net, frame: &Frame<'_>) -> Option<()> {
        let (refusal, _) = frame.head::<ScanRefusal>()?;
        let Some((handle, at)) = self.by_wire.remove(&refusal.scan.get()) else { return Some(()) };
        let now = net.now;
        let scan = &mut self.pool[handle];
        let part = &mut scan.parts[at];
        // What was counted since the last figure is lost with the scan: it goes on behind that.
        if scan.spec.ranges.is_none() && !scan.spec.counts {
            part.position = Position::Row(refusal.next_row.get());
        }
        scan.open -= 1;
        part.state = PartState::Done;
        let error = Error::from_wire(refusal.code.get());
        part.forget_counted();
        let may_go_on = may_go_on(scan.transaction, &scan.parts[at]);
        let part = &mut scan.parts[at];
        // The data node has another view than this client. It has given nothing, not even to a transaction.
        let is_moved = error.code() == ErrorCode::Moved && !matches!(part.position, Position::Lost);
        match error.code() {
            // Only an idle consumer lets it come to that, so this does not go round by itself.
            ErrorCode::ScanTimeout if may_go_on => self.open_part(net, handle, at),
            ErrorCode::Overloaded | ErrorCode::Moved
                if (may_go_on || is_moved) && now < *part.refused_since.get_or_insert(now) + REFUSED_MAX =>
            {
                part.state = PartState::Refused;
                if self.refused.is_empty() {
                    self.resend_at = now + RESEND_PAUSE;
                }
                self.refused.push((handle, at));
            }
            _ => self.end(net, handle, Err(error)),
        }
        Some(())
    }

    /// When [`Scans::resend`] is to be called, if at all.
    pub fn resend_at(&self) -> Option<Tick> {
        (!self.refused.is_empty()).then_some(self.resend_at)
    }

    /// Opens partitions again that were refused because too many answers waited, if it is time.
    pub fn resend(&mut self, net: &mut Net) {
        if self.resend_at().is_none_or(|at| net.now < at) {
            return;
        }
        for (handle, at) in core::mem::take(&mut self.refused) {
            let part = self.pool.get(handle).map(|scan| &scan.parts[at].state);
            if matches!(part, Some(PartState::Refused)) {
                self.open_part(net, handle, at);
            }
        }
    }

    /// There is no way to the partition of a part that is not open. It waits for one, if one may be hoped for and it
    /// can go on where it came to; else the scan ends with this error.
    fn await_way(&mut self, net: &mut Net, handle: Handle, at: usize, code: ErrorCode) {
        let scan = &mut self.pool[handle];
        let may_go_on = may_go_on(scan.transaction, &scan.parts[at]);
        let part = &mut scan.parts[at];
        let until = *part.lost_since.get_or_insert(net.now) + net.settings.way_patience;
        let is_hoped_for = net.now < until.min(net.routes.awaited_until(part.partition));
        if may_go_on && is_hoped_for {
            part.state = PartState::Lost(code);
            self.lost.push((handle, at));
        } else {
            let why = match code {
                ErrorCode::ClusterFailure => net.routes.why_no_way(part.partition, false),
                code => code.into(),
            };
            self.end(net, handle, Err(why));
        }
    }

    /// Ways have changed, or time has passed: opens the parts again for which there is a way, and ends scans that have
    /// waited for too long.
    pub fn go_on(&mut self, net: &mut Net) {
        for (handle, at) in core::mem::take(&mut self.lost) {
            let Some(scan) = self.pool.get(handle) else { continue };
            let PartState::Lost(code) = scan.parts[at].state else { continue };
            if net.routes.way(scan.parts[at].partition).is_some() {
                self.open_part(net, handle, at);
            } else {
                self.await_way(net, handle, at, code);
            }
        }
    }

    /// Whether parts wait for a way.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// A transaction was rolled back: scans that see its changes are over, for what they would meet now lacks them.
    pub fn end_within(&mut self, net: &mut Net, transaction: TransactionId, code: ErrorCode) {
        let of_it = self.pool.iter().filter(|(_, scan)| scan.transaction == transaction);
        for handle in of_it.map(|(handle, _)| handle).collect::<Vec<_>>() {
            self.end(net, handle, Err(Error::new(code)));
        }
    }

    /// The cluster was restarted: rows may have other numbers now, and be older than what has come.
    pub fn end_all(&mut self, net: &mut Net, code: ErrorCode) {
        let handles: Vec<Handle> = self.pool.iter().map(|(handle, _)| handle).collect();
        for handle in handles {
            self.end(net, handle, Err(Error::new(code)));
        }
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
            scan.merge = None;
        }
        scan.ended = Some(result);
        net.notify(TokenKind::Scan, handle);
    }

    fn close_parts(&mut self, net: &mut Net, handle: Handle) {
        for part in &mut self.pool[handle].parts {
            let was_open = matches!(part.state, PartState::Fetching | PartState::Paused);
            part.state = PartState::Done;
            if !was_open {
                continue;
            }
            self.by_wire.remove(&part.wire);
            let (link, data_manager) = part.way.expect("it was open");
            let body = ScanBody { scan: U32::new(part.wire) };
            net.frame(link, SignalNumber::ScanCloseOrder, data_manager).put(&body);
            net.link(link).hurry();
        }
    }

    /// Takes what the scan has for its consumer. After it has ended it is gone.
    pub fn next(&mut self, net: &mut Net, handle: Handle) -> ScanProgress {
        let Some(scan) = self.pool.get_mut(handle) else {
            return ScanProgress::Ended(Err(Error::new(ErrorCode::NoSuchScan)));
        };
        let is_merged = scan.merge.is_some();
        let rows = if is_merged { self.next_merged(net, handle) } else { self.next_ready(net, handle) };
        let scan = &mut self.pool[handle];
        let has_more = !scan.ready.is_empty()
            || scan.merge.as_ref().is_some_and(|merge| scan.rows_left > 0 && !merge.is_over());
        match (rows, &scan.ended) {
            (Some(rows), Some(Ok(()))) if !has_more => {
                self.pool.remove(handle);
                ScanProgress::Last(rows)
            }
            (Some(rows), _) => ScanProgress::Rows(rows),
            (None, None) => ScanProgress::Waiting,
            (None, Some(_)) => {
                let scan = self.pool.remove(handle).expect("looked at just before");
                ScanProgress::Ended(scan.ended.expect("looked at just before"))
            }
        }
    }

    /// What has arrived, of as many partitions as make one batch: their short ones are handed over together.
    fn next_ready(&mut self, net: &mut Net, handle: Handle) -> Option<ScanRows> {
        let (at, mut rows) = self.pool[handle].ready.pop_front()?;
        self.note_taken(net, handle, at, rows.bytes.len());
        loop {
            let scan = &mut self.pool[handle];
            let room = (scan.spec.batch_bytes as usize).saturating_sub(rows.bytes.len());
            if scan.ready.front().is_none_or(|(_, next)| next.bytes.len() > room) {
                return Some(rows);
            }
            let (at, next) = scan.ready.pop_front().expect("seen just before");
            self.note_taken(net, handle, at, next.bytes.len());
            rows.append(&next);
            self.recycle(next);
        }
    }

    /// So many bytes of a partition have been taken.
    fn note_taken(&mut self, net: &mut Net, handle: Handle, at: usize, bytes: usize) {
        let scan = &mut self.pool[handle];
        scan.parts[at].held_bytes -= bytes;
        if scan.ended.is_none() {
            self.fetch_if_room(net, handle, at);
        }
    }

    fn next_merged(&mut self, net: &mut Net, handle: Handle) -> Option<ScanRows> {
        let scan = &mut self.pool[handle];
        let merge = scan.merge.as_mut().filter(|_| scan.rows_left > 0)?;
        let mut rows = self.spare.pop().unwrap_or_default();
        rows.fill(Form::Ranged, 0, &[]);
        let mut used_up = Vec::new();
        merge.take(&mut rows, scan.rows_left, scan.spec.batch_bytes as usize, |at, batch| {
            scan.parts[at].held_bytes -= batch.bytes.len();
            used_up.push(at);
            if self.spare.len() < SPARE_MAX {
                self.spare.push(batch);
            }
        });
        scan.rows_left -= if scan.spec.limit == 0 { 0 } else { rows.count };
        let is_enough = scan.rows_left == 0;
        if scan.ended.is_none() && is_enough {
            self.end(net, handle, Ok(()));
        } else if scan.ended.is_none() {
            used_up.into_iter().for_each(|at| self.fetch_if_room(net, handle, at));
        }
        if rows.is_empty() {
            self.recycle(rows);
            return None;
        }
        Some(rows)
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

    /// All connections to an endpoint are gone. Parts that can go on elsewhere wait for [`Scans::go_on`].
    pub fn on_lost(&mut self, net: &mut Net, endpoint: u16) {
        let is_lost = |part: &Part| part.way.is_some_and(|(link, _)| link.endpoint() == endpoint);
        let open = self.by_wire.iter();
        let lost: Vec<(u32, Handle, usize)> = open
            .filter(|(_, (handle, at))| is_lost(&self.pool[*handle].parts[*at]))
            .map(|(wire, (handle, at))| (*wire, *handle, *at))
            .collect();
        for (wire, handle, at) in lost {
            if self.by_wire.remove(&wire).is_none() {
                // The scan has ended with another part.
                continue;
            }
            let scan = &mut self.pool[handle];
            scan.open -= 1;
            scan.parts[at].forget_counted();
            if may_go_on(scan.transaction, &scan.parts[at]) {
                scan.parts[at].state = PartState::Lost(ErrorCode::ConnectionLost);
                self.lost.push((handle, at));
            } else {
                scan.parts[at].state = PartState::Done;
                self.end(net, handle, Err(Error::new(ErrorCode::ConnectionLost)));
            }
        }
    }

    /// Whether there are none.
    pub fn is_at_rest(&self) -> bool {
        self.pool.used() == 0 && self.by_wire.is_empty()
    }
}

impl Part {
    /// What was counted along an index is lost with the connection, or with the data manager's scan.
    fn forget_counted(&mut self) {
        self.held_bytes -= self.counted.drain(..).map(|batch| batch.bytes.len()).sum::<usize>();
    }
}

/// Whether a part can be opened again where it came to. What a transaction has changed meanwhile might come or not.
fn may_go_on(transaction: TransactionId, part: &Part) -> bool {
    transaction == TransactionId::NONE && !matches!(part.position, Position::Lost)
}
