//! Transactions.

mod in_place;
mod results;

pub use results::{Committed, Reading};

use crate::batch::take_read;
use crate::engine::Handle;
use crate::lock::{Found, Lock, LockRequest, LockWait};
use crate::locking_scan::LockingScan;
use crate::pending::Pending;
use crate::program::Update;
use crate::row::{ReadRow, WriteRow};
use crate::scan::{RowCount, Scan, ScanRequest};
use crate::spare::{self, Scratch};
use crate::table::Table;
use crate::unique::LockedRead;
use results::{bytes_of, result_of, row_of};
use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};
use vinga_base::{ColumnId, OperationNumber};
use vinga_client_core::value::Key;
use vinga_client_core::{BatchEnd, Error, OperationBatch, OperationSpec, ReadBatch, Result, Standing, Token};
use vinga_wire::ErrorCode;
use vinga_wire::operation::OperationKind;

/// Where a transaction can go back to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Savepoint(OperationNumber);

/// An open transaction.
///
/// Operations are *defined* (nothing is sent) and then *executed* together in one round trip, by
/// [`Transaction::execute`] or with the commit. Reads that give their row at once execute what was defined before. The
/// first error rolls the whole transaction back, unless it is [lenient](Transaction::set_lenient).
///
/// A transaction that is dropped is rolled back. So is one of which a future is dropped while it waits, unless that was
/// [`Transaction::commit`].
pub struct Transaction {
    handle: Arc<Handle>,
    token: Token,
    /// `None` while it is under way, and for ever if its future was dropped.
    batch: Option<OperationBatch>,
    is_executed: bool,
    is_lenient: bool,
    has_met_temporary: bool,
    lock_wait: LockWait,
    scratch: Scratch,
}

/// Tells by which name data nodes know a transaction, while another thread uses that.
#[derive(Clone)]
pub struct TransactionName {
    handle: Weak<Handle>,
    token: Token,
}

impl TransactionName {
    /// The name as the information tables have it, `T145.34567.12`; `None` before anything of the transaction was sent,
    /// and when it is over.
    pub fn get(&self) -> Option<String> {
        let handle = self.handle.upgrade()?;
        let id = handle.engine.look(|client| client.transaction_id(self.token))?;
        Some(format!("{id:?}"))
    }
}

impl Transaction {
    /// Tells its name to others.
    pub fn name(&self) -> TransactionName {
        TransactionName { handle: Arc::downgrade(&self.handle), token: self.token }
    }

    pub(crate) fn begin(handle: &Arc<Handle>) -> Result<Self> {
        let token = handle.engine.look(vinga_client_core::Client::begin)?;
        Ok(Transaction {
            handle: Arc::clone(handle),
            token,
            batch: Some(OperationBatch::default()),
            is_executed: false,
            is_lenient: false,
            has_met_temporary: false,
            lock_wait: LockWait::Default,
            scratch: Scratch::default(),
        })
    }

    /// Whether errors of operations that are defined from now on are theirs alone: they are returned by
    /// [`Transaction::result`], and the transaction goes on.
    pub fn set_lenient(&mut self, is_lenient: bool) {
        self.is_lenient = is_lenient;
    }

    /// Whether its commit returns when the changes are on disk on all replicas, not as soon as they are in the memory
    /// of all replicas. What was committed so is there after any crash, of all data nodes at the same time too. Where
    /// nothing is kept on disk (`Diskless`), it is rolled back with [`ErrorCode::NoDisk`].
    pub fn set_durable(&mut self, is_durable: bool) {
        let token = self.token;
        self.handle.engine.look(|client| client.set_durable(token, is_durable));
    }

    /// How long operations that are defined from now on wait for the locks of their rows, if they don't say so
    /// themselves; also what their changes of unique indexes wait for. Reads without a lock don't wait.
    ///
    /// A wait that is over is an error of the operation: [`ErrorCode::LockTimeout`], or [`ErrorCode::RowLocked`] if it
    /// was not to wait at all. It rolls the transaction back, unless the transaction is
    /// [lenient](Transaction::set_lenient) or such rows are skipped.
    pub fn set_lock_wait(&mut self, wait: LockWait) {
        self.lock_wait = wait;
    }

