//! Operations that commit each by itself, and how each ended: memory that its owner uses again and again.

use crate::error::{Detailed, Error, Result};
use crate::operation::OperationSpec;
use alloc::vec::Vec;
use vinga_base::{OperationNumber, PartitionId};
use vinga_wire::ErrorCode;

/// How one operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Waiting,
    Committed,
    Failed(ErrorCode),
}

#[derive(Debug)]
struct Operation {
    end: usize,
    partition: PartitionId,
}

/// Operations that are sent together and commit one by one, and their results.
#[derive(Default, Debug)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    operations: Vec<Operation>,
    endings: Vec<Ending>,
    detailed: Detailed,
    waiting: u32,
}

impl WriteBatch {
    /// Empties it for other operations; its memory stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.operations.clear();
        self.endings.clear();
        self.waiting = 0;
    }

    /// Appends an operation: an insert, update, write or delete.
    ///
    /// # Errors
    /// `BadKey`, `BadRow` or `BadProgram`.
    #[inline]
    pub fn push(&mut self, operation: &OperationSpec<'_>) -> Result<()> {
        debug_assert!(operation.kind.is_change(), "only changes are committed by themselves");
        let hash = operation.write(OperationNumber(1), &mut self.bytes)?;
        let partition = operation.table.partition_of(hash);
        self.operations.push(Operation { end: self.bytes.len(), partition });
        Ok(())
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// How an operation ended, by the order in which they were appended.
    ///
    /// # Errors
    /// Why it was not committed, or that this is unknown.
    pub fn ending(&self, index: usize) -> Result<()> {
        match self.endings.get(index).copied().unwrap_or(Ending::Waiting) {
            Ending::Committed => Ok(()),
            Ending::Failed(code) => Err(self.detailed.error(index, code)),
            // It was never sent.
            Ending::Waiting => Err(ErrorCode::InternalError.into()),
        }
    }

    /// How all operations ended, in order.
    pub fn endings(&self) -> impl ExactSizeIterator<Item = Result<()>> {
        (0..self.len()).map(|index| self.ending(index))
    }

    pub(crate) fn become_waiting(&mut self) {
        self.endings.clear();
        self.detailed.clear();
        self.endings.resize(self.operations.len(), Ending::Waiting);
        self.waiting = self.operations.len() as u32;
    }

    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.waiting == 0
    }

    /// The bytes of an operation and the partition of its row.
    #[inline]
    pub(crate) fn operation(&self, index: usize) -> (&[u8], PartitionId) {
        let begin = index.checked_sub(1).map_or(0, |before| self.operations[before].end);
        let Operation { end, partition } = self.operations[index];
        (&self.bytes[begin..end], partition)
    }

    /// An operation was not begun.
    pub(crate) fn fail(&mut self, index: u32, error: &Error) {
        let code = self.detailed.keep(index, error);
        self.end(index, Ending::Failed(code));
    }

    #[inline]
    pub(crate) fn end(&mut self, index: u32, ending: Ending) {
        let place = &mut self.endings[index as usize];
        debug_assert_eq!(*place, Ending::Waiting, "each operation ends once");
        *place = ending;
        self.waiting -= 1;
    }
}
