//! What a thread handles beside the frames for its blocks: messages of other threads, orders of blocks and of other
//! drivers, which stand in the driver's lane, and what blocks ask of files.

use super::{Reads, Worker};
use crate::api_nodes::Closing;
use crate::arbitration::Question;
use crate::formation::Linked;
use crate::listener::ListenerMessage;
use crate::sockets::LastWords;
use crate::stop_request::StopCause;
use crate::switchboard::Message;
use std::mem;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::{Host, LaneId, Origin, Tick};
use vinga_wire::agreement::{LeaseOrder, LinkBody};
use vinga_wire::file::StopNodeOrder;
use vinga_wire::frame::Frames;
use vinga_wire::membership::{ApiConnectConfirm, ApiNodeBody, CloseConnectionOrder};
use vinga_wire::restart::JoiningReport;
use vinga_wire::shutdown::ShutdownOrder;
use vinga_wire::view::ClusterView;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, FrameWriter, SignalNumber, cold};

/// In place of an incarnation: between drivers only the node id matters, which is not reused before they are done. The
/// first is the marker behind the frames that were read, the second the same on its way back behind the answers.
const MARKER: Incarnation = Incarnation(0);
const MARKER_BACK: Incarnation = Incarnation(1);

impl<H: Host> Worker<H> {
    pub(super) fn read_message(&mut self, message: Message, now: u64) {
        match message {
            Message::Ring { from, consumer } => self.rings.connect(from, consumer),
            Message::Frames(frames) => self.feed_own(&frames),
            Message::Adopt(adoption) => {
                self.executor.readmit(adoption.api);
                self.sockets.adopt(*adoption, &mut self.executor, &self.poller, &self.switchboard, now);
            }
            Message::Linked(linked) => self.report_linked(*linked),
            Message::Route { api, thread } => {
                self.executor.readmit(api);
                self.executor.outbox().routes.set_node(api, Some(LaneId::thread(thread)));
            }
            Message::Close { api, reason } => self.close(api, reason, now),
            Message::AdoptView(view) => self.adopt_view(&view),
            Message::Closed { api } => self.report_closed(api),
            Message::OpenOutlet(outlet) => {
                self.outlets.open(*outlet, &self.poller, &self.switchboard, &self.statistics);
            }
            Message::CloseOutlet { owner, api } => {
                self.outlets.close(owner, api, &self.poller, &self.statistics);
            }
            Message::FileAnswers(answers) => {
                self.file_tasks -= answers.len();
                answers.into_iter().for_each(|answer| self.executor.answer_file(answer));
            }
            Message::ComeToRest(report) => {
                self.reads = Reads::Links;
                self.rest_awaited = Some((now, report));
            }
            Message::Stop { is_at_rest } => {
                self.reads = Reads::Nothing;
                self.stops_since = Some(now);
                self.is_at_rest = is_at_rest;
            }
        }
    }

    /// This thread's part in closing an API node, or the links to a data node; see [`crate::api_nodes`].
    fn close(&mut self, api: NodeId, reason: Option<ErrorCode>, now: u64) {
        if let Some(data_nodes) = &mut self.data_nodes
            && data_nodes.note_closed(api, now)
        {
            let why = format!("the links to data node {api} were closed: {}", ErrorCode::NotInTheView);
            log::error!(target: "formation", "the node can't go on: {why}");
            self.switchboard.stop.fail(why, Some(ErrorCode::NotInTheView));
        }
        if self.disconnect(api, reason.map(LastWords::from)) {
            let own = self.switchboard.driver(self.index);
            for thread in (0..self.switchboard.threads.len() as u16).filter(|&thread| thread != self.index) {
                let lane = self.executor.outbox().lane_mut(LaneId::thread(thread));
                write_disconnected(lane, self.switchboard.driver(thread), own, api, MARKER);
            }
        }
        self.switchboard.note_closing_step(api);
    }

