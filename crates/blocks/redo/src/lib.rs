//! The redo log of a data node: one stream for the data managers of a thread.
//!
//! Data managers send their records as batches (`RedoAppendOrder`), within the credit that they were given (`credit`).
//! The stream puts them into blocks (`writer`) in files that are used again and again (`segments`). When an epoch ends
//! it has everything of that epoch sent, writes an end record, flushes, and confirms. At a start it finds out how far
//! the log reaches (`scan`) and has the data managers apply it (`replay`). It decides when they make checkpoints, so
//! that it can forget old records, and how fast (`checkpoints`, `write_speed`).
//!
//! `docs/protocols/durability.md` describes the protocol, `docs/formats/redo.md` the files.
//!
//! A failed write or flush stops the node: nobody knows what is on the disk then.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod checkpoints;
mod credit;
mod end_of_epoch;
mod reader;
mod replay;
mod room_for_ends;
mod samples;
mod scan;
mod segments;
mod sizing;
mod start;
mod task;
mod write_speed;
mod writer;

pub use checkpoints::{CheckpointSettings, RoundStatistics};
pub use samples::{Sample, Written};
pub use sizing::{LastRound, Log, Place};
pub use write_speed::{Reason, Slowdowns, SpeedLimits};

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use checkpoints::Checkpoints;
use core::ops::Range;
use credit::{Credits, Room};
use end_of_epoch::Ending;
use room_for_ends::RoomForEnds;
use samples::Samples;
use segments::Segments;
use sizing::Fullness;
use start::Start;
use task::Task;
use vinga_base::{Epoch, LiveParameter, NodeId};
use vinga_format::block::Origin;
use vinga_format::checksum::Checksum;
use vinga_format::redo::Entry;
use vinga_kernel::files::FileData;
use vinga_kernel::{Block, Context, FailedWrites, InjectedBug, Scrutiny};
use vinga_wire::epoch::EpochBody;
use vinga_wire::file::{FileConfirm, FileErrorKind, FileRefuse};
use vinga_wire::redo::{BatchBody, BatchHead, CreditBody};
use vinga_wire::view::ViewChange;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U16, U64, cold};
use writer::Writer;

/// What a stream is configured with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node that it runs on.
    pub node: NodeId,
    /// The random number of the cluster.
    pub cluster: u64,
    /// Its number.
    pub stream: u16,
    /// The data managers that log to it.
    pub participants: Range<u16>,
    /// `NoOfFragmentLogFiles`.
    pub files: u32,
    /// `FragmentLogFileSize`.
    pub file_bytes: u64,
    /// `RedoBuffer`: bytes that may wait to be written.
    pub backlog_max: u64,
    /// How checksums are computed.
    pub checksum: Checksum,
    /// Data managers of the node, those of other streams included.
    pub data_managers: u16,
    /// When checkpoints are made, and how fast.
    pub checkpoints: CheckpointSettings,
}

/// A log stream.
pub struct Redo {
    settings: Settings,
    segments: Segments,
    credits: Credits,
    /// There once the log is open.
    writer: Option<Writer>,
    /// What is done of the start.
    start: Start,
    /// The epoch that is being ended.
    ending: Option<Ending>,
    room_for_ends: RoomForEnds,
    fullness: Fullness,
    /// The newest epoch that was ended.
    ended: Epoch,
    /// The segment with its end record, until the epoch is durable in the whole cluster.
    end_mark: Option<(Epoch, u64)>,
    /// Once a write or flush has failed, no epoch is confirmed any more.
    failed_writes: FailedWrites,
    checkpoints: Checkpoints,
    samples: Samples,
    statistics: Statistics,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Bytes of records.
    pub record_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Blocks written.
    pub blocks: u64,
    /// Epochs that were ended.
    pub epochs: u64,
    /// Requests for credit that got less than was wanted.
    pub shortages: u64,
}

/// How full a stream is.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Bytes that it can hold.
    pub capacity: u64,
    /// Bytes in use.
    pub used: u64,
    /// Bytes that wait to be written.
    pub backlog: u64,
}

