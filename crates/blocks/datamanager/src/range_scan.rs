//! Scans of ranges of an ordered index (`vinga_wire::range_scan`).
//!
//! A slice goes over the entries of what is left of a range with a cursor that lives no longer than the slice. An entry
//! counts if the version of its row that the scan may see (that of the slot, or an own change with a lower operation
//! number) has the entry's key; so a row comes under one key, whatever other versions it has, and a change that was
//! made because of the scan never moves a row ahead of it. A row that no operation names has one version and one entry:
//! then there is nothing to compare.
//!
//! *Covered entries.* Where no operation names a row of its page either, the row need not be looked at if all that is
//! wanted stands in the entry: that it is there, for a scan that counts, or the values of a short key.
//!
//! Between slices the scan remembers number of the range, key and row id of the last entry that it has dealt with, and
//! seeks what is behind it, whether the entry is still there or not.

use crate::index_keys::{Places, RowKeys};
use crate::scan::{Asked, Options, Progress, ScanHead, Sliced, refuse, take_options};
use crate::scan_slice::Answer;
use crate::store::Version;
use crate::tables::Table;
use crate::{DataManager, Store};
use alloc::vec::Vec;
use vinga_base::order_key::OrderKey;
use vinga_base::row_layout::RowLayout;
use vinga_base::{ColumnId, PartitionId, RowId, TransactionId};
use vinga_fragment::fragment::Fragment;
use vinga_fragment::fragment_index::FragmentIndex;
use vinga_fragment::ordered_index::{Cut, Direction, Entry, Range};
use vinga_fragment::row::{OperationRef, Row};
use vinga_fragment::row_store::RowStore;
use vinga_kernel::{Context, InjectedBug, Prefetch};
use vinga_program::filter::{Program, VariableSource};
use vinga_wire::range_scan::{
    RANGE_AT_BACKUP, RANGE_DESCENDING, RANGE_FROM_POSITION, RANGE_KEYS, RANGES_MAX, RangeBounds, RangeRow,
    RangeScanOpenHead,
};
use vinga_wire::{ErrorCode, Frame, U16, U32};

/// What an entry costs of a slice's units, of which a row of a full scan costs one.
const ENTRY_UNITS: u32 = 4;
/// What seeking a range costs.
pub(crate) const RANGE_UNITS: u32 = 16;

/// What a request says about ranges.
pub(crate) struct RangeRequest<'a> {
    head: &'a RangeScanOpenHead,
    /// Key of the position.
    key: &'a [u8],
    /// The ranges, and whatever is behind them.
    ranges: &'a [u8],
}

/// The ranges of a scan, and where it is.
pub(crate) struct RangeScan {
    index: u16,
    direction: Direction,
    /// Whether rows are sent with their keys.
    sends_keys: bool,
    /// As in the request, and checked.
    ranges: Vec<u8>,
    count: u16,
    /// The range that the scan is in; `count` at the end.
    number: u16,
    /// Where that range begins in `ranges`.
    at: usize,
    /// The row of the last entry of that range that the scan has dealt with, and its key; `None` before the first one.
    row: Option<RowId>,
    key: Vec<u8>,
}

/// Buffers of a slice, used again and again.
#[derive(Default)]
pub(crate) struct RangeScratch {
    /// Where the index's source makes keys.
    source: Vec<u8>,
    /// The key of the version that is seen.
    version: Vec<u8>,
    /// The key of an entry.
    entry: Vec<u8>,
    /// The fixed part of a row that is made of a key.
    restored: Vec<u8>,
}

impl RangeScan {
    /// Checks what was asked for.
    pub fn new(fragment: &Fragment, request: &RangeRequest<'_>) -> Result<Self, ErrorCode> {
        let RangeRequest { head, key, ranges } = *request;
        let (index, count, flags) = (head.index.get(), head.ranges.get(), head.flags.get());
        fragment.ordered_index(index).ok_or(ErrorCode::NoSuchIndex)?;
        let has_position = flags & RANGE_FROM_POSITION != 0;
        let from = if has_position { head.from_range.get() } else { 0 };
        let (bytes, starts_at) = measure(ranges, count, from).ok_or(ErrorCode::MalformedSignal)?;
        Ok(RangeScan {
            index,
            direction: direction_of(flags),
            sends_keys: flags & RANGE_KEYS != 0,
            ranges: ranges[..bytes].to_vec(),
            count,
            number: from,
            at: starts_at,
            row: has_position.then_some(RowId(head.from_row.get())),
            key: key.to_vec(),
        })
    }

