//! Data nodes are asked to stop in order, and unnoticed: they leave before (`docs/protocols/shutdown.md`), then their
//! drivers end them as those of a real process do.
//!
//! Whoever asks is an API node that has nothing to do with the others: it is connected always, and does nothing else.
//! When the driver of a data node is ordered to stop it, it lets nobody in any more and reads nothing more of API
//! nodes. What was read is carried out, with what other data nodes send for it; then it says to each of them that it
//! has ended, and closes its links and connections behind what was sent. The data node comes back later, as one that
//! has died.
//!
//! *Calm* runs have no other fault that is in anybody's way. There no session may be answered that something has failed
//! on account of a data node: as long as each one that stops has left before, nobody notices.

use crate::agenda::Time;
use crate::connection::Side;
use crate::fault::Fault;
use crate::pipe::{Payload, PipeId};
use crate::profile::{Groups, Profile};
use crate::returns::Start;
use crate::thread::{Source, Thread, ThreadId};
use crate::world::{End, Event, Stage, World};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use vinga_base::NodeId;
use vinga_kernel::{Host, LaneId};
use vinga_wire::frame::Frames;
use vinga_wire::handshake::{ALL_SENT, Refusal};
use vinga_wire::shutdown::{ShutdownConfirm, ShutdownRequest, ShutdownTerms};
use vinga_wire::{Address, BlockNumber, ErrorCode, FrameWriter, SignalNumber, cold};
use vinga_workloads::step::{Answer, Fate};

/// The API node that asks data nodes to stop. No other one has this id.
const REQUESTER: u8 = 199;

/// How long a data node may take to leave, if it is not to be so short that it may run out (milliseconds). No run has
/// anything that keeps it for so long.
const LONG_WAIT: u32 = 40_000;

/// How often it is looked whether what was read is carried out, and how long that takes at least.
const LOOK: Time = 2_000;
const QUIET: Time = 20_000;
/// How long it may take until the last thread of a data node has ended, behind the first.
const LAST_WORDS_MAX: Time = 30_000;

/// Faults that calm runs may have besides: they slow things down, or have requests refused for want of room.
const CALM: [Fault; 12] = [
    Fault::StopNode,
    Fault::ReturnNode,
    Fault::AddNodeGroup,
    Fault::SlowRings,
    Fault::SlowLinks,
    Fault::SlowClients,
    Fault::SmallPools,
    Fault::SmallMemory,
    Fault::Congestion,
    Fault::SplitFrames,
    Fault::FewSockets,
    Fault::DriftingClocks,
];

/// Errors that say that a data node has failed, or is about to, or was lost sight of.
const NOTICED: [ErrorCode; 12] = [
    ErrorCode::NodeFailure,
    ErrorCode::ConnectionLost,
    ErrorCode::ClusterFailure,
    ErrorCode::TransactionAborted,
    ErrorCode::UnknownOutcome,
    ErrorCode::NodeStopping,
    ErrorCode::NodeStarting,
    ErrorCode::NotInTheView,
    ErrorCode::Partitioned,
    ErrorCode::DeclaredFailed,
    ErrorCode::ClusterRestarted,
    ErrorCode::NotOnDisk,
];

/// Whether data nodes are asked to stop in the runs of a seed, by numbers of its own.
pub fn are_drawn(seed: u64) -> bool {
    Rng::with_seed(seed.wrapping_mul(113)).u8(..2) == 0
}

/// Whether nothing else happens there, by numbers of its own.
fn is_calm(seed: u64) -> bool {
    Rng::with_seed(seed.wrapping_mul(127)).u8(..2) == 0
}

/// What happens in a run in which data nodes stop: whether it is calm.
pub fn choose(seed: u64, faults: &mut BTreeSet<Fault>) -> bool {
    let is_calm = faults.contains(&Fault::StopNode) && is_calm(seed);
    if is_calm {
        faults.retain(|fault| CALM.contains(fault));
    }
    is_calm
}

/// The shape of the cluster of a calm run: somebody can leave.
pub fn groups_of_calm_run(seed: u64, drawn: Groups) -> Groups {
    if drawn.have_replicas() {
        return drawn;
    }
    let shapes = [
        Groups::OnePair,
        Groups::OnePair,
        Groups::OneAndPair,
        Groups::Triple,
        Groups::OneAndTriple,
        Groups::TwoPairs,
    ];
    shapes[Rng::with_seed(seed.wrapping_mul(131)).usize(..shapes.len())]
}

