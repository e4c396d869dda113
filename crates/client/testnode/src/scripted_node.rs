//! The node as a machine: what arrives on a connection goes in, answers wait until the test lets them go.
//!
//! Answers wait in one queue for each sender (a data manager, a coordinator, the rest) and connection; within a queue
//! they keep their order, between queues there is none: exactly what a client may rely on.

mod dictionary;
mod ranges;
mod scans;
mod transactions;

use crate::store::{Changes, Store, filter, partition, passes, row, select};
use ranges::RangeScan;
use scans::Scan;
use std::collections::{BTreeMap, VecDeque};
use transactions::refusal;
use vinga_base::{Incarnation, NodeId, TransactionId};
use vinga_wire::handshake::{HelloConfirm, HelloRequest, MAGIC, Refusal};
use vinga_wire::info::{InfoConfirm, InfoRequest, InfoValue};
use vinga_wire::key_read::{KeyReadAnswer, KeyReadHead, KeyReadRefusal, NO_ROW};
use vinga_wire::membership::{ApiNodeBody, HeartbeatBody};
use vinga_wire::operation::ALL_COLUMNS;
use vinga_wire::protocol::Protocol;
use vinga_wire::scan::ScanBody;
use vinga_wire::transaction::OutcomesSeenOrder;
use vinga_wire::view::{ClusterView, ConnectionHosts, Member};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, FrameWriter, SignalNumber, U16, U32, U64, cold};
use zerocopy::FromBytes;

/// How the node is made.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Data managers, each with one partition.
    pub data_managers: u16,
    /// Connections that it wants from each client; each has a coordinator and its share of data managers.
    pub connections: u16,
    /// Bytes of rows after which an answer to a key read is continued in another frame.
    pub answer_bytes: usize,
}

impl Default for Layout {
    fn default() -> Self {
        Layout { data_managers: 8, connections: 1, answer_bytes: 32 * 1024 }
    }
}

impl Layout {
    /// A node that is made like that, as a member of the first view.
    pub(crate) fn member(&self, id: NodeId, incarnation: u32) -> Member {
        let Layout { data_managers, connections, .. } = *self;
        let hosts = |c| ConnectionHosts {
            data_managers: (0..data_managers).filter(|d| d % connections == c).collect(),
            coordinators: vec![c],
        };
        let member = Member::started(id, Incarnation(incarnation), 0, data_managers, connections);
        member.with_connections((0..connections).map(hosts).collect())
    }
}

/// What the nodes of a cluster know together, beside tables and rows.
#[derive(Default)]
pub(crate) struct Common {
    /// Incarnation and ticket of each client that was admitted.
    tickets: BTreeMap<u8, (u32, u64)>,
    /// Transactions whose coordinators have died, with their epochs (`None`: rolled back).
    inherited: BTreeMap<u64, Option<u64>>,
    /// The newest epoch.
    epoch: u64,
}

/// One client's session.
struct Session {
    incarnation: u32,
    ticket: u64,
    /// By index; `None` when not open.
    connections: Vec<Option<usize>>,
    /// By coordinator.
    outcomes: Vec<Outcomes>,
    open: BTreeMap<u64, Open>,
    scans: BTreeMap<u32, Scan>,
    ranges: BTreeMap<u32, RangeScan>,
}

/// An open transaction.
struct Open {
    coordinator: u16,
    changes: Changes,
    /// The tag of its newest batch.
    request: u32,
}

/// Outcomes that one coordinator keeps for a client.
#[derive(Default)]
struct Outcomes {
    /// Transactions and their epochs (`None`: rolled back) that are not confirmed, oldest first.
    kept: VecDeque<(u64, Option<u64>)>,
    /// The number of the newest.
    newest: u32,
}

impl Outcomes {
    fn push(&mut self, id: u64, epoch: Option<u64>) -> u32 {
        self.kept.push_back((id, epoch));
        self.newest += 1;
        self.newest
    }
}