    /// Closes the connection to an API node, if there is one, and forgets the route to it; returns whether there was
    /// one.
    pub(super) fn disconnect(&mut self, api: NodeId, reason: Option<LastWords>) -> bool {
        let outbox = self.executor.outbox();
        outbox.routes.set_node(api, None);
        let had_connection =
            self.sockets.close(api, reason, outbox, &self.poller, &self.switchboard, &self.statistics);
        if had_connection {
            self.statistics.connections_closed.add(1);
        }
        had_connection
    }

    /// Notifies Membership that all connections of an API node are closed. Its earlier orders are carried out before: a
    /// connection that it has confirmed is one of those that the report is about.
    fn report_closed(&mut self, api: NodeId) {
        self.carry_out_orders();
        let incarnation = self.switchboard.finish_closing(api);
        if let Some(data_nodes) = &mut self.data_nodes
            && data_nodes.is_linked(api)
        {
            data_nodes.note_drained(api);
            return self.have_views_adopted();
        }
        let membership = Address::new(self.switchboard.node, BlockNumber::Membership, 0);
        let mut frame = Vec::new();
        write_disconnected(&mut frame, membership, self.switchboard.driver(self.index), api, incarnation);
        self.feed_own(&frame);
    }

    /// Carries out the orders of blocks, and of the drivers of other threads, to this driver; returns whether there
    /// were any.
    pub(super) fn carry_out_orders(&mut self) -> bool {
        let mut has_carried_out = false;
        while !self.executor.outbox().lane(LaneId::DRIVER).is_empty() {
            let mut orders = mem::take(&mut self.orders);
            mem::swap(&mut orders, self.executor.outbox().lane_mut(LaneId::DRIVER));
            for frame in Frames(&orders) {
                self.obey(&frame);
            }
            orders.clear();
            self.orders = orders;
            has_carried_out = true;
        }
        has_carried_out
    }

    /// Hands over what the blocks ask of files.
    pub(super) fn hand_over_file_tasks(&mut self) {
        if self.executor.has_file_requests() {
            let requests = self.executor.take_file_requests();
            self.file_tasks += requests.len();
            self.files.submit(self.index, requests);
        }
    }

