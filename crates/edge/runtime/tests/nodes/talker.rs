//! Data nodes whose coordinators talk to each other, and write down what they receive.

use crate::support::{self, HANG_GUARD};
use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::{Context, Host, Prefetch};
use vinga_runtime::node_process::NodeProcess;
use vinga_runtime::settings::{LinkBuffers, OtherDataNode, ProcessSettings};
use vinga_wire::agreement::{ArbitrationConfirm, ArbitrationRefuse, ArbitrationRequest, LinkBody};
use vinga_wire::formation::ConfiguredPlace;
use vinga_wire::restart::JoiningReport;
use vinga_wire::start::NodeStartedOrder;
use vinga_wire::view::{ClusterView, ConnectionHosts, Member, NO_TICKET, ViewChange};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U32, cold};

/// Signals that each coordinator sends to each coordinator of the other nodes.
pub const SIGNALS: u32 = 2_000;

pub const ROUND: u32 = 5;
pub const NEXT_TICKET: u64 = 77;

/// What the blocks of a node have received.
#[derive(Default)]
pub struct Records {
    /// By sender and receiver: how many signals, all in order.
    pub received: Mutex<BTreeMap<(Address, Address), u32>>,
    /// By thread: the members of the view that it has adopted.
    pub views: Mutex<BTreeMap<u16, Vec<u8>>>,
    /// Nodes whose links were reported to be closed.
    pub closed: Mutex<Vec<u8>>,
    /// Nodes to which links were reported to be open, with their starts: to agreement, and to the block for restarts.
    pub opened: Mutex<Vec<(u8, u32)>>,
    pub joining: Mutex<Vec<(u8, u32)>>,
    /// Nodes that have said by a link that they have ended.
    pub ended: Mutex<Vec<u8>>,
    /// The ticket of the first view.
    pub ticket: Mutex<Option<u64>>,
    /// What the arbitrator has answered: the next ticket, or why not.
    pub answers: Mutex<Vec<Result<u64, String>>>,
}

/// A coordinator on each thread, which sends numbers to all of other nodes; and agreement on the first thread, which
/// leaves out every node whose links are closed, and then asks the arbitrator, if there is one.
struct Talker {
    node: NodeId,
    thread: u16,
    records: Arc<Records>,
    view: ClusterView,
    /// Views that others have made, and that are not installed yet.
    ordered: VecDeque<ClusterView>,
    /// Nodes that are linked, and have not joined, as far as is known here.
    joining: Vec<Member>,
}

impl Talker {
    /// The oldest member makes views with those that are linked, and sends them to all.
    fn have_joined(&mut self, cx: &mut Context<'_>) {
        let agreement = |node| Address::new(node, BlockNumber::Agreement, 0);
        let oldest = self.view.members().iter().min_by_key(|member| (member.since, member.node));
        if oldest.is_none_or(|oldest| oldest.node != self.node) {
            return;
        }
        let mut cx = cx.for_block(agreement(self.node));
        for member in std::mem::take(&mut self.joining) {
            if self.view.has(member.node) {
                continue;
            }
            let node = member.node;
            self.view = self.view.with_joined(member).with_copying(node).with_started(node);
            for other in self.view.members().iter().filter(|other| other.node != self.node) {
                cold::write(&mut cx.frame(SignalNumber::ViewOrder, agreement(other.node)), &self.view);
            }
            let driver = cx.driver();
            cold::write(&mut cx.frame(SignalNumber::ViewInstallOrder, driver), &self.view);
        }
    }

    /// Installs the views that were ordered, each when there are links to all who have joined with it.
    fn install_ordered(&mut self, cx: &mut Context<'_>) {
        while let Some(next) = self.ordered.front() {
            let opened = self.records.opened.lock().unwrap();
            let is_linked = |member: &Member| {
                let identity = member.identity();
                member.node == self.node
                    || self.view.members().iter().any(|own| own.identity() == identity)
                    || opened.contains(&(identity.0.0, identity.1.0))
            };
            if !next.members().iter().all(is_linked) {
                return;
            }
            drop(opened);
            self.view = self.ordered.pop_front().expect("it is there");
            let driver = cx.driver();
            let started = NodeStartedOrder { restored: None, from: Vec::new() };
            cold::write(&mut cx.frame(SignalNumber::ViewInstallOrder, driver), &self.view);
            cold::write(&mut cx.frame(SignalNumber::NodeStartedOrder, driver), &started);
        }
    }

