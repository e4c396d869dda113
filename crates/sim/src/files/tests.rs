//! Tasks on files in a world. No block asks for any yet: the tests do in the name of one.

use super::*;
use crate::profile::Profile;
use std::collections::BTreeSet;
use vinga_base::NodeId;
use vinga_kernel::files::{FileKind, FileName, FileRequest, FileTask};
use vinga_wire::{Address, BlockNumber};

/// A world in which node 2 may die.
fn world() -> World {
    let of = |seed| Profile::of(seed, &BTreeSet::new());
    let has_victim = |profile: &Profile| profile.groups.list() == [0, 0];
    let seed = (1..).find(|&seed| has_victim(&of(seed))).expect("some seed has");
    World::new(seed, of(seed), None, None)
}

fn ask(world: &mut World, id: ThreadId, token: u64, task: FileTask) {
    let requester = Address::new(NodeId(world.threads[id.0].node), BlockNumber::Info, 0);
    let request = FileRequest { requester, token, file: FileName::new(FileKind::Redo, 0, 1), task };
    let (node, at) = (world.threads[id.0].node, world.now());
    let (done, ticket) = world.disks[usize::from(node) - 1].submit(id, request, at);
    world.agenda.enter(done, Event::FileDone(node, ticket));
}

#[test]
fn the_thread_that_has_asked_is_answered() {
    let mut world = world();
    let id = world.thread_of(2, 0);
    ask(&mut world, id, 7, FileTask::Allocate { bytes: 4096 });
    ask(&mut world, id, 8, FileTask::List);
    let mut tokens = Vec::new();
    while tokens.len() < 2 {
        world.step();
        // Before the thread has its next turn.
        tokens.extend(
            world.threads[id.0].file_answers.drain(..).map(|answer| (answer.token, answer.result.is_ok())),
        );
    }
    assert_eq!(tokens, [(7, true), (8, true)]);
    assert_eq!(world.disks[1].list(), [(FileName::new(FileKind::Redo, 0, 1), 4096)]);
    assert_eq!(world.disks[0].list(), []);
}

/// No block knows these answers yet, which shows that one gets them.
#[test]
#[should_panic(expected = "2/Driver/0 sent signal 170, which can't be handled")]
fn the_answer_comes_to_the_block_as_a_signal() {
    let mut world = world();
    let id = world.thread_of(2, 0);
    ask(&mut world, id, 7, FileTask::List);
    while world.now() < 10_000_000 {
        world.step();
    }
}

#[test]
fn nobody_is_answered_when_the_node_has_died() {
    let mut world = world();
    let id = world.thread_of(2, 0);
    ask(&mut world, id, 7, FileTask::Allocate { bytes: 4096 });
    world.on_stop_order(id, StopNodeOrder { reason: "the disk has failed".to_string(), error: 0 });
    assert!(!world.is_alive(2) && world.violations.is_empty());
    // A dead node says nothing any more.
    world.on_stop_order(id, StopNodeOrder { reason: "again".to_string(), error: 0 });
    let until = world.now() + 1_000_000;
    while world.now() < until {
        world.step();
        assert!(world.threads[id.0].file_answers.is_empty());
    }
    assert!(world.violations.is_empty());
}

#[test]
fn the_last_node_may_not_stop() {
    let mut world = world();
    world.kill_node(2);
    let id = world.thread_of(FIRST_NODE, 0);
    world.on_stop_order(id, StopNodeOrder { reason: "the disk has failed".to_string(), error: 0 });
    assert_eq!(
        world.violations,
        ["data node 1 can't be done without, and stops itself: the disk has failed"]
    );
    assert!(world.is_alive(FIRST_NODE));
}
