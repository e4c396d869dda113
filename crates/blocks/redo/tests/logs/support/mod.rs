//! Drives a log stream as the blocks around it do, on files in memory that forget what was not flushed.

use std::collections::BTreeMap;
use vinga_base::aligned::{AlignedBuffer, SECTOR_BYTES};
use vinga_base::{Epoch, Incarnation, NodeId, PartitionId, RowId, TableId, TableVersion};
use vinga_format::block::BlockSearch;
use vinga_format::checksum::Checksum;
use vinga_format::redo::{Change, RecordKind, append_record};
use vinga_kernel::files::{Data, FileAnswer, FileData, FileError, FileKind, FileName, FileRequest, FileTask};
use vinga_kernel::testkit::{Harness, Sent};
use vinga_kernel::{Span, Tick};
use vinga_redo::{CheckpointSettings, Redo, Settings, SpeedLimits};
use vinga_wire::checkpoint::{CheckpointState, QuotaBody, ReportBody, WritersBody};
use vinga_wire::epoch::{EpochBody, LogRoom, LogRoomBody};
use vinga_wire::file::{FileErrorKind, StopNodeOrder};
use vinga_wire::redo::{BatchBody, BatchHead, CreditBody};
use vinga_wire::start::{LogIncarnation, StartConfirm, StartRefuse, StartRequest, StartResult, StartTask};
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{Address, BlockNumber, SignalNumber, U16, U32, U64, cold};

const NODE: NodeId = NodeId(1);
const FILES: u32 = 4;
const FILE_BYTES: u64 = 512 << 10;
/// What a disk writes as a whole.
const ATOM_BYTES: usize = 512;

/// A file: what is on disk, and what was written since.
#[derive(Clone, Default)]
struct File {
    disk: Vec<u8>,
    unflushed: Vec<(usize, Vec<u8>)>,
}

impl File {
    /// What a reader sees.
    fn seen(&self) -> Vec<u8> {
        let mut bytes = self.disk.clone();
        for (at, data) in &self.unflushed {
            bytes[*at..*at + data.len()].copy_from_slice(data);
        }
        bytes
    }

    fn flush(&mut self) {
        self.disk = self.seen();
        self.unflushed.clear();
    }
}

/// What a scan has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scanned {
    pub complete: Epoch,
    pub greatest: Epoch,
}

/// What a stream orders a data manager to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The president learns whether there is room for ends, and of records that no end covers.
    Room(LogRoom, bool),
    /// This one begins a checkpoint.
    Checkpoint(u16),
    /// This one writes so many bytes.
    Quota(u16, u64),
    /// This one may log so many bytes more, and why not still more.
    Credit(u16, u64, u16),
    /// The president ends this epoch at once.
    GlobalCheckpoint(u64),
    /// This stream learns that checkpoints of so many data managers are written here.
    Writers(u16, u16),
}

/// A stream with its files.
pub struct Log {
    settings: Settings,
    participants: u16,
    files: BTreeMap<FileName, File>,
    harness: Harness<Redo>,
    /// What the stream has ordered since [`Log::orders`] was last called.
    orders: Vec<Order>,
    step: u32,
    batches: Vec<u64>,
    flushes: bool,
    /// Writes fail.
    writes_fail: bool,
    /// Files can't be made, because of this.
    making_fails: Option<FileError>,
    /// Only when there are so many.
    files_max: usize,
    /// Tasks are not carried out while this is so; those that wait.
    holds: bool,
    held: Vec<FileRequest>,
    written: u64,
    credit: Vec<u64>,
}

/// Records of rows with these numbers, in these epochs.
pub fn batch(rows: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &(row, epoch) in rows {
        let change = Change {
            kind: RecordKind::Write,
            table: TableId(1),
            birth: TableVersion(1),
            partition: PartitionId(0),
            row: RowId(row as u32),
            epoch: Epoch(epoch),
        };
        append_record(&mut bytes, &change, &row.to_le_bytes(), &[]);
    }
    bytes
}

/// Records of so many bytes together, at least of one row.
pub fn large_batch(bytes: usize, epoch: u64) -> Vec<u8> {
    let mut records = batch(&[(1, epoch)]);
    while records.len() < bytes {
        records.extend(batch(&[(2, epoch)]));
    }
    records
}

fn address(block: BlockNumber, instance: u16) -> Address {
    Address::new(NODE, block, instance)
}

