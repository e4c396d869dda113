//! A membership on node 1 with two drivers that read sockets, two blocks that are notified, and the membership of node
//! 2, which notifies the blocks there.

use vinga_base::{Incarnation, NodeId};
use vinga_kernel::Span;
use vinga_kernel::testkit::Harness;
use vinga_membership::{Membership, Settings};
use vinga_wire::membership::{ApiConnectRequest, ApiNodeBody, ApiSessionConfirm, SessionStage};
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{Address, BlockNumber, SignalNumber, cold};

pub const NODE: NodeId = NodeId(1);
pub const MEMBERSHIP: Address = Address::new(NODE, BlockNumber::Membership, 0);
pub const DRIVERS: [Address; 2] =
    [Address::new(NODE, BlockNumber::Driver, 0), Address::new(NODE, BlockNumber::Driver, 1)];
/// Also on behalf of the blocks of its node.
pub const OTHER: Address = Address::new(NodeId(2), BlockNumber::Membership, 0);
/// Those that confirm what becomes of a session.
pub const BLOCKS: [Address; 3] =
    [Address::new(NODE, BlockNumber::Coordinator, 0), Address::new(NODE, BlockNumber::DataManager, 0), OTHER];
pub const HEARTBEAT: Span = Span::from_millis(1500);
pub const GRACE: Span = Span::from_millis(3000);
pub const API_NODES_MAX: u8 = 4;

pub fn harness() -> Harness<Membership> {
    let member = |node, coordinators| Member::started(NodeId(node), Incarnation(1), 0, 1, coordinators);
    let view = ClusterView::first(vec![member(1, 1), member(2, 0)]);
    Harness::new(MEMBERSHIP, 1, view, Membership::new(settings(DRIVERS.to_vec())))
}

/// The settings of a data node with these drivers.
pub fn settings(drivers: Vec<Address>) -> Settings {
    Settings {
        api_first: NodeId(145),
        api_nodes_max: API_NODES_MAX,
        heartbeat_interval: HEARTBEAT,
        reconnect_grace: GRACE,
        drivers,
        own_blocks: Vec::new(),
    }
}

pub fn connect(harness: &mut Harness<Membership>, driver: usize, request: &ApiConnectRequest) {
    harness
        .send(DRIVERS[driver], SignalNumber::ApiConnectRequest, |writer| cold::write(writer, request))
        .expect("a driver may send this");
}

/// One of [`BLOCKS`] confirms that it knows a session's stage.
pub fn confirm(
    harness: &mut Harness<Membership>,
    who: Address,
    stage: SessionStage,
    api: u8,
    incarnation: u32,
) {
    let signal = match stage {
        SessionStage::Admitted => SignalNumber::ApiConnectedConfirm,
        SessionStage::Closed => SignalNumber::ApiConnectionClosedConfirm,
        SessionStage::Failed => SignalNumber::ApiFailedConfirm,
    };
    if who == OTHER {
        let body = ApiSessionConfirm { api, incarnation, stage };
        harness
            .send(who, SignalNumber::ApiSessionConfirm, |writer| cold::write(writer, &body))
            .expect("a membership may send this");
    } else {
        report(harness, who, signal, api, incarnation);
    }
}

pub fn report(
    harness: &mut Harness<Membership>,
    sender: Address,
    signal: SignalNumber,
    api: u8,
    incarnation: u32,
) {
    let body = ApiNodeBody::new(NodeId(api), Incarnation(incarnation));
    harness
        .send(sender, signal, |writer| {
            writer.put(&body);
        })
        .expect("a driver or block may send this");
}
