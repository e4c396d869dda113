//! A client of the simulator: speaks the wire protocol as a real client does, with nothing in between.
//!
//! It connects to every data node, keeps a ticket to come back with after its connections broke, asks for the outcomes
//! of what was being committed then, and confirms outcomes. What sessions ask for is turned into signals (`batches`,
//! `reads`, `scans`, `schema`, `schema_events`), what comes back into answers for sessions and records of the history.
//! It adds no cleverness: a step that can't be carried out fails.

mod batches;
mod connecting;
mod outcomes;
mod reads;
mod scans;
mod schema;
mod schema_events;

use crate::agenda::Time;
use crate::schema::Changes;
use batches::OpenTransaction;
use connecting::{Link, Phase};
use outcomes::Seen;
use reads::{ReadCall, Search};
use scans::OpenScan;
use schema_events::Watching;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vinga_base::hash::KeyHash;
use vinga_base::{Incarnation, NodeId};
use vinga_kernel::InjectedBug;
use vinga_wire::dictionary::TableRecord;
use vinga_wire::frame::Frame;
use vinga_wire::view::ClusterView;
use vinga_wire::{Address, BlockNumber, ErrorCode, FrameWriter, SignalNumber};
use vinga_workloads::history::History;
use vinga_workloads::shape::Shape;
use vinga_workloads::step::{Answer, Fate, Step, TableRef};

/// One of the connections to one of the data nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkKey {
    /// The data node.
    pub node: u8,
    /// Which connection.
    pub index: u16,
}

/// What the world has to do for a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Open a connection; `on_opened` or `on_closed` follows.
    Open(LinkKey),
    /// Close it; nothing follows.
    Close(LinkKey),
}

/// What a client needs of the world in each call.
pub struct Surroundings<'a> {
    /// What time it is.
    pub now: Time,
    /// The tables of the run.
    pub shapes: &'a [Shape],
    /// Where everything is written down.
    pub history: &'a mut History,
    /// What can't be true.
    pub violations: &'a mut Vec<String>,
    /// Which table a birth belongs to.
    pub names: &'a mut BTreeMap<u64, TableRef>,
    /// The rule that is broken on purpose.
    pub bug: Option<InjectedBug>,
    /// What is known of schema changes.
    pub changes: &'a mut Changes,
}

/// What is under way for a session, by the tag that its answer carries.
enum Call {
    Execute,
    Read(ReadCall),
    Schema {
        session: usize,
        table: TableRef,
        sent: Time,
        /// Whether subscribers are told of it.
        has_event: bool,
    },
    Lock {
        session: usize,
    },
    Outcome {
        session: usize,
    },
}

/// What one session has open.
#[derive(Default)]
struct SessionState {
    transaction: Option<OpenTransaction>,
    scan: Option<OpenScan>,
    search: Option<Search>,
    /// The tag of its schema lock.
    lock: Option<u32>,
}

/// See the head of this file.
pub struct Client {
    node: NodeId,
    president: u8,
    incarnation: Incarnation,
    ticket: u64,
    heartbeat_interval: Time,
    phase: Phase,
    view_known: ClusterView,
    view: u32,
    epoch_seen: u64,
    links: BTreeMap<LinkKey, Link>,
    /// Data nodes whose connections broke while that to the president held.
    lost: BTreeSet<u8>,
    /// Extra connections that were opened to learn a newer layout.
    extra: u16,
    /// What this client knows of the tables.
    tables: BTreeMap<TableRef, TableRecord>,
    watching: Watching,
    calls: BTreeMap<u32, Call>,
    sessions: Vec<SessionState>,
    /// Steps that wait for the connections.
    waiting: VecDeque<(usize, Step)>,
    seen: BTreeMap<Address, Seen>,
    tag: u32,
    transactions: u64,
    /// For sessions.
    pub answers: VecDeque<(usize, Answer)>,
    /// For the world.
    pub commands: VecDeque<Command>,
    heartbeat_at: Time,
}

impl Client {
    /// A client that is going to connect, in its first incarnation.
    pub fn new(node: NodeId, president: u8, incarnation: Incarnation, heartbeat_interval: Time) -> Self {
        Client {
            node,
            president,
            incarnation,
            ticket: 0,
            heartbeat_interval,
            phase: Phase::Down { until: 0 },
            view_known: ClusterView::default(),
            view: 0,
            epoch_seen: 0,
            links: BTreeMap::new(),
            lost: BTreeSet::new(),
            extra: 0,
            tables: BTreeMap::new(),
            watching: Watching::new(node, incarnation),
            calls: BTreeMap::new(),
            sessions: Vec::new(),
            waiting: VecDeque::new(),
            seen: BTreeMap::new(),
            tag: 0,
            transactions: 0,
            answers: VecDeque::new(),
            commands: VecDeque::new(),
            heartbeat_at: 0,
        }
    }

