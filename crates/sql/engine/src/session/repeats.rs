//! Statements that stand alone and lose their transaction with a data node, without being reported as failed.
//!
//! The client repeats a commit that is the first request of its transaction. Behind another one the server has seen
//! results, and the interface of storage engines has no way to make it repeat a statement. But nothing is lost
//!
//! - with a transaction of which nothing but refused changes (duplicates) was seen, if the next request fails: it is
//!   repeated in another transaction. So go a first locking read by primary key, a first `INSERT IGNORE`, and others
//!   that meet duplicates (`REPLACE`, `ON DUPLICATE KEY UPDATE`) until they have read the row that they have met;
//! - with a transaction that has only read rows, or has only been refused changes, if its end fails: there is nothing
//!   to be committed. Not if its locks had to last to its end, as those of the isolation levels above `READ COMMITTED`:
//!   that they have is known by the end only.

use super::Session;
use crate::failure::{Failure, Result};
use vinga::{Error, ErrorCode};

/// Operations that were defined and executed.
pub struct Executed<T> {
    /// What the definition has returned.
    pub defined: T,
    /// Why the first transaction was lost, if they were executed in another one, and something was seen of the first.
    pub repeats: Option<Failure>,
}

impl Session {
    /// Defines operations, and sends them; in another transaction if the first one is lost with a data node and nothing
    /// is lost with it.
    ///
    /// # Errors
    /// If a change failed, or the whole transaction.
    pub fn execute_repeatedly<T>(
        &mut self,
        define: impl Fn(&mut Session) -> Result<T>,
    ) -> Result<Executed<T>> {
        let may_repeat = self.may_repeat();
        let was_seen = self.has_operations;
        let defined = define(self)?;
        match self.execute_reads() {
            Ok(()) => Ok(Executed { defined, repeats: None }),
            Err(failure) if may_repeat && failure.is_loss_of_a_node() => {
                self.is_lost = false;
                let defined = define(self)?;
                self.execute_reads()?;
                Ok(Executed { defined, repeats: was_seen.then_some(failure) })
            }
            Err(failure) => Err(failure),
        }
    }

    /// Whether what is sent next may be sent again in another transaction.
    pub(super) fn may_repeat(&self) -> bool {
        self.costs_nothing() && !self.has_locked && self.pending.is_empty()
    }

    /// Whether the transaction may have changed rows.
    pub fn has_changed_rows(&self) -> bool {
        self.has_changed
    }

    /// All changes of the transaction up to now were refused: also those that were sent with a request of others.
    pub fn note_refusals(&mut self) {
        self.has_changed = false;
    }

    /// Whether the statement is alone in its transaction, and has changed nothing up to now.
    pub(super) fn costs_nothing(&self) -> bool {
        self.stands_alone && !self.is_portioned && !self.is_lost && !self.has_changed
    }

    /// Whether the end of a transaction that costs nothing may fail in this way.
    pub(super) fn may_end_by(&self, error: &Error) -> bool {
        let is_loss = matches!(
            error.code(),
            ErrorCode::NodeFailure | ErrorCode::ConnectionLost | ErrorCode::UnknownOutcome
        );
        is_loss && !self.keeps_locks
    }
}
