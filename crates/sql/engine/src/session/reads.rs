//! Reads of a session: by keys, by scans, with locks and without.

use super::{Session, wait};
use crate::failure::{Failure, Result};
use std::sync::Arc;
use vinga::{
    Error, ErrorCode, Found, Lock, LockWait, LockedRows, LockingScan, OperationKind, OperationNumber,
    ReadBatch, Record, RowBatch, RowCount, Scan, ScanRequest, Table, Transaction,
};

/// How rows that are read are locked, and how long to wait for the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowLock {
    /// The lock on each row.
    pub lock: Lock,
    /// How long to wait for it.
    pub wait: LockWait,
}

/// Result of a read that may have had to lock its row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Given<'a> {
    /// The row.
    Row(&'a [u8]),
    /// There is no such row.
    NoRow,
    /// Others have locked it: its committed version, if that was requested and exists.
    NotLocked(Option<&'a [u8]>),
}

impl Session {
    /// Whether reads have to take changes of the transaction into account.
    fn reads_within(&self) -> bool {
        self.has_operations && !self.is_portioned && self.transaction.is_some()
    }

    /// Reads rows without locks, including this session's changes. Errors of single keys are in the batch.
    ///
    /// # Errors
    /// If an earlier change failed, or the read failed.
    #[inline]
    pub fn read(&mut self, batch: ReadBatch<Record>) -> Result<ReadBatch<Record>> {
        self.check_lost()?;
        if self.reads_within() {
            return self.read_within(batch);
        }
        let node = Arc::clone(&self.node);
        let cluster = self.cluster()?;
        let ticket = if batch.len() == 1 {
            cluster.as_async().start_gathered_reads(batch)
        } else {
            cluster.start_reads(batch)
        };
        self.wait(ticket.map_err(|error| node.failure(&error))?)
    }

    fn read_within(&mut self, batch: ReadBatch<Record>) -> Result<ReadBatch<Record>> {
        self.flush()?;
        let (Some(transaction), Some(cluster)) = (&mut self.transaction, &self.cluster) else {
            return Err(self.node.failure(&Error::new(ErrorCode::TransactionAborted)).doomed());
        };
        match wait(&self.node, &self.waiter, cluster, transaction.read_keys(batch)) {
            Ok(Ok(batch)) => Ok(batch),
            Ok(Err(error)) => Err(self.lost(&error)),
            Err(failure) => Err(failure.doomed()),
        }
    }

    /// Reads rows by encoded keys of a unique index, including this session's changes. With a lock the rows stay locked
    /// until the end of the transaction.
    ///
    /// # Errors
    /// If an earlier change failed, or the read failed.
    pub fn read_unique(
        &mut self,
        handle: &Table,
        index: &str,
        keys: Vec<Vec<u8>>,
        RowLock { lock, wait: lock_wait }: RowLock,
    ) -> Result<Vec<Found<Vec<u8>>>> {
        self.check_lost()?;
        if lock == Lock::None && !(self.has_operations && self.transaction.is_some()) {
            let cluster = self.cluster()?.clone();
            let rows = self.wait(cluster.as_async().get_images_by(handle, index, keys))?;
            let found = |row: Option<_>| row.map_or(Found::NoRow, |row| Found::Row { row, operation: None });
            return rows
                .map(|rows| rows.into_iter().map(found).collect())
                .map_err(|error| self.node.failure(&error));
        }
        self.flush()?;
        self.transaction()?.set_lenient(true);
        self.has_operations = true;
        self.has_locked = true;
        let (Some(transaction), Some(cluster)) = (&mut self.transaction, &self.cluster) else {
            return Err(self.node.failure(&Error::new(ErrorCode::TransactionAborted)).doomed());
        };
        let rows = transaction.find_images_by(handle, index, keys, lock.waiting(lock_wait));
        match wait(&self.node, &self.waiter, cluster, rows) {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => Err(self.read_failure(&error)),
            Err(failure) => Err(failure.doomed()),
        }
    }

    /// The failure of a read, which may have cost the transaction, or found that it is over: then why it is.
    #[cold]
    fn read_failure(&self, error: &Error) -> Failure {
        let cause = self.transaction.as_ref().and_then(Transaction::rollback_cause);
        let mut failure = match cause {
            Some(cause) if error.code() == ErrorCode::TransactionAborted => {
                self.node.failure(&Error::new(cause))
            }
            _ => self.node.failure(error),
        };
        failure.is_doomed =
            cause.is_some() || matches!(error.code(), ErrorCode::Deadlock | ErrorCode::TransactionAborted);
        failure
    }

    /// Defines a read, perhaps with a lock, that sees the pending changes; [`Session::locked_row`] returns the row
    /// after [`Session::execute_reads`].
    ///
    /// # Errors
    /// If the operation can't be defined.
    pub fn define_locked(&mut self, handle: &Table, lock: RowLock, key: &[u8]) -> Result<OperationNumber> {
        let kind = match lock.lock {
            Lock::None => OperationKind::ReadCommitted,
            Lock::Shared => OperationKind::ReadShared,
            Lock::Exclusive => OperationKind::ReadExclusive,
        };
        // The results of those inserts, and of a second attempt at them, must not be mixed with that of the read.
        if self.has_free_numbers() {
            self.flush()?;
        }
        let node = Arc::clone(&self.node);
        let transaction = self.transaction()?;
        transaction.set_lenient(true);
        let number = transaction
            .define_encoded_waiting(handle, kind, key, &[], lock.wait)
            .map_err(|error| node.failure(&error))?;
        self.has_operations = true;
        self.has_locked = true;
        Ok(number)
    }

    /// Sends the defined operations, including reads.
    ///
    /// # Errors
    /// If a change failed, or the whole transaction.
    pub fn execute_reads(&mut self) -> Result<()> {
        self.execute()
    }

    /// The row of a read that was defined and executed.
    ///
    /// # Errors
    /// If the row could not be read.
    pub fn locked_row(&self, number: OperationNumber, lock: RowLock) -> Result<Given<'_>> {
        let Some(transaction) = &self.transaction else {
            return Err(self.node.failure(&Error::new(ErrorCode::TransactionAborted)).doomed());
        };
        match (transaction.row_bytes(number), lock.wait) {
            (Ok(row), _) => Ok(row.map_or(Given::NoRow, Given::Row)),
            (Err(error), LockWait::SkipLocked) if error.code() == ErrorCode::RowLocked => {
                Ok(Given::NotLocked(None))
            }
            (Err(error), LockWait::ElseCommitted) if error.code() == ErrorCode::RowLocked => {
                let committed = transaction.committed_bytes(number);
                committed.map(Given::NotLocked).map_err(|error| self.node.failure(&error))
            }
            (Err(error), _) => {
                let mut failure = self.node.failure(&error);
                failure.is_doomed = error.code() == ErrorCode::Deadlock;
                Err(failure)
            }
        }
    }

    /// Releases a row that this read has locked, with the next request.
    pub fn unlock(&mut self, read: OperationNumber) {
        if let Some(transaction) = &mut self.transaction {
            // If that is not possible the row stays locked until the end of the transaction.
            self.has_unlocks |= transaction.unlock(read).is_ok();
        }
    }

    /// Begins a scan that includes this session's changes.
    ///
    /// # Errors
    /// If it can't begin.
    pub fn scan(&mut self, request: ScanRequest) -> Result<Scan> {
        let begun = if self.prepare_scan()? {
            let (Some(transaction), Some(cluster)) = (&mut self.transaction, &self.cluster) else {
                return Err(self.node.failure(&Error::new(ErrorCode::TransactionAborted)).doomed());
            };
            match wait(&self.node, &self.waiter, cluster, transaction.scan(request)) {
                Ok(begun) => begun,
                Err(failure) => return Err(failure.doomed()),
            }
        } else {
            request.rows()
        };
        begun.map_err(|error| self.read_failure(&error))
    }

    /// Sends the changes that the scan has to see; returns whether it belongs to the transaction.
    fn prepare_scan(&mut self) -> Result<bool> {
        self.check_lost()?;
        self.cluster()?;
        let is_within = self.reads_within();
        if is_within {
            self.flush()?;
        }
        Ok(is_within)
    }

    /// The number of rows that a scan would find, including this session's changes.
    ///
    /// # Errors
    /// If they could not be counted.
    pub fn count(&mut self, request: ScanRequest) -> Result<u64> {
        let begun = if self.prepare_scan()? {
            let (Some(transaction), Some(cluster)) = (&mut self.transaction, &self.cluster) else {
                return Err(self.node.failure(&Error::new(ErrorCode::TransactionAborted)).doomed());
            };
            match wait(&self.node, &self.waiter, cluster, transaction.count(request)) {
                Ok(begun) => begun,
                Err(failure) => return Err(failure.doomed()),
            }
        } else {
            request.count()
        };
        let counting = begun.map_err(|error| self.read_failure(&error))?;
        self.sum_of_counts(counting)
    }

    /// The sum of the data nodes' counts.
    ///
    /// # Errors
    /// If they could not count all rows.
    pub(crate) fn sum_of_counts(&mut self, mut counting: RowCount) -> Result<u64> {
        let mut rows = 0;
        while let Some(more) = self.wait(counting.next())?.map_err(|error| self.read_failure(&error))? {
            rows += more;
        }
        Ok(rows)
    }

    /// Begins a scan whose rows are locked.
    ///
    /// # Errors
    /// If it can't begin.
    pub fn scan_locked(&mut self, request: ScanRequest, lock: RowLock) -> Result<LockingScan> {
        self.flush()?;
        self.transaction()?.set_lenient(true);
        self.has_operations = true;
        self.has_locked = true;
        let (Some(transaction), Some(cluster)) = (&mut self.transaction, &self.cluster) else {
            return Err(self.node.failure(&Error::new(ErrorCode::TransactionAborted)).doomed());
        };
        match wait(
            &self.node,
            &self.waiter,
            cluster,
            transaction.scan_locked(request, lock.lock.waiting(lock.wait)),
        ) {
            Ok(begun) => begun.map_err(|error| self.read_failure(&error)),
            Err(failure) => Err(failure.doomed()),
        }
    }

    /// The next rows of a locking scan.
    ///
    /// # Errors
    /// If it ended early.
    pub fn next_locked(&mut self, scan: &mut LockingScan) -> Result<Option<LockedRows>> {
        // At the end of the scan, changes made in the meantime need not be sent yet.
        match self.wait(scan.find()) {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Ok(None),
            Ok(Err(error)) => return Err(self.read_failure(&error)),
            Err(failure) => return Err(failure.doomed()),
        }
        self.flush()?;
        let (Some(transaction), Some(cluster)) = (&mut self.transaction, &self.cluster) else {
            return Err(self.node.failure(&Error::new(ErrorCode::TransactionAborted)).doomed());
        };
        transaction.set_lenient(true);
        match wait(&self.node, &self.waiter, cluster, scan.next_batch(transaction)) {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => Err(self.read_failure(&error)),
            Err(failure) => Err(failure.doomed()),
        }
    }

    /// Releases rows of a locking scan, which will be returned again later: see [`LockingScan::put_back`].
    ///
    /// # Errors
    /// If the transaction has ended.
    pub fn put_back(&mut self, scan: &mut LockingScan, rows: &mut LockedRows, from: usize) -> Result<()> {
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        scan.put_back(transaction, rows, from).map_err(|error| self.node.failure(&error))?;
        self.has_unlocks = true;
        Ok(())
    }

    /// The next rows of a scan.
    ///
    /// # Errors
    /// If it ended early.
    pub fn next_rows(&mut self, scan: &mut Scan) -> Result<Option<RowBatch>> {
        let rows = self.wait(scan.next_batch())?;
        rows.map_err(|error| self.read_failure(&error))
    }
}
