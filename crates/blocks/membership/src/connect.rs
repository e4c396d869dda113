//! The registrar: who may connect, and the way up to *Connected*: the blocks are notified first.

use crate::Membership;
use crate::api_nodes::{Candidate, Loss, Next, Session, State};
use crate::closing::{connection_lost, log_restart, request_all};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::{Context, InjectedBug, LogLevel};
use vinga_wire::membership::{ApiAdmissionConfirm, ApiAdmissionRequest, ApiConnectRefuse, SessionStage};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, cold};

const DECLARED_FAILED: &str =
    "this incarnation of the client is not known any more: begin a new one, with ticket 0";

impl Membership {
    pub(crate) fn on_api_admission_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let request: ApiAdmissionRequest = cold::read(frame)?;
        let candidate = Candidate { host: frame.sender(), request };
        if !candidate.request.is_new {
            self.on_same_session(cx, candidate);
        } else if let Some(candidate) = self.resume_session(cx, candidate) {
            match candidate.request.node {
                0 => match self.api_nodes.free_id() {
                    Some(api) if !self.api_nodes.is_full() => self.begin_session(cx, api, candidate),
                    Some(_) | None => self.refuse_full(cx, &candidate),
                },
                api => self.on_new_session(cx, NodeId(api), candidate),
            }
        }
        Some(())
    }

    /// A greeting for which an earlier registrar has begun a session goes on with that one, since nobody has been
    /// confirmed. Gives it back if there is none. (Its host asks before it says what it knows; so no such session is
    /// further than *Closing*, and nobody else waits for its id.)
    fn resume_session(&mut self, cx: &mut Context<'_>, candidate: Candidate) -> Option<Candidate> {
        let Some(api) = self.api_nodes.with_ticket(candidate.request.ticket) else { return Some(candidate) };
        match self.api_nodes.get_mut(api).expect("it is the id of an API node") {
            State::Disconnecting { next: next @ (Next::Nobody | Next::NotThisSession), .. }
            | State::Closing { next: next @ (Next::Nobody | Next::NotThisSession), .. } => {
                cx.mark("greeting waits for the session that was begun for it");
                *next = Next::SameSession(vec![candidate]);
            }
            State::Free
            | State::Admitting { .. }
            | State::Connected { .. }
            | State::Disconnecting { .. }
            | State::Closing { .. }
            | State::Closed { .. }
            | State::Failing { .. } => return Some(candidate),
        }
        None
    }

    /// A new session that wants a certain id.
    fn on_new_session(&mut self, cx: &mut Context<'_>, api: NodeId, candidate: Candidate) {
        let incarnation = candidate.incarnation();
        let is_full = self.api_nodes.is_full();
        let Some(state) = self.api_nodes.get_mut(api) else {
            let first = self.api_nodes.first();
            let detail = format!("node id {api} is not one of a client; these are {first} to 255");
            return refuse(cx, &candidate, ErrorCode::NoFreeNodeId, detail);
        };
        match state {
            State::Free if is_full => self.refuse_full(cx, &candidate),
            State::Free => self.begin_session(cx, api, candidate),
            State::Admitting { session, .. } | State::Connected { session, .. } => {
                let detail = format!("node {api} is connected, incarnation {}", session.incarnation);
                refuse(cx, &candidate, ErrorCode::NodeIdInUse, detail);
            }
            State::Disconnecting { session, next, .. } | State::Closing { session, next, .. } => {
                if incarnation <= session.requested {
                    let known = session.requested;
                    return refuse_older(cx, api, known, &candidate);
                }
                cx.mark("newer session waits for the older to close");
                next.supersede(cx, api, candidate);
            }
            &mut State::Closed { session, .. } => {
                if incarnation <= session.requested {
                    return refuse_older(cx, api, session.requested, &candidate);
                }
                cx.mark("newer session ends the grace time of the older");
                log_restart(cx, api);
                self.enter_failing(cx, api, session, Some(candidate));
            }
            State::Failing { session, successor, .. } => {
                if incarnation <= session.requested {
                    let known = session.requested;
                    return refuse_older(cx, api, known, &candidate);
                }
                cx.mark("newer session waits for the older to be forgotten");
                match successor.take() {
                    None => *successor = Some(candidate),
                    Some(present) => *successor = Some(newer(cx, api, present, candidate)),
                }
            }
        }
    }

    /// A further connection of a session that was admitted, or the first after its connections broke.
    fn on_same_session(&mut self, cx: &mut Context<'_>, candidate: Candidate) {
        let api = NodeId(candidate.request.node);
        match self.api_nodes.get_mut(api) {
            Some(State::Connected { session, hosts, held }) if candidate.is_of(session) => {
                match candidate.loss(session, hosts, cx.view()) {
                    Loss::Nothing => {
                        hosts.insert(candidate.host);
                        confirm(cx, api, session, &candidate);
                    }
                    Loss::Leavers => {
                        cx.mark("connection waits for the end of a data node that has left");
                        wait_with(cx, api, held, candidate);
                    }
                    Loss::Members => {
                        cx.mark("session comes back before its loss was noticed");
                        wait_with(cx, api, held, candidate);
                        self.enter_disconnecting(cx, &connection_lost(api), Next::Nobody);
                    }
                }
            }
            Some(&mut (State::Disconnecting { session, .. } | State::Closing { session, .. }))
                if candidate.is_of(&session) && cx.has_bug(InjectedBug::ReconnectDoesNotWait) =>
            {
                self.enter_connected(cx, api, session, &[candidate]);
            }
            Some(State::Disconnecting { session, next, .. } | State::Closing { session, next, .. })
                if candidate.is_of(session) =>
            {
                cx.mark("same session waits for its connections to close");
                next.same_session(cx, api, candidate);
            }
            Some(State::Admitting { session, waiting, .. }) if candidate.is_of(session) => {
                cx.mark("further connection of a session that is being admitted");
                wait_with(cx, api, waiting, candidate);
            }
            Some(&mut State::Closed { session, .. }) if candidate.is_of(&session) => {
                self.admit_again(cx, api, session, vec![candidate]);
            }
            Some(
                State::Free
                | State::Admitting { .. }
                | State::Connected { .. }
                | State::Disconnecting { .. }
                | State::Closing { .. }
                | State::Closed { .. }
                | State::Failing { .. },
            )
            | None => refuse(cx, &candidate, ErrorCode::UnknownOutcome, DECLARED_FAILED.to_string()),
        }
    }

    /// Gives a free id to a new session.
    pub(crate) fn begin_session(&mut self, cx: &mut Context<'_>, api: NodeId, candidate: Candidate) {
        let requested = candidate.incarnation();
        let Some(incarnation) = self.api_nodes.next_incarnation(api, requested) else {
            let detail = format!("no incarnation is left of node id {api}");
            return refuse(cx, &candidate, ErrorCode::NoFreeNodeId, detail);
        };
        let session = Session { incarnation, requested, ticket: candidate.request.ticket, admission: 1 };
        cx.log(LogLevel::Info, format_args!("API node {api} has connected, incarnation {incarnation}"));
        self.enter_admitting(cx, api, session, vec![candidate]);
    }

    /// From *Closed*: the session comes back.
    pub(crate) fn admit_again(
        &mut self,
        cx: &mut Context<'_>,
        api: NodeId,
        session: Session,
        waiting: Vec<Candidate>,
    ) {
        let session = Session { admission: session.admission.saturating_add(1), ..session };
        self.enter_admitting(cx, api, session, waiting);
    }

    /// Notifies the blocks that a session is admitted, for the first time or again; these connections of it, one at
    /// least, are confirmed when all blocks have confirmed. Requests may come to a block by way of any thread, so that
    /// an order which is only on its way could be overtaken.
    fn enter_admitting(
        &mut self,
        cx: &mut Context<'_>,
        api: NodeId,
        session: Session,
        waiting: Vec<Candidate>,
    ) {
        let awaited = request_all(cx, api, session, SessionStage::Admitted);
        self.api_nodes.set(api, State::Admitting { session, awaited, waiting });
    }

    /// From *Admitting*: all blocks accept what comes from the session.
    pub(crate) fn leave_admitting(&mut self, cx: &mut Context<'_>, api: NodeId) {
        let State::Admitting { session, waiting, .. } = self.api_nodes.take(api) else {
            unreachable!("blocks are notified before a session is connected")
        };
        if waiting.is_empty() {
            cx.mark("connections of a session were closed before it was admitted");
            self.notify_closed(cx, api, session, Next::Nobody);
        } else {
            self.enter_connected(cx, api, session, &waiting);
        }
    }

    /// Confirms the connections, one at least, of a session that is connected by them.
    fn enter_connected(
        &mut self,
        cx: &mut Context<'_>,
        api: NodeId,
        session: Session,
        candidates: &[Candidate],
    ) {
        let hosts: BTreeSet<Address> = candidates.iter().map(|candidate| candidate.host).collect();
        assert!(!hosts.is_empty(), "who is connected has a connection");
        self.api_nodes.set(api, State::Connected { session, hosts, held: Vec::new() });
        for candidate in candidates {
            confirm(cx, api, &session, candidate);
        }
    }

    /// A data node has ended to which a session had connections: confirms those that have waited for that.
    pub(crate) fn confirm_held(&mut self, cx: &mut Context<'_>, api: NodeId) {
        let Some(State::Connected { session, hosts, held }) = self.api_nodes.get_mut(api) else { return };
        let is_explained = |one: &mut Candidate| one.loss(session, hosts, cx.view()) == Loss::Nothing;
        let explained: Vec<Candidate> = held.extract_if(.., is_explained).collect();
        for candidate in explained {
            hosts.insert(candidate.host);
            confirm(cx, api, session, &candidate);
        }
    }

    fn refuse_full(&self, cx: &mut Context<'_>, candidate: &Candidate) {
        let detail = format!("{} clients are connected or may still come back", self.api_nodes.max());
        refuse(cx, candidate, ErrorCode::NoFreeNodeId, detail);
    }
}

