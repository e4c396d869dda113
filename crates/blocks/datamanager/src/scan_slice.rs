//! One slice of a scan: some pages of rows, looked at and answered.
//!
//! Of each page the live slots are taken; those without operations are filtered together, column by column
//! ([`Program::select`](vinga_program::filter::Program::select)), those with operations one by one on the version that
//! the scan may see. What passes is copied into the answer, or counted.

use crate::scan::{Progress, ScanHead, Sliced};
use crate::store::Version;
use crate::tables::Table;
use crate::{DataManager, Store};
use core::cmp::Ordering;
use vinga_base::RowId;
use vinga_fragment::page_view::{PageView, SLOT_WORDS_MAX};
use vinga_kernel::{Context, InjectedBug};
use vinga_program::filter::{Program, RowBlock, VariableSource};
use vinga_wire::frame::HEADER_BYTES;
use vinga_wire::key_read::ANSWER_BYTES_SOFT;
use vinga_wire::range_scan::RangeRow;
use vinga_wire::scan::{FIGURE_BYTES, SCAN_BATCH_END, SCAN_END, ScanAnswer};
use vinga_wire::{FrameWriter, SignalNumber, U16, U32, U64};

/// Rows that are counted at the cost of one that is filtered.
const COUNTED_PER_UNIT: u32 = 4;

/// The answer of a slice.
pub(crate) struct Answer<'a> {
    pub writer: FrameWriter<'a>,
    rows: u16,
}

impl<'a> Answer<'a> {
    pub fn begin(cx: &'a mut Context<'_>, scan: &ScanHead, epoch: u64) -> Self {
        let mut writer = cx.frame(SignalNumber::ScanConfirm, scan.api);
        writer.put(&ScanAnswer {
            epoch: U64::new(epoch),
            scan: U32::new(scan.name),
            next_row: U32::ZERO,
            count: U16::ZERO,
            flags: U16::ZERO,
        });
        Answer { writer, rows: 0 }
    }

    /// A row of so many bytes has been written. Some if the slice ends with it.
    #[inline]
    pub fn count_row(&mut self, progress: &mut Progress, bytes: usize) -> Option<Sliced> {
        self.rows += 1;
        let is_long = self.writer.length() >= ANSWER_BYTES_SOFT;
        progress.count_row(bytes).or(is_long.then_some(Sliced::More))
    }

    /// Of a scan that counts: a figure, behind its length.
    pub fn put_figure(&mut self, figure: u64) {
        self.writer.put(&U16::new(FIGURE_BYTES as u16)).put(&U64::new(figure));
        self.rows = 1;
    }

    /// The same in the form of a scan of ranges.
    pub fn put_ranged_figure(&mut self, figure: u64) {
        self.writer
            .put(&RangeRow {
                row: U32::ZERO,
                range: U16::ZERO,
                key_bytes: U16::ZERO,
                row_bytes: U16::new(FIGURE_BYTES as u16),
            })
            .put(&U64::new(figure));
        self.rows = 1;
    }

    /// Sends it, unless it would say nothing.
    pub fn end(mut self, sliced: Sliced, next: RowId) {
        let flags = match sliced {
            Sliced::More if self.rows == 0 => return self.writer.cancel(),
            Sliced::More => 0,
            Sliced::BatchFull => SCAN_BATCH_END,
            Sliced::End => SCAN_BATCH_END | SCAN_END,
        };
        let mut patch_u16 = |at: usize, value: u16| self.writer.patch(HEADER_BYTES + at, &U16::new(value));
        patch_u16(core::mem::offset_of!(ScanAnswer, count), self.rows);
        patch_u16(core::mem::offset_of!(ScanAnswer, flags), flags);
        self.writer.patch(HEADER_BYTES + core::mem::offset_of!(ScanAnswer, next_row), &U32::new(next.0));
    }
}

/// Slots of a page, as bitmaps.
struct Slots {
    /// Rows that operations name: the version to be seen may be another than the slot's.
    busy: [u64; SLOT_WORDS_MAX],
    /// Rows to be sent, as far as the filter could decide: all busy ones and, of the others, those that pass.
    chosen: [u64; SLOT_WORDS_MAX],
    words: usize,
}

