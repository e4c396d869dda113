//! Commits that are answered when their epoch is on disk, and how many of them share a global checkpoint.
//!
//! The president makes a global checkpoint as soon as it is asked (`docs/protocols/durability.md`). If each commit
//! asked at once, a checkpoint would serve the few that were committed while the one before was made, and with many
//! writers most of the work would be that of checkpoints: a write and a flush of the log, signals, threads that are
//! woken. So commits gather: the coordinator asks when half of all writers wait, so that the other half works while the
//! disk is flushed. A writer that is alone asks at once.
//!
//! *How many writers there are* is not known, but when all of them wait, nobody comes any more. So their number is
//! that of those who wait when the first of a group has waited for [`GATHER_SPAN`] in vain; that is tried once in
//! [`TRIED_EVERY`] groups, if commits have met at all, and happens by itself when there are fewer writers than
//! before. In between, more than was believed may be seen to wait.
//!
//! While the log has hardly any room for the ends of epochs (`LogRoomOrder`), transactions that would have to wait are
//! refused before they are decided, with the error of a full log. Those that are committed then still get their end.
//! If there is no room even for that, they are answered that it can't be said whether they are on disk.

use crate::Coordinator;
use alloc::vec::Vec;
use vinga_base::Epoch;
use vinga_base::pool::Handle;
use vinga_kernel::{Context, InjectedBug, Span};
use vinga_wire::epoch::{EpochBody, LogRoom, LogRoomBody};
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber};

/// How long after the first of a group the others are not waited for any longer: some flushes of a disk. If the timer
/// was set for a group before this one, it may take twice as long.
const GATHER_SPAN: Span = Span(4_000);

/// How many groups pass between two attempts to see all writers wait.
const TRIED_EVERY: u32 = 1024;

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
    /// A timer bounds the wait of those that have gathered.
    is_timed: bool,
    /// The timer was set for others, who are not among those that have gathered any more.
    is_for_others: bool,
    writers: Writers,
    /// Whether the log has room for the ends of epochs.
    room: LogRoom,
}

/// What is known of how many commit at the same time.
#[derive(Default)]
struct Writers {
    /// So many have been seen to wait since the last time that all of them did.
    count: usize,
    /// Groups since then.
    groups: u32,
    /// Some of them were of several commits.
    have_met: bool,
}

impl Writers {
    /// Whether a group is to be complete, so that all are counted.
    fn is_count_due(&self) -> bool {
        self.have_met && self.groups >= TRIED_EVERY
    }

    /// So many wait while a group is answered.
    fn note_group(&mut self, waiting: usize) {
        self.groups = self.groups.saturating_add(1);
        self.have_met |= waiting > 1;
        self.count = self.count.max(waiting);
    }

    /// So many wait, and nobody else has come for long.
    fn note_all(&mut self, waiting: usize) {
        *self = Writers { count: waiting, ..Writers::default() };
    }
}

impl DiskWaits {
    /// Before the first commit.
    pub fn new() -> Self {
        DiskWaits {
            durable: Epoch(0),
            asked: Epoch(0),
            waiting: Vec::new(),
            gathered: 0,
            is_timed: false,
            is_for_others: false,
            writers: Writers::default(),
            room: LogRoom::Enough,
        }
    }

    /// Whether nobody may begin to wait.
    #[inline]
    pub fn lacks_room(&self) -> bool {
        self.room != LogRoom::Enough
    }

    /// Everything up to this epoch is on disk, as far as is known.
    pub fn durable(&self) -> Epoch {
        self.durable
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
        self.gathered > 0 && 2 * self.gathered >= self.writers.count && !self.writers.is_count_due()
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
            (waits.asked, waits.gathered, waits.is_for_others) = (newest, 0, true);
            cx.frame(SignalNumber::DurabilityOrder, president).put(&EpochBody::new(newest));
        }
    }

    fn bound_gathering(&mut self, cx: &mut Context<'_>) {
        let waits = &mut self.disk_waits;
        if waits.gathered > 0 && !waits.is_timed {
            (waits.is_timed, waits.is_for_others) = (true, false);
            cx.send_after(GATHER_SPAN, crate::GATHER_TIMER);
        }
    }

    /// Those that have gathered have waited long enough for others.
    pub(crate) fn end_gathering(&mut self, cx: &mut Context<'_>) {
        let waits = &mut self.disk_waits;
        waits.is_timed = false;
        if !waits.is_for_others && waits.gathered > 0 {
            waits.writers.note_all(waits.waiting.len());
            cx.mark("all writers wait for the disk");
            self.ask_for_durability(cx);
        }
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
        waits.writers.note_group(done.len() + waits.waiting.len());
        if waits.is_group() {
            // Others than those that are answered now: they need not wait for these to come back.
            self.ask_for_durability(cx);
        }
        for (_, handle) in done {
            self.finish_on_disk(cx, handle);
        }
        Some(())
    }

    /// The log has room for the ends of epochs, or has not.
    pub(crate) fn on_log_room_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<LogRoomBody>()?;
        self.disk_waits.room = order.room()?;
        self.wait_no_longer(cx);
        Some(())
    }

    /// If there is no room for the end of an epoch, those that wait for one are answered.
    pub(crate) fn wait_no_longer(&mut self, cx: &mut Context<'_>) {
        let waits = &mut self.disk_waits;
        if waits.room != LogRoom::None {
            return;
        }
        waits.gathered = 0;
        for (_, handle) in core::mem::take(&mut waits.waiting) {
            cx.mark("commit is answered as not known to be on disk");
            self.finish_not_on_disk(cx, handle);
        }
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
    fn half_of_all_writers_wait_for_each_other() {
        let is_group = |gathered, count| {
            DiskWaits { gathered, writers: Writers { count, ..Writers::default() }, ..DiskWaits::new() }
                .is_group()
        };
        assert!(is_group(1, 0) && is_group(1, 1) && is_group(1, 2));
        assert!(!is_group(1, 3) && is_group(2, 3) && is_group(2, 4));
        assert!(!is_group(31, 64) && is_group(32, 64));
    }

    #[test]
    fn writers_are_counted_now_and_then_unless_each_commit_was_alone() {
        let mut writers = Writers::default();
        for _ in 0..=TRIED_EVERY {
            writers.note_group(1);
        }
        assert!(!writers.is_count_due());
        writers.note_group(3);
        assert!(writers.is_count_due() && writers.count == 3);
        writers.note_all(40);
        assert!(!writers.is_count_due() && writers.count == 40);
        writers.note_group(41);
        assert_eq!(writers.count, 41);
        writers.note_all(2);
        assert_eq!(writers.count, 2);
    }
}
