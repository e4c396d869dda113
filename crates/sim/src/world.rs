//! The world: data nodes with their threads, API nodes, and the pipes between them, under one clock.
//!
//! Everything that happens is an [`Event`]. Nothing else moves: a thread runs when its turn comes, bytes arrive when a
//! pipe says so, a fault happens when the nemesis has entered it. All chances come from generators that the seed made,
//! so the same seed in the same build gives the same history; [`World::hash`] is a hash of it.

use crate::additions::Additions;
use crate::agenda::{Agenda, Time};
use crate::api::ApiNode;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::decisions::Decisions;
use crate::disk::Disk;
use crate::failure::Agreed;
use crate::join_points::JoinPoints;
use crate::management::{Management, ManagementEvent, Question};
use crate::nemesis::Nemesis;
use crate::online_backups::FinishedBackup;
use crate::operator::Operator;
use crate::pipe::{Delay, Payload, Piece, Pipe, PipeId};
use crate::profile::{Load, Profile};
use crate::restart::{NodeStart, Starts};
use crate::returns::{Returns, Start};
use crate::schema::Changes;
use crate::stops::Stops;
use crate::thread::{Source, Thread, ThreadId};
use crate::topology;
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use vinga_base::hash::KeyHash;
use vinga_kernel::InjectedBug;
use vinga_kernel::injected_bug::is_on;
use vinga_workloads::bank::{self, Bank};
use vinga_workloads::counter::{self, Counter};
use vinga_workloads::history::History;
use vinga_workloads::key_value::{self, KeyValue};
use vinga_workloads::list_append::{self, ListAppend};
use vinga_workloads::picking::{self, Picking};
use vinga_workloads::range_scanning::{self, RangeScanning};
use vinga_workloads::scan_ahead::{self, ScanAhead};
use vinga_workloads::scanning::{self, Scanning};
use vinga_workloads::schema_churn::{self, SchemaChurn};
use vinga_workloads::shape::Shape;
use vinga_workloads::step::TableRef;
use vinga_workloads::unique_reading::{self, UniqueReading};
use vinga_workloads::workload::{Ids, Session, Workload};

/// Something that happens.
#[derive(Debug)]
pub enum Event {
    /// A thread's turn.
    Turn(ThreadId),
    /// Something comes out of a pipe, unless it was lost.
    Arrive(PipeId, Payload),
    /// Something comes out of a broken pipe for certain.
    Deliver(PipeId, Payload),
    /// An API node looks at the time.
    Wake(usize),
    /// A connection that an API node asked for is there, or can't be had.
    Opened {
        /// The connection.
        connection: usize,
        /// Whether it is there.
        is_open: bool,
    },
    /// A thread adopts the view of this number.
    AdoptView(ThreadId, u32),
    /// A disk of a data node is done with the task of this ticket.
    FileDone(u8, u64),
    /// The nemesis strikes.
    Strike,
    /// A cut link is healed.
    Heal(Vec<PipeId>),
    /// A dead API node comes back.
    Revive(usize),
    /// Connections of an API node break that has just come back.
    BreakAgain(usize),
    /// All data nodes die.
    KillCluster,
    /// They start again.
    StartCluster,
    /// Something that the driver of a thread has asked reaches management nodes.
    Question(Start, ThreadId, Question),
    /// Something happens to management nodes.
    Management(ManagementEvent),
    /// Nothing passes between two sets of data nodes, those that are chosen and the others, for so long.
    Split(Vec<bool>, Time),
    /// A data node that has died starts again.
    ReturnNode(u8),
    /// The links between two data nodes are to open, of which the first has come back.
    OpenLinks(Start, Start),
    /// A data node ends that can't come back this time.
    NodeEnds(Start),
    /// A data node starts for the first time.
    AddNode,
    /// Somebody has the cluster reorganise.
    Reorganize,
    /// It is looked whether the request of this number to reorganise is answered.
    ReorganizeUnanswered(u32),
    /// Data nodes are asked to stop.
    StopNodes,
    /// It is looked whether a data node that stops has carried out what it has read.
    LookAtStop(Start),
    /// A data node dies, if it can be done without.
    Follow(Start),
    /// All data nodes that live are to have agreed on who has died so far, if so many have.
    ViewDue(usize),
}

