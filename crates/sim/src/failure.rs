//! Data nodes that die, links that are closed, and views that threads adopt: the part of a driver that agreement relies
//! on.
//!
//! When a data node has given up another one it closes the links to it, and reads nothing more that comes from there.
//! A thread adopts a view only when everything of the members it has lost that was read before has reached the
//! thread. To that end a *failure marker* follows the last bytes of each link; the thread that serves the link passes
//! it on to all threads of its node through its rings, behind what it had to pass on. When a thread has the markers
//! of all links of all lost members, it gets the order, a little later; threads adopt a view at different times, and
//! several in their order.

use crate::agenda::Time;
use crate::management::{ARBITRATION_TIMEOUT, Question};
use crate::pipe::Payload;
use crate::profile::Fault;
use crate::returns::Start;
use crate::thread::{Source, Thread, ThreadId};
use crate::topology::FIRST_NODE;
use crate::world::{End, Event, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vinga_base::{Incarnation, NodeId, ViewNumber};
use vinga_kernel::Tick;
use vinga_wire::agreement::{LeaseOrder, LinkBody};
use vinga_wire::view::{ClusterView, Member, ViewChange};
use vinga_wire::{Address, BlockNumber, Frame, FrameWriter, SignalNumber, cold};

/// Faults because of which nothing may come from a data node that is alive, or from the arbitrator.
const STANDSTILLS: [Fault; 9] = [
    Fault::StallThread,
    Fault::StallNode,
    Fault::CutLink,
    Fault::BreakLink,
    Fault::Split,
    Fault::Management,
    Fault::CrashPoint,
    Fault::SlowRings,
    Fault::SlowLinks,
];

/// A failure marker that a thread has met.
#[derive(Clone, Copy, Debug)]
pub struct FailureMarker {
    /// Whose last bytes it follows.
    pub start: Start,
    /// Whether it came on a link from that node, not through a ring.
    pub is_from_link: bool,
}

/// A data node that has died.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    start: Start,
    /// When.
    pub(crate) at: Time,
    /// A thread that adopts the next view so much later than all others, which adopt it as soon as they can.
    pub(crate) late: Option<(ThreadId, Time)>,
}

/// What the nodes have agreed, and how far it has come.
pub struct Agreed {
    /// Every view that a node has installed, by number.
    views: BTreeMap<u32, Arc<ClusterView>>,
    /// The views that each node has installed, in order.
    installed: BTreeMap<u8, Vec<Arc<ClusterView>>>,
    /// Links that the first node has closed, to the second: the markers that each thread has met.
    closed: BTreeMap<(u8, Start), BTreeMap<ThreadId, u16>>,
    /// Links whose end the first node has noticed.
    ended: BTreeSet<(u8, Start)>,
    pub(crate) deaths: Vec<Death>,
}

impl Agreed {
    pub fn new() -> Self {
        Agreed {
            views: BTreeMap::new(),
            installed: BTreeMap::new(),
            closed: BTreeMap::new(),
            ended: BTreeSet::new(),
            deaths: Vec::new(),
        }
    }

    /// Whether a node has closed its links to another one.
    pub fn has_closed(&self, node: u8, other: Start) -> bool {
        self.closed.contains_key(&(node, other))
    }

    /// Whether a thread has met all markers of links that its node has closed.
    pub fn has_markers(&self, id: ThreadId, node: u8, other: Start, connections: u16) -> bool {
        let markers = self.closed.get(&(node, other)).and_then(|threads| threads.get(&id));
        markers.is_some_and(|&markers| markers == connections)
    }

    /// The newest view that a node has installed since it has started.
    pub fn newest(&self, node: u8) -> Option<&Arc<ClusterView>> {
        self.installed.get(&node)?.last()
    }

    /// Whether another one is in a view behind this one that a node has installed.
    pub fn is_in_later_view(&self, node: u8, other: NodeId, than: ViewNumber) -> bool {
        let installed = self.installed.get(&node).into_iter().flatten();
        installed.rev().take_while(|view| view.number() > than).any(|view| view.has(other))
    }

