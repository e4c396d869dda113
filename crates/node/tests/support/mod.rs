//! A cluster in one thread, without delays: every frame is delivered in the order in which it was sent, so that a
//! protocol can be read as a scenario. A test may hold frames back (`hold`), kill data nodes, and open and break
//! connections of the API node (`connections`); `batches` and `reads` are what that sends, `received` is what it
//! receives. (The simulator is for everything that can go wrong.)

/// The scenario is run twice: with all rules, and with one broken, which it must notice.
#[allow(unused_macros, reason = "no_allocation.rs does not use it")]
macro_rules! hazards {
    ($($(#[$doc:meta])* $name:ident breaks $($bug:ident),+;)*) => {
        $(
            $(#[$doc])*
            #[test]
            fn $name() {
                scenarios::$name(None);
            }
        )*

        #[cfg(feature = "injected-bugs")]
        mod is_noticed_if_broken {
            use super::{InjectedBug, scenarios};

            $(
                #[test]
                fn $name() {
                    for bug in [$(InjectedBug::$bug),+] {
                        let received = std::panic::catch_unwind(|| scenarios::$name(Some(bug)));
                        assert!(received.is_err(), "nobody notices {}", bug.name());
                    }
                }
            )*
        }
    };
}

mod batches;
mod connections;
pub mod disk;
mod groups;
mod hold;
mod joining;
pub mod ranges;
mod reads;
mod received;
mod returning;
mod scenario;
pub mod unique;

#[allow(unused_imports, reason = "no_allocation.rs does not use them all")]
pub use self::{
    batches::{ALL, Op, strict},
    received::{Received, committed, open, refused},
    scenario::check_golden,
};

use disk::{LogSize, MemoryDisk};
use hold::Held;
use received::code;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vinga_base::order_key::{Direction, OrderColumn};
use vinga_base::page_pool::PagePool;
use vinga_base::row_layout::RowLayout;
use vinga_base::schema::{
    ColumnDefinition, ColumnType, Durability, IndexDefinition, IndexKind, TableDefinition,
};
use vinga_base::{ColumnId, Epoch, Incarnation, NodeId, PartitionId, RowId, TablePartitions, TransactionId};
use vinga_kernel::{Executor, InjectedBug, LaneId, Origin, Outbox, Routes, Scrutiny, Span, Tick};
use vinga_node::{Blocks, NoFacts, NodeSettings, ThreadHosting};
use vinga_wire::dictionary::{CreateTableRequest, TableConfirm, TableRecord};
use vinga_wire::frame::Frames;
use vinga_wire::info::{InfoConfirm, InfoRequest, InfoTable, InfoValue};
use vinga_wire::membership::ApiNodeBody;
use vinga_wire::operation::{ALL_COLUMNS, LockWait, OperationKind};
use vinga_wire::schema::{SchemaChange, SchemaChangeConfirm, SchemaChangeRequest};
use vinga_wire::take_over::{
    CoordinatorBody, CoordinatorName, InheritedOutcomeRequest, OutcomesReleasedOrder,
};
use vinga_wire::transaction::{
    OperationError, OutcomeConfirm, OutcomeRequest, OutcomesSeenOrder, TransactionAnswer, TransactionRow,
};
use vinga_wire::view::{ClusterView, Partition};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, FrameWriter, SignalNumber, U16, U32, U64, cold};

pub const API: Address = Address::new(NodeId(145), BlockNumber::Api, 0);
/// Another API node, which changes the schema while the first one works.
pub const OTHER_API: Address = Address::new(NodeId(146), BlockNumber::Api, 0);
pub const TC: Address = Address::new(NodeId(1), BlockNumber::Coordinator, 0);

/// The coordinator of a node.
pub fn tc(node: u8) -> Address {
    Address::new(NodeId(node), BlockNumber::Coordinator, 0)
}

/// A data manager.
pub fn dm(node: u8, instance: u16) -> Address {
    Address::new(NodeId(node), BlockNumber::DataManager, instance)
}

/// The test table's index over the number.
pub const BY_NUMBER: u16 = 1;
/// The test table's index over text, ascending, and number, descending.
pub const BY_TEXT: u16 = 2;

/// How a cluster is made.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Data nodes, all in one group, with two data managers each. All rows are on all nodes.
    pub nodes: u8,
    /// So many of the first nodes have coordinators.
    pub coordinators: u8,
    /// How many each of them has.
    pub coordinators_each: u16,
    /// Whether backups of the table answer reads.
    pub read_backup: bool,
    /// Whether the table has a unique index on the number and one on the text.
    pub unique: bool,
    /// Partitions of the table; 0 for all.
    pub partitions: u16,
    /// How long a driver may take to report that connections are closed.
    pub heartbeat_interval: Span,
    /// How often data nodes send each other heartbeats.
    pub node_heartbeat_interval: Span,
    /// Whether the rows of the table are in no log.
    pub no_logging: bool,
    /// How large the redo log of each node is; without one nothing is kept on disk.
    pub log: Option<LogSize>,
    /// Whether the last replica of a chain may commit by itself. Most scenarios are about the steps of the two phases.
    pub commits_at_last_replica: bool,
    /// Operations of a transaction's end that a data manager deals with in one turn.
    pub ending_slice: u32,
    /// Bytes of rows after which a batch of a copy ends.
    pub copy_piece: usize,
    /// A rule that is broken on purpose; only with the feature `injected-bugs`.
    pub bug: Option<InjectedBug>,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            nodes: 3,
            coordinators: 1,
            coordinators_each: 1,
            read_backup: false,
            unique: false,
            partitions: 0,
            // Nobody is silent for so long.
            heartbeat_interval: Span::from_millis(1_000_000),
            node_heartbeat_interval: Span::from_millis(1_000_000),
            no_logging: false,
            log: None,
            commits_at_last_replica: false,
            ending_slice: vinga_node::ENDING_SLICE,
            copy_piece: vinga_node::COPY_PIECE,
            bug: None,
        }
    }
}

