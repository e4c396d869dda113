//! The way to each data node: connect, greet, and what to do when that fails or a connection breaks.
//!
//! ```text
//!   Waiting ──pause over──▶ First ──HelloConfirm──▶ Further ──all confirmed──▶ Ready
//!      ▲                      │                       │                         │
//!      ├──────────────────────┴───────────────────────┴─────────────────────────┤  refused, broken, silent, too slow
//!      └──────── all was sent, broken, silent ─────── Parting ◀── its node has left
//! ```
//! A data node that leaves the cluster in order *parts*: nothing is begun there any more, but its connections are read
//! until it has said on each of them that it has sent everything ([`ALL_SENT`](vinga_wire::handshake::ALL_SENT)). The
//! view without it, which comes from others, may be read before what it has sent itself. So no answer is taken for lost
//! that was on its way.
//!
//! A client is one session for the whole cluster: the first data node that admits it gives it a node id and a ticket,
//! with which it greets on all further connections, to that node and to the others, and comes back after connections
//! broke. So without a ticket one data node is greeted at a time. An address where nobody lets the client connect for a
//! while does not keep it from trying the others beside it; the one that opens first is greeted. The confirm of a
//! node's first connection says how many connections the node would like; if one of these breaks all of them are
//! closed.
//!
//! Two addresses may lead to the same data node, as nobody knows before it has answered. A greeting names the data
//! nodes that are connected by other addresses; one of these refuses it. Of addresses that are known to lead to the
//! same node one is tried at a time, another one when that does not answer; and one is greeted at a time.
//!
//! Members of the view to which none of the given addresses leads are reached by the address that the view has, once
//! all given ones were tried: one of these may lead to the same node by a better way.
//!
//! When a node says that it does not know the ticket any more, the client has been declared failed: a new incarnation
//! begins, without a ticket, and what was being asked for is unknown for ever.
//!
//! A greeting names the data nodes whose connections were lost and not opened again: what was sent there is finished
//! before the session is admitted elsewhere.
//!
//! If a connection breaks before a greeting without a ticket is answered, the cluster may have begun a session
//! nevertheless, which nobody knows. The next greeting asks for a newer one, so that it need not wait until that may
//! come back no more.
//!
//! A client that leaves disconnects as the last thing on each connection, so that its node id is free at once. A node
//! that is being greeted then gets the notice when it has answered: its answer may give an id away already.

mod one;
mod ways;

pub use ways::{EndpointState, Readiness};

use crate::error::{Error, Result};
use crate::link::LinkId;
use crate::net::Net;
use crate::settings::ENDPOINTS_MAX;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use one::{Session, State};
use vinga_base::time::{Span, Tick};
use vinga_base::{Incarnation, NodeId};
use vinga_wire::handshake::{CONNECTIONS_MAX, DataNodeStart, HelloConfirm, HelloRequest, MAGIC, Refusal};
use vinga_wire::membership::{ApiNodeBody, HeartbeatBody};
use vinga_wire::protocol::Protocol;
use vinga_wire::view::Member;
use vinga_wire::{Address, BlockNumber, ErrorCode, SignalNumber, cold};

/// Attempts, with that by which it was lost, after which a data node is looked for at the address that the view has.
const ATTEMPTS_BEFORE_OTHER_ADDRESS: u32 = 3;

/// An admission of a client to a cluster ([`crate::Client::admission`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admission {
    /// The cluster's incarnation.
    pub cluster: u64,
    /// The client's incarnation.
    pub incarnation: Incarnation,
    /// How often this one was admitted.
    pub number: u32,
}

/// The sessions with all data nodes, one for each endpoint.
pub(crate) struct Sessions {
    list: Vec<Session>,
    /// By which the cluster knows this incarnation of the client; 0 as long as it was not admitted.
    ticket: u64,
    /// The newest admission of it that was learned of, 0 for none.
    admission: u32,
    cluster_incarnation: Option<u64>,
    /// The random number of the database; 0 before the first connection.
    database: u64,
    /// Nothing is opened any more.
    is_leaving: bool,
}

/// What a greeting's answer has led to.
pub(crate) struct Greeted {
    /// Whether this was the last connection that was missing.
    pub is_ready: bool,
    /// Whether the cluster was restarted, so that nothing known of it holds any more.
    pub is_restarted: bool,
}

