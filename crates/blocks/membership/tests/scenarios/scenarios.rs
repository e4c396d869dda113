//! Golden scenarios: what membership says to whom when API nodes come, go and fail.

use crate::common::*;
use std::path::PathBuf;
use vinga_base::NodeId;
use vinga_kernel::Span;
use vinga_kernel::testkit::{Harness, check_golden};
use vinga_membership::{Membership, Phase};
use vinga_wire::membership::{
    ApiAdmissionRequest, ApiConnectConfirm, ApiConnectRefuse, ApiConnectRequest, ApiSessionConfirm,
    ApiSessionRequest, HeartbeatBody, SessionStage,
};
use vinga_wire::view::ClusterView;
use vinga_wire::{Address, BlockNumber, ErrorCode, SignalNumber, U32, U64, cold};

fn check(name: &str, harness: &Harness<Membership>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    check_golden(&path, harness.scenario());
}

fn request(waiting: u64, node: u8, incarnation: u32, connection: u16, ticket: u64) -> ApiConnectRequest {
    ApiConnectRequest { waiting, node, incarnation, connection, ticket, admission: 0, lost: Vec::new() }
}

/// The confirm that was sent last.
fn confirmed(harness: &mut Harness<Membership>) -> ApiConnectConfirm {
    let sent = harness.take_sent();
    let last = sent.iter().rfind(|sent| sent.signal() == SignalNumber::ApiConnectConfirm);
    cold::read(&last.expect("somebody was admitted").frame()).expect("a whole body")
}

/// The error of the refusal that was sent last.
fn refused(harness: &mut Harness<Membership>) -> ErrorCode {
    let sent = harness.take_sent();
    let last = sent.iter().rfind(|sent| sent.signal() == SignalNumber::ApiConnectRefuse);
    let body: ApiConnectRefuse =
        cold::read(&last.expect("somebody was refused").frame()).expect("a whole body");
    ErrorCode::from_number(body.code).expect("a known error")
}

fn heartbeat(harness: &mut Harness<Membership>, api: u8) {
    heartbeat_in_view(harness, api, 1);
}

/// An API node that has this view says that it is alive.
fn heartbeat_in_view(harness: &mut Harness<Membership>, api: u8, view: u32) {
    let sender = Address::new(NodeId(api), BlockNumber::Api, 0);
    harness
        .send(sender, SignalNumber::HeartbeatRequest, |writer| {
            writer.put(&HeartbeatBody { epoch: U64::new(7), view: U32::new(view) });
        })
        .expect("an API node may send this");
}

fn all_confirm(harness: &mut Harness<Membership>, stage: SessionStage, api: u8, incarnation: u32) {
    for block in BLOCKS {
        confirm(harness, block, stage, api, incarnation);
    }
}

/// All blocks have been notified that a session is admitted.
fn all_admit(harness: &mut Harness<Membership>, api: u8, incarnation: u32) {
    all_confirm(harness, SessionStage::Admitted, api, incarnation);
}

