//! The schema lock.

use crate::border::{Out, Text};
use crate::call::calls;
use crate::cluster::Cluster;
use crate::connection::Waiting;
use crate::failure::Outcome;
use crate::handle::{Handle, Kind};
use std::ffi::{c_int, c_uint};
use std::time::Duration;

/// A lock handle's object: the lock, which goes with it.
pub struct SchemaLock(vinga::SchemaLock);

impl Kind for SchemaLock {
    const NUMBER: u8 = 13;
}

fn take(
    waiting: &Waiting<'_>,
    _: &mut Cluster,
    purpose: Text,
    wait_ms: c_uint,
    lock: Out<Handle<SchemaLock>>,
) -> Outcome {
    let lock = lock.required()?;
    let connection = waiting.connection()?;
    let purpose = purpose.get()?.to_owned();
    let wait = Duration::from_millis(wait_ms.into());
    let taken = waiting.wait_for(&connection, connection.cluster.schema_lock(&purpose, wait))?;
    lock.put(Handle::create(Some(connection), SchemaLock(taken)));
    Ok(())
}

fn check(waiting: &Waiting<'_>, lock: &mut SchemaLock, is_held: Out<c_int>) -> Outcome {
    let is_held = is_held.required()?;
    let connection = waiting.connection()?;
    is_held.put(waiting.wait(&connection, lock.0.is_still_held())?.into());
    Ok(())
}

calls! {
    fn vinga_schema_lock_take, vinga_schema_lock_take_start, vinga_schema_lock_take_cont
        (cluster: Cluster, purpose: Text, wait_ms: c_uint, lock: Out<Handle<SchemaLock>>) = take;
    fn vinga_schema_lock_check, vinga_schema_lock_check_start, vinga_schema_lock_check_cont
        (lock: SchemaLock, is_held: Out<c_int>) = check;
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_schema_lock_is_held(lock: Handle<SchemaLock>) -> c_int {
    lock.look().is_ok_and(|lock| lock.0.is_held()).into()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_schema_lock_close(lock: Handle<SchemaLock>) -> c_int {
    lock.close()
}
