//! The tables that a coordinator knows, and its part in schema changes.
//!
//! A table that is *held* is about to change: transactions that use it already go on and come to their end, nothing
//! else begins on it. Whoever waits for that end is answered when no transaction uses the table any more; what goes on
//! too long is rolled back. A table that is *fenced* is changed by one API node only.

use crate::Coordinator;
use crate::ending::Cause;
use crate::transaction::Transaction;
use alloc::vec::Vec;
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::Durability;
use vinga_base::{NodeId, TablePartitions, TableVersion};
use vinga_kernel::{Context, InjectedBug, Tick};
use vinga_wire::dictionary::{TableRecord, VersionedTable};
use vinga_wire::operation::OperationKind;
use vinga_wire::schema_round::{RoundName, RoundTask, SchemaRoundConfirm, SchemaRoundRequest};
use vinga_wire::view::ViewChange;
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, cold};

/// A table as a coordinator needs it.
pub struct Table {
    pub version: TableVersion,
    pub layout: RowLayout,
    /// Where its rows are.
    pub partitions: TablePartitions,
    /// About to change.
    is_held: bool,
    /// The only API node that may change rows.
    fence: Option<NodeId>,
    /// The hidden tables of its unique indexes.
    pub unique_tables: Vec<u32>,
    /// It is such a table itself.
    pub hidden: bool,
    /// Whoever changes a row of it is answered when that is on disk.
    pub is_durable: bool,
    /// Whether backups answer reads of it.
    pub read_backup: bool,
}

impl Table {
    /// Whether an operation of a transaction may begin.
    #[inline]
    pub fn admits(&self, id: u32, kind: OperationKind, transaction: &Transaction) -> Result<(), ErrorCode> {
        if !self.is_held && self.fence.is_none() {
            return Ok(());
        }
        self.admits_specially(id, kind, transaction)
    }

    #[cold]
    fn admits_specially(
        &self,
        id: u32,
        kind: OperationKind,
        transaction: &Transaction,
    ) -> Result<(), ErrorCode> {
        let is_kept_out = self.is_held && !transaction.uses_table(id);
        let is_fenced = kind.is_change() && self.fence.is_some_and(|api| api != transaction.id.api());
        if is_kept_out || is_fenced { Err(ErrorCode::SchemaBusy) } else { Ok(()) }
    }
}

/// For the end of which transactions somebody waits.
enum Awaited {
    /// Those that use one of these tables.
    Users(Vec<VersionedTable>),
    /// Those that change this table and belong to another API node.
    Changes { table: u32, by_others_than: NodeId },
}

impl Awaited {
    fn concerns(&self, transaction: &Transaction) -> bool {
        match self {
            Awaited::Users(tables) => tables.iter().any(|t| transaction.uses_table(t.table)),
            Awaited::Changes { table, by_others_than } => {
                transaction.id.api() != *by_others_than
                    && transaction.has_changes
                    && transaction.uses_table(*table)
            }
        }
    }
}

/// Who waits for transactions to end.
struct Wait {
    round: RoundName,
    awaited: Awaited,
    requester: Address,
    since: Tick,
}

/// All tables, by id.
#[derive(Default)]
pub struct Tables {
    tables: Vec<Option<Table>>,
    waits: Vec<Wait>,
}

impl Tables {
    /// The table, if the sender's version of it is the current one.
    #[inline]
    pub fn get(&self, cx: &Context<'_>, table: u32, version: u64) -> Result<&Table, ErrorCode> {
        match self.tables.get(table as usize) {
            Some(Some(found)) if found.version.0 == version => Ok(found),
            Some(Some(found)) if cx.has_bug(InjectedBug::StaleVersionAccepted) => Ok(found),
            Some(_) | None => Err(ErrorCode::StaleTable),
        }
    }

    /// A table that a transaction uses.
    pub fn used(&self, table: u32) -> &Table {
        self.tables[table as usize].as_ref().expect("who uses a table keeps it")
    }

    /// Whether a table is published in this version.
    pub fn is_known(&self, table: u32, version: u64) -> bool {
        self.tables.get(table as usize).and_then(Option::as_ref).is_some_and(|t| t.version.0 == version)
    }

    fn find(&mut self, table: u32) -> Option<&mut Table> {
        self.tables.get_mut(table as usize)?.as_mut()
    }

    /// A table is this from now on. A write fence outlives a new version.
    fn put(&mut self, record: &TableRecord) {
        let at = record.table as usize;
        if self.tables.len() <= at {
            self.tables.resize_with(at + 1, || None);
        }
        self.tables[at] = Some(Table {
            version: TableVersion(record.version),
            layout: RowLayout::new(&record.definition),
            partitions: record.partitions.clone(),
            unique_tables: record.unique_tables.iter().map(|unique| unique.table).collect(),
            hidden: record.definition.is_hidden(),
            is_durable: record.definition.durability == Durability::Disk,
            read_backup: record.definition.read_backup,
            is_held: false,
            fence: self.tables[at].as_ref().and_then(|table| table.fence),
        });
    }

