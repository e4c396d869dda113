//! A session that comes back, perhaps by another data node than those it was connected to.

use crate::cluster::Cluster;
use crate::common;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::testkit::Harness;
use vinga_membership::{Membership, Phase};
use vinga_wire::handshake::DataNodeStart;
use vinga_wire::membership::{ApiAdmissionRequest, ApiNodeBody, ApiSessionConfirm, SessionStage};
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{Address, BlockNumber, SignalNumber, cold};

/// A session is connected to one data node. Its connection breaks, and it comes back by another data node before the
/// registrar knows that.
#[test]
fn who_comes_back_by_another_data_node_is_admitted_when_everything_is_finished() {
    let mut cluster = Cluster::new(3);
    let client = cluster.come(150, 1, 1);
    cluster.hang_up(1, 0, 150);
    cluster.drivers_catch_up();
    // The report is on its way from node 2 when node 3 asks.
    cluster.greet(client, 2, 0);
    cluster.drivers_catch_up();
    cluster.deliver_all(3, 1);
    cluster.deliver_all(1, 3);
    cluster.drivers_catch_up();
    let is_back = cluster.nodes[2].drivers[0].connections.contains_key(&150);
    let finished = cluster.finished_at(1, (150, 1));
    assert!(
        !is_back || finished == [1, 1],
        "confirmed by node 3 when the blocks of node 2 have ended it {finished:?} times"
    );
    assert!(cluster.has_met("session comes back before its loss was noticed"));
    cluster.finish_all();
    assert!(
        cluster.nodes[2].drivers[0].connections.contains_key(&150),
        "it is admitted then, by that greeting"
    );
}

/// A session has come back to two data nodes, and its API node has read neither confirm when it greets for a further
/// connection. What it names as lost are connections of the admission before.
#[test]
fn who_has_not_read_that_it_is_back_is_not_closed_once_more() {
    let mut cluster = Cluster::new(3);
    let client = cluster.come(150, 1, 1);
    cluster.greet(client, 2, 0);
    cluster.finish_all();
    cluster.hang_up(1, 0, 150);
    cluster.hang_up(2, 0, 150);
    cluster.finish_all();
    for at in [1, 2] {
        cluster.greet(client, at, 0);
    }
    let finish_all_but_clients = |cluster: &mut Cluster| {
        let mut has_worked = true;
        while has_worked {
            cluster.quiet_but_wires(&[0, 1, 2]);
            has_worked = (0..9).any(|wire| cluster.wire_delivers(wire / 3 + 1, wire % 3 + 1));
        }
    };
    finish_all_but_clients(&mut cluster);
    cluster.greet(client, 1, 1);
    finish_all_but_clients(&mut cluster);
    assert!(!cluster.has_met("session comes back before its loss was noticed"));
    for (at, driver) in [(1, 0), (1, 1), (2, 0)] {
        assert!(cluster.nodes[at].drivers[driver].connections.contains_key(&150));
    }
}

/// The registrar, in a view of data node 1, its own, and of others of these ids and starts.
fn registrar(others: &[(u8, u32)], change: fn(ClusterView) -> ClusterView) -> Harness<Membership> {
    let member = |&(node, start): &(u8, u32)| Member::started(NodeId(node), Incarnation(start), 0, 1, 1);
    let view = change(ClusterView::first([(1, 1)].iter().chain(others).map(member).collect()));
    let settings = common::settings(common::DRIVERS.to_vec());
    Harness::new(common::MEMBERSHIP, 1, view, Membership::new(settings))
}

fn host(node: u8) -> Address {
    Address::new(NodeId(node), BlockNumber::Membership, 0)
}

/// A data node asks about a connection of API node 150, which has lost these.
fn ask(registrar: &mut Harness<Membership>, node: u8, is_new: bool, lost: &[(u8, u32)]) {
    let start = |&(node, incarnation): &(u8, u32)| DataNodeStart { node, incarnation };
    let request = ApiAdmissionRequest {
        waiting: 1,
        node: 150,
        incarnation: 1,
        connection: 0,
        is_new,
        ticket: 99,
        admission: u32::from(!is_new),
        lost: lost.iter().map(start).collect(),
    };
    registrar
        .send(host(node), SignalNumber::ApiAdmissionRequest, |writer| cold::write(writer, &request))
        .expect("a membership may send this");
}

