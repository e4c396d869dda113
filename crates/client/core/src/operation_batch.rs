//! The operations that a transaction sends together, and what came back: memory that its owner uses again and again.
//!
//! Operations are numbered within their transaction, from 1. A batch that is cleared goes on with the next number.
//!
//! Locks that reads have taken can be let go of ([`OperationBatch::unlock`]), also while the results of the batch are
//! still looked at: what lets go of them is put in front of the operations that are appended next.

use crate::error::{Detailed, Error, Result};
use crate::operation::{BATCH_BYTES_MAX, OperationSpec, TakenLock};
use alloc::format;
use alloc::vec::Vec;
use vinga_base::{Epoch, OperationNumber, PartitionId};
use vinga_wire::ErrorCode;
use vinga_wire::operation::{FLAG_ERROR_IS_LOCAL, LockWait, OperationHead, OperationKind};
use vinga_wire::transaction::OPERATIONS_MAX;
use zerocopy::FromBytes;

/// How a transaction stands behind a batch.
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
    Row(Place),
    NoRow,
    Failed(ErrorCode),
    /// Others have the row locked: its committed version, if there is one.
    Locked(Option<Place>),
}

/// Where a row stands among those of its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    offset: usize,
    length: usize,
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    end: usize,
    kind: OperationKind,
    /// Where its row is.
    partition: PartitionId,
    /// A read that gives the committed version of a row that others have locked.
    else_committed: bool,
    /// Its error leaves the transaction open.
    error_is_local: bool,
    answer: Answer,
    /// The unique index that is to blame if it failed; 0 for the row itself.
    index: u16,
}

impl Operation {
    /// Whether its row is still to come, or word that there is none.
    fn awaits_row(&self) -> bool {
        match self.answer {
            Answer::Waiting => self.kind.is_read(),
            Answer::Failed(ErrorCode::RowLocked) => self.else_committed,
            Answer::Row(_) | Answer::NoRow | Answer::Failed(_) | Answer::Locked(_) => false,
        }
    }
}

/// A batch of a transaction's operations, and their results.
#[derive(Debug)]
pub struct OperationBatch {
    first: u32,
    bytes: Vec<u8>,
    operations: Vec<Operation>,
    hint: Option<PartitionId>,
    rollback_from: Option<OperationNumber>,
    rows: Vec<u8>,
    detailed: Detailed,
    standing: Option<Result<Standing>>,
    /// Locks that reads of the transaction have asked for, by ascending number.
    locks: Vec<TakenLock>,
    /// Of these, the places of those that are to be let go of.
    unlocks: Vec<u32>,
}

impl Default for OperationBatch {
    /// A batch for a new transaction.
    fn default() -> Self {
        OperationBatch {
            first: 1,
            bytes: Vec::new(),
            operations: Vec::new(),
            hint: None,
            rollback_from: None,
            rows: Vec::new(),
            detailed: Detailed::default(),
            standing: None,
            locks: Vec::new(),
            unlocks: Vec::new(),
        }
    }
}

impl OperationBatch {
    /// Empties it for the next operations of the same transaction; its memory stays.
    pub fn clear(&mut self) {
        self.first = self.next_number().0;
        self.bytes.clear();
        self.operations.clear();
        self.rollback_from = None;
        self.rows.clear();
        self.detailed.clear();
        self.standing = None;
    }

    /// Empties it for another transaction; its memory stays.
    pub fn begin(&mut self) {
        self.clear();
        self.first = 1;
        self.hint = None;
        self.locks.clear();
        self.unlocks.clear();
    }

    /// Appends an operation; returns its number.
    ///
    /// # Errors
    /// `BadKey`, `BadRow` or `BadProgram`.
    pub fn push(&mut self, operation: &OperationSpec<'_>) -> Result<OperationNumber> {
        self.push_unlocks();
        let number = self.next_number();
        let begin = self.bytes.len();
        let hash = operation.write(number, &mut self.bytes)?;
        if self.bytes.len() - begin > BATCH_BYTES_MAX {
            self.bytes.truncate(begin);
            return Err(Error::with_detail(ErrorCode::TooManyOperations, "one operation is too long"));
        }
        let partition = operation.table.partition_of(hash);
        self.hint = self.hint.or(Some(partition));
        if matches!(operation.kind, OperationKind::ReadShared | OperationKind::ReadExclusive) {
            self.locks.push(TakenLock::new(number, operation.table, hash));
        }
        let else_committed = operation.wait == LockWait::ElseCommitted && operation.kind.is_read();
        let (kind, end) = (operation.kind, self.bytes.len());
        self.operations.push(Operation {
            end,
            kind,
            partition,
            else_committed,
            error_is_local: operation.error_is_local,
            answer: Answer::Waiting,
            index: 0,
        });
        Ok(number)
    }

