//! Distribution: which epoch it is, and which epochs are on disk.
//!
//! (Who owns which partition is part of the view: `vinga_wire::view`.)
//!
//! **Epochs.** The *president* (the data node that joined first, of those alive) raises the epoch every
//! `TimeBetweenEpochs` and announces it by `EpochOrder`; nobody is held back and nobody answers. The distributions of
//! the other nodes follow, so that the next president goes on from the highest epoch that it has received. A
//! coordinator that has not received it yet gives out the older epoch a little longer, which does no harm: an epoch
//! only has to be at least that of everything that a transaction saw, and answers carry that. A coordinator that has to
//! use a later epoch reports it (`EpochClaimReport`), and the president goes on above it. Such a report may be the
//! first that the president learns of an epoch which a client has invented elsewhere, so nobody is blamed for it here.
//!
//! **Global checkpoints** are described in `global_checkpoint`.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod global_checkpoint;

pub use global_checkpoint::Statistics;

use alloc::vec::Vec;
use global_checkpoint::GlobalCheckpoints;
use vinga_base::{Epoch, LiveParameter};
use vinga_kernel::{AskedTask, Block, Context, PendingTakeOvers, Scrutiny, Span};
use vinga_wire::epoch::{EpochBody, EpochOrder};
use vinga_wire::start::{StartResult, StartTask};
use vinga_wire::view::ViewChange;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U64};

/// What distribution is configured with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The epoch to begin with: above every epoch that the cluster had in an earlier incarnation.
    pub epoch: Epoch,
    /// `TimeBetweenEpochs`.
    pub time_between_epochs: Span,
    /// `TimeBetweenGlobalCheckpoints`.
    pub time_between_checkpoints: Span,
    /// The node restores what is on its disk first: epochs begin with `StartTask::Begin`, not at once.
    pub waits_for_begin: bool,
}

/// The distribution block: the current epoch, and how far the cluster is on disk.
pub struct Distribution {
    /// Invariant: never falls.
    epoch: Epoch,
    /// No epoch above it may be used yet: a restart may begin there.
    limit: Epoch,
    /// The node restores what is on its disk first.
    waits_for_begin: bool,
    epoch_end: Periodic,
    checkpoint: Periodic,
    checkpoints: GlobalCheckpoints,
    /// No epoch closes as long as transactions of a dead coordinator may be committed in it.
    take_overs: PendingTakeOvers,
}

/// Something that is due again and again.
struct Periodic {
    /// What its timers' tokens say beside their number.
    token: u64,
    /// Between two times.
    interval: Span,
    /// Counts its timers: an earlier one that is still running does not count. 0 before the first.
    timer: u64,
}

/// The end of an epoch; a global checkpoint.
const EPOCH: u64 = 0;
const CHECKPOINT: u64 = 1;
/// How many tokens there are.
const PERIODICS: u64 = 2;

impl Periodic {
    fn new(token: u64, interval: Span) -> Self {
        Periodic { token, interval, timer: 0 }
    }

    /// It is due an interval from now.
    fn begin(&mut self, cx: &mut Context<'_>) {
        self.timer += 1;
        cx.send_after(self.interval, self.timer * PERIODICS + self.token);
    }

    /// Whether a timer says that it is due; then it begins again.
    fn is_due(&mut self, cx: &mut Context<'_>, token: u64) -> bool {
        let is_due = token == self.timer * PERIODICS + self.token;
        if is_due {
            self.begin(cx);
        }
        is_due
    }

    /// Another interval holds, also for the time that has begun, if it has.
    fn set_interval(&mut self, cx: &mut Context<'_>, interval: Span) {
        self.interval = interval;
        if self.timer > 0 {
            self.begin(cx);
        }
    }
}

impl Distribution {
    /// Before the first epoch is announced.
    pub fn new(settings: Settings) -> Self {
        assert!(settings.epoch > Epoch(0) && settings.epoch < Epoch::MAX, "0 means none, 48 bits are used");
        Distribution {
            epoch: settings.epoch,
            waits_for_begin: settings.waits_for_begin,
            epoch_end: Periodic::new(EPOCH, settings.time_between_epochs),
            checkpoint: Periodic::new(CHECKPOINT, settings.time_between_checkpoints),
            limit: Epoch::MAX,
            checkpoints: GlobalCheckpoints::default(),
            take_overs: PendingTakeOvers::default(),
        }
    }

    /// The current epoch, as far as this node knows.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Everything up to this epoch is on the disks of the cluster.
    pub fn durable(&self) -> Epoch {
        self.checkpoints.durable()
    }

    /// Counters of global checkpoints.
    pub fn statistics(&self) -> Statistics {
        self.checkpoints.statistics()
    }

    /// Announces the first epoch and begins to count.
    fn begin(&mut self, cx: &mut Context<'_>) {
        self.announce(cx);
        self.epoch_end.begin(cx);
        self.checkpoint.begin(cx);
    }

