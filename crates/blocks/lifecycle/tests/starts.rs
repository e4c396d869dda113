//! The phases of a start, played against the lifecycle block.

use vinga_base::aligned::AlignedBuffer;
use vinga_base::{Amount, Epoch, Incarnation, NodeId};
use vinga_format::checksum::Checksum;
use vinga_format::schema::SchemaExtent;
use vinga_format::system::{ClusterIncarnation, LogIncarnation, SystemState, choose, decode};
use vinga_kernel::files::{Data, FileAnswer, FileData, FileError, FileRequest, FileTask};
use vinga_kernel::testkit::{Harness, Sent};
use vinga_kernel::{Span, Tick};
use vinga_lifecycle::{Disk, Lifecycle, Phase, Settings};
use vinga_wire::epoch::{EpochBody, EpochOrder};
use vinga_wire::file::{FileErrorKind, StopNodeOrder};
use vinga_wire::start::{
    self, DefinitionsExtent, NodeStartedOrder, StartConfirm, StartKind, StartPartReport, StartProgressReport,
    StartRefuse, StartRequest, StartResult, StartTask,
};
use vinga_wire::view::{ClusterView, Member};
use vinga_wire::{Address, BlockNumber, ErrorCode, SignalNumber, cold};

const NODE: NodeId = NodeId(1);

/// The lifecycle of a node with two data managers, one coordinator and two log streams, and its system files.
struct Node {
    harness: Harness<Lifecycle>,
    copies: [AlignedBuffer; 2],
    /// Bytes that each copy has room for, and how often room was made.
    room: [u64; 2],
    allocations: u32,
    writes: u32,
    flushes: bool,
    /// The requester and token of a flush that was held back.
    unflushed: Option<(Address, u64)>,
    writes_fail: bool,
}

impl Node {
    fn new(disk: Option<Disk>) -> Self {
        let member = Member { redo_streams: 2, ..Member::started(NODE, Incarnation(1), 0, 2, 1) };
        let view = ClusterView::first(vec![member]);
        let own = Address::new(NODE, BlockNumber::Lifecycle, 0);
        let harness = Harness::new(own, 1, view, Lifecycle::new(Settings { disk }));
        let copies = [AlignedBuffer::default(), AlignedBuffer::default()];
        Node {
            harness,
            copies,
            room: [0; 2],
            allocations: 0,
            writes: 0,
            flushes: true,
            unflushed: None,
            writes_fail: false,
        }
    }

    fn serve(&mut self) {
        loop {
            let requests = self.harness.take_file_requests();
            if requests.is_empty() {
                return;
            }
            for FileRequest { requester, token, file, task } in requests {
                if let FileTask::Write { .. } = &task
                    && self.writes_fail
                {
                    let error = FileError { kind: FileErrorKind::Failed, text: "input/output error".into() };
                    self.harness.answer_file(FileAnswer { requester, token, result: Err(error) });
                    continue;
                }
                let copy = file.number as usize;
                if let FileTask::Allocate { bytes } = &task {
                    self.room[copy] = *bytes;
                    self.allocations += 1;
                }
                if let FileTask::Write { offset: 0, data: Data(data) } = &task {
                    assert!(data.len() as u64 <= self.room[copy], "there is room for what is written");
                    self.copies[copy].clone_from(data);
                    self.writes += 1;
                }
                if task != FileTask::Flush || self.flushes {
                    self.harness.answer_file(FileAnswer { requester, token, result: Ok(FileData::None) });
                } else {
                    self.unflushed = Some((requester, token));
                }
            }
        }
    }

    /// The requests that were sent, all of them with the same task: that task and the receivers.
    fn asked(&mut self) -> (StartTask, Vec<(BlockNumber, u16)>, u32) {
        self.serve();
        let sent = self.harness.take_sent();
        let requests: Vec<&Sent> = sent.iter().filter(|s| s.signal() == SignalNumber::StartRequest).collect();
        let request: StartRequest = cold::read(&requests[0].frame()).expect("a whole body");
        let receivers = requests.iter().map(|sent| {
            let receiver = sent.receiver();
            (receiver.block().expect("a block"), receiver.instance())
        });
        (request.task, receivers.collect(), request.step)
    }

