//! Epochs at a coordinator: which one it gives out, and in which ones it may still commit.
//!
//! An epoch is *closed* at a coordinator when it gives out a later one and none of its transactions will commit in that
//! epoch or an earlier one any more. A transaction counts from the moment when its epoch is certain enough: from the
//! decision to commit, or from the prepare that lets a data manager commit it in one phase (the data manager may choose
//! a later epoch than it is given, never an earlier one), until the primaries have confirmed. By then all replicas have
//! committed and logged it.
//!
//! The coordinator reports each closed epoch to the president, which needs these reports for a global checkpoint
//! (`docs/protocols/durability.md`). It may have to use an epoch above those that it was given: that of a commit that
//! its transaction follows, or that its API node says to have seen. It adopts that epoch and reports it, so that the
//! president goes on above it; else everything in it would wait for a global checkpoint until the president had counted
//! so far.

use crate::Coordinator;
use crate::disk_waits::president;
use alloc::vec::Vec;
use vinga_base::Epoch;
use vinga_kernel::{AskedTask, Context, InjectedBug, Span, Tick};
use vinga_wire::epoch::{EPOCH_LEAP_MAX, EpochBody, EpochClosedReport, EpochOrder};
use vinga_wire::start::{StartResult, StartTask};
use vinga_wire::{Frame, SignalNumber, U64};

/// In this time an API node may take a coordinator one epoch further, on the average. Epochs of a busy cluster take
/// longer, and of all that there are the last one comes in 89 years at this rate.
const LEAP_TIME: Span = Span(10);

/// The epochs of one coordinator.
pub struct Epochs {
    /// The epoch that it gives out.
    current: Epoch,
    /// No epoch above it may be used yet: a restart may begin there.
    limit: Epoch,
    /// How many transactions are going to commit in an epoch, ascending by epoch. Invariant: no number is 0.
    committing: Vec<(Epoch, u32)>,
    /// The newest epoch that was reported as closed.
    reported: Epoch,
    /// The newest epoch in which changes were committed.
    changed: Epoch,
    /// How many epochs further API nodes may take it now, and up to when that was counted.
    leaps: u64,
    leaps_counted: Tick,
}

impl Epochs {
    /// Those of a coordinator that begins in this epoch.
    pub fn new(current: Epoch) -> Self {
        Epochs {
            current,
            limit: Epoch::MAX,
            committing: Vec::new(),
            reported: Epoch(0),
            changed: Epoch(0),
            leaps: EPOCH_LEAP_MAX,
            leaps_counted: Tick(0),
        }
    }

    /// The epoch that is given out.
    #[inline]
    pub fn current(&self) -> Epoch {
        self.current
    }

    /// Whether an epoch may be used, from now on, that an API node says to have seen and that is above the one that is
    /// given out. One leap after the other would use up all epochs that there are, so they are rationed, by time.
    #[cold]
    pub fn allows(&mut self, now: Tick, seen: Epoch) -> bool {
        let passed = now.since(self.leaps_counted).0 / LEAP_TIME.0;
        self.leaps = self.leaps.saturating_add(passed).min(EPOCH_LEAP_MAX);
        self.leaps_counted = self.leaps_counted + Span(passed * LEAP_TIME.0);
        let leap = seen.0 - self.current.0;
        if leap > self.leaps || seen > self.limit {
            return false;
        }
        self.leaps -= leap;
        true
    }

    /// A transaction is going to commit in this epoch or a later one.
    #[inline]
    pub fn enter(&mut self, epoch: Epoch) {
        match self.committing.last_mut() {
            Some((last, count)) if *last == epoch => *count += 1,
            _ => self.enter_another(epoch),
        }
    }

    #[cold]
    fn enter_another(&mut self, epoch: Epoch) {
        match self.committing.binary_search_by_key(&epoch, |&(other, _)| other) {
            Ok(at) => self.committing[at].1 += 1,
            Err(at) => self.committing.insert(at, (epoch, 1)),
        }
    }

    /// A transaction that has entered this epoch is committed, or will not commit in it after all. Returns whether that
    /// may have closed an epoch.
    #[inline]
    pub fn leave(&mut self, epoch: Epoch) -> bool {
        let at = self.committing.iter().rposition(|&(other, _)| other == epoch);
        let at = at.expect("a transaction leaves an epoch that it has entered");
        self.committing[at].1 -= 1;
        if self.committing[at].1 != 0 {
            return false;
        }
        self.committing.remove(at);
        at == 0 && epoch < self.current
    }

    /// The newest closed epoch.
    fn closed(&self) -> Epoch {
        let open = self.committing.first().map_or(self.current, |&(first, _)| first.min(self.current));
        Epoch(open.0 - 1)
    }

    /// Notes that a transaction with changes was committed in this epoch.
    #[inline]
    pub fn note_changes(&mut self, epoch: Epoch) {
        self.changed = self.changed.max(epoch);
    }

    /// Transactions that are going to commit.
    pub fn committing(&self) -> u64 {
        self.committing.iter().map(|&(_, count)| u64::from(count)).sum()
    }

    /// Panics if the counts contradict themselves.
    pub fn check(&self) {
        assert!(
            self.committing.iter().all(|&(_, count)| count > 0),
            "an epoch without transactions is not listed"
        );
        assert!(self.committing.is_sorted_by(|a, b| a.0 < b.0), "epochs are listed in their order");
        assert!(self.reported <= self.closed(), "an epoch that is reported as closed stays closed");
    }
}

