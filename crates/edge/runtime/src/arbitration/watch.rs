//! The president's watch over the arbitrator: who holds the ticket of the view, and who takes another one.
//!
//! One thread asks the management nodes one after the other, by connections that stay open: that an arbitrator has
//! ended is found by its connection at the next question. What is not answered within [`PATIENCE`] counts as lost.

use super::{Arbitrators, Unanswered, WHO, post, random_ticket, unreadable, whole};
use crate::exchange::{Exchange, frame, shown};
use crate::switchboard::Switchboard;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};
use vinga_base::NodeId;
use vinga_wire::arbitration::{
    ArbitratorCheckConfirm, ArbitratorCheckRequest, ArbitratorChooseConfirm, ArbitratorChooseRequest,
    ArbitratorTakeConfirm, ArbitratorTakeRefuse, ArbitratorTakeRequest, NoArbitrator,
};
use vinga_wire::{SignalNumber, cold};

/// How long a management node may take to answer: its machine may be busy.
const PATIENCE: Duration = Duration::from_secs(3);

enum Question {
    Check(ArbitratorCheckRequest),
    Choose(ArbitratorChooseRequest),
}

/// Where questions go.
pub(super) struct WatchHandle(Sender<Question>);

impl WatchHandle {
    /// Has the management nodes asked who holds a ticket.
    pub fn check(&self, request: ArbitratorCheckRequest) {
        // Without a thread there is no answer, and no other arbitrator is chosen.
        drop(self.0.send(Question::Check(request)));
    }

    /// Has one of them take another ticket.
    pub fn choose(&self, request: ArbitratorChooseRequest) {
        drop(self.0.send(Question::Choose(request)));
    }
}

/// Starts the thread. It ends when nobody can ask any more.
pub(super) fn start(arbitrators: &Arc<Arbitrators>, switchboard: &Arc<Switchboard>) -> WatchHandle {
    let (sender, questions) = mpsc::channel();
    let open = arbitrators.places.iter().map(|_| None).collect();
    let mut watch =
        Watch { arbitrators: arbitrators.clone(), switchboard: switchboard.clone(), open, holder: 0 };
    let run = move || {
        for question in questions {
            match question {
                Question::Check(request) => watch.check(request),
                Question::Choose(request) => watch.choose(&request),
            }
        }
    };
    if let Err(why) = thread::Builder::new().name("arbitrators".to_string()).spawn(run) {
        log::error!(target: WHO, "nobody looks after the arbitrator: the system has no threads left: {why}");
    }
    WatchHandle(sender)
}

struct Watch {
    arbitrators: Arc<Arbitrators>,
    switchboard: Arc<Switchboard>,
    /// A connection to each place, if there is one.
    open: Vec<Option<Exchange>>,
    /// The place that has held the ticket last.
    holder: usize,
}

impl Watch {
    fn check(&mut self, body: ArbitratorCheckRequest) {
        let request = body.request;
        let asked = frame(SignalNumber::ArbitratorCheckRequest, self.arbitrators.own.node, |writer| {
            cold::write(writer, &body);
        });
        // The one that has held it last is asked before the others.
        let mut order: Vec<usize> = (0..self.open.len()).collect();
        order.sort_by_key(|&at| at != self.holder);
        let mut reasons = Vec::new();
        for at in order {
            match self.ask(at, &asked).and_then(|answer| read_check(&answer, request)) {
                Ok(()) => {
                    let arbitrator = self.hold(at);
                    let confirm = ArbitratorCheckConfirm { request, arbitrator };
                    return post(&self.switchboard, SignalNumber::ArbitratorCheckConfirm, |writer| {
                        cold::write(writer, &confirm);
                    });
                }
                Err(why) => reasons.push(self.describe(at, why)),
            }
        }
        let refuse = NoArbitrator { request, reason: reasons.join("; ") };
        post(&self.switchboard, SignalNumber::ArbitratorCheckRefuse, |w| cold::write(w, &refuse));
    }