    /// How long that lock is waited for.
    pub(crate) fn wait_of(&self, request: LockRequest) -> LockWait {
        request.wait.unwrap_or(self.lock_wait)
    }

    /// Errors of operations that were defined and have not been executed yet roll the transaction back, also those that
    /// were defined while it was lenient: for changes that somebody else will execute, who can't answer for them.
    ///
    /// # Errors
    /// If the transaction is over.
    pub fn make_strict(&mut self) -> Result<()> {
        open(&mut self.batch, &mut self.is_executed)?.make_strict();
        Ok(())
    }

    /// Defines: add a row; a row with its key must not exist.
    ///
    /// # Errors
    /// `BadRow`.
    pub fn insert<R>(&mut self, table: &Table<R>, row: &(impl WriteRow + ?Sized)) -> Result<OperationNumber> {
        self.define_row(table, OperationKind::Insert, row)
    }

    /// Defines: add a row or replace it.
    ///
    /// # Errors
    /// `BadRow`.
    pub fn write<R>(&mut self, table: &Table<R>, row: &(impl WriteRow + ?Sized)) -> Result<OperationNumber> {
        self.define_row(table, OperationKind::Write, row)
    }

    fn define_row<R>(
        &mut self,
        table: &Table<R>,
        kind: OperationKind,
        row: &(impl WriteRow + ?Sized),
    ) -> Result<OperationNumber> {
        self.scratch.key.clear();
        self.scratch.body.clear();
        table.write_image(row, &mut self.scratch.builder, &mut self.scratch.body)?;
        self.define(table, kind, self.lock_wait)
    }

    /// Defines: update a row that must exist.
    ///
    /// # Errors
    /// `BadKey`, `BadRow`, `BadProgram`.
    pub fn update<R>(&mut self, table: &Table<R>, key: impl Key, update: &Update) -> Result<OperationNumber> {
        table.core().check_update()?;
        self.write_key(table, key)?;
        update.encode(table, &mut self.scratch.body)?;
        self.define(table, OperationKind::Update, self.lock_wait)
    }

    /// Defines: remove a row that must exist.
    ///
    /// # Errors
    /// `BadKey`.
    pub fn delete<R>(&mut self, table: &Table<R>, key: impl Key) -> Result<OperationNumber> {
        table.core().check_removal()?;
        self.write_key(table, key)?;
        self.define(table, OperationKind::Delete, self.lock_wait)
    }

    /// Defines: read a row. [`Transaction::row`] has it once it is executed. Where there is no row there is nothing to
    /// lock, which is no error; somebody else may add the row meanwhile.
    ///
    /// If others have the row locked and such rows are skipped, [`Transaction::row`] says [`ErrorCode::RowLocked`], and
    /// the transaction goes on; with [`LockWait::ElseCommitted`] [`Transaction::committed_row`] has its committed
    /// version.
    ///
    /// # Errors
    /// `BadKey`.
    pub fn define_read<R>(
        &mut self,
        table: &Table<R>,
        key: impl Key,
        lock: impl Into<LockRequest>,
    ) -> Result<Reading<R>> {
        self.write_key(table, key)?;
        let request = lock.into();
        let number = self.define(table, request.lock.kind(), self.wait_of(request))?;
        Ok(Reading { number, table: table.clone() })
    }

    /// Defines an operation in bytes, as [`vinga_base::row_layout`] and the update programs say: for an insert or write
    /// the image as `body` and no key, for an update the key and the program, for others the key.
    ///
    /// # Errors
    /// `BadKey`, `BadRow`, `BadProgram`.
    pub fn define_encoded<R>(
        &mut self,
        table: &Table<R>,
        kind: OperationKind,
        key: &[u8],
        body: &[u8],
    ) -> Result<OperationNumber> {
        self.define_encoded_waiting(table, kind, key, body, self.lock_wait)
    }

    /// As [`Transaction::define_encoded`], and says how long the operation waits for the lock of its row.
    ///
    /// # Errors
    /// As [`Transaction::define_encoded`].
    pub fn define_encoded_waiting<R>(
        &mut self,
        table: &Table<R>,
        kind: OperationKind,
        key: &[u8],
        body: &[u8],
        wait: LockWait,
    ) -> Result<OperationNumber> {
        self.define_encoded_if(table, kind, key, body, &[], wait)
    }

