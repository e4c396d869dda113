//! The turn of a thread: frames in, frames out.
//!
//! A driver repeats: [`Executor::begin_turn`] with the clock's tick; [`Executor::feed`] with the frames from sockets
//! and rings; [`Executor::finish_turn`], which runs due timers and one slice of long work; then it moves the contents
//! of the outbox's lanes to their destinations. Within a turn the tick does not change.
//!
//! Frames are handled in *batches* of up to [`BATCH_FRAMES`]: first the host may prefetch the index lines of all of
//! them, then the rows or records that these name, and so on, as far as it knows further ones; then they are handled
//! one by one in their order. So the cache misses of one overlap with those of the others. A prefetch changes nothing,
//! so a stale one costs time and never correctness. After each batch the local lane is drained in the same way, until
//! it is empty: a request that needs no other thread is finished in its turn. Every chain of local signals ends,
//! because each signal of a protocol only leads to later ones of the same protocol; work that could continue without
//! end (a scan) is long work, done in slices.
//!
//! One request may lead to hundreds of local signals, of hundreds of rows each. If other senders are waiting, the
//! driver requests ([`Executor::set_patient`]) that such signals stay in the lane, in their order, and then has them
//! handled for as long as it chooses ([`Executor::drain_while`]). Frames of API nodes are handled in between: they
//! could as well have arrived before those signals, and between threads of a node they do. Frames of other origins wait
//! until the lane is empty, so that the order between any sender and any receiver in the node is kept.
//!
//! Frames between data nodes carry the low byte of the sender's view. A frame of a newer view than this thread's is
//! parked until the thread has adopted that view. It does so by `ViewChangedOrder`, which the driver feeds when nothing
//! of the members that the new view has lost can arrive any more; then each block is notified ([`Host::view_changed`]).
//! What the blocks send then is of the new view: its receivers adopt the view before they handle it. A thread that is
//! behind may adopt a view that lacks the sender of a parked frame: nobody of that view obeys it, so the frame is
//! dropped.
//!
//! Another data node that sends what it may not, or what a block can't handle, is treated as one that has failed at
//! that moment: its links are closed, and the thread handles nothing of it any more ([`crate::rejection`]).

use crate::context::{Context, LogEntry, Shared};
use crate::files::{FileAnswer, FileData, FileRequest};
use crate::injected_bug::InjectedBug;
use crate::outbox::{LaneId, Outbox};
use crate::timers::Timers;
use crate::trace_ring::TraceRing;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use vinga_base::time::Tick;
use vinga_base::{NodeId, ViewNumber};
use vinga_wire::file::{FileConfirm, FileRefuse};
use vinga_wire::frame::{FrameError, Frames};
use vinga_wire::signal::Senders;
use vinga_wire::view::{ClusterView, ViewChange};
use vinga_wire::{
    Address, BlockNumber, ErrorCode, Frame, FrameWriter, Header, SignalNumber, U16, U32, U64, cold,
};

/// Frames of a batch, at most. Measured: larger batches hide no further misses (docs/decisions/0001-spike.md).
pub const BATCH_FRAMES: usize = 64;

/// Local frames that are handled between two calls of `goes_on` in [`Executor::drain_while`], at most.
const LOCAL_FRAMES: usize = 16;

/// The prefetch passes over a batch. Each reads what the one before has loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefetch {
    /// Lines of indexes: of keys, and of the ids of transactions.
    Index,
    /// Rows, and records of transactions.
    Row,
    /// Operations of these transactions.
    Operation,
    /// Rows that these operations name, and what there is of them.
    RowState,
}

impl Prefetch {
    /// All passes, in their order.
    pub const ALL: [Prefetch; 4] = [Prefetch::Index, Prefetch::Row, Prefetch::Operation, Prefetch::RowState];
}

