//! Who makes things go wrong: one fault after the other, of the kinds that the profile allows, until its time is over.

use crate::agenda::Time;
use crate::going_on::is_chosen;
use crate::pipe::PipeId;
use crate::profile::{Coordinators, Fault};
use crate::thread::ThreadId;
use crate::topology::{API_FIRST, FIRST_NODE};
use crate::world::{Event, Stage, World};
use fastrand::Rng;
use vinga_base::NodeId;
use vinga_dictionary::Dictionary;
use vinga_wire::commit::{AbortBody, CommitBody, PrepareHead};
use vinga_wire::{Address, BlockNumber, Frame, SignalNumber};

/// Its own generator, so that the chances of the world stay the same when a kind of fault is turned off.
pub struct Nemesis {
    random: Rng,
    /// Whether clients learn of the death of a data node by their connections; numbers of its own.
    silence: Rng,
    /// Who dies in a schema change; likewise.
    schema: Rng,
    /// When it stops.
    pub until: Time,
    /// What it may still do of the kinds that can't be done often.
    api_deaths_left: u32,
    /// A data node dies at a certain moment of a protocol.
    crash_point: Option<CrashPoint>,
    /// An API node goes while a schema change is carried out for it.
    requester_death: Option<RequesterDeath>,
}

/// The API node that has asked for a schema change dies, or loses connections, when so many rounds have begun. The
/// dictionary learns of it later, in that round or in one of the next.
#[derive(Clone, Copy, Debug)]
struct RequesterDeath {
    rounds: u32,
    /// So many changes still get through.
    passing: u32,
    /// The last one that got through, by the number of the change.
    passed: u64,
}

/// A moment at which a data node dies: when such a signal leaves a data node for another. (An abort counts when the
/// primary passes it on.)
#[derive(Clone, Copy, Debug)]
struct CrashPoint {
    signal: SignalNumber,
    /// So many of them still pass.
    passing: u32,
    /// Whether the sender dies, or the receiver.
    sender_dies: bool,
    aftermath: Aftermath,
}

/// What makes it harder for the others to go on after a crash.
#[derive(Clone, Copy, Debug)]
enum Aftermath {
    /// Nothing.
    None,
    /// For so long nothing more comes from the coordinators' node.
    Silence(Time),
    /// The transaction's coordinator learns of the crash so much later than others.
    LateCoordinator(Time),
}

/// A data node is to die.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    victim: u8,
    /// Of the transaction that it was about.
    coordinator: Option<Address>,
    aftermath: Aftermath,
}

/// The coordinator whose transaction a chain signal is about.
fn coordinator_of(frame: &Frame<'_>) -> Option<Address> {
    let is_coordinator = |address: &Address| address.block() == Some(BlockNumber::Coordinator);
    let actor = match frame.signal() {
        Some(SignalNumber::PrepareRequest) => frame.head::<PrepareHead>().map(|(head, _)| head.actor),
        Some(SignalNumber::CommitRequest) => frame.head::<CommitBody>().map(|(body, _)| body.actor),
        Some(SignalNumber::AbortRequest) => frame.head::<AbortBody>().map(|(body, _)| body.actor),
        _ => None,
    };
    let ends = [Some(frame.sender()), Some(frame.receiver()), actor.map(|actor| Address(actor.acting.get()))];
    ends.into_iter().flatten().find(is_coordinator)
}

/// The signals that crash points wait for. What follows a decision takes little time and is what a crash leaves half
/// done, so these are chosen more often.
const CRASH_SIGNALS: [SignalNumber; 22] = [
    SignalNumber::PrepareRequest,
    SignalNumber::PrepareConfirm,
    SignalNumber::CommitRequest,
    SignalNumber::CommitConfirm,
    SignalNumber::AbortRequest,
    SignalNumber::AbortRequest,
    SignalNumber::AbortRequest,
    SignalNumber::AbortConfirm,
    SignalNumber::CompleteOrder,
    SignalNumber::CompleteOrder,
    SignalNumber::CompleteOrder,
    SignalNumber::CompleteRequest,
    SignalNumber::CompleteConfirm,
    SignalNumber::InDoubtRequest,
    SignalNumber::InDoubtConfirm,
    SignalNumber::InDoubtConfirm,
    SignalNumber::TakeOverOrder,
    SignalNumber::TakeOverReport,
    SignalNumber::TakeOverReport,
    SignalNumber::FailPrepareRequest,
    SignalNumber::FailPrepareConfirm,
    SignalNumber::ViewOrder,
];

