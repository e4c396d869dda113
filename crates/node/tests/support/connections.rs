//! Connections of the API node, as the drivers of node 1 report them to membership.

use super::{API, Cluster, Received};
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::Origin;
use vinga_wire::membership::{
    ApiConnectConfirm, ApiConnectRefuse, ApiConnectRequest, ApiNodeBody, CloseConnectionOrder,
};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, FrameWriter, SignalNumber, cold};

const MEMBERSHIP: Address = Address::new(NodeId(1), BlockNumber::Membership, 0);

/// The driver of a thread of node 1.
fn driver(thread: u16) -> Address {
    Address::new(NodeId(1), BlockNumber::Driver, thread)
}

impl Cluster {
    /// A connection greets at a driver; its name comes back when it is admitted. The first one begins the API node's
    /// session, the others bring the ticket that it got.
    pub fn greet(&mut self, thread: u16, name: u64) {
        let node = if self.ticket == 0 { 0 } else { API.node().0 };
        let request = ApiConnectRequest {
            waiting: name,
            node,
            incarnation: 1,
            connection: thread,
            ticket: self.ticket,
            admission: 0,
            lost: Vec::new(),
        };
        let mut bytes = vec![];
        let signal = SignalNumber::ApiConnectRequest;
        cold::write(&mut FrameWriter::begin(&mut bytes, signal, 0, MEMBERSHIP, driver(thread), 0), &request);
        self.report_to_node(&bytes);
    }

    /// A driver has read the API node's connections to their end.
    pub fn disconnected(&mut self, thread: u16) {
        let body = ApiNodeBody::new(API.node(), Incarnation(1));
        let mut bytes = vec![];
        let signal = SignalNumber::ApiDisconnectedReport;
        FrameWriter::begin(&mut bytes, signal, 0, MEMBERSHIP, driver(thread), 0).put(&body);
        self.report_to_node(&bytes);
    }

    fn report_to_node(&mut self, bytes: &[u8]) {
        let executor = self.executors.get_mut(&1).expect("it is never killed");
        executor.feed(bytes, Origin::Node).expect("our own");
        self.run();
    }
}

/// What membership answers a driver that has asked, and the ticket.
pub fn answer(frame: &Frame<'_>) -> Option<(Received, Option<u64>)> {
    match frame.signal() {
        Some(SignalNumber::ApiConnectConfirm) => {
            let confirm: ApiConnectConfirm = cold::read(frame).expect("well-formed");
            assert_eq!(confirm.api, API.node().0, "the first id is the lowest");
            Some((Received::Admitted(confirm.waiting), Some(confirm.ticket)))
        }
        Some(SignalNumber::ApiConnectRefuse) => {
            let refuse: ApiConnectRefuse = cold::read(frame).expect("well-formed");
            let code = ErrorCode::from_number(refuse.code).expect("a known error");
            Some((Received::NotAdmitted(code), None))
        }
        Some(signal @ (SignalNumber::NodeStopConfirm | SignalNumber::StopNodeOrder)) => {
            Some((Received::Other(signal), None))
        }
        // An order of membership names no signal: it only closes what is left of the API node.
        Some(SignalNumber::CloseConnectionOrder) => {
            let (order, _) = frame.head::<CloseConnectionOrder>().expect("well-formed");
            let code = ErrorCode::from_number(order.reason.get()).expect("a known error");
            (order.signal.get() != 0).then_some((Received::Closed(code), None))
        }
        _ => None,
    }
}
