//! The node as a machine: what arrives on a connection goes in, answers wait until the test lets them go.
//!
//! Answers wait in one queue for each sender (a data manager, a coordinator, the rest) and connection; within a queue
//! they keep their order, between queues there is none: exactly what a client may rely on.

mod ranges;

use crate::store::{Changes, Store, filter, partition, passes, row, select};
use ranges::RangeScan;
use std::collections::{BTreeMap, VecDeque};
use vinga_base::{Incarnation, NodeId, TransactionId};
use vinga_wire::dictionary::{
    CreateTableRequest, DropTableConfirm, ListTablesConfirm, ListTablesRequest, NamedTableRequest,
    TableConfirm,
};
use vinga_wire::handshake::{HelloConfirm, HelloRequest, MAGIC, PROTOCOL_VERSION, Refusal};
use vinga_wire::info::{InfoConfirm, InfoRequest, InfoValue};
use vinga_wire::key_read::{KeyReadAnswer, KeyReadHead, KeyReadRefusal, NO_ROW};
use vinga_wire::membership::{ApiNodeBody, HeartbeatBody};
use vinga_wire::operation::{ALL_COLUMNS, FLAG_ERROR_IS_LOCAL, Operation};
use vinga_wire::scan::{SCAN_BATCH_END, SCAN_END, ScanAnswer, ScanBody, ScanOpenHead, ScanRefusal};
use vinga_wire::transaction::{
    FLAG_COMMIT, FLAG_ROLLBACK, FLAG_ROLLBACK_TO, FLAG_START, OperationError, Outcome, OutcomeConfirm,
    OutcomeRequest, OutcomesSeenOrder, TransactionAnswer, TransactionHead, TransactionRow,
};
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

struct Scan {
    head: ScanOpenHead,
    columns: Option<Vec<u16>>,
    filter: Vec<u8>,
    next: u32,
    given: u32,
}

/// What the operations of a batch have led to.
struct Done {
    /// Rows that were sent.
    rows: u16,
    /// Those that have failed alone.
    errors: Vec<OperationError>,
    /// Why the transaction fails, and with which operation.
    failed: Option<(ErrorCode, u32)>,
}

/// Frames of one sender on one connection.
type Queue = VecDeque<Vec<u8>>;

