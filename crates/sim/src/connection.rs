//! Connections of API nodes, as the drivers of data nodes see them: greeting, closing, slow readers.
//!
//! The driver passes a greeting on to membership and reads no further until it is answered. When a connection ends, the
//! driver closes all connections of that API node on its thread, then notifies membership, which has those of other
//! threads closed. What a thread sends to an API node waits in a lane; if it gets too long, the API node is closed.

use crate::agenda::Time;
use crate::api::LinkKey;
use crate::pipe::{Payload, PipeId};
use crate::thread::{Source, ThreadId};
use crate::world::{End, Event, World};
use vinga_base::{Incarnation, NodeId};
use vinga_client_core::LinkId;
use vinga_kernel::LaneId;
use vinga_wire::handshake::{HelloConfirm, HelloRequest, MAGIC, Refusal};
use vinga_wire::membership::{
    ApiConnectConfirm, ApiConnectRefuse, ApiConnectRequest, ApiNodeBody, CloseConnectionOrder,
};
use vinga_wire::protocol::Protocol;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, FrameWriter, SignalNumber, U16, cold};

/// A connection of an API node.
pub struct Connection {
    /// The API node's place in the world, and which of its starts.
    pub api: usize,
    /// The same.
    pub start: u32,
    /// Which of its connections.
    pub link: LinkKey,
    /// The same, as its client numbers them.
    pub client_link: LinkId,
    /// The thread that serves it.
    pub thread: ThreadId,
    /// To the data node.
    pub up: PipeId,
    /// To the API node.
    pub down: PipeId,
    /// How the data node sees it.
    pub side: Side,
}

impl Connection {
    /// Whether the data node waits for its greeting.
    pub fn is_awaited(&self) -> bool {
        self.side == Side::Greeting
    }
}

/// How the data node sees a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The greeting has not come.
    Greeting,
    /// Membership is asked.
    Waiting {
        /// The API node's id, if the connection says to belong to a session that is admitted; else 0.
        of: u8,
    },
    /// It broke by itself while membership was asked. If it is confirmed nevertheless, that has to be reported; unless
    /// the other connections of its session were closed and reported since.
    Broken {
        /// As of one that waits.
        of: u8,
    },
    /// Admitted.
    Open {
        /// The API node's id.
        api: u8,
        /// Its incarnation.
        incarnation: u32,
    },
    /// No more.
    Closed,
}

impl Side {
    /// Whether nothing comes from it, nor ever will.
    pub fn has_ended(self) -> bool {
        matches!(self, Side::Broken { .. } | Side::Closed)
    }
}

/// Bytes in an API node's lane before it is closed for reading too slowly.
const LANE_BYTES_MAX: usize = 1 << 20;

impl World {
    /// An API node opens a connection; nobody answers if the data node is dead.
    pub(crate) fn open_connection(&mut self, api: usize, client_link: LinkId, node: NodeId) -> usize {
        let link = LinkKey { node: node.0, index: client_link.connection() };
        let delay = self.profile.client_delay.draw(&mut self.random);
        let at = self.now() + delay;
        let start = self.apis[api].start;
        let is_open = self.lets_in(link.node);
        let serving = self.thread_of(link.node, link.index % self.profile.socket_threads);
        let connection = self.connections.len();
        let (delay, room) = (self.profile.client_delay, 32 * 1024);
        let up = self.make_pipe(delay, room, End::Thread(serving, Source::Client(connection)));
        let down = self.make_pipe(delay, room, End::Api(api, connection));
        self.connections.push(Connection {
            api,
            start,
            link,
            client_link,
            thread: serving,
            up,
            down,
            side: if is_open { Side::Greeting } else { Side::Closed },
        });
        self.agenda.enter(at, Event::Opened { connection, is_open });
        connection
    }

