//! Batches of reads: many keys in one call.
//!
//! Their keys are those of the table, or values of a unique index.

use crate::border::{Items, Out, Text};
use crate::call::calls;
use crate::cluster::Cluster;
use crate::connection::{Connection, Waiting};
use crate::failure::{Failure, Misuse, Outcome};
use crate::handle::{Handle, Kind};
use crate::row::{Cells, Row};
use crate::table::Table;
use crate::transaction::{Transaction, lock_of};
use crate::unique::UniqueKeys;
use crate::value::{CValue, KeyValues};
use std::ffi::c_int;
use vinga::Lock;

/// A handle's object: keys to be read, then their rows.
pub struct ReadBatch {
    keys: Keys,
    table: vinga::Table<Cells>,
    is_executed: bool,
    view: Handle<Row>,
}

enum Keys {
    /// `None` while it is under way, and when it was given up.
    Primary(Option<vinga::ReadBatch<Cells>>),
    Unique(Box<UniqueKeys>),
}

impl Kind for ReadBatch {
    const NUMBER: u8 = 10;
}

impl Drop for ReadBatch {
    fn drop(&mut self) {
        // Before what it shows.
        self.view.close_owned();
    }
}

impl ReadBatch {
    fn create(connection: std::sync::Arc<Connection>, table: &Table, keys: Keys) -> Outcome<Handle<Self>> {
        let table = table.inner().clone();
        let view = Handle::create(None, Row::view(&table));
        view.common()?.is_owned.set(true);
        Ok(Handle::create(Some(connection), ReadBatch { keys, table, is_executed: false, view }))
    }

    fn len(&self) -> usize {
        match &self.keys {
            Keys::Primary(batch) => batch.as_ref().map_or(0, vinga::ReadBatch::len),
            Keys::Unique(keys) => keys.count(),
        }
    }

    fn push(&mut self, values: &[CValue]) -> Outcome {
        if self.is_executed {
            return Err(Misuse::IsOver.into());
        }
        let values = KeyValues::new(values)?;
        match &mut self.keys {
            Keys::Primary(batch) => {
                Ok(batch.get_or_insert_with(|| vinga::ReadBatch::new(&self.table)).push(values)?)
            }
            Keys::Unique(keys) => keys.push(values),
        }
    }

    fn show(&mut self, index: usize) -> Outcome<Option<Handle<Row>>> {
        if !self.is_executed || index >= self.len() {
            return Err(Misuse::BadIndex.into());
        }
        let is_found = match &self.keys {
            Keys::Primary(batch) => {
                let row = batch.as_ref().ok_or(Misuse::BadIndex)?.row_ref(index)?;
                let is_found = row.is_some();
                // SAFETY: it shows nothing, or is closed, before the batch changes.
                self.view.change(|view| unsafe { view.show(row) })?;
                is_found
            }
            Keys::Unique(keys) => match keys.row(index) {
                Some(cells) => {
                    // SAFETY: as above.
                    self.view.change(|view| unsafe { view.lend(cells) })?;
                    true
                }
                None => {
                    self.hide()?;
                    false
                }
            },
        };
        Ok(is_found.then_some(self.view))
    }

    fn hide(&self) -> Outcome {
        // SAFETY: there is nothing that would have to stay.
        self.view.change(|view| unsafe { view.show(None) })
    }

    fn clear(&mut self) -> Outcome {
        self.hide()?;
        self.is_executed = false;
        match &mut self.keys {
            Keys::Primary(batch) => batch.get_or_insert_with(|| vinga::ReadBatch::new(&self.table)).clear(),
            Keys::Unique(keys) => keys.clear(),
        }
        Ok(())
    }
}