    /// The lock that a read of the transaction has taken is to be let go of, in front of the operation that is appended
    /// next. Nothing happens if it has taken none. What other operations hold of the row they go on holding.
    ///
    /// # Errors
    /// `BadProgram` if the transaction has no locking read of this number.
    pub fn unlock(&mut self, read: OperationNumber) -> Result<()> {
        let Ok(at) = self.locks.binary_search_by_key(&read, |lock| lock.read) else {
            let detail = format!("operation {} is no read with a lock", read.0);
            return Err(Error::with_detail(ErrorCode::BadProgram, detail));
        };
        self.unlocks.push(at as u32);
        Ok(())
    }

    /// Appends what lets go of the locks that are not wanted any more.
    pub fn push_unlocks(&mut self) {
        for next in 0..self.unlocks.len() {
            let number = self.next_number();
            let lock = &self.locks[self.unlocks[next] as usize];
            lock.write_unlock(number, &mut self.bytes);
            self.operations.push(Operation {
                end: self.bytes.len(),
                kind: OperationKind::Unlock,
                partition: lock.partition,
                else_committed: false,
                error_is_local: true,
                answer: Answer::Waiting,
                index: 0,
            });
        }
        self.unlocks.clear();
    }

    /// The transaction ends: no lock need be let go of before.
    pub fn forget_unlocks(&mut self) {
        self.unlocks.clear();
    }

    /// The number that the next operation gets.
    pub fn next_number(&self) -> OperationNumber {
        OperationNumber(self.first + self.operations.len() as u32)
    }

    /// Undoes operations from this number on: those that wait here are dropped, those that were sent will be undone
    /// before the rest of this batch is done.
    pub fn roll_back_to(&mut self, from: OperationNumber) {
        let keep = from.0.saturating_sub(self.first) as usize;
        if keep < self.operations.len() {
            self.operations.truncate(keep);
            self.bytes.truncate(self.operations.last().map_or(0, |last| last.end));
            // Their numbers are given again; locks of what was sent stay.
            let unsent = self.next_number();
            self.locks.truncate(self.locks.partition_point(|lock| lock.read < unsent));
            let kept = self.locks.len();
            self.unlocks.retain(|&at| (at as usize) < kept);
        }
        if from.0 < self.first {
            self.rollback_from = Some(self.rollback_from.map_or(from, |before| before.min(from)));
        }
    }

    /// Errors of the operations that wait here roll the transaction back, whatever was said when they were appended.
    pub fn make_strict(&mut self) {
        let mut begin = 0;
        for operation in &mut self.operations {
            let head = OperationHead::mut_from_prefix(&mut self.bytes[begin..operation.end]);
            let (head, _) = head.expect("each operation begins with its head");
            if operation.kind != OperationKind::Unlock {
                head.flags &= !FLAG_ERROR_IS_LOCAL;
                operation.error_is_local = false;
            }
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

    /// Whether it changes anything: such a batch must be answered before reads may go past it.
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
            None => Err(Error::with_detail(ErrorCode::InternalError, "the batch was not sent")),
        }
    }

    /// What an operation of this batch gave: the row of a read (`None` if there is none), nothing for a change.
    ///
    /// # Errors
    /// Why it failed, if it failed alone; or why its row was not received.
    pub fn result(&self, number: OperationNumber) -> Result<Option<&[u8]>> {
        let at = number.0.checked_sub(self.first).map(|at| at as usize);
        match at.and_then(|at| self.operations.get(at)).map(|operation| operation.answer) {
            Some(Answer::Row(place)) => Ok(Some(self.bytes_at(place))),
            Some(Answer::NoRow) => Ok(None),
            Some(Answer::Failed(code)) => Err(self.detailed.error(at.unwrap_or(usize::MAX), code)),
            Some(Answer::Locked(_)) => Err(ErrorCode::RowLocked.into()),
            // It belongs to another batch, or was never sent.
            Some(Answer::Waiting) | None => Err(ErrorCode::NoSuchTransaction.into()),
        }
    }

    /// The committed version of the row of a read that was to give it if others have the row locked, and they have:
    /// such a read has failed with `RowLocked`. `None` if there is none, or the filter rejects it.
    ///
    /// # Errors
    /// `NoSuchTransaction` if the operation is none of that kind, or has ended otherwise.
    pub fn committed(&self, number: OperationNumber) -> Result<Option<&[u8]>, ErrorCode> {
        let at = number.0.checked_sub(self.first).map(|at| at as usize);
        match at.and_then(|at| self.operations.get(at)).map(|operation| operation.answer) {
            Some(Answer::Locked(place)) => Ok(place.map(|place| self.bytes_at(place))),
            Some(Answer::Row(_) | Answer::NoRow | Answer::Failed(_) | Answer::Waiting) | None => {
                Err(ErrorCode::NoSuchTransaction)
            }
        }
    }

    fn bytes_at(&self, Place { offset, length }: Place) -> &[u8] {
        &self.rows[offset..offset + length]
    }