    /// Everything is restored.
    fn on_start_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let mut asked = AskedTask::default();
        let StartTask::Begin { epoch, limit, durable, .. } = asked.take_on(frame)? else { return None };
        assert!(self.waits_for_begin, "epochs begin once");
        self.epoch = self.epoch.max(epoch);
        self.limit = limit;
        self.checkpoints.note_restored(durable);
        asked.confirm(cx, StartResult::Done);
        self.begin(cx);
        Some(())
    }

    fn on_timer_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (token, _) = frame.head::<U64>()?;
        if self.epoch_end.is_due(cx, token.get()) {
            if Self::is_president(cx) {
                self.raise_epoch(cx, Epoch(self.epoch.0 + 1));
            }
        } else if self.checkpoint.is_due(cx, token.get()) {
            self.on_checkpoint_due(cx);
        }
        Some(())
    }

    fn is_president(cx: &Context<'_>) -> bool {
        cx.view().president() == Some(cx.own().node())
    }

    /// The president goes on to a later epoch, as far as it may: a restart must find none that was used before.
    fn raise_epoch(&mut self, cx: &mut Context<'_>, epoch: Epoch) {
        assert!(
            epoch > self.epoch && epoch < Epoch::MAX,
            "48 bits last for 800,000 years at ten epochs a second"
        );
        if epoch > self.limit {
            cx.mark("epochs wait until the disk allows more of them");
        }
        if epoch.min(self.limit) > self.epoch {
            self.epoch = epoch.min(self.limit);
            self.announce(cx);
        }
    }

    /// The system file says that more epochs may be used.
    fn on_epoch_limit_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<EpochBody>()?;
        self.limit = self.limit.max(order.epoch());
        // Somebody may wait for the end of an epoch that was the last one.
        self.go_on(cx);
        Some(())
    }

    /// Sends the epoch to everybody who uses it: coordinators, memberships, dictionaries, lifecycles, the distributions
    /// of the other nodes.
    fn announce(&self, cx: &mut Context<'_>) {
        if !Self::is_president(cx) {
            return;
        }
        let (view, own) = (cx.view(), cx.own());
        let listeners: Vec<Address> = view
            .addresses(BlockNumber::Coordinator)
            .chain(view.addresses(BlockNumber::Membership))
            .chain(view.addresses(BlockNumber::Dictionary))
            .chain(view.addresses(BlockNumber::Lifecycle))
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

    /// A coordinator uses an epoch that was not announced to it yet, or never was.
    fn on_epoch_claim_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (report, _) = frame.head::<EpochBody>()?;
        let claimed = Epoch(report.epoch.get());
        if claimed <= self.epoch || !Self::is_president(cx) {
            return Some(());
        }
        cx.mark("president goes on above an epoch that it has not announced");
        self.raise_epoch(cx, Epoch(claimed.0 + 1));
        Some(())
    }
}

impl Block for Distribution {
    /// Begins at once, if there is nothing to restore.
    fn start(&mut self, cx: &mut Context<'_>) {
        if !self.waits_for_begin {
            self.begin(cx);
        }
    }

    fn set_parameter(&mut self, cx: &mut Context<'_>, parameter: LiveParameter, value: u64) {
        match parameter {
            LiveParameter::TimeBetweenEpochs => self.epoch_end.set_interval(cx, Span::from_millis(value)),
            LiveParameter::TimeBetweenGlobalCheckpoints => {
                self.checkpoint.set_interval(cx, Span::from_millis(value));
            }
            LiveParameter::TransactionDeadlockDetectionTimeout
            | LiveParameter::TransactionInactiveTimeout
            | LiveParameter::TimeBetweenLocalCheckpoints
            | LiveParameter::MinDiskWriteSpeed
            | LiveParameter::MaxDiskWriteSpeed
            | LiveParameter::MaxDiskWriteSpeedOtherNodeRestart
            | LiveParameter::MaxDiskWriteSpeedOwnRestart => {}
        }
    }

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        let handled = match frame.signal() {
            Some(SignalNumber::TimerReport) => self.on_timer_report(cx, frame),
            Some(SignalNumber::StartRequest) => self.on_start_request(cx, frame),
            Some(SignalNumber::EpochOrder) => self.on_epoch_order(frame),
            Some(SignalNumber::EpochClosedReport) => self.on_epoch_closed_report(cx, frame),
            Some(SignalNumber::EpochClosedRequest) => self.on_epoch_closed_request(cx, frame),
            Some(SignalNumber::EpochClaimReport) => self.on_epoch_claim_report(cx, frame),
            Some(SignalNumber::DurabilityOrder) => self.on_durability_order(cx, frame),
            Some(SignalNumber::DurabilityRequest) => self.on_durability_request(cx, frame),
            Some(SignalNumber::LogRoomReport) => self.on_log_room_report(cx, frame),
            Some(SignalNumber::EpochEndConfirm) => self.on_epoch_end_confirm(cx, frame),
            Some(SignalNumber::DurableEpochOrder) => self.on_durable_epoch_order(frame),
            Some(SignalNumber::EpochLimitOrder) => self.on_epoch_limit_order(cx, frame),
            Some(SignalNumber::TakeOverDoneReport) => self.on_take_over_done_report(cx, frame),
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
        if change.joined().next().is_some() {
            self.announce(cx);
        }
        self.take_overs.note_lost(change);
        self.forget_lost(cx, change);
        self.announce_room(cx);
    }