    /// The next incarnation of the same client on the same machine, which remembers nothing.
    pub fn successor(&self) -> Client {
        let incarnation = Incarnation(self.incarnation.0 + 1);
        Client::new(self.node, self.president, incarnation, self.heartbeat_interval)
    }

    /// The process dies: nobody will learn what became of what it had under way.
    pub fn die(&mut self, cx: &mut Surroundings<'_>) {
        for session in 0..self.sessions.len() {
            let Some(transaction) = &self.sessions[session].transaction else { continue };
            let fate = match cx.history.transactions[transaction.index].commit_sent {
                Some(_) => Fate::Unknown,
                None => Fate::RolledBack { error: Some(ErrorCode::ConnectionLost), operation: 0 },
            };
            self.end_transaction(cx, session, fate);
        }
    }

    /// Sessions that have ended make room for new ones.
    pub fn forget_sessions(&mut self) {
        self.sessions.clear();
        self.calls.clear();
        self.waiting.clear();
        self.answers.clear();
    }

    /// Whether it (still) wants this connection.
    pub fn wants(&self, link: LinkKey) -> bool {
        self.links.get(&link).is_some_and(|link| !link.is_connected)
    }

    /// Where it stands, for people.
    pub fn describe(&self) -> String {
        let open: Vec<_> = self.links.iter().map(|(key, link)| (key.node, key.index, link.is_open)).collect();
        let calls: Vec<_> = self.calls.keys().collect();
        format!("{:?}, connections {open:?}, under way {calls:?}, waiting {}", self.phase, self.waiting.len())
    }

    /// Makes room for one more session.
    pub fn add_session(&mut self) {
        self.sessions.push(SessionState::default());
    }

    /// A session's step.
    pub fn submit(&mut self, cx: &mut Surroundings<'_>, session: usize, step: Step) {
        if !matches!(self.phase, Phase::Up) {
            self.waiting.push_back((session, step));
            return;
        }
        match step {
            Step::Execute(batch) => self.send_batch(cx, session, batch),
            Step::Read(read) => self.send_read(cx, session, read),
            Step::ScanOpen(scan) => self.open_scan(cx, session, scan),
            Step::ScanNext => self.next_batch(cx, session),
            Step::ScanClose => self.close_scan(session),
            Step::Seek { table, count } => self.begin_search(cx, session, table, count),
            Step::Sought(found) => self.end_search(cx, session, found),
            Step::Create(table) => self.send_create(cx, session, table),
            Step::Drop(table) => self.send_drop(cx, session, table),
            Step::Describe(table) => self.send_describe(cx, session, table),
            Step::Change(table, change) => self.send_change(cx, session, table, change),
            Step::Lock => self.send_lock(session),
            Step::Unlock => self.send_unlock(session),
            Step::Wait(_) | Step::End => unreachable!("waiting is not the client's business"),
        }
    }

    /// Whether nothing is under way and everything that is known is confirmed.
    pub fn is_idle(&self) -> bool {
        self.calls.is_empty()
            && self.waiting.is_empty()
            && self.seen.values().all(Seen::is_confirmed)
            && matches!(self.phase, Phase::Up)
    }

    /// Whole frames that came on a connection; says how many bytes they took.
    pub fn on_bytes(&mut self, cx: &mut Surroundings<'_>, link: LinkKey, bytes: &[u8]) -> usize {
        let mut consumed = 0;
        while let Some(frame) = Frame::first(&bytes[consumed..]).expect("data nodes send frames") {
            consumed += frame.length();
            if !self.links.contains_key(&link) {
                // The client itself has closed everything meanwhile.
                break;
            }
            self.on_frame(cx, link, &frame);
        }
        consumed
    }