impl Sessions {
    pub fn new(addresses: &[String]) -> Self {
        let given = |address: &String| Session::new(address.clone(), true, Tick(0));
        Sessions {
            list: addresses.iter().map(given).collect(),
            ticket: 0,
            admission: 0,
            cluster_incarnation: None,
            database: 0,
            is_leaving: false,
        }
    }

    /// Opens what is due; returns the endpoints that have to be given up, and why.
    pub fn on_time(&mut self, net: &mut Net) -> Vec<(u16, Error)> {
        let mut lost = Vec::new();
        let ticket = self.ticket;
        self.note_slow(net);
        for endpoint in 0..self.list.len() as u16 {
            match self.get(endpoint).state {
                State::Waiting { until } if until <= net.now => {
                    let may_open =
                        self.is_to_be_tried(endpoint, net) && self.may_open(endpoint, until, net.now);
                    let session = self.get_mut(endpoint);
                    if may_open {
                        session.state = State::First { since: net.now };
                        session.open(net, LinkId::new(endpoint, 0));
                    } else if ticket != 0 && (session.node.is_some() || !session.is_given) {
                        // Another address of the same data node is used, or its data node is no member any more.
                        session.state = State::Waiting { until: net.now + net.settings.reconnect_pause.1 };
                        session.is_tried = true;
                    }
                }
                State::Waiting { .. } | State::Left => {}
                State::First { since } | State::Further { since, .. } => {
                    if net.now - since > net.settings.greeting_timeout {
                        let detail = "the data node did not answer the greeting in time";
                        lost.push((endpoint, Error::with_detail(ErrorCode::ClusterFailure, detail)));
                    }
                }
                State::Ready { .. } | State::Parting => {
                    if self.is_silent(net, endpoint) {
                        let detail = "the data node is silent";
                        lost.push((endpoint, Error::with_detail(ErrorCode::ConnectionLost, detail)));
                    }
                }
            }
        }
        lost
    }

    /// Notes for which attempts nothing waits any more.
    fn note_slow(&mut self, net: &mut Net) {
        let mut is_new = false;
        for session in &mut self.list {
            let is_slow = matches!(session.state, State::First { since }
                if net.now - since >= net.settings.attempt_patience);
            is_new |= is_slow && !session.is_slow;
            session.is_slow = is_slow;
        }
        if is_new {
            self.add_members(net);
        }
    }

    /// Sends the heartbeats that are due. Data nodes take nothing else for a heartbeat.
    pub fn send_heartbeats(&mut self, net: &mut Net) {
        for (endpoint, session) in self.list.iter_mut().enumerate() {
            let State::Ready { heartbeat_at } = &mut session.state else { continue };
            if net.now < *heartbeat_at {
                continue;
            }
            *heartbeat_at = net.now + net.settings.heartbeat_interval;
            let view = net.routes.view().number().0;
            let body = HeartbeatBody { epoch: net.epoch_seen.into(), view: view.into() };
            let node = session.node.expect("it was greeted");
            let membership = Address::new(node, BlockNumber::Membership, 0);
            let link = LinkId::new(endpoint as u16, 0);
            net.frame(link, SignalNumber::HeartbeatRequest, membership).put(&body);
            net.link(link).hurry();
        }
    }

    /// Whether nothing has come on any of an endpoint's connections. (Heartbeats are answered on one of them.)
    fn is_silent(&self, net: &Net, endpoint: u16) -> bool {
        let links = (0..CONNECTIONS_MAX).map(|c| LinkId::new(endpoint, c));
        let last_seen = links.map(|link| net.links[link.index()].last_received).max();
        last_seen.is_some_and(|last_seen| net.now - last_seen > net.settings.silence_max)
    }

    /// Whether an endpoint may lead to a member of the cluster. While nobody is connected any may.
    fn is_to_be_tried(&self, endpoint: u16, net: &Net) -> bool {
        let session = self.get(endpoint);
        let is_address = |member: &Member| member.address == session.address;
        session.is_given
            || !self.list.iter().any(Session::is_ready)
            || net.routes.view().members().iter().any(is_address)
    }

