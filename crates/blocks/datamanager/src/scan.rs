//! Scans of committed rows: which are open, and when each goes on.
//!
//! A scan goes through a fragment in the order of row ids ([`crate::scan_slice`]) or through ranges of an ordered index
//! ([`crate::range_scan`]). It works in slices until its batch is full, then waits for `ScanNextRequest`. Its position
//! is a row id, or a key and a row id, so nothing needs to be kept or locked between slices: what is deleted meanwhile
//! is simply not met, what is inserted behind the position neither. While so much waits to be sent to the API node that
//! its lane is congested, the scan pauses. A scan whose first slice is its last never becomes a record.
//!
//! A scan that counts goes through the same, but adds up what it would send ([`Tally`]); it never waits for requests.

use crate::range_scan::{RangeRequest, RangeScan};
use crate::versions::Viewer;
use crate::{DataManager, PoolUsage};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use vinga_base::pool::{Handle, Pool};
use vinga_base::{ColumnId, NodeId, PartitionId, RowId, TransactionId};
use vinga_kernel::{Context, InjectedBug, Tick};
use vinga_program::filter::Program;
use vinga_wire::operation::{ALL_COLUMNS, selection_from};
use vinga_wire::scan::{COUNT_ROWS, SCAN_AT_BACKUP, ScanBody, ScanNextBody, ScanOpenHead, ScanRefusal};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, U16, U32};

/// Bytes that a batch may ask for, at most.
const BATCH_BYTES_MAX: u32 = 1 << 20;

/// Whether a scan works or waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// For the next request.
    Idle {
        since: Tick,
    },
}

/// One open scan.
pub(crate) struct Scan {
    pub head: ScanHead,
    pub target: Target,
    pub progress: Progress,
    phase: Phase,
}

impl Scan {
    fn full_name(&self) -> (NodeId, u32) {
        (self.head.api.node(), self.head.name)
    }

    /// Whether it has to end where it was opened: its reader could not say where another one is to go on.
    fn is_tied(&self) -> bool {
        let has_place = match &self.target {
            Target::Rows(_) => true,
            Target::Ranges(ranges) => ranges.sends_keys(),
        };
        !has_place && !self.head.counts && !self.head.is_for_backup
    }
}

/// What of a scan never changes.
pub(crate) struct ScanHead {
    pub api: Address,
    pub name: u32,
    pub table: u32,
    pub partition: PartitionId,
    pub viewer: Viewer,
    pub filter: Option<Program>,
    /// `None`: all columns.
    pub selection: Option<Vec<ColumnId>>,
    /// Rows are counted, not sent.
    pub counts: bool,
    /// A backup may answer.
    is_for_backup: bool,
    batch_rows: u16,
    batch_bytes: u32,
}

/// What a scan goes through, and where it is.
pub(crate) enum Target {
    /// The rows from this one on.
    Rows(RowId),
    Ranges(RangeScan),
}

impl Target {
    /// The row id from which a new scan would go on; without meaning for ranges.
    fn next_row(&self) -> RowId {
        match self {
            Target::Rows(position) => *position,
            Target::Ranges(_) => RowId(0),
        }
    }
}

/// What is asked to be gone through.
pub(crate) enum Asked<'a> {
    /// The rows from this one on.
    Rows(RowId),
    Ranges(RangeRequest<'a>),
}

/// What the requests that open scans have in common.
pub(crate) struct Options<'a> {
    pub version: u64,
    pub transaction: TransactionId,
    pub name: u32,
    pub table: u32,
    pub operation: u32,
    pub batch_rows: u16,
    pub batch_bytes: u32,
    pub limit: u32,
    pub partition: u16,
    pub is_for_backup: bool,
    pub columns: u16,
    pub selection: &'a [U16],
    pub filter: &'a [u8],
}

/// How much of a batch and of a scan is left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Rows that the scan may still return, if limited.
    limit: Option<u32>,
    /// Rows that the batch has room for.
    rows_left: u16,
    /// Bytes that the batch has room for.
    bytes_left: u32,
    /// Of a scan that counts.
    pub tally: Tally,
}

/// What a scan that counts has found since its last figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    pub rows: u64,
    /// Rows that it may look at before it sends the next figure: its reader is to know that it goes on.
    left: u32,
    /// The same when it begins anew.
    period: u32,
}

impl Tally {
    /// So many rows were looked at.
    #[inline]
    pub fn look_at(&mut self, rows: u32) {
        self.left = self.left.saturating_sub(rows);
    }