/// A data node for tests that answers when the test says so.
pub struct ScriptedNode {
    layout: Layout,
    store: Store,
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

const NODE: NodeId = NodeId(1);

impl ScriptedNode {
    /// A node without tables.
    pub fn new(layout: Layout) -> Self {
        ScriptedNode {
            layout,
            store: Store::default(),
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
            let at = Address::new(NODE, BlockNumber::Coordinator, coordinator);
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
        let Layout { data_managers, connections, .. } = self.layout;
        let hosts = |c| ConnectionHosts {
            data_managers: (0..data_managers).filter(|d| d % connections == c).collect(),
            coordinators: vec![c],
        };
        let member = Member::started(NODE, Incarnation(self.incarnation), 0, data_managers, connections);
        ClusterView::first(vec![member.with_connections((0..connections).map(hosts).collect())])
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
        let driver = Address::new(NODE, BlockNumber::Driver, 0);
        if hello.magic != MAGIC || hello.version != PROTOCOL_VERSION {
            return None;
        }
        let api = if hello.ticket != 0 {
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
            let count = usize::from(self.layout.connections);
            self.sessions.insert(
                wanted,
                Session {
                    incarnation: hello.incarnation,
                    ticket: self.tickets << 8 | u64::from(self.incarnation),
                    connections: vec![None; count],
                    outcomes: (0..count).map(|_| Outcomes::default()).collect(),
                    open: BTreeMap::new(),
                    scans: BTreeMap::new(),
                    ranges: BTreeMap::new(),
                },
            );
            wanted
        };
        let view = self.view();
        let session = self.sessions.get_mut(&api)?;
        *session.connections.get_mut(usize::from(hello.connection))? = Some(connection);
        let body = HelloConfirm {
            version: PROTOCOL_VERSION,
            node: NODE.0,
            incarnation: self.incarnation,
            cluster_incarnation: u64::from(self.incarnation),
            database: u64::from(self.incarnation),
            api,
            ticket: session.ticket,
            view,
            api_incarnation: hello.incarnation,
        };
        self.connections.insert(connection, (api, hello.connection));
        self.send_on(connection, Address::NONE, driver, SignalNumber::HelloConfirm, |w| {
            cold::write(w, &body);
        });
        Some(())
    }

    fn refuse_hello(&mut self, connection: usize, code: ErrorCode) -> Option<()> {
        let body = Refusal { request: 0, code: code as u16, detail: String::new() };
        let driver = Address::new(NODE, BlockNumber::Driver, 0);
        let refuse = SignalNumber::HelloRefuse;
        self.send_on(connection, Address::NONE, driver, refuse, |w| cold::write(w, &body));
        Some(())
    }

    /// The node dies and comes back with the same tables and rows, and without memory of any client.
    pub fn restart(&mut self) {
        self.incarnation += 1;
        self.sessions.clear();
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

    fn on_transaction(&mut self, api: u8, at: Address, frame: &Frame<'_>) -> Option<()> {
        let (head, operations) = frame.head::<TransactionHead>()?;
        let id = head.transaction.get();
        let flags = head.flags.get();
        assert_eq!(TransactionId(id).api(), NodeId(api));
        assert!(head.epoch_seen.get() <= self.epoch, "nobody has seen a later epoch");
        self.confirm_outcomes(api, at.instance(), head.outcomes_seen.get());
        let session = self.sessions.get_mut(&api)?;
        let mut answer = TransactionAnswer {
            transaction: head.transaction,
            epoch: U64::new(self.epoch),
            request: head.request,
            outcome_number: U32::ZERO,
            failed_operation: U32::ZERO,
            error: U16::ZERO,
            errors: U16::ZERO,
            rows: U16::ZERO,
            outcome: Outcome::RolledBack as u8,
            view: 1,
            failed_index: U16::ZERO,
        };
        if flags & FLAG_START != 0 {
            let open = Open { coordinator: at.instance(), changes: Changes::new(), request: 0 };
            assert!(session.open.insert(id, open).is_none(), "it starts once");
        }
        let Some(Open { coordinator, mut changes, .. }) = session.open.remove(&id) else {
            answer.error = U16::new(ErrorCode::TransactionAborted as u16);
            self.send(api, at, SignalNumber::TransactionRefuse, |w| {
                w.put(&answer);
            });
            return Some(());
        };
        assert_eq!(coordinator, at.instance(), "a transaction stays with its coordinator");
        if flags & FLAG_ROLLBACK_TO != 0 {
            changes.retain(|(number, ..)| *number < head.rollback_from.get());
        }
        let Done { rows, errors, failed } = self.run_operations(api, head, operations, &mut changes)?;
        answer.rows = U16::new(rows);
        answer.errors = U16::new(errors.len() as u16);
        let mut signal = SignalNumber::TransactionConfirm;
        let ended = if let Some((code, number)) = failed {
            answer.error = U16::new(code as u16);
            answer.failed_operation = U32::new(number);
            signal = SignalNumber::TransactionRefuse;
            Some(None)
        } else if flags & FLAG_ROLLBACK != 0 {
            Some(None)
        } else if flags & FLAG_COMMIT != 0 {
            self.epoch += 1;
            answer.epoch = U64::new(self.epoch);
            answer.outcome = Outcome::Committed as u8;
            self.store.commit(std::mem::take(&mut changes));
            Some(Some(self.epoch))
        } else {
            answer.outcome = Outcome::Open as u8;
            None
        };
        let session = self.sessions.get_mut(&api)?;
        match ended {
            Some(epoch) => {
                let number = session.outcomes[usize::from(coordinator)].push(id, epoch);
                answer.outcome_number = U32::new(number);
            }
            None => {
                let request = head.request.get();
                session.open.insert(id, Open { coordinator, changes, request });
            }
        }
        self.send(api, at, signal, |w| {
            w.put(&answer);
            for error in &errors {
                w.put(error);
            }
        });
        Some(())
    }

    /// Runs the operations of a batch, up to the first that fails the transaction.
    fn run_operations(
        &mut self,
        api: u8,
        head: &TransactionHead,
        mut operations: &[u8],
        changes: &mut Changes,
    ) -> Option<Done> {
        let mut done = Done { rows: 0, errors: Vec::new(), failed: None };
        for _ in 0..head.count.get() {
            let operation = Operation::take(&mut operations)?;
            let number = operation.head.number.get();
            match self.store.run(changes, &operation) {
                Ok(None) => {}
                Ok(Some(row)) => {
                    done.rows += 1;
                    self.send_row(api, head.transaction.get(), &operation, row);
                }
                Err(code) if operation.head.flags & FLAG_ERROR_IS_LOCAL != 0 => {
                    done.errors.push(OperationError {
                        operation: U32::new(number),
                        code: U16::new(code as u16),
                        index: U16::ZERO,
                    });
                }
                Err(code) => {
                    done.failed = Some((code, number));
                    break;
                }
            }
        }
        Some(done)
    }

    fn send_row(&mut self, api: u8, id: u64, operation: &Operation<'_>, row: Option<Vec<u8>>) {
        let instance = partition(operation.key, self.layout.data_managers);
        let data_manager = Address::new(NODE, BlockNumber::DataManager, instance);
        let body = TransactionRow {
            transaction: U64::new(id),
            epoch: U64::new(self.epoch),
            operation: operation.head.number,
            row_bytes: U16::new(row.as_ref().map_or(NO_ROW, |row| row.len() as u16)),
            unused: U16::ZERO,
        };
        self.send(api, data_manager, SignalNumber::TransactionRowReport, |w| {
            w.put(&body).bytes(&row.unwrap_or_default());
        });
    }

    fn on_outcome_request(&mut self, api: u8, at: Address, frame: &Frame<'_>) -> Option<()> {
        let (question, _) = frame.head::<OutcomeRequest>()?;
        let id = question.transaction.get();
        let Outcomes { kept: outcomes, newest } =
            &self.sessions.get(&api)?.outcomes[usize::from(at.instance())];
        let found = outcomes.iter().position(|(of, _)| *of == id);
        let (outcome, epoch, number) = match found.map(|index| (outcomes[index].1, index)) {
            Some((epoch, index)) => {
                let number = *newest - (outcomes.len() - 1 - index) as u32;
                let outcome = if epoch.is_some() { Outcome::Committed } else { Outcome::RolledBack };
                (outcome, epoch.unwrap_or(0), number)
            }
            None => (Outcome::NotFound, 0, 0),
        };
        let body = OutcomeConfirm {
            transaction: question.transaction,
            epoch: U64::new(epoch),
            request: question.request,
            outcome_number: U32::new(number),
            outcome: outcome as u8,
            unused: [0; 3],
        };
        self.send(api, at, SignalNumber::OutcomeConfirm, |w| {
            w.put(&body);
        });
        Some(())
    }

    fn on_scan_open(&mut self, api: u8, at: Address, frame: &Frame<'_>) -> Option<()> {
        let (head, mut rest) = frame.head::<ScanOpenHead>()?;
        let columns = take_columns(head.columns.get(), &mut rest)?;
        let program = rest.get(..usize::from(head.filter_bytes.get()))?;
        assert_eq!(head.partition.get(), at.instance(), "each data manager has one partition");
        let table = self.store.table(head.table.get(), head.version.get());
        if let Err(code) = table.and_then(|table| filter(table, program)) {
            let body = ScanRefusal {
                scan: head.scan,
                next_row: head.from_row,
                code: U16::new(code as u16),
                unused: U16::ZERO,
            };
            self.send(api, at, SignalNumber::ScanRefuse, |w| {
                w.put(&body);
            });
            return Some(());
        }
        let scan =
            Scan { head: *head, columns, filter: program.to_vec(), next: head.from_row.get(), given: 0 };
        self.sessions.get_mut(&api)?.scans.insert(head.scan.get(), scan);
        self.scan_batch(api, at, head.scan.get());
        Some(())
    }

    /// One batch, each in two frames.
    fn scan_batch(&mut self, api: u8, at: Address, scan_id: u32) {
        let session = self.sessions.get_mut(&api).expect("it has sent a frame");
        let Some(scan) = session.scans.get(&scan_id) else { return };
        let none = Changes::new();
        let changes = session.open.get(&scan.head.transaction.get()).map_or(&none, |open| &open.changes);
        let Ok(table) = self.store.table(scan.head.table.get(), scan.head.version.get()) else { return };
        let filter = filter(table, &scan.filter).expect("checked when it was opened");
        let mut keys: Vec<&Vec<u8>> = table.rows.keys().collect();
        keys.extend(
            changes.iter().filter(|(n, ..)| *n < scan.head.operation.get()).map(|(_, _, key, _)| key),
        );
        keys.sort();
        keys.dedup();
        keys.retain(|key| partition(key, self.layout.data_managers) == at.instance());
        let mut rows: Vec<Vec<u8>> = Vec::new();
        let (mut next, mut given, mut bytes) = (scan.next, scan.given, 0);
        let limit = match scan.head.limit.get() {
            0 => u32::MAX,
            limit => limit,
        };
        while rows.len() < usize::from(scan.head.batch_rows.get())
            && bytes < scan.head.batch_bytes.get() as usize
            && given < limit
        {
            let Some(key) = keys.get(next as usize) else { break };
            next += 1;
            let image = row(table, changes, scan.head.operation.get(), key)
                .filter(|image| filter.as_ref().is_none_or(|filter| passes(table, filter, image)));
            if let Some(image) = image {
                let selected = select(table, image, scan.columns.as_ref());
                bytes += selected.len();
                given += 1;
                rows.push(selected);
            }
        }
        let ends = next as usize >= keys.len() || given >= limit;
        let scan = session.scans.get_mut(&scan_id).expect("found before");
        (scan.next, scan.given) = (next, given);
        if ends {
            session.scans.remove(&scan_id);
        }
        let epoch = self.epoch;
        let (first, second) = rows.split_at(rows.len() / 2);
        for (part, flags) in [(first, 0), (second, SCAN_BATCH_END | if ends { SCAN_END } else { 0 })] {
            self.send(api, at, SignalNumber::ScanConfirm, |w| {
                w.put(&ScanAnswer {
                    epoch: U64::new(epoch),
                    scan: U32::new(scan_id),
                    next_row: U32::new(next),
                    count: U16::new(part.len() as u16),
                    flags: U16::new(flags),
                });
                for row in part {
                    w.bytes(&(row.len() as u16).to_le_bytes()).bytes(row);
                }
            });
        }
    }

    fn on_dictionary(&mut self, api: u8, at: Address, signal: SignalNumber, frame: &Frame<'_>) -> Option<()> {
        let (request, refusal, answer): (u32, SignalNumber, Result<_, (ErrorCode, String)>) = match signal {
            SignalNumber::CreateTableRequest => {
                let body: CreateTableRequest = cold::read(frame)?;
                let made = self.store.create(body.definition, self.layout.data_managers);
                let answer = made.map(|table| (SignalNumber::CreateTableConfirm, Some(table)));
                (body.request, SignalNumber::CreateTableRefuse, answer)
            }
            SignalNumber::DropTableRequest => {
                let body: NamedTableRequest = cold::read(frame)?;
                let dropped = self.store.drop_table(&body.name);
                let answer = dropped.map(|()| (SignalNumber::DropTableConfirm, None));
                (body.request, SignalNumber::DropTableRefuse, answer)
            }
            SignalNumber::DescribeTableRequest => {
                let body: NamedTableRequest = cold::read(frame)?;
                let found = self.store.by_name(&body.name).map(|table| table.record.clone());
                let answer = found
                    .map(|table| (SignalNumber::DescribeTableConfirm, Some(table)))
                    .ok_or((ErrorCode::NoSuchTable, body.name));
                (body.request, SignalNumber::DescribeTableRefuse, answer)
            }
            SignalNumber::ListTablesRequest => {
                let body: ListTablesRequest = cold::read(frame)?;
                let after = self.store.tables().filter(|table| table.record.table > body.after);
                let mut tables: Vec<_> = after
                    .map(|t| (t.record.table, t.record.version, t.record.definition.name.clone()))
                    .collect();
                // A short list comes in pieces, too, so that somebody has to put them together.
                let more = tables.len() > 2;
                tables.truncate(2);
                let body = ListTablesConfirm { request: body.request, tables, more };
                self.send(api, at, SignalNumber::ListTablesConfirm, |w| cold::write(w, &body));
                return Some(());
            }
            _ => return None,
        };
        match answer {
            Ok((signal, Some(table))) => {
                self.send(api, at, signal, |w| cold::write(w, &TableConfirm { request, table }));
            }
            Ok((signal, None)) => {
                self.send(api, at, signal, |w| cold::write(w, &DropTableConfirm { request }));
            }
            Err((code, detail)) => {
                let body = Refusal { request, code: code as u16, detail };
                self.send(api, at, refusal, |w| cold::write(w, &body));
            }
        }
        Some(())
    }
}

/// What a client gets whose transaction was idle for too long.
fn refusal(id: u64, request: u32, number: u32) -> TransactionAnswer {
    TransactionAnswer {
        transaction: U64::new(id),
        epoch: U64::ZERO,
        request: U32::new(request),
        outcome_number: U32::new(number),
        failed_operation: U32::ZERO,
        error: U16::new(ErrorCode::InactiveTimeout as u16),
        errors: U16::ZERO,
        rows: U16::ZERO,
        outcome: Outcome::RolledBack as u8,
        view: 1,
        failed_index: U16::ZERO,
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