/// The blocks of one thread.
pub trait Host {
    /// Called once, before the first frame.
    fn start(&mut self, cx: &mut Context<'_>);

    /// Prefetches the memory that handling `frame` will access; may do nothing. Says whether a further pass would
    /// prefetch more for this frame.
    fn prefetch(&self, pass: Prefetch, frame: &Frame<'_>) -> bool;

    /// Hands a frame to the block instance that it is addressed to.
    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>);

    /// The thread has adopted another view.
    fn view_changed(&mut self, cx: &mut Context<'_>, change: &ViewChange);

    /// Does one slice of each long work in progress; returns whether more is left.
    fn slice(&mut self, cx: &mut Context<'_>) -> bool;

    /// Whether requests were read that are not answered yet, and will be without anything more from who has sent them.
    fn is_working(&self) -> bool {
        false
    }

    /// Writes the current state of the blocks, in a few lines, so that it can be included in a later crash report.
    /// Called about once a second; should not allocate.
    ///
    /// # Errors
    /// Those of `out`, when it has no more room.
    fn summarize(&self, _out: &mut dyn fmt::Write) -> fmt::Result {
        Ok(())
    }
}

/// Where fed bytes came from, which decides how far they are trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Another thread of this node, or this thread's driver.
    Node,
    /// The link to another data node: every frame is checked, but less of what it says is.
    Peer(NodeId),
    /// An API node's connection: every frame is checked.
    Api(NodeId),
}

/// Why bytes of an API node, or of another data node, were refused: its connection must be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rejected {
    /// The error to send and to log.
    pub code: ErrorCode,
    /// The number of the offending signal, 0 if the bytes were not a frame.
    pub signal: u16,
}

const EMPTY_HEADER: Header = Header {
    length: U32::ZERO,
    number: U16::ZERO,
    flags: 0,
    view: 0,
    receiver: U32::ZERO,
    sender: U32::ZERO,
    trace: U32::ZERO,
};

/// Runs the blocks of one thread.
pub struct Executor<H> {
    host: H,
    shared: Shared,
    own_node: NodeId,
    now: Tick,
    trace: TraceRing,
    /// The local lane's frames while they are handled.
    draining: Vec<u8>,
    /// Number of these bytes that have been handled.
    drained: usize,
    /// Whether local frames are left to the driver.
    is_patient: bool,
    /// Frames of newer views that wait.
    parked: Vec<u8>,
    /// Whether frames that were parked have been put into the local lane since the last drain.
    unparked: bool,
    handled: u64,
}

impl<H: Host> Executor<H> {
    /// An executor for `host` in this view. The driver provides the seed.
    pub fn new(
        own_node: NodeId,
        view: Arc<ClusterView>,
        host: H,
        outbox: Outbox,
        seed: u64,
        now: Tick,
    ) -> Self {
        let shared = Shared {
            outbox,
            timers: Timers::default(),
            random: fastrand::Rng::with_seed(seed),
            log: Vec::new(),
            view,
            slice_units: 512,
            is_brief: false,
            background_is_free: true,
            load: 0,
            bug: None,
            marks: None,
            file_requests: Vec::new(),
            file_data: BTreeMap::new(),
            rejected: Vec::new(),
        };
        let mut executor = Executor {
            host,
            shared,
            own_node,
            now,
            trace: TraceRing::default(),
            draining: Vec::with_capacity(64 * 1024),
            drained: 0,
            is_patient: false,
            parked: Vec::new(),
            unparked: false,
            handled: 0,
        };
        let mut cx = Context { now, own: Address::NONE, trace: 0, shared: &mut executor.shared };
        executor.host.start(&mut cx);
        executor
    }

    /// Begins a turn.
    pub fn begin_turn(&mut self, now: Tick) {
        self.now = self.now.max(now);
    }

    /// Handles all whole frames at the front of `bytes` and returns how many bytes they took; the driver keeps the rest
    /// until more bytes have arrived.
    ///
    /// # Errors
    /// If bytes from another node break a rule; frames before the offending one have been handled.
    pub fn feed(&mut self, bytes: &[u8], origin: Origin) -> Result<usize, Rejected> {
        let leaves_local = self.is_patient && matches!(origin, Origin::Api(_));
        if !leaves_local {
            self.drain_local(usize::MAX);
        }
        let mut consumed = 0;
        loop {
            let mut batch = [Frame { header: &EMPTY_HEADER, body: &[] }; BATCH_FRAMES];
            let mut count = 0;
            let mut rejected = None;
            while count < BATCH_FRAMES {
                match self.accept(&bytes[consumed..], origin) {
                    Ok(Some(frame)) => {
                        consumed += frame.length();
                        batch[count] = frame;
                        count += 1;
                    }
                    Ok(None) => break,
                    Err(why) => {
                        rejected = Some(why);
                        break;
                    }
                }
            }
            self.handle_batch(&batch[..count], origin);
            if !leaves_local {
                self.drain_local(usize::MAX);
            }
            if let Some(rejected) = rejected {
                return Err(rejected);
            }
            if count < BATCH_FRAMES || self.has_local() {
                return Ok(consumed);
            }
        }
    }

