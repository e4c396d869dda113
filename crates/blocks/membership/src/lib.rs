//! Membership: which nodes there are. So far it admits API nodes, watches them and declares them failed; the view of
//! the data nodes is given to it.
//!
//! An API node has an id and an *incarnation*, together a *session*. Each session that is admitted gets a ticket, a
//! random number that lets the same session open further connections and come back after its connections broke.
//!
//! ```text
//!          admitted             a connection broke, or four silent heartbeat periods
//!   Free ───────────▶ Connected ──────────────────────────────▶ Disconnecting   all its connections are being closed
//!    ▲                    ▲                                            │ every driver has reported
//!    │                    │                                            ▼
//!    │                    │ the same session was waiting               Closing     blocks end what can't go on without it
//!    │                    ├────────────────────────────────────────────┤ every block has confirmed
//!    │                    │ the same session comes back                   ▼
//!    │                    └──────────────────────────────────────── Closed      the grace time runs
//!    │ every block has confirmed                                       │ it is over, or a newer session wants the id,
//!    └───────────────────────── Failing ◀──────────────────────────────┘ or it has disconnected
//! ```
//! `connect` decides who may connect, `closing` holds the way down from *Connected*, `relays` passes orders on to the
//! blocks of other nodes, `heartbeat` notices silence, `api_nodes` is the table of ids. The signals are described in
//! `vinga_wire::membership`, the protocol in `docs/protocols/membership.md`.
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
mod relays;

pub use api_nodes::Phase;

use alloc::vec::Vec;
use api_nodes::{ApiNodes, Next, State};
use closing::close_order;
use relays::Relays;
use vinga_base::{Epoch, Incarnation, NodeId};
use vinga_kernel::{Block, Context, LogLevel, Scrutiny, Span, Tick};
use vinga_wire::epoch::EpochOrder;
use vinga_wire::view::{ClusterView, ViewChange};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U64, cold};

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
    api_nodes: ApiNodes,
    relays: Relays,
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
}

impl Timer {
    fn token(self) -> u64 {
        match self {
            Timer::Check => 0,
            Timer::Grace { api, grace } => grace << 16 | u64::from(api.0) << 8 | 1,
        }
    }

    fn from_token(token: u64) -> Self {
        match token & 0xff {
            0 => Timer::Check,
            _ => Timer::Grace { api: NodeId((token >> 8) as u8), grace: token >> 16 },
        }
    }
}

impl Membership {
    /// A membership without API nodes.
    pub fn new(settings: Settings) -> Self {
        Membership {
            api_nodes: ApiNodes::new(settings.api_first, settings.api_nodes_max),
            relays: Relays::default(),
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
        if sender.block() == Some(BlockNumber::Api)
            && let Some(State::Connected { .. }) = self.api_nodes.get(api)
        {
            cx.log(
                LogLevel::Warning,
                format_args!("closing API node {api}: error {reason} (signal {number})"),
            );
            self.enter_disconnecting(cx, &close_order(api, reason, number), Next::Nobody);
        } else {
            cx.reject(frame, reason);
        }
    }

    fn on_timer_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (token, _) = frame.head::<U64>()?;
        match Timer::from_token(token.get()) {
            Timer::Check => self.on_check(cx),
            Timer::Grace { api, grace } => self.on_grace_over(cx, api, grace),
        }
        Some(())
    }

    fn on_epoch_order(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<EpochOrder>()?;
        self.epoch = self.epoch.max(Epoch(order.epoch.get()));
        Some(())
    }

    /// Sends a view to the API nodes that are connected.
    fn send_view(&self, cx: &mut Context<'_>, view: &ClusterView) {
        for api in self.api_nodes.connected() {
            let receiver = Address::new(api, BlockNumber::Api, 0);
            cold::write(&mut cx.frame(SignalNumber::ViewChangedOrder, receiver), view);
        }
    }

    /// The API nodes that are there in any phase, for information tables.
    pub fn api_nodes(&self) -> impl Iterator<Item = (NodeId, Incarnation, Phase)> {
        self.api_nodes.iter()
    }
}

impl Block for Membership {
    /// Begins to look for silent API nodes.
    fn start(&mut self, cx: &mut Context<'_>) {
        self.schedule_check(cx);
    }

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        let handled = match frame.signal() {
            Some(SignalNumber::ApiConnectRequest) => self.on_api_connect_request(cx, frame),
            Some(SignalNumber::ApiDisconnectedReport) => self.on_api_disconnected_report(cx, frame),
            Some(SignalNumber::CloseConnectionOrder) => self.on_close_connection_order(cx, frame),
            Some(signal @ SignalNumber::ApiConnectionClosedOrder) => {
                self.on_relayed_order(cx, frame, signal, SignalNumber::ApiConnectionClosedConfirm)
            }
            Some(signal @ SignalNumber::ApiFailedOrder) => {
                self.on_relayed_order(cx, frame, signal, SignalNumber::ApiFailedConfirm)
            }
            Some(signal @ SignalNumber::ApiConnectedOrder) => {
                self.on_relayed_order(cx, frame, signal, SignalNumber::ApiConnectedConfirm)
            }
            Some(SignalNumber::ApiConnectedConfirm) => self.on_api_connected_confirm(cx, frame),
            Some(SignalNumber::ApiConnectionClosedConfirm) => {
                self.on_api_connection_closed_confirm(cx, frame)
            }
            Some(SignalNumber::ApiFailedConfirm) => self.on_api_failed_confirm(cx, frame),
            Some(SignalNumber::DisconnectOrder) => self.on_disconnect_order(cx, frame),
            Some(SignalNumber::HeartbeatRequest) => self.on_heartbeat_request(cx, frame),
            Some(SignalNumber::EpochOrder) => self.on_epoch_order(frame),
            Some(SignalNumber::TimerReport) => self.on_timer_report(cx, frame),
            _ => return self.reject(cx, frame, ErrorCode::UnexpectedSignal),
        };
        if handled.is_none() {
            self.reject(cx, frame, ErrorCode::MalformedSignal);
        }
    }

    /// Nothing is awaited from members that are lost; the API nodes are sent the new view.
    fn view_changed(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        for member in change.lost() {
            let (node, incarnation, view) = (member.node, member.incarnation, change.new.number());
            cx.log(
                LogLevel::Warning,
                format_args!("data node {node} (incarnation {incarnation}) is not in view {view}"),
            );
            self.relays.forget_requester(node);
            for api in self.api_nodes.ids() {
                self.go_on_without(cx, api, node);
            }
        }
        self.send_view(cx, &change.new);
    }

    fn check_invariants(&self, scrutiny: Scrutiny) {
        self.api_nodes.check_invariants(scrutiny);
        self.relays.check_invariants();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_told_by_its_token() {
        assert!(matches!(Timer::from_token(Timer::Check.token()), Timer::Check));
        let token = Timer::Grace { api: NodeId(255), grace: 1 << 40 }.token();
        assert!(
            matches!(Timer::from_token(token), Timer::Grace { api: NodeId(255), grace } if grace == 1 << 40)
        );
    }
}
