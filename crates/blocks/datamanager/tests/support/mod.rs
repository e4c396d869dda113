//! A data manager with files in memory, which logs, writes checkpoints and restores.

use std::collections::BTreeMap;
use vinga_base::aligned::AlignedBuffer;
use vinga_base::hash::KeyHash;
use vinga_base::order_key::{Direction, OrderColumn};
use vinga_base::page_pool::PagePool;
use vinga_base::schema::{
    ColumnDefinition, ColumnType, Durability, IndexDefinition, IndexKind, TableDefinition,
};
use vinga_base::{ColumnId, Epoch, Incarnation, NodeId, PartitionId, TablePartitions, TransactionId};
use vinga_datamanager::{DataManager, Disk, Settings};
use vinga_format::checksum::Checksum;
use vinga_kernel::Span;
use vinga_kernel::files::{Data, FileAnswer, FileData, FileError, FileName, FileRequest, FileTask};
use vinga_kernel::testkit::Harness;
use vinga_wire::checkpoint::QuotaBody;
use vinga_wire::commit::{Actor, Chain, CommitBody, PrepareHead, PreparedHead};
use vinga_wire::dictionary::TableRecord;
use vinga_wire::epoch::EpochBody;
use vinga_wire::file::FileErrorKind;
use vinga_wire::operation::{OperationHead, OperationKind};
use vinga_wire::redo::{BatchBody, BatchHead, CreditBody};
use vinga_wire::schema_round::{RoundName, RoundTask, SchemaRoundRequest};
use vinga_wire::start::{LogIncarnation, StartConfirm, StartRefuse, StartRequest, StartResult, StartTask};
use vinga_wire::view::{ClusterView, Member, ReplicaGroup};
use vinga_wire::{Address, BlockNumber, FrameWriter, SignalNumber, U16, U32, U64, cold};

pub const NODE: NodeId = NodeId(1);
pub const TABLE: u32 = 1;
pub const VERSION: u64 = 7;
pub const FILLER: usize = 1000;

pub fn address(block: BlockNumber) -> Address {
    Address::new(NODE, block, 0)
}

/// Rows by key: value and epoch.
pub type Rows = BTreeMap<u64, (Vec<u8>, u64)>;

/// A data manager, its files, and what it has sent to its log.
pub struct Node {
    pub harness: Harness<DataManager>,
    pub files: BTreeMap<FileName, Vec<u8>>,
    /// Batches by number.
    pub log: BTreeMap<u64, Vec<u8>>,
    /// The first batch that the log still has to keep.
    pub trimmed: u64,
    pub table: TableRecord,
    pub step: u32,
    pub transactions: u64,
    pub is_full: bool,
    /// How writes behind the first block fail.
    pub failing_writes: Option<FileErrorKind>,
    /// A file that can't be read.
    pub unreadable: Option<FileName>,
    pub holds_flushes: bool,
    pub held: Vec<FileRequest>,
    pub incarnations: Vec<LogIncarnation>,
    /// How often it has asked for credit.
    pub asked: u32,
    /// Its memory, in pages, and how many beyond that are for restarts.
    pub memory: (u32, u32),
    /// It is a backup: what is committed here is not shown before it is committed at the primary, of which nothing
    /// comes.
    pub is_backup: bool,
}

/// Memory that is never full.
pub const MUCH: (u32, u32) = (2000, 0);

pub fn table(no_logging: bool) -> TableRecord {
    let definition = TableDefinition {
        name: "test.t".into(),
        columns: vec![
            ColumnDefinition {
                name: "id".into(),
                column_type: ColumnType::Integer { bytes: 8, signed: false },
                nullable: false,
            },
            // So that a few rows fill a page.
            ColumnDefinition {
                name: "filler".into(),
                column_type: ColumnType::Binary { bytes: FILLER as u16 },
                nullable: false,
            },
            ColumnDefinition {
                name: "value".into(),
                column_type: ColumnType::VarBinary { bytes_max: 2000 },
                nullable: false,
            },
        ],
        primary_key: vec![ColumnId(0)],
        durability: if no_logging { Durability::NotLogged } else { Durability::Memory },
        indexes: vec![IndexDefinition {
            id: 1,
            name: "by id".into(),
            columns: vec![OrderColumn { column: ColumnId(0), direction: Direction::Descending }],
            kind: IndexKind::Ordered,
        }],
        ..TableDefinition::default()
    };
    TableRecord::new(TABLE, VERSION, TablePartitions::first(1), definition)
}