    /// In the fixed order of the configuration.
    fn choose(&mut self, choose: &ArbitratorChooseRequest) {
        let request = choose.request;
        let mut reasons = Vec::new();
        for at in 0..self.open.len() {
            // One of its own for each: nobody may hold the ticket of another one.
            let ticket = random_ticket();
            let body = ArbitratorTakeRequest {
                cluster_incarnation: self.arbitrators.cluster_incarnation,
                view: choose.view,
                request,
                before: choose.before,
                ticket,
                members: choose.members.clone(),
            };
            let asked = frame(SignalNumber::ArbitratorTakeRequest, self.arbitrators.own.node, |writer| {
                cold::write(writer, &body);
            });
            match self.ask(at, &asked).and_then(|answer| read_taken(&answer, ticket)) {
                Ok(()) => {
                    let arbitrator = self.hold(at);
                    let confirm = ArbitratorChooseConfirm { request, arbitrator, ticket };
                    return post(&self.switchboard, SignalNumber::ArbitratorChooseConfirm, |writer| {
                        cold::write(writer, &confirm);
                    });
                }
                Err(why) => reasons.push(self.describe(at, why)),
            }
        }
        let refuse = NoArbitrator { request, reason: reasons.join("; ") };
        post(&self.switchboard, SignalNumber::ArbitratorChooseRefuse, |w| cold::write(w, &refuse));
    }

    fn hold(&mut self, at: usize) -> NodeId {
        self.holder = at;
        self.arbitrators.places[at].node
    }

    fn describe(&self, at: usize, why: Unanswered) -> String {
        let (Unanswered::Failed(why) | Unanswered::Refused(why)) = why;
        format!("management node {}: {why}", self.arbitrators.places[at].node)
    }

    /// Asks by the connection that is open, or by another one.
    fn ask(&mut self, at: usize, request: &[u8]) -> Result<Vec<u8>, Unanswered> {
        let until = Instant::now() + PATIENCE;
        if let Some(mut exchange) = self.open[at].take() {
            let answer = exchange.send(request, until).and_then(|()| exchange.receive(until));
            if let Ok(answer) = answer {
                self.open[at] = Some(exchange);
                return Ok(answer);
            }
            // It was closed, perhaps because nothing was asked for a while.
        }
        let mut exchange = self.arbitrators.open(&self.arbitrators.places[at], request, until)?;
        let answer = exchange.receive(until)?;
        self.open[at] = Some(exchange);
        Ok(answer)
    }
}

fn read_check(answer: &[u8], request: u32) -> Result<(), Unanswered> {
    let answer = whole(answer)?;
    match answer.signal() {
        Some(SignalNumber::ArbitratorCheckConfirm) => {
            let confirm: ArbitratorCheckConfirm = cold::read(&answer).ok_or_else(unreadable)?;
            if confirm.request == request { Ok(()) } else { Err(unreadable()) }
        }
        Some(SignalNumber::ArbitratorCheckRefuse) => {
            let refuse: NoArbitrator = cold::read(&answer).ok_or_else(unreadable)?;
            Err(Unanswered::Refused(shown(&refuse.reason)))
        }
        _ => Err(unreadable()),
    }
}

fn read_taken(answer: &[u8], ticket: u64) -> Result<(), Unanswered> {
    let answer = whole(answer)?;
    match answer.signal() {
        Some(SignalNumber::ArbitratorTakeConfirm) => {
            let confirm: ArbitratorTakeConfirm = cold::read(&answer).ok_or_else(unreadable)?;
            if confirm.ticket == ticket { Ok(()) } else { Err(unreadable()) }
        }
        Some(SignalNumber::ArbitratorTakeRefuse) => {
            let refuse: ArbitratorTakeRefuse = cold::read(&answer).ok_or_else(unreadable)?;
            Err(Unanswered::Refused(shown(&refuse.reason)))
        }
        _ => Err(unreadable()),
    }
}
