//! Rows of a statement that continues when their keys exist already: `INSERT IGNORE`, `REPLACE`, `ON DUPLICATE KEY
//! UPDATE`.
//!
//! The server wants to know of each row at once whether it was inserted. This would cost a round trip for each row, so
//! rows are *deferred*: the server treats each as inserted, they are sent together, and those that turn out to be
//! duplicates are reported to it then (`deferred_rows.cc` in the plugin), in their order.
//!
//! Invariant: no two deferred rows have the same value of any unique key. So the outcome of one does not depend on
//! another of the same batch, and all of them can be tried before any duplicate is handled: handling a duplicate
//! removes rows with its keys, or changes them without changing their keys.
//!
//! Rows that conflict by their primary keys are also read and locked together, so that they are at hand when the
//! duplicates are handled. They are valid until the statement changes them, which [`Session::has_changed`] reports.

use super::Cursor;
use super::kept_rows::{Kept, KeptRows};
use crate::auto_increment::ValueRequest;
use crate::failure::{Failure, Result};
use crate::row_name::{RowName, RowSet};
use crate::session::Session;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use vinga::{Lock, OperationKind};

/// Maximum number of rows that are sent together.
const ROWS_MAX: usize = 1024;
/// Maximum size of these rows in bytes.
const BYTES_MAX: usize = 256 * 1024;

/// Result of deferring a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deferral {
    /// The row waits.
    Done,
    /// The row waits, and all waiting rows must be sent now.
    Full,
    /// The row does not wait, as a waiting row has one of its keys. The waiting rows must be sent first.
    Conflict,
}

/// The deferred rows of a cursor, and the duplicates among those that were sent.
#[derive(Default)]
pub struct DeferredRows {
    images: Vec<u8>,
    places: Vec<Range<usize>>,
    /// The unique keys of these rows.
    names: RowSet,
    /// The duplicates: the number of the row, and which of the server's keys existed.
    duplicates: Vec<(usize, usize)>,
    /// Rows that conflict with these by the primary key.
    in_the_way: KeptRows,
}

impl DeferredRows {
    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.images.clear();
        self.places.clear();
        self.names.clear();
        self.duplicates.clear();
        self.in_the_way.clear();
    }
}

impl Cursor {
    /// Takes a row that is to be inserted with others.
    ///
    /// # Safety
    /// `record` is a record of this table, whose pointers point to values.
    ///
    /// # Errors
    /// If the record is not a valid row.
    pub unsafe fn defer(&mut self, session: &mut Session, record: &[u8]) -> Result<Deferral> {
        let hidden = self.new_hidden_key(session)?;
        let plan = &self.table.plan;
        let deferred = &mut self.deferred;
        let begin = deferred.images.len();
        // SAFETY: as the caller promises.
        let written =
            unsafe { plan.write_image(record, hidden, &session.node().server, &mut deferred.images) };
        if let Err(failure) = written {
            deferred.images.truncate(begin);
            return Err(failure);
        }
        let mut names = Vec::new();
        plan.unique_keys(&deferred.images[begin..], |key, bytes| names.push(RowName::new(key as u32, bytes)));
        if names.iter().any(|name| deferred.names.contains(name)) {
            deferred.images.truncate(begin);
            return Ok(Deferral::Conflict);
        }
        deferred.names.extend(names);
        deferred.places.push(begin..deferred.images.len());
        let is_full = deferred.places.len() >= ROWS_MAX || deferred.images.len() >= BYTES_MAX;
        Ok(if is_full { Deferral::Full } else { Deferral::Done })
    }

    /// Sends the deferred rows; returns how many were duplicates. With `locks_rows` the rows that conflict by their
    /// primary keys are locked. For a failure that concerns one row, the second value is the number of that row.
    pub fn send_deferred(
        &mut self,
        session: &mut Session,
        locks_rows: bool,
    ) -> (Result<usize>, Option<usize>) {
        let mut deferred = std::mem::take(&mut self.deferred);
        deferred.names.clear();
        let sent = self.try_deferred(session, &mut deferred);
        let sent = match sent {
            Ok(()) if locks_rows => {
                self.lock_duplicates(session, &mut deferred).map_err(|failure| (failure, None))
            }
            sent => sent,
        };
        let count = deferred.duplicates.len();
        self.deferred = deferred;
        match sent {
            Ok(()) => (Ok(count), None),
            Err((failure, row)) => (Err(failure), row),
        }
    }

