//! Another management node takes the place of an arbitrator that is lost, or the same one when it has started again. At
//! no moment can two of them let two sets go on.

use crate::network::{End, INTERVAL, Network, REST, set};
use fastrand::Rng;
use std::collections::BTreeSet;
use vinga_base::ViewNumber;
use vinga_wire::agreement::TicketBody;

/// A quiet cluster with so many management nodes, after its first heartbeats.
fn cluster(seed: u64, groups: &[u16], management: usize) -> Network {
    let mut network = Network::with_management(seed, groups, management);
    network.run(INTERVAL * 3);
    network
}

/// One of a pair falls silent: the other one goes on.
fn goes_on_alone(network: &mut Network, failed: u8) {
    network.end(failed, End::Silent);
    network.run(REST);
    network.check_rest();
    assert_eq!(network.alive(), set(&[3 - failed]));
    assert!(network.has_met("arbitrator let data nodes go on"));
}

#[test]
fn a_management_node_that_has_started_again_arbitrates() {
    for failed in [1, 2] {
        let mut network = cluster(1, &[0, 0], 1);
        network.stop_management(0);
        network.run(INTERVAL * 4);
        assert!(network.has_met("no arbitrator was left"));
        network.start_management(0);
        network.run(INTERVAL * 4);
        assert!(network.has_met("another arbitrator was chosen"));
        goes_on_alone(&mut network, failed);
    }
}

#[test]
fn the_second_management_node_takes_the_place_of_the_first() {
    for failed in [1, 2] {
        let mut network = cluster(2, &[0, 0], 2);
        network.stop_management(0);
        network.run(INTERVAL * 4);
        assert!(network.has_met("arbitrator was lost") && !network.has_met("no arbitrator was left"));
        goes_on_alone(&mut network, failed);
    }
}

/// The first one comes back as if nothing had happened: it was only cut off from the president. What it holds is worth
/// nothing then.
#[test]
fn the_first_one_grants_nothing_when_it_comes_back() {
    for seed in 0..20 {
        let mut network = cluster(seed, &[0, 0, 1, 1], 2);
        network.part_management(0, set(&[1]));
        network.run(INTERVAL * 4);
        assert!(network.has_met("another arbitrator was chosen"));
        // 2 and 4 reach the first one only.
        network.part_management(1, set(&[2, 4]));
        network.cut(&[1, 3], &[2, 4]);
        network.cut(&[2, 4], &[1, 3]);
        network.run(REST);
        network.check_rest();
        assert_eq!(network.alive(), set(&[1, 3]));
    }
}

/// The cluster is split, and the arbitrators with it, at each moment of a change.
#[test]
fn a_split_at_each_moment_of_a_change() {
    let mut met: BTreeSet<&str> = BTreeSet::new();
    for moment in 0..1200 {
        let mut network = cluster(moment, &[0, 0, 1, 1], 2);
        network.part_management(0, set(&[1, 3]));
        network.run(moment / 20 % (INTERVAL * 2));
        network.part_management(1, set(&[2, 4]));
        network.cut(&[1, 3], &[2, 4]);
        network.cut(&[2, 4], &[1, 3]);
        network.run(REST);
        network.check_rest();
        met.extend(MARKS.iter().filter(|mark| network.has_met(mark)));
    }
    // All but these can also be met by a split.
    for mark in ["change of the ticket was given up", "data nodes stopped between two arbitrators"] {
        assert!(met.contains(mark), "{met:?}");
    }
}

/// One that is in another view, or has agreed to a later change, agrees to nothing; nor does one whom somebody else
/// asks.
#[test]
fn a_member_agrees_to_the_president_in_its_own_view_only() {
    let mut network = cluster(1, &[0, 0, 0], 1);
    let change = |view: u32, change: u32| TicketBody { view: ViewNumber(view), change, ticket: 99 };
    assert!(network.agrees(1, 2, change(1, 5)));
    assert!(!network.agrees(1, 2, change(1, 5)) && !network.agrees(1, 2, change(1, 4)));
    assert!(!network.agrees(1, 2, change(2, 6)), "another view");
    assert!(!network.agrees(3, 2, change(1, 6)), "not the president");
    assert!(network.agrees(1, 2, change(1, 6)));
    assert!(network.has_met("data node did not agree to another ticket"));
}

