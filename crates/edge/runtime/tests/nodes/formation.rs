//! Data nodes of one process find each other, exchange signals by their links, refuse each other, and lose each other.

use crate::support::{self, HANG_GUARD};
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::{Context, Host, Prefetch};
use vinga_key::ClusterKey;
use vinga_mgm::{Handout, ManagementNode, ManagementSettings};
use vinga_runtime::log::LogSettings;
use vinga_runtime::node_process::NodeProcess;
use vinga_runtime::settings::OtherManagementNode;
use vinga_runtime::settings::{LinkBuffers, OtherDataNode, ProcessSettings};
use vinga_wire::agreement::{ArbitrationConfirm, ArbitrationRefuse, ArbitrationRequest, LinkBody};
use vinga_wire::configuration::ConfigurationStamp;
use vinga_wire::formation::{
    BegunCluster, ConfiguredPlace, NodeHello, NodesConnectedReport, ProcessIdentity,
};
use vinga_wire::handshake::{MAGIC, Refusal};
use vinga_wire::key::{ConnectionPurpose, ConnectionTerms};
use vinga_wire::protocol::Protocol;
use vinga_wire::restart::JoiningReport;
use vinga_wire::start::NodeStartedOrder;
use vinga_wire::view::{ClusterView, ConnectionHosts, Member, NO_TICKET, ViewChange};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, FrameWriter, SignalNumber, U32, cold};

/// Signals that each coordinator sends to each coordinator of the other nodes.
const SIGNALS: u32 = 2_000;

const ROUND: u32 = 5;
const NEXT_TICKET: u64 = 77;

/// What the blocks of a node have received.
#[derive(Default)]
struct Records {
    /// By sender and receiver: how many signals, all in order.
    received: Mutex<BTreeMap<(Address, Address), u32>>,
    /// By thread: the members of the view that it has adopted.
    views: Mutex<BTreeMap<u16, Vec<u8>>>,
    /// Nodes whose links were reported to be closed.
    closed: Mutex<Vec<u8>>,
    /// Nodes to which links were reported to be open, with their starts: to agreement, and to the block for restarts.
    opened: Mutex<Vec<(u8, u32)>>,
    joining: Mutex<Vec<(u8, u32)>>,
    /// Nodes that have said by a link that they have ended.
    ended: Mutex<Vec<u8>>,
    /// The ticket of the first view.
    ticket: Mutex<Option<u64>>,
    /// What the arbitrator has answered: the next ticket, or why not.
    answers: Mutex<Vec<Result<u64, String>>>,
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
fn settings(node: u8, threads: u16, addresses: &[SocketAddr]) -> ProcessSettings {
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
fn addresses(count: usize) -> Vec<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 20_000) as u16;
    let listen =
        || TcpListener::bind(("127.0.0.1", first + NEXT.fetch_add(1, Ordering::Relaxed) % 2_000)).ok();
    let listeners: Vec<TcpListener> = std::iter::repeat_with(listen).flatten().take(count).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap()).collect()
}

fn start(settings: ProcessSettings) -> Result<(NodeProcess, Arc<Records>), String> {
    let records = Arc::new(Records::default());
    start_with(settings, &records).map(|process| (process, records))
}

