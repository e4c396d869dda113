//! Deliberate bugs: shows that the checks notice when a rule of the protocols is broken.
//!
//! Each [`InjectedBug`] breaks one rule; seeds are run until one notices. That works only in builds with the feature
//! `injected-bugs`; in others the blocks keep all rules.

use crate::profile::{Fault, Profile};
use crate::run::{Options, run_seed};
use std::fmt;
pub use vinga_kernel::InjectedBug;

/// Whether this build can break rules.
pub const IS_BUILT_IN: bool = cfg!(feature = "injected-bugs");

/// A hunted rule must be noticed within so many seeds, whichever is the first.
pub const SEEDS_MAX: u64 = 1500;

/// Rules that seeds break too seldom to be hunted by default; the scenarios in `crates/node/tests/scenarios/hazards.rs`
/// show them, and those of agreement's tests.
/// - For `resolve-shows-prepared` the order to roll back must die with the middle replica of three, and another
///   transaction on the same row must be faster than the next order: one seed in some thousands.
/// - For `reconnect-does-not-wait` a commit must wait unread on a broken connection while the question about it is
///   answered.
/// - For `entries-go-at-commit` a backup must be asked; clients of the simulator scan at primaries.
/// - `claimed-epoch-not-reported` needs a client with epochs that its coordinator has not received, at the moment of a
///   crash; `replay-stops-at-later-record` commits of an epoch behind those of the next one in the same log stream;
///   `checkpoint-packs-shown-version` backups with a disk;
///   `uncovered-checkpoint-used` the moment between a checkpoint and the global checkpoint that covers it;
///   `change-answered-too-early`, `dead-definitions-restored` a
///   schema change in the moments before a crash; `log-forgotten-beyond-file` a segment that is used again before any
///   page changes; `checkpoints-given-up-for-good` a disk that is full for long.
/// - For `lost-read-locks-ignored` the primary of a row must die that a transaction has only read, and another one
///   change the row before that ends.
/// - For `ticket-counts-early` the network must be split between two signals of a change, with an arbitrator on each
///   side: one seed in some hundreds, or thousands.
/// - For `growth-counts-early`, `growth-forgotten-in-split` and `growth-forgotten-in-lease` data nodes must fail
///   between two signals of a view with a newcomer: `growth.rs` of agreement's tests shows them.
/// - For `leaving-forgotten-in-split` the others must fail between two signals of a view that leaves a data node out of
///   a partition, and for `leaver-not-drained` a transaction must have gone to a data node that leaves, and still wait
///   for its answer when that has no partition any more: `leaving.rs` of agreement's tests and `leaving_model.rs` of
///   the data node's show them.
/// - For `cancelled-is-not-awaited` the president must fail after it has given up such a view, and before others have
///   forgotten it; for `stop-overlooks-leave-out` two data nodes must be permitted to stop while a third one is left
///   out of a partition of both.
/// - For `copy-keeps-old-rows` a copy must begin anew, and a row go in front of it; for `last-replica-forgets-copy` one
///   must stand between two rows that a transaction changes; for `copy-forgets-commits` the source must die behind the
///   end of a copy, with the coordinator of a commit that is under way; for `copied-markers-not-awaited` before a
///   successor in another node group has its report; for `abort-forgets-copy` and `newcomer-starts-early` a
///   coordinator must end a transaction, in a view without the copy, behind those who make it; for
///   `primary-moved-unflushed` a rollback must be on its way to a backup when the view changes.
/// - For `left-while-placed` a data node must be asked to stop at the moment in which the rows of a partition are on
///   their way to it, which one seed in some thousands does with `--returning-nodes`.
/// - For `take-over-answers-before-complete` a coordinator must die between commit and completion, and a client of its
///   read at a backup before that is notified.
/// - For `last-of-older-view-commits` a replica must fail while a change is on its way to the last one, which is asked
///   about it before the change arrives: one seed in thousands.
/// - For `sliced-commit-is-not-reported` a coordinator must die while the last replica alone has begun a commit in
///   slices.
/// - For `lost-refusal-is-consent` the primary of rows must die between two signals of a change that adds a unique
///   index, and for `fence-given-too-early` the president between its answer and its last signal of the change.
/// - With `deadlock-victim-goes-on` a deadlock ends by its time-out, as it may.
pub const SHOWN_BY_SCENARIOS: &[InjectedBug] = &[
    InjectedBug::NewcomerStartsEarly,
    InjectedBug::PrimaryMovedUnflushed,
    InjectedBug::LeaverNotDrained,
    InjectedBug::LeavingForgottenInSplit,
    InjectedBug::LeftWhilePlaced,
    InjectedBug::CancelledIsNotAwaited,
    InjectedBug::StopOverlooksLeaveOut,
    InjectedBug::CopyKeepsOldRows,
    InjectedBug::CopyForgetsCommits,
    InjectedBug::CopiedMarkersNotAwaited,
    InjectedBug::LastReplicaForgetsCopy,
    InjectedBug::AbortForgetsCopy,
    InjectedBug::DeadlockVictimGoesOn,
    InjectedBug::ResolveShowsPrepared,
    InjectedBug::ReconnectDoesNotWait,
    InjectedBug::EntriesGoAtCommit,
    InjectedBug::ClaimedEpochNotReported,
    InjectedBug::ReplayStopsAtLaterRecord,
    InjectedBug::CheckpointPacksShownVersion,
    InjectedBug::UncoveredCheckpointUsed,
    InjectedBug::LogForgottenBeyondFile,
    InjectedBug::CheckpointsGivenUpForGood,
    InjectedBug::ChangeAnsweredTooEarly,
    InjectedBug::DeadDefinitionsRestored,
    InjectedBug::DeadCoordinatorGoesOn,
    InjectedBug::TakeOverCommitsForwards,
    InjectedBug::EpochClosesBeforeTakeOver,
    InjectedBug::SchemaForgetsOrphans,
    InjectedBug::LostReadLocksIgnored,
    InjectedBug::TicketCountsEarly,
    InjectedBug::GrowthCountsEarly,
    InjectedBug::GrowthForgottenInSplit,
    InjectedBug::GrowthForgottenInLease,
    InjectedBug::InDoubtIsAskedOnce,
    InjectedBug::TakeOverAnswersBeforeComplete,
    InjectedBug::LastOfOlderViewCommits,
    InjectedBug::SlicedCommitIsNotReported,
    InjectedBug::LostRefusalIsConsent,
    InjectedBug::FenceGivenTooEarly,
];

