//! How rows are locked that are read in a transaction, and how long that may take.

use std::time::Duration;
use vinga_wire::operation::OperationKind;

pub use vinga_wire::operation::LockWait;

/// How a row is held that is read in a transaction.
///
/// With how long its lock is waited for, if that is not to be as the [transaction](crate::Transaction::set_lock_wait)
/// says: `Lock::Exclusive.no_wait()`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lock {
    /// Not at all: the committed row, or the transaction's own version of it.
    None,
    /// Nobody else can change it before the transaction ends.
    Shared,
    /// Nobody else can change or lock it before the transaction ends.
    Exclusive,
}

impl Lock {
    pub(crate) fn kind(self) -> OperationKind {
        match self {
            Lock::None => OperationKind::ReadCommitted,
            Lock::Shared => OperationKind::ReadShared,
            Lock::Exclusive => OperationKind::ReadExclusive,
        }
    }

    /// This lock, waited for so long.
    pub fn waiting(self, wait: LockWait) -> LockRequest {
        LockRequest { lock: self, wait: Some(wait) }
    }

    /// This lock at once or not at all: [`LockWait::NoWait`].
    pub fn no_wait(self) -> LockRequest {
        self.waiting(LockWait::NoWait)
    }

    /// This lock, and rows that others have locked are passed over: [`LockWait::SkipLocked`].
    pub fn skip_locked(self) -> LockRequest {
        self.waiting(LockWait::SkipLocked)
    }

    /// This lock, and the committed version of a row that others have locked: [`LockWait::ElseCommitted`].
    pub fn else_committed(self) -> LockRequest {
        self.waiting(LockWait::ElseCommitted)
    }

    /// This lock within so much time, in whole milliseconds, rounded up: [`LockWait::Millis`].
    pub fn within(self, longest: Duration) -> LockRequest {
        let millis = longest.as_nanos().div_ceil(1_000_000);
        self.waiting(LockWait::Millis(u32::try_from(millis).unwrap_or(u32::MAX)))
    }
}

/// A lock and how long it is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRequest {
    pub(crate) lock: Lock,
    /// `None`: as the transaction says.
    pub(crate) wait: Option<LockWait>,
}

impl LockRequest {
    /// How the row is held.
    pub fn lock(self) -> Lock {
        self.lock
    }
}

impl From<Lock> for LockRequest {
    fn from(lock: Lock) -> Self {
        LockRequest { lock, wait: None }
    }
}

/// A row that was to be locked: by key ([`crate::Transaction::find`]) or by a unique index
/// ([`crate::Transaction::find_by`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found<R> {
    /// There is none, and nothing is locked.
    NoRow,
    /// It was found.
    Row {
        /// It.
        row: R,
        /// The operation that has locked it, for [`crate::Transaction::unlock`]; `None` if it was read without a lock.
        operation: Option<vinga_base::OperationNumber>,
    },
    /// Others have it locked, or its place in the index, and such rows are skipped.
    NotLocked {
        /// Its committed version, with [`LockWait::ElseCommitted`]: as a read without a lock would give it. `None` if
        /// there is none, as of a row that somebody is about to insert.
        committed: Option<R>,
    },
}

impl<R> Found<R> {
    /// The row, if it was found as it was asked for.
    pub fn row(self) -> Option<R> {
        match self {
            Found::Row { row, .. } => Some(row),
            Found::NoRow | Found::NotLocked { .. } => None,
        }
    }

    /// The same with the row made into something else.
    pub(crate) fn try_map<S, E>(self, mut make: impl FnMut(R) -> Result<S, E>) -> Result<Found<S>, E> {
        Ok(match self {
            Found::NoRow => Found::NoRow,
            Found::Row { row, operation } => Found::Row { row: make(row)?, operation },
            Found::NotLocked { committed } => {
                Found::NotLocked { committed: committed.map(make).transpose()? }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_and_bounded() {
        let wait = |longest| Lock::Shared.within(longest).wait;
        assert_eq!(wait(Duration::ZERO), Some(LockWait::Millis(0)));
        assert_eq!(wait(Duration::from_nanos(1)), Some(LockWait::Millis(1)));
        assert_eq!(wait(Duration::from_millis(1500)), Some(LockWait::Millis(1500)));
        assert_eq!(wait(Duration::MAX), Some(LockWait::Millis(u32::MAX)));
    }
}
