//! The disk of a data node: its files, what of them a crash leaves, and what goes wrong with them.
//!
//! A task takes some time. Tasks on one file follow each other, those on different files are independent. A task has
//! its effect at the moment when it is done, so a crash meets some that are under way: those are done, not done, or
//! done in part. What was written and not flushed is lost in parts, atom by atom ([`contents`]); names of files are on
//! the disk when the task is done.
//!
//! Faults happen as long as the nemesis is at work. The disk notices when its time has come at the next task; so a disk
//! that nobody uses changes no history. All chances come from the disk's own generator.

pub mod contents;

use crate::agenda::Time;
use crate::profile::Fault;
use crate::thread::ThreadId;
use contents::Contents;
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use vinga_kernel::files::{FileAnswer, FileData, FileError, FileName, FileRequest, FileTask};
use vinga_wire::file::FileErrorKind;

/// How fast and how large a disk is; times are in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct DiskProfile {
    /// A task takes so long at least.
    pub least: Time,
    /// It takes up to so much longer.
    pub jitter: Time,
    /// And longer by the bytes that it moves.
    pub bytes_per_micro: u64,
    /// Bytes that files can grow to, in all, where disks are full.
    pub quota: u64,
}

impl DiskProfile {
    /// That of a seed, by numbers of its own. From a disk of the kind that we measure on to one that turns.
    pub fn of(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed.wrapping_mul(19));
        let least = if random.u8(..4) == 0 { random.u64(1_000..8_000) } else { random.u64(20..200) };
        DiskProfile {
            least,
            jitter: least * random.u64(0..4),
            bytes_per_micro: random.u64(50..2_000),
            quota: 1 << random.u32(20..28),
        }
    }
}

/// A bit that has changed on the disk without anybody having written it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corruption {
    /// When.
    pub at: Time,
    /// In which file; it may have another name by now, or be gone.
    pub file: FileName,
    /// In which of its bytes.
    pub offset: u64,
}

/// A task that is under way.
struct UnderWay {
    thread: ThreadId,
    request: FileRequest,
}

/// How long a task takes at most, however slow the disk is: what the cluster must come to rest in allows for that.
const SLOW_MAX: Time = 500_000;

/// The faults of a disk.
struct Faults {
    /// The kinds that happen to it.
    kinds: BTreeSet<Fault>,
    /// When the next one happens; `Time::MAX` before faults begin.
    next: Time,
    /// The time between two, on average.
    interval: Time,
    /// When they end.
    until: Time,
    /// Tasks take so many times longer until then.
    slow: (u64, Time),
    /// So many of the next tasks fail.
    failing: u32,
}

/// A disk. It outlives the threads of its node.
pub struct Disk {
    profile: DiskProfile,
    random: Rng,
    files: BTreeMap<FileName, Contents>,
    /// The time of the last task, begun or done.
    now: Time,
    /// By ticket, which is in the order in which they were requested.
    under_way: BTreeMap<u64, UnderWay>,
    tickets: u64,
    /// When the last task on a file is done.
    busy_until: BTreeMap<FileName, Time>,
    /// Files of which a write or flush has failed since the node has started: nothing is written to them any more.
    failed: BTreeSet<FileName>,
    faults: Faults,
    corruptions: Vec<Corruption>,
    has_failed: bool,
}

/// The kinds that happen at a moment.
const STRIKES: [Fault; 3] = [Fault::SlowDisk, Fault::FailingDisk, Fault::CorruptSector];

impl Disk {
    /// An empty disk, without faults so far.
    pub fn new(profile: DiskProfile, seed: u64) -> Self {
        Disk {
            profile,
            random: Rng::with_seed(seed),
            files: BTreeMap::new(),
            now: 0,
            under_way: BTreeMap::new(),
            tickets: 0,
            busy_until: BTreeMap::new(),
            failed: BTreeSet::new(),
            faults: Faults {
                kinds: BTreeSet::new(),
                next: Time::MAX,
                interval: 0,
                until: 0,
                slow: (1, 0),
                failing: 0,
            },
            corruptions: Vec::new(),
            has_failed: false,
        }
    }

    /// From now on until then faults of these kinds happen.
    pub fn begin_faults(&mut self, kinds: BTreeSet<Fault>, interval: Time, now: Time, until: Time) {
        let next = now + self.random.u64(..=interval * 2);
        self.faults = Faults { kinds, next, interval, until, slow: (1, 0), failing: 0 };
    }

    /// No more faults happen, and those that last are over: there is room again.
    pub fn end_faults(&mut self, now: Time) {
        self.faults.until = now.min(self.faults.until);
        (self.faults.slow, self.faults.failing) = ((1, 0), 0);
    }

