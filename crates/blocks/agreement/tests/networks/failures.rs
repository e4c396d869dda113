//! What becomes of a cluster when data nodes fail, one scenario after the other, and at random.

use crate::network::{End, INTERVAL, Network, REST, set};
use fastrand::Rng;
use std::collections::BTreeSet;
use vinga_agreement::SILENT_INTERVALS;

/// A quiet cluster, after its first heartbeats.
fn cluster(seed: u64, groups: &[u16], has_arbitrator: bool) -> Network {
    let mut network = Network::new(seed, groups, has_arbitrator);
    network.run(INTERVAL * 3);
    network
}

/// A lease says that others can't have gone on. Before anybody has answered, a node that has just started knows
/// nothing.
#[test]
fn nobody_has_a_lease_before_others_have_answered() {
    let network = Network::new(1, &[0, 0], true);
    assert_eq!(network.lease(2), 0);
}

#[test]
fn nobody_is_suspected_without_a_reason() {
    let mut network = cluster(1, &[0, 0, 1, 1], true);
    network.run(INTERVAL * 50);
    network.check_rest();
    assert_eq!(network.alive(), set(&[1, 2, 3, 4]));
}

#[test]
fn a_node_that_has_ended_beyond_doubt_is_left_out_at_once() {
    for failed in [1, 2] {
        let mut network = cluster(2, &[0, 0], false);
        network.end(failed, End::Gone);
        network.run(INTERVAL);
        assert_eq!(network.members(3 - failed), set(&[3 - failed]));
        network.run(INTERVAL * 20);
        network.check_rest();
    }
}

/// Nobody else can say that its process has ended, as it was on another machine: it says so itself.
#[test]
fn a_node_that_has_stopped_in_order_is_left_out_at_once() {
    for (groups, seed) in [&[0, 0][..], &[0, 0, 1, 1], &[0, 0, 0]].into_iter().zip(30..) {
        for failed in 1..=groups.len() as u8 {
            let mut network = cluster(seed, groups, false);
            network.end(failed, End::InOrder);
            network.run(INTERVAL);
            let left: BTreeSet<u8> = network.ids().into_iter().filter(|&id| id != failed).collect();
            assert!(left.iter().all(|&id| network.members(id) == left), "{groups:?} without {failed}");
            network.run(REST);
            network.check_rest();
            assert_eq!(network.alive(), left);
        }
    }
}

#[test]
fn a_pair_without_arbitrator_stops_if_one_falls_silent() {
    let mut network = cluster(3, &[0, 0], false);
    network.end(2, End::Silent);
    network.run(REST);
    let why = network.stopped(1).expect("node 2 may have gone on");
    assert_eq!(why, "data nodes 2 may have gone on, and there is no arbitrator");
}

#[test]
fn a_pair_with_arbitrator_goes_on_if_one_falls_silent() {
    for failed in [1, 2] {
        let mut network = cluster(4, &[0, 0], true);
        network.end(failed, End::Silent);
        network.run(REST);
        network.check_rest();
        assert_eq!(network.alive(), set(&[3 - failed]));
        assert!(network.has_met("arbitrator let data nodes go on"));
    }
}

#[test]
fn one_half_of_a_split_goes_on() {
    for seed in 0..20 {
        let mut network = cluster(seed, &[0, 0, 1, 1], true);
        network.cut(&[1, 3], &[2, 4]);
        network.cut(&[2, 4], &[1, 3]);
        network.run(REST);
        network.check_rest();
        let alive = network.alive();
        assert!(alive == set(&[1, 3]) || alive == set(&[2, 4]), "{alive:?}");
        let stopped = network.ids().into_iter().find(|id| !alive.contains(id)).expect("half of them");
        assert!(network.stopped(stopped).is_some());
    }
}

#[test]
fn the_half_that_reaches_the_arbitrator_goes_on() {
    let mut network = cluster(5, &[0, 0, 1, 1], true);
    network.cut(&[1, 3], &[2, 4]);
    network.cut(&[2, 4], &[1, 3]);
    network.apart = set(&[1, 3]);
    network.run(REST);
    network.check_rest();
    assert_eq!(network.alive(), set(&[2, 4]));
}

#[test]
fn a_set_with_all_nodes_of_a_group_needs_no_arbitrator() {
    let mut network = cluster(6, &[0, 0, 1, 1], false);
    network.cut(&[1, 2, 3], &[4]);
    network.cut(&[4], &[1, 2, 3]);
    network.run(REST);
    network.check_rest();
    assert_eq!(network.alive(), set(&[1, 2, 3]));
    assert_eq!(
        network.stopped(4),
        Some("no data node with all rows of node group 0 is reached (not reached: 1, 2, 3; they may run)")
    );
}

#[test]
fn two_neighbours_fail_together() {
    let mut network = cluster(7, &[0, 0, 0, 0], true);
    network.end(2, End::Silent);
    network.end(3, End::Silent);
    network.run(REST);
    network.check_rest();
    assert_eq!(network.alive(), set(&[1, 4]));
}