    /// The figure to be sent after a slice that ended so, if one is.
    pub fn take_figure(&mut self, sliced: Sliced) -> Option<u64> {
        if self.left != 0 && sliced != Sliced::End {
            return None;
        }
        self.left = self.period;
        Some(core::mem::take(&mut self.rows))
    }
}

impl Progress {
    /// Counts a row of so many bytes. Some if it was the last of its batch or of all.
    #[inline]
    pub fn count_row(&mut self, bytes: usize) -> Option<Sliced> {
        self.rows_left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(bytes as u32);
        if let Some(limit) = &mut self.limit {
            *limit -= 1;
        }
        if self.limit == Some(0) {
            Some(Sliced::End)
        } else if self.rows_left == 0 || self.bytes_left == 0 {
            Some(Sliced::BatchFull)
        } else {
            None
        }
    }
}

/// All open scans.
pub struct Scans {
    /// `None`: the scan has its turn.
    pool: Pool<Option<Scan>>,
    by_name: BTreeMap<(NodeId, u32), Handle>,
    /// Where the next slice begins, so that all scans get their turn.
    turn: usize,
}

impl Scans {
    pub fn new(scans_max: u32) -> Self {
        Scans { pool: Pool::new(scans_max), by_name: BTreeMap::new(), turn: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.pool.used() == 0 && self.by_name.is_empty()
    }

    pub fn usage(&self) -> PoolUsage {
        PoolUsage {
            name: "scans",
            used: self.pool.used(),
            used_max: self.pool.used_max(),
            capacity: self.pool.capacity(),
            bytes: self.pool.memory_bytes(),
        }
    }

    /// Closes all scans of an API node.
    pub fn close_of_api(&mut self, api: NodeId) {
        let names: Vec<(NodeId, u32)> =
            self.by_name.range((api, 0)..=(api, u32::MAX)).map(|(&n, _)| n).collect();
        for name in names {
            self.remove(name);
        }
    }

    /// Opens a scan, for which there is room.
    fn add(&mut self, scan: Scan) {
        let name = scan.full_name();
        let handle = self.pool.insert(Some(scan)).ok().expect("the caller has checked that there is room");
        self.by_name.insert(name, handle);
    }

    fn iter(&self) -> impl Iterator<Item = (Handle, &Scan)> {
        self.pool.iter().map(|(handle, scan)| (handle, scan.as_ref().expect("no scan has its turn now")))
    }

    fn scan_mut(&mut self, handle: Handle) -> &mut Scan {
        self.pool[handle].as_mut().expect("no scan has its turn now")
    }

    fn find(&self, api: NodeId, name: u32) -> Option<Handle> {
        self.by_name.get(&(api, name)).copied()
    }

    fn remove(&mut self, name: (NodeId, u32)) {
        if let Some(handle) = self.by_name.remove(&name) {
            self.pool.remove(handle);
        }
    }
}

/// How a slice of a scan ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sliced {
    /// The units are used up.
    More,
    /// The batch is full.
    BatchFull,
    /// There are no more rows, or no more are wanted.
    End,
}

/// Takes columns and filter of a request off the front of what follows its head.
pub(crate) fn take_options(rest: &[u8], columns: u16, filter_bytes: u16) -> Option<(&[U16], &[u8], &[u8])> {
    let columns = match columns {
        ALL_COLUMNS | COUNT_ROWS => 0,
        n => usize::from(n),
    };
    let (selection, rest) = selection_from(rest, columns)?;
    let (filter, rest) = rest.split_at_checked(usize::from(filter_bytes))?;
    Some((selection, filter, rest))
}

