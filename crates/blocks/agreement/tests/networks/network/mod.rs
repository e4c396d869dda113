//! Agreement blocks of several data nodes with the network between them, drivers that keep their duties, and management
//! nodes that arbitrate. Time goes on in steps of a millisecond. What must never happen is checked all the time.

mod arbitrators;
mod growth;
mod rests;
mod rows;

use arbitrators::{Found, Management, Question};
use fastrand::Rng;
use rests::Rests;
use rows::Rows;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vinga_agreement::{Agreement, LEASE_INTERVALS, SILENT_INTERVALS, Settings, Verdict};
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::testkit::{Harness, Sent, describe};
use vinga_kernel::{InjectedBug, Span};
use vinga_wire::agreement::{
    ArbitrationConfirm, ArbitrationRefuse, ArbitrationRequest, LeaseOrder, LinkBody, TicketBody,
    ViewChangeConfirm, ViewChangeRefusal, ViewChangeRefuse,
};
use vinga_wire::file::StopNodeOrder;
use vinga_wire::view::{ClusterView, Member, NO_TICKET};
use vinga_wire::{Address, BlockNumber, SignalNumber, cold};

/// These nodes.
pub fn set(nodes: &[u8]) -> BTreeSet<u8> {
    nodes.iter().copied().collect()
}

/// How many runs; `VINGA_RUNS` sets another number.
pub fn runs(usual: u64) -> u64 {
    std::env::var("VINGA_RUNS").map_or(usual, |runs| runs.parse().expect("VINGA_RUNS is a number"))
}

/// `HeartbeatIntervalDbDb`, in milliseconds.
pub const INTERVAL: u64 = 20;
/// So many milliseconds after the last fault all is over.
pub const REST: u64 = INTERVAL * SILENT_INTERVALS * 12;

const TICKET: u64 = 7;

/// How a data node ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Its system closes its connections, which proves that it has ended.
    Gone,
    /// It has stopped in order, and says so to all others before its connections are closed.
    InOrder,
    /// Its connections are closed by something.
    Closed,
    /// Nothing more comes from it.
    Silent,
}

/// Something that reaches a node at a time.
enum Arrival {
    Frame(Sent),
    /// The node at the other end has ended in order.
    Ended,
    LinkOpened(LinkBody),
    LinkClosed(LinkBody),
    Verdict(u32, Verdict),
    Found(Found),
}

struct Node {
    incarnation: Incarnation,
    harness: Harness<Agreement>,
    is_alive: bool,
    /// Until then it does not run.
    stalled_until: u64,
    /// That of its driver.
    lease: u64,
    /// Leases, and numbers of views, that its driver does not know yet, and until when.
    lease_orders: VecDeque<(u64, u64, u32)>,
    /// The newest view that its driver knows.
    driver_view: u32,
    view: ClusterView,
    /// Why it has stopped itself.
    stopped: Option<String>,
    /// What its agreement has answered to requests for a change of the view: the next view.
    answers: BTreeMap<u32, Result<u32, ViewChangeRefusal>>,
    /// Such requests so far.
    requests: u32,
}

pub struct Network {
    nodes: BTreeMap<u8, Node>,
    /// Earlier starts of them.
    past: Vec<Node>,
    has_arbitrators: bool,
    bug: Option<InjectedBug>,
    pub now: u64,
    random: Rng,
    /// What comes to a node from another one (0: from its driver), in order.
    arrivals: BTreeMap<(u8, u8), Vec<(u64, Arrival)>>,
    /// Nothing passes from one to the other.
    cut: BTreeSet<(u8, u8)>,
    /// The same, for good.
    broken: BTreeSet<(u8, u8)>,
    /// The first has closed its connections to the second; so many signals had been read before.
    closed: BTreeMap<(u8, u8), u32>,
    /// Those that are to arbitrate, first the one that does at the beginning.
    management: Vec<Management>,
    questions: Vec<Question>,
    /// Whether some questions about the arbitrator, and answers, are lost, though it is reached.
    pub loses_answers: bool,
    /// Nodes that no arbitrator can be reached from.
    pub apart: BTreeSet<u8>,
    /// Every view that a node has installed, by number.
    views: BTreeMap<u32, ClusterView>,
    /// Those of them in which nobody could go on when the first one installed it, as too many had ended by then.
    void: BTreeSet<u32>,
    /// Data managers of each node: so many partitions has a node group.
    data_managers: u16,
    /// What is changed in partitions.
    rows: Rows,
    /// Primaries that have come to rest.
    rests: Rests,
    /// All are on one machine: who reads that a link is closed can tell whether the other process has ended by then.
    pub is_one_machine: bool,
    /// Whether a node that was stalled reads its sockets before its clock; at random if it is not set.
    pub reads_first: Option<bool>,
    /// How long a request may be on its way to the arbitrator, and an answer back.
    pub arbitration_delay: u64,
    /// How long it may take until a driver obeys a lease: its thread may be busy.
    pub lease_lag: u64,
    /// Whether what is sent, but for heartbeats, is printed: for a test that fails.
    pub is_traced: bool,
}

