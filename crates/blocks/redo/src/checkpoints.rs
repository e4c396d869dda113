//! When local checkpoints are made, and how fast they are written.
//!
//! ```text
//!   the start has ended ─▶ waiting ──enough was logged, or room is short──▶ round ──all are usable──▶ waiting
//!                             ▲                                               │
//!                             └────── some time later ◀── backing off ◀───────┘ one was given up
//! ```
//! A *round* is a checkpoint of each data manager of the stream, all at the same time (`CheckpointOrder`). When all of
//! them are usable, the log needs nothing of what came before the round. It begins when
//! - so much was logged since the last round began as the node is configured for, or a quarter of what the log can
//!   hold;
//! - or at once when a data manager got less credit than it wanted, because the log is full.
//!
//! It does not begin before the node is started (`NodeStartedOrder`), nor when nothing was logged since the last one:
//! that would free nothing. What is in the log when it is opened counts as logged.
//!
//! One round is made at a time. Each ends: a data manager's checkpoint is usable when a global checkpoint covers it,
//! which the next one does, and those go on when nobody commits anything (while room is short, one is asked for at
//! once); or it is given up, because the disk is full. Then the round counts for nothing and is made again after a
//! pause, which doubles each time: a disk does not get emptier by being asked.
//!
//! Every tenth of a second each data manager that is writing gets a quota (`CheckpointQuotaOrder`). Of what
//! [`WriteSpeed`] says for the whole node the stream has a part: its data managers' of those of all streams that write
//! at that time. They tell each other when they begin and end (`CheckpointWritersReport`). Those of its data managers
//! that are still writing share the stream's part. So one that has most of the data is not slowed down by those that
//! have none. Timers run only meanwhile: a stream at rest does nothing.

use crate::Redo;
use crate::samples::{Sample, Written};
use crate::sizing::LastRound;
use crate::write_speed::{Conditions, Reason, Restart, RoomLeft, Slowdowns, SpeedLimits, WriteSpeed};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use vinga_base::{Epoch, LiveParameter};
use vinga_kernel::{Context, InjectedBug, LogLevel, Span, Tick};
use vinga_wire::checkpoint::{CheckpointState, QuotaBody, ReportBody, WritersBody};
use vinga_wire::epoch::EpochBody;
use vinga_wire::view::MemberState;
use vinga_wire::{Address, BlockNumber, ErrorCode, Frame, SignalNumber, U16, U64};

/// How often quotas are given.
const QUOTA_INTERVAL: Span = Span::from_millis(100);
/// The time that a quota is for, at most: a thread that was held up does not write everything at once.
const QUOTA_SPAN_MAX: Span = Span::from_millis(1000);
/// The log lags when something was handed to the disk so long ago and is not written: a quarter of the usual time
/// between global checkpoints, and a hundred times what a disk needs that is not overloaded.
const LAG_MAX: Span = Span::from_millis(500);
/// How long a round is put off that was given up, first and at most.
const BACKOFF_MIN: Span = Span::from_millis(1000);
const BACKOFF_MAX: Span = Span::from_millis(30_000);
/// A round begins when this part of the log was used since the last one.
const PART_OF_CAPACITY: u64 = 4;

/// When checkpoints are made, and how fast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointSettings {
    /// `TimeBetweenLocalCheckpoints`, in bytes: so much the streams of the node log together between two rounds.
    pub bytes_between: u64,
    /// How fast they are written, all those of the node together.
    pub speed: SpeedLimits,
}

impl CheckpointSettings {
    /// The bytes that a value of `TimeBetweenLocalCheckpoints` stands for: a number of words of four bytes, as its
    /// logarithm to base 2.
    pub const fn bytes_between(time_between_local_checkpoints: u32) -> u64 {
        4 << time_between_local_checkpoints
    }

