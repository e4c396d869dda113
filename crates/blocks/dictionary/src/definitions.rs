//! Definitions as they are kept on disk: what the entries of the schema file contain, and what they amount to.
//!
//! An entry is a list of [`Item`]s, in postcard's form. One change of the schema is one entry, so it is there as a
//! whole or not at all. `docs/formats/schema.md` has the items.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use vinga_base::{Epoch, TableVersion};
use vinga_format::schema::SchemaFile;
use vinga_wire::cold;
use vinga_wire::dictionary::TableRecord;
use vinga_wire::schema::Database;

/// Something that an entry of the schema file says. New kinds come at the end, with a new version of the format.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Item {
    /// There is this table, in place of the one that had its id.
    Table(TableRecord),
    /// There is no table of this id any more.
    NoTable(u32),
    /// There is this database, in place of the one that had its name.
    Database(Database),
    /// There is no database of this name any more.
    NoDatabase(String),
    /// No table was given this version or a greater one, and none is before an entry says otherwise.
    VersionLimit(u64),
}

/// The bytes of an entry.
pub fn encode(items: &[Item]) -> Vec<u8> {
    cold::to_bytes(&items)
}

/// What a schema file amounts to.
#[derive(Default, Debug)]
pub struct Definitions {
    /// By id.
    pub tables: BTreeMap<u32, TableRecord>,
    /// By name.
    pub databases: BTreeMap<String, Database>,
    /// Above every version that was ever given, by changes that don't count, too.
    pub version: TableVersion,
    /// The greatest epoch of any entry, whether it counts or not.
    pub greatest: Epoch,
}

impl Definitions {
    /// Those of the entries up to an epoch.
    ///
    /// # Errors
    /// A sentence, if an entry can't be read.
    pub fn read(file: &SchemaFile<'_>, restored: Epoch) -> Result<Self, String> {
        let mut definitions = Definitions::default();
        for (number, entry) in file.entries.iter().enumerate() {
            let items: Vec<Item> = cold::from_bytes(entry.bytes)
                .ok_or_else(|| format!("entry {number}, of epoch {}, can't be read", entry.epoch))?;
            definitions.greatest = definitions.greatest.max(entry.epoch);
            for item in items {
                definitions.note_versions(&item);
                if entry.epoch <= restored {
                    definitions.apply(item);
                }
            }
        }
        Ok(definitions)
    }

    fn note_versions(&mut self, item: &Item) {
        let above = match item {
            Item::Table(record) => record.all().map(|table| table.version + 1).max().unwrap_or(0),
            Item::VersionLimit(limit) => *limit,
            Item::NoTable(_) | Item::Database(_) | Item::NoDatabase(_) => 0,
        };
        self.version = self.version.max(TableVersion(above));
    }

