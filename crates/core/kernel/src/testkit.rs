//! Tests one block alone (feature `testkit`): a real [`Executor`] hosts it and feeds it frames, and the harness catches
//! what it sends. All signals are recorded as a *scenario*, one line per signal, which a golden test compares with a
//! text file:
//!
//! ```text
//! # a heading
//! at 0 ms
//! 1/Driver/0 sends ApiConnectRequest { waiting: 1, … }
//!     1/Driver/0 receives ApiConnectConfirm { waiting: 1, … }
//! at 1500 ms
//!     1/Coordinator/0 receives ApiFailedOrder { api: 145, incarnation: 7 }
//! ```
//! Indented lines are what the block did: in response to the signal above them, or when a timer was due. All blocks but
//! the one under test are on another thread, and every node is connected.

use crate::block::{Block, Scrutiny};
use crate::context::{Context, LogEntry};
use crate::executor::{Executor, Host, Origin, Prefetch, Rejected};
use crate::files::{FileAnswer, FileRequest};
use crate::injected_bug::InjectedBug;
use crate::outbox::{LaneId, Outbox, Routes};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;
use std::path::Path;
use vinga_base::time::{Span, Tick};
use vinga_base::{LiveParameter, NodeId};
use vinga_wire::frame::Frames;
use vinga_wire::parameter::ParameterChange;
use vinga_wire::view::{ClusterView, ViewChange};
use vinga_wire::{
    Address, BlockNumber, Frame, FrameWriter, SignalNumber, agreement, arbitration, backup, checkpoint, cold,
    configuration, copying, dictionary, epoch, file, formation, handshake, info, key, membership, parameter,
    redo, restart, schema, schema_round, shutdown, start,
};
use zerocopy::IntoBytes;

/// Threads of the simulated node; drivers up to this instance can be sent to.
const THREADS: u16 = 8;
/// Instances of each block of the simulated node.
const INSTANCES: u16 = 64;
/// The thread of all blocks but the one under test.
const ELSEWHERE: u16 = 1;

/// The only block of its thread.
struct Alone<B> {
    block: B,
    address: Address,
}

impl<B: Block> Host for Alone<B> {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.block.start(&mut cx.for_block(self.address));
    }

    fn prefetch(&self, _: Prefetch, _: &Frame<'_>) -> bool {
        false
    }

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        if frame.signal() == Some(SignalNumber::ParameterOrder) {
            let change: ParameterChange = cold::read(frame).expect("it is a test's own");
            let parameter = LiveParameter::from_number(change.parameter).expect("there is one");
            self.block.set_parameter(cx, parameter, change.value);
        } else {
            self.block.handle(cx, frame);
        }
        self.block.check_invariants(Scrutiny::Full);
    }

    fn view_changed(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        self.block.view_changed(&mut cx.for_block(self.address), change);
        self.block.check_invariants(Scrutiny::Full);
    }

    fn slice(&mut self, cx: &mut Context<'_>) -> bool {
        let more = self.block.slice(&mut cx.for_block(self.address));
        self.block.check_invariants(Scrutiny::Full);
        more
    }
}

/// A signal that the block under test has sent.
pub struct Sent {
    bytes: Vec<u8>,
}

impl Sent {
    /// The frame.
    pub fn frame(&self) -> Frame<'_> {
        Frame::first(&self.bytes).ok().flatten().expect("a whole frame was caught")
    }

    /// Which signal it is.
    pub fn signal(&self) -> SignalNumber {
        self.frame().signal().expect("a block sends known signals")
    }

    /// Where it is sent.
    pub fn receiver(&self) -> Address {
        self.frame().receiver()
    }
}

/// Hosts one block, sends it signals and records what it does.
pub struct Harness<B> {
    executor: Executor<Alone<B>>,
    address: Address,
    now: Tick,
    time_written: Option<Tick>,
    sent: Vec<Sent>,
    scenario: String,
}

impl<B: Block> Harness<B> {
    /// Hosts a block at an address, in this view of the cluster, and starts it.
    pub fn new(address: Address, seed: u64, view: ClusterView, block: B) -> Self {
        let mut routes = Routes::new(address.node(), 0);
        for number in 0..=u8::MAX {
            let Some(block) = BlockNumber::from_number(number) else { continue };
            if block == BlockNumber::Driver {
                continue;
            }
            for instance in 0..INSTANCES {
                let is_own = Address::new(address.node(), block, instance) == address;
                routes.add_instance(block, if is_own { 0 } else { ELSEWHERE });
            }
        }
        for node in (1..=u8::MAX).map(NodeId).filter(|&node| node != address.node()) {
            routes.set_node(node, Some(LaneId::thread(ELSEWHERE)));
        }
        let outbox = Outbox::new(routes, THREADS, usize::MAX);
        let host = Alone { block, address };
        let mut executor = Executor::new(address.node(), Arc::new(view), host, outbox, seed, Tick(0));
        executor.collect_marks();
        let mut harness = Harness {
            executor,
            address,
            now: Tick(0),
            time_written: None,
            sent: Vec::new(),
            scenario: String::new(),
        };
        harness.catch();
        harness
    }

