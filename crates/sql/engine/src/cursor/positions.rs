//! Positions of rows, by which the server asks for them again.

use super::kept_rows::Kept;
use super::{Cursor, table_of};
use crate::failure::Result;
use crate::plan::Projection;
use crate::row_name::RowName;
use crate::session::{Given, RowLock, Session};
use crate::table::OpenTable;
use std::sync::Arc;
use vinga::Lock;

/// Maximum number of rows that are read together if the requested one was not kept.
const AHEAD: usize = 512;

impl Cursor {
    /// Size of a position in bytes: an encoded primary key, after its length if that varies, padded with zeros. So two
    /// positions are equal if and only if they belong to the same row.
    pub fn position_bytes(table: &OpenTable) -> usize {
        table.plan.key_bytes_max() + if table.plan.has_fixed_key() { 0 } else { 2 }
    }

    /// Writes the position of a record. Keeps the row if it was read last, as the server may ask for it.
    ///
    /// # Safety
    /// `record` is a record of this table; it was read last if the table has no primary key of its own.
    ///
    /// # Errors
    /// If it has none.
    pub unsafe fn position(&mut self, session: &mut Session, record: &[u8], out: &mut [u8]) -> Result<()> {
        session.remember_changes();
        self.key.clear();
        let server = session.node().server;
        // SAFETY: as the caller promises.
        unsafe { self.key_of_record(record, &server)? };
        out.fill(0);
        if self.table.plan.has_fixed_key() {
            out[..self.key.len()].copy_from_slice(&self.key);
        } else {
            out[..2].copy_from_slice(&(self.key.len() as u16).to_le_bytes());
            out[2..2 + self.key.len()].copy_from_slice(&self.key);
        }
        let mut kept = std::mem::take(&mut self.kept);
        match self.shown_row() {
            // The contents of the record may come from elsewhere, such as a join buffer.
            Some((projection, row)) if *projection.key_of(&self.table.plan, row)? == *self.key => {
                kept.keep(self.name_of(&self.key), projection, row);
            }
            _ => kept.note_key(&self.key),
        }
        self.kept = kept;
        Ok(())
    }

    pub(super) fn name_of(&self, key: &[u8]) -> RowName {
        RowName::new(self.table.number(), key)
    }

    /// Shows the row at a position: the one that was read when the server asked for its position, unless the statement
    /// has changed it since.
    ///
    /// # Errors
    /// If the row could not be read.
    pub fn read_position(
        &mut self,
        session: &mut Session,
        position: &[u8],
        lock: Lock,
        record: &mut [u8],
    ) -> Result<bool> {
        self.key.clear();
        self.key.extend_from_slice(position_key(&self.table, position));
        let name = self.name_of(&self.key);
        if session.has_changed(name) {
            return self.read_row(session, lock, record);
        }
        if let Some(is_there) = self.show_kept(name, record)? {
            return Ok(is_there);
        }
        self.read_ahead(session, lock)?;
        match self.show_kept(name, record)? {
            Some(is_there) => Ok(is_there),
            None => self.read_row(session, lock, record),
        }
    }

    /// Shows a kept row; `None` if it was not kept, or lacks columns that are used now; false if it does not exist.
    fn show_kept(&mut self, name: RowName, record: &mut [u8]) -> Result<Option<bool>> {
        self.begin_copies(Arc::clone(&self.projection));
        match self.kept.get(name, &mut self.rows)? {
            Kept::Row(projection) if projection.covers(&self.columns) => {
                self.rows_projection = projection;
                self.show_copy(0..self.rows.len(), record)?;
                Ok(Some(true))
            }
            Kept::Gone => Ok(Some(false)),
            Kept::Row(_) | Kept::Unknown => Ok(None),
        }
    }

    /// Reads and keeps the rows that the server will ask for next, as far as their positions are known: among them the
    /// row with `self.key`, if its position is known.
    fn read_ahead(&mut self, session: &mut Session, lock: Lock) -> Result<()> {
        let mut kept = std::mem::take(&mut self.kept);
        let keys = kept.upcoming(&self.key, AHEAD).to_vec();
        if keys.len() > 1 {
            let projection = Arc::clone(&self.projection);
            let rows = self.read_keys(session, &projection, &keys, lock);
            for (key, row) in keys.iter().zip(rows?) {
                match row {
                    Some(row) => kept.keep(self.name_of(key), &projection, &row),
                    None => kept.keep_gone(self.name_of(key)),
                }
            }
        }
        self.kept = kept;
        Ok(())
    }

    /// Reads rows by their primary keys with one request; changes of the transaction that wait are sent with it.
    pub(super) fn read_keys(
        &self,
        session: &mut Session,
        projection: &Projection,
        keys: &[Box<[u8]>],
        lock: Lock,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let row_lock = RowLock { lock, wait: self.wait };
        let handle = table_of(&self.table, projection, session)?;
        let executed = session.execute_repeatedly(|session| {
            let numbers = keys.iter().map(|key| session.define_locked(handle, row_lock, key));
            numbers.collect::<Result<Vec<_>>>()
        })?;
        let row_of = |number| match (session.locked_row(number, row_lock)?, &executed.repeats) {
            (Given::Row(row), _) => Ok(Some(row.to_vec())),
            (Given::NoRow | Given::NotLocked(_), None) => Ok(None),
            // As in `read_row_with_changes`.
            (Given::NoRow | Given::NotLocked(_), Some(failure)) => Err(failure.clone().doomed()),
        };
        executed.defined.iter().copied().map(row_of).collect()
    }
}

fn position_key<'a>(table: &OpenTable, position: &'a [u8]) -> &'a [u8] {
    if table.plan.has_fixed_key() {
        return position;
    }
    let length = usize::from(u16::from_le_bytes([position[0], position[1]]));
    &position[2..2 + length.min(position.len() - 2)]
}