    /// Bytes of a connection that has not greeted yet; says how many were consumed.
    pub(crate) fn on_greeting(&mut self, id: ThreadId, connection: usize, bytes: &[u8]) -> usize {
        let frame = match Frame::first(bytes) {
            Ok(Some(frame)) => frame,
            Ok(None) => return 0,
            Err(_) => {
                self.violations.push("a client of ours sent no frame".to_string());
                return bytes.len();
            }
        };
        assert_eq!(frame.signal(), Some(SignalNumber::HelloRequest), "clients of ours begin with a greeting");
        let hello: HelloRequest = cold::read(&frame).expect("a greeting of ours is whole");
        assert_eq!(
            (hello.magic, hello.protocol),
            (MAGIC, Protocol::own()),
            "clients of ours speak our protocol"
        );
        assert!(
            !hello.connected.contains(&self.connections[connection].link.node),
            "one address a data node"
        );
        let at = &mut self.connections[connection];
        at.side = Side::Waiting { of: if hello.ticket == 0 { 0 } else { hello.node } };
        let request = ApiConnectRequest {
            waiting: connection as u64,
            node: hello.node,
            incarnation: hello.incarnation,
            connection: hello.connection,
            ticket: hello.ticket,
            admission: hello.admission,
            lost: hello.lost,
        };
        let driver = self.threads[id.0].driver();
        let membership = Address::new(NodeId(self.threads[id.0].node), BlockNumber::Membership, 0);
        let mut order = Vec::new();
        let number = SignalNumber::ApiConnectRequest;
        cold::write(&mut FrameWriter::begin(&mut order, number, 0, membership, driver, 0), &request);
        self.threads[id.0].order(order);
        frame.length()
    }

    /// A block sends the driver of a thread a signal.
    pub(crate) fn on_driver_signal(&mut self, id: ThreadId, frame: &Frame<'_>, at: Time) {
        match frame.signal() {
            Some(SignalNumber::ApiConnectConfirm) => {
                self.on_api_connect_confirm(id, cold::read(frame).expect("membership sent it"), at);
            }
            Some(SignalNumber::ApiConnectRefuse) => {
                self.on_api_connect_refuse(&cold::read(frame).expect("membership sent it"), at);
            }
            Some(SignalNumber::CloseConnectionOrder) => {
                let (order, _) = frame.head::<CloseConnectionOrder>().expect("a block sent it");
                self.on_close_order(id, frame.sender(), *order);
            }
            Some(SignalNumber::StopNodeOrder) => {
                self.on_stop_order(id, cold::read(frame).expect("a block sent it"));
            }
            Some(SignalNumber::ShutdownOrder) => self.on_shutdown_order(self.threads[id.0].node),
            // For people.
            Some(SignalNumber::StartProgressReport) => {}
            Some(SignalNumber::NodeStartedOrder) => self.on_node_started(self.threads[id.0].node),
            _ if self.on_agreement_signal(id, frame, at) => {}
            other => self.violations.push(format!("{} sent its driver {other:?}", frame.sender())),
        }
    }

    fn on_api_connect_confirm(&mut self, id: ThreadId, confirm: ApiConnectConfirm, at: Time) {
        let connection = confirm.waiting as usize;
        let incarnation = confirm.incarnation;
        match self.connections[connection].side {
            Side::Waiting { .. } => {}
            Side::Broken { .. } => {
                // That ends the others too, one whose own end was not read yet.
                self.connections[connection].side = Side::Closed;
                self.close_on_thread(id, confirm.api);
                self.report_disconnected(id, confirm.api, incarnation);
                return;
            }
            Side::Closed => return,
            side => unreachable!("membership has answered a greeting twice: {side:?}"),
        }
        if self.has_older(connection, confirm.api) {
            let (code, detail) =
                (ErrorCode::NodeIdInUse as u16, "the older one is not closed yet".to_string());
            let refuse = ApiConnectRefuse { waiting: confirm.waiting, code, detail };
            self.on_api_connect_refuse(&refuse, at);
            return;
        }
        self.connections[connection].side = Side::Open { api: confirm.api, incarnation };
        self.set_routes(self.threads[id.0].node, confirm.api);
        self.plan_break_again(self.connections[connection].api);
        let start = self.starts_of_nodes[usize::from(self.threads[id.0].node) - 1];
        let hello = HelloConfirm {
            protocol: Protocol::own(),
            node: self.threads[id.0].node,
            incarnation: start.incarnation,
            cluster_incarnation: start.cluster_incarnation,
            database: start.database,
            api: confirm.api,
            ticket: confirm.ticket,
            view: confirm.view,
            api_incarnation: confirm.incarnation,
            admission: confirm.admission,
        };
        let mut bytes = Vec::new();
        let (driver, client) =
            (self.threads[id.0].driver(), Address::new(NodeId(confirm.api), BlockNumber::Api, 0));
        let number = SignalNumber::HelloConfirm;
        cold::write(&mut FrameWriter::begin(&mut bytes, number, 0, client, driver, 0), &hello);
        self.put_split(self.connections[connection].down, at, Payload::Bytes(bytes));
    }

