//! Several data nodes are asked to stop at the same moment: whatever the order in which their signals arrive, those
//! that are left can go on, and nobody is refused for nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vinga_base::{Incarnation, LiveValues, NodeId};
use vinga_info::{Info, InfoSource};
use vinga_kernel::testkit::{Harness, Sent};
use vinga_kernel::{Block, Context, Scrutiny, Span, Tick};
use vinga_wire::info::{InfoTable, InfoValue};
use vinga_wire::shutdown::{ShutdownCheck, ShutdownConfirm, ShutdownRequest, ShutdownTerms};
use vinga_wire::view::{ClusterView, Member, ViewChange};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold, handshake::Refusal};

const API: Address = Address::new(NodeId(150), BlockNumber::Api, 0);

/// Nobody asks for rows here.
struct NoRows(LiveValues);

impl InfoSource for NoRows {
    fn columns(&self, _: InfoTable) -> &'static [&'static str] {
        &[]
    }

    fn rows(&self, _: InfoTable, _: Tick, _: &mut Vec<Vec<InfoValue>>) -> usize {
        0
    }

    fn parameters(&self) -> &LiveValues {
        &self.0
    }
}

struct Hosted(Info);

impl Block for Hosted {
    fn start(&mut self, _: &mut Context<'_>) {}

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        self.0.handle_with(cx, frame, &NoRows(LiveValues::default()));
    }

    fn view_changed(&mut self, cx: &mut Context<'_>, _: &ViewChange) {
        self.0.view_changed(cx);
    }

    fn check_invariants(&self, scrutiny: Scrutiny) {
        self.0.check_invariants(scrutiny);
    }
}

/// What an API node was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Answer {
    Stops,
    Refused(ErrorCode, String),
}

/// The main threads' info blocks of a cluster, and what is on its way between them.
struct Cluster {
    first_view: ClusterView,
    nodes: BTreeMap<NodeId, Harness<Hosted>>,
    on_the_way: BTreeMap<(NodeId, NodeId), VecDeque<Sent>>,
    /// Data nodes that have left, in this order, and how many of them each member knows to have left.
    left: Vec<NodeId>,
    known: BTreeMap<NodeId, usize>,
    /// Those whose agreement would be left with too little in the view that may follow.
    needed_soon: BTreeSet<NodeId>,
    /// The answers to requests, by their tags; each has the data node that was asked.
    answers: BTreeMap<u32, (NodeId, Option<Answer>)>,
    stopped: BTreeSet<NodeId>,
}

impl Cluster {
    /// Node groups of this many data nodes each, with ids from 1.
    fn new(groups: u8, replicas: u8) -> Self {
        let member =
            |node: u8| Member::started(NodeId(node), Incarnation(1), u16::from((node - 1) / replicas), 1, 1);
        let first_view = ClusterView::first((1..=groups * replicas).map(member).collect());
        let ids: Vec<NodeId> = first_view.members().iter().map(|member| member.node).collect();
        let harness = |&node: &NodeId| {
            let info = Address::new(node, BlockNumber::Info, 0);
            (node, Harness::new(info, 1, first_view.clone(), Hosted(Info::new(1))))
        };
        Cluster {
            nodes: ids.iter().map(harness).collect(),
            known: ids.iter().map(|&node| (node, 0)).collect(),
            first_view,
            on_the_way: BTreeMap::new(),
            left: Vec::new(),
            needed_soon: BTreeSet::new(),
            answers: BTreeMap::new(),
            stopped: BTreeSet::new(),
        }
    }

    /// One of those that run.
    fn choose(&self, number: u8) -> NodeId {
        *self.nodes.keys().nth(usize::from(number) % self.nodes.len()).expect("one runs")
    }

    /// Asks a data node to stop; returns the tag of the request.
    fn ask(&mut self, node: NodeId, terms: ShutdownTerms) -> u32 {
        let request = self.answers.len() as u32;
        self.answers.insert(request, (node, None));
        let body = ShutdownRequest { request, terms, starts_again: false };
        let harness = self.nodes.get_mut(&node).expect("it runs");
        harness.send(API, SignalNumber::ShutdownRequest, |w| cold::write(w, &body)).expect("it may ask");
        self.catch(node);
        request
    }

    /// Sorts what a data node has sent.
    fn catch(&mut self, node: NodeId) {
        for sent in self.nodes.get_mut(&node).expect("it runs").take_sent() {
            let receiver = sent.receiver();
            match sent.signal() {
                SignalNumber::ShutdownConfirm => {
                    let ShutdownConfirm { request, .. } = cold::read(&sent.frame()).expect("well-formed");
                    self.answered(node, request, Answer::Stops);
                }
                SignalNumber::ShutdownRefuse => {
                    let Refusal { request, code, detail } = cold::read(&sent.frame()).expect("well-formed");
                    let code = ErrorCode::from_number(code).expect("it is known");
                    self.answered(node, request, Answer::Refused(code, detail));
                }
                SignalNumber::ShutdownOrder => {
                    assert_eq!(receiver.block(), Some(BlockNumber::Driver));
                    assert!(self.stopped.insert(node), "it is ordered once");
                }
                SignalNumber::ShutdownCheckRequest => self.check(node, &sent),
                _ if self.nodes.contains_key(&receiver.node()) => {
                    self.on_the_way.entry((node, receiver.node())).or_default().push_back(sent);
                }
                _ => {}
            }
        }
    }