impl Profile {
    /// Nobody is asked to stop where nobody has another replica.
    pub fn with_stops_of_replicas(mut self) -> Self {
        if !self.groups.have_replicas() {
            self.faults.remove(&Fault::StopNode);
        }
        self
    }

    /// The times of a calm run: it lasts until data nodes have stopped and come back, and nobody is given up because
    /// something takes a while.
    pub fn with_calm(self, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed.wrapping_mul(137));
        let (many, pause) = (random.u32(100..600), self.pause.max(500));
        // Sometimes transactions are open for as long as a data node takes to leave.
        let mut slow = Rng::with_seed(seed.wrapping_mul(173));
        let is_slow = slow.u8(..4) == 0;
        let (transactions, pause) =
            if is_slow { (slow.u32(20..60), slow.u64(10_000..80_000)) } else { (many, pause) };
        Profile {
            is_calm: true,
            transactions,
            pause,
            fault_time: random.u64(500_000..3_000_000),
            heartbeat_interval: self.heartbeat_interval.max(40_000),
            node_heartbeat_interval: self.node_heartbeat_interval.max(60_000),
            ..self
        }
    }
}

/// Data nodes that stop.
pub struct Stops {
    random: Rng,
    /// Those that were asked to, and have neither refused it nor ended.
    asked: BTreeMap<u8, Progress>,
    /// One of them had not left when it stopped: clients may have noticed.
    has_been_noticed: bool,
}

/// How far one of them is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// It was asked.
    Asked,
    /// Its driver was ordered to end it, at this time.
    Ends(Time),
}

impl Stops {
    pub fn new(seed: u64) -> Self {
        let random = Rng::with_seed(seed ^ 0x7374_6f70);
        Stops { random, asked: BTreeMap::new(), has_been_noticed: false }
    }

    /// Whether a data node is to stop, so that others can't rely on it.
    pub fn is_asked(&self, node: u8) -> bool {
        self.asked.contains_key(&node)
    }

    /// Whether the driver of a data node lets nobody in and reads nothing more of API nodes.
    pub fn is_ending(&self, node: u8) -> bool {
        matches!(self.asked.get(&node), Some(Progress::Ends(_)))
    }

    /// Whether nobody is to stop.
    pub fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    /// A data node has died, or ended.
    pub fn forget(&mut self, node: u8) {
        self.asked.remove(&node);
    }
}

impl World {
    /// Data nodes stop from now on.
    pub(crate) fn begin_stops(&mut self) {
        if self.profile.faults.contains(&Fault::StopNode) {
            self.plan_stops();
        }
    }

    fn plan_stops(&mut self) {
        // Leaving takes longer than most faults.
        let interval = if self.profile.is_calm { 200_000 } else { 400_000 };
        let pause = self.stops.random.u64(1_000..interval);
        self.agenda.enter(self.now() + pause, Event::StopNodes);
    }

    pub(crate) fn on_stop_nodes(&mut self) {
        if self.now() >= self.nemesis.until || self.stage != Stage::Running {
            return;
        }
        self.plan_stops();
        let started = (1..=self.alive.len() as u8).filter(|&node| self.has_started(node));
        let mut nodes: Vec<u8> = started.filter(|&node| !self.stops.is_asked(node)).collect();
        // Mostly such as the others can do without.
        if self.stops.random.u8(..6) > 0 {
            let can_go = self.victims();
            nodes.retain(|node| can_go.contains(node));
        }
        self.stops.random.shuffle(&mut nodes);
        let at_once = [1, 1, 1, 2, 3][self.stops.random.usize(..5)];
        for node in nodes.into_iter().take(at_once) {
            let random = &mut self.stops.random;
            let is_short = !self.profile.is_calm && random.u8(..3) == 0;
            let wait = if is_short { random.u32(..300) } else { LONG_WAIT };
            self.ask_to_stop(node, wait);
        }
    }

