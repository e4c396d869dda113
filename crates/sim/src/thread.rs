//! A thread of a data node: an executor, what has come for it, and its turns.

use crate::agenda::Time;
use crate::connection::Side;
use crate::failure::FailureMarker;
use crate::pipe::{Payload, PipeId};
use crate::profile::Profile;
use crate::returns::Start;
use crate::world::{End, Event, World};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use vinga_base::NodeId;
use vinga_base::page_pool::{PagePool, restart_pages};
use vinga_kernel::executor::Origin;
use vinga_kernel::files::FileAnswer;
use vinga_kernel::trace_ring::TraceEntry;
use vinga_kernel::{Executor, InjectedBug, LaneId, LogLevel, Outbox, Routes, Scrutiny, Tick, link_between};
use vinga_node::{Blocks, NoFacts, NodeSettings};
use vinga_wire::frame::Frames;
use vinga_wire::view::ClusterView;
use vinga_wire::{Address, BlockNumber, Frame};

/// Which thread, over all data nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub usize);

/// Where bytes for a thread come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Another thread of its node.
    Ring(ThreadId),
    /// A start of another data node.
    Link(Start),
    /// An API node: which connection.
    Client(usize),
}

/// What has come through one pipe.
#[derive(Default)]
struct Inbox {
    payloads: VecDeque<Payload>,
    /// The beginning of a frame.
    partial: Vec<u8>,
}

/// Turns between two full checks of a thread's blocks: enough that checking takes a small part of a run.
const FULL_CHECK_TURNS: u64 = 199;

/// A simulated thread of a data node.
pub struct Thread {
    /// The node.
    pub node: u8,
    incarnation: u32,
    /// Which of its threads.
    pub index: u16,
    /// The blocks.
    pub executor: Executor<Blocks>,
    /// Whether the node is alive.
    pub is_alive: bool,
    inboxes: BTreeMap<PipeId, Inbox>,
    /// Frames of its driver.
    orders: VecDeque<Vec<u8>>,
    /// What has become of tasks on files.
    pub file_answers: Vec<FileAnswer>,
    /// When its next turn is.
    turn_at: Option<Time>,
    /// Until when its present turn lasts.
    busy_until: Time,
    /// Until when it does not run.
    pub stalled_until: Time,
    /// Views that it has adopted, or is going to at a time.
    pub views_planned: usize,
    /// When it adopts the last of them.
    pub adopts_at: Time,
    /// Until when it may send answers to API nodes.
    pub lease: Tick,
    /// Lanes to other data nodes.
    node_lanes: BTreeMap<u8, LaneId>,
    /// Lanes to API nodes.
    api_lanes: BTreeMap<u8, LaneId>,
}

impl Thread {
    /// A thread that starts now.
    pub fn new(
        profile: &Profile,
        settings: &NodeSettings,
        view: Arc<ClusterView>,
        index: u16,
        seed: u64,
        bug: Option<InjectedBug>,
        now: Tick,
    ) -> Self {
        let routes = Routes::to(settings.node, index, &settings.instances());
        let mut outbox = Outbox::new(routes, profile.threads, profile.congestion_mark);
        let mut node_lanes = BTreeMap::new();
        for node in view.members().iter().map(|member| member.node).filter(|&node| node != settings.node) {
            let lane = outbox.open_lane(1024);
            outbox.routes.set_node(node, Some(lane));
            node_lanes.insert(node.0, lane);
        }
        let pages = profile.pages_of(settings.node.0);
        // Without a disk nothing is restored, and pages cost time to make.
        let beyond = if profile.log.is_some() { restart_pages(pages) } else { 0 };
        let pool = |_| PagePool::standalone_beyond(pages, beyond);
        let blocks = Blocks::new(settings, index, pool, Box::new(NoFacts));
        let mut executor = Executor::new(settings.node, view, blocks, outbox, seed, now);
        executor.collect_marks();
        executor.inject_bug(bug);
        Thread {
            node: settings.node.0,
            incarnation: settings.incarnation.0,
            index,
            executor,
            is_alive: true,
            inboxes: BTreeMap::new(),
            orders: VecDeque::new(),
            file_answers: Vec::new(),
            turn_at: None,
            busy_until: 0,
            stalled_until: 0,
            views_planned: 0,
            adopts_at: 0,
            lease: Tick(0),
            node_lanes,
            api_lanes: BTreeMap::new(),
        }
    }