    /// A data node starts again, and knows nothing of what it did before.
    pub fn forget(&mut self, node: u8) {
        self.installed.remove(&node);
        self.closed.retain(|(of, _), _| *of != node);
        self.ended.retain(|(of, _)| *of != node);
    }
}

impl World {
    /// The newest view that a data node has installed since it has started.
    pub(crate) fn newest_view(&self, node: u8) -> Option<&Arc<ClusterView>> {
        self.agreed.newest(node)
    }

    /// The data node that leads the cluster, or is going to when all have agreed on what has happened, or when the
    /// cluster has started again.
    pub(crate) fn president(&self) -> u8 {
        let started = (1..=self.alive.len() as u8).filter(|&node| self.has_started(node));
        started.min_by_key(|&node| (self.member_since(node), node)).unwrap_or(FIRST_NODE)
    }

    /// The view with which this start of a data node has become a member; 0 if it is one from the beginning.
    fn member_since(&self, node: u8) -> ViewNumber {
        let start = self.start_of(node);
        let own = self.agreed.newest(node).and_then(|view| start.member_of(view));
        own.filter(|_| start.is_newcomer()).map_or(ViewNumber(0), |member| member.since)
    }

    /// Whether all that have started are in one view, which has none that is dead.
    pub(crate) fn has_agreed(&self) -> bool {
        let started: Vec<u8> = (1..=self.alive.len() as u8).filter(|&node| self.has_started(node)).collect();
        let mut live = self.threads.iter().filter(|thread| self.has_started(thread.node));
        self.has_left_out_the_dead()
            && live.all(|thread| {
                let view = thread.executor.view();
                started.iter().all(|&node| view.has_started(NodeId(node)))
            })
    }

    /// Whether all that have started are in views that have none that is dead. Not all need know of all that have
    /// started.
    fn has_left_out_the_dead(&self) -> bool {
        let live = self.threads.iter().filter(|thread| self.has_started(thread.node));
        live.into_iter().all(|thread| thread.executor.view().members().iter().all(|one| self.is_living(one)))
    }

    /// Whether this start of a member lives.
    fn is_living(&self, member: &Member) -> bool {
        let start = Start::of(member);
        self.is_alive(start.node) && self.start_of(start.node) == start
    }

    /// Whether the threads that are alive are all in the same view; those that wait for their first one aside.
    pub(crate) fn are_in_one_view(&self) -> bool {
        let has_view = |thread: &&Thread| thread.executor.view().number() > ViewNumber(0);
        let mut live = self.threads.iter().filter(|thread| thread.is_alive).filter(has_view);
        let first = live.next().map(|thread| thread.executor.view().number());
        live.all(|thread| Some(thread.executor.view().number()) == first)
    }

    /// A data node dies.
    pub(crate) fn kill_node(&mut self, node: u8) {
        self.note(|| format!("data node {node} dies"));
        self.halt(node);
        let touching: Vec<_> = self
            .links
            .iter()
            .filter(|((from, to, _), _)| *from == node || *to == node)
            .map(|(_, &pipe)| pipe)
            .collect();
        for pipe in touching {
            self.pipes[pipe.0].shatter(&mut self.random);
        }
        if self.nemesis.draw_silence() {
            self.note(|| "... without a word".to_string());
        } else {
            for connection in 0..self.connections.len() {
                if self.connections[connection].link.node == node {
                    self.break_pipe(self.connections[connection].down);
                }
            }
            self.end_links_of(node);
        }
        self.note_death(node);
    }

    /// Nothing runs on a data node any more.
    pub(crate) fn halt(&mut self, node: u8) {
        self.alive[usize::from(node - 1)] = false;
        for thread in &mut self.threads {
            thread.is_alive &= thread.node != node;
        }
        self.crash_disk(node);
        self.doubt_commits_of(node);
        self.stops.forget(node);
    }

    /// The others are to agree that a data node has died, which may come back.
    pub(crate) fn note_death(&mut self, node: u8) {
        let (at, start) = (self.now(), self.start_of(node));
        self.agreed.deaths.push(Death { start, at, late: None });
        self.agenda.enter(at + self.view_wait(), Event::ViewDue(self.agreed.deaths.len()));
        self.plan_return(node);
    }

