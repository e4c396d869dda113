//! Deliberate bugs: each breaks one rule of the protocols, so that a run of the simulator can show that its checkers
//! notice. They exist only in builds with the feature `injected-bugs`; in all others [`is_on`] is the constant `false`.

macro_rules! injected_bugs {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// A rule of a protocol that can be broken on purpose.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum InjectedBug {
            $($(#[$doc])* $name,)*
        }

        impl InjectedBug {
            /// All of them.
            pub const ALL: &'static [InjectedBug] = &[$(InjectedBug::$name,)*];

            /// Its name on the simulator's command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(InjectedBug::$name => $text,)*
                }
            }

            /// The bug with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|m| m.name() == name)
            }
        }
    };
}

injected_bugs! {
    /// A data manager goes on obeying a coordinator that has failed, by way of survivors.
    DeadCoordinatorGoesOn = "dead-coordinator-goes-on";
    /// A data manager does not report its markers to a successor.
    TakeOverForgetsMarkers = "take-over-forgets-markers";
    /// A successor rolls back what one replica has committed.
    TakeOverIgnoresCommits = "take-over-ignores-commits";
    /// A successor has the primary commit first.
    TakeOverCommitsForwards = "take-over-commits-forwards";
    /// A successor does not have the records of what it has committed dropped.
    TakeOverLeavesRecords = "take-over-leaves-records";
    /// A successor answers before it has all reports.
    TakeOverAnswersEarly = "take-over-answers-early";
    /// A successor decides when the first data manager has reported everything.
    TakeOverDecidesEarly = "take-over-decides-early";
    /// Epochs close although transactions of a dead coordinator are being ended in them.
    EpochClosesBeforeTakeOver = "epoch-closes-before-take-over";
    /// A schema change goes on although transactions of a dead coordinator still use its table.
    SchemaForgetsOrphans = "schema-forgets-orphans";
    /// A primary drops the records of a commit at once where it happens to be the only replica.
    RecordSparedOnShortChain = "record-spared-on-short-chain";
    /// The coordinator confirms the commit to the API node when the first replica has committed, not the primary.
    AnswerBeforePrimary = "answer-before-primary";
    /// The coordinator answers a commit of a table whose backups answer reads before all replicas show it.
    AnswerBeforeComplete = "answer-before-complete";
    /// A successor informs API nodes of a commit of a table whose backups answer reads before all replicas show it.
    TakeOverAnswersBeforeComplete = "take-over-answers-before-complete";
    /// A coordinator rolls back what a replica may have committed by itself when another one has failed, and asks
    /// nobody.
    InDoubtIsRolledBack = "in-doubt-is-rolled-back";
    /// A coordinator that asks replicas about a transaction in doubt does not begin anew when another one fails.
    InDoubtIsAskedOnce = "in-doubt-is-asked-once";
    /// The last replica draws the permission to commit by itself from a prepare of an earlier view.
    LastOfOlderViewCommits = "last-of-older-view-commits";
    /// A primary commits when it has sent the last operation on, instead of when the replicas behind it have committed.
    LastCommitsAtPrimary = "last-commits-at-primary";
    /// The last replica, when it commits by itself, names no operation that leaves the marker.
    LastLeavesNoMarker = "last-leaves-no-marker";
    /// The coordinator sends `Abort` to every replica at once instead of along the chain.
    AbortToEveryReplica = "abort-to-every-replica";
    /// A backup that becomes primary continues to hide what it has committed but not completed.
    PromotedHidesCommitted = "promoted-hides-committed";
    /// A forwarded `Prepare` does not resolve the earlier operations on its row.
    ForwardedDoesNotResolve = "forwarded-does-not-resolve";
    /// A scan sees changes of its own transaction whatever their operation number.
    ScanSeesLaterOwnChanges = "scan-sees-later-own-changes";
    /// A shared lock does not exclude an exclusive one.
    SharedDoesNotBlockExclusive = "shared-does-not-block-exclusive";
    /// A partial rollback does not undo the last of its operations.
    PartialRollbackKeepsLast = "partial-rollback-keeps-last";
    /// A partial rollback releases the locks of what it undoes.
    PartialRollbackLetsGo = "partial-rollback-lets-go";
    /// Shared reads of a transaction's last batch take no locks if the batch changes something.
    LastReadsTakeNoLock = "last-reads-take-no-lock";
    /// A shared read of a transaction that has changed something passes a lock that it should wait for.
    ChangerReadsPastLock = "changer-reads-past-lock";
    /// A transaction goes on although a node has failed at which it held nothing but read locks.
    LostReadLocksIgnored = "lost-read-locks-ignored";
    /// The outcome of a transaction is forgotten as soon as it is sent.
    OutcomeForgottenWhenSent = "outcome-forgotten-when-sent";
    /// A coordinator assigns its own epoch without regard to those of the operations.
    EpochIgnoresOperations = "epoch-ignores-operations";
    /// A data manager commits in one phase without regard to the epoch that it received.
    OnePhaseTakesOwnEpoch = "one-phase-takes-own-epoch";
    /// The locks of an API node that failed are not released.
    ApiFailureKeepsLocks = "api-failure-keeps-locks";
    /// An operation that skips a locked row stays in the queue for its lock.
    SkipLeavesQueueEntry = "skip-leaves-queue-entry";
    /// A read that may not wait counts as locking a row that others have locked.
    NoWaitReadCountsAsLock = "no-wait-read-counts-as-lock";
    /// A deadlock victim continues to wait.
    DeadlockVictimGoesOn = "deadlock-victim-goes-on";
    /// A stale table version is accepted.
    StaleVersionAccepted = "stale-version-accepted";
    /// The waiters of a row that ceased to exist are dropped.
    WaitersOfVanishedRowLost = "waiters-of-vanished-row-lost";
    /// A backup that resolves a row's earlier operations shows what is only prepared, as if it had been committed.
    ResolveShowsPrepared = "resolve-shows-prepared";
    /// A backup shows new versions at commit, before it knows that all replicas have committed.
    BackupShowsAtCommit = "backup-shows-at-commit";
    /// A read runs although an earlier change of its own transaction waits for the row's lock.
    ReadOvertakesOwnWaiter = "read-overtakes-own-waiter";
    /// An API node that reconnects is admitted before everything it sent earlier was processed.
    ReconnectDoesNotWait = "reconnect-does-not-wait";
    /// The outcome of a commit that ends after the connection was lost is not kept.
    ClosedConnectionForgetsOutcomes = "closed-connection-forgets-outcomes";
    /// A client reports outcomes as seen while it asks for some with lower numbers.
    SeenCoversOpenQuestions = "seen-covers-open-questions";
    /// Markers are not removed when the API node has confirmed the outcome.
    SeenOutcomesKeepMarkers = "seen-outcomes-keep-markers";
    /// A backup removes the index entries of replaced versions at commit, though it continues to show them.
    EntriesGoAtCommit = "entries-go-at-commit";
    /// A change that gives a row a key that one of its versions already has does not enter the key again.
    EntriesAreNotCounted = "entries-are-not-counted";
    /// A range scan does not check whether the version that it sees of a row has the entry's key.
    RangeScanTakesAnyVersion = "range-scan-takes-any-version";
    /// A scan that counts does not check which version it sees of rows that operations name.
    CountTakesAnyVersion = "count-takes-any-version";
    /// A range scan answers from an index entry without reading the row although operations name the row.
    EntryCoversNamedRow = "entry-covers-named-row";
    /// A client returns the rows of several partitions as they arrive, though they should be merged.
    MergeIgnoresOrder = "merge-ignores-order";
    /// A locking scan returns rows that no longer fit its range once they are locked.
    RecheckLeftOut = "recheck-left-out";
    /// A read by unique index does not check whether the base row still has the values.
    UniqueRecheckLeftOut = "unique-recheck-left-out";
    /// The error of a sub-operation on a unique index is treated as success.
    SubErrorIgnored = "sub-error-ignored";
    /// The old entry of a row whose unique column changes is not removed from the index.
    HiddenDeleteForgotten = "hidden-delete-forgotten";
    /// A transaction is committed before the changes of unique indexes that follow from it are prepared.
    CommitBeforeSubs = "commit-before-subs";
    /// A partial rollback does not undo the changes of unique indexes that followed.
    PartialRollbackForgetsSubs = "partial-rollback-forgets-subs";
    /// A data manager continues to accept a table's old version when the change is complete.
    CompleteKeepsOldVersion = "complete-keeps-old-version";
    /// A coordinator does not wait for transactions that use a table that is about to change.
    SwitchDoesNotWait = "switch-does-not-wait";
    /// A schema change is confirmed to its requester before subscribers have confirmed the event.
    EventNotAwaited = "event-not-awaited";
    /// The write fence of an API node whose session has ended is not lifted.
    FenceOutlivesOwner = "fence-outlives-owner";
    /// The schema lock of an API node whose session has ended is not released.
    LockOutlivesOwner = "lock-outlives-owner";
    /// A next view is installed only when leases have ended ten times over.
    ViewComesLate = "view-comes-late";
    /// A backup does not build an ordered index that is added to a table.
    BackupBuildsNoIndex = "backup-builds-no-index";
    /// A schema change that is right only for an empty table goes on without the answer of a data node that has failed.
    LostRefusalIsConsent = "lost-refusal-is-consent";
    /// A write fence is given before the other dictionaries know that it stands.
    FenceGivenTooEarly = "fence-given-too-early";
    /// A new president does not know which claim has the schema lock.
    LockDiesWithPresident = "lock-dies-with-president";
    /// A coordinator reports an epoch as closed though transactions are going to commit in it.
    EpochClosedTooEarly = "epoch-closed-too-early";
    /// A coordinator that uses an epoch above those that it was given does not report it.
    ClaimedEpochNotReported = "claimed-epoch-not-reported";
    /// A commit that was to be answered when it is on disk is answered at once.
    DurableCommitNotAwaited = "durable-commit-not-awaited";
    /// An epoch counts as durable before all streams of the log have confirmed it.
    DurableBeforeAllStreams = "durable-before-all-streams";
    /// A data manager confirms that it has sent its records to the log, and keeps some.
    DrainKeepsRecords = "drain-keeps-records";
    /// Replay applies records of epochs beyond the restore point.
    ReplayBeyondRestorePoint = "replay-beyond-restore-point";
    /// Replay ends with the first block that has a record of a later epoch.
    ReplayStopsAtLaterRecord = "replay-stops-at-later-record";
    /// Replay leaves out deletes.
    DeletesNotReplayed = "deletes-not-replayed";
    /// A restart begins with the epoch behind the greatest one in any file, not behind the limit of those that were
    /// given out.
    EpochLimitIgnored = "epoch-limit-ignored";
    /// An epoch is confirmed as on disk without a flush.
    FlushLeftOut = "flush-left-out";
    /// The log does not write the end record of an epoch.
    EndRecordForgotten = "end-record-forgotten";
    /// The log forgets segments though the end record of the restore point is in them.
    TailPassesEndRecord = "tail-passes-end-record";
    /// A checkpoint contains what readers are shown, not what is committed.
    CheckpointPacksShownVersion = "checkpoint-packs-shown-version";
    /// The trailer of a checkpoint does not cover what has left no trace in the rows.
    CheckpointForgetsDeletes = "checkpoint-forgets-deletes";
    /// A checkpoint counts as usable before a global checkpoint covers it.
    UncoveredCheckpointUsed = "uncovered-checkpoint-used";
    /// The log forgets what a checkpoint has met in its scan, though its file does not say so.
    LogForgottenBeyondFile = "log-forgotten-beyond-file";
    /// Checkpoints that were given up because the disk was full are not tried again.
    CheckpointsGivenUpForGood = "checkpoints-given-up-for-good";
    /// A schema change is published before its entry is flushed.
    DefinitionFlushLeftOut = "definition-flush-left-out";
    /// A schema change is answered before a restart restores its epoch.
    ChangeAnsweredTooEarly = "change-answered-too-early";
    /// A restart carries out schema changes of epochs beyond the restore point.
    DeadDefinitionsRestored = "dead-definitions-restored";
    /// A copy takes the place of its table though the write fence on that has ended.
    CopyReplacesUnfenced = "copy-replaces-unfenced";
    /// The next president's membership begins without the sessions that others know.
    NextRegistrarKnowsNobody = "next-registrar-knows-nobody";
    /// Data nodes go on without the arbitrator, though others may have gone on.
    ArbitratorNotAsked = "arbitrator-not-asked";
    /// The ticket of another arbitrator counts before all members have agreed to it.
    TicketCountsEarly = "ticket-counts-early";
    /// The president changes the view without a failure before all have agreed to it.
    GrowthCountsEarly = "growth-counts-early";
    /// The check against a split does not ask whether others could go on in a later view to which all have agreed.
    GrowthForgottenInSplit = "growth-forgotten-in-split";
    /// A member that has agreed to a later view asks for its lease in the present one only.
    GrowthForgottenInLease = "growth-forgotten-in-lease";
    /// The president has a newcomer start before all threads know that rows are copied to it.
    NewcomerStartsEarly = "newcomer-starts-early";
    /// A primary is handed over while transactions hold locks there.
    PrimaryMovedWithLocks = "primary-moved-with-locks";
    /// A primary is handed over while something that it has sent to its backups is on its way.
    PrimaryMovedUnflushed = "primary-moved-unflushed";
    /// A data node stops before others have had the answers that come from it.
    LeaverNotDrained = "leaver-not-drained";
    /// Data nodes go on from a view in which somebody is a replica whom others may have left out.
    LeavingForgottenInSplit = "leaving-forgotten-in-split";
    /// A primary that was to come to rest goes on while others may go on from a view that leaves somebody out.
    CancelledIsNotAwaited = "cancelled-is-not-awaited";
    /// A data node that is about to stop agrees to a view that leaves others out of its partitions.
    StopOverlooksLeaveOut = "stop-overlooks-leave-out";
    /// A data node that is being sent a partition leaves before it has all rows.
    LeftWhilePlaced = "left-while-placed";
    /// The next view is made while members that are given up may still answer API nodes.
    LeasesIgnored = "leases-ignored";
    /// The round about failed members ends when the first member has confirmed it.
    RoundEndsEarly = "round-ends-early";
    /// A refused schema change does not remove what it had prepared.
    UndoForgetsPrepared = "undo-forgets-prepared";
    /// A backup leaves out what is changed while the rows are read.
    BackupForgetsChanges = "backup-forgets-changes";
    /// A client chooses the epoch of its backup from what was known before the rows were read.
    BackupEpochBeforeScan = "backup-epoch-before-scan";
    /// Orders about a transaction whose end is under way in slices do not wait for it.
    SlicedEndIsOvertaken = "sliced-end-is-overtaken";
    /// A commit that is under way in slices is not reported to a successor.
    SlicedCommitIsNotReported = "sliced-commit-is-not-reported";
    /// A copy gets changes of rows that were not sent yet.
    CopyGetsAllChanges = "copy-gets-all-changes";
    /// Rows with open changes are left out of a copy for good.
    CopyForgetsOpenRows = "copy-forgets-open-rows";
    /// A copy keeps what it had, where the primary has no rows.
    CopyKeepsOldRows = "copy-keeps-old-rows";
    /// Markers are left out of a copy.
    CopyForgetsMarkers = "copy-forgets-markers";
    /// A copy is complete before what is committed at its source is committed everywhere.
    CopyForgetsCommits = "copy-forgets-commits";
    /// A data manager does not ask about the markers that a copy has brought.
    CopiedMarkersStay = "copied-markers-stay";
    /// A copy is complete before those answer who were asked about its markers.
    CopiedMarkersNotAwaited = "copied-markers-not-awaited";
    /// A rollback that was ordered before a copy began does not go on to it.
    AbortForgetsCopy = "abort-forgets-copy";
    /// The last replica of a change commits its transaction, of which a copy has another change.
    LastReplicaForgetsCopy = "last-replica-forgets-copy";
    /// A data manager reports the end of a backup's epoch before that is closed.
    BackupEpochNotAwaited = "backup-epoch-not-awaited";
    /// A restore applies changes of later epochs than the backup's, too.
    BackupAppliesLaterChanges = "backup-applies-later-changes";
}

/// Whether `bug` is the one that was chosen for this run.
#[inline(always)]
pub fn is_on(chosen: Option<InjectedBug>, bug: InjectedBug) -> bool {
    cfg!(feature = "injected-bugs") && chosen == Some(bug)
}
