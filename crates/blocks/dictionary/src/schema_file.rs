//! The schema file: where the definitions are on disk, and how they get there.
//!
//! A change appends an entry; now and then all definitions are written anew, as the next generation, into the other of
//! two files (`vinga_format::schema`). One thing is written at a time:
//!
//! ```text
//!   append:   Allocate ─▶ (the caller goes on or gives up) ─▶ Write, Flush ─▶ appended
//!   rewrite:  Remove what is left of an earlier attempt, Allocate ─▶ Write…, Flush ─▶ rewritten
//!             ─▶ Remove the older file
//! ```
//! Only `Allocate` may find the disk full: nothing was written then. A failed write or flush stops the node.

use crate::definitions::{Item, encode};
use alloc::string::String;
use alloc::vec::Vec;
use vinga_base::Epoch;
use vinga_base::aligned::AlignedBuffer;
use vinga_format::block::Origin;
use vinga_format::checksum::Checksum;
use vinga_format::schema::{SchemaEntry, SchemaPlace, append, rewrite};
use vinga_kernel::files::{Data, FileKind, FileName, FileTask};
use vinga_kernel::{Context, FailedWrites, InjectedBug, LogLevel};
use vinga_wire::file::{FileErrorKind, FileRefuse};
use vinga_wire::start::DefinitionsExtent;

/// Room is allocated in steps of this size, so that few changes need more.
const ALLOCATION_BYTES: u64 = 64 << 10;

/// Bytes that a file may have although the definitions need less.
const SPARE_BYTES: u64 = 1 << 20;

/// A file is rewritten when it has so many times the bytes that its rewriting had, and [`SPARE_BYTES`].
const REWRITE_FACTOR: u64 = 4;

/// What a dictionary with a disk is configured with.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The random number of the cluster.
    pub cluster: u64,
    /// How checksums are computed.
    pub checksum: Checksum,
}

/// What the answers of files are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// The files are listed.
    List,
    /// A piece of a file is read; counted over both.
    Read(u32),
    /// What an earlier attempt at a rewriting has left is removed.
    Clear,
    /// There is room for what is to be written.
    Allocate,
    /// A block is written; counted over what is being written.
    Write(u32),
    /// What was written is flushed.
    Flush,
    /// A file that does not count is removed.
    Remove(u32),
}

impl Task {
    /// As a token of a file task.
    pub fn token(self) -> u64 {
        let (kind, number) = match self {
            Task::List => (0u64, 0),
            Task::Read(number) => (1, number),
            Task::Clear => (2, 0),
            Task::Allocate => (3, 0),
            Task::Write(number) => (4, number),
            Task::Flush => (5, 0),
            Task::Remove(file) => (6, file),
        };
        kind << 32 | u64::from(number)
    }

    /// The inverse of [`Task::token`].
    pub fn from_token(token: u64) -> Self {
        match token >> 32 {
            0 => Task::List,
            1 => Task::Read(token as u32),
            2 => Task::Clear,
            3 => Task::Allocate,
            4 => Task::Write(token as u32),
            5 => Task::Flush,
            6 => Task::Remove(token as u32),
            kind => unreachable!("no file task has kind {kind}"),
        }
    }
}

/// What has become of what was to be written.
#[derive(PartialEq, Eq, Debug)]
pub enum Progress {
    /// There is room for the entry: [`SchemaFile::write`] or [`SchemaFile::give_up`] comes next.
    HasRoom,
    /// The entry is on disk.
    Appended,
    /// The next generation is on disk.
    Rewritten,
    /// There is no room: nothing was written.
    DiskFull {
        /// Whether the next generation was to be written.
        is_rewriting: bool,
        /// For people.
        text: String,
    },
}

/// A place in a schema file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Which of the two files.
    pub file: u64,
    /// The generation in it.
    pub generation: u64,
    /// Where its next block goes.
    pub end: SchemaPlace,
}

/// What is being written.
struct Work {
    is_rewriting: bool,
    /// The epoch of the newest entry when it is on disk.
    epoch: Epoch,
    /// Offsets with blocks.
    blocks: Vec<(u64, AlignedBuffer)>,
    /// Where the definitions end when it is on disk.
    next: Place,
}

