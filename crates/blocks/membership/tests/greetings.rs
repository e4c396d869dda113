//! Greetings of a session whose connections are being closed: those that wait at the registrar, and those that are held
//! back at the data node.

mod common;

use vinga_base::{Incarnation, NodeId};
use vinga_kernel::testkit::Harness;
use vinga_membership::{Membership, Phase};
use vinga_wire::membership::{ApiConnectConfirm, ApiConnectRequest, SessionStage};
use vinga_wire::{SignalNumber, cold};

/// A driver gets a confirm late, of a connection that it has closed and reported with its session, and reports once
/// more, as the simulator's does. It has sent another greeting in between.
#[test]
fn a_session_is_not_taken_for_connected_when_a_report_has_covered_its_greeting() {
    let mut harness = common::harness();
    let ask = |waiting, incarnation, connection, ticket| ApiConnectRequest {
        waiting,
        node: 150,
        incarnation,
        connection,
        ticket,
    };
    let confirm_all = |harness: &mut Harness<Membership>, stage| {
        for who in common::BLOCKS {
            common::confirm(harness, who, stage, 150, 1);
        }
    };
    let report = |harness: &mut Harness<Membership>| {
        common::report(harness, common::DRIVERS[0], SignalNumber::ApiDisconnectedReport, 150, 1);
    };
    common::connect(&mut harness, 0, &ask(1, 1, 0, 0));
    confirm_all(&mut harness, SessionStage::Admitted);
    let confirmed = harness.take_sent().into_iter().find(|s| s.signal() == SignalNumber::ApiConnectConfirm);
    let confirm: ApiConnectConfirm = cold::read(&confirmed.expect("it is admitted").frame()).expect("whole");
    // The confirm of this one is late.
    common::connect(&mut harness, 0, &ask(2, 1, 2, confirm.ticket));
    report(&mut harness);
    common::connect(&mut harness, 0, &ask(3, 1, 0, confirm.ticket));
    report(&mut harness);
    for stage in [SessionStage::Closed, SessionStage::Admitted] {
        confirm_all(&mut harness, stage);
    }
    for _ in 0..20 {
        harness.advance(common::HEARTBEAT);
        for stage in [SessionStage::Closed, SessionStage::Failed] {
            confirm_all(&mut harness, stage);
        }
    }
    let left: Vec<(NodeId, Incarnation, Phase)> = harness.block().api_nodes().collect();
    assert!(left.is_empty(), "it has no connection, and 20 heartbeat periods are over: {left:?}");
}
