//! The records of operations, and of the transactions that they belong to.

use vinga_base::pool::Handle;
use vinga_base::{Epoch, PartitionId, RowId, TransactionId};
use vinga_fragment::chunk_store::ChunkRef;
use vinga_fragment::row_version::RowVersion;
use vinga_kernel::{Span, Tick};
use vinga_wire::commit::{Actor, Chain, PreparedOperation};
use vinga_wire::operation::{LockWait, OperationHead, OperationKind};
use vinga_wire::{Address, U16, U32};

/// What an operation would make of its row.
#[derive(PartialEq, Eq, Debug)]
pub enum Change {
    /// Nothing: it holds a lock.
    None,
    /// The row is new: the image stands in the slot, which is pending.
    Insert,
    /// Another image, ready to be installed without needing memory.
    Replace(RowVersion),
    /// The row goes away.
    Delete,
}

/// Where an operation stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// In the queue for a lock; the operation as it came is kept to be run when the lock is granted.
    Waiting {
        /// The operation's bytes, as in the signal.
        request: ChunkRef,
        /// Since when.
        since: Tick,
    },
    /// Done as far as it can be undone.
    Prepared,
    /// Final. At a backup `shown` says whether readers see it already.
    Committed {
        /// In which epoch.
        epoch: Epoch,
        /// Whether the slot holds it.
        shown: bool,
    },
}

/// How long an operation may wait for its lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// As long as is usual, however often its row goes and comes back.
    Usual,
    /// Not at all; its error is what it is.
    NoWait,
    /// Not at all; its error is its own.
    SkipLocked,
    /// The same, and a read gives the committed version.
    ElseCommitted,
    /// Until then, however often it waits.
    Until(Tick),
}

impl Patience {
    /// That of an operation that has just come.
    pub fn of(head: &OperationHead, now: Tick) -> Self {
        match head.wait() {
            LockWait::Default => Patience::Usual,
            LockWait::NoWait => Patience::NoWait,
            LockWait::SkipLocked => Patience::SkipLocked,
            LockWait::ElseCommitted => Patience::ElseCommitted,
            LockWait::Millis(millis) => Patience::Until(now + Span::from_millis(millis.into())),
        }
    }

    /// Whether it may wait at all.
    pub fn may_wait(self) -> bool {
        matches!(self, Patience::Usual | Patience::Until(_))
    }

    /// Whether that others have locked its row is no error of the transaction.
    pub fn skips(self) -> bool {
        matches!(self, Patience::SkipLocked | Patience::ElseCommitted)
    }
}

/// What an operation is called within its transaction; in this order they are carried out on a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OperationName {
    /// Its number in the transaction; a sub-operation has that of the operation from which it follows.
    pub number: u32,
    /// Of a sub-operation its number there, from 1; 0 for others.
    pub sub: u8,
}

impl OperationName {
    pub fn of(head: &OperationHead) -> Self {
        OperationName { number: head.number.get(), sub: head.sub }
    }

    /// The answer about it.
    pub fn answer(self, code: u16, flags: u8) -> PreparedOperation {
        PreparedOperation { operation: U32::new(self.number), code: U16::new(code), flags, sub: self.sub }
    }
}

/// One operation.
pub struct OperationRecord {
    pub transaction: Handle,
    /// Its number in the transaction.
    pub number: u32,
    /// Which of the sub-operations of that number, on hidden tables; 0 for the operation itself.
    pub sub: u8,
    pub kind: OperationKind,
    /// Whether its error leaves the transaction open.
    pub error_is_local: bool,
    pub patience: Patience,
    pub state: State,
    pub change: Change,
    pub table: u32,
    pub partition: PartitionId,
    /// The row; meaningless while waiting and once shown.
    pub row: RowId,
    /// The row's state record; `None` when the operation has let go of the row.
    pub row_state: Option<Handle>,
    /// The older change of the same transaction to the same row.
    pub older_change: Option<Handle>,
    /// Its entry in the lock table, as holder or as waiter.
    pub lock: Option<Handle>,
    /// Since when it waits, however often its row has gone and come back; `None` if it has never waited. It is in the
    /// queue of time-outs once.
    pub waits_since: Option<Tick>,
    /// It stands in the queue of those that probes are sent for.
    pub is_noted: bool,
    /// Bytes that it has reserved in the log.
    pub reserved: u32,
    /// The replicas of the operation.
    pub chain: Chain,
    /// The operation of the transaction that came here before this one.
    pub next: Option<Handle>,
}

impl OperationRecord {
    pub fn name(&self) -> OperationName {
        OperationName { number: self.number, sub: self.sub }
    }
}

/// The least number of a transaction's operations that change something, as far as it is known without a look at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstChange {
    /// No operation changes anything.
    None,
    /// This one.
    Is(u32),
    /// The one that was it has gone, and others may be left.
    Unknown,
}

impl FirstChange {
    /// With an operation of this number that changes something, too.
    #[must_use]
    pub fn with(self, number: u32) -> Self {
        match self {
            FirstChange::None => FirstChange::Is(number),
            FirstChange::Is(known) => FirstChange::Is(known.min(number)),
            FirstChange::Unknown => FirstChange::Unknown,
        }
    }

    /// Without an operation of this number, or with one that changes nothing any more.
    #[must_use]
    pub fn without(self, number: u32) -> Self {
        if self == FirstChange::Is(number) { FirstChange::Unknown } else { self }
    }
}

/// What a transaction has at this data manager.
pub struct TransactionRecord {
    pub id: TransactionId,
    /// On whose behalf answers go, and to whom.
    pub actor: Actor,
    /// The API node's client.
    pub api: Address,
    /// The operation that came last; the others follow.
    pub operations: Option<Handle>,
    /// How many these are.
    pub count: u32,
    /// How many of them wait: most often none, and then none has to be looked for among many.
    pub waiting: u32,
    /// The least number of those that change something, waiting ones included.
    pub first_change: FirstChange,
    /// Number of the operation that leaves a marker when the transaction is complete; 0 for none.
    pub marker: u32,
    /// Whether one of them, or one that has gone, changes a table whose backups answer reads.
    pub is_read_at_backups: bool,
    /// The epoch in which the transaction is committed here, from the moment when that begins; 0 before.
    pub committed: Epoch,
}

impl TransactionRecord {
    /// Of a transaction whose first operation follows.
    pub fn new(id: TransactionId, actor: Actor, api: Address) -> Self {
        TransactionRecord {
            id,
            actor,
            api,
            operations: None,
            count: 0,
            waiting: 0,
            first_change: FirstChange::None,
            marker: 0,
            is_read_at_backups: false,
            committed: Epoch(0),
        }
    }
}
