//! The registrar: the way down from *Connected*: connections are closed, blocks end what can't go on, the grace time
//! runs, the session is declared failed and forgotten.

use crate::api_nodes::{Candidate, Next, Session, State};
use crate::{Membership, Timer};
use alloc::collections::BTreeSet;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::{Context, LogLevel};
use vinga_wire::membership::{
    ApiNodeBody, ApiSessionConfirm, ApiSessionRequest, CloseConnectionOrder, CloseSessionOrder, SessionStage,
};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U16, cold};

impl Membership {
    /// A data node has no connection of a session any more, nor greetings of it that it has asked about before.
    pub(crate) fn on_api_connections_closed_report(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        let (api, incarnation, host) =
            (NodeId(body.api), Incarnation(body.incarnation.get()), frame.sender());
        match self.api_nodes.get_mut(api) {
            Some(State::Connected { session, hosts, held }) if session.incarnation == incarnation => {
                hosts.remove(&host);
                held.retain(|candidate| candidate.host != host);
                self.enter_disconnecting(cx, &connection_lost(api), Next::Nobody);
            }
            Some(State::Disconnecting { session, awaited, next }) if session.incarnation == incarnation => {
                next.forget_host(host);
                awaited.remove(&host);
                if awaited.is_empty() {
                    self.enter_closing(cx, api);
                }
            }
            Some(State::Closing { session, next, .. }) if session.incarnation == incarnation => {
                next.forget_host(host);
            }
            Some(State::Admitting { session, waiting, .. }) if session.incarnation == incarnation => {
                waiting.retain(|candidate| candidate.host != host);
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
            | None => cx.mark("report of closed connections that counts for nothing"),
        }
        Some(())
    }

    /// A data node wants an API node closed that is connected to others only.
    pub(crate) fn on_api_unwanted_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (CloseSessionOrder { order, incarnation, .. }, _) = frame.head()?;
        match self.api_nodes.get(NodeId(order.api)) {
            Some(State::Connected { session, .. }) if session.incarnation.0 == incarnation.get() => {
                self.enter_disconnecting(cx, order, Next::Nobody);
            }
            _ => cx.mark("order to close an API node that is being closed already"),
        }
        Some(())
    }

    /// An API node leaves for good. Its connections are closed whether it does that itself or not.
    pub(crate) fn on_api_leaving_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        let api = NodeId(body.api);
        let is_of = |session: &Session| session.incarnation.0 == body.incarnation.get();
        match self.api_nodes.get_mut(api) {
            Some(State::Connected { session, .. }) if is_of(session) => {
                cx.log(LogLevel::Info, format_args!("API node {api} disconnects"));
                self.enter_disconnecting(cx, &connection_lost(api), Next::NotThisSession);
            }
            Some(State::Disconnecting { session, next, .. } | State::Closing { session, next, .. })
                if is_of(session) && matches!(next, Next::Nobody) =>
            {
                cx.mark("disconnect notice of an API node that is being closed");
                *next = Next::NotThisSession;
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
            | None => cx.mark("disconnect notice that is not the first"),
        }
        Some(())
    }

    /// From *Connected*: orders the data nodes that have connections of it to close them, and waits for their reports.
    /// Connections that were held back wait for that now.
    pub(crate) fn enter_disconnecting(
        &mut self,
        cx: &mut Context<'_>,
        order: &CloseConnectionOrder,
        mut next: Next,
    ) {
        let api = NodeId(order.api);
        let State::Connected { session, hosts, held } = self.api_nodes.take(api) else {
            unreachable!("only a connected API node is disconnected")
        };
        for candidate in held {
            next.same_session(cx, api, candidate);
        }
        let of_session = CloseSessionOrder::new(*order, session.incarnation);
        for &host in &hosts {
            cx.frame(SignalNumber::ApiDisconnectOrder, host).put(&of_session);
        }
        let is_closed = hosts.is_empty();
        self.api_nodes.set(api, State::Disconnecting { session, awaited: hosts, next });
        if is_closed {
            self.enter_closing(cx, api);
        }
    }