    /// A data node gets the request.
    fn ask_to_stop(&mut self, node: u8, wait: u32) {
        self.note(|| format!("data node {node} is asked to stop, and may take {wait} ms to leave"));
        self.stops.asked.insert(node, Progress::Asked);
        let id = self.thread_of(node, 0);
        let thread = &mut self.threads[id.0];
        let lane = thread.api_lane(REQUESTER);
        thread.executor.outbox().routes.set_node(NodeId(REQUESTER), Some(lane));
        let info = Address::new(NodeId(node), BlockNumber::Info, 0);
        let requester = Address::new(NodeId(REQUESTER), BlockNumber::Api, 0);
        let body =
            ShutdownRequest { request: 1, terms: ShutdownTerms::Unnoticed { wait }, starts_again: false };
        let mut frame = Vec::new();
        let signal = SignalNumber::ShutdownRequest;
        cold::write(&mut FrameWriter::begin(&mut frame, signal, 0, info, requester, 0), &body);
        thread.order(frame);
        self.wake_thread(id, self.now());
    }

    /// What a thread sends to an API node goes to whoever has asked its data node to stop; says whether it does.
    pub(crate) fn take_stop_answer(&mut self, id: ThreadId, api: u8, lane: LaneId) -> bool {
        if api != REQUESTER {
            return false;
        }
        let node = self.threads[id.0].node;
        let bytes = std::mem::take(self.threads[id.0].executor.outbox().lane_mut(lane));
        for frame in Frames(&bytes) {
            match frame.signal() {
                Some(SignalNumber::ShutdownConfirm) => {
                    let ShutdownConfirm { has_left, .. } = cold::read(&frame).expect("info sent it");
                    self.on_stop_confirmed(node, has_left);
                }
                Some(SignalNumber::ShutdownRefuse) => {
                    let refusal: Refusal = cold::read(&frame).expect("info sent it");
                    self.note(|| format!("data node {node} does not stop: {}", refusal.detail));
                    self.stops.forget(node);
                }
                other => self.violations.push(format!("a request to stop is answered by {other:?}")),
            }
        }
        true
    }

    fn on_stop_confirmed(&mut self, node: u8, has_left: bool) {
        self.note(|| format!("data node {node} confirms that it stops, has left: {has_left}"));
        if has_left {
            return;
        }
        self.stops.has_been_noticed = true;
        if self.profile.is_calm {
            self.violations.push(format!("data node {node} has not left for {LONG_WAIT} ms"));
        }
    }

    /// The info block of a data node orders its driver to end it.
    pub(crate) fn on_shutdown_order(&mut self, node: u8) {
        if self.stops.asked.get(&node) != Some(&Progress::Asked) {
            self.violations.push(format!("data node {node} stops, though nobody has asked it to"));
        }
        self.note(|| format!("data node {node} reads nothing more of clients"));
        self.stops.asked.insert(node, Progress::Ends(self.now()));
        for connection in 0..self.connections.len() {
            let it = &mut self.connections[connection];
            if it.link.node == node && matches!(it.side, Side::Greeting | Side::Waiting { .. }) {
                it.side = Side::Closed;
                let down = it.down;
                self.break_pipe(down);
            }
        }
        self.agenda.enter(self.now() + LOOK, Event::LookAtStop(self.start_of(node)));
    }

    /// Whether a thread reads what comes by a pipe.
    pub(crate) fn is_read(&self, node: u8, end: End) -> bool {
        !self.stops.is_ending(node) || !matches!(end, End::Thread(_, Source::Client(_)))
    }

    /// Ends a data node when all that it had read is carried out, or that takes too long.
    pub(crate) fn on_look_at_stop(&mut self, start: Start) {
        let Some(Progress::Ends(since)) = self.stops.asked.get(&start.node).copied() else { return };
        if !self.is_running(start) {
            return;
        }
        // On a real node it takes a second at most: less than it takes until an API node counts as silent that is not
        // read.
        let takes_too_long = self.now() >= since + 2 * self.profile.heartbeat_interval;
        if takes_too_long || self.now() >= since + QUIET && self.has_said_all(start.node) {
            self.end_in_order(start.node);
        } else {
            self.agenda.enter(self.now() + LOOK, Event::LookAtStop(start));
        }
    }