fn execute(waiting: &Waiting<'_>, reads: &mut ReadBatch) -> Outcome {
    let connection = waiting.connection()?;
    reads.hide()?;
    match &mut reads.keys {
        Keys::Primary(keys) => {
            let batch = keys.take().unwrap_or_else(|| vinga::ReadBatch::new(&reads.table));
            let ticket = connection.cluster.start_reads(batch)?;
            *keys = Some(waiting.wait(&connection, ticket)?);
        }
        Keys::Unique(keys) => {
            let found = connection.cluster.get_many_by(&reads.table, keys.index(), keys.values());
            let rows = waiting.wait_for(&connection, found)?;
            keys.found(rows);
        }
    }
    reads.is_executed = true;
    Ok(())
}

fn execute_within(
    waiting: &Waiting<'_>,
    tx: &mut Transaction,
    batch: Handle<ReadBatch>,
    lock: c_int,
) -> Outcome {
    let connection = waiting.connection()?;
    let lock = lock_of(lock)?;
    let batch = batch.hold()?;
    let reads = batch.value();
    reads.hide()?;
    let open = tx.define()?;
    match &mut reads.keys {
        Keys::Primary(_) if lock.lock() != Lock::None => {
            let detail = "rows are locked by their keys with vinga_tx_define_read() and vinga_tx_execute()";
            return Err(Failure::misuse(Misuse::BadArgument, detail));
        }
        Keys::Primary(keys) => {
            let batch = keys.take().unwrap_or_else(|| vinga::ReadBatch::new(&reads.table));
            let read = waiting.wait_for(&connection, open.read_keys(batch));
            tx.executed();
            *keys = Some(read?);
        }
        Keys::Unique(keys) => {
            let found = open.get_many_by(&reads.table, keys.index(), keys.values(), lock);
            let found = waiting.wait_for(&connection, found);
            tx.executed();
            keys.found(found?);
        }
    }
    reads.is_executed = true;
    Ok(())
}

calls! {
    fn vinga_read_batch_execute, vinga_read_batch_execute_start, vinga_read_batch_execute_cont
        (batch: ReadBatch) = execute;
    fn vinga_tx_read_batch, vinga_tx_read_batch_start, vinga_tx_read_batch_cont
        (tx: Transaction, batch: Handle<ReadBatch>, lock: c_int) = execute_within;
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_read_batch_new(
    cluster: Handle<Cluster>,
    table: Handle<Table>,
    batch: Out<Handle<ReadBatch>>,
) -> c_int {
    cluster.with(|_, common| {
        let batch = batch.required()?;
        let connection = common.connection()?;
        let table = table.look()?;
        let keys = Keys::Primary(Some(vinga::ReadBatch::new(table.inner())));
        batch.put(ReadBatch::create(connection, table, keys)?);
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_read_batch_new_by(
    cluster: Handle<Cluster>,
    table: Handle<Table>,
    index: Text,
    batch: Out<Handle<ReadBatch>>,
) -> c_int {
    cluster.with(|_, common| {
        let batch = batch.required()?;
        let connection = common.connection()?;
        let table = table.look()?;
        let keys = Keys::Unique(Box::new(UniqueKeys::new(table.inner(), index.get()?)?));
        batch.put(ReadBatch::create(connection, table, keys)?);
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_read_batch_close(batch: Handle<ReadBatch>) -> c_int {
    batch.close()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_read_batch_clear(batch: Handle<ReadBatch>) -> c_int {
    batch.with(|reads, _| reads.clear())
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_read_batch_add(batch: Handle<ReadBatch>, key: Items<CValue>, count: usize) -> c_int {
    batch.with(|reads, _| reads.push(key.get(count)?))
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_read_batch_count(batch: Handle<ReadBatch>) -> usize {
    batch.look().map_or(0, ReadBatch::len)
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_read_batch_row(
    batch: Handle<ReadBatch>,
    index: usize,
    row: Out<Handle<Row>>,
) -> c_int {
    batch.with(|reads, _| {
        let row = row.required()?;
        row.put(reads.show(index)?.unwrap_or(Handle::null()));
        Ok(())
    })
}
