//! Data nodes come back: the view changes without a failure, while others fail at each moment of it, and at random.

use crate::course::{Course, STEPS, Step, change_for};
use crate::network::{End, INTERVAL, Network, REST, runs, set};
use std::collections::BTreeSet;
use vinga_base::{Incarnation, NodeId, PartitionId, ViewNumber};
use vinga_kernel::InjectedBug;
use vinga_wire::agreement::{ViewAttempt, ViewChangeRefusal, ViewPrepareRequest, WantedChange};
use vinga_wire::view::{ClusterView, Member, MemberState};

/// A quiet cluster, and one more data node that waits to join, connected to all others.
fn cluster(seed: u64, groups: &[u16], has_arbitrator: bool) -> (Network, u8) {
    let mut network = Network::new(seed, groups, has_arbitrator);
    network.run(INTERVAL * 3);
    let newcomer = groups.len() as u8 + 1;
    network.start_again(newcomer);
    let others = network.ids();
    network.connect(newcomer, &others);
    network.run(INTERVAL);
    (network, newcomer)
}

/// A cluster in which all steps before this one were done, and what is asked for next.
fn before(
    step: Step,
    seed: u64,
    groups: &[u16],
    has_arbitrator: bool,
    group: u16,
) -> (Network, u8, WantedChange) {
    let (mut network, newcomer) = cluster(seed, groups, has_arbitrator);
    for earlier in STEPS.into_iter().take_while(|&earlier| earlier != step) {
        let change = change_for(&network, earlier, newcomer, group);
        network.change(change).expect("nothing is in its way");
        network.run(INTERVAL);
    }
    let change = change_for(&network, step, newcomer, group);
    (network, newcomer, change)
}

fn state(network: &Network, node: u8, id: u8) -> MemberState {
    network.view(node).member(NodeId(id)).expect("it is a member").state
}

#[test]
fn a_node_comes_back_in_three_views() {
    for (seed, groups) in [&[0, 0][..], &[0, 0, 0], &[0, 0, 1, 1]].into_iter().enumerate() {
        for has_arbitrator in [true, false] {
            let mut network = Network::new(seed as u64, groups, has_arbitrator);
            network.run(INTERVAL * 3);
            network.end(2, End::Gone);
            network.run(INTERVAL * 2);
            network.start_again(2);
            let others = network.ids();
            network.connect(2, &others);
            network.run(INTERVAL * 2);
            assert!(network.members(2).is_empty() && network.lease(2) == 0, "it waits");
            let before = network.view(1).number().0;
            let changes = [
                (network.joining(2, 0), MemberState::Starting),
                (WantedChange::Copy(NodeId(2), Incarnation(2)), MemberState::Copying),
                (WantedChange::Start(NodeId(2), Incarnation(2)), MemberState::Started),
            ];
            for (number, (change, after)) in (before + 1..).zip(changes) {
                assert_eq!(network.change(change), Ok(number));
                network.run(INTERVAL / 2);
                let all: BTreeSet<u8> = network.ids().into_iter().collect();
                for &id in &all {
                    assert_eq!((network.members(id), state(&network, id, 2)), (all.clone(), after));
                }
            }
            let to_newcomer = WantedChange::MovePrimary(PartitionId(0), NodeId(2));
            assert_eq!(network.change(to_newcomer), Ok(before + 4));
            network.run(REST);
            network.check_rest();
            // It is as good as any other one.
            network.end(1, End::Gone);
            network.run(REST);
            network.check_rest();
            assert!(network.alive().contains(&2) && !network.alive().contains(&1), "{groups:?}");
        }
    }
}

/// The arbitrator that has let data nodes go on takes another ticket of them when others have joined.
#[test]
fn an_arbitrator_that_has_decided_arbitrates_again_when_a_node_is_back() {
    let mut network = Network::with_management(1, &[0, 0], 2);
    network.run(INTERVAL * 3);
    network.end(2, End::Silent);
    network.run(REST);
    assert!(network.has_met("arbitrator let data nodes go on"));
    network.start_again(2);
    network.connect(2, &[1]);
    network.run(INTERVAL);
    for step in [Step::Join, Step::Copy, Step::Start] {
        let change = change_for(&network, step, 2, 0);
        network.change(change).expect("nothing is in its way");
        network.run(INTERVAL);
    }
    // The other management node takes its place, and it that of the other one.
    network.part_management(0, set(&[1, 2]));
    network.run(INTERVAL * 4);
    network.part_management(0, set(&[]));
    network.part_management(1, set(&[1, 2]));
    network.run(INTERVAL * 4);
    network.end(2, End::Silent);
    network.run(REST);
    network.check_rest();
    assert_eq!(network.alive(), set(&[1]));
}

