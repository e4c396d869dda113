//! Node groups are added, and partitions move to them: nobody's transaction is rolled back, and nothing is lost.

use crate::joining::with_third_index;
use crate::support::{Cluster, Op, Received, Setup, committed, dm, open, row, strict, tc};
use vinga_base::{NodeId, TransactionId};
use vinga_kernel::{InjectedBug, Span};
use vinga_wire::operation::OperationKind;
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_START};
use vinga_wire::view::MemberState;
use vinga_wire::{Address, BlockNumber, ErrorCode, SignalNumber};

const CONFIRMED: Received = Received::Other(SignalNumber::ReorganizeConfirm);

/// Two data nodes, and some rows.
fn cluster(bug: Option<InjectedBug>) -> Cluster {
    let mut c = Cluster::with(&Setup {
        bug,
        nodes: 2,
        coordinators: 2,
        commits_at_last_replica: true,
        node_heartbeat_interval: Span::from_millis(50),
        ..Setup::default()
    });
    for key in 1..20 {
        assert_eq!(c.at_once_by(tc(1), &[Op::Insert(row(key, 1))]), [committed(1)]);
    }
    c.forget_all_outcomes();
    c
}

/// The same with another node group, which has nothing yet.
fn grown() -> Cluster {
    grown_with(None)
}

fn grown_with(bug: Option<InjectedBug>) -> Cluster {
    let mut c = cluster(bug);
    c.add(3, 1);
    c.add(4, 1);
    assert_eq!((c.shares(), c.state_of(4)), (vec![2, 0], Some(MemberState::Started)));
    assert_eq!(c.received(), []);
    c
}

fn millis(c: &mut Cluster, millis: u64) {
    c.advance(Span::from_millis(millis));
}

/// All rows are there, and can be changed, by a coordinator of each node.
fn goes_on(mut c: Cluster) {
    c.received();
    for node in c.live_nodes() {
        for key in 1..20 {
            assert_eq!(c.at_once_by(tc(node), &[Op::Add(key, 1)]), [committed(1)]);
        }
    }
    let changes = c.live_nodes().len() as i64;
    for key in 1..20 {
        assert_eq!(c.read(&[key], None).pop().flatten().map(|row| row.1), Some(1 + changes), "row {key}");
    }
    c.ends_well();
}

#[test]
fn a_partition_moves_to_a_node_group_that_was_added() {
    let mut c = grown();
    millis(&mut c, 1000);
    assert_eq!(c.shares(), [2, 0], "nothing moves by itself");
    c.reorganize(true);
    assert_eq!(c.received(), [CONFIRMED]);
    millis(&mut c, 2000);
    assert_eq!((c.shares(), c.view.reorganizes(), c.view.moving()), (vec![1, 1], false, None));
    let held = |node: u8| c.view.held_by(NodeId(node)).count();
    assert_eq!([1, 2, 3, 4].map(held), [1, 1, 1, 1]);
    goes_on(c);
}

/// A transaction that holds locks in the partition goes on; it holds up what takes locks to move.
#[test]
fn open_transactions_are_not_rolled_back() {
    for by in 1..=4 {
        let mut c = grown();
        let ids: Vec<_> = (1..20)
            .map(|key| {
                let id = c.begin();
                c.batch_at(
                    tc(by),
                    id,
                    FLAG_START,
                    1,
                    0,
                    &strict(&[Op::Read(OperationKind::ReadShared, key)]),
                );
                assert_eq!(c.received().last(), Some(&open(1)));
                (id, key)
            })
            .collect();
        c.reorganize(true);
        millis(&mut c, 2000);
        assert_eq!(c.received(), [CONFIRMED]);
        assert!(c.view.moving().is_some(), "it waits for the locks");
        for (id, key) in ids {
            c.batch_at(tc(by), id, FLAG_COMMIT, 2, 0, &strict(&[Op::Add(key, 0)]));
            assert_eq!(c.received(), [committed(2)]);
        }
        millis(&mut c, 35_000);
        assert_eq!((c.shares(), c.view.moving()), (vec![1, 1], None));
        goes_on(c);
    }
}

fn agreement(node: u8) -> Address {
    Address::new(NodeId(node), BlockNumber::Agreement, 0)
}

/// So many views of a cluster that reorganizes have begun, and another one is about to: a member does not know it yet.
fn after_views(views: u32, member: u8) -> Cluster {
    let mut c = grown();
    c.hold(agreement(1), agreement(member));
    c.reorganize(true);
    for _ in 0..views {
        assert!(c.held(agreement(1), agreement(member)) > 0);
        c.deliver(agreement(1), agreement(member));
    }
    c
}

