//! Which tables SQL can say, and so lists: remembered, for a listing has names only and would have to ask for the
//! definition of each table. News of definitions make it forget.

use std::collections::HashMap;
use std::sync::Mutex;

const NO_PANIC: &str = "nothing panics while it holds this lock";

/// Tables that are remembered, at most: with more of them all are asked for anew.
const TABLES_MAX: usize = 20_000;

/// How many news had come at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment(u64);

/// See the head of this file.
#[derive(Default, Debug)]
pub struct SayableTables {
    known: Mutex<Known>,
}

#[derive(Default, Debug)]
struct Known {
    news: u64,
    /// By `database.table`.
    tables: HashMap<String, bool>,
}

impl SayableTables {
    /// Whether SQL can say a table, if that is known; and now.
    pub fn find(&self, name: &str) -> (Option<bool>, Moment) {
        let known = self.known.lock().expect(NO_PANIC);
        (known.tables.get(name).copied(), Moment(known.news))
    }

    /// A table was asked for at this moment or later. If there were news since it is not remembered: it may have been
    /// another.
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

    /// A table of this name has changed, has come or is gone.
    pub fn forget(&self, name: &str) {
        let mut known = self.known.lock().expect(NO_PANIC);
        known.news += 1;
        known.tables.remove(name);
    }

    /// Any may have changed.
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