    /// Adds endpoints for the members of the view to which none is known to lead. They wait until all that there are
    /// were tried, for a while at least, and one that has led to the member before was tried some times again.
    pub fn add_members(&mut self, net: &mut Net) {
        if self.is_leaving || self.list.iter().any(|session| !session.is_tried && !session.is_slow) {
            return;
        }
        // While nobody answers, those that are known may come back, by the addresses that were given for good reasons:
        // on the same machine that is shared memory.
        if !self.list.iter().any(Session::is_ready) {
            return;
        }
        let leads_to = |session: &Session, member: &Member| {
            let is_waiting = matches!(session.state, State::Waiting { .. });
            session.address == member.address
                || session.node == Some(member.node)
                    && (!is_waiting || session.failures < ATTEMPTS_BEFORE_OTHER_ADDRESS)
        };
        let is_missing = |member: &&Member| {
            !member.address.is_empty() && !self.list.iter().any(|session| leads_to(session, member))
        };
        let members = net.routes.view().members();
        let missing: Vec<_> =
            members.iter().filter(is_missing).map(|m| (m.address.clone(), m.node)).collect();
        for (address, node) in missing {
            let session = Session { node: Some(node), ..Session::new(address, false, net.now) };
            let is_member = |session: &Session| {
                net.routes.view().members().iter().any(|member| member.address == session.address)
            };
            let is_free = |session: &Session| {
                !session.is_given && session.opened == 0 && !is_member(session) && session.lost_in == 0
            };
            if let Some(free) = self.list.iter().position(is_free) {
                self.list[free] = session;
            } else if self.list.len() < ENDPOINTS_MAX {
                self.list.push(session);
                net.add_endpoint();
            }
        }
    }

    /// As long as the client has no ticket only one data node is greeted, and each by one address at a time: the one
    /// that has waited longest, so that each is tried, however long others don't answer. One whose connection does not
    /// open for some time keeps nobody.
    fn may_open(&self, endpoint: u16, since: Tick, now: Tick) -> bool {
        let node = self.get(endpoint).node;
        let is_rival = |session: &Session| {
            let may_be_greeted = self.ticket != 0 && (node.is_none() || session.node != node);
            let is_before = match session.state {
                State::Waiting { until } => until <= now && until < since,
                State::First { .. } => session.is_greeted || !session.is_slow,
                State::Further { .. } | State::Ready { .. } | State::Parting | State::Left => true,
            };
            is_before && !may_be_greeted
        };
        !self.is_leaving && !self.list.iter().any(is_rival)
    }

    /// No connection is opened any more; the disconnect notice is sent where it can be.
    pub fn leave(&mut self, net: &mut Net) {
        self.is_leaving = true;
        for endpoint in 0..self.list.len() as u16 {
            match self.get(endpoint).state {
                State::Ready { .. } => self.send_disconnect(net, endpoint),
                // Nothing has been sent there.
                State::First { .. } if !net.link(LinkId::new(endpoint, 0)).is_open => {
                    self.become_lost(net, endpoint, Error::new(ErrorCode::ConnectionLost));
                }
                State::Waiting { .. }
                | State::First { .. }
                | State::Further { .. }
                | State::Parting
                | State::Left => {}
            }
        }
    }

    /// Whether the client leaves, or has left.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Whether nothing more will be said to anybody.
    pub fn has_left(&self) -> bool {
        let is_over = |s: &Session| matches!(s.state, State::Waiting { .. } | State::Left);
        self.is_leaving && self.list.iter().all(is_over)
    }

    /// Sends the disconnect notice on all connections to an endpoint, which must be ready: whichever of them the node
    /// finds closed first, it has read the notice there.
    pub fn send_disconnect(&mut self, net: &mut Net, endpoint: u16) {
        let session = self.get_mut(endpoint);
        assert!(session.is_ready(), "who has not been admitted can't leave");
        session.state = State::Left;
        let membership = Address::new(session.node.expect("it was greeted"), BlockNumber::Membership, 0);
        let opened = session.opened;
        let body = ApiNodeBody::new(net.api, net.incarnation);
        for connection in (0..CONNECTIONS_MAX).filter(|connection| opened & 1 << connection != 0) {
            let link = LinkId::new(endpoint, connection);
            net.frame(link, SignalNumber::DisconnectOrder, membership).put(&body);
            net.link(link).hurry();
        }
    }

