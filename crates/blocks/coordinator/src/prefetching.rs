//! Loading into the caches what signals will touch, before the first of a batch is handled.

use crate::Coordinator;
use vinga_base::TransactionId;
use vinga_kernel::Prefetch;
use vinga_wire::commit::{CommitBody, PreparedHead};
use vinga_wire::transaction::TransactionHead;
use vinga_wire::{Frame, SignalNumber};

impl Coordinator {
    /// Prefetches what a signal about one transaction will touch; see [`vinga_kernel::Host`].
    #[inline]
    pub fn prefetch(&self, pass: Prefetch, frame: &Frame<'_>) -> bool {
        match frame.signal() {
            Some(SignalNumber::TransactionRequest) => {
                if let Some((head, _)) = frame.head::<TransactionHead>() {
                    self.transactions.prefetch_id(TransactionId(head.transaction.get()));
                }
                false
            }
            Some(SignalNumber::PrepareConfirm | SignalNumber::PrepareRefuse) => {
                if let Some((head, _)) = frame.head::<PreparedHead>() {
                    self.prefetch_answered(pass, head.record.get(), TransactionId(head.transaction.get()));
                }
                pass == Prefetch::Index
            }
            Some(SignalNumber::CommitConfirm) => {
                if let Some((body, _)) = frame.head::<CommitBody>() {
                    let id = TransactionId(body.transaction.get());
                    self.prefetch_answered(pass, body.actor.record.get(), id);
                    // Its id is removed with it.
                    self.transactions.prefetch_id(id);
                }
                pass == Prefetch::Index
            }
            _ => false,
        }
    }

    /// The record of a transaction, then the first of its participants.
    #[inline]
    fn prefetch_answered(&self, pass: Prefetch, record: u32, id: TransactionId) {
        if pass == Prefetch::Index {
            self.transactions.prefetch_record(record);
        } else if let Some(handle) = self.transactions.find_record(record, id) {
            self.participants.prefetch(self.transactions[handle].participants);
        }
    }
}