    /// Sends to all coordinators of these nodes.
    fn talk<'m>(&self, cx: &mut Context<'_>, members: impl Iterator<Item = &'m Member>) {
        let mut cx = cx.for_block(Address::new(self.node, BlockNumber::Coordinator, self.thread));
        for member in members.filter(|member| member.node != self.node) {
            for instance in 0..member.coordinators {
                let receiver = Address::new(member.node, BlockNumber::Coordinator, instance);
                for number in 0..SIGNALS {
                    cx.frame(SignalNumber::EpochOrder, receiver).put(&U32::new(number));
                }
            }
        }
    }

    fn on_link_closed(&mut self, cx: &mut Context<'_>, link: LinkBody) {
        self.records.closed.lock().unwrap().push(link.node.0);
        let identity = (link.node, link.incarnation);
        self.joining.retain(|member| member.identity() != identity);
        if self.view.members().iter().all(|member| member.identity() != identity) {
            return;
        }
        self.view = self.view.without(&[link.node]);
        let driver = cx.driver();
        cold::write(&mut cx.frame(SignalNumber::LinkCloseOrder, driver), &link);
        cold::write(&mut cx.frame(SignalNumber::ViewInstallOrder, driver), &self.view);
        if self.view.ticket() != NO_TICKET {
            let request = ArbitrationRequest {
                round: ROUND,
                view: self.view.number(),
                ticket: self.view.ticket(),
                next: NEXT_TICKET,
                members: vec![self.node],
            };
            cold::write(&mut cx.frame(SignalNumber::ArbitrationRequest, driver), &request);
        }
    }
}

impl Host for Talker {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.view = cx.view().clone();
        *self.records.ticket.lock().unwrap() = Some(self.view.ticket());
        let view = cx.view().clone();
        self.talk(cx, view.members().iter());
    }

    fn prefetch(&self, _: Prefetch, _: &Frame<'_>) -> bool {
        false
    }

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        match frame.signal() {
            Some(SignalNumber::EpochOrder) => {
                let sender = frame.sender();
                assert!(cx.view().has(sender.node()), "{sender} is no member any more");
                let (number, _) = frame.head::<U32>().expect("a number");
                let mut received = self.records.received.lock().unwrap();
                let count = received.entry((sender, frame.receiver())).or_default();
                assert_eq!(number.get(), *count, "signals of {sender} come in their order");
                *count += 1;
            }
            Some(SignalNumber::LinkClosedReport) => {
                self.on_link_closed(cx, cold::read(frame).expect("a driver sends whole reports"));
            }
            Some(SignalNumber::LinkOpenedReport) => {
                let link: LinkBody = cold::read(frame).expect("a driver sends whole reports");
                self.records.opened.lock().unwrap().push((link.node.0, link.incarnation.0));
                self.install_ordered(cx);
            }
            Some(SignalNumber::JoiningReport) => {
                let JoiningReport { member } = cold::read(frame).expect("a driver sends whole reports");
                assert_eq!(frame.receiver().block(), Some(BlockNumber::Restart));
                self.records.joining.lock().unwrap().push((member.node.0, member.incarnation.0));
                self.joining.push(member);
                self.have_joined(cx);
            }
            Some(SignalNumber::ViewOrder) => {
                self.ordered.push_back(cold::read(frame).expect("a whole view"));
                self.install_ordered(cx);
            }
            Some(SignalNumber::ArbitrationConfirm) => {
                let confirm: ArbitrationConfirm = cold::read(frame).expect("a driver sends whole answers");
                assert_eq!((confirm.round, frame.receiver().block()), (ROUND, Some(BlockNumber::Agreement)));
                self.records.answers.lock().unwrap().push(Ok(confirm.ticket));
            }
            Some(SignalNumber::ArbitrationRefuse) => {
                let refuse: ArbitrationRefuse = cold::read(frame).expect("a driver sends whole answers");
                assert_eq!(refuse.round, ROUND);
                self.records.answers.lock().unwrap().push(Err(refuse.reason));
            }
            Some(SignalNumber::NodeEndedReport) => {
                assert_eq!(frame.receiver().block(), Some(BlockNumber::Agreement));
                self.records.ended.lock().unwrap().push(frame.sender().node().0);
            }
            Some(SignalNumber::EpochClaimReport) => cx.reject(frame, ErrorCode::UnexpectedSignal),
            signal => panic!("{signal:?} came"),
        }
    }

    fn view_changed(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        self.records.received.lock().unwrap().retain(|(sender, receiver), _| {
            !change.has_lost(sender.node()) || receiver.instance() != self.thread
        });
        let was =
            |member: &&Member| change.old.members().iter().any(|old| old.identity() == member.identity());
        self.talk(cx, change.new.members().iter().filter(|member| !was(member)));
        let mut members: Vec<u8> = change.new.members().iter().map(|member| member.node.0).collect();
        members.sort_unstable();
        self.records.views.lock().unwrap().insert(self.thread, members);
    }

    fn slice(&mut self, _: &mut Context<'_>) -> bool {
        false
    }
}