/// The view of a data node alone.
fn alone() -> ClusterView {
    ClusterView::first(vec![member(NODE)])
}

fn member(node: NodeId) -> Member {
    Member { redo_streams: 1, ..Member::started(node, Incarnation(1), 0, 1, 1) }
}

fn data_manager((pages, beyond): (u32, u32), view: ClusterView) -> Harness<DataManager> {
    let settings = Settings {
        node: NODE,
        owner: ReplicaGroup::new(0, 0),
        operations_max: 64,
        transactions_max: 64,
        scans_max: 4,
        tables_max: 8,
        disk: Some(Disk { stream: 0, cluster: 99, checksum: Checksum::SOFTWARE }),
        lock_timeout: Span::from_millis(1000),
        inactive_timeout: None,
        backup_buffer: 1 << 20,
        backup_piece: vinga_datamanager::BACKUP_PIECE,
        copy_piece: vinga_datamanager::COPY_PIECE,
        ending_slice: vinga_datamanager::ENDING_SLICE,
    };
    let block = DataManager::new(settings, PagePool::standalone_beyond(pages, beyond));
    Harness::new(address(BlockNumber::DataManager), 1, view, block)
}

impl Node {
    /// One that begins with an empty table.
    pub fn new(table: TableRecord) -> Self {
        Node::with_memory(table, MUCH)
    }

    /// The same, with so much memory.
    pub fn with_memory(table: TableRecord, memory: (u32, u32)) -> Self {
        Node::begun(table, memory, alone())
    }

    /// One in a cluster that another one leads, which is to stop, and is in no partition any more.
    pub fn led_by(table: TableRecord, president: NodeId) -> Self {
        let partition = PartitionId(0);
        let view = ClusterView::first(vec![member(president), member(NODE)]);
        let view = match view.partition(partition).chain.primary() {
            NODE => view,
            _ => view.with_primary(partition, NODE),
        };
        let view = view.with_leaving(president).with_left_out(partition);
        assert!(view.president() == Some(president) && view.has_given_up_all(president));
        Node::begun(table, MUCH, view)
    }

    fn begun(table: TableRecord, memory: (u32, u32), view: ClusterView) -> Self {
        let mut node = Node::stopped_with(table, BTreeMap::new(), BTreeMap::new(), memory, view);
        node.start(StartTask::Begin {
            epoch: Epoch(1),
            limit: Epoch::MAX,
            durable: Epoch(0),
            incarnation: 1,
        });
        node.make_table();
        node.give_credit(1 << 30);
        node
    }

    pub fn stopped(
        table: TableRecord,
        files: BTreeMap<FileName, Vec<u8>>,
        log: BTreeMap<u64, Vec<u8>>,
    ) -> Self {
        Node::stopped_with(table, files, log, MUCH, alone())
    }

    fn stopped_with(
        table: TableRecord,
        files: BTreeMap<FileName, Vec<u8>>,
        log: BTreeMap<u64, Vec<u8>>,
        memory: (u32, u32),
        view: ClusterView,
    ) -> Self {
        Node {
            harness: data_manager(memory, view),
            files,
            log,
            trimmed: 1,
            table,
            step: 0,
            transactions: 0,
            is_full: false,
            failing_writes: None,
            unreadable: None,
            holds_flushes: false,
            held: Vec::new(),
            incarnations: vec![LogIncarnation { number: 1, last_valid: None }],
            asked: 0,
            memory,
            is_backup: false,
        }
    }

    /// Starts again from the files and what is left of the log, and restores an epoch.
    pub fn restart(self, epoch: u64) -> Result<Self, String> {
        let trimmed = self.trimmed;
        let mut node = Node::stopped_with(self.table, self.files, self.log, self.memory, alone());
        node.make_table();
        node.incarnations = self.incarnations;
        node.incarnations.last_mut().expect("there is one").last_valid = Some(Epoch(epoch));
        let incarnations = node.incarnations.clone();
        let loaded = node.try_start(StartTask::LoadCheckpoint { epoch: Epoch(epoch), incarnations })?;
        let StartResult::CheckpointLoaded { batch, rejected, .. } = loaded else {
            panic!("a checkpoint is loaded: {loaded:?}")
        };
        let batch = batch.max(1);
        if batch < trimmed {
            return Err(format!("batches from {batch} are needed, from {trimmed} kept: {rejected:?}"));
        }
        for (number, bytes) in node.log.clone().range(batch..) {
            let number = U64::new(*number);
            node.send(address(BlockNumber::Redo), SignalNumber::RedoReplayRequest, |writer| {
                let (bytes_len, epoch_max) = (U32::new(bytes.len() as u32), U64::new(epoch));
                writer
                    .put(&BatchHead { batch: number, epoch_max, bytes: bytes_len, unused: U32::ZERO })
                    .bytes(bytes);
            });
        }
        let restored = node.try_start(StartTask::EndRestore)?;
        assert!(matches!(restored, StartResult::Restored { .. }), "{restored:?}");
        let incarnation = node.incarnations.len() as u32 + 1;
        node.incarnations.push(LogIncarnation { number: incarnation, last_valid: None });
        node.start(StartTask::Begin {
            epoch: Epoch(epoch + 1),
            limit: Epoch::MAX,
            durable: Epoch(epoch),
            incarnation,
        });
        node.harness.block().inspect_indexes()?;
        node.give_credit(1 << 30);
        Ok(node)
    }