fn start_with(settings: ProcessSettings, records: &Arc<Records>) -> Result<NodeProcess, String> {
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
fn start_all(all: Vec<ProcessSettings>) -> Vec<(NodeProcess, Arc<Records>)> {
    let starts: Vec<_> = all.into_iter().map(|settings| thread::spawn(|| start(settings))).collect();
    starts.into_iter().map(|start| start.join().unwrap().expect("they find each other")).collect()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HANG_GUARD, "it never happened: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn nodes_find_each_other_and_exchange_signals_in_order() {
    let addresses = addresses(3);
    let threads = [1, 3, 2];
    let all = (1..).zip(threads).map(|(node, threads)| settings(node, threads, &addresses)).collect();
    let nodes = start_all(all);
    for ((node, records), own) in nodes.iter().zip(threads) {
        let pairs = usize::from(own * (threads.iter().sum::<u16>() - own));
        wait_until("all signals have come", || {
            let received = records.received.lock().unwrap();
            received.len() == pairs && received.values().all(|&count| count == SIGNALS)
        });
        assert!(records.closed.lock().unwrap().is_empty(), "{}", node.address());
    }
    // One leaves; all threads of the others adopt a view without it.
    let mut nodes = nodes;
    let (second, _) = nodes.remove(1);
    second.stop();
    for ((_, records), threads) in nodes.iter().zip([1, 2]) {
        wait_until("all threads have the next view", || {
            let views = records.views.lock().unwrap();
            views.len() == threads && views.values().all(|members| *members == [1, 3])
        });
        assert_eq!(*records.closed.lock().unwrap(), [2], "one report for all links");
        let ended = records.ended.lock().unwrap();
        assert!(!ended.is_empty() && ended.iter().all(|&node| node == 2), "it has said so before: {ended:?}");
    }
    nodes.into_iter().for_each(|(node, _)| node.stop());
}

/// The same settings, for another start of the node.
fn again(mut settings: ProcessSettings, incarnation: u32) -> ProcessSettings {
    let incarnation = Incarnation(incarnation);
    let own = settings.view.member(settings.node).unwrap().clone();
    settings.view = Arc::new(ClusterView::first(vec![Member { incarnation, ..own }]));
    settings.incarnation = incarnation;
    settings
}

/// Waits until all threads of these nodes have this view, and have received everything from all others.
fn all_talk(nodes: &BTreeMap<u8, (NodeProcess, Arc<Records>)>, threads: &[u16]) {
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

/// Any number of times, whichever it is; with other numbers of threads, so of links.
#[test]
fn a_node_that_comes_back_joins() {
    let addresses = addresses(3);
    let threads = [2, 3, 2];
    let own = |node: u8| settings(node, threads[usize::from(node) - 1], &addresses);
    let started = start_all((1..=3).map(own).collect());
    let mut nodes: BTreeMap<u8, _> = (1..).zip(started).collect();
    for (late, number) in [(3, 100), (3, 101), (1, 102), (2, 103), (1, 104)] {
        let (gone, _) = nodes.remove(&late).unwrap();
        gone.stop();
        let late_settings = again(own(late), number);
        let (process, records) = start(late_settings).expect("it joins");
        let opened = |records: &Records, node: u8, start: u32| {
            records.opened.lock().unwrap().contains(&(node, start))
                && records.joining.lock().unwrap().contains(&(node, start))
        };
        for (_, other) in nodes.values() {
            wait_until("it is reported with its start", || opened(other, late, number));
        }
        let linked: Vec<u8> = records.opened.lock().unwrap().iter().map(|&(node, _)| node).collect();
        assert_eq!(linked.len(), 2, "each once: {linked:?}");
        nodes.insert(late, (process, records));
        all_talk(&nodes, &threads);
    }
    nodes.into_values().for_each(|(node, _)| node.stop());
}

#[test]
fn two_nodes_that_come_back_at_once_join() {
    let addresses = addresses(3);
    let threads = [2, 1, 2];
    let own = |node: u8| settings(node, threads[usize::from(node) - 1], &addresses);
    let started = start_all((1..=3).map(own).collect());
    let mut nodes: BTreeMap<u8, _> = (1..).zip(started).collect();
    for stay in [2u8, 1] {
        let late: Vec<u8> = (1..=3).filter(|&node| node != stay).collect();
        for node in &late {
            nodes.remove(node).unwrap().0.stop();
        }
        let starts = start_all(late.iter().map(|&node| again(own(node), 100 + u32::from(stay))).collect());
        nodes.extend(late.into_iter().zip(starts));
        all_talk(&nodes, &threads);
    }
    nodes.into_values().for_each(|(node, _)| node.stop());
}

#[test]
fn api_nodes_are_refused_as_long_as_a_node_joins() {
    let addresses = addresses(2);
    let first = begin(settings(1, 1, &addresses));
    let second = settings(2, 1, &addresses);
    let (mut link, is_accepted) = greet(&second, &ProcessIdentity::default(), addresses[0]);
    assert!(is_accepted);
    report_connected(&mut link, NodeId(2), &[NodeId(1), NodeId(2)]);
    wait_until("the first one has begun", || first.is_finished());
    let (first, records) = first.join().unwrap().expect("the second one is connected");
    drop(link);
    wait_until("it is left out", || !records.views.lock().unwrap().is_empty());
    first.stop();
    // A member that makes no view with the one that joins.
    let listener = TcpListener::bind(addresses[0]).unwrap();
    let records = Arc::new(Records::default());
    let joining = {
        let records = records.clone();
        thread::spawn(move || start_with(again(second, 100), &records))
    };
    let link = confirm_next(&listener, &settings(1, 1, &addresses), &[1]);
    wait_until("its threads run", || records.opened.lock().unwrap().contains(&(1, 1)));
    let why = support::connect_with(addresses[1], &vinga_rig::raw::hello());
    assert_eq!(why.err().and_then(|why| why.code()), Some(ErrorCode::NodeStarting));
    assert!(!joining.is_finished());
    drop(link);
    let why = joining.join().unwrap().err().expect("it can't join");
    assert!(why.contains("the links to data node 1 were closed: 20030 (Temporary)"), "{why}");
}

/// Whoever may use a node's local socket is a client, and has not proven the cluster's key.
#[test]
fn data_nodes_do_not_connect_by_the_local_socket() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let socket = folder.path().join("node.sock");
    let addresses = addresses(2);
    let first = ProcessSettings { listen_locally: Some(socket.clone()), ..settings(1, 1, &addresses) };
    let starts = vec![begin(first), begin(settings(2, 1, &addresses))];
    wait_until("they find each other", || starts.iter().all(JoinHandle::is_finished));
    let nodes: Vec<_> = starts.into_iter().map(|start| start.join().unwrap().expect("they begin")).collect();
    let mut link = UnixStream::connect(&socket).expect("it listens there");
    link.set_read_timeout(Some(HANG_GUARD)).unwrap();
    let greeting = hello_frame(&again(settings(2, 1, &addresses), 100), &ProcessIdentity::default());
    link.write_all(&greeting).unwrap();
    let mut answer = vec![0; 64 * 1024];
    let count = link.read(&mut answer).expect("it is answered");
    let answer = Frame::first(&answer[..count]).expect("a frame").expect("a whole one");
    let refusal: Refusal = cold::read(&answer).expect("it is refused");
    assert_eq!(ErrorCode::from_number(refusal.code), Some(ErrorCode::BadHandshake), "{refusal:?}");
    nodes.into_iter().for_each(|(node, _)| node.stop());
}

/// The next link that is opened to a node, which confirms it.
fn confirm_next(listener: &TcpListener, own: &ProcessSettings, members: &[u8]) -> TcpStream {
    let (mut link, _) = listener.accept().unwrap();
    link.set_read_timeout(Some(HANG_GUARD)).unwrap();
    assert!(link.read(&mut vec![0; 64 * 1024]).unwrap() > 0);
    confirm(&mut link, own, members);
    link
}

/// A node confirms a link, as one that has begun with these members; without any it waits to join.
fn confirm(link: &mut TcpStream, own: &ProcessSettings, members: &[u8]) {
    let members = members.iter().map(|&node| (NodeId(node), Incarnation(u32::from(node)))).collect();
    let begun = Some(BegunCluster { cluster_incarnation: 1, database: 1, members });
    let confirm = NodeHello { begun, ..hello(own, &ProcessIdentity::default()) };
    // If the other one waits no longer, the link is closed.
    let _ = link.write_all(&hello_frame_of(SignalNumber::NodeHelloConfirm, &confirm));
}

/// Else it could not join after another one that it has missed, or has lost the link to.
#[test]
fn a_node_that_waits_looks_for_those_that_it_has_no_links_to() {
    let addresses = addresses(3);
    let own = |node: u8| settings(node, 1, &addresses);
    let member = TcpListener::bind(addresses[0]).unwrap();
    let records = Arc::new(Records::default());
    let joining = {
        let (third, records) = (own(3), records.clone());
        thread::spawn(move || start_with(third, &records))
    };
    let link = confirm_next(&member, &own(1), &[1]);
    let times = |node: u8| {
        let opened = records.opened.lock().unwrap();
        opened.iter().filter(|&&(other, _)| other == node).count()
    };
    wait_until("its threads run", || times(1) == 1);
    // The second one joins, too.
    let waiting = TcpListener::bind(addresses[1]).unwrap();
    for time in 1..4 {
        let to_second = confirm_next(&waiting, &own(2), &[]);
        wait_until("it is linked", || times(2) == time);
        drop(to_second);
    }
    assert_eq!((times(1), joining.is_finished()), (1, false));
    drop(link);
    let why = joining.join().unwrap().err().expect("it can't join");
    assert!(why.contains("the links to data node 1 were closed: 20030 (Temporary)"), "{why}");
}

/// A node looks for another one that is to join, too, and is a member before that one has answered. The other one takes
/// these links for the links between the two; so does the member, which accepts no others meanwhile.
#[test]
fn links_that_a_node_begins_to_open_while_it_waits_count_when_it_is_a_member() {
    while !joins_while_it_searches(false) {}
}

/// The same with a search that begins before it has found the cluster that runs.
#[test]
fn links_that_a_node_begins_to_open_before_its_threads_run_count_as_well() {
    while !joins_while_it_searches(true) {}
}

/// False if its search has taken longer than it waits for an answer.
fn joins_while_it_searches(is_forming: bool) -> bool {
    let addresses = addresses(3);
    let own = |node: u8| settings(node, 1, &addresses);
    let records = Arc::new(Records::default());
    let joining = {
        let (third, records) = (own(3), records.clone());
        thread::spawn(move || start_with(third, &records))
    };
    let searched = || {
        let newcomer = TcpListener::bind(addresses[0]).unwrap();
        if is_forming {
            // It must have been looked for once.
            drop(newcomer.accept().unwrap());
        }
        let (mut searched, _) = newcomer.accept().unwrap();
        let begun = Instant::now();
        searched.set_read_timeout(Some(HANG_GUARD)).unwrap();
        assert!(searched.read(&mut vec![0; 64 * 1024]).unwrap() > 0);
        (searched, begun)
    };
    let member = || {
        let member = TcpListener::bind(addresses[1]).unwrap();
        let link = confirm_next(&member, &own(2), &[2]);
        wait_until("its threads run", || !records.opened.lock().unwrap().is_empty());
        link
    };
    let (mut link, (mut searched, begun)) = if is_forming {
        let searched = searched();
        (member(), searched)
    } else {
        (member(), searched())
    };
    order_view(&mut link, &own(2), &own(3));
    let node = joining.join().unwrap().expect("it is a member");
    let greeted = answer_to_greeting(&own(1), addresses[2]);
    confirm(&mut searched, &own(1), &[]);
    searched.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let mut is_open = || !matches!(searched.read(&mut [0; 1024]), Ok(0));
    let is_linked = || records.opened.lock().unwrap().contains(&(1, 1));
    while is_open() && !is_linked() {
        assert!(begun.elapsed() < HANG_GUARD, "it neither takes nor closes the link");
    }
    let is_open = is_open();
    node.stop();
    if !is_open {
        assert!(begun.elapsed() >= Duration::from_secs(2), "it closes the link that it has begun to open");
        return false;
    }
    assert_ne!(greeted, Some(SignalNumber::NodeHelloConfirm), "it accepts other links");
    true
}

/// The data node at the other end of a link is a member from now on, with the one that the link belongs to.
fn order_view(link: &mut TcpStream, own: &ProcessSettings, other: &ProcessSettings) {
    let member = |settings: &ProcessSettings| settings.view.member(settings.node).expect("itself").clone();
    let view = ClusterView::first(vec![member(own)]).with_joined(member(other));
    let view = view.with_copying(other.node).with_started(other.node);
    let agreement = |node| Address::new(node, BlockNumber::Agreement, 0);
    let (receiver, sender) = (agreement(other.node), agreement(own.node));
    let mut frame = Vec::new();
    let number = view.number().0 as u8;
    cold::write(
        &mut FrameWriter::begin(&mut frame, SignalNumber::ViewOrder, number, receiver, sender, 0),
        &view,
    );
    link.write_all(&frame).unwrap();
}

/// How a node answers a greeting by the first link of the one with these settings.
fn answer_to_greeting(settings: &ProcessSettings, to: SocketAddr) -> Option<SignalNumber> {
    let mut link = TcpStream::connect(to).unwrap();
    link.set_read_timeout(Some(HANG_GUARD)).unwrap();
    link.write_all(&hello_frame(settings, &ProcessIdentity::default())).unwrap();
    let mut answer = vec![0; 64 * 1024];
    let count = link.read(&mut answer).expect("it is answered");
    Frame::first(&answer[..count]).expect("a frame").expect("a whole one").signal()
}

/// The threads of a data node that joins serve its links: what nodes that form a cluster report is nothing for them.
#[test]
fn nothing_is_reported_to_a_first_node_that_joins_itself() {
    for joins in [false, true] {
        let addresses = addresses(3);
        let listener = TcpListener::bind(addresses[0]).unwrap();
        // It looks for the third one in vain.
        begin(settings(2, 1, &addresses));
        let (mut link, _) = listener.accept().unwrap();
        link.set_read_timeout(Some(HANG_GUARD)).unwrap();
        let mut bytes = vec![0; 64 * 1024];
        assert!(link.read(&mut bytes).unwrap() > 0);
        let begun = joins.then(|| BegunCluster { cluster_incarnation: 1, database: 1, members: Vec::new() });
        let confirm = NodeHello { begun, ..hello(&settings(1, 1, &addresses), &ProcessIdentity::default()) };
        link.write_all(&hello_frame_of(SignalNumber::NodeHelloConfirm, &confirm)).unwrap();
        if joins {
            link.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            assert_eq!(link.read(&mut bytes).map_err(|why| why.kind()), Err(ErrorKind::WouldBlock));
        } else {
            let count = link.read(&mut bytes).unwrap();
            let report = Frame::first(&bytes[..count]).expect("a frame").expect("a whole one");
            assert_eq!(report.signal(), Some(SignalNumber::NodesConnectedReport));
        }
    }
}

/// It was searched for, and refused that as one that has begun. Then it has ended, and its next start came by itself.
#[test]
fn what_an_earlier_start_has_answered_keeps_nobody_from_reporting() {
    let addresses = addresses(3);
    let first = TcpListener::bind(addresses[0]).unwrap();
    let third = TcpListener::bind(addresses[2]).unwrap();
    begin(settings(2, 1, &addresses));
    let next = |listener: &TcpListener| {
        let (mut link, _) = listener.accept().unwrap();
        link.set_read_timeout(Some(HANG_GUARD)).unwrap();
        assert!(link.read(&mut vec![0; 64 * 1024]).unwrap() > 0);
        link
    };
    let mut to_first = next(&first);
    let confirm = hello(&settings(1, 1, &addresses), &ProcessIdentity::default());
    to_first.write_all(&hello_frame_of(SignalNumber::NodeHelloConfirm, &confirm)).unwrap();
    let mut search = next(&third);
    let driver = |node| Address::new(NodeId(node), BlockNumber::Driver, 0);
    let mut refusal = Vec::new();
    cold::write(
        &mut FrameWriter::begin(&mut refusal, SignalNumber::HelloRefuse, 0, driver(2), driver(3), 0),
        &Refusal { request: 0, code: ErrorCode::NodeStopping as u16, detail: String::new() },
    );
    search.write_all(&refusal).unwrap();
    drop(search);
    // It is searched for again, unless it comes before: it does not answer then.
    thread::sleep(Duration::from_millis(50));
    let (_third, is_accepted) = greet(&settings(3, 1, &addresses), &ProcessIdentity::default(), addresses[1]);
    assert!(is_accepted);
    let mut bytes = vec![0; 64 * 1024];
    let count = to_first.read(&mut bytes).expect("it is reported to");
    let report = Frame::first(&bytes[..count]).expect("a frame").expect("a whole one");
    let NodesConnectedReport { nodes } = cold::read(&report).expect("a report");
    assert_eq!(nodes, [1, 2, 3].map(|node| (NodeId(node), Incarnation(u32::from(node)))));
}

/// The signal by which a node answers the greeting of one with a small window, and the link. The system takes little at
/// once for a socket with a small buffer then.
fn greet_slowly(settings: &ProcessSettings, to: SocketAddr) -> (TcpStream, Option<SignalNumber>) {
    wait_until("somebody listens there", || TcpStream::connect(to).is_ok());
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    sockopt::set_socket_recv_buffer_size(&socket, 2048).expect("it can be small");
    rustix::net::connect(&socket, &to).expect("somebody listens there");
    let mut link = TcpStream::from(socket);
    link.set_read_timeout(Some(HANG_GUARD)).unwrap();
    link.write_all(&hello_frame(settings, &ProcessIdentity::default())).unwrap();
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let count = link.read(&mut buffer).expect("it is answered");
        bytes.extend_from_slice(&buffer[..count]);
        if count == 0 {
            return (link, None);
        }
        if let Some(frame) = Frame::first(&bytes).expect("a frame") {
            let signal = frame.signal();
            return (link, signal);
        }
    }
}