    fn remove(&mut self, gone: VersionedTable) {
        if self.find(gone.table).is_some_and(|table| table.version.0 == gone.version) {
            self.tables[gone.table as usize] = None;
        }
    }

    /// These are all write fences: tables, and who has fenced each.
    fn set_fences(&mut self, owners: &[(u32, u8)]) {
        for (id, table) in (0..).zip(&mut self.tables) {
            if let Some(table) = table {
                table.fence = owners.iter().find(|one| one.0 == id).map(|one| NodeId(one.1));
            }
        }
    }

    /// Nobody waits any more on nodes that are lost. Tables stay held: the next president's dictionary goes on with the
    /// change.
    pub fn forget_requesters(&mut self, change: &ViewChange) {
        self.waits.retain(|wait| change.new.has(wait.requester.node()));
    }

    /// All tables with their versions and who has fenced them.
    pub fn iter(&self) -> impl Iterator<Item = (VersionedTable, Option<NodeId>)> {
        self.tables.iter().enumerate().filter_map(|(id, table)| {
            let table = table.as_ref()?;
            Some((VersionedTable { table: id as u32, version: table.version.0 }, table.fence))
        })
    }
}

impl Coordinator {
    pub(crate) fn on_schema_round_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let SchemaRoundRequest { round, epoch, task } = cold::read(frame)?;
        let requester = frame.sender();
        self.use_epoch(cx, epoch);
        match task {
            RoundTask::Switch { tables } => {
                for name in &tables {
                    if let Some(table) = self.tables.find(name.table) {
                        table.is_held = true;
                    }
                }
                self.wait(cx, round, requester, Awaited::Users(tables));
            }
            RoundTask::Publish { records, gone } => {
                for name in gone {
                    self.tables.remove(name);
                }
                for record in records {
                    for hidden in record.hidden() {
                        self.tables.put(&hidden);
                    }
                    self.tables.put(&record);
                }
                self.confirm_round(cx, requester, round);
            }
            RoundTask::Fence { table, api } => {
                let owner = (api != 0).then_some(NodeId(api));
                if let Some(table) = self.tables.find(table) {
                    table.fence = owner;
                }
                match owner {
                    Some(by_others_than) => {
                        self.wait(cx, round, requester, Awaited::Changes { table, by_others_than });
                    }
                    None => self.confirm_round(cx, requester, round),
                }
            }
            RoundTask::Fences { owners } => {
                self.tables.set_fences(&owners);
                self.confirm_round(cx, requester, round);
            }
            RoundTask::Prepare { .. }
            | RoundTask::Build { .. }
            | RoundTask::Complete { .. }
            | RoundTask::Remove { .. }
            | RoundTask::SchemaLock { .. }
            | RoundTask::Note { .. }
            | RoundTask::Decide
            | RoundTask::End => return None,
        }
        Some(())
    }

    fn wait(&mut self, cx: &mut Context<'_>, round: RoundName, requester: Address, awaited: Awaited) {
        if cx.has_bug(InjectedBug::SwitchDoesNotWait) {
            self.confirm_round(cx, requester, round);
            return;
        }
        self.tables.waits.push(Wait { round, awaited, requester, since: cx.now() });
        self.check_waits(cx);
    }

    /// Answers those for whom all has ended; rolls back what goes on too long.
    pub(crate) fn check_waits(&mut self, cx: &mut Context<'_>) {
        for wait in core::mem::take(&mut self.tables.waits) {
            if cx.now().since(wait.since) >= self.settings.drop_timeout {
                cx.mark("transactions are rolled back for a schema change");
                self.roll_back_where(cx, Cause::error(ErrorCode::SchemaBusy), |t| wait.awaited.concerns(t));
            }
            if self.transactions.iter().any(|(_, t)| wait.awaited.concerns(t)) {
                self.tables.waits.push(wait);
            } else {
                self.confirm_round(cx, wait.requester, wait.round);
            }
        }
    }

    fn confirm_round(&self, cx: &mut Context<'_>, requester: Address, round: RoundName) {
        let body = SchemaRoundConfirm { round, epoch: self.epochs.current() };
        cold::write(&mut cx.frame(SignalNumber::SchemaRoundConfirm, requester), &body);
    }

    /// The tables that may be used, and who has fenced them.
    pub fn tables(&self) -> impl Iterator<Item = (VersionedTable, Option<NodeId>)> {
        self.tables.iter()
    }
}
