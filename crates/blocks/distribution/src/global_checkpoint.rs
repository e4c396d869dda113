//! Global checkpoints: the president has everything up to a closed epoch brought to the disks of the whole cluster.
//!
//! ```text
//!   coordinators              president                         redo (each stream of each node)
//!        │◀─── EpochOrder(e+1) ───│
//!        │── EpochClosedReport(e) ▶│  closed at all: e
//!        │                         │──── EpochEndRequest(e) ───▶│ end record of e, write, flush
//!        │                         │◀─── EpochEndConfirm(e) ────│
//!        │◀── DurableEpochOrder(e) ┤  e is the restore point      (data managers, redo, dictionary too)
//! ```
//!
//! An epoch is closed when every coordinator has reported it as closed: then all its transactions are committed at all
//! replicas, whose data managers have put them into their redo logs. One checkpoint is made at a time, of the newest
//! closed epoch: every `TimeBetweenGlobalCheckpoints`, or at once if somebody waits. If somebody waits for the present
//! epoch, it ends at once, too; what is committed while a checkpoint is being made waits for the next one, together.
//!
//! Nothing is written for epochs without changes: they are durable as soon as they are closed. A restart goes back to
//! the newest end record all the same, so whoever has changed definitions in an epoch asks for an end record
//! (`DurabilityRequest`), and is answered when there is one of that epoch or a later one. For the same reason data
//! managers learn of end records only: a checkpoint that counts up to an epoch without one would not count after a
//! restart.
//!
//! While a log has hardly any room for the ends of epochs (`LogRoomReport`), nobody may begin to wait for the disk,
//! and only those who wait already get an end record, and what is logged all the same. Changes of tables that are not
//! logged are not worth one.

use crate::Distribution;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use vinga_base::Epoch;
use vinga_kernel::{Context, InjectedBug, Tick};
use vinga_wire::backup::EpochClosedConfirm;
use vinga_wire::epoch::{EpochBody, EpochClosedReport, LogRoom, LogRoomBody};
use vinga_wire::view::ViewChange;
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber, U64};

/// What the president knows of closed and durable epochs; other nodes know what is durable.
#[derive(Default)]
pub struct GlobalCheckpoints {
    /// By coordinator: the newest epoch that it has closed.
    closed: BTreeMap<Address, Epoch>,
    /// The newest epoch in which anybody has committed changes.
    changed: Epoch,
    /// The newest epoch whose end is in the logs.
    logged: Epoch,
    /// Everything up to this epoch is on disk. Invariant: never falls.
    durable: Epoch,
    /// Somebody waits until this epoch is on disk.
    wanted: Epoch,
    /// Who waits for an end record of which epoch or a later one.
    waiting: Vec<(Address, Epoch)>,
    /// Who wants to know when which epoch is closed.
    closing: Vec<(Address, Epoch)>,
    /// Log streams that have hardly any room for the ends of epochs, or none.
    rooms: BTreeMap<Address, LogRoom>,
    /// One of them has records that no end covers.
    records_wait: bool,
    /// It is time for a checkpoint.
    is_due: bool,
    /// The checkpoint that is being made.
    ending: Option<Ending>,
    statistics: Statistics,
}

/// A checkpoint that is being made.
struct Ending {
    epoch: Epoch,
    since: Tick,
    /// Streams that have not confirmed.
    awaited: BTreeSet<Address>,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Global checkpoints.
    pub checkpoints: u64,
    /// Those that were made because somebody waited.
    pub asked: u64,
    /// Microseconds that they took, all together.
    pub micros: u64,
    /// … and the longest.
    pub micros_max: u64,
}

impl GlobalCheckpoints {
    /// Everything up to this epoch is on disk.
    pub fn durable(&self) -> Epoch {
        self.durable
    }

    /// Everything up to the restore point was restored: it is on disk, with an end record.
    pub fn note_restored(&mut self, restored: Epoch) {
        (self.durable, self.logged) = (restored, restored);
    }

    /// Counters since the start.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Whether all logs have room for the ends of epochs.
    fn room(&self) -> LogRoom {
        self.rooms.values().copied().max().unwrap_or_default()
    }

    /// Panics if what is known contradicts itself.
    pub fn check(&self, current: Epoch) {
        assert!(self.durable < current, "the present epoch is not closed");
        assert!(self.logged <= self.durable, "what is logged everywhere is durable");
        if let Some(ending) = &self.ending {
            assert!(ending.epoch > self.durable && ending.epoch < current, "the epoch that ends is closed");
            assert!(!ending.awaited.is_empty(), "a checkpoint ends with the last confirmation");
        }
    }
}

