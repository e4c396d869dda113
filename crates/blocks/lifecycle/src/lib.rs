//! The start of a data node, phase by phase, its stop in order, and its system file.
//!
//! A node without a disk has nothing to restore: it is started at once. One with files goes through the phases of
//! `docs/protocols/durability.md`; in each of them all blocks that take part are asked, and only when all have answered
//! does the next one begin. A block that can't do its part with these files refuses, and the node stops with the
//! reason.
//!
//! ```text
//!   initial start:   MakeFiles ─▶ (system file) ─▶ OpenLog ─▶ Begin ─▶ started
//!   system restart:  ScanLog ─▶ RestoreDefinitions ─▶ LoadCheckpoint ─▶ ReplayLog ─▶ EndRestore
//!                    ─▶ (system file) ─▶ OpenLog ─▶ Begin ─▶ started
//! ```
//! The system file is written in both copies before anything of the new incarnation is, the rewriting of the
//! definitions included. Until then a start changes nothing that the next one needs.
//!
//! A *trial* ends there: everything was restored, nothing is written, and nobody begins. It is how `vinga inspect`
//! finds out whether a start from these files would work, as a start decides that.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod phase_zero;
mod phases;
mod stop;
mod system_file;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
pub use phases::Phase;
use stop::Stop;
use system_file::{SystemFile, Task};
use vinga_base::{Amount, Epoch, Millis, Pace, Seconds};
use vinga_format::checksum::Checksum;
use vinga_format::schema::SchemaExtent;
use vinga_format::system::{ClusterIncarnation, EndedIncarnation, LogIncarnation, SystemState};
use vinga_kernel::{Block, Context, InjectedBug, LogLevel, Scrutiny, Span, Tick};
use vinga_wire::epoch::{EpochBody, EpochOrder, LogRoom};
use vinga_wire::file::{FileConfirm, FileRefuse};
use vinga_wire::start::{
    self, DefinitionsExtent, NodeStartedOrder, PhaseTime, Restored, RestoredFrom, StartConfirm, StartKind,
    StartPartReport, StartProgressReport, StartRefuse, StartRequest, StartResult, StartTask,
};
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, cold};

/// What a node starts from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The content of the system file and the number of its next write; `None`: nothing is kept on disk.
    pub disk: Option<Disk>,
}

/// What a node with a disk starts from.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The content of the system file; of a node that has never started, what is to be written to it.
    pub state: SystemState,
    /// The number of its next write; 0 at an initial start.
    pub next_write: u64,
    /// A random number for the new incarnation of the cluster.
    pub cluster_incarnation: u64,
    /// How many epochs are reserved in the system file at a time; see [`EPOCH_RESERVE`].
    pub epoch_reserve: u64,
    /// How checksums are computed.
    pub checksum: Checksum,
    /// The time of day at the start, in milliseconds since 1970. For people only.
    pub time_of_day: u64,
    /// The start ends when everything is restored, before anything is written. Never of an initial start, which would
    /// have nothing to restore.
    pub is_trial: bool,
}

/// Epochs that are reserved at a time: the shortest ones there are use up half of them in two hours, so that nobody
/// waits until the disk allows more, and 48 bits last for some ten million starts.
pub const EPOCH_RESERVE: u64 = 1 << 24;

/// Earlier incarnations of the cluster that the system file lists: a node with files of one before them has another
/// future for all that is known.
const EARLIER_MAX: usize = 4096;

/// How often it is reported, and how often logged, how far a phase is, if that is known.
const REPORT_AGAIN: Span = Span::from_millis(500);
const LOG_AGAIN: Span = Span::from_millis(2000);