/// One that has not started is left out like any other, and weighs nothing.
#[test]
fn the_others_go_on_without_a_node_that_has_not_started() {
    for step in [Step::Copy, Step::Start] {
        for (seed, end) in [End::Gone, End::Closed, End::Silent].into_iter().enumerate() {
            // Alone, without an arbitrator: nobody else can go on.
            let (mut network, newcomer, _) = before(step, seed as u64, &[0], false, 0);
            network.end(newcomer, end);
            network.run(REST);
            network.check_rest();
            assert_eq!(network.alive(), set(&[1]));
            let (mut network, newcomer, _) = before(step, seed as u64, &[0, 1], true, 0);
            network.end(1, end);
            network.run(REST);
            network.check_rest();
            assert!(network.alive().is_empty(), "{newcomer} is no replica yet: {:?}", network.alive());
            // Nobody leads but started ones, though they are younger.
            let (mut network, newcomer, _) = before(step, seed as u64, &[0, 0], true, 0);
            network.end(1, end);
            network.run(REST);
            network.check_rest();
            assert_eq!(network.alive(), set(&[2, newcomer]));
        }
    }
}

#[test]
fn a_link_to_a_node_that_has_not_started_costs_that_one() {
    for other in [1, 2, 3] {
        for step in [Step::Copy, Step::Start] {
            let (mut network, newcomer, _) = before(step, u64::from(other), &[0, 1, 0], true, 0);
            network.break_connections(other, newcomer);
            network.run(REST);
            network.check_rest();
            assert_eq!(network.alive(), set(&[1, 2, 3]));
        }
    }
}

/// If it is the oldest that is left, younger ones that have started lead.
#[test]
fn an_older_one_that_has_not_started_does_not_lead() {
    let (mut network, older, _) = before(Step::Start, 1, &[0], true, 0);
    let younger = older + 1;
    network.start_again(younger);
    let others = network.ids();
    network.connect(younger, &others);
    network.run(INTERVAL);
    for step in [Step::Join, Step::Copy, Step::Start] {
        let change = change_for(&network, step, younger, 0);
        network.change(change).expect("nothing is in its way");
        network.run(INTERVAL);
    }
    network.end(1, End::Silent);
    network.run(REST);
    network.check_rest();
    assert_eq!(network.alive(), set(&[older, younger]));
    assert_eq!(state(&network, older, older), MemberState::Copying);
}

