//! What a data node asks arbitrators: to take the ticket of the first view, and, when data nodes have lost each other,
//! whether those that are left go on.
//!
//! No thread that runs turns ever waits for that. The blocks' requests go to a thread of their own, which has each of
//! the arbitrators asked by another one: the one that holds the ticket of the view is the one whose confirm counts, and
//! each ticket is given to one arbitrator only.

mod watch;

use crate::exchange::{Exchange, frame, shown};
use crate::settings::{OtherManagementNode, ProcessSettings};
use crate::switchboard::{Message, Switchboard};
use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use vinga_base::{Incarnation, NodeId};
use vinga_key::{ClusterKey, NotAccepted};
use vinga_wire::agreement::{ArbitrationConfirm, ArbitrationRefuse, ArbitrationRequest};
use vinga_wire::arbitration::{
    ArbitrationBeginConfirm, ArbitrationBeginRefuse, ArbitrationBeginRequest, ArbitratorCheckRequest,
    ArbitratorChooseRequest, ArbitratorHello,
};
use vinga_wire::handshake::{MAGIC, Refusal};
use vinga_wire::key::{ConnectionPurpose, ConnectionTerms};
use vinga_wire::protocol::Protocol;
use vinga_wire::view::NO_TICKET;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, FrameWriter, SignalNumber, cold};

/// How long an arbitrator may take to take the first ticket: it may just be starting.
const BEGIN_PATIENCE: Duration = Duration::from_secs(3);

/// Pause between two attempts to reach an arbitrator.
const PAUSE: Duration = Duration::from_millis(50);

const WHO: &str = "arbitration";

/// What a block asks.
pub(crate) enum Question {
    /// Whether members go on.
    Decide(ArbitrationRequest),
    /// Which of them holds a ticket.
    Check(ArbitratorCheckRequest),
    /// To have another ticket taken.
    Choose(ArbitratorChooseRequest),
}

/// Arbitrators, and who asks them.
#[derive(Clone, Debug)]
pub(crate) struct Arbitrators {
    own: ArbitratorHello,
    places: Vec<OtherManagementNode>,
    key: Option<Arc<ClusterKey>>,
    timeout: Duration,
    cluster_incarnation: u64,
}

/// Why an arbitrator has not answered.
enum Unanswered {
    /// It is not reached, or has not answered in time.
    Failed(String),
    /// It does not arbitrate for this node.
    Refused(String),
}

impl From<io::Error> for Unanswered {
    fn from(why: io::Error) -> Self {
        Unanswered::Failed(why.to_string())
    }
}

impl From<NotAccepted> for Unanswered {
    fn from(why: NotAccepted) -> Self {
        match why {
            NotAccepted::Failed(why) => why.into(),
            NotAccepted::Refused(code, detail) => Unanswered::Refused(format!("{code} {detail}")),
        }
    }
}

impl Arbitrators {
    /// Those that a node is configured with, of a cluster that is configured with these data nodes; `None` if there are
    /// none.
    pub fn of(settings: &ProcessSettings, data_nodes: &[(NodeId, u16)]) -> Option<Self> {
        if settings.arbitrators.is_empty() {
            return None;
        }
        let own = ArbitratorHello {
            magic: MAGIC,
            protocol: Protocol::own(),
            cluster: settings.cluster.clone(),
            data_nodes: data_nodes.to_vec(),
            node: settings.node,
        };
        let (places, timeout) = (settings.arbitrators.clone(), settings.arbitration_timeout);
        let (key, cluster_incarnation) = (settings.key.clone(), settings.cluster_incarnation);
        Some(Arbitrators { own, places, key, timeout, cluster_incarnation })
    }

    /// Has one of the arbitrators take a ticket for a cluster that begins with these members; returns it, and which one
    /// that is; `None` if none takes it. `attempts` counts the requests of this start.
    pub fn begin(&self, attempts: &mut u32, members: &[(NodeId, Incarnation)]) -> Option<(u64, NodeId)> {
        let cluster_incarnation = self.cluster_incarnation;
        for place in &self.places {
            // One of its own for each: nobody may hold the ticket of another one.
            let ticket = random_ticket();
            let attempt = *attempts;
            *attempts += 1;
            let request =
                ArbitrationBeginRequest { cluster_incarnation, attempt, ticket, members: members.to_vec() };
            let request = frame(SignalNumber::ArbitrationBeginRequest, self.own.node, |writer| {
                cold::write(writer, &request);
            });
            let answer = self.ask(place, &request, Instant::now() + BEGIN_PATIENCE);
            match answer.and_then(|answer| read_begun(&answer, ticket)) {
                Ok(()) => {
                    log::info!(target: WHO, "management node {} arbitrates", place.node);
                    return Some((ticket, place.node));
                }
                Err(Unanswered::Failed(why) | Unanswered::Refused(why)) => {
                    let OtherManagementNode { node, address } = place;
                    log::warn!(target: WHO, "management node {node} ({address}) does not arbitrate: {why}");
                }
            }
        }
        log::warn!(
            target: WHO,
            "nobody arbitrates until a management node answers: data nodes that lose others stop, if these may go on"
        );
        None
    }