/// The lifecycle block.
pub struct Lifecycle {
    phase: Phase,
    file: Option<SystemFile>,
    cluster_incarnation: u64,
    is_trial: bool,
    /// Counts requests; answers to earlier ones don't count.
    step: u32,
    /// Blocks that were asked in the present phase.
    asked: u32,
    awaited: BTreeSet<Address>,
    /// The least of the epochs that the streams which have answered reach.
    reached: Option<Epoch>,
    /// The restore point, and the greatest epoch that was met anywhere.
    restored: Epoch,
    greatest: Epoch,
    /// The first epoch of the new incarnation.
    first: Epoch,
    /// How far the definitions reach, as the dictionary has reported.
    definitions: SchemaExtent,
    /// By data manager: which checkpoint it has loaded, and from which batch on the log is needed.
    from: Vec<RestoredFrom>,
    /// Rows of checkpoints, and all rows at the end.
    loaded: u64,
    rows: u64,
    replayed: u64,
    /// Checkpoints that don't count, and why: they explain what is missing later.
    rejected: Vec<String>,
    /// Checkpoints that were being written when the node stopped.
    unfinished: Vec<String>,
    /// Log incarnations of which something is left: in a stream, or in a checkpoint that counts.
    needed_incarnations: BTreeSet<u32>,
    since: Tick,
    /// When the present phase began, and how long those before it took.
    entered: Tick,
    times: Vec<(Phase, Span)>,
    kind: StartKind,
    /// What the blocks have brought in the present phase, or the last one in which they bring something.
    parts: BTreeMap<Address, Amount>,
    pace: Pace,
    /// Bytes that were brought in phases that have ended.
    brought: u64,
    /// When progress was reported and logged last.
    reported: Tick,
    logged: Tick,
    /// When the node was started.
    ended: Option<Tick>,
    /// The current epoch, as far as it was announced.
    epoch: Epoch,
    /// The node is to stop in order.
    stop: Option<Stop>,
    /// Whether the log has room for the ends of epochs.
    log_room: LogRoom,
}

impl Lifecycle {
    /// Before anything is done.
    pub fn new(settings: Settings) -> Self {
        let is_initial = settings.disk.as_ref().is_some_and(|disk| disk.next_write == 0);
        let is_trial = settings.disk.as_ref().is_some_and(|disk| disk.is_trial);
        assert!(!(is_trial && is_initial), "a first start has nothing to try");
        let (file, cluster_incarnation) = match settings.disk {
            Some(disk) => {
                let cluster_incarnation = disk.cluster_incarnation;
                (Some(SystemFile::new(disk)), cluster_incarnation)
            }
            None => (None, 0),
        };
        let phase = match (&file, is_initial) {
            (None, _) => Phase::Started,
            (Some(_), true) => Phase::MakingFiles,
            (Some(_), false) => Phase::ScanningLog,
        };
        Lifecycle {
            phase,
            file,
            cluster_incarnation,
            is_trial,
            step: 0,
            asked: 0,
            awaited: BTreeSet::new(),
            reached: None,
            restored: Epoch(0),
            greatest: Epoch(0),
            first: Epoch(0),
            definitions: SchemaExtent::default(),
            from: Vec::new(),
            loaded: 0,
            rows: 0,
            replayed: 0,
            rejected: Vec::new(),
            unfinished: Vec::new(),
            needed_incarnations: BTreeSet::new(),
            since: Tick(0),
            entered: Tick(0),
            times: Vec::new(),
            kind: if is_initial { StartKind::First } else { StartKind::Recovery },
            parts: BTreeMap::new(),
            pace: Pace::default(),
            brought: 0,
            reported: Tick(0),
            logged: Tick(0),
            ended: None,
            epoch: Epoch(0),
            stop: None,
            log_room: LogRoom::Enough,
        }
    }

    /// How far the start has come.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The restore point: the epoch up to which everything was restored. 0 before it is known, and if there was
    /// nothing.
    pub fn restored(&self) -> Epoch {
        self.restored
    }

    fn state(&self) -> &SystemState {
        self.file.as_ref().expect("a node with a disk has a system file").state()
    }

    fn log_incarnations(&self) -> Vec<start::LogIncarnation> {
        let listed = self.state().log_incarnations.iter();
        listed.map(|one| start::LogIncarnation { number: one.number, last_valid: one.last_epoch }).collect()
    }

    /// The present phase ends: how long it took.
    fn note_time(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        if self.step > 0 {
            let span = now.since(self.entered);
            self.times.push((self.phase, span));
            let (work, time) = (self.phase.work(), Millis(span.0));
            if self.phase.brings() {
                let amount = self.amount();
                self.brought += amount.bytes;
                cx.log(LogLevel::Info, format_args!("{work} in {time}: {amount}"));
            } else {
                cx.log(LogLevel::Info, format_args!("{work} in {time}"));
            }
        }
        self.entered = now;
    }

    fn amount(&self) -> Amount {
        if self.phase == Phase::Started {
            let (rows, bytes) = (self.rows, self.brought);
            return Amount { rows, rows_all: rows, bytes, bytes_all: bytes };
        }
        let sum: Amount = self.parts.values().copied().sum();
        // How much there is in all is known when each block that is not done has said it.
        let is_known = self.awaited.iter().all(|block| self.parts.contains_key(block));
        if is_known { sum } else { Amount { rows_all: 0, bytes_all: 0, ..sum } }
    }