/// By a node that forms the cluster, and by one that has begun.
#[test]
fn a_long_greeting_is_confirmed_as_a_whole_by_a_link_with_a_small_buffer() {
    let addresses = addresses(2);
    let own = |node: u8| {
        let mut settings = settings(node, 1, &addresses);
        settings.places.iter_mut().for_each(|place| place.host = "h".repeat(14_000));
        settings.others[0].buffers.send = 4096;
        settings
    };
    let first = begin(own(1));
    let (mut link, answer) = greet_slowly(&own(2), addresses[0]);
    assert_eq!(answer, Some(SignalNumber::NodeHelloConfirm));
    report_connected(&mut link, NodeId(2), &[NodeId(1), NodeId(2)]);
    wait_until("the first one has begun", || first.is_finished());
    let (first, records) = first.join().unwrap().expect("the second one is connected");
    drop(link);
    wait_until("it is left out", || !records.views.lock().unwrap().is_empty());
    // It may still be giving up the earlier start.
    wait_until("the next start is confirmed", || {
        let (_link, answer) = greet_slowly(&again(own(2), 100), addresses[0]);
        answer == Some(SignalNumber::NodeHelloConfirm)
    });
    first.stop();
}

/// Whatever else is the matter with it. The one with the lowest id is not looked for any more, either.
#[test]
fn a_node_that_does_not_fit_is_refused_as_that_by_those_that_have_begun() {
    for late in [2, 1] {
        let addresses = addresses(2);
        let nodes = start_all(vec![settings(1, 1, &addresses), settings(2, 1, &addresses)]);
        let mut nodes: BTreeMap<u8, _> = (1..).zip(nodes).collect();
        let own = settings(late, 1, &addresses);
        let others = addresses[usize::from(2 - late)];
        let mut link = TcpStream::connect(others).unwrap();
        link.set_read_timeout(Some(HANG_GUARD)).unwrap();
        link.write_all(&hello_frame(&again(own, 900), &ProcessIdentity::default())).unwrap();
        let mut answer = Vec::new();
        link.read_to_end(&mut answer).expect("it is answered");
        let answer = Frame::first(&answer).expect("a frame").expect("a whole one");
        let refusal: Refusal = cold::read(&answer).expect("it can be read");
        assert_eq!(ErrorCode::from_number(refusal.code), Some(ErrorCode::NodeIdInUse), "{refusal:?}");

        let (gone, _) = nodes.remove(&late).unwrap();
        gone.stop();
        let (other, records) = nodes.into_values().next().unwrap();
        wait_until("it is left out", || !records.views.lock().unwrap().is_empty());
        let refused = |change: fn(&mut ProcessSettings)| {
            let mut settings = settings(late, 1, &addresses);
            change(&mut settings);
            start(settings).err().expect("it is refused")
        };
        let why = refused(|settings| settings.cluster = "other".to_string());
        assert!(why.contains("20002") && why.contains("\"other\"") && why.contains("\"test\""), "{why}");
        let why = refused(|settings| settings.places[0].port ^= 1);
        assert!(why.contains("20031") && why.contains("data node 1 is at"), "{why}");
        let why = refused(|settings| settings.heartbeat_interval *= 2);
        assert!(why.contains("20031") && why.contains("HeartbeatIntervalDbDb"), "{why}");
        other.stop();
    }
}