/// Frames of one sender on one connection.
type Queue = VecDeque<Vec<u8>>;

/// A data node for tests that answers when the test says so.
pub struct ScriptedNode {
    id: NodeId,
    layout: Layout,
    store: Store,
    common: Common,
    /// The view, if there are other nodes.
    cluster: Option<ClusterView>,
    sessions: BTreeMap<u8, Session>,
    /// Which client, and which of its connections, each connection of the test is.
    connections: BTreeMap<usize, (u8, u16)>,
    queues: BTreeMap<(usize, Address), Queue>,
    input: BTreeMap<usize, Vec<u8>>,
    epoch: u64,
    tickets: u64,
    /// Another start of the node, or of the whole cluster: nothing is known of anybody.
    incarnation: u32,
    /// Frames handled, by signal.
    pub handled: BTreeMap<u16, u64>,
    /// So many further requests for rows by key are refused, because too many answers wait.
    pub refuses_reads: u32,
    /// So many further requests for ranges are refused, because too many answers wait.
    pub refuses_scans: u32,
}

impl ScriptedNode {
    /// A node without tables.
    pub fn new(layout: Layout) -> Self {
        ScriptedNode {
            id: NodeId(1),
            layout,
            store: Store::default(),
            common: Common::default(),
            cluster: None,
            sessions: BTreeMap::new(),
            connections: BTreeMap::new(),
            queues: BTreeMap::new(),
            input: BTreeMap::new(),
            epoch: 100,
            tickets: 0,
            incarnation: 1,
            handled: BTreeMap::new(),
            refuses_reads: 0,
            refuses_scans: 0,
        }
    }

    /// One of the nodes of a cluster.
    pub(crate) fn of_cluster(id: NodeId, layout: Layout, view: ClusterView) -> Self {
        ScriptedNode { id, cluster: Some(view), ..ScriptedNode::new(layout) }
    }

    /// Exchanges what all nodes of a cluster have in common: the nodes take turns with it.
    pub(crate) fn exchange(&mut self, store: &mut Store, common: &mut Common) {
        std::mem::swap(&mut self.store, store);
        std::mem::swap(&mut self.common, common);
        let newest = self.epoch.max(common.epoch).max(self.common.epoch);
        (self.epoch, common.epoch, self.common.epoch) = (newest, newest, newest);
    }

    /// There is another view; clients get it.
    pub(crate) fn adopt(&mut self, view: &ClusterView) {
        self.cluster = Some(view.clone());
        let apis: Vec<u8> = self.sessions.keys().copied().collect();
        let membership = Address::new(self.id, BlockNumber::Membership, 0);
        for api in apis {
            self.send(api, membership, SignalNumber::ViewChangedOrder, |w| cold::write(w, view));
        }
    }

    /// What its successor must know of a node that has died: all outcomes.
    pub(crate) fn bequeath(&mut self, common: &mut Common) {
        for outcomes in std::mem::take(&mut self.sessions).into_values().flat_map(|session| session.outcomes)
        {
            common.inherited.extend(outcomes.kept);
        }
    }

    /// Bytes have arrived on a connection. False if the node would close it.
    pub fn on_bytes(&mut self, connection: usize, bytes: &[u8]) -> bool {
        let mut input = self.input.remove(&connection).unwrap_or_default();
        input.extend_from_slice(bytes);
        let mut used = 0;
        loop {
            match Frame::first(&input[used..]) {
                Ok(Some(frame)) => {
                    used += frame.length();
                    *self.handled.entry(frame.header.number.get()).or_default() += 1;
                    if self.on_frame(connection, &frame).is_none() {
                        return false;
                    }
                }
                Ok(None) => break,
                Err(_) => return false,
            }
        }
        input.drain(..used);
        self.input.insert(connection, input);
        true
    }

    /// The queues that have something for a connection.
    pub fn waiting(&self) -> impl Iterator<Item = (usize, Address)> {
        self.queues.iter().filter(|(_, queue)| !queue.is_empty()).map(|(key, _)| *key)
    }