    /// When the start has begun, and how far it is or how it went.
    pub fn progress(&self, now: Tick) -> (Tick, StartProgressReport) {
        let amount = self.amount();
        let finished =
            self.times.iter().map(|(phase, span)| PhaseTime { work: phase.work().into(), micros: span.0 });
        let report = StartProgressReport {
            asked: self.asked,
            awaited: self.awaited.len() as u32,
            rows: self.loaded,
            batches: self.replayed,
            epoch: self.restored.0,
            finished: finished.collect(),
            amount,
            left: if self.phase.brings() && amount.bytes_all > 0 {
                self.pace.time_for(amount.bytes_left())
            } else {
                None
            },
            elapsed: self.ended.unwrap_or(now).since(self.since).0,
            ..StartProgressReport::new(self.kind, self.phase.work())
        };
        (self.since, report)
    }

    /// Begins a phase: asks everybody who takes part.
    fn enter(&mut self, cx: &mut Context<'_>, phase: Phase) {
        self.note_time(cx);
        self.phase = phase;
        if phase.brings() {
            self.parts.clear();
            self.pace = Pace::default();
            self.pace.note(cx.now().0, 0);
            self.logged = cx.now();
        }
        self.asked = 0;
        let epoch = self.restored;
        let task = match phase {
            Phase::MakingFiles => StartTask::MakeFiles,
            Phase::ScanningLog => StartTask::ScanLog {
                incarnations: self.log_incarnations(),
                durable: self.state().durable_epoch,
            },
            Phase::RestoringDefinitions => {
                let SchemaExtent { generation, blocks } = self.state().definitions;
                let known = DefinitionsExtent { generation, blocks };
                StartTask::RestoreDefinitions { epoch, known }
            }
            Phase::LoadingCheckpoints => {
                let mut incarnations = self.log_incarnations();
                if let Some(last) = incarnations.last_mut() {
                    last.last_valid = Some(epoch);
                }
                StartTask::LoadCheckpoint { epoch, incarnations }
            }
            Phase::ReplayingLog => {
                let from = self.from.iter().map(|one| (one.data_manager, one.batch)).collect();
                StartTask::ReplayLog { epoch, from }
            }
            Phase::EndingRestore => StartTask::EndRestore,
            Phase::OpeningLog => StartTask::OpenLog { incarnation: self.incarnation() },
            Phase::Beginning => StartTask::Begin {
                epoch: self.first,
                limit: self.state().epoch_limit,
                durable: epoch,
                incarnation: self.incarnation(),
            },
            Phase::WritingSystemFile => {
                self.report_progress(cx);
                return self.write_system_file(cx);
            }
            Phase::Started => {
                self.ended = Some(cx.now());
                self.report_progress(cx);
                return self.report_started(cx);
            }
            Phase::Refused => return,
        };
        let blocks: &[BlockNumber] = match phase {
            Phase::MakingFiles | Phase::OpeningLog => &[BlockNumber::Redo, BlockNumber::Dictionary],
            Phase::ScanningLog | Phase::ReplayingLog => &[BlockNumber::Redo],
            Phase::RestoringDefinitions => &[BlockNumber::Dictionary],
            Phase::LoadingCheckpoints | Phase::EndingRestore => &[BlockNumber::DataManager],
            _ => &[
                BlockNumber::DataManager,
                BlockNumber::Coordinator,
                BlockNumber::Distribution,
                BlockNumber::Dictionary,
            ],
        };
        let node = cx.own().node();
        let own = cx.view().addresses(BlockNumber::Membership).find(|address| address.node() == node);
        assert!(own.is_some(), "the node is in its view");
        self.awaited = blocks
            .iter()
            .flat_map(|&block| cx.view().addresses(block))
            .filter(|address| address.node() == node)
            .collect();
        self.asked = self.awaited.len() as u32;
        self.report_progress(cx);
        self.step += 1;
        let request = StartRequest { step: self.step, task };
        for &block in &self.awaited {
            cold::write(&mut cx.frame(SignalNumber::StartRequest, block), &request);
        }
    }

    /// Reports how far the start is, on a node that has one.
    fn report_progress(&mut self, cx: &mut Context<'_>) {
        if self.file.is_none() {
            return;
        }
        self.reported = cx.now();
        let (_, report) = self.progress(cx.now());
        let driver = cx.driver();
        cold::write(&mut cx.frame(SignalNumber::StartProgressReport, driver), &report);
    }

