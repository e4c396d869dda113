//! Membership: which nodes there are. So far it admits API nodes, watches them and declares them failed; the view of
//! the data nodes is given to it.
//!
//! An API node has an id and an *incarnation*, together a *session*. Each session that is admitted gets a ticket, a
//! random number that lets the same session open further connections and come back after its connections broke.
//!
//! ```text
//!          admitted             a connection broke, or four silent heartbeat periods
//!   Free ───────────▶ Connected ──────────────────────────────▶ Disconnecting   its connections are closed
//!    ▲                    ▲                                            │ every data node has reported
//!    │                    │                                            ▼
//!    │                    │ the same session was waiting               Closing   blocks end what can't go on
//!    │                    ├────────────────────────────────────────────┤ without it; all have confirmed
//!    │                    │ the same session comes back                ▼
//!    │                    └──────────────────────────────────────── Closed      the grace time runs
//!    │ every block has confirmed                                       │ it is over, or a newer session wants the id,
//!    └───────────────────────── Failing ◀──────────────────────────────┘ or it has disconnected
//! ```
//! This is what the *registrar* knows, the membership of the president: `api_nodes` is its table of ids, `connect`
//! decides who may connect, `closing` holds the way down from *Connected*. Each membership is the *host* of the
//! connections to its own node: `host` asks the registrar on behalf of the drivers and closes what is to be closed,
//! `sessions` notifies the blocks of its node of each session's stage, `heartbeat` notices silence. The two parts only
//! exchange signals, also where they are one block. The signals are described in `vinga_wire::membership`, the protocol
//! in `docs/protocols/membership.md`.
//!
//! Nobody waits for ever: data nodes that fail are no longer waited for, nor are drivers that don't report within a
//! heartbeat period; blocks of live nodes answer because they end every transaction by themselves.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod api_nodes;
mod closing;
mod connect;
mod heartbeat;
mod host;
mod joining;
mod sessions;
mod succession;
mod waiting;

pub use api_nodes::Phase;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use api_nodes::ApiNodes;
use closing::close_order;
use host::Host;
use sessions::Sessions;
use succession::{Succession, waits_for_succession};
use vinga_base::{Epoch, Incarnation, NodeId};
use vinga_kernel::{Block, Context, LogLevel, Scrutiny, Span, Tick};
use vinga_wire::epoch::EpochOrder;
use vinga_wire::membership::SessionStage;
use vinga_wire::view::{ClusterView, ViewChange};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U64, cold};
use waiting::{Admission, Wait};

/// What membership is configured with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The lowest node id that an API node may have; the ids from here to 255 are theirs.
    pub api_first: NodeId,
    /// `MaxNoOfApiConnections`: API nodes that may be there at the same time.
    pub api_nodes_max: u8,
    /// `HeartbeatIntervalDbApi`: how often something must come from an API node; after four silent periods it is
    /// closed.
    pub heartbeat_interval: Span,
    /// How long the same session of an API node may come back after its connections broke.
    pub reconnect_grace: Span,
    /// The drivers of this node's threads that read sockets.
    pub drivers: Vec<Address>,
    /// Further blocks of this node that are notified when an API node closes or fails, besides its coordinators and
    /// data managers: the dictionary and the info block of the main thread.
    pub own_blocks: Vec<Address>,
}

/// The membership block: the phases of all API nodes.
pub struct Membership {
    settings: Settings,
    /// What this membership knows as the registrar.
    api_nodes: ApiNodes,
    host: Host,
    sessions: Sessions,
    /// While this membership becomes the registrar.
    succession: Option<Succession>,
    /// This node has joined, and its blocks are being notified of the sessions that it was sent.
    is_joining: bool,
    /// Who waits until all API nodes are connected to this node.
    clients_awaited: Option<Wait>,
    /// API nodes that were waited for in vain.
    clients_unreached: BTreeMap<NodeId, Admission>,
    /// The newest epoch announced, for those who ask by heartbeat.
    epoch: Epoch,
    /// When the next look for silent API nodes is due.
    check_due: Tick,
    /// Numbers grace times, so that a timer of an earlier one is known.
    graces: u64,
}

