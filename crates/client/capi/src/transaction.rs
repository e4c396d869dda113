//! Transactions.

use crate::border::{Items, Out};
use crate::call::calls;
use crate::cluster::Cluster;
use crate::connection::Waiting;
use crate::failure::{Failure, Misuse, Outcome};
use crate::handle::{Handle, Kind};
use crate::row::{Cells, Row};
use crate::table::Table;
use crate::update::Update;
use crate::value::{CValue, KeyValues};
use std::ffi::c_int;
use vinga::{Committed, Found, Lock, LockRequest, LockWait, OperationNumber, Reading, Savepoint};

/// A transaction handle's object.
pub struct Transaction {
    state: State,
    /// The reads that were defined since the last execution, or executed with it.
    readings: Vec<Reading<Cells>>,
    is_executed: bool,
    /// What has locked the row that was read last.
    locked_by: Option<OperationNumber>,
    savepoints: Vec<Savepoint>,
}

enum State {
    Open(vinga::Transaction),
    Committed(Committed),
    Over,
}

impl Kind for Transaction {
    const NUMBER: u8 = 8;
}

impl Transaction {
    fn open(&mut self) -> Outcome<&mut vinga::Transaction> {
        match &mut self.state {
            State::Open(transaction) => Ok(transaction),
            State::Committed(_) | State::Over => Err(Misuse::IsOver.into()),
        }
    }