    /// Which start of which node it belongs to.
    pub fn start(&self) -> Start {
        Start { node: self.node, incarnation: self.incarnation }
    }

    /// The node is connected to another one from now on.
    pub fn open_node_lane(&mut self, node: u8) {
        let outbox = self.executor.outbox();
        let lane = *self.node_lanes.entry(node).or_insert_with(|| outbox.open_lane(1024));
        // What was meant for an earlier start of that node.
        outbox.lane_mut(lane).clear();
        outbox.routes.set_node(NodeId(node), Some(lane));
    }

    /// Something has come for it.
    pub fn receive(&mut self, pipe: PipeId, payload: Payload) {
        self.inboxes.entry(pipe).or_default().payloads.push_back(payload);
    }

    /// Its driver gives it a frame.
    pub fn order(&mut self, frame: Vec<u8>) {
        self.orders.push_back(frame);
    }

    /// The address of its driver.
    pub fn driver(&self) -> Address {
        Address::new(NodeId(self.node), BlockNumber::Driver, self.index)
    }

    /// Whether nothing waits to be handled, answers about files aside: a block that waits for one is not at rest
    /// itself.
    pub fn is_idle(&self) -> bool {
        self.orders.is_empty()
            && self.executor.is_idle()
            && self
                .inboxes
                .values()
                .flat_map(|inbox| &inbox.payloads)
                .all(|p| matches!(p, Payload::Epochs(_)))
    }

    /// Whether nothing has come by those pipes that are read.
    pub fn has_nothing_to_read(&self, is_read: impl Fn(PipeId) -> bool) -> bool {
        self.inboxes.iter().all(|(&pipe, inbox)| inbox.payloads.is_empty() || !is_read(pipe))
    }

    /// The same, apart from what is sent again and again.
    pub fn has_read_all(&self, is_read: impl Fn(PipeId) -> bool) -> bool {
        let only_recurs = |inbox: &Inbox| inbox.payloads.iter().all(|p| matches!(p, Payload::Epochs(_)));
        self.inboxes.iter().all(|(&pipe, inbox)| only_recurs(inbox) || !is_read(pipe))
    }

    /// Whether nothing that it has sent waits for room.
    pub fn has_sent_all(&mut self) -> bool {
        let lanes: Vec<LaneId> = self.node_lanes.values().chain(self.api_lanes.values()).copied().collect();
        lanes.into_iter().all(|lane| self.executor.outbox().lane(lane).is_empty())
    }

    /// The lane to an API node, made if there is none.
    pub fn api_lane(&mut self, api: u8) -> LaneId {
        let outbox = self.executor.outbox();
        *self.api_lanes.entry(api).or_insert_with(|| outbox.open_lane(1024))
    }

    /// Lanes to API nodes.
    pub fn api_lanes(&self) -> Vec<(u8, LaneId)> {
        self.api_lanes.iter().map(|(&api, &lane)| (api, lane)).collect()
    }

    /// Forgets what came through a connection and was not read.
    pub fn drop_inbox(&mut self, pipe: PipeId) {
        self.inboxes.remove(&pipe);
    }
}

impl World {
    /// Lets a thread have a turn, at this time at the latest.
    pub(crate) fn wake_thread(&mut self, id: ThreadId, at: Time) {
        let thread = &mut self.threads[id.0];
        let at = at.max(thread.busy_until).max(thread.stalled_until);
        if thread.is_alive && thread.turn_at.is_none_or(|planned| at < planned) {
            thread.turn_at = Some(at);
            self.agenda.enter(at, Event::Turn(id));
        }
    }

