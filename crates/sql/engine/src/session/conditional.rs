//! Changes of rows that fulfil a condition when they are locked: see [`crate::cursor::Candidates`].

use super::Session;
use crate::failure::Result;
use crate::table::OpenTable;
use std::sync::Arc;
use vinga::{Error, ErrorCode, LockWait, OperationKind, OperationNumber, Table};

/// A change of any row that fulfils a condition.
#[derive(Clone, Copy, Debug)]
pub struct ChangeIf<'a> {
    /// An update, or a delete.
    pub kind: OperationKind,
    /// The program of an update.
    pub program: &'a [u8],
    /// The condition in the form for the data nodes; empty if there is none.
    pub filter: &'a [u8],
    /// The read before it locks the row even if that does not fulfil the condition.
    pub locks_all: bool,
    /// How long to wait for the lock.
    pub wait: LockWait,
}

/// Result of such a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// The row was changed.
    Yes,
    /// There is no such row, or it does not fulfil the condition.
    NotFound,
    /// A sum does not fit its column; the row is unchanged.
    Overflow,
}

impl Session {
    /// Defines a change, and a locking read of the row before the change if that is to be `seen`. An error of one of
    /// them undoes only that operation. [`Session::execute_reads`] sends them.
    ///
    /// # Errors
    /// If they can't be defined.
    pub fn define_change_if(
        &mut self,
        handle: &Table,
        seen: Option<&Table>,
        change: &ChangeIf<'_>,
        key: &[u8],
    ) -> Result<(Option<OperationNumber>, OperationNumber)> {
        // The results of those inserts, and of a second attempt at them, must not be mixed with these.
        if self.has_free_numbers() {
            self.flush()?;
        }
        let node = Arc::clone(&self.node);
        let failed = |error: Error| node.failure(&error);
        let transaction = self.transaction()?;
        transaction.set_lenient(true);
        let read = match seen {
            Some(table) => {
                let filter = if change.locks_all { &[][..] } else { change.filter };
                let kind = OperationKind::ReadExclusive;
                Some(
                    transaction
                        .define_encoded_if(table, kind, key, &[], filter, change.wait)
                        .map_err(failed)?,
                )
            }
            None => None,
        };
        let number = transaction
            .define_encoded_if(handle, change.kind, key, change.program, change.filter, change.wait)
            .map_err(failed)?;
        self.has_operations = true;
        self.has_changed = true;
        Ok((read, number))
    }

    /// The result of a change that was defined with [`Session::define_change_if`] and sent.
    ///
    /// # Errors
    /// If it failed.
    pub fn outcome_of_change(
        &self,
        table: &OpenTable,
        read: Option<OperationNumber>,
        number: OperationNumber,
    ) -> Result<Changed> {
        let result = |number| match (&self.committed, &self.transaction) {
            (Some(committed), _) => committed.result(number),
            (None, Some(transaction)) => transaction.result(number),
            (None, None) => Err(Error::new(ErrorCode::TransactionAborted)),
        };
        let read = match read.map_or(Ok(()), result) {
            // It is committed, so the change's own result rules. Whether the row differs, nobody can say any more.
            Err(error) if error.code() == ErrorCode::RowLost => Ok(()),
            read => read,
        };
        let Err(error) = read.and_then(|()| result(number)) else { return Ok(Changed::Yes) };
        match error.code() {
            ErrorCode::NoSuchRow | ErrorCode::ConditionFailed => Ok(Changed::NotFound),
            ErrorCode::NumericOverflow => Ok(Changed::Overflow),
            _ => Err(self.failure_alone(table, &error)),
        }
    }

    /// The row that such a read has returned.
    pub fn row_of_read(&self, read: OperationNumber) -> Option<&[u8]> {
        match &self.committed {
            Some(committed) => committed.row_bytes(read).ok()?,
            None => self.transaction.as_ref()?.row_bytes(read).ok()?,
        }
    }
}