/// What a timer of this block is for; its token has the kind in the low bits.
enum Timer {
    /// Look for silent API nodes.
    Check,
    /// This grace time of this API node is over.
    Grace { api: NodeId, grace: u64 },
    /// Look whether all API nodes are connected.
    Clients,
}

impl Timer {
    fn token(self) -> u64 {
        match self {
            Timer::Check => 0,
            Timer::Clients => 2,
            Timer::Grace { api, grace } => grace << 16 | u64::from(api.0) << 8 | 1,
        }
    }

    fn from_token(token: u64) -> Self {
        match token & 0xff {
            0 => Timer::Check,
            2 => Timer::Clients,
            _ => Timer::Grace { api: NodeId((token >> 8) as u8), grace: token >> 16 },
        }
    }
}

impl Membership {
    /// A membership without API nodes.
    pub fn new(settings: Settings) -> Self {
        Membership {
            api_nodes: ApiNodes::new(settings.api_first, settings.api_nodes_max),
            host: Host::default(),
            sessions: Sessions::default(),
            succession: None,
            is_joining: false,
            clients_awaited: None,
            clients_unreached: BTreeMap::new(),
            epoch: Epoch(0),
            check_due: Tick(0),
            graces: 0,
            settings,
        }
    }

    /// Closes an API node that broke the rules; here it is known which drivers have its connections.
    fn reject(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>, reason: ErrorCode) {
        let (sender, number) = (frame.sender(), frame.header.number.get());
        let api = sender.node();
        if sender.block() == Some(BlockNumber::Api) && self.host.connected(api).is_some() {
            cx.log(
                LogLevel::Warning,
                format_args!("closing API node {api}: error {reason} (signal {number})"),
            );
            self.close_api_node(cx, &close_order(api, reason, number));
        } else {
            cx.reject(frame, reason);
        }
    }

    fn on_timer_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (token, _) = frame.head::<U64>()?;
        match Timer::from_token(token.get()) {
            Timer::Check => self.on_check(cx),
            Timer::Grace { api, grace } => self.on_grace_over(cx, api, grace),
            Timer::Clients => self.look_at_clients(cx),
        }
        Some(())
    }

    fn on_epoch_order(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<EpochOrder>()?;
        self.epoch = self.epoch.max(Epoch(order.epoch.get()));
        Some(())
    }

    /// Sends a view to API nodes that are connected to this data node.
    fn send_view(&self, cx: &mut Context<'_>, view: &ClusterView, to: impl IntoIterator<Item = NodeId>) {
        let view = view.for_api_nodes();
        for api in to {
            let receiver = Address::new(api, BlockNumber::Api, 0);
            cold::write(&mut cx.frame(SignalNumber::ViewChangedOrder, receiver), &view);
        }
    }

    /// The API nodes that are there in any phase, for information tables. The registrar knows more than others.
    pub fn api_nodes(&self) -> impl Iterator<Item = (NodeId, Incarnation, Phase)> {
        let is_registrar = self.api_nodes.iter().next().is_some();
        self.api_nodes.iter().chain(self.sessions.iter().filter(move |_| !is_registrar))
    }

    /// When a session of an API node has begun, for information tables; `None` if this node does not know it.
    pub fn session_since(&self, api: NodeId, incarnation: Incarnation) -> Option<Tick> {
        self.sessions.since(api, incarnation)
    }

    /// The present session of an API node, and how often it was admitted, for checks; `None` if this node does not know
    /// it.
    pub fn admission(&self, api: NodeId) -> Option<(Incarnation, u32)> {
        self.sessions.admission(api)
    }

    /// Whether an API node has connections to this data node that are not being closed.
    pub fn has_connections_of(&self, api: NodeId) -> bool {
        self.host.all_connected().any(|connected| connected == api)
    }
}