    /// The driver has opened a connection: greet.
    pub fn on_opened(&mut self, net: &mut Net, link: LinkId) {
        let session = self.get(link.endpoint());
        if session.opened & 1 << link.connection() == 0 {
            return;
        }
        if link.connection() == 0 && self.list.iter().any(|other| self.is_greeted_first(other, session)) {
            return self.put_off(net, link.endpoint());
        }
        let (node, ticket) = (session.node.unwrap_or_default(), self.ticket);
        let now = net.now;
        let place = net.link(link);
        place.is_open = true;
        place.last_received = now;
        place.hurry();
        let connected = if link.connection() == 0 { self.connected_nodes() } else { Vec::new() };
        self.get_mut(link.endpoint()).is_greeted = true;
        self.get_mut(link.endpoint()).asks_for_session = ticket == 0;
        let incarnation = if ticket == 0 { net.requested } else { net.incarnation };
        let hello = HelloRequest {
            magic: MAGIC,
            protocol: Protocol::own(),
            cluster: net.settings.cluster.clone(),
            node: net.api.0,
            incarnation: incarnation.0,
            connection: link.connection(),
            ticket,
            connected,
            admission: self.admission,
            lost: self.lost_nodes(),
        };
        let driver = Address::new(node, BlockNumber::Driver, 0);
        cold::write(&mut net.frame(link, SignalNumber::HelloRequest, driver), &hello);
    }

    /// Whether another endpoint, which is greeted, keeps this one from being greeted. As long as the client has no
    /// ticket any does. Later one that leads to the same data node does: if both were greeted at the same time, neither
    /// would know of the other, and the one that is answered last would be closed, with all connections of the session.
    /// An address that was given and is slow to answer may lead to the same data node as one of the view, which is
    /// tried beside it then.
    fn is_greeted_first(&self, other: &Session, session: &Session) -> bool {
        let may_be_same = match (session.node, other.node) {
            (Some(own), Some(other)) => own == other,
            _ => other.is_given != session.is_given && matches!(other.state, State::First { .. }),
        };
        other.is_greeted && (self.ticket == 0 || may_be_same)
    }

    /// A connection has opened while another endpoint is greeted that comes first: this one is greeted later.
    fn put_off(&mut self, net: &mut Net, endpoint: u16) {
        let pause = net.settings.reconnect_pause.0;
        let session = self.get_mut(endpoint);
        session.state = State::Waiting { until: net.now + pause };
        session.close(net, endpoint);
    }

    /// The data nodes that have answered.
    fn connected_nodes(&self) -> Vec<u8> {
        let answered =
            self.list.iter().filter(|s| matches!(s.state, State::Further { .. } | State::Ready { .. }));
        answered.filter_map(|session| Some(session.node?.0)).collect()
    }

    /// The data nodes to which connections of the newest admission were lost. Those of earlier ones are closed
    /// everywhere.
    fn lost_nodes(&self) -> Vec<DataNodeStart> {
        let lost =
            self.list.iter().filter(|session| session.lost_in != 0 && session.lost_in == self.admission);
        let start = |session: &Session| {
            Some(DataNodeStart { node: session.node?.0, incarnation: session.incarnation.0 })
        };
        lost.filter_map(start).collect()
    }

    /// A greeting was refused: no session was begun for it.
    pub fn note_refused(&mut self, endpoint: u16) {
        self.get_mut(endpoint).asks_for_session = false;
        self.get_mut(endpoint).is_refused = true;
    }

    /// A greeting was refused because this address leads to a data node that is connected by another one.
    pub fn note_same_node(&mut self, endpoint: u16, refusal: &Refusal) {
        if let Ok(node) = u8::try_from(refusal.request) {
            self.get_mut(endpoint).node = Some(NodeId(node));
        }
    }