#[test]
fn nodes_that_are_configured_differently_refuse_each_other() {
    let addresses = addresses(3);
    let start_first = || {
        let settings = settings(1, 1, &addresses);
        thread::spawn(|| start(settings))
    };
    let first = start_first();
    let refused = |change: fn(&mut ProcessSettings)| {
        let mut settings = settings(2, 1, &addresses);
        change(&mut settings);
        start(settings).err().expect("it is refused")
    };
    let why = refused(|settings| settings.cluster = "other".to_string());
    assert!(why.contains("20002") && why.contains("\"other\"") && why.contains("\"test\""), "{why}");
    let why = refused(|settings| settings.others.truncate(1));
    assert!(why.contains("20031") && why.contains("1 (0), 2 (0), 3 (0)"), "{why}");
    let why = refused(|settings| settings.configuration = ConfigurationStamp { generation: 4, digest: 9 });
    assert!(
        why.contains("data node 1 has generation 3, data node 2 generation 4; start data node 1"),
        "{why}"
    );
    let why = refused(|settings| settings.heartbeat_interval *= 2);
    assert!(
        why.contains("20031") && why.contains("HeartbeatIntervalDbDb is 250 ms here, 500 ms at data node 2"),
        "{why}"
    );
    let why = refused(|settings| settings.places[1].host = "127.0.0.9".to_string());
    assert!(
        why.contains("20031")
            && why.contains("data node 2 is at 127.0.0.1")
            && why.contains("127.0.0.9, port"),
        "{why}"
    );
    let why = refused(|settings| settings.places[2].port += 1);
    assert!(why.contains("20031") && why.contains("data node 3 is at"), "{why}");
    // It goes on waiting for those that are configured like itself.
    let others = start_all(vec![settings(2, 1, &addresses), settings(3, 1, &addresses)]);
    let (first, _) = first.join().unwrap().expect("the others have come");
    first.stop();
    others.into_iter().for_each(|(node, _)| node.stop());
}