    /// From *Disconnecting*: nothing more comes from the API node, and what has come was passed on; except through
    /// drivers that are late. What still comes through these is not carried out any more.
    pub(crate) fn enter_closing(&mut self, cx: &mut Context<'_>, api: NodeId) {
        let State::Disconnecting { session, next, .. } = self.api_nodes.take(api) else {
            unreachable!("connections are closed before blocks are notified")
        };
        self.notify_closed(cx, api, session, next);
    }

    /// Notifies the blocks that a session's connections are closed.
    pub(crate) fn notify_closed(&mut self, cx: &mut Context<'_>, api: NodeId, session: Session, next: Next) {
        let awaited = request_all(cx, api, session, SessionStage::Closed);
        self.api_nodes.set(api, State::Closing { session, awaited, next });
    }

    /// All blocks of a data node know the stage of a session.
    pub(crate) fn on_api_session_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let ApiSessionConfirm { api, incarnation, stage } = cold::read(frame)?;
        let (api, host) = (NodeId(api), frame.sender());
        let awaited = match (self.api_nodes.get_mut(api), stage) {
            (Some(State::Admitting { session, awaited, .. }), SessionStage::Admitted)
            | (Some(State::Closing { session, awaited, .. }), SessionStage::Closed)
            | (Some(State::Failing { session, awaited, .. }), SessionStage::Failed)
                if session.incarnation.0 == incarnation =>
            {
                awaited
            }
            _ => return Some(()),
        };
        if awaited.remove(&host) && awaited.is_empty() {
            match stage {
                SessionStage::Admitted => self.leave_admitting(cx, api),
                SessionStage::Closed => self.enter_closed(cx, api),
                SessionStage::Failed => self.enter_free(cx, api),
            }
        }
        Some(())
    }

    /// From *Closing*: nothing is under way for the API node any more. Who waits may connect; else the grace time runs,
    /// unless the API node has disconnected.
    fn enter_closed(&mut self, cx: &mut Context<'_>, api: NodeId) {
        let State::Closing { session, next, .. } = self.api_nodes.take(api) else {
            unreachable!("blocks are asked before all of them have confirmed")
        };
        match next {
            Next::Nobody => {
                self.graces += 1;
                self.api_nodes.set(api, State::Closed { session, grace: self.graces });
                cx.send_after(
                    self.settings.reconnect_grace,
                    Timer::Grace { api, grace: self.graces }.token(),
                );
            }
            Next::NotThisSession => {
                cx.log(LogLevel::Info, format_args!("API node {api} has disconnected"));
                self.enter_failing(cx, api, session, None);
            }
            Next::SameSession(candidates) => self.admit_again(cx, api, session, candidates),
            Next::NewSession(candidate) => {
                log_restart(cx, api);
                self.enter_failing(cx, api, session, Some(candidate));
            }
        }
    }

    pub(crate) fn on_grace_over(&mut self, cx: &mut Context<'_>, api: NodeId, over: u64) {
        if let Some(&State::Closed { session, grace }) = self.api_nodes.get(api)
            && grace == over
        {
            let incarnation = session.incarnation;
            cx.log(
                LogLevel::Info,
                format_args!("API node {api} has not come back in time and is declared failed, incarnation {incarnation}"),
            );
            self.enter_failing(cx, api, session, None);
        }
    }

    /// This session is over, everybody forgets it.
    pub(crate) fn enter_failing(
        &mut self,
        cx: &mut Context<'_>,
        api: NodeId,
        session: Session,
        successor: Option<Candidate>,
    ) {
        let awaited = request_all(cx, api, session, SessionStage::Failed);
        self.api_nodes.set(api, State::Failing { session, awaited, successor });
    }

    /// From *Failing*: nothing is left of the API node anywhere.
    fn enter_free(&mut self, cx: &mut Context<'_>, api: NodeId) {
        let State::Failing { successor, .. } = self.api_nodes.take(api) else {
            unreachable!("an id is freed when its owner is forgotten")
        };
        if let Some(candidate) = successor {
            self.begin_session(cx, api, candidate);
        }
    }

    /// A data node has failed: it has no connections any more, and what it owed about this API node is not awaited.
    pub(crate) fn go_on_without(&mut self, cx: &mut Context<'_>, api: NodeId, node: NodeId) {
        let Some(state) = self.api_nodes.get_mut(api) else { return };
        match state {
            State::Connected { hosts: awaited, .. }
            | State::Admitting { awaited, .. }
            | State::Disconnecting { awaited, .. }
            | State::Closing { awaited, .. }
            | State::Failing { awaited, .. } => awaited.retain(|one| one.node() != node),
            State::Free | State::Closed { .. } => {}
        }
        match state {
            State::Admitting { waiting: some, .. } | State::Connected { held: some, .. } => {
                some.retain(|candidate| candidate.host.node() != node);
            }
            State::Disconnecting { next, .. } | State::Closing { next, .. } => next.forget_node(node),
            State::Failing { successor, .. } => {
                successor.take_if(|candidate| candidate.host.node() == node);
            }
            State::Free | State::Closed { .. } => {}
        }
        match state {
            State::Admitting { awaited, .. } if awaited.is_empty() => {
                cx.mark("admission goes on without a failed data node");
                self.leave_admitting(cx, api);
            }
            State::Connected { hosts, .. } if hosts.is_empty() => {
                self.enter_disconnecting(cx, &connection_lost(api), Next::Nobody);
            }
            State::Connected { .. } => self.confirm_held(cx, api),
            State::Disconnecting { awaited, .. } if awaited.is_empty() => {
                cx.mark("disconnecting goes on without a failed data node");
                self.enter_closing(cx, api);
            }
            State::Closing { awaited, .. } if awaited.is_empty() => {
                cx.mark("closing goes on without a failed data node");
                self.enter_closed(cx, api);
            }
            State::Failing { awaited, .. } if awaited.is_empty() => {
                cx.mark("forgetting goes on without a failed data node");
                self.enter_free(cx, api);
            }
            State::Free
            | State::Admitting { .. }
            | State::Disconnecting { .. }
            | State::Closing { .. }
            | State::Closed { .. }
            | State::Failing { .. } => {}
        }
    }
}

