//! Tables whose backups answer reads (`READ_BACKUP`), signal by signal: a client that was answered sees its change at
//! every replica. Like `hazards`, some scenarios are run with all rules and, with the feature `injected-bugs`, with one
//! broken, which they must notice.

use crate::support::{ALL, Cluster, Op, Received, Row, Setup, committed, dm, open, row, strict, tc};
use vinga_kernel::InjectedBug;
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_START};
use vinga_wire::{ErrorCode, SignalNumber};

/// Nodes that hold all rows and have coordinators; backups answer reads. Rows with their primary at node 2 have the
/// chain 2, 3, 1 with three of them, 2, 3, 4, 1 with four.
fn cluster(nodes: u8, commits_at_last_replica: bool, bug: Option<InjectedBug>) -> Cluster {
    let setup = Setup {
        nodes,
        coordinators: nodes,
        read_backup: true,
        commits_at_last_replica,
        bug,
        ..Setup::default()
    };
    Cluster::with(&setup)
}

/// A key of a row with the primary at node 2, which is inserted with the number 1.
fn with_row(c: &mut Cluster) -> u64 {
    let key = c.keys_at(2).next().expect("there are keys without end");
    assert_eq!(c.at_once_by(tc(2), &[Op::Insert(row(key, 1))]), [committed(1)]);
    key
}

/// What is read of a row at each of the nodes.
fn read_at<const N: usize>(c: &mut Cluster, nodes: [u8; N], key: u64) -> [Option<Row>; N] {
    nodes.map(|node| c.read_at(node, key))
}

const COMMITTED: Received = Received::Outcome(1);

hazards! {
    /// The transaction is committed everywhere, but one backup has not learnt that: it shows the old version. A client
    /// that is answered now, and asks this backup, misses its own change.
    a_commit_is_answered_when_all_replicas_show_it breaks AnswerBeforeComplete;

    /// The coordinator dies before all replicas show what is committed. The successor finds it committed, and must not
    /// say so before they do.
    a_successor_answers_when_all_replicas_show_it breaks TakeOverAnswersBeforeComplete;

    /// A backup has committed, the primary has not: what the backup shows now a double failure could undo.
    a_backup_shows_nothing_that_is_not_committed_everywhere breaks BackupShowsAtCommit;
}

/// The scenarios themselves. Each ends with nothing left of any transaction.
mod scenarios {
    use super::*;

    pub fn a_commit_is_answered_when_all_replicas_show_it(bug: Option<InjectedBug>) {
        for at_last_replica in [false, true] {
            let mut c = cluster(3, at_last_replica, bug);
            let key = with_row(&mut c);
            c.hold(tc(2), dm(3, 1));
            assert_eq!(c.at_once_by(tc(2), &[Op::Add(key, 1)]), []);
            assert_eq!(c.held(tc(2), dm(3, 1)), 1, "one replica is to complete it");
            let (old, new) = (Some(row(key, 1)), Some(row(key, 2)));
            assert_eq!(read_at(&mut c, [2, 3, 1], key), [new.clone(), old, new.clone()]);
            c.release(tc(2), dm(3, 1));
            assert_eq!(c.received(), [committed(1)]);
            assert_eq!(read_at(&mut c, [2, 3, 1], key), [new.clone(), new.clone(), new]);
            c.ends_well();
        }
    }

