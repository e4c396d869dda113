//! A data manager's part in schema changes.
//!
//! Fragments are made before anybody uses a table (`Prepare`), and freed when nobody can (`Remove`): in slices, between
//! other signals. By then coordinators have let go of the table, so no operation names it; its scans were closed when
//! it was declared gone (`Complete`). A table that changes in place is accepted in both versions between `Prepare` and
//! `Complete`; ordered indexes that it gets are built in between (`Build`), while nobody writes.

use crate::DataManager;
use crate::tables::{Removal, RowsOfTable, Table};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use vinga_base::TableVersion;
use vinga_base::schema::IndexKind;
use vinga_fragment::fragment_index::FragmentIndex;
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::dictionary::{TableRecord, VersionedTable};
use vinga_wire::schema_round::{
    RoundName, RoundTask, SchemaRoundConfirm, SchemaRoundRefuse, SchemaRoundRequest,
};
use vinga_wire::view::{ClusterView, ViewChange};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, cold};

/// Indexes that are built for a round of a schema change.
pub struct Building {
    requester: Address,
    round: RoundName,
    table: u32,
    /// Those that are not done.
    indexes: Vec<u16>,
    result: Result<(), ErrorCode>,
}

/// Rows or pages that a slice of removal frees, at most.
const REMOVAL_UNITS: u32 = 256;

