//! Data nodes leave before they stop: they are left out of one partition after the other, while others fail at each
//! moment of it, and at random. Checked all the time: whoever was left out of a partition is no replica of it in any
//! later view, and whoever is one has all changes that were answered.

use crate::course::Course;
use crate::network::{End, INTERVAL, Network, REST, runs, set};
use std::collections::BTreeSet;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::InjectedBug;
use vinga_wire::agreement::{ViewChangeRefusal, WantedChange};
use vinga_wire::view::{ClusterView, MemberState};

/// A quiet cluster with two partitions in each node group.
fn cluster(seed: u64, groups: &[u16], has_arbitrator: bool) -> Network {
    let mut network = Network::with_partitions(seed, groups, usize::from(has_arbitrator), 2);
    network.run(INTERVAL * 3);
    network
}

fn leave(node: u8) -> WantedChange {
    WantedChange::Leave(NodeId(node), Incarnation(1))
}

fn change(network: &mut Network, change: WantedChange) {
    network.change(change).expect("nothing is in its way");
    network.run(INTERVAL / 2);
}

/// The cluster when a node leaves, and all its primaries have moved.
fn leaving(seed: u64, groups: &[u16], has_arbitrator: bool, leaver: u8) -> Network {
    let mut network = cluster(seed, groups, has_arbitrator);
    change(&mut network, leave(leaver));
    while let Some(&(partition, node)) = hand_overs(&network).first() {
        change(&mut network, WantedChange::MovePrimary(partition, node));
    }
    network
}

fn hand_overs(network: &Network) -> Vec<(vinga_base::PartitionId, NodeId)> {
    let president = network.president().expect("there is one");
    network.view(president).hand_overs()
}

/// What is asked for next: that it is left out of another partition.
fn next_leave_out(network: &Network) -> Option<WantedChange> {
    let president = network.president().expect("there is one");
    network.view(president).leave_outs().first().copied().map(WantedChange::LeaveOut)
}

/// The cluster when a node was left out of all partitions but the last.
fn nearly_left(seed: u64, groups: &[u16], has_arbitrator: bool, leaver: u8) -> Network {
    let mut network = leaving(seed, groups, has_arbitrator, leaver);
    let next = next_leave_out(&network).expect("it is in two");
    change(&mut network, next);
    network
}

/// The cluster when a node was left out of all partitions.
fn left(seed: u64, groups: &[u16], has_arbitrator: bool, leaver: u8) -> Network {
    let mut network = nearly_left(seed, groups, has_arbitrator, leaver);
    let next = next_leave_out(&network).expect("it is in one");
    change(&mut network, next);
    network
}

/// How many partitions a node has in the view of another one.
fn held(view: &ClusterView, node: u8) -> usize {
    view.held_by(NodeId(node)).count()
}

#[test]
fn a_node_leaves_and_ends_in_order() {
    for (seed, groups) in [&[0, 0][..], &[0, 0, 0], &[0, 0, 1, 1]].into_iter().enumerate() {
        for leaver in [1, 2] {
            let mut network = leaving(seed as u64, groups, false, leaver);
            let before = network.view(3 - leaver).clone();
            assert_eq!((held(&before, leaver), before.is_leaving(NodeId(leaver))), (2, true));
            while let Some(next) = next_leave_out(&network) {
                change(&mut network, next);
            }
            let number = network.view(3 - leaver).number();
            assert_eq!(number.0, before.number().0 + 2);
            for id in network.ids() {
                assert!(network.view(id).has_given_up_all(NodeId(leaver)));
            }
            network.end(leaver, End::InOrder);
            network.run(INTERVAL);
            let rest: BTreeSet<u8> = network.ids().into_iter().filter(|&id| id != leaver).collect();
            assert!(rest.iter().all(|&id| network.members(id) == rest), "{groups:?} without {leaver}");
            network.run(REST);
            network.check_rest();
            // It is a member like any other when it is back.
            network.start_again(leaver);
            let others = network.ids();
            network.connect(leaver, &others);
            network.run(INTERVAL);
            let join = network.joining(leaver, 0);
            change(&mut network, join);
            while let Some(next) = network.next_step(3 - leaver, leaver) {
                change(&mut network, next);
            }
            assert_eq!(held(network.view(leaver), leaver), 2);
            network.run(REST);
            network.check_rest();
        }
    }
}