    /// A greeting was accepted.
    ///
    /// # Errors
    /// Why the connection can't be used all the same.
    pub fn on_hello_confirm(
        &mut self,
        net: &mut Net,
        link: LinkId,
        confirm: HelloConfirm,
    ) -> Result<Greeted> {
        let endpoint = link.endpoint();
        Protocol::own()
            .common(confirm.protocol)
            .map_err(|detail| Error::with_detail(ErrorCode::WrongProtocol, detail))?;
        let node = NodeId(confirm.node);
        let is_same = |s: &Session| s.node == Some(node) && s.is_greeted;
        let other = (0..).zip(&self.list).find(|&(at, session)| at != endpoint && is_same(session));
        if other.is_some() {
            return Err(Error::with_detail(ErrorCode::SameDataNode, format!("data node {node}")));
        }
        self.admission = self.admission.max(confirm.admission);
        // Connections to it by another address were lost before: these are open now.
        self.list.iter_mut().filter(|session| session.node == Some(node)).for_each(|one| one.lost_in = 0);
        let known = self.cluster_incarnation;
        let mut is_restarted = false;
        let session = self.get_mut(endpoint);
        let missing = match (session.state, link.connection()) {
            (State::First { since }, 0) => {
                net.api = NodeId(confirm.api);
                net.incarnation = Incarnation(confirm.api_incarnation);
                session.asks_for_session = false;
                session.is_mute = false;
                session.admission = confirm.admission;
                session.node = Some(node);
                session.incarnation = Incarnation(confirm.incarnation);
                is_restarted = known.is_some_and(|known| known != confirm.cluster_incarnation);
                if is_restarted {
                    net.epoch_seen = 0;
                    net.routes.forget();
                }
                net.adopt(confirm.view);
                let wanted = net.routes.connections_wanted(node);
                session.state = State::Further { since, missing: wanted - 1 };
                for connection in 1..wanted {
                    session.open(net, LinkId::new(endpoint, connection));
                }
                self.ticket = confirm.ticket;
                self.cluster_incarnation = Some(confirm.cluster_incarnation);
                self.database = confirm.database;
                wanted - 1
            }
            (State::Further { since, missing }, 1..) if session.node == Some(node) && missing > 0 => {
                // The view may have changed since the first greeting.
                net.adopt(confirm.view);
                session.state = State::Further { since, missing: missing - 1 };
                missing - 1
            }
            _ => return Err(Error::with_detail(ErrorCode::BadHandshake, "a greeting was answered twice")),
        };
        if missing == 0 {
            self.become_ready(net, endpoint);
        }
        Ok(Greeted { is_ready: missing == 0, is_restarted })
    }

    fn become_ready(&mut self, net: &mut Net, endpoint: u16) {
        // Before anything is sent there: else it would count as sent before the connection was lost.
        net.turnovers.note_connected(endpoint, net.routes.view().number());
        let session = self.get_mut(endpoint);
        session.state = State::Ready { heartbeat_at: net.now };
        session.failures = 0;
        session.connects += 1;
        session.was_ready_as = session.node.map(|node| (node, session.incarnation));
        session.is_tried = true;
        session.error = None;
    }

    /// Whether nothing but the answer to the first greeting may come on a connection.
    pub fn awaits_greeting(&self, link: LinkId) -> bool {
        link.connection() == 0 && matches!(self.get(link.endpoint()).state, State::First { .. })
    }

    /// Whether a refusal means that this incarnation of the client is over.
    pub fn is_declared_failed(&self, refusal: &Refusal) -> bool {
        self.ticket != 0 && refusal.code == ErrorCode::UnknownOutcome as u16
    }

    /// The data node of an endpoint that is ready has left the cluster: what it has sent is still read.
    pub fn part(&mut self, net: &Net, endpoint: u16) {
        let session = self.get_mut(endpoint);
        if session.is_ready() {
            session.state = State::Parting;
            session.lost_at = Some(net.now);
            // The data node may be started again, and greet by another address.
            session.is_greeted = false;
            session.error = Some(Error::new(ErrorCode::NodeStopping));
        }
    }

    /// A data node has said on a connection that it was admitted by that it has sent everything; returns whether it has
    /// said so on all of them. `None` if it was not admitted.
    pub fn note_all_sent(&mut self, net: &mut Net, link: LinkId) -> Option<bool> {
        self.part(net, link.endpoint());
        let session = &mut self.list[usize::from(link.endpoint())];
        matches!(session.state, State::Parting).then(|| {
            session.close_one(net, link);
            // Heartbeats were answered on one of them: the others have been silent for long.
            for connection in 0..CONNECTIONS_MAX {
                net.link(LinkId::new(link.endpoint(), connection)).last_received = net.now;
            }
            session.opened == 0
        })
    }

