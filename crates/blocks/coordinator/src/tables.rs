//! The tables that a coordinator knows, and how it lets go of one that is to be dropped.
//!
//! `TableStopRequest`: nothing new is begun on the table; the answer waits until no transaction uses it any more.
//! Transactions that go on too long are rolled back.

use crate::Coordinator;
use crate::ending::Cause;
use alloc::vec::Vec;
use vinga_base::TableVersion;
use vinga_base::row_layout::RowLayout;
use vinga_kernel::{Context, Mutation, Tick};
use vinga_wire::dictionary::{TableAddRequest, TableBody};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, cold};

/// A table as a coordinator needs it.
pub struct Table {
    pub version: TableVersion,
    pub layout: RowLayout,
    /// The hidden tables of its unique indexes.
    pub unique_tables: Vec<u32>,
    /// It is such a table itself.
    pub hidden: bool,
    /// Being dropped.
    pub stopped: bool,
}

/// Who waits for transactions to let go of a table.
struct Stop {
    table: u32,
    version: u64,
    asker: Address,
    since: Tick,
}

/// All tables, by id.
#[derive(Default)]
pub struct Tables {
    tables: Vec<Option<Table>>,
    stops: Vec<Stop>,
}

impl Tables {
    /// The table, if the sender's version of it is the current one.
    #[inline]
    pub fn get(&self, cx: &Context<'_>, table: u32, version: u64) -> Result<&Table, ErrorCode> {
        match self.tables.get(table as usize) {
            Some(Some(found)) if found.version.0 == version && !found.stopped => Ok(found),
            Some(Some(found)) if cx.is_mutated(Mutation::StaleVersionAccepted) => Ok(found),
            Some(Some(found)) if found.version.0 == version => Err(ErrorCode::NoSuchTable),
            Some(Some(_)) => Err(ErrorCode::StaleTable),
            Some(None) | None => Err(ErrorCode::StaleTable),
        }
    }

    /// A table that a transaction uses: it is there, but perhaps stopped.
    pub fn used(&self, table: u32) -> &Table {
        self.tables[table as usize].as_ref().expect("who uses a table keeps it")
    }

    fn remove(&mut self, table: u32, version: u64) {
        if let Some(place) = self.tables.get_mut(table as usize)
            && place.as_ref().is_some_and(|t| t.version.0 == version)
        {
            *place = None;
        }
    }
}

impl Coordinator {
    pub(crate) fn on_table_add_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let TableAddRequest { table } = cold::read(frame)?;
        let at = table.table as usize;
        if self.tables.tables.len() <= at {
            self.tables.tables.resize_with(at + 1, || None);
        }
        self.tables.tables[at] = Some(Table {
            version: TableVersion(table.version),
            layout: RowLayout::new(&table.definition),
            unique_tables: table.unique_tables.iter().map(|unique| unique.table).collect(),
            hidden: table.definition.is_hidden(),
            stopped: false,
        });
        let answer = TableBody { table: table.table, version: table.version };
        cold::write(&mut cx.frame(SignalNumber::TableAddConfirm, frame.sender()), &answer);
        Some(())
    }

    pub(crate) fn on_table_stop_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let TableBody { table, version } = cold::read(frame)?;
        if let Some(Some(found)) = self.tables.tables.get_mut(table as usize)
            && found.version.0 == version
        {
            found.stopped = true;
        }
        self.tables.stops.push(Stop { table, version, asker: frame.sender(), since: cx.now() });
        self.check_stops(cx);
        Some(())
    }

    /// Answers the stops whose tables are no longer used; rolls back what uses them too long.
    pub(crate) fn check_stops(&mut self, cx: &mut Context<'_>) {
        let mut at = 0;
        while at < self.tables.stops.len() {
            let Stop { table, version, asker, since } = self.tables.stops[at];
            if cx.now().since(since) >= self.settings.drop_timeout {
                self.roll_back_where(cx, Cause::error(ErrorCode::StaleTable), |t| t.uses_table(table));
            }
            if self.transactions.iter().any(|(_, t)| t.uses_table(table)) {
                at += 1;
                continue;
            }
            self.tables.stops.remove(at);
            self.tables.remove(table, version);
            cold::write(&mut cx.frame(SignalNumber::TableStopConfirm, asker), &TableBody { table, version });
        }
    }
}
