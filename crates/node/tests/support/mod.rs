//! A cluster in one thread, without delays: every frame is delivered in the order in which it was sent, so that a
//! protocol can be read as a story. (The simulator is for everything that can go wrong.)

use std::collections::BTreeMap;
use std::fmt::Write;
use vinga_base::hash::KeyHash;
use vinga_base::page_pool::PagePool;
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::{ColumnDefinition, ColumnType, TableDefinition};
use vinga_base::{ColumnId, Epoch, Incarnation, NodeId, TransactionId};
use vinga_distribution::NodePlace;
use vinga_fragment::update_program::{self, Action, Instruction};
use vinga_kernel::{Executor, LaneId, Origin, Outbox, Tick};
use vinga_node::{Blocks, NoFacts, NodeSettings, ThreadHosting, routes};
use vinga_wire::dictionary::{CreateTableRequest, TableConfirm};
use vinga_wire::frame::Frames;
use vinga_wire::handshake::NodeTopology;
use vinga_wire::key_read::{KeyReadAnswer, KeyReadHead, KeyReadRefusal, NO_ROW, Rows};
use vinga_wire::membership::{ApiNodeBody, NodeFailedOrder};
use vinga_wire::operation::{ALL_COLUMNS, FLAG_ERROR_IS_LOCAL, OperationHead, OperationKind};
use vinga_wire::partition::PartitionMap;
use vinga_wire::scan::{ScanAnswer, ScanBody, ScanOpenHead, ScanRefusal};
use vinga_wire::transaction::{
    OperationError, OutcomeConfirm, TransactionAnswer, TransactionHead, TransactionRow,
};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, FrameWriter, SignalNumber, U16, U32, U64, cold};

pub const API: Address = Address::new(NodeId(145), BlockNumber::Api, 0);
pub const TC: Address = Address::new(NodeId(1), BlockNumber::Coordinator, 0);

/// A row of the test table: key, number, text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row(pub u64, pub i64, pub Option<String>);

/// One operation of a train.
#[derive(Clone, Debug)]
pub enum Op {
    Insert(Row),
    Write(Row),
    Add(u64, i64),
    SetText(u64, &'static str),
    Delete(u64),
    Read(OperationKind, u64),
    Unlock(u64, u32),
}

/// What an API node was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    Confirm { request: u32, outcome: u8, errors: Vec<(u32, ErrorCode)> },
    Refuse { request: u32, code: ErrorCode, operation: u32 },
    Row { operation: u32, row: Option<Row> },
    Rows(Vec<Option<Row>>),
    Scanned { rows: Vec<Row>, end: bool },
    Refused(ErrorCode),
    Outcome(u8),
    Other(SignalNumber),
}

pub struct Cluster {
    executors: BTreeMap<u8, Executor<Blocks>>,
    /// By node: the lanes to all others and to the API node.
    lanes: BTreeMap<u8, Vec<(u8, LaneId)>>,
    pub layout: RowLayout,
    table: (u32, u64),
    map: PartitionMap,
    now: Tick,
    told: Vec<Told>,
    transactions: u64,
    outcomes: u32,
    settings: BTreeMap<u8, NodeSettings>,
}

fn definition() -> TableDefinition {
    let column =
        |name: &str, column_type, nullable| ColumnDefinition { name: name.into(), column_type, nullable };
    TableDefinition {
        name: "test.t".into(),
        columns: vec![
            column("id", ColumnType::Integer { bytes: 8, signed: false }, false),
            column("n", ColumnType::Integer { bytes: 8, signed: true }, false),
            column("s", ColumnType::VarChar { bytes_max: 40 }, true),
        ],
        primary_key: vec![ColumnId(0)],
        no_logging: false,
        read_backup: false,
    }
}

