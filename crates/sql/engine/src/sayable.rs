//! Caches which tables SQL can represent, and therefore lists: a listing has only names and would have to request the
//! definition of each table. Schema events clear the cache.

use std::collections::HashMap;
use std::sync::Mutex;

const NO_PANIC: &str = "nothing panics while it holds this lock";

/// Maximum number of cached tables: if there are more, all of them are requested again.
const TABLES_MAX: usize = 20_000;

/// The number of schema events up to some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment(u64);

/// The cache of a SQL node.
#[derive(Default, Debug)]
pub struct SayableTables {
    known: Mutex<Known>,
}

#[derive(Default, Debug)]
struct Known {
    news: u64,
    /// Whether SQL can represent a table, by `database.table`.
    tables: HashMap<String, bool>,
}

impl SayableTables {
    /// Whether SQL can represent a table, if that is known; and the current moment.
    pub fn find(&self, name: &str) -> (Option<bool>, Moment) {
        let known = self.known.lock().expect(NO_PANIC);
        (known.tables.get(name).copied(), Moment(known.news))
    }

    /// Stores the result of a request that was made at this moment or later. If there were schema events since then it
    /// is not stored: the table may have been another one.
    pub fn learn(&self, name: &str, is_sayable: bool, asked: Moment) {
        let mut known = self.known.lock().expect(NO_PANIC);
        if known.news != asked.0 {
            return;
        }
        if known.tables.len() >= TABLES_MAX {
            known.tables.clear();
        }
        known.tables.insert(name.to_owned(), is_sayable);
    }

    /// Forgets a table that was changed, created or dropped.
    pub fn forget(&self, name: &str) {
        let mut known = self.known.lock().expect(NO_PANIC);
        known.news += 1;
        known.tables.remove(name);
    }

    /// Forgets all tables, as any of them may have changed.
    pub fn forget_all(&self) {
        let mut known = self.known.lock().expect(NO_PANIC);
        known.news += 1;
        known.tables.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::SayableTables;

    #[test]
    fn what_was_asked_for_before_news_is_not_remembered() {
        let tables = SayableTables::default();
        let (known, asked) = tables.find("d.t");
        assert_eq!(known, None);
        tables.learn("d.t", true, asked);
        assert_eq!(tables.find("d.t").0, Some(true));
        let (_, asked) = tables.find("d.t");
        tables.forget("d.t");
        tables.learn("d.t", false, asked);
        assert_eq!(tables.find("d.t").0, None);
        let (_, asked) = tables.find("d.t");
        tables.learn("d.t", false, asked);
        assert_eq!(tables.find("d.t").0, Some(false));
        tables.forget_all();
        assert_eq!(tables.find("d.t").0, None);
    }
}
