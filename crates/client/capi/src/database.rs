//! Databases.

use crate::border::{Items, Out, Text};
use crate::call::calls;
use crate::cluster::Cluster;
use crate::connection::Waiting;
use crate::failure::Outcome;
use crate::handle::Handle;
use crate::result_set::{Cell, ResultSet};

fn create(
    waiting: &Waiting<'_>,
    _: &mut Cluster,
    name: Text,
    attachment: Items<u8>,
    length: usize,
) -> Outcome {
    let connection = waiting.connection()?;
    let (name, attachment) = (name.get()?.to_owned(), attachment.get(length)?.to_vec());
    waiting.wait_for(&connection, connection.cluster.create_database(&name, &attachment))
}

fn alter(
    waiting: &Waiting<'_>,
    _: &mut Cluster,
    name: Text,
    attachment: Items<u8>,
    length: usize,
) -> Outcome {
    let connection = waiting.connection()?;
    let (name, attachment) = (name.get()?.to_owned(), attachment.get(length)?.to_vec());
    waiting.wait_for(&connection, connection.cluster.alter_database(&name, &attachment))
}

fn drop_database(waiting: &Waiting<'_>, _: &mut Cluster, name: Text) -> Outcome {
    let connection = waiting.connection()?;
    let name = name.get()?.to_owned();
    waiting.wait_for(&connection, connection.cluster.drop_database(&name))
}

fn describe(waiting: &Waiting<'_>, _: &mut Cluster, name: Text, result: Out<Handle<ResultSet>>) -> Outcome {
    let result = result.required()?;
    let connection = waiting.connection()?;
    let name = name.get()?.to_owned();
    let found = waiting.wait_for(&connection, connection.cluster.database(&name))?;
    let cells = [Cell::Text(found.name), Cell::Bytes(found.attachment)];
    result.put(Handle::create(None, ResultSet::one(["database", "attachment"], cells)));
    Ok(())
}

fn list(waiting: &Waiting<'_>, _: &mut Cluster, result: Out<Handle<ResultSet>>) -> Outcome {
    let result = result.required()?;
    let connection = waiting.connection()?;
    let names = waiting.wait_for(&connection, connection.cluster.databases())?;
    result.put(Handle::create(None, ResultSet::names("database", names)));
    Ok(())
}

calls! {
    fn vinga_database_create, vinga_database_create_start, vinga_database_create_cont
        (cluster: Cluster, name: Text, attachment: Items<u8>, length: usize) = create;
    fn vinga_database_alter, vinga_database_alter_start, vinga_database_alter_cont
        (cluster: Cluster, name: Text, attachment: Items<u8>, length: usize) = alter;
    fn vinga_database_drop, vinga_database_drop_start, vinga_database_drop_cont
        (cluster: Cluster, name: Text) = drop_database;
    fn vinga_database_describe, vinga_database_describe_start, vinga_database_describe_cont
        (cluster: Cluster, name: Text, result: Out<Handle<ResultSet>>) = describe;
    fn vinga_database_list, vinga_database_list_start, vinga_database_list_cont
        (cluster: Cluster, result: Out<Handle<ResultSet>>) = list;
}
