//! Changes of rows: collecting and sending them, and their results.

use super::{Duplicate, Numbered, Pending, Session, When, wait};
use crate::failure::{Failure, Result};
use crate::table::OpenTable;
use std::sync::Arc;
use vinga::{Error, ErrorCode, OperationKind, OperationNumber, Table};

/// Maximum number of changes that wait to be sent.
const PENDING_MAX: usize = 1024;
/// Number of changes in a transaction when a whole table is copied or a bulk load is committed in portions.
const PORTION: usize = 256;
/// Maximum size in bytes of the rows that wait to be sent.
const PENDING_BYTES_MAX: usize = 256 * 1024;

impl Session {
    /// Defines a change.
    ///
    /// The body of an insert is an image, which is reported if it is a duplicate.
    ///
    /// # Errors
    /// If it, or an earlier change, failed.
    pub fn change(
        &mut self,
        table: &Arc<OpenTable>,
        kind: OperationKind,
        key: &[u8],
        body: &[u8],
        when: When,
    ) -> Result<()> {
        let when = if self.is_at_once && when == When::InStatement { When::Now } else { when };
        let may_repeat = when == When::Now && self.may_repeat() && !self.has_next_number();
        self.define(table, kind, key, body, when)?;
        if may_repeat {
            match self.flush() {
                Err(failure) if failure.is_loss_of_a_node() => {
                    self.is_lost = false;
                    self.define(table, kind, key, body, when)?;
                }
                sent => return sent,
            }
        }
        if when == When::Now || self.pending.len() >= PENDING_MAX || self.images.len() >= PENDING_BYTES_MAX {
            self.flush()?;
        }
        Ok(())
    }

    /// Defines a change whose error undoes only this change; [`Session::execute_reads`] sends it, and
    /// [`Session::outcome_alone`] returns its result.
    ///
    /// # Errors
    /// If the operation can't be defined.
    pub fn define_alone(
        &mut self,
        handle: &Table,
        kind: OperationKind,
        key: &[u8],
        body: &[u8],
    ) -> Result<OperationNumber> {
        let node = Arc::clone(&self.node);
        let transaction = self.transaction()?;
        transaction.set_lenient(true);
        let number =
            transaction.define_encoded(handle, kind, key, body).map_err(|error| node.failure(&error))?;
        self.has_operations = true;
        self.has_changed = true;
        self.portion += 1;
        Ok(number)
    }

    /// The result of a change that was defined with [`Session::define_alone`] and sent: the server's key that existed
    /// already, if any.
    ///
    /// # Errors
    /// If it failed for another reason.
    pub fn outcome_alone(&self, table: &OpenTable, number: OperationNumber) -> Result<Option<usize>> {
        let Some(transaction) = &self.transaction else {
            return Err(self.node.failure(&Error::new(ErrorCode::TransactionAborted)).doomed());
        };
        let Err(error) = transaction.result(number) else { return Ok(None) };
        if error.code() == ErrorCode::DuplicateKey {
            let key = error.index().and_then(|index| table.plan.key_of_index(index));
            return Ok(Some(key.unwrap_or(table.plan.primary())));
        }
        Err(self.failure_alone(table, &error))
    }

    /// The failure of an operation whose error undoes only this operation.
    #[cold]
    pub(super) fn failure_alone(&self, table: &OpenTable, error: &Error) -> Failure {
        let mut failure = self.node.failure(error);
        failure.table = table.name().split_once('.').map_or(table.name(), |(_, name)| name).to_owned();
        failure.is_doomed = error.code() == ErrorCode::Deadlock;
        failure
    }

    /// Replaces a row with another key by this row (its image): both changes are made at once, or neither.
    ///
    /// # Errors
    /// If one of them, or an earlier change, failed.
    pub fn replace(&mut self, table: &Arc<OpenTable>, key: &[u8], image: &[u8]) -> Result<()> {
        let place = self.next_number();
        self.define(table, OperationKind::Delete, key, &[], When::Now)?;
        let replaced = self.change(table, OperationKind::Insert, &[], image, When::Now);
        if matches!(&replaced, Err(failure) if !failure.is_doomed) {
            // The statement may continue: the old row must exist again.
            self.roll_back_to(place);
        }
        replaced
    }

    /// Defines a change that is sent later.
    pub(super) fn define(
        &mut self,
        table: &Arc<OpenTable>,
        kind: OperationKind,
        key: &[u8],
        body: &[u8],
        when: When,
    ) -> Result<()> {
        let handle = table.table(self)?;
        let numbered = self.numbers.take_next(when);
        let is_lenient =
            when == When::Now || numbered == Numbered::Free || !(self.stands_alone || self.is_at_once);
        let node = Arc::clone(&self.node);
        let transaction = self.transaction()?;
        transaction.set_lenient(is_lenient);
        let number =
            transaction.define_encoded(handle, kind, key, body).map_err(|error| node.failure(&error))?;
        self.has_operations = true;
        self.portion += 1;
        let begin = self.images.len();
        if kind == OperationKind::Insert {
            self.images.extend_from_slice(body);
        }
        let image = begin..self.images.len();
        self.pending.push(Pending { number, when, table: Arc::clone(table), image, numbered });
        Ok(())
    }

