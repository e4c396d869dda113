//! Write fences of tables whose rows a statement copies: no other client may change the rows during that time, so that
//! no change is lost.
//!
//! A write fence begins before the first row is read. It ends when the old table is dropped or renamed (back to its own
//! name, if the statement failed late), or when the statement ends.

use crate::failure::Result;
use crate::schema::{BACKUP_PREFIX, carry_out};
use crate::session::Session;
use crate::table::OpenTable;
use vinga::Fence;

/// The write fences of a session: names of tables, `database.table`, and the fences of the client.
#[derive(Default)]
pub struct Fences(Vec<(String, Fence)>);

impl Fences {
    fn take(&mut self, name: &str) -> Option<Fence> {
        let at = self.0.iter().position(|(fenced, _)| fenced == name)?;
        Some(self.0.swap_remove(at).1)
    }
}

/// Prevents all others from changing rows of this table from now on.
///
/// # Errors
/// If the definition of the table has changed, if others are changing it, or if the data nodes can't be reached.
pub fn fence(session: &mut Session, table: &OpenTable) -> Result<()> {
    let handle = table.table(session)?.clone();
    let fence = carry_out(session, |cluster| async move { cluster.as_async().fence_table(&handle).await })?;
    session.fences().0.push((table.name().to_owned(), fence));
    Ok(())
}

/// Ends the write fences of all tables of this session.
pub fn lift_all(session: &mut Session) {
    for (_, fence) in std::mem::take(&mut session.fences().0) {
        lift(session, fence);
    }
}

fn lift(session: &mut Session, fence: Fence) {
    // If the request can't be sent, the write fence ends with the connection.
    let _ = carry_out(session, |_| fence.lift());
}

/// Notes that a table was renamed. The write fence continues if the new name is that under which the server keeps an
/// old table.
pub fn follow_rename(session: &mut Session, from: &str, to: &str) {
    let Some(fence) = session.fences().take(from) else { return };
    if to.split_once('.').is_some_and(|(_, table)| table.starts_with(BACKUP_PREFIX)) {
        session.fences().0.push((to.to_owned(), fence));
    } else {
        lift(session, fence);
    }
}

/// Notes that a table was dropped, and its write fence with it.
pub fn forget(session: &mut Session, name: &str) {
    if let Some(fence) = session.fences().take(name) {
        fence.gone();
    }
}
