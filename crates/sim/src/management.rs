//! Management nodes that arbitrate: they die, start again without what they knew, and are cut off from data nodes.
//!
//! In runs without these faults there is one, which always answers at once. In the others there are one or two, and the
//! drivers of data nodes ask them as those of real ones do: requests and answers take a while, are lost, and come
//! late; one that does not answer is asked again.

use crate::agenda::Time;
use crate::profile::{Coordinators, Fault};
use crate::returns::Start;
use crate::thread::ThreadId;
use crate::topology::ARBITRATION_TICKET;
use crate::world::{Event, Stage, World};
use fastrand::Rng;
use std::collections::BTreeSet;
use vinga_agreement::{Arbitrator, Verdict};
use vinga_base::NodeId;
use vinga_wire::agreement::{ArbitrationConfirm, ArbitrationRefuse, ArbitrationRequest};
use vinga_wire::arbitration::{
    ArbitratorCheckConfirm, ArbitratorCheckRequest, ArbitratorChooseConfirm, ArbitratorChooseRequest,
    ArbitratorTakeRequest, NoArbitrator,
};
use vinga_wire::{SignalNumber, cold};

/// `ArbitrationTimeout`: for so long a management node that does not answer is asked again.
pub const ARBITRATION_TIMEOUT: Time = 1_000_000;

/// The id of the first management node.
const MANAGEMENT_FIRST: u8 = 100;

/// The management nodes of a run.
pub(crate) struct Management {
    nodes: Vec<ManagementNode>,
    /// Its own generator, so that all else stays as it is without these faults.
    random: Rng,
}

struct ManagementNode {
    arbitrator: Arbitrator,
    is_alive: bool,
    /// Data nodes that do not reach it.
    apart: BTreeSet<u8>,
}

/// What a driver asks.
#[derive(Debug)]
pub enum Question {
    /// Whether members go on; which have refused; until when those that do not answer are asked again.
    Decide(ArbitrationRequest, BTreeSet<usize>, Time),
    /// Which of them holds a ticket.
    Check(ArbitratorCheckRequest),
    /// To have another ticket taken.
    Choose(ArbitratorChooseRequest),
    /// One of them gets a request that nobody waits for any more.
    LateTake(usize, ArbitratorTakeRequest),
}

/// Something happens to management nodes.
#[derive(Clone, Copy, Debug)]
pub enum ManagementEvent {
    /// The next fault.
    Strike,
    /// One that has died starts again.
    Start(usize),
    /// All data nodes reach one again.
    Reach(usize),
}

impl Management {
    /// So many; the first one holds the first ticket.
    pub(crate) fn new(seed: u64, count: usize) -> Self {
        let node = |at: usize| ManagementNode {
            arbitrator: if at == 0 { Arbitrator::new(ARBITRATION_TICKET) } else { Arbitrator::default() },
            is_alive: true,
            apart: BTreeSet::new(),
        };
        Management {
            nodes: (0..count).map(node).collect(),
            random: Rng::with_seed(seed ^ 0x6d_616e_6167_6572),
        }
    }

    fn delay(&mut self) -> Time {
        if self.random.u8(..16) == 0 { self.random.u64(..30_000) } else { self.random.u64(50..2_000) }
    }

    /// Whether an answer, or a request, is lost.
    fn draw_loss(&mut self) -> bool {
        self.random.u8(..16) == 0
    }

    fn is_reached(&self, at: usize, from: u8) -> bool {
        self.nodes[at].is_alive && !self.nodes[at].apart.contains(&from)
    }
}

fn id_of(at: usize) -> NodeId {
    NodeId(MANAGEMENT_FIRST + at as u8)
}

impl World {
    fn has_management_faults(&self) -> bool {
        self.profile.faults.contains(&Fault::Management)
    }

    /// The driver of a thread is asked something that management nodes have to answer.
    pub(crate) fn ask_management(&mut self, id: ThreadId, question: Question) {
        let delay = if self.has_management_faults() { self.management.delay() } else { 0 };
        if delay == 0 {
            return self.on_question(self.threads[id.0].start(), id, question);
        }
        let asking = self.threads[id.0].start();
        self.agenda.enter(self.now() + delay, Event::Question(asking, id, question));
    }