impl Block for Membership {
    /// Begins to look for silent API nodes.
    fn start(&mut self, cx: &mut Context<'_>) {
        self.schedule_check(cx);
    }

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        let waits = frame.signal().is_some_and(waits_for_succession);
        if !(waits && self.postpone(frame)) {
            self.handle_signal(cx, frame);
        }
    }

    /// Nothing is awaited from members that are lost; the API nodes are sent the new view.
    fn view_changed(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        self.inform_joined(cx, change);
        for member in change.lost() {
            let (node, incarnation, view) = (member.node, member.incarnation, change.new.number());
            cx.log(
                LogLevel::Warning,
                format_args!("data node {node} (incarnation {incarnation}) is not in view {view}"),
            );
            self.sessions.forget_requester(node);
            self.succeed_without(cx, node);
            for api in self.api_nodes.ids() {
                self.go_on_without(cx, api, node);
            }
        }
        self.follow_president(cx, change);
        self.send_view(cx, &change.new, self.host.all_connected());
    }

    fn check_invariants(&self, scrutiny: Scrutiny) {
        self.api_nodes.check_invariants(scrutiny);
        self.host.check_invariants();
        if let Some(succession) = &self.succession {
            succession.check_invariants();
        }
    }
}

impl Membership {
    pub(crate) fn handle_signal(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        let handled = match frame.signal() {
            Some(SignalNumber::ApiConnectRequest) => self.on_api_connect_request(cx, frame),
            Some(SignalNumber::ApiDisconnectedReport) => self.on_api_disconnected_report(cx, frame),
            Some(SignalNumber::CloseConnectionOrder) => self.on_close_connection_order(cx, frame),
            Some(SignalNumber::ApiAdmissionRequest) => self.on_api_admission_request(cx, frame),
            Some(SignalNumber::ApiAdmissionConfirm) => self.on_api_admission_confirm(cx, frame),
            Some(SignalNumber::ApiAdmissionRefuse) => self.on_api_admission_refuse(cx, frame),
            Some(SignalNumber::ApiSessionRequest) => self.on_api_session_request(cx, frame),
            Some(SignalNumber::ApiSessionConfirm) => self.on_api_session_confirm(cx, frame),
            Some(SignalNumber::ApiDisconnectOrder) => self.on_api_disconnect_order(cx, frame),
            Some(SignalNumber::ApiConnectionsClosedReport) => {
                self.on_api_connections_closed_report(cx, frame)
            }
            Some(SignalNumber::ApiUnwantedReport) => self.on_api_unwanted_report(cx, frame),
            Some(SignalNumber::ApiLeavingReport) => self.on_api_leaving_report(cx, frame),
            Some(SignalNumber::ApiNodesRequest) => self.on_api_nodes_request(cx, frame),
            Some(SignalNumber::ApiNodesConfirm) => self.on_api_nodes_confirm(cx, frame),
            Some(SignalNumber::ApiConnectedConfirm) => {
                self.on_block_confirm(cx, frame, SessionStage::Admitted)
            }
            Some(SignalNumber::ApiConnectionClosedConfirm) => {
                self.on_block_confirm(cx, frame, SessionStage::Closed)
            }
            Some(SignalNumber::ApiFailedConfirm) => self.on_block_confirm(cx, frame, SessionStage::Failed),
            Some(SignalNumber::SessionsOrder) => self.on_sessions_order(cx, frame),
            Some(SignalNumber::DisconnectOrder) => self.on_disconnect_order(cx, frame),
            Some(SignalNumber::HeartbeatRequest) => self.on_heartbeat_request(cx, frame),
            Some(SignalNumber::EpochOrder) => self.on_epoch_order(frame),
            Some(SignalNumber::ClientsRequest) => self.on_clients_request(cx, frame),
            Some(SignalNumber::TimerReport) => self.on_timer_report(cx, frame),
            _ => return self.reject(cx, frame, ErrorCode::UnexpectedSignal),
        };
        if handled.is_none() {
            self.reject(cx, frame, ErrorCode::MalformedSignal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_what_its_timer_is_for() {
        assert!(matches!(Timer::from_token(Timer::Check.token()), Timer::Check));
        assert!(matches!(Timer::from_token(Timer::Clients.token()), Timer::Clients));
        let token = Timer::Grace { api: NodeId(255), grace: 1 << 40 }.token();
        assert!(
            matches!(Timer::from_token(token), Timer::Grace { api: NodeId(255), grace } if grace == 1 << 40)
        );
    }
}