    /// What was done so far made the block ready, and is no part of the scenario.
    pub fn begin_scenario(&mut self) {
        self.sent.clear();
        self.scenario.clear();
        self.time_written = None;
    }

    /// Sends the block a signal whose body `write` appends. An API node's signal is checked as in a node.
    ///
    /// # Errors
    /// An API node may not send this; the block has not received it.
    pub fn send(
        &mut self,
        sender: Address,
        signal: SignalNumber,
        write: impl FnOnce(&mut FrameWriter<'_>),
    ) -> Result<(), Rejected> {
        let mut bytes = Vec::new();
        // The sender has the same view.
        let view = self.executor.view().number().0 as u8;
        let mut writer = FrameWriter::begin(&mut bytes, signal, view, self.address, sender, 0);
        write(&mut writer);
        drop(writer);
        self.write_time();
        let frame = Frame::first(&bytes).ok().flatten().expect("a whole frame was written");
        writeln!(self.scenario, "{sender} sends {}", describe(&frame))
            .expect("writing to a string can't fail");
        let origin = match sender.block() {
            Some(BlockNumber::Api) => Origin::Api(sender.node()),
            _ => Origin::Node,
        };
        let fed = self.executor.feed(&bytes, origin);
        self.catch();
        fed.map(|_| ())
    }

    /// Delivers what a block under test on another node has sent.
    pub fn deliver(&mut self, sent: &Sent) {
        let frame = sent.frame();
        self.write_time();
        writeln!(self.scenario, "{} sends {}", frame.sender(), describe(&frame))
            .expect("writing to a string can't fail");
        self.executor.feed(&sent.bytes, Origin::Node).expect("a block sends whole frames");
        self.catch();
    }

    /// Has the block's thread adopt the next view, which lacks this node.
    pub fn lose_node(&mut self, node: NodeId) {
        let next = self.executor.view().without(&[node]);
        let driver = Address::new(self.address.node(), BlockNumber::Driver, 0);
        self.send(driver, SignalNumber::ViewChangedOrder, |writer| cold::write(writer, &next))
            .expect("a driver may send this");
    }

    /// Gives a parameter another value, as the host of a data node does.
    pub fn set_parameter(&mut self, parameter: LiveParameter, value: u64) {
        let info = Address::new(self.address.node(), BlockNumber::Info, 0);
        let change = ParameterChange { parameter: parameter as u16, value };
        self.send(info, SignalNumber::ParameterOrder, |writer| cold::write(writer, &change))
            .expect("a block may send this");
    }

    /// Advances the clock by a span of time; timers run when they are due.
    pub fn advance(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            let due = self.executor.next_due().filter(|&due| due <= end);
            self.now = due.unwrap_or(end).max(self.now);
            self.executor.begin_turn(self.now);
            self.executor.finish_turn();
            self.catch();
            if due.is_none() {
                return;
            }
        }
    }

    /// Advances the clock by a span of time in which the thread does not run: timers are late.
    pub fn stall(&mut self, span: Span) {
        self.now = self.now + span;
        self.executor.begin_turn(self.now);
        self.executor.finish_turn();
        self.catch();
    }

    /// Breaks a rule on purpose (only in builds with injected bugs).
    pub fn inject_bug(&mut self, bug: Option<InjectedBug>) {
        self.executor.inject_bug(bug);
    }

    /// Sets how busy the block's thread counts as, in percent.
    pub fn set_load(&mut self, percent: u8) {
        self.executor.set_load(percent);
    }

    /// When the next timer is due; none if nobody has set one.
    pub fn next_due(&self) -> Option<Tick> {
        self.executor.next_due()
    }

    /// The tick of this turn.
    pub fn now(&self) -> Tick {
        self.now
    }

    /// Returns the signals sent since the last call, in order for each thread of receivers.
    pub fn take_sent(&mut self) -> Vec<Sent> {
        core::mem::take(&mut self.sent)
    }

    /// What the block has asked of files since the last call.
    pub fn take_file_requests(&mut self) -> Vec<FileRequest> {
        self.executor.take_file_requests()
    }

