//! Commits by the last replica of a chain, signal by signal: what goes wrong with simpler rules, and does not here.
//! Like `hazards`, each scenario is run with all rules and, with the feature `injected-bugs`, with one broken, which it
//! must notice.

use crate::support::{ALL, Cluster, Op, Received, Row, Setup, committed, dm, open, refused, row, strict, tc};
use vinga_kernel::InjectedBug;
use vinga_wire::operation::OperationKind::ReadExclusive;
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_ROLLBACK, FLAG_START};
use vinga_wire::{ErrorCode, SignalNumber};

/// Nodes that hold all rows and have coordinators. Rows with their primary at node 2 have the chain 2, 3, 1 with three
/// of them, 2, 3, 4, 1 with four.
fn cluster(nodes: u8, bug: Option<InjectedBug>) -> Cluster {
    Cluster::with(&Setup {
        nodes,
        coordinators: nodes,
        commits_at_last_replica: true,
        bug,
        ..Setup::default()
    })
}

/// A key of a row with the primary at node 2, which is inserted with the number 1.
fn with_row(c: &mut Cluster) -> u64 {
    let key = c.keys_at(2).next().expect("there are keys without end");
    assert_eq!(c.at_once_by(tc(2), &[Op::Insert(row(key, 1))]), [committed(1)]);
    key
}

const COMMITTED: Received = Received::Outcome(1);

hazards! {
    /// The last replica has committed; the replica dies to which it has passed that on. The primary has prepared only:
    /// a coordinator that rolls back what it has not decided undoes what is committed.
    what_the_last_replica_has_committed_is_committed_everywhere breaks InDoubtIsRolledBack;

    /// The last replica dies after it has committed. The one before it has committed, too, and dies before it has said
    /// so, but its commit is on its way to the others, of which one has answered already that it knows of none.
    replicas_are_asked_again_when_another_one_fails breaks InDoubtIsAskedOnce;

    /// A replica fails while the change is on its way to the last one. The coordinator asks those that are left, and
    /// rolls back, as none has committed. Now the change arrives, with the permission to commit.
    no_permission_is_drawn_from_an_earlier_view breaks LastOfOlderViewCommits;

    /// The primary dies before another replica has got the change.
    nothing_is_answered_before_all_replicas_have_it breaks LastCommitsAtPrimary;

    /// A transaction is complete when its coordinator dies: only its marker is left, which the last replica has chosen.
    the_last_replica_chooses_where_the_marker_is_left breaks LastLeavesNoMarker;
}

/// The scenarios themselves. Each ends with nothing left of any transaction.
mod scenarios {
    use super::*;