    /// Takes the next frame of a queue.
    pub fn take(&mut self, key: (usize, Address)) -> Option<Vec<u8>> {
        self.queues.get_mut(&key)?.pop_front()
    }

    /// Takes all that waits for a connection.
    pub fn take_all(&mut self, connection: usize, out: &mut Vec<u8>) {
        for ((_, _), queue) in
            self.queues.range_mut((connection, Address(0))..=(connection, Address(u32::MAX)))
        {
            queue.drain(..).for_each(|frame| out.extend_from_slice(&frame));
        }
    }

    /// A connection is gone; all of that client are. Returns which the node closes with it.
    pub fn on_closed(&mut self, connection: usize) -> Vec<usize> {
        let Some(&(api, _)) = self.connections.get(&connection) else {
            self.forget_connection(connection);
            return Vec::new();
        };
        let closed: Vec<usize> =
            self.connections.iter().filter(|(_, (of, _))| *of == api).map(|(at, _)| *at).collect();
        for &at in &closed {
            self.forget_connection(at);
        }
        let session = self.sessions.get_mut(&api).expect("it has connections");
        session.connections.iter_mut().for_each(|place| *place = None);
        session.scans.clear();
        session.ranges.clear();
        for (id, Open { coordinator, .. }) in std::mem::take(&mut session.open) {
            session.outcomes[usize::from(coordinator)].push(id, None);
        }
        closed
    }

    /// The client of a connection, if it was admitted.
    pub(crate) fn client_of(&self, connection: usize) -> Option<u8> {
        self.connections.get(&connection).map(|(api, _)| *api)
    }

    /// All connections of a client.
    pub(crate) fn connections_of(&self, api: u8) -> Vec<usize> {
        self.connections.iter().filter(|(_, (of, _))| *of == api).map(|(at, _)| *at).collect()
    }

    /// All open transactions have been idle for too long: they are rolled back, and their clients are notified.
    pub fn give_up_idle(&mut self) {
        let mut given_up = Vec::new();
        for (&api, session) in &mut self.sessions {
            for (id, open) in std::mem::take(&mut session.open) {
                let number = session.outcomes[usize::from(open.coordinator)].push(id, None);
                given_up.push((api, open.coordinator, refusal(id, open.request, number)));
            }
        }
        for (api, coordinator, answer) in given_up {
            let at = Address::new(self.id, BlockNumber::Coordinator, coordinator);
            self.send(api, at, SignalNumber::TransactionRefuse, |w| {
                w.put(&answer);
            });
        }
    }

    fn forget_connection(&mut self, connection: usize) {
        self.connections.remove(&connection);
        self.input.remove(&connection);
        self.queues.retain(|(of, _), _| *of != connection);
    }

    /// The grace time of a client that is not connected is over: it is declared failed.
    pub fn declare_failed(&mut self) {
        self.sessions.retain(|_, session| session.connections.iter().any(Option::is_some));
        self.common.tickets.retain(|api, _| self.sessions.contains_key(api));
    }

    /// Whether no transaction and no scan is open.
    pub fn is_at_rest(&self) -> bool {
        self.sessions
            .values()
            .all(|session| session.open.is_empty() && session.scans.is_empty() && session.ranges.is_empty())
    }

    /// Outcomes that no client has confirmed.
    pub fn unconfirmed(&self) -> usize {
        self.sessions.values().flat_map(|session| &session.outcomes).map(|outcomes| outcomes.kept.len()).sum()
    }

    /// The committed rows of a table, by key.
    pub fn rows(&self, table: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.store.by_name(table).map(|table| table.rows.clone()).unwrap_or_default()
    }

    fn view(&self) -> ClusterView {
        let alone = || ClusterView::first(vec![self.layout.member(self.id, self.incarnation)]);
        self.cluster.clone().unwrap_or_else(alone)
    }

