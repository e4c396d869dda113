//! Ends of transactions that go in slices, signal by signal: what comes between two slices, and what nobody may see
//! there. Like `hazards`, some scenarios are run with all rules and, with the feature `injected-bugs`, with one broken,
//! which they must notice.

use crate::support::{ALL, Cluster, Op, Received, Row, Setup, committed, dm, open, row, strict, tc};
use vinga_kernel::{InjectedBug, Span};
use vinga_wire::operation::OperationKind::{ReadExclusive, ReadShared};
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_ROLLBACK, FLAG_ROLLBACK_TO, FLAG_START};

/// Nodes that hold all rows and have coordinators. A slice is one operation. Rows with their primary at node 2 have the
/// chain 2, 3, 1 with three nodes, 2, 3, 4, 1 with four.
fn cluster(nodes: u8, read_backup: bool, bug: Option<InjectedBug>) -> Cluster {
    Cluster::with(&Setup {
        nodes,
        coordinators: nodes,
        read_backup,
        ending_slice: 1,
        bug,
        ..Setup::default()
    })
}

/// Rows of one data manager, with their primary at node 2, which are inserted with the number 1.
fn with_rows<const N: usize>(c: &mut Cluster) -> [u64; N] {
    let first = c.keys_at(2).next().expect("there are keys without end");
    let owner = c.owner_of(first);
    let keys: Vec<u64> = c.keys_at(2).filter(|&key| c.owner_of(key) == owner).take(N).collect();
    let keys: [u64; N] = keys.try_into().expect("there are keys without end");
    for key in keys {
        assert_eq!(c.at_once_by(tc(2), &[Op::Insert(row(key, 1))]), [committed(1)]);
    }
    keys
}

/// Adds 1 to each.
fn increments(keys: &[u64]) -> Vec<(Op, bool)> {
    strict(&keys.iter().map(|&key| Op::Add(key, 1)).collect::<Vec<_>>())
}

/// The numbers of rows as their primary shows them.
fn primary_numbers(c: &mut Cluster, keys: &[u64]) -> Vec<i64> {
    c.read(keys, None).into_iter().map(|row| row.expect("it is there").1).collect()
}

/// The numbers of rows as a node shows them: its primary, or a backup that answers reads.
fn numbers(c: &mut Cluster, node: u8, keys: &[u64]) -> Vec<i64> {
    keys.iter().map(|&key| c.read_at(node, key).expect("it is there").1).collect()
}

/// What is read of a row.
fn read(operation: u32, row: Option<Row>) -> Received {
    Received::Row { operation, row }
}

fn rolled_back(request: u32) -> Received {
    Received::Confirm { request, outcome: 2, errors: vec![] }
}

const COMMITTED: Received = Received::Outcome(1);

hazards! {
    /// A transaction is committed, and its client knows; a replica is about to drop its records when it is ordered to
    /// drop the marker, which it has not left yet. The order must not come first: nobody would repeat it.
    a_marker_that_is_not_left_yet_is_dropped_later breaks SlicedEndIsOvertaken;

    /// The last backup has begun to commit when the coordinator dies; nobody else knows of the decision. What it has
    /// begun it will not take back.
    a_commit_that_has_begun_is_committed_everywhere breaks SlicedCommitIsNotReported;
}

mod scenarios {
    use super::*;

    pub fn a_marker_that_is_not_left_yet_is_dropped_later(bug: Option<InjectedBug>) {
        let mut c = cluster(3, false, bug);
        let keys: [u64; 3] = with_rows(&mut c);
        c.forget_all_outcomes();
        c.hold(tc(2), dm(3, 1));
        let id = c.begin();
        c.batch_at(tc(2), id, ALL, 1, 0, &increments(&keys));
        assert_eq!(c.received(), [committed(1)]);
        assert_eq!(c.held(tc(2), dm(3, 1)), 1, "the order to complete it is on its way");
        c.hold_slices(3);
        c.release(tc(2), dm(3, 1));
        c.slice(3);
        c.forget_all_outcomes();
        c.release_slices(3);
        c.ends_well();
    }

