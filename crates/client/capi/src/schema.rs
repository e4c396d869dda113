//! Changes of tables: created, dropped, given other names and definitions, emptied, fenced.

use crate::border::{Out, Text};
use crate::call::calls;
use crate::cluster::Cluster;
use crate::connection::{Connection, Waiting};
use crate::definition::Definition;
use crate::failure::{Misuse, Outcome};
use crate::handle::{Handle, Kind};
use crate::result_set::ResultSet;
use crate::row::Cells;
use crate::table::Table;
use std::ffi::c_int;
use std::sync::Arc;

/// Gives a handle for what a table has become, if one is wanted.
fn give(connection: &Arc<Connection>, table: Out<Handle<Table>>, made: &vinga::Table) -> Outcome {
    if table.is_wanted() {
        table.put(Table::create(Arc::clone(connection), made.rows::<Cells>()?));
    }
    Ok(())
}

fn create(
    waiting: &Waiting<'_>,
    _: &mut Cluster,
    definition: Handle<Definition>,
    table: Out<Handle<Table>>,
) -> Outcome {
    let connection = waiting.connection()?;
    let definition = definition.look()?.inner().clone();
    let made = waiting.wait_for(&connection, connection.cluster.create_table(definition))?;
    give(&connection, table, &made)
}

fn alter(
    waiting: &Waiting<'_>,
    _: &mut Cluster,
    table: Handle<Table>,
    definition: Handle<Definition>,
    altered: Out<Handle<Table>>,
) -> Outcome {
    let connection = waiting.connection()?;
    let table = table.look()?.inner().clone();
    let definition = definition.look()?.inner().clone();
    let made = waiting.wait_for(&connection, connection.cluster.alter_table(&table, definition))?;
    give(&connection, altered, &made)
}

fn rename(
    waiting: &Waiting<'_>,
    _: &mut Cluster,
    name: Text,
    new_name: Text,
    renamed: Out<Handle<Table>>,
) -> Outcome {
    let connection = waiting.connection()?;
    let (name, new_name) = (name.get()?.to_owned(), new_name.get()?.to_owned());
    let made = waiting.wait_for(&connection, connection.cluster.rename_table(&name, &new_name))?;
    give(&connection, renamed, &made)
}

fn truncate(waiting: &Waiting<'_>, _: &mut Cluster, name: Text, truncated: Out<Handle<Table>>) -> Outcome {
    let connection = waiting.connection()?;
    let name = name.get()?.to_owned();
    let made = waiting.wait_for(&connection, connection.cluster.truncate_table(&name))?;
    give(&connection, truncated, &made)
}

fn drop_table(waiting: &Waiting<'_>, _: &mut Cluster, name: Text) -> Outcome {
    let connection = waiting.connection()?;
    let name = name.get()?.to_owned();
    waiting.wait_for(&connection, connection.cluster.drop_table(&name))
}

fn list(waiting: &Waiting<'_>, _: &mut Cluster, result: Out<Handle<ResultSet>>) -> Outcome {
    let result = result.required()?;
    let connection = waiting.connection()?;
    let names = waiting.wait_for(&connection, connection.cluster.tables())?;
    result.put(Handle::create(None, ResultSet::names("table", names)));
    Ok(())
}

/// A write fence handle's object; `None` once it was lifted.
pub struct Fence(Option<vinga::Fence>);

impl Kind for Fence {
    const NUMBER: u8 = 12;
}

fn put_up(
    waiting: &Waiting<'_>,
    _: &mut Cluster,
    table: Handle<Table>,
    fence: Out<Handle<Fence>>,
) -> Outcome {
    let fence = fence.required()?;
    let connection = waiting.connection()?;
    let table = table.look()?.inner().clone();
    let made = waiting.wait_for(&connection, connection.cluster.fence_table(&table))?;
    fence.put(Handle::create(Some(connection), Fence(Some(made))));
    Ok(())
}

fn lift(waiting: &Waiting<'_>, fence: &mut Fence) -> Outcome {
    let connection = waiting.connection()?;
    let standing = fence.0.take().ok_or(Misuse::IsOver)?;
    waiting.wait_for(&connection, standing.lift())
}

calls! {
    fn vinga_table_create, vinga_table_create_start, vinga_table_create_cont
        (cluster: Cluster, definition: Handle<Definition>, table: Out<Handle<Table>>) = create;
    fn vinga_table_alter, vinga_table_alter_start, vinga_table_alter_cont
        (cluster: Cluster, table: Handle<Table>, definition: Handle<Definition>, altered: Out<Handle<Table>>)
        = alter;
    fn vinga_table_rename, vinga_table_rename_start, vinga_table_rename_cont
        (cluster: Cluster, name: Text, new_name: Text, renamed: Out<Handle<Table>>) = rename;
    fn vinga_table_truncate, vinga_table_truncate_start, vinga_table_truncate_cont
        (cluster: Cluster, name: Text, truncated: Out<Handle<Table>>) = truncate;
    fn vinga_table_drop, vinga_table_drop_start, vinga_table_drop_cont
        (cluster: Cluster, name: Text) = drop_table;
    fn vinga_table_list, vinga_table_list_start, vinga_table_list_cont
        (cluster: Cluster, result: Out<Handle<ResultSet>>) = list;
    fn vinga_table_fence, vinga_table_fence_start, vinga_table_fence_cont
        (cluster: Cluster, table: Handle<Table>, fence: Out<Handle<Fence>>) = put_up;
    fn vinga_fence_lift, vinga_fence_lift_start, vinga_fence_lift_cont (fence: Fence) = lift;
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_fence_close(fence: Handle<Fence>) -> c_int {
    fence.close()
}
