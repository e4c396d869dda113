//! What the checks of a restored cluster know of transactions about which no client was answered.

use super::*;
use crate::profile::{Fault, Load, Profile};
use vinga_kernel::trace_ring::TraceEntry;
use vinga_wire::{Header, SignalNumber};
use vinga_workloads::step::Fate;
use zerocopy::FromBytes;

/// Worlds without faults whose node has a disk. Their tables are made but not filled, and clients begin to work.
fn worlds() -> impl Iterator<Item = World> {
    let without = BTreeSet::from(Fault::ALL);
    let of = move |seed| (seed, Profile::of(seed, &without));
    (1..).map(of).filter(|(_, profile)| profile.log.is_some()).map(|(seed, profile)| {
        let profile = Profile { loads: vec![Load::ScanAhead], backups: None, ..profile };
        let mut world = World::new(seed, profile, None, None);
        step_until(&mut world, |world| world.apis[0].has_ended() && world.is_at_rest() && world.is_durable());
        world.stage = Stage::Running;
        world.begin_work(0);
        world
    })
}

fn step_until(world: &mut World, is_reached: impl Fn(&World) -> bool) {
    while !is_reached(world) {
        assert!(world.step() && world.now() < 60_000_000, "it is not reached");
        assert_eq!(world.violations, [""; 0]);
    }
}

/// The transactions that are known to be committed, and their epochs.
fn committed(world: &World) -> Vec<(u64, Epoch)> {
    let epoch = |(&id, decided): (&u64, &Decided)| match *decided {
        Decided::Commit(epoch) => Some((id, epoch)),
        Decided::Perhaps(_) => None,
    };
    world.history.epochs.iter().filter_map(epoch).collect()
}

/// The cluster dies at its first commit and starts again; false if the answer arrives all the same.
fn dies_with_its_first_commit(world: &mut World) -> bool {
    step_until(world, |world| !committed(world).is_empty());
    world.kill_cluster();
    step_until(world, |world| world.has_started(FIRST_NODE));
    world.newest_epoch().is_none()
}

#[test]
fn a_commit_that_nobody_was_answered_about_is_lost_with_its_epoch() {
    let mut few = worlds().take(50);
    let world = few.find_map(|mut world| dies_with_its_first_commit(&mut world).then_some(world));
    let world = world.expect("in some world the answer is lost");
    let [loss] = world.starts.losses[..] else { panic!("one start has cost something") };
    assert_eq!(loss.at, world.starts.died_at);
    let history = world.surviving_history();
    for (id, epoch) in committed(&world) {
        assert!(loss.after < epoch && epoch < loss.before, "{epoch} of {loss:?}");
        let left = history.transactions.iter().find(|transaction| transaction.id == id);
        let left = left.expect("it was begun");
        assert!(matches!(left.fate, Fate::RolledBack { .. }) && left.events.is_empty(), "{left:?}");
    }
}

#[test]
fn epochs_of_commits_that_nobody_was_answered_about_are_used() {
    let mut world = worlds().next().expect("some world has disks");
    assert_eq!(world.newest_used(), world.starts.first, "nobody has committed anything");
    // As if a start were about to give out an epoch again.
    world.history.epochs.insert(1, Decided::Commit(Epoch(u64::MAX)));
    world.kill_cluster();
    while world.violations.is_empty() {
        assert!(world.step() && world.now() < 60_000_000, "the start is not checked");
    }
    assert!(world.violations[0].contains("was used before"), "{:?}", world.violations);
}

#[test]
fn what_the_only_replica_has_prepared_may_be_committed_before_its_coordinator_knows() {
    let confirms = |entry: &TraceEntry, id: u64| {
        let (header, body) = Header::ref_from_prefix(&entry.bytes).expect("an entry holds a header");
        let is_confirm = header.number.get() == SignalNumber::PrepareConfirm as u16;
        is_confirm && body.starts_with(&id.to_le_bytes())
    };
    let confirmed = |world: &World, id: u64| {
        world.threads.iter().any(|thread| thread.executor.trace().iter().any(|entry| confirms(entry, id)))
    };
    let of_first = |mut world: World| {
        step_until(&mut world, |world| !world.history.epochs.is_empty());
        let (&id, &decided) = world.history.epochs.first_key_value()?;
        (!confirmed(&world, id)).then_some(decided)
    };
    let decided = worlds().take(50).find_map(of_first).expect("in some world the confirmation is on its way");
    assert!(matches!(decided, Decided::Perhaps(_)), "{decided:?}");
}
