//! The system file of a node while it runs: what it says, and which copy is written next.
//!
//! It is written alternately into two files, so that one of them is whole whatever happens. When an incarnation begins
//! both are written, and flushed, before anything relies on it: from then on one copy alone is enough.
//!
//! A copy gets its room on the disk with the first write of this process, and when it grows by a sector. All other
//! writes go into that room, and the file system has nothing to note of them: the flush of the log would have to wait
//! for the file system's journal.
//!
//! Epochs are reserved in both copies before the first of them is given out: a copy that is damaged later must not take
//! the reservation with it.
//!
//! Which epoch is durable is written now and then only ([`DURABLE_NOTE_INTERVAL`]): the log says it, too, and a disk
//! that flushes the system file lets the log wait, whose flush commits wait for.

use crate::Disk;
use alloc::collections::VecDeque;
use vinga_base::Epoch;
use vinga_format::checksum::Checksum;
use vinga_format::schema::SchemaExtent;
use vinga_format::system::{SystemState, copy_of, encode};
use vinga_kernel::files::{Data, FileKind, FileName, FileTask};
use vinga_kernel::{Context, FailedWrites, Span, Tick};
use vinga_wire::file::FileRefuse;

/// Durable epochs are written this often, at most. What a restart restores is in the log; the system file says at which
/// epoch a log that ends before it is damaged (`docs/decisions/0022`).
pub const DURABLE_NOTE_INTERVAL: Span = Span::from_millis(50);

/// The system file of a node.
pub struct SystemFile {
    state: SystemState,
    checksum: Checksum,
    /// The number of the next write.
    next_write: u64,
    /// Bytes of each copy for which this process has made room.
    room: [u64; 2],
    /// The copies that are still to be written of the present state.
    to_write: VecDeque<u64>,
    /// The write whose flush is awaited.
    under_way: Option<u64>,
    /// The state has changed since it was last written, and is to be written.
    has_changed: bool,
    /// When a durable epoch was last written, and whether a timer is set for the next one.
    noted: Option<Tick>,
    is_timer_set: bool,
    /// The time of day at the start, in milliseconds since 1970, and when that was.
    time_of_day: u64,
    started: Option<Tick>,
    /// How many epochs are reserved at a time.
    epoch_reserve: u64,
    /// The limit of epochs in what is written, and in each copy that is on the disk.
    limit_under_way: Epoch,
    limits_on_disk: [Epoch; 2],
    /// Once a write or flush has failed, nothing more is written.
    failed_writes: FailedWrites,
}

/// What the answers of files are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// A copy has its place on the disk.
    Allocate,
    /// It is written.
    Write,
    /// It is flushed.
    Flush,
}

impl Task {
    /// As a token of a file task.
    pub fn token(self) -> u64 {
        self as u64
    }

    /// The inverse of [`Task::token`].
    pub fn from_token(token: u64) -> Self {
        match token {
            0 => Task::Allocate,
            1 => Task::Write,
            _ => Task::Flush,
        }
    }
}

impl SystemFile {
    /// With the content from which a node starts.
    pub fn new(disk: Disk) -> Self {
        let Disk { state, next_write, epoch_reserve, checksum, time_of_day, .. } = disk;
        SystemFile {
            limit_under_way: state.epoch_limit,
            limits_on_disk: [state.epoch_limit; 2],
            epoch_reserve,
            state,
            checksum,
            next_write,
            room: [0; 2],
            to_write: VecDeque::new(),
            under_way: None,
            has_changed: false,
            noted: None,
            time_of_day,
            started: None,
            is_timer_set: false,
            failed_writes: FailedWrites::default(),
        }
    }

    /// The node starts now.
    pub fn note_start(&mut self, now: Tick) {
        self.started = Some(now);
    }

    /// What it says.
    pub fn state(&self) -> &SystemState {
        &self.state
    }

    /// How many epochs are reserved at a time.
    pub fn epoch_reserve(&self) -> u64 {
        self.epoch_reserve
    }

    /// Changes what it says, and writes both copies. [`SystemFile::on_done`] tells when they are on disk.
    pub fn write_both(&mut self, cx: &mut Context<'_>, change: impl FnOnce(&mut SystemState)) {
        change(&mut self.state);
        self.has_changed = false;
        self.to_write = (self.next_write..self.next_write + 2).collect();
        self.next_write += 2;
        self.write_next(cx);
    }