    fn answer(&mut self, (block, instance): (BlockNumber, u16), step: u32, result: StartResult) {
        let sender = Address::new(NODE, block, instance);
        self.harness
            .send(sender, SignalNumber::StartConfirm, |writer| {
                cold::write(writer, &StartConfirm { step, result });
            })
            .expect("a block may send this");
    }

    /// A block says how much of its part is done.
    fn note_part(&mut self, (block, instance): (BlockNumber, u16), step: u32, amount: Amount) {
        let sender = Address::new(NODE, block, instance);
        self.harness
            .send(sender, SignalNumber::StartPartReport, |writer| {
                cold::write(writer, &StartPartReport { step, amount });
            })
            .expect("a block may send this");
    }

    /// Everybody answers that its part is done; returns the task.
    fn all_done(&mut self) -> StartTask {
        let (task, receivers, step) = self.asked();
        for receiver in receivers {
            self.answer(receiver, step, StartResult::Done);
        }
        task
    }

    /// Everybody gives an answer of its own.
    fn answer_all(&mut self, mut answer: impl FnMut() -> StartResult) {
        let (_, receivers, step) = self.asked();
        for receiver in receivers {
            self.answer(receiver, step, answer());
        }
    }

    /// What was sent, without reports about the progress of the start.
    fn sent_beside_progress(&mut self) -> Vec<SignalNumber> {
        let sent = self.harness.take_sent();
        sent.iter().map(Sent::signal).filter(|&signal| signal != SignalNumber::StartProgressReport).collect()
    }

    /// How far the start is, as the driver was informed since this was last asked.
    fn progress(&mut self) -> Vec<StartProgressReport> {
        self.serve();
        let sent = self.harness.take_sent();
        let reports = sent.iter().filter(|sent| sent.signal() == SignalNumber::StartProgressReport);
        reports.map(|sent| cold::read(&sent.frame()).expect("a whole body")).collect()
    }

    fn is_started(&mut self) -> bool {
        self.started().contains(&BlockNumber::Driver)
    }

    /// Which blocks are notified that the node is started.
    fn started(&mut self) -> Vec<BlockNumber> {
        self.serve();
        let sent = self.harness.take_sent();
        let orders = sent.iter().filter(|sent| sent.signal() == SignalNumber::NodeStartedOrder);
        orders.filter_map(|order| order.receiver().block()).collect()
    }

    /// The whole start of a node that has never started.
    fn after_a_start() -> Self {
        let state = SystemState { cluster: 5, node: NODE, data_managers: 2, ..SystemState::default() };
        let mut node = Node::new(disk(state, 0));
        while node.harness.block().phase() != Phase::Started {
            node.all_done();
            node.serve();
        }
        node.harness.take_sent();
        node
    }

    fn send(&mut self, sender: BlockNumber, signal: SignalNumber, epoch: u64) {
        let sender = Address::new(NODE, sender, 0);
        let sent = self.harness.send(sender, signal, |writer| {
            match signal {
                SignalNumber::EpochOrder => writer.put(&EpochOrder { epoch: epoch.into() }),
                SignalNumber::NodeStopRequest => writer,
                _ => writer.put(&EpochBody::new(Epoch(epoch))),
            };
        });
        sent.expect("it may send this");
        self.serve();
    }

    /// Time passes.
    fn pass(&mut self, span: Span) {
        self.harness.advance(span);
        self.serve();
    }

    /// The epoch that the president was asked to bring to disk.
    fn asked_for(&mut self) -> Option<u64> {
        let sent = self.harness.take_sent();
        let request = sent.iter().find(|sent| sent.signal() == SignalNumber::DurabilityRequest)?;
        let (body, _) = request.frame().head::<EpochBody>()?;
        Some(body.epoch().0)
    }

    /// Answers the flush that was held back, and all further ones.
    fn flush(&mut self) {
        self.flushes = true;
        self.flush_one();
    }

    /// Answers the flush that was held back.
    fn flush_one(&mut self) {
        let (requester, token) = self.unflushed.take().expect("a flush was held back");
        self.harness.answer_file(FileAnswer { requester, token, result: Ok(FileData::None) });
        self.serve();
    }