    /// All connections to an endpoint are to be closed; it is tried again after a pause.
    pub fn become_lost(&mut self, net: &mut Net, endpoint: u16, error: Error) {
        let session = &mut self.list[usize::from(endpoint)];
        let (first, longest) = net.settings.reconnect_pause;
        let pause = Span(first.0 << session.failures.min(16)).min(longest);
        session.failures += 1;
        let is_refused = mem::take(&mut session.is_refused);
        match session.state {
            State::Further { .. } | State::Ready { .. } | State::Parting => {
                session.lost_in = session.admission;
                session.lost_at = Some(net.now);
            }
            State::First { .. } => session.is_mute = !is_refused,
            State::Waiting { .. } | State::Left => {}
        }
        session.state = State::Waiting { until: net.now + pause };
        session.error = Some(error);
        session.is_tried = true;
        if mem::take(&mut session.asks_for_session) {
            net.request_newer();
        }
        session.close(net, endpoint);
    }

    /// The next incarnation gets a ticket of its own.
    pub fn forget_ticket(&mut self) {
        self.ticket = 0;
        self.admission = 0;
    }

    /// The address of an endpoint.
    pub fn address(&self, endpoint: u16) -> &str {
        &self.get(endpoint).address
    }

    /// The newest admission of this incarnation of the client that was learned of, 0 for none.
    pub fn admission(&self) -> u32 {
        self.admission
    }

    /// Which incarnation of the cluster is known; 0 for none yet.
    pub fn cluster_incarnation(&self) -> u64 {
        self.cluster_incarnation.unwrap_or(0)
    }

    /// See [`crate::Client::database`].
    pub fn database(&self) -> u64 {
        self.database
    }

    /// Those whose data nodes have left, and may still have sent something.
    pub fn parting(&self) -> Vec<u16> {
        let is_parting = |session: &Session| matches!(session.state, State::Parting);
        (0..).zip(&self.list).filter(|(_, session)| is_parting(session)).map(|(at, _)| at).collect()
    }

    /// Whether the data node at an endpoint has admitted this client, and may have sent something.
    pub fn is_admitted(&self, endpoint: u16) -> bool {
        !matches!(self.get(endpoint).state, State::Waiting { .. } | State::First { .. })
    }

    /// Whether the driver was ordered to open a connection, and not to close it.
    pub fn is_wanted(&self, link: LinkId) -> bool {
        self.get(link.endpoint()).opened & 1 << link.connection() != 0
    }

    /// Whether an endpoint has anything that can break.
    pub fn is_open(&self, endpoint: u16) -> bool {
        self.get(endpoint).opened != 0
    }

    /// Whether a greeting is under way.
    pub fn is_greeting(&self) -> bool {
        self.list.iter().any(|s| matches!(s.state, State::First { .. } | State::Further { .. }))
    }

    /// When [`Sessions::on_time`] or [`Sessions::send_heartbeats`] has something to do.
    pub fn next_deadline(&self, net: &Net) -> Option<Tick> {
        let due = self.list.iter().filter_map(|session| match session.state {
            State::Waiting { until } => (!self.is_leaving).then_some(until),
            State::First { since } if !session.is_slow => Some(since + net.settings.attempt_patience),
            State::First { since } | State::Further { since, .. } => {
                Some(since + net.settings.greeting_timeout)
            }
            State::Ready { heartbeat_at } => Some(heartbeat_at),
            State::Parting => Some(net.now + net.settings.heartbeat_interval),
            State::Left => None,
        });
        due.min()
    }

    /// How many endpoints there are.
    pub fn count(&self) -> u16 {
        self.list.len() as u16
    }

    fn get(&self, endpoint: u16) -> &Session {
        &self.list[usize::from(endpoint)]
    }

    fn get_mut(&mut self, endpoint: u16) -> &mut Session {
        &mut self.list[usize::from(endpoint)]
    }
}
