//! What this data manager reports of a coordinator that has failed, and from then on refuses of it.
//!
//! **Freeze rule.** Once this thread has adopted a view without a coordinator's node, it drops every signal about its
//! transactions that was not sent for the one who acts for it now: neither what survivors pass along the chains on
//! behalf of the dead coordinator, nor what a successor has sent that is dead too. So what it reports stays true until
//! the present successor changes it.

use crate::DataManager;
use crate::markers::Marker;
use alloc::vec::Vec;
use vinga_base::Epoch;
use vinga_base::pool::Handle;
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::commit::Actor;
use vinga_wire::take_over::{
    CoordinatorBody, TRACE_HOLDS, TRACE_READ_AT_BACKUPS, TRANSACTIONS_MAX, TakeOverReport, TransactionTrace,
};
use vinga_wire::{Address, Frame, SignalNumber, U16, U32, U64};

impl DataManager {
    /// Whether a signal is sent for the coordinator that acts for a transaction; see the freeze rule.
    pub(crate) fn is_acting(cx: &mut Context<'_>, actor: &Actor) -> bool {
        let acting = cx.view().acts_for(actor.coordinator_name());
        if acting == Some(Address(actor.acting.get())) {
            return true;
        }
        cx.mark("signal for a coordinator that acts no more is dropped");
        cx.has_bug(InjectedBug::DeadCoordinatorGoesOn)
    }

    /// Reports everything of a coordinator's transactions to the one who acts for it now.
    pub(crate) fn on_take_over_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<CoordinatorBody>()?;
        let name = body.name();
        if cx.view().acts_for(name) != Some(frame.sender()) {
            return Some(());
        }
        let open = self.versions.transactions.iter();
        let mut traces: Vec<TransactionTrace> = open
            .filter(|(_, transaction)| transaction.actor.coordinator_name() == name)
            .map(|(handle, _)| self.trace_of(cx, handle))
            .collect();
        if !cx.has_bug(InjectedBug::TakeOverForgetsMarkers) {
            let markers = self.markers.iter().filter(|(_, marker)| marker.coordinator == name);
            traces.extend(markers.map(|(id, marker)| TransactionTrace {
                transaction: U64::new(id.0),
                epoch: U64::new(marker.epoch.0),
                marker: U32::new(marker.number),
                first_change: U32::ZERO,
                flags: U32::ZERO,
            }));
        }
        let mut parts = traces.chunks(TRANSACTIONS_MAX).peekable();
        loop {
            let part = parts.next().unwrap_or_default();
            let is_last = parts.peek().is_none();
            let mut writer = cx.frame(SignalNumber::TakeOverReport, frame.sender());
            writer.put(&TakeOverReport {
                coordinator: *body,
                owner: self.owner,
                count: U16::new(part.len() as u16),
                is_last: U16::new(is_last.into()),
            });
            for trace in part {
                writer.put(trace);
            }
            if is_last {
                return Some(());
            }
        }
    }

    fn trace_of(&self, cx: &Context<'_>, handle: Handle) -> TransactionTrace {
        let transaction = &self.versions.transactions[handle];
        let is_read = transaction.is_read_at_backups;
        let is_forgotten =
            cx.has_bug(InjectedBug::SlicedCommitIsNotReported) && self.endings.is_under_way(transaction.id);
        TransactionTrace {
            transaction: U64::new(transaction.id.0),
            epoch: U64::new(if is_forgotten { 0 } else { transaction.committed.0 }),
            marker: U32::new(transaction.marker),
            first_change: U32::new(self.versions.first_change(handle)),
            flags: U32::new(TRACE_HOLDS | if is_read { TRACE_READ_AT_BACKUPS } else { 0 }),
        }
    }

    /// Leaves a marker for a transaction that is complete.
    pub(crate) fn leave_marker(&mut self, transaction: Handle, epoch: Epoch) {
        let record = &self.versions.transactions[transaction];
        let marker = Marker { epoch, number: record.marker, coordinator: record.actor.coordinator_name() };
        self.markers.insert(record.id, marker);
    }
}