/// The blocks of all data nodes know this stage of API node 150.
fn confirm(registrar: &mut Harness<Membership>, stage: SessionStage) {
    for node in 1..=3 {
        let body = ApiSessionConfirm { api: 150, incarnation: 1, stage };
        registrar
            .send(host(node), SignalNumber::ApiSessionConfirm, |writer| cold::write(writer, &body))
            .expect("a membership may send this");
    }
}

fn phase(registrar: &Harness<Membership>) -> Option<Phase> {
    registrar.block().api_nodes().next().map(|(_, _, phase)| phase)
}

/// The data nodes that were sent an admission since this was asked last.
fn admitted_at(registrar: &mut Harness<Membership>) -> Vec<u8> {
    let sent = registrar.take_sent().into_iter();
    let confirms = sent.filter(|sent| sent.signal() == SignalNumber::ApiAdmissionConfirm);
    confirms.map(|sent| sent.receiver().node().0).collect()
}

/// Two data nodes have started again, and a session that was connected to both greets both. So what it names to the one
/// as lost is a connection to the start before of the other, which has admitted it just now.
#[test]
fn who_is_admitted_by_two_data_nodes_that_have_started_again_is_not_closed() {
    for has_lost_present_start in [false, true] {
        let mut registrar = registrar(&[(2, 2), (3, 2)], |view| view);
        ask(&mut registrar, 1, true, &[]);
        confirm(&mut registrar, SessionStage::Admitted);
        let start = if has_lost_present_start { 2 } else { 1 };
        ask(&mut registrar, 2, false, &[(2, 1), (3, 1)]);
        ask(&mut registrar, 3, false, &[(2, start), (3, 1)]);
        let expected = if has_lost_present_start { Phase::Disconnecting } else { Phase::Connected };
        assert_eq!(phase(&registrar), Some(expected));
    }
}

/// A data node that is to stop, and is greeted, has not ended: the session has lost its connections there.
#[test]
fn who_comes_back_to_a_data_node_that_is_to_stop_is_closed_first() {
    let mut registrar = registrar(&[(2, 1), (3, 1)], |view| view.with_leaving(NodeId(2)));
    ask(&mut registrar, 2, true, &[]);
    confirm(&mut registrar, SessionStage::Admitted);
    ask(&mut registrar, 2, false, &[(2, 1)]);
    assert_eq!(phase(&registrar), Some(Phase::Disconnecting));
}

/// A data node has ended in order, and a session that was connected to it greets another one before the registrar has
/// the view without it. The other connections of the session stay as they are.
#[test]
fn who_has_lost_a_data_node_that_has_left_is_not_closed() {
    for is_cut_off_only in [false, true] {
        let mut registrar = registrar(&[(2, 1), (3, 1)], |view| view.with_leaving(NodeId(2)));
        ask(&mut registrar, 1, true, &[]);
        confirm(&mut registrar, SessionStage::Admitted);
        ask(&mut registrar, 2, false, &[]);
        assert_eq!(admitted_at(&mut registrar), [2]);
        ask(&mut registrar, 3, false, &[(2, 1)]);
        assert_eq!((phase(&registrar), admitted_at(&mut registrar)), (Some(Phase::Connected), vec![]));
        if is_cut_off_only {
            let body = ApiNodeBody::new(NodeId(150), Incarnation(1));
            registrar
                .send(host(2), SignalNumber::ApiConnectionsClosedReport, |writer| {
                    writer.put(&body);
                })
                .expect("a membership may send this");
            assert_eq!(phase(&registrar), Some(Phase::Closing), "it is there still");
            confirm(&mut registrar, SessionStage::Closed);
            confirm(&mut registrar, SessionStage::Admitted);
            assert_eq!((phase(&registrar), admitted_at(&mut registrar)), (Some(Phase::Connected), vec![3]));
        } else {
            registrar.lose_node(NodeId(2));
            assert_eq!((phase(&registrar), admitted_at(&mut registrar)), (Some(Phase::Connected), vec![3]));
        }
    }
}
