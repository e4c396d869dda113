//! Deliberate bugs: each breaks one rule of the protocols, so that a run of the simulator can show that its checkers
//! notice. They exist only in builds with the feature `injected-bugs`; in all others [`is_on`] is the constant `false`.

macro_rules! injected_bugs {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// A rule to be broken.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum InjectedBug {
            $($(#[$doc])* $name,)*
        }

        impl InjectedBug {
            /// All of them.
            pub const ALL: &'static [InjectedBug] = &[$(InjectedBug::$name,)*];

            /// The name by which the simulator's command line knows it.
            pub fn name(self) -> &'static str {
                match self {
                    $(InjectedBug::$name => $text,)*
                }
            }

            /// The bug of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|m| m.name() == name)
            }
        }
    };
}

injected_bugs! {
    /// The coordinator tells the API node "committed" when the first replica has committed, not the primary.
    AnswerBeforePrimary = "answer-before-primary";
    /// The coordinator sends `Abort` to every replica at once instead of along the chain.
    AbortToEveryReplica = "abort-to-every-replica";
    /// A backup that becomes primary goes on hiding what it has committed but not completed.
    PromotedHidesCommitted = "promoted-hides-committed";
    /// A forwarded `Prepare` does not resolve the earlier operations on its row.
    ForwardedDoesNotResolve = "forwarded-does-not-resolve";
    /// A scan sees own changes whatever their operation number.
    ScanSeesLaterOwnChanges = "scan-sees-later-own-changes";
    /// A shared lock does not keep an exclusive one out.
    SharedDoesNotBlockExclusive = "shared-does-not-block-exclusive";
    /// A partial rollback forgets the newest of the operations that it should undo.
    PartialRollbackKeepsLast = "partial-rollback-keeps-last";
    /// The outcome of a transaction is forgotten as soon as it was sent.
    OutcomeForgottenWhenSent = "outcome-forgotten-when-sent";
    /// A coordinator gives out its own epoch without regard to those of the operations.
    EpochIgnoresOperations = "epoch-ignores-operations";
    /// A data manager that prepares and commits in one step does so without regard to the epoch that it is given.
    OnePhaseTakesOwnEpoch = "one-phase-takes-own-epoch";
    /// When an API node fails, its locks stay.
    ApiFailureKeepsLocks = "api-failure-keeps-locks";
    /// An operation that skips a locked row stays in the queue for its lock.
    SkipLeavesQueueEntry = "skip-leaves-queue-entry";
    /// A read that may not wait counts as locking a row that others have locked.
    NoWaitReadCountsAsLock = "no-wait-read-counts-as-lock";
    /// Who is told to end a deadlock goes on waiting.
    DeadlockVictimGoesOn = "deadlock-victim-goes-on";
    /// A stale table version is accepted.
    StaleVersionAccepted = "stale-version-accepted";
    /// Waiters of a row that ceased to exist are dropped.
    WaitersOfVanishedRowLost = "waiters-of-vanished-row-lost";
    /// A resolved backup shows what is only prepared, as if it had been committed.
    ResolveShowsPrepared = "resolve-shows-prepared";
    /// A backup shows new versions at commit, before it knows that all have committed.
    BackupShowsAtCommit = "backup-shows-at-commit";
    /// A read runs although an earlier change of its own transaction waits for the row's lock.
    ReadOvertakesOwnWaiter = "read-overtakes-own-waiter";
    /// An API node that comes back is admitted before what it sent earlier was read and finished.
    ReconnectDoesNotWait = "reconnect-does-not-wait";
    /// The outcome of a commit that ends after its connection was lost is not kept.
    ClosedConnectionForgetsOutcomes = "closed-connection-forgets-outcomes";
    /// Markers stay when the API node has confirmed the outcome.
    SeenOutcomesKeepMarkers = "seen-outcomes-keep-markers";
    /// A backup removes the index entries of replaced versions at commit, though it goes on showing them.
    EntriesGoAtCommit = "entries-go-at-commit";
    /// A change that gives a row back a key that one of its versions has enters it not again.
    EntriesAreNotCounted = "entries-are-not-counted";
    /// A range scan does not look whether the version that it sees of a row has the entry's key.
    RangeScanTakesAnyVersion = "range-scan-takes-any-version";
    /// A scan that counts does not look what it sees of rows that operations name.
    CountTakesAnyVersion = "count-takes-any-version";
    /// A scan of a range takes an entry for its row though operations name it.
    EntryCoversNamedRow = "entry-covers-named-row";
    /// A client gives the rows of several partitions as they come, though they were to be merged.
    MergeIgnoresOrder = "merge-ignores-order";
    /// A locking scan takes rows that don't fit its range any more when they are locked.
    RecheckLeftOut = "recheck-left-out";
    /// A read by unique index does not look whether the base row still has the values.
    UniqueRecheckLeftOut = "unique-recheck-left-out";
    /// The error of a sub-operation on a unique index counts as success.
    SubErrorIgnored = "sub-error-ignored";
    /// A row whose unique column changes keeps its old place in the index.
    HiddenDeleteForgotten = "hidden-delete-forgotten";
    /// A transaction is committed before what follows in unique indexes is prepared.
    CommitBeforeSubs = "commit-before-subs";
    /// A partial rollback leaves what followed in unique indexes.
    PartialRollbackForgetsSubs = "partial-rollback-forgets-subs";
    /// A data manager goes on to accept a table's old version when the change is complete.
    CompleteKeepsOldVersion = "complete-keeps-old-version";
    /// A coordinator does not wait for transactions that use a table which is about to change.
    SwitchDoesNotWait = "switch-does-not-wait";
    /// The requester of a schema change is told before subscribers have confirmed the event.
    EventNotAwaited = "event-not-awaited";
    /// The write fence of an API node that has gone stays.
    FenceOutlivesOwner = "fence-outlives-owner";
    /// The schema lock of an API node that has gone stays.
    LockOutlivesOwner = "lock-outlives-owner";
    /// A refused schema change leaves what it had prepared.
    UndoForgetsPrepared = "undo-forgets-prepared";
}

/// Whether `bug` is the one that was chosen for this run.
#[inline(always)]
pub fn is_on(chosen: Option<InjectedBug>, bug: InjectedBug) -> bool {
    cfg!(feature = "injected-bugs") && chosen == Some(bug)
}
