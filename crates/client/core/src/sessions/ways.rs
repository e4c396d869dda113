//! Which ways the sessions open to the rest of the client: to the owners of partitions, to coordinators and
//! dictionaries; and why there is none.

use super::Sessions;
use super::one::{Session, State};
use crate::error::Error;
use crate::link::LinkId;
use crate::net::Net;
use crate::routes::CoordinatorIndex;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use vinga_base::time::{Span, Tick};
use vinga_base::{NodeId, ViewNumber};
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{Address, BlockNumber, ErrorCode};

/// How it stands with one of the addresses of data nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointState {
    /// The address.
    pub address: String,
    /// The data node that answered there last, or that is there by the view.
    pub node: Option<NodeId>,
    /// Whether it is connected now.
    pub is_connected: bool,
    /// Whether it need not be connected: its data node is connected by another address, or it is none of those that
    /// were given, and no member of the cluster is there.
    pub is_spare: bool,
    /// How often it has been connected.
    pub connects: u32,
    /// Why it was not, the last time.
    pub error: Option<Error>,
}

/// Whether a client can be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// Attempts to connect are under way.
    Connecting,
    /// At least one data node is connected, and all were tried.
    Ready,
    /// All data nodes were tried and none is connected; attempts go on.
    Failed(Error),
}

impl Sessions {
    /// Finds the ways to all partitions and coordinators again.
    pub fn rebuild_routes(&self, net: &mut Net) {
        let mut routes = mem::take(&mut net.routes);
        let link = |node, connection| self.link(node, connection);
        let (links, patience) = (&net.links, net.settings.way_patience);
        let is_near = |link: LinkId| links[link.index()].is_eager;
        let awaited = |node| self.awaited_until(node, patience);
        let outcomes = &mut net.outcomes;
        routes.rebuild(net.api, link, is_near, awaited, |name, link| outcomes.coordinator(name, link));
        let connected = |endpoint: u16| net.turnovers.connected(endpoint);
        routes.note_endpoints(|member| self.endpoint_of(member, connected));
        net.routes = routes;
        net.routes.note_unconnected(|member| self.why_not_connected(member));
    }

    /// The endpoint by which a start of a data node is connected, or was the last time.
    fn endpoint_of(&self, member: &Member, connected: impl Fn(u16) -> u64) -> Option<u16> {
        let is_of = |session: &Session| session.was_ready_as == Some(member.identity());
        let all = (0..).zip(&self.list).filter(|(_, session)| is_of(session)).map(|(endpoint, _)| endpoint);
        all.max_by_key(|&endpoint| connected(endpoint))
    }

    /// Why a member of the view is not connected; `None` if it is. It has refused the client for good if it has done so
    /// at all addresses that are known to lead there: where nobody answers now, somebody may later.
    fn why_not_connected(&self, member: &Member) -> Option<Error> {
        let leads_there = |session: &&Session| match session.node {
            Some(node) => node == member.node,
            None => session.address == member.address,
        };
        let sessions = || self.list.iter().filter(leads_there);
        if sessions().any(Session::is_ready) {
            return None;
        }
        let passing = sessions().find(|s| s.error.as_ref().is_none_or(|error| !error.is_refusal_for_good()));
        let Some(session) = passing.or_else(|| sessions().next()) else {
            let cause = if member.address.is_empty() { "it has no address" } else { &member.address };
            return Some(Error::not_connected(member.node, cause));
        };
        let Some(error) = &session.error else {
            return Some(Error::not_connected(member.node, session.address.as_str()));
        };
        let address = session.address.as_str();
        // Much of what the driver says names the address already.
        let at_address = |said: &str| match said.contains(address) {
            true => String::from(said),
            false => format!("{address}: {said}"),
        };
        let detail = error.detail().filter(|detail| *detail != address);
        Some(if error.is_refusal_for_good() {
            let place = detail.map_or_else(|| String::from(address), at_address);
            Error::with_detail(error.code(), format!("data node {}, {place}", member.node))
        } else {
            let sentence = error.code().sentence().trim_end_matches('.');
            Error::not_connected(member.node, at_address(detail.unwrap_or(sentence)))
        })
    }

    /// Finds the successors of coordinators that have failed; all endpoints that are lost in this view were given up
    /// before. Returns the coordinators whose successors are to be asked: each once by each connection.
    pub fn find_successors(&self, net: &mut Net) -> Vec<CoordinatorIndex> {
        let (view, routes) = (net.routes.view(), &net.routes);
        if view.number() == ViewNumber(0) {
            return Vec::new();
        }
        let link = |acting: Address| self.link(acting.node(), routes.connection_to(acting)?);
        let still_answers = |endpoint| matches!(self.get(endpoint).state, State::Parting);
        let is_alive = |name| view.has_coordinator(name);
        net.outcomes.find_successors(|name| view.acts_for(name), is_alive, link, still_answers)
    }