    /// The value of `TimeBetweenLocalCheckpoints` that stands for so many bytes, rounded down.
    pub fn time_between(bytes_between: u64) -> u64 {
        u64::from((bytes_between / 4).max(1).ilog2())
    }
}

/// A round.
struct Round {
    /// Where the log was when it began, and when that was.
    begun_at: u64,
    begun: Tick,
    /// Bytes that were written, and when the last of them were.
    bytes: u64,
    written: Tick,
    /// The data managers whose checkpoints are neither usable nor given up, and whether they are being written.
    awaited: BTreeMap<u16, bool>,
    /// A checkpoint was given up.
    is_given_up: bool,
    /// Somebody has got less credit than it wanted since it began.
    was_short: bool,
    /// Checkpoints that are written are usable when everything up to this epoch is on disk.
    cover: Epoch,
    /// A global checkpoint was asked for.
    has_hurried: bool,
}

impl Round {
    fn is_writing(&self) -> bool {
        self.awaited.values().any(|&is_writing| is_writing)
    }
}

/// The checkpoints of a stream's data managers.
pub struct Checkpoints {
    /// Data managers of the node, which share its speed.
    data_managers: u16,
    /// Those of them that log to this stream.
    participants: u16,
    /// The other streams of the node that write checkpoints, and how many data managers log to each.
    others: BTreeMap<u16, u16>,
    /// What the others know: whether checkpoints are written here.
    is_reported: bool,
    /// The log is open and the node started.
    is_started: bool,
    /// A round begins when so much was logged since the last one.
    threshold: u64,
    /// Batches before this place of the log are in usable checkpoints.
    covered: u64,
    /// Something was logged since the last round began.
    has_changes: bool,
    round: Option<Round>,
    /// No round has ended since the start.
    is_first: bool,
    /// How long the next round is put off if it is given up.
    backoff: Span,
    /// It is being put off.
    backs_off: bool,
    /// Counts timers: those that were set for something that is over are ignored.
    timer: u64,
    /// Quotas were last given then.
    quotas_given: Tick,
    speed: WriteSpeed,
    last: Option<LastRound>,
    statistics: RoundStatistics,
}

/// The part of a stream in what the node logs between two rounds.
fn threshold(bytes_between: u64, participants: u16, data_managers: u16) -> u64 {
    (bytes_between * u64::from(participants) / u64::from(data_managers)).max(1)
}

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoundStatistics {
    /// Rounds whose checkpoints all became usable.
    pub rounds: u64,
    /// Those of them that began because room in the log was short.
    pub for_room: u64,
    /// Rounds that were given up.
    pub given_up: u64,
    /// The last of them, one behind the other: 0 if the last round became usable.
    pub given_up_now: u64,
}

impl Checkpoints {
    /// Whether checkpoints are written, and only wait until their epoch has ended.
    pub(crate) fn awaits_end(&self) -> bool {
        self.round.as_ref().is_some_and(|round| !round.is_writing() && !round.awaited.is_empty())
    }

    /// Whether a round is being made.
    pub(crate) fn is_in_round(&self) -> bool {
        self.round.is_some()
    }

    /// Whether the node is started.
    pub(crate) fn is_started(&self) -> bool {
        self.is_started
    }

    /// A parameter has another value from now on.
    pub(crate) fn set_parameter(&mut self, parameter: LiveParameter, value: u64) {
        match parameter {
            LiveParameter::TimeBetweenLocalCheckpoints => {
                let bytes = CheckpointSettings::bytes_between(value as u32);
                self.threshold = threshold(bytes, self.participants, self.data_managers);
            }
            LiveParameter::MinDiskWriteSpeed => self.speed.change_limits(|limits| limits.min = value),
            LiveParameter::MaxDiskWriteSpeed => self.speed.change_limits(|limits| limits.max = value),
            LiveParameter::MaxDiskWriteSpeedOtherNodeRestart => {
                self.speed.change_limits(|limits| limits.max_other_node_restart = value);
            }
            LiveParameter::MaxDiskWriteSpeedOwnRestart => {
                self.speed.change_limits(|limits| limits.max_own_restart = value);
            }
            LiveParameter::TransactionDeadlockDetectionTimeout
            | LiveParameter::TransactionInactiveTimeout
            | LiveParameter::TimeBetweenEpochs
            | LiveParameter::TimeBetweenGlobalCheckpoints => {}
        }
    }