    fn apply(&mut self, item: Item) {
        match item {
            Item::Table(record) => {
                self.tables.insert(record.table, record);
            }
            Item::NoTable(id) => {
                self.tables.remove(&id);
            }
            Item::Database(database) => {
                self.databases.insert(database.name.clone(), database);
            }
            Item::NoDatabase(name) => {
                self.databases.remove(&name);
            }
            Item::VersionLimit(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use vinga_base::order_key::{Direction, OrderColumn};
    use vinga_base::schema::{
        ColumnDefinition, ColumnType, Durability, IndexDefinition, IndexKind, TableDefinition,
    };
    use vinga_base::{ColumnId, TablePartitions};
    use vinga_format::block::Origin;
    use vinga_format::checksum::Checksum;
    use vinga_format::schema::{SchemaEntry, read, rewrite};
    use vinga_wire::dictionary::UniqueTable;

    fn record() -> TableRecord {
        let definition = TableDefinition {
            name: "shop.items".into(),
            columns: vec![ColumnDefinition {
                name: "id".into(),
                column_type: ColumnType::Integer { bytes: 8, signed: true },
                nullable: false,
            }],
            primary_key: vec![ColumnId(0)],
            indexes: vec![IndexDefinition {
                id: 1,
                name: "unique".into(),
                columns: vec![OrderColumn { column: ColumnId(0), direction: Direction::Ascending }],
                kind: IndexKind::Unique,
            }],
            attachment: vec![7],
            ..TableDefinition::default()
        };
        let unique = UniqueTable { index: 1, table: 4, version: 302 };
        TableRecord {
            unique_tables: vec![unique],
            ..TableRecord::new(3, 301, TablePartitions::first(2), definition)
        }
    }

    fn all() -> Vec<Item> {
        vec![
            Item::Table(record()),
            Item::NoTable(3),
            Item::Database(Database { name: "shop".into(), attachment: vec![8, 9] }),
            Item::NoDatabase("shop".into()),
            Item::VersionLimit(1 << 20),
        ]
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// If this fails, older files can't be read any more: make a new version of the format.
    #[test]
    fn the_bytes_of_version_1_stay_as_they_are() {
        assert_eq!(hex(&encode(&all())), VERSION_1);
        assert_eq!(cold::from_bytes::<Vec<Item>>(&encode(&all())), Some(all()));
    }

    /// Where version 1 has a boolean value, whether a table is not logged, version 2 has its durability.
    #[test]
    fn a_boolean_value_of_version_1_is_a_durability() {
        for (byte, durability) in [(0, Durability::Memory), (1, Durability::NotLogged), (2, Durability::Disk)]
        {
            let mut record = record();
            record.definition.durability = durability;
            let bytes = encode(&[Item::Table(record)]);
            let memory = encode(&[Item::Table(self::record())]);
            let differs: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != memory[at]).collect();
            match differs[..] {
                [] => assert_eq!(durability, Durability::Memory),
                [at] => assert_eq!((memory[at], bytes[at]), (0, byte)),
                _ => panic!("{durability:?} takes one byte: {differs:?}"),
            }
            assert_eq!(bytes.len(), memory.len());
        }
    }

    const VERSION_1: &str = "050003ad02ad02010104ae020200010a73686f702e6974656d7301026964000801000100000000010106756e69717565010000\
        0101070103020473686f70020809030473686f7004808040";

    fn amounts_to(entries: &[(u64, Vec<Item>)], restored: u64) -> Result<Definitions, String> {
        let bytes: Vec<Vec<u8>> = entries.iter().map(|(_, items)| encode(items)).collect();
        let origin = Origin { cluster: 1, node: vinga_base::NodeId(1), incarnation: 1, owner: 0 };
        let entries = entries.iter().zip(&bytes);
        let entries = entries.map(|((epoch, _), bytes)| SchemaEntry { epoch: Epoch(*epoch), bytes });
        let file: Vec<u8> =
            rewrite(origin, 1, entries, Checksum::SOFTWARE).iter().flat_map(|block| block.to_vec()).collect();
        Definitions::read(&read(&file, Checksum::SOFTWARE).expect("the file is whole"), Epoch(restored))
    }

    #[test]
    fn entries_count_up_to_the_restore_point_and_their_versions_in_any_case() {
        let other = TableRecord { version: 400, ..record() };
        let entries = [
            (10, vec![Item::Database(Database { name: "shop".into(), attachment: vec![] })]),
            (11, vec![Item::Table(record())]),
            (12, vec![Item::Table(other)]),
            (13, vec![Item::NoTable(3), Item::NoDatabase("shop".into())]),
        ];
        let found = |restored| {
            let found = amounts_to(&entries, restored).expect("they can be read");
            assert_eq!((found.version, found.greatest), (TableVersion(401), Epoch(13)));
            (found.tables.get(&3).map(|table| table.version), found.databases.len())
        };
        assert_eq!(found(9), (None, 0));
        assert_eq!(found(10), (None, 1));
        assert_eq!(found(11), (Some(301), 1));
        assert_eq!(found(12), (Some(400), 1));
        assert_eq!(found(13), (None, 0));
    }

    #[test]
    fn an_entry_that_is_something_else_is_refused() {
        let origin = Origin { cluster: 1, node: vinga_base::NodeId(1), incarnation: 1, owner: 0 };
        let entry = SchemaEntry { epoch: Epoch(5), bytes: &[200, 1, 2] };
        let file: Vec<u8> =
            rewrite(origin, 1, [entry], Checksum::SOFTWARE).iter().flat_map(|block| block.to_vec()).collect();
        let file = read(&file, Checksum::SOFTWARE).expect("the blocks are whole");
        let why = Definitions::read(&file, Epoch(9)).expect_err("there is no such item");
        assert_eq!(why, "entry 0, of epoch 5, can't be read");
    }
}