impl Cluster {
    /// `nodes` data nodes in one group, with two data managers each; node 1 has the coordinator. All rows are on all
    /// nodes.
    pub fn new(nodes: u8) -> Self {
        let places: Vec<NodePlace> = (1..=nodes)
            .map(|node| NodePlace {
                group: 0,
                topology: NodeTopology {
                    node,
                    connections: vec![],
                    data_managers: 2,
                    coordinators: u16::from(node == 1),
                },
            })
            .collect();
        let mut executors = BTreeMap::new();
        let mut lanes = BTreeMap::new();
        let mut all_settings = BTreeMap::new();
        for node in 1..=nodes {
            let settings = NodeSettings {
                node: NodeId(node),
                incarnation: Incarnation(1),
                nodes: places.clone(),
                epoch: Epoch(100),
                table_version: 1000,
                threads: vec![ThreadHosting {
                    data_managers: 0..2,
                    coordinators: 0..u16::from(node == 1),
                    main: true,
                    owns_sockets: true,
                }],
                transactions_max: 32,
                operations_max: 64,
                scans_max: 4,
                tables_max: 8,
                api_first: NodeId(145),
                api_nodes_max: 10,
                lock_timeout: Tick::from_millis(1200),
                inactive_timeout: Some(Tick::from_millis(5000)),
                heartbeat_interval: Tick::from_millis(1_000_000),
                reconnect_grace: Tick::from_millis(1500),
                epoch_interval: Tick::from_millis(100),
            };
            let blocks = Blocks::new(&settings, 0, |_| PagePool::standalone(64), Box::new(NoFacts));
            let mut outbox = Outbox::new(routes(&settings, 0), 1, 1 << 20);
            let mut own = vec![];
            for other in (1..=nodes).filter(|&other| other != node).chain([API.node().0]) {
                let lane = outbox.open_lane(0);
                outbox.routes.set_node(NodeId(other), Some(lane));
                own.push((other, lane));
            }
            lanes.insert(node, own);
            executors.insert(node, Executor::new(NodeId(node), blocks, outbox, u64::from(node), Tick(0)));
            all_settings.insert(node, settings);
        }
        let map = PartitionMap::new(&all_settings[&1].topology());
        let layout = RowLayout::new(&definition());
        let mut cluster = Cluster {
            executors,
            lanes,
            layout,
            table: (0, 0),
            map,
            now: Tick(0),
            told: vec![],
            transactions: 0,
            outcomes: 0,
            settings: all_settings,
        };
        let dictionary = Address::new(NodeId(1), BlockNumber::Dictionary, 0);
        cluster.send(SignalNumber::CreateTableRequest, dictionary, |w| {
            cold::write(w, &CreateTableRequest { request: 1, definition: definition() });
        });
        assert_ne!(cluster.table, (0, 0), "the table is created");
        cluster.told.clear();
        cluster
    }