impl Next {
    /// A connection of the present session wants to come back.
    pub(crate) fn same_session(&mut self, cx: &mut Context<'_>, api: NodeId, candidate: Candidate) {
        match self {
            Next::Nobody => *self = Next::SameSession(vec![candidate]),
            Next::SameSession(waiting) => wait_with(cx, api, waiting, candidate),
            Next::NotThisSession | Next::NewSession(_) => {
                refuse(cx, &candidate, ErrorCode::UnknownOutcome, DECLARED_FAILED.to_string());
            }
        }
    }

    /// A data node has reported that all connections of the present session are closed. What waits there is asked for
    /// again behind the report.
    pub(crate) fn forget_host(&mut self, host: Address) {
        if let Next::SameSession(waiting) = self {
            waiting.retain(|candidate| candidate.host != host);
        }
        self.forget_if_nobody();
    }

    /// Nobody at a data node that has failed waits any more.
    pub(crate) fn forget_node(&mut self, node: NodeId) {
        match self {
            Next::SameSession(waiting) => waiting.retain(|candidate| candidate.host.node() != node),
            Next::NewSession(candidate) if candidate.host.node() == node => *self = Next::NotThisSession,
            Next::Nobody | Next::NotThisSession | Next::NewSession(_) => {}
        }
        self.forget_if_nobody();
    }

