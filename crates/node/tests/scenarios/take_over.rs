//! Take-over of coordinators, signal by signal: what goes wrong with simpler rules, and does not here. Like `hazards`,
//! each scenario is run with all rules and, with the feature `injected-bugs`, with one broken, which it must notice.

use crate::support::{ALL, Cluster, Op, Received, Setup, TC, committed, dm, row, strict, tc};
use vinga_kernel::InjectedBug;
use vinga_wire::SignalNumber;
use vinga_wire::schema::SchemaChange;
use vinga_wire::transaction::FLAG_START;

/// Nodes that hold all rows and have coordinators. With three, rows with their primary at node 2 have the chain 2, 3,
/// 1; with four 2, 3, 4, 1.
fn cluster(nodes: u8, bug: Option<InjectedBug>) -> Cluster {
    Cluster::with(&Setup { nodes, coordinators: nodes, bug, ..Setup::default() })
}

fn key_at(c: &Cluster, node: u8) -> u64 {
    c.keys_at(node).next().expect("there are keys without end")
}

const COMMITTED: Received = Received::Outcome(1);
const NOT_FOUND: Received = Received::Outcome(3);

hazards! {
    /// The last backup has committed when the coordinator dies, together with the replica to which it has passed the
    /// commit on. The primary has not committed; a successor that asks it alone rolls back what is committed.
    what_one_replica_has_committed_is_committed_everywhere breaks TakeOverIgnoresCommits, TakeOverDecidesEarly;

    /// The last backup has committed and passes that on, slowly. The coordinator dies, then this backup, before it has
    /// reported: nobody knows of the commit, so it is rolled back. Now what was passed on arrives: the transaction must
    /// not be committed where it has been rolled back elsewhere.
    what_survivors_pass_on_for_a_dead_coordinator_changes_nothing breaks DeadCoordinatorGoesOn;

    /// A transaction is complete when its coordinator dies: only its marker is left. The answer to the API node was
    /// lost with the coordinator, so it asks the successor.
    a_marker_says_that_a_complete_transaction_is_committed breaks TakeOverForgetsMarkers;

    /// The API node asks before all data managers have reported.
    the_successor_answers_when_it_has_ended_the_transaction breaks TakeOverAnswersEarly;

    /// What a successor has committed is complete, and nobody else will say so.
    a_successor_leaves_no_records breaks TakeOverLeavesRecords;

    /// The successor has the commit go along the chain, and dies with the coordinator and the one replica that has
    /// committed. If the primary had been first, somebody would have seen what is rolled back now.
    a_second_successor_takes_nothing_back_that_was_seen breaks TakeOverCommitsForwards;

    /// Rows are copied behind a write fence while a successor has not yet committed what its coordinator had begun to
    /// commit: the copy lacks it, and the API node is answered that it is committed.
    a_copy_behind_a_write_fence_waits_for_take_overs breaks SchemaForgetsOrphans;
}

mod scenarios {
    use super::*;

