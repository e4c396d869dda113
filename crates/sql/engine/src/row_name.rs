//! Names of rows, and collections by these names.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// Identifies a row of any table: a hash of the table and the primary key, long enough to be unique in practice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RowName(u128);

impl RowName {
    /// The row of a table, by the table's number in the data nodes, with this encoded primary key.
    pub fn new(table: u32, key: &[u8]) -> Self {
        RowName(xxhash_rust::xxh3::xxh3_128_with_seed(key, table.into()))
    }
}

/// A map from rows, by their names.
pub type RowMap<V> = HashMap<RowName, V, BuildHasherDefault<HalfOfName>>;

/// A set of rows, by their names.
pub type RowSet = HashSet<RowName, BuildHasherDefault<HalfOfName>>;

/// The hasher for names, which are hashes already: it takes half of the name.
#[derive(Default)]
pub struct HalfOfName(u64);

impl Hasher for HalfOfName {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a name is one number")
    }

    fn write_u128(&mut self, name: u128) {
        self.0 = name as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_distinguished_by_table_and_key() {
        let mut rows = RowMap::default();
        for table in 1..=3_u32 {
            for key in 0..1_000_u32 {
                assert_eq!(rows.insert(RowName::new(table, &key.to_le_bytes()), (table, key)), None);
            }
        }
        assert_eq!(rows.get(&RowName::new(2, &77_u32.to_le_bytes())), Some(&(2, 77)));
        assert_eq!(rows.get(&RowName::new(4, &77_u32.to_le_bytes())), None);
    }
}