    /// Asks one of them, more than once if it is not reached; returns its answer.
    fn ask(
        &self,
        place: &OtherManagementNode,
        request: &[u8],
        until: Instant,
    ) -> Result<Vec<u8>, Unanswered> {
        loop {
            match self.ask_once(place, request, until) {
                Err(Unanswered::Failed(_)) if Instant::now() + PAUSE < until => thread::sleep(PAUSE),
                result => return result,
            }
        }
    }

    fn ask_once(
        &self,
        place: &OtherManagementNode,
        request: &[u8],
        until: Instant,
    ) -> Result<Vec<u8>, Unanswered> {
        Ok(self.open(place, request, until)?.receive(until)?)
    }

    /// Opens a connection, and sends a request by it behind the greeting.
    fn open(
        &self,
        place: &OtherManagementNode,
        request: &[u8],
        until: Instant,
    ) -> Result<Exchange, Unanswered> {
        let mut exchange = Exchange::connect(place.address, until)?;
        if let Some(key) = &self.key {
            let ArbitratorHello { node, cluster, .. } = &self.own;
            let purpose = ConnectionPurpose::Arbitration;
            exchange.prove(key, ConnectionTerms::new(purpose, *node, place.node, cluster), until)?;
        }
        let hello = frame(SignalNumber::ArbitratorHelloRequest, self.own.node, |writer| {
            cold::write(writer, &self.own);
        });
        exchange.send(&[&hello[..], request].concat(), until)?;
        let answer = exchange.receive(until)?;
        self.check_greeting(place, &whole(&answer)?)?;
        Ok(exchange)
    }

    fn check_greeting(&self, place: &OtherManagementNode, answer: &Frame<'_>) -> Result<(), Unanswered> {
        match answer.signal() {
            Some(SignalNumber::ArbitratorHelloConfirm) => {
                let hello = ArbitratorHello::read(answer, &self.own)
                    .map_err(|(code, detail)| Unanswered::Refused(format!("{code} {}", shown(&detail))))?;
                if hello.node != place.node {
                    return Err(Unanswered::Refused(format!("management node {} listens there", hello.node)));
                }
                Ok(())
            }
            Some(SignalNumber::ArbitratorHelloRefuse) => {
                let refusal: Refusal = cold::read(answer).ok_or_else(unreadable)?;
                let code = ErrorCode::from_number(refusal.code).unwrap_or(ErrorCode::BadHandshake);
                Err(Unanswered::Refused(format!("{code} {}", shown(&refusal.detail))))
            }
            _ => Err(unreadable()),
        }
    }
}

fn unreadable() -> Unanswered {
    Unanswered::Failed("its answer can't be read".to_string())
}

fn whole(bytes: &[u8]) -> Result<Frame<'_>, Unanswered> {
    Frame::first(bytes).ok().flatten().ok_or_else(unreadable)
}

/// Reads the answer to a ticket.
fn read_begun(answer: &[u8], ticket: u64) -> Result<(), Unanswered> {
    let answer = whole(answer)?;
    match answer.signal() {
        Some(SignalNumber::ArbitrationBeginConfirm) => {
            let confirm: ArbitrationBeginConfirm = cold::read(&answer).ok_or_else(unreadable)?;
            if confirm.ticket == ticket { Ok(()) } else { Err(unreadable()) }
        }
        Some(SignalNumber::ArbitrationBeginRefuse) => {
            let refuse: ArbitrationBeginRefuse = cold::read(&answer).ok_or_else(unreadable)?;
            Err(Unanswered::Refused(shown(&refuse.reason)))
        }
        _ => Err(unreadable()),
    }
}

/// Reads the answer to a request of a block: the next ticket.
fn read_verdict(answer: &[u8], round: u32) -> Result<u64, Unanswered> {
    let answer = whole(answer)?;
    match answer.signal() {
        Some(SignalNumber::ArbitrationConfirm) => {
            let confirm: ArbitrationConfirm = cold::read(&answer).ok_or_else(unreadable)?;
            if confirm.round == round { Ok(confirm.ticket) } else { Err(unreadable()) }
        }
        Some(SignalNumber::ArbitrationRefuse) => {
            let refuse: ArbitrationRefuse = cold::read(&answer).ok_or_else(unreadable)?;
            Err(Unanswered::Refused(shown(&refuse.reason)))
        }
        _ => Err(unreadable()),
    }
}

