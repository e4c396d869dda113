//! Commits that are answered when their epoch is on disk, and how many of them share a global checkpoint.
//!
//! The president makes a global checkpoint as soon as it is asked (`docs/protocols/durability.md`). If each commit
//! asked at once, a checkpoint would serve the few that were committed while the one before was made, and with many
//! writers most of the work would be that of checkpoints: a write and a flush of the log, signals, threads that are
//! woken. So commits gather: the coordinator asks when more than seven eighths as many wait as were answered together
//! the last time, or when the first of them has waited for [`GATHER_MAX`]. A writer that is alone has been answered
//! alone, and asks at once.
//!
//! So groups of many writers grow to some eight times as many as come along between the request and the end of the
//! epoch. They do not grow to all writers, so that some work while others wait.

use crate::Coordinator;
use alloc::vec::Vec;
use vinga_base::Epoch;
use vinga_base::pool::Handle;
use vinga_kernel::{Context, InjectedBug, Span};
use vinga_wire::epoch::EpochBody;
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber};

/// How long a commit waits for others, at most: some flushes of a disk.
const GATHER_MAX: Span = Span(2_000);

/// The commits of one coordinator that wait for the disk.
pub struct DiskWaits {
    /// Everything up to this epoch is on disk.
    durable: Epoch,
    /// The newest epoch that the president was asked to bring to disk.
    asked: Epoch,
    /// Committed transactions that are answered when their epoch is on disk, in the order in which they were committed.
    waiting: Vec<(Epoch, Handle)>,
    /// How many of them wait for an epoch beyond the one that was asked for.
    gathered: usize,
    /// How many were answered together the last time.
    group: usize,
    /// A timer bounds the wait of those that have gathered.
    is_timed: bool,
}

impl DiskWaits {
    /// Before the first commit.
    pub fn new() -> Self {
        DiskWaits {
            durable: Epoch(0),
            asked: Epoch(0),
            waiting: Vec::new(),
            gathered: 0,
            group: 0,
            is_timed: false,
        }
    }

    /// Transactions that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Everything up to this epoch was restored.
    pub fn note_restored(&mut self, durable: Epoch) {
        assert!(self.waiting.is_empty(), "no client was let in");
        self.durable = durable;
    }

    /// Whether enough have gathered.
    fn is_group(&self) -> bool {
        self.gathered > self.group * 7 / 8
    }

    /// Panics if the counts contradict themselves.
    pub fn check(&self) {
        let is_beyond = |limit: Epoch| move |&&(epoch, _): &&(Epoch, Handle)| epoch > limit;
        assert!(
            self.waiting.iter().all(|one| is_beyond(self.durable)(&one)),
            "nobody waits for what is there"
        );
        let gathered = self.waiting.iter().filter(is_beyond(self.asked)).count();
        assert_eq!(gathered, self.gathered, "transactions whose epoch was not asked for");
        assert!(gathered == 0 || self.is_timed, "those that have gathered wait for a bounded time");
    }
}

impl Coordinator {
    /// A committed transaction is to be answered when its epoch is on disk. Returns false if it is already.
    pub(crate) fn wait_for_disk(&mut self, cx: &mut Context<'_>, handle: Handle, epoch: Epoch) -> bool {
        let waits = &mut self.disk_waits;
        if epoch <= waits.durable || cx.has_bug(InjectedBug::DurableCommitNotAwaited) {
            return false;
        }
        waits.waiting.push((epoch, handle));
        if epoch > waits.asked {
            waits.gathered += 1;
            if waits.is_group() {
                self.ask_for_durability(cx);
            }
            self.bound_gathering(cx);
        }
        true
    }

    /// Asks the president for the newest epoch that somebody waits for.
    fn ask_for_durability(&mut self, cx: &mut Context<'_>) {
        let waits = &mut self.disk_waits;
        let newest = waits.waiting.iter().map(|&(epoch, _)| epoch).max().unwrap_or_default();
        if newest > waits.asked
            && let Some(president) = president(cx)
        {
            (waits.asked, waits.gathered) = (newest, 0);
            cx.frame(SignalNumber::DurabilityOrder, president).put(&EpochBody::new(newest));
        }
    }

    fn bound_gathering(&mut self, cx: &mut Context<'_>) {
        let waits = &mut self.disk_waits;
        if waits.gathered > 0 && !waits.is_timed {
            waits.is_timed = true;
            cx.send_after(GATHER_MAX, crate::GATHER_TIMER);
        }
    }

    /// Those that have gathered have waited long enough for others.
    pub(crate) fn end_gathering(&mut self, cx: &mut Context<'_>) {
        self.disk_waits.is_timed = false;
        self.ask_for_durability(cx);
        // There may be no president at the moment.
        self.bound_gathering(cx);
    }

    pub(crate) fn on_durable_epoch_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<EpochBody>()?;
        let waits = &mut self.disk_waits;
        waits.durable = waits.durable.max(order.epoch());
        let (durable, asked) = (waits.durable, waits.asked);
        let waiting = core::mem::take(&mut waits.waiting);
        let (done, left): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|&(epoch, _)| epoch <= durable);
        waits.gathered = left.iter().filter(|&&(epoch, _)| epoch > asked).count();
        waits.waiting = left;
        if done.is_empty() {
            return Some(());
        }
        waits.group = done.len();
        if waits.is_group() {
            // Others than those that are answered now: they need not wait for these to come back.
            self.ask_for_durability(cx);
        }
        for (_, handle) in done {
            self.finish_on_disk(cx, handle);
        }
        Some(())
    }

    /// There is another president: it does not know what the one before was asked for.
    pub(crate) fn ask_again_for_durability(&mut self, cx: &mut Context<'_>) {
        let waits = &mut self.disk_waits;
        let asked = core::mem::replace(&mut waits.asked, Epoch(0));
        waits.gathered = waits.waiting.len();
        if waits.waiting.iter().any(|&(epoch, _)| epoch <= asked) {
            self.ask_for_durability(cx);
        }
        self.bound_gathering(cx);
    }
}

/// The distribution of the president.
pub(crate) fn president(cx: &Context<'_>) -> Option<Address> {
    cx.view().president().map(|node| Address::new(node, BlockNumber::Distribution, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_alone_never_waits_and_many_wait_for_most_of_them() {
        let is_group = |gathered, group| DiskWaits { gathered, group, ..DiskWaits::new() }.is_group();
        assert!(is_group(1, 0) && is_group(1, 1));
        assert!(!is_group(1, 2) && is_group(2, 2));
        assert!(!is_group(56, 64) && is_group(57, 64));
    }
}
