//! A small node for tests and measurements, and a client that sends exactly what the test says.
//!
//! | a client sends, to a coordinator | and gets |
//! |---|---|
//! | `KeyReadRequest` | `KeyReadConfirm` with the same body |
//! | `ScanOpenRequest` with a number | `ScanConfirm` with this many bytes |
//! | `ScanNextRequest` with a coordinator's number | the same request sent on to it, whose answer is `KeyReadConfirm` |
//! | `TransactionRequest` with a number | nothing: this many signals within the thread, each some work |
//! | `IndexStatisticsRequest` | nothing: some work |
//! | `ScanCloseOrder` | its connections closed for a rule broken |
//! | `OutcomeRequest` | nothing: the thread is stuck |
//! | `OutcomesSeenOrder` | nothing: the thread panics |
//! | `DisconnectOrder` | its connections closed: the node can't go on |
//! | `HeartbeatRequest` | nothing: the thread touches memory that is not mapped |
#![allow(dead_code, reason = "no test program needs all of it")]

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::{Context, Host, LogLevel, Prefetch};
use vinga_rig::raw::{NotAdmitted, RawClient, hello};
use vinga_runtime::files::FileSettings;
use vinga_runtime::node_process::NodeProcess;
use vinga_runtime::settings::{Limits, ProcessSettings, ThreadSettings};
use vinga_wire::handshake::HelloRequest;
use vinga_wire::membership::{
    ApiConnectConfirm, ApiConnectRefuse, ApiConnectRequest, ApiNodeBody, CloseConnectionOrder,
};
use vinga_wire::view::{ClusterView, ConnectionHosts, Member, ViewChange};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U16, U32, cold};

pub const NODE: NodeId = NodeId(1);
const FIRST_API: u8 = 145;
pub const API_NODES_MAX: usize = 100;
/// How long some work takes.
const WORK: Duration = Duration::from_micros(10);

/// How long a test waits for an expected event: no machine is so busy that it takes longer.
pub const HANG_GUARD: Duration = Duration::from_secs(180);

/// What all threads of a node record for the test.
pub struct Records {
    /// `(node, incarnation)` of the API nodes that Membership was notified of as disconnected.
    pub gone: Mutex<Vec<(u8, u32)>>,
    /// API nodes that blocks want closed, and that no thread of the node is connected to.
    pub unwanted: Mutex<Vec<u8>>,
    /// How many pieces of some work were done.
    pub work: AtomicU64,
    /// Whether requests are on their way to an answer, whose rest is done elsewhere.
    pub is_working: AtomicBool,
    /// By node id: whether it is connected, as far as Membership was notified.
    connected: Vec<AtomicBool>,
}

impl Default for Records {
    fn default() -> Self {
        let connected = (0..=u8::MAX).map(|_| AtomicBool::new(false)).collect();
        Records {
            gone: Mutex::default(),
            unwanted: Mutex::default(),
            work: AtomicU64::new(0),
            is_working: AtomicBool::new(false),
            connected,
        }
    }
}

impl Records {
    /// The API nodes that have disconnected.
    pub fn gone(&self) -> Vec<(u8, u32)> {
        self.gone.lock().unwrap().clone()
    }
}

/// The blocks of one thread.
pub struct EchoHost {
    records: Arc<Records>,
    /// For Membership: incarnation and ticket of each API node.
    api_nodes: BTreeMap<u8, (u32, u64)>,
    /// By ticket: the API nodes that are not connected any more, and may reconnect.
    closed: BTreeMap<u64, (u8, u32)>,
}

