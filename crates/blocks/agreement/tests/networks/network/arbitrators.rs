//! The management nodes of the network, and what the drivers of data nodes do to ask them. Requests and answers get
//! lost, and come late; a management node that starts again knows nothing.

use super::{Arrival, Network, REST};
use std::collections::BTreeSet;
use vinga_agreement::{Arbitrator, Verdict};
use vinga_base::NodeId;
use vinga_wire::agreement::ArbitrationRequest;
use vinga_wire::arbitration::{
    ArbitratorCheckConfirm, ArbitratorCheckRequest, ArbitratorChooseConfirm, ArbitratorChooseRequest,
    ArbitratorTakeRequest, NoArbitrator,
};

/// Tries of a driver to reach a management node, one in a millisecond.
const TRIES: u32 = 200;

#[derive(Default)]
pub struct Management {
    arbitrator: Arbitrator,
    is_alive: bool,
    /// Data nodes that do not reach it.
    apart: BTreeSet<u8>,
}

/// What is answered to a question about the arbitrator.
pub enum Found {
    Present(ArbitratorCheckConfirm),
    Missing(NoArbitrator),
    Chosen(ArbitratorChooseConfirm),
    NotChosen(NoArbitrator),
}

/// A question that is on its way.
pub struct Question {
    at: u64,
    node: u8,
    what: What,
}

enum What {
    /// Of these arbitrators, by those that have not refused yet; tries that are left.
    Decide(ArbitrationRequest, BTreeSet<usize>, u32),
    Check(ArbitratorCheckRequest),
    Choose(ArbitratorChooseRequest),
    /// What a driver does not wait for any more.
    LateTake(usize, ArbitratorTakeRequest),
}

impl Management {
    pub fn holding(ticket: u64) -> Self {
        Management { arbitrator: Arbitrator::new(ticket), is_alive: true, apart: BTreeSet::new() }
    }

    fn is_reached(&self, from: u8) -> bool {
        self.is_alive && !self.apart.contains(&from)
    }
}

/// The id of a management node.
fn id_of(at: usize) -> NodeId {
    NodeId(50 + at as u8)
}

impl Network {
    pub fn stop_management(&mut self, at: usize) {
        self.management[at].is_alive = false;
    }

    /// It starts again, and knows nothing.
    pub fn start_management(&mut self, at: usize) {
        self.management[at] = Management { is_alive: true, ..Management::default() };
    }

    /// These data nodes do not reach it.
    pub fn part_management(&mut self, at: usize, nodes: BTreeSet<u8>) {
        self.management[at].apart = nodes;
    }

    /// All management nodes run, and are reached by all.
    pub fn heal_management(&mut self) {
        for at in 0..self.management.len() {
            self.management[at].apart.clear();
            if !self.management[at].is_alive {
                self.start_management(at);
            }
        }
    }

    fn delay(&mut self) -> u64 {
        self.now + self.random.u64(0..3 + self.arbitration_delay)
    }

    fn ask(&mut self, at: u64, node: u8, what: What) {
        self.questions.push(Question { at, node, what });
    }

    pub fn arbitrate(&mut self, node: u8, request: ArbitrationRequest) {
        let last = self.questions.iter().filter(|question| question.node == node).map(|one| one.at).max();
        let at = self.now
            + if self.arbitration_delay == 0 { 0 } else { self.random.u64(0..self.arbitration_delay) };
        self.ask(last.unwrap_or(0).max(at), node, What::Decide(request, BTreeSet::new(), TRIES));
        self.answer_questions();
    }

    pub fn check(&mut self, node: u8, request: ArbitratorCheckRequest) {
        let at = self.delay();
        self.ask(at, node, What::Check(request));
    }

    pub fn choose(&mut self, node: u8, request: ArbitratorChooseRequest) {
        let at = self.delay();
        self.ask(at, node, What::Choose(request));
    }

