//! Data nodes that die and join again, with the views that they agree on themselves: the part of a driver in that.

use super::*;
use vinga_wire::agreement::LinkBody;
use vinga_wire::restart::JoiningReport;
use vinga_wire::shutdown::{ShutdownRequest, ShutdownTerms};
use vinga_wire::view::{Member, MemberState};

/// The view that agreement has installed, if that is what a driver is sent.
pub fn installed(frame: &Frame<'_>) -> Option<ClusterView> {
    let is_installed = frame.signal() == Some(SignalNumber::ViewInstallOrder);
    is_installed.then(|| cold::read(frame).expect("agreement sends whole views"))
}

impl Cluster {
    /// The driver of a node sends a block of it something.
    fn feed_from_driver(
        &mut self,
        node: u8,
        to: BlockNumber,
        signal: SignalNumber,
        body: impl FnOnce(&mut FrameWriter<'_>),
    ) {
        let (to, from) =
            (Address::new(NodeId(node), to, 0), Address::new(NodeId(node), BlockNumber::Driver, 0));
        let mut bytes = vec![];
        body(&mut FrameWriter::begin(&mut bytes, signal, 0, to, from, 0));
        let executor = self.executors.get_mut(&node).expect("a live node");
        executor.begin_turn(self.now);
        executor.feed(&bytes, Origin::Node).expect("our own");
    }

    /// The threads of a node adopt a view that it has installed.
    pub(super) fn adopt_at(&mut self, node: u8, view: ClusterView) {
        let Some(executor) = self.executors.get_mut(&node) else { return };
        let to = Address::new(NodeId(node), BlockNumber::Membership, 0);
        let number = view.number().0 as u8;
        let mut bytes = vec![];
        cold::write(
            &mut FrameWriter::begin(&mut bytes, SignalNumber::ViewChangedOrder, number, to, to, 0),
            &view,
        );
        executor.feed(&bytes, Origin::Node).expect("our own");
        if view.number() > self.view.number() {
            self.view = Arc::new(view);
        }
    }

    /// All other nodes have ways to this one that is new.
    pub(super) fn connect_to(&mut self, node: u8) {
        for (other, executor) in &mut self.executors {
            let lanes = self.lanes.get_mut(other).expect("each node has some");
            let lane = match lanes.iter().find(|(to, _)| *to == node) {
                Some(&(_, lane)) => lane,
                None => {
                    let lane = executor.outbox().open_lane(0);
                    lanes.insert(0, (node, lane));
                    lane
                }
            };
            executor.outbox().lane_mut(lane).clear();
            executor.outbox().routes.set_node(NodeId(node), Some(lane));
        }
    }

    /// The process of a data node ends, as the system says to the others.
    pub fn end_process(&mut self, node: u8) {
        self.executors.remove(&node);
        self.held.forget(NodeId(node));
        let incarnation = self.settings[&node].incarnation;
        let link = LinkBody { node: NodeId(node), incarnation, is_gone: true };
        for other in self.live_nodes() {
            let executor = self.executors.get_mut(&other).expect("a live node");
            executor.outbox().routes.set_node(NodeId(node), None);
            self.feed_from_driver(other, BlockNumber::Agreement, SignalNumber::LinkClosedReport, |w| {
                cold::write(w, &link);
            });
        }
    }

    /// A data node dies, and the others agree on that.
    pub fn die(&mut self, node: u8) {
        self.end_process(node);
        self.advance(Span::from_millis(500));
        assert!(!self.view.has(NodeId(node)), "they agree that it has failed");
    }

    /// A data node that has died starts again, with nothing, and is connected.
    pub fn join(&mut self, node: u8) {
        self.join_as(node, |_| {});
    }

    /// The same, with something else said of it.
    pub fn join_as(&mut self, node: u8, differs: impl FnOnce(&mut Member)) {
        let settings = self.settings.get_mut(&node).expect("it was there");
        settings.incarnation.0 += 1;
        settings.epoch = Epoch(1);
        let mut member = settings.member();
        differs(&mut member);
        self.outcomes.retain(|coordinator, _| coordinator.node() != NodeId(node));
        let others = self.executors.keys().map(|&other| NodeId(other)).collect::<Vec<_>>();
        let nobody = Arc::new(ClusterView::default());
        let pages = self.pages.get(&node).copied().unwrap_or(PAGES);
        let own = &self.settings[&node];
        let (executor, lanes) = make_node(own, &nobody, others.iter().copied(), pages, self.bug);
        self.connect_to(node);
        self.executors.insert(node, executor);
        self.lanes.insert(node, lanes);
        for other in others {
            let incarnation = self.settings[&other.0].incarnation;
            let here = LinkBody { node: other, incarnation, is_gone: false };
            self.feed_from_driver(node, BlockNumber::Agreement, SignalNumber::LinkOpenedReport, |w| {
                cold::write(w, &here);
            });
            let there = LinkBody { node: NodeId(node), incarnation: member.incarnation, is_gone: false };
            self.feed_from_driver(other.0, BlockNumber::Agreement, SignalNumber::LinkOpenedReport, |w| {
                cold::write(w, &there);
            });
            let joins = JoiningReport { member: member.clone() };
            self.feed_from_driver(other.0, BlockNumber::Restart, SignalNumber::JoiningReport, |w| {
                cold::write(w, &joins);
            });
        }
        self.run();
    }

    /// A data node is to stop, and to leave before, for so many milliseconds at most.
    pub fn ask_to_leave(&mut self, node: u8, wait: u32) {
        let terms = ShutdownTerms::Unnoticed { wait };
        let info = Address::new(NodeId(node), BlockNumber::Info, 0);
        self.send(SignalNumber::ShutdownRequest, info, |w| {
            cold::write(w, &ShutdownRequest { request: 1, terms, starts_again: false });
        });
    }

    /// How far a member has come, in the newest view.
    pub fn state_of(&self, node: u8) -> Option<MemberState> {
        self.view.member(NodeId(node)).map(|member| member.state)
    }
}
