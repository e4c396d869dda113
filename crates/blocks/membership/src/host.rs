//! The connections that API nodes have to this data node, and the drivers that serve them.
//!
//! A driver asks its own membership about each greeting, and that one the registrar: the membership of the president,
//! which knows all sessions. The registrar knows of a data node only that a session has connections to it. Whichever of
//! these breaks, the drivers of this node close all of them; when the last has reported, nothing more can arrive here
//! from the session, and the registrar receives `ApiConnectionsClosedReport`.
//!
//! From the first broken connection to that report (and to those of late drivers) greetings of the session are held
//! back: the registrar does not know yet that the session is being closed, and would confirm them. Those that it had
//! received before get other numbers, so that its answers count for nothing. Behind the report all of them are sent. So
//! each greeting is answered once, and a session that comes back is not admitted before everything that it has sent is
//! finished.

use crate::Membership;
use crate::closing::close_order;
use crate::connect::{is_given_up, replaced, takes_place};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::{Context, InjectedBug, LogLevel, Tick};
use vinga_wire::handshake::CONNECTIONS_MAX;
use vinga_wire::membership::{
    ApiAdmissionConfirm, ApiAdmissionRequest, ApiConnectConfirm, ApiConnectRefuse, ApiConnectRequest,
    ApiNodeBody, CloseConnectionOrder, CloseSessionOrder,
};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

/// A greeting that a driver has asked about.
struct Greeting {
    driver: Address,
    request: ApiConnectRequest,
    /// That of its session; drawn here if it asks for a new one.
    ticket: u64,
}

impl Greeting {
    /// Whether it says to be of a session that is admitted.
    fn is_of(&self, api: NodeId, incarnation: Incarnation) -> bool {
        let ApiConnectRequest { node, incarnation: own, ticket, .. } = self.request;
        ticket != 0 && (NodeId(node), Incarnation(own)) == (api, incarnation)
    }
}

/// A session that has connections to this data node.
pub struct Served {
    pub incarnation: Incarnation,
    /// The drivers that serve its connections, as far as they have not reported that they are closed. Never empty.
    drivers: BTreeSet<Address>,
    pub closing: Closing,
    /// When something last came from it.
    pub last_seen: Tick,
    /// Whether a heartbeat has come: it sends the first one when it has read that all its connections are admitted.
    pub is_ready: bool,
}

/// Whether the connections of a session are being closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// They are not.
    No,
    /// Since then.
    Since(Tick),
    /// Drivers have not reported in time; the registrar has received the report without them.
    WithoutLate,
}

/// The connections of API nodes to this data node.
#[derive(Default)]
pub struct Host {
    greetings: BTreeMap<u64, Greeting>,
    numbered: u64,
    served: BTreeMap<NodeId, Served>,
}

impl Host {
    /// The sessions that have connections to this data node.
    pub fn served(&mut self) -> impl Iterator<Item = (NodeId, &mut Served)> {
        self.served.iter_mut().map(|(&api, served)| (api, served))
    }

    /// Whether an API node is connected to this data node, and knows it.
    pub fn is_ready(&self, api: NodeId) -> bool {
        self.served.get(&api).is_some_and(|served| served.closing == Closing::No && served.is_ready)
    }

    /// The session of an API node, if it has connections to this data node that are not being closed.
    pub fn connected(&mut self, api: NodeId) -> Option<&mut Served> {
        self.served.get_mut(&api).filter(|served| served.closing == Closing::No)
    }

    /// Those whose connections are not being closed.
    pub fn all_connected(&self) -> impl Iterator<Item = NodeId> {
        self.served.iter().filter(|(_, served)| served.closing == Closing::No).map(|(&api, _)| api)
    }

    /// Keeps a greeting under a new number, which it returns.
    fn insert(&mut self, greeting: Greeting) -> u64 {
        self.numbered += 1;
        self.greetings.insert(self.numbered, greeting);
        self.numbered
    }

    /// Takes some greetings out, in their order.
    fn take_greetings(&mut self, is_meant: impl Fn(&Greeting) -> bool) -> Vec<Greeting> {
        let meant = self.greetings.iter().filter(|(_, greeting)| is_meant(greeting));
        let numbers: Vec<u64> = meant.map(|(&number, _)| number).collect();
        numbers.iter().filter_map(|number| self.greetings.remove(number)).collect()
    }