/// A key, and another one.
fn keys() -> [Arc<ClusterKey>; 2] {
    let folder = tempfile::tempdir().expect("a folder can be made");
    ["one", "other"].map(|name| Arc::new(ClusterKey::make(&folder.path().join(name)).expect("there is room")))
}

#[test]
fn nodes_prove_the_key_of_their_cluster_to_each_other() {
    let [key, other] = keys();
    let addresses = addresses(3);
    let with = |node, key: Option<&Arc<ClusterKey>>| {
        let mut settings = settings(node, 2, &addresses);
        settings.key = key.cloned();
        settings
    };
    let first = with(1, Some(&key));
    let first = thread::spawn(|| start(first));
    let why = start(with(2, Some(&other))).err().expect("it has another key");
    assert!(why.contains("20033") && why.contains("data node 1"), "{why}");
    let why = start(with(2, None)).err().expect("it has none");
    assert!(why.contains("20032") && why.contains("data node 1"), "{why}");
    // It goes on waiting for those that have its key.
    let others = start_all(vec![with(2, Some(&key)), with(3, Some(&key))]);
    let (first, _) = first.join().unwrap().expect("the others have come");
    first.stop();
    others.into_iter().for_each(|(node, _)| node.stop());
}

/// Those that have begun look for nobody: the one with the lowest id has to find it out itself.
#[test]
fn a_node_with_another_key_does_not_join_a_cluster_that_runs() {
    let [key, other] = keys();
    for late in [2, 1] {
        let addresses = addresses(2);
        let with = |node, key: Option<&Arc<ClusterKey>>| {
            let mut settings = settings(node, 1, &addresses);
            settings.key = key.cloned();
            settings
        };
        let nodes = start_all(vec![with(1, Some(&key)), with(2, Some(&key))]);
        let mut nodes: BTreeMap<u8, _> = (1..).zip(nodes).collect();
        let (gone, _) = nodes.remove(&late).unwrap();
        gone.stop();
        for (its, number) in [(Some(&other), "20033"), (None, "20032")] {
            let why = start(again(with(late, its), 100)).err().expect("it is refused");
            assert!(why.contains(number) && why.contains(&format!("data node {}", 3 - late)), "{why}");
        }
        nodes.into_values().for_each(|(node, _)| node.stop());
    }
}