    /// Agreement of a data node answers whether that may stop.
    fn check(&mut self, node: NodeId, sent: &Sent) {
        let ShutdownCheck { stopping, is_decided } = cold::read(&sent.frame()).expect("well-formed");
        assert!(stopping.contains(&node), "{stopping:?}");
        let signal = match self.needed_soon.contains(&node) {
            true => SignalNumber::ShutdownCheckRefuse,
            false => SignalNumber::ShutdownCheckConfirm,
        };
        if !is_decided {
            let harness = self.nodes.get_mut(&node).expect("it runs");
            harness.send(sent.receiver(), signal, |_| {}).expect("agreement answers");
            self.catch(node);
        }
    }

    fn answered(&mut self, node: NodeId, request: u32, answer: Answer) {
        let (asked, place) = self.answers.get_mut(&request).expect("it was asked");
        assert_eq!(*asked, node);
        assert_eq!(place.replace(answer), None, "each request is answered once");
    }

    /// Delivers the first signal from one data node to another one; returns whether there was one.
    fn deliver(&mut self, from: NodeId, to: NodeId) -> bool {
        let Some(sent) = self.on_the_way.get_mut(&(from, to)).and_then(VecDeque::pop_front) else {
            return false;
        };
        if let Some(harness) = self.nodes.get_mut(&to) {
            harness.deliver(&sent);
            self.catch(to);
        }
        true
    }

    /// Time passes at a data node: if it has confirmed that it stops, it has its driver stop it.
    fn pass_time(&mut self, node: NodeId) {
        self.nodes.get_mut(&node).expect("it runs").advance(Span::from_millis(1));
        self.catch(node);
    }

    /// A data node leaves the cluster, as it has stopped or failed; each of the others learns that later.
    fn leave(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        self.left.push(node);
    }

    /// A data node adopts the view without the next one that has left; returns whether there was one.
    fn adopt_view(&mut self, node: NodeId) -> bool {
        let known = self.known.get_mut(&node).expect("it is a member");
        let Some(&lost) = self.left.get(*known) else { return false };
        *known += 1;
        // Everything that it has sent is handled before.
        while self.deliver(lost, node) {}
        self.nodes.get_mut(&node).expect("it runs").lose_node(lost);
        self.catch(node);
        true
    }

    /// Until nothing is on its way.
    fn come_to_rest(&mut self) {
        loop {
            let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
            let pairs = ids.iter().flat_map(|&from| ids.iter().map(move |&to| (from, to)));
            let mut goes_on = pairs.fold(false, |any, (from, to)| self.deliver(from, to) | any);
            for node in ids {
                self.pass_time(node);
                goes_on |= self.adopt_view(node);
            }
            if !goes_on {
                return;
            }
        }
    }

    /// Whether those that neither stop nor have left lack nothing, even without this one.
    fn can_do_without(&self, node: Option<NodeId>) -> bool {
        let stays = |one| !self.stopped.contains(&one) && !self.left.contains(&one) && Some(one) != node;
        self.first_view.lack_of(stays).is_none()
    }

    /// What was answered to a request.
    fn answer(&self, request: u32) -> &Answer {
        self.answers[&request].1.as_ref().expect("each request is answered")
    }
}

#[test]
fn of_two_that_need_each_other_one_is_refused() {
    for order in [[1, 2], [2, 1]] {
        let mut cluster = Cluster::new(2, 2);
        let requests = order.map(|node| cluster.ask(NodeId(node), ShutdownTerms::IfDispensable));
        cluster.come_to_rest();
        // The oldest member has permitted its own stop as soon as it was asked.
        let why = "data node 2 is the last one of node group 0 that has all its rows, as data node 1 is about to stop";
        let of = |node: u8| requests[order.iter().position(|&one| one == node).expect("it was asked")];
        assert_eq!(cluster.answer(of(1)), &Answer::Stops);
        assert_eq!(cluster.answer(of(2)), &Answer::Refused(ErrorCode::NodeIsNeeded, why.into()));
        assert_eq!(cluster.stopped.len(), 1);
        // What was permitted to the one that does not stop counts no more, and one of the other group may go.
        let request = cluster.ask(NodeId(3), ShutdownTerms::IfDispensable);
        cluster.come_to_rest();
        assert_eq!(cluster.answer(request), &Answer::Stops);
    }
}