    /// Those of a stream that this many of the node's data managers log to.
    pub fn new(settings: CheckpointSettings, participants: usize, data_managers: u16) -> Self {
        let participants = participants as u16;
        let data_managers = data_managers.max(participants);
        Checkpoints {
            data_managers,
            participants,
            others: BTreeMap::new(),
            is_reported: false,
            is_started: false,
            threshold: threshold(settings.bytes_between, participants, data_managers),
            covered: 0,
            has_changes: false,
            round: None,
            is_first: true,
            backoff: BACKOFF_MIN,
            backs_off: false,
            timer: 0,
            quotas_given: Tick(0),
            speed: WriteSpeed::new(settings.speed),
            last: None,
            statistics: RoundStatistics::default(),
        }
    }

    /// The log was opened; so much of it is in use.
    pub fn note_open(&mut self, capacity: u64, used: u64) {
        self.threshold = self.threshold.min(capacity / PART_OF_CAPACITY);
        self.has_changes = used > 0;
    }

    /// Something was logged. Returns whether that may be enough for a round.
    #[inline]
    pub fn note_logged(&mut self, position: u64) -> bool {
        self.has_changes = true;
        position - self.covered >= self.threshold
    }

    /// Whether it is time for a round.
    fn is_due(&self, position: u64, is_short: bool) -> bool {
        let is_free = self.is_started && self.round.is_none() && !self.backs_off;
        is_free && self.has_changes && (is_short || position - self.covered >= self.threshold)
    }

    /// Panics if its state contradicts itself; the log is at this place, if it is open.
    pub fn check(&self, position: Option<u64>) {
        assert!(position.is_some() || !self.is_started, "the log is open when the node is started");
        assert!(self.covered <= position.unwrap_or(0), "only what was logged is covered");
        let is_writing = self.round.as_ref().is_some_and(Round::is_writing);
        assert_eq!(self.is_reported, is_writing, "other streams know whether checkpoints are written");
        if let Some(round) = &self.round {
            assert!(self.is_started && !self.backs_off, "a round is made when it may be");
            assert!(!round.awaited.is_empty(), "a round ends with the last data manager");
            assert!(round.begun_at >= self.covered, "rounds go forward");
        }
    }

    /// What each of so many data managers that are writing may write in some time, in bytes.
    fn quota(&self, time: Span, writing: usize) -> u64 {
        let Some(speed) = self.speed.target() else { return u64::MAX };
        let node = u128::from(speed) * u128::from(time.0) / 1_000_000;
        let stream = node * u128::from(self.participants) / u128::from(self.sharers());
        u64::try_from(stream.div_ceil(writing.max(1) as u128)).unwrap_or(u64::MAX)
    }

    /// Data managers of the streams that share the node's speed now, this one included.
    fn sharers(&self) -> u16 {
        self.others.values().sum::<u16>() + self.participants
    }
}

impl Redo {
    /// How fast checkpoints are written, in bytes a second of the node, and why. `None`: as fast as the disk allows.
    pub fn write_speed(&self) -> (Option<u64>, Reason) {
        (self.checkpoints.speed.target(), self.checkpoints.speed.reason())
    }

    /// For how long that was lowered.
    pub fn slowdowns(&self) -> Slowdowns {
        self.checkpoints.speed.slowdowns()
    }

    /// What was written in each second of the last minute in which something was, newest first.
    pub fn written(&self, now: Tick) -> impl Iterator<Item = Sample> {
        self.samples.last_minute(now)
    }