#[test]
fn admission_and_failure() {
    let mut h = harness();
    h.heading("an API node asks for any id: it is admitted when all blocks know that it is");
    connect(&mut h, 0, &request(1, 0, 7, 0, 0));
    let asks_to_notify =
        |signal| matches!(signal, SignalNumber::ApiConnectedOrder | SignalNumber::ApiSessionRequest);
    assert!(h.take_sent().iter().all(|sent| asks_to_notify(sent.signal())));
    assert_eq!(h.block().api_nodes().next().map(|(_, _, phase)| phase), Some(Phase::Admitting));
    h.heading("meanwhile its id is taken");
    connect(&mut h, 1, &request(20, 145, 8, 0, 0));
    assert_eq!(refused(&mut h), ErrorCode::NodeIdInUse);
    all_admit(&mut h, 145, 7);
    h.heading("it opens a second connection with its ticket");
    let ticket = confirmed(&mut h).ticket;
    connect(&mut h, 1, &request(2, 145, 7, 1, ticket));
    assert_eq!(confirmed(&mut h).ticket, ticket);
    h.heading("who names another ticket, a taken id or an id that is not a client's is refused");
    connect(&mut h, 1, &request(3, 145, 7, 1, ticket ^ 1));
    assert_eq!(refused(&mut h), ErrorCode::UnknownOutcome);
    connect(&mut h, 1, &request(4, 145, 9, 0, 0));
    assert_eq!(refused(&mut h), ErrorCode::NodeIdInUse);
    connect(&mut h, 1, &request(5, 144, 9, 0, 0));
    assert_eq!(refused(&mut h), ErrorCode::NoFreeNodeId);
    connect(&mut h, 1, &request(6, 0, 9, 8, 0));
    assert_eq!(refused(&mut h), ErrorCode::BadHandshake);
    h.heading("it gets epoch and view");
    h.send(MEMBERSHIP, SignalNumber::EpochOrder, |writer| {
        writer.put(&vinga_wire::epoch::EpochOrder { epoch: U64::new(99) });
    })
    .expect("a block may send this");
    heartbeat(&mut h, 145);
    h.heading("a connection breaks: all are closed, then the blocks are notified, once");
    report(&mut h, DRIVERS[0], SignalNumber::ApiDisconnectedReport, 145, 7);
    report(&mut h, DRIVERS[0], SignalNumber::ApiDisconnectedReport, 145, 7);
    report(&mut h, DRIVERS[1], SignalNumber::ApiDisconnectedReport, 145, 7);
    report(&mut h, DRIVERS[1], SignalNumber::ApiDisconnectedReport, 145, 7);
    all_confirm(&mut h, SessionStage::Closed, 145, 7);
    h.heading("it does not come back: it is declared failed");
    h.advance(GRACE);
    confirm(&mut h, BLOCKS[0], SessionStage::Failed, 145, 7);
    confirm(&mut h, BLOCKS[1], SessionStage::Failed, 145, 7);
    h.heading("its id is given to somebody else only when everybody has forgotten it");
    connect(&mut h, 0, &request(7, 0, 3, 0, 0));
    all_admit(&mut h, 146, 3);
    assert_eq!(confirmed(&mut h).api, 146);
    confirm(&mut h, BLOCKS[2], SessionStage::Failed, 145, 7);
    h.heading("the next session with an id has a later incarnation, whatever it asks for");
    connect(&mut h, 0, &request(8, 0, 3, 0, 0));
    all_admit(&mut h, 145, 8);
    let confirm = confirmed(&mut h);
    assert_eq!((confirm.api, confirm.incarnation), (145, 8));
    h.heading("when MaxNoOfApiConnections are there, nobody more is admitted");
    connect(&mut h, 0, &request(9, 0, 3, 0, 0));
    connect(&mut h, 0, &request(10, 200, 3, 0, 0));
    all_admit(&mut h, 200, 3);
    assert_eq!(confirmed(&mut h).api, 200);
    connect(&mut h, 0, &request(11, 0, 3, 0, 0));
    assert_eq!(refused(&mut h), ErrorCode::NoFreeNodeId);
    connect(&mut h, 0, &request(12, 201, 3, 0, 0));
    assert_eq!(refused(&mut h), ErrorCode::NoFreeNodeId);
    check("admission_and_failure.txt", &h);
}