    fn on_frame(&mut self, cx: &mut Surroundings<'_>, link: LinkKey, frame: &Frame<'_>) {
        let understood = match frame.signal() {
            Some(SignalNumber::HelloConfirm) => self.on_hello_confirm(cx, link, frame),
            Some(SignalNumber::HelloRefuse) => self.on_hello_refuse(cx, link, frame),
            Some(SignalNumber::HeartbeatConfirm) => self.on_heartbeat_confirm(frame),
            Some(SignalNumber::ViewChangedOrder) => self.on_view_changed(frame),
            Some(SignalNumber::TransactionRowReport) => self.on_row(cx, frame),
            Some(SignalNumber::TransactionConfirm | SignalNumber::TransactionRefuse) => {
                self.on_batch_answer(cx, frame)
            }
            Some(SignalNumber::OutcomeConfirm) => self.on_outcome_confirm(cx, frame),
            Some(SignalNumber::KeyReadConfirm) => self.on_key_read_confirm(cx, frame),
            Some(SignalNumber::KeyReadRefuse) => self.on_key_read_refuse(frame),
            Some(SignalNumber::ScanConfirm) => self.on_scan_confirm(cx, frame),
            Some(SignalNumber::ScanRefuse) => self.on_scan_refuse(frame),
            Some(
                SignalNumber::CreateTableConfirm
                | SignalNumber::DescribeTableConfirm
                | SignalNumber::DropTableConfirm
                | SignalNumber::SchemaChangeConfirm,
            ) => self.on_schema_confirm(cx, frame),
            Some(
                SignalNumber::CreateTableRefuse
                | SignalNumber::DescribeTableRefuse
                | SignalNumber::DropTableRefuse
                | SignalNumber::SchemaChangeRefuse
                | SignalNumber::SchemaLockRefuse,
            ) => self.on_schema_refuse(frame),
            Some(SignalNumber::SchemaLockConfirm) => self.on_lock_confirm(frame),
            Some(SignalNumber::SchemaEventsConfirm) => Some(()),
            Some(SignalNumber::SchemaEventReport) => self.on_schema_event(cx, frame),
            _ => None,
        };
        if understood.is_none() {
            let number = frame.header.number.get();
            cx.violations.push(format!(
                "{} sent API node {} a bad signal {number}",
                frame.sender(),
                self.node
            ));
        }
    }

    /// Looks at the time: heartbeats, confirmations, reconnecting.
    pub fn on_time(&mut self, cx: &mut Surroundings<'_>) {
        match self.phase {
            Phase::Down { until } if cx.now >= until => self.connect(),
            Phase::Up if cx.now >= self.heartbeat_at => {
                self.heartbeat_at = cx.now + self.heartbeat_interval;
                self.send_heartbeat();
                self.confirm_idle_outcomes();
                self.confirm_schema_events(cx);
            }
            Phase::Down { .. } | Phase::Greeting | Phase::Up => {}
        }
    }

    /// When to look at the time again.
    pub fn due(&self) -> Option<Time> {
        match self.phase {
            Phase::Down { until } => Some(until),
            Phase::Greeting => None,
            Phase::Up => Some(self.heartbeat_at),
        }
    }

    /// Bytes that wait on each connection, to be taken from the front.
    pub fn outputs(&mut self) -> impl Iterator<Item = (LinkKey, &mut Vec<u8>)> {
        self.links.iter_mut().filter(|(_, link)| link.is_connected).map(|(key, link)| (*key, &mut link.out))
    }

    fn own(&self) -> Address {
        Address::new(self.node, BlockNumber::Api, 0)
    }

    fn next_tag(&mut self) -> u32 {
        self.tag += 1;
        self.tag
    }

    /// Begins a signal to a block of a data node; `None` if the node is not connected.
    fn frame(
        &mut self,
        link: LinkKey,
        signal: SignalNumber,
        receiver: Address,
        trace: u32,
    ) -> Option<FrameWriter<'_>> {
        let (view, own) = (self.view as u8, self.own());
        let link = self.links.get_mut(&link).filter(|link| link.is_open)?;
        Some(FrameWriter::begin(&mut link.out, signal, view, receiver, own, trace))
    }

    /// The connection to the thread that hosts a block, or else the first one to its node.
    fn link_to(&self, block: Address) -> Option<LinkKey> {
        let node = self.view_known.member(block.node())?;
        let hosts = |index: usize| match block.block() {
            Some(BlockNumber::DataManager) => {
                node.connections[index].data_managers.contains(&block.instance())
            }
            Some(BlockNumber::Coordinator) => {
                node.connections[index].coordinators.contains(&block.instance())
            }
            _ => false,
        };
        let index = (0..node.connections.len()).find(|&index| hosts(index)).unwrap_or(0);
        let key = LinkKey { node: node.node.0, index: index as u16 };
        self.links.get(&key).is_some_and(|link| link.is_open).then_some(key)
    }

    /// The data manager that answers for the row of a table whose key has this hash.
    fn owner(&self, table: TableRef, hash: KeyHash) -> Address {
        self.view_known.partition(self.partitions(table).of(hash)).primary()
    }

    fn note_epoch(&mut self, epoch: u64) {
        self.epoch_seen = self.epoch_seen.max(epoch);
    }

    fn fail(&mut self, session: usize, error: ErrorCode) {
        self.answers.push_back((session, Answer::Failed(error)));
    }
}