    fn forget_if_nobody(&mut self) {
        if matches!(self, Next::SameSession(waiting) if waiting.is_empty()) {
            *self = Next::Nobody;
        }
    }

    /// A newer session wants the id.
    fn supersede(&mut self, cx: &mut Context<'_>, api: NodeId, candidate: Candidate) {
        *self = Next::NewSession(match core::mem::replace(self, Next::Nobody) {
            Next::Nobody | Next::NotThisSession => candidate,
            Next::SameSession(waiting) => {
                for older in &waiting {
                    refuse(cx, older, ErrorCode::UnknownOutcome, DECLARED_FAILED.to_string());
                }
                candidate
            }
            Next::NewSession(present) => newer(cx, api, present, candidate),
        });
    }
}

/// Of the connections of a session that wait at a data node, there is one of each index: a later one takes its place.
/// An API node opens connection 0 to a data node first, and the others when that one is confirmed; so of connections
/// that wait while connection 0 does, it has given up all others, which came before by another thread or come late. If
/// these were confirmed, they would be found broken, and the session closed by that as soon as it is back.
///
/// This says whether a connection takes the place of one that waits.
pub(crate) fn takes_place(later: u16, earlier: u16) -> bool {
    later == 0 || later == earlier
}

/// Whether a connection was given up that comes while an earlier one waits. See [`takes_place`].
pub(crate) fn is_given_up(later: u16, earlier: u16) -> bool {
    later != 0 && earlier == 0
}