impl Redo {
    /// A stream that has done nothing yet.
    pub fn new(settings: Settings) -> Self {
        let participants = settings.participants.len();
        assert!(participants > 0, "a stream is made for data managers");
        Redo {
            segments: Segments::new(participants),
            credits: Credits::new(participants),
            writer: None,
            start: Start::default(),
            ending: None,
            room_for_ends: RoomForEnds::default(),
            fullness: Fullness::default(),
            ended: Epoch(0),
            end_mark: None,
            failed_writes: FailedWrites::default(),
            checkpoints: Checkpoints::new(settings.checkpoints, participants, settings.data_managers),
            samples: Samples::default(),
            statistics: Statistics::default(),
            settings,
        }
    }

    /// Counters since the start.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        let Room { capacity, used, backlog, .. } = self.room();
        Usage { capacity, used, backlog }
    }

    /// Whether nothing waits to be written.
    pub fn is_at_rest(&self) -> bool {
        self.ending.is_none() && self.writer.as_ref().is_none_or(|writer| writer.backlog() == 0)
    }

    fn origin(&self, incarnation: u32) -> Origin {
        let Settings { cluster, node, stream, .. } = self.settings;
        Origin { cluster, node, incarnation, owner: stream }
    }

    /// The place of a data manager among those of the stream.
    fn place_of(&self, instance: u16) -> usize {
        assert!(self.settings.participants.contains(&instance), "data manager {instance} has another stream");
        usize::from(instance - self.settings.participants.start)
    }

    fn room(&self) -> Room {
        let (used, backlog) = self.writer.as_ref().map_or((0, 0), |writer| {
            let newest = if self.segments.newest().is_some() { writer.used_of_segment() } else { 0 };
            (self.segments.full_bytes() + newest, writer.backlog())
        });
        Room { capacity: self.segments.capacity(), used, backlog, backlog_max: self.settings.backlog_max }
    }

    fn on_redo_append_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (head, rest) = frame.head::<BatchHead>()?;
        let records = rest.get(..head.bytes.get() as usize)?;
        let participant = frame.sender().instance();
        let at = self.place_of(participant);
        let writer = self.writer.as_mut().expect("data managers log once the log is open");
        self.credits.use_up(at, records.len() as u64);
        self.statistics.record_bytes += records.len() as u64;
        let entry = Entry { participant, batch: head.batch.get(), records };
        writer.append(cx, &mut self.segments, at, &entry);
        self.room_for_ends.has_records = true;
        if self.checkpoints.note_logged(writer.position()) {
            self.consider_round(cx);
        }
        self.keep_margin(cx);
        Some(())
    }

    /// When the log is nearly full, data managers give back what they have not reserved, and the president learns of
    /// it before nothing is left.
    pub(crate) fn keep_margin(&mut self, cx: &mut Context<'_>) {
        if !self.room().is_nearly_full(self.credits.outstanding()) {
            return;
        }
        for at in self.credits.take_back() {
            cx.mark("credit is returned because the log is nearly full");
            let receiver = self.participant(cx, at);
            cx.frame(SignalNumber::RedoCreditReturnRequest, receiver);
        }
        self.report_room(cx);
    }

    fn on_redo_credit_return_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (confirm, _) = frame.head::<CreditBody>()?;
        let at = self.place_of(frame.sender().instance());
        self.credits.note_returned(at, confirm.bytes.get());
        self.go_on_ending(cx);
        self.note_shortage(cx);
        self.report_room(cx);
        Some(())
    }

    /// The address of a data manager of the stream, by its place.
    fn participant(&self, cx: &Context<'_>, at: usize) -> Address {
        let instance = self.settings.participants.start + at as u16;
        Address::new(cx.own().node(), BlockNumber::DataManager, instance)
    }

    fn on_redo_credit_request(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (request, _) = frame.head::<CreditBody>()?;
        let at = self.place_of(frame.sender().instance());
        self.credits.note_free(at, request.bytes.get());
        let (bytes, shortage) =
            if self.writer.is_some() { self.credits.give(at, self.room()) } else { self.credits.put_off(at) };
        self.confirm_credit(cx, at, bytes, shortage);
        if shortage.is_some() {
            cx.mark("log is short of room");
            self.statistics.shortages += 1;
        }
        if shortage == Some(ErrorCode::RedoLogFull) {
            self.note_shortage(cx);
        }
        Some(())
    }

    fn confirm_credit(&self, cx: &mut Context<'_>, at: usize, bytes: u64, shortage: Option<ErrorCode>) {
        let receiver = self.participant(cx, at);
        cx.frame(SignalNumber::RedoCreditConfirm, receiver).put(&CreditBody {
            bytes: U64::new(bytes),
            shortage: U16::new(shortage.map_or(0, |code| code as u16)),
            unused: [U16::ZERO; 3],
        });
    }

    /// There is more room than there was: those that got less than they wanted for this reason get the rest.
    pub(crate) fn give_rest(&mut self, cx: &mut Context<'_>, reason: ErrorCode) {
        let waiting: Vec<usize> = self.credits.short_for(reason).collect();
        for at in waiting {
            let (bytes, shortage) = self.credits.give(at, self.room());
            if bytes > 0 || shortage != Some(reason) {
                self.confirm_credit(cx, at, bytes, shortage);
            }
            if shortage == Some(ErrorCode::RedoLogFull) {
                self.note_shortage(cx);
            }
        }
    }

    fn on_redo_trim_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<BatchBody>()?;
        let at = self.place_of(frame.sender().instance());
        self.segments.need_from(at, order.batch.get());
        self.trim(cx);
        Some(())
    }

    /// Forgets segments that nobody needs.
    fn trim(&mut self, cx: &mut Context<'_>) {
        if cx.has_bug(InjectedBug::TailPassesEndRecord) {
            self.segments.note_end(u64::MAX);
        }
        if self.segments.trim() > 0 {
            cx.mark("log segments are free again");
            self.go_on_ending(cx);
            self.give_rest(cx, ErrorCode::RedoLogFull);
            self.fullness.note(cx.now(), self.is_short());
            self.report_room(cx);
        }
    }

    fn on_durable_epoch_order(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (order, _) = frame.head::<EpochBody>()?;
        if let Some((_, segment)) = self.end_mark.take_if(|(epoch, _)| *epoch <= order.epoch()) {
            self.segments.note_end(segment);
            self.trim(cx);
        }
        Some(())
    }

    fn on_file_confirm(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (confirm, _) = frame.head::<FileConfirm>()?;
        let token = confirm.token.get();
        match Task::from_token(token) {
            Task::Block(bytes) | Task::SegmentHead(bytes) => {
                self.statistics.blocks += 1;
                self.statistics.written_bytes += u64::from(bytes);
                let writer = self.writer.as_mut().expect("it has written");
                writer.note_written(bytes);
                let has_room = writer.backlog() <= self.settings.backlog_max;
                let target = self.target_speed();
                self.samples.note(cx.now(), Written { redo: u64::from(bytes), checkpoint: 0 }, target);
                if has_room {
                    self.give_rest(cx, ErrorCode::RedoBufferFull);
                }
            }
            Task::Flush(file) => self.on_flushed(cx, file),
            // What is written behind it is in the same file, whose tasks are done in their order.
            Task::FlushHead(_) => {}
            task => {
                let data = cx.take_file_data(token);
                self.on_start_task_done(cx, task, data);
            }
        }
        Some(())
    }

    /// What was written is perhaps not there: nobody knows, and no later flush would tell.
    fn on_file_refuse(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let refuse: FileRefuse = cold::read(frame)?;
        match Task::from_token(refuse.token) {
            Task::Block(_) | Task::SegmentHead(_) | Task::Flush(_) | Task::FlushHead(_) => {
                self.failed_writes.stop_node(cx, "the redo log", &refuse);
            }
            // Only files that are made need room; the node has them from then on.
            Task::Allocate(_) if refuse.kind == FileErrorKind::DiskFull => {
                let reason = format!(
                    "the files of the redo log can't be made: {}. Make room, or let there be fewer files \
                     (NoOfFragmentLogFiles) or smaller ones (FragmentLogFileSize)",
                    refuse.text
                );
                self.give_back(cx, reason);
            }
            // The next start removes it, or makes it again.
            Task::Remove(_) if self.start.is_giving_back() => self.go_on_giving_back(cx),
            // No file is to blame, and nothing can be done with them: as with any write that fails.
            Task::Allocate(_) if refuse.kind == FileErrorKind::Failed => {
                self.failed_writes.stop_node(cx, "the redo log", &refuse);
            }
            _ => self.start.refuse_for_file(cx, &refuse),
        }
        Some(())
    }

    fn on_start_task_done(&mut self, cx: &mut Context<'_>, task: Task, data: FileData) {
        if let Err(reason) = self.go_on_with_start(cx, task, data) {
            self.refuse_start(cx, reason);
        }
    }

    /// The node can't start from these files. Reads that are under way are answered in vain.
    fn refuse_start(&mut self, cx: &mut Context<'_>, reason: String) {
        self.start.refuse(cx, reason);
    }
}

