//! Scans of a fragment's committed rows, in slices.
//!
//! A scan goes page by page. Of each page it takes the live slots; those without operations are filtered together,
//! column by column ([`Program::select`]), those with operations one by one on the version that the scan may see. What
//! passes is copied into the answer. The position is a row id, so nothing needs to be kept or locked between slices: a
//! row that is deleted meanwhile is simply not met, one that is inserted behind the position neither.
//!
//! A scan runs until its batch is full, then waits for `ScanNextRequest`. While so much waits to be sent to the API
//! node that its lane is congested, the scan pauses.

use crate::rows::{Viewer, scan_viewer};
use crate::{DataManager, PoolUsage, Store};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use vinga_base::pool::{Handle, Pool};
use vinga_base::{ColumnId, NodeId, PartitionId, RowId, TransactionId};
use vinga_fragment::filter::{Program, RowBlock, VariableSource};
use vinga_fragment::page_view::{PageView, SLOT_WORDS_MAX};
use vinga_kernel::{Context, Tick};
use vinga_wire::key_read::ANSWER_BYTES_SOFT;
use vinga_wire::operation::{ALL_COLUMNS, selection_from};
use vinga_wire::scan::{SCAN_BATCH_END, SCAN_END, ScanAnswer, ScanBody, ScanOpenHead, ScanRefusal};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, U16, U32, U64};

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
struct Scan {
    api: Address,
    name: u32,
    table: u32,
    partition: PartitionId,
    viewer: Viewer,
    filter: Option<Program>,
    /// `None`: all columns.
    selection: Option<Vec<ColumnId>>,
    batch_rows: u16,
    batch_bytes: u32,
    /// Rows that the scan may still return, if limited.
    limit: Option<u32>,
    /// The first row that was not looked at.
    position: RowId,
    /// What is left of the batch.
    rows_left: u16,
    bytes_left: u32,
    phase: Phase,
}

/// All open scans.
pub struct Scans {
    pool: Pool<Scan>,
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
enum Sliced {
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
            limit: Some(head.limit.get()).filter(|&limit| limit != 0),
            position: RowId(head.from_row.get()),
            rows_left: head.batch_rows.get(),
            bytes_left: batch_bytes,
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
            scan.rows_left = scan.batch_rows;
            scan.bytes_left = scan.batch_bytes;
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