/// A row of the test table: key, number, text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row(pub u64, pub i64, pub Option<String>);

pub fn row(key: u64, n: i64) -> Row {
    Row(key, n, Some(format!("row {key}")))
}

/// The settings of a node with two data managers and so many coordinators, all on one thread.
fn node_settings(node: u8, coordinators: u16) -> NodeSettings {
    NodeSettings {
        node: NodeId(node),
        incarnation: Incarnation(1),
        group: 0,
        address: String::new(),
        epoch: Epoch(100),
        table_version: 1000,
        threads: vec![ThreadHosting {
            data_managers: 0..2,
            coordinators: 0..coordinators,
            streams: 0..0,
            main: true,
            owns_sockets: true,
        }],
        transactions_max: 32,
        operations_max: 64,
        scans_max: 4,
        tables_max: 8,
        usual_partitions: 6,
        api_first: NodeId(145),
        api_nodes_max: 10,
        lock_timeout: Span::from_millis(1200),
        inactive_timeout: Some(Span::from_millis(5000)),
        backup_buffer: 1 << 20,
        backup_piece: vinga_node::BACKUP_PIECE,
        copy_piece: vinga_node::COPY_PIECE,
        ending_slice: vinga_node::ENDING_SLICE,
        operations_together: 2,
        commits_at_last_replica: false,
        heartbeat_interval: Span::from_millis(1_000_000),
        node_heartbeat_interval: Span::from_millis(1_000_000),
        arbitration_timeout: Span::from_millis(7_500),
        has_arbitrators: false,
        reconnect_grace: Span::from_millis(1500),
        epoch_interval: Span::from_millis(100),
        checkpoint_interval: Span::from_millis(2000),
        disk: None,
    }
}

pub struct Cluster {
    /// How long operations that are sent from now on wait for their locks.
    pub wait: LockWait,
    executors: BTreeMap<u8, Executor<Blocks>>,
    /// By node: the lanes to all others and to the API node.
    lanes: BTreeMap<u8, Vec<(u8, LaneId)>>,
    pub layout: RowLayout,
    table: (u32, u64),
    /// The partitions of the test table.
    partitions: TablePartitions,
    /// The hidden tables of the unique indexes.
    hidden: Vec<(u32, u64)>,
    pub view: Arc<ClusterView>,
    pub now: Tick,
    received: Vec<Received>,
    transactions: u64,
    /// The API node's incarnation.
    incarnation: Incarnation,
    /// The newest outcome of each coordinator.
    outcomes: BTreeMap<Address, u32>,
    /// The epoch in the newest answer of a coordinator.
    epoch_received: u64,
    /// The unique indexes that the newest answer blames: of the cause first, then of operations that failed alone.
    indexes_received: Vec<u16>,
    settings: BTreeMap<u8, NodeSettings>,
    /// Pages that a data manager of nodes has that have another number than [`PAGES`], from their next start on.
    pub pages: BTreeMap<u8, u32>,
    bug: Option<InjectedBug>,
    /// What nodes that came back were given.
    tables: Vec<TableRecord>,
    held: Held,
    /// Nodes whose long work stands still.
    held_slices: BTreeSet<u8>,
    /// The newest rows of an information table.
    info: Vec<Vec<InfoValue>>,
    /// The files of the nodes that have a disk.
    pub disks: BTreeMap<u8, MemoryDisk>,
    /// How often it has run.
    runs: u32,
    ticket: u64,
    /// Batches of range scans that were not looked at, and whether the scan ended with them.
    range_answers: Vec<ranges::Answer>,
    /// Index statistics that were not looked at.
    statistics: Vec<Result<ranges::Statistics, ErrorCode>>,
}