/// Settings of a node with this many threads, and of others at these addresses.
pub fn settings(node: u8, threads: u16, addresses: &[SocketAddr]) -> ProcessSettings {
    let mut settings = support::settings(threads);
    let node = NodeId(node);
    let connections = vec![ConnectionHosts::default(); usize::from(threads)];
    let member = Member::started(node, Incarnation(u32::from(node.0)), 0, 1, threads);
    settings.node = node;
    settings.incarnation = member.incarnation;
    settings.view = Arc::new(ClusterView::first(vec![member.with_connections(connections)]));
    settings.listen = addresses[usize::from(node.0) - 1];
    let other = |(node, &address)| OtherDataNode {
        node: NodeId(node),
        group: 0,
        address,
        buffers: LinkBuffers::default(),
    };
    let all = (1..).zip(addresses).map(other);
    settings.others = all.filter(|other| other.node != node).collect();
    let place = |(node, address): (u8, &SocketAddr)| ConfiguredPlace {
        node: NodeId(node),
        host: address.ip().to_string(),
        port: address.port(),
    };
    settings.places = (1..).zip(addresses).map(place).collect();
    settings.instances.extend([(BlockNumber::Agreement, 0), (BlockNumber::Restart, 0)]);
    settings.instances.extend((0..threads).map(|thread| (BlockNumber::Info, thread)));
    settings
}

/// Addresses that nobody listens on, and that the system does not give to connections meanwhile.
pub fn addresses(count: usize) -> Vec<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 20_000) as u16;
    let listen =
        || TcpListener::bind(("127.0.0.1", first + NEXT.fetch_add(1, Ordering::Relaxed) % 2_000)).ok();
    let listeners: Vec<TcpListener> = std::iter::repeat_with(listen).flatten().take(count).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap()).collect()
}

pub fn start(settings: ProcessSettings) -> Result<(NodeProcess, Arc<Records>), String> {
    let records = Arc::new(Records::default());
    start_with(settings, &records).map(|process| (process, records))
}

pub fn start_with(settings: ProcessSettings, records: &Arc<Records>) -> Result<NodeProcess, String> {
    let node = settings.node;
    let make_host = {
        let records = records.clone();
        move |thread, _: &_| Talker {
            node,
            thread,
            records: records.clone(),
            view: ClusterView::default(),
            ordered: VecDeque::new(),
            joining: Vec::new(),
        }
    };
    NodeProcess::start(settings, make_host)
}

/// Starts all of them at the same time.
pub fn start_all(all: Vec<ProcessSettings>) -> Vec<(NodeProcess, Arc<Records>)> {
    let starts: Vec<_> = all.into_iter().map(|settings| thread::spawn(|| start(settings))).collect();
    starts.into_iter().map(|start| start.join().unwrap().expect("they find each other")).collect()
}

pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HANG_GUARD, "it never happened: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The same settings, for another start of the node.
pub fn again(mut settings: ProcessSettings, incarnation: u32) -> ProcessSettings {
    let incarnation = Incarnation(incarnation);
    let own = settings.view.member(settings.node).unwrap().clone();
    settings.view = Arc::new(ClusterView::first(vec![Member { incarnation, ..own }]));
    settings.incarnation = incarnation;
    settings
}

/// Waits until all threads of these nodes have this view, and have received everything from all others.
pub fn all_talk(nodes: &BTreeMap<u8, (NodeProcess, Arc<Records>)>, threads: &[u16]) {
    let members: Vec<u8> = nodes.keys().copied().collect();
    let count = |node: u8| usize::from(threads[usize::from(node) - 1]);
    let all: usize = members.iter().map(|&node| count(node)).sum();
    for (&node, (_, records)) in nodes {
        wait_until(&format!("node {node} has the view of {members:?}, and all signals"), || {
            let views = records.views.lock().unwrap();
            let received = records.received.lock().unwrap();
            views.len() == count(node)
                && views.values().all(|view| *view == members)
                && received.len() == count(node) * (all - count(node))
                && received.values().all(|&count| count == SIGNALS)
        });
    }
}

/// A start on a thread of its own.
pub type Start = JoinHandle<Result<(NodeProcess, Arc<Records>), String>>;

/// Starts a node on a thread of its own.
pub fn begin(settings: ProcessSettings) -> Start {
    thread::spawn(|| start(settings))
}

/// Waits for nodes that find each other, and stops them.
pub fn await_and_stop(starts: Vec<Start>) {
    wait_until("they find each other", || starts.iter().all(JoinHandle::is_finished));
    let nodes: Vec<_> = starts.into_iter().map(|start| start.join().unwrap().expect("they begin")).collect();
    nodes.into_iter().for_each(|(node, _)| node.stop());
}