    /// As [`Transaction::define_encoded_waiting`], of a row that fulfils a condition ([`Table::encode_filter`]; no
    /// bytes for none): if it does not, the operation fails with [`ErrorCode::ConditionFailed`].
    ///
    /// # Errors
    /// As [`Transaction::define_encoded`].
    pub fn define_encoded_if<R>(
        &mut self,
        table: &Table<R>,
        kind: OperationKind,
        key: &[u8],
        body: &[u8],
        filter: &[u8],
        wait: LockWait,
    ) -> Result<OperationNumber> {
        let operation = OperationSpec {
            columns: table.columns().filter(|_| kind.is_read()),
            filter,
            error_is_local: self.is_lenient,
            wait,
            ..OperationSpec::new(table.core(), kind, key, body)
        };
        open(&mut self.batch, &mut self.is_executed)?.push(&operation)
    }

    fn write_key<R>(&mut self, table: &Table<R>, key: impl Key) -> Result<()> {
        self.scratch.key.clear();
        self.scratch.body.clear();
        table.write_key(&key, &mut self.scratch.key)
    }

    /// Whether it was rolled back by an error that is temporary.
    pub(crate) fn has_met_temporary(&self) -> bool {
        self.has_met_temporary
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn define_operation(&mut self, operation: &OperationSpec<'_>) -> Result<OperationNumber> {
        open(&mut self.batch, &mut self.is_executed)?.push(operation)
    }

    /// What a read gave that has just been executed.
    pub(crate) fn bytes(&self, number: OperationNumber) -> Result<Option<&[u8]>> {
        self.batch.as_ref().ok_or(ErrorCode::TransactionAborted)?.result(number)
    }

    /// The committed version of a row, if a read was to give that because others have it locked, and there is one.
    pub(crate) fn committed(&self, number: OperationNumber) -> Option<&[u8]> {
        self.batch.as_ref()?.committed(number).unwrap_or(None)
    }

    /// Reads rows by key under a lock, in one batch.
    pub(crate) async fn lock_rows(
        &mut self,
        table: &vinga_client_core::Table,
        columns: Option<&[ColumnId]>,
        keys: &[&[u8]],
        lock: Lock,
        wait: LockWait,
    ) -> Result<Vec<LockedRead>> {
        let error_is_local = self.is_lenient;
        let mut numbers = Vec::with_capacity(keys.len());
        for key in keys {
            let operation = OperationSpec {
                columns,
                error_is_local,
                wait,
                ..OperationSpec::new(table, lock.kind(), key, &[])
            };
            numbers.push(self.define_operation(&operation)?);
        }
        self.execute().await?;
        let batch = self.batch.as_ref().ok_or(ErrorCode::TransactionAborted)?;
        let read = |number| match batch.result(number) {
            Ok(Some(bytes)) => Ok(LockedRead::Row(bytes.to_vec(), number)),
            Ok(None) => Ok(LockedRead::NoRow),
            Err(error) if error.code() == ErrorCode::RowLocked && wait.skips() => {
                let committed = batch.committed(number).unwrap_or(None);
                Ok(LockedRead::NotLocked(committed.map(<[u8]>::to_vec)))
            }
            Err(error) => Err(error.at_operation(Some(number))),
        };
        numbers.into_iter().map(read).collect()
    }

    /// Lets go of the lock that a read of this transaction has taken: by key, of a [`LockingScan`], or by a unique
    /// index. Nothing is sent for it: it travels in front of the operations that are defined next, also many together.
    /// What the read gave can still be looked at.
    ///
    /// Each operation holds its row for itself: a row that several have locked, or that the transaction has changed,
    /// stays locked as strongly as the others need. So a row that was locked shared, then exclusive, is shared again
    /// when the exclusive read lets go. Nothing happens if the read has locked nothing, or let go before. That a row
    /// was let go of is not undone by [`Transaction::roll_back_to`]. If it is not possible, the lock stays to the end
    /// of the transaction.
    ///
    /// # Errors
    /// `BadProgram` if the operation is no read with a lock; that the transaction is over.
    pub fn unlock(&mut self, read: OperationNumber) -> Result<()> {
        let batch = self.batch.as_mut().ok_or(ErrorCode::TransactionAborted)?;
        batch.unlock(read)
    }

    /// The same, in this place among the operations that are being defined.
    pub(crate) fn unlock_here(&mut self, read: OperationNumber) -> Result<()> {
        let batch = open(&mut self.batch, &mut self.is_executed)?;
        batch.unlock(read)?;
        batch.push_unlocks();
        Ok(())
    }

    /// Executes what was defined, if anything was.
    async fn execute_defined(&mut self) -> Result<()> {
        let batch = open(&mut self.batch, &mut self.is_executed)?;
        if batch.is_empty() && !batch.has_changes() {
            return Ok(());
        }
        self.execute().await
    }

    /// Reads rows as this transaction sees them; executes what was defined before.
    pub(crate) async fn read_batch(&mut self, batch: ReadBatch) -> Result<ReadBatch> {
        self.execute_defined().await?;
        let number = open(&mut self.batch, &mut self.is_executed)?.next_number();
        let token = self.token;
        let read = self.handle.engine.submit(|client| client.read_within(token, number, batch))?;
        Ok(Pending::new(&self.handle, read, take_read).await)
    }

    fn define<R>(
        &mut self,
        table: &Table<R>,
        kind: OperationKind,
        wait: LockWait,
    ) -> Result<OperationNumber> {
        let is_lenient = self.is_lenient;
        let batch = open(&mut self.batch, &mut self.is_executed)?;
        let operation = OperationSpec {
            columns: table.columns().filter(|_| kind.is_read()),
            error_is_local: is_lenient,
            wait,
            ..OperationSpec::new(table.core(), kind, &self.scratch.key, &self.scratch.body)
        };
        batch.push(&operation)
    }

    /// Reads a row, with what this transaction has changed; executes what was defined before.
    ///
    /// # Errors
    /// Why it could not be read; the transaction is rolled back then, unless it is
    /// [lenient](Transaction::set_lenient) or only the row does not fit its type.
    pub async fn read<R: ReadRow>(&mut self, table: &Table<R>, key: impl Key) -> Result<Option<R>> {
        let batch = open(&mut self.batch, &mut self.is_executed)?;
        if !batch.is_empty() || batch.has_changes() {
            return self.read_locked(table, key, Lock::None).await;
        }
        // Everything is answered: straight to the owner of the row.
        let number = batch.next_number();
        let mut keys = spare::read_batch(table.shape());
        keys.push_with(|out| table.write_key(&key, out))?;
        let token = self.token;
        let read = self.handle.engine.submit(|client| client.read_within(token, number, keys))?;
        let rows = Pending::new(&self.handle, read, take_read).await;
        let row = rows.row(0)?.map(|bytes| table.read(bytes)).transpose();
        spare::keep_read(rows);
        row
    }

    /// Reads a row under a lock that is held to the end of the transaction; executes what was defined before. `None`,
    /// and nothing is locked, if there is no row, or others have it locked and such rows are skipped.
    ///
    /// # Errors
    /// As [`Transaction::read`].
    pub async fn read_locked<R: ReadRow>(
        &mut self,
        table: &Table<R>,
        key: impl Key,
        lock: impl Into<LockRequest>,
    ) -> Result<Option<R>> {
        Ok(self.find(table, key, lock).await?.row())
    }

    /// As [`Transaction::read_locked`]; and says which operation has locked the row, and whether others have.
    ///
    /// With [`Lock::else_committed`] this is what a semi-consistent update needs: the row is locked if that needs no
    /// wait, else its committed version is read in the same round trip. A row whose committed version is not wanted
    /// need not be waited for. One that is wanted has to be locked with another wait, and looked at again, since it may
    /// have changed.
    ///
    /// # Errors
    /// As [`Transaction::read`].
    pub async fn find<R: ReadRow>(
        &mut self,
        table: &Table<R>,
        key: impl Key,
        lock: impl Into<LockRequest>,
    ) -> Result<Found<R>> {
        let request = lock.into();
        let skips = self.wait_of(request).skips();
        let reading = self.define_read(table, key, request)?;
        self.execute().await?;
        match self.row(&reading) {
            Ok(Some(row)) => {
                let operation = (request.lock != Lock::None).then_some(reading.number);
                Ok(Found::Row { row, operation })
            }
            Ok(None) => Ok(Found::NoRow),
            Err(error) if error.code() == ErrorCode::RowLocked && skips => {
                let committed = self.committed(reading.number);
                let committed = committed.map(|bytes| reading.table.read(bytes)).transpose()?;
                Ok(Found::NotLocked { committed })
            }
            Err(error) => Err(error),
        }
    }

    /// Reads rows without locks, with what this transaction has changed; executes what was defined before. Errors of
    /// single keys are in the batch.
    ///
    /// # Errors
    /// Why what was defined before failed, or that the transaction is over.
    pub async fn read_keys<R>(&mut self, batch: crate::ReadBatch<R>) -> Result<crate::ReadBatch<R>> {
        let crate::ReadBatch { table, batch } = batch;
        Ok(crate::ReadBatch { table, batch: self.read_batch(batch).await? })
    }

    /// The bytes of the row of a read that has been executed, by the operation's number: an image, or a selection.
    ///
    /// # Errors
    /// Why it was not read.
    pub fn row_bytes(&self, operation: OperationNumber) -> Result<Option<&[u8]>> {
        bytes_of(self.batch.as_ref(), operation)
    }

    /// The bytes of the committed version of a row, if that was what a read was to give ([`LockWait::ElseCommitted`])
    /// because others have the row locked; by the operation's number. `None` if there is none.
    ///
    /// # Errors
    /// `NoSuchTransaction` if that read has ended otherwise.
    pub fn committed_bytes(&self, operation: OperationNumber) -> Result<Option<&[u8]>> {
        let batch = self.batch.as_ref().ok_or(ErrorCode::TransactionAborted)?;
        batch.committed(operation).map_err(|code| Error::new(code).at_operation(Some(operation)))
    }

    /// The number that the next operation gets.
    pub fn next_number(&self) -> OperationNumber {
        self.savepoint().0
    }

    /// Reads the row that has these values in the columns of a unique index; executes what was defined before. With a
    /// lock it is held to the end of the transaction; `None`, and nothing is locked, if there is no such row, or others
    /// have it locked and such rows are skipped.
    ///
    /// # Errors
    /// As [`Transaction::read`]; `BadProgram` if there is no such index, `BadKey` if a value does not fit or is NULL;
    /// `LockTimeout` if others change the row again and again.
    pub async fn get_by<R: ReadRow>(
        &mut self,
        table: &Table<R>,
        index: &str,
        values: impl Key,
        lock: impl Into<LockRequest>,
    ) -> Result<Option<R>> {
        Ok(self.get_many_by(table, index, [values], lock).await?.pop().flatten())
    }

    /// Reads the rows that have these values in the columns of a unique index, in the order of the values.
    ///
    /// # Errors
    /// As [`Transaction::get_by`].
    pub async fn get_many_by<R: ReadRow, K: Key>(
        &mut self,
        table: &Table<R>,
        index: &str,
        values: impl IntoIterator<Item = K>,
        lock: impl Into<LockRequest>,
    ) -> Result<Vec<Option<R>>> {
        let found = self.find_by(table, index, values, lock).await?;
        Ok(found.into_iter().map(Found::row).collect())
    }

    /// As [`Transaction::get_many_by`]; and says which operation has locked each row, and which rows others have
    /// locked.
    ///
    /// # Errors
    /// As [`Transaction::get_by`].
    pub async fn find_by<R: ReadRow, K: Key>(
        &mut self,
        table: &Table<R>,
        index: &str,
        values: impl IntoIterator<Item = K>,
        lock: impl Into<LockRequest>,
    ) -> Result<Vec<Found<R>>> {
        crate::unique::find(table, index, values, Some(self), lock.into()).await
    }

    /// As [`crate::Cluster::get_images_by`], within this transaction as [`Transaction::get_many_by`].
    ///
    /// # Errors
    /// As [`Transaction::get_by`].
    pub async fn get_images_by<R>(
        &mut self,
        table: &Table<R>,
        index: &str,
        keys: Vec<Vec<u8>>,
        lock: impl Into<LockRequest>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let found = self.find_images_by(table, index, keys, lock).await?;
        Ok(found.into_iter().map(Found::row).collect())
    }

    /// As [`Transaction::get_images_by`]; and says what [`Transaction::find_by`] says.
    ///
    /// # Errors
    /// As [`Transaction::get_by`].
    pub async fn find_images_by<R>(
        &mut self,
        table: &Table<R>,
        index: &str,
        keys: Vec<Vec<u8>>,
        lock: impl Into<LockRequest>,
    ) -> Result<Vec<Found<Vec<u8>>>> {
        crate::unique::find_images(table, index, keys, Some(self), lock.into()).await
    }

    /// Sends what was defined; the transaction stays open.
    ///
    /// # Errors
    /// The first operation's that failed; the transaction is rolled back then.
    pub async fn execute(&mut self) -> Result<()> {
        self.send(BatchEnd::Open).await.map(|_| ())
    }

    async fn send(&mut self, end: BatchEnd) -> Result<Standing> {
        let batch = open(&mut self.batch, &mut self.is_executed)?;
        match end {
            BatchEnd::Open => batch.push_unlocks(),
            BatchEnd::Commit | BatchEnd::RollBack => batch.forget_unlocks(),
        }
        let batch = self.batch.take().expect("opened just now");
        let token = self.token;
        self.handle.engine.submit(|client| client.send(token, batch, end));
        let batch = Pending::new(&self.handle, token, take_operations).await;
        let standing = batch.standing();
        self.has_met_temporary |= standing.as_ref().is_err_and(Error::is_retryable);
        self.batch = Some(batch);
        self.is_executed = true;
        standing
    }

    /// The row of a read that has been executed, as long as nothing was defined after it; `None` if there is none.
    ///
    /// # Errors
    /// Why it was not read.
    pub fn row<R: ReadRow>(&self, reading: &Reading<R>) -> Result<Option<R>> {
        row_of(self.batch.as_ref(), reading)
    }

    /// The committed version of the row of a read that was to give it ([`LockWait::ElseCommitted`]), and has, because
    /// others have the row locked; `None` if there is none.
    ///
    /// # Errors
    /// `NoSuchTransaction` if that read has ended otherwise.
    pub fn committed_row<R: ReadRow>(&self, reading: &Reading<R>) -> Result<Option<R>> {
        self.committed_bytes(reading.number)?.map(|bytes| reading.table.read(bytes)).transpose()
    }

    /// How an operation ended that was executed, as long as nothing was defined after it.
    ///
    /// # Errors
    /// Why it failed.
    pub fn result(&self, operation: OperationNumber) -> Result<()> {
        result_of(self.batch.as_ref(), operation)
    }

    /// Remembers this place.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint(self.batch.as_ref().map_or(OperationNumber(u32::MAX), OperationBatch::next_number))
    }

