//! Loading into the caches what signals will touch, before the first of a batch is handled.
//!
//! What a signal touches is a chain of dependent reads: from the transaction's id to its record, from there to the
//! operation, from there to the row, its state and its lock. Done one signal after the other, each step waits for
//! memory. Here one step is done for all signals of a batch, then the next one, and the waits overlap.

use crate::DataManager;
use crate::operation::{Change, OperationRecord};
use vinga_base::TransactionId;
use vinga_kernel::Prefetch;
use vinga_wire::commit::{COMMIT_IS_COMPLETE, CommitBody};
use vinga_wire::{Frame, SignalNumber};

/// Transactions of a list that are prefetched together.
pub(crate) const TOGETHER: usize = 16;

impl DataManager {
    /// Prefetches what a signal about a single key or a single transaction will touch; see [`vinga_kernel::Host`].
    /// Signals with several keys overlap their own misses.
    #[inline]
    pub fn prefetch(&self, pass: Prefetch, frame: &Frame<'_>) -> bool {
        let is_for_keys = matches!(pass, Prefetch::Index | Prefetch::Row);
        match frame.signal() {
            Some(SignalNumber::KeyReadRequest) if is_for_keys => self.prefetch_key_read(pass, frame),
            Some(SignalNumber::PrepareRequest) if is_for_keys => self.prefetch_prepare(pass, frame),
            Some(SignalNumber::RangeScanOpenRequest) if is_for_keys => self.prefetch_range_scan(pass, frame),
            Some(SignalNumber::CommitRequest) => {
                if let Some((body, _)) = frame.head::<CommitBody>() {
                    let id = TransactionId(body.transaction.get());
                    self.prefetch_transaction(pass, id);
                    if pass == Prefetch::Index && body.flags.get() & COMMIT_IS_COMPLETE != 0 {
                        self.markers.prefetch(id);
                    }
                }
                return true;
            }
            _ => return false,
        }
        pass == Prefetch::Index
    }

    /// Prefetches what the end of a transaction touches.
    #[inline]
    pub(crate) fn prefetch_transaction(&self, pass: Prefetch, id: TransactionId) {
        match pass {
            Prefetch::Index => self.versions.prefetch_id(id),
            Prefetch::Row => self.versions.prefetch_record(id),
            Prefetch::Operation => {
                if let Some(operation) = self.versions.last_operation(id) {
                    self.versions.operations.prefetch(operation.index());
                }
            }
            Prefetch::RowState => {
                let last = self.versions.last_operation(id);
                if let Some(record) = last.and_then(|handle| self.versions.operations.get(handle)) {
                    self.prefetch_named(record);
                }
            }
        }
    }

    /// Prefetches what an operation names.
    fn prefetch_named(&self, operation: &OperationRecord) {
        let Some(state) = operation.row_state else { return };
        self.versions.rows.prefetch(state.index());
        if let Some(lock) = operation.lock {
            self.locks.table.prefetch(lock);
        }
        let table = self.store.tables.current(operation.table);
        if table.has_fragment(operation.partition) {
            table.fragment(operation.partition).rows().prefetch(&self.store.pages, operation.row);
        }
        if let Change::Replace(image) = &operation.change {
            image.prefetch(&self.store.pages, &self.store.chunks);
        }
    }

    /// Prefetches for the next transactions of a list.
    pub(crate) fn prefetch_listed(&self, ids: impl Iterator<Item = TransactionId> + Clone) {
        for pass in Prefetch::ALL {
            ids.clone().take(TOGETHER).for_each(|id| self.prefetch_transaction(pass, id));
        }
    }
}