    /// Notes that the node stops in order.
    pub fn note_clean(&mut self, cx: &mut Context<'_>) {
        self.state.is_clean = true;
        self.has_changed = true;
        self.write_if_changed(cx);
    }

    /// Notes that an epoch is durable; it is written when nothing else is, and the last one was written some time ago.
    pub fn note_durable(&mut self, cx: &mut Context<'_>, epoch: Epoch) {
        if epoch <= self.state.durable_epoch {
            return;
        }
        let since_start = self.started.map_or(Span(0), |started| cx.now().since(started));
        self.state.durable_at = self.time_of_day + since_start.0 / 1000;
        self.state.durable_epoch = epoch;
        self.state.own_epoch = epoch;
        self.state.epoch_limit = self.state.epoch_limit.max(epoch);
        let span = self.noted.map_or(DURABLE_NOTE_INTERVAL, |noted| cx.now().since(noted));
        if span >= DURABLE_NOTE_INTERVAL {
            self.write_durable(cx);
        } else if !self.is_timer_set {
            self.is_timer_set = true;
            cx.send_after(Span(DURABLE_NOTE_INTERVAL.0 - span.0), 0);
        }
    }

    /// The timer for the durable epoch has run out.
    pub fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.is_timer_set = false;
        self.write_durable(cx);
    }

    fn write_durable(&mut self, cx: &mut Context<'_>) {
        self.noted = Some(cx.now());
        self.has_changed = true;
        self.write_if_changed(cx);
    }

    /// Epochs up to this one may be given out: both copies say so, and a restart begins above it, also if one of them
    /// is damaged then.
    pub fn epoch_limit(&self) -> Epoch {
        let [first, second] = self.limits_on_disk;
        first.min(second)
    }

    /// Notes that an epoch is used: the limit is raised before it is reached.
    pub fn note_epoch(&mut self, cx: &mut Context<'_>, epoch: Epoch) {
        if epoch.0 + self.epoch_reserve / 2 >= self.state.epoch_limit.0 {
            self.state.epoch_limit = Epoch(epoch.0 + self.epoch_reserve);
            self.has_changed = true;
            self.write_if_changed(cx);
        }
    }

    /// Notes how far the definitions reach; it is written when nothing else is.
    pub fn note_definitions(&mut self, cx: &mut Context<'_>, extent: SchemaExtent) {
        if extent != self.state.definitions {
            self.state.definitions = extent;
            self.has_changed = true;
            self.write_if_changed(cx);
        }
    }

    fn write_if_changed(&mut self, cx: &mut Context<'_>) {
        if self.has_changed && self.under_way.is_none() && self.to_write.is_empty() {
            self.has_changed = false;
            self.to_write.push_back(self.next_write);
            self.next_write += 1;
            self.write_next(cx);
        }
    }

    fn write_next(&mut self, cx: &mut Context<'_>) {
        if self.under_way.is_some() {
            return;
        }
        let Some(number) = self.to_write.pop_front() else { return };
        self.under_way = Some(number);
        self.limit_under_way = self.state.epoch_limit;
        let name = FileName::new(FileKind::System, 0, copy_of(number) as u64);
        let data = encode(&self.state, number, self.checksum);
        let room = &mut self.room[copy_of(number)];
        if *room < data.len() as u64 {
            *room = data.len() as u64;
            cx.file(name, Task::Allocate.token(), FileTask::Allocate { bytes: *room });
        }
        cx.file(name, Task::Write.token(), FileTask::Write { offset: 0, data: Data(data) });
        cx.file(name, Task::Flush.token(), FileTask::Flush);
    }

    /// A task has failed: the node is to stop.
    pub fn on_failed(&mut self, cx: &mut Context<'_>, refuse: &FileRefuse) {
        self.failed_writes.stop_node(cx, "the system file", refuse);
    }

    /// A task is done. Returns whether everything that was to be written is on disk now.
    pub fn on_done(&mut self, cx: &mut Context<'_>, task: Task) -> bool {
        if task != Task::Flush || self.failed_writes.is_any() {
            return false;
        }
        let number = self.under_way.take().expect("a write is under way");
        self.limits_on_disk[copy_of(number)] = self.limit_under_way;
        if !self.to_write.is_empty() {
            self.write_next(cx);
            return false;
        }
        self.has_changed |= self.epoch_limit() < self.state.epoch_limit;
        self.write_if_changed(cx);
        self.under_way.is_none()
    }
}