/// Each reason for which a change is not made.
#[test]
fn changes_that_are_refused() {
    use ViewChangeRefusal as Refusal;
    let (mut network, newcomer) = cluster(1, &[0, 0, 0], true);
    let join = || WantedChange::Join(Member::started(NodeId(4), Incarnation(1), 0, 1, 1));
    assert_eq!(newcomer, 4);
    let request = network.ask_for(2, join());
    assert_eq!(network.answer_to(2, request), Some(Err(Refusal::NotPresident)));
    let copy = WantedChange::Copy(NodeId(4), Incarnation(1));
    assert_eq!(network.change(copy), Err(Refusal::DoesNotFit));
    let another = WantedChange::Join(Member::started(NodeId(4), Incarnation(2), 0, 1, 1));
    assert_eq!(network.change(another), Err(Refusal::NotConnected), "this start of it is not there");

    // One change at a time: of the view, and of the ticket.
    let request = network.ask_for(1, join());
    let second = network.ask_for(1, join());
    assert_eq!(network.answer_to(1, request), None);
    assert_eq!(network.answer_to(1, second), Some(Err(Refusal::OtherChange)));
    network.run(INTERVAL);
    assert_eq!(network.answer_to(1, request), Some(Ok(2)));
    network.stop_management(0);
    network.run(INTERVAL * 3);
    network.start_management(0);
    let mut met = false;
    for _ in 0..INTERVAL * 4 {
        network.run(1);
        let request = network.ask_for(1, WantedChange::Start(NodeId(4), Incarnation(1)));
        met |= network.answer_to(1, request) == Some(Err(Refusal::OtherChange));
    }
    assert!(met && network.has_met("another arbitrator was chosen"));

    // Somebody is suspected.
    let (mut network, _) = cluster(2, &[0, 0, 0], true);
    network.break_connections(2, 3);
    network.run(INTERVAL);
    let request = network.ask_for(1, join());
    assert_eq!(network.answer_to(1, request), Some(Err(Refusal::NotWhole)));
    network.run(REST);
    let number = network.view(1).number().0;
    assert_eq!(network.change(join()), Ok(number + 1));

    // Nothing has come from the one that joins.
    let (mut network, _) = cluster(3, &[0, 0, 0], true);
    network.start_again(5);
    network.stall(5, INTERVAL * 8);
    let others = network.ids();
    network.connect(5, &others);
    network.run(INTERVAL);
    let silent = network.joining(5, 0);
    assert_eq!(network.change(silent), Err(Refusal::NotAnswered));
    // It does not answer any more, nor does its system say that it has ended.
    let (mut network, newcomer) = cluster(3, &[0, 0, 0], true);
    network.end(newcomer, End::Silent);
    assert_eq!(network.change(join()), Err(Refusal::MemberLost));
    assert!(network.has_met("change of the view was given up"));
    network.run(REST);
    network.check_rest();

    // A member, or the one that joins, is lost meanwhile.
    for lost in [2, 4] {
        let (mut network, _) = cluster(4, &[0, 0, 0], true);
        let request = network.ask_for(1, join());
        network.end(lost, End::Gone);
        network.run(INTERVAL);
        let answer = network.answer_to(1, request);
        assert!(matches!(answer, Some(Err(Refusal::MemberLost) | Ok(2))), "{answer:?}");
        network.run(REST);
        network.check_rest();
    }

    // One of the others is not connected to it, or it is not to one of them.
    let mut network = Network::new(5, &[0, 0, 0], true);
    network.run(INTERVAL * 3);
    network.start_again(4);
    network.connect(4, &[1, 2]);
    network.run(INTERVAL);
    assert_eq!(network.change(join()), Err(Refusal::NotAgreed));
    network.connect(4, &[3]);
    network.run(INTERVAL);
    assert_eq!(network.change(join()), Ok(2));
}

/// One that has fallen silent is no candidate any more, at nobody: another start of it may connect.
#[test]
fn one_that_is_silent_before_it_joins_is_closed() {
    let (mut network, newcomer) = cluster(1, &[0, 0], true);
    network.end(newcomer, End::Silent);
    network.run(REST);
    assert!(network.has_met("data node that was no member was silent"));
    let join = network.joining(newcomer, 0);
    assert_eq!(network.change(join), Err(ViewChangeRefusal::NotConnected));
    network.check_rest();
    // The same between two that wait.
    let (mut network, first) = cluster(2, &[0, 0], true);
    let second = first + 1;
    network.start_again(second);
    network.connect(second, &[1, 2, first]);
    network.run(INTERVAL);
    network.end(second, End::Silent);
    network.run(REST);
    network.start_again(second);
    network.connect(second, &[1, 2, first]);
    for node in [first, second] {
        network.run(INTERVAL);
        let join = network.joining(node, 0);
        assert!(network.change(join).is_ok());
    }
    network.run(REST);
    network.check_rest();
    assert_eq!(network.alive(), set(&[1, 2, first, second]));
}