    /// A block says how much of its part is done.
    fn on_start_part_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let StartPartReport { step, amount } = cold::read(frame)?;
        if step != self.step || !self.awaited.contains(&frame.sender()) {
            return Some(());
        }
        self.parts.insert(frame.sender(), amount);
        let now = cx.now();
        if now.since(self.reported) < REPORT_AGAIN {
            return Some(());
        }
        self.pace.note(now.0, self.amount().bytes);
        self.report_progress(cx);
        if now.since(self.logged) >= LOG_AGAIN {
            self.logged = now;
            let (_, StartProgressReport { phase, amount, left, .. }) = self.progress(now);
            match left {
                Some(left) => {
                    cx.log(LogLevel::Info, format_args!("{phase}: {amount}, {} left", Seconds(left)));
                }
                None => cx.log(LogLevel::Info, format_args!("{phase}: {amount}")),
            }
        }
        Some(())
    }

    fn next_phase(&self) -> Phase {
        match self.phase {
            Phase::EndingRestore if self.is_trial => Phase::Started,
            Phase::MakingFiles | Phase::EndingRestore => Phase::WritingSystemFile,
            Phase::ScanningLog => Phase::RestoringDefinitions,
            Phase::RestoringDefinitions => Phase::LoadingCheckpoints,
            Phase::LoadingCheckpoints => Phase::ReplayingLog,
            Phase::ReplayingLog => Phase::EndingRestore,
            Phase::WritingSystemFile => Phase::OpeningLog,
            Phase::OpeningLog => Phase::Beginning,
            Phase::Beginning => Phase::Started,
            Phase::Started | Phase::Refused => unreachable!("nothing follows"),
        }
    }

    /// The present incarnation of the log.
    fn incarnation(&self) -> u32 {
        self.state().log_incarnations.last().map_or(0, |last| last.number)
    }

    /// A new incarnation of log and cluster begins, from the restore point on.
    fn write_system_file(&mut self, cx: &mut Context<'_>) {
        let (restored, id) = (self.restored, self.cluster_incarnation);
        let given_out = if cx.has_bug(InjectedBug::EpochLimitIgnored) {
            self.greatest
        } else {
            self.state().epoch_limit.max(self.greatest)
        };
        self.first = Epoch(given_out.0 + 1);
        let (first, definitions) = (self.first, self.definitions);
        let node = cx.own().node();
        let streams = cx.view().addresses(BlockNumber::Redo).filter(|one| one.node() == node).count() as u16;
        let file = self.file.as_mut().expect("a node with a disk has a system file");
        let limit = Epoch(first.0 + file.epoch_reserve());
        let needed = core::mem::take(&mut self.needed_incarnations);
        file.write_both(cx, |state| {
            if let Some(last) = state.log_incarnations.last_mut() {
                last.last_epoch = Some(restored);
            }
            let number = state.log_incarnations.last().map_or(1, |last| last.number + 1);
            state.log_incarnations.retain(|one| needed.contains(&one.number));
            state.log_incarnations.push(LogIncarnation { number, streams, last_epoch: None });
            if state.cluster_incarnation.number > 0 {
                let ended = state.cluster_incarnation;
                let excess = (state.earlier.len() + 1).saturating_sub(EARLIER_MAX);
                state.earlier.drain(..excess);
                state.earlier.push(EndedIncarnation { incarnation: ended, last_epoch: restored });
            }
            let number = state.cluster_incarnation.number + 1;
            state.cluster_incarnation = ClusterIncarnation { number, id };
            state.durable_epoch = restored;
            state.own_epoch = restored;
            state.epoch_limit = limit;
            state.restorable = Vec::from([node]);
            state.is_clean = false;
            state.definitions = definitions;
        });
    }

    fn report_started(&mut self, cx: &mut Context<'_>) {
        let is_restart = self.file.is_some() && self.reached.is_some();
        let millis = cx.now().since(self.since).0 / 1000;
        let durable_at = self.file.as_ref().map_or(0, |file| file.state().durable_at);
        let restored =
            Restored { epoch: self.restored, rows: self.rows, batches: self.replayed, durable_at, millis };
        if is_restart {
            cx.log(
                LogLevel::Info,
                format_args!(
                    "restored {} rows up to epoch {} in {millis} ms: {} rows of checkpoints, {} batches of the log",
                    self.rows, self.restored, self.loaded, self.replayed
                ),
            );
            // A trial removes nothing.
            let removed = if self.is_trial { &[] } else { &self.unfinished[..] };
            for unfinished in removed {
                cx.log(
                    LogLevel::Info,
                    format_args!(
                        "the node stopped while a checkpoint was written, which was removed: {unfinished}"
                    ),
                );
            }
            for rejected in &self.rejected {
                cx.log(
                    LogLevel::Warning,
                    format_args!(
                        "a checkpoint does not count: {rejected}. Nothing is missing: all rows came from older checkpoints \
                         and the log"
                    ),
                );
            }
        } else if self.file.is_some() {
            cx.log(LogLevel::Info, format_args!("first start: the files were made in {millis} ms"));
        }
        let node = cx.own().node();
        let streams: Vec<Address> = cx.view().addresses(BlockNumber::Redo).collect();
        // Data managers are ready for checkpoints now: all of them have confirmed that they have begun. None has in a
        // trial.
        for stream in streams.into_iter().filter(|stream| stream.node() == node && !self.is_trial) {
            cx.frame(SignalNumber::NodeStartedOrder, stream);
        }
        let driver = cx.driver();
        let from = core::mem::take(&mut self.from);
        let order = NodeStartedOrder { restored: is_restart.then_some(restored), from };
        cold::write(&mut cx.frame(SignalNumber::NodeStartedOrder, driver), &order);
    }

    fn on_start_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let StartConfirm { step, result } = cold::read(frame)?;
        if step != self.step || !self.awaited.remove(&frame.sender()) {
            return Some(());
        }
        match result {
            StartResult::Done => {}
            StartResult::LogScanned { complete, greatest, incarnations } => {
                self.needed_incarnations.extend(incarnations);
                self.reached = Some(self.reached.map_or(complete, |reached| reached.min(complete)));
                self.greatest = self.greatest.max(greatest).max(complete);
            }
            StartResult::DefinitionsOnDisk { extent: DefinitionsExtent { generation, blocks }, greatest } => {
                self.definitions = SchemaExtent { generation, blocks };
                self.greatest = self.greatest.max(greatest);
                if self.phase == Phase::OpeningLog
                    && let Some(file) = &mut self.file
                {
                    file.note_definitions(cx, self.definitions);
                }
            }
            StartResult::CheckpointLoaded {
                files,
                batch,
                rows,
                greatest,
                rejected,
                unfinished,
                incarnations,
            } => {
                self.unfinished.extend(unfinished);
                self.needed_incarnations.extend(incarnations);
                let data_manager = frame.sender().instance();
                self.from.push(RestoredFrom { data_manager, files, rows, batch });
                self.loaded += rows;
                self.greatest = self.greatest.max(greatest);
                self.rejected.extend(rejected);
            }
            StartResult::LogReplayed { batches } => self.replayed += batches,
            StartResult::Restored { rows } => self.rows += rows,
        }
        if self.awaited.is_empty() {
            // Data managers answer in any order; what is reported of them has one.
            self.from.sort_unstable_by_key(|one| one.data_manager);
            self.rejected.sort_unstable();
            self.unfinished.sort_unstable();
            // The restore point is the newest epoch that all streams reach.
            self.restored = self.reached.unwrap_or_default();
            let next = self.next_phase();
            self.enter(cx, next);
        } else {
            self.report_progress(cx);
        }
        Some(())
    }

    fn on_start_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let StartRefuse { step, reason, error } = cold::read(frame)?;
        if step == self.step && self.phase != Phase::Refused {
            self.phase = Phase::Refused;
            if error == ErrorCode::FileFailed as u16 {
                cx.stop_node_for(
                    error,
                    format_args!(
                        "the node can't start (error {error}): {reason}. Look at the disk; if it has lost the file, restore \
                         all files of the node from a copy, or begin anew with --initial, which removes the database"
                    ),
                );
                return Some(());
            }
            if error != 0 {
                // The files are not to blame.
                cx.stop_node_for(
                    error,
                    format_args!(
                        "the node can't start (error {error}): {reason}. Nothing of the database is damaged or missing"
                    ),
                );
                return Some(());
            }
            let mut why = reason;
            for rejected in self.rejected.iter().chain(&self.unfinished) {
                why.push_str("; a checkpoint does not count: ");
                why.push_str(rejected);
            }
            cx.stop_node(format_args!(
                "the node can't start from its files: {why}. Keep a copy of them; restore what is missing or damaged, or \
                 begin anew with --initial, which removes the database"
            ));
        }
        Some(())
    }

    fn on_file_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (confirm, _) = frame.head::<FileConfirm>()?;
        let file = self.file.as_mut().expect("it has asked for the task");
        let limit_before = file.epoch_limit();
        let is_on_disk = file.on_done(cx, Task::from_token(confirm.token.get()));
        let limit = file.epoch_limit();
        if limit > limit_before && self.gives_out_epochs() {
            self.announce_limit(cx, limit);
        }
        if is_on_disk {
            if self.phase == Phase::WritingSystemFile {
                let next = self.next_phase();
                self.enter(cx, next);
            }
            self.finish_stop(cx);
        }
        Some(())
    }

    /// Whether the first epoch of this incarnation was given out.
    fn gives_out_epochs(&self) -> bool {
        matches!(self.phase, Phase::Beginning | Phase::Started)
    }

    /// Lets epochs up to this one be used.
    fn announce_limit(&self, cx: &mut Context<'_>, limit: Epoch) {
        let node = cx.own().node();
        let users: Vec<Address> = cx
            .view()
            .addresses(BlockNumber::Coordinator)
            .chain(cx.view().addresses(BlockNumber::Distribution))
            .filter(|address| address.node() == node)
            .collect();
        for user in users {
            cx.frame(SignalNumber::EpochLimitOrder, user).put(&EpochBody::new(limit));
        }
    }

    /// The cluster uses this epoch: before the limit in the system file is reached, it is raised there.
    fn on_epoch_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<EpochOrder>()?;
        self.epoch = self.epoch.max(Epoch(order.epoch.get()));
        if self.gives_out_epochs()
            && let Some(file) = &mut self.file
        {
            file.note_epoch(cx, self.epoch);
        }
        Some(())
    }

    fn on_file_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let refuse: FileRefuse = cold::read(frame)?;
        self.file.as_mut().expect("it has asked for the task").on_failed(cx, &refuse);
        Some(())
    }

    /// A schema change is on disk.
    fn on_definitions_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let DefinitionsExtent { generation, blocks } = cold::read(frame)?;
        if let Some(file) = &mut self.file {
            file.note_definitions(cx, SchemaExtent { generation, blocks });
        }
        Some(())
    }

    /// The system file has no other timer than the one for durable epochs.
    fn on_timer_report(&mut self, cx: &mut Context<'_>) -> Option<()> {
        self.file.as_mut()?.on_timer(cx);
        Some(())
    }

    fn on_durable_epoch_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<EpochBody>()?;
        if let Some(file) = &mut self.file {
            file.note_durable(cx, order.epoch());
        }
        Some(())
    }
}