/// The schema file of a node.
pub struct SchemaFile {
    disk: Disk,
    /// The incarnation of the log that is written.
    incarnation: u32,
    /// Where the definitions end; `None` if there is no file.
    place: Option<Place>,
    /// The epoch of the newest entry.
    newest: Epoch,
    work: Option<Work>,
    /// Once a write or flush has failed, nothing comes to its end any more.
    failed_writes: FailedWrites,
    /// The size at which the file is rewritten.
    rewrite_at: u64,
}

impl SchemaFile {
    /// There is no file, as far as is known.
    pub fn new(disk: Disk) -> Self {
        SchemaFile {
            disk,
            incarnation: 0,
            place: None,
            newest: Epoch(0),
            work: None,
            failed_writes: FailedWrites::default(),
            rewrite_at: 0,
        }
    }

    /// How checksums are computed.
    pub fn checksum(&self) -> Checksum {
        self.disk.checksum
    }

    /// The random number of the cluster.
    pub fn cluster(&self) -> u64 {
        self.disk.cluster
    }

    /// One of the two files.
    pub fn name(file: u64) -> FileName {
        FileName::new(FileKind::Schema, 0, file)
    }

    /// This was found on disk, and entries up to this epoch count.
    pub fn note_found(&mut self, place: Place, restored: Epoch) {
        (self.place, self.newest) = (Some(place), restored);
    }

    /// From now on this incarnation is written.
    pub fn begin(&mut self, incarnation: u32) {
        self.incarnation = incarnation;
    }

    /// How far the definitions on the disk reach.
    pub fn extent(&self) -> DefinitionsExtent {
        self.place.map_or(DefinitionsExtent::default(), |Place { generation, end, .. }| DefinitionsExtent {
            generation,
            blocks: end.number,
        })
    }

    /// Whether nothing is being written.
    pub fn is_at_rest(&self) -> bool {
        self.work.is_none()
    }

    /// Whether the file has grown so much that it should be rewritten before the next entry.
    pub fn is_due(&self) -> bool {
        self.place.is_some_and(|place| place.end.offset >= self.rewrite_at)
    }

    /// The file is rewritten when it is twice as long as it is now, not before.
    pub fn put_off_rewriting(&mut self) {
        self.rewrite_at = self.place.map_or(0, |place| 2 * place.end.offset);
    }

    fn origin(&self, cx: &Context<'_>) -> Origin {
        Origin { cluster: self.disk.cluster, node: cx.own().node(), incarnation: self.incarnation, owner: 0 }
    }

    /// Begins the next generation, which consists of these items. None of them is of a later epoch than the newest
    /// entry.
    pub fn begin_rewriting(&mut self, cx: &mut Context<'_>, items: impl Iterator<Item = Item>) {
        let (file, generation) = self.place.map_or((0, 1), |place| (1 - place.file, place.generation + 1));
        let entries: Vec<Vec<u8>> = items.map(|item| encode(&[item])).collect();
        let entries = entries.iter().map(|bytes| SchemaEntry { epoch: self.newest, bytes });
        let blocks = rewrite(self.origin(cx), generation, entries, self.disk.checksum);
        cx.file(Self::name(file), Task::Clear.token(), FileTask::Remove);
        let from = Place { file, generation, end: SchemaPlace { offset: 0, number: 0 } };
        self.begin_work(cx, self.newest, from, blocks);
    }

    /// Begins to append an entry.
    pub fn begin_appending(&mut self, cx: &mut Context<'_>, epoch: Epoch, items: &[Item]) {
        let from = self.place.expect("the files were made at the start");
        assert!(epoch >= self.newest, "entries have ascending epochs");
        let entry = SchemaEntry { epoch, bytes: &encode(items) };
        let number = from.end.number;
        let blocks = append(self.origin(cx), from.generation, number, [entry], self.disk.checksum);
        self.begin_work(cx, epoch, from, blocks);
    }