    fn session_of(&mut self, connection: usize) -> Option<(u8, &mut Session)> {
        let &(api, _) = self.connections.get(&connection)?;
        Some((api, self.sessions.get_mut(&api)?))
    }

    /// Sends a frame to a client on the connection of the thread that hosts the sender.
    fn send(
        &mut self,
        api: u8,
        sender: Address,
        signal: SignalNumber,
        write: impl FnOnce(&mut FrameWriter<'_>),
    ) {
        let at = match sender.block() {
            Some(BlockNumber::DataManager | BlockNumber::Coordinator) => {
                sender.instance() % self.layout.connections
            }
            _ => 0,
        };
        let place = self.sessions.get(&api).and_then(|session| session.connections[usize::from(at)]);
        let Some(connection) = place else { return };
        let receiver = Address::new(NodeId(api), BlockNumber::Api, 0);
        self.send_on(connection, receiver, sender, signal, write);
    }

    fn send_on(
        &mut self,
        connection: usize,
        receiver: Address,
        sender: Address,
        signal: SignalNumber,
        write: impl FnOnce(&mut FrameWriter<'_>),
    ) {
        let mut frame = Vec::new();
        let mut writer = FrameWriter::begin(&mut frame, signal, 1, receiver, sender, 0);
        write(&mut writer);
        drop(writer);
        self.queues.entry((connection, sender)).or_default().push_back(frame);
    }

    fn on_frame(&mut self, connection: usize, frame: &Frame<'_>) -> Option<()> {
        let signal = frame.signal()?;
        if signal == SignalNumber::HelloRequest {
            return self.on_hello(connection, cold::read(frame)?);
        }
        let (api, _) = self.session_of(connection)?;
        let at = frame.receiver();
        match signal {
            SignalNumber::KeyReadRequest => self.on_key_read(api, at, frame),
            SignalNumber::TransactionRequest => self.on_transaction(api, at, frame),
            SignalNumber::OutcomeRequest => self.on_outcome_request(api, at, frame),
            SignalNumber::InheritedOutcomeRequest => self.on_inherited_outcome_request(api, at, frame),
            SignalNumber::OutcomesReleasedOrder => Some(()),
            SignalNumber::OutcomesSeenOrder => {
                let (order, _) = frame.head::<OutcomesSeenOrder>()?;
                assert_eq!(TransactionId(order.owner.get()).api(), NodeId(api));
                self.confirm_outcomes(api, at.instance(), order.outcomes_seen.get());
                Some(())
            }
            SignalNumber::ScanOpenRequest => self.on_scan_open(api, at, frame),
            SignalNumber::RangeScanOpenRequest => self.on_range_scan_open(api, at, frame),
            SignalNumber::IndexStatisticsRequest => self.on_index_statistics(api, at, frame),
            SignalNumber::ScanNextRequest => {
                if self.range_next(api, frame)? {
                    return Some(());
                }
                let (body, _) = frame.head::<ScanBody>()?;
                self.scan_batch(api, at, body.scan.get());
                Some(())
            }
            SignalNumber::ScanCloseOrder => {
                let (body, _) = frame.head::<ScanBody>()?;
                let session = self.sessions.get_mut(&api)?;
                session.scans.remove(&body.scan.get());
                session.ranges.remove(&body.scan.get());
                Some(())
            }
            SignalNumber::HeartbeatRequest => {
                let epoch = self.epoch;
                self.send(api, at, SignalNumber::HeartbeatConfirm, |w| {
                    w.put(&HeartbeatBody { epoch: U64::new(epoch), view: U32::new(1) });
                });
                Some(())
            }
            SignalNumber::DisconnectOrder => {
                let (body, _) = frame.head::<ApiNodeBody>()?;
                assert_eq!((body.api, body.incarnation.get()), (api, self.sessions.get(&api)?.incarnation));
                Some(())
            }
            SignalNumber::InfoRequest => {
                let request: InfoRequest = cold::read(frame)?;
                let rows = vec![vec![InfoValue::Text("worker".into()), InfoValue::Number(0)]];
                let columns = vec!["thread".into(), "signals".into()];
                let body = InfoConfirm { request: request.request, columns, rows };
                self.send(api, at, SignalNumber::InfoConfirm, |w| cold::write(w, &body));
                Some(())
            }
            _ => self.on_dictionary(api, at, signal, frame),
        }
    }

    fn on_hello(&mut self, connection: usize, hello: HelloRequest) -> Option<()> {
        let driver = Address::new(self.id, BlockNumber::Driver, 0);
        if hello.magic != MAGIC || hello.protocol != Protocol::own() {
            return None;
        }
        if hello.connected.contains(&self.id.0) {
            return self.refuse_hello(connection, ErrorCode::SameDataNode);
        }
        let api = if hello.ticket != 0 {
            let is_of_cluster =
                self.common.tickets.get(&hello.node) == Some(&(hello.incarnation, hello.ticket));
            if is_of_cluster && !self.sessions.contains_key(&hello.node) {
                self.sessions.insert(hello.node, self.session(hello.incarnation, hello.ticket));
            }
            let known = self.sessions.get(&hello.node);
            if known.is_none_or(|l| l.ticket != hello.ticket || l.incarnation != hello.incarnation) {
                return self.refuse_hello(connection, ErrorCode::UnknownOutcome);
            }
            hello.node
        } else {
            let wanted = if hello.node == 0 {
                (200..=255).find(|id| !self.sessions.contains_key(id))?
            } else {
                hello.node
            };
            if self.sessions.get(&wanted).is_some_and(|l| l.incarnation >= hello.incarnation) {
                return self.refuse_hello(connection, ErrorCode::NodeIdInUse);
            }
            self.tickets += 1;
            let ticket = self.tickets << 8 | u64::from(self.incarnation);
            self.common.tickets.insert(wanted, (hello.incarnation, ticket));
            self.sessions.insert(wanted, self.session(hello.incarnation, ticket));
            wanted
        };
        let view = self.view();
        let session = self.sessions.get_mut(&api)?;
        *session.connections.get_mut(usize::from(hello.connection))? = Some(connection);
        let body = HelloConfirm {
            protocol: Protocol::own(),
            node: self.id.0,
            incarnation: self.incarnation,
            cluster_incarnation: u64::from(self.incarnation),
            database: u64::from(self.incarnation),
            api,
            ticket: session.ticket,
            view,
            api_incarnation: hello.incarnation,
            admission: 1,
        };
        self.connections.insert(connection, (api, hello.connection));
        self.send_on(connection, Address::NONE, driver, SignalNumber::HelloConfirm, |w| {
            cold::write(w, &body);
        });
        Some(())
    }

    fn session(&self, incarnation: u32, ticket: u64) -> Session {
        let count = usize::from(self.layout.connections);
        Session {
            incarnation,
            ticket,
            connections: vec![None; count],
            outcomes: (0..count).map(|_| Outcomes::default()).collect(),
            open: BTreeMap::new(),
            scans: BTreeMap::new(),
            ranges: BTreeMap::new(),
        }
    }

    fn refuse_hello(&mut self, connection: usize, code: ErrorCode) -> Option<()> {
        let request = if code == ErrorCode::SameDataNode { u32::from(self.id.0) } else { 0 };
        let body = Refusal { request, code: code as u16, detail: String::new() };
        let driver = Address::new(self.id, BlockNumber::Driver, 0);
        let refuse = SignalNumber::HelloRefuse;
        self.send_on(connection, Address::NONE, driver, refuse, |w| cold::write(w, &body));
        Some(())
    }

    /// The node dies and comes back with the same tables and rows, and without memory of any client.
    pub fn restart(&mut self) {
        self.incarnation += 1;
        self.sessions.clear();
        self.common.tickets.clear();
        self.connections.clear();
        self.queues.clear();
        self.input.clear();
    }

    fn on_key_read(&mut self, api: u8, at: Address, frame: &Frame<'_>) -> Option<()> {
        let (head, mut rest) = frame.head::<KeyReadHead>()?;
        let columns = take_columns(head.columns.get(), &mut rest)?;
        let (program, mut rest) = rest.split_at_checked(usize::from(head.filter_bytes.get()))?;
        let count = head.count.get();
        let table = self.store.table(head.table.get(), head.version.get());
        let table = table.and_then(|table| Ok((table, filter(table, program)?)));
        let refusal = |code: ErrorCode| KeyReadRefusal {
            request: head.request,
            count: U16::new(count),
            code: U16::new(code as u16),
            view: U32::new(1),
        };
        let table = if self.refuses_reads > 0 { Err(ErrorCode::Overloaded) } else { table };
        let (table, filter) = match table {
            Ok(found) => found,
            Err(code) => {
                self.refuses_reads = self.refuses_reads.saturating_sub(1);
                self.send(api, at, SignalNumber::KeyReadRefuse, |w| {
                    w.put(&refusal(code));
                });
                return Some(());
            }
        };
        let none = Changes::new();
        let changes = match head.transaction.get() {
            0 => &none,
            id => match self.sessions.get(&api)?.open.get(&id) {
                Some(open) => &open.changes,
                None => {
                    self.send(api, at, SignalNumber::KeyReadRefuse, |w| {
                        w.put(&refusal(ErrorCode::NoSuchTransaction));
                    });
                    return Some(());
                }
            },
        };
        let mut answers: Vec<(u32, u16, Vec<u8>)> = vec![(head.request.get(), 0, Vec::new())];
        for index in 0..count {
            let size = match table.layout.key_bytes() {
                Some(bytes) => usize::from(bytes),
                None => {
                    let (length, after) = rest.split_first_chunk::<2>()?;
                    rest = after;
                    usize::from(u16::from_le_bytes(*length))
                }
            };
            let (key, after) = rest.split_at_checked(size)?;
            rest = after;
            assert_eq!(partition(key, self.layout.data_managers), at.instance(), "a read at its owner");
            let image = row(table, changes, head.operation.get(), key)
                .filter(|image| filter.as_ref().is_none_or(|filter| passes(table, filter, image)));
            let bytes = image.map(|image| select(table, image, columns.as_ref()));
            let last = answers.last_mut().expect("one at least");
            if last.2.len() > self.layout.answer_bytes {
                answers.push((head.request.get() + u32::from(index), 0, Vec::new()));
            }
            let (_, count, rows) = answers.last_mut().expect("one at least");
            *count += 1;
            match bytes {
                Some(bytes) => {
                    rows.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
                    rows.extend_from_slice(&bytes);
                }
                None => rows.extend_from_slice(&NO_ROW.to_le_bytes()),
            }
        }
        let epoch = self.epoch;
        for (request, count, rows) in answers {
            self.send(api, at, SignalNumber::KeyReadConfirm, |w| {
                w.put(&KeyReadAnswer {
                    epoch: U64::new(epoch),
                    request: U32::new(request),
                    count: U16::new(count),
                    unused: U16::ZERO,
                })
                .bytes(&rows);
            });
        }
        Some(())
    }

    fn confirm_outcomes(&mut self, api: u8, coordinator: u16, seen: u32) {
        let Some(session) = self.sessions.get_mut(&api) else { return };
        let outcomes = &mut session.outcomes[usize::from(coordinator)];
        while (outcomes.newest.wrapping_sub(seen) as usize) < outcomes.kept.len() {
            outcomes.kept.pop_front();
        }
    }
}

/// The selected columns at the front of `rest`; inner `None` for all.
fn take_columns(count: u16, rest: &mut &[u8]) -> Option<Option<Vec<u16>>> {
    if count == ALL_COLUMNS {
        return Some(None);
    }
    let (columns, after) = <[U16]>::ref_from_prefix_with_elems(rest, usize::from(count)).ok()?;
    *rest = after;
    Some(Some(columns.iter().map(|c| c.get()).collect()))
}