/// Whoever it is that fails, between any two views: what was moving comes to its end, or goes back.
#[test]
fn somebody_fails_between_any_two_views() {
    for (lost, member) in [(&[1][..], 3), (&[2], 3), (&[3], 2), (&[4], 2), (&[3, 4], 2)] {
        let mut goes_back = 0;
        for views in 0.. {
            let mut c = after_views(views, member);
            let is_over = c.shares() == [1, 1] && !c.view.reorganizes();
            let case = format!("nodes {lost:?} after {views} views");
            if c.view.lack_of(|node| !lost.contains(&node.0)).is_none() {
                lost.iter().for_each(|&node| c.end_process(node));
                c.release(agreement(1), agreement(member));
                millis(&mut c, 500);
                if lost.len() == 1 {
                    c.join(lost[0]);
                    c.connect_api(lost[0]);
                }
                millis(&mut c, 70_000);
                if c.live_nodes().is_empty() {
                    // They have agreed to a view in which nobody of them has the partition any more.
                    assert!(lost.len() == 2 && goes_back > 3, "{case}");
                    break;
                }
                assert_eq!(c.view.moving(), None, "{case}");
                if lost.len() == 2 {
                    goes_back += 1;
                    assert_eq!(c.shares(), [2, 0], "{case}");
                } else if c.view.reorganizes() || c.shares() == [2, 0] {
                    // The request has got lost.
                    assert!(views < 2 && !c.view.reorganizes(), "{case}");
                } else {
                    assert_eq!(c.shares(), [1, 1], "{case}");
                }
                assert!(c.view.partitions().iter().all(|one| one.chain.length() == 2), "{case}");
                goes_on(c);
            }
            if is_over {
                assert!(views > 10, "it takes that many");
                break;
            }
        }
        assert!(goes_back > 3 || lost.len() == 1, "until its replicas are all there a partition goes back");
    }
}

/// It would be sent the same partition: changes of rows that the other one has would be passed on to it.
#[test]
fn nobody_joins_while_a_partition_is_copied() {
    let data_manager = |node| Address::new(node, BlockNumber::DataManager, 1);
    let mut c = grown();
    let all = [(1, 3), (1, 4), (2, 3), (2, 4)].map(|(from, to)| (NodeId(from), NodeId(to)));
    for (from, to) in all {
        c.hold(data_manager(from), data_manager(to));
    }
    c.reorganize(true);
    millis(&mut c, 300);
    let target = |c: &Cluster| c.view.placing().map(|(_, target)| target.node.0);
    let placed = target(&c).expect("nothing that is copied arrives");
    let other = 7 - placed;
    c.end_process(other);
    millis(&mut c, 300);
    c.join(other);
    c.connect_api(other);
    millis(&mut c, 1000);
    assert_eq!((target(&c), c.state_of(other)), (Some(placed), None), "it waits");
    for (from, to) in all {
        c.release(data_manager(from), data_manager(to));
    }
    millis(&mut c, 5000);
    assert_eq!((c.shares(), c.view.moving()), (vec![1, 1], None));
    assert_eq!(c.state_of(other), Some(MemberState::Started));
    goes_on(c);
}

/// Changes of rows that it was sent are on their way to it: it does not leave before it has all.
fn who_is_sent_a_partition_is_asked_to_stop(bug: Option<InjectedBug>) {
    let data_manager = |node| Address::new(node, BlockNumber::DataManager, 1);
    let mut c = grown_with(bug);
    let all = [(1, 3), (1, 4), (2, 3), (2, 4)].map(|(from, to)| (NodeId(from), NodeId(to)));
    for (from, to) in all {
        c.hold(data_manager(from), data_manager(to));
    }
    c.reorganize(true);
    millis(&mut c, 300);
    let target = c.view.placing().map(|(_, target)| target.node.0).expect("nothing that is copied arrives");
    for key in 1..20 {
        let id = c.begin();
        c.batch_at(tc(1), id, FLAG_START | FLAG_COMMIT, 1, 0, &strict(&[Op::Add(key, 0)]));
    }
    c.ask_to_leave(target, 60_000);
    millis(&mut c, 100);
    for (from, to) in all {
        c.release(data_manager(from), data_manager(to));
    }
    millis(&mut c, 5000);
    let received = c.received();
    let committed = received.iter().filter(|one| **one == committed(1)).count();
    assert_eq!(committed, 19, "no transaction is rolled back: {received:?}");
    assert!(received.contains(&Received::Stops(true)), "{received:?}");
    c.die(target);
    goes_on(c);
}

