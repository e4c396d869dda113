//! Handing a primary over: this data manager comes to rest, and the next view may name another one
//! (`docs/protocols/node-restart.md`, decision 0034).
//!
//! Locks, and what waits for them, exist at the primary only. So it moves when nobody has any: operations of
//! transactions that hold nothing here are *put off*, as they came, while those that hold something come to their ends.
//! Then it has the chain *flushed*: what it had sent to the other replicas before, of transactions that were rolled
//! back, has arrived when the last of them answers. Otherwise it might come behind what the next primary does. If all
//! that takes too long the primary goes on. What it has promised holds in one view, and ends with that.
//!
//! Reads without locks are not put off. A change at the next primary is committed only when this replica has taken part
//! in it, and it takes part when it has adopted the view: so what it shows before is what there is.
//!
//! **Prepares of another view.** A prepare counts if this has been the primary since the view in which it was sent, or
//! longer. Any other one goes back to its coordinator, which sends it to the primary of its own view. If it has rolled
//! the transaction back meanwhile, the prepare is dropped: so none is executed behind the rollback that was to undo it.

use crate::DataManager;
use alloc::vec::Vec;
use vinga_base::{Epoch, TransactionId, ViewNumber};
use vinga_kernel::{Context, InjectedBug, Span, Tick};
use vinga_wire::commit::{AbortBody, PrepareHead, WHOLE_TRANSACTION};
use vinga_wire::frame::Frames;
use vinga_wire::restart::HandOverBody;
use vinga_wire::{Address, Frame, SignalNumber, cold};

/// How long operations are put off for a primary to come to rest: far less than a wait for a lock may take.
const PATIENCE: Span = Span::from_millis(100);

/// Bytes of operations that are put off, at most, before the primary has promised: it goes on rather.
const PUT_OFF_MAX: usize = 1 << 20;

/// Whether this data manager is the primary of its partition, and stays so.
#[derive(Default)]
pub(crate) struct Primary {
    /// The low byte of the view whose prepares are executed as they come; `None` if this is no primary, or is handed
    /// over.
    usual: Option<u8>,
    /// The view since which this has been the primary.
    since: Option<ViewNumber>,
    hand_over: Option<HandOver>,
}

/// A primary that is handed over.
struct HandOver {
    requester: Address,
    body: HandOverBody,
    stage: Stage,
    /// Until when it is to promise.
    until: Tick,
    /// Prepares that were put off, as they came.
    frames: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Transactions that hold something here go on.
    Resting,
    /// Nobody holds anything; what was sent along the chain is on its way.
    Flushing,
    /// The next view may name another primary.
    Promised,
}

impl Primary {
    /// Whether a prepare of a view, by the low byte of its number, is executed as it comes.
    #[inline]
    pub fn begins_at_once(&self, view: u8) -> bool {
        self.usual == Some(view)
    }

    pub fn is_handed_over(&self) -> bool {
        self.hand_over.is_some()
    }

    fn note_usual(&mut self, cx: &Context<'_>) {
        let is_usual = self.since.is_some() && self.hand_over.is_none();
        self.usual = is_usual.then_some(cx.view().number().0 as u8);
    }
}

impl DataManager {
    /// A view has begun: this may be the primary now, or none any more. Of a hand-over nothing holds any more.
    pub(crate) fn follow_primary(&mut self, cx: &mut Context<'_>) {
        let view = cx.view();
        let is_primary =
            !view.members().is_empty() && view.owned_by(self.owner).chain.primary() == self.settings.node;
        let was_primary = self.primary.since.is_some();
        self.primary.since = is_primary.then(|| self.primary.since.unwrap_or(view.number()));
        if was_primary && !is_primary {
            cx.mark("primary has been handed over");
            self.move_scans(cx);
        }
        self.end_hand_over(cx);
    }

    /// Executes what was put off, or sends it back.
    fn end_hand_over(&mut self, cx: &mut Context<'_>) {
        let hand_over = self.primary.hand_over.take();
        self.primary.note_usual(cx);
        for frame in Frames(&hand_over.map(|it| it.frames).unwrap_or_default()) {
            self.handle_signal(cx, &frame);
        }
    }

    /// What becomes of a prepare that is not executed as it comes; false if it is executed now.
    #[cold]
    pub(crate) fn is_put_off(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>, head: &PrepareHead) -> bool {
        let sent_in = cx.view_of(frame);
        if self.primary.since.is_none_or(|since| sent_in < since) {
            cx.mark("prepare goes back from a primary that was handed over");
            let coordinator = Address(head.actor.acting.get());
            cx.frame(SignalNumber::PrepareMovedReport, coordinator).bytes(frame.body);
            return true;
        }
        let Some(hand_over) = &mut self.primary.hand_over else { return false };
        let id = TransactionId(head.transaction.get());
        if hand_over.stage == Stage::Resting && self.versions.find_transaction(id).is_some() {
            return false;
        }
        cx.mark("prepare is put off while the primary is handed over");
        frame.append_to(&mut hand_over.frames);
        true
    }