    /// Something that a driver has asked reaches the management nodes.
    pub(crate) fn on_question(&mut self, asking: Start, id: ThreadId, question: Question) {
        if let Question::LateTake(at, request) = question {
            if self.management.nodes[at].is_alive {
                let result = self.management.nodes[at].arbitrator.take(&request);
                self.note(|| format!("management node {} gets a late request: {result:?}", id_of(at)));
            }
            return;
        }
        if !self.is_running(asking) {
            return;
        }
        match question {
            Question::Decide(request, refused, until) => self.decide(id, request, refused, until),
            Question::Check(request) => self.look_for_ticket(id, request),
            Question::Choose(request) => self.choose_arbitrator(id, &request),
            Question::LateTake(..) => unreachable!("it is carried out above"),
        }
    }

    fn decide(
        &mut self,
        id: ThreadId,
        request: ArbitrationRequest,
        mut refused: BTreeSet<usize>,
        until: Time,
    ) {
        let node = self.threads[id.0].node;
        let round = request.round;
        let has_faults = self.has_management_faults();
        let mut reasons = Vec::new();
        for at in 0..self.management.nodes.len() {
            if refused.contains(&at) || !self.management.is_reached(at, node) {
                continue;
            }
            let verdict = self.management.nodes[at].arbitrator.decide(&request);
            self.note(|| {
                let (arbitrator, members) = (id_of(at), &request.members);
                format!("data node {node} asks the arbitrator {arbitrator} for {members:?}: {verdict:?}")
            });
            if has_faults && self.management.draw_loss() {
                continue;
            }
            match verdict {
                Verdict::GoOn { ticket } => {
                    let confirm = ArbitrationConfirm { round, ticket };
                    return self.notify_agreement(id, SignalNumber::ArbitrationConfirm, |w| {
                        cold::write(w, &confirm);
                    });
                }
                Verdict::Stop { reason } => {
                    refused.insert(at);
                    reasons.push(reason);
                }
            }
        }
        if refused.len() == self.management.nodes.len() {
            let refuse = ArbitrationRefuse { round, reason: reasons.join("; ") };
            self.notify_agreement(id, SignalNumber::ArbitrationRefuse, |w| cold::write(w, &refuse));
        } else if self.now() < until {
            let at = self.now() + self.management.delay();
            let asking = self.threads[id.0].start();
            self.agenda.enter(at, Event::Question(asking, id, Question::Decide(request, refused, until)));
        }
    }

    fn look_for_ticket(&mut self, id: ThreadId, check: ArbitratorCheckRequest) {
        let ArbitratorCheckRequest { request, ticket } = check;
        let node = self.threads[id.0].node;
        let is_lost = self.stage == Stage::Running && self.management.draw_loss();
        let management = &self.management;
        let holder = (0..management.nodes.len())
            .find(|&at| management.is_reached(at, node) && management.nodes[at].arbitrator.holds(ticket));
        match holder.filter(|_| !is_lost) {
            Some(at) => {
                let confirm = ArbitratorCheckConfirm { request, arbitrator: id_of(at) };
                self.notify_agreement(id, SignalNumber::ArbitratorCheckConfirm, |w| cold::write(w, &confirm));
            }
            None => {
                let refuse = NoArbitrator { request, reason: "nobody holds the ticket".to_string() };
                self.notify_agreement(id, SignalNumber::ArbitratorCheckRefuse, |w| cold::write(w, &refuse));
            }
        }
    }

    fn choose_arbitrator(&mut self, id: ThreadId, choose: &ArbitratorChooseRequest) {
        let request = choose.request;
        let node = self.threads[id.0].node;
        for at in 0..self.management.nodes.len() {
            if !self.management.is_reached(at, node) {
                continue;
            }
            let ticket = self.management.random.u64(ARBITRATION_TICKET + 1..);
            let take = ArbitratorTakeRequest {
                cluster_incarnation: 1,
                view: choose.view,
                request,
                before: choose.before,
                ticket,
                members: choose.members.clone(),
            };
            if self.stage == Stage::Running && self.management.draw_loss() {
                let late = self.now() + self.management.random.u64(..300_000);
                let asking = self.threads[id.0].start();
                self.agenda.enter(late, Event::Question(asking, id, Question::LateTake(at, take)));
                continue;
            }
            let result = self.management.nodes[at].arbitrator.take(&take);
            self.note(|| {
                let arbitrator = id_of(at);
                format!("data node {node} has management node {arbitrator} take ticket {ticket}: {result:?}")
            });
            let is_lost = self.stage == Stage::Running && self.management.draw_loss();
            if result.is_ok() && !is_lost {
                let confirm = ArbitratorChooseConfirm { request, arbitrator: id_of(at), ticket };
                return self.notify_agreement(id, SignalNumber::ArbitratorChooseConfirm, |w| {
                    cold::write(w, &confirm);
                });
            }
        }
        let refuse = NoArbitrator { request, reason: "nobody takes a ticket".to_string() };
        self.notify_agreement(id, SignalNumber::ArbitratorChooseRefuse, |w| cold::write(w, &refuse));
    }

