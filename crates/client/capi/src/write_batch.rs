//! Batches of operations that commit each by itself.

use crate::border::{Items, Out};
use crate::call::calls;
use crate::cluster::Cluster;
use crate::connection::Waiting;
use crate::failure::{Misuse, Outcome};
use crate::handle::{Handle, Kind};
use crate::row::Row;
use crate::table::Table;
use crate::update::Update;
use crate::value::{CValue, KeyValues};
use std::ffi::c_int;

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
