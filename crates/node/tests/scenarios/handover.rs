//! Primaries are handed over to a data node that has come back, while transactions hold locks and wait for them.

use crate::support::{ALL, Cluster, Op, Received, Setup, committed, dm, open, row, strict, tc};
use vinga_base::{NodeId, TransactionId};
use vinga_kernel::{InjectedBug, Span};
use vinga_wire::operation::OperationKind;
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_ROLLBACK, FLAG_START};
use vinga_wire::view::MemberState;
use vinga_wire::{Address, BlockNumber, ErrorCode, SignalNumber};

/// Two data nodes. The second one has died; when it comes back it is to be the primary of the second partition again.
fn cluster(bug: Option<InjectedBug>) -> Cluster {
    let mut c = Cluster::with(&Setup {
        nodes: 2,
        coordinators: 2,
        commits_at_last_replica: true,
        node_heartbeat_interval: Span::from_millis(50),
        bug,
        ..Setup::default()
    });
    for key in 1..20 {
        assert_eq!(c.at_once_by(tc(1), &[Op::Insert(row(key, 1))]), [committed(1)]);
    }
    c.forget_all_outcomes();
    c.die(2);
    assert_eq!(primaries(&c), [1, 1]);
    c
}

/// Each of the two is a primary.
fn is_balanced(c: &Cluster) -> bool {
    primaries(c) == [1, 2] || primaries(c) == [2, 1]
}

fn primaries(c: &Cluster) -> Vec<u8> {
    c.view.partitions().iter().map(|partition| partition.chain.primary().0).collect()
}

fn agreement(node: u8) -> Address {
    Address::new(NodeId(node), BlockNumber::Agreement, 0)
}

/// The n-th key of the partition that moves.
fn key(c: &Cluster, n: usize) -> u64 {
    (1..20).filter(|&key| c.owner_of(key).instance() == 1).nth(n).expect("each partition has some rows")
}

fn millis(c: &mut Cluster, millis: u64) {
    c.advance(Span::from_millis(millis));
}

/// A transaction that has locked a row of the partition, by the coordinator of node 1.
fn reader(c: &mut Cluster) -> TransactionId {
    let id = c.begin();
    let key = key(c, 0);
    c.batch(id, FLAG_START, 1, &strict(&[Op::Read(OperationKind::ReadShared, key)]));
    assert_eq!(c.received().last(), Some(&open(1)));
    id
}

/// A data node comes back, and the API node is connected to it.
fn join(c: &mut Cluster, node: u8) {
    c.join(node);
    join_clients(c, node);
}

fn join_clients(c: &mut Cluster, node: u8) {
    for to in [tc(node), dm(node, 0), dm(node, 1)] {
        c.notify_one_of_api(to, SignalNumber::ApiConnectedOrder);
    }
    assert_eq!(c.state_of(node), Some(MemberState::Started));
}

fn commit(c: &mut Cluster, id: TransactionId) {
    c.batch(id, FLAG_COMMIT, 2, &[]);
    let received = c.received();
    assert!(received.contains(&committed(2)), "{received:?}");
}

/// The primary has come to rest, and the view that names the next one is under way: node 2 has not agreed yet.
fn promised(c: &mut Cluster) {
    let id = reader(c);
    join(c, 2);
    // It answers a heartbeat.
    millis(c, 60);
    c.hold(agreement(2), agreement(1));
    commit(c, id);
    assert_eq!(primaries(c), [1, 1]);
}

fn let_move(c: &mut Cluster) {
    c.release(agreement(2), agreement(1));
    assert_eq!(primaries(c), [1, 2]);
}

/// Sends a transaction of one change, whose answer may have to wait.
fn send_change(c: &mut Cluster, by: u8, key: u64, n: i64) -> TransactionId {
    let id = c.begin();
    c.batch_at(tc(by), id, ALL, 1, 0, &strict(&[Op::Set(key, n)]));
    id
}

fn number_of(c: &mut Cluster, key: u64) -> Option<i64> {
    c.read(&[key], None).pop().flatten().map(|row| row.1)
}