fn address(node: u8) -> Address {
    Address::new(NodeId(node), BlockNumber::Agreement, 0)
}

fn driver(node: u8) -> Address {
    Address::new(NodeId(node), BlockNumber::Driver, 0)
}

impl Network {
    /// A network of data nodes in these groups, and one management node if one is wanted.
    pub fn new(seed: u64, groups: &[u16], has_arbitrator: bool) -> Self {
        Self::with_management(seed, groups, usize::from(has_arbitrator))
    }

    /// A network of data nodes in these groups, and of so many management nodes.
    pub fn with_management(seed: u64, groups: &[u16], management: usize) -> Self {
        Self::with_partitions(seed, groups, management, 1)
    }

    /// The same with so many partitions in each group.
    pub fn with_partitions(seed: u64, groups: &[u16], management: usize, data_managers: u16) -> Self {
        let has_arbitrator = management > 0;
        let member = |(node, &group)| Member::started(NodeId(node), Incarnation(1), group, data_managers, 1);
        let ticket = if has_arbitrator { TICKET } else { NO_TICKET };
        let view = ClusterView::first((1..).zip(groups).map(member).collect()).with_ticket(ticket);
        let mut network = Network {
            nodes: BTreeMap::new(),
            past: Vec::new(),
            has_arbitrators: has_arbitrator,
            bug: None,
            now: 0,
            random: Rng::with_seed(seed),
            arrivals: BTreeMap::new(),
            cut: BTreeSet::new(),
            broken: BTreeSet::new(),
            closed: BTreeMap::new(),
            management: (0..management)
                .map(|at| Management::holding(if at == 0 { TICKET } else { NO_TICKET }))
                .collect(),
            questions: Vec::new(),
            loses_answers: false,
            apart: BTreeSet::new(),
            views: BTreeMap::from([(1, view.clone())]),
            void: BTreeSet::new(),
            data_managers,
            rows: Rows::of(&view),
            rests: Rests::default(),
            is_one_machine: false,
            reads_first: None,
            arbitration_delay: 0,
            lease_lag: 0,
            is_traced: std::env::var_os("VINGA_TRACE").is_some(),
        };
        for id in 1..=groups.len() as u8 {
            network.start(seed, id, Incarnation(1), view.clone());
        }
        network.collect_all();
        network
    }

    /// A process of a data node begins, in this view.
    fn start(&mut self, seed: u64, id: u8, incarnation: Incarnation, view: ClusterView) {
        let settings = Settings {
            node: NodeId(id),
            incarnation,
            heartbeat_interval: Span::from_millis(INTERVAL),
            arbitration_timeout: Span::from_millis(INTERVAL * 10),
            has_arbitrators: self.has_arbitrators,
            drivers: vec![driver(id)],
        };
        let seed = seed ^ u64::from(id) << 32;
        let mut harness = Harness::new(address(id), seed, view.clone(), Agreement::new(settings));
        harness.inject_bug(self.bug);
        harness.advance(Span::from_millis(self.now));
        let node = Node {
            incarnation,
            harness,
            is_alive: true,
            stalled_until: 0,
            lease: 0,
            lease_orders: VecDeque::new(),
            driver_view: 0,
            view,
            stopped: None,
            answers: BTreeMap::new(),
            requests: 0,
        };
        self.past.extend(self.nodes.insert(id, node));
    }

    pub fn ids(&self) -> Vec<u8> {
        self.nodes.keys().copied().collect()
    }

    pub fn alive(&self) -> BTreeSet<u8> {
        self.nodes.iter().filter(|(_, node)| node.is_alive).map(|(&id, _)| id).collect()
    }