#[test]
fn reconnect_within_grace() {
    let mut h = harness();
    connect(&mut h, 0, &request(1, 0, 7, 0, 0));
    all_admit(&mut h, 145, 7);
    let ticket = confirmed(&mut h).ticket;
    h.heading("it comes back before everything that it had begun is finished: it waits");
    report(&mut h, DRIVERS[0], SignalNumber::ApiDisconnectedReport, 145, 7);
    connect(&mut h, 1, &request(3, 145, 7, 1, ticket));
    h.heading("a later connection of the same index takes the place of one that waits");
    connect(&mut h, 1, &request(4, 145, 7, 1, ticket));
    assert_eq!(refused(&mut h), ErrorCode::NodeIdInUse);
    h.heading("it begins again with connection 0: others to this data node were given up");
    connect(&mut h, 0, &request(2, 145, 7, 0, ticket));
    assert_eq!(refused(&mut h), ErrorCode::NodeIdInUse);
    connect(&mut h, 1, &request(23, 145, 7, 1, ticket));
    assert_eq!(refused(&mut h), ErrorCode::NodeIdInUse);
    h.heading("one of the same index to another data node does not");
    let (waiting, node, incarnation, connection, is_new, lost) = (21, 145, 7, 0, false, Vec::new());
    let asked =
        ApiAdmissionRequest { waiting, node, incarnation, connection, is_new, ticket, admission: 0, lost };
    h.send(OTHER, SignalNumber::ApiAdmissionRequest, |w| cold::write(w, &asked))
        .expect("a membership may send this");
    assert!(h.take_sent().is_empty());
    all_confirm(&mut h, SessionStage::Closed, 145, 7);
    h.heading(
        "the blocks are notified that it is admitted again; a further connection waits with the others",
    );
    connect(&mut h, 0, &request(22, 145, 7, 0, ticket));
    assert_eq!(refused(&mut h), ErrorCode::NodeIdInUse);
    all_admit(&mut h, 145, 7);
    assert!(h.has_met("further connection of a session that is being admitted"));
    let admitted: Vec<_> = h.take_sent().iter().map(|sent| (sent.signal(), sent.receiver())).collect();
    let both = [(SignalNumber::ApiConnectConfirm, DRIVERS[0]), (SignalNumber::ApiAdmissionConfirm, OTHER)];
    assert_eq!(admitted, both);
    h.heading("it comes back within the grace time");
    report(&mut h, DRIVERS[0], SignalNumber::ApiDisconnectedReport, 145, 7);
    report(&mut h, OTHER, SignalNumber::ApiConnectionsClosedReport, 145, 7);
    all_confirm(&mut h, SessionStage::Closed, 145, 7);
    h.advance(Span(GRACE.0 - 1));
    connect(&mut h, 0, &request(5, 145, 7, 0, ticket));
    all_admit(&mut h, 145, 7);
    assert_eq!(confirmed(&mut h).ticket, ticket);
    h.heading("the timer of that grace time means nothing any more");
    h.advance(Span(2));
    assert_eq!(h.block().api_nodes().next().map(|(_, _, phase)| phase), Some(Phase::Connected));
    h.heading("it comes back too late");
    report(&mut h, DRIVERS[0], SignalNumber::ApiDisconnectedReport, 145, 7);
    all_confirm(&mut h, SessionStage::Closed, 145, 7);
    h.advance(GRACE);
    connect(&mut h, 0, &request(6, 145, 7, 0, ticket));
    assert_eq!(refused(&mut h), ErrorCode::UnknownOutcome);
    check("reconnect_within_grace.txt", &h);
}

#[test]
fn disconnect() {
    let mut h = harness();
    connect(&mut h, 0, &request(1, 0, 7, 0, 0));
    all_admit(&mut h, 145, 7);
    let ticket = confirmed(&mut h).ticket;
    connect(&mut h, 1, &request(2, 145, 7, 1, ticket));
    h.heading("it leaves: everything is closed, although no connection has broken yet");
    let own = Address::new(NodeId(145), BlockNumber::Api, 0);
    report(&mut h, own, SignalNumber::DisconnectOrder, 145, 7);
    h.heading("its other connection brings its disconnect notice, too; the session can't come back");
    report(&mut h, DRIVERS[0], SignalNumber::ApiDisconnectedReport, 145, 7);
    report(&mut h, own, SignalNumber::DisconnectOrder, 145, 7);
    connect(&mut h, 0, &request(3, 145, 7, 0, ticket));
    assert!(h.has_met("greeting is held back until its session is closed"));
    report(&mut h, DRIVERS[1], SignalNumber::ApiDisconnectedReport, 145, 7);
    assert_eq!(refused(&mut h), ErrorCode::UnknownOutcome);
    h.heading("no grace time: it is forgotten at once, then the id is free");
    all_confirm(&mut h, SessionStage::Closed, 145, 7);
    all_confirm(&mut h, SessionStage::Failed, 145, 7);
    assert_eq!(h.block().api_nodes().count(), 0);
    h.heading("a disconnect notice counts also when a connection was closed before it came");
    connect(&mut h, 0, &request(4, 0, 8, 0, 0));
    all_admit(&mut h, 145, 8);
    let ticket = confirmed(&mut h).ticket;
    connect(&mut h, 1, &request(5, 145, 8, 1, ticket));
    report(&mut h, OTHER, SignalNumber::ApiConnectionsClosedReport, 145, 8);
    report(&mut h, own, SignalNumber::DisconnectOrder, 145, 8);
    assert!(h.has_met("disconnect notice of an API node that is being closed"));
    report(&mut h, DRIVERS[0], SignalNumber::ApiDisconnectedReport, 145, 8);
    report(&mut h, DRIVERS[1], SignalNumber::ApiDisconnectedReport, 145, 8);
    all_confirm(&mut h, SessionStage::Closed, 145, 8);
    all_confirm(&mut h, SessionStage::Failed, 145, 8);
    assert_eq!(h.block().api_nodes().count(), 0);
    h.heading("that of an earlier session does not count");
    connect(&mut h, 0, &request(6, 145, 9, 0, 0));
    all_admit(&mut h, 145, 9);
    report(&mut h, own, SignalNumber::DisconnectOrder, 145, 8);
    assert_eq!(h.block().api_nodes().next().map(|(_, _, phase)| phase), Some(Phase::Connected));
    check("disconnect.txt", &h);
}