    /// Whether a session has connections to this data node, if only such as are being closed.
    pub fn serves(&self, api: NodeId, incarnation: Incarnation) -> bool {
        self.served.get(&api).is_some_and(|served| served.incarnation == incarnation)
    }

    /// Whether a greeting says to be of a session whose connections to this data node are being closed.
    fn is_closing(&self, greeting: &Greeting) -> bool {
        let served = self.served.get(&NodeId(greeting.request.node));
        served.is_some_and(|served| {
            served.closing != Closing::No && greeting.is_of(NodeId(greeting.request.node), served.incarnation)
        })
    }

    /// The indexes of the connections of a session that are held back.
    fn held_back(&self, ticket: u64) -> impl Iterator<Item = u16> {
        let of_session = self.greetings.values().filter(move |greeting| greeting.ticket == ticket);
        of_session.map(|greeting| greeting.request.connection)
    }

    /// Drivers that have not reported in time that the connections of an API node are closed.
    pub fn late_drivers(&self, api: NodeId) -> BTreeSet<Address> {
        let late = self.served.get(&api).filter(|served| served.closing == Closing::WithoutLate);
        late.map(|served| served.drivers.clone()).unwrap_or_default()
    }

    /// Whether the connections of an API node to this data node are open, or only late drivers have some; `None` if
    /// there are none.
    pub fn has_open_connections(&self, api: NodeId) -> Option<bool> {
        self.served.get(&api).map(|served| served.closing != Closing::WithoutLate)
    }

    pub fn check_invariants(&self) {
        assert!(
            self.served.values().all(|served| !served.drivers.is_empty()),
            "a driver serves each session"
        );
        assert!(self.greetings.keys().all(|&number| number <= self.numbered), "greetings are numbered");
    }
}

/// Where the registrar is.
fn registrar(cx: &Context<'_>) -> Address {
    let president = cx.view().president().expect("a member that runs is in a view with a president");
    Address::new(president, BlockNumber::Membership, 0)
}

/// A ticket for a new session. It has the node's id, so that no two hosts draw the same one, whatever their random
/// numbers begin with.
fn draw_ticket(cx: &mut Context<'_>) -> u64 {
    let own = cx.own().node();
    cx.random().u64(..) << 8 | u64::from(own.0)
}

fn refuse(cx: &mut Context<'_>, greeting: &Greeting, code: u16, detail: String) {
    let body = ApiConnectRefuse { waiting: greeting.request.waiting, code, detail };
    cold::write(&mut cx.frame(SignalNumber::ApiConnectRefuse, greeting.driver), &body);
}