    /// Who was allowed to use epochs up to which one.
    fn allowed(&mut self) -> Vec<(BlockNumber, u64)> {
        let sent = self.harness.take_sent();
        let orders = sent.iter().filter(|sent| sent.signal() == SignalNumber::EpochLimitOrder);
        let orders = orders.map(|sent| {
            let (body, _) = sent.frame().head::<EpochBody>().expect("a whole body");
            (sent.receiver().block().expect("a block"), body.epoch().0)
        });
        orders.collect()
    }

    fn state(&self) -> SystemState {
        choose([&self.copies[0], &self.copies[1]], Checksum::SOFTWARE).expect("a copy is whole").copy.state
    }
}

fn disk(state: SystemState, next_write: u64) -> Option<Disk> {
    Some(Disk {
        state,
        next_write,
        cluster_incarnation: 77,
        epoch_reserve: 1000,
        checksum: Checksum::SOFTWARE,
        time_of_day: 1_760_000_000_000,
        is_trial: false,
    })
}

#[test]
fn a_node_without_a_disk_is_started_at_once() {
    let mut node = Node::new(None);
    assert!(node.is_started());
    assert_eq!(node.harness.block().phase(), Phase::Started);
}

#[test]
fn an_initial_start_makes_log_and_definitions_and_then_the_system_file() {
    let state = SystemState { cluster: 5, node: NODE, data_managers: 2, ..SystemState::default() };
    let mut node = Node::new(disk(state, 0));
    let (task, receivers, step) = node.asked();
    let writers = [(BlockNumber::Dictionary, 0), (BlockNumber::Redo, 0), (BlockNumber::Redo, 1)];
    assert_eq!((task, &receivers[..]), (StartTask::MakeFiles, &writers[..]));
    node.answer(receivers[0], step, on_disk(1, 2, 0));
    node.answer(receivers[1], step, StartResult::Done);
    assert!(node.copies[0].is_empty(), "the other stream has not answered");
    node.answer(receivers[2], step, StartResult::Done);
    assert_eq!(node.all_done(), StartTask::OpenLog { incarnation: 1 });
    let begin = StartTask::Begin { epoch: Epoch(1), limit: Epoch(1001), durable: Epoch(0), incarnation: 1 };
    assert_eq!(node.all_done(), begin);
    assert!(node.is_started());
    let state = node.state();
    assert_eq!(state.definitions, SchemaExtent { generation: 1, blocks: 2 });
    assert_eq!(state.cluster_incarnation, ClusterIncarnation { number: 1, id: 77 });
    assert_eq!(state.log_incarnations, [LogIncarnation { number: 1, streams: 2, last_epoch: None }]);
}

/// The dictionary's answer.
fn on_disk(generation: u64, blocks: u64, greatest: u64) -> StartResult {
    let extent = DefinitionsExtent { generation, blocks };
    StartResult::DefinitionsOnDisk { extent, greatest: Epoch(greatest) }
}

/// The state of a node that has run once, up to epoch 100.
fn state() -> SystemState {
    SystemState {
        cluster: 5,
        node: NODE,
        data_managers: 2,
        cluster_incarnation: ClusterIncarnation { number: 1, id: 76 },
        log_incarnations: vec![LogIncarnation { number: 1, streams: 2, last_epoch: None }],
        durable_epoch: Epoch(100),
        own_epoch: Epoch(100),
        epoch_limit: Epoch(100),
        restorable: vec![NODE],
        definitions: SchemaExtent { generation: 4, blocks: 5 },
        ..SystemState::default()
    }
}

/// Plays a restart up to the end of the scan, in which the streams reach these epochs.
fn scanned(complete: [u64; 2]) -> Node {
    scan(Node::new(disk(state(), 7)), complete)
}

fn scan(mut node: Node, complete: [u64; 2]) -> Node {
    let (task, receivers, step) = node.asked();
    let incarnations = vec![start::LogIncarnation { number: 1, last_valid: None }];
    assert_eq!(task, StartTask::ScanLog { incarnations, durable: Epoch(100) });
    for (receiver, complete) in receivers.into_iter().zip(complete) {
        let result = StartResult::LogScanned {
            complete: Epoch(complete),
            greatest: Epoch(complete + 3),
            incarnations: vec![1],
        };
        node.answer(receiver, step, result);
    }
    node
}