/// Where a pipe ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// At a thread.
    Thread(ThreadId, Source),
    /// At an API node, as one of its connections.
    Api(usize, usize),
    /// At a thread that is no more.
    Gone,
}

/// How far the run has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Tables are made and filled, without faults.
    Loading,
    /// Load and faults.
    Running,
    /// Faults are over; everything has to come to an end.
    Ending,
}

/// A workload of the run.
pub struct Running {
    /// It.
    pub workload: Box<dyn Workload>,
    /// Its first table.
    pub first: TableRef,
}

/// A simulated cluster with its clients.
pub struct World {
    /// What the seed has made of it.
    pub profile: Profile,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) random: Rng,
    pub(crate) pipes: Vec<Pipe>,
    pub(crate) ends: Vec<End>,
    pub(crate) threads: Vec<Thread>,
    /// By node id less 1.
    pub(crate) clocks: Vec<Clock>,
    /// For clocks, so that all else stays the same as without any that drift.
    pub(crate) clock_random: Rng,
    /// By node id less 1.
    pub(crate) disks: Vec<Disk>,
    /// For what becomes of files, so that all else stays the same as without any.
    pub(crate) disk_random: Rng,
    /// By node id less 1: whether it is alive.
    pub(crate) alive: Vec<bool>,
    /// By data node.
    pub(crate) starts_of_nodes: Vec<NodeStart>,
    pub(crate) starts: Starts,
    /// What threads of earlier starts have met and handled.
    pub(crate) marks_before: BTreeSet<&'static str>,
    pub(crate) signals_before: u64,
    /// Links between data nodes: from, to, which.
    pub(crate) links: BTreeMap<(u8, u8, u16), PipeId>,
    /// Those from a start that is no more to another node, as long as that may read what has come by them.
    pub(crate) past_links: BTreeMap<(Start, u8), Vec<PipeId>>,
    pub(crate) returns: Returns,
    pub(crate) stops: Stops,
    pub(crate) additions: Additions,
    pub(crate) operator: Operator,
    /// Rings: from, to.
    pub(crate) rings: BTreeMap<(ThreadId, ThreadId), PipeId>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) apis: Vec<ApiNode>,
    pub(crate) agreed: Agreed,
    pub(crate) management: Management,
    pub(crate) nemesis: Nemesis,
    pub(crate) join_points: JoinPoints,
    pub(crate) stage: Stage,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) running: Vec<Running>,
    pub(crate) sessions_made: u32,
    /// Which table a birth belongs to, of all that a client knows.
    pub(crate) names: BTreeMap<u64, TableRef>,
    pub(crate) changes: Changes,
    /// What was asked and answered.
    pub history: History,
    pub(crate) decisions: Decisions,
    /// Backups that API nodes have finished.
    pub(crate) backups: Vec<FinishedBackup>,
    /// What can't be true, in the order in which it was noticed.
    pub violations: Vec<String>,
    /// Turns of all threads so far.
    pub(crate) turns: u64,
    /// Steps so far.
    pub(crate) steps: u64,
    /// A hash of everything that has happened.
    pub hash: u64,
    pub(crate) trace: Option<fn(&str)>,
    /// A rule that is broken on purpose.
    pub(crate) bug: Option<InjectedBug>,
    /// Lines of the log and of the world, the last ones.
    pub(crate) log: VecDeque<String>,
}

/// Lines of the log that are kept.
const LOG_MAX: usize = 60;