    /// The driver answers a task.
    pub fn answer_file(&mut self, answer: FileAnswer) {
        self.executor.answer_file(answer);
        self.catch();
    }

    /// The block's address.
    pub fn address(&self) -> Address {
        self.address
    }

    /// The block.
    pub fn block(&self) -> &B {
        &self.executor.host().block
    }

    /// Whether the block has recorded this coverage mark.
    pub fn has_met(&self, mark: &str) -> bool {
        self.executor.marks().any(|name| name == mark)
    }

    /// Writes a heading into the scenario.
    pub fn heading(&mut self, text: &str) {
        writeln!(self.scenario, "# {text}").expect("writing to a string can't fail");
    }

    /// The scenario so far.
    pub fn scenario(&self) -> &str {
        &self.scenario
    }

    fn write_time(&mut self) {
        if self.time_written != Some(self.now) {
            self.time_written = Some(self.now);
            writeln!(self.scenario, "at {} ms", self.now.0 / 1000).expect("writing to a string can't fail");
        }
    }

    /// Records what the block has sent and logged.
    fn catch(&mut self) {
        let lanes = [LaneId::DRIVER].into_iter().chain((0..THREADS).map(LaneId::thread));
        let mut caught = Vec::new();
        for lane in lanes {
            caught.append(self.executor.outbox().lane_mut(lane));
        }
        let log = self.executor.take_log();
        if caught.is_empty() && log.is_empty() {
            return;
        }
        self.write_time();
        for LogEntry { level, text, .. } in log {
            writeln!(self.scenario, "    log, {level:?}: {text}").expect("writing to a string can't fail");
        }
        for frame in Frames(&caught) {
            writeln!(self.scenario, "    {} receives {}", frame.receiver(), describe(&frame))
                .expect("writing to a string can't fail");
            let bytes = [frame.header.as_bytes(), frame.body].concat();
            self.sent.push(Sent { bytes });
        }
    }
}

/// Compares a scenario with a file; with `BLESS=1` in the environment it writes the file instead.
pub fn check_golden(path: &Path, scenario: &str) {
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        std::fs::create_dir_all(path.parent().expect("the golden file's path has a folder"))
            .expect("the folder can be created");
        std::fs::write(path, scenario).expect("the golden file can be written");
        return;
    }
    let golden = std::fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{}: {error}; BLESS=1 writes it", path.display()));
    for (number, (now, then)) in scenario.lines().zip(golden.lines()).enumerate() {
        let line = number + 1;
        assert_eq!(now, then, "{}:{line} differs; BLESS=1 accepts the new one", path.display());
    }
    assert_eq!(scenario, golden, "{}: one scenario is longer; BLESS=1 accepts the new one", path.display());
}

/// A signal as a line of text: its name and its body, if this function can decode it.
pub fn describe(frame: &Frame<'_>) -> String {
    let Some(signal) = frame.signal() else {
        return format!("signal {} ({} bytes)", frame.header.number.get(), frame.body.len());
    };
    match describe_body(signal, frame) {
        Some(body) => format!("{signal:?} {body}"),
        None => format!("{signal:?} ({} bytes)", frame.body.len()),
    }
}

