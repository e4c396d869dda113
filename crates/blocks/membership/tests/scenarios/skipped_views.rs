//! Views that a thread has skipped.

use crate::common;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::testkit::Harness;
use vinga_membership::{Membership, Phase};
use vinga_wire::membership::{ApiConnectRequest, SessionStage};
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{Address, BlockNumber, SignalNumber, cold};

/// A thread that is behind adopts a view that lacks two members, where others have adopted one that lacked the first
/// before. What the second has sent in that one was parked, and is handled when its sender is lost.
#[test]
fn what_a_lost_member_has_sent_in_a_view_that_was_skipped_is_not_carried_out() {
    let member = |node| Member::started(NodeId(node), Incarnation(1), 0, 1, 1);
    let first = ClusterView::first((1..=3).map(member).collect());
    let membership = |node| {
        let address = Address::new(NodeId(node), BlockNumber::Membership, 0);
        let settings = common::settings(common::DRIVERS.to_vec());
        Harness::new(address, u64::from(node), first.clone(), Membership::new(settings))
    };
    let (mut president, mut other) = (membership(1), membership(3));
    other.lose_node(NodeId(2));
    let driver = Address::new(NodeId(3), BlockNumber::Driver, 0);
    let (node, lost) = (150, Vec::new());
    let greeting =
        ApiConnectRequest { waiting: 1, node, incarnation: 1, connection: 0, ticket: 0, admission: 0, lost };
    other
        .send(driver, SignalNumber::ApiConnectRequest, |writer| cold::write(writer, &greeting))
        .expect("it may");
    let sent = other.take_sent();
    let asked = sent.iter().find(|one| one.signal() == SignalNumber::ApiAdmissionRequest).expect("it asks");
    president.deliver(asked);
    let third = first.without(&[NodeId(2)]).without(&[NodeId(3)]);
    let driver = Address::new(NodeId(1), BlockNumber::Driver, 0);
    president
        .send(driver, SignalNumber::ViewChangedOrder, |writer| cold::write(writer, &third))
        .expect("it may");
    for _ in 0..20 {
        for stage in [SessionStage::Admitted, SessionStage::Closed, SessionStage::Failed] {
            for &who in &common::BLOCKS[..2] {
                common::confirm(&mut president, who, stage, 150, 1);
            }
        }
        president.advance(common::HEARTBEAT);
    }
    let left: Vec<(NodeId, Incarnation, Phase)> = president.block().api_nodes().collect();
    assert!(left.is_empty(), "its data node is lost, and 20 heartbeat periods are over: {left:?}");
}