/// The settings of a stream of all data managers of a node.
pub fn settings(participants: u16) -> Settings {
    Settings {
        node: NODE,
        cluster: 4711,
        stream: 0,
        participants: 0..participants,
        files: FILES,
        file_bytes: FILE_BYTES,
        backlog_max: 64 << 20,
        checksum: Checksum::SOFTWARE,
        data_managers: participants,
        checkpoints: CheckpointSettings {
            bytes_between: 4 << 20,
            speed: SpeedLimits {
                min: 10 << 20,
                max: 200 << 20,
                max_other_node_restart: 200 << 20,
                max_own_restart: 400 << 20,
            },
        },
    }
}

fn stream(settings: Settings) -> Harness<Redo> {
    let mut member = Member::started(NODE, Incarnation(1), 0, settings.data_managers, 1);
    member.redo_streams = settings.data_managers.div_ceil(settings.participants.len() as u16);
    let view = ClusterView::first(vec![member]);
    Harness::new(address(BlockNumber::Redo, 0), 1, view, Redo::new(settings))
}

impl Log {
    pub fn new(participants: u16) -> Self {
        Log::with(settings(participants))
    }

    /// A stream of these settings, without files.
    pub fn with(settings: Settings) -> Self {
        let participants = settings.participants.len() as u16;
        Log {
            participants,
            files: BTreeMap::new(),
            harness: stream(settings.clone()),
            orders: Vec::new(),
            settings,
            step: 0,
            batches: vec![1; usize::from(participants)],
            flushes: true,
            writes_fail: false,
            making_fails: None,
            files_max: 0,
            holds: false,
            held: Vec::new(),
            written: 0,
            credit: vec![0; usize::from(participants)],
        }
    }

    /// The same files, for another start.
    pub fn again(self) -> Self {
        let files = self.files.clone();
        Log { files, batches: self.batches.clone(), ..Log::with(self.settings.clone()) }
    }

    /// Does what the stream has asked of its files.
    fn serve(&mut self) {
        loop {
            let requests = self.harness.take_file_requests();
            if requests.is_empty() {
                return;
            }
            if self.holds {
                self.held.extend(requests);
                return;
            }
            for request in requests {
                if self.writes_fail && matches!(request.task, FileTask::Write { .. }) {
                    let FileRequest { requester, token, .. } = request;
                    let error = FileError { kind: FileErrorKind::Failed, text: "input/output error".into() };
                    self.harness.answer_file(FileAnswer { requester, token, result: Err(error) });
                    continue;
                }
                if self.files.len() >= self.files_max
                    && let Some(error) = self.making_fails.clone()
                    && matches!(request.task, FileTask::Allocate { .. })
                {
                    let FileRequest { requester, token, .. } = request;
                    self.harness.answer_file(FileAnswer { requester, token, result: Err(error) });
                    continue;
                }
                if let Some(data) = self.carry_out(&request) {
                    let FileRequest { requester, token, .. } = request;
                    self.harness.answer_file(FileAnswer { requester, token, result: Ok(data) });
                }
            }
        }
    }

    /// Lets the disk stand still, or go on.
    pub fn hold_writes(&mut self, holds: bool) {
        self.holds = holds;
        for request in std::mem::take(&mut self.held) {
            let data = self.carry_out(&request).expect("flushes are answered");
            let FileRequest { requester, token, .. } = request;
            self.harness.answer_file(FileAnswer { requester, token, result: Ok(data) });
        }
        self.serve();
    }

    fn carry_out(&mut self, request: &FileRequest) -> Option<FileData> {
        let name = request.file;
        if matches!(request.task, FileTask::List) {
            let names = self.files.iter().map(|(&name, file)| (name, file.disk.len() as u64)).collect();
            return Some(FileData::Names(names));
        }
        let file = self.files.entry(name).or_default();
        match &request.task {
            FileTask::Allocate { bytes } => {
                let bytes = file.disk.len().max(*bytes as usize);
                file.disk.resize(bytes, 0);
            }
            FileTask::Fill { offset, bytes } => {
                file.unflushed.push((*offset as usize, vec![0; *bytes as usize]));
            }
            FileTask::Write { offset, data: Data(data) } => {
                self.written += data.len() as u64;
                file.unflushed.push((*offset as usize, data.to_vec()));
            }
            FileTask::Flush if !self.flushes => return None,
            FileTask::Flush => file.flush(),
            FileTask::Read { offset, bytes } => {
                let seen = file.seen();
                let end = seen.len().min(*offset as usize + *bytes as usize);
                let part = &seen[*offset as usize..end];
                return Some(FileData::Bytes(AlignedBuffer::copy_of(part), part.len()));
            }
            FileTask::Remove => {
                self.files.remove(&name);
            }
            FileTask::Rename { .. } | FileTask::List => unreachable!("the log renames nothing"),
        }
        Some(FileData::None)
    }

