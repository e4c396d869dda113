//! A backup that was finished is the state of one moment.
//!
//! Its rows and its changes up to its epoch are put together as a restore does (`vinga_format::backup_rows`), and must
//! be what the history has left that ends with this epoch ([`Loss::behind`]): everything of the transactions up to it,
//! nothing of others. That is checked at the end of the run, when it is known what became of each transaction. Besides,
//!
//! - all tables are there, and of a table that was emptied or made again the rows of the right birth: nobody has
//!   changed rows of a later one up to the backup's epoch, or of an earlier one behind it;
//! - what was answered as committed before the backup began is in it;
//! - no data manager has sent a change of the epoch, or an earlier one, after it had reported the epoch's end.
//!
//! (That data managers have nothing left of any backup is part of being at rest.)

use crate::agenda::Time;
use crate::world::World;
use std::collections::BTreeMap;
use vinga_base::{Epoch, NodeId};
use vinga_client_core::backup_steps::Definitions;
use vinga_format::backup_rows::{BackupChanges, RowPlace};
use vinga_format::redo::{Record, records};
use vinga_kernel::InjectedBug;
use vinga_kernel::injected_bug::is_on;
use vinga_workloads::check;
use vinga_workloads::history::{Event, History, Loss, OperationResult};
use vinga_workloads::step::{Fate, TableRef};
use vinga_workloads::workload::Contents;

/// A backup that an API node has finished.
pub struct FinishedBackup {
    /// The API node.
    pub node: NodeId,
    /// When it began, and when it was complete.
    pub begun: Time,
    pub ended: Time,
    /// The newest epoch of a commit that anybody had been answered about when it began.
    pub newest: Epoch,
    /// How often the cluster had gone back to its disks by then.
    pub losses: usize,
    /// It is the state at the end of this epoch.
    pub epoch: Epoch,
    pub definitions: Definitions,
    /// Records, by partition.
    pub rows: Vec<Vec<u8>>,
    pub changes: Vec<Vec<u8>>,
    /// By partition: how many bytes of changes had come when the end of the epoch was reported.
    pub needed: Vec<usize>,
}

/// Tables by the ids and births that records name.
type Tables = BTreeMap<(u32, u64), TableRef>;

/// Tables of this database come and go while the others stay.
const COMING_AND_GOING: &str = "schema_churn.";

impl World {
    /// Checks all backups that were finished.
    ///
    /// # Errors
    /// The first that is not the state of one moment.
    pub(crate) fn check_online_backups(&self) -> Result<(), String> {
        self.backups.iter().try_for_each(|backup| {
            self.check_online_backup(backup).map_err(|what| {
                format!(
                    "the backup of epoch {} that API node {} made from {} to {} µs: {what}",
                    backup.epoch, backup.node, backup.begun, backup.ended
                )
            })
        })
    }

    fn check_online_backup(&self, backup: &FinishedBackup) -> Result<(), String> {
        if backup.epoch < backup.newest {
            return Err(format!("a commit of epoch {} was answered before it began", backup.newest));
        }
        let mut contents = Contents::default();
        let tables = self.tables_of(backup, &mut contents)?;
        for (changes, &needed) in backup.changes.iter().zip(&backup.needed) {
            for record in records(&changes[needed..]) {
                let late = whole(record)?.change.epoch;
                if late <= backup.epoch {
                    return Err(format!(
                        "a change of epoch {late} came after the end of the epoch was reported"
                    ));
                }
            }
        }
        for (rows, changes) in backup.rows.iter().zip(&backup.changes) {
            self.add_partition(backup.epoch, rows, changes, &tables, &mut contents)?;
        }
        let history = self.history_after(&self.starts.losses[..backup.losses]);
        self.check_births(&history, &contents, backup.epoch)?;
        let history = history.surviving(&[Loss::behind(backup.epoch, self.now())]);
        check::check_state(&history, &contents, self.now())?;
        self.running.iter().try_for_each(|running| running.workload.check(&contents, &history))
    }

