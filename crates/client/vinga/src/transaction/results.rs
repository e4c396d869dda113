//! What the operations of a transaction have given: rows of its reads, and how each operation ended.

use crate::row::{ReadRow, Record};
use crate::table::Table;
use vinga_base::{Epoch, OperationNumber};
use vinga_client_core::{Error, OperationBatch, Result};
use vinga_wire::ErrorCode;

/// A read that was defined; its row is there when it has been executed.
pub struct Reading<R = Record> {
    pub(super) number: OperationNumber,
    pub(super) table: Table<R>,
}

impl<R> Reading<R> {
    /// Which of the transaction's operations it is.
    pub fn operation(&self) -> OperationNumber {
        self.number
    }

    /// The table that is read.
    pub fn table(&self) -> &Table<R> {
        &self.table
    }
}

/// A committed transaction.
pub struct Committed {
    pub(super) epoch: Epoch,
    pub(super) batch: Option<OperationBatch>,
}

impl Committed {
    /// The group of transactions that it becomes durable with; 0 if it did nothing.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The row of a read that was executed with the commit.
    ///
    /// # Errors
    /// Why it was not read.
    pub fn row<R: ReadRow>(&self, reading: &Reading<R>) -> Result<Option<R>> {
        row_of(self.batch.as_ref(), reading)
    }

    /// The bytes of that row, by the read's number, as [`Transaction::row_bytes`](crate::Transaction::row_bytes).
    ///
    /// # Errors
    /// Why it was not read.
    pub fn row_bytes(&self, operation: OperationNumber) -> Result<Option<&[u8]>> {
        bytes_of(self.batch.as_ref(), operation)
    }

    /// How an operation ended that was executed with the commit: one whose error undoes only itself may have failed.
    ///
    /// # Errors
    /// Why it failed.
    pub fn result(&self, operation: OperationNumber) -> Result<()> {
        result_of(self.batch.as_ref(), operation)
    }
}

pub(super) fn row_of<R: ReadRow>(batch: Option<&OperationBatch>, reading: &Reading<R>) -> Result<Option<R>> {
    bytes_of(batch, reading.number)?.map(|bytes| reading.table.read(bytes)).transpose()
}

pub(super) fn bytes_of(batch: Option<&OperationBatch>, operation: OperationNumber) -> Result<Option<&[u8]>> {
    let batch = batch.ok_or(ErrorCode::TransactionAborted)?;
    batch.result(operation).map_err(|error| error.at_operation(Some(operation)))
}

pub(super) fn result_of(batch: Option<&OperationBatch>, operation: OperationNumber) -> Result<()> {
    let batch = batch.ok_or(ErrorCode::TransactionAborted)?;
    let failed = |error: Error| {
        let index = batch.failed_index(operation).unwrap_or(0);
        error.at_operation(Some(operation)).at_index(index)
    };
    batch.result(operation).map(|_| ()).map_err(failed)
}