    /// Sends a frame from the API node and lets everything run to the end.
    pub fn send(&mut self, signal: SignalNumber, to: Address, body: impl FnOnce(&mut FrameWriter<'_>)) {
        let mut bytes = vec![];
        body(&mut FrameWriter::begin(&mut bytes, signal, 1, to, API, 0));
        let executor = self.executors.get_mut(&to.node().0).expect("a live node");
        executor.begin_turn(self.now);
        executor.feed(&bytes, Origin::Api(API.node())).expect("an API node may send this");
        self.run();
    }

    /// Delivers until nothing is under way.
    pub fn run(&mut self) {
        loop {
            let mut moved = vec![];
            for (&node, executor) in &mut self.executors {
                executor.begin_turn(self.now);
                while executor.finish_turn() {}
                for &(to, lane) in &self.lanes[&node] {
                    let bytes = std::mem::take(executor.outbox().lane_mut(lane));
                    if !bytes.is_empty() {
                        moved.push((to, bytes));
                    }
                }
                executor.outbox().lane_mut(LaneId::DRIVER).clear();
            }
            if moved.is_empty() {
                return;
            }
            for (to, bytes) in moved {
                if to == API.node().0 {
                    for frame in Frames(&bytes) {
                        let told = self.hear(&frame);
                        self.told.push(told);
                    }
                } else if let Some(executor) = self.executors.get_mut(&to) {
                    executor.feed(&bytes, Origin::Peer).expect("peers are believed");
                }
            }
        }
    }

    /// Lets a span of time go by.
    pub fn advance(&mut self, span: Tick) {
        let end = self.now + span;
        while self.now < end {
            self.now = (self.now + Tick::from_millis(10)).min(end);
            self.run();
        }
    }

    /// Kills a data node and tells the others.
    pub fn kill(&mut self, node: u8) {
        self.executors.remove(&node);
        let mut bytes = vec![];
        for (&survivor, executor) in &mut self.executors {
            bytes.clear();
            let to = Address::new(NodeId(survivor), BlockNumber::Membership, 0);
            let order = NodeFailedOrder { node, unused: [0; 3], incarnation: U32::new(1), view: U32::new(2) };
            FrameWriter::begin(&mut bytes, SignalNumber::NodeFailedOrder, 2, to, to, 0).put(&order);
            executor.outbox().routes.set_node(NodeId(node), None);
            executor.feed(&bytes, Origin::Node).expect("our own");
        }
        self.map.remove_node(NodeId(node));
        self.run();
    }

    /// A new transaction's id.
    pub fn begin(&mut self) -> TransactionId {
        self.transactions += 1;
        TransactionId::new(API.node(), Incarnation(1), self.transactions)
    }

    /// Sends a train; operations are numbered from `first`. The request's tag is the first number.
    pub fn train(&mut self, id: TransactionId, flags: u16, first: u32, ops: &[(Op, bool)]) {
        self.train_with(id, flags, first, 0, ops);
    }

    pub fn train_with(
        &mut self,
        id: TransactionId,
        flags: u16,
        first: u32,
        rollback_from: u32,
        ops: &[(Op, bool)],
    ) {
        let (table, version) = self.table;
        let layout = self.layout.clone();
        self.send(SignalNumber::TransactionRequest, TC, |w| {
            w.put(&TransactionHead {
                transaction: U64::new(id.0),
                epoch_seen: U64::ZERO,
                request: U32::new(first),
                outcomes_seen: U32::ZERO,
                rollback_from: U32::new(rollback_from),
                flags: U16::new(flags),
                count: U16::new(ops.len() as u16),
            });
            for (number, (op, is_local)) in (first..).zip(ops) {
                let (kind, key, body) = encode(&layout, op);
                w.put(&OperationHead {
                    version: U64::new(version),
                    hash: U64::ZERO,
                    table: U32::new(table),
                    number: U32::new(number),
                    row: U32::ZERO,
                    kind: kind as u8,
                    flags: if *is_local { FLAG_ERROR_IS_LOCAL } else { 0 },
                    key_bytes: U16::new(key.len() as u16),
                    body_bytes: U16::new(body.len() as u16),
                    columns: U16::new(if kind.is_read() { ALL_COLUMNS } else { 0 }),
                    filter_bytes: U16::ZERO,
                    unused: U16::ZERO,
                })
                .bytes(&key)
                .bytes(&body);
            }
        });
    }

    /// A committed read, straight from the owner; with a transaction, its own changes before `operation` count.
    pub fn read(&mut self, keys: &[u64], viewer: Option<(TransactionId, u32)>) -> Vec<Option<Row>> {
        let (table, version) = self.table;
        let mut found = vec![];
        for &key in keys {
            let hash = KeyHash::of(&key.to_le_bytes());
            let owner = self.map.place(self.map.partition(hash)).primary();
            self.send(SignalNumber::KeyReadRequest, owner, |w| {
                w.put(&KeyReadHead {
                    version: U64::new(version),
                    transaction: U64::new(viewer.map_or(0, |(id, _)| id.0)),
                    request: U32::ZERO,
                    table: U32::new(table),
                    operation: U32::new(viewer.map_or(0, |(_, operation)| operation)),
                    count: U16::new(1),
                    columns: U16::new(ALL_COLUMNS),
                    filter_bytes: U16::ZERO,
                    unused: U16::ZERO,
                })
                .bytes(&key.to_le_bytes());
            });
            match self.told().pop() {
                Some(Told::Rows(mut rows)) => found.push(rows.pop().expect("one key was asked for")),
                other => panic!("a read is answered by rows, not {other:?}"),
            }
        }
        found
    }

    /// Scans all partitions, in batches of `batch` rows.
    pub fn scan(&mut self, viewer: Option<(TransactionId, u32)>, batch: u16) -> Result<Vec<Row>, ErrorCode> {
        let (table, version) = self.table;
        let places: Vec<_> = self.map.places().map(|(p, place)| (p, place.primary())).collect();
        let mut found = vec![];
        for (partition, owner) in places {
            let name = u32::from(partition.0) + 1;
            self.send(SignalNumber::ScanOpenRequest, owner, |w| {
                w.put(&ScanOpenHead {
                    version: U64::new(version),
                    transaction: U64::new(viewer.map_or(0, |(id, _)| id.0)),
                    scan: U32::new(name),
                    table: U32::new(table),
                    operation: U32::new(viewer.map_or(0, |(_, operation)| operation)),
                    from_row: U32::ZERO,
                    batch_bytes: U32::new(1 << 16),
                    limit: U32::ZERO,
                    partition: U16::new(partition.0),
                    batch_rows: U16::new(batch),
                    columns: U16::new(ALL_COLUMNS),
                    filter_bytes: U16::ZERO,
                });
            });
            loop {
                let mut is_over = false;
                for told in self.told() {
                    match told {
                        Told::Scanned { rows, end } => {
                            found.extend(rows);
                            is_over |= end;
                        }
                        Told::Refused(code) => return Err(code),
                        other => panic!("a scan is answered by rows, not {other:?}"),
                    }
                }
                if is_over {
                    break;
                }
                self.send(SignalNumber::ScanNextRequest, owner, |w| {
                    w.put(&ScanBody { scan: U32::new(name) });
                });
            }
        }
        found.sort_by_key(|row| row.0);
        Ok(found)
    }

    /// What the API node was told since the last call.
    pub fn told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.told)
    }

    /// The test table's id and version.
    pub fn table(&self) -> (u32, u64) {
        self.table
    }

    /// The data managers that own a partition.
    pub fn owners(&self) -> Vec<Address> {
        self.map.places().map(|(_, place)| place.primary()).collect()
    }

    /// The data manager that owns a key.
    pub fn owner(&self, hash: KeyHash) -> Address {
        self.map.place(self.map.partition(hash)).primary()
    }

    /// Feeds a node what an API node has sent and runs one turn; says how many bytes it answered, which are dropped.
    pub fn feed_raw(&mut self, node: u8, bytes: &[u8]) -> usize {
        let executor = self.executors.get_mut(&node).expect("a live node");
        executor.begin_turn(self.now);
        executor.feed(bytes, Origin::Api(API.node())).expect("an API node may send this");
        executor.finish_turn();
        let lane = self.lanes[&node].last().expect("the API node's lane").1;
        let answered = executor.outbox().lane(lane).len();
        executor.outbox().lane_mut(lane).clear();
        answered
    }

    /// The API node is declared failed: every block is told, as membership would.
    pub fn api_is_gone(&mut self) {
        let membership = Address::new(NodeId(1), BlockNumber::Membership, 0);
        let body = ApiNodeBody::new(API.node(), Incarnation(1));
        for signal in [SignalNumber::ApiConnectionClosedOrder, SignalNumber::ApiFailedOrder] {
            let settings = self.settings[&1].clone();
            let blocks = [BlockNumber::DataManager, BlockNumber::Coordinator, BlockNumber::Dictionary];
            for to in blocks.into_iter().flat_map(|block| settings.all_of(block)) {
                let mut bytes = vec![];
                FrameWriter::begin(&mut bytes, signal, 1, to, membership, 0).put(&body);
                if let Some(executor) = self.executors.get_mut(&to.node().0) {
                    executor.feed(&bytes, Origin::Node).expect("our own");
                }
            }
            self.run();
        }
    }

    /// Number of the newest outcome.
    pub fn outcomes(&self) -> u32 {
        self.outcomes
    }

    pub fn node(&self, node: u8) -> &Blocks {
        self.executors[&node].host()
    }

    pub fn is_at_rest(&self) -> bool {
        self.executors.values().all(|e| e.host().is_at_rest() && e.is_idle())
    }

    /// The signals that blocks have handled since the story of the given length, without the driver's, node by node.
    pub fn story(&self) -> String {
        let mut story = String::new();
        for (node, executor) in &self.executors {
            writeln!(story, "node {node}").expect("a string takes all");
            for entry in executor.trace().iter() {
                let Some(line) = describe(entry.length, &entry.bytes) else { continue };
                writeln!(story, "    {line}").expect("a string takes all");
            }
        }
        story
    }

    pub fn settings(&self, node: u8) -> &NodeSettings {
        &self.settings[&node]
    }

    fn hear(&mut self, frame: &Frame<'_>) -> Told {
        let signal = frame.signal().expect("our own signals are known");
        match signal {
            SignalNumber::CreateTableConfirm => {
                let TableConfirm { table, .. } = cold::read(frame).expect("well-formed");
                self.table = (table.table, table.version);
                Told::Other(signal)
            }
            SignalNumber::TransactionConfirm | SignalNumber::TransactionRefuse => {
                let (answer, rest) = frame.head::<TransactionAnswer>().expect("well-formed");
                let request = answer.request.get();
                self.outcomes = self.outcomes.max(answer.outcome_number.get());
                if signal == SignalNumber::TransactionRefuse {
                    return Told::Refuse {
                        request,
                        code: code(answer.error),
                        operation: answer.failed_operation.get(),
                    };
                }
                let errors = rest
                    .chunks_exact(size_of::<OperationError>())
                    .take(usize::from(answer.errors.get()))
                    .map(|e| {
                        let number = u32::from_le_bytes(e[..4].try_into().expect("four bytes"));
                        (number, code(U16::from_bytes([e[4], e[5]])))
                    })
                    .collect();
                Told::Confirm { request, outcome: answer.outcome, errors }
            }
            SignalNumber::TransactionRowReport => {
                let (head, rest) = frame.head::<TransactionRow>().expect("well-formed");
                let row = match head.row_bytes.get() {
                    NO_ROW => None,
                    bytes => Some(self.row(&rest[..usize::from(bytes)])),
                };
                Told::Row { operation: head.operation.get(), row }
            }
            SignalNumber::KeyReadConfirm => {
                let (answer, rest) = frame.head::<KeyReadAnswer>().expect("well-formed");
                Told::Rows(Rows::new(answer, rest).map(|row| row.map(|row| self.row(row))).collect())
            }
            SignalNumber::KeyReadRefuse => {
                Told::Refused(code(frame.head::<KeyReadRefusal>().expect("well-formed").0.code))
            }
            SignalNumber::ScanConfirm => {
                let (answer, mut rest) = frame.head::<ScanAnswer>().expect("well-formed");
                let mut rows = vec![];
                for _ in 0..answer.count.get() {
                    let length = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
                    rows.push(self.row(&rest[2..2 + length]));
                    rest = &rest[2 + length..];
                }
                Told::Scanned { rows, end: answer.flags.get() & vinga_wire::scan::SCAN_END != 0 }
            }
            SignalNumber::ScanRefuse => {
                Told::Refused(code(frame.head::<ScanRefusal>().expect("well-formed").0.code))
            }
            SignalNumber::OutcomeConfirm => {
                Told::Outcome(frame.head::<OutcomeConfirm>().expect("well-formed").0.outcome)
            }
            _ => Told::Other(signal),
        }
    }

    fn row(&self, image: &[u8]) -> Row {
        self.layout.check_image(image).expect("a node sends whole rows");
        let (fixed, variable) = self.layout.split(image);
        let column = |i: usize| self.layout.bytes(fixed, variable, &self.layout.columns()[i]);
        let text = (!self.layout.is_null(fixed, &self.layout.columns()[2]))
            .then(|| String::from_utf8(column(2).to_vec()).expect("the tests write text"));
        Row(
            u64::from_le_bytes(column(0).try_into().expect("eight bytes")),
            i64::from_le_bytes(column(1).try_into().expect("eight bytes")),
            text,
        )
    }
}