/// The signals of schema changes that pass between data nodes.
const SCHEMA_SIGNALS: [SignalNumber; 5] = [
    SignalNumber::SchemaRoundRequest,
    SignalNumber::SchemaRoundConfirm,
    SignalNumber::SchemaRoundRefuse,
    SignalNumber::SchemaStateRequest,
    SignalNumber::SchemaStateConfirm,
];

/// A data node dies of one in so many of them.
const SCHEMA_CRASH_ONE_IN: u32 = 40;

impl Nemesis {
    /// For a seed.
    pub fn new(seed: u64) -> Self {
        let random = Rng::with_seed(seed ^ 0x6e65_6d65);
        let silence = Rng::with_seed(seed ^ 0x0073_696c_656e_6365);
        let schema = Rng::with_seed(seed ^ 0x73_6368_656d_6163);
        Nemesis {
            random,
            silence,
            schema,
            until: 0,
            api_deaths_left: 6,
            crash_point: None,
            requester_death: None,
        }
    }

    /// Whether the connections of a data node that dies now are left as they are: its machine is gone, and nothing
    /// closes them.
    pub fn draw_silence(&mut self) -> bool {
        self.silence.bool()
    }
}

/// The faults that happen at a moment; the others are properties of the whole run.
const STRIKES: [Fault; 10] = [
    Fault::KillNode,
    Fault::StallThread,
    Fault::StallNode,
    Fault::CutLink,
    Fault::BreakLink,
    Fault::Split,
    Fault::Disconnect,
    Fault::KillApi,
    Fault::StallApi,
    Fault::SlowReader,
];

impl World {
    /// Faults begin.
    pub(crate) fn begin_faults(&mut self) {
        self.nemesis.until = self.now() + self.profile.fault_time;
        self.plan_strike();
        self.plan_crash();
        self.plan_requester_death();
        self.begin_disk_faults(self.nemesis.until);
        self.begin_management_faults();
        self.begin_stops();
        self.begin_additions();
    }

    fn plan_requester_death(&mut self) {
        let is = |fault| self.profile.faults.contains(&fault);
        let may_go = is(Fault::KillApi) && self.nemesis.api_deaths_left > 0 || is(Fault::Disconnect);
        let random = &mut self.nemesis.random;
        self.nemesis.requester_death =
            may_go.then(|| RequesterDeath { rounds: random.u32(1..=9), passing: random.u32(..3), passed: 0 });
    }

    /// A thread has run: if the dictionary is there, the API node that waits for a schema change may die now.
    pub(crate) fn meet_requester_death(&mut self, thread: ThreadId) {
        let Some(death) = &mut self.nemesis.requester_death else { return };
        if self.stage != Stage::Running {
            return;
        }
        let dictionary = self.threads[thread.0].executor.host().dictionary();
        let Some((requester, change, rounds)) = dictionary.and_then(Dictionary::progress) else { return };
        if rounds < death.rounds || change == death.passed {
            return;
        }
        if death.passing > 0 {
            death.passing -= 1;
            death.passed = change;
            return;
        }
        let api = usize::from(requester.0 - API_FIRST);
        self.nemesis.requester_death = None;
        let may_die = self.profile.faults.contains(&Fault::KillApi)
            && self.apis[api].is_alive
            && self.nemesis.api_deaths_left > 0;
        if may_die {
            self.strike_api(api);
        } else {
            self.disconnect_api(api);
        }
        self.plan_requester_death();
    }