    /// Whether nothing that a data node has read is to be carried out, or sent.
    fn has_said_all(&mut self, node: u8) -> bool {
        let is_of = |thread: &&Thread| thread.node == node;
        let is_quiet = self.threads.iter().filter(is_of).all(|thread| {
            let is_read = |pipe: PipeId| self.is_read(node, self.ends[pipe.0]);
            thread.has_read_all(is_read) && thread.executor.is_idle() && !thread.executor.host().is_working()
        });
        let mut own = self.threads.iter_mut().filter(|thread| thread.node == node);
        is_quiet && own.all(Thread::has_sent_all)
    }

    /// The process of a data node ends: it says so, and closes what it has open behind all that it has sent.
    fn end_in_order(&mut self, node: u8) {
        self.note(|| format!("data node {node} has ended in order"));
        let has_sent_all = self.has_said_all(node);
        self.halt(node);
        let now = self.now();
        let last_words = self.last_words(node, has_sent_all);
        // Threads end one after the other.
        let span = if self.stops.random.bool() { self.stops.random.u64(..LAST_WORDS_MAX) } else { 0 };
        for down in self.close_client_connections(node) {
            let at = now + self.stops.random.u64(..=span);
            self.put_split(down, at, Payload::Bytes(last_words.clone()));
            self.put(down, at, Payload::End);
        }
        let agreement = |node| Address::new(NodeId(node), BlockNumber::Agreement, 0);
        let view = self.threads[self.thread_of(node, 0).0].executor.view().number().0 as u8;
        for other in (1..=self.alive.len() as u8).filter(|&other| other != node) {
            for pipe in self.links_between(other, node) {
                self.pipes[pipe.0].shatter(&mut self.random);
            }
            for pipe in self.links_between(node, other) {
                let mut frame = Vec::new();
                let signal = SignalNumber::NodeEndedReport;
                FrameWriter::begin(&mut frame, signal, view, agreement(other), agreement(node), 0);
                self.put(pipe, now, Payload::Bytes(frame));
                self.put(pipe, now, Payload::End);
            }
        }
        self.note_death(node);
        // It was ordered to stop, and then those that it had asked were lost, as when both fail.
        if !self.is_anybody_there() {
            self.starts.lost_for_good = Some(format!("data node {node} was the last one, and stops"));
        }
    }

    /// The last that it sends on each connection of an API node.
    fn last_words(&self, node: u8, has_sent_all: bool) -> Vec<u8> {
        let main = self.thread_of(node, 0);
        let thread = &self.threads[main.0];
        let may_answer = thread.lease >= self.clock_of(main).at(self.now());
        let has_left = thread.executor.view().has_given_up_all(NodeId(node)) && may_answer;
        let refusal = Refusal {
            request: if has_left && has_sent_all { ALL_SENT } else { 0 },
            code: ErrorCode::NodeStopping as u16,
            detail: String::new(),
        };
        let mut frame = Vec::new();
        let signal = SignalNumber::HelloRefuse;
        cold::write(
            &mut FrameWriter::begin(&mut frame, signal, 0, Address::NONE, Address::NONE, 0),
            &refusal,
        );
        frame
    }

    /// A session of an API node is answered: in a calm run nothing has failed on account of a data node.
    pub(crate) fn check_calm(&mut self, api: usize, session: usize, answer: &Answer) {
        if !self.profile.is_calm || self.stops.has_been_noticed || self.stage == Stage::Loading {
            return;
        }
        let noticed = |code: &ErrorCode| NOTICED.contains(code);
        let has_failed = match answer {
            Answer::Failed(code) => noticed(code),
            Answer::Executed(answer) => {
                let is_lost = match answer.fate {
                    Fate::RolledBack { error, .. } => error.as_ref().is_some_and(noticed),
                    Fate::Unknown => true,
                    Fate::Open | Fate::Committed(_) => false,
                };
                is_lost || answer.errors.iter().any(|(_, code)| noticed(code))
            }
            Answer::Begin | Answer::Read(_) | Answer::Batch(_) | Answer::Done => false,
        };
        if has_failed {
            let text =
                format!("API node {api}, session {session} has noticed that a data node stops: {answer:?}");
            self.violations.push(text);
        }
    }
}
