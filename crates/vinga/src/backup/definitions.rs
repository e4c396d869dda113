//! The databases and tables of a cluster.

use super::output::Target;
use vinga::blocking::Cluster;
use vinga::{ErrorCode, Result};
use vinga_format::backup::{
    BackupContent, BackupDatabase, BackupDefinition, BackupFile, BackupHead, BackupTable,
};

/// The database of tables that SQL nodes keep for themselves.
pub const OWN_DATABASE: &str = "vinga";

/// All definitions: databases first, then tables in the order in which they were created.
#[derive(PartialEq, Eq)]
pub struct Definitions(Vec<BackupDefinition>);

/// Reads them. Those that are dropped meanwhile are left out.
///
/// # Errors
/// A text: the cluster can't be asked.
pub fn read(cluster: &Cluster) -> std::result::Result<Definitions, String> {
    gather(cluster).map_err(|error| format!("definitions can't be read: {error}"))
}

fn gather(cluster: &Cluster) -> Result<Definitions> {
    let mut all = Vec::new();
    for name in cluster.databases()? {
        match cluster.database(&name) {
            Ok(found) => all.push(BackupDefinition::Database(BackupDatabase {
                name: found.name,
                attachment: found.attachment,
            })),
            Err(error) if error.code() == ErrorCode::NoSuchDatabase => {}
            Err(error) => return Err(error),
        }
    }
    for name in cluster.tables()? {
        match cluster.table(&name) {
            Ok(table) => all.push(BackupDefinition::Table(BackupTable {
                table: table.core().id().0,
                birth: table.core().birth().0,
                definition: table.definition().clone(),
            })),
            Err(error) if matches!(error.code(), ErrorCode::NoSuchTable | ErrorCode::NoSuchDatabase) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Definitions(all))
}

impl Definitions {
    /// How many tables there are.
    pub fn tables(&self) -> usize {
        self.0.iter().filter(|definition| matches!(definition, BackupDefinition::Table(_))).count()
    }

    /// Writes them.
    ///
    /// # Errors
    /// A text with the file.
    pub fn write(&self, target: &Target) -> std::result::Result<BackupFile, String> {
        let head = BackupHead { content: BackupContent::Definitions, partition: 0 };
        let mut file = target.create("definitions.backup", head)?;
        self.0.iter().try_for_each(|definition| file.definition(definition))?;
        file.finish()
    }
}