    /// Looks at some rows and sends those that pass.
    fn scan_slice(&mut self, cx: &mut Context<'_>, handle: Handle) -> Sliced {
        let mut units = cx.slice_units();
        let mut position = self.scans.pool[handle].position;
        let mut rows_left = self.scans.pool[handle].rows_left;
        let mut bytes_left = self.scans.pool[handle].bytes_left;
        let mut limit = self.scans.pool[handle].limit;
        let scan = &self.scans.pool[handle];
        let table = self.store.tables.current(scan.table);
        let fragment = table.fragment(scan.partition);
        let api = scan.api;
        let mut sliced = Sliced::More;
        let mut looked_at = 0;
        let mut writer = cx.frame(SignalNumber::ScanConfirm, api);
        writer.put(&ScanAnswer {
            epoch: U64::new(self.epoch.0),
            scan: U32::new(scan.name),
            next_row: U32::ZERO,
            count: U16::ZERO,
            flags: U16::ZERO,
        });
        let mut count = 0u16;
        'pages: loop {
            let page = position.page();
            if page >= fragment.rows().page_count() {
                sliced = Sliced::End;
                break;
            }
            let Some(view) = fragment.rows().page(&self.store.pages, page) else {
                position = RowId::new(page + 1, 0);
                continue;
            };
            let slots = view.slots() as u32;
            let mut busy = [0; SLOT_WORDS_MAX];
            view.read_busy(&mut busy);
            let mut chosen = [0; SLOT_WORDS_MAX];
            let chosen = &mut chosen[..view.live().len()];
            for ((chosen, live), busy) in chosen.iter_mut().zip(view.live()).zip(&busy) {
                *chosen = live & !busy;
            }
            if let Some(filter) = &scan.filter {
                let variable = Variable { view, store: &self.store };
                let (stride, count) = (view.stride(), view.slots());
                let block =
                    RowBlock::new(&table.layout, view.bytes(), view.fixed_at(), stride, count, &variable);
                filter.select(&block, chosen);
            }
            looked_at += slots;
            units = units.saturating_sub(slots);
            for (chosen, busy) in chosen.iter_mut().zip(&busy) {
                *chosen |= busy;
            }
            for slot in ones_from(chosen, position.slot()) {
                let row = RowId::new(page, slot);
                let version = if busy[slot as usize / 64] & 1 << (slot % 64) != 0 {
                    self.visible(table, scan.partition, row, scan.viewer).filter(|v| {
                        scan.filter.as_ref().is_none_or(|f| f.matches(&table.layout, v.fixed, v.variable))
                    })
                } else {
                    Some(self.store.slot(table, scan.partition, row))
                };
                let Some(version) = version else { continue };
                let out = writer.buffer();
                let at = out.len();
                out.extend_from_slice(&[0; 2]);
                match &scan.selection {
                    None => {
                        out.extend_from_slice(version.fixed);
                        out.extend_from_slice(version.variable);
                    }
                    Some(columns) => {
                        table.layout.write_selection(columns, version.fixed, version.variable, out);
                    }
                }
                let length = out.len() - at - 2;
                out[at..at + 2].copy_from_slice(&(length as u16).to_le_bytes());
                count += 1;
                rows_left -= 1;
                bytes_left = bytes_left.saturating_sub(length as u32);
                if let Some(limit) = &mut limit {
                    *limit -= 1;
                }
                let next = next_row(row, slots);
                if limit == Some(0) {
                    position = next;
                    sliced = Sliced::End;
                    break 'pages;
                }
                if rows_left == 0 || bytes_left == 0 {
                    position = next;
                    sliced = Sliced::BatchFull;
                    break 'pages;
                }
                if writer.length() >= ANSWER_BYTES_SOFT {
                    position = next;
                    break 'pages;
                }
            }
            position = RowId::new(page + 1, 0);
            if units == 0 {
                break;
            }
        }
        // The last rows of the fragment may just have filled the batch: then there is nothing to be asked for.
        if matches!(sliced, Sliced::BatchFull) && position.page() >= fragment.rows().page_count() {
            sliced = Sliced::End;
        }
        let flags = match sliced {
            Sliced::More => 0,
            Sliced::BatchFull => SCAN_BATCH_END,
            Sliced::End => SCAN_BATCH_END | SCAN_END,
        };
        if count == 0 && flags == 0 {
            writer.cancel();
        } else {
            let body = vinga_wire::frame::HEADER_BYTES;
            writer.patch(body + core::mem::offset_of!(ScanAnswer, next_row), &U32::new(position.0));
            writer.patch(body + core::mem::offset_of!(ScanAnswer, count), &U16::new(count));
            writer.patch(body + core::mem::offset_of!(ScanAnswer, flags), &U16::new(flags));
        }
        self.statistics.scanned_rows += u64::from(looked_at);
        let scan = &mut self.scans.pool[handle];
        scan.position = position;
        scan.rows_left = rows_left;
        scan.bytes_left = bytes_left;
        scan.limit = limit;
        sliced
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
            .map(|(_, scan)| (scan.api, scan.name, scan.position))
            .collect();
        for (api, name, position) in chosen {
            refuse(cx, api, name, position.0, code);
            self.scans.remove((api.node(), name));
        }
    }
}

/// The variable parts of a page's rows.
struct Variable<'a> {
    view: PageView<'a>,
    store: &'a Store,
}

impl VariableSource for Variable<'_> {
    fn variable(&self, slot: usize) -> &[u8] {
        let chunk = self.view.row(slot).variable();
        chunk.map_or(&[], |chunk| self.store.chunks.bytes(&self.store.pages, chunk))
    }
}

/// The places of the ones of a bitmap, from a place on, ascending.
fn ones_from(words: &[u64], from: u32) -> impl Iterator<Item = u32> + '_ {
    let first = from as usize / 64;
    words.iter().enumerate().skip(first).flat_map(move |(word, &bits)| {
        let mut bits = if word == first { bits & (!0 << (from % 64)) } else { bits };
        core::iter::from_fn(move || {
            let bit = bits.trailing_zeros();
            bits &= bits.wrapping_sub(1);
            (bit < 64).then_some(word as u32 * 64 + bit)
        })
    })
}

/// The row id behind a row, in a page of so many slots.
fn next_row(row: RowId, slots: u32) -> RowId {
    if row.slot() + 1 < slots {
        RowId::new(row.page(), row.slot() + 1)
    } else {
        RowId::new(row.page() + 1, 0)
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