#[test]
fn a_restart_restores_what_all_streams_reach() {
    let mut node = scanned([105, 102]);
    let (task, receivers, step) = node.asked();
    let known = DefinitionsExtent { generation: 4, blocks: 5 };
    assert_eq!(task, StartTask::RestoreDefinitions { epoch: Epoch(102), known });
    assert_eq!(receivers, [(BlockNumber::Dictionary, 0)]);
    node.answer(receivers[0], step, on_disk(4, 8, 130));
    let (task, receivers, step) = node.asked();
    let incarnations = vec![start::LogIncarnation { number: 1, last_valid: Some(Epoch(102)) }];
    assert_eq!(task, StartTask::LoadCheckpoint { epoch: Epoch(102), incarnations });
    for (receiver, batch) in receivers.into_iter().zip([40, 50]) {
        let result = StartResult::CheckpointLoaded {
            files: vec![],
            batch,
            rows: 1000,
            greatest: Epoch(120),
            rejected: Vec::new(),
            unfinished: Vec::new(),
            incarnations: vec![],
        };
        node.answer(receiver, step, result);
    }
    let (task, receivers, step) = node.asked();
    assert_eq!(task, StartTask::ReplayLog { epoch: Epoch(102), from: vec![(0, 40), (1, 50)] });
    for receiver in receivers {
        node.answer(receiver, step, StartResult::LogReplayed { batches: 3 });
    }
    assert_eq!(node.all_done(), StartTask::EndRestore);
    let (task, receivers, step) = node.asked();
    assert_eq!((task, receivers.len()), (StartTask::OpenLog { incarnation: 2 }, 3));
    let definitions = |node: &Node| node.state().definitions;
    assert_eq!(definitions(&node), SchemaExtent { generation: 4, blocks: 8 }, "nothing is rewritten yet");
    for receiver in receivers {
        let is_dictionary = receiver.0 == BlockNumber::Dictionary;
        let result = if is_dictionary { on_disk(5, 2, 0) } else { StartResult::Done };
        node.answer(receiver, step, result);
    }
    node.serve();
    assert_eq!(definitions(&node), SchemaExtent { generation: 5, blocks: 2 });
    let begin =
        StartTask::Begin { epoch: Epoch(131), limit: Epoch(1131), durable: Epoch(102), incarnation: 2 };
    assert_eq!(node.all_done(), begin, "above every epoch that was met");
    let mut started = node.started();
    started.sort_unstable_by_key(|block| *block as u8);
    assert_eq!(started, [BlockNumber::Driver, BlockNumber::Redo, BlockNumber::Redo]);
    let state = node.state();
    let listed: Vec<_> = state.log_incarnations.iter().map(|one| (one.number, one.last_epoch)).collect();
    assert_eq!(listed, [(1, Some(Epoch(102))), (2, None)]);
    assert_eq!((state.earlier[0].last_epoch, state.cluster_incarnation.number), (Epoch(102), 2));
    assert_eq!(state.durable_epoch, Epoch(102));
}

#[test]
fn a_trial_ends_when_everything_is_restored_and_writes_nothing() {
    let trial = disk(state(), 7).map(|disk| Disk { is_trial: true, ..disk });
    let mut node = scan(Node::new(trial), [105, 102]);
    node.answer_all(|| on_disk(4, 8, 130));
    let (_, mut receivers, step) = node.asked();
    // They answer in any order.
    receivers.reverse();
    for receiver in receivers {
        let result = StartResult::CheckpointLoaded {
            files: vec![7, 8 + u64::from(receiver.1)],
            batch: 40,
            rows: 1000,
            greatest: Epoch(120),
            rejected: vec![],
            unfinished: vec!["the newest one has no end".to_string()],
            incarnations: vec![],
        };
        node.answer(receiver, step, result);
    }
    node.answer_all(|| StartResult::LogReplayed { batches: 3 });
    assert_eq!(node.harness.block().phase(), Phase::EndingRestore);
    node.answer_all(|| StartResult::Restored { rows: 1010 });
    node.serve();
    assert_eq!(node.harness.block().phase(), Phase::Started);
    assert_eq!((node.writes, node.allocations), (0, 0), "nothing is written");
    let sent = node.harness.take_sent();
    let orders: Vec<_> = sent.iter().filter(|sent| sent.signal() == SignalNumber::NodeStartedOrder).collect();
    let [order] = orders[..] else { panic!("nobody begins but the driver: {} orders", orders.len()) };
    let NodeStartedOrder { restored, from } = cold::read(&order.frame()).expect("a whole body");
    let restored = restored.expect("there was something");
    assert_eq!((restored.epoch, restored.rows, restored.batches), (Epoch(102), 2020, 6));
    let from: Vec<_> = from.into_iter().map(|one| (one.data_manager, one.files, one.batch)).collect();
    assert_eq!(from, [(0, vec![7, 8], 40), (1, vec![7, 9], 40)]);
}