#[test]
fn who_is_sent_a_partition_leaves_when_it_has_it() {
    who_is_sent_a_partition_is_asked_to_stop(None);
}

#[cfg(feature = "injected-bugs")]
#[test]
#[should_panic(expected = "no transaction is rolled back")]
fn a_data_node_that_leaves_while_it_is_sent_a_partition_is_noticed() {
    who_is_sent_a_partition_is_asked_to_stop(Some(InjectedBug::LeftWhilePlaced));
}

/// Goes on until a view is so, which is not long from now.
fn until(c: &mut Cluster, what: &str, is_so: impl Fn(&Cluster) -> bool) {
    for _ in 0..2000 {
        if is_so(c) {
            return;
        }
        millis(c, 1);
    }
    panic!("{what}: {:?}", c.view);
}

/// A transaction that has locked a row.
fn reader(c: &mut Cluster, by: u8, key: u64) -> TransactionId {
    let id = c.begin();
    c.batch_at(tc(by), id, FLAG_START, 1, 0, &strict(&[Op::Read(OperationKind::ReadShared, key)]));
    millis(c, 20);
    assert_eq!(c.received().last(), Some(&open(1)));
    id
}

/// A key of the partition that moves, or of another one.
fn key(c: &Cluster, moves: bool) -> u64 {
    (1..20).find(|&key| (c.owner_of(key).instance() == 1) == moves).expect("each has some")
}

/// It was left out of the partition that moves, whose data manager asks its coordinators then. It holds another one
/// still: so transactions begin there, also if it does not stop after all.
#[test]
fn one_that_was_left_out_of_what_moves_is_to_stop() {
    let mut c = grown();
    let waits = [(tc(2), dm(1, 1)), (tc(1), dm(2, 1))];
    waits.iter().for_each(|&(from, to)| c.hold(from, to));
    let key = key(&c, false);
    reader(&mut c, 4, key);
    c.reorganize(true);
    until(&mut c, "a partition has moved", |c| c.shares() == [1, 1] && c.view.moving().is_none());
    c.ask_to_leave(2, 60_000);
    millis(&mut c, 300);
    assert_eq!(c.state_of(2), Some(MemberState::Leaving), "the reader is in the way");
    c.received();
    let reads = [Op::Read(OperationKind::ReadShared, key)];
    assert_eq!(c.at_once_by(tc(2), &reads).last(), Some(&committed(1)));
    waits.iter().for_each(|&(from, to)| c.release(from, to));
    c.die(1);
    until(&mut c, "it stays", |c| c.state_of(2) == Some(MemberState::Started));
    c.received();
    assert_eq!(c.at_once_by(tc(2), &reads).last(), Some(&committed(1)));
    c.join(1);
    c.connect_api(1);
    millis(&mut c, 35_000);
    c.forget_all_outcomes();
    goes_on(c);
}

/// It was left out of one partition, and then the only other one is lost that has the rows of the partition that moves:
/// it stays, and is sent again what it was left out of.
#[test]
fn one_that_was_left_out_is_needed() {
    let mut c = grown();
    let key = key(&c, true);
    let id = reader(&mut c, 1, key);
    c.reorganize(true);
    let has = |c: &Cluster| c.view.moving().map_or(0, |(_, partition)| partition.chain.length());
    until(&mut c, "one of the next node group has it", |c| has(c) == 3);
    let next =
        [3, 4].into_iter().find(|&node| c.view.held_by(NodeId(node)).count() == 1).expect("one has it");
    c.die(7 - next);
    c.batch_at(tc(1), id, FLAG_COMMIT, 2, 0, &strict(&[Op::Add(key, 0)]));
    until(&mut c, "the other one of that is missing", |c| has(c) == 2);
    let leaver =
        [1, 2].into_iter().find(|&node| c.view.held_by(NodeId(node)).count() == 2).expect("one has both");
    reader(&mut c, 3 - leaver, key);
    c.ask_to_leave(leaver, 60_000);
    until(&mut c, "it is left out", |c| c.state_of(leaver) == Some(MemberState::LeftOut));
    c.die(next);
    until(&mut c, "it stays", |c| c.state_of(leaver) == Some(MemberState::Started));
    for node in [3, 4] {
        c.join(node);
        c.connect_api(node);
    }
    millis(&mut c, 70_000);
    assert!(c.view.partitions().iter().all(|one| one.chain.length() == 2), "{:?}", c.view);
    assert!(c.view.moving().is_none());
    c.forget_all_outcomes();
    goes_on(c);
}

