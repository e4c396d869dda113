//! Rows that are read before the server asks for them, as it is likely to (`read_ahead.cc` in the plugin).
//!
//! They are a batch of keys. What the statement changes afterwards is known ([`Session::has_changed`]); such a row is
//! read once more by whoever asks for it. Changes of others do not matter: a row that was read without a lock is one
//! that was committed while the statement ran, as any other, and one with a lock stays.

use super::{Cursor, Source, put_row};
use crate::failure::{Failure, Result};
use crate::plan::Projection;
use crate::session::Session;
use vinga::Lock;

/// What has come of a row that was read ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ahead {
    /// It is shown.
    Row,
    /// There is none.
    NoRow,
    /// The statement has changed it since.
    Changed,
}

impl Cursor {
    /// Reads all rows of the batch, to be asked for later.
    ///
    /// # Errors
    /// Why nothing was read.
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
    /// Why it was not read.
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

    /// Puts a row of the batch into a record, if it is as it was read; the row that was shown last stays the last one.
    ///
    /// # Errors
    /// As for a row of a data node.
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

    /// Lets go of the rows of the batch that nobody has asked for.
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

    /// Puts a row that the open scan has brought already into a record: the one at `place`, at first the one that
    /// [`Cursor::next`] would show. The place behind it; `None` if no more have come.
    ///
    /// # Errors
    /// As for a row of a data node.
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