    fn obey(&mut self, frame: &Frame<'_>) {
        match frame.signal() {
            Some(SignalNumber::CloseConnectionOrder) => {
                let (order, _) = frame.head::<CloseConnectionOrder>().expect("blocks send whole orders");
                let code = ErrorCode::from_number(order.reason.get()).unwrap_or(ErrorCode::InternalError);
                let (api, signal) = (NodeId(order.api), order.signal.get());
                let closing = self.sockets.refuse(api, code, signal, &self.switchboard);
                let is_of_block = frame.sender().block() != Some(BlockNumber::Membership);
                if closing == Closing::NotConnected && is_of_block {
                    self.forward_to_membership(*order);
                }
            }
            Some(SignalNumber::ApiDisconnectedReport) => {
                let (body, _) = frame.head::<ApiNodeBody>().expect("drivers send whole markers");
                let api = NodeId(body.api);
                match Incarnation(body.incarnation.get()) {
                    MARKER => {
                        let own = self.switchboard.driver(self.index);
                        let lane = self.executor.outbox().buffer_for(frame.sender());
                        write_disconnected(lane, frame.sender(), own, api, MARKER_BACK);
                    }
                    _ => self.switchboard.note_closing_step(api),
                }
            }
            Some(SignalNumber::ApiConnectConfirm) => {
                let confirm: ApiConnectConfirm = cold::read(frame).expect("Membership sends whole confirms");
                let (api, incarnation) = (NodeId(confirm.api), Incarnation(confirm.incarnation));
                let admission = self.switchboard.admit(api, incarnation);
                self.switchboard.listener.post(ListenerMessage::Confirm { confirm, admission });
            }
            Some(SignalNumber::ApiConnectRefuse) => {
                let refuse = cold::read(frame).expect("Membership sends whole refusals");
                self.switchboard.listener.post(ListenerMessage::Refuse(refuse));
            }
            Some(SignalNumber::StartProgressReport) => {
                self.switchboard.stop.note_progress(cold::read(frame).expect("blocks send whole reports"));
            }
            Some(SignalNumber::NodeStartedOrder) => {
                self.switchboard.stop.note_started(cold::read(frame).expect("blocks send whole orders"));
            }
            Some(SignalNumber::NodeStopConfirm) => self.switchboard.stop.note_on_disk(),
            Some(SignalNumber::LeaseOrder) => {
                let (order, _) = frame.head::<LeaseOrder>().expect("agreement sends whole orders");
                self.sockets.lease = Tick(order.until.get());
            }
            Some(SignalNumber::LinkCloseOrder) => {
                let link: LinkBody = cold::read(frame).expect("agreement sends whole orders");
                self.switchboard.close_links(link.node, link.incarnation);
            }
            Some(SignalNumber::ViewInstallOrder) => {
                let view: ClusterView = cold::read(frame).expect("agreement sends whole views");
                self.switchboard.listener.post(ListenerMessage::Installed(view.clone().into()));
                let now = self.clock.nanos();
                let data_nodes = self.data_nodes.as_mut();
                let data_nodes = data_nodes.expect("agreement and the other data nodes are on one thread");
                for (node, incarnation) in data_nodes.install(view, now) {
                    self.switchboard.close_links(node, incarnation);
                }
                self.have_views_adopted();
            }
            Some(SignalNumber::ArbitrationRequest) => {
                self.ask_arbitrators(Question::Decide(
                    cold::read(frame).expect("agreement sends whole requests"),
                ));
            }
            Some(SignalNumber::ArbitratorCheckRequest) => {
                self.ask_arbitrators(Question::Check(
                    cold::read(frame).expect("agreement sends whole requests"),
                ));
            }
            Some(SignalNumber::ArbitratorChooseRequest) => {
                self.ask_arbitrators(Question::Choose(
                    cold::read(frame).expect("agreement sends whole requests"),
                ));
            }
            Some(SignalNumber::ShutdownOrder) => {
                let ShutdownOrder { starts_again } = cold::read(frame).expect("blocks send whole orders");
                let cause = if starts_again { StopCause::AskedToStartAgain } else { StopCause::Asked };
                self.switchboard.stop.make(cause("a client"));
            }
            Some(SignalNumber::StopNodeOrder) => {
                let StopNodeOrder { reason, error } = cold::read(frame).expect("blocks send whole orders");
                let number = format!("(error {error})");
                let is_named = error == 0 || reason.contains(&number);
                let reason = if is_named { reason } else { format!("{reason} {number}") };
                log::error!(target: &frame.sender().to_string(), "the node can't go on: {reason}");
                self.switchboard.stop.fail(reason, ErrorCode::from_number(error));
            }
            signal => panic!("{} sent {signal:?} to a driver", frame.sender()),
        }
    }

    /// Has a question of agreement answered by another thread.
    fn ask_arbitrators(&self, question: Question) {
        match &self.arbitration {
            // Its reader ends when this thread has ended.
            Some(questions) => drop(questions.send(question)),
            // Without an answer agreement stops the node, if it has to know.
            None => log::error!(
                target: "arbitration",
                "there is an arbitrator, but this node is configured without management nodes"
            ),
        }
    }

    /// Reports to this node's blocks that all links to a data node are open that is no member.
    fn report_linked(&mut self, linked: Linked) {
        let data_nodes = self.data_nodes.as_mut().expect("it has other data nodes");
        // What is still to be said of links that it had before must not be taken for these.
        let closed = data_nodes.take_closed_of(linked.member.node);
        let member = data_nodes.note_linked(linked);
        let is_wrong = member.as_ref().is_some_and(|member| data_nodes.is_wrong(member));
        self.report_closed_to(&closed);
        let Some(member) = member else { return };
        let own = self.switchboard.driver(self.index);
        let (node, incarnation) = member.identity();
        if is_wrong {
            return self.switchboard.close_links(node, incarnation);
        }
        let mut frames = Vec::new();
        let agreement = Address::new(self.switchboard.node, BlockNumber::Agreement, 0);
        cold::write(
            &mut FrameWriter::begin(&mut frames, SignalNumber::LinkOpenedReport, 0, agreement, own, 0),
            &LinkBody { node, incarnation, is_gone: false },
        );
        let restart = Address::new(self.switchboard.node, BlockNumber::Restart, 0);
        if self.executor.outbox().routes.thread_of(restart).is_some() {
            cold::write(
                &mut FrameWriter::begin(&mut frames, SignalNumber::JoiningReport, 0, restart, own, 0),
                &JoiningReport { member },
            );
        }
        self.feed_own(&frames);
    }