#[test]
fn the_log_is_not_opened_before_both_copies_of_the_system_file_are_on_disk() {
    let mut node = scanned([100, 100]);
    node.all_done();
    let (_, receivers, step) = node.asked();
    for receiver in receivers {
        let result = StartResult::CheckpointLoaded {
            files: vec![],
            batch: 1,
            rows: 0,
            greatest: Epoch(0),
            rejected: vec![],
            unfinished: vec![],
            incarnations: vec![],
        };
        node.answer(receiver, step, result);
    }
    let (_, receivers, step) = node.asked();
    for receiver in receivers {
        node.answer(receiver, step, StartResult::LogReplayed { batches: 0 });
    }
    node.flushes = false;
    node.all_done();
    node.serve();
    assert_eq!(node.harness.block().phase(), Phase::WritingSystemFile);
    assert_eq!(node.sent_beside_progress(), []);
}

#[test]
fn a_failed_write_of_the_system_file_ends_the_start_whatever_the_flush_says() {
    let state = SystemState { cluster: 5, node: NODE, data_managers: 2, ..SystemState::default() };
    let mut node = Node::new(disk(state, 0));
    node.writes_fail = true;
    node.all_done();
    node.serve();
    assert_eq!(node.sent_beside_progress(), [SignalNumber::StopNodeOrder]);
    assert_eq!(node.harness.block().phase(), Phase::WritingSystemFile);
}

/// A block refuses a task; returns how the node stops.
fn stop_by_refusal(
    node: &mut Node,
    (block, instance): (BlockNumber, u16),
    refuse: &StartRefuse,
) -> StopNodeOrder {
    let sender = Address::new(NODE, block, instance);
    node.harness
        .send(sender, SignalNumber::StartRefuse, |writer| cold::write(writer, refuse))
        .expect("a block may send this");
    let sent = node.harness.take_sent();
    let stop = sent.iter().find(|sent| sent.signal() == SignalNumber::StopNodeOrder).expect("the node stops");
    cold::read(&stop.frame()).expect("a whole body")
}

#[test]
fn a_refusal_for_want_of_memory_keeps_its_number_and_does_not_blame_the_files() {
    let mut node = Node::new(disk(state(), 7));
    let (_, receivers, step) = node.asked();
    let full = ErrorCode::DataMemoryFull as u16;
    let refuse = StartRefuse { step, reason: "the rows do not fit into DataMemory".to_string(), error: full };
    let StopNodeOrder { reason, error } = stop_by_refusal(&mut node, receivers[1], &refuse);
    assert_eq!((error, reason.contains("--initial")), (full, false), "{reason}");
    assert!(reason.contains("error 827") && reason.contains("do not fit into DataMemory"), "{reason}");
    assert_eq!(node.harness.block().phase(), Phase::Refused);
}

#[test]
fn a_refusal_stops_the_node_with_its_reason() {
    let mut node = Node::new(disk(state(), 7));
    let (_, receivers, step) = node.asked();
    let reason = "redo/001-00000000.redo, offset 8192: damaged".to_string();
    let order = stop_by_refusal(&mut node, receivers[1], &StartRefuse { step, reason, error: 0 });
    assert!(order.reason.contains("offset 8192: damaged"), "{}", order.reason);
    assert_eq!(order.error, 0);
    // The other stream's answer changes nothing any more.
    let result =
        StartResult::LogScanned { complete: Epoch(100), greatest: Epoch(100), incarnations: vec![1] };
    node.answer(receivers[0], step, result);
    assert_eq!(node.harness.block().phase(), Phase::Refused);
}