fn random_ticket() -> u64 {
    loop {
        let mut bytes = [0; 8];
        let read = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        let ticket = u64::from_le_bytes(bytes);
        if read == Ok(bytes.len()) && ticket != NO_TICKET {
            return ticket;
        }
    }
}

/// Has the questions of the blocks answered, until nobody can ask any more. Does not wait for answers.
pub(crate) fn run(arbitrators: Arbitrators, questions: &Receiver<Question>, switchboard: &Arc<Switchboard>) {
    let arbitrators = Arc::new(arbitrators);
    // It ends when its questions do, and nobody waits for that.
    let watch = watch::start(&arbitrators, switchboard);
    for question in questions {
        match question {
            Question::Decide(request) => decide(&arbitrators, &request, switchboard),
            Question::Check(request) => watch.check(request),
            Question::Choose(request) => watch.choose(request),
        }
    }
}

/// Has all arbitrators asked whether members go on.
fn decide(arbitrators: &Arc<Arbitrators>, request: &ArbitrationRequest, switchboard: &Arc<Switchboard>) {
    let until = Instant::now() + arbitrators.timeout;
    let members: Vec<String> = request.members.iter().map(ToString::to_string).collect();
    let members = members.join(", ");
    log::warn!(target: WHO, "the arbitrator is asked whether data nodes {members} go on");
    let poll = Arc::new(Poll::new(request.round, arbitrators.places.len(), switchboard.clone()));
    let request = frame(SignalNumber::ArbitrationRequest, arbitrators.own.node, |w| cold::write(w, request));
    for place in arbitrators.places.clone() {
        let (arbitrators, request, asked) = (arbitrators.clone(), request.clone(), poll.clone());
        let ask = move || {
            let answer = arbitrators.ask(&place, &request, until);
            asked.note(place.node, answer.and_then(|answer| read_verdict(&answer, asked.round)));
        };
        if let Err(why) = thread::Builder::new().name(format!("arbitrator {}", place.node)).spawn(ask) {
            let why = format!("the system has no threads left: {why}");
            poll.note(place.node, Err(Unanswered::Failed(why)));
        }
    }
}

/// All arbitrators are asked, and the block gets one answer at most.
struct Poll {
    round: u32,
    switchboard: Arc<Switchboard>,
    state: Mutex<PollState>,
}

#[derive(Default)]
struct PollState {
    awaited: usize,
    has_confirm: bool,
    /// Somebody could not be asked: perhaps the one that holds the ticket.
    has_failure: bool,
    refusals: Vec<String>,
}

impl Poll {
    fn new(round: u32, awaited: usize, switchboard: Arc<Switchboard>) -> Self {
        Poll { round, switchboard, state: Mutex::new(PollState { awaited, ..PollState::default() }) }
    }

    fn note(&self, arbitrator: NodeId, answer: Result<u64, Unanswered>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.awaited -= 1;
        match answer {
            Ok(ticket) => {
                log::warn!(target: WHO, "management node {arbitrator}: go on");
                let round = self.round;
                if !std::mem::replace(&mut state.has_confirm, true) {
                    self.post(SignalNumber::ArbitrationConfirm, |writer| {
                        cold::write(writer, &ArbitrationConfirm { round, ticket });
                    });
                }
            }
            Err(Unanswered::Refused(reason)) => {
                log::warn!(target: WHO, "management node {arbitrator}: stop: {reason}");
                state.refusals.push(format!("{reason} (management node {arbitrator})"));
            }
            Err(Unanswered::Failed(why)) => {
                log::error!(target: WHO, "management node {arbitrator} does not answer: {why}");
                state.has_failure = true;
            }
        }
        if state.awaited == 0 && !state.has_confirm && !state.has_failure {
            let refuse = ArbitrationRefuse { round: self.round, reason: state.refusals.join("; ") };
            self.post(SignalNumber::ArbitrationRefuse, |writer| cold::write(writer, &refuse));
        }
    }

    fn post(&self, number: SignalNumber, write: impl FnOnce(&mut FrameWriter<'_>)) {
        post(&self.switchboard, number, write);
    }
}

/// Sends agreement an answer.
fn post(switchboard: &Switchboard, number: SignalNumber, write: impl FnOnce(&mut FrameWriter<'_>)) {
    let main = switchboard.main_thread;
    let agreement = Address::new(switchboard.node, BlockNumber::Agreement, 0);
    let mut bytes = Vec::new();
    write(&mut FrameWriter::begin(&mut bytes, number, 0, agreement, switchboard.driver(main), 0));
    switchboard.threads[usize::from(main)].post(Message::Frames(bytes));
}
