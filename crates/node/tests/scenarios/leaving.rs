//! A data node that is to stop leaves before: its primaries move, it is left out of its partitions, its coordinators
//! end what they have, and nobody's transaction is rolled back.

use crate::support::{ALL, Cluster, Op, Received, Setup, committed, dm, open, refused, row, strict, tc};
use vinga_base::{NodeId, TransactionId};
use vinga_kernel::Span;
use vinga_wire::ErrorCode;
use vinga_wire::operation::OperationKind;
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_START};
use vinga_wire::view::MemberState;

const LONG: u32 = 60_000;

fn cluster(nodes: u8) -> Cluster {
    cluster_with(Setup { nodes, coordinators: nodes, ..Setup::default() })
}

fn cluster_with(setup: Setup) -> Cluster {
    let mut c = Cluster::with(&Setup {
        commits_at_last_replica: true,
        node_heartbeat_interval: Span::from_millis(50),
        ..setup
    });
    for key in 1..20 {
        assert_eq!(c.at_once_by(tc(1), &[Op::Insert(row(key, 1))]), [committed(1)]);
    }
    c.forget_all_outcomes();
    c
}

fn millis(c: &mut Cluster, millis: u64) {
    c.advance(Span::from_millis(millis));
}

/// Partitions of which a node has all rows, and those that it is the primary of.
fn held_by(c: &Cluster, node: u8) -> (usize, usize) {
    let is_primary = |one: &&vinga_wire::view::Partition| one.chain.primary() == NodeId(node);
    (c.view.held_by(NodeId(node)).count(), c.view.held_by(NodeId(node)).filter(is_primary).count())
}

/// A key of the partition with this number.
fn key(c: &Cluster, instance: u16) -> u64 {
    (1..20).find(|&key| c.owner_of(key).instance() == instance).expect("each partition has some rows")
}

/// A transaction of this coordinator that has locked a row.
fn reader(c: &mut Cluster, by: u8, key: u64) -> TransactionId {
    let id = c.begin();
    c.batch_at(tc(by), id, FLAG_START, 1, 0, &strict(&[Op::Read(OperationKind::ReadShared, key)]));
    assert_eq!(c.received().last(), Some(&open(1)));
    id
}

fn commit(c: &mut Cluster, by: u8, id: TransactionId, key: u64) {
    c.batch_at(tc(by), id, FLAG_COMMIT, 2, 0, &strict(&[Op::Add(key, 1)]));
    assert_eq!(c.received(), [committed(2)]);
}

/// It has left, and stops.
fn stops(c: &mut Cluster, node: u8) {
    millis(c, 400);
    assert_eq!(c.received(), [Received::Stops(true)]);
    assert_eq!((held_by(c, node), c.state_of(node)), ((0, 0), Some(MemberState::LeftOut)));
    end(c, node);
}

/// Its process ends in order.
fn end(c: &mut Cluster, node: u8) {
    c.forget_all_outcomes();
    c.die(node);
}

/// The others go on, and it may come back.
fn goes_on(mut c: Cluster, without: u8) {
    // The API node is connected with those that have been there from the beginning.
    let oldest = c.view.members().iter().min_by_key(|member| member.since).expect("there is one").node.0;
    for key in 1..20 {
        assert_eq!(c.at_once_by(tc(oldest), &[Op::Add(key, 1)]), [committed(1)]);
    }
    c.join(without);
    millis(&mut c, 500);
    assert_eq!(c.state_of(without), Some(MemberState::Started));
    c.ends_well();
}

#[test]
fn nobody_misses_one_that_has_left() {
    for nodes in [2, 3] {
        for node in 1..=nodes {
            let mut c = cluster(nodes);
            c.ask_to_leave(node, LONG);
            stops(&mut c, node);
            assert_eq!(c.view.members().len(), usize::from(nodes) - 1);
            goes_on(c, node);
        }
    }
}