    fn send(
        &mut self,
        from: Address,
        signal: SignalNumber,
        write: impl FnOnce(&mut vinga_wire::FrameWriter<'_>),
    ) {
        self.harness.send(from, signal, write).expect("a block may send this");
        self.serve();
    }

    /// What was sent and is no order to data managers; those are kept.
    fn take_sent(&mut self) -> Vec<Sent> {
        let mut others = Vec::new();
        for sent in self.harness.take_sent() {
            let (frame, instance) = (sent.frame(), sent.receiver().instance());
            match sent.signal() {
                SignalNumber::CheckpointWritersReport => {
                    let (body, _) = frame.head::<WritersBody>().expect("a whole body");
                    self.orders.push(Order::Writers(instance, body.data_managers.get()));
                }
                SignalNumber::CheckpointOrder => self.orders.push(Order::Checkpoint(instance)),
                SignalNumber::CheckpointQuotaOrder => {
                    let (body, _) = frame.head::<QuotaBody>().expect("a whole body");
                    self.orders.push(Order::Quota(instance, body.bytes.get()));
                }
                SignalNumber::RedoCreditConfirm => {
                    let (body, _) = frame.head::<CreditBody>().expect("a whole body");
                    self.credit[usize::from(instance)] += body.bytes.get();
                    self.orders.push(Order::Credit(instance, body.bytes.get(), body.shortage.get()));
                }
                SignalNumber::LogRoomReport => {
                    let (body, _) = frame.head::<LogRoomBody>().expect("a whole body");
                    let room = body.room().expect("a number of one");
                    self.orders.push(Order::Room(room, body.has_records.get() != 0));
                }
                SignalNumber::DurabilityOrder => {
                    let (body, _) = frame.head::<EpochBody>().expect("a whole body");
                    assert_eq!(sent.receiver(), address(BlockNumber::Distribution, 0));
                    self.orders.push(Order::GlobalCheckpoint(body.epoch().0));
                }
                _ => others.push(sent),
            }
        }
        others
    }

    /// What the stream has ordered since the last call.
    pub fn orders(&mut self) -> Vec<Order> {
        self.take_sent();
        std::mem::take(&mut self.orders)
    }

    /// The node is started.
    pub fn node_started(&mut self) {
        self.send(address(BlockNumber::Lifecycle, 0), SignalNumber::NodeStartedOrder, |_| ());
    }

    /// A data manager reports how far its checkpoint is.
    pub fn report(&mut self, instance: u16, state: CheckpointState, bytes: u64) {
        self.report_with(instance, state, bytes, 0);
    }

    /// The same, with the epoch that has to be on disk before it is usable.
    pub fn report_with(&mut self, instance: u16, state: CheckpointState, bytes: u64, epoch: u64) {
        let from = address(BlockNumber::DataManager, instance);
        self.send(from, SignalNumber::CheckpointReport, |writer| {
            let (state, bytes) = (U32::new(state as u32), U64::new(bytes));
            writer.put(&ReportBody { state, unused: U32::ZERO, bytes, epoch: U64::new(epoch) });
        });
    }

    /// Another stream of the node writes checkpoints of so many data managers from now on.
    pub fn report_writers(&mut self, stream: u16, data_managers: u16) {
        let from = address(BlockNumber::Redo, stream);
        self.send(from, SignalNumber::CheckpointWritersReport, |writer| {
            writer.put(&WritersBody { data_managers: U16::new(data_managers) });
        });
    }

    pub fn advance(&mut self, span: Span) {
        self.harness.advance(span);
        self.serve();
    }

    /// The thread does not run for some time: timers are late.
    pub fn stall(&mut self, span: Span) {
        self.harness.stall(span);
        self.serve();
    }

    pub fn set_load(&mut self, percent: u8) {
        self.harness.set_load(percent);
    }

    /// Whether the stream waits for a timer.
    pub fn has_timer(&self) -> bool {
        self.harness.next_due().is_some()
    }

    pub fn now(&self) -> Tick {
        self.harness.now()
    }

    pub fn block(&self) -> &Redo {
        self.harness.block()
    }

    pub fn has_met(&self, mark: &str) -> bool {
        self.harness.has_met(mark)
    }

    /// The disk has room for so many files.
    pub fn set_room(&mut self, files_max: usize) {
        self.files_max = files_max;
    }

    /// How many files there are.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Tries to make a new log, but no further file can be made, because of this: why the node does not start, with
    /// the number of an error, or has to stop.
    pub fn fail_to_make(&mut self, kind: FileErrorKind, text: &str) -> (u16, String) {
        self.making_fails = Some(FileError { kind, text: text.into() });
        let lifecycle = address(BlockNumber::Lifecycle, 0);
        self.send(lifecycle, SignalNumber::StartRequest, |writer| {
            cold::write(writer, &StartRequest { step: 1, task: StartTask::MakeFiles });
        });
        let outcome = |sent: Sent| match sent.signal() {
            SignalNumber::StartRefuse => {
                let refuse: StartRefuse = cold::read(&sent.frame()).expect("a whole body");
                Some((refuse.error, refuse.reason))
            }
            SignalNumber::StopNodeOrder => {
                let order: StopNodeOrder = cold::read(&sent.frame()).expect("a whole body");
                Some((order.error, order.reason))
            }
            _ => None,
        };
        let outcomes: Vec<(u16, String)> = self.take_sent().into_iter().filter_map(outcome).collect();
        assert_eq!(outcomes.len(), 1, "{outcomes:?}");
        outcomes.into_iter().next().expect("there is one")
    }

    /// Has the stream do a task of the start.
    fn start(&mut self, task: StartTask) -> Result<StartResult, String> {
        self.step += 1;
        let (step, lifecycle) = (self.step, address(BlockNumber::Lifecycle, 0));
        self.send(lifecycle, SignalNumber::StartRequest, |writer| {
            cold::write(writer, &StartRequest { step, task });
        });
        let mut result = None;
        for sent in self.take_sent() {
            match sent.signal() {
                SignalNumber::StartConfirm => {
                    let confirm: StartConfirm = cold::read(&sent.frame()).expect("a whole body");
                    assert_eq!(confirm.step, step);
                    result = Some(Ok(confirm.result));
                }
                SignalNumber::StartRefuse => {
                    let refuse: StartRefuse = cold::read(&sent.frame()).expect("a whole body");
                    result = Some(Err(refuse.reason));
                }
                _ => {}
            }
        }
        result.expect("the task is answered")
    }

    /// Makes a new log and opens it.
    pub fn make(&mut self, incarnation: u32) {
        assert_eq!(self.start(StartTask::MakeFiles), Ok(StartResult::Done));
        self.open(incarnation);
    }

    pub fn open(&mut self, incarnation: u32) {
        assert_eq!(self.start(StartTask::OpenLog { incarnation }), Ok(StartResult::Done));
    }

    /// A data manager logs this.
    pub fn append(&mut self, participant: usize, records: &[u8]) {
        while self.credit[participant] < records.len() as u64 {
            let (bytes, _) = self.ask_for_credit(participant);
            assert!(bytes > 0, "there is room in the log");
        }
        self.log(participant, records);
    }

    fn log(&mut self, participant: usize, records: &[u8]) {
        self.credit[participant] -= records.len() as u64;
        let batch = self.batches[participant];
        self.batches[participant] += 1;
        let from = address(BlockNumber::DataManager, participant as u16);
        self.send(from, SignalNumber::RedoAppendOrder, |writer| {
            writer
                .put(&BatchHead {
                    batch: U64::new(batch),
                    epoch_max: U64::ZERO,
                    bytes: U32::new(records.len() as u32),
                    unused: U32::ZERO,
                })
                .bytes(records);
        });
    }

    /// Uses up credit in large batches.
    pub fn use_credit(&mut self, participant: usize, mut bytes: u64) {
        while bytes > 0 {
            let records = large_batch(bytes.min(60_000) as usize, 10);
            if records.len() as u64 > bytes {
                return;
            }
            self.log(participant, &records);
            bytes -= records.len() as u64;
        }
    }

    pub fn skip_batches(&mut self, participant: usize, batches: u64) {
        self.batches[participant] += batches;
    }

    pub fn next_batch(&self, participant: usize) -> u64 {
        self.batches[participant]
    }

    pub fn ask_for_credit(&mut self, participant: usize) -> (u64, u16) {
        let from = address(BlockNumber::DataManager, participant as u16);
        let credit = CreditBody {
            bytes: U64::new(self.credit[participant]),
            shortage: U16::ZERO,
            unused: [U16::ZERO; 3],
        };
        self.send(from, SignalNumber::RedoCreditRequest, |writer| {
            writer.put(&credit);
        });
        self.take_sent();
        // It may have got some without having asked.
        let mut answer = None;
        self.orders.retain(|order| match *order {
            Order::Credit(instance, bytes, shortage) if usize::from(instance) == participant => {
                let before = answer.map_or(0, |(bytes, _)| bytes);
                answer = Some((before + bytes, shortage));
                false
            }
            _ => true,
        });
        answer.expect("it is answered")
    }

    /// Ends an epoch; it must be confirmed.
    pub fn end_epoch(&mut self, epoch: u64) {
        assert!(self.try_end_epoch(epoch), "the epoch is confirmed");
        self.durable(epoch);
    }

    /// Ends an epoch whose last block can't be written: it is not confirmed, though the flush behind it succeeds.
    pub fn end_epoch_with_a_failed_write(&mut self, epoch: u64) {
        self.writes_fail = true;
        assert!(!self.try_end_epoch(epoch), "nobody knows what is on disk");
    }

    pub fn end_epoch_without_flush(&mut self, epoch: u64) {
        self.flushes = false;
        assert!(!self.try_end_epoch(epoch), "an epoch is confirmed when its files are flushed");
        self.flushes = true;
    }

    /// Begins to end an epoch.
    pub fn begin_to_end_epoch(&mut self, epoch: u64) {
        assert!(!self.try_end_epoch(epoch), "the disk does not answer");
    }

    /// Ends an epoch, if there is room for that; whether it is confirmed.
    pub fn tries_to_end_epoch(&mut self, epoch: u64) -> bool {
        self.try_end_epoch(epoch)
    }

    /// Whether an epoch that waited was confirmed.
    pub fn is_epoch_confirmed(&mut self) -> bool {
        self.take_sent().iter().any(|sent| sent.signal() == SignalNumber::EpochEndConfirm)
    }

    fn try_end_epoch(&mut self, epoch: u64) -> bool {
        let president = address(BlockNumber::Distribution, 0);
        let body = EpochBody::new(Epoch(epoch));
        self.send(president, SignalNumber::EpochEndRequest, |writer| {
            writer.put(&body);
        });
        for participant in 0..self.participants {
            let from = address(BlockNumber::DataManager, participant);
            self.send(from, SignalNumber::RedoDrainConfirm, |writer| {
                writer.put(&body);
            });
        }
        self.take_sent().iter().any(|sent| sent.signal() == SignalNumber::EpochEndConfirm)
    }

    pub fn durable(&mut self, epoch: u64) {
        let president = address(BlockNumber::Distribution, 0);
        self.send(president, SignalNumber::DurableEpochOrder, |writer| {
            writer.put(&EpochBody::new(Epoch(epoch)));
        });
    }

    pub fn trim(&mut self, participant: usize, batch: u64) {
        let from = address(BlockNumber::DataManager, participant as u16);
        self.send(from, SignalNumber::RedoTrimOrder, |writer| {
            writer.put(&BatchBody { batch: U64::new(batch) });
        });
    }

    /// The machine stops while tasks wait: of those of each file, which are done in their order, so many are done as
    /// `done` says of their number. Of what was not flushed then those writes stay that `keeps` says.
    pub fn crash_while_held(
        &mut self,
        mut done: impl FnMut(usize) -> usize,
        keeps: impl FnMut(usize) -> bool,
    ) {
        let mut queues: BTreeMap<FileName, Vec<FileRequest>> = BTreeMap::new();
        for request in std::mem::take(&mut self.held) {
            queues.entry(request.file).or_default().push(request);
        }
        for requests in queues.values() {
            for request in &requests[..done(requests.len())] {
                self.carry_out(request);
            }
        }
        self.holds = false;
        self.crash(keeps);
    }

    /// The machine stops: of what was not flushed those writes stay that `keeps` says; then the node starts again.
    pub fn crash(&mut self, mut keeps: impl FnMut(usize) -> bool) {
        for file in self.files.values_mut() {
            for (at, data) in std::mem::take(&mut file.unflushed) {
                for (sector, piece) in data.chunks(SECTOR_BYTES).enumerate() {
                    if keeps(sector) {
                        let at = at + sector * SECTOR_BYTES;
                        file.disk[at..at + piece.len()].copy_from_slice(piece);
                    }
                }
            }
        }
        self.harness = stream(self.settings.clone());
        self.credit.fill(0);
    }

    /// The machine stops: nothing is left of what was not flushed, but those pieces of heads of segments that `keeps`
    /// says.
    pub fn crash_in_heads(&mut self, keeps: impl Fn(usize) -> bool) {
        for file in self.files.values_mut() {
            for (at, data) in std::mem::take(&mut file.unflushed) {
                let pieces = data.chunks(ATOM_BYTES).enumerate().filter(|&(atom, _)| at == 0 && keeps(atom));
                for (atom, piece) in pieces {
                    let at = atom * ATOM_BYTES;
                    file.disk[at..at + piece.len()].copy_from_slice(piece);
                }
            }
        }
        self.crash(|_| false);
    }

    /// Whether flushes are carried out, and answered.
    pub fn set_flushes(&mut self, flushes: bool) {
        self.flushes = flushes;
    }

    /// Looks for the end of the log; the next batches are those behind it.
    pub fn scan(&mut self, incarnations: &[(u32, Option<u64>)], durable: u64) -> Result<Scanned, String> {
        let incarnations = incarnations
            .iter()
            .map(|&(number, last)| LogIncarnation { number, last_valid: last.map(Epoch) })
            .collect();
        match self.start(StartTask::ScanLog { incarnations, durable: Epoch(durable) })? {
            StartResult::LogScanned { complete, greatest, .. } => Ok(Scanned { complete, greatest }),
            other => panic!("a scan is answered by {other:?}"),
        }
    }

    /// Replays up to an epoch; returns what data managers got: instance, batch, and the last epoch that counts.
    pub fn replay(&mut self, epoch: u64, from: &[(u16, u64)]) -> Result<Vec<(u16, u64, u64)>, String> {
        self.step += 1;
        let (step, lifecycle) = (self.step, address(BlockNumber::Lifecycle, 0));
        let task = StartTask::ReplayLog { epoch: Epoch(epoch), from: from.to_vec() };
        self.send(lifecycle, SignalNumber::StartRequest, |writer| {
            cold::write(writer, &StartRequest { step, task });
        });
        let mut applied = Vec::new();
        loop {
            let mut confirms = Vec::new();
            for sent in self.take_sent() {
                match sent.signal() {
                    SignalNumber::RedoReplayRequest => {
                        let frame = sent.frame();
                        let (head, _) = frame.head::<BatchHead>().expect("a whole body");
                        let instance = sent.receiver().instance();
                        applied.push((instance, head.batch.get(), head.epoch_max.get()));
                        confirms.push((instance, head.batch));
                    }
                    SignalNumber::StartConfirm => {
                        for &(instance, batch) in from {
                            self.batches[usize::from(instance)] = batch;
                        }
                        for &(instance, batch, _) in &applied {
                            self.batches[usize::from(instance)] = batch + 1;
                        }
                        return Ok(applied);
                    }
                    SignalNumber::StartRefuse => {
                        let refuse: StartRefuse = cold::read(&sent.frame()).expect("a whole body");
                        return Err(refuse.reason);
                    }
                    _ => {}
                }
            }
            assert!(!confirms.is_empty(), "the replay goes on or ends");
            for (instance, batch) in confirms {
                let from = address(BlockNumber::DataManager, instance);
                self.send(from, SignalNumber::RedoReplayConfirm, |writer| {
                    writer.put(&BatchBody { batch });
                });
            }
        }
    }

    /// A file of zeros appears.
    pub fn add_file(&mut self, file: u32, bytes: usize) {
        let name = FileName::new(FileKind::Redo, 0, file.into());
        self.files.insert(name, File { disk: vec![0; bytes], unflushed: Vec::new() });
    }

    /// Leaves so many bytes of a file.
    pub fn cut_off(&mut self, file: u32, bytes: usize) {
        let name = FileName::new(FileKind::Redo, 0, file.into());
        self.files.get_mut(&name).expect("it is there").disk.truncate(bytes);
    }

    /// Copies a file over another one.
    pub fn copy_file(&mut self, file: u32, over: u32) {
        let name = |file: u32| FileName::new(FileKind::Redo, 0, file.into());
        let disk = self.files[&name(file)].disk.clone();
        self.files.insert(name(over), File { disk, unflushed: Vec::new() });
    }

    /// Removes a file.
    pub fn remove_file(&mut self, file: u32) {
        self.files.remove(&FileName::new(FileKind::Redo, 0, file.into())).expect("it is there");
    }

    /// Exchanges the contents of two files.
    pub fn swap_files(&mut self, one: u32, other: u32) {
        let name = |file: u32| FileName::new(FileKind::Redo, 0, file.into());
        let first = self.files.remove(&name(one)).expect("it is there");
        let second = self.files.remove(&name(other)).expect("it is there");
        self.files.insert(name(one), second);
        self.files.insert(name(other), first);
    }

    /// Another number of files is configured: takes effect with [`Log::open`], before which the log is scanned again.
    pub fn set_files(&mut self, files: u32) {
        self.settings.files = files;
        self.harness = stream(self.settings.clone());
    }

    /// Damages the first sector of a file, as a torn write does.
    pub fn tear_head(&mut self, file: u32) {
        let name = FileName::new(FileKind::Redo, 0, file.into());
        self.files.get_mut(&name).expect("it is there").disk[600] ^= 1;
        self.files.get_mut(&name).expect("it is there").disk[66] ^= 1;
    }

    /// Makes the head of the segment in a file look as a newer program writes it.
    pub fn make_newer(&mut self, file: u32, block: usize) {
        let name = FileName::new(FileKind::Redo, 0, file.into());
        let mut disk = &mut self.files.get_mut(&name).expect("it is there").disk[..];
        let length_in =
            |disk: &[u8]| u32::from_le_bytes(disk[8..12].try_into().expect("four bytes")) as usize;
        for _ in 0..block {
            let padded = length_in(disk).next_multiple_of(SECTOR_BYTES);
            disk = &mut disk[padded..];
        }
        let length = length_in(disk);
        disk[12..14].copy_from_slice(&99_u16.to_le_bytes());
        let checksum = Checksum::SOFTWARE.of(&disk[8..length]);
        disk[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Segments that are needed.
    pub fn segments(&self) -> u64 {
        let used = self.block().usage().used;
        used.div_ceil(FILE_BYTES - SECTOR_BYTES as u64)
    }

    /// Credit that a data manager has.
    pub fn credit_of(&self, participant: usize) -> u64 {
        self.credit[participant]
    }

    /// Asks for credit, when so much of what it has is reserved.
    pub fn ask_for_credit_beside(&mut self, participant: usize, reserved: u64) -> (u64, u16) {
        let own = self.credit[participant];
        self.credit[participant] = own.saturating_sub(reserved);
        let answer = self.ask_for_credit(participant);
        self.credit[participant] += own.min(reserved);
        answer
    }

    /// Logs what was reserved.
    pub fn append_reserved(&mut self, participant: usize, records: &[u8]) {
        self.log(participant, records);
    }

    /// Bytes that the stream has room for.
    pub fn capacity(&self) -> u64 {
        u64::from(FILES) * (FILE_BYTES - SECTOR_BYTES as u64)
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Changes a byte of the last block that was written.
    pub fn damage_last_block(&mut self) {
        self.damage(|_, is_last| is_last);
    }

    /// Changes a byte of the block that ends an epoch.
    pub fn damage_block_of_epoch(&mut self, epoch: u64) {
        self.damage(|ended, _| ended == Epoch(epoch));
    }

    fn damage(&mut self, is_meant: impl Fn(Epoch, bool) -> bool) {
        let file = self.files.values_mut().next().expect("there is a file");
        let found: Vec<(usize, Epoch)> = BlockSearch::new(&file.disk, true, Checksum::SOFTWARE)
            .map(|(at, block)| (at, block.head.ends_epoch))
            .collect();
        let last = found.last().expect("there is a block").0;
        let (at, _) =
            found.iter().find(|(at, epoch)| is_meant(*epoch, *at == last)).expect("there is such a block");
        file.disk[at + 70] ^= 1;
    }
}