    fn take_open(&mut self) -> Outcome<vinga::Transaction> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Open(transaction) => Ok(transaction),
            other => {
                self.state = other;
                Err(Misuse::IsOver.into())
            }
        }
    }

    /// Something is about to be defined: rows that were read before are gone.
    ///
    /// # Errors
    /// `IsOver`.
    pub fn define(&mut self) -> Outcome<&mut vinga::Transaction> {
        if std::mem::take(&mut self.is_executed) {
            self.readings.clear();
        }
        self.open()
    }

    /// A row was found, perhaps under a lock; gives it.
    pub fn found(&mut self, found: Found<Cells>) -> Option<Cells> {
        self.locked_by = None;
        if let Found::Row { operation, .. } = &found {
            self.locked_by = *operation;
        }
        found.row()
    }

    /// What was defined was executed.
    pub fn executed(&mut self) {
        self.is_executed = true;
    }
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_tx_begin(cluster: Handle<Cluster>, tx: Out<Handle<Transaction>>) -> c_int {
    cluster.with(|_, common| {
        let tx = tx.required()?;
        let connection = common.connection()?;
        let state = State::Open(connection.cluster.begin()?);
        let transaction = Transaction {
            state,
            readings: Vec::new(),
            is_executed: false,
            locked_by: None,
            savepoints: Vec::new(),
        };
        tx.put(Handle::create(Some(connection), transaction));
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_tx_close(tx: Handle<Transaction>) -> c_int {
    tx.close()
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_tx_set_lenient(tx: Handle<Transaction>, is_lenient: c_int) -> c_int {
    tx.with(|tx, _| {
        tx.open()?.set_lenient(is_lenient != 0);
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_tx_set_durable(tx: Handle<Transaction>, is_durable: c_int) -> c_int {
    tx.with(|tx, _| {
        tx.open()?.set_durable(is_durable != 0);
        Ok(())
    })
}

macro_rules! row_changes {
    ($($name:ident $change:ident)*) => {$(
        /// See `vinga.h`.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(tx: Handle<Transaction>, row: Handle<Row>, operation: Out<u32>) -> c_int {
            tx.with(|tx, _| {
                let row = row.look()?;
                operation.put(tx.define()?.$change(row.table(), row)?.0);
                Ok(())
            })
        }
    )*};
}

row_changes! {
    vinga_tx_insert insert
    vinga_tx_write write
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_tx_update(
    tx: Handle<Transaction>,
    table: Handle<Table>,
    key: Items<CValue>,
    count: usize,
    update: Handle<Update>,
    operation: Out<u32>,
) -> c_int {
    tx.with(|tx, _| {
        let key = KeyValues::new(key.get(count)?)?;
        let (table, update) = (table.look()?, update.look()?);
        operation.put(tx.define()?.update(table.inner(), key, update.inner())?.0);
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_tx_delete(
    tx: Handle<Transaction>,
    table: Handle<Table>,
    key: Items<CValue>,
    count: usize,
    operation: Out<u32>,
) -> c_int {
    tx.with(|tx, _| {
        let key = KeyValues::new(key.get(count)?)?;
        let table = table.look()?;
        operation.put(tx.define()?.delete(table.inner(), key)?.0);
        Ok(())
    })
}

/// How a lock that is asked for says what to do if others have the row locked.
pub mod lock_wait {
    /// Added to a lock: it is not waited for.
    pub const NO_WAIT: i32 = 16;
    /// Added to a lock: rows that others have locked are skipped.
    pub const SKIP_LOCKED: i32 = 32;
    /// Added to a lock: the same, and the committed version is read.
    pub const ELSE_COMMITTED: i32 = 64;
    /// For all locks of a transaction, beside milliseconds.
    pub const DEFAULT: i64 = -1;
    /// For all locks of a transaction: rows that others have locked are skipped.
    pub const SKIP: i64 = -2;
}

/// The lock of a number (`VINGA_LOCK_*`).
///
/// # Errors
/// `BadArgument`.
pub fn lock_of(lock: c_int) -> Outcome<LockRequest> {
    let wait = lock & !3;
    let lock = match lock & 3 {
        0 => Lock::None,
        1 => Lock::Shared,
        2 => Lock::Exclusive,
        _ => return Err(Failure::misuse(Misuse::BadArgument, "there is no such lock")),
    };
    Ok(match wait {
        0 => lock.into(),
        lock_wait::NO_WAIT => lock.no_wait(),
        lock_wait::SKIP_LOCKED => lock.skip_locked(),
        lock_wait::ELSE_COMMITTED => lock.else_committed(),
        _ => return Err(Failure::misuse(Misuse::BadArgument, "there is no such wait for a lock")),
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_tx_set_lock_wait(tx: Handle<Transaction>, wait: i64) -> c_int {
    tx.with(|tx, _| {
        let wait = match wait {
            lock_wait::DEFAULT => LockWait::Default,
            lock_wait::SKIP => LockWait::SkipLocked,
            0.. => LockWait::Millis(u32::try_from(wait).unwrap_or(LockWait::MILLIS_MAX)),
            _ => return Err(Failure::misuse(Misuse::BadArgument, "there is no such wait for locks")),
        };
        tx.open()?.set_lock_wait(wait);
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_tx_unlock(tx: Handle<Transaction>, operation: u32) -> c_int {
    tx.with(|tx, _| Ok(tx.open()?.unlock(OperationNumber(operation))?))
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_tx_locked_by(tx: Handle<Transaction>, operation: Out<u32>) -> c_int {
    tx.with(|tx, _| {
        operation.required()?.put(tx.locked_by.ok_or(Misuse::NotFound)?.0);
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_tx_committed_row(tx: Handle<Transaction>, operation: u32, row: Handle<Row>) -> c_int {
    tx.with(|tx, _| {
        let reading = tx.readings.iter().find(|reading| reading.operation().0 == operation);
        let Some(reading) = reading.filter(|_| tx.is_executed) else { return Err(Misuse::BadIndex.into()) };
        let cells = match &tx.state {
            State::Open(transaction) => transaction.committed_row(reading)?,
            State::Committed(_) | State::Over => return Err(Misuse::IsOver.into()),
        };
        row.change(|row| row.take(reading.table(), cells))
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_tx_define_read(
    tx: Handle<Transaction>,
    table: Handle<Table>,
    key: Items<CValue>,
    count: usize,
    lock: c_int,
    operation: Out<u32>,
) -> c_int {
    tx.with(|tx, _| {
        let operation = operation.required()?;
        let key = KeyValues::new(key.get(count)?)?;
        let table = table.look()?;
        let reading = tx.define()?.define_read(table.inner(), key, lock_of(lock)?)?;
        operation.put(reading.operation().0);
        tx.readings.push(reading);
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_tx_row(tx: Handle<Transaction>, operation: u32, row: Handle<Row>) -> c_int {
    tx.with(|tx, _| {
        let reading = tx.readings.iter().find(|reading| reading.operation().0 == operation);
        let Some(reading) = reading.filter(|_| tx.is_executed) else { return Err(Misuse::BadIndex.into()) };
        let cells = match &tx.state {
            State::Open(transaction) => transaction.row(reading)?,
            State::Committed(committed) => committed.row(reading)?,
            State::Over => return Err(Misuse::IsOver.into()),
        };
        row.change(|row| row.take(reading.table(), cells))
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_tx_result(tx: Handle<Transaction>, operation: u32) -> c_int {
    tx.with(|tx, _| Ok(tx.open()?.result(OperationNumber(operation))?))
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_tx_savepoint(tx: Handle<Transaction>, savepoint: Out<u32>) -> c_int {
    tx.with(|tx, _| {
        let place = tx.open()?.savepoint();
        savepoint.required()?.put(tx.savepoints.len() as u32);
        tx.savepoints.push(place);
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_tx_rollback_to(tx: Handle<Transaction>, savepoint: u32) -> c_int {
    tx.with(|tx, _| {
        let Some(&place) = tx.savepoints.get(savepoint as usize) else { return Err(Misuse::BadIndex.into()) };
        // Those behind it are gone with what they remembered.
        tx.savepoints.truncate(savepoint as usize + 1);
        Ok(tx.define()?.roll_back_to(place)?)
    })
}

fn execute(waiting: &Waiting<'_>, tx: &mut Transaction) -> Outcome {
    let connection = waiting.connection()?;
    let executed = waiting.wait_for(&connection, tx.define()?.execute());
    tx.executed();
    executed
}

fn read(
    waiting: &Waiting<'_>,
    tx: &mut Transaction,
    table: Handle<Table>,
    key: Items<CValue>,
    count: usize,
    lock: c_int,
    row: Handle<Row>,
) -> Outcome {
    let connection = waiting.connection()?;
    let table = table.look()?.inner().clone();
    row.look()?;
    let key = KeyValues::new(key.get(count)?)?;
    let open = tx.define()?;
    let request = lock_of(lock)?;
    let read = match request.lock() {
        Lock::None => waiting.wait_for(&connection, open.read(&table, key)).map(|row| match row {
            Some(row) => Found::Row { row, operation: None },
            None => Found::NoRow,
        }),
        Lock::Shared | Lock::Exclusive => waiting.wait_for(&connection, open.find(&table, key, request)),
    };
    tx.executed();
    let cells = tx.found(read?);
    row.change(|row| row.take(&table, cells))
}

fn commit(waiting: &Waiting<'_>, tx: &mut Transaction, epoch: Out<u64>) -> Outcome {
    let connection = waiting.connection()?;
    tx.define()?;
    let committed = waiting.wait_for(&connection, tx.take_open()?.commit())?;
    epoch.put(committed.epoch().0);
    tx.executed();
    tx.state = State::Committed(committed);
    Ok(())
}

fn roll_back(waiting: &Waiting<'_>, tx: &mut Transaction) -> Outcome {
    let connection = waiting.connection()?;
    waiting.wait_for(&connection, tx.take_open()?.roll_back())
}

calls! {
    fn vinga_tx_execute, vinga_tx_execute_start, vinga_tx_execute_cont (tx: Transaction) = execute;
    fn vinga_tx_read, vinga_tx_read_start, vinga_tx_read_cont
        (tx: Transaction, table: Handle<Table>, key: Items<CValue>, count: usize, lock: c_int, row: Handle<Row>)
        = read;
    fn vinga_tx_commit, vinga_tx_commit_start, vinga_tx_commit_cont (tx: Transaction, epoch: Out<u64>) = commit;
    fn vinga_tx_rollback, vinga_tx_rollback_start, vinga_tx_rollback_cont (tx: Transaction) = roll_back;
}
