//! What the entries of a schema file say, for people and for programs.

use crate::columns;
use serde_json::{Value, json};
use vinga::Durability;
pub(super) use vinga_dictionary::definitions::Item;
use vinga_wire::cold;
use vinga_wire::dictionary::TableRecord;

/// The items of an entry; `None` if it can't be read.
pub(super) fn read(bytes: &[u8]) -> Option<Vec<Item>> {
    cold::from_bytes(bytes)
}

/// Whether what an item says can be.
///
/// # Errors
/// Why it can't.
pub(super) fn verify(item: &Item) -> Result<(), String> {
    let Item::Table(record) = item else { return Ok(()) };
    record
        .definition
        .check()
        .map_err(|error| format!("table '{}': {}", record.definition.name, error.text))?;
    let lost = record.unique_tables.iter().find(|unique| record.definition.index(unique.index).is_none());
    match lost {
        Some(unique) => Err(format!(
            "table '{}' has no index {}, which has a hidden table",
            record.definition.name, unique.index
        )),
        None => Ok(()),
    }
}

/// An item in words: a table with all its columns and indexes, each on a line of its own.
pub(super) fn describe(item: &Item) -> String {
    match item {
        Item::Table(record) => describe_table(record),
        Item::NoTable(id) => format!("there is no table {id} any more"),
        Item::Database(database) => {
            format!("database '{}', attachment of {} bytes", database.name, database.attachment.len())
        }
        Item::NoDatabase(name) => format!("there is no database '{name}' any more"),
        Item::VersionLimit(limit) => format!("versions of tables are below {limit}"),
    }
}

fn describe_table(record: &TableRecord) -> String {
    let definition = &record.definition;
    let mut text = format!(
        "table {}, '{}', version {}, rows since version {}{}",
        record.table,
        definition.name,
        record.version,
        record.birth,
        match definition.durability {
            Durability::Memory => "",
            Durability::NotLogged => ", not logged",
            Durability::Disk => ", commits wait for the disk",
        }
    );
    if definition.read_backup {
        text.push_str(", backups answer reads");
    }
    if definition.partitions != 0 {
        text.push_str(&format!(", {} partitions", definition.partitions));
    }
    if !definition.attachment.is_empty() {
        text.push_str(&format!(", attachment of {} bytes", definition.attachment.len()));
    }
    for unique in &record.unique_tables {
        text.push_str(&format!(
            "\n  index {} has the hidden table {}, version {}",
            unique.index, unique.table, unique.version
        ));
    }
    // A definition that can't be may name columns that there are not.
    if definition.check().is_ok() {
        for line in columns::describe(definition).lines() {
            text.push_str(&format!("\n  {}", line.trim()));
        }
    }
    text
}

/// An item for programs.
pub(super) fn as_json(item: &Item) -> Value {
    match item {
        Item::Table(record) => {
            let definition = &record.definition;
            let is_whole = definition.check().is_ok();
            json!({
                "table": record.table,
                "name": definition.name,
                "version": record.version,
                "birth": record.birth,
                "durability": format!("{:?}", definition.durability),
                "read_backup": definition.read_backup,
                "partitions": definition.partitions,
                "attachment_bytes": definition.attachment.len(),
                "definition": is_whole.then(|| columns::as_json(definition)),
            })
        }
        Item::NoTable(id) => json!({ "no_table": id }),
        Item::Database(database) => {
            json!({ "database": database.name, "attachment_bytes": database.attachment.len() })
        }
        Item::NoDatabase(name) => json!({ "no_database": name }),
        Item::VersionLimit(limit) => json!({ "version_limit": limit }),
    }
}