/// Without an arbitrator: the others are certain that one that is in no partition does not go on by itself, however it
/// ends.
#[test]
fn one_that_has_left_is_missed_by_nobody() {
    for (seed, end) in [End::Gone, End::Closed, End::Silent].into_iter().enumerate() {
        for leaver in [1, 2] {
            let mut network = left(seed as u64, &[0, 0], false, leaver);
            network.end(leaver, end);
            network.run(REST);
            network.check_rest();
            assert_eq!(network.alive(), set(&[3 - leaver]));
            // It stops if it loses the others.
            let mut network = left(seed as u64, &[0, 0], false, leaver);
            network.cut(&[1], &[2]);
            network.cut(&[2], &[1]);
            network.run(REST);
            network.check_rest();
            assert_eq!(network.alive(), set(&[3 - leaver]));
        }
    }
}

/// The other one is lost first: with it is lost what has changed since this one was left out.
#[test]
fn one_that_was_left_out_does_not_take_over() {
    for (seed, end) in [End::Gone, End::InOrder, End::Closed, End::Silent].into_iter().enumerate() {
        for lost in [1, 2] {
            for cluster in [nearly_left, left] {
                let mut network = cluster(seed as u64, &[0, 0], true, 3 - lost);
                network.end(lost, end);
                network.run(REST);
                assert!(network.alive().is_empty(), "{end:?} of {lost}");
            }
            // In all partitions it has everything.
            let mut network = leaving(seed as u64, &[0, 0], true, 3 - lost);
            network.end(lost, end);
            network.run(REST);
            network.check_rest();
            assert_eq!(network.alive(), set(&[3 - lost]), "{end:?} of {lost}");
        }
    }
}

#[test]
fn one_that_is_in_all_its_partitions_may_stay() {
    let mut network = leaving(1, &[0, 0], true, 2);
    let stay = WantedChange::Stay(NodeId(2), Incarnation(1));
    change(&mut network, stay.clone());
    for id in [1, 2] {
        let state = network.view(id).member(NodeId(2)).expect("it is a member").state;
        assert_eq!((state, held(network.view(id), 2)), (MemberState::Started, 2));
    }
    assert_eq!(network.change(stay.clone()), Err(ViewChangeRefusal::DoesNotFit));
    network.end(1, End::Silent);
    network.run(REST);
    network.check_rest();
    assert_eq!(network.alive(), set(&[2]));
    let mut network = nearly_left(2, &[0, 0], true, 2);
    assert_eq!(network.change(stay), Err(ViewChangeRefusal::DoesNotFit), "it lacks changes");
}

/// The cluster {1, 2}, of which one leaves, is split at each moment of the change that leaves it out of the first, or
/// the last, partition. Returns who has gone on.
fn split_while_one_is_left_out(
    bug: Option<InjectedBug>,
    has_arbitrator: bool,
    leaver: u8,
) -> BTreeSet<Vec<u8>> {
    let mut went_on = BTreeSet::new();
    for moment in 0..160 {
        let cluster = if moment % 2 == 0 { leaving } else { nearly_left };
        let mut network = cluster(moment, &[0, 0], has_arbitrator, leaver);
        network.inject_bug(bug);
        let next = next_leave_out(&network).expect("it is in one");
        if moment % 8 < 2 {
            // The other one is not asked any more. The arbitrator decides, which only the one that leaves reaches.
            network.cut(&[1], &[2]);
            network.apart = set(&[3 - leaver]);
        }
        network.ask_for(1, next);
        network.run(moment / 16);
        network.cut(&[1], &[2]);
        network.cut(&[2], &[1]);
        network.run(REST);
        network.check_rest();
        let alive = network.alive();
        assert!(moment % 2 == 0 || !alive.contains(&leaver), "moment {moment}");
        went_on.insert(alive.into_iter().collect());
    }
    went_on
}