    /// The unique index of its table because of which an operation of this batch failed alone, if it was one.
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
        let fits = |operation: &&Operation| operation.end - begin <= BATCH_BYTES_MAX;
        self.operations[index..].iter().take(OPERATIONS_MAX).take_while(fits).count()
    }

    /// The bytes of so many operations from an index on.
    pub(crate) fn share(&self, index: usize, count: usize) -> &[u8] {
        let end = |count: usize| count.checked_sub(1).map_or(0, |last| self.operations[last].end);
        &self.bytes[end(index)..end(index + count)]
    }

    /// Of the first so many operations, the partitions of those whose rows are still to come.
    pub(crate) fn awaited_rows(&self, sent: usize) -> impl Iterator<Item = PartitionId> {
        let sent = self.operations[..sent].iter();
        sent.filter(|operation| operation.awaits_row()).map(|operation| operation.partition)
    }

    /// Takes the row of a read over, or that there is none; false if that was not waited for.
    pub(crate) fn take_row(&mut self, number: u32, row: Option<&[u8]>) -> bool {
        let at = number.checked_sub(self.first).map(|at| at as usize);
        let Some(operation) = at.and_then(|at| self.operations.get_mut(at)) else { return false };
        // The error may come before the committed version that belongs to it.
        let is_locked = operation.answer == Answer::Failed(ErrorCode::RowLocked);
        if operation.answer != Answer::Waiting && !is_locked || !operation.kind.is_read() {
            return false;
        }
        let place = row.map(|row| {
            let offset = self.rows.len();
            self.rows.extend_from_slice(row);
            Place { offset, length: row.len() }
        });
        operation.answer = match place {
            _ if is_locked => Answer::Locked(place),
            Some(place) => Answer::Row(place),
            None => Answer::NoRow,
        };
        true
    }

    /// Takes the error of one operation over; `None` if there is no such operation.
    pub(crate) fn take_error(&mut self, number: u32, code: ErrorCode, index: u16) -> Option<()> {
        let at = number.checked_sub(self.first)? as usize;
        let operation = self.operations.get_mut(at)?;
        operation.answer = match operation.answer {
            Answer::Row(place) if code == ErrorCode::RowLocked => Answer::Locked(Some(place)),
            Answer::NoRow if code == ErrorCode::RowLocked => Answer::Locked(None),
            Answer::Row(_) | Answer::NoRow | Answer::Waiting | Answer::Failed(_) | Answer::Locked(_) => {
                Answer::Failed(code)
            }
        };
        operation.index = index;
        Some(())
    }

    /// The transaction is committed, but the answer to this batch was lost, and with it which operations have failed
    /// alone. Nobody knows that of a change, nor whether a read has got the lock that it could do without.
    /// `has_changed`: some change of this batch is done; if it has one only, it is that one.
    pub(crate) fn lose_errors(&mut self, has_changed: bool) {
        let changes = self.operations.iter().filter(|operation| operation.kind.is_change()).count();
        let is_done = has_changed && changes == 1;
        for operation in &mut self.operations {
            let is_unknown = operation.error_is_local && operation.kind.is_change() && !is_done;
            if is_unknown && operation.answer == Answer::Waiting || operation.else_committed {
                operation.answer = Answer::Failed(ErrorCode::UnknownOutcome);
            }
        }
    }

    /// What has been answered does not hold: it is sent once more.
    pub(crate) fn forget_answers(&mut self) {
        for operation in &mut self.operations {
            (operation.answer, operation.index) = (Answer::Waiting, 0);
        }
        self.rows.clear();
    }

    /// Whether all of a transaction that is committed with this batch can be done again: it has only read.
    fn may_be_repeated(&self) -> bool {
        self.first == 1 && !self.operations.iter().any(|operation| operation.kind.is_change())
    }

    /// It is over. Operations that were not answered are done, if they change something and nothing failed; if they
    /// read, `why_lost` says of a partition why its rows have not come. Of a transaction that has been committed this
    /// must not look as if it could be repeated.
    pub(crate) fn finish(&mut self, standing: Result<Standing>, why_lost: impl Fn(PartitionId) -> Error) {
        let has_changed = matches!(standing, Ok(Standing::Committed(_))) && !self.may_be_repeated();
        for (index, operation) in (0..).zip(&mut self.operations) {
            if operation.answer == Answer::Waiting {
                operation.answer = match &standing {
                    Ok(_) if operation.kind.is_read() && has_changed => Answer::Failed(ErrorCode::RowLost),
                    Ok(_) if operation.kind.is_read() => {
                        let error = why_lost(operation.partition);
                        Answer::Failed(self.detailed.keep(index, &error))
                    }
                    Ok(_) => Answer::NoRow,
                    Err(error) => Answer::Failed(error.code()),
                };
            }
        }
        self.standing = Some(standing);
    }
}