/// Rules of data nodes that come back, stop, or are added: these do so with [`Options::returning_nodes`] only, so they
/// are hunted with it.
pub const OF_RETURNING_NODES: &[InjectedBug] = &[
    InjectedBug::NewcomerStartsEarly,
    InjectedBug::PrimaryMovedWithLocks,
    InjectedBug::PrimaryMovedUnflushed,
    InjectedBug::LeaverNotDrained,
    InjectedBug::LeavingForgottenInSplit,
    InjectedBug::LeftWhilePlaced,
    InjectedBug::CancelledIsNotAwaited,
    InjectedBug::StopOverlooksLeaveOut,
    InjectedBug::CopyGetsAllChanges,
    InjectedBug::CopyForgetsOpenRows,
    InjectedBug::CopyKeepsOldRows,
    InjectedBug::CopyForgetsMarkers,
    InjectedBug::CopiedMarkersStay,
    InjectedBug::CopiedMarkersNotAwaited,
    InjectedBug::CopyForgetsCommits,
    InjectedBug::LastReplicaForgetsCopy,
    InjectedBug::AbortForgetsCopy,
    InjectedBug::GrowthCountsEarly,
    InjectedBug::GrowthForgottenInSplit,
    InjectedBug::GrowthForgottenInLease,
];

/// A broken rule, and how it was noticed.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The rule.
    pub bug: InjectedBug,
    /// The seeds that were needed, and what the last of them noticed; `None` if nobody noticed.
    pub noticed: Option<(u64, String)>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.noticed {
            Some((seeds, what)) => {
                let first: String = what.lines().next().unwrap_or_default().chars().take(110).collect();
                write!(f, "{:<32} {seeds:>5} seeds: {first}", self.bug.name())
            }
            None => write!(f, "{:<32} not noticed", self.bug.name()),
        }
    }
}

/// Breaks one rule and runs seeds from `from` on, at most `seeds_max`, until one notices. Seeds in which no data node
/// comes back can't notice a rule of data nodes that do: they count, and are not run.
pub fn hunt(bug: InjectedBug, from: u64, seeds_max: u64) -> Verdict {
    let returning_nodes = OF_RETURNING_NODES.contains(&bug);
    let options = Options { bug: Some(bug), returning_nodes, ..Options::default() };
    let is_meant =
        |seed| !returning_nodes || Profile::of(seed, &options.without).faults.contains(&Fault::ReturnNode);
    let mut seeds = (from..=u64::MAX).zip(1..=seeds_max).filter(|(seed, _)| is_meant(*seed));
    let noticed = seeds.find_map(|(seed, count)| {
        let report = run_seed(seed, &options);
        report.violation.map(|what| (count, what))
    });
    Verdict { bug, noticed }
}

/// Breaks one rule after the other, each for at most [`SEEDS_MAX`] seeds; or for as many as are given, and then those
/// of [`SHOWN_BY_SCENARIOS`] too. `on_verdict` is called with each.
pub fn hunt_all(from: u64, seeds: Option<u64>, mut on_verdict: impl FnMut(&Verdict)) -> Vec<Verdict> {
    let hunted = InjectedBug::ALL.iter().filter(|m| seeds.is_some() || !SHOWN_BY_SCENARIOS.contains(m));
    let verdicts = hunted.map(|&bug| {
        let verdict = hunt(bug, from, seeds.unwrap_or(SEEDS_MAX));
        on_verdict(&verdict);
        verdict
    });
    verdicts.collect()
}