    /// Bytes a second that were written during the last seconds, on the average.
    pub fn average_written(&self, now: Tick, seconds: u64) -> Written {
        self.samples.average(now, seconds)
    }

    /// Bytes a second of the redo log in the ten seconds since the start in which it was most.
    pub fn greatest_redo_speed(&self, now: Tick) -> u64 {
        self.samples.greatest_redo(now)
    }

    /// The last round whose checkpoints all became usable.
    pub fn last_round(&self) -> Option<LastRound> {
        self.checkpoints.last
    }

    /// The part of the node's speed that the data managers of this stream have together when nothing is in a hurry, and
    /// all other streams write, too.
    pub(crate) fn usual_speed(&self) -> u64 {
        self.part_of(self.checkpoints.speed.usual(), self.checkpoints.data_managers)
    }

    fn part_of(&self, speed: u64, sharers: u16) -> u64 {
        speed * u64::from(self.checkpoints.participants) / u64::from(sharers)
    }

    /// Counters of rounds.
    pub fn round_statistics(&self) -> RoundStatistics {
        self.checkpoints.statistics
    }

    /// The part of [`Redo::write_speed`] that the data managers of this stream have together.
    pub fn target_speed(&self) -> Option<u64> {
        self.checkpoints.speed.target().map(|node| self.part_of(node, self.checkpoints.sharers()))
    }

    /// The start has ended: data managers are ready for checkpoints.
    pub(crate) fn on_node_started_order(&mut self, cx: &mut Context<'_>) {
        assert!(self.writer.is_some(), "the node is started when its log is open");
        self.checkpoints.is_started = true;
        self.consider_round(cx);
        self.report_room(cx);
    }

    /// Somebody has got less credit than it wanted.
    pub(crate) fn note_shortage(&mut self, cx: &mut Context<'_>) {
        if let Some(round) = &mut self.checkpoints.round {
            round.was_short = true;
        }
        if self.checkpoints.is_started {
            self.fullness.note(cx.now(), true);
        }
        self.consider_round(cx);
        self.hurry(cx);
    }

    /// Asks for a global checkpoint when everything is written and nothing but that is missing while room is short.
    fn hurry(&mut self, cx: &mut Context<'_>) {
        let is_short = self.is_short();
        let Some(round) = &mut self.checkpoints.round else { return };
        if round.is_writing() || round.has_hurried || !is_short {
            return;
        }
        cx.mark("global checkpoint is asked for because the log is short of room");
        round.has_hurried = true;
        if let Some(president) = cx.view().president() {
            let receiver = Address::new(president, BlockNumber::Distribution, 0);
            cx.frame(SignalNumber::DurabilityOrder, receiver).put(&EpochBody::new(round.cover));
        }
    }

    /// Whether somebody has got less credit than it wanted, because the log is full.
    pub(crate) fn is_short(&self) -> bool {
        self.credits.short_for(ErrorCode::RedoLogFull).next().is_some()
    }

    /// Begins a round if it is time for one.
    pub(crate) fn consider_round(&mut self, cx: &mut Context<'_>) {
        let Some(writer) = &self.writer else { return };
        let position = writer.position();
        let is_short = self.is_short() || self.room_for_ends.is_end_held;
        if !self.checkpoints.is_due(position, is_short) {
            return;
        }
        if is_short {
            cx.mark("checkpoints begin because the log is short of room");
            self.checkpoints.statistics.for_room += 1;
        }
        let participants = self.settings.participants.clone();
        for instance in participants.clone() {
            cx.frame(SignalNumber::CheckpointOrder, data_manager(cx, instance));
        }
        self.checkpoints.round = Some(Round {
            begun_at: position,
            begun: cx.now(),
            bytes: 0,
            written: cx.now(),
            awaited: participants.map(|instance| (instance, true)).collect(),
            is_given_up: false,
            was_short: is_short,
            cover: Epoch(0),
            has_hurried: false,
        });
        self.checkpoints.has_changes = false;
        let conditions = self.conditions(cx);
        self.checkpoints.speed.begin(cx.now(), &conditions);
        self.report_writers(cx);
        self.give_quotas(cx, QUOTA_INTERVAL);
    }