    /// Defines: undo all operations that were defined since a savepoint. Locks stay.
    ///
    /// # Errors
    /// If the transaction is over.
    pub fn roll_back_to(&mut self, savepoint: Savepoint) -> Result<()> {
        open(&mut self.batch, &mut self.is_executed)?.roll_back_to(savepoint.0);
        Ok(())
    }

    /// As [`Transaction::roll_back_to`], to the operation with this number: it and later ones are undone.
    ///
    /// # Errors
    /// If the transaction is over.
    pub fn undo_to(&mut self, number: OperationNumber) -> Result<()> {
        self.roll_back_to(Savepoint(number))
    }

    /// Scans with what this transaction has changed up to now; executes what was defined before.
    ///
    /// # Errors
    /// As [`Transaction::execute`] and [`ScanRequest::rows`].
    pub async fn scan<R>(&mut self, request: ScanRequest<R>) -> Result<Scan<R>> {
        self.execute_defined().await?;
        let number = open(&mut self.batch, &mut self.is_executed)?.next_number();
        request.start(Some((self.token, number)))
    }

    /// Counts the rows that [`Transaction::scan`] would find.
    ///
    /// # Errors
    /// As [`Transaction::scan`].
    pub async fn count<R>(&mut self, request: ScanRequest<R>) -> Result<RowCount<R>> {
        self.execute_defined().await?;
        let number = open(&mut self.batch, &mut self.is_executed)?.next_number();
        request.start_count(Some((self.token, number)))
    }