    /// An API node dies, or leaves, and comes back in a new incarnation.
    fn strike_api(&mut self, api: usize) {
        self.nemesis.api_deaths_left -= 1;
        let pause = if self.nemesis.random.bool() {
            self.kill_api(api);
            self.nemesis.random.u64(1_000..self.profile.reconnect_grace * 2)
        } else {
            // It comes back at once, or before anybody would have given it up.
            self.leave_api(api);
            self.nemesis.random.u64(1_000..self.profile.reconnect_grace)
        };
        self.agenda.enter(self.now() + pause, Event::Revive(api));
    }

    fn plan_crash(&mut self) {
        let random = &mut self.nemesis.random;
        let signal = CRASH_SIGNALS[random.usize(..CRASH_SIGNALS.len())];
        let span = random.u64(1_000..40_000);
        let late = Aftermath::LateCoordinator(span);
        let aftermath = match (signal, random.u8(..6)) {
            (_, 0) => Aftermath::None,
            // What the dead node has not passed on, its coordinator does later than others work on the same rows.
            (SignalNumber::AbortRequest, 1..5) | (_, 1..3) => late,
            _ => Aftermath::Silence(span),
        };
        let crash_point =
            CrashPoint { signal, passing: random.u32(..30), sender_dies: random.u8(..3) == 0, aftermath };
        self.nemesis.crash_point = self.profile.faults.contains(&Fault::CrashPoint).then_some(crash_point);
    }

    /// A signal of a schema change leaves a data node for another: whether one of them dies of it.
    fn meets_schema_crash(&mut self, frame: &Frame<'_>, from: u8, to: u8) -> Option<Crash> {
        let is_meant = self.profile.faults.contains(&Fault::SchemaCrash)
            && self.stage == Stage::Running
            && frame.signal().is_some_and(|signal| SCHEMA_SIGNALS.contains(&signal));
        if !is_meant || self.nemesis.schema.u32(..SCHEMA_CRASH_ONE_IN) > 0 {
            return None;
        }
        let victim = if self.nemesis.schema.bool() { from } else { to };
        let crash = Crash { victim, coordinator: None, aftermath: Aftermath::None };
        self.victims().contains(&victim).then_some(crash)
    }

    /// A signal leaves a data node for another: whether somebody dies of it.
    pub(crate) fn meets_crash_point(&mut self, frame: &Frame<'_>, from: u8, to: u8) -> Option<Crash> {
        if let Some(crash) = self.meets_schema_crash(frame, from, to) {
            return Some(crash);
        }
        let first_may_die = self.may_die(FIRST_NODE);
        let point = self.nemesis.crash_point.as_mut()?;
        if frame.signal() != Some(point.signal) || self.stage != Stage::Running {
            return None;
        }
        if let Some((body, _)) =
            frame.head::<AbortBody>().filter(|_| point.signal == SignalNumber::AbortRequest)
            && (frame.sender().block() != Some(BlockNumber::DataManager) || body.replicas.primary().0 != from)
        {
            return None;
        }
        let victim = if point.sender_dies { from } else { to };
        if victim == FIRST_NODE && !first_may_die {
            return None;
        }
        if point.passing > 0 {
            point.passing -= 1;
            return None;
        }
        let (aftermath, coordinator) = (point.aftermath, coordinator_of(frame));
        self.nemesis.crash_point = None;
        self.victims().contains(&victim).then_some(Crash { victim, coordinator, aftermath })
    }

    fn plan_strike(&mut self) {
        let pause = self.nemesis.random.u64(..=self.profile.fault_interval * 2);
        let at = self.now() + pause;
        self.agenda.enter(at, Event::Strike);
    }