    fn on_api_connect_refuse(&mut self, refuse: &ApiConnectRefuse, at: Time) {
        let connection = refuse.waiting as usize;
        let side = std::mem::replace(&mut self.connections[connection].side, Side::Closed);
        if !matches!(side, Side::Waiting { .. }) {
            return;
        }
        let refusal = Refusal { request: 0, code: refuse.code, detail: refuse.detail.clone() };
        let mut bytes = Vec::new();
        let number = SignalNumber::HelloRefuse;
        cold::write(
            &mut FrameWriter::begin(&mut bytes, number, 0, Address::NONE, Address::NONE, 0),
            &refusal,
        );
        let down = self.connections[connection].down;
        self.put(down, at, Payload::Bytes(bytes));
        self.put(down, at, Payload::End);
    }

    /// Which way threads of a node send to an API node: by a connection of their own, else by one that another thread
    /// has.
    fn set_routes(&mut self, node: u8, api: u8) {
        let threads: Vec<ThreadId> = (0..self.profile.threads).map(|i| self.thread_of(node, i)).collect();
        let with = threads.iter().copied().find(|&thread| self.open_connection_of(thread, api).is_some());
        for thread in threads {
            let lane = match with {
                None => None,
                Some(_) if self.open_connection_of(thread, api).is_some() => {
                    Some(self.threads[thread.0].api_lane(api))
                }
                Some(with) => Some(LaneId::thread(self.threads[with.0].index)),
            };
            self.threads[thread.0].executor.outbox().routes.set_node(NodeId(api), lane);
        }
    }

    /// Whether the driver has a connection of the same index that counts as open: the API node has lost it, and what it
    /// sent by it may not all be read.
    fn has_older(&self, connection: usize, api: u8) -> bool {
        let (thread, link) = (self.connections[connection].thread, self.connections[connection].link);
        self.connections.iter().any(|older| {
            let is_open = matches!(older.side, Side::Open { api: of, .. } if of == api);
            is_open && older.thread == thread && older.link == link
        })
    }

    /// The first open connection of an API node on a thread.
    fn open_connection_of(&self, thread: ThreadId, api: u8) -> Option<usize> {
        self.connections.iter().position(|connection| {
            connection.thread == thread && matches!(connection.side, Side::Open { api: of, .. } if of == api)
        })
    }

    /// A connection has ended: by the API node, or because it broke.
    pub(crate) fn on_connection_end(&mut self, id: ThreadId, pipe: PipeId) {
        let End::Thread(_, Source::Client(connection)) = self.ends[pipe.0] else {
            unreachable!("only connections of API nodes end")
        };
        match self.connections[connection].side {
            Side::Open { api, incarnation } => {
                self.close_on_thread(id, api);
                self.report_disconnected(id, api, incarnation);
            }
            Side::Waiting { of } => self.connections[connection].side = Side::Broken { of },
            Side::Greeting => self.connections[connection].side = Side::Closed,
            Side::Broken { .. } | Side::Closed => {}
        }
        self.threads[id.0].drop_inbox(pipe);
    }

    /// What an API node sent breaks a rule.
    pub(crate) fn on_client_rejected(&mut self, id: ThreadId, connection: usize) {
        if let Side::Open { api, incarnation } = self.connections[connection].side {
            self.close_on_thread(id, api);
            self.report_disconnected(id, api, incarnation);
        }
    }

    /// A block, or membership, wants an API node closed.
    fn on_close_order(&mut self, id: ThreadId, sender: Address, order: CloseConnectionOrder) {
        self.note(|| format!("{sender} wants API node {} closed: {}", order.api, order.reason));
        let own = self.open_connection_of(id, order.api).map(|connection| self.connections[connection].side);
        match own {
            Some(Side::Open { api, incarnation }) => {
                self.close_on_thread(id, api);
                self.report_disconnected(id, api, incarnation);
            }
            _ if sender.block() != Some(BlockNumber::Membership) => {
                let order = CloseConnectionOrder { ..order };
                self.notify_membership(id, SignalNumber::CloseConnectionOrder, |frame| {
                    frame.put(&order);
                });
            }
            _ => {}
        }
    }

