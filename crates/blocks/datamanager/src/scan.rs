//! Scans of a fragment's committed rows: which are open, and when each goes on.
//!
//! A scan works in slices ([`crate::scan_slice`]) until its batch is full, then waits for `ScanNextRequest`. Its
//! position is a row id, so nothing needs to be kept or locked between slices: a row that is deleted meanwhile is simply
//! not met, one that is inserted behind the position neither. While so much waits to be sent to the API node that its
//! lane is congested, the scan pauses.

use crate::rows::{Viewer, scan_viewer};
use crate::{DataManager, PoolUsage};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use vinga_base::pool::{Handle, Pool};
use vinga_base::{ColumnId, NodeId, PartitionId, RowId, TransactionId};
use vinga_fragment::filter::Program;
use vinga_kernel::{Context, Tick};
use vinga_wire::operation::{ALL_COLUMNS, selection_from};
use vinga_wire::scan::{ScanBody, ScanOpenHead, ScanRefusal};
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
    pub api: Address,
    pub name: u32,
    pub table: u32,
    pub partition: PartitionId,
    pub viewer: Viewer,
    pub filter: Option<Program>,
    /// `None`: all columns.
    pub selection: Option<Vec<ColumnId>>,
    batch_rows: u16,
    batch_bytes: u32,
    pub progress: Progress,
    phase: Phase,
}

/// How far a scan has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// The first row that was not looked at.
    pub position: RowId,
    /// Rows that the scan may still return, if limited.
    pub limit: Option<u32>,
    /// Rows that the batch has room for.
    pub rows_left: u16,
    /// Bytes that the batch has room for.
    pub bytes_left: u32,
}

/// All open scans.
pub struct Scans {
    pub(crate) pool: Pool<Scan>,
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

impl DataManager {
    pub(crate) fn on_scan_open_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (head, rest) = frame.head::<ScanOpenHead>()?;
        let columns = match head.columns.get() {
            ALL_COLUMNS => 0,
            n => usize::from(n),
        };
        let (selection, rest) = selection_from(rest, columns)?;
        let filter = rest.get(..usize::from(head.filter_bytes.get()))?;
        let api = frame.sender();
        let transaction = TransactionId(head.transaction.get());
        if transaction != TransactionId::NONE && transaction.api() != api.node() {
            cx.reject(frame, ErrorCode::NotYourTransaction);
            return Some(());
        }
        let name = head.scan.get();
        if self.scans.find(api.node(), name).is_some() {
            return None;
        }
        match self.open_scan(cx, api, head, selection, filter) {
            Ok(scan) => self.run_scan(cx, scan),
            Err(code) => refuse(cx, api, name, head.from_row.get(), code),
        }
        Some(())
    }

    fn open_scan(
        &mut self,
        cx: &Context<'_>,
        api: Address,
        head: &ScanOpenHead,
        selection: &[U16],
        filter: &[u8],
    ) -> Result<Handle, ErrorCode> {
        let table = self.store.tables.get(cx, head.table.get(), head.version.get())?;
        let partition = PartitionId(head.partition.get());
        if usize::from(partition.0) >= self.map.places().len() || !self.answers_reads_of(table, partition) {
            return Err(ErrorCode::Moved);
        }
        if head.batch_rows.get() == 0 {
            return Err(ErrorCode::MalformedSignal);
        }
        let filter = self.read_options(table, selection, filter)?;
        let selection = (head.columns.get() != ALL_COLUMNS)
            .then(|| selection.iter().map(|column| ColumnId(column.get())).collect());
        let viewer =
            Viewer { transaction: TransactionId(head.transaction.get()), before: head.operation.get() };
        let batch_bytes = head.batch_bytes.get().clamp(1, BATCH_BYTES_MAX);
        let scan = Scan {
            api,
            name: head.scan.get(),
            table: head.table.get(),
            partition,
            viewer: scan_viewer(cx, viewer),
            filter,
            selection,
            batch_rows: head.batch_rows.get(),
            batch_bytes,
            progress: Progress {
                position: RowId(head.from_row.get()),
                limit: Some(head.limit.get()).filter(|&limit| limit != 0),
                rows_left: head.batch_rows.get(),
                bytes_left: batch_bytes,
            },
            phase: Phase::Running,
        };
        let name = (api.node(), scan.name);
        let handle = self.scans.pool.insert(scan).map_err(|_| ErrorCode::OutOfScans)?;
        self.scans.by_name.insert(name, handle);
        Ok(handle)
    }

    pub(crate) fn on_scan_next_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<ScanBody>()?;
        let name = body.scan.get();
        let Some(handle) = self.scans.find(frame.sender().node(), name) else {
            refuse(cx, frame.sender(), name, 0, ErrorCode::NoSuchScan);
            return Some(());
        };
        let scan = &mut self.scans.pool[handle];
        if let Phase::Idle { .. } = scan.phase {
            scan.phase = Phase::Running;
            scan.progress.rows_left = scan.batch_rows;
            scan.progress.bytes_left = scan.batch_bytes;
            self.run_scan(cx, handle);
        }
        Some(())
    }

    pub(crate) fn on_scan_close_order(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<ScanBody>()?;
        self.scans.remove((frame.sender().node(), body.scan.get()));
        Some(())
    }

    /// Gives each running scan a slice; says whether one of them could go on at once.
    pub(crate) fn run_scans(&mut self, cx: &mut Context<'_>) -> bool {
        if self.scans.by_name.is_empty() {
            return false;
        }
        let mut running: Vec<Handle> = self
            .scans
            .pool
            .iter()
            .filter(|(_, scan)| scan.phase == Phase::Running)
            .map(|(handle, _)| handle)
            .collect();
        if !running.is_empty() {
            self.scans.turn = (self.scans.turn + 1) % running.len();
            running.rotate_left(self.scans.turn);
        }
        for handle in running {
            self.run_scan(cx, handle);
        }
        self.scans.pool.iter().any(|(_, scan)| scan.phase == Phase::Running && !cx.is_congested(scan.api))
    }

    fn run_scan(&mut self, cx: &mut Context<'_>, handle: Handle) {
        if cx.is_congested(self.scans.pool[handle].api) {
            cx.probe("scan pauses because its reader is slow");
            return;
        }
        let sliced = self.scan_slice(cx, handle);
        let scan = &mut self.scans.pool[handle];
        match sliced {
            Sliced::More => {}
            Sliced::BatchFull => scan.phase = Phase::Idle { since: cx.now() },
            Sliced::End => {
                let name = (scan.api.node(), scan.name);
                self.scans.remove(name);
            }
        }
    }

    /// Closes scans of a table that is going away.
    pub(crate) fn close_scans_of_table(&mut self, cx: &mut Context<'_>, table: u32) {
        self.close_scans_where(cx, ErrorCode::StaleTable, |scan| scan.table == table);
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
            .pool
            .iter()
            .filter(|(_, scan)| condition(scan))
            .map(|(_, scan)| (scan.api, scan.name, scan.progress.position))
            .collect();
        for (api, name, position) in chosen {
            refuse(cx, api, name, position.0, code);
            self.scans.remove((api.node(), name));
        }
    }
}

fn refuse(cx: &mut Context<'_>, api: Address, scan: u32, next_row: u32, code: ErrorCode) {
    cx.frame(SignalNumber::ScanRefuse, api).put(&ScanRefusal {
        scan: U32::new(scan),
        next_row: U32::new(next_row),
        code: U16::new(code as u16),
        unused: U16::ZERO,
    });
}