    pub(crate) fn on_strike(&mut self) {
        if self.now() >= self.nemesis.until || self.stage != Stage::Running {
            return;
        }
        self.plan_strike();
        if self.profile.faults.contains(&Fault::RestartCluster) {
            self.strike_cluster();
        }
        if self.profile.faults.contains(&Fault::GiveUp) {
            self.strike_batches();
        }
        let drawn = STRIKES[self.nemesis.random.usize(..STRIKES.len())];
        let many = self.profile.faults.contains(&Fault::ManyDisconnects);
        let kind = if many && self.nemesis.random.bool() { Fault::ManyDisconnects } else { drawn };
        let api = self.nemesis.random.usize(..self.apis.len());
        let thread = ThreadId(self.nemesis.random.usize(..self.threads.len()));
        let span = self.nemesis.random.u64(500..60_000);
        if !self.profile.faults.contains(&kind) {
            return;
        }
        match kind {
            Fault::KillNode => self.strike_node(),
            Fault::StallThread => self.stall_thread(thread, span),
            Fault::StallNode => {
                let node = self.threads[thread.0].node;
                for index in 0..self.profile.threads {
                    self.stall_thread(self.thread_of(node, index), span);
                }
            }
            Fault::CutLink => self.strike_link(span),
            Fault::BreakLink => self.strike_pair(),
            Fault::Split => self.strike_sets(),
            Fault::Disconnect | Fault::ManyDisconnects => self.disconnect_api(api),
            Fault::KillApi => {
                let api = self.owner_of_something().unwrap_or(api);
                if self.apis[api].is_alive && self.nemesis.api_deaths_left > 0 {
                    self.strike_api(api);
                }
            }
            // Sometimes longer than it takes to be declared failed.
            Fault::StallApi => {
                let span = if self.nemesis.random.bool() { span } else { span * 8 };
                self.apis[api].stalled_until = self.now() + span;
            }
            Fault::SlowReader => self.apis[api].slow_until = self.now() + span,
            Fault::CrashPoint
            | Fault::SlowRings
            | Fault::SlowLinks
            | Fault::SlowClients
            | Fault::SmallPools
            | Fault::SmallMemory
            | Fault::Congestion
            | Fault::SplitFrames
            | Fault::FewSockets
            | Fault::GiveUp
            | Fault::SlowDisk
            | Fault::FailingDisk
            | Fault::FullDisk
            | Fault::CorruptSector
            | Fault::RestartCluster
            | Fault::Management
            | Fault::DriftingClocks
            | Fault::SchemaCrash
            | Fault::ReturnNode
            | Fault::StopNode
            | Fault::AddNodeGroup
            | Fault::JoinPoint => unreachable!("these are properties of a run"),
        }
    }

    /// A connection of an API node was admitted: it may break again while answers to what the API node asks now, having
    /// lost them before, are on their way.
    pub(crate) fn plan_break_again(&mut self, api: usize) {
        if self.stage == Stage::Running && self.profile.faults.contains(&Fault::ManyDisconnects) {
            let pause = self.nemesis.random.u64(..=self.profile.fault_interval);
            self.agenda.enter(self.now() + pause, Event::BreakAgain(api));
        }
    }

    pub(crate) fn on_break_again(&mut self, api: usize) {
        if self.now() < self.nemesis.until && self.stage == Stage::Running {
            self.disconnect_api(api);
        }
    }

    /// Everybody gives up what is under way.
    fn strike_batches(&mut self) {
        for api in 0..self.apis.len() {
            if self.apis[api].is_alive && self.apis[api].stalled_until <= self.now() {
                self.give_up_batches(api);
            }
        }
    }

    /// The API node that has the schema lock, as far as any dictionary knows.
    fn lock_holder(&self) -> Option<NodeId> {
        let live = self.threads.iter().filter(|thread| thread.is_alive);
        live.filter_map(|thread| thread.executor.host().dictionary()).find_map(Dictionary::lock_holder)
    }

    /// An API node that has fenced a table, or has the schema lock: every other time that there is one.
    fn owner_of_something(&mut self) -> Option<usize> {
        let dictionary = self.threads.iter().find_map(|thread| thread.executor.host().dictionary())?;
        let fenced_by = dictionary.fences().next().map(|(_, owner)| owner);
        let owner = fenced_by.or(dictionary.lock_holder())?;
        self.nemesis.random.bool().then(|| usize::from(owner.0 - API_FIRST))
    }

    /// Whether a data node may die for good: clusters with disks are restarted as a whole, and others need a
    /// coordinator.
    pub(crate) fn may_die(&self, node: u8) -> bool {
        node != FIRST_NODE
            || self.profile.log.is_none() && self.profile.coordinators == Coordinators::Everywhere
    }