fn code(number: U16) -> ErrorCode {
    ErrorCode::from_number(number.get()).expect("a known error")
}

fn encode(layout: &RowLayout, op: &Op) -> (OperationKind, Vec<u8>, Vec<u8>) {
    let image = |Row(id, n, s): &Row| {
        let mut image = vec![];
        layout
            .build_image(
                &[Some(&id.to_le_bytes()), Some(&n.to_le_bytes()), s.as_ref().map(String::as_bytes)],
                &mut image,
            )
            .expect("the row fits");
        image
    };
    let program = |action: Action<'_>, column: u16| {
        let mut program = vec![];
        update_program::write(&mut [Instruction { column: ColumnId(column), action }], layout, &mut program)
            .expect("the program fits");
        program
    };
    let key = |key: &u64| key.to_le_bytes().to_vec();
    match op {
        Op::Insert(row) => (OperationKind::Insert, vec![], image(row)),
        Op::Write(row) => (OperationKind::Write, vec![], image(row)),
        Op::Add(k, n) => (OperationKind::Update, key(k), program(Action::Add(&n.to_le_bytes()), 1)),
        Op::SetText(k, s) => (OperationKind::Update, key(k), program(Action::Set(s.as_bytes()), 2)),
        Op::Delete(k) => (OperationKind::Delete, key(k), vec![]),
        Op::Read(kind, k) => (*kind, key(k), vec![]),
        Op::Unlock(k, number) => (OperationKind::Unlock, key(k), number.to_le_bytes().to_vec()),
    }
}

/// A handled signal as a line: who, what, and for those of transactions which and in which epoch.
fn describe(length: u32, bytes: &[u8]) -> Option<String> {
    let header = u16::from_le_bytes([bytes[4], bytes[5]]);
    let signal = SignalNumber::from_number(header)?;
    let address = |at: usize| Address(u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")));
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let body = 20;
    let about = match signal {
        SignalNumber::TransactionRequest | SignalNumber::OutcomeRequest => {
            format!("{:?}", TransactionId(number(body)))
        }
        SignalNumber::PrepareRequest
        | SignalNumber::PrepareConfirm
        | SignalNumber::PrepareRefuse
        | SignalNumber::CommitRequest
        | SignalNumber::CommitConfirm => {
            format!("{:?} epoch {}", TransactionId(number(body)), number(body + 8))
        }
        SignalNumber::AbortRequest | SignalNumber::AbortConfirm => {
            format!("{:?}", TransactionId(number(body)))
        }
        SignalNumber::CompleteOrder | SignalNumber::MarkersDropOrder => {
            format!("{:?}", TransactionId(number(body + 4)))
        }
        _ => return None,
    };
    Some(format!("{} -> {} {signal:?} {about} ({length} bytes)", address(12), address(8)))
}