    pub fn what_one_replica_has_committed_is_committed_everywhere(bug: Option<InjectedBug>) {
        let mut c = cluster(4, bug);
        let key = key_at(&c, 2);
        assert_eq!(c.at_once(&[Op::Insert(row(key, 1))]), [committed(1)]);
        // Node 1 is the last replica of the chain 2, 3, 4, 1.
        c.hold(dm(1, 1), dm(4, 1));
        let id = c.begin();
        c.batch_at(tc(4), id, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
        assert_eq!(c.held(dm(1, 1), dm(4, 1)), 1, "the last replica has passed the commit on");
        assert_eq!(c.received(), []);
        // Its node has died with the commit, and the successor is on node 1.
        c.kill(4);
        assert_eq!(c.ask_successor(TC, id, tc(4)), [COMMITTED]);
        assert_eq!(c.read(&[key], None), [Some(row(key, 2))]);
        c.release_coordinator(TC, tc(4));
        c.ends_well();
    }

    pub fn what_survivors_pass_on_for_a_dead_coordinator_changes_nothing(bug: Option<InjectedBug>) {
        let mut c = cluster(4, bug);
        let key = key_at(&c, 2);
        assert_eq!(c.at_once(&[Op::Insert(row(key, 1))]), [committed(1)]);
        c.hold(dm(1, 1), dm(4, 1));
        let id = c.begin();
        c.batch_at(tc(3), id, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
        assert_eq!(c.held(dm(1, 1), dm(4, 1)), 1, "the last replica has passed the commit on");
        // The successor is on node 4; it gets no report from the only one that has committed.
        c.hold(dm(1, 1), tc(4));
        c.kill(3);
        c.release(dm(1, 1), dm(4, 1));
        c.kill(1);
        assert_eq!(c.ask_successor(tc(4), id, tc(3)), [NOT_FOUND]);
        assert_eq!(c.read(&[key], None), [Some(row(key, 1))]);
        c.release_coordinator(tc(4), tc(3));
        // Node 2 follows node 1 in the order of ids.
        c.release_coordinator(tc(2), TC);
        c.ends_well();
    }

    pub fn a_marker_says_that_a_complete_transaction_is_committed(bug: Option<InjectedBug>) {
        let mut c = cluster(3, bug);
        let (near, far) = (key_at(&c, 2), key_at(&c, 1));
        let id = c.begin();
        c.batch_at(tc(2), id, ALL, 1, 0, &strict(&[Op::Insert(row(near, 1)), Op::Insert(row(far, 1))]));
        assert_eq!(c.received(), [committed(1)]);
        c.kill(2);
        assert_eq!(c.ask_successor(tc(3), id, tc(2)), [COMMITTED]);
        // It may ask again, until it says that it won't.
        assert_eq!(c.ask_successor(tc(3), id, tc(2)), [COMMITTED]);
        c.release_coordinator(tc(3), tc(2));
        assert_eq!(c.ask_successor(tc(3), id, tc(2)), [NOT_FOUND]);
        c.ends_well();
    }

    pub fn the_successor_answers_when_it_has_ended_the_transaction(bug: Option<InjectedBug>) {
        let mut c = cluster(3, bug);
        let key = key_at(&c, 1);
        let id = c.begin();
        c.batch_at(tc(2), id, ALL, 1, 0, &strict(&[Op::Insert(row(key, 1))]));
        assert_eq!(c.received(), [committed(1)]);
        c.hold(dm(1, 0), tc(3));
        c.kill(2);
        assert_eq!(c.ask_successor(tc(3), id, tc(2)), []);
        c.release(dm(1, 0), tc(3));
        assert_eq!(c.received(), [COMMITTED]);
        c.release_coordinator(tc(3), tc(2));
        c.ends_well();
    }

    pub fn a_successor_leaves_no_records(bug: Option<InjectedBug>) {
        let mut c = cluster(3, bug);
        let (key, other) = (key_at(&c, 2), key_at(&c, 1));
        assert_eq!(c.at_once(&[Op::Insert(row(key, 1))]), [committed(1)]);
        // Committed at node 1, the last replica; what it passes on is lost with node 2, which is the coordinator's,
        // too.
        c.hold(dm(1, 1), dm(3, 1));
        let id = c.begin();
        c.batch_at(tc(2), id, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
        let open = c.begin();
        c.batch_at(tc(2), open, FLAG_START, 1, 0, &strict(&[Op::Insert(row(other, 1))]));
        assert_eq!(c.held(dm(1, 1), dm(3, 1)), 1);
        c.received();
        c.kill(2);
        c.release(dm(1, 1), dm(3, 1));
        assert_eq!(c.ask_successor(tc(3), id, tc(2)), [COMMITTED]);
        assert_eq!(c.ask_successor(tc(3), open, tc(2)), [NOT_FOUND]);
        assert_eq!(c.read(&[key, other], None), [Some(row(key, 2)), None]);
        // Both rows are free.
        assert_eq!(c.at_once(&[Op::Add(key, 1), Op::Insert(row(other, 2))]), [committed(1)]);
        c.release_coordinator(tc(3), tc(2));
        c.ends_well();
    }

    pub fn a_copy_behind_a_write_fence_waits_for_take_overs(bug: Option<InjectedBug>) {
        const CHANGED: Received = Received::Other(SignalNumber::SchemaChangeConfirm);
        let mut c = cluster(4, bug);
        let key = key_at(&c, 2);
        assert_eq!(c.at_once(&[Op::Insert(row(key, 1))]), [committed(1)]);
        // Node 1, the last replica of the chain 2, 3, 4, 1, has committed; the coordinator dies.
        c.hold(dm(1, 1), dm(4, 1));
        let id = c.begin();
        c.batch_at(tc(4), id, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
        assert_eq!(c.held(dm(1, 1), dm(4, 1)), 1);
        c.hold(dm(3, 1), TC);
        c.kill(4);
        c.received();
        c.change_schema(SchemaChange::FenceTable { name: "test.t".into(), pinned: None });
        let mut copied = c.received().contains(&CHANGED).then(|| c.read(&[key], None));
        c.release(dm(3, 1), TC);
        if c.received().contains(&CHANGED) {
            copied = Some(c.read(&[key], None));
        }
        assert_eq!(copied, Some(vec![Some(row(key, 2))]), "the copy has what was committed");
        assert_eq!(c.ask_successor(TC, id, tc(4)), [COMMITTED]);
        c.release_coordinator(TC, tc(4));
        c.ends_well();
    }

    pub fn a_second_successor_takes_nothing_back_that_was_seen(bug: Option<InjectedBug>) {
        let mut c = cluster(4, bug);
        // The chain is 1, 2, 3, 4.
        let key = key_at(&c, 1);
        assert_eq!(c.at_once(&[Op::Insert(row(key, 1))]), [committed(1)]);
        // Node 4, the last replica, has committed; the coordinator on node 3 dies.
        c.hold(dm(4, 0), dm(3, 0));
        let id = c.begin();
        c.batch_at(tc(3), id, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
        assert_eq!(c.held(dm(4, 0), dm(3, 0)), 1);
        // The successor on node 4 has the rest commit: what it orders reaches node 1 only, if at all.
        c.hold(dm(1, 0), tc(4));
        c.kill(3);
        c.hold(tc(4), dm(2, 0));
        c.hold(dm(4, 0), dm(2, 0));
        c.release(dm(1, 0), tc(4));
        let seen = c.read(&[key], None);
        // The successor dies, with the replica that has committed, and so does the primary, before its coordinator
        // knows what node 2 has.
        c.hold(TC, dm(2, 0));
        c.kill(4);
        c.kill(1);
        assert_eq!(c.read(&[key], None), seen, "what was seen stays");
        assert_eq!(c.ask_successor(tc(2), id, tc(3)), [NOT_FOUND]);
        for coordinator in [TC, tc(3), tc(4)] {
            c.release_coordinator(tc(2), coordinator);
        }
        c.ends_well();
    }
}
