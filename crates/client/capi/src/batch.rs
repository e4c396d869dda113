//! Batches: many single operations in one call.

use crate::border::{Items, Out};
use crate::call::calls;
use crate::cluster::Cluster;
use crate::connection::Waiting;
use crate::failure::{Misuse, Outcome};
use crate::handle::{Handle, Kind};
use crate::row::{Cells, Row};
use crate::table::Table;
use crate::update::Update;
use crate::value::{CValue, KeyValues};
use std::ffi::c_int;

/// A handle's object: keys to be read, then their rows.
pub struct ReadBatch {
    /// `None` while it is under way, and when it was given up.
    batch: Option<vinga::ReadBatch<Cells>>,
    table: vinga::Table<Cells>,
    is_executed: bool,
    view: Handle<Row>,
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
    fn show(&mut self, index: usize) -> Outcome<Option<Handle<Row>>> {
        let Some(batch) = self.batch.as_ref().filter(|batch| self.is_executed && index < batch.len()) else {
            return Err(Misuse::BadIndex.into());
        };
        let row = batch.row_ref(index)?;
        let is_found = row.is_some();
        // SAFETY: it shows nothing, or is closed, before the batch changes.
        self.view.change(|view| unsafe { view.show(row) })?;
        Ok(is_found.then_some(self.view))
    }

    fn hide(&self) -> Outcome {
        // SAFETY: there is nothing that would have to stay.
        self.view.change(|view| unsafe { view.show(None) })
    }
}

fn execute_reads(waiting: &Waiting<'_>, reads: &mut ReadBatch) -> Outcome {
    let connection = waiting.connection()?;
    reads.hide()?;
    let batch = reads.batch.take().unwrap_or_else(|| vinga::ReadBatch::new(&reads.table));
    let ticket = connection.cluster.start_reads(batch)?;
    reads.batch = Some(waiting.wait(&connection, ticket)?);
    reads.is_executed = true;
    Ok(())
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
        let table = table.look()?.inner().clone();
        let view = Handle::create(None, Row::view(&table));
        view.common()?.is_owned.set(true);
        let new = ReadBatch { batch: Some(vinga::ReadBatch::new(&table)), table, is_executed: false, view };
        batch.put(Handle::create(Some(connection), new));
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
    batch.with(|reads, _| {
        reads.hide()?;
        reads.is_executed = false;
        reads.batch.get_or_insert_with(|| vinga::ReadBatch::new(&reads.table)).clear();
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_read_batch_add(batch: Handle<ReadBatch>, key: Items<CValue>, count: usize) -> c_int {
    batch.with(|reads, _| {
        if reads.is_executed {
            return Err(Misuse::IsOver.into());
        }
        let key = KeyValues::new(key.get(count)?)?;
        Ok(reads.batch.get_or_insert_with(|| vinga::ReadBatch::new(&reads.table)).push(key)?)
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_read_batch_count(batch: Handle<ReadBatch>) -> usize {
    batch.look().map_or(0, |reads| reads.batch.as_ref().map_or(0, vinga::ReadBatch::len))
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

/// A handle's object: operations that commit each by itself, then how they ended.
pub struct WriteBatch {
    batch: vinga::WriteBatch,
    is_executed: bool,
}

impl Kind for WriteBatch {
    const NUMBER: u8 = 11;
}

impl WriteBatch {
    fn add(&mut self, add: impl FnOnce(&mut vinga::WriteBatch) -> Outcome) -> Outcome {
        if self.is_executed {
            return Err(Misuse::IsOver.into());
        }
        add(&mut self.batch)
    }
}

fn execute_writes(waiting: &Waiting<'_>, writes: &mut WriteBatch) -> Outcome {
    let connection = waiting.connection()?;
    if writes.is_executed {
        return Err(Misuse::IsOver.into());
    }
    writes.is_executed = true;
    let ticket = connection.cluster.start_writes(std::mem::take(&mut writes.batch))?;
    writes.batch = waiting.wait(&connection, ticket)?;
    Ok(())
}

calls! {
    fn vinga_read_batch_execute, vinga_read_batch_execute_start, vinga_read_batch_execute_cont
        (batch: ReadBatch) = execute_reads;
    fn vinga_write_batch_execute, vinga_write_batch_execute_start, vinga_write_batch_execute_cont
        (batch: WriteBatch) = execute_writes;
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_write_batch_new(cluster: Handle<Cluster>, batch: Out<Handle<WriteBatch>>) -> c_int {
    cluster.with(|_, common| {
        let batch = batch.required()?;
        let connection = common.connection()?;
        let new = WriteBatch { batch: vinga::WriteBatch::new(), is_executed: false };
        batch.put(Handle::create(Some(connection), new));
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_write_batch_close(batch: Handle<WriteBatch>) -> c_int {
    batch.close()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_write_batch_clear(batch: Handle<WriteBatch>) -> c_int {
    batch.with(|writes, _| {
        writes.is_executed = false;
        writes.batch.clear();
        Ok(())
    })
}

macro_rules! row_changes {
    ($($name:ident $change:ident)*) => {$(
        /// See `vinga.h`.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(batch: Handle<WriteBatch>, row: Handle<Row>) -> c_int {
            batch.with(|writes, _| {
                let row = row.look()?;
                writes.add(|batch| Ok(batch.$change(row.table(), row)?))
            })
        }
    )*};
}

row_changes! {
    vinga_write_batch_insert insert
    vinga_write_batch_write write
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_write_batch_update(
    batch: Handle<WriteBatch>,
    table: Handle<Table>,
    key: Items<CValue>,
    count: usize,
    update: Handle<Update>,
) -> c_int {
    batch.with(|writes, _| {
        let key = KeyValues::new(key.get(count)?)?;
        let (table, update) = (table.look()?, update.look()?);
        writes.add(|batch| Ok(batch.update(table.inner(), key, update.inner())?))
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_write_batch_delete(
    batch: Handle<WriteBatch>,
    table: Handle<Table>,
    key: Items<CValue>,
    count: usize,
) -> c_int {
    batch.with(|writes, _| {
        let key = KeyValues::new(key.get(count)?)?;
        let table = table.look()?;
        writes.add(|batch| Ok(batch.delete(table.inner(), key)?))
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_write_batch_count(batch: Handle<WriteBatch>) -> usize {
    batch.look().map_or(0, |writes| writes.batch.len())
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_write_batch_result(batch: Handle<WriteBatch>, index: usize) -> c_int {
    batch.with(|writes, _| {
        if !writes.is_executed || index >= writes.batch.len() {
            return Err(Misuse::BadIndex.into());
        }
        Ok(writes.batch.ending(index)?)
    })
}
