//! Clusters: connecting, waiting, single operations, information.

use crate::border::{Items, Out, Text};
use crate::call::calls;
use crate::connection::{Connection, Waiting};
use crate::failure::{Failure, Misuse, Outcome};
use crate::handle::{Handle, Kind};
use crate::result_set::ResultSet;
use crate::row::Row;
use crate::table::Table;
use crate::update::Update;
use crate::value::{CValue, KeyValues};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;
use vinga::{ConnectOptions, InfoTable, NodeId};

/// A cluster handle's object; the connection is beside it.
#[derive(Default)]
pub struct Cluster {
    options: ConnectOptions,
}

impl Kind for Cluster {
    const NUMBER: u8 = 1;
}

impl Cluster {
    fn option(&mut self, set: impl FnOnce(ConnectOptions) -> ConnectOptions) -> Outcome {
        self.options = set(std::mem::take(&mut self.options));
        Ok(())
    }
}

/// The version, for C.
const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no NUL inside"),
};

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_version() -> *const c_char {
    VERSION.as_ptr()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_cluster_new(cluster: Out<Handle<Cluster>>) -> c_int {
    crate::failure::number(|| {
        cluster.required()?.put(Handle::create(None, Cluster::default()));
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_cluster_clone(cluster: Handle<Cluster>, clone: Out<Handle<Cluster>>) -> c_int {
    cluster.with(|cluster, common| {
        let connection = common.connection()?;
        clone.required()?.put(Handle::create(Some(connection), Cluster { options: cluster.options.clone() }));
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_cluster_close(cluster: Handle<Cluster>) -> c_int {
    cluster.close()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_cluster_set_name(cluster: Handle<Cluster>, name: Text) -> c_int {
    cluster.with(|cluster, _| {
        let name = name.get()?;
        cluster.option(|options| options.cluster(name))
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_cluster_set_node_id(cluster: Handle<Cluster>, node: c_uint) -> c_int {
    cluster.with(|cluster, _| {
        let node = u8::try_from(node)
            .map_err(|_| Failure::misuse(Misuse::BadArgument, "node ids are up to 255, 0 for any"))?;
        cluster.option(|options| options.node(NodeId(node)))
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_cluster_set_spin(cluster: Handle<Cluster>, microseconds: c_uint) -> c_int {
    cluster
        .with(|cluster, _| cluster.option(|options| options.spin(Duration::from_micros(microseconds.into()))))
}

fn connect(waiting: &Waiting<'_>, cluster: &mut Cluster, addresses: Text) -> Outcome {
    if waiting.connection().is_ok() {
        return Err(Misuse::AlreadyConnected.into());
    }
    let begun = vinga::Cluster::begin_connect(addresses.get()?, cluster.options.clone())?;
    let connection = Connection::new(begun)?;
    // That of an earlier attempt wakes nobody any more.
    waiting.common.waker.borrow_mut().take();
    waiting.common.set_connection(Some(Arc::clone(&connection)));
    let connected = waiting.wait_for(&connection, connection.cluster.connected());
    if connected.is_err() {
        waiting.common.set_connection(None);
    }
    connected
}

fn get(
    waiting: &Waiting<'_>,
    _: &mut Cluster,
    table: Handle<Table>,
    key: Items<CValue>,
    count: usize,
    row: Handle<Row>,
) -> Outcome {
    let connection = waiting.connection()?;
    let table = table.look()?.inner().clone();
    row.look()?;
    let read = connection.cluster.get(&table, KeyValues::new(key.get(count)?)?);
    let cells = waiting.wait_for(&connection, read)?;
    row.change(|row| row.take(&table, cells))
}

/// The ways to change one row with a whole row.
macro_rules! row_changes {
    ($($name:ident)*) => {$(
        fn $name(waiting: &Waiting<'_>, _: &mut Cluster, row: Handle<Row>) -> Outcome {
            let connection = waiting.connection()?;
            let row = row.look()?.copy()?;
            let table = row.table().clone();
            waiting.wait_for(&connection, connection.cluster.$name(&table, &row))
        }
    )*};
}

row_changes!(insert write);

fn update(
    waiting: &Waiting<'_>,
    _: &mut Cluster,
    table: Handle<Table>,
    key: Items<CValue>,
    count: usize,
    update: Handle<Update>,
) -> Outcome {
    let connection = waiting.connection()?;
    let table = table.look()?.inner().clone();
    let key = KeyValues::new(key.get(count)?)?;
    waiting.wait_for(&connection, connection.cluster.update(&table, key, update.look()?.inner()))
}

fn delete(
    waiting: &Waiting<'_>,
    _: &mut Cluster,
    table: Handle<Table>,
    key: Items<CValue>,
    count: usize,
) -> Outcome {
    let connection = waiting.connection()?;
    let table = table.look()?.inner().clone();
    waiting.wait_for(&connection, connection.cluster.delete(&table, KeyValues::new(key.get(count)?)?))
}

/// The information tables by their numbers.
const INFO_TABLES: [InfoTable; 8] = [
    InfoTable::Threads,
    InfoTable::Memory,
    InfoTable::Pools,
    InfoTable::Blocks,
    InfoTable::DiskWriteSpeedBase,
    InfoTable::DiskWriteSpeedAggregate,
    InfoTable::RedoLogs,
    InfoTable::Restarts,
];

fn info(waiting: &Waiting<'_>, _: &mut Cluster, table: c_int, result: Out<Handle<ResultSet>>) -> Outcome {
    let result = result.required()?;
    let connection = waiting.connection()?;
    let table = usize::try_from(table).ok().and_then(|number| INFO_TABLES.get(number.checked_sub(1)?));
    let Some(&table) = table else {
        return Err(Failure::misuse(Misuse::BadArgument, "there is no such information table"));
    };
    let rows = waiting.wait_for(&connection, connection.cluster.info(table))?;
    result.put(Handle::create(None, ResultSet::info(rows)));
    Ok(())
}

calls! {
    fn vinga_connect, vinga_connect_start, vinga_connect_cont (cluster: Cluster, addresses: Text) = connect;
    fn vinga_get, vinga_get_start, vinga_get_cont
        (cluster: Cluster, table: Handle<Table>, key: Items<CValue>, count: usize, row: Handle<Row>) = get;
    fn vinga_insert, vinga_insert_start, vinga_insert_cont (cluster: Cluster, row: Handle<Row>) = insert;
    fn vinga_write, vinga_write_start, vinga_write_cont (cluster: Cluster, row: Handle<Row>) = write;
    fn vinga_update, vinga_update_start, vinga_update_cont
        (cluster: Cluster, table: Handle<Table>, key: Items<CValue>, count: usize, program: Handle<Update>)
        = update;
    fn vinga_delete, vinga_delete_start, vinga_delete_cont
        (cluster: Cluster, table: Handle<Table>, key: Items<CValue>, count: usize) = delete;
    fn vinga_info, vinga_info_start, vinga_info_cont
        (cluster: Cluster, which: c_int, result: Out<Handle<ResultSet>>) = info;
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_node_id(cluster: Handle<Cluster>) -> c_uint {
    let connection = cluster.common().and_then(crate::handle::Common::connection);
    connection.map_or(0, |connection| connection.cluster.node().0.into())
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_get_socket(cluster: Handle<Cluster>) -> c_int {
    let descriptor = || cluster.common()?.connection()?.descriptor();
    descriptor().unwrap_or(-1)
}

fn timeout(cluster: Handle<Cluster>) -> Duration {
    let connection = cluster.common().and_then(crate::handle::Common::connection);
    connection.and_then(|connection| connection.attend()).unwrap_or_default()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_get_timeout_value_ms(cluster: Handle<Cluster>) -> c_uint {
    // Up: whoever wakes too early has to wait again.
    timeout(cluster).as_micros().div_ceil(1000) as c_uint
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_get_timeout_value(cluster: Handle<Cluster>) -> c_uint {
    timeout(cluster).as_micros().div_ceil(1_000_000) as c_uint
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_next_ready(cluster: Handle<Cluster>) -> *const c_void {
    let next = || cluster.common().ok()?.connection().ok()?.next_woken();
    let next = std::panic::catch_unwind(std::panic::AssertUnwindSafe(next));
    next.ok().flatten().unwrap_or(ptr::null()).cast()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_is_at_rest(cluster: Handle<Cluster>) -> c_int {
    let connection = cluster.common().and_then(crate::handle::Common::connection);
    connection.is_ok_and(|connection| connection.cluster.is_at_rest()).into()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_incarnation(cluster: Handle<Cluster>) -> u64 {
    let connection = cluster.common().and_then(crate::handle::Common::connection);
    connection.map_or(0, |connection| connection.cluster.incarnation())
}