    /// Tells the other streams of the node whether checkpoints are written here, if that has changed: then they share
    /// the speed with this one.
    fn report_writers(&mut self, cx: &mut Context<'_>) {
        let checkpoints = &mut self.checkpoints;
        let is_writing = checkpoints.round.as_ref().is_some_and(Round::is_writing);
        if core::mem::replace(&mut checkpoints.is_reported, is_writing) == is_writing {
            return;
        }
        let data_managers = U16::new(if is_writing { checkpoints.participants } else { 0 });
        let own = cx.own();
        let others = cx.view().addresses(BlockNumber::Redo);
        let others: Vec<Address> =
            others.filter(|other| other.node() == own.node() && *other != own).collect();
        for other in others {
            cx.frame(SignalNumber::CheckpointWritersReport, other).put(&WritersBody { data_managers });
        }
    }

    /// Another stream of the node begins or ends to write checkpoints. It counts from the next quotas on.
    pub(crate) fn on_checkpoint_writers_report(&mut self, frame: &Frame<'_>) -> Option<()> {
        let (report, _) = frame.head::<WritersBody>()?;
        let stream = frame.sender().instance();
        match report.data_managers.get() {
            0 => self.checkpoints.others.remove(&stream),
            data_managers => self.checkpoints.others.insert(stream, data_managers),
        };
        Some(())
    }

    /// Gives each data manager that is writing its quota for some time, and comes back when it is over.
    fn give_quotas(&mut self, cx: &mut Context<'_>, time: Span) {
        let checkpoints = &mut self.checkpoints;
        let round = checkpoints.round.as_ref().expect("quotas are for a round");
        let writing = || round.awaited.iter().filter(|(_, is_writing)| **is_writing);
        let bytes = checkpoints.quota(time, writing().count());
        for (&instance, _) in writing() {
            let receiver = data_manager(cx, instance);
            cx.frame(SignalNumber::CheckpointQuotaOrder, receiver).put(&QuotaBody { bytes: U64::new(bytes) });
        }
        checkpoints.quotas_given = cx.now();
        self.set_timer(cx, QUOTA_INTERVAL);
    }

    fn set_timer(&mut self, cx: &mut Context<'_>, span: Span) {
        self.checkpoints.timer += 1;
        if !(self.checkpoints.backs_off && cx.has_bug(InjectedBug::CheckpointsGivenUpForGood)) {
            cx.send_after(span, self.checkpoints.timer);
        }
    }