#[test]
fn nobody_is_asked_for_one_that_stops_in_any_case_but_all_count_it_as_gone() {
    let mut cluster = Cluster::new(2, 2);
    let forced = cluster.ask(NodeId(4), ShutdownTerms::InAnyCase);
    assert_eq!(cluster.answer(forced), &Answer::Stops);
    let other = cluster.ask(NodeId(3), ShutdownTerms::IfDispensable);
    cluster.come_to_rest();
    assert!(matches!(cluster.answer(other), Answer::Refused(ErrorCode::NodeIsNeeded, _)));
    let other = cluster.ask(NodeId(3), ShutdownTerms::InAnyCase);
    cluster.come_to_rest();
    assert_eq!(cluster.answer(other), &Answer::Stops);
}

#[test]
fn a_second_request_waits_for_the_same_answer() {
    let mut cluster = Cluster::new(1, 2);
    let requests = [(); 3].map(|()| cluster.ask(NodeId(2), ShutdownTerms::IfDispensable));
    assert!(requests.iter().all(|request| cluster.answers[request].1.is_none()));
    cluster.come_to_rest();
    assert!(requests.iter().all(|&request| cluster.answer(request) == &Answer::Stops));
    // It has been ordered to stop once, and says the same to whoever asks later.
    let late = cluster.ask(NodeId(2), ShutdownTerms::IfDispensable);
    assert_eq!(cluster.answer(late), &Answer::Stops);
}

#[test]
fn a_member_that_fails_is_not_waited_for() {
    let mut cluster = Cluster::new(1, 3);
    let request = cluster.ask(NodeId(3), ShutdownTerms::IfDispensable);
    cluster.leave(NodeId(1));
    assert!(cluster.answers[&request].1.is_none(), "the oldest member is asked first");
    cluster.come_to_rest();
    assert_eq!(cluster.answer(request), &Answer::Stops);
    // Without the two of them the third one is needed.
    let request = cluster.ask(NodeId(2), ShutdownTerms::IfDispensable);
    cluster.come_to_rest();
    assert!(matches!(cluster.answer(request), Answer::Refused(ErrorCode::NodeIsNeeded, _)));
}

/// All permit it, but the next view may leave somebody out whom the others need then: what was permitted is given back.
#[test]
fn one_that_is_needed_in_the_next_view_goes_on() {
    let mut cluster = Cluster::new(1, 3);
    cluster.needed_soon.insert(NodeId(3));
    let request = cluster.ask(NodeId(3), ShutdownTerms::IfDispensable);
    cluster.come_to_rest();
    let Answer::Refused(ErrorCode::NodeIsNeeded, why) = cluster.answer(request) else { panic!("it stops") };
    assert!(why.contains("are about to leave them to this data node"), "{why}");
    for node in [1, 2] {
        let request = cluster.ask(NodeId(node), ShutdownTerms::IfDispensable);
        cluster.come_to_rest();
        assert_eq!(cluster.answer(request), &Answer::Stops, "node {node} of two others");
    }
    let request = cluster.ask(NodeId(3), ShutdownTerms::InAnyCase);
    assert_eq!(cluster.answer(request), &Answer::Stops);
}

#[test]
fn too_many_requests_are_refused() {
    let mut cluster = Cluster::new(1, 2);
    let requests: Vec<u32> = (0..20).map(|_| cluster.ask(NodeId(2), ShutdownTerms::IfDispensable)).collect();
    cluster.come_to_rest();
    let stops = requests.iter().filter(|&&request| cluster.answer(request) == &Answer::Stops).count();
    assert_eq!(stops, 16);
    assert_eq!(cluster.answer(requests[16]), &Answer::Refused(ErrorCode::Overloaded, String::new()));
}

proptest::proptest! {
    #[test]
    fn those_that_are_left_can_go_on(
        groups in 1u8..4,
        replicas in 1u8..4,
        steps in proptest::collection::vec((0u8..8, 0u8.., 0u8..), 0..120),
    ) {
        let mut cluster = Cluster::new(groups, replicas);
        for (step, a, b) in steps {
            let (node, other) = (cluster.choose(a), cluster.choose(b));
            match step {
                0 | 1 => {
                    cluster.ask(node, ShutdownTerms::IfDispensable);
                }
                2 => cluster.pass_time(node),
                3 => {
                    cluster.adopt_view(node);
                }
                4 if cluster.stopped.contains(&node) => cluster.leave(node),
                _ => {
                    cluster.deliver(node, other);
                }
            }
            assert!(cluster.can_do_without(None), "{:?}", cluster.answers);
        }
        cluster.come_to_rest();
        assert!(cluster.can_do_without(None), "{:?}", cluster.answers);
        for (node, answer) in cluster.answers.values() {
            match answer {
                Some(Answer::Stops) => assert!(cluster.stopped.contains(node)),
                Some(Answer::Refused(ErrorCode::NodeIsNeeded, _)) if !cluster.stopped.contains(node) => {
                    assert!(!cluster.can_do_without(Some(*node)), "{:?}", cluster.answers);
                }
                Some(Answer::Refused(..)) => {}
                // It has left before it could answer.
                None => assert!(cluster.left.contains(node)),
            }
        }
    }
}