impl Host for EchoHost {
    fn start(&mut self, _: &mut Context<'_>) {}

    fn is_working(&self) -> bool {
        self.records.is_working.load(Ordering::Relaxed)
    }

    fn prefetch(&self, _: Prefetch, _: &Frame<'_>) -> bool {
        false
    }

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        if frame.sender().block() == Some(BlockNumber::Api) {
            // Membership is notified that an API node has disconnected behind the last frame that was read from it.
            let is_connected = &self.records.connected[usize::from(frame.sender().node().0)];
            assert!(is_connected.load(Ordering::Relaxed), "{} has disconnected", frame.sender());
        }
        let number = |frame: &Frame<'_>| frame.head::<U32>().map_or(0, |(number, _)| number.get());
        match frame.signal().expect("only known signals arrive") {
            SignalNumber::ApiConnectRequest => self.on_connect(cx, frame),
            SignalNumber::ApiDisconnectedReport => {
                let (body, _) = frame.head::<ApiNodeBody>().unwrap();
                let (incarnation, ticket) = self.api_nodes.remove(&body.api).expect("it was connected");
                self.closed.insert(ticket, (body.api, incarnation));
                assert_eq!(incarnation, body.incarnation.get());
                self.records.connected[usize::from(body.api)].store(false, Ordering::Relaxed);
                self.records.gone.lock().unwrap().push((body.api, incarnation));
            }
            SignalNumber::CloseConnectionOrder => {
                let (order, _) = frame.head::<CloseConnectionOrder>().unwrap();
                self.records.unwanted.lock().unwrap().push(order.api);
            }
            SignalNumber::KeyReadRequest => {
                cx.frame(SignalNumber::KeyReadConfirm, frame.sender()).bytes(frame.body);
            }
            SignalNumber::ScanOpenRequest => {
                let bytes = vec![7; number(frame) as usize];
                cx.frame(SignalNumber::ScanConfirm, frame.sender()).bytes(&bytes);
            }
            SignalNumber::ScanNextRequest => {
                let other = Address::new(NODE, BlockNumber::Coordinator, number(frame) as u16);
                let mut writer = cx.frame(SignalNumber::PrepareRequest, other);
                writer.put(&U32::new(frame.sender().0)).bytes(&frame.body[4..]);
            }
            SignalNumber::PrepareRequest => {
                let client = Address(number(frame));
                cx.frame(SignalNumber::KeyReadConfirm, client).bytes(&frame.body[4..]);
            }
            SignalNumber::TransactionRequest => {
                for _ in 0..number(frame) {
                    cx.frame(SignalNumber::CommitRequest, frame.receiver());
                }
            }
            SignalNumber::CommitRequest | SignalNumber::IndexStatisticsRequest => {
                let begun = Instant::now();
                while begun.elapsed() < WORK {
                    std::hint::spin_loop();
                }
                self.records.work.fetch_add(1, Ordering::Relaxed);
            }
            SignalNumber::ScanCloseOrder => {
                let driver = cx.driver();
                let reason = ErrorCode::NoSuchScan as u16;
                let api = match number(frame) {
                    0 => frame.sender().node().0,
                    other => other as u8,
                };
                cx.frame(SignalNumber::CloseConnectionOrder, driver).put(&CloseConnectionOrder {
                    api,
                    unused: 0,
                    reason: U16::new(reason),
                    signal: U16::new(SignalNumber::ScanCloseOrder as u16),
                });
            }
            SignalNumber::OutcomeRequest => loop {
                std::hint::spin_loop();
            },
            SignalNumber::OutcomesSeenOrder => panic!("as the client requested"),
            SignalNumber::DisconnectOrder => {
                let why = format_args!("the disk of {} is broken", frame.sender());
                cx.stop_node_for(ErrorCode::Partitioned as u16, why);
            }
            SignalNumber::HeartbeatRequest => {
                // SAFETY: it is not sound; the thread crashes by it, as the client requested.
                unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
            }
            signal => panic!("{signal:?} has no meaning here"),
        }
    }

    fn view_changed(&mut self, _: &mut Context<'_>, _: &ViewChange) {}

    fn slice(&mut self, _: &mut Context<'_>) -> bool {
        false
    }
}

impl EchoHost {
    pub fn new(records: Arc<Records>) -> Self {
        EchoHost { records, api_nodes: BTreeMap::new(), closed: BTreeMap::new() }
    }