#[test]
fn a_node_with_a_key_does_not_join_one_without() {
    let [key, _] = keys();
    let addresses = addresses(2);
    let first = settings(1, 1, &addresses);
    let first = thread::spawn(|| start(first));
    let mut second = settings(2, 1, &addresses);
    second.key = Some(key);
    let why = start(second).err().expect("the first one can't prove it");
    assert!(why.contains("20033") && why.contains("no cluster key at this node"), "{why}");
    let second = start_all(vec![settings(2, 1, &addresses)]);
    let (first, _) = first.join().unwrap().expect("the other one has come");
    first.stop();
    second.into_iter().for_each(|(node, _)| node.stop());
}

#[test]
fn a_node_greets_as_the_one_that_has_proven_the_key() {
    let [key, _] = keys();
    let addresses = addresses(3);
    let with = |node| {
        let mut settings = settings(node, 1, &addresses);
        settings.key = Some(key.clone());
        settings
    };
    let (first, second) = (with(1), with(2));
    let first = thread::spawn(|| start(first));
    wait_until("it listens", || TcpStream::connect(addresses[0]).is_ok());
    let mut link = TcpStream::connect(addresses[0]).unwrap();
    link.set_read_timeout(Some(HANG_GUARD)).unwrap();
    let terms =
        ConnectionTerms::new(ConnectionPurpose::Link, NodeId(3), NodeId(1), &second.cluster).to(addresses[0]);
    vinga_key::prove(&mut link, &key, Address::NONE, terms).expect("it has the key");
    link.write_all(&hello_frame(&second, &ProcessIdentity::default())).unwrap();
    let mut answer = Vec::new();
    link.read_to_end(&mut answer).expect("it is answered");
    let answer = Frame::first(&answer).expect("a frame").expect("a whole one");
    assert_eq!(answer.signal(), Some(SignalNumber::NodeHelloRefuse));
    let refusal: Refusal = cold::read(&answer).expect("it can be read");
    assert_eq!(ErrorCode::from_number(refusal.code), Some(ErrorCode::KeyForAnother), "{refusal:?}");
    // Both are awaited as before.
    let others = start_all(vec![second, with(3)]);
    let (first, _) = first.join().unwrap().expect("the others have come");
    first.stop();
    others.into_iter().for_each(|(node, _)| node.stop());
}

/// How the node with these settings greets by its first link.
fn hello(settings: &ProcessSettings, process: &ProcessIdentity) -> NodeHello {
    NodeHello {
        magic: MAGIC,
        protocol: Protocol::own(),
        cluster: settings.cluster.clone(),
        data_nodes: settings.data_nodes(),
        heartbeat_interval: settings.heartbeat_interval.as_micros() as u64,
        configuration: settings.configuration,
        member: settings.view.member(settings.node).expect("a node knows itself").clone(),
        process: process.clone(),
        link: 0,
        places: settings.places.clone(),
        begun: None,
    }
}

fn hello_frame(settings: &ProcessSettings, process: &ProcessIdentity) -> Vec<u8> {
    hello_frame_of(SignalNumber::NodeHelloRequest, &hello(settings, process))
}

fn hello_frame_of(number: SignalNumber, hello: &NodeHello) -> Vec<u8> {
    let driver = |node| Address::new(node, BlockNumber::Driver, 0);
    let (receiver, sender) = (driver(NodeId(0)), driver(hello.member.node));
    let mut frame = Vec::new();
    cold::write(&mut FrameWriter::begin(&mut frame, number, 0, receiver, sender, 0), hello);
    frame
}

/// A process that greets as the node with these settings: its first link, and whether it is accepted.
fn greet(settings: &ProcessSettings, process: &ProcessIdentity, to: SocketAddr) -> (TcpStream, bool) {
    let request = hello_frame(settings, process);
    wait_until("somebody listens there", || TcpStream::connect(to).is_ok());
    let mut link = TcpStream::connect(to).unwrap();
    link.set_read_timeout(Some(HANG_GUARD)).unwrap();
    link.write_all(&request).unwrap();
    let mut answer = vec![0; 64 * 1024];
    let count = link.read(&mut answer).expect("it is answered");
    let answer = Frame::first(&answer[..count]).expect("a frame").expect("a whole one");
    match answer.signal() {
        Some(SignalNumber::NodeHelloConfirm) => (link, true),
        Some(SignalNumber::NodeHelloRefuse) => {
            let refusal: Refusal = cold::read(&answer).expect("it can be read");
            assert_eq!(ErrorCode::from_number(refusal.code), Some(ErrorCode::NodeIdInUse), "{refusal:?}");
            (link, false)
        }
        signal => panic!("{signal:?} came"),
    }
}