    /// Answers what has reached the management nodes by now.
    pub fn answer_questions(&mut self) {
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.questions).into_iter().partition(|one| one.at <= now);
        self.questions = later;
        let due: Vec<Question> = due;
        for Question { node, what, .. } in due {
            match what {
                What::Decide(request, refused, tries) => self.decide(node, request, refused, tries),
                What::Check(request) => self.on_check(node, request),
                What::Choose(request) => self.on_choose(node, &request),
                What::LateTake(at, request) => {
                    if self.management[at].is_alive {
                        let _ = self.management[at].arbitrator.take(&request);
                    }
                }
            }
        }
    }

    fn answer(&mut self, node: u8, arrival: Arrival) {
        let at = self.now + self.random.u64(0..6 + self.arbitration_delay);
        self.arrivals.entry((0, node)).or_default().push((at, arrival));
    }

    fn decide(&mut self, node: u8, request: ArbitrationRequest, mut refused: BTreeSet<usize>, tries: u32) {
        let mut reasons = Vec::new();
        for at in 0..self.management.len() {
            let is_reached = self.management[at].is_reached(node) && !self.apart.contains(&node);
            if refused.contains(&at) || !is_reached {
                continue;
            }
            let verdict = self.management[at].arbitrator.decide(&request);
            if tries < TRIES && self.random.u8(..8) == 0 {
                continue;
            }
            match verdict {
                Verdict::GoOn { .. } => return self.answer(node, Arrival::Verdict(request.round, verdict)),
                Verdict::Stop { reason } => {
                    refused.insert(at);
                    reasons.push(reason);
                }
            }
        }
        if refused.len() == self.management.len() {
            let verdict = Verdict::Stop { reason: reasons.join("; ") };
            return self.answer(node, Arrival::Verdict(request.round, verdict));
        }
        if tries > 0 {
            self.ask(self.now + 1, node, What::Decide(request, refused, tries - 1));
        }
    }

    fn on_check(&mut self, node: u8, ArbitratorCheckRequest { request, ticket }: ArbitratorCheckRequest) {
        // Another driver might not have reached it this time.
        let fails = self.random.u8(..32) == 0 && self.loses_answers;
        let holder =
            self.management.iter().position(|one| one.is_reached(node) && one.arbitrator.holds(ticket));
        let holder = holder.filter(|_| !fails && !self.apart.contains(&node));
        let found = match holder {
            Some(at) => Found::Present(ArbitratorCheckConfirm { request, arbitrator: id_of(at) }),
            None => Found::Missing(NoArbitrator { request, reason: "nobody has it".to_string() }),
        };
        self.answer(node, Arrival::Found(found));
    }

    fn on_choose(&mut self, node: u8, choose: &ArbitratorChooseRequest) {
        let request = choose.request;
        for at in 0..self.management.len() {
            if !self.management[at].is_reached(node) || self.apart.contains(&node) {
                continue;
            }
            let ticket = self.random.u64(100..);
            let take = ArbitratorTakeRequest {
                cluster_incarnation: 1,
                view: choose.view,
                request,
                before: choose.before,
                ticket,
                members: choose.members.clone(),
            };
            match self.random.u8(..8) {
                0 if self.loses_answers => {
                    let late = self.now + self.random.u64(0..REST / 4);
                    self.ask(late, node, What::LateTake(at, take));
                }
                // The answer is lost.
                1 if self.loses_answers => _ = self.management[at].arbitrator.take(&take),
                _ => {
                    if self.management[at].arbitrator.take(&take).is_ok() {
                        let arbitrator = id_of(at);
                        let confirm = ArbitratorChooseConfirm { request, arbitrator, ticket };
                        return self.answer(node, Arrival::Found(Found::Chosen(confirm)));
                    }
                }
            }
        }
        let refuse = NoArbitrator { request, reason: "nobody takes it".to_string() };
        self.answer(node, Arrival::Found(Found::NotChosen(refuse)));
    }
}