/// One that is in another view, does not know the ticket that counts, or has given up others, agrees to nothing; nor
/// does one whom somebody else asks.
#[test]
fn a_member_agrees_to_the_president_in_its_own_view_only() {
    let (mut network, newcomer) = cluster(1, &[0, 0, 0], true);
    let member = Member::started(NodeId(newcomer), Incarnation(1), 0, 1, 1);
    let next = network.view(2).with_joined(member.clone());
    let later = next.with_copying(NodeId(newcomer));
    let body =
        |view: &ClusterView, attempt, change| ViewPrepareRequest { attempt, change, view: view.clone() };
    assert!(!network.agrees_to_view(1, 2, &body(&later, 1, 0)), "not the next view");
    assert!(!network.agrees_to_view(3, 2, &body(&next, 1, 0)), "not the president");
    assert!(!network.agrees_to_view(1, 2, &body(&next, 1, 1)), "another ticket counts");
    let another = network.view(2).with_joined(Member { incarnation: Incarnation(2), ..member });
    assert!(!network.agrees_to_view(1, 2, &body(&another, 1, 0)), "another start is connected");
    assert!(network.agrees_to_view(1, 2, &body(&next, 1, 0)));
    assert!(network.agrees_to_view(1, 2, &body(&next, 2, 0)), "the one before is given up");
    // The one that joins agrees to no older view than it has agreed to.
    assert!(!network.agrees_to_view(3, newcomer, &body(&next, 1, 0)), "not the president");
    assert!(!network.agrees_to_view(1, newcomer, &body(&another, 1, 0)), "it is another start");
    assert!(network.agrees_to_view(1, newcomer, &body(&later, 1, 0)));
    assert!(!network.agrees_to_view(1, newcomer, &body(&next, 2, 0)), "the others have gone on since");
    assert!(network.has_met("data node did not agree to another view"));
    // Nor does it join with an older one.
    network.order_view(1, newcomer, &next);
    assert!(network.members(newcomer).is_empty());
    network.order_view(1, newcomer, &later);
    assert_eq!(network.view(newcomer).number(), later.number());
}

/// It has agreed to join with a late view when all others end, and start again as a new cluster, whose views begin with
/// number 1. It is connected to somebody all the time.
#[test]
fn what_a_node_has_agreed_to_in_an_earlier_cluster_does_not_keep_it_out() {
    let (mut network, newcomer) = cluster(1, &[0, 0, 0], true);
    let member = Member::started(NodeId(newcomer), Incarnation(1), 0, 1, 1);
    let late = network.view(2).with_joined(member.clone()).with_copying(NodeId(newcomer));
    assert!(network.agrees_to_view(1, newcomer, &ViewPrepareRequest { attempt: 1, change: 0, view: late }));
    let again = (1..=3).map(|node| Member::started(NodeId(node), Incarnation(2), 0, 1, 1));
    let early = ClusterView::first(again.collect()).with_joined(member);
    let body = ViewPrepareRequest { attempt: 1, change: 0, view: early };
    for node in 1..=3 {
        assert!(!network.agrees_to_view(1, newcomer, &body), "some can still send it the late view");
        network.end(node, End::Gone);
        network.run(1);
        network.start_again(node);
        network.connect(newcomer, &[node]);
        network.run(5);
    }
    assert!(network.agrees_to_view(1, newcomer, &body));
}

/// An answer to an attempt that was given up counts for no other one, though both have one number of the view.
#[test]
fn a_late_answer_counts_for_its_own_attempt() {
    let (mut network, _) = cluster(1, &[0, 0], true);
    network.cut(&[1], &[2]);
    let join = network.joining(3, 0);
    let request = network.ask_for(1, join);
    network.run(INTERVAL);
    for (attempt, answer) in [(0, None), (2, None), (1, Some(Ok(2)))] {
        network.confirm_view(2, 1, ViewAttempt { view: ViewNumber(2), attempt });
        assert_eq!(network.answer_to(1, request), answer, "attempt {attempt}");
    }
}

/// The president installs the view with the one that joins, and does not reach that one any more.
#[test]
fn one_that_joins_gets_the_view_of_others() {
    let (mut network, newcomer) = cluster(1, &[0, 0, 0], true);
    network.stall(2, INTERVAL);
    let join = network.joining(newcomer, 0);
    network.ask_for(1, join);
    network.run(INTERVAL / 2);
    network.cut(&[1], &[newcomer]);
    network.run(INTERVAL * 3);
    assert!(network.has_met("member had missed a view"));
    assert_eq!(network.view(newcomer), network.view(1));
    network.heal();
    network.run(REST);
    network.check_rest();
    assert_eq!(network.alive(), set(&[1, 2, 3, 4]));
}