    /// Why a node has stopped itself.
    pub fn stopped(&self, node: u8) -> Option<&str> {
        self.nodes[&node].stopped.as_deref()
    }

    pub fn lease(&self, node: u8) -> u64 {
        self.nodes[&node].lease
    }

    /// The members of the view that a node has installed last.
    pub fn members(&self, node: u8) -> BTreeSet<u8> {
        members(&self.nodes[&node].view)
    }

    pub fn has_met(&self, mark: &str) -> bool {
        self.nodes.values().chain(&self.past).any(|node| node.harness.has_met(mark))
    }

    /// Whether a node agrees at once to another ticket that another one wants.
    pub fn agrees(&mut self, from: u8, to: u8, body: TicketBody) -> bool {
        let harness = &mut self.nodes.get_mut(&to).expect("it is listed").harness;
        let signal = SignalNumber::TicketPrepareRequest;
        harness.send(address(from), signal, |w| cold::write(w, &body)).expect("data nodes may");
        let answers = harness.take_sent();
        assert_eq!(answers.len(), 1, "there is one answer");
        answers[0].signal() == SignalNumber::TicketPrepareConfirm
    }

    /// Time passes.
    pub fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.step();
        }
    }

    fn step(&mut self) {
        self.now += 1;
        self.answer_questions();
        self.take_lease_orders();
        self.check_leases();
        for id in self.ids() {
            let node = self.nodes.get_mut(&id).expect("it is listed");
            if !node.is_alive || node.stalled_until > self.now {
                continue;
            }
            // A node that was stalled reads its sockets before or after its timers.
            let behind = Span::from_millis(self.now) - Span(node.harness.now().0);
            let is_late = behind > Span::from_millis(1);
            let reads_first = is_late && self.reads_first.unwrap_or(self.random.bool());
            if !reads_first {
                if is_late {
                    node.harness.stall(behind);
                } else {
                    node.harness.advance(behind);
                }
                self.collect(id);
            }
            for from in std::iter::once(0).chain(self.ids()) {
                self.deliver(from, id);
            }
            let node = self.nodes.get_mut(&id).expect("it is listed");
            if reads_first && node.is_alive {
                node.harness.stall(behind);
                self.collect(id);
            }
        }
        self.change_rows();
    }

    fn deliver(&mut self, from: u8, to: u8) {
        let Some(queue) = self.arrivals.get_mut(&(from, to)) else { return };
        let now = self.now;
        let due = queue.iter().take_while(|(at, _)| *at <= now).count();
        let due: Vec<Arrival> = queue.drain(..due).map(|(_, arrival)| arrival).collect();
        for arrival in due {
            if !self.nodes[&to].is_alive {
                return;
            }
            if let Some(read) = self.closed.get_mut(&(to, from)) {
                if *read == 0 {
                    return;
                }
                *read -= 1;
            }
            let has_ended = self.is_one_machine && from != 0 && !self.nodes[&from].is_alive;
            let harness = &mut self.nodes.get_mut(&to).expect("it is listed").harness;
            let arrival = match arrival {
                Arrival::LinkClosed(body) => {
                    Arrival::LinkClosed(LinkBody { is_gone: body.is_gone || has_ended, ..body })
                }
                other => other,
            };
            match arrival {
                Arrival::Frame(sent) => harness.deliver(&sent),
                Arrival::Ended => {
                    let number = SignalNumber::NodeEndedReport;
                    harness.send(address(from), number, |_| {}).expect("data nodes may");
                }
                Arrival::LinkOpened(body) => harness
                    .send(driver(to), SignalNumber::LinkOpenedReport, |w| cold::write(w, &body))
                    .expect("drivers may"),
                Arrival::LinkClosed(body) => harness
                    .send(driver(to), SignalNumber::LinkClosedReport, |w| cold::write(w, &body))
                    .expect("drivers may"),
                Arrival::Verdict(round, Verdict::GoOn { ticket }) => harness
                    .send(driver(to), SignalNumber::ArbitrationConfirm, |w| {
                        cold::write(w, &ArbitrationConfirm { round, ticket });
                    })
                    .expect("drivers may"),
                Arrival::Verdict(round, Verdict::Stop { reason }) => harness
                    .send(driver(to), SignalNumber::ArbitrationRefuse, |w| {
                        cold::write(w, &ArbitrationRefuse { round, reason });
                    })
                    .expect("drivers may"),
                Arrival::Found(found) => {
                    let sent = match found {
                        Found::Present(body) => {
                            harness.send(driver(to), SignalNumber::ArbitratorCheckConfirm, |w| {
                                cold::write(w, &body);
                            })
                        }
                        Found::Missing(body) => {
                            harness.send(driver(to), SignalNumber::ArbitratorCheckRefuse, |w| {
                                cold::write(w, &body);
                            })
                        }
                        Found::Chosen(body) => {
                            harness.send(driver(to), SignalNumber::ArbitratorChooseConfirm, |w| {
                                cold::write(w, &body);
                            })
                        }
                        Found::NotChosen(body) => {
                            harness.send(driver(to), SignalNumber::ArbitratorChooseRefuse, |w| {
                                cold::write(w, &body);
                            })
                        }
                    };
                    sent.expect("drivers may");
                }
            }
            self.collect(to);
        }
    }

    /// A driver is ordered to adopt the node's view, or a lease.
    fn order_driver(&mut self, id: u8, lease: Option<u64>) {
        let at = self.now + if self.lease_lag == 0 { 0 } else { self.random.u64(..self.lease_lag) };
        let node = self.nodes.get_mut(&id).expect("it is listed");
        let (last, newest) = node.lease_orders.back().map_or((at, node.lease), |&(at, lease, _)| (at, lease));
        node.lease_orders.push_back((at.max(last), lease.unwrap_or(newest), node.view.number().0));
        self.take_lease_orders();
    }

    /// Drivers obey what has come to them.
    fn take_lease_orders(&mut self) {
        for node in self.nodes.values_mut() {
            while let Some(&(_, lease, view)) = node.lease_orders.front().filter(|(at, ..)| *at <= self.now) {
                (node.lease, node.driver_view) = (lease, view);
                node.lease_orders.pop_front();
            }
        }
    }

    fn collect_all(&mut self) {
        for id in self.ids() {
            self.collect(id);
        }
    }

    /// Does with what a node has sent what its driver would do.
    fn collect(&mut self, id: u8) {
        let sent = self.nodes.get_mut(&id).expect("it is listed").harness.take_sent();
        for sent in sent {
            if self.is_traced {
                self.trace(id, &sent);
            }
            let to = sent.receiver().node().0;
            if sent.receiver().block() == Some(BlockNumber::Agreement) {
                self.put(id, to, Arrival::Frame(sent));
                continue;
            }
            let frame = sent.frame();
            match sent.signal() {
                SignalNumber::LeaseOrder => {
                    let (order, _) = frame.head::<LeaseOrder>().expect("agreement sent it");
                    self.order_driver(id, Some(order.until.get()));
                }
                SignalNumber::LinkCloseOrder => {
                    let link: LinkBody = cold::read(&frame).expect("agreement sent it");
                    if self.nodes[&link.node.0].incarnation == link.incarnation {
                        self.close(id, link.node.0, false);
                    }
                }
                SignalNumber::ViewInstallOrder => {
                    let view: ClusterView = cold::read(&frame).expect("agreement sent it");
                    self.install(id, view);
                }
                SignalNumber::ArbitrationRequest => {
                    let request: ArbitrationRequest = cold::read(&frame).expect("agreement sent it");
                    assert!(!self.management.is_empty(), "there is no arbitrator to ask");
                    self.arbitrate(id, request);
                }
                SignalNumber::ArbitratorCheckRequest => {
                    self.check(id, cold::read(&frame).expect("agreement sent it"));
                }
                SignalNumber::ArbitratorChooseRequest => {
                    self.choose(id, cold::read(&frame).expect("agreement sent it"));
                }
                SignalNumber::ViewChangeConfirm => {
                    let ViewChangeConfirm { request, view } = cold::read(&frame).expect("agreement sent it");
                    self.note_answer(id, request, Ok(view.0));
                }
                SignalNumber::ViewChangeRefuse => {
                    let ViewChangeRefuse { request, reason } = cold::read(&frame).expect("agreement sent it");
                    self.note_answer(id, request, Err(reason));
                }
                SignalNumber::StopNodeOrder => {
                    let order: StopNodeOrder = cold::read(&frame).expect("agreement sent it");
                    self.nodes.get_mut(&id).expect("it is listed").stopped = Some(order.reason);
                    let ends = [End::Gone, End::InOrder, End::Closed, End::Silent];
                    let end = ends[self.random.usize(..ends.len())];
                    self.end(id, end);
                }
                other => panic!("agreement sent {other:?}"),
            }
        }
    }

    fn trace(&self, id: u8, sent: &Sent) {
        use vinga_wire::agreement::{FailPrepareConfirm, FailPrepareRequest, NodeSuspectReport};
        let frame = sent.frame();
        let what = match sent.signal() {
            SignalNumber::NodeHeartbeatRequest
            | SignalNumber::NodeHeartbeatConfirm
            | SignalNumber::LeaseOrder => return,
            SignalNumber::NodeSuspectReport => {
                let body = cold::read::<NodeSuspectReport>(&frame);
                format!("{:?}", body.map(|body| (body.suspects, body.unreached)))
            }
            SignalNumber::FailPrepareRequest => {
                let body = cold::read::<FailPrepareRequest>(&frame);
                format!("{:?}", body.map(|body| (body.round, body.failed)))
            }
            SignalNumber::FailPrepareConfirm => {
                let body = cold::read::<FailPrepareConfirm>(&frame);
                format!("{:?}", body.map(|body| (body.round, body.failed)))
            }
            SignalNumber::LinkCloseOrder => {
                format!("{:?}", cold::read::<LinkBody>(&frame).map(|body| body.node))
            }
            SignalNumber::TicketPrepareRequest | SignalNumber::TicketOrder => {
                format!("{:?}", cold::read::<TicketBody>(&frame).map(|body| (body.change, body.ticket)))
            }
            SignalNumber::StopNodeOrder => {
                cold::read::<StopNodeOrder>(&frame).map_or_else(String::new, |body| body.reason)
            }
            _ => describe(&frame),
        };
        println!("{:>5} ms: {id} → {}: {:?} {what}", self.now, sent.receiver(), sent.signal());
    }

    /// Something goes from one node to another, behind what went before.
    fn put(&mut self, from: u8, to: u8, arrival: Arrival) {
        if self.cut.contains(&(from, to))
            || self.broken.contains(&(from, to))
            || self.closed.contains_key(&(from, to))
        {
            return;
        }
        let delay = self.random.u64(0..4);
        let queue = self.arrivals.entry((from, to)).or_default();
        let last = queue.last().map_or(0, |(at, _)| *at);
        queue.push((last.max(self.now + delay), arrival));
    }

    /// One node closes its connections to another one.
    fn close(&mut self, id: u8, other: u8, is_gone: bool) {
        if self.closed.contains_key(&(id, other)) {
            return;
        }
        let link = LinkBody { is_gone, ..self.link_to(id) };
        self.put(id, other, Arrival::LinkClosed(link));
        let read = self.random.u32(0..4);
        self.closed.insert((id, other), read);
    }

    /// Whoever is not in the newest view in which somebody could go on may not answer, whenever it got its lease.
    /// Nobody goes on from a later one, so those that are in it are not looked at.
    fn check_leases(&self) {
        let counts = |view: &&ClusterView| !self.void.contains(&view.number().0);
        let newest = self.views.values().rev().find(counts).expect("there is a first view");
        for (&id, node) in &self.nodes {
            let is_behind = node.view.number() <= newest.number() && !has(newest, id, node);
            let may_answer = node.is_alive && node.stopped.is_none() && is_behind;
            assert!(
                !may_answer || node.lease <= self.now * 1000,
                "{} ms: node {id}, which view {} lacks, has a lease until {}",
                self.now,
                newest.number(),
                node.lease
            );
        }
    }

    fn install(&mut self, id: u8, view: ClusterView) {
        let now = self.now * 1000;
        let is_new = !self.views.contains_key(&view.number().0);
        let known = self.views.entry(view.number().0).or_insert_with(|| view.clone());
        assert_eq!(*known, view, "there is one view of each number");
        let runs =
            |node: NodeId| self.nodes.get(&node.0).is_some_and(|one| one.is_alive && has(&view, node.0, one));
        let is_void = view.lack_of(runs).is_some();
        if is_new && is_void {
            self.void.insert(view.number().0);
        }
        if is_new && !is_void {
            for (&other, node) in &self.nodes {
                // A president that was left out may install one late that it had prepared, without use to anybody.
                let is_behind = node.view.number() < view.number() && !has(&view, other, node);
                let may_answer = node.is_alive && is_behind && node.stopped.is_none();
                assert!(
                    !may_answer || node.lease <= now,
                    "view {} begins at {now}, but node {other} has a lease until {}",
                    view.number(),
                    node.lease
                );
            }
            // What a president that was left out installs late is of use to nobody: others may have changed rows since.
            if self.views.keys().next_back() == Some(&view.number().0) {
                self.rows.begin_view(&view);
            }
        }
        let own = self.nodes.get_mut(&id).expect("it is listed");
        assert!(view.number() > own.view.number(), "views come in their order");
        check_succession(&own.view, &view);
        self.check_rests(id, &view);
        let own = self.nodes.get_mut(&id).expect("it is listed");
        own.view = view;
        self.order_driver(id, None);
        for (one, other) in self.views.values().zip(self.views.values().skip(1)) {
            check_succession(one, other);
        }
    }

    /// A node ends.
    pub fn end(&mut self, id: u8, end: End) {
        let node = self.nodes.get_mut(&id).expect("it is listed");
        if !node.is_alive {
            return;
        }
        node.is_alive = false;
        if end == End::InOrder {
            for other in self.ids().into_iter().filter(|&other| other != id) {
                self.put(id, other, Arrival::Ended);
            }
        }
        if end != End::Silent {
            for other in self.ids().into_iter().filter(|&other| other != id) {
                self.close(id, other, end == End::Gone);
            }
        }
    }

    /// A node says to another one that it has ended, by a link that it was about to close.
    pub fn say_ended(&mut self, from: u8, to: u8) {
        let queue = self.arrivals.entry((from, to)).or_default();
        let is_end = |(_, arrival): &(u64, Arrival)| matches!(arrival, Arrival::LinkClosed(_));
        let place = queue.iter().position(is_end).unwrap_or(queue.len());
        let at = queue.get(place).map_or(self.now, |(at, _)| *at);
        queue.insert(place, (at, Arrival::Ended));
    }

    /// A node does not run for so many milliseconds.
    pub fn stall(&mut self, id: u8, millis: u64) {
        let until = self.now + millis;
        self.nodes.get_mut(&id).expect("it is listed").stalled_until = until;
    }

    /// The connections between two nodes break, though both may be alive.
    pub fn break_connections(&mut self, one: u8, other: u8) {
        for (from, to) in [(one, other), (other, one)] {
            let link = self.link_to(from);
            self.put(from, to, Arrival::LinkClosed(link));
            self.broken.insert((from, to));
        }
    }

    /// Nothing passes from the nodes of one set to those of the other.
    pub fn cut(&mut self, from: &[u8], to: &[u8]) {
        for &one in from {
            self.cut.extend(to.iter().filter(|&&other| other != one).map(|&other| (one, other)));
        }
    }

    /// Everything passes again; what was sent meanwhile is lost, as if the connections had been made anew.
    pub fn heal(&mut self) {
        self.cut.clear();
        self.apart.clear();
    }

    /// When nothing has happened for a while: those that are alive are the members of one view.
    pub fn check_rest(&self) {
        let mut alive = self.alive();
        // Those that were not let in yet wait.
        alive.retain(|id| !self.members(*id).is_empty());
        for &id in &alive {
            assert_eq!(self.members(id), alive, "the members of node {id}'s view are those that run");
            let lease = self.lease(id);
            let fresh = (self.now - INTERVAL * (LEASE_INTERVALS - 1)) * 1000;
            assert!(lease > fresh, "node {id} may answer");
        }
    }
}

/// Whether this start of a node is a member.
fn has(view: &ClusterView, id: u8, node: &Node) -> bool {
    view.member(NodeId(id)).is_some_and(|member| member.incarnation == node.incarnation)
}

/// Of a later view: all of its members were members before, but for those that have joined since.
fn check_succession(before: &ClusterView, view: &ClusterView) {
    let was_there = |member: &&Member| before.members().iter().any(|m| m.identity() == member.identity());
    let has_joined = |member: &&Member| member.since > before.number();
    let (one, other) = (before.number(), view.number());
    assert!(
        view.members().iter().all(|member| was_there(&member) || has_joined(&member)),
        "views {one} and {other} are of one chain"
    );
    rows::check_chains(before, view);
}

fn members(view: &ClusterView) -> BTreeSet<u8> {
    view.members().iter().map(|member| member.node.0).collect()
}