    fn on_connect(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        let request: ApiConnectRequest = cold::read(frame).unwrap();
        let admitted = match request.ticket {
            0 => {
                let free = (FIRST_API..=u8::MAX).find(|api| !self.api_nodes.contains_key(api));
                free.filter(|_| self.api_nodes.len() < API_NODES_MAX).map(|api| {
                    let ticket = cx.random().u64(1..);
                    self.api_nodes.insert(api, (request.incarnation, ticket));
                    self.records.connected[usize::from(api)].store(true, Ordering::Relaxed);
                    (api, ticket)
                })
            }
            ticket => {
                if let Some((api, incarnation)) = self.closed.remove(&ticket) {
                    self.api_nodes.insert(api, (incarnation, ticket));
                    self.records.connected[usize::from(api)].store(true, Ordering::Relaxed);
                }
                let known = self.api_nodes.iter().find(|(_, (_, own))| *own == ticket);
                known.map(|(&api, _)| (api, ticket))
            }
        };
        let driver = frame.sender();
        match admitted {
            Some((api, ticket)) => {
                let (waiting, incarnation, view) = (request.waiting, request.incarnation, cx.view().clone());
                let confirm = ApiConnectConfirm { waiting, api, incarnation, ticket, admission: 1, view };
                cold::write(&mut cx.frame(SignalNumber::ApiConnectConfirm, driver), &confirm);
                cx.log(LogLevel::Info, format_args!("API node {api} is admitted"));
            }
            None => {
                let code = ErrorCode::NoFreeNodeId as u16;
                let refuse = ApiConnectRefuse { waiting: request.waiting, code, detail: String::new() };
                cold::write(&mut cx.frame(SignalNumber::ApiConnectRefuse, driver), &refuse);
            }
        }
    }
}

/// View 1 of a cluster of this node alone.
fn view(coordinators: u16) -> Arc<ClusterView> {
    let connections = vec![ConnectionHosts::default(); usize::from(coordinators)];
    let member = Member::started(NODE, Incarnation(3), 0, 1, coordinators).with_connections(connections);
    Arc::new(ClusterView::first(vec![member]))
}

/// Settings of a node whose threads all own sockets and host the coordinator of their index.
pub fn settings(threads: u16) -> ProcessSettings {
    let plan = |index: u16| ThreadSettings {
        name: format!("worker{index}"),
        owns_sockets: true,
        sends: true,
        ..ThreadSettings::default()
    };
    let mut instances: Vec<(BlockNumber, u16)> =
        (0..threads).map(|thread| (BlockNumber::Coordinator, thread)).collect();
    instances.push((BlockNumber::Membership, 0));
    ProcessSettings {
        node: NODE,
        incarnation: Incarnation(3),
        cluster_incarnation: 4,
        database: 4,
        cluster: "test".to_string(),
        key: None,
        listen: "127.0.0.1:0".parse().unwrap(),
        listen_locally: None,
        local_group: None,
        threads: (0..threads).map(plan).collect(),
        helpers: ThreadSettings::default(),
        files: FileSettings::default(),
        instances,
        view: view(threads),
        seed: 1,
        limits: Limits::default(),
        has_disk: false,
        joins: Arc::default(),
        first_start: None,
        start_progress: None,
        others: Vec::new(),
        places: Vec::new(),
        arbitrators: Vec::new(),
        arbitration_timeout: Duration::ZERO,
        heartbeat_interval: Duration::from_millis(250),
        configuration: vinga_wire::configuration::ConfigurationStamp { generation: 3, digest: 7 },
        peers: Arc::default(),
        bug: None,
    }
}

/// As [`settings`], once unchanged and once with two send threads that write for all.
pub fn both_ways(threads: u16) -> [ProcessSettings; 2] {
    let mut relayed = settings(threads);
    relayed.threads.iter_mut().for_each(|plan| plan.sends = false);
    relayed.threads.extend((0..2).map(|index| ThreadSettings {
        name: format!("send{index}"),
        sends: true,
        ..ThreadSettings::default()
    }));
    [settings(threads), relayed]
}

/// Starts a node of [`EchoHost`]s.
pub fn start(settings: ProcessSettings) -> (NodeProcess, Arc<Records>) {
    let records = Arc::new(Records::default());
    let node = NodeProcess::start(settings, {
        let records = records.clone();
        move |_, _| EchoHost::new(records.clone())
    });
    (node.unwrap(), records)
}

/// Checks that no thread has slept while there was work for it.
pub fn assert_awake(node: &NodeProcess) {
    for thread in node.statistics().iter() {
        assert_eq!(thread.missed_wakeups.get(), 0, "{} was not woken for something", thread.name);
    }
}

/// A client over TCP.
pub type Client = RawClient<TcpStream>;

/// Connects as a new API node.
pub fn connect(address: SocketAddr) -> Client {
    connect_with(address, &hello()).expect("a good greeting is confirmed")
}

/// Connects with this greeting.
pub fn connect_with(address: SocketAddr, hello: &HelloRequest) -> Result<Client, NotAdmitted> {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(HANG_GUARD)).unwrap();
    Client::greet(stream, hello)
}