impl World {
    /// A world at time 0: data nodes have started, nobody is connected.
    pub fn new(seed: u64, profile: Profile, bug: Option<InjectedBug>, trace: Option<fn(&str)>) -> Self {
        let mut world = World {
            agenda: Agenda::new(),
            random: Rng::with_seed(seed),
            pipes: Vec::new(),
            ends: Vec::new(),
            threads: Vec::new(),
            clocks: Vec::new(),
            clock_random: Rng::with_seed(seed ^ 0x63_6c_6f_63_6b),
            disks: Vec::new(),
            disk_random: Rng::with_seed(seed ^ 0x64_6973_6b73),
            alive: Vec::new(),
            starts_of_nodes: Vec::new(),
            starts: Starts::new(),
            marks_before: BTreeSet::new(),
            signals_before: 0,
            links: BTreeMap::new(),
            past_links: BTreeMap::new(),
            returns: Returns::new(seed, profile.added.len()),
            stops: Stops::new(seed),
            additions: Additions::new(seed),
            operator: Operator::new(seed),
            rings: BTreeMap::new(),
            connections: Vec::new(),
            apis: Vec::new(),
            agreed: Agreed::new(),
            management: Management::new(seed, profile.management_nodes),
            nemesis: Nemesis::new(seed),
            join_points: JoinPoints::new(seed),
            stage: Stage::Loading,
            shapes: Vec::new(),
            running: Vec::new(),
            sessions_made: 0,
            names: BTreeMap::new(),
            changes: Changes::default(),
            history: History::default(),
            decisions: Decisions::default(),
            backups: Vec::new(),
            violations: Vec::new(),
            turns: 0,
            steps: 0,
            hash: seed,
            trace,
            bug,
            log: VecDeque::new(),
            profile,
        };
        world.make_nodes();
        world.make_workloads();
        world.make_apis();
        world
    }

    fn make_nodes(&mut self) {
        let nodes = self.profile.groups.list().len() as u8;
        self.alive = vec![true; usize::from(nodes)];
        let view = Arc::new(topology::first_view(&self.profile));
        let start = NodeStart { is_started: false, incarnation: 1, cluster_incarnation: 1, database: 1 };
        self.starts_of_nodes = vec![start; usize::from(nodes)];
        for node in 1..=nodes {
            self.clocks.push(Clock::draw(&mut self.clock_random, self.profile.drift_max));
            self.disks.push(Disk::new(self.profile.disk, self.disk_random.u64(..)));
            self.start_node(node, &view).expect("there are no files that could be wrong");
        }
        for node in 1..=nodes {
            self.make_rings(node);
        }
        for from in 1..=nodes {
            for to in (1..=nodes).filter(|&to| to != from) {
                self.make_links(from, to);
            }
        }
        for thread in 0..self.threads.len() {
            let at = self.random.u64(..100);
            self.wake_thread(ThreadId(thread), at);
        }
    }

    /// Makes the connections by which one data node sends to another.
    pub(crate) fn make_links(&mut self, from: u8, to: u8) {
        for connection in 0..self.profile.connections {
            // Any thread may serve a connection between data nodes.
            let serving = self.thread_of(to, connection % self.profile.threads);
            let end = End::Thread(serving, Source::Link(self.start_of(from)));
            let pipe = self.make_pipe(self.profile.link_delay, 256 * 1024, end);
            self.links.insert((from, to, connection), pipe);
        }
    }

