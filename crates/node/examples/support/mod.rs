//! A data node's thread without sockets, for the examples that measure it: eight data managers, one table of rows with
//! a key of 8 bytes and 100 bytes more.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;
use vinga_base::hash::KeyHash;
use vinga_base::page_pool::PagePool;
use vinga_base::schema::{ColumnDefinition, ColumnType, Durability, IndexDefinition, TableDefinition};
use vinga_base::{ColumnId, Epoch, Incarnation, NodeId, TablePartitions, TransactionId};
use vinga_kernel::{Executor, Origin, Outbox, Routes, Span, Tick};
use vinga_node::{Blocks, NoFacts, NodeSettings, ThreadHosting};
use vinga_wire::dictionary::TableRecord;
use vinga_wire::key_read::KeyReadHead;
use vinga_wire::membership::ApiNodeBody;
use vinga_wire::operation::{ALL_COLUMNS, OperationHead, OperationKind};
use vinga_wire::schema_round::{RoundName, RoundTask, SchemaRoundRequest};
use vinga_wire::transaction::{FLAG_COMMIT, FLAG_START, TransactionHead};
use vinga_wire::view::ClusterView;
use vinga_wire::{Address, BlockNumber, FrameWriter, SignalNumber, U16, U32, U64, cold};

pub const NODE: NodeId = NodeId(1);
pub const API: Address = Address::new(NodeId(200), BlockNumber::Api, 0);
/// Rows of the table.
pub const ROWS: u64 = 1_000_000;
/// Id of the table.
pub const TABLE: u32 = 1;
/// Its version.
pub const VERSION: u64 = 7;

pub fn settings() -> NodeSettings {
    let data_managers = 8;
    NodeSettings {
        node: NODE,
        incarnation: Incarnation(1),
        group: 0,
        address: String::new(),
        epoch: Epoch(1),
        table_version: 1,
        threads: vec![ThreadHosting {
            data_managers: 0..data_managers,
            coordinators: 0..1,
            streams: 0..0,
            main: true,
            owns_sockets: true,
        }],
        transactions_max: 8192,
        operations_max: 8192,
        scans_max: 64,
        tables_max: 128,
        usual_partitions: 8,
        api_first: NodeId(145),
        api_nodes_max: 100,
        lock_timeout: Span::from_millis(1200),
        inactive_timeout: None,
        backup_buffer: 1 << 20,
        backup_piece: vinga_node::BACKUP_PIECE,
        copy_piece: vinga_node::COPY_PIECE,
        ending_slice: vinga_node::ENDING_SLICE,
        operations_together: vinga_node::OPERATIONS_TOGETHER,
        commits_at_last_replica: true,
        heartbeat_interval: Span::from_millis(1500),
        node_heartbeat_interval: Span::from_millis(250),
        arbitration_timeout: Span::from_millis(7_500),
        has_arbitrators: false,
        reconnect_grace: Span::from_millis(1500),
        epoch_interval: Span::from_millis(100),
        checkpoint_interval: Span::from_millis(2000),
        disk: None,
    }
}

/// A data node without sockets, and an API node's view of it.
pub struct Bench {
    pub executor: Executor<Blocks>,
    pub view: Arc<ClusterView>,
    partitions: TablePartitions,
    api_lane: vinga_kernel::LaneId,
    next_transaction: u64,
}

impl Bench {
    /// With a table of these indexes.
    pub fn new(indexes: Vec<IndexDefinition>) -> Self {
        let settings = settings();
        let blocks = Blocks::new(&settings, 0, |_| PagePool::standalone(2000), Box::new(NoFacts));
        let view = Arc::new(ClusterView::first(vec![settings.member()]));
        let mut outbox = Outbox::new(Routes::to(NODE, 0, &settings.instances()), 1, 1 << 20);
        let api_lane = outbox.open_lane(1 << 20);
        outbox.routes.set_node(API.node(), Some(api_lane));
        let mut executor = Executor::new(NODE, view.clone(), blocks, outbox, 1, Tick(0));
        let definition = TableDefinition {
            name: "test.t".into(),
            columns: vec![
                ColumnDefinition {
                    name: "id".into(),
                    column_type: ColumnType::Integer { bytes: 8, signed: false },
                    nullable: false,
                },
                ColumnDefinition {
                    name: "v".into(),
                    column_type: ColumnType::Binary { bytes: 100 },
                    nullable: false,
                },
            ],
            primary_key: vec![ColumnId(0)],
            durability: Durability::NotLogged,
            indexes,
            ..TableDefinition::default()
        };
        let partitions = TablePartitions::first(8);
        let mut bytes = vec![];
        let from = Address::new(NODE, BlockNumber::Dictionary, 0);
        let blocks = [BlockNumber::DataManager, BlockNumber::Coordinator];
        for to in blocks.into_iter().flat_map(|block| view.addresses(block)) {
            let record = TableRecord::new(TABLE, VERSION, partitions.clone(), definition.clone());
            let task = match to.block() {
                Some(BlockNumber::DataManager) => RoundTask::Prepare { record, made: vec![TABLE] },
                _ => RoundTask::Publish { records: vec![record], gone: vec![] },
            };
            FrameWriter::begin(&mut bytes, SignalNumber::ApiConnectedOrder, 1, to, from, 0)
                .put(&ApiNodeBody::new(API.node(), Incarnation(1)));
            cold::write(
                &mut FrameWriter::begin(&mut bytes, SignalNumber::SchemaRoundRequest, 1, to, from, 0),
                &SchemaRoundRequest { round: RoundName { change: 1, step: 1 }, epoch: Epoch(0), task },
            );
        }
        // The dictionary did not ask for it: the answers would surprise it, so they are taken away.
        executor.outbox().routes.set_node(NodeId(9), None);
        let bytes = redirect(bytes);
        executor.feed(&bytes, Origin::Node).expect("our own frames");
        Bench { executor, view, partitions, api_lane, next_transaction: 1 }
    }