/// An order to close an API node's connections; `signal` is the number of the one that was wrong, 0 if none was.
pub fn close_order(api: NodeId, reason: ErrorCode, signal: u16) -> CloseConnectionOrder {
    CloseConnectionOrder { api: api.0, unused: 0, reason: U16::new(reason as u16), signal: U16::new(signal) }
}

/// An order to close an API node's connections because one of them is closed.
pub(crate) fn connection_lost(api: NodeId) -> CloseConnectionOrder {
    close_order(api, ErrorCode::ConnectionLost, 0)
}

/// Asks all members to notify their blocks of a session's stage; returns whose confirms are awaited.
pub(crate) fn request_all(
    cx: &mut Context<'_>,
    api: NodeId,
    session: Session,
    stage: SessionStage,
) -> BTreeSet<Address> {
    let Session { incarnation, requested, ticket, admission } = session;
    let (incarnation, requested) = (incarnation.0, requested.0);
    let request = ApiSessionRequest { api: api.0, incarnation, requested, ticket, admission, stage };
    let members = cx.view().members().iter();
    let hosts: BTreeSet<Address> =
        members.map(|member| Address::new(member.node, BlockNumber::Membership, 0)).collect();
    for &host in &hosts {
        cold::write(&mut cx.frame(SignalNumber::ApiSessionRequest, host), &request);
    }
    hosts
}

/// An API node has begun a new session before its earlier one was forgotten.
pub(crate) fn log_restart(cx: &mut Context<'_>, api: NodeId) {
    cx.log(LogLevel::Info, format_args!("API node {api} was started again: its earlier run is over"));
}