#[test]
fn durable_epochs_are_written_behind_the_answer_alternately() {
    let mut node = scanned([100, 100]);
    for epoch in 101..110 {
        node.send(BlockNumber::Distribution, SignalNumber::DurableEpochOrder, epoch);
        assert_eq!(node.state().durable_epoch, Epoch(epoch));
        node.pass(Span::from_millis(50));
    }
    assert!(node.copies.iter().all(|copy| !copy.is_empty()));
    assert_eq!(node.allocations, 2, "a copy gets its room once, however often it is written");
    let dictionary = Address::new(NODE, BlockNumber::Dictionary, 0);
    let extent = DefinitionsExtent { generation: 4, blocks: 9 };
    node.harness
        .send(dictionary, SignalNumber::DefinitionsReport, |writer| cold::write(writer, &extent))
        .expect("a block may send this");
    node.serve();
    assert_eq!(node.state().definitions, SchemaExtent { generation: 4, blocks: 9 });
}

/// People learn up to which moment a restart has restored, although nothing depends on a clock.
#[test]
fn the_system_file_says_when_its_epoch_was_durable() {
    let mut node = scanned([100, 100]);
    for (epoch, durable_at) in [(101, 1_760_000_000_000), (102, 1_760_000_000_070)] {
        node.send(BlockNumber::Distribution, SignalNumber::DurableEpochOrder, epoch);
        assert_eq!(node.state().durable_at, durable_at);
        node.pass(Span::from_millis(70));
    }
}

/// Each write of the system file takes the disk from the log, whose flush commits wait for.
#[test]
fn durable_epochs_that_follow_each_other_fast_are_written_now_and_then() {
    let mut node = Node::after_a_start();
    let durable = |node: &mut Node, epoch| {
        node.send(BlockNumber::Distribution, SignalNumber::DurableEpochOrder, epoch);
    };
    durable(&mut node, 10);
    assert_eq!(node.state().durable_epoch, Epoch(10), "none was written for long");
    let writes = node.writes;
    for epoch in 11..20 {
        durable(&mut node, epoch);
        node.pass(Span::from_millis(5));
    }
    assert_eq!((node.state().durable_epoch, node.writes), (Epoch(10), writes));
    // The last of them does not wait for another one.
    node.pass(Span::from_millis(5));
    assert_eq!((node.state().durable_epoch, node.writes), (Epoch(19), writes + 1));
    node.pass(Span::from_millis(500));
    assert_eq!(node.writes, writes + 1, "nothing has changed");
    // What others wait for is written at once, with the newest epoch.
    durable(&mut node, 20);
    durable(&mut node, 21);
    assert_eq!((node.state().durable_epoch, node.writes), (Epoch(20), writes + 2));
    let limit = node.state().epoch_limit.0;
    node.send(BlockNumber::Distribution, SignalNumber::EpochOrder, limit - 1);
    assert_eq!(
        (node.state().durable_epoch, node.writes),
        (Epoch(21), writes + 4),
        "both copies have the limit"
    );
}