#[test]
fn a_split_at_each_moment_in_which_one_is_left_out() {
    // The one that leaves may go on as long as it is in all partitions, and knows that nobody can have left it out.
    let all = BTreeSet::from([vec![1], vec![2]]);
    assert_eq!(split_while_one_is_left_out(None, true, 2), all);
    assert_eq!(split_while_one_is_left_out(None, true, 1), all);
    assert_eq!(split_while_one_is_left_out(None, false, 2), BTreeSet::from([vec![], vec![1]]));
    assert_eq!(split_while_one_is_left_out(None, false, 1), BTreeSet::from([vec![], vec![2]]));
}

/// The president ends at each moment in which the other one is left out: that goes on if it has not agreed.
#[test]
fn the_president_ends_while_the_other_one_is_left_out() {
    let mut went_on = BTreeSet::new();
    for moment in 0..200 {
        let mut network = leaving(moment, &[0, 0], true, 2);
        let next = next_leave_out(&network).expect("it is in two");
        if moment % 5 == 0 {
            network.cut(&[1], &[2]);
        }
        network.ask_for(1, next);
        network.run(moment / 25);
        network.heal();
        let ends = [End::Gone, End::InOrder, End::Closed, End::Silent];
        network.end(1, ends[moment as usize % 4]);
        network.run(REST);
        network.check_rest();
        went_on.insert(network.alive().into_iter().collect::<Vec<u8>>());
    }
    assert_eq!(went_on, BTreeSet::from([vec![], vec![2]]));
}

/// All have agreed, and the president has not heard of it when it ends: the others go on from the next view, as they
/// can't know that. Whoever leads fails, too, at each moment: so does the next one.
#[test]
fn whoever_leads_on_from_a_view_that_leaves_one_out_fails() {
    for leaver in [2, 3, 4] {
        for moment in 0..48 {
            let mut network = leaving(moment, &[0, 0, 0, 0], true, leaver);
            network.cut(&[2, 3, 4], &[1]);
            let next = next_leave_out(&network).expect("it is in two");
            network.ask_for(1, next);
            network.run(INTERVAL / 2);
            network.end(1, End::Silent);
            network.run(INTERVAL * 3 + moment * 4);
            let second = if moment % 2 == 0 { End::Gone } else { End::Silent };
            network.end(2, second);
            network.run(REST);
            network.check_rest();
            let context = format!("{leaver} leaves, moment {moment}");
            assert_eq!(network.alive(), set(&[3, 4]), "{context}");
            assert!(network.has_met("data nodes went on from a view that leaves one out of a partition"));
            if leaver > 2 {
                assert_eq!(held(network.view(3), leaver), 1, "{context}");
            }
        }
    }
}

/// Somebody, the one that leaves perhaps, ends at each moment of each step.
#[test]
fn somebody_is_lost_at_each_moment_of_leaving() {
    for groups in [&[0, 0, 0][..], &[0, 0, 1, 1]] {
        for (step, cluster) in [cluster, leaving_of_two, leaving_of_two_nearly].into_iter().enumerate() {
            for moment in 0..60 {
                let mut network = cluster(moment, groups, true);
                let lost = [1, 2, 3][moment as usize % 3];
                let end = [End::Gone, End::Silent, End::Closed, End::InOrder][moment as usize / 3 % 4];
                let next = if step == 0 { leave(2) } else { next_leave_out(&network).expect("it is in one") };
                network.ask_for(1, next);
                network.run(moment / 6);
                network.end(lost, end);
                network.run(REST);
                network.check_rest();
                let rest: BTreeSet<u8> = network.ids().into_iter().filter(|&id| id != lost).collect();
                let context = format!("{groups:?}, step {step}: {lost} {end:?} at {moment}");
                let alive = network.alive();
                // The other one of its group is needed from the moment in which the second one may lack changes.
                let is_needed = lost == 1 && groups.len() == 4 && step > 0;
                assert!(alive == rest || is_needed && alive.is_empty(), "{context}: {alive:?}");
            }
        }
    }
}

