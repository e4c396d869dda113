//! Distribution: who owns what, and which epoch it is.
//!
//! It holds the layout of the cluster ([`layout`] makes it) and takes failed data nodes out of it, and it counts
//! epochs.
//!
//! **Epochs.** The *president* (the data node that joined first, of those alive) raises the epoch every
//! `TimeBetweenEpochs` and announces it by `EpochOrder`; nobody is held back and nobody answers. The distributions of
//! the other nodes follow, so that the next president goes on from the highest epoch that it has heard of. A
//! coordinator that has not heard of it yet gives out the older epoch a little longer, which does no harm: an epoch
//! only has to be at least that of everything that a transaction saw, and answers carry that. The first epoch comes
//! from the driver's clock, so that epochs grow over restarts of the whole cluster.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod layout;

pub use layout::{NodePlace, layout};

use alloc::vec::Vec;
use vinga_base::{Epoch, NodeId, View};
use vinga_kernel::{Context, Span};
use vinga_wire::epoch::EpochOrder;
use vinga_wire::handshake::Topology;
use vinga_wire::membership::NodeFailedOrder;
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, U64};

/// What distribution is told at start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The data nodes, in the order in which they joined.
    pub nodes: Vec<NodePlace>,
    /// The epoch to begin with: above every epoch that the cluster had in an earlier incarnation, so from the clock.
    pub epoch: Epoch,
    /// `TimeBetweenEpochs`.
    pub time_between_epochs: Span,
    /// Who is told of each epoch: every coordinator, every membership, the distributions of the other nodes.
    pub listeners: Vec<Address>,
}

/// See the head of this file.
pub struct Distribution {
    topology: Topology,
    /// Data nodes alive, in the order in which they joined. Never empty: this node is one.
    members: Vec<NodeId>,
    /// Invariant: never falls.
    epoch: Epoch,
    time_between_epochs: Span,
    listeners: Vec<Address>,
}

impl Distribution {
    /// The layout of the nodes, in view 1.
    pub fn new(settings: Settings) -> Self {
        assert!(settings.epoch > Epoch(0) && settings.epoch < Epoch::MAX, "0 means none, 48 bits are used");
        Distribution {
            topology: layout(&settings.nodes),
            members: settings.nodes.iter().map(|node| NodeId(node.topology.node)).collect(),
            epoch: settings.epoch,
            time_between_epochs: settings.time_between_epochs,
            listeners: settings.listeners,
        }
    }

    /// How the cluster is laid out now.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The current epoch, as far as this node knows.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Announces the first epoch and begins to count.
    pub fn start(&mut self, cx: &mut Context<'_>) {
        self.announce(cx);
        cx.send_after(self.time_between_epochs, 0);
    }