#[test]
fn a_cut_between_two_of_three_costs_one_of_them() {
    for (from, to) in [(1, 2), (2, 1), (2, 3), (1, 3)] {
        let mut network = cluster(8, &[0, 0, 0], true);
        network.cut(&[from], &[to]);
        network.cut(&[to], &[from]);
        network.run(REST);
        network.check_rest();
        assert_eq!(network.alive().len(), 2, "{from}–{to}: {:?}", network.alive());
    }
}

#[test]
fn broken_connections_cost_one_of_the_two() {
    for (layout, one, other) in
        [(&[0, 0][..], 1, 2), (&[0, 0, 0], 2, 3), (&[0, 0, 0], 1, 3), (&[0, 0, 1, 1], 2, 3)]
    {
        for seed in 0..20 {
            let mut network = cluster(seed, layout, true);
            network.break_connections(one, other);
            network.run(REST);
            network.check_rest();
            let lost: BTreeSet<u8> =
                network.ids().into_iter().filter(|id| !network.alive().contains(id)).collect();
            assert!(lost == set(&[one]) || lost == set(&[other]), "{layout:?}, {one}–{other}: {lost:?}");
        }
    }
}

#[test]
fn what_passes_one_way_only_costs_one_of_the_two() {
    for (from, to) in [(1, 2), (2, 1), (2, 3), (3, 1)] {
        let mut network = cluster(9, &[0, 0, 0], true);
        network.cut(&[from], &[to]);
        network.run(REST);
        network.check_rest();
        assert_eq!(network.alive().len(), 2, "{from}→{to}: {:?}", network.alive());
    }
}

#[test]
fn a_node_that_did_not_run_suspects_nobody_and_stops_if_the_others_have_gone_on() {
    let mut network = cluster(10, &[0, 0, 0], true);
    network.stall(2, INTERVAL * 2);
    network.run(INTERVAL * 20);
    network.check_rest();
    assert_eq!(network.alive(), set(&[1, 2, 3]));
    network.stall(2, INTERVAL * SILENT_INTERVALS * 4);
    network.run(REST);
    network.check_rest();
    assert_eq!(network.alive(), set(&[1, 3]));
    assert!(network.stopped(2).is_some());
}

#[test]
fn nobody_goes_on_while_a_lease_lasts() {
    let mut network = cluster(11, &[0, 0], true);
    network.end(2, End::Closed);
    let lease = network.lease(2);
    network.run(INTERVAL);
    assert_eq!(network.members(1), set(&[1, 2]), "node 2 may still answer, for all that node 1 knows");
    network.run(REST);
    network.check_rest();
    assert!(network.has_met("next view waited for leases") && lease > 0);
}

/// Who leads a round fails in the middle of it, with and without those that it has sent the view to.
#[test]
fn whoever_leads_fails_at_any_moment() {
    for moment in 0..40 {
        let mut network = cluster(100 + moment, &[0, 0, 0, 0], true);
        network.end(4, End::Gone);
        network.run(moment / 4);
        network.end(1, if moment % 2 == 0 { End::Gone } else { End::Silent });
        network.run(REST);
        network.check_rest();
        assert_eq!(network.alive(), set(&[2, 3]), "moment {moment}");
    }
}

/// Node 2 stands still. The arbitrator lets node 1 go on alone, which ends a while later. Node 2 runs again, reads that
/// its connection was closed, and finds that node 1's process has ended: that does not prove that node 1 has not gone
/// on without it before.
#[test]
fn a_process_that_has_ended_may_have_gone_on_before() {
    let mut network = cluster(1, &[0, 0], true);
    network.is_one_machine = true;
    network.stall(2, INTERVAL * 30);
    network.run(INTERVAL * 15);
    assert_eq!(network.members(1), set(&[1]), "node 1 goes on alone, and commits");
    network.end(1, End::Gone);
    network.run(REST);
    assert!(network.stopped(2).is_some(), "node 2 lacks what node 1 has committed: {:?}", network.members(2));
}

/// The same, and node 1 says itself that it has ended.
#[test]
fn a_node_that_has_stopped_in_order_may_have_gone_on_before() {
    for seed in 0..20 {
        let mut network = cluster(seed, &[0, 0], true);
        network.stall(2, INTERVAL * 30);
        network.run(INTERVAL * 15);
        assert_eq!(network.members(1), set(&[1]), "node 1 goes on alone, and commits");
        network.say_ended(1, 2);
        network.end(1, End::InOrder);
        network.run(REST);
        assert!(network.stopped(2).is_some(), "node 2 lacks what node 1 has committed");
        assert!(network.has_met("data node said that it has ended"));
    }
}