/// Opens a further connection of the same API node.
pub fn join(client: &Client, address: SocketAddr, connection: u16) -> Result<Client, NotAdmitted> {
    connect_with(address, &HelloRequest { connection, ticket: client.ticket, ..hello() })
}

/// What clients of these tests send to the blocks, which echo it.
pub trait Echoes {
    /// Appends a request to `out`.
    fn request(&self, out: &mut Vec<u8>, number: SignalNumber, coordinator: u16, trace: u32, body: &[u8]);

    /// Sends one request.
    fn ask(&mut self, number: SignalNumber, coordinator: u16, trace: u32, body: &[u8]) -> io::Result<()>;

    /// Receives so many frames without looking at them.
    fn receive_many(&mut self, count: usize);

    /// The next answer has this trace and so many bytes.
    fn expect(&mut self, trace: u32, bytes: usize);

    /// One request and its answer.
    fn echo(&mut self, coordinator: u16, trace: u32, body: &[u8]);
}

impl<S: Read + Write> Echoes for RawClient<S> {
    fn request(&self, out: &mut Vec<u8>, number: SignalNumber, coordinator: u16, trace: u32, body: &[u8]) {
        assert_eq!(self.node, NODE);
        self.traced_frame(out, number, (BlockNumber::Coordinator, coordinator), trace, |writer| {
            writer.bytes(body);
        });
    }

    fn ask(&mut self, number: SignalNumber, coordinator: u16, trace: u32, body: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.request(&mut bytes, number, coordinator, trace, body);
        self.stream.write_all(&bytes)
    }

    fn receive_many(&mut self, count: usize) {
        for _ in 0..count {
            self.receive(|_| ()).unwrap().expect("the node keeps answering");
        }
    }

    fn expect(&mut self, trace: u32, bytes: usize) {
        let seen = self.receive(|frame| (frame.header.trace.get(), frame.body.len()));
        assert_eq!(seen.unwrap().expect("the node keeps answering"), (trace, bytes));
    }

    fn echo(&mut self, coordinator: u16, trace: u32, body: &[u8]) {
        self.ask(SignalNumber::KeyReadRequest, coordinator, trace, body).unwrap();
        let look = |frame: &Frame<'_>| {
            assert_eq!(frame.signal(), Some(SignalNumber::KeyReadConfirm));
            assert_eq!(frame.header.trace.get(), trace);
            assert_eq!(&frame.body[..body.len()], body);
        };
        self.receive(look).unwrap().expect("the node answers");
    }
}

/// Waits until `condition` holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < HANG_GUARD, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A number as a body.
pub fn number(value: u32) -> [u8; 4] {
    value.to_le_bytes()
}