    /// Handles one signal.
    pub fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        let handled = match frame.signal() {
            Some(SignalNumber::TimerReport) => {
                self.on_epoch_over(cx);
                Some(())
            }
            Some(SignalNumber::EpochOrder) => self.on_epoch_order(frame),
            Some(SignalNumber::NodeFailedOrder) => self.on_node_failed_order(cx, frame),
            _ => return cx.reject(frame, ErrorCode::UnexpectedSignal),
        };
        if handled.is_none() {
            cx.reject(frame, ErrorCode::MalformedSignal);
        }
    }

    fn on_epoch_over(&mut self, cx: &mut Context<'_>) {
        cx.send_after(self.time_between_epochs, 0);
        if self.is_president(cx) {
            assert!(self.epoch < Epoch::MAX, "48 bits last for 800,000 years at ten epochs a second");
            self.epoch.0 += 1;
            self.announce(cx);
        }
    }

    fn is_president(&self, cx: &Context<'_>) -> bool {
        self.members.first() == Some(&cx.own().node())
    }

    fn announce(&self, cx: &mut Context<'_>) {
        if self.is_president(cx) {
            for &listener in &self.listeners {
                let order = EpochOrder { epoch: U64::new(self.epoch.0) };
                cx.frame(SignalNumber::EpochOrder, listener).put(&order);
            }
        }
    }

    fn on_epoch_order(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<EpochOrder>()?;
        self.epoch = self.epoch.max(Epoch(order.epoch.get()));
        Some(())
    }

    fn on_node_failed_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<NodeFailedOrder>()?;
        let node = NodeId(order.node);
        let was_president = self.is_president(cx);
        self.members.retain(|&member| member != node);
        self.listeners.retain(|listener| listener.node() != node);
        self.topology.remove_node(node, View(order.view.get()));
        if !was_president && self.is_president(cx) {
            cx.mark("next president goes on with the epochs");
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use vinga_kernel::testkit::Harness;
    use vinga_wire::handshake::NodeTopology;
    use vinga_wire::{BlockNumber, U32};

    const COORDINATORS: [Address; 2] = [
        Address::new(NodeId(1), BlockNumber::Coordinator, 0),
        Address::new(NodeId(2), BlockNumber::Coordinator, 0),
    ];

    /// The distribution of one of two nodes.
    fn harness(node: u8) -> Harness<Distribution> {
        let place = |node| NodePlace {
            group: 0,
            topology: NodeTopology { node, connections: vec![], data_managers: 2, coordinators: 1 },
        };
        let settings = Settings {
            nodes: vec![place(1), place(2)],
            epoch: Epoch(1000),
            time_between_epochs: Span::from_millis(100),
            listeners: COORDINATORS.to_vec(),
        };
        let address = Address::new(NodeId(node), BlockNumber::Distribution, 0);
        Harness::new(address, 1, Distribution::new(settings), Distribution::start, Distribution::handle)
    }

    fn announced(harness: &mut Harness<Distribution>) -> Vec<(Address, u64)> {
        let epoch = |frame: Frame<'_>| {
            let (order, _) = frame.head::<EpochOrder>().expect("a whole body");
            (frame.receiver(), order.epoch.get())
        };
        harness.take_sent().iter().map(|sent| epoch(sent.frame())).collect()
    }

    fn fail(harness: &mut Harness<Distribution>, node: u8) {
        let order = NodeFailedOrder { node, unused: [0; 3], incarnation: U32::new(1), view: U32::new(2) };
        let membership = Address::new(NodeId(1), BlockNumber::Membership, 0);
        harness
            .send(membership, SignalNumber::NodeFailedOrder, |writer| {
                writer.put(&order);
            })
            .expect("a block may send this");
    }

    #[test]
    fn the_president_announces_every_epoch() {
        let mut h = harness(1);
        assert_eq!(announced(&mut h), [(COORDINATORS[0], 1000), (COORDINATORS[1], 1000)]);
        h.advance(Span::from_millis(99));
        assert_eq!(announced(&mut h), []);
        h.advance(Span::from_millis(1));
        assert_eq!(announced(&mut h), [(COORDINATORS[0], 1001), (COORDINATORS[1], 1001)]);
        fail(&mut h, 2);
        h.advance(Span::from_millis(200));
        assert_eq!(announced(&mut h), [(COORDINATORS[0], 1002), (COORDINATORS[0], 1003)]);
        assert_eq!(h.block().epoch(), Epoch(1003));
    }

    #[test]
    fn the_next_president_goes_on_from_what_it_heard() {
        let mut h = harness(2);
        h.advance(Span::from_millis(500));
        assert_eq!(announced(&mut h), []);
        for epoch in [5000, 4000] {
            h.send(
                Address::new(NodeId(1), BlockNumber::Distribution, 0),
                SignalNumber::EpochOrder,
                |writer| {
                    writer.put(&EpochOrder { epoch: U64::new(epoch) });
                },
            )
            .expect("a block may send this");
        }
        fail(&mut h, 1);
        assert!(h.has_met("next president goes on with the epochs"));
        h.advance(Span::from_millis(100));
        assert_eq!(announced(&mut h), [(COORDINATORS[1], 5001)]);
        let topology = h.block().topology();
        assert_eq!((topology.version, topology.view, topology.nodes.len()), (2, 2, 1));
        assert!(topology.partitions.iter().all(|partition| partition.chain == [2]));
    }

    #[test]
    fn an_api_node_has_no_business_here() {
        let mut h = harness(1);
        h.take_sent();
        let api = Address::new(NodeId(200), BlockNumber::Api, 0);
        h.send(api, SignalNumber::HeartbeatRequest, |_| ())
            .expect("the executor doesn't know who handles what");
        assert_eq!(h.take_sent()[0].signal(), SignalNumber::CloseConnectionOrder);
    }
}