    /// A thread asks for a task. Returns when it is done, and the ticket for [`Disk::complete`].
    pub fn submit(&mut self, thread: ThreadId, request: FileRequest, now: Time) -> (Time, u64) {
        self.meet_faults(now);
        let DiskProfile { least, jitter, bytes_per_micro, .. } = self.profile;
        let (_, bytes) = request.task.place();
        let span = least + self.random.u64(..=jitter) + bytes / bytes_per_micro;
        let (factor, slow_until) = self.faults.slow;
        let span = if now < slow_until { (span * factor).min(SLOW_MAX) } else { span };
        let names = names_of(&request);
        let begin = names.clone().filter_map(|name| self.busy_until.get(&name).copied()).fold(now, Time::max);
        for name in names {
            self.busy_until.insert(name, begin + span);
        }
        self.tickets += 1;
        self.under_way.insert(self.tickets, UnderWay { thread, request });
        (begin + span, self.tickets)
    }

    /// A task is done: gives it its effect, and returns the answer and who gets it. `None` if it was lost in a crash.
    pub fn complete(&mut self, ticket: u64, now: Time) -> Option<(ThreadId, FileAnswer)> {
        let UnderWay { thread, request } = self.under_way.remove(&ticket)?;
        self.busy_until.retain(|_, until| *until > now);
        self.meet_faults(now);
        let result = if self.is_refused(&request) {
            Err((FileErrorKind::Failed, "an earlier write or flush of it has failed"))
        } else if self.fails(&request.task) {
            self.has_failed = true;
            self.fail(&request);
            Err((FileErrorKind::Failed, "the disk has failed"))
        } else {
            self.carry_out(&request)
        };
        let FileRequest { requester, token, file, task } = request;
        let result = result.map_err(|(kind, why)| FileError {
            kind,
            text: format!("{} {}: {why}", task.name(), file.path()),
        });
        Some((thread, FileAnswer { requester, token, result }))
    }

    /// The machine stops. What is on the disk afterwards is a matter of chance, as far as no flush was confirmed.
    pub fn crash(&mut self, random: &mut Rng) {
        // How likely it is that a task that is under way is done nevertheless.
        let (done, of) = [(0, 1), (1, 2), (3, 4), (1, 1)][random.usize(..4)];
        let mut stopped: BTreeSet<FileName> = BTreeSet::new();
        for UnderWay { request, .. } in std::mem::take(&mut self.under_way).into_values() {
            // It was not begun if one before it is not done.
            let is_begun =
                !names_of(&request).any(|name| stopped.contains(&name)) && !self.is_refused(&request);
            let is_done = is_begun && random.u32(..of) < done;
            // A write that is not done may be done in part: its atoms are kept or lost like those of others.
            if is_done || is_begun && is_write(&request.task) {
                // There is nobody whom an error could be reported to.
                let _ = self.carry_out(&request);
            }
            if !is_done {
                stopped.extend(names_of(&request));
            }
        }
        for contents in self.files.values_mut() {
            contents.crash(random);
        }
        if self.faults.kinds.contains(&Fault::CorruptSector) && random.bool() {
            self.corrupt(self.now);
        }
        self.busy_until.clear();
        self.failed.clear();
        (self.faults.slow, self.faults.failing) = ((1, 0), 0);
    }

    /// The files that there are, with their sizes.
    pub fn list(&self) -> Vec<(FileName, u64)> {
        self.files.iter().map(|(&name, contents)| (name, contents.size())).collect()
    }

    /// A file.
    pub fn contents(&self, file: FileName) -> Option<&Contents> {
        self.files.get(&file)
    }

    /// Whether any task has failed because of a fault so far.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// The bits that have changed so far.
    pub fn corruptions(&self) -> &[Corruption] {
        &self.corruptions
    }

    /// An empty disk in place of this one: what was under way is lost.
    pub fn reset(&mut self) {
        self.files.clear();
        self.under_way.clear();
        self.busy_until.clear();
        self.failed.clear();
        self.corruptions.clear();
    }