    fn try_deferred(
        &self,
        session: &mut Session,
        deferred: &mut DeferredRows,
    ) -> std::result::Result<(), (Failure, Option<usize>)> {
        let handle = self.table.table(session).map_err(|failure| (failure, None))?;
        // Changes that wait go with the same request.
        let has_changed_before = session.has_changed_rows() || session.has_pending();
        let refused = Cell::new(None);
        let executed = session.execute_repeatedly(|session| {
            let mut numbers = Vec::with_capacity(deferred.places.len());
            for (at, place) in deferred.places.iter().enumerate() {
                let image = &deferred.images[place.clone()];
                let number = session.define_alone(handle, OperationKind::Insert, &[], image);
                numbers.push(number.inspect_err(|_| refused.set(Some(at)))?);
            }
            Ok(numbers)
        });
        let numbers = executed.map_err(|failure| (failure, refused.get()))?.defined;
        let mut added = 0;
        for (at, number) in numbers.into_iter().enumerate() {
            match session.outcome_alone(&self.table, number) {
                Ok(None) => added += 1,
                Ok(Some(key)) => deferred.duplicates.push((at, key)),
                Err(failure) => return Err((failure, Some(at))),
            }
        }
        self.table.add_rows(added);
        if added == 0 && !has_changed_before {
            session.note_refusals();
        }
        Ok(())
    }

    /// Locks and keeps the rows that conflict by the primary key.
    fn lock_duplicates(&mut self, session: &mut Session, deferred: &mut DeferredRows) -> Result<()> {
        let layout = self.table.plan.layout();
        let primary = self.table.plan.primary();
        let of_primary = deferred.duplicates.iter().filter(|(_, key)| *key == primary);
        let keys: Vec<Box<[u8]>> = of_primary
            .map(|(at, _)| layout.key_of(&deferred.images[deferred.places[*at].clone()]).as_ref().into())
            .collect();
        if keys.is_empty() {
            return Ok(());
        }
        session.remember_changes();
        let whole = self.table.projection(&self.table.plan.places(), None);
        let rows = self.read_keys(session, &whole, &keys, Lock::Exclusive)?;
        for (key, row) in keys.iter().zip(rows) {
            if let Some(row) = row {
                deferred.in_the_way.keep(self.name_of(key), &whole, &row);
            }
        }
        Ok(())
    }

    /// Puts a duplicate among the rows that were sent last into a record: returns the number of the row, and which of
    /// the server's keys existed. `None` if there are no more.
    ///
    /// # Errors
    /// If the row is not well-formed.
    pub fn duplicate_row(&mut self, at: usize, record: &mut [u8]) -> Result<Option<(usize, usize)>> {
        let Some(&(row, key)) = self.deferred.duplicates.get(at) else { return Ok(None) };
        self.table.plan.read_image(&self.deferred.images[self.deferred.places[row].clone()], record)?;
        Ok(Some((row, key)))
    }

    /// Shows the row that conflicts with a duplicate by the primary key; false if its current state is not at hand.
    ///
    /// # Errors
    /// If the row is not well-formed, or can't be read from the temporary file.
    pub fn show_row_in_the_way(&mut self, session: &Session, at: usize, record: &mut [u8]) -> Result<bool> {
        let Some(&(row, key)) = self.deferred.duplicates.get(at) else { return Ok(false) };
        if key != self.table.plan.primary() {
            return Ok(false);
        }
        let image = &self.deferred.images[self.deferred.places[row].clone()];
        let name = self.name_of(&self.table.plan.layout().key_of(image));
        if session.has_changed(name) {
            return Ok(false);
        }
        self.begin_copies(Arc::clone(&self.projection));
        match self.deferred.in_the_way.get(name, &mut self.rows)? {
            Kept::Row(projection) => {
                self.rows_projection = projection;
                self.show_copy(0..self.rows.len(), record)?;
                Ok(true)
            }
            Kept::Gone | Kept::Unknown => Ok(false),
        }
    }

    /// Ends the handling of the rows that were sent.
    pub fn end_deferred(&mut self) {
        self.deferred.clear();
    }

    /// Whether rows wait to be sent.
    pub fn has_deferred(&self) -> bool {
        !self.deferred.places.is_empty()
    }

    /// The primary key of a new row of a table that has a hidden one; 0 for other tables.
    pub(super) fn new_hidden_key(&self, session: &mut Session) -> Result<u64> {
        match self.table.plan.has_hidden_key() {
            true => Ok(self.table.hidden_keys.take(session, &ValueRequest::one())?.0),
            false => Ok(0),
        }
    }
}
