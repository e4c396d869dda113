//! The databases and tables of a cluster, as a backup has them.

use super::output::Target;
use vinga::backup_steps::Definitions;
use vinga_format::backup::{
    BackupContent, BackupDatabase, BackupDefinition, BackupFile, BackupHead, BackupTable,
};

/// The database of tables that SQL nodes keep for themselves.
pub const OWN_DATABASE: &str = "vinga";

/// Writes all definitions: databases first, then tables in the order in which they were created.
///
/// # Errors
/// A text with the file.
pub fn write(definitions: Definitions, target: &Target) -> Result<BackupFile, String> {
    let head = BackupHead { content: BackupContent::Definitions, partition: 0 };
    let mut file = target.create("definitions.backup", head)?;
    for database in definitions.databases {
        let (name, attachment) = (database.name, database.attachment);
        file.definition(&BackupDefinition::Database(BackupDatabase { name, attachment }))?;
    }
    for table in definitions.tables {
        let (birth, definition) = (table.birth, table.definition);
        file.definition(&BackupDefinition::Table(BackupTable { table: table.table, birth, definition }))?;
    }
    file.finish()
}