    /// Faults of management nodes begin.
    pub(crate) fn begin_management_faults(&mut self) {
        if self.has_management_faults() && self.alive.len() > 1 {
            self.plan_management_strike();
        }
    }

    /// So many heartbeat intervals of data nodes, or a part of them.
    fn draw_intervals(&mut self, most: u64) -> Time {
        self.management.random.u64(..self.profile.node_heartbeat_interval * most)
    }

    fn plan_management_strike(&mut self) {
        let at = self.now() + self.draw_intervals(6);
        self.agenda.enter(at, Event::Management(ManagementEvent::Strike));
    }

    pub(crate) fn on_management_event(&mut self, event: ManagementEvent) {
        match event {
            ManagementEvent::Strike => self.strike_management(),
            ManagementEvent::Start(at) => self.start_management(at),
            ManagementEvent::Reach(at) => self.management.nodes[at].apart.clear(),
        }
    }

    fn start_management(&mut self, at: usize) {
        let node = &mut self.management.nodes[at];
        if !node.is_alive {
            node.is_alive = true;
            node.arbitrator = Arbitrator::default();
            self.note(|| format!("management node {} starts again", id_of(at)));
        }
    }

    fn strike_management(&mut self) {
        if self.now() >= self.nemesis.until || self.stage != Stage::Running {
            return;
        }
        self.plan_management_strike();
        let at = self.management.random.usize(..self.management.nodes.len());
        match self.management.random.u8(..4) {
            0 | 1 => {
                self.note(|| format!("management node {} dies", id_of(at)));
                self.management.nodes[at].is_alive = false;
                let later = self.now() + self.draw_intervals(4);
                self.agenda.enter(later, Event::Management(ManagementEvent::Start(at)));
            }
            2 => {
                let all = 1..=self.alive.len() as u8;
                let apart = all.filter(|_| self.management.random.bool()).collect();
                let span = self.draw_intervals(4);
                self.part_management(at, apart, span);
            }
            _ => self.split_with_management(),
        }
    }

    fn part_management(&mut self, at: usize, apart: BTreeSet<u8>, span: Time) {
        self.note(|| format!("data nodes {apart:?} do not reach management node {}", id_of(at)));
        self.management.nodes[at].apart = apart;
        self.agenda.enter(self.now() + span, Event::Management(ManagementEvent::Reach(at)));
    }

    /// The network is split: each data node and each management node is on one of two sides. Some of the latter are cut
    /// off a while before, so that the president looks for another one at that moment.
    fn split_with_management(&mut self) {
        if self.profile.coordinators == Coordinators::AtPresident {
            return;
        }
        let nodes = self.alive.len();
        let chosen: Vec<bool> = (0..nodes).map(|_| self.management.random.bool()).collect();
        if !self.can_be_split(&chosen) {
            return;
        }
        let before = if self.management.random.bool() { self.draw_intervals(2) } else { 0 };
        let span = self.profile.node_heartbeat_interval * self.management.random.u64(1..16);
        for at in 0..self.management.nodes.len() {
            let side = self.management.random.bool();
            let apart = (1..).zip(&chosen).filter(|(_, is_chosen)| **is_chosen == side).map(|(node, _)| node);
            let apart = apart.collect();
            self.part_management(at, apart, before + span);
        }
        self.agenda.enter(self.now() + before, Event::Split(chosen, span));
    }

    /// All management nodes run, and are reached.
    pub(crate) fn end_management_faults(&mut self) {
        for at in 0..self.management.nodes.len() {
            self.management.nodes[at].apart.clear();
            self.start_management(at);
        }
    }

    /// Whether somebody arbitrates between the data nodes that are left.
    pub(crate) fn has_arbitrator(&self) -> bool {
        if !self.has_management_faults() || self.alive.iter().filter(|alive| **alive).count() < 2 {
            return true;
        }
        let own = self.threads.iter().filter(|thread| thread.node == self.president());
        let ticket = own.into_iter().find_map(|thread| thread.executor.host().agreement()?.ticket());
        self.management.nodes.iter().any(|node| ticket.is_some_and(|ticket| node.arbitrator.holds(ticket)))
    }
}
