//! A dictionary on a node with a disk: files in memory that lose any part of what was not flushed, and blocks that do
//! what they are asked at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vinga_base::aligned::{AlignedBuffer, SECTOR_BYTES};
use vinga_base::schema::{ColumnDefinition, ColumnType, TableDefinition};
use vinga_base::{ColumnId, Epoch, Incarnation, NodeId};
use vinga_dictionary::{Dictionary, Disk, Settings, first_version};
use vinga_format::checksum::Checksum;
use vinga_kernel::files::{Data, FileAnswer, FileData, FileError, FileName, FileRequest, FileTask};
use vinga_kernel::testkit::{Harness, Sent};
use vinga_wire::dictionary::{CreateTableRequest, NamedTableRequest, TableRecord};
use vinga_wire::epoch::{EpochBody, EpochOrder, LogRoom, LogRoomBody};
use vinga_wire::file::{FileErrorKind, StopNodeOrder};
use vinga_wire::handshake::Refusal;
use vinga_wire::membership::ApiNodeBody;
use vinga_wire::schema::{Database, SchemaChange, SchemaChangeRequest};
use vinga_wire::schema_round::{RoundTask, SchemaRoundConfirm, SchemaRoundRefuse, SchemaRoundRequest};
use vinga_wire::start::{DefinitionsExtent, StartConfirm, StartRefuse, StartRequest, StartResult, StartTask};
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{Address, BlockNumber, ErrorCode, FrameWriter, SignalNumber, U64, cold};

const NODE: NodeId = NodeId(1);
pub const API: Address = Address::new(NodeId(150), BlockNumber::Api, 0);
pub const CLUSTER: u64 = 4711;

pub const fn address(block: BlockNumber) -> Address {
    Address::new(NODE, block, 0)
}

/// A file, and what was written to it and not flushed.
#[derive(Clone, Default)]
pub struct File {
    pub bytes: Vec<u8>,
    unflushed: Vec<(usize, Vec<u8>)>,
}

impl File {
    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

/// The files of a node.
#[derive(Clone, Default)]
pub struct Files(pub BTreeMap<FileName, File>);

impl Files {
    /// The machine stops: of what was not flushed the sectors are kept that `keeps` says.
    pub fn crash(&mut self, mut keeps: impl FnMut() -> bool) {
        for file in self.0.values_mut() {
            for (offset, bytes) in std::mem::take(&mut file.unflushed) {
                for (number, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                    if keeps() {
                        file.put(offset + number * SECTOR_BYTES, sector);
                    }
                }
            }
        }
    }

    /// Does a task.
    pub fn carry_out(&mut self, name: FileName, task: &FileTask) -> FileData {
        match task {
            FileTask::List => {
                let names = self.0.iter().map(|(&name, file)| (name, file.bytes.len() as u64));
                return FileData::Names(names.collect());
            }
            FileTask::Allocate { bytes } => {
                let file = self.0.entry(name).or_default();
                let bytes = file.bytes.len().max(*bytes as usize);
                file.bytes.resize(bytes, 0);
            }
            FileTask::Write { offset, data: Data(data) } => {
                let file = self.0.get_mut(&name).expect("there is room for what is written");
                assert!(*offset as usize + data.len() <= file.bytes.len(), "room was made before");
                file.unflushed.push((*offset as usize, data.to_vec()));
            }
            FileTask::Flush => {
                let file = self.0.get_mut(&name).expect("what is flushed was written");
                for (offset, bytes) in std::mem::take(&mut file.unflushed) {
                    file.put(offset, &bytes);
                }
            }
            FileTask::Read { offset, bytes } => {
                let file = &self.0[&name].bytes;
                let end = file.len().min((offset + u64::from(*bytes)) as usize);
                let part = &file[*offset as usize..end];
                return FileData::Bytes(AlignedBuffer::copy_of(part), part.len());
            }
            FileTask::Remove => {
                self.0.remove(&name);
            }
            FileTask::Fill { .. } | FileTask::Rename { .. } => unreachable!("schema files are not"),
        }
        FileData::None
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.0.values().map(|file| file.bytes.len() as u64).sum()
    }
}

/// What the definitions are.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct State {
    pub tables: Vec<TableRecord>,
    pub databases: Vec<Database>,
}

