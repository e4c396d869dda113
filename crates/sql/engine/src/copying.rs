//! Statements that copy a table, as `ALTER TABLE` does for most changes.
//!
//! The server creates a new table under a name of its own, copies the rows, gives the old table a backup name, the new
//! one the name of the old one, and drops the backup. Carried out one after the other, a failure of the data nodes
//! between two of these steps would leave the table without its name: the server repairs that when it starts, and at
//! no other time. So the first rename is only noted here, and the second does all of it in one change of the data
//! nodes (`rename_copy`), which is carried out whole or not at all. Dropping the backup is nothing then, and so is
//! giving it its name back after a failure. What can't be dropped because the data nodes can't be reached is left to
//! [`crate::leftovers`].
//!
//! No other client may change the rows meanwhile. The *write fence* for that begins before the first row is read. It
//! ends when the new table has taken the old one's place, when the old one is dropped, or when the statement ends. If
//! it has ended before, because the connection was lost, the new table can't take the place: rows of the old one may
//! have changed since, and rows of the new one may be lost if the data nodes were restarted.

use crate::auto_increment::gone::{self, Going};
use crate::definition::{Description, split_own_part};
use crate::failure::{Failure, Result, ha};
use crate::leftovers::Which;
use crate::schema::{carry_out, carry_out_over};
use crate::session::Session;
use crate::table::OpenTable;
use vinga::{ErrorCode, Fence};

/// The beginnings of the server's names for the new table, and for the old one until the new one has replaced it.
const COPY_PREFIX: &str = "#sql-alter";
const BACKUP_PREFIX: &str = "#sql-backup";

/// What a session copies. All names are `database.table`.
#[derive(Default)]
pub struct Copying {
    /// The server's number of the statement.
    statement: u64,
    originals: Vec<Original>,
    copies: Vec<Copy>,
    /// Whether the last change was to drop a table that users see.
    has_dropped: bool,
}

/// A table that is copied.
struct Original {
    name: String,
    birth: u64,
    going: Going,
    /// `None` once it has ended.
    fence: Option<Fence>,
    /// The backup name that the server has given it, which the data nodes don't know.
    backup: Option<String>,
    /// Whether its copy has taken its place.
    is_replaced: bool,
}

/// A new table that is filled, under a name of the server's or, by `CREATE TABLE … SELECT`, under its own.
struct Copy {
    name: String,
    /// The server's version of its definition, which no other table has.
    version: Vec<u8>,
    /// The incarnation of the cluster in which it was created.
    incarnation: u64,
}

fn is_called(name: &str, prefix: &str) -> bool {
    name.split_once('.').is_some_and(|(_, table)| table.starts_with(prefix))
}

/// Whether it is a name of the server for a new table that is to replace another.
pub fn is_copy(name: &str) -> bool {
    is_called(name, COPY_PREFIX)
}

/// Whether it is a name of the server for an old table that is being replaced.
pub fn is_backup(name: &str) -> bool {
    is_called(name, BACKUP_PREFIX)
}

/// Whether a change that has failed may have been carried out, or may be yet.
pub fn has_unknown_outcome(failure: &Failure) -> bool {
    let unknown = [ErrorCode::UnknownOutcome, ErrorCode::NotOnDisk].map(|code| code as i32);
    unknown.contains(&failure.number) || failure.is_doomed
}

impl Copying {
    fn place_of(&self, name: &str) -> Option<usize> {
        self.originals.iter().position(|original| original.name == name)
    }

    fn place_of_backup(&self, name: &str) -> Option<usize> {
        self.originals.iter().position(|original| original.backup.as_deref() == Some(name))
    }

    /// Which table has this name, if it is one that the current statement has created or copies.
    pub fn which(&self, name: &str) -> Option<Which> {
        let copy = self.copies.iter().find(|copy| copy.name == name);
        let original = || self.originals.iter().find(|original| original.name == name);
        match copy {
            Some(copy) => Some(Which::Version(copy.version.clone())),
            None => original().map(|original| Which::Birth(original.birth)),
        }
    }

    /// Forgets what another statement has created.
    pub fn begin_statement(&mut self, statement: u64) {
        if self.statement != statement {
            self.statement = statement;
            self.copies.clear();
        }
    }

    /// Notes that a new table was requested.
    pub fn note_copy(&mut self, description: &Description, incarnation: u64) {
        let version = split_own_part(&description.attachment).map_or(&[][..], |(version, _)| version);
        self.copies.retain(|copy| copy.name != description.name);
        self.copies.push(Copy { name: description.name.clone(), version: version.to_vec(), incarnation });
    }

    /// The table that the server calls by this backup name; `None` if it has gone, as its copy has taken its place.
    /// Another name is that of a table.
    pub fn resolve_backup(&mut self, name: &str) -> Option<String> {
        let Some(place) = self.place_of_backup(name) else { return Some(name.to_owned()) };
        if self.originals[place].is_replaced {
            self.originals.swap_remove(place);
            return None;
        }
        Some(self.originals[place].name.clone())
    }