/// Node 1 does not reach node 2, and node 3 agrees to give that up. Before the next view begins node 3 ends, and says
/// so to both. Node 2 is certain then that nobody goes on without it; so nobody may.
#[test]
fn no_view_begins_that_lacks_a_node_group_by_then() {
    for seed in 0..20 {
        let mut network = cluster(seed, &[0, 1, 1], false);
        network.cut(&[1], &[2]);
        network.cut(&[2], &[1]);
        while !network.has_met("next view waited for leases") {
            network.run(1);
        }
        network.end(3, End::InOrder);
        network.run(REST);
        assert!(network.has_met("next view was not made as too many of its members have ended"));
        assert_eq!(network.members(1), set(&[1, 2, 3]), "no other view was made");
        assert!(network.stopped(1).is_some_and(|why| why.contains("node group 1 is left")));
    }
}

/// The same with four: 2 and 4 stand still.
#[test]
fn two_processes_that_have_ended_may_have_gone_on_before() {
    let mut network = cluster(1, &[0, 0, 1, 1], true);
    network.is_one_machine = true;
    network.stall(2, INTERVAL * 30);
    network.stall(4, INTERVAL * 31);
    network.run(INTERVAL * 15);
    assert_eq!(network.members(1), set(&[1, 3]), "they go on, and commit");
    network.end(1, End::Gone);
    network.end(3, End::Gone);
    network.run(REST);
    assert!(network.alive().is_empty(), "{:?} lack what 1 and 3 have committed", network.alive());
}

/// A thread takes the time when its turn begins, and reads its sockets afterwards. Node 1 stands still in between. It
/// counts the heartbeats that it answers then as answered before it stood still, and so does not wait for the lease
/// that its answer gives.
#[test]
fn an_answer_given_late_in_a_turn_counts_from_then_on() {
    for seed in 0..40 {
        let mut network = cluster(seed, &[0, 0], true);
        network.reads_first = Some(true);
        network.apart = set(&[2]);
        network.run(seed % INTERVAL);
        network.stall(1, INTERVAL * 3);
        network.run(INTERVAL * 3 + 5);
        network.break_connections(1, 2);
        network.run(REST);
    }
}

/// Faults at random. Whatever happens, there is one chain of views, and nobody answers who may not.
#[test]
fn faults_at_random() {
    let layouts: [&[u16]; 6] =
        [&[0, 0], &[0, 0, 0], &[0, 0, 1, 1], &[0, 1, 1], &[0, 0, 0, 0], &[0, 1, 0, 1, 0, 1]];
    let (mut survived, mut marks) = (0, BTreeSet::new());
    const RUNS: u64 = 300;
    for seed in 0..RUNS {
        let mut random = Rng::with_seed(seed);
        let groups = layouts[random.usize(..layouts.len())];
        let mut network = cluster(seed, groups, random.u8(..4) > 0);
        network.is_one_machine = random.bool();
        network.arbitration_delay = if random.bool() { 0 } else { random.u64(1..INTERVAL * 6) };
        for _ in 0..random.u8(1..6) {
            let ids = network.ids();
            let id = ids[random.usize(..ids.len())];
            let chosen: Vec<u8> = ids.iter().copied().filter(|_| random.bool()).collect();
            let rest: Vec<u8> = ids.iter().copied().filter(|node| !chosen.contains(node)).collect();
            match random.u8(..8) {
                0 => network.end(id, if random.bool() { End::Gone } else { End::InOrder }),
                1 => network.end(id, End::Closed),
                2 => network.end(id, End::Silent),
                3 => network.stall(id, random.u64(1..INTERVAL * 8)),
                4 => network.cut(&chosen, &rest),
                5 => {
                    network.cut(&chosen, &rest);
                    network.cut(&rest, &chosen);
                }
                6 => {
                    let other = ids[random.usize(..ids.len())];
                    if id != other {
                        network.break_connections(id, other);
                    }
                }
                _ => network.apart = chosen.into_iter().collect(),
            }
            network.run(random.u64(0..INTERVAL * 6));
            if random.bool() {
                network.heal();
            }
        }
        network.heal();
        network.run(REST);
        network.check_rest();
        survived += usize::from(!network.alive().is_empty());
        for mark in MARKS {
            if network.has_met(mark) {
                marks.insert(mark);
            }
        }
    }
    assert!(survived > RUNS as usize / 2, "{survived} of {RUNS} clusters have gone on");
    let missing: Vec<_> = MARKS.iter().filter(|mark| !marks.contains(*mark)).collect();
    assert!(missing.is_empty(), "never met: {missing:?}");
}

const MARKS: [&str; 11] = [
    "younger data node lets an older one lead",
    "round about failed data nodes began again",
    "data node did not confirm a round",
    "data nodes went on without arbitration",
    "arbitrator let data nodes go on",
    "arbitrator stopped data nodes",
    "next view waited for leases",
    "member had missed a view",
    "few data nodes let the others ask the arbitrator first",
    "signal of a data node that was given up",
    "data node did not run for longer than a heartbeat interval",
];