    /// Scans as [`Transaction::scan`] and locks the rows that it finds, a batch at a time: [`LockingScan`] says what
    /// that promises.
    ///
    /// # Errors
    /// As [`Transaction::scan`]; `BadProgram` for [`Lock::None`].
    pub async fn scan_locked<R>(
        &mut self,
        request: ScanRequest<R>,
        lock: impl Into<LockRequest>,
    ) -> Result<LockingScan<R>> {
        let asked = lock.into();
        if asked.lock == Lock::None {
            return Err(Error::with_detail(ErrorCode::BadProgram, "a locking scan without a lock"));
        }
        self.execute_defined().await?;
        let number = open(&mut self.batch, &mut self.is_executed)?.next_number();
        LockingScan::begin(request, (self.token, number), asked.lock, self.wait_of(asked))
    }

    /// Removes the rows that a scan finds, which are locked for it; returns how many they are. The last of the removals
    /// are defined when this returns, and executed with what comes next.
    ///
    /// # Errors
    /// As [`Transaction::scan_locked`].
    pub async fn delete_matching<R>(
        &mut self,
        table: &Table<R>,
        request: impl FnOnce(ScanRequest<R>) -> ScanRequest<R>,
    ) -> Result<u64> {
        table.core().check_removal()?;
        let keys = table.select_ids(table.core().layout().key())?;
        let mut scan = self.scan_locked(request(ScanRequest::new(&keys)), Lock::Exclusive).await?;
        let mut count = 0;
        while let Some(rows) = scan.next_batch(self).await? {
            // One that lies in several ranges is given once for each.
            let mut found = HashSet::new();
            for row in rows.ranged() {
                let (_, row) = row?;
                let mut key = Vec::new();
                table.core().write_key_of(|column| row.bytes(column), &mut key)?;
                found.insert(key);
            }
            for key in &found {
                self.define_encoded(table, OperationKind::Delete, key, &[])?;
            }
            count += found.len() as u64;
        }
        Ok(count)
    }