    pub(crate) fn on_timer_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (token, _) = frame.head::<U64>()?;
        let checkpoints = &mut self.checkpoints;
        if token.get() != checkpoints.timer {
            return Some(());
        }
        if checkpoints.backs_off {
            checkpoints.backs_off = false;
            self.consider_round(cx);
            self.report_room(cx);
        } else if checkpoints.round.as_ref().is_some_and(Round::is_writing) {
            let time = cx.now().since(checkpoints.quotas_given);
            let conditions = self.conditions(cx);
            self.checkpoints.speed.adapt(cx.now(), &conditions);
            self.give_quotas(cx, Span(time.0.min(QUOTA_SPAN_MAX.0)));
        }
        Some(())
    }

    /// What the speed depends on, now.
    fn conditions(&self, cx: &Context<'_>) -> Conditions {
        let own = cx.own().node();
        let others_start =
            cx.view().members().iter().any(|one| one.state == MemberState::Starting && one.node != own);
        let restart = match (self.checkpoints.is_first, others_start) {
            (true, _) => Restart::Own,
            (false, true) => Restart::OtherNode,
            (false, false) => Restart::None,
        };
        let room = self.room();
        let left = room.left(self.credits.outstanding());
        let was_short = self.checkpoints.round.as_ref().is_some_and(|round| round.was_short);
        let room_left = if left < room.capacity / 16 {
            RoomLeft::HardlyAny
        } else if was_short || left < room.capacity / 4 {
            RoomLeft::Little
        } else {
            RoomLeft::Enough
        };
        let oldest = self.writer.as_ref().and_then(crate::writer::Writer::oldest_unwritten);
        let redo_lags = room.backlog > room.backlog_max / 2
            || oldest.is_some_and(|handed_over| cx.now().since(handed_over) >= LAG_MAX);
        Conditions { restart, room: room_left, load: cx.load(), redo_lags }
    }

    pub(crate) fn on_checkpoint_report(&mut self, cx: &mut Context<'_>, frame: &Frame<'_>) -> Option<()> {
        let (report, _) = frame.head::<ReportBody>()?;
        let state = CheckpointState::from_number(report.state.get())?;
        let target = self.target_speed();
        let checkpoint = report.bytes.get();
        if checkpoint > 0 {
            self.samples.note(cx.now(), Written { checkpoint, redo: 0 }, target);
        }
        let Some(round) = &mut self.checkpoints.round else { return Some(()) };
        let instance = frame.sender().instance();
        if checkpoint > 0 {
            round.bytes += checkpoint;
            round.written = cx.now();
        }
        match state {
            CheckpointState::Writing => {}
            CheckpointState::Written => {
                if let Some(is_writing) = round.awaited.get_mut(&instance) {
                    *is_writing = false;
                }
                round.cover = round.cover.max(Epoch(report.epoch.get()));
            }
            CheckpointState::Usable => {
                round.awaited.remove(&instance);
            }
            CheckpointState::GivenUp => {
                round.awaited.remove(&instance);
                round.is_given_up = true;
            }
        }
        if !round.is_writing() {
            self.checkpoints.speed.end();
        }
        self.report_writers(cx);
        self.end_round(cx);
        self.hurry(cx);
        self.go_on_ending(cx);
        self.report_room(cx);
        Some(())
    }

    /// Ends the round if nobody is awaited any more.
    fn end_round(&mut self, cx: &mut Context<'_>) {
        let checkpoints = &mut self.checkpoints;
        let Some(round) = checkpoints.round.take_if(|round| round.awaited.is_empty()) else { return };
        if round.is_given_up {
            cx.mark("checkpoints are put off because the disk is full");
            let seconds = checkpoints.backoff.millis() / 1000;
            cx.log(
                LogLevel::Warning,
                format_args!(
                    "stream {}: the log can't be cut, as checkpoints could not be written; they are tried again in \
                     {seconds} s",
                    self.settings.stream
                ),
            );
            checkpoints.statistics.given_up += 1;
            checkpoints.statistics.given_up_now += 1;
            checkpoints.has_changes = true;
            checkpoints.backs_off = true;
            let span = checkpoints.backoff;
            checkpoints.backoff = Span((span.0 * 2).min(BACKOFF_MAX.0));
            self.set_timer(cx, span);
            return;
        }
        checkpoints.statistics.rounds += 1;
        checkpoints.statistics.given_up_now = 0;
        checkpoints.last = Some(LastRound {
            ended: cx.now(),
            bytes: round.bytes,
            writing: round.written.since(round.begun),
            whole: cx.now().since(round.begun),
        });
        checkpoints.covered = round.begun_at;
        checkpoints.is_first = false;
        checkpoints.backoff = BACKOFF_MIN;
        self.consider_round(cx);
    }
}

/// A data manager of the own node.
fn data_manager(cx: &Context<'_>, instance: u16) -> Address {
    Address::new(cx.own().node(), BlockNumber::DataManager, instance)
}