    /// The driver closes all connections of an API node on its thread, those that wait to be admitted to its session
    /// too.
    fn close_on_thread(&mut self, id: ThreadId, api: u8) {
        for connection in 0..self.connections.len() {
            let it = &mut self.connections[connection];
            let is_broken = matches!(it.side, Side::Broken { .. });
            let is_of = matches!(
                it.side,
                Side::Open { api: of, .. } | Side::Waiting { of } | Side::Broken { of } if of == api
            );
            if !is_of || it.thread != id {
                continue;
            }
            it.side = Side::Closed;
            if is_broken {
                continue;
            }
            let (up, down) = (it.up, it.down);
            self.pipes[up.0].shatter(&mut self.random);
            self.threads[id.0].drop_inbox(up);
            self.break_pipe(down);
        }
        // Nothing is sent by a connection of another thread instead, which will be closed, too: what is lost with this
        // one would be overtaken.
        let lane = self.threads[id.0].api_lane(api);
        let outbox = self.threads[id.0].executor.outbox();
        outbox.lane_mut(lane).clear();
        outbox.routes.set_node(NodeId(api), None);
    }

    /// A pipe breaks; its end is noticed behind what still arrives.
    pub(crate) fn break_pipe(&mut self, pipe: PipeId) {
        if self.pipes[pipe.0].is_broken() {
            return;
        }
        self.pipes[pipe.0].shatter(&mut self.random);
        let delay = self.profile.client_delay.draw(&mut self.random);
        let at = self.pipes[pipe.0].drained_at(self.now()) + delay;
        self.agenda.enter(at, Event::Deliver(pipe, Payload::End));
    }

    fn report_disconnected(&mut self, id: ThreadId, api: u8, incarnation: u32) {
        let body = ApiNodeBody::new(NodeId(api), Incarnation(incarnation));
        self.notify_membership(id, SignalNumber::ApiDisconnectedReport, |frame| {
            frame.put(&body);
        });
    }

    fn notify_membership(
        &mut self,
        id: ThreadId,
        signal: SignalNumber,
        write: impl FnOnce(&mut FrameWriter<'_>),
    ) {
        self.notify_block(id, BlockNumber::Membership, signal, write);
    }

    /// The driver of a thread sends a block of its node a signal.
    pub(crate) fn notify_block(
        &mut self,
        id: ThreadId,
        block: BlockNumber,
        signal: SignalNumber,
        write: impl FnOnce(&mut FrameWriter<'_>),
    ) {
        let receiver = Address::new(NodeId(self.threads[id.0].node), block, 0);
        let driver = self.threads[id.0].driver();
        let mut order = Vec::new();
        write(&mut FrameWriter::begin(&mut order, signal, 0, receiver, driver, 0));
        self.threads[id.0].order(order);
        self.wake_thread(id, self.now());
    }

    /// Moves what waits for an API node into its connection.
    pub(crate) fn drain_to_api(&mut self, id: ThreadId, api: u8, lane: LaneId, at: Time) {
        if self.threads[id.0].executor.outbox().lane(lane).is_empty()
            || self.take_stop_answer(id, api, lane)
            || self.take_reorganize_answer(id, api, lane)
        {
            return;
        }
        let Some(connection) = self.open_connection_of(id, api) else {
            self.threads[id.0].executor.outbox().lane_mut(lane).clear();
            return;
        };
        if self.threads[id.0].lease < self.clock_of(id).at(at) {
            // Others may have gone on without this node: what it has found may be out of date.
            return;
        }
        let down = self.connections[connection].down;
        let room = self.pipes[down.0].room();
        let waiting = self.threads[id.0].executor.outbox().lane_mut(lane);
        let taken: Vec<u8> = waiting.drain(..waiting.len().min(room)).collect();
        let left = waiting.len();
        if !taken.is_empty() {
            self.put_split(down, at, Payload::Bytes(taken));
        }
        if left > LANE_BYTES_MAX {
            self.note(|| format!("API node {api} reads too slowly"));
            let order = CloseConnectionOrder {
                api,
                unused: 0,
                reason: U16::new(ErrorCode::SlowReader as u16),
                signal: U16::ZERO,
            };
            let driver = self.threads[id.0].driver();
            self.on_close_order(id, driver, order);
        } else if left > 0 {
            self.wake_thread(id, at + 100);
        }
    }
}