#[test]
fn two_of_three_leave() {
    let mut c = cluster(3);
    c.ask_to_leave(1, LONG);
    c.ask_to_leave(3, LONG);
    millis(&mut c, 600);
    assert_eq!(c.received(), [Received::Stops(true), Received::Stops(true)]);
    c.ask_to_leave(2, LONG);
    assert_eq!(c.received(), [Received::Refused(ErrorCode::NodeIsNeeded)]);
    end(&mut c, 1);
    end(&mut c, 3);
    c.join(1);
    millis(&mut c, 500);
    goes_on(c, 3);
}

/// A lock keeps its partition where it is, whoever coordinates its transaction.
#[test]
fn it_waits_for_locks() {
    for by in [1, 2] {
        for instance in [0, 1] {
            let mut c = cluster(2);
            let key = key(&c, instance);
            let id = reader(&mut c, by, key);
            c.ask_to_leave(2, LONG);
            millis(&mut c, 3000);
            assert_eq!(c.received(), []);
            assert!(held_by(&c, 2).0 > 0);
            // Meanwhile others work there, too.
            for other in (1..20).filter(|&other| other != key) {
                let id = c.begin();
                c.batch_at(tc(1), id, ALL, 1, 0, &strict(&[Op::Add(other, 1)]));
            }
            millis(&mut c, 150);
            assert_eq!(c.received(), vec![committed(1); 18]);
            commit(&mut c, by, id, key);
            millis(&mut c, 1500);
            assert_eq!(c.received(), [Received::Stops(true)]);
            end(&mut c, 2);
            goes_on(c, 2);
        }
    }
}

/// A transaction that has no lock is open at its coordinator; further ones begin elsewhere.
#[test]
fn its_coordinators_end_what_they_have() {
    for node in [1, 2] {
        let mut c = cluster(2);
        let (id, key) = (c.begin(), key(&c, 0));
        c.batch_at(tc(node), id, FLAG_START, 1, 0, &[]);
        assert_eq!(c.received(), [open(1)]);
        c.ask_to_leave(node, LONG);
        millis(&mut c, 400);
        assert_eq!((held_by(&c, node), c.received()), ((0, 0), vec![]));
        // Whoever is refused so begins again at another coordinator.
        let other = c.begin();
        c.batch_at(tc(node), other, ALL, 1, 0, &strict(&[Op::Add(key, 1)]));
        assert_eq!(c.received(), [refused(1, ErrorCode::NodeFailure, 0)]);
        assert_eq!(c.at_once_by(tc(3 - node), &[Op::Add(key, 1)]), [committed(1)]);
        commit(&mut c, node, id, key);
        millis(&mut c, 20);
        assert_eq!(c.received(), [Received::Stops(true)]);
        end(&mut c, node);
        goes_on(c, node);
    }
}

/// What was open is rolled back then, as if it had not left.
#[test]
fn its_time_may_run_out() {
    let mut c = cluster(2);
    let key = key(&c, 0);
    reader(&mut c, 1, key);
    c.ask_to_leave(2, 1000);
    millis(&mut c, 900);
    assert_eq!(c.received(), []);
    millis(&mut c, 200);
    assert_eq!(c.received(), [Received::Stops(false)]);
    end(&mut c, 2);
    assert_eq!(c.received(), [refused(1, ErrorCode::NodeFailure, 0)]);
    goes_on(c, 2);
}

/// Somebody else is in more of a hurry.
#[test]
fn another_request_may_shorten_the_wait() {
    let mut c = cluster(2);
    let key = key(&c, 0);
    reader(&mut c, 1, key);
    c.ask_to_leave(2, LONG);
    millis(&mut c, 500);
    c.ask_to_leave(2, 200);
    millis(&mut c, 100);
    assert_eq!(c.received(), []);
    millis(&mut c, 200);
    assert_eq!(c.received(), [Received::Stops(false), Received::Stops(false)]);
}