    pub fn a_commit_that_has_begun_is_committed_everywhere(bug: Option<InjectedBug>) {
        for slices in [0, 1, 2] {
            let mut c = cluster(4, false, bug);
            let keys: [u64; 3] = with_rows(&mut c);
            c.hold_slices(1);
            let id = c.begin();
            c.batch_at(tc(4), id, ALL, 1, 0, &increments(&keys));
            (0..slices).for_each(|_| c.slice(1));
            assert_eq!(c.received(), []);
            c.kill(4);
            assert_eq!(c.ask_successor(tc(1), id, tc(4)), [], "the last replica has not ended it");
            c.release_slices(1);
            assert_eq!(c.received(), [COMMITTED]);
            assert_eq!(primary_numbers(&mut c, &keys), [2, 2, 2]);
            c.release_coordinator(tc(1), tc(4));
            c.ends_well();
        }
    }
}

/// A partial rollback is no end. Were it done in slices, the change behind it would have to wait at the backup, where
/// another transaction's change of the row could overtake it, and be undone by it.
#[test]
fn a_partial_rollback_keeps_no_change_waiting() {
    let mut c = cluster(2, false, None);
    let keys: [u64; 4] = with_rows(&mut c);
    let id = c.begin();
    c.batch_at(tc(2), id, FLAG_START, 1, 0, &increments(&keys[..3]));
    assert_eq!(c.received(), [open(1)]);
    c.hold_slices(1);
    c.batch_at(tc(2), id, FLAG_ROLLBACK_TO, 4, 1, &increments(&keys[3..]));
    assert_eq!(c.received(), [open(4)]);
    c.batch_at(tc(2), id, FLAG_ROLLBACK, 5, 0, &[]);
    let other = c.begin();
    c.batch_at(tc(2), other, FLAG_START, 1, 0, &strict(&[Op::Add(keys[3], 10)]));
    c.release_slices(1);
    assert_eq!(c.received(), [rolled_back(5), open(1)]);
    c.batch_at(tc(2), other, FLAG_COMMIT, 2, 0, &[]);
    assert_eq!(c.received(), [committed(2)]);
    c.kill(2);
    assert_eq!(primary_numbers(&mut c, &keys), [1, 1, 1, 11]);
    c.release_coordinator(tc(1), tc(2));
    c.ends_well();
}

/// Rows that the walk has passed are free, the others locked, until the last one is shown. Only then it is answered.
#[test]
fn a_primary_shows_and_unlocks_what_the_walk_has_passed() {
    let mut c = cluster(3, false, None);
    let keys: [u64; 3] = with_rows(&mut c);
    c.hold_slices(2);
    let id = c.begin();
    c.batch_at(tc(1), id, ALL, 1, 0, &increments(&keys));
    assert_eq!(primary_numbers(&mut c, &keys), [1, 1, 1]);
    c.slice(2);
    assert_eq!(primary_numbers(&mut c, &keys), [1, 1, 2]);
    let readers = keys.map(|key| {
        let reader = c.begin();
        c.batch_at(tc(1), reader, FLAG_START, 11, 0, &strict(&[Op::Read(ReadShared, key)]));
        reader
    });
    assert_eq!(c.received(), [read(11, Some(row(keys[2], 2))), open(11)]);
    c.slice(2);
    assert_eq!(c.received(), [read(11, Some(row(keys[1], 2))), open(11)]);
    c.slice(2);
    assert_eq!(c.received(), [read(11, Some(row(keys[0], 2))), committed(1), open(11)]);
    for reader in readers {
        c.batch_at(tc(1), reader, FLAG_COMMIT, 12, 0, &[]);
        assert_eq!(c.received(), [committed(12)]);
    }
    c.release_slices(2);
    c.ends_well();
}

/// A rollback gives rows back one after the other; an operation that waits meets its row as it was.
#[test]
fn a_rollback_in_slices_undoes_one_row_after_the_other() {
    let mut c = cluster(3, false, None);
    let keys: [u64; 3] = with_rows(&mut c);
    let id = c.begin();
    c.batch_at(tc(1), id, FLAG_START, 1, 0, &increments(&keys));
    assert_eq!(c.received(), [open(1)]);
    let reader = c.begin();
    c.batch_at(tc(1), reader, FLAG_START, 11, 0, &strict(&[Op::Read(ReadExclusive, keys[1])]));
    c.hold_slices(2);
    c.batch_at(tc(1), id, FLAG_ROLLBACK, 4, 0, &[]);
    c.slice(2);
    assert_eq!(c.received(), []);
    c.slice(2);
    assert_eq!(c.received(), [read(11, Some(row(keys[1], 1))), open(11)]);
    c.release_slices(2);
    assert_eq!(c.received(), [rolled_back(4)]);
    c.batch_at(tc(1), reader, FLAG_COMMIT, 12, 0, &[]);
    assert_eq!(c.received(), [committed(12)]);
    c.ends_well();
}