    /// Whether rows are sent with their keys.
    pub fn sends_keys(&self) -> bool {
        self.sends_keys
    }

    /// The bounds of the range that the scan is in; `None` at the end.
    fn bounds(&self) -> Option<RangeBounds<'_>> {
        (self.number < self.count)
            .then(|| RangeBounds::take(&mut &self.ranges[self.at..]).expect("they were checked"))
    }

    /// What is left of a range.
    fn left<'a>(&'a self, bounds: RangeBounds<'a>) -> Option<Range<'a>> {
        let RangeBounds { low, high } = bounds;
        let is_below = |key: &[u8]| high.is_empty() || key < high;
        let (mut from, mut to) = (Cut::before_key(low), (!high.is_empty()).then(|| Cut::before_key(high)));
        if !is_below(low) {
            return None;
        }
        if let Some(row) = self.row {
            let key = self.key.as_slice();
            match self.direction {
                Direction::Ascending if !is_below(key) => return None,
                Direction::Ascending if key >= low => from = Cut::after(key, row),
                Direction::Descending if key < low => return None,
                Direction::Descending if is_below(key) => to = Some(Cut::before(key, row)),
                Direction::Ascending | Direction::Descending => {}
            }
        }
        Some(Range { from, to })
    }

    /// Goes on to the next range.
    fn enter_next(&mut self) {
        let mut rest = &self.ranges[self.at..];
        RangeBounds::take(&mut rest).expect("they were checked");
        self.at = self.ranges.len() - rest.len();
        self.number += 1;
        self.row = None;
    }
}

fn direction_of(flags: u16) -> Direction {
    if flags & RANGE_DESCENDING != 0 { Direction::Descending } else { Direction::Ascending }
}

/// Bytes that so many ranges take, and where one of them begins; `None` if they are not whole, or it is not there.
pub(crate) fn measure(ranges: &[u8], count: u16, from: u16) -> Option<(usize, usize)> {
    if count == 0 || usize::from(count) > RANGES_MAX || from >= count {
        return None;
    }
    let (mut rest, mut starts_at) = (ranges, 0);
    for number in 0..count {
        if number == from {
            starts_at = ranges.len() - rest.len();
        }
        RangeBounds::take(&mut rest)?;
    }
    Some((ranges.len() - rest.len(), starts_at))
}

/// Everything that the entries of a slice are looked at with.
struct Looking<'a> {
    scan: &'a ScanHead,
    table: &'a Table,
    rows: &'a RowStore,
    index: &'a FragmentIndex,
    sends_keys: bool,
    /// All that is wanted of a row is in its entry, if that has a whole key.
    is_covered: bool,
    /// Something is wanted of the variable parts of rows that pass.
    sends_variable: bool,
    /// Deliberate bugs.
    takes_any_version: bool,
    covers_named_rows: bool,
}

