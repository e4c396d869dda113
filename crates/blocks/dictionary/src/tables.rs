//! The tables that may be used, their names, ids and versions.
//!
//! Hidden tables of unique indexes have ids and versions, but no names: nobody finds or lists them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use vinga_base::TableVersion;
use vinga_wire::dictionary::{TableRecord, VersionedTable};

/// All tables that may be used, by name and by id.
pub struct Tables {
    records: BTreeMap<u32, TableRecord>,
    /// By name.
    ids: BTreeMap<String, u32>,
    /// Ids that are in use: by tables that may be used, are being made or being freed, and by hidden ones.
    used: BTreeSet<u32>,
    tables_max: u32,
    version_next: TableVersion,
}

impl Tables {
    /// No tables.
    pub fn new(tables_max: u32, version_next: TableVersion) -> Self {
        Tables {
            records: BTreeMap::new(),
            ids: BTreeMap::new(),
            used: BTreeSet::new(),
            tables_max,
            version_next,
        }
    }

    /// How many there may be, hidden ones counted.
    pub fn max(&self) -> u32 {
        self.tables_max
    }

    /// The table of a name.
    pub fn find(&self, name: &str) -> Option<&TableRecord> {
        self.records.get(self.ids.get(name)?)
    }

    /// The name of some table in a database.
    pub fn any_in(&self, database: &str) -> Option<&str> {
        let first = format!("{database}.");
        let (name, id) = self.ids.range(first.clone()..).next()?;
        name.starts_with(&first).then(|| self.records[id].definition.name.as_str())
    }

    /// The version that is given next.
    pub fn version(&self) -> TableVersion {
        self.version_next
    }

    /// Versions are given from this one on at least.
    pub fn raise_version(&mut self, version: TableVersion) {
        self.version_next = self.version_next.max(version);
    }

    /// A version that no table ever had.
    pub fn take_version(&mut self) -> u64 {
        let version = self.version_next;
        self.version_next.0 += 1;
        version.0
    }

    /// The lowest free id, with a version that no table ever had; `None` if there are too many tables. It is in use
    /// from now on.
    pub fn take_id(&mut self) -> Option<VersionedTable> {
        let id = self.used.iter().zip(1..).find(|&(&id, place)| id != place);
        let id = id.map_or(self.used.len() as u32 + 1, |(_, place)| place);
        if id > self.tables_max {
            return None;
        }
        self.used.insert(id);
        Some(VersionedTable { table: id, version: self.take_version() })
    }

    /// An id is in use from now on, as another dictionary has taken it.
    pub fn use_id(&mut self, id: u32) {
        assert!(self.used.insert(id), "all dictionaries use the same ids");
    }

    /// An id may be used again.
    pub fn release_id(&mut self, id: u32) {
        assert!(self.used.remove(&id), "only an id that is in use is released");
    }

    /// Adds a table whose name is free.
    pub fn insert(&mut self, record: TableRecord) {
        let name = self.ids.insert(record.definition.name.clone(), record.table);
        let table = self.records.insert(record.table, record);
        assert!(name.is_none() && table.is_none(), "one schema change at a time");
    }

    /// Adds a table that was on disk, with its hidden tables.
    ///
    /// # Errors
    /// A sentence, if there can be no such table.
    pub fn restore(&mut self, record: TableRecord) -> Result<(), String> {
        let name = &record.definition.name;
        if self.ids.contains_key(name) {
            return Err(format!("two tables are called '{name}'"));
        }
        for VersionedTable { table, .. } in record.all() {
            if !(1..=self.tables_max).contains(&table) {
                let max = self.tables_max;
                return Err(format!("table '{name}' needs id {table}, but MaxNoOfTables is {max}: raise it"));
            }
            if !self.used.insert(table) {
                return Err(format!("table '{name}' and another one have id {table}"));
            }
        }
        self.insert(record);
        Ok(())
    }

    /// Takes the table of a name out; its id stays in use.
    pub fn remove(&mut self, name: &str) -> Option<TableRecord> {
        let id = self.ids.remove(name)?;
        Some(self.records.remove(&id).expect("a name leads to a table"))
    }

    /// The table with an id.
    pub fn by_id(&self, id: u32) -> Option<&TableRecord> {
        self.records.get(&id)
    }

    /// All tables by id.
    pub fn iter(&self) -> impl Iterator<Item = &TableRecord> {
        self.records.values()
    }

    /// The tables with greater ids than `after`, by id.
    pub fn iter_after(&self, after: u32) -> impl Iterator<Item = &TableRecord> {
        after
            .checked_add(1)
            .into_iter()
            .flat_map(|first| self.records.range(first..))
            .map(|(_, record)| record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use vinga_base::TablePartitions;
    use vinga_base::schema::TableDefinition;

    fn add(tables: &mut Tables, name: &str) -> Option<VersionedTable> {
        let own = tables.take_id()?;
        let definition = TableDefinition { name: name.into(), ..TableDefinition::default() };
        tables.insert(TableRecord::new(own.table, own.version, TablePartitions::first(1), definition));
        Some(own)
    }

    #[test]
    fn ids_are_used_again_with_other_versions() {
        let mut tables = Tables::new(2, TableVersion(100));
        add(&mut tables, "d.A");
        add(&mut tables, "d.b");
        assert_eq!(add(&mut tables, "d.c"), None);
        assert_eq!(tables.find("d.A").map(|t| (t.table, t.version)), Some((1, 100)));
        assert!(tables.find("d.a").is_none() && tables.remove("D.A").is_none());
        assert_eq!(tables.remove("d.A").map(|t| t.table), Some(1));
        assert!(tables.find("d.A").is_none() && tables.take_id().is_none());
        tables.release_id(1);
        assert_eq!(add(&mut tables, "d.a"), Some(VersionedTable { table: 1, version: 102 }));
        let after = |id| tables.iter_after(id).map(|t| t.definition.name.as_str()).collect::<Vec<_>>();
        assert_eq!(after(0), ["d.a", "d.b"]);
        assert_eq!(after(1), ["d.b"]);
        assert!(after(2).is_empty() && after(u32::MAX).is_empty());
    }

    #[test]
    fn tables_of_a_database_are_found() {
        let mut tables = Tables::new(9, TableVersion(1));
        for name in ["d1.x", "D.Table", "da.x"] {
            add(&mut tables, name);
        }
        let found: Vec<_> = ["D", "d1", "d", "D1", ""].into_iter().map(|name| tables.any_in(name)).collect();
        assert_eq!(found, vec![Some("D.Table"), Some("d1.x"), None, None, None]);
    }
}
