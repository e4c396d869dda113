//! Batches of copied rows that wait for their turn at the target. See the head of `copying`.

use super::copy_units;
use crate::DataManager;
use alloc::vec::Vec;
use vinga_base::RowId;
use vinga_kernel::Context;
use vinga_wire::ErrorCode;
use vinga_wire::copying::CopyRowsHead;
use vinga_wire::operation::Operation;

/// Rows that are taken over in a turn while requests come a few at a time. Each takes about a microsecond.
const BRIEF_ROWS: u32 = 32;

/// So many batches may wait. Each row that was awaited comes as one, when a transaction has ended that may have changed
/// very many.
pub(super) const WAITING_MAX: usize = 16;

/// A batch, of which some rows may have been taken over.
pub(crate) struct WaitingBatch {
    pub head: CopyRowsHead,
    /// All its rows, as they came.
    pub rows: Vec<u8>,
    /// Where the first row stands that was not taken over.
    pub offset: usize,
    /// How many rows were not.
    pub left: u16,
    /// The row id from which on nothing was done.
    pub next: u32,
    /// Bytes of the images that were taken over.
    pub bytes: u64,
}

impl WaitingBatch {
    pub fn new(head: &CopyRowsHead, rows: &[u8]) -> Self {
        WaitingBatch {
            head: *head,
            rows: rows.to_vec(),
            offset: 0,
            left: head.count.get(),
            next: head.first.get(),
            bytes: 0,
        }
    }

    /// So many rows were taken over, with so many bytes of images; the next stands at `offset`.
    pub fn took(&mut self, count: u32, bytes: u64, offset: usize, next: u32) {
        self.left -= u16::try_from(count).expect("a batch has no more rows");
        self.bytes += bytes;
        (self.offset, self.next) = (offset, next);
    }

    fn table(&self) -> u32 {
        self.head.table.get()
    }

    /// Whether it says something about a row, which was not taken over.
    fn speaks_of(&self, table: u32, row: RowId) -> bool {
        self.table() == table && (self.next..self.head.end.get()).contains(&row.0)
    }
}

impl DataManager {
    /// A batch has come: it waits for its turn.
    pub(super) fn take_later(&mut self, cx: &mut Context<'_>, batch: WaitingBatch) {
        if self.copying.waiting.len() >= WAITING_MAX {
            cx.mark("many batches of copied rows are taken over at once");
            self.take_over_waiting(cx);
        }
        if self.schema.index_work.is_building(batch.table()) {
            cx.mark("copied rows wait for an index that is built");
        }
        self.copying.waiting.push_back(batch);
    }

    /// Goes on with what waits; returns whether more could be done at once.
    #[inline(never)]
    pub(crate) fn take_over_slice(&mut self, cx: &mut Context<'_>) -> bool {
        if self.next_waiting().is_none() {
            return false;
        }
        let units = copy_units(cx, BRIEF_ROWS);
        units == 0 || self.take_over(cx, units)
    }

    /// Takes over all that can be.
    pub(crate) fn take_over_waiting(&mut self, cx: &mut Context<'_>) {
        if !self.copying.waiting.is_empty() {
            self.take_over(cx, u32::MAX);
        }
    }

    /// If what waits says something about the rows of forwarded operations, takes over all: the changes come after it.
    #[inline]
    pub(crate) fn take_over_before(&mut self, cx: &mut Context<'_>, count: u16, operations: &[u8]) {
        if !self.copying.waiting.is_empty() {
            self.take_over_before_some(cx, count, operations);
        }
    }

    #[cold]
    fn take_over_before_some(&mut self, cx: &mut Context<'_>, count: u16, mut operations: &[u8]) {
        for _ in 0..count {
            let Some(operation) = Operation::take(&mut operations) else { return };
            let (table, row) = (operation.head.table.get(), RowId(operation.head.row_or_wait.get()));
            if self.copying.waiting.iter().any(|batch| batch.speaks_of(table, row)) {
                cx.mark("change of a row that waits to be taken over");
                return self.take_over_waiting(cx);
            }
        }
    }

    /// The first batch that does not wait for an index to be built; none if one could not be taken over.
    fn next_waiting(&self) -> Option<usize> {
        let may_go = |batch: &WaitingBatch| !self.schema.index_work.is_building(batch.table());
        self.copying.waiting.iter().position(may_go).filter(|_| !self.copying.has_failed)
    }

    /// Goes on with what waits; returns whether something is left that could be gone on with.
    fn take_over(&mut self, cx: &mut Context<'_>, mut units: u32) -> bool {
        while units > 0
            && let Some(at) = self.next_waiting()
        {
            let mut batch = self.copying.waiting.remove(at).expect("it was found");
            match self.take_over_rows(cx, &mut batch, &mut units) {
                Some(true) => {}
                Some(false) => self.copying.waiting.insert(at, batch),
                None => {
                    self.copying.has_failed = true;
                    let why = format_args!("copied rows can't be read");
                    cx.stop_node_for(ErrorCode::MalformedSignal as u16, why);
                }
            }
        }
        self.note_complete(cx);
        self.next_waiting().is_some()
    }
}
