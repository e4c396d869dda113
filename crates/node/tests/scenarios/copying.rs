//! Rows that are copied to a data node that comes back, while transactions change them. Like `hazards`, some scenarios
//! are run with all rules and, with the feature `injected-bugs`, with one broken, which they must notice.

use crate::support::{ALL, Cluster, Op, Row, Setup, committed, dm, open, row, strict, tc};
use vinga_kernel::{InjectedBug, Span};
use vinga_wire::copying::COPIED_MARKERS_MAX;
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_ROLLBACK, FLAG_ROLLBACK_TO, FLAG_START};

/// Nodes that hold all rows and have coordinators; a batch of a copy has one row. Rows with their primary at node 2
/// have the chain 2, 3, 1 with three nodes.
fn cluster(nodes: u8, commits_at_last_replica: bool, bug: Option<InjectedBug>) -> Cluster {
    Cluster::with(&Setup {
        nodes,
        coordinators: nodes,
        commits_at_last_replica,
        copy_piece: 1,
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
    c.forget_all_outcomes();
    keys
}

/// Node 3 dies and comes back; the copy of the rows at node 2 stands still, with `sent` batches done.
fn return_of_node_3(c: &mut Cluster, sent: usize) {
    c.kill(3);
    c.come_back(3);
    c.hold_slices(2);
    c.copy_to(3);
    (0..sent).for_each(|_| c.slice(2));
}

/// The copy goes on to its end, and node 3 starts.
fn end_copy(c: &mut Cluster) {
    c.release_slices(2);
    c.start(3);
}

/// Begins a transaction at node 2, which stays open.
fn begin_with(c: &mut Cluster, op: Op) -> vinga_base::TransactionId {
    let id = c.begin();
    c.batch_at(tc(2), id, FLAG_START, 1, 0, &strict(&[op]));
    assert_eq!(c.received(), [open(1)]);
    id
}

fn end(c: &mut Cluster, id: vinga_base::TransactionId, flag: u16) {
    c.batch_at(tc(2), id, flag, 9, 0, &[]);
    c.received();
}

#[test]
fn a_node_that_comes_back_gets_all_rows() {
    for nodes in [2, 3] {
        let mut c = cluster(nodes, true, None);
        let keys: [u64; 12] = with_rows(&mut c);
        c.kill(nodes);
        c.release_coordinator(tc(1), tc(nodes));
        assert_eq!(c.at_once_by(tc(1), &[Op::Delete(keys[3]), Op::Add(keys[4], 7)]), [committed(1)]);
        c.come_back(nodes);
        assert_eq!(
            c.at_once_by(tc(1), &[Op::Add(keys[5], 7)]),
            [committed(1)],
            "it has no part in changes yet"
        );
        c.copy_to(nodes);
        assert_eq!(c.at_once_by(tc(nodes), &[Op::Add(keys[6], 7)]), [committed(1)]);
        c.start(nodes);
        assert_eq!(c.at_once_by(tc(1), &[Op::Add(keys[7], 7), Op::Insert(row(999, 1))]), [committed(1)]);
        c.ends_well();
    }
}

#[test]
fn a_node_that_comes_back_can_take_over_from_all_others() {
    let mut c = cluster(2, true, None);
    let keys: [u64; 5] = with_rows(&mut c);
    c.kill(1);
    c.come_back(1);
    c.copy_to(1);
    c.start(1);
    c.kill(2);
    let rows: Vec<Option<Row>> = keys.iter().map(|&key| Some(row(key, 1))).collect();
    assert_eq!(c.read(&keys, None), rows);
    assert_eq!(c.at_once_by(tc(1), &[Op::Add(keys[0], 1), Op::Delete(keys[1])]), [committed(1)]);
    c.ends_well();
}

/// A row goes and another one with its key comes, in another place, while the copy still has the first one from
/// before.
#[test]
fn a_copy_that_begins_anew_replaces_what_is_left_of_the_one_before() {
    let mut c = cluster(3, false, None);
    let keys: [u64; 6] = with_rows(&mut c);
    return_of_node_3(&mut c, 9);
    c.release_slices(2);
    assert!(c.is_copied(3));
    // The primary of these rows dies. Places are used again in another order, before the next copy is there.
    c.hold_slices(1);
    c.kill(2);
    assert!(!c.is_copied(3), "another primary copies anew");
    for key in keys {
        assert_eq!(c.at_once_by(tc(1), &[Op::Delete(key)]), [committed(1)]);
    }
    for &key in keys.iter().rev() {
        assert_eq!(c.at_once_by(tc(1), &[Op::Insert(row(key, 5))]), [committed(1)]);
    }
    c.release_slices(1);
    c.start(3);
    c.ends_well();
}

/// What an earlier primary has prepared stands at the copy, in whatever state, when the next one copies the row.
#[test]
fn changes_that_an_earlier_primary_has_prepared_do_not_stay_at_the_copy() {
    for (held, flag) in [
        (None, FLAG_COMMIT),
        (None, FLAG_ROLLBACK),
        (Some((dm(3, 1), dm(2, 1))), FLAG_COMMIT),
        (Some((dm(1, 1), dm(3, 1))), FLAG_COMMIT),
        (Some((dm(2, 1), dm(3, 1))), FLAG_ROLLBACK),
    ] {
        for op in [Op::Add(0, 1), Op::Delete(0), Op::Insert(row(0, 3))] {
            let mut c = cluster(3, false, None);
            let [first, second, ..]: [u64; 4] = with_rows(&mut c);
            return_of_node_3(&mut c, 9);
            let fresh = c.keys_at(2).find(|&key| key > 1000 && c.owner_of(key) == c.owner_of(first));
            let op = match op {
                Op::Insert(_) => Op::Insert(row(fresh.expect("keys without end"), 3)),
                Op::Delete(_) => Op::Delete(first),
                _ => Op::Add(first, 1),
            };
            // Its coordinator outlives the primary.
            let id = c.begin();
            c.batch_at(tc(1), id, FLAG_START, 1, 0, &strict(&[op, Op::Add(second, 1)]));
            assert_eq!(c.received(), [open(1)]);
            if let Some((from, to)) = held {
                c.hold(from, to);
            }
            c.batch_at(tc(1), id, flag, 9, 0, &[]);
            c.hold_slices(1);
            c.kill(2);
            c.received();
            assert_eq!(c.at_once_by(tc(3), &[Op::Write(row(first, 8))]), [committed(1)]);
            c.release_slices(1);
            if let Some((from, to)) = held {
                c.release(from, to);
            }
            c.start(3);
            c.ends_well();
        }
    }
}

/// A coordinator has failed, and its successor does not know all of its transactions yet when a copy brings markers of
/// them.
#[test]
fn markers_that_a_copy_brings_wait_for_a_take_over() {
    let mut c = cluster(4, false, None);
    let [key, ..]: [u64; 2] = with_rows(&mut c);
    let instance = c.owner_of(key).instance();
    return_of_node_3(&mut c, 0);
    let id = c.begin();
    c.batch_at(tc(4), id, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
    assert_eq!(c.received(), [committed(1)]);
    let (reporter, successor) = (dm(2, instance), tc(1));
    c.hold(reporter, successor);
    c.kill(4);
    assert!(c.held(reporter, successor) > 0, "its report is on its way");
    c.release_slices(2);
    assert!(!c.is_copied(3), "it asks what is to go of the markers");
    c.release(reporter, successor);
    c.start(3);
    c.kill(2);
    c.kill(1);
    assert_eq!(c.ask_successor(tc(3), id, tc(4)), [crate::support::Received::Outcome(1)]);
    c.release_coordinator(tc(3), tc(4));
    c.ends_well();
}

/// The newest commit is the delete of a row: nothing of it is left that could be copied.
/// A transaction that has changed many rows ends behind the cursor: each of them is sent by itself. While they wait at
/// the target, some of them are changed again.
#[test]
fn rows_that_wait_at_the_target_come_before_their_changes() {
    for commits in [false, true] {
        let mut c = cluster(3, true, None);
        let keys: [u64; 40] = with_rows(&mut c);
        c.kill(3);
        c.come_back(3);
        let id = c.begin();
        let all: Vec<Op> = keys.iter().map(|&key| Op::Add(key, 1)).collect();
        c.batch_at(tc(2), id, FLAG_START, 1, 0, &strict(&all));
        assert_eq!(c.received(), [open(1)]);
        c.hold_slices(2);
        c.hold_slices(3);
        c.copy_to(3);
        (0..100).for_each(|_| c.slice(2));
        end(&mut c, id, if commits { FLAG_COMMIT } else { FLAG_ROLLBACK });
        for at in [39, 30, 0, 39] {
            assert_eq!(c.at_once_by(tc(2), &[Op::Add(keys[at], 10)]), [committed(1)]);
        }
        assert!(!c.is_copied(3), "some rows wait");
        c.release_slices(3);
        end_copy(&mut c);
        c.forget_all_outcomes();
        c.kill(1);
        c.kill(2);
        for (at, &key) in keys.iter().enumerate() {
            let more = [(39, 20), (30, 10), (0, 10)].iter().find(|one| one.0 == at).map_or(0, |one| one.1);
            let expected = 1 + i64::from(commits) + more;
            assert_eq!(c.read(&[key], None).pop().flatten().map(|row| row.1), Some(expected), "row {at}");
        }
        c.ends_well();
    }
}

#[test]
fn a_copy_knows_the_newest_epoch_of_its_source() {
    let mut c = cluster(3, false, None);
    let keys: [u64; 3] = with_rows(&mut c);
    c.kill(3);
    c.release_coordinator(tc(1), tc(3));
    c.advance(Span::from_millis(500));
    assert_eq!(c.at_once_by(tc(2), &[Op::Delete(keys[0])]), [committed(1)]);
    c.come_back(3);
    c.copy_to(3);
    c.start(3);
    let instance = usize::from(c.owner_of(keys[0]).instance());
    let epoch = |node| c.node(node).data_managers()[instance].epoch();
    assert!(epoch(3) >= epoch(2), "{:?} {:?}", epoch(3), epoch(2));
    c.ends_well();
}

/// A copy is complete but for its markers, which are more than fit a batch.
#[test]
fn markers_are_sent_one_batch_after_the_other() {
    let mut c = cluster(3, false, None);
    let [key] = with_rows(&mut c);
    let instance = c.owner_of(key).instance();
    for _ in 0..=COPIED_MARKERS_MAX {
        assert_eq!(c.at_once_by(tc(2), &[Op::Add(key, 1)]), [committed(1)]);
    }
    return_of_node_3(&mut c, 0);
    let (source, next) = (dm(2, instance), dm(1, instance));
    c.hold(source, next);
    let mut batches = 0;
    while c.node(3).data_managers()[usize::from(instance)].copy_complete().is_none() {
        c.slice(2);
        assert!(c.held(source, next) <= 1, "one batch in a slice");
        batches += c.held(source, next);
        c.deliver(source, next);
        assert!(batches < 20, "it comes to its end");
    }
    assert!(batches >= 3, "a row, and two batches of markers: {batches}");
    c.release(source, next);
    end_copy(&mut c);
    c.forget_all_outcomes();
    c.ends_well();
}

hazards! {
    /// A row that is changed before it was sent.
    a_change_ahead_of_the_cursor_is_carried_by_the_copy breaks CopyGetsAllChanges;

    /// Open changes that end behind the cursor: a change that is committed, one that is rolled back, a new row, a
    /// delete.
    rows_with_open_changes_are_sent_when_these_end breaks CopyForgetsOpenRows;

    /// A place that is free at the primary, and was not when an earlier one copied it.
    a_place_that_is_free_becomes_free_at_the_copy breaks CopyKeepsOldRows;

    /// The API node does not know the outcome yet when the node is copied to, and asks when all others are gone.
    outcomes_are_known_to_a_node_that_was_copied_to breaks CopyForgetsMarkers;

    /// The coordinator's order to drop a marker comes to the copy before the marker. The source dies before it gets it.
    a_marker_that_comes_behind_the_order_to_drop_it_does_not_stay breaks CopiedMarkersStay;

    /// A change is committed at its source, and the copy gets it as a row. The order to commit another change of its
    /// transaction is on its way to another copy of that node when source and coordinator die.
    what_a_copy_was_sent_is_committed_everywhere breaks CopyForgetsCommits;

    /// A transaction has changed a row that the copy has. Its last change is one of a row that the copy has not: the
    /// last replica of that must not commit, as the copy would not learn of it.
    the_last_replica_of_a_change_does_not_speak_for_a_copy breaks LastReplicaForgetsCopy;

    /// A coordinator has ordered a rollback before it knew of the copy. The primary has executed the changes since, and
    /// undoes them in slices, which come to their end when the copy is complete, and its node has started.
    a_rollback_that_is_older_than_a_copy_goes_on_to_it breaks AbortForgetsCopy;
}

mod scenarios {
    use super::*;

    pub fn a_change_ahead_of_the_cursor_is_carried_by_the_copy(bug: Option<InjectedBug>) {
        let mut c = cluster(3, true, bug);
        let keys: [u64; 4] = with_rows(&mut c);
        return_of_node_3(&mut c, 2);
        for key in keys {
            assert_eq!(c.at_once_by(tc(2), &[Op::Add(key, 1)]), [committed(1)]);
        }
        assert_eq!(c.at_once_by(tc(2), &[Op::Delete(keys[3])]), [committed(1)]);
        end_copy(&mut c);
        c.ends_well();
    }

    pub fn rows_with_open_changes_are_sent_when_these_end(bug: Option<InjectedBug>) {
        let mut c = cluster(3, false, bug);
        let keys: [u64; 6] = with_rows(&mut c);
        let fresh = c.keys_at(2).find(|&key| key > 1000 && c.owner_of(key) == c.owner_of(keys[0]));
        let fresh = fresh.expect("there are keys without end");
        let ops = [Op::Add(keys[0], 5), Op::Add(keys[2], 5), Op::Delete(keys[4]), Op::Insert(row(fresh, 1))];
        c.kill(3);
        let ids = ops.map(|op| begin_with(&mut c, op));
        c.come_back(3);
        c.copy_to(3);
        assert!(!c.is_copied(3) || bug.is_some(), "transactions are open");
        end(&mut c, ids[0], FLAG_COMMIT);
        // It is one like others from now on.
        assert_eq!(c.at_once_by(tc(2), &[Op::Add(keys[0], 1)]), [committed(1)]);
        // What is undone in part goes on.
        c.batch_at(tc(2), ids[1], FLAG_ROLLBACK_TO, 2, 1, &[]);
        c.batch_at(tc(2), ids[1], 0, 3, 0, &strict(&[Op::Add(keys[2], 2), Op::Add(keys[3], 2)]));
        end(&mut c, ids[1], FLAG_ROLLBACK);
        end(&mut c, ids[2], FLAG_COMMIT);
        end(&mut c, ids[3], FLAG_COMMIT);
        c.start(3);
        c.ends_well();
    }

    pub fn a_place_that_is_free_becomes_free_at_the_copy(bug: Option<InjectedBug>) {
        let mut c = cluster(3, false, bug);
        let keys: [u64; 4] = with_rows(&mut c);
        return_of_node_3(&mut c, 9);
        // Nothing is sent of the next copy before the rows have gone at its source.
        c.hold_slices(1);
        c.hold(dm(1, 1), dm(3, 1));
        c.kill(2);
        for key in keys {
            assert_eq!(c.at_once_by(tc(1), &[Op::Delete(key)]), [committed(1)]);
        }
        c.release(dm(1, 1), dm(3, 1));
        c.release_slices(1);
        c.start(3);
        c.ends_well();
    }

    pub fn outcomes_are_known_to_a_node_that_was_copied_to(bug: Option<InjectedBug>) {
        let mut c = cluster(2, true, bug);
        let key = c.keys_at(1).next().expect("there are keys without end");
        let id = c.begin();
        c.batch(id, ALL, 1, &strict(&[Op::Insert(row(key, 1))]));
        c.received();
        c.kill(2);
        c.come_back(2);
        c.copy_to(2);
        c.start(2);
        c.kill(1);
        assert_eq!(c.ask_successor(tc(2), id, tc(1)), [crate::support::Received::Outcome(1)]);
    }

    pub fn a_marker_that_comes_behind_the_order_to_drop_it_does_not_stay(bug: Option<InjectedBug>) {
        let mut c = cluster(4, false, bug);
        let [key, ..]: [u64; 2] = with_rows(&mut c);
        let (coordinator, source) = (tc(4), c.owner_of(key));
        return_of_node_3(&mut c, 0);
        assert_eq!(c.at_once_by(coordinator, &[Op::Add(key, 1)]), [committed(1)]);
        c.hold(coordinator, source);
        c.forget_all_outcomes();
        assert!(c.held(coordinator, source) > 0, "the order is on its way");
        c.release_slices(2);
        c.start(3);
        c.kill(2);
        c.ends_well();
    }

    pub fn what_a_copy_was_sent_is_committed_everywhere(bug: Option<InjectedBug>) {
        let mut c = cluster(2, false, bug);
        c.kill(2);
        let first = 1;
        let copy = dm(2, c.owner_of(first).instance());
        let elsewhere: Vec<u64> =
            (2..).filter(|&key| c.owner_of(key) != c.owner_of(first)).take(12).collect();
        let last = elsewhere[11];
        for &key in elsewhere.iter().chain([&first]) {
            assert_eq!(c.at_once_by(tc(1), &[Op::Insert(row(key, 1))]), [committed(1)]);
        }
        c.forget_all_outcomes();
        c.come_back(2);
        c.hold_slices(1);
        c.copy_to(2);
        (0..2).for_each(|_| c.slice(1));
        // The copy has the first row, and will be sent the last one when the transaction has ended.
        let id = c.begin();
        c.batch_at(tc(1), id, FLAG_START, 1, 0, &strict(&[Op::Add(first, 1), Op::Add(last, 1)]));
        assert_eq!(c.received(), [open(1)]);
        c.release_slices(1);
        assert!(!c.is_copied(2), "the last row is awaited");
        let coordinator = tc(1);
        c.hold(coordinator, copy);
        c.batch_at(coordinator, id, FLAG_COMMIT, 2, 0, &[]);
        assert!(c.received().is_empty() && c.held(coordinator, copy) > 0);
        if !c.is_copied(2) {
            c.release(coordinator, copy);
            assert_eq!(c.received(), [committed(2)]);
        }
        c.start(2);
        c.kill(1);
        assert_eq!(c.read(&[first, last], None), [Some(row(first, 2)), Some(row(last, 2))]);
        assert_eq!(c.ask_successor(tc(2), id, coordinator), [crate::support::Received::Outcome(1)]);
    }

    pub fn a_rollback_that_is_older_than_a_copy_goes_on_to_it(bug: Option<InjectedBug>) {
        let mut c =
            Cluster::with(&Setup { nodes: 3, coordinators: 3, ending_slice: 1, bug, ..Setup::default() });
        let keys: [u64; 2] = with_rows(&mut c);
        let elsewhere = c.keys_at(1).next().expect("there are keys without end");
        assert_eq!(c.at_once_by(tc(2), &[Op::Insert(row(elsewhere, 1))]), [committed(1)]);
        c.forget_all_outcomes();
        c.kill(3);
        c.come_back(3);
        let (coordinator, primary) = (tc(1), dm(2, c.owner_of(keys[0]).instance()));
        c.hold(coordinator, primary);
        let id = c.begin();
        // The last one is refused, by another primary: the coordinator rolls back.
        let ops = [Op::Add(keys[0], 5), Op::Add(keys[1], 5), Op::Insert(row(elsewhere, 2))];
        c.batch_at(coordinator, id, FLAG_START, 1, 0, &strict(&ops));
        assert_eq!(c.held(coordinator, primary), 2, "changes, and the order to undo them");
        c.copy_to(3);
        c.hold_slices(2);
        c.release(coordinator, primary);
        c.start(3);
        c.release_slices(2);
        assert_eq!(c.received().len(), 1, "it has ended");
        c.ends_well();
    }

    pub fn the_last_replica_of_a_change_does_not_speak_for_a_copy(bug: Option<InjectedBug>) {
        let mut c = cluster(3, true, bug);
        let keys: [u64; 4] = with_rows(&mut c);
        return_of_node_3(&mut c, 2);
        let id = begin_with(&mut c, Op::Add(keys[0], 5));
        c.batch_at(tc(2), id, FLAG_COMMIT, 2, 0, &strict(&[Op::Add(keys[3], 5)]));
        assert_eq!(c.received(), [committed(2)]);
        end_copy(&mut c);
        c.ends_well();
    }
}
