//! The operations that a transaction sends together, and what came back: memory that its owner uses again and again.
//!
//! Operations are numbered within their transaction, from 1. A train that is cleared goes on with the next number.

use crate::error::{Error, Result};
use crate::operation::{OperationSpec, TRAIN_BYTES_MAX};
use alloc::vec::Vec;
use vinga_base::{Epoch, OperationNumber, PartitionId};
use vinga_wire::ErrorCode;
use vinga_wire::operation::{FLAG_ERROR_IS_LOCAL, OperationHead, OperationKind};
use vinga_wire::transaction::OPERATIONS_MAX;
use zerocopy::FromBytes;

/// How a transaction stands behind a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It goes on.
    Open,
    /// It is committed, in this epoch (0 if it did nothing).
    Committed(Epoch),
    /// It was rolled back, as was asked.
    RolledBack,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Waiting,
    Row { offset: usize, length: usize },
    NoRow,
    Failed(ErrorCode),
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    end: usize,
    kind: OperationKind,
    answer: Answer,
    /// The unique index that is to blame if it failed; 0 for the row itself.
    index: u16,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Train {
    first: u32,
    bytes: Vec<u8>,
    operations: Vec<Operation>,
    hint: Option<PartitionId>,
    rollback_from: Option<OperationNumber>,
    rows: Vec<u8>,
    standing: Option<Result<Standing>>,
}

impl Default for Train {
    /// A train for a new transaction.
    fn default() -> Self {
        Train {
            first: 1,
            bytes: Vec::new(),
            operations: Vec::new(),
            hint: None,
            rollback_from: None,
            rows: Vec::new(),
            standing: None,
        }
    }
}

impl Train {
    /// Empties it for the next operations of the same transaction; its memory stays.
    pub fn clear(&mut self) {
        self.first = self.next_number().0;
        self.bytes.clear();
        self.operations.clear();
        self.rollback_from = None;
        self.rows.clear();
        self.standing = None;
    }

    /// Empties it for another transaction; its memory stays.
    pub fn begin(&mut self) {
        self.clear();
        self.first = 1;
        self.hint = None;
    }

    /// Appends an operation; returns its number.
    ///
    /// # Errors
    /// `BadKey`, `BadRow` or `BadProgram`.
    pub fn push(&mut self, operation: &OperationSpec<'_>) -> Result<OperationNumber> {
        let number = self.next_number();
        let begin = self.bytes.len();
        let partition = operation.write(number, &mut self.bytes)?;
        if self.bytes.len() - begin > TRAIN_BYTES_MAX {
            self.bytes.truncate(begin);
            return Err(Error::with_detail(ErrorCode::TooManyOperations, "one operation is too long"));
        }
        self.hint = self.hint.or(Some(partition));
        self.operations.push(Operation {
            end: self.bytes.len(),
            kind: operation.kind,
            answer: Answer::Waiting,
            index: 0,
        });
        Ok(number)
    }

    /// The number that the next operation gets.
    pub fn next_number(&self) -> OperationNumber {
        OperationNumber(self.first + self.operations.len() as u32)
    }

    /// Undoes operations from this number on: those that wait here are dropped, those that were sent will be undone
    /// before the rest of this train is done.
    pub fn roll_back_to(&mut self, from: OperationNumber) {
        let keep = from.0.saturating_sub(self.first) as usize;
        if keep < self.operations.len() {
            self.operations.truncate(keep);
            self.bytes.truncate(self.operations.last().map_or(0, |last| last.end));
        }
        if from.0 < self.first {
            self.rollback_from = Some(self.rollback_from.map_or(from, |before| before.min(from)));
        }
    }