    /// How long those that live may take to agree on a death, if nothing else happens: a dead node is silent for four
    /// intervals before it is suspected, its lease lasts as long at most, and an arbitrator may have to be asked.
    fn view_wait(&self) -> Time {
        self.profile.node_heartbeat_interval * 16 + 300_000
    }

    /// Nobody has died since those that live were to agree on the last death: nothing may take longer than that until
    /// rows have a primary, and transactions an end, again.
    pub(crate) fn check_view_came(&mut self, deaths: usize) {
        let is_undisturbed = STANDSTILLS.iter().all(|fault| !self.profile.faults.contains(fault))
            && !self.profile.faults.contains(&Fault::RestartCluster);
        if is_undisturbed && self.agreed.deaths.len() == deaths && !self.has_left_out_the_dead() {
            let waited = self.view_wait();
            self.violations.push(format!("data nodes have not agreed on a death for {waited} µs"));
        }
    }

    /// A data node stops, because the others have gone on without it, or may have. If nobody can go on, the run is
    /// over: all that was there is lost, as it has to be.
    pub(crate) fn on_left_out(&mut self, node: u8, why: &str) {
        let may_be_silent = STANDSTILLS.iter().any(|fault| self.profile.faults.contains(fault));
        if !may_be_silent {
            self.violations.push(format!("data node {node} has no reason to stop: {why}"));
        }
        self.kill_node(node);
        if !self.is_anybody_there() {
            self.marks_before.insert("cluster stopped, as nobody could go on");
            self.starts.lost_for_good = Some(format!("the cluster has stopped: {why}"));
        }
    }

    /// All others learn that their links to a node are closed.
    pub(crate) fn end_links_of(&mut self, node: u8) {
        for other in (1..=self.alive.len() as u8).filter(|&other| other != node) {
            self.end_link(node, other);
        }
    }

    /// The other end of the links from a node to another one learns that they are closed, behind what still arrives.
    fn end_link(&mut self, from: u8, to: u8) {
        if !self.is_alive(to) {
            return;
        }
        for pipe in self.links_between(from, to) {
            if !self.pipes[pipe.0].is_cut() {
                let delay = self.profile.link_delay.draw(&mut self.random);
                let at = self.pipes[pipe.0].drained_at(self.now()) + delay;
                self.agenda.enter(at, Event::Deliver(pipe, Payload::End));
            }
        }
    }

    /// The connections from one data node to another break, though both may be alive.
    pub(crate) fn break_link(&mut self, from: u8, to: u8) {
        for pipe in self.links_between(from, to) {
            self.pipes[pipe.0].shatter(&mut self.random);
        }
        self.end_link(from, to);
    }

    /// A thread has found a link from another data node closed.
    pub(crate) fn on_link_end(&mut self, id: ThreadId, other: Start) {
        let node = self.threads[id.0].node;
        if !self.agreed.ended.insert((node, other)) {
            return;
        }
        // On one machine the system says that a process has ended; else something between may have closed the link.
        let is_gone = self.profile.is_one_machine && !self.is_running(other);
        self.note(|| format!("data node {node} finds its links to {other} closed, process gone: {is_gone}"));
        self.on_newcomer_link_end(node, other);
        let link =
            LinkBody { node: NodeId(other.node), incarnation: Incarnation(other.incarnation), is_gone };
        self.notify_agreement(id, SignalNumber::LinkClosedReport, |frame| cold::write(frame, &link));
    }

