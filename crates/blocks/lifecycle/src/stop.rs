//! The stop of a node in order: everything that was committed is brought to disk before the node ends.
//!
//! The driver asks for it when no client can send anything any more and the threads have done what was sent before.
//! What is committed by then is in the present epoch at the latest, and the present epoch gets an end record. That is
//! done twice: a transaction that was being committed when the first round began may have got the next epoch.
//!
//! If the log has no room for that, and no checkpoint that would make some is being written, the node ends at once, and
//! not in order: there is nothing to wait for.
//!
//! Then the system file notes that the node has stopped in order. A node that is killed instead loses what was
//! committed since the last global checkpoint, and nothing else.

use crate::{Lifecycle, Phase};
use vinga_base::Epoch;
use vinga_kernel::Context;
use vinga_wire::epoch::{EpochBody, LogRoom, LogRoomBody};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber};

/// Epochs that are brought to disk.
const ROUNDS: u32 = 2;

/// A stop that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stop {
    /// Who is answered.
    requester: Address,
    /// Rounds that have begun.
    rounds: u32,
    /// The epoch that is being brought to disk.
    epoch: Epoch,
    /// All rounds are done: the system file is being written.
    is_recorded: bool,
}

impl Lifecycle {
    /// No client sends anything any more, and the node is to end.
    pub(crate) fn on_node_stop_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        assert!(self.stop.is_none(), "a node stops once");
        let requester = frame.sender();
        if self.file.is_none() || self.phase != Phase::Started {
            cx.frame(SignalNumber::NodeStopConfirm, requester);
            return Some(());
        }
        self.stop = Some(Stop { requester, rounds: 0, epoch: Epoch(0), is_recorded: false });
        self.begin_round(cx);
        Some(())
    }

    fn begin_round(&mut self, cx: &mut Context<'_>) {
        let president = cx.view().president().expect("this node is one that can be");
        let distribution = Address::new(president, BlockNumber::Distribution, 0);
        let stop = self.stop.as_mut().expect("the node stops");
        stop.rounds += 1;
        stop.epoch = self.epoch;
        cx.frame(SignalNumber::DurabilityRequest, distribution).put(&EpochBody::new(self.epoch));
        self.give_up_stop(cx);
    }

    /// The log has room for the ends of epochs, or has not.
    pub(crate) fn on_log_room_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<LogRoomBody>()?;
        self.log_room = order.room()?;
        self.give_up_stop(cx);
        Some(())
    }

    /// The node ends, but not in order, if there is no room for what it lacks.
    fn give_up_stop(&mut self, cx: &mut Context<'_>) {
        if self.log_room == LogRoom::None && self.stop.take_if(|stop| !stop.is_recorded).is_some() {
            cx.mark("stop in order is given up because the log is full");
            let code = ErrorCode::RedoLogFull;
            cx.stop_node_for(
                code as u16,
                format_args!(
                    "the redo log has no room for the end of the present epoch, and no checkpoint could be written \
                     that would make some, as a full disk has none for it: make room, or raise NoOfFragmentLogFiles"
                ),
            );
        }
    }

    /// The epoch of a round is on disk.
    pub(crate) fn on_durability_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (confirm, _) = frame.head::<EpochBody>()?;
        let Some(stop) = self.stop.as_mut().filter(|stop| stop.epoch == confirm.epoch()) else {
            return Some(());
        };
        if stop.rounds < ROUNDS {
            self.begin_round(cx);
            return Some(());
        }
        stop.is_recorded = true;
        self.file.as_mut().expect("the node has a disk").note_clean(cx);
        Some(())
    }

    /// The system file is on disk as it is.
    pub(crate) fn finish_stop(&mut self, cx: &mut Context<'_>) {
        if let Some(stop) = self.stop.take_if(|stop| stop.is_recorded) {
            cx.frame(SignalNumber::NodeStopConfirm, stop.requester);
        }
    }
}