    pub fn send(&mut self, from: Address, signal: SignalNumber, write: impl FnOnce(&mut FrameWriter<'_>)) {
        self.harness.send(from, signal, write).expect("a block may send this");
        self.go_on();
    }

    /// Lets the data manager work until nothing is left to do, and serves its files and log.
    pub fn go_on(&mut self) {
        let mut idle = 0;
        for _ in 0..10_000 {
            self.harness.advance(Span::from_millis(1));
            let requests = self.harness.take_file_requests();
            idle = if requests.is_empty() { idle + 1 } else { 0 };
            // A slice of long work is done in each turn.
            if idle == 4 {
                return;
            }
            for request in requests {
                if self.holds_flushes && matches!(request.task, FileTask::Flush) {
                    self.held.push(request);
                } else {
                    self.carry_out_and_answer(request);
                }
            }
        }
        panic!("it comes to no end");
    }

    /// Carries out a task that was held.
    pub fn answer(&mut self, request: FileRequest) {
        self.carry_out_and_answer(request);
        self.go_on();
        self.take_sent();
    }

    pub fn carry_out_and_answer(&mut self, request: FileRequest) {
        let FileRequest { requester, token, .. } = request;
        let result = self.carry_out(request);
        self.harness.answer_file(FileAnswer { requester, token, result });
    }

    pub fn carry_out(&mut self, request: FileRequest) -> Result<FileData, FileError> {
        let file = self.files.get_mut(&request.file);
        match request.task {
            FileTask::Allocate { .. } if self.is_full => {
                return Err(FileError { kind: FileErrorKind::DiskFull, text: "no room".into() });
            }
            FileTask::Allocate { bytes } => {
                self.files.entry(request.file).or_default().resize(bytes as usize, 0);
            }
            FileTask::Write { offset, .. } if offset > 0 && self.failing_writes.is_some() => {
                let kind = self.failing_writes.expect("it was just looked at");
                return Err(FileError { kind, text: "it fails".into() });
            }
            FileTask::Write { offset, data: Data(data) } => {
                let file = file.expect("it was made");
                let end = offset as usize + data.len();
                file.resize(file.len().max(end), 0);
                file[offset as usize..end].copy_from_slice(&data);
            }
            FileTask::Read { .. } if self.unreadable == Some(request.file) => {
                return Err(FileError { kind: FileErrorKind::Failed, text: "it can't be read".into() });
            }
            FileTask::Read { offset, bytes } => {
                let file = file.expect("it is there");
                let part = &file[offset as usize..file.len().min(offset as usize + bytes as usize)];
                return Ok(FileData::Bytes(AlignedBuffer::copy_of(part), part.len()));
            }
            FileTask::Remove => {
                self.files.remove(&request.file);
            }
            FileTask::List => {
                let names = self.files.iter().map(|(&name, bytes)| (name, bytes.len() as u64));
                return Ok(FileData::Names(names.collect()));
            }
            FileTask::Flush => {}
            FileTask::Fill { .. } | FileTask::Rename { .. } => unreachable!("data managers don't"),
        }
        Ok(FileData::None)
    }

    /// Takes note of what was sent to the log; returns the other signals.
    pub fn take_sent(&mut self) -> Vec<vinga_kernel::testkit::Sent> {
        let mut others = Vec::new();
        for sent in self.harness.take_sent() {
            let frame = sent.frame();
            match sent.signal() {
                SignalNumber::RedoAppendOrder => {
                    let (head, rest) = frame.head::<BatchHead>().expect("a whole body");
                    let bytes = rest[..head.bytes.get() as usize].to_vec();
                    assert!(self.log.insert(head.batch.get(), bytes).is_none(), "a batch is sent once");
                }
                SignalNumber::RedoTrimOrder => {
                    let (body, _) = frame.head::<BatchBody>().expect("a whole body");
                    self.trimmed = body.batch.get();
                }
                SignalNumber::RedoCreditRequest => self.asked += 1,
                _ => others.push(sent),
            }
        }
        others
    }

    pub fn start(&mut self, task: StartTask) -> StartResult {
        self.try_start(task).unwrap_or_else(|why| panic!("{why}"))
    }

    /// The same, if it may be refused: the number of the error, and why.
    pub fn try_start(&mut self, task: StartTask) -> Result<StartResult, String> {
        self.step += 1;
        let step = self.step;
        self.send(address(BlockNumber::Lifecycle), SignalNumber::StartRequest, |writer| {
            cold::write(writer, &StartRequest { step, task });
        });
        // Indexes of many rows are built in more turns than one goes on without a task on a file.
        for _ in 0..1000 {
            for sent in self.take_sent() {
                let frame = sent.frame();
                match sent.signal() {
                    SignalNumber::StartConfirm => {
                        return Ok(cold::read::<StartConfirm>(&frame).expect("a whole body").result);
                    }
                    SignalNumber::StartRefuse => {
                        let refuse: StartRefuse = cold::read(&frame).expect("a whole body");
                        return Err(format!("{}: {}", refuse.error, refuse.reason));
                    }
                    _ => {}
                }
            }
            self.go_on();
        }
        panic!("the request is not answered");
    }

    pub fn make_table(&mut self) {
        let (record, round) = (self.table.clone(), RoundName { change: 1, step: 1 });
        self.send(address(BlockNumber::Dictionary), SignalNumber::SchemaRoundRequest, |writer| {
            let task = RoundTask::Prepare { record, made: vec![TABLE] };
            cold::write(writer, &SchemaRoundRequest { round, epoch: Epoch(0), task });
        });
        self.take_sent();
    }

    /// The table is dropped, in this epoch. Its rows stay for the moment.
    pub fn drop_table(&mut self, epoch: u64) {
        let (gone, round) = (vec![self.table.own()], RoundName { change: 2, step: 1 });
        self.send(address(BlockNumber::Dictionary), SignalNumber::SchemaRoundRequest, |writer| {
            let task = RoundTask::Complete { record: None, gone };
            cold::write(writer, &SchemaRoundRequest { round, epoch: Epoch(epoch), task });
        });
        self.take_sent();
    }

    pub fn give_credit(&mut self, bytes: u64) {
        self.give_credit_with(bytes, 0);
    }

    /// The log gives credit, and no more for this reason.
    pub fn give_credit_with(&mut self, bytes: u64, shortage: u16) {
        self.send(address(BlockNumber::Redo), SignalNumber::RedoCreditConfirm, |writer| {
            let (bytes, shortage) = (U64::new(bytes), U16::new(shortage));
            writer.put(&CreditBody { bytes, shortage, unused: [U16::ZERO; 3] });
        });
        self.take_sent();
    }

    pub fn give_quota(&mut self, bytes: u64) {
        self.send(address(BlockNumber::Redo), SignalNumber::CheckpointQuotaOrder, |writer| {
            writer.put(&QuotaBody { bytes: U64::new(bytes) });
        });
        self.take_sent();
    }

    /// Runs a transaction of one operation; the error if it was refused.
    pub fn change(&mut self, kind: OperationKind, key: u64, value: &[u8], epoch: u64) -> Result<(), u16> {
        self.transactions += 1;
        let id = TransactionId::new(NodeId(200), Incarnation(1), self.transactions);
        let coordinator = U32::new(address(BlockNumber::Coordinator).0);
        let mut image = key.to_le_bytes().to_vec();
        image.extend_from_slice(&[1; FILLER]);
        // The variable part: where the only column of variable size ends, and its bytes.
        image.extend_from_slice(&(value.len() as u16).to_le_bytes());
        image.extend_from_slice(value);
        let is_delete = kind == OperationKind::Delete;
        let (key_bytes, body) =
            if is_delete { (key.to_le_bytes().to_vec(), vec![]) } else { (vec![], image) };
        let head = OperationHead {
            version: U64::new(VERSION),
            hash: U64::new(KeyHash::of(&key.to_le_bytes()).0),
            table: U32::new(TABLE),
            number: U32::new(1),
            row_or_wait: U32::ZERO,
            kind: kind as u8,
            flags: 0,
            key_bytes: U16::new(key_bytes.len() as u16),
            body_bytes: U16::new(body.len() as u16),
            columns: U16::ZERO,
            filter_bytes: U16::ZERO,
            sub: 0,
            unused: 0,
        };
        let prepare = PrepareHead {
            transaction: U64::new(id.0),
            epoch: U64::new(epoch),
            actor: Actor { coordinator, incarnation: U32::new(1), acting: coordinator, record: U32::ZERO },
            api: U32::new(Address::new(NodeId(200), BlockNumber::Api, 0).0),
            api_incarnation: U32::new(1),
            chain: Chain::default(),
            owner: ReplicaGroup::new(0, 0),
            flags: U16::ZERO,
            count: U16::new(1),
        };
        self.send(address(BlockNumber::Coordinator), SignalNumber::PrepareRequest, |writer| {
            writer.put(&prepare).put(&head).bytes(&key_bytes).bytes(&body);
        });
        let sent = self.take_sent();
        let answer = sent
            .iter()
            .find(|sent| matches!(sent.signal(), SignalNumber::PrepareConfirm | SignalNumber::PrepareRefuse));
        let answer = answer.expect("it is answered");
        let frame = answer.frame();
        let (_, rest) = frame.head::<PreparedHead>().expect("a whole body");
        if answer.signal() == SignalNumber::PrepareRefuse {
            return Err(u16::from_le_bytes([rest[4], rest[5]]));
        }
        let replicas = if self.is_backup { Chain::new(&[NodeId(2), NODE]) } else { Chain::new(&[NODE]) };
        let commit = CommitBody {
            transaction: U64::new(id.0),
            epoch: U64::new(epoch),
            actor: prepare.actor,
            owner: ReplicaGroup::new(0, 0),
            replicas,
            marker: U32::ZERO,
            flags: U32::ZERO,
        };
        self.send(address(BlockNumber::Coordinator), SignalNumber::CommitRequest, |writer| {
            writer.put(&commit);
        });
        self.take_sent();
        Ok(())
    }

    pub fn order_checkpoint(&mut self, quota: u64) {
        self.send(address(BlockNumber::Redo), SignalNumber::CheckpointQuotaOrder, |writer| {
            writer.put(&QuotaBody { bytes: U64::new(quota) });
        });
        self.send(address(BlockNumber::Redo), SignalNumber::CheckpointOrder, |_| ());
        self.take_sent();
    }

    pub fn durable(&mut self, epoch: u64) {
        self.send(address(BlockNumber::Distribution), SignalNumber::DurableEpochOrder, |writer| {
            writer.put(&EpochBody::new(Epoch(epoch)));
        });
        self.take_sent();
    }

    pub fn rows(&self) -> Rows {
        let mut rows = Rows::new();
        self.harness.block().inspect_rows(|row| {
            let key = u64::from_le_bytes(row.image[..8].try_into().expect("the key"));
            assert!(rows.insert(key, (row.image.clone(), row.epoch.0)).is_none(), "a key has one row");
        });
        rows
    }
}

/// Changes of random rows, each in the next epoch or in the same; returns the newest epoch.
pub fn change_rows(
    node: &mut Node,
    random: &mut fastrand::Rng,
    mut epoch: u64,
    history: &mut Vec<(u64, Rows)>,
) -> u64 {
    let first = random.u64(0..10) * 20;
    for _ in 0..random.u32(1..40) {
        let key = first + random.u64(0..20);
        let length = random.usize(0..300);
        let value: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        epoch += u64::from(random.u32(0..3) == 0);
        let kind = if random.u32(0..3) == 0 { OperationKind::Delete } else { OperationKind::Write };
        match node.change(kind, key, &value, epoch) {
            Ok(()) => {}
            Err(code) => assert!(kind == OperationKind::Delete && code == 626, "error {code}"),
        }
        match history.last_mut() {
            Some((last, rows)) if *last == epoch => *rows = node.rows(),
            _ => history.push((epoch, node.rows())),
        }
    }
    epoch
}

/// The rows that were there at the end of an epoch.
pub fn rows_at(history: &[(u64, Rows)], epoch: u64) -> Rows {
    history.iter().rev().find(|(at, _)| *at <= epoch).map(|(_, rows)| rows.clone()).unwrap_or_default()
}