impl Block for Lifecycle {
    /// Begins the first phase.
    fn start(&mut self, cx: &mut Context<'_>) {
        self.since = cx.now();
        if let Some(file) = &mut self.file {
            file.note_start(cx.now());
        }
        let first = self.phase;
        self.enter(cx, first);
    }

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        let handled = match frame.signal() {
            Some(SignalNumber::StartConfirm) => self.on_start_confirm(cx, frame),
            Some(SignalNumber::StartPartReport) => self.on_start_part_report(cx, frame),
            Some(SignalNumber::StartRefuse) => self.on_start_refuse(cx, frame),
            Some(SignalNumber::FileConfirm) => self.on_file_confirm(cx, frame),
            Some(SignalNumber::FileRefuse) => self.on_file_refuse(cx, frame),
            Some(SignalNumber::DefinitionsReport) => self.on_definitions_report(cx, frame),
            Some(SignalNumber::EpochOrder) => self.on_epoch_order(cx, frame),
            Some(SignalNumber::TimerReport) => self.on_timer_report(cx),
            Some(SignalNumber::DurableEpochOrder) => self.on_durable_epoch_order(cx, frame),
            Some(SignalNumber::NodeStopRequest) => self.on_node_stop_request(cx, frame),
            Some(SignalNumber::LogRoomOrder) => self.on_log_room_order(cx, frame),
            Some(SignalNumber::DurabilityConfirm) => self.on_durability_confirm(cx, frame),
            _ => return cx.reject(frame, ErrorCode::UnexpectedSignal),
        };
        if handled.is_none() {
            cx.reject(frame, ErrorCode::MalformedSignal);
        }
    }

    fn check_invariants(&self, _: Scrutiny) {
        assert!(self.awaited.is_empty() || self.phase != Phase::Started, "nobody is awaited after the start");
    }
}