/// Data nodes of a node group wait for the one before it. They are members when it is there, and get their share.
#[test]
fn node_groups_may_be_added_in_any_order() {
    let mut c = cluster(None);
    c.add(5, 2);
    c.add(6, 2);
    assert_eq!((c.state_of(5), c.state_of(6)), (None, None), "there is no node group 1");
    c.add(3, 1);
    c.add(4, 1);
    millis(&mut c, 2000);
    assert!((1..=6).all(|node| c.state_of(node) == Some(MemberState::Started)));
    assert_eq!(c.shares(), [2, 0, 0]);
    for node in [5, 6] {
        c.connect_api(node);
    }
    c.received();
    goes_on(c);
}

/// A data node that has no room for a partition refuses it, and goes on with what it has. So does the cluster.
#[test]
fn a_partition_goes_back_for_which_there_is_no_room() {
    for small in [3, 4] {
        let mut c = cluster(None);
        c.pages.insert(small, 3);
        c.add(3, 1);
        c.add(4, 1);
        c.received();
        c.reorganize(true);
        millis(&mut c, 5000);
        assert_eq!(c.received(), [CONFIRMED]);
        let no_room = c.view.no_room().expect("there is too little memory");
        assert!(no_room.node.0 == small && no_room.needed > no_room.free, "{no_room:?}");
        assert_eq!((c.shares(), c.view.reorganizes(), c.view.moving()), (vec![2, 0], false, None));
        assert!(c.view.partitions().iter().all(|one| one.chain.length() == 2));
        assert_eq!(c.live_nodes(), [1, 2, 3, 4]);
        // With as much memory as the others it can hold one.
        c.pages.clear();
        c.end_process(small);
        millis(&mut c, 300);
        c.join(small);
        c.connect_api(small);
        c.received();
        c.reorganize(true);
        millis(&mut c, 5000);
        assert_eq!((c.shares(), c.view.no_room(), c.view.moving()), (vec![1, 1], None, None));
        goes_on(c);
    }
}

/// The build goes through the rows that are given up.
#[test]
fn an_index_is_built_while_a_partition_is_given_up() {
    let mut c = grown();
    let pairs = [(tc(2), dm(1, 1)), (tc(1), dm(2, 1))];
    pairs.iter().for_each(|&(from, to)| c.hold(from, to));
    c.reorganize(true);
    millis(&mut c, 2000);
    assert_eq!((c.shares(), c.view.moving()), (vec![1, 1], None));
    assert!(pairs.iter().all(|&(from, to)| c.held(from, to) > 0), "they wait for what is held back");
    for node in [1, 2] {
        c.hold_slices(node);
        c.set_slice_units(node, 1);
    }
    c.change_schema(with_third_index());
    (0..4).for_each(|_| [1, 2].iter().for_each(|&node| c.slice(node)));
    pairs.iter().for_each(|&(from, to)| c.release(from, to));
    [1, 2].iter().for_each(|&node| c.release_slices(node));
    millis(&mut c, 2000);
    assert_eq!(c.node(1).dictionary().unwrap().tables().next().unwrap().definition.indexes.len(), 3);
    goes_on(c);
}

/// A data manager keeps what it was left out of, as a commit there is not over. Its node is asked to stop before it has
/// given that up, and while an index is added, which waits for it: both come to their ends.
#[test]
fn one_that_has_not_given_up_a_partition_is_to_stop() {
    let mut c = grown();
    let keys: Vec<u64> = (1..20).filter(|&key| c.owner_of(key).instance() == 1).collect();
    let elsewhere = key(&c, false);
    let chain = |c: &Cluster| {
        let moving = c.view.moving().map(|(_, partition)| partition.chain);
        moving.map_or(Vec::new(), |chain| chain.nodes().map(|node| node.0).collect())
    };
    let indexes =
        |c: &Cluster| c.node(3).dictionary().unwrap().tables().next().unwrap().definition.indexes.len();
    let first = reader(&mut c, 2, keys[0]);
    c.reorganize(true);
    until(&mut c, "one of the next node group has it", |c| chain(c).len() == 3);
    let next = chain(&c)[2];
    let last = 7 - next;
    [1, 2, next].iter().for_each(|&node| c.hold(dm(node, 1), dm(last, 1)));
    c.batch_at(tc(2), first, FLAG_COMMIT, 2, 0, &strict(&[Op::Add(keys[0], 0)]));
    until(&mut c, "it is sent to the other one", |c| chain(c).len() == 2 && c.view.placing().is_some());
    let leaver = chain(&c).into_iter().find(|&node| node < 3).expect("one is displaced still");
    let id = reader(&mut c, 3 - leaver, keys[0]);
    [1, 2, next].iter().for_each(|&node| c.release(dm(node, 1), dm(last, 1)));
    until(&mut c, "the other one has it", |c| chain(c).len() == 3);
    [next, leaver, last].iter().for_each(|&node| c.hold(dm(node, 1), tc(3 - leaver)));
    let changes = strict(&[Op::Add(keys[1], 0), Op::Add(elsewhere, 0)]);
    c.batch_at(tc(3 - leaver), id, FLAG_COMMIT, 2, 0, &changes);
    c.deliver(dm(last, 1), tc(3 - leaver));
    until(&mut c, "it has moved", |c| c.view.moving().is_none() && !c.view.reorganizes());
    c.change_schema(with_third_index());
    millis(&mut c, 100);
    c.ask_to_leave(leaver, 60_000);
    until(&mut c, "it leaves", |c| c.state_of(leaver) == Some(MemberState::Leaving));
    c.received();
    assert_eq!(indexes(&c), 2, "it waits for what is to be given up");
    [next, leaver, last].iter().for_each(|&node| c.release(dm(node, 1), tc(3 - leaver)));
    millis(&mut c, 2000);
    let received = c.received();
    assert!(received.contains(&committed(2)) && received.contains(&Received::Stops(true)), "{received:?}");
    assert_eq!(indexes(&c), 3);
    c.forget_all_outcomes();
    c.die(leaver);
    goes_on(c);
}

