//! The way down from *Connected*: connections are closed, blocks end what can't go on, the grace time runs, the session
//! is declared failed and forgotten.

use crate::api_nodes::{Candidate, Next, Session, State};
use crate::connect::forget_driver;
use crate::{Membership, Timer};
use alloc::collections::BTreeSet;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::{Context, LogLevel};
use vinga_wire::membership::{ApiNodeBody, CloseConnectionOrder};
use vinga_wire::{Address, ErrorCode, Frame, SignalNumber, U16};

impl Membership {
    /// A driver has closed all connections of the API node that it served, because one of them broke or by order. That
    /// includes those that it has asked for and that wait.
    pub(crate) fn on_api_disconnected_report(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        let (api, incarnation) = (NodeId(body.api), Incarnation(body.incarnation.get()));
        match self.api_nodes.get_mut(api) {
            Some(State::Connected { session, drivers, .. }) if session.incarnation == incarnation => {
                cx.log(
                    LogLevel::Info,
                    format_args!("a connection of API node {api} has broken: all are closed"),
                );
                drivers.remove(&frame.sender());
                let order = close_order(api, ErrorCode::ConnectionLost, 0);
                self.enter_disconnecting(cx, &order, Next::Nobody);
            }
            Some(State::Disconnecting { session, awaited, next, .. })
                if session.incarnation == incarnation =>
            {
                next.forget_driver(cx, frame.sender());
                awaited.remove(&frame.sender());
                if awaited.is_empty() {
                    self.enter_closing(cx, api);
                }
            }
            Some(State::Closing { session, awaited, next }) if session.incarnation == incarnation => {
                next.forget_driver(cx, frame.sender());
                if awaited.remove(&frame.sender()) && awaited.is_empty() {
                    cx.mark("late driver was the last that was awaited");
                    self.enter_closed(cx, api);
                }
            }
            Some(State::Admitting { session, waiting, .. }) if session.incarnation == incarnation => {
                forget_driver(cx, waiting, frame.sender());
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
            | None => cx.mark("late report of a broken connection"),
        }
        Some(())
    }

    /// A block on another thread than the API node's connections wants it closed: the driver there has passed the order
    /// on.
    pub(crate) fn on_close_connection_order(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (order, _) = frame.head::<CloseConnectionOrder>()?;
        if let Some(State::Connected { .. }) = self.api_nodes.get(NodeId(order.api)) {
            self.enter_disconnecting(cx, order, Next::Nobody);
        }
        Some(())
    }

    /// The API node leaves for good. Its connections are closed whether it does that itself or not; as each of them
    /// brings a disconnect notice, this may be one of several, and come after the report that one is closed.
    pub(crate) fn on_disconnect_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        let api = frame.sender().node();
        if body.api != api.0 {
            return None;
        }
        let is_of = |session: &Session| session.incarnation.0 == body.incarnation.get();
        match self.api_nodes.get_mut(api) {
            Some(State::Connected { session, .. }) if is_of(session) => {
                cx.log(LogLevel::Info, format_args!("API node {api} disconnects"));
                let order = close_order(api, ErrorCode::ConnectionLost, 0);
                self.enter_disconnecting(cx, &order, Next::NotThisSession);
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

    /// From *Connected*: orders every driver to close what it has of this API node, and waits for those that are known
    /// to have something.
    pub(crate) fn enter_disconnecting(
        &mut self,
        cx: &mut Context<'_>,
        order: &CloseConnectionOrder,
        next: Next,
    ) {
        let api = NodeId(order.api);
        let State::Connected { session, drivers, .. } = self.api_nodes.take(api) else {
            unreachable!("only a connected API node is disconnected")
        };
        // Drivers of this data node get it in any case, those of others if they serve one of the connections: by the way
        // on which the confirms of these went to them, so that it comes behind.
        let own = cx.own().node();
        let others = drivers.iter().filter(|driver| driver.node() != own);
        for &driver in self.settings.drivers.iter().chain(others) {
            cx.frame(SignalNumber::CloseConnectionOrder, driver).put(order);
        }
        let is_closed = drivers.is_empty();
        let state = State::Disconnecting { session, awaited: drivers, since: cx.now(), next };
        self.api_nodes.set(api, state);
        if is_closed {
            self.enter_closing(cx, api);
        }
    }

    /// From *Disconnecting*: nothing more comes from the API node, and what has come was passed on; except through drivers
    /// that have not reported, which are waited for further. What still comes through these is not carried out any more.
    pub(crate) fn enter_closing(&mut self, cx: &mut Context<'_>, api: NodeId) {
        let State::Disconnecting { session, awaited: late, next, .. } = self.api_nodes.take(api) else {
            unreachable!("connections are closed before blocks are notified")
        };
        self.notify_closed(cx, api, session, late, next);
    }

    /// Notifies the blocks that a session's connections are closed; `late` are drivers that have still to report.
    pub(crate) fn notify_closed(
        &mut self,
        cx: &mut Context<'_>,
        api: NodeId,
        session: Session,
        late: BTreeSet<Address>,
        next: Next,
    ) {
        let mut awaited =
            self.notify_all(cx, SignalNumber::ApiConnectionClosedOrder, api, session.incarnation);
        awaited.extend(late);
        let is_confirmed = awaited.is_empty();
        self.api_nodes.set(api, State::Closing { session, awaited, next });
        if is_confirmed {
            self.enter_closed(cx, api);
        }
    }

    pub(crate) fn on_api_connection_closed_confirm(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        if self.relay_confirm(cx, frame, SignalNumber::ApiConnectionClosedConfirm)? {
            return Some(());
        }
        let (body, _) = frame.head::<ApiNodeBody>()?;
        let api = NodeId(body.api);
        if let Some(State::Closing { session, awaited, .. }) = self.api_nodes.get_mut(api)
            && is_meant(body, session.incarnation)
            && awaited.remove(&frame.sender())
            && awaited.is_empty()
        {
            self.enter_closed(cx, api);
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
            Next::SameSession(candidates) => self.enter_admitting(cx, api, session, candidates),
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
        let awaited = self.notify_all(cx, SignalNumber::ApiFailedOrder, api, session.incarnation);
        let is_forgotten = awaited.is_empty();
        self.api_nodes.set(api, State::Failing { session, awaited, successor });
        if is_forgotten {
            self.enter_free(cx, api);
        }
    }

    pub(crate) fn on_api_failed_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        if self.relay_confirm(cx, frame, SignalNumber::ApiFailedConfirm)? {
            return Some(());
        }
        let (body, _) = frame.head::<ApiNodeBody>()?;
        let api = NodeId(body.api);
        if let Some(State::Failing { session, awaited, .. }) = self.api_nodes.get_mut(api)
            && is_meant(body, session.incarnation)
            && awaited.remove(&frame.sender())
            && awaited.is_empty()
        {
            self.enter_free(cx, api);
        }
        Some(())
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

    /// A data node has failed: its drivers have no connections any more, and what it owed about this API node is not
    /// awaited.
    pub(crate) fn go_on_without(&mut self, cx: &mut Context<'_>, api: NodeId, node: NodeId) {
        let Some(state) = self.api_nodes.get_mut(api) else { return };
        match state {
            State::Connected { drivers: awaited, .. }
            | State::Admitting { awaited, .. }
            | State::Disconnecting { awaited, .. }
            | State::Closing { awaited, .. }
            | State::Failing { awaited, .. } => awaited.retain(|one| one.node() != node),
            State::Free | State::Closed { .. } => {}
        }
        match state {
            State::Admitting { waiting, .. } => waiting.retain(|candidate| candidate.driver.node() != node),
            State::Disconnecting { next, .. } | State::Closing { next, .. } => next.forget_node(node),
            State::Failing { successor, .. } => {
                successor.take_if(|candidate| candidate.driver.node() == node);
            }
            State::Free | State::Connected { .. } | State::Closed { .. } => {}
        }
        match state {
            State::Admitting { awaited, .. } if awaited.is_empty() => {
                cx.mark("admission goes on without a failed data node");
                self.leave_admitting(cx, api);
            }
            State::Connected { drivers, .. } if drivers.is_empty() => {
                let order = close_order(api, ErrorCode::ConnectionLost, 0);
                self.enter_disconnecting(cx, &order, Next::Nobody);
            }
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
            | State::Connected { .. }
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

/// Whether a confirm is about this session. A coordinator knows of an incarnation what stands in transaction ids: its
/// low 16 bits. That is enough, for each order is confirmed by everybody before the next one about the same id goes
/// out.
pub(crate) fn is_meant(body: &ApiNodeBody, incarnation: Incarnation) -> bool {
    body.incarnation.get() as u16 == incarnation.0 as u16
}

/// An API node has begun a new session before its earlier one was forgotten.
pub(crate) fn log_restart(cx: &mut Context<'_>, api: NodeId) {
    cx.log(LogLevel::Info, format_args!("API node {api} was started again: its earlier run is over"));
}
