//! A data node joins: its dictionary learns all definitions.
//!
//! The president's restart block has schema changes held: none is begun any more, and it is confirmed when none is
//! under way, and nothing is left of coordinators that have failed. In its first view the dictionary of the one that
//! has joined asks the president's for what there is, piece by piece, and makes the tables of each piece at the data
//! managers and coordinators of its own node before it asks for the next one. When it has all, changes go on, and it
//! takes part in them; the write fences and the holder of the schema lock are stated anew then, which may have changed
//! meanwhile.

use crate::Dictionary;
use crate::plan::Refused;
use crate::requests::LIST_BYTES_MAX;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::TableVersion;
use vinga_kernel::Context;
use vinga_wire::restart::{DefinitionsConfirm, DefinitionsRequest, NewcomerStep, SchemaHold, StepDoneReport};
use vinga_wire::view::{MemberState, ViewChange};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

/// Changes are held.
#[derive(Debug)]
pub(crate) struct Hold {
    requester: Address,
    hold: SchemaHold,
    is_confirmed: bool,
}

/// This node learns the definitions.
#[derive(Default, Debug)]
pub(crate) struct Joining {
    /// Up to where it has them.
    known: DefinitionsRequest,
    /// Whether there are no more.
    knows_all: bool,
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
        if let Some(hold) = self.hold.take_if(|hold| hold.hold == released) {
            // Nobody has joined if it was not confirmed. Then a change may be under way, and write fences that it has
            // set at coordinators stand nowhere else yet: they would be lifted.
            if hold.is_confirmed && self.succession.is_none() {
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

    /// If this data node can only stop, it begins no schema change any more: whoever waits for one asks the next
    /// president.
    pub(crate) fn refuse_queued_if_leaving(&mut self, cx: &mut Context<'_>) {
        if !cx.view().was_left_out(cx.own().node()) {
            return;
        }
        let queued: Vec<_> = self.queue.drain(..).collect();
        for (requester, _) in queued {
            cx.mark("queued schema change is refused as its data node leaves");
            self.refuse(cx, requester, Refused { code: ErrorCode::NodeStopping, detail: String::new() });
        }
    }

    /// This node is to learn all definitions if its first view is one that it has joined.
    pub(crate) fn begin_to_join(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        let own = change.new.member(cx.own().node());
        if change.old.members().is_empty() && own.is_some_and(|own| own.state == MemberState::Starting) {
            self.joining = Some(Joining::default());
            self.ask_or_report(cx);
        }
    }

    /// All tables are made that this node knows, which joins. Asks for more, or reports that it has all.
    pub(crate) fn ask_or_report(&mut self, cx: &mut Context<'_>) {
        let Some(joining) = &self.joining else { return };
        if joining.knows_all {
            self.joining = None;
            let report = StepDoneReport { step: NewcomerStep::Informed, view: cx.view().number() };
            let restart = Address::new(cx.own().node(), BlockNumber::Restart, 0);
            cold::write(&mut cx.frame(SignalNumber::StepDoneReport, restart), &report);
        } else if let Some(president) = cx.view().president() {
            let dictionary = Address::new(president, BlockNumber::Dictionary, 0);
            cold::write(&mut cx.frame(SignalNumber::DefinitionsRequest, dictionary), &joining.known);
        }
    }

    /// Somebody that joins asks for definitions. They do not change meanwhile.
    pub(crate) fn on_definitions_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let known: DefinitionsRequest = cold::read(frame)?;
        let node = frame.sender().node();
        let view = cx.view();
        let joins = view.member(node).is_some_and(|member| member.state == MemberState::Starting);
        if view.president() != Some(cx.own().node()) || !joins {
            return None;
        }
        let mut piece = DefinitionsConfirm {
            databases: Vec::new(),
            tables: Vec::new(),
            is_last: false,
            version_next: self.tables.version().0,
            changes: self.changes,
            epoch: self.epoch,
        };
        let mut bytes = 0;
        // One that is longer than a piece is a piece of its own.
        let mut fits = |length: usize| {
            let is_first = bytes == 0;
            bytes += length;
            is_first || bytes <= LIST_BYTES_MAX
        };
        let mut databases = self.databases.iter_after(&known.database).peekable();
        while let Some(database) = databases.next_if(|&database| fits(cold::length(database))) {
            piece.databases.push(database.clone());
        }
        if databases.peek().is_none() {
            let mut tables = self.tables.iter_after(known.table).peekable();
            while let Some(table) = tables.next_if(|&table| fits(cold::length(table))) {
                piece.tables.push(table.clone());
            }
            piece.is_last = tables.peek().is_none();
        }
        if !piece.is_last {
            cx.mark("definitions went to a newcomer in several pieces");
        }
        cold::write(&mut cx.frame(SignalNumber::DefinitionsConfirm, frame.sender()), &piece);
        Some(())
    }

    /// This node, which joins, learns of more tables: it makes them.
    pub(crate) fn on_definitions_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let DefinitionsConfirm { databases, tables, is_last, version_next, changes, epoch } =
            cold::read(frame)?;
        let is_from_president = cx.view().president() == Some(frame.sender().node());
        let joining = self.joining.as_mut().filter(|joining| is_from_president && !joining.knows_all)?;
        joining.knows_all = is_last;
        if let Some(database) = databases.last() {
            joining.known.database.clone_from(&database.name);
        }
        if let Some(table) = tables.last() {
            joining.known.table = table.table;
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
        self.make_next_table(cx);
        Some(())
    }
}