/// A node with a disk.
pub struct Node {
    pub harness: Harness<Dictionary>,
    pub files: Files,
    step: u32,
    /// How many tasks on files are still done before the machine stops.
    pub tasks_left: usize,
    /// How many were done.
    pub tasks_done: usize,
    /// Bytes that a file may have.
    pub quota: u64,
    /// There is no room for files that there are not.
    pub is_without_new_files: bool,
    /// How many tasks on files are done before they wait for [`Node::go_on`].
    pub tasks_served: usize,
    waiting: VecDeque<FileRequest>,
    /// Flushes fail.
    pub flush_fails: bool,
    /// Writes fail.
    pub write_fails: bool,
    /// Nobody answers a request for durability.
    pub is_never_durable: bool,
    /// Data managers have too little memory.
    pub refuses: bool,
    /// Versions that were ever given.
    pub versions: BTreeSet<u64>,
    /// The tables that blocks have: data manager, coordinator.
    pub made: [BTreeMap<u32, u64>; 2],
    /// Signals in their order, and files that were flushed, for what has to come before what.
    pub events: Vec<String>,
    pub refused: Vec<(ErrorCode, String)>,
    pub stopped: Option<String>,
    /// The newest epoch for which durability was requested.
    pub requested: Epoch,
    /// How far definitions were reported to reach.
    pub known: DefinitionsExtent,
    answer: Option<Result<StartResult, String>>,
    request: u32,
    has_begun: bool,
}

pub fn definition(name: &str) -> TableDefinition {
    let column_type = ColumnType::Integer { bytes: 8, signed: true };
    TableDefinition {
        name: name.into(),
        columns: vec![ColumnDefinition { name: "id".into(), column_type, nullable: false }],
        primary_key: vec![ColumnId(0)],
        ..TableDefinition::default()
    }
}

impl Node {
    /// The process has begun, on these files; the dictionary was asked for nothing.
    pub fn new(files: Files) -> Self {
        Node::with_tables(files, 20)
    }

    pub fn with_tables(files: Files, tables_max: u32) -> Self {
        let member = Member { redo_streams: 1, ..Member::started(NODE, Incarnation(1), 0, 1, 1) };
        let view = ClusterView::first(vec![member]);
        let disk = Some(Disk { cluster: CLUSTER, checksum: Checksum::SOFTWARE });
        let settings = Settings { tables_max, usual_partitions: 1, version: first_version(1), disk };
        let dictionary = Dictionary::new(settings);
        Node {
            harness: Harness::new(address(BlockNumber::Dictionary), 1, view, dictionary),
            files,
            step: 0,
            tasks_left: usize::MAX,
            tasks_done: 0,
            quota: u64::MAX,
            is_without_new_files: false,
            tasks_served: usize::MAX,
            waiting: VecDeque::new(),
            flush_fails: false,
            write_fails: false,
            is_never_durable: false,
            refuses: false,
            versions: BTreeSet::new(),
            made: [BTreeMap::new(), BTreeMap::new()],
            events: Vec::new(),
            refused: Vec::new(),
            stopped: None,
            requested: Epoch(0),
            known: DefinitionsExtent::default(),
            answer: None,
            request: 0,
            has_begun: false,
        }
    }

    /// A node that has never started before.
    pub fn initial() -> Self {
        let mut node = Node::new(Files::default());
        node.make();
        node
    }

    fn make(&mut self) {
        self.start(StartTask::MakeFiles).expect("there is room");
        self.start(StartTask::OpenLog { incarnation: 1 }).expect("there is room");
        self.begin(1, 0);
    }

    /// Tasks on files that wait are done.
    pub fn go_on(&mut self) {
        self.tasks_served = usize::MAX;
        self.serve();
    }