    /// A thread does not run for a while.
    pub(crate) fn stall_thread(&mut self, id: ThreadId, span: Time) {
        let until = self.now() + span;
        let thread = &mut self.threads[id.0];
        thread.stalled_until = thread.stalled_until.max(until);
        thread.turn_at = None;
        self.wake_thread(id, until);
    }

    pub(crate) fn on_turn(&mut self, id: ThreadId) {
        let (now, clock) = (self.now(), self.clock_of(id));
        let thread = &mut self.threads[id.0];
        if thread.turn_at != Some(now) || !thread.is_alive {
            return;
        }
        thread.turn_at = None;
        let handled_before = thread.executor.handled();
        thread.executor.begin_turn(clock.at(now));
        let units = self.random.u32(1..2000);
        thread.executor.set_slice_units(units);
        let is_brief = self.random.u32(0..3) == 0;
        thread.executor.set_brief(is_brief);
        // A data node leaves what follows from requests, and has long work wait, while others want its thread.
        let is_patient = self.random.u32(0..3) == 0;
        thread.executor.set_patient(is_patient);
        let has_long_work_wait = self.random.u32(0..6) == 0;
        let markers = self.feed_all_and_answers(id);
        self.threads[id.0].executor.run_timers();
        let more = has_long_work_wait || self.threads[id.0].executor.run_slices();
        let more = self.drain_some(id) || more;
        let busy = self.random.u64(1..=self.profile.turn);
        self.threads[id.0].busy_until = now + busy;
        let handled = (self.threads[id.0].executor.handled() - handled_before) as usize;
        self.trace_handled(id, handled);
        self.check_invariants(id);
        self.see_handled(id, handled);
        self.drain(id, now + busy);
        for marker in markers {
            self.forward_failure_marker(id, marker, now + busy);
        }
        let thread = &mut self.threads[id.0];
        let (ends, is_ending) = (&self.ends, self.stops.is_ending(thread.node));
        let is_read = |pipe: PipeId| !is_ending || !matches!(ends[pipe.0], End::Thread(_, Source::Client(_)));
        let waits = !thread.has_nothing_to_read(is_read) || !thread.orders.is_empty();
        let next = if more || waits {
            Some(now + busy)
        } else {
            thread.executor.next_due().map(|due| clock.when(due))
        };
        if let Some(next) = next {
            self.wake_thread(id, next);
        }
        self.meet_requester_death(id);
    }

    /// Gives a thread what has come for it, source after source in any order; returns the markers that were met.
    pub(crate) fn feed_all(&mut self, id: ThreadId) -> Vec<FailureMarker> {
        let node = self.threads[id.0].node;
        let mut sources: Vec<Option<PipeId>> = self.threads[id.0]
            .inboxes
            .iter()
            .filter(|(pipe, inbox)| !inbox.payloads.is_empty() && self.is_read(node, self.ends[pipe.0]))
            .map(|(&pipe, _)| Some(pipe))
            .collect();
        sources.push(None);
        self.random.shuffle(&mut sources);
        let mut markers = Vec::new();
        for source in sources {
            let Some(pipe) = source else {
                while let Some(frame) = self.threads[id.0].orders.pop_front() {
                    self.feed(id, &frame, Origin::Node);
                }
                continue;
            };
            let mut appetite = self.random.usize(1..=self.profile.appetite);
            while appetite > 0 {
                appetite -= 1;
                let inbox = self.threads[id.0].inboxes.get_mut(&pipe);
                match inbox.and_then(|inbox| inbox.payloads.pop_front()) {
                    Some(Payload::Bytes(bytes)) => self.feed_piece(id, pipe, bytes),
                    Some(Payload::Epochs(bytes)) => {
                        // Epochs may be shorter than turns here; the thread must keep up.
                        appetite += 1;
                        self.feed_piece(id, pipe, bytes);
                    }
                    Some(Payload::FailureMarker(start)) => {
                        self.threads[id.0]
                            .inboxes
                            .get_mut(&pipe)
                            .expect("it came from there")
                            .partial
                            .clear();
                        let is_from_link = matches!(self.ends[pipe.0], End::Thread(_, Source::Link(_)));
                        markers.push(FailureMarker { start, is_from_link });
                    }
                    Some(Payload::End) => match self.link_from(self.ends[pipe.0]) {
                        Some(other) => self.on_link_end(id, other),
                        None => self.on_connection_end(id, pipe),
                    },
                    None => break,
                }
            }
        }
        markers
    }