    /// A transaction is rolled back: nothing of it is put off any more.
    pub(crate) fn forget_put_off(&mut self, order: &AbortBody) {
        let Some(hand_over) = &mut self.primary.hand_over else { return };
        if order.from.get() != WHOLE_TRANSACTION {
            return;
        }
        let is_meant = |frame: &Frame<'_>| {
            let (head, _) = frame.head::<PrepareHead>().expect("it was whole when it came");
            head.transaction == order.transaction && head.actor.has_same_coordinator(&order.actor)
        };
        if Frames(&hand_over.frames).any(|frame| is_meant(&frame)) {
            let mut left = Vec::new();
            for frame in Frames(&hand_over.frames).filter(|frame| !is_meant(frame)) {
                frame.append_to(&mut left);
            }
            hand_over.frames = left;
        }
    }

    pub(crate) fn on_hand_over_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let body: HandOverBody = cold::read(frame)?;
        let requester = frame.sender();
        let may_begin = body.view == cx.view().number()
            && self.primary.since.is_some()
            && self.primary.hand_over.is_none()
            && self.has_begun
            && self.copying.source.is_none()
            && self.backup.is_none();
        if !may_begin {
            cx.mark("primary can't be handed over now");
            cold::write(&mut cx.frame(SignalNumber::HandOverRefuse, requester), &body);
            return Some(());
        }
        let until = cx.now() + PATIENCE;
        let stage = Stage::Resting;
        self.primary.hand_over = Some(HandOver { requester, body, stage, until, frames: Vec::new() });
        self.primary.note_usual(cx);
        self.hand_over_slice(cx);
        Some(())
    }

    pub(crate) fn on_hand_over_release_order(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let body: HandOverBody = cold::read(frame)?;
        if self.primary.hand_over.as_ref().is_some_and(|it| it.body == body) {
            self.end_hand_over(cx);
        }
        Some(())
    }

    /// Has the chain flushed when this primary has come to rest, and gives up when it takes too long until it can
    /// promise.
    #[inline(never)]
    pub(crate) fn hand_over_slice(&mut self, cx: &mut Context<'_>) {
        let Some(HandOver { body, stage, until, ref frames, .. }) = self.primary.hand_over else { return };
        let is_too_long = cx.now() >= until || frames.len() > PUT_OFF_MAX;
        match stage {
            Stage::Promised => {}
            Stage::Resting if self.has_come_to_rest() || cx.has_bug(InjectedBug::PrimaryMovedWithLocks) => {
                cx.mark("primary has come to rest to be handed over");
                self.primary.hand_over.as_mut().expect("it is there").stage = Stage::Flushing;
                let is_flushed = cx.has_bug(InjectedBug::PrimaryMovedUnflushed);
                if is_flushed || !self.pass_flush_on(cx, &body) {
                    self.promise(cx);
                }
            }
            Stage::Resting | Stage::Flushing if is_too_long => {
                cx.mark("primary has not come to rest in time");
                self.refuse_hand_over(cx);
            }
            Stage::Resting | Stage::Flushing => {}
        }
    }

    /// Goes on as the primary, if it has not promised yet that another one may; returns whether it does.
    pub(crate) fn refuse_hand_over(&mut self, cx: &mut Context<'_>) -> bool {
        match self.primary.hand_over {
            Some(HandOver { stage: Stage::Promised, .. }) => return false,
            Some(HandOver { requester, body, .. }) => {
                cold::write(&mut cx.frame(SignalNumber::HandOverRefuse, requester), &body);
                self.end_hand_over(cx);
            }
            None => {}
        }
        true
    }

    fn promise(&mut self, cx: &mut Context<'_>) {
        let Some(HandOver { requester, body, stage, .. }) = &mut self.primary.hand_over else { return };
        *stage = Stage::Promised;
        cold::write(&mut cx.frame(SignalNumber::HandOverConfirm, *requester), body);
    }

    /// Sends a flush behind all that was sent along the chain; false if this is its end.
    fn pass_flush_on(&self, cx: &mut Context<'_>, body: &HandOverBody) -> bool {
        let chain = cx.view().owned_by(self.owner).chain;
        let Some(next) = chain.next(self.settings.node) else { return false };
        let next = self.owner.at(next);
        cold::write(&mut cx.frame(SignalNumber::HandOverFlushRequest, next), body);
        true
    }

    /// The replica before has sent nothing that has not arrived: nor has this one, when the flush arrives at the next.
    /// In another view nothing is handed over any more.
    pub(crate) fn on_hand_over_flush_request(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let body: HandOverBody = cold::read(frame)?;
        if body.view == cx.view().number() && !self.pass_flush_on(cx, &body) {
            let primary = cx.view().owned_by(self.owner).chain.primary();
            let primary = self.owner.at(primary);
            cold::write(&mut cx.frame(SignalNumber::HandOverFlushConfirm, primary), &body);
        }
        Some(())
    }

    pub(crate) fn on_hand_over_flush_confirm(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let body: HandOverBody = cold::read(frame)?;
        let is_awaited = |it: &HandOver| it.body == body && it.stage == Stage::Flushing;
        if self.primary.hand_over.as_ref().is_some_and(is_awaited) {
            self.promise(cx);
        } else {
            cx.mark("flush of a primary that was not handed over");
        }
        Some(())
    }

    /// Whether nothing is left that only the primary has, but what is over: records of transactions that are committed
    /// everywhere, until these are complete, and markers. All replicas have these.
    fn has_come_to_rest(&self) -> bool {
        let mut open = self.versions.transactions.iter();
        self.locks.is_empty()
            && self.endings.is_empty()
            && open.all(|(_, transaction)| transaction.committed != Epoch(0))
            && !self.has_tied_scan()
    }

    /// What holds of a primary that is handed over.
    pub(crate) fn check_hand_over(&self) {
        let Some(hand_over) = &self.primary.hand_over else { return };
        assert!(self.primary.since.is_some(), "only a primary is handed over");
        assert!(self.primary.usual.is_none(), "prepares are put off");
        assert!(self.backup.is_none() && self.copying.source.is_none(), "it would be missed");
        for frame in Frames(&hand_over.frames) {
            assert_eq!(frame.signal(), Some(SignalNumber::PrepareRequest), "nothing else is put off");
        }
    }
}
