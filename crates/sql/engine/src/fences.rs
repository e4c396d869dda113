//! Write fences of tables whose rows a statement copies: meanwhile no other client may change them, so that none of its
//! changes is lost.
//!
//! A write fence begins before the first row is read. What ends it is the drop of the old table, or its rename (back to
//! its own name, when the statement failed late), or the end of the statement.

use crate::failure::Result;
use crate::schema::{BACKUP_PREFIX, carry_out};
use crate::session::Session;
use crate::table::OpenTable;
use vinga::Fence;

/// The write fences of a session: names of tables, `database.table`, and what holds others off.
#[derive(Default)]
pub struct Fences(Vec<(String, Fence)>);

impl Fences {
    fn take(&mut self, name: &str) -> Option<Fence> {
        let at = self.0.iter().position(|(fenced, _)| fenced == name)?;
        Some(self.0.swap_remove(at).1)
    }
}

/// Nobody else changes rows of this table from now on.
///
/// # Errors
/// That it has another definition by now, that others change it, or that the data nodes can't be asked.
pub fn fence(session: &mut Session, table: &OpenTable) -> Result<()> {
    let handle = table.table(session)?.clone();
    let fence = carry_out(session, |cluster| async move { cluster.as_async().fence_table(&handle).await })?;
    session.fences().0.push((table.name().to_owned(), fence));
    Ok(())
}

/// Others may change rows again, of all tables that this session has fenced.
pub fn lift_all(session: &mut Session) {
    for (_, fence) in std::mem::take(&mut session.fences().0) {
        lift(session, fence);
    }
}

fn lift(session: &mut Session, fence: Fence) {
    // If that can't be told the write fence goes with the connection.
    let _ = carry_out(session, |_| fence.lift());
}

/// A table has another name now. The write fence goes on if that is where the server keeps an old table.
pub fn follow_rename(session: &mut Session, from: &str, to: &str) {
    let Some(fence) = session.fences().take(from) else { return };
    if to.split_once('.').is_some_and(|(_, table)| table.starts_with(BACKUP_PREFIX)) {
        session.fences().0.push((to.to_owned(), fence));
    } else {
        lift(session, fence);
    }
}

/// A table is gone, and its write fence with it.
pub fn forget(session: &mut Session, name: &str) {
    if let Some(fence) = session.fences().take(name) {
        fence.gone();
    }
}
