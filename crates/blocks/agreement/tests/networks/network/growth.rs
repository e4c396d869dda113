//! Data nodes that start again, drivers that report their links, and a block that asks for changes of the view.

use super::{Arrival, Network, address};
use std::collections::BTreeMap;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::InjectedBug;
use vinga_kernel::testkit::Sent;
use vinga_wire::agreement::{
    LinkBody, ViewAttempt, ViewChangeRefusal, ViewChangeRequest, ViewPrepareRequest, WantedChange,
};
use vinga_wire::shutdown::ShutdownCheck;
use vinga_wire::view::{ClusterView, Member, MemberState};
use vinga_wire::{Address, BlockNumber, SignalNumber, cold};

impl Network {
    /// All nodes break a rule from now on, if one is given.
    pub fn inject_bug(&mut self, bug: Option<InjectedBug>) {
        self.bug = bug;
        self.nodes.values_mut().for_each(|node| node.harness.inject_bug(bug));
    }

    /// What is reported of the links to a node.
    pub(super) fn link_to(&self, node: u8) -> LinkBody {
        LinkBody { node: NodeId(node), incarnation: self.nodes[&node].incarnation, is_gone: false }
    }

    /// The view that a node has installed last.
    pub fn view(&self, node: u8) -> &ClusterView {
        &self.nodes[&node].view
    }

    /// The president, if there is one that runs and that nobody has left out.
    pub fn president(&self) -> Option<u8> {
        let newest = self.views.values().next_back()?;
        let president = newest.president()?.0;
        let node = self.nodes.get(&president)?;
        let runs = node.is_alive && node.stalled_until <= self.now;
        (runs && node.view.number() == newest.number()).then_some(president)
    }

    /// A node that has ended, or one that has never been there, starts, and has no view. It has no links before they
    /// are connected.
    pub fn start_again(&mut self, id: u8) {
        let last = self.nodes.get(&id);
        assert!(last.is_none_or(|node| !node.is_alive), "it has ended");
        let incarnation = Incarnation(last.map_or(1, |node| node.incarnation.0 + 1));
        // The links to the one before were closed, or will never be: whoever still knows it as a member does not let
        // this one in.
        let others: Vec<u8> = self.ids().into_iter().filter(|&other| other != id).collect();
        for other in others {
            if !self.knows_earlier(other, id, incarnation) {
                for pair in [(id, other), (other, id)] {
                    self.closed.remove(&pair);
                    self.broken.remove(&pair);
                    let queue = self.arrivals.entry(pair).or_default();
                    queue.retain(|(_, arrival)| matches!(arrival, Arrival::LinkClosed(_)));
                }
            }
        }
        self.arrivals.remove(&(0, id));
        let seed = self.random.u64(..);
        self.start(seed, id, incarnation, ClusterView::default());
    }

    fn knows_earlier(&self, node: u8, id: u8, incarnation: Incarnation) -> bool {
        let known = self.nodes[&node].view.member(NodeId(id));
        known.is_some_and(|member| member.incarnation != incarnation)
    }

    /// The links of a node without a view to these are made: all of them say so.
    pub fn connect(&mut self, id: u8, others: &[u8]) {
        for &other in others.iter().filter(|&&other| other != id) {
            let is_cut = [(id, other), (other, id)].iter().any(|pair| self.cut.contains(pair));
            let knows_earlier = self.knows_earlier(other, id, self.nodes[&id].incarnation);
            if self.nodes[&other].is_alive && !is_cut && !knows_earlier {
                for (from, to) in [(id, other), (other, id)] {
                    let link = self.link_to(from);
                    self.put(from, to, Arrival::LinkOpened(link));
                }
            }
        }
    }

    /// What a node says of itself when it is to join.
    pub fn joining(&self, id: u8, group: u16) -> WantedChange {
        let incarnation = self.nodes[&id].incarnation;
        WantedChange::Join(Member::started(NodeId(id), incarnation, group, self.data_managers, 1))
    }

    /// The step after that in which a node is, in the view of another one. It starts when all drivers are in the view
    /// in which it is being copied to.
    pub fn next_step(&self, node: u8, id: u8) -> Option<WantedChange> {
        let member = self.view(node).member(NodeId(id))?;
        match member.state {
            MemberState::Starting => Some(WantedChange::Copy(member.node, member.incarnation)),
            MemberState::Copying => {
                let is_known = self.all_know_view_of(node);
                is_known.then_some(WantedChange::Start(member.node, member.incarnation))
            }
            MemberState::Started | MemberState::Leaving | MemberState::LeftOut => None,
        }
    }

    /// Whether all drivers are in a node's view.
    fn all_know_view_of(&self, node: u8) -> bool {
        let number = self.view(node).number().0;
        let others = self.nodes.values().filter(|other| other.is_alive && !other.view.members().is_empty());
        others.map(|other| other.driver_view).all(|known| known >= number)
    }

