//! Coordinators that have failed and whose transactions have not all ended.

use alloc::collections::BTreeSet;
use vinga_base::Epoch;
use vinga_wire::Frame;
use vinga_wire::take_over::{CoordinatorName, TakeOverDoneReport};
use vinga_wire::view::{Succession, ViewChange};

/// The take-overs that a block has to wait for before it believes that transactions of coordinators which have failed
/// are over. Every block that asks keeps its own, from the views and from `TakeOverDoneReport`, which goes to all
/// members: so the next president knows as much as the one before.
#[derive(Debug, Default)]
pub struct PendingTakeOvers(BTreeSet<CoordinatorName>);

impl PendingTakeOvers {
    /// Coordinators that the new view has lost are being taken over.
    pub fn note_lost(&mut self, change: &ViewChange) {
        let was_known =
            |name| change.old.successions().iter().any(|one| one.coordinators().any(|(n, _)| n == name));
        let all = change.new.successions().iter().flat_map(Succession::coordinators);
        self.0.extend(all.map(|(name, _)| name).filter(|&name| !was_known(name)));
    }

    /// `TakeOverDoneReport`: all transactions of a coordinator have ended. Returns the newest epoch of their commits;
    /// `None` if the signal is not well-formed.
    pub fn on_done(&mut self, frame: &Frame<'_>) -> Option<Epoch> {
        let (report, _) = frame.head::<TakeOverDoneReport>()?;
        self.0.remove(&report.coordinator.name());
        Some(Epoch(report.epoch.get()))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
