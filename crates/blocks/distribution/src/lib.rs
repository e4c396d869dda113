//! Distribution: which epoch it is.
//!
//! (Who owns which partition is part of the view: `vinga_wire::view`.)
//!
//! **Epochs.** The *president* (the data node that joined first, of those alive) raises the epoch every
//! `TimeBetweenEpochs` and announces it by `EpochOrder`; nobody is held back and nobody answers. The distributions of
//! the other nodes follow, so that the next president goes on from the highest epoch that it has received. A
//! coordinator that has not received it yet gives out the older epoch a little longer, which does no harm: an epoch
//! only has to be at least that of everything that a transaction saw, and answers carry that. The first epoch comes
//! from the driver's clock, so that epochs grow over restarts of the whole cluster.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

use alloc::vec::Vec;
use vinga_base::Epoch;
use vinga_kernel::{Block, Context, Scrutiny, Span};
use vinga_wire::epoch::EpochOrder;
use vinga_wire::view::ViewChange;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U64};

/// What distribution is configured with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The epoch to begin with: above every epoch that the cluster had in an earlier incarnation, so from the clock.
    pub epoch: Epoch,
    /// `TimeBetweenEpochs`.
    pub time_between_epochs: Span,
}

/// The distribution block: the current epoch.
pub struct Distribution {
    /// Invariant: never falls.
    epoch: Epoch,
    time_between_epochs: Span,
}

impl Distribution {
    /// Before the first epoch is announced.
    pub fn new(settings: Settings) -> Self {
        assert!(settings.epoch > Epoch(0) && settings.epoch < Epoch::MAX, "0 means none, 48 bits are used");
        Distribution { epoch: settings.epoch, time_between_epochs: settings.time_between_epochs }
    }

    /// The current epoch, as far as this node knows.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn on_epoch_over(&mut self, cx: &mut Context<'_>) {
        cx.send_after(self.time_between_epochs, 0);
        if Self::is_president(cx) {
            assert!(self.epoch < Epoch::MAX, "48 bits last for 800,000 years at ten epochs a second");
            self.epoch.0 += 1;
            self.announce(cx);
        }
    }

    fn is_president(cx: &Context<'_>) -> bool {
        cx.view().president() == Some(cx.own().node())
    }

    /// Sends the epoch to everybody who uses it: coordinators, memberships, the distributions of the other nodes.
    fn announce(&self, cx: &mut Context<'_>) {
        if !Self::is_president(cx) {
            return;
        }
        let (view, own) = (cx.view(), cx.own());
        let listeners: Vec<Address> = view
            .addresses(BlockNumber::Coordinator)
            .chain(view.addresses(BlockNumber::Membership))
            .chain(view.addresses(BlockNumber::Distribution).filter(|&other| other != own))
            .collect();
        for listener in listeners {
            let order = EpochOrder { epoch: U64::new(self.epoch.0) };
            cx.frame(SignalNumber::EpochOrder, listener).put(&order);
        }
    }

    fn on_epoch_order(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<EpochOrder>()?;
        self.epoch = self.epoch.max(Epoch(order.epoch.get()));
        Some(())
    }
}

impl Block for Distribution {
    /// Announces the first epoch and begins to count.
    fn start(&mut self, cx: &mut Context<'_>) {
        self.announce(cx);
        cx.send_after(self.time_between_epochs, 0);
    }

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        let handled = match frame.signal() {
            Some(SignalNumber::TimerReport) => {
                self.on_epoch_over(cx);
                Some(())
            }
            Some(SignalNumber::EpochOrder) => self.on_epoch_order(frame),
            _ => return cx.reject(frame, ErrorCode::UnexpectedSignal),
        };
        if handled.is_none() {
            cx.reject(frame, ErrorCode::MalformedSignal);
        }
    }

    fn view_changed(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        let own = Some(cx.own().node());
        if change.old.president() != own && change.new.president() == own {
            cx.mark("next president goes on with the epochs");
        }
    }

    fn check_invariants(&self, _: Scrutiny) {
        assert!(self.epoch > Epoch(0) && self.epoch <= Epoch::MAX, "epochs are numbers of 48 bits, from 1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use vinga_base::{Incarnation, NodeId};
    use vinga_kernel::testkit::Harness;
    use vinga_wire::view::{ClusterView, Member};

    const fn address(node: u8, block: BlockNumber) -> Address {
        Address::new(NodeId(node), block, 0)
    }

    /// The distribution of one of two nodes, each with a coordinator.
    fn harness(node: u8) -> Harness<Distribution> {
        let member = |node| Member::started(NodeId(node), Incarnation(1), 0, 2, 1);
        let view = ClusterView::first(vec![member(1), member(2)]);
        let settings = Settings { epoch: Epoch(1000), time_between_epochs: Span::from_millis(100) };
        Harness::new(address(node, BlockNumber::Distribution), 1, view, Distribution::new(settings))
    }

    /// The epochs that were announced, with the receivers.
    fn announced(harness: &mut Harness<Distribution>) -> Vec<(Address, u64)> {
        let epoch = |frame: Frame<'_>| {
            let (order, _) = frame.head::<EpochOrder>().expect("a whole body");
            (frame.receiver(), order.epoch.get())
        };
        harness.take_sent().iter().map(|sent| epoch(sent.frame())).collect()
    }

    /// What the president announces when both nodes are members.
    fn to_all(epoch: u64) -> Vec<(Address, u64)> {
        let to = |node, block| (address(node, block), epoch);
        vec![
            to(1, BlockNumber::Coordinator),
            to(2, BlockNumber::Coordinator),
            to(1, BlockNumber::Membership),
            to(2, BlockNumber::Membership),
            to(2, BlockNumber::Distribution),
        ]
    }

    /// What the last member announces.
    fn to_own(node: u8, epoch: u64) -> Vec<(Address, u64)> {
        [BlockNumber::Coordinator, BlockNumber::Membership]
            .map(|block| (address(node, block), epoch))
            .to_vec()
    }

    #[test]
    fn the_president_announces_every_epoch() {
        let mut h = harness(1);
        assert_eq!(announced(&mut h), to_all(1000));
        h.advance(Span::from_millis(99));
        assert_eq!(announced(&mut h), []);
        h.advance(Span::from_millis(1));
        assert_eq!(announced(&mut h), to_all(1001));
        h.lose_node(NodeId(2));
        h.advance(Span::from_millis(200));
        assert_eq!(announced(&mut h), [to_own(1, 1002), to_own(1, 1003)].concat());
        assert_eq!(h.block().epoch(), Epoch(1003));
    }

    #[test]
    fn the_next_president_goes_on_from_what_it_received() {
        let mut h = harness(2);
        h.advance(Span::from_millis(500));
        assert_eq!(announced(&mut h), []);
        for epoch in [5000, 4000] {
            h.send(address(1, BlockNumber::Distribution), SignalNumber::EpochOrder, |writer| {
                writer.put(&EpochOrder { epoch: U64::new(epoch) });
            })
            .expect("a block may send this");
        }
        h.lose_node(NodeId(1));
        assert!(h.has_met("next president goes on with the epochs"));
        h.advance(Span::from_millis(100));
        assert_eq!(announced(&mut h), to_own(2, 5001));
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