impl DataManager {
    pub(crate) fn on_schema_round_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let SchemaRoundRequest { round, epoch, task } = cold::read(frame)?;
        let requester = frame.sender();
        self.epoch = self.epoch.max(epoch);
        match task {
            RoundTask::Prepare { record, made } => {
                let prepared = self.prepare_tables(cx.view(), &record, &made);
                self.answer_round(cx, requester, round, prepared);
            }
            RoundTask::Build { table, mut ordered, must_be_empty } => {
                let is_primary = || cx.view().owned_by(self.owner).chain.primary() == self.settings.node;
                if cx.has_bug(InjectedBug::BackupBuildsNoIndex) && !is_primary() {
                    ordered.clear();
                }
                if must_be_empty && self.has_rows(cx.view(), table) {
                    self.answer_round(cx, requester, round, Err(ErrorCode::NotSupportedYet));
                } else {
                    ordered.iter().for_each(|index| self.begin_index_build(table, index));
                    let indexes = ordered.iter().map(|index| index.id).collect();
                    self.schema.building =
                        Some(Building { requester, round, table, indexes, result: Ok(()) });
                    self.report_builds(cx);
                }
            }
            RoundTask::Complete { record, gone } => {
                if let Some(record) = record {
                    self.complete_table(cx, &record);
                }
                if !gone.is_empty() {
                    self.store.listener.note_epoch(self.epoch);
                }
                for name in gone {
                    self.declare_gone(cx, name);
                }
                self.answer_round(cx, requester, round, Ok(()));
            }
            RoundTask::Remove { tables } => {
                for &name in &tables {
                    self.declare_gone(cx, name);
                }
                let tables = tables.iter().map(|name| name.table).collect();
                self.store.tables.removals.push(Removal { requester, round, tables });
            }
            RoundTask::Switch { .. }
            | RoundTask::Publish { .. }
            | RoundTask::Fence { .. }
            | RoundTask::Fences { .. }
            | RoundTask::SchemaLock { .. }
            | RoundTask::Note { .. }
            | RoundTask::Decide
            | RoundTask::End => return None,
        }
        Some(())
    }

    /// Makes what is to be made, all of it or nothing.
    fn prepare_tables(
        &mut self,
        view: &ClusterView,
        record: &TableRecord,
        made: &[u32],
    ) -> Result<(), ErrorCode> {
        if !made.iter().all(|&id| self.store.tables.has_room_for(id)) {
            return Err(ErrorCode::OutOfTables);
        }
        let hidden: Vec<TableRecord> = record.hidden().collect();
        let rows = if self.has_begun { RowsOfTable::None } else { RowsOfTable::ToBeRestored };
        let all = core::iter::once(record).chain(&hidden);
        for made in all.filter(|table| made.contains(&table.table)) {
            // Whether this node has all rows of it, or none yet.
            let is_here = view.partitions().iter().map(|partition| partition.owner == self.owner);
            self.store.tables.add(made.table, Table::new(made, is_here, rows));
        }
        if !made.contains(&record.table) {
            let table = self.store.tables.find_mut(record.table).ok_or(ErrorCode::InternalError)?;
            table.prepare(record);
        }
        Ok(())
    }

    /// Indexes that are built for a node that is lost are not wanted any more: the change is undone. What is built of
    /// them already goes when it is.
    pub(crate) fn forget_builds(&mut self, change: &ViewChange) {
        if let Some(building) =
            self.schema.building.take_if(|building| !change.new.has(building.requester.node()))
        {
            self.schema.index_work.forget_table(building.table);
        }
    }

    /// Whether a table has rows in partitions whose primary is here.
    fn has_rows(&self, view: &ClusterView, table: u32) -> bool {
        let fragments = self.store.tables.current(table).fragments();
        let own = fragments.filter(|(partition, _)| self.is_primary_of(view, *partition));
        own.into_iter().any(|(_, fragment)| !fragment.index().is_empty())
    }

    /// Takes note of builds that have ended, and answers the requester when all of its have. One that was refused
    /// leaves the others to be dropped when the change is undone.
    pub(crate) fn report_builds(&mut self, cx: &mut Context<'_>) {
        while let Some(built) = self.take_built_index() {
            if let Some(building) = &mut self.schema.building
                && building.table == built.table
            {
                building.indexes.retain(|&index| index != built.index);
                building.result = building.result.and(built.result);
            }
        }
        if let Some(Building { requester, round, result, .. }) =
            self.schema.building.take_if(|building| building.indexes.is_empty())
        {
            self.answer_round(cx, requester, round, result);
        }
    }

    /// Only this version of a table from now on. Its scans belong to the version before, and end; ordered indexes that
    /// it has not are freed: those that were dropped, or built for a change that is undone.
    fn complete_table(&mut self, cx: &mut Context<'_>, record: &TableRecord) {
        let Some(table) = self.store.tables.find_mut(record.table) else { return };
        let has_changed = table.version.0 != record.version;
        table.complete(record);
        let fragments = table.fragments();
        let indexes: BTreeSet<u16> =
            fragments.flat_map(|(_, fragment)| fragment.indexes().iter().map(FragmentIndex::id)).collect();
        for id in indexes {
            if record.definition.index(id).is_none_or(|index| index.kind != IndexKind::Ordered) {
                self.drop_index(record.table, id);
            }
        }
        if has_changed && !cx.has_bug(InjectedBug::CompleteKeepsOldVersion) {
            self.close_scans_of_table(cx, record.table);
        }
    }

    /// Nobody may use a table any more.
    fn declare_gone(&mut self, cx: &mut Context<'_>, name: VersionedTable) {
        if let Some(table) = self.store.tables.find_mut(name.table) {
            table.is_gone = true;
            self.close_scans_of_table(cx, name.table);
            self.schema.index_work.forget_table(name.table);
        }
    }

    /// Frees some of a removed table; says whether there is more to free.
    #[inline(never)]
    pub(crate) fn remove_table_slice(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(removal) = self.store.tables.removals.first() else { return false };
        let Some(&id) = removal.tables.last() else {
            let Removal { requester, round, .. } = self.store.tables.removals.remove(0);
            self.answer_round(cx, requester, round, Ok(()));
            return !self.store.tables.removals.is_empty();
        };
        if self.versions.rows.iter().any(|(_, row)| row.place.table == id) {
            // Records of the last transactions wait for their completion.
            cx.mark("table removal waits for completes");
            return false;
        }
        if let Some(table) = self.store.tables.find_mut(id) {
            let (pages, chunks) = (&mut self.store.pages, &mut self.store.chunks);
            for fragment in table.fragments_mut() {
                if !fragment.release_slice(pages, chunks, REMOVAL_UNITS) {
                    return true;
                }
            }
            self.store.tables.remove(id);
        }
        self.store.tables.removals[0].tables.pop();
        true
    }

    fn answer_round(
        &self,
        cx: &mut Context<'_>,
        requester: Address,
        round: RoundName,
        result: Result<(), ErrorCode>,
    ) {
        match result {
            Ok(()) => cold::write(
                &mut cx.frame(SignalNumber::SchemaRoundConfirm, requester),
                &SchemaRoundConfirm { round, epoch: self.epoch },
            ),
            Err(code) => cold::write(
                &mut cx.frame(SignalNumber::SchemaRoundRefuse, requester),
                &SchemaRoundRefuse { round, code: code as u16 },
            ),
        }
    }

    /// The tables that may be used, and the version that each is going to have while it changes.
    pub fn tables(&self) -> impl Iterator<Item = (VersionedTable, Option<TableVersion>)> {
        self.store.tables.usable()
    }
}
