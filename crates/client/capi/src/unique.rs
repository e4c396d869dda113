//! Reads by the values of a unique index.

use crate::border::{Items, Text};
use crate::call::calls;
use crate::cluster::Cluster;
use crate::connection::Waiting;
use crate::failure::Outcome;
use crate::handle::Handle;
use crate::row::{Cells, Row};
use crate::table::Table;
use crate::transaction::{Transaction, lock_of};
use crate::value::{CValue, Given, Kept, KeyValues};
use std::ffi::c_int;
use vinga::value::Key;
use vinga::{Error, ErrorCode, IndexKind, TableLayout};

/// Values of a unique index whose rows are to be read, then the rows.
pub struct UniqueKeys {
    index: String,
    /// Has the values as its key, so it knows which are allowed.
    hidden: TableLayout,
    values: Vec<KeyValues<Kept>>,
    rows: Vec<Option<Cells>>,
}

impl UniqueKeys {
    /// No values yet.
    ///
    /// # Errors
    /// `BadProgram` if the table has no unique index of this name.
    pub fn new(table: &vinga::Table<Cells>, index: &str) -> Outcome<Self> {
        let id = table.core().index(index, IndexKind::Unique)?.id;
        let hidden = table.core().unique_table(id).ok_or(ErrorCode::InternalError)?;
        Ok(UniqueKeys { index: index.to_owned(), hidden, values: Vec::new(), rows: Vec::new() })
    }

    /// Appends values for one row.
    ///
    /// # Errors
    /// `BadKey` if they are too few or too many, or one does not fit its column.
    pub fn push(&mut self, values: KeyValues<Given<'_>>) -> Outcome {
        let columns = self.hidden.layout().key().len();
        if values.len() != columns {
            let detail =
                format!("{} values; unique index '{}' has {columns} columns", values.len(), self.index);
            return Err(Error::with_detail(ErrorCode::BadKey, detail).into());
        }
        values.write(&self.hidden, &mut Vec::new())?;
        self.values.push(values.keep());
        Ok(())
    }

    /// How many rows are to be read.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// The name of the index.
    pub fn index(&self) -> &str {
        &self.index
    }

    /// The values.
    pub fn values(&self) -> impl Iterator<Item = &KeyValues<Kept>> {
        self.values.iter()
    }

    /// These rows were found, in the order of the values.
    pub fn found(&mut self, rows: Vec<Option<Cells>>) {
        self.rows = rows;
    }

    /// The row that was found, by the place of its values.
    pub fn row(&self, at: usize) -> Option<&Cells> {
        self.rows.get(at)?.as_ref()
    }

    /// Forgets values and rows.
    pub fn clear(&mut self) {
        self.values.clear();
        self.rows.clear();
    }
}

fn get(
    waiting: &Waiting<'_>,
    _: &mut Cluster,
    table: Handle<Table>,
    index: Text,
    values: Items<CValue>,
    count: usize,
    row: Handle<Row>,
) -> Outcome {
    let connection = waiting.connection()?;
    let table = table.look()?.inner().clone();
    row.look()?;
    let index = index.get()?.to_owned();
    let read = connection.cluster.get_by(&table, &index, KeyValues::new(values.get(count)?)?);
    let cells = waiting.wait_for(&connection, read)?;
    row.change(|row| row.take(&table, cells))
}

#[expect(clippy::too_many_arguments, reason = "C has no tuples")]
fn get_within(
    waiting: &Waiting<'_>,
    tx: &mut Transaction,
    table: Handle<Table>,
    index: Text,
    values: Items<CValue>,
    count: usize,
    lock: c_int,
    row: Handle<Row>,
) -> Outcome {
    let connection = waiting.connection()?;
    let table = table.look()?.inner().clone();
    row.look()?;
    let lock = lock_of(lock)?;
    let index = index.get()?.to_owned();
    let values = KeyValues::new(values.get(count)?)?;
    let read = waiting.wait_for(&connection, tx.define()?.find_by(&table, &index, [values], lock));
    tx.executed();
    let cells = read?.pop().and_then(|found| tx.found(found));
    row.change(|row| row.take(&table, cells))
}

calls! {
    fn vinga_get_by, vinga_get_by_start, vinga_get_by_cont
        (cluster: Cluster, table: Handle<Table>, index: Text, values: Items<CValue>, count: usize, row: Handle<Row>)
        = get;
    fn vinga_tx_get_by, vinga_tx_get_by_start, vinga_tx_get_by_cont
        (tx: Transaction, table: Handle<Table>, index: Text, values: Items<CValue>, count: usize, lock: c_int,
         row: Handle<Row>)
        = get_within;
}