    /// Commits the rest of the statement in portions: for copies of whole tables, and for bulk loads that need not be
    /// one transaction.
    pub fn commit_in_portions(&mut self) {
        self.is_portioned = true;
    }

    /// Called when a row is complete: if the statement is committed in portions, commits the collected changes once
    /// they are a portion.
    ///
    /// # Errors
    /// If one of the changes failed.
    #[inline]
    pub fn commit_portion(&mut self) -> Result<()> {
        if self.is_portioned && self.portion >= PORTION { self.commit() } else { Ok(()) }
    }

    /// Sends the waiting changes.
    ///
    /// # Errors
    /// If one of the changes failed.
    pub fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.execute_numbered()
    }

    /// Called before others commit together with this transaction: sends the waiting changes, and checks that the
    /// transaction still exists, and that there is a disk if its commit will wait for one.
    ///
    /// # Errors
    /// If one of the changes failed, the transaction is lost, or there is no disk.
    pub fn prepare(&mut self) -> Result<()> {
        self.check_lost()?;
        let waits_for_disk = self.cluster.as_ref().is_some_and(|cluster| self.waits_for_disk(cluster));
        if waits_for_disk && let Some(transaction) = &mut self.transaction {
            transaction.set_durable(true);
        }
        match (self.pending.is_empty(), self.has_operations) {
            (false, _) => self.flush(),
            (true, true) => self.execute(),
            (true, false) => Ok(()),
        }
    }

    /// Whether changes wait to be sent.
    #[inline]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Ends the current statement, but not its transaction: sends the waiting changes if they may fail.
    ///
    /// # Errors
    /// If one of the changes failed.
    pub fn end_statement(&mut self) -> Result<()> {
        // Others may wait for a row, so its release does not wait for the next statement.
        if self.has_unlocks || self.pending.iter().any(|pending| pending.when != When::InTransaction) {
            return self.execute_numbered();
        }
        match &mut self.transaction {
            Some(transaction) if !self.pending.is_empty() => {
                transaction.make_strict().map_err(|error| self.node.failure(&error).doomed())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Sends the defined operations, including reads.
    pub(super) fn execute(&mut self) -> Result<()> {
        let (Some(transaction), Some(cluster)) = (&mut self.transaction, &self.cluster) else {
            return Ok(());
        };
        self.has_unlocks = false;
        match wait(&self.node, &self.waiter, cluster, transaction.execute()) {
            Ok(Ok(())) => self.finish_statement(),
            Ok(Err(error)) => Err(self.lost(&error)),
            Err(failure) => Err(failure.doomed()),
        }
    }

    /// Checks the results of all changes.
    fn finish_statement(&mut self) -> Result<()> {
        let Some(transaction) = &self.transaction else { return Ok(()) };
        let failed = self
            .pending
            .iter()
            .find_map(|pending| Some((pending.number, transaction.result(pending.number).err()?)));
        self.has_changed |= self.pending.iter().any(|pending| transaction.result(pending.number).is_ok());
        let result = match failed {
            None => Ok(()),
            Some((number, error)) => Err(self.failed(number, &error)),
        };
        self.pending.clear();
        self.images.clear();
        result
    }

    /// The failure of a change.
    #[cold]
    pub(super) fn failed(&mut self, number: OperationNumber, error: &Error) -> Failure {
        let mut failure = self.node.failure(error);
        if let Some(pending) = self.pending.iter().find(|pending| pending.number == number) {
            let name = pending.table.name();
            failure.table = name.split_once('.').map_or(name, |(_, table)| table).to_owned();
            if error.code() == ErrorCode::DuplicateKey {
                let image = self.images[pending.image.clone()].to_vec();
                let plan = &pending.table.plan;
                let key = error.index().and_then(|index| plan.key_of_index(index)).unwrap_or(plan.primary());
                self.duplicate = Some(Duplicate { table: name.into(), key, image });
                self.meet_number(number, key);
            }
        }
        failure.is_doomed = matches!(error.code(), ErrorCode::Deadlock);
        failure
    }

    /// The key of the last duplicate and its row (empty if that was an update), if it was one of this table.
    pub fn duplicate(&self, table: &OpenTable) -> Option<(usize, &[u8])> {
        let found = self.duplicate.as_ref().filter(|found| found.table == table.name())?;
        Some((found.key, found.image.as_slice()))
    }
}