/// The president ends when only the one that joins has got the view with it. The other one does not know that, and asks
/// it to join again and again: so it is never suspicious to it that no heartbeats come.
#[test]
fn one_that_has_joined_in_a_view_that_nobody_else_has_stops_when_it_is_asked_to_join() {
    let mut cases = 0;
    for moment in 0..40 {
        let (mut network, newcomer) = cluster(moment, &[0, 0], true);
        let join = network.joining(newcomer, 0);
        network.ask_for(1, join.clone());
        network.run(moment / 8);
        network.cut(&[1], &[2]);
        network.run(INTERVAL * 2);
        let is_alone =
            network.members(newcomer).contains(&newcomer) && !network.members(2).contains(&newcomer);
        network.end(1, End::Gone);
        for _ in 0..20 {
            network.run(INTERVAL * 2);
            if network.president() == Some(2) && network.alive().contains(&newcomer) {
                network.ask_for(2, join.clone());
            }
        }
        network.check_rest();
        if is_alone {
            cases += 1;
            assert_eq!(network.alive(), set(&[2]), "it stands in nobody's way");
        }
    }
    assert!(cases > 0, "it was never the only one");
}

/// Nothing comes from 2 to 3 and 4 any more when 4 starts, with which they can go on without 2. Its driver does not
/// know yet that it has agreed to that.
#[test]
fn leases_that_drivers_have_before_they_know_of_a_change_are_over() {
    for seed in 0..200 {
        let (mut network, newcomer, change) = before(Step::Start, seed, &[1, 0, 1], false, 0);
        network.lease_lag = INTERVAL * 4;
        network.cut(&[2], &[3, newcomer]);
        network.run(INTERVAL * 2 + seed % INTERVAL);
        network.ask_for(1, change);
        network.run(INTERVAL / 2);
        network.end(1, End::Gone);
        network.cut(&[3, newcomer], &[2]);
        network.run(REST);
        network.check_rest();
        assert_eq!(network.alive(), set(&[3, newcomer]), "seed {seed}");
    }
}

/// The president, a member or the newcomer ends at each moment of each change.
#[test]
fn somebody_is_lost_at_each_moment_of_a_change() {
    let mut met: BTreeSet<&str> = BTreeSet::new();
    for (groups, group) in [(&[0, 0][..], 0), (&[0, 0, 0], 0), (&[0, 0, 1, 1], 1)] {
        for step in STEPS {
            for moment in 0..60 {
                let (mut network, newcomer, change) = before(step, moment, groups, true, group);
                let lost = [1, 2, newcomer][moment as usize % 3];
                let end = [End::Gone, End::Silent, End::Closed, End::InOrder][moment as usize / 3 % 4];
                let request = network.ask_for(1, change);
                network.run(moment / 6);
                network.end(lost, end);
                network.run(REST);
                network.check_rest();
                let context = format!("{groups:?} {step:?}: {lost} {end:?} at {moment}");
                let alive = network.alive();
                let rest: BTreeSet<u8> = network.ids().into_iter().filter(|&id| id != lost).collect();
                // The newcomer may have been let in by a president that nobody else has heard of since.
                let without: BTreeSet<u8> = rest.iter().copied().filter(|&id| id != newcomer).collect();
                assert!(alive == rest || step == Step::Join && alive == without, "{context}: {alive:?}");
                if lost != 1 {
                    assert!(network.answer_to(1, request).is_some(), "{context}");
                    // The president can go on with it, or try again.
                    let _ = network.answers(1);
                }
                met.extend(MARKS.iter().filter(|mark| network.has_met(mark)));
            }
        }
    }
    assert!(met.contains("change of the view was given up"), "{met:?}");
}

/// The last started one of node group 0 ends at each moment of the change with which another one starts: all others go
/// on if the change counts, though not all have the view yet; else they stop.
#[test]
fn the_last_one_of_a_group_ends_while_another_one_starts() {
    let mut went_on = BTreeSet::new();
    for moment in 0..300 {
        let (mut network, _, change) = before(Step::Start, moment, &[1, 0, 1], true, 0);
        network.ask_for(1, change);
        network.run(moment / 30);
        network.end(2, End::Gone);
        network.run(REST);
        network.check_rest();
        went_on.insert(network.alive().into_iter().collect::<Vec<u8>>());
    }
    assert_eq!(went_on, BTreeSet::from([vec![], vec![1, 3, 4]]));
}