    fn make_workloads(&mut self) {
        let (transactions, keys, pause) = (self.profile.transactions, self.profile.keys, self.profile.pause);
        for load in self.profile.loads.clone() {
            let workload: Box<dyn Workload> = match load {
                Load::KeyValue | Load::Unique => Box::new(KeyValue::new(key_value::Settings {
                    unique: load == Load::Unique,
                    durable: self.profile.has_durable_tables,
                    unlogged: self.profile.has_unlogged_tables,
                    keys,
                    transactions,
                    operations_max: self.random.usize(1..8),
                    pause,
                    left_open: self.random.u32(0..10),
                    left_for: self.profile.inactive_timeout * 2,
                })),
                Load::Bank => {
                    let accounts = self.random.u64(2..12);
                    Box::new(Bank::new(bank::Settings { accounts, transactions, pause }))
                }
                Load::Counter => {
                    let counters = self.random.u64(1..6);
                    Box::new(Counter::new(counter::Settings { counters, transactions, pause }))
                }
                Load::Scanning => Box::new(Scanning::new(scanning::Settings {
                    keys: keys * 4,
                    steps: transactions,
                    pause,
                    left_for: self.profile.inactive_timeout * 2,
                })),
                Load::ScanAhead => {
                    let (transactions, rows) = (transactions / 4 + 1, self.random.u64(1..10));
                    Box::new(ScanAhead::new(scan_ahead::Settings { transactions, rows, pause }))
                }
                Load::RangeScanning => Box::new(RangeScanning::new(range_scanning::Settings {
                    keys: keys * 4,
                    steps: transactions,
                    pause,
                    left_for: self.profile.inactive_timeout * 2,
                    rechecks: !is_on(self.bug, InjectedBug::RecheckLeftOut),
                })),
                Load::UniqueReading => Box::new(UniqueReading::new(unique_reading::Settings {
                    kept: (keys / 4).clamp(2, 8),
                    steps: transactions,
                    pause,
                    rechecks: !is_on(self.bug, InjectedBug::UniqueRecheckLeftOut),
                })),
                Load::Picking => Box::new(Picking::new(picking::Settings {
                    keys: keys.clamp(3, 12),
                    transactions,
                    pause,
                    // Shorter and longer than the usual wait.
                    wait_max: (self.profile.lock_timeout / 500) as u32,
                })),
                Load::ListAppend => Box::new(ListAppend::new(list_append::Settings {
                    lists: (keys / 3).clamp(3, 12),
                    transactions,
                    pause,
                })),
                Load::SchemaChurn => Box::new(SchemaChurn::new(schema_churn::Settings {
                    rounds: self.random.u32(1..6),
                    transactions,
                    keys: keys.min(10),
                    pause,
                })),
            };
            let first = TableRef(self.shapes.len() as u16);
            let tables = workload.tables();
            let lists = tables.iter().zip(first.0..).filter(|(shape, _)| shape.is_list());
            self.history.lists.extend(lists.map(|(_, table)| TableRef(table)));
            self.shapes.extend(tables);
            self.running.push(Running { workload, first });
        }
    }

    /// A pipe with its end.
    pub(crate) fn make_pipe(&mut self, delay: Delay, room: usize, end: End) -> PipeId {
        self.pipes.push(Pipe::new(delay, room));
        self.ends.push(end);
        PipeId(self.pipes.len() - 1)
    }

    /// A new session of a workload, or the one that fills its tables.
    pub(crate) fn make_session(&mut self, workload: usize, is_loader: bool) -> Box<dyn Session> {
        self.sessions_made += 1;
        let Running { workload, first } = &mut self.running[workload];
        let ids = Ids::new(self.sessions_made, *first);
        if is_loader { workload.loader(ids) } else { workload.session(ids) }
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.agenda.now()
    }

    /// Events that have happened or are going to.
    pub fn events(&self) -> u64 {
        self.agenda.entered()
    }

    pub(crate) fn thread_of(&self, node: u8, index: u16) -> ThreadId {
        ThreadId(usize::from(node - 1) * usize::from(self.profile.threads) + usize::from(index))
    }

    /// The clock of the node that a thread belongs to.
    pub(crate) fn clock_of(&self, id: ThreadId) -> Clock {
        self.clocks[usize::from(self.threads[id.0].node) - 1]
    }

    pub(crate) fn is_alive(&self, node: u8) -> bool {
        self.alive[usize::from(node - 1)]
    }