#[test]
fn newer_session() {
    let mut h = harness();
    connect(&mut h, 0, &request(1, 150, 7, 0, 0));
    all_admit(&mut h, 150, 7);
    let ticket = confirmed(&mut h).ticket;
    report(&mut h, DRIVERS[0], SignalNumber::ApiDisconnectedReport, 150, 7);
    h.heading("the node with this id was started anew: its older session, which waits, will not be back");
    connect(&mut h, 0, &request(2, 150, 7, 0, ticket));
    connect(&mut h, 0, &request(3, 150, 8, 0, 0));
    assert!(h.has_met("newer session waits for the older to close"));
    assert_eq!(refused(&mut h), ErrorCode::UnknownOutcome);
    h.heading("an older incarnation is refused, also while a newer one waits");
    connect(&mut h, 0, &request(4, 150, 6, 0, 0));
    assert_eq!(refused(&mut h), ErrorCode::NodeIdInUse);
    h.heading("no grace time: it is forgotten at once");
    all_confirm(&mut h, SessionStage::Closed, 150, 7);
    h.heading("yet newer ones take the place of who waits, older ones don't");
    connect(&mut h, 1, &request(5, 150, 9, 0, 0));
    assert_eq!(refused(&mut h), ErrorCode::NodeIdInUse);
    connect(&mut h, 1, &request(6, 150, 8, 0, 0));
    assert_eq!(refused(&mut h), ErrorCode::NodeIdInUse);
    all_confirm(&mut h, SessionStage::Failed, 150, 7);
    all_admit(&mut h, 150, 8);
    assert_eq!(confirmed(&mut h).waiting, 5);
    h.heading("in the grace time the newer session ends it; newer is who asks for a greater incarnation");
    report(&mut h, DRIVERS[1], SignalNumber::ApiDisconnectedReport, 150, 8);
    all_confirm(&mut h, SessionStage::Closed, 150, 8);
    connect(&mut h, 1, &request(7, 150, 9, 0, 0));
    assert_eq!(refused(&mut h), ErrorCode::NodeIdInUse);
    connect(&mut h, 1, &request(8, 150, 10, 0, 0));
    all_confirm(&mut h, SessionStage::Failed, 150, 8);
    all_admit(&mut h, 150, 9);
    assert_eq!(confirmed(&mut h).waiting, 8);
    check("newer_session.txt", &h);
}