    /// Notes that a table was dropped, and its write fence with it.
    pub fn note_dropped(&mut self, name: &str) {
        self.has_dropped = !is_copy(name) && !is_backup(name);
        self.copies.retain(|copy| copy.name != name);
        if let Some(place) = self.place_of(name)
            && let Some(fence) = self.originals.swap_remove(place).fence
        {
            fence.gone();
        }
    }
}

/// Prevents all others from changing rows of this table from now on.
///
/// # Errors
/// If the definition of the table has changed, if others are changing it, or if the data nodes can't be reached.
pub fn fence(session: &mut Session, table: &OpenTable) -> Result<()> {
    let handle = table.table(session)?.clone();
    let (birth, going) = (handle.core().birth().0, Going::of(&handle));
    // A fence that comes too late is lifted at once: nothing is done then.
    let cluster = session.cluster()?.clone();
    let fence = carry_out_over(session.node(), &cluster, cluster.as_async().fence_table(&handle))?;
    session.copying().originals.push(Original {
        name: table.name().to_owned(),
        birth,
        going,
        fence: Some(fence),
        backup: None,
        is_replaced: false,
    });
    Ok(())
}

/// Ends the write fences of all tables of this session.
pub fn lift_all(session: &mut Session) {
    for original in std::mem::take(&mut session.copying().originals) {
        lift(session, original);
    }
}

fn lift(session: &mut Session, original: Original) {
    if let Some(fence) = original.fence {
        // If the request can't be sent, the write fence ends with the connection.
        let _ = carry_out(session, |_| fence.lift());
    }
}

/// Notes the backup name of an old table, whose copy is about to take its place.
///
/// # Errors
/// If the write fence has ended.
pub fn put_away(session: &mut Session, name: &str, backup: &str) -> Result<()> {
    let copying = session.copying();
    match copying.place_of(name) {
        Some(place) => {
            copying.originals[place].backup = Some(backup.to_owned());
            Ok(())
        }
        None => Err(copy_is_outdated(name)),
    }
}

/// Whether an old table that should get its name back still has it, or has been replaced: then there is nothing to do.
pub fn put_back(session: &mut Session, backup: &str) -> bool {
    let copying = session.copying();
    let Some(place) = copying.place_of_backup(backup) else { return false };
    let original = copying.originals.swap_remove(place);
    lift(session, original);
    true
}

/// Gives a new table its final name. If that is the name of the table that it is the copy of, it takes its place.
///
/// # Errors
/// `TABLE_DEF_CHANGED` if the copy may differ from what it was made of, `TABLE_EXISTS`, or the failure of the request.
pub fn put_in_place(session: &mut Session, copy: &str, name: &str) -> Result<()> {
    let Some(place) = session.copying().copies.iter().position(|known| known.name == copy) else {
        return recover(session, copy, name);
    };
    // Rows that were copied before a restart may be lost, whichever engine they come from.
    if session.copying().copies[place].incarnation != session.cluster()?.incarnation() {
        return Err(copy_is_outdated(name));
    }
    let mut original = session.copying().originals.pop();
    let fence = original.as_ref().and_then(|original| original.fence.as_ref());
    let renamed = carry_out(session, |cluster| async move {
        match fence {
            Some(fence) => cluster.as_async().rename_copy(copy, name, fence).await,
            None => cluster.as_async().rename_table(copy, name).await,
        }
    });
    let takes_place = original.as_ref().is_some_and(|original| original.name == name);
    match &renamed {
        Ok(_) => {
            session.copying().copies.swap_remove(place);
            if takes_place && let Some(original) = &mut original {
                original.fence.take().into_iter().for_each(Fence::gone);
                original.is_replaced = true;
                gone::forget(session, Some(original.going));
            }
        }
        Err(failure) if has_unknown_outcome(failure) => {
            // The server undoes the statement. A copy that has replaced its original has come to stay, but must not be
            // there beside it.
            if !takes_place && let Some(which) = session.copying().which(copy) {
                let node = session.node().clone();
                node.leftovers.add(&node, name, which);
            }
        }
        Err(_) => {}
    }
    session.copying().originals.extend(original);
    renamed.map(|_| ())
}

/// The server completes a statement that was interrupted when it was stopped. If the old table still has its name, its
/// rows may have changed since, so it stays, and the copy goes.
fn recover(session: &mut Session, copy: &str, name: &str) -> Result<()> {
    let has_dropped = std::mem::take(&mut session.copying().has_dropped);
    let renamed =
        carry_out(session, |cluster| async move { cluster.as_async().rename_table(copy, name).await });
    let is_taken = renamed.as_ref().is_err_and(|failure| failure.number == ha::TABLE_EXISTS);
    // If the server has just dropped the old table itself, this is another one.
    if is_taken && !has_dropped {
        let birth = |table: &vinga::Table| table.core().birth();
        if birth(&session.describe(name)?) < birth(&session.describe(copy)?) {
            return carry_out(session, |cluster| async move { cluster.as_async().drop_table(copy).await });
        }
    }
    renamed.map(|_| ())
}

#[cold]
fn copy_is_outdated(name: &str) -> Failure {
    let text = format!("table {name} may have changed while it was copied, as the connection was lost");
    Failure::new(ha::TABLE_DEF_CHANGED, text)
}