impl DataManager {
    /// Looks at some rows, as many as the units allow, and sends those that pass.
    pub(crate) fn scan_slice(
        &mut self,
        cx: &mut Context<'_>,
        scan: &ScanHead,
        position: &mut RowId,
        progress: &mut Progress,
        units: &mut u32,
    ) -> Sliced {
        let table = self.store.tables.current(scan.table);
        let rows = table.fragment(scan.partition).rows();
        let takes_any_version = cx.has_bug(InjectedBug::CountTakesAnyVersion);
        let mut answer = Answer::begin(cx, scan, self.epoch.0);
        let mut looked_at = 0;
        let mut sliced = loop {
            let page = position.page();
            if page >= rows.page_count() {
                break Sliced::End;
            }
            if let Some(view) = rows.page(&self.store.pages, page) {
                let slots = view.slots() as u32;
                looked_at += slots;
                *units = units.saturating_sub(if scan.counts { counted_units(scan, slots) } else { slots });
                if scan.counts {
                    progress.tally.look_at(slots);
                    progress.tally.rows += self.count_page(scan, table, view, *position, takes_any_version);
                } else if let Some(sliced) =
                    self.scan_page(scan, table, view, position, progress, &mut answer)
                {
                    break sliced;
                }
            }
            *position = RowId::new(page + 1, 0);
            if *units == 0 {
                break Sliced::More;
            }
        };
        // The last rows of the fragment may just have filled the batch: then there is nothing to be asked for.
        if sliced == Sliced::BatchFull && position.page() >= rows.page_count() {
            sliced = Sliced::End;
        }
        if scan.counts
            && let Some(figure) = progress.tally.take_figure(sliced)
        {
            answer.put_figure(figure);
        }
        answer.end(sliced, *position);
        self.statistics.scanned_rows += u64::from(looked_at);
        sliced
    }

    /// Sends the rows of a page from the position on. `None` at the page's end; otherwise how the slice ended, and the
    /// position is behind the last row.
    #[inline]
    fn scan_page(
        &self,
        scan: &ScanHead,
        table: &Table,
        view: PageView<'_>,
        position: &mut RowId,
        progress: &mut Progress,
        answer: &mut Answer<'_>,
    ) -> Option<Sliced> {
        let slots = self.choose_slots(scan, table, view);
        let page = position.page();
        for slot in ones_from(&slots.chosen[..slots.words], position.slot()) {
            let row = RowId::new(page, slot);
            let version = if slots.busy[slot as usize / 64] & 1 << (slot % 64) != 0 {
                self.passing_version(scan, table, row)
            } else {
                Some(self.store.slot(table, scan.partition, row))
            };
            let Some(version) = version else { continue };
            let selection = scan.selection.as_deref();
            let length = version.write_with_length(&table.layout, selection, answer.writer.buffer());
            if let Some(sliced) = answer.count_row(progress, length) {
                *position = next_row(row, view.slots() as u32);
                return Some(sliced);
            }
        }
        None
    }

    /// Rows of a page that a scan would send, from the position on.
    #[inline]
    fn count_page(
        &self,
        scan: &ScanHead,
        table: &Table,
        view: PageView<'_>,
        position: RowId,
        takes_any_version: bool,
    ) -> u64 {
        let Slots { busy, chosen, words } = self.choose_slots(scan, table, view);
        let from = position.slot();
        let mut rows = 0;
        for (word, (chosen, busy)) in chosen.iter().zip(&busy).enumerate().take(words) {
            let behind = match (from as usize / 64).cmp(&word) {
                Ordering::Less => !0,
                Ordering::Equal => !0 << (from % 64),
                Ordering::Greater => 0,
            };
            rows += u64::from((chosen & !busy & behind).count_ones());
        }
        let is_seen = |&slot: &u32| {
            takes_any_version
                || self.passing_version(scan, table, RowId::new(position.page(), slot)).is_some()
        };
        rows + ones_from(&busy[..words], from).filter(is_seen).count() as u64
    }

    /// What the scan sees of a row that operations name, if that passes.
    fn passing_version<'a>(&'a self, scan: &ScanHead, table: &'a Table, row: RowId) -> Option<Version<'a>> {
        let version = self.store.visible(&self.versions, table, scan.partition, row, scan.viewer)?;
        let passes = |filter: &Program| filter.matches(&table.layout, version.fixed, version.variable);
        scan.filter.as_ref().is_none_or(passes).then_some(version)
    }

    #[inline]
    fn choose_slots(&self, scan: &ScanHead, table: &Table, view: PageView<'_>) -> Slots {
        let words = view.live().len();
        let mut slots = Slots { busy: [0; SLOT_WORDS_MAX], chosen: [0; SLOT_WORDS_MAX], words };
        view.read_busy(&mut slots.busy);
        let chosen = &mut slots.chosen[..words];
        for ((chosen, live), busy) in chosen.iter_mut().zip(view.live()).zip(&slots.busy) {
            *chosen = live & !busy;
        }
        if let Some(filter) = &scan.filter {
            let variable = Variable { view, store: &self.store };
            let (stride, count) = (view.stride(), view.slots());
            let block = RowBlock::new(&table.layout, view.bytes(), view.fixed_at(), stride, count, &variable);
            filter.select(&block, chosen);
        }
        for (chosen, busy) in chosen.iter_mut().zip(&slots.busy) {
            *chosen |= busy;
        }
        slots
    }
}

/// What counting so many rows costs of a slice's units. Without a filter nothing of them is looked at but whether
/// operations name them.
fn counted_units(scan: &ScanHead, slots: u32) -> u32 {
    if scan.filter.is_some() { slots } else { slots.div_ceil(COUNTED_PER_UNIT) }
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