fn definition(setup: &Setup) -> TableDefinition {
    let column =
        |name: &str, column_type, nullable| ColumnDefinition { name: name.into(), column_type, nullable };
    let index = |id, name: &str, columns: &[(u16, Direction)]| IndexDefinition {
        id,
        name: name.into(),
        columns: columns
            .iter()
            .map(|&(column, direction)| OrderColumn { column: ColumnId(column), direction })
            .collect(),
        kind: IndexKind::Ordered,
    };
    TableDefinition {
        name: "test.t".into(),
        columns: vec![
            column("id", ColumnType::Integer { bytes: 8, signed: false }, false),
            column("n", ColumnType::Integer { bytes: 8, signed: true }, false),
            column("s", ColumnType::VarChar { bytes_max: 40 }, true),
        ],
        primary_key: vec![ColumnId(0)],
        read_backup: setup.read_backup,
        durability: if setup.no_logging { Durability::NotLogged } else { Durability::Memory },
        partitions: setup.partitions,
        indexes: [
            index(BY_NUMBER, "by number", &[(1, Direction::Ascending)]),
            index(BY_TEXT, "by text", &[(2, Direction::Ascending), (1, Direction::Descending)]),
        ]
        .into_iter()
        .chain(unique::indexes().into_iter().filter(|_| setup.unique))
        .collect(),
        ..TableDefinition::default()
    }
}

/// Pages that a data manager has.
const PAGES: u32 = 64;

/// A data node, and its lanes to all others and to the API nodes.
fn make_node(
    settings: &NodeSettings,
    view: &Arc<ClusterView>,
    others: impl Iterator<Item = NodeId>,
    pages: u32,
    bug: Option<InjectedBug>,
) -> (Executor<Blocks>, Vec<(u8, LaneId)>) {
    let node = settings.node;
    let blocks = Blocks::new(settings, 0, |_| PagePool::standalone(pages), Box::new(NoFacts));
    // The second thread hosts nothing, but its driver may serve connections.
    let routes = Routes::to(node, 0, &settings.instances());
    let mut outbox = Outbox::new(routes, 2, 1 << 20);
    let mut own = vec![];
    for other in others.filter(|&other| other != node).chain([OTHER_API.node(), API.node()]) {
        let lane = outbox.open_lane(0);
        outbox.routes.set_node(other, Some(lane));
        own.push((other.0, lane));
    }
    let mut executor = Executor::new(node, view.clone(), blocks, outbox, u64::from(node.0), Tick(0));
    executor.inject_bug(bug);
    (executor, own)
}

impl Cluster {
    /// `nodes` data nodes; node 1 has the coordinator.
    pub fn new(nodes: u8) -> Self {
        Cluster::with(&Setup { nodes, ..Setup::default() })
    }