    /// Reports to agreement which links are closed; returns whether there were any.
    pub(super) fn report_closed_links(&mut self, now: u64) -> bool {
        let Some(data_nodes) = &mut self.data_nodes else { return false };
        let closed = data_nodes.take_closed(now);
        self.report_closed_to(&closed);
        !closed.is_empty()
    }

    fn report_closed_to(&mut self, closed: &[(NodeId, Incarnation, bool)]) {
        for &(node, incarnation, is_gone) in closed {
            let agreement = Address::new(self.switchboard.node, BlockNumber::Agreement, 0);
            let own = self.switchboard.driver(self.index);
            let mut frame = Vec::new();
            cold::write(
                &mut FrameWriter::begin(&mut frame, SignalNumber::LinkClosedReport, 0, agreement, own, 0),
                &LinkBody { node, incarnation, is_gone },
            );
            self.feed_own(&frame);
        }
    }

    /// Has all threads adopt the views of which nothing of lost members can arrive any more.
    fn have_views_adopted(&mut self) {
        let Some(data_nodes) = &mut self.data_nodes else { return };
        while let Some(view) = data_nodes.take_adoptable() {
            for inbox in &self.switchboard.threads {
                inbox.post(Message::AdoptView(view.clone()));
            }
            // Links that it accepts from now on come to a thread behind the view.
            self.switchboard.listener.post(ListenerMessage::View(view));
        }
    }

    fn adopt_view(&mut self, view: &ClusterView) {
        // Any block of this thread.
        let receiver = Address::new(self.switchboard.node, BlockNumber::Info, self.index);
        let own = self.switchboard.driver(self.index);
        let mut frame = Vec::new();
        let number = SignalNumber::ViewChangedOrder;
        cold::write(
            &mut FrameWriter::begin(&mut frame, number, view.number().0 as u8, receiver, own, 0),
            view,
        );
        self.feed_own(&frame);
    }

    /// A block wants an API node closed that has no connection to this data node. The main thread receives that before
    /// anything that this thread sends from now on, or has not sent yet: so the order is about the session that
    /// Membership knows then, and about no later one.
    fn forward_to_membership(&mut self, order: CloseConnectionOrder) {
        let membership = Address::new(self.switchboard.node, BlockNumber::Membership, 0);
        let mut frame = Vec::new();
        let own = self.switchboard.driver(self.index);
        FrameWriter::begin(&mut frame, SignalNumber::CloseConnectionOrder, 0, membership, own, 0).put(&order);
        if self.index == self.switchboard.main_thread {
            self.feed_own(&frame);
        } else {
            self.switchboard.threads[usize::from(self.switchboard.main_thread)].post(Message::Frames(frame));
        }
    }

    /// Frames that this node has made itself.
    fn feed_own(&mut self, frames: &[u8]) {
        let handled = self.executor.feed(frames, Origin::Node);
        assert!(handled == Ok(frames.len()), "our own frames are whole");
    }
}

/// Notifies `receiver` that all connections of an API node are closed (Membership), or that `sender`'s is (drivers).
fn write_disconnected(
    out: &mut Vec<u8>,
    receiver: Address,
    sender: Address,
    api: NodeId,
    incarnation: Incarnation,
) {
    FrameWriter::begin(out, SignalNumber::ApiDisconnectedReport, 0, receiver, sender, 0)
        .put(&ApiNodeBody::new(api, incarnation));
}