    fn tables_of(&self, backup: &FinishedBackup, contents: &mut Contents) -> Result<Tables, String> {
        let mut tables = Tables::new();
        for table in &backup.definitions.tables {
            let name = &table.definition.name;
            let at = self.shapes.iter().position(|shape| shape.name() == name);
            let at = TableRef(at.ok_or_else(|| format!("nobody has made table {name}"))? as u16);
            if !self.shapes[usize::from(at.0)].is_recorded() {
                continue;
            }
            if contents.versions.insert(at, self.changes.rows_of(table.birth)).is_some() {
                return Err(format!("it has two tables {name}"));
            }
            tables.insert((table.table, table.birth), at);
        }
        for (at, shape) in (0..).map(TableRef).zip(&self.shapes) {
            let is_needed = !shape.holds_places() && !shape.name().starts_with(COMING_AND_GOING);
            if is_needed && !contents.versions.contains_key(&at) {
                return Err(format!("it lacks table {}", shape.name()));
            }
        }
        Ok(tables)
    }

    /// Adds the rows of a partition, put together as a restore does.
    fn add_partition(
        &self,
        epoch: Epoch,
        rows: &[u8],
        changes: &[u8],
        tables: &Tables,
        contents: &mut Contents,
    ) -> Result<(), String> {
        let applies_all = is_on(self.bug, InjectedBug::BackupAppliesLaterChanges);
        let mut changed = BackupChanges::new(if applies_all { Epoch(u64::MAX) } else { epoch });
        for record in records(changes) {
            changed.add(&whole(record)?);
        }
        for record in records(rows) {
            let record = whole(record)?;
            if changed.leaves(&record).map_err(|later| later.to_string())? {
                self.add_row(RowPlace::of(&record), record.image, record.change.epoch, tables, contents)?;
            }
        }
        for (place, row) in changed.rows() {
            if let Some(image) = &row.image {
                self.add_row(place, image, row.epoch, tables, contents)?;
            }
        }
        Ok(())
    }

    fn add_row(
        &self,
        place: RowPlace,
        image: &[u8],
        epoch: Epoch,
        tables: &Tables,
        contents: &mut Contents,
    ) -> Result<(), String> {
        // Its table was dropped, or it is an entry of an index.
        let Some(&table) = tables.get(&(place.table, place.birth)) else { return Ok(()) };
        let (key, value) = self.shapes[usize::from(table.0)].read_image(image)?;
        match contents.rows.insert((table, key), (value, epoch.0)) {
            None => Ok(()),
            Some(_) => {
                Err(format!("table {}: row {} has key {key}, which another row has", table.0, place.row))
            }
        }
    }

    /// Whether a table's rows are those of the birth that it had at the end of the epoch.
    fn check_births(&self, history: &History, contents: &Contents, epoch: Epoch) -> Result<(), String> {
        for transaction in &history.transactions {
            let Fate::Committed(committed) = transaction.fate else { continue };
            for (at, event) in transaction.events.iter().enumerate() {
                let Event::Operation(record) = event else { continue };
                let Some(&birth) = contents.versions.get(&record.operation.table) else { continue };
                let changes = record.operation.kind.is_change()
                    && record.result == OperationResult::Done
                    && !transaction.undoes_later(at, record.operation.number);
                let is_later = committed > epoch;
                if changes && (record.version > birth && !is_later || record.version < birth && is_later) {
                    return Err(format!(
                        "it has table {} of version {birth}, though {:#x} has changed version {} in epoch {committed}",
                        record.operation.table.0, transaction.id, record.version
                    ));
                }
            }
        }
        Ok(())
    }
}

fn whole<'a, E: std::fmt::Display>(record: Result<Record<'a>, E>) -> Result<Record<'a>, String> {
    record.map_err(|malformed| format!("a data node has sent nonsense: {malformed}"))
}