    /// Puts something into a pipe; `at` is when it leaves its sender.
    pub(crate) fn put(&mut self, pipe: PipeId, at: Time, payload: Payload) {
        let piece = self.pipes[pipe.0].put(at, &mut self.random, payload);
        if let Some(Piece { at, payload }) = piece {
            self.agenda.enter(at, Event::Arrive(pipe, payload));
        }
    }

    /// Lets the next thing happen. False if nothing will ever happen again, which can't be: threads have timers.
    pub fn step(&mut self) -> bool {
        let Some(event) = self.agenda.take_next() else { return false };
        match event {
            Event::Turn(thread) => self.on_turn(thread),
            Event::Arrive(pipe, payload) => {
                if self.pipes[pipe.0].arrive() {
                    self.on_arrival(pipe, payload);
                }
            }
            Event::Deliver(pipe, payload) => self.on_arrival(pipe, payload),
            Event::Wake(api) => self.on_wake(api),
            Event::Opened { connection, is_open } => {
                let node = self.connections[connection].link.node;
                let is_open = is_open && self.lets_in(node) && self.connections[connection].is_awaited();
                self.on_connection_opened(connection, is_open);
            }
            Event::AdoptView(thread, number) => self.on_adopt_view(thread, number),
            Event::FileDone(node, ticket) => self.on_file_done(node, ticket),
            Event::Strike => self.on_strike(),
            Event::Heal(pipes) => self.on_heal(&pipes),
            Event::Revive(api) => self.on_revive(api),
            Event::BreakAgain(api) => self.on_break_again(api),
            Event::KillCluster => self.on_kill_cluster(),
            Event::StartCluster => self.on_start_cluster(),
            Event::Question(start, thread, question) => self.on_question(start, thread, question),
            Event::Management(event) => self.on_management_event(event),
            Event::Split(chosen, span) => self.split_sets(&chosen, span),
            Event::ReturnNode(node) => self.on_return(node),
            Event::Follow(start) => self.on_follow(start),
            Event::OpenLinks(newcomer, other) => self.on_open_links(newcomer, other),
            Event::NodeEnds(start) => self.on_node_ends(start),
            Event::AddNode => self.on_add_node(),
            Event::Reorganize => self.on_reorganize(),
            Event::ReorganizeUnanswered(request) => self.on_reorganize_unanswered(request),
            Event::StopNodes => self.on_stop_nodes(),
            Event::LookAtStop(start) => self.on_look_at_stop(start),
            Event::ViewDue(deaths) => self.check_view_came(deaths),
        }
        true
    }

    fn on_arrival(&mut self, pipe: PipeId, payload: Payload) {
        match self.ends[pipe.0] {
            End::Thread(thread, source) => {
                if self.threads[thread.0].is_alive && !self.comes_too_late(thread, source, &payload) {
                    self.threads[thread.0].receive(pipe, payload);
                    self.wake_thread(thread, self.now());
                }
            }
            End::Api(api, connection) => self.on_api_arrival(api, connection, pipe, payload),
            End::Gone => {}
        }
    }

    fn on_heal(&mut self, pipes: &[PipeId]) {
        for &pipe in pipes {
            let now = self.now();
            for Piece { at, payload } in self.pipes[pipe.0].heal(now, &mut self.random) {
                self.agenda.enter(at, Event::Arrive(pipe, payload));
            }
        }
    }

    /// Takes something into the hash of the history.
    pub(crate) fn mix(&mut self, number: u64) {
        self.hash = (self.hash.rotate_left(7) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    pub(crate) fn mix_bytes(&mut self, bytes: &[u8]) {
        self.mix(KeyHash::of(bytes).0);
    }

    /// Notes something for people.
    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        let line = format!("{:>12}µs {}", self.now(), text());
        if let Some(trace) = self.trace {
            trace(&line);
        }
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back(line);
    }
}