/// An operation of a transaction that is being rolled back waits for a lock, and its time is over between two slices:
/// the walk, which was to come to it next, begins anew.
#[test]
fn an_operation_goes_that_the_walk_was_to_come_to() {
    let mut c = cluster(3, false, None);
    let keys: [u64; 4] = with_rows(&mut c);
    let other = c.begin();
    c.batch_at(tc(2), other, FLAG_START, 1, 0, &strict(&[Op::Read(ReadExclusive, keys[1])]));
    let id = c.begin();
    c.batch_at(tc(1), id, FLAG_START, 1, 0, &increments(&keys));
    c.received();
    c.hold_slices(2);
    c.batch_at(tc(1), id, FLAG_ROLLBACK, 5, 0, &[]);
    c.slice(2);
    c.slice(2);
    c.advance(Span::from_millis(1300));
    c.release_slices(2);
    assert_eq!(c.received(), [rolled_back(1)]);
    c.batch_at(tc(2), other, FLAG_COMMIT, 2, 0, &[]);
    assert_eq!(c.received(), [committed(2)]);
    assert_eq!(primary_numbers(&mut c, &keys), [1, 1, 1, 1]);
    c.ends_well();
}

/// The primary dies while a backup commits in slices: that is primary now, and ends what it has begun before it is
/// ordered anew.
#[test]
fn a_backup_becomes_primary_while_it_commits() {
    for slices in [0, 1, 2] {
        let mut c = cluster(3, false, None);
        let keys: [u64; 3] = with_rows(&mut c);
        c.hold_slices(3);
        let id = c.begin();
        c.batch_at(tc(1), id, ALL, 1, 0, &increments(&keys));
        (0..slices).for_each(|_| c.slice(3));
        c.kill(2);
        assert_eq!(c.received(), []);
        c.release_slices(3);
        assert_eq!(c.received(), [committed(1)]);
        assert_eq!(primary_numbers(&mut c, &keys), [2, 2, 2]);
        c.release_coordinator(tc(3), tc(2));
        c.ends_well();
    }
}

/// Where backups answer reads the answer follows the completion, which goes in slices, too.
#[test]
fn a_commit_is_answered_when_the_last_slice_has_shown_it() {
    let mut c = cluster(3, true, None);
    let keys: [u64; 2] = with_rows(&mut c);
    c.hold(tc(2), dm(3, 1));
    let id = c.begin();
    c.batch_at(tc(2), id, ALL, 1, 0, &increments(&keys));
    assert_eq!(c.held(tc(2), dm(3, 1)), 1, "one replica is to complete it");
    c.hold_slices(3);
    c.release(tc(2), dm(3, 1));
    c.slice(3);
    assert_eq!(c.received(), []);
    assert_eq!(numbers(&mut c, 3, &keys), [1, 2]);
    c.release_slices(3);
    assert_eq!(c.received(), [committed(1)]);
    assert_eq!(numbers(&mut c, 3, &keys), [2, 2]);
    c.ends_well();
}

/// The coordinator dies while its completion is under way: what the replica has not passed yet it reports as committed.
#[test]
fn a_coordinator_dies_while_its_transaction_is_completed() {
    for slices in [0, 1, 2] {
        let mut c = cluster(4, true, None);
        let keys: [u64; 3] = with_rows(&mut c);
        c.hold(tc(4), dm(3, 1));
        let id = c.begin();
        c.batch_at(tc(4), id, ALL, 1, 0, &increments(&keys));
        c.hold_slices(3);
        c.release(tc(4), dm(3, 1));
        (0..slices).for_each(|_| c.slice(3));
        c.kill(4);
        assert_eq!(c.ask_successor(tc(1), id, tc(4)), [], "a replica does not show it yet");
        c.release_slices(3);
        assert_eq!(c.received(), [COMMITTED]);
        assert_eq!(numbers(&mut c, 3, &keys), [2, 2, 2]);
        c.release_coordinator(tc(1), tc(4));
        c.ends_well();
    }
}