/// The president ends at each moment of a change: the others go on as far as they are sure.
#[test]
fn the_president_ends_at_each_moment_of_a_change() {
    let mut survived = 0;
    for moment in 0..400 {
        let mut network = cluster(moment, &[0, 0, 0], 2);
        network.stop_management(0);
        network.run(moment / 10);
        network.end(1, if moment % 2 == 0 { End::Gone } else { End::Silent });
        network.run(REST);
        network.check_rest();
        let alive = network.alive();
        assert!(alive == set(&[2, 3]) || moment % 2 == 1 && alive.is_empty(), "{alive:?}, moment {moment}");
        survived += usize::from(!alive.is_empty());
        if !alive.is_empty() {
            // They have an arbitrator.
            network.end(2, End::Silent);
            network.run(REST);
            assert_eq!(network.alive(), set(&[3]), "moment {moment}");
        }
    }
    assert!(survived > 300, "{survived}");
}

/// Faults at random, also of the management nodes. Whatever happens, there is one chain of views; and when all is well
/// again, there is an arbitrator.
#[test]
fn faults_at_random() {
    let layouts: [&[u16]; 5] = [&[0, 0], &[0, 0, 0], &[0, 0, 1, 1], &[0, 1, 1], &[0, 0, 0, 0]];
    let mut met: BTreeSet<&str> = BTreeSet::new();
    for seed in 0..600 {
        let mut random = Rng::with_seed(seed);
        let groups = layouts[random.usize(..layouts.len())];
        let management = random.usize(1..=2);
        let mut network = cluster(seed, groups, management);
        network.loses_answers = random.bool();
        network.arbitration_delay = if random.bool() { 0 } else { random.u64(1..INTERVAL * 3) };
        for _ in 0..random.u8(1..8) {
            let ids = network.ids();
            let id = ids[random.usize(..ids.len())];
            let chosen: BTreeSet<u8> = ids.iter().copied().filter(|_| random.bool()).collect();
            let rest: Vec<u8> = ids.iter().copied().filter(|node| !chosen.contains(node)).collect();
            let at = random.usize(..management);
            match random.u8(..10) {
                0 => network.end(id, End::Silent),
                1 => network.end(id, End::Gone),
                2 => network.stall(id, random.u64(1..INTERVAL * 8)),
                3 | 4 => {
                    let sides: [Vec<u8>; 2] = [chosen.iter().copied().collect(), rest.clone()];
                    network.cut(&sides[0], &sides[1]);
                    network.cut(&sides[1], &sides[0]);
                    // Each management node is on one of the sides.
                    for at in 0..management {
                        let side = sides[random.usize(..2)].iter().copied().collect();
                        network.part_management(at, side);
                    }
                }
                5 | 6 => network.stop_management(at),
                7 | 8 => network.start_management(at),
                _ => network.part_management(at, chosen),
            }
            network.run(random.u64(0..INTERVAL * 3));
            if random.u8(..4) == 0 {
                network.heal();
            }
        }
        network.heal();
        network.heal_management();
        network.loses_answers = false;
        network.run(REST);
        network.check_rest();
        met.extend(MARKS.iter().filter(|mark| network.has_met(mark)));
        let alive = network.alive();
        if let ([_, .., last], true) =
            (&alive.iter().copied().collect::<Vec<_>>()[..], groups.iter().all(|g| *g == 0))
        {
            // Any of them could go on alone, and is let.
            for node in alive.iter().filter(|node| *node != last) {
                network.end(*node, End::Silent);
            }
            network.run(REST);
            assert_eq!(network.alive(), set(&[*last]), "seed {seed}");
        }
    }
    let missing: Vec<_> = MARKS.iter().filter(|mark| !met.contains(*mark)).collect();
    assert!(missing.is_empty(), "never met: {missing:?}");
}

const MARKS: [&str; 8] = [
    "arbitrator was lost",
    "arbitrator was lost for a while",
    "another arbitrator was chosen",
    "arbitrator was chosen too late",
    "no arbitrator was left",
    "change of the ticket was given up",
    "data node had missed a ticket",
    "data nodes stopped between two arbitrators",
];