/// A node reports that it is connected to these, itself among them.
fn report_connected(link: &mut TcpStream, node: NodeId, nodes: &[NodeId]) {
    let nodes = nodes.iter().map(|&node| (node, Incarnation(u32::from(node.0)))).collect();
    let driver = |node| Address::new(node, BlockNumber::Driver, 0);
    let (receiver, sender) = (driver(NodeId(0)), driver(node));
    let mut report = Vec::new();
    let number = SignalNumber::NodesConnectedReport;
    cold::write(
        &mut FrameWriter::begin(&mut report, number, 0, receiver, sender, 0),
        &NodesConnectedReport { nodes },
    );
    link.write_all(&report).unwrap();
}

/// From now on the system takes nothing for this connection any more, as if the machine had vanished.
fn vanish(link: &TcpStream) {
    // Returns 0: of each packet no byte is taken.
    let code = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut instruction = libc::sock_filter { code, jt: 0, jf: 0, k: 0 };
    let filter = libc::sock_fprog { len: 1, filter: &raw mut instruction };
    let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let (socket, value) = (link.as_raw_fd(), (&raw const filter).cast());
    // SAFETY: the system copies the filter, which is valid during the call, and `size` is its size.
    let result = unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value, size) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// A start on a thread of its own.
type Start = JoinHandle<Result<(NodeProcess, Arc<Records>), String>>;

/// Starts a node on a thread of its own.
fn begin(settings: ProcessSettings) -> Start {
    thread::spawn(|| start(settings))
}

/// Waits for nodes that find each other, and stops them.
fn await_and_stop(starts: Vec<Start>) {
    wait_until("they find each other", || starts.iter().all(JoinHandle::is_finished));
    let nodes: Vec<_> = starts.into_iter().map(|start| start.join().unwrap().expect("they begin")).collect();
    nodes.into_iter().for_each(|(node, _)| node.stop());
}

/// Nothing closes the links of a machine that was switched off; its next start must be greeted all the same.
#[test]
fn a_machine_that_vanishes_before_the_first_view_may_come_back() {
    let addresses = addresses(2);
    let first = begin(settings(1, 1, &addresses));
    let second = settings(2, 1, &addresses);
    let (link, is_accepted) = greet(&second, &ProcessIdentity::default(), addresses[0]);
    assert!(is_accepted);
    vanish(&link);
    await_and_stop(vec![first, begin(second)]);
}

/// Which links are missing is known to the two that miss them, and to the node with the lowest id.
#[test]
fn the_first_node_says_which_links_others_miss() {
    let path = std::env::temp_dir().join(format!("vinga-formation-{}.log", std::process::id()));
    let settings_of_log =
        LogSettings { level: log::LevelFilter::Info, file: Some(path.clone()), stderr: false, copy: None };
    vinga_runtime::log::begin(&settings_of_log).expect("no other test logs");
    let addresses = addresses(3);
    let first = begin(settings(1, 1, &addresses));
    let others = [2, 3].map(|node| settings(node, 1, &addresses));
    let links = others.each_ref().map(|other| {
        let (mut link, is_accepted) = greet(other, &ProcessIdentity::default(), addresses[0]);
        assert!(is_accepted);
        report_connected(&mut link, other.node, &[NodeId(1), other.node]);
        link
    });
    let says = |text: &str| {
        wait_until(text, || std::fs::read_to_string(&path).is_ok_and(|log| log.contains(text)));
    };
    says("data node 2 has not all links to data node 3 yet");
    says("data node 3 has not all links to data node 2 yet");
    // What others send is shown in one line.
    let mut strange = settings(2, 1, &addresses);
    strange.cluster = "a\nb".to_string();
    assert!(start(strange).is_err());
    says("the other node's is \"a\\nb\"");
    drop(links);
    await_and_stop([first].into_iter().chain(others.map(begin)).collect());
    let _ = std::fs::remove_file(&path);
}

/// The one that is there is not disturbed, though both have counted the same number of starts.
#[test]
fn a_second_process_with_the_id_of_one_that_is_there_is_refused() {
    let addresses = addresses(2);
    let first = begin(settings(1, 1, &addresses));
    let second = settings(2, 1, &addresses);
    let process = |process| ProcessIdentity { process, ..ProcessIdentity::default() };
    let (mut link, is_accepted) = greet(&second, &process(1), addresses[0]);
    assert!(is_accepted);
    let (_, is_accepted) = greet(&second, &process(2), addresses[0]);
    assert!(!is_accepted, "two processes have one id");
    link.set_nonblocking(true).unwrap();
    assert_eq!(link.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "the first one stays");
    drop(link);
    await_and_stop(vec![first, begin(second)]);
}

/// A data node that begins properly, and then sends such a frame: the other one goes on without it.
fn goes_on_without_one_that_sends(signal: SignalNumber, sender: Address, receiver: Address) {
    let addresses = addresses(2);
    let first = begin(settings(1, 1, &addresses));
    let second = settings(2, 1, &addresses);
    let (mut link, is_accepted) = greet(&second, &ProcessIdentity::default(), addresses[0]);
    assert!(is_accepted);
    report_connected(&mut link, NodeId(2), &[NodeId(1), NodeId(2)]);
    wait_until("the first one has begun", || first.is_finished());
    let (first, records) = first.join().unwrap().expect("the second one is connected");
    let mut wrong = Vec::new();
    FrameWriter::begin(&mut wrong, signal, 1, receiver, sender, 0);
    link.write_all(&wrong).unwrap();
    // Everything that was sent before, and then the end.
    let mut buffer = vec![0; 64 * 1024];
    while link.read(&mut buffer).is_ok_and(|count| count > 0) {}
    wait_until("it has gone on", || !records.views.lock().unwrap().is_empty());
    assert_eq!(*records.closed.lock().unwrap(), [2]);
    assert_eq!(records.views.lock().unwrap()[&0], [1]);
    first.stop();
}