impl DataManager {
    pub(crate) fn on_scan_open_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (head, rest) = frame.head::<ScanOpenHead>()?;
        let (selection, filter, _) = take_options(rest, head.columns.get(), head.filter_bytes.get())?;
        let options = Options {
            version: head.version.get(),
            transaction: TransactionId(head.transaction.get()),
            name: head.scan.get(),
            table: head.table.get(),
            operation: head.operation.get(),
            batch_rows: head.batch_rows.get(),
            batch_bytes: head.batch_bytes.get(),
            limit: head.limit.get(),
            partition: head.partition.get(),
            is_for_backup: head.flags.get() & SCAN_AT_BACKUP != 0,
            columns: head.columns.get(),
            selection,
            filter,
        };
        self.open_scan(cx, frame, &options, Asked::Rows(RowId(head.from_row.get())))
    }

    /// Opens a scan and gives it its first slice.
    pub(crate) fn open_scan(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
        options: &Options<'_>,
        asked: Asked<'_>,
    ) -> Option<()> {
        let api = frame.sender();
        if !self.may_ask(cx, frame, options.transaction) {
            return Some(());
        }
        if self.scans.find(api.node(), options.name).is_some() {
            return None;
        }
        let next_row = match &asked {
            Asked::Rows(from) => *from,
            Asked::Ranges(_) => RowId(0),
        };
        match self.make_scan(cx, api, options, asked) {
            Ok(mut scan) => {
                let mut units = cx.slice_units();
                if self.primary.is_handed_over() && scan.is_tied() {
                    cx.mark("scan does not begin while the primary is handed over");
                    refuse(cx, api, options.name, next_row, ErrorCode::Moved);
                } else if self.run_scan(cx, &mut scan, &mut units) {
                    self.scans.add(scan);
                }
            }
            Err(code) => refuse(cx, api, options.name, next_row, code),
        }
        Some(())
    }

    fn make_scan(
        &self,
        cx: &Context<'_>,
        api: Address,
        options: &Options<'_>,
        asked: Asked<'_>,
    ) -> Result<Scan, ErrorCode> {
        let table = self.store.tables.get(cx, options.table, options.version)?;
        let partition = PartitionId(options.partition);
        if !self.answers_reads_of(cx.view(), table, partition, options.is_for_backup) {
            return Err(ErrorCode::Moved);
        }
        let counts = options.columns == COUNT_ROWS;
        if options.batch_rows == 0 || counts && options.limit != 0 {
            return Err(ErrorCode::MalformedSignal);
        }
        let filter = self.read_options(table, options.selection, options.filter)?;
        let target = match asked {
            Asked::Rows(from) => Target::Rows(from),
            Asked::Ranges(ranges) => Target::Ranges(RangeScan::new(table.fragment(partition), &ranges)?),
        };
        if self.scans.pool.used() == self.scans.pool.capacity() {
            return Err(ErrorCode::OutOfScans);
        }
        let selection = (options.columns != ALL_COLUMNS && !counts)
            .then(|| options.selection.iter().map(|column| ColumnId(column.get())).collect());
        let viewer = Viewer { transaction: options.transaction, before: options.operation };
        let batch_bytes = options.batch_bytes.clamp(1, BATCH_BYTES_MAX);
        Ok(Scan {
            head: ScanHead {
                api,
                name: options.name,
                table: options.table,
                partition,
                viewer: scan_viewer(cx, viewer),
                filter,
                selection,
                counts,
                is_for_backup: options.is_for_backup,
                batch_rows: options.batch_rows,
                batch_bytes,
            },
            target,
            progress: Progress {
                limit: Some(options.limit).filter(|&limit| limit != 0),
                rows_left: options.batch_rows,
                bytes_left: batch_bytes,
                tally: Tally { rows: 0, left: batch_bytes, period: batch_bytes },
            },
            phase: Phase::Running,
        })
    }

    pub(crate) fn on_scan_next_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<ScanBody>()?;
        let name = body.scan.get();
        let Some(handle) = self.scans.find(frame.sender().node(), name) else {
            refuse(cx, frame.sender(), name, RowId(0), ErrorCode::NoSuchScan);
            return Some(());
        };
        let scan = self.scans.scan_mut(handle);
        if let Phase::Idle { .. } = scan.phase {
            scan.phase = Phase::Running;
            let sizes = frame.head::<ScanNextBody>().map(|(next, _)| next);
            if let Some(next) = sizes.filter(|next| next.batch_rows.get() != 0) {
                scan.head.batch_rows = next.batch_rows.get();
                scan.head.batch_bytes = next.batch_bytes.get().clamp(1, BATCH_BYTES_MAX);
            }
            scan.progress.rows_left = scan.head.batch_rows;
            scan.progress.bytes_left = scan.head.batch_bytes;
            let mut units = cx.slice_units();
            self.give_turn(cx, handle, &mut units);
        }
        Some(())
    }

    pub(crate) fn on_scan_close_order(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<ScanBody>()?;
        self.scans.remove((frame.sender().node(), body.scan.get()));
        Some(())
    }

    /// Gives running scans slices in turn until a slice's units are used up; says whether one of them could go on at
    /// once. Together they have the units of one: where many shared a turn, each would be sought anew for a few rows.
    #[inline(never)]
    pub(crate) fn run_scans(&mut self, cx: &mut Context<'_>) -> bool {
        let mut running: Vec<Handle> = self
            .scans
            .iter()
            .filter(|(_, scan)| scan.phase == Phase::Running)
            .map(|(handle, _)| handle)
            .collect();
        if !running.is_empty() {
            self.scans.turn = (self.scans.turn + 1) % running.len();
            running.rotate_left(self.scans.turn);
        }
        let mut units = cx.slice_units();
        for handle in running {
            if units == 0 {
                break;
            }
            self.give_turn(cx, handle, &mut units);
        }
        self.scans.iter().any(|(_, scan)| scan.phase == Phase::Running && !cx.is_congested(scan.head.api))
    }

    /// Gives an open scan a slice.
    fn give_turn(&mut self, cx: &mut Context<'_>, handle: Handle, units: &mut u32) {
        let mut scan = self.scans.pool[handle].take().expect("only one scan has its turn");
        if self.run_scan(cx, &mut scan, units) {
            self.scans.pool[handle] = Some(scan);
        } else {
            self.scans.remove(scan.full_name());
        }
    }

    /// Gives a scan a slice, if its reader keeps up; false when it is over.
    fn run_scan(&mut self, cx: &mut Context<'_>, scan: &mut Scan, units: &mut u32) -> bool {
        if cx.is_congested(scan.head.api) {
            cx.mark("scan pauses because its reader is slow");
            return true;
        }
        let sliced = match &mut scan.target {
            Target::Rows(position) => self.scan_slice(cx, &scan.head, position, &mut scan.progress, units),
            Target::Ranges(ranges) => self.range_slice(cx, &scan.head, ranges, &mut scan.progress, units),
        };
        match sliced {
            Sliced::More => true,
            Sliced::BatchFull => {
                scan.phase = Phase::Idle { since: cx.now() };
                true
            }
            Sliced::End => false,
        }
    }

    /// Closes scans of a table that is going away.
    pub(crate) fn close_scans_of_table(&mut self, cx: &mut Context<'_>, table: u32) {
        self.close_scans_where(cx, ErrorCode::StaleTable, |scan| scan.head.table == table);
    }

    /// Whether a scan is open that has to end here.
    pub(crate) fn has_tied_scan(&self) -> bool {
        self.scans.iter().any(|(_, scan)| scan.is_tied())
    }

    /// Closes scans that are to go on at another primary: this one does not know any more what is committed.
    pub(crate) fn move_scans(&mut self, cx: &mut Context<'_>) {
        self.close_scans_where(cx, ErrorCode::Moved, |scan| !scan.head.is_for_backup);
    }

    /// What this data manager has of the partition goes: whoever reads it goes on elsewhere.
    pub(crate) fn move_all_scans(&mut self, cx: &mut Context<'_>) {
        self.close_scans_where(cx, ErrorCode::Moved, |_| true);
    }

    /// Closes scans that nobody has asked for the next batch for too long.
    pub(crate) fn check_scan_timeouts(&mut self, cx: &mut Context<'_>) {
        let Some(timeout) = self.settings.inactive_timeout else { return };
        let now = cx.now();
        self.close_scans_where(cx, ErrorCode::ScanTimeout, |scan| match scan.phase {
            Phase::Idle { since } => now.since(since) >= timeout,
            Phase::Running => false,
        });
    }

    fn close_scans_where(
        &mut self,
        cx: &mut Context<'_>,
        code: ErrorCode,
        condition: impl Fn(&Scan) -> bool,
    ) {
        let chosen: Vec<(Address, u32, RowId)> = self
            .scans
            .iter()
            .filter(|(_, scan)| condition(scan))
            .map(|(_, scan)| (scan.head.api, scan.head.name, scan.target.next_row()))
            .collect();
        for (api, name, next_row) in chosen {
            refuse(cx, api, name, next_row, code);
            self.scans.remove((api.node(), name));
        }
    }
}

/// Tells an API node that a scan is over before its end.
pub(crate) fn refuse(cx: &mut Context<'_>, api: Address, scan: u32, next_row: RowId, code: ErrorCode) {
    cx.frame(SignalNumber::ScanRefuse, api).put(&ScanRefusal {
        scan: U32::new(scan),
        next_row: U32::new(next_row.0),
        code: U16::new(code as u16),
        unused: U16::ZERO,
    });
}

/// Whether a scan's own later changes count as well: a deliberate bug.
fn scan_viewer(cx: &Context<'_>, viewer: Viewer) -> Viewer {
    if cx.has_bug(InjectedBug::ScanSeesLaterOwnChanges) {
        Viewer { before: u32::MAX, ..viewer }
    } else {
        viewer
    }
}
