//! Greetings of a session whose connections are being closed: those that wait at the registrar, and those that are held
//! back at the data node.

use crate::common;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::testkit::Harness;
use vinga_membership::{Membership, Phase};
use vinga_wire::membership::{ApiConnectConfirm, ApiConnectRefuse, ApiConnectRequest, SessionStage};
use vinga_wire::{ErrorCode, SignalNumber, cold};

fn ask(waiting: u64, connection: u16, ticket: u64) -> ApiConnectRequest {
    ApiConnectRequest {
        waiting,
        node: 150,
        incarnation: 1,
        connection,
        ticket,
        admission: 0,
        lost: Vec::new(),
    }
}

fn confirm_all(harness: &mut Harness<Membership>, stage: SessionStage) {
    for who in common::BLOCKS {
        common::confirm(harness, who, stage, 150, 1);
    }
}

/// Driver 0 has closed everything of the session.
fn report(harness: &mut Harness<Membership>) {
    common::report(harness, common::DRIVERS[0], SignalNumber::ApiDisconnectedReport, 150, 1);
}

/// Session 1 of API node 150 is admitted by a connection that driver 0 serves; returns its ticket.
fn admit(harness: &mut Harness<Membership>) -> u64 {
    common::connect(harness, 0, &ask(1, 0, 0));
    confirm_all(harness, SessionStage::Admitted);
    let confirmed = harness.take_sent().into_iter().find(|s| s.signal() == SignalNumber::ApiConnectConfirm);
    let confirm: ApiConnectConfirm = cold::read(&confirmed.expect("it is admitted").frame()).expect("whole");
    confirm.ticket
}

/// A driver gets a confirm late, of a connection that it has closed and reported with its session, and reports once
/// more, as the simulator's does. It has sent another greeting in between.
#[test]
fn a_session_is_not_taken_for_connected_when_a_report_has_covered_its_greeting() {
    let mut harness = common::harness();
    let ticket = admit(&mut harness);
    // The confirm of this one is late.
    common::connect(&mut harness, 0, &ask(2, 2, ticket));
    report(&mut harness);
    common::connect(&mut harness, 0, &ask(3, 0, ticket));
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

/// The greetings that were answered with this error since the last call.
fn refused(harness: &mut Harness<Membership>, code: ErrorCode) -> Vec<u64> {
    let sent = harness.take_sent();
    let refused = sent.iter().filter(|one| one.signal() == SignalNumber::ApiConnectRefuse);
    let bodies = refused.map(|one| cold::read::<ApiConnectRefuse>(&one.frame()).expect("a whole body"));
    bodies.filter(|body| body.code == code as u16).map(|body| body.waiting).collect()
}

/// One driver has reported, another one is awaited: meanwhile a client, or somebody else, greets again and again.
#[test]
fn no_more_greetings_are_held_back_than_a_session_may_have_connections() {
    let mut harness = common::harness();
    let ticket = admit(&mut harness);
    common::connect(&mut harness, 1, &ask(2, 1, ticket));
    report(&mut harness);
    harness.take_sent();
    for waiting in 10..100 {
        common::connect(&mut harness, 0, &ask(waiting, (waiting % 8) as u16, ticket));
    }
    // All but the last connection 0: each of the others comes before it, or while it waits.
    let expected: Vec<u64> = (10..100).filter(|&waiting| waiting != 96).collect();
    let mut refused_ones = refused(&mut harness, ErrorCode::NodeIdInUse);
    refused_ones.sort_unstable();
    assert_eq!(refused_ones, expected);
    // Without the ticket of the session nobody takes its place.
    common::connect(&mut harness, 0, &ask(200, 0, ticket ^ 1));
    assert_eq!(refused(&mut harness, ErrorCode::UnknownOutcome), [200]);
    common::report(&mut harness, common::DRIVERS[1], SignalNumber::ApiDisconnectedReport, 150, 1);
    for stage in [SessionStage::Closed, SessionStage::Admitted] {
        confirm_all(&mut harness, stage);
    }
    let sent = harness.take_sent();
    let confirmed = sent.iter().filter(|one| one.signal() == SignalNumber::ApiConnectConfirm);
    let confirmed =
        confirmed.map(|one| cold::read::<ApiConnectConfirm>(&one.frame()).expect("whole").waiting);
    assert_eq!(confirmed.collect::<Vec<u64>>(), [96]);
}