    /// Makes a cluster and the test table.
    pub fn with(setup: &Setup) -> Self {
        let nodes = setup.nodes;
        let coordinators = |node: u8| if node <= setup.coordinators { setup.coordinators_each } else { 0 };
        let settings = |node| {
            let plain = node_settings(node, coordinators(node));
            let Setup { heartbeat_interval, node_heartbeat_interval, .. } = *setup;
            let Setup { commits_at_last_replica, ending_slice, copy_piece, .. } = *setup;
            let disk = setup.log.map(|log| MemoryDisk::default().settings(NodeId(node), log));
            let mut threads = plain.threads.clone();
            threads[0].streams = 0..u16::from(disk.is_some());
            NodeSettings {
                heartbeat_interval,
                node_heartbeat_interval,
                commits_at_last_replica,
                ending_slice,
                copy_piece,
                threads,
                disk,
                ..plain
            }
        };
        let view = Arc::new(ClusterView::first((1..=nodes).map(|node| settings(node).member()).collect()));
        let mut executors = BTreeMap::new();
        let mut lanes = BTreeMap::new();
        let mut all_settings = BTreeMap::new();
        for node in 1..=nodes {
            let settings = settings(node);
            let (executor, own) = make_node(&settings, &view, (1..=nodes).map(NodeId), PAGES, setup.bug);
            lanes.insert(node, own);
            executors.insert(node, executor);
            all_settings.insert(node, settings);
        }
        let definition = definition(setup);
        let layout = RowLayout::new(&definition);
        let mut cluster = Cluster {
            wait: LockWait::Default,
            executors,
            lanes,
            layout,
            table: (0, 0),
            partitions: TablePartitions::first(1),
            hidden: vec![],
            now: Tick(0),
            received: vec![],
            transactions: 0,
            incarnation: Incarnation(1),
            outcomes: BTreeMap::new(),
            epoch_received: 0,
            indexes_received: vec![],
            view,
            settings: all_settings,
            pages: BTreeMap::new(),
            bug: setup.bug,
            tables: vec![],
            held: Held::default(),
            held_slices: BTreeSet::new(),
            info: vec![],
            disks: BTreeMap::new(),
            runs: 0,
            ticket: 0,
            range_answers: vec![],
            statistics: vec![],
        };
        if setup.log.is_some() {
            cluster.disks = (1..=nodes).map(|node| (node, MemoryDisk::default())).collect();
            cluster.run();
        }
        cluster.notify(API, SignalNumber::ApiConnectedOrder);
        cluster.notify(OTHER_API, SignalNumber::ApiConnectedOrder);
        let dictionary = Address::new(NodeId(1), BlockNumber::Dictionary, 0);
        cluster.send(SignalNumber::CreateTableRequest, dictionary, |w| {
            cold::write(w, &CreateTableRequest { request: 1, definition });
        });
        if setup.log.is_some() {
            // It is answered when it is on disk.
            cluster.advance(Span::from_millis(1000));
        }
        assert_ne!(cluster.table, (0, 0), "the table is created");
        cluster.received.clear();
        cluster
    }

    /// The test table's definition, for another one with this name.
    pub fn definition_of(name: &str) -> TableDefinition {
        TableDefinition { name: name.into(), ..definition(&Setup::default()) }
    }

