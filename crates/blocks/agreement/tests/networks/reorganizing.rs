//! Partitions move to a node group that was added, while data nodes fail, come back, and leave. Checked all the time:
//! whoever is a replica of a partition has all changes of it that were answered.

use crate::course::Course;
use crate::network::{INTERVAL, REST, runs};
use vinga_base::NodeId;
use vinga_wire::agreement::WantedChange;

#[test]
fn partitions_move_until_each_node_group_has_its_share() {
    for seed in 0..20 {
        let mut course = Course::of_reorganizing(seed, None);
        course.network.run(INTERVAL * 8);
        course.have_all_started();
        for _ in 0..200 {
            course.ask_to_reorganize();
            course.network.run(INTERVAL / 2);
        }
        course.network.run(REST);
        course.network.check_rest();
        let president = course.network.president().expect("there is one");
        for _ in 0..100 {
            let moves = course.network.next_moves(president);
            let change = moves.into_iter().next().unwrap_or(WantedChange::Reorganize(true));
            course.network.ask_for(president, change);
            course.network.run(INTERVAL * 5);
        }
        let view = course.network.view(president).clone();
        assert_eq!(view.moving(), None, "seed {seed}");
        assert!(view.partitions().iter().all(|one| one.chain.length() == usize::from(view.replicas())));
        let held = |id: u8| view.held_by(NodeId(id)).count();
        let most: Vec<usize> = course.network.ids().into_iter().map(held).collect();
        assert!(most.iter().all(|&held| held == 1), "seed {seed}: {most:?}");
    }
}

#[test]
fn faults_at_random() {
    let runs = runs(400);
    let (mut survived, mut moved) = (0, 0);
    for seed in 0..runs {
        let mut course = Course::of_reorganizing(seed, None);
        for _ in 0..course.random.u8(4..40) {
            match course.random.u8(..16) {
                0..=6 => course.ask_to_reorganize(),
                7 | 8 => {
                    course.ask_to_reorganize();
                    course.split_soon();
                }
                9 => course.come_back(),
                10 => course.ask(),
                11 => course.ask_to_leave(),
                12 => course.end_those_that_have_left(),
                _ => course.fail(),
            }
            course.go_on();
        }
        let has_survived = course.come_to_rest();
        let network = &course.network;
        let alive = network.alive();
        let lives = alive.iter().find(|&&id| !network.members(id).is_empty());
        survived += usize::from(has_survived);
        moved += usize::from(lives.is_some_and(|&id| {
            let view = network.view(id);
            view.partitions().iter().any(|one| one.group != one.owner.group())
        }));
    }
    assert!(survived > runs as usize / 4 && moved > runs as usize / 10, "{survived} and {moved} of {runs}");
}