#[test]
fn the_limit_of_epochs_is_on_disk_before_any_of_them_is_given_out() {
    let mut node = Node::after_a_start();
    let limit = node.state().epoch_limit.0;
    assert_eq!(limit, 1001, "epochs begin at 1, and 1000 are reserved at a time");
    node.send(BlockNumber::Distribution, SignalNumber::EpochOrder, 500);
    assert_eq!((node.state().epoch_limit.0, node.allowed()), (limit, vec![]), "half of them is left");
    // Nobody may use more before it is on disk that they may be used.
    node.flushes = false;
    node.send(BlockNumber::Distribution, SignalNumber::EpochOrder, 501);
    assert_eq!(node.allowed(), []);
    node.flush_one();
    assert_eq!(node.allowed(), [], "one copy may be damaged later: a restart would go on from the other one");
    node.flush();
    let limits = node
        .copies
        .each_ref()
        .map(|copy| decode(copy, Checksum::SOFTWARE).expect("it is whole").state.epoch_limit.0);
    assert_eq!(limits, [1501; 2]);
    let users = [(BlockNumber::Coordinator, 1501), (BlockNumber::Distribution, 1501)];
    assert_eq!(node.allowed(), users);
    // The next start begins above.
    let mut node = Node::new(disk(node.state(), 9));
    let (_, receivers, step) = node.asked();
    for receiver in receivers {
        let (complete, greatest) = (Epoch(0), Epoch(501));
        node.answer(receiver, step, StartResult::LogScanned { complete, greatest, incarnations: vec![1] });
    }
    let begin = loop {
        match node.all_done() {
            task @ StartTask::Begin { .. } => break task,
            _ => node.serve(),
        }
    };
    let (epoch, limit) = (Epoch(1502), Epoch(2502));
    assert_eq!(begin, StartTask::Begin { epoch, limit, durable: Epoch(0), incarnation: 2 });
}

#[test]
fn a_node_that_stops_in_order_has_everything_on_disk() {
    let mut node = Node::after_a_start();
    node.send(BlockNumber::Distribution, SignalNumber::EpochOrder, 7);
    node.send(BlockNumber::Driver, SignalNumber::NodeStopRequest, 0);
    assert_eq!(node.asked_for(), Some(7));
    // An answer to somebody else's question changes nothing.
    node.send(BlockNumber::Distribution, SignalNumber::DurabilityConfirm, 3);
    assert_eq!(node.asked_for(), None);
    node.send(BlockNumber::Distribution, SignalNumber::EpochOrder, 8);
    node.send(BlockNumber::Distribution, SignalNumber::DurabilityConfirm, 7);
    assert_eq!(node.asked_for(), Some(8));
    assert!(!node.state().is_clean);
    node.flushes = false;
    node.send(BlockNumber::Distribution, SignalNumber::DurabilityConfirm, 8);
    assert!(node.harness.take_sent().is_empty(), "the system file is not on disk");
    let mut node = Node::after_a_start();
    node.send(BlockNumber::Driver, SignalNumber::NodeStopRequest, 0);
    for _ in 0..2 {
        let epoch = node.asked_for().expect("two rounds");
        node.send(BlockNumber::Distribution, SignalNumber::DurabilityConfirm, epoch);
    }
    assert!(node.state().is_clean);
    let sent = node.harness.take_sent();
    assert_eq!(sent.iter().map(Sent::signal).collect::<Vec<_>>(), [SignalNumber::NodeStopConfirm]);
}

/// The system file lists the log incarnations of which something is left, however often the node has started.
#[test]
fn log_incarnations_of_which_nothing_is_left_are_forgotten() {
    let log = |number: u32| LogIncarnation {
        number,
        streams: 2,
        last_epoch: (number < 9).then_some(Epoch(u64::from(number) * 10)),
    };
    let state = SystemState {
        cluster: 5,
        node: NODE,
        data_managers: 2,
        node_incarnation: 9,
        log_incarnations: (1..=9).map(log).collect(),
        durable_epoch: Epoch(80),
        own_epoch: Epoch(80),
        epoch_limit: Epoch(1 << 24),
        ..SystemState::default()
    };
    let mut node = Node::new(disk(state, 18));
    let mut answers = [vec![4, 7], vec![5]].into_iter();
    node.answer_all(|| StartResult::LogScanned {
        complete: Epoch(80),
        greatest: Epoch(80),
        incarnations: answers.next().expect("two streams"),
    });
    node.answer_all(|| StartResult::DefinitionsOnDisk {
        extent: DefinitionsExtent::default(),
        greatest: Epoch(0),
    });
    let mut files = [vec![1, 2], vec![]].into_iter();
    node.answer_all(|| StartResult::CheckpointLoaded {
        files: vec![],
        batch: 1,
        rows: 0,
        greatest: Epoch(0),
        rejected: vec![],
        unfinished: vec![],
        incarnations: files.next().expect("two data managers"),
    });
    node.answer_all(|| StartResult::LogReplayed { batches: 0 });
    node.answer_all(|| StartResult::Restored { rows: 0 });
    node.serve();
    let kept: Vec<u32> = node.state().log_incarnations.iter().map(|one| one.number).collect();
    assert_eq!(kept, [1, 2, 4, 5, 7, 10]);
}