/// The other one fails before anything was given up: the one that was to stop stays.
#[test]
fn one_that_is_needed_stays() {
    let mut c = cluster(2);
    let (key, other) = (key(&c, 0), key(&c, 1));
    reader(&mut c, 2, key);
    let id = c.begin();
    c.batch_at(tc(2), id, FLAG_START, 2, 0, &strict(&[Op::Read(OperationKind::ReadShared, other)]));
    assert_eq!(c.received().last(), Some(&open(2)));
    c.ask_to_leave(2, LONG);
    millis(&mut c, 300);
    assert_eq!((held_by(&c, 2).0, c.state_of(2)), (2, Some(MemberState::Leaving)));
    c.die(1);
    millis(&mut c, 300);
    assert_eq!(c.state_of(2), Some(MemberState::Started));
    assert!(c.received().contains(&Received::Refused(ErrorCode::NodeIsNeeded)));
    assert_eq!(c.at_once_by(tc(2), &[Op::Add(key, 1)]), [committed(1)]);
    c.join(1);
    millis(&mut c, 1000);
    // It is not needed any more.
    c.ask_to_leave(2, LONG);
    stops(&mut c, 2);
}

/// The president fails at any moment while another one leaves: the next one goes on with it.
#[test]
fn the_next_president_goes_on_with_it() {
    for pause in (0..120).step_by(10) {
        let mut c = cluster(3);
        c.ask_to_leave(2, LONG);
        millis(&mut c, pause);
        c.die(1);
        millis(&mut c, 1500);
        assert_eq!(c.received(), [Received::Stops(true)], "after {pause} ms");
        assert_eq!(held_by(&c, 2), (0, 0));
        end(&mut c, 2);
        c.join(1);
        millis(&mut c, 500);
        goes_on(c, 2);
    }
}

/// A backup that leaves answers no reads: what others commit without it, it may learn of later.
#[test]
fn a_leaving_backup_answers_no_reads() {
    let mut c = cluster_with(Setup { nodes: 2, coordinators: 2, read_backup: true, ..Setup::default() });
    let key = key(&c, 0);
    assert_eq!(c.view.partitions()[0].chain.primary(), NodeId(1));
    assert_eq!(c.read_at(2, key).map(|row| row.1), Some(1));
    let id = reader(&mut c, 1, key);
    c.ask_to_leave(2, LONG);
    millis(&mut c, 100);
    assert!(c.view.partitions()[0].chain.contains(NodeId(2)));
    c.send_read(dm(2, 0), key, None);
    assert_eq!(c.received(), [Received::Refused(ErrorCode::Moved)]);
    commit(&mut c, 1, id, key);
    millis(&mut c, 1500);
    assert_eq!(c.received(), [Received::Stops(true)]);
}

/// Those that are left may go on from a view that leaves it out, which the president had given up: then its primary was
/// not at rest. What was on its way to it is answered while it is there, and rolled back if it is lost.
#[test]
fn what_was_sent_to_one_that_is_left_out_ends() {
    for commits_at_last_replica in [false, true] {
        for is_lost in [false, true] {
            let mut c = Cluster::with(&Setup {
                nodes: 3,
                coordinators: 3,
                commits_at_last_replica,
                ..Setup::default()
            });
            assert_eq!(c.at_once_by(tc(3), &[Op::Insert(row(1, 1))]), [committed(1)]);
            c.forget_all_outcomes();
            let owner = c.owner_of(1);
            let (partition, primary) = (c.partition_of(1), owner.node().0);
            let leaver =
                c.view.owned_by(vinga_wire::view::ReplicaGroup::new(0, owner.instance())).chain.last();
            let (last, by) = (leaver.0, 6 - primary - leaver.0);
            c.adopt(c.view.with_leaving(leaver));
            c.hold(dm(by, owner.instance()), dm(last, owner.instance()));
            let id = c.begin();
            c.batch_at(tc(primary), id, ALL, 1, 0, &strict(&[Op::Add(1, 1)]));
            assert_eq!(c.received(), []);
            let left_out = c.view.with_left_out(partition);
            c.adopt(left_out);
            if is_lost {
                c.kill(last);
                assert_eq!(c.received(), [refused(1, ErrorCode::NodeFailure, 0)]);
            } else {
                c.release(dm(by, owner.instance()), dm(last, owner.instance()));
                assert_eq!(c.received(), [committed(1)]);
                c.kill(last);
            }
            assert_eq!(c.at_once_by(tc(primary), &[Op::Add(1, 1)]), [committed(1)]);
            c.ends_well();
        }
    }
}
