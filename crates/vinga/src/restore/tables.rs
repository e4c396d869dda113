//! Databases and tables of a backup in the new cluster.

use crate::backup::OWN_DATABASE;
use crate::table::counted;
use std::collections::HashMap;
use vinga::blocking::Cluster;
use vinga::{Durability, ErrorCode, InfoTable, Table};
use vinga_format::backup::{BackupDefinition, BackupTable};
use vinga_wire::dictionary::TableRecord;

/// The table of SQL nodes with the counters of `AUTO_INCREMENT`: its rows name other tables.
const COUNTERS: &str = "vinga.auto_increment";

/// A table of the backup and what it is in the new cluster.
pub struct Restored {
    /// The new table.
    pub table: Table,
    /// How its rows look.
    pub kind: Kind,
}

/// What a table is to the restore.
pub enum Kind {
    /// Rows are written as they are.
    Usual,
    /// Rows name tables by their births, which have changed.
    Counters {
        /// How a row looks.
        layout: Box<vinga::TableLayout>,
        /// New births by old ones.
        births: HashMap<u64, u64>,
    },
}

/// The tables of a backup by the ids and births that its records name.
pub type Tables = HashMap<(u32, u64), Restored>;

fn is_own(name: &str) -> bool {
    name.split_once('.').is_some_and(|(database, _)| database == OWN_DATABASE)
}

/// Refuses a cluster in which there are tables already.
///
/// # Errors
/// A text with one of them.
pub fn check_empty(cluster: &Cluster) -> Result<(), String> {
    let tables = cluster.tables().map_err(|error| error.to_string())?;
    let others: Vec<&String> = tables.iter().filter(|name| !is_own(name)).collect();
    match &others[..] {
        [] => Ok(()),
        [first, ..] => {
            let are_several = cluster.is_replicated() || cluster.data_nodes().len() > 1;
            Err(not_empty(others.len() as u64, first, are_several))
        }
    }
}

fn not_empty(tables: u64, first: &str, are_several: bool) -> String {
    let anew = if are_several {
        "'vinga down', then 'vinga up': several data nodes keep nothing on disk"
    } else {
        "'vinga up --initial', which removes the database"
    };
    format!(
        "the cluster is not empty: it has {}, {first} among them (was this backup restored before?). A backup is restored \
         into a cluster without tables: drop these, or begin anew ({anew})",
        counted(tables, "table")
    )
}

/// What to do with tables whose commits wait for the disk (`DURABILITY=disk`) where the cluster has none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WithoutDisk {
    /// The restore is refused: whoever made them counts on it.
    Refuse,
    /// They become usual tables.
    MakeUsual,
}

/// Makes the tables ones that the cluster can have: if it keeps nothing on disk, no commit can wait for that. Returns
/// the names of those that were changed.
///
/// # Errors
/// A text with the first of them, if they are not to be changed.
pub fn fit_disk(
    cluster: &Cluster,
    definitions: &mut [BackupDefinition],
    without_disk: WithoutDisk,
) -> Result<Vec<String>, String> {
    let mut tables: Vec<_> = definitions
        .iter_mut()
        .filter_map(|definition| match definition {
            BackupDefinition::Table(table) => Some(&mut table.definition),
            BackupDefinition::Database(_) => None,
        })
        .filter(|table| table.durability == Durability::Disk)
        .collect();
    let Some(first) = tables.first() else { return Ok(Vec::new()) };
    let streams = cluster.info(InfoTable::RedoLogs).map_err(|error| error.to_string())?;
    if !streams.rows.is_empty() {
        return Ok(Vec::new());
    }
    if without_disk == WithoutDisk::Refuse {
        return Err(format!(
            "commits to table {} wait for the disk (DURABILITY=disk), and this cluster keeps nothing on disk (Diskless=yes, \
             no folder, or several data nodes): restore it into another one, or give --memory-only to make it a table \
             whose commits wait for no disk",
            first.name
        ));
    }
    for table in &mut tables {
        table.durability = Durability::Memory;
    }
    Ok(tables.into_iter().map(|table| table.name.clone()).collect())
}

/// Creates all databases and tables.
///
/// # Errors
/// A text with the one that could not be made.
pub fn create(cluster: &Cluster, definitions: &[BackupDefinition]) -> Result<Tables, String> {
    for definition in definitions {
        if let BackupDefinition::Database(database) = definition {
            let (name, attachment) = (&database.name, &database.attachment);
            let made = match cluster.create_database(name, attachment) {
                Err(error) if error.code() == ErrorCode::DatabaseExists => {
                    cluster.alter_database(name, attachment)
                }
                made => made,
            };
            made.map_err(|error| format!("database {name}: {error}"))?;
        }
    }
    let mut made = Tables::new();
    let tables: Vec<&BackupTable> = definitions
        .iter()
        .filter_map(|definition| match definition {
            BackupDefinition::Table(table) => Some(table),
            BackupDefinition::Database(_) => None,
        })
        .collect();
    let mut births = HashMap::new();
    for table in &tables {
        let name = &table.definition.name;
        let mut definition = table.definition.clone();
        // A smaller cluster has fewer.
        definition.partitions = definition.partitions.min(cluster.partitions());
        let new = if is_own(name) {
            cluster.create_table_if_missing(definition)
        } else {
            cluster.create_table(definition)
        };
        let new = new.map_err(|error| match error.code() {
            ErrorCode::TableExists => {
                format!("table {name} is there already (was this backup restored before?)")
            }
            _ => format!("table {name} can't be created: {error}"),
        })?;
        births.insert(table.birth, new.core().birth().0);
        made.insert((table.table, table.birth), Restored { table: new, kind: Kind::Usual });
    }
    for table in tables.iter().filter(|table| table.definition.name == COUNTERS) {
        let restored = made.get_mut(&(table.table, table.birth)).expect("it was made above");
        let record = TableRecord::new(
            table.table,
            table.birth,
            restored.table.core().partitions().clone(),
            table.definition.clone(),
        );
        let layout = vinga::TableLayout::new(record).map_err(|error| error.to_string())?;
        restored.kind = Kind::Counters { layout: Box::new(layout), births: births.clone() };
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 'vinga up --initial' is refused where there are several data nodes.
    #[test]
    fn how_to_begin_anew_is_what_can_be_done() {
        assert!(not_empty(1, "a.t", false).ends_with("('vinga up --initial', which removes the database)"));
        let several = not_empty(2, "a.t", true);
        assert!(
            several.contains("2 tables, a.t among them") && several.contains("'vinga down'"),
            "{several}"
        );
        assert!(!several.contains("--initial"), "{several}");
    }
}