impl Block for Redo {
    /// Nothing happens before the start reaches the log.
    fn start(&mut self, _: &mut Context<'_>) {}

    fn handle(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) {
        let handled = match frame.signal() {
            Some(SignalNumber::RedoAppendOrder) => self.on_redo_append_order(cx, frame),
            Some(SignalNumber::RedoCreditRequest) => self.on_redo_credit_request(cx, frame),
            Some(SignalNumber::RedoCreditReturnConfirm) => self.on_redo_credit_return_confirm(cx, frame),
            Some(SignalNumber::RedoDrainConfirm) => self.on_redo_drain_confirm(cx, frame),
            Some(SignalNumber::RedoTrimOrder) => self.on_redo_trim_order(cx, frame),
            Some(SignalNumber::RedoReplayConfirm) => self.on_redo_replay_confirm(cx, frame),
            Some(SignalNumber::EpochEndRequest) => self.on_epoch_end_request(cx, frame),
            Some(SignalNumber::DurableEpochOrder) => self.on_durable_epoch_order(cx, frame),
            Some(SignalNumber::CheckpointReport) => self.on_checkpoint_report(cx, frame),
            Some(SignalNumber::CheckpointWritersReport) => self.on_checkpoint_writers_report(frame),
            Some(SignalNumber::TimerReport) => self.on_timer_report(cx, frame),
            Some(SignalNumber::NodeStartedOrder) => {
                self.on_node_started_order(cx);
                Some(())
            }
            Some(SignalNumber::StartRequest) => self.on_start_request(cx, frame),
            Some(SignalNumber::FileConfirm) => self.on_file_confirm(cx, frame),
            Some(SignalNumber::FileRefuse) => self.on_file_refuse(cx, frame),
            _ => return cx.reject(frame, ErrorCode::UnexpectedSignal),
        };
        if handled.is_none() {
            cx.reject(frame, ErrorCode::MalformedSignal);
        }
    }

    fn view_changed(&mut self, cx: &mut Context<'_>, change: &ViewChange) {
        if change.old.president() != change.new.president() {
            self.report_room_again(cx);
        }
    }

    fn set_parameter(&mut self, _: &mut Context<'_>, parameter: LiveParameter, value: u64) {
        self.checkpoints.set_parameter(parameter, value);
    }

    fn check_invariants(&self, _: Scrutiny) {
        let room = self.room();
        assert!(
            self.writer.is_none() || room.used + self.credits.outstanding() <= room.capacity,
            "the log has room for everything that was prepared"
        );
        self.checkpoints.check(self.writer.as_ref().map(Writer::position));
    }
}