#[test]
fn a_data_node_that_comes_back_is_the_primary_of_its_share_again() {
    let mut c = cluster(None);
    join(&mut c, 2);
    millis(&mut c, 200);
    assert_eq!(primaries(&c), [1, 2]);
    for key in 1..20 {
        assert_eq!(c.at_once_by(tc(1 + key as u8 % 2), &[Op::Set(key, 2)]), [committed(1)]);
    }
    millis(&mut c, 200);
    assert_eq!(c.contents(1), c.contents(2));
    // The node that has stayed dies, and comes back, too.
    c.die(1);
    assert_eq!(primaries(&c), [2, 2]);
    c.join(1);
    millis(&mut c, 500);
    assert_eq!(primaries(&c), [1, 2]);
}

/// Others wait for a lock as long as it is held, and then get it, whoever is the primary.
fn locks_hold(bug: Option<InjectedBug>) {
    let mut c = cluster(bug);
    let (id, key) = (reader(&mut c), key(&c, 0));
    join(&mut c, 2);
    send_change(&mut c, 2, key, 7);
    millis(&mut c, 300);
    assert_eq!(c.received(), [], "the row is locked");
    commit(&mut c, id);
    assert_eq!(c.received(), []);
    millis(&mut c, 500);
    assert_eq!((is_balanced(&c), number_of(&mut c, key)), (true, Some(7)));
    c.ends_well();
}

#[test]
fn a_lock_keeps_its_primary() {
    let mut c = cluster(None);
    let id = reader(&mut c);
    join(&mut c, 2);
    // It goes on, with further changes.
    let (other, waits) = (key(&c, 1), key(&c, 2));
    c.batch(id, 0, 2, &strict(&[Op::Set(other, 5)]));
    assert_eq!(c.received(), [open(2)]);
    // Others wait for it, in their order, but not long.
    send_change(&mut c, 2, waits, 7);
    send_change(&mut c, 2, waits, 8);
    assert_eq!(c.received(), []);
    millis(&mut c, 130);
    assert_eq!((c.received(), primaries(&c)), (vec![committed(1); 2], vec![1, 1]));
    c.batch(id, FLAG_COMMIT, 3, &[]);
    assert_eq!(c.received(), [committed(3)]);
    millis(&mut c, 500);
    assert!(is_balanced(&c));
    assert_eq!((number_of(&mut c, waits), number_of(&mut c, other)), (Some(8), Some(5)));
    c.ends_well();
}

#[test]
fn what_was_put_off_is_executed_by_the_next_primary() {
    let mut c = cluster(None);
    promised(&mut c);
    let (key, other) = (key(&c, 3), key(&c, 2));
    // Both coordinators; the order of one is kept.
    send_change(&mut c, 1, key, 3);
    send_change(&mut c, 1, key, 4);
    send_change(&mut c, 2, other, 5);
    assert_eq!(c.received(), []);
    assert_eq!(number_of(&mut c, key), Some(1), "reads are answered");
    let_move(&mut c);
    assert_eq!(c.received(), [committed(1), committed(1), committed(1)]);
    assert_eq!(number_of(&mut c, key), Some(4));
    c.ends_well();
}

/// A transaction whose operation was put off, or is on its way back, is rolled back: nothing of it is executed.
#[test]
fn what_was_put_off_goes_with_its_transaction() {
    let mut c = cluster(None);
    promised(&mut c);
    let key = key(&c, 3);
    let id = c.begin();
    c.batch_at(tc(1), id, FLAG_START, 1, 0, &strict(&[Op::Set(key, 3)]));
    c.batch_at(tc(1), id, FLAG_ROLLBACK, 2, 0, &[]);
    assert_eq!(c.received().len(), 1);
    c.hold(dm(1, 1), tc(2));
    let late = c.begin();
    c.batch_at(tc(2), late, FLAG_START, 1, 0, &strict(&[Op::Set(key, 4)]));
    let_move(&mut c);
    c.batch_at(tc(2), late, FLAG_ROLLBACK, 2, 0, &[]);
    c.release(dm(1, 1), tc(2));
    assert_eq!(c.received().len(), 1);
    assert_eq!(c.at_once_by(tc(2), &[Op::Add(key, 1)]), [committed(1)]);
    assert_eq!(number_of(&mut c, key), Some(2));
    c.ends_well();
}