fn describe_body(signal: SignalNumber, frame: &Frame<'_>) -> Option<String> {
    macro_rules! cold {
        ($body:ty) => {
            cold::read::<$body>(frame).map(|body| fields(format!("{body:?}")))
        };
    }
    use SignalNumber as S;
    match signal {
        S::HelloRequest => cold!(handshake::HelloRequest),
        S::HelloConfirm => cold!(handshake::HelloConfirm),
        S::NodeHelloRequest | S::NodeHelloConfirm => cold!(formation::NodeHello),
        S::NodesConnectedReport => cold!(formation::NodesConnectedReport),
        S::FirstViewOrder => cold!(formation::FirstViewOrder),
        S::ApiConnectRequest => cold!(membership::ApiConnectRequest),
        S::ApiConnectConfirm => cold!(membership::ApiConnectConfirm),
        S::ApiConnectRefuse => cold!(membership::ApiConnectRefuse),
        S::ApiAdmissionRequest => cold!(membership::ApiAdmissionRequest),
        S::ApiAdmissionConfirm => cold!(membership::ApiAdmissionConfirm),
        S::ApiAdmissionRefuse => cold!(membership::ApiConnectRefuse),
        S::ApiSessionRequest => cold!(membership::ApiSessionRequest),
        S::ApiSessionConfirm => cold!(membership::ApiSessionConfirm),
        S::ApiNodesConfirm => cold!(membership::ApiNodesConfirm),
        S::ApiDisconnectedReport
        | S::ApiConnectionsClosedReport
        | S::ApiLeavingReport
        | S::ApiConnectedOrder
        | S::ApiConnectedConfirm
        | S::ApiConnectionClosedOrder
        | S::ApiConnectionClosedConfirm
        | S::ApiFailedOrder
        | S::ApiFailedConfirm
        | S::DisconnectOrder => {
            let (body, _) = frame.head::<membership::ApiNodeBody>()?;
            Some(format!("{{ api: {}, incarnation: {} }}", body.api, body.incarnation))
        }
        S::HeartbeatRequest | S::HeartbeatConfirm => {
            let (body, _) = frame.head::<membership::HeartbeatBody>()?;
            Some(format!("{{ epoch: {}, view: {} }}", body.epoch, body.view))
        }
        S::ViewChangedOrder | S::ViewOrder | S::ViewInstallOrder => {
            cold::read::<ClusterView>(frame).map(|view| describe_view(&view))
        }
        S::NodeHeartbeatRequest | S::NodeHeartbeatConfirm => {
            let (body, _) = frame.head::<agreement::NodeHeartbeatBody>()?;
            Some(format!("{{ sent: {}, view: {} }}", body.sent, body.view))
        }
        S::NodeSuspectReport => cold!(agreement::NodeSuspectReport),
        S::FailPrepareRequest => {
            let agreement::FailPrepareRequest { round, view, failed } = cold::read(frame)?;
            Some(format!("{{ round: {round}, view: {}, failed: {failed:?} }}", view.number()))
        }
        S::FailPrepareConfirm => cold!(agreement::FailPrepareConfirm),
        S::FailPrepareRefuse => {
            let agreement::FailPrepareRefuse { round, view } = cold::read(frame)?;
            Some(format!("{{ round: {round}, view: {} }}", view.number()))
        }
        S::ViewChangeRequest => cold!(agreement::ViewChangeRequest),
        S::ViewChangeConfirm => cold!(agreement::ViewChangeConfirm),
        S::ViewChangeRefuse => cold!(agreement::ViewChangeRefuse),
        S::ViewPrepareRequest => {
            let agreement::ViewPrepareRequest { attempt, change, view } = cold::read(frame)?;
            Some(format!("{{ attempt: {attempt}, change: {change}, view: {} }}", describe_view(&view)))
        }
        S::ViewPrepareConfirm | S::ViewPrepareRefuse | S::ViewCancelOrder | S::ViewCancelConfirm => {
            cold!(agreement::ViewAttempt)
        }
        S::LinkOpenedReport | S::LinkClosedReport | S::LinkCloseOrder => cold!(agreement::LinkBody),
        S::LeaseOrder => {
            let (body, _) = frame.head::<agreement::LeaseOrder>()?;
            Some(format!("{{ until: {} }}", body.until))
        }
        S::ArbitrationRequest => cold!(agreement::ArbitrationRequest),
        S::ArbitrationConfirm => cold!(agreement::ArbitrationConfirm),
        S::ArbitrationRefuse => cold!(agreement::ArbitrationRefuse),
        S::KeyChallengeRequest => cold!(key::KeyChallengeRequest),
        S::KeyChallengeConfirm => cold!(key::KeyChallengeConfirm),
        S::KeyProofOrder => cold!(key::KeyProofOrder),
        S::ConfigurationRequest => cold!(configuration::ConfigurationRequest),
        S::ConfigurationConfirm => cold!(configuration::ConfigurationConfirm),
        S::ClusterLogReport => cold!(configuration::ClusterLogReport),
        S::ClusterLogTakenReport => cold!(configuration::ClusterLogTakenReport),
        S::ClusterLogRequest => cold!(configuration::ClusterLogRequest),
        S::ClusterLogConfirm => cold!(configuration::ClusterLogConfirm),
        S::ArbitratorHelloRequest | S::ArbitratorHelloConfirm => cold!(arbitration::ArbitratorHello),
        S::ArbitrationBeginRequest => cold!(arbitration::ArbitrationBeginRequest),
        S::ArbitrationBeginConfirm => cold!(arbitration::ArbitrationBeginConfirm),
        S::ArbitrationBeginRefuse => cold!(arbitration::ArbitrationBeginRefuse),
        S::TicketPrepareRequest | S::TicketOrder => cold!(agreement::TicketBody),
        S::TicketPrepareConfirm | S::TicketPrepareRefuse => cold!(agreement::TicketAnswer),
        S::ArbitratorCheckRequest => cold!(arbitration::ArbitratorCheckRequest),
        S::ArbitratorCheckConfirm => cold!(arbitration::ArbitratorCheckConfirm),
        S::ArbitratorCheckRefuse | S::ArbitratorChooseRefuse => cold!(arbitration::NoArbitrator),
        S::ArbitratorChooseRequest => cold!(arbitration::ArbitratorChooseRequest),
        S::ArbitratorChooseConfirm => cold!(arbitration::ArbitratorChooseConfirm),
        S::ArbitratorTakeRequest => cold!(arbitration::ArbitratorTakeRequest),
        S::ArbitratorTakeConfirm => cold!(arbitration::ArbitratorTakeConfirm),
        S::ArbitratorTakeRefuse => cold!(arbitration::ArbitratorTakeRefuse),
        S::EpochClosedReport => {
            let (body, _) = frame.head::<epoch::EpochClosedReport>()?;
            Some(format!("{{ epoch: {}, changed: {} }}", body.epoch, body.changed))
        }
        S::RedoDrainRequest
        | S::RedoDrainConfirm
        | S::EpochClaimReport
        | S::DurabilityOrder
        | S::DurabilityRequest
        | S::DurabilityConfirm
        | S::EpochEndRequest
        | S::EpochEndConfirm
        | S::EpochClosedRequest
        | S::DurableEpochOrder
        | S::EpochLimitOrder => {
            let (body, _) = frame.head::<epoch::EpochBody>()?;
            Some(format!("{{ epoch: {} }}", body.epoch))
        }
        S::LogRoomReport | S::LogRoomOrder => {
            let (body, _) = frame.head::<epoch::LogRoomBody>()?;
            Some(format!("{{ room: {:?}, has_records: {} }}", body.room()?, body.has_records))
        }
        S::EpochClosedConfirm => {
            let (body, _) = frame.head::<backup::EpochClosedConfirm>()?;
            Some(format!("{{ epoch: {}, current: {} }}", body.epoch, body.current))
        }
        S::BackupOpenRequest => cold!(backup::BackupOpenRequest),
        S::BackupOpenConfirm => cold!(backup::BackupOpenConfirm),
        S::BackupNextRequest => {
            let (body, _) = frame.head::<backup::BackupNextBody>()?;
            Some(format!("{{ request: {}, until: {} }}", body.request, body.until))
        }
        S::BackupNextConfirm => {
            let (body, _) = frame.head::<backup::BackupBatchHead>()?;
            let backup::BackupBatchHead { request, flags, epoch, row_bytes, change_bytes } = body;
            Some(format!(
                "{{ request: {request}, flags: {flags}, epoch: {epoch}, rows: {row_bytes} bytes, changes: {change_bytes} bytes }}"
            ))
        }
        S::CopyRowsRequest => {
            let (body, _) = frame.head::<copying::CopyRowsHead>()?;
            let copying::CopyRowsHead { batch, birth, table, first, end, count, .. } = body;
            let copying::CopyBatch { copy, batch } = batch;
            Some(format!(
                "{{ copy: {copy}, batch: {batch}, table: {table}, birth: {birth}, rows: {count} of {first}..{end} }}"
            ))
        }
        S::CopyMarkersRequest => {
            let (body, _) = frame.head::<copying::CopyMarkersHead>()?;
            let copying::CopyMarkersHead { batch, count, flags, epoch } = body;
            let copying::CopyBatch { copy, batch } = batch;
            Some(format!(
                "{{ copy: {copy}, batch: {batch}, markers: {count}, flags: {flags}, epoch: {epoch} }}"
            ))
        }
        S::CopyConfirm => {
            let (copying::CopyBatch { copy, batch }, _) = frame.head()?;
            Some(format!("{{ copy: {copy}, batch: {batch} }}"))
        }
        S::MarkersCopiedRequest => {
            let (head, _) = frame.head::<copying::MarkersCopiedHead>()?;
            let copying::MarkersCopiedHead { coordinator, request, count } = *head;
            let coordinator = coordinator.name();
            Some(format!("{{ coordinator: {coordinator:?}, request: {request}, markers: {count} }}"))
        }
        S::MarkersCopiedConfirm => {
            let (request, _) = frame.head::<vinga_wire::U32>()?;
            Some(format!("{{ request: {request} }}"))
        }
        S::JoiningReport => cold!(restart::JoiningReport),
        S::SchemaHoldRequest | S::SchemaHoldConfirm | S::SchemaReleaseOrder => cold!(restart::SchemaHold),
        S::DefinitionsRequest => cold!(restart::DefinitionsRequest),
        S::DefinitionsConfirm => cold!(restart::DefinitionsConfirm),
        S::SessionsOrder => cold!(restart::SessionsOrder),
        S::StepDoneReport => cold!(restart::StepDoneReport),
        S::CopyingReport => cold!(restart::CopyingReport),
        S::NewcomerProgressReport => cold!(restart::NewcomerProgress),
        S::NewcomerReport => cold!(restart::NewcomerReport),
        S::ThreadsRequest | S::ThreadsConfirm | S::TurnRequest | S::TurnConfirm => {
            cold!(restart::ThreadsBody)
        }
        S::ClientsRequest | S::ClientsConfirm => cold!(restart::ClientsBody),
        S::LeaveRequest | S::LeaveRefuse | S::LeaveConfirm => cold!(restart::LeaveBody),
        S::LeaveReport => cold!(restart::LeaveReport),
        S::DrainRequest | S::DrainConfirm => cold!(restart::DrainBody),
        S::PartitionSizeRequest | S::PlaceConfirm => cold!(restart::PlaceBody),
        S::PartitionSizeConfirm | S::PlaceRequest => cold!(restart::PartitionSize),
        S::PlaceRefuse => cold!(restart::PlaceRefuse),
        S::ReorganizeRequest => cold!(restart::ReorganizeRequest),
        S::ReorganizeConfirm => cold!(restart::ReorganizeConfirm),
        S::HandOverRequest
        | S::HandOverConfirm
        | S::HandOverRefuse
        | S::HandOverReleaseOrder
        | S::HandOverFlushRequest
        | S::HandOverFlushConfirm => {
            cold!(restart::HandOverBody)
        }
        S::RedoAppendOrder | S::RedoReplayRequest => {
            let (body, _) = frame.head::<redo::BatchHead>()?;
            Some(format!("{{ batch: {}, bytes: {} }}", body.batch, body.bytes))
        }
        S::RedoCreditRequest | S::RedoCreditConfirm | S::RedoCreditReturnConfirm => {
            let (body, _) = frame.head::<redo::CreditBody>()?;
            Some(format!("{{ bytes: {}, shortage: {} }}", body.bytes, body.shortage))
        }
        S::RedoTrimOrder | S::RedoReplayConfirm => {
            let (body, _) = frame.head::<redo::BatchBody>()?;
            Some(format!("{{ batch: {} }}", body.batch))
        }
        S::CheckpointQuotaOrder => {
            let (body, _) = frame.head::<checkpoint::QuotaBody>()?;
            Some(format!("{{ bytes: {} }}", body.bytes))
        }
        S::CheckpointReport => {
            let (body, _) = frame.head::<checkpoint::ReportBody>()?;
            Some(format!("{{ state: {}, bytes: {}, epoch: {} }}", body.state, body.bytes, body.epoch))
        }
        S::CheckpointWritersReport => {
            let (body, _) = frame.head::<checkpoint::WritersBody>()?;
            Some(format!("{{ data_managers: {} }}", body.data_managers))
        }
        S::StartRequest => cold::read::<start::StartRequest>(frame).map(|body| format!("{body:?}")),
        S::StartConfirm => cold::read::<start::StartConfirm>(frame).map(|body| format!("{body:?}")),
        S::StartRefuse => cold::read::<start::StartRefuse>(frame).map(|body| format!("{body:?}")),
        S::StartPartReport => {
            cold::read::<start::StartPartReport>(frame).map(|body| fields(format!("{body:?}")))
        }
        S::StartProgressReport => {
            cold::read::<start::StartProgressReport>(frame).map(|body| format!("{body:?}"))
        }
        S::DefinitionsReport => {
            cold::read::<start::DefinitionsExtent>(frame).map(|body| fields(format!("{body:?}")))
        }
        S::FileConfirm => {
            let (body, _) = frame.head::<file::FileConfirm>()?;
            Some(format!("{{ token: {} }}", body.token))
        }
        S::FileRefuse => cold::read::<file::FileRefuse>(frame).map(|body| format!("{body:?}")),
        S::NodeStartedOrder => {
            cold::read::<start::NodeStartedOrder>(frame).map(|body| fields(format!("{body:?}")))
        }
        S::StopNodeOrder => cold::read::<file::StopNodeOrder>(frame).map(|body| format!("{body:?}")),
        S::CloseConnectionOrder => {
            let (body, _) = frame.head::<membership::CloseConnectionOrder>()?;
            Some(format!("{{ api: {}, reason: {}, signal: {} }}", body.api, body.reason, body.signal))
        }
        S::ApiDisconnectOrder | S::ApiUnwantedReport => {
            let (body, _) = frame.head::<membership::CloseSessionOrder>()?;
            let membership::CloseConnectionOrder { api, reason, signal, .. } = body.order;
            let incarnation = body.incarnation;
            Some(format!("{{ api: {api}, incarnation: {incarnation}, reason: {reason}, signal: {signal} }}"))
        }
        S::EpochOrder => {
            let (body, _) = frame.head::<epoch::EpochOrder>()?;
            Some(format!("{{ epoch: {} }}", body.epoch))
        }
        S::CreateTableRequest => cold!(dictionary::CreateTableRequest),
        S::DropTableRequest | S::DescribeTableRequest => cold!(dictionary::NamedTableRequest),
        S::CreateTableConfirm | S::DescribeTableConfirm => cold!(dictionary::TableConfirm),
        S::DropTableConfirm => cold!(dictionary::DropTableConfirm),
        S::HelloRefuse
        | S::NodeHelloRefuse
        | S::ArbitratorHelloRefuse
        | S::ConfigurationRefuse
        | S::ClusterLogRefuse
        | S::KeyChallengeRefuse
        | S::CreateTableRefuse
        | S::DropTableRefuse
        | S::DescribeTableRefuse
        | S::ListTablesRefuse
        | S::SchemaChangeRefuse
        | S::SchemaLockRefuse
        | S::SchemaUnlockRefuse
        | S::SchemaEventsRefuse
        | S::DescribeDatabaseRefuse
        | S::BackupOpenRefuse
        | S::BackupNextRefuse
        | S::ListDatabasesRefuse
        | S::InfoRefuse
        | S::ParameterSetRefuse
        | S::ShutdownRefuse
        | S::ReorganizeRefuse
        | S::ShutdownPermitRefuse => {
            cold!(handshake::Refusal)
        }
        S::ListTablesRequest => cold!(dictionary::ListTablesRequest),
        S::ListTablesConfirm => cold!(dictionary::ListTablesConfirm),
        S::SchemaChangeRequest => cold!(schema::SchemaChangeRequest),
        S::SchemaChangeConfirm => cold!(schema::SchemaChangeConfirm),
        S::DescribeDatabaseRequest => cold!(schema::DescribeDatabaseRequest),
        S::DescribeDatabaseConfirm => cold!(schema::DescribeDatabaseConfirm),
        S::ListDatabasesRequest => cold!(schema::ListDatabasesRequest),
        S::ListDatabasesConfirm => cold!(schema::ListDatabasesConfirm),
        S::SchemaLockRequest => cold!(schema::SchemaLockRequest),
        S::SchemaLockConfirm | S::SchemaUnlockRequest | S::SchemaUnlockConfirm => {
            cold!(schema::SchemaLockBody)
        }
        S::SchemaEventsRequest => cold!(schema::SchemaEventsRequest),
        S::SchemaEventsConfirm => cold!(schema::SchemaEventsConfirm),
        S::SchemaEventReport => cold!(schema::SchemaEvent),
        S::SchemaEventsSeenOrder => cold!(schema::SchemaEventsSeenOrder),
        S::SchemaRoundRequest => cold!(schema_round::SchemaRoundRequest),
        S::SchemaRoundConfirm => cold!(schema_round::SchemaRoundConfirm),
        S::SchemaRoundRefuse => cold!(schema_round::SchemaRoundRefuse),
        S::SchemaStateRequest => cold!(schema_round::SchemaStateRequest),
        S::SchemaStateConfirm => cold!(schema_round::SchemaStateConfirm),
        S::InfoRequest => cold!(info::InfoRequest),
        S::InfoConfirm => cold!(info::InfoConfirm),
        S::ParameterSetRequest => cold!(parameter::ParameterSetRequest),
        S::ParameterSetConfirm => cold!(parameter::ParameterSetConfirm),
        S::ParameterOrder => cold!(ParameterChange),
        S::ShutdownRequest => cold!(shutdown::ShutdownRequest),
        S::ShutdownConfirm => cold!(shutdown::ShutdownConfirm),
        S::ShutdownOrder => cold!(shutdown::ShutdownOrder),
        S::ShutdownPermitRequest => cold!(shutdown::ShutdownPermitRequest),
        S::ShutdownPermitConfirm | S::ShutdownPermitReturnOrder => cold!(shutdown::ShutdownPermitBody),
        S::ShutdownCheckRequest => cold!(shutdown::ShutdownCheck),
        // Timers and bodies with sections of row data are described by their length.
        S::BackupCloseOrder
        | S::KeyReadRequest
        | S::KeyReadConfirm
        | S::KeyReadRefuse
        | S::TransactionRequest
        | S::TransactionConfirm
        | S::TransactionRefuse
        | S::TransactionRowReport
        | S::OutcomeRequest
        | S::OutcomeConfirm
        | S::OutcomesSeenOrder
        | S::PrepareRequest
        | S::PrepareConfirm
        | S::PrepareRefuse
        | S::PrepareMovedReport
        | S::CommitRequest
        | S::CommitConfirm
        | S::AbortRequest
        | S::AbortConfirm
        | S::CompleteOrder
        | S::MarkersDropOrder
        | S::InDoubtRequest
        | S::InDoubtConfirm
        | S::CompleteRequest
        | S::CompleteConfirm
        | S::TakeOverOrder
        | S::TakeOverReport
        | S::TakeOverDoneReport
        | S::OutcomesReleasedOrder
        | S::InheritedOutcomeRequest
        | S::DeadlockProbeOrder
        | S::DeadlockOrder
        | S::ScanOpenRequest
        | S::ScanNextRequest
        | S::ScanCloseOrder
        | S::ScanConfirm
        | S::ScanRefuse
        | S::RangeScanOpenRequest
        | S::IndexStatisticsRequest
        | S::IndexStatisticsConfirm
        | S::IndexStatisticsRefuse
        | S::SchemaEventsStopOrder
        | S::RedoCreditReturnRequest
        | S::NodeStopRequest
        | S::NodeStopConfirm
        | S::NodeEndedReport
        | S::ShutdownCheckConfirm
        | S::ShutdownCheckRefuse
        | S::LeaveOrder
        | S::CheckpointOrder
        | S::ApiNodesRequest
        | S::TimerReport => None,
    }
}

