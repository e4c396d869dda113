//! The environment of a block while it handles a signal.

use crate::files::{FileData, FileName, FileRequest, FileTask};
use crate::injected_bug::{self, InjectedBug};
use crate::outbox::Outbox;
use crate::timers::{Timer, Timers};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use vinga_base::aligned::SECTOR_BYTES;
use vinga_base::time::{Span, Tick};
use vinga_base::{NodeId, ViewNumber};
use vinga_wire::file::StopNodeOrder;
use vinga_wire::view::ClusterView;
use vinga_wire::{Address, BlockNumber, Frame, FrameWriter, SignalNumber, cold};

/// The severity of a log entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Something failed that needs attention.
    Error,
    /// Something unusual that was handled.
    Warning,
    /// Something rare that is worth knowing.
    Info,
}

/// One line for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// Its severity.
    pub level: LogLevel,
    /// The block that wrote it.
    pub block: Address,
    /// What happened.
    pub text: String,
}

/// Log entries of one turn, at most: further ones are dropped, and the last entry says so.
pub const LOG_ENTRIES_MAX: usize = 64;

/// What a block may do while it handles a signal.
pub struct Context<'a> {
    pub(crate) now: Tick,
    pub(crate) own: Address,
    pub(crate) trace: u32,
    pub(crate) shared: &'a mut Shared,
}

/// State that all blocks of a thread share through their contexts.
pub(crate) struct Shared {
    pub outbox: Outbox,
    pub timers: Timers,
    pub random: fastrand::Rng,
    pub log: Vec<LogEntry>,
    pub view: Arc<ClusterView>,
    pub slice_units: u32,
    /// Work in the background is done in small pieces.
    pub is_brief: bool,
    /// No block has done work in the background since the slices of this turn began.
    pub background_is_free: bool,
    /// How busy the thread was, in percent.
    pub load: u8,
    pub bug: Option<InjectedBug>,
    pub marks: Option<BTreeSet<&'static str>>,
    /// What blocks have asked of files in this turn.
    pub file_requests: Vec<FileRequest>,
    /// What was handed over with confirmations, until the block takes it.
    pub file_data: BTreeMap<(Address, u64), FileData>,
    /// Other data nodes of which a block has rejected a signal: nothing more of them is handled.
    pub rejected: Vec<NodeId>,
}