    /// What may be done next, by a node's view, so that partitions are where they are to be.
    pub fn next_moves(&self, node: u8) -> Vec<WantedChange> {
        let view = self.view(node);
        let mut changes: Vec<WantedChange> = Vec::new();
        if let Some((partition, target)) = view.placing() {
            let copied = WantedChange::Copied(partition, target.node, target.incarnation);
            changes.extend(Some(copied).filter(|_| self.all_know_view_of(node)));
        }
        if self.all_know_view_of(node) {
            let moves = view.hand_overs().into_iter();
            changes.extend(moves.map(|(partition, node)| WantedChange::MovePrimary(partition, node)));
            changes.extend(view.leave_outs().into_iter().map(WantedChange::LeaveOut));
        }
        changes.extend(view.next_placement().map(WantedChange::Place));
        changes
    }

    /// A block of a node asks its agreement for a change; returns the number of the request.
    pub fn ask_for(&mut self, node: u8, change: WantedChange) -> u32 {
        let view = self.view(node).number();
        let own = self.nodes.get_mut(&node).expect("it is listed");
        own.requests += 1;
        let request = own.requests;
        let sender = Address::new(NodeId(node), BlockNumber::Lifecycle, 0);
        self.rests.note_request(node, request, view, &change);
        let body = ViewChangeRequest { request, view, change };
        own.harness
            .send(sender, SignalNumber::ViewChangeRequest, |w| cold::write(w, &body))
            .expect("a block of the same node may");
        self.collect(node);
        request
    }

    /// What was answered to a request, if it was.
    pub fn answer_to(&self, node: u8, request: u32) -> Option<Result<u32, ViewChangeRefusal>> {
        self.nodes[&node].answers.get(&request).copied()
    }

    /// What was answered to all requests of a node; all of them were.
    pub fn answers(&self, node: u8) -> &BTreeMap<u32, Result<u32, ViewChangeRefusal>> {
        let node = &self.nodes[&node];
        assert_eq!(node.answers.len() as u32, node.requests, "each request is answered");
        &node.answers
    }

    pub(super) fn note_answer(&mut self, node: u8, request: u32, answer: Result<u32, ViewChangeRefusal>) {
        let own = self.nodes.get_mut(&node).expect("it is listed");
        if let Ok(view) = answer {
            assert_eq!(own.view.number().0, view, "the view is installed before that is answered");
        }
        if let Err(reason) = answer {
            self.rests.note_refusal(node, request, reason);
        }
        assert!(own.answers.insert(request, answer).is_none(), "request {request} is answered once");
    }

    /// Asks the president for a change, and waits for its answer.
    pub fn change(&mut self, change: WantedChange) -> Result<u32, ViewChangeRefusal> {
        let president = self.president().expect("there is one");
        let request = self.ask_for(president, change);
        for _ in 0..1000 {
            if let Some(answer) = self.answer_to(president, request) {
                return answer;
            }
            self.run(1);
        }
        panic!("the president does not answer");
    }

    /// Whether a node agrees at once to a view that another one wants.
    pub fn agrees_to_view(&mut self, from: u8, to: u8, body: &ViewPrepareRequest) -> bool {
        let harness = &mut self.nodes.get_mut(&to).expect("it is listed").harness;
        let signal = SignalNumber::ViewPrepareRequest;
        harness.send(address(from), signal, |w| cold::write(w, body)).expect("data nodes may");
        let answers: Vec<SignalNumber> = harness.take_sent().iter().map(Sent::signal).collect();
        assert!(answers.len() <= 2, "a lease perhaps, and the answer: {answers:?}");
        answers.last() == Some(&SignalNumber::ViewPrepareConfirm)
    }

    /// Info of a node asks its agreement whether the node may stop with these others: whether it may.
    pub fn may_stop(&mut self, node: u8, stopping: &[u8]) -> bool {
        let harness = &mut self.nodes.get_mut(&node).expect("it is listed").harness;
        let stopping = stopping.iter().map(|&node| NodeId(node)).collect();
        let body = ShutdownCheck { stopping, is_decided: false };
        let info = Address::new(NodeId(node), BlockNumber::Info, 0);
        harness.send(info, SignalNumber::ShutdownCheckRequest, |w| cold::write(w, &body)).expect("it may");
        let answers: Vec<SignalNumber> = harness.take_sent().iter().map(Sent::signal).collect();
        assert_eq!(answers.len(), 1, "one answer: {answers:?}");
        answers[0] == SignalNumber::ShutdownCheckConfirm
    }

    /// A node sends another one a view now.
    pub fn order_view(&mut self, from: u8, to: u8, view: &ClusterView) {
        let harness = &mut self.nodes.get_mut(&to).expect("it is listed").harness;
        harness
            .send(address(from), SignalNumber::ViewOrder, |w| cold::write(w, view))
            .expect("data nodes may");
        self.collect(to);
    }

    /// A node agrees to an attempt of another one now.
    pub fn confirm_view(&mut self, from: u8, to: u8, attempt: ViewAttempt) {
        let harness = &mut self.nodes.get_mut(&to).expect("it is listed").harness;
        let signal = SignalNumber::ViewPrepareConfirm;
        harness.send(address(from), signal, |w| cold::write(w, &attempt)).expect("data nodes may");
        self.collect(to);
    }
}
