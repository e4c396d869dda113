//! Statements that concern whole tables: create, drop, rename, truncate, and look up.

use crate::auto_increment::gone::{self, Going};
use crate::auto_increment::{Counter, Name};
use crate::copying;
use crate::definition::{Description, OWN_DATABASE};
use crate::failure::{Failure, Result, ha};
use crate::native_tables;
use crate::node::Node;
use crate::session::Session;
use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use vinga::ErrorCode;
use vinga::blocking::Cluster;

fn failure(node: &Node, error: &vinga::Error) -> Failure {
    let failure = node.failure(error);
    if error.code() == ErrorCode::NoSuchTable {
        return Failure { number: ha::NO_SUCH_TABLE, ..failure };
    }
    failure
}

/// Executes a change, with a time limit. A kill does not end it: a statement that renames several tables would be left
/// between two of them, and it would not be known whether the last change was made. That is not known either when the
/// time is over: the data nodes carry out what waits there, for others' transactions or for a data node that leaves.
pub(crate) fn carry_out<T, F: Future<Output = vinga::Result<T>>>(
    session: &mut Session,
    change: impl FnOnce(Cluster) -> F,
) -> Result<T> {
    let cluster = session.cluster()?.clone();
    let is_connected = || cluster.endpoints().iter().any(|endpoint| endpoint.is_connected);
    match within_time(session.node(), &cluster, change(cluster.clone())) {
        // What was under way on a connection that was lost has been answered. The rest was never sent.
        Err(late) if is_connected() => Err(late.of_commit()),
        Err(late) => Err(late),
        Ok(done) => done.map_err(|error| failure(session.node(), &error)),
    }
}

/// Executes a request over a connection of the pool that does nothing if its time is over, or does it once more.
pub(crate) fn carry_out_over<T>(
    node: &Node,
    cluster: &Cluster,
    request: impl Future<Output = vinga::Result<T>>,
) -> Result<T> {
    within_time(node, cluster, request)?.map_err(|error| failure(node, &error))
}

/// What a request was answered, or the failure that it has no answer within the time for changes.
fn within_time<T>(
    node: &Node,
    cluster: &Cluster,
    request: impl Future<Output = vinga::Result<T>>,
) -> Result<vinga::Result<T>> {
    node.run_to_the_end(cluster, node.change_max_ms(), request)
}

/// Creates a table.
///
/// # Errors
/// If something is not allowed or not supported, or the request failed.
pub fn create_table(session: &mut Session, description: &Description) -> Result<()> {
    let definition = description.to_definition()?;
    ensure_database(session, description)?;
    let (node, cluster) = (Arc::clone(session.node()), session.cluster()?.clone());
    node.leftovers.clear(&node, &cluster, &description.name)?;
    session.copying().note_copy(description, cluster.incarnation());
    let created =
        carry_out(session, |cluster| async move { cluster.as_async().create_table(definition).await });
    let table = created.inspect_err(|failure| {
        if copying::is_copy(&description.name) && copying::has_unknown_outcome(failure) {
            leave(session, &description.name);
        }
    })?;
    if description.auto_increment > 1 {
        let name = Name { birth: table.core().birth().0, is_of_hidden_key: false };
        let begun = Counter::of(session.node(), name).begin_at(session, description.auto_increment);
        return begun.inspect_err(|_| take_back(session, &description.name));
    }
    Ok(())
}

/// The statement that has created a table fails all the same: it leaves none behind.
fn take_back(session: &mut Session, name: &str) {
    if carry_out(session, |cluster| async move { cluster.as_async().drop_table(name).await }).is_err() {
        leave(session, name);
    }
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
    let Some(name) = session.copying().resolve_backup(name) else { return Ok(()) };
    let name = name.as_str();
    let going = Going::named(session, name);
    carry_out(session, |cluster| async move { cluster.as_async().drop_table(name).await }).inspect_err(
        |failure| {
            if failure.number != ha::NO_SUCH_TABLE {
                leave(session, name);
            }
        },
    )?;
    session.copying().note_dropped(name);
    gone::forget(session, going);
    Ok(())
}

/// A table that the current statement has created, or was to replace, could not be dropped: that is done later, as the
/// statement ends now.
fn leave(session: &mut Session, name: &str) {
    if let Some(which) = session.copying().which(name) {
        let node = Arc::clone(session.node());
        node.leftovers.add(&node, name, which);
    }
}

/// Renames a table. Three of the renames of a statement that copies a table are one change.
///
/// # Errors
/// `NO_SUCH_TABLE`, `TABLE_EXISTS`, or the failure of the request.
pub fn rename_table(session: &mut Session, from: &str, to: &str) -> Result<()> {
    if copying::is_backup(to) {
        return copying::put_away(session, from, to);
    }
    if copying::is_copy(from) {
        return copying::put_in_place(session, from, to);
    }
    if copying::is_backup(from) && copying::put_back(session, from) {
        return Ok(());
    }
    let renamed =
        carry_out(session, |cluster| async move { cluster.as_async().rename_table(from, to).await });
    if renamed.is_err() {
        // The statement has been abandoned.
        copying::lift_all(session);
    }
    renamed.map(|_| ())
}

/// Removes all rows of a table, by replacing it with another, empty table.
///
/// # Errors
/// `NO_SUCH_TABLE`, or the failure of the request.
pub fn truncate_table(session: &mut Session, name: &str) -> Result<()> {
    let going = Going::named(session, name);
    carry_out(session, |cluster| async move { cluster.as_async().truncate_table(name).await })?;
    gone::forget(session, going);
    Ok(())
}

/// The definition of a table for the server: see [`native_tables::own_part`].
///
/// # Errors
/// `NO_SUCH_TABLE`, the reason why SQL can't represent it, or the failure of the request.
pub fn definition_of(session: &mut Session, name: &str) -> Result<Vec<u8>> {
    let table = session.describe(name)?;
    native_tables::own_part(table.definition()).map(Cow::into_owned).map_err(Failure::unsupported)
}

fn all_names(session: &mut Session) -> Result<Vec<String>> {
    let cluster = session.cluster()?.clone();
    session.wait(cluster.as_async().tables())?.map_err(|error| failure(session.node(), &error))
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