    fn check_invariants(&self, _: Scrutiny) {
        assert!(self.epoch > Epoch(0) && self.epoch <= Epoch::MAX, "epochs are numbers of 48 bits, from 1");
        self.checkpoints.check(self.epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use vinga_base::{Incarnation, NodeId};
    use vinga_kernel::testkit::Harness;
    use vinga_wire::epoch::EpochClosedReport;
    use vinga_wire::take_over::{CoordinatorName, TakeOverDoneReport};
    use vinga_wire::view::{ClusterView, Member};

    const fn address(node: u8, block: BlockNumber) -> Address {
        Address::new(NodeId(node), block, 0)
    }

    /// The distribution of one of two nodes, each with a coordinator.
    fn harness(node: u8) -> Harness<Distribution> {
        let member = |node| Member::started(NodeId(node), Incarnation(1), 0, 2, 1);
        let view = ClusterView::first(vec![member(1), member(2)]);
        let settings = Settings {
            epoch: Epoch(1000),
            time_between_epochs: Span::from_millis(100),
            time_between_checkpoints: Span::from_millis(1000),
            waits_for_begin: false,
        };
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
            to(1, BlockNumber::Dictionary),
            to(2, BlockNumber::Dictionary),
            to(2, BlockNumber::Distribution),
        ]
    }

    /// What the last member announces.
    fn to_own(node: u8, epoch: u64) -> Vec<(Address, u64)> {
        [BlockNumber::Coordinator, BlockNumber::Membership, BlockNumber::Dictionary]
            .map(|block| (address(node, block), epoch))
            .to_vec()
    }

    #[test]
    fn another_interval_holds_from_now_on() {
        let mut h = harness(1);
        announced(&mut h);
        h.advance(Span::from_millis(50));
        h.set_parameter(LiveParameter::TimeBetweenEpochs, 20);
        h.advance(Span::from_millis(19));
        assert_eq!(announced(&mut h), []);
        h.advance(Span::from_millis(1));
        assert_eq!(announced(&mut h), to_all(1001));
        // The timer of the time before runs out, and ends no epoch.
        h.advance(Span::from_millis(31));
        assert_eq!(announced(&mut h), to_all(1002));
        h.advance(Span::from_millis(9));
        assert_eq!(announced(&mut h), to_all(1003));
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
    fn no_epoch_closes_while_a_coordinator_is_being_taken_over() {
        let mut h = harness(1);
        let (data_manager, failed) =
            (address(1, BlockNumber::DataManager), address(2, BlockNumber::Coordinator));
        h.send(data_manager, SignalNumber::EpochClosedRequest, |writer| {
            writer.put(&EpochBody::new(Epoch(1000)));
        })
        .expect("a block may send this");
        h.lose_node(NodeId(2));
        h.take_sent();
        let coordinator = address(1, BlockNumber::Coordinator);
        h.send(coordinator, SignalNumber::EpochClosedReport, |writer| {
            writer.put(&EpochClosedReport { epoch: U64::new(1000), changed: U64::ZERO });
        })
        .expect("a block may send this");
        assert_eq!(h.take_sent().len(), 0, "the dead coordinator may have committed something in it");
        let name = CoordinatorName { address: failed, incarnation: Incarnation(1) };
        h.send(coordinator, SignalNumber::TakeOverDoneReport, |writer| {
            writer.put(&TakeOverDoneReport { coordinator: name.into(), epoch: U64::new(1000) });
        })
        .expect("a block may send this");
        assert_eq!(h.take_sent()[0].signal(), SignalNumber::EpochClosedConfirm);
    }

    fn send_claim(h: &mut Harness<Distribution>, epoch: u64) {
        let coordinator = address(2, BlockNumber::Coordinator);
        h.send(coordinator, SignalNumber::EpochClaimReport, |writer| {
            writer.put(&EpochBody { epoch: U64::new(epoch) });
        })
        .expect("a block may send this");
    }

    #[test]
    fn a_claimed_epoch_is_passed() {
        let mut h = harness(1);
        h.take_sent();
        send_claim(&mut h, 1000);
        assert_eq!(announced(&mut h), [], "it was announced");
        send_claim(&mut h, 1003);
        assert_eq!(announced(&mut h), to_all(1004));
        assert!(h.has_met("president goes on above an epoch that it has not announced"));
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