    /// The next frame, checked as its origin requires.
    #[inline]
    fn accept<'b>(&self, bytes: &'b [u8], origin: Origin) -> Result<Option<Frame<'b>>, Rejected> {
        let frame = match Frame::first(bytes) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(None),
            Err(FrameError::Length(_) | FrameError::Unaligned(_)) => {
                return Err(Rejected { code: ErrorCode::MalformedFrame, signal: 0 });
            }
        };
        let sender = frame.sender();
        let is_allowed = match origin {
            Origin::Node => return Ok(Some(frame)),
            Origin::Api(api) => {
                let of_api_nodes = |s: SignalNumber| matches!(s.senders(), Senders::Api | Senders::Any);
                let is_its_own = sender.node() == api && sender.block() == Some(BlockNumber::Api);
                is_its_own && frame.signal().is_some_and(of_api_nodes)
            }
            Origin::Peer(peer) => {
                let of_block = !matches!(sender.block(), Some(BlockNumber::Api | BlockNumber::Driver) | None);
                let is_its_own = sender.node() == peer && of_block;
                is_its_own && frame.signal().is_some_and(SignalNumber::is_of_data_nodes)
            }
        };
        // Drivers are no block: no other node sends them anything.
        let receiver = frame.receiver();
        let is_for_block =
            receiver.node() == self.own_node && self.shared.outbox.routes.thread_of(receiver).is_some();
        if !is_allowed || !is_for_block {
            return Err(Rejected { code: ErrorCode::UnexpectedSignal, signal: frame.header.number.get() });
        }
        Ok(Some(frame))
    }

    fn handle_batch(&mut self, batch: &[Frame<'_>], origin: Origin) {
        if batch.len() > 1 {
            for pass in Prefetch::ALL {
                let goes_on = batch.iter().fold(false, |more, frame| self.host.prefetch(pass, frame) | more);
                if !goes_on {
                    break;
                }
            }
        }
        for frame in batch {
            self.dispatch(frame, origin);
        }
    }

    #[inline]
    fn dispatch(&mut self, frame: &Frame<'_>, origin: Origin) {
        let receiver = frame.receiver();
        let is_here = receiver.node() == self.own_node
            && self.shared.outbox.routes.thread_of(receiver) == Some(self.shared.outbox.routes.own_thread());
        if !is_here {
            // It arrived on this thread's connection for another thread, or is to leave on a connection: pass it on as
            // it is.
            frame.append_to(self.shared.outbox.buffer_for(receiver));
            return;
        }
        if !matches!(origin, Origin::Api(_)) && self.is_of_newer_view(frame) {
            frame.append_to(&mut self.parked);
            return;
        }
        if self.shared.rejected.contains(&frame.sender().node()) {
            return;
        }
        if self.unparked {
            // The frames that were parked are older and wait in the local lane: keep the order.
            frame.append_to(self.shared.outbox.lane_mut(LaneId::LOCAL));
            return;
        }
        self.trace.record(self.now, frame);
        self.handled += 1;
        if frame.signal() == Some(SignalNumber::ViewChangedOrder) {
            self.adopt_view(frame);
            return;
        }
        let mut cx = Context {
            now: self.now,
            own: receiver,
            trace: frame.header.trace.get(),
            shared: &mut self.shared,
        };
        self.host.handle(&mut cx, frame);
    }

    /// Adopts a view, unless it is older than the present one, and handles what has waited for it.
    fn adopt_view(&mut self, frame: &Frame<'_>) {
        let new: ClusterView = cold::read(frame).expect("a data node sends whole views");
        if new.number() <= self.shared.view.number() {
            return;
        }
        let new = Arc::new(new);
        let old = core::mem::replace(&mut self.shared.view, new.clone());
        self.shared.rejected.retain(|&node| new.has(node));
        let trace = frame.header.trace.get();
        let mut cx = Context { now: self.now, own: Address::NONE, trace, shared: &mut self.shared };
        self.host.view_changed(&mut cx, &ViewChange { old, new });
        self.unpark();
    }

    /// A node that was rejected, if it was, has new connections: nothing that it has sent by the old ones arrives any
    /// more.
    pub fn readmit(&mut self, node: NodeId) {
        self.shared.rejected.retain(|&rejected| rejected != node);
    }

    /// The view that the thread is in.
    pub fn view(&self) -> &Arc<ClusterView> {
        &self.shared.view
    }

    /// Views are compared by their low byte: a thread is never more than 127 views behind. One of a node that is to
    /// join has none, number 0: all that comes waits until it has. What it has sent itself before, to its own blocks
    /// say, is of no later view, though its byte may look so.
    #[inline]
    fn is_of_newer_view(&self, frame: &Frame<'_>) -> bool {
        let own = self.shared.view.number();
        let ahead = frame.header.view.wrapping_sub(own.0 as u8) as i8;
        (ahead > 0 && !frame.is_without_view() || own == ViewNumber(0))
            && frame.signal() != Some(SignalNumber::ViewChangedOrder)
            && !matches!(
                frame.sender().block(),
                // Agreement knows newer views before threads adopt them, and is what brings them.
                Some(BlockNumber::Api | BlockNumber::Driver | BlockNumber::Agreement)
            )
    }

    /// Puts parked frames in front of everything that is in the local lane: they are older. Those of this view whose
    /// senders are no members of it are dropped.
    fn unpark(&mut self) {
        let parked = core::mem::take(&mut self.parked);
        let members = self.shared.view.members();
        let mut frames = Vec::with_capacity(parked.len());
        for frame in Frames(&parked) {
            let is_of_member = members.iter().any(|member| member.node == frame.sender().node());
            if is_of_member || self.is_of_newer_view(&frame) {
                frame.append_to(&mut frames);
            }
        }
        if frames.is_empty() {
            return;
        }
        self.unparked = true;
        let local = self.shared.outbox.lane_mut(LaneId::LOCAL);
        frames.extend_from_slice(local);
        *local = frames;
    }

    /// Handles frames of the local lane, at most `frames_left`.
    fn drain_local(&mut self, mut frames_left: usize) {
        loop {
            if self.drained == self.draining.len() {
                self.draining.clear();
                self.drained = 0;
                let local = self.shared.outbox.lane_mut(LaneId::LOCAL);
                if local.is_empty() {
                    return;
                }
                core::mem::swap(&mut self.draining, local);
                if core::mem::take(&mut self.unparked) {
                    // New frames must not overtake those that were parked.
                    frames_left = usize::MAX;
                }
            }
            if frames_left == 0 {
                return;
            }
            let draining = core::mem::take(&mut self.draining);
            let mut frames = Frames(&draining[self.drained..]);
            let mut batch = [Frame { header: &EMPTY_HEADER, body: &[] }; BATCH_FRAMES];
            let mut count = 0;
            for (place, frame) in batch.iter_mut().take(frames_left).zip(&mut frames) {
                self.drained += frame.length();
                *place = frame;
                count += 1;
            }
            self.handle_batch(&batch[..count], Origin::Node);
            frames_left -= count;
            self.draining = draining;
        }
    }

    /// Handles local frames that were left, as long as there are some and `goes_on` returns true. It is called after
    /// one frame, two more, four more, up to [`LOCAL_FRAMES`]. Returns whether some are left.
    pub fn drain_while(&mut self, mut goes_on: impl FnMut() -> bool) -> bool {
        let mut frames = 1;
        while self.has_local() {
            self.drain_local(frames);
            if !goes_on() {
                break;
            }
            frames = (frames * 2).min(LOCAL_FRAMES);
        }
        self.has_local()
    }

    /// Whether local frames were left: the driver must not sleep, and calls [`Executor::drain_while`].
    #[inline]
    pub fn has_local(&self) -> bool {
        self.drained < self.draining.len() || !self.shared.outbox.lane(LaneId::LOCAL).is_empty()
    }

    /// Bytes of local frames that were left.
    pub fn local_bytes(&self) -> usize {
        self.draining.len() - self.drained + self.shared.outbox.lane(LaneId::LOCAL).len()
    }

    /// Sets whether local frames are left to [`Executor::drain_while`], because others wait. The edge knows whether
    /// others wait, the simulator chooses it at random.
    pub fn set_patient(&mut self, is_patient: bool) {
        self.is_patient = is_patient;
    }

    /// Runs due timers and one slice of long work; returns whether long work is left, so that the driver does not
    /// sleep.
    pub fn finish_turn(&mut self) -> bool {
        self.run_timers();
        self.run_slices()
    }

    /// The first part of [`Executor::finish_turn`], for a driver that postpones long work.
    pub fn run_timers(&mut self) {
        while let Some(timer) = self.shared.timers.pop_due(self.now) {
            let local = self.shared.outbox.lane_mut(LaneId::LOCAL);
            let driver = Address::new(self.own_node, BlockNumber::Driver, 0);
            let view = self.shared.view.number().0 as u8;
            FrameWriter::begin(local, SignalNumber::TimerReport, view, timer.owner, driver, 0)
                .put(&U64::new(timer.token));
        }
        self.drain_unless_patient();
    }

    /// The second part of [`Executor::finish_turn`].
    pub fn run_slices(&mut self) -> bool {
        self.shared.background_is_free = true;
        let mut cx = Context { now: self.now, own: Address::NONE, trace: 0, shared: &mut self.shared };
        let more = self.host.slice(&mut cx);
        self.drain_unless_patient();
        more
    }

    fn drain_unless_patient(&mut self) {
        if !self.is_patient {
            self.drain_local(usize::MAX);
        }
    }

    /// When the driver must begin its next turn at the latest, even if nothing arrives.
    pub fn next_due(&self) -> Option<Tick> {
        self.shared.timers.next_due()
    }

    /// The outgoing lanes.
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.shared.outbox
    }

    /// Returns and removes the log entries since the last call.
    pub fn take_log(&mut self) -> Vec<LogEntry> {
        core::mem::take(&mut self.shared.log)
    }

    /// Returns and removes what blocks have asked of files since the last call, in order.
    pub fn take_file_requests(&mut self) -> Vec<FileRequest> {
        core::mem::take(&mut self.shared.file_requests)
    }

    /// Whether blocks have asked anything of files.
    pub fn has_file_requests(&self) -> bool {
        !self.shared.file_requests.is_empty()
    }

    /// Hands the answer to a task over to the block that has asked, as a signal from the driver.
    pub fn answer_file(&mut self, answer: FileAnswer) {
        let FileAnswer { requester, token, result } = answer;
        let driver = Address::new(self.own_node, BlockNumber::Driver, self.shared.outbox.routes.own_thread());
        let view = self.shared.view.number().0 as u8;
        let mut frame = Vec::new();
        match result {
            Ok(data) => {
                if !matches!(data, FileData::None) {
                    self.shared.file_data.insert((requester, token), data);
                }
                FrameWriter::begin(&mut frame, SignalNumber::FileConfirm, view, requester, driver, 0)
                    .put(&FileConfirm { token: U64::new(token) });
            }
            Err(error) => {
                let body = FileRefuse { token, kind: error.kind, text: error.text };
                let mut writer =
                    FrameWriter::begin(&mut frame, SignalNumber::FileRefuse, view, requester, driver, 0);
                cold::write(&mut writer, &body);
            }
        }
        let handled = self.feed(&frame, Origin::Node);
        assert!(handled == Ok(frame.len()), "our own frames are whole");
    }

    /// Whether there is anything in the log.
    pub fn has_log(&self) -> bool {
        !self.shared.log.is_empty()
    }

    /// Breaks a rule on purpose (only in builds with injected bugs).
    pub fn inject_bug(&mut self, bug: Option<InjectedBug>) {
        self.shared.bug = bug;
    }

    /// Begins to collect coverage marks.
    pub fn collect_marks(&mut self) {
        self.shared.marks = Some(BTreeSet::new());
    }

    /// The coverage marks recorded so far.
    pub fn marks(&self) -> impl Iterator<Item = &'static str> {
        self.shared.marks.iter().flatten().copied()
    }

    /// Sets how many units of work a slice may do. The edge adapts it to measured turns, the simulator takes it from
    /// the seed.
    pub fn set_slice_units(&mut self, units: u32) {
        self.shared.slice_units = units.max(1);
    }

    /// Says whether blocks should do work in the background in small pieces ([`Context::background_units`]), because
    /// requests arrive a few at a time. The edge knows, the simulator takes it from the seed.
    pub fn set_brief(&mut self, is_brief: bool) {
        self.shared.is_brief = is_brief;
    }

    /// Whether a block has done a small piece of work in the background in the last slices: how long they took says
    /// nothing about units.
    pub fn was_brief(&self) -> bool {
        self.shared.is_brief && !self.shared.background_is_free
    }

    /// Says how busy the thread was during about the last second, in percent; blocks see it as [`Context::load`]. The
    /// edge measures it, the simulator may set what it likes.
    pub fn set_load(&mut self, percent: u8) {
        self.shared.load = percent.min(100);
    }

    /// The signals that were handled last.
    pub fn trace(&self) -> &TraceRing {
        &self.trace
    }

    /// The blocks.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// The blocks, for the driver's own needs (statistics, tests).
    pub fn host_mut(&mut self) -> &mut H {
        &mut self.host
    }

    /// Number of signals handled since the start.
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// Writes the state of the blocks; see [`Host::summarize`].
    ///
    /// # Errors
    /// Those of `out`.
    pub fn summarize(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        self.host.summarize(out)
    }

    /// Whether no frames wait, neither local nor parked ones.
    pub fn is_idle(&self) -> bool {
        self.parked.is_empty() && !self.has_local()
    }

    /// Bytes of frames that wait for a newer view.
    pub fn parked_bytes(&self) -> usize {
        self.parked.len()
    }
}

#[cfg(test)]
mod tests;
