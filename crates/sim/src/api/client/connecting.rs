//! Connections to all data nodes: greeting, losing, coming back.

use super::{Call, Client, Command, LinkKey, Surroundings};
use crate::agenda::Time;
use std::collections::BTreeSet;
use vinga_base::{Incarnation, NodeId};
use vinga_wire::handshake::{HelloConfirm, HelloRequest, MAGIC, PROTOCOL_VERSION, Refusal};
use vinga_wire::membership::{ApiNodeBody, HeartbeatBody};
use vinga_wire::view::ClusterView;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, FrameWriter, SignalNumber, U32, U64, cold};

/// How far the client has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Nothing is connected; tries at this time.
    Down {
        /// When.
        until: Time,
    },
    /// Connections are being opened.
    Greeting,
    /// All are open.
    Up,
}

/// One connection.
#[derive(Default)]
pub struct Link {
    /// There is a connection.
    pub is_connected: bool,
    /// It has been admitted.
    pub is_open: bool,
    /// Bytes to be sent.
    pub out: Vec<u8>,
}

/// How long a client waits before it connects again.
const RECONNECT_PAUSE: Time = 3_000;

/// The extra connections that are opened to learn a newer layout have indexes from here down.
const EXTRA_INDEX: u16 = 7;

impl Client {
    pub(super) fn connect(&mut self) {
        self.phase = Phase::Greeting;
        self.lost.clear();
        self.extra = 0;
        self.open(LinkKey { node: self.president, index: 0 });
    }

    fn open(&mut self, key: LinkKey) {
        self.links.insert(key, Link::default());
        self.commands.push_back(Command::Open(key));
    }

    /// A connection is there: greet.
    pub fn on_opened(&mut self, key: LinkKey) {
        let greeting = HelloRequest {
            magic: MAGIC,
            version: PROTOCOL_VERSION,
            cluster: String::new(),
            node: self.node.0,
            incarnation: self.incarnation.0,
            connection: key.index,
            ticket: self.ticket,
        };
        let (own, driver) = (self.own(), Address::new(NodeId(key.node), BlockNumber::Driver, 0));
        let Some(link) = self.links.get_mut(&key) else { return };
        link.is_connected = true;
        let mut writer = FrameWriter::begin(&mut link.out, SignalNumber::HelloRequest, 0, driver, own, 0);
        cold::write(&mut writer, &greeting);
    }

    pub(super) fn on_hello_confirm(
        &mut self,
        cx: &mut Surroundings<'_>,
        key: LinkKey,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let confirm: HelloConfirm = cold::read(frame)?;
        self.ticket = confirm.ticket;
        self.links.get_mut(&key)?.is_open = true;
        if confirm.view.number() > self.view_known.number() {
            self.view = self.view.max(confirm.view.number().0);
            self.view_known = confirm.view;
        }
        let wanted: Vec<LinkKey> = self
            .view_known
            .members()
            .iter()
            .filter(|node| !self.lost.contains(&node.node.0))
            .flat_map(|node| {
                (0..node.connections.len() as u16).map(|index| LinkKey { node: node.node.0, index })
            })
            .collect();
        for key in wanted {
            if !self.links.contains_key(&key) {
                self.open(key);
            }
        }
        self.become_up_if_open(cx);
        Some(())
    }

    fn become_up_if_open(&mut self, cx: &mut Surroundings<'_>) {
        if self.phase == Phase::Greeting && self.links.values().all(|link| link.is_open) {
            self.phase = Phase::Up;
            self.heartbeat_at = cx.now;
            self.ask_outcomes(cx);
            self.watch_schema();
            for (session, step) in std::mem::take(&mut self.waiting) {
                self.submit(cx, session, step);
            }
        }
    }

