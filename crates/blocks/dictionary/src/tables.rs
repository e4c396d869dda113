//! The tables that may be used, their names, ids and versions.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::TableVersion;
use vinga_base::schema::TableDefinition;
use vinga_wire::dictionary::TableRecord;

/// See the head of this file.
pub struct Tables {
    /// By id, which is the place plus 1.
    places: Vec<Option<TableRecord>>,
    /// By name without regard to case.
    ids: BTreeMap<String, u32>,
    tables_max: u32,
    version_next: TableVersion,
}

impl Tables {
    /// No tables.
    pub fn new(tables_max: u32, version_next: TableVersion) -> Self {
        Tables { places: Vec::new(), ids: BTreeMap::new(), tables_max, version_next }
    }

    /// How many there may be.
    pub fn max(&self) -> u32 {
        self.tables_max
    }

    /// The table of a name.
    pub fn find(&self, name: &str) -> Option<&TableRecord> {
        self.get(*self.ids.get(&name.to_lowercase())?)
    }

    fn get(&self, id: u32) -> Option<&TableRecord> {
        self.places.get(id.checked_sub(1)? as usize)?.as_ref()
    }

    /// A record for a new table, with the lowest free id and the next version; `None` if there are too many tables. It
    /// is not one of the tables yet.
    pub fn new_record(&mut self, definition: TableDefinition) -> Option<TableRecord> {
        let place = self.places.iter().position(Option::is_none).unwrap_or(self.places.len());
        let id = place as u32 + 1;
        if id > self.tables_max {
            return None;
        }
        let version = self.version_next;
        self.version_next.0 += 1;
        Some(TableRecord::new(id, version.0, definition))
    }

    /// Adds a table whose id and name are free.
    pub fn insert(&mut self, record: TableRecord) {
        let place = record.table as usize - 1;
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        let previous = self.ids.insert(record.definition.name.to_lowercase(), record.table);
        assert!(previous.is_none() && self.places[place].is_none(), "one schema change at a time");
        self.places[place] = Some(record);
    }

    /// Takes the table of a name out.
    pub fn remove(&mut self, name: &str) -> Option<TableRecord> {
        let id = self.ids.remove(&name.to_lowercase())?;
        let record = self.places[id as usize - 1].take();
        Some(record.expect("a name leads to a table"))
    }

    /// All tables by id.
    pub fn iter(&self) -> impl Iterator<Item = &TableRecord> {
        self.places.iter().flatten()
    }

    /// The tables with greater ids than `after`, by id.
    pub fn iter_after(&self, after: u32) -> impl Iterator<Item = &TableRecord> {
        self.places.iter().skip(after as usize).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn definition(name: &str) -> TableDefinition {
        TableDefinition {
            name: name.into(),
            columns: vec![],
            primary_key: vec![],
            ..TableDefinition::default()
        }
    }

    #[test]
    fn ids_are_used_again_with_other_versions() {
        let mut tables = Tables::new(2, TableVersion(100));
        for name in ["d.A", "d.b"] {
            let record = tables.new_record(definition(name)).unwrap();
            tables.insert(record);
        }
        assert_eq!(tables.new_record(definition("d.c")), None);
        assert_eq!(tables.find("D.a").map(|t| (t.table, t.version)), Some((1, 100)));
        assert_eq!(tables.remove("d.a").map(|t| t.table), Some(1));
        assert_eq!(tables.find("d.A"), None);
        let again = tables.new_record(definition("d.a")).unwrap();
        assert_eq!((again.table, again.version), (1, 102));
        tables.insert(again);
        let after = |id| tables.iter_after(id).map(|t| t.definition.name.as_str()).collect::<Vec<_>>();
        assert_eq!(after(0), ["d.a", "d.b"]);
        assert_eq!(after(1), ["d.b"]);
        assert!(after(2).is_empty() && after(u32::MAX).is_empty());
    }
}
