//! The turn of a thread: frames in, frames out.
//!
//! A driver repeats: [`Executor::begin_turn`] with the clock's tick; [`Executor::feed`] with the frames from sockets
//! and rings; [`Executor::finish_turn`], which runs due timers and one slice of long work; then it moves the contents
//! of the outbox's lanes to their destinations. Within a turn the tick does not change.
//!
//! Frames are handled in *batches* of up to [`BATCH_FRAMES`]: first the host may prefetch the index lines of all of
//! them, then the rows, then they are handled one by one in their order; so the cache misses of one overlap with those
//! of the others. A prefetch changes nothing, so a stale one costs time and never correctness. After each batch the
//! local lane is drained in the same way, until it is empty: a request that needs no other thread is finished in its
//! turn. Every chain of local signals ends, because each signal of a protocol only leads to later ones of the same
//! protocol; work that could continue without end (a scan) is long work, done in slices.
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
use vinga_base::NodeId;
use vinga_base::time::Tick;
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

/// The two prefetch passes over a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefetch {
    /// Index lines.
    Index,
    /// Rows, found by the index lines of the first pass.
    Row,
}

/// The blocks of one thread.
pub trait Host {
    /// Called once, before the first frame.
    fn start(&mut self, cx: &mut Context<'_>);

    /// Prefetches the memory that handling `frame` will access; may do nothing.
    fn prefetch(&self, pass: Prefetch, frame: &Frame<'_>);

    /// Hands a frame to the block instance that it is addressed to.
    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>);

    /// The thread has adopted another view.
    fn view_changed(&mut self, cx: &mut Context<'_>, change: &ViewChange);

    /// Does one slice of each long work in progress; returns whether more is left.
    fn slice(&mut self, cx: &mut Context<'_>) -> bool;

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
            for frame in batch {
                self.host.prefetch(Prefetch::Index, frame);
            }
            for frame in batch {
                self.host.prefetch(Prefetch::Row, frame);
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

    /// The view that the thread is in.
    pub fn view(&self) -> &Arc<ClusterView> {
        &self.shared.view
    }

    /// Views are compared by their low byte: a thread is never more than 127 views behind.
    #[inline]
    fn is_of_newer_view(&self, frame: &Frame<'_>) -> bool {
        let ahead = frame.header.view.wrapping_sub(self.shared.view.number().0 as u8) as i8;
        ahead > 0
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
mod tests {
    use super::*;
    use crate::outbox::Routes;
    use alloc::vec;
    use core::cell::RefCell;
    use vinga_base::time::Span;
    use vinga_base::{Incarnation, ViewNumber};
    use vinga_wire::agreement::LinkBody;
    use vinga_wire::frame::HEADER_BYTES;
    use vinga_wire::view::Member;

    const NODE: NodeId = NodeId(1);
    const TC: Address = Address::new(NODE, BlockNumber::Coordinator, 0);
    const API: Address = Address::new(NodeId(200), BlockNumber::Api, 0);

    /// Records the frames that it receives; answers `OutcomeRequest` by a local signal, which answers the API node.
    #[derive(Default)]
    struct Echo {
        prefetched: RefCell<Vec<u32>>,
        handled: Vec<(SignalNumber, u32)>,
        slices: u32,
        views_adopted: u32,
    }

    /// View 1 of a cluster of three nodes.
    fn view() -> ClusterView {
        let member = |node| Member::started(NodeId(node), Incarnation(1), 0, 1, 1);
        ClusterView::first(vec![member(1), member(2), member(3)])
    }

    /// The order to adopt view 2, in which node 2 has failed.
    fn view_change() -> Vec<u8> {
        let mut bytes = vec![];
        let mut writer = FrameWriter::begin(&mut bytes, SignalNumber::ViewChangedOrder, 2, TC, TC, 20);
        cold::write(&mut writer, &view().without(&[NodeId(2)]));
        drop(writer);
        bytes
    }

    impl Host for Echo {
        fn start(&mut self, _: &mut Context<'_>) {}

        fn prefetch(&self, pass: Prefetch, frame: &Frame<'_>) {
            if pass == Prefetch::Index {
                self.prefetched.borrow_mut().push(frame.header.trace.get());
            }
        }

        fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
            let signal = frame.signal().unwrap();
            self.handled.push((signal, frame.header.trace.get()));
            match signal {
                SignalNumber::OutcomeRequest => drop(cx.frame(SignalNumber::CompleteOrder, TC)),
                SignalNumber::CompleteOrder => {
                    drop(cx.frame(SignalNumber::OutcomeConfirm, API));
                    cx.send_after(Span(10), 5);
                }
                SignalNumber::EpochClaimReport => cx.reject(frame, ErrorCode::UnexpectedSignal),
                _ => {}
            }
        }

        fn view_changed(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
            assert_eq!((change.old.number(), change.new.number()), (ViewNumber(1), cx.view().number()));
            self.views_adopted += 1;
        }

        fn slice(&mut self, _: &mut Context<'_>) -> bool {
            self.slices += 1;
            false
        }
    }

    fn executor() -> (Executor<Echo>, LaneId) {
        let mut routes = Routes::new(NODE, 0);
        routes.add_instance(BlockNumber::Coordinator, 0);
        let mut outbox = Outbox::new(routes, 1, 1000);
        let lane = outbox.open_lane(0);
        outbox.routes.set_node(API.node(), Some(lane));
        (Executor::new(NODE, Arc::new(view()), Echo::default(), outbox, 1, Tick(0)), lane)
    }

    fn frames(number: SignalNumber, sender: Address, view: u8, traces: core::ops::Range<u32>) -> Vec<u8> {
        let mut bytes = vec![];
        for trace in traces {
            FrameWriter::begin(&mut bytes, number, view, TC, sender, trace);
        }
        bytes
    }

    #[test]
    fn a_turn_finishes_what_it_began() {
        let (mut executor, lane) = executor();
        let bytes = frames(SignalNumber::OutcomeRequest, API, 0, 0..100);
        executor.begin_turn(Tick(5));
        // Half a frame at the end stays with the driver.
        let consumed = executor.feed(&bytes[..bytes.len() - 4], Origin::Api(API.node())).unwrap();
        assert_eq!(consumed, bytes.len() - HEADER_BYTES);
        assert!(!executor.finish_turn());
        let answers: Vec<u32> = Frames(executor.outbox().lane(lane)).map(|f| f.header.trace.get()).collect();
        assert_eq!(answers, (0..99).collect::<Vec<u32>>());
        let of = |e: &Executor<Echo>, s| e.host().handled.iter().filter(|(n, _)| *n == s).count();
        assert_eq!(of(&executor, SignalNumber::CompleteOrder), 99);
        assert_eq!(of(&executor, SignalNumber::TimerReport), 0);
        assert_eq!(executor.next_due(), Some(Tick(15)));
        executor.begin_turn(Tick(15));
        executor.finish_turn();
        assert_eq!(of(&executor, SignalNumber::TimerReport), 99);
        assert_eq!(executor.host().slices, 2);
        assert!(executor.is_idle());
    }

    #[test]
    fn what_follows_is_left_and_stays_in_order() {
        let (mut executor, lane) = executor();
        executor.set_patient(true);
        let traces = |e: &mut Executor<Echo>| -> Vec<u32> {
            Frames(e.outbox().lane(lane)).map(|f| f.header.trace.get()).collect()
        };
        let api = Origin::Api(API.node());
        let bytes = frames(SignalNumber::OutcomeRequest, API, 0, 0..100);
        // A batch, but none of the signals that follow from it.
        let consumed = executor.feed(&bytes, api).unwrap();
        assert_eq!(consumed, BATCH_FRAMES * HEADER_BYTES);
        assert!(executor.has_local() && !executor.is_idle());
        let mut asked = 0;
        let goes_on = || {
            asked += 1;
            asked < 4
        };
        assert!(executor.drain_while(goes_on));
        assert_eq!(traces(&mut executor), (0..1 + 2 + 4 + 8).collect::<Vec<u32>>());
        // Another request is handled at once; its local signal is queued behind the others.
        executor.feed(&frames(SignalNumber::OutcomeRequest, API, 0, 200..201), api).unwrap();
        assert_eq!(executor.handled(), 64 + 15 + 1);
        executor.finish_turn();
        assert!(executor.has_local());
        assert!(!executor.drain_while(|| true));
        let expected: Vec<u32> = (0..64).chain([200]).collect();
        assert_eq!(traces(&mut executor), expected);
        // Frames of other origins wait until the lane is empty.
        executor.feed(&bytes[consumed..], api).unwrap();
        assert!(executor.has_local());
        executor.feed(&frames(SignalNumber::EpochOrder, TC, 1, 300..301), Origin::Node).unwrap();
        assert!(!executor.has_local());
        assert_eq!(executor.host().handled.last(), Some(&(SignalNumber::EpochOrder, 300)));
        assert_eq!(traces(&mut executor).len(), 101);
    }

    #[test]
    fn what_was_parked_comes_first_also_if_signals_are_left() {
        let (mut executor, _) = executor();
        executor.set_patient(true);
        let peer = Address::new(NodeId(3), BlockNumber::Coordinator, 0);
        executor.feed(&frames(SignalNumber::EpochOrder, peer, 2, 10..15), Origin::Peer(peer.node())).unwrap();
        let api = Origin::Api(API.node());
        executor.feed(&frames(SignalNumber::OutcomeRequest, API, 0, 0..3), api).unwrap();
        assert!(executor.has_local());
        executor.feed(&view_change(), Origin::Node).unwrap();
        executor.feed(&frames(SignalNumber::OutcomeRequest, API, 0, 30..31), api).unwrap();
        let order: Vec<u32> = executor.host().handled.iter().map(|&(_, trace)| trace).collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 10, 11, 12, 13, 14, 30]);
        assert_eq!(executor.host().views_adopted, 1);
    }

    #[test]
    fn what_was_parked_of_a_member_that_the_view_has_lost_is_dropped() {
        let (mut executor, _) = executor();
        let of = |node| Address::new(NodeId(node), BlockNumber::Coordinator, 0);
        executor.feed(&frames(SignalNumber::EpochOrder, of(2), 2, 10..12), Origin::Peer(NodeId(2))).unwrap();
        executor.feed(&frames(SignalNumber::EpochOrder, of(3), 2, 12..14), Origin::Peer(NodeId(3))).unwrap();
        executor.feed(&view_change(), Origin::Node).unwrap();
        let order: Vec<u32> = executor.host().handled.iter().map(|&(_, trace)| trace).collect();
        assert_eq!(order, [12, 13]);
        assert!(executor.is_idle());
    }

    #[test]
    fn what_an_api_node_may_not_send_is_rejected() {
        let (mut executor, _) = executor();
        let api = Origin::Api(API.node());
        let rejected = |e: &mut Executor<Echo>, bytes: &[u8]| e.feed(bytes, api).unwrap_err();
        let internal = frames(SignalNumber::CommitRequest, API, 0, 0..1);
        assert_eq!(rejected(&mut executor, &internal).code, ErrorCode::UnexpectedSignal);
        let forged = frames(SignalNumber::OutcomeRequest, TC, 0, 0..1);
        assert_eq!(rejected(&mut executor, &forged).code, ErrorCode::UnexpectedSignal);
        let mut unknown = frames(SignalNumber::OutcomeRequest, API, 0, 0..1);
        unknown[4..6].copy_from_slice(&9999u16.to_le_bytes());
        assert_eq!(
            rejected(&mut executor, &unknown),
            Rejected { code: ErrorCode::UnexpectedSignal, signal: 9999 }
        );
        let mut nobody = frames(SignalNumber::OutcomeRequest, API, 0, 0..1);
        nobody[8..10].copy_from_slice(&7u16.to_le_bytes());
        assert_eq!(rejected(&mut executor, &nobody).code, ErrorCode::UnexpectedSignal);
        assert_eq!(rejected(&mut executor, &[0xff; 64]).code, ErrorCode::MalformedFrame);
        assert!(executor.host().handled.is_empty());
    }

    #[test]
    fn what_another_data_node_may_not_send_is_rejected() {
        let (mut executor, _) = executor();
        let peer = Address::new(NodeId(3), BlockNumber::Coordinator, 0);
        let mut code = |signal, sender, receiver: Address| {
            let mut bytes = vec![];
            FrameWriter::begin(&mut bytes, signal, 1, receiver, sender, 0);
            let Rejected { code, signal: number } =
                executor.feed(&bytes, Origin::Peer(peer.node())).unwrap_err();
            assert_eq!((code, number), (ErrorCode::UnexpectedSignal, signal as u16));
        };
        let driver = |node| Address::new(node, BlockNumber::Driver, 0);
        code(SignalNumber::OutcomeRequest, peer, TC);
        code(SignalNumber::TimerReport, peer, TC);
        code(SignalNumber::ViewChangedOrder, peer, TC);
        code(SignalNumber::StopNodeOrder, peer, driver(NODE));
        // Of another node, of this one, of no block; and for a driver, another node, a block that is not there.
        code(SignalNumber::EpochOrder, Address::new(NodeId(2), BlockNumber::Coordinator, 0), TC);
        code(SignalNumber::EpochOrder, TC, TC);
        code(SignalNumber::EpochOrder, driver(peer.node()), TC);
        code(SignalNumber::EpochOrder, peer, driver(NODE));
        code(SignalNumber::EpochOrder, peer, API);
        code(SignalNumber::EpochOrder, peer, Address::new(NODE, BlockNumber::Coordinator, 1));
        assert!(executor.host().handled.is_empty());
    }

    #[test]
    fn nothing_more_is_handled_of_a_data_node_that_a_block_has_rejected() {
        let (mut executor, _) = executor();
        let of = |node| Address::new(NodeId(node), BlockNumber::Coordinator, 0);
        let rejected = frames(SignalNumber::EpochClaimReport, of(2), 1, 1..4);
        executor.feed(&rejected, Origin::Peer(NodeId(2))).unwrap();
        executor.feed(&frames(SignalNumber::EpochOrder, of(2), 1, 4..6), Origin::Peer(NodeId(2))).unwrap();
        executor.feed(&frames(SignalNumber::EpochOrder, of(3), 1, 6..8), Origin::Peer(NodeId(3))).unwrap();
        let traces: Vec<u32> = executor.host().handled.iter().map(|&(_, trace)| trace).collect();
        assert_eq!(traces, [1, 6, 7]);
        let orders: Vec<LinkBody> = Frames(executor.outbox().lane(LaneId::DRIVER))
            .map(|frame| {
                assert_eq!(frame.signal(), Some(SignalNumber::LinkCloseOrder));
                cold::read(&frame).unwrap()
            })
            .collect();
        assert_eq!(orders, [LinkBody { node: NodeId(2), incarnation: Incarnation(1), is_gone: false }]);
        let log = executor.take_log();
        let [entry] = &log[..] else { panic!("{log:?}") };
        assert!(entry.text.contains("data node 2") && entry.text.contains("signal 32"), "{}", entry.text);
        // Its id may be another node's when it has been left out.
        executor.feed(&view_change(), Origin::Node).unwrap();
        assert!(executor.shared.rejected.is_empty());
    }

    #[test]
    #[should_panic(expected = "1/Coordinator/0 sent signal 32, which can't be handled")]
    fn a_signal_of_an_own_block_that_can_not_be_handled_stops_the_node() {
        let (mut executor, _) = executor();
        let _ = executor.feed(&frames(SignalNumber::EpochClaimReport, TC, 1, 1..2), Origin::Node);
    }

    #[test]
    fn frames_of_a_newer_view_wait() {
        let (mut executor, _) = executor();
        let peer = Address::new(NodeId(3), BlockNumber::Coordinator, 0);
        executor.feed(&frames(SignalNumber::EpochOrder, peer, 2, 10..12), Origin::Peer(peer.node())).unwrap();
        executor.feed(&frames(SignalNumber::EpochOrder, peer, 1, 12..13), Origin::Peer(peer.node())).unwrap();
        assert!(!executor.is_idle());
        // The failure and a later frame of the newer view in one batch: the parked ones still come first.
        let mut batch = view_change();
        batch.extend(frames(SignalNumber::EpochOrder, peer, 2, 14..15));
        executor.feed(&batch, Origin::Node).unwrap();
        let order: Vec<u32> = executor.host().handled.iter().map(|&(_, trace)| trace).collect();
        assert_eq!(order, [12, 10, 11, 14]);
        // The same order once more changes nothing.
        executor.feed(&view_change(), Origin::Node).unwrap();
        assert_eq!(executor.host().views_adopted, 1);
        assert!(executor.is_idle());
    }

    #[test]
    fn each_pass_sees_the_whole_batch() {
        let (mut executor, _) = executor();
        executor.feed(&frames(SignalNumber::EpochOrder, TC, 1, 0..70), Origin::Node).unwrap();
        assert_eq!(*executor.host().prefetched.borrow(), (0..70).collect::<Vec<u32>>());
        assert_eq!(executor.handled(), 70);
    }
}