    fn begin_work(&mut self, cx: &mut Context<'_>, epoch: Epoch, from: Place, blocks: Vec<AlignedBuffer>) {
        assert!(self.work.is_none(), "one thing is written at a time");
        let mut next = from;
        let place = |block: AlignedBuffer| {
            let offset = next.end.offset;
            next.end.offset += block.len() as u64;
            next.end.number += 1;
            (offset, block)
        };
        let blocks = blocks.into_iter().map(place).collect();
        let bytes = next.end.offset.next_multiple_of(ALLOCATION_BYTES);
        cx.file(Self::name(from.file), Task::Allocate.token(), FileTask::Allocate { bytes });
        let is_rewriting = from.end.number == 0;
        self.work = Some(Work { is_rewriting, epoch, blocks, next });
    }

    /// Writes what there is room for.
    pub fn write(&mut self, cx: &mut Context<'_>) {
        let has_to_flush = self.has_to_flush(cx);
        let work = self.work.as_mut().expect("there is something to write");
        let file = Self::name(work.next.file);
        for (number, (offset, block)) in (0..).zip(work.blocks.drain(..)) {
            let write = FileTask::Write { offset, data: Data(block) };
            cx.file(file, Task::Write(number).token(), write);
        }
        if has_to_flush {
            cx.file(file, Task::Flush.token(), FileTask::Flush);
        }
    }

    /// The entry for which there is room is not written after all.
    pub fn give_up(&mut self) {
        self.work = None;
    }

    /// Whether what is being written counts only when it is flushed: it always does.
    fn has_to_flush(&self, cx: &Context<'_>) -> bool {
        let is_rewriting = self.work.as_ref().is_some_and(|work| work.is_rewriting);
        is_rewriting || !cx.has_bug(InjectedBug::DefinitionFlushLeftOut)
    }

    fn remove(cx: &mut Context<'_>, file: u64) {
        cx.file(Self::name(file), Task::Remove(file as u32).token(), FileTask::Remove);
    }

    /// A task is done.
    pub fn on_done(&mut self, cx: &mut Context<'_>, task: Task) -> Option<Progress> {
        if self.failed_writes.is_any() {
            return None;
        }
        match task {
            Task::Allocate if self.work.as_ref().is_some_and(|work| work.is_rewriting) => {
                self.write(cx);
                None
            }
            Task::Allocate => self.work.as_ref().map(|_| Progress::HasRoom),
            Task::Write(_) if !self.has_to_flush(cx) => self.on_done(cx, Task::Flush),
            Task::Flush => {
                // With the bug each write counts as a flush: behind the first there is nothing left to do.
                let Work { is_rewriting, epoch, next, .. } = self.work.take()?;
                (self.place, self.newest) = (Some(next), epoch);
                if !is_rewriting {
                    return Some(Progress::Appended);
                }
                self.rewrite_at = SPARE_BYTES + REWRITE_FACTOR * next.end.offset;
                Self::remove(cx, 1 - next.file);
                Some(Progress::Rewritten)
            }
            Task::List | Task::Read(_) | Task::Clear | Task::Write(_) | Task::Remove(_) => None,
        }
    }

    /// A task has failed. Only a full disk is no reason to stop the node, and an older generation that stays: it does
    /// not count.
    pub fn on_failed(&mut self, cx: &mut Context<'_>, refuse: FileRefuse) -> Option<Progress> {
        match Task::from_token(refuse.token) {
            Task::Allocate if refuse.kind == FileErrorKind::DiskFull => {
                let work = self.work.take().expect("something was to be written");
                if work.is_rewriting {
                    Self::remove(cx, work.next.file);
                }
                return Some(Progress::DiskFull { is_rewriting: work.is_rewriting, text: refuse.text });
            }
            Task::Remove(_) => {
                cx.log(LogLevel::Warning, format_args!("an old schema file stays: {}", refuse.text));
            }
            _ => self.failed_writes.stop_node(cx, "the schema file", &refuse),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_tasks() {
        for task in [
            Task::List,
            Task::Read(u32::MAX),
            Task::Clear,
            Task::Allocate,
            Task::Write(7),
            Task::Flush,
            Task::Remove(1),
        ] {
            assert_eq!(Task::from_token(task.token()), task);
        }
    }
}