/// Node group 0 is {2} and the newcomer 4, node group 1 is {1, 3}. The cluster is split into {1, 4} and {2, 3} at each
/// moment of the change with which the newcomer starts: the ones are a cluster by themselves if the change counts, the
/// others in any case. So neither may go on without having asked.
/// Returns which of them did, and whether they have ever judged by both views.
fn split_while_the_newcomer_starts(
    bug: Option<InjectedBug>,
    has_arbitrator: bool,
) -> (BTreeSet<Vec<u8>>, bool) {
    let (mut went_on, mut met) = (BTreeSet::new(), false);
    for moment in 0..400 {
        let (mut network, newcomer, change) = before(Step::Start, moment, &[1, 0, 1], has_arbitrator, 0);
        network.inject_bug(bug);
        if moment % 4 == 0 {
            // Not all are asked before. So the others are sure that nobody else goes on.
            network.cut(&[1], if moment % 8 == 0 { &[3] } else { &[2, 3] });
        }
        network.ask_for(1, change);
        network.run(moment / 40);
        network.cut(&[1, newcomer], &[2, 3]);
        network.cut(&[2, 3], &[1, newcomer]);
        network.run(REST);
        network.check_rest();
        let alive = network.alive();
        let is_sure = moment % 4 == 0 && bug.is_none() && !has_arbitrator;
        assert!(!is_sure || alive == set(&[2, 3]), "moment {moment}: {alive:?}");
        went_on.insert(alive.into_iter().collect());
        met |= network.has_met("data nodes that were given up could go on in a later view");
    }
    (went_on, met)
}

#[test]
fn a_split_at_each_moment_of_a_start() {
    let with_arbitrator = split_while_the_newcomer_starts(None, true);
    assert_eq!(with_arbitrator, (BTreeSet::from([vec![1, 4], vec![2, 3]]), true));
    let without = split_while_the_newcomer_starts(None, false);
    assert_eq!(without, (BTreeSet::from([vec![], vec![2, 3]]), true));
}

/// The same with the other halves, in all steps: one of them goes on at most.
#[test]
fn a_split_at_each_moment_of_each_change() {
    for step in STEPS {
        for moment in 0..240 {
            let (mut network, newcomer, change) = before(step, moment, &[0, 1, 0, 1], moment % 4 > 0, 0);
            network.ask_for(1, change);
            network.run(moment / 20);
            let mut sides = [vec![1, 2], vec![3, 4]];
            sides[moment as usize % 2].push(newcomer);
            network.cut(&sides[0], &sides[1]);
            network.cut(&sides[1], &sides[0]);
            network.run(REST);
            network.check_rest();
            let alive = network.alive();
            assert!(moment % 4 == 0 || !alive.is_empty(), "{step:?} at {moment}");
        }
    }
}

/// Faults at random, while data nodes come back. Whatever happens, there is one chain of views, and nobody answers who
/// may not.
#[test]
fn faults_at_random() {
    let (mut survived, mut grown, mut met) = (0, 0, BTreeSet::<&str>::new());
    let runs = runs(600);
    for seed in 0..runs {
        let mut course = Course::new(seed);
        for _ in 0..course.random.u8(4..24) {
            match course.random.u8(..8) {
                0 | 1 => course.come_back(),
                2..=4 => course.ask(),
                5 => {
                    course.ask();
                    course.split_soon();
                }
                _ => course.fail(),
            }
            course.go_on();
        }
        survived += usize::from(course.come_to_rest());
        grown += usize::from(course.network.has_met("view was changed without a failure"));
        met.extend(MARKS.iter().filter(|mark| course.network.has_met(mark)));
    }
    assert!(survived > runs as usize / 3, "{survived} of {runs} clusters have gone on");
    assert!(grown > runs as usize / 2, "{grown} of {runs} clusters have grown");
    let missing: Vec<_> = MARKS.iter().filter(|mark| !met.contains(*mark)).collect();
    assert!(missing.is_empty(), "never met: {missing:?}");
}

const MARKS: [&str; 4] = [
    "view was changed without a failure",
    "change of the view was given up",
    "data node did not agree to another view",
    "data nodes that were given up could go on in a later view",
];

/// Each broken rule is noticed.
#[cfg(feature = "injected-bugs")]
#[test]
fn broken_rules_are_noticed() {
    use std::panic::catch_unwind;
    for bug in [
        InjectedBug::GrowthCountsEarly,
        InjectedBug::GrowthForgottenInSplit,
        InjectedBug::GrowthForgottenInLease,
    ] {
        let noticed = catch_unwind(|| split_while_the_newcomer_starts(Some(bug), true));
        assert!(noticed.is_err(), "nobody notices {}", bug.name());
    }
}