impl Context<'_> {
    /// The tick of this turn.
    #[inline]
    pub fn now(&self) -> Tick {
        self.now
    }

    /// The address of the block that is handling the signal.
    #[inline]
    pub fn own(&self) -> Address {
        self.own
    }

    /// The same context for another block of this thread, for a host that passes a signal to several blocks.
    pub fn for_block(&mut self, own: Address) -> Context<'_> {
        Context { now: self.now, own, trace: self.trace, shared: self.shared }
    }

    /// The address of this thread's driver.
    pub fn driver(&self) -> Address {
        let routes = &self.shared.outbox.routes;
        Address::new(routes.own_node(), BlockNumber::Driver, routes.own_thread())
    }

    /// The view that this thread is in.
    #[inline]
    pub fn view(&self) -> &ClusterView {
        &self.shared.view
    }

    /// The same, to be kept while the context is used for something else.
    pub fn shared_view(&self) -> Arc<ClusterView> {
        self.shared.view.clone()
    }

    /// The view in which the sender of a frame was when it sent it: this thread's, or one of the 127 before it; number
    /// 0 if it had none.
    pub fn view_of(&self, frame: &Frame<'_>) -> ViewNumber {
        if frame.is_without_view() {
            return ViewNumber(0);
        }
        let own = self.view().number().0;
        let behind = (own as u8).wrapping_sub(frame.header.view);
        ViewNumber(own.saturating_sub(u32::from(behind)))
    }

    /// Begins a signal to `receiver`. It is sent when the writer is dropped.
    #[inline]
    pub fn frame(&mut self, number: SignalNumber, receiver: Address) -> FrameWriter<'_> {
        let view = self.shared.view.number().0;
        let mut writer = FrameWriter::begin(
            self.shared.outbox.buffer_for(receiver),
            number,
            view as u8,
            receiver,
            self.own,
            self.trace,
        );
        if view == 0 {
            writer.without_view();
        }
        writer
    }

    /// Whether so many bytes wait on the way to `receiver` that work for it should be refused.
    #[inline]
    pub fn is_congested(&self, receiver: Address) -> bool {
        self.shared.outbox.is_congested(receiver)
    }

    /// Whether `receiver`'s node is connected (always true for blocks of the own node).
    pub fn is_reachable(&self, receiver: Address) -> bool {
        self.shared.outbox.is_reachable(receiver)
    }

    /// Asks for a task on a file, which is answered by `FileConfirm` or `FileRefuse` with this token. The token of a
    /// task is not used for another one before it is answered.
    pub fn file(&mut self, file: FileName, token: u64, task: FileTask) {
        let (offset, bytes) = task.place();
        assert!(
            (offset | bytes).is_multiple_of(SECTOR_BYTES as u64),
            "{bytes} bytes at {offset} of {} are no whole sectors",
            file.path()
        );
        let requester = self.own;
        self.shared.file_requests.push(FileRequest { requester, token, file, task });
    }

    /// What was handed over with the confirmation that is being handled. It is there until it is taken.
    pub fn take_file_data(&mut self, token: u64) -> FileData {
        self.shared.file_data.remove(&(self.own, token)).unwrap_or_default()
    }

    /// Has the driver end the process, with a reason for people: the node can't go on, but not because of an error in
    /// it.
    pub fn stop_node(&mut self, reason: fmt::Arguments<'_>) {
        self.stop_node_for(0, reason);
    }

    /// The same, because of the error with this number; 0 for none.
    pub fn stop_node_for(&mut self, error: u16, reason: fmt::Arguments<'_>) {
        let driver = self.driver();
        let order = StopNodeOrder { reason: reason.to_string(), error };
        cold::write(&mut self.frame(SignalNumber::StopNodeOrder, driver), &order);
    }

    /// Sends `TimerReport` with this token to the block itself, after a span of time.
    pub fn send_after(&mut self, span: Span, token: u64) {
        let timer = Timer { owner: self.own, token };
        self.shared.timers.set(self.now + span, timer);
    }

    /// The thread's generator, seeded by the driver.
    pub fn random(&mut self) -> &mut fastrand::Rng {
        &mut self.shared.random
    }

    /// How many units of work (rows examined, for example) a slice of long work may do.
    #[inline]
    pub fn slice_units(&self) -> u32 {
        self.shared.slice_units
    }

    /// How many units of work a block may do in this turn for which nobody waits, such as a checkpoint: as many as any
    /// slice; while it is to be [brief](Context::is_brief) a single one, and only one block of the thread, so that
    /// requests wait for no more than that. With 0 the block goes on in a later turn. To be called once a turn, by a
    /// block that will do the work.
    pub fn background_units(&mut self) -> u32 {
        if !self.shared.is_brief {
            return self.shared.slice_units;
        }
        u32::from(core::mem::take(&mut self.shared.background_is_free))
    }

    /// Whether requests arrive a few at a time, so that what nobody waits for should be done in small pieces.
    #[inline]
    pub fn is_brief(&self) -> bool {
        self.shared.is_brief
    }

    /// How busy this thread was during about the last second: the share of time in percent that it spent in turns, as
    /// its driver has measured it; 0 where nobody measures.
    #[inline]
    pub fn load(&self) -> u8 {
        self.shared.load
    }

    /// Writes an entry to the log.
    pub fn log(&mut self, level: LogLevel, text: fmt::Arguments<'_>) {
        let log = &mut self.shared.log;
        match log.len() {
            0..LOG_ENTRIES_MAX => log.push(LogEntry { level, block: self.own, text: text.to_string() }),
            LOG_ENTRIES_MAX => log.push(LogEntry {
                level: LogLevel::Warning,
                block: self.own,
                text: "more was to be logged in this turn than fits".to_string(),
            }),
            _ => {}
        }
    }

    /// Whether this run breaks that rule on purpose; the constant `false` in builds without injected bugs.
    #[inline(always)]
    pub fn has_bug(&self, bug: InjectedBug) -> bool {
        injected_bug::is_on(self.shared.bug, bug)
    }

    /// The rule that this run breaks on purpose; `None` in builds without injected bugs.
    pub fn bug(&self) -> Option<InjectedBug> {
        self.shared.bug
    }

    /// Records a coverage mark: a rare branch was taken. The simulator reports the marks that were never recorded.
    #[inline]
    pub fn mark(&mut self, name: &'static str) {
        if let Some(marks) = &mut self.shared.marks {
            marks.insert(name);
        }
    }
}