    fn carry_out(&mut self, request: &FileRequest) -> Result<FileData, (FileErrorKind, &'static str)> {
        let file = request.file;
        let missing = (FileErrorKind::NotFound, "there is no such file");
        let needed = match &request.task {
            FileTask::Allocate { bytes } => *bytes,
            FileTask::Write { .. } | FileTask::Fill { .. } => {
                let (offset, bytes) = request.task.place();
                offset + bytes
            }
            _ => 0,
        };
        if !self.has_room(file, needed) {
            return Err((FileErrorKind::DiskFull, "the disk is full"));
        }
        match &request.task {
            FileTask::Read { offset, bytes } => {
                let contents = self.files.get(&file).ok_or(missing)?;
                let (data, filled) = contents.read(*offset, *bytes as usize);
                return Ok(FileData::Bytes(data, filled));
            }
            FileTask::Write { offset, data } => {
                self.files.get_mut(&file).ok_or(missing)?.write(*offset, data.0.clone());
            }
            FileTask::Fill { offset, bytes } => {
                self.files.get_mut(&file).ok_or(missing)?.fill(*offset, *bytes);
            }
            FileTask::Flush => self.files.get_mut(&file).ok_or(missing)?.flush(),
            FileTask::Allocate { bytes } => self.files.entry(file).or_default().allocate(*bytes),
            FileTask::Remove => {
                self.files.remove(&file);
                self.failed.remove(&file);
            }
            FileTask::Rename { to } => {
                self.failed.retain(|name| *name != file && name != to);
                let contents = self.files.remove(&file).ok_or(missing)?;
                self.files.insert(*to, contents);
            }
            FileTask::List => {
                let is_listed = |name: &FileName| (name.kind, name.owner) == (file.kind, file.owner);
                let files = self.files.iter().filter(|(name, _)| is_listed(name));
                return Ok(FileData::Names(files.map(|(&name, contents)| (name, contents.size())).collect()));
            }
        }
        Ok(FileData::None)
    }

    /// Whether a file can have this size.
    fn has_room(&self, file: FileName, bytes: u64) -> bool {
        let own = self.files.get(&file).map_or(0, Contents::size);
        if !self.faults.kinds.contains(&Fault::FullDisk) || self.now >= self.faults.until || bytes <= own {
            return true;
        }
        let used: u64 = self.files.values().map(Contents::size).sum();
        used - own + bytes <= self.profile.quota
    }

    /// Moves the clock, and has the faults happen whose time has come.
    fn meet_faults(&mut self, now: Time) {
        self.now = now;
        while self.faults.next <= now && self.faults.next < self.faults.until {
            let at = self.faults.next;
            self.faults.next += 1 + self.random.u64(..=self.faults.interval * 2);
            let kind = STRIKES[self.random.usize(..STRIKES.len())];
            if !self.faults.kinds.contains(&kind) {
                continue;
            }
            match kind {
                Fault::SlowDisk => {
                    // 10 to 1000 times.
                    let factor = 10u64.pow(self.random.u32(1..=2)) * self.random.u64(1..=10);
                    self.faults.slow = (factor, at + self.random.u64(1_000..200_000));
                }
                Fault::FailingDisk => self.faults.failing = self.random.u32(1..5),
                _ => self.corrupt(at),
            }
        }
    }

    /// Whether a task is refused because one before it has failed: whoever has sent several relies on that a later one
    /// is not on the disk without those before it. So do the threads of a real node (`vinga_runtime::files`).
    fn is_refused(&self, request: &FileRequest) -> bool {
        changes_contents(&request.task) && self.failed.contains(&request.file)
    }

    /// Whether the disk fails at this task.
    fn fails(&mut self, task: &FileTask) -> bool {
        let may_fail = changes_contents(task) || matches!(task, FileTask::Read { .. });
        let fails = may_fail && self.faults.failing > 0;
        self.faults.failing -= u32::from(fails);
        fails
    }

    /// What a task that fails leaves: reads may see what was written, but no flush will bring it to the disk any more.
    fn fail(&mut self, request: &FileRequest) {
        let is_seen = self.random.bool();
        if changes_contents(&request.task) {
            self.failed.insert(request.file);
        }
        let Some(contents) = self.files.get_mut(&request.file) else { return };
        match &request.task {
            FileTask::Write { offset, data } if is_seen => contents.write(*offset, data.0.clone()),
            FileTask::Fill { offset, bytes } if is_seen => contents.fill(*offset, *bytes),
            FileTask::Flush => contents.forget_unflushed(),
            _ => return,
        }
        if is_write(&request.task) {
            contents.forget_last();
        }
    }

    /// Turns a bit of some file.
    fn corrupt(&mut self, at: Time) {
        let names: Vec<FileName> = self.files.keys().copied().collect();
        let Some(&file) = self.random.choice(&names) else { return };
        let contents = self.files.get_mut(&file).expect("it was listed");
        if let Some(offset) = contents.corrupt(&mut self.random) {
            self.corruptions.push(Corruption { at, file, offset });
        }
    }
}

fn is_write(task: &FileTask) -> bool {
    matches!(task, FileTask::Write { .. } | FileTask::Fill { .. })
}

/// Whether what is on the disk of a file, or is to be there, is different behind it.
fn changes_contents(task: &FileTask) -> bool {
    is_write(task) || matches!(task, FileTask::Flush)
}

/// The files that a task is about: a rename is a task on two.
fn names_of(request: &FileRequest) -> impl Iterator<Item = FileName> + Clone {
    let other = match request.task {
        FileTask::Rename { to } => Some(to),
        _ => None,
    };
    [request.file].into_iter().chain(other)
}

#[cfg(test)]
mod tests;