    fn strike_node(&mut self) {
        let victims = self.victims();
        if victims.is_empty() {
            return;
        }
        let drawn = victims[self.nemesis.random.usize(..victims.len())];
        // Rather whoever leads, if an API node has the schema lock: that is rare enough.
        let leads = |node: &u8| *node == self.president() && self.lock_holder().is_some();
        let node = victims.iter().copied().find(leads).unwrap_or(drawn);
        self.kill_node(node);
    }

    /// A data node dies at a crash point; another one may follow it later.
    pub(crate) fn crash(&mut self, crash: Crash) {
        self.kill_node(crash.victim);
        match crash.aftermath {
            Aftermath::None => {}
            Aftermath::Silence(span) => {
                let silent = crash.coordinator.map_or(self.president(), |coordinator| coordinator.node().0);
                // What a dead coordinator's transactions have caused stays on its way between the others for a while.
                let is_dead = silent == crash.victim;
                self.cut_links(|from, _| is_dead || from == silent, span);
            }
            Aftermath::LateCoordinator(span) => {
                // Each thread of a node with coordinators hosts one of them.
                let thread = crash.coordinator.map(|c| self.thread_of(c.node().0, c.instance()));
                self.agreed.deaths.last_mut().expect("somebody has just died").late =
                    thread.map(|t| (t, span));
            }
        }
        self.plan_crash();
    }

    /// Cuts the link between two data nodes for a while, one way or both ways.
    fn strike_link(&mut self, span: Time) {
        let nodes = self.alive.len() as u8;
        if nodes < 2 {
            return;
        }
        let from = self.nemesis.random.u8(1..=nodes);
        let to = (from - 1 + self.nemesis.random.u8(1..nodes)) % nodes + 1;
        let both = self.nemesis.random.bool();
        self.note(|| format!("the link from data node {from} to {to} is cut, both ways: {both}"));
        self.cut_links(|f, t| (f, t) == (from, to) || both && (f, t) == (to, from), span);
    }

    /// Breaks the connections between two data nodes, of which the cluster can do without either.
    fn strike_pair(&mut self) {
        let victims = self.victims();
        if victims.len() < 2 {
            return;
        }
        let one = victims[self.nemesis.random.usize(..victims.len())];
        let other = victims[self.nemesis.random.usize(..victims.len())];
        if one != other {
            self.note(|| format!("the connections between data nodes {one} and {other} break"));
            self.break_link(one, other);
            self.break_link(other, one);
        }
    }

    /// Cuts all links between two sets of data nodes, one of which can go on.
    fn strike_sets(&mut self) {
        if self.profile.coordinators == Coordinators::AtPresident {
            return;
        }
        let nodes = self.alive.len();
        let chosen: Vec<bool> = (0..nodes).map(|_| self.nemesis.random.bool()).collect();
        if !self.can_be_split(&chosen) {
            return;
        }
        let span = self.profile.node_heartbeat_interval * self.nemesis.random.u64(1..12);
        self.split_sets(&chosen, span);
    }

    /// Nothing passes between the data nodes that are chosen and the others for a while, if some of them can go on.
    pub(crate) fn split_sets(&mut self, chosen: &[bool], span: Time) {
        if self.stage != Stage::Running || !self.can_be_split(chosen) {
            return;
        }
        self.note(|| format!("data nodes are split: {chosen:?}"));
        self.cut_links(|from, to| is_chosen(chosen, from) != is_chosen(chosen, to), span);
    }

    /// Cuts the links from one data node to another that are chosen, for a while.
    pub(crate) fn cut_links(&mut self, is_chosen: impl Fn(u8, u8) -> bool, span: Time) {
        let cut: Vec<PipeId> = self
            .links
            .iter()
            .filter(|&(&(from, to, _), _)| is_chosen(from, to))
            .map(|(_, &pipe)| pipe)
            .filter(|pipe| !self.pipes[pipe.0].is_broken())
            .collect();
        for pipe in &cut {
            self.pipes[pipe.0].cut();
        }
        self.returns.hold_links(self.now() + span);
        self.agenda.enter(self.now() + span, Event::Heal(cut));
    }
}