impl Distribution {
    pub(crate) fn on_epoch_closed_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (report, _) = frame.head::<EpochClosedReport>()?;
        let checkpoints = &mut self.checkpoints;
        let closed = checkpoints.closed.entry(frame.sender()).or_default();
        *closed = (*closed).max(Epoch(report.epoch.get()));
        checkpoints.changed = checkpoints.changed.max(Epoch(report.changed.get()));
        self.confirm_closed(cx);
        self.go_on(cx);
        Some(())
    }

    /// A data manager wants to know when everything up to an epoch is committed at all replicas. It asks for one epoch
    /// at a time.
    pub(crate) fn on_epoch_closed_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (request, _) = frame.head::<EpochBody>()?;
        let (sender, epoch) = (frame.sender(), request.epoch());
        self.checkpoints.closing.retain(|(other, _)| *other != sender);
        self.checkpoints.closing.push((sender, epoch));
        self.confirm_closed(cx);
        Some(())
    }

    /// Answers those whose epochs all coordinators have closed.
    fn confirm_closed(&mut self, cx: &mut Context<'_>) {
        if self.checkpoints.closing.is_empty() || !Self::is_president(cx) {
            return;
        }
        let (closed, current) = (self.closed(cx), self.epoch);
        self.checkpoints.closing.retain(|&(sender, epoch)| {
            if epoch <= closed {
                let body = EpochClosedConfirm { epoch: U64::new(epoch.0), current: U64::new(current.0) };
                cx.frame(SignalNumber::EpochClosedConfirm, sender).put(&body);
            }
            epoch > closed
        });
    }

    pub(crate) fn on_durability_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<EpochBody>()?;
        self.checkpoints.wanted = self.checkpoints.wanted.max(order.epoch());
        self.go_on(cx);
        Some(())
    }

    /// A schema change is in an epoch, and on the disk of the sender. If the epoch is durable already, but has no end
    /// record, because nobody had changed anything then, a later one gets it.
    pub(crate) fn on_durability_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (request, _) = frame.head::<EpochBody>()?;
        let (sender, epoch) = (frame.sender(), request.epoch());
        let checkpoints = &mut self.checkpoints;
        checkpoints.changed = checkpoints.changed.max(epoch);
        if checkpoints.logged < epoch {
            checkpoints.wanted = checkpoints.wanted.max(epoch).max(Epoch(checkpoints.durable.0 + 1));
        }
        checkpoints.waiting.push((sender, epoch));
        self.confirm_logged(cx);
        self.go_on(cx);
        Some(())
    }

    /// Answers those whose epochs a restart restores.
    fn confirm_logged(&mut self, cx: &mut Context<'_>) {
        let logged = self.checkpoints.logged;
        self.checkpoints.waiting.retain(|&(sender, epoch)| {
            if epoch <= logged {
                cx.frame(SignalNumber::DurabilityConfirm, sender).put(&EpochBody::new(epoch));
            }
            epoch > logged
        });
    }

    /// It is time for a checkpoint, whether somebody waits or not.
    pub(crate) fn on_checkpoint_due(&mut self, cx: &mut Context<'_>) {
        self.checkpoints.is_due = true;
        self.go_on(cx);
    }

    /// Begins the next checkpoint, if there is reason to and none is being made.
    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>) {
        if !Self::is_president(cx) || self.checkpoints.ending.is_some() {
            return;
        }
        let streams: BTreeSet<Address> = cx.view().addresses(BlockNumber::Redo).collect();
        if streams.is_empty() {
            // Nothing is on disk in this cluster.
            return;
        }
        let is_wanted = self.checkpoints.wanted > self.checkpoints.durable;
        if !is_wanted && !self.checkpoints.is_due {
            return;
        }
        if is_wanted && self.checkpoints.wanted >= self.epoch {
            // Somebody waits for the end of the present epoch.
            self.raise_epoch(cx, Epoch(self.checkpoints.wanted.0 + 1));
        }
        let closed = self.closed(cx);
        if closed <= self.checkpoints.durable || is_wanted && closed < self.checkpoints.wanted {
            return;
        }
        let has_changed = self.checkpoints.changed > self.checkpoints.logged;
        let is_worth_it = is_wanted || self.checkpoints.records_wait;
        if has_changed && !is_worth_it && self.checkpoints.room() != LogRoom::Enough {
            cx.mark("global checkpoint that nobody waits for is put off while the log is full");
            return;
        }
        self.checkpoints.is_due = false;
        if !has_changed {
            cx.mark("epochs without changes are durable as they are");
            self.become_durable(cx, closed, false);
            return;
        }
        self.checkpoints.records_wait = false;
        self.checkpoints.statistics.asked += u64::from(is_wanted);
        for &stream in &streams {
            cx.frame(SignalNumber::EpochEndRequest, stream).put(&EpochBody::new(closed));
        }
        self.checkpoints.ending = Some(Ending { epoch: closed, since: cx.now(), awaited: streams });
    }

    /// A log has room for the ends of epochs, or has not.
    pub(crate) fn on_log_room_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (report, _) = frame.head::<LogRoomBody>()?;
        let before = self.checkpoints.room();
        match report.room()? {
            LogRoom::Enough => self.checkpoints.rooms.remove(&frame.sender()),
            room => self.checkpoints.rooms.insert(frame.sender(), room),
        };
        self.checkpoints.records_wait |= report.has_records.get() != 0;
        if self.checkpoints.room() != before {
            self.announce_room(cx);
        }
        self.go_on(cx);
        Some(())
    }

    /// Has everybody who would wait for the disk know whether that has a sense.
    pub(crate) fn announce_room(&self, cx: &mut Context<'_>) {
        if !Self::is_president(cx) || cx.view().addresses(BlockNumber::Redo).next().is_none() {
            return;
        }
        let view = cx.view();
        let listeners: Vec<Address> =
            [BlockNumber::Coordinator, BlockNumber::Dictionary, BlockNumber::Lifecycle]
                .into_iter()
                .flat_map(|block| view.addresses(block))
                .collect();
        for listener in listeners {
            let body = LogRoomBody::new(self.checkpoints.room(), false);
            cx.frame(SignalNumber::LogRoomOrder, listener).put(&body);
        }
    }

    /// All transactions of a coordinator that has failed have ended.
    pub(crate) fn on_take_over_done_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        self.take_overs.on_done(frame)?;
        self.confirm_closed(cx);
        self.go_on(cx);
        Some(())
    }

    /// The newest epoch that all coordinators have closed; 0 as long as some are being taken over, whose transactions
    /// may be committed in any epoch that was open when they failed.
    fn closed(&self, cx: &Context<'_>) -> Epoch {
        if !self.take_overs.is_empty() && !cx.has_bug(InjectedBug::EpochClosesBeforeTakeOver) {
            return Epoch(0);
        }
        let coordinators = cx.view().addresses(BlockNumber::Coordinator);
        let closed = coordinators.map(|one| self.checkpoints.closed.get(&one).copied().unwrap_or_default());
        closed.min().unwrap_or_default()
    }

    pub(crate) fn on_epoch_end_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (confirm, _) = frame.head::<EpochBody>()?;
        if let Some(ending) = &mut self.checkpoints.ending
            && ending.epoch == confirm.epoch()
        {
            ending.awaited.remove(&frame.sender());
            self.end_checkpoint(cx);
        }
        Some(())
    }

    /// Ends the checkpoint that is being made, if all streams have confirmed.
    fn end_checkpoint(&mut self, cx: &mut Context<'_>) {
        let is_early = cx.has_bug(InjectedBug::DurableBeforeAllStreams);
        let done = self.checkpoints.ending.take_if(|ending| ending.awaited.is_empty() || is_early);
        let Some(Ending { epoch, since, .. }) = done else { return };
        let micros = cx.now().since(since).0;
        let statistics = &mut self.checkpoints.statistics;
        statistics.checkpoints += 1;
        statistics.micros += micros;
        statistics.micros_max = statistics.micros_max.max(micros);
        self.checkpoints.logged = epoch;
        self.become_durable(cx, epoch, true);
        // System files record what the log reaches: an epoch without an end record would be missed at the next start.
        let lifecycles: Vec<Address> = cx.view().addresses(BlockNumber::Lifecycle).collect();
        for lifecycle in lifecycles {
            cx.frame(SignalNumber::DurableEpochOrder, lifecycle).put(&EpochBody::new(epoch));
        }
        self.confirm_logged(cx);
        self.go_on(cx);
    }

    /// Everything up to this epoch is on disk: everybody who waits for that is notified.
    fn become_durable(&mut self, cx: &mut Context<'_>, epoch: Epoch, has_end_record: bool) {
        assert!(epoch > self.checkpoints.durable, "epochs become durable in their order");
        self.checkpoints.durable = epoch;
        let (view, own) = (cx.view(), cx.own());
        let listeners: Vec<Address> = [
            BlockNumber::Coordinator,
            BlockNumber::DataManager,
            BlockNumber::Redo,
            BlockNumber::Dictionary,
            BlockNumber::Distribution,
        ]
        .into_iter()
        .filter(|&block| has_end_record || block != BlockNumber::DataManager)
        .flat_map(|block| view.addresses(block))
        .filter(|&listener| listener != own)
        .collect();
        for listener in listeners {
            cx.frame(SignalNumber::DurableEpochOrder, listener).put(&EpochBody::new(epoch));
        }
    }

    /// The president has found an epoch durable.
    pub(crate) fn on_durable_epoch_order(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<EpochBody>()?;
        self.checkpoints.durable = self.checkpoints.durable.max(order.epoch());
        self.epoch = self.epoch.max(Epoch(order.epoch().0 + 1));
        Some(())
    }

    /// Lost members are not awaited; the checkpoint that a lost president was making is made again by the next one.
    pub(crate) fn forget_lost(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        self.checkpoints.closed.retain(|coordinator, _| !change.has_lost(coordinator.node()));
        self.checkpoints.waiting.retain(|(sender, _)| !change.has_lost(sender.node()));
        self.checkpoints.closing.retain(|(sender, _)| !change.has_lost(sender.node()));
        self.checkpoints.rooms.retain(|stream, _| !change.has_lost(stream.node()));
        if let Some(ending) = &mut self.checkpoints.ending {
            ending.awaited.retain(|stream| !change.has_lost(stream.node()));
        }
        self.end_checkpoint(cx);
        self.go_on(cx);
    }
}