    pub(super) fn on_hello_refuse(
        &mut self,
        cx: &mut Surroundings<'_>,
        key: LinkKey,
        frame: &Frame<'_>,
    ) -> Option<()> {
        let refusal: Refusal = cold::read(frame)?;
        self.close_all(cx);
        if key.index > 0 || key.node != self.president {
            // The session was closed while its other connections were being opened.
            return Some(());
        }
        match ErrorCode::from_number(refusal.code)? {
            ErrorCode::UnknownOutcome => {
                self.give_up_questions(cx);
                self.incarnation = Incarnation(self.incarnation.0 + 1);
                self.ticket = 0;
                self.transactions = 0;
                self.seen.clear();
            }
            // The data nodes still know an older session or connection.
            ErrorCode::NodeIdInUse | ErrorCode::ConnectionLost => {}
            other => {
                cx.violations.push(format!("API node {} was refused: {other}", self.node));
            }
        }
        Some(())
    }

    /// A connection broke, or could not be opened.
    pub fn on_closed(&mut self, cx: &mut Surroundings<'_>, key: LinkKey) {
        if self.links.remove(&key).is_none() {
            return;
        }
        if key.node == self.president {
            self.close_all(cx);
            return;
        }
        self.lost.insert(key.node);
        let of_node: BTreeSet<LinkKey> =
            self.links.keys().copied().filter(|other| other.node == key.node).collect();
        for other in of_node {
            self.links.remove(&other);
            self.commands.push_back(Command::Close(other));
        }
        self.fail_reads_of(key.node);
        self.fail_scans_of(key.node);
        self.answer_without_rows(cx);
        self.become_up_if_open(cx);
    }

    /// Closes everything. What was not to be committed is rolled back by that, and known to be.
    pub fn close_all(&mut self, cx: &mut Surroundings<'_>) {
        let keys: Vec<LinkKey> = std::mem::take(&mut self.links).into_keys().collect();
        self.commands.extend(keys.into_iter().map(Command::Close));
        self.phase = Phase::Down { until: cx.now + RECONNECT_PAUSE };
        self.watching.forget();
        for session in &mut self.sessions {
            session.lock = None;
        }
        for call in std::mem::take(&mut self.calls).into_values() {
            match call {
                Call::Execute | Call::Outcome { .. } => {}
                Call::Read(read) => self.fail(read.session, ErrorCode::ConnectionLost),
                Call::Schema { session, .. } | Call::Lock { session } => {
                    self.fail(session, ErrorCode::ConnectionLost);
                }
            }
        }
        self.lost.extend(self.view_known.members().iter().map(|member| member.node.0));
        self.lose_transactions(cx);
        self.lose_scans();
    }

    /// The last word on each connection to the president.
    pub fn send_disconnect(&mut self) {
        let membership = Address::new(NodeId(self.president), BlockNumber::Membership, 0);
        let body = ApiNodeBody::new(self.node, self.incarnation);
        let keys: Vec<LinkKey> =
            self.links.keys().copied().filter(|key| key.node == self.president).collect();
        for key in keys {
            if let Some(mut frame) = self.frame(key, SignalNumber::DisconnectOrder, membership, 0) {
                frame.put(&body);
            }
        }
    }

    pub(super) fn send_heartbeat(&mut self) {
        let membership = Address::new(NodeId(self.president), BlockNumber::Membership, 0);
        let key = LinkKey { node: self.president, index: 0 };
        let body = HeartbeatBody { epoch: U64::new(self.epoch_seen), view: U32::new(self.view) };
        if let Some(mut frame) = self.frame(key, SignalNumber::HeartbeatRequest, membership, 0) {
            frame.put(&body);
        }
    }

    pub(super) fn on_view_changed(&mut self, frame: &Frame<'_>) -> Option<()> {
        let view: ClusterView = cold::read(frame)?;
        if view.number() > self.view_known.number() {
            self.view = self.view.max(view.number().0);
            self.view_known = view;
        }
        Some(())
    }

    pub(super) fn on_heartbeat_confirm(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (body, _) = frame.head::<HeartbeatBody>()?;
        if body.view.get() > self.view_known.number().0 {
            self.learn_layout();
        }
        Some(())
    }

    /// Opens one more connection to the president: its confirm tells the present layout.
    pub(super) fn learn_layout(&mut self) {
        let key = LinkKey { node: self.president, index: EXTRA_INDEX - self.extra };
        let is_asking = self.links.values().any(|link| !link.is_open);
        if self.phase == Phase::Up && !is_asking && self.extra < 4 {
            self.extra += 1;
            self.open(key);
        }
    }
}
