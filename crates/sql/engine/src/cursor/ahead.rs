//! Rows that are read before the server asks for them, because it is likely to (`read_ahead.cc` in the plugin).
//!
//! They are a batch of keys. Later changes by the statement itself are known ([`Session::has_changed`]); the caller
//! reads such a row again. Changes by others do not matter: a row that was read without a lock was committed while the
//! statement ran, like any other, and a row with a lock can't be changed by others.

use super::{Cursor, Source, put_row};
use crate::failure::{Failure, Result};
use crate::plan::Projection;
use crate::session::Session;
use vinga::Lock;

/// Result of asking for a row that was read ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ahead {
    /// The row was shown.
    Row,
    /// There is no such row.
    NoRow,
    /// The statement has changed the row since then.
    Changed,
}

impl Cursor {
    /// Reads all rows of the batch, to be asked for later.
    ///
    /// # Errors
    /// If the rows could not be read.
    pub fn run_ahead(&mut self, session: &mut Session, lock: Lock) -> Result<()> {
        session.remember_changes();
        self.ahead_shown.clear();
        self.run_batch(session, lock)?;
        self.ahead_shown.resize(self.batch_len(), false);
        Ok(())
    }

    /// Shows a row of the batch.
    ///
    /// # Errors
    /// If the row could not be read.
    pub fn row_ahead(&mut self, session: &mut Session, at: usize, record: &mut [u8]) -> Result<Ahead> {
        if !self.show_of_batch(session, at, record)? {
            return Ok(Ahead::NoRow);
        }
        if let Some(shown) = self.ahead_shown.get_mut(at) {
            *shown = true;
        }
        let Some((projection, row)) = self.shown_row() else { return Ok(Ahead::Changed) };
        let key = projection.key_of(&self.table.plan, row)?;
        Ok(if session.has_changed(self.name_of(&key)) { Ahead::Changed } else { Ahead::Row })
    }

    /// Puts a row of the batch into a record, if the statement has not changed it; the row that was shown last stays
    /// the last one.
    ///
    /// # Errors
    /// If the row is not well-formed.
    pub fn peek_ahead(&self, session: &Session, at: usize, record: &mut [u8]) -> Result<bool> {
        let Some((projection, row)) = self.bytes_of_batch(session, at)? else { return Ok(false) };
        let key = projection.key_of(&self.table.plan, row)?;
        if session.has_changed(self.name_of(&key)) {
            return Ok(false);
        }
        put_row(&self.table, projection, &mut 0, row, record)?;
        Ok(true)
    }

    fn bytes_of_batch(&self, session: &Session, at: usize) -> Result<Option<(&Projection, &[u8])>> {
        let Some(place) = self.places.get(at).cloned().flatten() else { return Ok(None) };
        if self.batch_is_copied {
            return Ok(self.rows.get(place).map(|row| (&*self.rows_projection, row)));
        }
        let Some(reads) = &self.reads else { return Ok(None) };
        let row =
            reads.batch.bytes(place.start).map_err(|error| -> Failure { session.node().failure(&error) })?;
        Ok(row.map(|row| (&*reads.projection, row)))
    }

    /// Releases the locks of rows of the batch that were not asked for.
    pub fn unlock_ahead(&mut self, session: &mut Session) {
        if self.batch_is_copied {
            for (hold, shown) in self.holds.iter().zip(&self.ahead_shown) {
                if let (Some(operation), false) = (hold.operation, shown) {
                    session.unlock(operation);
                }
            }
        }
        self.ahead_shown.clear();
    }

    /// Puts a row that the open scan has already received into a record: the one at `place`, or with `None` the one
    /// that [`Cursor::next`] would show. Returns the place behind it; `None` if no more rows have been received.
    ///
    /// # Errors
    /// If the row is not well-formed.
    pub fn peek(&self, place: Option<usize>, record: &mut [u8]) -> Result<Option<usize>> {
        let Some(open) = &self.scan else { return Ok(None) };
        let found = match &open.source {
            Source::Plain { rows, offset, .. } => {
                let at = rows.as_ref().and_then(|rows| rows.ranged_at(place.unwrap_or(*offset)));
                at.map(|(row, _, next)| (row, next))
            }
            Source::Locked { rows, next, .. } => {
                let at = place.unwrap_or(*next);
                rows.as_ref().and_then(|rows| rows.bytes(at)).map(|row| (row, at + 1))
            }
        };
        let Some((row, behind)) = found else { return Ok(None) };
        put_row(&self.table, &open.projection, &mut 0, row, record)?;
        Ok(Some(behind))
    }
}