    /// Agreement sends the driver of a thread a signal; false if it is none of these.
    pub(crate) fn on_agreement_signal(&mut self, id: ThreadId, frame: &Frame<'_>, at: Time) -> bool {
        match frame.signal() {
            Some(SignalNumber::LeaseOrder) => {
                let (order, _) = frame.head::<LeaseOrder>().expect("agreement sent it");
                self.threads[id.0].lease = Tick(order.until.get());
                self.wake_thread(id, at);
            }
            Some(SignalNumber::LinkCloseOrder) => {
                let link: LinkBody = cold::read(frame).expect("a block sent it");
                if frame.sender().block() != Some(BlockNumber::Agreement) {
                    let text = format!("{} has rejected a signal of data node {}", frame.sender(), link.node);
                    self.violations.push(text);
                }
                let other = Start { node: link.node.0, incarnation: link.incarnation.0 };
                self.close_link(self.threads[id.0].node, other);
                self.end_if_it_has_no_view(self.threads[id.0].node);
            }
            Some(SignalNumber::ViewInstallOrder) => {
                let view: ClusterView = cold::read(frame).expect("agreement sent it");
                self.install_view(self.threads[id.0].node, view);
            }
            Some(SignalNumber::ArbitrationRequest) => {
                let request = cold::read(frame).expect("agreement sent it");
                let until = self.now() + ARBITRATION_TIMEOUT;
                self.ask_management(id, Question::Decide(request, BTreeSet::new(), until));
            }
            Some(SignalNumber::ArbitratorCheckRequest) => {
                self.ask_management(id, Question::Check(cold::read(frame).expect("agreement sent it")));
            }
            Some(SignalNumber::ArbitratorChooseRequest) => {
                self.ask_management(id, Question::Choose(cold::read(frame).expect("agreement sent it")));
            }
            _ => return false,
        }
        true
    }

    /// A data node reads nothing more from another one.
    pub(crate) fn close_link(&mut self, node: u8, other: Start) {
        if self.agreed.has_closed(node, other) || !self.is_alive(node) {
            return;
        }
        self.note(|| format!("data node {node} closes its links to {other}"));
        self.agreed.closed.insert((node, other), BTreeMap::new());
        for pipe in self.links_from_start(other, node) {
            self.agenda.enter(self.now(), Event::Deliver(pipe, Payload::FailureMarker(other)));
        }
        if self.start_of(other.node) == other {
            self.end_link(node, other.node);
        }
    }

    /// Whether these are bytes of a link that was closed here, which nobody reads.
    pub(crate) fn comes_too_late(&self, id: ThreadId, source: Source, payload: &Payload) -> bool {
        let Source::Link(from) = source else { return false };
        matches!(payload, Payload::Bytes(_) | Payload::Epochs(_))
            && self.agreed.has_closed(self.threads[id.0].node, from)
    }

    /// A thread has met a failure marker. If it came on a link it goes on to all threads of the node, this one
    /// included.
    pub(crate) fn forward_failure_marker(&mut self, id: ThreadId, marker: FailureMarker, at: Time) {
        let node = self.threads[id.0].node;
        if marker.is_from_link {
            for index in 0..self.profile.threads {
                let other = self.thread_of(node, index);
                if other != id {
                    self.put(self.rings[&(id, other)], at, Payload::FailureMarker(marker.start));
                }
            }
        }
        let closed = self.agreed.closed.get_mut(&(node, marker.start));
        *closed.expect("markers follow what is closed").entry(id).or_default() += 1;
        self.plan_adoption(id, at);
    }

    /// A data node's threads are to adopt a view.
    fn install_view(&mut self, node: u8, view: ClusterView) {
        if !self.is_alive(node) {
            return;
        }
        let number = view.number().0;
        let view = Arc::new(view);
        self.note(|| format!("data node {node} installs view {number}"));
        self.check_chain(&view);
        self.agreed.views.insert(number, view.clone());
        self.agreed.installed.entry(node).or_default().push(view);
        for index in 0..self.profile.threads {
            let id = self.thread_of(node, index);
            self.plan_adoption(id, self.now());
        }
    }

