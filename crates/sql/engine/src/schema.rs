//! What a session's statements do to tables as a whole: they are made, dropped, given another name, emptied, and found.

use crate::auto_increment::Counter;
use crate::definition::{Description, OWN_DATABASE, split_attachment};
use crate::failure::{Failure, Result, ha};
use crate::session::Session;
use crate::waiting::Waiter;
use std::future::Future;
use std::sync::Arc;
use vinga::ErrorCode;
use vinga::blocking::Cluster;

/// How much longer a change of a table may take than other things: as long as the data nodes wait for a SQL node that does
/// not say that it has forgotten the old definition.
const CHANGE_MS: u64 = 10_000;

fn failure(session: &Session, error: &vinga::Error) -> Failure {
    let failure = session.node().failure(error);
    if error.code() == ErrorCode::NoSuchTable {
        return Failure { number: ha::NO_SUCH_TABLE, ..failure };
    }
    failure
}

/// Has a change carried out, bounded. A kill does not end that: a statement that renames several tables would be left
/// between two of them, and nobody would know whether the last change was made.
pub(crate) fn carry_out<T, F: Future<Output = vinga::Result<T>>>(
    session: &mut Session,
    change: impl FnOnce(Cluster) -> F,
) -> Result<T> {
    let cluster = session.cluster()?.clone();
    let node = Arc::clone(session.node());
    let waiter = Arc::new(Waiter::default());
    node.watch(&waiter);
    let longest = node.wait_max_ms() + CHANGE_MS;
    match waiter.run(&cluster, longest, change(cluster.clone())).output {
        Ok(done) => done.map_err(|error| failure(session, &error)),
        Err(_) => Err(Failure::timed_out(node.connectstring(), longest)),
    }
}

/// Makes a table.
///
/// # Errors
/// What is not allowed, not supported, or went wrong.
pub fn create_table(session: &mut Session, description: &Description) -> Result<()> {
    let definition = description.to_definition()?;
    let table =
        carry_out(session, |cluster| async move { cluster.as_async().create_table(definition).await })?;
    if description.auto_increment > 1 {
        Counter::new(table.core().birth().0).move_to(session, description.auto_increment)?;
    }
    Ok(())
}

/// Drops a table.
///
/// # Errors
/// `NO_SUCH_TABLE`, or what went wrong.
pub fn drop_table(session: &mut Session, name: &str) -> Result<()> {
    carry_out(session, |cluster| async move { cluster.as_async().drop_table(name).await })
}

/// Gives a table another name.
///
/// # Errors
/// `NO_SUCH_TABLE`, `TABLE_EXISTS`, or what went wrong.
pub fn rename_table(session: &mut Session, from: &str, to: &str) -> Result<()> {
    carry_out(session, |cluster| async move { cluster.as_async().rename_table(from, to).await }).map(|_| ())
}

/// Removes all rows of a table, which is another table then.
///
/// # Errors
/// `NO_SUCH_TABLE`, or what went wrong.
pub fn truncate_table(session: &mut Session, name: &str) -> Result<()> {
    carry_out(session, |cluster| async move { cluster.as_async().truncate_table(name).await }).map(|_| ())
}

/// The server's image of a table's definition.
///
/// # Errors
/// `NO_SUCH_TABLE`, that it has none, or what went wrong.
pub fn image_of(session: &mut Session, name: &str) -> Result<Vec<u8>> {
    let table = session.describe(name)?;
    match split_attachment(&table.definition().attachment) {
        Some((_, image)) => Ok(image.to_vec()),
        None => Err(Failure::unsupported(format!(
            "table {name} was not made by a SQL node and can't be used by one yet"
        ))),
    }
}

/// The names of the tables of a database that users see.
///
/// # Errors
/// If the data nodes can't be asked.
pub fn table_names(session: &mut Session, database: &str) -> Result<Vec<String>> {
    let cluster = session.cluster()?.clone();
    let names = session.wait(cluster.as_async().tables())?.map_err(|error| failure(session, &error))?;
    let visible = names.iter().filter_map(|name| {
        let (of, table) = name.split_once('.')?;
        (of == database && of != OWN_DATABASE && !table.starts_with('$')).then(|| table.to_owned())
    });
    Ok(visible.collect())
}
