//! Probes and victims of deadlocks, passed on to the data managers at which a transaction may wait
//! (`docs/protocols/deadlocks.md`).
//!
//! A coordinator does not know which of a batch's operations wait for a lock, so it asks the primaries of all chains
//! that take part. A transaction passes a probe on once, by whichever way it comes: it keeps the name of the last one.

use crate::Coordinator;
use crate::transaction::State;
use vinga_base::TransactionId;
use vinga_base::pool::Handle;
use vinga_kernel::Context;
use vinga_wire::deadlock::{DeadlockBody, DeadlockProbe};
use vinga_wire::{Frame, FrameWriter, SignalNumber};

impl Coordinator {
    pub(crate) fn on_deadlock_probe_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (probe, _) = frame.head::<DeadlockProbe>()?;
        let Some(handle) = self.find_preparing(TransactionId(probe.asked.get())) else { return Some(()) };
        let name = Some((TransactionId(probe.initiator.get()), probe.number.get()));
        let passed_on = &mut self.transactions[handle].special_mut().probe;
        if *passed_on == name {
            cx.mark("deadlock probe comes by a second way");
            return Some(());
        }
        *passed_on = name;
        self.send_to_primaries(cx, handle, SignalNumber::DeadlockProbeOrder, |writer| {
            writer.put(probe);
        });
        Some(())
    }

    pub(crate) fn on_deadlock_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<DeadlockBody>()?;
        if let Some(handle) = self.find_preparing(TransactionId(order.transaction.get())) {
            self.send_to_primaries(cx, handle, SignalNumber::DeadlockOrder, |writer| {
                writer.put(order);
            });
        }
        Some(())
    }

    /// A transaction that data managers work for: no other waits.
    fn find_preparing(&self, id: TransactionId) -> Option<Handle> {
        let handle = self.transactions.find(id)?;
        matches!(self.transactions[handle].state, State::Preparing { .. }).then_some(handle)
    }

    fn send_to_primaries(
        &self,
        cx: &mut Context<'_>,
        handle: Handle,
        signal: SignalNumber,
        write: impl Fn(&mut FrameWriter<'_>),
    ) {
        for participant in self.participants.of(self.transactions[handle].participants) {
            let primary = cx.view().owned_by(participant.owner).primary();
            write(&mut cx.frame(signal, primary));
        }
    }
}