impl DataManager {
    pub(crate) fn on_range_scan_open_request(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (head, rest) = frame.head::<RangeScanOpenHead>()?;
        let (selection, filter, rest) = take_options(rest, head.columns.get(), head.filter_bytes.get())?;
        let (key, ranges) = rest.split_at_checked(usize::from(head.key_bytes.get()))?;
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
            is_for_backup: head.flags.get() & RANGE_AT_BACKUP != 0,
            columns: head.columns.get(),
            selection,
            filter,
        };
        self.open_scan(cx, frame, &options, Asked::Ranges(RangeRequest { head, key, ranges }))
    }

    /// Prefetches the way to the first range of a request.
    pub(crate) fn prefetch_range_scan(&self, pass: Prefetch, frame: &Frame<'_>) {
        let Some((head, rest)) = frame.head::<RangeScanOpenHead>() else { return };
        let Some((_, _, rest)) = take_options(rest, head.columns.get(), head.filter_bytes.get()) else {
            return;
        };
        let Some(mut ranges) = rest.get(usize::from(head.key_bytes.get())..) else { return };
        let Some(bounds) = RangeBounds::take(&mut ranges) else { return };
        let Some(table) = self.store.tables.peek(head.table.get(), head.version.get()) else { return };
        let partition = PartitionId(head.partition.get());
        if !table.has_fragment(partition) {
            return;
        }
        let Some(index) = table.fragment(partition).ordered_index(head.index.get()) else { return };
        let key = match direction_of(head.flags.get()) {
            Direction::Ascending => bounds.low,
            Direction::Descending => bounds.high,
        };
        let approach = index.tree.approach(&self.store.pages, key);
        match pass {
            Prefetch::Index | Prefetch::Operation | Prefetch::RowState => {}
            Prefetch::Row => index.tree.prefetch_leaf(&self.store.pages, key, approach),
        }
    }

    /// Looks at some entries, as many as the units allow, and sends the rows that pass.
    pub(crate) fn range_slice(
        &mut self,
        cx: &mut Context<'_>,
        scan: &ScanHead,
        ranges: &mut RangeScan,
        progress: &mut Progress,
        units: &mut u32,
    ) -> Sliced {
        let takes_any_version = cx.has_bug(InjectedBug::RangeScanTakesAnyVersion);
        let table = self.store.tables.current(scan.table);
        let fragment = table.fragment(scan.partition);
        let Some(index) = fragment.ordered_index(ranges.index) else {
            cx.mark("scan of an index that was dropped meanwhile");
            refuse(cx, scan.api, scan.name, RowId(0), ErrorCode::StaleTable);
            return Sliced::End;
        };
        let mut scratch = core::mem::take(&mut self.scratch.range);
        let (rows, sends_keys) = (fragment.rows(), ranges.sends_keys);
        let covers_named_rows = cx.has_bug(InjectedBug::EntryCoversNamedRow);
        let is_covered = is_covered(scan, index);
        let sends_variable = sends_variable(scan, &table.layout, sends_keys.then(|| index.order()));
        let looking = Looking {
            scan,
            table,
            rows,
            index,
            sends_keys,
            is_covered,
            sends_variable,
            takes_any_version,
            covers_named_rows,
        };
        let mut answer = Answer::begin(cx, scan, self.epoch.0);
        let (sliced, looked_at) =
            self.go_through(&looking, ranges, progress, units, &mut answer, &mut scratch);
        if scan.counts {
            progress.tally.look_at(looked_at as u32);
            if let Some(figure) = progress.tally.take_figure(sliced) {
                answer.put_ranged_figure(figure);
            }
        }
        answer.end(sliced, RowId(0));
        self.scratch.range = scratch;
        self.statistics.scanned_rows += looked_at;
        sliced
    }

    /// Goes on until the units are used up or the batch is full; says how many entries were looked at.
    fn go_through(
        &self,
        looking: &Looking<'_>,
        ranges: &mut RangeScan,
        progress: &mut Progress,
        units: &mut u32,
        answer: &mut Answer<'_>,
        scratch: &mut RangeScratch,
    ) -> (Sliced, u64) {
        let (index, pages) = (looking.index, &self.store.pages);
        let places = Places::of(self, looking.table.fragment(looking.scan.partition));
        let RangeScratch { source, version, entry: key, restored } = scratch;
        restored.clear();
        restored.resize(looking.table.layout.fixed_bytes(), 0);
        let mut source = RowKeys::new(places, index.order(), source);
        // Of most rows that a filter looks at nothing more is wanted.
        source.decisive_byte = looking.scan.filter.as_ref().and_then(Program::first_byte);
        source.needs_rows = !looking.is_covered;
        source.needs_variable =
            looking.sends_variable && !looking.is_covered && looking.scan.filter.is_none();
        let mut looked_at = 0;
        while let Some(bounds) = ranges.bounds() {
            let mut stopped = None;
            if let Some(range) = ranges.left(bounds) {
                let mut cursor = index.tree.cursor(pages, &mut source, range, ranges.direction);
                while cursor.advance(&mut source) {
                    looked_at += 1;
                    *units = units.saturating_sub(ENTRY_UNITS);
                    let entry = cursor.current();
                    let sent = match covered(looking, entry, restored) {
                        Covered::Counted => {
                            progress.tally.rows += 1;
                            None
                        }
                        Covered::Row(key) => {
                            let row = Version { fixed: restored, variable: &[] };
                            put_row(looking, entry, ranges.number, key.get(), row, progress, answer)
                        }
                        Covered::No => self.send_entry(
                            looking,
                            entry,
                            ranges.number,
                            progress,
                            answer,
                            &mut source,
                            version,
                            key,
                        ),
                    };
                    let Some(mut sliced) = sent.or((*units == 0).then_some(Sliced::More)) else { continue };
                    let entry = *cursor.current();
                    // The last entry of all may just have filled the batch: then there is nothing to be asked for.
                    let is_last_range = ranges.number + 1 == ranges.count;
                    if sliced == Sliced::BatchFull && is_last_range && !cursor.advance(&mut source) {
                        sliced = Sliced::End;
                    }
                    key.clear();
                    index.tree.write_key(pages, &mut source, &entry, key);
                    stopped = Some((sliced, entry.row()));
                    break;
                }
            }
            if let Some((sliced, row)) = stopped {
                ranges.row = Some(row);
                core::mem::swap(&mut ranges.key, key);
                return (sliced, looked_at);
            }
            ranges.enter_next();
            *units = units.saturating_sub(RANGE_UNITS);
            if *units == 0 && ranges.number < ranges.count {
                return (Sliced::More, looked_at);
            }
        }
        (Sliced::End, looked_at)
    }

    /// Sends the row of an entry if it is seen under the entry's key and passes. Some if the slice ends with it.
    #[allow(clippy::too_many_arguments, reason = "parts of one thing that are borrowed apart")]
    #[inline]
    fn send_entry(
        &self,
        looking: &Looking<'_>,
        entry: &Entry,
        range: u16,
        progress: &mut Progress,
        answer: &mut Answer<'_>,
        source: &mut RowKeys<'_>,
        version_key: &mut Vec<u8>,
        entry_key: &mut Vec<u8>,
    ) -> Option<Sliced> {
        let Looking { scan, table, rows, index, sends_keys, .. } = *looking;
        let row = rows.row(&self.store.pages, entry.row());
        let version = if row.operation() == OperationRef::NONE {
            let rest = Rest { row, store: &self.store };
            if let Some(filter) = &scan.filter
                && !filter.matches_source(&table.layout, row.fixed(), &rest)
            {
                return None;
            }
            Version { fixed: row.fixed(), variable: if looking.sends_variable { rest.bytes() } else { &[] } }
        } else {
            self.busy_version(looking, entry, source, version_key, entry_key)?
        };
        if scan.counts {
            progress.tally.rows += 1;
            return None;
        }
        if sends_keys {
            version_key.clear();
            index.order().write_row(&table.layout, version.fixed, version.variable, version_key);
        }
        let key: &[u8] = if sends_keys { version_key } else { &[] };
        put_row(looking, entry, range, key, version, progress, answer)
    }

    /// What the scan sees of a row that operations name, if that has the entry's key and passes.
    fn busy_version<'a>(
        &'a self,
        looking: &Looking<'a>,
        entry: &Entry,
        source: &mut RowKeys<'_>,
        version_key: &mut Vec<u8>,
        entry_key: &mut Vec<u8>,
    ) -> Option<Version<'a>> {
        let Looking { scan, table, index, takes_any_version, .. } = *looking;
        let version =
            self.store.visible_in_use(&self.versions, table, scan.partition, entry.row(), scan.viewer)?;
        if !takes_any_version {
            version_key.clear();
            index.order().write_row(&table.layout, version.fixed, version.variable, version_key);
            entry_key.clear();
            index.tree.write_key(&self.store.pages, source, entry, entry_key);
            if version_key != entry_key {
                return None;
            }
        }
        let passes = |filter: &Program| filter.matches(&table.layout, version.fixed, version.variable);
        scan.filter.as_ref().is_none_or(passes).then_some(version)
    }
}