    /// Restarts from files; `None` if the machine stops before the end.
    pub fn restart(
        files: Files,
        restored: u64,
        known: DefinitionsExtent,
        incarnation: u32,
        tasks: usize,
    ) -> (Self, Option<Result<(), String>>) {
        let mut node = Node::new(files);
        node.tasks_left = tasks;
        let epoch = Epoch(restored);
        for task in [StartTask::RestoreDefinitions { epoch, known }, StartTask::OpenLog { incarnation }] {
            match node.ask(task) {
                Some(Ok(_)) if !node.is_dead() => {}
                Some(Err(reason)) => return (node, Some(Err(reason))),
                Some(Ok(_)) | None => return (node, None),
            }
        }
        (node, Some(Ok(())))
    }

    /// The first epoch begins, and an API node is admitted.
    pub fn begin(&mut self, epoch: u64, durable: u64) {
        self.has_begun = true;
        let (epoch, durable) = (Epoch(epoch), Epoch(durable));
        self.start(StartTask::Begin { epoch, limit: Epoch::MAX, durable, incarnation: 1 })
            .expect("nothing is read or written");
        let body = ApiNodeBody::new(API.node(), Incarnation(7));
        self.send(address(BlockNumber::Membership), SignalNumber::ApiConnectedOrder, |w| {
            w.put(&body);
        });
    }

    /// Has the dictionary do a task of the start; `None` if the machine stops meanwhile.
    pub fn ask(&mut self, task: StartTask) -> Option<Result<StartResult, String>> {
        self.step += 1;
        let body = StartRequest { step: self.step, task };
        self.answer = None;
        self.send(address(BlockNumber::Lifecycle), SignalNumber::StartRequest, |w| cold::write(w, &body));
        self.answer.take()
    }

    pub fn start(&mut self, task: StartTask) -> Result<StartResult, String> {
        self.ask(task).expect("the task is answered")
    }

