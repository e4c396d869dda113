//! A new president goes on with what its predecessor's dictionary was doing.
//!
//! It asks the dictionaries of all other members what they know (`SchemaStateRequest`). Changes are numbered, one is
//! carried out at a time, and each is noted by all before anything is done for it (`replication`). So of the newest
//! change that anybody knows, with number n:
//!
//! - this dictionary has noted it, and anybody knows that it is decided: it is finished, beginning with `Decide`;
//! - this dictionary has noted it, and nobody knows that: it is undone, beginning with `Restore`;
//! - this dictionary has not noted it, or knows that it is over: nothing was done for it, or all of it. It is ended
//!   everywhere (`End`), and so is an older one that anybody still notes, as n began after it was over.
//!
//! Any round may have been under way, at some participants only, and any may have been over: all participants are sent
//! those that follow, and a task that was done already, or of which nothing has to be undone, does nothing. What a
//! participant was still doing for the predecessor it has given up, or finishes by itself, when it adopted the view.
//!
//! The requester is not answered: it has lost the node that it asked, and knows that the outcome is unknown.
//!
//! Write fences are among the definitions. Those whose owners' connections were closed are lifted, and all coordinators
//! receive which there are: the predecessor may have lifted one at some of them only, and in some dictionaries only.
//! The other dictionaries receive it, too. Likewise the schema lock: it stays with the claim that is noted here, or is
//! free if that one's API node has gone, whatever the others have noted (`lock`).

use crate::Dictionary;
use crate::plan::Refused;
use crate::replication::Noted;
use crate::rounds::{Change, Round};
use alloc::collections::BTreeSet;
use alloc::string::String;
use vinga_base::{Epoch, TableVersion};
use vinga_kernel::{Context, LogLevel};
use vinga_wire::schema_round::{RoundName, RoundTask, SchemaStateConfirm, SchemaStateRequest};
use vinga_wire::view::ViewChange;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

/// What has been found out so far.
#[derive(Debug)]
pub struct Succession {
    /// The view in which this node has become president.
    view: u32,
    /// Dictionaries that have not answered.
    awaited: BTreeSet<Address>,
    /// The newest change that anybody knows.
    newest: u64,
    /// Whether anybody knows that it is decided, and not that it is over.
    is_decided: bool,
    /// Its epoch if it is decided.
    epoch: Epoch,
}

impl Dictionary {
    /// This node has become president.
    pub(crate) fn succeed(&mut self, cx: &mut Context<'_>) {
        assert!(self.change.is_none(), "only the president's dictionary carries out changes");
        cx.log(
            LogLevel::Info,
            format_args!("this data node leads the cluster, and changes the schema from now on"),
        );
        let view = cx.view().number().0;
        let mut succession =
            Succession { view, awaited: BTreeSet::new(), newest: 0, is_decided: false, epoch: Epoch(0) };
        succession
            .note(self.changes, self.noted.as_ref().filter(|noted| noted.is_decided).map(|one| one.epoch));
        for other in Self::others(cx) {
            succession.awaited.insert(other);
            cold::write(&mut cx.frame(SignalNumber::SchemaStateRequest, other), &SchemaStateRequest { view });
        }
        self.succession = Some(succession);
        self.conclude(cx);
    }

    pub(crate) fn on_schema_state_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let confirm: SchemaStateConfirm = cold::read(frame)?;
        self.tables.raise_version(TableVersion(confirm.version_next));
        if let Some(succession) = &mut self.succession
            && succession.view == confirm.view
            && succession.awaited.remove(&frame.sender())
        {
            succession.note(confirm.change, confirm.is_decided.then_some(confirm.epoch));
            self.conclude(cx);
        }
        Some(())
    }

    /// Members that are lost answer nothing.
    pub(crate) fn no_longer_await_state(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        let Some(succession) = &mut self.succession else { return };
        for member in change.lost() {
            succession.awaited.retain(|one| one.node() != member.node);
        }
        self.conclude(cx);
    }

    /// When everybody has answered, the predecessor's change is finished, undone, or over.
    fn conclude(&mut self, cx: &mut Context<'_>) {
        let Some(Succession { newest, is_decided, epoch, .. }) =
            self.succession.take_if(|succession| succession.awaited.is_empty())
        else {
            return;
        };
        self.restate_fences(cx);
        self.restate_lock(cx);
        match self.noted.take_if(|noted| noted.number == newest) {
            Some(noted) if is_decided => self.finish_noted(cx, noted, epoch),
            Some(noted) => self.undo_noted(cx, noted),
            None => {
                self.note_end(newest);
                self.changes = self.changes.max(newest);
                self.send_others(cx, RoundName { change: newest, step: u32::MAX }, RoundTask::End);
            }
        }
        self.go_on(cx);
        self.begin_queued(cx);
        // If nobody else is left the first round of a change that has waited has no participants: it is over.
        self.go_on(cx);
    }

    fn finish_noted(&mut self, cx: &mut Context<'_>, noted: Noted, epoch: Epoch) {
        cx.mark("a new president finishes a schema change");
        self.epoch = self.epoch.max(epoch);
        self.change =
            Some(Change { is_listed: noted.is_decided, epoch, ..Change::new(noted.number, noted.plan) });
        self.enter_round(cx, Round::Decide);
    }

    fn undo_noted(&mut self, cx: &mut Context<'_>, noted: Noted) {
        cx.mark("a new president undoes a schema change");
        let view = cx.view();
        let coordinators = view.addresses(BlockNumber::Coordinator);
        let touched = coordinators.chain(view.addresses(BlockNumber::DataManager)).collect();
        let refused = Some(Refused { code: ErrorCode::NodeFailure, detail: String::new() });
        self.change = Some(Change { refused, touched, ..Change::new(noted.number, noted.plan) });
        self.enter_round(cx, Round::Restore);
    }
}

impl Succession {
    /// Somebody knows a change as the newest one, with its epoch if it is decided and not over.
    fn note(&mut self, change: u64, decided: Option<Epoch>) {
        if change > self.newest {
            (self.newest, self.is_decided, self.epoch) = (change, false, Epoch(0));
        }
        if let Some(epoch) = decided.filter(|_| change == self.newest) {
            self.is_decided = true;
            self.epoch = self.epoch.max(epoch);
        }
    }
}
