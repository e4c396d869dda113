//! Statements that concern whole tables: create, drop, rename, truncate, and look up.

use crate::auto_increment::{Counter, Name};
use crate::definition::{Description, OWN_DATABASE};
use crate::failure::{Failure, Result, ha};
use crate::fences;
use crate::native_tables;
use crate::session::Session;
use crate::waiting::Waiter;
use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use vinga::blocking::Cluster;
use vinga::{ErrorCode, Table};

/// How much longer a schema change may take than other requests, in ms: as long as the data nodes wait for a SQL node
/// that does not confirm that it has forgotten the old definition.
const CHANGE_MS: u64 = 10_000;

/// The beginning of the name under which the server keeps an old table until the new one has replaced it.
pub(crate) const BACKUP_PREFIX: &str = "#sql-backup";

/// How often, and with which pauses, a table is looked up while it is between two names.
const SWAP_ATTEMPTS: u32 = 20;
const SWAP_PAUSE: Duration = Duration::from_millis(20);

fn failure(session: &Session, error: &vinga::Error) -> Failure {
    let failure = session.node().failure(error);
    if error.code() == ErrorCode::NoSuchTable {
        return Failure { number: ha::NO_SUCH_TABLE, ..failure };
    }
    failure
}

/// Executes a change, with a time limit. A kill does not end it: a statement that renames several tables would be left
/// between two of them, and it would not be known whether the last change was made.
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
        Err(_) => Err(node.timed_out(&cluster, longest)),
    }
}

/// Creates a table.
///
/// # Errors
/// If something is not allowed or not supported, or the request failed.
pub fn create_table(session: &mut Session, description: &Description) -> Result<()> {
    let definition = description.to_definition()?;
    ensure_database(session, description)?;
    let table =
        carry_out(session, |cluster| async move { cluster.as_async().create_table(definition).await })?;
    if description.auto_increment > 1 {
        let name = Name { birth: table.core().birth().0, is_of_hidden_key: false };
        Counter::of(session.node(), name).begin_at(session, description.auto_increment)?;
    }
    Ok(())
}

/// Creates a table's database at the data nodes, with its local options, if they do not know it.
fn ensure_database(session: &mut Session, description: &Description) -> Result<()> {
    let Some((name, _)) = description.name.split_once('.') else { return Ok(()) };
    let cluster = session.cluster()?.clone();
    let known = session.wait(cluster.as_async().database(name))?;
    if !known.is_err_and(|error| error.code() == ErrorCode::NoSuchDatabase) {
        return Ok(());
    }
    let options = description.database_options.as_slice();
    carry_out(session, |cluster| async move {
        match cluster.as_async().create_database(name, options).await {
            Err(error) if error.code() == ErrorCode::DatabaseExists => Ok(()),
            made => made,
        }
    })
}

/// Drops a database, if the data nodes know it.
///
/// # Errors
/// If it contains tables, or the request failed.
pub fn drop_database(session: &mut Session, name: &str) -> Result<()> {
    let node = session.node();
    node.sharing.wait(Duration::from_millis(node.wait_max_ms()));
    carry_out(session, |cluster| async move {
        match cluster.as_async().drop_database(name).await {
            Err(error) if error.code() == ErrorCode::NoSuchDatabase => Ok(()),
            dropped => dropped,
        }
    })
    .inspect_err(|failure| {
        if failure.number == ErrorCode::DatabaseNotEmpty as i32 {
            session.node().sharing.keep(name);
        }
    })
}

/// Drops a table.
///
/// # Errors
/// `NO_SUCH_TABLE`, or the failure of the request.
pub fn drop_table(session: &mut Session, name: &str) -> Result<()> {
    carry_out(session, |cluster| async move { cluster.as_async().drop_table(name).await })?;
    fences::forget(session, name);
    Ok(())
}

/// Renames a table.
///
/// # Errors
/// `NO_SUCH_TABLE`, `TABLE_EXISTS`, or the failure of the request.
pub fn rename_table(session: &mut Session, from: &str, to: &str) -> Result<()> {
    match carry_out(session, |cluster| async move { cluster.as_async().rename_table(from, to).await }) {
        Ok(_) => fences::follow_rename(session, from, to),
        Err(failure) => {
            // The statement has been abandoned.
            fences::lift_all(session);
            return Err(failure);
        }
    }
    Ok(())
}

/// Removes all rows of a table, by replacing it with another, empty table.
///
/// # Errors
/// `NO_SUCH_TABLE`, or the failure of the request.
pub fn truncate_table(session: &mut Session, name: &str) -> Result<()> {
    carry_out(session, |cluster| async move { cluster.as_async().truncate_table(name).await }).map(|_| ())
}

/// The definition of a table for the server: see [`native_tables::own_part`].
///
/// # Errors
/// `NO_SUCH_TABLE`, the reason why SQL can't represent it, or the failure of the request.
pub fn definition_of(session: &mut Session, name: &str) -> Result<Vec<u8>> {
    let table = describe_patiently(session, name)?;
    native_tables::own_part(table.definition()).map(Cow::into_owned).map_err(Failure::unsupported)
}

/// Describes a table. If it does not exist it may be between two names: an `ALTER` that copies moves the old table away
/// before the new one takes its place.
fn describe_patiently(session: &mut Session, name: &str) -> Result<Table> {
    let mut attempts = 0;
    loop {
        let found = session.describe(name);
        let is_missing = found.as_ref().is_err_and(|failure| failure.number == ha::NO_SUCH_TABLE);
        if !is_missing || attempts == SWAP_ATTEMPTS || !is_being_swapped(session, name)? {
            return found;
        }
        attempts += 1;
        thread::sleep(SWAP_PAUSE);
    }
}

fn is_being_swapped(session: &mut Session, name: &str) -> Result<bool> {
    let Some((database, _)) = name.split_once('.') else { return Ok(false) };
    let put_away = format!("{database}.{BACKUP_PREFIX}");
    Ok(all_names(session)?.iter().any(|other| other.starts_with(&put_away)))
}

fn all_names(session: &mut Session) -> Result<Vec<String>> {
    let cluster = session.cluster()?.clone();
    session.wait(cluster.as_async().tables())?.map_err(|error| failure(session, &error))
}

/// The names of the tables of a database that users see.
///
/// # Errors
/// If the data nodes can't be reached.
pub fn table_names(session: &mut Session, database: &str) -> Result<Vec<String>> {
    let mut visible = Vec::new();
    for name in all_names(session)? {
        let Some((of, table)) = name.split_once('.') else { continue };
        if of == database && of != OWN_DATABASE && !table.starts_with('$') && is_sayable(session, &name)? {
            visible.push(table.to_owned());
        }
    }
    Ok(visible)
}

/// Whether SQL can represent a table. If its definition can't be read just now it is listed: a statement that uses it
/// gets the reason.
fn is_sayable(session: &mut Session, name: &str) -> Result<bool> {
    let node = Arc::clone(session.node());
    let (known, moment) = node.sayable.find(name);
    if let Some(known) = known {
        return Ok(known);
    }
    match session.describe(name) {
        Ok(table) => {
            let is_sayable = native_tables::own_part(table.definition()).is_ok();
            node.sayable.learn(name, is_sayable, moment);
            Ok(is_sayable)
        }
        Err(failure) if failure.number == ha::ABORTED_BY_USER => Err(failure),
        Err(failure) => Ok(failure.number != ha::NO_SUCH_TABLE),
    }
}