/// A coordinator sends an operation in the view before; it arrives when that primary has adopted the next one.
#[test]
fn an_operation_that_arrives_late_is_sent_to_the_next_primary() {
    for is_rolled_back in [false, true] {
        let mut c = cluster(None);
        promised(&mut c);
        let key = key(&c, 3);
        c.hold(tc(2), dm(1, 1));
        let id = c.begin();
        let flags = if is_rolled_back { FLAG_START } else { ALL };
        c.batch_at(tc(2), id, flags, 1, 0, &strict(&[Op::Set(key, 3)]));
        let_move(&mut c);
        if is_rolled_back {
            c.batch_at(tc(2), id, FLAG_ROLLBACK, 2, 0, &[]);
        }
        c.release(tc(2), dm(1, 1));
        assert_eq!(c.received().len(), 1);
        assert_eq!(number_of(&mut c, key), Some(if is_rolled_back { 1 } else { 3 }));
        c.ends_well();
    }
}

/// The former primary becomes the primary again, and only then gets an operation from its first time, whose transaction
/// was rolled back in between.
#[test]
fn an_operation_of_an_earlier_time_as_primary_does_not_count() {
    let mut c = cluster(None);
    promised(&mut c);
    let key = key(&c, 3);
    c.hold(tc(2), dm(1, 1));
    let id = c.begin();
    c.batch_at(tc(2), id, FLAG_START, 1, 0, &strict(&[Op::Set(key, 3)]));
    let_move(&mut c);
    c.batch_at(tc(2), id, FLAG_ROLLBACK, 2, 0, &[]);
    assert_eq!(c.received().len(), 1);
    c.adopt(c.view.with_primary(c.partition_of(key), NodeId(1)));
    c.release(tc(2), dm(1, 1));
    assert_eq!(c.at_once_by(tc(1), &[Op::Add(key, 1)]), [committed(1)], "nobody has locked the row");
    c.ends_well();
}

/// Whoever dies between the promise and the view, the others go on with what was put off, or roll it back.
#[test]
fn whoever_dies_while_a_primary_is_handed_over_nothing_is_left() {
    for dead in [1, 2] {
        for by in [1, 2] {
            for is_promised in [true, false] {
                let mut c = cluster(None);
                if is_promised {
                    promised(&mut c);
                } else {
                    reader(&mut c);
                    join(&mut c, 2);
                    millis(&mut c, 60);
                }
                let key = key(&c, 3);
                send_change(&mut c, by, key, 3);
                c.die(dead);
                let live = 3 - dead;
                millis(&mut c, 300);
                let received = c.received();
                // As always when a replica fails that it may have reached.
                let refused = |code| Received::Refuse { request: 1, code, operation: 0 };
                let may_be = [committed(1), refused(ErrorCode::NodeFailure)];
                // The one that holds a lock is of node 1.
                let answers = usize::from(by == live) + usize::from(live == 1 && !is_promised);
                assert_eq!(received.len(), answers, "{received:?}");
                assert!(received.iter().all(|one| may_be.contains(one)), "{received:?}");
                assert_eq!(c.at_once_by(tc(live), &[Op::Set(key, 9)]), [committed(1)]);
                c.release(agreement(2), agreement(1));
                c.join(dead);
                millis(&mut c, 1000);
                join_clients(&mut c, dead);
                assert_eq!((is_balanced(&c), number_of(&mut c, key)), (true, Some(9)));
            }
        }
    }
}

/// A scan by row ids goes on at the next primary: the former one says where.
#[test]
fn a_scan_is_sent_on_when_its_primary_moves() {
    let mut c = cluster(None);
    let partition = c.partition_of(key(&c, 0));
    c.open_scan(partition, dm(1, 1), None, 2);
    assert!(matches!(c.received()[..], [Received::Scanned { end: false, .. }]));
    join(&mut c, 2);
    millis(&mut c, 200);
    assert_eq!((primaries(&c), c.received()), (vec![1, 2], vec![Received::Refused(ErrorCode::Moved)]));
    c.open_scan(partition, dm(2, 1), None, 100);
    assert!(matches!(c.received()[..], [Received::Scanned { .. }, Received::Scanned { end: true, .. }]));
    c.ends_well();
}

#[test]
fn a_lock_is_not_lost_with_its_primary() {
    locks_hold(None);
}

#[cfg(feature = "injected-bugs")]
#[test]
#[should_panic(expected = "the row is locked")]
fn a_primary_that_moves_with_locks_is_noticed() {
    locks_hold(Some(InjectedBug::PrimaryMovedWithLocks));
}