#[test]
fn silence() {
    let mut h = harness();
    connect(&mut h, 0, &request(1, 0, 7, 0, 0));
    connect(&mut h, 0, &request(2, 0, 7, 0, 0));
    all_admit(&mut h, 145, 7);
    all_admit(&mut h, 146, 7);
    let ticket = confirmed(&mut h).ticket;
    connect(&mut h, 1, &request(3, 146, 7, 1, ticket));
    h.heading("the node itself does not run for a while: nobody is suspected for that");
    h.advance(Span(HEARTBEAT.0 * 3));
    heartbeat(&mut h, 145);
    h.stall(Span(HEARTBEAT.0 * 20));
    heartbeat(&mut h, 145);
    heartbeat(&mut h, 146);
    h.heading("146 falls silent: after four periods it is closed");
    for _ in 0..4 {
        h.advance(HEARTBEAT);
        heartbeat(&mut h, 145);
    }
    report(&mut h, DRIVERS[0], SignalNumber::ApiDisconnectedReport, 146, 7);
    h.heading("a driver does not report: the blocks are notified all the same");
    h.advance(HEARTBEAT);
    assert!(h.has_met("driver did not report a closed connection"));
    h.heading(
        "but the session may not come back before it has: what it passes on until then is not of the next",
    );
    all_confirm(&mut h, SessionStage::Closed, 146, 7);
    h.take_sent();
    connect(&mut h, 0, &request(4, 146, 7, 0, ticket));
    assert!(h.take_sent().is_empty());
    report(&mut h, DRIVERS[1], SignalNumber::ApiDisconnectedReport, 146, 7);
    assert!(h.has_met("late driver was the last that was awaited"));
    all_admit(&mut h, 146, 7);
    assert_eq!(confirmed(&mut h).waiting, 4);
    h.heading("145 breaks a rule on a connection that another thread reads");
    let order = vinga_wire::membership::CloseConnectionOrder {
        api: 145,
        unused: 0,
        reason: vinga_wire::U16::new(ErrorCode::AbsurdEpoch as u16),
        signal: vinga_wire::U16::new(SignalNumber::TransactionRequest as u16),
    };
    h.send(DRIVERS[1], SignalNumber::CloseConnectionOrder, |writer| {
        writer.put(&order);
    })
    .expect("a driver may send this");
    check("silence.txt", &h);
}

#[test]
fn data_node_failure() {
    let mut h = harness();
    connect(&mut h, 0, &request(1, 0, 7, 0, 0));
    connect(&mut h, 0, &request(2, 0, 7, 0, 0));
    for api in [145, 146] {
        all_admit(&mut h, api, 7);
        report(&mut h, DRIVERS[0], SignalNumber::ApiDisconnectedReport, api, 7);
        confirm(&mut h, BLOCKS[0], SessionStage::Closed, api, 7);
        confirm(&mut h, BLOCKS[1], SessionStage::Closed, api, 7);
    }
    confirm(&mut h, BLOCKS[2], SessionStage::Closed, 146, 7);
    h.advance(GRACE);
    confirm(&mut h, BLOCKS[0], SessionStage::Failed, 146, 7);
    confirm(&mut h, BLOCKS[1], SessionStage::Failed, 146, 7);
    h.heading("a third one is being admitted");
    connect(&mut h, 0, &request(4, 147, 7, 0, 0));
    confirm(&mut h, BLOCKS[0], SessionStage::Admitted, 147, 7);
    confirm(&mut h, BLOCKS[1], SessionStage::Admitted, 147, 7);
    h.heading("node 2, which owes a confirm about each of them, fails");
    h.lose_node(NodeId(2));
    let phases: Vec<_> = h.block().api_nodes().map(|(api, _, phase)| (api.0, phase)).collect();
    assert_eq!(phases, [(145, Phase::Closed), (147, Phase::Connected)]);
    h.heading("it is sent nothing more, and is not in the view that a client gets");
    connect(&mut h, 0, &request(3, 146, 8, 0, 0));
    confirm(&mut h, BLOCKS[0], SessionStage::Admitted, 146, 8);
    confirm(&mut h, BLOCKS[1], SessionStage::Admitted, 146, 8);
    h.advance(GRACE);
    check("data_node_failure.txt", &h);
}

/// The view may have changed when an API node's connection was on the way to its thread: it has missed it then, and
/// says so. Those that have it, or a newer one of another data node, are not sent it again.
#[test]
fn an_api_node_that_has_missed_a_view_is_sent_it() {
    let mut h = harness();
    connect(&mut h, 0, &request(1, 0, 7, 0, 0));
    all_admit(&mut h, 145, 7);
    h.lose_node(NodeId(2));
    h.take_sent();
    for (view, is_sent) in [(2, false), (1, true), (2, false), (3, false)] {
        heartbeat_in_view(&mut h, 145, view);
        let sent = h.take_sent();
        let views = sent.iter().filter(|sent| sent.signal() == SignalNumber::ViewChangedOrder);
        let read = |sent: &vinga_kernel::testkit::Sent| -> ClusterView {
            cold::read(&sent.frame()).expect("a whole body")
        };
        let numbers: Vec<_> = views.map(|sent| (sent.receiver().node().0, read(sent).number().0)).collect();
        let expected: &[(u8, u32)] = if is_sent { &[(145, 2)] } else { &[] };
        assert_eq!(numbers, expected, "in view {view}");
        assert!(sent.iter().any(|sent| sent.signal() == SignalNumber::HeartbeatConfirm));
    }
}

