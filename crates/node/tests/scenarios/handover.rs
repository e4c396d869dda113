//! Primaries are handed over to a data node that has come back, while transactions hold locks and wait for them.

use crate::support::{ALL, Cluster, Op, Received, Setup, committed, dm, open, row, strict, tc};
use vinga_base::{NodeId, TransactionId};
use vinga_kernel::{InjectedBug, Span};
use vinga_wire::operation::OperationKind;
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_ROLLBACK, FLAG_ROLLBACK_TO, FLAG_START};
use vinga_wire::view::MemberState;
use vinga_wire::{Address, BlockNumber, ErrorCode, SignalNumber};

/// Two data nodes. The second one has died; when it comes back it is to be the primary of the second partition again.
fn cluster(bug: Option<InjectedBug>) -> Cluster {
    let c = cluster_of(2, bug);
    assert_eq!(primaries(&c), [1, 1]);
    c
}

/// So many replicas, of which all but the first one have died.
fn cluster_of(nodes: u8, bug: Option<InjectedBug>) -> Cluster {
    cluster_with(nodes, Span::from_millis(50), bug)
}

/// The same, with this interval between heartbeats.
fn cluster_with(nodes: u8, node_heartbeat_interval: Span, bug: Option<InjectedBug>) -> Cluster {
    let mut c = Cluster::with(&Setup {
        nodes,
        coordinators: 2,
        commits_at_last_replica: true,
        node_heartbeat_interval,
        bug,
        ..Setup::default()
    });
    for key in 1..20 {
        assert_eq!(c.at_once_by(tc(1), &[Op::Insert(row(key, 1))]), [committed(1)]);
    }
    c.forget_all_outcomes();
    for dead in 2..=nodes {
        c.die(dead);
    }
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

/// A transaction in each partition that has locked a row: nothing moves.
fn readers(c: &mut Cluster) -> [(u64, TransactionId); 2] {
    [0, 1].map(|owner| {
        let key = (1..20).find(|&key| c.owner_of(key).instance() == owner).expect("each has some rows");
        let id = c.begin();
        c.batch(id, FLAG_START, 1, &strict(&[Op::Read(OperationKind::ReadShared, key)]));
        assert_eq!(c.received().last(), Some(&open(1)));
        (key, id)
    })
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

/// A transaction is rolled back at the primary; its change, and the order to undo it, are on their way to the last
/// replica. That may take longer than the agreement on the next view. Nothing of it counts behind what the next primary
/// does.
fn what_was_sent_arrives_before(nodes: u8, bug: Option<InjectedBug>) {
    let mut c = cluster_of(nodes, bug);
    let locked = readers(&mut c);
    for node in 2..=nodes {
        c.join(node);
        millis(&mut c, 500);
        join_clients(&mut c, node);
    }
    let (partition, next) = c.view.hand_overs()[0];
    let chain = c.view.partition(partition).chain;
    assert_eq!(chain.length(), usize::from(nodes));
    let is_there = |key: u64| c.partition_of(key) == partition;
    let (_, id) = locked.into_iter().find(|(key, _)| is_there(*key)).expect("there is a lock");
    let (_, keeper) = locked.into_iter().find(|(key, _)| !is_there(*key)).expect("there is a lock");
    let key = (1..20).filter(|&key| is_there(key)).nth(1).expect("each partition has some rows");
    let instance = c.owner_of(key).instance();
    let last = chain.last();
    let before = chain.previous(last).expect("it has more than one replica");
    let (from, to) = (dm(before.0, instance), dm(last.0, instance));
    c.hold(from, to);
    c.batch(id, 0, 2, &strict(&[Op::Set(key, 7)]));
    c.batch(id, FLAG_ROLLBACK, 3, &[]);
    assert!(c.held(from, to) >= 2, "the change, and the order to undo it");
    let was = primaries(&c);
    millis(&mut c, 90);
    send_change(&mut c, next.0, key, 9);
    millis(&mut c, 300);
    if bug.is_none() {
        assert_eq!(primaries(&c), was, "attempts are given up");
    }
    c.release(from, to);
    millis(&mut c, 2000);
    commit(&mut c, keeper);
    assert!(c.view.hand_overs().is_empty(), "it has moved");
    assert_eq!(number_of(&mut c, key), Some(9), "it was committed");
    c.ends_well();
}

#[test]
fn what_a_primary_has_sent_arrives_before_it_moves() {
    for nodes in [2, 3] {
        what_was_sent_arrives_before(nodes, None);
    }
}

#[cfg(feature = "injected-bugs")]
#[test]
#[should_panic(expected = "it was committed")]
fn a_primary_that_moves_before_the_chain_is_flushed_is_noticed() {
    what_was_sent_arrives_before(2, Some(InjectedBug::PrimaryMovedUnflushed));
}

/// An insert is undone while the primary comes to rest, and it has nothing of the transaction any more; the order to
/// undo it is still on its way to the backup. What the transaction does next is done by the next primary, and stays.
fn a_partial_rollback_arrives_before(bug: Option<InjectedBug>) {
    let mut c = cluster(bug);
    let [(_, other_keeper), (_, keeper)] = readers(&mut c);
    join(&mut c, 2);
    // Attempts have been given up, and there is a pause.
    millis(&mut c, 330);
    let (key, new) =
        (key(&c, 3), (100..).find(|&key| c.owner_of(key).instance() == 1).expect("there is one"));
    let id = c.begin();
    c.batch(id, FLAG_START, 1, &strict(&[Op::Insert(row(new, 1))]));
    assert_eq!(c.received(), [open(1)]);
    let other = self::key(&c, 2);
    let mut n = 1;
    while {
        send_change(&mut c, 2, other, n + 1);
        !c.received().is_empty()
    } {
        n += 1;
        millis(&mut c, 10);
    }
    c.hold(dm(1, 1), dm(2, 1));
    c.batch_with(id, FLAG_ROLLBACK_TO, 2, 1, &strict(&[Op::Set(key, 9)]));
    assert_eq!(c.held(dm(1, 1), dm(2, 1)), 1, "the order to undo the insert");
    c.batch(keeper, FLAG_COMMIT, 2, &[]);
    millis(&mut c, 200);
    c.release(dm(1, 1), dm(2, 1));
    millis(&mut c, 1000);
    c.batch(id, FLAG_COMMIT, 3, &[]);
    millis(&mut c, 1000);
    let received = c.received();
    assert!(received.contains(&committed(3)), "{received:?}");
    assert!(is_balanced(&c));
    commit(&mut c, other_keeper);
    assert_eq!(
        (number_of(&mut c, key), number_of(&mut c, other), number_of(&mut c, new)),
        (Some(9), Some(n + 1), None),
        "what it has done stays"
    );
    c.ends_well();
}

#[test]
fn a_partial_rollback_arrives_before_the_primary_moves() {
    a_partial_rollback_arrives_before(None);
}

#[cfg(feature = "injected-bugs")]
#[test]
#[should_panic(expected = "what it has done stays")]
fn a_partial_rollback_behind_the_move_is_noticed() {
    a_partial_rollback_arrives_before(Some(InjectedBug::PrimaryMovedUnflushed));
}

/// A lock that is held for long keeps operations of others waiting now and then, and less and less often.
#[test]
fn hand_overs_are_tried_less_often_each_time() {
    let mut c = cluster(None);
    let locked = readers(&mut c);
    join(&mut c, 2);
    let key = key(&c, 3);
    let mut waited = 0;
    for n in 0..60 {
        send_change(&mut c, 1, key, n);
        waited += usize::from(c.received().is_empty());
        millis(&mut c, 50);
        c.received();
    }
    // 3 seconds: pauses of 0.1, 0.2 … 1.6 seconds between attempts of 0.1, each other one in this partition.
    assert!((2..=9).contains(&waited), "{waited} of 60 have waited");
    // It moves within the longest pause.
    for (_, id) in locked {
        commit(&mut c, id);
    }
    for _ in 0..300 {
        millis(&mut c, 100);
    }
    assert!(is_balanced(&c));
    c.ends_well();
}

/// A data node does not agree for a while, less than it takes to give it up: the primary goes on.
#[test]
fn a_primary_does_not_wait_for_long_for_the_next_view() {
    let mut c = cluster_with(2, Span::from_millis(1_000), None);
    promised(&mut c);
    let key = key(&c, 3);
    send_change(&mut c, 1, key, 7);
    millis(&mut c, 400);
    assert_eq!(c.received(), [], "it has promised");
    millis(&mut c, 200);
    assert_eq!((c.received(), primaries(&c)), (vec![committed(1)], vec![1, 1]));
    c.release(agreement(2), agreement(1));
    for _ in 0..50 {
        millis(&mut c, 100);
    }
    assert!(is_balanced(&c));
    assert_eq!(number_of(&mut c, key), Some(7));
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