    /// There is one view of each number, and each one has only members of those before. When one begins, those that
    /// it has lost may not answer clients any more; unless so many of its own have ended by then that nobody can go
    /// on in it: one that was lost may know that one of these has stopped in order just after it had agreed, and may
    /// answer as nobody else can.
    fn check_chain(&mut self, view: &Arc<ClusterView>) {
        let number = view.number().0;
        if let Some(known) = self.agreed.views.get(&number) {
            if known != view {
                self.violations.push(format!("there are two views {number}"));
            }
            return;
        }
        // Members that have joined since aside.
        let has_all_of = |one: &ClusterView, other: &ClusterView| {
            let mut before = other.members().iter().filter(|member| member.since <= one.number());
            before.all(|member| Start::of(member).is_member(one))
        };
        for (&at, other) in &self.agreed.views {
            let (earlier, later) = if at < number { (other, view) } else { (view, other) };
            if !has_all_of(earlier, later) {
                self.violations.push(format!("views {at} and {number} are not of one chain"));
            }
        }
        let runs = |node: NodeId| view.member(node).is_some_and(|member| self.is_running(Start::of(member)));
        if view.lack_of(runs).is_some() {
            return;
        }
        let has_lease =
            |thread: &Thread| thread.lease > self.clocks[usize::from(thread.node) - 1].at(self.now());
        let lost = self.threads.iter().filter(|thread| thread.is_alive && !thread.start().is_member(view));
        if let Some(thread) = lost.into_iter().find(|thread| has_lease(thread)) {
            let text = format!("view {number} begins while data node {} has a lease", thread.node);
            self.violations.push(text);
        }
    }

    /// Has a thread adopt the next view that its node has installed, if nothing of those it has lost can come any more.
    fn plan_adoption(&mut self, id: ThreadId, at: Time) {
        let thread = &self.threads[id.0];
        let node = thread.node;
        let Some(next) = self.agreed.installed.get(&node).and_then(|views| views.get(thread.views_planned))
        else {
            return;
        };
        let old = match thread.views_planned {
            // It has adopted none since it has started.
            0 => thread.executor.view().clone(),
            planned => self.agreed.installed[&node][planned - 1].clone(),
        };
        let change = ViewChange { old, new: next.clone() };
        let lost: Vec<Start> = change.lost().map(Start::of).collect();
        let connections = self.profile.connections;
        if !lost.iter().all(|&other| self.agreed.has_markers(id, node, other, connections)) {
            return;
        }
        let late = self
            .agreed
            .deaths
            .iter()
            .filter(|death| lost.contains(&death.start))
            .find_map(|death| death.late);
        let delay = match late {
            Some((thread, span)) if thread == id => span,
            Some(_) => 0,
            None if self.random.bool() => 0,
            None => self.random.u64(..20_000),
        } + self.draw_lateness(&change);
        self.threads[id.0].views_planned += 1;
        let at = (at + delay).max(self.threads[id.0].adopts_at);
        self.threads[id.0].adopts_at = at;
        self.agenda.enter(at, Event::AdoptView(id, change.new.number().0));
        self.plan_adoption(id, at);
    }

    /// A thread adopts a view.
    pub(crate) fn on_adopt_view(&mut self, id: ThreadId, number: u32) {
        if !self.threads[id.0].is_alive {
            return;
        }
        let view = self.agreed.views[&number].clone();
        let thread = &mut self.threads[id.0];
        if !thread.start().is_member(&view) {
            // That was meant for the start before this one.
            return;
        }
        let receiver = Address::new(NodeId(thread.node), BlockNumber::Info, thread.index);
        let (sender, low) = (thread.driver(), number as u8);
        let mut frame = Vec::new();
        let signal = SignalNumber::ViewChangedOrder;
        cold::write(&mut FrameWriter::begin(&mut frame, signal, low, receiver, sender, 0), &*view);
        thread.order(frame);
        self.wake_thread(id, self.now());
        let (own, index) = (self.threads[id.0].node, self.threads[id.0].index);
        self.note(|| format!("thread {own}.{index} adopts view {number}"));
    }

    pub(crate) fn notify_agreement(
        &mut self,
        id: ThreadId,
        signal: SignalNumber,
        write: impl FnOnce(&mut FrameWriter<'_>),
    ) {
        self.notify_block(id, BlockNumber::Agreement, signal, write);
    }

    /// The node at the other end of a link.
    pub(crate) fn link_from(&self, end: End) -> Option<Start> {
        match end {
            End::Thread(_, Source::Link(start)) => Some(start),
            End::Thread(..) | End::Api(..) | End::Gone => None,
        }
    }
}