    pub fn send(&mut self, from: Address, signal: SignalNumber, write: impl FnOnce(&mut FrameWriter<'_>)) {
        self.harness.send(from, signal, write).expect("allowed");
        self.serve();
    }

    /// An epoch begins.
    pub fn epoch(&mut self, epoch: u64) {
        self.send(address(BlockNumber::Distribution), SignalNumber::EpochOrder, |w| {
            w.put(&EpochOrder { epoch: U64::new(epoch) });
        });
    }

    pub fn create(&mut self, name: &str) {
        self.create_as(definition(name));
    }

    pub fn create_as(&mut self, definition: TableDefinition) {
        self.request += 1;
        let body = CreateTableRequest { request: self.request, definition };
        self.send(API, SignalNumber::CreateTableRequest, |w| cold::write(w, &body));
    }

    pub fn drop_table(&mut self, name: &str) {
        self.request += 1;
        let body = NamedTableRequest { request: self.request, name: name.into() };
        self.send(API, SignalNumber::DropTableRequest, |w| cold::write(w, &body));
    }

    pub fn change(&mut self, change: SchemaChange) {
        self.request += 1;
        let body = SchemaChangeRequest { request: self.request, change };
        self.send(API, SignalNumber::SchemaChangeRequest, |w| cold::write(w, &body));
    }

    /// The API node's connections are closed.
    pub fn close_api(&mut self) {
        let body = ApiNodeBody::new(API.node(), Incarnation(7));
        self.send(address(BlockNumber::Membership), SignalNumber::ApiConnectionClosedOrder, |w| {
            w.put(&body);
        });
    }

    /// The president has an end record of an epoch.
    pub fn confirm_durability(&mut self, epoch: Epoch) {
        self.send(address(BlockNumber::Distribution), SignalNumber::DurabilityConfirm, |w| {
            w.put(&EpochBody::new(epoch));
        });
    }

    /// The redo log has room for the ends of epochs, or has not.
    pub fn log_room(&mut self, room: LogRoom) {
        self.send(address(BlockNumber::Distribution), SignalNumber::LogRoomOrder, |w| {
            w.put(&LogRoomBody::new(room, false));
        });
    }

    pub fn state(&self) -> State {
        let block = self.harness.block();
        State { tables: block.tables().cloned().collect(), databases: block.databases().cloned().collect() }
    }

    /// Whether all data managers and coordinators have exactly the tables of the dictionary.
    pub fn check_blocks(&self) {
        let all: BTreeMap<u32, u64> =
            self.harness.block().tables().flat_map(TableRecord::all).map(|t| (t.table, t.version)).collect();
        assert_eq!(self.made, [all.clone(), all]);
    }

    /// Whether the machine has stopped.
    pub fn is_dead(&self) -> bool {
        self.tasks_left == 0
    }

    /// Does what the dictionary asks, of files and of blocks, until it asks for nothing more.
    pub fn serve(&mut self) {
        loop {
            let (sent, requests) = (self.harness.take_sent(), self.harness.take_file_requests());
            self.waiting.extend(requests);
            if sent.is_empty() && (self.waiting.is_empty() || self.tasks_served == 0) {
                return;
            }
            for sent in sent {
                self.take(&sent);
            }
            while self.tasks_served > 0
                && let Some(FileRequest { requester, token, file, task }) = self.waiting.pop_front()
            {
                self.tasks_served -= usize::from(self.tasks_served < usize::MAX);
                if self.is_dead() {
                    continue;
                }
                self.tasks_left -= 1;
                self.tasks_done += 1;
                if self.is_dead() {
                    self.begin_only(file, &task);
                    continue;
                }
                let result = self.carry_out(file, task);
                self.harness.answer_file(FileAnswer { requester, token, result });
            }
        }
    }

    /// The task with which the machine stops is perhaps done, and perhaps in part.
    fn begin_only(&mut self, name: FileName, task: &FileTask) {
        if let FileTask::Write { offset, data: Data(data) } = task {
            let file = self.files.0.get_mut(&name).expect("there is room for what is written");
            file.unflushed.push((*offset as usize, data.to_vec()));
        }
    }

    fn carry_out(&mut self, name: FileName, task: FileTask) -> Result<FileData, FileError> {
        let (kind, why) = match &task {
            FileTask::Allocate { bytes }
                if *bytes > self.quota || self.is_without_new_files && !self.files.0.contains_key(&name) =>
            {
                (FileErrorKind::DiskFull, "no space left on the device")
            }
            FileTask::Flush if self.flush_fails => (FileErrorKind::Failed, "input/output error"),
            FileTask::Write { .. } if self.write_fails => (FileErrorKind::Failed, "input/output error"),
            task => {
                if *task == FileTask::Flush {
                    self.events.push("flushed".into());
                }
                return Ok(self.files.carry_out(name, task));
            }
        };
        Err(FileError { kind, text: format!("{} {}: {why}", task.name(), name.path()) })
    }

    /// A block receives a signal.
    fn take(&mut self, sent: &Sent) {
        let (receiver, frame) = (sent.receiver(), sent.frame());
        self.events.push(format!("{:?}", sent.signal()));
        match sent.signal() {
            SignalNumber::SchemaRoundRequest => {
                let SchemaRoundRequest { round, epoch, task } = cold::read(&frame).expect("a whole body");
                if self.refuses && matches!(task, RoundTask::Prepare { .. }) {
                    let body = SchemaRoundRefuse { round, code: ErrorCode::DataMemoryFull as u16 };
                    self.note_versions(&task);
                    return self
                        .send_back(receiver, SignalNumber::SchemaRoundRefuse, |w| cold::write(w, &body));
                }
                self.events.pop();
                self.events.push(task_name(&task).into());
                self.do_task(receiver, task);
                let body = SchemaRoundConfirm { round, epoch: epoch.max(Epoch(1)) };
                self.send_back(receiver, SignalNumber::SchemaRoundConfirm, |w| cold::write(w, &body));
            }
            SignalNumber::DurabilityRequest => {
                let (body, _) = frame.head::<EpochBody>().expect("a whole body");
                assert!(body.epoch() >= self.requested, "changes have ascending epochs");
                self.requested = body.epoch();
                if !self.is_never_durable {
                    self.send_back(receiver, SignalNumber::DurabilityConfirm, |w| {
                        w.put(body);
                    });
                }
            }
            SignalNumber::StartConfirm => {
                let body: StartConfirm = cold::read(&frame).expect("a whole body");
                assert_eq!(body.step, self.step);
                if let StartResult::DefinitionsOnDisk { extent, .. } = body.result {
                    self.known = extent;
                }
                assert!(self.answer.replace(Ok(body.result)).is_none(), "a task is answered once");
            }
            SignalNumber::DefinitionsReport => {
                self.known = cold::read(&frame).expect("a whole body");
            }
            SignalNumber::StartRefuse => {
                let body: StartRefuse = cold::read(&frame).expect("a whole body");
                assert!(self.answer.replace(Err(body.reason)).is_none(), "a task is answered once");
            }
            SignalNumber::StopNodeOrder => {
                let body: StopNodeOrder = cold::read(&frame).expect("a whole body");
                self.stopped = Some(body.reason);
            }
            SignalNumber::CreateTableRefuse
            | SignalNumber::DropTableRefuse
            | SignalNumber::SchemaChangeRefuse => {
                let body: Refusal = cold::read(&frame).expect("a whole body");
                let code = ErrorCode::from_number(body.code).expect("a known error");
                self.refused.push((code, body.detail));
            }
            _ => assert!(receiver == API || receiver == address(BlockNumber::Membership)),
        }
    }

    /// The answer of a block; what follows is done later.
    fn send_back(&mut self, from: Address, signal: SignalNumber, write: impl FnOnce(&mut FrameWriter<'_>)) {
        if !self.is_dead() {
            self.harness.send(from, signal, write).expect("allowed");
        }
    }

    fn note_versions(&mut self, task: &RoundTask) {
        if let RoundTask::Prepare { record, made } = task
            && self.has_begun
        {
            let new = record.all().filter(|t| t.table == record.table || made.contains(&t.table));
            for version in new.map(|table| table.version) {
                assert!(self.versions.insert(version), "version {version} was given before");
            }
        }
    }

    fn do_task(&mut self, receiver: Address, task: RoundTask) {
        if receiver.node() != NODE {
            return;
        }
        let is_coordinator = receiver.block() == Some(BlockNumber::Coordinator);
        if !is_coordinator {
            self.note_versions(&task);
        }
        let made = &mut self.made[usize::from(is_coordinator)];
        match task {
            RoundTask::Prepare { record, made: new } => {
                for table in record.all().filter(|table| new.contains(&table.table)) {
                    assert_eq!(made.insert(table.table, table.version), None, "an id has one table");
                }
            }
            RoundTask::Publish { records, gone } => {
                gone.iter().for_each(|table| {
                    made.remove(&table.table);
                });
                made.extend(records.iter().flat_map(TableRecord::all).map(|t| (t.table, t.version)));
            }
            RoundTask::Complete { record, .. } => {
                made.extend(record.map(|record| (record.table, record.version)));
            }
            RoundTask::Remove { tables } => {
                tables.iter().for_each(|table| {
                    made.remove(&table.table).expect("only what is there is removed");
                });
            }
            RoundTask::Switch { .. }
            | RoundTask::Build { .. }
            | RoundTask::Fence { .. }
            | RoundTask::Fences { .. }
            | RoundTask::SchemaLock { .. }
            | RoundTask::Note { .. }
            | RoundTask::Decide
            | RoundTask::End => {}
        }
    }
}

fn task_name(task: &RoundTask) -> &'static str {
    match task {
        RoundTask::Prepare { .. } => "Prepare",
        RoundTask::Switch { .. } => "Switch",
        RoundTask::Build { .. } => "Build",
        RoundTask::Publish { .. } => "Publish",
        RoundTask::Complete { .. } => "Complete",
        RoundTask::Remove { .. } => "Remove",
        RoundTask::Fence { .. } => "Fence",
        RoundTask::Fences { .. } => "Fences",
        RoundTask::SchemaLock { .. } => "SchemaLock",
        RoundTask::Note { .. } => "Note",
        RoundTask::Decide => "Decide",
        RoundTask::End => "End",
    }
}
