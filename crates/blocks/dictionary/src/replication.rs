//! The dictionaries of the other data nodes: they have the definitions of the president's, and know what it is doing.
//!
//! Before anything is done for a change all others have noted it (`Note`), and before it is published all know that it
//! is decided (`Decide`): they list the new definitions before the president does. At the end they are sent `End`. So
//! if the president fails, and any dictionary knows the change as decided, somebody may have used the new definitions,
//! and the change is finished; if none does, nobody has, and it is undone (`succession`).
//!
//! Ids and versions that a change takes are noted with it: no other change gets them, whoever is president.

use crate::Dictionary;
use crate::plan::Plan;
use alloc::vec::Vec;
use vinga_base::{Epoch, NodeId, TableVersion};
use vinga_kernel::Context;
use vinga_wire::schema_round::{
    NotedChange, RoundName, RoundTask, SchemaRoundConfirm, SchemaRoundRequest, SchemaStateConfirm,
    SchemaStateRequest,
};
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber, cold};

/// A change that another dictionary carries out.
#[derive(Debug)]
pub struct Noted {
    pub number: u64,
    pub plan: Plan,
    /// Its definitions are listed here.
    pub is_decided: bool,
    /// Its epoch if it is decided.
    pub epoch: Epoch,
}

impl Dictionary {
    /// The dictionaries of the other data nodes.
    pub(crate) fn others(cx: &Context<'_>) -> Vec<Address> {
        let own = cx.own();
        cx.view().addresses(BlockNumber::Dictionary).filter(|&one| one != own).collect()
    }

    /// Has all other dictionaries do something that nobody waits for.
    pub(crate) fn send_others(&self, cx: &mut Context<'_>, round: RoundName, task: RoundTask) {
        let body = SchemaRoundRequest { round, epoch: Epoch(0), task };
        for other in Self::others(cx) {
            cold::write(&mut cx.frame(SignalNumber::SchemaRoundRequest, other), &body);
        }
    }

    /// The part of a dictionary that does not lead in a round.
    pub(crate) fn on_schema_round_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let SchemaRoundRequest { round, epoch, task } = cold::read(frame)?;
        if cx.view().president() != Some(frame.sender().node()) {
            return None;
        }
        match task {
            RoundTask::Note { change } => self.note(round.change, change)?,
            RoundTask::Decide => self.note_decision(round.change, epoch),
            RoundTask::End => self.note_end(round.change),
            RoundTask::Fence { table, api: 0 } => {
                self.fences.remove(&table);
                self.ending_fences.remove(&table);
            }
            RoundTask::Fences { owners } => {
                self.fences = owners.into_iter().map(|(table, api)| (table, NodeId(api))).collect();
                self.ending_fences.clear();
            }
            RoundTask::SchemaLock { holder } => self.note_lock_holder(cx, holder),
            RoundTask::Prepare { .. }
            | RoundTask::Switch { .. }
            | RoundTask::Build { .. }
            | RoundTask::Publish { .. }
            | RoundTask::Complete { .. }
            | RoundTask::Remove { .. }
            | RoundTask::Fence { .. } => return None,
        }
        let body = SchemaRoundConfirm { round, epoch: self.epoch };
        cold::write(&mut cx.frame(SignalNumber::SchemaRoundConfirm, frame.sender()), &body);
        Some(())
    }

    /// Takes note of a change; `None` if it can't be one of the definitions that are listed here.
    fn note(&mut self, number: u64, change: NotedChange) -> Option<()> {
        assert!(self.noted.is_none(), "one change at a time");
        let present = |id: Option<u32>| match id {
            Some(id) => self.tables.by_id(id).cloned().map(Some),
            None => Some(None),
        };
        let plan = Plan {
            before: present(change.before)?,
            after: change.after,
            replaced: present(change.replaced)?,
            made: change.made,
            gone: change.gone,
            fence: (change.fence != 0).then_some(NodeId(change.fence)),
            database: change.database,
            ..Plan::default()
        };
        self.tables.raise_version(TableVersion(change.version_next));
        for made in &plan.made {
            self.tables.use_id(made.table);
        }
        self.changes = self.changes.max(number);
        self.noted = Some(Noted { number, plan, is_decided: false, epoch: Epoch(0) });
        Some(())
    }

    /// The change that was noted is carried out. A new president may say so again, also when it is over here.
    pub(crate) fn note_decision(&mut self, number: u64, epoch: Epoch) {
        let Some(mut noted) = self.noted.take_if(|noted| noted.number == number) else { return };
        noted.epoch = noted.epoch.max(epoch);
        self.epoch = self.epoch.max(epoch);
        if !core::mem::replace(&mut noted.is_decided, true) {
            self.list(&noted.plan);
        }
        self.noted = Some(noted);
    }

    /// The change that was noted is over.
    pub(crate) fn note_end(&mut self, number: u64) {
        let Some(noted) = self.noted.take_if(|noted| noted.number <= number) else { return };
        self.changes = self.changes.max(number);
        let free = if noted.is_decided { noted.plan.gone } else { noted.plan.made };
        for table in free {
            self.tables.release_id(table.table);
        }
    }

    /// Whether a name can't be described now, as its table may be between two versions.
    pub(crate) fn hides(&self, name: &str) -> bool {
        let is_noted =
            |noted: &Noted| noted.is_decided && noted.plan.fence.is_none() && noted.plan.concerns(name);
        self.change.as_ref().is_some_and(|change| change.hides(name))
            || self.noted.as_ref().is_some_and(is_noted)
    }

    /// A new president wants to know what its predecessor was doing.
    pub(crate) fn on_schema_state_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let SchemaStateRequest { view } = cold::read(frame)?;
        let decided = self.noted.as_ref().filter(|noted| noted.is_decided);
        let body = SchemaStateConfirm {
            view,
            change: self.changes,
            is_decided: decided.is_some(),
            epoch: decided.map_or(Epoch(0), |noted| noted.epoch),
            version_next: self.tables.version().0,
        };
        cold::write(&mut cx.frame(SignalNumber::SchemaStateConfirm, frame.sender()), &body);
        Some(())
    }
}
