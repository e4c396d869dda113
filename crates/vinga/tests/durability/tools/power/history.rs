//! What clients did until the power failed, and what of it must be there afterwards.
//!
//! Each transaction has the epoch that its answer named. A node that restores up to epoch R must have exactly the
//! transactions of epochs up to R, whenever the power fails, and R is not before any that was answered as durable until
//! then. Definitions are made one after the other: those that were answered are there, and perhaps the next one.

use std::collections::{BTreeMap, BTreeSet};

/// What a database contains.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct State {
    /// Values of rows of the table of rows, by id.
    pub rows: BTreeMap<u64, u64>,
    pub accounts: BTreeMap<u64, i64>,
    pub tables: BTreeSet<String>,
    /// Other tables that have their row.
    pub marked: BTreeSet<String>,
}

/// What a transaction does.
#[derive(Clone, Debug)]
pub enum Effect {
    Put(u64, u64),
    Remove(u64),
    Add(u64, i64),
    Mark(String),
}

/// A transaction that was committed.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub effects: Vec<Effect>,
    pub epoch: u64,
    pub is_durable: bool,
    /// The moment when it was answered.
    pub answered: usize,
}

/// A definition that was made or dropped.
#[derive(Clone, Debug)]
pub struct Definition {
    pub table: String,
    pub is_there: bool,
    pub begun: usize,
    pub answered: usize,
}

/// What was done by all clients. Transactions that change the same row are in their order.
#[derive(Clone, Default, Debug)]
pub struct History {
    pub transactions: Vec<Transaction>,
    pub definitions: Vec<Definition>,
}

impl History {
    /// Compares what a node has restored, up to this epoch, after the power failed at a moment, with what was done
    /// since the database contained `base`.
    pub fn check(&self, base: &State, moment: usize, restored: u64, found: &State) -> Result<(), String> {
        let promised = self.transactions.iter().filter(|one| one.is_durable && one.answered <= moment);
        if let Some(lost) = promised.max_by_key(|one| one.epoch).filter(|one| one.epoch > restored) {
            return Err(format!("epoch {restored} is restored, but {lost:?} was answered as durable before"));
        }
        let mut expected = base.clone();
        for one in self.transactions.iter().filter(|one| one.epoch <= restored) {
            expected.apply(&one.effects);
        }
        let answered = self.definitions.iter().filter(|one| one.answered <= moment).count();
        let begun = self.definitions.iter().filter(|one| one.begun <= moment).count();
        let fits =
            (answered..=begun).any(|count| expected.tables_after(&self.definitions[..count]) == found.tables);
        if !fits {
            let made = &self.definitions[..begun];
            let tables = &found.tables;
            return Err(format!(
                "tables are {tables:?}, {answered} of these changes were answered: {made:?}"
            ));
        }
        expected.tables.clone_from(&found.tables);
        expected.marked.retain(|table| found.tables.contains(table));
        if expected == *found { Ok(()) } else { Err(difference(restored, &expected, found)) }
    }
}

impl State {
    pub fn apply(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Put(id, value) => _ = self.rows.insert(*id, *value),
                Effect::Remove(id) => _ = self.rows.remove(id),
                Effect::Add(account, amount) => *self.accounts.entry(*account).or_default() += amount,
                Effect::Mark(table) => _ = self.marked.insert(table.clone()),
            }
        }
    }

    fn tables_after(&self, definitions: &[Definition]) -> BTreeSet<String> {
        let mut tables = self.tables.clone();
        for Definition { table, is_there, .. } in definitions {
            match is_there {
                true => _ = tables.insert(table.clone()),
                false => _ = tables.remove(table),
            }
        }
        tables
    }
}

/// Where two states differ.
fn difference(restored: u64, expected: &State, found: &State) -> String {
    let ids: BTreeSet<_> = expected.rows.keys().chain(found.rows.keys()).collect();
    let rows: Vec<_> = ids
        .into_iter()
        .filter(|id| expected.rows.get(id) != found.rows.get(id))
        .map(|id| format!("row {id} is {:?}, not {:?}", found.rows.get(id), expected.rows.get(id)))
        .collect();
    format!(
        "epoch {restored} is restored, but {}; accounts {:?}, expected {:?}; with a row {:?}, expected {:?}",
        rows.join(", "),
        found.accounts,
        expected.accounts,
        found.marked,
        expected.marked
    )
}