    fn feed_piece(&mut self, id: ThreadId, pipe: PipeId, bytes: Vec<u8>) {
        self.pipes[pipe.0].take(bytes.len());
        let End::Thread(_, source) = self.ends[pipe.0] else { unreachable!("the pipe ends at a thread") };
        let inbox = self.threads[id.0].inboxes.get_mut(&pipe).expect("it came from there");
        let mut all = std::mem::take(&mut inbox.partial);
        all.extend(bytes);
        let origin = match source {
            Source::Ring(_) => Origin::Node,
            Source::Link(from) => Origin::Peer(NodeId(from.node)),
            Source::Client(connection) => match self.connections[connection].side {
                Side::Open { api, .. } => Origin::Api(NodeId(api)),
                Side::Greeting => {
                    let consumed = self.on_greeting(id, connection, &all);
                    all.drain(..consumed);
                    self.keep_partial(id, pipe, all);
                    return;
                }
                Side::Waiting { .. } => {
                    self.keep_partial(id, pipe, all);
                    return;
                }
                Side::Broken { .. } | Side::Closed => return,
            },
        };
        let mut consumed = self.feed(id, &all, origin);
        while let Some(bytes) = consumed {
            all.drain(..bytes);
            if matches!(Frame::first(&all), Ok(None)) {
                break;
            }
            // It stopped because of what follows from these frames.
            self.drain_some(id);
            consumed = self.feed(id, &all, origin);
        }
        match (consumed, source) {
            (Some(_), _) => self.keep_partial(id, pipe, all),
            (None, Source::Client(connection)) => self.on_client_rejected(id, connection),
            (None, Source::Ring(_) | Source::Link(_)) => {
                self.violations.push("a thread rejected the frames of another".to_string());
            }
        }
    }

    /// Has a thread handle some of the local frames that it has left; says whether there are more.
    fn drain_some(&mut self, id: ThreadId) -> bool {
        let (thread, random) = (&mut self.threads[id.0], &mut self.random);
        thread.executor.drain_while(|| random.bool())
    }

    fn keep_partial(&mut self, id: ThreadId, pipe: PipeId, bytes: Vec<u8>) {
        // The connection may have been closed by what it sent.
        if let Some(inbox) = self.threads[id.0].inboxes.get_mut(&pipe) {
            inbox.partial = bytes;
        }
    }

    /// Feeds bytes; says how many were consumed, `None` if they were rejected.
    fn feed(&mut self, id: ThreadId, bytes: &[u8], origin: Origin) -> Option<usize> {
        self.mix(self.now() ^ (id.0 as u64) << 48);
        self.mix_bytes(bytes);
        match self.threads[id.0].executor.feed(bytes, origin) {
            Ok(consumed) => Some(consumed),
            Err(rejected) => {
                self.note(|| format!("{origin:?} is rejected: {rejected:?}"));
                None
            }
        }
    }

    /// Moves what a thread has sent into pipes; `at` is when it leaves.
    pub(crate) fn drain(&mut self, id: ThreadId, at: Time) {
        let thread = &mut self.threads[id.0];
        let (node, index) = (thread.node, thread.index);
        let driver = std::mem::take(thread.executor.outbox().lane_mut(LaneId::DRIVER));
        for other in (0..self.profile.threads).filter(|&other| other != index) {
            let bytes = std::mem::take(self.threads[id.0].executor.outbox().lane_mut(LaneId::thread(other)));
            if !bytes.is_empty() {
                let pipe = self.rings[&(id, self.thread_of(node, other))];
                self.put(pipe, at, Payload::of_frames(bytes));
            }
        }
        let lanes: Vec<(u8, LaneId)> = self.threads[id.0].node_lanes.iter().map(|(&n, &l)| (n, l)).collect();
        for (to, lane) in lanes {
            self.drain_to_node(id, to, lane, at);
        }
        for (api, lane) in self.threads[id.0].api_lanes() {
            self.drain_to_api(id, api, lane, at);
        }
        self.submit_file_requests(id, at);
        for frame in Frames(&driver) {
            self.on_driver_signal(id, &frame, at);
        }
        for entry in self.threads[id.0].executor.take_log() {
            if entry.level == LogLevel::Error || self.trace.is_some() {
                self.note(|| format!("{} logs {:?}: {}", entry.block, entry.level, entry.text));
            }
        }
    }

