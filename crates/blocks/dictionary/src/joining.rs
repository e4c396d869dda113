//! A data node joins: its dictionary is sent all definitions.
//!
//! The president's restart block has schema changes held: none is begun any more, and it is confirmed when none is
//! under way, and nothing is left of coordinators that have failed. When the president has adopted a view with somebody
//! who has joined, that one is sent what there is. Its dictionary makes the tables at the data managers and
//! coordinators of its own node. When it has, changes go on, and it takes part in them; the write fences and the holder
//! of the schema lock are stated anew then, which may have changed meanwhile.

use crate::Dictionary;
use alloc::format;
use alloc::vec::Vec;
use vinga_base::TableVersion;
use vinga_kernel::Context;
use vinga_wire::restart::{DefinitionsOrder, NewcomerStep, SchemaHold, StepDoneReport};
use vinga_wire::view::{MemberState, ViewChange};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

/// Changes are held.
#[derive(Debug)]
pub(crate) struct Hold {
    requester: Address,
    hold: SchemaHold,
    is_confirmed: bool,
}

impl Dictionary {
    pub(crate) fn on_schema_hold_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let hold = cold::read(frame)?;
        self.hold = Some(Hold { requester: frame.sender(), hold, is_confirmed: false });
        self.confirm_hold(cx);
        Some(())
    }

    /// Confirms that changes are held, when none is under way.
    pub(crate) fn confirm_hold(&mut self, cx: &mut Context<'_>) {
        let is_at_rest = self.change.is_none() && self.succession.is_none() && self.take_overs.is_empty();
        if let Some(hold) = self.hold.as_mut().filter(|hold| is_at_rest && !hold.is_confirmed) {
            hold.is_confirmed = true;
            cold::write(&mut cx.frame(SignalNumber::SchemaHoldConfirm, hold.requester), &hold.hold);
        }
    }

    pub(crate) fn on_schema_release_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let released: SchemaHold = cold::read(frame)?;
        if self.hold.take_if(|hold| hold.hold == released).is_some() {
            if self.succession.is_none() {
                self.restate_fences(cx);
                self.restate_lock(cx);
            }
            if !self.queue.is_empty() {
                cx.mark("schema change has waited for a data node that joins");
            }
            self.begin_queued(cx);
            self.go_on(cx);
        }
        Some(())
    }

    /// The president sends those that have joined all definitions.
    pub(crate) fn inform_joined(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        let own = cx.own().node();
        if change.new.president() != Some(own) {
            return;
        }
        for member in change.joined().filter(|member| member.state == MemberState::Starting) {
            let order = DefinitionsOrder {
                tables: self.tables.iter().cloned().collect(),
                databases: self.databases.iter().cloned().collect(),
                version_next: self.tables.version().0,
                changes: self.changes,
                epoch: self.epoch,
            };
            let newcomer = Address::new(member.node, BlockNumber::Dictionary, 0);
            cold::write(&mut cx.frame(SignalNumber::DefinitionsOrder, newcomer), &order);
        }
    }

    /// This node has joined: it makes all tables.
    pub(crate) fn on_definitions_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let DefinitionsOrder { tables, databases, version_next, changes, epoch } = cold::read(frame)?;
        let is_new = self.tables.iter().next().is_none() && self.changes == 0;
        if cx.view().president() != Some(frame.sender().node()) || !is_new {
            return None;
        }
        self.tables.raise_version(TableVersion(version_next));
        self.changes = changes;
        self.epoch = self.epoch.max(epoch);
        for database in databases {
            self.databases.put(database);
        }
        let refused: Vec<_> =
            tables.iter().filter_map(|record| self.tables.restore(record.clone()).err()).collect();
        if let Some(reason) = refused.first() {
            let why = format!("the tables of the cluster can't be made here: {reason}");
            cx.stop_node_for(ErrorCode::OutOfTables as u16, format_args!("{why}"));
            return Some(());
        }
        self.start.to_make.extend(tables);
        self.is_joining = true;
        self.make_next_table(cx);
        Some(())
    }

    /// All tables are made.
    pub(crate) fn note_informed(&mut self, cx: &mut Context<'_>) {
        self.is_joining = false;
        let report = StepDoneReport { step: NewcomerStep::Informed, view: cx.view().number() };
        let restart = Address::new(cx.own().node(), BlockNumber::Restart, 0);
        cold::write(&mut cx.frame(SignalNumber::StepDoneReport, restart), &report);
    }
}