    /// Runs a turn on what an API node has sent; says how many bytes were answered.
    pub fn turn(&mut self, bytes: &[u8]) -> usize {
        self.executor.begin_turn(Tick(1));
        let consumed = self.executor.feed(bytes, Origin::Api(API.node())).expect("our own frames");
        assert_eq!(consumed, bytes.len());
        self.executor.finish_turn();
        let lane = self.executor.outbox().lane_mut(self.api_lane);
        let length = black_box(lane.len());
        lane.clear();
        length
    }

    /// The same, and further turns until no long work is left.
    pub fn turns(&mut self, bytes: &[u8]) -> usize {
        self.executor.begin_turn(Tick(1));
        let consumed = self.executor.feed(bytes, Origin::Api(API.node())).expect("our own frames");
        assert_eq!(consumed, bytes.len());
        while self.executor.finish_turn() {}
        let lane = self.executor.outbox().lane_mut(self.api_lane);
        let length = black_box(lane.len());
        lane.clear();
        length
    }

    /// One `KeyReadRequest` for each data manager concerned.
    pub fn reads(&self, keys: &[u64], out: &mut Vec<u8>) {
        let mut by_owner: [Vec<u64>; 8] = Default::default();
        for &key in keys {
            let partition = self.partitions.of(KeyHash::of(&key.to_le_bytes()));
            by_owner[usize::from(self.view.partition(partition).owner.instance())].push(key);
        }
        for (instance, keys) in by_owner.iter().enumerate().filter(|(_, keys)| !keys.is_empty()) {
            let to = Address::new(NODE, BlockNumber::DataManager, instance as u16);
            let mut writer = FrameWriter::begin(out, SignalNumber::KeyReadRequest, 1, to, API, 0);
            writer.put(&KeyReadHead {
                version: U64::new(VERSION),
                transaction: U64::ZERO,
                request: U32::ZERO,
                table: U32::new(TABLE),
                operation: U32::ZERO,
                count: U16::new(keys.len() as u16),
                columns: U16::new(ALL_COLUMNS),
                filter_bytes: U16::ZERO,
                flags: U16::ZERO,
            });
            for key in keys {
                writer.bytes(&key.to_le_bytes());
            }
        }
    }

    /// One transaction a key.
    pub fn writes(&mut self, kind: OperationKind, keys: &[u64], out: &mut Vec<u8>) {
        for &key in keys {
            let to = Address::new(NODE, BlockNumber::Coordinator, 0);
            let id = TransactionId::new(API.node(), Incarnation(1), self.next_transaction);
            let mut writer = FrameWriter::begin(out, SignalNumber::TransactionRequest, 1, to, API, 0);
            writer.put(&TransactionHead {
                transaction: U64::new(id.0),
                epoch_seen: U64::ZERO,
                request: U32::ZERO,
                outcomes_seen: U32::new(self.next_transaction as u32 - 1),
                rollback_from: U32::ZERO,
                flags: U16::new(FLAG_START | FLAG_COMMIT),
                count: U16::new(1),
            });
            self.next_transaction += 1;
            let image = [key.to_le_bytes().as_slice(), &[key as u8; 100]].concat();
            let update = [&[UPDATE_SET, 1, 0], [key as u8; 100].as_slice()].concat();
            let (key, body): (&[u8], &[u8]) = match kind {
                OperationKind::Insert | OperationKind::Write => (&[], &image),
                OperationKind::Update => (&image[..8], &update),
                _ => (&image[..8], &[]),
            };
            writer.put(&OperationHead {
                version: U64::new(VERSION),
                hash: U64::ZERO,
                table: U32::new(TABLE),
                number: U32::new(1),
                row_or_wait: U32::ZERO,
                kind: kind as u8,
                flags: 0,
                key_bytes: U16::new(key.len() as u16),
                body_bytes: U16::new(body.len() as u16),
                columns: U16::ZERO,
                filter_bytes: U16::ZERO,
                sub: 0,
                unused: 0,
            });
            writer.bytes(key).bytes(body);
        }
    }
}

/// The number of the instruction that sets a column, as an update program has it.
const UPDATE_SET: u8 = 0x20;

/// Replaces the sender by a node that is not connected.
fn redirect(mut bytes: Vec<u8>) -> Vec<u8> {
    let nobody = Address::new(NodeId(9), BlockNumber::Dictionary, 0);
    let mut at = 0;
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        bytes[at + 12..at + 16].copy_from_slice(&nobody.0.to_le_bytes());
        at += length;
    }
    bytes
}

/// Time that this thread has been running, so that other work on the machine counts less. It is kept up to date by the
/// scheduler: good to some milliseconds.
pub fn processor_time() -> Duration {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
    let nanoseconds = statistics.split(' ').next().expect("the first number is it");
    Duration::from_nanos(nanoseconds.parse().expect("it is a number"))
}