    /// Node 1 gets a signal from itself, and everything runs to the end.
    pub fn send_own(
        &mut self,
        signal: SignalNumber,
        from: BlockNumber,
        to: BlockNumber,
        body: impl FnOnce(&mut FrameWriter<'_>),
    ) {
        let address = |block| Address::new(NodeId(1), block, 0);
        let mut bytes = vec![];
        body(&mut FrameWriter::begin(&mut bytes, signal, 1, address(to), address(from), 0));
        let executor = self.executors.get_mut(&1).expect("a live node");
        executor.begin_turn(self.now);
        executor.feed(&bytes, Origin::Node).expect("our own");
        self.run();
    }

    /// The only node stops and starts again from its disk. The API node is a new one to it.
    pub fn restart(&mut self) {
        let settings = self.settings.get_mut(&1).expect("it was made");
        let before = settings.disk.as_ref().expect("it has a disk");
        let log = LogSize { files: before.log_files, file_bytes: before.log_file_bytes };
        settings.disk = Some(self.disks[&1].settings(NodeId(1), log));
        let others = self.view.members().iter().map(|member| member.node);
        let (executor, lanes) = make_node(settings, &self.view, others, PAGES, None);
        self.executors.insert(1, executor);
        self.lanes.insert(1, lanes);
        self.run();
        self.api_is_back();
    }

    /// The other API node asks for a schema change, and everything runs to the end.
    pub fn change_schema(&mut self, change: SchemaChange) {
        let mut bytes = vec![];
        let to = Address::new(NodeId(1), BlockNumber::Dictionary, 0);
        let mut w = FrameWriter::begin(&mut bytes, SignalNumber::SchemaChangeRequest, 1, to, OTHER_API, 0);
        cold::write(&mut w, &SchemaChangeRequest { request: 1, change });
        drop(w);
        let executor = self.executors.get_mut(&1).expect("a live node");
        executor.begin_turn(self.now);
        executor.feed(&bytes, Origin::Api(OTHER_API.node())).expect("an API node may send this");
        self.run();
    }

    /// Sends a frame from the API node and lets everything run to the end.
    pub fn send(&mut self, signal: SignalNumber, to: Address, body: impl FnOnce(&mut FrameWriter<'_>)) {
        let mut bytes = vec![];
        body(&mut FrameWriter::begin(&mut bytes, signal, 1, to, API, 0));
        self.send_bytes(to.node().0, &bytes);
    }

    /// A data node reads what the API node has sent, and everything runs to the end.
    pub fn send_bytes(&mut self, node: u8, bytes: &[u8]) {
        let executor = self.executors.get_mut(&node).expect("a live node");
        executor.begin_turn(self.now);
        executor.feed(bytes, Origin::Api(API.node())).expect("an API node may send this");
        self.run();
    }

    /// Delivers until nothing is under way.
    pub fn run(&mut self) {
        self.runs += 1;
        loop {
            let mut moved = vec![];
            let (mut views, mut stopped) = (vec![], BTreeSet::new());
            let mut is_served = false;
            for (&node, executor) in &mut self.executors {
                executor.begin_turn(self.now);
                if self.held_slices.contains(&node) {
                    executor.run_timers();
                } else {
                    while executor.finish_turn() {}
                }
                is_served |= self.disks.get_mut(&node).is_some_and(|disk| disk.serve(executor));
                for &(to, lane) in &self.lanes[&node] {
                    let bytes = std::mem::take(executor.outbox().lane_mut(lane));
                    if !bytes.is_empty() {
                        moved.push((node, to, bytes));
                    }
                }
                for driver in [LaneId::DRIVER, LaneId::thread(1)] {
                    for frame in Frames(&std::mem::take(executor.outbox().lane_mut(driver))) {
                        if let Some(view) = joining::installed(&frame) {
                            views.push((node, view));
                            continue;
                        }
                        if frame.signal() == Some(SignalNumber::StopNodeOrder) {
                            stopped.insert(node);
                        }
                        let Some((received, ticket)) = connections::answer(&frame) else { continue };
                        self.ticket = ticket.unwrap_or(self.ticket);
                        self.received.push(received);
                    }
                }
            }
            for (_, to, bytes) in &mut moved {
                self.held.keep(*to, bytes);
            }
            if moved.is_empty() && views.is_empty() && stopped.is_empty() && !is_served {
                let scrutiny = if self.runs.is_multiple_of(16) { Scrutiny::Full } else { Scrutiny::Brief };
                self.executors.values().for_each(|executor| executor.host().check_invariants(scrutiny));
                return;
            }
            for (from, to, bytes) in moved {
                if [API.node().0, OTHER_API.node().0].contains(&to) {
                    for frame in Frames(&bytes) {
                        if let Some(answer) = self.receive_range(&frame) {
                            self.range_answers.push(answer);
                        } else if let Some(answer) = ranges::receive_statistics(&frame) {
                            self.statistics.push(answer);
                        } else {
                            let received = self.receive_frame(&frame);
                            self.received.push(received);
                        }
                    }
                } else if let Some(executor) = self.executors.get_mut(&to) {
                    executor.feed(&bytes, Origin::Peer(NodeId(from))).expect("a data node may send this");
                }
            }
            for (node, view) in views {
                self.adopt_at(node, view);
            }
            stopped.into_iter().for_each(|node| self.end_process(node));
        }
    }

    /// Lets a span of time go by.
    pub fn advance(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            self.now = (self.now + Span::from_millis(10)).min(end);
            self.run();
        }
    }

    /// Kills a data node; the others adopt a view without it. What is held back of it, or for it, is lost.
    pub fn kill(&mut self, node: u8) {
        self.executors.remove(&node);
        self.held.forget(NodeId(node));
        for executor in self.executors.values_mut() {
            executor.outbox().routes.set_node(NodeId(node), None);
        }
        self.adopt(self.view.without(&[NodeId(node)]));
    }

    /// The rows of an information table of node 1.
    pub fn info(&mut self, table: InfoTable) -> Vec<Vec<InfoValue>> {
        let info = Address::new(NodeId(1), BlockNumber::Info, 0);
        self.send(SignalNumber::InfoRequest, info, |w| cold::write(w, &InfoRequest { request: 1, table }));
        assert_eq!(self.received().pop(), Some(Received::Other(SignalNumber::InfoConfirm)));
        std::mem::take(&mut self.info)
    }

    /// A new transaction's id.
    pub fn begin(&mut self) -> TransactionId {
        self.transactions += 1;
        TransactionId::new(API.node(), self.incarnation, self.transactions)
    }

    /// The API node has seen all outcomes.
    pub fn forget_all_outcomes(&mut self) {
        for (coordinator, seen) in self.outcomes.clone() {
            if !self.executors.contains_key(&coordinator.node().0) {
                continue;
            }
            self.forget_outcomes_of(coordinator, seen);
        }
    }

    pub fn forget_outcomes(&mut self, seen: u32) {
        self.forget_outcomes_of(TC, seen);
    }

    fn forget_outcomes_of(&mut self, coordinator: Address, seen: u32) {
        let owner = TransactionId::new(API.node(), self.incarnation, 1);
        self.send(SignalNumber::OutcomesSeenOrder, coordinator, |w| {
            w.put(&OutcomesSeenOrder { owner: U64::new(owner.0), outcomes_seen: U32::new(seen) });
        });
    }

    /// Asks the coordinator of node 1 what became of a transaction: 1 committed, 3 nothing is known of it.
    pub fn ask(&mut self, id: TransactionId) -> Vec<Received> {
        self.received();
        self.send(SignalNumber::OutcomeRequest, TC, |w| {
            w.put(&OutcomeRequest { transaction: U64::new(id.0), request: U32::new(1) });
        });
        self.received()
    }

    /// Asks a successor what became of a transaction of a coordinator that has failed.
    pub fn ask_successor(&mut self, successor: Address, id: TransactionId, failed: Address) -> Vec<Received> {
        let coordinator = self.name_of(failed);
        self.received();
        self.send(SignalNumber::InheritedOutcomeRequest, successor, |w| {
            let (transaction, request) = (U64::new(id.0), U32::new(1));
            w.put(&InheritedOutcomeRequest { transaction, request, coordinator });
        });
        self.received()
    }

    /// The API node has nothing to ask of a coordinator that has failed.
    pub fn release_coordinator(&mut self, successor: Address, failed: Address) {
        let name = self.name_of(failed).name();
        assert_eq!(self.view.acts_for(name), Some(successor));
        self.release_inherited(name);
    }

    fn name_of(&self, coordinator: Address) -> CoordinatorBody {
        let incarnation = self.settings(coordinator.node().0).incarnation;
        CoordinatorName { address: coordinator, incarnation }.into()
    }

    /// What the API node has received since the last call.
    pub fn received(&mut self) -> Vec<Received> {
        std::mem::take(&mut self.received)
    }

    /// The test table's id and version.
    pub fn table(&self) -> (u32, u64) {
        self.table
    }

    /// The data managers that own a partition.
    pub fn owners(&self) -> Vec<Address> {
        self.view.partitions().iter().map(Partition::primary).collect()
    }

    /// The data manager that owns a key.
    pub fn owner_of(&self, key: u64) -> Address {
        self.view.partition(self.partition_of(key)).primary()
    }

    /// The next key whose row is in another partition.
    pub fn key_elsewhere(&self, than: u64) -> u64 {
        (than + 1..).find(|&key| self.partition_of(key) != self.partition_of(than)).expect("one of many keys")
    }

    /// Some keys whose rows have their primary at a node, from the first on.
    pub fn keys_at(&self, node: u8) -> impl Iterator<Item = u64> {
        (1..).filter(move |&key| self.owner_of(key).node() == NodeId(node))
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

    /// The API node is declared failed: every block is notified, as membership would.
    pub fn api_is_gone(&mut self) {
        for signal in [SignalNumber::ApiConnectionClosedOrder, SignalNumber::ApiFailedOrder] {
            self.notify_of_api(signal);
        }
    }

    /// The next incarnation of the API node is admitted.
    pub fn api_is_back(&mut self) {
        self.incarnation.0 += 1;
        self.transactions = 0;
        self.outcomes.clear();
        self.notify_of_api(SignalNumber::ApiConnectedOrder);
    }

    /// One of the two orders about that: the first ends its transactions, which must be over before the second.
    pub fn notify_of_api(&mut self, signal: SignalNumber) {
        self.notify(API, signal);
    }

    /// Only one block gets it so far.
    pub fn notify_one_of_api(&mut self, to: Address, signal: SignalNumber) {
        self.feed_notification(to, API, signal);
        self.run();
    }

    /// All blocks get an order about an API node.
    fn notify(&mut self, api: Address, signal: SignalNumber) {
        let blocks = [BlockNumber::DataManager, BlockNumber::Coordinator, BlockNumber::Dictionary];
        let view = self.view.clone();
        for to in blocks.into_iter().flat_map(|block| view.addresses(block)) {
            self.feed_notification(to, api, signal);
        }
        self.run();
    }

    fn feed_notification(&mut self, to: Address, api: Address, signal: SignalNumber) {
        let membership = Address::new(NodeId(1), BlockNumber::Membership, 0);
        let incarnation = if api == API { self.incarnation } else { Incarnation(1) };
        let mut bytes = vec![];
        FrameWriter::begin(&mut bytes, signal, 1, to, membership, 0)
            .put(&ApiNodeBody::new(api.node(), incarnation));
        if let Some(executor) = self.executors.get_mut(&to.node().0) {
            executor.feed(&bytes, Origin::Node).expect("our own");
        }
    }

    /// Number of the newest outcome of node 1's coordinator.
    pub fn outcomes(&self) -> u32 {
        self.outcomes.get(&TC).copied().unwrap_or(0)
    }

    /// The epoch in the newest answer of a coordinator.
    pub fn epoch_received(&self) -> u64 {
        self.epoch_received
    }

    pub fn node(&self, node: u8) -> &Blocks {
        self.executors[&node].host()
    }

    pub fn node_mut(&mut self, node: u8) -> &mut Blocks {
        self.executors.get_mut(&node).expect("a live node").host_mut()
    }

    pub fn live_nodes(&self) -> Vec<u8> {
        self.executors.keys().copied().collect()
    }

    /// All rows of a node as they lie in their slots: partition, row id, epoch, bytes.
    pub fn contents(&self, node: u8) -> Vec<(PartitionId, RowId, Epoch, Vec<u8>)> {
        let mut rows = vec![];
        for data_manager in self.node(node).data_managers() {
            data_manager.inspect_indexes().expect("each index leads to exactly the rows that there are");
            data_manager.inspect_rows(|row| rows.push((row.partition, row.row, row.epoch, row.image)));
        }
        rows
    }

    /// At the end everything must be finished, and the replicas equal.
    pub fn ends_well(mut self) {
        self.forget_all_outcomes();
        assert!(self.is_at_rest(), "something is left: {}", self.left());
        let contents: BTreeMap<u8, Vec<_>> =
            self.live_nodes().into_iter().map(|node| (node, self.contents(node))).collect();
        for (number, partition) in (0..).map(PartitionId).zip(self.view.partitions()) {
            let of = |node: &u8| contents[node].iter().filter(move |row| row.0 == number);
            let primary = partition.chain.primary().0;
            for node in contents.keys().filter(|&&node| partition.chain.contains(NodeId(node))) {
                assert!(of(node).eq(of(&primary)), "replicas differ: nodes {primary} and {node}");
            }
            let mut others = contents.keys().filter(|&&node| !partition.replicas().contains(NodeId(node)));
            assert!(others.all(|node| of(node).next().is_none()), "rows are where they do not belong");
        }
    }

    /// What is left of transactions, for people.
    fn left(&self) -> String {
        let mut left = String::new();
        for (node, executor) in &self.executors {
            for (instance, data_manager) in executor.host().data_managers().iter().enumerate() {
                let used = data_manager.pools().map(|pool| format!("{} {}", pool.used, pool.name)).join(", ");
                let markers = data_manager.markers();
                left += &format!("\n{}: {used}, {markers} markers", dm(*node, instance as u16));
            }
            for (instance, coordinator) in executor.host().coordinators().iter().enumerate() {
                if !coordinator.is_at_rest() {
                    left += &format!("\nsomething at coordinator {instance} of node {node}");
                }
            }
            if !executor.is_idle() {
                left += &format!("\nsignals at node {node}");
            }
        }
        left
    }

    pub fn is_at_rest(&self) -> bool {
        self.executors.values().all(|e| e.host().is_at_rest() && e.is_idle())
    }

    pub fn settings(&self, node: u8) -> &NodeSettings {
        &self.settings[&node]
    }
}
