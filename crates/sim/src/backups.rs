//! What must hold of backups at any moment, not only at rest: they show nothing that the primary has not shown.
//!
//! A commit reaches the primary last, and a backup shows a version only when it knows that all have committed it. So of
//! each row that the primary shows, a backup shows the same version, an older one or nothing yet; and it still has the
//! row. (Who reads at a backup what a double failure could undo has read what never was.) That is so of tables whose
//! backups answer reads (`READ_BACKUP`): of others the last replica may show a commit first.

use crate::agenda::Time;
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use vinga_base::{NodeId, PartitionId};
use vinga_datamanager::inspect::ShownRows;

/// Steps between two looks at a partition.
const STEPS: u64 = 150;
/// The same while a data node has died a short while ago.
const STEPS_AFTER_FAILURE: u64 = 5;
/// How long that is.
const AFTER_FAILURE: Time = 80_000;

impl World {
    /// After a step: from time to time compares the backups of one partition with its primary, partition after
    /// partition.
    ///
    /// # Errors
    /// The first row of which a backup shows too much.
    pub(crate) fn look_at_backups(&mut self) -> Result<(), String> {
        self.steps += 1;
        let is_after = self.agreed.deaths.last().is_some_and(|death| self.now() < death.at + AFTER_FAILURE);
        let steps = if is_after { STEPS_AFTER_FAILURE } else { STEPS };
        if !self.steps.is_multiple_of(steps) || self.alive.len() < 2 {
            return Ok(());
        }
        let partitions = self.partitions() as u64;
        self.compare_backups(PartitionId((self.steps / steps % partitions) as u16))
    }

    fn partitions(&self) -> usize {
        let groups = self.profile.groups.list();
        let distinct: BTreeSet<_> = groups.iter().collect();
        distinct.len() * usize::from(self.profile.threads * self.profile.instances)
    }

    fn compare_backups(&self, partition: PartitionId) -> Result<(), String> {
        let mut primary: BTreeMap<(u32, u64), ShownRows> = BTreeMap::new();
        let mut backups = Vec::new();
        // While some threads have adopted a view and others have not, who is primary is not agreed.
        if !self.are_in_one_view() {
            return Ok(());
        }
        for thread in self.threads.iter().filter(|thread| thread.is_alive) {
            for data_manager in thread.executor.host().data_managers() {
                let shown = data_manager.inspect_shown(partition);
                if shown.is_empty() {
                    continue;
                }
                let view = thread.executor.view();
                let node = NodeId(thread.node);
                if !view.has_started(node) || !view.partition(partition).chain.contains(node) {
                    // It is copied to, or is to stop and was left out: it shows nothing to anybody.
                    continue;
                }
                if data_manager.is_primary_of(view, partition) {
                    primary.extend(shown.into_iter().map(|table| ((table.table, table.birth), table)));
                } else {
                    backups.push((thread.node, shown));
                }
            }
        }
        for (node, tables) in backups {
            for backup in tables.into_iter().filter(|table| table.read_backup) {
                let Some(primary) = primary.get(&(backup.table, backup.birth)) else { continue };
                compare(primary, &backup).map_err(|what| {
                    let table = backup.table;
                    format!(
                        "table {table}, partition {partition}: at {} µs node {node}, a backup, {what}",
                        self.now()
                    )
                })?;
            }
        }
        Ok(())
    }
}

fn compare(primary: &ShownRows, backup: &ShownRows) -> Result<(), String> {
    for &(row, shown) in &primary.rows {
        let Some(shown) = shown else { continue };
        match backup.rows.binary_search_by_key(&row, |&(row, _)| row) {
            Err(_) => return Err(format!("has no row {row}, which the primary shows")),
            Ok(at) => {
                if let (_, Some(epoch)) = backup.rows[at]
                    && epoch > shown
                {
                    return Err(format!(
                        "shows row {row} of epoch {}, of which the primary shows epoch {}",
                        epoch.0, shown.0
                    ));
                }
            }
        }
    }
    Ok(())
}
