//! Definitions while the redo log is full.
//!
//! A change is answered when its epoch has an end record in the log (`change`). While hardly any room is left for
//! these, changes are refused before anything of them is on disk. One that is recorded by then gets its end record; if
//! even that has no room, its requester is answered that it can't be said whether the change is there after a restart.
//! The change itself goes on when there is room.

use crate::Dictionary;
use crate::plan::Refused;
use crate::rounds::Round;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_kernel::Context;
use vinga_wire::epoch::{LogRoom, LogRoomBody};
use vinga_wire::{ErrorCode, Frame};

impl Dictionary {
    /// Refuses changes that would wait for an end record in vain.
    pub(crate) fn check_room(&self) -> Result<(), Refused> {
        if self.file.is_none() || self.log_room == LogRoom::Enough {
            return Ok(());
        }
        Err(log_is_full())
    }

    pub(crate) fn on_log_room_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<LogRoomBody>()?;
        self.log_room = order.room()?;
        if self.log_room != LogRoom::Enough {
            let queued: Vec<_> = self.queue.drain(..).collect();
            for (requester, _) in queued {
                cx.mark("queued schema change is refused because the log is full");
                self.refuse(cx, requester, log_is_full());
            }
        }
        self.answer_without_end(cx);
        Some(())
    }

    /// If there is no room for the end record of the present change, nobody waits for it any more.
    pub(crate) fn answer_without_end(&mut self, cx: &mut Context<'_>) {
        let waiting = self.change.as_mut().filter(|change| change.round == Round::Durability);
        if self.log_room == LogRoom::None
            && let Some(requester) = waiting.and_then(|change| change.requester.take())
        {
            cx.mark("schema change is answered as not known to be on disk");
            self.refuse(cx, requester, Refused { code: ErrorCode::NotOnDisk, detail: String::new() });
        }
    }
}

fn log_is_full() -> Refused {
    Refused { code: ErrorCode::RedoLogFull, detail: String::new() }
}
