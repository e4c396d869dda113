//! Commit and rollback of transactions and statements.

use super::{Session, ended};
use crate::auto_increment;
use crate::failure::{Failure, Result};
use crate::node::Node;
use crate::waiting::Waiter;
use std::future::Future;
use vinga::blocking::Cluster;
use vinga::{Committed, ErrorClass, OperationNumber};

/// What a commit waits for before it returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CommitsTo {
    /// That all replicas have the changes in memory.
    Memory,
    /// That the changes are on disk; it fails if the data nodes have none.
    Disk,
    /// That the changes are on disk, if the data nodes have one. For changes that belong to a definition, as that is
    /// kept in the same way.
    DiskIfThere,
}

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

    /// When commits return from now on.
    pub fn set_durable(&mut self, commits_to: CommitsTo) {
        self.commits_to = commits_to;
    }

    /// Whether a commit waits until its changes are on disk.
    pub(super) fn waits_for_disk(&self, cluster: &Cluster) -> bool {
        match self.commits_to {
            CommitsTo::Memory => false,
            CommitsTo::Disk => true,
            CommitsTo::DiskIfThere => auto_increment::has_disk(cluster),
        }
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
        let costs_nothing = self.costs_nothing() && self.pending.is_empty();
        let (Some(mut transaction), Some(cluster)) = (self.transaction.take(), &self.cluster) else {
            return Ok(None);
        };
        if self.waits_for_disk(cluster) {
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
            Ok(Err(error)) if costs_nothing && self.may_end_by(&error) => Ok(None),
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