    pub fn what_the_last_replica_has_committed_is_committed_everywhere(bug: Option<InjectedBug>) {
        let mut c = cluster(4, bug);
        let key = with_row(&mut c);
        c.hold(dm(1, 1), dm(4, 1));
        let id = c.begin();
        c.batch_at(tc(2), id, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
        assert_eq!(c.held(dm(1, 1), dm(4, 1)), 1, "the last replica has passed the commit on");
        assert_eq!(c.received(), []);
        c.kill(4);
        assert_eq!(c.received(), [committed(1)]);
        assert_eq!(c.read(&[key], None), [Some(row(key, 2))]);
        c.ends_well();
    }

    pub fn replicas_are_asked_again_when_another_one_fails(bug: Option<InjectedBug>) {
        let mut c = cluster(4, bug);
        let key = with_row(&mut c);
        // Nodes 1 and 4 have committed.
        c.hold(dm(4, 1), dm(3, 1));
        let id = c.begin();
        c.batch_at(tc(3), id, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
        assert_eq!(c.held(dm(4, 1), dm(3, 1)), 1, "the commit is on its way");
        // Nodes 2 and 3 answer that they have not, node 4 does not get that far.
        c.hold(dm(4, 1), tc(3));
        c.kill(1);
        assert_eq!(c.held(dm(4, 1), tc(3)), 1, "node 4 is asked");
        c.hold(dm(2, 1), tc(3));
        c.release(dm(4, 1), dm(3, 1));
        assert_eq!(c.held(dm(2, 1), tc(3)), 1, "node 2 has committed since");
        assert_eq!(c.received(), []);
        c.kill(4);
        c.release(dm(2, 1), tc(3));
        assert_eq!(c.received(), [committed(1)]);
        assert_eq!(c.read(&[key], None), [Some(row(key, 2))]);
        c.ends_well();
    }

    pub fn no_permission_is_drawn_from_an_earlier_view(bug: Option<InjectedBug>) {
        let mut c = cluster(4, bug);
        let key = with_row(&mut c);
        c.hold(dm(4, 1), dm(1, 1));
        let id = c.begin();
        c.batch_at(tc(2), id, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
        assert_eq!(c.held(dm(4, 1), dm(1, 1)), 1, "the change is on its way to the last replica");
        c.kill(3);
        // The change comes first, then the order to undo it.
        assert_eq!(c.held(dm(4, 1), dm(1, 1)), 2);
        c.release(dm(4, 1), dm(1, 1));
        assert_eq!(c.received(), [refused(1, ErrorCode::NodeFailure, 0)]);
        assert_eq!(c.read(&[key], None), [Some(row(key, 1))]);
        assert_eq!(c.at_once_by(tc(2), &[Op::Add(key, 5)]), [committed(1)]);
        c.ends_well();
    }

    pub fn nothing_is_answered_before_all_replicas_have_it(bug: Option<InjectedBug>) {
        let mut c = cluster(3, bug);
        let key = with_row(&mut c);
        c.hold(dm(2, 1), dm(3, 1));
        let id = c.begin();
        c.batch_at(tc(3), id, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
        assert_eq!(c.held(dm(2, 1), dm(3, 1)), 1);
        assert_eq!(c.received(), [], "nobody but the primary has it");
        assert_eq!(c.read(&[key], None), [Some(row(key, 1))]);
        c.kill(2);
        assert_eq!(c.received(), [refused(1, ErrorCode::NodeFailure, 0)]);
        assert_eq!(c.read(&[key], None), [Some(row(key, 1))]);
        c.release_coordinator(tc(3), tc(2));
        c.ends_well();
    }

    pub fn the_last_replica_chooses_where_the_marker_is_left(bug: Option<InjectedBug>) {
        let mut c = cluster(3, bug);
        let key = with_row(&mut c);
        let id = c.begin();
        c.batch_at(tc(2), id, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
        assert_eq!(c.received(), [committed(1)]);
        c.kill(2);
        assert_eq!(c.ask_successor(tc(3), id, tc(2)), [COMMITTED]);
        assert_eq!(c.read(&[key], None), [Some(row(key, 2))]);
        c.release_coordinator(tc(3), tc(2));
        c.ends_well();
    }
}

#[test]
fn a_successor_finds_what_the_last_replica_has_committed() {
    let mut c = cluster(4, None);
    let key = with_row(&mut c);
    c.hold(dm(1, 1), dm(4, 1));
    let id = c.begin();
    c.batch_at(tc(3), id, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
    assert_eq!(c.held(dm(1, 1), dm(4, 1)), 1, "the last replica has passed the commit on");
    c.kill(3);
    // What it has passed on does not count: it acts for a coordinator that is dead.
    c.release(dm(1, 1), dm(4, 1));
    assert_eq!(c.ask_successor(tc(4), id, tc(3)), [COMMITTED]);
    assert_eq!(c.read(&[key], None), [Some(row(key, 2))]);
    c.release_coordinator(tc(4), tc(3));
    c.ends_well();
}

#[test]
fn a_change_that_waits_for_a_lock_is_committed_in_two_phases() {
    let mut c = cluster(3, None);
    let key = with_row(&mut c);
    let other = c.begin();
    c.batch_at(tc(2), other, FLAG_START, 1, 0, &strict(&[Op::Read(ReadExclusive, key)]));
    assert_eq!(c.received(), [Received::Row { operation: 1, row: Some(row(key, 1)) }, open(1)]);
    let id = c.begin();
    c.batch_at(tc(2), id, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
    assert_eq!(c.received(), []);
    c.batch_at(tc(2), other, FLAG_ROLLBACK, 2, 0, &[]);
    let received = c.received();
    assert!(received.contains(&committed(1)), "{received:?}");
    assert_eq!(c.read(&[key], None), [Some(row(key, 2))]);
    c.ends_well();
}

#[test]
fn a_batch_that_waits_for_a_lock_can_be_given_up() {
    let mut c = cluster(3, None);
    let key = with_row(&mut c);
    let other = c.begin();
    c.batch_at(tc(2), other, FLAG_START, 1, 0, &strict(&[Op::Read(ReadExclusive, key)]));
    c.received();
    let id = c.begin();
    c.batch_at(tc(2), id, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
    c.batch_at(tc(2), id, FLAG_ROLLBACK, 2, 0, &[]);
    assert_eq!(c.received(), [Received::Confirm { request: 1, outcome: 2, errors: vec![] }]);
    c.batch_at(tc(2), other, FLAG_ROLLBACK, 2, 0, &[]);
    c.received();
    assert_eq!(c.read(&[key], None), [Some(row(key, 1))]);
    c.ends_well();
}

/// What a transaction has read and changed before at the same replicas is committed with its last change.
#[test]
fn earlier_operations_are_committed_with_the_last_one() {
    let mut c = cluster(3, None);
    let keys: Vec<u64> = c.keys_at(2).take(3).collect();
    let (read, changed, last) = (keys[0], keys[1], keys[2]);
    for key in [read, changed, last] {
        assert_eq!(c.at_once_by(tc(2), &[Op::Insert(row(key, 1))]), [committed(1)]);
    }
    let id = c.begin();
    let first = [Op::Read(ReadExclusive, read), Op::Add(changed, 1)];
    c.batch_at(tc(2), id, FLAG_START, 1, 0, &strict(&first));
    assert_eq!(c.received(), [Received::Row { operation: 1, row: Some(row(read, 1)) }, open(1)]);
    let before = c.node(2).data_managers().iter().map(|d| d.statistics().one_phase_commits).sum::<u64>();
    c.batch_at(tc(2), id, FLAG_COMMIT, 3, 0, &strict(&[Op::Add(last, 1)]));
    assert_eq!(c.received(), [committed(3)]);
    let last_replica =
        c.node(1).data_managers().iter().map(|d| d.statistics().one_phase_commits).sum::<u64>();
    assert_eq!((before, last_replica), (0, 4), "the last replica has committed all of it, as the inserts");
    assert_eq!(
        c.read(&[read, changed, last], None),
        [Some(row(read, 1)), Some(row(changed, 2)), Some(row(last, 2))]
    );
    // The marker is that of the first change: a successor knows the outcome.
    c.kill(2);
    assert_eq!(c.ask_successor(tc(3), id, tc(2)), [COMMITTED]);
    assert_eq!(c.at_once_by(tc(3), &[Op::Add(read, 1), Op::Add(changed, 1)]), [committed(1)]);
    c.release_coordinator(tc(3), tc(2));
    c.ends_well();
}

#[test]
fn the_only_replica_that_is_left_keeps_what_a_successor_may_ask_for() {
    let mut c = cluster(3, None);
    let key = with_row(&mut c);
    c.kill(1);
    c.release_coordinator(tc(2), tc(1));
    c.kill(2);
    c.release_coordinator(tc(3), tc(2));
    c.release_coordinator(tc(3), tc(1));
    assert_eq!(c.at_once_by(tc(3), &[Op::Add(key, 1)]), [committed(1)]);
    assert_eq!(c.at_once_by(tc(3), &[Op::Delete(key)]), [committed(1)]);
    assert_eq!(c.at_once_by(tc(3), &[Op::Delete(key)]), [refused(1, ErrorCode::NoSuchRow, 1)]);
    assert_eq!(c.read(&[key], None), [None]);
    c.ends_well();
}

#[test]
fn what_follows_in_a_unique_index_is_committed_in_two_phases() {
    let setup = Setup { coordinators: 3, unique: true, commits_at_last_replica: true, ..Setup::default() };
    let mut c = Cluster::with(&setup);
    let key = with_row(&mut c);
    let other = c.keys_at(2).nth(1).expect("there are keys without end");
    assert_eq!(
        c.at_once_by(tc(2), &[Op::Insert(Row(other, 1, None))]),
        [refused(1, ErrorCode::DuplicateKey, 1)]
    );
    assert_eq!(c.at_once_by(tc(2), &[Op::Set(key, 7)]), [committed(1)]);
    assert_eq!(c.at_once_by(tc(2), &[Op::Insert(Row(other, 1, None))]), [committed(1)]);
    assert_eq!(c.read(&[key, other], None), [Some(row(key, 7)), Some(Row(other, 1, None))]);
    c.ends_well();
}

/// An API node may name any of its ids to any coordinator. The marker that one transaction has left says nothing of
/// another one.
#[test]
fn a_marker_of_another_coordinator_is_not_taken_for_the_commit() {
    let mut c = cluster(3, None);
    let key = with_row(&mut c);
    let id = c.begin();
    for coordinator in [2, 3] {
        c.batch_at(tc(coordinator), id, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
        assert_eq!(c.received(), [committed(1)]);
    }
    // Each replica has both changes, the last one, node 1, too.
    for node in [2, 3] {
        assert_eq!(c.read(&[key], None), [Some(row(key, 3))]);
        c.kill(node);
    }
    assert_eq!(c.read(&[key], None), [Some(row(key, 3))]);
}

/// The coordinator takes part twice: it sends the change, and receives the primary's confirmation.
#[test]
fn one_change_is_a_round_along_the_chain() {
    let mut c = cluster(3, None);
    let key = with_row(&mut c);
    let handled = |c: &Cluster, signal: SignalNumber| c.scenario().matches(&format!("{signal:?} ")).count();
    let signals = [
        SignalNumber::PrepareRequest,
        SignalNumber::PrepareConfirm,
        SignalNumber::CommitRequest,
        SignalNumber::CommitConfirm,
    ];
    let before = signals.map(|signal| handled(&c, signal));
    assert_eq!(c.at_once_by(tc(2), &[Op::Add(key, 1)]), [committed(1)]);
    let after = signals.map(|signal| handled(&c, signal));
    let counts: [usize; 4] = std::array::from_fn(|at| after[at] - before[at]);
    assert_eq!(counts, [3, 0, 2, 1], "prepares along three replicas, commits back along two");
    c.ends_well();
}
