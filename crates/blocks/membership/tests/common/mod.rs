//! A membership on node 1 with two drivers that read sockets and three blocks that are told, one of them on node 2.

use vinga_base::{Incarnation, NodeId};
use vinga_kernel::Span;
use vinga_kernel::testkit::Harness;
use vinga_membership::{Membership, Settings};
use vinga_wire::handshake::{NodeTopology, Topology};
use vinga_wire::membership::{ApiConnectRequest, ApiNodeBody, NodeFailedOrder};
use vinga_wire::{Address, BlockNumber, SignalNumber, U32, cold};

pub const NODE: NodeId = NodeId(1);
pub const MEMBERSHIP: Address = Address::new(NODE, BlockNumber::Membership, 0);
pub const DRIVERS: [Address; 2] =
    [Address::new(NODE, BlockNumber::Driver, 0), Address::new(NODE, BlockNumber::Driver, 1)];
pub const BLOCKS: [Address; 3] = [
    Address::new(NODE, BlockNumber::Coordinator, 0),
    Address::new(NODE, BlockNumber::DataManager, 0),
    Address::new(NodeId(2), BlockNumber::DataManager, 0),
];
pub const HEARTBEAT: Span = Span::from_millis(1500);
pub const GRACE: Span = Span::from_millis(3000);
pub const API_NODES_MAX: u8 = 4;

pub fn harness() -> Harness<Membership> {
    let node = |node| NodeTopology { node, connections: vec![], data_managers: 1, coordinators: 1 };
    let settings = Settings {
        api_first: NodeId(145),
        api_nodes_max: API_NODES_MAX,
        heartbeat_interval: HEARTBEAT,
        reconnect_grace: GRACE,
        drivers: DRIVERS.to_vec(),
        blocks: BLOCKS.to_vec(),
        topology: Topology { version: 1, view: 1, nodes: vec![node(1), node(2)], partitions: vec![] },
    };
    Harness::new(MEMBERSHIP, 1, Membership::new(settings), Membership::start, Membership::handle)
}

pub fn connect(harness: &mut Harness<Membership>, driver: usize, request: &ApiConnectRequest) {
    harness
        .send(DRIVERS[driver], SignalNumber::ApiConnectRequest, |writer| cold::write(writer, request))
        .expect("a driver may send this");
}

pub fn tell(
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

pub fn fail_node(harness: &mut Harness<Membership>, node: u8, view: u32) {
    let order = NodeFailedOrder { node, unused: [0; 3], incarnation: U32::new(1), view: U32::new(view) };
    harness
        .send(MEMBERSHIP, SignalNumber::NodeFailedOrder, |writer| {
            writer.put(&order);
        })
        .expect("a block may send this");
}