fn leaving_of_two(seed: u64, groups: &[u16], has_arbitrator: bool) -> Network {
    leaving(seed, groups, has_arbitrator, 2)
}

fn leaving_of_two_nearly(seed: u64, groups: &[u16], has_arbitrator: bool) -> Network {
    nearly_left(seed, groups, has_arbitrator, 2)
}

/// The president, which is not reached any more, may have left node 2 out of a partition. Links to 3, of the same
/// group, break, too. So 3 goes on with all others that it reaches, though 2 is older, and reaches more: 2 would stop.
#[test]
fn of_two_the_one_goes_on_that_nobody_can_have_left_out() {
    for seed in 0..20 {
        for cluster in [leaving_of_two, leaving_of_two_nearly] {
            for (broken, left) in [(&[2][..], set(&[3, 4, 5])), (&[2, 4], set(&[3, 5]))] {
                let mut network = cluster(seed, &[0, 0, 0, 1, 1], true);
                network.cut(&[2, 3, 4, 5], &[1]);
                let next = next_leave_out(&network).expect("it is in one");
                network.ask_for(1, next);
                network.run(INTERVAL / 2);
                network.end(1, End::Silent);
                for &other in broken {
                    network.break_connections(other, 3);
                }
                network.run(REST);
                network.check_rest();
                assert_eq!(network.alive(), left, "seed {seed}");
            }
        }
    }
}

/// A link between two breaks one of which is to stop: that one is left out, though it is older.
#[test]
fn a_link_of_one_that_leaves_costs_that_one() {
    for seed in 0..20 {
        for (leaver, other) in [(2, 3), (1, 2), (3, 1)] {
            let mut network = leaving(seed, &[0, 0, 0], true, leaver);
            network.break_connections(leaver, other);
            network.run(REST);
            network.check_rest();
            assert!(!network.alive().contains(&leaver), "{leaver}–{other}: {:?}", network.alive());
            assert_eq!(network.alive().len(), 2);
        }
    }
}

/// The primary goes on when the change is refused: then nobody may go on from that view any more. One that agrees to it
/// does not get the order to forget it, and the president is lost: the primary is at rest still.
fn a_refusal_waits_for_all_that_agree(bug: Option<InjectedBug>) {
    let mut network = leaving(1, &[0, 0, 0, 0], true, 2);
    network.inject_bug(bug);
    assert!(network.may_stop(4, &[4]), "the others can go on");
    let next = next_leave_out(&network).expect("it is in two");
    let request = network.ask_for(1, next.clone());
    network.cut(&[1], &[3]);
    network.run(INTERVAL * 2);
    assert_eq!(network.answer_to(1, request), None, "node 4 does not agree, and node 3 may still");
    network.heal();
    network.run(INTERVAL);
    assert_eq!(network.answer_to(1, request), Some(Err(ViewChangeRefusal::NotAgreed)));
    // Another view has the primary go on in any case.
    let request = network.ask_for(1, next);
    network.cut(&[1], &[3]);
    network.cut(&[3], &[1]);
    network.run(REST);
    network.check_rest();
    assert_eq!(network.answer_to(1, request), Some(Err(ViewChangeRefusal::NotAgreed)));
}

#[test]
fn a_refused_change_is_forgotten_by_all_before_the_primary_goes_on() {
    a_refusal_waits_for_all_that_agree(None);
}