impl Coordinator {
    pub(crate) fn on_epoch_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<EpochOrder>()?;
        self.epochs.current = self.epochs.current.max(Epoch(order.epoch.get()));
        self.report_closed(cx);
        Some(())
    }

    /// Reports the newest closed epoch, if it has not been reported.
    pub(crate) fn report_closed(&mut self, cx: &mut Context<'_>) {
        let closed = if cx.has_bug(InjectedBug::EpochClosedTooEarly) {
            Epoch(self.epochs.current.0 - 1)
        } else {
            self.epochs.closed()
        };
        if closed <= self.epochs.reported {
            return;
        }
        let Some(president) = president(cx) else { return };
        self.epochs.reported = closed;
        cx.frame(SignalNumber::EpochClosedReport, president)
            .put(&EpochClosedReport { epoch: U64::new(closed.0), changed: U64::new(self.epochs.changed.0) });
    }

    /// A transaction that had entered an epoch is committed, or will not commit in it.
    #[inline]
    pub(crate) fn leave_epoch(&mut self, cx: &mut Context<'_>, epoch: Epoch) {
        if self.epochs.leave(epoch) {
            self.report_closed(cx);
        }
    }

    /// A commit uses this epoch: if it is above the one that is given out, that becomes the current one.
    #[inline]
    pub(crate) fn use_epoch(&mut self, cx: &mut Context<'_>, epoch: Epoch) {
        if epoch > self.epochs.current {
            self.adopt_epoch(cx, epoch);
        }
    }

    /// Gives out a later epoch from now on, which a data manager or an API node has seen, and reports it to the
    /// president.
    #[cold]
    pub(crate) fn adopt_epoch(&mut self, cx: &mut Context<'_>, epoch: Epoch) {
        cx.mark("coordinator adopts an epoch before it is announced to it");
        self.epochs.current = epoch;
        if let Some(president) = president(cx).filter(|_| !cx.has_bug(InjectedBug::ClaimedEpochNotReported)) {
            cx.frame(SignalNumber::EpochClaimReport, president).put(&EpochBody { epoch: U64::new(epoch.0) });
        }
        self.report_closed(cx);
    }

    /// Everything is restored: transactions commit above what is on disk.
    pub(crate) fn on_start_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let mut asked = AskedTask::default();
        let StartTask::Begin { epoch, limit, durable, .. } = asked.take_on(frame)? else { return None };
        assert!(self.epochs.committing.is_empty(), "no client was let in");
        self.epochs.current = self.epochs.current.max(epoch);
        self.epochs.limit = limit;
        self.disk_waits.note_restored(durable);
        asked.confirm(cx, StartResult::Done);
        Some(())
    }

    pub(crate) fn on_epoch_limit_order(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<EpochBody>()?;
        self.epochs.limit = self.epochs.limit.max(order.epoch());
        Some(())
    }

    /// There is another president: what it has to know is sent to it.
    pub(crate) fn greet_president(&mut self, cx: &mut Context<'_>) {
        self.epochs.reported = Epoch(0);
        self.report_closed(cx);
        self.ask_again_for_durability(cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_closes_when_its_last_transaction_has_ended() {
        let mut epochs = Epochs::new(Epoch(10));
        assert_eq!(epochs.closed(), Epoch(9));
        epochs.enter(Epoch(10));
        epochs.enter(Epoch(10));
        epochs.current = Epoch(11);
        epochs.enter(Epoch(11));
        assert_eq!((epochs.closed(), epochs.committing()), (Epoch(9), 3));
        assert!(!epochs.leave(Epoch(10)));
        assert!(!epochs.leave(Epoch(11)), "an earlier one is open");
        assert!(epochs.leave(Epoch(10)));
        assert_eq!((epochs.closed(), epochs.committing()), (Epoch(10), 0));
        epochs.enter(Epoch(11));
        assert!(!epochs.leave(Epoch(11)), "it is still given out");
        epochs.check();
    }

    #[test]
    fn api_nodes_do_not_use_up_all_epochs() {
        let mut epochs = Epochs::new(Epoch(10));
        let mut now = Tick(0);
        // Another coordinator has believed as much.
        assert!(epochs.allows(now, Epoch(10 + EPOCH_LEAP_MAX)));
        epochs.current = Epoch(10 + EPOCH_LEAP_MAX);
        let begun = epochs.current;
        assert!(!epochs.allows(now, Epoch(begun.0 + 1)), "one leap after the other");
        for _ in 0..10_000 {
            now = now + Span(7);
            while epochs.allows(now, Epoch(epochs.current.0 + 1)) {
                epochs.current.0 += 1;
            }
        }
        assert_eq!(
            epochs.current.0 - begun.0,
            7 * 10_000 / LEAP_TIME.0,
            "no time is lost, and none counts twice"
        );
        // What is announced costs nothing, and no more is saved up than one leap.
        epochs.current.0 += 1 << 30;
        now = now + Span(u64::from(u32::MAX) * 100);
        assert!(!epochs.allows(now, Epoch(epochs.current.0 + EPOCH_LEAP_MAX + 1)));
        assert!(epochs.allows(now, Epoch(epochs.current.0 + EPOCH_LEAP_MAX)));
    }

    #[test]
    fn epochs_are_counted_in_any_order() {
        let mut epochs = Epochs::new(Epoch(10));
        for epoch in [12, 10, 11, 10, 12] {
            epochs.enter(Epoch(epoch));
        }
        epochs.current = Epoch(20);
        assert_eq!(epochs.closed(), Epoch(9));
        assert!(!epochs.leave(Epoch(12)));
        assert!(!epochs.leave(Epoch(10)));
        assert!(epochs.leave(Epoch(10)));
        assert_eq!(epochs.closed(), Epoch(10));
        assert!(epochs.leave(Epoch(11)));
        assert_eq!(epochs.closed(), Epoch(11));
        assert!(epochs.leave(Epoch(12)));
        assert_eq!(epochs.closed(), Epoch(19));
    }
}