    /// A connection of a node, if it is open.
    fn link(&self, node: NodeId, connection: u16) -> Option<LinkId> {
        let endpoint = self.list.iter().position(|s| s.node == Some(node) && s.is_ready())?;
        let is_open = self.list[endpoint].opened & 1 << connection != 0;
        is_open.then(|| LinkId::new(endpoint as u16, connection))
    }

    /// Until when another way to the partitions of a data node that is not connected may be hoped for: it was connected
    /// before, and it comes back, or the others go on without it. Not if nobody has answered lately, or the client
    /// leaves.
    fn awaited_until(&self, node: NodeId, patience: Span) -> Tick {
        let is_hopeless = self.is_leaving || self.list.iter().all(|session| session.is_mute);
        let lost = self.list.iter().filter(|session| session.node == Some(node) && !is_hopeless);
        lost.filter_map(|session| session.lost_at).max().map_or(Tick(0), |at| at + patience)
    }

    /// The way of a request that only this data node can answer, or the one that leads the cluster if none is named;
    /// and until when a way may be hoped for, while there is none. One that is named is not waited for while others are
    /// connected: their answers are of use without its own.
    pub fn way(&self, net: &Net, node: Option<NodeId>) -> (Option<(Address, LinkId)>, Tick) {
        let Some(asked) = node.or(net.routes.view().president()) else { return (None, Tick(0)) };
        let way = self.link(asked, 0).map(|link| (Address::new(asked, BlockNumber::Dictionary, 0), link));
        let is_awaited = node.is_none() || !self.list.iter().any(Session::is_ready);
        let awaited_until = self.awaited_until(asked, net.settings.way_patience);
        (way, if is_awaited { awaited_until } else { Tick(0) })
    }

    /// The data node that leads the cluster in a view, with a connection to it; `None` while it is not connected. Its
    /// dictionary is the one that answers.
    pub fn president(&self, view: &ClusterView) -> Option<(NodeId, LinkId)> {
        let president = view.president()?;
        let endpoint = self.list.iter().position(|s| s.node == Some(president) && s.is_ready())?;
        Some((president, LinkId::new(endpoint as u16, 0)))
    }

    /// Those whose data node is no member of the view, at least not in the incarnation that has answered; and whether
    /// it has left in order. Not those that are being greeted: what is known of their addresses is of earlier
    /// connections.
    pub fn without_member(&self, net: &Net) -> Vec<(u16, bool)> {
        let view = net.routes.view();
        let is_lost = |session: &Session| {
            let is_it = |m: &Member| Some(m.node) == session.node && m.incarnation == session.incarnation;
            let has_answered = session.node.is_some() && !matches!(session.state, State::First { .. });
            has_answered && !view.members().iter().any(is_it)
        };
        let has_left = |session: &Session| {
            let is_parting = matches!(session.state, State::Ready { .. } | State::Parting);
            is_parting && session.node.is_some_and(|node| net.routes.has_left(node, session.incarnation))
        };
        let lost = (0..).zip(&self.list).filter(|(_, session)| is_lost(session));
        lost.map(|(endpoint, session)| (endpoint, has_left(session))).collect()
    }

    /// All endpoints: those that were given in the order of their addresses, then those of members.
    pub fn endpoints(&self, view: &ClusterView) -> Vec<EndpointState> {
        let is_reached = |node: NodeId| self.list.iter().any(|s| s.node == Some(node) && s.is_ready());
        let is_spare = |session: &Session| {
            let member = view.members().iter().find(|member| member.address == session.address);
            let node = session.node.or(member.map(|member| member.node));
            let is_of_no_use = !session.is_given && member.is_none();
            !session.is_ready() && (is_of_no_use || node.is_some_and(is_reached))
        };
        let state = |session: &Session| EndpointState {
            address: session.address.clone(),
            node: session.node,
            is_connected: session.is_ready(),
            is_spare: is_spare(session),
            connects: session.connects,
            error: session.error.clone(),
        };
        self.list.iter().map(state).collect()
    }

    /// Whether the client can be used. If all members of the view are connected, attempts that last long are not waited
    /// for.
    pub fn readiness(&self, view: &ClusterView) -> Readiness {
        let is_reached = |m: &Member| self.list.iter().any(|s| s.node == Some(m.node) && s.is_ready());
        let is_complete = !view.members().is_empty() && view.members().iter().all(is_reached);
        let is_over = |session: &Session| session.is_tried || session.is_slow && is_complete;
        if !self.list.iter().all(is_over) {
            return Readiness::Connecting;
        }
        match self.list.iter().find(|session| session.is_ready()) {
            Some(_) => Readiness::Ready,
            None => {
                // What one has answered says more than that others can't be reached.
                let errors = || self.list.iter().filter_map(|session| session.error.as_ref());
                let answered = errors().find(|error| error.code() != ErrorCode::ClusterFailure);
                Readiness::Failed(answered.or(errors().next()).cloned().unwrap_or_else(|| {
                    Error::with_detail(ErrorCode::ClusterFailure, "no address of a data node was given")
                }))
            }
        }
    }
}