/// What has begun to move comes to its end, and nothing else moves.
#[test]
fn it_may_be_stopped() {
    let mut c = grown();
    c.reorganize(true);
    c.reorganize(false);
    assert_eq!(c.received(), [CONFIRMED, CONFIRMED]);
    millis(&mut c, 2000);
    assert!(!c.view.reorganizes() && c.view.moving().is_none());
    goes_on(c);
}

/// A node group without partitions is missed by nobody.
#[test]
fn one_of_a_new_node_group_leaves_or_fails() {
    let mut c = grown();
    c.ask_to_leave(3, 60_000);
    millis(&mut c, 400);
    assert_eq!(c.received(), [Received::Stops(true)]);
    c.die(3);
    c.die(4);
    goes_on(c);
}

#[test]
fn only_the_president_has_partitions_move() {
    let mut c = cluster(None);
    c.reorganize(false);
    assert_eq!(c.received(), [CONFIRMED], "that is so already");
    c.reorganize(true);
    assert_eq!(c.received(), [CONFIRMED]);
    millis(&mut c, 500);
    assert!(!c.view.reorganizes(), "there is nothing to move");
    let single = Setup { nodes: 1, ..Setup::default() };
    let mut single = Cluster::with(&single);
    single.reorganize(true);
    assert_eq!(single.received(), [Received::Refused(ErrorCode::NotSupportedYet)]);
}

/// Copies between data nodes of one node group, while coordinators of another one fail.
mod returning {
    use super::*;

    hazards! {
        /// A data node has reported what it has of a coordinator that has failed, and then gets a marker of it with a
        /// copy. The source dies before its own report comes to the successor.
        a_marker_that_comes_behind_the_report_about_it_is_not_forgotten breaks CopiedMarkersNotAwaited;
    }

    mod scenarios {
        use super::*;

        pub fn a_marker_that_comes_behind_the_report_about_it_is_not_forgotten(bug: Option<InjectedBug>) {
            let mut c = grown_with(bug);
            c.reorganize(true);
            millis(&mut c, 2000);
            assert_eq!((c.received(), c.shares()), (vec![CONFIRMED], vec![1, 1]));
            c.die(2);
            c.hold_slices(1);
            c.join(2);
            millis(&mut c, 500);
            assert_eq!(c.state_of(2), Some(MemberState::Copying));
            let key = c.keys_at(1).next().expect("there are keys without end");
            let (source, id) = (c.owner_of(key), c.begin());
            c.batch_at(tc(3), id, FLAG_START | FLAG_COMMIT, 1, 0, &strict(&[Op::Write(row(key, 7))]));
            assert_eq!(c.received(), [committed(1)]);
            let successor = tc(4);
            c.hold(source, successor);
            c.die(3);
            assert!(c.held(source, successor) > 0, "its report is on its way");
            c.release_slices(1);
            millis(&mut c, 500);
            if c.state_of(2) == Some(MemberState::Copying) {
                c.release(source, successor);
                millis(&mut c, 500);
            }
            assert_eq!(c.state_of(2), Some(MemberState::Started));
            c.die(1);
            assert_eq!(c.read(&[key], None), [Some(row(key, 7))]);
            assert_eq!(c.ask_successor(successor, id, tc(3)), [Received::Outcome(1)]);
        }
    }
}