/// Two data nodes may stop as a third one has their rows, and are permitted to. But the third one is about to be left
/// out, as it leaves. Whichever of the two comes last: they do not both stop, or it is not left out.
fn two_stop_while_the_third_one_is_left_out(bug: Option<InjectedBug>) {
    for stops_first in [true, false] {
        let mut network = leaving(1, &[0, 0, 0], true, 2);
        network.inject_bug(bug);
        let next = next_leave_out(&network).expect("it is in two");
        if stops_first {
            // What 3 knows when it asks.
            assert!(network.may_stop(3, &[3]));
            assert_eq!(network.change(next.clone()), Err(ViewChangeRefusal::NotAgreed));
            assert!(network.may_stop(1, &[1, 3]), "node 2 keeps what it has");
            assert_eq!(network.change(next), Err(ViewChangeRefusal::NotAgreed), "the president neither");
        } else {
            // It has agreed, and does not know what has come of that.
            network.cut(&[3], &[1]);
            network.ask_for(1, next);
            network.run(INTERVAL / 2);
            assert!(network.may_stop(3, &[3]), "node 1 stays");
            assert!(!network.may_stop(3, &[1, 3]), "nobody else would have the partition");
            assert!(!network.may_stop(1, &[1, 3]), "the president neither");
        }
    }
}

#[test]
fn two_do_not_stop_while_the_third_one_is_left_out() {
    two_stop_while_the_third_one_is_left_out(None);
}

/// Faults at random, while data nodes leave and come back.
fn faults_at_random_with(bug: Option<InjectedBug>, seeds: std::ops::Range<u64>) -> Met {
    let mut met = Met::default();
    for seed in seeds {
        let mut course = Course::of_leaving(seed, bug);
        for _ in 0..course.random.u8(4..24) {
            match course.random.u8(..12) {
                0..=4 => course.ask_to_leave(),
                5 | 6 => {
                    course.ask_to_leave();
                    course.split_soon();
                }
                7 => course.come_back(),
                8 => course.ask(),
                9 => course.end_those_that_have_left(),
                _ => course.fail(),
            }
            course.go_on();
        }
        met.survived += usize::from(course.come_to_rest());
        met.marks.extend(MARKS.iter().filter(|mark| course.network.has_met(mark)));
    }
    met
}

#[derive(Default)]
struct Met {
    /// So many clusters have gone on.
    survived: usize,
    marks: BTreeSet<&'static str>,
}

const MARKS: [&str; 5] = [
    "view was changed without a failure",
    "change of the view was given up",
    "data node did not agree to another view",
    "data nodes stopped that others may have left out of a partition",
    "data nodes went on from a view that leaves one out of a partition",
];

#[test]
fn faults_at_random() {
    let runs = runs(400);
    let met = faults_at_random_with(None, 0..runs);
    assert!(met.survived > runs as usize / 3, "{} of {runs} clusters have gone on", met.survived);
    let missing: Vec<_> = MARKS.iter().filter(|mark| !met.marks.contains(*mark)).collect();
    assert!(missing.is_empty(), "never met: {missing:?}");
}

/// The broken rule is noticed: by a split, and by faults at random.
#[cfg(feature = "injected-bugs")]
#[test]
fn a_broken_rule_is_noticed() {
    use std::panic::catch_unwind;
    let bug = Some(InjectedBug::LeavingForgottenInSplit);
    assert!(catch_unwind(|| split_while_one_is_left_out(bug, true, 2)).is_err());
    assert!(catch_unwind(|| faults_at_random_with(bug, 0..400)).is_err());
    let bug = Some(InjectedBug::StopOverlooksLeaveOut);
    assert!(catch_unwind(|| two_stop_while_the_third_one_is_left_out(bug)).is_err());
    let bug = Some(InjectedBug::CancelledIsNotAwaited);
    assert!(catch_unwind(|| a_refusal_waits_for_all_that_agree(bug)).is_err());
    assert!(catch_unwind(|| faults_at_random_with(bug, 0..400)).is_err());
}