    pub fn a_successor_answers_when_all_replicas_show_it(bug: Option<InjectedBug>) {
        let mut c = cluster(4, false, bug);
        let key = with_row(&mut c);
        c.hold(tc(4), dm(3, 1));
        let id = c.begin();
        c.batch_at(tc(4), id, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
        assert_eq!(c.held(tc(4), dm(3, 1)), 1, "one replica is to complete it");
        assert_eq!(c.received(), []);
        c.hold(tc(1), dm(3, 1));
        c.kill(4);
        assert_eq!(c.held(tc(1), dm(3, 1)), 1, "the successor asks for a report");
        c.deliver_copies(tc(1), dm(3, 1));
        assert_eq!(c.ask_successor(tc(1), id, tc(4)), [], "it is answered later");
        assert_eq!(c.held(tc(1), dm(3, 1)), 2, "the replica is to complete it");
        let (old, new) = (Some(row(key, 1)), Some(row(key, 2)));
        assert_eq!(read_at(&mut c, [2, 3, 1], key), [new.clone(), old, new.clone()]);
        c.release(tc(1), dm(3, 1));
        assert_eq!(c.received(), [COMMITTED]);
        assert_eq!(read_at(&mut c, [2, 3, 1], key), [new.clone(), new.clone(), new]);
        c.release_coordinator(tc(1), tc(4));
        c.ends_well();
    }

    pub fn a_backup_shows_nothing_that_is_not_committed_everywhere(bug: Option<InjectedBug>) {
        for at_last_replica in [false, true] {
            let mut c = cluster(3, at_last_replica, bug);
            let key = with_row(&mut c);
            c.hold(dm(3, 1), dm(2, 1));
            assert_eq!(c.at_once_by(tc(2), &[Op::Add(key, 1)]), []);
            assert_eq!(c.held(dm(3, 1), dm(2, 1)), 1, "two backups have committed");
            let (old, new) = (Some(row(key, 1)), Some(row(key, 2)));
            assert_eq!(read_at(&mut c, [2, 3, 1], key), [old.clone(), old.clone(), old]);
            c.release(dm(3, 1), dm(2, 1));
            assert_eq!(c.received(), [committed(1)]);
            assert_eq!(read_at(&mut c, [2, 3, 1], key), [new.clone(), new.clone(), new]);
            c.ends_well();
        }
    }
}

/// Whether the backup has completed the transaction when it dies does not matter: nobody reads there any more.
#[test]
fn a_backup_that_dies_before_it_shows_a_commit_is_not_awaited() {
    for (held, shown) in [((tc(2), dm(3, 1)), 1), ((dm(3, 1), tc(2)), 2)] {
        let mut c = cluster(3, true, None);
        let key = with_row(&mut c);
        c.hold(held.0, held.1);
        assert_eq!(c.at_once_by(tc(2), &[Op::Add(key, 1)]), []);
        assert_eq!(c.held(held.0, held.1), 1);
        assert_eq!(c.read_at(3, key), Some(row(key, shown)));
        c.kill(3);
        assert_eq!(c.received(), [committed(1)]);
        assert_eq!(read_at(&mut c, [2, 1], key), [Some(row(key, 2)), Some(row(key, 2))]);
        c.release_coordinator(tc(1), tc(3));
        c.ends_well();
    }
}

/// The primary dies while a backup is to show the change: the next primary shows it, and the coordinator still waits
/// for the backup behind that.
#[test]
fn the_primary_dies_before_a_backup_shows_a_commit() {
    let mut c = cluster(4, true, None);
    let key = with_row(&mut c);
    c.hold(tc(1), dm(3, 1));
    c.hold(tc(1), dm(4, 1));
    assert_eq!(c.at_once_by(tc(1), &[Op::Add(key, 1)]), []);
    assert_eq!((c.held(tc(1), dm(3, 1)), c.held(tc(1), dm(4, 1))), (1, 1));
    c.kill(2);
    let (old, new) = (Some(row(key, 1)), Some(row(key, 2)));
    assert_eq!(read_at(&mut c, [3, 4, 1], key), [new.clone(), old, new.clone()]);
    c.release(tc(1), dm(3, 1));
    assert_eq!(c.received(), []);
    c.release(tc(1), dm(4, 1));
    assert_eq!(c.received(), [committed(1)]);
    assert_eq!(read_at(&mut c, [3, 4, 1], key), [new.clone(), new.clone(), new]);
    c.release_coordinator(tc(3), tc(2));
    c.ends_well();
}

/// Rows of two replica groups: the transaction is answered when the replicas of both show it.
#[test]
fn replicas_of_all_groups_are_awaited() {
    let mut c = cluster(3, true, None);
    let key = with_row(&mut c);
    let other = c.keys_at(1).next().expect("there are keys without end");
    assert_eq!(c.at_once_by(tc(2), &[Op::Insert(row(other, 1))]), [committed(1)]);
    let id = c.begin();
    c.batch_at(tc(1), id, FLAG_START, 1, 0, &strict(&[Op::Add(key, 1), Op::Add(other, 1)]));
    assert_eq!(c.received(), [open(1)]);
    // The replicas in the middle of both chains.
    let (backup, other_backup) = (dm(3, 1), dm(2, 0));
    c.hold(tc(1), backup);
    c.hold(tc(1), other_backup);
    c.batch_at(tc(1), id, FLAG_COMMIT, 2, 0, &[]);
    assert_eq!((c.held(tc(1), backup), c.held(tc(1), other_backup)), (1, 1));
    assert_eq!(c.received(), []);
    c.release(tc(1), other_backup);
    assert_eq!(c.received(), []);
    c.release(tc(1), backup);
    assert_eq!(c.received(), [committed(2)]);
    for (key, n) in [(key, 2), (other, 2)] {
        assert_eq!(read_at(&mut c, [1, 2, 3], key), [(); 3].map(|()| Some(row(key, n))));
    }
    c.ends_well();
}

/// A replica confirms twice, or confirms what its coordinator has answered long ago.
#[test]
fn a_confirmation_that_comes_twice_does_no_harm() {
    let mut c = cluster(3, false, None);
    let key = with_row(&mut c);
    let id = c.begin();
    c.batch_at(tc(2), id, FLAG_START, 1, 0, &strict(&[Op::Add(key, 1)]));
    assert_eq!(c.received(), [open(1)]);
    c.hold(tc(2), dm(3, 1));
    c.hold(dm(1, 1), tc(2));
    c.batch_at(tc(2), id, FLAG_COMMIT, 2, 0, &[]);
    assert_eq!((c.held(dm(1, 1), tc(2)), c.held(tc(2), dm(3, 1))), (1, 1));
    // Node 1 has confirmed, and confirms again.
    c.deliver_copies(dm(1, 1), tc(2));
    c.deliver_copies(dm(1, 1), tc(2));
    assert_eq!(c.received(), [], "node 3 has not");
    c.deliver_copies(tc(2), dm(3, 1));
    assert_eq!(c.received(), [committed(2)]);
    c.release(tc(2), dm(3, 1));
    c.release(dm(1, 1), tc(2));
    assert_eq!(c.received(), []);
    c.ends_well();
}

/// Of other tables backups answer nothing, and nobody waits for them.
#[test]
fn other_tables_are_read_at_the_primary_and_answered_at_once() {
    for commits_at_last_replica in [false, true] {
        let mut c = Cluster::with(&Setup { coordinators: 3, commits_at_last_replica, ..Setup::default() });
        let key = with_row(&mut c);
        c.hold(tc(2), dm(3, 1));
        assert_eq!(c.at_once_by(tc(2), &[Op::Add(key, 1)]), [committed(1)]);
        for node in [1, 3] {
            c.send_read(dm(node, 1), key, None);
            assert_eq!(c.received(), [Received::Refused(ErrorCode::Moved)]);
        }
        assert_eq!(c.read_at(2, key), Some(row(key, 2)));
        c.release(tc(2), dm(3, 1));
        assert!(!c.scenario().contains(&format!("{:?}", SignalNumber::CompleteRequest)));
        c.ends_well();
    }
}

/// A client that has adopted the next view takes for the primary what is a backup in a view before. It may have seen at
/// the primary that has died what this backup does not show yet, so the backup must not answer in the primary's place.
#[test]
fn what_is_meant_for_the_primary_is_answered_by_no_backup() {
    let mut c = cluster(3, false, None);
    let key = with_row(&mut c);
    for node in [1, 3] {
        c.send_read_with(dm(node, 1), key, None, 0);
        assert_eq!(c.received(), [Received::Refused(ErrorCode::Moved)]);
        let partition = c.partition_of(key);
        c.open_scan_with(partition, dm(node, 1), None, 1, 0);
        assert_eq!(c.received(), [Received::Refused(ErrorCode::Moved)]);
        assert_eq!(c.read_at(node, key), Some(row(key, 1)), "it answers what is meant for a backup");
    }
    c.send_read_with(dm(2, 1), key, None, 0);
    assert_eq!(c.received(), [Received::Rows(vec![Some(row(key, 1))])]);
    c.ends_well();
}