#[test]
fn the_driver_is_informed_how_far_the_start_is() {
    let mut node = Node::new(disk(state(), 7));
    let (_, receivers, step) = node.asked();
    assert_eq!(receivers.len(), 2);
    let result =
        StartResult::LogScanned { complete: Epoch(100), greatest: Epoch(100), incarnations: vec![1] };
    node.answer(receivers[0], step, result.clone());
    let reports = node.progress();
    let [report] = &reports[..] else { panic!("one answer, one report: {reports:?}") };
    assert_eq!((report.phase.as_str(), report.asked, report.awaited, report.epoch), ("log scanned", 2, 1, 0));
    assert!(report.finished.is_empty());
    node.harness.advance(Span::from_millis(5));
    node.answer(receivers[1], step, result);
    let reports = node.progress();
    let [report] = &reports[..] else { panic!("the next phase: {reports:?}") };
    assert_eq!((report.phase.as_str(), report.epoch), ("tables made", 100));
    let [scan] = &report.finished[..] else { panic!("one phase has ended: {report:?}") };
    assert!(scan.work == "log scanned" && scan.micros >= 5000, "{scan:?}");

    // How much of the checkpoints is loaded, twice a second.
    let made = StartResult::DefinitionsOnDisk { extent: DefinitionsExtent::default(), greatest: Epoch(0) };
    node.answer((BlockNumber::Dictionary, 0), step + 1, made);
    let (_, receivers, step) = node.asked();
    node.progress();
    // One of two has said it: how much there is in all is not known.
    node.harness.advance(Span::from_millis(500));
    node.note_part(receivers[0], step, Amount { bytes: 7, bytes_all: 7, ..Amount::default() });
    let reports = node.progress();
    let [report] = &reports[..] else { panic!("one part, one report: {reports:?}") };
    assert_eq!((report.amount, report.left), (Amount { bytes: 7, ..Amount::default() }, None));
    let amount = |rows, bytes| Amount { rows, rows_all: 0, bytes, bytes_all: 1000 };
    let mut newest = None;
    for (time, bytes) in [(100, 0), (400, 100), (500, 300)] {
        node.harness.advance(Span::from_millis(time));
        for &receiver in &receivers {
            node.note_part(receiver, step, amount(bytes / 10, bytes));
        }
        let reports = node.progress();
        assert_eq!(reports.len(), usize::from(time > 100), "{reports:?}");
        newest = reports.into_iter().next().or(newest);
    }
    let newest = newest.expect("it was reported");
    // The report goes out when the first data manager has sent its part.
    let brought = Amount { rows: 40, rows_all: 0, bytes: 400, bytes_all: 2000 };
    assert_eq!((newest.phase.as_str(), newest.amount), ("checkpoints loaded", brought));
    // 400 bytes in a second and a half.
    assert_eq!((newest.left, newest.kind), (Some(6_000_000), StartKind::Recovery));
    node.note_part(receivers[0], step - 1, Amount::default());
    let loaded = StartResult::CheckpointLoaded {
        files: vec![],
        batch: 1,
        rows: 30,
        greatest: Epoch(0),
        rejected: vec![],
        unfinished: vec![],
        incarnations: vec![],
    };
    for receiver in receivers {
        node.answer(receiver, step, loaded.clone());
    }
    node.answer_all(|| StartResult::LogReplayed { batches: 0 });
    node.answer_all(|| StartResult::Restored { rows: 31 });
    while node.harness.block().phase() != Phase::Started {
        node.serve();
        node.all_done();
        node.serve();
    }
    let (_, last) = node.harness.block().progress(Tick(u64::MAX));
    assert_eq!((last.is_started(), last.amount.rows, last.amount.percent()), (true, 62, Some(100)));
    assert_eq!(last.finished.iter().map(|phase| phase.micros).sum::<u64>(), last.elapsed);

    let mut node = Node::new(None);
    assert!(node.progress().is_empty(), "a node without a disk has no phases");
}
