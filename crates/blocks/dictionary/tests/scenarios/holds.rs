//! Changes are held as a data node joins, and go on.

use crate::common::*;
use vinga_base::NodeId;
use vinga_dictionary::Dictionary;
use vinga_kernel::testkit::{Harness, Sent};
use vinga_wire::restart::SchemaHold;
use vinga_wire::schema_round::{RoundTask, SchemaRoundRequest};
use vinga_wire::{Address, BlockNumber, SignalNumber, cold};

const HOLD: SchemaHold = SchemaHold { hold: 1 };

/// The restart block of the same node asks for a hold, or lets changes go on.
fn from_restart(h: &mut Harness<Dictionary>, signal: SignalNumber) {
    let restart = Address::new(NodeId(1), BlockNumber::Restart, 0);
    h.send(restart, signal, |writer| cold::write(writer, &HOLD)).expect("allowed");
}

/// What blocks are asked to do now, and the signals that others are sent.
fn asked(h: &mut Harness<Dictionary>) -> (Vec<(Address, SchemaRoundRequest)>, Vec<SignalNumber>) {
    let is_task = |sent: &Sent| sent.signal() == SignalNumber::SchemaRoundRequest;
    let (tasks, others): (Vec<Sent>, Vec<Sent>) = h.take_sent().into_iter().partition(is_task);
    let read = |sent: &Sent| (sent.receiver(), cold::read(&sent.frame()).expect("a whole body"));
    (tasks.iter().map(read).collect(), others.iter().map(Sent::signal).collect())
}

/// Everybody does what is asked, up to the first round with such a task; who is asked that.
fn carry_out_to(
    h: &mut Harness<Dictionary>,
    is_wanted: fn(&RoundTask) -> bool,
) -> Vec<(Address, SchemaRoundRequest)> {
    loop {
        let (tasks, _) = asked(h);
        if tasks.is_empty() || tasks.iter().any(|(_, body)| is_wanted(&body.task)) {
            return tasks;
        }
        tasks.into_iter().for_each(|(block, body)| confirm(h, block, body.round));
    }
}

fn states_fences(tasks: &[(Address, SchemaRoundRequest)]) -> bool {
    tasks.iter().any(|(_, body)| matches!(body.task, RoundTask::Fences { .. }))
}

/// A data node that was to join is lost while a write fence is made, for the end of which its hold has waited. The
/// coordinators have that fence, and it is listed nowhere yet: if they were sent those that are, it would be lifted,
/// and its owner be answered that it stands.
#[test]
fn a_hold_that_was_not_confirmed_leaves_a_fence_that_is_being_made() {
    let mut h = harness();
    create(&mut h, api(150), 1, "test.t");
    carry_out_to(&mut h, |_| false);
    fence(&mut h, api(150), 2, "test.t");
    let fencing = carry_out_to(&mut h, |task| matches!(task, RoundTask::Fence { .. }));
    assert_eq!(fencing.iter().map(|(block, _)| *block).collect::<Vec<_>>(), COORDINATORS);
    from_restart(&mut h, SignalNumber::SchemaHoldRequest);
    from_restart(&mut h, SignalNumber::SchemaReleaseOrder);
    let (tasks, others) = asked(&mut h);
    assert!(!states_fences(&tasks) && others.is_empty(), "{tasks:?}, {others:?}");
    fencing.into_iter().for_each(|(block, body)| confirm(&mut h, block, body.round));
    assert!(carry_out_to(&mut h, |task| matches!(task, RoundTask::Fences { .. })).is_empty());
    assert_eq!(h.block().fences().collect::<Vec<_>>(), [(1, NodeId(150))]);
}

/// A data node may have joined that knows no write fences: all are stated anew.
#[test]
fn fences_are_stated_anew_after_a_hold_that_was_confirmed() {
    let mut h = harness();
    from_restart(&mut h, SignalNumber::SchemaHoldRequest);
    assert_eq!(asked(&mut h).1, [SignalNumber::SchemaHoldConfirm]);
    from_restart(&mut h, SignalNumber::SchemaReleaseOrder);
    assert!(states_fences(&asked(&mut h).0));
}