/// A view in few words: its number and who is a member.
fn describe_view(view: &ClusterView) -> String {
    let members: Vec<String> =
        view.members().iter().map(|m| format!("{} (incarnation {})", m.node, m.incarnation)).collect();
    format!("{{ view: {}, members: {} }}", view.number(), members.join(", "))
}

/// A struct's `Debug` form without its name: the signal's name is enough.
fn fields(debug: String) -> String {
    match debug.find('{') {
        Some(at) => String::from(&debug[at..]),
        None => debug,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_base::Incarnation;
    use vinga_wire::view::Member;

    const DISTRIBUTION: Address = Address::new(NodeId(1), BlockNumber::Distribution, 0);
    const DRIVER: Address = Address::new(NodeId(1), BlockNumber::Driver, 2);
    const API: Address = Address::new(NodeId(200), BlockNumber::Api, 0);

    /// Answers a heartbeat at once, and a second time a little later.
    struct Echo;

    impl Block for Echo {
        fn start(&mut self, cx: &mut Context<'_>) {
            cx.send_after(Span::from_millis(5), 0);
        }

        fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
            let to = if frame.signal() == Some(SignalNumber::TimerReport) { DRIVER } else { frame.sender() };
            let body = membership::HeartbeatBody { epoch: 3.into(), view: cx.view().number().0.into() };
            cx.frame(SignalNumber::HeartbeatConfirm, to).put(&body);
            cx.mark("echoed");
        }
    }

    fn view() -> ClusterView {
        let member = |node| Member::started(NodeId(node), Incarnation(1), 0, 1, 1);
        ClusterView::first([1, 2].map(member).to_vec())
    }

    #[test]
    fn lines_stand_in_order() {
        let mut harness = Harness::new(DISTRIBUTION, 1, view(), Echo);
        harness.heading("two echoes");
        assert!(harness.send(API, SignalNumber::EpochOrder, |_| ()).is_err());
        assert!(!harness.has_met("echoed"));
        harness
            .send(DRIVER, SignalNumber::ApiFailedOrder, |writer| {
                writer.put(&membership::ApiNodeBody::new(NodeId(200), Incarnation(7)));
            })
            .unwrap();
        harness.advance(Span::from_millis(7));
        let sent = harness.take_sent();
        assert_eq!((sent[1].signal(), sent[1].receiver()), (SignalNumber::HeartbeatConfirm, DRIVER));
        harness.lose_node(NodeId(2));
        assert_eq!(
            harness.scenario(),
            "# two echoes\n\
             at 0 ms\n\
             200/Api/0 sends EpochOrder (0 bytes)\n\
             1/Driver/2 sends ApiFailedOrder { api: 200, incarnation: 7 }\n    \
             1/Driver/2 receives HeartbeatConfirm { epoch: 3, view: 1 }\n\
             at 5 ms\n    \
             1/Driver/2 receives HeartbeatConfirm { epoch: 3, view: 1 }\n\
             at 7 ms\n\
             1/Driver/0 sends ViewChangedOrder { view: 2, members: 1 (incarnation 1) }\n"
        );
        assert_eq!(harness.now(), Tick(7000));
    }
}
