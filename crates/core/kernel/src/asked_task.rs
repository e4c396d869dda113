//! A task of the node's start that a block was asked for, until it is answered.
//!
//! Each `StartRequest` is answered once, by `StartConfirm` or `StartRefuse` with its step. A block does one task at a
//! time.

use crate::{Context, Span, Tick};
use alloc::string::String;
use vinga_base::Amount;
use vinga_wire::file::{FileErrorKind, FileRefuse};
use vinga_wire::start::{StartConfirm, StartPartReport, StartRefuse, StartRequest, StartResult, StartTask};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, cold};

/// What to do about a file that a newer program has written.
pub const USE_NEWER_PROGRAM: &str = "use the program that has written it, or a newer one";

/// Who waits for the present task of a block; nobody between tasks.
#[derive(Default)]
pub struct AskedTask {
    /// The requester, and the step of its request.
    asked: Option<(Address, u32)>,
    /// Since when nothing was reported of it.
    quiet_since: Option<Tick>,
}

/// How often it is reported how far a task is.
const REPORT_AGAIN: Span = Span::from_millis(500);

impl AskedTask {
    /// Takes a request on; returns what is to be done, `None` if the frame is malformed.
    pub fn take_on(&mut self, frame: &Frame<'_>) -> Option<StartTask> {
        let StartRequest { step, task } = cold::read(frame)?;
        assert!(self.asked.is_none(), "one task at a time");
        (self.asked, self.quiet_since) = (Some((frame.sender(), step)), None);
        Some(task)
    }

    /// Whether somebody waits.
    pub fn is_under_way(&self) -> bool {
        self.asked.is_some()
    }

    /// So much of the task is done: that is reported now and then.
    pub fn note_amount(&mut self, cx: &mut Context<'_>, amount: Amount) {
        let quiet_since = *self.quiet_since.get_or_insert(cx.now());
        if cx.now().since(quiet_since) >= REPORT_AGAIN {
            self.report_amount(cx, amount);
        }
    }

    /// Reports how much of the task is done.
    pub fn report_amount(&mut self, cx: &mut Context<'_>, amount: Amount) {
        self.quiet_since = Some(cx.now());
        if let Some((requester, step)) = self.asked {
            let report = StartPartReport { step, amount };
            cold::write(&mut cx.frame(SignalNumber::StartPartReport, requester), &report);
        }
    }

    /// The task is done.
    pub fn confirm(&mut self, cx: &mut Context<'_>, result: StartResult) {
        let (requester, step) = self.asked.take().expect("somebody waits for the task");
        cold::write(&mut cx.frame(SignalNumber::StartConfirm, requester), &StartConfirm { step, result });
    }

    /// The task can't be done with these files. If it was refused before, what comes of it later changes nothing.
    pub fn refuse(&mut self, cx: &mut Context<'_>, reason: String) {
        self.refuse_with(cx, 0, reason);
    }

    /// The task can't be done, because of this error.
    pub fn refuse_for(&mut self, cx: &mut Context<'_>, error: ErrorCode, reason: String) {
        self.refuse_with(cx, error as u16, reason);
    }

    /// The task can't be done, because of a file. Where the system does not permit it, the files are not to blame.
    pub fn refuse_for_file(&mut self, cx: &mut Context<'_>, refuse: &FileRefuse) {
        match refuse.kind {
            FileErrorKind::NotPermitted => {
                self.refuse_for(cx, ErrorCode::FileNotPermitted, refuse.describe());
            }
            FileErrorKind::Failed => self.refuse_for(cx, ErrorCode::FileFailed, refuse.text.clone()),
            FileErrorKind::NotFound | FileErrorKind::DiskFull => self.refuse(cx, refuse.text.clone()),
        }
    }

    fn refuse_with(&mut self, cx: &mut Context<'_>, error: u16, reason: String) {
        if let Some((requester, step)) = self.asked.take() {
            let refuse = StartRefuse { step, reason, error };
            cold::write(&mut cx.frame(SignalNumber::StartRefuse, requester), &refuse);
        }
    }
}