/// A connection waits with the others of its session.
fn wait_with(cx: &mut Context<'_>, api: NodeId, waiting: &mut Vec<Candidate>, candidate: Candidate) {
    let (node, index) = (candidate.host.node(), candidate.request.connection);
    let of = |other: &Candidate| (other.host.node() == node).then_some(other.request.connection);
    if waiting.iter().filter_map(of).any(|other| is_given_up(index, other)) {
        cx.mark("connection was given up before it could wait");
        return refuse_replaced(cx, api, &candidate);
    }
    for replaced in waiting.extract_if(.., |other| of(other).is_some_and(|other| takes_place(index, other))) {
        refuse_replaced(cx, api, &replaced);
    }
    waiting.push(candidate);
}

/// Of two that wait for the same id the newer session stays; of two connections of one session the later.
fn newer(cx: &mut Context<'_>, api: NodeId, present: Candidate, candidate: Candidate) -> Candidate {
    if candidate.incarnation() < present.incarnation() {
        refuse_older(cx, api, present.incarnation(), &candidate);
        return present;
    }
    refuse_replaced(cx, api, &present);
    candidate
}

fn refuse_replaced(cx: &mut Context<'_>, api: NodeId, candidate: &Candidate) {
    refuse(cx, candidate, ErrorCode::NodeIdInUse, replaced(api));
}

/// Why a connection is refused that another one of the same node has taken the place of.
pub(crate) fn replaced(api: NodeId) -> String {
    format!("a later connection of node {api} has taken its place")
}

fn refuse_older(cx: &mut Context<'_>, api: NodeId, known: Incarnation, candidate: &Candidate) {
    let detail = format!(
        "incarnation {} of node {api} is not newer than {known}, which is known",
        candidate.request.incarnation
    );
    refuse(cx, candidate, ErrorCode::NodeIdInUse, detail);
}

fn refuse(cx: &mut Context<'_>, candidate: &Candidate, code: ErrorCode, detail: String) {
    let body = ApiConnectRefuse { waiting: candidate.request.waiting, code: code as u16, detail };
    cold::write(&mut cx.frame(SignalNumber::ApiAdmissionRefuse, candidate.host), &body);
}

fn confirm(cx: &mut Context<'_>, api: NodeId, session: &Session, candidate: &Candidate) {
    let body = ApiAdmissionConfirm {
        waiting: candidate.request.waiting,
        api: api.0,
        incarnation: session.incarnation.0,
        ticket: session.ticket,
        admission: session.admission,
    };
    cold::write(&mut cx.frame(SignalNumber::ApiAdmissionConfirm, candidate.host), &body);
}