#[test]
fn a_data_node_whose_signal_a_block_rejects_is_given_up() {
    let coordinator = |node| Address::new(NodeId(node), BlockNumber::Coordinator, 0);
    goes_on_without_one_that_sends(SignalNumber::EpochClaimReport, coordinator(2), coordinator(1));
}

#[test]
fn a_data_node_that_sends_orders_to_a_driver_is_given_up() {
    let sender = Address::new(NodeId(2), BlockNumber::Agreement, 0);
    let driver = Address::new(NodeId(1), BlockNumber::Driver, 0);
    goes_on_without_one_that_sends(SignalNumber::StopNodeOrder, sender, driver);
}

/// A management node of the cluster of two nodes, at this address.
fn arbitrator(listen: SocketAddr, cluster: &str) -> ManagementNode {
    arbitrator_with(listen, cluster, None)
}

fn arbitrator_with(listen: SocketAddr, cluster: &str, key: Option<Arc<ClusterKey>>) -> ManagementNode {
    let data_nodes = vec![(NodeId(1), 0), (NodeId(2), 0)];
    let handout = Handout { stamp: ConfigurationStamp::default(), text: String::new(), hosts: Vec::new() };
    let settings = ManagementSettings {
        node: NodeId(3),
        cluster: cluster.to_string(),
        key,
        data_nodes,
        handout,
        folder: None,
        listen,
    };
    ManagementNode::start(settings).expect("nobody listens there")
}

/// Two nodes with these management nodes.
fn pair_with(arbitrators: &[(u8, SocketAddr)]) -> Vec<(NodeProcess, Arc<Records>)> {
    pair_with_key(arbitrators, None)
}

fn pair_with_key(
    arbitrators: &[(u8, SocketAddr)],
    key: Option<&Arc<ClusterKey>>,
) -> Vec<(NodeProcess, Arc<Records>)> {
    let addresses = addresses(2);
    let arbitrators =
        arbitrators.iter().map(|&(node, address)| OtherManagementNode { node: NodeId(node), address });
    let arbitrators: Vec<_> = arbitrators.collect();
    let all = (1..=2).map(|node| {
        let mut settings = settings(node, 2, &addresses);
        settings.arbitrators.clone_from(&arbitrators);
        settings.key = key.cloned();
        settings.arbitration_timeout = HANG_GUARD;
        settings
    });
    start_all(all.collect())
}

/// Stops the second node, and returns what the arbitrator answers to the first one then.
fn answer_without_the_second(nodes: Vec<(NodeProcess, Arc<Records>)>) -> Result<u64, String> {
    let mut nodes = nodes.into_iter();
    let ((first, records), (second, _)) = (nodes.next().unwrap(), nodes.next().unwrap());
    second.stop();
    wait_until("the arbitrator has answered", || !records.answers.lock().unwrap().is_empty());
    first.stop();
    let answers = records.answers.lock().unwrap();
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers[0].clone()
}

#[test]
fn an_arbitrator_is_asked_with_the_key() {
    let [key, other] = keys();
    let at_any_port = "127.0.0.1:0".parse().unwrap();
    let node = arbitrator_with(at_any_port, "test", Some(key.clone()));
    let verdict = answer_without_the_second(pair_with_key(&[(3, node.address())], Some(&key)));
    assert_eq!(verdict, Ok(NEXT_TICKET));
    node.stop();
    for its in [Some(other), None] {
        let node = arbitrator_with(at_any_port, "test", its);
        for (one, records) in pair_with_key(&[(3, node.address())], Some(&key)) {
            assert_eq!(*records.ticket.lock().unwrap(), Some(NO_TICKET));
            one.stop();
        }
        node.stop();
    }
}

#[test]
fn an_arbitrator_takes_the_ticket_of_the_first_view_and_is_asked_later() {
    let node = arbitrator("127.0.0.1:0".parse().unwrap(), "test");
    let [unused] = addresses(1)[..] else { panic!("one") };
    // Nobody is there at the address of another one.
    let nodes = pair_with(&[(3, node.address()), (4, unused)]);
    let ticket = |at: usize| nodes[at].1.ticket.lock().unwrap().expect("it has begun");
    assert!(ticket(0) != NO_TICKET && ticket(0) == ticket(1));
    assert_eq!(answer_without_the_second(nodes), Ok(NEXT_TICKET));
    node.stop();
}

#[test]
fn an_arbitrator_that_has_started_again_refuses() {
    let node = arbitrator("127.0.0.1:0".parse().unwrap(), "test");
    let address = node.address();
    let nodes = pair_with(&[(3, address)]);
    node.stop();
    let node = arbitrator(address, "test");
    let why = answer_without_the_second(nodes).expect_err("it knows no ticket");
    assert!(why.contains("does not know their ticket (management node 3)"), "{why}");
    node.stop();
}

#[test]
fn without_an_arbitrator_that_takes_it_the_first_view_has_no_ticket() {
    let node = arbitrator("127.0.0.1:0".parse().unwrap(), "other");
    let [unused] = addresses(1)[..] else { panic!("one") };
    let nodes = pair_with(&[(3, node.address()), (4, unused)]);
    for (node, records) in nodes {
        assert_eq!(*records.ticket.lock().unwrap(), Some(NO_TICKET));
        assert!(records.answers.lock().unwrap().is_empty());
        node.stop();
    }
    node.stop();
}