/// Whether an entry says all that a scan wants of a row: that it is there, or values of columns that follow from its
/// key.
fn is_covered(scan: &ScanHead, index: &FragmentIndex) -> bool {
    let order = index.order();
    let has_all =
        |columns: &[ColumnId]| order.is_restorable() && columns.iter().all(|&column| order.has(column));
    scan.filter.is_none() && (scan.counts || scan.selection.as_deref().is_some_and(has_all))
}

/// Whether something is wanted of the variable parts of rows that pass: of those columns, or of the key's, if that is
/// sent.
fn sends_variable(scan: &ScanHead, layout: &RowLayout, key: Option<&OrderKey>) -> bool {
    let mut variable = layout.variable().iter();
    match scan.selection.as_deref() {
        _ if scan.counts => false,
        None => layout.has_variable(),
        Some(columns) => {
            variable.any(|column| columns.contains(column) || key.is_some_and(|key| key.has(*column)))
        }
    }
}

/// What an entry says without its row.
enum Covered {
    /// Not enough.
    No,
    /// That there is one to be counted.
    Counted,
    /// All that is wanted, which is in the row that was made; the key, if that is sent too.
    Row(ShortKey),
}

/// A key that stands in an entry as a whole.
struct ShortKey([u8; 8], usize);

impl ShortKey {
    fn get(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

/// What an entry says without its row. Where nobody names a row of the page each of them has one version, and this is
/// its key.
#[inline]
fn covered(looking: &Looking<'_>, entry: &Entry, restored: &mut [u8]) -> Covered {
    if !looking.is_covered || (looking.rows.is_named_near(entry.row()) && !looking.covers_named_rows) {
        return Covered::No;
    }
    if looking.scan.counts {
        return Covered::Counted;
    }
    let Some((key, bytes)) = entry.complete_key() else { return Covered::No };
    looking.index.order().restore_row(&looking.table.layout, &key[..bytes], restored);
    Covered::Row(ShortKey(key, if looking.sends_keys { bytes } else { 0 }))
}

/// Sends what is wanted of a row, and its key. Some if the slice ends with it.
#[inline]
fn put_row(
    looking: &Looking<'_>,
    entry: &Entry,
    range: u16,
    key: &[u8],
    version: Version<'_>,
    progress: &mut Progress,
    answer: &mut Answer<'_>,
) -> Option<Sliced> {
    let head = RangeRow {
        row: U32::new(entry.row().0),
        range: U16::new(range),
        key_bytes: U16::new(key.len() as u16),
        row_bytes: U16::ZERO,
    };
    let writer = &mut answer.writer;
    let row_bytes_at = writer.length() + core::mem::offset_of!(RangeRow, row_bytes);
    writer.put(&head).bytes(key);
    let begin = writer.length();
    version.write(&looking.table.layout, looking.scan.selection.as_deref(), writer.buffer());
    let row_bytes = writer.length() - begin;
    writer.patch(row_bytes_at, &U16::new(row_bytes as u16));
    answer.count_row(progress, key.len() + row_bytes)
}

/// The variable part of a row, which is only looked for if the filter needs it or the row is sent.
struct Rest<'a> {
    row: Row<'a>,
    store: &'a Store,
}

impl<'a> Rest<'a> {
    #[inline]
    fn bytes(&self) -> &'a [u8] {
        self.row.variable().map_or(&[], |chunk| self.store.chunks.bytes(&self.store.pages, chunk))
    }
}

impl VariableSource for Rest<'_> {
    fn variable(&self, _: usize) -> &[u8] {
        self.bytes()
    }
}