    /// Errors of the operations that wait here roll the transaction back, whatever was said when they were appended.
    pub fn make_strict(&mut self) {
        let mut begin = 0;
        for operation in &self.operations {
            let head = OperationHead::mut_from_prefix(&mut self.bytes[begin..operation.end]);
            let (head, _) = head.expect("each operation begins with its head");
            head.flags &= !FLAG_ERROR_IS_LOCAL;
            begin = operation.end;
        }
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether it has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Whether it changes anything: such a train must be answered before reads may go past it.
    pub fn has_changes(&self) -> bool {
        self.rollback_from.is_some() || self.operations.iter().any(|operation| operation.kind.is_change())
    }

    /// How the transaction stands.
    ///
    /// # Errors
    /// Why it was rolled back, or that its outcome is unknown.
    pub fn standing(&self) -> Result<Standing> {
        match &self.standing {
            Some(standing) => standing.clone(),
            None => Err(Error::with_detail(ErrorCode::InternalError, "the train was not sent")),
        }
    }

    /// What an operation of this train gave: the row of a read (`None` if there is none), nothing for a change.
    ///
    /// # Errors
    /// Why it failed, if it failed alone; or why its row was not received.
    pub fn result(&self, number: OperationNumber) -> Result<Option<&[u8]>, ErrorCode> {
        let at = number.0.checked_sub(self.first).map(|at| at as usize);
        match at.and_then(|at| self.operations.get(at)).map(|operation| operation.answer) {
            Some(Answer::Row { offset, length }) => Ok(Some(&self.rows[offset..offset + length])),
            Some(Answer::NoRow) => Ok(None),
            Some(Answer::Failed(code)) => Err(code),
            // It belongs to another train, or was never sent.
            Some(Answer::Waiting) | None => Err(ErrorCode::NoSuchTransaction),
        }
    }

    /// The unique index of its table because of which an operation of this train failed alone, if it was one.
    pub fn failed_index(&self, number: OperationNumber) -> Option<u16> {
        let operation = self.operations.get(number.0.checked_sub(self.first)? as usize)?;
        (operation.index != 0).then_some(operation.index)
    }

    pub(crate) fn hint(&self) -> Option<PartitionId> {
        self.hint
    }

    pub(crate) fn rollback_from(&self) -> Option<OperationNumber> {
        self.rollback_from
    }

    /// How many operations from this index on one signal can carry.
    pub(crate) fn share_from(&self, index: usize) -> usize {
        let begin = index.checked_sub(1).map_or(0, |before| self.operations[before].end);
        let fits = |operation: &&Operation| operation.end - begin <= TRAIN_BYTES_MAX;
        self.operations[index..].iter().take(OPERATIONS_MAX).take_while(fits).count()
    }

    /// The bytes of so many operations from an index on.
    pub(crate) fn share(&self, index: usize, count: usize) -> &[u8] {
        let end = |count: usize| count.checked_sub(1).map_or(0, |last| self.operations[last].end);
        &self.bytes[end(index)..end(index + count)]
    }

    /// Takes the row of a read over, or that there is none; false if that was not waited for.
    pub(crate) fn take_row(&mut self, number: u32, row: Option<&[u8]>) -> bool {
        let at = number.checked_sub(self.first).map(|at| at as usize);
        let Some(operation) = at.and_then(|at| self.operations.get_mut(at)) else { return false };
        if operation.answer != Answer::Waiting || !operation.kind.is_read() {
            return false;
        }
        operation.answer = match row {
            Some(row) => {
                let offset = self.rows.len();
                self.rows.extend_from_slice(row);
                Answer::Row { offset, length: row.len() }
            }
            None => Answer::NoRow,
        };
        true
    }

    /// Takes the error of one operation over; `None` if there is no such operation.
    pub(crate) fn take_error(&mut self, number: u32, code: ErrorCode, index: u16) -> Option<()> {
        let at = number.checked_sub(self.first)? as usize;
        let operation = self.operations.get_mut(at)?;
        operation.answer = Answer::Failed(code);
        operation.index = index;
        Some(())
    }

    /// It is over. Operations that were not answered are done, if they change something and nothing failed.
    pub(crate) fn finish(&mut self, standing: Result<Standing>) {
        for operation in &mut self.operations {
            if operation.answer == Answer::Waiting {
                operation.answer = match &standing {
                    Ok(_) if operation.kind.is_read() => Answer::Failed(ErrorCode::ConnectionLost),
                    Ok(_) => Answer::NoRow,
                    Err(error) => Answer::Failed(error.code()),
                };
            }
        }
        self.standing = Some(standing);
    }
}
