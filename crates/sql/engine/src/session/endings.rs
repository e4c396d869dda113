//! Commit and rollback of transactions and statements.

use super::{Session, ended};
use crate::failure::{Failure, Result};
use crate::node::Node;
use crate::waiting::Waiter;
use std::future::Future;
use vinga::blocking::Cluster;
use vinga::{Committed, ErrorClass, OperationNumber};

impl Session {
    /// Commits, together with the waiting changes. A kill does not end this, as the outcome of a commit must be known.
    /// But the changes of a statement that stands alone may wait for locks: then a kill asks the data nodes to roll
    /// back, if the outcome is not decided yet.
    ///
    /// # Errors
    /// If it was rolled back, or its outcome is not known.
    pub fn commit(&mut self) -> Result<()> {
        let committed = self.check_lost().and_then(|()| self.commit_numbered());
        self.forget();
        self.is_lost = false;
        committed
    }

    /// Whether commits from now on return when the changes are on disk, not as soon as all replicas have them in
    /// memory.
    pub fn set_durable(&mut self, is_durable: bool) {
        self.is_durable = is_durable;
    }

    /// Commits together with operations that were defined and not sent, whose errors undo only themselves, and keeps
    /// their results: saves a statement that stands alone, and consists of them, a round trip. Whatever becomes of
    /// them, the transaction ends.
    ///
    /// # Errors
    /// As of [`Session::commit`].
    pub fn commit_with_results(&mut self) -> Result<()> {
        debug_assert!(!self.has_pending(), "nobody would look at the results of changes that wait");
        self.check_lost()?;
        self.committed = self.end_by_commit(self.stands_alone)?;
        Ok(())
    }

    /// `may_give_up`: a kill ends it, as long as its outcome is not decided.
    pub(super) fn end_by_commit(&mut self, may_give_up: bool) -> Result<Option<Committed>> {
        let (Some(mut transaction), Some(cluster)) = (self.transaction.take(), &self.cluster) else {
            return Ok(None);
        };
        if self.is_durable {
            transaction.set_durable(true);
        }
        let stop = async {
            match may_give_up {
                true => self.waiter.killed().await,
                false => std::future::pending().await,
            }
        };
        let committed = wait_to_the_end(&self.node, &self.waiter, cluster, transaction.commit_unless(stop));
        let result = match committed {
            Ok(Ok(committed)) => {
                self.backoff.end();
                Ok(Some(committed))
            }
            Ok(Err(error)) => {
                let failure = self.lost(&error);
                let is_undone = error.class() != ErrorClass::Unknown;
                return Err(if is_undone && self.is_killed() { Failure::killed().doomed() } else { failure });
            }
            Err(stop) => Err(stop.of_commit()),
        };
        self.forget();
        result
    }

    /// Rolls back. Errors are ignored, as the data nodes will roll back anyway.
    pub fn roll_back(&mut self) {
        if let Some(transaction) = self.transaction.take()
            && self.has_operations
        {
            let _ = self.wait(transaction.roll_back());
        }
        self.forget();
        self.is_lost = false;
    }

    /// Undoes the current statement.
    pub fn roll_back_statement(&mut self) {
        if self.stands_alone {
            self.roll_back();
        } else {
            self.roll_back_to(self.statement_start);
        }
    }

    /// The current position, to which the transaction can be rolled back.
    ///
    /// # Errors
    /// If an earlier change failed.
    pub fn savepoint(&mut self) -> Result<OperationNumber> {
        self.flush()?;
        Ok(self.next_number())
    }

    /// Undoes everything since a savepoint.
    pub fn roll_back_to(&mut self, place: OperationNumber) {
        if let Some(transaction) = &mut self.transaction {
            // Operations that were not sent are dropped by this call.
            let undone = transaction.undo_to(place);
            self.pending.retain(|pending| pending.number < place);
            if undone.is_err() {
                self.lose();
            }
        }
    }
}

/// Like [`wait`], but a kill does not end it.
fn wait_to_the_end<F: Future>(
    node: &Node,
    waiter: &Waiter,
    cluster: &Cluster,
    future: F,
) -> Result<F::Output> {
    let longest = node.wait_max_ms();
    ended(node, cluster, waiter.run_to_the_end(cluster, longest, future), longest)
}