    /// Executes what was defined and commits. When this returns, the changes are in the memory of all replicas.
    ///
    /// Dropped before it was polled, it rolls back. Dropped later, it leaves the decision to the data nodes, as if it
    /// had been waited for: the transaction is committed with all its changes or rolled back, soon and without holding
    /// a lock for longer, but this caller does not learn which.
    ///
    /// # Errors
    /// Why the transaction was rolled back; or, of class `Unknown`, that it can't be said whether it was.
    pub async fn commit(mut self) -> Result<Committed> {
        let epoch = self.commit_in_place().await?;
        Ok(Committed { epoch, batch: self.batch.take() })
    }

    /// As [`Transaction::commit`]; but when `stop` is ready the commit is given up: if nothing is decided yet, perhaps
    /// because a lock is waited for, the transaction is rolled back at once. This caller learns what was decided.
    ///
    /// # Errors
    /// As of [`Transaction::commit`]; `TransactionAborted` if it was given up.
    pub async fn commit_unless(self, stop: impl Future<Output = ()>) -> Result<Committed> {
        let (token, engine) = (self.token, Arc::clone(&self.handle.engine));
        let (mut commit, mut stop) = (pin!(self.commit()), pin!(stop));
        let mut is_stopped = false;
        poll_fn(|context| {
            let committed = commit.as_mut().poll(context);
            if committed.is_pending() && !is_stopped && stop.as_mut().poll(context).is_ready() {
                is_stopped = true;
                engine.submit(|client| client.stop_commit(token));
            }
            committed
        })
        .await
    }

    /// Rolls back.
    ///
    /// # Errors
    /// If it was over already in another way.
    pub async fn roll_back(mut self) -> Result<()> {
        self.roll_back_in_place().await
    }
}

/// The batch to define operations in; results of an executed one are dropped.
fn open<'a>(batch: &'a mut Option<OperationBatch>, is_executed: &mut bool) -> Result<&'a mut OperationBatch> {
    let batch = batch.as_mut().ok_or_else(|| {
        Error::with_detail(ErrorCode::TransactionAborted, "a future of it was dropped while it waited")
    })?;
    if std::mem::take(is_executed) {
        batch.clear();
    }
    Ok(batch)
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.handle.engine.cancel(self.token);
    }
}

fn take_operations(client: &mut vinga_client_core::Client, token: Token) -> Option<OperationBatch> {
    client.take_operations(token)
}