/// What an API node may get wrong in a signal to membership.
#[test]
fn bad_signals_close_the_api_node() {
    let mut h = harness();
    connect(&mut h, 0, &request(1, 0, 7, 0, 0));
    all_admit(&mut h, 145, 7);
    h.take_sent();
    let sender = Address::new(NodeId(145), BlockNumber::Api, 0);
    h.send(sender, SignalNumber::HeartbeatRequest, |_| ()).expect("the executor sees no body");
    let orders: Vec<_> = h.take_sent().iter().map(|s| (s.signal(), s.receiver())).collect();
    assert_eq!(orders, DRIVERS.map(|driver| (SignalNumber::CloseConnectionOrder, driver)));
    h.send(sender, SignalNumber::KeyReadRequest, |_| ()).expect("the executor doesn't know who handles what");
    let orders: Vec<_> = h.take_sent().iter().map(|s| (s.signal(), s.receiver())).collect();
    assert_eq!(orders, [(SignalNumber::CloseConnectionOrder, DRIVERS[0])]);
}

/// What node 1 does as the host, when another node's membership is the registrar.
#[test]
fn blocks_are_notified_for_another_registrar() {
    let mut h = harness();
    let stage = |h: &mut Harness<Membership>, stage| {
        let (requested, admission) = (7, 1);
        let request = ApiSessionRequest { api: 145, incarnation: 7, requested, ticket: 3, admission, stage };
        h.send(OTHER, SignalNumber::ApiSessionRequest, |writer| cold::write(writer, &request))
            .expect("a membership may send this");
    };
    let confirms = |h: &mut Harness<Membership>| {
        let sent = h.take_sent();
        let confirms = sent.iter().filter(|sent| sent.receiver() == OTHER);
        let read = |sent: &vinga_kernel::testkit::Sent| -> ApiSessionConfirm {
            cold::read(&sent.frame()).expect("a whole body")
        };
        confirms.map(|sent| read(sent).stage).collect::<Vec<_>>()
    };
    h.heading("the blocks of this node are notified that an API node is admitted");
    stage(&mut h, SessionStage::Admitted);
    confirm(&mut h, BLOCKS[0], SessionStage::Admitted, 145, 7);
    assert_eq!(confirms(&mut h), []);
    h.heading("the registrar gets one confirm, when all blocks have confirmed");
    confirm(&mut h, BLOCKS[1], SessionStage::Admitted, 145, 7);
    assert_eq!(confirms(&mut h), [SessionStage::Admitted]);
    assert_eq!(h.block().api_nodes().next().map(|(_, _, phase)| phase), Some(Phase::Connected));
    h.heading("the same when its connections are closed; a confirm of something else counts for nothing");
    stage(&mut h, SessionStage::Closed);
    confirm(&mut h, BLOCKS[0], SessionStage::Admitted, 145, 7);
    confirm(&mut h, BLOCKS[0], SessionStage::Closed, 145, 8);
    confirm(&mut h, BLOCKS[1], SessionStage::Closed, 145, 7);
    assert_eq!(confirms(&mut h), []);
    confirm(&mut h, BLOCKS[0], SessionStage::Closed, 145, 7);
    assert_eq!(confirms(&mut h), [SessionStage::Closed]);
    h.heading("it has failed; the registrar is lost meanwhile: nobody waits any more");
    stage(&mut h, SessionStage::Failed);
    confirm(&mut h, BLOCKS[0], SessionStage::Failed, 145, 7);
    h.take_sent();
    h.lose_node(NodeId(2));
    confirm(&mut h, BLOCKS[1], SessionStage::Failed, 145, 7);
    assert!(h.take_sent().is_empty());
    assert_eq!(h.block().api_nodes().count(), 0);
    check("another_registrar.txt", &h);
}
