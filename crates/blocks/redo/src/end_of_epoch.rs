//! The end of an epoch: everything up to it is brought to the disk.
//!
//! 1. The data managers send what they have (`RedoDrainRequest`). The epoch is closed, so all of it is committed.
//! 2. The open block gets the end record and is written.
//! 3. The files are flushed; when all have confirmed, so does the stream.
//!
//! An end record takes a sector of the log for which nobody has credit. When hardly any are left, the end of an epoch
//! waits for room (`room_for_ends`). A checkpoint that is written, and only lacks the end of its epoch to free some of
//! the log, is the exception: what is left is kept for these ends.

use crate::Redo;
use alloc::collections::BTreeSet;
use vinga_base::Epoch;
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::epoch::EpochBody;
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber};

/// An epoch that is being ended.
pub struct Ending {
    epoch: Epoch,
    requester: Address,
    /// Data managers that have not sent everything.
    awaited: BTreeSet<u16>,
    /// The block with the end record and its segment, once that is written.
    written: Option<(u64, u64)>,
    /// Files that are not flushed.
    unflushed: BTreeSet<u32>,
}

impl Ending {
    /// Whether all data managers have sent everything, and nothing is written yet.
    fn is_complete(&self) -> bool {
        self.awaited.is_empty() && self.written.is_none()
    }
}

impl Redo {
    pub(crate) fn on_epoch_end_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (request, _) = frame.head::<EpochBody>()?;
        let epoch = request.epoch();
        assert!(epoch > self.ended, "epochs end in their order");
        assert!(self.ending.is_none(), "one epoch ends at a time");
        assert!(self.writer.is_some(), "epochs end once the log is open");
        let participants = self.settings.participants.clone();
        for instance in participants.clone() {
            let receiver = Address::new(cx.own().node(), BlockNumber::DataManager, instance);
            cx.frame(SignalNumber::RedoDrainRequest, receiver).put(request);
        }
        self.ending = Some(Ending {
            epoch,
            requester: frame.sender(),
            awaited: participants.collect(),
            written: None,
            unflushed: BTreeSet::new(),
        });
        Some(())
    }

    pub(crate) fn on_redo_drain_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (confirm, _) = frame.head::<EpochBody>()?;
        let ending = self.ending.as_mut().expect("an epoch ends");
        assert!(ending.epoch == confirm.epoch(), "one epoch ends at a time");
        ending.awaited.remove(&frame.sender().instance());
        self.go_on_ending(cx);
        Some(())
    }

    /// Writes the end of an epoch of which everything has come, if there is room for it.
    pub(crate) fn go_on_ending(&mut self, cx: &mut Context<'_>) {
        if !self.ending.as_ref().is_some_and(Ending::is_complete) {
            return;
        }
        if !self.ends_lack_room() {
            self.write_end(cx);
        } else if !self.room_for_ends.is_end_held {
            cx.mark("end of an epoch waits for room in the log");
            self.room_for_ends.is_end_held = true;
            self.consider_round(cx);
            self.report_room(cx);
        }
    }

    fn write_end(&mut self, cx: &mut Context<'_>) {
        self.room_for_ends.note_end();
        let ending = self.ending.as_mut().expect("an epoch ends");
        let writer = self.writer.as_mut().expect("the log is open");
        let epoch = if cx.has_bug(InjectedBug::EndRecordForgotten) { Epoch(0) } else { ending.epoch };
        let block = writer.end_epoch(cx, &mut self.segments, epoch);
        let segment = self.segments.newest().expect("a block was written").number;
        ending.written = Some((block, segment));
        // An end record takes room, too, though nobody has logged anything.
        if self.checkpoints.note_logged(writer.position()) {
            self.consider_round(cx);
        }
        self.keep_margin(cx);
        if cx.has_bug(InjectedBug::FlushLeftOut) {
            self.finish_epoch(cx);
            return;
        }
        let writer = self.writer.as_mut().expect("the log is open");
        let unflushed = writer.flush(cx);
        self.ending.as_mut().expect("an epoch ends").unflushed = unflushed;
    }

    pub(crate) fn on_flushed(&mut self, cx: &mut Context<'_>, file: u32) {
        let Some(ending) = self.ending.as_mut().filter(|_| !self.failed_writes.is_any()) else { return };
        ending.unflushed.remove(&file);
        if ending.written.is_some() && ending.unflushed.is_empty() {
            self.finish_epoch(cx);
        }
    }

    fn finish_epoch(&mut self, cx: &mut Context<'_>) {
        let Ending { epoch, requester, written, .. } = self.ending.take().expect("an epoch ends");
        let (block, segment) = written.expect("the end record is written");
        self.ended = epoch;
        self.statistics.epochs += 1;
        self.end_mark = Some((epoch, segment));
        self.writer.as_mut().expect("the log is open").note_flushed(block);
        cx.frame(SignalNumber::EpochEndConfirm, requester).put(&EpochBody::new(epoch));
    }
}
