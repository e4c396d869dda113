//! Deadlocks over several data managers: probes, as `docs/protocols/deadlocks.md` describes. (A cycle within one data
//! manager is seen by its lock table at once.)
//!
//! A wait that is not over after [`PROBE_AFTER`] sends a probe to the coordinator of each transaction that is in its
//! way. One that comes here, about a transaction that waits here, is passed on to the coordinators of those that are in
//! that one's way; if its initiator is among them the way is a cycle.
//!
//! Nothing is kept of a probe, so nothing is left of one that got lost. What can be sent between two checks is bounded:
//! a crowd that waits for a hot row must not keep the data managers busy with questions. What is beyond that waits for
//! the next check, or, if it only was to be passed on, is dropped: then the time-out ends the wait.

use crate::DataManager;
use crate::operation::State;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use vinga_base::TransactionId;
use vinga_base::pool::Handle;
use vinga_kernel::{Context, InjectedBug, Span, Tick};
use vinga_wire::deadlock::{DeadlockBody, DeadlockProbe};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, U32, U64};

/// How long an operation waits before it is asked whether that will end.
const PROBE_AFTER: Span = Span::from_millis(10);
/// Probes that are sent between two checks, at most.
const PROBES_MAX: u32 = 256;
/// Transactions in a cycle that is found, at most.
const STEPS_MAX: u32 = 32;

/// What is still to be asked, and what may be.
#[derive(Default)]
pub(crate) struct Probes {
    /// Waiting operations that no probe was sent for, in the order in which they began to wait, with the time; each
    /// once.
    waiting: VecDeque<(Tick, Handle)>,
    /// Probes that may be sent before the next check.
    left: u32,
    /// Whoever is in the way of a probe.
    blockers: Vec<TransactionId>,
}

impl Probes {
    /// An operation begins to wait.
    pub fn note(&mut self, now: Tick, operation: Handle) {
        self.waiting.push_back((now, operation));
    }
}

impl DataManager {
    /// Sends probes for what has begun to wait some time ago.
    pub(crate) fn send_probes(&mut self, cx: &mut Context<'_>) {
        self.locks.probes.left = PROBES_MAX;
        while let Some(&(began, handle)) = self.locks.probes.waiting.front() {
            if cx.now().since(began) < PROBE_AFTER {
                return;
            }
            if let Some(entry) = self.waiting_entry(handle) {
                if self.locks.probes.left == 0 {
                    cx.mark("more long waits than probes");
                    return;
                }
                let transaction = &self.versions.transactions[self.versions.operations[handle].transaction];
                let probe = DeadlockProbe {
                    initiator: U64::new(transaction.id.0),
                    asked: U64::new(transaction.id.0),
                    youngest: U64::new(transaction.id.0),
                    coordinator: transaction.actor.acting,
                    number: U32::new(cx.now().0 as u32),
                    steps: U32::new(STEPS_MAX),
                };
                self.pass_on(cx, entry, &probe);
            }
            self.locks.probes.waiting.pop_front();
            if let Some(record) = self.versions.operations.get_mut(handle) {
                record.is_noted = false;
            }
        }
    }

    /// The entry with which an operation waits, if it still does: for the same lock as when that was noted, or, since
    /// that row has gone, for another one.
    fn waiting_entry(&self, handle: Handle) -> Option<Handle> {
        let record = self.versions.operations.get(handle)?;
        match record.state {
            State::Waiting { .. } => {}
            State::Prepared | State::Committed { .. } => return None,
        }
        let entry = record.lock?;
        let (_, is_granted) = self.locks.table.entry(entry)?;
        (!is_granted).then_some(entry)
    }

    /// Asks those that are in the way of a waiting entry, or finds that the cycle is closed.
    fn pass_on(&mut self, cx: &mut Context<'_>, entry: Handle, probe: &DeadlockProbe) {
        let mut blockers = core::mem::take(&mut self.locks.probes.blockers);
        blockers.clear();
        self.locks.table.for_each_blocker(entry, |blocker| blockers.push(blocker));
        if blockers.contains(&TransactionId(probe.initiator.get())) {
            cx.mark("deadlock over several data managers");
            let coordinator = Address(probe.coordinator.get());
            let order = DeadlockBody { transaction: probe.youngest };
            cx.frame(SignalNumber::DeadlockOrder, coordinator).put(&order);
        } else {
            for &blocker in &blockers {
                self.ask(cx, blocker, probe);
            }
        }
        self.locks.probes.blockers = blockers;
    }

    /// Asks one transaction, through its coordinator.
    fn ask(&mut self, cx: &mut Context<'_>, blocker: TransactionId, probe: &DeadlockProbe) {
        let Some(transaction) = self.versions.find_transaction(blocker) else { return };
        if probe.steps.get() == 0 || self.locks.probes.left == 0 {
            return;
        }
        self.locks.probes.left -= 1;
        let acting = self.versions.transactions[transaction].actor.acting;
        let age = |id: TransactionId| (id.number(), id);
        let is_younger = age(blocker) > age(TransactionId(probe.youngest.get()));
        cx.frame(SignalNumber::DeadlockProbeOrder, Address(acting.get())).put(&DeadlockProbe {
            asked: U64::new(blocker.0),
            youngest: if is_younger { U64::new(blocker.0) } else { probe.youngest },
            coordinator: if is_younger { acting } else { probe.coordinator },
            steps: U32::new(probe.steps.get() - 1),
            ..*probe
        });
    }

    pub(crate) fn on_deadlock_probe_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (probe, _) = frame.head::<DeadlockProbe>()?;
        let entries: Vec<Handle> = self.locks.table.waits_of(TransactionId(probe.asked.get())).collect();
        for entry in entries {
            self.pass_on(cx, entry, probe);
        }
        Some(())
    }

    pub(crate) fn on_deadlock_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<DeadlockBody>()?;
        if cx.has_bug(InjectedBug::DeadlockVictimGoesOn) {
            return Some(());
        }
        // One after the other: who is refused may have been in the way of the transaction's next one.
        let next =
            |manager: &Self| manager.locks.table.waits_of(TransactionId(order.transaction.get())).next();
        while let Some(entry) = next(self) {
            let (locker, _) = self.locks.table.entry(entry).expect("it waits");
            self.statistics.deadlocks += 1;
            self.refuse_waiting(cx, locker.operation, ErrorCode::Deadlock);
        }
        self.run_ready(cx);
        Some(())
    }
}