impl Membership {
    /// A driver has read a greeting.
    pub(crate) fn on_api_connect_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let request: ApiConnectRequest = cold::read(frame)?;
        let connection = request.connection;
        let ticket = if request.ticket == 0 { draw_ticket(cx) } else { request.ticket };
        let greeting = Greeting { driver: frame.sender(), request, ticket };
        if connection < CONNECTIONS_MAX {
            self.ask_registrar(cx, greeting);
        } else {
            let detail = format!("connection {connection}; 0 to {} are allowed", CONNECTIONS_MAX - 1);
            refuse(cx, &greeting, ErrorCode::BadHandshake as u16, detail);
        }
        Some(())
    }

    /// Asks the registrar about a greeting, under a new number; not yet if its session is being closed here.
    fn ask_registrar(&mut self, cx: &mut Context<'_>, greeting: Greeting) {
        let is_known = self.sessions.ticket(NodeId(greeting.request.node)) == Some(greeting.ticket);
        let is_held_back = is_known && self.host.is_closing(&greeting);
        if is_held_back && !cx.has_bug(InjectedBug::ReconnectDoesNotWait) {
            return self.hold_back(cx, greeting);
        }
        let ApiConnectRequest { node, incarnation, connection, ticket, admission, lost, .. } =
            greeting.request.clone();
        let (is_new, ticket) = (ticket == 0, greeting.ticket);
        let waiting = self.host.insert(greeting);
        let request =
            ApiAdmissionRequest { waiting, node, incarnation, connection, is_new, ticket, admission, lost };
        cold::write(&mut cx.frame(SignalNumber::ApiAdmissionRequest, registrar(cx)), &request);
    }

    /// Keeps a greeting until its session is closed; but no more of a session than it may have connections.
    fn hold_back(&mut self, cx: &mut Context<'_>, greeting: Greeting) {
        let ApiConnectRequest { node, connection, ticket, .. } = greeting.request;
        let api = NodeId(node);
        let is_late = self.host.held_back(ticket).any(|other| is_given_up(connection, other));
        if is_late {
            cx.mark("connection was given up before it could be held back");
            return refuse(cx, &greeting, ErrorCode::NodeIdInUse as u16, replaced(api));
        }
        let is_replaced =
            |other: &Greeting| other.ticket == ticket && takes_place(connection, other.request.connection);
        for other in self.host.take_greetings(is_replaced) {
            cx.mark("connection takes the place of one that is held back");
            refuse(cx, &other, ErrorCode::NodeIdInUse as u16, replaced(api));
        }
        cx.mark("greeting is held back until its session is closed");
        self.host.insert(greeting);
    }

    /// Asks once more about greetings of a session, behind what the registrar is sent about it; or holds them back.
    fn ask_again_about(&mut self, cx: &mut Context<'_>, api: NodeId, incarnation: Incarnation) {
        for greeting in self.host.take_greetings(|greeting| greeting.is_of(api, incarnation)) {
            self.ask_registrar(cx, greeting);
        }
    }

    /// Asks another registrar about all greetings that were not answered.
    pub(crate) fn ask_again(&mut self, cx: &mut Context<'_>) {
        for greeting in core::mem::take(&mut self.host.greetings).into_values() {
            cx.mark("greeting is sent once more to the next registrar");
            self.ask_registrar(cx, greeting);
        }
    }

    pub(crate) fn on_api_admission_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let ApiAdmissionConfirm { waiting, api, incarnation, ticket, admission } = cold::read(frame)?;
        let Some(Greeting { driver, request, .. }) = self.host.greetings.remove(&waiting) else {
            cx.mark("confirm of a greeting that a report has covered");
            return Some(());
        };
        let view = cx.view().for_api_nodes();
        let waiting = request.waiting;
        let confirm = ApiConnectConfirm { waiting, api, incarnation, ticket, admission, view };
        cold::write(&mut cx.frame(SignalNumber::ApiConnectConfirm, driver), &confirm);
        let (api, incarnation, last_seen) = (NodeId(api), Incarnation(incarnation), cx.now());
        let new = || Served {
            incarnation,
            drivers: BTreeSet::new(),
            closing: Closing::No,
            last_seen,
            is_ready: false,
        };
        let served = self.host.served.entry(api).or_insert_with(new);
        assert_eq!(served.incarnation, incarnation, "API node {api}: an id has one session");
        assert!(
            served.closing == Closing::No || cx.has_bug(InjectedBug::ReconnectDoesNotWait),
            "API node {api}: no greeting is confirmed while the session is being closed"
        );
        served.drivers.insert(driver);
        served.last_seen = last_seen;
        Some(())
    }

    pub(crate) fn on_api_admission_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let ApiConnectRefuse { waiting, code, detail } = cold::read(frame)?;
        match self.host.greetings.remove(&waiting) {
            Some(greeting) => refuse(cx, &greeting, code, detail),
            None => cx.mark("refusal of a greeting that a report has covered"),
        }
        Some(())
    }

    /// A driver has closed all connections of the API node that it served, because one of them broke or by order. That
    /// includes those that it has asked for and that wait.
    pub(crate) fn on_api_disconnected_report(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        let (api, incarnation) = (NodeId(body.api), Incarnation(body.incarnation.get()));
        let driver = frame.sender();
        let is_closed = |greeting: &Greeting| greeting.driver == driver && greeting.is_of(api, incarnation);
        let gone = self.host.take_greetings(is_closed);
        for greeting in &gone {
            cx.mark("waiting connection was closed with its session");
            refuse(cx, greeting, ErrorCode::ConnectionLost as u16, String::new());
        }
        match self.host.served.get_mut(&api) {
            Some(served) if served.incarnation == incarnation && served.drivers.contains(&driver) => {
                served.drivers.remove(&driver);
                let is_last = served.drivers.is_empty();
                match served.closing {
                    Closing::No => {
                        cx.log(
                            LogLevel::Info,
                            format_args!("a connection of API node {api} has broken: all are closed"),
                        );
                        if !is_last {
                            self.close_connections(cx, &close_order(api, ErrorCode::ConnectionLost, 0));
                        }
                    }
                    Closing::Since(_) => {}
                    Closing::WithoutLate => {
                        if is_last {
                            self.host.served.remove(&api);
                            self.ask_again_about(cx, api, incarnation);
                        }
                        self.no_longer_awaited(cx, api, driver);
                        return Some(());
                    }
                }
                if is_last {
                    self.host.served.remove(&api);
                    self.report_closed(cx, api, incarnation);
                }
            }
            Some(_) | None => {
                cx.mark("late report of a broken connection");
                if !gone.is_empty() && !self.host.serves(api, incarnation) {
                    // The registrar may have confirmed them, or is going to: nobody has these connections.
                    self.report_closed(cx, api, incarnation);
                }
            }
        }
        Some(())
    }

    /// Orders every driver of this node to close what it has of this API node. (Some may not have received the confirm
    /// of their connection yet.)
    fn close_connections(&mut self, cx: &mut Context<'_>, order: &CloseConnectionOrder) {
        let api = NodeId(order.api);
        let served = self.host.connected(api).expect("what is closed once is connected");
        served.closing = Closing::Since(cx.now());
        let incarnation = served.incarnation;
        self.ask_again_about(cx, api, incarnation);
        for &driver in &self.settings.drivers {
            cx.frame(SignalNumber::CloseConnectionOrder, driver).put(order);
        }
    }

    /// Nothing more comes here from a session, except through drivers that are late.
    pub(crate) fn report_closed(&mut self, cx: &mut Context<'_>, api: NodeId, incarnation: Incarnation) {
        self.sessions.note_closed(api, incarnation);
        let body = ApiNodeBody::new(api, incarnation);
        cx.frame(SignalNumber::ApiConnectionsClosedReport, registrar(cx)).put(&body);
        self.ask_again_about(cx, api, incarnation);
    }

    /// A block, a driver or the registrar wants the connections of an API node closed. The report about that is to
    /// come, unless this returns false: there are none, or none but those of late drivers.
    pub(crate) fn close_api_node(&mut self, cx: &mut Context<'_>, order: &CloseConnectionOrder) -> bool {
        match self.host.served.get(&NodeId(order.api)).map(|served| served.closing) {
            None | Some(Closing::WithoutLate) => return false,
            Some(Closing::No) => self.close_connections(cx, order),
            Some(Closing::Since(_)) => {}
        }
        true
    }

    /// A block on another thread than the API node's connections wants it closed: the driver there has passed the order
    /// on.
    pub(crate) fn on_close_connection_order(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let (order, _) = frame.head::<CloseConnectionOrder>()?;
        if self.close_api_node(cx, order) {
            return Some(());
        }
        match self.sessions.note_unwanted(order) {
            Some(unwanted) => {
                cx.mark("API node is closed for a data node that it is not connected to");
                cx.frame(SignalNumber::ApiUnwantedReport, registrar(cx)).put(&unwanted);
            }
            None => cx.mark("order to close an API node that is not admitted"),
        }
        Some(())
    }

    /// Has another registrar close what blocks of this node want closed.
    pub(crate) fn demand_again(&mut self, cx: &mut Context<'_>) {
        for unwanted in self.sessions.unwanted() {
            cx.mark("next registrar is to close an API node, too");
            cx.frame(SignalNumber::ApiUnwantedReport, registrar(cx)).put(&unwanted);
        }
    }

    /// The registrar wants the connections of an API node to this data node closed.
    pub(crate) fn on_api_disconnect_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (CloseSessionOrder { order, incarnation, .. }, _) = frame.head()?;
        let (api, incarnation) = (NodeId(order.api), Incarnation(incarnation.get()));
        if !(self.host.serves(api, incarnation) && self.close_api_node(cx, order)) {
            // An earlier report is under way, or has met an earlier registrar.
            self.report_closed(cx, api, incarnation);
        }
        Some(())
    }

    /// The API node leaves for good. As each of its connections brings a disconnect notice, this may be one of several,
    /// and come after the report that one is closed.
    pub(crate) fn on_disconnect_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<ApiNodeBody>()?;
        if NodeId(body.api) != frame.sender().node() {
            return None;
        }
        cx.frame(SignalNumber::ApiLeavingReport, registrar(cx)).put(body);
        Some(())
    }
}