    /// Frames to another data node: each goes by the connection of its sender and receiver.
    fn drain_to_node(&mut self, id: ThreadId, to: u8, lane: LaneId, at: Time) {
        let from = self.threads[id.0].node;
        if self.threads[id.0].executor.outbox().lane(lane).is_empty() {
            return;
        }
        let bytes = std::mem::take(self.threads[id.0].executor.outbox().lane_mut(lane));
        let is_connected = self.links.contains_key(&(from, to, 0));
        if !self.is_alive(to) || !is_connected || self.agreed.has_closed(from, self.start_of(to)) {
            return;
        }
        let mut shares: Vec<Vec<u8>> = vec![Vec::new(); usize::from(self.profile.connections)];
        let mut kept = 0;
        let mut crash = None;
        for frame in Frames(&bytes) {
            let connection = link_between(frame.sender(), frame.receiver(), self.profile.connections);
            let pipe = self.links[&(from, to, connection)];
            let share = &mut shares[usize::from(connection)];
            // What does not fit waits in the lane, and what comes behind it too.
            if share.len() + frame.length() > self.pipes[pipe.0].room() {
                break;
            }
            share.extend_from_slice(&bytes[kept..kept + frame.length()]);
            kept += frame.length();
            crash = crash.or(self.meets_crash_point(&frame, from, to));
            self.meet_join_point(&frame, from, to, pipe);
        }
        if kept < bytes.len() {
            let rest = bytes[kept..].to_vec();
            *self.threads[id.0].executor.outbox().lane_mut(lane) = rest;
            self.wake_thread(id, at + 50);
        }
        for (connection, share) in (0..).zip(shares) {
            if !share.is_empty() {
                self.put_split(self.links[&(from, to, connection)], at, Payload::of_frames(share));
            }
        }
        if let Some(crash) = crash {
            self.crash(crash);
        }
    }

    /// Puts bytes into a pipe, perhaps in pieces.
    pub(crate) fn put_split(&mut self, pipe: PipeId, at: Time, mut payload: Payload) {
        if self.profile.splits_frames() {
            while self.random.bool()
                && let Some(piece) = payload.split_off(&mut self.random)
            {
                self.put(pipe, at, piece);
            }
        }
        self.put(pipe, at, payload);
    }

    /// After a turn: what always holds of the blocks, briefly every time and fully now and then.
    fn check_invariants(&mut self, id: ThreadId) {
        self.turns += 1;
        let is_full = self.turns.is_multiple_of(FULL_CHECK_TURNS);
        let scrutiny = if is_full { Scrutiny::Full } else { Scrutiny::Brief };
        self.threads[id.0].executor.host().check_invariants(scrutiny);
    }

    /// A signal that a thread has handled. Its own time is by its node's clock, so that of the world follows if these
    /// differ.
    pub(crate) fn trace_line(&self, thread: &Thread, entry: &TraceEntry) -> String {
        let place = format!("{}.{}", thread.node, thread.index);
        if self.profile.drift_max == 0 {
            return format!("{entry} [thread {place}]");
        }
        let at = self.clocks[usize::from(thread.node) - 1].when(entry.tick);
        format!("{entry} [thread {place} at {at}µs]")
    }

    /// Prints the signals that a thread has handled in its turn.
    fn trace_handled(&mut self, id: ThreadId, count: usize) {
        let Some(trace) = self.trace else { return };
        let thread = &self.threads[id.0];
        for entry in thread.executor.trace().last(count) {
            trace(&self.trace_line(thread, entry));
        }
    }
}
