//! The databases: their names, and what SQL nodes keep beside them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use vinga_wire::schema::Database;

/// Databases, at most.
pub const DATABASES_MAX: usize = 16_384;

/// All databases, by name.
#[derive(Default)]
pub struct Databases {
    /// By name.
    by_name: BTreeMap<String, Database>,
}

impl Databases {
    /// The database of a name.
    pub fn find(&self, name: &str) -> Option<&Database> {
        self.by_name.get(name)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Adds or replaces one.
    pub fn put(&mut self, database: Database) {
        self.by_name.insert(database.name.clone(), database);
    }

    /// Takes one out.
    pub fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    /// All, in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Database> {
        self.by_name.values()
    }

    /// Those behind a name.
    pub fn iter_after(&self, after: &str) -> impl Iterator<Item = &Database> {
        use core::ops::Bound::{Excluded, Unbounded};
        self.by_name.range::<str, _>((Excluded(after), Unbounded)).map(|(_, database)| database)
    }
}

/// The database in `database.table`.
pub fn database_of(table: &str) -> &str {
    table.split('.').next().unwrap_or_default()
}
